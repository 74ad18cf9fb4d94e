// Urgent data of Unix stream sockets (MSG_OOB, SIOCATMARK, SO_OOBINLINE, SIGURG), and peeking at an offset (SO_PEEK_OFF).
#include "t.h"
#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define SAYS(s, flags, want)                                                                                           \
    ({                                                                                                                 \
        char b_[64] = "";                                                                                              \
        CHECK_EQ(recv(s, b_, sizeof b_ - 1, (flags) | MSG_DONTWAIT), strlen(want));                                    \
        CHECK_STR(b_, want);                                                                                           \
    })
#define NOTHING(s, flags, why) ({ char b_[64]; CHECK_ERR(recv(s, b_, sizeof b_, (flags) | MSG_DONTWAIT), why); })
#define SEND(s, text, flags) CHECK_EQ(send(s, text, strlen(text), flags), strlen(text))

static void pair(int *s, int kind) { SYS(socketpair(AF_UNIX, kind, 0, s)); }
static int at_mark(int s) {
    int v = -1;
    SYS(ioctl(s, SIOCATMARK, &v));
    return v;
}
static int unread(int s) {
    int v = -1;
    SYS(ioctl(s, FIONREAD, &v));
    return v;
}
static int events(int s) {
    struct pollfd p = {s, POLLIN | POLLPRI | POLLRDHUP, 0};
    SYS(poll(&p, 1, 0));
    return p.revents;
}
static void set(int s, int name, int v) { OK(setsockopt(s, SOL_SOCKET, name, &v, sizeof v)); }
static int get(int s, int name) {
    int v = 77;
    socklen_t n = sizeof v;
    OK(getsockopt(s, SOL_SOCKET, name, &v, &n));
    return v;
}

