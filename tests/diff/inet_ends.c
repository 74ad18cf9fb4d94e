// close(2) that waits, bytes that are held back, and splice(2) from sockets.
#include "inet.h"
#include <net/if.h>
#include <pthread.h>
#include <sched.h>

static double now(void) {
    struct timespec t;
    SYS(clock_gettime(CLOCK_MONOTONIC, &t));
    return t.tv_sec + t.tv_nsec / 1e9;
}
// A connection whose first end has written more than the other takes, and waits for the other at most `seconds` in close(2).
static void stuffed(int family, int v[2], int seconds) {
    static char much[1 << 16];
    tcp_pair(family, v);
    struct linger l = {1, seconds};
    OK(setsockopt(v[0], SOL_SOCKET, SO_LINGER, &l, sizeof l));
    OK(set_int(v[0], SOL_SOCKET, SO_SNDBUF, 1 << 16));
    OK(fcntl(v[0], F_SETFL, O_NONBLOCK));
    while (send(v[0], much, sizeof much, 0) > 0) {}
    CHECK_EQ(errno, EAGAIN);
}
static void swallow(int s) {
    static char b[1 << 16];
    while (read(s, b, sizeof b) > 0) {}
}

// Whatever O_NONBLOCK says.
TEST(close_lingers_until_the_time_is_over) {
    BOTH(f) {
        int v[2];
        stuffed(f, v, 1);
        double begin = now();
        OK(close(v[0]));
        CHECK(now() - begin >= 0.9);
        // What was written still arrives, and then the end.
        swallow(v[1]);
        CHECK_EQ(read(v[1], (char[1]){0}, 1), 0);
    }
}
TEST(close_lingers_until_the_peer_has_everything) {
    int v[2], gate[2];
    stuffed(AF_INET, v, 20);
    SYS(pipe(gate));
    int pid = SYS(fork());
    if (pid == 0) {
        close(v[0]);
        CHECK_EQ(write(gate[1], "g", 1), 1);
        usleep(300000);
        swallow(v[1]);
        _exit(0);
    }
    close(v[1]);
    CHECK_EQ(read(gate[0], (char[1]){0}, 1), 1);
    double begin = now();
    OK(close(v[0]));
    CHECK(now() - begin < 15);
    // Before that the child has begun to read.
    CHECK(now() - begin >= 0.2);
    CHECK_STATUS(t_status(pid), "exit 0");
}
static void nothing(int sig) {
    (void)sig;
}
TEST(a_signal_ends_a_lingering_close) {
    int v[2];
    stuffed(AF_INET, v, 20);
    struct sigaction a = {.sa_handler = nothing};
    OK(sigaction(SIGALRM, &a, 0));
    struct itimerval t = {{0, 0}, {0, 300000}};
    OK(setitimer(ITIMER_REAL, &t, 0));
    double begin = now();
    OK(close(v[0]));
    CHECK(now() - begin < 15);
    CHECK_ERR(fcntl(v[0], F_GETFD), EBADF);
}
TEST(only_the_last_close_lingers) {
    int v[2];
    stuffed(AF_INET, v, 20);
    int again = SYS(dup(v[0]));
    double begin = now();
    OK(close(again));
    CHECK(now() - begin < 15);
    // A process that ends waits for nobody.
    int pid = SYS(fork());
    if (pid == 0) {
        close(v[1]);
        _exit(7);
    }
    struct linger off = {0, 0};
    OK(setsockopt(v[0], SOL_SOCKET, SO_LINGER, &off, sizeof off));
    OK(close(v[0]));
    CHECK_STATUS(t_status(pid), "exit 7");
    CHECK(now() - begin < 15);
}
TEST(dup2_and_idle_connections) {
    int v[2];
    stuffed(AF_INET, v, 1);
    double begin = now();
    CHECK_EQ(dup2(v[1], v[0]), v[0]);
    CHECK(now() - begin >= 0.9);
    close(v[0]);
    tcp_pair(AF_INET6, v);
    struct linger l = {1, 20};
    OK(setsockopt(v[0], SOL_SOCKET, SO_LINGER, &l, sizeof l));
    begin = now();
    OK(close(v[0]));
    CHECK(now() - begin < 15);
    // One that listens, one that was never connected.
    int s = bound(AF_INET, SOCK_STREAM), fresh = SYS(socket(AF_INET, SOCK_STREAM, 0));
    OK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l));
    OK(setsockopt(fresh, SOL_SOCKET, SO_LINGER, &l, sizeof l));
    OK(close(s));
    OK(close(fresh));
    CHECK(now() - begin < 15);
}

