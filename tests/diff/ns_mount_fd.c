// The calls that mount by descriptors, across namespaces: who may do what. open_tree(2), move_mount(2), fsconfig(2).
#include "mount_fd.h"
#include "ns.h"

// A mount namespace of its own, where the test's directory is a tmpfs that everybody may write.
static void start(void) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(chmod(".", 0777));
    for (const char *d = "abcd"; *d; d++) SYS(mkdir((char[]){*d, 0}, 0777));
}
static void inside(void) {
    become(1000);
    own_namespaces(CLONE_NEWNS);
}
static const char *fd_path(int fd) {
    static char path[40];
    sprintf(path, "/proc/self/fd/%d", fd);
    return path;
}

// Who has the right over a mount's namespace says what gets its events, from wherever that is.
TEST(ns_mount_fd_types) {
    start();
    SYS(mount("none", "a", "tmpfs", 0, 0));
    SYS(mkdir("a/x", 0777));
    int mine = SYS(open("a", O_PATH));
    CHECK_CHILD({
        inside();
        CHECK_ERR(mount(0, fd_path(mine), 0, MS_SHARED, 0), EPERM);
        SYS(mount(0, "a", 0, MS_SHARED, 0));
    });
    SYS(mount("a", "b", 0, MS_BIND, 0));
    SYS(mount("none", "a/x", "tmpfs", 0, 0));
    t_make("a/x/f", "");
    CHECK_ERR(access("b/x/f", F_OK), ENOENT);
    SYS(umount("a/x"));
    CHECK_CHILD({
        SYS(unshare(CLONE_NEWNS));
        SYS(mount(0, fd_path(mine), 0, MS_SHARED, 0));
        SYS(mount(0, fd_path(SYS(open_tree(AT_FDCWD, "a", CLONE))), 0, MS_SHARED, 0));
    });
    SYS(mount("a", "c", 0, MS_BIND, 0));
    SYS(mount("none", "a/x", "tmpfs", 0, 0));
    t_make("a/x/f", "");
    OK(access("c/x/f", F_OK));
    // Not of what is in no namespace.
    SYS(umount2("a", MNT_DETACH));
    CHECK_ERR(mount(0, fd_path(mine), 0, MS_SHARED, 0), EINVAL);
}

// MOVE_MOUNT_SET_GROUP changes two mounts, each of which is somebody's.
TEST(ns_mount_fd_groups) {
    start();
    SYS(mount("none", "a", "tmpfs", 0, 0));
    SYS(mkdir("a/x", 0777));
    SYS(mount("a", "b", 0, MS_BIND, 0));
    SYS(mount(0, "a", 0, MS_SHARED, 0));
    int group = SYS(open("a", O_PATH)), alone = SYS(open("b", O_PATH));
    CHECK_CHILD({
        inside();
        SYS(mount("a", "c", 0, MS_BIND, 0));
        SYS(mount(0, "c", 0, MS_PRIVATE, 0));
        CHECK_ERR(move_mount(group, "", AT_FDCWD, "c", F_EMPTY | SET_GROUP), EPERM);
        CHECK_ERR(move_mount(AT_FDCWD, "a", alone, "", T_EMPTY | SET_GROUP), EPERM);
        CHECK_ERR(move_mount(AT_FDCWD, "a/x", alone, "", T_EMPTY | SET_GROUP), EPERM);
        SYS(mount("none", "c/x", "tmpfs", 0, 0));
        // Between two of its own.
        SYS(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP));
    });
    CHECK_ERR(access("b/x/f", F_OK), ENOENT);
    // With the right, namespaces do not matter.
    SYS(open("/proc/self/ns/mnt", O_RDONLY));
    SYS(unshare(CLONE_NEWNS));
    SYS(mount("a", "c", 0, MS_BIND, 0));
    SYS(mount(0, "c", 0, MS_PRIVATE, 0));
    OK(move_mount(group, "", AT_FDCWD, "c", F_EMPTY | SET_GROUP));
    SYS(mount("none", "c/x", "tmpfs", 0, 0));
    t_make("c/x/f", "");
    OK(faccessat(group, "x/f", F_OK, 0));
}

// A mount gets no events of one that shows less than it does.
TEST(ns_mount_fd_groups_with_locked_mounts) {
    start();
    SYS(mount(".", "b", 0, MS_BIND, 0));
    SYS(mount(".", "c", 0, MS_BIND, 0));
    SYS(mount(0, ".", 0, MS_SHARED, 0));
    OK(move_mount(AT_FDCWD, ".", AT_FDCWD, "c", SET_GROUP));
    CHECK_CHILD({
        inside();
        CHECK_ERR(move_mount(AT_FDCWD, ".", AT_FDCWD, "b", SET_GROUP), EINVAL);
    });
}

