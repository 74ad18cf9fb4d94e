// Mounting overlayfs: which layers and options go, and what is shown of them.
#include "overlayfs.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>

static const char *options(void) {
    static char b[1 << 18], found[800];
    t_slurp("/proc/self/mountinfo", b, sizeof b);
    char want[400];
    snprintf(want, sizeof want, " %s/m ", t_dir);
    found[0] = 0;
    for (char *l = strtok(b, "\n"); l; l = strtok(0, "\n"))
        if (strstr(l, want)) snprintf(found, sizeof found, "%s", strstr(l, " - ") + 3);
    return found;
}
// Mounts and unmounts; 0 or the error.
static int probe(const char *data) {
    if (mount("o", "m", "overlay", 0, data)) return errno;
    OK(umount("m"));
    return 0;
}

TEST(layers_that_go) {
    o_start();
    SYS(mkdir("l/sub", 0755));
    SYS(mkdir("a:b", 0755));
    SYS(mkdir("c,d", 0755));
    t_make("file", "");
    CHECK_EQ(probe(O_DATA), 0);
    CHECK_EQ(probe(O_DATA2), 0);
    CHECK_EQ(probe("lowerdir=l:l2"), 0);
    CHECK_EQ(probe("lowerdir=l::l2"), 0);
    CHECK_EQ(probe("lowerdir=a\\:b:c\\,d"), 0);
    CHECK_EQ(probe("lowerdir+=a:b,lowerdir+=l"), 0);
    CHECK_EQ(probe("lowerdir=l,upperdir=l/sub,workdir=w"), 0);
    CHECK_EQ(probe("lowerdir=l:l2,workdir=w"), 0);
    CHECK_EQ(probe(""), EINVAL);
    CHECK_EQ(probe("lowerdir=l"), EINVAL);
    CHECK_EQ(probe("upperdir=u,workdir=w"), EINVAL);
    CHECK_EQ(probe("lowerdir=l,upperdir=u"), EINVAL);
    CHECK_EQ(probe("lowerdir=:l"), EINVAL);
    CHECK_EQ(probe("lowerdir=l:"), EINVAL);
    CHECK_EQ(probe("lowerdir=l:l2:file"), EINVAL);
    CHECK_EQ(probe("lowerdir=l:none"), ENOENT);
    CHECK_EQ(probe("lowerdir=l,upperdir=none,workdir=w"), ENOENT);
    CHECK_EQ(probe("lowerdir=l,upperdir=u,workdir=none"), ENOENT);
    CHECK_EQ(probe("lowerdir=l,upperdir=file,workdir=w"), EINVAL);
}
TEST(layers_in_each_other) {
    o_start();
    SYS(mkdir("l/sub", 0755));
    SYS(mkdir("u/w", 0755));
    CHECK_EQ(probe("lowerdir=l:l"), ELOOP);
    CHECK_EQ(probe("lowerdir=l:l/sub"), ELOOP);
    CHECK_EQ(probe("lowerdir=l/sub:l"), ELOOP);
    CHECK_EQ(probe("lowerdir=u,upperdir=u,workdir=w"), ELOOP);
    CHECK_EQ(probe("lowerdir=l,upperdir=u,workdir=u"), EINVAL);
    CHECK_EQ(probe("lowerdir=l,upperdir=u,workdir=u/w"), EINVAL);
    CHECK_EQ(probe("lowerdir=l,upperdir=u/w,workdir=u"), EINVAL);
    SYS(mkdir("other", 0755));
    SYS(mount("t", "other", "tmpfs", 0, 0));
    CHECK_EQ(probe("lowerdir=l,upperdir=u,workdir=other"), EINVAL);
    // The upper layer inside of a lower one is met by name only.
    OK(o_mount("lowerdir=l,upperdir=l/sub,workdir=w"));
    CHECK_ERR(access("m/sub", F_OK), ELOOP);
}
TEST(options_that_go) {
    o_start();
    CHECK_EQ(probe(O_DATA ",index=off,redirect_dir=off,metacopy=off,xino=off,nfs_export=off"), 0);
    CHECK_EQ(probe(O_DATA ",redirect_dir=nofollow,userxattr"), 0);
    CHECK_EQ(probe(O_DATA ",default_permissions,uuid=null"), 0);
    CHECK_EQ(probe(O_DATA ",xino=auto,uuid=auto"), 0);
    CHECK_EQ(probe(O_DATA ",nonsense"), EINVAL);
    CHECK_EQ(probe(O_DATA ",index=maybe"), EINVAL);
    CHECK_EQ(probe(O_DATA ",userxattr=1"), EINVAL);
    CHECK_EQ(probe(O_DATA ",userxattr,redirect_dir=off"), EINVAL);
    CHECK_EQ(probe(O_DATA ",userxattr,metacopy=on"), EINVAL);
}
TEST(what_mountinfo_shows) {
    o_start();
    SYS(mkdir("a:b", 0755));
    OK(o_mount(O_DATA ",userxattr,uuid=null,default_permissions"));
    CHECK(strstr(options(), "overlay o rw,lowerdir=l,upperdir=u,workdir=w,default_permissions") != 0);
    CHECK(strstr(options(), "uuid=null,userxattr") != 0);
    OK(umount("m"));
    OK(o_mount("lowerdir+=a:b,lowerdir+=l"));
    CHECK(strstr(options(), "overlay o ro,lowerdir+=a:b,lowerdir+=l") != 0);
    OK(umount("m"));
    OK(o_mount("lowerdir=a\\:b:l"));
    CHECK(strstr(options(), "overlay o ro,lowerdir=a\\134:b:l") != 0);
}
TEST(fs_config) {
    o_start();
    int fs = SYS(fsopen("overlay", 1));
    OK(fsconfig(fs, SET_STRING, "lowerdir+", "l", 0));
    OK(fsconfig(fs, SET_STRING, "lowerdir+", "l2", 0));
    OK(fsconfig(fs, SET_STRING, "upperdir", "u", 0));
    OK(fsconfig(fs, SET_STRING, "workdir", "w", 0));
    CHECK_ERR(fsconfig(fs, SET_STRING, "index", "no", 0), EINVAL);
    CHECK_ERR(fsconfig(fs, SET_FLAG, "upperdir", 0, 0), EINVAL);
    OK(fsconfig(fs, CREATE, 0, 0, 0));
    int m = SYS(fsmount(fs, 1, 0));
    SYS(mkdirat(m, "d", 0755));
    OK(move_mount(m, "", AT_FDCWD, "m", F_EMPTY));
    OK(access("u/d", F_OK));
    CHECK(strstr(options(), "lowerdir+=l,lowerdir+=l2,upperdir=u,workdir=w") != 0);
}
TEST(without_an_upper_layer) {
    o_start();
    t_make("l/f", "l");
    t_make("l2/g", "l2");
    OK(o_mount("lowerdir=l:l2"));
    CHECK_STR(o_names("m"), "f g ");
    CHECK_ERR(open("m/f", O_WRONLY), EROFS);
    CHECK_ERR(mkdir("m/d", 0755), EROFS);
    CHECK_ERR(unlink("m/f"), EROFS);
    CHECK_ERR(chmod("m/f", 0600), EROFS);
    CHECK_ERR(mount(0, "m", 0, MS_REMOUNT, 0), EROFS);
    OK(mount(0, "m", 0, MS_REMOUNT | MS_RDONLY, 0));
    struct statvfs v;
    OK(statvfs("m", &v));
    CHECK(v.f_flag & ST_RDONLY);
}
TEST(remounts) {
    o_start();
    OK(o_mount(O_DATA));
    int fd = SYS(open("m/f", O_CREAT | O_WRONLY, 0644));
    CHECK_ERR(mount(0, "m", 0, MS_REMOUNT | MS_RDONLY, 0), EBUSY);
    close(fd);
    OK(mount(0, "m", 0, MS_REMOUNT | MS_RDONLY, 0));
    CHECK_ERR(open("m/f", O_WRONLY), EROFS);
    // Options are ignored, whatever they are.
    OK(mount(0, "m", 0, MS_REMOUNT, "upperdir=elsewhere"));
    close(SYS(open("m/f", O_WRONLY)));
}
TEST(read_only_upper) {
    o_start();
    SYS(mkdir("b", 0755));
    SYS(mkdir("b/x", 0755));
    SYS(mount("t", "b", "tmpfs", 0, 0));
    SYS(mkdir("b/u", 0755));
    SYS(mkdir("b/w", 0755));
    SYS(mount(0, "b", 0, MS_REMOUNT | MS_BIND | MS_RDONLY, 0));
    CHECK_EQ(probe("lowerdir=l,upperdir=b/u,workdir=b/w"), EINVAL);
    SYS(mount(0, "b", 0, MS_REMOUNT | MS_BIND, 0));
    OK(o_mount("lowerdir=l,upperdir=b/u,workdir=b/w"));
    // The overlay keeps a mount of its own: the flags of that one do not change.
    SYS(mount(0, "b", 0, MS_REMOUNT | MS_BIND | MS_RDONLY, 0));
    OK(mkdir("m/d", 0755));
}
TEST(depth) {
    o_start();
    SYS(mkdir("m2", 0755));
    SYS(mkdir("m3", 0755));
    SYS(mkdir("e", 0755));
    t_make("l/f", "deep");
    OK(o_mount(O_DATA));
    OK(mount("o", "m2", "overlay", 0, "lowerdir=m:e"));
    TEXT("m2/f", "deep");
    CHECK_ERR(mount("o", "m3", "overlay", 0, "lowerdir=m2:e"), EINVAL);
    // Nor is an overlay an upper layer.
    SYS(mkdir("m/u", 0755));
    SYS(mkdir("m/w", 0755));
    CHECK_ERR(mount("o", "m3", "overlay", 0, "lowerdir=l2,upperdir=m/u,workdir=m/w"), EINVAL);
}
TEST(what_cannot_be_a_layer) {
    o_start();
    SYS(mkdir("un", 0755));
    SYS(mount("un", "un", 0, MS_BIND, 0));
    SYS(mount(0, "un", 0, MS_UNBINDABLE, 0));
    CHECK_EQ(probe("lowerdir=un:l"), EINVAL);
}
TEST(volatile_marks_its_work_directory) {
    o_start();
    OK(o_mount(O_DATA ",volatile"));
    int fd = SYS(open("m/f", O_CREAT | O_WRONLY, 0644));
    OK(fsync(fd));
    OK(syncfs(fd));
    close(fd);
    OK(umount("m"));
    CHECK_EQ(probe(O_DATA), EINVAL);
    CHECK_EQ(probe(O_DATA ",volatile"), EINVAL);
    OK(access("w/work/incompat/volatile", F_OK));
    OK(unlink("w/work/incompat/volatile/dirty"));
    OK(rmdir("w/work/incompat/volatile"));
    CHECK_EQ(probe(O_DATA), 0);
}
TEST(the_work_directory_is_emptied) {
    o_start();
    SYS(mkdir("w/work", 0755));
    t_make("w/work/#1", "left");
    SYS(mkdir("w/work/#2", 0755));
    t_make("w/work/#2/x", "left");
    t_make("w/other", "stays");
    OK(o_mount(O_DATA));
    CHECK_STR(o_names("w/work"), "");
    CHECK_STR(o_names("w"), "other work ");
    struct stat s;
    OK(stat("w/work", &s));
    CHECK_EQ(s.st_mode & 07777, 0);
}
TEST(statfs_is_the_upper_layers) {
    o_start();
    OK(o_mount(O_DATA));
    struct statfs s, t;
    OK(statfs("m", &s));
    OK(statfs("u", &t));
    CHECK_EQ(s.f_type, 0x794c7630);
    CHECK_EQ(s.f_blocks, t.f_blocks);
    CHECK_EQ(s.f_namelen, 255);
    int fd = SYS(open("m", O_RDONLY));
    OK(syncfs(fd));
    OK(fsync(fd));
}
TEST(two_overlays_with_one_upper_layer) {
    o_start();
    SYS(mkdir("m2", 0755));
    OK(o_mount(O_DATA));
    // Without an index it is a warning.
    OK(mount("o", "m2", "overlay", 0, "lowerdir=l2,upperdir=u,workdir=w"));
}
TEST(layers_stay_though_unmounted) {
    o_start();
    SYS(mkdir("b", 0755));
    SYS(mount("t", "b", "tmpfs", 0, 0));
    t_make("b/f", "kept");
    OK(o_mount("lowerdir=b,upperdir=u,workdir=w"));
    OK(umount("b"));
    TEXT("m/f", "kept");
    OK(truncate("m/f", 2));
    TEXT("u/f", "ke");
}
