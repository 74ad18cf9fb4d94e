// rtnetlink(7): further names of interfaces, and settings of bridges.
#include "rtnetlink.h"
#include <fcntl.h>
#include <linux/if_addr.h>
#include <sched.h>

static int name(int type, int index, const char *name) {
    struct request r = start(type, 0, index);
    struct rtattr *list = add(&r, NLA_F_NESTED | IFLA_PROP_LIST, 0, 0);
    add(&r, IFLA_ALT_IFNAME, name, strlen(name) + 1);
    end(&r, list);
    return done(&r);
}

TEST(further_names) {
    if (geteuid() != 0) SKIP("not root");
    char answer[8192], longest[129];
    memset(longest, 'n', 128);
    longest[128] = 0;
    CHECK_EQ(name(RTM_NEWLINKPROP, 1, "loopback"), 0);
    CHECK_EQ(name(RTM_NEWLINKPROP, 1, "loopback"), EEXIST);
    CHECK_EQ(name(RTM_NEWLINKPROP, 1, "lo"), EEXIST);
    CHECK_EQ(name(RTM_NEWLINKPROP, 1, longest), ERANGE);
    longest[127] = 0;
    CHECK_EQ(name(RTM_NEWLINKPROP, 1, longest), 0);
    CHECK_EQ(name(RTM_NEWLINKPROP, 4711, "x"), ENODEV);
    CHECK_EQ(index_of("loopback"), 1);
    struct request r = start(RTM_GETLINK, 0, 0);
    add(&r, IFLA_ALT_IFNAME, "loopback", 9);
    CHECK_EQ(ask(&r, answer, sizeof answer), 0);
    CHECK_STR(RTA_DATA(attribute(answer, IFLA_IFNAME)), "lo");
    struct rtattr *list = attribute(answer, IFLA_PROP_LIST);
    MUST(list);
    struct rtattr *first = within(list, IFLA_ALT_IFNAME);
    CHECK_STR(RTA_DATA(first), "loopback");
    CHECK_EQ(RTA_PAYLOAD(list), RTA_SPACE(9) + RTA_SPACE(128));
    // They are taken for new interfaces, and for names.
    CHECK_EQ(make("loopback", "veth", 0), EEXIST);
    CHECK_EQ(make("d0", "veth", 0), 0);
    int d = index_of("d0");
    struct request named = start(RTM_NEWLINK, 0, d);
    add(&named, IFLA_IFNAME, "loopback", 9);
    CHECK_EQ(done(&named), EEXIST);
    CHECK_EQ(name(RTM_DELLINKPROP, d, "loopback"), EINVAL);
    CHECK_EQ(name(RTM_DELLINKPROP, 1, "lo"), EINVAL);
    CHECK_EQ(name(RTM_DELLINKPROP, 1, "nobody"), ENOENT);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "loopback", 9));
    char device[16];
    socklen_t n = sizeof device;
    OK(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, device, &n));
    CHECK_STR(device, "lo");
    CHECK_EQ(name(RTM_DELLINKPROP, 1, "loopback"), 0);
    CHECK_EQ(index_of("loopback"), -1);
    CHECK_EQ(name(RTM_DELLINKPROP, 1, longest), 0);
    struct request again = start(RTM_GETLINK, 0, 1);
    CHECK_EQ(ask(&again, answer, sizeof answer), 0);
    CHECK(!attribute(answer, IFLA_PROP_LIST));
    CHECK_EQ(removed(d), 0);
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        CHECK_EQ(name(RTM_NEWLINKPROP, 1, "mine"), EPERM);
    });
}
static void number(struct request *r, int kind, unsigned value) {
    add(r, kind, &value, 4);
}
static int usual(struct request *r) {
    number(r, IFLA_BR_AGEING_TIME, 12300);
    number(r, IFLA_BR_FORWARD_DELAY, 400);
    number(r, IFLA_BR_STP_STATE, 0);
    add(r, IFLA_BR_MCAST_SNOOPING, "\0", 1);
    return 0;
}
static unsigned setting(int index, int kind) {
    char answer[16384];
    struct request r = start(RTM_GETLINK, 0, index);
    CHECK_EQ(ask(&r, answer, sizeof answer), 0);
    struct rtattr *a = within(within(attribute(answer, IFLA_LINKINFO), IFLA_INFO_DATA), kind);
    if (!a) return 4711;
    return RTA_PAYLOAD(a) == 4 ? *(unsigned *)RTA_DATA(a) : *(unsigned char *)RTA_DATA(a);
}
TEST(settings_of_bridges) {
    if (geteuid() != 0) SKIP("not root");
    CHECK_EQ(make("b0", "bridge", 0), 0);
    int plain = index_of("b0");
    CHECK_EQ(setting(plain, IFLA_BR_AGEING_TIME), 30000);
    CHECK_EQ(setting(plain, IFLA_BR_FORWARD_DELAY), 1500);
    CHECK_EQ(setting(plain, IFLA_BR_HELLO_TIME), 200);
    CHECK_EQ(setting(plain, IFLA_BR_MAX_AGE), 2000);
    CHECK_EQ(setting(plain, IFLA_BR_STP_STATE), 0);
    CHECK_EQ(make("b1", "bridge", usual), 0);
    int set = index_of("b1");
    CHECK_EQ(setting(set, IFLA_BR_AGEING_TIME), 12300);
    CHECK_EQ(setting(set, IFLA_BR_FORWARD_DELAY), 400);
    CHECK_EQ(setting(set, IFLA_BR_MCAST_SNOOPING), 0);
    struct request r = start(RTM_NEWLINK, 0, set);
    struct rtattr *info = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, "bridge", 7);
    struct rtattr *data = add(&r, IFLA_INFO_DATA, 0, 0);
    number(&r, IFLA_BR_AGEING_TIME, 500);
    end(&r, data);
    end(&r, info);
    CHECK_EQ(done(&r), 0);
    CHECK_EQ(setting(set, IFLA_BR_AGEING_TIME), 500);
    CHECK_EQ(setting(set, IFLA_BR_FORWARD_DELAY), 400);
    CHECK_EQ(removed(plain), 0);
    CHECK_EQ(removed(set), 0);
}
static int set6(const char *whose, const char *value) {
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", whose);
    int fd = SYS(open(path, O_WRONLY)), n = write(fd, value, strlen(value)), error = errno;
    close(fd);
    return n < 0 ? error : 0;
}
static int get6(const char *whose) {
    char path[128], text[32] = {0};
    snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", whose);
    int fd = SYS(open(path, O_RDONLY));
    SYS(read(fd, text, sizeof text - 1));
    close(fd);
    return atoi(text);
}
static int binds6(const char *ip) {
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, ip, &a.sin6_addr);
    int s = SYS(socket(AF_INET6, SOCK_DGRAM, 0)), r = bind(s, (void *)&a, sizeof a) ? errno : 0;
    close(s);
    return r;
}
static int address6(int index, const char *ip) {
    struct request r = start(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, 0);
    struct ifaddrmsg *m = (void *)&r.link;
    *m = (struct ifaddrmsg){.ifa_family = AF_INET6, .ifa_prefixlen = 64, .ifa_index = index, .ifa_flags = IFA_F_NODAD};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *m);
    char bytes[16];
    inet_pton(AF_INET6, ip, bytes);
    add(&r, IFA_LOCAL, bytes, 16);
    return done(&r);
}
static int up(int index) {
    struct request r = start(RTM_NEWLINK, 0, index);
    r.link.ifi_flags = r.link.ifi_change = IFF_UP;
    return done(&r);
}
TEST(without_ipv6) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    CHECK_EQ(up(1), 0);
    CHECK_EQ(make("b0", "bridge", 0), 0);
    int b0 = index_of("b0");
    CHECK_EQ(up(b0), 0);
    CHECK_EQ(address6(b0, "2001:db8::1"), 0);
    CHECK_EQ(binds6("2001:db8::1"), 0);
    CHECK_EQ(set6("b0", "1"), 0);
    CHECK_EQ(binds6("2001:db8::1"), EADDRNOTAVAIL);
    CHECK_EQ(binds6("::1"), 0);
    CHECK_EQ(address6(b0, "2001:db8::2"), EACCES);
    CHECK_EQ(set6("b0", "0"), 0);
    CHECK_EQ(binds6("2001:db8::1"), EADDRNOTAVAIL);
    CHECK_EQ(address6(b0, "2001:db8::1"), 0);
    CHECK_EQ(binds6("2001:db8::1"), 0);
    // All: those that there are, and new ones.
    CHECK_EQ(set6("all", "1"), 0);
    CHECK_EQ(get6("default"), 1);
    CHECK_EQ(get6("lo"), 1);
    CHECK_EQ(get6("b0"), 1);
    CHECK_EQ(binds6("::1"), EADDRNOTAVAIL);
    CHECK_EQ(make("b1", "bridge", 0), 0);
    CHECK_EQ(get6("b1"), 1);
    CHECK_EQ(address6(index_of("b1"), "2001:db8::3"), EACCES);
    CHECK_EQ(set6("lo", "0"), 0);
    CHECK_EQ(binds6("::1"), 0);
    CHECK_EQ(get6("all"), 1);
    CHECK_EQ(set6("default", "0"), 0);
    CHECK_EQ(get6("b1"), 1);
    CHECK_EQ(set6("b1", "x"), EINVAL);
    CHECK_EQ(set6("all", "0"), 0);
    CHECK_EQ(get6("b1"), 0);
    CHECK_EQ(address6(index_of("b1"), "2001:db8::3"), 0);
}
