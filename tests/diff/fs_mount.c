// mount and umount of tmpfs and bind mounts; what one sees of them.
#include "t.h"
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

static int mounted(const char *where) {
    static char b[1 << 18];
    t_slurp("/proc/self/mountinfo", b, sizeof b);
    char want[400];
    snprintf(want, sizeof want, " %s/%s ", t_dir, where);
    return strstr(b, want) != 0;
}
static void dirs(void) {
    SYS(mkdir("a", 0755));
    SYS(mkdir("b", 0755));
}
TEST(tmpfs) {
    dirs();
    t_make("a/under", "");
    OK(mount("none", "a", "tmpfs", 0, "size=1m,mode=0700"));
    CHECK(mounted("a"));
    struct stat s, t;
    OK(stat("a", &s));
    OK(stat("b", &t));
    CHECK(s.st_dev != t.st_dev);
    CHECK_EQ(s.st_mode & 07777, 0700);
    CHECK_ERR(access("a/under", F_OK), ENOENT);
    t_make("a/f", "x");
    CHECK_ERR(rename("a/f", "b/f"), EXDEV);
    CHECK_ERR(link("a/f", "b/f"), EXDEV);
    CHECK_ERR(rmdir("a"), EBUSY);
    CHECK_ERR(rename("a", "c"), EBUSY);
    int fd = SYS(open("a/f", O_RDONLY));
    CHECK_ERR(umount("a"), EBUSY);
    close(fd);
    OK(umount("a"));
    OK(access("a/under", F_OK));
    CHECK(!mounted("a"));
}
TEST(tmpfs_size) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, "size=64k"));
    int fd = SYS(open("a/f", O_CREAT | O_WRONLY, 0644));
    static char b[200000];
    CHECK_EQ(write(fd, b, sizeof b), 65536);
    CHECK_ERR(write(fd, b, 1), ENOSPC);
    struct statvfs v;
    OK(statvfs("a", &v));
    CHECK_EQ(v.f_blocks * v.f_frsize, 65536);
    CHECK_EQ(v.f_bfree, 0);
    close(fd);
    OK(umount("a"));
}
TEST(bind) {
    dirs();
    t_make("a/f", "one");
    OK(mount("a", "b", 0, MS_BIND, 0));
    char x[16];
    t_slurp("b/f", x, sizeof x);
    CHECK_STR(x, "one");
    t_make("b/g", "two");
    t_slurp("a/g", x, sizeof x);
    CHECK_STR(x, "two");
    struct stat s, t;
    OK(stat("a/f", &s));
    OK(stat("b/f", &t));
    CHECK_EQ(s.st_ino, t.st_ino);
    CHECK_EQ(s.st_dev, t.st_dev);
    CHECK_ERR(rename("a/f", "b/h"), EXDEV);
    OK(umount("b"));
    CHECK_ERR(access("b/f", F_OK), ENOENT);
}
TEST(bind_file) {
    t_make("f", "source");
    t_make("g", "target");
    OK(mount("f", "g", 0, MS_BIND, 0));
    char x[16];
    t_slurp("g", x, sizeof x);
    CHECK_STR(x, "source");
    CHECK_ERR(unlink("g"), EBUSY);
    OK(umount("g"));
    t_slurp("g", x, sizeof x);
    CHECK_STR(x, "target");
    SYS(mkdir("d", 0755));
    CHECK_ERR(mount("f", "d", 0, MS_BIND, 0), ENOTDIR);
}
TEST(read_only) {
    dirs();
    t_make("a/f", "x");
    OK(mount("a", "b", 0, MS_BIND, 0));
    OK(mount(0, "b", 0, MS_BIND | MS_REMOUNT | MS_RDONLY, 0));
    CHECK_ERR(open("b/f", O_WRONLY), EROFS);
    CHECK_ERR(open("b/new", O_CREAT | O_WRONLY, 0644), EROFS);
    CHECK_ERR(mkdir("b/d", 0755), EROFS);
    CHECK_ERR(unlink("b/f"), EROFS);
    CHECK_ERR(chmod("b/f", 0600), EROFS);
    CHECK_ERR(access("b/f", W_OK), EROFS);
    OK(access("b/f", R_OK));
    t_make("a/new", "");
    OK(access("b/new", F_OK));
    struct statvfs v;
    OK(statvfs("b", &v));
    CHECK(v.f_flag & ST_RDONLY);
    OK(umount("b"));
    OK(mount("none", "b", "tmpfs", MS_RDONLY, 0));
    CHECK_ERR(mkdir("b/d", 0755), EROFS);
    OK(mount(0, "b", 0, MS_REMOUNT, 0));
    OK(mkdir("b/d", 0755));
    OK(umount("b"));
}
TEST(noexec_nosuid) {
    dirs();
    OK(mount("none", "a", "tmpfs", MS_NOEXEC | MS_NOSUID | MS_NODEV, 0));
    int fd = SYS(open("a/s", O_CREAT | O_WRONLY, 0755));
    CHECK_EQ(write(fd, "#!/bin/sh\n", 10), 10);
    close(fd);
    char *v[] = {"s", 0};
    CHECK_ERR(execv("a/s", v), EACCES);
    CHECK_ERR(access("a/s", X_OK), EACCES);
    CHECK_ERR((long)mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, SYS(open("a/s", O_RDONLY)), 0), EPERM);
    OK(umount2("a", MNT_DETACH));
}
static void is_busy_until(int fd) {
    CHECK_ERR(umount("a"), EBUSY);
    OK(close(fd));
}
static void send_fd(int s, int fd) {
    char c = 'x', space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec io = {&c, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    CHECK_EQ(sendmsg(s, &m, 0), 1);
}
TEST(what_makes_a_mount_busy) {
    dirs();
    OK(mount("t", "a", "tmpfs", 0, "size=64k"));
    t_make("a/f", "text");
    is_busy_until(SYS(open("a/f", O_RDONLY)));
    is_busy_until(SYS(open("a", O_PATH)));
    // A mapping whose descriptor is closed.
    int fd = SYS(open("a/f", O_RDONLY));
    void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(m != MAP_FAILED);
    is_busy_until(fd);
    CHECK_ERR(umount("a"), EBUSY);
    OK(munmap(m, 4096));
    // A file without a name, and a descriptor that is only in a message.
    fd = SYS(open("a/g", O_CREAT | O_RDWR, 0600));
    OK(unlink("a/g"));
    is_busy_until(fd);
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    send_fd(s[0], fd = SYS(open("a/f", O_RDONLY)));
    is_busy_until(fd);
    CHECK_ERR(umount("a"), EBUSY);
    char c;
    CHECK_EQ(read(s[1], &c, 1), 1);
    // Working and root directories, of children too.
    OK(chdir("a"));
    CHECK_ERR(umount("../a"), EBUSY);
    pid_t child = SYS(fork());
    if (child == 0) {
        pause();
        _exit(0);
    }
    OK(chdir(".."));
    CHECK_ERR(umount("a"), EBUSY);
    OK(kill(child, SIGKILL));
    CHECK_EQ(waitpid(child, 0, 0), child);
    int ready[2];
    OK(pipe(ready));
    child = SYS(fork());
    if (child == 0) {
        SYS(chroot("a"));
        SYS(write(ready[1], "", 1));
        pause();
        _exit(0);
    }
    CHECK_EQ(read(ready[0], &c, 1), 1);
    CHECK_ERR(umount("a"), EBUSY);
    OK(kill(child, SIGKILL));
    CHECK_EQ(waitpid(child, 0, 0), child);
    // A watch holds the inode alone.
    fd = SYS(inotify_init1(IN_CLOEXEC));
    SYS(inotify_add_watch(fd, "a", IN_ALL_EVENTS));
    OK(umount("a"));
    CHECK(!mounted("a"));
    close(fd);
}
TEST(stacked_and_nested) {
    dirs();
    OK(mount("one", "a", "tmpfs", 0, 0));
    t_make("a/first", "");
    OK(mount("two", "a", "tmpfs", 0, 0));
    CHECK_ERR(access("a/first", F_OK), ENOENT);
    SYS(mkdir("a/in", 0755));
    OK(mount("three", "a/in", "tmpfs", 0, 0));
    CHECK_ERR(umount("a"), EBUSY);
    struct stat s, t;
    OK(stat("a/in/..", &s));
    OK(stat("a", &t));
    CHECK_EQ(s.st_ino, t.st_ino);
    OK(umount("a/in"));
    OK(umount("a"));
    OK(access("a/first", F_OK));
    OK(umount("a"));
}
TEST(detach_keeps_open_files) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, 0));
    int fd = t_file("a/f", "alive");
    OK(umount2("a", MNT_DETACH));
    char b[8] = "";
    CHECK_EQ(pread(fd, b, 8, 0), 5);
    CHECK_ERR(access("a/f", F_OK), ENOENT);
}
TEST(errors) {
    dirs();
    t_make("f", "");
    CHECK_ERR(mount("none", "missing", "tmpfs", 0, 0), ENOENT);
    CHECK_ERR(mount("none", "f", "tmpfs", 0, 0), ENOTDIR);
    CHECK_ERR(mount("none", "a", "nosuchfs", 0, 0), ENODEV);
    CHECK_ERR(mount("missing", "a", 0, MS_BIND, 0), ENOENT);
    CHECK_ERR(mount("none", "a", "tmpfs", 0, "nonsense=1"), EINVAL);
    CHECK_ERR(mount("none", BAD_PTR, "tmpfs", 0, 0), EFAULT);
    CHECK_ERR(umount("a"), EINVAL);
    CHECK_ERR(umount("missing"), ENOENT);
    CHECK_ERR(umount2("a", 0x100), EINVAL);
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(mount("none", "a", "tmpfs", 0, 0), EPERM); CHECK_ERR(umount("a"), EPERM));
}
TEST(move) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, 0));
    t_make("a/f", "");
    OK(mount(0, "a", 0, MS_PRIVATE, 0));
    OK(mount("a", "b", 0, MS_MOVE, 0));
    OK(access("b/f", F_OK));
    CHECK_ERR(access("a/f", F_OK), ENOENT);
    OK(umount("b"));
}
TEST(proc_again) {
    dirs();
    OK(mount("proc", "a", "proc", 0, 0));
    OK(access("a/self/status", F_OK));
    char l[16] = "";
    CHECK(readlink("a/self", l, 15) > 0);
    CHECK_EQ(atoi(l), getpid());
    OK(umount("a"));
}
TEST(own_namespace) {
    dirs();
    struct t_gate g = t_gate(), h = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        OK(unshare(CLONE_NEWNS));
        OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
        OK(mount("none", "a", "tmpfs", 0, 0));
        t_make("a/f", "");
        t_open(g);
        t_pass(h);
        OK(access("a/f", F_OK));
        _exit(0);
    }
    t_pass(g);
    CHECK_ERR(access("a/f", F_OK), ENOENT);
    t_open(h);
    CHECK_STATUS(t_status(p), "exit 0");
}

