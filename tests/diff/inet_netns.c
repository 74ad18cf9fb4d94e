// rtnetlink(7): network namespaces that lead to each other. What they call each other, interfaces that move, pairs between them.
#include "rtnetlink.h"
#include <fcntl.h>
#include <linux/net_namespace.h>
#include <linux/veth.h>
#include <sched.h>

#ifndef IFLA_TARGET_NETNSID
#define IFLA_TARGET_NETNSID IFLA_IF_NETNSID
#endif

static int own;
static int current(void) {
    return SYS(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
}
static void enter(int net) {
    OK(setns(net, CLONE_NEWNET));
}
// A namespace of the test's own, with a descriptor for it.
static void begin(void) {
    OK(unshare(CLONE_NEWNET));
    own = current();
}
// One more.
static int another(void) {
    OK(unshare(CLONE_NEWNET));
    int net = current();
    enter(own);
    return net;
}
static struct request about(int type, int flags) {
    struct request r = start(type, flags, 0);
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtgenmsg));
    return r;
}
static void word(struct request *r, int kind, int value) {
    add(r, kind, &value, 4);
}
static int give(int nsid, int kind, int value) {
    struct request r = about(RTM_NEWNSID, 0);
    word(&r, NETNSA_NSID, nsid);
    if (kind) word(&r, kind, value);
    return done(&r);
}
// What this namespace calls another; less than -1 for an error.
static int nsid(int kind, int value) {
    char answer[4096];
    struct request r = about(RTM_GETNSID, 0);
    if (kind) word(&r, kind, value);
    int error = ask(&r, answer, sizeof answer);
    if (error) return -1000 - error;
    struct nlmsghdr *h = (void *)answer;
    CHECK_EQ(h->nlmsg_type, RTM_NEWNSID);
    struct rtattr *a = find((char *)NLMSG_DATA(h) + 4, h->nlmsg_len - 20, NETNSA_NSID);
    return a ? *(int *)RTA_DATA(a) : 4711;
}
static int pair(const char *name, const char *peer, int peer_kind, int peer_value) {
    struct request r = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    struct rtattr *info = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, "veth", 5);
    struct rtattr *data = add(&r, IFLA_INFO_DATA, 0, 0);
    struct ifinfomsg other = {0};
    struct rtattr *end_of_pair = add(&r, VETH_INFO_PEER, &other, sizeof other);
    add(&r, IFLA_IFNAME, peer, strlen(peer) + 1);
    if (peer_kind) word(&r, peer_kind, peer_value);
    end(&r, end_of_pair);
    end(&r, data);
    end(&r, info);
    return done(&r);
}
static int move_to(int index, int kind, int value, const char *name) {
    struct request r = start(RTM_NEWLINK, 0, index);
    word(&r, kind, value);
    if (name) add(&r, IFLA_IFNAME, name, strlen(name) + 1);
    return done(&r);
}
static int up(int index) {
    struct request r = start(RTM_NEWLINK, 0, index);
    r.link.ifi_flags = r.link.ifi_change = IFF_UP;
    return done(&r);
}
static void address(int index, const char *ip) {
    struct request r = start(RTM_NEWADDR, NLM_F_CREATE, 0);
    struct ifaddrmsg *a = (void *)&r.link;
    *a = (struct ifaddrmsg){.ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = index};
    r.h.nlmsg_len = NLMSG_LENGTH(sizeof *a);
    struct in_addr in;
    inet_pton(AF_INET, ip, &in);
    add(&r, IFA_LOCAL, &in, 4);
    CHECK_EQ(done(&r), 0);
}
// A number that an interface is described with, -4711 for none.
static int number_of(int index, int kind) {
    char answer[16384];
    struct request r = start(RTM_GETLINK, 0, index);
    int error = ask(&r, answer, sizeof answer);
    if (error) return -1000 - error;
    struct rtattr *a = attribute(answer, kind);
    if (!a) return -4711;
    return RTA_PAYLOAD(a) == 1 ? *(unsigned char *)RTA_DATA(a) : *(int *)RTA_DATA(a);
}
// Waits for an interface to go with a namespace that has ended, which takes a moment.
static int gone(int index) {
    for (int i = 0; i < 1000; i++, usleep(10000))
        if (number_of(index, IFLA_MTU) == -1000 - ENODEV) return 1;
    return 0;
}
static int followed(int group) {
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct sockaddr_nl at = {.nl_family = AF_NETLINK};
    OK(bind(s, (void *)&at, sizeof at));
    OK(setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
    return s;
}
// The next message of a kind, with a number in it.
static int told(int s, int type, int kind, int fixed) {
    char answer[8192];
    for (;;) {
        struct pollfd p = {.fd = s, .events = POLLIN};
        if (poll(&p, 1, 10000) < 1) return -4712;
        SYS(recv(s, answer, sizeof answer, 0));
        struct nlmsghdr *h = (void *)answer;
        if (h->nlmsg_type != type) continue;
        struct rtattr *a = find((char *)NLMSG_DATA(h) + fixed, h->nlmsg_len - 16 - fixed, kind);
        return a ? *(int *)RTA_DATA(a) : -4711;
    }
}

TEST(numbers_of_namespaces) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int a = another(), b = another(), s = followed(RTNLGRP_NSID);
    CHECK_EQ(nsid(NETNSA_FD, a), -1);
    CHECK_EQ(give(5, NETNSA_FD, a), 0);
    CHECK_EQ(told(s, RTM_NEWNSID, NETNSA_NSID, 4), 5);
    CHECK_EQ(nsid(NETNSA_FD, a), 5);
    CHECK_EQ(nsid(NETNSA_NSID, 5), 5);
    CHECK_EQ(nsid(NETNSA_NSID, 6), -1000 - ENOENT);
    CHECK_EQ(give(6, NETNSA_FD, a), EEXIST);
    CHECK_EQ(give(5, NETNSA_FD, b), EEXIST);
    CHECK_EQ(give(-1, NETNSA_FD, b), 0);
    CHECK_EQ(told(s, RTM_NEWNSID, NETNSA_NSID, 4), 0);
    CHECK_EQ(nsid(NETNSA_FD, b), 0);
    // Each has numbers of its own.
    enter(a);
    CHECK_EQ(nsid(NETNSA_FD, b), -1);
    CHECK_EQ(nsid(NETNSA_FD, own), -1);
    enter(own);
    CHECK_EQ(nsid(NETNSA_PID, getpid()), -1);
    CHECK_EQ(nsid(NETNSA_PID, 0), -1000 - ESRCH);
    CHECK_EQ(nsid(NETNSA_FD, 999), -1000 - EBADF);
    CHECK_EQ(nsid(NETNSA_FD, s), -1000 - EINVAL);
    int uts = SYS(open("/proc/self/ns/uts", O_RDONLY));
    CHECK_EQ(nsid(NETNSA_FD, uts), -1000 - EINVAL);
    CHECK_EQ(nsid(0, 0), -1000 - EINVAL);
    CHECK_EQ(give(9, 0, 0), EINVAL);
    CHECK_EQ(give(9, NETNSA_FD, 999), EBADF);
    // A number ends with its namespace.
    close(a);
    CHECK_EQ(told(s, RTM_DELNSID, NETNSA_NSID, 4), 5);
    CHECK_EQ(nsid(NETNSA_NSID, 5), -1000 - ENOENT);
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        CHECK_EQ(give(9, NETNSA_FD, own), EPERM);
        CHECK_EQ(nsid(NETNSA_NSID, 0), 0);
    });
}
TEST(pairs_between_namespaces) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int net = another();
    CHECK_EQ(pair("near", "far", IFLA_NET_NS_FD, net), 0);
    int near = index_of("near");
    CHECK_EQ(index_of("far"), -1);
    CHECK_EQ(nsid(NETNSA_FD, net), 0);
    CHECK_EQ(number_of(near, IFLA_LINK_NETNSID), 0);
    enter(net);
    int far = index_of("far");
    CHECK_EQ(number_of(near, IFLA_LINK), far);
    CHECK_EQ(number_of(far, IFLA_LINK_NETNSID), 0);
    CHECK_EQ(nsid(NETNSA_FD, own), 0);
    address(far, "10.9.0.2");
    CHECK_EQ(up(far), 0);
    CHECK_EQ(number_of(far, IFLA_CARRIER), 0);
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0));
    union addr at = {.in = {.sin_family = AF_INET, .sin_port = htons(4000)}};
    SYS(bind(l, &at.any, sizeof at.in));
    SYS(listen(l, 1));
    enter(own);
    // The carrier of one end follows the other, and members of the group hear of it.
    int s = followed(RTNLGRP_LINK);
    address(near, "10.9.0.1");
    CHECK_EQ(up(near), 0);
    CHECK_EQ(number_of(near, IFLA_OPERSTATE), 6);
    enter(net);
    CHECK_EQ(number_of(far, IFLA_CARRIER), 1);
    enter(own);
    inet_pton(AF_INET, "10.9.0.2", &at.in.sin_addr);
    int c = SYS(socket(AF_INET, SOCK_STREAM, 0));
    SYS(connect(c, &at.any, sizeof at.in));
    int d = SYS(accept(l, 0, 0));
    // More than a segment, and both directions.
    static char out[300000], in[300000];
    for (size_t i = 0; i < sizeof out; i++) out[i] = (char)(i * 7 + i / 256);
    pid_t sender = fork();
    if (sender == 0) {
        for (size_t n = 0; n < sizeof out;) n += SYS(send(c, out + n, sizeof out - n, 0));
        char last;
        _exit(recv(c, &last, 1, 0) != 1);
    }
    for (size_t n = 0; n < sizeof in;) n += SYS(recv(d, in + n, sizeof in - n, 0));
    CHECK_EQ(send(d, "x", 1, 0), 1);
    CHECK_EQ(t_status(sender), 0);
    CHECK(!memcmp(in, out, sizeof in));
    close(s);
    // The namespace lives as long as its socket does; its end takes this end along.
    close(net);
    close(l);
    CHECK_EQ(number_of(near, IFLA_LINK_NETNSID), 0);
    close(d);
    close(c);
    CHECK(gone(near));
}
TEST(interfaces_move) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int net = another(), there, s = followed(RTNLGRP_LINK);
    CHECK_EQ(make("d0", "veth", 0), 0);
    int d0 = index_of("d0");
    address(d0, "10.9.1.1");
    CHECK_EQ(up(d0), 0);
    struct request r = start(RTM_NEWLINK, 0, d0);
    word(&r, IFLA_MTU, 1234);
    add(&r, IFLA_IFALIAS, "kept", 4);
    CHECK_EQ(done(&r), 0);
    CHECK_EQ(move_to(d0, IFLA_NET_NS_FD, net, 0), 0);
    CHECK_EQ(told(s, RTM_DELLINK, IFLA_NEW_NETNSID, 16), 0);
    CHECK_EQ(index_of("d0"), -1);
    enter(net);
    CHECK_EQ(there = index_of("d0"), d0);
    CHECK_EQ(number_of(there, IFLA_MTU), 1234);
    CHECK_EQ(number_of(there, IFLA_OPERSTATE), 2);
    CHECK_EQ(number_of(there, IFLA_IFALIAS), *(int *)"kept");
    struct ifreq q = {.ifr_name = "d0"};
    int u = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    CHECK_ERR(ioctl(u, SIOCGIFADDR, &q), EADDRNOTAVAIL);
    OK(ioctl(u, SIOCGIFFLAGS, &q));
    CHECK_EQ(q.ifr_flags & IFF_UP, 0);
    close(u);
    enter(own);
    // A name that is taken, and a number that is.
    CHECK_EQ(make("d0", "veth", 0), 0);
    d0 = index_of("d0");
    CHECK_EQ(move_to(d0, IFLA_NET_NS_FD, net, 0), EEXIST);
    CHECK_EQ(move_to(d0, IFLA_NET_NS_FD, net, "d%d"), 0);
    enter(net);
    // The number is chosen for the move, and once more for the name.
    CHECK(index_of("d2") > 0);
    CHECK_EQ(move_to(index_of("d2"), IFLA_NET_NS_PID, getppid(), "back"), 0);
    enter(own);
    CHECK_EQ(make("d2", "veth", 0), 0);
    CHECK_EQ(move_to(index_of("d2"), IFLA_TARGET_NETNSID, 0, "named"), 0);
    enter(net);
    CHECK(index_of("named") > 0);
    enter(own);
    // What cannot move, and where nothing can go.
    CHECK_EQ(make("b0", "bridge", 0), 0);
    CHECK_EQ(move_to(index_of("b0"), IFLA_NET_NS_FD, net, 0), EINVAL);
    CHECK_EQ(move_to(1, IFLA_NET_NS_FD, net, 0), EINVAL);
    CHECK_EQ(make("d3", "veth", 0), 0);
    int d3 = index_of("d3");
    CHECK_EQ(move_to(d3, IFLA_NET_NS_FD, s, 0), EINVAL);
    CHECK_EQ(move_to(d3, IFLA_NET_NS_FD, 999, 0), EBADF);
    CHECK_EQ(move_to(d3, IFLA_NET_NS_PID, 0, 0), ESRCH);
    CHECK_EQ(move_to(d3, IFLA_TARGET_NETNSID, 77, 0), EINVAL);
    CHECK_EQ(move_to(4711, IFLA_NET_NS_FD, net, 0), ENODEV);
    CHECK_EQ(move_to(d3, IFLA_NET_NS_FD, own, "d4"), 0);
    CHECK_EQ(index_of("d4"), d3);
    // Another namespace's interfaces are listed by its number.
    char answer[16384];
    struct request look = start(RTM_GETLINK, 0, there);
    word(&look, IFLA_TARGET_NETNSID, 0);
    CHECK_EQ(ask(&look, answer, sizeof answer), 0);
    CHECK_STR(RTA_DATA(attribute(answer, IFLA_IFNAME)), "d0");
    CHECK_EQ(*(int *)RTA_DATA(attribute(answer, IFLA_TARGET_NETNSID)), 0);
    struct request bad = start(RTM_GETLINK, 0, there);
    word(&bad, IFLA_TARGET_NETNSID, 77);
    CHECK_EQ(ask(&bad, answer, sizeof answer), EINVAL);
    struct request away = start(RTM_DELLINK, 0, there);
    word(&away, IFLA_TARGET_NETNSID, 0);
    CHECK_EQ(done(&away), 0);
    enter(net);
    CHECK_EQ(index_of("d0"), -1);
}
TEST(interfaces_are_made_elsewhere) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int net = another(), other = another();
    struct request r = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    add(&r, IFLA_IFNAME, "x%d", 4);
    word(&r, IFLA_NET_NS_FD, net);
    struct rtattr *info = add(&r, IFLA_LINKINFO, 0, 0);
    add(&r, IFLA_INFO_KIND, "veth", 5);
    end(&r, info);
    CHECK_EQ(done(&r), 0);
    CHECK_EQ(done(&r), 0);
    CHECK_EQ(index_of("x0"), -1);
    enter(net);
    CHECK(index_of("x0") > 0 && index_of("x1") > 0);
    enter(own);
    // A pair with no end here.
    CHECK_EQ(pair("v0", "v1", IFLA_NET_NS_FD, other), 0);
    CHECK_EQ(move_to(index_of("v0"), IFLA_NET_NS_FD, net, 0), 0);
    enter(net);
    CHECK(number_of(index_of("v0"), IFLA_LINK_NETNSID) == nsid(NETNSA_FD, other));
    close(other);
    CHECK(gone(index_of("v0")));
}
TEST(vlans_lead_to_other_namespaces) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int net = another();
    CHECK_EQ(make("d0", "veth", 0), 0);
    CHECK_EQ(up(index_of("d0")), 0);
    struct request vlan = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    add(&vlan, IFLA_IFNAME, "tagged", 7);
    word(&vlan, IFLA_LINK, index_of("d0"));
    word(&vlan, IFLA_NET_NS_FD, net);
    struct rtattr *info = add(&vlan, IFLA_LINKINFO, 0, 0);
    add(&vlan, IFLA_INFO_KIND, "vlan", 5);
    struct rtattr *data = add(&vlan, IFLA_INFO_DATA, 0, 0);
    add(&vlan, IFLA_VLAN_ID, &(short){9}, 2);
    end(&vlan, data);
    end(&vlan, info);
    int made = done(&vlan);
    if (made == EOPNOTSUPP) SKIP("no VLANs");
    CHECK_EQ(made, 0);
    int d0 = index_of("d0");
    enter(net);
    int tagged = index_of("tagged");
    CHECK(tagged > 0);
    CHECK_EQ(number_of(tagged, IFLA_LINK), d0);
    CHECK_EQ(number_of(tagged, IFLA_LINK_NETNSID), nsid(NETNSA_FD, own));
    enter(own);
    CHECK_EQ(removed(d0), 0);
    enter(net);
    CHECK_EQ(index_of("tagged"), -1);
}
TEST(rights_over_both_namespaces) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    int net = another();
    CHECK_EQ(make("d0", "veth", 0), 0);
    CHECK_EQ(give(3, NETNSA_FD, net), 0);
    CHECK_CHILD({
        // Root of a user namespace and of a network namespace that is its own.
        SYS(unshare(CLONE_NEWUSER | CLONE_NEWNET));
        CHECK_EQ(make("mine", "veth", 0), 0);
        CHECK_EQ(move_to(index_of("mine"), IFLA_NET_NS_FD, net, 0), EPERM);
        CHECK_EQ(pair("v0", "v1", IFLA_NET_NS_FD, net), EPERM);
        CHECK_EQ(pair("v0", "v1", 0, 0), 0);
        CHECK_EQ(give(3, NETNSA_FD, net), 0);
        char answer[8192];
        struct request look = start(RTM_GETLINK, 0, 1);
        word(&look, IFLA_TARGET_NETNSID, 3);
        CHECK_EQ(ask(&look, answer, sizeof answer), EACCES);
    });
}
static int setting(const char *whose, const char *name) {
    char path[100], b[20] = "";
    snprintf(path, sizeof path, "/proc/sys/net/ipv4/%s%s%s", whose, *whose ? "/" : "", name);
    int f = open(path, O_RDONLY);
    if (f < 0) return -errno;
    if (read(f, b, sizeof b - 1) < 0) return -errno;
    close(f);
    return atoi(b);
}
static int set(const char *whose, const char *name, const char *value) {
    char path[100];
    snprintf(path, sizeof path, "/proc/sys/net/ipv4/%s%s%s", whose, *whose ? "/" : "", name);
    int f = open(path, O_WRONLY);
    if (f < 0) return -errno;
    int r = write(f, value, strlen(value)) < 0 ? -errno : 0;
    close(f);
    return r;
}
TEST(settings_of_interfaces) {
    if (geteuid() != 0) SKIP("not root");
    begin();
    CHECK_EQ(make("d0", "veth", 0), 0);
    OK(set("conf/all", "forwarding", "0"));
    CHECK_EQ(setting("", "ip_forward"), 0);
    OK(set("conf/d0", "forwarding", "1"));
    CHECK_EQ(setting("conf/d0", "forwarding"), 1);
    CHECK_EQ(setting("conf/lo", "forwarding"), 0);
    // What all have is what each has from then on.
    OK(set("", "ip_forward", "1"));
    CHECK_EQ(setting("conf/lo", "forwarding"), 1);
    OK(set("", "ip_forward", "0"));
    CHECK_EQ(setting("conf/d0", "forwarding"), 0);
    CHECK_EQ(setting("conf/default", "forwarding"), 0);
    OK(set("conf/default", "route_localnet", "1"));
    CHECK_EQ(setting("conf/d0", "route_localnet"), 0);
    CHECK_EQ(make("d1", "veth", 0), 0);
    CHECK_EQ(setting("conf/d1", "route_localnet"), 1);
    OK(set("conf/d0", "rp_filter", "2"));
    CHECK_EQ(setting("conf/d0", "rp_filter"), 2);
    CHECK_EQ(setting("conf/nobody", "rp_filter"), -ENOENT);
    CHECK_EQ(set("conf/d0", "rp_filter", "x"), -EINVAL);
    CHECK_EQ(removed(index_of("d0")), 0);
    CHECK_EQ(setting("conf/d0", "rp_filter"), -ENOENT);
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        CHECK_EQ(set("conf/lo", "rp_filter", "1"), -EACCES);
    });
    CHECK_CHILD({
        SYS(unshare(CLONE_NEWUSER | CLONE_NEWNET));
        OK(set("conf/lo", "rp_filter", "1"));
        CHECK_EQ(setting("conf/lo", "rp_filter"), 1);
    });
}
