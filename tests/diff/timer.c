// Clocks, sleeping, interval timers, POSIX timers, timerfd.
#include "t.h"
#include <sys/resource.h>
#include <pthread.h>
#include <sys/timerfd.h>
#include <sys/timex.h>

static long long ns(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }
static long long now(clockid_t c) {
    struct timespec t;
    SYS(clock_gettime(c, &t));
    return ns(t);
}
static volatile int hits;
static siginfo_t info;
static void on(int s, siginfo_t *i, void *c) {
    hits++;
    info = *i;
}
static void act(int s, int flags) {
    struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | flags};
    SYS(sigaction(s, &sa, 0));
}
static void block(int s) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, s);
    SYS(sigprocmask(SIG_BLOCK, &m, 0));
}
static int wait_for(int s, siginfo_t *i, int ms) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, s);
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    return sigtimedwait(&m, i, &t);
}

TEST(clock_gettime_all) {
    clockid_t c[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW,
                     CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        long long a = now(c[i]), b;
        for (int k = 0; k < 100; k++) {
            b = now(c[i]);
            if (b < a) CHECK_EQ(b - a, 0);
            a = b;
        }
        struct timespec r = {9, 9}, t;
        OK(clock_getres(c[i], &r));
        CHECK_EQ(r.tv_sec, 0);
        CHECK(r.tv_nsec >= 1 && r.tv_nsec <= 10000000);
        OK(syscall(SYS_clock_gettime, c[i], &t)); // past the vDSO
        CHECK(ns(t) >= a || c[i] == CLOCK_REALTIME_COARSE || c[i] == CLOCK_MONOTONIC_COARSE);
    }
    struct timespec t;
    CHECK_ERR(clock_gettime(99, &t), EINVAL);
    CHECK_ERR(clock_getres(99, &t), EINVAL);
    CHECK_ERR(syscall(SYS_clock_gettime, CLOCK_REALTIME, BAD_PTR), EFAULT);
    OK(clock_getres(CLOCK_REALTIME, 0));
}
TEST(clocks_agree) {
    struct timeval tv;
    OK(gettimeofday(&tv, 0));
    long long r = now(CLOCK_REALTIME), t = time(0);
    CHECK(r / 1000 - (tv.tv_sec * 1000000LL + tv.tv_usec) < 2000000);
    CHECK(t - tv.tv_sec <= 2 && t >= tv.tv_sec);
    struct timespec a;
    OK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &a));
    long long d = now(CLOCK_MONOTONIC) - ns(a);
    CHECK(d >= 0 && d < 2000000000LL);
    long long m = now(CLOCK_MONOTONIC), b = now(CLOCK_BOOTTIME);
    CHECK(b >= m - 1000000);
    CHECK_EQ(syscall(SYS_time, 0) - time(0) <= 1, 1);
    CHECK_ERR(syscall(SYS_gettimeofday, BAD_PTR, 0), EFAULT);
}
TEST(cpu_clock_of_other_process) {
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        for (volatile int i = 0; i < 3000000; i++) {}
        t_open(g);
        pause();
    }
    t_pass(g);
    clockid_t c;
    OK(clock_getcpuclockid(p, &c));
    CHECK(now(c) > 0);
    kill(p, SIGKILL);
    t_status(p);
    CHECK(clock_getcpuclockid(1 << 22, &c) != 0);
}
static double cpu_of(clockid_t c) { return now(c) / 1e9; }
static volatile int spin_on;
static clockid_t spinner;
static void *spin_a_while(void *a) {
    SYS(pthread_getcpuclockid(pthread_self(), &spinner));
    while (cpu_of(CLOCK_THREAD_CPUTIME_ID) < 0.2) {}
    struct rusage u;
    SYS(getrusage(RUSAGE_THREAD, &u));
    *(double *)a = u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    spin_on = 1;
    while (spin_on) usleep(1000);
    return 0;
}
TEST(cpu_clock_of_a_thread_among_others) {
    while (cpu_of(CLOCK_THREAD_CPUTIME_ID) < 0.1) {}
    double mine = cpu_of(CLOCK_THREAD_CPUTIME_ID), used = 0;
    pthread_t t;
    CHECK_EQ(pthread_create(&t, 0, spin_a_while, &used), 0);
    double after = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    CHECK(after >= mine);
    for (int i = 0; i < 20000 && !spin_on; i++) usleep(1000);
    CHECK(spin_on == 1);
    CHECK(used >= 0.19);
    CHECK(cpu_of(spinner) >= 0.2);
    CHECK(cpu_of(CLOCK_PROCESS_CPUTIME_ID) >= 0.3);
    clockid_t me;
    CHECK_EQ(pthread_getcpuclockid(pthread_self(), &me), 0);
    double a = cpu_of(me), b = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    CHECK(a >= after && b >= a);
    spin_on = 0;
    pthread_join(t, 0);
    struct timespec gone;
    for (int i = 0; i < 1000 && clock_gettime(spinner, &gone) == 0; i++) usleep(1000);
    CHECK_ERR(clock_gettime(spinner, &gone), EINVAL);
    CHECK(cpu_of(CLOCK_THREAD_CPUTIME_ID) >= b);
    // The clock of a thread is its process's own affair.
    pid_t p = FORK();
    if (p == 0) pause();
    clockid_t other = (clockid_t)(~p << 3 | 6);
    CHECK_ERR(clock_gettime(other, &(struct timespec){0}), EINVAL);
    kill(p, SIGKILL);
    t_status(p);
}
static double first_time;
static void *spin_from_first(void *a) {
    (void)a;
    first_time = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    while (cpu_of(CLOCK_THREAD_CPUTIME_ID) < first_time + 0.1) {}
    return 0;
}
TEST(cpu_clock_of_a_new_thread_starts_at_zero) {
    // Threads one after the other: each one counts for itself alone.
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, 0, spin_from_first, 0), 0);
        pthread_join(t, 0);
        CHECK(first_time < 0.08);
    }
}
TEST(cpu_clock_of_a_vfork_child_is_its_own) {
    while (cpu_of(CLOCK_PROCESS_CPUTIME_ID) < 0.3) {}
    static volatile double child;
    pid_t p = vfork();
    if (p == 0) {
        struct timespec t;
        syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &t);
        child = t.tv_sec + t.tv_nsec / 1e9;
        _exit(0);
    }
    t_status(p);
    CHECK(child < 0.2);
    CHECK(cpu_of(CLOCK_PROCESS_CPUTIME_ID) >= 0.3);
}
TEST(nanosleep_sleeps_at_least) {
    long long a = now(CLOCK_MONOTONIC);
    struct timespec t = {0, 20000000};
    OK(nanosleep(&t, 0));
    CHECK(now(CLOCK_MONOTONIC) - a >= 20000000);
    a = now(CLOCK_MONOTONIC);
    OK(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0));
    CHECK(now(CLOCK_MONOTONIC) - a >= 20000000);
    OK(clock_nanosleep(CLOCK_REALTIME, 0, &t, 0));
    OK(clock_nanosleep(CLOCK_BOOTTIME, 0, &t, 0));
    t = (struct timespec){0, 0};
    OK(nanosleep(&t, 0));
}
TEST(nanosleep_errors) {
    struct timespec t = {0, 1000000000};
    CHECK_ERR(nanosleep(&t, 0), EINVAL);
    t = (struct timespec){-1, 0};
    CHECK_ERR(nanosleep(&t, 0), EINVAL);
    t = (struct timespec){0, -1};
    CHECK_ERR(nanosleep(&t, 0), EINVAL);
    CHECK_ERR(syscall(SYS_nanosleep, BAD_PTR, 0), EFAULT);
    t = (struct timespec){0, 1};
    CHECK_EQ(clock_nanosleep(99, 0, &t, 0), EINVAL);
    CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, 0), EINVAL);  // the C library says so
    CHECK_ERR(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &t, 0), EOPNOTSUPP);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC_RAW, 0, &t, 0), EOPNOTSUPP);
}
TEST(nanosleep_remainder) {
    t_pester(0);
    struct timespec t = {100, 0}, r = {0, 0};
    CHECK_ERR(nanosleep(&t, &r), EINTR);
    CHECK(r.tv_sec >= 90 && r.tv_sec < 100);
    r = (struct timespec){0, 0};
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &r), EINTR);
    CHECK(r.tv_sec >= 90);
    r = (struct timespec){7, 7};
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 100;
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, &r), EINTR);
    CHECK_EQ(r.tv_sec, 7); // an absolute sleep leaves it alone
}
TEST(nanosleep_restarts_after_stop) {
    // SIGSTOP and SIGCONT do not end a sleep
    long long a = now(CLOCK_MONOTONIC);
    pid_t p = FORK();
    if (p == 0) {
        struct timespec t = {0, 60000000};
        OK(nanosleep(&t, 0));
        CHECK(now(CLOCK_MONOTONIC) - a >= 60000000);
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        t_ms(3); // the stops fall into the sleep, at moments that do not matter
        kill(p, SIGSTOP);
        kill(p, SIGCONT);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(clock_nanosleep_absolute) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    OK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0)); // already past
    t.tv_nsec += 20000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    OK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0));
    CHECK(now(CLOCK_MONOTONIC) >= ns(t));
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 20000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    OK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0));
    CHECK(now(CLOCK_REALTIME) >= ns(t));
}
TEST(alarm_forms) {
    act(SIGALRM, 0);
    CHECK_EQ(alarm(100), 0);
    CHECK_EQ(alarm(50), 100);
    unsigned left = alarm(1);
    CHECK(left == 50 || left == 49);
    pause();
    CHECK_EQ(hits, 1);
    CHECK_EQ(info.si_code, SI_KERNEL);
    CHECK_EQ(alarm(0), 0);
}
TEST(itimer_real) {
    act(SIGALRM, 0);
    struct itimerval it = {{0, 5000}, {0, 5000}}, o;
    OK(setitimer(ITIMER_REAL, &it, 0));
    while (hits < 3) pause();
    OK(getitimer(ITIMER_REAL, &o));
    CHECK_EQ(o.it_interval.tv_usec, 5000);
    CHECK(o.it_value.tv_usec <= 5000 && o.it_value.tv_sec == 0);
    it = (struct itimerval){{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &it, &o));
    CHECK_EQ(o.it_interval.tv_usec, 5000);
    OK(getitimer(ITIMER_REAL, &o));
    CHECK_EQ(o.it_value.tv_usec, 0);
    it.it_value.tv_usec = 1000000;
    CHECK_ERR(setitimer(ITIMER_REAL, &it, 0), EINVAL);
    it.it_value.tv_usec = -1;
    CHECK_ERR(setitimer(ITIMER_REAL, &it, 0), EINVAL);
    CHECK_ERR(setitimer(9, &it, 0), EINVAL);
    CHECK_ERR(getitimer(9, &o), EINVAL);
    CHECK_ERR(syscall(SYS_setitimer, ITIMER_REAL, BAD_PTR, 0), EFAULT);
    CHECK_ERR(syscall(SYS_getitimer, ITIMER_REAL, BAD_PTR), EFAULT);
}
TEST(itimer_virtual_and_prof) {
    act(SIGVTALRM, 0);
    struct itimerval it = {{0, 0}, {0, 20000}};
    OK(setitimer(ITIMER_VIRTUAL, &it, 0));
    while (!hits) {}
    CHECK_EQ(info.si_signo, SIGVTALRM);
    hits = 0;
    act(SIGPROF, 0);
    OK(setitimer(ITIMER_PROF, &it, 0));
    while (!hits) {}
    CHECK_EQ(info.si_signo, SIGPROF);
    hits = 0;
    it.it_value.tv_usec = 300000;
    OK(setitimer(ITIMER_VIRTUAL, &it, 0));
    t_ms(400); // sleeping is not running
    CHECK_EQ(hits, 0);
}
TEST(posix_timer_signal) {
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 77};
    block(SIGRTMIN);
    OK(timer_create(CLOCK_MONOTONIC, &ev, &t));
    struct itimerspec it = {{0, 0}, {0, 10000000}}, o;
    OK(timer_gettime(t, &o));
    CHECK_EQ(o.it_value.tv_nsec, 0);
    OK(timer_settime(t, 0, &it, 0));
    siginfo_t i = {0};
    CHECK_EQ(wait_for(SIGRTMIN, &i, 10000), SIGRTMIN);
    CHECK_EQ(i.si_code, SI_TIMER);
    CHECK_EQ(i.si_value.sival_int, 77);
    CHECK_EQ(i.si_overrun, 0);
    OK(timer_gettime(t, &o));
    CHECK_EQ(o.it_value.tv_nsec, 0);
    CHECK_ERR(wait_for(SIGRTMIN, &i, 30), EAGAIN);
    OK(timer_delete(t));
    CHECK_EQ(syscall(SYS_timer_delete, 12345), -1);
}
TEST(posix_timer_overrun) {
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    block(SIGRTMIN);
    OK(timer_create(CLOCK_MONOTONIC, &ev, &t));
    struct itimerspec it = {{0, 1000000}, {0, 1000000}};
    OK(timer_settime(t, 0, &it, 0));
    t_ms(50); // the time in which the timer expires 50 times
    siginfo_t i = {0};
    CHECK_EQ(wait_for(SIGRTMIN, &i, 10000), SIGRTMIN); // one signal stands for all of them
    CHECK(i.si_overrun >= 30);
    CHECK_EQ(timer_getoverrun(t), i.si_overrun);
    OK(timer_delete(t));
}
TEST(posix_timer_default_none_and_thread) {
    timer_t a, b, c;
    act(SIGALRM, 0);
    OK(timer_create(CLOCK_REALTIME, 0, &a));
    struct itimerspec it = {{0, 0}, {0, 5000000}}, o;
    OK(timer_settime(a, 0, &it, 0));
    while (!hits) t_ms(1);
    CHECK_EQ(info.si_code, SI_TIMER);
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    OK(timer_create(CLOCK_MONOTONIC, &none, &b));
    it.it_value = (struct timespec){100, 0};
    OK(timer_settime(b, 0, &it, 0));
    OK(timer_gettime(b, &o));
    CHECK(o.it_value.tv_sec >= 90 && o.it_value.tv_sec <= 100);
    struct sigevent th = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    th._sigev_un._tid = gettid();
    hits = 0;
    act(SIGUSR1, 0);
    OK(timer_create(CLOCK_MONOTONIC, &th, &c));
    it.it_value = (struct timespec){0, 5000000};
    OK(timer_settime(c, 0, &it, 0));
    while (!hits) t_ms(1);
    CHECK_EQ(info.si_signo, SIGUSR1);
    th._sigev_un._tid = getppid();
    CHECK_ERR(timer_create(CLOCK_MONOTONIC, &th, &c), EINVAL);
}
TEST(posix_timer_absolute_and_rearm) {
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    block(SIGRTMIN);
    OK(timer_create(CLOCK_REALTIME, &ev, &t));
    struct itimerspec it = {{0, 0}, {1, 0}}, o;
    siginfo_t i;
    OK(timer_settime(t, TIMER_ABSTIME, &it, 0)); // long past: fires at once
    CHECK_EQ(wait_for(SIGRTMIN, &i, 10000), SIGRTMIN);
    it.it_value = (struct timespec){100, 0};
    OK(timer_settime(t, 0, &it, 0));
    it.it_value = (struct timespec){0, 0};
    OK(timer_settime(t, 0, &it, &o));
    CHECK(o.it_value.tv_sec >= 90);
    CHECK_ERR(wait_for(SIGRTMIN, &i, 10), EAGAIN);
}
TEST(posix_timer_errors) {
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99};
    CHECK_ERR(timer_create(CLOCK_MONOTONIC, &ev, &t), EINVAL);
    ev = (struct sigevent){.sigev_notify = 99, .sigev_signo = SIGUSR1};
    CHECK_ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &t), EINVAL);
    CHECK_ERR(timer_create(99, 0, &t), EINVAL);
    CHECK_ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, BAD_PTR, &t), EFAULT);
    int id;
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, 0, &id));
    struct itimerspec it = {{0, 0}, {0, 1000000000}};
    CHECK_ERR(syscall(SYS_timer_settime, id, 0, &it, 0), EINVAL);
    CHECK_ERR(syscall(SYS_timer_settime, 999, 0, &it, 0), EINVAL);
    CHECK_ERR(syscall(SYS_timer_gettime, 999, &it), EINVAL);
    CHECK_ERR(syscall(SYS_timer_getoverrun, 999), EINVAL);
    CHECK_ERR(syscall(SYS_timer_delete, 999), EINVAL);
    CHECK_CHILD(CHECK_ERR(syscall(SYS_timer_gettime, id, &it), EINVAL)); // not inherited
    OK(syscall(SYS_timer_delete, id));
    CHECK_ERR(syscall(SYS_timer_delete, id), EINVAL);
}
TEST(posix_timer_cpu_clock) {
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    act(SIGUSR1, 0);
    OK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &ev, &t));
    struct itimerspec it = {{0, 0}, {0, 20000000}};
    OK(timer_settime(t, 0, &it, 0));
    while (!hits) {}
    CHECK_EQ(info.si_code, SI_TIMER);
}
TEST(timerfd_forms) {
    int fd = SYS(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    uint64_t n = 9;
    CHECK_ERR(read(fd, &n, 8), EAGAIN);
    struct itimerspec it = {{0, 2000000}, {0, 2000000}}, o;
    OK(timerfd_settime(fd, 0, &it, 0));
    t_ms(30); // the time in which it expires 15 times
    CHECK_EQ(read(fd, &n, 8), 8);
    CHECK(n >= 10);
    OK(timerfd_gettime(fd, &o));
    CHECK_EQ(o.it_interval.tv_nsec, 2000000);
    CHECK_ERR(read(fd, &n, 4), EINVAL);
    it = (struct itimerspec){{0, 0}, {0, 0}};
    OK(timerfd_settime(fd, 0, &it, &o));
    CHECK_EQ(o.it_interval.tv_nsec, 2000000);
    OK(timerfd_gettime(fd, &o));
    CHECK_EQ(o.it_value.tv_nsec, 0);
    it.it_value.tv_nsec = 1000000000;
    CHECK_ERR(timerfd_settime(fd, 0, &it, 0), EINVAL);
    it.it_value.tv_nsec = 0;
    CHECK_ERR(timerfd_settime(fd, 0x100, &it, 0), EINVAL);
    CHECK_ERR(timerfd_create(99, 0), EINVAL);
    CHECK_ERR(timerfd_create(CLOCK_MONOTONIC, 0x10), EINVAL);
    CHECK_ERR(timerfd_settime(0, 0, &it, 0), EINVAL);
    CHECK_ERR(timerfd_settime(999, 0, &it, 0), EBADF);
    CHECK_ERR(syscall(SYS_timerfd_settime, fd, 0, BAD_PTR, 0), EFAULT);
    CHECK_ERR(write(fd, &n, 8), EINVAL);
}
TEST(timerfd_blocking_and_absolute) {
    int fd = SYS(timerfd_create(CLOCK_REALTIME, 0));
    struct itimerspec it = {{0, 0}, {1, 0}};
    OK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &it, 0));
    uint64_t n;
    CHECK_EQ(read(fd, &n, 8), 8);
    CHECK_EQ(n, 1);
    it.it_value = (struct timespec){0, 20000000};
    long long a = now(CLOCK_MONOTONIC);
    OK(timerfd_settime(fd, 0, &it, 0));
    CHECK_EQ(read(fd, &n, 8), 8);
    CHECK(now(CLOCK_MONOTONIC) - a >= 19000000);
    t_pester(0);
    CHECK_ERR(read(fd, &n, 8), EINTR);
}
TEST(adjtimex_reads) {
    struct timex t = {0};
    CHECK(adjtimex(&t) >= 0);
    CHECK(t.time.tv_sec > 1000000);
    CHECK_ERR(syscall(SYS_adjtimex, BAD_PTR), EFAULT);
}
TEST(settime_needs_capability) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(clock_settime(CLOCK_REALTIME, &t), EPERM); CHECK_ERR(clock_settime(CLOCK_MONOTONIC, &t), EINVAL));
}

