// Descriptors: dup, dup2, dup3, fcntl, close_range, record locks, flock, leases, memfd and its seals.
#include "t.h"
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/xattr.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>

TEST(dup_shares_description) {
    int a = t_file("f", "0123456789"), b = SYS(dup(a)), c = SYS(open("f", O_RDWR));
    SYS(lseek(a, 4, SEEK_SET));
    CHECK_EQ(lseek(b, 0, SEEK_CUR), 4);
    CHECK_EQ(lseek(c, 0, SEEK_CUR), 0);
    SYS(fcntl(b, F_SETFL, O_APPEND));
    CHECK(fcntl(a, F_GETFL) & O_APPEND);
    CHECK(!(fcntl(c, F_GETFL) & O_APPEND));
    SYS(fcntl(b, F_SETFD, FD_CLOEXEC));
    CHECK_EQ(fcntl(a, F_GETFD), 0);
    close(a);
    char ch;
    CHECK_EQ(pread(b, &ch, 1, 4), 1);
    CHECK_EQ(ch, '4');
}
TEST(dup_errors) {
    int fd = SYS(open("/dev/null", O_RDONLY));
    CHECK_ERR(dup(999), EBADF);
    CHECK_ERR(dup(-1), EBADF);
    CHECK_ERR(dup2(999, 5), EBADF);
    CHECK_ERR(dup2(fd, -1), EBADF);
    CHECK_ERR(dup2(fd, 1 << 30), EBADF);
    CHECK_ERR(dup3(fd, fd, 0), EINVAL);
    CHECK_ERR(dup3(fd, 50, O_APPEND), EINVAL);
    CHECK_ERR(dup3(999, 50, 0), EBADF);
    CHECK_EQ(dup2(fd, fd), fd);
    CHECK_ERR(dup2(999, 999), EBADF);
}
TEST(dup2_replaces) {
    int a = t_file("a", "A"), b = t_file("b", "B");
    CHECK_EQ(dup2(a, b), b);
    char c;
    CHECK_EQ(pread(b, &c, 1, 0), 1);
    CHECK_EQ(c, 'A');
    CHECK_EQ(dup3(a, 77, O_CLOEXEC), 77);
    CHECK_EQ(fcntl(77, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(dup2(a, 77), 77);
    CHECK_EQ(fcntl(77, F_GETFD), 0);
}
TEST(fcntl_dupfd) {
    int fd = SYS(open("/dev/null", O_RDONLY));
    CHECK_EQ(fcntl(fd, F_DUPFD, 100), 100);
    CHECK_EQ(fcntl(fd, F_DUPFD, 100), 101);
    CHECK_EQ(fcntl(fd, F_DUPFD_CLOEXEC, 100), 102);
    CHECK_EQ(fcntl(102, F_GETFD), FD_CLOEXEC);
    CHECK_ERR(fcntl(fd, F_DUPFD, -1), EINVAL);
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    CHECK_ERR(fcntl(fd, F_DUPFD, r.rlim_cur), EINVAL);
    CHECK_ERR(fcntl(999, F_DUPFD, 0), EBADF);
}
TEST(fcntl_flags) {
    int fd = t_file("f", "");
    OK(fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND | O_RDONLY | O_CREAT | O_TRUNC));
    CHECK_EQ(fcntl(fd, F_GETFL) & ~0100000, O_RDWR | O_NONBLOCK | O_APPEND);
    OK(fcntl(fd, F_SETFL, 0));
    CHECK_EQ(fcntl(fd, F_GETFL) & ~0100000, O_RDWR);
    OK(fcntl(fd, F_SETFD, FD_CLOEXEC | 0x100));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_ERR(fcntl(fd, 9999), EINVAL);
    CHECK_ERR(fcntl(999, F_GETFL), EBADF);
    int o = SYS(open("f", O_PATH));
    CHECK_ERR(fcntl(o, F_SETFL, 0), EBADF);
    OK(fcntl(o, F_SETFD, FD_CLOEXEC));
}
TEST(fcntl_owner) {
    int fd = t_file("f", "");
    OK(fcntl(fd, F_GETOWN));
    OK(fcntl(fd, F_SETOWN, getpid()));
    CHECK_EQ(fcntl(fd, F_GETOWN), getpid());
    struct f_owner_ex o = {F_OWNER_TID, gettid()};
    OK(fcntl(fd, F_SETOWN_EX, &o));
    memset(&o, 0, sizeof o);
    OK(fcntl(fd, F_GETOWN_EX, &o));
    CHECK_EQ(o.type, F_OWNER_TID);
    CHECK_EQ(o.pid, gettid());
    OK(fcntl(fd, F_GETSIG));
    OK(fcntl(fd, F_SETSIG, SIGUSR1));
    CHECK_EQ(fcntl(fd, F_GETSIG), SIGUSR1);
    CHECK_ERR(fcntl(fd, F_SETSIG, 99), EINVAL);
}
TEST(close_range_forms) {
    for (int i = 100; i < 110; i++) SYS(dup2(0, i));
    OK(syscall(SYS_close_range, 102, 104, 0));
    OK(fcntl(101, F_GETFD));
    CHECK_ERR(fcntl(102, F_GETFD), EBADF);
    CHECK_ERR(fcntl(104, F_GETFD), EBADF);
    OK(fcntl(105, F_GETFD));
    OK(syscall(SYS_close_range, 106, ~0U, 4));
    CHECK_EQ(fcntl(109, F_GETFD), FD_CLOEXEC);
    OK(syscall(SYS_close_range, 100, ~0U, 2));
    CHECK_ERR(fcntl(105, F_GETFD), EBADF);
    CHECK_ERR(syscall(SYS_close_range, 10, 5, 0), EINVAL);
    CHECK_ERR(syscall(SYS_close_range, 10, 20, 0x10), EINVAL);
}
static struct flock lk(int type, off_t start, off_t len) { return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len}; }
TEST(posix_locks_conflict_between_processes) {
    int fd = t_file("f", "0123456789");
    struct flock l = lk(F_WRLCK, 2, 4);
    OK(fcntl(fd, F_SETLK, &l));
    pid_t me = getpid();
    CHECK_CHILD(int g = SYS(open("f", O_RDWR)); struct flock k = lk(F_WRLCK, 5, 5); CHECK_ERR(fcntl(g, F_SETLK, &k), EAGAIN);
                k = lk(F_RDLCK, 0, 0); OK(fcntl(g, F_GETLK, &k)); CHECK_EQ(k.l_type, F_WRLCK); CHECK_EQ(k.l_start, 2); CHECK_EQ(k.l_len, 4);
                CHECK_EQ(k.l_pid, me); CHECK_EQ(k.l_whence, SEEK_SET); k = lk(F_WRLCK, 6, 4); OK(fcntl(g, F_SETLK, &k)); k = lk(F_WRLCK, 0, 2);
                OK(fcntl(g, F_SETLK, &k)));
    // they went with the child
    l = lk(F_WRLCK, 0, 0);
    OK(fcntl(fd, F_SETLK, &l));
    // within one process they never conflict
    int h = SYS(open("f", O_RDWR));
    l = lk(F_RDLCK, 0, 5);
    OK(fcntl(h, F_SETLK, &l));
    l = lk(F_WRLCK, 0, 0);
    OK(fcntl(h, F_GETLK, &l));
    CHECK_EQ(l.l_type, F_UNLCK);
}
TEST(posix_locks_read_shared) {
    int fd = t_file("f", "x");
    struct flock l = lk(F_RDLCK, 0, 0);
    OK(fcntl(fd, F_SETLK, &l));
    CHECK_CHILD(int g = SYS(open("f", O_RDWR)); struct flock k = lk(F_RDLCK, 0, 0); OK(fcntl(g, F_SETLK, &k)); k = lk(F_WRLCK, 0, 1);
                CHECK_ERR(fcntl(g, F_SETLK, &k), EAGAIN));
}
TEST(posix_locks_split_and_merge) {
    int fd = t_file("f", "x");
    struct flock l = lk(F_WRLCK, 0, 100);
    OK(fcntl(fd, F_SETLK, &l));
    l = lk(F_UNLCK, 40, 20);
    OK(fcntl(fd, F_SETLK, &l));
    CHECK_CHILD(int g = SYS(open("f", O_RDWR)); struct flock k = lk(F_WRLCK, 40, 20); OK(fcntl(g, F_SETLK, &k)); k = lk(F_WRLCK, 0, 0);
                OK(fcntl(g, F_GETLK, &k)); CHECK_EQ(k.l_start, 0); CHECK_EQ(k.l_len, 40); k = lk(F_WRLCK, 50, 0); OK(fcntl(g, F_GETLK, &k));
                CHECK_EQ(k.l_start, 60); CHECK_EQ(k.l_len, 40));
    l = lk(F_RDLCK, 10, 10);
    OK(fcntl(fd, F_SETLK, &l));
    CHECK_CHILD(int g = SYS(open("f", O_RDWR)); struct flock k = lk(F_RDLCK, 10, 10); OK(fcntl(g, F_SETLK, &k));
                k = lk(F_RDLCK, 9, 1); CHECK_ERR(fcntl(g, F_SETLK, &k), EAGAIN));
}
TEST(posix_locks_vanish_on_any_close) {
    int fd = t_file("f", "x");
    struct flock l = lk(F_WRLCK, 0, 0);
    OK(fcntl(fd, F_SETLK, &l));
    close(SYS(open("f", O_RDONLY)));
    CHECK_CHILD(int g = SYS(open("f", O_RDWR)); struct flock k = lk(F_WRLCK, 0, 0); OK(fcntl(g, F_SETLK, &k)));
}
TEST(posix_locks_not_inherited) {
    int fd = t_file("f", "x");
    struct flock l = lk(F_WRLCK, 0, 0);
    OK(fcntl(fd, F_SETLK, &l));
    CHECK_CHILD(struct flock k = lk(F_WRLCK, 0, 0); CHECK_ERR(fcntl(fd, F_SETLK, &k), EAGAIN));
}
TEST(posix_lock_waits) {
    int fd = t_file("f", "x");
    struct flock l = lk(F_WRLCK, 0, 0);
    OK(fcntl(fd, F_SETLK, &l));
    volatile int *m = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t p = FORK();
    if (p == 0) {
        struct flock k = lk(F_WRLCK, 0, 0);
        OK(fcntl(fd, F_SETLKW, &k));
        CHECK_EQ(m[0], 1);
        _exit(0);
    }
    t_ms(10);
    m[0] = 1;
    l.l_type = F_UNLCK;
    OK(fcntl(fd, F_SETLK, &l));
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(posix_lock_wait_interrupted) {
    int fd = t_file("f", "x");
    struct flock l = lk(F_WRLCK, 0, 0);
    OK(fcntl(fd, F_SETLK, &l));
    CHECK_CHILD(t_pester(0); struct flock k = lk(F_WRLCK, 0, 0); CHECK_ERR(fcntl(fd, F_SETLKW, &k), EINTR));
}
TEST(posix_lock_deadlock) {
    int fd = t_file("f", "xy");
    struct t_gate a = t_gate(), b = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        struct flock k = lk(F_WRLCK, 1, 1);
        OK(fcntl(fd, F_SETLK, &k));
        t_open(a);
        t_pass(b);
        k = lk(F_WRLCK, 0, 1);
        OK(fcntl(fd, F_SETLKW, &k));
        _exit(0);
    }
    struct flock k = lk(F_WRLCK, 0, 1);
    OK(fcntl(fd, F_SETLK, &k));
    t_pass(a);
    t_open(b);
    // until the child waits for us there is no deadlock to see: ask for its byte without waiting first
    struct flock want = lk(F_WRLCK, 1, 1);
    CHECK_ERR(fcntl(fd, F_SETLK, &want), EAGAIN);
    t_ms(50);
    CHECK_ERR(fcntl(fd, F_SETLKW, &want), EDEADLK);
    k.l_type = F_UNLCK;
    OK(fcntl(fd, F_SETLK, &k));
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(posix_lock_errors) {
    int ro, wo, fd = t_file("f", "x"), p[2];
    ro = SYS(open("f", O_RDONLY)), wo = SYS(open("f", O_WRONLY));
    SYS(pipe(p));
    struct flock l = lk(F_WRLCK, 0, 0);
    CHECK_ERR(fcntl(ro, F_SETLK, &l), EBADF);
    l.l_type = F_RDLCK;
    CHECK_ERR(fcntl(wo, F_SETLK, &l), EBADF);
    l.l_type = 77;
    CHECK_ERR(fcntl(fd, F_SETLK, &l), EINVAL);
    l = lk(F_RDLCK, -5, 0);
    CHECK_ERR(fcntl(fd, F_SETLK, &l), EINVAL);
    l = lk(F_RDLCK, 5, -10);
    CHECK_ERR(fcntl(fd, F_SETLK, &l), EINVAL);
    l = lk(F_RDLCK, 10, -5); // the five before ten
    OK(fcntl(fd, F_SETLK, &l));
    l.l_whence = 9;
    CHECK_ERR(fcntl(fd, F_SETLK, &l), EINVAL);
    CHECK_ERR(fcntl(fd, F_SETLK, BAD_PTR), EFAULT);
    CHECK_ERR(fcntl(999, F_SETLK, &l), EBADF);
    l = lk(F_UNLCK, 0, 0);
    CHECK_ERR(fcntl(fd, F_GETLK, &l), EINVAL);
}
TEST(ofd_locks) {
    int a = t_file("f", "x"), b = SYS(open("f", O_RDWR)), c = SYS(dup(a));
    struct flock l = lk(F_WRLCK, 0, 0);
    OK(fcntl(a, F_OFD_SETLK, &l));
    CHECK_ERR(fcntl(b, F_OFD_SETLK, &l), EAGAIN);
    OK(fcntl(c, F_OFD_SETLK, &l));
    struct flock g = lk(F_WRLCK, 0, 0);
    OK(fcntl(b, F_OFD_GETLK, &g));
    CHECK_EQ(g.l_type, F_WRLCK);
    CHECK_EQ(g.l_pid, -1);
    CHECK_CHILD(OK(fcntl(a, F_OFD_SETLK, &l)));
    g.l_pid = 5;
    CHECK_ERR(fcntl(a, F_OFD_SETLK, &g), EINVAL);
    close(a);
    CHECK_ERR(fcntl(b, F_OFD_SETLK, &l), EAGAIN);
    close(c); // the last of that description
    OK(fcntl(b, F_OFD_SETLK, &l));
}
TEST(flock_forms) {
    int a = t_file("f", "x"), b = SYS(open("f", O_RDONLY)), c = SYS(dup(a));
    OK(flock(a, LOCK_EX));
    CHECK_ERR(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK_ERR(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    OK(flock(c, LOCK_EX | LOCK_NB));
    OK(flock(c, LOCK_SH));
    OK(flock(b, LOCK_SH | LOCK_NB));
    CHECK_ERR(flock(a, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    OK(flock(b, LOCK_UN));
    CHECK_CHILD(OK(flock(a, LOCK_UN))); // a shared description
    OK(flock(b, LOCK_EX | LOCK_NB));
    CHECK_ERR(flock(a, 0), EINVAL);
    CHECK_ERR(flock(999, LOCK_SH), EBADF);
    close(b);
    OK(flock(a, LOCK_EX | LOCK_NB));
    CHECK_ERR(flock(SYS(open("f", O_PATH)), LOCK_SH), EBADF);
}
TEST(flock_waits_and_is_interrupted) {
    int a = t_file("f", "x"), b = SYS(open("f", O_RDONLY));
    OK(flock(a, LOCK_EX));
    t_pester(0);
    CHECK_ERR(flock(b, LOCK_SH), EINTR);
    t_pester_stop();
    pid_t p = FORK();
    if (p == 0) {
        int c = SYS(open("f", O_RDONLY));
        close(a);
        close(b);
        OK(flock(c, LOCK_EX));
        _exit(0);
    }
    t_ms(5);
    OK(flock(a, LOCK_UN));
    CHECK_STATUS(t_status(p), "exit 0");
}
// The only holder of a shared lock makes it exclusive before any waiter gets a turn.
TEST(flock_conversion_comes_first) {
    int a = t_file("f", "x");
    volatile int *turns = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t p = FORK();
    if (p == 0) {
        close(a);
        int b = SYS(open("f", O_RDONLY));
        for (;;) {
            if (flock(b, LOCK_EX)) _exit(1);
            ++*turns;
            if (flock(b, LOCK_UN)) _exit(2);
        }
    }
    while (!*turns) sched_yield();
    int lost = 0;
    for (int i = 0; i < 300; i++) {
        OK(flock(a, LOCK_SH));
        int before = *turns;
        sched_yield();
        OK(flock(a, LOCK_EX));
        lost += *turns != before;
        OK(flock(a, LOCK_UN));
    }
    CHECK_EQ(lost, 0);
    kill(p, SIGKILL);
    SYS(waitpid(p, 0, 0));
}
TEST(flock_independent_of_posix_locks) {
    int a = t_file("f", "x");
    OK(flock(a, LOCK_EX));
    CHECK_CHILD(int g = SYS(open("f", O_RDWR)); struct flock k = lk(F_WRLCK, 0, 0); OK(fcntl(g, F_SETLK, &k)));
}
TEST(memfd_basics) {
    int fd = SYS(memfd_create("name", MFD_CLOEXEC));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
    struct stat st;
    OK(fstat(fd, &st));
    CHECK(S_ISREG(st.st_mode));
    CHECK_EQ(st.st_mode & 0777, 0777);
    CHECK_EQ(st.st_nlink, 0);
    CHECK_EQ(write(fd, "data", 4), 4);
    char b[64] = "", p[64];
    CHECK_EQ(pread(fd, b, 8, 0), 4);
    sprintf(p, "/proc/self/fd/%d", fd);
    memset(b, 0, sizeof b);
    CHECK(readlink(p, b, sizeof b - 1) > 0);
    CHECK_STR(b, "/memfd:name (deleted)");
    CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL);
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
    CHECK_ERR(memfd_create("x", 0x100), EINVAL);
    CHECK_ERR(memfd_create(BAD_PTR, 0), EFAULT);
    char n[300];
    memset(n, 'n', sizeof n);
    n[250] = 0;
    CHECK_ERR(memfd_create(n, 0), EINVAL);
    n[249] = 0;
    SYS(memfd_create(n, 0));
}
TEST(memfd_seals) {
    int fd = SYS(memfd_create("s", MFD_ALLOW_SEALING));
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    OK(fcntl(fd, F_GET_SEALS));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    CHECK_ERR(ftruncate(fd, 20), EPERM);
    CHECK_ERR(pwrite(fd, "x", 1, 10), EPERM);
    OK(ftruncate(fd, 8));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    CHECK_ERR(ftruncate(fd, 4), EPERM);
    CHECK_EQ(pwrite(fd, "y", 1, 0), 1);
    char *m = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    SYS(munmap(m, 4096));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    CHECK_ERR(pwrite(fd, "z", 1, 0), EPERM);
    CHECK_ERR((long)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EPERM);
    SYS(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0));
    SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    CHECK_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE);
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
    CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), EPERM);
    CHECK_ERR(fcntl(t_file("f", ""), F_GET_SEALS), EINVAL);
}
TEST(memfd_seal_future_write) {
    for (int large = 0; large < 2; large++) {
        int fd = SYS(memfd_create("s", MFD_ALLOW_SEALING));
        CHECK_EQ(write(fd, "0123456789", 10), 10);
        if (large) OK(ftruncate(fd, 4 << 20));
        char *w = large ? SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) : 0;
        OK(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
        CHECK_ERR(pwrite(fd, "x", 1, 0), EPERM);
        CHECK_ERR((long)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EPERM);
        char *r = SYS(mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0));
        CHECK_ERR(mprotect(r, 4096, PROT_READ | PROT_WRITE), EACCES);
        CHECK_EQ(r[0], '0');
        // What was mapped before stays writable.
        if (w) CHECK_EQ(w[0] = 'w', r[0]);
        char *p = SYS(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
        OK(mprotect(p, 4096, PROT_READ | PROT_WRITE));
        p[0] = 'p';
        char self[64];
        sprintf(self, "/proc/self/fd/%d", fd);
        int again = SYS(open(self, O_RDWR));
        CHECK_ERR((long)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), EPERM);
        r = SYS(mmap(0, 4096, PROT_READ, MAP_SHARED, again, 0));
        CHECK_ERR(mprotect(r, 4096, PROT_READ | PROT_WRITE), EACCES);
        close(fd), close(again);
    }
}
TEST(memfd_seal_grow_within_a_page) {
    int fd = SYS(memfd_create("s", MFD_ALLOW_SEALING));
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    // All of the piece within a page, or nothing.
    CHECK_ERR(pwrite(fd, "abcdef", 6, 8), EPERM);
    CHECK_EQ(pwrite(fd, "ab", 2, 8), 2);
    static char b[3 * 4096];
    int g = SYS(memfd_create("s", MFD_ALLOW_SEALING));
    OK(ftruncate(g, 4096 + 100));
    OK(fcntl(g, F_ADD_SEALS, F_SEAL_GROW));
    CHECK_EQ(pwrite(g, b, sizeof b, 0), 4096);
    CHECK_EQ(pwrite(g, b, 8192, 50), 4046);
    CHECK_ERR(pwrite(g, b, 200, 4096), EPERM);
    OK(ftruncate(g, 4096 + 100));
    struct stat st;
    OK(fstat(g, &st));
    CHECK_EQ(st.st_size, 4196);
}
TEST(leases) {
    int fd = t_file("f", "x");
    CHECK_EQ(fcntl(fd, F_GETLEASE), F_UNLCK);
    int r = SYS(open("f", O_RDONLY));
    CHECK_ERR(fcntl(r, F_SETLEASE, F_RDLCK), EAGAIN); // open for writing elsewhere
    close(fd);
    OK(fcntl(r, F_SETLEASE, F_RDLCK));
    CHECK_EQ(fcntl(r, F_GETLEASE), F_RDLCK);
    OK(fcntl(r, F_SETLEASE, F_UNLCK));
    CHECK_ERR(fcntl(r, F_SETLEASE, 9), EINVAL);
}
static volatile int broken, broken_code, broken_fd;
static void on_break(int sig, siginfo_t *si, void *u) { broken = sig, broken_code = si->si_code, broken_fd = si->si_fd; }
TEST(leases_conflict) {
    close(t_file("f", "x"));
    int r = SYS(open("f", O_RDONLY)), r2 = SYS(open("f", O_RDONLY));
    CHECK_ERR(fcntl(r, F_SETLEASE, F_WRLCK), EAGAIN); // open elsewhere
    OK(fcntl(r, F_SETLEASE, F_RDLCK));
    OK(fcntl(r2, F_SETLEASE, F_RDLCK));
    close(r2);
    OK(fcntl(r, F_SETLEASE, F_WRLCK));
    CHECK_EQ(fcntl(r, F_GETLEASE), F_WRLCK);
    OK(fcntl(r, F_SETLEASE, F_UNLCK));
    CHECK_ERR(fcntl(r, F_SETLEASE, F_UNLCK), EAGAIN);
    int w = SYS(open("f", O_RDWR));
    close(r);
    CHECK_ERR(fcntl(w, F_SETLEASE, F_RDLCK), EAGAIN);
    OK(fcntl(w, F_SETLEASE, F_WRLCK));
    int p[2];
    SYS(pipe(p));
    CHECK_ERR(fcntl(p[0], F_SETLEASE, F_RDLCK), EINVAL);
    OK(mkdir("d", 0700));
    CHECK_CHILD({
        if (getuid() == 0) {
            chmod(".", 0755);
            close(t_file("g", ""));
            int g = SYS(open("g", O_RDONLY));
            OK(setuid(65534));
            CHECK_ERR(fcntl(g, F_SETLEASE, F_RDLCK), EACCES);
        }
    });
}
TEST(leases_are_broken) {
    close(t_file("f", "x"));
    struct sigaction sa = {.sa_sigaction = on_break, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGIO, &sa, 0));
    OK(sigaction(SIGUSR1, &sa, 0));
    int r = SYS(open("f", O_RDONLY));
    OK(fcntl(r, F_SETLEASE, F_RDLCK));
    CHECK_CHILD(CHECK(open("f", O_RDONLY) >= 0)); // readers do not break a read lease
    OK(broken);
    CHECK_CHILD(CHECK_ERR(open("f", O_WRONLY | O_NONBLOCK), EAGAIN));
    CHECK_EQ(broken, SIGIO);
    CHECK_EQ(fcntl(r, F_GETLEASE), F_UNLCK);
    OK(fcntl(r, F_SETLEASE, F_UNLCK));
    OK(fcntl(r, F_SETLEASE, F_WRLCK));
    OK(fcntl(r, F_SETSIG, SIGUSR1));
    pid_t p = FORK();
    if (p == 0) {
        long long t = t_now_ms();
        int fd = open("f", O_RDONLY); // waits until the lease is a read lease
        CHECK(fd >= 0);
        CHECK(t_now_ms() - t >= 40);
        _exit(0);
    }
    while (broken != SIGUSR1) t_ms(1);
    CHECK_EQ(broken_code, 3); // POLL_MSG
    CHECK_EQ(broken_fd, r);
    CHECK_EQ(fcntl(r, F_GETLEASE), F_RDLCK);
    t_ms(50);
    OK(fcntl(r, F_SETLEASE, F_RDLCK));
    CHECK_STATUS(t_status(p), "exit 0");
    broken = 0;
    p = FORK();
    if (p == 0) {
        close(r);
        OK(truncate("f", 0));
        _exit(0);
    }
    while (!broken) t_ms(1);
    close(r); // which ends it as well
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(pipe_size) {
    int p[2];
    SYS(pipe(p));
    CHECK_EQ(fcntl(p[0], F_GETPIPE_SZ), 65536);
    CHECK_EQ(fcntl(p[0], F_SETPIPE_SZ, 100), 4096);
    CHECK_EQ(fcntl(p[1], F_GETPIPE_SZ), 4096);
    CHECK_EQ(fcntl(p[1], F_SETPIPE_SZ, 200000), 262144);
    CHECK_ERR(fcntl(p[0], F_SETPIPE_SZ, -1), EINVAL);
    CHECK_ERR(fcntl(t_file("f", ""), F_GETPIPE_SZ), EBADF);
    static char b[100000];
    CHECK_EQ(write(p[1], b, 100000), 100000);
    CHECK_ERR(fcntl(p[1], F_SETPIPE_SZ, 4096), EBUSY);
}
static void *closer(void *a) {
    for (int i = 0; i < 2000; i++) close(open("/dev/null", O_RDONLY));
    return 0;
}
TEST(threads_share_the_table) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, closer, 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    int fd = SYS(open("/dev/null", O_RDONLY));
    CHECK(fd < 10);
}
TEST(many_descriptors) {
    struct rlimit r;
    SYS(getrlimit(RLIMIT_NOFILE, &r));
    CHECK_CHILD(struct rlimit w = r; w.rlim_cur = w.rlim_max < 3000 ? w.rlim_max : 3000; SYS(setrlimit(RLIMIT_NOFILE, &w)); int n = 0;
                while (dup(0) >= 0) n++; CHECK_EQ(errno, EMFILE); CHECK(n > 900); CHECK_CHILD(close(500); CHECK_EQ(dup(0), 500)));
}
TEST(ioctl_on_files) {
    int fd = t_file("f", "12345"), n = -1;
    extern int ioctl(int, unsigned long, ...);
    SYS(lseek(fd, 2, SEEK_SET));
    OK(ioctl(fd, 0x541b /* FIONREAD */, &n));
    CHECK_EQ(n, 3);
    CHECK_ERR(ioctl(fd, 0x5401 /* TCGETS */, &n), ENOTTY);
    CHECK_ERR(ioctl(fd, 0x5413 /* TIOCGWINSZ */, &n), ENOTTY);
    CHECK_ERR(ioctl(999, 0x5401, &n), EBADF);
    OK(ioctl(fd, 0x5451 /* FIOCLEX */));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    OK(ioctl(fd, 0x5450 /* FIONCLEX */));
    OK(fcntl(fd, F_GETFD));
    n = 1;
    OK(ioctl(fd, 0x5421 /* FIONBIO */, &n));
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
}
TEST(kcmp_or_not) {
    int a = SYS(open("/dev/null", O_RDONLY)), b = SYS(dup(a)), c = SYS(open("/dev/null", O_RDONLY));
    long r = syscall(SYS_kcmp, getpid(), getpid(), 0, a, b);
    if (r < 0 && errno == ENOSYS) return; // a kernel may be built without it
    OK(r);
    CHECK(syscall(SYS_kcmp, getpid(), getpid(), 0, a, c) > 0);
}
TEST(locks_on_what_is_no_file) {
    int p[2], s[2];
    OK(pipe(p));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    int fds[] = {p[0], s[0], SYS(eventfd(0, 0)), SYS(open("/proc/self/status", O_RDONLY)), SYS(open("/proc", O_RDONLY)), SYS(open("/dev/null", O_RDWR))};
    for (int i = 0; i < 6; i++) {
        int writable = i == 1 || i == 2 || i == 5;
        struct flock l = {.l_type = F_RDLCK}, w = {.l_type = F_WRLCK};
        OK(flock(fds[i], LOCK_EX | LOCK_NB));
        OK(flock(fds[i], LOCK_SH | LOCK_NB));
        OK(fcntl(fds[i], F_SETLK, &l));
        CHECK_CHILD({
            struct flock q = {.l_type = F_WRLCK};
            OK(fcntl(fds[i], F_GETLK, &q));
            CHECK_EQ(q.l_type, F_RDLCK);
            CHECK_EQ(q.l_pid, getppid());
        });
        if (writable) OK(fcntl(fds[i], F_SETLK, &w));
        else CHECK_ERR(fcntl(fds[i], F_SETLK, &w), EBADF);
        l.l_type = F_UNLCK;
        OK(fcntl(fds[i], F_SETLK, &l));
        struct flock o = {.l_type = F_RDLCK};
        OK(fcntl(fds[i], F_OFD_SETLK, &o));
        OK(flock(fds[i], LOCK_UN));
    }
    // The same file of /proc, opened twice.
    int a = fds[3], b = SYS(open("/proc/self/status", O_RDONLY));
    OK(flock(a, LOCK_EX | LOCK_NB));
    CHECK_ERR(flock(b, LOCK_EX | LOCK_NB), EAGAIN);
    close(a);
    OK(flock(b, LOCK_EX | LOCK_NB));
    // Both ends of a pipe are one file.
    OK(flock(p[0], LOCK_EX | LOCK_NB));
    CHECK_ERR(flock(p[1], LOCK_EX | LOCK_NB), EAGAIN);
}
TEST(seeking_to_the_end_of_proc_files) {
    const char *none[] = {"/proc/self/status", "/proc/self/maps", "/proc/version", "/proc/self/mountinfo", "/proc/meminfo", "/proc/self/comm", "/proc/self/mem", "/proc/self/fdinfo/0"};
    const char *zero[] = {"/proc/sys/kernel/hostname", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/auxv", "/proc/self/oom_score_adj"};
    for (int i = 0; i < 8; i++) {
        int fd = SYS(open(none[i], O_RDONLY));
        CHECK_ERR(lseek(fd, 0, SEEK_END), EINVAL);
        CHECK_ERR(lseek(fd, 0, SEEK_DATA), EINVAL);
        CHECK_EQ(lseek(fd, 5, SEEK_SET), 5);
        CHECK_EQ(lseek(fd, 5, SEEK_CUR), 10);
        close(fd);
    }
    for (int i = 0; i < 5; i++) {
        int fd = SYS(open(zero[i], O_RDONLY));
        OK(lseek(fd, 0, SEEK_END));
        CHECK_ERR(lseek(fd, 0, SEEK_DATA), ENXIO);
        close(fd);
    }
}
TEST(the_largest_file) {
    int fd = SYS(memfd_create("m", 0));
    OK(ftruncate(fd, INT64_MAX));
    CHECK_EQ(lseek(fd, 0, SEEK_END), INT64_MAX);
    CHECK_EQ(pwrite(fd, "x", 1, INT64_MAX - 1), 1);
    CHECK_ERR(pwrite(fd, "x", 1, INT64_MAX), EINVAL);
    char c = 0;
    CHECK_EQ(pread(fd, &c, 1, INT64_MAX - 1), 1);
    CHECK_EQ(c, 'x');
    OK(ftruncate(fd, 0));
}
TEST(writing_removes_file_capabilities) {
    // VFS_CAP_REVISION_2 with CAP_NET_RAW
    unsigned char cap[20] = {1, 0, 0, 2, 0, 0x20};
    int fd = t_file("f", "text");
    for (int i = 0; i < 4; i++) {
        OK(setxattr("f", "security.capability", cap, sizeof cap, 0));
        char b[64];
        CHECK_EQ(getxattr("f", "security.capability", b, sizeof b), 20);
        if (i == 0) CHECK_EQ(write(fd, "x", 1), 1);
        if (i == 1) OK(ftruncate(fd, 2));
        if (i == 2) OK(truncate("f", 1));
        if (i == 3) OK(fallocate(fd, 0, 0, 4096));
        CHECK_ERR(getxattr("f", "security.capability", b, sizeof b), ENODATA);
    }
}
TEST(eventfd_takes_eight_bytes) {
    int e = SYS(eventfd(0, EFD_NONBLOCK));
    uint64_t v[8] = {5};
    CHECK_ERR(write(e, v, 7), EINVAL);
    CHECK_ERR(write(e, v, 9), EINVAL);
    CHECK_ERR(write(e, v, 64), EINVAL);
    CHECK_EQ(write(e, v, 8), 8);
    CHECK_EQ(read(e, v, 64), 8);
    CHECK_EQ(v[0], 5);
}
TEST(many_record_locks) {
    int fd = t_file("f", "");
    long long start = t_now_ms();
    for (int i = 0; i < 6000; i++) {
        struct flock l = {.l_type = F_WRLCK, .l_start = i * 2, .l_len = 1};
        OK(fcntl(fd, F_SETLK, &l));
    }
    CHECK_CHILD({
        struct flock l = {.l_type = F_RDLCK, .l_start = 10001, .l_len = 100};
        OK(fcntl(fd, F_GETLK, &l));
        CHECK_EQ(l.l_start, 10002);
        l = (struct flock){.l_type = F_RDLCK, .l_start = 10001, .l_len = 1};
        OK(fcntl(fd, F_SETLK, &l));
    });
    struct flock all = {.l_type = F_UNLCK};
    OK(fcntl(fd, F_SETLK, &all));
    CHECK(t_now_ms() - start < 6000);
}
TEST(pipes_of_a_user_are_limited) {
    char b[32];
    t_slurp("/proc/sys/fs/pipe-user-pages-soft", b, sizeof b);
    int soft = atoi(b);
    struct rlimit l;
    OK(getrlimit(RLIMIT_NOFILE, &l));
    l.rlim_cur = l.rlim_max;
    OK(setrlimit(RLIMIT_NOFILE, &l));
    int most = soft / 16;
    if (soft < 32 || l.rlim_max < 2 * most + 50) SKIP("the limit is too far");
    CHECK_CHILD({
        OK(setgid(54322));
        OK(setuid(54322));
        int p[2], n = 0;
        for (;;) {
            SYS(pipe(p));
            if (fcntl(p[0], F_GETPIPE_SZ) != 65536) break;
            n++;
        }
        CHECK_EQ(n, most);
        CHECK_EQ(fcntl(p[0], F_GETPIPE_SZ), 8192);
        CHECK_ERR(fcntl(p[0], F_SETPIPE_SZ, 65536), EPERM);
        CHECK_ERR(fcntl(p[0], F_SETPIPE_SZ, 2 << 20), EPERM);
        CHECK_EQ(fcntl(p[0], F_SETPIPE_SZ, 4096), 4096);
        close(5), close(6);
        SYS(pipe(p));
    });
}
TEST(open_files_are_counted) {
    unsigned long long before, after, max, file_max;
    char b[100];
    t_slurp("/proc/sys/fs/file-nr", b, sizeof b);
    MUST(sscanf(b, "%llu %*u %llu", &before, &max) == 2);
    t_slurp("/proc/sys/fs/file-max", b, sizeof b);
    file_max = strtoull(b, 0, 10);
    CHECK_EQ(max, file_max);
    for (int i = 0; i < 900; i++) SYS(eventfd(0, 0));
    t_slurp("/proc/sys/fs/file-nr", b, sizeof b);
    MUST(sscanf(b, "%llu", &after) == 1);
    CHECK(after >= before + 500 && after < before + 5000);
}
