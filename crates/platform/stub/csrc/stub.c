// The stub: code of the guest's process that talks to the sentry and executes what it decides.
// Freestanding, no writable data, no vector registers; %fs and %gs belong to the guest. All state is in the slot
// (shared with the sentry) and in struct Priv at the low end of the private stack; both are found from the stack pointer.
#define WANT_CAPTURE_TABLE
#include "layout.h"
#pragma GCC visibility push(hidden)

#define SYS_mmap 9
#define SYS_munmap 11
#define SYS_rt_sigaction 13
#define SYS_rt_sigprocmask 14
#define SYS_rt_sigreturn 15
#define SYS_sched_yield 24
#define SYS_mremap 25
#define SYS_madvise 28
#define SYS_exit 60
#define SYS_close 3
#define SYS_clone 56
#define SYS_sigaltstack 131
#define SYS_prctl 157
#define SYS_arch_prctl 158
#define SYS_gettid 186
#define SYS_futex 202
#define SYS_set_tid_address 218
#define SYS_set_robust_list 273
#define SYS_rseq 334
#define TASK_LIMIT STUB_TEXT
#define SYS_exit_group 231
#define SYS_seccomp 317

enum { EINTR = 4, EAGAIN = 11, EFAULT = 14, EINVAL = 22, ENOSYS = 38 };
#define AUDIT_ARCH_X86_64 0xc000003eu

struct kstack { u64 sp; int flags; u64 size; };
struct ucontext {
  u64 flags, link;
  struct kstack stack;
  u64 r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
  u64 segments, err, trapno, oldmask, cr2, fpstate, reserved[8];
  u64 sigmask;
};
_Static_assert(__builtin_offsetof(struct ucontext, rip) == 168, "ucontext");
struct siginfo { int signo, err, code, pad; u64 addr; int nr; u32 arch; };
struct ksigaction { u64 handler, flags, restorer, mask; };
enum { R15, R14, R13, R12, RBP, RBX, R11, R10, R9, R8, RAX, RCX, RDX, RSI, RDI, ORIG_RAX, RIP, EFLAGS, RSP, FS_BASE, GS_BASE };

extern char stub_restorer[], stub_restorer_end[], stub_futex_begin[], stub_futex_end[], stub_futex_abort[],
  stub_copy_begin[], stub_copy_end[], stub_string_begin[], stub_string_end[], stub_store_begin[], stub_store_end[],
  stub_swap_begin[], stub_swap_end[], stub_first_trap[], stub_fast_entry[], stub_number_begin[], stub_known_begin[],
  stub_xsave_begin[], stub_xsave_end[], stub_xrstor_begin[], stub_xrstor_end[], stub_fast_jump[], stub_fast_jump_end[],
  stub_cmpxchg_begin[], stub_cmpxchg_end[], stub_known_end[], stub_fast_exit[], stub_fast_exit_end[], stub_frame_trap[];
u32 stub_swap(u64 addr, u64 old, u64 new);
long stub_futex_wait(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 nr);
u64 stub_copy(u64 dst, u64 src, u64 n);
u64 stub_copy_string(u64 dst, u64 src, u64 n);
u32 stub_store(u64 addr, u32 value);
u32 stub_xsave(u64 addr, u64 mask);
u32 stub_xrstor(u64 addr, u64 mask);
u64 stub_cmpxchg(u64 addr, u32 old, u32 new);
long stub_clone_thread(u64 flags, u64 stack, u64 ctid);
void stub_load_xstate(u64 fpstate);
void stub_jump(u64 stack, u64 args, u64 entry) __attribute__((noreturn));

