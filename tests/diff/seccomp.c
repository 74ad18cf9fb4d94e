// seccomp(2) and prctl(PR_SET_SECCOMP).
#include "t.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

#define LD(f) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, f))
#define RET(v) BPF_STMT(BPF_RET | BPF_K, (v))
#define IF_NR(n, v) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (n), 0, 1), RET(v)

static int set(unsigned flags, struct sock_filter *f, unsigned short n) {
    struct sock_fprog p = {n, f};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p);
}
#define FILTER(flags, ...)                                                                                             \
    ({                                                                                                                 \
        struct sock_filter f_[] = {__VA_ARGS__};                                                                       \
        set(flags, f_, sizeof f_ / sizeof *f_);                                                                        \
    })
static void nnp(void) { OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); }
// Makes one call return a value and allows all others.
static void on(int nr, unsigned value) {
    nnp();
    OK(FILTER(0, LD(nr), IF_NR(nr, value), RET(SECCOMP_RET_ALLOW)));
}
static int status_line(const char *name) {
    static char buf[8192];
    int fd = SYS(open("/proc/thread-self/status", O_RDONLY)), n = read(fd, buf, sizeof buf - 1);
    close(fd);
    buf[n > 0 ? n : 0] = 0;
    char *p = strstr(buf, name);
    return p ? atoi(p + strlen(name)) : -1;
}

