// Options of internet sockets, ancillary data, error queues and groups.
#include "inet.h"
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <net/if.h>

struct option {
    int level, name, start, set, got;
};
// Each has its start value; after it is set, it is got back.
static void round_trip(int s, const struct option *o, int n) {
    for (int i = 0; i < n; i++) {
        int v = get_int(s, o[i].level, o[i].name);
        if (v != o[i].start) t_fail(__FILE__, __LINE__, "level %d option %d starts with %d, not %d", o[i].level, o[i].name, v, o[i].start);
        int r = set_int(s, o[i].level, o[i].name, o[i].set);
        v = get_int(s, o[i].level, o[i].name);
        if (r || v != o[i].got) t_fail(__FILE__, __LINE__, "level %d option %d: set %d, got %d", o[i].level, o[i].name, r, v);
    }
}
#define LEN(a) (int)(sizeof(a) / sizeof *(a))
TEST(tcp_options) {
    struct option list[] = {
        {IPPROTO_TCP, TCP_NODELAY, 0, 5, 1},         {IPPROTO_TCP, TCP_CORK, 0, 1, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 7200, 60, 60},   {IPPROTO_TCP, TCP_KEEPINTVL, 75, 5, 5},
        {IPPROTO_TCP, TCP_KEEPCNT, 9, 3, 3},         {IPPROTO_TCP, TCP_SYNCNT, 6, 2, 2},
        {IPPROTO_TCP, TCP_LINGER2, 60, 20, 20},      {IPPROTO_TCP, TCP_DEFER_ACCEPT, 0, 10, 15},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, 0, 500, 500}, {IPPROTO_TCP, TCP_MAXSEG, 536, 1000, 1000},
        {IPPROTO_TCP, TCP_FASTOPEN, 0, 5, 5},        {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0, 1000, 1000},
        {SOL_SOCKET, SO_KEEPALIVE, 0, 1, 1},         {SOL_SOCKET, SO_REUSEADDR, 0, 1, 1},
        {SOL_SOCKET, SO_OOBINLINE, 0, 1, 1},         {SOL_SOCKET, SO_SNDBUF, 16384, 20000, 40000},
        {SOL_SOCKET, SO_RCVBUF, 131072, 20000, 40000}, {IPPROTO_IP, IP_TOS, 0, 0x10, 0x10},
        {IPPROTO_IP, IP_TTL, 64, 9, 9},
    };
    BOTH(f) {
        int s = SYS(socket(f, SOCK_STREAM, 0));
        round_trip(s, list, LEN(list));
        CHECK_ERR(set_int(s, IPPROTO_TCP, TCP_KEEPIDLE, 0), EINVAL);
        CHECK_ERR(set_int(s, IPPROTO_TCP, TCP_KEEPIDLE, 32768), EINVAL);
        CHECK_ERR(set_int(s, IPPROTO_TCP, TCP_KEEPCNT, 128), EINVAL);
        CHECK_ERR(set_int(s, IPPROTO_TCP, TCP_MAXSEG, 10), EINVAL);
        CHECK_ERR(set_int(s, IPPROTO_TCP, TCP_USER_TIMEOUT, -1), EINVAL);
        CHECK_ERR(set_int(s, IPPROTO_TCP, 999, 1), ENOPROTOOPT);
        char c = 1;
        CHECK_ERR(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &c, 1), EINVAL);
        CHECK_ERR(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, BAD_PTR, 4), EFAULT);
        char name[16] = "";
        socklen_t n = sizeof name;
        OK(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
        OK(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &n));
        CHECK_STR(name, "reno");
        CHECK_EQ(n, 16);
        CHECK_ERR(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "nothing", 7), ENOENT);
        OK(set_int(s, IPPROTO_TCP, TCP_LINGER2, -1));
        CHECK_EQ(get_int(s, IPPROTO_TCP, TCP_LINGER2), -1);
        close(s);
    }
}
TEST(ip_options) {
    struct option list[] = {
        {IPPROTO_IP, IP_TOS, 0, 0x1c, 0x1c},           {IPPROTO_IP, IP_TTL, 64, 3, 3},
        {IPPROTO_IP, IP_PKTINFO, 0, 1, 1},             {IPPROTO_IP, IP_RECVTTL, 0, 1, 1},
        {IPPROTO_IP, IP_RECVTOS, 0, 1, 1},             {IPPROTO_IP, IP_RECVORIGDSTADDR, 0, 1, 1},
        {IPPROTO_IP, IP_MTU_DISCOVER, 1, 0, 0},        {IPPROTO_IP, IP_RECVERR, 0, 1, 1},
        {IPPROTO_IP, IP_FREEBIND, 0, 1, 1},            {IPPROTO_IP, IP_MULTICAST_TTL, 1, 7, 7},
        {IPPROTO_IP, IP_MULTICAST_LOOP, 1, 0, 0},      {IPPROTO_IP, IP_MULTICAST_ALL, 1, 0, 0},
        {SOL_SOCKET, SO_TIMESTAMP, 0, 1, 1},           {SOL_SOCKET, SO_BROADCAST, 0, 1, 1},
    };
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    round_trip(s, list, LEN(list));
    CHECK_ERR(set_int(s, IPPROTO_IP, IP_TTL, 0), EINVAL);
    CHECK_ERR(set_int(s, IPPROTO_IP, IP_TTL, 256), EINVAL);
    OK(set_int(s, IPPROTO_IP, IP_TTL, -1));
    CHECK_EQ(get_int(s, IPPROTO_IP, IP_TTL), 64);
    CHECK_ERR(set_int(s, IPPROTO_IP, IP_MTU_DISCOVER, 77), EINVAL);
    // The other unit of time takes the place of the first.
    OK(set_int(s, SOL_SOCKET, SO_TIMESTAMPNS, 1));
    CHECK_EQ(get_int(s, SOL_SOCKET, SO_TIMESTAMP), 0);
    unsigned char c = 9;
    OK(setsockopt(s, IPPROTO_IP, IP_MULTICAST_TTL, &c, 1));
    CHECK_EQ(get_int(s, IPPROTO_IP, IP_MULTICAST_TTL), 9);
    int v;
    socklen_t n = sizeof v;
    CHECK_ERR(getsockopt(s, IPPROTO_IP, IP_MTU, &v, &n), ENOTCONN);
    OK(try_connect(s, AF_INET, 9));
    CHECK_EQ(get_int(s, IPPROTO_IP, IP_MTU), 65535);
    CHECK_ERR(getsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &v, &n), EOPNOTSUPP);
}
TEST(ipv6_options) {
    struct option list[] = {
        {IPPROTO_IPV6, IPV6_V6ONLY, 0, 1, 1},           {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64, 5, 5},
        {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1, 6, 6},   {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1, 0, 0},
        {IPPROTO_IPV6, IPV6_TCLASS, 0, 0x20, 0x20},     {IPPROTO_IPV6, IPV6_RECVPKTINFO, 0, 1, 1},
        {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 0, 1, 1},     {IPPROTO_IPV6, IPV6_RECVTCLASS, 0, 1, 1},
        {IPPROTO_IPV6, IPV6_RECVERR, 0, 1, 1},          {IPPROTO_IPV6, IPV6_MTU_DISCOVER, 1, 0, 0},
        {IPPROTO_IPV6, IPV6_MULTICAST_IF, 0, 1, 1},
    };
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    round_trip(s, list, LEN(list));
    CHECK_ERR(set_int(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 256), EINVAL);
    CHECK_ERR(set_int(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, 4711), ENODEV);
    CHECK_ERR(set_int(s, IPPROTO_IPV6, 999, 1), ENOPROTOOPT);
}
TEST(binding_to_a_device) {
    int a = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(setsockopt(a, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    char name[IFNAMSIZ] = "";
    socklen_t n = sizeof name;
    OK(getsockopt(a, SOL_SOCKET, SO_BINDTODEVICE, name, &n));
    CHECK_STR(name, "lo");
    CHECK_EQ(n, 3);
    CHECK_EQ(get_int(a, SOL_SOCKET, SO_BINDTOIFINDEX), 1);
    CHECK_ERR(setsockopt(a, SOL_SOCKET, SO_BINDTODEVICE, "none9", 5), ENODEV);
    OK(set_int(a, SOL_SOCKET, SO_BINDTOIFINDEX, 1));
    union addr at = loopback(AF_INET, 0);
    OK(bind(a, &at.any, sizeof at.in));
    int b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(try_connect(b, AF_INET, port_of(a)));
    CHECK_EQ(send(b, "x", 1, 0), 1);
    char c;
    CHECK_EQ(recv(a, &c, 1, MSG_DONTWAIT), 1);
    OK(setsockopt(a, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    CHECK_EQ(get_int(a, SOL_SOCKET, SO_BINDTOIFINDEX), 0);
}
// The control message of a kind.
static struct cmsghdr *find(struct msghdr *m, int level, int type) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == level && c->cmsg_type == type) return c;
    t_fail(__FILE__, __LINE__, "no control message %d %d", level, type);
    _exit(1);
}
static ssize_t receive(int s, struct msghdr *m, char *control, int flags) {
    static char data[2048];
    static union addr from;
    static struct iovec iov;
    iov = (struct iovec){data, sizeof data};
    *m = (struct msghdr){.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1,
                         .msg_control = control, .msg_controllen = 512};
    return recvmsg(s, m, flags);
}
TEST(told_of_ipv4) {
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    int names[] = {IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_RECVORIGDSTADDR};
    for (int i = 0; i < 4; i++) OK(set_int(a, IPPROTO_IP, names[i], 1));
    OK(set_int(a, SOL_SOCKET, SO_TIMESTAMP, 1));
    OK(set_int(b, IPPROTO_IP, IP_TTL, 33));
    OK(set_int(b, IPPROTO_IP, IP_TOS, 0x28));
    OK(try_connect(b, AF_INET, port_of(a)));
    CHECK_EQ(send(b, "data", 4, 0), 4);
    struct msghdr m;
    char control[512];
    CHECK_EQ(receive(a, &m, control, 0), 4);
    CHECK_EQ(m.msg_flags, 0);
    struct in_pktinfo *p = (void *)CMSG_DATA(find(&m, IPPROTO_IP, IP_PKTINFO));
    CHECK_EQ(p->ipi_ifindex, 1);
    CHECK_EQ(p->ipi_addr.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(p->ipi_spec_dst.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(*(int *)CMSG_DATA(find(&m, IPPROTO_IP, IP_TTL)), 33);
    CHECK_EQ(*CMSG_DATA(find(&m, IPPROTO_IP, IP_TOS)), 0x28);
    CHECK_EQ(find(&m, IPPROTO_IP, IP_TOS)->cmsg_len, CMSG_LEN(1));
    struct sockaddr_in *to = (void *)CMSG_DATA(find(&m, IPPROTO_IP, IP_ORIGDSTADDR));
    CHECK_EQ(ntohs(to->sin_port), port_of(a));
    struct timeval *tv = (void *)CMSG_DATA(find(&m, SOL_SOCKET, SCM_TIMESTAMP));
    CHECK(labs(tv->tv_sec - time(0)) <= 2);
    // No room.
    CHECK_EQ(send(b, "data", 4, 0), 4);
    char byte;
    struct iovec iov = {&byte, 1};
    m = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 8};
    CHECK_EQ(recvmsg(a, &m, 0), 1);
    CHECK_EQ(m.msg_flags, MSG_CTRUNC | MSG_TRUNC);
}
TEST(said_by_the_sender) {
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(set_int(a, IPPROTO_IP, IP_RECVTTL, 1));
    union addr to = name_of(a);
    char control[512] = "";
    struct iovec iov = {"hi", 2};
    struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to.in, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
    struct cmsghdr *c = (void *)control;
    *c = (struct cmsghdr){CMSG_LEN(4), IPPROTO_IP, IP_TTL};
    *(int *)CMSG_DATA(c) = 77;
    struct cmsghdr *d = (void *)(control + CMSG_SPACE(4));
    *d = (struct cmsghdr){CMSG_LEN(sizeof(struct in_pktinfo)), IPPROTO_IP, IP_PKTINFO};
    struct in_pktinfo *p = (void *)CMSG_DATA(d);
    p->ipi_spec_dst.s_addr = inet_addr("127.5.5.5");
    m.msg_controllen = CMSG_SPACE(4) + CMSG_SPACE(sizeof *p);
    CHECK_EQ(sendmsg(b, &m, 0), 2);
    struct msghdr r;
    char in[512];
    CHECK_EQ(receive(a, &r, in, 0), 2);
    CHECK_EQ(*(int *)CMSG_DATA(find(&r, IPPROTO_IP, IP_TTL)), 77);
    CHECK_EQ(((struct sockaddr_in *)r.msg_name)->sin_addr.s_addr, inet_addr("127.5.5.5"));
    p->ipi_spec_dst.s_addr = inet_addr("192.0.2.1");
    CHECK_ERR(sendmsg(b, &m, 0), ENETUNREACH);
    m.msg_controllen = CMSG_SPACE(4);
    *(int *)CMSG_DATA(c) = 256;
    CHECK_ERR(sendmsg(b, &m, 0), EINVAL);
    c->cmsg_type = 99;
    CHECK_ERR(sendmsg(b, &m, 0), EINVAL);
}
TEST(told_of_ipv6) {
    int a = bound(AF_INET6, SOCK_DGRAM), b = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVTCLASS, 1));
    OK(set_int(b, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 21));
    OK(set_int(b, IPPROTO_IPV6, IPV6_TCLASS, 0x40));
    OK(try_connect(b, AF_INET6, port_of(a)));
    CHECK_EQ(send(b, "data", 4, 0), 4);
    struct msghdr m;
    char control[512];
    CHECK_EQ(receive(a, &m, control, 0), 4);
    struct in6_pktinfo *p = (void *)CMSG_DATA(find(&m, IPPROTO_IPV6, IPV6_PKTINFO));
    CHECK_EQ(p->ipi6_ifindex, 1);
    CHECK_MEM(&p->ipi6_addr, &in6addr_loopback, 16);
    CHECK_EQ(*(int *)CMSG_DATA(find(&m, IPPROTO_IPV6, IPV6_HOPLIMIT)), 21);
    CHECK_EQ(*(int *)CMSG_DATA(find(&m, IPPROTO_IPV6, IPV6_TCLASS)), 0x40);
    // The same of a datagram that came by IPv4.
    int any = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), v4 = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    OK(bind(any, (void *)&at, sizeof at));
    OK(set_int(any, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1));
    OK(set_int(any, IPPROTO_IP, IP_RECVTTL, 1));
    OK(try_connect(v4, AF_INET, port_of(any)));
    CHECK_EQ(send(v4, "four", 4, 0), 4);
    CHECK_EQ(receive(any, &m, control, 0), 4);
    p = (void *)CMSG_DATA(find(&m, IPPROTO_IPV6, IPV6_PKTINFO));
    char text[64];
    CHECK_STR(inet_ntop(AF_INET6, &p->ipi6_addr, text, sizeof text), "::ffff:127.0.0.1");
    CHECK_EQ(*(int *)CMSG_DATA(find(&m, IPPROTO_IP, IP_TTL)), 64);
}
TEST(error_queues) {
    BOTH(f) {
        int a = bound(f, SOCK_DGRAM), port = port_of(a);
        close(a);
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        struct msghdr m;
        char control[512];
        CHECK_ERR(receive(s, &m, control, MSG_ERRQUEUE), EAGAIN);
        if (f == AF_INET) OK(set_int(s, IPPROTO_IP, IP_RECVERR, 1));
        else OK(set_int(s, IPPROTO_IPV6, IPV6_RECVERR, 1));
        union addr to = loopback(f, port);
        CHECK_EQ(sendto(s, "lost", 4, 0, &to.any, size_of(f)), 4);
        CHECK_EQ(poll_for(s, 0), POLLERR);
        CHECK_EQ(receive(s, &m, control, MSG_ERRQUEUE), 4);
        CHECK_EQ(m.msg_flags, MSG_ERRQUEUE);
        CHECK_MEM(m.msg_name, &to, size_of(f));
        struct cmsghdr *c = f == AF_INET ? find(&m, IPPROTO_IP, IP_RECVERR) : find(&m, IPPROTO_IPV6, IPV6_RECVERR);
        struct sock_extended_err *e = (void *)CMSG_DATA(c);
        CHECK_EQ(e->ee_errno, ECONNREFUSED);
        CHECK_EQ(e->ee_origin, f == AF_INET ? SO_EE_ORIGIN_ICMP : SO_EE_ORIGIN_ICMP6);
        CHECK_EQ(e->ee_type, f == AF_INET ? 3 : 1);
        CHECK_EQ(e->ee_code, f == AF_INET ? 3 : 4);
        union addr *offender = (void *)SO_EE_OFFENDER(e);
        CHECK_EQ(offender->any.sa_family, f);
        CHECK_EQ(c->cmsg_len, CMSG_LEN(sizeof *e + size_of(f)));
        CHECK_ERR(receive(s, &m, control, MSG_ERRQUEUE), EAGAIN);
        close(s);
    }
}
TEST(groups) {
    int a = SYS(socket(AF_INET, SOCK_DGRAM, 0)), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in any = {.sin_family = AF_INET};
    OK(bind(a, (void *)&any, sizeof any));
    struct ip_mreqn r = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3"), .imr_ifindex = 1};
    OK(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof r));
    CHECK_ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof r), EADDRINUSE);
    CHECK_ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, 4), EINVAL);
    OK(setsockopt(b, IPPROTO_IP, IP_MULTICAST_IF, &r, sizeof r));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port_of(a)), .sin_addr = r.imr_multiaddr};
    CHECK_EQ(sendto(b, "group", 5, 0, (void *)&to, sizeof to), 5);
    char buf[16];
    CHECK_EQ(poll_for(a, POLLIN), POLLIN);
    CHECK_EQ(recv(a, buf, 16, MSG_DONTWAIT), 5);
    OK(setsockopt(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &r, sizeof r));
    CHECK_ERR(setsockopt(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &r, sizeof r), EADDRNOTAVAIL);
    CHECK_EQ(sendto(b, "gone", 4, 0, (void *)&to, sizeof to), 4);
    CHECK_ERR(recv(a, buf, 16, MSG_DONTWAIT), EAGAIN);
    r.imr_multiaddr.s_addr = inet_addr("10.1.2.3");
    CHECK_ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof r), EINVAL);
    r.imr_multiaddr.s_addr = inet_addr("239.1.2.3");
    r.imr_ifindex = 4711;
    CHECK_ERR(setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof r), ENODEV);
    r.imr_ifindex = 1;
    CHECK_ERR(setsockopt(SYS(socket(AF_INET, SOCK_STREAM, 0)), IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof r), EPROTO);
    int s6 = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    struct ipv6_mreq r6 = {.ipv6mr_interface = 1};
    inet_pton(AF_INET6, "ff02::1234", &r6.ipv6mr_multiaddr);
    OK(setsockopt(s6, IPPROTO_IPV6, IPV6_JOIN_GROUP, &r6, sizeof r6));
    CHECK_ERR(setsockopt(s6, IPPROTO_IPV6, IPV6_JOIN_GROUP, &r6, sizeof r6), EADDRINUSE);
    OK(setsockopt(s6, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &r6, sizeof r6));
    struct group_req g = {.gr_interface = 1};
    memcpy(&g.gr_group, &to, sizeof to);
    OK(setsockopt(a, IPPROTO_IP, MCAST_JOIN_GROUP, &g, sizeof g));
    CHECK_EQ(sendto(b, "again", 5, 0, (void *)&to, sizeof to), 5);
    CHECK_EQ(recv(a, buf, 16, 0), 5);
    OK(setsockopt(a, IPPROTO_IP, MCAST_LEAVE_GROUP, &g, sizeof g));
}
TEST(tcp_info) {
    int v[2];
    tcp_pair(AF_INET, v);
    char b[1000] = "";
    CHECK_EQ(write(v[0], b, sizeof b), sizeof b);
    CHECK_EQ(recv(v[1], b, sizeof b, MSG_WAITALL), sizeof b);
    struct tcp_info i = {0};
    socklen_t n = sizeof i;
    OK(getsockopt(v[0], IPPROTO_TCP, TCP_INFO, &i, &n));
    CHECK_EQ(n, sizeof i);
    CHECK_EQ(i.tcpi_state, TCP_ESTABLISHED);
    CHECK_EQ(i.tcpi_retransmits, 0);
    CHECK(i.tcpi_options & TCPI_OPT_TIMESTAMPS);
    CHECK(i.tcpi_options & TCPI_OPT_SACK);
    CHECK(i.tcpi_options & TCPI_OPT_WSCALE);
    CHECK(i.tcpi_snd_mss > 10000);
    CHECK_EQ(i.tcpi_pmtu, 65535);
    CHECK(i.tcpi_rto >= 200000 && i.tcpi_rto < 1100000);
    CHECK_EQ(get_int(v[0], IPPROTO_IP, IP_MTU), 65535);
    OK(shutdown(v[0], SHUT_WR));
    poll_for(v[1], POLLRDHUP);
    n = sizeof i;
    OK(getsockopt(v[1], IPPROTO_TCP, TCP_INFO, &i, &n));
    CHECK_EQ(i.tcpi_state, TCP_CLOSE_WAIT);
    n = 1;
    OK(getsockopt(v[1], IPPROTO_TCP, TCP_INFO, &i, &n));
    CHECK_EQ(n, 1);
}
TEST(raw_and_ping) {
    if (geteuid() != 0) SKIP("not root");
    int r = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    union addr to = loopback(AF_INET, 0);
    unsigned char echo[16] = {8, 0, 0, 0, 0x12, 0x34, 0, 1, 'p', 'a', 'y', 'l', 'o', 'a', 'd'};
    unsigned sum = 0;
    for (int i = 0; i < 16; i += 2) sum += echo[i] << 8 | echo[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    echo[2] = sum >> 8, echo[3] = sum;
    CHECK_EQ(sendto(r, echo, 16, 0, &to.any, sizeof to.in), 16);
    unsigned char in[64];
    // The request comes back, too: this host is where it went.
    int replies = 0;
    for (int i = 0; i < 2; i++) {
        poll_for(r, POLLIN);
        CHECK_EQ(recv(r, in, 64, 0), 36);
        CHECK_EQ(in[0], 0x45);
        replies += in[20] == 0;
    }
    CHECK_EQ(replies, 1);
    CHECK_EQ(get_int(r, SOL_SOCKET, SO_TYPE), SOCK_RAW);
}
TEST(filters) {
    int a = bound(AF_INET, SOCK_DGRAM), b = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(try_connect(b, AF_INET, port_of(a)));
    CHECK_ERR(set_int(a, SOL_SOCKET, SO_DETACH_FILTER, 0), ENOENT);
    // Accepts what begins with 'y', behind the header of UDP, and cuts it to two bytes.
    struct sock_filter code[] = {
        {BPF_LD | BPF_B | BPF_ABS, 0, 0, 8}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 'y'}, {BPF_RET | BPF_K, 0, 0, 10}, {BPF_RET | BPF_K, 0, 0, 0}};
    struct sock_fprog p = {4, code};
    OK(setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p));
    CHECK_EQ(send(b, "no", 2, 0), 2);
    CHECK_EQ(send(b, "yes", 3, 0), 3);
    char buf[16];
    CHECK_EQ(poll_for(a, POLLIN), POLLIN);
    CHECK_EQ(recv(a, buf, 16, MSG_DONTWAIT), 2);
    CHECK_MEM(buf, "ye", 2);
    CHECK_ERR(recv(a, buf, 16, MSG_DONTWAIT), EAGAIN);
    OK(set_int(a, SOL_SOCKET, SO_DETACH_FILTER, 0));
    CHECK_EQ(send(b, "no", 2, 0), 2);
    CHECK_EQ(recv(a, buf, 16, 0), 2);
    CHECK_ERR(setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &p, 4), EINVAL);
    p.len = 0;
    CHECK_ERR(setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p), EINVAL);
    p.len = 2;
    CHECK_ERR(setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p), EINVAL);
    p.filter = BAD_PTR;
    CHECK_ERR(setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p), EFAULT);
}
TEST(filters_of_raw_sockets) {
    if (geteuid() != 0) SKIP("not root");
    int s = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)), all = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    int u = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_UDP));
    CHECK_EQ(get_int(s, SOL_RAW, 1), 0);
    // Destination unreachable.
    OK(set_int(s, SOL_RAW, 1, 1 << 3));
    CHECK_EQ(get_int(s, SOL_RAW, 1), 8);
    CHECK_ERR(set_int(u, SOL_RAW, 1, 1), EOPNOTSUPP);
    int d = SYS(socket(AF_INET, SOCK_DGRAM, 0)), port = port_of(bound(AF_INET, SOCK_STREAM));
    OK(try_connect(d, AF_INET, port));
    CHECK_EQ(send(d, "x", 1, 0), 1);
    CHECK_EQ(poll_for(all, POLLIN), POLLIN);
    CHECK_EQ(poll_of(s, POLLIN), 0);
    int s6 = SYS(socket(AF_INET6, SOCK_RAW, 200));
    CHECK_EQ(get_int(s6, SOL_RAW, IPV6_CHECKSUM), -1);
    OK(set_int(s6, SOL_RAW, IPV6_CHECKSUM, 2));
    CHECK_EQ(get_int(s6, IPPROTO_IPV6, IPV6_CHECKSUM), 2);
    CHECK_ERR(set_int(s6, SOL_RAW, IPV6_CHECKSUM, 3), EINVAL);
    OK(set_int(s, SOL_RAW, 1, 0));
    send(d, "x", 1, 0);
    send(d, "x", 1, 0);
    CHECK_EQ(poll_for(s, POLLIN), POLLIN);
}
// A socket of family AF_INET6 that is connected over IPv4.
static int mapped(int type, int port) {
    int s = SYS(socket(AF_INET6, type, 0));
    struct sockaddr_in6 a = {AF_INET6, htons(port), 0, IN6ADDR_LOOPBACK_INIT, 0};
    SYS(inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr));
    SYS(connect(s, (void *)&a, sizeof a));
    return s;
}
TEST(sockets_become_ipv4) {
    int types[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int i = 0; i < 2; i++) {
        int server = bound(AF_INET, types[i]), s = mapped(types[i], port_of(server));
        CHECK_EQ(get_int(s, IPPROTO_IPV6, IPV6_ADDRFORM), AF_INET6);
        CHECK_ERR(set_int(s, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET6), EINVAL);
        CHECK_ERR(setsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &(char){2}, 1), EINVAL);
        CHECK_EQ(name_of(s).any.sa_family, AF_INET6);
        OK(set_int(s, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET));
        union addr a = name_of(s);
        CHECK_EQ(a.any.sa_family, AF_INET);
        CHECK_EQ(a.in.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_DOMAIN), AF_INET);
        CHECK_ERR(set_int(s, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET), ENOPROTOOPT);
        OK(set_int(s, IPPROTO_IP, IP_TTL, 9));
        CHECK_EQ(send(s, "x", 1, 0), 1);
        if (i) {
            char b[4];
            union addr from;
            socklen_t n = sizeof from;
            CHECK_EQ(recvfrom(server, b, 4, 0, &from.any, &n), 1);
            CHECK_EQ(from.in.sin_port, a.in.sin_port);
        }
    }
}
TEST(sockets_that_stay_ipv6) {
    int types[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int i = 0; i < 2; i++) {
        int s = SYS(socket(AF_INET6, types[i], 0)), server = bound(AF_INET6, types[i]);
        CHECK_ERR(set_int(s, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET), ENOTCONN);
        int v;
        socklen_t n = sizeof v;
        CHECK_ERR(getsockopt(s, IPPROTO_IPV6, IPV6_ADDRFORM, &v, &n), ENOTCONN);
        OK(try_connect(s, AF_INET6, port_of(server)));
        CHECK_ERR(set_int(s, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET), EADDRNOTAVAIL);
        CHECK_EQ(name_of(s).any.sa_family, AF_INET6);
    }
    if (geteuid() != 0) SKIP("not root");
    int raw = SYS(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)), v;
    socklen_t n = sizeof v;
    CHECK_ERR(set_int(raw, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET), ENOPROTOOPT);
    CHECK_ERR(getsockopt(raw, IPPROTO_IPV6, IPV6_ADDRFORM, &v, &n), ENOPROTOOPT);
}
// The accepted socket of a listener for both families keeps all addresses of IPv4 from others when the listener has gone.
TEST(ports_of_accepted_sockets) {
    BOTH(f) {
        int l = SYS(socket(AF_INET6, SOCK_STREAM, 0)), s = SYS(socket(f, SOCK_STREAM, 0));
        struct sockaddr_in6 any = {.sin6_family = AF_INET6};
        OK(bind(l, (void *)&any, sizeof any));
        OK(listen(l, 5));
        int port = port_of(l);
        OK(try_connect(s, f, port));
        int c = SYS(accept(l, 0, 0)), six = f == AF_INET6;
        close(l);
        struct sockaddr_in all = {.sin_family = AF_INET, .sin_port = htons(port)}, one = all;
        one.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK_ERR(bind(SYS(socket(AF_INET, SOCK_STREAM, 0)), (void *)&all, sizeof all), EADDRINUSE);
        int r = bind(SYS(socket(AF_INET, SOCK_STREAM, 0)), (void *)&one, sizeof one);
        CHECK_EQ(r, six ? 0 : -1);
        union addr own = loopback(AF_INET6, port);
        r = bind(SYS(socket(AF_INET6, SOCK_STREAM, 0)), &own.any, sizeof own.in6);
        CHECK_EQ(r, six ? -1 : 0);
        close(c);
    }
}
TEST(filters_of_sources) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct ip_mreqn m = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3"), .imr_ifindex = 1};
    m.imr_address.s_addr = htonl(INADDR_LOOPBACK);
    char room[1024] = "";
    struct ip_msfilter *f = (void *)room;
    f->imsf_multiaddr = m.imr_multiaddr;
    f->imsf_interface = m.imr_address;
    f->imsf_fmode = MCAST_EXCLUDE;
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(0)), EINVAL);
    socklen_t n = sizeof room;
    CHECK_ERR(getsockopt(s, IPPROTO_IP, IP_MSFILTER, f, &n), EADDRNOTAVAIL);
    OK(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m));
    f->imsf_numsrc = 2;
    f->imsf_slist[0].s_addr = inet_addr("127.0.0.5");
    f->imsf_slist[1].s_addr = inet_addr("127.0.0.6");
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(1)), EINVAL);
    f->imsf_fmode = 2;
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(2)), EINVAL);
    f->imsf_fmode = MCAST_INCLUDE;
    OK(setsockopt(s, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(2)));
    f->imsf_numsrc = 1;
    f->imsf_slist[0].s_addr = f->imsf_slist[1].s_addr = 0;
    n = sizeof room;
    OK(getsockopt(s, IPPROTO_IP, IP_MSFILTER, f, &n));
    CHECK_EQ(n, IP_MSFILTER_SIZE(1));
    CHECK_EQ(f->imsf_fmode, MCAST_INCLUDE);
    CHECK_EQ(f->imsf_numsrc, 2);
    CHECK_EQ(f->imsf_slist[0].s_addr, inet_addr("127.0.0.5"));
    CHECK_EQ(f->imsf_slist[1].s_addr, 0);
    n = 8;
    CHECK_ERR(getsockopt(s, IPPROTO_IP, IP_MSFILTER, f, &n), EINVAL);
    f->imsf_numsrc = 11;
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(11)), ENOBUFS);
    // Only these are heard.
    struct sockaddr_in any = {.sin_family = AF_INET};
    OK(bind(s, (void *)&any, sizeof any));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port_of(s)), .sin_addr = m.imr_multiaddr};
    for (int i = 4; i < 8; i++) {
        int from = SYS(socket(AF_INET, SOCK_DGRAM, 0));
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 + i)};
        OK(bind(from, (void *)&own, sizeof own));
        OK(setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m));
        char c = i;
        CHECK_EQ(sendto(from, &c, 1, 0, (void *)&to, sizeof to), 1);
        close(from);
    }
    char c;
    CHECK_EQ(recv(s, &c, 1, MSG_DONTWAIT), 1);
    CHECK_EQ(c, 5);
    CHECK_EQ(recv(s, &c, 1, MSG_DONTWAIT), 1);
    CHECK_EQ(c, 6);
    CHECK_ERR(recv(s, &c, 1, MSG_DONTWAIT), EAGAIN);
    // The same by the call for any family; no sources at all is to leave.
    struct group_filter *g = (void *)room;
    memset(room, 0, sizeof room);
    g->gf_interface = 1;
    g->gf_numsrc = 1;
    memcpy(&g->gf_group, &to, sizeof to);
    n = sizeof room;
    OK(getsockopt(s, IPPROTO_IP, MCAST_MSFILTER, g, &n));
    CHECK_EQ(n, GROUP_FILTER_SIZE(1));
    CHECK_EQ(g->gf_numsrc, 2);
    CHECK_EQ(((struct sockaddr_in *)&g->gf_slist[0])->sin_addr.s_addr, inet_addr("127.0.0.5"));
    g->gf_numsrc = 0;
    OK(setsockopt(s, IPPROTO_IP, MCAST_MSFILTER, g, GROUP_FILTER_SIZE(0)));
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &m, sizeof m), EADDRNOTAVAIL);
    int s6 = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    struct ipv6_mreq m6 = {.ipv6mr_interface = 1};
    inet_pton(AF_INET6, "ff02::1234", &m6.ipv6mr_multiaddr);
    OK(setsockopt(s6, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m6, sizeof m6));
    memset(room, 0, sizeof room);
    g->gf_interface = 1;
    struct sockaddr_in6 *group = (void *)&g->gf_group, *source = (void *)&g->gf_slist[0];
    group->sin6_family = source->sin6_family = AF_INET6;
    group->sin6_addr = m6.ipv6mr_multiaddr;
    source->sin6_addr = in6addr_loopback;
    g->gf_numsrc = 1;
    g->gf_fmode = MCAST_EXCLUDE;
    OK(setsockopt(s6, IPPROTO_IPV6, MCAST_MSFILTER, g, GROUP_FILTER_SIZE(1)));
    memset(source, 0, sizeof *source);
    n = sizeof room;
    OK(getsockopt(s6, IPPROTO_IPV6, MCAST_MSFILTER, g, &n));
    CHECK_EQ(n, GROUP_FILTER_SIZE(1));
    CHECK_EQ(g->gf_fmode, MCAST_EXCLUDE);
    CHECK_MEM(&source->sin6_addr, &in6addr_loopback, 16);
    static char list[4096];
    int fd = SYS(open("/proc/net/igmp6", O_RDONLY));
    SYS(read(fd, list, sizeof list - 1));
    CHECK(strstr(list, "1    lo              ff020000000000000000000000001234     1 "));
    CHECK(strstr(list, "1    lo              ff020000000000000000000000000001     1 0000000C 0\n"));
    close(fd);
}
// A source that is not the host's, by a control message: with IPV6_FREEBIND, IPV6_TRANSPARENT and IP_TRANSPARENT.
TEST(foreign_sources) {
    struct {
        int family, level, option;
        const char *source, *group;
        int errno_of_foreign;
    } all[] = {
        {AF_INET6, 0, 0, "2001:db8::1", "ff02::5", EINVAL},
        {AF_INET6, IPPROTO_IPV6, IPV6_FREEBIND, "2001:db8::1", "ff02::5", 0},
        {AF_INET6, IPPROTO_IPV6, IPV6_TRANSPARENT, "2001:db8::1", "ff02::5", 0},
        {AF_INET6, IPPROTO_IP, IP_FREEBIND, "2001:db8::1", "ff02::5", 0},
        {AF_INET, 0, 0, "192.0.2.1", "224.0.0.5", ENETUNREACH},
        {AF_INET, IPPROTO_IP, IP_FREEBIND, "192.0.2.1", "224.0.0.5", ENETUNREACH},
        {AF_INET, IPPROTO_IP, IP_TRANSPARENT, "192.0.2.1", "224.0.0.5", 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int f = all[i].family, six = f == AF_INET6, s = bound(f, SOCK_DGRAM);
        if (all[i].option) OK(set_int(s, all[i].level, all[i].option, 1));
        for (int g = 0; g < 2; g++) {
            char byte = 'x', room[64] = {0};
            struct iovec v = {&byte, 1};
            union addr to = name_of(s), from = {0};
            struct msghdr m = {.msg_name = &to, .msg_namelen = size_of(f), .msg_iov = &v, .msg_iovlen = 1};
            m.msg_control = room;
            m.msg_controllen = CMSG_SPACE(six ? sizeof(struct in6_pktinfo) : sizeof(struct in_pktinfo));
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            c->cmsg_level = six ? IPPROTO_IPV6 : IPPROTO_IP;
            c->cmsg_type = six ? IPV6_PKTINFO : IP_PKTINFO;
            c->cmsg_len = CMSG_LEN(six ? sizeof(struct in6_pktinfo) : sizeof(struct in_pktinfo));
            void *at = six ? (void *)&((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_addr
                           : (void *)&((struct in_pktinfo *)CMSG_DATA(c))->ipi_spec_dst;
            CHECK_EQ(inet_pton(f, g ? all[i].group : all[i].source, at), 1);
            int wanted = g ? EINVAL : all[i].errno_of_foreign;
            if (wanted) {
                CHECK_ERR(sendmsg(s, &m, 0), wanted);
                continue;
            }
            CHECK_EQ(sendmsg(s, &m, 0), 1);
            socklen_t n = sizeof from;
            CHECK_EQ(recvfrom(s, &byte, 1, MSG_DONTWAIT, &from.any, &n), 1);
            CHECK_MEM(six ? (void *)&from.in6.sin6_addr : (void *)&from.in.sin_addr, at, six ? 16 : 4);
        }
        close(s);
    }
}
