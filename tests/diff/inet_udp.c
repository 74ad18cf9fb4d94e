// UDP over the loopback interface.
#include "inet.h"
#include <linux/errqueue.h>

TEST(kinds_of_sockets) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDP);
        CHECK_ERR(listen(s, 1), EOPNOTSUPP);
        CHECK_ERR(accept(s, 0, 0), EOPNOTSUPP);
        CHECK_EQ(poll_of(s, POLLIN | POLLOUT), POLLOUT);
        close(s);
        CHECK_ERR(socket(f, SOCK_DGRAM, IPPROTO_TCP), EPROTONOSUPPORT);
        close(SYS(socket(f, SOCK_DGRAM, IPPROTO_UDP)));
    }
}
TEST(datagrams) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), b = SYS(socket(f, SOCK_DGRAM, 0));
        union addr to = name_of(a), from;
        char buf[64];
        CHECK_EQ(sendto(b, "first", 5, 0, &to.any, size_of(f)), 5);
        CHECK_EQ(sendto(b, "", 0, 0, &to.any, size_of(f)), 0);
        CHECK_EQ(sendto(b, "a longer one", 12, 0, &to.any, size_of(f)), 12);
        CHECK_EQ(poll_for(a, POLLIN), POLLIN);
        socklen_t n = sizeof from;
        CHECK_EQ(recvfrom(a, buf, 64, 0, &from.any, &n), 5);
        CHECK_MEM(buf, "first", 5);
        CHECK_EQ(n, size_of(f));
        // The sender got a port when it sent first.
        CHECK_EQ(from.in.sin_port, name_of(b).in.sin_port);
        CHECK(from.in.sin_port != 0);
        CHECK_EQ(recv(a, buf, 64, 0), 0);
        struct iovec iov = {buf, 4};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from};
        CHECK_EQ(recvmsg(a, &m, MSG_PEEK | MSG_TRUNC), 12);
        CHECK_EQ(m.msg_flags, MSG_TRUNC);
        m.msg_flags = 0;
        m.msg_namelen = sizeof from;
        CHECK_EQ(recvmsg(a, &m, 0), 4);
        CHECK_EQ(m.msg_flags, MSG_TRUNC);
        CHECK_EQ(m.msg_namelen, size_of(f));
        CHECK_ERR(recv(a, buf, 64, MSG_DONTWAIT), EAGAIN);
        // An answer.
        CHECK_EQ(sendto(a, "back", 4, 0, &from.any, size_of(f)), 4);
        CHECK_EQ(recv(b, buf, 64, 0), 4);
        close(a), close(b);
    }
}
TEST(bad_destinations) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        union addr to = loopback(f, 9);
        CHECK_ERR(send(s, "x", 1, 0), EDESTADDRREQ);
        CHECK_ERR(sendto(s, "x", 1, 0, &to.any, 1), EINVAL);
        CHECK_ERR(sendto(s, "x", 1, 0, &to.any, 15), EINVAL);
        if (f == AF_INET) CHECK_ERR(sendto(s, "x", 1, MSG_OOB, &to.any, size_of(f)), EOPNOTSUPP);
        to.in.sin_port = 0;
        CHECK_ERR(sendto(s, "x", 1, 0, &to.any, size_of(f)), EINVAL);
        to = loopback(f, 9);
        to.any.sa_family = AF_UNIX;
        CHECK_ERR(sendto(s, "x", 1, 0, &to.any, size_of(f)), f == AF_INET ? EAFNOSUPPORT : EINVAL);
        to = loopback(f, 9);
        if (f == AF_INET) to.in.sin_addr.s_addr = inet_addr("192.0.2.1");
        else inet_pton(AF_INET6, "2001:db8::1", &to.in6.sin6_addr);
        CHECK_ERR(sendto(s, "x", 1, 0, &to.any, size_of(f)), ENETUNREACH);
        CHECK_ERR(connect(s, &to.any, size_of(f)), ENETUNREACH);
        static char big[70000];
        to = loopback(f, 9);
        CHECK_ERR(sendto(s, big, 65536, 0, &to.any, size_of(f)), EMSGSIZE);
        CHECK_ERR(sendto(s, big, f == AF_INET ? 65508 : 65528, 0, &to.any, size_of(f)), EMSGSIZE);
        close(s);
    }
}
TEST(largest_datagram) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), b = SYS(socket(f, SOCK_DGRAM, 0));
        static char out[65507], in[70000];
        for (int i = 0; i < (int)sizeof out; i++) out[i] = i * 3;
        union addr to = name_of(a);
        CHECK_EQ(sendto(b, out, sizeof out, 0, &to.any, size_of(f)), sizeof out);
        int n = 0;
        poll_for(a, POLLIN);
        OK(ioctl(a, FIONREAD, &n));
        CHECK_EQ(n, sizeof out);
        CHECK_EQ(recv(a, in, sizeof in, 0), sizeof out);
        CHECK_MEM(in, out, sizeof out);
        close(a), close(b);
    }
}
TEST(peers) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), b = bound(f, SOCK_DGRAM), c = SYS(socket(f, SOCK_DGRAM, 0));
        union addr got;
        socklen_t n = sizeof got;
        CHECK_ERR(getpeername(c, &got.any, &n), ENOTCONN);
        OK(try_connect(c, f, port_of(a)));
        n = sizeof got;
        OK(getpeername(c, &got.any, &n));
        union addr want = name_of(a);
        CHECK_MEM(&got, &want, size_of(f));
        // connect(2) chose the local address, too.
        want = loopback(f, port_of(c));
        got = name_of(c);
        CHECK_MEM(&got, &want, size_of(f));
        char buf[16];
        CHECK_EQ(send(c, "to a", 4, 0), 4);
        CHECK_EQ(recv(a, buf, 16, 0), 4);
        // Only the peer is heard.
        union addr to = name_of(c);
        CHECK_EQ(sendto(b, "b", 1, 0, &to.any, size_of(f)), 1);
        CHECK_EQ(sendto(a, "aa", 2, 0, &to.any, size_of(f)), 2);
        CHECK_EQ(recv(c, buf, 16, 0), 2);
        CHECK_ERR(recv(c, buf, 16, MSG_DONTWAIT), EAGAIN);
        // A destination beside the peer.
        to = name_of(b);
        CHECK_EQ(sendto(c, "to b", 4, 0, &to.any, size_of(f)), 4);
        OK(try_connect(c, f, port_of(b)));
        CHECK_EQ(write(c, "again", 5), 5);
        CHECK_EQ(recv(b, buf, 16, 0), 4);
        CHECK_EQ(recv(b, buf, 16, 0), 5);
        struct sockaddr none = {.sa_family = AF_UNSPEC};
        OK(connect(c, &none, sizeof none));
        n = sizeof got;
        CHECK_ERR(getpeername(c, &got.any, &n), ENOTCONN);
        CHECK_ERR(send(c, "x", 1, 0), EDESTADDRREQ);
        close(a), close(b), close(c);
    }
}
TEST(refused) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), port = port_of(a);
        close(a);
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        OK(try_connect(s, f, port));
        CHECK_EQ(send(s, "x", 1, 0), 1);
        CHECK_EQ(poll_for(s, POLLIN) & POLLERR, POLLERR);
        char c;
        CHECK_ERR(recv(s, &c, 1, 0), ECONNREFUSED);
        CHECK_ERR(recv(s, &c, 1, MSG_DONTWAIT), EAGAIN);
        CHECK_EQ(send(s, "x", 1, 0), 1);
        poll_for(s, POLLIN);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
        CHECK_EQ(send(s, "x", 1, 0), 1);
        poll_for(s, POLLIN);
        CHECK_ERR(send(s, "x", 1, 0), ECONNREFUSED);
        close(s);
        // Without a peer nobody tells.
        s = SYS(socket(f, SOCK_DGRAM, 0));
        union addr to = loopback(f, port);
        CHECK_EQ(sendto(s, "x", 1, 0, &to.any, size_of(f)), 1);
        CHECK_ERR(recv(s, &c, 1, MSG_DONTWAIT), EAGAIN);
        close(s);
    }
}
TEST(closing_directions) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), s = SYS(socket(f, SOCK_DGRAM, 0));
        char c;
        OK(try_connect(s, f, port_of(a)));
        OK(shutdown(s, SHUT_WR));
        CHECK_ERR(send(s, "x", 1, 0), EPIPE);
        OK(shutdown(s, SHUT_RD));
        CHECK_EQ(recv(s, &c, 1, 0), 0);
        CHECK_EQ(read(s, &c, 1), 0);
        CHECK_ERR(recv(s, &c, 1, MSG_DONTWAIT), EAGAIN);
        CHECK_EQ(poll_of(s, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
        close(s);
        // Without a peer it is an error, and happens.
        CHECK_ERR(shutdown(a, SHUT_RD), ENOTCONN);
        CHECK_EQ(recv(a, &c, 1, 0), 0);
        close(a);
    }
}
TEST(ports_in_use) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), b = SYS(socket(f, SOCK_DGRAM, 0));
        union addr at = name_of(a);
        CHECK_ERR(bind(b, &at.any, size_of(f)), EADDRINUSE);
        OK(set_int(b, SOL_SOCKET, SO_REUSEADDR, 1));
        CHECK_ERR(bind(b, &at.any, size_of(f)), EADDRINUSE);
        OK(set_int(a, SOL_SOCKET, SO_REUSEADDR, 1));
        OK(bind(b, &at.any, size_of(f)));
        CHECK_ERR(bind(b, &at.any, size_of(f)), EINVAL);
        close(a), close(b);
        int v[4], count[4] = {0}, port = 0;
        for (int i = 0; i < 4; i++) {
            v[i] = SYS(socket(f, SOCK_DGRAM | SOCK_NONBLOCK, 0));
            OK(set_int(v[i], SOL_SOCKET, SO_REUSEPORT, 1));
            at = loopback(f, port);
            OK(bind(v[i], &at.any, size_of(f)));
            port = port_of(v[i]);
        }
        at = loopback(f, port);
        for (int i = 0; i < 64; i++) {
            int s = SYS(socket(f, SOCK_DGRAM, 0));
            CHECK_EQ(sendto(s, "x", 1, 0, &at.any, size_of(f)), 1);
            close(s);
        }
        int used = 0, sum = 0;
        for (int i = 0; i < 4; i++) {
            char c;
            while (recv(v[i], &c, 1, 0) == 1) count[i]++;
            used += count[i] > 0;
            sum += count[i];
            close(v[i]);
        }
        CHECK_EQ(sum, 64);
        CHECK(used > 1);
    }
}
TEST(many_messages_at_once) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), b = SYS(socket(f, SOCK_DGRAM, 0));
        OK(try_connect(b, f, port_of(a)));
        char text[3][8] = {"one", "two", "three"}, in[4][8];
        struct iovec o[3], i[4];
        struct mmsghdr out[3] = {0}, got[4] = {0};
        union addr from[4];
        for (int n = 0; n < 3; n++) {
            o[n] = (struct iovec){text[n], strlen(text[n])};
            out[n].msg_hdr = (struct msghdr){.msg_iov = &o[n], .msg_iovlen = 1};
        }
        for (int n = 0; n < 4; n++) {
            i[n] = (struct iovec){in[n], 8};
            got[n].msg_hdr = (struct msghdr){
                .msg_iov = &i[n], .msg_iovlen = 1, .msg_name = &from[n], .msg_namelen = sizeof from[n]};
        }
        CHECK_EQ(sendmmsg(b, out, 3, 0), 3);
        CHECK_EQ(out[2].msg_len, 5);
        CHECK_EQ(recvmmsg(a, got, 4, MSG_WAITFORONE, 0), 3);
        CHECK_EQ(got[0].msg_len, 3);
        CHECK_EQ(got[2].msg_len, 5);
        CHECK_MEM(in[2], "three", 5);
        CHECK_EQ(got[2].msg_hdr.msg_namelen, size_of(f));
        CHECK_EQ(from[1].in.sin_port, name_of(b).in.sin_port);
        close(a), close(b);
    }
}
TEST(both_families_at_one_port) {
    int a = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, from;
    OK(bind(a, (void *)&any, sizeof any));
    OK(try_connect(b, AF_INET, port_of(a)));
    CHECK_EQ(send(b, "v4", 2, 0), 2);
    char buf[64];
    socklen_t n = sizeof from;
    CHECK_EQ(recvfrom(a, buf, 64, 0, (void *)&from, &n), 2);
    CHECK_STR(inet_ntop(AF_INET6, &from.sin6_addr, buf, sizeof buf), "::ffff:127.0.0.1");
    CHECK_EQ(sendto(a, "back", 4, 0, (void *)&from, n), 4);
    CHECK_EQ(recv(b, buf, 64, 0), 4);
    // An IPv6 socket takes an IPv4 address as it is.
    union addr to = loopback(AF_INET, port_of(b));
    CHECK_EQ(sendto(a, "plain", 5, 0, &to.any, sizeof to.in), 5);
    CHECK_EQ(recv(b, buf, 64, 0), 5);
    int c = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    OK(connect(c, &to.any, sizeof to.in));
    n = sizeof from;
    OK(getpeername(c, (void *)&from, &n));
    CHECK_EQ(n, sizeof from);
    CHECK_STR(inet_ntop(AF_INET6, &from.sin6_addr, buf, sizeof buf), "::ffff:127.0.0.1");
    int only = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    OK(set_int(only, IPPROTO_IPV6, IPV6_V6ONLY, 1));
    CHECK_ERR(sendto(only, "x", 1, 0, &to.any, sizeof to.in), ENETUNREACH);
    CHECK_ERR(connect(only, &to.any, sizeof to.in), EAFNOSUPPORT);
}
TEST(corked) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), b = SYS(socket(f, SOCK_DGRAM, 0));
        char buf[64];
        OK(try_connect(b, f, port_of(a)));
        CHECK_EQ(send(b, "one ", 4, MSG_MORE), 4);
        CHECK_EQ(send(b, "two ", 4, MSG_MORE), 4);
        CHECK_ERR(recv(a, buf, 64, MSG_DONTWAIT), EAGAIN);
        CHECK_EQ(send(b, "three", 5, 0), 5);
        CHECK_EQ(recv(a, buf, 64, 0), 13);
        CHECK_MEM(buf, "one two three", 13);
        OK(set_int(b, IPPROTO_UDP, 1, 1));
        CHECK_EQ(get_int(b, IPPROTO_UDP, 1), 1);
        CHECK_EQ(write(b, "x", 1), 1);
        CHECK_EQ(write(b, "y", 1), 1);
        CHECK_ERR(recv(a, buf, 64, MSG_DONTWAIT), EAGAIN);
        OK(set_int(b, IPPROTO_UDP, 1, 0));
        CHECK_EQ(recv(a, buf, 64, 0), 2);
        close(a), close(b);
    }
}
TEST(a_full_queue_drops) {
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(set_int(a, SOL_SOCKET, SO_RCVBUF, 20000));
    CHECK_EQ(get_int(a, SOL_SOCKET, SO_RCVBUF), 40000);
    OK(try_connect(b, AF_INET, port_of(a)));
    char buf[1000];
    for (int i = 0; i < 200; i++) CHECK_EQ(send(b, buf, sizeof buf, 0), sizeof buf);
    int got = 0;
    while (recv(a, buf, sizeof buf, MSG_DONTWAIT) > 0) got++;
    CHECK(got > 3 && got < 60);
}
TEST(time_outs_and_signals) {
    int a = bound(AF_INET, SOCK_DGRAM);
    char c;
    struct timeval tv = {0, 50000};
    OK(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
    CHECK_ERR(recv(a, &c, 1, 0), EAGAIN);
}
TEST(broadcast_needs_an_option) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("127.255.255.255")};
    ssize_t n = sendto(s, "x", 1, 0, (void *)&to, sizeof to);
    CHECK(n == 1 || errno == EACCES);
    OK(set_int(s, SOL_SOCKET, SO_BROADCAST, 1));
    CHECK_EQ(get_int(s, SOL_SOCKET, SO_BROADCAST), 1);
}
TEST(edge_triggered) {
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(try_connect(b, AF_INET, port_of(a)));
    int e = SYS(epoll_create1(0));
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
    OK(epoll_ctl(e, EPOLL_CTL_ADD, a, &ev));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(send(b, "x", 1, 0), 1);
        CHECK_EQ(epoll_wait(e, &ev, 1, 5000), 1);
        CHECK_EQ(ev.events, EPOLLIN);
        CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
    }
}

