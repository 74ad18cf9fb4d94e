// Shared subtrees: which mounts and unmounts reach which other mounts, and how mountinfo shows it. MNT_EXPIRE, remounts.
#include "t.h"
#include <sys/mount.h>
#include <sys/statvfs.h>

#define MS_NOSYMFOLLOW_ 256

// The line of mountinfo of the topmost mount at t_dir/where; empty when nothing is mounted there.
static const char *line_of(const char *where) {
    static char b[1 << 18], found[600];
    t_slurp("/proc/self/mountinfo", b, sizeof b);
    char want[400];
    snprintf(want, sizeof want, " %s/%s ", t_dir, where);
    found[0] = 0;
    for (char *l = strtok(b, "\n"); l; l = strtok(0, "\n"))
        if (strstr(l, want)) snprintf(found, sizeof found, "%s", l);
    return found;
}
static int mounted(const char *where) { return *line_of(where) != 0; }
static int count_at(const char *where) {
    static char b[1 << 18];
    t_slurp("/proc/self/mountinfo", b, sizeof b);
    char want[400];
    snprintf(want, sizeof want, " %s/%s ", t_dir, where);
    int n = 0;
    for (char *p = b; (p = strstr(p, want)); p++) n++;
    return n;
}
// The number of an optional field ("shared:", "master:"); 0 without it.
static int tag(const char *where, const char *name) {
    const char *l = line_of(where);
    const char *end = strstr(l, " - "), *at = strstr(l, name);
    return at && at < end ? atoi(at + strlen(name)) : 0;
}
static int shared(const char *where) { return tag(where, " shared:"); }
static int master(const char *where) { return tag(where, " master:"); }

// A namespace of its own, and private directories a, b, c, d.
static void start(void) {
    SYS(unshare(CLONE_NEWNS));
    OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    for (const char *d = "abcd"; *d; d++) SYS(mkdir((char[]){*d, 0}, 0755));
}
// A tmpfs at `a` with directories x and y, and propagation type `type`; a bind mount of it at `b`.
static void pair(unsigned long type) {
    start();
    OK(mount("t", "a", "tmpfs", 0, "size=64k"));
    SYS(mkdir("a/x", 0755));
    SYS(mkdir("a/y", 0755));
    OK(mount(0, "a", 0, type, 0));
    OK(mount("a", "b", 0, MS_BIND, 0));
}
static int t_mount(const char *where) { return mount("n", where, "tmpfs", 0, "size=16k"); }