TEST(corked_bytes_wait) {
    BOTH(f) {
        int v[2];
        char b[64];
        tcp_pair(f, v);
        CHECK_EQ(send(v[0], "before", 6, 0), 6);
        CHECK_EQ(recv(v[1], b, 64, 0), 6);
        OK(set_int(v[0], IPPROTO_TCP, TCP_CORK, 1));
        CHECK_EQ(send(v[0], "one", 3, 0), 3);
        CHECK_EQ(poll_of(v[1], POLLIN), 0);
        CHECK_EQ(send(v[0], "two", 3, 0), 3);
        OK(set_int(v[0], IPPROTO_TCP, TCP_CORK, 0));
        CHECK_EQ(poll_for(v[1], POLLIN), POLLIN);
        CHECK_EQ(recv(v[1], b, 64, 0), 6);
        CHECK_MEM(b, "onetwo", 6);
        CHECK_EQ(send(v[0], "after", 5, 0), 5);
        CHECK_EQ(recv(v[1], b, 64, 0), 5);
        // A segment that is full goes, the rest waits; the end lets it go.
        static char much[1 << 17], got[1 << 17];
        OK(set_int(v[0], IPPROTO_TCP, TCP_CORK, 1));
        CHECK_EQ(send(v[0], much, 70000, 0), 70000);
        OK(shutdown(v[0], SHUT_WR));
        CHECK_EQ(recv(v[1], got, sizeof got, MSG_WAITALL), 70000);
    }
}