static unsigned short sum_of(const unsigned char *p, int n, unsigned start) {
    unsigned sum = start;
    for (int i = 0; i < n; i += 2) sum += p[i] << 8 | (i + 1 < n ? p[i + 1] : 0);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}
// A datagram whose checksum is wrong reaches nobody, and nobody is told; without a checksum it is as any other.
TEST(checksums_of_a_program) {
    if (geteuid() != 0) SKIP("not root");
    int s = bound(AF_INET, SOCK_DGRAM), gone = bound(AF_INET, SOCK_DGRAM), closed = port_of(gone), raw;
    close(gone);
    OK(try_connect(s, AF_INET, closed));
    raw = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_UDP));
    union addr to = loopback(AF_INET, 0);
    char c;
    for (int i = 0; i < 2; i++) {
        unsigned short d[6] = {htons(port_of(s)), htons(closed), htons(12), htons(i ? 0 : 0x1234), 1, 2};
        CHECK_EQ(sendto(raw, d, sizeof d, 0, &to.any, size_of(AF_INET)), sizeof d);
        if (i) poll(&(struct pollfd){s, POLLIN, 0}, 1, 10000);
        else usleep(20000);
        CHECK_ERR(recv(s, &c, 1, MSG_DONTWAIT), i ? ECONNREFUSED : EAGAIN);
    }
    int reader = SYS(socket(AF_INET6, SOCK_RAW, 200)), writer = SYS(socket(AF_INET6, SOCK_RAW, 200));
    OK(set_int(reader, SOL_RAW, IPV6_CHECKSUM, 2));
    union addr to6 = loopback(AF_INET6, 0);
    unsigned char m[] = "ab\0\0cdef";
    CHECK_EQ(sendto(writer, m, 8, 0, &to6.any, size_of(AF_INET6)), 8);
    usleep(20000);
    CHECK_ERR(recv(reader, &c, 1, MSG_DONTWAIT), EAGAIN);
    // The pseudo header: ::1 twice, 8 bytes, protocol 200.
    unsigned short sum = sum_of(m, 8, 1 + 1 + 8 + 200);
    m[2] = sum >> 8;
    m[3] = sum;
    CHECK_EQ(sendto(writer, m, 8, 0, &to6.any, size_of(AF_INET6)), 8);
    poll(&(struct pollfd){reader, POLLIN, 0}, 1, 10000);
    CHECK_EQ(recv(reader, &c, 1, MSG_DONTWAIT), 1);
}
// What is too large for any packet is told in the error queue as well, with the MTU and without the data.
TEST(too_large_for_any_packet) {
    if (geteuid() != 0) SKIP("not root");
    static char data[70000];
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0)), level = f == AF_INET ? SOL_IP : SOL_IPV6;
        OK(set_int(s, level, f == AF_INET ? IP_RECVERR : IPV6_RECVERR, 1));
        OK(try_connect(s, f, 9));
        int most = f == AF_INET ? 65507 : 65527;
        CHECK_ERR(send(s, data, most + 1, 0), EMSGSIZE);
        char control[512], out[100];
        struct iovec v = {out, sizeof out};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        CHECK_EQ(recvmsg(s, &m, MSG_ERRQUEUE | MSG_DONTWAIT), 0);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        struct sock_extended_err *e = c ? (void *)CMSG_DATA(c) : NULL;
        CHECK(e && e->ee_errno == EMSGSIZE && e->ee_origin == SO_EE_ORIGIN_LOCAL);
        if (e) CHECK_EQ(e->ee_info, f == AF_INET ? 65535 : 65536);
        CHECK_ERR(send(s, data, 65536, 0), EMSGSIZE);
        if (f == AF_INET) CHECK_ERR(recvmsg(s, &m, MSG_ERRQUEUE | MSG_DONTWAIT), EAGAIN);
        close(s);
    }
}
// IP_BIND_ADDRESS_NO_PORT: an address alone, and a port with what comes next.
TEST(addresses_without_a_port) {
    BOTH(f) {
        for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
            int peer = bound(f, type);
            for (int next = 0; next < 2; next++) {
                int s = SYS(socket(f, type, 0));
                CHECK_EQ(get_int(s, SOL_IP, IP_BIND_ADDRESS_NO_PORT), 0);
                OK(set_int(s, SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1));
                CHECK_EQ(get_int(s, SOL_IP, IP_BIND_ADDRESS_NO_PORT), 1);
                union addr a = loopback(f, 0), to = loopback(f, port_of(peer));
                OK(bind(s, &a.any, size_of(f)));
                union addr own = name_of(s);
                CHECK(!memcmp(&own, &a, size_of(f)));
                if (next == 0) OK(try_connect(s, f, port_of(peer)));
                else if (type == SOCK_STREAM) OK(listen(s, 1));
                else CHECK_EQ(sendto(s, "x", 1, 0, &to.any, size_of(f)), 1);
                CHECK(port_of(s) != 0);
                own = name_of(s), a = loopback(f, port_of(s));
                CHECK(!memcmp(&own, &a, size_of(f)));
                close(s);
            }
            close(peer);
        }
    }
}
// What is too long for any packet is told in the error queue as well: for IPv6 always, for IPv4 up to 65,535 bytes.
TEST(datagrams_that_are_too_long) {
    static char b[70000];
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0)), v6 = f == AF_INET6, peer = bound(f, SOCK_DGRAM);
        union addr to = name_of(peer);
        OK(set_int(s, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVERR : IP_RECVERR, 1));
        size_t lengths[] = {65528, 65535, 65536, 70000};
        for (int i = 0; i < 8; i++) {
            if (i == 4) OK(connect(s, &to.any, size_of(f)));
            CHECK_ERR(sendto(s, b, lengths[i % 4], 0, i < 4 ? &to.any : 0, i < 4 ? size_of(f) : 0), EMSGSIZE);
            char control[256], got[8];
            union addr name = {0};
            struct iovec v = {got, sizeof got};
            struct msghdr m = {&name, sizeof name, &v, 1, control, sizeof control, 0};
            if (!v6 && i % 4 > 1) {
                CHECK_ERR(recvmsg(s, &m, MSG_ERRQUEUE), EAGAIN);
                continue;
            }
            CHECK_EQ(recvmsg(s, &m, MSG_ERRQUEUE), 0);
            unsigned *error = (void *)CMSG_DATA(CMSG_FIRSTHDR(&m));
            CHECK_EQ(error[0], EMSGSIZE);
            CHECK_EQ(error[2], v6 ? 65536 : 65535);
            CHECK_EQ(v6 ? name.in6.sin6_port : name.in.sin_port, v6 || i >= 4 ? to.in.sin_port : 0);
        }
        close(s), close(peer);
    }
}
// A socket with a peer of IPv4 sends nothing to IPv6.
TEST(a_peer_of_the_other_family) {
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    int peer = bound(AF_INET, SOCK_DGRAM), other = bound(AF_INET6, SOCK_DGRAM);
    union addr to = {.in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port_of(peer))}}, six = name_of(other);
    CHECK_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.in6.sin6_addr), 1);
    OK(connect(s, &to.any, sizeof to.in6));
    CHECK_ERR(sendto(s, "x", 1, 0, &six.any, sizeof six.in6), EAFNOSUPPORT);
    CHECK_EQ(sendto(s, "x", 1, 0, &to.any, sizeof to.in6), 1);
    CHECK_ERR(connect(s, &six.any, sizeof six.in6), EAFNOSUPPORT);
}
