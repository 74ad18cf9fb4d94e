// Pseudo terminals that are hung up, carriers, and input that others have processed.
#include "pty.h"

static int name_opened(int flags) { return open(ptsname(m), O_RDWR | flags); }
TEST(hangup_by_ioctl) {
    pair();
    int again = SYS(name_opened(O_NOCTTY)), flags = 0;
    put(m, "typed\n");
    SYS(fcntl(m, F_SETFL, O_NONBLOCK));
    while (!strcmp(get(m), "EAGAIN")) t_ms(1);
    OK(ioctl(s, TIOCVHANGUP));
    for (int i = 0; i < 2; i++) {
        int fd = i ? again : s;
        struct pollfd p = {fd, POLLIN | POLLOUT, 0};
        CHECK_STR(get(fd), "");
        CHECK_ERR(write(fd, "x", 1), EIO);
        CHECK_ERR(ioctl(fd, TIOCGWINSZ, BAD_PTR), EIO);
        CHECK_ERR(ioctl(fd, TIOCVHANGUP), EIO);
        CHECK_EQ(poll(&p, 1, 0), 1);
        CHECK_EQ(p.revents, POLLIN | POLLOUT | POLLERR | POLLHUP);
        CHECK_EQ(isatty(fd), 0);
        CHECK_EQ(fcntl(fd, F_GETFL, &flags) & O_ACCMODE, O_RDWR);
    }
    // The master hears nothing of it.
    CHECK_STR(get(m), "EAGAIN");
    struct pollfd p = {m, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLOUT);
    // The pair is there, for files that are opened from now on.
    int fresh = SYS(name_opened(O_NOCTTY));
    CHECK_STR(get(m), "EAGAIN");
    put(fresh, "out\n");
    CHECK_STR(get(m), "out\r\n");
    close(s), close(again);
    CHECK_STR(get(m), "EAGAIN");
    put(m, "in\n");
    CHECK_STR(get(fresh), "in\n");
    close(fresh);
    while (strcmp(get(m), "EIO")) t_ms(1);
}
TEST(hangup_of_a_session) {
    pair();
    struct t_gate ready = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        SYS(setsid());
        OK(ioctl(s, TIOCSCTTY, 0));
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGHUP), sigaddset(&set, SIGCONT);
        sigprocmask(SIG_BLOCK, &set, 0);
        t_open(ready);
        struct timespec ts = {10, 0};
        int a = sigtimedwait(&set, 0, &ts), b = sigtimedwait(&set, 0, &ts);
        CHECK_EQ(a + b, SIGHUP + SIGCONT);
        CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
        CHECK_STR(get(s), "");
        // Another terminal may take the place.
        OK(ioctl(SYS(name_opened(O_NOCTTY)), TIOCSCTTY, 0));
        _exit(0);
    }
    t_pass(ready);
    OK(ioctl(s, TIOCVHANGUP));
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(hangup_of_the_master_alone) {
    pair();
    char name[64];
    strcpy(name, ptsname(m));
    SYS(fcntl(s, F_SETFL, O_NONBLOCK));
    OK(ioctl(m, TIOCVHANGUP));
    CHECK_STR(get(m), "");
    CHECK_ERR(write(m, "x", 1), EIO);
    CHECK_ERR(ioctl(m, TIOCGPTN, BAD_PTR), EIO);
    struct pollfd p = {m, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&p, 1, 0), 1);
    CHECK_EQ(p.revents, POLLIN | POLLOUT | POLLERR | POLLHUP);
    // The slave hears nothing of it until the master is closed.
    CHECK_STR(get(s), "EAGAIN");
    put(s, "x");
    int fd = SYS(open(name, O_RDWR | O_NOCTTY));
    close(fd);
    close(m);
    CHECK_STR(get(s), "");
    CHECK_ERR(write(s, "x", 1), EIO);
    CHECK_ERR(access(name, F_OK), ENOENT);
}
TEST(hangup_of_the_own_terminal) {
    pair();
    pid_t p = FORK();
    if (p == 0) {
        SYS(setsid());
        OK(vhangup()); // there is none
        OK(ioctl(s, TIOCSCTTY, 0));
        signal(SIGHUP, SIG_IGN);
        OK(vhangup());
        CHECK_ERR(write(s, "x", 1), EIO);
        CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
        SYS(setuid(1));
        CHECK_ERR(vhangup(), EPERM);
        int b = SYS(open(ptsname(m), O_PATH));
        (void)b;
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
    p = FORK();
    if (p == 0) {
        SYS(setuid(1));
        int m2, s2;
        SYS(openpty(&m2, &s2, 0, 0, 0));
        CHECK_ERR(ioctl(s2, TIOCVHANGUP), EPERM);
        CHECK_ERR(ioctl(m2, TIOCVHANGUP), EPERM);
        put(s2, "x");
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(soft_carrier) {
    pair();
    struct termios t;
    for (int i = 0; i < 2; i++) {
        int fd = i ? m : s, on = -1;
        OK(ioctl(fd, TIOCGSOFTCAR, &on));
        CHECK_EQ(on, 0);
        on = 7;
        OK(ioctl(fd, TIOCSSOFTCAR, &on));
        OK(ioctl(s, TIOCGSOFTCAR, &on));
        CHECK_EQ(on, 1);
        OK(ioctl(m, TIOCGSOFTCAR, &on));
        CHECK_EQ(on, 1);
        OK(tcgetattr(s, &t));
        CHECK(t.c_cflag & CLOCAL);
        on = 0;
        OK(ioctl(fd, TIOCSSOFTCAR, &on));
        CHECK_ERR(ioctl(fd, TIOCGSOFTCAR, BAD_PTR), EFAULT);
        CHECK_ERR(ioctl(fd, TIOCSSOFTCAR, BAD_PTR), EFAULT);
    }
}
static void extproc(unsigned more) {
    struct termios t;
    SYS(tcgetattr(s, &t));
    t.c_lflag |= EXTPROC;
    t.c_iflag |= more;
    SYS(tcsetattr(s, TCSANOW, &t));
}
TEST(processing_by_others) {
    pair();
    put(m, "before");
    SYS(fcntl(s, F_SETFL, O_NONBLOCK));
    SYS(fcntl(m, F_SETFL, O_NONBLOCK));
    while (strcmp(get(m), "before")) t_ms(1);
    CHECK_STR(get(s), "EAGAIN");
    extproc(0);
    CHECK_STR(get(s), "before");
    // Nothing is edited, echoed, or a signal: characters are read as they come.
    signal(SIGINT, SIG_DFL);
    put(m, "ab\177\r\3\21x");
    int n = 0;
    while (n < 7) OK(ioctl(s, FIONREAD, &n));
    CHECK_STR(get(s), "ab\177\r\3\21x");
    CHECK_STR(get(m), "EAGAIN");
    struct pollfd p = {s, POLLIN, 0};
    CHECK_EQ(poll(&p, 1, 0), 0);
    put(m, "\4"); // alone it is an end
    CHECK_EQ(poll(&p, 1, 5000), 1);
    CHECK_STR(get(s), "");
    put(m, "a\4b\n\4");
    for (n = 0; n < 5;) OK(ioctl(s, FIONREAD, &n));
    char c[3] = "";
    CHECK_EQ(read(s, c, 2), 2);
    CHECK_STR(c, "a\4");
    CHECK_STR(get(s), "b\n\4");
    put(s, "out\n"); // output is processed
    while (strcmp(get(m), "out\r\n")) t_ms(1);
    extproc(ISTRIP);
    put(m, "\xe1\n");
    for (n = 0; n < 2;) OK(ioctl(s, FIONREAD, &n));
    CHECK_STR(get(s), "a\n");
    CHECK_STR(get(m), "EAGAIN");
    put(m, "rest");
    for (n = 0; n < 4;) OK(ioctl(s, FIONREAD, &n));
    struct termios t;
    SYS(tcgetattr(s, &t));
    CHECK(t.c_lflag & EXTPROC);
    t.c_lflag &= ~EXTPROC;
    SYS(tcsetattr(s, TCSANOW, &t));
    CHECK_STR(get(s), "rest");
}
TEST(changes_of_modes_are_told) {
    pair();
    SYS(fcntl(m, F_SETFL, O_NONBLOCK));
    int on = 1;
    OK(ioctl(m, TIOCPKT, &on));
    extproc(0);
    CHECK_EQ(get(m)[0], TIOCPKT_IOCTL);
    extproc(0);
    CHECK_EQ(get(m)[0], TIOCPKT_IOCTL);
    struct termios t;
    SYS(tcgetattr(m, &t));
    t.c_lflag &= ~EXTPROC;
    t.c_iflag &= ~IXON;
    SYS(tcsetattr(m, TCSANOW, &t));
    CHECK_EQ(get(m)[0], TIOCPKT_IOCTL | TIOCPKT_NOSTOP);
    SYS(tcsetattr(m, TCSANOW, &t));
    CHECK_STR(get(m), "EAGAIN");
}
