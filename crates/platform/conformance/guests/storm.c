#include "guest.h"
// Counts while the test kernel interrupts it all the time: nothing may be lost or done twice.
#define N 4
static char stacks[N][8192] __attribute__((aligned(16)));
static u32 ctid[N];
static volatile u64 counts[N];
static volatile u32 turn[N];
static void body(void *arg)
{
  u64 i = (u64)arg;
  struct { long s, n; } ts = { 0, 20000 };
  double x = 0;
  for (int k = 0; k < 3000; k++) {
    check(sc0(SYS_getpid) == 4242);
    asm volatile("movsd %0,%%xmm5" : : "m"(x) : "xmm5");
    for (volatile int j = 0; j < 200; j++);
    asm volatile("movsd %%xmm5,%0" : "=m"(x));
    x += 1;
    counts[i]++;
    if (k % 64 == 0) { long r = sc6(SYS_futex, &turn[i], 128, 0, &ts, 0, 0); check(r == -110 || r == -4); }
  }
  check(x == 3000);
}
int main(void)
{
  sc1(T_INTERRUPTS, 1);
  for (u64 i = 0; i < N; i++) { ctid[i] = 1; check(start_thread(stacks[i] + 8192, body, (void *)i, &ctid[i]) > 0); }
  for (int i = 0; i < 30; i++) {
    long pid = sc0(SYS_fork);
    if (!pid) { for (int k = 0; k < 50; k++) check(sc0(SYS_getpid) == 4242); done(9); }
    check(pid > 0 && sc1(SYS_wait4, pid) == 9);
  }
  for (int i = 0; i < N; i++) { join(&ctid[i]); check(counts[i] == 3000); }
  check(sc1(T_INTERRUPTS, 0) > 10);
  say("ok\n");
  return 0;
}
