// A guest that knows the stub and attacks it. MODE selects what it tries.
#include "guest.h"
#define TEXT 0x7ffe00000000ul
#define SLOTS 0x7ffe10000000ul
#define STACKS 0x7ffe40000000ul
#define NOTIFY 111

static u64 gadget;                                        // a "syscall; ret" of the stub
static void find(void)
{
  for (unsigned char *p = (void *)TEXT; p < (unsigned char *)TEXT + 0xfff0; p++)
    if (p[0] == 0x0f && p[1] == 5 && p[2] == 0xc3) { gadget = (u64)p; return; }
  say("no gadget\n");
  done(1);
}
static long g(long nr, long a, long b, long c, long d, long e, long f)
{
  long r;
  register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
  asm volatile("call *%[t]" : "=a"(r) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [t] "b"(gadget) : "rcx", "r11", "memory");
  return r;
}
#define never(nr, a, b, c) do { long r = g(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0); if (r != -38) { say("host executed " #nr ": "); number(-r); say("\n"); done(1); } } while (0)
static char stacks[4][8192] __attribute__((aligned(16)));
static u32 ctid[4];
static u64 seed = 88172645463325252ul;
static u64 rnd(void) { seed ^= seed << 13; seed ^= seed >> 7; return seed ^= seed << 17; }

