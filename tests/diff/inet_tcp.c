// TCP over the loopback interface: opening, moving bytes, closing, errors.
#include "inet.h"
#include <sys/sendfile.h>

TEST(kinds_of_sockets) {
    BOTH(f) {
        close(SYS(socket(f, SOCK_STREAM, 0)));
        close(SYS(socket(f, SOCK_STREAM, IPPROTO_TCP)));
        CHECK_ERR(socket(f, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
        CHECK_ERR(socket(f, SOCK_STREAM, -1), EINVAL);
        CHECK_ERR(socket(f, SOCK_STREAM, 263), EINVAL);
        CHECK_ERR(socket(f, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
        CHECK_ERR(socket(f, SOCK_RDM, 0), ESOCKTNOSUPPORT);
        CHECK_ERR(socket(f, 0, 0), ESOCKTNOSUPPORT);
        CHECK_ERR(socket(f, SOCK_RAW, 0), EPROTONOSUPPORT);
        int v[2];
        CHECK_ERR(socketpair(f, SOCK_STREAM, 0, v), EOPNOTSUPP);
        CHECK_ERR(socketpair(f, SOCK_SEQPACKET, 0, v), ESOCKTNOSUPPORT);
        int s = SYS(socket(f, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        CHECK_EQ(fcntl(s, F_GETFD), FD_CLOEXEC);
        CHECK_EQ(fcntl(s, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_DOMAIN), f);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
        close(s);
    }
}
TEST(names) {
    BOTH(f) {
        int l = SYS(socket(f, SOCK_STREAM, 0));
        CHECK_EQ(port_of(l), 0);
        union addr a = loopback(f, 0), got;
        socklen_t n = sizeof got;
        CHECK_ERR(getpeername(l, &got.any, &n), ENOTCONN);
        OK(bind(l, &a.any, size_of(f)));
        CHECK(port_of(l) >= 1024);
        CHECK_ERR(bind(l, &a.any, size_of(f)), EINVAL);
        OK(listen(l, 1));
        int s = SYS(socket(f, SOCK_STREAM, 0));
        OK(try_connect(s, f, port_of(l)));
        memset(&got, 0xff, sizeof got);
        n = sizeof got;
        int c = SYS(accept4(l, &got.any, &n, SOCK_CLOEXEC | SOCK_NONBLOCK));
        CHECK_EQ(n, size_of(f));
        CHECK_EQ(fcntl(c, F_GETFD), FD_CLOEXEC);
        CHECK_EQ(fcntl(c, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
        union addr own = name_of(s);
        CHECK_MEM(&got, &own, size_of(f));
        n = sizeof got;
        OK(getpeername(s, &got.any, &n));
        CHECK_EQ(n, size_of(f));
        own = name_of(l);
        CHECK_MEM(&got, &own, size_of(f));
        // A short buffer gets what fits, and the whole length.
        n = 4;
        memset(&got, 0xff, sizeof got);
        OK(getsockname(s, &got.any, &n));
        CHECK_EQ(n, size_of(f));
        CHECK_EQ(got.in.sin_addr.s_addr, 0xffffffff);
        n = -1;
        CHECK_ERR(getsockname(s, &got.any, &n), EINVAL);
        close(c), close(s), close(l);
    }
}
TEST(bad_addresses) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_STREAM, 0));
        union addr a = loopback(f, 0);
        CHECK_ERR(bind(s, &a.any, 0), EINVAL);
        CHECK_ERR(bind(s, &a.any, 2), EINVAL);
        CHECK_ERR(bind(s, &a.any, 15), EINVAL);
        CHECK_ERR(bind(s, &a.any, 129), EINVAL);
        CHECK_ERR(bind(s, BAD_PTR, 16), EFAULT);
        CHECK_ERR(connect(s, &a.any, 1), EINVAL);
        CHECK_ERR(connect(s, &a.any, 15), EINVAL);
        a.any.sa_family = f == AF_INET ? AF_INET6 : AF_INET;
        CHECK_ERR(bind(s, &a.any, sizeof a), EAFNOSUPPORT);
        CHECK_ERR(connect(s, &a.any, sizeof a), EAFNOSUPPORT);
        a = loopback(f, 0);
        if (f == AF_INET) a.in.sin_addr.s_addr = inet_addr("192.0.2.1");
        else inet_pton(AF_INET6, "2001:db8::1", &a.in6.sin6_addr);
        CHECK_ERR(bind(s, &a.any, size_of(f)), EADDRNOTAVAIL);
        a.in.sin_port = htons(80);
        CHECK_ERR(connect(s, &a.any, size_of(f)), ENETUNREACH);
        close(s);
    }
    // Of old, AF_UNSPEC with the unspecified address is AF_INET.
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in in = {.sin_family = AF_UNSPEC};
    OK(bind(s, (void *)&in, sizeof in));
    CHECK(port_of(s) != 0);
    // All of 127.0.0.0/8 is this host's.
    s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("127.9.8.7")};
    OK(bind(s, (void *)&in, sizeof in));
}
TEST(refused) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), port = port_of(l);
        close(l);
        int s = SYS(socket(f, SOCK_STREAM, 0));
        CHECK_ERR(try_connect(s, f, port), ECONNREFUSED);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_ERROR), 0);
        // The same socket can try again.
        CHECK_ERR(try_connect(s, f, port), ECONNREFUSED);
        l = bound(f, SOCK_STREAM);
        OK(try_connect(s, f, port_of(l)));
        CHECK_ERR(try_connect(s, f, port_of(l)), EISCONN);
        close(s), close(l);
        CHECK_ERR(send(SYS(socket(f, SOCK_STREAM, 0)), "x", 1, MSG_NOSIGNAL), EPIPE);
        char c;
        CHECK_ERR(recv(SYS(socket(f, SOCK_STREAM, 0)), &c, 1, 0), ENOTCONN);
        CHECK_ERR(shutdown(SYS(socket(f, SOCK_STREAM, 0)), SHUT_WR), ENOTCONN);
        CHECK_ERR(accept(SYS(socket(f, SOCK_STREAM, 0)), 0, 0), EINVAL);
    }
}
TEST(connect_without_waiting) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), port = port_of(l);
        int s = SYS(socket(f, SOCK_STREAM | SOCK_NONBLOCK, 0));
        CHECK_ERR(try_connect(s, f, port), EINPROGRESS);
        CHECK_EQ(poll_for(s, POLLOUT), POLLOUT);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_ERROR), 0);
        OK(try_connect(s, f, port));
        CHECK_ERR(try_connect(s, f, port), EISCONN);
        close(s), close(l);
        s = SYS(socket(f, SOCK_STREAM | SOCK_NONBLOCK, 0));
        CHECK_ERR(try_connect(s, f, port), EINPROGRESS);
        CHECK_EQ(poll_for(s, POLLOUT), POLLOUT | POLLERR | POLLHUP);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_ERROR), 0);
        close(s);
        s = SYS(socket(f, SOCK_STREAM | SOCK_NONBLOCK, 0));
        CHECK_ERR(try_connect(s, f, port), EINPROGRESS);
        poll_for(s, POLLOUT);
        CHECK_ERR(try_connect(s, f, port), ECONNREFUSED);
        close(s);
    }
}
TEST(ports_in_use) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), port = port_of(l);
        int s = SYS(socket(f, SOCK_STREAM, 0));
        union addr a = loopback(f, port);
        CHECK_ERR(bind(s, &a.any, size_of(f)), EADDRINUSE);
        OK(set_int(s, SOL_SOCKET, SO_REUSEADDR, 1));
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_REUSEADDR), 1);
        CHECK_ERR(bind(s, &a.any, size_of(f)), EADDRINUSE);
        close(l);
        OK(bind(s, &a.any, size_of(f)));
        close(s);
        // SO_REUSEPORT: all of them listen.
        int v[3];
        port = 0;
        for (int i = 0; i < 3; i++) {
            v[i] = SYS(socket(f, SOCK_STREAM, 0));
            OK(set_int(v[i], SOL_SOCKET, SO_REUSEPORT, 1));
            CHECK_EQ(get_int(v[i], SOL_SOCKET, SO_REUSEPORT), 1);
            a = loopback(f, port);
            OK(bind(v[i], &a.any, size_of(f)));
            OK(listen(v[i], 5));
            port = port_of(v[i]);
        }
        s = SYS(socket(f, SOCK_STREAM, 0));
        a = loopback(f, port);
        CHECK_ERR(bind(s, &a.any, size_of(f)), EADDRINUSE);
        OK(try_connect(s, f, port));
        int ready = 0;
        for (int i = 0; i < 3; i++) ready += poll_of(v[i], POLLIN) == POLLIN;
        CHECK_EQ(ready, 1);
        close(s);
        for (int i = 0; i < 3; i++) close(v[i]);
    }
}
TEST(low_ports_need_a_capability) {
    if (geteuid() != 0) SKIP("not root");
    BOTH(f) {
        CHECK_CHILD({
            SYS(setresuid(1000, 1000, 1000));
            int s = SYS(socket(f, SOCK_STREAM, 0));
            union addr a = loopback(f, 81);
            CHECK_ERR(bind(s, &a.any, size_of(f)), EACCES);
            s = SYS(socket(f, SOCK_DGRAM, 0));
            CHECK_ERR(bind(s, &a.any, size_of(f)), EACCES);
            CHECK_ERR(socket(f, SOCK_RAW, IPPROTO_ICMP), EPERM);
            CHECK_ERR(socket(f, SOCK_DGRAM, f == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6), EACCES);
        });
        int s = SYS(socket(f, SOCK_STREAM, 0));
        union addr a = loopback(f, 81);
        OK(bind(s, &a.any, size_of(f)));
        close(s);
    }
}
TEST(bytes_both_ways) {
    BOTH(f) {
        int v[2];
        tcp_pair(f, v);
        char b[64] = "";
        CHECK_EQ(write(v[0], "hello ", 6), 6);
        CHECK_EQ(send(v[0], "world", 5, 0), 5);
        poll_for(v[1], POLLIN);
        CHECK_EQ(recv(v[1], b, 3, MSG_PEEK), 3);
        CHECK_MEM(b, "hel", 3);
        CHECK_EQ(recv(v[1], b, 11, MSG_WAITALL), 11);
        CHECK_MEM(b, "hello world", 11);
        CHECK_ERR(recv(v[1], b, 1, MSG_DONTWAIT), EAGAIN);
        struct iovec iov[] = {{"ab", 2}, {"", 0}, {"cdef", 4}};
        CHECK_EQ(writev(v[1], iov, 3), 6);
        struct iovec in[] = {{b, 1}, {b + 10, 2}, {b + 20, 9}};
        struct msghdr m = {.msg_iov = in, .msg_iovlen = 3, .msg_name = b + 40, .msg_namelen = 20};
        poll_for(v[0], POLLIN);
        CHECK_EQ(recvmsg(v[0], &m, 0), 6);
        CHECK_MEM(b, "a", 1);
        CHECK_MEM(b + 10, "bc", 2);
        CHECK_MEM(b + 20, "def", 3);
        // A stream tells no sender.
        CHECK_EQ(m.msg_namelen, 0);
        CHECK_EQ(m.msg_flags, 0);
        // What is dropped is counted.
        CHECK_EQ(write(v[0], "0123456789", 10), 10);
        poll_for(v[1], POLLIN);
        CHECK_EQ(recv(v[1], b, 64, MSG_TRUNC | MSG_PEEK), 10);
        CHECK_EQ(recv(v[1], 0, 4, MSG_TRUNC), 4);
        CHECK_EQ(recv(v[1], b, 64, 0), 6);
        CHECK_MEM(b, "456789", 6);
        CHECK_EQ(write(v[0], "", 0), 0);
        CHECK_EQ(send(v[0], "", 0, 0), 0);
        CHECK_EQ(read(v[1], b, 0), 0);
        close(v[0]), close(v[1]);
    }
}
TEST(ends_of_streams) {
    BOTH(f) {
        int v[2];
        char b[8];
        tcp_pair(f, v);
        CHECK_EQ(poll_of(v[1], -1 & 0x7fff), POLLOUT | POLLWRNORM);
        CHECK_EQ(write(v[0], "x", 1), 1);
        OK(shutdown(v[0], SHUT_WR));
        CHECK_ERR(send(v[0], "y", 1, MSG_NOSIGNAL), EPIPE);
        poll_for(v[1], POLLRDHUP);
        CHECK_EQ(poll_of(v[1], POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP);
        CHECK_EQ(read(v[1], b, 8), 1);
        CHECK_EQ(read(v[1], b, 8), 0);
        CHECK_EQ(read(v[1], b, 8), 0);
        // The other half is open.
        CHECK_EQ(write(v[1], "z", 1), 1);
        CHECK_EQ(read(v[0], b, 8), 1);
        CHECK_EQ(poll_of(v[0], POLLIN | POLLRDHUP), 0);
        OK(shutdown(v[1], SHUT_RDWR));
        poll_for(v[0], POLLRDHUP);
        CHECK_EQ(read(v[0], b, 8), 0);
        CHECK_EQ(poll_of(v[0], POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
        union addr a;
        socklen_t n = sizeof a;
        CHECK_ERR(shutdown(v[0], 3), EINVAL);
        getpeername(v[0], &a.any, &n);
        close(v[0]), close(v[1]);
        // A signal announces a broken stream.
        CHECK_STATUS(CHILD({
                         int w[2];
                         tcp_pair(f, w);
                         shutdown(w[0], SHUT_WR);
                         (void)!write(w[0], "x", 1);
                     }),
                     "signal 13");
    }
}
TEST(resets) {
    BOTH(f) {
        int v[2];
        char b[8];
        // Data that nobody read.
        tcp_pair(f, v);
        CHECK_EQ(write(v[0], "x", 1), 1);
        poll_for(v[1], POLLIN);
        close(v[1]);
        poll_for(v[0], POLLERR);
        CHECK_EQ(poll_of(v[0], POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP);
        CHECK_ERR(read(v[0], b, 8), ECONNRESET);
        CHECK_EQ(read(v[0], b, 8), 0);
        CHECK_ERR(send(v[0], "x", 1, MSG_NOSIGNAL), EPIPE);
        close(v[0]);
        // SO_LINGER with no time.
        tcp_pair(f, v);
        struct linger l = {1, 0};
        OK(setsockopt(v[1], SOL_SOCKET, SO_LINGER, &l, sizeof l));
        close(v[1]);
        poll_for(v[0], POLLERR);
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_ERROR), ECONNRESET);
        CHECK_EQ(read(v[0], b, 8), 0);
        close(v[0]);
        // Writing to a closed end: the first write is answered by a reset.
        tcp_pair(f, v);
        close(v[1]);
        poll_for(v[0], POLLIN);
        CHECK_EQ(send(v[0], "x", 1, MSG_NOSIGNAL), 1);
        poll_for(v[0], POLLERR);
        CHECK_ERR(send(v[0], "x", 1, MSG_NOSIGNAL), EPIPE);
        close(v[0]);
    }
}
TEST(a_megabyte_each_way) {
    BOTH(f) {
        int v[2];
        tcp_pair(f, v);
        enum { SIZE = 3 << 20 };
        unsigned char *out = malloc(SIZE), *in = malloc(SIZE);
        for (int i = 0; i < SIZE; i++) out[i] = i * 7 + (i >> 9);
        pid_t p = FORK();
        if (p == 0) {
            close(v[0]);
            for (size_t done = 0; done < SIZE;) {
                ssize_t n = SYS(read(v[1], in + done, SIZE - done));
                MUST(n > 0);
                done += n;
            }
            CHECK_MEM(in, out, SIZE);
            CHECK_EQ(write(v[1], in, SIZE), SIZE);
            _exit(0);
        }
        close(v[1]);
        CHECK_EQ(write(v[0], out, SIZE), SIZE);
        memset(in, 0, SIZE);
        CHECK_EQ(recv(v[0], in, SIZE, MSG_WAITALL), SIZE);
        CHECK_MEM(in, out, SIZE);
        CHECK_EQ(read(v[0], in, 1), 0);
        CHECK_STATUS(t_status(p), "exit 0");
        close(v[0]);
        free(in), free(out);
    }
}
TEST(a_full_buffer_ends_writes) {
    int v[2];
    tcp_pair(AF_INET, v);
    static char b[65536];
    fcntl(v[0], F_SETFL, O_NONBLOCK);
    size_t sent = 0;
    ssize_t n;
    while ((n = write(v[0], b, sizeof b)) > 0) sent += n;
    CHECK_EQ(errno, EAGAIN);
    CHECK(sent > sizeof b);
    CHECK_EQ(poll_of(v[0], POLLOUT), 0);
    int inq = 0;
    OK(ioctl(v[1], FIONREAD, &inq));
    CHECK(inq > 0);
    // Edge-triggered: room is announced once.
    int e = SYS(epoll_create1(0));
    struct epoll_event ev = {.events = EPOLLOUT | EPOLLET};
    OK(epoll_ctl(e, EPOLL_CTL_ADD, v[0], &ev));
    CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
    size_t got = 0;
    while (got < sent) {
        n = SYS(read(v[1], b, sizeof b));
        got += n;
    }
    CHECK_EQ(epoll_wait(e, &ev, 1, 5000), 1);
    CHECK_EQ(ev.events, EPOLLOUT);
    CHECK_EQ(got, sent);
    CHECK(poll_for(v[0], POLLOUT) == POLLOUT);
}
TEST(edge_triggered_input) {
    int v[2];
    char b[8];
    tcp_pair(AF_INET, v);
    int e = SYS(epoll_create1(0));
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    OK(epoll_ctl(e, EPOLL_CTL_ADD, v[1], &ev));
    CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(write(v[0], "ab", 2), 2);
        CHECK_EQ(epoll_wait(e, &ev, 1, 5000), 1);
        CHECK_EQ(ev.events, EPOLLIN);
        CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
        CHECK_EQ(read(v[1], b, 1), 1);
        CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
    }
    close(v[0]);
    CHECK_EQ(epoll_wait(e, &ev, 1, 5000), 1);
    CHECK_EQ(ev.events, EPOLLIN | EPOLLRDHUP);
}
TEST(listeners) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM);
        CHECK_EQ(get_int(l, SOL_SOCKET, SO_ACCEPTCONN), 1);
        CHECK_EQ(poll_of(l, POLLIN | POLLOUT), 0);
        char c;
        CHECK_ERR(recv(l, &c, 1, 0), ENOTCONN);
        CHECK_ERR(send(l, &c, 1, MSG_NOSIGNAL), EPIPE);
        CHECK_ERR(try_connect(l, f, 1), EISCONN);
        int n;
        CHECK_ERR(ioctl(l, FIONREAD, &n), EINVAL);
        CHECK_ERR(ioctl(l, TIOCOUTQ, &n), EINVAL);
        fcntl(l, F_SETFL, O_NONBLOCK);
        CHECK_ERR(accept(l, 0, 0), EAGAIN);
        OK(listen(l, 3));
        int s = SYS(socket(f, SOCK_STREAM, 0));
        OK(try_connect(s, f, port_of(l)));
        CHECK_EQ(poll_for(l, POLLIN), POLLIN);
        // Who leaves before being accepted is accepted all the same.
        CHECK_EQ(write(s, "bye", 3), 3);
        close(s);
        union addr a;
        socklen_t len = sizeof a;
        int got = SYS(accept(l, &a.any, &len));
        CHECK_EQ(len, size_of(f));
        char b[8];
        CHECK_EQ(read(got, b, 8), 3);
        CHECK_EQ(read(got, b, 8), 0);
        // Not a listener's flag: accepted sockets block.
        CHECK_EQ(fcntl(got, F_GETFL) & O_NONBLOCK, 0);
        close(got);
        // Whose connections nobody accepts.
        s = SYS(socket(f, SOCK_STREAM, 0));
        OK(try_connect(s, f, port_of(l)));
        int port = port_of(l);
        close(l);
        poll_for(s, POLLERR);
        CHECK_ERR(read(s, b, 8), ECONNRESET);
        CHECK_ERR(try_connect(SYS(socket(f, SOCK_STREAM, 0)), f, port), ECONNREFUSED);
        close(s);
    }
}
TEST(listen_without_bind) {
    BOTH(f) {
        int l = SYS(socket(f, SOCK_STREAM, 0));
        OK(listen(l, 0));
        CHECK(port_of(l) != 0);
        int s = SYS(socket(f, SOCK_STREAM, 0));
        OK(try_connect(s, f, port_of(l)));
        OK(shutdown(l, SHUT_RD));
        CHECK_EQ(get_int(l, SOL_SOCKET, SO_ACCEPTCONN), 0);
        CHECK_ERR(accept(l, 0, 0), EINVAL);
        close(s), close(l);
    }
}
TEST(both_families_at_one_port) {
    int l = SYS(socket(AF_INET6, SOCK_STREAM, 0));
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    OK(bind(l, (void *)&any, sizeof any));
    OK(listen(l, 5));
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(try_connect(s, AF_INET, port_of(l)));
    struct sockaddr_in6 got;
    socklen_t n = sizeof got;
    int c = SYS(accept(l, (void *)&got, &n));
    char text[64];
    CHECK_STR(inet_ntop(AF_INET6, &got.sin6_addr, text, sizeof text), "::ffff:127.0.0.1");
    n = sizeof got;
    OK(getsockname(c, (void *)&got, &n));
    CHECK_STR(inet_ntop(AF_INET6, &got.sin6_addr, text, sizeof text), "::ffff:127.0.0.1");
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port_of(l))};
    CHECK_ERR(bind(SYS(socket(AF_INET, SOCK_STREAM, 0)), (void *)&in, sizeof in), EADDRINUSE);
    // IPV6_V6ONLY leaves the port to IPv4.
    int only = SYS(socket(AF_INET6, SOCK_STREAM, 0));
    CHECK_EQ(get_int(only, IPPROTO_IPV6, IPV6_V6ONLY), 0);
    OK(set_int(only, IPPROTO_IPV6, IPV6_V6ONLY, 1));
    OK(bind(only, (void *)&any, sizeof any));
    CHECK_ERR(set_int(only, IPPROTO_IPV6, IPV6_V6ONLY, 0), EINVAL);
    OK(listen(only, 5));
    in.sin_port = htons(port_of(only));
    CHECK_ERR(try_connect(SYS(socket(AF_INET, SOCK_STREAM, 0)), AF_INET, port_of(only)), ECONNREFUSED);
    OK(bind(SYS(socket(AF_INET, SOCK_STREAM, 0)), (void *)&in, sizeof in));
    // An IPv6 socket connects to a mapped address.
    int l4 = bound(AF_INET, SOCK_STREAM);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(port_of(l4))};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
    s = SYS(socket(AF_INET6, SOCK_STREAM, 0));
    OK(connect(s, (void *)&to, sizeof to));
    s = SYS(socket(AF_INET6, SOCK_STREAM, 0));
    OK(set_int(s, IPPROTO_IPV6, IPV6_V6ONLY, 1));
    CHECK_ERR(connect(s, (void *)&to, sizeof to), ENETUNREACH);
    // The unspecified address is this host.
    in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port_of(l4))};
    OK(connect(SYS(socket(AF_INET, SOCK_STREAM, 0)), (void *)&in, sizeof in));
}
TEST(dissolving_a_connection) {
    BOTH(f) {
        int v[2];
        tcp_pair(f, v);
        struct sockaddr none = {.sa_family = AF_UNSPEC};
        OK(connect(v[0], &none, sizeof none));
        char b[8];
        poll_for(v[1], POLLERR);
        CHECK_ERR(read(v[1], b, 8), ECONNRESET);
        CHECK_ERR(read(v[0], b, 8), ECONNRESET);
        CHECK_ERR(read(v[0], b, 8), ENOTCONN);
        union addr a;
        socklen_t n = sizeof a;
        CHECK_ERR(getpeername(v[0], &a.any, &n), ENOTCONN);
        int l = bound(f, SOCK_STREAM);
        OK(try_connect(v[0], f, port_of(l)));
        int c = SYS(accept(l, 0, 0));
        CHECK_EQ(write(c, "again", 5), 5);
        CHECK_EQ(read(v[0], b, 8), 5);
        close(v[0]), close(v[1]), close(c), close(l);
    }
}
// What is sent to a socket that its owner has closed is answered with a reset, whether or not it read everything before.
TEST(sending_to_a_closed_socket) {
    for (int f = 0; f < 2; f++) {
        int v[2];
        char b[16];
        tcp_pair(f ? AF_INET6 : AF_INET, v);
        CHECK_EQ(write(v[0], "abc", 3), 3);
        poll_for(v[1], POLLIN);
        CHECK_EQ(recv(v[1], b, 16, 0), 3);
        close(v[1]);
        CHECK_EQ(poll_for(v[0], POLLRDHUP), POLLRDHUP);
        CHECK_EQ(write(v[0], "abc", 3), 3);
        CHECK_EQ(poll_for(v[0], POLLHUP) & POLLHUP, POLLHUP);
        CHECK_ERR(send(v[0], "abc", 3, MSG_NOSIGNAL), EPIPE);
        CHECK_EQ(recv(v[0], b, 16, 0), 0);
        close(v[0]);
    }
}
TEST(urgent_data) {
    int v[2];
    char b[16];
    tcp_pair(AF_INET, v);
    CHECK_ERR(recv(v[1], b, 1, MSG_OOB), EINVAL);
    CHECK_EQ(write(v[0], "abc", 3), 3);
    CHECK_EQ(send(v[0], "X", 1, MSG_OOB), 1);
    CHECK_EQ(write(v[0], "def", 3), 3);
    CHECK_EQ(poll_for(v[1], POLLPRI), POLLPRI);
    int mark = 7;
    OK(ioctl(v[1], SIOCATMARK, &mark));
    CHECK_EQ(mark, 0);
    CHECK_EQ(recv(v[1], b, 16, 0), 3);
    CHECK_MEM(b, "abc", 3);
    OK(ioctl(v[1], SIOCATMARK, &mark));
    CHECK_EQ(mark, 1);
    CHECK_EQ(recv(v[1], b, 1, MSG_OOB | MSG_PEEK), 1);
    struct iovec iov = {b, 16};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    CHECK_EQ(recvmsg(v[1], &m, MSG_OOB), 1);
    CHECK_EQ(m.msg_flags, MSG_OOB);
    CHECK_EQ(b[0], 'X');
    CHECK_ERR(recv(v[1], b, 1, MSG_OOB), EINVAL);
    poll_for(v[1], POLLIN);
    CHECK_EQ(recv(v[1], b, 16, 0), 3);
    CHECK_MEM(b, "def", 3);
    OK(set_int(v[1], SOL_SOCKET, SO_OOBINLINE, 1));
    CHECK_EQ(send(v[0], "Y", 1, MSG_OOB), 1);
    poll_for(v[1], POLLIN);
    CHECK_ERR(recv(v[1], b, 1, MSG_OOB), EINVAL);
    CHECK_EQ(recv(v[1], b, 16, 0), 1);
    CHECK_EQ(b[0], 'Y');
}
TEST(queues) {
    int v[2], n = -1;
    char b[64];
    tcp_pair(AF_INET, v);
    OK(ioctl(v[1], FIONREAD, &n));
    CHECK_EQ(n, 0);
    CHECK_EQ(write(v[0], "0123456789", 10), 10);
    poll_for(v[1], POLLIN);
    OK(ioctl(v[1], FIONREAD, &n));
    CHECK_EQ(n, 10);
    OK(set_int(v[1], SOL_SOCKET, SO_RCVLOWAT, 12));
    CHECK_EQ(poll_of(v[1], POLLIN), 0);
    CHECK_EQ(write(v[0], "xy", 2), 2);
    CHECK_EQ(poll_for(v[1], POLLIN), POLLIN);
    CHECK_EQ(read(v[1], b, 64), 12);
}
TEST(time_outs) {
    int v[2];
    char b[8];
    tcp_pair(AF_INET, v);
    struct timeval tv = {0, 50000};
    OK(setsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
    CHECK_ERR(recv(v[0], b, 8, 0), EAGAIN);
    CHECK_ERR(read(v[0], b, 8), EAGAIN);
    int l = bound(AF_INET, SOCK_STREAM);
    OK(setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv));
    CHECK_ERR(accept(l, 0, 0), EAGAIN);
    OK(setsockopt(v[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv));
    static char big[1 << 20];
    ssize_t n;
    while ((n = send(v[0], big, sizeof big, 0)) > 0) {}
    CHECK_EQ(errno, EAGAIN);
}
static void nothing(int sig) { (void)sig; }
TEST(signals_end_waits) {
    int v[2];
    char b[8];
    tcp_pair(AF_INET, v);
    struct sigaction sa = {.sa_handler = nothing};
    sigaction(SIGALRM, &sa, 0);
    struct itimerval it = {.it_value.tv_usec = 50000};
    setitimer(ITIMER_REAL, &it, 0);
    CHECK_ERR(read(v[0], b, 8), EINTR);
    int l = bound(AF_INET, SOCK_STREAM);
    setitimer(ITIMER_REAL, &it, 0);
    CHECK_ERR(accept(l, 0, 0), EINTR);
    sa.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &sa, 0);
    setitimer(ITIMER_REAL, &it, 0);
    pid_t p = FORK();
    if (p == 0) {
        t_ms(150);
        CHECK_EQ(write(v[1], "late", 4), 4);
        _exit(0);
    }
    CHECK_EQ(read(v[0], b, 8), 4);
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(a_death_closes) {
    int v[2];
    char b[8];
    tcp_pair(AF_INET, v);
    pid_t p = FORK();
    if (p == 0) {
        close(v[0]);
        for (;;) pause();
    }
    close(v[1]);
    CHECK_ERR(recv(v[0], b, 8, MSG_DONTWAIT), EAGAIN);
    kill(p, SIGKILL);
    CHECK_EQ(read(v[0], b, 8), 0);
    t_status(p);
}
TEST(files_into_sockets) {
    int v[2], fd = SYS(open("file", O_RDWR | O_CREAT, 0600)), p[2];
    tcp_pair(AF_INET, v);
    static char out[100000], in[100000];
    for (int i = 0; i < (int)sizeof out; i++) out[i] = i * 13;
    CHECK_EQ(write(fd, out, sizeof out), sizeof out);
    off_t at = 0;
    pid_t child = FORK();
    if (child == 0) {
        CHECK_EQ(sendfile(v[0], fd, &at, sizeof out), sizeof out);
        CHECK_EQ(at, sizeof out);
        _exit(0);
    }
    CHECK_EQ(recv(v[1], in, sizeof in, MSG_WAITALL), sizeof in);
    CHECK_MEM(in, out, sizeof in);
    t_status(child);
    SYS(pipe(p));
    CHECK_EQ(write(p[1], "through a pipe", 14), 14);
    CHECK_EQ(splice(p[0], 0, v[0], 0, 14, 0), 14);
    poll_for(v[1], POLLIN);
    CHECK_EQ(splice(v[1], 0, p[1], 0, 100, 0), 14);
    CHECK_EQ(read(p[0], in, 100), 14);
    CHECK_MEM(in, "through a pipe", 14);
    CHECK_ERR(lseek(v[0], 0, SEEK_CUR), ESPIPE);
    CHECK_ERR(pread(v[0], in, 1, 0), ESPIPE);
}
TEST(inherited_options) {
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(set_int(l, SOL_SOCKET, SO_KEEPALIVE, 1));
    OK(set_int(l, IPPROTO_TCP, TCP_NODELAY, 1));
    OK(set_int(l, SOL_SOCKET, SO_RCVBUF, 70000));
    struct linger lg = {1, 5};
    OK(setsockopt(l, SOL_SOCKET, SO_LINGER, &lg, sizeof lg));
    OK(listen(l, 5));
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(try_connect(s, AF_INET, port_of(l)));
    int c = SYS(accept(l, 0, 0));
    CHECK_EQ(get_int(c, SOL_SOCKET, SO_KEEPALIVE), 1);
    CHECK_EQ(get_int(c, IPPROTO_TCP, TCP_NODELAY), 1);
    CHECK_EQ(get_int(c, SOL_SOCKET, SO_RCVBUF), 140000);
    socklen_t n = sizeof lg;
    lg.l_linger = 0;
    OK(getsockopt(c, SOL_SOCKET, SO_LINGER, &lg, &n));
    CHECK_EQ(lg.l_linger, 5);
}
TEST(fstat_and_names_of_descriptors) {
    int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
    struct stat st;
    OK(fstat(s, &st));
    CHECK_EQ(st.st_mode & S_IFMT, S_IFSOCK);
    char path[64], to[64] = "", want[64];
    sprintf(path, "/proc/self/fd/%d", s);
    CHECK(readlink(path, to, 63) > 0);
    sprintf(want, "socket:[%lu]", (unsigned long)st.st_ino);
    CHECK_STR(to, want);
}
// The fields of a line of /proc/net/TABLE whose local port is this one; gives how many lines there are.
static int listed(const char *table, int port, int *state, unsigned *rx, unsigned long *inode, int *uid) {
    char path[64], line[512];
    int found = 0;
    sprintf(path, "/proc/net/%s", table);
    FILE *f = fopen(path, "r");
    MUST(f);
    MUST(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        unsigned p, st, tx, r, tr, when, again, timeout;
        char local[40], remote[40];
        int u;
        unsigned long ino;
        CHECK_EQ(sscanf(line, "%*d: %32[0-9A-F]:%x %32[0-9A-F]:%*x %x %x:%x %x:%x %x %d %u %lu", local, &p, remote, &st, &tx,
                        &r, &tr, &when, &again, &u, &timeout, &ino),
                 12);
        if (p != (unsigned)port) continue;
        found++;
        *state = st, *rx = r, *inode = ino, *uid = u;
        CHECK_STR(local, strlen(local) == 8 ? "0100007F" : "00000000000000000000000001000000");
    }
    fclose(f);
    return found;
}
TEST(lists_of_sockets) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), u = bound(f, SOCK_DGRAM), state, uid;
        unsigned rx;
        unsigned long inode;
        struct stat st;
        OK(fstat(l, &st));
        const char *tcp = f == AF_INET ? "tcp" : "tcp6", *udp = f == AF_INET ? "udp" : "udp6";
        CHECK_EQ(listed(tcp, port_of(l), &state, &rx, &inode, &uid), 1);
        CHECK_EQ(state, TCP_LISTEN);
        CHECK_EQ(rx, 0);
        CHECK_EQ(inode, st.st_ino);
        CHECK_EQ(uid, geteuid());
        int s = SYS(socket(f, SOCK_STREAM, 0));
        OK(try_connect(s, f, port_of(l)));
        CHECK_EQ(write(s, "12345", 5), 5);
        poll_for(l, POLLIN);
        // The listener, and its side of the connection, which nobody has accepted.
        CHECK_EQ(listed(tcp, port_of(l), &state, &rx, &inode, &uid), 2);
        OK(fstat(s, &st));
        CHECK_EQ(listed(tcp, port_of(s), &state, &rx, &inode, &uid), 1);
        CHECK_EQ(state, TCP_ESTABLISHED);
        CHECK_EQ(inode, st.st_ino);
        OK(fstat(u, &st));
        CHECK_EQ(listed(udp, port_of(u), &state, &rx, &inode, &uid), 1);
        CHECK_EQ(state, TCP_CLOSE);
        CHECK_EQ(inode, st.st_ino);
        OK(try_connect(u, f, 9));
        CHECK_EQ(listed(udp, port_of(u), &state, &rx, &inode, &uid), 1);
        CHECK_EQ(state, TCP_ESTABLISHED);
        int port = port_of(u);
        close(u);
        CHECK_EQ(listed(udp, port, &state, &rx, &inode, &uid), 0);
        close(s), close(l);
    }
}
static long setting(const char *name) {
    char path[128], text[64] = "";
    sprintf(path, "/proc/sys/net/%s", name);
    int fd = SYS(open(path, O_RDONLY));
    CHECK(read(fd, text, 63) > 0);
    close(fd);
    return atol(text);
}
static int set_setting(const char *name, const char *value) {
    char path[128];
    sprintf(path, "/proc/sys/net/%s", name);
    int fd = open(path, O_WRONLY);
    if (fd < 0) return -1;
    int n = write(fd, value, strlen(value)), e = errno;
    close(fd);
    errno = e;
    return n < 0 ? -1 : 0;
}
TEST(settings) {
    CHECK_EQ(setting("ipv4/tcp_keepalive_time"), 7200);
    CHECK_EQ(setting("ipv4/tcp_syn_retries"), 6);
    CHECK_EQ(setting("ipv4/ip_default_ttl"), 64);
    CHECK_EQ(setting("ipv6/bindv6only"), 0);
    CHECK_EQ(setting("core/somaxconn"), 4096);
    if (geteuid() != 0) SKIP("not root");
    if (set_setting("ipv4/ip_default_ttl", "64")) SKIP("read-only");
    // What is set takes effect.
    OK(set_setting("ipv4/tcp_keepalive_time", "100"));
    CHECK_EQ(get_int(SYS(socket(AF_INET, SOCK_STREAM, 0)), IPPROTO_TCP, TCP_KEEPIDLE), 100);
    OK(set_setting("ipv4/tcp_keepalive_time", "7200"));
    OK(set_setting("ipv4/tcp_congestion_control", "reno"));
    char name[16];
    socklen_t len = sizeof name;
    OK(getsockopt(SYS(socket(AF_INET, SOCK_STREAM, 0)), IPPROTO_TCP, TCP_CONGESTION, name, &len));
    CHECK(!strcmp(name, "reno"));
    CHECK_ERR(set_setting("ipv4/tcp_congestion_control", "nonsense"), ENOENT);
    CHECK_ERR(set_setting("ipv4/ip_default_ttl", "0"), EINVAL);
    CHECK_ERR(set_setting("ipv4/ip_local_port_range", "5000 4000"), EINVAL);
    OK(set_setting("ipv4/ip_local_port_range", "40000 40009"));
    int s = bound(AF_INET, SOCK_DGRAM);
    CHECK(port_of(s) >= 40000 && port_of(s) <= 40009);
    OK(set_setting("ipv4/ip_local_port_range", "32768 60999"));
    OK(set_setting("ipv4/ip_unprivileged_port_start", "80"));
    CHECK_CHILD({
        SYS(setresuid(1000, 1000, 1000));
        union addr a = loopback(AF_INET, 81);
        OK(bind(SYS(socket(AF_INET, SOCK_STREAM, 0)), &a.any, sizeof a.in));
        a.in.sin_port = htons(79);
        CHECK_ERR(bind(SYS(socket(AF_INET, SOCK_STREAM, 0)), &a.any, sizeof a.in), EACCES);
    });
    OK(set_setting("ipv4/ip_unprivileged_port_start", "1024"));
}
