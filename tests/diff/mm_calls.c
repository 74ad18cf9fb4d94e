// mseal, mincore, remap_file_pages, cachestat, ustat.
#include "t.h"
#include <sys/uio.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#define P 4096ul
static long mseal_(void *a, size_t n, unsigned long flags) { return syscall(462, a, n, flags); }
static char *anon(size_t n, int prot) {
    char *p = mmap(0, n, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(p != MAP_FAILED);
    return p;
}
#define RW (PROT_READ | PROT_WRITE)

TEST(mseal_errors) {
    char *p = anon(4 * P, RW);
    munmap(p + P, P);
    CHECK_ERR(mseal_(p, P, 1), EINVAL);
    CHECK_ERR(mseal_(p + 1, P, 0), EINVAL);
    CHECK_ERR(mseal_(p, -1ul, 0), EINVAL);
    CHECK_ERR(mseal_(p, -P, 0), EINVAL);
    CHECK_ERR(mseal_(p, 4 * P, 0), ENOMEM);
    CHECK_ERR(mseal_(p + P, P, 0), ENOMEM);
    OK(mseal_(p, 0, 0));
    OK(munmap(p, P));
    OK(mseal_(p + 2 * P, 1, 0));
    OK(mseal_(p + 2 * P, P, 0));
    CHECK_ERR(munmap(p + 2 * P, P), EPERM);
}
TEST(mseal_forbids) {
    char *p = anon(6 * P, RW), *q = anon(P, RW);
    p[2 * P] = 7;
    OK(mseal_(p + 2 * P, 2 * P, 0));
    CHECK_ERR(munmap(p, 6 * P), EPERM);
    CHECK_ERR(munmap(p + 3 * P, P), EPERM);
    CHECK_ERR(mprotect(p + 2 * P, P, PROT_READ), EPERM);
    CHECK_ERR(mprotect(p + 2 * P, P, RW), EPERM);
    CHECK_ERR(mremap(p + 2 * P, 2 * P, P, 0), EPERM);
    CHECK_ERR(mremap(p + 2 * P, 2 * P, 8 * P, MREMAP_MAYMOVE), EPERM);
    CHECK_ERR(mremap(q, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, p + 3 * P), EPERM);
    CHECK_ERR(mmap(p + 2 * P, P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EPERM);
    CHECK_ERR(mmap(p, 6 * P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EPERM);
    CHECK_EQ(p[2 * P], 7);
    // What comes before the seal changes.
    CHECK_ERR(mprotect(p, 6 * P, PROT_READ), EPERM);
    CHECK_STATUS(CHILD(p[0] = 1), "signal 11");
    CHECK_STATUS(CHILD(p[5 * P] = 1), "exit 0");
    CHECK_CHILD(CHECK_ERR(munmap(p + 2 * P, P), EPERM));
    OK(munmap(p, 2 * P));
    OK(munmap(p + 4 * P, 2 * P));
}
TEST(mseal_advice) {
    char *p = anon(2 * P, RW);
    p[0] = p[P] = 3;
    OK(mprotect(p, P, PROT_READ));
    OK(mseal_(p, 2 * P, 0));
    CHECK_ERR(madvise(p, P, MADV_DONTNEED), EPERM);
    CHECK_ERR(madvise(p, P, MADV_FREE), EPERM);
    CHECK_ERR(madvise(p, P, MADV_DONTFORK), EPERM);
    CHECK_ERR(madvise(p, P, MADV_WIPEONFORK), EPERM);
    OK(madvise(p, P, MADV_WILLNEED));
    CHECK_EQ(p[0], 3);
    OK(madvise(p + P, P, MADV_DONTNEED));
    CHECK_EQ(p[P], 0);
    OK(mlock(p, P));
    int fd = t_file("f", "text");
    char *f = mmap(0, P, PROT_READ, MAP_PRIVATE, fd, 0);
    OK(mseal_(f, P, 0));
    OK(madvise(f, P, MADV_DONTNEED));
    CHECK_ERR(munmap(f, P), EPERM);
}
TEST(mseal_brk) {
    char *b = sbrk(0), *start = (char *)(((unsigned long)b + P - 1) & -P);
    OK(brk(start + 2 * P));
    OK(mseal_(start + P, P, 0));
    CHECK_EQ(syscall(SYS_brk, start + P), (long)(start + 2 * P));
    CHECK(sbrk(0) == start + 2 * P);
}

TEST(mincore_exact) {
    unsigned char v[8];
    char *p = anon(8 * P, RW);
    OK(mincore(p, 8 * P, v));
    for (int i = 0; i < 8; i++) CHECK_EQ(v[i], 0);
    p[0] = p[3 * P] = 1;
    OK(mincore(p, 8 * P, v));
    for (int i = 0; i < 8; i++) CHECK_EQ(v[i], i == 0 || i == 3);
    OK(madvise(p, P, MADV_DONTNEED));
    OK(mincore(p, 1, v));
    CHECK_EQ(v[0], 0);
    CHECK_ERR(mincore(p + 1, P, v), EINVAL);
    CHECK_ERR(mincore(p, P, BAD_PTR), EFAULT);
    munmap(p + P, P);
    CHECK_ERR(mincore(p, 8 * P, v), ENOMEM);
    OK(mincore(p, 0, v));
}
TEST(locking_reads_in) {
    unsigned char v[4];
    char *p[4] = {anon(4 * P, RW), anon(4 * P, PROT_READ), mmap(0, 4 * P, PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), anon(4 * P, RW)};
    for (int i = 0; i < 3; i++) {
        OK(mlock(p[i] + P, 2 * P));
        OK(mincore(p[i], 4 * P, v));
        CHECK_EQ(v[0] | v[1] << 1 | v[2] << 2 | v[3] << 3, 6);
    }
    OK(mlock2(p[3], 4 * P, MLOCK_ONFAULT));
    OK(mincore(p[3], 4 * P, v));
    CHECK_EQ(v[0] | v[3], 0);
    CHECK_ERR(mlock(anon(P, PROT_NONE), P), ENOMEM);
}
TEST(growing_stack) {
    // A page behind the top stays free, whatever is mapped above.
    char *area = mmap(0, 1025 * P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *top = area + 1023 * P;
    munmap(area, 1025 * P);
    MUST(mmap(top, P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0) == top);
    for (int i = 1; i < 200; i++) top[-i * (long)P] = i;
    CHECK_EQ(top[-7 * (long)P], 7);
    CHECK_STATUS(CHILD(top[P + 100] = 1), "signal 11");
    // Not into the room above the mapping below.
    MUST(mmap(area + 500 * P, P, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    CHECK_STATUS(CHILD(for (char *q = top; q > area + 520 * P; q -= P) *q = 1), "signal 11");
}
TEST(mincore_large) {
    size_t n = 20000;
    char *p = anon(n * P, RW);
    unsigned char *v = calloc(1, n);
    for (size_t i = 0; i < n; i += 4095) p[i * P] = 1;
    OK(madvise(p, n * P, MADV_NOHUGEPAGE));
    OK(mincore(p, n * P, v));
    int count = 0;
    for (size_t i = 0; i < n; i++) count += v[i];
    CHECK(v[0] && v[4095] && v[8190] && v[16380]);
    CHECK(count >= 5);
}

static long remap(void *a, size_t n, int prot, size_t page, int flags) { return syscall(SYS_remap_file_pages, a, n, prot, page, flags); }
static void remap_check(char *p) {
    for (int i = 0; i < 8; i++) p[i * P] = i;
    OK(remap(p, P, 0, 7, 0));
    CHECK_EQ(p[0], 7);
    CHECK_EQ(p[7 * P], 7);
    p[0] = 42;
    CHECK_EQ(p[7 * P], 42);
    OK(remap(p + 2 * P, 2 * P, 0, 4, 0));
    CHECK_EQ(p[2 * P], 4);
    CHECK_EQ(p[3 * P], 5);
    OK(remap(p, P, 0, 0, 0));
    CHECK_EQ(p[0], 0);
}
TEST(remap_pages) {
    remap_check(mmap(0, 8 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int fd = t_file("f", "x");
    OK(ftruncate(fd, 8 * P));
    char *p = mmap(0, 8 * P, RW, MAP_SHARED, fd, 0);
    remap_check(p);
    char c;
    CHECK_EQ(pread(fd, &c, 1, 7 * P), 1);
    CHECK_EQ(c, 42);
}
TEST(remap_errors) {
    char *s = mmap(0, 4 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *a = anon(P, RW);
    CHECK_ERR(remap(s, P, PROT_READ, 0, 0), EINVAL);
    CHECK_ERR(remap(a, P, 0, 0, 0), EINVAL);
    CHECK_ERR(remap(s, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(remap(s, 100, 0, 0, 0), EINVAL);
    CHECK_ERR(remap(s, P, 0, -1ul, 0), EINVAL);
    munmap(s + P, P);
    CHECK_ERR(remap(s, 3 * P, 0, 0, 0), EINVAL);
    CHECK_ERR(remap(s + P, P, 0, 0, 0), EINVAL);
    OK(remap(s + 100, P, 0, 0, 0));
}

struct cs { unsigned long long cache, dirty, writeback, evicted, recent; };
struct csr { unsigned long long off, len; };
static long cachestat_(int fd, struct csr *r, void *s, unsigned flags) { return syscall(451, fd, r, s, flags); }
TEST(cachestat_memfd) {
    int fd = memfd_create("m", 0);
    char b[4096] = {1};
    for (int i = 0; i < 4; i++) CHECK_EQ(write(fd, b, sizeof b), sizeof b);
    struct cs s;
    struct csr r = {0, 4 * P};
    OK(cachestat_(fd, &r, &s, 0));
    CHECK_EQ(s.cache, 4);
    r = (struct csr){P, 2 * P};
    OK(cachestat_(fd, &r, &s, 0));
    CHECK_EQ(s.cache, 2);
    r = (struct csr){0, 0};
    OK(cachestat_(fd, &r, &s, 0));
    CHECK_EQ(s.cache, 4);
    CHECK_ERR(cachestat_(fd, &r, &s, 1), EINVAL);
    CHECK_ERR(cachestat_(fd, BAD_PTR, &s, 0), EFAULT);
    CHECK_ERR(cachestat_(fd, &r, BAD_PTR, 0), EFAULT);
    CHECK_ERR(cachestat_(-1, &r, &s, 0), EBADF);
}
TEST(cachestat_others) {
    struct cs s;
    struct csr r = {0, 4 * P};
    int p[2];
    OK(pipe(p));
    OK(cachestat_(p[1], &r, &s, 0));
    CHECK_EQ(s.cache, 0);
    int d = SYS(open(".", O_RDONLY | O_DIRECTORY));
    OK(cachestat_(d, &r, &s, 0));
    int fd = t_file("f", "text");
    OK(cachestat_(fd, &r, &s, 0));
    CHECK_EQ(s.cache, 1);
}

struct ustat_ { int tfree; unsigned long tinode; char names[12]; };
TEST(ustat_dev) {
    struct stat st;
    struct ustat_ u;
    OK(stat(".", &st));
    unsigned dev = (minor(st.st_dev) & 0xff) | major(st.st_dev) << 8 | (minor(st.st_dev) & ~0xff) << 12;
    OK(syscall(SYS_ustat, dev, &u));
    CHECK_ERR(syscall(SYS_ustat, dev, BAD_PTR), EFAULT);
    CHECK_ERR(syscall(SYS_ustat, 0x7777777, &u), EINVAL);
}

#define SELF (-10000)
#define SELF_GROUP (-10001)
static long advise(int fd, struct iovec *v, int n, int advice) { return syscall(440, fd, v, n, advice, 0); }
TEST(process_madvise_of_oneself) {
    char *m = mmap(0, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 'm', 5 * 4096);
    int own = SYS(syscall(SYS_pidfd_open, getpid(), 0)), fds[] = {own, SELF, SELF_GROUP};
    for (int i = 0; i < 3; i++) {
        struct iovec v[] = {{m, 4096}, {m + 8192, 4096}};
        memset(m, 'm', 5 * 4096);
        CHECK_EQ(advise(fds[i], v, 2, MADV_DONTNEED), 8192);
        CHECK_EQ(m[0], 0);
        CHECK_EQ(m[4096], 'm');
        CHECK_EQ(m[8192], 0);
        OK(advise(fds[i], v, 0, MADV_DONTNEED));
    }
    struct iovec v[] = {{m, 4096}, {m + 1, 4096}, {m, 4096}};
    CHECK_EQ(advise(SELF, v, 3, MADV_WILLNEED), 4096); // up to the one that is wrong
    CHECK_ERR(advise(SELF, v + 1, 1, MADV_WILLNEED), EINVAL);
    CHECK_ERR(advise(SELF, v, 1, 12345), EINVAL);
    CHECK_ERR(syscall(440, SELF, v, 1, MADV_WILLNEED, 1), EINVAL);
    CHECK_ERR(syscall(440, SELF, v, 1025, MADV_WILLNEED, 0), EINVAL);
    CHECK_ERR(advise(SELF, BAD_PTR, 1, MADV_WILLNEED), EFAULT);
    CHECK_ERR(advise(99, v, 1, MADV_WILLNEED), EBADF);
    CHECK_ERR(advise(0, v, 1, MADV_WILLNEED), EBADF);
    SYS(munmap(m + 4096, 4096));
    struct iovec hole = {m, 3 * 4096};
    CHECK_ERR(advise(SELF, &hole, 1, MADV_WILLNEED), ENOMEM);
    // The call that frees the memory of a process that ends knows these numbers as well.
    CHECK_ERR(syscall(SYS_process_mrelease, SELF, 0), EINVAL);
    CHECK_ERR(syscall(SYS_process_mrelease, SELF_GROUP, 0), EINVAL);
}
TEST(process_madvise_of_others) {
    char *m = mmap(0, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 'm', 2 * 4096);
    struct t_gate go = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        t_pass(go);
        CHECK_EQ(m[0], 'm');
        _exit(0);
    }
    int fd = SYS(syscall(SYS_pidfd_open, p, 0));
    struct iovec v = {m, 2 * 4096}, odd = {m + 1, 4096}, none = {(void *)4096, 4096};
    int good[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED};
    for (int i = 0; i < 3; i++) CHECK_EQ(advise(fd, &v, 1, good[i]), 2 * 4096);
    int bad[] = {MADV_DONTNEED, MADV_FREE, MADV_NORMAL, 102, 12345};
    for (int i = 0; i < 5; i++) CHECK_ERR(advise(fd, &v, 1, bad[i]), EINVAL);
    CHECK_ERR(advise(fd, &odd, 1, MADV_COLD), EINVAL);
    CHECK_ERR(advise(fd, &none, 1, MADV_COLD), ENOMEM);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(advise(fd, &v, 1, MADV_COLD), EACCES));
    t_open(go);
    t_status(p);
    CHECK_ERR(advise(fd, &v, 1, MADV_COLD), ESRCH);
}
