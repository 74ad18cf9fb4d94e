// Namespaces as files: links, ioctls, setns(2), bind mounts. namespaces(7), ioctl_nsfs(2).
#include "ns.h"
#include <linux/nsfs.h>
#include <sys/vfs.h>
#ifndef NS_GET_PID_FROM_PIDNS
#define NS_GET_PID_FROM_PIDNS _IOR(0xb7, 6, int)
#define NS_GET_TGID_FROM_PIDNS _IOR(0xb7, 7, int)
#define NS_GET_PID_IN_PIDNS _IOR(0xb7, 8, int)
#define NS_GET_TGID_IN_PIDNS _IOR(0xb7, 9, int)
#endif
#ifndef PIDFD_GET_NET_NAMESPACE
#define PIDFD_GET_NET_NAMESPACE _IO(0xff, 4)
#define PIDFD_GET_PID_NAMESPACE _IO(0xff, 5)
#endif

static const struct {
    const char *name;
    int flag;
} kinds[] = {{"cgroup", CLONE_NEWCGROUP}, {"ipc", CLONE_NEWIPC}, {"mnt", CLONE_NEWNS}, {"net", CLONE_NEWNET},
             {"pid", CLONE_NEWPID},       {"user", CLONE_NEWUSER}, {"uts", CLONE_NEWUTS}};
#define KINDS (sizeof kinds / sizeof *kinds)

static int open_ns(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    return SYS(open(path, O_RDONLY));
}

static ino_t number(int fd) {
    struct stat st;
    SYS(fstat(fd, &st));
    return st.st_ino;
}

TEST(ns_fs_links) {
    for (size_t i = 0; i < KINDS; i++) {
        char path[64], link[64] = {0}, want[64];
        int fd = open_ns(kinds[i].name);
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i].name);
        snprintf(want, sizeof want, "%s:[%lu]", kinds[i].name, (long)number(fd));
        SYS(readlink(path, link, sizeof link - 1));
        CHECK_STR(link, want);
        char at[64];
        snprintf(at, sizeof at, "/proc/self/fd/%d", fd);
        memset(link, 0, sizeof link);
        SYS(readlink(at, link, sizeof link - 1));
        CHECK_STR(link, want);
        CHECK_EQ(ioctl(fd, NS_GET_NSTYPE), kinds[i].flag);
        struct statfs fs;
        SYS(fstatfs(fd, &fs));
        CHECK_EQ(fs.f_type, 0x6e736673);
        CHECK_ERR(ioctl(fd, 0xb7ff), ENOTTY);
        CHECK_ERR(read(fd, link, 1), EINVAL);
        CHECK_ERR(open(path, O_RDWR), EPERM);
        SYS(close(fd));
    }
    CHECK_ERR(ioctl(SYS(open("/proc/self/status", O_RDONLY)), NS_GET_NSTYPE), ENOTTY);
}

TEST(ns_fs_owners) {
    int outer = open_ns("user");
    become(1000);
    own_namespaces(CLONE_NEWUTS | CLONE_NEWNS);
    int user = open_ns("user"), uts = open_ns("uts");
    CHECK(number(outer) != number(user));
    int owner = SYS(ioctl(uts, NS_GET_USERNS));
    CHECK_EQ(number(owner), number(user));
    CHECK_EQ(fcntl(owner, F_GETFD), FD_CLOEXEC);
    uid_t uid = 5;
    SYS(ioctl(user, NS_GET_OWNER_UID, &uid));
    CHECK_EQ(uid, 0);
    CHECK_ERR(ioctl(uts, NS_GET_OWNER_UID, &uid), EINVAL);
    // What lies outside of the caller's own is not told.
    CHECK_ERR(ioctl(user, NS_GET_PARENT), EPERM);
    CHECK_ERR(ioctl(user, NS_GET_USERNS), EPERM);
    CHECK_ERR(ioctl(uts, NS_GET_PARENT), EINVAL);
    CHECK_ERR(ioctl(open_ns("net"), NS_GET_USERNS), EPERM);
    CHECK_ERR(ioctl(open_ns("pid"), NS_GET_PARENT), EPERM);
    // A level deeper.
    SYS(unshare(CLONE_NEWUSER));
    CHECK_ERR(ioctl(open_ns("user"), NS_GET_PARENT), EPERM);
}

TEST(ns_fs_parents) {
    if (geteuid()) SKIP("needs root");
    int outer = open_ns("pid"), user = open_ns("user"), up[2], down[2];
    SYS(pipe(up));
    SYS(pipe(down));
    pid_t child = SYS(syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
        (void)!write(up[1], "x", 1);
        char b;
        (void)!read(down[0], &b, 1);
        _exit(0);
    }
    char b, path[64];
    SYS(read(up[0], &b, 1));
    snprintf(path, sizeof path, "/proc/%d/ns/pid", child);
    int inner = SYS(open(path, O_RDONLY));
    CHECK_EQ(number(SYS(ioctl(inner, NS_GET_PARENT))), number(outer));
    CHECK_EQ(ioctl(inner, NS_GET_PID_FROM_PIDNS, 1), child);
    CHECK_EQ(ioctl(inner, NS_GET_TGID_FROM_PIDNS, 1), child);
    CHECK_EQ(ioctl(inner, NS_GET_PID_IN_PIDNS, child), 1);
    CHECK_EQ(ioctl(inner, NS_GET_TGID_IN_PIDNS, child), 1);
    CHECK_ERR(ioctl(inner, NS_GET_PID_FROM_PIDNS, 99), ESRCH);
    CHECK_ERR(ioctl(inner, NS_GET_PID_IN_PIDNS, getpid()), ESRCH);
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int owner = SYS(open(path, O_RDONLY));
    CHECK_EQ(number(SYS(ioctl(owner, NS_GET_PARENT))), number(user));
    CHECK_EQ(number(SYS(ioctl(inner, NS_GET_USERNS))), number(owner));
    SYS(write(down[1], "x", 1));
    wait_for(child);
}

