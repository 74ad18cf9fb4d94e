// Signal frames: registers and extended state across handlers, alternate stacks, faults and what siginfo says of them.
#include "t.h"
#include <cpuid.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/auxv.h>
#include <ucontext.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static volatile int hits;
static siginfo_t info;
static sigjmp_buf jb;
static ucontext_t seen;
static void act(int s, void (*h)(int, siginfo_t *, void *), int flags) {
    struct sigaction sa = {.sa_sigaction = h, .sa_flags = SA_SIGINFO | flags};
    SYS(sigaction(s, &sa, 0));
}
static void jump(int s, siginfo_t *i, void *c) {
    (void)s;
    info = *i;
    seen = *(ucontext_t *)c;
    hits++;
    siglongjmp(jb, 1);
}
static void count(int s, siginfo_t *i, void *c) {
    (void)s, (void)c;
    info = *i;
    hits++;
}
#define FAULTS(stmt)                                                                                                   \
    ({                                                                                                                 \
        hits = 0;                                                                                                      \
        if (!sigsetjmp(jb, 1)) {                                                                                       \
            stmt;                                                                                                      \
        }                                                                                                              \
        hits;                                                                                                          \
    })

TEST(segv_unmapped_read_and_write) {
    act(SIGSEGV, jump, 0);
    volatile char *p = SYS(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    SYS(munmap((void *)p, 4096));
    CHECK_EQ(FAULTS((void)p[5]), 1);
    CHECK_EQ(info.si_code, SEGV_MAPERR);
    CHECK(info.si_addr == p + 5);
    CHECK_EQ(info.si_signo, SIGSEGV);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_TRAPNO], 14);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_ERR], 4);
    CHECK(seen.uc_mcontext.gregs[REG_CR2] == (long)(p + 5));
    CHECK_EQ(FAULTS(p[7] = 1), 1);
    CHECK_EQ(info.si_code, SEGV_MAPERR);
    CHECK(info.si_addr == p + 7);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_ERR], 6);
}
TEST(segv_write_to_read_only) {
    act(SIGSEGV, jump, 0);
    volatile char *p = SYS(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK_EQ(FAULTS(p[9] = 1), 1);
    CHECK_EQ(info.si_code, SEGV_ACCERR);
    CHECK(info.si_addr == p + 9);
}
TEST(segv_prot_none) {
    act(SIGSEGV, jump, 0);
    volatile char *p = SYS(mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK_EQ(FAULTS((void)p[0]), 1);
    CHECK_EQ(info.si_code, SEGV_ACCERR);
}
TEST(segv_exec_of_data) {
    act(SIGSEGV, jump, 0);
    char *p = SYS(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    *p = (char)0xc3;
    CHECK_EQ(FAULTS(((void (*)(void))p)()), 1);
    CHECK_EQ(info.si_code, SEGV_ACCERR);
    CHECK(info.si_addr == p);
    CHECK(seen.uc_mcontext.gregs[REG_RIP] == (long)p);
}
TEST(segv_null_and_kernel_addresses) {
    act(SIGSEGV, jump, 0);
    CHECK_EQ(FAULTS((void)*(volatile char *)0), 1);
    CHECK_EQ(info.si_code, SEGV_MAPERR);
    CHECK(info.si_addr == 0);
    CHECK_EQ(FAULTS((void)*(volatile char *)0xffffffff80000000), 1);
    CHECK_EQ(FAULTS((void)*(volatile char *)0x8000000000000000), 1); // not canonical
    CHECK_EQ(info.si_code, SI_KERNEL);
    CHECK(info.si_addr == 0);
}
TEST(segv_jump_to_nowhere) {
    act(SIGSEGV, jump, 0);
    CHECK_EQ(FAULTS(((void (*)(void))0x10)()), 1);
    CHECK(info.si_addr == (void *)0x10);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_RIP], 0x10);
}
TEST(segv_default_kills) {
    CHECK_STATUS(CHILD(*(volatile int *)0 = 1), "signal 11");
}
TEST(segv_while_blocked_kills) {
    act(SIGSEGV, jump, 0);
    CHECK_STATUS(CHILD(sigset_t s; sigemptyset(&s); sigaddset(&s, SIGSEGV); sigprocmask(SIG_BLOCK, &s, 0); *(volatile int *)0 = 1), "signal 11");
    signal(SIGSEGV, SIG_IGN);
    CHECK_STATUS(CHILD(*(volatile int *)0 = 1), "signal 11");
}
TEST(segv_in_handler_kills) {
    void bad(int s, siginfo_t *i, void *c) { *(volatile int *)4 = 1; }
    act(SIGSEGV, bad, 0);
    CHECK_STATUS(CHILD(*(volatile int *)0 = 1), "signal 11");
}
static volatile char *fix_page;
static void fix(int s, siginfo_t *i, void *c) {
    hits++;
    CHECK(i->si_addr >= (void *)fix_page && i->si_addr < (void *)(fix_page + 65536));
    SYS(mprotect((void *)((uintptr_t)i->si_addr & ~4095UL), 4096, PROT_READ | PROT_WRITE));
}
TEST(segv_fixed_up_and_retried) {
    act(SIGSEGV, fix, 0);
    fix_page = SYS(mmap(0, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 16; i++) fix_page[i * 4096 + i] = i + 1;
    CHECK_EQ(hits, 16);
    for (int i = 0; i < 16; i++) CHECK_EQ(fix_page[i * 4096 + i], i + 1);
}
TEST(bus_beyond_end_of_file) {
    act(SIGBUS, jump, 0);
    int fd = t_file("f", "hello");
    volatile char *p = SYS(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CHECK_EQ(p[0], 'h');
    CHECK_EQ(p[100], 0);
    CHECK_EQ(FAULTS((void)p[4096]), 1);
    CHECK_EQ(info.si_signo, SIGBUS);
    CHECK_EQ(info.si_code, BUS_ADRERR);
    CHECK(info.si_addr == p + 4096);
    SYS(ftruncate(fd, 5000));
    CHECK_EQ(FAULTS((void)p[4096]), 0);
    SYS(ftruncate(fd, 0));
    CHECK_EQ(FAULTS((void)p[0]), 1);
}
TEST(fpe_divide_by_zero) {
    act(SIGFPE, jump, 0);
    volatile int z = 0, r = 0;
    CHECK_EQ(FAULTS(r = 100 / z), 1);
    CHECK_EQ(info.si_code, FPE_INTDIV);
    CHECK((long)info.si_addr == seen.uc_mcontext.gregs[REG_RIP]);
    volatile int m = INT_MIN, n = -1;
    CHECK_EQ(FAULTS(r = m / n), 1);
    (void)r;
}
TEST(ill_undefined_instruction) {
    act(SIGILL, jump, 0);
    CHECK_EQ(FAULTS(__asm__ volatile("ud2")), 1);
    CHECK_EQ(info.si_code, ILL_ILLOPN);
    CHECK((long)info.si_addr == seen.uc_mcontext.gregs[REG_RIP]);
    CHECK_STATUS(CHILD(signal(SIGILL, SIG_DFL); __asm__ volatile("ud2")), "signal 4");
}
TEST(trap_breakpoint) {
    act(SIGTRAP, count, 0);
    __asm__ volatile("int3");
    CHECK_EQ(hits, 1);
    CHECK_EQ(info.si_code, SI_KERNEL);
    CHECK_STATUS(CHILD(signal(SIGTRAP, SIG_DFL); __asm__ volatile("int3")), "signal 5");
}
static volatile int steps;
static void on_step(int s, siginfo_t *i, void *c) {
    steps++;
    CHECK_EQ(i->si_code, TRAP_TRACE);
    if (steps == 5) ((ucontext_t *)c)->uc_mcontext.gregs[REG_EFL] &= ~0x100L;
}
TEST(trap_single_step) {
    act(SIGTRAP, on_step, 0);
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq; nop; nop; nop; nop; nop; nop; nop; nop" ::: "cc", "memory");
    CHECK_EQ(steps, 5);
}
TEST(privileged_instruction) {
    act(SIGSEGV, jump, 0);
    CHECK_EQ(FAULTS(__asm__ volatile("hlt")), 1);
    CHECK_EQ(info.si_code, SI_KERNEL);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_TRAPNO], 13);
    CHECK_EQ(FAULTS(__asm__ volatile("cli")), 1);
}
static void set_regs(int s, siginfo_t *i, void *c) {
    ucontext_t *u = c;
    u->uc_mcontext.gregs[REG_RBX] = 0x1122334455667788;
    u->uc_mcontext.gregs[REG_R15] = -1;
    hits++;
}
TEST(handler_can_change_registers) {
    act(SIGTRAP, set_regs, 0);
    unsigned long b = 1, r = 2;
    __asm__ volatile("mov $7, %%rbx; mov $8, %%r15; int3; mov %%rbx, %0; mov %%r15, %1" : "=m"(b), "=m"(r)::"rbx", "r15", "memory");
    CHECK_EQ(b, 0x1122334455667788);
    CHECK_EQ(r, -1);
}
static void smash(int s, siginfo_t *i, void *c) {
    hits++;
    __asm__ volatile("mov $0, %%eax; mov $0, %%ecx; mov $0, %%edx; mov $0, %%esi; mov $0, %%edi; mov $0, %%r8d; mov $0, %%r9d;"
                     "mov $0, %%r10d; mov $0, %%r11d; pxor %%xmm0, %%xmm0; pxor %%xmm1, %%xmm1; pxor %%xmm15, %%xmm15; fldz; fstp %%st(0)"
                     ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm15");
}
TEST(registers_survive_handler) {
    act(SIGTRAP, smash, 0);
    unsigned long v[14];
    __asm__ volatile(
        "mov $1, %%rax; mov $2, %%rcx; mov $3, %%rdx; mov $4, %%rsi; mov $5, %%rdi; mov $6, %%r8; mov $7, %%r9; mov $8, %%r10;"
        "mov $9, %%r11; mov $10, %%r12; mov $11, %%r13; mov $12, %%r14; stc; int3;"
        "mov %%rax, 0(%0); mov %%rcx, 8(%0); mov %%rdx, 16(%0); mov %%rsi, 24(%0); mov %%rdi, 32(%0); mov %%r8, 40(%0);"
        "mov %%r9, 48(%0); mov %%r10, 56(%0); mov %%r11, 64(%0); mov %%r12, 72(%0); mov %%r13, 80(%0); mov %%r14, 88(%0);"
        "setc 96(%0)"
        :: "b"(v) : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "memory", "cc");
    CHECK_EQ(hits, 1);
    for (int i = 0; i < 12; i++) CHECK_EQ(v[i], i + 1);
    CHECK_EQ(((char *)v)[96], 1);
}
TEST(red_zone_is_left_alone) {
    act(SIGTRAP, count, 0);
    unsigned long a = 0, b = 0;
    __asm__ volatile("movq $0x55, -8(%%rsp); movq $0x66, -128(%%rsp); int3; movq -8(%%rsp), %0; movq -128(%%rsp), %1" : "=&r"(a), "=&r"(b)::"memory");
    CHECK_EQ(a, 0x55);
    CHECK_EQ(b, 0x66);
}
TEST(sse_survives_handler) {
    act(SIGTRAP, smash, 0);
    unsigned long in[4] = {0x1111, 0x2222, 0x3333, 0x4444}, out[4] = {0};
    __asm__ volatile("movdqu (%0), %%xmm0; movdqu 16(%0), %%xmm15; int3; movdqu %%xmm0, (%1); movdqu %%xmm15, 16(%1)" ::"r"(in), "r"(out) : "xmm0", "xmm15", "memory");
    CHECK_MEM(out, in, sizeof in);
}
TEST(sse_survives_syscalls_and_preemption) {
    struct sigaction sa = {.sa_sigaction = smash, .sa_flags = SA_SIGINFO};
    SYS(sigaction(SIGALRM, &sa, 0));
    struct itimerval it = {{0, 1000}, {0, 1000}};
    SYS(setitimer(ITIMER_REAL, &it, 0));
    unsigned long in[2] = {0xdeadbeef, 0xfeedface}, out[2] = {0};
    while (hits < 30) {
        unsigned long nr = SYS_getppid, r;
        __asm__ volatile("movdqu (%3), %%xmm7; mov $200, %%ebx; 1: mov %2, %%eax; syscall; dec %%ebx; jnz 1b; movdqu %%xmm7, (%4)"
                         : "=&a"(r) : "0"(nr), "i"(SYS_getppid), "r"(in), "r"(out) : "rbx", "rcx", "r11", "xmm7", "memory");
        if (memcmp(in, out, sizeof in)) {
            CHECK(!"xmm7 changed");
            break;
        }
    }
}
static bool has_avx(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_AVX) && (c & bit_OSXSAVE);
}
__attribute__((target("avx"))) static void smash_avx(int s, siginfo_t *i, void *c) {
    hits++;
    __asm__ volatile("vzeroall" ::: "memory");
}
__attribute__((target("avx"))) static void avx_round(void) {
    unsigned long in[4] = {1, 2, 3, 4}, out[4] = {0};
    __asm__ volatile("vmovdqu (%0), %%ymm3; int3; vmovdqu %%ymm3, (%1); vzeroupper" ::"r"(in), "r"(out) : "xmm3", "memory");
    CHECK_MEM(out, in, sizeof in);
}
TEST(avx_survives_handler) {
    if (!has_avx()) SKIP("no AVX");
    act(SIGTRAP, smash_avx, 0);
    avx_round();
    CHECK_EQ(hits, 1);
}
static bool has_avx512(void) {
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX512F);
}
__attribute__((target("avx512f"))) static void smash_512(int s, siginfo_t *i, void *c) {
    hits++;
    __asm__ volatile("vpxorq %%zmm20, %%zmm20, %%zmm20; kxorw %%k1, %%k1, %%k1" ::: "memory");
}
__attribute__((target("avx512f"))) static void round_512(void) {
    unsigned long in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0}, k = 0;
    __asm__ volatile("vmovdqu64 (%1), %%zmm20; mov $0x5a5a, %%eax; kmovw %%eax, %%k1; int3; vmovdqu64 %%zmm20, (%2); kmovw %%k1, %%eax; mov %%rax, %0"
                     : "=m"(k) : "r"(in), "r"(out) : "rax", "xmm20", "k1", "memory");
    CHECK_MEM(out, in, sizeof in);
    CHECK_EQ(k & 0xffff, 0x5a5a);
}
TEST(avx512_survives_handler) {
    if (!has_avx512()) SKIP("no AVX-512");
    act(SIGTRAP, smash_512, 0);
    round_512();
    CHECK_EQ(hits, 1);
}
TEST(x87_and_mxcsr_survive_handler) {
    void h(int s, siginfo_t *i, void *c) {
        unsigned m = 0x1f80 | 0x6000;
        unsigned short cw = 0x0f7f;
        __asm__ volatile("ldmxcsr %0; fldcw %1; fldpi" ::"m"(m), "m"(cw));
        hits++;
    }
    act(SIGTRAP, h, 0);
    unsigned m = 0x1f80 | 0x2000, got = 0;
    unsigned short cw = 0x0b7f, gotcw = 0;
    double d = 0;
    __asm__ volatile("ldmxcsr %3; fldcw %4; fld1; int3; stmxcsr %0; fnstcw %1; fstpl %2" : "=m"(got), "=m"(gotcw), "=m"(d) : "m"(m), "m"(cw));
    CHECK_EQ(got, m);
    CHECK_EQ(gotcw, cw);
    CHECK(d == 1.0);
    unsigned std = 0x1f80;
    __asm__ volatile("ldmxcsr %0; fninit" ::"m"(std));
}
TEST(handler_starts_with_clean_fpu) {
    static unsigned short cw;
    static unsigned mx;
    void h(int s, siginfo_t *i, void *c) { __asm__ volatile("fnstcw %0; stmxcsr %1" : "=m"(cw), "=m"(mx)); }
    act(SIGTRAP, h, 0);
    unsigned short mine = 0x0b7f;
    unsigned m = 0x1f80 | 0x2000, std = 0x1f80;
    __asm__ volatile("fldcw %0; ldmxcsr %1; int3; fninit; ldmxcsr %2" ::"m"(mine), "m"(m), "m"(std));
    CHECK_EQ(cw, 0x37f);
    CHECK_EQ(mx, 0x1f80);
}
TEST(handler_entry_state) {
    // direction flag clear, stack 16-aligned less 8, arguments in rdi rsi rdx
    static unsigned long fl, sp;
    void h(int s, siginfo_t *i, void *c) {
        __asm__ volatile("pushfq; pop %0" : "=r"(fl));
        sp = (unsigned long)__builtin_frame_address(0);
        CHECK_EQ(s, SIGTRAP);
        CHECK_EQ(i->si_signo, SIGTRAP);
    }
    act(SIGTRAP, h, 0);
    __asm__ volatile("std; int3; cld" ::: "memory");
    CHECK_EQ(fl & 0x400, 0);
    CHECK_EQ(sp & 15, 0);
}
TEST(ucontext_fields) {
    act(SIGTRAP, jump, 0);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGHUP);
    sigprocmask(SIG_BLOCK, &s, 0);
    CHECK_EQ(FAULTS(__asm__ volatile("int3")), 1);
    CHECK(sigismember(&seen.uc_sigmask, SIGHUP));
    CHECK(!sigismember(&seen.uc_sigmask, SIGTRAP));
    CHECK(seen.uc_link == 0);
    CHECK((seen.uc_flags & 7) != 0);
    CHECK((unsigned long)seen.uc_mcontext.gregs[REG_RSP] > 0x1000);
    CHECK_EQ((seen.uc_mcontext.gregs[REG_CSGSFS] & 0xffff), 0x33);
}
static void mask_edit(int s, siginfo_t *i, void *c) { sigaddset(&((ucontext_t *)c)->uc_sigmask, SIGUSR2); }
TEST(sigreturn_restores_the_frames_mask) {
    act(SIGUSR1, mask_edit, 0);
    raise(SIGUSR1);
    sigset_t m;
    sigprocmask(SIG_BLOCK, 0, &m);
    CHECK(sigismember(&m, SIGUSR2));
    CHECK(!sigismember(&m, SIGUSR1));
}
static char alt[65536];
static volatile int on_alt;
static void where(int s, siginfo_t *i, void *c) {
    char x;
    hits++;
    on_alt = &x >= alt && &x < alt + sizeof alt;
    stack_t st;
    sigaltstack(0, &st);
    CHECK_EQ(st.ss_flags & SS_ONSTACK, on_alt ? SS_ONSTACK : 0);
    CHECK_EQ(((ucontext_t *)c)->uc_stack.ss_size, st.ss_flags & SS_DISABLE ? 0 : sizeof alt);
}
TEST(altstack_used_only_when_asked) {
    stack_t st = {.ss_sp = alt, .ss_size = sizeof alt}, old;
    OK(sigaltstack(&st, &old));
    CHECK(old.ss_flags == SS_DISABLE);
    OK(sigaltstack(0, &old));
    CHECK(old.ss_sp == alt && old.ss_size == sizeof alt && old.ss_flags == 0);
    act(SIGUSR1, where, 0);
    raise(SIGUSR1);
    CHECK_EQ(on_alt, 0);
    act(SIGUSR1, where, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK_EQ(on_alt, 1);
    CHECK_EQ(hits, 2);
    st.ss_flags = SS_DISABLE;
    OK(sigaltstack(&st, 0));
}
TEST(altstack_errors) {
    stack_t st = {.ss_sp = alt, .ss_size = 1000};
    CHECK_ERR(sigaltstack(&st, 0), ENOMEM);
    st.ss_size = sizeof alt;
    st.ss_flags = 0x100;
    CHECK_ERR(sigaltstack(&st, 0), EINVAL);
    CHECK_ERR(sigaltstack(BAD_PTR, 0), EFAULT);
    CHECK_ERR(sigaltstack(0, BAD_PTR), EFAULT);
    st.ss_flags = SS_DISABLE;
    st.ss_size = 0;
    OK(sigaltstack(&st, 0));
}
static void change_while_on(int s, siginfo_t *i, void *c) {
    stack_t st = {.ss_sp = alt, .ss_size = sizeof alt};
    CHECK_ERR(sigaltstack(&st, 0), EPERM);
    hits++;
}
TEST(altstack_cannot_change_while_on_it) {
    stack_t st = {.ss_sp = alt, .ss_size = sizeof alt};
    OK(sigaltstack(&st, 0));
    act(SIGUSR1, change_while_on, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK_EQ(hits, 1);
}
static void autodisarm(int s, siginfo_t *i, void *c) {
    stack_t st;
    char x;
    hits++;
    CHECK(&x >= alt && &x < alt + sizeof alt);
    sigaltstack(0, &st);
    CHECK_EQ(st.ss_flags, SS_DISABLE);
    st = (stack_t){.ss_sp = malloc(65536), .ss_size = 65536};
    OK(sigaltstack(&st, 0)); // and may be changed
}
TEST(altstack_autodisarm) {
    stack_t st = {.ss_sp = alt, .ss_size = sizeof alt, .ss_flags = SS_AUTODISARM}, old;
    OK(sigaltstack(&st, 0));
    act(SIGUSR1, autodisarm, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK_EQ(hits, 1);
    OK(sigaltstack(0, &old));
    CHECK(old.ss_sp == alt);
    CHECK_EQ(old.ss_flags & SS_AUTODISARM, SS_AUTODISARM);
}
static int deep(int n) {
    volatile char b[4096];
    b[0] = n;
    return n > 1000000 ? b[0] : deep(n + 1) + b[0];
}
TEST(altstack_catches_stack_overflow) {
    stack_t st = {.ss_sp = alt, .ss_size = sizeof alt};
    OK(sigaltstack(&st, 0));
    act(SIGSEGV, jump, SA_ONSTACK);
    CHECK_EQ(FAULTS(deep(0)), 1);
    CHECK_EQ(FAULTS(deep(0)), 1); // and again: leaving by longjmp must not confuse the kernel
}
TEST(stack_overflow_without_altstack_kills) {
    act(SIGSEGV, jump, 0);
    CHECK_STATUS(CHILD(deep(0)), "signal 11");
}
TEST(frame_that_does_not_fit_kills) {
    // the altstack exists for the kernel but is not mapped
    char *p = SYS(mmap(0, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    stack_t st = {.ss_sp = p, .ss_size = 65536};
    act(SIGUSR1, count, SA_ONSTACK);
    CHECK_STATUS(CHILD(SYS(sigaltstack(&st, 0)); raise(SIGUSR1)), "signal 11");
}
TEST(altstack_is_per_thread) {
    stack_t st = {.ss_sp = alt, .ss_size = sizeof alt};
    OK(sigaltstack(&st, 0));
    void *t(void *a) {
        stack_t s;
        sigaltstack(0, &s);
        CHECK_EQ(s.ss_flags, SS_DISABLE);
        return 0;
    }
    pthread_t p;
    pthread_create(&p, 0, t, 0);
    pthread_join(p, 0);
    CHECK_CHILD(stack_t s; sigaltstack(0, &s); CHECK(s.ss_sp == alt));
}
static volatile int depth; // volatile: raise() is declared not to call back
static void nested(int s, siginfo_t *i, void *c) {
    hits++;
    if (++depth < 20) raise(s);
    depth--;
}
TEST(nested_handlers) {
    act(SIGUSR1, nested, SA_NODEFER);
    raise(SIGUSR1);
    CHECK_EQ(hits, 20);
    CHECK_EQ(depth, 0);
}
static void send_other(int s, siginfo_t *i, void *c) {
    hits = hits * 10 + (s == SIGUSR1 ? 1 : 2);
    if (s == SIGUSR1) raise(SIGUSR2);
    hits = hits * 10 + (s == SIGUSR1 ? 3 : 4);
}
TEST(handler_interrupted_by_another) {
    act(SIGUSR1, send_other, 0);
    act(SIGUSR2, send_other, 0);
    raise(SIGUSR1);
    CHECK_EQ(hits, 1243);
}
TEST(bad_sigreturn_kills) {
    CHECK_STATUS(CHILD(__asm__ volatile("mov $0x100, %%rsp; mov $15, %%eax; syscall" ::: "memory")), "signal 11");
}
TEST(sigreturn_with_wild_state_is_harmless) {
    // a frame whose saved state is rubbish: the process may die of it, nothing else
    void h(int s, siginfo_t *i, void *c) {
        ucontext_t *u = c;
        if (u->uc_mcontext.fpregs) memset(u->uc_mcontext.fpregs, 0xff, 512 + 64);
        u->uc_mcontext.gregs[REG_CSGSFS] = 0xffff;
        u->uc_mcontext.gregs[REG_EFL] = -1;
    }
    act(SIGUSR1, h, 0);
    int st = CHILD(raise(SIGUSR1); _exit(0));
    CHECK(WIFSIGNALED(st) || WEXITSTATUS(st) == 0);
}
TEST(syscall_number_minus_one) {
    CHECK_ERR(syscall(-1), ENOSYS);
    CHECK_ERR(syscall(100000), ENOSYS);
    CHECK_ERR(syscall(0x40000000 | SYS_getpid), ENOSYS); // x32 is not there
}
TEST(syscall_clobbers_only_rcx_r11_rax) {
    unsigned long v[12];
    __asm__ volatile("mov $1, %%rdi; mov $2, %%rsi; mov $3, %%rdx; mov $4, %%r8; mov $5, %%r9; mov $6, %%r10; mov $7, %%r12; mov $8, %%r13;"
                     "mov $9, %%r14; mov $10, %%r15; mov %1, %%eax; syscall;"
                     "mov %%rdi, 0(%0); mov %%rsi, 8(%0); mov %%rdx, 16(%0); mov %%r8, 24(%0); mov %%r9, 32(%0); mov %%r10, 40(%0);"
                     "mov %%r12, 48(%0); mov %%r13, 56(%0); mov %%r14, 64(%0); mov %%r15, 72(%0); mov %%rax, 80(%0)"
                     ::"b"(v), "i"(SYS_gettid) : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory");
    for (int i = 0; i < 10; i++) CHECK_EQ(v[i], i + 1);
    CHECK_EQ(v[10], gettid());
}
TEST(syscall_preserves_flags) {
    unsigned long f = 0;
    __asm__ volatile("stc; mov %1, %%eax; syscall; pushfq; pop %0" : "=r"(f) : "i"(SYS_gettid) : "rax", "rcx", "r11", "cc", "memory");
    CHECK_EQ(f & 1, 1);
}
TEST(syscall_from_unaligned_and_red_zone_stack) {
    unsigned long a = 0;
    __asm__ volatile("movq $0x77, -16(%%rsp); mov %1, %%eax; syscall; movq -16(%%rsp), %0" : "=r"(a) : "i"(SYS_gettid) : "rax", "rcx", "r11", "memory");
    CHECK_EQ(a, 0x77);
}
TEST(syscall_with_no_stack) {
    // the stack pointer need not point anywhere
    unsigned long r = 0;
    __asm__ volatile("mov %%rsp, %%r12; xor %%esp, %%esp; mov %1, %%eax; syscall; mov %%r12, %%rsp; mov %%rax, %0" : "=r"(r) : "i"(SYS_gettid) : "rax", "rcx", "r11", "r12", "memory");
    CHECK_EQ(r, gettid());
}
TEST(int80_and_vsyscall_do_no_harm) {
    // 32-bit entry: works natively on kernels with IA32 emulation; whatever happens, only this process may suffer
    int st = CHILD(__asm__ volatile("mov $20, %%eax; int $0x80" ::: "rax", "memory"); _exit(0));
    CHECK(WIFSIGNALED(st) || WIFEXITED(st));
}
TEST(pkey_and_gs_base) {
    unsigned long g = 0;
    static char area[64] = "gs-area";
    OK(syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, area));
    OK(syscall(SYS_arch_prctl, 0x1004 /* ARCH_GET_GS */, &g));
    CHECK(g == (unsigned long)area);
    char c;
    __asm__ volatile("movb %%gs:0, %0" : "=r"(c));
    CHECK_EQ(c, 'g');
    sched_yield();
    raise(0);
    getppid();
    __asm__ volatile("movb %%gs:1, %0" : "=r"(c));
    CHECK_EQ(c, 's');
    act(SIGUSR1, count, 0);
    raise(SIGUSR1);
    __asm__ volatile("movb %%gs:3, %0" : "=r"(c));
    CHECK_EQ(c, 'a');
    CHECK_CHILD(char d; __asm__ volatile("movb %%gs:0, %0" : "=r"(d)); CHECK_EQ(d, 'g'));
}
// The same from a system call that sends the signal, often enough that call and return take every short way there is.
__attribute__((noinline)) static long send_self(int sig, unsigned long *gpr, unsigned long *sse) {
    long r, me = gettid(), us = getpid();
    register long tid __asm__("rsi") = me, s __asm__("rdx") = sig, pid __asm__("rdi") = us;
    register unsigned long *g __asm__("r13") = gpr, *x __asm__("r14") = sse;
    __asm__ volatile("push %%rbx; push %%rbp; sub $128, %%rsp; movq $0x55, (%%rsp); movq $0x66, 120(%%rsp); add $128, %%rsp;"
                     "movdqu (%%r14), %%xmm3; movdqu 16(%%r14), %%xmm15; fld1; fldpi;"
                     "mov $81, %%r8; mov $91, %%r9; mov $101, %%r10; mov $121, %%r12; mov $151, %%r15; mov $21, %%ebx; mov $31, %%ebp; stc;"
                     "mov $234, %%eax; syscall;"
                     "setc 72(%%r13); mov %%rbx, (%%r13); mov %%rbp, 8(%%r13); mov %%r8, 16(%%r13); mov %%r9, 24(%%r13); mov %%r10, 32(%%r13);"
                     "mov %%r12, 40(%%r13); mov %%r15, 48(%%r13); mov %%rdi, 56(%%r13); fstpl 80(%%r13); fstpl 88(%%r13);"
                     "movdqu %%xmm3, 32(%%r14); movdqu %%xmm15, 48(%%r14);"
                     "sub $128, %%rsp; mov (%%rsp), %%r8; add 120(%%rsp), %%r8; mov %%r8, 64(%%r13); add $128, %%rsp; pop %%rbp; pop %%rbx"
                     : "=a"(r), "+r"(pid), "+r"(tid), "+r"(s) : "r"(g), "r"(x) : "rcx", "r8", "r9", "r10", "r11", "r12", "r15", "xmm3", "xmm15", "memory", "cc");
    return r;
}
static volatile unsigned short cw_inside;
static volatile unsigned mx_inside;
static void smash_all(int s, siginfo_t *i, void *c) {
    unsigned short cw;
    unsigned mx;
    __asm__ volatile("fnstcw %0; stmxcsr %1" : "=m"(cw), "=m"(mx));
    cw_inside = cw, mx_inside = mx;
    smash(s, i, c);
    unsigned down = 0x1f80 | 0x2000;
    __asm__ volatile("mov $0, %%r12d; mov $0, %%r13d; mov $0, %%r14d; mov $0, %%r15d; pxor %%xmm3, %%xmm3; fninit; ldmxcsr %0" ::"m"(down) : "r12", "r13", "r14", "r15", "xmm3");
}
TEST(everything_survives_a_sent_signal) {
    act(SIGUSR1, smash_all, 0);
    unsigned mine = 0x1f80 | 0x6000, std = 0x1f80, got;
    for (int i = 0; i < 60; i++) {
        unsigned long g[16] = {0}, x[8] = {i, 0x2222, 0x3333, ~0ul - i};
        __asm__ volatile("ldmxcsr %0" ::"m"(mine));
        CHECK_EQ(send_self(SIGUSR1, g, x), 0);
        __asm__ volatile("stmxcsr %0; ldmxcsr %1" : "=m"(got) : "m"(std));
        CHECK_EQ(hits, i + 1);
        CHECK_EQ(got, mine);
        CHECK_EQ(mx_inside, 0x1f80);
        CHECK_EQ(cw_inside, 0x37f);
        unsigned long want[] = {21, 31, 81, 91, 101, 121, 151, getpid(), 0x55 + 0x66, 1};
        CHECK_MEM(g, want, sizeof want);
        CHECK(*(double *)&g[10] > 3.14 && *(double *)&g[10] < 3.15 && *(double *)&g[11] == 1.0);
        CHECK_MEM(x + 4, x, 32);
    }
}
__attribute__((target("avx"))) static void avx_sent(void) {
    unsigned long in[4] = {1, 2, 3, 4}, out[4] = {0};
    long r, pid = getpid(), tid = gettid();
    __asm__ volatile("vmovdqu (%4), %%ymm3; mov $234, %%eax; syscall; vmovdqu %%ymm3, (%5); vzeroupper"
                     : "=a"(r) : "D"(pid), "S"(tid), "d"(SIGUSR1), "r"(in), "r"(out) : "rcx", "r11", "xmm3", "memory");
    CHECK_MEM(out, in, sizeof in);
}
TEST(avx_survives_a_sent_signal) {
    if (!has_avx()) SKIP("no AVX");
    act(SIGUSR1, smash_avx, 0);
    for (int i = 0; i < 30; i++) avx_sent();
    CHECK_EQ(hits, 30);
}
static void change_frame(int s, siginfo_t *i, void *c) {
    hits++;
    ucontext_t *u = c;
    CHECK_EQ(u->uc_flags & 1, 1);
    CHECK_EQ(*(unsigned *)((char *)u->uc_mcontext.fpregs + 464), 0x46505853);
    u->uc_mcontext.gregs[REG_R15] = 4711 + hits;
    u->uc_mcontext.gregs[REG_RAX] = 99;
    u->uc_mcontext.gregs[REG_EFL] &= ~1;
    u->uc_mcontext.fpregs->_xmm[3].element[0] = 17;
    *(unsigned long *)((char *)u->uc_mcontext.fpregs + 512) |= 2;
}
TEST(frame_of_a_sent_signal_can_be_changed) {
    act(SIGUSR1, change_frame, 0);
    for (int i = 0; i < 30; i++) {
        unsigned long g[16] = {0}, x[8] = {5, 6, 7, 8};
        CHECK_EQ(send_self(SIGUSR1, g, x), 99);
        CHECK_EQ(g[6], 4711 + i + 1);
        CHECK_EQ(g[9], 0);
        CHECK_EQ(x[4] & 0xffffffff, 17);
        CHECK_EQ(x[7], 8);
    }
}
static int wild;
static void make_wild(int s, siginfo_t *i, void *c) {
    char *f = (char *)((ucontext_t *)c)->uc_mcontext.fpregs;
    if (++hits < 20) return;
    switch (wild) {
    case 0: memset(f + 24, 0xff, 4); break;            // MXCSR
    case 1: memset(f + 512, 0xff, 8); break;           // components that do not exist
    case 2: memset(f + 520, 0xff, 8); break;           // the compact form
    case 3: memset(f + 528, 0xff, 8); break;           // reserved
    case 4: memset(f + 464, 0, 4); break;              // no extended part
    case 5: ((ucontext_t *)c)->uc_mcontext.fpregs = (void *)0x10000; break;
    case 6: ((ucontext_t *)c)->uc_mcontext.fpregs = 0; break;
    case 7: ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP] = 0x10000; break;
    case 8: ((ucontext_t *)c)->uc_mcontext.gregs[REG_RIP] = 1ul << 62; break;
    case 9: ((ucontext_t *)c)->uc_mcontext.gregs[REG_EFL] |= 0x100; break;
    }
}
TEST(wild_frame_of_a_sent_signal) {
    act(SIGUSR1, make_wild, 0);
    static const char *ends[] = {"signal 11", "signal 11", "signal 11", "signal 11", "exit 0", "signal 11", "exit 0", "signal 11", "signal 11", "signal 5"};
    for (wild = 0; wild < 10; wild++) {
        int st = CHILD(unsigned long g[16]; unsigned long x[8]; for (int i = 0; i < 25; i++) send_self(SIGUSR1, g, x); _exit(0));
        CHECK_STATUS(st, ends[wild]);
    }
}
TEST(sent_signal_without_a_stack_kills) {
    static char st[65536] __attribute__((aligned(4096)));
    stack_t alt_of = {.ss_sp = st, .ss_size = sizeof st};
    act(SIGUSR1, count, SA_ONSTACK);
    CHECK_STATUS(CHILD(unsigned long g[16]; unsigned long x[8]; SYS(sigaltstack(&alt_of, 0)); for (int i = 0; i < 25; i++) {
        if (i == 20) SYS(mprotect(st, sizeof st, PROT_READ));
        send_self(SIGUSR1, g, x);
    }), "signal 11");
}
