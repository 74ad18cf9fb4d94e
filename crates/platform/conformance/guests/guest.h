// What the test guests share: raw system calls, a start, a little output.
#pragma once
typedef unsigned long u64;
typedef unsigned int u32;
static inline long sc(long nr, long a, long b, long c, long d, long e, long f)
{
  long r;
  register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
  asm volatile("syscall" : "=a"(r) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return r;
}
#define sc0(n) sc(n, 0, 0, 0, 0, 0, 0)
#define sc1(n, a) sc(n, (long)(a), 0, 0, 0, 0, 0)
#define sc2(n, a, b) sc(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define sc3(n, a, b, c) sc(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define sc6(n, a, b, c, d, e, f) sc(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
enum { SYS_write = 1, SYS_mmap = 9, SYS_mprotect = 10, SYS_munmap = 11, SYS_mremap = 25, SYS_madvise = 28, SYS_getpid = 39, SYS_clone = 56,
       SYS_fork = 57, SYS_exit = 60, SYS_wait4 = 61, SYS_futex = 202, SYS_exit_group = 231,
       // the test kernel's own
       T_HANDLER = 1000, T_SUM = 1001, T_FILL = 1002, T_MAPFILE = 1003, T_INTERRUPTS = 1004, T_XSTATE = 1005, T_STOP = 1006, T_REWRITTEN = 1007, T_TEXT = 1008, T_ANSWER = 1009 };
static u64 len(const char *s) { u64 n = 0; while (s[n]) n++; return n; }
static inline void say(const char *s) { sc3(SYS_write, 1, s, len(s)); }
static inline void number(u64 v)
{
  char b[24]; int i = 23; b[i] = 0;
  do b[--i] = '0' + v % 10; while (v /= 10);
  say(b + i);
}
static inline void done(int code) { sc1(SYS_exit_group, code); __builtin_unreachable(); }
#define check(c) do { if (!(c)) { say("failed: " #c "\n"); done(1); } } while (0)

// clone with VM|FS|FILES|SIGHAND|THREAD|SYSVSEM|CHILD_CLEARTID; fn(arg) on the stack, then exit.
long start_thread(void *stack_top, void (*fn)(void *), void *arg, u32 *ctid);
asm(".text\n.globl start_thread\nstart_thread:\n"
    "  lea -16(%rdi),%rdi\n  mov %rsi,(%rdi)\n  mov %rdx,8(%rdi)\n"
    "  mov %rcx,%r10\n  mov %rdi,%rsi\n  mov $0x250f00,%edi\n  xor %edx,%edx\n  xor %r8d,%r8d\n  mov $56,%eax\n  syscall\n"
    "  test %rax,%rax\n  jz 1f\n  ret\n1: pop %rax\n  pop %rdi\n  xor %ebp,%ebp\n  and $-16,%rsp\n  call *%rax\n"
    "  mov $60,%eax\n  xor %edi,%edi\n  syscall\n  ud2\n");
static inline void join(volatile u32 *ctid) { u32 v; while ((v = *ctid)) sc6(SYS_futex, ctid, 0, v, 0, 0, 0); }

int main(void);
asm(".globl _start\n_start: xor %ebp,%ebp\n and $-16,%rsp\n call start\n");
__attribute__((used)) void start(void) { done(main()); }
