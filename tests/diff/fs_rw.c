// read, write and their relatives, lseek, truncate, fallocate, fsync.
#include "t.h"
#include <sys/eventfd.h>
#include <sys/epoll.h>
#include <linux/falloc.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

TEST(zeros_that_were_written_take_space) {
    static char zeros[1 << 20];
    struct stat st;
    int f = SYS(open("zeros", O_RDWR | O_CREAT | O_TRUNC, 0644)), g = SYS(open("reserved", O_RDWR | O_CREAT | O_TRUNC, 0644));
    CHECK_EQ(SYS(write(f, zeros, sizeof zeros)), sizeof zeros);
    CHECK_EQ(SYS(write(f, zeros, 4096)), 4096);
    SYS(fsync(f));
    SYS(fstat(f, &st));
    CHECK(st.st_blocks >= 2056);
    SYS(fallocate(g, 0, 0, 1 << 20));
    CHECK_EQ(SYS(pwrite(g, "x", 1, 1 << 20)), 1);
    SYS(fsync(g));
    SYS(fstat(g, &st));
    CHECK(st.st_blocks >= 2056);
    close(f);
    close(g);
    unlink("zeros");
    unlink("reserved");
}
TEST(read_write_offsets) {
    int fd = t_file("f", "");
    CHECK_EQ(write(fd, "hello", 5), 5);
    CHECK_EQ(write(fd, " world", 6), 6);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 11);
    char b[32] = "";
    CHECK_EQ(read(fd, b, 32), 0);
    CHECK_EQ(lseek(fd, 6, SEEK_SET), 6);
    CHECK_EQ(read(fd, b, 3), 3);
    CHECK_EQ(read(fd, b + 3, 29), 2);
    CHECK_STR(b, "world");
    CHECK_EQ(pread(fd, b, 5, 0), 5);
    CHECK_MEM(b, "hello", 5);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 11);
    CHECK_EQ(pwrite(fd, "J", 1, 0), 1);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 11);
    CHECK_EQ(pread(fd, b, 5, 100), 0);
}
TEST(read_write_errors) {
    char b[8];
    int d = SYS(open(".", O_RDONLY)), p[2], fd = t_file("f", "abc");
    SYS(pipe(p));
    CHECK_ERR(read(999, b, 1), EBADF);
    CHECK_ERR(write(999, b, 1), EBADF);
    CHECK_ERR(read(-1, b, 1), EBADF);
    CHECK_ERR(read(d, b, 1), EISDIR);
    CHECK_ERR(write(d, b, 1), EBADF);
    SYS(lseek(fd, 0, SEEK_SET));
    CHECK_ERR(read(fd, BAD_PTR, 1), EFAULT);
    CHECK_ERR(write(fd, BAD_PTR, 1), EFAULT);
    CHECK_ERR(pread(fd, b, 1, -1), EINVAL);
    CHECK_ERR(pwrite(fd, b, 1, -1), EINVAL);
    CHECK_ERR(pread(p[0], b, 1, 0), ESPIPE);
    CHECK_ERR(pwrite(p[1], b, 1, 0), ESPIPE);
    CHECK_EQ(read(fd, b, 0), 0);
    CHECK_EQ(write(fd, b, 0), 0);
    CHECK_ERR(read(fd, (void *)-4096L, 8192), EFAULT);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
}
TEST(write_extends_with_zeroes) {
    int fd = t_file("f", "ab");
    CHECK_EQ(pwrite(fd, "z", 1, 10000), 1);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 10001);
    char b[10001];
    memset(b, 1, sizeof b);
    CHECK_EQ(pread(fd, b, sizeof b, 0), 10001);
    CHECK_EQ(b[1], 'b');
    int sum = 0;
    for (int i = 2; i < 10000; i++) sum |= b[i];
    CHECK_EQ(sum, 0);
    CHECK_EQ(b[10000], 'z');
}
TEST(large_transfers) {
    size_t n = 5 << 20;
    unsigned char *a = malloc(n), *b = malloc(n);
    for (size_t i = 0; i < n; i++) a[i] = i * 2654435761u >> 24;
    int fd = t_file("f", "");
    CHECK_EQ(write(fd, a, n), n);
    CHECK_EQ(pread(fd, b, n, 0), n);
    CHECK_MEM(b, a, n);
    // odd sizes across page and buffer borders
    for (size_t s = 1; s < 300000; s = s * 3 + 7) {
        memset(b, 0, s);
        CHECK_EQ(pread(fd, b + 3, s, s + 1), s);
        CHECK_MEM(b + 3, a + s + 1, s);
        CHECK_EQ(pwrite(fd, a + 5, s, 2 * s), s);
        CHECK_EQ(pread(fd, b, s, 2 * s), s);
        CHECK_MEM(b, a + 5, s);
        CHECK_EQ(pwrite(fd, a + 2 * s, s, 2 * s), s);
    }
}
TEST(readv_writev_gather_scatter) {
    int fd = t_file("f", "");
    struct iovec w[] = {{"one", 3}, {"", 0}, {"two", 3}, {"three", 5}};
    CHECK_EQ(writev(fd, w, 4), 11);
    char a[4] = "", b[16] = "";
    struct iovec r[] = {{a, 2}, {0, 0}, {b, 15}};
    SYS(lseek(fd, 0, SEEK_SET));
    CHECK_EQ(readv(fd, r, 3), 11);
    CHECK_STR(a, "on");
    CHECK_STR(b, "etwothree");
    CHECK_EQ(preadv(fd, r, 3, 6), 5);
    CHECK_MEM(a, "th", 2);
    CHECK_EQ(pwritev(fd, w, 1, 3), 3);
    CHECK_EQ(preadv(fd, r, 3, 0), 11);
    CHECK_MEM(b, "eone", 4);
}
TEST(iovec_errors) {
    int fd = t_file("f", "abc");
    char b[8];
    struct iovec v[2] = {{b, 4}, {b, -1}};
    CHECK_ERR(readv(fd, v, -1), EINVAL);
    CHECK_ERR(readv(fd, v, 1025), EINVAL);
    CHECK_ERR(readv(fd, v, 2), EINVAL);
    CHECK_ERR(readv(fd, BAD_PTR, 1), EFAULT);
    CHECK_EQ(readv(fd, v, 0), 0);
    CHECK_ERR(preadv(fd, v, 1, -1), EINVAL);
    CHECK_ERR(readv(999, v, 1), EBADF);
    v[0].iov_base = BAD_PTR;
    SYS(lseek(fd, 0, SEEK_SET));
    CHECK_ERR(readv(fd, v, 1), EFAULT);
    // a good one before a bad one: the good part counts
    v[0] = (struct iovec){b, 2}, v[1] = (struct iovec){BAD_PTR, 2};
    CHECK_EQ(preadv(fd, v, 2, 0), 2);
    CHECK_EQ(pwritev(fd, v, 2, 0), 2);
}
TEST(iovec_many) {
    int fd = t_file("f", "");
    static char b[1024][3];
    struct iovec v[1024];
    for (int i = 0; i < 1024; i++) {
        memcpy(b[i], "xyz", 3);
        v[i] = (struct iovec){b[i], 3};
    }
    CHECK_EQ(writev(fd, v, 1024), 3072);
    memset(b, 0, sizeof b);
    CHECK_EQ(preadv(fd, v, 1024, 0), 3072);
    CHECK_MEM(b[1023], "xyz", 3);
}
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
TEST(preadv2_pwritev2_flags) {
    int fd = t_file("f", "abcdef");
    char b[8] = "";
    struct iovec v = {b, 3};
    CHECK_EQ(preadv2(fd, &v, 1, 1, 0), 3);
    CHECK_STR(b, "bcd");
    SYS(lseek(fd, 2, SEEK_SET));
    CHECK_EQ(preadv2(fd, &v, 1, -1, 0), 3); // -1: the file's own offset
    CHECK_STR(b, "cde");
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 5);
    CHECK_EQ(pwritev2(fd, &v, 1, 0, RWF_APPEND), 3);
    CHECK_EQ(pread(fd, b, 8, 6), 3);
    CHECK_EQ(pwritev2(fd, &v, 1, 0, RWF_DSYNC | RWF_SYNC), 3);
    CHECK_ERR(preadv2(fd, &v, 1, 0, 0x40000000), EOPNOTSUPP);
    CHECK_EQ(preadv2(fd, &v, 1, 0, RWF_HIPRI), 3);
}
TEST(lseek_forms) {
    int fd = t_file("f", "0123456789"), p[2];
    SYS(pipe(p));
    CHECK_EQ(lseek(fd, 0, SEEK_END), 10);
    CHECK_EQ(lseek(fd, -3, SEEK_END), 7);
    CHECK_EQ(lseek(fd, -2, SEEK_CUR), 5);
    CHECK_EQ(lseek(fd, 100, SEEK_SET), 100);
    CHECK_ERR(lseek(fd, -1, SEEK_SET), EINVAL);
    CHECK_ERR(lseek(fd, -101, SEEK_CUR), EINVAL);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 100);
    CHECK_ERR(lseek(fd, 0, 99), EINVAL);
    CHECK_ERR(lseek(999, 0, SEEK_SET), EBADF);
    CHECK_ERR(lseek(p[0], 0, SEEK_SET), ESPIPE);
    CHECK_ERR(lseek(fd, LLONG_MAX, SEEK_CUR), EINVAL);
}
TEST(lseek_data_and_hole) {
    int fd = t_file("f", "");
    SYS(ftruncate(fd, 1 << 20));
    CHECK_EQ(pwrite(fd, "d", 1, 512 << 10), 1);
    off_t d = lseek(fd, 0, SEEK_DATA);
    CHECK(d == 512 << 10 || d == 0); // a file system may call all of it data
    CHECK_EQ(lseek(fd, d, SEEK_DATA), d);
    off_t h = lseek(fd, 512 << 10, SEEK_HOLE);
    CHECK(h > 512 << 10 && h <= 1 << 20);
    CHECK_ERR(lseek(fd, 1 << 20, SEEK_DATA), ENXIO);
    CHECK_ERR(lseek(fd, 2 << 20, SEEK_HOLE), ENXIO);
    CHECK_ERR(lseek(fd, -1, SEEK_DATA), ENXIO);
    SYS(ftruncate(fd, 100));
    CHECK_EQ(lseek(fd, 99, SEEK_HOLE) >= 99, 1);
}
TEST(truncate_forms) {
    int fd = t_file("f", "hello world");
    struct stat st;
    OK(truncate("f", 5));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 5);
    OK(ftruncate(fd, 8));
    char b[16];
    CHECK_EQ(pread(fd, b, 16, 0), 8);
    CHECK_MEM(b, "hello\0\0\0", 8);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 11);
    CHECK_ERR(ftruncate(fd, -1), EINVAL);
    CHECK_ERR(truncate("f", -1), EINVAL);
    CHECK_ERR(truncate("missing", 0), ENOENT);
    CHECK_ERR(truncate(".", 0), EISDIR);
    CHECK_ERR(truncate("f/x", 0), ENOTDIR);
    CHECK_ERR(truncate(BAD_PTR, 0), EFAULT);
    CHECK_ERR(ftruncate(999, 0), EBADF);
    int p[2];
    SYS(pipe(p));
    CHECK_ERR(ftruncate(p[1], 0), EINVAL);
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(truncate("f", 0), EACCES));
}
TEST(truncate_clears_setuid) {
    int fd = t_file("f", "x");
    SYS(chmod(".", 0777));
    SYS(fchown(fd, 1000, 1000));
    SYS(fchmod(fd, 06755));
    struct stat st;
    CHECK_CHILD(SYS(setgid(1000)); SYS(setuid(1000)); int g = SYS(open("f", O_RDWR)); CHECK_EQ(write(g, "y", 1), 1));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode & 07777, 0755);
}
TEST(fallocate_forms) {
    int fd = t_file("f", "abc"), r = SYS(open("f", O_RDONLY)), p[2];
    struct stat st;
    SYS(pipe(p));
    OK(fallocate(fd, 0, 0, 8192));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 8192);
    CHECK(st.st_blocks >= 16);
    OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 20000));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 8192);
    char b[8];
    CHECK_EQ(pread(fd, b, 4, 0), 4);
    CHECK_MEM(b, "abc\0", 4);
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2));
    CHECK_EQ(pread(fd, b, 3, 0), 3);
    CHECK_MEM(b, "\0\0c", 3);
    CHECK_ERR(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 2), EOPNOTSUPP);
    CHECK_ERR(fallocate(fd, 0, -1, 10), EINVAL);
    CHECK_ERR(fallocate(fd, 0, 0, 0), EINVAL);
    CHECK_ERR(fallocate(fd, 0x1000, 0, 10), EOPNOTSUPP);
    CHECK_ERR(fallocate(r, 0, 0, 10), EBADF);
    CHECK_ERR(fallocate(999, 0, 0, 10), EBADF);
    CHECK_ERR(fallocate(p[1], 0, 0, 10), ESPIPE);
    CHECK_ERR(fallocate(fd, 0, LLONG_MAX, 10), EFBIG);
    OK(posix_fallocate(fd, 0, 100));
}
TEST(fsize_limit) {
    int fd = t_file("f", "");
    struct rlimit r = {1000, 1000};
    CHECK_STATUS(CHILD(SYS(setrlimit(RLIMIT_FSIZE, &r)); (void)!pwrite(fd, "x", 1, 1000)), "signal 25");
    CHECK_CHILD(SYS(setrlimit(RLIMIT_FSIZE, &r)); signal(SIGXFSZ, SIG_IGN); CHECK_ERR(pwrite(fd, "x", 1, 1000), EFBIG);
                static char b[2000]; CHECK_EQ(pwrite(fd, b, 2000, 0), 1000); CHECK_ERR(ftruncate(fd, 1001), EFBIG); OK(ftruncate(fd, 1000));
                CHECK_ERR(fallocate(fd, 0, 0, 2000), EFBIG));
}
TEST(huge_offsets) {
    int fd = t_file("f", "");
    OK(ftruncate(fd, 1L << 40));
    CHECK_EQ(pwrite(fd, "end", 3, (1L << 40) - 3), 3);
    char b[4] = "";
    CHECK_EQ(pread(fd, b, 3, (1L << 40) - 3), 3);
    CHECK_STR(b, "end");
    CHECK_ERR(pwrite(fd, "x", 1, LLONG_MAX), EFBIG == errno ? EFBIG : EINVAL);
}
TEST(sync_family) {
    int fd = t_file("f", "x"), p[2];
    SYS(pipe(p));
    OK(fsync(fd));
    OK(fdatasync(fd));
    sync();
    OK(syncfs(fd));
    OK(sync_file_range(fd, 0, 1, SYNC_FILE_RANGE_WRITE));
    CHECK_ERR(sync_file_range(fd, -1, 1, 0), EINVAL);
    CHECK_ERR(sync_file_range(fd, 0, 1, 0x100), EINVAL);
    CHECK_ERR(sync_file_range(p[0], 0, 1, 0), ESPIPE);
    int null = SYS(open("/dev/null", O_RDONLY));
    CHECK_ERR(sync_file_range(null, 0, 1, 0), ESPIPE);
    CHECK_ERR(fsync(p[0]), EINVAL);
    CHECK_ERR(fsync(999), EBADF);
    CHECK_ERR(fdatasync(999), EBADF);
    CHECK_ERR(syncfs(999), EBADF);
    int d = SYS(open(".", O_RDONLY));
    OK(fsync(d));
}
TEST(fadvise_and_readahead) {
    int fd = t_file("f", "x"), p[2];
    SYS(pipe(p));
    OK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    CHECK_EQ(posix_fadvise(fd, 0, 0, 99), EINVAL);
    CHECK_EQ(posix_fadvise(999, 0, 0, 0), EBADF);
    CHECK_EQ(posix_fadvise(p[0], 0, 0, 0), ESPIPE);
    OK(readahead(fd, 0, 100));
    CHECK_ERR(readahead(999, 0, 1), EBADF);
    CHECK_ERR(readahead(p[0], 0, 1), EINVAL);
}
TEST(sendfile_forms) {
    int in = t_file("in", "0123456789"), out = t_file("out", ""), p[2];
    SYS(pipe(p));
    off_t at = 3;
    CHECK_EQ(sendfile(out, in, &at, 4), 4);
    CHECK_EQ(at, 7);
    CHECK_EQ(lseek(in, 0, SEEK_CUR), 10);
    SYS(lseek(in, 1, SEEK_SET));
    CHECK_EQ(sendfile(p[1], in, 0, 100), 9);
    CHECK_EQ(lseek(in, 0, SEEK_CUR), 10);
    char b[16] = "";
    CHECK_EQ(read(p[0], b, 16), 9);
    CHECK_STR(b, "123456789");
    t_slurp("out", b, sizeof b);
    CHECK_STR(b, "3456");
    CHECK_EQ(sendfile(out, in, 0, 10), 0);
    CHECK_ERR(sendfile(999, in, 0, 1), EBADF);
    CHECK_ERR(sendfile(out, 999, 0, 1), EBADF);
    CHECK_ERR(sendfile(out, p[0], 0, 1), EINVAL);
    at = -1;
    CHECK_ERR(sendfile(out, in, &at, 1), EINVAL);
    CHECK_ERR(sendfile(out, in, BAD_PTR, 1), EFAULT);
    int ro = SYS(open("out", O_RDONLY));
    CHECK_ERR(sendfile(ro, in, 0, 1), EBADF);
    int ap = SYS(open("out", O_WRONLY | O_APPEND));
    CHECK_ERR(sendfile(ap, in, 0, 1), EINVAL);
}
TEST(copy_file_range_forms) {
    int in = t_file("in", "0123456789"), out = t_file("out", "");
    loff_t a = 2, b = 5;
    CHECK_EQ(copy_file_range(in, &a, out, &b, 4, 0), 4);
    CHECK_EQ(a, 6);
    CHECK_EQ(b, 9);
    char buf[16] = "";
    CHECK_EQ(pread(out, buf, 16, 0), 9);
    CHECK_MEM(buf, "\0\0\0\0\0" "2345", 9);
    SYS(lseek(in, 8, SEEK_SET));
    CHECK_EQ(copy_file_range(in, 0, out, 0, 100, 0), 2);
    CHECK_EQ(copy_file_range(in, 0, out, 0, 100, 0), 0);
    CHECK_ERR(copy_file_range(in, 0, out, 0, 1, 1), EINVAL);
    CHECK_ERR(copy_file_range(999, 0, out, 0, 1, 0), EBADF);
    CHECK_ERR(copy_file_range(in, 0, SYS(open("out", O_RDONLY)), 0, 1, 0), EBADF);
    CHECK_ERR(copy_file_range(in, 0, SYS(open("out", O_WRONLY | O_APPEND)), 0, 1, 0), EBADF);
    CHECK_ERR(copy_file_range(SYS(open(".", O_RDONLY)), 0, out, 0, 1, 0), EISDIR);
    int p[2];
    SYS(pipe(p));
    CHECK_ERR(copy_file_range(p[0], 0, out, 0, 1, 0), EINVAL);
    a = 0, b = 3;
    CHECK_ERR(copy_file_range(in, &a, in, &b, 5, 0), EINVAL); // they overlap
}
TEST(splice_forms) {
    int in = t_file("in", "0123456789"), out = t_file("out", ""), p[2], q[2];
    SYS(pipe(p));
    SYS(pipe(q));
    loff_t at = 4;
    CHECK_EQ(splice(in, &at, p[1], 0, 3, 0), 3);
    CHECK_EQ(at, 7);
    CHECK_EQ(splice(p[0], 0, q[1], 0, 2, 0), 2);
    CHECK_EQ(tee(q[0], p[1], 10, 0), 2);
    CHECK_EQ(splice(p[0], 0, out, 0, 100, 0), 3);
    char b[16] = "";
    CHECK_EQ(pread(out, b, 16, 0), 3);
    CHECK_STR(b, "645");
    CHECK_EQ(read(q[0], b, 16), 2);
    CHECK_ERR(splice(p[0], 0, out, 0, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_ERR(splice(in, 0, out, 0, 1, 0), EINVAL);
    CHECK_ERR(splice(p[0], &at, out, 0, 1, 0), ESPIPE);
    CHECK_ERR(splice(in, 0, p[1], 0, 1, 0x100), EINVAL);
    CHECK_ERR(splice(999, 0, p[1], 0, 1, 0), EBADF);
    CHECK_ERR(tee(p[0], p[1], 1, 0), EINVAL);
    CHECK_ERR(tee(in, p[1], 1, 0), EINVAL);
    struct iovec v[2] = {{"vm", 2}, {"splice", 6}};
    CHECK_EQ(vmsplice(p[1], v, 2, 0), 8);
    memset(b, 0, sizeof b);
    CHECK_EQ(read(p[0], b, 16), 8);
    CHECK_STR(b, "vmsplice");
    CHECK_ERR(vmsplice(in, v, 1, 0), EBADF);
}
TEST(atomic_appends) {
    pid_t p[4];
    close(t_file("f", ""));
    for (int i = 0; i < 4; i++)
        if ((p[i] = FORK()) == 0) {
            int fd = SYS(open("f", O_WRONLY | O_APPEND));
            char b[64];
            memset(b, 'a' + i, 63);
            b[63] = '\n';
            for (int k = 0; k < 100; k++) MUST(write(fd, b, 64) == 64);
            _exit(0);
        }
    for (int i = 0; i < 4; i++) CHECK_STATUS(t_status(p[i]), "exit 0");
    static char b[30000];
    CHECK_EQ(t_slurp("f", b, sizeof b), 25600);
    for (int k = 0; k < 400; k++)
        for (int j = 1; j < 63; j++)
            if (b[k * 64 + j] != b[k * 64]) {
                CHECK(!"a line is mixed");
                return;
            }
}
TEST(shared_offset_writes_do_not_overlap) {
    int fd = t_file("f", "");
    pid_t p[4];
    for (int i = 0; i < 4; i++)
        if ((p[i] = FORK()) == 0) {
            for (int k = 0; k < 100; k++) MUST(write(fd, "0123456789", 10) == 10);
            _exit(0);
        }
    for (int i = 0; i < 4; i++) t_status(p[i]);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 4000);
}
TEST(times_follow_io) {
    int fd = t_file("f", "x");
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    struct stat a, b;
    SYS(futimens(fd, old));
    OK(fstat(fd, &a));
    CHECK_EQ(a.st_mtime, 1000);
    CHECK_EQ(write(fd, "y", 1), 1);
    OK(fstat(fd, &b));
    CHECK(b.st_mtime > 1000);
    CHECK(b.st_ctime > 1000);
    SYS(futimens(fd, old));
    SYS(ftruncate(fd, 1));
    OK(fstat(fd, &b));
    CHECK(b.st_mtime > 1000);
}

// Reads of `fd`, which holds `size` bytes of `want`, at many places and lengths.
static void read_everywhere(int fd, const char *want, size_t size) {
    static const size_t lens[] = {1, 7, 63, 64, 511, 512, 1472, 1473, 4095, 4096, 4097, 65535, 65536, 65537, 200000, 300001};
    char *b = malloc(400000);
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
            for (int back = -5; back < 5; back++) {
                size_t len = lens[i], off = back < 0 ? size + 1 + back : (size_t)back * 3001;
                size_t n = off >= size ? 0 : size - off < len ? size - off : len;
                memset(b, 0x55, n + 9);
                CHECK_EQ(pread(fd, b + 1 + round, len, off), n);
                CHECK_MEM(b + 1 + round, want + off, n);
                CHECK_EQ(b[1 + round + n], 0x55);
                CHECK_EQ(b[round], 0x55);
            }
    free(b);
}
TEST(read_everywhere_in_a_new_file) {
    size_t n = 150001;
    char *a = malloc(n);
    for (size_t i = 0; i < n; i++) a[i] = i * 2654435761u >> 13;
    int fd = t_file("f", "");
    CHECK_EQ(write(fd, a, n), n);
    read_everywhere(fd, a, n);
    // with a hole
    memset(a + 40000, 0, 50000);
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 40000, 50000));
    read_everywhere(fd, a, n);
    // while it is mapped
    char *m = mmap(0, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    m[77] = a[77] = 'X';
    read_everywhere(fd, a, n);
}
TEST(read_everywhere_in_the_image) {
    int fd = SYS(open("/proc/self/exe", O_RDONLY));
    struct stat st;
    OK(fstat(fd, &st));
    char *m = mmap(0, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(m != MAP_FAILED);
    for (int i = 0; i < 4; i++) read_everywhere(fd, m, st.st_size);
    char b[64];
    CHECK_EQ(pread(fd, b, 64, st.st_size), 0);
    CHECK_EQ(pread(fd, b, 64, st.st_size + 5000), 0);
    CHECK_EQ(pread(fd, b, 64, 1LL << 50), 0);
    CHECK_ERR(pread(fd, b, 64, INT64_MAX - 10), EINVAL);
    CHECK_EQ(lseek(fd, -3, SEEK_END), st.st_size - 3);
    CHECK_EQ(read(fd, b, 64), 3);
    CHECK_EQ(read(fd, b, 64), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), st.st_size);
}
static void read_into_odd_memory(int fd) {
    long page = 4096;
    char *m = mmap(0, 32 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(m != MAP_FAILED);
    char want[3 * 4096];
    CHECK_EQ(pread(fd, want, sizeof want, 0), sizeof want);
    for (int i = 0; i < 3; i++) {
        char *end = m + 2 * page; // first byte that cannot be written
        if (i == 0) OK(munmap(end, page));
        if (i == 1) CHECK(mmap(end, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == end);
        if (i == 2) OK(mprotect(end, page, PROT_NONE));
        memset(m, 0, 2 * page);
        lseek(fd, 0, SEEK_SET);
        CHECK_EQ(read(fd, end - 100, 100), 100);
        CHECK_MEM(end - 100, want, 100);
        CHECK_EQ(pread(fd, end - 100, 300, 0), 100);
        CHECK_EQ(pread(fd, end - 5000, 8192, 4), 5000);
        CHECK_MEM(end - 5000, want + 4, 5000);
        CHECK_ERR(pread(fd, end, 1, 0), EFAULT);
        CHECK_ERR(pread(fd, end, 4096, 0), EFAULT);
        CHECK_ERR(read(fd, end + 8, 4000), EFAULT);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 100);
        CHECK_EQ(read(fd, end - 10, 4000), 10);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 110);
        CHECK_MEM(end - 10, want + 100, 10);
        // nothing to read: the memory does not matter
        CHECK_EQ(pread(fd, end, 4096, 1 << 30), 0);
        struct iovec v[3] = {{end - 2000, 1000}, {end - 500, 600}, {m, 100}};
        CHECK_EQ(preadv(fd, v, 3, 8), 1500);
        CHECK_MEM(end - 2000, want + 8, 1000);
        CHECK_MEM(end - 500, want + 1008, 500);
        struct iovec w[2] = {{end, 10}, {m, 100}};
        CHECK_ERR(preadv(fd, w, 2, 8), EFAULT);
    }
    // a page of the buffer that is behind the end of the file it maps
    int g = SYS(open("short", O_RDWR | O_CREAT | O_TRUNC, 0600));
    OK(ftruncate(g, 4096));
    char *s = mmap(m, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g, 0);
    CHECK(s == m);
    CHECK_EQ(pread(fd, s + 4000, 1000, 0), 96);
    CHECK_MEM(s + 4000, want, 96);
    CHECK_ERR(pread(fd, s + 4096, 1000, 0), EFAULT);
    CHECK_EQ(pread(fd, s, 4096, 0), 4096);
    char b[4096];
    CHECK_EQ(pread(g, b, 4096, 0), 4096);
    CHECK_MEM(b, want, 4096);
    s = mmap(m, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, g, 0);
    CHECK(s == m);
    CHECK_ERR(pread(fd, s + 4096, 1000, 0), EFAULT);
}
TEST(read_into_odd_memory_from_a_new_file) {
    int fd = t_file("f", "");
    char b[30000];
    for (size_t i = 0; i < sizeof b; i++) b[i] = i * 31 + i / 256;
    CHECK_EQ(write(fd, b, sizeof b), sizeof b);
    read_into_odd_memory(fd);
}
TEST(read_into_odd_memory_from_the_image) {
    int fd = SYS(open("/proc/self/exe", O_RDONLY));
    char b[4096];
    struct stat st;
    OK(fstat(fd, &st));
    read_into_odd_memory(fd);
    for (long i = 0; i < st.st_size / 4096 + 20; i++) SYS(pread(fd, b, 4096, 0));
    read_into_odd_memory(fd);
}
TEST(read_while_it_is_truncated) {
    int fd = t_file("f", "");
    char b[12288];
    memset(b, 'a', sizeof b);
    CHECK_EQ(write(fd, b, sizeof b), sizeof b);
    pid_t p = SYS(fork());
    if (!p) {
        for (int i = 0; i < 2000; i++) {
            SYS(ftruncate(fd, 5000));
            SYS(pwrite(fd, b, sizeof b, 0));
        }
        _exit(0);
    }
    int st;
    while (waitpid(p, &st, WNOHANG) == 0) {
        char c[12288];
        ssize_t n = pread(fd, c, sizeof c, 0);
        CHECK(n >= 5000);
        CHECK_MEM(c, b, 5000);
    }
    CHECK_EQ(st, 0);
}
TEST(read_after_the_image_was_copied_up) {
    // A file of the image that is written while somebody reads it through another descriptor.
    int in = SYS(open("/proc/self/exe", O_RDONLY)), fd = SYS(open("copy", O_RDWR | O_CREAT, 0600));
    char b[8192], c[8192];
    ssize_t n;
    while ((n = SYS(read(in, b, sizeof b))) > 0) CHECK_EQ(write(fd, b, n), n);
    int again = SYS(open("copy", O_RDONLY | O_APPEND));
    for (int i = 0; i < 300; i++) CHECK_EQ(pread(again, b, 4096, 4096 * (i % 20)), 4096);
    CHECK_EQ(pwrite(fd, "changed", 7, 4096), 7);
    CHECK_EQ(pread(again, c, 4096, 4096), 4096);
    CHECK_MEM(c, "changed", 7);
    OK(ftruncate(fd, 5000));
    CHECK_EQ(pread(again, c, 4096, 4096), 904);
    CHECK_EQ(pread(again, c, 4096, 5000), 0);
}
TEST(read_across_the_end_of_a_private_file_mapping) {
    int fd = t_file("f", "0123456789"), g = t_file("short", "s");
    char *s = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, g, 0);
    CHECK(s != MAP_FAILED);
    CHECK_EQ(pread(fd, s + 4090, 10, 0), 6);
    CHECK_MEM(s + 4090, "012345", 6);
}
TEST(large_reads_into_memory_that_ends) {
    size_t n = 400000;
    char *a = malloc(n), *m = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < n; i++) a[i] = i * 2654435761u >> 11;
    int fd = t_file("f", "");
    CHECK_EQ(write(fd, a, n), n);
    char *end = m + (1 << 19);
    OK(mprotect(end, 4096, PROT_READ));
    static const size_t room[] = {1, 4096, 65535, 65536, 65537, 131072, 131073, 150000, 200000, 262145, 390000};
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        memset(m, 0, 1 << 19);
        lseek(fd, 5, SEEK_SET);
        CHECK_EQ(read(fd, end - room[i], n), room[i]);
        CHECK_MEM(end - room[i], a + 5, room[i]);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), room[i] + 5);
    }
    // as long as the file, to the byte
    for (size_t size = 3 * 65536; size; size -= 65536) {
        OK(ftruncate(fd, size));
        CHECK_EQ(pread(fd, m, 1 << 19, 0), size);
        CHECK_MEM(m, a, size);
        CHECK_EQ(pread(fd, m, 1 << 19, size), 0);
    }
}

