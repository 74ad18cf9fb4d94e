// The calls that mount by descriptors: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, statmount,
// listmount.
#include "mount_fd.h"
#include <sys/sysmacros.h>

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
static void start(void) {
    SYS(unshare(CLONE_NEWNS));
    OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    for (const char *d = "abcd"; *d; d++) SYS(mkdir((char[]){*d, 0}, 0755));
}
static int t_mount(const char *where) { return mount("n", where, "tmpfs", 0, "size=16k"); }
static int new_tmpfs(void) {
    int fs = SYS(fsopen("tmpfs", 1));
    OK(fsconfig(fs, SET_STRING, "size", "64k", 0));
    OK(fsconfig(fs, CREATE, 0, 0, 0));
    int m = SYS(fsmount(fs, 1, 0));
    close(fs);
    return m;
}

TEST(a_file_system_in_steps) {
    start();
    int fs = SYS(fsopen("tmpfs", 1));
    CHECK_EQ(fcntl(fs, F_GETFD), FD_CLOEXEC);
    OK(fsconfig(fs, SET_STRING, "source", "mine", 0));
    OK(fsconfig(fs, SET_STRING, "size", "64k", 0));
    OK(fsconfig(fs, SET_STRING, "mode", "0711", 0));
    CHECK_ERR(fsmount(fs, 0, 0), EINVAL);
    OK(fsconfig(fs, CREATE, 0, 0, 0));
    CHECK_ERR(fsconfig(fs, CREATE, 0, 0, 0), EBUSY);
    CHECK_ERR(fsconfig(fs, SET_STRING, "size", "1k", 0), EBUSY);
    int m = SYS(fsmount(fs, 1, 1 | 2 | 0x10));
    CHECK_ERR(fsmount(fs, 1, 0), EBUSY);
    // It can be used before anybody sees it.
    struct stat s;
    OK(fstat(m, &s));
    CHECK_EQ(s.st_mode & 07777, 0711);
    CHECK_ERR(openat(m, "f", O_CREAT | O_WRONLY, 0644), EROFS);
    OK(move_mount(m, "", AT_FDCWD, "a", F_EMPTY));
    CHECK(strstr(line_of("a"), " ro,nosuid,noatime - tmpfs mine rw,size=64k,mode=711") != 0);
    CHECK_ERR(umount("a"), EBUSY);
    close(m);
    OK(umount("a"));
    // The context goes on as one for changes.
    OK(fsconfig(fs, SET_FLAG, "ro", 0, 0));
    OK(fsconfig(fs, RECONFIGURE, 0, 0, 0));
    close(fs);
}
TEST(errors_can_be_read) {
    start();
    int fs = SYS(fsopen("tmpfs", 0));
    char b[200];
    CHECK_ERR(read(fs, b, sizeof b), ENODATA);
    CHECK_ERR(fsconfig(fs, SET_STRING, "nonsense", "1", 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_STRING, "huge", "maybe", 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_STRING, "noswap", "1", 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_FLAG, "source", 0, 0), EINVAL);
    OK(fsconfig(fs, SET_STRING, "source", "x", 0));
    CHECK_ERR(fsconfig(fs, SET_STRING, "source", "y", 0), EINVAL);
    const char *want[] = {"e tmpfs: Unknown parameter 'nonsense'\n", "e tmpfs: Bad value for 'huge'\n",
                          "e tmpfs: Unexpected value for 'noswap'\n", "e Non-string source\n", "e Multiple sources\n"};
    for (int i = 0; i < 5; i++) {
        memset(b, 0, sizeof b);
        CHECK_EQ(read(fs, b, sizeof b), (long)strlen(want[i]));
        CHECK_STR(b, want[i]);
    }
    for (int i = 0; i < 10; i++) {
        char k[10];
        sprintf(k, "k%d", i);
        CHECK_ERR(fsconfig(fs, SET_STRING, k, "v", 0), EINVAL);
    }
    CHECK_ERR(read(fs, b, 4), EMSGSIZE);
    memset(b, 0, sizeof b);
    SYS(read(fs, b, sizeof b));
    CHECK_STR(b, "e tmpfs: Unknown parameter 'k2'\n");
    CHECK_ERR(write(fs, b, 1), EINVAL);
    CHECK_ERR(mount("n", "a", "tmpfs", 0, "size=1m,size=much"), EINVAL);
}
TEST(what_fsconfig_refuses) {
    start();
    int fs = SYS(fsopen("tmpfs", 0));
    CHECK_ERR(fsconfig(-1, CREATE, 0, 0, 0), EINVAL);
    CHECK_ERR(fsconfig(fs, CREATE, "x", 0, 0), EINVAL);
    CHECK_ERR(fsconfig(fs, CREATE, 0, 0, 1), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_STRING, 0, "x", 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_STRING, "size", 0, 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_STRING, "size", "1", 1), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_FLAG, "ro", "1", 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_BINARY, "size", "1", 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_BINARY, "size", "1", (1 << 20) + 1), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_PATH, "size", "1", -1), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_FD, "size", 0, 999), EBADF);
    CHECK_ERR(fsconfig(fs, SET_FD, "size", 0, fs), EINVAL);
    CHECK_ERR(fsconfig(fs, 99, 0, 0, 0), EOPNOTSUPP);
    CHECK_ERR(fsconfig(fs, SET_STRING, BAD_PTR, "x", 0), EFAULT);
    CHECK_ERR(fsconfig(fs, SET_STRING, "size", BAD_PTR, 0), EFAULT);
    CHECK_ERR(fsconfig(fs, RECONFIGURE, 0, 0, 0), EBUSY);
    int other = SYS(open("/dev/null", O_RDONLY));
    CHECK_ERR(fsconfig(other, CREATE, 0, 0, 0), EINVAL);
    CHECK_ERR(fsmount(other, 0, 0), EINVAL);
    CHECK_ERR(fsmount(999, 0, 0), EBADF);
    CHECK_ERR(fsmount(fs, 2, 0), EINVAL);
    CHECK_ERR(fsmount(fs, 0, 0x30), EINVAL);
    CHECK_ERR(fsmount(fs, 0, 0x100), EINVAL);
    CHECK_ERR(fsopen("tmpfs", 2), EINVAL);
    CHECK_ERR(fsopen("nosuchfs", 0), ENODEV);
    CHECK_ERR(fsopen(BAD_PTR, 0), EFAULT);
    CHECK_ERR(fspick(AT_FDCWD, "a", 0x10), EINVAL);
    CHECK_ERR(fspick(AT_FDCWD, "a", 0), EINVAL);
    CHECK_ERR(fspick(AT_FDCWD, "missing", 0), ENOENT);
}
TEST(pick_and_change) {
    start();
    OK(t_mount("a"));
    int fs = SYS(fspick(AT_FDCWD, "a", 1));
    CHECK_ERR(fsconfig(fs, CREATE, 0, 0, 0), EBUSY);
    CHECK_ERR(fsmount(fs, 0, 0), EBUSY);
    OK(fsconfig(fs, SET_STRING, "size", "32k", 0));
    OK(fsconfig(fs, RECONFIGURE, 0, 0, 0));
    CHECK(strstr(line_of("a"), "size=32k") != 0);
    int f = t_file("a/f", "x");
    OK(fsconfig(fs, SET_FLAG, "ro", 0, 0));
    CHECK_ERR(fsconfig(fs, RECONFIGURE, 0, 0, 0), EBUSY);
    close(f);
    close(fs);
    fs = SYS(fspick(AT_FDCWD, "a", 0));
    OK(fsconfig(fs, SET_FLAG, "ro", 0, 0));
    OK(fsconfig(fs, RECONFIGURE, 0, 0, 0));
    CHECK(strstr(line_of("a"), " - tmpfs n ro,size=32k") != 0);
    CHECK_ERR(mkdir("a/d", 0755), EROFS);
}
TEST(copies_of_trees) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/in", 0755));
    OK(t_mount("a/in"));
    t_make("a/in/f", "x");
    int one = SYS(open_tree(AT_FDCWD, "a", CLONE | O_CLOEXEC));
    CHECK_EQ(fcntl(one, F_GETFD), FD_CLOEXEC);
    CHECK_ERR(faccessat(one, "in/f", F_OK, 0), ENOENT);
    int all = SYS(open_tree(AT_FDCWD, "a", CLONE | RECURSIVE));
    OK(faccessat(all, "in/f", F_OK, 0));
    CHECK(!mounted("b"));
    // A second copy of what is not mounted anywhere.
    int again = SYS(open_tree(all, "in", CLONE));
    OK(faccessat(again, "f", F_OK, 0));
    OK(move_mount(all, "", AT_FDCWD, "b", F_EMPTY));
    CHECK(mounted("b") && mounted("b/in"));
    OK(move_mount(again, "", AT_FDCWD, "c", F_EMPTY));
    OK(access("c/f", F_OK));
    CHECK_ERR(move_mount(one, "in", AT_FDCWD, "d", 0), EINVAL);
    close(one);
    close(again);
    OK(umount("c"));
    CHECK_ERR(umount("b/in") | umount("b"), EBUSY);
    close(all);
    OK(umount("b"));
    // Without a copy it is a place like any other.
    int place = SYS(open_tree(AT_FDCWD, "a/in", 0));
    CHECK(fcntl(place, F_GETFL) & O_PATH);
    OK(faccessat(place, "f", F_OK, 0));
    CHECK_ERR(open_tree(AT_FDCWD, "a", RECURSIVE), EINVAL);
    CHECK_ERR(open_tree(AT_FDCWD, "a", 2), EINVAL);
    CHECK_ERR(open_tree(AT_FDCWD, "missing", CLONE), ENOENT);
    OK(mount(0, "a", 0, MS_UNBINDABLE, 0));
    CHECK_ERR(open_tree(AT_FDCWD, "a", CLONE), EINVAL);
}
TEST(files_keep_a_tree_that_is_gone) {
    start();
    int m = new_tmpfs();
    int f = SYS(openat(m, "f", O_CREAT | O_RDWR, 0644));
    CHECK_EQ(write(f, "abc", 3), 3);
    close(m);
    char b[4] = "";
    CHECK_EQ(pread(f, b, 3, 0), 3);
    CHECK_STR(b, "abc");
}
TEST(trees_of_descriptors_take_mounts) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/in", 0755));
    OK(t_mount("c"));
    t_make("c/own", "");
    int tree = SYS(open_tree(AT_FDCWD, "a", CLONE)), m = new_tmpfs();
    close(SYS(openat(m, "f", O_CREAT | O_WRONLY, 0644)));
    CHECK_ERR(move_mount(tree, "", tree, "in", F_EMPTY), EINVAL);
    if (move_mount(m, "", tree, "in", F_EMPTY)) SKIP("not on this kernel");
    OK(faccessat(tree, "in/f", F_OK, 0));
    CHECK(!mounted("a/in"));
    CHECK_ERR(move_mount(AT_FDCWD, "c", tree, "in", 0), EINVAL);
    OK(move_mount(tree, "", AT_FDCWD, "b", F_EMPTY));
    OK(access("b/in/f", F_OK));
    CHECK_ERR(umount("b/in"), EBUSY);
    close(tree);
    close(m);
    OK(umount("b/in"));
    OK(umount("b"));
}
TEST(moving_by_descriptors) {
    start();
    OK(t_mount("a"));
    OK(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", 0));
    CHECK(mounted("b") && !mounted("a"));
    int to = SYS(open("c", O_PATH));
    int from = SYS(open("b", O_PATH));
    OK(move_mount(from, "", to, "", F_EMPTY | T_EMPTY));
    CHECK(mounted("c") && !mounted("b"));
    CHECK_ERR(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", 0), EINVAL);
    CHECK_ERR(move_mount(AT_FDCWD, "c", AT_FDCWD, "b", 0x400), EINVAL);
    CHECK_ERR(move_mount(AT_FDCWD, "c", AT_FDCWD, "b", BENEATH | SET_GROUP), EINVAL);
    CHECK_ERR(move_mount(AT_FDCWD, "c", AT_FDCWD, "missing", 0), ENOENT);
    SYS(symlink("c", "link"));
    CHECK_ERR(move_mount(AT_FDCWD, "link", AT_FDCWD, "b", 0), EINVAL);
    OK(move_mount(AT_FDCWD, "link", AT_FDCWD, "b", 1));
    CHECK(mounted("b"));
}
TEST(beneath) {
    start();
    OK(t_mount("a"));
    t_make("a/old", "");
    int m = new_tmpfs();
    SYS(openat(m, "new", O_CREAT | O_WRONLY, 0644));
    CHECK_ERR(move_mount(m, "", AT_FDCWD, "b", F_EMPTY | BENEATH), EINVAL);
    OK(move_mount(m, "", AT_FDCWD, "a", F_EMPTY | BENEATH));
    OK(access("a/old", F_OK));
    OK(umount("a"));
    OK(access("a/new", F_OK));
    CHECK_ERR(move_mount(AT_FDCWD, "a", AT_FDCWD, "a", BENEATH), EINVAL);
}
TEST(set_group) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/x", 0755));
    OK(mount("a", "b", 0, MS_BIND, 0));
    CHECK_ERR(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP), EINVAL);
    OK(mount(0, "a", 0, MS_SHARED, 0));
    OK(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP));
    OK(t_mount("a/x"));
    CHECK(mounted("b/x"));
    CHECK_ERR(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP), EINVAL);
    OK(t_mount("c"));
    CHECK_ERR(move_mount(AT_FDCWD, "a", AT_FDCWD, "c", SET_GROUP), EINVAL);
    CHECK_ERR(move_mount(AT_FDCWD, "a/x/..", AT_FDCWD, "d", SET_GROUP), EINVAL);
}
TEST(attributes) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/in", 0755));
    OK(t_mount("a/in"));
    struct mnt_attr s = {.set = 1 | 2 | 0x200000};
    OK(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s));
    CHECK(strstr(line_of("a"), " ro,nosuid,relatime,nosymfollow") != 0);
    CHECK(strstr(line_of("a/in"), " rw,relatime") != 0);
    s = (struct mnt_attr){.set = 8, .clr = 1, .propagation = MS_SHARED};
    OK(mount_setattr(AT_FDCWD, "a", RECURSIVE, &s, sizeof s));
    CHECK(strstr(line_of("a"), " rw,nosuid,noexec,relatime,nosymfollow shared:") != 0);
    CHECK(strstr(line_of("a/in"), " rw,noexec,relatime shared:") != 0);
    s = (struct mnt_attr){.set = 0x10, .clr = 0x70};
    OK(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s));
    CHECK(strstr(line_of("a"), ",noatime") != 0);
    s = (struct mnt_attr){.set = 0x10};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s = (struct mnt_attr){.set = 0x10, .clr = 0x10};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s = (struct mnt_attr){.set = 0x30, .clr = 0x70};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s = (struct mnt_attr){.set = 0x100};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s = (struct mnt_attr){.propagation = MS_SHARED | MS_PRIVATE};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s = (struct mnt_attr){.set = 1};
    CHECK_ERR(mount_setattr(AT_FDCWD, "b", 0, &s, sizeof s), EINVAL);
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0x10, &s, sizeof s), EINVAL);
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, 31), EINVAL);
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, 5000), E2BIG);
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, BAD_PTR, 32), EFAULT);
    struct mnt_attr two[2] = {{.set = 1}, {.set = 1}};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, two, sizeof two), E2BIG);
    s = (struct mnt_attr){0};
    OK(mount_setattr(AT_FDCWD, "missing", 0, &s, sizeof s));
    int f = t_file("a/in/f", "x");
    s = (struct mnt_attr){.set = 1};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", RECURSIVE, &s, sizeof s), EBUSY);
    CHECK(strstr(line_of("a"), " rw,") != 0);
    close(f);
    OK(mount_setattr(AT_FDCWD, "a", RECURSIVE, &s, sizeof s));
    CHECK(strstr(line_of("a/in"), " ro,") != 0);
}
TEST(attributes_of_a_tree_that_is_not_mounted) {
    start();
    int m = new_tmpfs();
    struct mnt_attr s = {.set = 1};
    OK(mount_setattr(m, "", AT_EMPTY_PATH, &s, sizeof s));
    CHECK_ERR(openat(m, "f", O_CREAT | O_WRONLY, 0644), EROFS);
    OK(t_mount("a"));
    int t = open_tree_attr(AT_FDCWD, "a", CLONE, &s, sizeof s);
    if (t < 0 && errno == ENOSYS) SKIP("no open_tree_attr");
    CHECK_ERR(openat(t, "f", O_CREAT | O_WRONLY, 0644), EROFS);
    OK(mkdir("a/d", 0755));
    CHECK_ERR(open_tree_attr(AT_FDCWD, "a", CLONE, 0, 32), EINVAL);
}
TEST(only_with_the_capability) {
    SYS(chmod(".", 0755));
    SYS(mkdir("a", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(fsopen("tmpfs", 99), EPERM); CHECK_ERR(fspick(AT_FDCWD, "a", 99), EPERM);
                CHECK_ERR(fsmount(-1, 99, 99), EPERM); CHECK_ERR(move_mount(-1, "", -1, "", ~0u), EPERM);
                CHECK_ERR(open_tree(AT_FDCWD, "a", CLONE), EPERM); struct mnt_attr s = {.set = 1};
                CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EPERM);
                CHECK(open_tree(AT_FDCWD, "a", 0) >= 0));
}

