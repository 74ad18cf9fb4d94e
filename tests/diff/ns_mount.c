// Mounts in user namespaces: what may be mounted, what is locked. mount_namespaces(7).
#include "ns.h"

static void inside(void) {
    become(1000);
    own_namespaces(CLONE_NEWNS);
}


TEST(ns_mount_types) {
    become(1000);
    own_namespaces(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP);
    SYS(mount("none", "/tmp", "tmpfs", 0, "size=1m,uid=0"));
    SYS(mkdir("/tmp/a", 0755));
    static const char *const good[] = {"tmpfs", "ramfs", "devpts", "mqueue"};
    for (int i = 0; i < 4; i++) OK(mount("none", "/tmp/a", good[i], MS_NOSUID | MS_NODEV | MS_NOEXEC, 0));
    // Where it is mounted read-only already, as in containers, this is all that may be shown.
    OK(mount("none", "/tmp/a", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, 0));
    CHECK_ERR(mount("none", "/tmp/a", "devtmpfs", 0, 0), EPERM);
    CHECK_ERR(mount("none", "/tmp/a", "nosuchfs", 0, 0), ENODEV);
    // proc belongs to the PID namespace, which is somebody else's.
    CHECK_ERR(mount("none", "/tmp/a", "proc", 0, 0), EPERM);
    CHECK_ERR(mount("none", "/tmp", "tmpfs", 0, "uid=5"), EINVAL);
    struct stat st;
    SYS(stat("/tmp", &st));
    CHECK_EQ(st.st_uid, 0);
    // No devices, and nobody without a number here owns anything.
    CHECK_ERR(mknod("/tmp/null", S_IFCHR | 0666, makedev(1, 3)), EPERM);
}

TEST(ns_mount_locked) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", MS_NOSUID | MS_NODEV, 0));
    SYS(chdir(t_dir));
    SYS(chmod(".", 0777));
    SYS(mkdir("below", 0777));
    SYS(mkdir("below/hidden", 0777));
    SYS(mkdir("other", 0777));
    SYS(mount("none", "below", "tmpfs", MS_RDONLY, 0));
    inside();
    // They stay where they are, and what they restrict stays restricted.
    CHECK_ERR(umount2("below", MNT_DETACH), EINVAL);
    CHECK_ERR(umount2("below", 0), EINVAL);
    CHECK_ERR(mount("below", "other", 0, MS_MOVE, 0), EINVAL);
    CHECK_ERR(mount(t_dir, "other", 0, MS_BIND, 0), EINVAL);
    SYS(mount(t_dir, "other", 0, MS_BIND | MS_REC, 0));
    // A copy of a locked mount can be moved.
    int copy = syscall(SYS_open_tree, AT_FDCWD, "below", 1 | O_CLOEXEC);
    SYS(copy);
    SYS(mkdir("other/place", 0755));
    SYS(syscall(SYS_move_mount, copy, "", AT_FDCWD, "other/place", 4));
    CHECK_ERR(mount(0, "other/place", 0, MS_REMOUNT | MS_BIND, 0), EPERM);
    SYS(close(copy));
    SYS(umount2("other/place", 0));
    CHECK_ERR(mount(0, "below", 0, MS_REMOUNT | MS_BIND, 0), EPERM);
    SYS(mount(0, "below", 0, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOEXEC, 0));
    CHECK_ERR(mount(0, "below", 0, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOATIME, 0), EPERM);
    CHECK_ERR(mount(0, "below", 0, MS_REMOUNT | MS_RDONLY, 0), EPERM);
    CHECK_ERR(mount(0, ".", 0, MS_REMOUNT | MS_BIND, 0), EPERM);
    SYS(mount(0, ".", 0, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, 0));
    // What was made here is not locked.
    SYS(mount("none", "other", "tmpfs", 0, 0));
    SYS(umount2("other", 0));
}