static void fill_pipe(int w, int leave) {
    static char b[65536];
    SYS(fcntl(w, F_SETPIPE_SZ, 65536));
    CHECK_EQ(write(w, b, sizeof b - leave), sizeof b - leave);
}
TEST(splice_refuses_files_without_pages) {
    int p[2], d = SYS(open(".", O_RDONLY | O_DIRECTORY)), e = SYS(eventfd(1, 0)), ep = SYS(epoll_create1(0));
    SYS(pipe(p));
    CHECK_ERR(splice(d, 0, p[1], 0, 1, 0), EINVAL);
    CHECK_ERR(splice(e, 0, p[1], 0, 8, 0), EINVAL);
    CHECK_ERR(splice(ep, 0, p[1], 0, 1, 0), EINVAL);
    // Nobody waits for the pipe to have something.
    CHECK_ERR(splice(p[0], 0, e, 0, 8, 0), EINVAL);
    CHECK_ERR(splice(p[0], 0, ep, 0, 1, 0), EINVAL);
}
TEST(splice_between_pipes_moves_what_fits) {
    int a[2], b[2];
    OK(pipe(a));
    OK(pipe(b));
    fill_pipe(a[1], 0);
    fill_pipe(b[1], 3 * 4096);
    // Room for three pages: a short count, and no waiting for more.
    CHECK_EQ(splice(a[0], 0, b[1], 0, 65536, 0), 3 * 4096);
    CHECK_ERR(splice(a[0], 0, b[1], 0, 65536, SPLICE_F_NONBLOCK), EAGAIN);
    int n;
    OK(ioctl(a[0], FIONREAD, &n));
    CHECK_EQ(n, 65536 - 3 * 4096);
    OK(ioctl(b[0], FIONREAD, &n));
    CHECK_EQ(n, 65536);
    static char buf[65536];
    CHECK_EQ(read(b[0], buf, sizeof buf), 65536);
    CHECK_EQ(tee(a[0], b[1], 10000, 0), 10000);
    OK(ioctl(a[0], FIONREAD, &n));
    CHECK_EQ(n, 65536 - 3 * 4096);
    close(b[0]);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERR(splice(a[0], 0, b[1], 0, 10, 0), EPIPE);
    CHECK_ERR(tee(a[0], b[1], 10, 0), EPIPE);
}
TEST(splice_between_pipes_waits_for_the_first_byte) {
    int a[2], b[2];
    OK(pipe(a));
    OK(pipe(b));
    fill_pipe(b[1], 0);
    int p = FORK();
    if (p == 0) {
        CHECK_EQ(splice(a[0], 0, b[1], 0, 65536, 0), 4096);
        _exit(0);
    }
    t_ms(50);
    CHECK_EQ(write(a[1], "hello", 5), 5);
    static char buf[8192];
    t_ms(50);
    CHECK_EQ(write(a[1], buf, 4091), 4091);
    t_ms(50);
    CHECK_EQ(read(b[0], buf, 4096), 4096);
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(offsets_that_overflow) {
    int in = t_file("in", "0123456789"), out = t_file("out", ""), p[2];
    OK(pipe(p));
    CHECK_EQ(write(p[1], "abcdef", 6), 6);
    off_t at = INT64_MAX - 2;
    CHECK_ERR(sendfile(out, in, &at, 10), EINVAL);
    at = 0;
    CHECK_ERR(sendfile(out, in, &at, (size_t)INT64_MAX + 10), EINVAL);
    at = INT64_MAX - 2;
    CHECK_ERR(splice(in, &at, p[1], 0, 10, 0), EINVAL);
    CHECK_ERR(splice(p[0], 0, out, &at, 10, 0), EINVAL);
    at = -1;
    CHECK_ERR(splice(p[0], 0, out, &at, 10, 0), EINVAL);
    at = 5;
    CHECK_ERR(splice(p[0], 0, out, &at, (size_t)INT64_MAX, 0), EINVAL);
    int mem = SYS(memfd_create("m", 0));
    CHECK_EQ(lseek(mem, INT64_MAX - 2, SEEK_SET), INT64_MAX - 2);
    CHECK_ERR(sendfile(mem, in, 0, 10), EINVAL);
}
TEST(copy_file_range_at_the_end_of_offsets) {
    int in = t_file("in", "0123456789"), out = t_file("out", "");
    off_t a = 0, b = INT64_MAX;
    CHECK_ERR(copy_file_range(in, &a, out, &b, 10, 0), EFBIG);
    a = INT64_MAX - 2, b = 0;
    CHECK_EQ(copy_file_range(in, &a, out, &b, 10, 0), 0);
    a = 5;
    CHECK_ERR(copy_file_range(in, &a, out, &b, (size_t)-1, 0), EOVERFLOW);
    struct rlimit l = {4, 4};
    signal(SIGXFSZ, SIG_IGN);
    OK(setrlimit(RLIMIT_FSIZE, &l));
    a = b = 0;
    CHECK_EQ(copy_file_range(in, &a, out, &b, 10, 0), 4);
    CHECK_ERR(copy_file_range(in, &a, out, &b, 10, 0), EFBIG);
}
