// The inode of pidfds: one for each process, with its number, attributes and locks; and pidfds of the other end of a socket.
#include "t.h"
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define MAGIC 0x50494446
#define THREAD O_EXCL
#define PASSPIDFD 76
#define PEERPIDFD 77
#define PASSRIGHTS 83
#define SCM_PIDFD 4

static int pidfd_open_(int pid, int flags) { return syscall(SYS_pidfd_open, pid, flags); }
static int eventfd_(void) { return syscall(SYS_eventfd2, 0, 0); }
static ino_t ino(int fd) {
    struct stat st;
    OK(fstat(fd, &st));
    return st.st_ino;
}
// A process that ends when it is let go, with this status.
struct other {
    pid_t pid;
    struct t_gate go;
};
static struct other other(int status) {
    struct other o = {0, t_gate()};
    o.pid = FORK();
    if (o.pid == 0) {
        t_pass(o.go);
        _exit(status);
    }
    return o;
}
static void end(struct other o) {
    t_open(o.go);
    t_status(o.pid);
}

TEST(one_inode_for_each_process) {
    struct other o = other(0), p = other(0);
    int a = SYS(pidfd_open_(o.pid, 0)), b = SYS(pidfd_open_(o.pid, O_NONBLOCK)), c = SYS(pidfd_open_(p.pid, 0));
    int t = SYS(pidfd_open_(o.pid, THREAD)), own = SYS(pidfd_open_(getpid(), 0));
    CHECK_EQ(ino(a), ino(b));
    CHECK_EQ(ino(a), ino(t));
    CHECK(ino(a) != ino(c) && ino(a) != ino(own) && ino(c) != ino(own));
    ino_t was = ino(a);
    close(a), close(b), close(t);
    a = SYS(pidfd_open_(o.pid, 0));
    CHECK_EQ(ino(a), was);
    end(o);
    CHECK_EQ(ino(a), was);
    end(p);
}
TEST(attributes_of_the_inode) {
    struct stat st;
    struct statfs sf;
    int fd = SYS(pidfd_open_(getpid(), 0));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode, 0700);
    CHECK_EQ(st.st_uid, 0);
    CHECK_EQ(st.st_nlink, 1);
    CHECK_EQ(st.st_size, 0);
    OK(fstatfs(fd, &sf));
    CHECK_EQ(sf.f_type, MAGIC);
    CHECK_ERR(fchmod(fd, 0600), EOPNOTSUPP);
    CHECK_ERR(fchown(fd, 1, 1), EOPNOTSUPP);
    char link[64] = {0}, path[64];
    sprintf(path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, link, 63) > 0);
    CHECK_STR(link, "anon_inode:[pidfd]");
    // The inode of all other anonymous files is another one.
    struct stat ev;
    OK(fstat(SYS(eventfd_()), &ev));
    CHECK(ev.st_dev != st.st_dev);
    CHECK_EQ(ev.st_mode, 0600);
}
TEST(opened_again) {
    struct other o = other(5);
    int fd = SYS(pidfd_open_(o.pid, 0)), flags[] = {O_RDONLY, O_RDWR, O_WRONLY};
    char path[64];
    sprintf(path, "/proc/self/fd/%d", fd);
    for (int i = 0; i < 3; i++) {
        int again = SYS(open(path, flags[i] | O_CLOEXEC));
        CHECK_EQ(ino(again), ino(fd));
        OK(syscall(SYS_pidfd_send_signal, again, 0, 0, 0));
    }
    int again = SYS(open(path, O_RDWR));
    end(o);
    struct pollfd f = {again, POLLIN, 0};
    CHECK_EQ(poll(&f, 1, 0), 1);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, again, 0, 0, 0), ESRCH);
    CHECK(open(path, O_RDWR) >= 0);
    close(fd);
    CHECK_ERR(open(path, O_RDWR), ENOENT);
}
TEST(extended_attributes) {
    struct other o = other(0);
    char b[256];
    int fd = SYS(pidfd_open_(o.pid, 0));
    CHECK_EQ(flistxattr(fd, b, sizeof b), 0);
    // Before the first one is set, all names have an empty value.
    OK(fgetxattr(fd, "trusted.a", b, sizeof b));
    OK(fsetxattr(fd, "trusted.a", "value", 5, 0));
    CHECK_ERR(fsetxattr(fd, "trusted.a", "v", 1, XATTR_CREATE), EEXIST);
    CHECK_ERR(fsetxattr(fd, "trusted.b", "v", 1, XATTR_REPLACE), ENODATA);
    CHECK_ERR(fsetxattr(fd, "user.a", "v", 1, 0), EOPNOTSUPP);
    CHECK_ERR(fsetxattr(fd, "security.a", "v", 1, 0), EOPNOTSUPP);
    CHECK_ERR(fgetxattr(fd, "user.a", b, sizeof b), EOPNOTSUPP);
    CHECK_ERR(fremovexattr(fd, "trusted.b"), ENODATA);
    close(fd);
    fd = SYS(pidfd_open_(o.pid, THREAD));
    CHECK_EQ(flistxattr(fd, b, sizeof b), 10);
    CHECK_EQ(fgetxattr(fd, "trusted.a", b, sizeof b), 5);
    CHECK_MEM(b, "value", 5);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_EQ(flistxattr(fd, b, sizeof b), 0); CHECK_ERR(fgetxattr(fd, "trusted.a", b, sizeof b), ENODATA);
                CHECK_ERR(fsetxattr(fd, "trusted.c", "v", 1, 0), EPERM));
    end(o);
    CHECK_EQ(fgetxattr(fd, "trusted.a", b, sizeof b), 5);
    OK(fremovexattr(fd, "trusted.a"));
    CHECK_EQ(flistxattr(fd, b, sizeof b), 0);
    CHECK_EQ(flistxattr(SYS(pidfd_open_(getpid(), 0)), b, sizeof b), 0);
    CHECK_ERR(fgetxattr(fd, "trusted.a", b, sizeof b), ENODATA);
    // Other anonymous files have none.
    CHECK_ERR(fsetxattr(SYS(eventfd_()), "user.a", "v", 1, 0), EPERM);
    CHECK_ERR(fsetxattr(SYS(eventfd_()), "trusted.a", "v", 1, 0), EOPNOTSUPP);
}
TEST(locks_of_the_inode) {
    struct other o = other(0);
    int a = SYS(pidfd_open_(o.pid, 0)), b = SYS(pidfd_open_(o.pid, 0)), own = SYS(pidfd_open_(getpid(), 0)), ev = SYS(eventfd_());
    OK(flock(ev, LOCK_EX));
    OK(flock(a, LOCK_EX | LOCK_NB));
    OK(flock(own, LOCK_EX | LOCK_NB));
    CHECK_ERR(flock(b, LOCK_EX | LOCK_NB), EAGAIN);
    CHECK_ERR(flock(SYS(eventfd_()), LOCK_SH | LOCK_NB), EAGAIN);
    OK(flock(a, LOCK_UN));
    OK(flock(b, LOCK_EX | LOCK_NB));
    end(o);
}
static void fdinfo(int fd, const char *want) {
    char path[64], b[1024];
    sprintf(path, "/proc/self/fdinfo/%d", fd);
    MUST(t_slurp(path, b, sizeof b) > 0);
    char *pid = strstr(b, "\nPid:");
    CHECK_STR(pid ? pid + 1 : b, want);
}
TEST(numbers_in_fdinfo) {
    struct other o = other(0);
    int fd = SYS(pidfd_open_(o.pid, 0));
    char want[100];
    sprintf(want, "Pid:\t%d\nNSpid:\t%d\n", o.pid, o.pid);
    fdinfo(fd, want);
    end(o);
    fdinfo(fd, "Pid:\t-1\nNSpid:\t-1\n");
    // A child in a PID namespace of its own is process 1 there, and has a number here.
    OK(unshare(CLONE_NEWPID));
    o = other(0);
    fd = SYS(pidfd_open_(o.pid, 0));
    sprintf(want, "Pid:\t%d\nNSpid:\t%d\t1\n", o.pid, o.pid);
    fdinfo(fd, want);
    end(o);
    fdinfo(fd, "Pid:\t-1\nNSpid:\t-1\n");
}

