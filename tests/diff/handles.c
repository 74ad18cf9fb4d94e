// File handles: name_to_handle_at(2), open_by_handle_at(2).
#include "t.h"
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <linux/capability.h>

#define UNIQUE 0x001
#define CONNECTABLE 0x002
#define FID 0x200
#define ROOM 128

struct handle {
    unsigned bytes;
    int type;
    unsigned char data[ROOM];
};

static int encode(int dir, const char *path, struct handle *h, int *mount, int flags) {
    h->bytes = ROOM;
    return syscall(SYS_name_to_handle_at, dir, path, h, mount, flags);
}

static int decode(int mount, struct handle *h, int flags) {
    return syscall(SYS_open_by_handle_at, mount, h, flags);
}

// The kinds of directories on which handles are made: the test's own, and a tmpfs.
static void on_tmpfs(void) {
    SYS(unshare(CLONE_NEWNS));
    SYS(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mkdir("t", 0755));
    SYS(mount("none", "t", "tmpfs", 0, 0));
    SYS(chdir("t"));
}

static void make(const char *name, const char *text) {
    int fd = SYS(open(name, O_CREAT | O_WRONLY | O_EXCL, 0600));
    CHECK_EQ(write(fd, text, strlen(text)), (long long)strlen(text));
    SYS(close(fd));
}

static void check_text(int fd, const char *text) {
    char buf[64] = "";
    CHECK_EQ(read(fd, buf, sizeof buf - 1), (long long)strlen(text));
    CHECK_STR(buf, text);
}

static void drop(int cap) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    SYS(syscall(SYS_capget, &header, data));
    data[cap / 32].effective &= ~(1u << cap % 32);
    SYS(syscall(SYS_capset, &header, data));
}

