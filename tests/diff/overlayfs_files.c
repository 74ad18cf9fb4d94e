// Files in overlayfs: what is copied up and when, inode numbers, attributes, open files, mappings.
#include "overlayfs.h"
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>

TEST(reading_copies_nothing) {
    o_start();
    t_make("l/f", "text");
    SYS(mkdir("l/d", 0755));
    SYS(symlink("f", "l/s"));
    OK(o_mount(O_DATA));
    TEXT("m/f", "text");
    TEXT("m/s", "text");
    o_names("m/d");
    char b[16];
    CHECK_EQ(readlink("m/s", b, sizeof b), 1);
    OK(access("m/f", R_OK | W_OK));
    close(SYS(open("m/f", O_RDONLY)));
    CHECK_STR(o_names("u"), "");
}
TEST(what_is_copied) {
    o_start();
    SYS(mkdir("l/d", 0751));
    t_make("l/d/f", "content");
    SYS(chown("l/d/f", 5, 6));
    SYS(chmod("l/d/f", 04751));
    SYS(setxattr("l/d/f", "user.a", "1", 1, 0));
    SYS(setxattr("l/d/f", "trusted.b", "2", 1, 0));
    struct timespec ts[2] = {{1000, 5}, {2000, 6}};
    SYS(utimensat(AT_FDCWD, "l/d/f", ts, 0));
    SYS(chown("l/d", 7, 8));
    SYS(setxattr("l/d", "user.d", "3", 1, 0));
    SYS(utimensat(AT_FDCWD, "l/d", ts, 0));
    OK(o_mount(O_DATA));
    close(SYS(open("m/d/f", O_WRONLY | O_APPEND)));
    struct stat s;
    OK(stat("u/d/f", &s));
    CHECK_EQ(s.st_mode & 07777, 04751);
    CHECK_EQ(s.st_uid, 5);
    CHECK_EQ(s.st_gid, 6);
    CHECK_EQ(s.st_mtim.tv_sec, 2000);
    CHECK_EQ(s.st_mtim.tv_nsec, 6);
    CHECK_EQ(o_mark("u/d/f", "user.a"), '1');
    CHECK_EQ(o_mark("u/d/f", "trusted.b"), '2');
    TEXT("u/d/f", "content");
    OK(stat("u/d", &s));
    CHECK_EQ(s.st_mode & 07777, 0751);
    CHECK_EQ(s.st_uid, 7);
    CHECK_EQ(s.st_gid, 8);
    CHECK_EQ(s.st_mtim.tv_sec, 2000);
    CHECK_EQ(o_mark("u/d", "user.d"), '3');
    CHECK_STR(o_names("w/work"), "");
}
TEST(every_kind_is_copied) {
    o_start();
    SYS(symlink("somewhere", "l/s"));
    SYS(mkfifo("l/p", 0640));
    SYS(mknod("l/n", S_IFCHR | 0644, makedev(1, 3)));
    SYS(mknod("l/k", S_IFSOCK | 0600, 0));
    OK(o_mount(O_DATA));
    const char *all[] = {"m/s", "m/p", "m/n", "m/k"};
    for (int i = 0; i < 4; i++) OK(lchown(all[i], 9, 9));
    struct stat s;
    char b[32] = "";
    OK(lstat("u/s", &s));
    CHECK_EQ(s.st_uid, 9);
    CHECK_EQ(readlink("u/s", b, sizeof b - 1), 9);
    CHECK_STR(b, "somewhere");
    OK(lstat("u/p", &s));
    CHECK_EQ(s.st_mode, S_IFIFO | 0640);
    OK(lstat("u/n", &s));
    CHECK_EQ(s.st_mode, S_IFCHR | 0644);
    CHECK_EQ(s.st_rdev, makedev(1, 3));
    OK(lstat("u/k", &s));
    CHECK_EQ(s.st_mode, S_IFSOCK | 0600);
    int fd = SYS(open("m/n", O_WRONLY));
    CHECK_EQ(write(fd, "x", 1), 1);
}
TEST(changes_that_copy) {
    o_start();
    const char *names = "abcdefg";
    for (const char *n = names; *n; n++) t_make((char[]){'l', '/', *n, 0}, "12345678");
    OK(o_mount(O_DATA));
    OK(chmod("m/a", 0600));
    OK(chown("m/b", 3, 3));
    OK(truncate("m/c", 3));
    OK(utimensat(AT_FDCWD, "m/d", 0, 0));
    OK(setxattr("m/e", "user.x", "1", 1, 0));
    CHECK_ERR(removexattr("m/f", "user.x"), ENODATA);
    int fd = SYS(open("m/g", O_RDONLY));
    OK(fchmod(fd, 0611));
    CHECK_STR(o_names("u"), "a b c d e g ");
    TEXT("u/a", "12345678");
    TEXT("u/c", "123");
    for (const char *n = names; *n; n++) TEXT(((char[]){'l', '/', *n, 0}), "12345678");
    close(SYS(open("m/f", O_WRONLY | O_TRUNC)));
    TEXT("m/f", "");
}
TEST(numbers_stay) {
    o_start();
    t_make("l/f", "x");
    SYS(mkdir("l/d", 0755));
    t_make("u/u", "");
    struct stat s, t, dir, low;
    OK(o_mount(O_DATA));
    OK(stat("m", &dir));
    OK(stat("m/f", &s));
    OK(stat("l/f", &low));
    CHECK_EQ(s.st_ino, low.st_ino);
    CHECK_EQ(s.st_dev, dir.st_dev);
    CHECK(s.st_dev != low.st_dev);
    OK(chmod("m/f", 0600));
    OK(stat("m/f", &t));
    CHECK_EQ(t.st_ino, s.st_ino);
    CHECK_EQ(t.st_dev, s.st_dev);
    OK(stat("m/d", &s));
    OK(chmod("m/d", 0700));
    OK(stat("m/d", &t));
    CHECK_EQ(t.st_ino, s.st_ino);
    CHECK_EQ(t.st_nlink, 1);
    OK(umount("m"));
    // In a later mount as well.
    OK(o_mount(O_DATA));
    OK(stat("m/f", &t));
    CHECK_EQ(t.st_ino, low.st_ino);
    OK(stat("m/d", &t));
    CHECK_EQ(t.st_ino, s.st_ino);
    OK(stat("m/u", &s));
    OK(stat("u/u", &t));
    CHECK_EQ(s.st_ino, t.st_ino);
}
TEST(numbers_of_several_file_systems) {
    o_start();
    SYS(mkdir("b", 0755));
    SYS(mount("t", "b", "tmpfs", 0, 0));
    t_make("b/f", "x");
    SYS(mkdir("b/d", 0755));
    t_make("u/u", "");
    struct stat s, t, dir, low;
    OK(o_mount("lowerdir=b,upperdir=u,workdir=w,xino=off"));
    OK(stat("m", &dir));
    OK(stat("m/f", &s));
    OK(stat("b/f", &low));
    CHECK_EQ(s.st_ino, low.st_ino);
    CHECK(s.st_dev != low.st_dev && s.st_dev != dir.st_dev);
    OK(chmod("m/f", 0600));
    OK(stat("m/f", &t));
    CHECK_EQ(t.st_ino, s.st_ino);
    CHECK_EQ(t.st_dev, s.st_dev);
    OK(stat("m/u", &t));
    CHECK(t.st_dev != s.st_dev && t.st_dev != dir.st_dev);
    OK(stat("m/d", &s));
    CHECK_EQ(s.st_dev, dir.st_dev);
    OK(chmod("m/d", 0700));
    OK(stat("m/d", &t));
    CHECK_EQ(t.st_ino, s.st_ino);
    CHECK_EQ(t.st_dev, s.st_dev);
}
TEST(open_before_the_copy) {
    o_start();
    t_make("l/f", "old text");
    OK(o_mount(O_DATA));
    int r = SYS(open("m/f", O_RDONLY)), w = SYS(open("m/f", O_RDWR));
    CHECK_EQ(pwrite(w, "NEW", 3, 0), 3);
    char b[32] = "";
    CHECK_EQ(pread(r, b, sizeof b, 0), 8);
    CHECK_STR(b, "NEW text");
    struct stat s, t;
    OK(fstat(r, &s));
    OK(fstat(w, &t));
    CHECK_EQ(s.st_ino, t.st_ino);
    CHECK_EQ(s.st_dev, t.st_dev);
    OK(fsync(r));
    OK(fsync(w));
    CHECK_EQ(lseek(r, 0, SEEK_END), 8);
    OK(ftruncate(w, 3));
    CHECK_EQ(pread(r, b, sizeof b, 0), 3);
    TEXT("l/f", "old text");
}
TEST(unlinked_but_open) {
    o_start();
    t_make("l/f", "text");
    t_make("l/g", "text");
    OK(o_mount(O_DATA));
    int r = SYS(open("m/f", O_RDONLY)), w = SYS(open("m/g", O_RDWR));
    OK(unlink("m/f"));
    OK(unlink("m/g"));
    char b[8] = "";
    CHECK_EQ(read(r, b, 8), 4);
    CHECK_EQ(write(w, "more", 4), 4);
    CHECK_EQ(pread(w, b, 8, 0), 4);
    CHECK_STR(b, "more");
    // There is no place for a copy any more.
    CHECK_ERR(fchmod(r, 0600), EEXIST);
    OK(fchmod(w, 0600));
    struct stat s;
    OK(fstat(w, &s));
    CHECK_EQ(s.st_nlink, 0);
}
TEST(mapped) {
    o_start();
    t_make("l/f", "lower");
    OK(o_mount(O_DATA));
    int r = SYS(open("m/f", O_RDONLY)), w = SYS(open("m/f", O_RDWR));
    char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, w, 0);
    MUST(p != MAP_FAILED);
    memcpy(p, "UPPER", 5);
    char b[8] = "";
    CHECK_EQ(pread(r, b, 8, 0), 5);
    CHECK_STR(b, "UPPER");
    TEXT("u/f", "UPPER");
    OK(msync(p, 4096, MS_SYNC));
    char *q = mmap(0, 4096, PROT_READ, MAP_PRIVATE, w, 0);
    CHECK_MEM(q, "UPPER", 5);
    TEXT("l/f", "lower");
}
TEST(programs) {
    o_start();
    int in = SYS(open(t_self, O_RDONLY)), out = SYS(open("l/prog", O_CREAT | O_WRONLY, 0755));
    char b[65536];
    for (int n; (n = read(in, b, sizeof b)) > 0;) CHECK_EQ(write(out, b, n), n);
    close(out);
    OK(o_mount(O_DATA));
    CHECK_STATUS(CHILD({
                     int null = open("/dev/null", O_WRONLY);
                     dup2(null, 1);
                     execl("m/prog", "prog", "-l", (char *)0);
                 }),
                 "exit 0");
    OK(chmod("m/prog", 0711));
    CHECK_STATUS(CHILD({
                     int null = open("/dev/null", O_WRONLY);
                     dup2(null, 1);
                     execl("m/prog", "prog", "-l", (char *)0);
                 }),
                 "exit 0");
    int w = SYS(open("m/prog", O_WRONLY));
    CHECK_STATUS(CHILD({
                     execl("m/prog", "prog", "-l", (char *)0);
                     _exit(errno == ETXTBSY ? 5 : 6);
                 }),
                 "exit 5");
    close(w);
}
TEST(attributes_of_its_own) {
    o_start();
    SYS(mkdir("l/d", 0755));
    t_make("l/f", "");
    OK(o_mount(O_DATA));
    OK(chmod("m/d", 0700));
    OK(chmod("m/f", 0700));
    char v[64];
    CHECK_EQ(listxattr("m/d", v, sizeof v), 0);
    CHECK_EQ(listxattr("m/f", v, sizeof v), 0);
    CHECK_EQ(listxattr("m", v, sizeof v), 0);
    CHECK_ERR(getxattr("m/d", "trusted.overlay.opaque", v, sizeof v), ENODATA);
    OK(setxattr("m/f", "trusted.overlay.foo", "1", 1, 0));
    CHECK_EQ(o_mark("m/f", "trusted.overlay.foo"), '1');
    CHECK_EQ(o_mark("u/f", "trusted.overlay.overlay.foo"), '1');
    CHECK_EQ(listxattr("m/f", v, sizeof v), 20);
    OK(removexattr("m/f", "trusted.overlay.foo"));
    OK(setxattr("m/f", "user.overlay.opaque", "y", 1, 0));
    CHECK_EQ(o_mark("u/f", "user.overlay.opaque"), 'y');
    OK(umount("m"));
    SYS(mkdir("u2", 0755));
    SYS(mkdir("w2", 0755));
    SYS(mkdir("l2/d", 0755));
    t_make("l2/d/x", "");
    SYS(setxattr("l/d", "user.overlay.opaque", "y", 1, 0));
    OK(o_mount("lowerdir=l:l2,upperdir=u2,workdir=w2,userxattr"));
    CHECK_STR(o_names("m/d"), "");
    CHECK_EQ(listxattr("m/d", v, sizeof v), 0);
    OK(rmdir("m/d"));
    OK(mkdir("m/d", 0755));
    CHECK_EQ(o_mark("u2/d", "user.overlay.opaque"), 'y');
    CHECK_EQ(o_mark("u2/d", "trusted.overlay.opaque"), 0);
}
TEST(incomplete_layers) {
    o_start();
    SYS(mkdir("l/d", 0755));
    t_make("l/f", "");
    SYS(setxattr("l/d", "trusted.overlay.redirect", "e", 1, 0));
    SYS(setxattr("l/f", "trusted.overlay.metacopy", "", 0, 0));
    OK(o_mount(O_DATA2 ",redirect_dir=nofollow"));
    CHECK_ERR(access("m/d", F_OK), EPERM);
    CHECK_ERR(access("m/f", F_OK), EPERM);
}
TEST(access_lists) {
    o_start();
    t_make("l/f", "");
    SYS(mkdir("l/d", 0755));
    unsigned short acl[] = {2, 0, 1, 6, 0xffff, 0xffff, 2, 4, 77, 0, 4, 4, 0xffff, 0xffff, 0x10, 6, 0xffff, 0xffff,
                            0x20, 0, 0xffff, 0xffff};
    if (setxattr("l/f", "system.posix_acl_access", acl, sizeof acl, 0)) SKIP("no access control lists");
    OK(setxattr("l/d", "system.posix_acl_default", acl, sizeof acl, 0));
    OK(o_mount(O_DATA));
    char v[64];
    CHECK_EQ(getxattr("m/f", "system.posix_acl_access", v, sizeof v), sizeof acl);
    CHECK_CHILD({
        become(77);
        CHECK_EQ(access("m/f", R_OK), 0);
        CHECK_ERR(access("m/f", W_OK), EACCES);
    });
    CHECK_CHILD({
        become(78);
        CHECK_ERR(access("m/f", R_OK), EACCES);
    });
    OK(chown("m/f", 0, 5));
    CHECK_EQ(getxattr("u/f", "system.posix_acl_access", v, sizeof v), sizeof acl);
    t_make("m/d/new", "");
    CHECK_EQ(getxattr("u/d/new", "system.posix_acl_access", v, sizeof v), sizeof acl);
    OK(mkdir("m/d/sub", 0777));
    CHECK_EQ(getxattr("u/d/sub", "system.posix_acl_default", v, sizeof v), sizeof acl);
    OK(removexattr("m/f", "system.posix_acl_access"));
    CHECK_ERR(getxattr("u/f", "system.posix_acl_access", v, sizeof v), ENODATA);
}
TEST(rights) {
    o_start();
    t_make("l/secret", "s");
    SYS(chmod("l/secret", 0600));
    t_make("l/mine", "m");
    SYS(chown("l/mine", 1000, 1000));
    SYS(chmod(".", 0755));
    SYS(mkdir("l/open", 0777));
    SYS(chmod("l/open", 01777));
    t_make("l/open/root", "");
    OK(o_mount(O_DATA));
    CHECK_CHILD({
        become(1000);
        CHECK_ERR(open("m/secret", O_RDONLY), EACCES);
        CHECK_ERR(open("m/secret", O_WRONLY), EACCES);
        CHECK_ERR(unlink("m/mine"), EACCES);
        OK(chmod("m/mine", 0640));
        OK(truncate("m/mine", 0));
        CHECK_ERR(chown("m/mine", 0, 0), EPERM);
        t_make("m/open/new", "");
        CHECK_ERR(unlink("m/open/root"), EPERM);
        OK(unlink("m/open/new"));
        t_make("m/open/kept", "");
    });
    struct stat s;
    OK(stat("u/open/kept", &s));
    CHECK_EQ(s.st_uid, 1000);
    CHECK_EQ(s.st_mode & 07777, 0644);
    OK(stat("u/mine", &s));
    CHECK_EQ(s.st_uid, 1000);
    CHECK_EQ(s.st_mode & 07777, 0640);
    OK(access("u/secret", F_OK) + 1);
}
TEST(holes_and_large_files) {
    o_start();
    int fd = SYS(open("l/big", O_CREAT | O_RDWR, 0644));
    SYS(ftruncate(fd, 64 << 20));
    CHECK_EQ(pwrite(fd, "here", 4, 40 << 20), 4);
    close(fd);
    OK(o_mount(O_DATA));
    fd = SYS(open("m/big", O_RDWR));
    struct stat s;
    OK(fstat(fd, &s));
    CHECK_EQ(s.st_size, 64 << 20);
    CHECK(s.st_blocks < 8192);
    char b[8] = "";
    CHECK_EQ(pread(fd, b, 4, 40 << 20), 4);
    CHECK_STR(b, "here");
    CHECK_EQ(lseek(fd, 0, SEEK_DATA), 40 << 20);
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 40 << 20, 4096));
    CHECK_EQ(pread(fd, b, 4, 40 << 20), 4);
    CHECK_EQ(b[0], 0);
}
TEST(locks_and_endpoints) {
    o_start();
    t_make("l/f", "");
    OK(o_mount(O_DATA));
    int r = SYS(open("m/f", O_RDONLY));
    OK(flock(r, LOCK_EX));
    // The copy is the same file to those who lock it.
    int w = SYS(open("m/f", O_RDWR));
    CHECK_ERR(flock(w, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    int s = SYS(socket(AF_UNIX, SOCK_STREAM, 0)), c = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    struct sockaddr_un a = {AF_UNIX, "m/sock"};
    OK(bind(s, (void *)&a, sizeof a));
    OK(listen(s, 1));
    OK(connect(c, (void *)&a, sizeof a));
    OK(mkfifo("m/p", 0644));
    int p = SYS(open("m/p", O_RDWR));
    int p2 = SYS(open("m/p", O_WRONLY));
    CHECK_EQ(write(p2, "x", 1), 1);
    char b;
    CHECK_EQ(read(p, &b, 1), 1);
}
TEST(times_of_access) {
    o_start();
    t_make("l/f", "x");
    struct timespec ts[2] = {{1000, 0}, {2000, 0}};
    SYS(utimensat(AT_FDCWD, "l/f", ts, 0));
    OK(o_mount(O_DATA));
    TEXT("m/f", "x");
    struct stat s;
    OK(stat("l/f", &s));
    CHECK_EQ(s.st_atim.tv_sec, 1000);
    OK(chmod("m/f", 0600));
    TEXT("m/f", "x");
    OK(stat("m/f", &s));
    CHECK(s.st_atim.tv_sec > 2000);
}
TEST(a_full_upper_layer) {
    o_start();
    SYS(mkdir("b", 0755));
    SYS(mount("t", "b", "tmpfs", 0, "size=64k"));
    SYS(mkdir("b/u", 0755));
    SYS(mkdir("b/w", 0755));
    int fd = SYS(open("l/f", O_CREAT | O_RDWR, 0644));
    static char text[200000];
    memset(text, 'x', sizeof text);
    CHECK_EQ(write(fd, text, sizeof text), sizeof text);
    OK(o_mount("lowerdir=l,upperdir=b/u,workdir=b/w"));
    CHECK_ERR(open("m/f", O_WRONLY), ENOSPC);
    CHECK_STR(o_names("b/w/work"), "");
    CHECK_STR(o_names("b/u"), "");
    struct stat s;
    OK(stat("m/f", &s));
    CHECK_EQ(s.st_size, sizeof text);
    close(SYS(open("m/f", O_WRONLY | O_TRUNC)));
    CHECK_ERR(access("m/g", F_OK), ENOENT);
}
