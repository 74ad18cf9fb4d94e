// The ioctls of brctl(8), on a socket of any family: SIOCBRADDBR and its relatives.
#include "inet.h"
#include "rtnetlink.h"
#include <linux/veth.h>
#include <sched.h>

static int s;
static int named(int cmd, const char *name) {
    char buf[IFNAMSIZ] = {0};
    strncpy(buf, name, sizeof buf - 1);
    return ioctl(s, cmd, buf);
}
static int port(int cmd, const char *bridge, int index) {
    struct ifreq q = {0};
    strncpy(q.ifr_name, bridge, IFNAMSIZ - 1);
    q.ifr_ifindex = index;
    return ioctl(s, cmd, &q);
}
static int pair(struct request *r) {
    struct ifinfomsg far = {0};
    struct rtattr *peer = add(r, VETH_INFO_PEER, &far, sizeof far);
    add(r, IFLA_IFNAME, "v1", 3);
    end(r, peer);
    return 0;
}
TEST(bridges_and_ports) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_ERR(ioctl(s, SIOCBRADDBR, 0), EFAULT);
    OK(named(SIOCBRADDBR, "b0"));
    CHECK_ERR(named(SIOCBRADDBR, "b0"), EEXIST);
    CHECK_ERR(named(SIOCBRADDBR, "lo"), EEXIST);
    CHECK_ERR(named(SIOCBRADDBR, ""), EINVAL);
    CHECK_ERR(named(SIOCBRADDBR, "a/b"), EINVAL);
    OK(named(SIOCBRADDBR, "b1"));
    CHECK_EQ(make("v0", "veth", pair), 0);
    int v0 = index_of("v0"), v1 = index_of("v1"), b0 = index_of("b0");
    CHECK(v0 > 0 && v1 > 0 && b0 > 0);
    OK(port(SIOCBRADDIF, "b0", v0));
    CHECK_ERR(port(SIOCBRADDIF, "b0", v0), EBUSY);
    CHECK_ERR(port(SIOCBRADDIF, "b1", v0), EBUSY);
    CHECK_ERR(port(SIOCBRADDIF, "b1", b0), ELOOP);
    CHECK_ERR(port(SIOCBRADDIF, "b0", b0), ELOOP);
    CHECK_ERR(port(SIOCBRADDIF, "b0", 1), EINVAL);
    CHECK_ERR(port(SIOCBRADDIF, "b0", 4711), EINVAL);
    CHECK_ERR(port(SIOCBRADDIF, "v1", v0), EOPNOTSUPP);
    CHECK_ERR(port(SIOCBRADDIF, "nope", v0), ENODEV);
    CHECK_ERR(port(SIOCBRDELIF, "b1", v0), EINVAL);
    CHECK_ERR(port(SIOCBRDELIF, "b0", v1), EINVAL);
    OK(port(SIOCBRDELIF, "b0", v0));
    CHECK_ERR(port(SIOCBRDELIF, "b0", v0), EINVAL);
    OK(port(SIOCBRADDIF, "b0", v0));
    struct request r = start(RTM_NEWLINK, 0, b0);
    r.link.ifi_flags = r.link.ifi_change = IFF_UP;
    CHECK_EQ(done(&r), 0);
    CHECK_ERR(named(SIOCBRDELBR, "b0"), EBUSY);
    r.link.ifi_flags = 0;
    r.h.nlmsg_flags = NLM_F_REQUEST;
    CHECK_EQ(done(&r), 0);
    CHECK_CHILD(SYS(setresuid(1000, 1000, 1000)); CHECK_ERR(named(SIOCBRADDBR, "b2"), EPERM); CHECK_ERR(named(SIOCBRDELBR, "b0"), EPERM);
                CHECK_ERR(port(SIOCBRADDIF, "b1", v1), EPERM));
    OK(named(SIOCBRDELBR, "b0"));
    CHECK_ERR(named(SIOCBRDELBR, "b0"), ENXIO);
    CHECK_ERR(named(SIOCBRDELBR, "v0"), EPERM);
    CHECK_ERR(named(SIOCBRDELBR, "lo"), EPERM);
    // The port is free again.
    OK(port(SIOCBRADDIF, "b1", v0));
}
// The older ioctls, which brctl tries when the others fail.
static int old(long what, const char *name) {
    unsigned long words[3] = {what, (unsigned long)name, 0};
    return ioctl(s, SIOCSIFBR, words);
}
static int old_port(long what, const char *bridge, long index) {
    unsigned long words[4] = {what, index, 0, 0};
    struct ifreq q = {.ifr_data = (void *)words};
    strncpy(q.ifr_name, bridge, IFNAMSIZ - 1);
    return ioctl(s, SIOCDEVPRIVATE, &q);
}
TEST(older_requests) {
    if (geteuid() != 0) SKIP("not root");
    OK(unshare(CLONE_NEWNET));
    s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    char b0[IFNAMSIZ] = "b0", none[IFNAMSIZ] = "none", lo[IFNAMSIZ] = "lo";
    OK(old(2, b0));
    CHECK_ERR(old(2, b0), EEXIST);
    CHECK_ERR(old(99, b0), EOPNOTSUPP);
    CHECK_ERR(old(3, none), ENXIO);
    CHECK_ERR(old(3, lo), EPERM);
    CHECK_EQ(make("v0", "veth", pair), 0);
    int v0 = index_of("v0");
    OK(old_port(4, "b0", v0));
    CHECK_ERR(old_port(4, "b0", v0), EBUSY);
    CHECK_ERR(old_port(4, "b0", 1), EINVAL);
    CHECK_ERR(old_port(4, "none", v0), ENODEV);
    CHECK_ERR(old_port(99, "b0", v0), EOPNOTSUPP);
    OK(old_port(5, "b0", v0));
    CHECK_ERR(old_port(5, "b0", v0), EINVAL);
    CHECK_CHILD(SYS(setresuid(1000, 1000, 1000)); CHECK_ERR(old(2, none), EPERM); CHECK_ERR(old_port(4, "b0", v0), EPERM));
    OK(old(3, b0));
}
