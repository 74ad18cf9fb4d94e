// What every differential test program shares.
//
// A program is a list of sub-tests. It runs each one in a child process, in a fresh empty directory, prints one line
// per sub-test ("ok NAME", "FAIL NAME: why", "skip NAME: why") and exits 0 if and only if none failed.
//   prog            run all            prog NAME...    run these
//   prog -l         list them          prog -n NAME    run one without the child process (for debuggers and straces)
// A failed check prints file:line, what was expected and what was got. Checks count in memory shared by all processes
// of a sub-test, so a check that fails in a grandchild fails the sub-test.
#pragma once
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BAD_PTR ((void *)8) // never mapped
#define T_SKIPPED 77
#define T_LIMIT 25 // seconds one sub-test may take

struct t_case {
    const char *name;
    void (*run)(void);
    struct t_case *next;
};
static struct t_case *t_first, **t_last = &t_first;
static int t_local_fails;
static volatile int *t_fails = &t_local_fails;
static char t_dir[256]; // the sub-test's own directory
static char t_self[PATH_MAX];

#define TEST(n)                                                                                                        \
    static void t_run_##n(void);                                                                                       \
    static struct t_case t_case_##n = {#n, t_run_##n, 0};                                                              \
    __attribute__((constructor)) static void t_add_##n(void) {                                                         \
        *t_last = &t_case_##n;                                                                                         \
        t_last = &t_case_##n.next;                                                                                     \
    }                                                                                                                  \
    static void t_run_##n(void)