static void round_trips(void) {
    struct handle f = {0}, d = {0}, l = {0}, p = {0}, again = {0};
    int mount = -1, other = -1;
    SYS(mkdir("d", 0755));
    make("d/f", "text");
    SYS(symlink("f", "d/l"));
    SYS(mkfifo("d/p", 0600));
    SYS(encode(AT_FDCWD, "d/f", &f, &mount, 0));
    SYS(encode(AT_FDCWD, "d", &d, &other, 0));
    CHECK_EQ(mount, other);
    CHECK(f.bytes > 0 && f.bytes <= ROOM && f.type > 0);
    SYS(encode(AT_FDCWD, "d/l", &l, &mount, 0));
    SYS(encode(AT_FDCWD, "d/p", &p, &mount, 0));
    CHECK(memcmp(f.data, l.data, f.bytes) != 0);
    // Followed, the link is the file.
    SYS(encode(AT_FDCWD, "d/l", &again, &mount, AT_SYMLINK_FOLLOW));
    CHECK_EQ(again.bytes, f.bytes);
    CHECK_MEM(again.data, f.data, f.bytes);
    // An open file, by an empty path.
    int fd = SYS(open("d/f", O_PATH));
    SYS(encode(fd, "", &again, &mount, AT_EMPTY_PATH));
    CHECK_MEM(again.data, f.data, f.bytes);
    CHECK_ERR(encode(fd, "", &again, &mount, 0), ENOENT);
    SYS(close(fd));

    int here = SYS(open(".", O_RDONLY | O_DIRECTORY));
    fd = SYS(decode(here, &f, O_RDWR));
    check_text(fd, "text");
    struct stat a, b;
    SYS(fstat(fd, &a));
    SYS(stat("d/f", &b));
    CHECK_EQ(a.st_ino, b.st_ino);
    CHECK_EQ(a.st_dev, b.st_dev);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
    SYS(close(fd));
    // Any file of the file system says which it is, and AT_FDCWD as well.
    int in = SYS(open("d/f", O_RDONLY));
    fd = SYS(decode(in, &f, O_RDONLY | O_CLOEXEC));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    SYS(close(fd));
    fd = SYS(decode(AT_FDCWD, &f, O_RDONLY));
    SYS(close(fd));
    int place = SYS(open(".", O_PATH));
    CHECK_ERR(decode(place, &f, O_RDONLY), EBADF);
    fd = SYS(decode(here, &f, O_WRONLY | O_TRUNC));
    SYS(close(fd));
    SYS(stat("d/f", &b));
    CHECK_EQ(b.st_size, 0);

    fd = SYS(decode(here, &d, O_RDONLY | O_DIRECTORY));
    SYS(faccessat(fd, "f", F_OK, 0));
    SYS(fchdir(fd));
    char was[PATH_MAX], want[PATH_MAX];
    CHECK(getcwd(was, sizeof was) != 0);
    SYS(chdir(".."));
    CHECK(getcwd(want, sizeof want) != 0);
    strcat(want, "/d");
    CHECK_STR(was, want);
    SYS(close(fd));
    CHECK_ERR(decode(here, &d, O_RDWR), EISDIR);
    CHECK_ERR(decode(here, &f, O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK_ERR(decode(here, &l, O_RDONLY), ELOOP);
    fd = SYS(decode(here, &l, O_PATH | O_NOFOLLOW));
    char text[8] = "";
    CHECK_EQ(readlinkat(fd, "", text, sizeof text), 1);
    SYS(close(fd));
    fd = SYS(decode(here, &p, O_RDONLY | O_NONBLOCK));
    SYS(close(fd));
}

static void follows_the_object(void) {
    struct handle f = {0}, d = {0}, gone = {0};
    int mount;
    SYS(mkdir("a", 0755));
    SYS(mkdir("b", 0755));
    make("a/f", "one");
    make("a/g", "two");
    SYS(encode(AT_FDCWD, "a/f", &f, &mount, 0));
    SYS(encode(AT_FDCWD, "a", &d, &mount, 0));
    SYS(encode(AT_FDCWD, "a/g", &gone, &mount, 0));
    int here = SYS(open(".", O_RDONLY | O_DIRECTORY));
    SYS(rename("a/f", "b/h"));
    int fd = SYS(decode(here, &f, O_RDONLY));
    check_text(fd, "one");
    SYS(close(fd));
    SYS(rename("a", "b/c"));
    fd = SYS(decode(here, &d, O_RDONLY | O_DIRECTORY));
    SYS(faccessat(fd, "g", F_OK, 0));
    SYS(close(fd));
    // Another file of the same name is another file.
    SYS(unlink("b/c/g"));
    make("b/c/g", "new");
    CHECK_ERR(decode(here, &gone, O_RDONLY), ESTALE);
    SYS(unlink("b/c/g"));
    SYS(rmdir("b/c"));
    CHECK_ERR(decode(here, &d, O_RDONLY), ESTALE);
    SYS(unlink("b/h"));
    CHECK_ERR(decode(here, &f, O_RDONLY), ESTALE);
}

TEST(handles_round_trip) { round_trips(); }
TEST(handles_tmpfs_round_trip) {
    on_tmpfs();
    round_trips();
}
TEST(handles_follow_object) { follows_the_object(); }
TEST(handles_tmpfs_follow_object) {
    on_tmpfs();
    follows_the_object();
}

// One of two names goes, the one that the handle was asked for by.
TEST(handles_hard_link) {
    on_tmpfs();
    struct handle h = {0};
    int id;
    make("one", "text");
    SYS(link("one", "two"));
    SYS(encode(AT_FDCWD, "one", &h, &id, 0));
    SYS(unlink("one"));
    int fd = SYS(decode(AT_FDCWD, &h, O_RDONLY));
    check_text(fd, "text");
    SYS(close(fd));
    SYS(unlink("two"));
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), ESTALE);
}

// What is open still is found without its name.
TEST(handles_unlinked) {
    on_tmpfs();
    struct handle h = {0};
    int id;
    make("f", "text");
    SYS(encode(AT_FDCWD, "f", &h, &id, 0));
    int held = SYS(open("f", O_RDONLY));
    SYS(unlink("f"));
    int fd = SYS(decode(AT_FDCWD, &h, O_RDONLY));
    check_text(fd, "text");
    SYS(close(fd));
    SYS(close(held));
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), ESTALE);
}