static inline long sc(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
  long r;
  register u64 r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
  asm volatile("syscall" : "=a"(r) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return r;
}
static inline int is_error(long r) { return r < 0 && r > -4096; }
static inline u64 rdtsc(void) { u32 a, d; asm volatile("rdtsc" : "=a"(a), "=d"(d)); return (u64)d << 32 | a; }
static inline u32 cpu(struct Slot *s)
{
  u64 v;
  if (*(volatile u32 *)&s->rdpid) asm volatile("rdpid %0" : "=r"(v));
  else asm volatile("lsl %k1,%k0" : "=r"(v) : "r"(0x7bu));
  return v & 0xfff;
}
static inline u64 sp(void) { u64 v; asm volatile("mov %%rsp,%0" : "=r"(v)); return v; }
static inline u64 rdfs(void) { u64 v; asm volatile("rdfsbase %0" : "=r"(v)); return v; }
static inline u64 rdgs(void) { u64 v; asm volatile("rdgsbase %0" : "=r"(v)); return v; }
static inline void wrfs(u64 v) { asm volatile("wrfsbase %0" : : "r"(v)); }
static inline void wrgs(u64 v) { asm volatile("wrgsbase %0" : : "r"(v)); }
static inline struct Priv *priv_of(u64 i) { return (struct Priv *)(STACK_BASE + i * STACK_SIZE); }
static inline u64 stack_top(u64 i) { return STACK_BASE + (i + 1) * STACK_SIZE - 64; }
static inline struct Priv *my_priv(void) { return (struct Priv *)(sp() & ~(u64)(STACK_SIZE - 1)); }
static inline struct Slot *slot_of(struct Priv *p) { return (struct Slot *)(SLOT_BASE + ((u64)p - STACK_BASE) / STACK_SIZE * SLOT_SIZE); }
static inline int in(u64 rip, char *from, char *to) { return rip >= (u64)from && rip < (u64)to; }
static inline u32 load(volatile u32 *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

static inline u32 sentry_cpu(struct Slot *s) { return *(volatile u32 *)&s->cmd >> CPU_SHIFT; }

// Wait until the sentry has answered request p->seq; `me` is the own CPU. Spins only while the sentry's thread is awake on
// another CPU. A spin that ends in sleep all the same makes the next ones rarer, one that does not makes them usual again.
static void await_answer(struct Priv *p, struct Slot *s, int spin, u32 me)
{
  u32 seq = p->seq, limit = *(volatile u32 *)&s->spin;
  if (!limit || sentry_cpu(s) == me) spin = 0;
  else if (spin && p->skip) { p->skip--; spin = 0; }
  if (spin) {
    u64 start = 0, polite = 0, now = 0;
    do {
      for (int i = 0; i < LOOKS; i++) {
        if ((load(&s->rsp) & ~SLEEP) == seq) { p->backoff = 0; return; }
        __builtin_ia32_pause();
      }
      now = rdtsc();
      if (!start) start = polite = now;
      // Who is served on another CPU keeps this one, which others would have for long; a call that takes its time may wait for one of them.
      int rude = *(volatile u32 *)&s->taken == seq && now - start <= limit / 8;
      if (now - polite > limit / 16 && !rude) { sc(SYS_sched_yield, 0, 0, 0, 0, 0, 0); polite = now; }
    } while (now - start < limit && sentry_cpu(s) != me);
    p->backoff = p->backoff < MAX_BACKOFF ? p->backoff * 2 + 1 : MAX_BACKOFF;
    p->skip = p->backoff;
  }
  u64 slept = limit ? rdtsc() : 0;
  for (;;) {
    u32 v = load(&s->rsp);
    if ((v & ~SLEEP) == seq) break;
    if (!(v & SLEEP) && !__atomic_compare_exchange_n(&s->rsp, &v, v | SLEEP, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    sc(SYS_futex, (u64)&s->rsp, 0, v | SLEEP, 0, 0, 0);
  }
  // Two wake-ups across CPUs take as long: a spin would have paid.
  if (limit && rdtsc() - slept < 2 * limit) p->skip = p->backoff = 0;
}

static void handoff(struct Priv *p, struct Slot *s, u32 what)
{
  u32 me = cpu(s), seq = p->seq = (p->seq + 1) & ~SLEEP;
  // One after the other and last of all: the sentry looks at this line all the time.
  if ((what & REQ_MASK) == REQ_SYSCALL) {
    u64 *g = s->regs;
    s->call[0] = g[ORIG_RAX]; s->call[1] = g[RDI]; s->call[2] = g[RSI]; s->call[3] = g[RDX];
    s->call[4] = g[R10]; s->call[5] = g[R8]; s->call[6] = g[R9];
  }
  s->what = what | me << CPU_SHIFT;
  u32 old = __atomic_exchange_n(&s->req, seq, __ATOMIC_SEQ_CST);
  if (old & SLEEP) sc(SYS_futex, (u64)&s->req, 1, 1, 0, 0, 0);
  await_answer(p, s, 1, me);
}

static long notify(u64 op, u64 arg)
{
  long r;
  do r = sc(NR_NOTIFY, op, arg, 0, 0, 0, 0); while (r == -EINTR);
  return r;
}

// The descriptor that was kept is needed no more.
static void let_go(struct Priv *p)
{
  if (p->kept) sc(SYS_close, p->kept - 1, 0, 0, 0, 0, 0);
  p->kept = 0;
}

// No interrupt may be pending during clone: the host would restart the call, and the sentry grants one only. With a frame
// the mask ends with that.
static void mask_interrupts(int block)
{
  u64 mask = 1ul << (INTERRUPT_SIGNAL - 1);
  sc(SYS_rt_sigprocmask, !block, (u64)&mask, 0, 8, 0, 0);
}

static long start_thread(struct ucontext *uc, u64 i)
{
  struct Priv *c = priv_of(i);
  c->pending = 0;
  c->seq = FIRST_SEQ;
  c->skip = c->backoff = c->kept = 0;
  c->nfresh = 0;
  c->announce = 0;
  mask_interrupts(1);
  // Without a frame the guest's extended state is still in the processor.
  if (uc) stub_load_xstate(uc->fpstate);
  long r = stub_clone_thread(CLONE_THREAD_FLAGS, stack_top(i), SLOT_BASE + i * SLOT_SIZE + Slot_alive);
  if (!uc) mask_interrupts(0);
  return r;
}

// First code of a thread, on its own private stack.
__attribute__((used)) void stub_thread_start(void)
{
  u64 base = sp() & ~(u64)(STACK_SIZE - 1);
  struct kstack st = { base + sizeof(struct Priv) + 64, 0, STACK_SIZE - sizeof(struct Priv) - 128 };
  sc(SYS_sigaltstack, (u64)&st, 0, 0, 0, 0, 0);
  ((void (*)(void))stub_first_trap)();
}

// Returns in the parent with the child's pid, in the child with 0, on its own copy of everything but the slots.
static long fork_process(struct Priv *p, struct Slot *s, struct ucontext *uc, u64 nonce, u64 lent)
{
  u32 flags = s->flags;
  mask_interrupts(1);
  long r = sc(SYS_clone, CLONE_FORK_FLAGS, 0, 0, (u64)s + Slot_alive, 0, 0);
  if (r && !uc) mask_interrupts(0);
  if (r) return r;
  // The parent's slots are still mapped: leave them alone until the own ones have replaced them.
  p->pending = 0;
  p->seq = FIRST_SEQ;
  p->skip = p->backoff = 0;
  p->nfresh = 0;
  if (sc(SYS_prctl, 1, 9, 0, 0, 0, 0)) sc(SYS_exit_group, 1, 0, 0, 0, 0, 0);      // PR_SET_PDEATHSIG, SIGKILL
  long fd = notify(NOTIFY_HELLO, nonce);
  if (fd < 0) sc(SYS_exit_group, 1, 0, 0, 0, 0, 0);
  r = sc(SYS_mmap, SLOT_BASE, NSLOTS * SLOT_SIZE, 3, 0x11, fd, 0);
  if (is_error(r)) sc(SYS_exit_group, 1, 0, 0, 0, 0, 0);
  sc(SYS_close, fd, 0, 0, 0, 0, 0);
  for (u64 k = 0; lent && k < LENT; k++) sc(SYS_close, LENT_FIRST + k, 0, 0, 0, 0, 0);
  let_go(p);
  s->private = (u64)p;
  s->flags = flags;
  if (!uc) mask_interrupts(0);
  return 0;
}

enum { ACTIONS_DONE, ACTIONS_FAILED, ACTIONS_CHILD };

static int run_actions(struct Priv *p, struct Slot *s, struct ucontext *uc, u32 ignore)
{
  u32 n = s->nact, i, size = s->xstate_size;
  // A report of nothing: the sentry wants to see the extended state.
  if (!n && size && uc && size <= SLOT_DATA_SIZE) stub_copy((u64)s + SLOT_DATA, uc->fpstate, size);
  long r = 0;
  int fds[MAX_FDS], outcome = ACTIONS_DONE;
  u32 len = s->copy_len;
  if (*(volatile u32 *)&s->let_go) let_go(p);
  if (len && stub_copy(s->copy_to, (u64)s + s->copy_from, len) && !ignore) {
    s->fail_index = FAILED_COPY;
    s->fail_errno = EFAULT;
    return ACTIONS_FAILED;
  }
  if (!n) return ACTIONS_DONE;
  for (i = 0; i < MAX_FDS; i++) fds[i] = -1;
  if (n > MAX_ACTIONS) n = MAX_ACTIONS;
  for (i = 0; i < n; i++) {
    struct Action *a = &s->act[i];
    r = 0;
    switch (a->op) {
    case ACT_SYSCALL: case ACT_TRANSFER:
      s->result = r = sc(a->nr, a->a[0], a->a[1], a->a[2], a->a[3], a->a[4], a->a[5]);
      if (a->op == ACT_TRANSFER && r >= 0 && (u64)r != a->a[2]) r = -EAGAIN;
      break;
    case ACT_MMAP_FD: {
      u64 what = a->a[4], k = what & ~(FD_KEPT | FD_KEEP);
      if (what & FD_KEPT) r = (int)p->kept - 1;
      else if (k >= MAX_FDS) r = -EINVAL;
      else {
        if (fds[k] < 0) fds[k] = notify(NOTIFY_FD, k);
        r = fds[k];
        if (r >= 0 && what & FD_KEEP) {
          let_go(p);
          p->kept = r + 1;
          fds[k] = -1;
        }
      }
      if (r >= 0) r = sc(SYS_mmap, a->a[0], a->a[1], a->a[2], a->a[3], r, a->a[5]);
      break; }
    case ACT_WRITE:
      if (stub_copy(a->a[0], (u64)s + SLOT_DATA + a->a[1], a->a[2])) r = -EFAULT;
      break;
    case ACT_STORE_WAKE:
      if (a->a[3]) stub_store(a->a[0], a->a[1]);
      if (a->a[2]) sc(SYS_futex, a->a[0], 1, a->a[2], 0, 0, 0);
      break;
    case ACT_CMPXCHG: {
      u64 found = stub_cmpxchg(a->a[0], a->a[1], a->a[2]);
      if (found == ~0ul) r = -EFAULT; else s->result = found;
      break; }
    case ACT_XSTATE:
      if (!uc || stub_copy(uc->fpstate, (u64)s + SLOT_DATA + a->a[0], a->a[1])) r = -EFAULT;
      break;
    case ACT_XSAVE:
      if (uc || a->a[0] & 63 || stub_xsave(a->a[0], a->a[1])) r = -EFAULT;
      break;
    case ACT_XRSTOR:
      if (uc || a->a[0] & 63 || stub_xrstor(a->a[0], a->a[1])) r = -EFAULT;
      break;
    case ACT_CLOSE: sc(SYS_close, a->a[0], 0, 0, 0, 0, 0); break;
    case ACT_HOLD: s->result = r = notify(NOTIFY_FD, a->a[0]); break;
    case ACT_SWAP:
      switch (stub_swap(a->a[0], a->a[1], a->a[2])) {
      case 1: r = -EFAULT; break;
      case 2: r = -EAGAIN; break;
      }
      break;
    case ACT_THREAD:
      s->result = r = start_thread(uc, a->a[0]);
      break;
    case ACT_FORK:
      r = fork_process(p, s, uc, a->a[0], a->a[1]);
      if (!r) return ACTIONS_CHILD;
      s->result = r;
      break;
    default:
      r = -EINVAL;
    }
    if (is_error(r) && !ignore) { outcome = ACTIONS_FAILED; break; }
  }
  for (u32 k = 0; k < MAX_FDS; k++) if (fds[k] >= 0) sc(SYS_close, fds[k], 0, 0, 0, 0, 0);
  if (outcome == ACTIONS_FAILED) { s->fail_index = i; s->fail_errno = -r; }
  return outcome;
}

static void load_regs(struct Priv *p, struct Slot *s, struct ucontext *uc)
{
  u64 *r = s->regs;
  uc->r15 = r[R15]; uc->r14 = r[R14]; uc->r13 = r[R13]; uc->r12 = r[R12]; uc->rbp = r[RBP]; uc->rbx = r[RBX];
  uc->r11 = r[R11]; uc->r10 = r[R10]; uc->r9 = r[R9]; uc->r8 = r[R8]; uc->rax = r[RAX]; uc->rcx = r[RCX];
  uc->rdx = r[RDX]; uc->rsi = r[RSI]; uc->rdi = r[RDI]; uc->rip = r[RIP]; uc->eflags = r[EFLAGS]; uc->rsp = r[RSP];
  if (rdfs() != r[FS_BASE]) wrfs(r[FS_BASE]);
  // While the guest does not use it, %gs leads rewritten call sites to the slot.
  u64 gs = r[GS_BASE] ? r[GS_BASE] : (u64)s;
  if (rdgs() != gs) wrgs(gs);
  s->private = (u64)p;
}

static inline u32 command(struct Slot *s) { return *(volatile u32 *)&s->cmd & CMD_MASK; }

// Execute what the sentry answered until it says that the guest resumes.
static void obey(struct Priv *p, struct Slot *s, struct ucontext *uc)
{
  for (;;) {
    u32 cmd = command(s);
    int r = run_actions(p, s, uc, cmd == CMD_EXIT);
    if (cmd == CMD_EXIT) { let_go(p); sc(SYS_exit, 0, 0, 0, 0, 0, 0); }
    if (r == ACTIONS_CHILD) { await_answer(p, s, 1, cpu(s)); s->fpstate = uc->fpstate; continue; }
    if (r == ACTIONS_FAILED) { handoff(p, s, REQ_FAILED); continue; }
    if (cmd == CMD_RETURN) s->regs[RAX] = s->ret;
    if (cmd == CMD_RESUME || cmd == CMD_RETURN) break;
    handoff(p, s, REQ_DONE);
  }
  load_regs(p, s, uc);
}

static void save(struct Slot *s, struct ucontext *uc)
{
  u64 *r = s->regs;
  r[R15] = uc->r15; r[R14] = uc->r14; r[R13] = uc->r13; r[R12] = uc->r12; r[RBP] = uc->rbp; r[RBX] = uc->rbx;
  r[R11] = uc->r11; r[R10] = uc->r10; r[R9] = uc->r9; r[R8] = uc->r8; r[RAX] = uc->rax; r[RCX] = uc->rcx;
  r[RDX] = uc->rdx; r[RSI] = uc->rsi; r[RDI] = uc->rdi; r[ORIG_RAX] = -1; r[RIP] = uc->rip; r[EFLAGS] = uc->eflags;
  r[RSP] = uc->rsp; r[FS_BASE] = rdfs(); r[GS_BASE] = rdgs() == (u64)s ? 0 : rdgs();
  s->fpstate = uc->fpstate;
}

static void serve(struct Priv *p, struct Slot *s, struct ucontext *uc, u32 what)
{
  handoff(p, s, what);
  obey(p, s, uc);
}

// ---- system calls ---------------------------------------------------------------

#define LOWEST 65536 // hosts map nothing below, by default
// Copies the guest memory that the call will need; REQ_CAPTURED if there is some.
static u32 capture(struct Slot *s, u32 nr)
{
  u64 robust = s->words[WORD_ROBUST_LIST];
  if ((nr == SYS_exit || nr == SYS_exit_group) && robust && robust < STUB_TEXT - 24) {
    s->cap_addr[0] = robust;
    s->cap_len[0] = 24 - stub_copy((u64)s + SLOT_DATA, robust, 24);
    s->cap_len[1] = 0;
    return REQ_CAPTURED;
  }
  if (nr == SYS_rt_sigreturn) {
    // The frame, and the words of its extended state by which it is known for what it is.
    u64 from = s->regs[RSP] - 8, frame = (u64)s + SLOT_DATA, state;
    s->cap_len[0] = s->cap_len[1] = 0;
    if (from >= STUB_TEXT - SIGNAL_FRAME || stub_copy(frame, from, SIGNAL_FRAME)) return 0;
    s->cap_addr[0] = from;
    s->cap_len[0] = SIGNAL_FRAME;
    state = *(volatile u64 *)(frame + SIGNAL_FRAME_FPSTATE) + XSTATE_WORDS;
    if (state < STUB_TEXT - XSTATE_WORDS_SIZE && !stub_copy(frame + CAPTURE_SECOND, state, XSTATE_WORDS_SIZE)) {
      s->cap_addr[1] = state;
      s->cap_len[1] = XSTATE_WORDS_SIZE;
    }
    return REQ_CAPTURED;
  }
  if (nr >= CAPTURE_TABLE_LEN || !capture_table[nr][0].kind) return 0;
  u64 *g = s->regs, a[6] = { g[RDI], g[RSI], g[RDX], g[R10], g[R8], g[R9] };
  const struct capture *c = capture_table[nr];
  s->cap_len[0] = s->cap_len[1] = 0;
  for (u32 k = 0; k < 2 && c[k].kind; k++) {
    u64 from = a[c[k].arg], off = k ? CAPTURE_SECOND : 0, room = SLOT_DATA_SIZE - off, n, left;
    u64 dst = (u64)s + SLOT_DATA + off;
    if (!k && c[1].kind) room = CAPTURE_SECOND;
    if (from < LOWEST) continue;                           // a null pointer most often, and a fault costs microseconds
    if (c[k].kind == CAP_STRING) {
      n = room < 4096 ? room : 4096;
      if (from < STUB_TEXT && n > STUB_TEXT - from) n = STUB_TEXT - from;
      if (from >= STUB_TEXT) continue;
      left = stub_copy_string(dst, from, n);
    } else {
      switch (c[k].kind) {
      case CAP_BUFFER: n = a[c[k].len]; break;
      case CAP_FIXED: n = c[k].len; break;
      default: n = a[c[k].len & 15]; n = n <= SLOT_DATA_SIZE ? n * (c[k].len >> 4) : ~0ul; break;
      }
      if (!n || n > room || from >= STUB_TEXT || n > STUB_TEXT - from) continue;
      left = stub_copy(dst, from, n);
    }
    s->cap_addr[k] = from;
    s->cap_len[k] = n - left;
  }
  return REQ_CAPTURED;
}

enum { NOT_NATIVE, ANSWERED, INTERRUPTED, TOLD };

// rt_sigprocmask(2), while it does not unblock what is pending. The sentry adds to the pending signals before it looks at the
// blocked ones, so one of us sees what the other has done.
static int native_mask(struct Slot *s)
{
  u64 *g = s->regs, *blocked = &s->words[WORD_BLOCKED], old = *blocked, set, new;
  if (g[R10] != 8) return NOT_NATIVE;
  if (g[RSI]) {
    if (g[RSI] >= STUB_TEXT - 8 || stub_copy((u64)&set, g[RSI], 8)) return NOT_NATIVE;
    switch ((int)g[RDI]) {
    case 0: new = old | set; break;
    case 1: new = old & ~set; break;
    case 2: new = set; break;
    default: return NOT_NATIVE;
    }
    new &= ~(1ul << 8 | 1ul << 18);                        // SIGKILL, SIGSTOP
    __atomic_exchange_n(blocked, new, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&s->words[WORD_PENDING], __ATOMIC_SEQ_CST) & ~new) {
      *blocked = old;
      return NOT_NATIVE;
    }
  }
  g[RAX] = 0;
  if (g[RDX] && (g[RDX] >= STUB_TEXT - 8 || stub_copy(g[RDX], (u64)&old, 8))) g[RAX] = -EFAULT;
  return ANSWERED;
}

#include "futex.h"

// The call in the slot's registers, if the stub can answer it.
static int native(struct Priv *p, struct Slot *s)
{
  u32 report = *(volatile u32 *)&s->report_all;
  if (report > REPORT_ALL) {
    s->report_all = REPORT_ALL;
    p->timed = report & REPORT_TIMED;
    report &= ~REPORT_TIMED;
  }
  if (report && (report == REPORT_ALL || !is_futex(s->regs[ORIG_RAX]))) return NOT_NATIVE;
  int told = report == REPORT_NEXT_DONE ? native_futex(p, s) : NOT_NATIVE;
  if (told) return told == ANSWERED ? TOLD : told;
  switch ((enum native_call)s->regs[ORIG_RAX]) {        // no default: gcc says which call of the table is missing
  case NATIVE_futex: case NATIVE_futex_waitv: case NATIVE_futex_wake: case NATIVE_futex_wait: case NATIVE_futex_requeue:
    return native_futex(p, s);
  case NATIVE_sched_yield: s->regs[RAX] = sc(SYS_sched_yield, 0, 0, 0, 0, 0, 0); return ANSWERED;
  case NATIVE_arch_prctl:                                     // ARCH_SET_FS: a register, which every request reports
    if (s->regs[RDI] != 0x1002 || s->regs[RSI] >= TASK_LIMIT) return NOT_NATIVE;
    wrfs(s->regs[FS_BASE] = s->regs[RSI]);
    s->regs[RAX] = 0; return ANSWERED;
  case NATIVE_rt_sigprocmask: return native_mask(s);
  case NATIVE_set_robust_list:
    if (s->regs[RSI] != 24) return NOT_NATIVE;
    s->words[WORD_ROBUST_LIST] = s->regs[RDI];
    s->regs[RAX] = 0;
    return ANSWERED;
  case NATIVE_set_tid_address: {
    u64 tid = s->known[SYS_gettid];
    if (!(tid >> KNOWN_BIT)) return NOT_NATIVE;
    s->words[WORD_CLEAR_CHILD_TID] = s->regs[RDI];
    s->regs[RAX] = (u32)tid;
    return ANSWERED; }
  case NATIVE_rseq: s->regs[RAX] = -ENOSYS; return ANSWERED;  // the kernel has none, and every new thread asks
  case NATIVE_NONE: break;
  }
  return NOT_NATIVE;
}

// Counts the signals of a call site; notes it at the first one, and names it once when it has raised enough of them: REQ_SITE.
static u32 count(struct Priv *p, struct Slot *s, u64 rip)
{
  // Two places for each site; the less busy of its two tenants makes room.
  u64 hash = rip * 0x9e3779b97f4a7c15ul, *h = &p->hot[hash >> 57], *other = &p->hot[hash >> 50 & 127];
  _Static_assert(sizeof p->hot == 128 * 8, "hot");
  if (*h >> 8 != rip) {
    if (*other >> 8 == rip || (*other & 0xff) < (*h & 0xff)) h = other;
    if (*h >> 8 != rip) *h = rip << 8;
  }
  if ((*h & 0xff) == HOT || rdgs() != (u64)s) return 0;
  if ((++*h & 0xff) == 1 && p->nfresh < MAX_FRESH) s->fresh[p->nfresh++] = rip;
  if ((*h & 0xff) != HOT) return 0;
  s->hot = rip;
  return REQ_SITE;
}

void stub_sigsys(int sig, struct siginfo *si, struct ucontext *uc)
{
  struct Priv *p = my_priv();
  struct Slot *s = slot_of(p);
  save(s, uc);
  s->regs[ORIG_RAX] = s->regs[RAX] = (long)si->nr;
  if (si->arch != AUDIT_ARCH_X86_64) { serve(p, s, uc, REQ_INT80); return; }
  u32 hot = count(p, s, uc->rip);
  switch (native(p, s)) {
  case ANSWERED:
    uc->rax = s->regs[RAX];
    if (hot) { save(s, uc); serve(p, s, uc, REQ_HOT | hot); }
    return;
  case INTERRUPTED: serve(p, s, uc, REQ_FUTEX); return;
  case TOLD: serve(p, s, uc, REQ_TOLD); return;
  }
  if (p->nfresh) { s->nfresh = p->nfresh; p->nfresh = 0; hot |= REQ_FRESH; }     // sites noted since the last time
  serve(p, s, uc, REQ_SYSCALL | hot | capture(s, si->nr));
}

// Asks the host for a frame that holds the guest's extended state; goes on in stub_sigfault, never here.
static void __attribute__((noreturn)) get_frame(struct Priv *p, u32 why)
{
  p->frame = why;
  ((void (*)(void))stub_frame_trap)();
  __builtin_unreachable();
}

// Some actions need a frame, and so does showing the extended state.
static int needs_frame(struct Slot *s)
{
  u32 n = s->nact;
  if (!n) return s->xstate_size != 0;
  for (u32 i = 0; i < n && i < MAX_ACTIONS; i++)
    if (s->act[i].op == ACT_XSTATE) return 1;
  return 0;
}

// A call from a rewritten site, its registers in the slot. Returns when the guest can go on after the site
// with rax changed at most.
__attribute__((used)) void stub_fast(struct Priv *p, struct Slot *s)
{
  u64 *g = s->regs, rip = g[RIP], flags = g[EFLAGS];
  g[ORIG_RAX] = g[RAX] = (long)(int)g[RAX];
  g[FS_BASE] = rdfs();
  g[GS_BASE] = 0;
  s->fpstate = 0;
  u32 what = REQ_FUTEX;
  switch (native(p, s)) {
  case ANSWERED: return;
  case TOLD: what = REQ_TOLD; break;
  case NOT_NATIVE: what = REQ_SYSCALL | capture(s, g[RAX]);
  }
  handoff(p, s, what);
  for (;;) {
    u32 cmd = command(s);
    if (cmd == CMD_EXIT) { run_actions(p, s, 0, 1); let_go(p); sc(SYS_exit, 0, 0, 0, 0, 0, 0); }
    if (needs_frame(s)) get_frame(p, FRAME_OBEY);
    int r = run_actions(p, s, 0, 0);
    if (r == ACTIONS_FAILED) { handoff(p, s, REQ_FAILED); continue; }
    if (r == ACTIONS_CHILD) { await_answer(p, s, 1, cpu(s)); s->fpstate = 0; continue; }
    if (cmd == CMD_RETURN) { g[RAX] = s->ret; break; }
    if (cmd == CMD_RESUME) break;
    handoff(p, s, REQ_DONE);
  }
  // Other registers than rax change together with rip only (a signal, a restart) or with the extended state. Flags
  // that need care: trap, direction, alignment check and all the rest but the arithmetic ones.
  int moved = g[RIP] != rip || g[EFLAGS] != flags;
  if ((g[EFLAGS] & ~0x8d5ul) != 0x202 || g[GS_BASE]) get_frame(p, FRAME_RESUME);
  if (moved && (g[RCX] != g[RIP] || g[R11] != g[EFLAGS] || g[RIP] >= STUB_TEXT)) get_frame(p, FRAME_RESUME);
  if (rdfs() != g[FS_BASE]) wrfs(g[FS_BASE]);
  if (!moved) return;
  ((void (*)(void))stub_fast_jump)();
  __builtin_unreachable();
}

// ---- exceptions and interrupts ------------------------------------------------

// The guest comes to an instruction after its `syscall` that the jump of a rewritten site displaced, where the jump has an
// invalid opcode: to the same instruction in the trampoline. The trampoline names the address after the `syscall`, so anything
// else is the guest's own fault.
static int back_into_site(struct ucontext *uc)
{
  u64 named;
  u8 site[5];
  int rel;
  for (u64 done = 0; done < 3; done++) {
    u64 rip = uc->rip - done;
    if (rip < 4096 || rip >= STUB_TEXT || stub_copy((u64)site, rip - 2, 5) || site[0] != 0xe9) continue;
    __builtin_memcpy(&rel, site + 1, 4);
    u64 tramp = rip + 3 + rel;
    if (tramp & (TRAMP_SIZE - 1) || tramp >= STUB_TEXT || stub_copy((u64)&named, tramp + TRAMP_RIP, 8) || tramp + named != rip) continue;
    uc->rip = tramp + TRAMP_BACK + done;
    return 1;
  }
  return 0;
}

// A guest that executes step by step, in a trampoline: the displaced head counts as one step, then the call is made by
// signal. The jump at the trampoline's end is none of the guest's instructions. 1: nothing to report, the guest has not
// executed an instruction of its own.
static int step_in_site(struct ucontext *uc)
{
  u64 tramp = uc->rip & ~(u64)(TRAMP_SIZE - 1), words[3], offset = uc->rip - tramp;
  if (uc->rip >= STUB_TEXT || stub_copy((u64)words, tramp + TRAMP_ENTRY, 24) || words[0] != STUB_FAST) return 0;
  if (offset > TRAMP_BACK && offset < TRAMP_ENTRY - 4) {
    u8 op;
    int rel;
    if (stub_copy((u64)&op, uc->rip, 1) || op != 0xe9 || stub_copy((u64)&rel, uc->rip + 1, 4)) return 0;
    uc->rip += 5 + rel;
    return 0;
  }
  if (offset >= TRAMP_CALL) return 0;
  int tail = words[2] == TRAMP_CALL;
  if (!tail && !offset) return 1;
  uc->rip = tramp + words[2];
  return tail;
}

void stub_sigfault(int sig, struct siginfo *si, struct ucontext *uc)
{
  u64 rip = uc->rip;
  if (rip - STUB_TEXT < STUB_TEXT_SIZE) {
    // A guest that has its alignment checked; the way back gives it its flags again.
    if (uc->trapno == 17) { uc->eflags &= ~(1ul << 18); return; }
    if (in(rip, stub_copy_begin, stub_copy_end)) { uc->rip = (u64)stub_copy_end; return; }
    if (in(rip, stub_string_begin, stub_string_end)) { uc->rip = (u64)stub_string_end; return; }
    if (in(rip, stub_store_begin, stub_store_end)) { uc->rip = (u64)stub_store_end; return; }
    if (in(rip, stub_xsave_begin, stub_xsave_end)) { uc->rip = (u64)stub_xsave_end; return; }
    if (in(rip, stub_xrstor_begin, stub_xrstor_end)) { uc->rip = (u64)stub_xrstor_end; return; }
    if (in(rip, stub_swap_begin, stub_swap_end)) { uc->rip = (u64)stub_swap_end; return; }
    if (in(rip, stub_cmpxchg_begin, stub_cmpxchg_end)) { uc->rip = (u64)stub_cmpxchg_end; return; }
  }
  struct Priv *p = my_priv();
  struct Slot *s = slot_of(p);
  if (rip == (u64)stub_first_trap) {                      // the frame of a new thread
    uc->sigmask = 0;
    if (p->announce) {
      p->announce = 0;
      s->fpstate = uc->fpstate;
      s->result = p->listener;
      handoff(p, s, REQ_READY);
    } else {
      await_answer(p, s, 1, cpu(s));
      s->fpstate = uc->fpstate;
    }
    obey(p, s, uc);
    return;
  }
  if (rip == (u64)stub_frame_trap) {
    s->fpstate = uc->fpstate;
    if (p->frame == FRAME_OBEY) obey(p, s, uc);
    else load_regs(p, s, uc);
    return;
  }
  if (si->code <= 0) return;                              // sent, not raised: nobody in the sandbox can
  // The stub itself: somebody pulled its floor away.
  if (rip - STUB_TEXT < STUB_TEXT_SIZE && uc->rsp - (u64)p < STACK_SIZE) sc(SYS_exit_group, 1, 0, 0, 0, 0, 0);
  if (sig == 4 && back_into_site(uc)) return;
  if (sig == 5 && si->code == 2 && step_in_site(uc)) return;
  save(s, uc);
  s->fault_signo = sig;
  s->fault_code = si->code;
  s->fault_addr = si->addr;
  s->fault_trapno = uc->trapno;
  s->fault_err = uc->err;
  serve(p, s, uc, REQ_FAULT);
}

void stub_sigintr(int sig, struct siginfo *si, struct ucontext *uc)
{
  struct Priv *p = my_priv();
  u64 rip = uc->rip;
  if (rip - STUB_TEXT < STUB_TEXT_SIZE) {
    if (in(rip, stub_fast_entry, stub_known_end)) {
      // Nothing has happened yet: the call starts again at its trampoline.
      struct Slot *s = slot_of(p);
      if (rip >= (u64)stub_number_begin) uc->rax = s->regs[RAX];
      if (rip >= (u64)stub_known_begin) uc->eflags = (uc->eflags & ~0x8d5ul) | (s->flags >> 8 & 0xd5) | (s->flags & 1) << 11;
      uc->rip = uc->r11;
      save(s, uc);
      serve(p, s, uc, REQ_INTERRUPT);
      return;
    }
    p->pending = 1;
    if (in(rip, stub_fast_exit, stub_fast_exit_end)) uc->rip = (u64)stub_fast_exit;
    else if (in(rip, stub_fast_jump, stub_fast_jump_end)) uc->rip = (u64)stub_fast_jump;
    else if (in(rip, stub_restorer, stub_restorer_end)) uc->rip = (u64)stub_restorer;
    else if (in(rip, stub_futex_begin, stub_futex_end)) uc->rip = (u64)stub_futex_abort;
    return;
  }
  struct Slot *s = slot_of(p);
  save(s, uc);
  serve(p, s, uc, REQ_INTERRUPT);
}

// Called by the restorer: an interrupt came while the stub was at work.
__attribute__((used)) void stub_pending(struct ucontext *uc)
{
  struct Priv *p = my_priv();
  struct Slot *s = slot_of(p);
  p->pending = 0;
  save(s, uc);
  serve(p, s, uc, REQ_INTERRUPT);
}

// ---- zygote ---------------------------------------------------------------------

static void handle(int sig, u64 handler)
{
  // SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_NODEFER: nothing is ever blocked, nothing restarts.
  struct ksigaction sa = { handler, 4 | 0x04000000 | 0x08000000 | 0x40000000, (u64)stub_restorer, 0 };
  sc(SYS_rt_sigaction, sig, (u64)&sa, 0, 8, 0, 0);
}

// struct prctl_mm_map
struct mm_map { u64 code, code_end, data, data_end, brk, brk_end, stack, arg, arg_end, env, env_end, auxv; u32 auxv_size, exe; };

// Has the host's process lists read the command line from the first private stack, which forks copy like all memory. A
// host that refuses shows none. The host reads there as it does with any process: private anonymous memory only, never waiting.
static void show_title(struct Priv *p)
{
  u64 end = (u64)&p->title_end + 1, here = (u64)p;
  static const char none[] = "ringfence stub";
  stub_copy((u64)p->title, (u64)none, sizeof none);
  p->title_end = 1;
  struct mm_map m = { STUB_TEXT, STUB_TEXT + STUB_TEXT_SIZE, here, here, here, here, here, (u64)p->title, end, end, end, 0, 0, ~0u };
  sc(SYS_prctl, 35, 14, (u64)&m, sizeof m, 0, 0);                                  // PR_SET_MM, PR_SET_MM_MAP
}

static void fail(int status) { sc(SYS_exit_group, status, 0, 0, 0, 0, 0); __builtin_trap(); }

// In its final place, on private stack 0. Drops the rest of the temporary mapping, installs handlers and filter.
__attribute__((used)) static void zygote_stage2(struct ZygoteArgs *a)
{
  struct Priv *p = my_priv();
  p->seq = FIRST_SEQ;
  p->announce = 1;
  for (int sig = 1; sig <= 64; sig++) {
    struct ksigaction ign = { 1, 0x04000000, (u64)stub_restorer, 0 };              // SIG_IGN: a terminal's Ctrl-C is not for us
    sc(SYS_rt_sigaction, sig, (u64)&ign, 0, 8, 0, 0);
  }
  handle(31, (u64)stub_sigsys);
  handle(11, (u64)stub_sigfault);
  handle(7, (u64)stub_sigfault);
  handle(4, (u64)stub_sigfault);
  handle(5, (u64)stub_sigfault);
  handle(8, (u64)stub_sigfault);
  handle(INTERRUPT_SIGNAL, (u64)stub_sigintr);
  show_title(p);
  u64 none = 0;
  sc(SYS_rt_sigprocmask, 2, (u64)&none, 0, 8, 0, 0);
  sc(SYS_close, a->text_fd, 0, 0, 0, 0, 0);
  sc(SYS_close, a->slot_fd, 0, 0, 0, 0, 0);
  struct { u16 len; u64 filter; } prog = { a->filter_len, (u64)(a + 1) };
  // SECCOMP_SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE_RECV
  long fd = sc(SYS_seccomp, 1, 8 | 32, (u64)&prog, 0, 0, 0);
  if (fd < 0) fail(14);
  p->listener = fd;
  sc(SYS_munmap, TEMP_TEXT, TEMP_END - TEMP_TEXT, 0, 0, 0, 0);
  wrfs(0);
  wrgs(0);
  stub_thread_start();
}

// Entered in the temporary mapping with the address of its ZygoteArgs, which stand in that mapping.
__attribute__((used)) void zygote_main(struct ZygoteArgs *a)
{
  u64 n = a->map_count, i;
  if (!a->map_stay)
    for (i = 0; i < n; i++) {                              // order and distances kept; mremap's flags: MAYMOVE | FIXED
      u64 to = TEMP_VDSO + (a->map_start[i] - a->map_start[0]);
      long r = sc(SYS_mremap, a->map_start[i], a->map_len[i], a->map_len[i], 3, to, 0);
      if (is_error(r)) { if (i) fail(10); a->map_stay = 1; break; }
    }
  u64 at = TEMP_END;
  sc(SYS_munmap, 0, TEMP_TEXT, 0, 0, 0, 0);
  if (a->map_stay)
    for (i = 0; i < n; i++) {                              // sorted by address
      if (a->map_start[i] > at) sc(SYS_munmap, at, a->map_start[i] - at, 0, 0, 0, 0);
      at = a->map_start[i] + a->map_len[i];
    }
  sc(SYS_munmap, at, TASK_END - at, 0, 0, 0, 0);
  // MAP_PRIVATE | MAP_FIXED_NOREPLACE; a mapping that stayed in place there is fatal
  long r = sc(SYS_mmap, STUB_TEXT, STUB_TEXT_SIZE, 5, 0x100002, a->text_fd, 0);
  if (r != (long)STUB_TEXT) fail(11);
  r = sc(SYS_mmap, SLOT_BASE, NSLOTS * SLOT_SIZE, 3, 0x100001, a->slot_fd, 0);
  if (r != (long)SLOT_BASE) fail(12);
  r = sc(SYS_mmap, STACK_BASE, NSLOTS * STACK_SIZE, 3, 0x100000 | 0x4022, -1, 0);
  if (r != (long)STACK_BASE) fail(13);
  sc(SYS_madvise, STACK_BASE, NSLOTS * STACK_SIZE, 15, 0, 0, 0);   // MADV_NOHUGEPAGE: a stack touches two pages of its 64 KiB
  if (!a->map_stay)
    for (i = 0; i < n; i++) {
      u64 off = a->map_start[i] - a->map_start[0];
      r = sc(SYS_mremap, TEMP_VDSO + off, a->map_len[i], a->map_len[i], 3, STUB_VDSO + off, 0);
      if (is_error(r)) fail(15);
    }
  stub_jump(stack_top(0), (u64)a, (u64)zygote_stage2 - TEMP_TEXT + STUB_TEXT);
}
