// What follows `syscall` in the libraries of distributions (tools/call-tails), one of each kind: executed as machine code,
// with registers that point into memory and a stack on which every word is the way out. All registers and the memory must
// be the same after the first call and after the hundredth, whatever a sandbox has made of the call site meanwhile, and
// also when the instructions are entered in the middle.
#include "t.h"
#include <sys/mman.h>

#define PAGE 4096
struct kind {
    unsigned char length[4]; // of the instructions
    unsigned char bytes[20];
    const char *text;
};
static const struct kind kinds[] = {
    {{6}, {0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, "cmp $-4096,%rax"},
    {{3}, {0x83, 0xf8, 0xda}, "cmp $-38,%eax"},
    {{1}, {0xc3, 0x90, 0x90}, "ret"},
    {{2, 2}, {0x89, 0xc2, 0xf7, 0xda}, "mov %eax,%edx; neg %edx"},
    {{3}, {0x48, 0x89, 0xc2}, "mov %rax,%rdx"},
    {{3}, {0x48, 0x85, 0xc0}, "test %rax,%rax"},
    {{7}, {0x0f, 0x1f, 0x80, 0, 0, 0, 0}, "nopl 0(%rax)"},
    {{5}, {0xbf, 1, 0, 0, 0}, "mov $1,%edi"},
    {{2, 5}, {0x89, 0xc2, 0x3d, 0, 0xf0, 0xff, 0xff}, "mov %eax,%edx; cmp $-4096,%eax"},
    {{3}, {0x41, 0x89, 0xc4}, "mov %eax,%r12d"},
    {{6}, {0x89, 0x83, 0x34, 6, 0, 0}, "mov %eax,0x634(%rbx)"},
    {{2, 1}, {0xf7, 0xd8, 0xc3}, "neg %eax; ret"},
    {{5}, {0x48, 0x8b, 0x44, 0x24, 0x48}, "mov 0x48(%rsp),%rax"},
    {{3}, {0x48, 0x89, 0xc5}, "mov %rax,%rbp"},
    {{1, 5}, {0x57, 0x3d, 1, 0xf0, 0xff, 0xff}, "push %rdi; cmp $-4095,%eax"},
    {{2, 6}, {0x89, 0xc2, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff}, "mov %eax,%edx; cmp $-4096,%rax"},
    {{7}, {0x48, 0x8b, 0x85, 0xb0, 0xf7, 0xff, 0xff}, "mov -0x850(%rbp),%rax"},
    {{5}, {0xb8, 0xff, 0xff, 0xff, 0xff}, "mov $-1,%eax"},
    {{2, 5}, {0x31, 0xd2, 0x48, 0x8d, 0x74, 0x24, 0x0c}, "xor %edx,%edx; lea 12(%rsp),%rsi"},
    {{1, 1}, {0x5b, 0xc3, 0x0f, 0x1f, 0x40, 0}, "pop %rbx; ret"},
    {{1, 6}, {0x5a, 0x48, 0x3d, 1, 0xf0, 0xff, 0xff}, "pop %rdx; cmp $-4095,%rax"},
    {{5}, {0x48, 0x8d, 0x7c, 0x24, 0x10}, "lea 16(%rsp),%rdi"},
    {{5}, {0x49, 0x8b, 0x44, 0x24, 0x28}, "mov 0x28(%r12),%rax"},
    {{7}, {0x83, 0x8b, 0x0c, 3, 0, 0, 0x20}, "orl $32,0x30c(%rbx)"},
    {{3}, {0x4c, 0x89, 0xf7}, "mov %r14,%rdi"},
    {{4}, {0x49, 0x8b, 0x68, 8}, "mov 8(%r8),%rbp"},
    {{2, 2}, {0x89, 0xc2, 0x85, 0xc0}, "mov %eax,%edx; test %eax,%eax"},
    {{8}, {0x48, 0x83, 0xbd, 0xd0, 0xf7, 0xff, 0xff, 0}, "cmpq $0,-0x830(%rbp)"},
    {{4}, {0x48, 0x8b, 4, 0x24}, "mov (%rsp),%rax"},
    {{2, 5}, {0x89, 0xdf, 0x48, 0x89, 0x44, 0x24, 8}, "mov %ebx,%edi; mov %rax,8(%rsp)"},
    {{2, 7}, {0x31, 0xc0, 0x4c, 0x8d, 0xab, 0xfc, 8, 0, 0}, "xor %eax,%eax; lea 0x8fc(%rbx),%r13"},
    {{3}, {0x44, 0x89, 0xc7}, "mov %r8d,%edi"},
    {{2, 1}, {0x89, 0xd0, 0xc3}, "mov %edx,%eax; ret"},
    {{4}, {0x66, 0x0f, 0xef, 0xc0}, "pxor %xmm0,%xmm0"},
    {{4}, {0x8b, 0x7c, 0x24, 0x2c}, "mov 0x2c(%rsp),%edi"},
    {{4}, {0x48, 0x8d, 0x65, 0xd8}, "lea -0x28(%rbp),%rsp"},
    {{7}, {0x48, 0xc7, 0xc1, 0xe0, 0xff, 0xff, 0xff}, "mov $-32,%rcx"},
    {{8}, {0x41, 0x80, 0xb9, 0, 9, 0, 0, 0}, "cmpb $0,0x900(%r9)"},
    {{3}, {0x45, 0x85, 0xe4}, "test %r12d,%r12d"},
    {{2, 5}, {0x89, 0xd8, 0x48, 0x8b, 0x54, 0x24, 8}, "mov %ebx,%eax; mov 8(%rsp),%rdx"},
    {{2, 2}, {0x89, 0xc3, 0x31, 0xd2}, "mov %eax,%ebx; xor %edx,%edx"},
    {{3}, {0x48, 0x89, 0xe3}, "mov %rsp,%rbx"},
    {{8}, {0x48, 0x8b, 0xbc, 0x24, 0xb0, 0, 0, 0}, "mov 0xb0(%rsp),%rdi"},
    {{7}, {0x48, 0x81, 0xc4, 0x28, 1, 0, 0}, "add $0x128,%rsp"},
    {{7}, {0x89, 0x84, 0x24, 0x60, 1, 0, 0}, "mov %eax,0x160(%rsp)"},
    {{2, 7}, {0x31, 0xc0, 0x48, 0x81, 0xc3, 0xfc, 8, 0, 0}, "xor %eax,%eax; add $0x8fc,%rbx"},
    {{3}, {0x48, 0x39, 0xc2}, "cmp %rax,%rdx"},
    {{6}, {0x48, 0x83, 0x7c, 0x24, 0x18, 0}, "cmpq $0,24(%rsp)"},
    {{2, 5}, {0x89, 0xc5, 0x3d, 0, 0xf0, 0xff, 0xff}, "mov %eax,%ebp; cmp $-4096,%eax"},
    {{5}, {0x3d, 0, 0xf0, 0xff, 0xff}, "cmp $-4096,%eax"},
    {{4}, {0x48, 0x83, 0xf8, 0xda}, "cmp $-38,%rax"},
    {{2, 2}, {0x8b, 7, 0x39, 0xd0}, "mov (%rdi),%eax; cmp %edx,%eax"},
    {{3}, {0x8b, 0x45, 0}, "mov 0(%rbp),%eax"},
    {{2, 3}, {0x8b, 7, 0x83, 0xf8, 2}, "mov (%rdi),%eax; cmp $2,%eax"},
    {{5}, {0x48, 0x8b, 0x54, 0x24, 0x28}, "mov 0x28(%rsp),%rdx"},
    {{2, 2}, {0x31, 0xd2, 0x85, 0xc0}, "xor %edx,%edx; test %eax,%eax"},
    {{4}, {0x48, 0x89, 0x43, 0x50}, "mov %rax,0x50(%rbx)"},
    {{7}, {0x48, 0x8b, 0xbb, 0xa8, 0, 0, 0}, "mov 0xa8(%rbx),%rdi"},
    {{2, 2}, {0x31, 0xc9, 0x85, 0xc0}, "xor %ecx,%ecx; test %eax,%eax"},
    {{3}, {0x41, 0x89, 0xc2}, "mov %eax,%r10d"},
    {{2, 3}, {0x89, 0xc2, 0x83, 0xf8, 1}, "mov %eax,%edx; cmp $1,%eax"},
    {{2, 5}, {0x89, 0xc2, 0x48, 0x8b, 0x44, 0x24, 0x18}, "mov %eax,%edx; mov 0x18(%rsp),%rax"},
    {{4}, {0x48, 0x83, 0xc4, 8}, "add $8,%rsp"},
    {{1, 1}, {0xc9, 0xc3, 0x90}, "leave; ret"},
    {{1, 1, 1}, {0x5b, 0x5d, 0xc3}, "pop %rbx; pop %rbp; ret"},
    {{2, 1}, {0x41, 0x5c, 0xc3, 0x90}, "pop %r12; ret"},
};

// What the machine code starts and ends with. Registers: rax rbx rcx rdx rsi rdi rbp rsp r8 ... r15, flags.
enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8, FLAGS = 16, REGS };
struct state {
    long own_stack, entry, regs[REGS];
    long stack[512], data[1024];
} *volatile at_work;
extern void enter_tail(struct state *s);
extern char leave_tail[];
__asm__(".pushsection .text\n.p2align 6\nenter_tail: push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp,(%rdi)\n mov %rdi,%r15\n mov 24(%r15),%rbx\n mov 40(%r15),%rdx\n mov 48(%r15),%rsi\n mov 56(%r15),%rdi\n"
        " mov 64(%r15),%rbp\n mov 72(%r15),%rsp\n mov 80(%r15),%r8\n mov 88(%r15),%r9\n mov 96(%r15),%r10\n mov 112(%r15),%r12\n"
        " mov 120(%r15),%r13\n mov 128(%r15),%r14\n mov 16(%r15),%rax\n mov 8(%r15),%r11\n mov 136(%r15),%r15\n jmp *%r11\n"
        // rcx and r11 are free: a call changes them.
        "leave_tail: mov at_work(%rip),%rcx\n mov %rax,16(%rcx)\n mov %rbx,24(%rcx)\n mov %rdx,40(%rcx)\n mov %rsi,48(%rcx)\n"
        " mov %rdi,56(%rcx)\n mov %rbp,64(%rcx)\n mov %rsp,72(%rcx)\n mov %r8,80(%rcx)\n mov %r9,88(%rcx)\n mov %r10,96(%rcx)\n"
        " mov %r12,112(%rcx)\n mov %r13,120(%rcx)\n mov %r14,128(%rcx)\n mov %r15,136(%rcx)\n mov (%rcx),%rsp\n pushfq\n"
        " pop 144(%rcx)\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n .popsection\n");