// An instance is changed by those who have the right over its own user namespace, whatever they can mount.
TEST(ns_mount_fd_reconfigure) {
    start();
    SYS(mount("none", "a", "tmpfs", 0, "mode=777"));
    int from_outside = SYS(fspick(AT_FDCWD, "a", 0)), new_one = SYS(fsopen("tmpfs", 0));
    CHECK_CHILD({
        inside();
        int fs = SYS(fspick(AT_FDCWD, "a", 0));
        OK(fsconfig(fs, SET_FLAG, "ro", 0, 0));
        CHECK_ERR(fsconfig(fs, RECONFIGURE, 0, 0, 0), EPERM);
        CHECK_ERR(fsconfig(fs, SET_FLAG, "ro", 0, 0), EBUSY);
        CHECK_ERR(fsconfig(from_outside, RECONFIGURE, 0, 0, 0), EPERM);
        CHECK_ERR(fsconfig(new_one, CREATE, 0, 0, 0), EPERM);
        t_make("a/f", "");
        // Its own.
        SYS(mount("none", "b", "tmpfs", 0, 0));
        fs = SYS(fspick(AT_FDCWD, "b", 0));
        OK(fsconfig(fs, SET_FLAG, "ro", 0, 0));
        OK(fsconfig(fs, RECONFIGURE, 0, 0, 0));
        CHECK_ERR(mkdir("b/d", 0755), EROFS);
    });
    OK(access("a/f", W_OK));
    OK(fsconfig(new_one, CREATE, 0, 0, 0));
}

// A new instance of sysfs shows what is hidden from the namespace.
TEST(ns_mount_fd_revealing) {
    start();
    SYS(mount("none", "/sys/class", "tmpfs", 0, 0));
    CHECK_CHILD({
        become(1000);
        own_namespaces(CLONE_NEWNS | CLONE_NEWNET);
        int fs = SYS(fsopen("sysfs", 0));
        SYS(fsconfig(fs, CREATE, 0, 0, 0));
        CHECK_ERR(fsmount(fs, 0, 0xf), EPERM);
        CHECK_ERR(fsmount(fs, 0, 0xf), EPERM);
        char b[200] = "";
        SYS(read(fs, b, sizeof b));
        CHECK_STR(b, "e VFS: Mount too revealing\n");
        CHECK_ERR(mount("none", "a", "sysfs", MS_RDONLY, 0), EPERM);
    });
}
TEST(ns_mount_fd_shows_what_is_seen_anyway) {
    become(1000);
    own_namespaces(CLONE_NEWNS | CLONE_NEWNET);
    SYS(mount("none", "/tmp", "tmpfs", 0, 0));
    int fs = SYS(fsopen("sysfs", 0));
    SYS(fsconfig(fs, CREATE, 0, 0, 0));
    int m = SYS(fsmount(fs, 0, 0xf));
    SYS(move_mount(m, "", AT_FDCWD, "/tmp", F_EMPTY));
    OK(access("/tmp/class", F_OK));
}

static int own_ns_file(void) { return SYS(open("/proc/self/ns/mnt", O_RDONLY)); }

// No mount namespace keeps itself alive.
TEST(ns_mount_fd_loops) {
    // What is younger is so on one CPU, as Linux numbers namespaces.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    SYS(sched_setaffinity(0, sizeof one, &one));
    start();
    t_make("f", "");
    t_make("a/f", "");
    struct t_gate made = t_gate(), go = t_gate();
    int outer = own_ns_file(), pair[2];
    SYS(pipe(pair));
    pid_t child = FORK();
    if (child == 0) {
        SYS(unshare(CLONE_NEWNS));
        t_open(made);
        t_pass(go);
        // The older namespace, and a copy of the file of this one that the older namespace has made.
        char path[40];
        int number;
        SYS(read(pair[0], &number, sizeof number));
        sprintf(path, "/proc/%d/fd/%d", getppid(), number);
        CHECK_ERR(mount("/proc/self/ns/mnt", "f", 0, MS_BIND, 0), EINVAL);
        CHECK_ERR(mount(fd_path(outer), "f", 0, MS_BIND, 0), EINVAL);
        int own = SYS(open_tree(AT_FDCWD, "/proc/self/ns/mnt", CLONE));
        CHECK_ERR(move_mount(own, "", AT_FDCWD, "f", F_EMPTY), ELOOP);
        own = SYS(open_tree(outer, "", CLONE | AT_EMPTY_PATH));
        CHECK_ERR(move_mount(own, "", AT_FDCWD, "f", F_EMPTY), ELOOP);
        int tree = SYS(open(path, O_PATH));
        OK(faccessat(tree, "f", F_OK, 0));
        CHECK_ERR(move_mount(tree, "", AT_FDCWD, "b", F_EMPTY), ELOOP);
        _exit(0);
    }
    t_pass(made);
    char file[40];
    sprintf(file, "/proc/%d/ns/mnt", child);
    // The older one may keep the younger one alive.
    SYS(mount("none", "a", "tmpfs", 0, 0));
    t_make("a/f", "");
    SYS(mount(file, "a/f", 0, MS_BIND, 0));
    int tree = SYS(open_tree(AT_FDCWD, "a", CLONE | RECURSIVE));
    SYS(write(pair[1], &tree, sizeof tree));
    t_open(go);
    CHECK_STATUS(t_status(child), "exit 0");
    // Copies within the namespace have the file, a new namespace has not, nor has a copy by an event.
    struct stat inner;
    struct stat st;
    SYS(stat("a/f", &inner));
    SYS(mount("a", "b", 0, MS_BIND | MS_REC, 0));
    SYS(stat("b/f", &st));
    CHECK_EQ(st.st_ino, inner.st_ino);
    SYS(mount("none", "c", "tmpfs", 0, 0));
    SYS(mkdir("c/in", 0755));
    t_make("c/f", "");
    SYS(mount("c", "d", 0, MS_BIND, 0));
    SYS(mount(0, "c", 0, MS_SHARED, 0));
    OK(move_mount(AT_FDCWD, "c", AT_FDCWD, "d", SET_GROUP));
    CHECK_ERR(mount("a/f", "c/f", 0, MS_BIND, 0), EINVAL);
    SYS(mount("a", "c/in", 0, MS_BIND | MS_REC, 0));
    SYS(stat("c/in/f", &st));
    CHECK_EQ(st.st_ino, inner.st_ino);
    SYS(stat("d/in/f", &st));
    CHECK(st.st_ino != inner.st_ino);
    SYS(unshare(CLONE_NEWNS));
    SYS(stat("b/f", &st));
    CHECK(st.st_ino != inner.st_ino);
}

