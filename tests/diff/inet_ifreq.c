// Requests of netdevice(7) with names of aliases, and those of IPv6 sockets, as ifconfig(8) and route(8) make them.
#include "inet.h"
#include "rtnetlink.h"
#include <linux/ethtool.h>
#include <linux/ipv6_route.h>
#include <linux/veth.h>
#include <sched.h>

static struct ifreq with(const char *name, const char *address) {
    struct ifreq q = {0};
    strncpy(q.ifr_name, name, IFNAMSIZ - 1);
    struct sockaddr_in *a = (void *)&q.ifr_addr;
    a->sin_family = AF_INET;
    if (address) inet_pton(AF_INET, address, &a->sin_addr);
    return q;
}
static int set(int s, int cmd, const char *name, const char *value) {
    struct ifreq q = with(name, value);
    return ioctl(s, cmd, &q);
}
static const char *get(int s, int cmd, const char *name) {
    static char text[64];
    struct ifreq q = with(name, NULL);
    if (ioctl(s, cmd, &q) < 0) return t_errno(errno);
    struct sockaddr_in *a = (void *)&q.ifr_addr;
    return inet_ntop(AF_INET, &a->sin_addr, text, sizeof text);
}
static int flags(int s, const char *name, int up) {
    struct ifreq q = with(name, NULL);
    q.ifr_flags = up ? IFF_UP : 0;
    return ioctl(s, SIOCSIFFLAGS, &q);
}

static int pair(struct request *r) {
    struct ifinfomsg far = {0};
    struct rtattr *peer = add(r, VETH_INFO_PEER, &far, sizeof far);
    add(r, IFLA_IFNAME, "d1", 3);
    end(r, peer);
    return 0;
}

TEST(aliases) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    CHECK_EQ(make("d0", "veth", pair), 0);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    CHECK_STR(get(s, SIOCGIFADDR, "d0:1"), "EADDRNOTAVAIL");
    CHECK_STR(get(s, SIOCGIFADDR, "d2:1"), "ENODEV");
    OK(set(s, SIOCSIFADDR, "d0:1", "10.7.0.1"));
    // The interface itself has none yet.
    CHECK_STR(get(s, SIOCGIFADDR, "d0"), "EADDRNOTAVAIL");
    CHECK_STR(get(s, SIOCGIFADDR, "d0:1"), "10.7.0.1");
    CHECK_STR(get(s, SIOCGIFNETMASK, "d0:1"), "255.0.0.0");
    OK(set(s, SIOCSIFNETMASK, "d0:1", "255.255.255.0"));
    CHECK_STR(get(s, SIOCGIFNETMASK, "d0:1"), "255.255.255.0");
    OK(set(s, SIOCSIFADDR, "d0", "10.8.0.1"));
    OK(set(s, SIOCSIFADDR, "d0:second", "10.9.0.1"));
    CHECK_STR(get(s, SIOCGIFADDR, "d0"), "10.8.0.1");
    OK(set(s, SIOCSIFADDR, "d0:1", "10.7.0.2"));
    CHECK_STR(get(s, SIOCGIFADDR, "d0:1"), "10.7.0.2");
    CHECK_STR(get(s, SIOCGIFNETMASK, "d0:1"), "255.0.0.0");

    struct ifreq all[8];
    struct ifconf conf = {.ifc_len = sizeof all, .ifc_req = all};
    OK(ioctl(s, SIOCGIFCONF, &conf));
    char names[128] = "";
    for (unsigned i = 0; i < conf.ifc_len / sizeof *all; i++) {
        if (!strncmp(all[i].ifr_name, "lo", 3)) continue;
        strcat(strcat(names, all[i].ifr_name), " ");
    }
    CHECK(strstr(names, "d0 ") && strstr(names, "d0:1 ") && strstr(names, "d0:second "));

    struct ifreq q = with("d0:1", NULL);
    OK(ioctl(s, SIOCGIFINDEX, &q));
    CHECK_EQ(q.ifr_ifindex, index_of("d0"));
    // Down ends an alias and leaves the interface alone.
    OK(flags(s, "d0", 1));
    OK(flags(s, "d0:1", 1));
    OK(flags(s, "d0:1", 0));
    CHECK_ERR(flags(s, "d0:1", 0), EADDRNOTAVAIL);
    CHECK_ERR(flags(s, "d0:1", 1), EADDRNOTAVAIL);
    CHECK_STR(get(s, SIOCGIFADDR, "d0:1"), "EADDRNOTAVAIL");
    q = with("d0", NULL);
    OK(ioctl(s, SIOCGIFFLAGS, &q));
    CHECK(q.ifr_flags & IFF_UP);
    CHECK_STR(get(s, SIOCGIFADDR, "d0:second"), "10.9.0.1");
}

