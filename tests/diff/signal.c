// Signals: sigaction and its flags, masks, pending sets, queueing and order, waiting, sending and who may.
#include "t.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static volatile int hits, last, order[64];
static volatile siginfo_t info;
static void on(int s) {
    last = s;
    if (hits < 64) order[hits] = s;
    hits++;
}
static void on_info(int s, siginfo_t *i, void *c) {
    (void)c;
    memcpy((void *)&info, i, sizeof info);
    on(s);
}
static void act(int s, void *h, int flags) {
    struct sigaction sa = {.sa_flags = flags};
    if (flags & SA_SIGINFO) sa.sa_sigaction = h;
    else sa.sa_handler = h;
    SYS(sigaction(s, &sa, 0));
}
static sigset_t set(int a, int b) {
    sigset_t s;
    sigemptyset(&s);
    if (a) sigaddset(&s, a);
    if (b) sigaddset(&s, b);
    return s;
}
static void block(int a, int b) {
    sigset_t s = set(a, b);
    SYS(sigprocmask(SIG_BLOCK, &s, 0));
}
static void unblock(int a, int b) {
    sigset_t s = set(a, b);
    SYS(sigprocmask(SIG_UNBLOCK, &s, 0));
}
static int queue(pid_t p, int sig, int v) { return sigqueue(p, sig, (union sigval){.sival_int = v}); }

