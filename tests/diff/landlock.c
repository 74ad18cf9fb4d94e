// Landlock: rulesets, rules, domains; files, ports, scopes.
#include "t.h"
#include <arpa/inet.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "mount_fd.h"
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>

// Of linux/landlock.h, which is older in places.
enum {
    LANDLOCK_ACCESS_FS_EXECUTE = 1 << 0,
    LANDLOCK_ACCESS_FS_WRITE_FILE = 1 << 1,
    LANDLOCK_ACCESS_FS_READ_FILE = 1 << 2,
    LANDLOCK_ACCESS_FS_READ_DIR = 1 << 3,
    LANDLOCK_ACCESS_FS_REMOVE_DIR = 1 << 4,
    LANDLOCK_ACCESS_FS_REMOVE_FILE = 1 << 5,
    LANDLOCK_ACCESS_FS_MAKE_CHAR = 1 << 6,
    LANDLOCK_ACCESS_FS_MAKE_DIR = 1 << 7,
    LANDLOCK_ACCESS_FS_MAKE_REG = 1 << 8,
    LANDLOCK_ACCESS_FS_MAKE_SOCK = 1 << 9,
    LANDLOCK_ACCESS_FS_MAKE_FIFO = 1 << 10,
    LANDLOCK_ACCESS_FS_MAKE_BLOCK = 1 << 11,
    LANDLOCK_ACCESS_FS_MAKE_SYM = 1 << 12,
    LANDLOCK_ACCESS_FS_REFER = 1 << 13,
    LANDLOCK_ACCESS_FS_TRUNCATE = 1 << 14,
    LANDLOCK_ACCESS_FS_IOCTL_DEV = 1 << 15,
    LANDLOCK_ACCESS_NET_BIND_TCP = 1,
    LANDLOCK_ACCESS_NET_CONNECT_TCP = 2,
    LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1,
    LANDLOCK_SCOPE_SIGNAL = 2,
    LANDLOCK_RULE_PATH_BENEATH = 1,
    LANDLOCK_RULE_NET_PORT = 2,
};
struct landlock_path_beneath_attr { unsigned long long allowed_access; int parent_fd; } __attribute__((packed));
struct landlock_net_port_attr { unsigned long long allowed_access, port; };

struct attr { unsigned long long fs, net, scoped; };
static int create(unsigned long long fs, unsigned long long net, unsigned long long scoped) {
    struct attr a = {fs, net, scoped};
    return syscall(444, &a, sizeof a, 0);
}
static int allow(int fd, const char *path, unsigned long long rights) {
    struct landlock_path_beneath_attr a = {rights, open(path, O_PATH | O_CLOEXEC)};
    int r = syscall(445, fd, LANDLOCK_RULE_PATH_BENEATH, &a, 0);
    int e = errno;
    close(a.parent_fd);
    errno = e;
    return r;
}
static void enforce(int fd) {
    SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    SYS(syscall(446, fd, 0));
    close(fd);
}
#define R LANDLOCK_ACCESS_FS_READ_FILE
#define RD LANDLOCK_ACCESS_FS_READ_DIR
#define W LANDLOCK_ACCESS_FS_WRITE_FILE
#define ALLFS 0xffffull

