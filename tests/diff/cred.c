// Credentials: user and group ids, groups, capabilities, securebits, and what they decide.
#include "t.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

#define IDS(r, e, s)                                                                                                   \
    ({                                                                                                                 \
        uid_t a_, b_, c_;                                                                                              \
        OK(getresuid(&a_, &b_, &c_));                                                                                  \
        CHECK_EQ(a_, r);                                                                                               \
        CHECK_EQ(b_, e);                                                                                               \
        CHECK_EQ(c_, s);                                                                                               \
    })
#define GIDS(r, e, s)                                                                                                  \
    ({                                                                                                                 \
        gid_t a_, b_, c_;                                                                                              \
        OK(getresgid(&a_, &b_, &c_));                                                                                  \
        CHECK_EQ(a_, r);                                                                                               \
        CHECK_EQ(b_, e);                                                                                               \
        CHECK_EQ(c_, s);                                                                                               \
    })
struct caps {
    uint64_t e, p, i;
};
static struct caps caps(void) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {0};
    OK(syscall(SYS_capget, &h, d));
    return (struct caps){d[0].effective | (uint64_t)d[1].effective << 32, d[0].permitted | (uint64_t)d[1].permitted << 32,
                         d[0].inheritable | (uint64_t)d[1].inheritable << 32};
}
static int set_caps(struct caps c) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{c.e, c.p, c.i}, {c.e >> 32, c.p >> 32, c.i >> 32}};
    return syscall(SYS_capset, &h, d);
}
#define BIT(c) (1UL << (c))

