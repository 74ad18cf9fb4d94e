// Routes with several next hops: RTA_MULTIPATH of rtnetlink(7), `ip route add ... nexthop ...` of ip-route(8).
#include "inet.h"
#include "rtnetlink.h"
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/veth.h>
#include <sched.h>

static int a, b;
static int set_flags(int index, int up) {
    struct request r = start(RTM_NEWLINK, 0, index);
    r.link.ifi_flags = up ? IFF_UP : 0;
    r.link.ifi_change = IFF_UP;
    return done(&r);
}
static int pair(const char *name, const char *peer) {
    struct request r = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    struct rtattr *info = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, "veth", 5);
    struct rtattr *data = add(&r, IFLA_INFO_DATA, 0, 0);
    struct ifinfomsg far = {0};
    struct rtattr *end_of_pair = add(&r, VETH_INFO_PEER, &far, sizeof far);
    add(&r, IFLA_IFNAME, peer, strlen(peer) + 1);
    end(&r, end_of_pair);
    end(&r, data);
    end(&r, info);
    CHECK_EQ(done(&r), 0);
    CHECK_EQ(set_flags(index_of(peer), 1), 0);
    CHECK_EQ(set_flags(index_of(name), 1), 0);
    return index_of(name);
}
static int family_of(const char *ip) {
    return strchr(ip, ':') ? AF_INET6 : AF_INET;
}
static int len_of(const char *ip) {
    return family_of(ip) == AF_INET ? 4 : 16;
}
static void address(int index, const char *ip, int bits) {
    struct request r = start(RTM_NEWADDR, NLM_F_CREATE, 0);
    struct ifaddrmsg *m = (void *)&r.link;
    *m = (struct ifaddrmsg){.ifa_family = family_of(ip), .ifa_prefixlen = bits, .ifa_index = index};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *m);
    char bytes[16];
    int flags = IFA_F_NODAD;
    inet_pton(family_of(ip), ip, bytes);
    add(&r, IFA_LOCAL, bytes, len_of(ip));
    add(&r, IFA_FLAGS, &flags, 4);
    CHECK_EQ(done(&r), 0);
}
struct hop {
    int index;
    const char *via;
    int weight, cut;
};
// Adds or deletes a route.
static int route(int type, int flags, const char *to, int bits, const struct hop *hops, int n) {
    struct request r = start(type, flags, 0);
    struct rtmsg *m = (void *)&r.link;
    *m = (struct rtmsg){.rtm_family = family_of(to), .rtm_dst_len = bits, .rtm_table = RT_TABLE_MAIN,
                        .rtm_protocol = RTPROT_STATIC, .rtm_type = RTN_UNICAST};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *m);
    char bytes[16];
    inet_pton(family_of(to), to, bytes);
    add(&r, RTA_DST, bytes, len_of(to));
    if (!n) return done(&r);
    struct rtattr *list = add(&r, RTA_MULTIPATH, 0, 0);
    for (int i = 0; i < n; i++) {
        struct rtnexthop *h = (void *)((char *)&r + NLMSG_ALIGN(r.h.nlmsg_len));
        *h = (struct rtnexthop){.rtnh_hops = hops[i].weight - 1, .rtnh_ifindex = hops[i].index};
        r.h.nlmsg_len = NLMSG_ALIGN(r.h.nlmsg_len) + sizeof *h;
        inet_pton(family_of(to), hops[i].via, bytes);
        add(&r, RTA_GATEWAY, bytes, len_of(to));
        h->rtnh_len = (char *)&r + r.h.nlmsg_len - (char *)h - hops[i].cut;
    }
    end(&r, list);
    return done(&r);
}
// The route to a network in a dump.
static struct rtmsg *described(const char *to, int *len) {
    static char answer[65536];
    char bytes[16];
    struct rtmsg *found = 0;
    int s = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    struct request r = start(RTM_GETROUTE, NLM_F_DUMP, 0);
    struct rtmsg *m = (void *)&r.link;
    *m = (struct rtmsg){.rtm_family = family_of(to)};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *m);
    inet_pton(family_of(to), to, bytes);
    SYS(send(s, &r, r.h.nlmsg_len, 0));
    static char kept[4096];
    for (int more = 1; more;) {
        int n = SYS(recv(s, answer, sizeof answer, 0));
        for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type != RTM_NEWROUTE) {
                more = 0;
                continue;
            }
            struct rtattr *dst = find((char *)NLMSG_DATA(h) + sizeof *m, h->nlmsg_len - NLMSG_LENGTH(sizeof *m), RTA_DST);
            if (!dst || memcmp(RTA_DATA(dst), bytes, len_of(to))) continue;
            memcpy(kept, NLMSG_DATA(h), h->nlmsg_len - NLMSG_LENGTH(0));
            *len = h->nlmsg_len - NLMSG_LENGTH(sizeof *m);
            found = (void *)kept;
        }
    }
    close(s);
    return found;
}
static void check_hops(const char *to, const struct hop *hops, int n) {
    int len;
    struct rtmsg *m = described(to, &len);
    MUST(m);
    struct rtattr *list = find(m + 1, len, RTA_MULTIPATH);
    MUST(list);
    CHECK(!find(m + 1, len, RTA_OIF));
    CHECK(!find(m + 1, len, RTA_GATEWAY));
    struct rtnexthop *h = RTA_DATA(list);
    int left = RTA_PAYLOAD(list), i = 0;
    for (; RTNH_OK(h, left); left -= RTNH_ALIGN(h->rtnh_len), h = RTNH_NEXT(h), i++) {
        if (i >= n) break;
        CHECK_EQ(h->rtnh_ifindex, hops[i].index);
        CHECK_EQ(h->rtnh_hops, hops[i].weight - 1);
        char bytes[16];
        inet_pton(family_of(to), hops[i].via, bytes);
        CHECK_MEM(RTA_DATA(find(RTNH_DATA(h), h->rtnh_len - sizeof *h, RTA_GATEWAY)), bytes, len_of(to));
    }
    CHECK_EQ(i, n);
}
// The last byte of the source address to a destination, which says which hop is taken; 0 when there is no way.
static int source_to(int family, int n) {
    union addr to = {.any.sa_family = family}, own = {0};
    if (family == AF_INET) {
        to.in.sin_addr.s_addr = htonl(0x0a090000 + n * 257 + 1);
        to.in.sin_port = htons(9);
    } else {
        inet_pton(AF_INET6, "2001:db8:9::", &to.in6.sin6_addr);
        to.in6.sin6_addr.s6_addr[14] = n, to.in6.sin6_addr.s6_addr[15] = n * 7 + 1;
        to.in6.sin6_port = htons(9);
    }
    int s = SYS(socket(family, SOCK_DGRAM, 0));
    socklen_t size = sizeof own;
    int failed = connect(s, &to.any, size_of(family)) != 0;
    if (!failed) SYS(getsockname(s, &own.any, &size));
    close(s);
    return failed ? 0 : family == AF_INET ? (ntohl(own.in.sin_addr.s_addr) >> 16) & 255 : own.in6.sin6_addr.s6_addr[5];
}
static void count(int family, int counts[2]) {
    counts[0] = counts[1] = 0;
    for (int n = 0; n < 200; n++) {
        int first = source_to(family, n);
        CHECK(first == 1 || first == 2);
        // The same flow takes the same way.
        CHECK_EQ(source_to(family, n), first);
        counts[first == 2]++;
    }
}
static void begin(void) {
    OK(unshare(CLONE_NEWNET));
    a = pair("v0", "v1");
    b = pair("v2", "v3");
    address(a, "10.1.0.1", 24);
    address(b, "10.2.0.1", 24);
    address(a, "2001:db8:1::1", 64);
    address(b, "2001:db8:2::1", 64);
}
TEST(several_hops) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    struct hop v4[] = {{a, "10.1.0.9", 1, 0}, {b, "10.2.0.9", 3, 0}};
    CHECK_EQ(route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, "10.9.0.0", 16, v4, 2), 0);
    CHECK_EQ(route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, "10.9.0.0", 16, v4, 2), EEXIST);
    check_hops("10.9.0.0", v4, 2);
    int counts[2];
    count(AF_INET, counts);
    if (counts[0] < 15 || counts[0] > 100) t_fail(__FILE__, __LINE__, "%d of 200 flows take the first hop", counts[0]);
    // Only what is up counts.
    CHECK_EQ(set_flags(b, 0), 0);
    count(AF_INET, counts);
    CHECK_EQ(counts[0], 200);
    CHECK_EQ(set_flags(b, 1), 0);
    CHECK_EQ(route(RTM_DELROUTE, 0, "10.9.0.0", 16, v4, 2), 0);
    CHECK_EQ(route(RTM_DELROUTE, 0, "10.9.0.0", 16, v4, 2), ESRCH);
    CHECK_EQ(source_to(AF_INET, 1), 0);
    // Replaced by other weights, and deleted without hops.
    CHECK_EQ(route(RTM_NEWROUTE, NLM_F_CREATE, "10.9.0.0", 16, v4, 2), 0);
    struct hop even[] = {{a, "10.1.0.9", 5, 0}, {b, "10.2.0.9", 5, 0}};
    CHECK_EQ(route(RTM_NEWROUTE, NLM_F_REPLACE, "10.9.0.0", 16, even, 2), 0);
    check_hops("10.9.0.0", even, 2);
    count(AF_INET, counts);
    if (counts[0] < 60 || counts[0] > 140) t_fail(__FILE__, __LINE__, "%d of 200 flows take the first hop", counts[0]);
    CHECK_EQ(route(RTM_DELROUTE, 0, "10.9.0.0", 16, 0, 0), 0);
    // What is wrong.
    struct hop far[] = {{a, "10.1.0.9", 1, 0}, {b, "10.77.0.9", 1, 0}};
    CHECK_EQ(route(RTM_NEWROUTE, NLM_F_CREATE, "10.9.0.0", 16, far, 2), ENETUNREACH);
    // One hop is a route like others.
    CHECK_EQ(route(RTM_NEWROUTE, NLM_F_CREATE, "10.9.0.0", 16, v4, 1), 0);
    int len;
    struct rtmsg *m = described("10.9.0.0", &len);
    MUST(m);
    CHECK(!find(m + 1, len, RTA_MULTIPATH));
    CHECK_EQ(*(int *)RTA_DATA(find(m + 1, len, RTA_OIF)), a);
}
TEST(several_hops_of_ipv6) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    struct hop v6[] = {{a, "2001:db8:1::9", 2, 0}, {b, "2001:db8:2::9", 2, 0}};
    CHECK_EQ(route(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, "2001:db8:9::", 48, v6, 2), 0);
    check_hops("2001:db8:9::", v6, 2);
    CHECK_EQ(route(RTM_DELROUTE, 0, "2001:db8:9::", 48, v6, 2), 0);
    int len;
    CHECK(!described("2001:db8:9::", &len));
}