__attribute__((format(printf, 3, 4), unused)) static void t_fail(const char *file, int line, const char *fmt, ...) {
    char text[1024];
    int n = snprintf(text, sizeof text, "%s:%d: ", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
    va_list ap;
    va_start(ap, fmt);
    n += vsnprintf(text + n, sizeof text - n - 1, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof text - 2) n = sizeof text - 2;
    text[n++] = '\n';
    int saved = errno;
    (void)!write(2, text, n);
    __sync_fetch_and_add(t_fails, 1);
    errno = saved;
}

static inline const char *t_errno(int e) {
    const char *s = e == 0 ? "success" : strerrorname_np(e);
    return s ? s : "?";
}

#define CHECK(c)                                                                                                       \
    ({                                                                                                                 \
        if (!(c)) t_fail(__FILE__, __LINE__, "expected %s", #c);                                                       \
        (void)0; \
    })
#define CHECK_EQ(got, want)                                                                                            \
    ({                                                                                                                 \
        long long g_ = (long long)(got);                                                                               \
        int e_ = errno;                                                                                                \
        long long w_ = (long long)(want);                                                                              \
        if (g_ != w_)                                                                                                  \
            t_fail(__FILE__, __LINE__, "%s: expected %lld (0x%llx), got %lld (0x%llx), errno %s", #got, w_, w_, g_,    \
                   g_, t_errno(e_));                                                                                   \
        (void)0; \
    })
#define CHECK_ERR(call, want)                                                                                          \
    ({                                                                                                                 \
        errno = 0;                                                                                                     \
        long long g_ = (long long)(call);                                                                              \
        int e_ = errno;                                                                                                \
        if (g_ != -1 || e_ != (want))                                                                                  \
            t_fail(__FILE__, __LINE__, "%s: expected -1 %s, got %lld %s", #call, t_errno(want), g_, t_errno(e_));      \
        (void)0; \
    })
#define CHECK_STR(got, want)                                                                                           \
    ({                                                                                                                 \
        const char *g_ = (got), *w_ = (want);                                                                          \
        if (!g_ || strcmp(g_, w_)) t_fail(__FILE__, __LINE__, "%s: expected \"%s\", got \"%s\"", #got, w_, g_ ? g_ : "(null)"); \
        (void)0; \
    })
#define CHECK_MEM(got, want, len)                                                                                      \
    ({                                                                                                                 \
        if (memcmp((got), (want), (len))) t_fail(__FILE__, __LINE__, "%s: bytes differ from %s", #got, #want);         \
        (void)0; \
    })
// The call must succeed for the rest of the sub-test to make sense; gives its value.
#define SYS(call)                                                                                                      \
    ({                                                                                                                 \
        errno = 0;                                                                                                     \
        __auto_type g_ = (call);                                                                                       \
        if ((long long)g_ == -1) {                                                                                     \
            t_fail(__FILE__, __LINE__, "%s: expected success, got %s", #call, t_errno(errno));                         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
        g_;                                                                                                            \
    })
#define MUST(c)                                                                                                        \
    ({                                                                                                                 \
        if (!(c)) {                                                                                                    \
            t_fail(__FILE__, __LINE__, "expected %s", #c);                                                             \
            _exit(1);                                                                                                  \
        }                                                                                                              \
        (void)0; \
    })
#define OK(call) CHECK_EQ(call, 0)
#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        (void)!write(2, "skip: " why "\n", sizeof("skip: " why "\n") - 1);                                            \
        _exit(T_SKIPPED);                                                                                              \
    } while (0)

// fork; the child's checks count, and it must end with _exit.
#define FORK() SYS(fork())
// Runs the statements in a child and gives its wait status.
#define CHILD(...)                                                                                                     \
    ({                                                                                                                 \
        pid_t p_ = FORK();                                                                                             \
        if (p_ == 0) {                                                                                                 \
            __VA_ARGS__;                                                                                               \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        t_status(p_);                                                                                                  \
    })
#define CHECK_CHILD(...) CHECK_STATUS(CHILD(__VA_ARGS__), "exit 0")
#define CHECK_STATUS(status, want)                                                                                     \
    ({                                                                                                                 \
        char b_[64];                                                                                                   \
        CHECK_STR(t_describe(status, b_), want);                                                                       \
        (void)0; \
    })

__attribute__((unused)) static int t_status(pid_t p) {
    int st = -1;
    pid_t r;
    do
        r = waitpid(p, &st, 0);
    while (r < 0 && errno == EINTR);
    if (r != p) t_fail(__FILE__, __LINE__, "waitpid(%d): got %d %s", p, r, t_errno(errno));
    return st;
}
// "exit 3", "signal 9", "signal 6 core" is written "signal 6": whether there is a core file is the host's affair.
__attribute__((unused)) static char *t_describe(int st, char *b) {
    if (WIFEXITED(st)) sprintf(b, "exit %d", WEXITSTATUS(st));
    else if (WIFSIGNALED(st)) sprintf(b, "signal %d", WTERMSIG(st));
    else if (WIFSTOPPED(st)) sprintf(b, "stopped %d", WSTOPSIG(st));
    else if (WIFCONTINUED(st)) sprintf(b, "continued");
    else sprintf(b, "status %x", st);
    return b;
}

// A gate made of a pipe: one side waits until the other opens it.
struct t_gate {
    int r, w;
};
__attribute__((unused)) static struct t_gate t_gate(void) {
    int p[2];
    SYS(pipe(p));
    return (struct t_gate){p[0], p[1]};
}
__attribute__((unused)) static void t_open(struct t_gate g) { CHECK_EQ(write(g.w, "g", 1), 1); }
__attribute__((unused)) static void t_pass(struct t_gate g) {
    char c;
    ssize_t n;
    do
        n = read(g.r, &c, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1) {
        t_fail(__FILE__, __LINE__, "gate: got %zd %s", n, t_errno(errno));
        _exit(1);
    }
}
__attribute__((unused)) static void t_ms(int ms) {
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR) {}
}

// SIGALRM every few milliseconds from now on, so that a call which ought to be interrupted is, however slow we are.
static volatile int t_alarms;
__attribute__((unused)) static void t_on_alarm(int s) { (void)s, t_alarms++; }
__attribute__((unused)) static void t_pester(int flags) {
    struct sigaction sa = {.sa_handler = t_on_alarm, .sa_flags = flags};
    SYS(sigaction(SIGALRM, &sa, 0));
    struct itimerval it = {{0, 10000}, {0, 10000}};
    SYS(setitimer(ITIMER_REAL, &it, 0));
}
__attribute__((unused)) static void t_pester_stop(void) {
    struct itimerval it = {{0, 0}, {0, 0}};
    SYS(setitimer(ITIMER_REAL, &it, 0));
}

__attribute__((unused)) static int t_file(const char *path, const char *text) {
    int fd = SYS(open(path, O_CREAT | O_TRUNC | O_RDWR, 0644));
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    return fd;
}
__attribute__((unused)) static void t_make(const char *path, const char *text) { close(t_file(path, text)); }
// The whole of a (small) file as a string.
__attribute__((unused)) static ssize_t t_slurp(const char *path, char *buf, size_t size) {
    int fd = open(path, O_RDONLY);
    buf[0] = 0;
    if (fd < 0) return -1;
    size_t n = 0;
    ssize_t r = 0;
    while (n < size - 1 && (r = read(fd, buf + n, size - 1 - n)) > 0) n += r;
    buf[n] = 0;
    close(fd);
    return r < 0 ? -1 : (ssize_t)n;
}
__attribute__((unused)) static long long t_now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000LL + ts.tv_nsec / 1000000;
}

static int t_remove_one(const char *p, const struct stat *st, int flag, struct FTW *f) {
    (void)st, (void)flag, (void)f;
    if (remove(p) < 0 && flag == FTW_DP) {
        chmod(p, 0700);
        remove(p);
    }
    return 0;
}
static void t_in_dir(struct t_case *c) {
    if (chdir(t_dir) < 0) t_fail(__FILE__, __LINE__, "chdir %s: %s", t_dir, t_errno(errno));
    umask(022);
    c->run();
    fflush(0);
}
static int t_one(struct t_case *c, bool no_fork) {
    const char *tmp = getenv("TMPDIR");
    snprintf(t_dir, sizeof t_dir, "%s/t.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(t_dir)) {
        printf("FAIL %s: mkdtemp %s: %s\n", c->name, t_dir, t_errno(errno));
        return 1;
    }
    *t_fails = 0;
    int st = 0;
    bool late = false;
    if (no_fork) {
        t_in_dir(c);
    } else {
        fflush(0);
        pid_t p = fork();
        if (p < 0) {
            printf("FAIL %s: fork: %s\n", c->name, t_errno(errno));
            rmdir(t_dir);
            return 1;
        }
        if (p == 0) {
            setpgid(0, 0);
            t_in_dir(c);
            _exit(0);
        }
        setpgid(p, p);
        long long end = t_now_ms() + T_LIMIT * 1000;
        useconds_t nap = 100;
        while (waitpid(p, &st, WNOHANG) == 0) {
            if (!late && t_now_ms() > end) {
                late = true;
                kill(-p, SIGKILL);
                kill(p, SIGKILL);
            }
            usleep(nap);
            if (nap < 2000) nap += 100;
        }
        kill(-p, SIGKILL); // what the sub-test left behind
        while (waitpid(-1, 0, WNOHANG) > 0) {} // and what became ours
    }
    nftw(t_dir, t_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    char b[64];
    if (late) printf("FAIL %s: no end after %d s\n", c->name, T_LIMIT);
    else if (*t_fails) printf("FAIL %s: %d check%s\n", c->name, *t_fails, *t_fails > 1 ? "s" : "");
    else if (WIFEXITED(st) && WEXITSTATUS(st) == T_SKIPPED) return printf("skip %s\n", c->name), 0;
    else if (st) printf("FAIL %s: %s\n", c->name, t_describe(st, b));
    else return printf("ok %s\n", c->name), 0;
    return 1;
}

// Programs that re-execute themselves define T_REEXEC(argc, argv), called before anything else.
#ifdef T_REEXEC
static void T_REEXEC(int argc, char **argv);
#endif

int main(int argc, char **argv) {
#ifdef T_REEXEC
    T_REEXEC(argc, argv);
#endif
    // Whoever started us may have ignored or blocked signals (a shell does so for background jobs).
    // 32 and 33 are the C library's own and not to be had through it.
    for (int i = 1; i < 65; i++) syscall(SYS_rt_sigaction, i, (long[4]){0}, 0, 8);
    sigset_t none_;
    sigemptyset(&none_);
    sigprocmask(SIG_SETMASK, &none_, 0);
    if (argc == 1 && !strchr(argv[0], '/')) return 98; // executed by a test that expected an error: do not run all again
    if (!realpath("/proc/self/exe", t_self)) snprintf(t_self, sizeof t_self, "%s", argv[0]);
    setvbuf(stdout, 0, _IOLBF, 0);
    int shared = 1, bad = 0;
    void *m = mmap(0, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m != MAP_FAILED) t_fails = m;
    else shared = 0;
    (void)shared;
    if (argc > 1 && !strcmp(argv[1], "-l")) {
        for (struct t_case *c = t_first; c; c = c->next) puts(c->name);
        return 0;
    }
    bool no_fork = argc > 1 && !strcmp(argv[1], "-n");
    int from = no_fork ? 2 : 1;
    for (int i = from; i < argc; i++) {
        struct t_case *c = t_first;
        while (c && strcmp(c->name, argv[i])) c = c->next;
        if (!c) {
            fprintf(stderr, "%s: no sub-test %s (-l lists them)\n", argv[0], argv[i]);
            return 2;
        }
        bad |= t_one(c, no_fork);
    }
    if (from == argc)
        for (struct t_case *c = t_first; c; c = c->next) bad |= t_one(c, false);
    return bad;
}
