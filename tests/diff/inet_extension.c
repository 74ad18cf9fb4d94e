// Extension headers of IPv6 and path MTUs: RFC 3542, and RFC 2292 before it.
#include "inet.h"
#include <linux/capability.h>
#include <linux/errqueue.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <netinet/icmp6.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <sys/syscall.h>

#ifndef IPV6_HDRINCL
#define IPV6_HDRINCL 36
#endif
enum { OLD_PKTINFO = 2, OLD_HOPOPTS = 3, OLD_DSTOPTS = 4, OLD_RTHDR = 5, OLD_PKTOPTIONS = 6, OLD_HOPLIMIT = 8 };

// Padding, and an option that nobody knows and everybody skips.
static const unsigned char PADS[8] = {0, 0, 1, 4, 0, 0, 0, 0}, SKIPPED[16] = {0, 1, 0x1e, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static int set(int s, int name, const void *value, int len) {
    return setsockopt(s, IPPROTO_IPV6, name, value, len);
}
static struct msghdr got;
static char control[1024], data[70000];
static struct sockaddr_in6 from;
static ssize_t receive(int s, int flags) {
    static struct iovec iov;
    iov = (struct iovec){data, sizeof data};
    got = (struct msghdr){.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1,
                          .msg_control = control, .msg_controllen = sizeof control};
    return recvmsg(s, &got, flags);
}
// The control messages are these, in this order.
static void check_kinds(const int *kinds, int n) {
    int i = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&got); c; c = CMSG_NXTHDR(&got, c), i++)
        if (i >= n || c->cmsg_level != IPPROTO_IPV6 || c->cmsg_type != kinds[i])
            t_fail(__FILE__, __LINE__, "control message %d is %d %d", i, c->cmsg_level, c->cmsg_type);
    CHECK_EQ(i, n);
}
#define KINDS(...) check_kinds((int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))
static unsigned char *nth(int n, int len) {
    struct cmsghdr *c = CMSG_FIRSTHDR(&got);
    while (n--) c = CMSG_NXTHDR(&got, c);
    CHECK_EQ(c->cmsg_len, CMSG_LEN(len));
    return CMSG_DATA(c);
}
// Appends a control message.
static struct msghdr out;
static char said[4096];
static void say(int type, const void *value, int len) {
    struct cmsghdr *c = (void *)(said + out.msg_controllen);
    *c = (struct cmsghdr){CMSG_LEN(len), IPPROTO_IPV6, type};
    memcpy(CMSG_DATA(c), value, len);
    out.msg_control = said;
    out.msg_controllen += CMSG_SPACE(len);
}
static union addr to;
static void message(int port) {
    static struct iovec iov = {"data", 4};
    memset(said, 0, sizeof said);
    to = loopback(AF_INET6, port);
    out = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to.in6, .msg_iov = &iov, .msg_iovlen = 1};
}
static void drop_raw(void) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    SYS(syscall(SYS_capget, &h, d));
    d[0].effective &= ~(1u << CAP_NET_RAW);
    SYS(syscall(SYS_capset, &h, d));
}
static int may_raw(void) {
    int s = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
    if (s >= 0) close(s);
    return s >= 0;
}

