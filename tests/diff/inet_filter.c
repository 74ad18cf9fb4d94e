// Filters of TCP sockets (SO_ATTACH_FILTER), SO_GET_FILTER, and programs that choose a listener (SO_ATTACH_REUSEPORT_CBPF).
#include "inet.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/netlink.h>
#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif
#define N(code) (int)(sizeof code / sizeof *code)

static struct sock_filter all[] = {{BPF_RET | BPF_K, 0, 0, 0xffffffff}};
static struct sock_filter none[] = {{BPF_RET | BPF_K, 0, 0, 0}};
static struct sock_filter one_byte[] = {{BPF_RET | BPF_K, 0, 0, 1}};
// Drops segments whose payload begins with 'n'.
static struct sock_filter no_n[] = {
    {BPF_LD | BPF_B | BPF_ABS, 0, 0, 12}, {BPF_ALU | BPF_RSH | BPF_K, 0, 0, 2}, {BPF_ALU | BPF_AND | BPF_K, 0, 0, 0x3c},
    {BPF_MISC | BPF_TAX, 0, 0, 0},        {BPF_LD | BPF_W | BPF_LEN, 0, 0, 0},  {BPF_JMP | BPF_JEQ | BPF_X, 2, 0, 0},
    {BPF_LD | BPF_B | BPF_IND, 0, 0, 0},  {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 'n'}, {BPF_RET | BPF_K, 0, 0, 0xffffffff},
    {BPF_RET | BPF_K, 0, 0, 0},
};
// Two bytes of each payload.
static struct sock_filter two[] = {
    {BPF_LD | BPF_B | BPF_ABS, 0, 0, 12}, {BPF_ALU | BPF_RSH | BPF_K, 0, 0, 2}, {BPF_ALU | BPF_AND | BPF_K, 0, 0, 0x3c},
    {BPF_ALU | BPF_ADD | BPF_K, 0, 0, 2}, {BPF_RET | BPF_A, 0, 0, 0},
};

static int attach(int s, int n, struct sock_filter *code) {
    struct sock_fprog program = {n, code};
    return setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}
static int detach(int s) { return set_int(s, SOL_SOCKET, SO_DETACH_FILTER, 0); }
static int readable(int s, int ms) {
    struct pollfd p = {s, POLLIN, 0};
    return SYS(poll(&p, 1, ms));
}
// Begins to connect; true when it has succeeded within a time.
static int connects(int c, int f, int port, int ms) {
    SYS(fcntl(c, F_SETFL, O_NONBLOCK));
    union addr a = loopback(f, port);
    connect(c, &a.any, size_of(f));
    struct pollfd p = {c, POLLOUT, 0};
    return SYS(poll(&p, 1, ms)) == 1 && p.revents == POLLOUT;
}