// What goes lazily takes along what covers a part of it.
TEST(ns_mount_locked_mounts_stay_on_what_is_unmounted) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(chmod(".", 0777));
    SYS(mkdir("below", 0777));
    SYS(mkdir("below/hidden", 0777));
    SYS(mkdir("other", 0777));
    SYS(mount("none", "below", "tmpfs", 0, 0));
    SYS(mkdir("below/deeper", 0777));
    SYS(mkdir("below/deeper/hidden", 0777));
    SYS(mount("none", "below/deeper", "tmpfs", 0, 0));
    inside();
    SYS(mount(t_dir, "other", 0, MS_BIND | MS_REC, 0));
    SYS(mkdir("own", 0777));
    SYS(mount("none", "other/own", "tmpfs", 0, 0));
    t_make("other/own/f", "");
    int top = SYS(open("other", O_PATH)), covered = SYS(open("other/below", O_PATH));
    SYS(umount2("other", MNT_DETACH));
    OK(faccessat(top, "below", F_OK, 0));
    CHECK_ERR(faccessat(top, "below/hidden", F_OK, 0), ENOENT);
    CHECK_ERR(faccessat(top, "below/deeper/hidden", F_OK, 0), ENOENT);
    CHECK_ERR(faccessat(covered, "deeper/hidden", F_OK, 0), ENOENT);
    SYS(close(covered));
    CHECK_ERR(faccessat(top, "below/deeper/hidden", F_OK, 0), ENOENT);
    // What it mounted itself goes.
    CHECK_ERR(faccessat(top, "own/f", F_OK, 0), ENOENT);
    // Nothing can be done to what has gone.
    SYS(fchdir(top));
    CHECK_ERR(umount2("below", MNT_DETACH), EINVAL);
    CHECK_ERR(mount("none", "own", "tmpfs", 0, 0), ENOENT);
    CHECK_ERR(mount("below", "own", 0, MS_BIND, 0), ENOENT);
    CHECK_ERR(mount("below", t_dir, 0, MS_BIND, 0), EINVAL);
    CHECK_ERR(syscall(SYS_open_tree, AT_FDCWD, "below", 1), EINVAL);
}

// An event takes nothing away that covers a part of what stays.
TEST(ns_mount_locked_mounts_stay_by_events) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(mount(0, ".", 0, MS_SHARED, 0));
    SYS(chmod(".", 0777));
    SYS(mkdir("a", 0777));
    SYS(mount("none", "a", "tmpfs", 0, 0));
    SYS(chmod("a", 0777));
    SYS(mkdir("a/x", 0777));
    SYS(mkdir("a/x/hidden", 0777));
    SYS(mkdir("a/own", 0777));
    SYS(mount("none", "a/x", "tmpfs", 0, 0));
    struct t_gate made = t_gate(), gone = t_gate();
    pid_t child = FORK();
    if (child == 0) {
        inside();
        SYS(mount("none", "a/own", "tmpfs", 0, 0));
        t_open(made);
        t_pass(gone);
        // It stays for what is mounted on it here, as does what is locked there.
        OK(access("a/own", F_OK));
        CHECK_ERR(access("a/x/hidden", F_OK), ENOENT);
        _exit(0);
    }
    t_pass(made);
    SYS(umount2("a", MNT_DETACH));
    t_open(gone);
    CHECK_STATUS(t_status(child), "exit 0");
}

// What may not be copied and covers something cannot be left out of a copy.
TEST(ns_mount_locked_and_unbindable) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(chmod(".", 0777));
    SYS(mkdir("below", 0777));
    SYS(mkdir("other", 0777));
    SYS(mount("none", "below", "tmpfs", 0, 0));
    inside();
    SYS(mount(0, "below", 0, MS_UNBINDABLE, 0));
    CHECK_ERR(mount(t_dir, "other", 0, MS_BIND | MS_REC, 0), EPERM);
    CHECK_ERR(syscall(SYS_open_tree, AT_FDCWD, t_dir, 1 | 0x8000), EPERM);
}

TEST(ns_mount_force) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(chmod(".", 0777));
    SYS(mkdir("a", 0777));
    SYS(mkdir("b", 0777));
    inside();
    SYS(mount("a", "b", 0, MS_BIND, 0));
    // The instance is somebody else's.
    CHECK_ERR(umount2("b", MNT_FORCE), EPERM);
    CHECK_ERR(umount2("b", MNT_FORCE | MNT_DETACH), EPERM);
    SYS(umount2("b", 0));
    SYS(mount("none", "b", "tmpfs", 0, 0));
    SYS(umount2("b", MNT_FORCE));
}

TEST(ns_mount_events) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(mkdir("a", 0777));
    SYS(mkdir("b", 0777));
    SYS(mount(0, ".", 0, MS_SHARED, 0));
    int up[2], down[2];
    SYS(pipe(up));
    SYS(pipe(down));
    pid_t child = SYS(fork());
    if (child == 0) {
        inside();
        MUST(mount("none", "a", "tmpfs", 0, 0) == 0);
        (void)!write(up[1], "x", 1);
        char b;
        (void)!read(down[0], &b, 1);
        // An event came in, and what came stays.
        MUST(access("b/file", F_OK) == 0);
        MUST(access("a/file", F_OK) == -1);
        _exit(0);
    }
    char b;
    SYS(read(up[0], &b, 1));
    // No event goes out.
    SYS(close(SYS(open("a/file", O_CREAT | O_RDWR, 0600))));
    SYS(mount("none", "b", "tmpfs", 0, 0));
    SYS(close(SYS(open("b/file", O_CREAT | O_RDWR, 0600))));
    SYS(write(down[1], "x", 1));
    wait_for(child);
}

