//! The life of a guest thread: run, serve, deliver signals, run again.

use crate::current::Current;
use crate::result::{Restart, SysErr};
use crate::send::Sender;
use abi::{Errno, SigInfo, SigSet, Signal};
use platform::{Exit, Fault};
use ranked::Mutex;
use signal::TrapInfo;
use signal::{DefaultAction, SIG_DFL, SIG_IGN, SigAction, default_action};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SendError, sync_channel};
use wait::Events;

/// si_code of a fault at an address where nothing is mapped.
const SEGV_MAPERR: i32 = 1;

/// Whether the thread goes on.
enum Flow {
    Resume,
    Leave,
}

/// Starts the sentry thread of a guest thread. EAGAIN when there are too many, or the host has no thread left: it is then as if
/// the guest thread had never been.
pub fn start(c: Current) -> abi::Result<()> {
    let kernel = c.kernel().clone();
    if !kernel.thread_starts() {
        crate::exit::abandon(c);
        return Err(Errno::EAGAIN);
    }
    let idle = kernel.idle.lock().pop();
    let c = match idle {
        Some(worker) => match worker.send(c) {
            Ok(()) => return Ok(()),
            Err(SendError(c)) => c,
        },
        None => c,
    };
    // A thread that cannot be made drops what it was to run, and the task must outlive that.
    let handed = Arc::new(<Mutex<_>>::new(Some(c)));
    let taken = handed.clone();
    let body = move || {
        let c = taken.lock().take();
        drop(taken);
        if let Some(c) = c {
            work(c);
        }
    };
    let spawned = std::thread::Builder::new().name("task".into()).stack_size(512 << 10).spawn(body);
    if let Err(e) = spawned {
        log::warn!("no thread for a guest thread: {e}");
        let c = handed.lock().take();
        if let Some(c) = c {
            crate::exit::abandon(c);
        }
        kernel.thread_ended();
        return Err(Errno::EAGAIN);
    }
    Ok(())
}

/// How many threads without a task are kept.
const MAX_IDLE: usize = 16;

/// A thread's life: one task after another.
fn work(mut c: Current) {
    hostsys::cpu::roam();
    loop {
        let kernel = c.kernel().clone();
        c.task.host_tid.store(hostsys::clock::gettid(), Ordering::Relaxed);
        run(c);
        let (tx, rx) = sync_channel(1);
        let stay = {
            let mut idle = kernel.idle.lock();
            let room = idle.len() < MAX_IDLE;
            if room {
                idle.push(tx);
            }
            room
        };
        kernel.thread_ended();
        drop(kernel);
        if !stay {
            // Our own end of the channel would keep the wait below from ever ending.
            return;
        }
        match rx.recv() {
            Ok(next) => c = next,
            Err(_) => return,
        }
        let used = hostsys::clock::gettime_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0) as u64;
        c.task.cpu_base.store(used, Ordering::Relaxed);
    }
}

fn run(mut c: Current) {
    c.task.set_interrupter(Some(c.ctx.interrupter()));
    // A new context does not inherit it in full.
    c.report_all = false;
    c.ctx.set_report_all(false);
    c.sync_report_all();
    c.tell_platform();
    let calls = c.kernel().calls.clone();
    if c.init {
        crate::own_init::run(&mut c);
        c.ptrace_exit();
        crate::exit::leave(c);
        return;
    }
    loop {
        if c.exit_code.is_some() {
            break;
        }
        park_frozen(&c);
        if (c.task.waiter.interrupted() || c.restart.is_some() || c.saved_mask.is_some())
            && let Flow::Leave = handle_pending(&mut c)
        {
            break;
        }
        if c.wait_for_processor_time() {
            continue;
        }
        c.begin_step();
        let exit = c.ctx.run();
        let stepped = c.end_step();
        if !matches!(exit, Exit::ActionFailed { .. }) {
            c.mm.settle();
            c.settle_transfer();
        }
        improve_text(&mut c);
        if c.report_all && matches!(exit, Exit::Interrupted | Exit::Fault(_)) {
            // A futex call that was passed on has not been made: it is reported again.
            c.ctx.set_report_all(true);
        }
        match exit {
            Exit::Syscall => calls.dispatch(&mut c),
            Exit::Fault(f) if stepped && c.stepped_for_watch(f.signo, f.code) => {}
            Exit::Fault(f) if f.signo == libc::SIGSEGV && f.code == SEGV_MAPERR && grows(&mut c, f.addr) => {}
            Exit::Fault(f) => fault(&mut c, &f),
            Exit::Interrupted => {
                c.kernel().interrupts.fetch_add(1, Ordering::Relaxed);
                c.task.waiter.set_interrupted(true);
                c.futex_passed(true);
            }
            Exit::FutexInterrupted => {
                c.set_result(Err(SysErr::Restart(Restart::Sys)));
                c.task.waiter.set_interrupted(true);
                c.futex_passed(false);
            }
            Exit::FutexDone => c.futex_passed(false),
            Exit::ActionFailed { errno, .. } => {
                // A transfer, a copy, or a change of mappings that nobody else could have seen.
                if !c.take_back_transfer() {
                    c.ctx.set_rax(c.mm.refused(errno));
                }
            }
            Exit::Dead => {
                let mut s = c.task.group.signals.lock();
                crate::send::kill_group(&c.task.group, &mut s, Signal::SIGKILL.raw());
                break;
            }
        }
    }
    c.ptrace_exit();
    crate::exit::leave(c);
}

