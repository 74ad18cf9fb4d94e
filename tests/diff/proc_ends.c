// Files of /proc/PID when the process is a zombie, and when it is gone; smaps and locks.
#include <dirent.h>
#include "t.h"
#include <pthread.h>
#include <sys/file.h>

// What open(2) fails with, or else what reading one byte gives.
static const struct {
    const char *name;
    int open;
    int read;
} files[] = {
    {"environ", ESRCH, 0},  {"auxv", ESRCH, 0},         {"mem", ESRCH, 0},           {"smaps_rollup", ESRCH, 0},
    {"mounts", EINVAL, 0},  {"mountinfo", EINVAL, 0},   {"mountstats", EINVAL, 0},   {"status", 0, 1},
    {"personality", 0, 1},  {"limits", 0, 1},           {"sched", 0, 1},             {"comm", 0, 1},
    {"cmdline", 0, 0},      {"stat", 0, 1},             {"statm", 0, 1},             {"maps", 0, 0},
    {"smaps", 0, 0},        {"wchan", 0, 1},            {"schedstat", 0, 1},         {"cgroup", 0, 1},
    {"oom_score", 0, 1},    {"oom_adj", 0, 1},          {"oom_score_adj", 0, 1},     {"coredump_filter", 0, 0},
    {"io", 0, 1},           {"uid_map", 0, 1},          {"gid_map", 0, 1},           {"setgroups", 0, 1},
    {"timens_offsets", 0, 0},
};
#define FILES (sizeof files / sizeof *files)

static pid_t ends_with(struct t_gate g) {
    pid_t p = FORK();
    if (p == 0) {
        t_pass(g);
        _exit(0);
    }
    return p;
}
static void become_zombie(pid_t p, struct t_gate g) {
    t_open(g);
    siginfo_t info;
    OK(waitid(P_PID, p, &info, WEXITED | WNOWAIT));
}
static int open_of(pid_t p, const char *name, int flags) {
    char path[64];
    sprintf(path, "/proc/%d/%s", p, name);
    return open(path, flags);
}

TEST(zombies) {
    struct t_gate g = t_gate();
    pid_t p = ends_with(g);
    become_zombie(p, g);
    for (size_t i = 0; i < FILES; i++) {
        char c, what[64];
        int fd = open_of(p, files[i].name, O_RDONLY);
        int error = fd < 0 ? errno : 0;
        sprintf(what, "%s: open %s", files[i].name, t_errno(error));
        char want[64];
        sprintf(want, "%s: open %s", files[i].name, t_errno(files[i].open));
        CHECK_STR(what, want);
        if (fd < 0) continue;
        sprintf(what, "%s: read %d", files[i].name, (int)read(fd, &c, 1));
        sprintf(want, "%s: read %d", files[i].name, files[i].read);
        CHECK_STR(what, want);
        close(fd);
    }
    char path[64], to[64];
    sprintf(path, "/proc/%d/ns/net", p);
    CHECK_ERR(readlink(path, to, sizeof to), ENOENT);
    sprintf(path, "/proc/%d/ns/user", p);
    CHECK(readlink(path, to, sizeof to) > 0);
    // It has left its network, so there is nothing to read of it.
    CHECK_ERR(open_of(p, "net/dev", O_RDONLY), ENOENT);
    int net = SYS(open_of(p, "net", O_RDONLY | O_DIRECTORY)), names = 0;
    DIR *dir = fdopendir(net);
    for (struct dirent *e; dir && (e = readdir(dir));) names += e->d_name[0] != '.';
    CHECK(names == 0);
    closedir(dir);
    sprintf(path, "/proc/%d/exe", p);
    CHECK_ERR(readlink(path, to, sizeof to), ENOENT);
    CHECK_STATUS(t_status(p), "exit 0");
}