static long long free_pages(const char *where) {
    struct statvfs v;
    OK(statvfs(where, &v));
    return v.f_bfree;
}
// Writes megabytes until the file system is full; gives the bytes.
static long long write_all(int fd, int mib) {
    static char b[1 << 20];
    long long done = 0;
    for (int i = 0; i < mib; i++) {
        ssize_t n = pwrite(fd, b, sizeof b, (off_t)i << 20);
        if (n < 0) break;
        done += n;
    }
    return done;
}
TEST(tmpfs_full_reservations) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, "size=8m"));
    int fd = SYS(open("a/f", O_CREAT | O_RDWR, 0644)), g = SYS(open("a/g", O_CREAT | O_RDWR, 0644));
    // In steps beyond the limit: the step that does not fit fails, and leaves nothing behind.
    for (int i = 0; i < 5; i++) {
        int r = fallocate(fd, 0, (off_t)i * (3 << 20), 3 << 20);
        CHECK_EQ(r, i < 2 ? 0 : -1);
        if (r) CHECK_EQ(errno, ENOSPC);
    }
    CHECK_EQ(free_pages("a"), 512);
    CHECK_EQ(write_all(g, 8), 2 << 20);
    // What was reserved can be written, on a full file system too.
    CHECK_EQ(write_all(fd, 8), 6 << 20);
    CHECK_EQ(write_all(fd, 8), 6 << 20);
    CHECK_EQ(free_pages("a"), 0);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_size, 6 << 20);
    CHECK_ERR(fallocate(fd, FALLOC_FL_KEEP_SIZE, 6 << 20, 4096), ENOSPC);
    OK(fallocate(fd, 0, 1 << 20, 5 << 20));
    CHECK_EQ(pwrite(fd, "x", 1, 100), 1);
    OK(ftruncate(fd, 0));
    CHECK_EQ(free_pages("a"), 1536);
    CHECK_ERR(fallocate(fd, 0, 0, 9 << 20), ENOSPC);
    CHECK_EQ(free_pages("a"), 1536);
    // Small files as well.
    OK(ftruncate(g, 0));
    OK(fallocate(fd, 0, 0, (8 << 20) - 8192));
    CHECK_ERR(fallocate(g, 0, 0, 3 * 4096), ENOSPC);
    CHECK_EQ(free_pages("a"), 2);
    OK(fallocate(g, 0, 0, 2 * 4096));
    close(fd), close(g);
    OK(umount("a"));
}
TEST(tmpfs_full_rewrites_of_sparse_files) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, "size=8m"));
    int fd = SYS(open("a/f", O_CREAT | O_RDWR, 0644));
    OK(ftruncate(fd, 64 << 20));
    // One page again and again counts once.
    for (int i = 0; i < 5000; i++) CHECK_EQ(pwrite(fd, "x", 1, 32 << 20), 1);
    CHECK_EQ(free_pages("a"), 2047);
    int g = SYS(open("a/g", O_CREAT | O_RDWR, 0644));
    CHECK_EQ(write_all(g, 8), (8 << 20) - 4096);
    // A hole has no room, and stays one.
    CHECK_ERR(pwrite(fd, "x", 1, 1 << 20), ENOSPC);
    CHECK_EQ(lseek(fd, 0, SEEK_DATA), 32 << 20);
    CHECK_EQ(pwrite(fd, "y", 1, 32 << 20), 1);
    close(fd), close(g);
    OK(umount("a"));
}
TEST(tmpfs_mappings_and_links_count) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, "size=4m"));
    int fd = SYS(open("a/f", O_CREAT | O_RDWR, 0644));
    OK(ftruncate(fd, 2 << 20));
    char *m = SYS(mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    memset(m, 1, 2 << 20);
    CHECK_EQ(free_pages("a"), 512);
    int g = SYS(open("a/g", O_CREAT | O_RDWR, 0644));
    CHECK_EQ(write_all(g, 4), 2 << 20);
    char target[300];
    memset(target, 't', sizeof target);
    target[127] = 0;
    OK(symlink(target, "a/short"));
    target[127] = 't', target[128] = 0;
    CHECK_ERR(symlink(target, "a/long"), ENOSPC);
    OK(ftruncate(g, 0));
    OK(symlink(target, "a/long"));
    CHECK_EQ(free_pages("a"), 511);
    struct stat st;
    OK(lstat("a/long", &st));
    CHECK_EQ(st.st_blocks, 8);
    OK(lstat("a/short", &st));
    CHECK_EQ(st.st_blocks, 0);
    OK(unlink("a/long"));
    CHECK_EQ(free_pages("a"), 512);
    munmap(m, 2 << 20);
    close(fd), close(g);
    OK(umount("a"));
}
TEST(tmpfs_inodes) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, "size=1m,nr_inodes=8"));
    struct statvfs v;
    OK(statvfs("a", &v));
    CHECK_EQ(v.f_files, 8);
    CHECK_EQ(v.f_ffree, 7);
    OK(mkdir("a/d", 0755));
    for (int i = 0; i < 5; i++) {
        char n[20];
        sprintf(n, "a/d/%d", i);
        t_make(n, "");
    }
    // Attributes share the inodes' limit: 40 bytes, name and value.
    static char big[2000];
    CHECK_ERR(setxattr("a/d/0", "user.x", big, 1024, 0), ENOSPC);
    OK(setxattr("a/d/0", "user.x", big, 1024 - 40 - 6, 0));
    OK(statvfs("a", &v));
    CHECK_EQ(v.f_ffree, 0);
    CHECK_ERR(open("a/x", O_CREAT | O_WRONLY, 0644), ENOSPC);
    CHECK_ERR(mkdir("a/x", 0755), ENOSPC);
    CHECK_ERR(symlink("t", "a/x"), ENOSPC);
    CHECK_ERR(setxattr("a/d/1", "user.x", "", 0, 0), ENOSPC);
    // Another value needs its room before the old one is gone.
    CHECK_ERR(setxattr("a/d/0", "user.x", "1", 1, 0), ENOSPC);
    OK(removexattr("a/d/0", "user.x"));
    OK(setxattr("a/d/0", "user.x", "1", 1, 0));
    OK(setxattr("a/d/1", "user.x", "", 0, 0));
    OK(unlink("a/d/0"));
    OK(removexattr("a/d/1", "user.x"));
    t_make("a/x", "");
    OK(mkdir("a/y", 0755));
    // A limit below what is in use, or where there was none, is refused.
    CHECK_ERR(mount("none", "a", 0, MS_REMOUNT, "nr_inodes=4"), EINVAL);
    OK(mount("none", "a", 0, MS_REMOUNT, "nr_inodes=9"));
    t_make("a/z", "0123");
    OK(umount("a"));
}
TEST(tmpfs_remount_below_use) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, "size=1m"));
    static char b[512 << 10];
    int fd = t_file("a/f", "");
    CHECK_EQ(write(fd, b, sizeof b), sizeof b);
    CHECK_ERR(mount("none", "a", 0, MS_REMOUNT, "size=256k"), EINVAL);
    OK(mount("none", "a", 0, MS_REMOUNT, "size=512k"));
    CHECK_EQ(free_pages("a"), 0);
    close(fd);
    OK(umount("a"));
    OK(mount("none", "a", "tmpfs", 0, "size=0"));
    CHECK_ERR(mount("none", "a", 0, MS_REMOUNT, "size=1m"), EINVAL);
    OK(umount("a"));
}
TEST(tmpfs_default_inodes) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, 0));
    struct statvfs v;
    OK(statvfs("a", &v));
    CHECK_EQ(v.f_files, v.f_blocks);
    CHECK_EQ(v.f_ffree, v.f_files - 1);
    OK(umount("a"));
}
TEST(many_mounts_on_each_other) {
    dirs();
    int n = 1500;
    for (int i = 0; i < n; i++) OK(mount("t", "a", "tmpfs", 0, "size=4k"));
    long long start = t_now_ms();
    FILE *f = fopen("/proc/self/mountinfo", "r");
    char line[1000], want[400];
    snprintf(want, sizeof want, " %s/a ", t_dir);
    int seen = 0;
    while (fgets(line, sizeof line, f)) seen += strstr(line, want) != 0;
    fclose(f);
    CHECK_EQ(seen, n);
    CHECK(t_now_ms() - start < 1000);
    CHECK_CHILD({
        OK(unshare(CLONE_NEWNS));
        OK(umount2("a", MNT_DETACH));
        CHECK(mounted("a"));
    });
    CHECK_CHILD(OK(unshare(CLONE_NEWNS)));
    for (int i = 0; i < n; i++) OK(umount2("a", MNT_DETACH));
    CHECK(!mounted("a"));
}
TEST(many_mounts_in_each_other) {
    dirs();
    SYS(chdir("a"));
    for (int i = 0; i < 1500; i++) {
        OK(mkdir("n", 0755));
        OK(mount("t", "n", "tmpfs", 0, "size=40k"));
        SYS(chdir("n"));
    }
    SYS(chdir(t_dir));
    CHECK(mounted("a/n/n/n"));
    CHECK_CHILD(OK(unshare(CLONE_NEWNS)));
    OK(umount2("a/n", MNT_DETACH));
    CHECK(!mounted("a/n"));
    OK(rmdir("a/n"));
}
TEST(umount_of_what_lies_on_dot) {
    dirs();
    OK(mount("t", "a", "tmpfs", 0, "size=4k"));
    SYS(chdir("a"));
    OK(mount("t", ".", "tmpfs", 0, "size=4k"));
    OK(mount("t", ".", "tmpfs", 0, "size=4k"));
    OK(umount("."));
    OK(umount("."));
    CHECK_ERR(umount("."), EBUSY);
    SYS(chdir(".."));
    int fd = SYS(open("b", O_RDONLY));
    char q[64];
    sprintf(q, "/proc/self/fd/%d", fd);
    OK(mount("t", q, "tmpfs", 0, "size=4k"));
    CHECK(mounted("b"));
    OK(umount(q));
    CHECK(!mounted("b"));
    OK(umount("a"));
}
TEST(descriptors_of_proc_take_no_mounts) {
    int fd = t_file("f", "");
    char q[64];
    sprintf(q, "/proc/self/fdinfo/%d", fd);
    CHECK_ERR(mount("f", q, 0, MS_BIND, 0), ENOENT);
    OK(mount("f", "/proc/self/status", 0, MS_BIND, 0));
    OK(umount("/proc/self/status"));
}
TEST(statfs_shows_nosymfollow) {
    dirs();
    struct statvfs v;
    OK(mount("t", "a", "tmpfs", 256, "size=4k"));
    OK(statvfs("a", &v));
    CHECK(v.f_flag & 0x2000);
    OK(umount("a"));
    OK(mount("t", "a", "tmpfs", 0, "size=4k"));
    OK(statvfs("a", &v));
    CHECK(!(v.f_flag & 0x2000));
    OK(umount("a"));
}
TEST(mount_namespaces_are_allowed) {
    char b[32];
    t_slurp("/proc/sys/user/max_mnt_namespaces", b, sizeof b);
    CHECK(atoi(b) > 0);
    for (int i = 0; i < 3; i++) OK(unshare(CLONE_NEWNS));
}
TEST(mounts_do_not_move_to_another_namespace) {
    dirs();
    struct t_gate g = t_gate(), h = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        OK(unshare(CLONE_NEWNS));
        OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
        OK(mount("t", "b", "tmpfs", 0, "size=64k"));
        SYS(mkdir("b/d", 0755));
        t_open(g);
        t_pass(h);
        // What is taken apart is what the namespace has counted.
        OK(umount2("b", MNT_DETACH));
        OK(mount("t", "b", "tmpfs", 0, "size=64k"));
        _exit(0);
    }
    t_pass(g);
    OK(mount("t", "a", "tmpfs", 0, "size=64k"));
    for (int i = 0; i < 30; i++) {
        char name[10];
        sprintf(name, "a/%d", i);
        SYS(mkdir(name, 0755));
        OK(mount("t", name, "tmpfs", 0, "size=4k"));
    }
    char there[200];
    snprintf(there, sizeof there, "/proc/%d/root%s/b/d", p, t_dir);
    CHECK_ERR(mount("a", there, 0, MS_MOVE, 0), EINVAL);
    CHECK_ERR(mount("a", there, 0, MS_BIND, 0), EINVAL);
    t_open(h);
    CHECK_STATUS(t_status(p), "exit 0");
    OK(umount2("a", MNT_DETACH));
}
TEST(mount_points_of_other_namespaces) {
    dirs();
    t_make("f", "");
    t_make("new", "new");
    struct t_gate g = t_gate(), h = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        OK(unshare(CLONE_NEWNS));
        OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
        OK(mount("t", "a", "tmpfs", 0, "size=64k"));
        OK(mount("t", "b", "tmpfs", 0, "size=64k"));
        OK(mount("/proc/self/status", "f", 0, MS_BIND, 0));
        t_make("b/f", "");
        CHECK_ERR(rmdir("a"), EBUSY);
        t_open(g);
        t_pass(h);
        CHECK_ERR(access("a", F_OK), ENOENT);
        OK(access("c/f", F_OK));
        char b[10];
        t_slurp("f", b, sizeof b);
        CHECK_STR(b, "new");
        OK(umount("c"));
        _exit(0);
    }
    t_pass(g);
    OK(rmdir("a"));
    OK(rename("b", "c"));
    OK(rename("new", "f"));
    t_open(h);
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(following_a_link_is_an_access) {
    for (int noatime = 0; noatime < 2; noatime++) {
        SYS(mkdir("l", 0755));
        OK(mount("t", "l", "tmpfs", noatime ? MS_NOATIME : 0, "size=64k"));
        t_make("l/f", "");
        OK(symlink("f", "l/s"));
        struct stat a, b;
        char text[10];
        OK(lstat("l/s", &a));
        t_ms(30);
        OK(stat("l/s", &b));
        OK(lstat("l/s", &b));
        int moved = a.st_atim.tv_sec != b.st_atim.tv_sec || a.st_atim.tv_nsec != b.st_atim.tv_nsec;
        CHECK_EQ(moved, !noatime);
        // Relative: once is enough.
        a = b;
        t_ms(30);
        CHECK_EQ(readlink("l/s", text, sizeof text), 1);
        OK(lstat("l/s", &b));
        CHECK_EQ(a.st_atim.tv_nsec, b.st_atim.tv_nsec);
        OK(umount("l"));
        SYS(rmdir("l"));
    }
}
TEST(tmpfs_whiteouts) {
    dirs();
    SYS(mount("none", "a", "tmpfs", 0, "size=1m,nr_inodes=6"));
    t_make("a/f", "x");
    t_make("a/g", "y");
    SYS(mkdir("a/d", 0755));
    OK(syscall(SYS_renameat2, AT_FDCWD, "a/f", AT_FDCWD, "a/d/f", RENAME_WHITEOUT));
    struct stat st;
    OK(lstat("a/f", &st));
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(st.st_mode & 07777, 0);
    CHECK_EQ(st.st_rdev, 0);
    CHECK_EQ(st.st_nlink, 1);
    OK(stat("a/d/f", &st));
    CHECK_EQ(st.st_size, 1);
    CHECK_ERR(open("a/f", O_RDONLY), ENXIO);
    CHECK_ERR(syscall(SYS_renameat2, AT_FDCWD, "a/g", AT_FDCWD, "a/d/f", RENAME_WHITEOUT | RENAME_NOREPLACE), EEXIST);
    CHECK_ERR(syscall(SYS_renameat2, AT_FDCWD, "a/g", AT_FDCWD, "a/d/f", RENAME_WHITEOUT | RENAME_EXCHANGE), EINVAL);
    // A whiteout is an inode more: there is none left after this one.
    OK(syscall(SYS_renameat2, AT_FDCWD, "a/g", AT_FDCWD, "a/d/g", RENAME_WHITEOUT | RENAME_NOREPLACE));
    CHECK_ERR(syscall(SYS_renameat2, AT_FDCWD, "a/d/g", AT_FDCWD, "a/h", RENAME_WHITEOUT), ENOSPC);
    OK(stat("a/d/g", &st));
    OK(unlink("a/f"));
    OK(rename("a/d/f", "a/f"));
    OK(stat("a/f", &st));
    CHECK(S_ISREG(st.st_mode));
    SYS(umount("a"));
}