TEST(options_of_a_socket) {
    if (!may_raw()) SKIP("no CAP_NET_RAW");
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    int names[] = {IPV6_HOPOPTS, IPV6_RTHDRDSTOPTS, IPV6_DSTOPTS};
    unsigned char b[64];
    for (int i = 0; i < 3; i++) {
        socklen_t n = sizeof b;
        OK(getsockopt(s, IPPROTO_IPV6, names[i], b, &n));
        CHECK_EQ(n, 0);
        OK(set(s, names[i], SKIPPED, 16));
        n = sizeof b;
        OK(getsockopt(s, IPPROTO_IPV6, names[i], b, &n));
        CHECK_EQ(n, 16);
        CHECK_MEM(b, SKIPPED, 16);
        n = 4;
        OK(getsockopt(s, IPPROTO_IPV6, names[i], b, &n));
        CHECK_EQ(n, 4);
        CHECK_ERR(set(s, names[i], SKIPPED, 8), EINVAL);
        CHECK_ERR(set(s, names[i], SKIPPED, 7), EINVAL);
        CHECK_ERR(set(s, names[i], SKIPPED, 1), EINVAL);
        char large[2048] = {0, 255};
        CHECK_ERR(set(s, names[i], large, 2048), EINVAL);
        large[1] = 254;
        OK(set(s, names[i], large, 2040));
        CHECK_ERR(set(s, names[i], BAD_PTR, 16), EFAULT);
        // Only as much as the header says is kept.
        memcpy(large, PADS, 8);
        OK(set(s, names[i], large, 16));
        n = sizeof b;
        OK(getsockopt(s, IPPROTO_IPV6, names[i], b, &n));
        CHECK_EQ(n, 8);
        OK(set(s, names[i], 0, 0));
        n = sizeof b;
        OK(getsockopt(s, IPPROTO_IPV6, names[i], b, &n));
        CHECK_EQ(n, 0);
    }
    unsigned char segments[24] = {0, 2, 4, 0, 0}, old[24] = {0, 2, 0, 1};
    OK(set(s, IPV6_RTHDR, segments, 24));
    CHECK_ERR(set(s, IPV6_RTHDR, old, 24), EINVAL);
    segments[3] = 1;
    CHECK_ERR(set(s, IPV6_RTHDR, segments, 24), EINVAL);
    segments[3] = 0, segments[4] = 1;
    CHECK_ERR(set(s, IPV6_RTHDR, segments, 24), EINVAL);
    OK(set(s, IPV6_RTHDR, 0, 0));
    int flags[] = {IPV6_RECVHOPOPTS, IPV6_RECVDSTOPTS, IPV6_RECVRTHDR, IPV6_RECVPATHMTU, IPV6_DONTFRAG, OLD_PKTINFO,
                   OLD_HOPOPTS, OLD_DSTOPTS, OLD_RTHDR, OLD_HOPLIMIT};
    int types[] = {SOCK_DGRAM, SOCK_STREAM};
    for (int t = 0; t < 2; t++) {
        int f = SYS(socket(AF_INET6, types[t], 0));
        for (int i = 0; i < 10; i++) {
            CHECK_EQ(get_int(f, IPPROTO_IPV6, flags[i]), 0);
            OK(set_int(f, IPPROTO_IPV6, flags[i], 7));
            CHECK_EQ(get_int(f, IPPROTO_IPV6, flags[i]), 1);
            // What is too short is 0 for this one.
            if (flags[i] == IPV6_DONTFRAG) OK(set(f, flags[i], "x", 1));
            else CHECK_ERR(set(f, flags[i], "x", 1), EINVAL);
        }
        close(f);
    }
    int v4 = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    CHECK_ERR(set(v4, IPV6_HOPOPTS, PADS, 8), ENOPROTOOPT);
}
TEST(headers_that_a_socket_sends) {
    if (!may_raw()) SKIP("no CAP_NET_RAW");
    int a = bound(AF_INET6, SOCK_DGRAM), b = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVHOPOPTS, 1));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVDSTOPTS, 1));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1));
    OK(set(b, IPV6_HOPOPTS, PADS, 8));
    OK(set(b, IPV6_DSTOPTS, SKIPPED, 16));
    // There is no routing header, so nothing comes before it.
    OK(set(b, IPV6_RTHDRDSTOPTS, PADS, 8));
    OK(try_connect(b, AF_INET6, port_of(a)));
    CHECK_EQ(send(b, "data", 4, 0), 4);
    CHECK_EQ(receive(a, 0), 4);
    CHECK_MEM(data, "data", 4);
    KINDS(IPV6_HOPLIMIT, IPV6_HOPOPTS, IPV6_DSTOPTS);
    unsigned char *hop = nth(1, 8), *dst = nth(2, 16);
    CHECK_EQ(hop[0], IPPROTO_DSTOPTS);
    CHECK_MEM(hop + 1, PADS + 1, 7);
    CHECK_EQ(dst[0], IPPROTO_UDP);
    CHECK_MEM(dst + 1, SKIPPED + 1, 15);
    // The old way, and both.
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 0));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVHOPOPTS, 0));
    int old[] = {OLD_PKTINFO, OLD_HOPLIMIT, OLD_HOPOPTS, OLD_DSTOPTS, OLD_RTHDR};
    for (int i = 0; i < 5; i++) OK(set_int(a, IPPROTO_IPV6, old[i], 1));
    CHECK_EQ(send(b, "data", 4, 0), 4);
    CHECK_EQ(receive(a, 0), 4);
    KINDS(IPV6_DSTOPTS, OLD_PKTINFO, OLD_HOPLIMIT, OLD_HOPOPTS, OLD_DSTOPTS);
    // What comes with a message takes the place of all that the socket has.
    message(port_of(a));
    say(IPV6_DSTOPTS, PADS, 8);
    CHECK_EQ(sendmsg(b, &out, 0), 4);
    CHECK_EQ(receive(a, 0), 4);
    KINDS(IPV6_DSTOPTS, OLD_PKTINFO, OLD_HOPLIMIT, OLD_DSTOPTS);
    CHECK_EQ(nth(0, 8)[0], IPPROTO_UDP);
    // A peek tells the same.
    CHECK_EQ(send(b, "data", 4, 0), 4);
    CHECK_EQ(receive(a, MSG_PEEK), 4);
    KINDS(IPV6_DSTOPTS, OLD_PKTINFO, OLD_HOPLIMIT, OLD_HOPOPTS, OLD_DSTOPTS);
    CHECK_EQ(receive(a, 0), 4);
    // Nothing of this concerns IPv4.
    int any = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    OK(bind(any, (void *)&at, sizeof at));
    OK(set_int(any, IPPROTO_IPV6, IPV6_RECVHOPOPTS, 1));
    int c = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    OK(set(c, IPV6_HOPOPTS, PADS, 8));
    at.sin6_port = htons(port_of(any));
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &at.sin6_addr);
    CHECK_EQ(sendto(c, "four", 4, 0, (void *)&at, sizeof at), 4);
    CHECK_EQ(receive(any, 0), 4);
    check_kinds(0, 0);
}
TEST(headers_with_a_message) {
    if (!may_raw()) SKIP("no CAP_NET_RAW");
    int a = bound(AF_INET6, SOCK_DGRAM), b = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), port = port_of(a);
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVHOPOPTS, 1));
    OK(set_int(a, IPPROTO_IPV6, IPV6_RECVDSTOPTS, 1));
    message(port);
    say(IPV6_HOPOPTS, SKIPPED, 16);
    say(IPV6_DSTOPTS, PADS, 8);
    say(IPV6_RTHDRDSTOPTS, PADS, 8);
    int hops = 7;
    say(OLD_HOPLIMIT, &hops, 4);
    CHECK_EQ(sendmsg(b, &out, 0), 4);
    CHECK_EQ(receive(a, 0), 4);
    KINDS(IPV6_HOPOPTS, IPV6_DSTOPTS);
    CHECK_EQ(nth(0, 16)[0], IPPROTO_DSTOPTS);
    message(port);
    say(OLD_HOPOPTS, PADS, 8);
    say(OLD_DSTOPTS, PADS, 8);
    CHECK_EQ(sendmsg(b, &out, 0), 4);
    CHECK_EQ(receive(a, 0), 4);
    KINDS(IPV6_HOPOPTS, IPV6_DSTOPTS);
    // Twice, too short, and the routing headers that need Mobile IPv6.
    message(port);
    say(IPV6_HOPOPTS, PADS, 8);
    say(OLD_HOPOPTS, PADS, 8);
    CHECK_ERR(sendmsg(b, &out, 0), EINVAL);
    message(port);
    say(OLD_DSTOPTS, PADS, 8);
    say(OLD_DSTOPTS, PADS, 8);
    CHECK_ERR(sendmsg(b, &out, 0), EINVAL);
    message(port);
    say(IPV6_DSTOPTS, SKIPPED, 8);
    CHECK_ERR(sendmsg(b, &out, 0), EINVAL);
    message(port);
    say(IPV6_HOPOPTS, PADS, 1);
    CHECK_ERR(sendmsg(b, &out, 0), EINVAL);
    unsigned char routing[24] = {0, 2, 0, 1};
    for (int i = 0; i < 2; i++) {
        message(port);
        say(i ? IPV6_RTHDR : OLD_RTHDR, routing, 24);
        CHECK_ERR(sendmsg(b, &out, 0), EINVAL);
    }
    int bad = 2;
    message(port);
    say(IPV6_DONTFRAG, &bad, 4);
    CHECK_ERR(sendmsg(b, &out, 0), EINVAL);
    struct in6_pktinfo info = {.ipi6_ifindex = 4711};
    message(port);
    say(OLD_PKTINFO, &info, sizeof info);
    CHECK_ERR(sendmsg(b, &out, 0), ENODEV);
    // All of a socket's headers, as messages.
    out.msg_controllen = 0;
    memset(said, 0, sizeof said);
    say(OLD_HOPOPTS, PADS, 8);
    say(OLD_DSTOPTS, SKIPPED, 16);
    OK(set(b, OLD_PKTOPTIONS, said, out.msg_controllen));
    unsigned char v[64];
    socklen_t n = sizeof v;
    OK(getsockopt(b, IPPROTO_IPV6, IPV6_DSTOPTS, v, &n));
    CHECK_EQ(n, 16);
    message(port);
    CHECK_EQ(sendmsg(b, &out, 0), 4);
    CHECK_EQ(receive(a, 0), 4);
    KINDS(IPV6_HOPOPTS, IPV6_DSTOPTS);
    OK(set(b, OLD_PKTOPTIONS, 0, 0));
    CHECK_EQ(sendmsg(b, &out, 0), 4);
    CHECK_EQ(receive(a, 0), 4);
    check_kinds(0, 0);
    n = sizeof v;
    CHECK_ERR(getsockopt(b, IPPROTO_IPV6, OLD_PKTOPTIONS, v, &n), ENOPROTOOPT);
    CHECK_ERR(set(b, OLD_PKTOPTIONS, "\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16), EINVAL);
    CHECK_ERR(set(b, IPV6_PKTINFO, &info, 19), EINVAL);
    CHECK_ERR(set(b, IPV6_PKTINFO, 0, 0), EINVAL);
    OK(set(b, IPV6_PKTINFO, &info, sizeof info));
    CHECK(sendmsg(b, &out, 0) < 0);
    info.ipi6_ifindex = 1;
    OK(set(b, IPV6_PKTINFO, &info, sizeof info));
    CHECK_EQ(sendmsg(b, &out, 0), 4);
}
TEST(options_need_a_privilege) {
    if (!may_raw()) SKIP("no CAP_NET_RAW");
    drop_raw();
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    CHECK_ERR(set(s, IPV6_HOPOPTS, PADS, 8), EPERM);
    CHECK_ERR(set(s, IPV6_HOPOPTS, PADS, 1), EPERM);
    CHECK_ERR(set(s, IPV6_DSTOPTS, 0, 0), EPERM);
    CHECK_ERR(set(s, IPV6_RTHDRDSTOPTS, PADS, 8), EPERM);
    unsigned char segments[24] = {0, 2, 4, 0, 0};
    OK(set(s, IPV6_RTHDR, segments, 24));
    OK(set(s, IPV6_RTHDR, 0, 0));
    OK(set_int(s, IPPROTO_IPV6, IPV6_DONTFRAG, 1));
    int kinds[] = {IPV6_HOPOPTS, IPV6_DSTOPTS, IPV6_RTHDRDSTOPTS, OLD_HOPOPTS, OLD_DSTOPTS};
    for (int i = 0; i < 5; i++) {
        message(9);
        say(kinds[i], PADS, 8);
        CHECK_ERR(sendmsg(s, &out, 0), EPERM);
        CHECK_ERR(set(s, OLD_PKTOPTIONS, said, out.msg_controllen), EPERM);
    }
}
TEST(packets_that_are_too_large) {
    int a = bound(AF_INET6, SOCK_DGRAM), s = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), port = port_of(a);
    struct ip6_mtuinfo info;
    socklen_t n = sizeof info;
    CHECK_ERR(getsockopt(s, IPPROTO_IPV6, IPV6_PATHMTU, &info, &n), ENOTCONN);
    OK(set_int(s, IPPROTO_IPV6, IPV6_RECVPATHMTU, 1));
    to = loopback(AF_INET6, port);
    memset(data, 'x', sizeof data);
    CHECK_EQ(sendto(s, data, 65500, 0, &to.any, sizeof to.in6), 65500);
    CHECK_EQ(receive(a, 0), 65500);
    CHECK_ERR(receive(s, MSG_DONTWAIT), EAGAIN);
    OK(set_int(s, IPPROTO_IPV6, IPV6_DONTFRAG, 1));
    CHECK_ERR(sendto(s, data, 65500, 0, &to.any, sizeof to.in6), EMSGSIZE);
    CHECK_EQ(poll_of(s, POLLIN), 0);
    CHECK_EQ(receive(s, MSG_DONTWAIT), 0);
    CHECK_EQ(got.msg_flags, 0);
    CHECK_EQ(from.sin6_family, AF_INET6);
    CHECK_EQ(from.sin6_port, 0);
    CHECK_MEM(&from.sin6_addr, &in6addr_loopback, 16);
    KINDS(IPV6_PATHMTU);
    memcpy(&info, nth(0, sizeof info), sizeof info);
    CHECK_EQ(info.ip6m_mtu, 65536);
    CHECK_EQ(info.ip6m_addr.sin6_family, AF_INET6);
    CHECK_EQ(info.ip6m_addr.sin6_port, 0);
    CHECK_MEM(&info.ip6m_addr.sin6_addr, &in6addr_loopback, 16);
    CHECK_ERR(receive(s, MSG_DONTWAIT), EAGAIN);
    // The largest that fits.
    CHECK_EQ(sendto(s, data, 65488, 0, &to.any, sizeof to.in6), 65488);
    CHECK_ERR(sendto(s, data, 65489, 0, &to.any, sizeof to.in6), EMSGSIZE);
    CHECK_EQ(receive(s, MSG_DONTWAIT), 0);
    // A message may say otherwise.
    static struct iovec large = {data, 65500};
    int off = 0, on = 1;
    message(port);
    out.msg_iov = &large;
    say(IPV6_DONTFRAG, &off, 4);
    CHECK_EQ(sendmsg(s, &out, 0), 65500);
    OK(set_int(s, IPPROTO_IPV6, IPV6_DONTFRAG, 0));
    OK(set_int(s, IPPROTO_IPV6, IPV6_RECVERR, 1));
    OK(set_int(s, IPPROTO_IPV6, IPV6_RECVPATHMTU, 0));
    message(port);
    out.msg_iov = &large;
    say(IPV6_DONTFRAG, &on, 4);
    CHECK_ERR(sendmsg(s, &out, 0), EMSGSIZE);
    receive(s, MSG_ERRQUEUE);
    struct sock_extended_err *e = (void *)CMSG_DATA(CMSG_FIRSTHDR(&got));
    CHECK_EQ(e->ee_errno, EMSGSIZE);
    CHECK_EQ(e->ee_origin, SO_EE_ORIGIN_LOCAL);
    CHECK_EQ(e->ee_info, 65536);
    OK(try_connect(s, AF_INET6, port));
    n = sizeof info;
    OK(getsockopt(s, IPPROTO_IPV6, IPV6_PATHMTU, &info, &n));
    CHECK_EQ(n, sizeof info);
    CHECK_EQ(info.ip6m_mtu, 65536);
    CHECK_EQ(info.ip6m_addr.sin6_family, 0);
}