// A file without a name in a directory that a handle leads to.
TEST(handles_unnamed) {
    on_tmpfs();
    struct handle dir = {0};
    int id;
    SYS(encode(AT_FDCWD, ".", &dir, &id, 0));
    int fd = SYS(decode(AT_FDCWD, &dir, O_RDWR | O_TMPFILE));
    CHECK_EQ(write(fd, "x", 1), 1);
    SYS(close(fd));
}

// Handles of files that come and go leave that of one that stays alone.
TEST(handles_many) {
    on_tmpfs();
    struct handle h = {0}, other = {0};
    int id;
    make("first", "text");
    SYS(encode(AT_FDCWD, "first", &h, &id, 0));
    for (int i = 0; i < 2000; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        make(name, "");
        SYS(encode(AT_FDCWD, name, &other, &id, 0));
        SYS(unlink(name));
        CHECK_ERR(decode(AT_FDCWD, &other, O_RDONLY), ESTALE);
    }
    int fd = SYS(decode(AT_FDCWD, &h, O_RDONLY));
    check_text(fd, "text");
    SYS(close(fd));
}

TEST(handles_encode_errors) {
    struct handle h = {0};
    int mount = 7;
    make("f", "");
    CHECK_ERR(encode(AT_FDCWD, "f", &h, &mount, 0x40000), EINVAL);
    CHECK_ERR(encode(AT_FDCWD, "f", &h, &mount, AT_SYMLINK_NOFOLLOW), EINVAL);
    CHECK_ERR(encode(AT_FDCWD, "none", &h, &mount, 0), ENOENT);
    CHECK_ERR(encode(AT_FDCWD, "f/x", &h, &mount, 0), ENOTDIR);
    CHECK_ERR(encode(AT_FDCWD, BAD_PTR, &h, &mount, 0), EFAULT);
    CHECK_ERR(encode(AT_FDCWD, "", &h, &mount, 0), ENOENT);
    CHECK_ERR(encode(99, "f", &h, &mount, 0), EBADF);
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", BAD_PTR, &mount, 0), EFAULT);
    h.bytes = ROOM + 1;
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", &h, &mount, 0), EINVAL);
    CHECK_ERR(encode(AT_FDCWD, "f", &h, (int *)BAD_PTR, 0), EFAULT);
    CHECK_EQ(mount, 7);
    // Too small: how large it must be, and which mount.
    struct handle small = {.type = 12345};
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", &small, &mount, 0), EOVERFLOW);
    CHECK(small.bytes > 0 && small.bytes <= ROOM);
    CHECK_EQ(small.type, 0xff);
    CHECK(mount != 7);
    CHECK_EQ(small.data[0], 0);
    SYS(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", &small, &mount, 0));
    small.bytes--;
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "f", &small, &mount, 0), EOVERFLOW);
}

