// POSIX access control lists, capabilities of files, the other name spaces of extended attributes.
#include "t.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
#define NONE 0xffffffff

struct entry {
    uint16_t tag, bits;
    uint32_t id;
};
enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 0x10, OTHER = 0x20 };

struct acl {
    uint32_t version;
    struct entry e[8];
};

static int set_acl(const char *path, const char *name, int n, const struct entry *e) {
    struct acl a = {.version = 2};
    memcpy(a.e, e, n * sizeof *e);
    return setxattr(path, name, &a, 4 + n * sizeof *e, 0);
}
#define SET(path, name, ...)                                                                                           \
    ({                                                                                                                 \
        struct entry e_[] = {__VA_ARGS__};                                                                             \
        set_acl(path, name, sizeof e_ / sizeof *e_, e_);                                                               \
    })

static int mode_of(const char *path) {
    struct stat st;
    OK(lstat(path, &st));
    return st.st_mode & 07777;
}

// Bits of the entry with this tag and identifier, or -1.
static int bits_of(const char *path, const char *name, int tag, uint32_t id) {
    struct acl a;
    ssize_t n = getxattr(path, name, &a, sizeof a);
    for (int i = 0; i < (n - 4) / 8; i++)
        if (a.e[i].tag == tag && (a.e[i].id == id || id == NONE)) return a.e[i].bits;
    return -1;
}

// access(2) as a user in one group; 0 or the error.
static int as(int uid, int gid, const char *path, int mode) {
    pid_t p = fork();
    if (p == 0) {
        if (setgroups(0, 0) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid)) _exit(99);
        _exit(access(path, mode) ? errno : 0);
    }
    int st;
    SYS(waitpid(p, &st, 0));
    return WEXITSTATUS(st);
}