// A timer's own signal is queued beside one that is pending already, and counts the expiries since.
TEST(timer_overrun_behind_a_pending_signal) {
    int sigs[] = {SIGUSR1, SIGRTMIN};
    for (int k = 0; k < 2; k++) {
        int s = sigs[k];
        block(s);
        OK(kill(getpid(), s));
        struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = s, .sigev_value.sival_int = 42};
        timer_t t;
        OK(timer_create(CLOCK_MONOTONIC, &e, &t));
        struct itimerspec it = {{0, 1000000}, {0, 1000000}};
        OK(timer_settime(t, 0, &it, 0));
        t_ms(100); // the time in which it expires 100 times
        CHECK_EQ(timer_getoverrun(t), 0);
        siginfo_t i;
        CHECK_EQ(wait_for(s, &i, 1000), s);
        CHECK_EQ(i.si_code, SI_USER);
        CHECK_EQ(wait_for(s, &i, 1000), s);
        CHECK_EQ(i.si_code, SI_TIMER);
        CHECK_EQ(i.si_value.sival_int, 42);
        CHECK(i.si_overrun >= 20);
        OK(timer_delete(t));
    }
}
// A setting that is gone sends nothing more, what is pending of it included.
TEST(timer_signal_of_an_earlier_setting_is_dropped) {
    block(SIGUSR1);
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec soon = {{0, 0}, {0, 1000000}}, far = {{0, 0}, {100, 0}}, off = {{0, 0}, {0, 0}};
    for (int k = 0; k < 3; k++) {
        timer_t t;
        OK(timer_create(CLOCK_MONOTONIC, &e, &t));
        OK(timer_settime(t, 0, &soon, 0));
        sigset_t p;
        for (int i = 0; i < 1000; i++) {
            sigpending(&p);
            if (sigismember(&p, SIGUSR1)) break;
            t_ms(1);
        }
        CHECK(sigismember(&p, SIGUSR1));
        if (k < 2) OK(timer_settime(t, 0, k ? &off : &far, 0));
        else OK(timer_delete(t));
        siginfo_t i;
        CHECK_ERR(wait_for(SIGUSR1, &i, 0), EAGAIN);
        if (k < 2) OK(timer_delete(t));
    }
}
// SI_TIMER can be written by anybody, and then means nothing.
TEST(timer_signal_forged) {
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
    timer_t t;
    OK(timer_create(CLOCK_MONOTONIC, &e, &t));
    block(SIGUSR1);
    siginfo_t f = {.si_signo = SIGUSR1, .si_code = SI_TIMER}, i;
    f.si_timerid = (int)(long)t, f.si_overrun = 5, f.si_value.sival_int = 7;
    OK(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &f));
    CHECK_EQ(wait_for(SIGUSR1, &i, 1000), SIGUSR1);
    CHECK_EQ(i.si_value.sival_int, 7);
    CHECK_EQ(i.si_overrun, 5);
}
TEST(timer_ids_are_not_used_again_at_once) {
    struct sigevent e = {.sigev_notify = SIGEV_NONE};
    int a, b, c;
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &a));
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &b));
    OK(syscall(SYS_timer_delete, b));
    OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &c));
    CHECK_EQ(b, a + 1);
    CHECK_EQ(c, b + 1);
}
TEST(timers_by_the_thousand) {
    struct rlimit l = {20000, 20000};
    SYS(setrlimit(RLIMIT_SIGPENDING, &l));
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    long long start = t_now_ms();
    int id;
    for (int i = 0; i < 15000; i++) OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &id));
    CHECK(t_now_ms() - start < 4000);
}
TEST(timer_clocks) {
    int clocks[] = {CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE};
    timer_t t;
    for (int k = 0; k < 3; k++) CHECK_ERR(timer_create(clocks[k], 0, &t), EOPNOTSUPP);
    CHECK_ERR(timer_create(10, 0, &t), EINVAL);
    struct timespec ts, z = {0, 1};
    for (int c = CLOCK_REALTIME_ALARM; c <= CLOCK_BOOTTIME_ALARM; c++) {
        // Where clock_gettime(2) does not have them, nothing has.
        bool have = clock_gettime(c, &ts) == 0;
        int r = timer_create(c, 0, &t), e = errno;
        if (have) CHECK_EQ(r, 0);
        else CHECK(r == -1 && e == EOPNOTSUPP);
        CHECK_EQ(clock_nanosleep(c, 0, &z, 0), have ? 0 : EOPNOTSUPP);
    }
    CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &z, 0), EINVAL);
}
static void *uses_time(void *a) {
    while (!*(volatile int *)a) {}
    return 0;
}
TEST(timer_of_a_threads_processor_time) {
    // Another thread's time does not count.
    static int stop;
    pthread_t th;
    CHECK_EQ(pthread_create(&th, 0, uses_time, &stop), 0);
    act(SIGUSR1, 0);
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t t;
    OK(timer_create(CLOCK_THREAD_CPUTIME_ID, &e, &t));
    struct itimerspec it = {{0, 0}, {0, 100000000}};
    double start = cpu_of(CLOCK_THREAD_CPUTIME_ID);
    OK(timer_settime(t, 0, &it, 0));
    t_ms(400); // others' time is not this thread's
    CHECK_EQ(hits, 0);
    while (!hits && cpu_of(CLOCK_THREAD_CPUTIME_ID) < start + 5) {}
    CHECK(hits == 1 && cpu_of(CLOCK_THREAD_CPUTIME_ID) >= start + 0.1);
    stop = 1;
    pthread_join(th, 0);
}
static void as_user(uid_t uid) {
    struct rlimit l = {5, 5};
    OK(setrlimit(RLIMIT_SIGPENDING, &l));
    OK(setresuid(uid, uid, uid));
}
static int sigq(void) {
    char b[8192], *at;
    t_slurp("/proc/self/status", b, sizeof b);
    return (at = strstr(b, "SigQ:")) ? atoi(at + 5) : -1;
}
TEST(queued_signals_and_timers_are_counted_per_user) {
    if (getuid()) SKIP("needs root");
    CHECK_CHILD({
        as_user(4711);
        struct t_gate ready = t_gate();
        // One process takes three of the user's five, another one the rest.
        pid_t p = FORK();
        block(SIGRTMIN);
        union sigval v = {1};
        if (p == 0) {
            for (int k = 0; k < 3; k++) OK(sigqueue(getpid(), SIGRTMIN, v));
            t_open(ready);
            pause();
        }
        t_pass(ready);
        CHECK_EQ(sigq(), 3);
        struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
        timer_t t;
        OK(timer_create(CLOCK_MONOTONIC, &e, &t));
        OK(sigqueue(getpid(), SIGRTMIN, v));
        CHECK_EQ(sigq(), 5);
        CHECK_ERR(sigqueue(getpid(), SIGRTMIN, v), EAGAIN);
        CHECK_ERR(timer_create(CLOCK_MONOTONIC, &e, &t), EAGAIN);
        OK(kill(getpid(), SIGRTMIN)); // without its information
        CHECK_EQ(sigq(), 5);
        kill(p, SIGKILL);
        t_status(p);
        CHECK_EQ(sigq(), 2);
        OK(sigqueue(getpid(), SIGRTMIN, v));
    });
}
// The time in which timers expire: what is tested, so no condition can stand for it.
static void nap(int ms) {
    struct timespec ts = {0, ms * 1000000L};
    while (nanosleep(&ts, &ts)) {}
}
TEST(expiries_while_the_signal_waits_are_overruns) {
    struct itimerspec its = {{0, 1}, {0, 1}}, got;
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    timer_t t;
    siginfo_t i;
    block(SIGRTMIN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    OK(timer_create(CLOCK_MONOTONIC, &e, &t));
    OK(timer_settime(t, 0, &its, 0));
    nap(20);
    CHECK(sigwaitinfo(&set, &i) == SIGRTMIN && i.si_overrun >= 10000000);
    CHECK_EQ(timer_getoverrun(t), i.si_overrun);
    // It goes on.
    nap(1);
    CHECK(sigwaitinfo(&set, &i) == SIGRTMIN && i.si_overrun >= 500000);
    OK(timer_delete(t));
    // One that tells nobody still counts.
    e.sigev_notify = SIGEV_NONE;
    OK(timer_create(CLOCK_MONOTONIC, &e, &t));
    its = (struct itimerspec){{0, 5000000}, {0, 1000000}};
    OK(timer_settime(t, 0, &its, 0));
    nap(20);
    OK(timer_gettime(t, &got));
    CHECK(got.it_value.tv_sec == 0 && got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 5000000);
    its.it_interval.tv_nsec = 0;
    OK(timer_settime(t, 0, &its, 0));
    nap(5);
    OK(timer_gettime(t, &got));
    CHECK(got.it_value.tv_sec == 0 && got.it_value.tv_nsec == 0);
}
TEST(a_periodic_timer_survives_an_ignored_signal) {
    signal(SIGRTMIN, SIG_IGN);
    struct itimerspec its = {{0, 1000000}, {0, 1000000}}, got;
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    timer_t t;
    OK(timer_create(CLOCK_MONOTONIC, &e, &t));
    OK(timer_settime(t, 0, &its, 0));
    nap(10);
    OK(timer_gettime(t, &got));
    CHECK(got.it_value.tv_nsec > 0 && got.it_value.tv_nsec <= 1000000);
    hits = 0;
    act(SIGRTMIN, 0);
    while (hits < 3) nap(1);
    // Taken away while it was pending, and wanted again.
    block(SIGRTMIN);
    sigset_t pending;
    do SYS(sigpending(&pending));
    while (!sigismember(&pending, SIGRTMIN));
    signal(SIGRTMIN, SIG_IGN);
    act(SIGRTMIN, 0);
    hits = 0;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    while (hits < 3) nap(1);
}
static void spin_for(int seconds) {
    while (cpu_of(CLOCK_PROCESS_CPUTIME_ID) < seconds) {}
}
TEST(rlimit_cpu_is_inherited) {
    struct rlimit l = {1, 2}, now_;
    SYS(setrlimit(RLIMIT_CPU, &l));
    pid_t p = FORK();
    if (p == 0) {
        pid_t q = FORK();
        if (q == 0) spin_for(6), _exit(1);
        CHECK_STATUS(t_status(q), "signal 24");
        _exit(0);
    }
    act(SIGXCPU, 0);
    pid_t r = FORK();
    if (r == 0) {
        while (!hits && cpu_of(CLOCK_PROCESS_CPUTIME_ID) < 6) {}
        OK(getrlimit(RLIMIT_CPU, &now_));
        CHECK(now_.rlim_cur == 2 && now_.rlim_max == 2);
        spin_for(6);
        _exit(1);
    }
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_STATUS(t_status(r), "signal 9");
}
TEST(itimers_are_not_inherited) {
    act(SIGPROF, 0);
    act(SIGVTALRM, 0);
    struct itimerval it = {{0, 0}, {0, 50000}}, got;
    OK(setitimer(ITIMER_PROF, &it, 0));
    OK(setitimer(ITIMER_VIRTUAL, &it, 0));
    CHECK_CHILD({
        OK(getitimer(ITIMER_PROF, &got));
        CHECK(got.it_value.tv_usec == 0 && got.it_value.tv_sec == 0);
        hits = 0;
        while (cpu_of(CLOCK_PROCESS_CPUTIME_ID) < 0.2) {}
        CHECK_EQ(hits, 0);
    });
    double end = cpu_of(CLOCK_PROCESS_CPUTIME_ID) + 2;
    while (hits < 2 && cpu_of(CLOCK_PROCESS_CPUTIME_ID) < end) {}
    CHECK_EQ(hits, 2);
}

static void expire(int signo, int thread, int clock) {
    struct sigevent e = {.sigev_notify = thread ? SIGEV_THREAD_ID : SIGEV_SIGNAL, .sigev_signo = signo};
    e._sigev_un._tid = gettid();
    struct itimerspec soon = {{0, 0}, {0, 1}};
    timer_t t;
    SYS(timer_create(clock, &e, &t));
    SYS(timer_settime(t, 0, &soon, 0));
}
// Timers end at execve, and so do their signals that wait; no others do.
TEST(execve_drops_signals_of_timers) {
    int p[2];
    SYS(pipe(p));
    pid_t c = FORK();
    if (c == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, 0);
        union sigval v = {5};
        kill(getpid(), SIGUSR1);
        sigqueue(getpid(), SIGRTMIN, v);
        tgkill(getpid(), gettid(), SIGURG);
        struct itimerval it = {{0, 0}, {0, 1}};
        setitimer(ITIMER_REAL, &it, 0);
        int timers[] = {SIGUSR2, SIGIO, SIGRTMIN + 1, SIGRTMIN + 2, SIGRTMIN + 3};
        for (int i = 0; i < 5; i++) expire(timers[i], i % 2, i < 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC);
        for (int i = 0; i < 5; i++)
            for (sigset_t s; sigpending(&s), !sigismember(&s, timers[i]) || !sigismember(&s, SIGALRM);) t_ms(1);
        // Both in one queue: the other one stays.
        sigqueue(getpid(), SIGRTMIN + 3, v);
        dup2(p[1], 1);
        execl("/bin/cat", "cat", "/proc/self/status", (char *)0);
        _exit(126);
    }
    CHECK_STATUS(t_status(c), "exit 0");
    char b[4096] = {0};
    MUST(read(p[0], b, sizeof b - 1) > 0);
    char *own = strstr(b, "SigPnd:"), *shared = strstr(b, "ShdPnd:");
    MUST(own && shared);
    CHECK_EQ(strtoull(own + 7, 0, 16), 1ULL << (SIGURG - 1));
    CHECK_EQ(strtoull(shared + 7, 0, 16), 1ULL << (SIGUSR1 - 1) | 1ULL << (SIGALRM - 1) | 1ULL << (SIGRTMIN - 1) | 1ULL << (SIGRTMIN + 2));
}
