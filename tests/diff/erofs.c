// EROFS: images in loop devices and in files. See Linux's Documentation/filesystems/erofs.rst.
#include "t.h"
#include <dirent.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define MAGIC 0xe0f5e1e2
#define BIG 300000

static char big_byte(int i) { return i * 7 + i / 251; }

// A tmpfs in a mount namespace of its own, as the working directory, with a tree of all kinds of objects in `tree`.
static void tree(void) {
    if (getuid()) SKIP("root only");
    if (system("command -v mkfs.erofs >/dev/null")) SKIP("no mkfs.erofs");
    SYS(unshare(CLONE_NEWNS));
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    OK(mkdir("m", 0700));
    OK(mount("none", "m", "tmpfs", 0, NULL));
    OK(chdir("m"));
    OK(mkdir("at", 0755));
    OK(mkdir("tree", 0755));
    t_make("tree/small", "hello");
    OK(chmod("tree/small", 04711));
    OK(link("tree/small", "tree/same"));
    t_make("tree/empty", "");
    OK(symlink("small", "tree/link"));
    OK(mkfifo("tree/fifo", 0600));
    if (mknod("tree/null", S_IFCHR | 0666, makedev(1, 3)) < 0) SKIP("no device nodes");
    OK(mkdir("tree/dir", 0750));
    OK(chown("tree/dir", 70000, 80000));
    char name[300], b[BIG];
    for (int i = 0; i < 400; i++) {
        sprintf(name, "tree/dir/%d-with-a-name-that-fills-blocks", i);
        t_make(name, "x");
    }
    for (int i = 0; i < BIG; i++) b[i] = big_byte(i);
    int fd = SYS(open("tree/big", O_WRONLY | O_CREAT, 0644));
    CHECK_EQ(write(fd, b, BIG), BIG);
    close(fd);
    fd = SYS(open("tree/holes", O_WRONLY | O_CREAT, 0644));
    CHECK_EQ(pwrite(fd, "a", 1, 0), 1);
    CHECK_EQ(pwrite(fd, "z", 1, 100000), 1);
    close(fd);
    OK(setxattr("tree/small", "trusted.one", "1", 1, 0));
    OK(setxattr("tree/dir", "trusted.one", "1", 1, 0));
    OK(setxattr("tree/big", "trusted.two", "two", 3, 0));
}
static void image(const char *options) {
    char command[200];
    tree();
    // mkfs.erofs 1.5 cannot write chunks to a tmpfs.
    sprintf(command, "mkfs.erofs %s ../image tree >/dev/null 2>&1 && mv ../image .", options);
    if (system(command)) SKIP("mkfs.erofs fails");
}
static int no_erofs(void) {
    static char b[4096];
    t_slurp("/proc/filesystems", b, sizeof b);
    return !strstr(b, "\terofs");
}

// Mounts the image by a device that nobody has.
static char node[64];
static int device;
static void attach(int read_only) {
    if (no_erofs()) SKIP("no erofs");
    if (access("control", F_OK)) OK(mknod("control", S_IFCHR | 0600, makedev(10, 237)));
    static int lock = -1;
    if (lock < 0) lock = SYS(open("/dev/zero", O_RDONLY));
    OK(flock(lock, LOCK_EX));
    int control = open("control", O_RDWR);
    if (control < 0) SKIP("no loop devices");
    int number = SYS(ioctl(control, LOOP_CTL_GET_FREE));
    sprintf(node, "loop%d", number);
    if (access(node, F_OK)) OK(mknod(node, S_IFBLK | 0600, makedev(7, number)));
    close(control);
    device = SYS(open(node, O_RDWR));
    struct loop_config c = {.fd = SYS(open("image", O_RDWR))};
    c.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
    OK(ioctl(device, LOOP_CONFIGURE, &c));
    close(c.fd);
}
static void mounted(const char *options) {
    image(options);
    attach(0);
    OK(mount(node, "at", "erofs", 0, NULL));
    close(device);
}

