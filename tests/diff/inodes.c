// Watches and locks on inodes that are no files of a disk: terminals and their directory, namespaces.
#include "t.h"
#include <poll.h>
#include <pty.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

static const char *const KINDS[] = {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"};

// Reads what there is; "mask:name " for each event, the mask in hexadecimal.
static const char *events(int fd) {
    static char text[4096];
    char b[4096] __attribute__((aligned(8)));
    *text = 0;
    struct pollfd p = {fd, POLLIN, 0};
    while (poll(&p, 1, 0) == 1) {
        ssize_t n = read(fd, b, sizeof b);
        if (n <= 0) break;
        for (char *at = b; at < b + n;) {
            struct inotify_event *e = (void *)at;
            sprintf(text + strlen(text), "%x:%s ", e->mask, e->len ? e->name : "");
            at += sizeof *e + e->len;
        }
    }
    return text;
}
static int own_devpts(void) {
    SYS(unshare(CLONE_NEWNS));
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("d", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666"));
    return SYS(open("/dev/pts/ptmx", O_RDWR | O_NOCTTY));
}

TEST(terminals_come_and_go) {
    own_devpts();
    int i = SYS(inotify_init1(IN_NONBLOCK));
    SYS(inotify_add_watch(i, "/dev/pts", IN_CREATE | IN_DELETE | IN_ATTRIB));
    int m = SYS(open("/dev/pts/ptmx", O_RDWR | O_NOCTTY));
    CHECK_STR(events(i), "100:1 ");
    OK(chmod("/dev/pts/1", 0622));
    CHECK_STR(events(i), "4:1 ");
    close(m);
    CHECK_STR(events(i), "200:1 ");
}
TEST(watch_on_a_terminal) {
    int m = own_devpts(), zero = 0;
    OK(ioctl(m, TIOCSPTLCK, &zero));
    int i = SYS(inotify_init1(IN_NONBLOCK));
    SYS(inotify_add_watch(i, "/dev/pts/0", IN_ALL_EVENTS));
    int s = SYS(open("/dev/pts/0", O_RDWR | O_NOCTTY));
    CHECK_STR(events(i), "20: ");
    CHECK_EQ(write(s, "x", 1), 1);
    CHECK_STR(events(i), "2: ");
    OK(fchmod(s, 0620));
    CHECK_STR(events(i), "4: ");
    close(s);
    CHECK_STR(events(i), "8: ");
    close(m);
    CHECK_STR(events(i), "400: 8000: ");
}
TEST(watch_on_the_multiplexer) {
    own_devpts();
    int i = SYS(inotify_init1(IN_NONBLOCK));
    SYS(inotify_add_watch(i, "/dev/pts/ptmx", IN_ALL_EVENTS));
    int m = SYS(open("/dev/pts/ptmx", O_RDWR | O_NOCTTY));
    // All makers of terminals share it.
    CHECK_STR(events(i), "");
    close(m);
    CHECK_STR(events(i), "");
}
TEST(locks_of_a_terminal) {
    int m = own_devpts(), zero = 0;
    OK(ioctl(m, TIOCSPTLCK, &zero));
    int a = SYS(open("/dev/pts/0", O_RDWR | O_NOCTTY)), b = SYS(open("/dev/pts/0", O_RDWR | O_NOCTTY));
    OK(flock(a, LOCK_EX | LOCK_NB));
    CHECK_ERR(flock(b, LOCK_SH | LOCK_NB), EAGAIN);
    OK(flock(m, LOCK_EX | LOCK_NB)); // another inode
    close(a);
    OK(flock(b, LOCK_SH | LOCK_NB));
    struct flock l = {.l_type = F_WRLCK}, q = l;
    OK(fcntl(b, F_SETLK, &l));
    CHECK_CHILD(int c = SYS(open("/dev/pts/0", O_RDWR | O_NOCTTY)); CHECK_ERR(fcntl(c, F_SETLK, &q), EAGAIN); OK(fcntl(c, F_GETLK, &q));
                CHECK_EQ(q.l_pid, getppid()));
    int d = SYS(open("/dev/pts", O_RDONLY | O_DIRECTORY)), e = SYS(open("/dev/pts", O_RDONLY | O_DIRECTORY));
    OK(flock(d, LOCK_EX | LOCK_NB));
    CHECK_ERR(flock(e, LOCK_EX | LOCK_NB), EAGAIN);
}
TEST(locks_of_namespaces) {
    char path[64];
    for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        sprintf(path, "/proc/self/ns/%s", KINDS[i]);
        int a = SYS(open(path, O_RDONLY));
        sprintf(path, "/proc/%d/ns/%s", getppid(), KINDS[i]);
        int b = SYS(open(path, O_RDONLY));
        OK(flock(a, LOCK_EX | LOCK_NB));
        CHECK_ERR(flock(b, LOCK_EX | LOCK_NB), EAGAIN);
        OK(flock(a, LOCK_UN));
        OK(flock(b, LOCK_EX | LOCK_NB));
        struct flock l = {.l_type = F_RDLCK}, w = {.l_type = F_WRLCK};
        OK(fcntl(a, F_SETLK, &l));
        OK(fcntl(b, F_OFD_SETLK, &l));
        CHECK_ERR(fcntl(a, F_SETLK, &w), EBADF); // opened for reading
        OK(fcntl(a, F_SETLEASE, F_RDLCK));
        CHECK_EQ(fcntl(a, F_GETLEASE), F_RDLCK);
        OK(fcntl(a, F_SETLEASE, F_UNLCK));
    }
    // Of two namespaces each has its own.
    SYS(unshare(CLONE_NEWUTS));
    int old = SYS(open("/proc/self/ns/uts", O_RDONLY));
    SYS(unshare(CLONE_NEWUTS));
    int new = SYS(open("/proc/self/ns/uts", O_RDONLY));
    OK(flock(old, LOCK_EX | LOCK_NB));
    OK(flock(new, LOCK_EX | LOCK_NB));
}
TEST(watches_of_namespaces) {
    int i = SYS(inotify_init1(IN_NONBLOCK));
    char path[64];
    for (unsigned k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        sprintf(path, "/proc/self/ns/%s", KINDS[k]);
        int kept = SYS(open(path, O_RDONLY)), w = SYS(inotify_add_watch(i, path, IN_OPEN | IN_CLOSE));
        int f = SYS(open(path, O_RDONLY));
        CHECK_STR(events(i), "20: ");
        close(f);
        CHECK_STR(events(i), "10: ");
        CHECK_EQ(inotify_add_watch(i, path, IN_OPEN), w);
        OK(inotify_rm_watch(i, w));
        CHECK_STR(events(i), "8000: ");
        close(kept);
    }
}
// A recursive watch of / meets all of these.
TEST(everything_can_be_watched) {
    int i = SYS(inotify_init1(IN_NONBLOCK)), p[2];
    SYS(pipe(p));
    char pipe_[64];
    sprintf(pipe_, "/proc/self/fd/%d", p[0]);
    const char *const places[] = {"/", "/proc", "/proc/self", "/proc/self/fd", "/proc/self/task", "/proc/self/ns", "/proc/sys/kernel", "/proc/mounts",
                                  "/proc/self/exe", "/sys", "/sys/kernel", "/dev", "/dev/null", "/dev/pts", "/dev/pts/ptmx", "/tmp", pipe_};
    for (unsigned k = 0; k < sizeof places / sizeof *places; k++)
        if (inotify_add_watch(i, places[k], IN_ALL_EVENTS) < 0) t_fail(__FILE__, __LINE__, "%s: %s", places[k], t_errno(errno));
}
// The device files of a devpts that a user namespace mounted can be opened, others cannot.
TEST(terminals_of_a_user_namespace) {
    SYS(unshare(CLONE_NEWUSER | CLONE_NEWNS));
    int zero = 0;
    SYS(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    SYS(mount("d", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"));
    int m = SYS(open("/dev/pts/ptmx", O_RDWR | O_NOCTTY));
    OK(ioctl(m, TIOCSPTLCK, &zero));
    SYS(open("/dev/pts/0", O_RDWR | O_NOCTTY));
    SYS(mount("d", "/dev/pts", "devpts", MS_REMOUNT | MS_NODEV, "ptmxmode=0666"));
    CHECK_ERR(open("/dev/pts/ptmx", O_RDWR | O_NOCTTY), EACCES);
}
