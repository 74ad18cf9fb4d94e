// POSIX message queues.
#include "ns.h"
#include <linux/netlink.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>

static mqd_t make(const char *name, int flags, long max, long size) {
    struct mq_attr a = {.mq_maxmsg = max, .mq_msgsize = size};
    return mq_open(name, O_CREAT | O_RDWR | flags, 0600, &a);
}
static struct timespec in_ms(int ms) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_nsec += ms * 1000000L;
    ts.tv_sec += ts.tv_nsec / 1000000000;
    ts.tv_nsec %= 1000000000;
    return ts;
}

TEST(open_and_unlink) {
    CHECK_ERR(mq_open("/a", O_RDWR), ENOENT);
    mqd_t q = SYS(mq_open("/a", O_CREAT | O_RDWR, 0640, NULL));
    CHECK_ERR(mq_open("/a", O_CREAT | O_EXCL | O_RDWR, 0600, NULL), EEXIST);
    mqd_t r = SYS(mq_open("/a", O_RDONLY));
    struct mq_attr a;
    OK(mq_getattr(q, &a));
    CHECK_EQ(a.mq_maxmsg, 10);
    CHECK_EQ(a.mq_msgsize, 8192);
    OK(a.mq_curmsgs | a.mq_flags);
    CHECK_EQ(fcntl(q, F_GETFD), FD_CLOEXEC);
    struct stat st;
    OK(fstat(q, &st));
    CHECK_EQ(st.st_mode, S_IFREG | 0640);
    CHECK_EQ(st.st_size, 80);
    OK(mq_unlink("/a"));
    CHECK_ERR(mq_unlink("/a"), ENOENT);
    CHECK_ERR(mq_open("/a", O_RDWR), ENOENT);
    OK(mq_send(q, "x", 1, 0)); // still there
    char b[8192];
    CHECK_EQ(mq_receive(r, b, sizeof b, 0), 1);
    OK(mq_close(q));
    CHECK_ERR(mq_close(q), EBADF);
    CHECK_ERR(mq_send(q, "x", 1, 0), EBADF);
}
TEST(names) {
    CHECK_ERR(mq_open("/a/b", O_CREAT | O_RDWR, 0600, NULL), EACCES);
    CHECK_ERR(syscall(SYS_mq_open, "", O_CREAT | O_RDWR, 0600, NULL), ENOENT);
    CHECK_ERR(syscall(SYS_mq_open, "..", O_CREAT | O_RDWR, 0600, NULL), EACCES);
    CHECK_ERR(syscall(SYS_mq_open, "/a", O_CREAT | O_RDWR, 0600, NULL), EACCES);
    char n[300];
    memset(n, 'x', sizeof n);
    n[256] = 0;
    CHECK_ERR(syscall(SYS_mq_open, n, O_CREAT | O_RDWR, 0600, NULL), ENAMETOOLONG);
    n[255] = 0;
    int q = SYS(syscall(SYS_mq_open, n, O_CREAT | O_RDWR, 0600, NULL));
    close(q);
    OK(syscall(SYS_mq_unlink, n));
    CHECK_ERR(syscall(SYS_mq_open, BAD_PTR, O_RDWR), EFAULT);
}
TEST(attributes) {
    CHECK_ERR(make("/a", 0, 0, 1), EINVAL);
    CHECK_ERR(make("/a", 0, 1, 0), EINVAL);
    CHECK_ERR(make("/a", 0, -1, 1), EINVAL);
    CHECK_ERR(make("/a", 0, 65537, 1), EINVAL);
    CHECK_ERR(make("/a", 0, 1, (16 << 20) + 1), EINVAL);
    CHECK_CHILD({
        if (getuid() == 0) OK(setuid(65534));
        CHECK_ERR(make("/a", 0, 11, 1), EINVAL);
        CHECK_ERR(make("/a", 0, 1, 8193), EINVAL);
    });
    mqd_t q = SYS(make("/a", 0, 3, 16));
    struct mq_attr a, o;
    OK(mq_getattr(q, &a));
    CHECK_EQ(a.mq_maxmsg, 3);
    CHECK_EQ(a.mq_msgsize, 16);
    a.mq_flags = O_NONBLOCK;
    OK(mq_setattr(q, &a, &o));
    OK(o.mq_flags);
    OK(mq_getattr(q, &o));
    CHECK_EQ(o.mq_flags, O_NONBLOCK);
    CHECK(fcntl(q, F_GETFL) & O_NONBLOCK);
    a.mq_flags = O_APPEND;
    CHECK_ERR(mq_setattr(q, &a, 0), EINVAL);
    CHECK_ERR(mq_getattr(0, &a), EBADF);
    CHECK_ERR(syscall(SYS_mq_getsetattr, q, 0, BAD_PTR), EFAULT);
    mq_unlink("/a");
}
TEST(priorities) {
    mqd_t q = SYS(make("/a", O_NONBLOCK, 8, 16));
    char b[16];
    unsigned p;
    OK(mq_send(q, "low", 3, 1));
    OK(mq_send(q, "high", 4, 32767));
    OK(mq_send(q, "low2", 4, 1));
    OK(mq_send(q, "", 0, 5));
    CHECK_ERR(mq_send(q, "x", 1, 32768), EINVAL);
    CHECK_ERR(mq_send(q, b, 17, 0), EMSGSIZE);
    CHECK_ERR(mq_receive(q, b, 15, &p), EMSGSIZE);
    CHECK_EQ(mq_receive(q, b, 16, &p), 4);
    CHECK_MEM(b, "high", 4);
    CHECK_EQ(p, 32767);
    OK(mq_receive(q, b, 16, &p));
    CHECK_EQ(p, 5);
    CHECK_EQ(mq_receive(q, b, 16, 0), 3);
    CHECK_EQ(mq_receive(q, b, 16, &p), 4);
    CHECK_MEM(b, "low2", 4);
    CHECK_ERR(mq_receive(q, b, 16, 0), EAGAIN);
    CHECK_ERR(mq_send(q, BAD_PTR, 4, 0), EFAULT);
    for (int i = 0; i < 8; i++) OK(mq_send(q, "x", 1, 0));
    CHECK_ERR(mq_send(q, "x", 1, 0), EAGAIN);
    mq_unlink("/a");
}
TEST(timeouts) {
    mqd_t q = SYS(make("/a", 0, 1, 16));
    char b[16];
    struct timespec ts = in_ms(30), bad = {0, 1000000000}, past = {1, 0};
    CHECK_ERR(mq_timedreceive(q, b, 16, 0, &ts), ETIMEDOUT);
    CHECK_ERR(mq_timedreceive(q, b, 16, 0, &past), ETIMEDOUT);
    CHECK_ERR(mq_timedreceive(q, b, 16, 0, &bad), EINVAL);
    OK(mq_timedsend(q, "x", 1, 0, &past));
    ts = in_ms(30);
    CHECK_ERR(mq_timedsend(q, "x", 1, 0, &ts), ETIMEDOUT);
    CHECK_EQ(mq_timedreceive(q, b, 16, 0, &past), 1);
    CHECK_ERR(mq_timedreceive(q, b, 16, 0, BAD_PTR), EFAULT);
    mq_unlink("/a");
}
TEST(blocking) {
    mqd_t q = SYS(make("/a", 0, 1, 16));
    char b[16];
    pid_t p = FORK();
    if (p == 0) {
        t_ms(30);
        OK(mq_send(q, "one", 3, 0));
        OK(mq_send(q, "two", 3, 0));
        _exit(0);
    }
    CHECK_EQ(mq_receive(q, b, 16, 0), 3);
    t_ms(30);
    CHECK_EQ(mq_receive(q, b, 16, 0), 3);
    CHECK_MEM(b, "two", 3);
    CHECK_STATUS(t_status(p), "exit 0");
    t_pester(0);
    CHECK_ERR(mq_receive(q, b, 16, 0), EINTR);
    t_pester_stop();
    mq_unlink("/a");
}
TEST(permissions) {
    mqd_t q = SYS(make("/a", 0, 1, 16)), r = SYS(mq_open("/a", O_RDONLY)), w = SYS(mq_open("/a", O_WRONLY));
    char b[16];
    CHECK_ERR(mq_send(r, "x", 1, 0), EBADF);
    CHECK_ERR(mq_receive(w, b, 16, 0), EBADF);
    CHECK_ERR(syscall(SYS_mq_open, "a", O_RDWR | O_WRONLY), EINVAL);
    CHECK_CHILD({
        if (getuid() == 0) {
            OK(setgid(65534));
            OK(setuid(65534));
            CHECK_ERR(mq_open("/a", O_RDONLY), EACCES);
            CHECK_ERR(mq_unlink("/a"), EACCES); // the library makes it of EPERM
        }
    });
    mq_unlink("/a");
    (void)q;
}
TEST(polling) {
    mqd_t q = SYS(make("/a", 0, 1, 16));
    struct pollfd p = {q, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLOUT);
    int e = SYS(epoll_create1(0));
    struct epoll_event ev = {EPOLLIN, {.u32 = 7}}, got;
    OK(epoll_ctl(e, EPOLL_CTL_ADD, q, &ev));
    OK(epoll_wait(e, &got, 1, 0));
    OK(mq_send(q, "x", 1, 0));
    CHECK_EQ(epoll_wait(e, &got, 1, 1000), 1);
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLIN);
    mq_unlink("/a");
}
static volatile int told, told_value, told_code, told_pid;
static void on_message(int s, siginfo_t *si, void *u) { told = s, told_value = si->si_value.sival_int, told_code = si->si_code, told_pid = si->si_pid; }
TEST(notification) {
    mqd_t q = SYS(make("/a", O_NONBLOCK, 4, 16));
    struct sigaction sa = {.sa_sigaction = on_message, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGUSR1, &sa, 0));
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
    OK(mq_notify(q, &ev));
    CHECK_ERR(mq_notify(q, &ev), EBUSY);
    CHECK_CHILD(CHECK_ERR(mq_notify(q, &ev), EBUSY); OK(mq_notify(q, 0)));
    pid_t p = FORK();
    if (p == 0) {
        OK(mq_send(q, "x", 1, 0));
        _exit(0);
    }
    t_status(p);
    CHECK_EQ(told, SIGUSR1);
    CHECK_EQ(told_value, 42);
    CHECK_EQ(told_code, SI_MESGQ);
    CHECK_EQ(told_pid, p);
    told = 0;
    OK(mq_notify(q, &ev)); // not for the second message in a queue
    OK(mq_send(q, "x", 1, 0));
    OK(told);
    OK(mq_notify(q, 0));
    OK(mq_notify(q, &ev));
    OK(mq_notify(q, 0));
    ev.sigev_notify = 99;
    CHECK_ERR(mq_notify(q, &ev), EINVAL);
    ev.sigev_notify = SIGEV_SIGNAL, ev.sigev_signo = 65;
    CHECK_ERR(mq_notify(q, &ev), EINVAL);
    ev.sigev_notify = SIGEV_NONE;
    OK(mq_notify(q, &ev));
    mq_unlink("/a");
}
TEST(notification_ends_with_close) {
    mqd_t q = SYS(make("/a", O_NONBLOCK, 4, 16)), r = SYS(mq_open("/a", O_RDWR));
    struct sigevent ev = {.sigev_notify = SIGEV_NONE};
    OK(mq_notify(q, &ev));
    OK(mq_close(q));
    OK(mq_notify(r, &ev));
    CHECK_CHILD(_exit(0));
    CHECK_ERR(mq_notify(r, &ev), EBUSY);
    mq_unlink("/a");
}
TEST(rlimit_msgqueue) {
    CHECK_CHILD({
        if (getuid() == 0) OK(setuid(65533));
        struct rlimit l = {20000, 20000};
        OK(setrlimit(RLIMIT_MSGQUEUE, &l));
        mqd_t q = SYS(make("/l", 0, 2, 8000));
        CHECK_ERR(make("/m", 0, 2, 8000), EMFILE);
        mq_close(q);
        OK(mq_unlink("/l"));
        q = SYS(make("/m", 0, 2, 8000));
        OK(mq_unlink("/m"));
    });
}
TEST(as_a_file) {
    if (getuid() != 0) SKIP("needs root");
    OK(mkdir("m", 0700));
    OK(mount("none", "m", "mqueue", 0, 0));
    mqd_t q = SYS(make("/seen", 0, 4, 100));
    char b[200];
    t_slurp("m/seen", b, sizeof b);
    CHECK_STR(b, "QSIZE:0          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n");
    OK(mq_send(q, "hello", 5, 0));
    t_slurp("m/seen", b, sizeof b);
    CHECK_STR(b, "QSIZE:5          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n");
    OK(system("test \"$(ls m)\" = seen"));
    OK(chmod("m/seen", 0644));
    int fd = SYS(open("m/new", O_CREAT | O_RDWR, 0600));
    struct mq_attr a;
    OK(mq_getattr(fd, &a));
    CHECK_EQ(a.mq_maxmsg, 10);
    CHECK_ERR(mkdir("m/d", 0700), EPERM);
    CHECK_ERR(write(fd, "x", 1), EINVAL);
    close(fd);
    OK(unlink("m/new"));
    OK(mq_unlink("/seen"));
    CHECK_ERR(access("m/seen", F_OK), ENOENT);
    struct stat st;
    OK(stat("m", &st));
    CHECK_EQ(st.st_mode, S_IFDIR | 01777);
    OK(umount("m"));
    t_slurp("/proc/sys/fs/mqueue/msg_max", b, sizeof b);
    CHECK_STR(b, "10\n");
}

