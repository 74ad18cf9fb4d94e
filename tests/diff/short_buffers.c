// Reads of streams into memory that ends before the bytes do: nothing is lost. What was written in one piece is taken whole, or
// not at all (EFAULT).
#include "t.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define P 4096L
enum kind { PIPE, UNIX, TCP };

static void streams(enum kind kind, int f[2]) {
    if (kind == PIPE) {
        SYS(pipe(f));
    } else if (kind == UNIX) {
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, f));
    } else {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t n = sizeof a;
        int l = SYS(socket(AF_INET, SOCK_STREAM, 0));
        OK(bind(l, (void *)&a, n));
        OK(listen(l, 1));
        OK(getsockname(l, (void *)&a, &n));
        f[1] = SYS(socket(AF_INET, SOCK_STREAM, 0));
        OK(connect(f[1], (void *)&a, n));
        f[0] = SYS(accept(l, 0, 0));
    }
    fcntl(f[0], F_SETFL, O_NONBLOCK);
}
// A page of memory, and nothing behind it.
static char *page(void) {
    char *m = mmap(0, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(m != MAP_FAILED);
    SYS(mprotect(m + P, P, PROT_NONE));
    return m;
}
static ssize_t rest(int fd) {
    static char b[1 << 20];
    ssize_t n, all = 0;
    while ((n = read(fd, b, sizeof b)) > 0) all += n;
    return all;
}
static ssize_t by_read(int fd, void *at, size_t n) { return read(fd, at, n); }
static ssize_t by_readv(int fd, void *at, size_t n) {
    struct iovec v[2] = {{at, 1}, {(char *)at + 1, n - 1}};
    return readv(fd, v, 2);
}
static ssize_t by_recv(int fd, void *at, size_t n) { return recv(fd, at, n, 0); }
static ssize_t by_recvmsg(int fd, void *at, size_t n) {
    struct iovec v = {at, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    return recvmsg(fd, &m, 0);
}
typedef ssize_t reader(int fd, void *at, size_t n);

TEST(one_piece_stays_whole) {
    reader *how[] = {by_read, by_readv, by_recv, by_recvmsg};
    for (int kind = PIPE; kind <= UNIX; kind++)
        for (int i = 0; i < (kind == PIPE ? 2 : 4); i++) {
            int f[2];
            char *m = page();
            streams(kind, f);
            CHECK_EQ(write(f[1], "abcdefgh", 8), 8);
            CHECK_ERR(how[i](f[0], m + P - 3, 100), EFAULT);
            CHECK_EQ(how[i](f[0], m + P - 3, 3), 3); // what fits, where no more is asked for
            CHECK_MEM(m + P - 3, "abc", 3);
            CHECK_EQ(how[i](f[0], m + P - 5, 100), 5);
            CHECK_MEM(m + P - 5, "defgh", 5);
            CHECK_ERR(how[i](f[0], m + P - 5, 100), EAGAIN);
        }
}
TEST(several_pieces) {
    for (int kind = PIPE; kind <= UNIX; kind++) {
        int f[2];
        char *m = page(), *big = calloc(1, P);
        streams(kind, f);
        // A page each, so that a pipe keeps them apart.
        for (int i = 0; i < 3; i++) CHECK_EQ(write(f[1], big, P), P);
        CHECK_EQ(read(f[0], m, 2 * P), P);
        CHECK_ERR(read(f[0], m + 1, 2 * P), EFAULT);
        CHECK_EQ(read(f[0], m, P), P);
        CHECK_EQ(rest(f[0]), P);
    }
}
TEST(nothing_writable) {
    for (int kind = PIPE; kind <= TCP; kind++) {
        int f[2];
        char *m = page();
        streams(kind, f);
        CHECK_ERR(read(f[0], m + P, 100), EAGAIN);
        CHECK_EQ(write(f[1], "abcdefgh", 8), 8);
        CHECK_ERR(read(f[0], m + P, 100), EFAULT);
        CHECK_ERR(read(f[0], BAD_PTR, 1), EFAULT);
        CHECK_EQ(rest(f[0]), 8);
    }
}
// The pieces of TCP are what the network makes of it: either way all bytes arrive.
TEST(tcp_loses_nothing) {
    for (int size = 8; size <= 300000; size *= 7) {
        int f[2];
        char *m = page(), *out = calloc(1, size);
        streams(TCP, f);
        CHECK_EQ(write(f[1], out, size), size);
        shutdown(f[1], SHUT_WR);
        ssize_t n = read(f[0], m + P - 3, size);
        CHECK(n == 3 || (n == -1 && errno == EFAULT));
        n = n > 0 ? n : 0;
        fcntl(f[0], F_SETFL, 0);
        CHECK_EQ(rest(f[0]), size - n);
    }
}
TEST(guard_pages_count) {
    int f[2];
    char *m = page();
    SYS(mprotect(m + P, P, PROT_READ | PROT_WRITE));
    OK(madvise(m + P, P, 102));
    streams(PIPE, f);
    CHECK_EQ(write(f[1], "abcdefgh", 8), 8);
    CHECK_ERR(read(f[0], m + P - 3, 100), EFAULT);
    CHECK_EQ(rest(f[0]), 8);
}