TEST(handles_decode_errors) {
    struct handle h = {0}, bad;
    int mount;
    make("f", "");
    SYS(encode(AT_FDCWD, "f", &h, &mount, 0));
    CHECK_ERR(decode(99, &h, O_RDONLY), EBADF);
    CHECK_ERR(decode(AT_FDCWD, (void *)BAD_PTR, O_RDONLY), EFAULT);
    bad = h;
    bad.bytes = 0;
    CHECK_ERR(decode(AT_FDCWD, &bad, O_RDONLY), EINVAL);
    CHECK_ERR(decode(99, &bad, O_RDONLY), EINVAL);
    bad.bytes = ROOM + 1;
    CHECK_ERR(decode(AT_FDCWD, &bad, O_RDONLY), EINVAL);
    bad = h;
    bad.type = -1;
    CHECK_ERR(decode(AT_FDCWD, &bad, O_RDONLY), EINVAL);
    bad.type = 0x77;
    CHECK_ERR(decode(AT_FDCWD, &bad, O_RDONLY), ESTALE);
    bad = h;
    bad.bytes = 4;
    CHECK_ERR(decode(AT_FDCWD, &bad, O_RDONLY), ESTALE);
    bad = h;
    memset(bad.data, 0x5a, bad.bytes);
    CHECK_ERR(decode(AT_FDCWD, &bad, O_RDONLY), ESTALE);
    // There is something already.
    SYS(close(SYS(decode(AT_FDCWD, &h, O_RDWR | O_CREAT))));
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDWR | O_CREAT | O_EXCL), EEXIST);
    struct handle dir = {0};
    SYS(encode(AT_FDCWD, ".", &dir, &mount, 0));
    CHECK_ERR(decode(AT_FDCWD, &dir, O_RDONLY | O_CREAT), EISDIR);
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY | O_TMPFILE), EINVAL);
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDWR | O_TMPFILE), ENOTDIR);
    // The bytes lie at the end of what is mapped, and beyond.
    char *page = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    SYS(munmap(page + 4096, 4096));
    memcpy(page + 4096 - 8, &h, 8);
    CHECK_ERR(decode(AT_FDCWD, (struct handle *)(page + 4096 - 8), O_RDONLY), EFAULT);
    // Another file system does not know it.
    int proc = SYS(open("/proc", O_RDONLY | O_DIRECTORY));
    CHECK_ERR(decode(proc, &h, O_RDONLY), ESTALE);
    int pipes[2];
    SYS(pipe(pipes));
    CHECK_ERR(decode(pipes[0], &h, O_RDONLY), ESTALE);
    drop(CAP_DAC_READ_SEARCH);
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), EPERM);
    CHECK_ERR(decode(99, &h, O_RDONLY), EBADF);
    bad.bytes = 0;
    CHECK_ERR(decode(AT_FDCWD, &bad, O_RDONLY), EINVAL);
    // Making one takes no right.
    SYS(encode(AT_FDCWD, "f", &h, &mount, 0));
}

// The right counts in the initial user namespace alone.
TEST(handles_user_ns) {
    struct handle h = {0};
    int mount;
    make("f", "");
    SYS(encode(AT_FDCWD, "f", &h, &mount, 0));
    SYS(unshare(CLONE_NEWUSER));
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), EPERM);
}

// Modes still count for whoever opens.
TEST(handles_mode) {
    struct handle h = {0};
    int mount;
    make("f", "");
    SYS(chmod("f", 0));
    SYS(encode(AT_FDCWD, "f", &h, &mount, 0));
    drop(CAP_DAC_OVERRIDE);
    CHECK_ERR(decode(AT_FDCWD, &h, O_WRONLY), EACCES);
    SYS(close(SYS(decode(AT_FDCWD, &h, O_RDONLY))));
}

TEST(handles_readonly_mount) {
    on_tmpfs();
    struct handle h = {0};
    int mount_id;
    make("f", "");
    SYS(encode(AT_FDCWD, "f", &h, &mount_id, 0));
    SYS(mkdir("ro", 0755));
    SYS(mount(".", "ro", 0, MS_BIND, 0));
    SYS(mount(0, "ro", 0, MS_BIND | MS_REMOUNT | MS_RDONLY, 0));
    int ro = SYS(open("ro", O_RDONLY));
    CHECK_ERR(decode(ro, &h, O_WRONLY), EROFS);
    SYS(close(SYS(decode(ro, &h, O_RDONLY))));
    SYS(close(SYS(decode(AT_FDCWD, &h, O_WRONLY))));
}

// Other instances of tmpfs do not know it.
TEST(handles_other_instance) {
    on_tmpfs();
    struct handle h = {0};
    int id;
    make("f", "");
    SYS(encode(AT_FDCWD, "f", &h, &id, 0));
    SYS(mkdir("u", 0755));
    SYS(mount("none", "u", "tmpfs", 0, 0));
    int other = SYS(open("u", O_RDONLY));
    CHECK_ERR(decode(other, &h, O_RDONLY), ESTALE);
}

static void check_fid(const char *path) {
    struct handle h = {0}, again = {0};
    int id;
    CHECK_ERR(encode(AT_FDCWD, path, &h, &id, 0), EOPNOTSUPP);
    SYS(encode(AT_FDCWD, path, &h, &id, FID));
    SYS(encode(AT_FDCWD, path, &again, &id, FID));
    CHECK_EQ(h.bytes, again.bytes);
    CHECK_MEM(h.data, again.data, h.bytes);
    // It only compares.
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), ESTALE);
}