static long unlink_queue(const char *name) { return syscall(SYS_mq_unlink, name); }

// Names are made and removed by those who may write the directory.
TEST(the_directory_decides) {
    if (getuid() != 0) SKIP("needs root");
    SYS(unshare(CLONE_NEWIPC | CLONE_NEWNS));
    OK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
    OK(mkdir("m", 0755));
    OK(mount("none", "m", "mqueue", 0, 0));
    struct stat st;
    OK(stat("m", &st));
    CHECK_EQ(st.st_uid, 0);
    for (int i = 0; i < 3; i++) close(SYS(make((char[]){'/', 'a' + i, 0}, 0, 1, 16)));
    OK(chown("m/b", 1000, 1000));
    OK(chmod("m/b", 0666));
    CHECK_CHILD({
        become(1000);
        CHECK_ERR(unlink_queue("a"), EPERM);
        CHECK_ERR(unlink_queue("missing"), ENOENT);
    });
    OK(chmod("m", 01755));
    CHECK_CHILD({
        become(1000);
        CHECK_ERR(unlink_queue("b"), EACCES);
        CHECK_ERR(unlink_queue("a"), EACCES);
        CHECK_ERR(unlink_queue("missing"), ENOENT);
        CHECK_ERR(make("/new", 0, 1, 16), EACCES);
        close(SYS(make("/b", 0, 1, 16)));
    });
    OK(chmod("m", 0777));
    CHECK_CHILD({
        become(1000);
        OK(unlink_queue("b"));
        OK(unlink_queue("a"));
        close(SYS(make("/new", 0, 1, 16)));
    });
    // Capabilities over what a user namespace has no number for are none.
    OK(chmod("m", 01777));
    OK(chown("m/new", 1000, 5));
    CHECK_CHILD({
        become(1000);
        own_namespaces(0);
        CHECK_ERR(unlink_queue("c"), EPERM);
        OK(unlink_queue("new"));
    });
    OK(unlink_queue("c"));
}
TEST(the_directory_of_a_namespace_is_its_makers) {
    if (getuid() != 0) SKIP("needs root");
    CHECK_CHILD({
        become(1000);
        own_namespaces(CLONE_NEWIPC | CLONE_NEWNS);
        struct stat st;
        OK(mount("none", "/tmp", "mqueue", 0, 0));
        OK(stat("/tmp", &st));
        CHECK_EQ(st.st_uid, 0);
        CHECK_EQ(st.st_gid, 0);
        OK(chmod("/tmp", 0700));
    });
}