// Trees that are mounted nowhere are used in the namespace that they come from.
TEST(ns_mount_fd_trees_of_others) {
    start();
    SYS(mount("none", "a", "tmpfs", 0, 0));
    SYS(mkdir("a/in", 0777));
    int copy = SYS(open_tree(AT_FDCWD, "a", CLONE)), again = SYS(open_tree(copy, "", CLONE | AT_EMPTY_PATH));
    int fs = SYS(fsopen("tmpfs", 0));
    SYS(fsconfig(fs, CREATE, 0, 0, 0));
    int made = SYS(fsmount(fs, 0, 0));
    SYS(mkdirat(made, "in", 0777));
    SYS(close(SYS(open_tree(again, "", CLONE | AT_EMPTY_PATH))));
    SYS(open("/proc/self/ns/mnt", O_RDONLY));
    SYS(unshare(CLONE_NEWNS));
    CHECK_ERR(open_tree(copy, "", CLONE | AT_EMPTY_PATH), EINVAL);
    CHECK_ERR(open_tree(again, "", CLONE | AT_EMPTY_PATH), EINVAL);
    CHECK_ERR(mount(fd_path(copy), "b", 0, MS_BIND, 0), EINVAL);
    int other = SYS(open_tree(AT_FDCWD, "a", CLONE));
    CHECK_ERR(move_mount(other, "", copy, "in", F_EMPTY), EINVAL);
    // A new one comes from nowhere.
    SYS(move_mount(other, "", made, "in", F_EMPTY));
    SYS(open_tree(made, "", CLONE | AT_EMPTY_PATH));
    SYS(mount(fd_path(made), "c", 0, MS_BIND, 0));
    // Any can be mounted.
    SYS(move_mount(copy, "", AT_FDCWD, "b", F_EMPTY));
    OK(access("b/in", F_OK));
}

// What is beneath a locked mount could be taken away together with it.
TEST(ns_mount_fd_beneath_a_locked_mount) {
    start();
    t_make("a/hidden", "");
    SYS(mount("none", "a", "tmpfs", 0, 0));
    CHECK_CHILD({
        inside();
        int fs = SYS(fsopen("tmpfs", 0));
        SYS(fsconfig(fs, CREATE, 0, 0, 0));
        int m = SYS(fsmount(fs, 0, 0));
        CHECK_ERR(move_mount(m, "", AT_FDCWD, "a", F_EMPTY | BENEATH), EINVAL);
        SYS(mount("none", "a", "tmpfs", 0, 0));
        SYS(move_mount(m, "", AT_FDCWD, "a", F_EMPTY | BENEATH));
        SYS(umount("a"));
        SYS(umount2(fd_path(m), MNT_DETACH));
        CHECK_ERR(access("a/hidden", F_OK), ENOENT);
    });
    // Nor does anything go below the caller's own root.
    SYS(mount("none", "b", "tmpfs", 0, 0));
    SYS(chroot("b"));
    int fs = SYS(fsopen("tmpfs", 0));
    SYS(fsconfig(fs, CREATE, 0, 0, 0));
    CHECK_ERR(move_mount(SYS(fsmount(fs, 0, 0)), "", AT_FDCWD, "/", F_EMPTY | BENEATH), EINVAL);
}