/// Rests while the container is frozen.
pub(crate) fn park_frozen(c: &Current) {
    if c.task.group.container.is_frozen() {
        crate::container_tasks::park_while_frozen(c);
    }
}

/// Deals with what has interrupted an init of the kernel's own; false when it is to end.
pub(crate) fn handle_pending_for_init(c: &mut Current) -> bool {
    matches!(handle_pending(c), Flow::Resume)
}

/// Has the platform change the program's text where calls came from that cost more than they need.
fn improve_text(c: &mut Current) {
    let Some(rewriter) = c.ctx.rewriter() else { return };
    let (sites, hot) = (rewriter.new_sites(), rewriter.hot_site());
    if !sites.is_empty() {
        let first = c.task.group.container.index() == 0;
        c.mm.note_sites(c.ctx.as_mut(), &sites, first);
    }
    if let Some(site) = hot {
        c.mm.rewrite(c.ctx.as_mut(), site);
    }
}

/// Grows a stack down to an address that is not mapped; the instruction is then tried again.
fn grows(c: &mut Current, addr: u64) -> bool {
    let mm = c.mm.clone();
    c.with_context(|cx, ctx| mm.grow_down(cx, ctx, addr))
}

fn fault(c: &mut Current, f: &Fault) {
    let Some(sig) = Signal::new(f.signo) else { return };
    let info = SigInfo::fault(sig, f.code, f.addr);
    let (rip, rsp) = {
        let r = c.ctx.regs();
        (r.rip, r.rsp)
    };
    log::debug!("[{}] {f:x?} at {rip:#x}, sp {rsp:#x}", c.task.tid());
    force(c, info, TrapInfo { trapno: f.trapno, err: f.err, cr2: f.addr });
}

/// Delivers a signal that cannot be postponed: blocked or ignored, it is fatal.
pub(crate) fn force(c: &mut Current, info: SigInfo, trap: TrapInfo) {
    let Some(info) = seen_by_tracer(c, info) else { return };
    let Some(sig) = Signal::new(info.signo) else { return };
    let act = take_action(c, sig);
    if c.task.blocked().has(sig) || act.handler == SIG_IGN || act.handler == SIG_DFL {
        die(c, &info);
        return;
    }
    if !deliver(c, sig, &act, info, trap) {
        die(c, &SigInfo::new(Signal::SIGSEGV, libc::SI_KERNEL));
    }
}

/// A forced signal as the tracer lets it through. The signal has its default action then, if it was blocked or ignored.
fn seen_by_tracer(c: &mut Current, info: SigInfo) -> Option<SigInfo> {
    let sig = Signal::new(info.signo)?;
    if !c.task.trace.is_traced() {
        return Some(info);
    }
    let blocked = c.task.blocked();
    let handlers = c.task.group.handlers();
    let ignored = handlers.lock().get(sig).handler == SIG_IGN;
    if blocked.has(sig) || ignored {
        handlers.lock().set(sig, SigAction { handler: SIG_DFL, ..SigAction::default() });
        c.task.set_blocked(blocked.minus(SigSet::of(sig)));
    }
    c.ptrace_signal(info)
}

/// Ends the process with a signal's default action, after its core file was written if it makes one.
fn die(c: &mut Current, info: &SigInfo) {
    let Some(sig) = Signal::new(info.signo) else { return };
    log::debug!("[{}] killed by {} at {:#x}", c.task.tid(), abi::signal::name(sig), c.ctx.regs().rip);
    // Another thread may be about to end the process with a core file of its own.
    c.join_gathering();
    let core = default_action(sig) == DefaultAction::Core && !c.dying();
    let calls = c.kernel().calls.clone();
    let dumped = core && calls.dump_core(c, info);
    let mut s = c.task.group.signals.lock();
    let bit = if dumped { 0x80 } else { 0 };
    crate::send::kill_group(&c.task.group, &mut s, sig.raw() | bit);
    drop(s);
    c.task.waiter.set_interrupted(true);
}

