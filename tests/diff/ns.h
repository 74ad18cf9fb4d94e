// What the tests of namespaces share.
#pragma once
#include "t.h"
#include <grp.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

__attribute__((unused)) static int put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    int n = write(fd, text, strlen(text)), e = errno;
    close(fd);
    errno = e;
    return n < 0 ? -1 : 0;
}

__attribute__((unused)) static char *get(const char *path) {
    static char text[4096];
    int fd = open(path, O_RDONLY), n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    text[n < 0 ? 0 : n] = 0;
    return text;
}

__attribute__((unused)) static void become(int uid) {
    SYS(setresgid(uid, uid, uid));
    SYS(setgroups(0, 0));
    SYS(setresuid(uid, uid, uid));
    SYS(prctl(PR_SET_DUMPABLE, 1));
}

__attribute__((unused)) static unsigned long long caps(const char *name) {
    char *at = strstr(get("/proc/self/status"), name);
    return at ? strtoull(at + strlen(name) + 1, 0, 16) : 0;
}

// An ordinary user becomes root of a user namespace, with more namespaces.
__attribute__((unused)) static void own_namespaces(int more) {
    char map[32];
    int uid = geteuid(), gid = getegid();
    SYS(unshare(CLONE_NEWUSER | more));
    snprintf(map, sizeof map, "0 %d 1", uid);
    SYS(put("/proc/self/uid_map", map));
    SYS(put("/proc/self/setgroups", "deny"));
    snprintf(map, sizeof map, "0 %d 1", gid);
    SYS(put("/proc/self/gid_map", map));
}

__attribute__((unused)) static void wait_for(pid_t child) {
    int status = -1;
    SYS(waitpid(child, &status, 0));
    CHECK_EQ(status, 0);
}
