// pidfds: readiness, threads, scopes of signals.
#include "t.h"
#include <poll.h>
#include <pthread.h>
#include <linux/sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

static int pollfd(int fd, int ms) {
    struct pollfd f = {fd, POLLIN, 0};
    CHECK(poll(&f, 1, ms) >= 0);
    return f.revents;
}
TEST(pidfd_of_a_reaped_process) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    int fd = SYS((int)syscall(SYS_pidfd_open, p, 0));
    CHECK_EQ(pollfd(fd, 0), 0);
    kill(p, SIGKILL);
    siginfo_t si;
    OK(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
    CHECK_EQ(pollfd(fd, 0), POLLIN);
    int e = SYS(epoll_create1(0));
    struct epoll_event ev = {.events = EPOLLHUP}, got;
    OK(epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev));
    OK(epoll_wait(e, &got, 1, 0));
    t_status(p);
    CHECK_EQ(epoll_wait(e, &got, 1, 5000), 1);
    CHECK_EQ(got.events, EPOLLHUP);
    CHECK_EQ(pollfd(fd, 0), POLLIN | POLLHUP);
    char path[64], text[1024];
    sprintf(path, "/proc/self/fdinfo/%d", fd);
    t_slurp(path, text, sizeof text);
    CHECK(strstr(text, "Pid:\t-1\n"));
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0), ESRCH);
}
// A descriptor that comes from outside of the caller's PID namespace gives no right to signal.
TEST(pidfd_of_another_namespace) {
    int outside = SYS((int)syscall(SYS_pidfd_open, getpid(), 0)), dir = SYS(open("/proc/self", O_RDONLY | O_DIRECTORY));
    OK(syscall(SYS_pidfd_send_signal, outside, 0, 0, 0));
    SYS(unshare(CLONE_NEWPID));
    pid_t p = FORK();
    if (p == 0) {
        CHECK_ERR(syscall(SYS_pidfd_send_signal, outside, 0, 0, 0), EINVAL);
        CHECK_ERR(syscall(SYS_pidfd_send_signal, outside, SIGKILL, 0, 0), EINVAL);
        CHECK_ERR(syscall(SYS_pidfd_send_signal, dir, SIGKILL, 0, 0), EINVAL);
        OK(syscall(SYS_pidfd_send_signal, SYS((int)syscall(SYS_pidfd_open, getpid(), 0)), 0, 0, 0));
        _exit(0);
    }
    int inside = SYS((int)syscall(SYS_pidfd_open, p, 0));
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_ERR(syscall(SYS_pidfd_send_signal, inside, 0, 0, 0), ESRCH);
}
static volatile int tid, leave, got_tid, got_code;
static void *thread(void *x) {
    tid = syscall(SYS_gettid);
    while (!leave) t_ms(1);
    return 0;
}
static void taken(int s, siginfo_t *i, void *u) { got_code = i->si_code, got_tid = syscall(SYS_gettid); }
static int sent(int fd, unsigned flags) {
    got_tid = 0;
    OK(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, 0, flags));
    for (int i = 0; i < 2000 && !got_tid; i++) t_ms(1);
    return got_tid;
}
TEST(pidfd_of_a_thread) {
    pthread_t t;
    OK(pthread_create(&t, 0, thread, 0));
    while (!tid) t_ms(1);
    errno = 0;
    CHECK_EQ(syscall(SYS_pidfd_open, tid, 0), -1);
    int of_thread = SYS((int)syscall(SYS_pidfd_open, tid, O_EXCL)), of_process = SYS((int)syscall(SYS_pidfd_open, getpid(), 0));
    CHECK(fcntl(of_thread, F_GETFL) & O_EXCL);
    CHECK_EQ(fcntl(of_process, F_GETFL) & O_EXCL, 0);
    struct sigaction sa = {.sa_sigaction = taken, .sa_flags = SA_SIGINFO | SA_RESTART};
    SYS(sigaction(SIGUSR1, &sa, 0));
    CHECK_EQ(sent(of_thread, 0), tid);
    CHECK_EQ(got_code, SI_TKILL);
    CHECK_EQ(sent(of_process, 1), getpid());
    CHECK_EQ(got_code, SI_TKILL);
    CHECK(sent(of_thread, 2));
    CHECK_EQ(got_code, SI_USER);
    CHECK_EQ(sent(-10000, 0), getpid());
    CHECK_EQ(got_code, SI_TKILL);
    CHECK(sent(-10001, 0));
    CHECK_EQ(got_code, SI_USER);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, of_process, 0, 0, 3), EINVAL);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, of_process, 0, 0, 8), EINVAL);
    setpgid(0, 0);
    OK(syscall(SYS_pidfd_send_signal, of_process, 0, 0, 4));
    siginfo_t si;
    CHECK_ERR(waitid(P_PIDFD, of_thread, &si, WEXITED), ECHILD);
    CHECK_EQ(pollfd(of_thread, 0), 0);
    leave = 1;
    CHECK_EQ(pollfd(of_thread, 5000), POLLIN | POLLHUP);
    pthread_join(t, 0);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, of_thread, 0, 0, 0), ESRCH);
    CHECK_EQ(pollfd(of_process, 0), 0);
    CHECK_ERR(syscall(SYS_pidfd_open, getpid(), 1), EINVAL);
}
static int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 200; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}
TEST(a_clone_that_fails_leaves_no_pidfd) {
    struct clone_args a = {.flags = CLONE_PIDFD, .pidfd = 8, .exit_signal = SIGCHLD};
    int before = open_files();
    for (int k = 0; k < 20; k++) CHECK_ERR(syscall(SYS_clone3, &a, sizeof a), EFAULT);
    CHECK_EQ(open_files(), before);
    CHECK_ERR(waitpid(-1, 0, WNOHANG), ECHILD);
}
TEST(control_group_of_a_reaped_process) {
    struct {
        unsigned long mask, cgroup;
        unsigned rest[12];
        int exit_code;
        unsigned coredump[3];
    } was = {.mask = 4}, is = {.mask = 8 | 4};
    pid_t p = FORK();
    if (p == 0) _exit(3);
    int fd = SYS((int)syscall(SYS_pidfd_open, p, 0));
    unsigned long request = 0xc040ff0b; // PIDFD_GET_INFO, first version
    OK(ioctl(fd, request, &was));
    CHECK(was.mask & 4);
    t_status(p);
    OK(ioctl(fd, request, &is));
    CHECK_EQ(is.mask, 8 | 4);
    CHECK_EQ(is.cgroup, was.cgroup);
}
