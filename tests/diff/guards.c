// Guard pages: MADV_GUARD_INSTALL and MADV_GUARD_REMOVE of madvise(2).
#include "t.h"
#include <setjmp.h>
#include <sys/uio.h>

#define INSTALL 102
#define REMOVE 103
#define P 4096L

static sigjmp_buf back;
static volatile int signo, code;
static volatile char *fault;
static void on(int s, siginfo_t *i, void *c) {
    signo = s, code = i->si_code, fault = i->si_addr;
    siglongjmp(back, 1);
}
static void catch(void) {
    struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO | SA_NODEFER};
    SYS(sigaction(SIGSEGV, &sa, 0));
    SYS(sigaction(SIGBUS, &sa, 0));
}
// The byte there, or -1 after SIGSEGV as outside of all mappings, -2 for another signal.
static int byte(volatile char *p) {
    if (!sigsetjmp(back, 1)) return *p;
    return signo == SIGSEGV && code == SEGV_MAPERR && fault == p ? -1 : -2;
}
static int store(volatile char *p, char c) {
    if (!sigsetjmp(back, 1)) return *p = c, 0;
    return signo == SIGSEGV && code == SEGV_MAPERR && fault == p ? -1 : -2;
}
static char *memory(int pages, int flags) {
    char *m = mmap(0, pages * P, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    MUST(m != MAP_FAILED);
    memset(m, 'm', pages * P);
    catch();
    return m;
}

TEST(access_faults) {
    char *m = memory(4, MAP_PRIVATE);
    OK(madvise(m + P, 2 * P, INSTALL));
    CHECK_EQ(byte(m), 'm');
    CHECK_EQ(byte(m + P), -1);
    CHECK_EQ(byte(m + 3 * P - 1), -1);
    CHECK_EQ(store(m + 2 * P, 'x'), -1);
    CHECK_EQ(byte(m + 3 * P), 'm');
    OK(madvise(m + P, 2 * P, INSTALL)); // again
    OK(madvise(m + P, P, REMOVE));
    CHECK_EQ(byte(m + P), 0); // what was there is gone
    CHECK_EQ(byte(m + 2 * P), -1);
    OK(store(m + P, 'y'));
    OK(madvise(m, 4 * P, REMOVE)); // pages without a guard stay
    CHECK_EQ(byte(m), 'm');
    CHECK_EQ(byte(m + P), 'y');
    CHECK_EQ(byte(m + 2 * P), 0);
}
TEST(kernel_accesses_fail) {
    char *m = memory(2, MAP_PRIVATE), b[2 * P];
    int p[2];
    SYS(pipe(p));
    OK(madvise(m + P, P, INSTALL));
    CHECK_ERR(write(p[1], m + P, 1), EFAULT);
    CHECK_EQ(write(p[1], m + P - 3, 3), 3);
    CHECK_ERR(read(p[0], m + P, 3), EFAULT);
    CHECK_EQ(read(p[0], b, 3), 3);
    int f = t_file("f", "some text that is read and written");
    CHECK_ERR(pread(f, m + P, 10, 0), EFAULT);
    CHECK_EQ(pread(f, m + P - 4, 10, 0), 4);
    CHECK_EQ(pwrite(f, m + P - 4, 10, 0), 4);
    CHECK_ERR(pwrite(f, m + P, 10, 0), EFAULT);
    struct stat st;
    CHECK_ERR(syscall(SYS_fstat, f, m + P), EFAULT);
    CHECK_ERR(syscall(SYS_newfstatat, AT_FDCWD, m + P, &st, 0), EFAULT);
    CHECK_ERR(syscall(SYS_clock_gettime, CLOCK_REALTIME, m + P), EFAULT);
    struct iovec to = {b, 2 * P}, both = {m, 2 * P}, one = {m + P, P};
    CHECK_EQ(process_vm_readv(getpid(), &to, 1, &both, 1, 0), P);
    CHECK_ERR(process_vm_readv(getpid(), &to, 1, &one, 1, 0), EFAULT);
    int mem = SYS(open("/proc/self/mem", O_RDWR));
    CHECK_ERR(pread(mem, b, 1, (long)(m + P)), EIO);
    CHECK_EQ(pread(mem, b, P, (long)m), P);
}
TEST(other_advice) {
    char *m = memory(2, MAP_PRIVATE);
    OK(madvise(m + P, P, INSTALL));
    OK(madvise(m, 2 * P, MADV_DONTNEED));
    CHECK_EQ(byte(m), 0);
    CHECK_EQ(byte(m + P), -1);
    OK(madvise(m, 2 * P, MADV_FREE));
    CHECK_EQ(byte(m + P), -1);
    CHECK_ERR(madvise(m, 2 * P, MADV_POPULATE_READ), EFAULT);
    CHECK_ERR(madvise(m + P, P, MADV_POPULATE_WRITE), EFAULT);
    OK(madvise(m, 2 * P, MADV_WILLNEED));
    OK(madvise(m, 2 * P, MADV_COLD));
    CHECK_EQ(byte(m + P), -1);
    CHECK_ERR(mlock(m + P, P), ENOMEM);
    OK(munlock(m + P, P));
    CHECK_EQ(byte(m + P), -1);
}
TEST(what_can_be_guarded) {
    char *m = memory(3, MAP_PRIVATE);
    OK(mlock(m, P));
    CHECK_ERR(madvise(m, P, INSTALL), EINVAL);
    CHECK_ERR(madvise(m, 2 * P, INSTALL), EINVAL);
    CHECK_EQ(byte(m + P), 'm');
    OK(madvise(m, P, REMOVE));
    OK(munlock(m, P));
    OK(madvise(m, P, INSTALL));
    CHECK_ERR(madvise(m + 1, P, INSTALL), EINVAL);
    OK(madvise(m, 0, INSTALL));
    OK(munmap(m + P, P));
    CHECK_ERR(madvise(m, 3 * P, INSTALL), ENOMEM);
    CHECK_EQ(byte(m + 2 * P), -1);
    CHECK_ERR(madvise(m, P, 104), EINVAL);
    char *n = mmap(0, P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(madvise(n, P, INSTALL));
    OK(mprotect(n, P, PROT_READ | PROT_WRITE));
    CHECK_EQ(byte(n), -1);
    OK(mprotect(m, P, PROT_READ));
    CHECK_EQ(byte(m), -1);
}
TEST(shared_and_file_mappings) {
    int f = t_file("f", "file");
    SYS(ftruncate(f, 2 * P));
    for (int shared = 0; shared < 2; shared++) {
        char *m = mmap(0, 2 * P, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, f, 0);
        char *other = mmap(0, 2 * P, PROT_READ, MAP_SHARED, f, 0);
        catch();
        CHECK_EQ(byte(m), 'f');
        OK(madvise(m, P, INSTALL));
        CHECK_EQ(byte(m), -1);
        CHECK_EQ(byte(other), 'f');
        OK(madvise(m, P, REMOVE));
        CHECK_EQ(byte(m), 'f');
    }
    char *s = memory(1, MAP_SHARED);
    OK(madvise(s, P, INSTALL));
    CHECK_EQ(byte(s), -1);
    OK(madvise(s, P, REMOVE));
    CHECK_EQ(byte(s), 'm');
}
TEST(guards_move_and_end) {
    char *m = memory(3, MAP_PRIVATE), *to = memory(5, MAP_PRIVATE);
    OK(madvise(m + P, P, INSTALL));
    CHECK(mremap(m, 3 * P, 5 * P, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK_EQ(byte(to), 'm');
    CHECK_EQ(byte(to + P), -1);
    CHECK_EQ(byte(to + 2 * P), 'm');
    CHECK_EQ(byte(to + 4 * P), 0);
    CHECK(mmap(to + P, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == to + P);
    CHECK_EQ(byte(to + P), 0);
}
TEST(guards_are_inherited) {
    char *m = memory(3, MAP_PRIVATE), *s = memory(1, MAP_SHARED);
    OK(madvise(m + P, P, INSTALL));
    OK(madvise(s, P, INSTALL));
    OK(madvise(m + 2 * P, P, INSTALL));
    OK(madvise(m + 2 * P, P, MADV_WIPEONFORK));
    CHECK_CHILD(CHECK_EQ(byte(m), 'm'); CHECK_EQ(byte(m + P), -1); CHECK_EQ(byte(s), -1); CHECK_EQ(byte(m + 2 * P), 0);
                OK(madvise(m + P, P, REMOVE)); CHECK_EQ(byte(m + P), 0));
    CHECK_EQ(byte(m + P), -1);
    CHECK_EQ(byte(m + 2 * P), -1);
}
static void on_overflow(int s, siginfo_t *i, void *c) { _exit(i->si_code == SEGV_MAPERR ? 7 : 8); }
// As a C library guards the end of a thread's stack.
TEST(stack_of_a_thread) {
    char *m = memory(32, MAP_PRIVATE), *alt = memory(4, MAP_PRIVATE);
    OK(madvise(m, P, INSTALL));
    int st = CHILD({
        stack_t ss = {.ss_sp = alt, .ss_size = 4 * P};
        struct sigaction sa = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        SYS(sigaction(SIGSEGV, &sa, 0));
        OK(sigaltstack(&ss, 0));
        // The stack pointer of this thread goes there for good.
        __asm__ volatile("mov %0, %%rsp\n1: push %%rax\njmp 1b" ::"r"(m + 32 * P) : "memory");
    });
    CHECK_STATUS(st, "exit 7");
}
// Maps show one mapping, guarded or not.
TEST(maps_do_not_show_guards) {
    char *m = memory(3, MAP_PRIVATE), b[65536], line[64];
    MUST(mmap(m, P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m);
    OK(madvise(m + P, P, INSTALL));
    CHECK(t_slurp("/proc/self/maps", b, sizeof b) > 0);
    sprintf(line, "%lx-%lx ---p", (long)m, (long)(m + P));
    CHECK(strstr(b, line));
    sprintf(line, "%lx-", (long)(m + P));
    CHECK(strstr(b, line));
    sprintf(line, "%lx-", (long)(m + 2 * P));
    CHECK(!strstr(b, line));
}
