// Futex calls, which the host makes on its own futexes. A part of stub.c, which includes it where it is needed.

// Waits on a futex; a signal of the guest's may end it.
static int futex_wait(struct Priv *p, struct Slot *s)
{
  u64 *g = s->regs, fourth = g[R10], fifth = g[R8];
  if (p->timed) {
    p->timed = 0;
    *(g[ORIG_RAX] == NATIVE_futex_wait ? &fifth : &fourth) = (u64)&s->timeout;
  }
  s->waiting = 1;
  long r = stub_futex_wait(g[RDI], g[RSI], g[RDX], fourth, fifth, g[R9], g[ORIG_RAX]);
  s->waiting = 0;
  if (r == -EINTR) {
    p->pending = 0;
    return INTERRUPTED;
  }
  g[RAX] = r;
  return ANSWERED;
}

static inline int is_futex(u64 nr)
{
  return nr == NATIVE_futex || nr == NATIVE_futex_waitv || (nr >= NATIVE_futex_wake && nr <= NATIVE_futex_requeue);
}

// The successors of futex(2). What an array in memory names is not looked at: all of it is the guest's.
static int native_futex2(struct Priv *p, struct Slot *s)
{
  u64 *g = s->regs, nr = g[ORIG_RAX];
  u64 timeout = nr == NATIVE_futex_waitv ? g[R10] : nr == NATIVE_futex_wait ? g[R8] : 0;
  if (g[RDI] >= STUB_TEXT - 48 || timeout >= STUB_TEXT - 16) { g[RAX] = -EFAULT; return ANSWERED; }
  if (nr == NATIVE_futex_waitv || nr == NATIVE_futex_wait) return futex_wait(p, s);
  g[RAX] = sc(nr, g[RDI], g[RSI], g[RDX], g[R10], g[R8], g[R9]);
  return ANSWERED;
}

// futex(2) operations that the host can do on its own; the answer goes to the registers in the slot.
static int native_futex(struct Priv *p, struct Slot *s)
{
  if (s->regs[ORIG_RAX] != NATIVE_futex) return native_futex2(p, s);
  u64 *g = s->regs, op = g[RSI] & 0x7f, two = 0, wait = 0, timeout = g[R10];
  if ((u32)g[RSI] & ~0x1ffu) return NOT_NATIVE;
  switch (op) {
  case 0: case 9: wait = 1; break;                        // WAIT, WAIT_BITSET
  case 1: case 10: break;                                 // WAKE, WAKE_BITSET
  case 3: case 4: case 5: two = 1; break;                 // REQUEUE, CMP_REQUEUE, WAKE_OP
  default: return NOT_NATIVE;
  }
  if ((g[RSI] & 0x100) && !wait) return NOT_NATIVE;        // CLOCK_REALTIME elsewhere: the sentry knows the error
  long r = -EFAULT;
  if (g[RDI] >= STUB_TEXT - 4 || (two && g[R8] >= STUB_TEXT - 4) || (wait && timeout >= STUB_TEXT - 16)) goto out;
  if (!wait) { r = sc(SYS_futex, g[RDI], g[RSI], g[RDX], g[R10], g[R8], g[R9]); goto out; }
  return futex_wait(p, s);
out:
  g[RAX] = r;
  return ANSWERED;
}
