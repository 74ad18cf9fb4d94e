// overlayfs in user namespaces: who may mount it, and whose rights count below.
#include "overlayfs.h"

// An ordinary user's layers, in namespaces of its own.
static void user(void) {
    SYS(chmod(".", 0755));
    for (const char *d = "l\0l2\0u\0w\0m\0"; *d; d += strlen(d) + 1) SYS(chown(d, 1000, 1000));
    become(1000);
    own_namespaces(CLONE_NEWNS);
}

TEST(who_may_mount) {
    o_start();
    SYS(chmod(".", 0755));
    CHECK_CHILD({
        become(1000);
        CHECK_ERR(o_mount("lowerdir=l:l2"), EPERM);
    });
    CHECK_CHILD({
        user();
        OK(o_mount("lowerdir=l:l2"));
        OK(umount("m"));
        OK(o_mount(O_DATA ",userxattr"));
    });
}
TEST(names) {
    o_start();
    t_make("l/f", "lower");
    SYS(chown("l/f", 1000, 1000));
    SYS(mkdir("l/d", 0755));
    SYS(chown("l/d", 1000, 1000));
    t_make("l/d/x", "");
    CHECK_CHILD({
        user();
        OK(o_mount(O_DATA ",userxattr"));
        TEXT("m/f", "lower");
        close(SYS(open("m/f", O_WRONLY | O_APPEND)));
        TEXT("u/f", "lower");
        OK(unlink("m/f"));
        CHECK(o_whiteout("u/f"));
        OK(unlink("m/d/x"));
        OK(rmdir("m/d"));
        OK(mkdir("m/d", 0755));
        CHECK_EQ(o_mark("u/d", "user.overlay.opaque"), 'y');
        CHECK_STR(o_names("m"), "d ");
        OK(rename("m/d", "m/e"));
        CHECK_STR(o_names("m"), "e ");
    });
    struct stat s;
    OK(stat("u/e", &s));
    CHECK_EQ(s.st_uid, 1000);
}
TEST(files_of_others) {
    o_start();
    t_make("l/root", "root's");
    t_make("l/secret", "root's");
    SYS(chmod("l/secret", 0600));
    SYS(mkdir("l/closed", 0700));
    CHECK_CHILD({
        user();
        OK(o_mount(O_DATA ",userxattr"));
        TEXT("m/root", "root's");
        CHECK_ERR(open("m/secret", O_RDONLY), EACCES);
        CHECK_ERR(open("m/closed", O_RDONLY), EACCES);
        CHECK_ERR(access("m/closed/x", F_OK), EACCES);
        CHECK_ERR(open("m/root", O_WRONLY), EACCES);
        // A copy could not belong to whom it should.
        CHECK_ERR(rename("m/root", "m/mine"), EOVERFLOW);
        CHECK_ERR(chmod("m/root", 0666), EPERM);
        OK(unlink("m/root"));
        CHECK(o_whiteout("u/root"));
    });
    OK(access("l/root", F_OK));
}
TEST(devices_and_set_id) {
    o_start();
    SYS(mknod("l/null", S_IFCHR | 0666, makedev(1, 3)));
    SYS(chmod("l/null", 0666));
    CHECK_CHILD({
        user();
        OK(o_mount("lowerdir=l:l2"));
        CHECK_ERR(open("m/null", O_RDONLY), EACCES);
    });
}
TEST(trusted_attributes_are_missing) {
    o_start();
    SYS(mkdir("l/d", 0755));
    SYS(chown("l/d", 1000, 1000));
    CHECK_CHILD({
        user();
        OK(o_mount(O_DATA));
        OK(mkdir("m/n", 0755));
        OK(rmdir("m/d"));
        // An opaque directory cannot be made.
        CHECK_ERR(mkdir("m/d", 0755), EIO);
        CHECK_ERR(rename("m/n", "m/d"), EXDEV);
        t_make("m/d", "a file can");
        TEXT("m/d", "a file can");
    });
}
TEST(what_locked_mounts_hide) {
    o_start();
    SYS(mkdir("l/hidden", 0755));
    t_make("l/hidden/secret", "");
    SYS(mount("t", "l/hidden", "tmpfs", 0, 0));
    SYS(chmod(".", 0755));
    OK(o_mount("lowerdir=l:l2"));
    OK(umount("m"));
    CHECK_CHILD({
        become(1000);
        own_namespaces(CLONE_NEWNS);
        CHECK_ERR(o_mount("lowerdir=l:l2"), EINVAL);
    });
}
TEST(mounted_by_root_for_others) {
    o_start();
    SYS(chmod(".", 0755));
    // Whoever mounts has the rights below, though users of the overlay have none there.
    SYS(mkdir("safe", 0700));
    for (const char *d = "l\0u\0w\0"; *d; d += strlen(d) + 1) {
        char p[32];
        sprintf(p, "safe/%s", d);
        SYS(mkdir(p, 0755));
    }
    t_make("safe/l/f", "text");
    SYS(chown("safe/l/f", 1000, 1000));
    OK(o_mount("lowerdir=safe/l,upperdir=safe/u,workdir=safe/w"));
    CHECK_CHILD({
        become(1000);
        CHECK_ERR(access("safe/l/f", F_OK), EACCES);
        TEXT("m/f", "text");
        OK(truncate("m/f", 2));
        TEXT("m/f", "te");
        CHECK_ERR(open("m/g", O_CREAT | O_WRONLY, 0644), EACCES);
    });
    TEXT("safe/u/f", "te");
}
TEST(whiteouts_need_no_privilege) {
    o_start();
    CHECK_CHILD({
        user();
        OK(mknod("u/w", S_IFCHR | 0600, 0));
        CHECK(o_whiteout("u/w"));
        CHECK_ERR(open("u/w", O_RDONLY), ENXIO);
        CHECK_ERR(mknod("u/b", S_IFBLK | 0600, 0), EPERM);
        CHECK_ERR(mknod("u/n", S_IFCHR | 0600, makedev(1, 3)), EPERM);
    });
    SYS(mknod("u/x", S_IFCHR | 0600, 0));
    CHECK_ERR(open("u/x", O_RDONLY), ENXIO);
}
