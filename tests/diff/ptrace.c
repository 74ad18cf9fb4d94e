// ptrace(2): memory, registers, stops at calls and steps, with their errors, and tracers that ask for nonsense.
#include "ptrace.h"

TEST(traceme_stops_for_signals) {
    pid_t p = fork();
    if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        CHECK_ERR(pt(PTRACE_TRACEME, 0, 0, 0), EPERM);
        signal(SIGUSR1, SIG_IGN);
        raise(SIGUSR1); // told of, though it is ignored
        raise(SIGTERM);
        _exit(3);
    }
    CHECK_STOP(p, SIGUSR1);
    siginfo_t si;
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)));
    CHECK_EQ(si.si_signo, SIGUSR1);
    CHECK_EQ(si.si_code, SI_TKILL);
    CHECK_EQ(si.si_pid, p);
    OK(pt(PTRACE_CONT, p, 0, SIGUSR1));
    CHECK_STOP(p, SIGTERM);
    CHECK_ERR(pt(PTRACE_CONT, p, 0, 65), EIO);
    CHECK_ERR(pt(PTRACE_CONT, p, 0, -1), EIO);
    finish(p, "exit 3"); // suppressed
    CHECK_ERR(pt(PTRACE_CONT, p, 0, 0), ESRCH);
}
TEST(wait_reports_a_stop_once) {
    pid_t p = traced(nothing);
    CHECK_EQ(waitpid(p, 0, WNOHANG), 0);
    OK(pt(PTRACE_CONT, p, 0, SIGSTOP));
    CHECK_STOP(p, SIGSTOP); // the group stop
    siginfo_t si = {0};
    CHECK_ERR(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)), EINVAL);
    finish(p, "exit 0");
}
TEST(waitid_of_a_tracee) {
    pid_t p = fork();
    if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGUSR2);
        _exit(0);
    }
    siginfo_t si = {0};
    OK(waitid(P_PID, p, &si, WSTOPPED | WNOWAIT));
    CHECK_EQ(si.si_code, CLD_TRAPPED);
    CHECK_EQ(si.si_status, SIGUSR2);
    CHECK_EQ(si.si_pid, p);
    CHECK_STOP(p, SIGUSR2);
    finish(p, "exit 0");
}
TEST(memory_is_read_and_written) {
    pid_t p = traced(exit_by_word);
    long v = 0;
    OK(pt(PTRACE_PEEKDATA, p, ADDR(&words[1]), ADDR(&v)));
    CHECK_EQ(v, 22);
    OK(pt(PTRACE_POKEDATA, p, ADDR(&words[1]), 7));
    CHECK_EQ(words[1], 22);
    OK(pt(PTRACE_POKETEXT, p, ADDR(&constant), 0x4321)); // where the program cannot write
    OK(pt(PTRACE_PEEKTEXT, p, ADDR(&constant), ADDR(&v)));
    CHECK_EQ(v, 0x4321);
    CHECK_ERR(pt(PTRACE_PEEKDATA, p, 8, ADDR(&v)), EIO);
    CHECK_ERR(pt(PTRACE_POKEDATA, p, 8, 1), EIO);
    CHECK_ERR(pt(PTRACE_PEEKDATA, p, -8, ADDR(&v)), EIO);
    CHECK_ERR(pt(PTRACE_PEEKDATA, p, ADDR(&words[1]), 8), EFAULT);
    finish(p, "exit 7");
}
TEST(memory_without_any_access) {
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(page, "hidden");
    OK(mprotect(page, 4096, PROT_NONE));
    char *shared = mmap(0, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t p = traced(nothing);
    long v = 0;
    OK(pt(PTRACE_PEEKDATA, p, ADDR(page), ADDR(&v)));
    CHECK_EQ(memcmp(&v, "hidden", 6), 0);
    OK(pt(PTRACE_POKEDATA, p, ADDR(page), 5));
    OK(pt(PTRACE_PEEKDATA, p, ADDR(page), ADDR(&v)));
    CHECK_EQ(v, 5);
    CHECK_ERR(pt(PTRACE_POKEDATA, p, ADDR(shared), 5), EIO);
    finish(p, "exit 0");
}
TEST(proc_mem_of_a_tracee) {
    pid_t p = traced(exit_by_word);
    char path[64];
    sprintf(path, "/proc/%d/mem", p);
    int fd = open(path, O_RDWR);
    long v = 0, new = 9;
    CHECK_EQ(pread(fd, &v, 8, (off_t)ADDR(&words[1])), 8);
    CHECK_EQ(v, 22);
    CHECK_EQ(pwrite(fd, &new, 8, (off_t)ADDR(&words[1])), 8);
    CHECK_EQ(pwrite(fd, &new, 8, (off_t)ADDR(&constant)), 8);
    OK(pt(PTRACE_PEEKDATA, p, ADDR(&constant), ADDR(&v)));
    CHECK_EQ(v, 9);
    CHECK_ERR(pread(fd, &v, 8, 8), EIO);
    finish(p, "exit 9");
}
TEST(registers) {
    pid_t p = traced(nothing);
    struct user_regs_struct r, s;
    OK(pt(PTRACE_GETREGS, p, 0, ADDR(&r)));
    CHECK_EQ(r.cs, 0x33);
    CHECK_EQ(r.ss, 0x2b);
    CHECK_EQ(r.ds, 0);
    CHECK_EQ(r.orig_rax, SYS_tgkill);
    CHECK_EQ(r.rax, 0);
    CHECK(r.fs_base != 0);
    s = r;
    s.r15 = 0x1122334455667788;
    OK(pt(PTRACE_SETREGS, p, 0, ADDR(&s)));
    long v = 0;
    OK(pt(PTRACE_PEEKUSER, p, offsetof(struct user, regs.r15), ADDR(&v)));
    CHECK_EQ(v, 0x1122334455667788);
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.r14), 99));
    struct iovec iov = {&s, sizeof s};
    OK(pt(PTRACE_GETREGSET, p, 1, ADDR(&iov)));
    CHECK_EQ(iov.iov_len, sizeof s);
    CHECK_EQ(s.r14, 99);
    iov.iov_len = 16;
    OK(pt(PTRACE_GETREGSET, p, 1, ADDR(&iov)));
    CHECK_EQ(iov.iov_len, 16);
    iov.iov_len = 15;
    CHECK_ERR(pt(PTRACE_GETREGSET, p, 1, ADDR(&iov)), EINVAL);
    CHECK_ERR(pt(PTRACE_GETREGSET, p, 0x7777, ADDR(&iov)), EINVAL);
    CHECK_ERR(pt(PTRACE_GETREGSET, p, 1, 8), EFAULT);
    CHECK_ERR(pt(PTRACE_GETREGS, p, 0, 8), EFAULT);
    OK(pt(PTRACE_SETREGS, p, 0, ADDR(&r)));
    finish(p, "exit 0");
}
TEST(registers_that_cannot_be) {
    pid_t p = traced(nothing);
#define USER(reg) offsetof(struct user, regs.reg)
    long v;
    CHECK_ERR(pt(PTRACE_POKEUSER, p, USER(cs), 0), EIO);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, USER(cs), 0x10), EIO);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, USER(ss), 0), EIO);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, USER(ds), 0x18), EIO);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, USER(fs_base), -1), EIO);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, USER(gs_base), 1ul << 63), EIO);
    CHECK_ERR(pt(PTRACE_PEEKUSER, p, 1, ADDR(&v)), EIO);
    CHECK_ERR(pt(PTRACE_PEEKUSER, p, 928, ADDR(&v)), EIO);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, USER(gs) + 8, 1), EIO);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, 928, 1), EIO);
    OK(pt(PTRACE_POKEUSER, p, USER(eflags), 0x3000)); // IOPL stays
    OK(pt(PTRACE_PEEKUSER, p, USER(eflags), ADDR(&v)));
    CHECK_EQ(v & 0x3000, 0);
    CHECK_EQ(v & 0x200, 0x200);
    CHECK_ERR(pt(0x9999, p, 0, 0), EIO);
    finish(p, "exit 0");
}
TEST(no_place_to_go_on) {
    static const unsigned long places[] = {0x8000000000000000, -1ul, 0x7ffffffff000, 0, 0xffffffff81000000};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        pid_t p = traced(nothing);
        OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.rip), places[i]));
        OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.rsp), places[i]));
        OK(pt(PTRACE_CONT, p, 0, 0));
        int status = stop_of(p);
        CHECK_EQ(WSTOPSIG(status), SIGSEGV);
        OK(pt(PTRACE_KILL, p, 0, 0));
        CHECK_STATUS(t_status(p), "signal 9");
    }
}
TEST(floating_point_registers) {
    pid_t p = traced(nothing);
    struct user_fpregs_struct f;
    OK(pt(PTRACE_GETFPREGS, p, 0, ADDR(&f)));
    CHECK_EQ(f.cwd, 0x37f);
    CHECK_EQ(f.mxcsr, 0x1f80);
    f.xmm_space[0] = 0xabcd;
    OK(pt(PTRACE_SETFPREGS, p, 0, ADDR(&f)));
    memset(&f, 0, sizeof f);
    struct iovec iov = {&f, sizeof f};
    OK(pt(PTRACE_GETREGSET, p, 2, ADDR(&iov)));
    CHECK_EQ(iov.iov_len, sizeof f);
    CHECK_EQ(f.xmm_space[0], 0xabcd);
    f.mxcsr = -1;
    CHECK_ERR(pt(PTRACE_SETFPREGS, p, 0, ADDR(&f)), EINVAL);
    static char x[16384];
    iov = (struct iovec){x, sizeof x};
    OK(pt(PTRACE_GETREGSET, p, 0x202, ADDR(&iov)));
    CHECK(iov.iov_len >= 576);
    unsigned long xcr0;
    memcpy(&xcr0, x + 464, 8);
    CHECK_EQ(xcr0 & 3, 3);
    x[160] = 0x5a;
    OK(pt(PTRACE_SETREGSET, p, 0x202, ADDR(&iov)));
    OK(pt(PTRACE_GETFPREGS, p, 0, ADDR(&f)));
    CHECK_EQ(f.xmm_space[0] & 0xff, 0x5a);
    memset(x, 0xff, sizeof x); // nonsense
    CHECK_ERR(pt(PTRACE_SETREGSET, p, 0x202, ADDR(&iov)), EINVAL);
    iov.iov_len = 576;
    CHECK_ERR(pt(PTRACE_SETREGSET, p, 0x202, ADDR(&iov)), EFAULT);
    finish(p, "exit 0");
}
TEST(syscall_stops) {
    pid_t p = traced(getppid_then_5);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    CHECK_STOP(p, SIGTRAP | 0x80);
    struct user_regs_struct r;
    OK(pt(PTRACE_GETREGS, p, 0, ADDR(&r)));
    CHECK_EQ(r.orig_rax, SYS_getppid);
    CHECK_EQ(r.rax, -ENOSYS);
    struct __ptrace_syscall_info info;
    CHECK_EQ(pt(PTRACE_GET_SYSCALL_INFO, p, sizeof info, ADDR(&info)), 80);
    CHECK_EQ(info.op, PTRACE_SYSCALL_INFO_ENTRY);
    CHECK_EQ(info.arch, AUDIT_ARCH_X86_64);
    CHECK_EQ(info.entry.nr, SYS_getppid);
    CHECK_EQ(info.instruction_pointer, r.rip);
    CHECK_EQ(info.stack_pointer, r.rsp);
    siginfo_t si;
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)));
    CHECK_EQ(si.si_code, SIGTRAP | 0x80);
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    CHECK_STOP(p, SIGTRAP | 0x80);
    CHECK_EQ(pt(PTRACE_GET_SYSCALL_INFO, p, sizeof info, ADDR(&info)), 33);
    CHECK_EQ(info.op, PTRACE_SYSCALL_INFO_EXIT);
    CHECK_EQ(info.exit.rval, getpid());
    CHECK_EQ(info.exit.is_error, 0);
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.rax), 4242));
    finish(p, "exit 5");
}
TEST(a_call_is_changed_or_skipped) {
    pid_t p = traced(getppid_then_5);
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.orig_rax), -1));
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    long v;
    OK(pt(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rax), ADDR(&v)));
    CHECK_EQ(v, -ENOSYS);
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.rax), 4242));
    finish(p, "exit 5");
    p = traced(getppid_then_5);
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.orig_rax), SYS_exit));
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.rdi), 77));
    finish(p, "exit 77");
}
TEST(sysemu) {
    pid_t p = traced(getppid_then_5);
    OK(pt(PTRACE_SYSEMU, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    OK(pt(PTRACE_POKEUSER, p, offsetof(struct user, regs.rax), 4242));
    OK(pt(PTRACE_SYSEMU, p, 0, 0));
    CHECK_STOP(p, SIGTRAP); // exit_group
    struct user_regs_struct r;
    OK(pt(PTRACE_GETREGS, p, 0, ADDR(&r)));
    CHECK_EQ(r.orig_rax, SYS_exit_group);
    CHECK_EQ(r.rdi, 5);
    OK(pt(PTRACE_KILL, p, 0, 0));
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(memory_changed_at_the_entry_of_a_call) {
    static char path[] = "/nonexistent/nonexistent";
    pid_t p = fork();
    if (p == 0) {
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        _exit(syscall(SYS_access, path, F_OK) ? 1 : 0);
    }
    CHECK_STOP(p, SIGSTOP);
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    OK(pt(PTRACE_POKEDATA, p, ADDR(path), 0x2f)); // "/"
    finish(p, "exit 0");
}
static void interrupted_read(void) {
    int fds[2];
    char c;
    OK(pipe(fds));
    CHECK_ERR(syscall(SYS_read, fds[0], &c, 1), EINTR);
}
static void handler(int sig) { (void)sig; }
TEST(restart_codes_are_seen) {
    pid_t p = fork();
    if (p == 0) {
        struct sigaction sa = {.sa_handler = handler};
        sigaction(SIGUSR1, &sa, 0);
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        interrupted_read();
        _exit(0);
    }
    CHECK_STOP(p, SIGSTOP);
    long nr = -1, v;
    do {
        OK(pt(PTRACE_SYSCALL, p, 0, 0));
        CHECK_STOP(p, SIGTRAP);
        OK(pt(PTRACE_PEEKUSER, p, offsetof(struct user, regs.orig_rax), ADDR(&nr)));
    } while (nr != SYS_read);
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    usleep(50000);
    CHECK_EQ(waitpid(p, 0, WNOHANG), 0);
    kill(p, SIGUSR1);
    CHECK_STOP(p, SIGTRAP); // exit of the call
    OK(pt(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rax), ADDR(&v)));
    CHECK_EQ(v, -512);
    OK(pt(PTRACE_SYSCALL, p, 0, 0));
    CHECK_STOP(p, SIGUSR1);
    OK(pt(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rax), ADDR(&v)));
    CHECK_EQ(v, -512);
    OK(pt(PTRACE_SYSCALL, p, 0, 0)); // without the signal: the call starts again
    CHECK_STOP(p, SIGTRAP);
    OK(pt(PTRACE_PEEKUSER, p, offsetof(struct user, regs.orig_rax), ADDR(&nr)));
    CHECK_EQ(nr, SYS_read);
    OK(pt(PTRACE_CONT, p, 0, 0));
    usleep(20000);
    kill(p, SIGUSR1);
    CHECK_STOP(p, SIGUSR1);
    OK(pt(PTRACE_CONT, p, 0, SIGUSR1));
    CHECK_STATUS(t_status(p), "exit 0");
}
static int futex_word;
static void *futex_waker(void *arg) {
    usleep(100000);
    futex_word = 1;
    syscall(SYS_futex, &futex_word, 1, 1, 0, 0, 0);
    return arg;
}
TEST(futex_calls_have_both_stops) {
    pid_t p = fork();
    if (p == 0) {
        pthread_t t;
        pthread_create(&t, 0, futex_waker, 0);
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        int r = (int)syscall(SYS_futex, &futex_word, 0, 0, 0, 0, 0);
        _exit(r == 0 || futex_word ? 0 : 1);
    }
    CHECK_STOP(p, SIGSTOP);
    OK(pt(PTRACE_SETOPTIONS, p, 0, PTRACE_O_TRACESYSGOOD));
    struct __ptrace_syscall_info info;
    for (int op = PTRACE_SYSCALL_INFO_ENTRY; op <= PTRACE_SYSCALL_INFO_EXIT; op++) {
        OK(pt(PTRACE_SYSCALL, p, 0, 0));
        CHECK_STOP(p, SIGTRAP | 0x80);
        CHECK(pt(PTRACE_GET_SYSCALL_INFO, p, sizeof info, ADDR(&info)) > 0);
        CHECK_EQ(info.op, op);
        if (op == PTRACE_SYSCALL_INFO_ENTRY) CHECK_EQ(info.entry.nr, SYS_futex);
    }
    CHECK(info.exit.rval == 0 || info.exit.rval == -EAGAIN);
    finish(p, "exit 0");
}
static void spin_asm(void) { __asm__ volatile("nop\n nop\n mov $39,%%eax\n syscall\n nop\n" ::: "rax", "rcx", "r11"); }
TEST(single_steps) {
    pid_t p = traced(spin_asm);
    struct user_regs_struct r;
    siginfo_t si;
    long word, last = 0;
    int steps = 0, over_call = 0;
    do {
        OK(pt(PTRACE_SINGLESTEP, p, 0, 0));
        if (stop_of(p) != (SIGTRAP << 8 | 0x7f)) {
            CHECK(!"a step stops with SIGTRAP");
            break;
        }
        OK(pt(PTRACE_GETREGS, p, 0, ADDR(&r)));
        CHECK_EQ(r.eflags & 0x100, 0);
        CHECK(r.rip != (unsigned long)last || ++steps < 100000);
        OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)));
        OK(pt(PTRACE_PEEKTEXT, p, r.rip - 2, ADDR(&word)));
        over_call = (word & 0xffff) == 0x050f && r.rax == (unsigned long)p;
        if (!over_call) CHECK(si.si_code == TRAP_TRACE || si.si_code == TRAP_BRKPT);
        last = r.rip;
    } while (!over_call && ++steps < 20000);
    CHECK(over_call);
    CHECK_EQ(si.si_code, TRAP_BRKPT);
    finish(p, "exit 0");
}
__attribute__((noinline)) static long add_one(long x) {
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}
static void call_add_one(void) { _exit((int)add_one(words[0])); }
TEST(breakpoints) {
    pid_t p = traced(call_add_one);
    long text;
    OK(pt(PTRACE_PEEKTEXT, p, ADDR(add_one), ADDR(&text)));
    CHECK_EQ(memcmp(&text, (void *)add_one, 8), 0);
    OK(pt(PTRACE_POKETEXT, p, ADDR(add_one), (text & ~0xfful) | 0xcc));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    struct user_regs_struct r;
    OK(pt(PTRACE_GETREGS, p, 0, ADDR(&r)));
    CHECK_EQ(r.rip, ADDR(add_one) + 1);
    CHECK_EQ(r.rdi, 11);
    siginfo_t si;
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)));
    CHECK_EQ(si.si_code, SI_KERNEL);
    OK(pt(PTRACE_POKETEXT, p, ADDR(add_one), text));
    r.rip--;
    r.rdi = 41;
    OK(pt(PTRACE_SETREGS, p, 0, ADDR(&r)));
    finish(p, "exit 42");
}
TEST(own_bytes_at_call_sites) {
    // Many calls from one place, for platforms that change the text there.
    pid_t p = fork();
    if (p == 0) {
        for (int i = 0; i < 3000; i++) getppid(), getuid(), lseek(0, 0, SEEK_CUR), umask(022);
        OK(pt(PTRACE_TRACEME, 0, 0, 0));
        raise(SIGSTOP);
        for (int i = 0; i < 3000; i++) umask(022);
        _exit(0);
    }
    CHECK_STOP(p, SIGSTOP);
    // The file says what the bytes are.
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], name[256];
    unsigned long from, to, off;
    int compared = 0;
    while (fgets(line, sizeof line, maps)) {
        char mode[8];
        if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %255s", &from, &to, mode, &off, name) != 5) continue;
        if (mode[2] != 'x' || name[0] != '/') continue;
        int fd = open(name, O_RDONLY);
        char path[64];
        sprintf(path, "/proc/%d/mem", p);
        int mem = open(path, O_RDONLY);
        static char a[65536], b[65536];
        for (; from < to; from += sizeof a, off += sizeof a) {
            size_t n = to - from < sizeof a ? to - from : sizeof a;
            ssize_t k = pread(fd, a, n, off);
            if (k <= 0) break;
            CHECK_EQ(pread(mem, b, k, (off_t)from), k);
            if (memcmp(a, b, k)) CHECK(!"the text is the file's");
            compared++;
        }
        close(fd), close(mem);
    }
    fclose(maps);
    CHECK(compared > 1);
    finish(p, "exit 0");
}
static void change_and_call(void) {
    words[3] = 1;
    words[4] = 2;
    words[5] = add_one(words[4]);
    _exit((int)words[5]);
}
#define DR(n) (offsetof(struct user, u_debugreg) + 8 * (n))
TEST(debug_registers) {
    pid_t p = traced(change_and_call);
    long v;
    CHECK_ERR(pt(PTRACE_POKEUSER, p, DR(0), 1ul << 63), EINVAL);
    CHECK_ERR(pt(PTRACE_POKEUSER, p, DR(4), 1), EIO);
    OK(pt(PTRACE_POKEUSER, p, DR(0), ADDR(&words[4])));
    OK(pt(PTRACE_PEEKUSER, p, DR(0), ADDR(&v)));
    CHECK_EQ(v, ADDR(&words[4]));
    OK(pt(PTRACE_POKEUSER, p, DR(1), ADDR(add_one)));
    CHECK_ERR(pt(PTRACE_POKEUSER, p, DR(7), 0x20001), EINVAL);                // input and output
    OK(pt(PTRACE_POKEUSER, p, DR(7), 1 | 1 << 2 | 1 << 16 | 2 << 18));         // writes of 8 bytes; an instruction
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    siginfo_t si;
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&si)));
    CHECK_EQ(si.si_code, TRAP_HWBKPT);
    OK(pt(PTRACE_PEEKUSER, p, DR(6), ADDR(&v)));
    CHECK_EQ(v & 15, 1);
    OK(pt(PTRACE_PEEKDATA, p, ADDR(&words[4]), ADDR(&v)));
    CHECK_EQ(v, 2);
    OK(pt(PTRACE_POKEUSER, p, DR(6), 0));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGTRAP);
    OK(pt(PTRACE_PEEKUSER, p, DR(6), ADDR(&v)));
    CHECK_EQ(v & 15, 2);
    OK(pt(PTRACE_PEEKUSER, p, offsetof(struct user, regs.rip), ADDR(&v)));
    CHECK_EQ(v, ADDR(add_one));
    OK(pt(PTRACE_POKEUSER, p, DR(7), 0));
    finish(p, "exit 3");
}