TEST(splice_and_null) {
    int p[2], null = SYS(open("/dev/null", O_RDWR)), full = SYS(open("/dev/full", O_RDWR));
    SYS(pipe(p));
    CHECK_ERR(splice(null, 0, p[1], 0, 3, 0), EINVAL);
    CHECK_ERR(splice(p[0], 0, full, 0, 3, SPLICE_F_NONBLOCK), EINVAL);
    CHECK_EQ(splice(full, 0, p[1], 0, 3, 0), 3);
    CHECK_EQ(splice(p[0], 0, null, 0, 3, 0), 3);
    OK(fcntl(p[1], F_SETFL, O_NONBLOCK));
    while (write(p[1], "x", 1) == 1) {}
    CHECK_ERR(splice(null, 0, p[1], 0, 3, SPLICE_F_NONBLOCK), EAGAIN);
}
// SPLICE_F_NONBLOCK is for the pipe; of sockets only Unix streams look at it.
TEST(splice_waits_as_sockets_do) {
    int p[2], tcp[2], stream[2], dgram[2];
    SYS(pipe(p));
    tcp_pair(AF_INET, tcp);
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram));
    int udp = bound(AF_INET, SOCK_DGRAM);
    int from[] = {tcp[1], dgram[1], udp, stream[1]};
    struct timeval t = {0, 300000};
    for (int i = 0; i < 4; i++) {
        OK(setsockopt(from[i], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
        double begin = now();
        CHECK_ERR(splice(from[i], 0, p[1], 0, 9, SPLICE_F_NONBLOCK), EAGAIN);
        if (i < 3) CHECK(now() - begin >= 0.2);
        begin = now();
        CHECK_ERR(splice(from[i], 0, p[1], 0, 9, 0), EAGAIN);
        CHECK(now() - begin >= 0.2);
    }
    OK(fcntl(tcp[1], F_SETFL, O_NONBLOCK));
    CHECK_ERR(splice(tcp[1], 0, p[1], 0, 9, 0), EAGAIN);
}
TEST(urgent_data_ends_a_splice_that_waits) {
    int v[2], p[2];
    tcp_pair(AF_INET, v);
    SYS(pipe(p));
    int pid = SYS(fork());
    if (pid == 0) {
        usleep(200000);
        CHECK_EQ(send(v[0], "u", 1, MSG_OOB), 1);
        _exit(0);
    }
    CHECK_EQ(splice(v[1], 0, p[1], 0, 9, 0), 0);
    char c = 0;
    CHECK_EQ(recv(v[1], &c, 1, MSG_OOB), 1);
    CHECK_EQ(c, 'u');
    CHECK_STATUS(t_status(pid), "exit 0");
}

// The reader shuts its own direction down while more waits for it than it has room for: all of it comes, and comes once.
static void once(int from, int to) {
    static int out[1 << 18], in[1 << 18];
    int sent = 0, got = 0, wrong = 0, n;
    for (int i = 0; i < 1 << 18; i++) out[i] = i;
    OK(fcntl(from, F_SETFL, O_NONBLOCK));
    while ((n = send(from, (char *)out + sent, sizeof out - sent, 0)) > 0) sent += n;
    OK(shutdown(to, SHUT_WR));
    poll_for(from, POLLRDHUP);
    while (got < (int)sizeof in) {
        if ((n = recv(to, (char *)in + got, sizeof in - got < 65536 ? sizeof in - got : 65536, MSG_DONTWAIT)) > 0) got += n;
        if (sent < (int)sizeof out && n < 0 && (n = send(from, (char *)out + sent, sizeof out - sent, 0)) > 0) sent += n;
        if (n < 0) poll_for(to, POLLIN);
    }
    for (int i = 0; i < 1 << 18; i++) wrong += in[i] != i;
    CHECK_EQ(wrong, 0);
    OK(close(from));
    CHECK_EQ(recv(to, in, 1, 0), 0);
}
TEST(bytes_that_wait_come_once) {
    BOTH(f) {
        int v[2];
        tcp_pair(f, v);
        once(v[0], v[1]);
        tcp_pair(f, v);
        once(v[1], v[0]);
    }
}

// The client's first bytes may overtake the end of its handshake: the server's end must not wait for ever in write(2).
static struct sockaddr_in busy;
static void *greet(void *count) {
    for (int n = *(int *)count; n > 0; n--) {
        char answer[3] = "";
        int s = SYS(socket(AF_INET, SOCK_STREAM, 0));
        OK(connect(s, (void *)&busy, sizeof busy));
        CHECK_EQ(write(s, "hello", 5), 5);
        CHECK_EQ(recv(s, answer, 3, MSG_WAITALL), 3);
        OK(memcmp(answer, "yes", 3));
        close(s);
    }
    return NULL;
}
static void *answer(void *listener) {
    for (;;) {
        char b[5];
        int s = accept(*(int *)listener, NULL, NULL);
        if (s < 0) return NULL;
        CHECK_EQ(recv(s, b, 5, MSG_WAITALL), 5);
        CHECK_EQ(write(s, "yes", 3), 3);
        close(s);
    }
}
TEST(bytes_right_behind_a_handshake) {
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0)), count = 1000;
    socklen_t len = sizeof busy;
    busy = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    OK(bind(l, (void *)&busy, len));
    OK(getsockname(l, (void *)&busy, &len));
    OK(listen(l, 64));
    pthread_t clients[4], servers[4];
    for (int i = 0; i < 4; i++) {
        SYS(pthread_create(&servers[i], NULL, answer, &l));
        SYS(pthread_create(&clients[i], NULL, greet, &count));
    }
    for (int i = 0; i < 4; i++) SYS(pthread_join(clients[i], NULL));
    OK(shutdown(l, SHUT_RDWR));
    for (int i = 0; i < 4; i++) SYS(pthread_join(servers[i], NULL));
}