#if MODE == 1                                             // calls
static int in_thread;
int main(void)
{
  find();
  never(2, "/etc/passwd", 0, 0);                          // open
  never(257, -100, "/etc/passwd", 0);                     // openat
  never(41, 2, 1, 0);                                     // socket
  never(59, "/bin/sh", 0, 0);                             // execve
  never(322, -100, "/bin/sh", 0);                         // execveat
  never(101, 0, 0, 0);                                    // ptrace
  never(62, 1, 9, 0);                                     // kill
  never(62, -1, 9, 0);
  never(200, 1, 9, 0);                                    // tkill
  never(234, 1, 1, 9);                                    // tgkill
  never(57, 0, 0, 0);                                     // fork
  never(58, 0, 0, 0);                                     // vfork
  never(435, stacks, 88, 0);                              // clone3
  never(13, 31, stacks, 0);                               // rt_sigaction
  never(317, 1, 0, 0);                                    // seccomp
  never(157, 38, 0, 0);                                   // prctl, other options
  never(157, 1, 0, 0);
  never(157, 4, 0, 0);
  never(310, 1, 0, 0);                                    // process_vm_readv
  never(425, 1, 0, 0);                                    // io_uring_setup
  never(321, 0, 0, 0);                                    // bpf
  never(438, 0, 0, 0);                                    // pidfd_getfd
  never(0, 0, stacks, 1);                                 // read
  never(1, 1, "x", 1);                                    // write
  never(160, 0, 0, 0);                                    // setrlimit
  never(158, 0x1001, 0, 0);                               // arch_prctl; ARCH_SET_FS is answered on this side
  never(9, 0, 4096, 3);                                   // mmap without MAP_FIXED
  long shapes[] = { 17, 0, 0x11, 0x100, 0x10000000, 0x10208000, 0x208011, 0x4f00, 0x250f00 | 0x80000, 0x20208000 };
  for (int i = 0; i < sizeof shapes / sizeof *shapes; i++) never(56, shapes[i], 0, 0);
  // the two shapes are the sentry's to grant
  for (int i = 0; i < 1000; i++) {
    check(g(56, 0x250f00, (long)(stacks[0] + 8192), 0, (long)&ctid[0], 0, 0) == -1);
    check(g(56, 0x208000, 0, 0, (long)&ctid[0], 0, 0) == -1);
    check(g(NOTIFY, 1, i, 0, 0, 0, 0) < 0);
    check(g(NOTIFY, 2, i, 0, 0, 0, 0) < 0);
    check(g(NOTIFY, rnd(), rnd(), rnd(), 0, 0, 0) < 0);
  }
  // nothing to map
  for (int i = 0; i < 1024; i++) {
    check(g(9, 0x300000000, 4096, 1, 0x11, i, 0) == -9);
    check(g(9, 0x300000000, 4096, 1, 0x12, i, 0) == -9);
  }
  for (int i = 0; i < 64; i++) check(g(3, i, 0, 0, 0, 0, 0) == -9);
  // a real call still works
  check(sc0(SYS_getpid) == 4242);
  say("ok\n");
  return 0;
}
#elif MODE == 2                                           // garbage over slots and stacks while the sentry serves
static volatile int stop;
static void calls(void *a) { for (;;) { sc0(SYS_getpid); sc3(SYS_write, 1, "", 0); sc6(SYS_mmap, 0x300000000, 0x1000, 3, 0x32, -1, 0); } }
int main(void)
{
  for (int i = 0; i < 3; i++) check(start_thread(stacks[i] + 8192, calls, 0, &ctid[i]) > 0);
  for (u64 k = 0; k < 3000000; k++) {
    u64 slot = rnd() % 3 + 1;
    volatile u64 *p = (u64 *)(SLOTS + slot * 0x20000);
    u64 at = rnd() % 10 < 8 ? rnd() % 0x240 : rnd() % 0x20000;
    u64 v = rnd() % 3 ? rnd() % 8 : rnd();
    if (rnd() % 4 == 0) { p[at / 8 + 0] = v; } else ((volatile u32 *)p)[at / 4] = v;
    if (k % 5000 == 4999) { volatile u64 *q = (u64 *)(STACKS + slot * 0x10000); q[rnd() % 8192] = rnd(); }
  }
  for (;;) sc0(SYS_getpid);
}
#elif MODE == 3                                           // wild frames
int main(void)
{
  find();
  static char junk[16384] __attribute__((aligned(64)));
  for (int i = 0; i < sizeof junk; i++) junk[i] = rnd();
  asm volatile("lea 4096(%0),%%rsp\n mov $15,%%eax\n jmp *%1" : : "r"(junk), "b"(gadget));
  return 0;
}
#elif MODE == 4                                           // pull the floor away
int main(void)
{
  find();
  g(11, WHAT, 0x10000000, 0, 0, 0, 0);
  for (;;) sc0(SYS_getpid);
}
#elif MODE == 5                                           // leave without saying so
static void quit(void *a) { g(60, 0, 0, 0, 0, 0, 0); }
int main(void)
{
  find();
  check(start_thread(stacks[0] + 8192, quit, 0, &ctid[0]) > 0);
  for (volatile int i = 0; i < 100000000; i++);
  g(231, 0, 0, 0, 0, 0, 0);
  return 0;
}
#elif MODE == 6                                           // race the clone grants of a sibling
static void bomb(void *a)
{
  for (;;) {
    if (g(56, 0x250f00, (long)(stacks[2] + 8192), 0, (long)&ctid[2], 0, 0) >= 0) { say("rogue thread\n"); done(1); }
    if (g(56, 0x208000, 0, 0, (long)&ctid[2], 0, 0) >= 0) { say("rogue process\n"); done(1); }
  }
}
static void nothing(void *a) {}
int main(void)
{
  find();
  check(start_thread(stacks[0] + 8192, bomb, 0, &ctid[0]) > 0);
  for (int i = 0; i < 200; i++) {
    ctid[1] = 1;
    check(start_thread(stacks[1] + 8192, nothing, 0, &ctid[1]) > 0);
    join(&ctid[1]);
    long p = sc0(SYS_fork);
    if (!p) done(0);
    check(p > 0 && sc1(SYS_wait4, p) == 0);
  }
  say("ok\n");
  return 0;
}
#elif MODE == 7                                           // the child of a granted fork never says hello
int main(void)
{
  find();
  check(g(10, TEXT, 0x10000, 7, 0, 0, 0) == 0);
  for (unsigned char *p = (void *)TEXT; p < (unsigned char *)TEXT + 0xfff0; p++)
    if ((p[0] & 0xf8) == 0xb8 && *(u32 *)(p + 1) == 157) { p[0] = 0xeb; p[1] = 0xfe; }   // before its prctl: loop there
  check(sc0(SYS_fork) == -11);
  say("ok\n");
  return 0;
}
#elif MODE == 8                                           // a granted thread that is reported as failed
static volatile u32 alive;
int main(void)
{
  find();
  check(g(10, TEXT, 0x10000, 7, 0, 0, 0) == 0);
  // stub_clone_thread: "test %rax,%rax; jz child; ret" becomes "jz child; mov $-11,%rax; ret" in place
  for (unsigned char *p = (void *)TEXT; p < (unsigned char *)TEXT + 0xfff0; p++)
    if (p[0] == 0x0f && p[1] == 5 && p[2] == 0x48 && p[3] == 0x85 && p[4] == 0xc0 && p[5] == 0x74 && p[7] == 0xc3) {
      // after the syscall: both sides loop here for ever, the child as a rogue thread
      static unsigned char code[] = { 0x48, 0x85, 0xc0, 0x74, 0xfe, 0x6a, 0xf5, 0x58, 0xc3 };
      for (int i = 0; i < sizeof code; i++) p[2 + i] = code[i];
    }
  check(start_thread(stacks[0] + 8192, 0, 0, &ctid[0]) == -11);
  say("ok\n");
  for (;;) sc0(SYS_getpid);
}
#elif MODE == 9                                           // everything is emulated
int main(void)
{
  find();
  for (int nr = 0; nr < 1100; nr++)
    if (nr != SYS_futex && nr != 449 && !(nr >= 454 && nr <= 456)) never(nr, 1, 0, 0); // futexes are native, with the same rules
  never(NOTIFY, 1, 0, 0);
  never(NOTIFY, 2, 0, 0);
  never(56, 0x208000, 0, 0);
  never(56, 0x250f00, 0, 0);
  never(9, 0x300000000, 4096, 3);
  never(10, TEXT, 0x1000, 7);
  never(231, 0, 0, 0);
  say("ok\n");
  return 0;
}
#elif MODE == 10                                          // take the sleeping sentry thread along to another word
int main(void)
{
  find();
  static u32 own;
  long moved = 0;
  for (u64 k = 0; k < 2000000000 && !moved; k++)          // once it sleeps; where the request word is does not matter here
    if (k % 100000 == 0)
      for (u64 at = 0; at < 0x240 && !moved; at += 4)
        if ((moved = g(202, SLOTS + at, 3, 0, 64, (long)&own, 0)) < 0) moved = 0;
  say(moved ? "moved\n" : "nobody sleeps\n");
  for (;;);
}
#endif
