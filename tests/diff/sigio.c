// Signals for readiness: O_ASYNC, F_SETOWN, F_SETSIG and the requests of ioctl(2) that mean the same.
#include "t.h"
#include <poll.h>
#include <pty.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

static volatile int hits, code, fd_of, band;
static void on(int s, siginfo_t *i, void *u) { hits++, code = i->si_code, fd_of = i->si_fd, band = i->si_band; }
static void handle(int sig) {
    struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_RESTART};
    SYS(sigaction(sig, &sa, 0));
    hits = code = fd_of = band = 0;
}
// Waits until a signal has come; 0 when none does.
static int told(void) {
    long long end = t_now_ms() + 5000;
    while (!hits && t_now_ms() < end) t_ms(1);
    int n = hits;
    hits = 0;
    return n > 0;
}
static int untold(void) {
    t_ms(50);
    return hits == 0;
}
static void async(int fd) { OK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC)); }

TEST(pipe_readable) {
    int p[2];
    SYS(pipe(p));
    handle(SIGIO);
    async(p[0]);
    CHECK(fcntl(p[0], F_GETFL) & O_ASYNC);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK(untold()); // nobody owns it
    OK(fcntl(p[0], F_SETOWN, getpid()));
    CHECK_EQ(fcntl(p[0], F_GETOWN), getpid());
    char b[8];
    CHECK_EQ(read(p[0], b, 8), 1);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK(told());
    CHECK_EQ(code, SI_KERNEL);
    OK(fcntl(p[0], F_SETFL, 0));
    CHECK_EQ(read(p[0], b, 8), 1);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK(untold());
}
TEST(chosen_signal_says_which_file) {
    int s[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    handle(SIGRTMIN);
    OK(fcntl(s[0], F_SETSIG, SIGRTMIN));
    CHECK_EQ(fcntl(s[0], F_GETSIG), SIGRTMIN);
    OK(fcntl(s[0], F_SETOWN, getpid()));
    async(s[0]);
    CHECK_EQ(write(s[1], "x", 1), 1);
    CHECK(told());
    CHECK_EQ(code, POLL_IN);
    CHECK_EQ(fd_of, s[0]);
    CHECK_EQ(band, POLLIN | POLLRDNORM);
    char c;
    CHECK_EQ(read(s[0], &c, 1), 1);
    t_ms(20);
    hits = 0;
    close(s[1]);
    CHECK(told());
    CHECK_EQ(code, POLL_HUP);
    CHECK_EQ(band, POLLHUP | POLLERR);
}
TEST(room_in_a_pipe) {
    int p[2];
    SYS(pipe2(p, O_NONBLOCK));
    char b[4096] = {0};
    while (write(p[1], b, sizeof b) > 0) {}
    handle(SIGRTMIN);
    OK(fcntl(p[1], F_SETSIG, SIGRTMIN));
    OK(fcntl(p[1], F_SETOWN, getpid()));
    async(p[1]);
    CHECK_EQ(read(p[0], b, sizeof b), sizeof b);
    CHECK(told());
    CHECK_EQ(code, POLL_OUT);
    CHECK_EQ(band, POLLOUT | POLLWRNORM | POLLWRBAND);
}
TEST(accepting_and_datagrams) {
    int s[2];
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    handle(SIGIO);
    int pid = getpid(), on_ = 1, who = 0;
    OK(ioctl(s[0], FIOSETOWN, &pid));
    OK(ioctl(s[0], FIOASYNC, &on_));
    CHECK(fcntl(s[0], F_GETFL) & O_ASYNC);
    OK(ioctl(s[0], FIOGETOWN, &who));
    CHECK_EQ(who, pid);
    CHECK_EQ(send(s[1], "x", 1, 0), 1);
    CHECK(told());
    who = -getpgrp();
    OK(ioctl(s[0], SIOCSPGRP, &who));
    CHECK_EQ(fcntl(s[0], F_GETOWN), -getpgrp());
    who = 0;
    OK(ioctl(s[0], SIOCGPGRP, &who));
    CHECK_EQ(who, -getpgrp());
    who = 3999999;
    CHECK_ERR(ioctl(s[0], FIOSETOWN, &who), ESRCH);
    CHECK_ERR(ioctl(s[0], FIOSETOWN, BAD_PTR), EFAULT);
    int p[2];
    SYS(pipe(p));
    CHECK_ERR(ioctl(p[0], FIOSETOWN, &pid), ENOTTY);
}
TEST(owner_is_a_group_or_a_thread) {
    int p[2];
    SYS(pipe(p));
    struct t_gate ready = t_gate(), go = t_gate();
    handle(SIGIO);
    pid_t q = FORK();
    if (q == 0) {
        t_open(ready);
        CHECK(told());
        t_open(go);
        _exit(0);
    }
    t_pass(ready);
    OK(fcntl(p[0], F_SETOWN, -getpgrp()));
    async(p[0]);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK(told());
    t_pass(go);
    CHECK_STATUS(t_status(q), "exit 0");
    struct f_owner_ex o = {F_OWNER_TID, syscall(SYS_gettid)}, got;
    OK(fcntl(p[0], F_SETOWN_EX, &o));
    OK(fcntl(p[0], F_GETOWN_EX, &got));
    CHECK_EQ(got.type, F_OWNER_TID);
    CHECK_EQ(got.pid, o.pid);
    char b[8];
    CHECK_EQ(read(p[0], b, 8), 1);
    hits = 0;
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK(told());
}
TEST(who_set_the_owner_must_be_allowed_to_signal) {
    int p[2];
    SYS(pipe(p));
    handle(SIGIO);
    pid_t parent = getpid();
    CHECK_CHILD(SYS(setuid(1000)); OK(fcntl(p[0], F_SETOWN, parent)); async(p[0]));
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK(untold());
}
TEST(terminal_has_an_owner) {
    int m, s;
    SYS(openpty(&m, &s, 0, 0, 0));
    handle(SIGIO);
    OK(fcntl(s, F_GETOWN));
    async(s);
    CHECK_EQ(fcntl(s, F_GETOWN), getpid());
    CHECK_EQ(write(m, "x\n", 2), 2);
    CHECK(told());
}
TEST(inotify_events) {
    int i = SYS(inotify_init());
    SYS(inotify_add_watch(i, ".", IN_CREATE));
    handle(SIGIO);
    OK(fcntl(i, F_SETOWN, getpid()));
    async(i);
    t_make("a", "");
    CHECK(told());
}
TEST(files_without_signals) {
    int f = t_file("a", "text");
    handle(SIGIO);
    OK(fcntl(f, F_SETOWN, getpid()));
    async(f);
    CHECK_EQ(fcntl(f, F_GETFL) & O_ASYNC, 0);
    CHECK_EQ(write(f, "x", 1), 1);
    CHECK(untold());
}
#define MULTISHOT ((int)DN_MULTISHOT)
static int notify(int fd, int what) {
    OK(fcntl(fd, F_SETSIG, SIGRTMIN));
    return fcntl(fd, F_NOTIFY, what);
}
TEST(directory_changes) {
    handle(SIGRTMIN);
    int d = SYS(open(".", O_RDONLY | O_DIRECTORY));
    t_make("before", "x");
    OK(notify(d, DN_CREATE | MULTISHOT));
    CHECK_EQ(fcntl(d, F_GETOWN), getpid());
    t_make("a", "x");
    CHECK(told());
    CHECK_EQ(fd_of, d);
    SYS(mkdir("sub", 0755));
    CHECK(told());
    SYS(chmod("a", 0600));
    SYS(unlink("before"));
    CHECK(untold());
    SYS(rename("a", "sub/a"));
    CHECK(untold());
    SYS(rename("sub/a", "a"));
    CHECK(told());
    // A second request adds to the first.
    OK(notify(d, DN_DELETE | DN_ATTRIB | MULTISHOT));
    SYS(chmod("a", 0644));
    CHECK(told());
    SYS(unlink("a"));
    CHECK(told());
    OK(notify(d, 0));
    t_make("b", "x");
    CHECK(untold());
}
TEST(directory_changes_once) {
    handle(SIGRTMIN);
    int d = SYS(open(".", O_RDONLY | O_DIRECTORY));
    OK(notify(d, DN_MODIFY));
    int f = t_file("f", "x");
    CHECK(told());
    CHECK_EQ(write(f, "y", 1), 1);
    CHECK(untold());
    OK(notify(d, DN_RENAME));
    SYS(rename("f", "g"));
    CHECK(told());
    SYS(rename("g", "f"));
    CHECK(untold());
    // Only a rename inside the directory is one.
    OK(notify(d, DN_RENAME | MULTISHOT));
    SYS(mkdir("sub", 0755));
    SYS(rename("f", "sub/f"));
    SYS(rename("sub/f", "f"));
    CHECK(untold());
    OK(notify(d, 0));
    // A directory that is closed tells nobody.
    OK(notify(d, DN_CREATE | MULTISHOT));
    close(d);
    t_make("h", "");
    CHECK(untold());
    CHECK_ERR(fcntl(f, F_NOTIFY, DN_CREATE), ENOTDIR);
}