struct info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ids[8];
    int32_t exit_code;
};
// The pidfd is of a process that was waited for, and ended with this status.
static void reaped(int fd, int status) {
    struct info i = {.mask = 8};
    OK(ioctl(fd, _IOWR(0xff, 11, struct info), &i));
    CHECK(i.mask & 8);
    CHECK_EQ(i.exit_code, status << 8);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0), ESRCH);
}
static int peer(int s) {
    int fd = -1;
    socklen_t n = sizeof fd;
    OK(getsockopt(s, SOL_SOCKET, PEERPIDFD, &fd, &n));
    CHECK_EQ(n, sizeof fd);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    return fd;
}
static socklen_t name(struct sockaddr_un *a, const char *path) {
    a->sun_family = AF_UNIX;
    strcpy(a->sun_path, path);
    return sizeof *a;
}
TEST(pidfd_of_the_peer) {
    struct sockaddr_un a;
    socklen_t n = name(&a, "s");
    int l = SYS(socket(AF_UNIX, SOCK_STREAM, 0)), fd, own = SYS(pidfd_open_(getpid(), 0));
    socklen_t len = sizeof fd;
    CHECK_ERR(getsockopt(l, SOL_SOCKET, PEERPIDFD, &fd, &len), ENODATA);
    OK(bind(l, (void *)&a, n));
    OK(listen(l, 5));
    CHECK_EQ(ino(peer(l)), ino(own));
    struct t_gate go = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        int s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
        OK(connect(s, (void *)&a, n));
        CHECK_EQ(ino(peer(s)), ino(own));
        t_pass(go);
        _exit(3);
    }
    int s = SYS(accept(l, 0, 0));
    fd = peer(s);
    CHECK_EQ(ino(fd), ino(SYS(pidfd_open_(p, 0))));
    OK(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0));
    close(fd);
    t_open(go);
    t_status(p);
    reaped(peer(s), 3);
    // What the buffer has no room for is not told.
    fd = 0x55555555;
    len = 1;
    OK(getsockopt(s, SOL_SOCKET, PEERPIDFD, &fd, &len));
    CHECK_EQ(len, 1);
    CHECK_EQ(fd >> 8, 0x555555);
    CHECK_ERR(setsockopt(s, SOL_SOCKET, PEERPIDFD, &fd, 4), ENOPROTOOPT);
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    CHECK_EQ(ino(peer(pair[0])), ino(own));
    len = sizeof fd;
    CHECK_ERR(getsockopt(SYS(socket(AF_INET, SOCK_STREAM, 0)), SOL_SOCKET, PEERPIDFD, &fd, &len), ENODATA);
}
// Receives one message of one byte; gives the pidfd that came with it, or -1. `kinds`: the types of control messages in order.
static int receive(int s, char *kinds, size_t room) {
    char b[8], control[256];
    struct iovec v = {b, sizeof b};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    int fd = -1;
    CHECK_EQ(recvmsg(s, &m, 0), 1);
    *kinds = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        sprintf(kinds + strlen(kinds), "%d", h->cmsg_type);
        if (h->cmsg_type == SCM_PIDFD) memcpy(&fd, CMSG_DATA(h), 4);
    }
    if (m.msg_flags & MSG_CTRUNC) strcat(kinds, " cut");
    return fd;
}
static void turn(int s, int option, int on) { OK(setsockopt(s, SOL_SOCKET, option, &on, sizeof on)); }
static int is_on(int s, int option) {
    int on = -1;
    socklen_t n = sizeof on;
    OK(getsockopt(s, SOL_SOCKET, option, &on, &n));
    return on;
}
static int send_fd(int s, int fd) {
    struct iovec v = {"f", 1};
    union {
        struct cmsghdr h;
        char c[CMSG_SPACE(4)];
    } c = {.h = {CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&c.h), &fd, 4);
    struct msghdr m = {0, 0, &v, 1, &c, sizeof c, 0};
    return sendmsg(s, &m, 0);
}
TEST(pidfd_of_the_sender) {
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM};
    char kinds[64];
    for (int i = 0; i < 3; i++) {
        int s[2];
        OK(socketpair(AF_UNIX, types[i], 0, s));
        CHECK_EQ(is_on(s[1], PASSPIDFD), 0);
        turn(s[1], PASSPIDFD, 1);
        CHECK_EQ(is_on(s[1], PASSPIDFD), 1);
        pid_t p = FORK();
        if (p == 0) _exit(write(s[0], "x", 1) == 1 ? 4 : 9);
        ino_t of = ino(SYS(pidfd_open_(p, 0)));
        t_status(p);
        int fd = receive(s[1], kinds, 200);
        CHECK_STR(kinds, "4");
        CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
        CHECK_EQ(ino(fd), of);
        reaped(fd, 4);
        // In which order: credentials, descriptors, the sender.
        turn(s[1], SO_PASSCRED, 1);
        CHECK_EQ(send_fd(s[0], 0), 1);
        fd = receive(s[1], kinds, 200);
        CHECK_STR(kinds, "214");
        CHECK_EQ(ino(fd), ino(SYS(pidfd_open_(getpid(), 0))));
        CHECK_EQ(write(s[0], "y", 1), 1);
        receive(s[1], kinds, CMSG_SPACE(12) + 19);
        CHECK_STR(kinds, "2 cut");
        CHECK_EQ(write(s[0], "y", 1), 1);
        receive(s[1], kinds, 0);
        CHECK_STR(kinds, " cut");
        // The option of the sender counts as well; what was sent without both knows no sender.
        turn(s[1], SO_PASSCRED, 0);
        turn(s[1], PASSPIDFD, 0);
        CHECK_EQ(write(s[0], "n", 1), 1);
        turn(s[0], PASSPIDFD, 1);
        CHECK_EQ(write(s[0], "k", 1), 1);
        turn(s[1], PASSPIDFD, 1);
        CHECK_EQ(receive(s[1], kinds, 200), -1);
        CHECK_STR(kinds, "");
        CHECK(receive(s[1], kinds, 200) >= 0);
    }
    int in = SYS(socket(AF_INET, SOCK_DGRAM, 0)), one = 1;
    CHECK_ERR(setsockopt(in, SOL_SOCKET, PASSPIDFD, &one, 4), EOPNOTSUPP);
}
// Credentials that are given name the process that the pidfd is of.
TEST(pidfd_of_a_claimed_sender) {
    int s[2];
    char kinds[64];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    turn(s[1], PASSPIDFD, 1);
    struct other o = other(0);
    struct ucred u = {o.pid, 0, 0};
    struct iovec v = {"c", 1};
    union {
        struct cmsghdr h;
        char c[CMSG_SPACE(sizeof u)];
    } c = {.h = {CMSG_LEN(sizeof u), SOL_SOCKET, SCM_CREDENTIALS}};
    memcpy(CMSG_DATA(&c.h), &u, sizeof u);
    struct msghdr m = {0, 0, &v, 1, &c, sizeof c, 0};
    CHECK_EQ(sendmsg(s[0], &m, 0), 1);
    CHECK_EQ(ino(receive(s[1], kinds, 200)), ino(SYS(pidfd_open_(o.pid, 0))));
    CHECK_STR(kinds, "4");
    end(o);
}
// SO_PASSRIGHTS switched off: the sender of descriptors learns it; those that are there already arrive.
TEST(sockets_that_take_no_descriptors) {
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM};
    char kinds[64];
    for (int i = 0; i < 3; i++) {
        int s[2];
        OK(socketpair(AF_UNIX, types[i], 0, s));
        CHECK_EQ(is_on(s[1], PASSRIGHTS), 1);
        CHECK_EQ(send_fd(s[0], 0), 1);
        turn(s[1], PASSRIGHTS, 0);
        CHECK_EQ(is_on(s[1], PASSRIGHTS), 0);
        CHECK_ERR(send_fd(s[0], 0), EPERM);
        receive(s[1], kinds, 200);
        CHECK_STR(kinds, "1");
        CHECK_EQ(send_fd(s[1], 0), 1);
        turn(s[1], PASSRIGHTS, 1);
        CHECK_EQ(send_fd(s[0], 0), 1);
        receive(s[1], kinds, 200);
        CHECK_STR(kinds, "1");
    }
    int one = 1;
    CHECK_ERR(setsockopt(SYS(socket(AF_INET, SOCK_DGRAM, 0)), SOL_SOCKET, PASSRIGHTS, &one, 4), EOPNOTSUPP);
}
// An accepted socket begins with the options that the listening one had at connect(2).
TEST(options_of_accepted_sockets) {
    struct sockaddr_un a;
    socklen_t n = name(&a, "s");
    int l = SYS(socket(AF_UNIX, SOCK_STREAM, 0)), s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(l, (void *)&a, n));
    OK(listen(l, 5));
    turn(l, PASSPIDFD, 1);
    turn(l, PASSRIGHTS, 0);
    turn(l, SO_PASSSEC, 1);
    OK(connect(s, (void *)&a, n));
    turn(l, PASSPIDFD, 0);
    int c = SYS(accept(l, 0, 0));
    CHECK_EQ(is_on(c, PASSPIDFD), 1);
    CHECK_EQ(is_on(c, PASSRIGHTS), 0);
    CHECK_EQ(is_on(c, SO_PASSSEC), 1);
    CHECK_EQ(is_on(c, SO_PASSCRED), 0);
    CHECK_ERR(send_fd(s, 0), EPERM);
}
// A socket that asks for its senders gets a name of its own when it is connected.
TEST(senders_are_named) {
    struct sockaddr_un a;
    socklen_t n = name(&a, "d"), len = sizeof a;
    int d = SYS(socket(AF_UNIX, SOCK_DGRAM, 0)), s = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    OK(bind(d, (void *)&a, n));
    turn(s, PASSPIDFD, 1);
    OK(connect(s, (void *)&a, n));
    OK(getsockname(s, (void *)&a, &len));
    CHECK_EQ(len, 2 + 6);
}

// A process that the caller's PID namespace does not have tells it nothing, alive or reaped.
TEST(info_for_another_namespace) {
    int alive = SYS(syscall(SYS_pidfd_open, getpid(), 0)), reaped;
    pid_t p = FORK();
    if (p == 0) _exit(3);
    reaped = SYS(syscall(SYS_pidfd_open, p, 0));
    t_status(p);
    struct info i = {.mask = 8};
    OK(ioctl(reaped, _IOWR(0xff, 11, struct info), &i));
    if (geteuid() != 0) SKIP("not root");
    CHECK_CHILD({
        SYS(unshare(CLONE_NEWPID));
        CHECK_CHILD({
            struct info other = {.mask = 8};
            CHECK_ERR(ioctl(reaped, _IOWR(0xff, 11, struct info), &other), EREMOTE);
            CHECK_ERR(ioctl(alive, _IOWR(0xff, 11, struct info), &other), EREMOTE);
        });
    });
}
