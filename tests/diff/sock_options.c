// Options of sockets beside those that a family's tests have, and what they do.
#include "inet.h"
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stddef.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define SO_TXTIME_ 61
#define IP_PROTOCOL_ 52

static int any_socket(int n) {
    static const int kinds[][3] = {{AF_INET, SOCK_STREAM, 0},  {AF_INET6, SOCK_STREAM, 0}, {AF_INET, SOCK_DGRAM, 0},
                                   {AF_INET6, SOCK_DGRAM, 0},  {AF_UNIX, SOCK_STREAM, 0},  {AF_UNIX, SOCK_DGRAM, 0},
                                   {AF_UNIX, SOCK_SEQPACKET, 0}, {AF_NETLINK, SOCK_RAW, 0}};
    if (n >= (int)(sizeof kinds / sizeof *kinds)) return -1;
    return SYS(socket(kinds[n][0], kinds[n][1], kinds[n][2]));
}
TEST(options_of_every_family) {
    for (int n = 0, s; (s = any_socket(n)) >= 0; n++, close(s)) {
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_BPF_EXTENSIONS), 64);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_INCOMING_CPU), -1);
        OK(set_int(s, SOL_SOCKET, SO_INCOMING_CPU, 0));
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_INCOMING_CPU), 0);
        int flags[] = {SO_NOFCS, SO_WIFI_STATUS, SO_LOCK_FILTER};
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(get_int(s, SOL_SOCKET, flags[i]), 0);
            OK(set_int(s, SOL_SOCKET, flags[i], 7));
            CHECK_EQ(get_int(s, SOL_SOCKET, flags[i]), 1);
        }
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 0), EPERM);
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_BUSY_POLL, -1), EINVAL);
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_BUSY_POLL_BUDGET, -1), EINVAL);
        OK(set_int(s, SOL_SOCKET, SO_BUSY_POLL_BUDGET, 1));
        OK(set_int(s, SOL_SOCKET, SO_CNX_ADVICE, 1));
        int txtime[2] = {CLOCK_MONOTONIC, 2}, got[2] = {0};
        socklen_t len = sizeof got;
        OK(setsockopt(s, SOL_SOCKET, SO_TXTIME_, txtime, sizeof txtime));
        OK(getsockopt(s, SOL_SOCKET, SO_TXTIME_, got, &len));
        CHECK_MEM(got, txtime, sizeof got);
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_TXTIME_, 1), EINVAL);
        txtime[1] = 4;
        CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_TXTIME_, txtime, sizeof txtime), EINVAL);
        unsigned long rate = 0, cookie = 0, other = 0;
        len = sizeof rate;
        OK(getsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &len));
        CHECK(rate == ~0ul && len == 8);
        OK(set_int(s, SOL_SOCKET, SO_MAX_PACING_RATE, 77));
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_MAX_PACING_RATE), 77);
        rate = 1ul << 40;
        OK(setsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate));
        rate = 0;
        OK(getsockopt(s, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &len));
        CHECK(rate == 1ul << 40);
        OK(getsockopt(s, SOL_SOCKET, SO_COOKIE, &cookie, &len));
        int t = any_socket(n);
        OK(getsockopt(t, SOL_SOCKET, SO_COOKIE, &other, &len));
        CHECK(cookie != 0 && other != 0 && cookie != other);
        len = 4;
        CHECK_ERR(getsockopt(s, SOL_SOCKET, SO_COOKIE, &other, &len), EINVAL);
        close(t);
        if (n < 4 || n == 7) CHECK_ERR(set_int(s, SOL_SOCKET, 76 /* SO_PASSPIDFD */, 1), EOPNOTSUPP);
    }
}
TEST(options_of_ip) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        int level = f == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, name = f == AF_INET ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER;
        for (int v = 0; v < 6; v++) {
            OK(set_int(s, level, name, v));
            CHECK_EQ(get_int(s, level, name), v);
        }
        CHECK_ERR(set_int(s, level, name, 6), EINVAL);
        // Fragments are made of what the interface cannot take (OMIT), or not (INTERFACE).
        union addr to = loopback(f, 9);
        static char big[65507];
        OK(set_int(s, level, name, 5));
        CHECK_EQ(sendto(s, big, sizeof big, 0, &to.any, size_of(f)), sizeof big);
        OK(set_int(s, level, name, 4));
        CHECK_EQ(sendto(s, big, 1000, 0, &to.any, size_of(f)), 1000);
        close(s);
    }
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    unsigned char v[4] = {9, 9, 9, 9};
    for (socklen_t room = 1; room < 4; room++) {
        socklen_t len = room;
        OK(getsockopt(s, IPPROTO_IP, IP_TTL, v, &len));
        CHECK(len == 1 && v[0] == 64 && v[1] == 9);
    }
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_MULTICAST_TTL, v, 0), EINVAL);
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_FREEBIND, v, 0), EINVAL);
    OK(setsockopt(s, IPPROTO_IP, IP_TOS, v, 0));
    socklen_t len = sizeof v;
    OK(getsockopt(s, IPPROTO_IP, IP_OPTIONS, v, &len));
    CHECK_EQ(len, 0);
    OK(setsockopt(s, IPPROTO_IP, IP_OPTIONS, 0, 0));
    CHECK_EQ(get_int(s, IPPROTO_IP, IP_PROTOCOL_), 0);
    OK(set_int(s, SOL_SOCKET, 62 /* SO_BINDTOIFINDEX */, 1));
    char name[IFNAMSIZ] = "";
    len = 4;
    CHECK_ERR(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &len), EINVAL);
    len = sizeof name;
    OK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &len));
    CHECK_STR(name, "lo");
    int udp = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), names[] = {101, 102, 104};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(get_int(udp, IPPROTO_UDP, names[i]), 0);
        OK(set_int(udp, IPPROTO_UDP, names[i], 3));
        CHECK_EQ(get_int(udp, IPPROTO_UDP, names[i]), 1);
    }
    int tcp = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(set_int(tcp, IPPROTO_TCP, TCP_THIN_DUPACK, 1));
    CHECK_EQ(get_int(tcp, IPPROTO_TCP, TCP_THIN_DUPACK), 0);
    CHECK_ERR(set_int(tcp, IPPROTO_TCP, TCP_TIMESTAMP, 1), EPERM);
    CHECK_ERR(set_int(tcp, IPPROTO_TCP, TCP_REPAIR_QUEUE, 1), EPERM);
    CHECK_EQ(get_int(tcp, IPPROTO_TCP, 43 /* TCP_IS_MPTCP */), 0);
}
// Datagrams of IPv6 without a checksum.
TEST(checksums_left_out) {
    int a = bound(AF_INET6, SOCK_DGRAM), b = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    OK(set_int(b, IPPROTO_UDP, 101 /* UDP_NO_CHECK6_TX */, 1));
    OK(set_int(a, IPPROTO_UDP, 102 /* UDP_NO_CHECK6_RX */, 1));
    OK(try_connect(b, AF_INET6, port_of(a)));
    CHECK_EQ(send(b, "x", 1, 0), 1);
    char c = 0;
    CHECK_EQ(poll_for(a, POLLIN), POLLIN);
    CHECK_EQ(recv(a, &c, 1, MSG_DONTWAIT), 1);
}
TEST(options_of_a_stream_s_packets) {
    BOTH(f) {
        int v[2], level = f == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
        int l = bound(f, SOCK_STREAM);
        OK(set_int(l, level, f == AF_INET ? IP_PKTINFO : IPV6_RECVPKTINFO, 1));
        v[0] = SYS(socket(f, SOCK_STREAM, 0));
        OK(try_connect(v[0], f, port_of(l)));
        v[1] = SYS(accept(l, 0, 0));
        char told[128];
        socklen_t len = sizeof told;
        int name = f == AF_INET ? 9 /* IP_PKTOPTIONS */ : 6 /* IPV6_2292PKTOPTIONS */;
        OK(getsockopt(v[0], level, name, told, &len));
        CHECK_EQ(len, 0);
        len = sizeof told;
        OK(getsockopt(v[1], level, name, told, &len));
        struct msghdr m = {.msg_control = told, .msg_controllen = len};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        MUST(c);
        CHECK_EQ(c->cmsg_type, f == AF_INET ? IP_PKTINFO : IPV6_PKTINFO);
        if (f == AF_INET) {
            int info[3];
            memcpy(info, CMSG_DATA(c), sizeof info);
            CHECK_EQ(info[0], 1);
            CHECK_EQ(info[1], (int)htonl(INADDR_LOOPBACK));
            CHECK_EQ(info[2], info[1]);
        } else {
            int index;
            memcpy(&index, CMSG_DATA(c) + 16, sizeof index);
            CHECK_EQ(index, 1);
            CHECK_MEM(CMSG_DATA(c), &in6addr_loopback, 16);
        }
        close(v[0]), close(v[1]), close(l);
        int d = SYS(socket(f, SOCK_DGRAM, 0));
        len = sizeof told;
        CHECK_ERR(getsockopt(d, level, name, told, &len), ENOPROTOOPT);
        close(d);
    }
}
static int attach(int s, int count, struct sock_filter *code) {
    struct sock_fprog program = {count, code};
    return setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}
