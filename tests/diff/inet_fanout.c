// Groups of packet sockets that share frames (PACKET_FANOUT).
#include "inet.h"
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>

#define GROUPS 3

static int member(int protocol) {
    int s = SYS(socket(AF_PACKET, SOCK_RAW, htons(protocol)));
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = 1};
    OK(bind(s, (void *)&at, sizeof at));
    return s;
}
static int joins(int s, int id, int kind) {
    return set_int(s, SOL_PACKET, PACKET_FANOUT, id | kind << 16);
}
static int frames(int s) {
    char b[256];
    int n = 0;
    while (recv(s, b, sizeof b, MSG_DONTWAIT) > 0) n++;
    return n;
}
// A group of this kind, and the sockets of flows to one receiver.
static void group(int v[GROUPS], int kind) {
    if (geteuid() != 0) SKIP("not root");
    int id = getpid() & 0xffff;
    for (int i = 0; i < GROUPS; i++) {
        v[i] = member(ETH_P_IP);
        OK(joins(v[i], id, kind));
    }
}
static int to(int receiver) {
    int s = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    OK(try_connect(s, AF_INET, port_of(receiver)));
    return s;
}
// Sends, and waits until the frame has been received, which is after it was seen.
static void one(int from, int receiver) {
    char b[8];
    CHECK_EQ(send(from, "frame", 5, 0), 5);
    CHECK_EQ(recv(receiver, b, 8, 0), 5);
}