// Runs from an address on, with the same registers and memory each time.
static void go(struct state *s, const char *entry) {
    memset(s, 0, sizeof *s);
    s->entry = (long)entry;
    for (int i = 0; i < 512; i++) s->stack[i] = (long)leave_tail;
    for (int i = 0; i < 1024; i++) s->data[i] = 0x1000 + i;
    for (int i = 0; i < FLAGS; i++) s->regs[i] = (long)&s->data[400 + i];
    s->regs[RAX] = SYS_getpid;
    s->regs[RSP] = (long)&s->stack[100];
    s->regs[RBP] = (long)&s->stack[200]; // for `leave`
    at_work = s;
    enter_tail(s);
}
// In a page of a file, as rewritten text must be: the call, what follows it, and a jump out. Where the call is, in `*call`.
static char *code(const struct kind *k, int i, char **call) {
    static char page[PAGE];
    memset(page, 0xcc, sizeof page);
    char *c = page + 64 * (i % 32) + 7;
    static const unsigned char SYSCALL[] = {0x89, 0xff, 0x0f, 0x05};
    long offset = c - page;
    memcpy(c, SYSCALL, 4);
    int n = 0;
    for (int j = 0; j < 4; j++) n += k->length[j];
    memcpy(c + 4, k->bytes, sizeof k->bytes);
    // ff 25 0: jmp *(%rip)
    memcpy(c + 4 + n, (unsigned char[]){0xff, 0x25, 0, 0, 0, 0}, 6);
    char *out = leave_tail;
    memcpy(c + 4 + n + 6, &out, 8);
    // Nothing but filler may follow a return.
    if (k->bytes[n - 1] == 0xc3) memcpy(c + 4, k->bytes, sizeof k->bytes);
    int fd = SYS(open("code", O_RDWR | O_CREAT | O_TRUNC, 0755));
    CHECK_EQ(SYS(write(fd, page, PAGE)), PAGE);
    char *p = SYS(mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0));
    close(fd);
    *call = p + offset;
    return p;
}
static volatile int ticks;
static void on_tick(int sig) { ticks++; }
static void run_all(bool storm) {
    static struct state first, now;
    static char stack[65536];
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    OK(sigaltstack(&alt, 0));
    struct sigaction sa = {.sa_handler = on_tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    OK(sigaction(SIGALRM, &sa, 0));
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        const struct kind *k = kinds + i;
        char *call, *p = code(k, i, &call);
        struct itimerval on = {{0, 200}, {0, 200}}, off = {0};
        go(&now, call);
        first = now;
        if (storm) OK(setitimer(ITIMER_REAL, &on, 0));
        clock_t end = clock() + CLOCKS_PER_SEC / 50;
        for (int n = 0; n < 100 || (storm && clock() < end); n++) {
            go(&now, call);
            first.own_stack = now.own_stack;
            if (memcmp(&first, &now, sizeof now)) {
                int j = 0;
                while (j < REGS && first.regs[j] == now.regs[j]) j++;
                t_fail(__FILE__, __LINE__, "%s: call %d differs, register %d", k->text, n, j);
                break;
            }
        }
        if (storm) OK(setitimer(ITIMER_REAL, &off, 0));
        // Behind each instruction but the last, as a signal's frame leads there.
        for (int j = 0, at = 4; j < 3 && k->length[j + 1]; j++) {
            at += k->length[j];
            static struct state here;
            go(&now, call + at);
            here = now;
            // The same code where nothing is rewritten.
            char *fresh_call, *fresh = code(k, i, &fresh_call);
            go(&now, fresh_call + at);
            here.own_stack = now.own_stack;
            here.entry = now.entry;
            if (memcmp(&here, &now, sizeof now)) t_fail(__FILE__, __LINE__, "%s: entered behind instruction %d", k->text, j);
            OK(munmap(fresh, PAGE));
        }
        OK(munmap(p, PAGE));
    }
    if (storm) CHECK(ticks > 10);
}
TEST(every_kind_of_tail) { run_all(false); }
TEST(every_kind_of_tail_in_a_storm) { run_all(true); }
