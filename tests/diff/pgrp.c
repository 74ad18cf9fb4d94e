// Process groups and sessions, priorities, scheduling, prctl, resource limits.
#include "t.h"
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/times.h>

TEST(setpgid_rules) {
    CHECK_EQ(getpgid(0), getpgrp());
    CHECK_EQ(getpgid(getpid()), getpgrp());
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_pass(g);
        _exit(0);
    }
    CHECK_EQ(getpgid(p), getpgrp());
    OK(setpgid(p, p));
    CHECK_EQ(getpgid(p), p);
    pid_t q = FORK();
    if (q == 0) {
        OK(setpgid(0, p)); // joins a group of the same session
        CHECK_EQ(getpgrp(), p);
        OK(setpgid(0, 0));
        CHECK_EQ(getpgrp(), getpid());
        _exit(0);
    }
    CHECK_STATUS(t_status(q), "exit 0");
    t_open(g);
    t_status(p);
    CHECK_ERR(setpgid(p, p), ESRCH);
    CHECK_ERR(setpgid(0, -1), EINVAL);
    CHECK_ERR(setpgid(1 << 22, 0), ESRCH);
    CHECK_ERR(setpgid(getppid(), 0), ESRCH);
    CHECK_ERR(setpgid(0, 1 << 22), EPERM);
    CHECK_ERR(getpgid(1 << 22), ESRCH);
    CHECK_ERR(getpgid(-1), ESRCH);
}
TEST(setpgid_after_exec_is_eacces) {
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        dup2(g.w, 1);
        execl("/bin/sh", "sh", "-c", "echo; exec sleep 20", (char *)0);
        _exit(127);
    }
    t_pass(g);
    CHECK_ERR(setpgid(p, p), EACCES);
    kill(p, SIGKILL);
    t_status(p);
}
TEST(setsid_rules) {
    CHECK_ERR(setsid(), EPERM); // we lead a group
    CHECK_CHILD(CHECK_EQ(setsid(), getpid()); CHECK_EQ(getsid(0), getpid()); CHECK_EQ(getpgrp(), getpid()); CHECK_ERR(setsid(), EPERM);
                CHECK_ERR(setpgid(0, 0), EPERM); CHECK_CHILD(CHECK_EQ(getsid(0), getppid()); OK(setpgid(0, 0)); CHECK_ERR(setsid(), EPERM)));
    CHECK_EQ(getsid(0), getsid(getppid()));
    CHECK_ERR(getsid(1 << 22), ESRCH);
    struct t_gate a = t_gate(), b = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        setsid();
        t_open(a);
        t_pass(b);
        _exit(0);
    }
    t_pass(a);
    CHECK_ERR(setpgid(p, getpgrp()), EPERM);
    CHECK_EQ(getsid(p), p);
    t_open(b);
    t_status(p);
}
TEST(priority) {
    OK(setpriority(PRIO_PROCESS, 0, 0)); // the tests may run under nice(1)
    OK(getpriority(PRIO_PROCESS, 0));
    OK(setpriority(PRIO_PROCESS, 0, 5));
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5);
    CHECK_EQ(getpriority(PRIO_PROCESS, getpid()), 5);
    CHECK_CHILD(CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5));
    OK(setpriority(PRIO_PROCESS, 0, 100));
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 19);
    CHECK_EQ(syscall(SYS_getpriority, PRIO_PROCESS, 0), 1); // the raw call answers 20 - nice
    CHECK_ERR(getpriority(99, 0), EINVAL);
    CHECK_ERR(setpriority(99, 0, 0), EINVAL);
    CHECK_ERR(getpriority(PRIO_PROCESS, 1 << 22), ESRCH);
    CHECK_ERR(setpriority(PRIO_PROCESS, 1 << 22, 0), ESRCH);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(setpriority(PRIO_PROCESS, 0, 0), EACCES); CHECK_ERR(setpriority(PRIO_PROCESS, getppid(), 19), EPERM));
}
TEST(prctl_name) {
    char b[32] = "";
    OK(prctl(PR_SET_NAME, "a-name-that-is-too-long"));
    OK(prctl(PR_GET_NAME, b));
    CHECK_STR(b, "a-name-that-is-");
    char f[64];
    t_slurp("/proc/self/comm", f, sizeof f);
    CHECK_STR(f, "a-name-that-is-\n");
    CHECK_ERR(prctl(PR_SET_NAME, BAD_PTR), EFAULT);
    CHECK_ERR(prctl(PR_GET_NAME, BAD_PTR), EFAULT);
}
TEST(prctl_pdeathsig) {
    int s = -1;
    OK(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    OK(prctl(PR_GET_PDEATHSIG, &s));
    CHECK_EQ(s, SIGUSR1);
    CHECK_CHILD(int t = -1; OK(prctl(PR_GET_PDEATHSIG, &t)); CHECK_EQ(t, 0));
    CHECK_ERR(prctl(PR_SET_PDEATHSIG, 99), EINVAL);
    CHECK_ERR(prctl(PR_GET_PDEATHSIG, BAD_PTR), EFAULT);
}
TEST(prctl_misc) {
    CHECK_ERR(prctl(99999), EINVAL);
    OK(prctl(PR_SET_TIMERSLACK, 12345));
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), 12345);
    CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
    CHECK_ERR(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0), EINVAL);
    OK(prctl(PR_GET_SECCOMP));
    OK(prctl(PR_GET_TIMING));
}
TEST(rlimit_forms) {
    struct rlimit r, s;
    OK(getrlimit(RLIMIT_NOFILE, &r));
    CHECK(r.rlim_cur <= r.rlim_max);
    CHECK_CHILD(struct rlimit n = {100, 200}; OK(setrlimit(RLIMIT_NOFILE, &n)); OK(getrlimit(RLIMIT_NOFILE, &s)); CHECK_EQ(s.rlim_cur, 100); CHECK_EQ(s.rlim_max, 200);
                n.rlim_cur = 300; CHECK_ERR(setrlimit(RLIMIT_NOFILE, &n), EINVAL); n.rlim_cur = 200; OK(setrlimit(RLIMIT_NOFILE, &n));
                CHECK_CHILD(OK(getrlimit(RLIMIT_NOFILE, &s)); CHECK_EQ(s.rlim_cur, 200));
                SYS(setuid(1000)); n = (struct rlimit){100, 201}; CHECK_ERR(setrlimit(RLIMIT_NOFILE, &n), EPERM); n.rlim_max = 150; OK(setrlimit(RLIMIT_NOFILE, &n)));
    CHECK_ERR(getrlimit(99, &r), EINVAL);
    CHECK_ERR(setrlimit(99, &r), EINVAL);
    CHECK_ERR(syscall(SYS_getrlimit, RLIMIT_NOFILE, BAD_PTR), EFAULT);
    CHECK_ERR(syscall(SYS_setrlimit, RLIMIT_NOFILE, BAD_PTR), EFAULT);
    for (int i = 0; i < RLIM_NLIMITS; i++) OK(getrlimit(i, &r));
}
TEST(prlimit_forms) {
    struct rlimit r, n = {50, 60};
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_pass(g);
        OK(getrlimit(RLIMIT_NOFILE, &r));
        CHECK_EQ(r.rlim_cur, 50);
        _exit(0);
    }
    OK(prlimit(p, RLIMIT_NOFILE, &n, &r));
    CHECK(r.rlim_cur != 50);
    OK(prlimit(p, RLIMIT_NOFILE, 0, &r));
    CHECK_EQ(r.rlim_cur, 50);
    t_open(g);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_ERR(prlimit(1 << 22, RLIMIT_NOFILE, 0, &r), ESRCH);
    CHECK_ERR(prlimit(0, 99, 0, &r), EINVAL);
    CHECK_CHILD(pid_t root = getppid(); SYS(setuid(1000)); CHECK_ERR(prlimit(root, RLIMIT_NOFILE, 0, &r), EPERM));
}
TEST(rlimit_nproc_counts_zombies) {
    if (getuid()) SKIP("needs root");
    CHECK_CHILD({
        struct rlimit r = {4, 4};
        SYS(setrlimit(RLIMIT_NPROC, &r));
        SYS(setuid(54322));
        siginfo_t i;
        for (int k = 0; k < 3; k++) {
            pid_t p = SYS(fork());
            if (p == 0) _exit(0);
            SYS(waitid(P_PID, p, &i, WEXITED | WNOWAIT));
        }
        CHECK_ERR(fork(), EAGAIN);
        OK(waitid(P_ALL, 0, &i, WEXITED));
        pid_t p = SYS(fork());
        if (p == 0) _exit(0);
        CHECK_ERR(fork(), EAGAIN);
    });
}
TEST(rlimit_nproc) {
    CHECK_CHILD(struct rlimit r = {3, 3}; SYS(setrlimit(RLIMIT_NPROC, &r)); SYS(setuid(54321)); int n = 0; pid_t p; struct t_gate g = t_gate();
                while (n < 10 && (p = fork()) >= 0) {
                    if (p == 0) {
                        t_pass(g);
                        _exit(0);
                    }
                    n++;
                } CHECK_EQ(errno, EAGAIN);
                CHECK_EQ(n, 2); for (int i = 0; i < n; i++) t_open(g); while (wait(0) > 0){});
}
TEST(rlimit_cpu_signal) {
    CHECK_STATUS(CHILD(struct rlimit r = {1, 3}; SYS(setrlimit(RLIMIT_CPU, &r)); for (volatile unsigned long i = 0;; i++) {}), "signal 24");
}
TEST(rlimit_stack) {
    CHECK_STATUS(CHILD(struct rlimit r = {1 << 20, 1 << 20}; SYS(setrlimit(RLIMIT_STACK, &r)); char *a = __builtin_alloca(4 << 20);
                       for (int i = (4 << 20) - 1; i >= 0; i -= 4096)((volatile char *)a)[i] = 1),
                 "signal 11");
}
TEST(rlimit_core_and_defaults) {
    struct rlimit r;
    OK(getrlimit(RLIMIT_AS, &r));
    CHECK_EQ(r.rlim_cur, RLIM_INFINITY);
    OK(getrlimit(RLIMIT_DATA, &r));
    CHECK_EQ(r.rlim_cur, RLIM_INFINITY);
    OK(getrlimit(RLIMIT_FSIZE, &r));
    CHECK_EQ(r.rlim_cur, RLIM_INFINITY);
    OK(getrlimit(RLIMIT_CPU, &r));
    CHECK_EQ(r.rlim_cur, RLIM_INFINITY);
}
TEST(times_and_rusage) {
    struct tms t;
    struct rusage r;
    clock_t a = times(&t);
    CHECK(a != (clock_t)-1);
    CHECK_ERR(syscall(SYS_times, BAD_PTR), EFAULT);
    CHECK(syscall(SYS_times, 0) >= a);
    do {
        OK(getrusage(RUSAGE_SELF, &r));
        for (volatile int i = 0; i < 100000; i++) {}
    } while (r.ru_utime.tv_sec == 0 && r.ru_utime.tv_usec < 50000);
    times(&t);
    CHECK(t.tms_utime + t.tms_stime >= 4);
    OK(getrusage(RUSAGE_THREAD, &r));
    struct timespec ts;
    OK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts));
    CHECK(ts.tv_sec > 0 || ts.tv_nsec >= 40000000);
    OK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts));
    CHECK(ts.tv_sec > 0 || ts.tv_nsec >= 40000000);
    CHECK(clock() >= 40000);
}
// Until it has been waited for, a process that has ended is as good as any other.
TEST(sched_calls_of_a_zombie) {
    pid_t p = FORK();
    if (p == 0) _exit(0);
    siginfo_t si;
    OK(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
    struct sched_param q = {.sched_priority = 7};
    CHECK_EQ(sched_getscheduler(p), SCHED_OTHER);
    OK(sched_getparam(p, &q));
    CHECK_EQ(q.sched_priority, 0);
    OK(sched_setscheduler(p, SCHED_BATCH, &q));
    CHECK_EQ(sched_getscheduler(p), SCHED_BATCH);
    cpu_set_t c;
    OK(sched_getaffinity(p, sizeof c, &c));
    CHECK(CPU_COUNT(&c) > 0);
    CPU_ZERO(&c);
    CPU_SET(0, &c);
    OK(sched_setaffinity(p, sizeof c, &c));
    struct timespec t;
    OK(sched_rr_get_interval(p, &t));
    OK(setpriority(PRIO_PROCESS, p, 7));
    CHECK_EQ(getpriority(PRIO_PROCESS, p), 7);
    struct rlimit l = {9, 9};
    OK(prlimit(p, RLIMIT_CORE, &l, 0));
    OK(syscall(SYS_tgkill, p, p, 0));
    OK(syscall(SYS_tgkill, p, p, SIGKILL));
    OK(syscall(SYS_tkill, p, SIGTERM));
    CHECK_ERR(syscall(SYS_tgkill, getpid(), p, 0), ESRCH);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_ERR(sched_getscheduler(p), ESRCH);
    CHECK_ERR(getpriority(PRIO_PROCESS, p), ESRCH);
}
static void *outlives(void *gate) {
    t_pass(*(struct t_gate *)gate);
    _exit(0);
}
TEST(sched_calls_of_a_leader_that_left) {
    static struct t_gate g;
    g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        setpriority(PRIO_PROCESS, 0, 5);
        pthread_create(&t, 0, outlives, &g);
        syscall(SYS_exit, 0);
    }
    t_ms(100);
    CHECK_EQ(getpriority(PRIO_PROCESS, p), 5);
    CHECK_EQ(sched_getscheduler(p), SCHED_OTHER);
    OK(syscall(SYS_tgkill, p, p, SIGUSR1)); // and nobody dies of it
    t_ms(20);
    t_open(g);
    CHECK_STATUS(t_status(p), "exit 0");
}
struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t util[2];
    uint64_t beyond[4];
};
TEST(sched_attributes) {
    struct attr a = {.size = 48, .policy = SCHED_BATCH, .nice = 5};
    OK(syscall(SYS_sched_setattr, 0, &a, 0));
    CHECK_EQ(sched_getscheduler(0), SCHED_BATCH);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5);
    memset(&a, 0x55, sizeof a);
    OK(syscall(SYS_sched_getattr, 0, &a, sizeof a, 0));
    CHECK_EQ(a.size, 56);
    CHECK_EQ(a.policy, SCHED_BATCH);
    CHECK_EQ(a.flags, 0);
    CHECK_EQ(a.nice, 5);
    CHECK_EQ(a.priority, 0);
    CHECK(a.runtime >= 100000 && a.runtime <= 100000000);
    memset(&a, 0x55, sizeof a);
    OK(syscall(SYS_sched_getattr, 0, &a, 48, 0));
    CHECK_EQ(a.size, 48);
    CHECK_EQ(a.util[0], 0x55555555);
    a = (struct attr){.size = sizeof a};
    OK(syscall(SYS_sched_setattr, 0, &a, 0)); // what is beyond is zero
    a = (struct attr){.size = sizeof a, .beyond = {0, 1}};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), E2BIG);
    CHECK_EQ(a.size, 56);
    a = (struct attr){.size = 40};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), E2BIG);
    CHECK_EQ(a.size, 56);
    a = (struct attr){.size = 48, .policy = SCHED_OTHER, .runtime = 3000000};
    OK(syscall(SYS_sched_setattr, 0, &a, 0));
    OK(syscall(SYS_sched_getattr, 0, &a, 56, 0));
    CHECK_EQ(a.runtime, 3000000);
    a = (struct attr){.size = 48, .flags = 0x18, .policy = SCHED_BATCH, .nice = 9}; // keep both
    OK(syscall(SYS_sched_setattr, 0, &a, 0));
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
    CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
    a = (struct attr){.size = 48, .priority = 3};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), EINVAL);
    a = (struct attr){.size = 48, .flags = 0x80};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), EINVAL);
    a = (struct attr){.size = 48, .flags = 0x20};
    CHECK_ERR(syscall(SYS_sched_setattr, 0, &a, 0), EINVAL);
}
TEST(sched_calls) {
    struct sched_param p = {0};
    CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
    OK(sched_getparam(0, &p));
    CHECK_EQ(p.sched_priority, 0);
    CHECK_EQ(sched_get_priority_max(SCHED_FIFO), 99);
    CHECK_EQ(sched_get_priority_min(SCHED_FIFO), 1);
    OK(sched_get_priority_max(SCHED_OTHER));
    CHECK_ERR(sched_get_priority_max(99), EINVAL);
    p.sched_priority = 5;
    CHECK_ERR(sched_setscheduler(0, SCHED_OTHER, &p), EINVAL);
    p.sched_priority = 0;
    OK(sched_setscheduler(0, SCHED_OTHER, &p));
    OK(sched_setscheduler(0, SCHED_BATCH, &p));
    CHECK_EQ(sched_getscheduler(0), SCHED_BATCH);
    CHECK_ERR(sched_getscheduler(1 << 22), ESRCH);
    CHECK_ERR(sched_getparam(0, 0), EINVAL);
    struct timespec ts;
    OK(sched_rr_get_interval(0, &ts));
    OK(sched_yield());
}
TEST(sched_affinity) {
    cpu_set_t s, one;
    CPU_ZERO(&s);
    OK(sched_getaffinity(0, sizeof s, &s));
    CHECK(CPU_COUNT(&s) >= 1);
    CHECK_EQ(CPU_COUNT(&s), sysconf(_SC_NPROCESSORS_ONLN));
    CHECK_ERR(sched_getaffinity(0, 1, &s), EINVAL);
    CHECK_ERR(sched_getaffinity(1 << 22, sizeof s, &s), ESRCH);
    CHECK_ERR(sched_getaffinity(-1, sizeof s, &s), ESRCH);
    CHECK_ERR(sched_setaffinity(-1, sizeof s, &s), ESRCH);
    CHECK_ERR(syscall(SYS_sched_setaffinity, -1, 128, BAD_PTR), EFAULT);
    CHECK_ERR(syscall(SYS_sched_getaffinity, 0, 128, BAD_PTR), EFAULT);
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    OK(sched_getaffinity(0, sizeof s, &s));
    CHECK_EQ(CPU_COUNT(&s), 1);
    unsigned cpu = 99, node = 99;
    OK(syscall(SYS_getcpu, &cpu, &node, 0));
    CHECK(cpu < 4096);
    CHECK_CHILD(OK(sched_getaffinity(0, sizeof s, &s)); CHECK_EQ(CPU_COUNT(&s), 1));
    CPU_ZERO(&one);
    CHECK_ERR(sched_setaffinity(0, sizeof one, &one), EINVAL);
}
TEST(ioprio) {
    long p = syscall(SYS_ioprio_get, 1, 0);
    CHECK(p >= 0);
    OK(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 5));
    CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), 2 << 13 | 5);
    CHECK_ERR(syscall(SYS_ioprio_get, 9, 0), EINVAL);
}
static void *tid_thread(void *a) {
    CHECK_EQ(getpid(), *(pid_t *)a);
    CHECK(gettid() != getpid());
    CHECK_EQ(syscall(SYS_gettid), gettid());
    return (void *)(long)gettid();
}
TEST(thread_ids) {
    pid_t me = getpid();
    CHECK_EQ(gettid(), me);
    pthread_t a, b;
    void *x, *y;
    pthread_create(&a, 0, tid_thread, &me);
    pthread_join(a, &x);
    pthread_create(&b, 0, tid_thread, &me);
    pthread_join(b, &y);
    CHECK(x != y);
}

