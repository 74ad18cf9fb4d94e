// Pipes, FIFOs, eventfd, signalfd, inotify.
#include "t.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

TEST(pipe_carries_bytes_in_order) {
    int p[2];
    OK(pipe(p));
    char b[16] = "";
    CHECK_EQ(write(p[1], "abc", 3), 3);
    CHECK_EQ(write(p[1], "defg", 4), 4);
    CHECK_EQ(read(p[0], b, 2), 2);
    CHECK_EQ(read(p[0], b + 2, 14), 5);
    CHECK_STR(b, "abcdefg");
    int n = -1;
    CHECK_EQ(write(p[1], "xyz", 3), 3);
    OK(ioctl(p[0], FIONREAD, &n));
    CHECK_EQ(n, 3);
}
TEST(pipe2_flags_and_errors) {
    int p[2];
    OK(pipe2(p, O_CLOEXEC | O_NONBLOCK));
    CHECK_EQ(fcntl(p[0], F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(p[0], F_GETFL), O_RDONLY | O_NONBLOCK);
    CHECK_EQ(fcntl(p[1], F_GETFL), O_WRONLY | O_NONBLOCK);
    CHECK_ERR(pipe2(p, 0x100), EINVAL);
    CHECK_ERR(syscall(SYS_pipe, BAD_PTR), EFAULT);
    char c;
    CHECK_ERR(read(p[0], &c, 1), EAGAIN);
    CHECK_ERR(write(p[0], &c, 1), EBADF);
    CHECK_ERR(read(p[1], &c, 1), EBADF);
    CHECK_ERR(lseek(p[0], 0, SEEK_CUR), ESPIPE);
    CHECK_ERR(read(p[0], BAD_PTR, 1), EAGAIN);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK_ERR(read(p[0], BAD_PTR, 1), EFAULT);
    CHECK_EQ(read(p[0], &c, 1), 1);
    CHECK_ERR(write(p[1], BAD_PTR, 1), EFAULT);
}
TEST(pipe_end_of_file) {
    int p[2];
    char c;
    SYS(pipe(p));
    CHECK_EQ(write(p[1], "x", 1), 1);
    close(p[1]);
    CHECK_EQ(read(p[0], &c, 1), 1);
    CHECK_EQ(read(p[0], &c, 1), 0);
    CHECK_EQ(read(p[0], &c, 1), 0);
}
TEST(pipe_full_nonblocking) {
    int p[2];
    SYS(pipe2(p, O_NONBLOCK));
    static char b[70000];
    CHECK_EQ(write(p[1], b, 70000), 65536);
    CHECK_ERR(write(p[1], b, 1), EAGAIN);
    CHECK_EQ(read(p[0], b, 4096), 4096);
    CHECK_EQ(write(p[1], b, 4096), 4096);
    CHECK_ERR(write(p[1], b, 1), EAGAIN);
    CHECK_EQ(read(p[0], b, 100), 100);
    CHECK_ERR(write(p[1], b, 4096), EAGAIN); // PIPE_BUF or nothing
}
TEST(pipe_big_transfer) {
    int p[2];
    SYS(pipe(p));
    size_t n = 3 << 20;
    pid_t c = FORK();
    if (c == 0) {
        close(p[0]);
        unsigned char *b = malloc(n);
        for (size_t i = 0; i < n; i++) b[i] = i * 31 >> 3;
        CHECK_EQ(write(p[1], b, n), n);
        _exit(0);
    }
    close(p[1]);
    unsigned char b[7777];
    size_t at = 0;
    ssize_t r;
    while ((r = read(p[0], b, sizeof b)) > 0)
        for (ssize_t i = 0; i < r; i++, at++)
            if (b[i] != (unsigned char)(at * 31 >> 3)) {
                CHECK(!"a byte is wrong");
                return;
            }
    CHECK_EQ(at, n);
    CHECK_STATUS(t_status(c), "exit 0");
}
TEST(pipe_writes_up_to_pipe_buf_are_whole) {
    int p[2];
    SYS(pipe(p));
    for (int i = 0; i < 4; i++)
        if (FORK() == 0) {
            char b[1000];
            memset(b, 'a' + i, sizeof b);
            for (int k = 0; k < 100; k++) MUST(write(p[1], b, sizeof b) == sizeof b);
            _exit(0);
        }
    close(p[1]);
    char b[1000];
    int blocks = 0;
    for (;;) {
        size_t at = 0;
        ssize_t r = 1;
        while (at < sizeof b && (r = read(p[0], b + at, sizeof b - at)) > 0) at += r;
        if (at == 0) break;
        CHECK_EQ(at, sizeof b);
        for (size_t i = 1; i < at; i++)
            if (b[i] != b[0]) {
                CHECK(!"blocks are mixed");
                return;
            }
        blocks++;
    }
    CHECK_EQ(blocks, 400);
    while (wait(0) > 0) {}
}
TEST(pipe_reader_wakes) {
    int p[2], q[2];
    SYS(pipe(p));
    SYS(pipe(q));
    pid_t c = FORK();
    if (c == 0) {
        char ch;
        for (int i = 0; i < 500; i++) {
            MUST(read(p[0], &ch, 1) == 1);
            MUST(write(q[1], &ch, 1) == 1);
        }
        _exit(0);
    }
    for (int i = 0; i < 500; i++) {
        char ch = i, d;
        MUST(write(p[1], &ch, 1) == 1);
        MUST(read(q[0], &d, 1) == 1);
        MUST(d == ch);
    }
    CHECK_STATUS(t_status(c), "exit 0");
}
TEST(pipe_blocked_writer_gets_epipe) {
    int p[2];
    SYS(pipe(p));
    struct t_gate g = t_gate();
    pid_t c = FORK();
    if (c == 0) {
        close(p[0]);
        signal(SIGPIPE, SIG_IGN);
        static char b[65536];
        CHECK_EQ(write(p[1], b, 65536), 65536);
        t_open(g);
        CHECK_ERR(write(p[1], b, 1), EPIPE);
        _exit(0);
    }
    t_pass(g);
    t_ms(5);
    close(p[0]);
    CHECK_STATUS(t_status(c), "exit 0");
}
TEST(pipe_packet_mode) {
    int p[2];
    SYS(pipe2(p, O_DIRECT));
    char b[16];
    CHECK_EQ(write(p[1], "one", 3), 3);
    CHECK_EQ(write(p[1], "three", 5), 5);
    CHECK_EQ(read(p[0], b, 16), 3);
    CHECK_EQ(read(p[0], b, 2), 2); // the rest of the packet is lost
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK_EQ(read(p[0], b, 16), 1);
}
TEST(pipe_poll_states) {
    int p[2];
    SYS(pipe(p));
    struct pollfd r = {p[0], POLLIN, 0}, w = {p[1], POLLOUT, 0};
    OK(poll(&r, 1, 0));
    CHECK_EQ(poll(&w, 1, 0), 1);
    CHECK_EQ(w.revents, POLLOUT);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK_EQ(poll(&r, 1, 0), 1);
    CHECK_EQ(r.revents, POLLIN);
    close(p[1]);
    poll(&r, 1, 0);
    CHECK_EQ(r.revents, POLLIN | POLLHUP);
    char c;
    CHECK_EQ(read(p[0], &c, 1), 1);
    poll(&r, 1, 0);
    CHECK_EQ(r.revents, POLLHUP);
    SYS(pipe(p));
    close(p[0]);
    w.fd = p[1];
    poll(&w, 1, 0);
    CHECK_EQ(w.revents, POLLOUT | POLLERR);
}
TEST(fifo_open_waits_for_the_other_side) {
    SYS(mkfifo("p", 0644));
    pid_t c = FORK();
    if (c == 0) {
        int w = SYS(open("p", O_WRONLY));
        CHECK_EQ(write(w, "hello", 5), 5);
        _exit(0);
    }
    int r = SYS(open("p", O_RDONLY));
    char b[16] = "";
    CHECK_EQ(read(r, b, 16), 5);
    CHECK_STR(b, "hello");
    CHECK_STATUS(t_status(c), "exit 0");
    CHECK_EQ(read(r, b, 16), 0);
    // a new writer revives it
    c = FORK();
    if (c == 0) {
        int w = SYS(open("p", O_WRONLY));
        CHECK_EQ(write(w, "x", 1), 1);
        _exit(0);
    }
    t_status(c);
    CHECK_EQ(read(r, b, 16), 1);
}
TEST(fifo_open_interrupted) {
    SYS(mkfifo("p", 0644));
    t_pester(0);
    CHECK_ERR(open("p", O_RDONLY), EINTR);
    CHECK_ERR(open("p", O_WRONLY), EINTR);
}
TEST(fifo_read_write_never_waits) {
    SYS(mkfifo("p", 0644));
    int f = SYS(open("p", O_RDWR));
    char c;
    CHECK_EQ(write(f, "x", 1), 1);
    CHECK_EQ(read(f, &c, 1), 1);
    struct stat st;
    OK(fstat(f, &st));
    CHECK(S_ISFIFO(st.st_mode));
}
TEST(pipe_reopened_through_proc) {
    int p[2];
    SYS(pipe(p));
    char n[64], c;
    sprintf(n, "/proc/self/fd/%d", p[1]);
    int w = SYS(open(n, O_WRONLY));
    CHECK_EQ(write(w, "z", 1), 1);
    CHECK_EQ(read(p[0], &c, 1), 1);
    CHECK_EQ(c, 'z');
    char t[64] = "";
    CHECK(readlink(n, t, 63) > 0);
    CHECK(!strncmp(t, "pipe:[", 6));
}
TEST(eventfd_counter) {
    int e = SYS(eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC));
    uint64_t v = 0;
    CHECK_EQ(read(e, &v, 8), 8);
    CHECK_EQ(v, 3);
    CHECK_ERR(read(e, &v, 8), EAGAIN);
    v = 5;
    CHECK_EQ(write(e, &v, 8), 8);
    CHECK_EQ(write(e, &v, 8), 8);
    CHECK_EQ(read(e, &v, 8), 8);
    CHECK_EQ(v, 10);
    v = -1;
    CHECK_ERR(write(e, &v, 8), EINVAL);
    v = -2;
    CHECK_EQ(write(e, &v, 8), 8);
    v = 1;
    CHECK_ERR(write(e, &v, 8), EAGAIN);
    CHECK_ERR(read(e, &v, 4), EINVAL);
    CHECK_ERR(write(e, &v, 4), EINVAL);
    CHECK_ERR(eventfd(0, 0x100), EINVAL);
    struct pollfd p = {e, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLIN);
}
TEST(eventfd_semaphore_and_blocking) {
    int e = SYS(eventfd(2, EFD_SEMAPHORE));
    uint64_t v;
    CHECK_EQ(read(e, &v, 8), 8);
    CHECK_EQ(v, 1);
    CHECK_EQ(read(e, &v, 8), 8);
    pid_t c = FORK();
    if (c == 0) {
        t_ms(5);
        v = 1;
        CHECK_EQ(write(e, &v, 8), 8);
        _exit(0);
    }
    CHECK_EQ(read(e, &v, 8), 8);
    CHECK_EQ(v, 1);
    t_status(c);
    t_pester(0);
    CHECK_ERR(read(e, &v, 8), EINTR);
}
TEST(signalfd_reads_signals) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGUSR1);
    sigaddset(&m, 40);
    SYS(sigprocmask(SIG_BLOCK, &m, 0));
    int s = SYS(signalfd(-1, &m, SFD_NONBLOCK | SFD_CLOEXEC));
    struct signalfd_siginfo i[4];
    CHECK_ERR(read(s, i, sizeof i), EAGAIN);
    kill(getpid(), SIGUSR1);
    sigqueue(getpid(), 40, (union sigval){.sival_int = 5});
    sigqueue(getpid(), 40, (union sigval){.sival_int = 6});
    struct pollfd p = {s, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(read(s, i, sizeof i), 3 * sizeof *i);
    CHECK_EQ(i[0].ssi_signo, SIGUSR1);
    CHECK_EQ(i[0].ssi_code, SI_USER);
    CHECK_EQ(i[0].ssi_pid, getpid());
    CHECK_EQ(i[1].ssi_signo, 40);
    CHECK_EQ(i[1].ssi_int, 5);
    CHECK_EQ(i[2].ssi_int, 6);
    CHECK_ERR(read(s, i, 10), EINVAL);
    sigdelset(&m, SIGUSR1);
    CHECK_EQ(signalfd(s, &m, 0), s);
    kill(getpid(), SIGUSR1);
    CHECK_ERR(read(s, i, sizeof i), EAGAIN);
    CHECK_ERR(signalfd(0, &m, 0), EINVAL);
    CHECK_ERR(signalfd(999, &m, 0), EBADF);
    CHECK_ERR(signalfd(-1, &m, 0x100), EINVAL);
    CHECK_ERR(syscall(SYS_signalfd4, -1, &m, 4, 0), EINVAL);
    CHECK_ERR(syscall(SYS_signalfd4, -1, BAD_PTR, 8, 0), EFAULT);
}
TEST(signalfd_child_exit) {
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGCHLD);
    SYS(sigprocmask(SIG_BLOCK, &m, 0));
    int s = SYS(signalfd(-1, &m, 0));
    pid_t p = FORK();
    if (p == 0) _exit(13);
    struct signalfd_siginfo i;
    CHECK_EQ(read(s, &i, sizeof i), sizeof i);
    CHECK_EQ(i.ssi_signo, SIGCHLD);
    CHECK_EQ(i.ssi_pid, p);
    CHECK_EQ(i.ssi_status, 13);
    CHECK_EQ(i.ssi_code, CLD_EXITED);
    t_status(p);
}
static int next(int fd, char *name) {
    static char b[4096] __attribute__((aligned(8)));
    static int at, n;
    if (at >= n) {
        n = read(fd, b, sizeof b);
        at = 0;
        if (n <= 0) return n = 0, -1;
    }
    struct inotify_event *e = (void *)(b + at);
    at += sizeof *e + e->len;
    strcpy(name, e->len ? e->name : "");
    return e->mask;
}
TEST(inotify_directory) {
    int fd = SYS(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    char n[256];
    SYS(mkdir("d", 0755));
    int w = SYS(inotify_add_watch(fd, "d", IN_ALL_EVENTS));
    CHECK_EQ(w, 1);
    t_make("d/f", "x");
    CHECK_EQ(next(fd, n), IN_CREATE);
    CHECK_STR(n, "f");
    CHECK_EQ(next(fd, n), IN_OPEN);
    CHECK_EQ(next(fd, n), IN_MODIFY);
    CHECK_EQ(next(fd, n), IN_CLOSE_WRITE);
    SYS(mkdir("d/sub", 0755));
    CHECK_EQ(next(fd, n), IN_CREATE | IN_ISDIR);
    SYS(rename("d/f", "d/g"));
    CHECK_EQ(next(fd, n), IN_MOVED_FROM);
    CHECK_STR(n, "f");
    CHECK_EQ(next(fd, n), IN_MOVED_TO);
    CHECK_STR(n, "g");
    SYS(chmod("d/g", 0600));
    CHECK_EQ(next(fd, n), IN_ATTRIB);
    SYS(unlink("d/g"));
    CHECK_EQ(next(fd, n), IN_DELETE);
    CHECK_EQ(next(fd, n), -1);
    OK(inotify_rm_watch(fd, w));
    CHECK_EQ(next(fd, n), IN_IGNORED);
}
TEST(inotify_file) {
    int fd = SYS(inotify_init1(IN_NONBLOCK));
    char n[256], c;
    t_make("f", "x");
    SYS(inotify_add_watch(fd, "f", IN_ACCESS | IN_DELETE_SELF | IN_ATTRIB | IN_MOVE_SELF));
    int f = SYS(open("f", O_RDONLY));
    CHECK_EQ(read(f, &c, 1), 1);
    CHECK_EQ(next(fd, n), IN_ACCESS);
    close(f);
    SYS(rename("f", "g"));
    CHECK_EQ(next(fd, n), IN_MOVE_SELF);
    SYS(unlink("g"));
    CHECK_EQ(next(fd, n), IN_ATTRIB);
    CHECK_EQ(next(fd, n), IN_DELETE_SELF);
    CHECK_EQ(next(fd, n), IN_IGNORED);
}
TEST(inotify_errors) {
    int fd = SYS(inotify_init1(0));
    CHECK_ERR(inotify_init1(0x100), EINVAL);
    CHECK_ERR(inotify_add_watch(fd, "missing", IN_ACCESS), ENOENT);
    CHECK_ERR(inotify_add_watch(fd, ".", 0), EINVAL);
    CHECK_ERR(inotify_add_watch(0, ".", IN_ACCESS), EINVAL);
    CHECK_ERR(inotify_add_watch(999, ".", IN_ACCESS), EBADF);
    CHECK_ERR(inotify_rm_watch(fd, 99), EINVAL);
    t_make("f", "");
    CHECK_ERR(inotify_add_watch(fd, "f", IN_ACCESS | IN_ONLYDIR), ENOTDIR);
    int w = SYS(inotify_add_watch(fd, "f", IN_ACCESS));
    CHECK_EQ(inotify_add_watch(fd, "f", IN_MODIFY), w);
    CHECK_ERR(inotify_add_watch(fd, "f", IN_MODIFY | IN_MASK_CREATE), EEXIST);
}
// Before it waits for the pipe, splice(2) finds that the other file cannot take part.
TEST(splice_knows_some_files_only) {
    int p[2], s[2], v[] = {SYS(eventfd(5, 0)), SYS(timerfd_create(CLOCK_REALTIME, 0)), SYS(epoll_create1(0)), SYS(inotify_init()),
                           SYS(syscall(SYS_pidfd_open, getpid(), 0)), SYS(open("/", O_RDONLY))};
    SYS(pipe(p));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    for (int i = 0; i < 6; i++) {
        CHECK_ERR(splice(v[i], 0, p[1], 0, 3, 0), EINVAL);
        // Descriptors for reading alone are refused first.
        CHECK_ERR(splice(p[0], 0, v[i], 0, 3, 0), i == 3 || i == 5 ? EBADF : EINVAL);
    }
    CHECK_EQ(write(p[1], "abc", 3), 3);
    CHECK_EQ(splice(p[0], 0, s[0], 0, 1, 0), 1);
    CHECK_EQ(splice(p[0], 0, SYS(open("/dev/null", O_WRONLY)), 0, 1, 0), 1);
    CHECK_EQ(splice(p[0], 0, SYS(memfd_create("m", 0)), 0, 1, 0), 1);
    CHECK_EQ(splice(SYS(open("/dev/zero", O_RDONLY)), 0, p[1], 0, 3, 0), 3);
}
TEST(vmsplice_takes_a_page_for_each_piece) {
    int p[2], n;
    SYS(pipe2(p, O_NONBLOCK));
    struct iovec one = {"x", 1};
    for (n = 0; vmsplice(p[1], &one, 1, SPLICE_F_NONBLOCK) == 1; n++) {}
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(n, 16);
    OK(ioctl(p[0], FIONREAD, &n));
    CHECK_EQ(n, 16);
    CHECK_ERR(write(p[1], "y", 1), EAGAIN); // not into a page of the program
    char b[64];
    CHECK_EQ(read(p[0], b, sizeof b), 16);
    // As many pages as a piece lies in.
    char *m = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(m, 'm', 8192);
    struct iovec two[2] = {{m + 4095, 2}, {m, 1}};
    for (n = 0; vmsplice(p[1], two, 1, SPLICE_F_NONBLOCK) == 2; n++) {}
    CHECK_EQ(n, 8);
    while (read(p[0], b, sizeof b) > 0) {}
    for (n = 0; vmsplice(p[1], two, 2, SPLICE_F_NONBLOCK) == 3; n++) {}
    CHECK_EQ(n, 5);
    OK(ioctl(p[0], FIONREAD, &n));
    CHECK_EQ(n, 16); // the last call found room for one page
    while (read(p[0], b, sizeof b) > 0) {}
    // What is written follows in a page of its own, which later writes share.
    CHECK_EQ(write(p[1], "ab", 2), 2);
    CHECK_EQ(vmsplice(p[1], &one, 1, 0), 1);
    CHECK_EQ(write(p[1], "cd", 2), 2);
    CHECK_EQ(write(p[1], "ef", 2), 2);
    CHECK_EQ(read(p[0], b, sizeof b), 7);
    CHECK_MEM(b, "abxcdef", 7);
    struct iovec bad[2] = {{m, 1}, {BAD_PTR, 1}};
    CHECK_EQ(vmsplice(p[1], bad, 2, 0), 1);
    CHECK_ERR(vmsplice(p[1], bad + 1, 1, 0), EFAULT);
}
static void fdinfo(int fd, char *to, size_t size) {
    char path[64];
    sprintf(path, "/proc/self/fdinfo/%d", fd);
    t_slurp(path, to, size);
}
TEST(fdinfo_of_event_descriptors) {
    char text[1024], want[256], *at;
    int a = SYS(eventfd(3, EFD_SEMAPHORE)), b = SYS(eventfd(0, 0)), id[2];
    for (int i = 0; i < 2; i++) {
        fdinfo(i ? b : a, text, sizeof text);
        CHECK((at = strstr(text, "eventfd-count:")) != 0);
        id[i] = -1;
        CHECK_EQ(sscanf(at, "eventfd-count: %*x eventfd-id: %d", &id[i]), 1);
        sprintf(want, "eventfd-count: %16x\neventfd-id: %d\neventfd-semaphore: %d\n", i ? 0 : 3, id[i], !i);
        CHECK_STR(at, want);
    }
    CHECK(id[0] >= 0 && id[1] >= 0 && id[0] != id[1]);
    close(a);
    int e = SYS(epoll_create1(0)), f = t_file("f", "text"), p[2];
    SYS(pipe(p));
    struct epoll_event ev = {EPOLLIN, {.u64 = 0x1234}};
    SYS(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &ev));
    struct stat st;
    SYS(fstat(p[0], &st));
    fdinfo(e, text, sizeof text);
    CHECK((at = strstr(text, "tfd:")) != 0);
    sprintf(want, "tfd: %8d events: %8x data: %16llx  pos:%lli ino:%lx sdev:%x\n", p[0], EPOLLIN | EPOLLERR | EPOLLHUP,
            0x1234ll, 0ll, (long)st.st_ino, major(st.st_dev) << 20 | minor(st.st_dev));
    CHECK_STR(at, want);
    (void)f;
}