// A signal for the process goes to a thread that the tracer has not stopped.
static volatile struct {
    pid_t thread;
    long count;
} *spinning;
static void *spin(void *unused) {
    (void)unused;
    spinning->thread = syscall(SYS_gettid);
    for (;;) spinning->count++;
    return 0;
}
TEST(process_signals_pass_stopped_threads_by) {
    spinning = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t p = FORK();
    if (p == 0) {
        pthread_t t;
        OK(pthread_create(&t, 0, spin, 0));
        for (;;) pause();
    }
    while (spinning->count < 1000) t_ms(1);
    pid_t thread = spinning->thread;
    OK(pt(PTRACE_SEIZE, p, 0, 0));
    OK(pt(PTRACE_SEIZE, thread, 0, 0));
    OK(pt(PTRACE_INTERRUPT, p, 0, 0));
    CHECK_STOP(p, SIGTRAP | PTRACE_EVENT_STOP << 8);
    OK(kill(p, SIGINT));
    CHECK_STOP(thread, SIGINT);
    // Nobody is there for this one until the first goes on.
    OK(kill(p, SIGUSR1));
    t_ms(50);
    CHECK_EQ(waitpid(-1, 0, __WALL | WNOHANG), 0);
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGUSR1);
    OK(kill(p, SIGKILL));
    CHECK_EQ(waitpid(thread, 0, __WALL), thread);
    CHECK_STATUS(t_status(p), "signal 9");
}
static pid_t stands_still(void) {
    pid_t p = FORK();
    if (p == 0)
        for (;;) pause();
    return p;
}
TEST(group_stops_of_attached_threads_have_no_siginfo) {
    siginfo_t info;
    pid_t p = stands_still();
    OK(pt(PTRACE_ATTACH, p, 0, 0));
    CHECK_STOP(p, SIGSTOP);
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&info)));
    CHECK_EQ(info.si_signo, SIGSTOP);
    OK(pt(PTRACE_CONT, p, 0, SIGSTOP));
    CHECK_STOP(p, SIGSTOP);
    CHECK_ERR(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&info)), EINVAL);
    OK(kill(p, SIGCONT));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGCONT);
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&info)));
    OK(pt(PTRACE_DETACH, p, 0, 0));
    // One that is stopped already.
    int st;
    OK(kill(p, SIGSTOP));
    CHECK_EQ(waitpid(p, &st, WUNTRACED), p);
    OK(pt(PTRACE_ATTACH, p, 0, 0));
    CHECK_STOP(p, SIGSTOP);
    CHECK_ERR(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&info)), EINVAL);
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGSTOP);
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&info)));
    OK(kill(p, SIGKILL));
    CHECK_STATUS(t_status(p), "signal 9");
}
TEST(who_listens_is_not_stopped) {
    siginfo_t info;
    pid_t p = stands_still();
    OK(pt(PTRACE_SEIZE, p, 0, 0));
    OK(kill(p, SIGSTOP));
    CHECK_STOP(p, SIGSTOP);
    OK(pt(PTRACE_CONT, p, 0, SIGSTOP));
    CHECK_STOP(p, SIGSTOP | PTRACE_EVENT_STOP << 8);
    OK(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&info)));
    OK(pt(PTRACE_LISTEN, p, 0, 0));
    unsigned long message;
    CHECK_ERR(pt(PTRACE_CONT, p, 0, 0), ESRCH);
    CHECK_ERR(pt(PTRACE_LISTEN, p, 0, 0), ESRCH);
    CHECK_ERR(pt(PTRACE_GETSIGINFO, p, 0, ADDR(&info)), ESRCH);
    CHECK_ERR(pt(PTRACE_GETEVENTMSG, p, 0, ADDR(&message)), ESRCH);
    CHECK_ERR(pt(PTRACE_DETACH, p, 0, 0), ESRCH);
    OK(pt(PTRACE_INTERRUPT, p, 0, 0));
    CHECK_STOP(p, SIGSTOP | PTRACE_EVENT_STOP << 8);
    OK(kill(p, SIGCONT));
    OK(pt(PTRACE_CONT, p, 0, 0));
    CHECK_STOP(p, SIGTRAP | PTRACE_EVENT_STOP << 8);
    OK(kill(p, SIGKILL));
    CHECK_STATUS(t_status(p), "signal 9");
}