// A label that rtnetlink gives is the name for these requests.
TEST(labels) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    CHECK_EQ(make("d0", "veth", pair), 0);
    struct request r = start(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, 0);
    struct ifaddrmsg m = {.ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = index_of("d0")};
    memcpy(NLMSG_DATA(&r), &m, sizeof m);
    ((struct nlmsghdr *)&r)->nlmsg_len = NLMSG_LENGTH(sizeof m);
    unsigned char ip[4] = {10, 7, 0, 1};
    add(&r, IFA_LOCAL, ip, 4);
    add(&r, IFA_LABEL, "d0:web", 7);
    CHECK_EQ(done(&r), 0);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    CHECK_STR(get(s, SIOCGIFADDR, "d0:web"), "10.7.0.1");
    CHECK_STR(get(s, SIOCGIFADDR, "d0"), "EADDRNOTAVAIL");
}

struct in6_request {
    struct in6_addr address;
    unsigned len;
    int index;
};
static struct in6_request address6(const char *text, unsigned len, int index) {
    struct in6_request q = {.len = len, .index = index};
    inet_pton(AF_INET6, text, &q.address);
    return q;
}
static int is_local6(const char *text) {
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, text, &a.sin6_addr);
    int local = bind(s, (void *)&a, sizeof a) == 0;
    close(s);
    return local;
}
static struct in6_rtmsg route6(const char *dst, int len, const char *via, int metric, int index) {
    struct in6_rtmsg q = {.rtmsg_dst_len = len, .rtmsg_metric = metric, .rtmsg_ifindex = index, .rtmsg_flags = 1};
    inet_pton(AF_INET6, dst, &q.rtmsg_dst);
    if (via) inet_pton(AF_INET6, via, &q.rtmsg_gateway), q.rtmsg_flags |= 2;
    return q;
}
static int routes6(const char *begin) {
    FILE *f = fopen("/proc/net/ipv6_route", "r");
    char line[256];
    int n = 0;
    while (f && fgets(line, sizeof line, f)) n += !strncmp(line, begin, strlen(begin));
    if (f) fclose(f);
    return n;
}