TEST(a_listener_sees_the_syn) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), port = port_of(l);
        // The port at its place in TCP's header, and the flags of a SYN.
        struct sock_filter syn[] = {
            {BPF_LD | BPF_H | BPF_ABS, 0, 0, 2},
            {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, port},
            {BPF_LD | BPF_B | BPF_ABS, 0, 0, 13},
            {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 2},
            {BPF_RET | BPF_K, 0, 0, 0},
            {BPF_RET | BPF_K, 0, 0, 0xffffffff},
        };
        OK(attach(l, N(syn), syn));
        int c = SYS(socket(f, SOCK_STREAM, 0));
        CHECK_EQ(connects(c, f, port, 300), 0);
        OK(detach(l));
        CHECK_ERR(detach(l), ENOENT);
        // The SYN comes again after a second.
        CHECK_EQ(poll_for(c, POLLOUT), POLLOUT);
        close(accept(l, 0, 0)), close(c);
        // A filter of the acknowledgement of the SYN-ACK: the connecting side is done, the listener is not.
        syn[3].k = 0x10;
        OK(attach(l, N(syn), syn));
        c = SYS(socket(f, SOCK_STREAM, 0));
        CHECK_EQ(connects(c, f, port, 300), 1);
        CHECK_EQ(readable(l, 200), 0);
        OK(detach(l));
        CHECK_EQ(send(c, "x", 1, 0), 1);
        CHECK_EQ(readable(l, 5000), 1);
        close(c), close(l);
    }
}
TEST(headers_are_kept) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), c = SYS(socket(f, SOCK_STREAM, 0));
        OK(attach(l, 1, one_byte));
        CHECK_EQ(connects(c, f, port_of(l), 5000), 1);
        close(accept(l, 0, 0)), close(c), close(l);
    }
}
TEST(segments_are_dropped) {
    BOTH(f) {
        int v[2];
        char in[16];
        tcp_pair(f, v);
        CHECK_EQ(send(v[0], "before", 6, 0), 6);
        OK(attach(v[1], N(no_n), no_n));
        CHECK_EQ(recv(v[1], in, sizeof in, 0), 6);
        CHECK_EQ(send(v[0], "yes", 3, 0), 3);
        CHECK_EQ(readable(v[1], 5000), 1);
        CHECK_EQ(recv(v[1], in, sizeof in, 0), 3);
        CHECK_EQ(send(v[0], "no", 2, 0), 2);
        CHECK_EQ(readable(v[1], 150), 0);
        // It is not acknowledged, so it comes again.
        OK(detach(v[1]));
        CHECK_EQ(readable(v[1], 5000), 1);
        CHECK_EQ(recv(v[1], in, sizeof in, 0), 2);
        CHECK_MEM(in, "no", 2);
        // The other direction is not concerned.
        CHECK_EQ(send(v[1], "no", 2, 0), 2);
        CHECK_EQ(recv(v[0], in, sizeof in, 0), 2);
        close(v[0]), close(v[1]);
    }
}
TEST(the_end_is_dropped) {
    BOTH(f) {
        int v[2];
        char in[16];
        tcp_pair(f, v);
        OK(attach(v[1], 1, none));
        OK(shutdown(v[0], SHUT_WR));
        CHECK_EQ(readable(v[1], 150), 0);
        OK(attach(v[1], 1, all));
        CHECK_EQ(readable(v[1], 5000), 1);
        CHECK_EQ(recv(v[1], in, sizeof in, 0), 0);
        close(v[0]), close(v[1]);
        tcp_pair(f, v);
        OK(attach(v[1], 1, none));
        struct linger hard = {1, 0};
        OK(setsockopt(v[0], SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
        close(v[0]);
        // A reset does not come again.
        CHECK_EQ(readable(v[1], 300), 0);
        close(v[1]);
    }
}
TEST(segments_are_cut) {
    BOTH(f) {
        int v[2];
        char in[16];
        tcp_pair(f, v);
        OK(attach(v[1], N(two), two));
        CHECK_EQ(send(v[0], "hello", 5, 0), 5);
        CHECK_EQ(readable(v[1], 5000), 1);
        CHECK_EQ(recv(v[1], in, 2, 0), 2);
        CHECK_MEM(in, "he", 2);
        OK(detach(v[1]));
        CHECK_EQ(recv(v[1], in, 3, MSG_WAITALL), 3);
        CHECK_MEM(in, "llo", 3);
        close(v[0]), close(v[1]);
    }
}
TEST(accepted_sockets_inherit) {
    BOTH(f) {
        int l = bound(f, SOCK_STREAM), c = SYS(socket(f, SOCK_STREAM, 0));
        char in[16];
        OK(attach(l, N(no_n), no_n));
        OK(set_int(l, SOL_SOCKET, SO_LOCK_FILTER, 1));
        OK(try_connect(c, f, port_of(l)));
        int s = SYS(accept(l, 0, 0));
        CHECK_EQ(get_int(s, SOL_SOCKET, SO_LOCK_FILTER), 1);
        CHECK_ERR(detach(s), EPERM);
        CHECK_ERR(attach(s, 1, all), EPERM);
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 0), EPERM);
        OK(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 1));
        CHECK_EQ(send(c, "yes", 3, 0), 3);
        CHECK_EQ(recv(s, in, sizeof in, 0), 3);
        CHECK_EQ(send(c, "no", 2, 0), 2);
        CHECK_EQ(readable(s, 300), 0);
        close(l), close(c), close(s);
    }
}
TEST(filters_are_told) {
    int kinds[][3] = {
        {AF_INET, SOCK_STREAM, 0}, {AF_INET6, SOCK_STREAM, 0}, {AF_INET, SOCK_DGRAM, 0},  {AF_INET6, SOCK_DGRAM, 0},
        {AF_UNIX, SOCK_STREAM, 0}, {AF_UNIX, SOCK_DGRAM, 0},   {AF_NETLINK, SOCK_RAW, 0}, {AF_INET, SOCK_RAW, IPPROTO_ICMP},
        {AF_PACKET, SOCK_RAW, 0},
    };
    for (int i = 0; i < (geteuid() ? 7 : 9); i++) {
        int s = SYS(socket(kinds[i][0], kinds[i][1], kinds[i][2]));
        struct sock_filter got[16];
        socklen_t n = 16;
        OK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, got, &n));
        CHECK_EQ(n, 0);
        OK(attach(s, N(no_n), no_n));
        n = 0;
        OK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, 0, &n));
        CHECK_EQ(n, N(no_n));
        n = N(no_n) - 1;
        CHECK_ERR(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, got, &n), EINVAL);
        n = 16;
        CHECK_ERR(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, BAD_PTR, &n), EFAULT);
        OK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, got, &n));
        CHECK_EQ(n, N(no_n));
        CHECK_MEM(got, no_n, sizeof no_n);
        OK(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 1));
        CHECK_ERR(detach(s), EPERM);
        n = 16;
        OK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, got, &n));
        CHECK_EQ(n, N(no_n));
        close(s);
    }
}