TEST(filters_of_local_sockets) {
    // Messages that begin with 'y', 3 bytes of each.
    struct sock_filter code[] = {{0x30, 0, 0, 0}, {0x15, 0, 1, 'y'}, {6, 0, 0, 3}, {6, 0, 0, 0}};
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM};
    for (int t = 0; t < 3; t++) {
        int v[2];
        char in[16];
        SYS(socketpair(AF_UNIX, types[t], 0, v));
        CHECK_ERR(setsockopt(v[1], SOL_SOCKET, SO_DETACH_FILTER, &(int){0}, 4), ENOENT);
        OK(attach(v[1], 4, code));
        CHECK_EQ(send(v[0], "no one", 6, 0), 6);
        CHECK_EQ(send(v[0], "yes", 3, 0), 3);
        CHECK_EQ(send(v[0], "yellow", 6, 0), 6);
        if (types[t] == SOCK_STREAM) {
            CHECK_EQ(recv(v[1], in, sizeof in, 0), 15);
        } else {
            CHECK_EQ(recv(v[1], in, sizeof in, 0), 3);
            CHECK_EQ(recv(v[1], in, sizeof in, MSG_TRUNC), 3);
            CHECK_MEM(in, "yel", 3);
            CHECK_ERR(recv(v[1], in, sizeof in, MSG_DONTWAIT), EAGAIN);
        }
        OK(set_int(v[1], SOL_SOCKET, SO_LOCK_FILTER, 1));
        CHECK_ERR(attach(v[1], 4, code), EPERM);
        CHECK_ERR(setsockopt(v[1], SOL_SOCKET, SO_DETACH_FILTER, &(int){0}, 4), EPERM);
        close(v[0]), close(v[1]);
    }
}
TEST(filters_of_netlink_sockets) {
    if (geteuid() != 0) SKIP("not root");
    int a = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT));
    int b = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT));
    struct sockaddr_nl at = {.nl_family = AF_NETLINK, .nl_groups = 2}, to = at;
    OK(bind(a, (void *)&at, sizeof at));
    struct sock_filter code[] = {{0x30, 0, 0, 0}, {0x15, 0, 1, 'y'}, {6, 0, 0, 0xffffffff}, {6, 0, 0, 0}};
    OK(attach(a, 4, code));
    CHECK_EQ(sendto(b, "no", 2, 0, (void *)&to, sizeof to), 2);
    CHECK_EQ(sendto(b, "yes", 3, 0, (void *)&to, sizeof to), 3);
    char in[16];
    CHECK_EQ(recv(a, in, sizeof in, MSG_DONTWAIT), 3);
    CHECK_ERR(recv(a, in, sizeof in, MSG_DONTWAIT), EAGAIN);
    OK(setsockopt(a, SOL_SOCKET, SO_DETACH_FILTER, &(int){0}, 4));
    CHECK_EQ(sendto(b, "no", 2, 0, (void *)&to, sizeof to), 2);
    CHECK_EQ(recv(a, in, sizeof in, MSG_DONTWAIT), 2);
}
TEST(times_of_local_datagrams) {
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET}, names[] = {SO_TIMESTAMP, SO_TIMESTAMPNS};
    for (int t = 0; t < 4; t++) {
        int v[2];
        SYS(socketpair(AF_UNIX, types[t & 1], 0, v));
        OK(set_int(v[1], SOL_SOCKET, names[!(t >> 1)], 1));
        OK(set_int(v[1], SOL_SOCKET, names[t >> 1], 1));
        CHECK_EQ(get_int(v[1], SOL_SOCKET, names[!(t >> 1)]), 0);
        long before = time(0);
        CHECK_EQ(send(v[0], "x", 1, 0), 1);
        char in[4], control[128];
        struct iovec iov = {in, sizeof in};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        CHECK_EQ(recvmsg(v[1], &m, 0), 1);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        MUST(c);
        CHECK_EQ(c->cmsg_type, names[t >> 1]);
        CHECK_EQ(c->cmsg_len, CMSG_LEN(16));
        long at[2];
        memcpy(at, CMSG_DATA(c), sizeof at);
        CHECK(at[0] >= before && at[0] <= time(0) + 1);
        close(v[0]), close(v[1]);
    }
}
TEST(names_of_stream_senders) {
    int v[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, v));
    char in[4], name[128];
    struct iovec iov = {in, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_name = name, .msg_namelen = sizeof name};
    CHECK_EQ(send(v[0], "abc", 3, 0), 3);
    CHECK_EQ(recvmsg(v[1], &m, 0), 1);
    CHECK_EQ(m.msg_namelen, 0);
    // A name that the sender took after it has sent.
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "\0named later"};
    OK(bind(v[0], (void *)&at, offsetof(struct sockaddr_un, sun_path) + 12));
    m.msg_namelen = sizeof name;
    CHECK_EQ(recvmsg(v[1], &m, 0), 1);
    CHECK_EQ(m.msg_namelen, offsetof(struct sockaddr_un, sun_path) + 12);
    CHECK_MEM(name, &at, m.msg_namelen);
    int a = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    struct sockaddr_un raw = {.sun_family = AF_UNIX, .sun_path = "\0not\xff utf8\0x"};
    OK(bind(a, (void *)&raw, offsetof(struct sockaddr_un, sun_path) + 12));
    int fd = SYS(open("/proc/self/net/unix", O_RDONLY));
    static char text[1 << 20];
    size_t n = 0;
    for (ssize_t k; (k = read(fd, text + n, sizeof text - 1 - n)) > 0;) n += k;
    CHECK(memmem(text, n, "@not\xff utf8@x", 12) != 0);
}
TEST(losses_are_counted_when_a_datagram_is_queued) {
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(set_int(a, SOL_SOCKET, SO_RXQ_OVFL, 1));
    OK(set_int(a, SOL_SOCKET, SO_RCVBUF, 0));
    OK(try_connect(b, AF_INET, port_of(a)));
    for (int n = 0; n < 10; n++) CHECK_EQ(send(b, "x", 1, 0), 1);
    int seen = 0, lost = 0;
    for (int n = 0; n < 3; n++) {
        char in[4], control[128];
        struct iovec iov = {in, sizeof in};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(a, &m, MSG_DONTWAIT) != 1) break;
        seen++;
        // None was lost before these.
        CHECK_EQ(m.msg_controllen, 0);
    }
    while (recv(a, &(char){0}, 1, MSG_DONTWAIT) == 1) seen++;
    lost = 10 - seen;
    CHECK(lost > 0);
    CHECK_EQ(send(b, "x", 1, 0), 1);
    char in[4], control[128];
    struct iovec iov = {in, sizeof in};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(a, &m, MSG_DONTWAIT), 1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    MUST(c);
    CHECK_EQ(c->cmsg_type, SO_RXQ_OVFL);
    CHECK_EQ(*(int *)CMSG_DATA(c), lost);
}
TEST(raw_sockets) {
    if (geteuid() != 0) SKIP("not root");
    int s = SYS(socket(AF_INET, SOCK_RAW, 200)), r = SYS(socket(AF_INET, SOCK_RAW, 200));
    CHECK_EQ(port_of(s), 200);
    CHECK_EQ(get_int(s, IPPROTO_IP, IP_PROTOCOL_), 200);
    union addr at = loopback(AF_INET, 0);
    OK(bind(s, &at.any, sizeof at.in));
    OK(bind(s, &at.any, sizeof at.in));
    CHECK_EQ(port_of(s), 200);
    OK(connect(s, &at.any, sizeof at.in));
    socklen_t n = sizeof at;
    CHECK_ERR(getpeername(s, &at.any, &n), ENOTCONN);
    OK(shutdown(s, SHUT_WR));
    CHECK_EQ(send(s, "x", 1, 0), 1);
    CHECK_EQ(recv(r, (char[64]){0}, 64, MSG_DONTWAIT), 21);
    int six = SYS(socket(AF_INET6, SOCK_RAW, 200));
    CHECK_ERR(set_int(six, IPPROTO_IP, IP_TTL, 1), ENOPROTOOPT);
    CHECK_ERR(getsockopt(six, IPPROTO_IP, IP_TTL, &(int){0}, &(socklen_t){4}), ENOPROTOOPT);
    CHECK_ERR(set_int(six, IPPROTO_IPV6, IPV6_V6ONLY, 1), EINVAL);
}
TEST(peers_and_ports) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        OK(try_connect(s, f, 0));
        union addr at;
        socklen_t n = sizeof at;
        CHECK_ERR(getpeername(s, &at.any, &n), ENOTCONN);
        OK(try_connect(s, f, 9));
        CHECK(port_of(s) != 0);
        struct sockaddr none = {.sa_family = AF_UNSPEC};
        OK(connect(s, &none, sizeof none));
        // The port was the kernel's choice.
        CHECK_EQ(port_of(s), 0);
        int t = bound(f, SOCK_DGRAM), port = port_of(t);
        close(t);
        at = loopback(f, port);
        OK(bind(s, &at.any, size_of(f)));
        OK(try_connect(s, f, 9));
        OK(connect(s, &none, sizeof none));
        CHECK_EQ(port_of(s), port);
        close(s);
        int tcp = SYS(socket(f, SOCK_STREAM, 0)), v[2];
        CHECK_ERR(recv(tcp, &n, 0, 0), ENOTCONN);
        tcp_pair(f, v);
        CHECK_ERR(recv(v[0], &n, 0, MSG_DONTWAIT), EAGAIN);
        CHECK_EQ(send(v[1], "x", 1, 0), 1);
        poll_for(v[0], POLLIN);
        CHECK_EQ(recv(v[0], &n, 0, MSG_DONTWAIT), 0);
        close(tcp), close(v[0]), close(v[1]);
    }
}
TEST(binding_to_addresses_that_are_not_there) {
    int types[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int t = 0; t < 2; t++) {
        struct sockaddr_in6 at = {.sin6_family = AF_INET6};
        inet_pton(AF_INET6, "2001:db8::7", &at.sin6_addr);
        int s = SYS(socket(AF_INET6, types[t], 0));
        CHECK_ERR(bind(s, (void *)&at, sizeof at), EADDRNOTAVAIL);
        CHECK_EQ(get_int(s, IPPROTO_IPV6, 78 /* IPV6_FREEBIND */), 0);
        OK(set_int(s, IPPROTO_IPV6, 78, 5));
        CHECK_EQ(get_int(s, IPPROTO_IPV6, 78), 1);
        CHECK_EQ(get_int(s, IPPROTO_IP, IP_FREEBIND), 1);
        OK(bind(s, (void *)&at, sizeof at));
        CHECK_EQ(get_int(s, IPPROTO_IPV6, 75 /* IPV6_TRANSPARENT */), 0);
        if (geteuid() == 0) {
            OK(set_int(s, IPPROTO_IPV6, 75, 1));
            CHECK_EQ(get_int(s, IPPROTO_IP, IP_TRANSPARENT), 1);
        }
        close(s);
    }
}
static int bound_to(int type, const char *text) {
    int s = SYS(socket(AF_INET6, type | SOCK_NONBLOCK, 0));
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, text, &at.sin6_addr);
    OK(set_int(s, IPPROTO_IPV6, IPV6_V6ONLY, 0));
    OK(bind(s, (void *)&at, sizeof at));
    return s;
}
TEST(both_families_in_one_socket) {
    union addr four = loopback(AF_INET6, 9), six = loopback(AF_INET6, 9);
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &four.in6.sin6_addr);
    int types[] = {SOCK_DGRAM, SOCK_STREAM};
    for (int t = 0; t < 2; t++) {
        int s = bound_to(types[t], "::1");
        CHECK_ERR(connect(s, &four.any, sizeof four.in6), ENETUNREACH);
        if (!t) CHECK_ERR(sendto(s, "x", 1, 0, &four.any, sizeof four.in6), ENETUNREACH);
        close(s);
        const char *mapped[] = {"::ffff:127.0.0.1", "::ffff:0.0.0.0"};
        for (int m = 0; m < 2; m++) {
            s = bound_to(types[t], mapped[m]);
            CHECK_ERR(connect(s, &six.any, sizeof six.in6), EAFNOSUPPORT);
            if (!t) CHECK_ERR(sendto(s, "x", 1, 0, &six.any, sizeof six.in6), EAFNOSUPPORT);
            close(s);
        }
    }
    int s = bound_to(SOCK_DGRAM, "::1");
    unsigned info[9];
    socklen_t n = sizeof info;
    OK(getsockopt(s, SOL_SOCKET, SO_MEMINFO, info, &n));
    CHECK_EQ(n, sizeof info);
    CHECK_EQ(info[1], get_int(s, SOL_SOCKET, SO_RCVBUF));
    CHECK_EQ(info[3], get_int(s, SOL_SOCKET, SO_SNDBUF));
}
TEST(segment_size_of_a_connection) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), v[2];
        v[0] = SYS(socket(f, SOCK_STREAM, 0));
        OK(set_int(v[0], IPPROTO_TCP, TCP_MAXSEG, 1000));
        OK(try_connect(v[0], f, port_of(l)));
        v[1] = SYS(accept(l, 0, 0));
        int mss = get_int(v[0], IPPROTO_TCP, TCP_MAXSEG);
        CHECK_EQ(mss, 988);
        CHECK_EQ(get_int(v[1], IPPROTO_TCP, TCP_MAXSEG), mss);
        // It is too late for this connection.
        OK(set_int(v[0], IPPROTO_TCP, TCP_MAXSEG, 500));
        CHECK_EQ(get_int(v[0], IPPROTO_TCP, TCP_MAXSEG), mss);
        CHECK_EQ(send(v[0], (char[2000]){0}, 2000, 0), 2000);
        CHECK_EQ(get_int(v[0], IPPROTO_TCP, TCP_MAXSEG), mss);
        close(v[0]), close(v[1]), close(l);
    }
}
TEST(shutdown_while_connecting) {
    BOTH(f) {
        int l = SYS(socket(f, SOCK_STREAM, 0)), s[8], n = 0;
        union addr at = loopback(f, 0);
        OK(bind(l, &at.any, size_of(f)));
        OK(listen(l, 0));
        // The backlog is full after a few, and the next one waits.
        for (; n < 8; n++) {
            s[n] = SYS(socket(f, SOCK_STREAM | SOCK_NONBLOCK, 0));
            if (try_connect(s[n], f, port_of(l)) != 0) CHECK_EQ(errno, EINPROGRESS);
            usleep(20000);
            if (!(poll_of(s[n], POLLOUT) & POLLOUT)) break;
        }
        MUST(n < 8);
        OK(shutdown(s[n], SHUT_RDWR));
        CHECK_EQ(poll_of(s[n], POLLIN | POLLOUT) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
        CHECK_EQ(get_int(s[n], SOL_SOCKET, SO_ERROR), ECONNRESET);
        CHECK_EQ(get_int(s[n], SOL_SOCKET, SO_ERROR), 0);
        for (; n >= 0; n--) close(s[n]);
        close(l);
    }
}
TEST(packet_sockets) {
    if (geteuid() != 0) SKIP("not root");
    int s = SYS(socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ALL)));
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = 1};
    OK(bind(s, (void *)&at, sizeof at));
    int names[] = {9 /* PACKET_ORIGDEV */, 20 /* PACKET_QDISC_BYPASS */, 23 /* PACKET_IGNORE_OUTGOING */};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(get_int(s, SOL_PACKET, names[i]), 0);
        OK(set_int(s, SOL_PACKET, names[i], 1));
        CHECK_EQ(get_int(s, SOL_PACKET, names[i]), 1);
    }
    CHECK_ERR(set_int(s, SOL_PACKET, 23, 2), EINVAL);
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(try_connect(b, AF_INET, port_of(a)));
    CHECK_EQ(send(b, "x", 1, 0), 1);
    char in[64];
    struct sockaddr_ll from;
    socklen_t n = sizeof from;
    CHECK_EQ(recvfrom(s, in, sizeof in, MSG_DONTWAIT, (void *)&from, &n), 29);
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    CHECK_ERR(recv(s, in, sizeof in, MSG_DONTWAIT), EAGAIN);
    at.sll_ifindex = 0;
    CHECK_ERR(sendto(s, in, 29, 0, (void *)&at, sizeof at), ENXIO);
}
static void is_named(int family, int type, int protocol, const char *want) {
    char path[64], got[64] = "";
    int s = SYS(socket(family, type, protocol));
    CHECK_EQ(fgetxattr(s, "system.sockprotoname", got, sizeof got), strlen(want) + 1);
    CHECK_STR(got, want);
    sprintf(path, "/proc/self/fd/%d", s);
    CHECK_EQ(getxattr(path, "system.sockprotoname", 0, 0), strlen(want) + 1);
    close(s);
}
TEST(names_of_protocols) {
    is_named(AF_UNIX, SOCK_STREAM, 0, "UNIX-STREAM");
    is_named(AF_UNIX, SOCK_SEQPACKET, 0, "UNIX");
    is_named(AF_INET, SOCK_STREAM, 0, "TCP");
    is_named(AF_INET6, SOCK_STREAM, 0, "TCPv6");
    is_named(AF_INET6, SOCK_DGRAM, 0, "UDPv6");
    is_named(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE, "UDP-Lite");
    is_named(AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE, "UDPLITEv6");
    is_named(AF_INET, SOCK_RAW, IPPROTO_ICMP, "RAW");
    is_named(AF_NETLINK, SOCK_RAW, 0, "NETLINK");
    is_named(AF_PACKET, SOCK_RAW, 0, "PACKET");
    char got[64] = "";
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    CHECK_ERR(fgetxattr(s, "system.sockprotoname", got, 3), ERANGE);
    CHECK_EQ(flistxattr(s, got, sizeof got), sizeof "system.sockprotoname");
    CHECK_STR(got, "system.sockprotoname");
    CHECK_ERR(fsetxattr(s, "system.sockprotoname", "x", 1, 0), EOPNOTSUPP);
    CHECK_ERR(fremovexattr(s, "system.sockprotoname"), EOPNOTSUPP);
    CHECK_ERR(fgetxattr(s, "system.sockproto", got, sizeof got), EOPNOTSUPP);
    CHECK_ERR(fgetxattr(s, "user.x", got, sizeof got), ENODATA);
}