static char state_of(pid_t p) {
    char path[40], b[512];
    snprintf(path, sizeof path, "/proc/%d/stat", p);
    t_slurp(path, b, sizeof b);
    char *end = strrchr(b, ')');
    return end ? end[2] : 0;
}
TEST(an_open_that_waits_keeps_the_mount) {
    dirs();
    OK(mount("none", "a", "tmpfs", 0, 0));
    SYS(mkfifo("a/p", 0600));
    pid_t reader = FORK();
    if (!reader) {
        char c;
        int fd = SYS(open("a/p", O_RDONLY));
        CHECK_EQ(read(fd, &c, 1), 1);
        _exit(0);
    }
    while (state_of(reader) != 'S') sched_yield();
    CHECK_ERR(umount("a"), EBUSY);
    int fd = SYS(open("a/p", O_WRONLY));
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK_STATUS(t_status(reader), "exit 0");
    close(fd);
    OK(umount("a"));
}
// A file is never open on a mount that umount(2) has taken away without MNT_DETACH.
TEST(umount_races_with_open) {
    dirs();
    enum { ROUNDS = 200 };
    volatile int *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile int *round = shared, *tried = shared + 1, *opened = shared + 2, *done = shared + 3, *closed = shared + 4;
    pid_t opener = FORK();
    if (!opener) {
        for (int r = 1; r <= ROUNDS; r++) {
            while (*round < r) sched_yield();
            for (volatile int i = 0; i < r * 37 % 4000; i++) {}
            int fd = r % 2 ? open("a/f", O_RDONLY) : open("a/new", O_CREAT | O_WRONLY, 0600);
            *opened = fd >= 0;
            *tried = r;
            while (*done < r) sched_yield();
            close(fd);
            *closed = r;
        }
        _exit(0);
    }
    int both = 0;
    for (int r = 1; r <= ROUNDS; r++) {
        OK(mount("none", "a", "tmpfs", 0, 0));
        t_make("a/f", "");
        *round = r;
        for (volatile int i = 0; i < r * 53 % 4000; i++) {}
        int gone = umount("a") == 0;
        while (*tried < r) sched_yield();
        // What was made after the end of the mount is in the directory below.
        both += gone && *opened && access("a/new", F_OK) != 0;
        *done = r;
        while (*closed < r) sched_yield();
        if (!gone) OK(umount("a"));
        unlink("a/new");
    }
    CHECK_EQ(both, 0);
    CHECK_STATUS(t_status(opener), "exit 0");
}

