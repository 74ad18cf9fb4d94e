// PID namespaces: numbers by level, init, its end, setns(2). pid_namespaces(7).
#include "ns.h"

static pid_t clone_with(int flags) { return syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0); }

TEST(ns_pid_numbers) {
    int pipes[2];
    SYS(pipe(pipes));
    pid_t child = SYS(clone_with(CLONE_NEWPID));
    if (child == 0) {
        MUST(getpid() == 1 && getppid() == 0 && syscall(SYS_gettid) == 1);
        pid_t inner = fork();
        if (inner == 0) {
            MUST(getpid() == 2 && getppid() == 1);
            MUST(getpgid(0) == 0 && getsid(0) == 0);
            MUST(setsid() == 2 && getsid(0) == 2 && getpgrp() == 2);
            char *status = get("/proc/thread-self/status");
            MUST(status[0] == 0 || strstr(status, "NSpid:"));
            _exit(7);
        }
        MUST(inner == 2);
        int status;
        MUST(wait(&status) == 2 && WEXITSTATUS(status) == 7);
        MUST(kill(3, 0) == -1 && errno == ESRCH);
        (void)!write(pipes[1], "x", 1);
        _exit(0);
    }
    char b;
    SYS(read(pipes[0], &b, 1));
    wait_for(child);
}

TEST(ns_pid_status) {
    int up[2], down[2];
    SYS(pipe(up));
    SYS(pipe(down));
    pid_t child = SYS(clone_with(CLONE_NEWPID));
    if (child == 0) {
        (void)!write(up[1], "x", 1);
        char b;
        (void)!read(down[0], &b, 1);
        _exit(0);
    }
    char b, path[64], want[64];
    SYS(read(up[0], &b, 1));
    snprintf(path, sizeof path, "/proc/%d/status", child);
    snprintf(want, sizeof want, "\nNSpid:\t%d\t1\n", child);
    CHECK(strstr(get(path), want));
    snprintf(want, sizeof want, "\nNStgid:\t%d\t1\n", child);
    CHECK(strstr(get(path), want));
    SYS(write(down[1], "x", 1));
    wait_for(child);
}

TEST(ns_pid_unshare_is_for_children) {
    pid_t own = getpid();
    SYS(unshare(CLONE_NEWPID));
    CHECK_EQ(getpid(), own);
    // One has to have a child before the next.
    CHECK_ERR(unshare(CLONE_NEWPID), EINVAL);
    CHECK_ERR(syscall(SYS_clone, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, 0, 0, 0, 0), EINVAL);
    char link[64];
    CHECK_ERR(readlink("/proc/self/ns/pid_for_children", link, sizeof link), ENOENT);
    pid_t child = SYS(fork());
    if (child == 0) {
        MUST(getpid() == 1);
        pause();
    }
    pid_t second = SYS(fork());
    if (second == 0) {
        MUST(getpid() == 2 && getppid() == 0);
        pause();
    }
    SYS(kill(child, SIGKILL));
    int status;
    SYS(waitpid(second, &status, 0));
    CHECK_EQ(WTERMSIG(status), SIGKILL);
    SYS(waitpid(child, &status, 0));
    CHECK_EQ(WTERMSIG(status), SIGKILL);
    CHECK_ERR(fork(), ENOMEM);
}

TEST(ns_pid_init_reaps_and_ends_all) {
    int alive[2];
    SYS(pipe(alive));
    pid_t child = SYS(clone_with(CLONE_NEWPID));
    if (child == 0) {
        if (fork() == 0) {
            // An orphan's parent is init.
            if (fork() == 0) {
                while (getppid() != 1) usleep(1000);
                if (fork() == 0) {
                    setsid();
                    (void)!write(alive[1], "a", 1);
                    pause();
                }
                (void)!write(alive[1], "b", 1);
                pause();
            }
            _exit(0);
        }
        MUST(wait(0) == 2);
        char b[2];
        MUST(read(alive[0], b, 1) == 1 && read(alive[0], b, 1) == 1);
        _exit(0);
    }
    SYS(close(alive[1]));
    wait_for(child);
    // When init has been waited for, nobody has the pipe any more.
    char b;
    CHECK_EQ(read(alive[0], &b, 1), 0);
}

