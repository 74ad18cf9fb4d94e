// pidfds of threads (PIDFD_THREAD), where a leader ends alone and another thread executes a program; and /proc of such a process.
#include "t.h"
#include <dirent.h>
#include <poll.h>
#include <pthread.h>

static int pidfd_open_(int pid, int flags) { return syscall(SYS_pidfd_open, pid, flags); }
static int send_null(int fd) { return syscall(SYS_pidfd_send_signal, fd, 0, 0, 0); }
static int ready(int fd) {
    struct pollfd f = {fd, POLLIN, 0};
    poll(&f, 1, 0);
    return f.revents;
}
static struct t_gate leave, go, told, over;
static void *second(void *arg) {
    int tid = gettid();
    MUST(write(told.w, &tid, sizeof tid) == sizeof tid);
    t_pass(go);
    char pass[16], tell[16];
    sprintf(pass, "%d", over.r), sprintf(tell, "%d", told.w);
    execl("/bin/sh", "sh", "-c", "eval \"echo x >&$1; read y <&$0\"; exit 5", pass, tell, (char *)0);
    _exit(126);
}
static bool is_zombie(int pid) {
    char path[64], b[512];
    sprintf(path, "/proc/%d/stat", pid);
    t_slurp(path, b, sizeof b);
    char *at = strrchr(b, ')');
    return at && at[2] == 'Z';
}

TEST(leader_that_ends_alone) {
    leave = t_gate(), go = t_gate(), told = t_gate(), over = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        pthread_create(&t, 0, second, 0);
        t_pass(leave);
        syscall(SYS_exit, 0);
    }
    int tid, status;
    MUST(read(told.r, &tid, sizeof tid) == sizeof tid);
    int process = SYS(pidfd_open_(p, 0)), leader = SYS(pidfd_open_(p, O_EXCL)), thread = SYS(pidfd_open_(tid, O_EXCL));
    CHECK(ready(process) == 0 && ready(leader) == 0 && ready(thread) == 0);
    t_open(leave);
    while (!is_zombie(p)) t_ms(1);
    // The process goes on, and the leader's end is that of the process.
    CHECK(ready(process) == 0 && ready(leader) == 0 && ready(thread) == 0);
    OK(send_null(process));
    OK(send_null(leader));
    OK(send_null(thread));
    // What is sent to the leader is lost, and does not end the process.
    OK(syscall(SYS_pidfd_send_signal, leader, SIGTERM, 0, 0));
    CHECK_CHILD(SYS(setuid(1000)); CHECK_ERR(send_null(leader), EPERM));
    // /proc shows a zombie.
    char path[64], b[4096];
    const char *const links[] = {"exe", "cwd", "root", "ns/net", "ns/mnt"};
    for (int i = 0; i < 5; i++) {
        sprintf(path, "/proc/%d/%s", p, links[i]);
        CHECK_ERR(readlink(path, b, sizeof b), ENOENT);
    }
    const char *const empty[] = {"maps", "cmdline"};
    for (int i = 0; i < 2; i++) {
        sprintf(path, "/proc/%d/%s", p, empty[i]);
        CHECK_EQ(t_slurp(path, b, sizeof b), 0);
    }
    sprintf(path, "/proc/%d/task/%d/exe", p, tid);
    CHECK(readlink(path, b, sizeof b) > 0);
    // The other thread executes a program: it takes the leader's number, and its own is gone.
    t_open(go);
    CHECK_EQ(read(told.r, b, 1), 1);
    CHECK(ready(process) == 0 && ready(leader) == 0);
    CHECK_EQ(ready(thread), POLLIN | POLLHUP);
    OK(send_null(leader));
    CHECK_ERR(send_null(thread), ESRCH);
    sprintf(path, "/proc/%d/exe", p);
    CHECK(readlink(path, b, sizeof b) > 0);
    MUST(write(over.w, "\n", 1) == 1);
    siginfo_t si;
    SYS(waitid(P_PID, p, &si, WEXITED | WNOWAIT));
    CHECK_EQ(ready(process), POLLIN);
    CHECK_EQ(ready(leader), POLLIN);
    CHECK_EQ(waitpid(p, &status, 0), p);
    CHECK_STATUS(status, "exit 5");
    CHECK_EQ(ready(process), POLLIN | POLLHUP);
    CHECK_EQ(ready(leader), POLLIN | POLLHUP);
    CHECK_ERR(send_null(leader), ESRCH);
}
