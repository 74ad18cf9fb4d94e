// What follows a `syscall`: one to three instructions of every kind that a sandbox may have to execute somewhere else. A
// signal, a tracer, a fork or a jump may come between any two of them.
#include "t.h"
#include <sys/ptrace.h>
#include <sys/user.h>
#include <ucontext.h>

typedef long (*call_t)(long nr, long a, long b, long c);
typedef long (*entry_t)(long value);
// NAME(nr, a, b, c) makes a call. NAME_1 and NAME_2 enter behind the first and the second instruction of what follows, as a
// handler of a signal that arrived there returns, and give their argument back; `one` and `two` make the stack as it is there.
#define TAIL(name, save, first, one, second, two, third)                                                               \
    extern long name(long, long, long, long), name##_1(long), name##_2(long);                                          \
    extern const char name##_at0[], name##_at1[], name##_at2[], name##_at3[], name##_end[];                            \
    __asm__(".pushsection .text\n.p2align 6\n" #name ": " save "\n mov %rdi,%rax\n mov %rsi,%rdi\n mov %rdx,%rsi\n"    \
            " mov %rcx,%rdx\n xor %r10d,%r10d\n xor %r8d,%r8d\n syscall\n"                                             \
            #name "_at0: " first "\n" #name "_at1: " second "\n" #name "_at2: " third "\n" #name "_at3: ret\n"         \
            " nopl 0(%rax)\n nopl 0(%rax)\n" #name "_end:\n"                                                           \
            #name "_1: " one "\n mov %rdi,%rax\n jmp " #name "_at1\n"                                                  \
            #name "_2: " two "\n mov %rdi,%rax\n jmp " #name "_at2\n .popsection\n");
TAIL(t_pop, "push %rbx\n mov $0,%ebx", "pop %rbx", "", "", "", "")                           // the C library since 2.41
TAIL(t_pop12, "push %r12\n xor %r12d,%r12d", "pop %r12", "", "", "", "")
TAIL(t_pops, "push %rbp\n push %rbx\n xor %ebx,%ebx", "pop %rbx", "push %rbp", "pop %rbp", "", "")
TAIL(t_pops3, "push %r12\n push %rbp\n push %rbx", "pop %rbx", "push %r12\n push %rbp", "pop %rbp", "push %r12", "pop %r12")
TAIL(t_leave, "push %rbp\n mov %rsp,%rbp", "leave", "", "", "", "")
TAIL(t_mov_pop, "push %rbp\n xor %ebp,%ebp", "mov %eax,%edx", "push %rbp", "pop %rbp", "", "")
TAIL(t_xor_pop, "push %rbx", "xor %edx,%edx", "push %rbx", "pop %rbx", "", "")
TAIL(t_pop_cmp, "push %rdx", "pop %rdx", "", "cmp $-4095,%rax", "", "")                      // vfork(3)
TAIL(t_push_cmp, "", "push %rdi", "push %rdi", "cmp $-4095,%eax", "push %rdi", "pop %rdi")
TAIL(t_test_mov, "", "test %eax,%eax", "", "mov %rax,%rdx", "", "")
TAIL(t_pushes, "", "push %rax", "push %rdi", "push %rbx", "push %rdi\n push %rbx", "mov 8(%rsp),%rax\n lea 16(%rsp),%rsp")
TAIL(t_add, "sub $8,%rsp", "add $8,%rsp", "", "", "", "")
TAIL(t_cmp, "", "cmp $-4095,%rax", "", "", "", "")
TAIL(t_mov, "", "mov %rax,%rdx", "mov %rdi,%rdx", "mov %rdx,%rax", "", "")
TAIL(t_store, "", "mov %rax,-16(%rsp)", "mov %rdi,-16(%rsp)", "mov -16(%rsp),%rax", "", "")
TAIL(t_lea, "push %rsi", "lea 8(%rsp),%rsp", "", "", "", "")
TAIL(t_nothing, "", "", "", "", "", "")

static const struct tail {
    const char *name;
    call_t call;
    entry_t one, two;
    const char *at[4], *end;
    int pushed; // words on the stack at the call; -1: its end is in a register
} tails[] = {
#define ROW(n, pushed) {#n, n, n##_1, n##_2, {n##_at0, n##_at1, n##_at2, n##_at3}, n##_end, pushed}
    ROW(t_pop, 1), ROW(t_pop12, 1), ROW(t_pops, 2), ROW(t_pops3, 3), ROW(t_leave, -1), ROW(t_mov_pop, 1),
    ROW(t_xor_pop, 1), ROW(t_pop_cmp, 1), ROW(t_push_cmp, 0), ROW(t_test_mov, 0), ROW(t_pushes, 0), ROW(t_add, 1),
    ROW(t_cmp, 0), ROW(t_mov, 0), ROW(t_store, 0), ROW(t_lea, 1), ROW(t_nothing, 0),
};
#define EACH(t) for (const struct tail *t = tails; t < tails + sizeof tails / sizeof *tails; t++)

// Calls `f` with registers that it must keep, and says whether it did: 0, or which one was lost.
extern long kept(void *f, long a, long b, long c, long d, long *result);
__asm__(".pushsection .text\n.p2align 6\nkept: push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %r9\n"
        " mov %rdi,%rax\n mov %rsi,%rdi\n mov %rdx,%rsi\n mov %rcx,%rdx\n mov %r8,%rcx\n"
        " mov $0x11,%ebx\n mov $0x22,%ebp\n mov $0x33,%r12d\n mov $0x44,%r13d\n mov $0x55,%r14d\n mov %rsp,%r15\n"
        " call *%rax\n mov (%rsp),%rcx\n mov %rax,(%rcx)\n mov $1,%eax\n cmp $0x11,%rbx\n jne 1f\n inc %eax\n cmp $0x22,%rbp\n jne 1f\n"
        " inc %eax\n cmp $0x33,%r12\n jne 1f\n inc %eax\n cmp $0x44,%r13\n jne 1f\n inc %eax\n cmp $0x55,%r14\n jne 1f\n"
        " inc %eax\n cmp %rsp,%r15\n jne 1f\n xor %eax,%eax\n1: pop %r9\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        " ret\n .popsection\n");
static long made(const struct tail *t, void *f, long a, long b, long c, long d) {
    long result = -1, lost = kept(f, a, b, c, d, &result);
    if (lost) t_fail(__FILE__, __LINE__, "%s: lost register %ld", t->name, lost);
    return result;
}
#define MADE(t, nr, a, b, c) made(t, (t)->call, nr, (long)(a), (long)(b), (long)(c))
static void heat(const struct tail *t) {
    pid_t me = getpid();
    for (int i = 0; i < 20; i++) CHECK_EQ(MADE(t, SYS_getpid, 0, 0, 0), me);
}
// An instruction begins here, if this is in what follows the call.
static bool begins(const struct tail *t, uintptr_t rip) {
    if (rip < (uintptr_t)t->at[0] || rip >= (uintptr_t)t->end) return true;
    for (int i = 0; i < 4; i++)
        if (rip == (uintptr_t)t->at[i]) return true;
    // The last instruction of t_pushes.
    return rip > (uintptr_t)t->at[2] && rip < (uintptr_t)t->at[3] && t->call == t_pushes;
}

TEST(tails_entered_in_the_middle) {
    EACH(t) {
        for (int i = 0; i < 40; i++) {
            CHECK_EQ(made(t, t->one, i, 0, 0, 0), i);
            CHECK_EQ(made(t, t->two, i, 0, 0, 0), i);
            CHECK_EQ(MADE(t, SYS_getpid, 0, 0, 0), getpid());
        }
    }
}

// A frame from before may return when the text has its own bytes again.
TEST(tails_of_text_that_becomes_writable) {
    EACH(t) {
        heat(t);
        char *page = (char *)((uintptr_t)t->call & -4096l);
        OK(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC));
        CHECK_EQ(made(t, t->one, 3, 0, 0, 0), 3);
        CHECK_EQ(made(t, t->two, 4, 0, 0, 0), 4);
        heat(t);
        OK(mprotect(page, 8192, PROT_READ | PROT_EXEC));
        CHECK_EQ(made(t, t->one, 3, 0, 0, 0), 3);
        heat(t);
    }
}
static const struct tail *volatile current;
static volatile int hits, between;
static void on_signal(int sig, siginfo_t *si, void *uc) {
    uintptr_t rip = ((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP];
    hits++;
    if (!current || begins(current, rip)) return;
    between++;
}
static void handle(int sig) {
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(sig, &sa, 0));
}
static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec / 1e9;
}
TEST(tails_in_a_storm) {
    handle(SIGALRM);
    int p[2];
    SYS(pipe(p));
    EACH(t) {
        current = t;
        struct itimerval on = {{0, 150}, {0, 150}}, off = {0};
        OK(setitimer(ITIMER_REAL, &on, 0));
        hits = 0;
        double end = now() + 0.25;
        for (int i = 0; now() < end || hits < 5; i++) {
            char out[8] = "", in[8] = "";
            out[0] = i;
            CHECK_EQ(MADE(t, SYS_write, p[1], out, 8), 8);
            CHECK_EQ(MADE(t, SYS_read, p[0], in, 8), 8);
            CHECK_EQ(in[0], out[0]);
            CHECK_EQ(MADE(t, SYS_getpid, 0, 0, 0), getpid());
        }
        OK(setitimer(ITIMER_REAL, &off, 0));
        CHECK_EQ(between, 0);
    }
}
TEST(tails_when_children_end) {
    handle(SIGCHLD);
    EACH(t) {
        heat(t);
        current = t;
        for (int i = 0; i < 60; i++) {
            int p[2], st = -1;
            char b[1024];
            SYS(pipe(p));
            pid_t k = SYS(fork());
            if (k == 0) {
                if (i % 3) MADE(t, SYS_write, p[1], b, 10 + i % 900);
                _exit(0);
            }
            close(p[1]);
            long n;
            while ((n = MADE(t, SYS_read, p[0], b, sizeof b)) > 0 || n == -EINTR) {}
            CHECK_EQ(n, 0);
            close(p[0]);
            while (waitpid(k, &st, 0) < 0 && errno == EINTR) {}
            CHECK_EQ(st, 0);
        }
        CHECK_EQ(between, 0);
    }
}
TEST(tails_in_forks) {
    EACH(t) {
        heat(t);
        for (int i = 0; i < 5; i++) {
            pid_t k = MADE(t, SYS_fork, 0, 0, 0);
            if (k == 0) {
                heat(t);
                CHECK_EQ(made(t, t->one, 7, 0, 0, 0), 7);
                _exit(5);
            }
            MUST(k > 0);
            CHECK_STATUS(t_status(k), "exit 5");
        }
    }
}
static volatile long cloned;
__attribute__((noreturn)) static void clone_starts(void) {
    cloned++;
    for (;;) __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(6) : "rcx", "r11", "memory");
}
TEST(tails_on_a_new_stack) {
    static long stack[2048] __attribute__((aligned(16)));
    EACH(t) {
        if (t->pushed < 0) continue;
        heat(t);
        for (int i = 0; i < 5; i++) {
            long *top = stack + 2047;
            *top = (long)clone_starts;
            pid_t k = MADE(t, SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, top - t->pushed, 0);
            MUST(k > 0);
            CHECK_STATUS(t_status(k), "exit 6");
        }
    }
    CHECK_EQ(cloned, 5 * (sizeof tails / sizeof *tails - 1));
}
TEST(tails_of_exec) {
    char *argv[] = {"true", 0};
    EACH(t) {
        heat(t);
        CHECK_EQ(MADE(t, SYS_execve, "/nowhere", argv, argv), -ENOENT);
        CHECK_CHILD(MADE(t, SYS_execve, "/bin/true", argv, argv + 1); _exit(9));
    }
}

