// poll, ppoll, select, pselect, epoll.
#include "t.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>

static void bump(int e) {
    uint64_t v = 1;
    MUST(write(e, &v, 8) == 8);
}
static void drain(int e) {
    uint64_t v;
    MUST(read(e, &v, 8) == 8);
}

TEST(poll_basics) {
    int p[2];
    SYS(pipe(p));
    struct pollfd f[4] = {{p[0], POLLIN, 99}, {p[1], POLLOUT, 99}, {-1, POLLIN, 99}, {999, POLLIN, 99}};
    CHECK_EQ(poll(f, 3, 0), 1);
    CHECK_EQ(f[0].revents, 0);
    CHECK_EQ(f[1].revents, POLLOUT);
    CHECK_EQ(f[2].revents, 0);
    CHECK_EQ(poll(f, 4, -1), 2);
    CHECK_EQ(f[3].revents, POLLNVAL);
    OK(poll(0, 0, 0));
    OK(poll(0, 0, 5));
    OK(poll(f, 1, 10));
    CHECK_ERR(poll(BAD_PTR, 1, 0), EFAULT);
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    CHECK_ERR(syscall(SYS_poll, f, r.rlim_cur + 1, 0), EINVAL);
    int fd = t_file("f", "x");
    struct pollfd g = {fd, POLLIN | POLLOUT | POLLPRI, 0};
    CHECK_EQ(poll(&g, 1, 0), 1);
    CHECK_EQ(g.revents, POLLIN | POLLOUT); // files are always ready
}
TEST(poll_wakes) {
    int e = SYS(eventfd(0, 0));
    pid_t c = FORK();
    if (c == 0) {
        t_ms(5);
        bump(e);
        _exit(0);
    }
    struct pollfd f = {e, POLLIN, 0};
    CHECK_EQ(poll(&f, 1, -1), 1);
    t_status(c);
}
TEST(poll_eintr_and_timeout) {
    t_pester(SA_RESTART);
    CHECK_ERR(poll(0, 0, -1), EINTR); // never restarted
    CHECK_ERR(poll(0, 0, 100000), EINTR);
    CHECK_ERR(select(0, 0, 0, 0, 0), EINTR);
    t_pester_stop();
    long long a = t_now_ms();
    OK(poll(0, 0, 20));
    CHECK(t_now_ms() - a >= 19);
}
static volatile int hits;
static void on(int s) { hits++; }
TEST(ppoll_mask) {
    signal(SIGUSR1, on);
    sigset_t m, e;
    sigemptyset(&e);
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    SYS(sigprocmask(SIG_BLOCK, &m, 0));
    raise(SIGUSR1);
    struct timespec t = {0, 10000000}, bad = {0, 1000000000};
    OK(ppoll(0, 0, &t, 0));
    CHECK_EQ(hits, 0);
    CHECK_ERR(ppoll(0, 0, 0, &e), EINTR);
    CHECK_EQ(hits, 1);
    sigprocmask(SIG_BLOCK, 0, &e);
    CHECK(sigismember(&e, SIGUSR1));
    CHECK_ERR(ppoll(0, 0, &bad, 0), EINVAL);
    CHECK_ERR(syscall(SYS_ppoll, 0, 0, &t, &m, 3), EINVAL);
}
TEST(select_forms) {
    int p[2];
    SYS(pipe(p));
    fd_set r, w, x;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_ZERO(&x);
    FD_SET(p[0], &r), FD_SET(p[1], &w), FD_SET(p[0], &x);
    struct timeval t = {0, 0};
    CHECK_EQ(select(p[1] + 1, &r, &w, &x, &t), 1);
    CHECK(!FD_ISSET(p[0], &r) && FD_ISSET(p[1], &w) && !FD_ISSET(p[0], &x));
    CHECK_EQ(write(p[1], "x", 1), 1);
    FD_SET(p[0], &r);
    CHECK_EQ(select(p[1] + 1, &r, 0, 0, 0), 1);
    CHECK(FD_ISSET(p[0], &r));
    char c;
    CHECK_EQ(read(p[0], &c, 1), 1);
    t = (struct timeval){0, 10000};
    FD_SET(p[0], &r);
    OK(select(p[0] + 1, &r, 0, 0, &t));
    CHECK(!FD_ISSET(p[0], &r));
    CHECK_EQ(t.tv_usec, 0); // Linux says what was left
    FD_ZERO(&r);
    FD_SET(20, &r);
    CHECK_ERR(select(21, &r, 0, 0, &t), EBADF);
    CHECK_ERR(select(-1, 0, 0, 0, &t), EINVAL);
    t = (struct timeval){-1, 0};
    CHECK_ERR(select(0, 0, 0, 0, &t), EINVAL);
    CHECK_ERR(syscall(SYS_select, 1, BAD_PTR, 0, 0, 0), EFAULT);
    close(p[1]);
    FD_ZERO(&r);
    FD_SET(p[0], &r);
    t = (struct timeval){0, 0};
    CHECK_EQ(select(p[0] + 1, &r, 0, 0, &t), 1); // end of file is readable
}
TEST(pselect_mask) {
    signal(SIGUSR1, on);
    sigset_t m, e;
    sigemptyset(&e);
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    SYS(sigprocmask(SIG_BLOCK, &m, 0));
    raise(SIGUSR1);
    CHECK_ERR(pselect(0, 0, 0, 0, 0, &e), EINTR);
    CHECK_EQ(hits, 1);
    struct timespec t = {0, 1000000};
    OK(pselect(0, 0, 0, 0, &t, &e));
}
static int add(int ep, int fd, uint32_t ev) {
    struct epoll_event e = {.events = ev, .data.u64 = 0x100000000ULL | fd};
    return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}