TEST(start_as_root) {
    IDS(0, 0, 0);
    GIDS(0, 0, 0);
    CHECK_EQ(getuid(), 0);
    CHECK_EQ(getegid(), 0);
    CHECK(caps().e & BIT(CAP_SETUID));
}
TEST(setuid_as_root_is_for_good) {
    CHECK_CHILD(OK(setuid(1000)); IDS(1000, 1000, 1000); CHECK_ERR(setuid(0), EPERM); CHECK_ERR(setuid(1001), EPERM); OK(setuid(1000));
                CHECK_EQ(caps().e, 0); CHECK_EQ(caps().p, 0));
}
TEST(setuid_unprivileged_moves_only_effective) {
    CHECK_CHILD(OK(setresuid(1000, 1001, 1002)); OK(setuid(1000)); IDS(1000, 1000, 1002); OK(setuid(1002)); IDS(1000, 1002, 1002);
                CHECK_ERR(setuid(1001), EPERM));
}
TEST(setreuid_rules) {
    CHECK_CHILD(OK(setreuid(1000, 1001)); IDS(1000, 1001, 1001); OK(setreuid(1001, 1000)); IDS(1001, 1000, 1000); OK(setreuid(-1, 1001));
                IDS(1001, 1001, 1000); CHECK_ERR(setreuid(5, -1), EPERM); CHECK_ERR(setreuid(-1, 5), EPERM));
    CHECK_CHILD(OK(setreuid(-1, 1000)); IDS(0, 1000, 1000));
    CHECK_CHILD(OK(setreuid(-1, -1)); IDS(0, 0, 0));
}
TEST(setresuid_rules) {
    CHECK_CHILD(OK(setresuid(1, 2, 3)); IDS(1, 2, 3); OK(setresuid(3, 1, 2)); IDS(3, 1, 2); OK(setresuid(-1, -1, -1));
                CHECK_ERR(setresuid(9, -1, -1), EPERM); CHECK_ERR(setresuid(-1, 9, -1), EPERM); CHECK_ERR(setresuid(-1, -1, 9), EPERM); IDS(3, 1, 2));
    CHECK_ERR(syscall(SYS_getresuid, BAD_PTR, BAD_PTR, BAD_PTR), EFAULT);
    CHECK_CHILD(OK(setresuid(1000, 1000, 0)); CHECK_EQ(caps().e, 0); CHECK(caps().p != 0); OK(setresuid(-1, 0, -1)); CHECK(caps().e != 0));
}
TEST(seteuid_back_and_forth) {
    CHECK_CHILD(OK(seteuid(1000)); IDS(0, 1000, 0); CHECK_EQ(caps().e, 0); CHECK(caps().p != 0); OK(seteuid(0)); CHECK_EQ(caps().e, caps().p));
}
TEST(gid_calls) {
    CHECK_CHILD(OK(setregid(10, 20)); GIDS(10, 20, 20); OK(setresgid(1, 2, 3)); GIDS(1, 2, 3); OK(setgid(7)); GIDS(7, 7, 7); OK(setresgid(1, 2, 3));
                OK(setuid(1000)); OK(setgid(1)); GIDS(1, 1, 3); CHECK_ERR(setgid(9), EPERM); CHECK_ERR(setregid(9, -1), EPERM);
                CHECK_ERR(setresgid(-1, 9, -1), EPERM); OK(setresgid(3, 3, 1)));
}
TEST(fsuid) {
    CHECK_CHILD(CHECK_EQ(setfsuid(1000), 0); CHECK_EQ(setfsuid(-1), 1000); t_make("/tmp/t-fsuid", ""); struct stat st; OK(stat("/tmp/t-fsuid", &st));
                CHECK_EQ(st.st_uid, 1000); OK(unlink("/tmp/t-fsuid")); CHECK(!(caps().e & BIT(CAP_DAC_OVERRIDE))); CHECK(caps().e & BIT(CAP_SETUID)));
    CHECK_CHILD(CHECK_EQ(setfsgid(1000), 0); CHECK_EQ(setfsgid(-1), 1000));
}
TEST(groups) {
    CHECK_CHILD(gid_t g[] = {30, 10, 20}; gid_t r[8]; OK(setgroups(3, g)); CHECK_EQ(getgroups(0, 0), 3); CHECK_EQ(getgroups(8, r), 3);
                CHECK_ERR(getgroups(2, r), EINVAL); CHECK_ERR(getgroups(-1, r), EINVAL); int sum = r[0] + r[1] + r[2]; CHECK_EQ(sum, 60);
                CHECK_ERR(setgroups(65537, g), EINVAL); CHECK_ERR(syscall(SYS_setgroups, 3, BAD_PTR), EFAULT);
                CHECK_ERR(syscall(SYS_getgroups, 8, BAD_PTR), EFAULT); OK(setgroups(0, 0)); CHECK_EQ(getgroups(8, r), 0); OK(setgroups(3, g));
                OK(setuid(1000)); CHECK_ERR(setgroups(0, 0), EPERM); CHECK_EQ(getgroups(0, 0), 3));
}
TEST(group_permission) {
    t_make("f", "x");
    SYS(chown("f", 0, 500));
    SYS(chmod("f", 0640));
    SYS(chmod(".", 0755));
    CHECK_CHILD(gid_t g = 500; OK(setgroups(1, &g)); OK(setuid(1000)); CHECK(open("f", O_RDONLY) >= 0); CHECK_ERR(open("f", O_WRONLY), EACCES));
    CHECK_CHILD(OK(setgroups(0, 0)); OK(setgid(500)); OK(setuid(1000)); CHECK(open("f", O_RDONLY) >= 0));
    CHECK_CHILD(OK(setgroups(0, 0)); OK(setgid(501)); OK(setuid(1000)); CHECK_ERR(open("f", O_RDONLY), EACCES));
    // the owner is judged by the owner's bits alone
    SYS(chown("f", 1000, 500));
    SYS(chmod("f", 0040));
    CHECK_CHILD(OK(setgid(500)); OK(setuid(1000)); CHECK_ERR(open("f", O_RDONLY), EACCES));
}
TEST(capget_errors) {
    struct __user_cap_header_struct h = {0x1234, 0};
    struct __user_cap_data_struct d[2];
    CHECK_ERR(syscall(SYS_capget, &h, d), EINVAL);
    CHECK_EQ(h.version, _LINUX_CAPABILITY_VERSION_3);
    h.version = 0;
    OK(syscall(SYS_capget, &h, 0)); // asking for the version
    h = (struct __user_cap_header_struct){_LINUX_CAPABILITY_VERSION_3, 1 << 22};
    CHECK_ERR(syscall(SYS_capget, &h, d), ESRCH);
    h.pid = -1;
    CHECK_ERR(syscall(SYS_capget, &h, d), EINVAL);
    CHECK_ERR(syscall(SYS_capget, BAD_PTR, d), EFAULT);
    h.pid = 0;
    CHECK_ERR(syscall(SYS_capget, &h, BAD_PTR), EFAULT);
    h.pid = getppid();
    CHECK_ERR(syscall(SYS_capset, &h, d), EPERM);
    h = (struct __user_cap_header_struct){_LINUX_CAPABILITY_VERSION_1, 0};
    OK(syscall(SYS_capget, &h, d));
}
TEST(capset_rules) {
    CHECK_CHILD(struct caps c = caps(); struct caps n = c; n.e = 0; OK(set_caps(n)); CHECK_EQ(caps().e, 0); CHECK_EQ(caps().p, c.p);
 OK(set_caps(c)); n = c; n.p &= ~BIT(CAP_CHOWN); n.e = n.p; OK(set_caps(n));
                CHECK_ERR(set_caps(c), EPERM); n.e |= BIT(CAP_CHOWN); CHECK_ERR(set_caps(n), EPERM));
    CHECK_CHILD(struct caps c = caps(); c.i = BIT(CAP_CHOWN); OK(set_caps(c)); CHECK_EQ(caps().i, BIT(CAP_CHOWN)));
}
TEST(capability_decides) {
    t_make("f", "");
    SYS(chown("f", 1000, 1000));
    SYS(chmod("f", 0600));
    CHECK_CHILD(struct caps c = caps(); c.e &= ~(BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH)); OK(set_caps(c)); CHECK_ERR(open("f", O_RDONLY), EACCES));
    CHECK_CHILD(struct caps c = caps(); c.e &= ~BIT(CAP_DAC_OVERRIDE); c.e |= BIT(CAP_DAC_READ_SEARCH) & c.p; OK(set_caps(c));
                if (c.e & BIT(CAP_DAC_READ_SEARCH)) CHECK(open("f", O_RDONLY) >= 0); CHECK_ERR(open("f", O_WRONLY), EACCES));
    CHECK_CHILD(struct caps c = caps(); c.e &= ~BIT(CAP_FOWNER); OK(set_caps(c)); CHECK_ERR(chmod("f", 0644), EPERM));
    CHECK_CHILD(struct caps c = caps(); c.e &= ~BIT(CAP_CHOWN); OK(set_caps(c)); CHECK_ERR(chown("f", 0, 0), EPERM));
    CHECK_CHILD(struct caps c = caps(); c.e &= ~BIT(CAP_SETUID); OK(set_caps(c)); CHECK_ERR(setuid(5), EPERM));
    CHECK_CHILD(struct caps c = caps(); c.e &= ~BIT(CAP_SETGID); OK(set_caps(c)); CHECK_ERR(setgid(5), EPERM); CHECK_ERR(setgroups(0, 0), EPERM));
    CHECK_CHILD(struct caps c = caps(); c.e &= ~BIT(CAP_SYS_CHROOT); OK(set_caps(c)); CHECK_ERR(chroot("/"), EPERM));
}
TEST(keepcaps) {
    CHECK_CHILD(OK(prctl(PR_GET_KEEPCAPS)); OK(prctl(PR_SET_KEEPCAPS, 1)); CHECK_EQ(prctl(PR_GET_KEEPCAPS), 1); CHECK_ERR(prctl(PR_SET_KEEPCAPS, 2), EINVAL);
                uint64_t p = caps().p; OK(setuid(1000)); CHECK_EQ(caps().e, 0); CHECK_EQ(caps().p, p); struct caps c = {BIT(CAP_SETUID), p, 0};
                OK(set_caps(c)); OK(setuid(0)));
}
TEST(bounding_set) {
    CHECK_CHILD(CHECK_EQ(prctl(PR_CAPBSET_READ, CAP_CHOWN), 1); OK(prctl(PR_CAPBSET_DROP, CAP_CHOWN)); OK(prctl(PR_CAPBSET_READ, CAP_CHOWN));
                CHECK_ERR(prctl(PR_CAPBSET_READ, 200), EINVAL); CHECK_ERR(prctl(PR_CAPBSET_DROP, 200), EINVAL);
                OK(setuid(1000)); CHECK_ERR(prctl(PR_CAPBSET_DROP, CAP_KILL), EPERM));
    // a program executed by root gets what the bounding set allows
    CHECK_CHILD(OK(prctl(PR_CAPBSET_DROP, CAP_CHOWN)); t_make("f", ""); execl("/bin/sh", "sh", "-c", "chown 5 f 2>/dev/null && exit 1; exit 0", (char *)0));
}
TEST(ambient_set) {
    CHECK_CHILD(OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0)); CHECK_ERR(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0), EPERM);
                struct caps c = caps(); c.i |= BIT(CAP_CHOWN); OK(set_caps(c)); OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0));
                CHECK_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0), 1);
                OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, CAP_CHOWN, 0, 0)); OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0));
                OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)); CHECK_ERR(prctl(PR_CAP_AMBIENT, 99, 0, 0, 0), EINVAL);
                CHECK_ERR(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 200, 0, 0), EINVAL));
    // it survives exec by an ordinary user
    t_make("f", "");
    SYS(chmod(".", 0755));
    CHECK_CHILD(struct caps c = caps(); c.i |= BIT(CAP_CHOWN); OK(set_caps(c)); OK(prctl(PR_SET_KEEPCAPS, 1)); OK(setuid(1000));
                c.e = c.p; OK(set_caps(c)); OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0));
                execl("/bin/sh", "sh", "-c", "chown 5 f || exit 1; chmod 777 f 2>/dev/null && exit 2; exit 0", (char *)0));
}
TEST(securebits) {
    CHECK_CHILD(OK(prctl(PR_GET_SECUREBITS)); OK(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)); CHECK_EQ(prctl(PR_GET_SECUREBITS), SECBIT_NO_SETUID_FIXUP);
                uint64_t e = caps().e; OK(setresuid(1000, 1000, 1000)); CHECK_EQ(caps().e, e));
    CHECK_CHILD(OK(prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED)); CHECK_ERR(prctl(PR_SET_SECUREBITS, 0), EPERM); t_make("f", "");
                SYS(chown("f", 1000, 0)); execl("/bin/sh", "sh", "-c", "chmod 777 f 2>/dev/null && exit 1; exit 0", (char *)0));
}
// What interpreters are to obey: each process may set it for itself.
TEST(securebits_of_interpreters) {
    CHECK_CHILD(SYS(setuid(1234)); CHECK_ERR(prctl(PR_SET_SECUREBITS, 0), EPERM); OK(prctl(PR_SET_SECUREBITS, 0x100));
                CHECK_ERR(prctl(PR_SET_SECUREBITS, 0x101), EPERM); OK(prctl(PR_SET_SECUREBITS, 0x500)); OK(prctl(PR_SET_SECUREBITS, 0x700));
                CHECK_ERR(prctl(PR_SET_SECUREBITS, 0x600), EPERM); CHECK_ERR(prctl(PR_SET_SECUREBITS, 0x400), EPERM);
                OK(prctl(PR_SET_SECUREBITS, 0x300)); CHECK_ERR(prctl(PR_SET_SECUREBITS, 0x1300), EPERM); CHECK_EQ(prctl(PR_GET_SECUREBITS), 0x300));
}
TEST(no_new_privs) {
    CHECK_CHILD(OK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); CHECK_ERR(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
                CHECK_ERR(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0), EINVAL); OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
                CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1); CHECK_CHILD(CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1)));
}
static void copy(const char *from, const char *to) {
    char b[65536];
    int in = SYS(open(from, O_RDONLY)), out = SYS(open(to, O_CREAT | O_WRONLY, 0755));
    ssize_t n;
    while ((n = read(in, b, sizeof b)) > 0) MUST(write(out, b, n) == n);
    close(in);
    close(out);
}
TEST(setuid_program) {
    copy("/usr/bin/id", "id");
    SYS(chown("id", 1234, 4321));
    SYS(chmod("id", 06755));
    SYS(chmod(".", 0755));
    int p[2];
    SYS(pipe(p));
    CHECK_CHILD(SYS(setuid(1000)); dup2(p[1], 1); execl("./id", "id", "-u", (char *)0));
    CHECK_CHILD(SYS(setuid(1000)); dup2(p[1], 1); execl("./id", "id", "-g", (char *)0));
    CHECK_CHILD(SYS(setuid(1000)); OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); dup2(p[1], 1); execl("./id", "id", "-u", (char *)0));
    close(p[1]);
    char b[64] = "";
    CHECK(read(p[0], b, 63) > 0);
    CHECK_STR(b, "1234\n4321\n1000\n");
}
TEST(dumpable_after_setuid) {
    CHECK_CHILD(CHECK_EQ(prctl(PR_GET_DUMPABLE), 1); SYS(setuid(1000)); CHECK(prctl(PR_GET_DUMPABLE) != 1); OK(prctl(PR_SET_DUMPABLE, 1));
                CHECK_EQ(prctl(PR_GET_DUMPABLE), 1); OK(prctl(PR_SET_DUMPABLE, 0)); OK(prctl(PR_GET_DUMPABLE)); CHECK_ERR(prctl(PR_SET_DUMPABLE, 2), EINVAL));
}