static int choose_by(int s, int n, struct sock_filter *code) {
    struct sock_fprog program = {n, code};
    return setsockopt(s, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
}
static int shared(int f) {
    int s = SYS(socket(f, SOCK_STREAM, 0));
    SYS(set_int(s, SOL_SOCKET, SO_REUSEPORT, 1));
    return s;
}
static void bind_to(int s, int f, int port) {
    union addr a = loopback(f, port);
    SYS(bind(s, &a.any, size_of(f)));
}
// The number of the listener that gets a connection.
static int taken(int f, int port, int *v, int n) {
    int c = SYS(socket(f, SOCK_STREAM, 0)), found = -1;
    SYS(try_connect(c, f, port));
    for (int i = 0; i < n; i++)
        if (v[i] >= 0 && readable(v[i], 0)) found = i, close(accept(v[i], 0, 0));
    close(c);
    return found;
}
static struct sock_filter second[] = {{BPF_RET | BPF_K, 0, 0, 1}}, third[] = {{BPF_RET | BPF_K, 0, 0, 2}};
// A SYN has no payload, so this is 0.
static struct sock_filter by_length[] = {{BPF_LD | BPF_W | BPF_LEN, 0, 0, 0}, {BPF_RET | BPF_A, 0, 0, 0}};

TEST(a_program_chooses_a_listener) {
    BOTH(f) {
        int v[3] = {shared(f), shared(f), shared(f)};
        bind_to(v[0], f, 0);
        int port = port_of(v[0]);
        bind_to(v[1], f, port), bind_to(v[2], f, port);
        for (int i = 0; i < 3; i++) SYS(listen(v[i], 8));
        OK(choose_by(v[1], 1, third));
        for (int i = 0; i < 4; i++) CHECK_EQ(taken(f, port, v, 3), 2);
        OK(choose_by(v[2], 1, second));
        for (int i = 0; i < 4; i++) CHECK_EQ(taken(f, port, v, 3), 1);
        OK(choose_by(v[2], 2, by_length));
        for (int i = 0; i < 4; i++) CHECK_EQ(taken(f, port, v, 3), 0);
        // A number that there is not: any of them.
        OK(choose_by(v[0], 1, all));
        CHECK(taken(f, port, v, 3) >= 0);
        // The last one gets the number of one that leaves.
        OK(choose_by(v[0], 2, by_length));
        close(v[0]), v[0] = -1;
        for (int i = 0; i < 4; i++) CHECK_EQ(taken(f, port, v, 3), 2);
        OK(set_int(v[1], SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0));
        CHECK_ERR(set_int(v[1], SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0), ENOENT);
        CHECK(taken(f, port, v, 3) >= 0);
        close(v[1]), close(v[2]);
    }
}
TEST(a_program_before_listen) {
    BOTH(f) {
        int v[3] = {shared(f), shared(f), shared(f)};
        OK(choose_by(v[0], 1, third));
        bind_to(v[0], f, 0);
        int port = port_of(v[0]);
        SYS(listen(v[0], 8));
        for (int i = 1; i < 3; i++) bind_to(v[i], f, port), SYS(listen(v[i], 8));
        for (int i = 0; i < 4; i++) CHECK_EQ(taken(f, port, v, 3), 2);
        // With a program of its own, a socket does not join others.
        int s = shared(f);
        OK(choose_by(s, 1, second));
        union addr a = loopback(f, port);
        CHECK_ERR(bind(s, &a.any, size_of(f)), EADDRINUSE);
        close(s);
        s = shared(f);
        bind_to(s, f, port);
        OK(choose_by(s, 1, second));
        CHECK_ERR(listen(s, 8), EADDRINUSE);
        close(s);
        for (int i = 0; i < 3; i++) close(v[i]);
    }
}
// Listeners by random numbers, by the processor, and by an exclusive or of registers.
static struct sock_filter by_chance[] = {
    {BPF_LD | BPF_W | BPF_ABS, 0, 0, SKF_AD_OFF + SKF_AD_RANDOM}, {BPF_ALU | BPF_AND | BPF_K, 0, 0, 1}, {BPF_RET | BPF_A, 0, 0, 0}};
static struct sock_filter by_processor[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, SKF_AD_OFF + SKF_AD_CPU},
                                            {BPF_JMP | BPF_JGE | BPF_K, 0, 1, 4096},
                                            {BPF_RET | BPF_K, 0, 0, 0},
                                            {BPF_RET | BPF_K, 0, 0, 1}};