TEST(ns_pid_init_is_immune) {
    int up[2];
    SYS(pipe(up));
    pid_t child = SYS(clone_with(CLONE_NEWPID));
    if (child == 0) {
        kill(1, SIGTERM);
        kill(1, SIGKILL);
        kill(1, SIGSTOP);
        raise(SIGKILL);
        union sigval v = {0};
        MUST(fork() != 0 || (kill(1, SIGKILL) == 0 && sigqueue(1, SIGKILL, v) == 0 && (_exit(0), 1)));
        wait(0);
        (void)!write(up[1], "x", 1);
        pause();
        _exit(1);
    }
    char b;
    CHECK_EQ(read(up[0], &b, 1), 1);
    // From around: neither SIGTERM without a handler, but SIGKILL.
    SYS(kill(child, SIGTERM));
    usleep(20000);
    CHECK_EQ(waitpid(child, 0, WNOHANG), 0);
    SYS(kill(child, SIGKILL));
    int status;
    SYS(waitpid(child, &status, 0));
    CHECK_EQ(WTERMSIG(status), SIGKILL);
}

static volatile int from_pid = -1;
static void tell(int sig, siginfo_t *info, void *context) { from_pid = info->si_pid; }

TEST(ns_pid_senders) {
    int up[2];
    SYS(pipe(up));
    struct sigaction act = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO};
    SYS(sigaction(SIGUSR1, &act, 0));
    pid_t parent = getpid();
    pid_t child = SYS(clone_with(CLONE_NEWPID));
    if (child == 0) {
        (void)!write(up[1], "x", 1);
        while (from_pid == -1) pause();
        MUST(from_pid == 0);
        MUST(kill(parent, 0) == -1 || getpid() == 1);
        _exit(0);
    }
    char b;
    SYS(read(up[0], &b, 1));
    SYS(kill(child, SIGUSR1));
    wait_for(child);
}

TEST(ns_pid_setns) {
    int up[2], down[2];
    SYS(pipe(up));
    SYS(pipe(down));
    pid_t child = SYS(clone_with(CLONE_NEWPID));
    if (child == 0) {
        (void)!write(up[1], "x", 1);
        char b;
        (void)!read(down[0], &b, 1);
        _exit(0);
    }
    char b, path[64];
    SYS(read(up[0], &b, 1));
    snprintf(path, sizeof path, "/proc/%d/ns/pid", child);
    int fd = SYS(open(path, O_RDONLY));
    CHECK_ERR(setns(fd, CLONE_NEWUTS), EINVAL);
    int own = SYS(open("/proc/self/ns/pid", O_RDONLY));
    SYS(setns(fd, CLONE_NEWPID));
    pid_t joined = SYS(fork());
    if (joined == 0) {
        MUST(getpid() == 2 && getppid() == 0);
        // Not out of it.
        MUST(setns(own, CLONE_NEWPID) == -1 && errno == EINVAL);
        _exit(0);
    }
    wait_for(joined);
    SYS(setns(own, 0));
    pid_t back = SYS(fork());
    if (back == 0) _exit(getpid() > 2 && getppid() != 0 ? 0 : 1);
    wait_for(back);
    SYS(write(down[1], "x", 1));
    wait_for(child);
    // It has no init any more.
    SYS(setns(fd, 0));
    CHECK_ERR(fork(), ENOMEM);
}

TEST(ns_pid_proc) {
    pid_t child = SYS(clone_with(CLONE_NEWPID | CLONE_NEWNS));
    if (child == 0) {
        MUST(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) == 0);
        MUST(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0) == 0);
        char link[16] = {0};
        MUST(readlink("/proc/self", link, 15) == 1 && link[0] == '1');
        MUST(strstr(get("/proc/self/status"), "\nNSpid:\t1\n"));
        MUST(access("/proc/3", F_OK) == -1);
        MUST(strncmp(strrchr(get("/proc/loadavg"), ' '), " 1", 2) == 0);
        _exit(0);
    }
    wait_for(child);
}

TEST(ns_pid_depth) {
    int levels = 0;
    pid_t child = 0;
    while (child == 0 && levels < 40) {
        child = clone_with(CLONE_NEWPID);
        if (child == 0) levels++;
    }
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    // 32 levels below the topmost one, less those that the test begins in.
    CHECK_EQ(errno, ENOSPC);
    CHECK(levels >= 25 && levels <= 32);
    _exit(0);
}

TEST(ns_pid_unprivileged) {
    become(1000);
    own_namespaces(CLONE_NEWPID | CLONE_NEWNS);
    pid_t child = SYS(fork());
    if (child == 0) {
        MUST(getpid() == 1);
        MUST(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0) == 0);
        MUST(strstr(get("/proc/self/status"), "\nNSpid:\t1\n"));
        _exit(0);
    }
    wait_for(child);
}
