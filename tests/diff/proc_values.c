// Values below /proc that programs set, and copies of files by range.
#include "t.h"
#include <sys/inotify.h>
#include <sys/mount.h>

static void t_write(const char *path, const char *text) {
    int fd = SYS(open(path, O_WRONLY));
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}
static const char *slurp(const char *p) {
    static char buf[4096];
    if (t_slurp(p, buf, sizeof buf) < 0) t_fail(__FILE__, __LINE__, "%s: %s", p, t_errno(errno));
    return buf;
}

TEST(limits_of_users) {
    const char *names[] = {"cgroup_namespaces", "fanotify_groups", "fanotify_marks", "inotify_instances", "inotify_watches",
                           "ipc_namespaces", "mnt_namespaces", "net_namespaces", "pid_namespaces", "time_namespaces",
                           "user_namespaces", "uts_namespaces"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        sprintf(path, "/proc/sys/user/max_%s", names[i]);
        CHECK(atoi(slurp(path)) > 100);
        struct stat st;
        OK(stat(path, &st));
        CHECK_EQ(st.st_mode, S_IFREG | 0644);
    }
    // A user namespace has limits of its own, which its root sets.
    CHECK_CHILD({
        SYS(unshare(CLONE_NEWUSER));
        t_write("/proc/self/setgroups", "deny");
        t_write("/proc/self/uid_map", "0 0 1");
        CHECK_STR(slurp("/proc/sys/user/max_inotify_instances"), "2147483647\n");
        CHECK_STR(slurp("/proc/sys/user/max_time_namespaces"), "2147483647\n");
        CHECK_STR(slurp("/proc/sys/user/max_fanotify_groups"), "2147483647\n");
        t_write("/proc/sys/user/max_inotify_instances", "1");
        t_write("/proc/sys/user/max_inotify_watches", "1");
        t_write("/proc/sys/user/max_time_namespaces", "0");
        CHECK_STR(slurp("/proc/sys/user/max_inotify_instances"), "1\n");
        CHECK_ERR(unshare(0x80 /* CLONE_NEWTIME */), ENOSPC);
        int in = SYS(inotify_init1(0));
        CHECK_ERR(inotify_init1(0), EMFILE);
        SYS(inotify_add_watch(in, "/", IN_OPEN));
        CHECK_ERR(inotify_add_watch(in, "/proc", IN_OPEN), ENOSPC);
        close(in);
        SYS(inotify_init1(0));
        _exit(0);
    });
}
TEST(coredump_filter_values) {
    const struct {
        const char *text;
        int error;
        const char *shows;
    } values[] = {{"0x1ff\n", 0, "000001ff\n"}, {"077", 0, "0000003f\n"}, {"x", EINVAL, "0000003f\n"}, {"\n", EINVAL, 0},
                  {"0xfffffffff", ERANGE, 0}, {"4294967296", ERANGE, 0}, {"4294967295", 0, "000001ff\n"}, {"-1", EINVAL, 0},
                  {"+5", 0, "00000005\n"}, {" 7", EINVAL, 0}, {"7 ", EINVAL, 0}, {"0x", EINVAL, 0}, {"08", EINVAL, 0},
                  {"99999999999999999999999999", ERANGE, 0}, {"0", 0, "00000000\n"}, {"7\n\n", EINVAL, 0}, {"0X1F", 0, "0000001f\n"}};
    int fd = SYS(open("/proc/self/coredump_filter", O_RDWR));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        errno = 0;
        ssize_t n = pwrite(fd, values[i].text, strlen(values[i].text), 0);
        int e = n < 0 ? errno : 0;
        if (e != values[i].error) fprintf(stderr, "%s: %s\n", values[i].text, t_errno(e));
        CHECK_EQ(e, values[i].error);
        if (values[i].shows) CHECK_STR(slurp("/proc/self/coredump_filter"), values[i].shows);
    }
}
TEST(copy_file_range_between_file_systems) {
    int from = SYS(open("/proc/self/status", O_RDONLY)), to = t_file("f", ""), local = t_file("g", "text");
    CHECK_ERR(copy_file_range(from, 0, to, 0, 4096, 0), EXDEV);
    CHECK_ERR(copy_file_range(from, 0, to, 0, 0, 0), EXDEV);
    CHECK_ERR(copy_file_range(local, 0, SYS(open("/proc/self/comm", O_WRONLY)), 0, 4, 0), EXDEV);
    OK(copy_file_range(from, 0, SYS(open("/proc/self/comm", O_WRONLY)), 0, 4, 0));
    int p[2];
    SYS(pipe(p));
    CHECK_ERR(copy_file_range(from, 0, p[1], 0, 4096, 0), EINVAL);
    SYS(mkdir("t", 0755));
    SYS(unshare(CLONE_NEWNS));
    SYS(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", "t", "tmpfs", 0, 0));
    int other = t_file("t/f", "text"), third = t_file("t/g", ""), mem = SYS(memfd_create("m", 0));
    CHECK_ERR(copy_file_range(other, (off_t[]){0}, to, 0, 4, 0), EXDEV);
    CHECK_ERR(copy_file_range(other, (off_t[]){0}, mem, 0, 4, 0), EXDEV);
    CHECK_EQ(copy_file_range(other, (off_t[]){0}, third, 0, 4, 0), 4);
    CHECK_EQ(write(mem, "text", 4), 4);
    CHECK_EQ(copy_file_range(mem, (off_t[]){1}, SYS(memfd_create("n", 0)), 0, 9, 0), 3);
    CHECK_ERR(copy_file_range(mem, (off_t[]){0}, other, 0, 4, 0), EXDEV);
    CHECK_ERR(copy_file_range(SYS(open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY)), 0, to, 0, 4096, 0), EXDEV);
}

// Files of a process are asked about an empty write, too.
TEST(empty_writes) {
    struct {
        const char *name;
        int error;
    } all[] = {
        {"coredump_filter", EINVAL}, {"oom_score_adj", EINVAL}, {"oom_adj", EINVAL},   {"clear_refs", EINVAL},
        {"timerslack_ns", EINVAL},   {"setgroups", EINVAL},     {"loginuid", EINVAL},  {"sched", 0},
        {"comm", 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[64];
        sprintf(path, "/proc/self/%s", all[i].name);
        int fd = SYS(open(path, O_WRONLY)), r = write(fd, "", 0);
        if (all[i].error ? r != -1 || errno != all[i].error : r != 0)
            t_fail(__FILE__, __LINE__, "%s: %d %s", path, r, t_errno(errno));
        close(fd);
    }
    CHECK_STR(slurp("/proc/self/comm"), "\n");
    CHECK_EQ(write(SYS(open("/proc/sys/kernel/pid_max", O_WRONLY)), "", 0), 0);
    int fd = SYS(open("/proc/self/clear_refs", O_WRONLY));
    CHECK_EQ(write(fd, "1", 1), 1);
    CHECK_ERR(write(fd, "6", 1), EINVAL);
    CHECK_ERR(write(fd, "x", 1), EINVAL);
}