static struct sock_filter by_registers[] = {{BPF_LDX | BPF_W | BPF_IMM, 0, 0, 3},
                                            {BPF_LD | BPF_W | BPF_IMM, 0, 0, 2},
                                            {BPF_LD | BPF_W | BPF_ABS, 0, 0, SKF_AD_OFF + SKF_AD_ALU_XOR_X},
                                            {BPF_RET | BPF_A, 0, 0, 0}};
TEST(loads_beyond_the_packet) {
    BOTH(f) {
        int v[2] = {shared(f), shared(f)}, got[2] = {0};
        bind_to(v[0], f, 0);
        int port = port_of(v[0]);
        bind_to(v[1], f, port);
        for (int i = 0; i < 2; i++) SYS(listen(v[i], 8));
        OK(choose_by(v[0], N(by_chance), by_chance));
        for (int i = 0; i < 40; i++) {
            int n = taken(f, port, v, 2);
            MUST(n >= 0);
            got[n]++;
        }
        CHECK(got[0] > 0);
        CHECK(got[1] > 0);
        OK(choose_by(v[0], N(by_processor), by_processor));
        for (int i = 0; i < 4; i++) CHECK_EQ(taken(f, port, v, 2), 1);
        OK(choose_by(v[0], N(by_registers), by_registers));
        for (int i = 0; i < 4; i++) CHECK_EQ(taken(f, port, v, 2), 1);
        close(v[0]), close(v[1]);
        // The instructions are told as they were given.
        int s = SYS(socket(f, SOCK_DGRAM, 0));
        struct sock_filter told[8];
        socklen_t n = 8;
        OK(attach(s, N(by_registers), by_registers));
        OK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, told, &n));
        CHECK_EQ(n, N(by_registers));
        CHECK_MEM(told, by_registers, sizeof by_registers);
        close(s);
    }
}
TEST(errors_of_programs) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_STREAM, 0));
        CHECK_ERR(choose_by(s, 1, second), EINVAL);
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0), EINVAL);
        close(s);
        s = bound(f, SOCK_STREAM);
        CHECK_ERR(choose_by(s, 1, second), EINVAL);
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0), EINVAL);
        close(s);
        s = shared(f);
        CHECK_ERR(set_int(s, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0), ENOENT);
        CHECK_ERR(choose_by(s, 1, by_length), EINVAL);
        CHECK_ERR(choose_by(s, 0, second), EINVAL);
        OK(set_int(s, SOL_SOCKET, SO_LOCK_FILTER, 1));
        CHECK_ERR(choose_by(s, 1, second), EPERM);
        close(s);
    }
    int s = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_ERR(choose_by(s, 1, second), EINVAL);
    CHECK_ERR(set_int(s, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0), EINVAL);
    close(s);
    if (geteuid() != 0) return;
    s = SYS(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    CHECK_ERR(choose_by(s, 1, second), EINVAL);
    CHECK_ERR(set_int(s, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0), EINVAL);
    close(s);
}
