// Program text that many processes execute, and of which a sandbox may keep one copy with changed call sites: a new process of
// this program calls, is interrupted, and changes protection and place of its text, after others have made the same calls.
static void helper(int argc, char **argv);
#define T_REEXEC helper
#include "t.h"
#include <pthread.h>
#include <ucontext.h>

#define PAGE 4096
#define ALIGN(p) ((char *)((uintptr_t)(p) & ~(PAGE - 1ul)))
// A section of its own, which the linker puts towards the end of the text: a page with call sites, then one that is filled as far as
// leaves much room in the last page.
asm(".pushsection sites_text,\"ax\",@progbits\n"
    ".balign 4096\n"
    "site_head: mov $39,%eax; syscall; ret\n" // getpid
    ".balign 64\n"
    "site_tail: push $39; pop %rax; syscall; cmp $-4096,%rax; ret\n"
    ".balign 64\n"
    "site_read: mov $0,%eax; syscall; ret\n"
    ".balign 64\n"
    "site_read_tail: xor %eax,%eax; syscall; cmp $-4095,%rax; ret\n"
    ".balign 64\n"
    "site_protect: mov $10,%eax; syscall; ret\n"
    ".balign 64\n"
    "site_unmap: mov $11,%eax; syscall; ret\n"
    ".balign 64\n"
    "site_map: mov %rcx,%r10; mov $9,%eax; syscall; ret\n"
    ".balign 64\n"
    "site_crossing: .skip 58, 0x90; mov $110,%eax; syscall; ret\n"
    ".balign 64\n"
    // Not a call: mov $0x90c3050f,%eax and mov $0xc390050f,%ecx hold the bytes of one.
    "not_a_site: mov $0x90c3050f,%eax; ret\n"
    ".balign 4096\n"
    "late_site: mov $39,%eax; syscall; ret\n"
    ".skip 1350, 0xf4\n"
    ".popsection\n");
extern char site_head[], site_tail[], site_read[], site_read_tail[], site_protect[], site_unmap[], site_map[], site_crossing[],
    not_a_site[], late_site[], etext[];
#define last_page ALIGN(etext - 1)
#define REST (last_page + PAGE - page())
typedef long (*call_t)(long, long, long, long, long, long);
#define CALL(site, ...) CALL_((site), ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(site, a, b, c, d, e, f, ...) (((call_t)(site))((long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))

static void calls(int n) {
    long me = syscall(SYS_getpid), parent = syscall(SYS_getppid);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(CALL(site_head), me);
        CHECK_EQ(CALL(site_tail), me);
        CHECK_EQ(CALL(site_crossing), parent);
        CHECK_EQ(CALL(late_site), me);
        CHECK_EQ((unsigned)CALL(not_a_site), 0x90c3050fu);
    }
}
// Calls from every site, by way of all that the library does at a start and an end.
static void all_calls(void) {
    int p[2];
    char c;
    SYS(pipe(p));
    CHECK_EQ(write(p[1], "abcd", 4), 4);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(CALL(site_read, p[0], &c, 1), 1);
        CHECK_EQ(CALL(site_read_tail, p[0], &c, 1), 1);
    }
    void *q = (void *)CALL(site_map, 0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(CALL(site_protect, q, PAGE, PROT_READ | PROT_WRITE), 0);
    CHECK_EQ(CALL(site_unmap, q, PAGE), 0);
    close(p[0]), close(p[1]);
    calls(1);
}

// ---- what the new process does ----
static const int RX = PROT_READ | PROT_EXEC, RWX = PROT_READ | PROT_WRITE | PROT_EXEC;
static char *page(void) { return ALIGN(site_head); }