TEST(ns_mount_pivot) {
    inside();
    SYS(mount("none", "/tmp", "tmpfs", 0, 0));
    SYS(mkdir("/tmp/new", 0755));
    SYS(mount("/tmp/new", "/tmp/new", 0, MS_BIND, 0));
    SYS(mkdir("/tmp/new/old", 0755));
    SYS(chdir("/tmp/new"));
    SYS(syscall(SYS_pivot_root, ".", "old"));
    SYS(umount2("old", MNT_DETACH));
    SYS(chdir("/"));
    CHECK_ERR(access("/proc", F_OK), ENOENT);
    SYS(chroot("/old"));
}

TEST(ns_mount_setuid_is_off) {
    if (geteuid()) SKIP("needs root");
    // A set-user-ID program of somebody whom the namespace does not have stays what it is.
    SYS(chmod(".", 0755));
    int fd = SYS(open(t_self, O_RDONLY)), to = SYS(open("prog", O_CREAT | O_WRONLY, 0755));
    char data[65536];
    for (int n; (n = read(fd, data, sizeof data)) > 0;) SYS(write(to, data, n));
    SYS(fchmod(to, 04755));
    SYS(close(to));
    pid_t child = SYS(fork());
    if (child == 0) {
        inside();
        execl("./prog", "prog", "-n", "ns_mount_show_uid", (char *)0);
        _exit(1);
    }
    wait_for(child);
}

TEST(ns_mount_show_uid) {
    if (geteuid() != getuid()) _exit(3);
}

// Nobody else's names are held by what a namespace mounts on them.
TEST(ns_mount_points_of_others) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(chmod(".", 0777));
    static const char *const dirs[] = {"empty", "moved", "swapped", "other", "over", "deep"};
    for (int i = 0; i < 6; i++) SYS(mkdir(dirs[i], 0755));
    t_make("file", "");
    t_make("replaced", "");
    t_make("new", "new");
    struct t_gate made = t_gate(), gone = t_gate();
    pid_t child = FORK();
    if (child == 0) {
        inside();
        for (int i = 0; i < 6; i++) SYS(mount("none", dirs[i], "tmpfs", 0, 0));
        t_make("moved/f", "");
        t_make("swapped/f", "");
        SYS(mkdir("deep/in", 0755));
        SYS(mount("none", "deep/in", "tmpfs", 0, 0));
        t_make("deep/in/f", "");
        SYS(mkdir("deep/in/d", 0755));
        SYS(mount("/proc/self/status", "file", 0, MS_BIND, 0));
        SYS(mount("/proc/self/status", "replaced", 0, MS_BIND, 0));
        // They are its own.
        CHECK_ERR(rmdir("empty"), EBUSY);
        CHECK_ERR(rename("moved", "again"), EBUSY);
        CHECK_ERR(rename("new", "replaced"), EBUSY);
        CHECK_ERR(unlink("file"), EBUSY);
        int deep = SYS(open("deep", O_PATH)), in = SYS(open("deep/in/d", O_PATH));
        t_open(made);
        t_pass(gone);
        CHECK_ERR(access("empty", F_OK), ENOENT);
        CHECK_ERR(access("file", F_OK), ENOENT);
        CHECK_ERR(access("over", F_OK), ENOENT);
        CHECK_ERR(access("deep", F_OK), ENOENT);
        char text[10];
        t_slurp("replaced", text, sizeof text);
        CHECK_STR(text, "new");
        OK(access("again/f", F_OK));
        OK(access("other/f", F_OK));
        CHECK_ERR(access("swapped/f", F_OK), ENOENT);
        char *info = get("/proc/self/mountinfo");
        CHECK(strstr(info, "/again ") && !strstr(info, "/deep") && !strstr(info, "/over ") && !strstr(info, "/file "));
        // What goes stays whole for who is there.
        OK(faccessat(deep, "in/f", F_OK, 0));
        OK(faccessat(in, "../../in/f", F_OK, 0));
        _exit(0);
    }
    t_pass(made);
    SYS(rmdir("empty"));
    SYS(unlink("file"));
    SYS(rename("new", "replaced"));
    SYS(rename("moved", "again"));
    SYS(syscall(SYS_renameat2, AT_FDCWD, "swapped", AT_FDCWD, "other", 2));
    SYS(mkdir("source", 0755));
    SYS(rename("source", "over"));
    SYS(rmdir("over"));
    SYS(rmdir("deep"));
    SYS(mkdir("empty", 0755));
    SYS(rmdir("empty"));
    t_open(gone);
    CHECK_STATUS(t_status(child), "exit 0");
}
