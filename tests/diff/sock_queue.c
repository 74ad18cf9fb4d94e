// How much the queues of sockets take: what a message counts for is its block of memory, not its bytes alone.
#include "inet.h"
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sys/un.h>

static char bytes[5 << 20], in[5 << 20];

static int drained(int s) {
    int n = 0;
    while (recv(s, in, sizeof in, MSG_DONTWAIT) >= 0) n++;
    return n;
}
// The default buffer natively, whatever the host's sysctls.
static void with_default_buffer(int s, int name) { OK(set_int(s, SOL_SOCKET, name, 106496)); }

TEST(udp_takes) {
    static const int want[][3] = {
        {1, 256, 256},   {150, 256, 256}, {200, 166, 166}, {600, 166, 166}, {700, 92, 92},    {1472, 92, 92},
        {1700, 48, 48},  {1900, 48, 48},  {3000, 48, 48},  {3700, 48, 48},  {3777, 25, 25},   {7700, 25, 25},
        {9000, 12, 12},  {15000, 12, 12}, {17000, 11, 11}, {20000, 10, 10}, {30000, 6, 6},    {60000, 3, 3},
    };
    BOTH(f) for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int a = bound(f, SOCK_DGRAM), b = SYS(socket(f, SOCK_DGRAM, 0));
        with_default_buffer(a, SO_RCVBUF);
        OK(try_connect(b, f, port_of(a)));
        for (int n = 0; n < 300; n++) CHECK_EQ(send(b, bytes, want[i][0], 0), want[i][0]);
        CHECK_EQ(drained(a), want[i][f == AF_INET ? 1 : 2]);
        // An empty queue takes one of any size.
        OK(set_int(a, SOL_SOCKET, SO_RCVBUF, 0));
        for (int n = 0; n < 2; n++) CHECK_EQ(send(b, bytes, 9000, 0), 9000);
        CHECK_EQ(drained(a), 1);
        close(a), close(b);
    }
}
TEST(raw_and_packet_sockets_take) {
    if (geteuid() != 0) SKIP("not root");
    static const int want[][3] = {{1, 256, 256}, {300, 167, 167}, {1000, 93, 93},  {1900, 49, 49},
                                  {4000, 26, 26}, {9000, 13, 13},  {20000, 11, 11}, {60000, 4, 4}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int raw = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_UDP)), all = SYS(socket(AF_PACKET, SOCK_DGRAM, 0));
        int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
        struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = 1};
        with_default_buffer(raw, SO_RCVBUF);
        with_default_buffer(all, SO_RCVBUF);
        OK(bind(all, (void *)&at, sizeof at));
        OK(try_connect(b, AF_INET, port_of(a)));
        for (int n = 0; n < 300; n++) CHECK_EQ(send(b, bytes, want[i][0], 0), want[i][0]);
        CHECK_EQ(drained(raw), want[i][1]);
        CHECK_EQ(drained(all), want[i][2]);
        close(raw), close(all), close(a), close(b);
    }
}
// Messages of this size until there is no room, and their bytes.
static int filled(int type, int size, long *total) {
    int v[2], n = 0;
    SYS(socketpair(AF_UNIX, type, 0, v));
    with_default_buffer(v[0], SO_SNDBUF);
    *total = 0;
    for (long k; (k = send(v[0], bytes, size, MSG_DONTWAIT)) >= 0; n++) *total += k;
    CHECK_EQ(errno, EAGAIN);
    close(v[0]), close(v[1]);
    return n;
}
TEST(unix_takes) {
    static const int want[][3] = {{1, 278, 278},    {192, 278, 278},  {193, 167, 167}, {640, 167, 167}, {1000, 93, 93},
                                  {1700, 93, 93},   {1800, 49, 49},   {3776, 49, 49},  {3777, 26, 44},  {6000, 26, 26},
                                  {9000, 13, 21},   {15000, 13, 13},  {17000, 11, 13}, {20000, 11, 11}, {30000, 7, 7}};
    long total;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK_EQ(filled(SOCK_DGRAM, want[i][0], &total), want[i][1]);
        CHECK_EQ(filled(SOCK_STREAM, want[i][0], &total), want[i][2]);
    }
    CHECK_EQ(filled(SOCK_STREAM, 40000, &total), 6);
    CHECK_EQ(total, 236544);
    int v[2], used = 0;
    SYS(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, v));
    CHECK_EQ(send(v[0], bytes, 500, 0), 500);
    OK(ioctl(v[0], TIOCOUTQ, &used));
    CHECK_EQ(used, 1280);
}
// write(2) sends one record, and read(2) takes one, whatever its length.
TEST(long_records) {
    if (geteuid() != 0) SKIP("not root");
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int t = 0; t < 2; t++) {
        int v[2];
        SYS(socketpair(AF_UNIX, types[t], 0, v));
        CHECK_ERR(write(v[0], bytes, 4 << 20), EMSGSIZE);
        CHECK_ERR(write(v[0], bytes, 1 << 20), EMSGSIZE);
        if (set_int(v[0], SOL_SOCKET, SO_SNDBUFFORCE, 8 << 20) != 0) SKIP("not root of the host");
        // What is in one block and its pages has a bound.
        ssize_t n = 2 << 20;
        for (; n > 0 && write(v[0], bytes, n) != n; n /= 2) CHECK(errno == EMSGSIZE || errno == ENOBUFS);
        MUST(n > 0);
        CHECK_EQ(read(v[1], in, sizeof in), n);
        struct iovec two[] = {{bytes, n / 2}, {bytes, n / 2}};
        CHECK_EQ(writev(v[0], two, 2), n);
        CHECK_EQ(write(v[0], "x", 1), 1);
        CHECK_EQ(read(v[1], in, sizeof in), n);
        CHECK_EQ(read(v[1], in, sizeof in), 1);
        close(v[0]), close(v[1]);
    }
}