/// The action for a signal that is delivered now. It is read once, as another thread may change it at any time, and
/// SA_RESETHAND takes effect under the same lock.
fn take_action(c: &Current, sig: Signal) -> SigAction {
    let handlers = c.task.group.handlers();
    let mut table = handlers.lock();
    let act = table.get(sig);
    if act.flags & libc::SA_RESETHAND as u64 != 0 && act.handler != SIG_IGN && act.handler != SIG_DFL {
        table.set(sig, SigAction { handler: SIG_DFL, ..act });
    }
    act
}

/// Sets up the frame of a handler. False when the stack cannot take it.
fn deliver(c: &mut Current, sig: Signal, act: &SigAction, info: SigInfo, trap: TrapInfo) -> bool {
    // What the call still has to do in the guest's memory can fail, and the frame holds its result.
    match c.ctx.flush() {
        Ok(()) => {
            c.mm.settle();
            c.settle_transfer();
        }
        Err(Errno::ESRCH) => {}
        Err(_) if c.take_back_transfer() => {}
        Err(errno) => c.ctx.set_rax(c.mm.refused(errno)),
    }
    // An interrupted call is resolved before the frame saves the registers.
    if let Some(k) = c.restart.take() {
        let again = match k {
            Restart::Sys => act.flags & libc::SA_RESTART as u64 != 0,
            Restart::NoIntr => true,
            Restart::NoHand | Restart::Block => false,
        };
        if again {
            let r = c.ctx.regs_mut();
            r.rax = r.orig_rax;
            r.rip = r.rip.wrapping_sub(2);
        }
    }
    let mask = c.saved_mask.take().unwrap_or(c.task.blocked());
    if c.push_frame(act, &info, mask, trap).is_err() {
        return false;
    }
    let mut blocked = c.task.blocked().union(act.mask);
    if act.flags & libc::SA_NODEFER as u64 == 0 {
        blocked.add(sig);
    }
    c.task.set_blocked(blocked);
    c.stepped_into_handler();
    true
}

/// Deals with everything that wants the thread's attention before it resumes.
fn handle_pending(c: &mut Current) -> Flow {
    c.sync_report_all();
    if c.task.own_timers.swap(false, Ordering::SeqCst) {
        c.look_at_own_timers();
    }
    loop {
        c.task.waiter.set_interrupted(false);
        c.task.undoom();
        c.join_gathering();
        if c.dying() {
            return Flow::Leave;
        }
        if c.task.trace.is_traced() {
            if c.ptrace_trap() {
                continue;
            }
        } else {
            if let Flow::Leave = park_while_stopped(c) {
                return Flow::Leave;
            }
            // A tracer may have attached meanwhile: its stop comes before any signal.
            if c.task.trace.is_traced() {
                continue;
            }
        }
        if c.stand_still() {
            continue;
        }
        let Some((mut info, continues)) = dequeue(c) else { break };
        if c.task.trace.is_traced() && info.signo != libc::SIGKILL {
            match c.ptrace_signal(info) {
                Some(changed) => info = changed,
                None => continue,
            }
        }
        let Some(sig) = Signal::new(info.signo) else { continue };
        let act = take_action(c, sig);
        match act.handler {
            SIG_IGN => continue,
            SIG_DFL => match default_action(sig) {
                DefaultAction::Ignore | DefaultAction::Continue => continue,
                // It was blocked when it was sent, else it had been dropped then.
                _ if c.task.group.is_immune(sig, Sender::of(&info, false)) => continue,
                DefaultAction::Stop => stop(c, sig, continues),
                DefaultAction::Terminate | DefaultAction::Core => die(c, &info),
            },
            _ => {
                if !deliver(c, sig, &act, info, TrapInfo::default()) {
                    // No room for the frame: that is a fault of its own, which may have a handler elsewhere.
                    match sig {
                        Signal::SIGSEGV => die(c, &SigInfo::new(sig, libc::SI_KERNEL)),
                        _ => c.force_signal(Signal::SIGSEGV, libc::SI_KERNEL),
                    }
                }
            }
        }
    }
    if let Some(k) = c.restart.take() {
        let r = c.ctx.regs_mut();
        r.rip = r.rip.wrapping_sub(2);
        r.rax = if k == Restart::Block { libc::SYS_restart_syscall as u64 } else { r.orig_rax };
    }
    c.restore_mask();
    // Restoring the mask may have made something deliverable.
    if c.task.waiter.interrupted() && c.task.has_deliverable() {
        return handle_pending(c);
    }
    Flow::Resume
}

/// Takes the next deliverable signal of the thread or its group.
pub(crate) fn dequeue_masked(c: &Current, allowed: SigSet) -> Option<SigInfo> {
    dequeue_counted(c, allowed).map(|(info, _)| info)
}

