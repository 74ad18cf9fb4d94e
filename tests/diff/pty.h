// What the tests of pseudo terminals share: a pair, and what is read from an end and written to it.
#pragma once
#include "t.h"
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static int m, s;
static void pair(void) { SYS(openpty(&m, &s, 0, 0, 0)); }
static const char *get(int fd) {
    static char b[4096];
    ssize_t n = read(fd, b, sizeof b - 1);
    if (n < 0) return t_errno(errno);
    b[n] = 0;
    return b;
}
static void put(int fd, const char *t) { CHECK_EQ(write(fd, t, strlen(t)), strlen(t)); }