struct req {
    unsigned size, spare;
    unsigned long id, param, ns;
};
struct sm {
    unsigned size, mnt_opts;
    unsigned long mask;
    unsigned dev_major, dev_minor;
    unsigned long magic;
    unsigned sb_flags, fs_type;
    unsigned long id, parent;
    unsigned id_old, parent_old;
    unsigned long attr, propagation, peer_group, master, from;
    unsigned root, point;
    unsigned long ns;
    unsigned subtype, source, opt_num, opt_array;
    unsigned rest[94];
    char str[1000];
};
static unsigned long id_of(const char *path) {
    struct statx x;
    SYS(statx(AT_FDCWD, path, 0, 0x4000, &x));
    CHECK(x.stx_mask & 0x4000);
    return x.stx_mnt_id;
}
TEST(what_statmount_tells) {
    start();
    OK(mount("src", "a", "tmpfs", MS_NOSUID, "size=64k,mode=700"));
    OK(mount(0, "a", 0, MS_SHARED, 0));
    struct sm s;
    struct req r = {.size = 24, .id = id_of("a"), .param = 0x2bf};
    CHECK(r.id > 1ul << 31);
    memset(&s, 0xff, sizeof s);
    OK(statmount(&r, &s, sizeof s, 0));
    CHECK_EQ(s.mask & 0x2bf, 0x2bf);
    CHECK_EQ(s.magic, 0x01021994);
    CHECK_STR(s.str + s.fs_type, "tmpfs");
    CHECK_STR(s.str + s.source, "src");
    CHECK_STR(s.str + s.root, "/");
    char want[300];
    snprintf(want, sizeof want, "%s/a", t_dir);
    CHECK_STR(s.str + s.point, want);
    CHECK(strncmp(s.str + s.mnt_opts, "size=64k,mode=700", 17) == 0);
    CHECK_EQ(s.attr, 2);
    CHECK_EQ(s.propagation, MS_SHARED);
    CHECK(s.peer_group != 0 && s.master == 0);
    CHECK_EQ(s.id, r.id);
    CHECK_EQ(s.parent, id_of("."));
    struct stat st;
    OK(stat("a", &st));
    CHECK_EQ(st.st_dev, makedev(s.dev_major, s.dev_minor));
    CHECK_EQ(atoi(line_of("a")), (int)s.id_old);
    // Too small for texts; without texts less than the structure will do.
    CHECK_ERR(statmount(&r, &s, 514, 0), EOVERFLOW);
    r.param = 2;
    memset(&s, 0, sizeof s);
    OK(statmount(&r, &s, 64, 0));
    CHECK_EQ(s.size, 64);
    CHECK_ERR(statmount(&r, &s, sizeof s, 1), EINVAL);
    CHECK_ERR(statmount(BAD_PTR, &s, sizeof s, 0), EFAULT);
    r.id = 5;
    CHECK_ERR(statmount(&r, &s, sizeof s, 0), EINVAL);
    r.id = ~0ul - 1;
    CHECK_ERR(statmount(&r, &s, sizeof s, 0), ENOENT);
    r.size = 20;
    CHECK_ERR(statmount(&r, &s, sizeof s, 0), EINVAL);
    r.size = 5000;
    CHECK_ERR(statmount(&r, &s, sizeof s, 0), E2BIG);
}
TEST(options_as_an_array) {
    start();
    OK(mount("t", "a", "tmpfs", 0, 0));
    SYS(chdir("a"));
    SYS(mkdir("l", 0755)), SYS(mkdir("u,1 x", 0755)), SYS(mkdir("w", 0755)), SYS(mkdir("m", 0755));
    OK(mount("o", "m", "overlay", 0, "lowerdir=l,upperdir=u\\,1 x,workdir=w"));
    struct sm s;
    struct req r = {.size = 24, .id = id_of("m"), .param = 0x400 | 0x80};
    OK(statmount(&r, &s, sizeof s, 0));
    CHECK_EQ(s.mask, 0x400 | 0x80);
    CHECK(strstr(s.str + s.mnt_opts, "upperdir=u\\134\\0541\\040x,") != 0);
    const char *at = s.str + s.opt_array;
    int found = 0;
    for (unsigned i = 0; i < s.opt_num; i++, at += strlen(at) + 1) found += !strcmp(at, "upperdir=u\\,1 x");
    CHECK_EQ(found, 1);
}
TEST(what_listmount_lists) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/in", 0755));
    OK(t_mount("a/in"));
    unsigned long ids[4] = {0}, a = id_of("a"), in = id_of("a/in");
    struct req r = {.size = 24, .id = a};
    CHECK_EQ(listmount(&r, ids, 4, 0), 1);
    CHECK_EQ(ids[0], in);
    OK(t_mount("a/in"));
    CHECK_EQ(listmount(&r, ids, 4, 0), 2);
    CHECK_EQ(ids[0], in);
    CHECK_EQ(ids[1], id_of("a/in"));
    CHECK_EQ(listmount(&r, ids, 4, 1), 2);
    CHECK_EQ(ids[1], in);
    r.param = in;
    CHECK_EQ(listmount(&r, ids, 4, 0), 1);
    CHECK_EQ(ids[0], id_of("a/in"));
    r.param = 0;
    CHECK_EQ(listmount(&r, ids, 1, 0), 1);
    CHECK_EQ(ids[0], in);
    CHECK_ERR(listmount(&r, ids, 4, 2), EINVAL);
    r.param = 7;
    CHECK_ERR(listmount(&r, ids, 4, 0), EINVAL);
    r = (struct req){.size = 32, .id = ~0ul};
    unsigned long all[500];
    long n = listmount(&r, all, 500, 0);
    CHECK(n >= 4);
    int found = 0;
    for (long i = 0; i < n; i++) {
        if (i) CHECK(all[i] > all[i - 1]);
        found |= all[i] == a;
    }
    CHECK(found);
    r.id = ~0ul - 1;
    CHECK_ERR(listmount(&r, ids, 4, 0), ENOENT);
}
// A root of one's own is all there is.
TEST(listmount_below_the_root) {
    start();
    OK(t_mount("a"));
    SYS(mkdir("a/in", 0755));
    SYS(mkdir("a/dir", 0755));
    OK(t_mount("a/in"));
    unsigned long ids[4] = {0}, a = id_of("a"), in = id_of("a/in");
    struct req r = {.size = 24, .id = ~0ul};
    struct sm s;
    CHECK_CHILD({
        SYS(chroot("a"));
        CHECK_EQ(listmount(&r, ids, 4, 0), 2);
        CHECK(ids[0] == a && ids[1] == in);
        r.id = a;
        CHECK_EQ(listmount(&r, ids, 4, 0), 1);
    });
    CHECK_CHILD({
        SYS(chroot("a/dir"));
        CHECK_EQ(listmount(&r, ids, 4, 0), 0);
    });
    CHECK_CHILD({
        SYS(chroot("a/in"));
        SYS(chdir("/"));
        CHECK_EQ(listmount(&r, ids, 4, 0), 1);
        CHECK_EQ(ids[0], in);
        // The right over the namespace shows the rest.
        r.id = a;
        CHECK_EQ(listmount(&r, ids, 4, 0), 1);
        OK(statmount(&r, &s, sizeof s, 0));
        SYS(setuid(1000));
        CHECK_ERR(listmount(&r, ids, 4, 0), EPERM);
        CHECK_ERR(statmount(&r, &s, sizeof s, 0), EPERM);
        r.id = in;
        OK(statmount(&r, &s, sizeof s, 0));
        r.id = ~0ul;
        CHECK_EQ(listmount(&r, ids, 4, 0), 1);
    });
}
// IDs of mounts are mapped for whom the right over a user namespace gives that, and where a file system can.
TEST(mapped_mounts) {
    start();
    OK(mount("p", "a", "proc", 0, 0));
    struct mnt_attr s = {.set = 0x100000, .userns_fd = 999};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EBADF);
    s.userns_fd = 1ul << 40;
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s.userns_fd = SYS(open("/", O_RDONLY));
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s.userns_fd = SYS(open("/proc/self/ns/mnt", O_RDONLY));
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s.userns_fd = SYS(open("/proc/self/ns/user", O_RDONLY));
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EPERM);
    CHECK_ERR(mount_setattr(AT_FDCWD, "missing", 0, &s, sizeof s), EPERM);
    s.clr = 0x100000;
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    s = (struct mnt_attr){.clr = 0x100000};
    CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
    CHECK_CHILD({
        SYS(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        s = (struct mnt_attr){.set = 0x100000, .userns_fd = SYS(open("/proc/self/ns/user", O_RDONLY))};
        // Its own IDs are not its to map.
        CHECK_ERR(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s), EINVAL);
        CHECK_ERR(mount_setattr(AT_FDCWD, "missing", 0, &s, sizeof s), ENOENT);
    });
}
TEST(ramfs) {
    start();
    OK(mount("r", "a", "ramfs", 0, "mode=700,whatever"));
    struct stat s;
    OK(stat("a", &s));
    CHECK_EQ(s.st_mode & 07777, 0700);
    t_make("a/f", "x");
    CHECK(strstr(line_of("a"), " - ramfs r rw,mode=700") != 0);
}

