// What a datagram socket tells of times and marks: SO_TIMESTAMPING of received and sent datagrams, SO_RCVMARK, and the control
// messages of SOL_SOCKET that a sender may give.
#include "inet.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif
#ifndef SO_TXTIME
#define SO_TXTIME 61
#endif
#define OPT_ID_TCP (1 << 16)
#define RECEIVED (SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE)
#define SENT (SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY)

struct told {
    int len, flags, stamps, mark, marked, old;
    socklen_t name;
    struct timespec time[3];
    struct sock_extended_err error;
};
// Receives a message and what is told with it.
static struct told take(int s, int flags) {
    struct told t = {0};
    char control[512], data[256];
    union addr from;
    struct iovec v = {data, sizeof data};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    m.msg_name = &from, m.msg_namelen = sizeof from;
    t.len = recvmsg(s, &m, flags | MSG_DONTWAIT);
    if (t.len < 0) return t;
    t.flags = m.msg_flags, t.name = m.msg_namelen;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        int socket = c->cmsg_level == SOL_SOCKET, len = c->cmsg_len - CMSG_LEN(0);
        if (socket && c->cmsg_type == SO_TIMESTAMPING) {
            t.stamps++;
            CHECK_EQ(len, sizeof t.time);
            memcpy(t.time, CMSG_DATA(c), sizeof t.time);
        }
        if (socket && c->cmsg_type == SO_TIMESTAMP) t.old++;
        if (socket && c->cmsg_type == SO_MARK) t.marked++, memcpy(&t.mark, CMSG_DATA(c), 4);
        if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
            (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR))
            memcpy(&t.error, CMSG_DATA(c), sizeof t.error);
    }
    return t;
}
static void is_now(const struct told *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK_EQ(t->stamps, 1);
    CHECK(labs(now.tv_sec - t->time[0].tv_sec) <= 2);
    CHECK_EQ(t->time[1].tv_sec, 0);
    CHECK_EQ(t->time[2].tv_sec, 0);
}
// Two sockets, the second of which is connected to the first.
static void ends(int family, int v[2]) {
    v[0] = bound(family, SOCK_DGRAM);
    v[1] = SYS(socket(family, SOCK_DGRAM, 0));
    SYS(try_connect(v[1], family, port_of(v[0])));
}
static int say(int s, int type, const void *value, int len) {
    char control[CMSG_SPACE(32)] = {0};
    struct iovec v = {"five5", 5};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(len)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = type, c->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(c), value, len);
    return sendmsg(s, &m, 0);
}
static int say_int(int s, int type, int value) {
    return say(s, type, &value, sizeof value);
}