static void x_calls(void) {
    all_calls();
    calls(100);
}
static void x_writable(void) {
    all_calls();
    OK(CALL(site_protect, page(), PAGE, RWX));
    CHECK_EQ((unsigned char)site_head[0], 0xb8), CHECK_EQ((unsigned char)site_head[1], 39);
    CHECK_EQ((unsigned char)site_head[5], 0x0f), CHECK_EQ((unsigned char)site_head[6], 0x05);
    CHECK_EQ((unsigned char)site_tail[3], 0x0f), CHECK_EQ((unsigned char)site_tail[5], 0x48);
    calls(20);
    site_head[1] = SYS_getppid;
    for (int i = 0; i < 20; i++) CHECK_EQ(CALL(site_head), getppid());
    OK(CALL(site_protect, page(), PAGE, RX));
    for (int i = 0; i < 20; i++) CHECK_EQ(CALL(site_head), getppid());
}
static void x_writable_not_executable(void) {
    all_calls();
    OK(mprotect(page(), PAGE, PROT_READ | PROT_WRITE));
    site_head[1] = SYS_getppid;
    OK(mprotect(page(), PAGE, RX));
    for (int i = 0; i < 20; i++) CHECK_EQ(CALL(site_head), getppid());
    for (int i = 0; i < 20; i++) CHECK_EQ(CALL(site_tail), getpid());
}
static void x_all_writable(void) {
    all_calls();
    OK(CALL(site_protect, page(), REST, RWX));
    calls(20);
    site_head[1] = late_site[1] = SYS_getppid;
    for (int i = 0; i < 20; i++) CHECK(CALL(site_head) == getppid() && CALL(late_site) == getppid());
    OK(CALL(site_protect, page(), REST, RX));
    for (int i = 0; i < 20; i++) CHECK(CALL(site_head) == getppid() && CALL(late_site) == getppid());
}
static void without_last(int how) {
    all_calls();
    switch (how) {
    case 0: OK(CALL(site_protect, last_page, PAGE, PROT_READ)); break;
    case 1: OK(CALL(site_protect, last_page, PAGE, PROT_READ | PROT_WRITE)); memset(last_page, 0xf4, PAGE); break;
    case 2: OK(CALL(site_unmap, last_page, PAGE)); break;
    case 3:
        CHECK_EQ(CALL(site_map, last_page, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), (long)last_page);
        memset(last_page, 0xf4, PAGE);
        break;
    case 4: {
        char *to = SYS(mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        CHECK(mremap(last_page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        if (ALIGN(late_site) == last_page)
            for (int i = 0; i < 20; i++) CHECK_EQ(CALL(late_site - last_page + to), getpid());
        break;
    }
    case 5: OK(CALL(site_protect, last_page, PAGE, RWX)); memset(etext, 0xf4, last_page + PAGE - etext); break;
    }
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(CALL(site_head), getpid());
        CHECK_EQ(CALL(site_tail), getpid());
        CHECK_EQ(CALL(site_crossing), getppid());
    }
    if (how < 2) {
        OK(mprotect(last_page, PAGE, RX));
        for (int i = 0; i < 20; i++) CHECK_EQ(CALL(site_head), getpid());
    }
}
static void x_last_read_only(void) { without_last(0); }
static void x_last_written(void) { without_last(1); }
static void x_last_unmapped(void) { without_last(2); }
static void x_last_covered(void) { without_last(3); }
static void x_last_moved(void) { without_last(4); }
static void x_last_writable(void) { without_last(5); }
static void x_moved(void) {
    all_calls();
    char *to = SYS(mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(mremap(page(), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    long off = to - page();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(CALL(site_head + off), getpid());
        CHECK_EQ(CALL(site_tail + off), getpid());
        CHECK_EQ(CALL(late_site), getpid());
    }
}
static void x_covered(void) {
    all_calls();
    int fd = SYS(open("/proc/self/exe", O_RDONLY));
    // A page of the middle by the same page of the file, found by its bytes.
    static char b[PAGE];
    off_t at = 0;
    while (pread(fd, b, PAGE, at) == PAGE && memcmp(b + 1, "\x27\0\0\0\x0f\x05\xc3", 7)) at += PAGE;
    CHECK(mmap(page(), PAGE, RX, MAP_PRIVATE | MAP_FIXED, fd, at) == page());
    calls(20);
}
static void x_dropped(void) {
    all_calls();
    OK(madvise(page(), REST, MADV_DONTNEED));
    calls(20);
}
static void x_forks(void) {
    all_calls();
    CHECK_CHILD({
        calls(20);
        OK(mprotect(page(), REST, RWX));
        site_head[1] = SYS_getppid;
        for (int i = 0; i < 20; i++) CHECK_EQ(CALL(site_head), getppid());
        CHECK_CHILD(for (int i = 0; i < 20; i++) CHECK_EQ(CALL(site_head), getppid()));
    });
    CHECK_CHILD(calls(20); OK(munmap(last_page, PAGE)); CHECK_EQ(CALL(site_head), getpid()));
    calls(20);
}

static volatile long ticks, strange;
static volatile int wake = -1;
static char *volatile want;
static void on_tick(int s, siginfo_t *si, void *uc) {
    char *rip = (char *)((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP];
    ticks++;
    if (rip >= etext && rip < last_page + PAGE) strange++;
    if (want && rip != want) strange++;
    if (wake >= 0 && write(wake, "x", 1) == 1) wake = -1;
}
static void handle(int flags) {
    struct sigaction sa = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | flags};
    OK(sigaction(SIGALRM, &sa, 0));
}
static void every(int us) {
    struct itimerval it = {{0, us}, {0, us}};
    OK(setitimer(ITIMER_REAL, &it, 0));
}
static void x_signals(void) {
    all_calls();
    handle(SA_RESTART);
    every(1000);
    char b[16];
    int zero = SYS(open("/dev/zero", O_RDONLY));
    for (long long end = t_now_ms() + 300; t_now_ms() < end;) {
        calls(10);
        CHECK_EQ(CALL(site_read, zero, b, 16), 16);
        CHECK_EQ(CALL(site_read_tail, zero, b, 16), 16);
    }
    every(0);
    CHECK(ticks > 10);
    CHECK_EQ(strange, 0);
}
static void x_interrupted(void) {
    int p[2];
    char c = 0;
    all_calls();
    SYS(pipe(p));
    for (int k = 0; k < 4; k++) {
        char *site = k & 1 ? site_read_tail : site_read;
        long after = k & 1 ? 4 : 7;
        handle(k & 2 ? 0 : SA_RESTART);
        // Restarted: at the call; with EINTR: after it.
        // On a busy machine a tick can come before the call or after it: once more.
        long r = 0;
        for (int tries = 0; tries < 20; tries++) {
            want = site + (k & 2 ? after : after - 2);
            wake = k & 2 ? -1 : p[1];
            ticks = strange = 0;
            every(20000);
            r = CALL(site, p[0], &c, 1);
            every(0);
            if (!strange) break;
        }
        want = 0;
        CHECK_EQ(r, k & 2 ? -EINTR : 1);
        CHECK(ticks > 0);
        CHECK_EQ(strange, 0);
    }
}
struct reader {
    char *site;
    int fd;
};
static void *reads(void *a) {
    struct reader *r = a;
    char c;
    return (void *)CALL(r->site, r->fd, &c, 1);
}
// Threads are in a call from the text when that changes.
static void in_threads(int how) {
    all_calls();
    int p[2];
    SYS(pipe(p));
    pthread_t t[4];
    struct reader r[2] = {{site_read, p[0]}, {site_read_tail, p[0]}};
    for (int i = 0; i < 4; i++) OK(pthread_create(&t[i], 0, reads, &r[i & 1]));
    t_ms(50);
    switch (how) {
    case 0: OK(CALL(site_protect, page(), PAGE, RWX)); break;
    case 1: OK(CALL(site_protect, page(), REST, RWX)); break;
    case 2: OK(CALL(site_protect, last_page, PAGE, PROT_READ)); break;
    case 3: OK(CALL(site_unmap, last_page, PAGE)); break;
    }
    CHECK_EQ(write(p[1], "abcd", 4), 4);
    for (int i = 0; i < 4; i++) {
        void *v;
        OK(pthread_join(t[i], &v));
        CHECK_EQ((long)v, 1);
    }
    CHECK_EQ(CALL(site_head), getpid());
    CHECK_EQ(CALL(site_tail), getpid());
}
static void x_threads_writable(void) { in_threads(0); }
static void x_threads_all_writable(void) { in_threads(1); }
static void x_threads_last_read_only(void) { in_threads(2); }
static void x_threads_last_unmapped(void) { in_threads(3); }
static void x_maps(void) {
    all_calls();
    static char b[65536];
    char exe[PATH_MAX];
    SYS(readlink("/proc/self/exe", exe, sizeof exe));
    MUST(t_slurp("/proc/self/maps", b, sizeof b) > 0);
    int n = 0;
    for (char *line = strtok(b, "\n"); line; line = strtok(0, "\n")) {
        uintptr_t from, to;
        char prot[8], path[PATH_MAX] = "";
        sscanf(line, "%lx-%lx %7s %*s %*s %*s %4095s", &from, &to, prot, path);
        if (from > (uintptr_t)site_head || to <= (uintptr_t)site_head) continue;
        n++;
        CHECK_STR(prot, "r-xp");
        CHECK(strrchr(path, '/') && strstr(path, "/twins"));
        CHECK(to == (uintptr_t)last_page + PAGE);
    }
    CHECK_EQ(n, 1);
}
// Jumps into the middle of an instruction again and again: a call like any other, but nobody else may notice.
static void x_middle(void) {
    for (int i = 0; i < 20; i++) {
        long r;
        asm volatile("call *%1" : "=a"(r) : "r"(not_a_site + 1), "0"(39) : "rcx", "r11", "memory");
        CHECK_EQ(r, getpid());
    }
    calls(3);
}

#define LIST(X)                                                                                                        \
    X(calls) X(writable) X(writable_not_executable) X(all_writable) X(last_read_only) X(last_written) X(last_unmapped) X(last_covered) X(last_moved) \
    X(last_writable) X(moved) X(covered) X(dropped) X(forks) X(signals) X(interrupted) X(threads_writable) X(threads_all_writable)    \
    X(threads_last_read_only) X(threads_last_unmapped) X(maps) X(middle)

static void helper(int argc, char **argv) {
    if (argc != 3 || strcmp(argv[1], "--twin")) return;
#define X(n)                                                                                                           \
    if (!strcmp(argv[2], #n)) x_##n();
    LIST(X)
#undef X
    _exit(t_local_fails != 0);
}
static void again(const char *what, int times) {
    for (int i = 0; i < times; i++) {
        pid_t p = FORK();
        if (p == 0) {
            execl("/proc/self/exe", "/proc/self/exe", "--twin", what, NULL);
            _exit(99);
        }
        CHECK_STATUS(t_status(p), "exit 0");
    }
}
#define X(n)                                                                                                           \
    TEST(n) {                                                                                                          \
        again("calls", 8);                                                                                             \
        again(#n, 3);                                                                                                  \
        again("calls", 2);                                                                                             \
    }
LIST(X)
