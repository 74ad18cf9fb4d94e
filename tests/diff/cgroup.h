// What the tests of control groups share. Each works in a group of its own, which is its working directory, on a mount of
// its own; the group and all in it are removed in the end.
#pragma once
#include "ns.h"
#include <dirent.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/vfs.h>

static char g_path[512]; // of the test's group, as /proc/PID/cgroup shows it

__attribute__((unused)) static void g_mount(void) {
    SYS(unshare(CLONE_NEWNS));
    SYS(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mkdir("cg", 0755));
    if (mount("none", "cg", "cgroup2", 0, 0) < 0) SKIP("no cgroup2");
}

__attribute__((unused)) static void g_remove(const char *path) {
    struct dirent *e;
    char sub[512];
    DIR *d = opendir(path);
    while (d && (e = readdir(d)))
        if (e->d_type == DT_DIR && strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
            snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
            g_remove(sub);
        }
    if (d) closedir(d);
    for (int i = 0; i < 500 && rmdir(path) < 0 && errno == EBUSY; i++) usleep(10000);
}

// Runs a test in a group.
#define IN_GROUP(...)                                                                                                  \
    do {                                                                                                               \
        g_mount();                                                                                                     \
        int out_ = SYS(open(".", O_RDONLY | O_DIRECTORY));                                                             \
        char name_[64], kill_[128];                                                                                    \
        snprintf(name_, sizeof name_, "t.%lld.%d", t_now_ms(), getpid());                                             \
        char at_[80];                                                                                                  \
        snprintf(at_, sizeof at_, "cg/%s", name_);                                                                    \
        char before_[256];                                                                                             \
        g_line("self", before_);                                                                                       \
        snprintf(g_path, sizeof g_path, "%s/%s", strcmp(before_, "/") ? before_ : "", name_);                         \
        SYS(mkdir(at_, 0755));                                                                                         \
        int st_ = CHILD(SYS(chdir(at_)); __VA_ARGS__);                                                                \
        SYS(fchdir(out_));                                                                                             \
        snprintf(kill_, sizeof kill_, "%s/cgroup.freeze", at_);                                                       \
        put(kill_, "0");                                                                                               \
        snprintf(kill_, sizeof kill_, "%s/cgroup.kill", at_);                                                         \
        put(kill_, "1");                                                                                               \
        g_remove(at_);                                                                                                 \
        CHECK_STATUS(st_, "exit 0");                                                                                   \
    } while (0)

// The path in the line of the hierarchy of version 2.
__attribute__((unused)) static char *g_line(const char *pid, char *to) {
    char name[64], text[4096];
    snprintf(name, sizeof name, "/proc/%s/cgroup", pid);
    *to = 0;
    if (t_slurp(name, text, sizeof text) < 0) return to;
    char *at = strstr(text, "0::");
    if (at) sscanf(at, "0::%255[^\n]", to);
    return to;
}

// The same from the test's group on; the whole path when that is elsewhere.
__attribute__((unused)) static const char *g_of(int pid) {
    static char line[256];
    char name[16];
    snprintf(name, sizeof name, "%d", pid);
    g_line(pid ? name : "self", line);
    size_t n = strlen(g_path);
    return strncmp(line, g_path, n) ? line : line + n;
}

__attribute__((unused)) static int g_move(const char *file, int pid) {
    char text[16];
    snprintf(text, sizeof text, "%d", pid);
    return put(file, text);
}

// A value of a file with names and values.
__attribute__((unused)) static long g_field(const char *file, const char *name) {
    char text[1024], want[64];
    snprintf(want, sizeof want, "%s ", name);
    if (t_slurp(file, text, sizeof text) < 0) return -1;
    char *at = strstr(text, want);
    return at ? atol(at + strlen(want)) : -1;
}

__attribute__((unused)) static bool g_comes(const char *file, const char *name, long value) {
    for (int i = 0; i < 1000; i++) {
        if (g_field(file, name) == value) return true;
        usleep(5000);
    }
    return false;
}

// clone3 into the group whose directory is open as `fd`.
__attribute__((unused)) static int g_clone(long long fd, unsigned long long flags) {
    struct {
        unsigned long long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
            cgroup;
    } a = {.flags = 0x200000000ULL | flags, .exit_signal = SIGCHLD, .cgroup = fd};
    return syscall(SYS_clone3, &a, sizeof a);
}
