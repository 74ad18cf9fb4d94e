// Guests that do not do what the sentry tells them: they know the stub's code and their slot and use both. systrap alone.
// Prints "held" when the kernel copes, anything else when not.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STUB 0x7ffe00000000ul
#define SLOT 0x7ffe10000000ul
#define SLOT_DATA 0x10000

static uint8_t *syscall_ret; // a `syscall; ret` of the stub's, from where the host serves it
static volatile uint32_t *shared;

static long host(long nr, long a, long b, long c, long d) {
    long r;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("call *%1" : "=a"(r) : "r"(syscall_ret), "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "r8", "r9", "memory");
    return r;
}
static void nap(void) {
    struct timespec t = {0, 50000000};
    static int word;
    host(SYS_futex, (long)&word, 128, 0, (long)&t);
}
static void live(int i) {
    for (int k = 0; k < 1200; k++) {
        shared[i]++;
        nap();
    }
}
// A system call of which the answer is never looked at.
static void call_and_go_on(uint64_t nr, uint64_t a, uint64_t b, uint64_t c) {
    volatile uint32_t *req = (void *)SLOT;
    volatile uint64_t *call = (void *)(SLOT + 8);
    uint32_t seq = *req & 0x7fffffff;
    call[0] = nr, call[1] = a, call[2] = b, call[3] = c;
    req[1] = 1 | 999u << 16; // on another CPU, awake
    if (__atomic_exchange_n(req, (seq + 1) & 0x7fffffff, __ATOMIC_SEQ_CST) & 0x80000000u) host(SYS_futex, (long)req, 1, 1, 0);
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
// What a busy machine may need. Those that live() do so for twice as long.
enum { PATIENCE = 30 };
static int stopped(int a, int b) {
    for (double end = now() + PATIENCE; now() < end;) {
        uint32_t was[2] = {shared[a], shared[b]};
        usleep(1000000);
        if (was[0] == shared[a] && was[1] == shared[b]) return 1;
    }
    return 0;
}
// Ends for its parent, and goes on.
static int after_exit(void) {
    pid_t p = fork();
    if (!p) {
        call_and_go_on(SYS_exit_group, 7, 0, 0);
        live(0);
    }
    int st;
    return waitpid(p, &st, 0) == p && st == 7 << 8 && stopped(0, 0);
}
// Ends for its parent, says that its memory is empty, and stays: the next program that would get its process needs another one.
// `used` KiB of resident memory are too much for the process to serve again, so it must end at once.
static int not_emptied(uint64_t used) {
    pid_t p = fork();
    if (!p) {
        volatile uint32_t *req = (void *)SLOT, *rsp = (void *)(SLOT + 64);
        uint32_t before = *rsp & 0x7fffffff;
        call_and_go_on(SYS_exit_group, 7, 0, 0);
        while ((*rsp & 0x7fffffff) == before) nap();
        volatile uint64_t *usage = (void *)(SLOT + SLOT_DATA);
        usage[4] = used; // ru_maxrss
        req[1] = 5 | 999u << 16; // done
        __atomic_exchange_n(req, ((*req & 0x7fffffff) + 1) & 0x7fffffff, __ATOMIC_SEQ_CST);
        shared[7] = 1;
        live(0);
    }
    int st;
    if (waitpid(p, &st, 0) != p || st != 7 << 8) return 0;
    while (!shared[7]) usleep(1000);
    for (int i = 0; i < 3; i++) {
        pid_t q = fork();
        if (!q) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        if (waitpid(q, &st, 0) != q || st) return 0;
    }
    return stopped(0, 0);
}
// Two processes on one memory that do not hear the sentry's signal.
static int deaf(void *i) {
    uint64_t mask = 1ul << (SIGURG - 1);
    host(SYS_rt_sigprocmask, 0, (long)&mask, 0, 8);
    live((long)i);
    return 0;
}
static int killed_twice(void) {
    pid_t p = fork();
    if (!p) {
        char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        shared[8] = clone(deaf, stack + 65536, CLONE_VM | SIGCHLD, (void *)1);
        deaf((void *)2);
    }
    while (!shared[8] || !shared[1] || !shared[2]) usleep(1000);
    return !kill(p, SIGKILL) && !kill(shared[8], SIGKILL) && stopped(1, 2);
}
// Takes the stub's own memory away, so that it cannot handle its next fault: the host ends it.
static int broken_stub(void) {
    pid_t p = fork();
    if (!p) {
        for (long at = SLOT; at < SLOT + (1 << 22); at += 4096) host(SYS_munmap, at, 4096, 0, 0);
        host(SYS_munmap, STUB, 1 << 20, 0, 0);
        *(volatile int *)0 = 0;
        live(4);
    }
    int st;
    usleep(300000);
    kill(p, SIGKILL);
    return waitpid(p, &st, 0) == p && WIFSIGNALED(st);
}
// Reads at a shared position and leaves the sentry waiting in the middle.
static int stalled_read(void) {
    static char buf[300000];
    char name[] = "/tmp/hostile.XXXXXX";
    int fd = mkstemp(name), st;
    if (write(fd, buf, sizeof buf) != sizeof buf || lseek(fd, 0, SEEK_SET)) return 0;
    pid_t p = fork();
    if (!p) {
        memset(buf, 1, sizeof buf);
        call_and_go_on(SYS_read, fd, (uint64_t)buf, 200000);
        live(3);
    }
    usleep(500000);
    pid_t victim = fork();
    if (!victim) _exit(read(fd, buf, 1) == 1 ? 0 : 1);
    int done = 0;
    for (double end = now() + PATIENCE; !done && now() < end; usleep(1000))
        done = waitpid(victim, &st, WNOHANG) == victim && st == 0;
    kill(victim, SIGKILL);
    kill(p, SIGKILL);
    return done;
}

// Forks whose children never get as far as telling the sentry about themselves: they have no stub. Nobody waits for them, neither
// those who want to end the process, nor a process that forks meanwhile.
static int silent_forks(void) {
    pid_t at[4];
    int st;
    for (int i = 0; i < 4; i++) {
        if ((at[i] = fork())) continue;
        host(SYS_madvise, STUB, 0x10000, MADV_DONTFORK, 0);
        for (;;) fork();
    }
    usleep(300000);
    double start = now();
    for (int i = 0; i < 5; i++) {
        pid_t p = fork();
        if (!p) _exit(3);
        if (waitpid(p, &st, 0) != p || st != 3 << 8) return 0;
    }
    for (int i = 0; i < 4; i++) kill(at[i], SIGKILL);
    for (int i = 0; i < 4; i++)
        if (waitpid(at[i], &st, 0) != at[i] || st != SIGKILL) return 0;
    return now() - start < PATIENCE;
}
// Processes that put guard pages over what their stub needs: its text, or all of its slots and stacks. They harm themselves only.
static int guarded_stub(void) {
    const long lengths[] = {0x1000, 0x10000, 0x80000000};
    pid_t at[6];
    int st;
    for (int i = 0; i < 6; i++) {
        if ((at[i] = fork())) continue;
        for (;;) {
            long from = STUB + (i < 3 ? 0 : 0x10000);
            host(SYS_madvise, from, lengths[i % 3], 102, 0); // MADV_GUARD_INSTALL
            getppid();
            if (!fork()) _exit(0);
        }
    }
    usleep(300000);
    double start = now();
    for (int i = 0; i < 5; i++) {
        pid_t p = fork();
        if (!p) _exit(3);
        if (waitpid(p, &st, 0) != p || st != 3 << 8) return 0;
    }
    for (int i = 0; i < 6; i++) kill(at[i], SIGKILL);
    for (int i = 0; i < 6; i++)
        if (waitpid(at[i], &st, 0) != at[i] || !WIFSIGNALED(st)) return 0;
    return now() - start < PATIENCE;
}
// Uses up the sentry's descriptors, then forks: that may fail, but not after a long wait.
static int descriptors(void) {
    for (int i = 0; i < 4000; i++) {
        int fd = syscall(SYS_memfd_create, "a", 0);
        if (fd < 0 || ftruncate(fd, 4096)) break;
        volatile int *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (m == MAP_FAILED) break;
        *m = 1;
    }
    double start = now();
    for (int i = 0; i < 3; i++) {
        pid_t p = fork();
        int st;
        if (!p) _exit(3);
        if (p > 0 && (waitpid(p, &st, 0) != p || st != 3 << 8)) return 0;
    }
    return now() - start < PATIENCE;
}
// As many threads as there may be, and more. They are refused before the sentry has no room for its own.
static void *pauses(void *a) {
    pause();
    return a;
}
static int threads(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    int forks = 0;
    for (; forks < 500; forks++) {
        pid_t p = fork();
        if (p < 0) break;
        if (p) continue;
        pthread_t t;
        for (int i = 0; i < 60 && !pthread_create(&t, &small, pauses, 0); i++) {}
        pause();
    }
    usleep(3000000);
    kill(-1, SIGKILL);
    while (wait(0) > 0) {}
    return forks > 20;
}
// Asks for processes that the sentry has not agreed to.
static int flood(void) {
    double end = now() + 2;
    long refused = 0;
    while (now() < end) refused += host(SYS_clone, 0x250f00, 0, 0, 0) == -1;
    return refused > 100;
}

// Tries to change text that other processes execute, through every descriptor that its stub has. How many of them can be mapped.
static int shared_text(void) {
    register long r8 __asm__("r8"), r9 __asm__("r9");
    char *at = (char *)0x200000000000;
    int found = 0;
    for (int fd = 0; fd < 64; fd++) {
        for (int k = 0; k < 2; k++) {
            long r = SYS_mmap;
            register long r10 __asm__("r10") = MAP_SHARED | MAP_FIXED;
            r8 = fd, r9 = 0;
            __asm__ volatile("call *%1" : "+a"(r) : "r"(syscall_ret), "D"(at), "S"(4096), "d"(k ? PROT_READ : PROT_READ | PROT_WRITE), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
            if (r < 0) continue;
            if (!k || !host(SYS_mprotect, (long)at, 4096, PROT_READ | PROT_WRITE, 0)) return -1;
            if (!host(SYS_madvise, (long)at, 4096, MADV_REMOVE, 0)) return -1;
            found++;
        }
    }
    return found;
}
// A new process, after others have executed the C library's text so often that there is a copy of it for all.
static int text(char *self) {
    for (int i = 0; i < 12; i++) {
        pid_t p = fork();
        int st;
        if (!p) {
            execl(i < 9 ? "/bin/true" : self, self, "write_text", NULL);
            _exit(1);
        }
        if (waitpid(p, &st, 0) != p || !WIFEXITED(st) || WEXITSTATUS(st) > 1) return 0;
        if (i == 11 && getenv("VERBOSE")) fprintf(stderr, "%s\n", WEXITSTATUS(st) ? "there is such text" : "there is none");
    }
    return 1;
}

int main(int argc, char **argv) {
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint8_t *p = (void *)STUB; p < (uint8_t *)STUB + 0x8000 && !syscall_ret; p++)
        if (!memcmp(p, "\x0f\x05\xc3", 3)) syscall_ret = p;
    int ok = 0;
    if (argc == 2 && !strcmp(argv[1], "after_exit")) ok = after_exit();
    if (argc == 2 && !strcmp(argv[1], "not_emptied")) ok = not_emptied(0);
    if (argc == 2 && !strcmp(argv[1], "too_large")) ok = not_emptied(1 << 20);
    if (argc == 2 && !strcmp(argv[1], "killed_twice")) ok = killed_twice();
    if (argc == 2 && !strcmp(argv[1], "stalled_read")) ok = stalled_read();
    if (argc == 2 && !strcmp(argv[1], "broken_stub")) ok = broken_stub();
    if (argc == 2 && !strcmp(argv[1], "silent_forks")) ok = silent_forks();
    if (argc == 2 && !strcmp(argv[1], "guarded_stub")) ok = guarded_stub();
    if (argc == 2 && !strcmp(argv[1], "descriptors")) ok = descriptors();
    if (argc == 2 && !strcmp(argv[1], "threads")) ok = threads();
    if (argc == 2 && !strcmp(argv[1], "flood")) ok = flood();
    if (argc == 2 && !strcmp(argv[1], "write_text")) {
        int n = shared_text();
        _exit(n < 0 ? 2 : n > 0);
    }
    if (argc == 2 && !strcmp(argv[1], "text")) ok = text(argv[0]);
    puts(ok ? "held" : "broken");
    fflush(stdout);
    kill(-1, SIGKILL);
    return 0;
}