// move_mount(2) takes NULL for an empty path, on both sides; the other calls on mounts do not.
TEST(null_as_an_empty_path) {
    struct mnt_attr a = {.set = 1};
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mkdir("a", 0755));
    SYS(mkdir("b", 0755));
    int b = SYS(open("b", O_PATH)), m = SYS(open_tree(AT_FDCWD, "a", CLONE));
    CHECK_ERR(move_mount(m, 0, AT_FDCWD, "b", 0), EFAULT);
    CHECK_ERR(move_mount(m, 0, b, 0, F_EMPTY), EFAULT);
    CHECK_ERR(move_mount(m, 0, b, 0, T_EMPTY), EFAULT);
    OK(move_mount(m, 0, b, 0, F_EMPTY | T_EMPTY));
    m = SYS(open_tree(AT_FDCWD, "a", CLONE));
    CHECK_ERR(mount_setattr(m, 0, AT_EMPTY_PATH, &a, sizeof a), EFAULT);
    CHECK_ERR(open_tree_attr(m, 0, AT_EMPTY_PATH, &a, sizeof a), EFAULT);
    CHECK_ERR(fspick(m, 0, 8), EFAULT);
    OK(mount_setattr(m, "", AT_EMPTY_PATH, &a, sizeof a));
    SYS(chdir("a"));
    OK(move_mount(m, 0, AT_FDCWD, 0, F_EMPTY | T_EMPTY));
}