TEST(create_errors) {
    struct attr a = {R, 0, 0};
    char big[5000] = {R};
    CHECK(syscall(444, 0, 0, 1) >= 7);
    CHECK_ERR(syscall(444, 0, 8, 1), EINVAL);
    CHECK_ERR(syscall(444, &a, sizeof a, 1), EINVAL);
    CHECK_ERR(syscall(444, &a, sizeof a, 64), EINVAL);
    CHECK_ERR(syscall(444, &a, 7, 0), EINVAL);
    CHECK_ERR(syscall(444, BAD_PTR, sizeof a, 0), EFAULT);
    CHECK_ERR(syscall(444, big, 5000, 0), E2BIG);
    int fd = SYS(syscall(444, big, 4000, 0));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    big[100] = 1;
    CHECK_ERR(syscall(444, big, 4000, 0), E2BIG);
    CHECK(syscall(444, &a, 8, 0) >= 0);
    CHECK_ERR(create(0, 0, 0), ENOMSG);
    CHECK_ERR(create(1ull << 40, 0, 0), EINVAL);
    CHECK_ERR(create(0, 1 << 10, 0), EINVAL);
    CHECK_ERR(create(0, 0, 1 << 10), EINVAL);
}
TEST(rule_errors) {
    int fd = SYS(create(R | W, LANDLOCK_ACCESS_NET_BIND_TCP, 0)), other = SYS(open("/dev/null", O_RDONLY));
    struct landlock_path_beneath_attr p = {R, other};
    struct landlock_net_port_attr n = {LANDLOCK_ACCESS_NET_BIND_TCP, 70000};
    t_make("f", "");
    CHECK_ERR(syscall(445, fd, LANDLOCK_RULE_PATH_BENEATH, &p, 1), EINVAL);
    CHECK_ERR(syscall(445, -1, LANDLOCK_RULE_PATH_BENEATH, &p, 0), EBADF);
    CHECK_ERR(syscall(445, other, LANDLOCK_RULE_PATH_BENEATH, &p, 0), EBADFD);
    CHECK_ERR(syscall(445, fd, 99, &p, 0), EINVAL);
    CHECK_ERR(syscall(445, fd, LANDLOCK_RULE_PATH_BENEATH, BAD_PTR, 0), EFAULT);
    CHECK_ERR(allow(fd, ".", 0), ENOMSG);
    CHECK_ERR(allow(fd, ".", RD), EINVAL);
    CHECK_ERR(allow(fd, "missing", R), EBADF);
    OK(allow(fd, "f", R | W));
    OK(allow(fd, ".", R));
    p.parent_fd = fd;
    CHECK_ERR(syscall(445, fd, LANDLOCK_RULE_PATH_BENEATH, &p, 0), EBADFD);
    CHECK_ERR(syscall(445, fd, LANDLOCK_RULE_NET_PORT, &n, 0), EINVAL);
    n = (struct landlock_net_port_attr){0, 80};
    CHECK_ERR(syscall(445, fd, LANDLOCK_RULE_NET_PORT, &n, 0), ENOMSG);
    n.allowed_access = LANDLOCK_ACCESS_NET_CONNECT_TCP;
    CHECK_ERR(syscall(445, fd, LANDLOCK_RULE_NET_PORT, &n, 0), EINVAL);
    int d = SYS(create(ALLFS, 0, 0));
    CHECK_ERR(allow(d, "f", RD), EINVAL);
    CHECK_ERR(allow(d, "f", LANDLOCK_ACCESS_FS_MAKE_REG), EINVAL);
}
TEST(restrict_errors) {
    int fd = SYS(create(R, 0, 0));
    CHECK_CHILD({
        if (!getuid()) {
            OK(setresuid(1234, 1234, 1234));
            CHECK_ERR(syscall(446, fd, 0), EPERM);
        }
        SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        CHECK_ERR(syscall(446, fd, 1 << 20), EINVAL);
        CHECK_ERR(syscall(446, -1, 0), EBADF);
        CHECK_ERR(syscall(446, 0, 0), EBADFD);
        for (int i = 0; i < 16; i++) OK(syscall(446, fd, 0));
        CHECK_ERR(syscall(446, fd, 0), E2BIG);
    });
}
TEST(reading_and_writing) {
    SYS(mkdir("in", 0755));
    SYS(mkdir("out", 0755));
    t_make("in/f", "text");
    t_make("out/f", "text");
    int early = SYS(open("out/f", O_RDWR));
    int fd = SYS(create(R | W | RD, 0, 0));
    OK(allow(fd, "in", R | RD));
    enforce(fd);
    char b[10];
    CHECK(open("in/f", O_RDONLY) >= 0);
    CHECK_ERR(open("in/f", O_WRONLY), EACCES);
    CHECK_ERR(open("out/f", O_RDONLY), EACCES);
    CHECK_ERR(open("out", O_RDONLY | O_DIRECTORY), EACCES);
    CHECK(open("in", O_RDONLY | O_DIRECTORY) >= 0);
    CHECK(open("out/f", O_PATH) >= 0);
    CHECK_ERR(open("/etc/passwd", O_RDONLY), EACCES);
    CHECK_EQ(read(early, b, 4), 4); // opened before
    struct stat st;
    OK(stat("out/f", &st));
    OK(chmod("out/f", 0600));
    CHECK_CHILD(CHECK_ERR(open("out/f", O_RDONLY), EACCES));
    CHECK_ERR(open("out/new", O_WRONLY | O_CREAT, 0644), EACCES);
    OK(mkdir("out/made", 0755)); // not handled
}
TEST(making_and_removing) {
    SYS(mkdir("d", 0755));
    SYS(mkdir("e", 0755));
    SYS(mkdir("e/sub", 0755));
    t_make("d/f", "");
    t_make("e/f", "");
    unsigned long long make = LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR;
    int fd = SYS(create(make | LANDLOCK_ACCESS_FS_MAKE_SOCK, 0, 0));
    OK(allow(fd, "d", make));
    enforce(fd);
    OK(mkdir("d/x", 0755));
    OK(rmdir("d/x"));
    OK(symlink("f", "d/s"));
    OK(mkfifo("d/p", 0644));
    OK(unlink("d/p"));
    OK(rename("d/f", "d/g"));
    OK(link("d/g", "d/h"));
    CHECK(open("d/new", O_CREAT | O_WRONLY, 0644) >= 0);
    CHECK_ERR(mkdir("e/x", 0755), EACCES);
    CHECK_ERR(rmdir("e/sub"), EACCES);
    CHECK_ERR(symlink("f", "e/s"), EACCES);
    CHECK_ERR(mkfifo("e/p", 0644), EACCES);
    CHECK_ERR(unlink("e/f"), EACCES);
    CHECK_ERR(rename("e/f", "e/g"), EACCES);
    CHECK_ERR(link("e/f", "e/h"), EACCES);
    CHECK_ERR(open("e/new", O_CREAT | O_WRONLY, 0644), EACCES);
    CHECK(open("e/f", O_CREAT | O_WRONLY, 0644) >= 0);
    // Without the right to refer nothing changes its directory.
    SYS(mkdir("d/in", 0755));
    CHECK_ERR(rename("d/g", "d/in/g"), EXDEV);
    CHECK_ERR(link("d/g", "d/in/g"), EXDEV);
    CHECK_ERR(rename("d/g", "e/g"), EACCES);
}
TEST(referring) {
    unsigned long long all = R | W | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REFER;
    SYS(mkdir("a", 0755));
    SYS(mkdir("b", 0755));
    SYS(mkdir("c", 0755));
    t_make("a/f", "");
    t_make("a/g", "");
    t_make("b/h", "");
    int fd = SYS(create(all, 0, 0));
    OK(allow(fd, "a", all));
    OK(allow(fd, "b", all & ~R));
    OK(allow(fd, "c", all & ~LANDLOCK_ACCESS_FS_REFER));
    enforce(fd);
    OK(rename("a/f", "b/f"));
    CHECK_ERR(rename("b/f", "a/f"), EXDEV); // it could be read there
    CHECK_ERR(rename("a/g", "c/g"), EXDEV);
    CHECK_ERR(link("b/h", "a/h"), EXDEV);
    OK(link("a/g", "b/g"));
    CHECK_ERR(syscall(SYS_renameat2, AT_FDCWD, "a/g", AT_FDCWD, "b/h", RENAME_EXCHANGE), EXDEV);
    OK(rename("a/g", "a/k"));
}
TEST(truncating) {
    SYS(mkdir("d", 0755));
    SYS(mkdir("e", 0755));
    t_make("d/f", "text");
    t_make("e/f", "text");
    int early = SYS(open("e/f", O_WRONLY)), fd = SYS(create(LANDLOCK_ACCESS_FS_TRUNCATE, 0, 0));
    OK(allow(fd, "d", LANDLOCK_ACCESS_FS_TRUNCATE));
    enforce(fd);
    OK(truncate("d/f", 2));
    CHECK_ERR(truncate("e/f", 2), EACCES);
    CHECK_ERR(open("e/f", O_WRONLY | O_TRUNC), EACCES);
    int late = SYS(open("e/f", O_WRONLY));
    CHECK_ERR(ftruncate(late, 1), EACCES);
    OK(ftruncate(early, 1));
    int good = SYS(open("d/f", O_WRONLY));
    OK(ftruncate(good, 1));
}
TEST(executing) {
    int fd = SYS(create(LANDLOCK_ACCESS_FS_EXECUTE, 0, 0));
    enforce(fd);
    CHECK_ERR(execl("/bin/true", "true", (char *)0), EACCES);
    CHECK(open("/bin/true", O_RDONLY) >= 0);
}
TEST(device_requests) {
    int early = SYS(open("/dev/zero", O_RDONLY)), fd = SYS(create(LANDLOCK_ACCESS_FS_IOCTL_DEV, 0, 0)), on = 0;
    enforce(fd);
    int late = SYS(open("/dev/zero", O_RDONLY));
    CHECK_ERR(ioctl(early, 0x1234, 0), ENOTTY);
    CHECK_ERR(ioctl(late, 0x1234, 0), EACCES);
    OK(ioctl(late, FIONBIO, &on));
    OK(ioctl(late, FIOCLEX, 0));
    int f = t_file("f", "");
    CHECK_ERR(ioctl(f, 0x1234, 0), ENOTTY);
}
TEST(ports) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(l, (void *)&a, sizeof a));
    OK(listen(l, 5));
    OK(getsockname(l, (void *)&a, &n));
    int fd = SYS(create(0, LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP, 0));
    struct landlock_net_port_attr r = {LANDLOCK_ACCESS_NET_CONNECT_TCP, ntohs(a.sin_port)};
    OK(syscall(445, fd, LANDLOCK_RULE_NET_PORT, &r, 0));
    enforce(fd);
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0)), u = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(connect(s, (void *)&a, sizeof a));
    int s2 = SYS(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in b = a;
    b.sin_port = htons(ntohs(a.sin_port) == 9 ? 10 : 9);
    CHECK_ERR(connect(s2, (void *)&b, sizeof b), EACCES);
    b.sin_port = 0;
    CHECK_ERR(bind(s2, (void *)&b, sizeof b), EACCES);
    OK(bind(u, (void *)&b, sizeof b));
}
static int abstract_socket(const char *name, bool client) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    strcpy(a.sun_path + 1, name);
    socklen_t n = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    if (client) return connect(s, (void *)&a, n);
    OK(bind(s, (void *)&a, n));
    OK(listen(s, 5));
    return s;
}
TEST(scopes) {
    char out[40], in[40];
    sprintf(out, "landlock-out-%d", getpid());
    sprintf(in, "landlock-in-%d", getpid());
    abstract_socket(out, false);
    pid_t parent = getpid();
    CHECK_CHILD({
        enforce(create(0, 0, LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL));
        CHECK_ERR(abstract_socket(out, true), EPERM);
        abstract_socket(in, false);
        OK(abstract_socket(in, true));
        CHECK_ERR(kill(parent, 0), EPERM);
        OK(kill(getpid(), 0));
        pid_t p = FORK();
        if (p == 0) {
            pause();
            _exit(0);
        }
        OK(kill(p, SIGTERM));
        CHECK_STATUS(t_status(p), "signal 15");
    });
}
// mount_setattr(2), open_tree(2), fsopen(2) and fsmount(2) are not restricted.
TEST(mounts_by_descriptors) {
    if (getuid()) SKIP("root only");
    SYS(unshare(CLONE_NEWNS));
    OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mkdir("a", 0755));
    SYS(mkdir("b", 0755));
    OK(mount("none", "a", "tmpfs", 0, 0));
    CHECK_CHILD({
        enforce(create(R, 0, 0));
        int fs = SYS(fspick(AT_FDCWD, "a", 0));
        OK(fsconfig(fs, SET_FLAG, "ro", 0, 0));
        CHECK_ERR(fsconfig(fs, RECONFIGURE, 0, 0, 0), EPERM);
        CHECK_ERR(fsconfig(fs, RECONFIGURE, 0, 0, 0), EBUSY);
        OK(mkdir("a/d", 0755));
        fs = SYS(fsopen("tmpfs", 0));
        OK(fsconfig(fs, CREATE, 0, 0, 0));
        int m = SYS(fsmount(fs, 0, 0));
        CHECK_ERR(move_mount(m, "", AT_FDCWD, "b", F_EMPTY), EPERM);
        CHECK_ERR(move_mount(m, "", AT_FDCWD, "missing", F_EMPTY), ENOENT);
        CHECK_ERR(move_mount(m, "", AT_FDCWD, "b", 0x400), EINVAL);
        CHECK_ERR(move_mount(AT_FDCWD, "a", AT_FDCWD, "b", SET_GROUP), EPERM);
        struct mnt_attr s = {.set = 1};
        OK(mount_setattr(AT_FDCWD, "a", 0, &s, sizeof s));
    });
}
TEST(mounts_and_tracing) {
    if (getuid()) SKIP("root only");
    pid_t outside = FORK();
    if (outside == 0) {
        pause();
        _exit(0);
    }
    SYS(mkdir("m", 0755));
    CHECK_CHILD({
        enforce(create(R, 0, 0));
        CHECK_ERR(mount("none", "m", "tmpfs", 0, 0), EPERM);
        CHECK_ERR(umount("/"), EPERM);
        // Not before the places are known.
        CHECK_ERR(mount("none", "missing", "tmpfs", 0, 0), ENOENT);
        CHECK_ERR(umount("missing"), ENOENT);
        CHECK_ERR(umount("m"), EINVAL);
        CHECK_ERR(syscall(SYS_pivot_root, "missing", "m"), ENOENT);
        CHECK_ERR(syscall(SYS_pivot_root, "m", "m"), EPERM);
        CHECK_ERR(ptrace(PTRACE_ATTACH, outside, 0, 0), EPERM);
    });
    kill(outside, SIGKILL);
    t_status(outside);
}

// Which of Linux's mistakes are mended: those of sockets, of signals within a process, and of directories that were moved.
TEST(errata) {
    CHECK_EQ(syscall(SYS_landlock_create_ruleset, 0, 0, 2), 7);
    CHECK_ERR(syscall(SYS_landlock_create_ruleset, 0, 8, 2), EINVAL);
    CHECK_ERR(syscall(SYS_landlock_create_ruleset, 0, 0, 3), EINVAL);
}
