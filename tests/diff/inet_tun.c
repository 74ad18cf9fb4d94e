// /dev/net/tun: interfaces whose other end is the program itself.
#include "inet.h"
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static int tun_open(int flags) {
    if (geteuid() != 0) SKIP("not root");
    int fd = open("/dev/net/tun", O_RDWR | flags);
    if (fd >= 0) return fd;
    mkdir("/dev/net", 0755);
    if (mknod("/dev/net/tun", S_IFCHR | 0600, makedev(10, 200)) < 0 && errno != EEXIST) SKIP("no device node");
    return SYS(open("/dev/net/tun", O_RDWR | flags));
}
static int set_iff(int fd, const char *name, int flags) {
    struct ifreq r = {.ifr_flags = flags};
    strcpy(r.ifr_name, name);
    return ioctl(fd, TUNSETIFF, &r);
}
static int request(int cmd, const char *name, struct ifreq r) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    strcpy(r.ifr_name, name);
    int done = ioctl(s, cmd, &r), e = errno;
    close(s);
    errno = e;
    return done;
}
static int address(int cmd, const char *name, const char *text) {
    struct ifreq r = {0};
    struct sockaddr_in a = {.sin_family = AF_INET};
    inet_pton(AF_INET, text, &a.sin_addr);
    memcpy(&r.ifr_addr, &a, sizeof a);
    return request(cmd, name, r);
}
static int up(const char *name, int on) { return request(SIOCSIFFLAGS, name, (struct ifreq){.ifr_flags = on ? IFF_UP : 0}); }
// An interface that is up, with an address.
static int tunnel(const char *name, int flags) {
    int fd = tun_open(O_NONBLOCK);
    OK(set_iff(fd, name, flags));
    OK(address(SIOCSIFADDR, name, "10.77.0.1"));
    OK(address(SIOCSIFNETMASK, name, "255.255.255.0"));
    OK(up(name, 1));
    return fd;
}
static unsigned sum(unsigned s, const unsigned char *p, int n) {
    for (int i = 0; i < n; i += 2) s += p[i] << 8 | (i + 1 < n ? p[i + 1] : 0);
    while (s >> 16) s = (s & 0xffff) + (s >> 16);
    return s;
}
// The next IPv4 packet of a protocol: the kernel sends some of its own.
static int next(int fd, unsigned char *b, int skip, int protocol) {
    for (;;) {
        if (!(poll_for(fd, POLLIN) & POLLIN)) return -1;
        int n = read(fd, b, 2000);
        if (n > skip + 20 && b[skip] == 0x45 && b[skip + 9] == protocol) return n;
    }
}
// Before the sub-tests that make the node.
TEST(tun_node) {
    struct stat st;
    if (stat("/dev/net/tun", &st) < 0) SKIP("no device node");
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(st.st_rdev, makedev(10, 200));
}
TEST(tun_before_an_interface) {
    int fd = tun_open(O_NONBLOCK);
    char b[64] = {0};
    unsigned features = 0;
    OK(ioctl(fd, TUNGETFEATURES, &features));
    CHECK_EQ(features & (IFF_TUN | IFF_TAP | IFF_NO_PI), IFF_TUN | IFF_TAP | IFF_NO_PI);
    CHECK_ERR(read(fd, b, sizeof b), EBADFD);
    CHECK_ERR(write(fd, b, sizeof b), EBADFD);
    struct ifreq r;
    CHECK_ERR(ioctl(fd, TUNGETIFF, &r), EBADFD);
    CHECK_ERR(ioctl(fd, TUNSETPERSIST, 1), EBADFD);
    CHECK_ERR(ioctl(fd, TUNSETIFF, 0), EFAULT);
    CHECK_EQ(poll_of(fd, POLLIN | POLLOUT), POLLERR);
    CHECK_ERR(set_iff(fd, "t", 0), EINVAL);
    CHECK_ERR(set_iff(fd, "a/b", IFF_TUN), EINVAL);
    CHECK_ERR(set_iff(fd, "lo", IFF_TUN), EINVAL);
    CHECK_ERR(lseek(fd, 0, SEEK_SET), ESPIPE);
}
TEST(tun_names_and_life) {
    int fd = tun_open(0), other = tun_open(0);
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    OK(ioctl(fd, TUNSETIFF, &r));
    CHECK_STR(r.ifr_name, "tun0");
    CHECK_ERR(ioctl(fd, TUNSETIFF, &r), EEXIST);
    memset(&r, 0, sizeof r);
    OK(ioctl(fd, TUNGETIFF, &r));
    CHECK_STR(r.ifr_name, "tun0");
    CHECK_EQ((unsigned short)r.ifr_flags & (IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_PERSIST), IFF_TUN | IFF_NO_PI);
    CHECK_ERR(set_iff(other, "tun0", IFF_TUN | IFF_NO_PI), EBUSY);
    CHECK_ERR(set_iff(other, "tun0", IFF_TAP | IFF_NO_PI), EINVAL);
    OK(set_iff(other, "x%dy", IFF_TAP));
    CHECK(if_nametoindex("x0y") > 0);
    close(other);
    CHECK_EQ(if_nametoindex("x0y"), 0);
    CHECK_ERR(ioctl(fd, 0x400454ff, 0), EINVAL);
    OK(ioctl(fd, TUNSETOFFLOAD, 0));
    int size = 0;
    CHECK_ERR(ioctl(fd, TUNSETSNDBUF, &size), EINVAL);
    size = 10000;
    OK(ioctl(fd, TUNSETSNDBUF, &size));
    size = 0;
    OK(ioctl(fd, TUNGETSNDBUF, &size));
    CHECK_EQ(size, 10000);
    OK(ioctl(fd, TUNSETPERSIST, 1));
    close(fd);
    unsigned index = if_nametoindex("tun0");
    CHECK(index > 0);
    fd = tun_open(0);
    CHECK_ERR(set_iff(fd, "tun0", IFF_TUN | IFF_TUN_EXCL), EBUSY);
    OK(set_iff(fd, "tun0", IFF_TUN));
    CHECK_EQ(if_nametoindex("tun0"), index);
    OK(ioctl(fd, TUNGETIFF, &r));
    CHECK_EQ(r.ifr_flags & IFF_PERSIST, IFF_PERSIST);
    OK(ioctl(fd, TUNSETPERSIST, 0));
    close(fd);
    CHECK_EQ(if_nametoindex("tun0"), 0);
}
TEST(tun_privileges) {
    int fd = tun_open(0), fresh = tun_open(0);
    OK(set_iff(fd, "kept", IFF_TUN));
    OK(ioctl(fd, TUNSETPERSIST, 1));
    OK(ioctl(fd, TUNSETOWNER, 1000));
    CHECK_ERR(ioctl(fd, TUNSETOWNER, -1), EINVAL);
    close(fd);
    fd = tun_open(0);
    CHECK_CHILD({
        SYS(setresuid(1001, 1001, 1001));
        CHECK_ERR(set_iff(fresh, "n", IFF_TUN), EPERM);
        CHECK_ERR(set_iff(fd, "kept", IFF_TUN), EPERM);
        CHECK_ERR(address(SIOCSIFADDR, "lo", "127.0.0.9"), EPERM);
    });
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        OK(set_iff(fd, "kept", IFF_TUN));
    });
    OK(ioctl(fd, TUNSETPERSIST, 0));
}
TEST(tun_addresses) {
    int fd = tun_open(0);
    OK(set_iff(fd, "ta", IFF_TAP));
    CHECK_ERR(address(SIOCSIFNETMASK, "ta", "255.255.255.0"), EADDRNOTAVAIL);
    CHECK_ERR(address(SIOCSIFADDR, "none", "10.1.2.3"), ENODEV);
    CHECK_ERR(address(SIOCSIFADDR, "ta", "224.0.0.1"), EINVAL);
    CHECK_ERR(request(SIOCSIFADDR, "ta", (struct ifreq){0}), EINVAL);
    OK(address(SIOCSIFADDR, "ta", "172.20.2.3"));
    CHECK_ERR(address(SIOCSIFNETMASK, "ta", "255.0.255.0"), EINVAL);
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq r = {.ifr_name = "ta"};
    char text[32];
#define SHOWN(cmd, want)                                                                                               \
    OK(ioctl(s, cmd, &r));                                                                                             \
    CHECK_STR(inet_ntop(AF_INET, &((struct sockaddr_in *)&r.ifr_addr)->sin_addr, text, sizeof text), want)
    SHOWN(SIOCGIFNETMASK, "255.255.0.0");
    OK(address(SIOCSIFNETMASK, "ta", "255.255.255.0"));
    SHOWN(SIOCGIFNETMASK, "255.255.255.0");
    SHOWN(SIOCGIFADDR, "172.20.2.3");
    OK(address(SIOCSIFADDR, "ta", "0.0.0.0"));
    CHECK_ERR(ioctl(s, SIOCGIFADDR, &r), EADDRNOTAVAIL);
}
TEST(tun_datagram_out) {
    int fd = tunnel("tu", IFF_TUN | IFF_NO_PI), s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(99)};
    inet_pton(AF_INET, "10.77.0.9", &to.sin_addr);
    int ep = SYS(epoll_create1(0));
    unsigned char b[2000];
    while (read(fd, b, sizeof b) > 0) {}
    CHECK_ERR(read(fd, b, sizeof b), EAGAIN);
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN}));
    CHECK_EQ(sendto(s, "payload", 7, 0, (void *)&to, sizeof to), 7);
    struct epoll_event e;
    CHECK_EQ(epoll_wait(ep, &e, 1, 5000), 1);
    CHECK_EQ(next(fd, b, 0, 17), 35);
    CHECK_EQ(sum(0, b, 20), 0xffff);
    CHECK_EQ(b[22] << 8 | b[23], 99);
    CHECK_MEM(b + 28, "payload", 7);
    // Too short a buffer cuts.
    CHECK_EQ(sendto(s, "payload", 7, 0, (void *)&to, sizeof to), 7);
    poll_for(fd, POLLIN);
    CHECK_EQ(read(fd, b, 10), 10);
    CHECK_EQ(poll_of(fd, POLLOUT), POLLOUT);
    OK(up("tu", 0));
    CHECK_EQ(poll_of(fd, POLLOUT), 0);
    CHECK_ERR(write(fd, b, 20), EIO);
}
TEST(tun_blocking_read) {
    close(tunnel("tb", IFF_TUN | IFF_NO_PI));
    int fd = tun_open(0);
    OK(set_iff(fd, "tb", IFF_TUN | IFF_NO_PI));
    OK(address(SIOCSIFADDR, "tb", "10.77.1.1"));
    OK(address(SIOCSIFNETMASK, "tb", "255.255.255.0"));
    OK(up("tb", 1));
    pid_t p = FORK();
    if (p == 0) {
        t_ms(50);
        int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(99)};
        inet_pton(AF_INET, "10.77.1.9", &to.sin_addr);
        CHECK_EQ(sendto(s, "x", 1, 0, (void *)&to, sizeof to), 1);
        _exit(0);
    }
    unsigned char b[2000];
    ssize_t n;
    do
        n = read(fd, b, sizeof b);
    while (n > 0 && b[0] != 0x45);
    CHECK_EQ(n, 29);
    CHECK_STATUS(t_status(p), "exit 0");
}
// An echo request from the program is answered by the kernel; with the packet information header, in pieces.
static void echo(int fd, int bare) {
    unsigned char p[32] = {0, 0, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1, 8, 0, 0, 0, 0, 7, 0, 1};
    unsigned char *ip = p + 4, b[2000];
    unsigned c = ~sum(0, ip, 20);
    ip[10] = c >> 8, ip[11] = c;
    c = ~sum(0, ip + 20, 8);
    ip[22] = c >> 8, ip[23] = c;
    struct iovec v[3] = {{p, bare ? 0 : 4}, {ip, 13}, {ip + 13, 15}};
    CHECK_EQ(writev(fd, v, 3), bare ? 28 : 32);
    int skip = bare ? 0 : 4;
    MUST(next(fd, b, skip, 1) == 28 + skip);
    if (!bare) CHECK_MEM(b, "\0\0\x08\0", 4);
    CHECK_EQ(b[skip + 20], 0);
    CHECK_EQ(b[skip + 25], 7);
    CHECK_MEM(b + skip + 12, "\x0a\x4d\0\1\x0a\x4d\0\2", 8);
    CHECK_ERR(write(fd, p, bare ? 0 : 3), EINVAL);
}
TEST(tun_echo) { echo(tunnel("te", IFF_TUN | IFF_NO_PI), 1); }
TEST(tun_echo_with_header) {
    int fd = tunnel("te", IFF_TUN);
    echo(fd, 0);
    CHECK_EQ(write(fd, "\0\0\x12\x34zzzz", 8), 8);
}
TEST(tun_bad_packets) {
    int fd = tunnel("te", IFF_TUN | IFF_NO_PI);
    CHECK_ERR(write(fd, "zzzzzzzzzzzzzzzzzzzzzzzz", 24), EINVAL);
    // The version is right, the rest is not: the stack drops it.
    CHECK_EQ(write(fd, "\x45zzz", 4), 4);
    CHECK_EQ(read(fd, "", 0), 0);
}
// A file whose interface was deleted has none, also when another interface has the index.
TEST(tun_deleted) {
    int fd = tun_open(0), other = tun_open(0), index = 77;
    OK(ioctl(fd, TUNSETIFINDEX, &index));
    OK(ioctl(other, TUNSETIFINDEX, &index));
    OK(set_iff(fd, "td", IFF_TUN));
    CHECK_EQ(if_nametoindex("td"), 77);
    CHECK_ERR(ioctl(fd, TUNSETIFINDEX, &index), EPERM);
    struct {
        struct nlmsghdr h;
        struct ifinfomsg i;
    } m = {{sizeof m, RTM_DELLINK, NLM_F_REQUEST, 1, 0}, {.ifi_index = 77}};
    int s = SYS(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    CHECK_EQ(send(s, &m, sizeof m, 0), sizeof m);
    CHECK_EQ(if_nametoindex("td"), 0);
    OK(set_iff(other, "te", IFF_TUN));
    CHECK_EQ(if_nametoindex("te"), 77);
    CHECK_ERR(ioctl(fd, TUNSETPERSIST, 0), EBADFD);
    CHECK_EQ(poll_of(fd, POLLIN), POLLERR);
    close(fd);
    CHECK_EQ(if_nametoindex("te"), 77);
}
// Fills in the checksums of an IPv4 packet with a TCP segment and sends it.
static void segment(int fd, unsigned char *p, int port, unsigned seq, unsigned ack, int flags, const char *text) {
    int n = strlen(text), len = 20 + n;
    memcpy(p, "\x45\0\0\0\0\0\0\0\x40\6\0\0\x0a\x4d\0\2\x0a\x4d\0\1\x11\x11", 22);
    p[3] = 20 + len, p[22] = port >> 8, p[23] = port;
    for (int i = 0; i < 4; i++) p[24 + i] = seq >> (24 - 8 * i), p[28 + i] = ack >> (24 - 8 * i);
    memcpy(p + 32, "\x50\0\x10\0\0\0\0\0", 8);
    p[33] = flags;
    memcpy(p + 40, text, n);
    unsigned c = ~sum(0, p, 20);
    p[10] = c >> 8, p[11] = c;
    c = ~sum(sum(6 + len, p + 12, 8), p + 20, len);
    p[36] = c >> 8, p[37] = c;
    CHECK_EQ(write(fd, p, 20 + len), 20 + len);
}
TEST(tun_tcp_connection) {
    int fd = tunnel("tc", IFF_TUN | IFF_NO_PI), l = SYS(socket(AF_INET, SOCK_STREAM, 0));
    SYS(listen(l, 1));
    unsigned char b[2000], in[16];
    int port = port_of(l);
    segment(fd, b, port, 1000, 0, 2, "");
    MUST(next(fd, b, 0, 6) >= 40);
    CHECK_EQ(b[33] & 0x3f, 0x12);
    CHECK_EQ(b[28] << 24 | b[29] << 16 | b[30] << 8 | b[31], 1001);
    unsigned ack = ((unsigned)b[24] << 24 | b[25] << 16 | b[26] << 8 | b[27]) + 1;
    segment(fd, b, port, 1001, ack, 0x10, "");
    MUST(poll_for(l, POLLIN) == POLLIN);
    int s = SYS(accept(l, 0, 0));
    segment(fd, b, port, 1001, ack, 0x18, "hello");
    poll_for(s, POLLIN);
    CHECK_EQ(read(s, in, sizeof in), 5);
    CHECK_MEM(in, "hello", 5);
    CHECK_EQ(write(s, "back", 4), 4);
    int n;
    do
        MUST((n = next(fd, b, 0, 6)) > 0);
    while (n < 44);
    CHECK_MEM(b + n - 4, "back", 4);
}
// The kernel asks for the hardware address of the program's end.
TEST(tap_asks_for_an_address) {
    int fd = tunnel("tt", IFF_TAP | IFF_NO_PI), s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    struct ifreq r = {0};
    OK(ioctl(fd, SIOCGIFHWADDR, &r));
    CHECK_EQ(r.ifr_hwaddr.sa_family, 1);
    unsigned char *mac = (void *)r.ifr_hwaddr.sa_data, b[2000];
    CHECK_EQ(mac[0] & 3, 2);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(99)};
    inet_pton(AF_INET, "10.77.0.2", &to.sin_addr);
    CHECK_EQ(sendto(s, "frame", 5, 0, (void *)&to, sizeof to), 5);
    int n;
    do {
        MUST(poll_for(fd, POLLIN) & POLLIN);
        n = read(fd, b, sizeof b);
    } while (n > 0 && (b[12] != 8 || b[13] != 6));
    CHECK_EQ(n, 42);
    CHECK_MEM(b + 6, mac, 6);
    unsigned char a[42];
    memcpy(a, mac, 6);
    memcpy(a + 6, "\x02\0\0\0\0\x99\x08\x06\0\1\x08\0\6\4\0\2\x02\0\0\0\0\x99\x0a\x4d\0\2", 26);
    memcpy(a + 32, mac, 6);
    memcpy(a + 38, "\x0a\x4d\0\1", 4);
    CHECK_EQ(write(fd, a, sizeof a), sizeof a);
    MUST(next(fd, b, 14, 17) == 14 + 33);
    CHECK_MEM(b, "\x02\0\0\0\0\x99", 6);
    CHECK_MEM(b + 42, "frame", 5);
    CHECK_ERR(write(fd, a, 13), EINVAL);
}
