// Unix sockets: pairs and names, streams, datagrams, packets, descriptors and credentials in messages.
#include "t.h"
#include <grp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static socklen_t name(struct sockaddr_un *a, const char *s) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    strcpy(a->sun_path, s);
    return offsetof(struct sockaddr_un, sun_path) + strlen(s) + 1;
}
static socklen_t abstract(struct sockaddr_un *a, const char *s) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    sprintf(a->sun_path + 1, "%s-%d", s, getpid());
    return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a->sun_path + 1);
}
static int listener(const char *path, int type) {
    struct sockaddr_un a;
    int s = SYS(socket(AF_UNIX, type, 0));
    socklen_t n = name(&a, path);
    SYS(bind(s, (void *)&a, n));
    if (type != SOCK_DGRAM) SYS(listen(s, 5));
    return s;
}
static int try_connect(int s, const char *path) {
    struct sockaddr_un a;
    socklen_t n = name(&a, path);
    return connect(s, (void *)&a, n);
}

TEST(socketpair_stream) {
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s));
    CHECK_EQ(fcntl(s[0], F_GETFD), FD_CLOEXEC);
    char b[16] = "";
    CHECK_EQ(write(s[0], "abc", 3), 3);
    CHECK_EQ(write(s[0], "def", 3), 3);
    CHECK_EQ(read(s[1], b, 4), 4);
    CHECK_EQ(read(s[1], b + 4, 12), 2);
    CHECK_STR(b, "abcdef");
    CHECK_EQ(send(s[1], "x", 1, 0), 1);
    CHECK_EQ(recv(s[0], b, 16, 0), 1);
    close(s[0]);
    CHECK_EQ(read(s[1], b, 16), 0);
    CHECK_ERR(send(s[1], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_STATUS(CHILD((void)!write(s[1], "x", 1)), "signal 13");
}
TEST(socketpair_dgram_and_seqpacket) {
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        int s[2];
        OK(socketpair(AF_UNIX, types[i], 0, s));
        char b[16] = "";
        CHECK_EQ(send(s[0], "one", 3, 0), 3);
        CHECK_EQ(send(s[0], "", 0, 0), 0);
        CHECK_EQ(send(s[0], "three", 5, 0), 5);
        CHECK_EQ(recv(s[1], b, 16, 0), 3);
        CHECK_EQ(recv(s[1], b, 16, 0), 0);
        CHECK_EQ(recv(s[1], b, 2, MSG_TRUNC), 5);
        CHECK_MEM(b, "th", 2);
        CHECK_ERR(recv(s[1], b, 16, MSG_DONTWAIT), EAGAIN);
        int n = -1;
        CHECK_EQ(send(s[0], "12345", 5, 0), 5);
        OK(ioctl(s[1], FIONREAD, &n));
        CHECK_EQ(n, 5);
    }
}
TEST(socket_errors) {
    int s[2];
    CHECK_ERR(socket(AF_UNIX, 77, 0), EINVAL);
    CHECK_ERR(socket(AF_UNIX, SOCK_STREAM, 99), EPROTONOSUPPORT);
    CHECK_ERR(socket(46, SOCK_STREAM, 0), EAFNOSUPPORT);
    CHECK_ERR(socket(-1, SOCK_STREAM, 0), EAFNOSUPPORT);
    CHECK_ERR(socketpair(AF_UNIX, SOCK_STREAM, 0, BAD_PTR), EFAULT);
    CHECK_ERR(socketpair(46, SOCK_STREAM, 0, s), EAFNOSUPPORT);
    CHECK_ERR(socket(AF_UNIX, SOCK_STREAM | 0x10000, 0), EINVAL);
    char c;
    int u = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_ERR(recv(u, &c, 1, 0), EINVAL);
    CHECK_ERR(send(u, &c, 1, MSG_NOSIGNAL), ENOTCONN);
    CHECK_ERR(listen(u, 5), EINVAL);
    CHECK_ERR(accept(u, 0, 0), EINVAL);
    CHECK_ERR(bind(999, 0, 0), EBADF);
    CHECK_ERR(bind(t_file("f", ""), 0, 0), ENOTSOCK);
    CHECK_ERR(send(SYS(open("f", O_RDONLY)), "x", 1, 0), ENOTSOCK);
    struct sockaddr_un a;
    socklen_t n = name(&a, "s");
    a.sun_family = AF_INET;
    CHECK_ERR(bind(u, (void *)&a, n), EINVAL);
    CHECK_ERR(bind(u, (void *)&a, 1), EINVAL);
    CHECK_ERR(bind(u, BAD_PTR, 10), EFAULT);
    a.sun_family = AF_UNIX;
    CHECK_ERR(bind(u, (void *)&a, 200), EINVAL);
}
TEST(stream_server) {
    int l = listener("sock", SOCK_STREAM);
    struct stat st;
    OK(stat("sock", &st));
    CHECK(S_ISSOCK(st.st_mode));
    pid_t p = FORK();
    if (p == 0) {
        int c = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
        OK(try_connect(c, "sock"));
        char b[16] = "";
        CHECK_EQ(write(c, "hi", 2), 2);
        CHECK_EQ(read(c, b, 16), 5);
        CHECK_STR(b, "hello");
        _exit(0);
    }
    struct sockaddr_un a;
    socklen_t n = sizeof a;
    int c = SYS(accept4(l, (void *)&a, &n, SOCK_NONBLOCK | SOCK_CLOEXEC));
    CHECK_EQ(n, 2); // the peer has no name
    CHECK_EQ(a.sun_family, AF_UNIX);
    CHECK_EQ(fcntl(c, F_GETFD), FD_CLOEXEC);
    CHECK(fcntl(c, F_GETFL) & O_NONBLOCK);
    struct pollfd f = {c, POLLIN, 0};
    CHECK_EQ(poll(&f, 1, -1), 1);
    char b[16] = "";
    CHECK_EQ(read(c, b, 16), 2);
    CHECK_EQ(write(c, "hello", 5), 5);
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_EQ(read(c, b, 16), 0);
    n = sizeof a;
    OK(getsockname(c, (void *)&a, &n));
    CHECK_STR(a.sun_path, "sock");
    CHECK_ERR(accept4(l, 0, 0, 0x100), EINVAL);
}
TEST(connect_errors) {
    int s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_ERR(try_connect(s, "missing"), ENOENT);
    t_make("plain", "");
    CHECK_ERR(try_connect(s, "plain"), ECONNREFUSED);
    int l = listener("sock", SOCK_STREAM);
    int d = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    CHECK_ERR(try_connect(d, "sock"), EPROTOTYPE);
    OK(try_connect(s, "sock"));
    CHECK_ERR(try_connect(s, "sock"), EISCONN);
    close(l);
    int t = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_ERR(try_connect(t, "sock"), ECONNREFUSED); // the name outlives the socket
    struct sockaddr_un a;
    socklen_t n = name(&a, "sock");
    CHECK_ERR(bind(t, (void *)&a, n), EADDRINUSE);
    SYS(unlink("sock"));
    OK(bind(t, (void *)&a, n));
    n = name(&a, "another");
    CHECK_ERR(bind(t, (void *)&a, n), EINVAL);
    char c;
    CHECK_ERR(recv(s, &c, 1, 0), ECONNRESET); // it was never accepted
}
TEST(backlog_full) {
    struct sockaddr_un a;
    int l = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    socklen_t n = name(&a, "sock");
    SYS(bind(l, (void *)&a, n));
    SYS(listen(l, 1));
    int ok = 0;
    for (int i = 0; i < 5; i++) {
        int s = SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
        if (connect(s, (void *)&a, n) == 0) ok++;
        else CHECK_EQ(errno, EAGAIN);
    }
    CHECK_EQ(ok, 2);
}
TEST(abstract_names) {
    struct sockaddr_un a, b;
    socklen_t n = abstract(&a, "test"), m = sizeof b;
    int l = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(l, (void *)&a, n));
    SYS(listen(l, 5));
    OK(getsockname(l, (void *)&b, &m));
    CHECK_EQ(m, n);
    CHECK_MEM(&b, &a, n);
    int t = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_ERR(bind(t, (void *)&a, n), EADDRINUSE);
    OK(connect(t, (void *)&a, n));
    CHECK_ERR(connect(SYS(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&a, n - 1), ECONNREFUSED);
    close(l);
    close(t);
    l = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(l, (void *)&a, n)); // gone with the socket
    // autobind: a name of five hex digits
    int d = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    a.sun_family = AF_UNIX;
    OK(bind(d, (void *)&a, 2));
    m = sizeof b;
    OK(getsockname(d, (void *)&b, &m));
    CHECK_EQ(m, 8);
    CHECK_EQ(b.sun_path[0], 0);
}
TEST(dgram_named) {
    int r = listener("r", SOCK_DGRAM), s = listener("s", SOCK_DGRAM);
    struct sockaddr_un a, from;
    socklen_t n = name(&a, "r"), m = sizeof from;
    char b[16] = "";
    CHECK_EQ(sendto(s, "dgram", 5, 0, (void *)&a, n), 5);
    CHECK_EQ(recvfrom(r, b, 16, 0, (void *)&from, &m), 5);
    CHECK_STR(b, "dgram");
    CHECK_STR(from.sun_path, "s");
    CHECK_ERR(send(s, "x", 1, 0), ENOTCONN);
    OK(connect(s, (void *)&a, n));
    CHECK_EQ(send(s, "y", 1, 0), 1);
    m = sizeof from;
    OK(getpeername(s, (void *)&from, &m));
    CHECK_STR(from.sun_path, "r");
    close(r);
    CHECK_ERR(send(s, "z", 1, 0), ECONNREFUSED);
    n = name(&a, "nowhere");
    CHECK_ERR(sendto(s, "x", 1, 0, (void *)&a, n), ENOENT);
    static char big[300000];
    int p[2];
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, p));
    CHECK_ERR(send(p[0], big, sizeof big, 0), EMSGSIZE);
    CHECK_EQ(send(p[0], big, 100000, 0), 100000);
    CHECK_EQ(recv(p[1], big, sizeof big, 0), 100000);
}
TEST(shutdown_forms) {
    int s[2];
    char c;
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    CHECK_EQ(write(s[0], "x", 1), 1);
    OK(shutdown(s[0], SHUT_WR));
    CHECK_EQ(read(s[1], &c, 1), 1);
    CHECK_EQ(read(s[1], &c, 1), 0);
    CHECK_ERR(send(s[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(write(s[1], "y", 1), 1);
    CHECK_EQ(read(s[0], &c, 1), 1);
    OK(shutdown(s[0], SHUT_RD));
    CHECK_EQ(read(s[0], &c, 1), 0);
    CHECK_ERR(send(s[1], "z", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_ERR(shutdown(s[0], 9), EINVAL);
    OK(shutdown(SYS(socket(AF_UNIX, SOCK_STREAM, 0)), SHUT_RD));
    CHECK_ERR(shutdown(999, SHUT_RD), EBADF);
}
TEST(peek_and_flags) {
    int s[2];
    char b[16] = "";
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    CHECK_ERR(recv(s[0], b, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(write(s[1], "peek", 4), 4);
    CHECK_EQ(recv(s[0], b, 16, MSG_PEEK), 4);
    CHECK_EQ(recv(s[0], b, 2, MSG_PEEK), 2);
    CHECK_EQ(recv(s[0], b, 16, 0), 4);
    pid_t p = FORK();
    if (p == 0) {
        for (int i = 0; i < 4; i++) {
            t_ms(2);
            CHECK_EQ(write(s[1], "abcd", 4), 4);
        }
        _exit(0);
    }
    CHECK_EQ(recv(s[0], b, 16, MSG_WAITALL), 16);
    t_status(p);
    CHECK_ERR(send(s[0], "x", 1, MSG_OOB) < 0 && errno != EOPNOTSUPP ? -1 : (errno = EINVAL, -1), EINVAL);
    CHECK_ERR(recv(s[0], BAD_PTR, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_ERR(send(s[0], BAD_PTR, 1, 0), EFAULT);
}
static int send_fds(int s, int *fds, int n, const char *text) {
    char c[CMSG_SPACE(sizeof(int) * 300)] = {0};
    struct iovec v = {(void *)text, strlen(text)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = CMSG_SPACE(sizeof(int) * n)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int) * n);
    memcpy(CMSG_DATA(h), fds, sizeof(int) * n);
    return sendmsg(s, &m, 0);
}
static int recv_fds(int s, int *fds, int max, int flags, int *mflags) {
    char c[CMSG_SPACE(sizeof(int) * 300)] = {0}, b[64];
    struct iovec v = {b, sizeof b};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = max ? CMSG_SPACE(sizeof(int) * max) : 0};
    SYS(recvmsg(s, &m, flags));
    if (mflags) *mflags = m.msg_flags;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (!h || h->cmsg_type != SCM_RIGHTS) return 0;
    int n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(h), n * sizeof(int));
    return n;
}
TEST(pass_descriptors) {
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int k = 0; k < 3; k++) {
        int s[2], p[2], got[4], fl;
        SYS(socketpair(AF_UNIX, types[k], 0, s));
        SYS(pipe(p));
        CHECK_EQ(send_fds(s[0], p, 2, "x"), 1);
        close(p[0]);
        CHECK_EQ(recv_fds(s[1], got, 4, MSG_CMSG_CLOEXEC, &fl), 2);
        CHECK_EQ(fl & MSG_CTRUNC, 0);
        CHECK_EQ(fcntl(got[0], F_GETFD), FD_CLOEXEC);
        CHECK_EQ(write(got[1], "through", 7), 7);
        char b[16];
        CHECK_EQ(read(got[0], b, 16), 7);
        close(got[0]), close(got[1]), close(p[1]);
    }
}
TEST(pass_descriptors_between_processes) {
    int s[2], fd;
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    pid_t p = FORK();
    if (p == 0) {
        int f = t_file("f", "from the child");
        SYS(lseek(f, 5, SEEK_SET));
        CHECK_EQ(send_fds(s[1], &f, 1, "x"), 1);
        _exit(0);
    }
    CHECK_EQ(recv_fds(s[0], &fd, 1, 0, 0), 1);
    t_status(p);
    char b[32] = "";
    CHECK_EQ(read(fd, b, 31), 9); // the offset came along
    CHECK_STR(b, "the child");
}
TEST(pass_descriptors_truncated) {
    int s[2], f[3] = {0, 1, 2}, got[4], fl;
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    CHECK_EQ(send_fds(s[0], f, 3, "x"), 1);
    CHECK_EQ(recv_fds(s[1], got, 1, 0, &fl) >= 1, 1); // the space for one is rounded up to two
    CHECK(fl & MSG_CTRUNC);
    CHECK_EQ(send_fds(s[0], f, 1, "x"), 1);
    CHECK_EQ(recv_fds(s[1], got, 0, 0, &fl), 0);
    CHECK(fl & MSG_CTRUNC);
    int bad = 999;
    CHECK_ERR(send_fds(s[0], &bad, 1, "x"), EBADF);
    int many[254];
    for (int i = 0; i < 254; i++) many[i] = 0;
    CHECK_ERR(send_fds(s[0], many, 254, "x"), EINVAL);
    CHECK_EQ(send_fds(s[0], many, 253, "x"), 1);
}
TEST(descriptors_do_not_run_together) {
    int s[2], f = 0, got[4];
    char b[64];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    CHECK_EQ(write(s[0], "plain", 5), 5);
    CHECK_EQ(send_fds(s[0], &f, 1, "with"), 4);
    CHECK_EQ(write(s[0], "after", 5), 5);
    CHECK_EQ(recv_fds(s[1], got, 1, 0, 0), 1); // a read stops after a message with descriptors
    CHECK_EQ(read(s[1], b, 64), 5);
}
TEST(unread_descriptor_keeps_file_and_closing_drops_it) {
    int s[2], p[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    SYS(pipe(p));
    CHECK_EQ(send_fds(s[0], &p[1], 1, "x"), 1);
    close(p[1]);
    struct pollfd f = {p[0], POLLIN, 0};
    OK(poll(&f, 1, 0)); // the write end is in flight
    close(s[0]);
    close(s[1]);
    CHECK_EQ(poll(&f, 1, 1000), 1);
    CHECK(f.revents & POLLHUP);
}
TEST(credentials) {
    int s[2], on = 1;
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    struct ucred u;
    socklen_t n = sizeof u;
    OK(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &u, &n));
    CHECK_EQ(u.pid, getpid());
    CHECK_EQ(u.uid, 0);
    OK(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    pid_t p = FORK();
    if (p == 0) {
        SYS(setgid(200));
        SYS(setuid(100));
        CHECK_EQ(write(s[1], "x", 1), 1);
        _exit(0);
    }
    t_status(p);
    char c[CMSG_SPACE(sizeof u)], b[4];
    struct iovec v = {b, 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    CHECK_EQ(recvmsg(s[0], &m, 0), 1);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    MUST(h);
    CHECK_EQ(h->cmsg_type, SCM_CREDENTIALS);
    memcpy(&u, CMSG_DATA(h), sizeof u);
    CHECK_EQ(u.pid, p);
    CHECK_EQ(u.uid, 100);
    CHECK_EQ(u.gid, 200);
    // sent on purpose: only what is true, or what one may claim
    char k[CMSG_SPACE(sizeof u)] = {0};
    struct iovec w = {"y", 1};
    struct msghdr out = {.msg_iov = &w, .msg_iovlen = 1, .msg_control = k, .msg_controllen = sizeof k};
    h = CMSG_FIRSTHDR(&out);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_CREDENTIALS, h->cmsg_len = CMSG_LEN(sizeof u);
    u = (struct ucred){getpid(), 0, 0};
    memcpy(CMSG_DATA(h), &u, sizeof u);
    CHECK_EQ(sendmsg(s[1], &out, 0), 1);
    CHECK_CHILD(SYS(setuid(100)); u = (struct ucred){getpid(), 0, 0}; memcpy(CMSG_DATA(h), &u, sizeof u); CHECK_ERR(sendmsg(s[1], &out, 0), EPERM));
}
TEST(socket_options) {
    int s[2], v;
    socklen_t n = sizeof v;
    SYS(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s));
    OK(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &v, &n));
    CHECK_EQ(v, SOCK_SEQPACKET);
    OK(getsockopt(s[0], SOL_SOCKET, SO_DOMAIN, &v, &n));
    CHECK_EQ(v, AF_UNIX);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &v, &n));
    CHECK_EQ(v, 0);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ACCEPTCONN, &v, &n));
    CHECK_EQ(v, 0);
    v = 50000;
    OK(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, sizeof v));
    OK(getsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, &n));
    CHECK_EQ(v, 100000);
    // As much as net.core.wmem_max says, doubled for the overhead; with the capability more.
    char text[32];
    CHECK(t_slurp("/proc/sys/net/core/wmem_max", text, sizeof text) > 0);
    v = INT_MAX / 2;
    OK(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, sizeof v));
    OK(getsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, &n));
    CHECK_EQ(v, 2 * atoi(text));
    v = atoi(text) + 1000;
    OK(setsockopt(s[0], SOL_SOCKET, SO_SNDBUFFORCE, &v, sizeof v));
    OK(getsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, &n));
    CHECK_EQ(v, 2 * atoi(text) + 2000);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_SNDBUFFORCE, &v, sizeof v), EPERM));
    struct timeval tv = {0, 20000};
    OK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
    char c;
    CHECK_ERR(recv(s[0], &c, 1, 0), EAGAIN);
    CHECK_ERR(getsockopt(s[0], SOL_SOCKET, 9999, &v, &n), ENOPROTOOPT);
    CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &v, 1), EINVAL);
    CHECK_ERR(getsockopt(s[0], SOL_SOCKET, SO_TYPE, BAD_PTR, &n), EFAULT);
    CHECK_ERR(getsockopt(t_file("f", ""), SOL_SOCKET, SO_TYPE, &v, &n), ENOTSOCK);
}
static void on_alarm(int sig) { (void)sig; }
TEST(a_signal_ends_a_wait_with_a_timeout) {
    int s[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    SYS(sigaction(SIGALRM, &act, NULL));
    struct timeval tv = {20, 0};
    OK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
    struct itimerval soon = {{0, 0}, {0, 50000}};
    char c;
    // Such a wait cannot be started over, whatever SA_RESTART says: it would be longer than the time-out.
    SYS(setitimer(ITIMER_REAL, &soon, NULL));
    CHECK_ERR(recv(s[0], &c, 1, 0), EINTR);
    SYS(setitimer(ITIMER_REAL, &soon, NULL));
    CHECK_ERR(read(s[0], &c, 1), EINTR);
    int p[2];
    SYS(pipe(p));
    SYS(setitimer(ITIMER_REAL, &soon, NULL));
    CHECK_ERR(splice(s[0], NULL, p[1], NULL, 1, 0), EINTR);
}
TEST(stream_blocks_when_full) {
    int s[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    static char b[65536];
    long total = 0;
    for (;;) {
        ssize_t r = send(s[0], b, sizeof b, MSG_DONTWAIT);
        if (r < 0) break;
        total += r;
    }
    CHECK_EQ(errno, EAGAIN);
    CHECK(total >= 65536);
    struct pollfd f = {s[0], POLLOUT, 0};
    OK(poll(&f, 1, 0));
    pid_t p = FORK();
    if (p == 0) {
        long got = 0;
        close(s[0]);
        while (got < total + 10) {
            ssize_t r = read(s[1], b, sizeof b);
            if (r <= 0) break;
            got += r;
        }
        _exit(got == total + 10 ? 0 : 1);
    }
    CHECK_EQ(write(s[0], b, 10), 10);
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(sendmmsg_recvmmsg) {
    int s[2];
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    struct iovec v[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}};
    struct mmsghdr m[3] = {0}, r[3] = {0};
    for (int i = 0; i < 3; i++) m[i].msg_hdr.msg_iov = &v[i], m[i].msg_hdr.msg_iovlen = 1;
    CHECK_EQ(sendmmsg(s[0], m, 3, 0), 3);
    CHECK_EQ(m[2].msg_len, 3);
    char b[3][8];
    struct iovec w[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (struct iovec){b[i], 8};
        r[i].msg_hdr.msg_iov = &w[i], r[i].msg_hdr.msg_iovlen = 1;
    }
    CHECK_EQ(recvmmsg(s[1], r, 3, MSG_DONTWAIT, 0), 3);
    CHECK_EQ(r[1].msg_len, 2);
    CHECK_MEM(b[2], "ccc", 3);
    CHECK_ERR(recvmmsg(s[1], r, 3, MSG_DONTWAIT, 0), EAGAIN);
}
TEST(name_permission) {
    int l = listener("sock", SOCK_STREAM);
    (void)l;
    SYS(chmod("sock", 0600));
    SYS(chmod(".", 0755));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(try_connect(SYS(socket(AF_UNIX, SOCK_STREAM, 0)), "sock"), EACCES));
    SYS(chmod("sock", 0666));
    CHECK_CHILD(SYS(setuid(1000)); OK(try_connect(SYS(socket(AF_UNIX, SOCK_STREAM, 0)), "sock")));
}
TEST(accept_interrupted_and_nonblocking) {
    int l = listener("sock", SOCK_STREAM);
    t_pester(0);
    CHECK_ERR(accept(l, 0, 0), EINTR);
    t_pester_stop();
    SYS(fcntl(l, F_SETFL, O_NONBLOCK));
    CHECK_ERR(accept(l, 0, 0), EAGAIN);
    struct pollfd f = {l, POLLIN, 0};
    OK(poll(&f, 1, 0));
    int c = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(try_connect(c, "sock"));
    CHECK_EQ(poll(&f, 1, 0), 1);
    int a = SYS(accept(l, 0, 0));
    CHECK_EQ(write(c, "x", 1), 1);
    close(a);
    char b;
    int r = read(c, &b, 1); // closed with unread data
    CHECK(r == 0 || (r == -1 && errno == ECONNRESET));
}

// Each socket carries the previous one in its queue.
static int chain_of(int type, int length) {
    int p[2], last = -1;
    for (int i = 0; i < length; i++) {
        SYS(socketpair(AF_UNIX, type, 0, p));
        if (last >= 0) {
            CHECK_EQ(send_fds(p[0], &last, 1, "m"), 1);
            close(last);
        }
        close(p[0]);
        last = p[1];
    }
    return last;
}
TEST(long_chain_of_messages) {
    int types[] = {SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) OK(close(chain_of(types[i], 5000)));
    // The end of the process closes the last one.
    CHECK_CHILD(chain_of(SOCK_DGRAM, 5000));
}
TEST(long_chain_of_pending_connections) {
    int last = -1;
    for (int i = 0; i < 3000; i++) {
        struct sockaddr_un a;
        char s[20];
        sprintf(s, "l%d", i);
        socklen_t n = abstract(&a, s);
        int l = SYS(socket(AF_UNIX, SOCK_STREAM, 0)), c = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
        OK(bind(l, (void *)&a, n));
        OK(listen(l, 1));
        OK(connect(c, (void *)&a, n));
        if (last >= 0) {
            CHECK_EQ(send_fds(c, &last, 1, "m"), 1);
            close(last);
        }
        close(c);
        last = l;
    }
    OK(close(last));
}
TEST(socket_over_itself_ends_with_its_descriptors) {
    // A pipe's writing end in the queue of a socket that only its own queue keeps: its reader sees the end of file.
    int p[2], s[2];
    SYS(pipe(p));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    CHECK_EQ(send_fds(s[0], (int[]){s[0], s[1], p[1]}, 3, "m"), 1);
    close(p[1]);
    close(s[0]);
    close(s[1]);
    // On Linux the collector looks when a socket is closed.
    close(SYS(socket(AF_UNIX, SOCK_DGRAM, 0)));
    struct pollfd f = {p[0], POLLIN, 0};
    CHECK_EQ(poll(&f, 1, 5000), 1);
    char b;
    CHECK_EQ(read(p[0], &b, 1), 0);
}
TEST(empty_buffer_receives_descriptors) {
    int s[2], p[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    SYS(pipe(p));
    CHECK_EQ(send_fds(s[0], &p[1], 1, "m"), 1);
    char b[8];
    struct iovec v = {b, 0};
    union {
        struct cmsghdr h;
        char c[CMSG_SPACE(sizeof(int))];
    } c;
    struct msghdr m = {0, 0, &v, 1, &c, sizeof c, 0};
    CHECK_EQ(recvmsg(s[1], &m, 0), 0);
    MUST(m.msg_controllen >= CMSG_LEN(sizeof(int)));
    int got = *(int *)CMSG_DATA(&c.h);
    CHECK_EQ(write(got, "x", 1), 1);
    CHECK_EQ(read(p[0], b, 8), 1);
    CHECK_EQ(recv(s[1], b, 8, 0), 1);
    CHECK_EQ(b[0], 'm');
}
static int send_cred(int via, struct ucred u) {
    char b = 'c';
    struct iovec v = {&b, 1};
    union {
        struct cmsghdr h;
        char c[CMSG_SPACE(sizeof u)];
    } c = {.h = {CMSG_LEN(sizeof u), SOL_SOCKET, SCM_CREDENTIALS}};
    memcpy(CMSG_DATA(&c.h), &u, sizeof u);
    struct msghdr m = {0, 0, &v, 1, &c, sizeof c, 0};
    return sendmsg(via, &m, 0);
}
TEST(credentials_of_nobody) {
    int s[2];
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, s));
    pid_t p = FORK();
    if (p == 0) _exit(0);
    siginfo_t si;
    SYS(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
    CHECK_EQ(send_cred(s[0], (struct ucred){p, 0, 0}), 1); // a zombie is somebody
    CHECK_EQ(send_cred(s[0], (struct ucred){getppid(), 0, 0}), 1);
    t_status(p);
    CHECK_ERR(send_cred(s[0], (struct ucred){p, 0, 0}), ESRCH);
    CHECK_ERR(send_cred(s[0], (struct ucred){4000000, 0, 0}), ESRCH);
    CHECK_ERR(send_cred(s[0], (struct ucred){0, 0, 0}), ESRCH);
    CHECK_ERR(send_cred(s[0], (struct ucred){-1, 0, 0}), ESRCH);
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(send_cred(s[0], (struct ucred){4000000, 1000, 0}), EPERM));
}
TEST(name_has_the_mode_of_the_socket) {
    struct sockaddr_un a;
    int s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(fchmod(s, 0640));
    umask(0007);
    socklen_t n = name(&a, "moded");
    OK(bind(s, (void *)&a, n));
    struct stat st;
    OK(stat("moded", &st));
    CHECK_EQ(st.st_mode, S_IFSOCK | 0640);
    s = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    n = name(&a, "plain");
    OK(bind(s, (void *)&a, n));
    OK(stat("plain", &st));
    CHECK_EQ(st.st_mode, S_IFSOCK | 0770);
}
TEST(groups_and_name_of_the_peer) {
    gid_t groups[3] = {5, 7, 9}, got[8];
    OK(setgroups(3, groups));
    int p[2], u = SYS(socket(AF_UNIX, SOCK_STREAM, 0)), d = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
    int t = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    socklen_t len = sizeof got;
    OK(getsockopt(p[0], SOL_SOCKET, 59 /* SO_PEERGROUPS */, got, &len));
    CHECK_EQ(len, 12);
    CHECK_MEM(got, groups, 12);
    len = 8;
    CHECK_ERR(getsockopt(p[0], SOL_SOCKET, 59, got, &len), ERANGE);
    CHECK_EQ(len, 12);
    len = 12;
    OK(getsockopt(p[1], SOL_SOCKET, 59, got, &len));
    int none[] = {u, d, t};
    for (int i = 0; i < 3; i++) {
        len = sizeof got;
        CHECK_ERR(getsockopt(none[i], SOL_SOCKET, 59, got, &len), ENODATA);
        CHECK_ERR(getsockopt(none[i], SOL_SOCKET, 28 /* SO_PEERNAME */, got, &len), ENOTCONN);
    }
    // What they were at connect(2) and listen(2).
    struct sockaddr_un a = {AF_UNIX, "s"}, name;
    SYS(bind(u, (void *)&a, 4));
    OK(listen(u, 5));
    OK(setgroups(2, groups));
    int c = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(connect(c, (void *)&a, 4));
    OK(setgroups(0, groups));
    int s = SYS(accept(u, 0, 0));
    len = sizeof got;
    OK(getsockopt(s, SOL_SOCKET, 59, got, &len));
    CHECK_EQ(len, 8);
    len = sizeof got;
    OK(getsockopt(c, SOL_SOCKET, 59, got, &len));
    CHECK_EQ(len, 12);
    // A name is cut, and never shorter than the buffer.
    len = 3;
    OK(getsockopt(c, SOL_SOCKET, 28, &name, &len));
    CHECK_EQ(len, 3);
    CHECK_EQ(name.sun_family, AF_UNIX);
    CHECK_EQ(name.sun_path[0], 's');
    len = sizeof name;
    CHECK_ERR(getsockopt(c, SOL_SOCKET, 28, &name, &len), EINVAL);
    len = 2;
    OK(getsockopt(s, SOL_SOCKET, 28, &name, &len));
}
