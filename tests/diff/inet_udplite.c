// UDP-Lite: datagrams whose checksum covers a part of them. See udplite(7).
#include "inet.h"

#define LITE IPPROTO_UDPLITE
#define SEND_CSCOV 10
#define RECV_CSCOV 11

static int lite(int family) { return SYS(socket(family, SOCK_DGRAM, LITE)); }
// A bound socket and one that is connected to it.
static void lite_pair(int family, int v[2]) {
    v[0] = lite(family), v[1] = lite(family);
    union addr a = loopback(family, 0);
    SYS(bind(v[1], &a.any, size_of(family)));
    OK(try_connect(v[0], family, port_of(v[1])));
}

TEST(datagrams_of_both_families) {
    for (int i = 0; i < 2; i++) {
        int family = i ? AF_INET6 : AF_INET, v[2];
        char b[64];
        lite_pair(family, v);
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_PROTOCOL), LITE);
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
        CHECK_EQ(send(v[0], "hello", 5, 0), 5);
        CHECK_EQ(send(v[0], "", 0, 0), 0);
        CHECK_EQ(recv(v[1], b, sizeof b, 0), 5);
        CHECK_MEM(b, "hello", 5);
        CHECK_EQ(recv(v[1], b, sizeof b, 0), 0);
        union addr from;
        socklen_t n = sizeof from;
        CHECK_EQ(send(v[0], "hello", 5, 0), 5);
        CHECK_EQ(recvfrom(v[1], b, 2, MSG_TRUNC, &from.any, &n), 5);
        CHECK_EQ(n, size_of(family));
        CHECK_EQ(sendto(v[1], "back", 4, 0, &from.any, n), 4);
        CHECK_EQ(recv(v[0], b, sizeof b, 0), 4);
        close(v[1]);
        CHECK_EQ(send(v[0], "x", 1, 0), 1);
        CHECK_ERR(recv(v[0], b, sizeof b, 0), ECONNREFUSED);
        close(v[0]);
    }
}
TEST(ports_are_its_own) {
    int udp = bound(AF_INET, SOCK_DGRAM), one = lite(AF_INET), other = lite(AF_INET);
    union addr a = loopback(AF_INET, port_of(udp));
    OK(bind(one, &a.any, size_of(AF_INET)));
    CHECK_ERR(bind(other, &a.any, size_of(AF_INET)), EADDRINUSE);
    char b[8];
    CHECK_EQ(sendto(other, "x", 1, 0, &a.any, size_of(AF_INET)), 1);
    CHECK_EQ(recv(one, b, 8, 0), 1);
    CHECK_ERR(recv(udp, b, 8, MSG_DONTWAIT), EAGAIN);
}
TEST(coverage_options) {
    int v[2], udp = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    lite_pair(AF_INET, v);
    int names[] = {SEND_CSCOV, RECV_CSCOV};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(get_int(v[0], LITE, names[i]), 0);
        int given[] = {3, 8, 20, 70000, -1, 0}, kept[] = {8, 8, 20, 65535, 8, 0};
        for (int k = 0; k < 6; k++) {
            OK(set_int(v[0], LITE, names[i], given[k]));
            CHECK_EQ(get_int(v[0], LITE, names[i]), kept[k]);
            CHECK_EQ(get_int(v[0], IPPROTO_UDP, names[i]), kept[k]);
        }
        CHECK_ERR(set_int(udp, LITE, names[i], 8), ENOPROTOOPT);
        CHECK_EQ(get_int(udp, LITE, names[i]), 0);
        CHECK_ERR(setsockopt(v[0], LITE, names[i], "a", 1), EINVAL);
    }
    CHECK_ERR(set_int(v[0], LITE, 99, 1), ENOPROTOOPT);
}
TEST(what_is_covered) {
    int v[2];
    char b[64];
    lite_pair(AF_INET, v);
    // Full coverage is wanted, and given.
    OK(set_int(v[1], LITE, RECV_CSCOV, 0));
    CHECK_EQ(send(v[0], "0123456789", 10, 0), 10);
    CHECK_EQ(recv(v[1], b, sizeof b, MSG_DONTWAIT), 10);
    OK(set_int(v[0], LITE, SEND_CSCOV, 10));
    CHECK_EQ(send(v[0], "0123456789", 10, 0), 10);
    CHECK_ERR(recv(v[1], b, sizeof b, MSG_DONTWAIT), EAGAIN);
    // Two bytes of the payload are covered.
    OK(set_int(v[1], LITE, RECV_CSCOV, 10));
    CHECK_EQ(send(v[0], "0123456789", 10, 0), 10);
    CHECK_EQ(recv(v[1], b, sizeof b, MSG_DONTWAIT), 10);
    OK(set_int(v[1], LITE, RECV_CSCOV, 11));
    CHECK_EQ(send(v[0], "0123456789", 10, 0), 10);
    CHECK_ERR(recv(v[1], b, sizeof b, MSG_DONTWAIT), EAGAIN);
    // More than there is covers everything.
    OK(set_int(v[0], LITE, SEND_CSCOV, 100));
    OK(set_int(v[1], LITE, RECV_CSCOV, 0));
    CHECK_EQ(send(v[0], "0123456789", 10, 0), 10);
    CHECK_EQ(recv(v[1], b, sizeof b, MSG_DONTWAIT), 10);
}
// Headers as they are on the way, and headers that are wrong.
TEST(headers) {
    int v[2], raw = socket(AF_INET, SOCK_RAW, LITE);
    if (raw < 0 && errno == EPERM) SKIP("no raw sockets");
    unsigned char b[128];
    lite_pair(AF_INET, v);
    OK(set_int(v[0], LITE, SEND_CSCOV, 12));
    CHECK_EQ(send(v[0], "0123456789", 10, 0), 10);
    CHECK_EQ(recv(raw, b, sizeof b, 0), 38);
    CHECK_EQ(b[20 + 4] << 8 | b[20 + 5], 12);
    CHECK_EQ(recv(v[1], b + 64, 64, MSG_DONTWAIT), 10);
    union addr a = loopback(AF_INET, 0);
    // The uncovered part may be damaged, the covered one not; a coverage beyond the end is wrong.
    int at[] = {33, 29, 25, 25}, value[] = {'Z', 'Z', 7, 19}, passes[] = {1, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        unsigned char packet[18];
        memcpy(packet, b + 20, 18);
        packet[at[i] - 20] = value[i];
        CHECK_EQ(sendto(raw, packet, 18, 0, &a.any, size_of(AF_INET)), 18);
        CHECK_EQ(recv(v[1], b + 64, 64, MSG_DONTWAIT), passes[i] ? 10 : -1);
    }
}