TEST(disabled_at_first) {
    OK(prctl(PR_GET_SECCOMP));
    CHECK_EQ(status_line("\nSeccomp:\t"), 0);
    CHECK_EQ(status_line("Seccomp_filters:\t"), 0);
}
TEST(errno_action) {
    on(SYS_getppid, SECCOMP_RET_ERRNO | ENOTTY);
    CHECK_ERR(syscall(SYS_getppid), ENOTTY);
    CHECK(getuid() != (uid_t)-1);
    CHECK_EQ(prctl(PR_GET_SECCOMP), 2);
    CHECK_EQ(status_line("\nSeccomp:\t"), 2);
    CHECK_EQ(status_line("Seccomp_filters:\t"), 1);
    CHECK_EQ(status_line("NoNewPrivs:\t"), 1);
}
TEST(errno_zero_and_too_large) {
    on(SYS_getppid, SECCOMP_RET_ERRNO);
    OK(syscall(SYS_getppid));
    on(SYS_getpgrp, SECCOMP_RET_ERRNO | 0xffff);
    CHECK_ERR(syscall(SYS_getpgrp), 4095);
}
TEST(numbers_nobody_implements) {
    on(5000, SECCOMP_RET_ERRNO | EDOM);
    CHECK_ERR(syscall(5000), EDOM);
    CHECK_ERR(syscall(5001), ENOSYS);
}
TEST(arguments) {
    nnp();
    OK(FILTER(0, LD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 1, 0), RET(SECCOMP_RET_ALLOW), LD(args[1]),
              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x11223344, 0, 3),
              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + 4),
              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x1234, 0, 1), RET(SECCOMP_RET_ERRNO | EL2HLT),
              RET(SECCOMP_RET_ERRNO | ELNRNG)));
    CHECK_ERR(syscall(SYS_lseek, -1, 0x123411223344, SEEK_SET), EL2HLT);
    CHECK_ERR(syscall(SYS_lseek, -1, 0x123511223344, SEEK_SET), ELNRNG);
    CHECK_ERR(syscall(SYS_lseek, -1, 0x11223344, SEEK_SET), ELNRNG);
}
TEST(architecture_and_instruction_pointer) {
    nnp();
    OK(FILTER(0, LD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), RET(SECCOMP_RET_KILL_PROCESS),
              LD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0), RET(SECCOMP_RET_ALLOW),
              LD(instruction_pointer), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xfff),
              BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO), BPF_STMT(BPF_RET | BPF_A, 0)));
    long r;
    unsigned long after;
    asm volatile("lea 1f(%%rip),%1\n syscall\n1:" : "=a"(r), "=&r"(after) : "0"(SYS_getppid) : "rcx", "r11", "memory");
    CHECK_EQ(-r, after & 0xfff);
}
static volatile siginfo_t got;
static volatile unsigned long got_rax, got_rip;
static volatile int caught;
static void on_sys(int s, siginfo_t *si, void *u) {
    ucontext_t *uc = u;
    memcpy((void *)&got, si, sizeof got);
    got_rax = uc->uc_mcontext.gregs[REG_RAX];
    got_rip = uc->uc_mcontext.gregs[REG_RIP];
    caught += s;
    uc->uc_mcontext.gregs[REG_RAX] = 4711;
}
TEST(trap) {
    struct sigaction sa = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSYS, &sa, 0));
    on(SYS_getppid, SECCOMP_RET_TRAP | 99);
    CHECK_EQ(syscall(SYS_getppid), 4711);
    CHECK_EQ(caught, SIGSYS);
    CHECK_EQ(got.si_signo, SIGSYS);
    CHECK_EQ(got.si_code, 1); // SYS_SECCOMP
    CHECK_EQ(got.si_errno, 99);
    CHECK_EQ(got.si_syscall, SYS_getppid);
    CHECK_EQ(got.si_arch, AUDIT_ARCH_X86_64);
    CHECK_EQ((unsigned long)got.si_call_addr, got_rip);
    CHECK_EQ(got_rax, SYS_getppid);
}
TEST(trap_without_handler) {
    CHECK_STATUS(CHILD(on(SYS_getppid, SECCOMP_RET_TRAP); syscall(SYS_getppid)), "signal 31");
}
TEST(trap_blocked_or_ignored_is_fatal) {
    CHECK_STATUS(CHILD(signal(SIGSYS, SIG_IGN); on(SYS_getppid, SECCOMP_RET_TRAP); syscall(SYS_getppid)), "signal 31");
    CHECK_STATUS(CHILD({
        struct sigaction sa = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
        sigaction(SIGSYS, &sa, 0);
        sigset_t m;
        sigemptyset(&m);
        sigaddset(&m, SIGSYS);
        sigprocmask(SIG_BLOCK, &m, 0);
        on(SYS_getppid, SECCOMP_RET_TRAP);
        syscall(SYS_getppid);
    }), "signal 31");
}
TEST(kill_process) {
    CHECK_STATUS(CHILD(on(SYS_getppid, SECCOMP_RET_KILL_PROCESS); syscall(SYS_getppid)), "signal 31");
    // So does a value that is no action.
    CHECK_STATUS(CHILD(on(SYS_getppid, 0x12340000); syscall(SYS_getppid)), "signal 31");
}
static volatile int after;
static void *dies(void *a) {
    syscall(SYS_getppid);
    after = 1;
    return a;
}
TEST(kill_thread) {
    CHECK_STATUS(CHILD(on(SYS_getppid, SECCOMP_RET_KILL_THREAD); syscall(SYS_getppid)), "signal 31");
    CHECK_CHILD({
        on(SYS_getppid, SECCOMP_RET_KILL_THREAD);
        pthread_t t;
        void *r;
        OK(pthread_create(&t, 0, dies, 0));
        OK(pthread_join(t, &r));
        OK(after);
    });
    CHECK_STATUS(CHILD({
        on(SYS_getppid, SECCOMP_RET_KILL_PROCESS);
        pthread_t t;
        pthread_create(&t, 0, dies, 0);
        pthread_join(t, 0);
    }), "signal 31");
}
static void *ends_late(void *a) {
    t_ms(50);
    syscall(SYS_exit, 3);
    return a;
}
TEST(the_last_threads_status_counts) {
    CHECK_STATUS(CHILD({
        pthread_t t;
        pthread_create(&t, 0, ends_late, 0);
        syscall(SYS_exit, 5);
    }), "exit 3");
    CHECK_STATUS(CHILD({
        pthread_t t;
        pthread_create(&t, 0, ends_late, 0);
        on(SYS_getppid, SECCOMP_RET_KILL_THREAD);
        syscall(SYS_getppid);
    }), "exit 3");
}
TEST(trace_without_tracer_and_log) {
    on(SYS_getppid, SECCOMP_RET_TRACE | 5);
    CHECK_ERR(syscall(SYS_getppid), ENOSYS);
    on(SYS_getpgrp, SECCOMP_RET_LOG);
    CHECK(syscall(SYS_getpgrp) > 0);
    on(SYS_getsid, SECCOMP_RET_USER_NOTIF);
    CHECK_ERR(syscall(SYS_getsid, 0), ENOSYS);
}
TEST(strictest_wins) {
    on(SYS_getppid, SECCOMP_RET_ERRNO | 1);
    on(SYS_getppid, SECCOMP_RET_ERRNO | 2);
    CHECK_ERR(syscall(SYS_getppid), 2); // the latest among equals
    on(SYS_getppid, SECCOMP_RET_ALLOW);
    CHECK_ERR(syscall(SYS_getppid), 2);
    on(SYS_getppid, SECCOMP_RET_TRACE);
    CHECK_ERR(syscall(SYS_getppid), 2);
    CHECK_EQ(status_line("Seccomp_filters:\t"), 4);
    CHECK_STATUS(CHILD(on(SYS_getppid, SECCOMP_RET_KILL_PROCESS); on(SYS_getppid, SECCOMP_RET_ERRNO); syscall(SYS_getppid)), "signal 31");
}
TEST(inherited) {
    on(SYS_getppid, SECCOMP_RET_ERRNO | ENOTTY);
    CHECK_CHILD(CHECK_ERR(syscall(SYS_getppid), ENOTTY));
    pid_t p = vfork();
    if (p == 0) {
        CHECK_ERR(syscall(SYS_getppid), ENOTTY);
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_CHILD(execl("/bin/sh", "sh", "-c", "grep -q 'Seccomp:.2' /proc/self/status", NULL); _exit(9));
}
TEST(exec_can_be_refused) {
    on(SYS_execve, SECCOMP_RET_ERRNO | EXDEV);
    CHECK_ERR(execl("/bin/true", "true", NULL), EXDEV);
}
TEST(needs_no_new_privs) {
    if (getuid() == 0) OK(setuid(65534));
    CHECK_ERR(FILTER(0, RET(SECCOMP_RET_ALLOW)), EACCES);
    struct sock_filter f[] = {RET(SECCOMP_RET_ALLOW)};
    struct sock_fprog p = {1, f};
    CHECK_ERR(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p), EACCES);
    nnp();
    OK(FILTER(0, RET(SECCOMP_RET_ALLOW)));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p));
    CHECK_EQ(status_line("Seccomp_filters:\t"), 2);
}
TEST(bad_arguments) {
    nnp();
    CHECK_ERR(syscall(SYS_seccomp, 99, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, 0), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, "x"), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1 << 20, "x"), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0), EFAULT);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, BAD_PTR), EFAULT);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, BAD_PTR), EINVAL);
    CHECK_ERR(set(0, 0, 0), EINVAL);
    CHECK_ERR(set(0, (void *)8, 4097), EINVAL);
    CHECK_ERR(set(0, (void *)8, 1), EFAULT);
    CHECK_ERR(prctl(PR_SET_SECCOMP, 3, 0), EINVAL);
    CHECK_ERR(prctl(PR_SET_SECCOMP, 2, 0), EFAULT);
}
TEST(bad_programs) {
    nnp();
    CHECK_ERR(FILTER(0, LD(nr)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 3), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_LD | BPF_MEM, 0), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_ST, 16), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_JUMP(BPF_JMP | BPF_JEQ, 1, 1, 0), RET(0)), EINVAL);
    CHECK_ERR(FILTER(0, BPF_STMT(BPF_MISC | 0x40, 0), RET(0)), EINVAL);
    OK(FILTER(0, BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_ST, 15), BPF_STMT(BPF_LDX | BPF_MEM, 15), RET(SECCOMP_RET_ALLOW)));
}
TEST(division_by_zero_returns_zero) {
    nnp();
    CHECK_STATUS(CHILD({
        FILTER(0, LD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0), RET(SECCOMP_RET_ALLOW),
               BPF_STMT(BPF_LDX | BPF_IMM, 0), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0), RET(SECCOMP_RET_ALLOW));
        syscall(SYS_getppid);
    }), "signal 31");
}
TEST(too_many_instructions) {
    nnp();
    static struct sock_filter f[4096];
    for (int i = 0; i < 4096; i++) f[i] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    for (int i = 0; i < 3; i++) OK(set(0, f, 4096));
    CHECK_ERR(set(0, f, 4096), ENOMEM);
    CHECK_EQ(status_line("Seccomp_filters:\t"), 3);
    // What counts is the length after translation: a jump both ways is two.
    for (int i = 0; i < 4095; i++) f[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, 1);
    OK(set(0, f, 4096));
    CHECK_ERR(set(0, f, 4096), ENOMEM);
    CHECK_ERR(set(0, f + 4096 - 4067, 4067), ENOMEM);
    OK(set(0, f + 4096 - 4056, 4056));
}
TEST(strict_mode) {
    CHECK_STATUS(CHILD({
        OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
        (void)!write(1, "", 0);
        syscall(SYS_exit, 7);
    }), "exit 7");
    CHECK_STATUS(CHILD(OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0)); syscall(SYS_getpid)), "signal 9");
    CHECK_STATUS(CHILD(OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)); syscall(SYS_exit_group, 0)), "signal 9");
    CHECK_STATUS(CHILD(OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)); int w = 0; syscall(SYS_futex, &w, FUTEX_WAKE, 1)), "signal 9");
    CHECK_CHILD(nnp(); OK(FILTER(0, RET(SECCOMP_RET_ALLOW))); CHECK_ERR(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), EINVAL));
}
TEST(futex_is_filtered) {
    on(SYS_futex, SECCOMP_RET_ERRNO | EDOM);
    int w = 0;
    CHECK_ERR(syscall(SYS_futex, &w, FUTEX_WAKE, 1), EDOM);
    CHECK_ERR(syscall(SYS_futex, &w, FUTEX_WAIT_PRIVATE, 1, 0), EDOM);
}
// A filter that looks at futex's arguments: the calls it lets through work as before.
TEST(futex_by_argument) {
    nnp();
    OK(FILTER(0, LD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 1, 0), RET(SECCOMP_RET_ALLOW), LD(args[2]),
              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4711, 0, 1), RET(SECCOMP_RET_ERRNO | EDOM), RET(SECCOMP_RET_ALLOW)));
    int w = 0;
    OK(syscall(SYS_futex, &w, FUTEX_WAKE, 1));
    CHECK_ERR(syscall(SYS_futex, &w, FUTEX_WAKE, 4711), EDOM);
    CHECK_ERR(syscall(SYS_futex, &w, FUTEX_WAIT, 1, 0), EAGAIN);
    struct timespec ts = {0, 10000000};
    CHECK_ERR(syscall(SYS_futex, &w, FUTEX_WAIT, 0, &ts), ETIMEDOUT);
    pthread_t t;
    for (int i = 0; i < 20; i++) {
        after = 0;
        OK(pthread_create(&t, 0, dies, 0));
        OK(pthread_join(t, 0));
        CHECK_EQ(after, 1);
    }
    CHECK_ERR(syscall(SYS_futex, &w, FUTEX_WAKE, 4711), EDOM);
}
static volatile int go;
static void *asks(void *a) {
    while (!go) usleep(1000);
    long r = syscall(SYS_getppid);
    *(int *)a = r == -1 ? errno : 0;
    return (void *)(long)prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
}
static void *has_own(void *a) {
    FILTER(0, RET(SECCOMP_RET_ALLOW));
    *(int *)a = gettid();
    go = 1;
    while (go == 1) usleep(1000);
    return 0;
}
TEST(tsync) {
    int seen = -1;
    pthread_t t;
    void *r;
    OK(pthread_create(&t, 0, asks, &seen));
    nnp();
    OK(FILTER(SECCOMP_FILTER_FLAG_TSYNC, LD(nr), IF_NR(SYS_getppid, SECCOMP_RET_ERRNO | ENOTTY), RET(SECCOMP_RET_ALLOW)));
    go = 1;
    OK(pthread_join(t, &r));
    CHECK_EQ(seen, ENOTTY);
    CHECK_EQ((long)r, 1);
}
TEST(not_tsync) {
    int seen = -1;
    pthread_t t;
    OK(pthread_create(&t, 0, asks, &seen));
    on(SYS_getppid, SECCOMP_RET_ERRNO | ENOTTY);
    go = 1;
    OK(pthread_join(t, 0));
    OK(seen);
}
TEST(tsync_diverged) {
    nnp();
    int tid = -1;
    pthread_t t;
    OK(pthread_create(&t, 0, has_own, &tid));
    while (!go) usleep(1000);
    CHECK_EQ(FILTER(SECCOMP_FILTER_FLAG_TSYNC, RET(SECCOMP_RET_ALLOW)), tid);
    CHECK_ERR(FILTER(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, RET(SECCOMP_RET_ALLOW)), ESRCH);
    go = 2;
    pthread_join(t, 0);
    OK(prctl(PR_GET_SECCOMP));
}
static int word;
static void *waits(void *a) {
    *(int *)a = 1;
    long r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, 0);
    if (r == -1) return (void *)(long)errno;
    r = syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
    return (void *)(long)(r == -1 ? errno : 0);
}
TEST(tsync_of_a_waiting_thread) {
    int there = 0;
    pthread_t t;
    void *r;
    OK(pthread_create(&t, 0, waits, &there));
    while (!*(volatile int *)&there) usleep(1000);
    t_ms(20);
    nnp();
    OK(FILTER(SECCOMP_FILTER_FLAG_TSYNC, LD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 1, 0),
              RET(SECCOMP_RET_ALLOW), LD(args[2]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1),
              RET(SECCOMP_RET_ERRNO | ENOTTY), RET(SECCOMP_RET_ALLOW)));
    t_ms(20);
    *(volatile int *)&word = 1;
    while (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 5) != 1 && !pthread_tryjoin_np(t, &r)) usleep(1000);
    pthread_join(t, &r);
    CHECK_EQ((long)r, ENOTTY);
}
TEST(action_avail) {
    unsigned known[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO,
                        SECCOMP_RET_TRACE, SECCOMP_RET_LOG, SECCOMP_RET_ALLOW};
    for (unsigned i = 0; i < 7; i++) OK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &known[i]));
    unsigned bad[] = {0x12340000, SECCOMP_RET_ERRNO | 1};
    for (int i = 0; i < 2; i++) CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &bad[i]), EOPNOTSUPP);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 1, known), EINVAL);
    CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, 0), EFAULT);
    char buf[256] = "";
    int fd = SYS(open("/proc/sys/kernel/seccomp/actions_avail", O_RDONLY));
    CHECK(read(fd, buf, 255) > 0);
    CHECK(strstr(buf, "kill_process kill_thread trap errno"));
    CHECK(strstr(buf, "trace log allow\n"));
}
TEST(notif_sizes) {
    struct seccomp_notif_sizes s = {0};
    OK(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &s));
    CHECK_EQ(s.seccomp_notif, 80);
    CHECK_EQ(s.seccomp_notif_resp, 24);
    CHECK_EQ(s.seccomp_data, 64);
}
static void on_usr(int s) { caught = s; }
TEST(signals_and_restarts_go_through_the_filter) {
    nnp();
    // nanosleep restarted after a stop: restart_syscall is a call of its own.
    OK(FILTER(0, LD(nr), IF_NR(SYS_restart_syscall, SECCOMP_RET_ERRNO | EDOM), RET(SECCOMP_RET_ALLOW)));
    signal(SIGUSR1, on_usr);
    raise(SIGUSR1);
    CHECK_EQ(caught, SIGUSR1);
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_open(g);
        struct timespec ts = {0, 300000000};
        long r = syscall(SYS_nanosleep, &ts, 0);
        _exit(r == -1 && errno == EDOM ? 0 : 1);
    }
    t_pass(g);
    t_ms(50);
    kill(p, SIGSTOP);
    t_ms(50);
    kill(p, SIGCONT);
    CHECK_STATUS(t_status(p), "exit 0");
}
