// Names in overlayfs: merged directories, whiteouts, opaque directories, renames, links.
#include "overlayfs.h"
#include <sys/inotify.h>

#define rename2(a, b, f) syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, f)

TEST(merged) {
    o_start();
    SYS(mkdir("l/d", 0755));
    SYS(mkdir("l2/d", 0700));
    SYS(mkdir("u/d", 0711));
    t_make("l/d/a", "l");
    t_make("l2/d/a", "l2");
    t_make("l2/d/b", "l2");
    t_make("u/d/c", "u");
    t_make("l/f", "file");
    SYS(mkdir("l2/f", 0755));
    SYS(mkdir("l/g", 0755));
    t_make("l2/g", "hidden");
    OK(o_mount(O_DATA2));
    CHECK_STR(o_names("m"), "d f g ");
    CHECK_STR(o_names("m/d"), "a b c ");
    TEXT("m/d/a", "l");
    TEXT("m/d/b", "l2");
    struct stat s;
    OK(stat("m/d", &s));
    CHECK_EQ(s.st_mode & 07777, 0711);
    CHECK_EQ(s.st_nlink, 1);
    OK(stat("m/f", &s));
    CHECK(S_ISREG(s.st_mode));
    OK(stat("m/g", &s));
    CHECK(S_ISDIR(s.st_mode));
    CHECK_STR(o_names("m/g"), "");
}
TEST(whiteouts) {
    o_start();
    t_make("l/f", "l");
    t_make("l2/f", "l2");
    t_make("u/g", "u");
    SYS(mkdir("l/d", 0755));
    t_make("l/d/x", "");
    OK(o_mount(O_DATA2));
    OK(unlink("m/f"));
    CHECK_ERR(access("m/f", F_OK), ENOENT);
    CHECK(o_whiteout("u/f"));
    OK(unlink("m/g"));
    CHECK_ERR(access("u/g", F_OK), ENOENT);
    CHECK_ERR(rmdir("m/d"), ENOTEMPTY);
    OK(unlink("m/d/x"));
    CHECK(o_whiteout("u/d/x"));
    OK(rmdir("m/d"));
    CHECK(o_whiteout("u/d"));
    CHECK_STR(o_names("m"), "");
    TEXT("l/f", "l");
    OK(access("l/d/x", F_OK));
    // What takes the place of a whiteout.
    t_make("m/f", "new");
    TEXT("u/f", "new");
    OK(mkdir("m/d", 0755));
    CHECK_STR(o_names("m/d"), "");
    CHECK_EQ(o_mark("u/d", "trusted.overlay.opaque"), 'y');
    OK(unlink("m/f"));
    CHECK(o_whiteout("u/f"));
    OK(symlink("x", "m/f"));
    OK(unlink("m/f"));
    OK(mkfifo("m/f", 0644));
    CHECK_STR(o_names("m"), "d f ");
    OK(rmdir("m/d"));
    CHECK(o_whiteout("u/d"));
    // One cannot be made.
    CHECK_ERR(mknod("m/w", S_IFCHR, 0), EPERM);
    OK(mknod("m/null", S_IFCHR | 0666, makedev(1, 3)));
}
TEST(whiteouts_that_are_there) {
    o_start();
    t_make("l/a", "");
    t_make("l2/b", "");
    SYS(mknod("u/a", S_IFCHR, 0));
    SYS(mknod("l/b", S_IFCHR, 0));
    SYS(mknod("u/c", S_IFCHR, 0));
    OK(o_mount(O_DATA2));
    CHECK_STR(o_names("m"), "");
    CHECK_ERR(access("m/a", F_OK), ENOENT);
    CHECK_ERR(access("m/b", F_OK), ENOENT);
    CHECK_ERR(access("m/c", F_OK), ENOENT);
    OK(mkdir("m/c", 0755));
    OK(rmdir("m/c"));
    OK(umount("m"));
    // Nothing is below the whiteout that was replaced: it does not come back.
    CHECK_ERR(access("u/c", F_OK), ENOENT);
}
TEST(whiteouts_as_attributes) {
    o_start();
    SYS(mkdir("l/d", 0755));
    SYS(mkdir("l2/d", 0755));
    t_make("l2/d/a", "hidden");
    t_make("l2/d/b", "shows");
    t_make("l/d/a", "");
    SYS(setxattr("l/d/a", "trusted.overlay.whiteout", "y", 1, 0));
    SYS(setxattr("l/d", "trusted.overlay.opaque", "x", 1, 0));
    SYS(setxattr("l", "trusted.overlay.opaque", "x", 1, 0));
    OK(o_mount("lowerdir=l:l2"));
    CHECK_ERR(access("m/d/a", F_OK), ENOENT);
    CHECK_STR(o_names("m/d"), "b ");
}
TEST(opaque) {
    o_start();
    SYS(mkdir("l/d", 0755));
    SYS(mkdir("l2/d", 0755));
    SYS(mkdir("u/e", 0755));
    SYS(mkdir("l/e", 0755));
    t_make("l2/d/x", "");
    t_make("l/d/y", "");
    t_make("l/e/x", "");
    SYS(setxattr("l/d", "trusted.overlay.opaque", "y", 1, 0));
    SYS(setxattr("u/e", "trusted.overlay.opaque", "y", 1, 0));
    OK(o_mount(O_DATA2));
    CHECK_STR(o_names("m/d"), "y ");
    CHECK_ERR(access("m/d/x", F_OK), ENOENT);
    CHECK_STR(o_names("m/e"), "");
    OK(rmdir("m/e"));
    CHECK(o_whiteout("u/e"));
}
TEST(read_while_it_changes) {
    o_start();
    for (int i = 0; i < 300; i++) {
        char p[32];
        sprintf(p, "l/l%03d", i);
        t_make(p, "");
        sprintf(p, "u/u%03d", i);
        t_make(p, "");
    }
    OK(o_mount(O_DATA));
    DIR *d = opendir("m");
    int n = 0;
    long middle = 0;
    char name[256] = "";
    for (struct dirent *e; (e = readdir(d));) {
        if (n == 300) middle = telldir(d);
        if (n == 301) strcpy(name, e->d_name);
        n++;
    }
    CHECK_EQ(n, 602);
    seekdir(d, middle);
    struct dirent *e = readdir(d);
    // telldir came before the entry that it was told after.
    CHECK(e != 0);
    unlink("m/l000");
    t_make("m/new", "");
    rewinddir(d);
    n = 0;
    int seen = 0;
    while ((e = readdir(d))) n++, seen |= !strcmp(e->d_name, "new") ? 1 : !strcmp(e->d_name, "l000") ? 2 : 0;
    CHECK_EQ(n, 602);
    CHECK_EQ(seen, 1);
    closedir(d);
}
TEST(numbers_in_listings) {
    o_start();
    t_make("l/a", "");
    t_make("l/b", "");
    t_make("u/c", "");
    SYS(mkdir("l/d", 0755));
    t_make("l/d/x", "");
    SYS(mkdir("u/p", 0755));
    OK(o_mount(O_DATA));
    OK(chmod("m/a", 0600));
    OK(chmod("m/d", 0700));
    OK(rename("m/b", "m/p/b"));
    const char *dirs[] = {"m", "m/d", "m/p"};
    for (int i = 0; i < 3; i++) {
        DIR *d = opendir(dirs[i]);
        for (struct dirent *e; (e = readdir(d));) {
            char p[300];
            struct stat s;
            if (e->d_name[0] == '.') continue;
            sprintf(p, "%s/%s", dirs[i], e->d_name);
            OK(lstat(p, &s));
            if (s.st_ino != e->d_ino) t_fail(__FILE__, __LINE__, "%s: %lu, %lu", p, s.st_ino, e->d_ino);
            CHECK_EQ(e->d_type, IFTODT(s.st_mode));
        }
        closedir(d);
    }
}
TEST(renames_of_files) {
    o_start();
    t_make("l/a", "a");
    t_make("l/b", "b");
    t_make("u/c", "c");
    SYS(mkdir("l/d", 0755));
    OK(o_mount(O_DATA));
    OK(rename("m/a", "m/x"));
    CHECK(o_whiteout("u/a"));
    TEXT("u/x", "a");
    CHECK_ERR(access("m/a", F_OK), ENOENT);
    // Back over its own whiteout.
    OK(rename("m/x", "m/a"));
    TEXT("u/a", "a");
    CHECK_ERR(access("u/x", F_OK), ENOENT);
    // Over what only the lower layer has.
    OK(rename("m/c", "m/b"));
    TEXT("m/b", "c");
    CHECK_ERR(access("u/c", F_OK), ENOENT);
    OK(rename("m/b", "m/d/b"));
    CHECK(o_whiteout("u/b"));
    TEXT("m/d/b", "c");
    TEXT("u/d/b", "c");
    CHECK_STR(o_names("m"), "a d ");
    TEXT("l/a", "a");
    TEXT("l/b", "b");
    CHECK_ERR(rename("m/a", "m/d"), EISDIR);
    CHECK_ERR(rename("m/d", "m/a"), ENOTDIR);
    CHECK_ERR(rename("m/a", "u/z"), EXDEV);
}
TEST(renames_of_directories) {
    o_start();
    SYS(mkdir("l/d", 0755));
    t_make("l/d/x", "");
    SYS(mkdir("l/e", 0755));
    SYS(mkdir("l/full", 0755));
    t_make("l/full/x", "");
    OK(o_mount(O_DATA));
    CHECK_ERR(rename("m/d", "m/d2"), EXDEV);
    CHECK_ERR(rename("m/e", "m/e2"), EXDEV);
    OK(mkdir("m/n", 0755));
    t_make("m/n/f", "f");
    OK(rename("m/n", "m/n2"));
    TEXT("m/n2/f", "f");
    // Over an empty directory of the lower layer: what is there does not show through.
    CHECK_ERR(rename("m/n2", "m/full"), ENOTEMPTY);
    OK(unlink("m/full/x"));
    OK(rename("m/n2", "m/full"));
    CHECK_STR(o_names("m/full"), "f ");
    CHECK_EQ(o_mark("u/full", "trusted.overlay.opaque"), 'y');
    OK(rename("m/full", "m/e"));
    CHECK_STR(o_names("m/e"), "f ");
    CHECK(o_whiteout("u/full"));
    CHECK_STR(o_names("m"), "d e ");
    OK(rename("m/e", "m/full"));
    CHECK_STR(o_names("m/full"), "f ");
    CHECK(o_whiteout("u/e"));
    // Copied up without a change it still is merged.
    OK(chmod("m/d", 0700));
    CHECK_ERR(rename("m/d", "m/d2"), EXDEV);
}
TEST(rename_flags) {
    o_start();
    t_make("l/a", "a");
    t_make("l/b", "b");
    SYS(mkdir("l/d", 0755));
    OK(o_mount(O_DATA));
    CHECK_ERR(rename2("m/a", "m/b", 1), EEXIST);
    OK(rename2("m/a", "m/b", 2));
    TEXT("m/a", "b");
    TEXT("m/b", "a");
    CHECK_ERR(rename2("m/a", "m/d", 2), EXDEV);
    CHECK_ERR(rename2("m/a", "m/z", 2), ENOENT);
    CHECK_ERR(rename2("m/a", "m/z", 4), EINVAL);
    OK(mkdir("m/n", 0755));
    OK(rename2("m/a", "m/n", 2));
    TEXT("m/n", "b");
    OK(rename2("m/b", "m/z", 1));
    TEXT("m/z", "a");
    CHECK(o_whiteout("u/b"));
}
TEST(links) {
    o_start();
    t_make("l/a", "a");
    t_make("l/gone", "");
    OK(o_mount(O_DATA));
    OK(link("m/a", "m/b"));
    struct stat s, t;
    OK(stat("m/a", &s));
    OK(stat("m/b", &t));
    CHECK_EQ(s.st_ino, t.st_ino);
    CHECK_EQ(s.st_nlink, 2);
    int fd = SYS(open("m/a", O_WRONLY | O_APPEND));
    CHECK_EQ(write(fd, "x", 1), 1);
    TEXT("m/b", "ax");
    OK(unlink("m/a"));
    TEXT("m/b", "ax");
    CHECK(o_whiteout("u/a"));
    OK(unlink("m/gone"));
    OK(link("m/b", "m/gone"));
    TEXT("u/gone", "ax");
    OK(link("m/b", "m/a"));
    CHECK_ERR(link("m/b", "m/a"), EEXIST);
    CHECK_ERR(link("m/b", "u/q"), EXDEV);
    CHECK_STR(o_names("m"), "a b gone ");
}
TEST(links_of_a_lower_layer_break) {
    o_start();
    t_make("l/a", "a");
    SYS(link("l/a", "l/b"));
    OK(o_mount(O_DATA));
    struct stat s, t;
    OK(stat("m/a", &s));
    OK(stat("m/b", &t));
    CHECK_EQ(s.st_ino, t.st_ino);
    CHECK_EQ(s.st_nlink, 2);
    close(SYS(open("m/a", O_WRONLY | O_TRUNC)));
    TEXT("m/a", "");
    TEXT("m/b", "a");
    OK(stat("m/a", &t));
    CHECK(s.st_ino != t.st_ino);
    CHECK_EQ(t.st_nlink, 1);
}
TEST(unnamed_files) {
    o_start();
    t_make("l/gone", "");
    OK(o_mount(O_DATA));
    int fd = SYS(open("m", O_TMPFILE | O_RDWR, 0640));
    CHECK_EQ(write(fd, "tmp", 3), 3);
    char p[64];
    sprintf(p, "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, p, AT_FDCWD, "m/t", AT_SYMLINK_FOLLOW));
    TEXT("u/t", "tmp");
    OK(unlink("m/gone"));
    OK(linkat(AT_FDCWD, p, AT_FDCWD, "m/gone", AT_SYMLINK_FOLLOW));
    TEXT("m/gone", "tmp");
}
TEST(events) {
    o_start();
    t_make("l/f", "");
    OK(o_mount(O_DATA));
    int in = SYS(inotify_init1(IN_NONBLOCK));
    SYS(inotify_add_watch(in, "m", IN_CREATE | IN_DELETE | IN_MOVE | IN_ATTRIB | IN_MODIFY));
    OK(chmod("m/f", 0600));
    OK(rename("m/f", "m/g"));
    OK(mkdir("m/d", 0755));
    OK(unlink("m/g"));
    char b[4096] __attribute__((aligned(8)));
    int n = read(in, b, sizeof b);
    unsigned want[] = {IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE | IN_ISDIR, IN_DELETE};
    int i = 0;
    for (int at = 0; at < n; i++) {
        struct inotify_event *e = (void *)(b + at);
        if (i < 5) CHECK_EQ(e->mask, want[i]);
        at += sizeof *e + e->len;
    }
    CHECK_EQ(i, 5);
}
TEST(what_is_mounted_inside) {
    o_start();
    SYS(mkdir("l/d", 0755));
    OK(o_mount(O_DATA));
    SYS(mount("t", "m/d", "tmpfs", 0, 0));
    t_make("m/d/f", "");
    CHECK_ERR(rmdir("m/d"), EBUSY);
    CHECK_ERR(umount("m"), EBUSY);
    OK(umount("m/d"));
    CHECK_STR(o_names("m/d"), "");
}
TEST(on_an_overlay) {
    o_start();
    SYS(mkdir("u2", 0755));
    SYS(mkdir("w2", 0755));
    SYS(mkdir("m2", 0755));
    SYS(mkdir("l/d", 0755));
    t_make("l/d/a", "a");
    t_make("l/f", "f");
    OK(o_mount(O_DATA));
    t_make("m/d/b", "b");
    OK(mount("o", "m2", "overlay", 0, "lowerdir=m,upperdir=u2,workdir=w2"));
    CHECK_STR(o_names("m2/d"), "a b ");
    OK(unlink("m2/d/a"));
    OK(rename("m2/f", "m2/d/f"));
    t_make("m2/d/b", "changed");
    CHECK_STR(o_names("m2/d"), "b f ");
    CHECK_STR(o_names("m/d"), "a b ");
    TEXT("m/d/b", "b");
    TEXT("u2/d/b", "changed");
    CHECK(o_whiteout("u2/f"));
    // The lower one of the two changes too.
    OK(unlink("m/f"));
    CHECK(o_whiteout("u/f"));
}
TEST(processes_at_once) {
    o_start();
    SYS(mkdir("l/d", 0755));
    for (int i = 0; i < 40; i++) {
        char p[32];
        sprintf(p, "l/d/%d", i);
        t_make(p, "0123456789");
    }
    OK(o_mount(O_DATA));
    pid_t all[4];
    for (int k = 0; k < 4; k++) {
        all[k] = FORK();
        if (all[k]) continue;
        for (int i = 0; i < 40; i++) {
            char p[32], q[32];
            sprintf(p, "m/d/%d", i);
            int fd = SYS(open(p, O_RDWR));
            CHECK_EQ(pwrite(fd, "x", 1, k), 1);
            close(fd);
            sprintf(q, "m/n%d-%d", k, i);
            OK(link(p, q));
            OK(rename(q, p));
            OK(unlink(q));
            sprintf(q, "m/d/k%d", k);
            OK(mkdir(q, 0755));
            OK(rmdir(q));
        }
        _exit(0);
    }
    for (int k = 0; k < 4; k++) CHECK_STATUS(t_status(all[k]), "exit 0");
    for (int i = 0; i < 40; i++) {
        char p[32];
        sprintf(p, "m/d/%d", i);
        TEXT(p, "xxxx456789");
    }
    CHECK_STR(o_names("w/work"), "");
}