TEST(peers_see_mounts_and_unmounts) {
    pair(MS_SHARED);
    CHECK(shared("a") && shared("a") == shared("b"));
    OK(t_mount("a/x"));
    CHECK(mounted("a/x") && mounted("b/x"));
    CHECK(shared("a/x") && shared("a/x") == shared("b/x"));
    CHECK(shared("a/x") != shared("a"));
    t_make("a/x/f", "");
    OK(access("b/x/f", F_OK));
    OK(umount("b/x"));
    CHECK(!mounted("a/x") && !mounted("b/x"));
    OK(t_mount("b/y"));
    CHECK(mounted("a/y"));
    OK(umount2("a/y", MNT_DETACH));
    CHECK(!mounted("b/y"));
}
TEST(private_mounts_see_nothing) {
    pair(MS_PRIVATE);
    CHECK(!shared("a") && !master("a"));
    OK(t_mount("a/x"));
    CHECK(!mounted("b/x") && !shared("a/x"));
    OK(umount("a/x"));
}
TEST(slaves_follow) {
    pair(MS_SHARED);
    int group = shared("a");
    OK(mount(0, "b", 0, MS_SLAVE, 0));
    CHECK_EQ(master("b"), group);
    CHECK_EQ(shared("b"), 0);
    OK(t_mount("a/x"));
    CHECK(mounted("b/x"));
    CHECK_EQ(master("b/x"), shared("a/x"));
    CHECK_EQ(shared("b/x"), 0);
    OK(t_mount("b/y"));
    CHECK(!mounted("a/y"));
    OK(umount("b/y"));
    OK(umount("b/x"));
    CHECK(mounted("a/x"));
    OK(umount("a/x"));
    // A slave of itself is a slave still; private leaves.
    OK(mount(0, "b", 0, MS_SLAVE, 0));
    CHECK_EQ(master("b"), group);
    OK(mount(0, "b", 0, MS_PRIVATE, 0));
    CHECK_EQ(master("b"), 0);
    // Without peers a shared mount that becomes a slave is private.
    OK(mount(0, "a", 0, MS_SLAVE, 0));
    CHECK_EQ(master("a"), 0);
    CHECK_EQ(shared("a"), 0);
}
TEST(shared_slaves) {
    pair(MS_SHARED);
    int group = shared("a");
    OK(mount(0, "b", 0, MS_SLAVE, 0));
    OK(mount(0, "b", 0, MS_SHARED, 0));
    CHECK_EQ(master("b"), group);
    CHECK(shared("b") && shared("b") != group);
    OK(mount("b", "c", 0, MS_BIND, 0));
    CHECK_EQ(shared("c"), shared("b"));
    CHECK_EQ(master("c"), group);
    OK(mount("c", "d", 0, MS_BIND, 0));
    OK(mount(0, "d", 0, MS_SLAVE, 0));
    CHECK_EQ(master("d"), shared("b"));
    OK(t_mount("a/x"));
    CHECK(mounted("b/x") && mounted("c/x") && mounted("d/x"));
    CHECK_EQ(master("b/x"), shared("a/x"));
    CHECK_EQ(master("c/x"), shared("a/x"));
    CHECK_EQ(shared("b/x"), shared("c/x"));
    CHECK_EQ(master("d/x"), shared("b/x"));
    OK(t_mount("c/y"));
    CHECK(mounted("b/y") && mounted("d/y") && !mounted("a/y"));
    OK(umount("a/x"));
    CHECK(!mounted("b/x") && !mounted("c/x") && !mounted("d/x"));
    OK(umount("b/y"));
    CHECK(!mounted("c/y") && !mounted("d/y"));
}
TEST(slaves_of_a_group_that_ends_get_its_master) {
    pair(MS_SHARED);
    int group = shared("a");
    OK(mount(0, "b", 0, MS_SLAVE, 0));
    OK(mount(0, "b", 0, MS_SHARED, 0));
    OK(mount("b", "c", 0, MS_BIND, 0));
    OK(mount(0, "c", 0, MS_SLAVE, 0));
    CHECK_EQ(master("c"), shared("b"));
    OK(umount("b"));
    CHECK_EQ(master("c"), group);
    OK(t_mount("a/x"));
    CHECK(mounted("c/x"));
    OK(umount2("a", MNT_DETACH));
    CHECK_EQ(master("c"), 0);
}
TEST(unbindable_mounts_are_not_bound) {
    start();
    OK(t_mount("a"));
    OK(mount(0, "a", 0, MS_UNBINDABLE, 0));
    CHECK(strstr(line_of("a"), " unbindable ") != 0);
    CHECK_ERR(mount("a", "b", 0, MS_BIND, 0), EINVAL);
    SYS(mkdir("c/sub", 0755));
    OK(t_mount("c/sub"));
    OK(mount(0, "c/sub", 0, MS_UNBINDABLE, 0));
    OK(mount("c", "d", 0, MS_BIND | MS_REC, 0));
    CHECK(mounted("d") && !mounted("d/sub"));
    // A slave of nobody: nothing changes. Shared or private ends it.
    OK(mount(0, "a", 0, MS_SLAVE, 0));
    int still = strstr(line_of("a"), " unbindable ") != 0;
    CHECK_EQ(still, 1);
    OK(mount(0, "a", 0, MS_SHARED, 0));
    CHECK(strstr(line_of("a"), " unbindable ") == 0);
    OK(unshare(CLONE_NEWNS));
    CHECK(mounted("c/sub"));
}
TEST(between_namespaces) {
    start();
    OK(mount("t", "a", "tmpfs", 0, "size=64k"));
    SYS(mkdir("a/x", 0755));
    SYS(mkdir("a/y", 0755));
    OK(mount(0, "a", 0, MS_SHARED, 0));
    struct t_gate g = t_gate(), h = t_gate(), i = t_gate(), j = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        OK(unshare(CLONE_NEWNS));
        CHECK(shared("a"));
        t_open(g);
        t_pass(h);
        CHECK(mounted("a/x"));
        OK(t_mount("a/y"));
        OK(umount("a/x"));
        OK(mount(0, "a", 0, MS_SLAVE, 0));
        CHECK(master("a"));
        t_open(i);
        t_pass(j);
        CHECK(!mounted("a/y"));
        OK(t_mount("a/y"));
        _exit(0);
    }
    t_pass(g);
    OK(t_mount("a/x"));
    t_open(h);
    t_pass(i);
    CHECK(!mounted("a/x") && mounted("a/y"));
    OK(umount("a/y"));
    t_open(j);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK(!mounted("a/y"));
}
TEST(the_mount_of_a_master_slips_below) {
    pair(MS_SHARED);
    OK(mount(0, "b", 0, MS_SLAVE, 0));
    OK(t_mount("b/x"));
    t_make("b/x/own", "");
    OK(t_mount("a/x"));
    t_make("a/x/masters", "");
    CHECK_EQ(count_at("b/x"), 2);
    OK(access("b/x/own", F_OK));
    OK(umount("b/x"));
    OK(access("b/x/masters", F_OK));
    OK(umount("a/x"));
    CHECK_EQ(count_at("b/x"), 0);
    // The master's goes away from below.
    OK(t_mount("b/x"));
    t_make("b/x/own", "");
    OK(t_mount("a/x"));
    OK(umount("a/x"));
    CHECK_EQ(count_at("b/x"), 1);
    OK(access("b/x/own", F_OK));
    OK(umount("b/x"));
}
TEST(what_carries_others_stays) {
    pair(MS_SHARED);
    OK(mount(0, "b", 0, MS_SLAVE, 0));
    OK(t_mount("a/x"));
    SYS(mkdir("a/x/deep", 0755));
    OK(t_mount("b/x/deep"));
    CHECK(!mounted("a/x/deep"));
    OK(umount("a/x"));
    CHECK(mounted("b/x") && mounted("b/x/deep"));
    OK(umount("b/x/deep"));
    OK(umount("b/x"));
}
TEST(busy_peers) {
    pair(MS_SHARED);
    OK(t_mount("a/x"));
    int fd = t_file("b/x/f", "");
    CHECK_ERR(umount("a/x"), EBUSY);
    close(fd);
    OK(umount("a/x"));
}
TEST(a_tree_reaches_peers) {
    pair(MS_SHARED);
    OK(t_mount("c"));
    SYS(mkdir("c/in", 0755));
    OK(t_mount("c/in"));
    OK(mount("c", "a/x", 0, MS_BIND | MS_REC, 0));
    CHECK(mounted("b/x") && mounted("b/x/in"));
    OK(umount2("b/x", MNT_DETACH));
    CHECK(!mounted("a/x") && !mounted("a/x/in"));
    OK(mount("c", "a/x", 0, MS_MOVE, 0));
    CHECK(mounted("b/x/in") && !mounted("c"));
    // It has a shared parent now.
    CHECK_ERR(mount("a/x", "d", 0, MS_MOVE, 0), EINVAL);
}
TEST(a_part_sees_what_lies_in_it) {
    start();
    OK(mount("t", "a", "tmpfs", 0, "size=64k"));
    SYS(mkdir("a/x", 0755));
    SYS(mkdir("a/x/in", 0755));
    SYS(mkdir("a/y", 0755));
    OK(mount(0, "a", 0, MS_SHARED, 0));
    OK(mount("a/x", "b", 0, MS_BIND, 0));
    OK(t_mount("a/x/in"));
    CHECK(mounted("b/in"));
    OK(t_mount("a/y"));
    CHECK_EQ(count_at("b/in"), 1);
    OK(umount("b/in"));
    CHECK(!mounted("a/x/in"));
}
TEST(moving) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/sub", 0755));
    CHECK_ERR(mount("a", "a/sub", 0, MS_MOVE, 0), ELOOP);
    CHECK_ERR(mount("a/sub", "b", 0, MS_MOVE, 0), EINVAL);
    OK(t_mount("b"));
    OK(mount(0, "b", 0, MS_SHARED, 0));
    SYS(mkdir("b/to", 0755));
    OK(mount(0, "a", 0, MS_UNBINDABLE, 0));
    CHECK_ERR(mount("a", "b/to", 0, MS_MOVE, 0), EINVAL);
    t_make("file", "");
    CHECK_ERR(mount("a", "file", 0, MS_MOVE, 0), EINVAL);
    OK(mount(0, "a", 0, MS_PRIVATE, 0));
    OK(mount("a", "b/to", 0, MS_MOVE, 0));
    CHECK(shared("b/to"));
    CHECK_ERR(mount("", "c", 0, MS_MOVE, 0), EINVAL);
}
TEST(types_that_are_refused) {
    start();
    OK(t_mount("a"));
    CHECK_ERR(mount(0, "a", 0, MS_SHARED | MS_PRIVATE, 0), EINVAL);
    CHECK_ERR(mount(0, "a", 0, MS_SHARED | MS_RDONLY, 0), EINVAL);
    CHECK_ERR(mount(0, "b", 0, MS_SHARED, 0), EINVAL);
    OK(mount(0, "a", 0, MS_SHARED | MS_SILENT, 0));
    CHECK_ERR(mount("n", "c", "tmpfs", 1UL << 31, 0), EINVAL);
    CHECK_ERR(mount(0, "c", 0, MS_REMOUNT, 0), EINVAL);
    CHECK_ERR(mount(0, "c", 0, MS_REMOUNT | MS_BIND, 0), EINVAL);
    CHECK_ERR(mount("n", "c", 0, 0, 0), EINVAL);
    CHECK_ERR(mount(0, "c", 0, MS_BIND, 0), EINVAL);
    CHECK_ERR(mount("", "c", 0, MS_BIND, 0), EINVAL);
}
TEST(recursive_types) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/in", 0755));
    OK(t_mount("a/in"));
    OK(mount(0, "a", 0, MS_SHARED | MS_REC, 0));
    CHECK(shared("a/in") && shared("a/in") != shared("a"));
    OK(mount(0, "a", 0, MS_PRIVATE, 0));
    CHECK(shared("a/in") && !shared("a"));
}
TEST(expire) {
    start();
    OK(t_mount("a"));
    CHECK_ERR(umount2("a", MNT_EXPIRE | MNT_DETACH), EINVAL);
    CHECK_ERR(umount2("a", MNT_EXPIRE | MNT_FORCE), EINVAL);
    CHECK_ERR(umount2("b", MNT_EXPIRE), EINVAL);
    int fd = t_file("a/f", "");
    CHECK_ERR(umount2("a", MNT_EXPIRE), EBUSY);
    close(fd);
    CHECK_ERR(umount2("a", MNT_EXPIRE), EAGAIN);
    OK(access("a/f", F_OK));
    CHECK_ERR(umount2("a", MNT_EXPIRE), EAGAIN);
    struct stat s;
    OK(stat("a/f", &s));
    CHECK_ERR(umount2("a", MNT_EXPIRE), EAGAIN);
    OK(umount2("a", MNT_EXPIRE));
    CHECK(!mounted("a"));
}
TEST(nofollow) {
    start();
    OK(t_mount("a"));
    SYS(symlink("a", "link"));
    CHECK_ERR(umount2("link", UMOUNT_NOFOLLOW), EINVAL);
    OK(umount2("link", 0));
    CHECK(!mounted("a"));
}
TEST(writers_keep_it_writable) {
    start();
    OK(t_mount("a"));
    int fd = t_file("a/f", "x");
    CHECK_ERR(mount(0, "a", 0, MS_REMOUNT | MS_RDONLY, 0), EBUSY);
    CHECK_ERR(mount(0, "a", 0, MS_REMOUNT | MS_BIND | MS_RDONLY, 0), EBUSY);
    t_make("a/g", "");
    OK(mount("a", "b", 0, MS_BIND, 0));
    OK(mount(0, "b", 0, MS_REMOUNT | MS_BIND | MS_RDONLY, 0));
    CHECK_ERR(open("b/g", O_WRONLY), EROFS);
    CHECK_ERR(mount(0, "b", 0, MS_REMOUNT | MS_RDONLY, 0), EBUSY);
    close(fd);
    fd = SYS(open("a/f", O_RDONLY));
    OK(mount(0, "a", 0, MS_REMOUNT | MS_RDONLY, 0));
    CHECK_ERR(open("a/f", O_WRONLY), EROFS);
    close(fd);
}
TEST(flags_are_shown) {
    start();
    OK(mount("n", "a", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME, 0));
    CHECK(strstr(line_of("a"), " ro,nosuid,nodev,noexec,noatime,nodiratime - tmpfs n ro") != 0);
    OK(mount(0, "a", 0, MS_REMOUNT | MS_BIND, 0));
    CHECK(strstr(line_of("a"), " rw,noatime,nodiratime - tmpfs n ro") != 0);
    CHECK_ERR(mkdir("a/d", 0755), EROFS);
    OK(mount(0, "a", 0, MS_REMOUNT | MS_SYNCHRONOUS | MS_STRICTATIME, 0));
    CHECK(strstr(line_of("a"), " rw - tmpfs n rw,sync") != 0);
    OK(mount("n", "b", "tmpfs", MS_STRICTATIME | MS_NODIRATIME | MS_DIRSYNC | MS_NOSYMFOLLOW_, 0));
    CHECK(strstr(line_of("b"), " rw,nodiratime,nosymfollow - tmpfs n rw,dirsync") != 0);
    t_make("b/f", "x");
    SYS(symlink("f", "b/l"));
    CHECK_ERR(open("b/l", O_RDONLY), ELOOP);
    OK(access("b/f", F_OK));
    char m[1 << 16], want[400];
    t_slurp("/proc/self/mounts", m, sizeof m);
    snprintf(want, sizeof want, "n %s/b tmpfs rw,dirsync,nodiratime,nosymfollow", t_dir);
    CHECK(strstr(m, want) != 0);
}
static long atime_ns(const char *f) {
    struct stat s;
    SYS(stat(f, &s));
    return s.st_atim.tv_sec % 100000 * 1000000000L + s.st_atim.tv_nsec;
}
static int read_changes(const char *f) {
    long before = atime_ns(f);
    usleep(20000);
    char c;
    int fd = SYS(open(f, O_RDONLY));
    CHECK_EQ(read(fd, &c, 1), 1);
    close(fd);
    return atime_ns(f) != before;
}
TEST(times_of_access) {
    start();
    OK(mount("n", "a", "tmpfs", MS_STRICTATIME, 0));
    t_make("a/f", "x");
    CHECK(read_changes("a/f"));
    CHECK(read_changes("a/f"));
    OK(mount(0, "a", 0, MS_REMOUNT | MS_BIND | MS_RELATIME, 0));
    CHECK(!read_changes("a/f"));
    OK(mount(0, "a", 0, MS_REMOUNT | MS_BIND | MS_NOATIME, 0));
    t_make("a/g", "x");
    CHECK(!read_changes("a/g"));
    CHECK(strstr(line_of("a"), " rw,noatime ") != 0);
}
TEST(mount_max) {
    char b[32];
    t_slurp("/proc/sys/fs/mount-max", b, sizeof b);
    CHECK_EQ(atoi(b), 100000);
}