static void *stopped_continued_ended(void *unused) {
    (void)unused;
    for (int i = 0; i < 40; i++) {
        pid_t p = FORK();
        if (p == 0)
            for (;;) pause();
        OK(kill(p, SIGSTOP));
        OK(kill(p, SIGCONT));
        OK(kill(p, SIGTERM));
        int st;
        do CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
        while (WIFSTOPPED(st));
        CHECK_STATUS(st, "signal 15");
    }
    return 0;
}
// SIGCONT between the dequeue of a stop signal and its effect makes it void.
TEST(sigcont_is_never_before_its_stop) {
    pthread_t t[10];
    for (int i = 0; i < 10; i++) OK(pthread_create(&t[i], 0, stopped_continued_ended, 0));
    for (int i = 0; i < 10; i++) OK(pthread_join(t[i], 0));
}

struct forker {
    pid_t child;
    int signal;
};
static void *forks_a_child(void *a) {
    struct forker *f = a;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, f->signal);
    sigprocmask(SIG_BLOCK, &set, 0);
    struct t_gate ready = t_gate();
    pid_t parent = getpid();
    f->child = FORK();
    if (f->child == 0) {
        OK(prctl(PR_SET_PDEATHSIG, f->signal));
        t_open(ready);
        siginfo_t info = {0};
        CHECK_EQ(sigtimedwait(&set, &info, &(struct timespec){10, 0}), f->signal);
        CHECK_EQ(info.si_code, SI_USER);
        CHECK_EQ(info.si_pid, parent);
        CHECK_EQ(info.si_uid, getuid());
        // It is still this process's child.
        CHECK_EQ(getppid(), parent);
        _exit(5);
    }
    t_pass(ready);
    return 0;
}
TEST(pdeathsig_comes_with_the_end_of_the_thread_that_forked) {
    for (int i = 0; i < 2; i++) {
        struct forker f = {.signal = i ? SIGRTMIN + 3 : SIGUSR1};
        pthread_t t;
        OK(pthread_create(&t, 0, forks_a_child, &f));
        OK(pthread_join(t, 0));
        CHECK_STATUS(t_status(f.child), "exit 5");
    }
}
static void *waits_for_it(void *a) {
    struct forker *f = a;
    int st = t_status(f->child);
    _exit(WIFEXITED(st) ? WEXITSTATUS(st) : 99);
}
TEST(pdeathsig_comes_with_the_end_of_the_thread_group_leader) {
    CHECK_STATUS(CHILD(
        static struct forker f = {.signal = SIGUSR1}; //
        forks_a_child(&f);                            //
        pthread_t t;                                  //
        OK(pthread_create(&t, 0, waits_for_it, &f));  //
        pthread_exit(0)), "exit 5");
}
// The heir of the children is another thread: those that it has handed on are waited for by it.
static void *waits_for_own(void *a) {
    CHECK_EQ(waitpid(*(pid_t *)a, 0, __WNOTHREAD), -1);
    CHECK_EQ(errno, ECHILD);
    return 0;
}
static void *leaves_a_child(void *a) {
    pid_t p = FORK();
    if (p == 0) _exit(0);
    *(pid_t *)a = p;
    pthread_t t;
    OK(pthread_create(&t, 0, waits_for_own, a));
    OK(pthread_join(t, 0));
    return 0;
}
TEST(children_of_a_thread_that_ended_are_another_threads) {
    pid_t p = -1;
    pthread_t t;
    OK(pthread_create(&t, 0, leaves_a_child, &p));
    OK(pthread_join(t, 0));
    CHECK_EQ(waitpid(p, 0, __WNOTHREAD), p);
}

