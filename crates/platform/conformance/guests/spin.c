#include "guest.h"
static char stacks[3][8192] __attribute__((aligned(16)));
static u32 ctid[3], word;
static void spin(void *a) { for (;;); }
static void sleep_native(void *a) { for (;;) sc6(SYS_futex, &word, 128, 0, 0, 0, 0); }
static void in_kernel(void *a) { for (;;) sc1(T_STOP, 0); }
int main(void)
{
  void (*f[3])(void *) = { spin, sleep_native, in_kernel };
  for (int i = 0; i < 3; i++) check(start_thread(stacks[i] + 8192, f[i], 0, &ctid[i]) > 0);
  say("ready\n");
  for (;;) sc0(SYS_getpid);
}
