// User namespaces: maps of IDs, capabilities, owners, limits. user_namespaces(7).
#include "ns.h"

#define ALL ((1ULL << 41) - 1)

TEST(ns_user_unmapped) {
    become(1000);
    SYS(unshare(CLONE_NEWUSER));
    CHECK_EQ(getuid(), 65534);
    CHECK_EQ(getgid(), 65534);
    CHECK_EQ(syscall(SYS_geteuid), 65534);
    CHECK_EQ(caps("CapEff:") & ALL, ALL);
    CHECK_EQ(caps("CapInh:"), 0);
    CHECK_STR(get("/proc/self/uid_map"), "");
    CHECK_STR(get("/proc/self/gid_map"), "");
    CHECK_STR(get("/proc/self/setgroups"), "allow\n");
    CHECK_ERR(setuid(0), EINVAL);
    CHECK_ERR(setresgid(0, 0, 0), EINVAL);
    CHECK_ERR(setgroups(0, 0), EPERM);
    // Nobody without a number makes another one.
    CHECK_ERR(unshare(CLONE_NEWUSER), EPERM);
    // Capabilities are of no use outside.
    CHECK_ERR(sethostname("x", 1), EPERM);
    CHECK_ERR(mount("none", "/tmp", "tmpfs", 0, 0), EPERM);
}

TEST(ns_user_maps) {
    become(1000);
    SYS(unshare(CLONE_NEWUSER));
    // What cannot be.
    CHECK_ERR(put("/proc/self/uid_map", "\n"), EINVAL);
    CHECK_ERR(put("/proc/self/uid_map", "0 1000"), EINVAL);
    CHECK_ERR(put("/proc/self/uid_map", "0 1000 0"), EINVAL);
    CHECK_ERR(put("/proc/self/uid_map", "x 1000 1"), EINVAL);
    CHECK_ERR(put("/proc/self/uid_map", "0 1000 1 x"), EINVAL);
    CHECK_ERR(put("/proc/self/uid_map", "0 1000 1\n0 1001 1\n"), EINVAL);
    CHECK_ERR(put("/proc/self/uid_map", "0 4294967295 1"), EINVAL);
    // What may not be.
    CHECK_ERR(put("/proc/self/uid_map", "0 0 1"), EPERM);
    CHECK_ERR(put("/proc/self/uid_map", "0 1001 1"), EPERM);
    CHECK_ERR(put("/proc/self/uid_map", "0 1000 2"), EPERM);
    CHECK_ERR(put("/proc/self/gid_map", "0 1000 1"), EPERM);
    SYS(put("/proc/self/uid_map", "7 1000 1"));
    CHECK_EQ(getuid(), 7);
    CHECK_EQ(syscall(SYS_getuid), 7);
    CHECK_ERR(put("/proc/self/uid_map", "7 1000 1"), EPERM);
    CHECK_STR(get("/proc/self/uid_map"), "         7       1000          1\n");
    CHECK_ERR(put("/proc/self/setgroups", "den"), EINVAL);
    SYS(put("/proc/self/setgroups", "deny"));
    CHECK_STR(get("/proc/self/setgroups"), "deny\n");
    CHECK_ERR(put("/proc/self/setgroups", "allow"), EPERM);
    SYS(put("/proc/self/gid_map", "0 1000 1"));
    CHECK_ERR(put("/proc/self/setgroups", "deny"), EPERM);
    CHECK_EQ(getgid(), 0);
    CHECK_ERR(setgroups(0, 0), EPERM);
    CHECK_ERR(setuid(0), EINVAL);
    SYS(setuid(7));
    gid_t group = 5;
    CHECK_ERR(setgroups(1, &group), EPERM);
}

TEST(ns_user_files) {
    become(1000);
    chdir("/tmp");
    char dir[] = "/tmp/ns_user.XXXXXX";
    SYS((long)mkdtemp(dir));
    SYS(chdir(dir));
    SYS(unshare(CLONE_NEWUSER));
    SYS(put("/proc/self/setgroups", "deny"));
    SYS(put("/proc/self/uid_map", "0 1000 1"));
    SYS(put("/proc/self/gid_map", "0 1000 1"));
    struct stat st;
    SYS(close(SYS(open("f", O_CREAT | O_RDWR, 0644))));
    SYS(stat("f", &st));
    CHECK_EQ(st.st_uid, 0);
    CHECK_EQ(st.st_gid, 0);
    struct statx x;
    SYS(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x));
    CHECK_EQ(x.stx_uid, 0);
    SYS(stat("/proc/1/root/..", &st) * 0 + stat("/", &st));
    CHECK_EQ(st.st_uid, 65534);
    // Root inside has no power over what it has no numbers for.
    CHECK_ERR(chown("f", 1, 0), EINVAL);
    CHECK_ERR(chown("f", 0, 1), EINVAL);
    SYS(chown("f", 0, 0));
    CHECK_ERR(chown("/", 0, 0), EPERM);
    CHECK_ERR(chmod("/", 0700), EPERM);
    CHECK_ERR(open("/etc/shadow", O_RDONLY), EACCES);
    CHECK_ERR(mknod("dev", S_IFCHR | 0600, makedev(1, 3)), EPERM);
    SYS(unlink("f"));
    SYS(chdir("/tmp"));
    SYS(rmdir(dir));
}

TEST(ns_user_nested) {
    become(1000);
    int levels = 0;
    while (levels < 40 && unshare(CLONE_NEWUSER) == 0) {
        SYS(put("/proc/self/setgroups", "deny"));
        char map[64];
        snprintf(map, sizeof map, "%d %d 1", levels % 2 ? 0 : 5, levels == 0 ? 1000 : levels % 2 ? 5 : 0);
        SYS(put("/proc/self/uid_map", map));
        snprintf(map, sizeof map, "0 %d 1", levels == 0 ? 1000 : 0);
        SYS(put("/proc/self/gid_map", map));
        levels++;
    }
    CHECK_EQ(errno, ENOSPC);
    CHECK(levels >= 30 && levels <= 33);
}

