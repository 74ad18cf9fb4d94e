// Groups and broadcasts from sources without a route: ip(7), ipv6(7). Everything is in a network namespace of its own with a pair
// of interfaces and no default route.
#include "inet.h"
#include "rtnetlink.h"
#include <linux/if_addr.h>
#include <linux/veth.h>
#include <sched.h>

static int v0, v1;
static int up(int index) {
    struct request r = start(RTM_NEWLINK, 0, index);
    r.link.ifi_flags = r.link.ifi_change = IFF_UP;
    return done(&r);
}
// Makes the pair, as netavark asks for it: the kind is there twice.
static int pair(unsigned flags) {
    struct request r = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    add(&r, IFLA_IFNAME, "v0", 3);
    struct rtattr *info = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, "veth", 5);
    struct rtattr *data = add(&r, IFLA_INFO_DATA, 0, 0);
    struct ifinfomsg far = {.ifi_flags = flags};
    struct rtattr *peer = add(&r, VETH_INFO_PEER, &far, sizeof far);
    add(&r, IFLA_IFNAME, "v1", 3);
    struct rtattr *again = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, "veth", 5);
    end(&r, again);
    end(&r, peer);
    end(&r, data);
    end(&r, info);
    return done(&r);
}
static void enter(void) {
    if (geteuid() != 0) SKIP("not root");
    if (unshare(CLONE_NEWNET) < 0) SKIP("no network namespace");
    // The other end cannot be up before it has one.
    CHECK_EQ(pair(IFF_UP), ENOTCONN);
    CHECK_EQ(if_nametoindex("v0"), 0);
    CHECK_EQ(if_nametoindex("v1"), 0);
    CHECK_EQ(pair(0), 0);
    v0 = index_of("v0"), v1 = index_of("v1");
    CHECK_EQ(up(1), 0);
    CHECK_EQ(up(v0), 0);
    CHECK_EQ(up(v1), 0);
    struct request a = start(RTM_NEWADDR, NLM_F_CREATE, 0);
    struct ifaddrmsg *m = (void *)&a.link;
    *m = (struct ifaddrmsg){.ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = v0};
    a.h.nlmsg_len = NLMSG_LENGTH(sizeof *m);
    unsigned ip = htonl(0x0a000001), all = htonl(0x0a0000ff);
    add(&a, IFA_LOCAL, &ip, 4);
    add(&a, IFA_BROADCAST, &all, 4);
    CHECK_EQ(done(&a), 0);
}
static struct sockaddr_in to(const char *ip, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &a.sin_addr);
    return a;
}
static int udp(const char *bound) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), on = 1;
    OK(setsockopt(s, SOL_SOCKET, SO_BROADCAST, &on, sizeof on));
    struct sockaddr_in a = to(bound ?: "0.0.0.0", 0);
    OK(bind(s, (void *)&a, sizeof a));
    return s;
}
// The errno of a send.
static int sends(int s, const char *ip) {
    struct sockaddr_in a = to(ip, 99);
    return sendto(s, "x", 1, 0, (void *)&a, sizeof a) == 1 ? 0 : errno;
}
static int sends_from(const char *source, const char *ip) {
    struct sockaddr_in a = to(ip, 99);
    struct in_pktinfo info = {.ipi_spec_dst = to(source, 0).sin_addr};
    char control[CMSG_SPACE(sizeof info)] = {0};
    struct iovec v = {"x", 1};
    struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof info)};
    memcpy(CMSG_DATA(c), &info, sizeof info);
    int s = udp(0), sent = sendmsg(s, &m, 0), error = sent == 1 ? 0 : errno;
    close(s);
    return error;
}
TEST(sources_show_the_way) {
    enter();
    static const char *const sources[] = {"127.0.0.1", "127.1.0.1", "10.0.0.1", 0};
    static const char *const groups[] = {"224.0.0.1", "239.1.1.1", "255.255.255.255"};
    for (int i = 0; i < 4; i++) {
        for (int g = 0; g < 3; g++) {
            int s = udp(sources[i]);
            CHECK_EQ(sends(s, groups[g]), sources[i] ? 0 : ENETUNREACH);
            close(s);
            if (sources[i]) CHECK_EQ(sends_from(sources[i], groups[g]), 0);
            CHECK_EQ(sends_from("9.9.9.9", groups[g]), ENETUNREACH);
            CHECK_EQ(sends_from("224.0.0.1", groups[g]), EINVAL);
            CHECK_EQ(sends_from("255.255.255.255", groups[g]), EINVAL);
        }
        int s = udp(sources[i]);
        CHECK_EQ(sends(s, "8.8.8.8"), ENETUNREACH);
        close(s);
    }
    CHECK_EQ(sends_from("9.9.9.9", "10.0.0.7"), ENETUNREACH);
    CHECK_EQ(sends_from("9.9.9.9", "127.0.0.1"), ENETUNREACH);
    CHECK_EQ(sends_from("224.0.0.1", "10.0.0.7"), EINVAL);
    CHECK_EQ(sends_from("127.0.0.1", "10.0.0.7"), EINVAL);
    CHECK_EQ(sends_from("10.0.0.1", "10.0.0.7"), 0);
    CHECK_EQ(sends_from("10.0.0.1", "127.0.0.1"), 0);
    // What is sent from a loopback address to a group comes back there.
    int r = udp(0), s = udp("127.0.0.1");
    struct ip_mreq join = {to("224.5.5.5", 0).sin_addr, to("127.0.0.1", 0).sin_addr};
    OK(setsockopt(r, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
    struct sockaddr_in a = to("224.5.5.5", port_of(r)), from;
    CHECK_EQ(sendto(s, "x", 1, 0, (void *)&a, sizeof a), 1);
    CHECK_EQ(poll_for(r, POLLIN), POLLIN);
    char c;
    socklen_t n = sizeof from;
    CHECK_EQ(recvfrom(r, &c, 1, 0, (void *)&from, &n), 1);
    CHECK_EQ(from.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}
TEST(senders_at_a_broadcast_address) {
    enter();
    static const char *const at[] = {"255.255.255.255", "10.0.0.255", "224.0.0.1"};
    for (int i = 0; i < 3; i++) {
        int s = udp(at[i]), r = udp(0);
        CHECK_EQ(sends(s, "10.0.0.255"), 0);
        static const char *const ends[] = {"10.0.0.1", "10.0.0.255"};
        for (int e = 0; e < 2; e++) {
            struct sockaddr_in a = to(ends[e], port_of(r)), from;
            CHECK_EQ(sendto(s, "x", 1, 0, (void *)&a, sizeof a), 1);
            CHECK_EQ(poll_for(r, POLLIN), POLLIN);
            char c;
            socklen_t n = sizeof from;
            CHECK_EQ(recvfrom(r, &c, 1, 0, (void *)&from, &n), 1);
            CHECK_EQ(from.sin_addr.s_addr, htonl(0x0a000001));
        }
        close(s);
        close(r);
    }
}
TEST(interfaces_by_address) {
    enter();
    static const char *const own[] = {"127.0.0.1", "127.1.0.1", "127.9.9.9", "10.0.0.1"};
    for (int i = 0; i < 4; i++) {
        int s = udp(0);
        struct ip_mreq join = {to("224.5.5.5", 0).sin_addr, to(own[i], 0).sin_addr};
        OK(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
        OK(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &join.imr_interface, 4));
        struct in_addr got;
        socklen_t n = sizeof got;
        OK(getsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &got, &n));
        CHECK_EQ(got.s_addr, join.imr_interface.s_addr);
        CHECK_EQ(sends(s, "224.5.5.5"), 0);
        struct ip_mreq_source source = {.imr_multiaddr = to("224.5.5.6", 0).sin_addr, .imr_interface = join.imr_interface, .imr_sourceaddr.s_addr = htonl(0x01010101)};
        OK(setsockopt(s, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &source, sizeof source));
        OK(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof join));
        close(s);
    }
    int s = udp(0);
    struct ip_mreq join = {to("224.5.5.5", 0).sin_addr, to("9.9.9.9", 0).sin_addr};
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), ENODEV);
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &join.imr_interface, 4), EADDRNOTAVAIL);
    CHECK_ERR(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof join), EADDRNOTAVAIL);
}
TEST(groups_of_ipv6_on_loopback) {
    enter();
    static const char *const groups[] = {"ff02::2", "ff01::1", "ff05::3", "ff02::1"};
    for (int g = 0; g < 4; g++) {
        int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), lo = 1;
        OK(setsockopt(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, &lo, sizeof lo));
        struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(99)};
        inet_pton(AF_INET6, groups[g], &a.sin6_addr);
        CHECK_ERR(sendto(s, "x", 1, 0, (void *)&a, sizeof a), ENETUNREACH);
        close(s);
    }
}
// A socket that is bound to an interface reaches everything there, says Linux, whatever the routes are.
TEST(interfaces_without_a_route) {
    enter();
    static const char *const devices[] = {"lo", "v0", "v1"};
    static const char *const ends[] = {"8.8.8.8", "10.0.0.9", "224.0.0.1", "239.0.0.1", "255.255.255.255"};
    for (int d = 0; d < 3; d++)
        for (int e = 0; e < 5; e++) {
            int s = udp(0);
            OK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, devices[d], 3));
            CHECK_EQ(sends(s, ends[e]), 0);
            struct sockaddr_in a = to(ends[e], 99);
            OK(connect(s, (void *)&a, sizeof a));
            CHECK_EQ(name_of(s).in.sin_addr.s_addr, htonl(0x0a000001));
            close(s);
        }
}
// RTM_GETROUTE; the errno, or else the interface, with the type of the route.
static int way(const char *dst, const char *src, int oif, int *type) {
    struct request r = start(RTM_GETROUTE, 0, 0);
    struct rtmsg *m = (void *)&r.link;
    *m = (struct rtmsg){.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_src_len = src ? 32 : 0};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *m);
    struct in_addr a = to(dst, 0).sin_addr, from;
    add(&r, RTA_DST, &a, 4);
    if (src) from = to(src, 0).sin_addr, add(&r, RTA_SRC, &from, 4);
    if (oif) add(&r, RTA_OIF, &oif, 4);
    char answer[4096];
    int error = ask(&r, answer, sizeof answer);
    if (error) return -error;
    struct nlmsghdr *h = (void *)answer;
    m = NLMSG_DATA(h);
    *type = m->rtm_type;
    CHECK_EQ(m->rtm_src_len, src ? 32 : 0);
    CHECK_EQ(!!find(RTM_RTA(m), RTM_PAYLOAD(h), RTA_PREFSRC), !src);
    struct rtattr *found = find(RTM_RTA(m), RTM_PAYLOAD(h), RTA_OIF);
    return found ? *(int *)RTA_DATA(found) : 0;
}
TEST(asking_for_the_way) {
    enter();
    int type;
    CHECK_EQ(way("224.0.0.1", "127.0.0.1", 0, &type), 1);
    CHECK_EQ(type, RTN_MULTICAST);
    CHECK_EQ(way("224.0.0.1", "10.0.0.1", 0, &type), v0);
    CHECK_EQ(type, RTN_MULTICAST);
    CHECK_EQ(way("255.255.255.255", "10.0.0.1", 0, &type), v0);
    CHECK_EQ(type, RTN_BROADCAST);
    CHECK_EQ(way("224.0.0.1", "9.9.9.9", 0, &type), -ENETUNREACH);
    CHECK_EQ(way("8.8.8.8", "9.9.9.9", 0, &type), -ENETUNREACH);
    CHECK_EQ(way("8.8.8.8", "10.0.0.1", 0, &type), -ENETUNREACH);
    CHECK_EQ(way("224.0.0.1", 0, 0, &type), -ENETUNREACH);
    CHECK_EQ(way("10.0.0.7", "224.0.0.1", 0, &type), -EINVAL);
    CHECK_EQ(way("10.0.0.7", "127.0.0.1", 0, &type), -EINVAL);
    CHECK_EQ(way("8.8.8.8", 0, v0, &type), v0);
    CHECK_EQ(type, RTN_UNICAST);
    CHECK_EQ(way("8.8.8.8", "10.0.0.1", v1, &type), v1);
    CHECK_EQ(way("10.0.0.7", "10.0.0.1", 0, &type), v0);
}