TEST(acl_forms) {
    t_make("f", "x");
    SYS(mkdir("d", 0755));
    SYS(symlink("f", "l"));
    SYS(symlink("nowhere", "dangling"));
    SYS(chmod("f", 0644));
    char b[256];
    CHECK_ERR(getxattr("f", ACCESS, b, sizeof b), ENODATA);
    CHECK_ERR(getxattr("f", DEFAULT, b, sizeof b), ENODATA);
    CHECK_ERR(lgetxattr("dangling", ACCESS, b, sizeof b), EOPNOTSUPP);
    CHECK_ERR(getxattr("f", "system.other", b, sizeof b), EOPNOTSUPP);
    CHECK_ERR(setxattr("f", "system.other", b, 1, 0), EOPNOTSUPP);
    // A list without names of users or groups is a mode.
    OK(SET("f", ACCESS, {USER_OBJ, 6, NONE}, {GROUP_OBJ, 4, NONE}, {OTHER, 1, NONE}));
    CHECK_EQ(mode_of("f"), 0641);
    CHECK_ERR(getxattr("f", ACCESS, b, sizeof b), ENODATA);
    CHECK_EQ(listxattr("f", b, sizeof b), 0);
    OK(SET("f", ACCESS, {USER_OBJ, 6, NONE}, {USER, 7, 10}, {GROUP_OBJ, 4, NONE}, {MASK, 5, NONE}, {OTHER, 0, NONE}));
    CHECK_EQ(mode_of("f"), 0650);
    CHECK_EQ(getxattr("f", ACCESS, b, sizeof b), 4 + 5 * 8);
    CHECK_EQ(getxattr("f", ACCESS, 0, 0), 4 + 5 * 8);
    CHECK_ERR(getxattr("f", ACCESS, b, 4), ERANGE);
    CHECK_EQ(bits_of("f", ACCESS, USER, 10), 7);
    CHECK_EQ(listxattr("f", b, sizeof b), sizeof ACCESS);
    CHECK(!memcmp(b, ACCESS, sizeof ACCESS));
    OK(removexattr("f", ACCESS));
    OK(removexattr("f", ACCESS));
    CHECK_EQ(mode_of("f"), 0650);
    // Defaults are for directories.
    CHECK_ERR(SET("f", DEFAULT, {USER_OBJ, 6, NONE}, {GROUP_OBJ, 4, NONE}, {OTHER, 1, NONE}), EACCES);
    OK(SET("d", DEFAULT, {USER_OBJ, 6, NONE}, {GROUP_OBJ, 4, NONE}, {OTHER, 1, NONE}));
    CHECK_EQ(mode_of("d"), 0755);
    CHECK_EQ(getxattr("d", DEFAULT, b, sizeof b), 4 + 3 * 8);
    OK(removexattr("d", DEFAULT));
    CHECK_ERR(getxattr("d", DEFAULT, b, sizeof b), ENODATA);
    CHECK_ERR(lsetxattr("dangling", ACCESS, "\2\0\0\0", 4, 0), EOPNOTSUPP);
}
TEST(acl_wrong_values) {
    t_make("f", "x");
    CHECK_ERR(setxattr("f", ACCESS, "\2\0", 2, 0), EINVAL);
    CHECK_ERR(setxattr("f", ACCESS, "\1\0\0\0", 4, 0), EOPNOTSUPP);
    CHECK_ERR(setxattr("f", ACCESS, "\2\0\0\0\1", 5, 0), EINVAL);
    OK(setxattr("f", ACCESS, "\2\0\0\0", 4, 0));
    CHECK_ERR(SET("f", ACCESS, {3, 7, NONE}), EINVAL);
    CHECK_ERR(SET("f", ACCESS, {USER_OBJ, 7, NONE}), EINVAL);
    CHECK_ERR(SET("f", ACCESS, {USER_OBJ, 8, NONE}, {GROUP_OBJ, 4, NONE}, {OTHER, 0, NONE}), EINVAL);
    CHECK_ERR(SET("f", ACCESS, {GROUP_OBJ, 4, NONE}, {USER_OBJ, 6, NONE}, {OTHER, 0, NONE}), EINVAL);
    CHECK_ERR(SET("f", ACCESS, {USER_OBJ, 6, NONE}, {USER, 6, 5}, {GROUP_OBJ, 4, NONE}, {OTHER, 0, NONE}), EINVAL);
    CHECK_ERR(SET("f", ACCESS, {USER_OBJ, 6, NONE}, {USER, 6, NONE}, {GROUP_OBJ, 4, NONE}, {MASK, 7, NONE},
                  {OTHER, 0, NONE}),
              EINVAL);
}
TEST(acl_decides) {
    t_make("f", "x");
    SYS(chown("f", 1, 2));
    OK(SET("f", ACCESS, {USER_OBJ, 7, NONE}, {USER, 7, 10}, {USER, 0, 11}, {GROUP_OBJ, 4, NONE}, {GROUP, 2, 20},
           {MASK, 6, NONE}, {OTHER, 1, NONE}));
    SYS(chmod(".", 0755));
    CHECK_EQ(mode_of("f"), 0761);
    CHECK_EQ(as(1, 9, "f", R_OK | W_OK | X_OK), 0);
    CHECK_EQ(as(10, 9, "f", R_OK | W_OK), 0);
    CHECK_EQ(as(10, 9, "f", X_OK), EACCES);
    CHECK_EQ(as(11, 2, "f", R_OK), EACCES);
    CHECK_EQ(as(12, 2, "f", R_OK), 0);
    CHECK_EQ(as(12, 2, "f", W_OK), EACCES);
    CHECK_EQ(as(12, 20, "f", W_OK), 0);
    CHECK_EQ(as(12, 20, "f", R_OK), EACCES);
    CHECK_EQ(as(12, 20, "f", X_OK), EACCES);
    CHECK_EQ(as(13, 9, "f", X_OK), 0);
    CHECK_EQ(as(13, 9, "f", R_OK), EACCES);
    CHECK_EQ(as(0, 0, "f", R_OK | W_OK | X_OK), 0);
    // A directory that one user alone may search.
    SYS(mkdir("d", 0700));
    t_make("d/x", "x");
    SYS(chmod("d/x", 0644));
    OK(SET("d", ACCESS, {USER_OBJ, 7, NONE}, {USER, 1, 10}, {GROUP_OBJ, 0, NONE}, {MASK, 7, NONE}, {OTHER, 0, NONE}));
    CHECK_EQ(as(10, 9, "d/x", R_OK), 0);
    CHECK_EQ(as(10, 9, "d", R_OK), EACCES);
    CHECK_EQ(as(11, 9, "d/x", R_OK), EACCES);
    // chmod(2) changes the mask.
    SYS(chmod("d", 0700));
    CHECK_EQ(bits_of("d", ACCESS, MASK, NONE), 0);
    CHECK_EQ(bits_of("d", ACCESS, USER, 10), 1);
    CHECK_EQ(as(10, 9, "d/x", R_OK), EACCES);
    SYS(chmod("d", 0711));
    CHECK_EQ(as(10, 9, "d/x", R_OK), 0);
    SYS(chmod("d", 0710));
    CHECK_EQ(as(10, 9, "d/x", R_OK), 0);
    CHECK_EQ(as(11, 9, "d/x", R_OK), EACCES);
}
TEST(acl_owner_only) {
    t_make("f", "x");
    SYS(chmod("f", 0666));
    SYS(chmod(".", 0777));
    SYS(chown("f", 5, 6));
    SYS(chmod("f", 02777));
    pid_t p = fork();
    if (p == 0) {
        SYS(setgroups(0, 0));
        SYS(setresgid(9, 9, 9));
        SYS(setresuid(7, 7, 7));
        CHECK_ERR(SET("f", ACCESS, {USER_OBJ, 6, NONE}, {GROUP_OBJ, 4, NONE}, {OTHER, 1, NONE}), EPERM);
        CHECK_ERR(removexattr("f", ACCESS), EPERM);
        _exit(0);
    }
    SYS(waitpid(p, 0, 0));
    p = fork();
    if (p == 0) {
        SYS(setgroups(0, 0));
        SYS(setresgid(9, 9, 9));
        SYS(setresuid(5, 5, 5));
        OK(SET("f", ACCESS, {USER_OBJ, 7, NONE}, {USER, 7, 8}, {GROUP_OBJ, 7, NONE}, {MASK, 7, NONE}, {OTHER, 1, NONE}));
        // The set-group-ID bit is not for who is not in the group.
        CHECK_EQ(mode_of("f"), 0771);
        _exit(0);
    }
    SYS(waitpid(p, 0, 0));
}
TEST(acl_inherited) {
    SYS(mkdir("d", 0755));
    OK(SET("d", DEFAULT, {USER_OBJ, 7, NONE}, {USER, 6, 10}, {GROUP_OBJ, 5, NONE}, {MASK, 7, NONE}, {OTHER, 5, NONE}));
    umask(077);
    // The umask does not count there.
    int fd = SYS(open("d/f", O_CREAT | O_RDWR, 0666));
    close(fd);
    CHECK_EQ(mode_of("d/f"), 0664);
    CHECK_EQ(bits_of("d/f", ACCESS, MASK, NONE), 6);
    CHECK_EQ(bits_of("d/f", ACCESS, USER, 10), 6);
    CHECK_EQ(bits_of("d/f", ACCESS, GROUP_OBJ, NONE), 5);
    fd = SYS(open("d/g", O_CREAT | O_RDWR, 0600));
    close(fd);
    CHECK_EQ(mode_of("d/g"), 0600);
    CHECK_EQ(bits_of("d/g", ACCESS, MASK, NONE), 0);
    SYS(mkdir("d/sub", 0777));
    CHECK_EQ(mode_of("d/sub"), 0775);
    CHECK_EQ(bits_of("d/sub", ACCESS, USER, 10), 6);
    CHECK_EQ(bits_of("d/sub", DEFAULT, USER, 10), 6);
    CHECK_EQ(bits_of("d/sub", DEFAULT, MASK, NONE), 7);
    SYS(mkfifo("d/fifo", 0666));
    CHECK_EQ(mode_of("d/fifo"), 0664);
    SYS(symlink("f", "d/l"));
    CHECK_EQ(mode_of("d/l"), 0777);
    // A default list that is a mode takes the umask's place as well.
    OK(SET("d", DEFAULT, {USER_OBJ, 7, NONE}, {GROUP_OBJ, 4, NONE}, {OTHER, 4, NONE}));
    fd = SYS(open("d/h", O_CREAT | O_RDWR, 0666));
    close(fd);
    CHECK_EQ(mode_of("d/h"), 0644);
    CHECK_EQ(bits_of("d/h", ACCESS, USER_OBJ, NONE), -1);
    OK(removexattr("d", DEFAULT));
    fd = SYS(open("d/i", O_CREAT | O_RDWR, 0666));
    close(fd);
    CHECK_EQ(mode_of("d/i"), 0600);
}
TEST(acl_inherited_by_unnamed_files) {
    SYS(mkdir("d", 0755));
    OK(SET("d", DEFAULT, {USER_OBJ, 7, NONE}, {USER, 6, 10}, {GROUP_OBJ, 5, NONE}, {MASK, 7, NONE}, {OTHER, 5, NONE}));
    umask(077);
    int fd = open("d", O_TMPFILE | O_RDWR, 0666);
    if (fd < 0 && errno == EOPNOTSUPP) SKIP("no O_TMPFILE here");
    struct stat st;
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_mode & 07777, 0664);
    CHECK(fgetxattr(fd, ACCESS, 0, 0) == 4 + 5 * 8);
    close(fd);
}
TEST(acl_renamed_and_linked) {
    t_make("f", "x");
    OK(SET("f", ACCESS, {USER_OBJ, 6, NONE}, {USER, 6, 10}, {GROUP_OBJ, 4, NONE}, {MASK, 7, NONE}, {OTHER, 0, NONE}));
    SYS(link("f", "g"));
    CHECK_EQ(bits_of("g", ACCESS, USER, 10), 6);
    SYS(chmod("g", 0640));
    CHECK_EQ(bits_of("f", ACCESS, MASK, NONE), 4);
    SYS(rename("f", "h"));
    CHECK_EQ(bits_of("h", ACCESS, MASK, NONE), 4);
    SYS(chown("h", 4, 5));
    CHECK_EQ(bits_of("g", ACCESS, USER, 10), 6);
}