// What is mounted is what was packed.
static void same(void) {
    struct stat s, t;
    const char *all[] = {"small", "same", "empty", "link", "fifo", "null", "dir", "big", "holes",
                         "dir/7-with-a-name-that-fills-blocks"};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        char a[100], b[100];
        sprintf(a, "tree/%s", all[i]);
        sprintf(b, "at/%s", all[i]);
        OK(lstat(a, &s));
        OK(lstat(b, &t));
        CHECK_EQ(s.st_mode, t.st_mode);
        CHECK_EQ(s.st_nlink, t.st_nlink);
        CHECK_EQ(s.st_uid, t.st_uid);
        CHECK_EQ(s.st_gid, t.st_gid);
        CHECK_EQ(s.st_rdev, t.st_rdev);
        if (!S_ISDIR(s.st_mode)) CHECK_EQ(s.st_size, t.st_size);
        CHECK_EQ(s.st_mtime, t.st_mtime);
        CHECK_EQ(t.st_atime, t.st_mtime);
    }
    struct stat first, second;
    OK(stat("at/small", &first));
    OK(stat("at/same", &second));
    CHECK_EQ(first.st_ino, second.st_ino);
    char b[BIG + 10];
    int fd = SYS(open("at/big", O_RDONLY));
    CHECK_EQ(read(fd, b, sizeof b), BIG);
    for (int i = 0; i < BIG; i++)
        CHECK_EQ(b[i], big_byte(i));
    CHECK_EQ(pread(fd, b, 10, BIG - 3), 3);
    CHECK_EQ(pread(fd, b, 10, BIG), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_END), BIG);
    close(fd);
    fd = SYS(open("at/holes", O_RDONLY));
    CHECK_EQ(read(fd, b, sizeof b), 100001);
    CHECK_EQ(b[0], 'a');
    CHECK_EQ(b[50000], 0);
    CHECK_EQ(b[100000], 'z');
    close(fd);
    CHECK_EQ(readlink("at/link", b, sizeof b), 5);
    CHECK(!memcmp(b, "small", 5));
    CHECK_ERR(stat("at/nothing", &s), ENOENT);
    CHECK_ERR(stat("at/dir/7", &s), ENOENT);
}
TEST(plain_and_inline) {
    mounted("");
    same();
}
TEST(chunks) {
    mounted("--chunksize=4096");
    same();
}
TEST(extended_inodes) {
    mounted("-E force-inode-extended");
    same();
}
TEST(listing) {
    mounted("");
    DIR *d = opendir("at/dir");
    CHECK(d);
    char seen[400] = "";
    long middle = 0;
    int n = 0, after = 0;
    for (struct dirent *e; (e = readdir(d)); n++) {
        if (e->d_name[0] == '.') continue;
        int i = atoi(e->d_name);
        CHECK(i >= 0 && i < 400 && !seen[i]);
        seen[i] = 1;
        CHECK_EQ(e->d_type, DT_REG);
        struct stat st;
        OK(fstatat(dirfd(d), e->d_name, &st, 0));
        CHECK_EQ(st.st_ino, e->d_ino);
        if (n == 200) middle = telldir(d);
    }
    CHECK_EQ(n, 402);
    seekdir(d, middle);
    while (readdir(d)) after++;
    CHECK_EQ(after, 402 - 201);
    closedir(d);
}
TEST(maps) {
    mounted("");
    int fd = SYS(open("at/big", O_RDONLY));
    char *m = mmap(NULL, BIG, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    for (int i = 0; i < BIG; i++)
        CHECK_EQ(m[i], big_byte(i));
    for (int i = BIG; i < BIG / 4096 * 4096 + 4096; i++) CHECK_EQ(m[i], 0);
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 8192);
    CHECK(p != MAP_FAILED);
    CHECK_EQ(p[1], big_byte(8193));
    p[1] = 'x';
    CHECK_EQ(m[8193], big_byte(8193));
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    CHECK_EQ(errno, EACCES);
}
TEST(runs_programs) {
    tree();
    OK(chmod("tree", 0755));
    if (system("cp /bin/busybox tree/prog 2>/dev/null || cp /bin/true tree/prog")) SKIP("no program");
    OK(symlink("prog", "tree/true"));
    if (system("mkfs.erofs image tree >/dev/null 2>&1")) SKIP("mkfs.erofs fails");
    attach(0);
    OK(mount(node, "at", "erofs", 0, NULL));
    CHECK_EQ(system("at/true"), 0);
}
TEST(attributes) {
    mounted("");
    char b[100];
    CHECK_EQ(getxattr("at/small", "trusted.one", b, sizeof b), 1);
    CHECK_EQ(getxattr("at/same", "trusted.one", b, sizeof b), 1);
    CHECK_EQ(getxattr("at/dir", "trusted.one", b, sizeof b), 1);
    CHECK_EQ(getxattr("at/big", "trusted.two", b, sizeof b), 3);
    CHECK(!memcmp(b, "two", 3));
    CHECK_ERR(getxattr("at/big", "trusted.one", b, sizeof b), ENODATA);
    CHECK_ERR(getxattr("at/big", "trusted.two", b, 2), ERANGE);
    CHECK_EQ(listxattr("at/big", b, sizeof b), 12);
    CHECK_STR(b, "trusted.two");
    CHECK_EQ(listxattr("at/empty", b, sizeof b), 0);
    CHECK_ERR(setxattr("at/big", "trusted.two", "x", 1, 0), EROFS);
    CHECK_ERR(removexattr("at/big", "trusted.two"), EROFS);
}
TEST(read_only) {
    mounted("");
    CHECK_ERR(open("at/small", O_RDWR), EROFS);
    CHECK_ERR(open("at/new", O_WRONLY | O_CREAT, 0600), EROFS);
    CHECK_ERR(mkdir("at/new", 0700), EROFS);
    CHECK_ERR(mkdir("at/dir", 0700), EEXIST);
    CHECK_ERR(unlink("at/small"), EROFS);
    CHECK_ERR(rename("at/small", "at/other"), EROFS);
    CHECK_ERR(link("at/small", "at/other"), EROFS);
    CHECK_ERR(chmod("at/small", 0600), EROFS);
    CHECK_ERR(truncate("at/small", 0), EROFS);
    CHECK_ERR(access("at/small", W_OK), EROFS);
    int fd = SYS(open("at/small", O_RDONLY));
    CHECK_ERR(fsync(fd), EINVAL);
    CHECK_ERR(lseek(fd, 5, SEEK_DATA), ENXIO);
    CHECK_EQ(lseek(fd, 1, SEEK_HOLE), 5);
    OK(mount(NULL, "at", NULL, MS_REMOUNT, NULL));
    CHECK_ERR(open("at/small", O_RDWR), EROFS);
}
TEST(shown) {
    mounted("");
    struct statfs f;
    OK(statfs("at", &f));
    CHECK_EQ(f.f_type, MAGIC);
    CHECK_EQ(f.f_bsize, 4096);
    CHECK_EQ(f.f_bfree, 0);
    CHECK_EQ(f.f_namelen, 255);
    CHECK_EQ(f.f_files, -1);
    struct stat at, own;
    OK(stat("at", &at));
    OK(stat(node, &own));
    CHECK_EQ(at.st_dev, own.st_rdev);
    static char b[1 << 18];
    t_slurp("/proc/self/mountinfo", b, sizeof b);
    CHECK(strstr(b, " - erofs loop"));
    CHECK(strstr(b, " ro,user_xattr,acl"));
    OK(umount("at"));
    attach(0);
    OK(mount(node, "at", "erofs", MS_RDONLY, "nouser_xattr,noacl"));
    close(device);
    t_slurp("/proc/self/mountinfo", b, sizeof b);
    CHECK(strstr(b, " ro,nouser_xattr,noacl"));
}
TEST(device_stays_until_umount) {
    mounted("");
    struct loop_info64 info;
    int fd = SYS(open(node, O_RDONLY));
    OK(ioctl(fd, LOOP_GET_STATUS64, &info));
    OK(ioctl(fd, LOOP_CLR_FD));
    close(fd);
    struct stat st;
    OK(stat("at/dir/9-with-a-name-that-fills-blocks", &st));
    fd = SYS(open(node, O_RDONLY));
    OK(ioctl(fd, LOOP_GET_STATUS64, &info));
    close(fd);
    OK(umount("at"));
    for (int i = 0; i < 100; i++) {
        fd = SYS(open(node, O_RDONLY));
        int gone = ioctl(fd, LOOP_GET_STATUS64, &info) < 0;
        close(fd);
        if (gone) return;
        usleep(20000);
    }
    CHECK(!"attached still");
}
TEST(read_only_device) {
    image("");
    attach(1);
    CHECK_ERR(mount(node, "at", "erofs", 0, NULL), EACCES);
    OK(mount(node, "at", "erofs", MS_RDONLY, NULL));
    OK(umount("at"));
}
TEST(files) {
    image("");
    if (no_erofs()) SKIP("no erofs");
    // Linux does not take files of a tmpfs.
    OK(system("cp image ../image"));
    if (mount("../image", "at", "erofs", 0, NULL) < 0 && errno == ENOTBLK) SKIP("no mounts of files");
    same();
    OK(umount("at"));
}
TEST(refused) {
    image("");
    attach(0);
    CHECK_ERR(mount("nothing", "at", "erofs", 0, NULL), ENOENT);
    CHECK_ERR(mount("tree", "at", "erofs", 0, NULL), ENOTBLK);
    CHECK_ERR(mount("/dev/null", "at", "erofs", 0, NULL), ENOTBLK);
    CHECK_ERR(mount(NULL, "at", "erofs", 0, NULL), EINVAL);
    CHECK_ERR(mount(node, "at", "erofs", 0, "unknown"), EINVAL);
    CHECK_ERR(mount(node, "at", "erofs", 0, "acl=1"), EINVAL);
    int fd = SYS(open("image", O_RDWR));
    char b[1152];
    CHECK_EQ(pread(fd, b, sizeof b, 0), sizeof b);
    b[1024] ^= 1;
    CHECK_EQ(pwrite(fd, b, sizeof b, 0), sizeof b);
    CHECK_ERR(mount(node, "at", "erofs", 0, NULL), EINVAL);
    OK(ioctl(device, LOOP_CLR_FD));
}
// User namespaces cannot mount it.
TEST(user_namespace) {
    image("");
    if (no_erofs()) SKIP("no erofs");
    pid_t pid = SYS(fork());
    if (!pid) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) _exit(2);
        if (mount("image", "at", "erofs", MS_RDONLY, NULL) == 0) _exit(3);
        _exit(errno == EPERM ? 0 : 4);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status == 2 << 8) SKIP("no user namespaces");
    CHECK_EQ(status, 0);
}