TEST(handler_runs_before_kill_returns) {
    act(SIGUSR1, on, 0);
    OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(hits, 1);
    CHECK_EQ(last, SIGUSR1);
}
TEST(sigaction_errors) {
    struct sigaction sa = {.sa_handler = on};
    CHECK_ERR(sigaction(SIGKILL, &sa, 0), EINVAL);
    CHECK_ERR(sigaction(SIGSTOP, &sa, 0), EINVAL);
    OK(sigaction(SIGKILL, 0, &sa));
    CHECK_ERR(syscall(SYS_rt_sigaction, 0, 0, 0, 8), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, 65, 0, 0, 8), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, -1, 0, 0, 8), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, 0, 0, 4), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, BAD_PTR, 0, 8), EFAULT);
    CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, 0, BAD_PTR, 8), EFAULT);
}
TEST(sigaction_reads_back) {
    struct sigaction sa = {.sa_handler = on, .sa_flags = SA_RESTART | SA_NODEFER | SA_ONSTACK | SA_NOCLDSTOP}, old = {0};
    sigemptyset(&sa.sa_mask);
    sigaddset(&sa.sa_mask, SIGUSR2);
    sigaddset(&sa.sa_mask, 64);
    sigaddset(&sa.sa_mask, SIGKILL);
    SYS(sigaction(SIGUSR1, &sa, &old));
    CHECK(old.sa_handler == SIG_DFL);
    SYS(sigaction(SIGUSR1, 0, &old));
    CHECK(old.sa_handler == on);
    CHECK_EQ(old.sa_flags & ~0x04000000, SA_RESTART | SA_NODEFER | SA_ONSTACK | SA_NOCLDSTOP);
    CHECK(sigismember(&old.sa_mask, SIGUSR2) && sigismember(&old.sa_mask, 64));
    CHECK(!sigismember(&old.sa_mask, SIGKILL));
}
TEST(sigaction_unknown_flags_are_dropped) {
    struct {
        void *h;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } k = {SIG_IGN, 0x400 | 0x800 | SA_RESTART | 0x1000, 0, 0}, o = {0};
    OK(syscall(SYS_rt_sigaction, SIGUSR1, &k, 0, 8));
    OK(syscall(SYS_rt_sigaction, SIGUSR1, 0, &o, 8));
    CHECK_EQ(o.flags, SA_RESTART | 0x800); // 0x400 is SA_UNSUPPORTED, 0x800 SA_EXPOSE_TAGBITS
}
static void nest(int s) {
    hits++;
    if (hits == 1) {
        raise(s);
        CHECK_EQ(hits, last ? 2 : 1);
    }
}
TEST(sa_nodefer) {
    last = 0; // without it the second one waits until the handler is done
    act(SIGUSR1, nest, 0);
    raise(SIGUSR1);
    CHECK_EQ(hits, 2);
    hits = 0, last = 1;
    act(SIGUSR1, nest, SA_NODEFER);
    raise(SIGUSR1);
    CHECK_EQ(hits, 2);
}
TEST(sa_resethand) {
    act(SIGUSR1, on, SA_RESETHAND);
    raise(SIGUSR1);
    CHECK_EQ(hits, 1);
    struct sigaction sa;
    SYS(sigaction(SIGUSR1, 0, &sa));
    CHECK(sa.sa_handler == SIG_DFL);
    CHECK_STATUS(CHILD(raise(SIGUSR1)), "signal 10");
}
static void mask_seen(int s) {
    (void)s;
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    CHECK(sigismember(&m, SIGUSR1));
    CHECK(sigismember(&m, SIGUSR2));
    CHECK(!sigismember(&m, SIGHUP));
    raise(SIGUSR2);
    CHECK_EQ(hits, 0);
}
TEST(sa_mask_blocks_during_handler) {
    struct sigaction sa = {.sa_handler = mask_seen};
    sa.sa_mask = set(SIGUSR2, 0);
    SYS(sigaction(SIGUSR1, &sa, 0));
    act(SIGUSR2, on, 0);
    raise(SIGUSR1);
    CHECK_EQ(hits, 1);
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    CHECK(!sigismember(&m, SIGUSR1) && !sigismember(&m, SIGUSR2));
}
static int rfd, wfd;
static void restart_handler(int s) {
    (void)s;
    if (++hits == 3) CHECK_EQ(write(wfd, "x", 1), 1);
}
static void pester(void *h, int flags) {
    struct sigaction sa = {.sa_handler = h, .sa_flags = flags};
    SYS(sigaction(SIGALRM, &sa, 0));
    struct itimerval it = {{0, 5000}, {0, 5000}};
    SYS(setitimer(ITIMER_REAL, &it, 0));
}
TEST(sa_restart_read) {
    int p[2];
    SYS(pipe(p));
    rfd = p[0], wfd = p[1];
    pester(restart_handler, SA_RESTART);
    char c;
    CHECK_EQ(read(rfd, &c, 1), 1);
    CHECK(hits >= 3);
    pester(t_on_alarm, 0);
    CHECK_ERR(read(rfd, &c, 1), EINTR);
}
TEST(sa_restart_write) {
    int p[2];
    SYS(pipe(p));
    static char b[65536];
    CHECK_EQ(write(p[1], b, 65536), 65536);
    pester(t_on_alarm, 0);
    CHECK_ERR(write(p[1], b, 1), EINTR);
    // after part of it is written the count is the answer
    SYS(read(p[0], b, 65536));
    static char big[200000];
    int n = write(p[1], big, sizeof big);
    CHECK(n > 0 && n < (int)sizeof big);
}
TEST(sa_restart_does_not_restart_these) {
    pester(t_on_alarm, SA_RESTART);
    CHECK_ERR(pause(), EINTR);
    struct timespec ts = {100, 0}, rem = {0};
    CHECK_ERR(nanosleep(&ts, &rem), EINTR);
    CHECK(rem.tv_sec >= 90);
    sigset_t s = set(SIGUSR1, 0), e = set(0, 0);
    CHECK_ERR(sigsuspend(&e), EINTR);
    CHECK_ERR(sigtimedwait(&s, 0, &ts), EINTR);
}
TEST(sa_restart_wait) {
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_pass(g);
        _exit(3);
    }
    wfd = g.w;
    pester(restart_handler, SA_RESTART);
    int st;
    CHECK_EQ(waitpid(p, &st, 0), p);
    CHECK_STATUS(st, "exit 3");
}
TEST(ignored_signals_do_not_interrupt) {
    signal(SIGALRM, SIG_IGN);
    struct itimerval it = {{0, 3000}, {0, 3000}};
    SYS(setitimer(ITIMER_REAL, &it, 0));
    struct timespec ts = {0, 40000000};
    OK(nanosleep(&ts, 0));
}
TEST(sigprocmask_forms) {
    sigset_t old, a = set(SIGUSR1, SIGHUP), b = set(SIGUSR1, 0), k = set(SIGKILL, SIGSTOP);
    OK(sigprocmask(SIG_SETMASK, &a, 0));
    OK(sigprocmask(SIG_UNBLOCK, &b, &old));
    CHECK(sigismember(&old, SIGUSR1) && sigismember(&old, SIGHUP));
    OK(sigprocmask(SIG_BLOCK, &k, &old));
    CHECK(!sigismember(&old, SIGUSR1) && sigismember(&old, SIGHUP));
    OK(sigprocmask(SIG_BLOCK, 0, &old));
    CHECK(!sigismember(&old, SIGKILL) && !sigismember(&old, SIGSTOP));
    unsigned long m = 0;
    CHECK_ERR(syscall(SYS_rt_sigprocmask, 7, &m, 0, 8), EINVAL);
    OK(syscall(SYS_rt_sigprocmask, 7, 0, 0, 8));
    CHECK_ERR(syscall(SYS_rt_sigprocmask, 0, &m, 0, 4), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigprocmask, 0, BAD_PTR, 0, 8), EFAULT);
    CHECK_ERR(syscall(SYS_rt_sigprocmask, 0, 0, BAD_PTR, 8), EFAULT);
}
TEST(sigpending_shows_blocked) {
    sigset_t p;
    block(SIGUSR1, SIGRTMIN);
    OK(sigpending(&p));
    CHECK(!sigismember(&p, SIGUSR1));
    raise(SIGUSR1);
    kill(getpid(), SIGRTMIN);
    OK(sigpending(&p));
    CHECK(sigismember(&p, SIGUSR1) && sigismember(&p, SIGRTMIN) && !sigismember(&p, SIGUSR2));
    signal(SIGUSR1, SIG_IGN); // ignoring discards it
    OK(sigpending(&p));
    CHECK(!sigismember(&p, SIGUSR1));
    CHECK_ERR(syscall(SYS_rt_sigpending, BAD_PTR, 8), EFAULT);
    CHECK_ERR(syscall(SYS_rt_sigpending, &p, 9), EINVAL);
}
TEST(standard_signals_collapse) {
    act(SIGUSR1, on, 0);
    block(SIGUSR1, 0);
    for (int i = 0; i < 5; i++) kill(getpid(), SIGUSR1);
    unblock(SIGUSR1, 0);
    CHECK_EQ(hits, 1);
}
static volatile int values[64], nvalues;
static void on_value(int s, siginfo_t *i, void *c) {
    (void)c;
    if (nvalues < 64) values[nvalues++] = s * 1000 + i->si_value.sival_int;
    CHECK_EQ(i->si_code, SI_QUEUE);
    CHECK_EQ(i->si_pid, getpid());
    CHECK_EQ(i->si_uid, getuid());
}
TEST(realtime_signals_queue_in_order) {
    struct sigaction sa = {.sa_sigaction = on_value, .sa_flags = SA_SIGINFO};
    sigfillset(&sa.sa_mask);
    SYS(sigaction(40, &sa, 0));
    SYS(sigaction(41, &sa, 0));
    block(40, 41);
    for (int i = 0; i < 5; i++) {
        OK(queue(getpid(), 41, i));
        OK(queue(getpid(), 40, i));
    }
    unblock(40, 41);
    CHECK_EQ(nvalues, 10);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(values[i], 40000 + i);
        CHECK_EQ(values[5 + i], 41000 + i);
    }
}
TEST(lowest_number_first) {
    struct sigaction sa = {.sa_handler = on};
    sigfillset(&sa.sa_mask);
    int s[] = {50, SIGUSR2, SIGTERM, SIGHUP, 35};
    sigset_t all;
    sigfillset(&all);
    SYS(sigprocmask(SIG_SETMASK, &all, 0));
    for (int i = 0; i < 5; i++) {
        SYS(sigaction(s[i], &sa, 0));
        SYS(kill(getpid(), s[i]));
    }
    sigemptyset(&all);
    SYS(sigprocmask(SIG_SETMASK, &all, 0));
    CHECK_EQ(hits, 5);
    CHECK_EQ(order[0], SIGHUP);
    CHECK_EQ(order[1], SIGUSR2);
    CHECK_EQ(order[2], SIGTERM);
    CHECK_EQ(order[3], 35);
    CHECK_EQ(order[4], 50);
}
TEST(synchronous_signals_first) {
    struct sigaction sa = {.sa_handler = on};
    sigfillset(&sa.sa_mask);
    sigset_t all;
    sigfillset(&all);
    SYS(sigprocmask(SIG_SETMASK, &all, 0));
    int s[] = {SIGHUP, SIGSEGV};
    for (int i = 0; i < 2; i++) {
        SYS(sigaction(s[i], &sa, 0));
        SYS(raise(s[i]));
    }
    sigemptyset(&all);
    SYS(sigprocmask(SIG_SETMASK, &all, 0));
    CHECK_EQ(order[0], SIGSEGV);
    CHECK_EQ(order[1], SIGHUP);
}
TEST(queue_limit) {
    struct rlimit r = {8, 8};
    CHECK_CHILD(SYS(setrlimit(RLIMIT_SIGPENDING, &r)); block(40, 0); int n = 0; while (n < 100 && queue(getpid(), 40, n) == 0) n++;
                CHECK_EQ(errno, EAGAIN); CHECK(n <= 8));
}
TEST(sigtimedwait_forms) {
    sigset_t s = set(SIGUSR1, 40);
    block(SIGUSR1, 40);
    struct timespec zero = {0, 0}, small = {0, 20000000}, bad = {0, 1000000000};
    siginfo_t i = {0};
    CHECK_ERR(sigtimedwait(&s, &i, &zero), EAGAIN);
    CHECK_ERR(sigtimedwait(&s, &i, &small), EAGAIN);
    CHECK_ERR(sigtimedwait(&s, &i, &bad), EINVAL);
    queue(getpid(), 40, 7);
    raise(SIGUSR1);
    CHECK_EQ(syscall(SYS_rt_sigtimedwait, &s, &i, 0, 8), SIGUSR1); // the C library edits the code
    CHECK_EQ(i.si_code, SI_TKILL);
    CHECK_EQ(sigtimedwait(&s, &i, &zero), 40);
    CHECK_EQ(i.si_value.sival_int, 7);
    CHECK_EQ(i.si_code, SI_QUEUE);
    CHECK_ERR(sigtimedwait(&s, &i, &zero), EAGAIN);
    CHECK_ERR(syscall(SYS_rt_sigtimedwait, &s, 0, &zero, 3), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigtimedwait, BAD_PTR, 0, &zero, 8), EFAULT);
}
TEST(sigwaitinfo_blocks_until_sent) {
    sigset_t s = set(SIGUSR1, 0);
    block(SIGUSR1, 0);
    pid_t me = getpid(), p = FORK();
    if (p == 0) {
        t_ms(10);
        kill(me, SIGUSR1);
        _exit(0);
    }
    siginfo_t i;
    CHECK_EQ(sigwaitinfo(&s, &i), SIGUSR1);
    CHECK_EQ(i.si_code, SI_USER);
    CHECK_EQ(i.si_pid, p);
    CHECK_EQ(i.si_uid, getuid());
    t_status(p);
}
TEST(sigsuspend_swaps_mask) {
    act(SIGUSR1, on, 0);
    act(SIGUSR2, on, 0);
    block(SIGUSR1, SIGUSR2);
    raise(SIGUSR1);
    sigset_t m = set(SIGUSR2, 0), now;
    raise(SIGUSR2);
    CHECK_ERR(sigsuspend(&m), EINTR);
    CHECK_EQ(hits, 1);
    CHECK_EQ(last, SIGUSR1);
    sigprocmask(SIG_BLOCK, 0, &now);
    CHECK(sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2));
}
TEST(siginfo_of_kill_tkill_queue) {
    act(SIGUSR1, on_info, SA_SIGINFO);
    kill(getpid(), SIGUSR1);
    CHECK_EQ(info.si_signo, SIGUSR1);
    CHECK_EQ(info.si_code, SI_USER);
    CHECK_EQ(info.si_pid, getpid());
    CHECK_EQ(info.si_uid, getuid());
    OK(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
    CHECK_EQ(info.si_code, SI_TKILL);
    CHECK_EQ(info.si_pid, getpid());
    OK(syscall(SYS_tkill, gettid(), SIGUSR1));
    CHECK_EQ(info.si_code, SI_TKILL);
    OK(queue(getpid(), SIGUSR1, 99));
    CHECK_EQ(info.si_code, SI_QUEUE);
    CHECK_EQ(info.si_value.sival_int, 99);
    siginfo_t mine = {.si_code = -77, .si_pid = 12345};
    OK(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &mine));
    CHECK_EQ(info.si_code, -77);
    CHECK_EQ(info.si_pid, 12345);
    mine.si_code = -78;
    OK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGUSR1, &mine));
    CHECK_EQ(info.si_code, -78);
}
TEST(sigqueue_cannot_forge) {
    siginfo_t i = {.si_code = SI_USER};
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, p, SIGUSR1, &i), EPERM);
    i.si_code = SI_KERNEL;
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, p, SIGUSR1, &i), EPERM);
    i.si_code = SI_TKILL;
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, p, SIGUSR1, &i), EPERM);
    i.si_code = SI_QUEUE;
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, p, 99, &i), EINVAL);
    CHECK_ERR(syscall(SYS_rt_sigqueueinfo, p, SIGUSR1, BAD_PTR), EFAULT);
    OK(syscall(SYS_rt_sigqueueinfo, p, SIGKILL, &i));
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(kill_errors) {
    CHECK_ERR(kill(1 << 22, 0), ESRCH);
    CHECK_ERR(kill(getpid(), 65), EINVAL);
    CHECK_ERR(kill(getpid(), -1), EINVAL);
    CHECK_ERR(kill(-(1 << 22), SIGTERM), ESRCH);
    CHECK_ERR(kill(INT_MIN, SIGTERM), ESRCH);
    OK(kill(getpid(), 0));
    OK(kill(0, 0));
    OK(kill(-getpgrp(), 0));
    CHECK_ERR(syscall(SYS_tkill, 1 << 22, 0), ESRCH);
    CHECK_ERR(syscall(SYS_tkill, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_tkill, -1, 0), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, -1, gettid(), 0), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, getpid(), 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_tgkill, getppid(), gettid(), 0), ESRCH);
    CHECK_ERR(syscall(SYS_tgkill, getpid(), gettid(), 65), EINVAL);
}
TEST(kill_process_group) {
    struct t_gate g = t_gate();
    pid_t a = FORK();
    if (a == 0) {
        setpgid(0, 0);
        pid_t b = FORK();
        if (b == 0) {
            t_open(g);
            for (;;) pause();
        }
        int st = t_status(b);
        _exit(WTERMSIG(st));
    }
    t_pass(g);
    signal(SIGTERM, SIG_IGN);
    // a handles it, its child does not
    kill(-a, SIGUSR2);
    int st = t_status(a);
    CHECK(WIFSIGNALED(st) || WEXITSTATUS(st) == SIGUSR2);
}
TEST(kill_permission) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(kill(p, 0), EPERM); CHECK_ERR(kill(p, SIGTERM), EPERM));
    CHECK_CHILD(SYS(setuid(1000)); OK(kill(p, SIGCONT))); // within the session it is allowed
    CHECK_CHILD(SYS(setsid()); SYS(setuid(1000)); CHECK_ERR(kill(p, SIGCONT), EPERM));
    CHECK_CHILD(SYS(setresuid(1000, 0, 0)); OK(kill(p, 0)));
    kill(p, SIGKILL);
    t_status(p);
}
TEST(kill_same_uid) {
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        SYS(setuid(1000));
        t_open(g);
        for (;;) pause();
    }
    t_pass(g);
    CHECK_CHILD(SYS(setuid(1001)); CHECK_ERR(kill(p, SIGTERM), EPERM));
    CHECK_CHILD(SYS(setresuid(1001, 1000, 1001)); OK(kill(p, 0)));
    CHECK_CHILD(SYS(setuid(1000)); OK(kill(p, SIGTERM)));
    CHECK_STATUS(t_status(p), "signal 15");
}
TEST(default_actions) {
    int ign[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT};
    for (int i = 0; i < 4; i++) CHECK_STATUS(CHILD(raise(ign[i])), "exit 0");
    int stop[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGSTOP};
    for (int i = 0; i < 4; i++) {
        pid_t p = FORK();
        if (p == 0) {
            raise(stop[i]);
            _exit(5);
        }
        int st;
        CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == stop[i]);
        kill(p, SIGCONT);
        CHECK_STATUS(t_status(p), "exit 5");
    }
}
TEST(stop_signals_ignored_in_orphaned_group) {
    struct t_gate g = t_gate();
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    pid_t p = FORK();
    if (p == 0) {
        setsid();
        pid_t q = FORK();
        if (q == 0) {
            t_pass(g); // our parent is gone, and with it the group's tie to its session
            raise(SIGTSTP);
            _exit(7);
        }
        _exit(0);
    }
    t_status(p);
    t_open(g);
    int st;
    CHECK(wait(&st) > 0);
    CHECK_STATUS(st, "exit 7");
}
TEST(sigcont_discards_stops_and_back) {
    act(SIGCONT, on, 0);
    block(SIGTSTP, SIGCONT);
    sigset_t p;
    raise(SIGTSTP);
    raise(SIGCONT);
    sigpending(&p);
    CHECK(!sigismember(&p, SIGTSTP) && sigismember(&p, SIGCONT));
    raise(SIGTSTP);
    sigpending(&p);
    CHECK(sigismember(&p, SIGTSTP) && !sigismember(&p, SIGCONT));
}
TEST(sigcont_runs_handler_after_stop) {
    int p[2];
    SYS(pipe(p));
    pid_t c = FORK();
    if (c == 0) {
        act(SIGCONT, on, 0);
        raise(SIGSTOP);
        CHECK_EQ(hits, 1);
        _exit(0);
    }
    int st;
    CHECK_EQ(waitpid(c, &st, WUNTRACED), c);
    kill(c, SIGCONT);
    CHECK_STATUS(t_status(c), "exit 0");
}
TEST(sa_nocldstop) {
    act(SIGCHLD, on_info, SA_SIGINFO | SA_RESTART);
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    int st;
    kill(p, SIGSTOP);
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    while (!hits) t_ms(1); // it may come a little after the status
    CHECK_EQ(hits, 1);
    CHECK_EQ(info.si_code, CLD_STOPPED);
    CHECK_EQ(info.si_status, SIGSTOP);
    CHECK_EQ(info.si_pid, p);
    kill(p, SIGCONT);
    CHECK_EQ(waitpid(p, &st, WCONTINUED), p);
    while (info.si_code != CLD_CONTINUED) t_ms(1); // it may come a little after the status
    int before = hits;
    act(SIGCHLD, on_info, SA_SIGINFO | SA_NOCLDSTOP | SA_RESTART);
    kill(p, SIGSTOP);
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    CHECK_EQ(hits, before);
    kill(p, SIGKILL);
    CHECK_STATUS(t_status(p), "signal 9");
    CHECK_EQ(info.si_code, CLD_KILLED);
    CHECK_EQ(info.si_status, SIGKILL);
}
TEST(sigpipe) {
    int p[2];
    SYS(pipe(p));
    close(p[0]);
    CHECK_STATUS(CHILD(write(p[1], "x", 1) < 0 ? _exit(1) : _exit(2)), "signal 13");
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERR(write(p[1], "x", 1), EPIPE);
}
static volatile pid_t handled_by;
static void on_tid(int s) { (void)s, handled_by = gettid(), hits++; }
static volatile int stop_thread;
static void *blocked_thread(void *a) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    t_open(*(struct t_gate *)a);
    while (!stop_thread) t_ms(1);
    return 0;
}
TEST(process_signal_goes_to_a_thread_that_can_take_it) {
    act(SIGUSR1, on_tid, 0);
    struct t_gate g = t_gate();
    pthread_t t;
    pthread_create(&t, 0, blocked_thread, &g);
    t_pass(g);
    for (int i = 0; i < 20; i++) {
        kill(getpid(), SIGUSR1);
        CHECK_EQ(handled_by, gettid());
    }
    CHECK_EQ(hits, 20);
    stop_thread = 1;
    pthread_join(t, 0);
}
static volatile pid_t other_tid;
static void *open_thread(void *a) {
    other_tid = gettid();
    t_open(*(struct t_gate *)a);
    while (!stop_thread) t_ms(1);
    return 0;
}
TEST(process_signal_goes_to_the_other_thread) {
    act(SIGUSR1, on_tid, SA_RESTART);
    struct t_gate g = t_gate();
    pthread_t t;
    pthread_create(&t, 0, open_thread, &g);
    t_pass(g);
    block(SIGUSR1, 0);
    kill(getpid(), SIGUSR1);
    while (!hits) t_ms(1);
    CHECK_EQ(handled_by, other_tid);
    stop_thread = 1;
    pthread_join(t, 0);
}
TEST(thread_signal_is_that_threads) {
    act(SIGUSR1, on_tid, SA_RESTART);
    struct t_gate g = t_gate();
    pthread_t t;
    pthread_create(&t, 0, open_thread, &g);
    t_pass(g);
    OK(pthread_kill(t, SIGUSR1));
    while (!hits) t_ms(1);
    CHECK_EQ(handled_by, other_tid);
    block(SIGUSR1, 0);
    sigset_t p;
    raise(SIGUSR1);
    CHECK_EQ(hits, 1);
    sigpending(&p);
    CHECK(sigismember(&p, SIGUSR1));
    stop_thread = 1;
    pthread_join(t, 0);
}
TEST(fatal_signal_to_thread_kills_process) {
    CHECK_STATUS(CHILD(struct t_gate g = t_gate(); pthread_t t; pthread_create(&t, 0, open_thread, &g); t_pass(g);
                       syscall(SYS_tgkill, getpid(), other_tid, SIGTERM); for (;;) pause()),
                 "signal 15");
}
TEST(stop_stops_all_threads) {
    int *counter = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t p = FORK();
    if (p == 0) {
        void *spin(void *a) {
            for (;;) __atomic_add_fetch((int *)a, 1, __ATOMIC_RELAXED), sched_yield();
        }
        pthread_t t;
        pthread_create(&t, 0, spin, counter);
        for (;;) pause();
    }
    while (!__atomic_load_n(counter, __ATOMIC_RELAXED)) t_ms(1);
    kill(p, SIGSTOP);
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    int seen = __atomic_load_n(counter, __ATOMIC_RELAXED);
    t_ms(20);
    CHECK_EQ(__atomic_load_n(counter, __ATOMIC_RELAXED), seen);
    kill(p, SIGCONT);
    while (__atomic_load_n(counter, __ATOMIC_RELAXED) == seen) t_ms(1);
    kill(p, SIGKILL);
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(kill_while_spinning) {
    // no system call in sight: the signal must reach running code
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_open(g);
        for (;;) __asm__ volatile("pause");
    }
    t_pass(g);
    kill(p, SIGTERM);
    CHECK_STATUS(t_status(p), "signal 15");
}
static volatile int flag;
static void set_flag(int s) { (void)s, flag = 1; }
TEST(handler_while_spinning) {
    struct sigaction sa = {.sa_handler = set_flag};
    SYS(sigaction(SIGALRM, &sa, 0));
    struct itimerval it = {{0, 0}, {0, 5000}};
    SYS(setitimer(ITIMER_REAL, &it, 0));
    while (!flag) {}
    CHECK_EQ(flag, 1);
}
TEST(many_signals_both_ways) {
    // two processes send each other 500 signals, each waiting for the other's
    pid_t me = getpid();
    block(SIGUSR1, 0);
    sigset_t s = set(SIGUSR1, 0);
    pid_t p = FORK();
    if (p == 0) {
        for (int i = 0; i < 500; i++) {
            CHECK_EQ(sigwaitinfo(&s, 0), SIGUSR1);
            SYS(kill(me, SIGUSR1));
        }
        _exit(0);
    }
    for (int i = 0; i < 500; i++) {
        SYS(kill(p, SIGUSR1));
        CHECK_EQ(sigwaitinfo(&s, 0), SIGUSR1);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
static sigjmp_buf jb;
static void do_longjmp(int s) { (void)s, siglongjmp(jb, 5); }
TEST(leave_handler_with_longjmp) {
    act(SIGUSR1, do_longjmp, 0);
    volatile int n = 0;
    int v = sigsetjmp(jb, 1);
    if (n++ < 3) {
        CHECK_EQ(v, n == 1 ? 0 : 5);
        raise(SIGUSR1);
        CHECK(!"not reached");
    }
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    CHECK(!sigismember(&m, SIGUSR1));
}
TEST(errno_kept_across_handlers) {
    act(SIGUSR1, on, 0);
    errno = 77;
    raise(SIGUSR1);
    CHECK_EQ(errno, 77);
}
TEST(restart_syscall_by_hand) {
    CHECK_ERR(syscall(SYS_restart_syscall), EINTR);
}
TEST(sigkill_of_blocked_and_masked) {
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, 0);
        t_open(g);
        sigsuspend(&all);
        _exit(0);
    }
    t_pass(g);
    kill(p, SIGKILL);
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(core_bit_of_the_wait_status) {
    struct rlimit none = {0, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    int st = CHILD(OK(setrlimit(RLIMIT_CORE, &none)); raise(SIGQUIT));
    CHECK(WIFSIGNALED(st) && !WCOREDUMP(st));
    st = CHILD(OK(setrlimit(RLIMIT_CORE, &all)); raise(SIGQUIT));
    CHECK(WIFSIGNALED(st) && WCOREDUMP(st));
    st = CHILD(OK(setrlimit(RLIMIT_CORE, &all)); raise(SIGTERM));
    CHECK(WIFSIGNALED(st) && !WCOREDUMP(st));
    st = CHILD(OK(setrlimit(RLIMIT_CORE, &all)); OK(prctl(PR_SET_DUMPABLE, 0)); raise(SIGQUIT));
    CHECK(WIFSIGNALED(st) && !WCOREDUMP(st));
}
TEST(queue_limit_of_zero) {
    struct rlimit none = {0, 0};
    sigset_t m;
    sigfillset(&m);
    sigprocmask(SIG_BLOCK, &m, 0);
    OK(setrlimit(RLIMIT_SIGPENDING, &none));
    CHECK_ERR(syscall(SYS_tgkill, getpid(), gettid(), SIGRTMIN), EAGAIN);
    OK(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
    OK(kill(getpid(), SIGRTMIN));
    CHECK_ERR(sigqueue(getpid(), SIGRTMIN, (union sigval){0}), EAGAIN);
}
TEST(pidfd_send_signal_to_proc_directory) {
    pid_t p = FORK();
    if (p == 0) {
        pause();
        _exit(0);
    }
    char n[64];
    sprintf(n, "/proc/%d", p);
    int fd = SYS(open(n, O_RDONLY | O_DIRECTORY));
    OK(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0));
    OK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, 0, 0));
    CHECK_STATUS(t_status(p), "signal 9");
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0), ESRCH);
    int other = SYS(open("/proc", O_RDONLY | O_DIRECTORY));
    CHECK_ERR(syscall(SYS_pidfd_send_signal, other, 0, 0, 0), EBADF);
}
static volatile int flipping = 1;
static void nothing(int sig) { (void)sig; }
static void *flip(void *arg) {
    struct sigaction handled = {.sa_handler = nothing}, ignored = {.sa_handler = SIG_IGN};
    (void)arg;
    while (flipping) {
        sigaction(SIGUSR1, &handled, 0);
        sigaction(SIGUSR1, &ignored, 0);
    }
    return 0;
}
TEST(an_action_that_changes_meanwhile_is_the_old_or_the_new_one) {
    CHECK_CHILD({
        signal(SIGUSR1, SIG_IGN);
        pthread_t t;
        CHECK_EQ(pthread_create(&t, 0, flip, 0), 0);
        for (time_t end = time(0) + 3; time(0) < end;) syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
        flipping = 0;
        pthread_join(t, 0);
    });
}
