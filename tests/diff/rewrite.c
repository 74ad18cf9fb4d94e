// Programs whose call sites a sandbox may want to change: text that is read, written, moved and covered, calls that are
// interrupted, single steps.
#include "t.h"
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#define PAGE 4096
typedef long (*call_t)(void);
// mov $39,%eax; syscall; ret; nop; nop    and    xor %edi,%edi; mov %edi,%ecx; ... read-like: mov $39,%cl ... cmp
static const unsigned char HEAD[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3, 0x90, 0x90};
static const unsigned char TAIL[] = {0x6a, 39, 0x58, 0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0xc3};
#define TAIL_AT 256

// A private mapping of a file that holds both.
static char *text(int prot) {
    int fd = SYS(open("text", O_RDWR | O_CREAT, 0755));
    static char page[PAGE];
    memcpy(page, HEAD, sizeof HEAD);
    memcpy(page + TAIL_AT, TAIL, sizeof TAIL);
    CHECK_EQ(SYS(pwrite(fd, page, PAGE, 0)), PAGE);
    char *p = SYS(mmap(0, PAGE, prot, MAP_PRIVATE, fd, 0));
    close(fd);
    return p;
}
static void calls(char *p, int n) {
    pid_t me = getpid();
    for (int i = 0; i < n; i++) {
        CHECK_EQ(((call_t)p)(), me);
        CHECK_EQ(((call_t)(p + TAIL_AT))(), me);
    }
}

