#include "guest.h"
#define A ((char *)0x200000000)
static volatile long fault_signo, fault_addr;
__attribute__((used)) static void handler_c(long signo, long addr, u64 rip) { fault_signo = signo; fault_addr = addr; }
void handler(void);
// The test kernel resumes here with rdi, rsi, rdx set and r15 = where to go on.
asm(".text\nhandler: call handler_c\n mov %r14,%rsp\n jmp *%r15\n");
static int touch(char *p, int write)
{
  fault_signo = 0;
  // r15 is the continuation
  if (write) asm volatile("lea 1f(%%rip),%%r15\n movb $1,(%0)\n1:" : : "r"(p) : "r14", "r15", "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
  else asm volatile("lea 1f(%%rip),%%r15\n movb (%0),%%al\n1:" : : "r"(p) : "r14", "r15", "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
  return fault_signo;
}
int main(void)
{
  sc1(T_HANDLER, handler);
  check(touch(A, 0) == 11 && fault_addr == (long)A);
  check(sc6(SYS_mmap, A, 0x4000, 3, 0x32, -1, 0) == (long)A);
  check(touch(A, 1) == 0 && A[0] == 1);
  check(sc3(SYS_mprotect, A, 0x1000, 1) == 0);
  check(touch(A, 0) == 0 && touch(A, 1) == 11);
  check(sc3(SYS_mprotect, A, 0x1000, 3) == 0);
  A[0x1000] = 5;
  check(sc6(SYS_mremap, A + 0x1000, 0x1000, 0x2000, 3, A + 0x10000, 0) == (long)(A + 0x10000));
  check(A[0x10000] == 5 && touch(A + 0x1000, 0) == 11);
  check(sc3(SYS_madvise, A, 0x1000, 4) == 0 && A[0] == 0);
  check(sc3(SYS_madvise, A, 0x1000, 100) == -22);
  check(sc2(SYS_munmap, A, 0x20000) == 0 && touch(A, 0) == 11);
  // the stub's area is out of reach of the kernel's actions
  check(sc6(SYS_mmap, 0x7ffe00000000, 0x1000, 3, 0x32, -1, 0) == -12);
  check(sc2(SYS_munmap, 0x7ffe00000000, 0x1000) == -12);
  // a file, private and shared, two mappings of one descriptor
  check(sc2(T_MAPFILE, A, 2) == 0 && A[0] == 'f' && A[0x1fff] == 'z');
  A[0] = 'X';
  check(sc2(T_MAPFILE, A + 0x8000, 1) == 0 && A[0x8000] == 'f');
  A[0x8001] = 'Y';
  check(sc2(T_MAPFILE, A + 0x10000, 1) == 0 && A[0x10001] == 'Y' && A[0] == 'X');
  // big copies by the kernel: through the slot and through process_vm_writev
  check(sc6(SYS_mmap, A, 0x200000, 3, 0x32, -1, 0) == (long)A);
  for (u64 n = 1; n < 200000; n = n * 3 + 1) {
    check(sc3(T_FILL, A + 3, n, 0x5a) == 0);
    check(A[3] == 0x5a && A[2 + n] == 0x5a && A[3 + n] == 0 && A[2] == 0);
    check(sc2(T_SUM, A, n + 3) == (long)(n * 0x5a));
    check(sc3(T_FILL, A + 3, n, 0) == 0);
  }
  check(sc3(T_FILL, A + 0x1ff000, 0x2000, 1) == -14);
  check(sc2(T_SUM, A + 0x1ff000, 0x2000) == -14);
  check(sc3(SYS_write, 1, 0x10, 10) == -14);
  // exceptions
  fault_signo = 0;
  asm volatile("lea 1f(%%rip),%%r15\n ud2\n1:" : : : "r14", "r15", "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
  check(fault_signo == 4);
  asm volatile("lea 1f(%%rip),%%r15\n int3\n1:" : : : "r14", "r15", "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
  check(fault_signo == 5);
  asm volatile("lea 1f(%%rip),%%r15\n xor %%ecx,%%ecx\n div %%ecx\n1:" : : : "r14", "r15", "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
  check(fault_signo == 8);
  asm volatile("lea 1f(%%rip),%%r15\n mov $20,%%eax\n int $0x80\n1:" : : : "r14", "r15", "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
  check(fault_signo == 11);
  // numbers out of range, the x32 range included
  check(sc0(0x40000027) == -38 && sc0(100000) == -38 && sc0(-1) == -38);
  // vsyscall page
  fault_signo = 0;
  asm volatile("lea 1f(%%rip),%%r15\n1:" : : : "r15");
  long t = ((long (*)(void *))0xffffffffff600400)(0);
  check(t == 777 || fault_signo == 11);
  say("ok\n");
  return 0;
}
