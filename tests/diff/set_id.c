// Set-ID bits and capabilities of files: which changes of a file take them away, and from which caller.
#include "t.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>

#define OWNER 2000
#define GROUP 2002

static int mode_of(const char *path) {
    struct stat st;
    OK(stat(path, &st));
    return st.st_mode & 07777;
}
static void a_file(int mode) {
    t_make("f", "some text");
    SYS(chown("f", OWNER, GROUP));
    SYS(chmod("f", mode));
}

// Each changes the file f, and is one that takes bits away.
static void by_write(void) { CHECK_EQ(write(SYS(open("f", O_WRONLY)), "x", 1), 1); }
static void by_append(void) { CHECK_EQ(write(SYS(open("f", O_WRONLY | O_APPEND)), "x", 1), 1); }
static void by_pwritev(void) {
    struct iovec v = {"xy", 2};
    CHECK_EQ(syscall(SYS_pwritev2, SYS(open("f", O_WRONLY)), &v, 1, 3, 0, 0), 2);
}
static void by_truncate(void) { OK(truncate("f", 3)); }
static void by_truncate_to_the_same(void) { OK(truncate("f", 9)); }
static void by_ftruncate(void) { OK(ftruncate(SYS(open("f", O_WRONLY)), 30)); }
static void by_open_trunc(void) { SYS(open("f", O_WRONLY | O_TRUNC)); }
static void by_fallocate(void) { OK(fallocate(SYS(open("f", O_WRONLY)), 0, 0, 100)); }
static void by_fallocate_keep_size(void) { OK(fallocate(SYS(open("f", O_WRONLY)), FALLOC_FL_KEEP_SIZE, 0, 100)); }
static void by_punch_hole(void) {
    OK(fallocate(SYS(open("f", O_WRONLY)), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4));
}
static void by_sendfile(void) {
    CHECK_EQ(sendfile(SYS(open("f", O_WRONLY)), SYS(open("from", O_RDONLY)), 0, 4), 4);
}
static void by_copy_file_range(void) {
    CHECK_EQ(copy_file_range(SYS(open("from", O_RDONLY)), 0, SYS(open("f", O_WRONLY)), 0, 4, 0), 4);
}
static void by_splice(void) {
    int p[2];
    SYS(pipe(p));
    CHECK_EQ(write(p[1], "abcd", 4), 4);
    CHECK_EQ(splice(p[0], 0, SYS(open("f", O_WRONLY)), 0, 4, 0), 4);
}
static const struct change {
    const char *name;
    void (*run)(void);
} changes[] = {
    {"write", by_write},
    {"append", by_append},
    {"pwritev2", by_pwritev},
    {"truncate", by_truncate},
    {"truncate to the same size", by_truncate_to_the_same},
    {"ftruncate", by_ftruncate},
    {"O_TRUNC", by_open_trunc},
    {"fallocate", by_fallocate},
    {"fallocate, keeping the size", by_fallocate_keep_size},
    {"a hole", by_punch_hole},
    {"sendfile", by_sendfile},
    {"copy_file_range", by_copy_file_range},
    {"splice", by_splice},
};

enum who { STRANGER_TO_GROUP, MEMBER, ROOT, ROOT_WITHOUT_FSETID };

static void become(enum who who) {
    gid_t groups[] = {GROUP};
    if (who == ROOT_WITHOUT_FSETID) {
        struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct d[2];
        OK(syscall(SYS_capget, &h, d));
        d[0].effective &= ~(1u << CAP_FSETID);
        OK(syscall(SYS_capset, &h, d));
    } else if (who != ROOT) {
        SYS(setgroups(who == MEMBER, groups));
        SYS(setgid(OWNER));
        SYS(setuid(OWNER));
    }
}
static int left(int mode, bool member) {
    return mode & ~04000 & ~(mode & 010 || !member ? 02000 : 0);
}

// The set-user-ID bit goes always, the set-group-ID bit unless the group may not execute the file and the caller is in it.
static void changed_by(enum who who) {
    static const int modes[] = {04700, 02700, 06700, 02710, 06777, 02767, 01777, 0644};
    t_make("from", "other text");
    SYS(chmod(".", 0777));
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
        for (unsigned k = 0; k < sizeof changes / sizeof *changes; k++) {
            a_file(modes[i]);
            CHECK_CHILD(become(who); changes[k].run());
            int want = who == ROOT ? modes[i] : left(modes[i], who == MEMBER);
            if (mode_of("f") != want)
                t_fail(__FILE__, __LINE__, "%s of a file of mode %04o: %04o", changes[k].name, modes[i], mode_of("f"));
        }
}
TEST(changed_by_a_stranger_to_the_group) { changed_by(STRANGER_TO_GROUP); }
TEST(changed_by_a_member_of_the_group) { changed_by(MEMBER); }
TEST(changed_by_root) { changed_by(ROOT); }
TEST(changed_by_root_without_fsetid) { changed_by(ROOT_WITHOUT_FSETID); }