static void set_caps(const char *path, uint32_t permitted, int effective) {
    struct vfs_cap_data c = {.magic_etc = VFS_CAP_REVISION_2 | effective, .data = {{permitted, 0}, {0, 0}}};
    OK(setxattr(path, "security.capability", &c, XATTR_CAPS_SZ_2, 0));
}

// This program again, as user 65534: its status tells what it got.
static int run_as_nobody(int nnp) {
    pid_t p = fork();
    if (p == 0) {
        SYS(setgroups(0, 0));
        SYS(setresgid(65534, 65534, 65534));
        SYS(setresuid(65534, 65534, 65534));
        if (nnp) SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        execl("./prog", "./prog", "--capabilities", (char *)0);
        _exit(100 + errno);
    }
    int st;
    SYS(waitpid(p, &st, 0));
    return WIFEXITED(st) ? WEXITSTATUS(st) : 200;
}

static void copy_self(void) {
    char cmd[PATH_MAX + 32];
    snprintf(cmd, sizeof cmd, "cp %s prog && chmod 755 prog .", t_self);
    CHECK_EQ(system(cmd), 0);
}

// Run as `prog --capabilities`: bits of what the program got. Before main, which wants a directory to write to.
__attribute__((constructor)) static void tell_capabilities(int argc, char **argv) {
    if (argc != 2 || strcmp(argv[1], "--capabilities")) return;
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    if (syscall(SYS_capget, &h, d)) _exit(99);
    uint32_t want = 1 << CAP_NET_BIND_SERVICE | 1 << CAP_CHOWN;
    _exit((d[0].permitted == want) | (d[0].effective == want) << 1 | (getauxval(AT_SECURE) != 0) << 2 |
          (d[0].permitted != want && d[0].permitted != 0) << 3);
}
TEST(file_capabilities) {
    copy_self();
    CHECK_EQ(run_as_nobody(0), 0);
    uint32_t want = 1 << CAP_NET_BIND_SERVICE | 1 << CAP_CHOWN;
    set_caps("prog", want, 1);
    if (run_as_nobody(0) == 0) SKIP("the mount is nosuid");
    CHECK_EQ(run_as_nobody(0), 7);
    CHECK_EQ(run_as_nobody(1), 4);
    set_caps("prog", want, 0);
    CHECK_EQ(run_as_nobody(0), 5);
    // What the bounding set does not have is missed only by those who rely on it.
    SYS(prctl(PR_CAPBSET_DROP, CAP_CHOWN));
    CHECK_EQ(run_as_nobody(0), 12);
    set_caps("prog", want, 1);
    CHECK_EQ(run_as_nobody(0), 100 + EPERM);
    // A change of the owner takes them away.
    SYS(chown("prog", 1, 1));
    CHECK_ERR(getxattr("prog", "security.capability", 0, 0), ENODATA);
    CHECK_EQ(run_as_nobody(0), 0);
}
TEST(file_capabilities_forms) {
    t_make("f", "x");
    char b[64];
    struct vfs_ns_cap_data c = {.magic_etc = VFS_CAP_REVISION_3, .data = {{1, 0}, {0, 0}}, .rootid = 7};
    CHECK_ERR(setxattr("f", "security.capability", "x", 1, 0), EINVAL);
    CHECK_ERR(setxattr("f", "security.capability", &c, XATTR_CAPS_SZ_2, 0), EINVAL);
    CHECK_ERR(setxattr("f", "security.capability", &c, XATTR_CAPS_SZ_1, 0), EINVAL);
    CHECK_ERR(getxattr("f", "security.capability", b, sizeof b), ENODATA);
    set_caps("f", 1, 0);
    CHECK_EQ(getxattr("f", "security.capability", b, sizeof b), XATTR_CAPS_SZ_2);
    OK(removexattr("f", "security.capability"));
    CHECK_ERR(removexattr("f", "security.capability"), ENODATA);
    SYS(chmod("f", 0777));
    SYS(chmod(".", 0777));
    SYS(setresgid(9, 9, 9));
    SYS(setresuid(7, 7, 7));
    struct vfs_cap_data v = {.magic_etc = VFS_CAP_REVISION_2};
    CHECK_ERR(setxattr("f", "security.capability", &v, XATTR_CAPS_SZ_2, 0), EPERM);
    CHECK_ERR(setxattr("f", "security.other", "x", 1, 0), EPERM);
    CHECK_ERR(setxattr("f", "trusted.other", "x", 1, 0), EPERM);
    CHECK_ERR(getxattr("f", "trusted.other", b, 1), ENODATA);
    OK(setxattr("f", "user.other", "x", 1, 0));
}

// The umask does not count for what is made in a directory with a default list, except for the name of a socket.
TEST(names_of_sockets_obey_the_umask) {
    SYS(mkdir("d", 0777));
    OK(SET("d", DEFAULT, {USER_OBJ, 7, NONE}, {USER, 7, 1234}, {GROUP_OBJ, 7, NONE}, {MASK, 7, NONE}, {OTHER, 5, NONE}));
    umask(077);
    struct sockaddr_un a = {AF_UNIX, "d/s"};
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        OK(bind(SYS(socket(AF_UNIX, type, 0)), (void *)&a, sizeof a));
        CHECK_EQ(mode_of("d/s"), 0700);
        OK(unlink("d/s"));
    }
    OK(mknod("d/s", S_IFSOCK | 0777, 0));
    CHECK_EQ(mode_of("d/s"), 0775);
    t_make("d/f", "");
    CHECK_EQ(mode_of("d/f"), 0644);
}