TEST(handles_fid) {
    check_fid("/proc/self/status");
    check_fid("/proc");
    make("f", "");
    struct handle h = {0}, g = {0};
    int id;
    SYS(encode(AT_FDCWD, "f", &h, &id, FID));
    SYS(encode(AT_FDCWD, "f", &g, &id, 0));
    CHECK_EQ(h.bytes, g.bytes);
    CHECK_MEM(h.data, g.data, g.bytes);
}

TEST(handles_connectable) {
    on_tmpfs();
    struct handle h = {0};
    int id;
    make("f", "");
    CHECK_ERR(encode(AT_FDCWD, "f", &h, &id, CONNECTABLE), EOPNOTSUPP);
    CHECK_ERR(encode(AT_FDCWD, "/proc", &h, &id, CONNECTABLE), EOPNOTSUPP);
    CHECK_ERR(encode(AT_FDCWD, "f", &h, &id, CONNECTABLE | FID), EINVAL);
    CHECK_ERR(encode(99, "", &h, &id, CONNECTABLE | AT_EMPTY_PATH), EINVAL);
    CHECK_ERR(encode(99, "f", &h, &id, CONNECTABLE), EBADF);
    SYS(encode(AT_FDCWD, "f", &h, &id, 0));
    h.type |= 0x10000;
    SYS(close(SYS(decode(AT_FDCWD, &h, O_RDONLY))));
    h.type |= 0x20000; // says that it is a directory
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), ESTALE);
    h.type |= 0x40000;
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), EINVAL);
}

TEST(handles_mount_id) {
    on_tmpfs();
    struct handle h = {0};
    make("f", "");
    int id = 0;
    struct statx st;
    SYS(encode(AT_FDCWD, "f", &h, &id, 0));
    SYS(statx(AT_FDCWD, "f", 0, 0x1000, &st));
    CHECK_EQ(st.stx_mnt_id, id);
    unsigned long long unique = 0;
    SYS(encode(AT_FDCWD, "f", &h, (int *)&unique, UNIQUE));
    SYS(statx(AT_FDCWD, "f", 0, 0x4000, &st));
    CHECK_EQ(st.stx_mnt_id, unique);
}

