// Pseudo terminals: pairs, the line discipline, window size, job control, hangup.
#include "pty.h"
#include <sys/sysmacros.h>

static void raw(void) {
    struct termios t;
    SYS(tcgetattr(s, &t));
    cfmakeraw(&t);
    SYS(tcsetattr(s, TCSANOW, &t));
}
static void noecho(void) {
    struct termios t;
    SYS(tcgetattr(s, &t));
    t.c_lflag &= ~(ECHO | ECHOE | ECHOK | ECHONL);
    SYS(tcsetattr(s, TCSANOW, &t));
}

TEST(open_pair) {
    int a = SYS(posix_openpt(O_RDWR | O_NOCTTY));
    OK(grantpt(a));
    int n = -1, lock = 1;
    OK(ioctl(a, TIOCGPTN, &n));
    char name[64], want[64];
    sprintf(want, "/dev/pts/%d", n);
    OK(ptsname_r(a, name, sizeof name));
    CHECK_STR(name, want);
    CHECK_ERR(open(name, O_RDWR | O_NOCTTY), EIO); // still locked
    lock = 0;
    OK(ioctl(a, TIOCSPTLCK, &lock));
    int b = SYS(open(name, O_RDWR | O_NOCTTY));
    CHECK_EQ(isatty(a), 1);
    CHECK_EQ(isatty(b), 1);
    struct stat st;
    OK(fstat(b, &st));
    CHECK(S_ISCHR(st.st_mode));
    CHECK_EQ(major(st.st_rdev), 136);
    CHECK_EQ(minor(st.st_rdev), n);
    OK(fstat(a, &st));
    CHECK_EQ(st.st_rdev, makedev(5, 2));
    char t[64];
    OK(ttyname_r(b, t, sizeof t));
    CHECK_STR(t, want);
    OK(access(want, F_OK));
    close(b);
    close(a);
    CHECK_ERR(access(want, F_OK), ENOENT);
}
TEST(peer_ioctl) {
    int a = SYS(posix_openpt(O_RDWR | O_NOCTTY));
    SYS(unlockpt(a));
    int b = SYS(ioctl(a, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY));
    put(b, "x\n");
    CHECK_STR(get(a), "x\r\n");
}
TEST(termios_defaults) {
    pair();
    struct termios t;
    OK(tcgetattr(s, &t));
    CHECK_EQ(t.c_iflag, ICRNL | IXON);
    CHECK_EQ(t.c_oflag, OPOST | ONLCR);
    CHECK_EQ(t.c_lflag, ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN);
    CHECK_EQ(t.c_cflag & (CSIZE | CREAD), CS8 | CREAD);
    CHECK_EQ(cfgetospeed(&t), B38400);
    CHECK_EQ(t.c_cc[VINTR], 3);
    CHECK_EQ(t.c_cc[VQUIT], 28);
    CHECK_EQ(t.c_cc[VERASE], 127);
    CHECK_EQ(t.c_cc[VKILL], 21);
    CHECK_EQ(t.c_cc[VEOF], 4);
    CHECK_EQ(t.c_cc[VSUSP], 26);
    CHECK_EQ(t.c_cc[VMIN], 1);
    t.c_lflag &= ~ECHO;
    t.c_cc[VINTR] = 7;
    OK(tcsetattr(s, TCSADRAIN, &t));
    OK(tcgetattr(m, &t)); // the two sides share it
    CHECK_EQ(t.c_cc[VINTR], 7);
    CHECK(!(t.c_lflag & ECHO));
    OK(tcsetattr(s, TCSAFLUSH, &t));
    CHECK_ERR(ioctl(s, TCGETS, BAD_PTR), EFAULT);
}
TEST(canonical_input) {
    pair();
    noecho();
    put(m, "hello\nworld");
    CHECK_STR(get(s), "hello\n");
    SYS(fcntl(s, F_SETFL, O_NONBLOCK));
    CHECK_STR(get(s), "EAGAIN");
    SYS(fcntl(s, F_SETFL, 0));
    put(m, "\r"); // becomes a newline
    CHECK_STR(get(s), "world\n");
    put(m, "a\nb\n");
    CHECK_STR(get(s), "a\n"); // one line at a time
    CHECK_STR(get(s), "b\n");
    char c[3] = "";
    put(m, "xyz\n");
    CHECK_EQ(read(s, c, 2), 2);
    CHECK_STR(get(s), "z\n");
    int n;
    put(m, "12345\n");
    CHECK_EQ(poll(&(struct pollfd){s, POLLIN, 0}, 1, 5000), 1);
    OK(ioctl(s, FIONREAD, &n));
    CHECK_EQ(n, 6);
}
TEST(canonical_editing) {
    pair();
    noecho();
    put(m, "abc\177\177x\n");
    CHECK_STR(get(s), "ax\n");
    put(m, "one two\027three\n"); // word erase
    CHECK_STR(get(s), "one three\n");
    put(m, "forget this\025that\n"); // kill
    CHECK_STR(get(s), "that\n");
    put(m, "\026\003x\n"); // literal next
    CHECK_STR(get(s), "\003x\n");
    put(m, "part\004"); // end of file gives what there is
    CHECK_STR(get(s), "part");
    put(m, "\004");
    CHECK_STR(get(s), "");
}
TEST(echo) {
    pair();
    put(m, "hi\n");
    CHECK_STR(get(m), "hi\r\n");
    CHECK_STR(get(s), "hi\n");
    put(m, "a\177");
    CHECK_STR(get(m), "a\b \b");
    put(m, "\001");
    CHECK_STR(get(m), "^A");
}
TEST(output_processing) {
    pair();
    put(s, "a\nb");
    CHECK_STR(get(m), "a\r\nb");
    struct termios t;
    tcgetattr(s, &t);
    t.c_oflag &= ~OPOST;
    tcsetattr(s, TCSANOW, &t);
    put(s, "a\nb");
    CHECK_STR(get(m), "a\nb");
}
TEST(raw_mode) {
    pair();
    raw();
    put(m, "a\r\003\004\177");
    CHECK_STR(get(s), "a\r\003\004\177");
    put(s, "x\ny");
    CHECK_STR(get(m), "x\ny");
    SYS(fcntl(m, F_SETFL, O_NONBLOCK));
    CHECK_STR(get(m), "EAGAIN");
}
TEST(raw_vmin_vtime) {
    pair();
    raw();
    struct termios t;
    tcgetattr(s, &t);
    t.c_cc[VMIN] = 3, t.c_cc[VTIME] = 0;
    tcsetattr(s, TCSANOW, &t);
    pid_t p = FORK();
    if (p == 0) {
        for (int i = 0; i < 3; i++) {
            t_ms(3);
            put(m, "x");
        }
        _exit(0);
    }
    CHECK_STR(get(s), "xxx");
    t_status(p);
    t.c_cc[VMIN] = 0, t.c_cc[VTIME] = 0;
    tcsetattr(s, TCSANOW, &t);
    CHECK_STR(get(s), "");
    t.c_cc[VTIME] = 1;
    tcsetattr(s, TCSANOW, &t);
    long long a = t_now_ms();
    CHECK_STR(get(s), "");
    CHECK(t_now_ms() - a >= 90);
}
TEST(poll_on_both) {
    pair();
    struct pollfd f[2] = {{m, POLLIN | POLLOUT, 0}, {s, POLLIN | POLLOUT, 0}};
    CHECK_EQ(poll(f, 2, 0), 2);
    CHECK_EQ(f[0].revents, POLLOUT);
    CHECK_EQ(f[1].revents, POLLOUT);
    noecho();
    put(m, "no newline");
    poll(f, 2, 0);
    CHECK_EQ(f[1].revents, POLLOUT);
    put(m, "\n");
    CHECK_EQ(poll(&f[1], 1, 1000), 1);
    struct pollfd in = {s, POLLIN, 0};
    CHECK_EQ(poll(&in, 1, 1000), 1);
    put(s, "out");
    in.fd = m;
    CHECK_EQ(poll(&in, 1, 1000), 1);
}
TEST(window_size) {
    struct winsize w = {24, 80, 1, 2}, g;
    SYS(openpty(&m, &s, 0, 0, &w));
    OK(ioctl(s, TIOCGWINSZ, &g));
    CHECK_EQ(g.ws_row, 24);
    CHECK_EQ(g.ws_col, 80);
    w.ws_row = 50;
    OK(ioctl(m, TIOCSWINSZ, &w));
    OK(ioctl(s, TIOCGWINSZ, &g));
    CHECK_EQ(g.ws_row, 50);
    CHECK_ERR(ioctl(s, TIOCGWINSZ, BAD_PTR), EFAULT);
}
TEST(hangup_of_master) {
    pair();
    close(m);
    CHECK_STR(get(s), "");
    CHECK_ERR(write(s, "x", 1), EIO);
    struct pollfd f = {s, POLLIN, 0};
    CHECK_EQ(poll(&f, 1, 0), 1);
    CHECK(f.revents & POLLHUP);
}
TEST(close_of_slave) {
    pair();
    put(s, "last");
    close(s);
    CHECK_STR(get(m), "last");
    CHECK_STR(get(m), "EIO");
    struct pollfd f = {m, POLLIN, 0};
    poll(&f, 1, 0);
    CHECK(f.revents & POLLHUP);
}
TEST(flush_and_drain) {
    pair();
    noecho();
    put(m, "lost\n");
    OK(tcflush(s, TCIFLUSH));
    SYS(fcntl(s, F_SETFL, O_NONBLOCK));
    CHECK_STR(get(s), "EAGAIN");
    OK(tcdrain(s));
    CHECK_ERR(tcflush(s, 99), EINVAL);
}
// A child that leads a session with the terminal as its own.
static pid_t session(void) {
    pid_t p = FORK();
    if (p == 0) {
        SYS(setsid());
        SYS(ioctl(s, TIOCSCTTY, 0));
        close(m);
    }
    return p;
}
static volatile int hits, last;
static void on(int sig) { hits++, last = sig; }
TEST(controlling_terminal) {
    pair();
    pid_t p = session();
    if (p == 0) {
        int t = SYS(open("/dev/tty", O_RDWR));
        CHECK_EQ(tcgetpgrp(t), getpid());
        CHECK_EQ(tcgetsid(t), getpid());
        put(t, "via tty");
        char b[64];
        OK(ttyname_r(s, b, sizeof b));
        signal(SIGHUP, SIG_IGN); // giving it up sends one
        OK(ioctl(t, TIOCNOTTY));
        CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
        _exit(0);
    }
    CHECK_STR(get(m), "via tty");
    CHECK_STATUS(t_status(p), "exit 0");
    CHECK_CHILD(SYS(setsid()); CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO));
    CHECK_ERR(ioctl(s, TIOCSCTTY, 0), EPERM); // no session leader
    CHECK_ERR(tcgetpgrp(s), ENOTTY);
}
TEST(open_makes_it_controlling) {
    pair();
    char n[64];
    ptsname_r(m, n, sizeof n);
    CHECK_CHILD(SYS(setsid()); int f = SYS(open(n, O_RDWR)); CHECK_EQ(tcgetsid(f), getpid()));
    CHECK_CHILD(SYS(setsid()); int f = SYS(open(n, O_RDWR | O_NOCTTY)); CHECK_ERR(tcgetsid(f), ENOTTY));
}
TEST(interrupt_characters) {
    pair();
    int sigs[] = {SIGINT, SIGQUIT, SIGTSTP};
    const char *keys[] = {"\003", "\034", "\032"};
    for (int i = 0; i < 3; i++) {
        struct t_gate g = t_gate();
        pid_t p = session();
        if (p == 0) {
            signal(sigs[i], on);
            t_open(g);
            while (!hits) pause();
            _exit(last == sigs[i] ? 0 : 1);
        }
        t_pass(g);
        put(m, keys[i]);
        // pause() may be missed by a signal that came before it: send until it is heard
        int st = 0;
        for (int k = 0; k < 100 && waitpid(p, &st, WNOHANG) == 0; k++) {
            t_ms(10);
            if (k % 10 == 9) (void)!write(m, keys[i], 1);
        }
        CHECK_STATUS(st, "exit 0");
    }
}
TEST(interrupt_goes_to_foreground_group_only) {
    pair();
    pid_t p = session();
    if (p == 0) {
        struct t_gate g = t_gate();
        signal(SIGTTOU, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        pid_t fg = FORK();
        if (fg == 0) {
            setpgid(0, 0);
            signal(SIGINT, SIG_DFL);
            t_open(g);
            for (;;) pause();
        }
        setpgid(fg, fg);
        OK(tcsetpgrp(s, fg));
        CHECK_EQ(tcgetpgrp(s), fg);
        t_pass(g);
        put(s, "ready");
        CHECK_STATUS(t_status(fg), "signal 2");
        OK(tcsetpgrp(s, getpid()));
        _exit(0);
    }
    const char *t = get(m);
    CHECK_STR(t, "ready");
    put(m, "\003");
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(window_change_signals) {
    pair();
    struct t_gate g = t_gate();
    pid_t p = session();
    if (p == 0) {
        signal(SIGWINCH, on);
        t_open(g);
        while (!hits) t_ms(1);
        struct winsize w;
        OK(ioctl(s, TIOCGWINSZ, &w));
        CHECK_EQ(w.ws_col, 99);
        _exit(0);
    }
    t_pass(g);
    struct winsize w = {10, 99, 0, 0};
    OK(ioctl(m, TIOCSWINSZ, &w));
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(background_read_stops) {
    pair();
    pid_t p = session();
    if (p == 0) {
        pid_t bg = FORK();
        if (bg == 0) {
            setpgid(0, 0);
            char c;
            (void)!read(s, &c, 1);
            _exit(0);
        }
        setpgid(bg, bg);
        int st;
        CHECK_EQ(waitpid(bg, &st, WUNTRACED), bg);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTTIN);
        kill(bg, SIGKILL);
        t_status(bg);
        // ignoring the signal turns it into EIO
        bg = FORK();
        if (bg == 0) {
            setpgid(0, 0);
            signal(SIGTTIN, SIG_IGN);
            char c;
            CHECK_ERR(read(s, &c, 1), EIO);
            _exit(0);
        }
        setpgid(bg, bg);
        CHECK_STATUS(t_status(bg), "exit 0");
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(background_write_and_tostop) {
    pair();
    pid_t p = session();
    if (p == 0) {
        pid_t bg = FORK();
        if (bg == 0) {
            setpgid(0, 0);
            put(s, "allowed");
            struct termios t;
            tcgetattr(s, &t);
            tcsetattr(s, TCSANOW, &t); // stops: SIGTTOU
            _exit(0);
        }
        setpgid(bg, bg);
        int st;
        CHECK_EQ(waitpid(bg, &st, WUNTRACED), bg);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTTOU);
        kill(bg, SIGKILL);
        t_status(bg);
        struct termios t;
        tcgetattr(s, &t);
        t.c_lflag |= TOSTOP;
        tcsetattr(s, TCSANOW, &t);
        bg = FORK();
        if (bg == 0) {
            setpgid(0, 0);
            put(s, "stopped");
            _exit(0);
        }
        setpgid(bg, bg);
        CHECK_EQ(waitpid(bg, &st, WUNTRACED), bg);
        CHECK(WIFSTOPPED(st) && WSTOPSIG(st) == SIGTTOU);
        kill(bg, SIGKILL);
        t_status(bg);
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
TEST(tcsetpgrp_errors) {
    pair();
    pid_t p = session();
    if (p == 0) {
        CHECK_ERR(tcsetpgrp(s, 1 << 22), ESRCH);
        CHECK_ERR(tcsetpgrp(s, -1), EINVAL);
        CHECK_ERR(tcsetpgrp(999, getpid()), EBADF);
        CHECK_ERR(tcsetpgrp(t_file("f", ""), getpid()), ENOTTY);
        pid_t q = FORK();
        if (q == 0) {
            setsid();
            t_ms(200);
            _exit(0);
        }
        while (getsid(q) == getsid(0)) t_ms(1);
        CHECK_ERR(tcsetpgrp(s, q), EPERM);
        kill(q, SIGKILL);
        t_status(q);
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
// The terminal may be given to a process that leads no group, if it is of the session.
TEST(tcsetpgrp_to_a_process) {
    int m, s;
    SYS(openpty(&m, &s, 0, 0, 0));
    struct t_gate go = t_gate();
    pid_t stranger = FORK();
    if (stranger == 0) {
        setsid();
        t_pass(go);
        _exit(0);
    }
    CHECK_CHILD(SYS(setsid()); SYS(ioctl(s, TIOCSCTTY, 0)); struct t_gate end = t_gate(); pid_t c = FORK(); if (c == 0) { t_pass(end); _exit(0); }
                OK(tcsetpgrp(s, c)); CHECK_EQ(tcgetpgrp(s), c); signal(SIGTTOU, SIG_IGN); OK(tcsetpgrp(s, getpid()));
                CHECK_ERR(tcsetpgrp(s, stranger), EPERM); CHECK_ERR(tcsetpgrp(s, 4000000), ESRCH); CHECK_ERR(tcsetpgrp(s, -5), EINVAL);
                t_open(end); siginfo_t si; SYS(waitid(P_PID, c, &si, WEXITED | WNOWAIT)); OK(tcsetpgrp(s, c)); t_status(c);
                CHECK_ERR(tcsetpgrp(s, c), ESRCH));
    t_open(go);
    t_status(stranger);
}
TEST(hangup_signals_session) {
    pair();
    struct t_gate g = t_gate();
    pid_t p = session();
    if (p == 0) {
        t_open(g);
        for (;;) pause();
    }
    t_pass(g);
    close(s);
    close(m);
    CHECK_STATUS(t_status(p), "signal 1");
}
TEST(leader_exit_hangs_up_foreground) {
    pair();
    struct t_gate g = t_gate(), r = t_gate();
    pid_t p = session();
    if (p == 0) {
        pid_t fg = FORK();
        if (fg == 0) {
            signal(SIGHUP, on);
            t_open(g);
            while (!hits) t_ms(1);
            CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
            t_open(r);
            _exit(0);
        }
        t_pass(g);
        _exit(0);
    }
    t_status(p);
    t_pass(r);
}
TEST(shell_on_a_terminal) {
    // a real shell with job control: start, stop, list and continue a job
    pid_t p = forkpty(&m, 0, 0, 0);
    MUST(p >= 0);
    if (p == 0) {
        setenv("PS1", "$ ", 1);
        setenv("PATH", "/usr/bin:/bin", 1);
        execl("/bin/bash", "bash", "--norc", "--noprofile", "--noediting", "-i", (char *)0);
        _exit(127);
    }
    struct {
        const char *send, *expect;
    } step[] = {{"stty -echo\n", "$ "}, {"echo st\"\"art\n", "start"}, {"sleep 100\n", ""}, {"\032", "Stopped"}, {"jobs\n", "sleep 100"}, {"fg\n", "sleep 100"}, {"\003", "$ "}, {"echo st\"\"atus $?\n", "status 130"},
                {"cat\n", ""}, {"typed\n", "typed"}, {"\003", "$ "}, {"exit 7\n", ""}};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        t_ms(150);
        (void)!write(m, step[i].send, strlen(step[i].send));
        char all[8192] = "";
        size_t n = 0;
        long long end = t_now_ms() + 8000;
        while (*step[i].expect && !strstr(all, step[i].expect) && t_now_ms() < end) {
            struct pollfd f = {m, POLLIN, 0};
            if (poll(&f, 1, 100) == 1) {
                ssize_t r = read(m, all + n, sizeof all - 1 - n);
                if (r <= 0) break;
                n += r;
                all[n] = 0;
            }
        }
        if (*step[i].expect && !strstr(all, step[i].expect)) {
            t_fail(__FILE__, __LINE__, "after %s expected %s, got %s", step[i].send, step[i].expect, all);
            break;
        }
    }
    kill(p, SIGHUP);
    int st = t_status(p);
    CHECK(WIFEXITED(st) ? WEXITSTATUS(st) == 7 : 1);
}

TEST(flush_of_the_master_and_packet_mode) {
    pair();
    raw();
    int on = 1;
    OK(ioctl(m, TIOCPKT, &on));
    char b[16];
    // What the master throws away is no news for the master, what the slave does is.
    struct {
        int fd, what, status;
    } step[] = {{m, TCIFLUSH, 0}, {m, TCOFLUSH, 0}, {m, TCIOFLUSH, 0}, {s, TCIFLUSH, 1}, {s, TCOFLUSH, 2}, {s, TCIOFLUSH, 3}};
    OK(fcntl(m, F_SETFL, O_NONBLOCK));
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        OK(tcflush(step[i].fd, step[i].what));
        if (step[i].status) {
            CHECK_EQ(read(m, b, sizeof b), 1);
            CHECK_EQ(b[0], step[i].status);
        } else {
            CHECK_ERR(read(m, b, sizeof b), EAGAIN);
        }
    }
    // Which queue each side means. What the other side's line discipline has taken stays.
    struct {
        int fd, what, in, out;
    } queue[] = {{s, TCOFLUSH, 2, 3}, {s, TCIFLUSH, 0, 3}, {m, TCOFLUSH, 2, 3}, {m, TCIFLUSH, 2, 0}};
    for (size_t i = 0; i < sizeof queue / sizeof *queue; i++) {
        tcflush(s, TCIFLUSH);
        tcflush(m, TCIFLUSH);
        put(s, "out");
        put(m, "in");
        int in, out;
        do OK(ioctl(s, FIONREAD, &in));
        while (in < 2);
        do OK(ioctl(m, FIONREAD, &out));
        while (out < 3);
        OK(tcflush(queue[i].fd, queue[i].what));
        OK(ioctl(s, FIONREAD, &in));
        OK(ioctl(m, FIONREAD, &out));
        CHECK_EQ(in, queue[i].in);
        CHECK_EQ(out, queue[i].out);
    }
}
TEST(giving_up_a_terminal_of_another_session) {
    pair();
    CHECK_ERR(ioctl(s, TIOCNOTTY), ENOTTY);
    pid_t p = FORK();
    if (p == 0) {
        SYS(setsid());
        int m2, s2;
        SYS(openpty(&m2, &s2, 0, 0, 0));
        OK(ioctl(s2, TIOCSCTTY, 0));
        CHECK_ERR(ioctl(s, TIOCNOTTY), ENOTTY);
        CHECK_ERR(ioctl(m, TIOCNOTTY), ENOTTY);
        CHECK_ERR(ioctl(m2, TIOCNOTTY), ENOTTY);
        OK(ioctl(s, TIOCSCTTY, 0) == -1 ? 0 : 1);
        signal(SIGHUP, SIG_IGN);
        OK(ioctl(s2, TIOCNOTTY));
        _exit(0);
    }
    CHECK_STATUS(t_status(p), "exit 0");
}
