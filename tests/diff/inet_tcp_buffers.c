// How much a TCP connection over the loopback interface takes before it is read.
#include "inet.h"

// A connection over loopback has room for twice ten of the largest segments. A queue that is full ends with a whole
// segment, so it takes writes of usual sizes whole.
TEST(what_a_send_buffer_takes) {
    static char b[16384];
    for (int size = 1024; size <= 16384; size *= 16) {
        int l = bound(AF_INET, SOCK_STREAM), s = SYS(socket(AF_INET, SOCK_STREAM, 0));
        OK(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
        union addr a = name_of(l);
        OK(connect(s, &a.any, sizeof a.in));
        int peer = SYS(accept(l, 0, 0));
        int room = 0;
        OK(getsockopt(s, SOL_SOCKET, SO_SNDBUF, &room, &(socklen_t){sizeof room}));
        CHECK_EQ(room, 2626560);
        OK(fcntl(s, F_SETFL, O_NONBLOCK));
        long taken = 0, full = 0, n;
        while ((n = write(s, b, size)) > 0) {
            taken += n;
            if (!full && !poll_of(s, POLLOUT)) full = taken;
        }
        CHECK_EQ(errno, EAGAIN);
        CHECK_EQ(taken % 512, 0);
        CHECK(taken > room - 100000 && taken < room + 200000);
        CHECK(full > room / 3 * 2 - 100000 && full < room / 3 * 2 + 200000);
        unsigned memory[9] = {0};
        OK(getsockopt(s, SOL_SOCKET, SO_MEMINFO, memory, &(socklen_t){sizeof memory}));
        CHECK((int)memory[5] >= room);
        CHECK_EQ(memory[3], room);
        close(s), close(peer), close(l);
    }
}
// The smallest send buffer takes a segment, also one that waits for more.
TEST(the_smallest_send_buffer) {
    int v[2], one = 1, zero = 0;
    static char b[65536];
    tcp_pair(AF_INET, v);
    OK(setsockopt(v[0], SOL_SOCKET, SO_SNDBUF, &one, sizeof one));
    OK(setsockopt(v[0], IPPROTO_TCP, TCP_CORK, &one, sizeof one));
    CHECK_EQ(send(v[0], b, 3000, MSG_DONTWAIT), 3000);
    CHECK_EQ(send(v[0], b, 3000, MSG_DONTWAIT), 3000);
    CHECK_ERR(recv(v[1], b, sizeof b, MSG_DONTWAIT), EAGAIN);
    OK(setsockopt(v[0], IPPROTO_TCP, TCP_CORK, &zero, sizeof zero));
    CHECK_EQ(recv(v[1], b, 6000, MSG_WAITALL), 6000);
}
