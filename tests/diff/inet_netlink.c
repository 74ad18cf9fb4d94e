// rtnetlink(7) that changes something: addresses, routes and links take effect on sockets.
#include "inet.h"
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>

struct request {
    struct nlmsghdr h;
    union {
        struct ifinfomsg link;
        struct ifaddrmsg addr;
        struct rtmsg route;
    };
    char more[128];
};
static struct request start(int type, int flags, int fixed) {
    return (struct request){.h = {.nlmsg_len = NLMSG_LENGTH(fixed), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags}};
}
static void add(struct request *r, int type, const void *value, int len) {
    struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->h.nlmsg_len));
    a->rta_type = type;
    a->rta_len = RTA_LENGTH(len);
    memcpy(RTA_DATA(a), value, len);
    r->h.nlmsg_len = NLMSG_ALIGN(r->h.nlmsg_len) + RTA_LENGTH(len);
}
static void add_int(struct request *r, int type, int v) { add(r, type, &v, 4); }
static void add_ip(struct request *r, int type, const char *ip) {
    struct in_addr a = {inet_addr(ip)};
    add(r, type, &a, 4);
}
// The errno that the kernel answers with, 0 for success.
static int ask(struct request *r) {
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    char buf[4096];
    CHECK_EQ(send(s, r, r->h.nlmsg_len, 0), r->h.nlmsg_len);
    int n = SYS(recv(s, buf, sizeof buf, 0));
    struct nlmsghdr *h = (void *)buf;
    MUST(NLMSG_OK(h, n));
    MUST(h->nlmsg_type == NLMSG_ERROR);
    close(s);
    return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
}
static struct request address(int type, int flags, const char *ip, int len) {
    struct request r = start(type, flags, sizeof r.addr);
    r.addr = (struct ifaddrmsg){.ifa_family = AF_INET, .ifa_prefixlen = len, .ifa_index = 1};
    add_ip(&r, IFA_LOCAL, ip);
    add_ip(&r, IFA_ADDRESS, ip);
    return r;
}
static int can_bind(const char *ip) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(ip)};
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0)), r = bind(s, (void *)&a, sizeof a), e = errno;
    close(s);
    errno = e;
    return r;
}
static int reach(const char *ip) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr(ip)};
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0)), r = connect(s, (void *)&a, sizeof a), e = errno;
    close(s);
    errno = e;
    return r;
}
// How often an address is listed by a dump.
static int listed(const char *ip) {
    struct request r = start(RTM_GETADDR, NLM_F_DUMP, sizeof r.addr);
    r.addr.ifa_family = AF_INET;
    r.h.nlmsg_flags &= ~NLM_F_ACK;
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), found = 0;
    struct in_addr want = {inet_addr(ip)};
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    char buf[16384];
    for (;;) {
        int n = SYS(recv(s, buf, sizeof buf, 0));
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type != RTM_NEWADDR) {
                close(s);
                return found;
            }
            struct rtattr *a = IFA_RTA(NLMSG_DATA(h));
            for (int left = IFA_PAYLOAD(h); RTA_OK(a, left); a = RTA_NEXT(a, left))
                found += a->rta_type == IFA_LOCAL && !memcmp(RTA_DATA(a), &want, 4);
        }
    }
}
TEST(addresses) {
    if (geteuid() != 0) SKIP("not root");
    CHECK_ERR(can_bind("10.9.8.7"), EADDRNOTAVAIL);
    struct request r = address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, "10.9.8.7", 24);
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(ask(&r), EEXIST);
    CHECK_EQ(listed("10.9.8.7"), 1);
    OK(can_bind("10.9.8.7"));
    OK(reach("10.9.8.7"));
    // Requests of old see it, too.
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    char buf[4096];
    struct ifconf c = {.ifc_len = sizeof buf, .ifc_buf = buf};
    OK(ioctl(s, SIOCGIFCONF, &c));
    CHECK_EQ(c.ifc_len, 2 * sizeof(struct ifreq));
    r = address(RTM_DELADDR, 0, "10.9.8.7", 24);
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(ask(&r), EADDRNOTAVAIL);
    CHECK_EQ(listed("10.9.8.7"), 0);
    CHECK_ERR(can_bind("10.9.8.7"), EADDRNOTAVAIL);
    r = address(RTM_NEWADDR, NLM_F_CREATE, "10.9.8.7", 33);
    CHECK_EQ(ask(&r), EINVAL);
    r = address(RTM_NEWADDR, NLM_F_CREATE, "10.9.8.7", 24);
    r.addr.ifa_index = 4711;
    CHECK_EQ(ask(&r), ENODEV);
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        r = address(RTM_NEWADDR, NLM_F_CREATE, "10.9.8.7", 24);
        CHECK_EQ(ask(&r), EPERM);
    });
}
static struct request route(int type, int flags, const char *ip, int len, int kind) {
    struct request r = start(type, flags, sizeof r.route);
    r.route = (struct rtmsg){.rtm_family = AF_INET, .rtm_dst_len = len, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT,
                             .rtm_scope = kind == RTN_UNICAST ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE, .rtm_type = kind};
    add_ip(&r, RTA_DST, ip);
    if (kind == RTN_UNICAST) add_int(&r, RTA_OIF, 1);
    return r;
}
TEST(routes) {
    if (geteuid() != 0) SKIP("not root");
    CHECK_ERR(reach("192.0.2.1"), ENETUNREACH);
    struct request r = route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(ask(&r), EEXIST);
    OK(reach("192.0.2.1"));
    CHECK_ERR(reach("192.0.3.1"), ENETUNREACH);
    struct request d = route(RTM_DELROUTE, 0, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask(&d), 0);
    CHECK_EQ(ask(&d), ESRCH);
    CHECK_ERR(reach("192.0.2.1"), ENETUNREACH);
    r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.0", 24, RTN_UNREACHABLE);
    CHECK_EQ(ask(&r), 0);
    CHECK_ERR(reach("192.0.2.1"), EHOSTUNREACH);
    r = route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, "192.0.2.0", 24, RTN_PROHIBIT);
    CHECK_EQ(ask(&r), 0);
    CHECK_ERR(reach("192.0.2.1"), EACCES);
    d = route(RTM_DELROUTE, 0, "192.0.2.0", 24, RTN_PROHIBIT);
    CHECK_EQ(ask(&d), 0);
    r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.1", 24, RTN_UNICAST);
    CHECK_EQ(ask(&r), EINVAL);
    r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.0", 33, RTN_UNICAST);
    CHECK_EQ(ask(&r), EINVAL);
    r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.0", 24, RTN_BLACKHOLE);
    add_ip(&r, RTA_GATEWAY, "10.0.0.1");
    CHECK(ask(&r) != 0);
}
TEST(links) {
    if (geteuid() != 0) SKIP("not root");
    struct request r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link = (struct ifinfomsg){.ifi_index = 1, .ifi_change = IFF_UP};
    CHECK_EQ(ask(&r), 0);
    struct ifreq q = {.ifr_name = "lo"};
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(ioctl(s, SIOCGIFFLAGS, &q));
    CHECK_EQ(q.ifr_flags & IFF_UP, 0);
    r.link.ifi_flags = IFF_UP;
    CHECK_EQ(ask(&r), 0);
    OK(reach("127.0.0.1"));
    r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link.ifi_index = 1;
    add_int(&r, IFLA_MTU, 1500);
    CHECK_EQ(ask(&r), 0);
    OK(ioctl(s, SIOCGIFMTU, &q));
    CHECK_EQ(q.ifr_mtu, 1500);
    // Segments and fragments as small as that.
    int v[2];
    tcp_pair(AF_INET, v);
    struct tcp_info i;
    socklen_t n = sizeof i;
    OK(getsockopt(v[0], IPPROTO_TCP, TCP_INFO, &i, &n));
    CHECK_EQ(i.tcpi_snd_mss, 1448);
    static char out[9000], in[9000];
    memset(out, 7, sizeof out);
    int a = bound(AF_INET, SOCK_DGRAM);
    union addr to = name_of(a);
    CHECK_EQ(sendto(s, out, sizeof out, 0, &to.any, sizeof to.in), sizeof out);
    CHECK_EQ(poll_for(a, POLLIN), POLLIN);
    CHECK_EQ(recv(a, in, sizeof in, MSG_DONTWAIT), sizeof in);
    CHECK_MEM(in, out, sizeof in);
    r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link.ifi_index = 1;
    add_int(&r, IFLA_MTU, 65536);
    CHECK_EQ(ask(&r), 0);
    r.link.ifi_index = 4711;
    CHECK_EQ(ask(&r), ENODEV);
    r = start(RTM_DELLINK, 0, sizeof r.link);
    r.link.ifi_index = 1;
    CHECK_EQ(ask(&r), EOPNOTSUPP);
}
static struct rtattr *nest(struct request *r, int type) {
    struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->h.nlmsg_len));
    add(r, type, "", 0);
    return a;
}
static void end_nest(struct request *r, struct rtattr *a) {
    a->rta_len = (char *)r + r->h.nlmsg_len - (char *)a;
}
static struct request new_link(const char *kind, const char *name, const char *peer) {
    struct request r = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof r.link);
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    struct rtattr *info = nest(&r, IFLA_LINKINFO);
    add(&r, IFLA_INFO_KIND, kind, strlen(kind));
    if (peer) {
        struct rtattr *data = nest(&r, IFLA_INFO_DATA), *end = nest(&r, 1);
        r.h.nlmsg_len += sizeof r.link;
        add(&r, IFLA_IFNAME, peer, strlen(peer) + 1);
        end_nest(&r, end), end_nest(&r, data);
    }
    end_nest(&r, info);
    return r;
}
static int set_master(int port, int master) {
    struct request r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link.ifi_index = port;
    add_int(&r, IFLA_MASTER, master);
    return ask(&r);
}
static int delete(int index) {
    struct request r = start(RTM_DELLINK, 0, sizeof r.link);
    r.link.ifi_index = index;
    return ask(&r);
}
// IFLA_OPERSTATE of an interface.
static int state_of(int index) {
    struct request r = start(RTM_GETLINK, 0, sizeof r.link);
    r.h.nlmsg_flags &= ~NLM_F_ACK;
    r.link.ifi_index = index;
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), state = -1;
    char buf[8192];
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    int n = SYS(recv(s, buf, sizeof buf, 0));
    struct nlmsghdr *h = (void *)buf;
    MUST(NLMSG_OK(h, n) && h->nlmsg_type == RTM_NEWLINK);
    struct rtattr *a = IFLA_RTA(NLMSG_DATA(h));
    for (int left = IFLA_PAYLOAD(h); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == IFLA_OPERSTATE) state = *(unsigned char *)RTA_DATA(a);
    close(s);
    return state;
}
TEST(states_of_links) {
    if (geteuid() != 0) SKIP("not root");
    CHECK_EQ(state_of(1), 0 /* IF_OPER_UNKNOWN */);
    struct request r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link = (struct ifinfomsg){.ifi_index = 1, .ifi_change = IFF_UP};
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(state_of(1), 2 /* IF_OPER_DOWN */);
    r.link.ifi_flags = IFF_UP;
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(state_of(1), 0 /* IF_OPER_UNKNOWN */);
}
TEST(new_links) {
    if (geteuid() != 0) SKIP("not root");
    struct request r = new_link("veth", "v0", "v1");
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(ask(&r), EEXIST);
    int v0 = if_nametoindex("v0"), v1 = if_nametoindex("v1");
    CHECK(v0 > 1 && v1 > 1 && v0 != v1);
    r = new_link("veth", "v2", "v1");
    CHECK_EQ(ask(&r), EEXIST);
    CHECK_EQ(if_nametoindex("v2"), 0);
    r = new_link("bridge", "br0", 0);
    CHECK_EQ(ask(&r), 0);
    r = new_link("bridge", "br1", 0);
    CHECK_EQ(ask(&r), 0);
    int br0 = if_nametoindex("br0"), br1 = if_nametoindex("br1");
    CHECK(br0 && br1);
    CHECK_EQ(set_master(v0, br0), 0);
    CHECK_EQ(set_master(v0, 4711), EINVAL);
    CHECK_EQ(set_master(v0, v1), EOPNOTSUPP);
    CHECK_EQ(set_master(br1, br0), ELOOP);
    CHECK_EQ(set_master(v0, 0), 0);
    CHECK_EQ(set_master(v0, br1), 0);
    CHECK_EQ(delete(br1), 0);
    CHECK_EQ(set_master(v0, br0), 0);
    struct ifreq q = {.ifr_name = "v1"};
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(ioctl(s, SIOCGIFMTU, &q));
    CHECK_EQ(q.ifr_mtu, 1500);
    r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link = (struct ifinfomsg){.ifi_index = v1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    CHECK_EQ(ask(&r), 0);
    // Both ends go at once.
    CHECK_EQ(delete(v1), 0);
    CHECK_EQ(if_nametoindex("v0"), 0);
    CHECK_EQ(if_nametoindex("v1"), 0);
    CHECK_EQ(delete(v0), ENODEV);
    CHECK_EQ(delete(br0), 0);
    // What ip(8) asks to learn whether links can be made.
    r = start(RTM_NEWLINK, 0, sizeof r.link);
    CHECK_EQ(ask(&r), ENODEV);
    r.h.nlmsg_flags |= NLM_F_CREATE;
    CHECK_EQ(ask(&r), EOPNOTSUPP);
    r = new_link("no-such-kind", "x0", 0);
    CHECK_EQ(ask(&r), EOPNOTSUPP);
    r = new_link("veth", "a/b", "v1");
    CHECK_EQ(ask(&r), EINVAL);
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        r = new_link("veth", "v0", "v1");
        CHECK_EQ(ask(&r), EPERM);
    });
}
// A socket that is a member of groups.
static int listener(unsigned groups) {
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    struct sockaddr_nl a = {.nl_family = AF_NETLINK, .nl_groups = groups};
    OK(bind(s, (void *)&a, sizeof a));
    return s;
}
// The next message of a type that a listener is told, in a static buffer.
static struct nlmsghdr *told(int s, int type) {
    static char buf[16384];
    for (;;) {
        if (poll_for(s, POLLIN) != POLLIN) return 0;
        struct sockaddr_nl from;
        socklen_t n = sizeof from;
        int len = SYS(recvfrom(s, buf, sizeof buf, 0, (void *)&from, &n));
        struct nlmsghdr *h = (void *)buf;
        CHECK_EQ(from.nl_pid, 0);
        CHECK(from.nl_groups != 0);
        if (NLMSG_OK(h, len) && h->nlmsg_type == type) return h;
    }
}
// Does a request from a socket with an address of its own; the errno.
static int ask_from(int s, struct request *r, int seq) {
    r->h.nlmsg_seq = seq;
    char buf[8192];
    CHECK_EQ(send(s, r, r->h.nlmsg_len, 0), r->h.nlmsg_len);
    for (;;) {
        int n = SYS(recv(s, buf, sizeof buf, 0));
        struct nlmsghdr *h = (void *)buf;
        MUST(NLMSG_OK(h, n));
        if (h->nlmsg_type == NLMSG_ERROR) return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
    }
}
static unsigned port_id(int s) {
    struct sockaddr_nl a;
    socklen_t n = sizeof a;
    OK(getsockname(s, (void *)&a, &n));
    return a.nl_pid;
}
TEST(groups_are_told) {
    if (geteuid() != 0) SKIP("not root");
    int l = listener(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE);
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct request r = address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, "10.9.8.7", 24);
    CHECK_EQ(ask_from(s, &r, 11), 0);
    struct nlmsghdr *h = told(l, RTM_NEWADDR);
    MUST(h);
    CHECK_EQ(h->nlmsg_seq, 11);
    CHECK_EQ(h->nlmsg_pid, port_id(s));
    CHECK_EQ(((struct ifaddrmsg *)NLMSG_DATA(h))->ifa_prefixlen, 24);
    // The routes of an address are nobody's request.
    h = told(l, RTM_NEWROUTE);
    MUST(h);
    CHECK_EQ(h->nlmsg_pid, 0);
    r = address(RTM_DELADDR, 0, "10.9.8.7", 24);
    CHECK_EQ(ask_from(s, &r, 12), 0);
    h = told(l, RTM_DELADDR);
    MUST(h);
    CHECK_EQ(h->nlmsg_seq, 12);
    MUST(told(l, RTM_DELROUTE));
    r = route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask_from(s, &r, 13), 0);
    h = told(l, RTM_NEWROUTE);
    MUST(h);
    CHECK_EQ(h->nlmsg_seq, 13);
    CHECK_EQ(h->nlmsg_pid, port_id(s));
    r = route(RTM_DELROUTE, 0, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask_from(s, &r, 14), 0);
    h = told(l, RTM_DELROUTE);
    MUST(h);
    CHECK_EQ(h->nlmsg_seq, 14);
    // Old requests are told, too.
    struct ifreq q = {.ifr_name = "lo", .ifr_mtu = 2000};
    int in = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(ioctl(in, SIOCSIFMTU, &q));
    h = told(l, RTM_NEWLINK);
    MUST(h);
    CHECK_EQ(((struct ifinfomsg *)NLMSG_DATA(h))->ifi_index, 1);
    q.ifr_mtu = 65536;
    OK(ioctl(in, SIOCSIFMTU, &q));
    // A refused request is not.
    while (recv(l, (char[8192]){0}, 8192, 0) > 0) {}
    r = address(RTM_DELADDR, 0, "10.9.8.7", 24);
    CHECK_EQ(ask_from(s, &r, 15), EADDRNOTAVAIL);
    CHECK_ERR(recv(l, (char[8192]){0}, 8192, 0), EAGAIN);
}
TEST(memberships) {
    if (geteuid() != 0) SKIP("not root");
    int l = listener(0), group = RTNLGRP_IPV4_RULE;
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct request r = address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, "10.9.8.7", 24);
    CHECK_EQ(ask(&r), 0);
    CHECK_ERR(recv(l, (char[8192]){0}, 8192, 0), EAGAIN);
    group = RTNLGRP_IPV4_IFADDR;
    OK(setsockopt(l, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    r = address(RTM_DELADDR, 0, "10.9.8.7", 24);
    CHECK_EQ(ask(&r), 0);
    MUST(told(l, RTM_DELADDR));
    OK(setsockopt(l, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group, sizeof group));
    // The requester is told as a member, and has the acknowledgement besides.
    OK(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    r = address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, "10.9.8.7", 24);
    CHECK_EQ(ask_from(s, &r, 21), 0);
    r = address(RTM_DELADDR, 0, "10.9.8.7", 24);
    CHECK_EQ(ask_from(s, &r, 22), 0);
    CHECK_ERR(recv(l, (char[8192]){0}, 8192, 0), EAGAIN);
}
TEST(slow_readers) {
    if (geteuid() != 0) SKIP("not root");
    int l = listener(RTMGRP_IPV4_IFADDR), small = 1;
    OK(setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    struct request a = address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, "10.9.8.7", 24);
    struct request d = address(RTM_DELADDR, 0, "10.9.8.7", 24);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(ask(&a), 0);
        CHECK_EQ(ask(&d), 0);
    }
    CHECK(poll_for(l, POLLIN | POLLERR) & POLLERR);
    char buf[8192];
    CHECK_ERR(recv(l, buf, sizeof buf, 0), ENOBUFS);
    int n = 0;
    while (recv(l, buf, sizeof buf, 0) > 0) n++;
    CHECK(n > 0 && n < 20);
    // From here on it is told again.
    CHECK_EQ(ask(&a), 0);
    MUST(told(l, RTM_NEWADDR));
    CHECK_EQ(ask(&d), 0);
}
static struct request rule(int type, int flags, int priority, int table) {
    struct request r = start(type, flags, sizeof(struct fib_rule_hdr));
    struct fib_rule_hdr *h = NLMSG_DATA(&r.h);
    *h = (struct fib_rule_hdr){.family = AF_INET, .action = FR_ACT_TO_TBL, .table = table};
    if (priority) add_int(&r, FRA_PRIORITY, priority);
    return r;
}
TEST(rules_choose_tables) {
    if (geteuid() != 0) SKIP("not root");
    int l = listener(1 << (RTNLGRP_IPV4_RULE - 1));
    struct request r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.0", 24, RTN_UNREACHABLE);
    r.route.rtm_table = 77;
    CHECK_EQ(ask(&r), 0);
    CHECK_ERR(reach("192.0.2.1"), ENETUNREACH);
    struct request u = rule(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, 100, 77);
    CHECK_EQ(ask(&u), 0);
    CHECK_EQ(ask(&u), EEXIST);
    MUST(told(l, RTM_NEWRULE));
    CHECK_ERR(reach("192.0.2.1"), EHOSTUNREACH);
    struct request d = rule(RTM_DELRULE, 0, 100, 77);
    CHECK_EQ(ask(&d), 0);
    CHECK_EQ(ask(&d), ENOENT);
    MUST(told(l, RTM_DELRULE));
    CHECK_ERR(reach("192.0.2.1"), ENETUNREACH);
    // One that does not apply to packets with this mark.
    u = rule(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, 100, 77);
    ((struct fib_rule_hdr *)NLMSG_DATA(&u.h))->flags = FIB_RULE_INVERT;
    add_int(&u, FRA_FWMARK, 5);
    CHECK_EQ(ask(&u), 0);
    CHECK_ERR(reach("192.0.2.1"), EHOSTUNREACH);
    d = rule(RTM_DELRULE, 0, 100, 77);
    CHECK_EQ(ask(&d), 0);
    // Of an interface that does not exist.
    u = rule(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, 101, 77);
    add(&u, FRA_OIFNAME, "nosuch0", 8);
    CHECK_EQ(ask(&u), 0);
    CHECK_ERR(reach("192.0.2.1"), ENETUNREACH);
    d = rule(RTM_DELRULE, 0, 101, 77);
    CHECK_EQ(ask(&d), 0);
    d = route(RTM_DELROUTE, 0, "192.0.2.0", 24, RTN_UNREACHABLE);
    d.route.rtm_table = 77;
    CHECK_EQ(ask(&d), 0);
    u = rule(RTM_NEWRULE, NLM_F_CREATE, 0, 77);
    ((struct fib_rule_hdr *)NLMSG_DATA(&u.h))->src_len = 24;
    CHECK_EQ(ask(&u), EINVAL);
}
static struct request neighbour(int type, int flags, int index, const char *ip, int state, int mac) {
    struct request r = start(type, flags, sizeof(struct ndmsg));
    *(struct ndmsg *)NLMSG_DATA(&r.h) = (struct ndmsg){.ndm_family = AF_INET, .ndm_ifindex = index, .ndm_state = state};
    add_ip(&r, NDA_DST, ip);
    unsigned char bytes[6] = {2, 0, 0, 0, 0, mac};
    if (mac) add(&r, NDA_LLADDR, bytes, 6);
    return r;
}
TEST(neighbours) {
    if (geteuid() != 0) SKIP("not root");
    struct request r = new_link("veth", "v0", "v1");
    CHECK_EQ(ask(&r), 0);
    int v0 = if_nametoindex("v0"), v1 = if_nametoindex("v1");
    for (int i = 0; i < 2; i++) {
        r = start(RTM_NEWLINK, 0, sizeof r.link);
        r.link = (struct ifinfomsg){.ifi_index = i ? v1 : v0, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
        CHECK_EQ(ask(&r), 0);
    }
    int l = listener(RTMGRP_NEIGH);
    r = neighbour(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, v0, "10.1.0.5", NUD_PERMANENT, 5);
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(ask(&r), EEXIST);
    struct nlmsghdr *h;
    do {
        h = told(l, RTM_NEWNEIGH);
        MUST(h);
    } while (((struct ndmsg *)NLMSG_DATA(h))->ndm_family != AF_INET);
    struct ndmsg *n = NLMSG_DATA(h);
    CHECK_EQ(n->ndm_ifindex, v0);
    CHECK_EQ(n->ndm_state, NUD_PERMANENT);
    r = neighbour(RTM_NEWNEIGH, NLM_F_REPLACE, v0, "10.1.0.5", NUD_REACHABLE, 6);
    CHECK_EQ(ask(&r), 0);
    r = neighbour(RTM_NEWNEIGH, 0, v0, "10.1.0.6", NUD_REACHABLE, 6);
    CHECK_EQ(ask(&r), ENOENT);
    r = neighbour(RTM_NEWNEIGH, NLM_F_CREATE, v0, "10.1.0.6", NUD_PERMANENT, 0);
    CHECK_EQ(ask(&r), EINVAL);
    r = neighbour(RTM_NEWNEIGH, NLM_F_CREATE, 4711, "10.1.0.6", NUD_PERMANENT, 6);
    CHECK_EQ(ask(&r), ENODEV);
    // Asked for by the old request.
    struct arpreq a = {.arp_pa.sa_family = AF_INET, .arp_dev = "v0"};
    ((struct sockaddr_in *)&a.arp_pa)->sin_addr.s_addr = inet_addr("10.1.0.5");
    OK(ioctl(SYS(socket(AF_INET, SOCK_DGRAM, 0)), SIOCGARP, &a));
    CHECK_EQ((unsigned char)a.arp_ha.sa_data[5], 6);
    r = neighbour(RTM_DELNEIGH, 0, v0, "10.1.0.5", 0, 0);
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(ask(&r), ENOENT);
    do {
        h = told(l, RTM_DELNEIGH);
        MUST(h);
    } while (((struct ndmsg *)NLMSG_DATA(h))->ndm_family != AF_INET);
    CHECK_EQ(delete(v0), 0);
}
// The text of the error that a request is answered with.
static const char *text_of(struct request *r, int *error) {
    static char buf[8192];
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), on = 1;
    OK(setsockopt(s, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on));
    CHECK_EQ(send(s, r, r->h.nlmsg_len, 0), r->h.nlmsg_len);
    int n = SYS(recv(s, buf, sizeof buf, 0));
    close(s);
    struct nlmsghdr *h = (void *)buf;
    MUST(NLMSG_OK(h, n) && h->nlmsg_type == NLMSG_ERROR);
    struct nlmsgerr *e = NLMSG_DATA(h);
    *error = -e->error;
    if (!(h->nlmsg_flags & NLM_F_ACK_TLVS)) return "";
    int skip = sizeof *e + (h->nlmsg_flags & NLM_F_CAPPED ? 0 : NLMSG_ALIGN(e->msg.nlmsg_len) - sizeof e->msg);
    struct rtattr *a = (void *)((char *)e + skip);
    for (int left = h->nlmsg_len - NLMSG_HDRLEN - skip; RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == NLMSGERR_ATTR_MSG) return RTA_DATA(a);
    return "";
}
#define CHECK_TEXT(r, want, words) do { \
    int error_; const char *text_ = text_of(&r, &error_); \
    CHECK_EQ(error_, want); \
    CHECK(!strcmp(text_, words)); \
} while (0)
TEST(texts_of_errors) {
    if (geteuid() != 0) SKIP("not root");
    struct request r = address(RTM_NEWADDR, NLM_F_CREATE, "10.9.8.7", 24);
    r.addr.ifa_index = 4711;
    CHECK_TEXT(r, ENODEV, "ipv4: Device not found");
    r = address(RTM_DELADDR, 0, "10.9.8.7", 24);
    CHECK_TEXT(r, EADDRNOTAVAIL, "ipv4: Address not found");
    r = address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, "127.0.0.1", 8);
    CHECK_TEXT(r, EEXIST, "ipv4: Address already assigned");
    r = new_link("no-such-kind", "x0", 0);
    CHECK_TEXT(r, EOPNOTSUPP, "Unknown device type");
    r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.1", 24, RTN_UNICAST);
    CHECK_TEXT(r, EINVAL, "Invalid prefix for given prefix length");
    r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.0", 24, RTN_UNICAST);
    add_ip(&r, RTA_GATEWAY, "10.77.0.1");
    r.route.rtm_scope = RT_SCOPE_UNIVERSE;
    CHECK_TEXT(r, ENETUNREACH, "Nexthop has invalid gateway");
    // An acknowledgement repeats the header only, and says so.
    char buf[4096];
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), on = 1;
    r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link.ifi_index = 1;
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    CHECK_EQ(recv(s, buf, sizeof buf, 0), 36);
    CHECK_EQ(((struct nlmsghdr *)buf)->nlmsg_flags, NLM_F_CAPPED);
    OK(setsockopt(s, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on));
    r.link.ifi_index = 4711;
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    CHECK_EQ(recv(s, buf, sizeof buf, 0), 36);
}
// A gateway is on a link, or an address of this host: then the destinations are on the link.
TEST(gateways) {
    if (geteuid() != 0) SKIP("not root");
    struct request r = address(RTM_NEWADDR, NLM_F_CREATE, "10.66.0.1", 24);
    CHECK_EQ(ask(&r), 0);
    struct { const char *to, *gateway; int oif, flags, scope, error; const char *text; int table; } cases[] = {
        {"192.0.2.0", "10.66.0.1", 1, 0, RT_SCOPE_UNIVERSE, 0, "", 0},
        {"192.0.3.0", "10.66.0.1", 0, 0, RT_SCOPE_UNIVERSE, 0, "", 0},
        {"192.0.4.0", "127.0.0.1", 1, 0, RT_SCOPE_LINK, 0, "", 0},
        {"192.0.5.0", "127.0.0.1", 1, 0, RT_SCOPE_HOST, EINVAL, "Route with host scope can not have a gateway", 0},
        {"192.0.5.0", "127.0.0.1", 1, RTNH_F_ONLINK, RT_SCOPE_UNIVERSE, EINVAL, "Nexthop has invalid gateway", 0},
        {"192.0.5.0", "10.99.0.1", 1, RTNH_F_ONLINK, RT_SCOPE_LINK, EINVAL, "Nexthop has invalid scope", 0},
        {"192.0.5.0", "10.99.0.1", 0, RTNH_F_ONLINK, RT_SCOPE_UNIVERSE, ENODEV, "Nexthop device required for onlink", 0},
        {"192.0.5.0", "10.99.0.1", 1, 0, RT_SCOPE_UNIVERSE, ENETUNREACH, "Nexthop has invalid gateway", 0},
        {"192.0.5.0", "224.0.0.1", 1, 0, RT_SCOPE_UNIVERSE, ENETUNREACH, "Nexthop has invalid gateway", 0},
        {"192.0.6.0", "10.99.0.1", 1, RTNH_F_ONLINK, RT_SCOPE_UNIVERSE, 0, "", 0},
        {"192.0.7.0", "192.0.6.1", 1, 0, RT_SCOPE_UNIVERSE, ENETUNREACH, "Nexthop has invalid gateway", 0},
        // A route of the same table leads to the gateway; other tables count only where rules name them.
        {"192.0.8.0", NULL, 1, 0, RT_SCOPE_LINK, 0, "", 100},
        {"192.0.9.0", "192.0.8.1", 1, 0, RT_SCOPE_UNIVERSE, 0, "", 100},
        {"192.0.10.0", "192.0.8.1", 1, 0, RT_SCOPE_UNIVERSE, ENETUNREACH, "Nexthop has invalid gateway", 0},
        {"192.0.10.0", "192.0.8.1", 1, 0, RT_SCOPE_UNIVERSE, ENETUNREACH, "Nexthop has invalid gateway", 101},
        {"192.0.10.0", "10.66.0.1", 1, 0, RT_SCOPE_UNIVERSE, 0, "", 101},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        r = route(RTM_NEWROUTE, NLM_F_CREATE, cases[i].to, 24, cases[i].oif ? RTN_UNICAST : RTN_BLACKHOLE);
        r.route.rtm_type = RTN_UNICAST;
        r.route.rtm_scope = cases[i].scope;
        r.route.rtm_flags = cases[i].flags;
        if (cases[i].table) r.route.rtm_table = cases[i].table;
        if (cases[i].gateway) add_ip(&r, RTA_GATEWAY, cases[i].gateway);
        CHECK_TEXT(r, cases[i].error, cases[i].text);
    }
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].error) continue;
        r = route(RTM_DELROUTE, 0, cases[i].to, 24, RTN_UNICAST);
        r.route.rtm_scope = RT_SCOPE_NOWHERE;
        if (cases[i].table) r.route.rtm_table = cases[i].table;
        CHECK_EQ(ask(&r), 0);
    }
    r = address(RTM_DELADDR, 0, "10.66.0.1", 24);
    CHECK_EQ(ask(&r), 0);
}
// How many routes a dump with strict checks lists of a table; minus the errno that ends it.
static int routes_of(int table) {
    struct request r = start(RTM_GETROUTE, NLM_F_DUMP, sizeof r.route);
    r.h.nlmsg_flags &= ~NLM_F_ACK;
    r.route.rtm_family = AF_INET;
    add_int(&r, RTA_TABLE, table);
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), on = 1, found = 0;
    OK(setsockopt(s, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof on));
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    char buf[16384];
    for (;;) {
        int n = SYS(recv(s, buf, sizeof buf, 0));
        for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type != RTM_NEWROUTE) {
                int end = *(int *)NLMSG_DATA(h);
                close(s);
                return end ? end : found;
            }
            CHECK(h->nlmsg_flags & NLM_F_DUMP_FILTERED);
            found++;
        }
    }
}
TEST(filtered_dumps) {
    if (geteuid() != 0) SKIP("not root");
    CHECK_EQ(routes_of(78), -ENOENT);
    struct request r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.0", 24, RTN_UNREACHABLE);
    r.route.rtm_table = 77;
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(routes_of(77), 1);
    CHECK(routes_of(RT_TABLE_LOCAL) > 1);
    r.h.nlmsg_type = RTM_DELROUTE;
    CHECK_EQ(ask(&r), 0);
}
TEST(replacing_routes) {
    if (geteuid() != 0) SKIP("not root");
    int l = listener(RTMGRP_IPV4_ROUTE);
    struct request r = route(RTM_NEWROUTE, NLM_F_CREATE, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask(&r), 0);
    MUST(told(l, RTM_NEWROUTE));
    r.h.nlmsg_flags |= NLM_F_REPLACE;
    r.route.rtm_type = RTN_UNREACHABLE;
    r.route.rtm_scope = RT_SCOPE_UNIVERSE;
    r.h.nlmsg_len -= RTA_LENGTH(4);
    CHECK_EQ(ask(&r), 0);
    struct nlmsghdr *h = told(l, RTM_NEWROUTE);
    MUST(h);
    CHECK(h->nlmsg_flags & NLM_F_REPLACE);
    CHECK_EQ(((struct rtmsg *)NLMSG_DATA(h))->rtm_type, RTN_UNREACHABLE);
    // A second one beside it needs another metric, or NLM_F_APPEND and another next hop.
    r = route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask(&r), EEXIST);
    r = route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_APPEND, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(ask(&r), EEXIST);
    struct request d = route(RTM_DELROUTE, 0, "192.0.2.0", 24, RTN_UNREACHABLE);
    d.route.rtm_type = 0;
    d.route.rtm_scope = RT_SCOPE_NOWHERE;
    CHECK_EQ(ask(&d), 0);
    CHECK_EQ(ask(&d), 0);
    CHECK_EQ(ask(&d), ESRCH);
    r = route(RTM_NEWROUTE, 0, "192.0.2.0", 24, RTN_UNICAST);
    CHECK_EQ(ask(&r), ENOENT);
}
TEST(shown_attributes) {
    if (geteuid() != 0) SKIP("not root");
    struct request r = new_link("veth", "v0", "v1");
    CHECK_EQ(ask(&r), 0);
    int v0 = if_nametoindex("v0"), v1 = if_nametoindex("v1");
    r = start(RTM_NEWLINK, 0, sizeof r.link);
    r.link = (struct ifinfomsg){.ifi_index = v0, .ifi_flags = IFF_UP | IFF_PROMISC, .ifi_change = IFF_UP | IFF_PROMISC};
    add_int(&r, IFLA_TXQLEN, 77);
    add(&r, IFLA_IFALIAS, "hello", 5);
    add(&r, IFLA_ADDRESS, "\2\0\0\0\0\x99", 6);
    CHECK_EQ(ask(&r), 0);
    CHECK_EQ(state_of(v0), 3 /* IF_OPER_LOWERLAYERDOWN */);
    r = start(RTM_GETLINK, 0, sizeof r.link);
    r.h.nlmsg_flags &= ~NLM_F_ACK;
    r.link.ifi_index = v0;
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)), seen = 0;
    char buf[16384];
    CHECK_EQ(send(s, &r, r.h.nlmsg_len, 0), r.h.nlmsg_len);
    int n = SYS(recv(s, buf, sizeof buf, 0));
    struct nlmsghdr *h = (void *)buf;
    MUST(NLMSG_OK(h, n) && h->nlmsg_type == RTM_NEWLINK);
    CHECK_EQ(((struct ifinfomsg *)NLMSG_DATA(h))->ifi_flags & (IFF_UP | IFF_PROMISC | IFF_RUNNING), IFF_UP | IFF_PROMISC);
    struct rtattr *a = IFLA_RTA(NLMSG_DATA(h));
    for (int left = IFLA_PAYLOAD(h); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        void *v = RTA_DATA(a);
        switch (a->rta_type) {
        case IFLA_TXQLEN: CHECK_EQ(*(int *)v, 77), seen++; break;
        case IFLA_LINK: CHECK_EQ(*(int *)v, v1), seen++; break;
        case IFLA_IFALIAS: CHECK(!strcmp(v, "hello")), seen++; break;
        case IFLA_ADDRESS: CHECK(!memcmp(v, "\2\0\0\0\0\x99", 6)), seen++; break;
        case IFLA_PROMISCUITY: CHECK_EQ(*(int *)v, 1), seen++; break;
        case IFLA_STATS64: CHECK(RTA_PAYLOAD(a) >= 24 * 8), seen++; break;
        case IFLA_LINKINFO: CHECK(!memcmp((char *)v + 4, "veth", 5)), seen++; break;
        case IFLA_CARRIER: CHECK_EQ(*(char *)v, 0), seen++; break;
        }
    }
    CHECK_EQ(seen, 8);
    CHECK_EQ(delete(v0), 0);
}
TEST(requests_of_internet_sockets) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq q = {.ifr_name = "lo"};
    struct sockaddr_in *in = (void *)&q.ifr_addr;
    OK(ioctl(s, SIOCGIFADDR, &q));
    CHECK_EQ(in->sin_family, AF_INET);
    CHECK_EQ(in->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    OK(ioctl(s, SIOCGIFNETMASK, &q));
    CHECK_EQ(in->sin_addr.s_addr, htonl(0xff000000));
    strcpy(q.ifr_name, "nosuch0");
    CHECK_ERR(ioctl(s, SIOCGIFADDR, &q), ENODEV);
    if (geteuid() != 0) SKIP("not root");
    strcpy(q.ifr_name, "lo");
    q.ifr_mtu = 2000;
    OK(ioctl(s, SIOCSIFMTU, &q));
    q.ifr_mtu = 0;
    OK(ioctl(s, SIOCGIFMTU, &q));
    CHECK_EQ(q.ifr_mtu, 2000);
    q.ifr_mtu = 65536;
    OK(ioctl(s, SIOCSIFMTU, &q));
    OK(ioctl(s, SIOCGIFFLAGS, &q));
    q.ifr_flags &= ~IFF_UP;
    OK(ioctl(s, SIOCSIFFLAGS, &q));
    OK(ioctl(s, SIOCGIFFLAGS, &q));
    CHECK_EQ(q.ifr_flags & IFF_UP, 0);
    q.ifr_flags |= IFF_UP;
    OK(ioctl(s, SIOCSIFFLAGS, &q));
    OK(reach("127.0.0.1"));
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        CHECK_ERR(ioctl(s, SIOCSIFMTU, &q), EPERM);
        CHECK_ERR(ioctl(s, SIOCSIFFLAGS, &q), EPERM);
    });
}
