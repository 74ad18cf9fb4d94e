// The life of addresses: lifetimes, duplicate address detection, link-local addresses. See ip-address(8), rtnetlink(7).
#include "inet.h"
#include "rtnetlink.h"
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/veth.h>
#include <netinet/icmp6.h>
#include <sched.h>

#define SECONDS(n) for (int tenth = 0; tenth < (n) * 10; tenth++, usleep(100000))

static int own, other;
static void enter(int net) {
    OK(setns(net, CLONE_NEWNET));
}
static int current(void) {
    return SYS(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
}
static void begin(void) {
    OK(unshare(CLONE_NEWNET));
    other = current();
    OK(unshare(CLONE_NEWNET));
    own = current();
}
static int up(int index) {
    struct request r = start(RTM_NEWLINK, 0, index);
    r.link.ifi_flags = r.link.ifi_change = IFF_UP;
    return done(&r);
}
// A pair of interfaces, one of them in the other namespace.
static void pair(const char *name, const char *peer) {
    struct request r = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    struct rtattr *info = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, "veth", 5);
    struct rtattr *data = add(&r, IFLA_INFO_DATA, 0, 0);
    struct ifinfomsg far = {0};
    struct rtattr *end_of_pair = add(&r, VETH_INFO_PEER, &far, sizeof far);
    add(&r, IFLA_IFNAME, peer, strlen(peer) + 1);
    add(&r, IFLA_NET_NS_FD, &other, 4);
    end(&r, end_of_pair);
    end(&r, data);
    end(&r, info);
    CHECK_EQ(done(&r), 0);
}
// An interface with a carrier.
static int near_end(void) {
    pair("v0", "v1");
    enter(other);
    CHECK_EQ(up(index_of("v1")), 0);
    enter(own);
    int near = index_of("v0");
    CHECK_EQ(up(near), 0);
    return near;
}
static int address(int index, const char *ip, int flags, unsigned valid, unsigned preferred, int how) {
    struct request r = start(RTM_NEWADDR, NLM_F_CREATE | how, 0);
    struct ifaddrmsg *a = (void *)&r.link;
    int family = strchr(ip, ':') ? AF_INET6 : AF_INET;
    *a = (struct ifaddrmsg){.ifa_family = family, .ifa_prefixlen = family == AF_INET ? 24 : 64, .ifa_index = index};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *a);
    char bytes[16];
    inet_pton(family, ip, bytes);
    add(&r, IFA_LOCAL, bytes, family == AF_INET ? 4 : 16);
    if (flags) add(&r, IFA_FLAGS, &flags, 4);
    struct ifa_cacheinfo life = {.ifa_valid = valid, .ifa_prefered = preferred};
    if (valid != ~0u || preferred != ~0u) add(&r, IFA_CACHEINFO, &life, sizeof life);
    return done(&r);
}
static struct ifa_cacheinfo life;
// The flags of an address, -1 if it is not there. A prefix of 64 bits that is followed by "*" stands for any.
static int flags_of(int index, const char *ip) {
    static char answer[65536];
    int family = strchr(ip, ':') ? AF_INET6 : AF_INET, s = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)), found = -1;
    struct request r = start(RTM_GETADDR, NLM_F_DUMP, 0);
    struct ifaddrmsg *asked = (void *)&r.link;
    *asked = (struct ifaddrmsg){.ifa_family = family};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *asked);
    char wanted[16], text[64] = "";
    strncpy(text, ip, 63);
    char *star = strchr(text, '*');
    if (star) *star = 0;
    inet_pton(family, text, wanted);
    int len = family == AF_INET ? 4 : star ? 8 : 16;
    SYS(send(s, &r, r.h.nlmsg_len, 0));
    for (int more = 1; more;) {
        int n = SYS(recv(s, answer, sizeof answer, 0));
        for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type != RTM_NEWADDR) {
                more = 0;
                continue;
            }
            struct ifaddrmsg *a = NLMSG_DATA(h);
            char *list = (char *)(a + 1);
            int size = h->nlmsg_len - NLMSG_LENGTH(sizeof *a);
            struct rtattr *value = find(list, size, IFA_ADDRESS);
            if (a->ifa_index != index || a->ifa_family != family || memcmp(RTA_DATA(value), wanted, len)) continue;
            found = *(int *)RTA_DATA(find(list, size, IFA_FLAGS));
            memcpy(&life, RTA_DATA(find(list, size, IFA_CACHEINFO)), sizeof life);
        }
    }
    close(s);
    return found;
}
static int try_bind(const char *ip) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, ip, &at.sin6_addr);
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), r = bind(s, (void *)&at, sizeof at), e = errno;
    close(s);
    errno = e;
    return r;
}

