// SO_ATTACH_REUSEPORT_CBPF: a program chooses a socket of those that share a UDP port.
#include "inet.h"
#include <linux/filter.h>
#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif

// The number of the socket is the first byte of the payload.
static struct sock_filter by_byte[] = {
    {BPF_LD | BPF_B | BPF_ABS, 0, 0, 0},
    {BPF_RET | BPF_A, 0, 0, 0},
};
static struct sock_filter last[] = {{BPF_RET | BPF_K, 0, 0, 2}};

static int attach(int s, struct sock_filter *code, int n) {
    struct sock_fprog program = {n, code};
    return setsockopt(s, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}
static int detach(int s) {
    int none = 0;
    return setsockopt(s, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none, sizeof none);
}
static int shared(int f) {
    int s = SYS(socket(f, SOCK_DGRAM, 0)), on = 1;
    SYS(setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    return s;
}
static void bind_to(int s, int f, int port) {
    union addr a = loopback(f, port);
    SYS(bind(s, &a.any, size_of(f)));
}
// The number of the socket that gets a byte; -1 for none.
static int taken(int f, int port, int byte, int *v, int n) {
    int c = SYS(socket(f, SOCK_DGRAM, 0)), found = -1;
    char b = byte;
    union addr to = loopback(f, port);
    CHECK_EQ(sendto(c, &b, 1, 0, &to.any, size_of(f)), 1);
    for (int i = 0; i < n; i++)
        if (v[i] >= 0 && recv(v[i], &b, 1, MSG_DONTWAIT) == 1) found = i;
    close(c);
    return found;
}

TEST(a_program_chooses) {
    BOTH(f) {
        int v[3] = {shared(f), shared(f), shared(f)};
        bind_to(v[0], f, 0);
        int port = port_of(v[0]);
        bind_to(v[1], f, port), bind_to(v[2], f, port);
        CHECK_EQ(attach(v[1], by_byte, 2), 0);
        for (int i = 0; i < 9; i++) CHECK_EQ(taken(f, port, i % 3, v, 3), i % 3);
        // A number that there is not: any of them.
        CHECK(taken(f, port, 3, v, 3) >= 0);
        CHECK(taken(f, port, 200, v, 3) >= 0);
        // Another program replaces it, by whichever socket.
        CHECK_EQ(attach(v[2], last, 1), 0);
        CHECK_EQ(taken(f, port, 0, v, 3), 2);
        CHECK_EQ(detach(v[0]), 0);
        CHECK_ERR(detach(v[0]), ENOENT);
        CHECK(taken(f, port, 0, v, 3) >= 0);
        for (int i = 0; i < 3; i++) close(v[i]);
    }
}
TEST(a_socket_that_leaves) {
    BOTH(f) {
        int v[4] = {shared(f), shared(f), shared(f), shared(f)};
        bind_to(v[0], f, 0);
        int port = port_of(v[0]);
        for (int i = 1; i < 4; i++) bind_to(v[i], f, port);
        CHECK_EQ(attach(v[0], by_byte, 2), 0);
        // The last one gets its number.
        close(v[1]), v[1] = -1;
        CHECK_EQ(taken(f, port, 0, v, 4), 0);
        CHECK_EQ(taken(f, port, 1, v, 4), 3);
        CHECK_EQ(taken(f, port, 2, v, 4), 2);
        // One that joins later gets the group's program.
        v[1] = shared(f);
        bind_to(v[1], f, port);
        CHECK_EQ(taken(f, port, 3, v, 4), 1);
        for (int i = 0; i < 4; i++) close(v[i]);
    }
}
TEST(before_bind) {
    BOTH(f) {
        int v[3] = {shared(f), shared(f), shared(f)};
        CHECK_EQ(attach(v[0], last, 1), 0);
        bind_to(v[0], f, 0);
        int port = port_of(v[0]);
        bind_to(v[1], f, port), bind_to(v[2], f, port);
        CHECK_EQ(taken(f, port, 0, v, 3), 2);
        for (int i = 0; i < 3; i++) close(v[i]);
    }
}
TEST(errors) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        CHECK_ERR(attach(s, last, 1), EINVAL);
        CHECK_ERR(detach(s), EINVAL);
        bind_to(s, f, 0);
        CHECK_ERR(attach(s, last, 1), EINVAL);
        CHECK_ERR(detach(s), EINVAL);
        close(s);
        s = shared(f);
        CHECK_ERR(detach(s), ENOENT);
        CHECK_ERR(attach(s, by_byte, 1), EINVAL);
        CHECK_ERR(attach(s, last, 0), EINVAL);
        struct sock_fprog program = {1, last};
        CHECK_ERR(setsockopt(s, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, 8), EINVAL);
        close(s);
    }
}