static void in_thread(union sigval v) {
    sem_post(v.sival_ptr);
}
// glibc's threads: a cookie on a netlink socket says that there is a message, or will be none.
TEST(notify_by_thread) {
    mqd_t q = SYS(make("/told", 0, 10, 8192));
    OK(mq_unlink("/told"));
    sem_t posted;
    OK(sem_init(&posted, 0, 0));
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = in_thread, .sigev_value.sival_ptr = &posted};
    for (int i = 0; i < 3; i++) {
        OK(mq_notify(q, &ev));
        CHECK_ERR(mq_notify(q, &ev), EBUSY);
        OK(mq_send(q, "x", 1, 0));
        OK(sem_wait(&posted));
        char b[8192];
        CHECK_EQ(mq_receive(q, b, sizeof b, 0), 1);
    }
    OK(mq_notify(q, &ev));
    OK(mq_notify(q, 0));
    OK(mq_send(q, "x", 1, 0));
    t_ms(20);
    CHECK_ERR(sem_trywait(&posted), EAGAIN);
    OK(mq_close(q));
}
TEST(notify_cookies) {
    mqd_t q = SYS(make("/told", 0, 10, 8192));
    OK(mq_unlink("/told"));
    int s = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, 0)), other = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    char cookie[32], got[64];
    for (int i = 0; i < 32; i++) cookie[i] = i;
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD, .sigev_signo = s, .sigev_value.sival_ptr = cookie};
    OK(syscall(SYS_mq_notify, q, &ev));
    ev.sigev_notify = SIGEV_SIGNAL, ev.sigev_signo = SIGUSR1;
    CHECK_ERR(syscall(SYS_mq_notify, q, &ev), EBUSY);
    ev.sigev_notify = SIGEV_THREAD, ev.sigev_signo = s;
    CHECK_ERR(recv(s, got, sizeof got, 0), EAGAIN);
    OK(mq_send(q, "x", 1, 0));
    CHECK_EQ(recv(s, got, sizeof got, 0), 32);
    CHECK_MEM(got, cookie, 31);
    CHECK_EQ(got[31], 1);
    OK(syscall(SYS_mq_notify, q, &ev));
    OK(syscall(SYS_mq_notify, q, 0));
    CHECK_EQ(recv(s, got, sizeof got, 0), 32);
    CHECK_EQ(got[31], 2);
    OK(syscall(SYS_mq_notify, q, &ev));
    // Any descriptor of the queue that the process closes.
    OK(mq_close(dup(q)));
    CHECK_EQ(recv(s, got, sizeof got, 0), 32);
    CHECK_EQ(got[31], 2);
    ev.sigev_signo = other;
    CHECK_ERR(syscall(SYS_mq_notify, q, &ev), EINVAL);
    ev.sigev_signo = q;
    CHECK_ERR(syscall(SYS_mq_notify, q, &ev), ENOTSOCK);
    ev.sigev_signo = 999;
    CHECK_ERR(syscall(SYS_mq_notify, q, &ev), EBADF);
    ev.sigev_value.sival_ptr = (void *)8;
    CHECK_ERR(syscall(SYS_mq_notify, q, &ev), EFAULT);
    OK(mq_close(q));
}
TEST(a_mount_outlives_its_namespace) {
    if (geteuid() != 0) SKIP("not root");
    CHECK_CHILD({
        if (unshare(CLONE_NEWNS | CLONE_NEWIPC) < 0) SKIP("no namespaces");
        OK(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
        OK(mkdir("m", 0755));
        OK(mount("none", "m", "mqueue", 0, 0));
        close(SYS(creat("m/a", 0600)));
        OK(unshare(CLONE_NEWIPC));
        CHECK_ERR(creat("m/b", 0600), EACCES);
        CHECK_ERR(open("m/b", O_RDWR | O_CREAT, 0600), EACCES);
    });
}