/// As [`dequeue_masked`], with the number of SIGCONTs so far.
fn dequeue_counted(c: &Current, allowed: SigSet) -> Option<(SigInfo, u32)> {
    let g = &c.task.group;
    let mut s = g.signals.lock();
    let own = c.task.pending.lock().take(allowed);
    let taken = own.or_else(|| s.shared.take(allowed));
    g.shared_set.store(s.shared.set().0, Ordering::SeqCst);
    c.task.note_pending();
    taken.map(|info| (info, s.continues))
}

fn dequeue(c: &Current) -> Option<(SigInfo, u32)> {
    if !c.task.has_deliverable() {
        return None;
    }
    dequeue_counted(c, SigSet::ALL.minus(c.task.blocked()))
}

/// Starts stopping the group, unless a SIGCONT has come since the signal was dequeued, when there had been `continues`.
/// Terminal stop signals do nothing to an orphaned group.
fn stop(c: &mut Current, sig: Signal, continues: u32) {
    let g = &c.task.group;
    if sig != Signal::SIGSTOP {
        let t = c.kernel().tree.lock();
        let orphaned = t.node(g.tgid).is_some_and(|n| t.is_orphaned(n.pgid(), None));
        if orphaned {
            return;
        }
    }
    let mut s = g.signals.lock();
    if s.continues != continues {
        return;
    }
    if s.begin_stop(sig) {
        for t in &s.threads {
            t.trace.group_stop_changed(t);
            t.kick();
        }
    } else if c.task.trace.is_traced() && s.stop.is_on() {
        // A tracer has had it go on in the stop: it stops again.
        c.task.trace.ask_to_stop();
    }
}

fn park_while_stopped(c: &mut Current) -> Flow {
    let g = c.task.group.clone();
    loop {
        let tell = {
            let mut s = g.signals.lock();
            if !s.stop.is_on() || c.task.trace.is_traced() {
                return Flow::Resume;
            }
            s.park(&c.task)
        };
        if let Some(sig) = tell {
            c.kernel().tell_parent_stopped(&g, sig);
        }
        c.task.cgroup.set_frozen(true);
        loop {
            let _ = c.task.waiter.sleep_uninterruptible(None);
            let s = g.signals.lock();
            if !s.stop.is_on() || !s.life.is_running() || c.task.trace.is_traced() {
                break;
            }
        }
        if c.dying() {
            return Flow::Leave;
        }
    }
}

impl Current {
    /// Waits for a signal out of `set` (sigtimedwait(2)); the signals are taken without running handlers.
    pub fn wait_signal(
        &mut self,
        set: SigSet,
        deadline: Option<std::time::Instant>,
    ) -> Result<SigInfo, crate::result::SysErr> {
        if let Some(i) = dequeue_masked(self, set) {
            return Ok(i);
        }
        self.task.awaited.store(set.0, Ordering::SeqCst);
        let got = loop {
            if let Some(i) = dequeue_masked(self, set) {
                break Ok(i);
            }
            match self.sleep(deadline) {
                Ok(()) => {}
                // One last look: the interruption may be the very signal, and a signal may have come with the deadline.
                Err(stop) => {
                    let none = match stop {
                        wait::Stop::TimedOut => Errno::EAGAIN,
                        wait::Stop::Interrupted => Errno::EINTR,
                    };
                    break dequeue_masked(self, set).ok_or(SysErr::Errno(none));
                }
            }
        };
        self.task.awaited.store(0, Ordering::SeqCst);
        got
    }

    /// Ends the process with a signal's default action.
    pub fn kill_by(&mut self, sig: Signal) {
        die(self, &SigInfo::new(sig, libc::SI_KERNEL));
    }

    /// A signal raised by the kernel on behalf of the running instruction (bad sigreturn frame).
    pub fn force_signal(&mut self, sig: Signal, code: i32) {
        force(self, SigInfo::new(sig, code), TrapInfo::default());
    }

    /// Sleeps until woken, interrupted or late; marks the thread sleeping for /proc.
    pub fn sleep(&self, deadline: Option<std::time::Instant>) -> Result<(), wait::Stop> {
        self.task.sleeping.store(true, Ordering::Relaxed);
        let r = self.task.waiter.sleep(deadline);
        self.task.sleeping.store(false, Ordering::Relaxed);
        r
    }

    /// Waits on a queue until `attempt` gives something; interrupted by signals.
    pub fn wait_on<T>(
        &self,
        queue: &wait::WaitQueue,
        deadline: Option<std::time::Instant>,
        attempt: impl FnMut() -> Option<T>,
    ) -> Result<T, wait::Stop> {
        self.task.sleeping.store(true, Ordering::Relaxed);
        let r = self.task.waiter.wait_on(queue, Events::ALL, deadline, attempt);
        self.task.sleeping.store(false, Ordering::Relaxed);
        r
    }
}
