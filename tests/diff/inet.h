// What the tests of internet sockets share. Ports are the kernel's choice; addresses are those of the loopback interface.
#pragma once
#include "t.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

union addr {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};
#define BOTH(f) for (int f##_[] = {AF_INET, AF_INET6}, f##i_ = 0, f = f##_[0]; f##i_ < 2; f##i_++, f = AF_INET6)

static inline socklen_t size_of(int family) {
    return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}
// The loopback address with a port.
__attribute__((unused)) static union addr loopback(int family, int port) {
    union addr a = {.any.sa_family = family};
    if (family == AF_INET) {
        a.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        a.in.sin_port = htons(port);
    } else {
        a.in6.sin6_addr = in6addr_loopback;
        a.in6.sin6_port = htons(port);
    }
    return a;
}
__attribute__((unused)) static union addr name_of(int s) {
    union addr a = {0};
    socklen_t n = sizeof a;
    SYS(getsockname(s, &a.any, &n));
    return a;
}
__attribute__((unused)) static int port_of(int s) {
    return ntohs(name_of(s).in.sin_port);
}
// A socket bound to the loopback address; a stream listens.
__attribute__((unused)) static int bound(int family, int type) {
    int s = SYS(socket(family, type, 0));
    union addr a = loopback(family, 0);
    SYS(bind(s, &a.any, size_of(family)));
    if ((type & 0xf) == SOCK_STREAM) SYS(listen(s, 8));
    return s;
}
__attribute__((unused)) static int try_connect(int s, int family, int port) {
    union addr a = loopback(family, port);
    return connect(s, &a.any, size_of(family));
}
// Two ends of a TCP connection.
__attribute__((unused)) static void tcp_pair(int family, int v[2]) {
    int l = bound(family, SOCK_STREAM);
    v[0] = SYS(socket(family, SOCK_STREAM, 0));
    SYS(try_connect(v[0], family, port_of(l)));
    v[1] = SYS(accept(l, 0, 0));
    close(l);
}
__attribute__((unused)) static int get_int(int s, int level, int name) {
    int v = -12345;
    socklen_t n = sizeof v;
    SYS(getsockopt(s, level, name, &v, &n));
    return v;
}
__attribute__((unused)) static int set_int(int s, int level, int name, int v) {
    return setsockopt(s, level, name, &v, sizeof v);
}
__attribute__((unused)) static int poll_of(int s, int events) {
    struct pollfd p = {s, events, 0};
    SYS(poll(&p, 1, 0));
    return p.revents;
}
// Waits for an event, at most 5 seconds.
__attribute__((unused)) static int poll_for(int s, int events) {
    struct pollfd p = {s, events, 0};
    SYS(poll(&p, 1, 5000));
    return p.revents;
}
