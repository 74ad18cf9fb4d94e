// Datagrams of one piece: UDP_SEGMENT cuts them, UDP_GRO joins them again.
#include "inet.h"
#include <netinet/udp.h>

static char data[70000];

static void fill(void) {
    for (unsigned i = 0; i < sizeof data; i++) data[i] = i * 31 >> 3;
}
// Reads a piece; its length, and the size of its datagrams as UDP_GRO tells it (0 for none, -1 for an odd message).
static int take(int s, char *buf, int room, int *size) {
    char control[CMSG_SPACE(sizeof(int)) + 64];
    struct iovec iov = {buf, room};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int n = recvmsg(s, &m, MSG_DONTWAIT);
    *size = 0;
    if (n < 0) return n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
        *size = c->cmsg_len == CMSG_LEN(sizeof(int)) ? *(int *)CMSG_DATA(c) : -1;
    }
    return n;
}
static int sender(int f, int to, int segment) {
    int s = SYS(socket(f, SOCK_DGRAM, 0));
    SYS(try_connect(s, f, port_of(to)));
    if (segment) SYS(setsockopt(s, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment));
    return s;
}
static int receiver(int f) {
    int s = bound(f, SOCK_DGRAM), on = 1, room = 1 << 20;
    SYS(setsockopt(s, SOL_UDP, UDP_GRO, &on, sizeof on));
    SYS(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &room, sizeof room));
    return s;
}

TEST(the_option) {
    BOTH(f) {
        int s = SYS(socket(f, SOCK_DGRAM, 0)), on = 1;
        CHECK_EQ(get_int(s, SOL_UDP, UDP_GRO), 0);
        SYS(setsockopt(s, SOL_UDP, UDP_GRO, &on, sizeof on));
        CHECK_EQ(get_int(s, SOL_UDP, UDP_GRO), 1);
        close(s);
    }
}
TEST(a_piece_stays_whole) {
    fill();
    BOTH(f) {
        char buf[70000];
        int size, a = receiver(f), b = sender(f, a, 1000);
        CHECK_EQ(send(b, data, 2500, 0), 2500);
        CHECK_EQ(take(a, buf, sizeof buf, &size), 2500);
        CHECK_EQ(size, 1000);
        CHECK_MEM(buf, data, 2500);
        CHECK_ERR(take(a, buf, sizeof buf, &size), EAGAIN);
        // All of one length.
        CHECK_EQ(send(b, data, 60000, 0), 60000);
        CHECK_EQ(take(a, buf, sizeof buf, &size), 60000);
        CHECK_EQ(size, 1000);
        CHECK_MEM(buf, data, 60000);
        // One datagram is no piece.
        CHECK_EQ(send(b, data, 1000, 0), 1000);
        CHECK_EQ(take(a, buf, sizeof buf, &size), 1000);
        CHECK_EQ(size, 0);
        close(a), close(b);
    }
}
TEST(pieces_are_not_joined) {
    fill();
    BOTH(f) {
        char buf[70000];
        int size, a = receiver(f), b = sender(f, a, 100), c = sender(f, a, 0);
        for (int i = 0; i < 3; i++) CHECK_EQ(send(b, data, 300, 0), 300);
        CHECK_EQ(send(c, data, 100, 0), 100);
        CHECK_EQ(send(c, data, 100, 0), 100);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(take(a, buf, sizeof buf, &size), 300);
            CHECK_EQ(size, 100);
        }
        for (int i = 0; i < 2; i++) {
            CHECK_EQ(take(a, buf, sizeof buf, &size), 100);
            CHECK_EQ(size, 0);
        }
        close(a), close(b), close(c);
    }
}
TEST(without_the_option) {
    fill();
    BOTH(f) {
        char buf[70000];
        int size, a = receiver(f), b = sender(f, a, 1000), off = 0;
        SYS(setsockopt(a, SOL_UDP, UDP_GRO, &off, sizeof off));
        CHECK_EQ(send(b, data, 2500, 0), 2500);
        int lengths[] = {1000, 1000, 500};
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(take(a, buf, sizeof buf, &size), lengths[i]);
            CHECK_EQ(size, 0);
            CHECK_MEM(buf, data + i * 1000, lengths[i]);
        }
        close(a), close(b);
    }
}
TEST(a_short_buffer) {
    fill();
    BOTH(f) {
        char buf[4000];
        int size, a = receiver(f), b = sender(f, a, 1000);
        CHECK_EQ(send(b, data, 3000, 0), 3000);
        struct iovec iov = {buf, 1500};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        CHECK_EQ(recvmsg(a, &m, MSG_PEEK | MSG_TRUNC), 3000);
        CHECK_EQ(m.msg_flags & MSG_TRUNC, MSG_TRUNC);
        CHECK_EQ(take(a, buf, 1500, &size), 1500);
        CHECK_EQ(size, 1000);
        // The rest is gone.
        CHECK_ERR(take(a, buf, sizeof buf, &size), EAGAIN);
        close(a), close(b);
    }
}
TEST(by_a_control_message) {
    fill();
    BOTH(f) {
        char buf[4000], control[CMSG_SPACE(sizeof(uint16_t))] = {0};
        int size, a = receiver(f), b = sender(f, a, 0);
        struct iovec iov = {data, 1200};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_UDP, c->cmsg_type = UDP_SEGMENT, c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        *(uint16_t *)CMSG_DATA(c) = 500;
        CHECK_EQ(sendmsg(b, &m, 0), 1200);
        CHECK_EQ(take(a, buf, sizeof buf, &size), 1200);
        CHECK_EQ(size, 500);
        CHECK_MEM(buf, data, 1200);
        close(a), close(b);
    }
}
