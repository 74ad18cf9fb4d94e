// rtnetlink(7) that changes something: addresses, routes and links take effect on sockets.
#include "inet.h"
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

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
