// kernel.pid_max of PID namespaces, and net.ipv4.ping_group_range in user namespaces: settings that a namespace has of its own.
#include "t.h"
#include <sys/mount.h>

static void value(const char *path, char *b) {
    CHECK(t_slurp(path, b, 64) > 0);
    b[strcspn(b, "\n")] = 0;
}
#define PID_MAX "/proc/sys/kernel/pid_max"
#define GROUPS "/proc/sys/net/ipv4/ping_group_range"
#define IS(path, want)                                                                                                 \
    ({                                                                                                                 \
        char b_[64];                                                                                                   \
        value(path, b_);                                                                                               \
        CHECK_STR(b_, want);                                                                                           \
    })
static int put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    int n = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    errno = saved;
    return n == (int)strlen(text) ? 0 : -1;
}
// Runs in a child that is process 1 of a new PID namespace, with its own /proc.
#define INSIDE(flags, ...)                                                                                             \
    ({                                                                                                                 \
        SYS(unshare(CLONE_NEWPID | (flags)));                                                                          \
        CHECK_CHILD(SYS(unshare(CLONE_NEWNS)); SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));                          \
                    SYS(mount("proc", "/proc", "proc", 0, 0)); __VA_ARGS__);                                           \
    })

TEST(every_namespace_has_its_own) {
    char outer[64];
    value(PID_MAX, outer);
    INSIDE(0, IS(PID_MAX, "4194304"); CHECK_ERR(put(PID_MAX, "300"), EINVAL); CHECK_ERR(put(PID_MAX, "4194305"), EINVAL);
           CHECK_ERR(put(PID_MAX, "-1"), EINVAL); OK(put(PID_MAX, "301")); IS(PID_MAX, "301"); OK(put(PID_MAX, "4194304")); OK(put(PID_MAX, "400"));
           IS(PID_MAX, "400"); INSIDE(0, IS(PID_MAX, "4194304"); OK(put(PID_MAX, "500"))); IS(PID_MAX, "400"));
    IS(PID_MAX, outer);
}
TEST(numbers_end_there) {
    INSIDE(0, {
        OK(put(PID_MAX, "301"));
        int n = 0, top = 0;
        pid_t p = 0;
        for (; n < 500; n++) {
            p = fork();
            if (p == 0) {
                pause();
                _exit(0);
            }
            if (p < 0) break;
            if (p > top) top = p;
        }
        CHECK(p < 0 && errno == EAGAIN);
        CHECK_EQ(top, 300);
        CHECK_EQ(n, 299);
        // One that ends gives its number back: past the low ones, only the last is taken again.
        kill(300, SIGKILL);
        t_status(300);
        p = fork();
        if (p == 0) _exit(0);
        CHECK_EQ(p, 300);
        t_status(p);
        kill(5, SIGKILL);
        t_status(5);
        p = fork();
        if (p == 0) _exit(0);
        CHECK_EQ(p, 300);
        t_status(p);
    });
}
TEST(limits_of_the_parents_hold) {
    INSIDE(0, {
        OK(put(PID_MAX, "320"));
        INSIDE(0, {
            int n = 0;
            pid_t p = 0;
            for (; n < 500; n++) {
                p = fork();
                if (p == 0) {
                    pause();
                    _exit(0);
                }
                if (p < 0) break;
            }
            CHECK(p < 0 && errno == EAGAIN);
            CHECK(n > 300 && n < 320);
        });
    });
}
TEST(number_that_was_last) {
    INSIDE(0, {
        OK(put(PID_MAX, "400"));
        CHECK_ERR(put("/proc/sys/kernel/ns_last_pid", "401"), EINVAL);
        OK(put("/proc/sys/kernel/ns_last_pid", "398"));
        pid_t p = FORK();
        if (p == 0) _exit(0);
        CHECK_EQ(p, 399);
        t_status(p);
        p = FORK();
        if (p == 0) _exit(0);
        CHECK_EQ(p, 300);
        t_status(p);
    });
}
TEST(root_of_a_user_namespace_may_set_it) {
    int p[2], q[2];
    SYS(pipe(p));
    SYS(pipe(q));
    pid_t c = FORK();
    if (c == 0) {
        char b;
        SYS(unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS));
        MUST(write(p[1], "x", 1) == 1 && read(q[0], &b, 1) == 1);
        CHECK_CHILD(SYS(mount("proc", "/proc", "proc", 0, 0)); OK(put(PID_MAX, "1000")); IS(PID_MAX, "1000"));
        _exit(0);
    }
    char b, path[64];
    MUST(read(p[0], &b, 1) == 1);
    sprintf(path, "/proc/%d/uid_map", c);
    OK(put(path, "0 0 1"));
    sprintf(path, "/proc/%d/gid_map", c);
    OK(put(path, "0 0 1"));
    MUST(write(q[1], "x", 1) == 1);
    CHECK_STATUS(t_status(c), "exit 0");
}
TEST(groups_are_those_of_the_user_namespace) {
    SYS(unshare(CLONE_NEWNET));
    IS(GROUPS, "1\t0");
    OK(put(GROUPS, "0 5"));
    IS(GROUPS, "0\t5");
    OK(put(GROUPS, "7 3"));
    IS(GROUPS, "1\t0");
    OK(put(GROUPS, "0 4294967294"));
    CHECK_ERR(put(GROUPS, "0 4294967295"), EINVAL);
    CHECK_ERR(put(GROUPS, "-1 5"), EINVAL);
    OK(put(GROUPS, "3 9"));
    OK(put(GROUPS, "2"));
    IS(GROUPS, "2\t9");
    int p[2], q[2];
    SYS(pipe(p));
    SYS(pipe(q));
    pid_t c = FORK();
    if (c == 0) {
        char b;
        SYS(unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS));
        IS(GROUPS, "65534\t65534");
        MUST(write(p[1], "x", 1) == 1 && read(q[0], &b, 1) == 1);
        CHECK_ERR(put(GROUPS, "0 5"), EINVAL);
        OK(put(GROUPS, "0 0"));
        IS(GROUPS, "0\t0");
        _exit(0);
    }
    char b, path[64];
    MUST(read(p[0], &b, 1) == 1);
    sprintf(path, "/proc/%d/uid_map", c);
    OK(put(path, "0 0 1"));
    sprintf(path, "/proc/%d/gid_map", c);
    OK(put(path, "0 0 1"));
    MUST(write(q[1], "x", 1) == 1);
    CHECK_STATUS(t_status(c), "exit 0");
}
