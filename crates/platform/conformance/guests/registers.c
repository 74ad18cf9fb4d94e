#include "guest.h"
// Every register but rax, rcx and r11 survives a system call, vector registers and flags too.
long probe(u64 *out);
asm(".text\n.globl probe\nprobe:\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rdi\n"
    " mov $0x1111,%rbx\n mov $0x2222,%rbp\n mov $0x3333,%r12\n mov $0x4444,%r13\n mov $0x5555,%r14\n mov $0x6666,%r15\n"
    " mov $0x7777,%rdi\n mov $0x8888,%rsi\n mov $0x9999,%rdx\n mov $0xaaaa,%r10\n mov $0xbbbb,%r8\n mov $0xcccc,%r9\n"
    " mov $0xdddd,%rax\n movq %rax,%xmm0\n mov $0xeeee,%rax\n movq %rax,%xmm15\n"
    " mov $39,%eax\n stc\n syscall\n"
    " setc %cl\n mov (%rsp),%r11\n movzbl %cl,%ecx\n mov %rcx,0(%r11)\n mov %rbx,8(%r11)\n mov %rbp,16(%r11)\n mov %r12,24(%r11)\n mov %r13,32(%r11)\n"
    " mov %r14,40(%r11)\n mov %r15,48(%r11)\n mov %rdi,56(%r11)\n mov %rsi,64(%r11)\n mov %rdx,72(%r11)\n mov %r10,80(%r11)\n"
    " mov %r8,88(%r11)\n mov %r9,96(%r11)\n movq %xmm0,104(%r11)\n movq %xmm15,112(%r11)\n"
    " pop %rdi\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
int main(void)
{
  u64 r[15];
  for (int k = 0; k < 1000; k++) {
    check(probe(r) == 4242);
    check(r[0] == 1);
    for (u64 i = 1; i < 15; i++) check(r[i] == 0x1111 * i);
  }
  // arch_prctl(ARCH_SET_FS), and %gs is ours as well
  static u64 area[2] = { 0x1234, 0x5678 };
  check(sc2(158, 0x1002, &area[0]) == 0);
  check(sc2(158, 0x1001, &area[1]) == 0);
  u64 f, g;
  asm volatile("mov %%fs:0,%0\n mov %%gs:0,%1" : "=r"(f), "=r"(g));
  check(f == 0x1234 && g == 0x5678);
  check(sc0(SYS_getpid) == 4242);
  asm volatile("mov %%fs:0,%0\n mov %%gs:0,%1" : "=r"(f), "=r"(g));
  check(f == 0x1234 && g == 0x5678);
  say("ok\n");
  return 0;
}