TEST(epoll_level_triggered) {
    int ep = SYS(epoll_create1(EPOLL_CLOEXEC)), e = SYS(eventfd(0, 0));
    struct epoll_event ev[4];
    CHECK_EQ(fcntl(ep, F_GETFD), FD_CLOEXEC);
    OK(add(ep, e, EPOLLIN));
    OK(epoll_wait(ep, ev, 4, 0));
    bump(e);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(epoll_wait(ep, ev, 4, -1), 1);
        CHECK_EQ(ev[0].events, EPOLLIN);
        CHECK_EQ(ev[0].data.u64, 0x100000000ULL | e);
    }
    drain(e);
    OK(epoll_wait(ep, ev, 4, 5));
    struct epoll_event m = {.events = EPOLLOUT};
    OK(epoll_ctl(ep, EPOLL_CTL_MOD, e, &m));
    CHECK_EQ(epoll_wait(ep, ev, 4, 0), 1);
    CHECK_EQ(ev[0].events, EPOLLOUT);
    OK(epoll_ctl(ep, EPOLL_CTL_DEL, e, 0));
    OK(epoll_wait(ep, ev, 4, 0));
}
TEST(epoll_edge_triggered) {
    int ep = SYS(epoll_create1(0)), p[2];
    SYS(pipe2(p, O_NONBLOCK));
    struct epoll_event ev[4];
    OK(add(ep, p[0], EPOLLIN | EPOLLET));
    CHECK_EQ(write(p[1], "ab", 2), 2);
    CHECK_EQ(epoll_wait(ep, ev, 4, 0), 1);
    OK(epoll_wait(ep, ev, 4, 0));
    char c;
    CHECK_EQ(read(p[0], &c, 1), 1);
    OK(epoll_wait(ep, ev, 4, 0));
    CHECK_EQ(write(p[1], "c", 1), 1); // a new edge though it was readable all along
    CHECK_EQ(epoll_wait(ep, ev, 4, 0), 1);
    struct epoll_event m = {.events = EPOLLIN | EPOLLET};
    OK(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &m)); // re-arms
    CHECK_EQ(epoll_wait(ep, ev, 4, 0), 1);
    close(p[1]);
    CHECK_EQ(epoll_wait(ep, ev, 4, 0), 1);
    CHECK(ev[0].events & EPOLLHUP);
}
TEST(epoll_oneshot) {
    int ep = SYS(epoll_create1(0)), e = SYS(eventfd(1, 0));
    struct epoll_event ev[4], m = {.events = EPOLLIN | EPOLLONESHOT};
    OK(add(ep, e, EPOLLIN | EPOLLONESHOT));
    CHECK_EQ(epoll_wait(ep, ev, 4, 0), 1);
    OK(epoll_wait(ep, ev, 4, 0));
    bump(e);
    OK(epoll_wait(ep, ev, 4, 0));
    OK(epoll_ctl(ep, EPOLL_CTL_MOD, e, &m));
    CHECK_EQ(epoll_wait(ep, ev, 4, 0), 1);
}
TEST(epoll_errors) {
    int ep = SYS(epoll_create1(0)), e = SYS(eventfd(0, 0)), fd = t_file("f", "");
    struct epoll_event ev = {.events = EPOLLIN};
    CHECK_ERR(epoll_create1(0x10), EINVAL);
    CHECK_ERR(epoll_create(0), EINVAL);
    OK(add(ep, e, EPOLLIN));
    CHECK_ERR(add(ep, e, EPOLLIN), EEXIST);
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_MOD, SYS(eventfd(0, 0)), &ev), ENOENT);
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_DEL, SYS(eventfd(0, 0)), 0), ENOENT);
    CHECK_ERR(add(ep, fd, EPOLLIN), EPERM); // regular files cannot be watched
    CHECK_ERR(add(ep, 999, EPOLLIN), EBADF);
    CHECK_ERR(add(999, e, EPOLLIN), EBADF);
    CHECK_ERR(add(e, ep, EPOLLIN), EINVAL);
    CHECK_ERR(add(ep, ep, EPOLLIN), EINVAL);
    CHECK_ERR(epoll_ctl(ep, 99, e, &ev), EINVAL);
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_MOD, e, BAD_PTR), EFAULT);
    CHECK_ERR(epoll_wait(ep, &ev, 0, 0), EINVAL);
    CHECK_ERR(epoll_wait(ep, &ev, -1, 0), EINVAL);
    CHECK_ERR(epoll_wait(e, &ev, 1, 0), EINVAL);
    CHECK_ERR(epoll_wait(999, &ev, 1, 0), EBADF);
    bump(e);
    CHECK_ERR(epoll_wait(ep, BAD_PTR, 1, 0), EFAULT);
}
TEST(epoll_nested) {
    int a = SYS(epoll_create1(0)), b = SYS(epoll_create1(0)), e = SYS(eventfd(0, 0));
    struct epoll_event ev;
    OK(add(b, e, EPOLLIN));
    OK(add(a, b, EPOLLIN));
    OK(epoll_wait(a, &ev, 1, 0));
    bump(e);
    CHECK_EQ(epoll_wait(a, &ev, 1, 1000), 1);
    CHECK_EQ(ev.data.u64 & 0xffff, b);
    CHECK_ERR(add(b, a, EPOLLIN), ELOOP);
    struct pollfd p = {a, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    drain(e);
    OK(poll(&p, 1, 0));
    int chain[8];
    chain[0] = SYS(epoll_create1(0));
    int n = 1;
    for (; n < 8; n++) {
        chain[n] = SYS(epoll_create1(0));
        if (add(chain[n], chain[n - 1], EPOLLIN) < 0) break;
    }
    CHECK(n < 8); // too deep
}
TEST(epoll_closed_descriptor_leaves) {
    int ep = SYS(epoll_create1(0)), e = SYS(eventfd(1, 0)), d = SYS(dup(e));
    struct epoll_event ev;
    OK(add(ep, e, EPOLLIN));
    close(e);
    CHECK_EQ(epoll_wait(ep, &ev, 1, 0), 1); // the description is still open through d
    close(d);
    OK(epoll_wait(ep, &ev, 1, 0));
}
TEST(epoll_wakes_and_many) {
    int ep = SYS(epoll_create1(0)), e[50];
    for (int i = 0; i < 50; i++) {
        e[i] = SYS(eventfd(0, 0));
        OK(add(ep, e[i], EPOLLIN));
    }
    pid_t c = FORK();
    if (c == 0) {
        for (int i = 0; i < 50; i++) bump(e[i]);
        _exit(0);
    }
    struct epoll_event ev[8];
    int seen = 0;
    while (seen < 50) {
        int n = SYS(epoll_wait(ep, ev, 8, -1));
        CHECK(n >= 1 && n <= 8);
        for (int i = 0; i < n; i++) {
            drain(ev[i].data.u64 & 0xffff);
            seen++;
        }
    }
    t_status(c);
}
TEST(epoll_fairness) {
    // more are ready than asked for: later calls give the others
    int ep = SYS(epoll_create1(0)), seen[32] = {0};
    for (int i = 0; i < 8; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = i};
        OK(epoll_ctl(ep, EPOLL_CTL_ADD, SYS(eventfd(1, 0)), &e));
    }
    struct epoll_event ev[2];
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(epoll_wait(ep, ev, 2, 0), 2);
        seen[ev[0].data.u64]++, seen[ev[1].data.u64]++;
    }
    for (int i = 0; i < 8; i++) CHECK_EQ(seen[i], 1);
}
TEST(epoll_pwait_forms) {
    signal(SIGUSR1, on);
    sigset_t m, e;
    sigemptyset(&e);
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    SYS(sigprocmask(SIG_BLOCK, &m, 0));
    raise(SIGUSR1);
    int ep = SYS(epoll_create1(0));
    struct epoll_event ev;
    CHECK_ERR(epoll_pwait(ep, &ev, 1, -1, &e), EINTR);
    CHECK_EQ(hits, 1);
    struct timespec t = {0, 1000000};
    OK(syscall(SYS_epoll_pwait2, ep, &ev, 1, &t, 0, 8));
    t_pester(0);
    CHECK_ERR(epoll_wait(ep, &ev, 1, -1), EINTR);
}
TEST(epoll_exclusive) {
    int ep = SYS(epoll_create1(0)), e = SYS(eventfd(0, 0));
    struct epoll_event ev = {.events = EPOLLIN};
    OK(add(ep, e, EPOLLIN | EPOLLEXCLUSIVE));
    CHECK_ERR(epoll_ctl(ep, EPOLL_CTL_MOD, e, &ev), EINVAL);
    int f = SYS(eventfd(0, 0));
    CHECK_ERR(add(ep, f, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT), EINVAL);
    bump(e);
    CHECK_EQ(epoll_wait(ep, &ev, 1, 0), 1);
}
TEST(epoll_rdhup) {
    int s[2], ep = SYS(epoll_create1(0));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    OK(add(ep, s[0], EPOLLIN | EPOLLRDHUP));
    struct epoll_event ev;
    shutdown(s[1], SHUT_WR);
    CHECK_EQ(epoll_wait(ep, &ev, 1, 0), 1);
    CHECK_EQ(ev.events, EPOLLIN | EPOLLRDHUP);
    close(s[1]);
    CHECK_EQ(epoll_wait(ep, &ev, 1, 0), 1);
    CHECK_EQ(ev.events, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
}

// Workers that each have an epoll of their own on one listener, the first one busy. A connection is for one that sleeps.
static void worker(int listener, int mask, int nested, int busy_ms) {
    int ep = SYS(epoll_create1(0)), wait = ep;
    OK(add(ep, listener, mask));
    if (nested) {
        wait = SYS(epoll_create1(0));
        OK(add(wait, ep, EPOLLIN));
    }
    t_ms(busy_ms);
    for (;;) {
        struct epoll_event ev;
        char c;
        if (epoll_wait(wait, &ev, 1, 3000) <= 0) _exit(1);
        if (nested && epoll_wait(ep, &ev, 1, 0) <= 0) continue;
        int s = accept(listener, 0, 0);
        if (s < 0) continue;
        (void)!read(s, &c, 1);
        (void)!write(s, "y", 1);
        close(s);
    }
}
static void exclusive_passes_busy(int mask, int nested) {
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "s"};
    int l = SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)), pids[3];
    OK(bind(l, (void *)&a, sizeof a));
    OK(listen(l, 16));
    for (int i = 0; i < 3; i++) {
        if ((pids[i] = FORK()) == 0) worker(l, mask, nested, i == 0 ? 3000 : 0);
        t_ms(100);
    }
    for (int k = 0; k < 3; k++) {
        long long start = t_now_ms();
        int s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
        char c;
        OK(connect(s, (void *)&a, sizeof a));
        CHECK_EQ(write(s, "x", 1), 1);
        CHECK_EQ(read(s, &c, 1), 1);
        close(s);
        CHECK(t_now_ms() - start < 1000);
    }
    for (int i = 0; i < 3; i++) kill(pids[i], SIGKILL), t_status(pids[i]);
    OK(unlink("s"));
}
TEST(epoll_exclusive_passes_busy_workers) {
    exclusive_passes_busy(EPOLLIN | EPOLLEXCLUSIVE, 0);
}
TEST(epoll_exclusive_passes_busy_workers_edge) {
    exclusive_passes_busy(EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 0);
}
TEST(epoll_exclusive_passes_busy_workers_nested) {
    exclusive_passes_busy(EPOLLIN | EPOLLEXCLUSIVE, 1);
}
TEST(epoll_chains_from_the_top) {
    // However a chain is built, it ends at five.
    for (int up = 0; up < 2; up++) {
        int ep[8];
        for (int i = 0; i < 8; i++) ep[i] = SYS(epoll_create1(0));
        for (int n = 0; n < 6; n++) {
            int i = up ? 6 - n : n;
            int r = add(ep[i], ep[i + 1], EPOLLIN);
            CHECK_EQ(r, n < 4 || n == 5 ? 0 : -1);
            if (r) CHECK_EQ(errno, ELOOP);
        }
        for (int i = 0; i < 8; i++) close(ep[i]);
    }
}
TEST(epoll_long_chains_are_refused) {
    int top = SYS(epoll_create1(0)), at = top, refused = 0;
    for (int i = 0; i < 1000; i++) {
        int next = SYS(epoll_create1(0));
        if (add(at, next, EPOLLIN) < 0) {
            CHECK_EQ(errno, ELOOP);
            refused++;
        }
        at = next;
    }
    CHECK_EQ(refused, 200);
    int e = SYS(eventfd(0, 0));
    OK(add(at, e, EPOLLIN));
    bump(e);
    struct epoll_event ev;
    CHECK_EQ(epoll_wait(at, &ev, 1, 0), 1);
}