TEST(text_written_after_calls) {
    char *p = text(PROT_READ | PROT_EXEC);
    calls(p, 100);
    OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
    CHECK(memcmp(p, HEAD, sizeof HEAD) == 0);
    CHECK(memcmp(p + TAIL_AT, TAIL, sizeof TAIL) == 0);
    p[1] = p[TAIL_AT + 1] = SYS_getppid;
    for (int i = 0; i < 100; i++) CHECK(((call_t)p)() == getppid() && ((call_t)(p + TAIL_AT))() == getppid());
    OK(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
    for (int i = 0; i < 100; i++) CHECK(((call_t)p)() == getppid() && ((call_t)(p + TAIL_AT))() == getppid());
}
TEST(text_generated) {
    // Written, executed, written again, as a just-in-time compiler does.
    char *p = SYS(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int k = 0; k < 50; k++) {
        int nr = k & 1 ? SYS_getppid : SYS_getpid;
        OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
        memcpy(p, HEAD, sizeof HEAD);
        p[1] = nr;
        OK(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
        for (int i = 0; i < 20; i++) CHECK_EQ(((call_t)p)(), syscall(nr));
    }
}
// What stands before `syscall` looks like `mov $number,%eax` but is the end of a longer instruction: these store or compare a
// constant at -0x48 from the stack pointer, and load 0x90 bytes beyond a pointer.
__asm__(".pushsection .text\n"
        ".balign 64\nstores: movl $0,-0x48(%rsp)\n mov $39,%eax\n movl $39,-0x48(%rsp)\n syscall\n mov -0x48(%rsp),%eax\n ret\n"
        ".balign 64\ncompares: movl $40,-0x48(%rsp)\n mov $39,%eax\n cmpl $39,-0x48(%rsp)\n syscall\n mov -0x48(%rsp),%eax\n ret\n"
        ".balign 64\nloads: mov $39,%eax\n lea 0x27(%rdi),%edx\n .byte 0x81, 0xc2, 0xb8, 0x27, 0, 0\n nop\n syscall\n mov %edx,%eax\n ret\n"
        ".popsection");
extern int stores(void), compares(void), loads(long);
TEST(instructions_that_end_like_a_number) {
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(stores(), 39);
        CHECK_EQ(compares(), 40);
        CHECK_EQ(loads(1), 1 + 0x27 + 0x27b8);
    }
}
TEST(text_moved) {
    char *p = text(PROT_READ | PROT_EXEC);
    calls(p, 100);
    char *to = SYS(mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    calls(to, 100);
}
TEST(text_in_a_child) {
    char *p = text(PROT_READ | PROT_EXEC);
    calls(p, 100);
    pid_t c = fork();
    if (c == 0) {
        calls(p, 100);
        OK(mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
        p[1] = SYS_getppid;
        for (int i = 0; i < 100; i++) CHECK_EQ(((call_t)p)(), getppid());
        _exit(0);
    }
    int st;
    SYS(waitpid(c, &st, 0));
    CHECK_EQ(st, 0);
    calls(p, 100);
}
TEST(text_neighbourhood_unmapped) {
    // A hole, text in the middle of it; then everything around it goes, twice by munmap, once by something else.
    char *hole = SYS(mmap(0, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    OK(munmap(hole, 64 << 20));
    char *mid = hole + (32 << 20), *q = text(PROT_READ | PROT_EXEC);
    CHECK(mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, mid) == mid);
    calls(mid, 100);
    for (int i = 0; i < 2; i++) {
        OK(munmap(hole, 32 << 20));
        OK(munmap(mid + PAGE, (32 << 20) - PAGE));
        calls(mid, 100);
    }
    CHECK(mmap(hole, 32 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == hole);
    calls(mid, 100);
    CHECK(mmap(mid + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mid + PAGE);
    calls(mid, 100);
}
// mov %rcx,%r10; mov $9,%eax; syscall; ret: mmap(2) from a site of its own.
static const unsigned char MMAP[] = {0x49, 0x89, 0xca, 0xb8, 9, 0, 0, 0, 0x0f, 0x05, 0xc3, 0x90, 0x90};
static void mmaps_around_itself(int gs) {
    typedef char *(*mmap_t)(void *, long, long, long, long, long);
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *hole = SYS(mmap(0, 64 << 20, PROT_NONE, how, -1, 0));
    OK(munmap(hole, 64 << 20));
    char *mid = hole + (32 << 20);
    int fd = SYS(open("maps", O_RDWR | O_CREAT, 0755));
    CHECK_EQ(SYS(write(fd, MMAP, sizeof MMAP)), sizeof MMAP);
    CHECK(mmap(mid, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0) == mid);
    mmap_t call = (mmap_t)mid;
    for (int i = 0; i < 100; i++) {
        char *q = call(0, PAGE, PROT_READ, how, -1, 0);
        CHECK(q != MAP_FAILED);
        OK(munmap(q, PAGE));
    }
    static long word = 5;
    if (gs) OK(syscall(SYS_arch_prctl, 0x1001, &word));
    for (int i = 0; i < 3; i++) {
        CHECK(call(hole, 32 << 20, PROT_READ | PROT_WRITE, how | MAP_FIXED, -1, 0) == hole);
        CHECK(call(mid + PAGE, (32 << 20) - PAGE, PROT_READ | PROT_WRITE, how | MAP_FIXED, -1, 0) == mid + PAGE);
    }
    hole[0] = mid[PAGE] = 1;
}
TEST(text_neighbourhood_covered_by_its_own_call) { mmaps_around_itself(0); }
TEST(text_neighbourhood_covered_with_gs_in_use) { mmaps_around_itself(1); }
static long checked(long nr, long a, long b, long c) {
    long r;
    asm volatile("pushfq; orl $0x40000,(%%rsp); popfq; syscall; pushfq; andl $~0x40000,(%%rsp); popfq"
                 : "=a"(r) : "0"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory", "cc");
    return r;
}
TEST(results_with_alignment_checks) {
    int fd = t_file("f", "0123456789012345678901234567890123456789"), p[2];
    static char b[512];
    SYS(pipe(p));
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
        CHECK_EQ(checked(SYS_read, fd, (long)b + 1, 40), 40);
        CHECK(memcmp(b + 1, "0123456789", 10) == 0);
        CHECK_EQ(checked(SYS_write, p[1], (long)b + 3, 37), 37);
        CHECK_EQ(checked(SYS_read, p[0], (long)b + 101, 37), 37);
        CHECK(memcmp(b + 101, "23456789", 8) == 0);
        CHECK_EQ(checked(SYS_fstat, fd, (long)b + 3, 0), 0);
    }
}
TEST(text_protections) {
    char *p = text(PROT_READ | PROT_EXEC);
    calls(p, 100);
    for (int i = 0; i < 3; i++) {
        OK(mprotect(p, PAGE, PROT_NONE));
        OK(mprotect(p, PAGE, PROT_READ));
        OK(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
        calls(p, 100);
    }
    OK(madvise(p, PAGE, MADV_DONTNEED));
    calls(p, 100);
}

static volatile int ticks, outside;
static uintptr_t low, high;
extern char __executable_start[], etext[];
static void on_tick(int sig, siginfo_t *si, void *uc) {
    uintptr_t rip = ((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP], dso = getauxval(AT_SYSINFO_EHDR);
    ticks++;
    if (!(rip >= low && rip < high) && !(rip >= dso && rip < dso + 0x4000)) outside++;
}
TEST(calls_in_a_storm) {
    low = (uintptr_t)__executable_start, high = (uintptr_t)etext;
    struct sigaction sa = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGALRM, &sa, 0));
    struct itimerval it = {{0, 2000}, {0, 2000}};
    OK(setitimer(ITIMER_REAL, &it, 0));
    int fd = t_file("f", "abcdef"), p[2];
    pid_t me = getpid(), parent = getppid();
    SYS(pipe(p));
    for (int i = 0; i < 2000 || ticks < 20; i++) {
        char b[4] = "";
        CHECK_EQ(syscall(SYS_getpid), me);
        CHECK_EQ(getppid(), parent);
        CHECK(pread(fd, b, 3, 2) == 3 && memcmp(b, "cde", 3) == 0);
        CHECK_EQ(write(p[1], "x", 1), 1);
        CHECK_EQ(read(p[0], b, 1), 1);
    }
    it = (struct itimerval){0};
    OK(setitimer(ITIMER_REAL, &it, 0));
    if (getauxval(AT_BASE) == 0) CHECK_EQ(outside, 0);
}
static void *caller(void *a) {
    for (int i = 0; i < 2000; i++) calls(a, 1);
    return 0;
}
TEST(calls_from_many_threads) {
    for (int k = 0; k < 10; k++) {
        char *p = text(PROT_READ | PROT_EXEC);
        pthread_t t[4];
        for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], 0, caller, p), 0);
        for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
        OK(munmap(p, PAGE));
    }
}
static volatile int steps;
static volatile uintptr_t last, stuck;
static void on_step(int sig, siginfo_t *si, void *uc) {
    uintptr_t rip = ((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP];
    stuck = rip == last ? stuck + 1 : 0;
    last = rip;
    steps++;
    if (stuck > 100) ((ucontext_t *)uc)->uc_mcontext.gregs[REG_EFL] &= ~0x100l;
}
TEST(single_steps_through_calls) {
    char *p = text(PROT_READ | PROT_EXEC);
    calls(p, 100);
    struct sigaction sa = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGTRAP, &sa, 0));
    pid_t me = getpid();
    for (int i = 0; i < 5; i++) {
        long a, b;
        asm volatile("pushfq; orl $0x100,(%%rsp); popfq; call *%2; mov %%rax,%%rbx; call *%3; pushfq; andl $~0x100,(%%rsp); popfq"
                     : "=&b"(a), "=&a"(b) : "r"(p), "r"(p + TAIL_AT) : "rcx", "r11", "rdx", "rsi", "rdi", "r8", "r9", "r10", "memory", "cc");
        CHECK(a == me && b == me);
    }
    CHECK(stuck < 100 && steps >= 5 * 12);
}
static volatile sig_atomic_t again;
TEST(parent_and_users_follow) {
    // What a sandbox may remember must change when it changes.
    int p[2], q[2];
    SYS(pipe(p));
    SYS(pipe(q));
    pid_t me = getpid(), c = SYS(fork());
    if (c == 0) {
        pid_t g = SYS(fork());
        if (g == 0) {
            for (int i = 0; i < 50; i++) CHECK_EQ(getppid(), syscall(SYS_getppid));
            pid_t before = getppid();
            CHECK(before != me);
            CHECK_EQ(SYS(write(q[1], "r", 1)), 1);
            while (getppid() == before) usleep(1000);
            CHECK_EQ(syscall(SYS_getppid), getppid());
            CHECK_EQ(syscall(SYS_getpid), getpid());
            CHECK_EQ(syscall(SYS_gettid), getpid());
            SYS(write(p[1], "ok", 2));
            _exit(0);
        }
        char b;
        SYS(read(q[0], &b, 1));
        _exit(0);
    }
    char b[2] = "";
    CHECK_EQ(SYS(read(p[0], b, 2)), 2);
    SYS(waitpid(c, 0, 0));
    if (getuid() == 0) {
        for (int i = 0; i < 50; i++) CHECK(syscall(SYS_getuid) == 0 && syscall(SYS_getegid) == getegid());
        OK(syscall(SYS_setresgid, 1, 2, 3));
        CHECK(syscall(SYS_getgid) == 1 && syscall(SYS_getegid) == 2);
        OK(syscall(SYS_setresuid, 7, 8, 9));
        CHECK(syscall(SYS_getuid) == 7 && syscall(SYS_geteuid) == 8);
    }
    (void)again;
}