TEST(lifetimes) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int d = near_end();
    const char *ips[] = {"10.9.0.1", "2001:db8:9::1"};
    for (int i = 0; i < 2; i++) {
        // Nobody is asked for these.
        const char *ip = ips[i];
        int sure = i ? IFA_F_NODAD : 0;
        CHECK_EQ(address(d, ip, sure, 0, 0, 0), EINVAL);
        CHECK_EQ(address(d, ip, sure, 5, 6, 0), EINVAL);
        CHECK_EQ(address(d, ip, sure, ~0u, ~0u, 0), 0);
        CHECK_EQ(flags_of(d, ip), IFA_F_PERMANENT | sure);
        CHECK_EQ(life.ifa_valid, ~0u);
        CHECK_EQ(life.ifa_prefered, ~0u);
        CHECK(life.cstamp > 0 && life.cstamp == life.tstamp);
        // Hundredths of seconds of CLOCK_MONOTONIC, which jiffies follow roughly.
        struct timespec now;
        OK(clock_gettime(CLOCK_MONOTONIC, &now));
        int ago = now.tv_sec * 100 + now.tv_nsec / 10000000 - life.cstamp;
        CHECK(ago > -500 && ago < 500);
        CHECK_EQ(address(d, ip, sure, 100, 50, 0), EEXIST);
        CHECK_EQ(address(d, ip, sure, 100, 50, NLM_F_EXCL | NLM_F_REPLACE), EEXIST);
        CHECK_EQ(address(d, ip, sure, 100, 50, NLM_F_REPLACE), 0);
        CHECK_EQ(flags_of(d, ip), sure);
        CHECK(life.ifa_valid >= 98 && life.ifa_valid <= 100);
        CHECK(life.ifa_prefered >= 48 && life.ifa_prefered <= 50);
        CHECK_EQ(address(d, ip, sure, 1000, 0, NLM_F_REPLACE), 0);
        CHECK_EQ(flags_of(d, ip), IFA_F_DEPRECATED | sure);
        CHECK_EQ(life.ifa_prefered, 0);
        CHECK_EQ(address(d, ip, sure, 5, 1, NLM_F_REPLACE), 0);
    }
    // They are deprecated and go, not much later than they should.
    for (int i = 0; i < 2; i++) {
        SECONDS(20) if (flags_of(d, ips[i]) & IFA_F_DEPRECATED) break;
        CHECK_EQ(flags_of(d, ips[i]), IFA_F_DEPRECATED | (i ? IFA_F_NODAD : 0));
    }
    CHECK_EQ(try_bind(ips[1]), 0);
    for (int i = 0; i < 2; i++) {
        SECONDS(20) if (flags_of(d, ips[i]) == -1) break;
        CHECK_EQ(flags_of(d, ips[i]), -1);
    }
    CHECK_ERR(try_bind(ips[1]), EADDRNOTAVAIL);
}
TEST(addresses_without_a_route) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int d = near_end();
    CHECK_EQ(address(d, "10.9.0.1", IFA_F_NOPREFIXROUTE, ~0u, ~0u, 0), 0);
    CHECK_EQ(flags_of(d, "10.9.0.1"), IFA_F_PERMANENT | IFA_F_NOPREFIXROUTE);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("10.9.0.7")};
    CHECK_ERR(connect(s, (void *)&to, sizeof to), ENETUNREACH);
    to.sin_addr.s_addr = inet_addr("10.9.0.1");
    OK(connect(s, (void *)&to, sizeof to));
}
TEST(detection) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    pair("v0", "v1");
    int near = index_of("v0"), far;
    CHECK_EQ(up(near), 0);
    // Nobody can be asked before both ends are up.
    CHECK_EQ(address(near, "2001:db8:5::1", 0, ~0u, ~0u, 0), 0);
    CHECK_EQ(address(near, "2001:db8:5::2", IFA_F_NODAD, ~0u, ~0u, 0), 0);
    CHECK_EQ(flags_of(near, "2001:db8:5::1"), IFA_F_PERMANENT | IFA_F_TENTATIVE);
    CHECK_ERR(try_bind("2001:db8:5::1"), EADDRNOTAVAIL);
    enter(other);
    far = index_of("v1");
    CHECK_EQ(address(far, "2001:db8:5::9", IFA_F_NODAD, ~0u, ~0u, 0), 0);
    CHECK_EQ(up(far), 0);
    enter(own);
    CHECK_EQ(flags_of(near, "2001:db8:5::1"), IFA_F_PERMANENT | IFA_F_TENTATIVE);
    SECONDS(10) if (flags_of(near, "2001:db8:5::1") == IFA_F_PERMANENT) break;
    CHECK_EQ(flags_of(near, "2001:db8:5::1"), IFA_F_PERMANENT);
    OK(try_bind("2001:db8:5::1"));
    CHECK_EQ(flags_of(near, "2001:db8:5::2"), IFA_F_PERMANENT | IFA_F_NODAD);
    OK(try_bind("2001:db8:5::2"));
    // The link-local address came by itself, and went the same way.
    SECONDS(10) if (flags_of(near, "fe80::*") == IFA_F_PERMANENT) break;
    CHECK_EQ(flags_of(near, "fe80::*"), IFA_F_PERMANENT);
    // What the other end has is not for this one.
    CHECK_EQ(address(near, "2001:db8:5::9", 0, ~0u, ~0u, 0), 0);
    SECONDS(10) if (flags_of(near, "2001:db8:5::9") & IFA_F_DADFAILED) break;
    CHECK_EQ(flags_of(near, "2001:db8:5::9"), IFA_F_PERMANENT | IFA_F_TENTATIVE | IFA_F_DADFAILED);
    CHECK_ERR(try_bind("2001:db8:5::9"), EADDRNOTAVAIL);
    // Packets go both ways.
    int a = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), b = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, "2001:db8:5::1", &at.sin6_addr);
    OK(bind(a, (void *)&at, sizeof at));
    at.sin6_port = htons(port_of(a));
    enter(other);
    b = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    CHECK_EQ(sendto(b, "data", 4, 0, (void *)&at, sizeof at), 4);
    CHECK_EQ(poll_for(a, POLLIN), POLLIN);
    enter(own);
}
static void generation(int index, unsigned char mode, int result) {
    struct request r = start(RTM_NEWLINK, 0, index);
    struct rtattr *list = add(&r, IFLA_AF_SPEC, 0, 0), *family = add(&r, AF_INET6, 0, 0);
    add(&r, IFLA_INET6_ADDR_GEN_MODE, &mode, 1);
    end(&r, family);
    end(&r, list);
    CHECK_EQ(done(&r), result);
}
static int generated(int index) {
    char answer[16384];
    struct request r = start(RTM_GETLINK, 0, index);
    CHECK_EQ(ask(&r, answer, sizeof answer), 0);
    struct rtattr *a = within(within(attribute(answer, IFLA_AF_SPEC), AF_INET6), IFLA_INET6_ADDR_GEN_MODE);
    return *(unsigned char *)RTA_DATA(a);
}
TEST(link_local_addresses) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    pair("v0", "v1");
    pair("v2", "v3");
    int v0 = index_of("v0"), v2 = index_of("v2");
    CHECK_EQ(generated(v0), 0);
    generation(v2, 1, 0);
    generation(v2, 77, EINVAL);
    CHECK_EQ(generated(v2), 1);
    CHECK_EQ(up(v0), 0);
    CHECK_EQ(up(v2), 0);
    enter(other);
    CHECK_EQ(up(index_of("v1")), 0);
    CHECK_EQ(up(index_of("v3")), 0);
    enter(own);
    SECONDS(5) if (flags_of(v0, "fe80::*") == IFA_F_PERMANENT) break;
    CHECK_EQ(flags_of(v0, "fe80::*"), IFA_F_PERMANENT);
    CHECK_EQ(flags_of(v2, "fe80::*"), -1);
    CHECK_EQ(removed(v2), 0);
}
// Tells the other end of a router: its lifetime, and a prefix with these flags and times.
static void advertise(int lifetime, unsigned char flags, unsigned valid, unsigned preferred) {
    unsigned char m[16 + 32 + 8] = {ND_ROUTER_ADVERT, 0, 0, 0, 64, 0, lifetime >> 8, lifetime};
    unsigned char *p = m + 16, *mtu = m + 48;
    p[0] = ND_OPT_PREFIX_INFORMATION, p[1] = 4, p[2] = 64, p[3] = flags;
    valid = htonl(valid), preferred = htonl(preferred);
    memcpy(p + 4, &valid, 4);
    memcpy(p + 8, &preferred, 4);
    inet_pton(AF_INET6, "2001:db8:77::", p + 16);
    mtu[0] = ND_OPT_MTU, mtu[1] = 1, mtu[6] = 1400 >> 8, mtu[7] = 1400 & 255;
    enter(other);
    int s = SYS(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)), index = index_of("v1");
    OK(set_int(s, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 255));
    OK(set_int(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, index));
    struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_scope_id = index};
    inet_pton(AF_INET6, "ff02::1", &all.sin6_addr);
    CHECK_EQ(sendto(s, m, sizeof m, 0, (void *)&all, sizeof all), sizeof m);
    close(s);
    enter(own);
}
static int way_to(const char *ip, int *mtu) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    inet_pton(AF_INET6, ip, &to.sin6_addr);
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), r = connect(s, (void *)&to, sizeof to), e = errno;
    if (!r) *mtu = get_int(s, IPPROTO_IPV6, IPV6_MTU);
    close(s);
    return r ? e : 0;
}
TEST(routers) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int near = near_end(), mtu = 0;
    enter(other);
    SECONDS(10) if (flags_of(index_of("v1"), "fe80::*") == IFA_F_PERMANENT) break;
    enter(own);
    SECONDS(10) if (flags_of(near, "fe80::*") == IFA_F_PERMANENT) break;
    CHECK_EQ(way_to("2001:db8:9::9", &mtu), ENETUNREACH);
    advertise(1000, 0xc0, 5000, 400);
    SECONDS(10) if (flags_of(near, "2001:db8:77::*") == IFA_F_MANAGETEMPADDR) break;
    CHECK_EQ(flags_of(near, "2001:db8:77::*"), IFA_F_MANAGETEMPADDR);
    CHECK(life.ifa_valid > 4900 && life.ifa_valid <= 5000);
    CHECK(life.ifa_prefered > 300 && life.ifa_prefered <= 400);
    CHECK_EQ(way_to("2001:db8:9::9", &mtu), 0);
    CHECK_EQ(mtu, 1400);
    CHECK_EQ(way_to("2001:db8:77::9", &mtu), 0);
    CHECK_EQ(mtu, 1400);
    // A remaining lifetime below two hours is not shortened, that of preference is; the router is no way out any more.
    advertise(0, 0xc0, 10, 0);
    SECONDS(10) if (flags_of(near, "2001:db8:77::*") & IFA_F_DEPRECATED) break;
    CHECK_EQ(flags_of(near, "2001:db8:77::*"), IFA_F_MANAGETEMPADDR | IFA_F_DEPRECATED);
    CHECK(life.ifa_valid > 4900);
    CHECK_EQ(way_to("2001:db8:9::9", &mtu), ENETUNREACH);
}
static int bound_to(const char *ip) {
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    int six = strchr(ip, ':') != 0, s = SYS(socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0));
    inet_pton(six ? AF_INET6 : AF_INET, ip, six ? (void *)&in6.sin6_addr : (void *)&in.sin_addr);
    int r = six ? bind(s, (void *)&in6, sizeof in6) : bind(s, (void *)&in, sizeof in);
    if (r) return close(s), -errno;
    return s;
}
static int down(int index) {
    struct request r = start(RTM_NEWLINK, 0, index);
    r.link.ifi_change = IFF_UP;
    return done(&r);
}
// An IPv4 address is the host's own whatever its interface does; those of IPv6 go when it goes down.
TEST(addresses_of_what_is_down) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    CHECK_EQ(up(1), 0);
    CHECK_EQ(make("v0", "veth", 0), 0);
    int i = index_of("v0");
    CHECK_EQ(address(i, "10.9.0.1", 0, ~0u, ~0u, NLM_F_EXCL), 0);
    for (int round = 0; round < 3; round++) {
        int s = SYS(bound_to("10.9.0.1")), from = SYS(socket(AF_INET, SOCK_DGRAM, 0));
        struct sockaddr_in to;
        socklen_t l = sizeof to;
        OK(getsockname(s, (void *)&to, &l));
        CHECK_EQ(sendto(from, "x", 1, 0, (void *)&to, sizeof to), 1);
        char c[4];
        CHECK_EQ(recv(s, c, sizeof c, 0), 1);
        close(s), close(from);
        if (round == 0) {
            CHECK_EQ(up(i), 0);
            CHECK_EQ(address(i, "fd00::9", IFA_F_NODAD, ~0u, ~0u, NLM_F_EXCL), 0);
            CHECK(flags_of(i, "fd00::9") >= 0);
            CHECK(bound_to("fd00::9") >= 0);
        } else if (round == 1) {
            CHECK_EQ(down(i), 0);
            CHECK_EQ(flags_of(i, "fd00::9"), -1);
            CHECK_EQ(flags_of(i, "fe80::*"), -1);
            CHECK_EQ(bound_to("fd00::9"), -EADDRNOTAVAIL);
            CHECK(flags_of(i, "10.9.0.1") >= 0);
        }
    }
    CHECK_EQ(removed(i), 0);
    CHECK_EQ(bound_to("10.9.0.1"), -EADDRNOTAVAIL);
}
