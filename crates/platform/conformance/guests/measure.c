#include "guest.h"
// Prints TSC cycles per operation: minimum and mean.
static u64 tsc(void) { u32 a, d; asm volatile("lfence; rdtsc" : "=a"(a), "=d"(d)); return (u64)d << 32 | a; }
static char stack[8192] __attribute__((aligned(16)));
static u32 ctid;
static void nothing(void *a) {}
static void getpid_(void) { sc0(SYS_getpid); }
static void fork_(void) { long p = sc0(SYS_fork); if (!p) done(0); sc1(SYS_wait4, p); }
static void thread_(void) { ctid = 1; start_thread(stack + 8192, nothing, 0, &ctid); join(&ctid); }
static void wake_(void) { static u32 w; sc6(SYS_futex, &w, 129, 1, 0, 0, 0); }
static void mapfile_(void) { sc2(T_MAPFILE, 0x200000000, 1); }
static void mapanon_(void) { sc6(SYS_mmap, 0x210000000, 0x4000, 3, 0x32, -1, 0); }
static void mprotect_(void) { sc3(SYS_mprotect, 0x210000000, 0x4000, 3); }
static void run(const char *name, void (*f)(void), int n)
{
  u64 best = ~0ul, all = tsc();
  for (int i = 0; i < n; i++) { u64 t = tsc(); f(); t = tsc() - t; if (t < best) best = t; }
  all = tsc() - all;
  say(name); say(" "); number(best); say(" "); number(all / n); say("\n");
}
int main(void)
{
  run("getpid", getpid_, 20000);
  run("futex-wake", wake_, 20000);
  run("mmap-anon", mapanon_, 2000);
  run("mprotect", mprotect_, 2000);
  run("mmap-file", mapfile_, 500);
  run("fork+wait", fork_, 300);
  run("thread+join", thread_, 300);
  return 0;
}