TEST(ns_fs_setns_errors) {
    int uts = open_ns("uts"), user = open_ns("user");
    CHECK_ERR(setns(-1, 0), EBADF);
    CHECK_ERR(setns(SYS(open("/", O_RDONLY)), 0), EINVAL);
    CHECK_ERR(setns(uts, CLONE_NEWIPC), EINVAL);
    CHECK_ERR(setns(user, 0), EINVAL);
    int pidfd = SYS(syscall(SYS_pidfd_open, getpid(), 0));
    CHECK_ERR(setns(pidfd, 0), EINVAL);
    CHECK_ERR(setns(pidfd, 1), EINVAL);
    SYS(setns(pidfd, CLONE_NEWUTS | CLONE_NEWNET));
    become(1000);
    CHECK_ERR(setns(uts, CLONE_NEWUTS), EPERM);
    CHECK_ERR(setns(pidfd, CLONE_NEWUTS), EPERM);
}

TEST(ns_fs_setns_pidfd) {
    int up[2], down[2];
    SYS(pipe(up));
    SYS(pipe(down));
    become(1000);
    pid_t child = SYS(fork());
    if (child == 0) {
        own_namespaces(CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC);
        SYS(sethostname("there", 5));
        (void)!write(up[1], "x", 1);
        char b;
        (void)!read(down[0], &b, 1);
        _exit(0);
    }
    char b, name[65];
    SYS(read(up[0], &b, 1));
    int pidfd = SYS(syscall(SYS_pidfd_open, child, 0));
    pid_t joiner = SYS(fork());
    if (joiner == 0) {
        // The owner of the user namespace enters all at once, or nothing.
        MUST(setns(pidfd, CLONE_NEWUTS) == -1 && errno == EPERM);
        MUST(setns(pidfd, CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) == 0);
        MUST(gethostname(name, sizeof name) == 0 && !strcmp(name, "there"));
        MUST(getuid() == 0 && sethostname("again", 5) == 0);
        _exit(0);
    }
    wait_for(joiner);
    SYS(write(down[1], "x", 1));
    wait_for(child);
}

TEST(ns_fs_pidfd_ioctl) {
    int pidfd = SYS(syscall(SYS_pidfd_open, getpid(), 0));
    int net = ioctl(pidfd, PIDFD_GET_NET_NAMESPACE, 0);
    if (net < 0 && errno == ENOTTY) SKIP("not on this kernel");
    CHECK_EQ(number(net), number(open_ns("net")));
    CHECK_EQ(number(SYS(ioctl(pidfd, PIDFD_GET_PID_NAMESPACE, 0))), number(open_ns("pid")));
    CHECK_ERR(ioctl(pidfd, PIDFD_GET_NET_NAMESPACE, 1), EINVAL);
}

TEST(ns_fs_bind_keeps) {
    if (geteuid()) SKIP("needs root");
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("none", ".", "tmpfs", 0, 0));
    SYS(chdir(t_dir));
    SYS(close(SYS(open("held", O_CREAT | O_RDWR, 0600))));
    pid_t child = SYS(fork());
    if (child == 0) {
        SYS(unshare(CLONE_NEWUTS));
        SYS(sethostname("kept", 4));
        SYS(mount("/proc/self/ns/uts", "held", 0, MS_BIND, 0));
        // A namespace that would hold itself.
        MUST(mount("/proc/self/ns/mnt", "held", 0, MS_BIND, 0) == -1 && errno == EINVAL);
        _exit(0);
    }
    wait_for(child);
    CHECK(strstr(get("/proc/self/mountinfo"), " uts:["));
    CHECK(strstr(get("/proc/self/mountinfo"), " - nsfs nsfs "));
    int fd = SYS(open("held", O_RDONLY));
    CHECK_EQ(ioctl(fd, NS_GET_NSTYPE), CLONE_NEWUTS);
    SYS(setns(fd, CLONE_NEWUTS));
    char name[65];
    SYS(gethostname(name, sizeof name));
    CHECK_STR(name, "kept");
    SYS(close(fd));
    SYS(umount2("held", MNT_DETACH));
}

TEST(ns_fs_apart) {
    if (geteuid()) SKIP("needs root");
    // What is in one IPC namespace is not in another; the network has a loopback interface that is down.
    int id = SYS(syscall(SYS_semget, 0x4e53, 1, 01600));
    SYS(unshare(CLONE_NEWIPC | CLONE_NEWNET));
    CHECK_ERR(syscall(SYS_semget, 0x4e53, 1, 0), ENOENT);
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr addr = {.sa_family = AF_INET};
    memcpy(addr.sa_data, "\0\1\177\0\0\1", 6);
    CHECK_ERR(connect(s, &addr, sizeof addr), ENETUNREACH);
    SYS(setns(syscall(SYS_pidfd_open, getppid(), 0), CLONE_NEWIPC));
    SYS(syscall(SYS_semctl, id, 0, 0 /* IPC_RMID */));
}
