#include "guest.h"
#ifndef N
#define N 500
#endif
static char stacks[N][4096] __attribute__((aligned(16)));
static u32 ctid[N];
static volatile u32 counter, gate;
static double values[N];
static void body(void *arg)
{
  u64 i = (u64)arg;
  double v = i;
  while (!gate) sc6(SYS_futex, &gate, 128, 0, 0, 0, 0);
  for (int k = 0; k < 10; k++) { check(sc0(SYS_getpid) == 4242); asm volatile("sqrtsd %0,%%xmm3\n movsd %%xmm3,%0" : "+m"(v) : : "xmm3"); }
  values[i] = v;
  __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
}
int main(void)
{
  for (int round = 0; round < 2; round++) {
    gate = counter = 0;
    for (u64 i = 0; i < N; i++) { ctid[i] = 1; check(start_thread(stacks[i] + 4096, body, (void *)i, &ctid[i]) > 0); }
    gate = 1;
    sc6(SYS_futex, &gate, 129, 0x7fffffff, 0, 0, 0);
    for (u64 i = 0; i < N; i++) join(&ctid[i]);
    check(counter == N);
  }
  check(values[0] == 0 && values[1] == 1.0);
  say("ok\n");
  return 0;
}
