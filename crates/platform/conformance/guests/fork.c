#include "guest.h"
static volatile int shared = 1;
int main(void)
{
  double x = 1.5, y;
  for (int i = 0; i < 20; i++) {
    asm volatile("movsd %0,%%xmm7" : : "m"(x) : "xmm7");
    long pid = sc0(SYS_fork);
    asm volatile("movsd %%xmm7,%0" : "=m"(y));
    check(y == 1.5);
    if (pid == 0) {
      check(shared == 1 + i);
      shared = 1000;
      check(sc0(SYS_getpid) == 4242);
      // a grandchild
      long p2 = sc0(SYS_fork);
      if (p2 == 0) { check(shared == 1000); shared = 5; done(3); }
      check(p2 > 0 && sc1(SYS_wait4, p2) == 3 && shared == 1000);
      done(100 + i);
    }
    check(pid > 0);
    shared++;
    check(sc1(SYS_wait4, pid) == 100 + i);
    check(shared == 2 + i);
  }
  say("ok\n");
  return 0;
}
