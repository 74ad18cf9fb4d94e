#include "guest.h"
// Call sites that a platform may rewrite: every shape keeps its meaning, whoever runs it and however it is entered.
long head(void), after_head(long nr), head_long(void), head_r9(long), tail_cmp(long nr), tail_ret(long nr), tail_mov(long nr), into_tail(long value), flags(u64 *out), tail_flags(u64 *out), kept(u64 *out);
asm(".text\n"
    ".balign 64\nhead: mov $39,%eax\nhead_call: syscall\n ret\n nop\n nop\n"
    "after_head: mov %edi,%eax\n jmp head_call\n"
    ".balign 64\nhead_long: mov $39,%rax\n syscall\n ret\n"
    ".balign 64\nhead_r9: mov %rdi,%rax\n mov 8(%rsp),%r9\n syscall\n ret\n"
    ".balign 64\ntail_cmp: mov %edi,%eax\n syscall\ntail_after: cmp $-4096,%rax\n ja 1f\n ret\n1: mov $-1,%rax\n ret\n"
    "into_tail: mov %rdi,%rax\n jmp tail_after\n"
    ".balign 64\ntail_ret: mov %edi,%eax\n syscall\n ret\n int3\n int3\n int3\n"
    ".balign 64\ntail_mov: push %rbx\n mov %edi,%eax\n syscall\n mov %rax,%rbx\n mov %rbx,%rax\n pop %rbx\n ret\n"
    // carry, zero, overflow and direction survive; so does the red zone
    ".balign 64\nflags: movq $77,-8(%rsp)\n movb $0x7f,%cl\n addb $1,%cl\n stc\n mov $39,%eax\n syscall\n pushfq\n pop %rcx\n mov %rcx,(%rdi)\n ret\n"
    ".balign 64\ntail_flags: movb $0x7f,%cl\n addb $1,%cl\n stc\n movl $39,%eax\n lea 0(%rax),%rax\n syscall\n mov %rdi,%rdi\n nop\n pushfq\n pop %rcx\n mov %rcx,(%rdi)\n ret\n"
    ".balign 64\nkept: push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdi\n"
    " mov $0x1111,%rbx\n mov $0x2222,%rbp\n mov $0x3333,%r12\n mov $0x4444,%r13\n mov $0x5555,%r14\n mov $0x6666,%r15\n"
    " mov $0x7777,%rdi\n mov $0x8888,%rsi\n mov $0x9999,%rdx\n mov $0xaaaa,%r10\n mov $0xbbbb,%r8\n mov $0xcccc,%r9\n"
    " mov $0xdddd,%rax\n movq %rax,%xmm0\n mov $0xeeee,%rax\n movq %rax,%xmm15\n movq $0x1234,-64(%rsp)\n"
    " mov $39,%eax\n syscall\n"
    " mov (%rsp),%r11\n mov -64(%rsp),%rcx\n mov %rcx,0(%r11)\n mov %rbx,8(%r11)\n mov %rbp,16(%r11)\n mov %r12,24(%r11)\n mov %r13,32(%r11)\n"
    " mov %r14,40(%r11)\n mov %r15,48(%r11)\n mov %rdi,56(%r11)\n mov %rsi,64(%r11)\n mov %rdx,72(%r11)\n mov %r10,80(%r11)\n"
    " mov %r8,88(%r11)\n mov %r9,96(%r11)\n movq %xmm0,104(%r11)\n movq %xmm15,112(%r11)\n"
    " pop %rdi\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
// Tails of several instructions. NAME_1 and NAME_2 enter at the second and the third one, as a handler of a signal that arrived
// there returns; they give their argument back.
long pop_ret(long nr), pop_ret_1(long), pops(long nr), pops_1(long), pops_2(long), leave_ret(long nr), leave_ret_1(long), mov_pop(long nr), mov_pop_1(long), push_cmp(long nr), push_cmp_1(long), test_mov(long nr), test_mov_1(long);
asm(".balign 64\npop_ret: push %rbx\n mov %edi,%eax\n syscall\n pop %rbx\n1: ret\n nopl 0(%rax)\npop_ret_1: mov %rdi,%rax\n jmp 1b\n"
    ".balign 64\npops: push %rbp\n push %rbx\n mov %edi,%eax\n syscall\n pop %rbx\n1: pop %rbp\n2: ret\n nopl 0(%rax)\n"
    "pops_1: push %rbp\n mov %rdi,%rax\n jmp 1b\npops_2: mov %rdi,%rax\n jmp 2b\n"
    ".balign 64\nleave_ret: push %rbp\n mov %rsp,%rbp\n mov %edi,%eax\n syscall\n leave\n1: ret\n nopl 0(%rax)\nleave_ret_1: mov %rdi,%rax\n jmp 1b\n"
    ".balign 64\nmov_pop: push %rbp\n mov %edi,%eax\n syscall\n mov %eax,%edx\n1: pop %rbp\n ret\nmov_pop_1: push %rbp\n mov %rdi,%rax\n jmp 1b\n"
    ".balign 64\npush_cmp: mov %edi,%eax\n syscall\n push %rdi\n1: cmp $-4095,%eax\n pop %rdi\n ret\npush_cmp_1: push %rdi\n mov %rdi,%rax\n jmp 1b\n"
    ".balign 64\ntest_mov: mov %edi,%eax\n syscall\n test %eax,%eax\n1: mov %rax,%rdx\n ret\ntest_mov_1: mov %rdi,%rax\n jmp 1b\n");
static void tails(void)
{
  long (*calls[])(long) = { pop_ret, pops, leave_ret, mov_pop, push_cmp, test_mov };
  long (*entries[])(long) = { pop_ret_1, pops_1, pops_2, leave_ret_1, mov_pop_1, push_cmp_1, test_mov_1 };
  for (int i = 0; i < 6; i++) check(calls[i](39) == 4242 && calls[i](201) == 777);
  for (int i = 0; i < 7; i++) check(entries[i](i + 5) == i + 5);
}
// 128 sites on two pages, at every offset in a cache line
long many(long i);
asm(".balign 4096\nmany_sites:\n.rept 64\n mov $39,%eax\n syscall\n ret\n nop\n nop\n mov $201,%eax\n xor %ecx,%ecx\n syscall\n cmp $-4096,%rax\n ret\n nop\n nop\n nop\n.endr\n"
    "many_end:\nmany: imul $29,%rdi,%rdi\n lea many_sites(%rdi),%rdi\n jmp *%rdi\n");
extern char many_sites[], many_end[];
static char stacks[4][8192] __attribute__((aligned(16)));
static u32 ctid[4];
static void shapes(void)
{
  u64 r[15], f;
  check(head() == 4242);
  check(after_head(201) == 777);
  check(after_head(39) == 4242);
  check(head_long() == 4242);
  check(head_r9(39) == 4242 && head_r9(201) == 777);
  check(tail_cmp(39) == 4242 && tail_cmp(201) == 777 && tail_cmp(5555) == -1);
  check(into_tail(5) == 5 && into_tail(-22) == -1);
  check(tail_ret(39) == 4242 && tail_ret(201) == 777);
  check(tail_mov(39) == 4242 && tail_mov(201) == 777);
  tails();
  f = 0; check(flags(&f) == 4242 && (f & 0xcd5) == 0x891);
  f = 0; check(tail_flags(&f) == 4242 && (f & 0xcd5) == 0x891);
  check(kept(r) == 4242);
  check(r[0] == 0x1234);
  for (u64 i = 1; i < 15; i++) check(r[i] == 0x1111 * i);
}
static void body(void *arg)
{
  for (int k = 0; k < 200; k++) {
    for (int i = 0; i < 64; i++) check(many(i) == 4242);
    shapes();
    check(head_r9(102) == 1);
  }
}
int main(void)
{
  check(many_end - many_sites == 64 * 29);
  for (int i = 0; i < 200; i++) shapes();
  u64 rewritten = sc0(T_REWRITTEN);
  if (rewritten) check(rewritten >= 14 && ((unsigned char *)pops)[4] == 0xe9 && ((unsigned char *)pop_ret)[3] == 0xe9 && *(unsigned char *)head == 0xe9 && ((unsigned char *)head)[5] == 0x0f);
  // %gs in use: by way of the kernel, or by the instruction
  static u64 area[2] = { 0x1234, 0x5678 };
  u64 g;
  check(sc2(158, 0x1001, &area[1]) == 0);
  for (int i = 0; i < 20; i++) shapes();
  asm volatile("mov %%gs:0,%0" : "=r"(g));
  check(g == 0x5678);
  asm volatile("wrgsbase %0" : : "r"(area));
  for (int i = 0; i < 20; i++) shapes();
  asm volatile("mov %%gs:0,%0" : "=r"(g));
  check(g == 0x1234);
  check(sc2(158, 0x1001, 0) == 0);
  for (int i = 0; i < 20; i++) shapes();
  // answers that the platform may give by itself
  for (int i = 0; i < 3; i++) {
    check(sc2(T_ANSWER, 1, 1) == 0);
    for (int k = 0; k < 20; k++) check(head_r9(102) == 1 && tail_cmp(102) == 1);
    if (rewritten) {
      check(sc2(T_ANSWER, 1, 4000000000) == 0);
      check(head_r9(102) == 4000000000 && tail_cmp(102) == 4000000000);
      check(sc2(T_ANSWER, 0, 7) == 0);
      check(head_r9(102) == 1 && tail_cmp(102) == 1);
    }
  }
  sc2(T_ANSWER, 1, 1);
  // in a copy of the memory
  long pid = sc0(SYS_fork);
  if (!pid) { for (int i = 0; i < 100; i++) shapes(); body(0); done(9); }
  check(pid > 0 && sc1(SYS_wait4, pid) == 9);
  // while others execute the same sites, undisturbed and disturbed
  for (int storm = 0; storm < 2; storm++) {
    sc1(T_INTERRUPTS, storm);
    for (int i = 0; i < 4; i++) { ctid[i] = 1; check(start_thread(stacks[i] + 8192, body, 0, &ctid[i]) > 0); }
    for (int i = 0; i < 4; i++) join(&ctid[i]);
  }
  sc1(T_INTERRUPTS, 0);
  // a new program text in the same place: the kernel is told to leave it alone
  check(sc3(SYS_mprotect, (u64)head & -4096, 4096, 7) == 0);
  sc1(T_TEXT, 0);
  unsigned char *h = (void *)head;
  h[0] = 0xb8; *(u32 *)(h + 1) = 201;
  for (int i = 0; i < 50; i++) check(head() == 777);
  say("ok\n");
  return 0;
}