TEST(files_that_were_open_before_the_end) {
    static const char *const names[] = {"maps", "smaps", "mem", "stat", "uid_map", "task"};
    struct t_gate g = t_gate();
    pid_t p = ends_with(g);
    int fds[6];
    char thread[64], c;
    for (int i = 0; i < 5; i++) fds[i] = SYS(open_of(p, names[i], O_RDONLY));
    sprintf(thread, "task/%d/comm", p);
    fds[5] = SYS(open_of(p, thread, O_RDONLY));
    become_zombie(p, g);
    CHECK_EQ(read(fds[0], &c, 1), 0);
    CHECK_EQ(read(fds[1], &c, 1), 0);
    CHECK_EQ(pread(fds[2], &c, 1, (long)&c), 0);
    CHECK_EQ(read(fds[3], &c, 1), 1);
    CHECK_EQ(read(fds[4], &c, 1), 1);
    CHECK_EQ(read(fds[5], &c, 1), 1);
    CHECK_STATUS(t_status(p), "exit 0");
}

// Open files of the maps of IDs are read after the process has been waited for.
TEST(maps_of_ids_outlive_the_process) {
    static const char *const names[] = {"uid_map", "gid_map", "setgroups"};
    struct t_gate g = t_gate();
    pid_t p = ends_with(g);
    int fds[3];
    char own[256], got[256];
    for (int i = 0; i < 3; i++) fds[i] = SYS(open_of(p, names[i], O_RDONLY));
    become_zombie(p, g);
    CHECK_STATUS(t_status(p), "exit 0");
    for (int i = 0; i < 3; i++) {
        char path[64];
        sprintf(path, "/proc/self/%s", names[i]);
        t_slurp(path, own, sizeof own);
        ssize_t n = SYS(read(fds[i], got, sizeof got - 1));
        got[n] = 0;
        CHECK_STR(got, own);
        CHECK_ERR(open_of(p, names[i], O_RDONLY), ENOENT);
    }
}

TEST(gone) {
    struct t_gate g = t_gate();
    pid_t p = ends_with(g);
    char path[64], c;
    sprintf(path, "/proc/%d", p);
    int dir = SYS(open(path, O_PATH | O_DIRECTORY));
    static const char *const names[] = {"stat", "comm", "loginuid", "cpuset", "wchan", "timers"};
    int fds[6];
    for (int i = 0; i < 6; i++) fds[i] = open_of(p, names[i], O_RDONLY);
    t_open(g);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_ERR(openat(dir, "stat", O_RDONLY), ESRCH);
    CHECK_ERR(openat(dir, "exe", O_PATH | O_NOFOLLOW), ESRCH);
    CHECK_ERR(openat(dir, "ns/net", O_RDONLY), ESRCH);
    CHECK_ERR(openat(dir, "nosuchfile", O_RDONLY), ESRCH);
    CHECK_ERR(open(path, O_RDONLY), ENOENT);
    for (int i = 0; i < 6; i++)
        if (fds[i] >= 0) CHECK_ERR(read(fds[i], &c, 1), ESRCH);
}

TEST(root_opens_for_writing_what_takes_nothing) {
    int fd = SYS(open("/proc/cpuinfo", O_WRONLY));
    CHECK_ERR(write(fd, "x", 1), EIO);
    CHECK_ERR(write(SYS(open("/proc/self/status", O_RDWR)), "x", 1), EINVAL);
    CHECK_ERR(write(SYS(open("/proc/self/maps", O_RDWR)), "x", 1), EINVAL);
    CHECK_ERR(open("/proc/sys/kernel/ostype", O_WRONLY), EACCES);
}