TEST(ns_user_owner_rules) {
    become(1000);
    int to[2], from[2];
    SYS(pipe(to));
    SYS(pipe(from));
    pid_t child = SYS(fork());
    if (child == 0) {
        if (unshare(CLONE_NEWUSER)) _exit(1);
        (void)!write(from[1], "x", 1);
        char b;
        (void)!read(to[0], &b, 1);
        _exit(getuid() == 0 && getgid() == 0 ? 0 : 2);
    }
    char b, path[64];
    SYS(read(from[0], &b, 1));
    // The owner may write the map of the child's namespace from outside, for itself only.
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    CHECK_ERR(put(path, "0 1001 1"), EPERM);
    SYS(put(path, "0 1000 1"));
    snprintf(path, sizeof path, "/proc/%d/setgroups", child);
    SYS(put(path, "deny"));
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    SYS(put(path, "0 1000 1"));
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    CHECK_STR(get(path), "         0       1000          1\n");
    SYS(write(to[1], "x", 1));
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_EQ(status, 0);
}

TEST(ns_user_root_maps_many) {
    if (geteuid()) SKIP("needs root");
    int to[2], from[2];
    SYS(pipe(to));
    SYS(pipe(from));
    pid_t child = SYS(fork());
    if (child == 0) {
        if (unshare(CLONE_NEWUSER)) _exit(1);
        (void)!write(from[1], "x", 1);
        char b;
        (void)!read(to[0], &b, 1);
        gid_t groups[2] = {3, 4};
        if (setgroups(2, groups) || setresgid(5, 5, 5) || setresuid(6, 6, 6)) _exit(2);
        if (getuid() != 6 || getegid() != 5 || getgroups(2, groups) != 2 || groups[1] != 4) _exit(3);
        // User 0 outside, where it comes from, was not the root inside: it has kept its capabilities.
        _exit(setresuid(0, 0, 0) == 0 && getuid() == 0 && setresuid(1010, 0, 0) == -1 && errno == EINVAL ? 0 : 4);
    }
    char b, path[64];
    SYS(read(from[0], &b, 1));
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    SYS(put(path, "0 100000 65536"));
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    SYS(put(path, "0 100000 1000\n1000 200000 10\n"));
    CHECK_STR(get(path), "         0     100000       1000\n      1000     200000         10\n");
    SYS(write(to[1], "x", 1));
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_EQ(status, 0);
}

TEST(ns_user_credentials_travel) {
    if (geteuid()) SKIP("needs root");
    int s[2], one = 1;
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    SYS(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
    pid_t child = SYS(fork());
    if (child == 0) {
        become(1000);
        if (unshare(CLONE_NEWUSER) || put("/proc/self/uid_map", "0 1000 1")) _exit(1);
        struct ucred peer;
        socklen_t len = sizeof peer;
        if (getsockopt(s[1], SOL_SOCKET, SO_PEERCRED, &peer, &len)) _exit(2);
        if (peer.uid != 65534) _exit(3);
        _exit(send(s[1], "x", 1, 0) == 1 ? 0 : 4);
    }
    char data[8], control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec v = {data, sizeof data};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    SYS(recvmsg(s[0], &m, 0));
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    CHECK(h && h->cmsg_type == SCM_CREDENTIALS);
    struct ucred u;
    memcpy(&u, CMSG_DATA(h), sizeof u);
    CHECK_EQ(u.uid, 1000);
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_EQ(status, 0);
}

TEST(ns_user_wants) {
    become(1000);
    // Threads and shared file system contexts stand in the way.
    CHECK_ERR(syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, 0, 0, 0, 0), EINVAL);
    CHECK_ERR(unshare(CLONE_NEWUSER | 1), EINVAL);
    for (int i = 0; i < 5; i++) {
        static const int kinds[] = {CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET};
        CHECK_ERR(unshare(kinds[i]), EPERM);
        CHECK_ERR(syscall(SYS_clone, kinds[i] | SIGCHLD, 0, 0, 0, 0), EPERM);
    }
    SYS(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP));
    SYS(sethostname("inner", 5));
    char name[65];
    SYS(gethostname(name, sizeof name));
    CHECK_STR(name, "inner");
}

TEST(ns_user_chroot) {
    if (geteuid()) SKIP("needs root");
    SYS(mkdir("root", 0755));
    SYS(chroot("root"));
    CHECK_ERR(unshare(CLONE_NEWUSER), EPERM);
}

TEST(ns_user_limits) {
    become(1000);
    SYS(unshare(CLONE_NEWUSER | CLONE_NEWNS));
    SYS(put("/proc/self/uid_map", "0 1000 1"));
    SYS(put("/proc/self/setgroups", "deny"));
    SYS(put("/proc/self/gid_map", "0 1000 1"));
    SYS(put("/proc/sys/user/max_uts_namespaces", "1"));
    CHECK_STR(get("/proc/sys/user/max_uts_namespaces"), "1\n");
    pid_t child = SYS(fork());
    if (child == 0) {
        if (unshare(CLONE_NEWUTS)) _exit(1);
        _exit(unshare(CLONE_NEWUTS) == -1 && errno == ENOSPC ? 0 : 2);
    }
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK(status == 0 || WEXITSTATUS(status) == 2);
    SYS(put("/proc/sys/user/max_user_namespaces", "0"));
    CHECK_ERR(unshare(CLONE_NEWUSER), ENOSPC);
}
