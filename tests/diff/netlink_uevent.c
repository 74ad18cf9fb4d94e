// NETLINK_KOBJECT_UEVENT: what the kernel tells of interfaces, and what programs tell each other, as udev does.
#include "rtnetlink.h"
#include <sched.h>

#ifndef NETLINK_KOBJECT_UEVENT
#define NETLINK_KOBJECT_UEVENT 15
#endif

static int events(unsigned groups) {
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT));
    struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_groups = groups};
    OK(bind(s, (void *)&nl, sizeof nl));
    int on = 1;
    OK(setsockopt(s, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    return s;
}
static unsigned address(int s) {
    struct sockaddr_nl nl;
    socklen_t l = sizeof nl;
    OK(getsockname(s, (void *)&nl, &l));
    return nl.nl_pid;
}
static int to(int s, unsigned port, unsigned groups, const void *data, int len) {
    struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_pid = port, .nl_groups = groups};
    return sendto(s, data, len, 0, (void *)&nl, sizeof nl);
}
struct got {
    int n;
    char text[4096];
    struct sockaddr_nl from;
    struct ucred cred;
};
static struct got get(int s) {
    struct got g = {.cred.pid = -1};
    char control[256];
    struct iovec v = {g.text, sizeof g.text - 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
                       .msg_name = &g.from, .msg_namelen = sizeof g.from};
    g.n = recvmsg(s, &m, 0);
    if (g.n < 0) return g.n = -errno, g;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) memcpy(&g.cred, CMSG_DATA(c), sizeof g.cred);
    return g;
}
// The value of a property.
static const char *value(struct got *g, const char *name) {
    for (char *p = g->text; p < g->text + g->n; p += strlen(p) + 1)
        if (!strncmp(p, name, strlen(name)) && p[strlen(name)] == '=') return p + strlen(name) + 1;
    return "";
}
// The next event of an interface, not of its queues.
static struct got next(int s) {
    struct got g;
    do g = get(s);
    while (g.n > 0 && strcmp(value(&g, "SUBSYSTEM"), "net"));
    return g;
}

