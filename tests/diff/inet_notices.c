// What a TCP socket tells of sent data by its error queue, and of received data by control messages; Fast Open that waits
// for data; devices with virtio-net headers.
#include "inet.h"
#include <linux/errqueue.h>
#include <linux/if_tun.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <net/if.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif
#ifndef TCP_INQ
#define TCP_INQ 36
#endif
#ifndef TCP_FASTOPEN_CONNECT
#define TCP_FASTOPEN_CONNECT 30
#endif

// Reads one entry of the error queue: its flags, and the extended error.
static int errors(int s, int family, struct sock_extended_err *e, int *flags, int *stamped) {
    char control[512], data[64];
    struct iovec v = {data, sizeof data};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int n = recvmsg(s, &m, MSG_ERRQUEUE);
    if (n < 0) return n;
    *flags = m.msg_flags;
    *stamped = 0;
    memset(e, 0, sizeof *e);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        int level = family == AF_INET ? SOL_IP : SOL_IPV6, type = family == AF_INET ? IP_RECVERR : IPV6_RECVERR;
        if (c->cmsg_level == level && c->cmsg_type == type) memcpy(e, CMSG_DATA(c), sizeof *e);
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPING) {
            struct timespec t[3];
            memcpy(t, CMSG_DATA(c), sizeof t);
            *stamped = t[0].tv_sec > 0;
        }
    }
    return n;
}
TEST(zerocopy) {
    BOTH(family) {
        int v[2], flags, stamped;
        struct sock_extended_err e;
        char b[64];
        tcp_pair(family, v);
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_ZEROCOPY), 0);
        CHECK_ERR(set_int(v[0], SOL_SOCKET, SO_ZEROCOPY, 2), EINVAL);
        // Without the option the flag says nothing.
        CHECK_EQ(send(v[0], "plain", 5, MSG_ZEROCOPY), 5);
        OK(set_int(v[0], SOL_SOCKET, SO_ZEROCOPY, 1));
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_ZEROCOPY), 1);
        CHECK_EQ(read(v[1], b, sizeof b), 5);
        CHECK_ERR(errors(v[0], family, &e, &flags, &stamped), EAGAIN);
        CHECK_EQ(send(v[0], "first", 5, MSG_ZEROCOPY), 5);
        CHECK_EQ(read(v[1], b, sizeof b), 5);
        CHECK_EQ(poll_for(v[0], 0) & POLLERR, POLLERR);
        CHECK_EQ(send(v[0], "second", 6, MSG_ZEROCOPY), 6);
        CHECK_EQ(read(v[1], b, sizeof b), 6);
        t_ms(50);
        CHECK_EQ(errors(v[0], family, &e, &flags, &stamped), 0);
        CHECK_EQ(flags, MSG_ERRQUEUE);
        CHECK_EQ(e.ee_errno, 0);
        CHECK_EQ(e.ee_origin, SO_EE_ORIGIN_ZEROCOPY);
        CHECK_EQ(e.ee_code, SO_EE_CODE_ZEROCOPY_COPIED);
        CHECK_EQ(e.ee_info, 0);
        CHECK_EQ(e.ee_data, 1);
        CHECK_ERR(errors(v[0], family, &e, &flags, &stamped), EAGAIN);
        CHECK_EQ(poll_of(v[0], POLLOUT), POLLOUT);
        close(v[0]), close(v[1]);
    }
}
TEST(timestamping) {
    BOTH(family) {
        int v[2], flags, stamped, f = SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
        struct sock_extended_err e;
        char b[64];
        int s = SYS(socket(family, SOCK_STREAM, 0));
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_TIMESTAMPING, f), EINVAL);
        close(s);
        tcp_pair(family, v);
        OK(set_int(v[0], SOL_SOCKET, SO_TIMESTAMPING, f));
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_TIMESTAMPING), f);
        CHECK_EQ(write(v[0], "0123456789", 10), 10);
        CHECK_EQ(read(v[1], b, sizeof b), 10);
        CHECK_EQ(poll_for(v[0], 0) & POLLERR, POLLERR);
        CHECK_EQ(errors(v[0], family, &e, &flags, &stamped), 0);
        CHECK_EQ(flags, MSG_ERRQUEUE);
        CHECK_EQ(stamped, 1);
        CHECK_EQ(e.ee_errno, ENOMSG);
        CHECK_EQ(e.ee_origin, SO_EE_ORIGIN_TIMESTAMPING);
        CHECK_EQ(e.ee_info, 2);
        CHECK_EQ(e.ee_data, 9);
        close(v[0]), close(v[1]);
    }
}
TEST(bytes_left_to_read) {
    int v[2];
    char b[4], control[64];
    tcp_pair(AF_INET, v);
    OK(set_int(v[1], SOL_TCP, TCP_INQ, 1));
    CHECK_EQ(write(v[0], "0123456789", 10), 10);
    poll_for(v[1], POLLIN);
    struct iovec i = {b, sizeof b};
    struct msghdr m = {.msg_iov = &i, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(v[1], &m, 0), 4);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    MUST(c && c->cmsg_level == SOL_TCP && c->cmsg_type == TCP_INQ);
    CHECK_EQ(*(int *)CMSG_DATA(c), 6);
}
TEST(peeking_goes_on) {
    int v[2];
    char b[16];
    tcp_pair(AF_INET, v);
    CHECK_EQ(get_int(v[1], SOL_SOCKET, SO_PEEK_OFF), -1);
    OK(set_int(v[1], SOL_SOCKET, SO_PEEK_OFF, 0));
    CHECK_EQ(write(v[0], "0123456789", 10), 10);
    poll_for(v[1], POLLIN);
    CHECK_EQ(recv(v[1], b, 3, MSG_PEEK), 3);
    CHECK_EQ(recv(v[1], b, 3, MSG_PEEK), 3);
    CHECK_MEM(b, "345", 3);
    CHECK_EQ(get_int(v[1], SOL_SOCKET, SO_PEEK_OFF), 6);
    CHECK_EQ(recv(v[1], b, 4, 0), 4);
    CHECK_MEM(b, "0123", 4);
    CHECK_EQ(get_int(v[1], SOL_SOCKET, SO_PEEK_OFF), 2);
    CHECK_EQ(recv(v[1], b, sizeof b, MSG_PEEK), 4);
    CHECK_MEM(b, "6789", 4);
    CHECK_ERR(recv(v[1], b, sizeof b, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    OK(set_int(v[1], SOL_SOCKET, SO_PEEK_OFF, -1));
    CHECK_EQ(recv(v[1], b, sizeof b, MSG_PEEK), 6);
    CHECK_EQ(recv(v[1], b, sizeof b, MSG_PEEK), 6);
}
TEST(peeking_goes_on_with_datagrams) {
    char b[16];
    int to = bound(AF_INET, SOCK_DGRAM), from = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(try_connect(from, AF_INET, port_of(to)));
    CHECK_EQ(get_int(to, SOL_SOCKET, SO_PEEK_OFF), -1);
    CHECK_EQ(send(from, "abcd", 4, 0), 4);
    CHECK_EQ(send(from, "efgh", 4, 0), 4);
    OK(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 0));
    CHECK_EQ(recv(to, b, 2, MSG_PEEK), 2);
    CHECK_EQ(recv(to, b, 16, MSG_PEEK), 2);
    CHECK_MEM(b, "cd", 2);
    CHECK_EQ(recv(to, b, 16, MSG_PEEK), 4);
    CHECK_MEM(b, "efgh", 4);
    CHECK_EQ(get_int(to, SOL_SOCKET, SO_PEEK_OFF), 8);
    CHECK_ERR(recv(to, b, 16, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(recv(to, b, 16, 0), 4);
    CHECK_EQ(get_int(to, SOL_SOCKET, SO_PEEK_OFF), 4);
    OK(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 1));
    struct iovec v = {b, 2};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(recvmsg(to, &m, MSG_PEEK | MSG_TRUNC), 4);
    CHECK_EQ(m.msg_flags, MSG_TRUNC);
    CHECK_EQ(get_int(to, SOL_SOCKET, SO_PEEK_OFF), 5);
    CHECK_EQ(recv(to, b, 1, 0), 1);
    CHECK_EQ(get_int(to, SOL_SOCKET, SO_PEEK_OFF), 4);
    // An empty datagram is seen once.
    OK(set_int(to, SOL_SOCKET, SO_PEEK_OFF, 0));
    CHECK_EQ(send(from, "", 0, 0), 0);
    CHECK_EQ(send(from, "x", 1, 0), 1);
    CHECK_EQ(recv(to, b, 4, MSG_PEEK), 0);
    CHECK_EQ(recv(to, b, 4, MSG_PEEK), 1);
    OK(set_int(to, SOL_SOCKET, SO_PEEK_OFF, -3));
    CHECK_EQ(get_int(to, SOL_SOCKET, SO_PEEK_OFF), -3);
    CHECK_EQ(recv(to, b, 4, MSG_PEEK), 0);
    CHECK_EQ(recv(to, b, 4, MSG_PEEK), 0);
    int raw = SYS(socket(AF_INET, SOCK_RAW, 99));
    CHECK_ERR(set_int(raw, SOL_SOCKET, SO_PEEK_OFF, 0), EOPNOTSUPP);
    int v2;
    socklen_t n = sizeof v2;
    CHECK_ERR(getsockopt(raw, SOL_SOCKET, SO_PEEK_OFF, &v2, &n), EOPNOTSUPP);
}
static volatile int urgent;
static void on_urg(int sig, siginfo_t *i, void *u) { urgent += i->si_code == SI_KERNEL ? 1 : 100; }
TEST(the_owner_gets_sigurg) {
    struct sigaction a = {.sa_sigaction = on_urg, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGURG, &a, 0));
    int v[2];
    tcp_pair(AF_INET, v);
    OK(fcntl(v[1], F_SETOWN, getpid()));
    CHECK_EQ(send(v[0], "a", 1, 0), 1);
    poll_for(v[1], POLLIN);
    CHECK_EQ(urgent, 0);
    CHECK_EQ(send(v[0], "X", 1, MSG_OOB), 1);
    poll_for(v[1], POLLPRI);
    CHECK_EQ(urgent, 1);
    OK(shutdown(v[0], SHUT_WR));
    poll_for(v[1], POLLRDHUP);
    CHECK_EQ(urgent, 1);
}
TEST(splice_stops_at_urgent_data) {
    int v[2], p[2];
    char b[16];
    tcp_pair(AF_INET, v);
    SYS(pipe(p));
    CHECK_EQ(send(v[0], "ab", 2, 0), 2);
    CHECK_EQ(send(v[0], "X", 1, MSG_OOB), 1);
    CHECK_EQ(send(v[0], "cd", 2, 0), 2);
    poll_for(v[1], POLLPRI);
    CHECK_EQ(splice(v[1], 0, p[1], 0, 16, 0), 2);
    CHECK_EQ(read(p[0], b, 16), 2);
    CHECK_MEM(b, "ab", 2);
    CHECK_EQ(splice(v[1], 0, p[1], 0, 16, 0), 0);
    CHECK_EQ(splice(v[1], 0, p[1], 0, 16, SPLICE_F_NONBLOCK), 0);
    CHECK_EQ(recv(v[1], b, 1, MSG_OOB), 1);
    CHECK_EQ(splice(v[1], 0, p[1], 0, 16, 0), 0);
    OK(set_int(v[1], SOL_SOCKET, SO_OOBINLINE, 1));
    CHECK_EQ(splice(v[1], 0, p[1], 0, 16, 0), 0);
    OK(set_int(v[1], SOL_SOCKET, SO_OOBINLINE, 0));
    OK(fcntl(v[1], F_SETFL, O_NONBLOCK));
    CHECK_ERR(splice(v[1], 0, p[1], 0, 16, 0), EAGAIN);
    CHECK_EQ(recv(v[1], b, 1, 0), 1);
    CHECK_EQ(splice(v[1], 0, p[1], 0, 16, 0), 1);
}
// Segments that have come too far are dropped (RFC 5082), those of a handshake as well.
TEST(least_ttl) {
    for (int six = 0; six < 2; six++) {
        int family = six ? AF_INET6 : AF_INET, level = six ? IPPROTO_IPV6 : IPPROTO_IP;
        int least = six ? 73 : IP_MINTTL, hops = six ? IPV6_UNICAST_HOPS : IP_TTL;
        int l = bound(family, SOCK_STREAM), c = SYS(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
        CHECK_EQ(get_int(l, level, least), 0);
        // The bits of congestion notification are TCP's own.
        int class = six ? IPV6_TCLASS : IP_TOS;
        OK(set_int(c, level, class, 0x2f));
        CHECK_EQ(get_int(c, level, class), 0x2c);
        CHECK_ERR(set_int(l, level, least, 256), EINVAL);
        CHECK_ERR(set_int(l, level, least, -1), EINVAL);
        OK(set_int(l, level, least, 255));
        CHECK_EQ(get_int(l, level, least), 255);
        OK(listen(l, 5));
        CHECK_ERR(try_connect(c, family, port_of(l)), EINPROGRESS);
        struct pollfd p = {c, POLLOUT, 0};
        CHECK_EQ(poll(&p, 1, 50), 0);
        close(c);
        c = SYS(socket(family, SOCK_STREAM, 0));
        OK(set_int(c, level, hops, 255));
        OK(try_connect(c, family, port_of(l)));
        int s = SYS(accept(l, 0, 0));
        CHECK_EQ(get_int(s, level, least), 255);
        char b[8];
        CHECK_EQ(write(c, "abc", 3), 3);
        CHECK_EQ(poll_for(s, POLLIN), POLLIN);
        CHECK_EQ(read(s, b, 8), 3);
        OK(set_int(c, level, hops, 254));
        CHECK_EQ(write(c, "abc", 3), 3);
        CHECK_ERR(recv(s, b, 8, MSG_DONTWAIT), EAGAIN);
        OK(set_int(s, level, least, 254));
        CHECK_EQ(poll_for(s, POLLIN), POLLIN);
        CHECK_EQ(read(s, b, 8), 3);
        close(l), close(c), close(s);
    }
}
TEST(more_is_to_come) {
    int v[2];
    char b[16];
    tcp_pair(AF_INET, v);
    CHECK_EQ(send(v[0], "more", 4, MSG_MORE), 4);
    CHECK_ERR(recv(v[1], b, 16, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(send(v[0], "x", 1, 0), 1);
    poll_for(v[1], POLLIN);
    CHECK_EQ(recv(v[1], b, 16, 0), 5);
    // It is sent some time later all the same.
    CHECK_EQ(send(v[0], "more", 4, MSG_MORE), 4);
    CHECK_EQ(poll_for(v[1], POLLIN), POLLIN);
    CHECK_EQ(recv(v[1], b, 16, 0), 4);
}
TEST(length_of_a_senders_address) {
    int v[2];
    char b[4];
    union addr from;
    tcp_pair(AF_INET, v);
    CHECK_EQ(send(v[0], "abc", 3, 0), 3);
    poll_for(v[1], POLLIN);
    socklen_t n = -1;
    CHECK_ERR(recvfrom(v[1], b, 1, 0, &from.any, &n), EINVAL);
    n = 5;
    CHECK_EQ(recvfrom(v[1], b, 1, 0, &from.any, &n), 1);
    CHECK_EQ(n, 0);
    CHECK_ERR(recvfrom(v[1], b, 1, 0, &from.any, BAD_PTR), EFAULT);
}
TEST(memory_of_a_socket) {
    int v[2];
    tcp_pair(AF_INET, v);
    unsigned m[9];
    socklen_t n = sizeof m;
    OK(getsockopt(v[0], SOL_SOCKET, 55, m, &n));
    CHECK_EQ(n, sizeof m);
    CHECK_EQ((int)m[1], get_int(v[0], SOL_SOCKET, SO_RCVBUF));
    CHECK_EQ(m[0], 0);
}
TEST(default_of_notsent_lowat) {
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    CHECK_EQ(get_int(s, SOL_TCP, TCP_NOTSENT_LOWAT), 0);
    OK(set_int(s, SOL_TCP, TCP_NOTSENT_LOWAT, 5000));
    CHECK_EQ(get_int(s, SOL_TCP, TCP_NOTSENT_LOWAT), 5000);
}
TEST(fast_open_connect) {
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0)), l = bound(AF_INET, SOCK_STREAM);
    CHECK_ERR(set_int(s, SOL_TCP, TCP_FASTOPEN_CONNECT, 2), EINVAL);
    OK(set_int(s, SOL_TCP, TCP_FASTOPEN_CONNECT, 1));
    CHECK_EQ(get_int(s, SOL_TCP, TCP_FASTOPEN_CONNECT), 1);
    // The server gave no cookie, so the connection opens at once.
    OK(try_connect(s, AF_INET, port_of(l)));
    CHECK_ERR(set_int(s, SOL_TCP, TCP_FASTOPEN_CONNECT, 1), EINVAL);
    CHECK_EQ(write(s, "data", 4), 4);
    union addr to = {.any.sa_family = AF_UNSPEC};
    CHECK_ERR(sendto(SYS(socket(AF_INET, SOCK_STREAM, 0)), "x", 1, MSG_FASTOPEN, &to.any, sizeof to.in), EOPNOTSUPP);
}
// A listener may be made where a connection of an earlier one lives.
TEST(listening_beside_a_connection) {
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0)), c = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(set_int(l, SOL_SOCKET, SO_REUSEADDR, 1));
    union addr a = loopback(AF_INET, 0);
    OK(bind(l, &a.any, sizeof a.in));
    OK(listen(l, 1));
    a = name_of(l);
    OK(try_connect(c, AF_INET, ntohs(a.in.sin_port)));
    SYS(accept(l, 0, 0));
    close(l);
    l = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(set_int(l, SOL_SOCKET, SO_REUSEADDR, 1));
    OK(bind(l, &a.any, sizeof a.in));
    OK(listen(l, 1));
}
TEST(time_of_the_last_datagram) {
    int s = bound(AF_INET, SOCK_DGRAM), c = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct timeval t = {0};
    CHECK_ERR(ioctl(s, SIOCGSTAMP, &t), ENOENT);
    OK(try_connect(c, AF_INET, port_of(s)));
    CHECK_EQ(write(c, "x", 1), 1);
    char b[4];
    CHECK_EQ(read(s, b, sizeof b), 1);
    OK(ioctl(s, SIOCGSTAMP, &t));
    CHECK(time(0) - t.tv_sec < 5);
}
TEST(tun_with_headers_of_virtio) {
    if (geteuid() != 0) SKIP("not root");
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (fd < 0) SKIP("no device");
    struct ifreq r = {.ifr_name = "tv", .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    OK(ioctl(fd, TUNSETIFF, &r));
    memset(&r.ifr_flags, 0, sizeof r.ifr_flags);
    OK(ioctl(fd, TUNGETIFF, &r));
    CHECK_EQ(r.ifr_flags & IFF_VNET_HDR, IFF_VNET_HDR);
    int size = 0;
    OK(ioctl(fd, TUNGETVNETHDRSZ, &size));
    CHECK_EQ(size, 10);
    size = 9;
    CHECK_ERR(ioctl(fd, TUNSETVNETHDRSZ, &size), EINVAL);
    size = 12;
    OK(ioctl(fd, TUNSETVNETHDRSZ, &size));
    CHECK_ERR(ioctl(fd, TUNSETOFFLOAD, TUN_F_TSO4), EINVAL);
    CHECK_ERR(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO_ECN), EINVAL);
    CHECK_ERR(ioctl(fd, TUNSETOFFLOAD, 1 << 20), EINVAL);
    OK(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN));
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq i = {.ifr_name = "tv"};
    struct sockaddr_in a = {.sin_family = AF_INET};
    inet_pton(AF_INET, "10.78.0.1", &a.sin_addr);
    memcpy(&i.ifr_addr, &a, sizeof a);
    OK(ioctl(s, SIOCSIFADDR, &i));
    inet_pton(AF_INET, "255.255.255.0", &a.sin_addr);
    memcpy(&i.ifr_addr, &a, sizeof a);
    OK(ioctl(s, SIOCSIFNETMASK, &i));
    i.ifr_flags = IFF_UP;
    OK(ioctl(s, SIOCSIFFLAGS, &i));
    inet_pton(AF_INET, "10.78.0.9", &a.sin_addr);
    a.sin_port = htons(99);
    unsigned char b[2000];
    while (read(fd, b, sizeof b) > 0) {}
    CHECK_EQ(sendto(s, "payload", 7, 0, (void *)&a, sizeof a), 7);
    int n;
    do {
        MUST(poll_for(fd, POLLIN) & POLLIN);
        n = read(fd, b, sizeof b);
    } while (n > 0 && (b[12] != 0x45 || b[21] != 17));
    CHECK_EQ(n, 12 + 35);
    struct virtio_net_hdr *h = (void *)b;
    // The checksum is the reader's affair.
    CHECK_EQ(h->flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
    CHECK_EQ(h->gso_type, VIRTIO_NET_HDR_GSO_NONE);
    CHECK_EQ(h->csum_start, 20);
    CHECK_EQ(h->csum_offset, 6);
    CHECK_MEM(b + 12 + 28, "payload", 7);
    CHECK_ERR(write(fd, b, 11), EINVAL);
    h->gso_type = 77;
    CHECK_ERR(write(fd, b, n), EINVAL);
}
