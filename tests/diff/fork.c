// fork, vfork, clone, clone3, exit, wait4, waitid, orphans and subreapers.
#include "t.h"
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>

TEST(fork_returns_pid_and_zero) {
    pid_t me = getpid();
    pid_t p = FORK();
    if (p == 0) {
        CHECK_EQ(getppid(), me);
        CHECK(getpid() != me);
        _exit(7);
    }
    CHECK(p > 0 && p != me);
    CHECK_STATUS(t_status(p), "exit 7");
}
TEST(fork_copies_memory) {
    static int data = 1;
    int stack = 2;
    int *heap = malloc(sizeof *heap);
    *heap = 3;
    pid_t p = FORK();
    if (p == 0) {
        CHECK_EQ(data, 1);
        CHECK_EQ(stack, 2);
        CHECK_EQ(*heap, 3);
        data = stack = *heap = 9;
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(data, 1);
    CHECK_EQ(stack, 2);
    CHECK_EQ(*heap, 3);
}
TEST(fork_copies_large_memory) {
    size_t n = 8 << 20;
    unsigned char *m = SYS(mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < n; i += 4096) m[i] = i >> 12;
    CHECK_CHILD(for (size_t i = 0; i < n; i += 4096) {
        if (m[i] != (unsigned char)(i >> 12)) {
            CHECK_EQ(m[i], (unsigned char)(i >> 12));
            break;
        }
        m[i] = 0xee;
    });
    for (size_t i = 0; i < n; i += 4096)
        if (m[i] != (unsigned char)(i >> 12)) {
            CHECK(!"the child's writes show in the parent");
            break;
        }
}
TEST(fork_shares_file_offset) {
    int fd = t_file("f", "0123456789");
    SYS(lseek(fd, 2, SEEK_SET));
    CHECK_CHILD(CHECK_EQ(lseek(fd, 3, SEEK_CUR), 5));
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 5);
    CHECK_CHILD(CHECK_EQ(fcntl(fd, F_SETFL, O_APPEND), 0));
    CHECK(fcntl(fd, F_GETFL) & O_APPEND);
}
TEST(fork_child_closes_its_own_fds) {
    int fd = t_file("f", "x");
    CHECK_CHILD(OK(close(fd)));
    char c;
    CHECK_EQ(pread(fd, &c, 1, 0), 1);
}
TEST(fork_nested) {
    CHECK_STATUS(CHILD(CHECK_STATUS(CHILD(CHECK_STATUS(CHILD(_exit(3)), "exit 3"); _exit(2)), "exit 2"); _exit(1)), "exit 1");
}
TEST(fork_many_then_wait_all) {
    pid_t p[40];
    for (int i = 0; i < 40; i++)
        if ((p[i] = FORK()) == 0) _exit(i);
    int seen = 0;
    for (int i = 0; i < 40; i++) {
        int st;
        pid_t r = SYS(wait(&st));
        for (int k = 0; k < 40; k++)
            if (p[k] == r) {
                seen++;
                CHECK_EQ(WEXITSTATUS(st), k);
            }
    }
    CHECK_EQ(seen, 40);
    CHECK_ERR(wait(0), ECHILD);
}
TEST(fork_pending_signals_are_not_inherited) {
    sigset_t s, q;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    SYS(sigprocmask(SIG_BLOCK, &s, 0));
    raise(SIGUSR1);
    CHECK_CHILD(sigpending(&q); CHECK(!sigismember(&q, SIGUSR1)); sigprocmask(SIG_BLOCK, 0, &q);
                CHECK(sigismember(&q, SIGUSR1)));
    sigpending(&q);
    CHECK(sigismember(&q, SIGUSR1));
}
TEST(fork_clears_alarm_and_itimers) {
    alarm(100);
    CHECK_CHILD(CHECK_EQ(alarm(0), 0));
    CHECK(alarm(0) > 0);
}
TEST(fork_inherits_cwd_umask_but_separately) {
    SYS(mkdir("d", 0755));
    umask(077);
    CHECK_CHILD(OK(chdir("d")); CHECK_EQ(umask(0), 077));
    CHECK_EQ(umask(022), 077);
    OK(access("d", F_OK));
}
TEST(exit_status_is_low_byte) {
    CHECK_STATUS(CHILD(_exit(256 + 5)), "exit 5");
    CHECK_STATUS(CHILD(_exit(-1)), "exit 255");
    CHECK_STATUS(CHILD(syscall(SYS_exit_group, 0x1234)), "exit 52");
    CHECK_STATUS(CHILD(syscall(SYS_exit, 9)), "exit 9");
}
TEST(exit_by_signal) {
    int sigs[] = {SIGTERM, SIGKILL, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE, SIGIO, SIGPROF, SIGVTALRM, SIGSTKFLT, SIGPWR, 40, 64};
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) {
        char want[32];
        sprintf(want, "signal %d", sigs[i]);
        CHECK_STATUS(CHILD(raise(sigs[i])), want);
    }
}
TEST(exit_by_core_signal) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    int sigs[] = {SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS};
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) {
        char want[32];
        sprintf(want, "signal %d", sigs[i]);
        CHECK_STATUS(CHILD(raise(sigs[i])), want);
    }
}
static void *exit_thread_main(void *a) {
    (void)a;
    t_ms(5);
    syscall(SYS_exit_group, 42);
    return 0;
}
TEST(exit_group_from_a_thread) {
    CHECK_STATUS(CHILD(pthread_t t; pthread_create(&t, 0, exit_thread_main, 0); for (;;) pause()), "exit 42");
}
static void *leader_gone_main(void *a) {
    (void)a;
    t_ms(20);
    _exit(11);
}
TEST(exit_of_leader_leaves_threads_running) {
    CHECK_STATUS(CHILD(pthread_t t; pthread_create(&t, 0, leader_gone_main, 0); syscall(SYS_exit, 3)), "exit 11");
}
static void *thread_exit_main(void *a) {
    (void)a;
    syscall(SYS_exit, 5);
    return 0;
}
TEST(exit_of_a_thread_leaves_process) {
    CHECK_STATUS(CHILD(pthread_t t; pthread_create(&t, 0, thread_exit_main, 0); pthread_join(t, 0); _exit(6)), "exit 6");
}
TEST(wait_errors) {
    CHECK_ERR(waitpid(-1, 0, 0), ECHILD);
    CHECK_ERR(waitpid(getpid(), 0, 0), ECHILD);
    CHECK_ERR(waitpid(1 << 22, 0, 0), ECHILD);
    CHECK_ERR(waitpid(-1, 0, 0x100), EINVAL);
    CHECK_ERR(waitpid(INT_MIN, 0, 0), ESRCH);
    siginfo_t si;
    CHECK_ERR(waitid(P_ALL, 0, &si, WEXITED), ECHILD);
    CHECK_ERR(waitid(P_ALL, 0, &si, 0), EINVAL);
    CHECK_ERR(waitid(P_ALL, 0, &si, WNOHANG), EINVAL);
    CHECK_ERR(waitid(P_ALL, 0, &si, WEXITED | 0x100), EINVAL);
    CHECK_ERR(waitid(77, 0, &si, WEXITED), EINVAL);
    CHECK_ERR(waitid(P_PID, -1, &si, WEXITED), EINVAL);
    CHECK_ERR(waitid(P_PIDFD, 999, &si, WEXITED), EBADF);
    CHECK_ERR(waitid(P_PIDFD, 0, &si, WEXITED), EBADF);
}
TEST(wait_bad_pointer_still_reaps) {
    pid_t p = FORK();
    if (p == 0) _exit(0);
    CHECK_ERR(waitpid(p, BAD_PTR, 0), EFAULT);
    CHECK_ERR(waitpid(p, 0, 0), ECHILD);
}
TEST(wait_nohang) {
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_pass(g);
        _exit(4);
    }
    int st = 0x55;
    CHECK_EQ(waitpid(p, &st, WNOHANG), 0);
    CHECK_EQ(st, 0x55);
    siginfo_t si;
    memset(&si, 0x55, sizeof si);
    OK(waitid(P_PID, p, &si, WEXITED | WNOHANG));
    CHECK_EQ(si.si_pid, 0);
    CHECK_EQ(si.si_signo, 0);
    t_open(g);
    CHECK_STATUS(t_status(p), "exit 4");
}
TEST(wait_nowait_leaves_zombie) {
    pid_t p = FORK();
    if (p == 0) _exit(9);
    siginfo_t si;
    for (int i = 0; i < 2; i++) {
        memset(&si, 0, sizeof si);
        OK(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
        CHECK_EQ(si.si_signo, SIGCHLD);
        CHECK_EQ(si.si_code, CLD_EXITED);
        CHECK_EQ(si.si_pid, p);
        CHECK_EQ(si.si_status, 9);
        CHECK_EQ(si.si_uid, getuid());
    }
    OK(kill(p, 0));
    CHECK_STATUS(t_status(p), "exit 9");
    CHECK_ERR(kill(p, 0), ESRCH);
}
TEST(wait_id_killed) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    SYS(kill(p, SIGKILL));
    siginfo_t si = {0};
    OK(waitid(P_PID, p, &si, WEXITED));
    CHECK_EQ(si.si_code, CLD_KILLED);
    CHECK_EQ(si.si_status, SIGKILL);
}
static void on_child(int s) { (void)s; }
// The parent sleeps in the wait while the child's end and its signal arrive together: the child is the answer.
static void waits_for_its_child(int sig, int flags, int usec) {
    struct sigaction sa = {.sa_handler = on_child};
    SYS(sigaction(sig, &sa, 0));
    int interrupted = 0;
    for (int i = 0; i < 100; i++) {
        pid_t p = SYS(syscall(SYS_clone, sig, 0, 0, 0, 0));
        if (p == 0) {
            if (usec) usleep(usec);
            _exit(7);
        }
        int st;
        pid_t r = waitpid(p, &st, flags);
        if (r < 0 && errno == EINTR) {
            interrupted++;
            r = waitpid(p, &st, flags);
        }
        CHECK_EQ(r, p);
        CHECK_STATUS(st, "exit 7");
    }
    CHECK_EQ(interrupted, 0);
}
TEST(wait_is_not_interrupted_by_the_childs_own_signal) {
    waits_for_its_child(SIGCHLD, 0, 2000);
    waits_for_its_child(SIGCHLD, 0, 0);
    waits_for_its_child(SIGUSR2, __WALL, 2000);
    waits_for_its_child(SIGUSR2, __WALL, 0);
}
TEST(waitid_for_stops_ignores_a_zombie) {
    pid_t p = FORK();
    if (p == 0) _exit(3);
    siginfo_t si;
    OK(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
    t_pester(0);
    CHECK_ERR(waitid(P_ALL, 0, &si, WSTOPPED), ECHILD);
    CHECK_ERR(waitid(P_PID, p, &si, WCONTINUED), ECHILD);
    CHECK_ERR(waitid(P_PID, p, &si, WSTOPPED | WCONTINUED | WNOHANG), ECHILD);
    t_pester_stop();
    CHECK_STATUS(t_status(p), "exit 3");
}
static void *spins(void *stop) {
    while (!*(volatile int *)stop) {}
    return 0;
}
static double cpu_seconds(clockid_t c) {
    struct timespec t;
    SYS(clock_gettime(c, &t));
    return t.tv_sec + t.tv_nsec / 1e9;
}
// Whoever is the last thread, what all of them used is counted.
TEST(threads_that_leave_together_are_counted) {
    double *own = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int lost = 0;
    for (int threads = 1; threads <= 3; threads += 2) {
        for (int i = 0; i < 30; i++) {
            pid_t p = FORK();
            if (p == 0) {
                static int never;
                pthread_t t;
                for (int k = 0; k < threads; k++) pthread_create(&t, 0, spins, &never);
                while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < 0.02) {}
                *own = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
                syscall(SYS_exit_group, 0);
            }
            struct rusage u;
            int st;
            CHECK_EQ(wait4(p, &st, 0, &u), p);
            double counted = u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
            if (counted < *own / 2) lost++;
        }
    }
    CHECK_EQ(lost, 0);
}
static void *dies(void *gate) {
    t_pass(*(struct t_gate *)gate);
    syscall(SYS_exit, 0);
    return 0;
}
TEST(threads_that_exit_together_end_the_process) {
    for (int i = 0; i < 30; i++) {
        pid_t p = FORK();
        if (p == 0) {
            struct t_gate g = t_gate();
            pthread_t t;
            for (int k = 0; k < 3; k++) pthread_create(&t, 0, dies, &g);
            for (int k = 0; k < 3; k++) t_open(g);
            syscall(SYS_exit, 5);
        }
        int st;
        CHECK_EQ(waitpid(p, &st, 0), p);
        CHECK(WIFEXITED(st) && (WEXITSTATUS(st) == 0 || WEXITSTATUS(st) == 5));
    }
}
// The last of several users of a descriptor table closes it, so that the pipe's reader sees the end.
static int closes(void *w) {
    (void)w;
    return 0;
}
TEST(tasks_that_share_descriptors_and_leave_together_close_them) {
    static char stacks[4][16384] __attribute__((aligned(16)));
    for (int i = 0; i < 20; i++) {
        pid_t p = FORK();
        if (p == 0) {
            int lock = SYS(open("lock", O_CREAT | O_RDWR, 0600));
            struct flock l = {.l_type = F_WRLCK};
            OK(fcntl(lock, F_SETLK, &l));
            for (int k = 0; k < 4; k++) SYS(clone(closes, stacks[k] + 16384, CLONE_FILES | SIGCHLD, 0));
            _exit(0);
        }
        t_status(p);
        int fd = SYS(open("lock", O_RDWR)), got = -1;
        for (int k = 0; k < 400 && got < 0; k++) {
            struct flock l = {.l_type = F_WRLCK};
            got = fcntl(fd, F_SETLK, &l);
            if (got < 0) t_ms(5);
        }
        CHECK_EQ(got, 0);
        close(fd);
    }
}
TEST(pidfd_of_a_reaped_process_hangs_up) {
    pid_t p = FORK();
    if (p == 0) _exit(0);
    int fd = SYS(syscall(SYS_pidfd_open, p, 0));
    struct pollfd f = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&f, 1, 5000), 1);
    CHECK_EQ(f.revents, POLLIN);
    t_status(p);
    CHECK_EQ(poll(&f, 1, 0), 1);
    CHECK_EQ(f.revents, POLLIN | POLLHUP);
    f.events = 0;
    CHECK_EQ(poll(&f, 1, 5000), 1);
    CHECK_EQ(f.revents, POLLHUP);
}
TEST(clone_with_a_kernel_address_for_its_thread_pointer) {
    unsigned long bad[] = {0x7ffffffff000, 0x800000000000, 0xffff800000000000};
    for (int i = 0; i < 3; i++) CHECK_ERR(syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, bad[i]), EPERM);
}
TEST(wait_stopped_and_continued) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    SYS(kill(p, SIGSTOP));
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    CHECK_STATUS(st, "stopped 19");
    CHECK_EQ(waitpid(p, &st, WUNTRACED | WNOHANG), 0);
    SYS(kill(p, SIGCONT));
    CHECK_EQ(waitpid(p, &st, WCONTINUED), p);
    CHECK_EQ(st, 0xffff);
    CHECK_EQ(waitpid(p, &st, WCONTINUED | WNOHANG), 0);
    SYS(kill(p, SIGTSTP));
    siginfo_t si = {0};
    OK(waitid(P_PID, p, &si, WSTOPPED | WNOWAIT));
    CHECK_EQ(si.si_code, CLD_STOPPED);
    CHECK_EQ(si.si_status, SIGTSTP);
    OK(waitid(P_PID, p, &si, WSTOPPED));
    SYS(kill(p, SIGCONT));
    OK(waitid(P_PID, p, &si, WCONTINUED));
    CHECK_EQ(si.si_code, CLD_CONTINUED);
    CHECK_EQ(si.si_status, SIGCONT);
    SYS(kill(p, SIGKILL));
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(wait_kill_works_on_stopped) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    SYS(kill(p, SIGSTOP));
    int st;
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    SYS(kill(p, SIGTERM));
    CHECK_EQ(waitpid(p, &st, WNOHANG), 0);
    SYS(kill(p, SIGCONT));
    CHECK_STATUS(t_status(p), "signal 15");
}
TEST(wait_by_process_group) {
    struct t_gate g = t_gate();
    pid_t a = FORK();
    if (a == 0) {
        setpgid(0, 0);
        t_pass(g);
        _exit(1);
    }
    setpgid(a, a);
    pid_t b = FORK();
    if (b == 0) _exit(2);
    int st;
    CHECK_EQ(waitpid(0, &st, 0), b);
    CHECK_ERR(waitpid(0, &st, 0), ECHILD);
    CHECK_EQ(waitpid(-a, &st, WNOHANG), 0);
    t_open(g);
    siginfo_t si = {0};
    OK(waitid(P_PGID, a, &si, WEXITED));
    CHECK_EQ(si.si_pid, a);
    CHECK_ERR(waitpid(-a, &st, 0), ECHILD);
}
TEST(wait_pidfd) {
    pid_t p = FORK();
    if (p == 0) _exit(5);
    int fd = SYS((int)syscall(SYS_pidfd_open, p, 0));
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    siginfo_t si = {0};
    OK(waitid(P_PIDFD, fd, &si, WEXITED));
    CHECK_EQ(si.si_pid, p);
    CHECK_EQ(si.si_status, 5);
    CHECK_ERR(waitid(P_PIDFD, fd, &si, WEXITED), ECHILD);
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, SIGTERM, 0, 0), ESRCH);
    close(fd);
    CHECK_ERR(syscall(SYS_pidfd_open, 1 << 22, 0), ESRCH);
    CHECK_ERR(syscall(SYS_pidfd_open, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_pidfd_open, getpid(), 0x10000000), EINVAL);
}
TEST(wait_pidfd_signal) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    int fd = SYS((int)syscall(SYS_pidfd_open, p, 0));
    OK(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0));
    CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 99, 0, 0), EINVAL);
    OK(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, 0, 0));
    CHECK_STATUS(t_status(p), "signal 10");
}
TEST(wait_rusage) {
    pid_t p = FORK();
    if (p == 0) {
        struct rusage r;
        // Linux counts pages per processor, and notices a few only later.
        char *pages = malloc(8 << 20);
        memset(pages, 1, 8 << 20);
        do
            getrusage(RUSAGE_SELF, &r);
        while ((r.ru_utime.tv_usec + r.ru_stime.tv_usec < 30000 && !r.ru_utime.tv_sec && !r.ru_stime.tv_sec) || !r.ru_maxrss);
        _exit(0);
    }
    struct rusage r = {0}, c = {0};
    int st;
    CHECK_EQ(wait4(p, &st, 0, &r), p);
    CHECK((r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 + r.ru_utime.tv_usec + r.ru_stime.tv_usec >= 20000);
    OK(getrusage(RUSAGE_CHILDREN, &c));
    CHECK((c.ru_utime.tv_sec + c.ru_stime.tv_sec) * 1000000 + c.ru_utime.tv_usec + c.ru_stime.tv_usec >= 20000);
    CHECK(r.ru_maxrss > 0);
    CHECK_ERR(getrusage(7, &r), EINVAL);
    CHECK_ERR(getrusage(RUSAGE_SELF, BAD_PTR), EFAULT);
}
static void *wait_other_thread(void *a) {
    int st;
    CHECK_EQ(waitpid(*(pid_t *)a, &st, __WNOTHREAD), -1);
    CHECK_EQ(errno, ECHILD);
    CHECK_EQ(waitpid(*(pid_t *)a, &st, 0), *(pid_t *)a);
    return 0;
}
TEST(wait_from_another_thread) {
    pid_t p = FORK();
    if (p == 0) _exit(0);
    pthread_t t;
    pthread_create(&t, 0, wait_other_thread, &p);
    pthread_join(t, 0);
}
TEST(wait_eintr) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    t_pester(0);
    CHECK_ERR(waitpid(p, 0, 0), EINTR);
    t_pester_stop();
    kill(p, SIGKILL);
    t_status(p);
}
TEST(orphan_goes_to_subreaper) {
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    int v = 0;
    OK(prctl(PR_GET_CHILD_SUBREAPER, &v));
    CHECK_EQ(v, 1);
    struct t_gate g = t_gate(), told = t_gate();
    pid_t me = getpid(), p = FORK();
    if (p == 0) {
        OK(prctl(PR_GET_CHILD_SUBREAPER, &v));
        CHECK_EQ(v, 0);
        pid_t q = FORK();
        if (q == 0) {
            t_pass(g);
            CHECK_EQ(getppid(), me);
            _exit(33);
        }
        CHECK_EQ(write(told.w, &q, sizeof q), sizeof q);
        _exit(0);
    }
    pid_t q;
    CHECK_EQ(read(told.r, &q, sizeof q), sizeof q);
    CHECK_STATUS(t_status(p), "exit 0");
    t_open(g);
    int st;
    CHECK_EQ(wait(&st), q);
    CHECK_STATUS(st, "exit 33");
}
TEST(orphan_pdeathsig) {
    struct t_gate g = t_gate(), ready = t_gate();
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    pid_t p = FORK();
    if (p == 0) {
        pid_t q = FORK();
        if (q == 0) {
            OK(prctl(PR_SET_PDEATHSIG, SIGUSR2));
            t_open(ready);
            for (;;) pause();
        }
        t_pass(g);
        _exit(0);
    }
    t_pass(ready);
    t_open(g);
    t_status(p);
    int st;
    CHECK(wait(&st) > 0);
    CHECK_STATUS(st, "signal 12");
}
TEST(sigchld_info) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGCHLD);
    SYS(sigprocmask(SIG_BLOCK, &s, 0));
    pid_t p = FORK();
    if (p == 0) _exit(21);
    siginfo_t si = {0};
    CHECK_EQ(sigwaitinfo(&s, &si), SIGCHLD);
    CHECK_EQ(si.si_code, CLD_EXITED);
    CHECK_EQ(si.si_pid, p);
    CHECK_EQ(si.si_status, 21);
    CHECK_STATUS(t_status(p), "exit 21");
}
TEST(sigchld_ignored_reaps) {
    signal(SIGCHLD, SIG_IGN);
    pid_t p = FORK();
    if (p == 0) _exit(0);
    CHECK_ERR(waitpid(p, 0, 0), ECHILD);
    CHECK_ERR(kill(p, 0), ESRCH);
}
TEST(sigchld_nocldwait_reaps) {
    struct sigaction sa = {.sa_handler = t_on_alarm, .sa_flags = SA_NOCLDWAIT};
    SYS(sigaction(SIGCHLD, &sa, 0));
    pid_t p = FORK();
    if (p == 0) _exit(0);
    int r;
    do
        r = waitpid(p, 0, 0);
    while (r < 0 && errno == EINTR);
    CHECK_EQ(r, -1);
    CHECK_EQ(errno, ECHILD);
}
TEST(vfork_runs_child_first) {
    volatile int n = 1;
    pid_t p = vfork();
    if (p == 0) {
        n = 2;
        _exit(3);
    }
    CHECK_EQ(n, 2);
    CHECK_STATUS(t_status(p), "exit 3");
}
TEST(vfork_exec) {
    pid_t p = vfork();
    if (p == 0) {
        execl("/bin/sh", "sh", "-c", "exit 8", (char *)0);
        _exit(127);
    }
    CHECK_STATUS(t_status(p), "exit 8");
}
TEST(vfork_child_killed) {
    pid_t p = vfork();
    if (p == 0) {
        raise(SIGKILL);
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "signal 9");
}
static char stack[65536] __attribute__((aligned(16)));
static volatile int clone_seen;
static int clone_main(void *a) {
    clone_seen = (int)(long)a;
    return 17;
}
TEST(clone_shares_vm) {
    clone_seen = 0;
    pid_t p = SYS(clone(clone_main, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)5));
    CHECK_STATUS(t_status(p), "exit 17");
    CHECK_EQ(clone_seen, 5);
    clone_seen = 0;
    p = SYS(clone(clone_main, stack + sizeof stack, SIGCHLD, (void *)6));
    CHECK_STATUS(t_status(p), "exit 17");
    CHECK_EQ(clone_seen, 0);
}
static int clone_files_main(void *a) {
    CHECK_EQ(close((int)(long)a), 0);
    CHECK_EQ(chdir("/"), 0);
    return 0;
}
TEST(clone_shares_files_and_fs) {
    int fd = t_file("f", "x");
    pid_t p = SYS(clone(clone_files_main, stack + sizeof stack, CLONE_FILES | CLONE_FS | SIGCHLD, (void *)(long)fd));
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_ERR(fcntl(fd, F_GETFD), EBADF);
    char b[PATH_MAX];
    CHECK_STR(getcwd(b, sizeof b), "/");
}
TEST(clone_exit_signal) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    SYS(sigprocmask(SIG_BLOCK, &s, 0));
    pid_t p = SYS(clone(clone_main, stack + sizeof stack, SIGUSR1, 0));
    siginfo_t si;
    CHECK_EQ(sigwaitinfo(&s, &si), SIGUSR1);
    CHECK_EQ(si.si_pid, p);
    CHECK_ERR(waitpid(p, 0, 0), ECHILD);
    int st;
    CHECK_EQ(waitpid(p, &st, __WCLONE), p);
    CHECK_STATUS(st, "exit 17");
    p = SYS(clone(clone_main, stack + sizeof stack, 0, 0));
    CHECK_EQ(waitpid(p, &st, __WALL), p);
}
TEST(clone_parent_gives_sibling) {
    // a child made with CLONE_PARENT belongs to its creator's parent
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        pid_t q = (pid_t)SYS(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0));
        if (q == 0) _exit(44);
        CHECK_EQ(write(g.w, &q, sizeof q), sizeof q);
        CHECK_ERR(waitpid(q, 0, 0), ECHILD);
        _exit(0);
    }
    pid_t q;
    CHECK_EQ(read(g.r, &q, sizeof q), sizeof q);
    CHECK_STATUS(t_status(q), "exit 44");
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(clone_settid_and_cleartid) {
    pid_t *m = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    m[0] = m[1] = -1;
    pid_t p = (pid_t)SYS(syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, 0, &m[0], &m[1], 0));
    if (p == 0) {
        CHECK_EQ(m[1], getpid());
        _exit(0);
    }
    CHECK_EQ(m[0], p);
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(clone_bad_flags) {
    CHECK_ERR(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, 0, 0, 0), EINVAL);
}
TEST(clone_pidfd) {
    int fd = -1;
    pid_t p = (pid_t)SYS(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &fd, 0, 0));
    if (p == 0) _exit(3);
    CHECK(fd >= 0);
    siginfo_t si = {0};
    OK(waitid(P_PIDFD, fd, &si, WEXITED));
    CHECK_EQ(si.si_pid, p);
    CHECK_EQ(si.si_status, 3);
}
TEST(clone3_fork) {
    int fd = -1;
    struct clone_args a = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&fd, .exit_signal = SIGCHLD};
    pid_t p = (pid_t)SYS(syscall(SYS_clone3, &a, sizeof a));
    if (p == 0) _exit(12);
    CHECK(fd >= 0);
    CHECK_STATUS(t_status(p), "exit 12");
}
TEST(clone3_errors) {
    struct clone_args a = {.exit_signal = SIGCHLD};
    CHECK_ERR(syscall(SYS_clone3, &a, 8), EINVAL);
    CHECK_ERR(syscall(SYS_clone3, &a, 1 << 20), E2BIG);
    CHECK_ERR(syscall(SYS_clone3, BAD_PTR, sizeof a), EFAULT);
    a.exit_signal = 200;
    CHECK_ERR(syscall(SYS_clone3, &a, sizeof a), EINVAL);
    a.exit_signal = SIGCHLD;
    a.stack = 4096;
    CHECK_ERR(syscall(SYS_clone3, &a, sizeof a), EINVAL);
    a.stack = 0;
    a.flags = CLONE_DETACHED;
    CHECK_ERR(syscall(SYS_clone3, &a, sizeof a), EINVAL);
    a.flags = CLONE_SIGHAND | CLONE_CLEAR_SIGHAND;
    CHECK_ERR(syscall(SYS_clone3, &a, sizeof a), EINVAL);
}
static int clone_as(unsigned long flags, const pid_t *numbers, unsigned long count) {
    struct clone_args a = {.flags = flags, .exit_signal = SIGCHLD, .set_tid = (uintptr_t)numbers, .set_tid_size = count};
    int p = syscall(SYS_clone3, &a, sizeof a);
    if (p == 0) _exit(getpid() & 0x7f);
    return p;
}
// The caller chooses the numbers, from the innermost PID namespace outwards.
TEST(clone3_set_tid) {
    if (geteuid() != 0) SKIP("not root");
    pid_t gone = FORK();
    if (gone == 0) _exit(0);
    CHECK_STATUS(t_status(gone), "exit 0");
    char want[32];
    sprintf(want, "exit %d", gone & 0x7f);
    CHECK_EQ(clone_as(0, &gone, 1), gone);
    CHECK_STATUS(t_status(gone), want);
    pid_t self = getpid(), bad[] = {0, -1, 1 << 22};
    CHECK_ERR(clone_as(0, &self, 1), EEXIST);
    for (int i = 0; i < 3; i++) CHECK_ERR(clone_as(0, &bad[i], 1), EINVAL);
    CHECK_ERR(clone_as(0, &gone, 33), EINVAL);
    CHECK_ERR(clone_as(0, &gone, 0), EINVAL);
    CHECK_ERR(clone_as(0, NULL, 1), EINVAL);
    CHECK_ERR(clone_as(0, BAD_PTR, 1), EFAULT);
    // A new namespace begins with 1.
    pid_t inner[] = {1, gone}, second[] = {2, gone};
    CHECK_EQ(clone_as(CLONE_NEWPID, inner, 2), gone);
    CHECK_STATUS(t_status(gone), "exit 1");
    CHECK_ERR(clone_as(CLONE_NEWPID, second, 2), EINVAL);
    // The numbers go on where they were.
    pid_t next = FORK();
    if (next == 0) _exit(0);
    CHECK(next > gone);
    CHECK_STATUS(t_status(next), "exit 0");
    CHECK_CHILD(SYS(setresuid(1000, 1000, 1000)); CHECK_ERR(clone_as(0, &gone, 1), EPERM);
                CHECK_ERR(clone_as(0, &self, 1), EPERM); CHECK_ERR(clone_as(0, bad, 1), EINVAL));
}
TEST(clone3_clear_sighand) {
    signal(SIGUSR1, t_on_alarm);
    signal(SIGUSR2, SIG_IGN);
    struct clone_args a = {.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    pid_t p = (pid_t)SYS(syscall(SYS_clone3, &a, sizeof a));
    if (p == 0) {
        struct sigaction sa;
        sigaction(SIGUSR1, 0, &sa);
        CHECK(sa.sa_handler == SIG_DFL);
        sigaction(SIGUSR2, 0, &sa);
        CHECK(sa.sa_handler == SIG_IGN);
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(pids_are_reused_late) {
    pid_t a = FORK();
    if (a == 0) _exit(0);
    t_status(a);
    pid_t b = FORK();
    if (b == 0) _exit(0);
    t_status(b);
    CHECK(a != b);
}