TEST(addresses_and_routes_of_ipv6) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    CHECK_EQ(make("d0", "veth", pair), 0);
    int d0 = index_of("d0"), v4 = SYS(socket(AF_INET, SOCK_DGRAM, 0)), s = SYS(socket(AF_INET6, SOCK_DGRAM, 0));
    OK(flags(v4, "d0", 1));
    OK(flags(v4, "d1", 1));
    struct in6_request a = address6("fd00::5", 64, d0), none = address6("fd00::5", 64, 99), wide = address6("::", 129, d0);
    CHECK_ERR(ioctl(s, SIOCSIFADDR, 0), EFAULT);
    CHECK_ERR(ioctl(s, SIOCSIFADDR, &none), ENODEV);
    CHECK_ERR(ioctl(s, SIOCSIFADDR, &wide), EINVAL);
    CHECK_ERR(ioctl(s, SIOCDIFADDR, &a), EADDRNOTAVAIL);
    OK(ioctl(s, SIOCSIFADDR, &a));
    CHECK_ERR(ioctl(s, SIOCSIFADDR, &a), EEXIST);
    for (int i = 0; i < 400 && !is_local6("fd00::5"); i++) usleep(10000);
    CHECK(is_local6("fd00::5"));

    struct in6_request longer = address6("fd00::5", 96, d0);
    CHECK_ERR(ioctl(s, SIOCSIFADDR, &longer), EEXIST);
    static const char *const bad[] = {"::", "ff02::1", "ff05::9", "::1"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct in6_request q = address6(bad[i], 64, d0);
        CHECK_ERR(ioctl(s, SIOCSIFADDR, &q), EADDRNOTAVAIL);
    }

    struct in6_rtmsg net = route6("fd01::", 64, NULL, 1, d0), other = route6("fd02::", 64, "fd00::1", 0, 0);
    CHECK_ERR(ioctl(s, SIOCDELRT, &net), ESRCH);
    OK(ioctl(s, SIOCADDRT, &net));
    CHECK_ERR(ioctl(s, SIOCADDRT, &net), EEXIST);
    OK(ioctl(s, SIOCADDRT, &other));
    CHECK_EQ(routes6("fd010000000000000000000000000000 40"), 1);
    CHECK_EQ(routes6("fd020000000000000000000000000000 40"), 1);
    OK(ioctl(s, SIOCDELRT, &other));
    OK(ioctl(s, SIOCDELRT, &net));
    CHECK_EQ(routes6("fd010000000000000000000000000000 40") + routes6("fd020000000000000000000000000000 40"), 0);
    struct in6_rtmsg wrong = route6("fd01::", 129, NULL, 1, d0), nowhere = route6("fd01::", 64, NULL, 1, 99);
    CHECK_ERR(ioctl(s, SIOCADDRT, &wrong), EINVAL);
    CHECK_ERR(ioctl(s, SIOCADDRT, &nowhere), ENODEV);

    OK(ioctl(s, SIOCDIFADDR, &a));
    CHECK(!is_local6("fd00::5"));
    CHECK_CHILD(SYS(setresuid(1000, 1000, 1000)); CHECK_ERR(ioctl(s, SIOCSIFADDR, &a), EPERM); CHECK_ERR(ioctl(s, SIOCADDRT, &net), EPERM));
}

// An address that means something on one link only is connected to with that link.
TEST(connections_to_one_link) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    int v4 = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(flags(v4, "lo", 1));
    static const struct {
        const char *to;
        int udp, tcp;
    } cases[] = {{"fe80::5", EINVAL, EINVAL}, {"ff02::1", EINVAL, ENETUNREACH}, {"ff01::1", EINVAL, ENETUNREACH},
                 {"ff05::1", ENETUNREACH, ENETUNREACH}, {"fd00::5", ENETUNREACH, ENETUNREACH}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
        inet_pton(AF_INET6, cases[i].to, &a.sin6_addr);
        int udp = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), tcp = SYS(socket(AF_INET6, SOCK_STREAM, 0));
        CHECK_ERR(connect(udp, (void *)&a, sizeof a), cases[i].udp);
        CHECK_ERR(connect(tcp, (void *)&a, sizeof a), cases[i].tcp);
        close(udp);
        close(tcp);
    }
}
// ETHTOOL_GET_TS_INFO: which timestamps an interface has.
TEST(timestamps_of_interfaces) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    CHECK_EQ(make("d0", "veth", pair), 0);
    CHECK_EQ(make("b0", "bridge", 0), 0);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    const char *names[] = {"lo", "d0", "b0"};
    for (int i = 0; i < 3; i++) {
        struct ethtool_ts_info info = {.cmd = ETHTOOL_GET_TS_INFO, .phc_index = 7}, wanted = info;
        wanted.phc_index = -1;
        struct ifreq q = with(names[i], 0);
        q.ifr_data = (void *)&info;
        OK(ioctl(s, SIOCETHTOOL, &q));
        wanted.so_timestamping = i == 2 ? 0x18 : 0x1a;
        CHECK_MEM(&info, &wanted, sizeof info);
    }
    struct ethtool_ts_info info = {.cmd = ETHTOOL_GET_TS_INFO};
    struct ifreq q = with("none", 0);
    q.ifr_data = (void *)&info;
    CHECK_ERR(ioctl(s, SIOCETHTOOL, &q), ENODEV);
}
