#include "guest.h"
int main(void)
{
  // the kernel reads xmm3's place in the extended state and replaces it
  double x = 2.25, y = 0;
  asm volatile("movsd %1,%%xmm3\n mov %2,%%eax\n xor %%edi,%%edi\n syscall\n movsd %%xmm3,%0" : "=m"(y) : "m"(x), "i"(T_XSTATE) : "rax", "rdi", "rcx", "r11", "xmm3", "memory");
  check(y == 4.5);
  asm volatile("movsd %1,%%xmm3\n mov %2,%%eax\n mov $1,%%edi\n syscall\n movsd %%xmm3,%0" : "=m"(y) : "m"(x), "i"(T_XSTATE) : "rax", "rdi", "rcx", "r11", "xmm3", "memory");
  check(y == 0);
  say("ok\n");
  return 0;
}
