// open, openat, openat2, creat, close: flags and errors, path resolution.
#include "t.h"
#include <grp.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

static long openat2_(int d, const char *p, struct open_how *h, size_t n) { return syscall(SYS_openat2, d, p, h, n); }

TEST(open_creates_with_mode_and_umask) {
    umask(027);
    int fd = SYS(open("f", O_CREAT | O_WRONLY, 0666));
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0640);
    CHECK_EQ(st.st_size, 0);
    CHECK_EQ(st.st_nlink, 1);
    CHECK_EQ(st.st_uid, geteuid());
    umask(0);
    fd = SYS(creat("g", 07777));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode, S_IFREG | 07777);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_WRONLY);
}
TEST(open_lowest_descriptor) {
    int a = SYS(open("/dev/null", O_RDONLY)), b = SYS(open("/dev/null", O_RDONLY)), c = SYS(open("/dev/null", O_RDONLY));
    CHECK_EQ(b, a + 1);
    CHECK_EQ(c, a + 2);
    close(b);
    CHECK_EQ(open("/dev/null", O_RDONLY), b);
    close(a);
    close(c);
    CHECK_EQ(open("/dev/null", O_RDONLY), a);
}
TEST(open_errors) {
    SYS(mkdir("d", 0755));
    t_make("f", "x");
    SYS(symlink("loop", "loop"));
    SYS(symlink("nowhere", "dangling"));
    CHECK_ERR(open("missing", O_RDONLY), ENOENT);
    CHECK_ERR(open("", O_RDONLY), ENOENT);
    CHECK_ERR(open("missing/x", O_RDONLY | O_CREAT, 0644), ENOENT);
    CHECK_ERR(open("f/x", O_RDONLY), ENOTDIR);
    CHECK_ERR(open("f/", O_RDONLY), ENOTDIR);
    CHECK_ERR(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK_ERR(open("d", O_WRONLY), EISDIR);
    CHECK_ERR(open("d", O_RDWR), EISDIR);
    CHECK_ERR(open("d", O_RDONLY | O_CREAT, 0644), EISDIR);
    CHECK_ERR(open("new/", O_RDWR | O_CREAT, 0644), EISDIR);
    CHECK_ERR(open("f", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST);
    CHECK_ERR(open("dangling", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST);
    CHECK_ERR(open("d", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST);
    CHECK_ERR(open("loop", O_RDONLY), ELOOP);
    CHECK_ERR(open("dangling", O_RDONLY), ENOENT);
    CHECK_ERR(open("dangling", O_RDONLY | O_NOFOLLOW), ELOOP);
    CHECK_ERR(open(BAD_PTR, O_RDONLY), EFAULT);
    CHECK_ERR(openat(999, "f", O_RDONLY), EBADF);
    CHECK_ERR(openat(SYS(open("f", O_RDONLY)), "f", O_RDONLY), ENOTDIR);
    CHECK_ERR(open("f", O_RDONLY | O_TMPFILE), EINVAL);
    CHECK_ERR(close(999), EBADF);
    CHECK_ERR(close(-1), EBADF);
    char n[4200];
    memset(n, 'a', sizeof n);
    n[256] = 0;
    CHECK_ERR(open(n, O_RDONLY), ENAMETOOLONG);
    n[255] = 0;
    CHECK_ERR(open(n, O_RDONLY), ENOENT);
    int fd = SYS(open(n, O_CREAT | O_RDWR, 0644));
    close(fd);
    for (int i = 0; i < 4199; i += 2) memcpy(n + i, "./", 2);
    n[4096] = 0;
    CHECK_ERR(open(n, O_RDONLY), ENAMETOOLONG);
    n[4095] = 0;
    OK(open(n, O_RDONLY) < 0);
}
TEST(open_dangling_symlink_creates_target) {
    SYS(symlink("target", "link"));
    close(SYS(open("link", O_CREAT | O_WRONLY, 0600)));
    OK(access("target", F_OK));
}
TEST(open_trunc) {
    t_make("f", "content");
    struct stat st;
    close(SYS(open("f", O_WRONLY | O_TRUNC)));
    OK(stat("f", &st));
    CHECK_EQ(st.st_size, 0);
}
TEST(open_append) {
    t_make("f", "one");
    int a = SYS(open("f", O_WRONLY | O_APPEND)), b = SYS(open("f", O_WRONLY | O_APPEND));
    CHECK_EQ(write(a, "two", 3), 3);
    CHECK_EQ(write(b, "three", 5), 5);
    SYS(lseek(a, 0, SEEK_SET));
    CHECK_EQ(write(a, "four", 4), 4);
    CHECK_EQ(lseek(a, 0, SEEK_CUR), 15);
    CHECK_EQ(pwrite(a, "five", 4, 0), 4); // appends all the same
    char buf[64];
    t_slurp("f", buf, sizeof buf);
    CHECK_STR(buf, "onetwothreefourfive");
}
TEST(open_access_modes) {
    t_make("f", "x");
    char c;
    int r = SYS(open("f", O_RDONLY)), w = SYS(open("f", O_WRONLY));
    CHECK_ERR(write(r, "y", 1), EBADF);
    CHECK_ERR(read(w, &c, 1), EBADF);
    CHECK_ERR(ftruncate(r, 0), EINVAL);
    int n = SYS(open("f", O_ACCMODE)); // 3: for ioctl only
    CHECK_ERR(read(n, &c, 1), EBADF);
    CHECK_ERR(write(n, "y", 1), EBADF);
}
TEST(open_path_descriptor) {
    t_make("f", "x");
    SYS(symlink("f", "l"));
    SYS(mkdir("d", 0755));
    t_make("d/g", "y");
    char c;
    struct stat st;
    int fd = SYS(open("f", O_PATH)), l = SYS(open("l", O_PATH | O_NOFOLLOW)), d = SYS(open("d", O_PATH | O_DIRECTORY));
    CHECK_ERR(read(fd, &c, 1), EBADF);
    CHECK_ERR(write(fd, &c, 1), EBADF);
    CHECK_ERR(lseek(fd, 0, SEEK_SET), EBADF);
    CHECK_ERR(fchmod(fd, 0600), EBADF);
    CHECK_ERR(fchown(fd, 0, 0), EBADF);
    CHECK_ERR(ftruncate(fd, 0), EBADF);
    CHECK_ERR(fsync(fd), EBADF);
    CHECK_ERR(ioctl(fd, 0x5401, &c), EBADF);
    OK(fstat(fd, &st));
    OK(fstat(l, &st));
    CHECK(S_ISLNK(st.st_mode));
    CHECK_EQ(fcntl(fd, F_GETFL) & O_PATH, O_PATH);
    int e = SYS(dup(fd));
    close(e);
    char b[16] = "";
    CHECK_EQ(readlinkat(l, "", b, sizeof b), 1);
    CHECK_STR(b, "f");
    close(SYS(openat(d, "g", O_RDONLY)));
    OK(fchdir(d));
    OK(access("g", F_OK));
    CHECK_ERR(open("nothing", O_PATH | O_CREAT, 0644), ENOENT);
}
TEST(open_path_reopened_through_proc) {
    t_make("f", "through");
    int fd = SYS(open("f", O_PATH));
    char p[64], b[16];
    sprintf(p, "/proc/self/fd/%d", fd);
    CHECK_EQ(t_slurp(p, b, sizeof b), 7);
    CHECK_STR(b, "through");
    SYS(unlink("f"));
    int w = SYS(open(p, O_RDWR));
    CHECK_EQ(write(w, "T", 1), 1);
}
TEST(open_tmpfile) {
    int fd = SYS(open(".", O_TMPFILE | O_RDWR, 0600));
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
    CHECK_EQ(st.st_mode, S_IFREG | 0600);
    CHECK_EQ(write(fd, "tmp", 3), 3);
    char p[64], b[16];
    sprintf(p, "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, p, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    t_slurp("named", b, sizeof b);
    CHECK_STR(b, "tmp");
    fd = SYS(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600));
    sprintf(p, "/proc/self/fd/%d", fd);
    CHECK_ERR(linkat(AT_FDCWD, p, AT_FDCWD, "other", AT_SYMLINK_FOLLOW), ENOENT);
    CHECK_ERR(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
}
TEST(open_permissions) {
    t_make("secret", "x");
    SYS(chmod("secret", 0600));
    SYS(mkdir("dir", 0700));
    t_make("dir/f", "x");
    SYS(mkdir("xonly", 0711));
    t_make("xonly/f", "x");
    t_make("ro", "x");
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(open("secret", O_RDONLY), EACCES); CHECK_ERR(open("dir/f", O_RDONLY), EACCES);
                CHECK(open("xonly/f", O_RDONLY) >= 0); CHECK_ERR(open("xonly", O_RDONLY), EACCES); CHECK_ERR(open("ro", O_WRONLY), EACCES);
                CHECK_ERR(open("ro", O_RDONLY | O_TRUNC), EACCES); CHECK_ERR(open("new", O_CREAT | O_WRONLY, 0644), EACCES);
                CHECK(open("ro", O_RDONLY) >= 0); CHECK_ERR(open("secret", O_PATH) < 0 ? -1 : (errno = 0, -1), 0));
    CHECK(open("secret", O_RDWR) >= 0); // root may
}
TEST(open_created_without_permission_is_still_writable) {
    CHECK_CHILD(SYS(chmod(".", 0777)); SYS(setuid(1000)); int fd = SYS(open("f", O_CREAT | O_RDWR, 0)); CHECK_EQ(write(fd, "x", 1), 1);
                CHECK_ERR(open("f", O_RDONLY), EACCES));
}
TEST(open_group_and_setgid_directory) {
    SYS(mkdir("d", 0777));
    SYS(chown("d", 0, 500));
    SYS(chmod("d", 02777));
    t_make("d/f", "");
    struct stat st;
    OK(stat("d/f", &st));
    CHECK_EQ(st.st_gid, 500);
    SYS(mkdir("d/sub", 0755));
    OK(stat("d/sub", &st));
    CHECK_EQ(st.st_gid, 500);
    CHECK(st.st_mode & S_ISGID);
}
TEST(open_sticky_protected) {
    // files of others in a sticky directory cannot be removed
    SYS(mkdir("d", 0777));
    SYS(chmod("d", 01777));
    t_make("d/f", "");
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(unlink("d/f"), EPERM); CHECK_ERR(rename("d/f", "d/g"), EPERM));
}
TEST(open_fd_limit) {
    struct rlimit r = {10, 10};
    CHECK_CHILD(SYS(setrlimit(RLIMIT_NOFILE, &r)); int n = 0; while (n < 20 && open("/dev/null", O_RDONLY) >= 0) n++;
                CHECK_EQ(errno, EMFILE); CHECK(n <= 7); CHECK_ERR(dup(0), EMFILE); int p[2]; CHECK_ERR(pipe(p), EMFILE);
                CHECK_ERR(fcntl(0, F_DUPFD, 10), EINVAL); CHECK_ERR(dup2(0, 10), EBADF));
}
TEST(open_dir_relative) {
    SYS(mkdir("a", 0755));
    SYS(mkdir("a/b", 0755));
    t_make("a/b/f", "deep");
    int a = SYS(open("a", O_RDONLY | O_DIRECTORY)), b = SYS(openat(a, "b", O_RDONLY));
    char buf[16] = "";
    int f = SYS(openat(b, "f", O_RDONLY));
    CHECK_EQ(read(f, buf, 16), 4);
    close(SYS(openat(b, "../b/./f", O_RDONLY)));
    close(SYS(openat(a, "/dev/null", O_RDONLY)));
    CHECK_ERR(openat(b, "../f", O_RDONLY), ENOENT);
    SYS(rename("a/b", "c"));
    close(SYS(openat(b, "f", O_RDONLY)));
    CHECK_ERR(openat(b, "../b", O_RDONLY), ENOENT);
    close(SYS(openat(b, "../c/f", O_RDONLY)));
    SYS(unlink("c/f"));
    SYS(rmdir("c"));
    CHECK_ERR(openat(b, "f", O_CREAT | O_RDWR, 0644), ENOENT);
}
TEST(open_symlink_resolution) {
    SYS(mkdir("d", 0755));
    t_make("d/f", "x");
    SYS(symlink("d", "ld"));
    SYS(symlink("ld/f", "lf"));
    close(SYS(open("lf", O_RDONLY)));
    close(SYS(open("ld/f", O_RDONLY | O_NOFOLLOW)));
    CHECK_ERR(open("lf", O_RDONLY | O_NOFOLLOW), ELOOP);
    close(SYS(open("ld/", O_RDONLY | O_NOFOLLOW)));
    CHECK_ERR(open("ld", O_RDONLY | O_NOFOLLOW | O_DIRECTORY), ENOTDIR);
    char cwd[300], t[400];
    SYS((long)getcwd(cwd, sizeof cwd));
    sprintf(t, "%s/d/../ld/f", cwd);
    SYS(symlink(t, "abs"));
    close(SYS(open("abs", O_RDONLY)));
    // 40 links in a row are the most
    t_make("l0", "end");
    for (int i = 1; i <= 41; i++) {
        char a[8], b[8];
        sprintf(a, "l%d", i - 1);
        sprintf(b, "l%d", i);
        SYS(symlink(a, b));
    }
    close(SYS(open("l40", O_RDONLY)));
    CHECK_ERR(open("l41", O_RDONLY), ELOOP);
}
TEST(open_dot_and_dotdot) {
    SYS(mkdir("d", 0755));
    struct stat a, b;
    OK(stat(".", &a));
    OK(stat("d/..", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
    OK(stat("/..", &a));
    OK(stat("/", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
    OK(stat("//", &a));
    CHECK_EQ(a.st_ino, b.st_ino);
    CHECK_ERR(open("d/missing/..", O_RDONLY), ENOENT);
    t_make("f", "");
    CHECK_ERR(open("f/..", O_RDONLY), ENOTDIR);
    CHECK_ERR(open("f/.", O_RDONLY), ENOTDIR);
}
TEST(open_unlinked_file_lives_on) {
    int fd = t_file("f", "ghost");
    SYS(unlink("f"));
    char b[8] = "";
    CHECK_EQ(pread(fd, b, 8, 0), 5);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
    CHECK_EQ(write(fd, "!", 1), 1);
    CHECK_ERR(open("f", O_RDONLY), ENOENT);
    t_make("f", "new");
    CHECK_EQ(pread(fd, b, 8, 0), 6);
    CHECK_MEM(b, "ghost!", 6);
}
TEST(open_fifo_nonblock) {
    SYS(mkfifo("p", 0644));
    CHECK_ERR(open("p", O_WRONLY | O_NONBLOCK), ENXIO);
    int r = SYS(open("p", O_RDONLY | O_NONBLOCK));
    int w = SYS(open("p", O_WRONLY | O_NONBLOCK));
    CHECK_EQ(write(w, "x", 1), 1);
    char c;
    CHECK_EQ(read(r, &c, 1), 1);
}
TEST(open_socket_file) {
    SYS(mknod("s", S_IFSOCK | 0644, 0));
    CHECK_ERR(open("s", O_RDONLY), ENXIO);
}
TEST(open_getfl) {
    int fd = SYS(open("f", O_CREAT | O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_TRUNC, 0644));
    CHECK_EQ(fcntl(fd, F_GETFL), O_RDWR | O_APPEND | O_NONBLOCK | 0100000);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    int d = SYS(open(".", O_DIRECTORY));
    CHECK_EQ(fcntl(d, F_GETFL), O_DIRECTORY | 0100000);
    CHECK_EQ(fcntl(SYS(open("f", O_PATH | O_RDWR | O_APPEND)), F_GETFL), O_PATH);
}
TEST(open_noatime_permission) {
    t_make("f", "x");
    close(SYS(open("f", O_RDONLY | O_NOATIME)));
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(open("f", O_RDONLY | O_NOATIME), EPERM));
}
TEST(openat2_plain_and_errors) {
    t_make("f", "x");
    struct open_how h = {.flags = O_RDONLY | O_CLOEXEC};
    int fd = SYS((int)openat2_(AT_FDCWD, "f", &h, sizeof h));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_ERR(openat2_(AT_FDCWD, "f", &h, 8), EINVAL);
    CHECK_ERR(openat2_(AT_FDCWD, "f", &h, 1 << 20), E2BIG);
    CHECK_ERR(openat2_(AT_FDCWD, "f", BAD_PTR, sizeof h), EFAULT);
    h.mode = 0644;
    CHECK_ERR(openat2_(AT_FDCWD, "f", &h, sizeof h), EINVAL);
    h = (struct open_how){.flags = O_CREAT | O_RDWR, .mode = 010000};
    CHECK_ERR(openat2_(AT_FDCWD, "g", &h, sizeof h), EINVAL);
    h = (struct open_how){.flags = 1UL << 40};
    CHECK_ERR(openat2_(AT_FDCWD, "f", &h, sizeof h), EINVAL);
    h = (struct open_how){.resolve = 1UL << 40};
    CHECK_ERR(openat2_(AT_FDCWD, "f", &h, sizeof h), EINVAL);
    struct {
        struct open_how h;
        long more;
    } big = {.h = {.flags = O_RDONLY}};
    SYS((int)openat2_(AT_FDCWD, "f", &big.h, sizeof big));
    big.more = 1;
    CHECK_ERR(openat2_(AT_FDCWD, "f", &big.h, sizeof big), E2BIG);
}
TEST(openat2_resolve) {
    SYS(mkdir("d", 0755));
    t_make("d/f", "x");
    t_make("out", "x");
    SYS(symlink("d", "ld"));
    SYS(symlink("../out", "d/up"));
    SYS(symlink("/dev/null", "d/abs"));
    int d = SYS(open("d", O_RDONLY));
    struct open_how h = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH};
    SYS((int)openat2_(d, "f", &h, sizeof h));
    CHECK_ERR(openat2_(d, "../out", &h, sizeof h), EXDEV);
    CHECK_ERR(openat2_(d, "up", &h, sizeof h), EXDEV);
    CHECK_ERR(openat2_(d, "abs", &h, sizeof h), EXDEV);
    CHECK_ERR(openat2_(d, "/dev/null", &h, sizeof h), EXDEV);
    h.resolve = RESOLVE_NO_SYMLINKS;
    CHECK_ERR(openat2_(AT_FDCWD, "ld/f", &h, sizeof h), ELOOP);
    SYS((int)openat2_(AT_FDCWD, "d/f", &h, sizeof h));
    h.resolve = RESOLVE_IN_ROOT;
    SYS((int)openat2_(d, "/f", &h, sizeof h));
    SYS((int)openat2_(d, "../../f", &h, sizeof h));
    CHECK_ERR(openat2_(d, "up", &h, sizeof h), ENOENT);
    CHECK_ERR(openat2_(d, "abs", &h, sizeof h), ENOENT);
    h.resolve = RESOLVE_NO_MAGICLINKS;
    char p[64];
    sprintf(p, "/proc/self/fd/%d", d);
    CHECK_ERR(openat2_(AT_FDCWD, p, &h, sizeof h), ELOOP);
    h.resolve = RESOLVE_NO_XDEV;
    CHECK_ERR(openat2_(AT_FDCWD, "/proc/self/status", &h, sizeof h), EXDEV);
    SYS((int)openat2_(AT_FDCWD, "d/f", &h, sizeof h));
    // Absolute paths and links are judged by where the process is.
    SYS(symlink("/", "d/root"));
    char own[300], proc = SYS(open("/proc", O_RDONLY));
    sprintf(own, "%s/d/root", t_dir);
    SYS((int)openat2_(AT_FDCWD, "/", &h, sizeof h));
    SYS((int)openat2_(proc, "/", &h, sizeof h));
    CHECK_ERR(openat2_(proc, "/proc", &h, sizeof h), EXDEV);
    // A relative path has no root before it goes up: an absolute link is refused, wherever it leads.
    CHECK_ERR(openat2_(d, "root", &h, sizeof h), EXDEV);
    CHECK_ERR(openat2_(d, "abs", &h, sizeof h), EXDEV);
    SYS((int)openat2_(d, "up", &h, sizeof h));
    struct statx root, here;
    SYS(statx(AT_FDCWD, "/", 0, 0x1000, &root));
    SYS(statx(AT_FDCWD, "d", 0, 0x1000, &here));
    if (root.stx_mnt_id == here.stx_mnt_id) {
        SYS((int)openat2_(AT_FDCWD, own, &h, sizeof h));
        SYS((int)openat2_(d, "../d/root", &h, sizeof h));
        SYS((int)openat2_(d, "./../d/root", &h, sizeof h));
    } else {
        CHECK_ERR(openat2_(AT_FDCWD, own, &h, sizeof h), EXDEV);
        CHECK_ERR(openat2_(d, "../d/root", &h, sizeof h), EXDEV);
    }
    CHECK_ERR(openat2_(AT_FDCWD, "d/abs", &h, sizeof h), EXDEV);
}
TEST(open_by_proc_self_fd_dir) {
    SYS(mkdir("d", 0755));
    t_make("d/f", "via");
    int d = SYS(open("d", O_PATH));
    char p[400], b[8];
    sprintf(p, "/proc/self/fd/%d/f", d);
    t_slurp(p, b, sizeof b);
    CHECK_STR(b, "via");
    sprintf(p, "/proc/self/cwd/d/f");
    t_slurp(p, b, sizeof b);
    CHECK_STR(b, "via");
    sprintf(p, "/proc/self/root%s/d/f", t_dir);
    t_slurp(p, b, sizeof b);
    CHECK_STR(b, "via");
}
TEST(open_excl_race_has_one_winner) {
    int *wins = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int round = 0; round < 10; round++) {
        char n[16];
        sprintf(n, "f%d", round);
        pid_t p[4];
        *wins = 0;
        for (int i = 0; i < 4; i++)
            if ((p[i] = FORK()) == 0) {
                if (open(n, O_CREAT | O_EXCL | O_RDWR, 0600) >= 0) __sync_fetch_and_add(wins, 1);
                else CHECK_EQ(errno, EEXIST);
                _exit(0);
            }
        for (int i = 0; i < 4; i++) t_status(p[i]);
        CHECK_EQ(*wins, 1);
    }
}
TEST(open_write_to_running_program) {
    CHECK_ERR(open(t_self, O_WRONLY), ETXTBSY);
    CHECK_ERR(truncate(t_self, 0), ETXTBSY);
}
TEST(setgid_of_a_non_member_whatever_the_umask) {
    SYS(chmod(".", 0755));
    SYS(mkdir("d", 0777));
    SYS(chown("d", 0, 1234));
    SYS(chmod("d", 02777));
    for (int mask = 0; mask <= 077; mask += 010)
        CHECK_CHILD({
            umask(mask);
            OK(setgroups(0, 0));
            OK(setgid(5555));
            OK(setuid(5555));
            struct stat st;
            char n[4][32];
            for (int i = 0; i < 4; i++) sprintf(n[i], "d/%d-%d", mask, i);
            close(SYS(open(n[0], O_CREAT | O_RDWR, 02770)));
            OK(mknod(n[1], S_IFREG | 02770, 0));
            OK(mkdir(n[2], 0770));
            close(SYS(open(n[3], O_CREAT | O_RDWR, 02760)));
            for (int i = 0; i < 4; i++) {
                OK(stat(n[i], &st));
                CHECK_EQ(st.st_gid, 1234);
                CHECK_EQ(st.st_mode & 02000, i < 2 ? 0 : 02000);
                CHECK_EQ(st.st_mode & 0777, (i == 3 ? 0760 : 0770) & ~mask);
            }
        });
}
TEST(direct_is_for_files_with_blocks) {
    SYS(mkdir("d", 0755));
    SYS(mkfifo("p", 0644));
    t_make("f", "x");
    CHECK_ERR(open("d", O_RDONLY | O_DIRECT), EINVAL);
    CHECK_ERR(open("p", O_RDWR | O_DIRECT), EINVAL);
    CHECK_ERR(open("/proc/self/status", O_RDONLY | O_DIRECT), EINVAL);
    CHECK_ERR(open("/proc", O_RDONLY | O_DIRECT), EINVAL);
    CHECK_ERR(open("/dev/null", O_RDONLY | O_DIRECT), EINVAL);
    int f = SYS(open("f", O_RDONLY | O_DIRECT)), d = SYS(open("d", O_RDONLY)), p = SYS(open("p", O_RDWR)), n = SYS(open("/dev/null", O_RDWR));
    OK(fcntl(f, F_SETFL, 0));
    OK(fcntl(f, F_SETFL, O_DIRECT));
    CHECK_ERR(fcntl(d, F_SETFL, O_DIRECT), EINVAL);
    CHECK_ERR(fcntl(n, F_SETFL, O_DIRECT), EINVAL);
    OK(fcntl(p, F_SETFL, O_DIRECT));
}
