// mmap, munmap, mprotect, mremap, madvise, msync, mincore, brk, mlock: anonymous, file, shared and private mappings.
#include "t.h"
#include <linux/memfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define PAGE 4096
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static sigjmp_buf jb;
static void on_fault(int s) { siglongjmp(jb, s); }
// The signal that touching the byte raises, or 0.
static int touch(volatile char *p, bool write) {
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    int s = sigsetjmp(jb, 1);
    if (s == 0) {
        if (write) *p = *p;
        else (void)*p;
    }
    return s;
}
static char *anon(size_t n) { return SYS(mmap(0, n, RW, ANON, -1, 0)); }

TEST(mmap_anonymous_is_zero) {
    unsigned char *p = (unsigned char *)anon(64 * PAGE);
    CHECK_EQ((uintptr_t)p % PAGE, 0);
    int sum = 0;
    for (int i = 0; i < 64 * PAGE; i++) sum |= p[i];
    CHECK_EQ(sum, 0);
    memset(p, 0xaa, 64 * PAGE);
    OK(munmap(p, 64 * PAGE));
    CHECK_EQ(touch((char *)p, false), SIGSEGV);
}
TEST(mmap_length_is_rounded_up) {
    char *p = anon(1);
    p[PAGE - 1] = 1;
    OK(munmap(p, 1));
    CHECK_EQ(touch(p + PAGE - 1, false), SIGSEGV);
}
TEST(mmap_errors) {
    int fd = t_file("f", "x"), ro = SYS(open("f", O_RDONLY)), wo = SYS(open("f", O_WRONLY)), d = SYS(open(".", O_RDONLY)), p[2];
    SYS(pipe(p));
    CHECK_ERR((long)mmap(0, 0, RW, ANON, -1, 0), EINVAL);
    CHECK_ERR((long)mmap(0, PAGE, RW, MAP_ANONYMOUS, -1, 0), EINVAL);
    CHECK_ERR((long)mmap(0, PAGE, RW, MAP_PRIVATE, -1, 0), EBADF);
    CHECK_ERR((long)mmap(0, PAGE, RW, MAP_PRIVATE, 999, 0), EBADF);
    CHECK_ERR((long)mmap(0, PAGE, RW, MAP_SHARED, ro, 0), EACCES);
    CHECK(mmap(0, PAGE, RW, MAP_PRIVATE, ro, 0) != MAP_FAILED);
    CHECK_ERR((long)mmap(0, PAGE, PROT_READ, MAP_PRIVATE, wo, 0), EACCES);
    CHECK_ERR((long)mmap(0, PAGE, PROT_READ, MAP_SHARED, wo, 0), EACCES);
    CHECK_ERR((long)mmap(0, PAGE, PROT_READ, MAP_PRIVATE, d, 0), ENODEV);
    CHECK_ERR((long)mmap(0, PAGE, PROT_READ, MAP_PRIVATE, p[0], 0), ENODEV);
    CHECK_ERR(syscall(SYS_mmap, 0, PAGE, PROT_READ, MAP_PRIVATE, fd, 100), EINVAL);
    CHECK_ERR((long)mmap((void *)100, PAGE, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
    CHECK_ERR((long)mmap(0, 1UL << 47, RW, ANON, -1, 0), ENOMEM);
    CHECK_ERR((long)mmap(0, -1UL, RW, ANON, -1, 0), ENOMEM);
    CHECK_ERR((long)mmap((void *)0x800000000000, PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
    int o = SYS(open("f", O_PATH));
    CHECK_ERR((long)mmap(0, PAGE, PROT_READ, MAP_PRIVATE, o, 0), EBADF);
}
TEST(munmap_errors) {
    char *p = anon(PAGE);
    CHECK_ERR(munmap(p + 1, PAGE), EINVAL);
    CHECK_ERR(munmap(p, 0), EINVAL);
    CHECK_ERR(munmap(p, -1UL), EINVAL);
    CHECK_ERR(munmap((void *)0xffffffffffff0000, PAGE), EINVAL);
    OK(munmap(p, PAGE));
    OK(munmap(p, PAGE)); // nothing there is no error
}
TEST(munmap_in_the_middle) {
    char *p = anon(5 * PAGE);
    OK(munmap(p + 2 * PAGE, PAGE));
    OK(touch(p + PAGE, true));
    CHECK_EQ(touch(p + 2 * PAGE, false), SIGSEGV);
    OK(touch(p + 3 * PAGE, true));
    char *q = SYS(mmap(p + 2 * PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    CHECK(q == p + 2 * PAGE);
    OK(touch(q, true));
}
TEST(mmap_fixed_replaces) {
    char *p = anon(4 * PAGE);
    memset(p, 'a', 4 * PAGE);
    SYS(mmap(p + PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0));
    CHECK_EQ(p[0], 'a');
    CHECK_EQ(p[PAGE], 0);
    CHECK_EQ(p[2 * PAGE], 0);
    CHECK_EQ(p[3 * PAGE], 'a');
}
TEST(mmap_fixed_noreplace) {
    char *p = anon(3 * PAGE);
    CHECK_ERR((long)mmap(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    SYS(munmap(p + PAGE, PAGE));
    CHECK_ERR((long)mmap(p + PAGE, 2 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    CHECK(mmap(p + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + PAGE);
}
TEST(mmap_hint_is_honoured_when_free) {
    char *p = anon(PAGE);
    SYS(munmap(p, PAGE));
    CHECK(mmap(p, PAGE, RW, ANON, -1, 0) == p);
    char *q = SYS(mmap(p, PAGE, RW, ANON, -1, 0)); // taken: goes elsewhere
    CHECK(q != p);
}
TEST(mmap_32bit) {
    char *p = SYS(mmap(0, PAGE, RW, ANON | MAP_32BIT, -1, 0));
    CHECK((uintptr_t)p < 0x80000000);
    *p = 1;
}
TEST(mmap_min_addr) {
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR((long)mmap(0, PAGE, RW, ANON | MAP_FIXED, -1, 0), EPERM));
}
TEST(mmap_huge_reservation) {
    // runtimes reserve a great deal and touch little of it
    char *p = SYS(mmap(0, 64UL << 30, PROT_NONE, ANON | MAP_NORESERVE, -1, 0));
    SYS(mprotect(p + (32UL << 30), 1 << 20, RW));
    p[32UL << 30] = 1;
    OK(munmap(p, 64UL << 30));
}
TEST(mmap_private_file_does_not_write_back) {
    int fd = t_file("f", "hello world");
    char *p = SYS(mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0));
    memcpy(p, "HELLO", 5);
    char b[12] = "";
    CHECK_EQ(pread(fd, b, 11, 0), 11);
    CHECK_STR(b, "hello world");
    CHECK_MEM(p, "HELLO world", 11);
    CHECK_EQ(p[11], 0);
}
TEST(mmap_private_untouched_sees_file_writes) {
    int fd = t_file("f", "one");
    char *p = SYS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    CHECK_MEM(p, "one", 3);
    CHECK_EQ(pwrite(fd, "two", 3, 0), 3);
    CHECK_MEM(p, "two", 3);
}
TEST(mmap_shared_file_both_ways) {
    int fd = t_file("f", "0123456789");
    char *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0)), b[16] = "";
    memcpy(p + 2, "AB", 2);
    CHECK_EQ(pread(fd, b, 10, 0), 10);
    CHECK_STR(b, "01AB456789");
    CHECK_EQ(pwrite(fd, "xyz", 3, 5), 3);
    CHECK_MEM(p, "01AB4xyz89", 10);
    OK(msync(p, PAGE, MS_SYNC));
    close(fd);
    OK(munmap(p, PAGE));
    t_slurp("f", b, sizeof b);
    CHECK_STR(b, "01AB4xyz89");
}
TEST(mmap_shared_survives_close_and_unlink) {
    int fd = t_file("f", "data");
    char *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0));
    close(fd);
    SYS(unlink("f"));
    CHECK_MEM(p, "data", 4);
    p[0] = 'D';
    CHECK_EQ(p[0], 'D');
}
TEST(mmap_shared_two_mappings_agree) {
    int fd = t_file("f", "");
    SYS(ftruncate(fd, 2 * PAGE));
    char *a = SYS(mmap(0, 2 * PAGE, RW, MAP_SHARED, fd, 0)), *b = SYS(mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, PAGE));
    a[PAGE + 5] = 'q';
    CHECK_EQ(b[5], 'q');
}
TEST(mmap_shared_between_processes) {
    int fd = t_file("f", "");
    SYS(ftruncate(fd, PAGE));
    volatile int *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0));
    CHECK_CHILD(p[0] = 42);
    CHECK_EQ(p[0], 42);
    CHECK_CHILD(int g = SYS(open("f", O_RDWR)); volatile int *q = SYS(mmap(0, PAGE, RW, MAP_SHARED, g, 0)); CHECK_EQ(q[0], 42); q[1] = 43);
    CHECK_EQ(p[1], 43);
}
TEST(mmap_shared_anonymous_between_processes) {
    volatile int *p = SYS(mmap(0, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    CHECK_CHILD(p[3] = 7; CHECK_CHILD(p[4] = 8));
    CHECK_EQ(p[3], 7);
    CHECK_EQ(p[4], 8);
}
TEST(mmap_offset_and_partial_page) {
    int fd = t_file("f", "");
    for (int i = 0; i < 3; i++) {
        char b[PAGE];
        memset(b, 'a' + i, PAGE);
        CHECK_EQ(write(fd, b, i == 2 ? 100 : PAGE), i == 2 ? 100 : PAGE);
    }
    char *p = SYS(mmap(0, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE));
    CHECK_EQ(p[0], 'b');
    CHECK_EQ(p[PAGE + 99], 'c');
    CHECK_EQ(p[PAGE + 100], 0);
    CHECK_EQ(touch(p + 2 * PAGE - 1, false), 0);
}
TEST(mmap_beyond_eof_is_sigbus) {
    int fd = t_file("f", "x");
    char *p = SYS(mmap(0, 3 * PAGE, RW, MAP_SHARED, fd, 0));
    OK(touch(p + PAGE - 1, true));
    CHECK_EQ(touch(p + PAGE, false), SIGBUS);
    CHECK_EQ(touch(p + 2 * PAGE, true), SIGBUS);
    SYS(ftruncate(fd, 2 * PAGE));
    OK(touch(p + PAGE, true));
    CHECK_EQ(touch(p + 2 * PAGE, true), SIGBUS);
    p[PAGE] = 'z';
    SYS(ftruncate(fd, PAGE));
    CHECK_EQ(touch(p + PAGE, false), SIGBUS);
    SYS(ftruncate(fd, 2 * PAGE));
    CHECK_EQ(p[PAGE], 0);
}
TEST(mmap_private_beyond_eof_is_sigbus) {
    int fd = t_file("f", "");
    char *p = SYS(mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0));
    CHECK_EQ(touch(p, false), SIGBUS);
    CHECK_EQ(touch(p, true), SIGBUS);
}
TEST(mmap_write_beyond_eof_in_last_page_is_not_kept) {
    int fd = t_file("f", "abc");
    char *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0)), b[16] = "";
    p[3] = 'X';
    struct stat st;
    SYS(fstat(fd, &st));
    CHECK_EQ(st.st_size, 3);
    CHECK_EQ(pread(fd, b, 16, 0), 3);
}
TEST(mmap_truncate_zeroes_tail) {
    int fd = t_file("f", "abcdefgh");
    char *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0));
    SYS(ftruncate(fd, 3));
    CHECK_EQ(p[2], 'c');
    CHECK_EQ(p[3], 0);
    SYS(ftruncate(fd, 8));
    CHECK_EQ(p[5], 0);
}
TEST(syscall_on_bad_mapping_is_efault) {
    int fd = t_file("f", "x"), z = SYS(open("/dev/zero", O_RDONLY));
    char *p = SYS(mmap(0, 3 * PAGE, RW, MAP_SHARED, fd, 0)), *n = SYS(mmap(0, PAGE, PROT_NONE, ANON, -1, 0)), *r = SYS(mmap(0, PAGE, PROT_READ, ANON, -1, 0));
    CHECK_ERR(read(z, p + PAGE, 10), EFAULT);
    CHECK_ERR(write(fd, p + PAGE, 10), EFAULT);
    CHECK_ERR(read(z, n, 10), EFAULT);
    CHECK_ERR(read(z, r, 10), EFAULT);
    OK(read(z, p, 10) - 10);
}
TEST(syscall_partly_bad_buffer) {
    int p[2];
    SYS(pipe(p));
    char *m = anon(2 * PAGE);
    SYS(munmap(m + PAGE, PAGE));
    memset(m, 'a', PAGE);
    CHECK_EQ(write(p[1], "0123456789", 10), 10);
    // reading across into the hole: Linux gives what it could
    int n = read(p[0], m + PAGE - 4, 10);
    CHECK(n == 4 || (n == -1 && errno == EFAULT));
    int fd = t_file("f", "0123456789");
    CHECK_EQ(pread(fd, m + PAGE - 4, 10, 0), 4);
    CHECK_MEM(m + PAGE - 4, "0123", 4);
    CHECK_EQ(pwrite(fd, m + PAGE - 4, 10, 0), 4);
}
TEST(mprotect_semantics) {
    char *p = anon(4 * PAGE);
    memset(p, 1, 4 * PAGE);
    OK(mprotect(p + PAGE, PAGE, PROT_READ));
    OK(touch(p + PAGE, false));
    CHECK_EQ(touch(p + PAGE, true), SIGSEGV);
    OK(mprotect(p + PAGE, PAGE, PROT_NONE));
    CHECK_EQ(touch(p + PAGE, false), SIGSEGV);
    OK(touch(p, true));
    OK(touch(p + 2 * PAGE, true));
    OK(mprotect(p, 4 * PAGE, RW));
    CHECK_EQ(p[PAGE], 1);
    OK(touch(p + PAGE, true));
}
TEST(mprotect_errors) {
    char *p = anon(2 * PAGE);
    CHECK_ERR(mprotect(p + 1, PAGE, RW), EINVAL);
    OK(mprotect(p, 0, RW));
    SYS(munmap(p + PAGE, PAGE));
    CHECK_ERR(mprotect(p, 2 * PAGE, PROT_READ), ENOMEM);
    CHECK_EQ(touch(p, true), SIGSEGV); // the part before the hole was done
    CHECK_ERR(mprotect(p, PAGE, 0x100), EINVAL);
    int ro = SYS(open(t_self, O_RDONLY));
    char *s = SYS(mmap(0, PAGE, PROT_READ, MAP_SHARED, ro, 0));
    CHECK_ERR(mprotect(s, PAGE, RW), EACCES);
    char *v = SYS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, ro, 0));
    OK(mprotect(v, PAGE, RW));
    CHECK_ERR(mprotect(p, PAGE, PROT_READ | PROT_GROWSDOWN), EINVAL);
}
TEST(mprotect_exec_runs_code) {
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3}; // mov $42,%eax; ret
    char *p = anon(PAGE);
    memcpy(p, code, sizeof code);
    OK(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
    CHECK_EQ(((int (*)(void))p)(), 42);
    OK(mprotect(p, PAGE, RW));
    p[1] = 43;
    OK(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
    CHECK_EQ(((int (*)(void))p)(), 43);
}
TEST(jit_code_may_make_system_calls) {
    // mov $getpid,%eax; syscall; ret - made at run time, changed and run again
    unsigned char code[] = {0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3};
    unsigned char *p = SYS(mmap(0, PAGE, RW | PROT_EXEC, ANON, -1, 0));
    for (int i = 0; i < 20; i++) {
        code[1] = i & 1 ? SYS_getppid : SYS_getpgrp;
        memcpy(p, code, sizeof code);
        for (int k = 0; k < 10; k++) CHECK_EQ(((int (*)(void))p)(), i & 1 ? getppid() : getpgrp());
    }
    // a call site that straddles two pages
    unsigned char *q = SYS(mmap(0, 2 * PAGE, RW | PROT_EXEC, ANON, -1, 0));
    memcpy(q + PAGE - 6, code, sizeof code);
    for (int k = 0; k < 10; k++) CHECK_EQ(((int (*)(void))(q + PAGE - 6))(), getppid());
    // unmapped and mapped anew at the same place with other code
    SYS(mmap(p, PAGE, RW | PROT_EXEC, ANON | MAP_FIXED, -1, 0));
    memset(p, 0x90, 64);
    p[64] = 0xb8, p[65] = 99, p[66] = p[67] = p[68] = 0, p[69] = 0xc3;
    CHECK_EQ(((int (*)(void))p)(), 99);
}
TEST(mremap_grow_and_shrink) {
    char *p = anon(2 * PAGE);
    memset(p, 'm', 2 * PAGE);
    char *q = SYS(mremap(p, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE));
    CHECK_EQ(q[0], 'm');
    CHECK_EQ(q[2 * PAGE - 1], 'm');
    CHECK_EQ(q[2 * PAGE], 0);
    if (q != p) CHECK_EQ(touch(p, false), SIGSEGV);
    CHECK(mremap(q, 64 * PAGE, PAGE, 0) == q);
    CHECK_EQ(touch(q + PAGE, false), SIGSEGV);
}
TEST(mremap_in_place) {
    char *p = anon(8 * PAGE);
    SYS(munmap(p + PAGE, 7 * PAGE));
    CHECK(mremap(p, PAGE, 4 * PAGE, 0) == p);
    p[3 * PAGE] = 1;
    SYS(mmap(p + 4 * PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    // the neighbour is in the way (unless the two merged into one mapping, in which there is nothing to grow into either)
    CHECK_ERR((long)mremap(p, 4 * PAGE, 6 * PAGE, 0), ENOMEM);
}
TEST(mremap_fixed) {
    char *p = anon(PAGE), *to = anon(PAGE);
    p[0] = 'x';
    to[0] = 'y';
    CHECK(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK_EQ(to[0], 'x');
    CHECK_EQ(touch(p, false), SIGSEGV);
    CHECK_ERR((long)mremap(to, PAGE, PAGE, MREMAP_FIXED, p), EINVAL);
    CHECK_ERR((long)mremap(to, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to), EINVAL);
    CHECK_ERR((long)mremap(to, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 1), EINVAL);
}
TEST(mremap_errors) {
    char *p = anon(2 * PAGE);
    CHECK_ERR((long)mremap(p + 1, PAGE, PAGE, 0), EINVAL);
    CHECK_ERR((long)mremap(p, PAGE, 0, 0), EINVAL);
    CHECK_ERR((long)mremap(p, PAGE, PAGE, 0x100), EINVAL);
    SYS(munmap(p + PAGE, PAGE));
    CHECK_ERR((long)mremap(p + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
    CHECK_ERR((long)mremap(p, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE), EFAULT);
}
TEST(mremap_shared_file) {
    int fd = t_file("f", "");
    SYS(ftruncate(fd, 4 * PAGE));
    char *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0));
    p = SYS(mremap(p, PAGE, 4 * PAGE, MREMAP_MAYMOVE));
    p[3 * PAGE] = 'Z';
    char c;
    CHECK_EQ(pread(fd, &c, 1, 3 * PAGE), 1);
    CHECK_EQ(c, 'Z');
    // old size zero duplicates a shared mapping
    char *q = SYS(mremap(p, 0, PAGE, MREMAP_MAYMOVE));
    CHECK(q != p);
    q[1] = 'd';
    CHECK_EQ(p[1], 'd');
}
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
TEST(mremap_dontunmap) {
    char *p = anon(PAGE);
    p[0] = 5;
    char *q = SYS(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
    CHECK(q != p);
    CHECK_EQ(q[0], 5);
    CHECK_EQ(p[0], 0);
}
TEST(madvise_dontneed) {
    char *p = anon(4 * PAGE);
    memset(p, 1, 4 * PAGE);
    OK(madvise(p + PAGE, PAGE, MADV_DONTNEED));
    CHECK_EQ(p[0], 1);
    CHECK_EQ(p[PAGE], 0);
    CHECK_EQ(p[2 * PAGE], 1);
    int fd = t_file("f", "file");
    char *f = SYS(mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0));
    f[0] = 'X';
    OK(madvise(f, PAGE, MADV_DONTNEED));
    CHECK_EQ(f[0], 'f'); // back to the file's
}
TEST(madvise_other_advice) {
    char *p = anon(4 * PAGE);
    memset(p, 1, 4 * PAGE);
    OK(madvise(p, PAGE, MADV_NORMAL));
    OK(madvise(p, PAGE, MADV_RANDOM));
    OK(madvise(p, PAGE, MADV_SEQUENTIAL));
    OK(madvise(p, PAGE, MADV_WILLNEED));
    OK(madvise(p, PAGE, MADV_FREE));
    OK(madvise(p, PAGE, MADV_DONTFORK));
    OK(madvise(p, PAGE, MADV_DOFORK));
    OK(madvise(p, PAGE, MADV_DONTDUMP));
    OK(madvise(p, PAGE, MADV_DODUMP));
    CHECK_ERR(madvise(p, PAGE, 12345), EINVAL);
    CHECK_ERR(madvise(p + 1, PAGE, MADV_NORMAL), EINVAL);
    OK(madvise(p, 0, MADV_NORMAL));
    SYS(munmap(p + PAGE, PAGE));
    CHECK_ERR(madvise(p, 3 * PAGE, MADV_DONTNEED), ENOMEM);
    CHECK_EQ(p[2 * PAGE], 0); // what could be done was
}
TEST(madvise_dontfork_and_wipeonfork) {
    char *p = anon(2 * PAGE);
    memset(p, 7, 2 * PAGE);
    OK(madvise(p, PAGE, MADV_DONTFORK));
    OK(madvise(p + PAGE, PAGE, MADV_WIPEONFORK));
    CHECK_CHILD(CHECK_EQ(touch(p, false), SIGSEGV); CHECK_EQ(p[PAGE], 0));
    CHECK_EQ(p[0], 7);
    CHECK_EQ(p[PAGE], 7);
}
TEST(madvise_remove_punches_hole) {
    int fd = SYS(memfd_create("m", 0));
    SYS(ftruncate(fd, 2 * PAGE));
    char *p = SYS(mmap(0, 2 * PAGE, RW, MAP_SHARED, fd, 0));
    memset(p, 3, 2 * PAGE);
    OK(madvise(p, PAGE, MADV_REMOVE));
    char c = 9;
    CHECK_EQ(pread(fd, &c, 1, 10), 1);
    CHECK_EQ(c, 0);
    CHECK_EQ(p[PAGE], 3);
}
TEST(msync_errors) {
    char *p = anon(2 * PAGE);
    OK(msync(p, PAGE, MS_SYNC));
    OK(msync(p, PAGE, MS_ASYNC));
    OK(msync(p, PAGE, MS_INVALIDATE));
    CHECK_ERR(msync(p, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    CHECK_ERR(msync(p, PAGE, 0x100), EINVAL);
    CHECK_ERR(msync(p + 1, PAGE, MS_SYNC), EINVAL);
    SYS(munmap(p + PAGE, PAGE));
    CHECK_ERR(msync(p, 2 * PAGE, MS_SYNC), ENOMEM);
}
TEST(mincore_says_what_is_there) {
    char *p = anon(4 * PAGE);
    p[0] = 1;
    unsigned char v[4] = {9, 9, 9, 9};
    OK(mincore(p, 4 * PAGE, v));
    CHECK_EQ(v[0] & 1, 1);
    CHECK_ERR(mincore(p + 1, PAGE, v), EINVAL);
    CHECK_ERR(mincore(p, PAGE, BAD_PTR), EFAULT);
    SYS(munmap(p + 3 * PAGE, PAGE));
    CHECK_ERR(mincore(p, 4 * PAGE, v), ENOMEM);
}
TEST(brk_grows_and_shrinks) {
    char *b = SYS((char *)sbrk(0));
    CHECK_EQ(syscall(SYS_brk, b + 10 * PAGE), b + 10 * PAGE);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(b[i * PAGE], 0);
        b[i * PAGE] = 1;
    }
    CHECK_EQ(syscall(SYS_brk, b + PAGE), b + PAGE);
    CHECK_EQ(touch((char *)(((uintptr_t)b + 3 * PAGE) & ~4095UL), false), SIGSEGV);
    CHECK_EQ(syscall(SYS_brk, b + 10 * PAGE), b + 10 * PAGE);
    CHECK_EQ(b[5 * PAGE], 0); // fresh again
    CHECK_EQ(syscall(SYS_brk, 0), b + 10 * PAGE);
    CHECK_EQ(syscall(SYS_brk, 1), b + 10 * PAGE);
    CHECK_EQ(syscall(SYS_brk, 1UL << 50), b + 10 * PAGE);
}
TEST(brk_respects_data_limit) {
    CHECK_CHILD(struct rlimit r = {1 << 20, 1 << 20}; SYS(setrlimit(RLIMIT_DATA, &r)); char *b = sbrk(0);
                CHECK_EQ(syscall(SYS_brk, b + (8 << 20)), b));
}
TEST(rlimit_as) {
    CHECK_CHILD(struct rlimit r = {64 << 20, 64 << 20}; SYS(setrlimit(RLIMIT_AS, &r));
                CHECK_ERR((long)mmap(0, 128 << 20, RW, ANON, -1, 0), ENOMEM);
                void *p = SYS(mmap(0, 8 << 20, RW, ANON, -1, 0)); CHECK_ERR((long)mremap(p, 8 << 20, 128 << 20, MREMAP_MAYMOVE), ENOMEM);
                CHECK(malloc(100 << 20) == 0));
}
TEST(mlock_family) {
    char *p = anon(4 * PAGE);
    OK(mlock(p, PAGE));
    OK(mlock(p + 10, PAGE));
    OK(munlock(p, 4 * PAGE));
    OK(mlock2(p, PAGE, MLOCK_ONFAULT));
    CHECK_ERR(mlock2(p, PAGE, 0x10), EINVAL);
    SYS(munmap(p + PAGE, PAGE));
    CHECK_ERR(mlock(p, 3 * PAGE), ENOMEM);
    CHECK_ERR(mlockall(0), EINVAL);
    CHECK_ERR(mlockall(0x100), EINVAL);
    CHECK_ERR(mlockall(MCL_ONFAULT), EINVAL);
    OK(munlockall());
    CHECK_CHILD(struct rlimit r = {0, 0}; SYS(setrlimit(RLIMIT_MEMLOCK, &r)); SYS(setuid(1000)); CHECK_ERR(mlock(p, PAGE), EPERM));
    CHECK_CHILD(struct rlimit r = {PAGE, PAGE}; SYS(setrlimit(RLIMIT_MEMLOCK, &r)); SYS(setuid(1000)); CHECK_ERR(mlock(p + 2 * PAGE, 2 * PAGE), ENOMEM);
                OK(mlock(p, PAGE)));
}
TEST(map_growsdown_and_stack_flags) {
    char *p = SYS(mmap(0, 16 * PAGE, RW, ANON | MAP_STACK | MAP_NORESERVE, -1, 0));
    p[0] = 1;
    char *z = SYS(mmap(0, 4 * PAGE, RW, ANON | MAP_POPULATE, -1, 0));
    CHECK_EQ(z[3 * PAGE], 0);
    char *l = SYS(mmap(0, PAGE, RW, ANON | MAP_LOCKED, -1, 0));
    l[0] = 1;
}
TEST(main_stack_grows) {
    struct rlimit r;
    SYS(getrlimit(RLIMIT_STACK, &r));
    CHECK_EQ(r.rlim_cur, 8 << 20);
    CHECK_CHILD(char *a = __builtin_alloca(6 << 20); memset(a, 1, 6 << 20); CHECK_EQ(a[12345], 1));
}
TEST(dev_zero_mapping) {
    int z = SYS(open("/dev/zero", O_RDWR));
    char *p = SYS(mmap(0, PAGE, RW, MAP_PRIVATE, z, 0));
    CHECK_EQ(p[0], 0);
    p[0] = 1;
    char *s = SYS(mmap(0, PAGE, RW, MAP_SHARED, z, 0));
    CHECK_CHILD(s[0] = 9);
    CHECK_EQ(s[0], 9);
    int n = SYS(open("/dev/null", O_RDWR));
    CHECK_ERR((long)mmap(0, PAGE, RW, MAP_PRIVATE, n, 0), ENODEV);
}
TEST(process_vm_readv_writev) {
    char *p = anon(2 * PAGE);
    strcpy(p, "from the other side");
    struct t_gate g = t_gate(), done = t_gate();
    pid_t c = FORK();
    if (c == 0) {
        strcpy(p, "the child's own");
        t_open(g);
        t_pass(done);
        CHECK_STR(p, "rewritten");
        _exit(0);
    }
    t_pass(g);
    char b[64] = "";
    struct iovec l = {b, 16}, r = {p, 16};
    CHECK_EQ(process_vm_readv(c, &l, 1, &r, 1, 0), 16);
    CHECK_STR(b, "the child's own");
    l = (struct iovec){"rewritten", 10}, r.iov_len = 10;
    CHECK_EQ(process_vm_writev(c, &l, 1, &r, 1, 0), 10);
    CHECK_ERR(process_vm_readv(c, &l, 1, &r, 1, 1), EINVAL);
    CHECK_ERR(process_vm_readv(1 << 22, &l, 1, &r, 1, 0), ESRCH);
    r.iov_base = BAD_PTR;
    CHECK_ERR(process_vm_readv(c, &l, 1, &r, 1, 0), EFAULT);
    t_open(done);
    CHECK_STATUS(t_status(c), "exit 0");
}
TEST(fork_private_file_mapping) {
    int fd = t_file("f", "base");
    char *p = SYS(mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0));
    p[0] = 'P';
    CHECK_CHILD(CHECK_MEM(p, "Pase", 4); p[1] = 'C');
    CHECK_MEM(p, "Pase", 4);
}
TEST(many_mappings) {
    // alternate protections, so that nothing merges: 2000 mappings
    char *p = anon(2000 * PAGE);
    for (int i = 0; i < 2000; i += 2) SYS(mprotect(p + i * PAGE, PAGE, PROT_READ));
    for (int i = 1; i < 2000; i += 2) p[i * PAGE] = 1;
    CHECK_EQ(touch(p + 998 * PAGE, true), SIGSEGV);
    CHECK_CHILD(CHECK_EQ(touch(p + 998 * PAGE, true), SIGSEGV); CHECK_EQ(touch(p + 999 * PAGE, true), 0));
    OK(munmap(p, 2000 * PAGE));
    CHECK_EQ(touch(p + 999 * PAGE, false), SIGSEGV);
}
static void *churn(void *a) {
    for (int i = 0; i < 300; i++) {
        char *p = mmap(0, 8 * PAGE, RW, ANON, -1, 0);
        if (p == MAP_FAILED) {
            CHECK(!"mmap failed");
            break;
        }
        memset(p, i, 8 * PAGE);
        mprotect(p, PAGE, PROT_READ);
        if (p[PAGE] != (char)i) CHECK(!"wrong byte");
        munmap(p, 8 * PAGE);
    }
    return 0;
}
TEST(threads_mapping_at_once) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, churn, 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
}
TEST(file_growth_under_shared_mapping) {
    int fd = t_file("f", "");
    SYS(ftruncate(fd, PAGE));
    char *p = SYS(mmap(0, 256 * PAGE, RW, MAP_SHARED, fd, 0));
    for (int i = 1; i < 256; i *= 2) {
        SYS(ftruncate(fd, (i + 1) * PAGE));
        p[i * PAGE] = i;
        char c = 0;
        CHECK_EQ(pread(fd, &c, 1, i * PAGE), 1);
        CHECK_EQ((unsigned char)c, i);
    }
    char *big = malloc(1 << 20);
    memset(big, 'g', 1 << 20);
    CHECK_EQ(pwrite(fd, big, 1 << 20, 0), 1 << 20);
    CHECK_EQ(p[255 * PAGE + 77], 'g');
}
TEST(read_into_mapping_of_same_file) {
    int fd = t_file("f", "abcdefgh");
    char *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0));
    CHECK_EQ(pread(fd, p + 4, 4, 0), 4);
    CHECK_MEM(p, "abcdabcd", 8);
    CHECK_EQ(pwrite(fd, p, 2, 6), 2);
    CHECK_MEM(p, "abcdabab", 8);
}
TEST(mmap_write_updates_after_rename) {
    int fd = t_file("f", "1234");
    char *p = SYS(mmap(0, PAGE, RW, MAP_SHARED, fd, 0)), b[8];
    SYS(rename("f", "g"));
    p[0] = 'R';
    t_slurp("g", b, sizeof b);
    CHECK_STR(b, "R234");
}
TEST(exec_mapping_of_file) {
    static const unsigned char code[] = {0xb8, 7, 0, 0, 0, 0xc3};
    int fd = SYS(open("code", O_CREAT | O_RDWR, 0755));
    CHECK_EQ(write(fd, code, sizeof code), sizeof code);
    int (*f)(void) = (int (*)(void))SYS(mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
    CHECK_EQ(f(), 7);
}
TEST(pkeys_absent_or_working) {
    long k = syscall(SYS_pkey_alloc, 0, 0);
    if (k < 0) {
        CHECK(errno == ENOSPC || errno == ENOSYS || errno == EINVAL);
        return;
    }
    OK(syscall(SYS_pkey_free, k));
}
TEST(remap_file_pages_or_not) {
    int fd = t_file("f", "");
    SYS(ftruncate(fd, 2 * PAGE));
    CHECK_EQ(pwrite(fd, "second", 6, PAGE), 6);
    char *p = SYS(mmap(0, 2 * PAGE, RW, MAP_SHARED, fd, 0));
    CHECK_ERR(syscall(SYS_remap_file_pages, p, PAGE, 1, 0, 0), EINVAL);
}
// As ld.so does it: the same file several times, and then no more.
TEST(file_mapped_piece_by_piece) {
    char name[] = "/tmp/pieces.XXXXXX";
    for (int round = 0; round < 20; round++) {
        int fd = SYS(mkstemp(name));
        for (int i = 0; i < 4; i++) {
            char page[4096];
            memset(page, 'a' + i, sizeof page);
            CHECK_EQ(write(fd, page, sizeof page), 4096);
        }
        char *p = mmap(0, 4 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(p != MAP_FAILED);
        CHECK(mmap(p + 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 3 * 4096) != MAP_FAILED);
        // A child maps on its own and closes its own.
        CHECK_STATUS(CHILD(char *q = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 4096); close(fd);
                           char *r = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(name, O_RDONLY), 8192); _exit(*q == 'b' && *r == 'c' ? 0 : 1)), "exit 0");
        int other = SYS(open(name, O_RDWR));
        CHECK(mmap(p + 2 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, other, 0) != MAP_FAILED);
        CHECK(mmap(p + 3 * 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 2 * 4096) != MAP_FAILED);
        CHECK(p[0] == 'a' && p[4096] == 'd' && p[2 * 4096] == 'a' && p[3 * 4096] == 'c');
        SYS(dup2(other, fd));
        close(fd);
        close(other);
        CHECK(mmap(p, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
        OK(munmap(p, 4 * 4096));
        SYS(unlink(name));
        strcpy(name, "/tmp/pieces.XXXXXX");
    }
}
TEST(munmap_of_everything) {
    // Nothing is left to return to.
    CHECK_STATUS(CHILD(munmap(0, 0x7ffffffff000)), "signal 11");
    CHECK_ERR(munmap(0, 0x800000000000), EINVAL);
    CHECK_ERR(munmap((void *)0x7fffffffe000, 0x2000), EINVAL);
}

static bool there(void *p) {
    unsigned char v;
    return mincore(p, PAGE, &v) == 0;
}
TEST(dont_fork) {
    char *p = SYS(mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(madvise(p + PAGE, PAGE, MADV_DONTFORK));
    memset(p, 1, 3 * PAGE);
    CHECK_CHILD({
        CHECK(there(p) && !there(p + PAGE) && there(p + 2 * PAGE));
        void *n = mmap(p + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(n == p + PAGE);
        CHECK_CHILD(CHECK(there(p + PAGE)));
    });
    CHECK_EQ(p[PAGE], 1);
    OK(madvise(p + PAGE, PAGE, MADV_DOFORK));
    CHECK_CHILD(CHECK(there(p + PAGE) && p[PAGE] == 1));
    char *s = SYS(mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    OK(madvise(s, PAGE, MADV_DONTFORK));
    CHECK_CHILD(CHECK(!there(s)));
}
TEST(mremap_shrinks_over_several_mappings) {
    char *p = SYS(mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mprotect(p + 4 * PAGE, 4 * PAGE, PROT_READ));
    CHECK(mremap(p, 8 * PAGE, 2 * PAGE, 0) == p);
    CHECK(there(p + PAGE) && !there(p + 2 * PAGE) && !there(p + 7 * PAGE) && there(p + 8 * PAGE));
    p = SYS(mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(munmap(p + 4 * PAGE, PAGE));
    CHECK(mremap(p, 8 * PAGE, 2 * PAGE, 0) == p);
    CHECK(there(p + PAGE) && !there(p + 2 * PAGE));
    OK(mprotect(p, PAGE, PROT_READ));
    CHECK(mremap(p, 2 * PAGE, 2 * PAGE, 0) == p);
    CHECK_ERR(mremap(p, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE), EFAULT);
    CHECK(mremap(p, 2 * PAGE, PAGE, MREMAP_MAYMOVE) == p);
}
TEST(mlock_without_access) {
    char *p = SYS(mmap(0, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK_ERR(mlock(p, PAGE), ENOMEM);
    OK(munlock(p, PAGE));
    OK(mlock2(p, PAGE, MLOCK_ONFAULT));
    char *q = SYS(mmap(0, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mprotect(q + PAGE, PAGE, PROT_NONE));
    CHECK_ERR(mlock(q, 3 * PAGE), ENOMEM);
}
TEST(locked_mappings_are_limited) {
    if (getuid()) SKIP("needs root");
    CHECK_CHILD({
        struct rlimit l = {4 * PAGE, 4 * PAGE};
        SYS(setrlimit(RLIMIT_MEMLOCK, &l));
        SYS(setuid(1000));
        int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS, locked = anon | MAP_LOCKED;
        char *f = SYS(mmap(0, PAGE, rw, anon, -1, 0));
        CHECK_ERR((long)mmap(0, 5 * PAGE, rw, locked, -1, 0), EAGAIN);
        char *a = SYS(mmap(0, 4 * PAGE, rw, locked, -1, 0));
        CHECK_ERR((long)mmap(0, PAGE, rw, locked, -1, 0), EAGAIN);
        OK(mlock(a, PAGE)); // again
        CHECK_ERR(mlock(f, PAGE), ENOMEM);
        OK(munmap(a, 4 * PAGE));
        OK(mlockall(MCL_FUTURE));
        CHECK_ERR((long)mmap(0, 5 * PAGE, rw, anon, -1, 0), EAGAIN);
        a = SYS(mmap(0, 3 * PAGE, rw, anon, -1, 0));
        CHECK_ERR((long)mmap(0, 2 * PAGE, rw, anon, -1, 0), EAGAIN);
        CHECK_ERR((long)mremap(a, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE), EAGAIN);
        char *end = (char *)syscall(SYS_brk, 0);
        CHECK_EQ(syscall(SYS_brk, end + 9 * PAGE), (long)end);
        CHECK_CHILD(SYS(mmap(0, 5 * PAGE, rw, anon, -1, 0))); // not inherited
        OK(munlockall());
        SYS(mmap(0, 5 * PAGE, rw, anon, -1, 0));
        l.rlim_cur = 0;
        SYS(setrlimit(RLIMIT_MEMLOCK, &l));
        CHECK_ERR((long)mmap(0, PAGE, rw, locked, -1, 0), EPERM);
        CHECK_ERR(mlock(f, PAGE), EPERM);
        CHECK_ERR(mlock(f, 0), EPERM);
        CHECK_ERR(mlockall(MCL_FUTURE), EPERM);
    });
}
// The last of many mappings side by side is as cheap as the first.
static long long some_mappings(void) {
    long long start = t_now_ms();
    for (int i = 0; i < 5000; i++) SYS(mmap(0, PAGE, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return t_now_ms() - start;
}
TEST(thirty_thousand_mappings) {
    long long first = some_mappings(), last = 0;
    for (int i = 0; i < 5; i++) last = some_mappings();
    CHECK(last < 5 * first + 150);
    char *p = SYS(mmap(0, 30000 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    long long start = t_now_ms();
    for (int i = 0; i < 30000; i += 2) OK(mprotect(p + i * PAGE, PAGE, PROT_NONE));
    CHECK(t_now_ms() - start < 5000);
}
