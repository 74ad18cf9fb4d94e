// ptrace(2): events, attaching and seizing, and the ends of tracers and tracees.
#include "ptrace.h"

static void forks(void) {
    pid_t q = fork();
    if (q == 0) _exit(1);
    waitpid(q, 0, 0);
    if ((q = vfork()) == 0) _exit(2);
    waitpid(q, 0, 0);
}
TEST(events_of_fork_and_vfork) {
    pid_t p = traced(forks);
    OK(pt(PTRACE_SETOPTIONS, p, 0,
          PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE | PTRACE_O_TRACEEXIT));
    unsigned long child = 0, message;
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_FORK));
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&child)));
    CHECK_STOP((pid_t)child, SIGSTOP);
    OK(pt(PTRACE_CONT, p, 0, 0));
    OK(pt(PTRACE_CONT, child, 0, 0));
    CHECK_STOP((pid_t)child, EVENT(PTRACE_EVENT_EXIT));
    OK(pt(PTRACE_GETEVENTMSG, child, 0, ADDR(&message)));
    CHECK_EQ(message, 1 << 8);
    OK(pt(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(stop_of((pid_t)child), 1 << 8); // the tracer sees the end first, then the parent
    int s = stop_of(p);
    if (s == (SIGCHLD << 8 | 0x7f)) {
        OK(pt(PTRACE_CONT, p, 0, SIGCHLD));
        s = stop_of(p);
    }
    CHECK_EQ(s, EVENT(PTRACE_EVENT_VFORK) << 8 | 0x7f);
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&child)));
    CHECK_STOP((pid_t)child, SIGSTOP);
    OK(pt(PTRACE_CONT, p, 0, 0));
    OK(pt(PTRACE_DETACH, child, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_VFORK_DONE));
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&message)));
    CHECK_EQ(message, child);
    OK(pt(PTRACE_CONT, p, 0, 0));
    s = stop_of(p);
    if (s == (SIGCHLD << 8 | 0x7f)) {
        OK(pt(PTRACE_CONT, p, 0, SIGCHLD));
        s = stop_of(p);
    }
    CHECK_EQ(s, EVENT(PTRACE_EVENT_EXIT) << 8 | 0x7f);
    finish(p, "exit 0");
}
static void execs(void) { execl("/bin/true", "true", (char *)0); }
TEST(events_of_execve) {
    pid_t p = traced(execs);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXEC));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_EXEC));
    unsigned long message;
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&message)));
    CHECK_EQ(message, p);
    struct user_regs_struct r;
    OK(pt(PTRACE_GETREGS, p, 0, ADDR(&r)));
    CHECK_EQ(r.orig_rax, SYS_execve);
    CHECK_EQ(r.rax, -ENOSYS);
    finish(p, "exit 0");
    p = traced(execs);
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    siginfo_t si;
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)));
    CHECK_EQ(si.si_code, SI_USER);
    finish(p, "exit 0");
}
static void *thread_exec(void *arg) {
    execl("/bin/true", "true", (char *)0);
    return arg;
}
static void execs_in_thread(void) {
    pthread_t t;
    pthread_create(&t, 0, thread_exec, 0);
    for (;;) pause();
}
TEST(execve_of_another_thread) {
    pid_t p = traced(execs_in_thread);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_CLONE));
    unsigned long thread, message;
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&thread)));
    CHECK_STOP((pid_t)thread, SIGSTOP);
    OK(pt(PTRACE_CONT, p, 0, 0));
    OK(pt(PTRACE_CONT, thread, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_EXEC));
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&message)));
    CHECK_EQ(message, thread);
    CHECK_ERR(pt(PTRACE_CONT, thread, 0, 0), ESRCH);
    finish(p, "exit 0");
}
static void *thread_ends(void *arg) { return arg; }
static void makes_threads(void) {
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        pthread_create(&t, 0, thread_ends, 0);
        pthread_join(t, 0);
    }
}
TEST(threads_that_end_are_waited_for) {
    pid_t p = traced(makes_threads);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
    OK(pt(PTRACE_CONT, p, 0, 0));
    int ends = 0, clones = 0, status;
    for (;;) {
        pid_t got = waitpid(-1, &status, __WALL);
        if (got < 0) break;
        if (WIFEXITED(status)) {
            if (got == p) break;
            ends++;
        } else {
            clones += status >> 8 == EVENT(PTRACE_EVENT_CLONE);
            OK(pt(PTRACE_CONT, got, 0, 0));
        }
    }
    CHECK_EQ(ends, 3);
    CHECK_EQ(clones, 3);
    CHECK_EQ(status, 0);
}
TEST(attach_and_detach) {
    pid_t p = fork();
    if (p == 0) {
        for (;;) pause();
    }
    CHECK_ERR(pt(PTRACE_DETACH, p, 0, 0), ESRCH);
    CHECK_ERR(pt(PTRACE_PEEKDATA, p, ADDR(&words[1]), ADDR(&words[2])), ESRCH);
    OK(pt(PTRACE_ATTACH, p, 0, 0));
    CHECK_STOP(p, SIGSTOP);
    char path[64], text[4096];
    sprintf(path, "/proc/%d/status", p);
    int fd = open(path, O_RDONLY);
    text[read(fd, text, sizeof text - 1)] = 0;
    close(fd);
    int tracer = -1;
    sscanf(strstr(text, "TracerPid:"), "TracerPid: %d", &tracer);
    CHECK_EQ(tracer, getpid());
    CHECK(strstr(text, "t (tracing stop)") != 0);
    CHECK_ERR(pt(PTRACE_ATTACH, p, 0, 0), EPERM);
    pid_t q = FORK();
    if (q == 0) {
        CHECK_ERR(pt(PTRACE_ATTACH, p, 0, 0), EPERM);
        CHECK_ERR(pt(PTRACE_CONT, p, 0, 0), ESRCH);
        _exit(0);
    }
    CHECK_STATUS(t_status(q), "exit 0");
    CHECK_ERR(pt(PTRACE_DETACH, p, 0, 100), EIO);
    OK(pt(PTRACE_DETACH, p, 0, 0));
    CHECK_ERR(pt(PTRACE_CONT, p, 0, 0), ESRCH);
    CHECK_ERR(pt(PTRACE_ATTACH, 1 << 22, 0, 0), ESRCH);
    CHECK_ERR(pt(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
    OK(pt(PTRACE_ATTACH, p, 0, 0));
    CHECK_STOP(p, SIGSTOP);
    OK(pt(PTRACE_DETACH, p, 0, SIGTERM));
    CHECK_STATUS(t_status(p), "signal 15");
}
TEST(seize_interrupt_listen) {
    pid_t p = fork();
    if (p == 0) {
        for (;;) pause();
    }
    CHECK_ERR(pt(PTRACE_SEIZE, p, 1, 0), EIO);
    CHECK_ERR(pt(PTRACE_SEIZE, p, 0, 1ul << 40), EIO);
    OK(pt(PTRACE_SEIZE, p, 0, PTRACE_O_TRACESYSGOOD));
    CHECK_EQ(waitpid(p, 0, WNOHANG), 0);
    CHECK_ERR(pt(PTRACE_CONT, p, 0, 0), ESRCH);
    OK(pt(PTRACE_INTERRUPT, p, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_STOP));
    siginfo_t si;
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)));
    CHECK_EQ(si.si_signo, SIGTRAP);
    CHECK_EQ(si.si_code, EVENT(PTRACE_EVENT_STOP));
    OK(pt(PTRACE_CONT, p, 0, 0));
    kill(p, SIGSTOP);
    CHECK_STOP(p, SIGSTOP);
    CHECK_ERR(pt(PTRACE_LISTEN, p, 0, 0), EIO); // not a group stop yet
    OK(pt(PTRACE_CONT, p, 0, SIGSTOP));
    CHECK_STOP(p, SIGSTOP | PTRACE_EVENT_STOP << 8);
    OK(pt(PTRACE_LISTEN, p, 0, 0));
    usleep(20000);
    CHECK_EQ(waitpid(p, 0, WNOHANG), 0);
    kill(p, SIGCONT);
    CHECK_STOP(p, EVENT(PTRACE_EVENT_STOP));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGCONT);
    OK(pt(PTRACE_CONT, p, 0, SIGCONT));
    kill(p, SIGKILL);
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(seize_of_a_stopped_process) {
    pid_t p = fork();
    if (p == 0) {
        raise(SIGSTOP);
        _exit(4);
    }
    int status;
    CHECK_EQ(waitpid(p, &status, WUNTRACED), p);
    OK(pt(PTRACE_SEIZE, p, 0, 0));
    CHECK_STOP(p, SIGSTOP | PTRACE_EVENT_STOP << 8);
    kill(p, SIGCONT);
    OK(pt(PTRACE_CONT, p, 0, 0));
    int s = stop_of(p);
    while (WIFSTOPPED(s)) {
        OK(pt(PTRACE_CONT, p, 0, s >> 16 ? 0 : WSTOPSIG(s)));
        s = stop_of(p);
    }
    CHECK_EQ(s, 4 << 8);
}
TEST(options_and_interrupt_need_their_kind) {
    pid_t p = traced(nothing);
    CHECK_ERR(pt(PTRACE_SETOPTIONS, p, 0, 1 << 8), EINVAL);
    CHECK_ERR(pt(PTRACE_INTERRUPT, p, 0, 0), EIO);
    CHECK_ERR(pt(PTRACE_LISTEN, p, 0, 0), EIO);
    unsigned long mask = 0;
    CHECK_ERR(pt(PTRACE_GETSIGMASK, p, 4, ADDR(&mask)), EINVAL);
    mask = 1ul << (SIGUSR1 - 1) | 1ul << (SIGKILL - 1);
    OK(pt(PTRACE_SETSIGMASK, p, 8, ADDR(&mask)));
    OK(pt(PTRACE_GETSIGMASK, p, 8, ADDR(&mask)));
    CHECK_EQ(mask, 1ul << (SIGUSR1 - 1));
    kill(p, SIGUSR1); // blocked
    struct { unsigned long off; unsigned flags; int nr; } peek = {0, 1, 8};
    siginfo_t infos[8];
    CHECK_EQ(pt(PTRACE_PEEKSIGINFO, p, ADDR(&peek), ADDR(infos)), 1);
    CHECK_EQ(infos[0].si_signo, SIGUSR1);
    CHECK_EQ(infos[0].si_pid, getpid());
    peek.off = 1;
    CHECK_EQ(pt(PTRACE_PEEKSIGINFO, p, ADDR(&peek), ADDR(infos)), 0);
    peek.flags = 2;
    CHECK_ERR(pt(PTRACE_PEEKSIGINFO, p, ADDR(&peek), ADDR(infos)), EINVAL);
    finish(p, "exit 0");
}
TEST(siginfo_is_changed) {
    pid_t p = fork();
    if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        sigset_t s;
        sigemptyset(&s);
        sigaddset(&s, SIGUSR2);
        raise(SIGUSR1);
        _exit(9);
    }
    CHECK_STOP(p, SIGUSR1);
    OK(pt(PTRACE_CONT, p, 0, SIGTERM)); // another signal instead
    CHECK_STATUS(t_status(p), "signal 15");
}
static void seccomp_trace(void) {
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 0x123),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {4, f};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, 2, &prog));
    getppid_then_5();
}
TEST(events_of_seccomp) {
    pid_t p = traced(seccomp_trace);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESECCOMP));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_SECCOMP));
    unsigned long message;
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&message)));
    CHECK_EQ(message, 0x123);
    struct __ptrace_syscall_info info;
    CHECK_EQ(pt(PTRACE_GET_SYSCALL_INFO, p, sizeof info, ADDR(&info)), 84);
    CHECK_EQ(info.op, PTRACE_SYSCALL_INFO_SECCOMP);
    CHECK_EQ(info.seccomp.nr, SYS_getppid);
    CHECK_EQ(info.seccomp.ret_data, 0x123);
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.orig_rax), -1));
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.rax), 4242));
    finish(p, "exit 5");
    p = traced(seccomp_trace); // nobody asked for the event
    finish(p, "exit 6");
}
TEST(a_tracer_that_dies) {
    struct t_gate g = t_gate();
    pid_t p = fork();
    if (p == 0) {
        t_pass(g);
        _exit(8);
    }
    pid_t tracer = fork();
    if (tracer == 0) {
        OK(pt(PTRACE_SEIZE, p, 0, 0));
        OK(pt(PTRACE_INTERRUPT, p, 0, 0));
        CHECK_EQ(stop_of(p), EVENT(PTRACE_EVENT_STOP) << 8 | 0x7f);
        _exit(0); // the tracee goes on
    }
    CHECK_STATUS(t_status(tracer), "exit 0");
    t_open(g);
    CHECK_STATUS(t_status(p), "exit 8");
    p = fork();
    if (p == 0) {
        for (;;) pause();
    }
    if ((tracer = fork()) == 0) {
        OK(pt(PTRACE_SEIZE, p, 0, PTRACE_O_EXITKILL));
        _exit(0);
    }
    CHECK_STATUS(t_status(tracer), "exit 0");
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(a_parent_waits_after_the_tracer) {
    pid_t p = fork();
    if (p == 0) {
        for (;;) pause();
    }
    struct t_gate g = t_gate();
    pid_t tracer = fork();
    if (tracer == 0) {
        OK(pt(PTRACE_SEIZE, p, 0, 0));
        kill(p, SIGKILL);
        usleep(50000);
        t_open(g);
        usleep(50000);
        CHECK_EQ(stop_of(p), SIGKILL);
        _exit(0);
    }
    t_pass(g);
    CHECK_EQ(waitpid(p, 0, WNOHANG), 0); // dead, but its tracer has not waited
    CHECK_STATUS(t_status(tracer), "exit 0");
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(many_tracees_of_a_tracer_that_dies) {
    pid_t tracer = fork();
    if (tracer == 0) {
        for (int i = 0; i < 60; i++) {
            pid_t p = fork();
            if (p == 0) {
                for (;;) pause();
            }
            OK(pt(PTRACE_SEIZE, p, 0, PTRACE_O_EXITKILL));
            if (i % 2) OK(pt(PTRACE_INTERRUPT, p, 0, 0));
        }
        _exit(0);
    }
    CHECK_STATUS(t_status(tracer), "exit 0");
}
TEST(two_that_trace_each_other) {
    pid_t a = fork();
    if (a == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    pid_t b = fork();
    if (b == 0) {
        OK(pt(PTRACE_SEIZE, a, 0, PTRACE_O_TRACEEXIT));
        for (;;) pause();
    }
    usleep(20000);
    OK(pt(PTRACE_SEIZE, b, 0, 0));
    CHECK_ERR(pt(PTRACE_SEIZE, a, 0, 0), EPERM);
    kill(b, SIGKILL);
    kill(a, SIGKILL);
    CHECK_STATUS(t_status(b), "signal 9");
    CHECK_STATUS(t_status(a), "signal 9");
}
TEST(other_users_and_undumpable_processes) {
    if (getuid()) SKIP("needs root");
    struct t_gate g = t_gate();
    pid_t p = FORK();
    if (p == 0) {
        for (;;) pause();
    }
    pid_t q = FORK();
    if (q == 0) {
        OK(setresgid(1000, 1000, 1000));
        OK(setresuid(1000, 1000, 1000));
        CHECK_ERR(pt(PTRACE_ATTACH, p, 0, 0), EPERM);
        pid_t r = fork();
        if (r == 0) {
            prctl(PR_SET_DUMPABLE, 0);
            t_open(g);
            for (;;) pause();
        }
        t_pass(g);
        CHECK_ERR(pt(PTRACE_ATTACH, r, 0, 0), EPERM);
        kill(r, SIGKILL);
        _exit(0);
    }
    CHECK_STATUS(t_status(q), "exit 0");
    kill(p, SIGKILL);
    t_status(p);
}
static volatile int handled;
static void count_signal(int sig) { handled += sig == SIGUSR1; }
TEST(a_step_into_a_handler) {
    pid_t p = fork();
    if (p == 0) {
        signal(SIGUSR1, count_signal);
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGUSR1);
        _exit(handled);
    }
    CHECK_STOP(p, SIGUSR1);
    OK(pt(PTRACE_SINGLESTEP, p, 0, SIGUSR1));
    CHECK_STOP(p, SIGTRAP);
    struct user_regs_struct r;
    OK(pt(PTRACE_GETREGS, p, 0, ADDR(&r)));
    CHECK_EQ(r.rip, ADDR(count_signal));
    CHECK_EQ(r.rdi, SIGUSR1);
    finish(p, "exit 1");
}
TEST(syscalls_of_a_loop_of_calls) {
    pid_t p = traced(call_getppid);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
    int stops = 0, status;
    for (;;) {
        OK(pt(PTRACE_SYSCALL, p, 0, 0));
        status = stop_of(p);
        if (!WIFSTOPPED(status)) break;
        CHECK_EQ(WSTOPSIG(status), SIGTRAP | 0x80);
        stops++;
    }
    CHECK_EQ(stops, 3); // getppid twice, exit_group once
    CHECK_EQ(status, 0);
}
static int wait_in_clone(void *unused) {
    for (;;) pause();
}
static void clone_and_wait(void) {
    static char stack[16384] __attribute__((aligned(16)));
    if (clone(wait_in_clone, stack + sizeof stack, CLONE_VM, NULL) > 0)
        for (;;) words[2]++;
}
TEST(memory_of_processes_that_share_it) {
    // The clone is stopped, its parent runs: protections are lifted for both, whichever of them names the memory.
    pid_t p = traced(clone_and_wait);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, EVENT(PTRACE_EVENT_CLONE));
    unsigned long child = 0;
    OK(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&child)));
    CHECK_STOP(child, SIGSTOP);
    char path[64];
    sprintf(path, "/proc/%d/mem", p);
    int mem = SYS(open(path, O_RDWR)), failed = 0;
    for (long i = 0; i < 300; i++) {
        // The parent has been let go, but may not have noticed.
        OK(pt(PTRACE_SINGLESTEP, p, 0, 0));
        failed += pwrite(mem, &i, sizeof i, ADDR(&constant)) != sizeof i;
        CHECK_STOP(p, SIGTRAP);
    }
    CHECK_EQ(failed, 0);
    close(mem);
    OK(pt(PTRACE_CONT, p, 0, 0));
    pid_t both[] = {p, child};
    for (int i = 0; i < 2; i++) {
        long value = 0x4321 + i, got = 0;
        sprintf(path, "/proc/%d/mem", both[i]);
        int fd = SYS(open(path, O_RDWR));
        CHECK_EQ(pwrite(fd, &value, sizeof value, ADDR(&constant)), sizeof value);
        CHECK_EQ(pread(fd, &got, sizeof got, ADDR(&constant)), sizeof got);
        CHECK_EQ(got, value);
        close(fd);
    }
    CHECK_EQ(constant, 0x1234);
    kill(p, SIGKILL);
    kill(child, SIGKILL);
    CHECK_EQ(stop_of(p), SIGKILL);
    CHECK_EQ(stop_of(child), SIGKILL);
}
