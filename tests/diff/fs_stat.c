// stat and its relatives, statfs, access, chmod, chown, utimensat, umask, xattrs.
#include "t.h"
#include <grp.h>
#include <linux/magic.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <utime.h>

TEST(stat_regular) {
    t_make("f", "12345");
    SYS(chmod("f", 0640));
    struct stat a, b, c, d;
    OK(stat("f", &a));
    CHECK_EQ(a.st_mode, S_IFREG | 0640);
    CHECK_EQ(a.st_size, 5);
    CHECK_EQ(a.st_nlink, 1);
    CHECK_EQ(a.st_uid, 0);
    CHECK_EQ(a.st_gid, 0);
    CHECK_EQ(a.st_rdev, 0);
    CHECK(a.st_ino != 0);
    CHECK(a.st_blksize >= 512);
    int fd = SYS(open("f", O_RDONLY));
    OK(fstat(fd, &b));
    OK(lstat("f", &c));
    OK(fstatat(AT_FDCWD, "f", &d, 0));
    CHECK_EQ(b.st_ino, a.st_ino);
    CHECK_EQ(c.st_ino, a.st_ino);
    CHECK_EQ(d.st_ino, a.st_ino);
    CHECK_EQ(b.st_dev, a.st_dev);
    OK(fstatat(fd, "", &d, AT_EMPTY_PATH));
    CHECK_EQ(d.st_ino, a.st_ino);
    t_make("g", "");
    OK(stat("g", &b));
    CHECK(b.st_ino != a.st_ino);
    CHECK_EQ(b.st_dev, a.st_dev);
    CHECK_EQ(b.st_blocks, 0);
}
TEST(stat_kinds) {
    struct stat st;
    SYS(mkdir("d", 0755));
    SYS(symlink("target", "l"));
    SYS(mkfifo("p", 0600));
    SYS(mknod("s", S_IFSOCK | 0600, 0));
    OK(stat("d", &st));
    CHECK(S_ISDIR(st.st_mode));
    OK(lstat("l", &st));
    CHECK(S_ISLNK(st.st_mode));
    CHECK_EQ(st.st_mode & 07777, 0777);
    CHECK_EQ(st.st_size, 6);
    CHECK_ERR(stat("l", &st), ENOENT);
    OK(stat("p", &st));
    CHECK(S_ISFIFO(st.st_mode));
    OK(stat("s", &st));
    CHECK(S_ISSOCK(st.st_mode));
    OK(stat("/dev/null", &st));
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(st.st_rdev, makedev(1, 3));
    OK(fstat(0, &st));
    int p[2];
    SYS(pipe(p));
    OK(fstat(p[0], &st));
    CHECK(S_ISFIFO(st.st_mode));
}
TEST(stat_errors) {
    struct stat st;
    t_make("f", "");
    CHECK_ERR(stat("missing", &st), ENOENT);
    CHECK_ERR(stat("", &st), ENOENT);
    CHECK_ERR(stat("f/x", &st), ENOTDIR);
    CHECK_ERR(stat(BAD_PTR, &st), EFAULT);
    CHECK_ERR(syscall(SYS_stat, "f", BAD_PTR), EFAULT);
    CHECK_ERR(syscall(SYS_fstat, 0, BAD_PTR), EFAULT);
    CHECK_ERR(fstat(999, &st), EBADF);
    CHECK_ERR(fstatat(999, "f", &st, 0), EBADF);
    CHECK_ERR(fstatat(AT_FDCWD, "", &st, 0), ENOENT);
    CHECK_ERR(fstatat(AT_FDCWD, "f", &st, 0x8000000), EINVAL);
    SYS(mkdir("d", 0700));
    t_make("d/f", "");
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(stat("d/f", &st), EACCES));
}
TEST(stat_directory_links) {
    struct stat st;
    SYS(mkdir("d", 0755));
    OK(stat("d", &st));
    CHECK_EQ(st.st_nlink, 2);
    SYS(mkdir("d/a", 0755));
    SYS(mkdir("d/b", 0755));
    OK(stat("d", &st));
    CHECK_EQ(st.st_nlink, 4);
    SYS(rmdir("d/a"));
    OK(stat("d", &st));
    CHECK_EQ(st.st_nlink, 3);
    SYS(rename("d/b", "b"));
    OK(stat("d", &st));
    CHECK_EQ(st.st_nlink, 2);
}
TEST(statx_fields) {
    t_make("f", "12345678");
    struct statx x = {0};
    struct stat st;
    OK(stat("f", &st));
    OK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x));
    CHECK_EQ(x.stx_mask & STATX_BASIC_STATS, STATX_BASIC_STATS);
    CHECK_EQ(x.stx_ino, st.st_ino);
    CHECK_EQ(x.stx_size, 8);
    CHECK_EQ(x.stx_mode, st.st_mode);
    CHECK_EQ(x.stx_nlink, 1);
    CHECK_EQ(makedev(x.stx_dev_major, x.stx_dev_minor), st.st_dev);
    CHECK_EQ(x.stx_mtime.tv_sec, st.st_mtim.tv_sec);
    CHECK_EQ(x.stx_mtime.tv_nsec, st.st_mtim.tv_nsec);
    OK(statx(AT_FDCWD, "/dev/null", 0, STATX_ALL, &x));
    CHECK_EQ(x.stx_rdev_major, 1);
    CHECK_EQ(x.stx_rdev_minor, 3);
    int fd = SYS(open("f", O_RDONLY));
    OK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x));
    CHECK_EQ(x.stx_size, 8);
    OK(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_SIZE, &x));
    CHECK_ERR(statx(AT_FDCWD, "f", AT_STATX_DONT_SYNC | AT_STATX_FORCE_SYNC, STATX_SIZE, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "f", 0x8000000, STATX_SIZE, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "f", 0, STATX__RESERVED, &x), EINVAL);
    CHECK_ERR(statx(AT_FDCWD, "missing", 0, STATX_SIZE, &x), ENOENT);
    CHECK_ERR(statx(999, "f", 0, STATX_SIZE, &x), EBADF);
    CHECK_ERR(syscall(SYS_statx, AT_FDCWD, "f", 0, STATX_SIZE, BAD_PTR), EFAULT);
    SYS(symlink("f", "l"));
    OK(statx(AT_FDCWD, "l", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &x));
    CHECK(S_ISLNK(x.stx_mode));
}
TEST(statfs_forms) {
    struct statfs s;
    OK(statfs(".", &s));
    CHECK(s.f_bsize > 0);
    CHECK(s.f_blocks >= s.f_bfree);
    CHECK(s.f_bfree >= s.f_bavail);
    CHECK_EQ(s.f_namelen, 255);
    OK(statfs("/proc", &s));
    CHECK_EQ(s.f_type, PROC_SUPER_MAGIC);
    int p[2], fd = SYS(open(".", O_RDONLY));
    SYS(pipe(p));
    OK(fstatfs(p[0], &s));
    CHECK_EQ(s.f_type, PIPEFS_MAGIC);
    OK(fstatfs(fd, &s));
    CHECK_ERR(statfs("missing", &s), ENOENT);
    CHECK_ERR(fstatfs(999, &s), EBADF);
    CHECK_ERR(statfs(".", BAD_PTR), EFAULT);
    CHECK_ERR(statfs(BAD_PTR, &s), EFAULT);
}
TEST(access_forms) {
    t_make("f", "");
    SYS(chmod("f", 0640));
    OK(access("f", F_OK));
    OK(access("f", R_OK | W_OK));
    CHECK_ERR(access("f", X_OK), EACCES); // not even root, without an x bit
    SYS(chmod("f", 0100));
    OK(access("f", X_OK));
    CHECK_ERR(access("missing", F_OK), ENOENT);
    CHECK_ERR(access("f/x", F_OK), ENOTDIR);
    CHECK_ERR(access("f", 8), EINVAL);
    CHECK_ERR(access(BAD_PTR, F_OK), EFAULT);
    CHECK_ERR(access("", F_OK), ENOENT);
    SYS(symlink("missing", "l"));
    CHECK_ERR(access("l", F_OK), ENOENT);
    OK(syscall(SYS_faccessat2, AT_FDCWD, "l", F_OK, AT_SYMLINK_NOFOLLOW));
    CHECK_ERR(syscall(SYS_faccessat2, AT_FDCWD, "f", F_OK, 0x4000), EINVAL);
    int fd = SYS(open("f", O_PATH));
    OK(syscall(SYS_faccessat2, fd, "", F_OK, AT_EMPTY_PATH));
}
TEST(access_uses_real_ids) {
    t_make("f", "");
    SYS(chmod("f", 0600));
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setresuid(1000, 0, 0)); CHECK_ERR(access("f", R_OK), EACCES); OK(syscall(SYS_faccessat2, AT_FDCWD, "f", R_OK, AT_EACCESS));
                CHECK(open("f", O_RDONLY) >= 0));
    CHECK_CHILD(SYS(setuid(1000)); OK(access("f", F_OK)); CHECK_ERR(access("f", R_OK), EACCES));
}
// Directories on the way are searched with the real user's rights as well, and with root's where that is root.
TEST(access_searches_with_real_ids) {
    SYS(chmod(".", 0755));
    SYS(mkdir("d", 0700));
    t_make("d/g", "");
    t_make("x", "");
    SYS(chmod("x", 0100));
    CHECK_CHILD(SYS(setresuid(1000, 0, 0)); CHECK_ERR(access("d/g", R_OK), EACCES); CHECK_ERR(access("d/g", F_OK), EACCES);
                CHECK_ERR(access("d/./g", F_OK), EACCES); CHECK_ERR(access("d/missing", F_OK), EACCES);
                OK(syscall(SYS_faccessat2, AT_FDCWD, "d/g", R_OK, AT_EACCESS)); CHECK(open("d/g", O_RDONLY) >= 0));
    CHECK_CHILD(SYS(setresuid(0, 1000, 0)); OK(access("d/g", R_OK)); OK(access("x", X_OK)); CHECK_ERR(open("d/g", O_RDONLY), EACCES);
                CHECK_ERR(syscall(SYS_faccessat2, AT_FDCWD, "d/g", R_OK, AT_EACCESS), EACCES));
    // The group counts as the user does.
    SYS(chmod("d", 0710));
    SYS(chown("d", 0, 2000));
    CHECK_CHILD(SYS(setgroups(0, 0)); SYS(setresgid(2000, 3000, 3000)); SYS(setresuid(1000, 1000, 1000)); OK(access("d/g", R_OK));
                CHECK_ERR(open("d/g", O_RDONLY), EACCES));
    CHECK_CHILD(SYS(setgroups(0, 0)); SYS(setresgid(3000, 2000, 2000)); SYS(setresuid(1000, 1000, 1000)); CHECK_ERR(access("d/g", R_OK), EACCES);
                CHECK(open("d/g", O_RDONLY) >= 0));
}
// An empty path with AT_EMPTY_PATH means the starting point, also the working directory; NULL does so for stat and statx.
TEST(null_and_empty_paths) {
    struct stat st, here;
    struct statx x;
    struct {
        unsigned bytes;
        int type;
        unsigned char h[128];
    } h = {128, 0, {0}};
    int id;
    struct timespec t[2] = {{1, 0}, {2, 0}};
    t_make("f", "");
    int f = SYS(open("f", O_PATH)), d = SYS(open(".", O_PATH | O_DIRECTORY)), r = SYS(open("f", O_RDONLY));
    OK(stat(".", &here));
    for (int null = 0; null < 2; null++) {
        const char *no = null ? 0 : "";
        int from[] = {AT_FDCWD, d};
        for (int i = 0; i < 2; i++) {
            OK(syscall(SYS_newfstatat, from[i], no, &st, AT_EMPTY_PATH));
            CHECK_EQ(st.st_ino, here.st_ino);
            OK(syscall(SYS_statx, from[i], no, AT_EMPTY_PATH, STATX_INO, &x));
            CHECK_EQ(x.stx_ino, here.st_ino);
        }
        CHECK_ERR(syscall(SYS_newfstatat, AT_FDCWD, no, &st, 0), null ? EFAULT : ENOENT);
        CHECK_ERR(syscall(SYS_newfstatat, f, no, &st, 0), null ? EFAULT : ENOENT);
        CHECK_ERR(syscall(SYS_newfstatat, 99, no, &st, AT_EMPTY_PATH), EBADF);
        OK(syscall(SYS_newfstatat, f, no, &st, AT_EMPTY_PATH));
    }
    for (int cwd = 0; cwd < 2; cwd++) {
        int at = cwd ? AT_FDCWD : f;
        CHECK_ERR(syscall(SYS_faccessat2, at, 0, R_OK, AT_EMPTY_PATH), EFAULT);
        CHECK_ERR(syscall(452, at, 0, 0600, AT_EMPTY_PATH), EFAULT);
        CHECK_ERR(syscall(SYS_fchownat, at, 0, 0, 0, AT_EMPTY_PATH), EFAULT);
        CHECK_ERR(syscall(SYS_name_to_handle_at, at, 0, &h, &id, AT_EMPTY_PATH), EFAULT);
        CHECK_ERR(syscall(SYS_linkat, at, 0, AT_FDCWD, "new", AT_EMPTY_PATH), EFAULT);
        CHECK_ERR(syscall(SYS_readlinkat, at, 0, &st, 100), EFAULT);
        CHECK_ERR(syscall(SYS_open_tree, at, 0, AT_EMPTY_PATH), EFAULT);
        CHECK_ERR(syscall(SYS_open_tree, at, 0, AT_EMPTY_PATH | 1), EFAULT);
        CHECK_ERR(syscall(SYS_execveat, at, 0, &(char *){0}, &(char *){0}, AT_EMPTY_PATH), EFAULT);
        CHECK_ERR(syscall(SYS_fspick, at, 0, 8), EFAULT);
        OK(syscall(SYS_faccessat2, at, "", R_OK, AT_EMPTY_PATH));
        OK(syscall(452, at, "", 0755, AT_EMPTY_PATH));
        OK(syscall(SYS_fchownat, at, "", 0, 0, AT_EMPTY_PATH));
        OK(syscall(SYS_utimensat, at, "", t, AT_EMPTY_PATH));
        close(SYS(syscall(SYS_open_tree, at, "", AT_EMPTY_PATH)));
        h.bytes = 128;
        OK(syscall(SYS_name_to_handle_at, at, "", &h, &id, AT_EMPTY_PATH));
    }
    // Here a descriptor alone is no path at all.
    OK(syscall(SYS_utimensat, r, 0, t, 0));
    CHECK_ERR(syscall(SYS_utimensat, f, 0, t, 0), EBADF);
    CHECK_ERR(syscall(SYS_utimensat, r, 0, t, AT_EMPTY_PATH), EINVAL);
    CHECK_ERR(syscall(SYS_utimensat, AT_FDCWD, 0, t, 0), EFAULT);
    CHECK_ERR(syscall(SYS_utimensat, AT_FDCWD, 0, t, AT_EMPTY_PATH), EFAULT);
}
TEST(chmod_forms) {
    t_make("f", "");
    struct stat st;
    OK(chmod("f", 07654));
    OK(stat("f", &st));
    CHECK_EQ(st.st_mode, S_IFREG | 07654);
    OK(chmod("f", S_IFDIR | 0600)); // only the low bits count
    OK(stat("f", &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0600);
    int fd = SYS(open("f", O_RDONLY));
    OK(fchmod(fd, 0444));
    OK(fchmodat(AT_FDCWD, "f", 0755, 0));
    OK(stat("f", &st));
    CHECK_EQ(st.st_mode & 07777, 0755);
    CHECK_ERR(chmod("missing", 0600), ENOENT);
    CHECK_ERR(fchmod(999, 0600), EBADF);
    CHECK_ERR(fchmodat(999, "f", 0600, 0), EBADF);
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(chmod("f", 0777), EPERM); CHECK_ERR(fchmod(fd, 0777), EPERM));
    SYS(symlink("f", "l"));
    OK(chmod("l", 0611));
    OK(stat("f", &st));
    CHECK_EQ(st.st_mode & 07777, 0611);
    OK(lstat("l", &st));
    CHECK_EQ(st.st_mode & 07777, 0777);
}
TEST(chmod_drops_setgid_of_foreign_group) {
    t_make("f", "");
    SYS(chown("f", 1000, 2000));
    SYS(chmod(".", 0755));
    struct stat st;
    CHECK_CHILD(SYS(setgroups(0, 0)); SYS(setgid(1000)); SYS(setuid(1000)); OK(chmod("f", 02755)));
    OK(stat("f", &st));
    CHECK_EQ(st.st_mode & 07777, 0755);
}
TEST(chown_forms) {
    t_make("f", "");
    SYS(symlink("f", "l"));
    struct stat st;
    OK(chown("f", 11, 22));
    OK(stat("f", &st));
    CHECK_EQ(st.st_uid, 11);
    CHECK_EQ(st.st_gid, 22);
    OK(chown("f", -1, 33));
    OK(stat("f", &st));
    CHECK_EQ(st.st_uid, 11);
    CHECK_EQ(st.st_gid, 33);
    OK(lchown("l", 44, 55));
    OK(stat("f", &st));
    CHECK_EQ(st.st_uid, 11);
    OK(lstat("l", &st));
    CHECK_EQ(st.st_uid, 44);
    OK(chown("l", 66, -1));
    OK(stat("f", &st));
    CHECK_EQ(st.st_uid, 66);
    int fd = SYS(open("f", O_RDONLY));
    OK(fchown(fd, 77, 88));
    OK(fchownat(fd, "", 1, 2, AT_EMPTY_PATH));
    OK(fchownat(AT_FDCWD, "l", 3, 4, AT_SYMLINK_NOFOLLOW));
    OK(stat("f", &st));
    CHECK_EQ(st.st_uid, 1);
    CHECK_ERR(chown("missing", 0, 0), ENOENT);
    CHECK_ERR(fchown(999, 0, 0), EBADF);
    CHECK_ERR(fchownat(AT_FDCWD, "f", 0, 0, 0x4000000), EINVAL);
}
TEST(chown_permission_and_setuid_bits) {
    t_make("f", "");
    SYS(chmod("f", 06755));
    SYS(chmod(".", 0755));
    struct stat st;
    OK(chown("f", 1000, 1000));
    OK(stat("f", &st));
    CHECK_EQ(st.st_mode & 07777, 0755);
    CHECK_CHILD(gid_t g[] = {1000, 2000}; SYS(setgroups(2, g)); SYS(setgid(1000)); SYS(setuid(1000)); CHECK_ERR(chown("f", 1001, -1), EPERM);
                CHECK_ERR(chown("f", -1, 3000), EPERM); OK(chown("f", -1, 2000)); OK(chown("f", 1000, -1)));
    OK(stat("f", &st));
    CHECK_EQ(st.st_gid, 2000);
}
TEST(utimensat_forms) {
    t_make("f", "");
    struct timespec t[2] = {{100, 123456789}, {200, 987654321}};
    struct stat st;
    OK(utimensat(AT_FDCWD, "f", t, 0));
    OK(stat("f", &st));
    CHECK_EQ(st.st_atim.tv_sec, 100);
    CHECK_EQ(st.st_mtim.tv_sec, 200);
    CHECK_EQ(st.st_mtim.tv_nsec, 987654321);
    t[0].tv_nsec = UTIME_OMIT, t[1].tv_sec = 300, t[1].tv_nsec = 0;
    OK(utimensat(AT_FDCWD, "f", t, 0));
    OK(stat("f", &st));
    CHECK_EQ(st.st_atim.tv_sec, 100);
    CHECK_EQ(st.st_mtim.tv_sec, 300);
    t[0].tv_nsec = UTIME_NOW, t[1].tv_nsec = UTIME_OMIT;
    OK(utimensat(AT_FDCWD, "f", t, 0));
    OK(stat("f", &st));
    CHECK(st.st_atim.tv_sec > 1000000);
    CHECK_EQ(st.st_mtim.tv_sec, 300);
    OK(utimensat(AT_FDCWD, "f", 0, 0));
    OK(stat("f", &st));
    CHECK(st.st_mtim.tv_sec > 1000000);
    t[0].tv_nsec = 1000000000;
    CHECK_ERR(utimensat(AT_FDCWD, "f", t, 0), EINVAL);
    t[0].tv_nsec = 0, t[1].tv_nsec = 0;
    CHECK_ERR(utimensat(AT_FDCWD, "missing", t, 0), ENOENT);
    CHECK_ERR(utimensat(AT_FDCWD, "f", t, 0x100000), EINVAL);
    CHECK_ERR(utimensat(AT_FDCWD, "f", BAD_PTR, 0), EFAULT);
    SYS(symlink("f", "l"));
    t[0].tv_sec = t[1].tv_sec = 555;
    OK(utimensat(AT_FDCWD, "l", t, AT_SYMLINK_NOFOLLOW));
    OK(lstat("l", &st));
    CHECK_EQ(st.st_mtim.tv_sec, 555);
    OK(stat("f", &st));
    CHECK(st.st_mtim.tv_sec != 555);
    int fd = SYS(open("f", O_RDONLY));
    OK(futimens(fd, t));
    OK(stat("f", &st));
    CHECK_EQ(st.st_mtim.tv_sec, 555);
    struct utimbuf u = {1, 2};
    OK(utime("f", &u));
    struct timeval v[2] = {{3, 4}, {5, 6}};
    OK(utimes("f", v));
    OK(stat("f", &st));
    CHECK_EQ(st.st_mtim.tv_sec, 5);
    CHECK_EQ(st.st_mtim.tv_nsec, 6000);
    SYS(chmod(".", 0755));
    SYS(chmod("f", 0644));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(utimensat(AT_FDCWD, "f", 0, 0), EACCES); CHECK_ERR(utimensat(AT_FDCWD, "f", t, 0), EPERM));
}
TEST(times_of_directories) {
    SYS(mkdir("d", 0755));
    struct timespec t[2] = {{100, 0}, {100, 0}};
    struct stat st;
    SYS(utimensat(AT_FDCWD, "d", t, 0));
    t_make("d/f", "");
    OK(stat("d", &st));
    CHECK(st.st_mtime > 100);
    SYS(utimensat(AT_FDCWD, "d", t, 0));
    SYS(unlink("d/f"));
    OK(stat("d", &st));
    CHECK(st.st_mtime > 100);
    SYS(utimensat(AT_FDCWD, "d", t, 0));
    OK(stat("d/.", &st));
    CHECK_EQ(st.st_mtime, 100);
}
TEST(ctime_moves_with_metadata) {
    t_make("f", "");
    struct stat a, b;
    OK(stat("f", &a));
    t_ms(15);
    SYS(chmod("f", 0600));
    OK(stat("f", &b));
    CHECK(b.st_ctim.tv_sec > a.st_ctim.tv_sec || b.st_ctim.tv_nsec > a.st_ctim.tv_nsec);
    CHECK_EQ(b.st_mtim.tv_nsec, a.st_mtim.tv_nsec);
}
TEST(umask_forms) {
    umask(0);
    CHECK_EQ(umask(0777), 0);
    CHECK_EQ(umask(01777), 0777);
    CHECK_EQ(umask(077), 0777);
    SYS(mkdir("d", 0777));
    struct stat st;
    OK(stat("d", &st));
    CHECK_EQ(st.st_mode & 0777, 0700);
}
TEST(xattr_forms) {
    t_make("f", "");
    char b[64] = "";
    OK(setxattr("f", "user.one", "value", 5, 0));
    CHECK_EQ(getxattr("f", "user.one", b, sizeof b), 5);
    CHECK_STR(b, "value");
    CHECK_EQ(getxattr("f", "user.one", 0, 0), 5);
    CHECK_ERR(getxattr("f", "user.one", b, 2), ERANGE);
    CHECK_ERR(getxattr("f", "user.two", b, 64), ENODATA);
    CHECK_ERR(setxattr("f", "user.one", "x", 1, XATTR_CREATE), EEXIST);
    CHECK_ERR(setxattr("f", "user.two", "x", 1, XATTR_REPLACE), ENODATA);
    CHECK_ERR(setxattr("f", "user.two", "x", 1, 9), EINVAL);
    CHECK_ERR(setxattr("f", "nonsense", "x", 1, 0), EOPNOTSUPP);
    CHECK_ERR(setxattr("f", "user.", "x", 1, 0), EINVAL);
    CHECK_ERR(setxattr("f", "", "x", 1, 0), ERANGE);
    CHECK_ERR(setxattr("f", BAD_PTR, "x", 1, 0), EFAULT);
    CHECK_ERR(setxattr("f", "user.big", b, 100000, 0), E2BIG);
    CHECK_ERR(setxattr("missing", "user.a", "x", 1, 0), ENOENT);
    OK(setxattr("f", "user.two", "", 0, XATTR_CREATE));
    int fd = SYS(open("f", O_RDWR));
    OK(fsetxattr(fd, "user.three", "3", 1, 0));
    CHECK_EQ(fgetxattr(fd, "user.three", b, 64), 1);
    memset(b, 0, sizeof b);
    int n = flistxattr(fd, b, sizeof b);
    int found = 0;
    for (int i = 0; i < n; i += strlen(b + i) + 1) found += !strcmp(b + i, "user.one") || !strcmp(b + i, "user.two") || !strcmp(b + i, "user.three");
    CHECK_EQ(found, 3);
    CHECK_ERR(listxattr("f", b, 3), ERANGE);
    OK(removexattr("f", "user.two"));
    CHECK_ERR(removexattr("f", "user.two"), ENODATA);
    OK(fremovexattr(fd, "user.three"));
    SYS(symlink("f", "l"));
    CHECK_ERR(lsetxattr("l", "user.x", "1", 1, 0), EPERM);
    OK(setxattr("f", "trusted.t", "1", 1, 0));
    CHECK_CHILD(SYS(chmod(".", 0755)); SYS(setuid(1000)); CHECK_ERR(setxattr("f", "trusted.t", "2", 1, 0), EPERM);
                CHECK_ERR(getxattr("f", "trusted.t", b, 64), ENODATA); CHECK_ERR(setxattr("f", "user.w", "2", 1, 0), EACCES));
}
TEST(root_and_test_directories_have_steady_inodes) {
    struct stat a, b;
    t_make("f", "");
    OK(stat("f", &a));
    for (int i = 0; i < 50; i++) {
        char n[16];
        sprintf(n, "x%d", i);
        t_make(n, "");
    }
    OK(stat("f", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
    SYS(rename("f", "g"));
    OK(stat("g", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
    OK(stat("/bin/sh", &a));
    OK(stat("/bin/sh", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
}