static int smaps_line(void *at, const char *key, char *out) {
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    int here = 0, found = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) here = (unsigned long)at >= from && (unsigned long)at < to;
        else if (here && !strncmp(line, key, strlen(key))) {
            strcpy(out, line + strlen(key));
            found = 1;
        }
    }
    fclose(f);
    return found;
}
TEST(smaps_of_files) {
    char text[512];
    int fd = t_file("f", "x");
    OK(ftruncate(fd, 8192));
    char *p = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    p[0] = 1;
    MUST(smaps_line(p, "Anonymous:", text));
    CHECK(atoi(text) >= 4 && atoi(text) <= 8);
    MUST(smaps_line(p, "VmFlags:", text));
    CHECK(strstr(text, " ac") != 0);
    OK(mprotect(p, 8192, PROT_READ));
    MUST(smaps_line(p, "Anonymous:", text));
    CHECK(atoi(text) >= 4);
    MUST(smaps_line(p, "VmFlags:", text));
    CHECK(strstr(text, " ac") != 0);
    // A file that is open for reading only.
    int ro = SYS(open("f", O_RDONLY));
    p = SYS(mmap(0, 4096, PROT_READ, MAP_SHARED, ro, 0));
    MUST(smaps_line(p, "VmFlags:", text));
    CHECK(strstr(text, " sh ") == 0);
    CHECK(strstr(text, " ms ") != 0);
    CHECK(strstr(text, " mw ") == 0);
    p = SYS(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0));
    MUST(smaps_line(p, "VmFlags:", text));
    CHECK(strstr(text, " sh ") != 0);
}

// /proc/locks and fdinfo.
static int has_line(const char *path, const char *start, const char *want) {
    FILE *f = fopen(path, "r");
    char line[256];
    int found = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *text = strchr(line, ':');
        if (!strncmp(line, start, strlen(start)) && text && strstr(line, want)) found++;
    }
    if (f) fclose(f);
    return found;
}
TEST(locks_are_listed) {
    int a = t_file("a", "x"), b = t_file("b", "x");
    struct stat s;
    char want[4][128], info[64];
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 10};
    OK(fcntl(a, F_SETLK, &l));
    l = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 100};
    OK(fcntl(a, F_OFD_SETLK, &l));
    OK(flock(b, LOCK_SH));
    OK(fstat(a, &s));
    sprintf(want[0], ": POSIX  ADVISORY  WRITE %d ", getpid());
    sprintf(want[1], ":%lu 5 14\n", s.st_ino);
    sprintf(want[2], ":%lu 100 EOF\n", s.st_ino);
    CHECK_EQ(has_line("/proc/locks", "", want[0]), 1);
    CHECK_EQ(has_line("/proc/locks", "", want[1]), 1);
    CHECK_EQ(has_line("/proc/locks", "", want[2]), 1);
    OK(fstat(b, &s));
    sprintf(want[3], ":%lu 0 EOF\n", s.st_ino);
    CHECK_EQ(has_line("/proc/locks", "", want[3]), 1);
    sprintf(info, "/proc/self/fdinfo/%d", a);
    CHECK_EQ(has_line(info, "lock:\t", want[1]), 1);
    CHECK_EQ(has_line(info, "lock:\t", "OFDLCK ADVISORY  READ -1 "), 1);
    CHECK_EQ(has_line(info, "lock:\t", "FLOCK"), 0);
    sprintf(info, "/proc/self/fdinfo/%d", b);
    sprintf(want[0], "FLOCK  ADVISORY  READ %d ", getpid());
    CHECK_EQ(has_line(info, "lock:\t", want[0]), 1);
    close(a);
    CHECK_EQ(has_line("/proc/locks", "", want[1]), 0);
}

static void *outlives(void *gate) {
    t_pass(*(struct t_gate *)gate);
    _exit(7);
}
static char state_of(const char *path) {
    char text[512] = "";
    int fd = SYS(open(path, O_RDONLY));
    CHECK(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    char *end = strrchr(text, ')');
    return end ? end[2] : '?';
}
TEST(a_leader_that_ended_before_its_threads_is_a_zombie) {
    static struct t_gate g;
    g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        OK(pthread_create(&t, 0, outlives, &g));
        syscall(SYS_exit, 0);
    }
    char path[64];
    sprintf(path, "/proc/%d/stat", p);
    for (int i = 0; i < 200 && state_of(path) != 'Z'; i++) t_ms(10);
    CHECK_EQ(state_of(path), 'Z');
    sprintf(path, "/proc/%d/task/%d/stat", p, p);
    CHECK_EQ(state_of(path), 'Z');
    CHECK_EQ(waitpid(p, 0, WNOHANG), 0);
    t_open(g);
    CHECK_STATUS(t_status(p), "exit 7");
}