TEST(handles_of_processes) {
    struct handle h = {0}, again = {0};
    struct stat st, of;
    int m, self = SYS((int)syscall(SYS_pidfd_open, getpid(), 0));
    SYS(encode(self, "", &h, &m, AT_EMPTY_PATH));
    CHECK_EQ(h.bytes, 8);
    CHECK_EQ(h.type, 0xfe);
    SYS(encode(self, "", &again, &m, AT_EMPTY_PATH | FID));
    CHECK_MEM(h.data, again.data, 8);
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    int child = SYS((int)syscall(SYS_pidfd_open, p, 0));
    SYS(encode(child, "", &h, &m, AT_EMPTY_PATH));
    OK(fstat(child, &of));
    int fd = SYS(decode(self, &h, O_CLOEXEC));
    OK(fstat(fd, &st));
    CHECK_EQ(st.st_ino, of.st_ino);
    SYS(close(SYS(decode(-10002, &h, O_CLOEXEC)))); // FD_PIDFS_ROOT
    CHECK_ERR(decode(self, &h, O_TRUNC), EINVAL);
    OK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, 0, 0));
    t_status(p);
    CHECK_ERR(decode(self, &h, O_CLOEXEC), ESTALE);
}
TEST(handles_of_namespaces) {
    static const char *kinds[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
    static const unsigned flags[] = {0x2000000, 0x8000000, 0x20000, 0x40000000, 0x20000000, 0x80, 0x10000000, 0x4000000};
    struct handle h = {0}, g;
    struct stat st, of;
    int m, uts = SYS(open("/proc/self/ns/uts", O_RDONLY)), root = SYS(open("/", O_RDONLY));
    for (int i = 0; i < 8; i++) {
        char path[64];
        unsigned long id = 0;
        sprintf(path, "/proc/self/ns/%s", kinds[i]);
        SYS(encode(AT_FDCWD, path, &h, &m, AT_SYMLINK_FOLLOW | (i % 2 ? FID : 0)));
        int fd = SYS(open(path, O_RDONLY));
        OK(ioctl(fd, 0x8008b70d /* NS_GET_ID */, &id));
        SYS(fstat(fd, &st));
        CHECK_EQ(h.bytes, 16);
        CHECK_EQ(h.type, 0xf1);
        CHECK_MEM(h.data, &id, 8);
        CHECK_MEM(h.data + 8, &flags[i], 4);
        unsigned number = st.st_ino;
        CHECK_MEM(h.data + 12, &number, 4);
        close(fd);
        fd = SYS(decode(i % 2 ? uts : -10003, &h, O_RDONLY | O_CLOEXEC));
        SYS(fstat(fd, &of));
        CHECK(of.st_ino == st.st_ino && of.st_dev == st.st_dev);
        CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
        close(fd);
    }
    h.bytes = 8;
    CHECK_ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "/proc/self/ns/net", &h, &m, AT_SYMLINK_FOLLOW), EOVERFLOW);
    CHECK_EQ(h.bytes, 16);
    SYS(encode(AT_FDCWD, "/proc/self/ns/net", &h, &m, AT_SYMLINK_FOLLOW));
    CHECK_ERR(decode(root, &h, O_RDONLY), ESTALE);
    CHECK_ERR(decode(AT_FDCWD, &h, O_RDONLY), ESTALE);
    CHECK_ERR(decode(-10002, &h, O_RDONLY), ESTALE);
    CHECK_ERR(decode(uts, &h, O_RDWR), EPERM);
    CHECK_ERR(decode(uts, &h, O_RDONLY | O_TRUNC), EPERM);
    CHECK_ERR(decode(uts, &h, O_RDONLY | O_DIRECTORY), ENOTDIR);
    close(SYS(decode(uts, &h, O_PATH)));
    for (int i = 0; i < 16; i += 4) {
        g = h;
        g.data[i] ^= 64;
        CHECK_ERR(decode(uts, &g, O_RDONLY), ESTALE);
        g = h;
        memset(g.data + i, 0, 4);
        if (memcmp(g.data, h.data, 16)) CHECK_ERR(decode(uts, &g, O_RDONLY), ESTALE);
    }
    g = h, g.bytes = 24;
    close(SYS(decode(uts, &g, O_RDONLY)));
    g = h, g.bytes = 8;
    CHECK_ERR(decode(uts, &g, O_RDONLY), ESTALE);
    g = h, g.type = 1;
    CHECK_ERR(decode(uts, &g, O_RDONLY), ESTALE);
    // A member needs no capability, others need one over the namespace; one that has ended is gone.
    struct t_gate made = t_gate(), go = t_gate();
    struct handle *other = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t p = FORK();
    if (p == 0) {
        SYS(unshare(CLONE_NEWUTS));
        SYS(encode(AT_FDCWD, "/proc/self/ns/uts", other, &m, AT_SYMLINK_FOLLOW));
        t_open(made);
        t_pass(go);
        _exit(0);
    }
    t_pass(made);
    close(SYS(decode(uts, other, O_RDONLY)));
    CHECK_CHILD({
        SYS(setuid(1));
        close(SYS(decode(uts, &h, O_RDONLY)));
        CHECK_ERR(decode(uts, other, O_RDONLY), ESTALE);
    });
    CHECK_CHILD({
        SYS(unshare(CLONE_NEWUSER));
        close(SYS(decode(uts, &h, O_RDONLY)));
        CHECK_ERR(decode(uts, other, O_RDONLY), ESTALE);
        SYS(unshare(CLONE_NEWNET));
        CHECK_ERR(decode(uts, &h, O_RDONLY), ESTALE);
        SYS(encode(AT_FDCWD, "/proc/self/ns/net", &g, &m, AT_SYMLINK_FOLLOW));
        close(SYS(decode(uts, &g, O_RDONLY)));
    });
    t_open(go);
    t_status(p);
    int gone = -1;
    for (int i = 0; i < 1000 && (gone = decode(uts, other, O_RDONLY)) >= 0; i++) close(gone), t_ms(1);
    CHECK_EQ(gone, -1);
}
