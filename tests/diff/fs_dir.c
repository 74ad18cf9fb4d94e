// Directories and names: link, symlink, rename, unlink, mkdir, rmdir, mknod, getdents64, chdir, getcwd, chroot.
#include "t.h"
#include <sys/prctl.h>
#include <dirent.h>
#include <sys/sysmacros.h>

static int count(const char *path, const char *name) {
    DIR *d = opendir(path);
    if (!d) return -1;
    int n = 0;
    struct dirent *e;
    while ((e = readdir(d))) n += name ? !strcmp(e->d_name, name) : strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}
TEST(link_of_deleted_file) {
    int fd = t_file("a", "x");
    char p[64];
    sprintf(p, "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, p, AT_FDCWD, "b", AT_SYMLINK_FOLLOW));
    SYS(unlink("a"));
    SYS(unlink("b"));
    CHECK_ERR(linkat(AT_FDCWD, p, AT_FDCWD, "c", AT_SYMLINK_FOLLOW), ENOENT);
    CHECK_ERR(linkat(fd, "", AT_FDCWD, "c", AT_EMPTY_PATH), ENOENT);
}
TEST(link_forms) {
    t_make("a", "x");
    struct stat s, t;
    OK(link("a", "b"));
    OK(stat("a", &s));
    OK(stat("b", &t));
    CHECK_EQ(s.st_ino, t.st_ino);
    CHECK_EQ(s.st_nlink, 2);
    SYS(unlink("a"));
    OK(stat("b", &t));
    CHECK_EQ(t.st_nlink, 1);
    CHECK_ERR(link("missing", "c"), ENOENT);
    CHECK_ERR(link("b", "b"), EEXIST);
    CHECK_ERR(link("b", "nodir/c"), ENOENT);
    CHECK_ERR(link("b", "b/c"), ENOTDIR);
    CHECK_ERR(link(".", "c"), EPERM);
    CHECK_ERR(link("b", ""), ENOENT);
    SYS(symlink("b", "l"));
    OK(link("l", "l2"));
    OK(lstat("l2", &t));
    CHECK(S_ISLNK(t.st_mode));
    OK(linkat(AT_FDCWD, "l", AT_FDCWD, "l3", AT_SYMLINK_FOLLOW));
    OK(lstat("l3", &t));
    CHECK(S_ISREG(t.st_mode));
    CHECK_ERR(linkat(AT_FDCWD, "b", AT_FDCWD, "z", 0x80000), EINVAL);
    int fd = SYS(open("b", O_RDONLY));
    OK(linkat(fd, "", AT_FDCWD, "from-fd", AT_EMPTY_PATH));
    CHECK_ERR(link("b", "/dev/t-link"), EXDEV);
}
// A descriptor gives a file another name for the credentials that opened it, unless they have changed since, and for
// those that have CAP_DAC_READ_SEARCH where these were.
TEST(link_by_descriptor) {
    SYS(chown(".", 1000, 1000));
    CHECK_CHILD({
        SYS(setresgid(1000, 1000, 1000));
        SYS(setresuid(1000, 1000, 1000));
        SYS(prctl(PR_SET_DUMPABLE, 1));
        int fd = t_file("mine", "x"), dir = SYS(open(".", O_RDONLY)), place = SYS(open("mine", O_PATH));
        OK(linkat(fd, "", AT_FDCWD, "a", AT_EMPTY_PATH));
        OK(linkat(place, "", AT_FDCWD, "a2", AT_EMPTY_PATH));
        CHECK_CHILD({
            CHECK_ERR(linkat(fd, "", AT_FDCWD, "b", AT_EMPTY_PATH), ENOENT);
            CHECK_ERR(linkat(place, "", AT_FDCWD, "b", AT_EMPTY_PATH), ENOENT);
            CHECK_ERR(linkat(dir, "mine", AT_FDCWD, "b", AT_EMPTY_PATH), ENOENT);
            OK(linkat(dir, "mine", AT_FDCWD, "b", 0));
            CHECK_ERR(linkat(AT_FDCWD, "", AT_FDCWD, "c", AT_EMPTY_PATH), EPERM); // a directory
            OK(linkat(AT_FDCWD, "mine", AT_FDCWD, "c", AT_EMPTY_PATH));
            int own = SYS(open("mine", O_RDONLY));
            OK(linkat(own, "", AT_FDCWD, "d", AT_EMPTY_PATH));
            char *path;
            MUST(asprintf(&path, "%s/mine", t_dir) > 0);
            OK(linkat(fd, path, AT_FDCWD, "e", AT_EMPTY_PATH));
        });
        SYS(setresuid(1000, 1000, 1000)); // changes nothing
        OK(linkat(fd, "", AT_FDCWD, "e2", AT_EMPTY_PATH));
        SYS(prctl(PR_SET_KEEPCAPS, 1));
        CHECK_ERR(linkat(fd, "", AT_FDCWD, "f", AT_EMPTY_PATH), ENOENT);
        // Root of another namespace is nobody here, and somebody there.
        fd = SYS(open("mine", O_RDONLY));
        SYS(unshare(CLONE_NEWUSER));
        t_make("/proc/self/uid_map", "0 1000 1");
        CHECK_ERR(linkat(fd, "", AT_FDCWD, "f", AT_EMPTY_PATH), ENOENT);
        fd = SYS(open("mine", O_RDONLY));
        CHECK_CHILD(OK(linkat(fd, "", AT_FDCWD, "f", AT_EMPTY_PATH)));
    });
    int fd = SYS(open("mine", O_RDONLY));
    CHECK_CHILD(OK(linkat(fd, "", AT_FDCWD, "g", AT_EMPTY_PATH)));
}
TEST(symlink_and_readlink) {
    char b[64] = "";
    OK(symlink("some/where", "l"));
    CHECK_EQ(readlink("l", b, sizeof b), 10);
    CHECK_STR(b, "some/where");
    CHECK_EQ(readlink("l", b, 4), 4);
    CHECK_ERR(readlink("l", b, 0), EINVAL);
    CHECK_ERR(readlink("missing", b, 64), ENOENT);
    CHECK_ERR(readlink(".", b, 64), EINVAL);
    CHECK_ERR(readlink("l", BAD_PTR, 64), EFAULT);
    CHECK_ERR(symlink("x", "l"), EEXIST);
    CHECK_ERR(symlink("", "m"), ENOENT);
    CHECK_ERR(symlink("x", "nodir/l"), ENOENT);
    CHECK_ERR(symlinkat("x", 999, "l"), EBADF);
    char big[4097];
    memset(big, 'x', 4096);
    big[4096] = 0;
    CHECK_ERR(symlink(big, "n"), ENAMETOOLONG);
    big[4095] = 0;
    int r = symlink(big, "n"); // some file systems keep fewer than 4095
    CHECK(r == 0 || errno == ENAMETOOLONG);
    SYS(unlink("l"));
    CHECK_ERR(lstat("l", &(struct stat){0}), ENOENT);
}
TEST(rename_files) {
    t_make("a", "A");
    t_make("b", "B");
    char buf[8];
    OK(rename("a", "b"));
    t_slurp("b", buf, 8);
    CHECK_STR(buf, "A");
    CHECK_ERR(access("a", F_OK), ENOENT);
    OK(rename("b", "b"));
    SYS(link("b", "c"));
    OK(rename("b", "c")); // two names of one file: nothing happens
    OK(access("b", F_OK));
    CHECK_ERR(rename("missing", "x"), ENOENT);
    CHECK_ERR(rename("b", "no/x"), ENOENT);
    CHECK_ERR(rename("b/x", "y"), ENOTDIR);
    CHECK_ERR(rename("b", "/proc/x"), EXDEV);
    CHECK_ERR(rename(BAD_PTR, "x"), EFAULT);
    CHECK_ERR(renameat(999, "a", AT_FDCWD, "b"), EBADF);
    CHECK_ERR(rename(".", "x"), EBUSY);
    CHECK_ERR(rename("b", "."), EBUSY);
    CHECK_ERR(rename("b", ""), ENOENT);
}
TEST(rename_directories) {
    SYS(mkdir("d", 0755));
    SYS(mkdir("d/sub", 0755));
    SYS(mkdir("e", 0755));
    SYS(mkdir("full", 0755));
    t_make("full/f", "");
    t_make("f", "");
    CHECK_ERR(rename("d", "d/sub/x"), EINVAL);
    CHECK_ERR(rename("d", "d/x"), EINVAL);
    CHECK_ERR(rename("d/sub", "d"), ENOTEMPTY);
    CHECK_ERR(rename("d", "full"), ENOTEMPTY);
    CHECK_ERR(rename("d", "f"), ENOTDIR);
    CHECK_ERR(rename("f", "d"), EISDIR);
    OK(rename("d", "e")); // over an empty one
    OK(access("e/sub", F_OK));
    OK(rename("e/sub", "moved"));
    struct stat a, b;
    OK(stat("moved/..", &a));
    OK(stat(".", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
    int fd = SYS(open("e", O_RDONLY));
    OK(rename("e", "g"));
    t_make("g/n", "");
    OK(faccessat(fd, "n", F_OK, 0));
}
TEST(renameat2_flags) {
    t_make("a", "A");
    t_make("b", "B");
    SYS(mkdir("d", 0755));
    t_make("d/f", "F");
    char buf[8];
    CHECK_ERR(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
    OK(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE));
    OK(renameat2(AT_FDCWD, "c", AT_FDCWD, "b", RENAME_EXCHANGE));
    t_slurp("b", buf, 8);
    CHECK_STR(buf, "A");
    t_slurp("c", buf, 8);
    CHECK_STR(buf, "B");
    OK(renameat2(AT_FDCWD, "b", AT_FDCWD, "d", RENAME_EXCHANGE));
    t_slurp("d", buf, 8);
    CHECK_STR(buf, "A");
    t_slurp("b/f", buf, 8);
    CHECK_STR(buf, "F");
    CHECK_ERR(renameat2(AT_FDCWD, "b", AT_FDCWD, "missing", RENAME_EXCHANGE), ENOENT);
    CHECK_ERR(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
    CHECK_ERR(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", 0x100), EINVAL);
    CHECK_ERR(renameat2(AT_FDCWD, "b", AT_FDCWD, "b/in", RENAME_EXCHANGE), ENOENT);
}
TEST(unlink_forms) {
    t_make("f", "");
    SYS(mkdir("d", 0755));
    SYS(symlink("d", "l"));
    OK(unlink("f"));
    CHECK_ERR(unlink("f"), ENOENT);
    CHECK_ERR(unlink("d"), EISDIR);
    OK(unlink("l"));
    OK(access("d", F_OK));
    CHECK_ERR(unlink("d/x"), ENOENT);
    CHECK_ERR(unlink("/"), EISDIR);
    CHECK_ERR(unlink(BAD_PTR), EFAULT);
    CHECK_ERR(unlink(""), ENOENT);
    CHECK_ERR(unlinkat(999, "f", 0), EBADF);
    CHECK_ERR(unlinkat(AT_FDCWD, "d", 0x1000), EINVAL);
    OK(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
    t_make("g", "");
    CHECK_ERR(unlinkat(AT_FDCWD, "g", AT_REMOVEDIR), ENOTDIR);
    CHECK_ERR(unlink("g/"), ENOTDIR);
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(unlink("g"), EACCES));
}
TEST(mkdir_forms) {
    OK(mkdir("d", 0777));
    struct stat st;
    OK(stat("d", &st));
    CHECK_EQ(st.st_mode, S_IFDIR | 0755);
    OK(mkdir("e/", 0700));
    OK(mkdir("s", 01777));
    OK(stat("s", &st));
    CHECK_EQ(st.st_mode & 07777, 01755);
    CHECK_ERR(mkdir("d", 0755), EEXIST);
    CHECK_ERR(mkdir("", 0755), ENOENT);
    CHECK_ERR(mkdir("x/y", 0755), ENOENT);
    CHECK_ERR(mkdir(".", 0755), EEXIST);
    CHECK_ERR(mkdir("/", 0755), EEXIST);
    CHECK_ERR(mkdir("d/.", 0755), EEXIST);
    CHECK_ERR(mkdir("new/.", 0755), ENOENT);
    t_make("f", "");
    CHECK_ERR(mkdir("f", 0755), EEXIST);
    CHECK_ERR(mkdir("f/x", 0755), ENOTDIR);
    SYS(symlink("nowhere", "l"));
    CHECK_ERR(mkdir("l", 0755), EEXIST);
    CHECK_ERR(mkdir(BAD_PTR, 0755), EFAULT);
    CHECK_ERR(mkdirat(999, "x", 0755), EBADF);
}
TEST(rmdir_forms) {
    SYS(mkdir("d", 0755));
    SYS(mkdir("d/e", 0755));
    t_make("f", "");
    CHECK_ERR(rmdir("d"), ENOTEMPTY);
    OK(rmdir("d/e"));
    OK(rmdir("d/"));
    CHECK_ERR(rmdir("d"), ENOENT);
    CHECK_ERR(rmdir("f"), ENOTDIR);
    SYS(mkdir("g", 0755));
    CHECK_ERR(rmdir("g/."), EINVAL);
    SYS(mkdir("g/h", 0755));
    CHECK_ERR(rmdir("g/h/.."), ENOTEMPTY);
    CHECK_ERR(rmdir("/"), EBUSY);
    SYS(symlink("g", "l"));
    CHECK_ERR(rmdir("l"), ENOTDIR);
    CHECK_ERR(rmdir("l/"), ENOTDIR);
}
TEST(removed_directory) {
    SYS(mkdir("d", 0755));
    SYS(chdir("d"));
    int fd = SYS(open(".", O_RDONLY));
    SYS(rmdir("../d"));
    char b[PATH_MAX];
    CHECK_ERR((long)getcwd(b, sizeof b) ? 0 : -1, ENOENT);
    CHECK_ERR(open("x", O_CREAT | O_RDWR, 0644), ENOENT);
    CHECK_ERR(mkdir("x", 0755), ENOENT);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_nlink, 0);
    CHECK_EQ(count(".", 0), 0);
    OK(chdir(".."));
}
TEST(mknod_forms) {
    struct stat st;
    OK(mknod("f", S_IFREG | 0644, 0));
    OK(mknod("g", 0600, 0)); // no kind: a file
    OK(stat("g", &st));
    CHECK(S_ISREG(st.st_mode));
    OK(mknod("p", S_IFIFO | 0644, 0));
    OK(mknod("s", S_IFSOCK | 0644, 0));
    CHECK_ERR(mknod("f", S_IFREG | 0644, 0), EEXIST);
    CHECK_ERR(mknod("d", S_IFDIR | 0755, 0), EPERM);
    CHECK_ERR(mknod("x", 0170000, 0), EINVAL);
    CHECK_ERR(mknod("no/x", S_IFREG, 0), ENOENT);
    SYS(chmod(".", 0777));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(mknod("c", S_IFCHR | 0666, makedev(1, 3)), EPERM); OK(mknod("q", S_IFIFO | 0600, 0)));
}
struct d64 {
    uint64_t ino;
    int64_t off;
    uint16_t len;
    uint8_t type;
    char name[];
};
TEST(getdents_raw) {
    t_make("file", "");
    SYS(mkdir("dir", 0755));
    SYS(symlink("x", "link"));
    SYS(mkfifo("fifo", 0644));
    int fd = SYS(open(".", O_RDONLY | O_DIRECTORY)), seen = 0;
    char b[4096] __attribute__((aligned(8)));
    int n = SYS((int)syscall(SYS_getdents64, fd, b, sizeof b));
    for (int at = 0; at < n;) {
        struct d64 *d = (void *)(b + at);
        CHECK_EQ(d->len % 8, 0);
        struct stat st;
        OK(lstat(d->name, &st));
        if (strcmp(d->name, "..")) CHECK_EQ(st.st_ino, d->ino);
        if (!strcmp(d->name, "file")) CHECK_EQ(d->type, DT_REG), seen |= 1;
        if (!strcmp(d->name, "dir")) CHECK_EQ(d->type, DT_DIR), seen |= 2;
        if (!strcmp(d->name, "link")) CHECK_EQ(d->type, DT_LNK), seen |= 4;
        if (!strcmp(d->name, "fifo")) CHECK_EQ(d->type, DT_FIFO), seen |= 8;
        if (!strcmp(d->name, ".")) CHECK_EQ(d->type, DT_DIR), seen |= 16;
        if (!strcmp(d->name, "..")) CHECK_EQ(d->type, DT_DIR), seen |= 32;
        at += d->len;
    }
    CHECK_EQ(seen, 63);
    OK(syscall(SYS_getdents64, fd, b, sizeof b));
    SYS(lseek(fd, 0, SEEK_SET));
    CHECK_ERR(syscall(SYS_getdents64, fd, b, 8), EINVAL);
    CHECK_ERR(syscall(SYS_getdents64, fd, BAD_PTR, 4096), EFAULT);
    CHECK_ERR(syscall(SYS_getdents64, 999, b, 4096), EBADF);
    CHECK_ERR(syscall(SYS_getdents64, SYS(open("file", O_RDONLY)), b, 4096), ENOTDIR);
    CHECK_EQ(syscall(SYS_getdents, fd, b, sizeof b) > 0, 1);
}
TEST(getdents_many_in_small_pieces) {
    SYS(mkdir("d", 0755));
    for (int i = 0; i < 500; i++) {
        char n[64];
        sprintf(n, "d/a-name-of-some-length-%d", i);
        t_make(n, "");
    }
    int fd = SYS(open("d", O_RDONLY)), total = 0, n;
    char b[256] __attribute__((aligned(8)));
    static char seen[500];
    while ((n = syscall(SYS_getdents64, fd, b, sizeof b)) > 0)
        for (int at = 0; at < n; at += ((struct d64 *)(b + at))->len) {
            total++;
            int i;
            if (sscanf(((struct d64 *)(b + at))->name, "a-name-of-some-length-%d", &i) == 1) seen[i]++;
        }
    OK(n);
    CHECK_EQ(total, 502);
    for (int i = 0; i < 500; i++)
        if (seen[i] != 1) {
            CHECK_EQ(seen[i], 1);
            break;
        }
}
TEST(getdents_while_deleting) {
    SYS(mkdir("d", 0755));
    for (int i = 0; i < 300; i++) {
        char n[32];
        sprintf(n, "d/f%d", i);
        t_make(n, "");
    }
    DIR *d = opendir("d");
    struct dirent *e;
    while ((e = readdir(d)))
        if (e->d_name[0] == 'f') OK(unlinkat(dirfd(d), e->d_name, 0));
    closedir(d);
    CHECK_EQ(count("d", 0), 0);
    OK(rmdir("d"));
}
TEST(seekdir_telldir) {
    for (int i = 0; i < 20; i++) {
        char n[16];
        sprintf(n, "f%d", i);
        t_make(n, "");
    }
    DIR *d = opendir(".");
    for (int i = 0; i < 7; i++) readdir(d);
    long at = telldir(d);
    char name[256];
    strcpy(name, readdir(d)->d_name);
    while (readdir(d)) {}
    seekdir(d, at);
    CHECK_STR(readdir(d)->d_name, name);
    rewinddir(d);
    int n = 0;
    while (readdir(d)) n++;
    CHECK_EQ(n, 22);
}
// Directories of a tmpfs have no end, those of proc and sysfs end where they begin.
TEST(ends_of_directories) {
    int shm = SYS(open("/dev/shm", O_RDONLY | O_DIRECTORY)), proc = SYS(open("/proc", O_RDONLY | O_DIRECTORY));
    CHECK_ERR(lseek(shm, 0, SEEK_END), EINVAL);
    CHECK_EQ(lseek(shm, 0, SEEK_SET), 0);
    CHECK_ERR(lseek(shm, LONG_MAX, SEEK_CUR) < 0 ? -1 : lseek(shm, 1, SEEK_CUR), EINVAL);
    CHECK_EQ(lseek(proc, 0, SEEK_END), 0);
    CHECK_ERR(lseek(proc, -1, SEEK_END), EINVAL);
    close(shm);
    close(proc);
}
TEST(new_entries_show) {
    CHECK_EQ(count(".", 0), 0);
    t_make("a", "");
    CHECK_EQ(count(".", "a"), 1);
    SYS(rename("a", "b"));
    CHECK_EQ(count(".", "a"), 0);
    CHECK_EQ(count(".", "b"), 1);
    SYS(unlink("b"));
    CHECK_EQ(count(".", 0), 0);
}
TEST(chdir_and_getcwd) {
    char base[PATH_MAX], b[PATH_MAX], want[PATH_MAX + 16];
    SYS((long)getcwd(base, sizeof base));
    SYS(mkdir("d", 0755));
    SYS(symlink("d", "l"));
    OK(chdir("l"));
    sprintf(want, "%s/d", base);
    CHECK_STR(getcwd(b, sizeof b), want);
    SYS(rename("../d", "../e"));
    sprintf(want, "%s/e", base);
    CHECK_STR(getcwd(b, sizeof b), want);
    OK(chdir(".."));
    CHECK_STR(getcwd(b, sizeof b), base);
    t_make("f", "");
    CHECK_ERR(chdir("f"), ENOTDIR);
    CHECK_ERR(chdir("missing"), ENOENT);
    CHECK_ERR(chdir(""), ENOENT);
    CHECK_ERR(chdir(BAD_PTR), EFAULT);
    CHECK_ERR(fchdir(999), EBADF);
    CHECK_ERR(fchdir(SYS(open("f", O_RDONLY))), ENOTDIR);
    CHECK_ERR(syscall(SYS_getcwd, b, 2), ERANGE);
    CHECK_ERR(syscall(SYS_getcwd, BAD_PTR, 100), EFAULT);
    CHECK_EQ(syscall(SYS_getcwd, b, sizeof b), strlen(base) + 1);
    SYS(mkdir("no", 0700));
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(chdir("no"), EACCES));
    OK(chdir("/"));
    CHECK_STR(getcwd(b, sizeof b), "/");
}
TEST(chroot_forms) {
    SYS(mkdir("r", 0755));
    SYS(mkdir("r/in", 0755));
    t_make("outside", "");
    t_make("r/in/f", "");
    SYS(symlink("/in/f", "r/abs"));
    SYS(chmod(".", 0755));
    CHECK_ERR(chroot("missing"), ENOENT);
    CHECK_ERR(chroot("outside"), ENOTDIR);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(chroot("r"), EPERM));
    int out = SYS(open(".", O_RDONLY));
    CHECK_CHILD(OK(chroot("r")); OK(access("/in/f", F_OK)); OK(access("/abs", F_OK)); CHECK_ERR(access("/outside", F_OK), ENOENT);
                OK(access("outside", F_OK)); // the old directory is still the current one
                OK(chdir("/")); CHECK_ERR(access("../outside", F_OK), ENOENT); OK(faccessat(out, "outside", F_OK, 0)); char b[64];
                CHECK_STR(getcwd(b, sizeof b), "/"); OK(chdir("in")); CHECK_STR(getcwd(b, sizeof b), "/in"));
}
TEST(long_names_and_paths) {
    char n[257], deep[PATH_MAX];
    memset(n, 'n', sizeof n);
    n[255] = 0;
    OK(mkdir(n, 0755));
    n[255] = 'n', n[256] = 0;
    CHECK_ERR(mkdir(n, 0755), ENAMETOOLONG);
    n[200] = 0;
    // 30 levels of 200: longer than PATH_MAX in the end
    for (int i = 0; i < 30; i++) {
        SYS(mkdir(n, 0755));
        SYS(chdir(n));
    }
    t_make("bottom", "");
    CHECK_ERR((long)syscall(SYS_getcwd, deep, sizeof deep), 4096 < 30 * 201 ? ENAMETOOLONG == errno ? ENAMETOOLONG : ERANGE : 0);
    OK(unlink("bottom"));
    for (int i = 0; i < 30; i++) {
        SYS(chdir(".."));
        OK(rmdir(n));
    }
}
TEST(thousand_files) {
    for (int i = 0; i < 1000; i++) {
        char n[16];
        sprintf(n, "f%d", i);
        t_make(n, n);
    }
    CHECK_EQ(count(".", 0), 1000);
    char b[16];
    for (int i = 0; i < 1000; i += 37) {
        char n[16];
        sprintf(n, "f%d", i);
        t_slurp(n, b, sizeof b);
        CHECK_STR(b, n);
    }
    for (int i = 0; i < 1000; i++) {
        char n[16];
        sprintf(n, "f%d", i);
        SYS(unlink(n));
    }
    CHECK_EQ(count(".", 0), 0);
}
TEST(lower_layer_files_can_be_replaced_and_removed) {
    // whatever / is made of, a file of it can be changed by root, renamed and removed, and stays so for us
    SYS(mkdir("/tmp/t-lower", 0755));
    t_make("/tmp/t-lower/f", "1");
    SYS(rename("/tmp/t-lower", "/tmp/t-lower2"));
    CHECK_ERR(access("/tmp/t-lower", F_OK), ENOENT);
    OK(unlink("/tmp/t-lower2/f"));
    OK(rmdir("/tmp/t-lower2"));
    SYS(mkdir("/tmp/t-lower2", 0755));
    CHECK_EQ(count("/tmp/t-lower2", 0), 0);
    OK(rmdir("/tmp/t-lower2"));
}
struct raw {
    uint64_t ino;
    int64_t next;
    uint16_t len;
    uint8_t kind;
    char name[];
};
TEST(getdents_stops_at_memory_that_cannot_be_written) {
    for (int i = 0; i < 40; i++) {
        char n[40];
        sprintf(n, "a_rather_long_name_%d", i);
        t_make(n, "");
    }
    char *m = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mprotect(m + 4096, 4096, PROT_NONE));
    int fd = SYS(open(".", O_RDONLY | O_DIRECTORY)), total = 0, calls = 0;
    for (;;) {
        // Room for some entries, then none.
        char *at = m + 4096 - 200;
        long n = syscall(SYS_getdents64, fd, at, 4096);
        CHECK(n >= 0 && n <= 200);
        if (n <= 0) break;
        calls++;
        for (long i = 0; i < n; total++) i += ((struct raw *)(at + i))->len;
    }
    CHECK_EQ(total, 42);
    CHECK(calls > 5);
    OK(lseek(fd, 0, SEEK_SET));
    CHECK_ERR(syscall(SYS_getdents64, fd, m + 4096 - 10, 4096), EFAULT);
    CHECK(syscall(SYS_getdents64, fd, m, 4096) > 0);
    OK(lseek(fd, 0, SEEK_SET));
    CHECK_ERR(syscall(SYS_getdents64, fd, m, 0x80000000u), EINVAL);
    CHECK_ERR(syscall(SYS_getdents, fd, m, 0xffffffffu), EINVAL);
    CHECK_ERR(syscall(SYS_getdents64, fd, m, 10), EINVAL);
}