TEST(joining) {
    if (geteuid() != 0) SKIP("not root");
    int s = member(ETH_P_IP), t = member(ETH_P_IP), other = member(ETH_P_ALL), id = getpid() & 0xffff;
    CHECK_EQ(get_int(s, SOL_PACKET, PACKET_FANOUT), 0);
    CHECK_ERR(joins(s, id, 99), EINVAL);
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_FANOUT, &id, 2), EINVAL);
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_FANOUT, &(struct { int a, b, c; }){0}, 12), EINVAL);
    CHECK_ERR(joins(s, id, PACKET_FANOUT_ROLLOVER | PACKET_FANOUT_FLAG_ROLLOVER), EINVAL);
    CHECK_ERR(joins(s, 5, PACKET_FANOUT_LB | PACKET_FANOUT_FLAG_UNIQUEID), EINVAL);
    OK(joins(s, id, PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_ROLLOVER));
    CHECK_EQ(get_int(s, SOL_PACKET, PACKET_FANOUT), id | (PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_ROLLOVER) << 16);
    CHECK_ERR(joins(s, id, PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_ROLLOVER), EALREADY);
    CHECK_ERR(joins(s, id, 99), EINVAL);
    CHECK_ERR(joins(t, id, PACKET_FANOUT_HASH), EINVAL);
    CHECK_ERR(joins(t, id, PACKET_FANOUT_LB | PACKET_FANOUT_FLAG_ROLLOVER), EINVAL);
    CHECK_ERR(joins(other, id, PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_ROLLOVER), EINVAL);
    OK(joins(t, id, PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_ROLLOVER));
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = 1};
    CHECK_ERR(bind(s, (void *)&at, sizeof at), EINVAL);
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, 1)};
    struct sock_fprog program = {1, code};
    CHECK_ERR(setsockopt(s, SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program), EINVAL);
    CHECK_ERR(setsockopt(other, SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program), EINVAL);
    // With its last member a group is gone.
    close(s);
    close(t);
    OK(joins(other, id, PACKET_FANOUT_LB));
    int unique = member(ETH_P_IP);
    OK(joins(unique, 0, PACKET_FANOUT_LB | PACKET_FANOUT_FLAG_UNIQUEID));
    CHECK((get_int(unique, SOL_PACKET, PACKET_FANOUT) & 0xffff) != id);
}
TEST(members_may_be_few) {
    if (geteuid() != 0) SKIP("not root");
    struct {
        unsigned short id, kind;
        unsigned most;
    } args = {getpid() & 0xffff, PACKET_FANOUT_LB, 2};
    int s = member(ETH_P_IP), t = member(ETH_P_IP), u = member(ETH_P_IP);
    OK(setsockopt(s, SOL_PACKET, PACKET_FANOUT, &args, sizeof args));
    args.most = 3;
    CHECK_ERR(setsockopt(t, SOL_PACKET, PACKET_FANOUT, &args, sizeof args), EINVAL);
    args.most = 0;
    OK(setsockopt(t, SOL_PACKET, PACKET_FANOUT, &args, sizeof args));
    CHECK_ERR(setsockopt(u, SOL_PACKET, PACKET_FANOUT, &args, sizeof args), ENOSPC);
    close(t);
    OK(setsockopt(u, SOL_PACKET, PACKET_FANOUT, &args, sizeof args));
    args.id++;
    args.most = 65537;
    CHECK_ERR(setsockopt(member(ETH_P_IP), SOL_PACKET, PACKET_FANOUT, &args, sizeof args), EINVAL);
}
TEST(flows_stay_together) {
    int v[GROUPS], receiver = bound(AF_INET, SOCK_DGRAM), all = 0, used = 0;
    group(v, PACKET_FANOUT_HASH);
    for (int flow = 0; flow < 40; flow++) {
        int s = to(receiver);
        for (int i = 0; i < 3; i++) one(s, receiver);
        int places = 0;
        for (int i = 0; i < GROUPS; i++) {
            int n = frames(v[i]);
            places += n > 0;
            all += n;
            used |= (n > 0) << i;
        }
        CHECK_EQ(places, 1);
        close(s);
    }
    CHECK_EQ(all, 120);
    CHECK_EQ(used, 7);
}
TEST(one_after_the_other) {
    int v[GROUPS], receiver = bound(AF_INET, SOCK_DGRAM), s = to(receiver);
    group(v, PACKET_FANOUT_LB);
    for (int i = 0; i < 3 * GROUPS; i++) one(s, receiver);
    for (int i = 0; i < GROUPS; i++) CHECK_EQ(frames(v[i]), 3);
}
TEST(the_next_when_one_is_full) {
    int v[GROUPS], receiver = bound(AF_INET, SOCK_DGRAM), s = to(receiver);
    group(v, PACKET_FANOUT_ROLLOVER);
    OK(set_int(v[0], SOL_SOCKET, SO_RCVBUF, 1));
    for (int i = 0; i < 60; i++) one(s, receiver);
    int first = frames(v[0]), second = frames(v[1]);
    CHECK(first > 0 && first < 60);
    CHECK_EQ(first + second, 60);
    CHECK_EQ(frames(v[2]), 0);
}
TEST(at_random) {
    int v[GROUPS], receiver = bound(AF_INET, SOCK_DGRAM), s = to(receiver), all = 0;
    group(v, PACKET_FANOUT_RND);
    for (int i = 0; i < 120; i++) one(s, receiver);
    for (int i = 0; i < GROUPS; i++) {
        int n = frames(v[i]);
        CHECK(n > 5);
        all += n;
    }
    CHECK_EQ(all, 120);
}
TEST(by_a_program) {
    int v[GROUPS], receiver = bound(AF_INET, SOCK_DGRAM), s = to(receiver);
    group(v, PACKET_FANOUT_CBPF);
    one(s, receiver);
    CHECK_EQ(frames(v[0]), 1);
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, 4)};
    struct sock_fprog program = {1, code};
    OK(setsockopt(v[0], SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program));
    one(s, receiver);
    CHECK_EQ(frames(v[1]), 1);
    CHECK_EQ(frames(v[0]) + frames(v[2]), 0);
    program.len = 0;
    CHECK_ERR(setsockopt(v[0], SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program), EINVAL);
}
TEST(members_that_leave) {
    int v[GROUPS], receiver = bound(AF_INET, SOCK_DGRAM), s = to(receiver);
    group(v, PACKET_FANOUT_LB);
    close(v[1]);
    for (int i = 0; i < 4; i++) one(s, receiver);
    CHECK_EQ(frames(v[0]), 2);
    CHECK_EQ(frames(v[2]), 2);
}