static void touch_pages(int n) {
    char *p = SYS(mmap(0, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(p, n * 4096, MADV_NOHUGEPAGE);
    for (int i = 0; i < n; i++) p[i * 4096] = 1;
    OK(munmap(p, n * 4096));
}
static void *counts_its_own(void *a) {
    touch_pages(50);
    OK(getrusage(RUSAGE_THREAD, a));
    return 0;
}
TEST(rusage_counts_faults_and_switches) {
    struct rusage a, b;
    OK(getrusage(RUSAGE_SELF, &a));
    touch_pages(300);
    for (int i = 0; i < 20; i++) t_ms(1);
    OK(getrusage(RUSAGE_SELF, &b));
    CHECK(b.ru_minflt - a.ru_minflt >= 300 && b.ru_minflt - a.ru_minflt < 1000);
    CHECK(b.ru_nvcsw - a.ru_nvcsw >= 20);
    pthread_t t;
    OK(pthread_create(&t, 0, counts_its_own, &a));
    OK(pthread_join(t, 0));
    CHECK(a.ru_minflt >= 50 && a.ru_minflt < b.ru_minflt);
    OK(getrusage(RUSAGE_CHILDREN, &a));
    pid_t p = FORK();
    if (p == 0) {
        touch_pages(200);
        _exit(0);
    }
    int st;
    CHECK_EQ(wait4(p, &st, 0, &b), p);
    CHECK(b.ru_minflt >= 200);
    long before = a.ru_minflt;
    OK(getrusage(RUSAGE_CHILDREN, &a));
    CHECK_EQ(a.ru_minflt - before, b.ru_minflt);
    // As /proc shows it.
    OK(getrusage(RUSAGE_SELF, &a));
    FILE *f = fopen("/proc/self/stat", "r");
    long minor = 0;
    CHECK_EQ(fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*d %ld", &minor), 1);
    CHECK(minor >= a.ru_minflt);
    fclose(f);
}
static long stat_line(const char *name) {
    FILE *f = fopen("/proc/stat", "r");
    static char line[1 << 16];
    long value = -1;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name));
    fclose(f);
    return value;
}
TEST(switches_count_in_proc_stat) {
    long before = stat_line("ctxt ");
    for (int i = 0; i < 20; i++) t_ms(1);
    CHECK(stat_line("ctxt ") >= before + 20);
    CHECK(stat_line("intr ") >= 0);
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long switches = -1;
    while (fgets(line, sizeof line, f)) sscanf(line, "voluntary_ctxt_switches: %ld", &switches);
    fclose(f);
    CHECK(switches >= 20);
}