// Sends a UDP datagram to a port of the loopback address behind extension headers of any kind.
static void send_behind(int raw, int first, const void *headers, int len, int port) {
    char packet[512] = "";
    struct ip6_hdr *ip = (void *)packet;
    ip->ip6_flow = htonl(6u << 28);
    ip->ip6_plen = htons(len + 12);
    ip->ip6_nxt = first;
    ip->ip6_hlim = 3;
    ip->ip6_src = ip->ip6_dst = in6addr_loopback;
    memcpy(packet + 40, headers, len);
    struct udphdr *udp = (void *)(packet + 40 + len);
    udp->uh_sport = htons(7), udp->uh_dport = htons(port), udp->uh_ulen = htons(12);
    memcpy(udp + 1, "data", 4);
    unsigned sum = IPPROTO_UDP + 12;
    unsigned short *w = (void *)&ip->ip6_src;
    for (int i = 0; i < 16; i++) sum += ntohs(w[i]);
    w = (void *)udp;
    for (int i = 0; i < 6; i++) sum += ntohs(w[i]);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    udp->uh_sum = htons(~sum);
    union addr at = loopback(AF_INET6, 0);
    CHECK_EQ(sendto(raw, packet, 52 + len, 0, &at.any, sizeof at.in6), 52 + len);
}
TEST(headers_that_arrive) {
    if (!may_raw()) SKIP("no CAP_NET_RAW");
    int a = bound(AF_INET6, SOCK_DGRAM), raw = SYS(socket(AF_INET6, SOCK_RAW, IPPROTO_UDP)), port = port_of(a);
    CHECK_EQ(get_int(raw, IPPROTO_IPV6, IPV6_HDRINCL), 0);
    OK(set_int(raw, IPPROTO_IPV6, IPV6_HDRINCL, 1));
    CHECK_EQ(get_int(raw, IPPROTO_IPV6, IPV6_HDRINCL), 1);
    int wants[] = {IPV6_RECVHOPOPTS, IPV6_RECVDSTOPTS, IPV6_RECVRTHDR, OLD_HOPOPTS, OLD_DSTOPTS, OLD_RTHDR};
    for (int i = 0; i < 6; i++) OK(set_int(a, IPPROTO_IPV6, wants[i], 1));
    // Options, a routing header that is done, options.
    unsigned char all[48] = {IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0, IPPROTO_ROUTING, 0, 0x1e, 4, 1, 1, 1, 1};
    all[16] = IPPROTO_DSTOPTS, all[17] = 2;
    all[40] = IPPROTO_UDP, all[42] = 0x1e, all[43] = 4;
    send_behind(raw, 0, all, 48, port);
    CHECK_EQ(poll_for(a, POLLIN), POLLIN);
    CHECK_EQ(receive(a, MSG_DONTWAIT), 4);
    KINDS(IPV6_HOPOPTS, IPV6_DSTOPTS, IPV6_RTHDR, IPV6_DSTOPTS, OLD_HOPOPTS, OLD_DSTOPTS, OLD_RTHDR, OLD_DSTOPTS);
    CHECK_MEM(nth(2, 24), all + 16, 24);
    CHECK_MEM(nth(5, 8), all + 8, 8);
    CHECK_MEM(nth(7, 8), all + 40, 8);
    // What is not delivered, and what its sender is told: type, code and pointer.
    static const struct {
        int first, len;
        unsigned char bytes[24];
        int code, pointer;
    } bad[] = {
        {IPPROTO_DSTOPTS, 8, {IPPROTO_UDP, 0, 0x5e, 4}, -1, 0},
        {IPPROTO_DSTOPTS, 8, {IPPROTO_UDP, 0, 0x9e, 4}, 2, 42},
        {IPPROTO_DSTOPTS, 8, {IPPROTO_UDP, 0, 1, 1, 0, 0xde, 1}, 2, 45},
        {IPPROTO_HOPOPTS, 8, {IPPROTO_UDP, 0, 0xde, 4}, 2, 42},
        {IPPROTO_DSTOPTS, 8, {IPPROTO_UDP, 0, 1, 4, 0, 9}, -1, 0},
        {IPPROTO_DSTOPTS, 8, {IPPROTO_UDP, 0, 0x1e, 5}, -1, 0},
        {IPPROTO_ROUTING, 24, {IPPROTO_UDP, 2, 0, 1}, 0, 42},
        {IPPROTO_ROUTING, 24, {IPPROTO_UDP, 2, 4, 0}, -1, 0},
        {IPPROTO_ROUTING, 24, {IPPROTO_UDP, 2, 3, 0}, -1, 0},
    };
    int icmp = SYS(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6));
    for (int i = 0; i < sizeof bad / sizeof *bad; i++) {
        send_behind(raw, bad[i].first, bad[i].bytes, bad[i].len, port);
        CHECK_ERR(receive(a, MSG_DONTWAIT), EAGAIN);
        ssize_t n = receive(icmp, MSG_DONTWAIT);
        if (bad[i].code < 0 ? n >= 0 : n < 0) t_fail(__FILE__, __LINE__, "packet %d: %zd bytes of ICMP", i, n);
        if (n < 0) continue;
        struct icmp6_hdr *h = (void *)data;
        CHECK_EQ(h->icmp6_type, ICMP6_PARAM_PROB);
        CHECK_EQ(h->icmp6_code, bad[i].code);
        CHECK_EQ(ntohl(h->icmp6_pptr), bad[i].pointer);
    }
}
// The packets that a socket with a segment routing header sends.
TEST(segment_routing) {
    if (!may_raw()) SKIP("no CAP_NET_RAW");
    int p = SYS(socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IPV6)));
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    unsigned char routing[40] = {0, 4, 4, 1, 1};
    routing[39] = 1;
    OK(set(s, IPV6_RTHDR, routing, 40));
    OK(set(s, IPV6_RTHDRDSTOPTS, PADS, 8));
    struct sockaddr_in6 far = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    inet_pton(AF_INET6, "2001:db8::5", &far.sin6_addr);
    CHECK_EQ(sendto(s, "data", 4, 0, (void *)&far, sizeof far), 4);
    unsigned char b[256];
    do CHECK_EQ(poll_for(p, POLLIN), POLLIN);
    while (SYS(recv(p, b, sizeof b, 0)) != 40 + 8 + 40 + 12);
    // It goes to the segment that is next; the last one is where it ends.
    CHECK_MEM(b + 24, &in6addr_loopback, 16);
    CHECK_EQ(b[6], IPPROTO_DSTOPTS);
    CHECK_EQ(b[40], IPPROTO_ROUTING);
    CHECK_EQ(b[48], IPPROTO_UDP);
    CHECK_MEM(b + 56, &far.sin6_addr, 16);
    CHECK_MEM(b + 72, &in6addr_loopback, 16);
}