TEST(only_streams_have_urgent_data) {
    int s[2];
    char b[4];
    int kinds[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        pair(s, kinds[i]);
        CHECK_ERR(send(s[0], "x", 1, MSG_OOB), EOPNOTSUPP);
        CHECK_ERR(recv(s[1], b, 1, MSG_OOB | MSG_DONTWAIT), EOPNOTSUPP);
        int v;
        CHECK_ERR(ioctl(s[1], SIOCATMARK, &v), EOPNOTSUPP);
    }
    pair(s, SOCK_STREAM);
    CHECK_ERR(send(s[0], "", 0, MSG_OOB), EOPNOTSUPP);
    NOTHING(s[1], MSG_OOB, EINVAL);
    int alone = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_ERR(send(alone, "", 0, MSG_OOB), EOPNOTSUPP);
    CHECK_ERR(send(alone, "x", 1, MSG_OOB), ENOTCONN);
    NOTHING(alone, MSG_OOB, EINVAL);
    close(s[1]);
    CHECK_ERR(send(s[0], "x", 1, MSG_OOB | MSG_NOSIGNAL), EPIPE);
}
TEST(the_last_byte_is_urgent) {
    int s[2];
    pair(s, SOCK_STREAM);
    CHECK_EQ(events(s[1]), 0);
    SEND(s[0], "hello", MSG_OOB);
    CHECK_EQ(events(s[1]), POLLIN | POLLPRI);
    CHECK_EQ(unread(s[1]), 5);
    CHECK_EQ(at_mark(s[1]), 0);
    SAYS(s[1], MSG_OOB | MSG_PEEK, "o");
    SAYS(s[1], MSG_OOB, "o");
    NOTHING(s[1], MSG_OOB, EINVAL);
    CHECK_EQ(events(s[1]), POLLIN);
    CHECK_EQ(unread(s[1]), 4);
    SAYS(s[1], 0, "hell");
    CHECK_EQ(at_mark(s[1]), 1);
    NOTHING(s[1], 0, EAGAIN);
    CHECK_EQ(at_mark(s[1]), 0);
    CHECK_EQ(events(s[1]), 0);
}
TEST(reading_stops_at_the_mark) {
    int s[2];
    pair(s, SOCK_STREAM);
    SEND(s[0], "ab", 0);
    SEND(s[0], "X", MSG_OOB);
    SEND(s[0], "cd", 0);
    SAYS(s[1], MSG_PEEK, "ab");
    SAYS(s[1], 0, "ab");
    CHECK_EQ(at_mark(s[1]), 1);
    // Who does not take the urgent byte loses it with the next read.
    SAYS(s[1], MSG_PEEK, "cd");
    CHECK_EQ(at_mark(s[1]), 1);
    SAYS(s[1], 0, "cd");
    NOTHING(s[1], MSG_OOB, EINVAL);
    NOTHING(s[1], 0, EAGAIN);
    // Taken first, the mark stays.
    SEND(s[0], "abX", MSG_OOB);
    SEND(s[0], "cd", 0);
    SAYS(s[1], MSG_OOB, "X");
    SAYS(s[1], 0, "ab");
    CHECK_EQ(at_mark(s[1]), 1);
    SAYS(s[1], 0, "cd");
    CHECK_EQ(at_mark(s[1]), 0);
}
TEST(the_end_does_not_hide_behind_a_mark) {
    int s[2];
    char b[4];
    pair(s, SOCK_STREAM);
    SEND(s[0], "X", MSG_OOB);
    SAYS(s[1], MSG_OOB, "X");
    CHECK_EQ(events(s[1]), POLLIN);
    close(s[0]);
    CHECK_EQ(recv(s[1], b, 4, MSG_DONTWAIT), 0);
    pair(s, SOCK_STREAM);
    SEND(s[0], "aX", MSG_OOB);
    close(s[0]);
    SAYS(s[1], 0, "a");
    CHECK_EQ(recv(s[1], b, 4, MSG_DONTWAIT), 0);
    // Closing with a mark alone does not reset the peer; an unread urgent byte does.
    pair(s, SOCK_STREAM);
    SEND(s[0], "X", MSG_OOB);
    SAYS(s[1], MSG_OOB, "X");
    close(s[1]);
    CHECK_EQ(recv(s[0], b, 4, MSG_DONTWAIT), 0);
    pair(s, SOCK_STREAM);
    SEND(s[0], "X", MSG_OOB);
    close(s[1]);
    CHECK_ERR(recv(s[0], b, 4, MSG_DONTWAIT), ECONNRESET);
}
TEST(a_newer_urgent_byte_makes_the_older_one_ordinary) {
    int s[2];
    pair(s, SOCK_STREAM);
    SEND(s[0], "aX", MSG_OOB);
    SEND(s[0], "bY", MSG_OOB);
    CHECK_EQ(unread(s[1]), 4);
    SAYS(s[1], MSG_OOB, "Y");
    SAYS(s[1], 0, "aXb");
    CHECK_EQ(at_mark(s[1]), 1);
    // Two that were both taken leave one mark.
    SEND(s[0], "X", MSG_OOB);
    SAYS(s[1], MSG_OOB, "X");
    SEND(s[0], "Y", MSG_OOB);
    CHECK_EQ(at_mark(s[1]), 1);
    SAYS(s[1], MSG_OOB, "Y");
    SEND(s[0], "z", 0);
    CHECK_EQ(at_mark(s[1]), 1);
    SAYS(s[1], 0, "z");
    SEND(s[0], "aX", MSG_OOB);
    SAYS(s[1], MSG_OOB, "X");
    SEND(s[0], "bY", MSG_OOB);
    SAYS(s[1], 0, "ab");
    CHECK_EQ(at_mark(s[1]), 1);
    NOTHING(s[1], 0, EAGAIN);
    NOTHING(s[1], MSG_OOB, EINVAL);
}
TEST(inline_urgent_data_is_read_in_its_place) {
    int s[2];
    pair(s, SOCK_STREAM);
    set(s[1], SO_OOBINLINE, 1);
    SEND(s[0], "ab", 0);
    SEND(s[0], "X", MSG_OOB);
    SEND(s[0], "cd", 0);
    CHECK_EQ(events(s[1]), POLLIN | POLLPRI);
    NOTHING(s[1], MSG_OOB, EINVAL);
    SAYS(s[1], 0, "ab");
    CHECK_EQ(at_mark(s[1]), 1);
    SAYS(s[1], MSG_PEEK, "Xcd");
    SAYS(s[1], 0, "Xcd");
    CHECK_EQ(at_mark(s[1]), 0);
    CHECK_EQ(events(s[1]), 0);
}
TEST(receive_flags_and_small_buffers) {
    int s[2];
    char b[4] = "";
    pair(s, SOCK_STREAM);
    SEND(s[0], "X", MSG_OOB);
    struct iovec v = {b, sizeof b};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(recvmsg(s[1], &m, MSG_OOB | MSG_PEEK), 1);
    CHECK_EQ(m.msg_flags, MSG_OOB);
    CHECK_EQ(recv(s[1], b, 0, MSG_OOB | MSG_PEEK), 1);
    CHECK_ERR(recv(s[1], BAD_PTR, 1, MSG_OOB | MSG_PEEK), EFAULT);
    CHECK_EQ(recv(s[1], b, 4, MSG_OOB | MSG_TRUNC), 1);
    CHECK_EQ(b[0], 'X');
}
static volatile int urgent;
static void on_urg(int sig, siginfo_t *i, void *u) { urgent += i->si_code == SI_KERNEL ? 1 : 100; }
TEST(the_owner_gets_sigurg) {
    int s[2];
    struct sigaction a = {.sa_sigaction = on_urg, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGURG, &a, 0));
    pair(s, SOCK_STREAM);
    SEND(s[0], "X", MSG_OOB);
    CHECK_EQ(urgent, 0);
    OK(fcntl(s[1], F_SETOWN, getpid()));
    SEND(s[0], "a", 0);
    OK(shutdown(s[0], SHUT_RD));
    CHECK_EQ(urgent, 0);
    SEND(s[0], "Y", MSG_OOB);
    CHECK_EQ(urgent, 1);
    // F_SETSIG is for O_ASYNC.
    OK(fcntl(s[1], F_SETSIG, SIGUSR1));
    SEND(s[0], "Z", MSG_OOB);
    CHECK_EQ(urgent, 2);
    OK(fcntl(s[1], F_SETOWN, 0));
    SEND(s[0], "Z", MSG_OOB);
    CHECK_EQ(urgent, 2);
}
TEST(epoll_tells_of_urgent_data) {
    int s[2], ep = SYS(epoll_create1(0));
    pair(s, SOCK_STREAM);
    struct epoll_event e = {.events = EPOLLPRI | EPOLLET};
    OK(epoll_ctl(ep, EPOLL_CTL_ADD, s[1], &e));
    CHECK_EQ(epoll_wait(ep, &e, 1, 0), 0);
    SEND(s[0], "ab", 0);
    CHECK_EQ(epoll_wait(ep, &e, 1, 0), 0);
    SEND(s[0], "X", MSG_OOB);
    CHECK_EQ(epoll_wait(ep, &e, 1, 1000), 1);
    CHECK_EQ(e.events, EPOLLPRI);
    CHECK_EQ(epoll_wait(ep, &e, 1, 0), 0);
    SAYS(s[1], MSG_OOB, "X");
    SEND(s[0], "Y", MSG_OOB);
    CHECK_EQ(epoll_wait(ep, &e, 1, 1000), 1);
}
TEST(urgent_byte_carries_descriptors) {
    int s[2], fd = t_file("f", "x");
    pair(s, SOCK_STREAM);
    char c[CMSG_SPACE(sizeof fd)] = {0}, b[4];
    struct iovec v = {"X", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    CHECK_EQ(sendmsg(s[0], &m, MSG_OOB), 1);
    v = (struct iovec){b, 4};
    memset(c, 0, sizeof c);
    m.msg_controllen = sizeof c;
    CHECK_EQ(recvmsg(s[1], &m, MSG_OOB), 1);
    CHECK_EQ(m.msg_controllen, 0);
    SEND(s[0], "yz", 0);
    SAYS(s[1], 0, "yz");
}

TEST(unread_bytes_of_a_message_read_in_part) {
    int s[2];
    char b[4];
    pair(s, SOCK_STREAM);
    SEND(s[0], "abcd", 0);
    SEND(s[0], "ef", 0);
    CHECK_EQ(recv(s[1], b, 1, 0), 1);
    CHECK_EQ(unread(s[1]), 5);
}
TEST(peek_offset_of_streams) {
    int s[2];
    pair(s, SOCK_STREAM);
    CHECK_EQ(get(s[0], SO_PEEK_OFF), -1);
    SEND(s[0], "abcd", 0);
    SEND(s[0], "efgh", 0);
    SAYS(s[1], MSG_PEEK, "abcdefgh");
    CHECK_EQ(get(s[1], SO_PEEK_OFF), -1);
    set(s[1], SO_PEEK_OFF, 2);
    SAYS(s[1], MSG_PEEK, "cdefgh");
    CHECK_EQ(get(s[1], SO_PEEK_OFF), 8);
    NOTHING(s[1], MSG_PEEK, EAGAIN);
    SEND(s[0], "ij", 0);
    SAYS(s[1], MSG_PEEK, "ij");
    char b[8] = "";
    CHECK_EQ(recv(s[1], b, 3, 0), 3);
    CHECK_STR(b, "abc");
    CHECK_EQ(get(s[1], SO_PEEK_OFF), 7);
    set(s[1], SO_PEEK_OFF, 1);
    CHECK_EQ(recv(s[1], b, 1, MSG_PEEK), 1);
    CHECK_EQ(b[0], 'e');
    CHECK_EQ(recv(s[1], b, 5, 0), 5);
    CHECK_EQ(get(s[1], SO_PEEK_OFF), 0);
    SAYS(s[1], MSG_PEEK, "ij");
    set(s[1], SO_PEEK_OFF, -5);
    CHECK_EQ(get(s[1], SO_PEEK_OFF), -5);
    SAYS(s[1], MSG_PEEK, "ij");
    CHECK_EQ(get(s[1], SO_PEEK_OFF), -5);
}
static void peek_records(int from, int to, bool unix_socket) {
    CHECK_EQ(get(to, SO_PEEK_OFF), -1);
    SEND(from, "abcd", 0);
    SEND(from, "efgh", 0);
    set(to, SO_PEEK_OFF, 0);
    char b[16] = "";
    CHECK_EQ(recv(to, b, 2, MSG_PEEK), 2);
    CHECK_EQ(get(to, SO_PEEK_OFF), 2);
    SAYS(to, MSG_PEEK, "cd");
    SAYS(to, MSG_PEEK, "efgh");
    CHECK_EQ(get(to, SO_PEEK_OFF), 8);
    NOTHING(to, MSG_PEEK, EAGAIN);
    CHECK_EQ(recv(to, b, 16, 0), 4);
    CHECK_EQ(get(to, SO_PEEK_OFF), 4);
    NOTHING(to, MSG_PEEK, EAGAIN);
    set(to, SO_PEEK_OFF, 1);
    struct iovec v = {b, 2};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(recvmsg(to, &m, MSG_PEEK | MSG_TRUNC), unix_socket ? 3 : 4);
    CHECK_EQ(m.msg_flags, MSG_TRUNC);
    CHECK_EQ(get(to, SO_PEEK_OFF), unix_socket ? 3 : 5);
    CHECK_EQ(recv(to, b, 1, 0), 1);
    CHECK_EQ(get(to, SO_PEEK_OFF), unix_socket ? 0 : 4);
    // Empty records are seen once.
    set(to, SO_PEEK_OFF, 0);
    CHECK_EQ(send(from, "", 0, 0), 0);
    SEND(from, "x", 0);
    CHECK_EQ(recv(to, b, 4, MSG_PEEK), 0);
    CHECK_EQ(recv(to, b, 4, MSG_PEEK), 1);
    CHECK_EQ(recv(to, b, 4, 0), 0);
    CHECK_EQ(recv(to, b, 4, 0), 1);
}
TEST(peek_offset_of_datagrams) {
    int s[2];
    pair(s, SOCK_DGRAM);
    peek_records(s[0], s[1], true);
}
TEST(peek_offset_of_packets) {
    int s[2];
    pair(s, SOCK_SEQPACKET);
    peek_records(s[0], s[1], true);
}