TEST(tmpfs_links) {
    dirs();
    SYS(mount("none", "a", "tmpfs", 0, "size=1m,nr_inodes=5"));
    struct statvfs f;
    t_make("a/f", "x");
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 3);
    // Each further name counts as an inode.
    OK(link("a/f", "a/1"));
    OK(link("a/f", "a/2"));
    OK(link("a/f", "a/3"));
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 0);
    CHECK_ERR(link("a/f", "a/4"), ENOSPC);
    CHECK_ERR(open("a/g", O_CREAT | O_WRONLY, 0644), ENOSPC);
    struct stat st;
    OK(stat("a/f", &st));
    CHECK_EQ(st.st_nlink, 4);
    // Whichever name goes, and be it by a rename.
    OK(unlink("a/f"));
    OK(rename("a/1", "a/5"));
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 1);
    int g = SYS(open("a/g", O_CREAT | O_WRONLY, 0644));
    OK(rename("a/g", "a/2"));
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 1);
    OK(link("a/3", "a/6"));
    CHECK_ERR(link("a/3", "a/7"), ENOSPC);
    OK(unlink("a/3"));
    OK(unlink("a/6"));
    OK(unlink("a/5"));
    OK(unlink("a/2"));
    SYS(close(g));
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 4);
    // A file without a name takes its first one for nothing.
    int fd = SYS(open("a", O_TMPFILE | O_RDWR, 0600));
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 3);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, path, AT_FDCWD, "a/t", AT_SYMLINK_FOLLOW));
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 3);
    OK(link("a/t", "a/u"));
    OK(statvfs("a", &f));
    CHECK_EQ(f.f_ffree, 2);
    SYS(close(fd));
    SYS(umount("a"));
}

// A number sign begins a comment in files of mounts, so that a source shows it as octal digits; a place does not.
TEST(number_sign_in_a_source) {
    char b[65536];
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mkdir("p#l", 0755));
    SYS(mount("so#u rce", "p#l", "tmpfs", 0, 0));
    const char *const files[] = {"/proc/self/mountinfo", "/proc/self/mounts", "/proc/self/mountstats"};
    for (int i = 0; i < 3; i++) {
        CHECK(t_slurp(files[i], b, sizeof b) > 0);
        CHECK(strstr(b, "so\\043u\\040rce") && strstr(b, "/p#l"));
    }
}