TEST(interfaces) {
    OK(unshare(CLONE_NEWNET));
    int s = events(1);
    CHECK_EQ(make("up0", "veth", 0), 0);
    for (int i = 0; i < 2; i++) {
        struct got g = next(s);
        CHECK(g.n > 0);
        const char *name = value(&g, "INTERFACE");
        char text[100];
        snprintf(text, sizeof text, "add@/devices/virtual/net/%s", name);
        CHECK_STR(g.text, text);
        CHECK_STR(value(&g, "DEVPATH"), text + 4);
        CHECK_STR(value(&g, "ACTION"), "add");
        CHECK_EQ(atoi(value(&g, "IFINDEX")), index_of(name));
        CHECK(atoll(value(&g, "SEQNUM")) > 0);
        CHECK_EQ(g.text[g.n - 1], 0);
        CHECK_EQ(g.from.nl_pid, 0);
        CHECK_EQ(g.from.nl_groups, 1);
        CHECK_EQ(g.cred.pid, 0);
        CHECK_EQ(g.cred.uid, 0);
    }
    // Neither its state nor its size are told; the name is.
    struct request r = start(RTM_SETLINK, 0, index_of("up0"));
    int mtu = 1400;
    add(&r, IFLA_MTU, &mtu, 4);
    CHECK_EQ(done(&r), 0);
    CHECK_EQ(next(s).n, -EAGAIN);
    r = start(RTM_SETLINK, 0, index_of("up0"));
    add(&r, IFLA_IFNAME, "other", 6);
    CHECK_EQ(done(&r), 0);
    struct got g = next(s);
    CHECK_STR(g.text, "move@/devices/virtual/net/other");
    CHECK_STR(value(&g, "DEVPATH_OLD"), "/devices/virtual/net/up0");
    CHECK_EQ(removed(index_of("other")), 0);
    for (int i = 0; i < 2; i++) {
        g = next(s);
        CHECK_STR(value(&g, "ACTION"), "remove");
    }
    CHECK_EQ(make("bridge", "bridge", 0), 0);
    g = next(s);
    CHECK_STR(value(&g, "DEVTYPE"), "bridge");
    CHECK_EQ(next(s).n, -EAGAIN);
}
TEST(between_namespaces) {
    OK(unshare(CLONE_NEWNET));
    int old = events(1), home = SYS(open("/proc/thread-self/ns/net", O_RDONLY));
    CHECK_EQ(make("e0", "bridge", 0), 0);
    struct got g = next(old);
    CHECK_STR(g.text, "add@/devices/virtual/net/e0");
    OK(unshare(CLONE_NEWNET));
    int new = events(1), there = SYS(open("/proc/thread-self/ns/net", O_RDONLY));
    OK(setns(home, CLONE_NEWNET));
    CHECK_EQ(make("v0", "veth", 0), 0);
    next(old), next(old);
    struct request r = start(RTM_NEWLINK, 0, index_of("v0"));
    add(&r, IFLA_NET_NS_FD, &there, 4);
    CHECK_EQ(done(&r), 0);
    g = next(old);
    CHECK_STR(g.text, "remove@/devices/virtual/net/v0");
    g = next(new);
    CHECK_STR(g.text, "add@/devices/virtual/net/v0");
    CHECK_EQ(next(old).n, -EAGAIN);
}
TEST(programs) {
    OK(unshare(CLONE_NEWNET));
    int a = events(2), b = events(2), c = events(4), sender = events(0);
    CHECK_EQ(to(sender, 0, 2, "text", 4), 4);
    for (int i = 0; i < 2; i++) {
        struct got g = get(i ? b : a);
        CHECK_EQ(g.n, 4);
        CHECK_EQ(g.from.nl_pid, address(sender));
        CHECK_EQ(g.from.nl_groups, 2);
        CHECK_EQ(g.cred.pid, getpid());
    }
    CHECK_EQ(get(c).n, -EAGAIN);
    // A member does not hear itself; of several groups the first counts; a port and a group are both told.
    CHECK_EQ(to(a, 0, 6, "xy", 2), 2);
    CHECK_EQ(get(a).n, -EAGAIN);
    CHECK_EQ(get(b).n, 2);
    CHECK_EQ(get(c).n, -EAGAIN);
    CHECK_EQ(to(sender, address(c), 2, "both", 4), 4);
    CHECK_EQ(get(a).n, 4);
    struct got g = get(c);
    CHECK_EQ(g.n, 4);
    CHECK_EQ(g.from.nl_groups, 2);
    CHECK_EQ(to(sender, address(c), 0, "one", 3), 3);
    CHECK_EQ(get(c).from.nl_groups, 0);
    CHECK_ERR(to(sender, 99999, 0, "x", 1), ECONNREFUSED);
    CHECK_EQ(to(sender, 0, 8, "nobody", 6), 6);
    CHECK_EQ(to(sender, 0, 0, "not a request", 13), 13);
    int group = 33;
    CHECK_ERR(setsockopt(a, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, 4), EINVAL);
    group = 0;
    CHECK_ERR(setsockopt(a, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, 4), EINVAL);
    group = 32;
    OK(setsockopt(a, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, 4));
    CHECK_EQ(to(sender, 0, 1u << 31, "last", 4), 4);
    CHECK_EQ(get(a).n, 2 + 2);
}
static int request(int s, int flags, const char *text, int len) {
    struct {
        struct nlmsghdr h;
        char text[4096];
    } r = {.h = {.nlmsg_len = NLMSG_LENGTH(len), .nlmsg_type = 16, .nlmsg_flags = NLM_F_REQUEST | flags}};
    memcpy(r.text, text, len);
    return to(s, 0, 0, &r, r.h.nlmsg_len) > 0 ? 0 : -1;
}
static int error_of(struct got *g) {
    struct nlmsghdr *h = (void *)g->text;
    CHECK_EQ(h->nlmsg_type, NLMSG_ERROR);
    return -((struct nlmsgerr *)NLMSG_DATA(h))->error;
}
TEST(requests) {
    static const char event[] = "add@/devices/x\0ACTION=add";
    OK(unshare(CLONE_NEWNET));
    int s = events(1), other = events(2), sender = events(0);
    OK(request(sender, 0, event, sizeof event));
    CHECK_EQ(get(sender).n, -EAGAIN);
    struct got g = get(s);
    CHECK_STR(g.text, "add@/devices/x");
    CHECK(atoll(value(&g, "SEQNUM")) > 0);
    CHECK_EQ(g.from.nl_pid, 0);
    CHECK_EQ(g.cred.pid, getpid());
    CHECK_EQ(get(other).n, -EAGAIN);
    OK(request(sender, NLM_F_ACK, event, sizeof event));
    g = get(sender);
    CHECK_EQ(error_of(&g), 0);
    get(s);
    char large[2100] = "x";
    OK(request(sender, 0, large, sizeof large));
    g = get(sender);
    CHECK_EQ(error_of(&g), EINVAL);
    // Who has no rights hears, and says nothing.
    OK(setresuid(12345, 12345, 12345));
    int poor = events(3);
    CHECK_ERR(to(poor, 0, 2, "x", 1), EPERM);
    CHECK_ERR(to(poor, address(s), 0, "x", 1), EPERM);
    OK(request(poor, 0, event, sizeof event));
    g = get(poor);
    CHECK_EQ(error_of(&g), EPERM);
    CHECK_EQ(get(s).n, -EAGAIN);
}