TEST(nothing_written_takes_nothing) {
    SYS(chmod(".", 0777));
    a_file(06777);
    CHECK_CHILD(become(STRANGER_TO_GROUP); int fd = SYS(open("f", O_RDWR)); OK(write(fd, "", 0)); CHECK_ERR(fallocate(fd, 0, 0, 0), EINVAL);
                CHECK_ERR(ftruncate(fd, -1), EINVAL));
    CHECK_EQ(mode_of("f"), 06777);
}
TEST(a_store_into_a_mapping_takes_nothing) {
    SYS(chmod(".", 0777));
    a_file(06777);
    CHECK_CHILD(become(STRANGER_TO_GROUP); int fd = SYS(open("f", O_RDWR));
                char *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); MUST(m != MAP_FAILED); *m = 'm');
    CHECK_EQ(mode_of("f"), 06777);
}

TEST(chown_by_the_owner) {
    static const int modes[] = {04700, 02700, 06700, 02710, 06777, 0644};
    SYS(chmod(".", 0755));
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
        for (int member = 0; member < 2; member++) {
            a_file(modes[i]);
            CHECK_CHILD(become(member ? MEMBER : STRANGER_TO_GROUP); OK(chown("f", OWNER, -1)));
            CHECK_EQ(mode_of("f"), left(modes[i], member));
            a_file(modes[i]);
            CHECK_CHILD(become(member ? MEMBER : STRANGER_TO_GROUP); OK(chown("f", -1, -1)));
            CHECK_EQ(mode_of("f"), left(modes[i], member));
            a_file(modes[i]);
            CHECK_CHILD(become(member ? MEMBER : STRANGER_TO_GROUP); OK(chown("f", -1, OWNER)));
            CHECK_EQ(mode_of("f"), left(modes[i], member));
        }
}
TEST(chown_by_root) {
    static const int modes[] = {04700, 02700, 06700, 02710, 06777, 0644};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        a_file(modes[i]);
        OK(chown("f", 5, 6));
        CHECK_EQ(mode_of("f"), left(modes[i], true));
        a_file(modes[i]);
        OK(lchown("f", -1, -1));
        CHECK_EQ(mode_of("f"), left(modes[i], true));
    }
    OK(mkdir("d", 0755));
    OK(chmod("d", 06755));
    OK(chown("d", 5, 6));
    CHECK_EQ(mode_of("d"), 06755);
}
// A caller that may not change the mode cannot take the bits away by a chown that changes nothing.
TEST(chown_of_nothing_by_another_user) {
    static const int modes[] = {04755, 02755, 02700, 06755};
    SYS(chmod(".", 0755));
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        t_make("g", "");
        SYS(chmod("g", modes[i]));
        CHECK_CHILD(become(STRANGER_TO_GROUP); CHECK_ERR(chown("g", -1, -1), EPERM);
                    CHECK_ERR(fchownat(AT_FDCWD, "g", -1, -1, AT_SYMLINK_NOFOLLOW), EPERM));
        CHECK_EQ(mode_of("g"), modes[i]);
    }
    OK(chmod("g", 01755));
    CHECK_CHILD(become(STRANGER_TO_GROUP); OK(chown("g", -1, -1)));
    CHECK_EQ(mode_of("g"), 01755);
    OK(mkdir("d", 0755));
    OK(chmod("d", 06755));
    CHECK_CHILD(become(STRANGER_TO_GROUP); OK(chown("d", -1, -1)));
    CHECK_EQ(mode_of("d"), 06755);
}
// Changing the owner needs CAP_CHOWN, and the mode that changes with it CAP_FOWNER.
TEST(chown_with_capabilities) {
    SYS(chmod(".", 0755));
    a_file(06755);
    t_make("plain", "");
    CHECK_CHILD(OK(prctl(PR_SET_KEEPCAPS, 1)); SYS(setuid(3000)); struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
                struct __user_cap_data_struct d[2] = {{1u << CAP_CHOWN, 1u << CAP_CHOWN, 0}}; OK(syscall(SYS_capset, &h, d));
                CHECK_ERR(chown("f", 3000, 3000), EPERM); OK(chown("plain", 3000, 3000)));
    CHECK_EQ(mode_of("f"), 06755);
}