static const struct tail *volatile stepped;
static volatile uintptr_t seen[64];
static volatile int nseen;
static void on_step(int sig, siginfo_t *si, void *uc) {
    uintptr_t rip = ((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP];
    if (nseen < 64 && rip >= (uintptr_t)stepped->at[0] && rip < (uintptr_t)stepped->end) seen[nseen++] = rip;
}
// Every instruction once and in order: the addresses at which instructions begin, each after the one before.
static void in_order(const struct tail *t, int n) {
    uintptr_t before = 0;
    for (int i = 0; i < n; i++) {
        if (!begins(t, seen[i]) || seen[i] <= before)
            t_fail(__FILE__, __LINE__, "%s: step %d of %d at +%ld", t->name, i, n, (long)(seen[i] - (uintptr_t)t->at[0]));
        before = seen[i];
    }
    // A program that steps by itself is told of the instruction behind a call only when that has been executed.
    if (t->at[3] > t->at[0]) CHECK_EQ(before, (uintptr_t)t->at[3]);
}
TEST(tails_step_by_step) {
    struct sigaction sa = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGTRAP, &sa, 0));
    EACH(t) {
        heat(t);
        stepped = t;
        nseen = 0;
        long r;
        __asm__ volatile("sub $128,%%rsp; pushfq; orl $0x100,(%%rsp); popfq; call *%1; pushfq; andl $~0x100,(%%rsp); popfq; add $128,%%rsp"
                         : "=a"(r) : "r"(t->call), "D"(SYS_getpid)
                         : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
        CHECK_EQ(r, getpid());
        in_order(t, nseen);
    }
}
static bool step(pid_t k, struct user_regs_struct *r) {
    int st;
    OK(ptrace(PTRACE_SINGLESTEP, k, 0, 0));
    SYS(waitpid(k, &st, __WALL));
    CHECK(WIFSTOPPED(st));
    return WIFSTOPPED(st) && ptrace(PTRACE_GETREGS, k, 0, r) == 0;
}
TEST(tails_under_a_tracer) {
    EACH(t) {
        static char own[128];
        size_t len = t->end - (const char *)t->call;
        MUST(len <= sizeof own);
        memcpy(own, (const void *)t->call, len); // before the first call
        struct t_gate ready = t_gate();
        pid_t k = FORK();
        if (k == 0) {
            heat(t);
            t_open(ready);
            for (;;) CHECK_EQ(MADE(t, SYS_getppid, 0, 0, 0), getppid());
        }
        t_pass(ready);
        for (int i = 0; i < 4; i++) {
            int st;
            struct user_regs_struct r = {0};
            OK(ptrace(PTRACE_SEIZE, k, 0, 0));
            OK(ptrace(PTRACE_INTERRUPT, k, 0, 0));
            SYS(waitpid(k, &st, __WALL));
            CHECK(WIFSTOPPED(st));
            // To the call, whose steps a tracer sees one by one.
            for (int n = 0; n < 3000 && r.rip != (uintptr_t)t->at[0]; n++)
                if (!step(k, &r)) break;
            CHECK_EQ(r.rip, (uintptr_t)t->at[0]);
            nseen = 0;
            for (seen[nseen++] = r.rip; nseen < 60 && step(k, &r) && r.rip < (uintptr_t)t->end && r.rip > (uintptr_t)t->at[0];)
                seen[nseen++] = r.rip;
            in_order(t, nseen);
            for (size_t at = 0; at + 8 <= len; at += 8) {
                long word = ptrace(PTRACE_PEEKTEXT, k, (char *)t->call + at, 0);
                CHECK(memcmp(&word, own + at, 8) == 0);
            }
            OK(ptrace(PTRACE_DETACH, k, 0, 0));
        }
        OK(kill(k, SIGKILL));
        CHECK_STATUS(t_status(k), "signal 9");
        close(ready.r), close(ready.w);
    }
}
