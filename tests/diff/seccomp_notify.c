// SECCOMP_RET_USER_NOTIF: a supervisor answers calls.
#include "t.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

struct resp { unsigned long long id; long long val; int error; unsigned flags; };
struct addfd { unsigned long long id; unsigned flags, srcfd, newfd, newfd_flags; };
#define RECV 0xc0502100u
#define SEND 0xc0182101u
#define VALID 0x40082102u
#define ADDFD 0x40182103u

static int listen_to(int nr, unsigned flags) {
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {4, f};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p);
}
static void give(int s, int fd) {
    char c = 'f', b[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = b, .msg_controllen = sizeof b};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    CHECK_EQ(sendmsg(s, &m, 0), 1);
}
static int take(int s) {
    char c, b[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = b, .msg_controllen = sizeof b};
    int fd = -1;
    if (recvmsg(s, &m, 0) == 1 && CMSG_FIRSTHDR(&m)) memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}
// A child that runs `f` with getppid supervised; its listener, and its ID.
static int supervise(int (*f)(void), pid_t *p) {
    int s[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    *p = FORK();
    if (*p == 0) {
        int l = SYS(listen_to(SYS_getppid, SECCOMP_FILTER_FLAG_NEW_LISTENER));
        CHECK_EQ(fcntl(l, F_GETFD), FD_CLOEXEC);
        give(s[1], l);
        close(l);
        _exit(f());
    }
    int l = take(s[0]);
    MUST(l >= 0);
    close(s[0]), close(s[1]);
    return l;
}
static struct seccomp_notif receive(int l) {
    struct seccomp_notif n;
    memset(&n, 0, sizeof n);
    SYS(ioctl(l, RECV, &n));
    return n;
}

static int two(void) {
    CHECK_EQ(syscall(SYS_getppid, 11, 22), 77);
    CHECK_ERR(syscall(SYS_getppid), EXDEV);
    CHECK(syscall(SYS_getppid) > 1);
    return 0;
}
TEST(answers) {
    pid_t p;
    int l = supervise(two, &p);
    struct seccomp_notif n = receive(l);
    CHECK_EQ(n.pid, p);
    CHECK_EQ(n.data.nr, SYS_getppid);
    CHECK_EQ(n.data.arch, AUDIT_ARCH_X86_64);
    CHECK_EQ(n.data.args[0], 11);
    CHECK_EQ(n.data.args[1], 22);
    OK(ioctl(l, VALID, &n.id));
    unsigned long long other = n.id + 100;
    CHECK_ERR(ioctl(l, VALID, &other), ENOENT);
    struct resp r = {n.id, 77, 0, 0}, bad = {n.id, 1, 0, 1}, worse = {n.id, 0, 0, 2}, none = {other, 0, 0, 0};
    CHECK_ERR(ioctl(l, SEND, &bad), EINVAL);
    CHECK_ERR(ioctl(l, SEND, &worse), EINVAL);
    CHECK_ERR(ioctl(l, SEND, &none), ENOENT);
    OK(ioctl(l, SEND, &r));
    n = receive(l);
    r = (struct resp){n.id, 0, -EXDEV, 0};
    OK(ioctl(l, SEND, &r));
    n = receive(l);
    struct pollfd pf = {l, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&pf, 1, 0), 1);
    CHECK_EQ(pf.revents, POLLOUT);
    r = (struct resp){n.id, 0, 0, 1};
    OK(ioctl(l, SEND, &r));
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(poll(&pf, 1, 10000), 1);
    CHECK(pf.revents & POLLHUP);
    struct seccomp_notif z;
    memset(&z, 0, sizeof z);
    CHECK_ERR(ioctl(l, RECV, &z), ENOENT);
    memset(&z, 1, sizeof z);
    CHECK_ERR(ioctl(l, RECV, &z), EINVAL);
}
static int alone(void) {
    CHECK_ERR(syscall(SYS_getppid), ENOSYS);
    CHECK_ERR(syscall(SYS_getppid), ENOSYS);
    return 0;
}
TEST(listener_closed) {
    pid_t p;
    int l = supervise(alone, &p);
    receive(l);
    close(l);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_CHILD({
        SYS(listen_to(SYS_getppid, 0));
        CHECK_ERR(syscall(SYS_getppid), ENOSYS);
    });
}
static int waits(void) {
    t_pester(0);
    CHECK_ERR(syscall(SYS_getppid), EINTR);
    return 0;
}
TEST(interrupted) {
    pid_t p;
    int l = supervise(waits, &p);
    struct seccomp_notif n = receive(l);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_ERR(ioctl(l, VALID, &n.id), ENOENT);
    struct resp r = {n.id, 0, 0, 0};
    CHECK_ERR(ioctl(l, SEND, &r), ENOENT);
}
static int reads(void) {
    char b[10] = "";
    int fd = syscall(SYS_getppid);
    CHECK_EQ(read(fd, b, 4), 4);
    CHECK_STR(b, "text");
    CHECK_EQ(syscall(SYS_getppid), 5);
    CHECK_EQ(fcntl(20, F_GETFD), FD_CLOEXEC);
    return 0;
}
TEST(descriptors) {
    pid_t p;
    t_make("f", "text");
    int l = supervise(reads, &p), fd = SYS(open("f", O_RDONLY));
    struct seccomp_notif n = receive(l);
    struct addfd a = {n.id, 4, fd, 0, 0};
    CHECK_ERR(ioctl(l, ADDFD, &a), EINVAL);
    a = (struct addfd){n.id, 0, fd, 7, 0};
    CHECK_ERR(ioctl(l, ADDFD, &a), EINVAL);
    a = (struct addfd){n.id, 0, 999, 0, 0};
    CHECK_ERR(ioctl(l, ADDFD, &a), EBADF);
    a = (struct addfd){n.id + 9, 0, fd, 0, 0};
    CHECK_ERR(ioctl(l, ADDFD, &a), ENOENT);
    a = (struct addfd){n.id, 2, fd, 0, 0};
    CHECK(ioctl(l, ADDFD, &a) > 2);
    n = receive(l);
    a = (struct addfd){n.id, 1, fd, 20, O_CLOEXEC};
    CHECK_EQ(ioctl(l, ADDFD, &a), 20);
    struct resp r = {n.id, 5, 0, 0};
    OK(ioctl(l, SEND, &r));
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(errors) {
    CHECK_CHILD({
        CHECK_ERR(listen_to(SYS_getppid, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC), EINVAL);
        CHECK_ERR(listen_to(SYS_getppid, 32), EINVAL);
        int l = SYS(listen_to(SYS_getppid, SECCOMP_FILTER_FLAG_NEW_LISTENER));
        CHECK_ERR(listen_to(SYS_getpgrp, SECCOMP_FILTER_FLAG_NEW_LISTENER), EBUSY);
        OK(listen_to(SYS_getpgrp, 0));
        CHECK_ERR(ioctl(l, 0x1234, 0), EINVAL);
        char c;
        CHECK_ERR(read(l, &c, 1), EINVAL);
    });
    unsigned action = SECCOMP_RET_USER_NOTIF;
    OK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
}