// What the socket of a connection that is over is called, and that nobody holds its port unless bind(2) named it.
static void check_ended(int s, int family, int named) {
    int port = port_of(s);
    CHECK(port != 0);
    int other = SYS(socket(family, SOCK_STREAM, 0));
    union addr like = loopback(family, port), any = loopback(family, 0);
    if (named) {
        CHECK_ERR(bind(other, &like.any, size_of(family)), EADDRINUSE);
        CHECK_ERR(bind(s, &any.any, size_of(family)), EINVAL);
    } else {
        OK(bind(other, &like.any, size_of(family)));
        OK(bind(s, &any.any, size_of(family)));
        CHECK(port_of(s) != 0 && port_of(s) != port);
    }
    close(other);
    close(s);
}
static int is_bound_to_loopback(int s, int family) {
    union addr a = name_of(s), b = loopback(family, port_of(s));
    return family == AF_INET ? a.in.sin_addr.s_addr == b.in.sin_addr.s_addr
                             : !memcmp(&a.in6.sin6_addr, &b.in6.sin6_addr, sizeof a.in6.sin6_addr);
}
// How: not bound, bound to an address, bound to an address and a port.
static int new_end(int family, int how) {
    int s = SYS(socket(family, SOCK_STREAM, 0));
    union addr a = loopback(family, 0);
    if (how == 2) {
        int free = bound(family, SOCK_STREAM);
        a = loopback(family, port_of(free));
        close(free);
    }
    if (how) OK(bind(s, &a.any, size_of(family)));
    return s;
}
// Nobody else's connections wait there.
static void own_network(void) {
    OK(unshare(CLONE_NEWNET));
    struct ifreq q = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    OK(ioctl(SYS(socket(AF_INET, SOCK_DGRAM, 0)), SIOCSIFFLAGS, &q));
}
TEST(the_port_goes_with_the_connection) {
    if (geteuid() != 0) SKIP("not root");
    own_network();
    BOTH(f) {
        for (int how = 0; how < 3; how++) {
            int closed = bound(f, SOCK_DGRAM), nobody = port_of(closed);
            int s = new_end(f, how);
            CHECK_ERR(try_connect(s, f, nobody), ECONNREFUSED);
            CHECK_EQ(is_bound_to_loopback(s, f), how != 0);
            check_ended(s, f, how == 2);
            close(closed);

            int l = bound(f, SOCK_STREAM);
            s = new_end(f, how);
            OK(try_connect(s, f, port_of(l)));
            struct sockaddr none = {.sa_family = AF_UNSPEC};
            OK(connect(s, &none, sizeof none));
            CHECK_EQ(is_bound_to_loopback(s, f), how != 0);
            close(SYS(accept(l, 0, 0)));
            check_ended(s, f, how == 2);

            s = new_end(f, how);
            OK(try_connect(s, f, port_of(l)));
            int peer = SYS(accept(l, 0, 0));
            struct linger now = {1, 0};
            OK(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now));
            close(peer);
            char c;
            CHECK_ERR(read(s, &c, 1), ECONNRESET);
            CHECK(is_bound_to_loopback(s, f));
            check_ended(s, f, how == 2);
            close(l);

            s = new_end(f, how);
            OK(listen(s, 1));
            OK(shutdown(s, SHUT_RD));
            CHECK_EQ(is_bound_to_loopback(s, f), how != 0);
            check_ended(s, f, how == 2);
        }
    }
}

// A value of /proc/net/snmp or netstat.
static long counter(const char *file, const char *title, const char *name) {
    char names[8192], values[8192];
    FILE *f = fopen(file, "r");
    long value = -1;
    while (f && fgets(names, sizeof names, f) && fgets(values, sizeof values, f)) {
        char *at1, *at2, *n = strtok_r(names, " \n", &at1), *v = strtok_r(values, " \n", &at2);
        if (strcmp(n, title)) continue;
        while ((n = strtok_r(NULL, " \n", &at1)) && (v = strtok_r(NULL, " \n", &at2)))
            if (!strcmp(n, name)) value = atol(v);
    }
    if (f) fclose(f);
    return value;
}
// Both ends of a connection that is reset count.
TEST(resets_are_counted) {
    if (geteuid() != 0) SKIP("not root");
    own_network();
    static const struct linger now = {1, 0};
    int v[2];
    tcp_pair(AF_INET, v);
    OK(setsockopt(v[0], SOL_SOCKET, SO_LINGER, &now, sizeof now));
    close(v[0]);
    char c;
    CHECK_ERR(read(v[1], &c, 1), ECONNRESET);
    CHECK_EQ(counter("/proc/net/snmp", "Tcp:", "EstabResets"), 2);
    CHECK_EQ(counter("/proc/net/snmp", "Tcp:", "CurrEstab"), 0);
    CHECK_EQ(counter("/proc/net/netstat", "TcpExt:", "TCPSynRetrans"), 0);
    CHECK_EQ(counter("/proc/net/netstat", "TcpExt:", "TCPDSACKOfoRecv"), 0);
    CHECK_EQ(counter("/proc/net/netstat", "TcpExt:", "TCPOrigDataSent"), 0);
    // An orderly end is none.
    tcp_pair(AF_INET, v);
    close(v[0]);
    CHECK_EQ(read(v[1], &c, 1), 0);
    close(v[1]);
    CHECK_EQ(counter("/proc/net/snmp", "Tcp:", "EstabResets"), 2);
}