TEST(times_of_received_datagrams) {
    BOTH(family) {
        int v[2];
        ends(family, v);
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_TIMESTAMPING), 0);
        // Recorded, but not reported.
        OK(set_int(v[0], SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE));
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_TIMESTAMPING), SOF_TIMESTAMPING_RX_SOFTWARE);
        usleep(100000); // the host begins to stamp a moment later
        CHECK_EQ(send(v[1], "one", 3, 0), 3);
        CHECK_EQ(take(v[0], 0).stamps, 0);
        OK(set_int(v[0], SOL_SOCKET, SO_TIMESTAMPING, RECEIVED | SOF_TIMESTAMPING_RAW_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE));
        CHECK_EQ(send(v[1], "three", 5, 0), 5);
        struct told t = take(v[0], MSG_PEEK);
        is_now(&t);
        t = take(v[0], 0);
        CHECK_EQ(t.len, 5);
        CHECK_EQ(t.old, 0);
        is_now(&t);
        OK(set_int(v[0], SOL_SOCKET, SO_TIMESTAMP, 1));
        CHECK_EQ(send(v[1], "four", 4, 0), 4);
        t = take(v[0], 0);
        CHECK_EQ(t.old, 1);
        is_now(&t);
        OK(set_int(v[0], SOL_SOCKET, SO_TIMESTAMPING, 0));
        CHECK_EQ(send(v[1], "five", 4, 0), 4);
        CHECK_EQ(take(v[0], 0).stamps, 0);
    }
}
TEST(times_of_sent_datagrams) {
    BOTH(family) {
        int v[2];
        ends(family, v);
        OK(set_int(v[1], SOL_SOCKET, SO_TIMESTAMPING, SENT | SOF_TIMESTAMPING_OPT_ID));
        CHECK_EQ(send(v[1], "one", 3, 0), 3);
        CHECK_EQ(send(v[1], "two", 3, 0), 3);
        struct pollfd p = {v[1], POLLIN, 0};
        CHECK_EQ(poll(&p, 1, 0), 1);
        CHECK_EQ(p.revents, POLLERR);
        CHECK_EQ(get_int(v[1], SOL_SOCKET, SO_ERROR), 0);
        CHECK_EQ(send(v[1], "three", 5, 0), 5);
        for (unsigned i = 0; i < 3; i++) {
            struct told t = take(v[1], MSG_ERRQUEUE);
            CHECK_EQ(t.len, 0);
            CHECK_EQ(t.flags & ~MSG_TRUNC, MSG_ERRQUEUE);
            is_now(&t);
            CHECK_EQ(t.error.ee_errno, ENOMSG);
            CHECK_EQ(t.error.ee_origin, SO_EE_ORIGIN_TIMESTAMPING);
            CHECK_EQ(t.error.ee_info, SCM_TSTAMP_SND);
            CHECK_EQ(t.error.ee_data, i);
        }
        CHECK_EQ(take(v[1], MSG_ERRQUEUE).len, -1);
        CHECK_EQ(errno, EAGAIN);
        // Numbers begin anew when the option is set again after it was not.
        OK(set_int(v[1], SOL_SOCKET, SO_TIMESTAMPING, SENT | SOF_TIMESTAMPING_TX_SCHED));
        CHECK_EQ(send(v[1], "four", 4, 0), 4);
        unsigned scheduled = take(v[1], MSG_ERRQUEUE).error.ee_info, sent = take(v[1], MSG_ERRQUEUE).error.ee_info;
        CHECK_EQ(scheduled, SCM_TSTAMP_SCHED);
        CHECK_EQ(sent, SCM_TSTAMP_SND);
        OK(set_int(v[1], SOL_SOCKET, SO_TIMESTAMPING, SENT | SOF_TIMESTAMPING_OPT_ID));
        CHECK_EQ(send(v[1], "five", 4, 0), 4);
        CHECK_EQ(take(v[1], MSG_ERRQUEUE).error.ee_data, 0);
        // One message may ask by itself.
        OK(set_int(v[1], SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY));
        CHECK_EQ(send(v[1], "six", 3, 0), 3);
        CHECK_EQ(take(v[1], MSG_ERRQUEUE).len, -1);
        CHECK_EQ(say_int(v[1], SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE), 5);
        struct told t = take(v[1], MSG_ERRQUEUE);
        is_now(&t);
        CHECK_ERR(say_int(v[1], SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE), EINVAL);
        // Without a report there is an entry without a time.
        OK(set_int(v[1], SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY));
        CHECK_EQ(send(v[1], "seven", 5, 0), 5);
        t = take(v[1], MSG_ERRQUEUE);
        CHECK_EQ(t.stamps, 0);
        CHECK_EQ(t.error.ee_info, SCM_TSTAMP_SND);
    }
}
TEST(flags_of_timestamping) {
    int s = bound(AF_INET, SOCK_DGRAM);
    CHECK_ERR(set_int(s, SOL_SOCKET, SO_TIMESTAMPING, 1 << 30), EINVAL);
    CHECK_ERR(set_int(s, SOL_SOCKET, SO_TIMESTAMPING, OPT_ID_TCP), EINVAL);
    CHECK_ERR(set_int(s, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_STATS), EINVAL);
    int usual = SENT | RECEIVED | SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_TX_ACK |
        SOF_TIMESTAMPING_RAW_HARDWARE | SOF_TIMESTAMPING_OPT_TX_SWHW | SOF_TIMESTAMPING_OPT_PKTINFO;
    OK(set_int(s, SOL_SOCKET, SO_TIMESTAMPING, usual));
    CHECK_EQ(get_int(s, SOL_SOCKET, SO_TIMESTAMPING), usual);
}
TEST(marks_of_received_datagrams) {
    BOTH(family) {
        int v[2];
        ends(family, v);
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_RCVMARK), 0);
        OK(set_int(v[0], SOL_SOCKET, SO_RCVMARK, 5));
        CHECK_EQ(get_int(v[0], SOL_SOCKET, SO_RCVMARK), 1);
        OK(set_int(v[1], SOL_SOCKET, SO_MARK, 0x1234));
        CHECK_EQ(send(v[1], "one", 3, 0), 3);
        struct told t = take(v[0], 0);
        CHECK_EQ(t.marked, 1);
        CHECK_EQ(t.mark, 0x1234);
        CHECK_EQ(say_int(v[1], SO_MARK, 77), 5);
        CHECK_EQ(take(v[0], 0).mark, 77);
        CHECK_EQ(send(v[1], "two", 3, 0), 3);
        CHECK_EQ(take(v[0], 0).mark, 0x1234);
        OK(set_int(v[0], SOL_SOCKET, SO_RCVMARK, 0));
        CHECK_EQ(send(v[1], "three", 5, 0), 5);
        CHECK_EQ(take(v[0], 0).marked, 0);
        CHECK_ERR(say(v[1], SO_MARK, "xy", 2), EINVAL);
    }
}
TEST(time_to_send_at) {
    BOTH(family) {
        int v[2];
        uint64_t soon = 1;
        ends(family, v);
        CHECK_ERR(say(v[1], SO_TXTIME, &soon, 8), EINVAL);
        struct sock_txtime when = {.clockid = CLOCK_MONOTONIC};
        OK(setsockopt(v[1], SOL_SOCKET, SO_TXTIME, &when, sizeof when));
        CHECK_ERR(say(v[1], SO_TXTIME, &soon, 4), EINVAL);
        CHECK_EQ(say(v[1], SO_TXTIME, &soon, 8), 5);
        CHECK_EQ(take(v[0], 0).len, 5);
        // Others are no sender's to say.
        CHECK_ERR(say_int(v[1], SO_RCVBUF, 1), EINVAL);
    }
}
TEST(local_sockets_know_none_of_these) {
    int v[2];
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, v));
    CHECK_ERR(say_int(v[0], SO_MARK, 1), EINVAL);
    CHECK_ERR(say_int(v[0], SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE), EINVAL);
}
