//! A guest thread as the kernel drives it.

use crate::Inner;
use crate::actions::{Encoder, Job, StubDescriptor};
use crate::notify;
use crate::place::Place;
use crate::slot::{BRIEF_AT, SlotMap};
use crate::space::{Space, Thread};
use abi::{Errno, PAGE_SIZE, Result, page_down};
use hostsys::{cpu, process};
use platform::{
    Action, AddressSpace, Context, CopyArea, Exit, Fault, GuestMemory, Interrupt, KNOWN_CALLS, Recycled,
    Regs, Rewrite, Rewriter, Spawn, Transfer,
};
use smallvec::SmallVec;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use stub::layout as l;

mod begin;
mod extended;
mod handoff;
mod lending;
mod own_calls;
mod recycle;
mod rewriting;
mod spawn;

/// How long a sentry thread sleeps before it looks by itself whether its guest thread is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How much longer a spin lasts after the partner has just been woken.
const WAKING: u64 = 4;

/// Requests of a new program for which the sentry's thread spins as long: programs start with calls and some work in turn.
const YOUNG: u32 = 48;

/// The resume flag, which does nothing to the guest, but the stub sees that flags change.
const EFLAGS_RF: u64 = 1 << 16;

/// Calls by which the guest closes descriptors.
const CLOSES: [i64; 4] = [libc::SYS_close, libc::SYS_close_range, libc::SYS_dup2, libc::SYS_dup3];

/// The process has ended, or broke the protocol and was killed for it.
pub(crate) struct ProcessGone;

/// See [`Context`].
pub(crate) struct SystrapContext {
    inner: Arc<Inner>,
    thread: Arc<Thread>,
    /// See `partial`.
    regs: Regs,
    /// Of `regs` only number and arguments of a call have been read, and rax may have been set: the rest is what the stub
    /// has, and as most calls need no more it stays there.
    partial: bool,
    /// The guest thread has made a system call, as opposed to other exits and to a thread that has not run.
    called: bool,
    queue: Vec<Action>,
    /// A copy before everything in the queue: the guest's address, how many bytes, and where they are in the slot.
    copy: Option<(u64, usize, usize)>,
    /// The last answer had such a copy.
    copied: bool,
    /// The descriptor that the stub keeps while this is the only thread, until the guest closes one; and whether the stub is
    /// still to be told that it need not keep it any longer.
    kept: StubDescriptor,
    letting_go: bool,
    /// A transfer that the stub is to make last of all, and the number of a lent descriptor that it is to close first.
    lending: Option<lending::Lending>,
    closing: Option<usize>,
    /// Extended state to load before the next resume.
    xstate: Option<Vec<u8>>,
    /// Or to store in a signal frame, or to load from one, after what is queued.
    framed: Option<Job>,
    /// What `framed` was is among the jobs that are being made; and such a job has failed.
    framing: bool,
    frame_failed: bool,
    /// Guest memory captured with the last system call: address and length.
    windows: [(u64, usize); 2],
    /// Sequence number of the last request seen.
    last: u32,
    /// Requests still to be awaited without a spin, and how many that were after the last spin in vain.
    skip: u32,
    backoff: u32,
    /// The last answer had to wake the stub.
    woke: bool,
    /// Requests of a new program that are still awaited longer than others.
    young: u32,
    /// Where this thread was when it answered.
    cpu: u32,
    place: Place,
    /// The last exit's call site, if it is worth rewriting.
    hot: u64,
    /// Call sites that have raised their first signal.
    fresh: Vec<u64>,
    /// The guest thread runs already, after so many actions: see [`Context::begin`].
    begun: Option<usize>,
    /// For waits for requests to the listener, once there was one.
    bell: Option<notify::Bell>,
    /// The process empties its memory: see [`Context::recycle`].
    emptying: bool,
    /// It has served another program, which may still hold it, and has not begun to run this one.
    unproven: bool,
    /// Sleeps without an answer since then.
    sleeps: u32,
    /// Processor time of the process when it was told to empty its memory.
    posted_at: u64,
    ended: bool,
}

impl SystrapContext {
    /// A context with a stub thread that waits for its first answer.
    pub(crate) fn new(inner: Arc<Inner>, thread: Arc<Thread>, regs: Regs) -> SystrapContext {
        thread.space.contexts.fetch_add(1, SeqCst);
        SystrapContext {
            inner,
            thread,
            regs,
            partial: false,
            called: false,
            queue: Vec::new(),
            copy: None,
            copied: false,
            kept: StubDescriptor::default(),
            letting_go: false,
            lending: None,
            closing: None,
            xstate: None,
            framed: None,
            framing: false,
            frame_failed: false,
            windows: [(0, 0); 2],
            last: l::FIRST_SEQ,
            skip: 0,
            backoff: 0,
            woke: false,
            young: 0,
            cpu: cpu::current(),
            place: Place::default(),
            hot: 0,
            fresh: Vec::new(),
            begun: None,
            bell: None,
            emptying: false,
            unproven: false,
            sleeps: 0,
            posted_at: 0,
            ended: false,
        }
    }

    fn slot(&self) -> &SlotMap {
        &self.thread.slot
    }

    /// Prepares a slot for a new stub thread.
    pub(crate) fn init_slot(inner: &Inner, slot: &SlotMap, report_all: bool) {
        slot.req().store(l::FIRST_SEQ, Relaxed);
        slot.rsp().store(0, Relaxed);
        slot.nact().store(0, Relaxed);
        slot.fpstate().store(0, Relaxed);
        slot.hot().store(0, Relaxed);
        slot.xstate_size().store(0, Relaxed);
        slot.spin().store(inner.spin, Relaxed);
        slot.report_all().store(u32::from(report_all), Relaxed);
        for nr in KNOWN_CALLS {
            slot.known(nr).store(0, Relaxed);
        }
        slot.waiting().store(0, Relaxed);
        slot.rdpid().store(u32::from(cpu::has_rdpid()), Relaxed);
        // The new thread may spin for its first answer while this one, which gives it, is awake on another CPU.
        slot.cmd().store(cpu::current() << l::CPU_SHIFT, Relaxed);
        slot.alive().store(1, SeqCst);
    }

    /// The stub closes the descriptor that it keeps with the next answer.
    fn let_go(&mut self) {
        self.letting_go |= self.kept.0.take().is_some();
    }

    /// Puts the copy that comes first into the slot, or says that there is none.
    fn encode_copy(&mut self) {
        let letting_go = u32::from(std::mem::take(&mut self.letting_go));
        self.slot().let_go().store(letting_go, Relaxed);
        let (to, len, from) = self.copy.take().unwrap_or_default();
        self.copied = len != 0;
        let slot = self.slot();
        slot.copy_len().store(len as u32, Relaxed);
        if len != 0 {
            slot.copy_to().store(to, Relaxed);
            slot.copy_from().store(from as u32, Relaxed);
        }
    }

    /// Has the stub make the copy that comes first when its bytes are where those of the actions go; with `all` in any
    /// case. On failure the queue is dropped.
    fn flush_copy(&mut self, all: bool) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        if !self.copy.is_some_and(|(_, _, from)| all || from != BRIEF_AT) {
            return Ok(Ok(()));
        }
        let done = self.copy_now()?;
        if done.is_err() {
            self.queue.clear();
            (self.xstate, self.framed) = (None, None);
        }
        Ok(done)
    }

    /// A round of nothing but the copy that comes first.
    fn copy_now(&mut self) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        if self.copy.is_none() {
            return Ok(Ok(()));
        }
        self.slot().nact().store(0, Relaxed);
        self.round(&Encoder::new(&[], self.thread.index), Vec::new())
    }

    /// The queue as jobs, the extended state first; how many jobs come before the first action.
    fn take_jobs(&mut self) -> (SmallVec<[Job; 2]>, usize) {
        let mut jobs = SmallVec::new();
        jobs.extend(self.close_job());
        jobs.extend(self.xstate.take().map(Job::Xstate));
        let own = jobs.len();
        let space = &self.thread.space;
        jobs.extend(self.queue.drain(..).map(|action| held(space, &action).unwrap_or(Job::Action(action))));
        let framed = self.framed.take();
        self.framing = framed.is_some();
        jobs.extend(framed);
        self.lending_jobs(&mut jobs);
        (jobs, own)
    }

    /// There is nothing to be done but the copy that comes first.
    fn is_idle(&self) -> bool {
        let quiet = self.queue.is_empty() && self.xstate.is_none() && self.framed.is_none();
        quiet && self.lending.is_none() && self.closing.is_none()
    }

    fn flush_queue(&mut self) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        let done = self.flush_all();
        // Whatever asked for this has not failed.
        if std::mem::take(&mut self.framing) && matches!(done, Ok(Err(_))) {
            self.frame_failed = true;
            return Ok(Ok(()));
        }
        done
    }

    fn flush_all(&mut self) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        if self.is_idle() && self.copy.is_none() {
            return Ok(Ok(()));
        }
        if let Err(e) = self.flush_copy(self.is_idle())? {
            return Ok(Err(e));
        }
        let (jobs, own) = self.take_jobs();
        self.checked(&jobs, own)
    }

    fn checked(&mut self, jobs: &[Job], own: usize) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        if let Some((i, e)) = self.first_invalid(jobs) {
            if let Err(e) = self.flush_copy(true)? {
                return Ok(Err(e));
            }
            let before = self.report(jobs.get(..i).unwrap_or_default())?;
            return Ok(before.and(Err((i, e))).map_err(|(i, e)| (i.saturating_sub(own), e)));
        }
        Ok(self.report(jobs)?.map_err(|(i, e)| (i.saturating_sub(own), e)))
    }

    fn first_invalid(&self, jobs: &[Job]) -> Option<(usize, Errno)> {
        jobs.iter().enumerate().find_map(|(i, j)| j.check(&self.inner.limits).err().map(|e| (i, e)))
    }

    fn resume(&mut self) -> Result<Exit, ProcessGone> {
        if let Some(actions) = self.begun.take() {
            return self.first_exit(actions);
        }
        self.look_for_close();
        if self.is_idle() {
            self.slot().nact().store(0, Relaxed);
            return self.enter(&mut Encoder::new(&[], self.thread.index), 0, Vec::new());
        }
        if let Err((index, errno)) = self.flush_copy(false)? {
            return Ok(Exit::ActionFailed { index, errno });
        }
        let (jobs, own) = self.take_jobs();
        let mut encoder = Encoder::new(&jobs, self.thread.index);
        if self.first_invalid(&jobs).is_some() {
            return match self.checked(&jobs, own)? {
                Err((index, errno)) => Ok(Exit::ActionFailed { index, errno }),
                Ok(()) => Err(self.violation()),
            };
        }
        // Libraries are mapped piece by piece.
        let keeping = self.partial && self.regs.orig_rax == libc::SYS_mmap as u64 && self.alone();
        let mut fds = encoder.fill(&self.thread.slot, keeping.then_some(&mut self.kept));
        while !encoder.done() {
            if let Err((i, errno)) = self.round(&encoder, fds)? {
                return Ok(Exit::ActionFailed { index: i.saturating_sub(own), errno });
            }
            fds = encoder.fill(&self.thread.slot, keeping.then_some(&mut self.kept));
        }
        self.enter(&mut encoder, own, fds)
    }

    /// Has the guest run, after the actions that are in the slot. `own` jobs came before the kernel's first action.
    fn enter(
        &mut self,
        encoder: &mut Encoder<'_>,
        own: usize,
        mut fds: Vec<Arc<OwnedFd>>,
    ) -> Result<Exit, ProcessGone> {
        let uses_fds = !fds.is_empty();
        loop {
            if self.thread.interrupted() {
                // Interrupted before it began: what was queued is executed all the same.
                if (encoder.in_round() > 0 || self.copy.is_some())
                    && let Err((i, errno)) = self.round(encoder, fds)?
                {
                    return Ok(Exit::ActionFailed { index: i.saturating_sub(own), errno });
                }
                self.thread.take_pending();
                return Ok(Exit::Interrupted);
            }
            if uses_fds {
                self.thread.grants.lock().fds = std::mem::take(&mut fds);
            }
            self.let_run();
            let exit = self.next_exit(encoder, own);
            if uses_fds {
                self.thread.grants.lock().fds.clear();
            }
            if let Some(exit) = exit? {
                return Ok(exit);
            }
        }
    }

    /// Answers: the stub executes what is in the slot, and the guest thread runs.
    fn let_run(&mut self) {
        self.unproven = false;
        self.windows = [(0, 0); 2];
        self.encode_copy();
        let slot = &*self.thread.slot;
        if self.partial {
            slot.ret().store(self.regs.rax, Relaxed);
            self.thread.enter();
            self.post(l::CMD_RETURN);
        } else {
            slot.store_regs(&mut self.regs);
            self.thread.enter();
            self.post(l::CMD_RESUME);
        }
        // A thread that interrupted meanwhile has either seen that this thread runs, or is seen here.
        if self.thread.interrupted() {
            self.thread.tell();
        }
    }

    /// Waits for the guest thread's exit. `None`: a stale interrupt, to be resumed with nothing in the slot.
    fn next_exit(&mut self, encoder: &mut Encoder<'_>, own: usize) -> Result<Option<Exit>, ProcessGone> {
        let r = self.await_request();
        self.thread.leave();
        r?;
        let exit = self.exit_of(encoder, own)?;
        if exit.is_none() {
            encoder.forget();
            self.slot().nact().store(0, Relaxed);
        }
        Ok(exit)
    }

    /// Reads why the stub stopped. `None`: a stale interrupt, resume.
    fn exit_of(&mut self, encoder: &Encoder<'_>, own: usize) -> Result<Option<Exit>, ProcessGone> {
        let what = self.what();
        let slot = &*self.thread.slot;
        self.called = what & l::REQ_MASK == l::REQ_SYSCALL;
        if what & l::REQ_SITE != 0 {
            self.hot = slot.hot().load(Relaxed);
        }
        if what & l::REQ_FRESH != 0 {
            self.fresh = slot.fresh();
        }
        match what & l::REQ_MASK {
            l::REQ_SYSCALL => {
                let [nr, rdi, rsi, rdx, r10, r8, r9] = slot.call();
                let regs = &mut self.regs;
                (regs.orig_rax, regs.rax) = (nr, nr);
                (regs.rdi, regs.rsi, regs.rdx) = (rdi, rsi, rdx);
                (regs.r10, regs.r8, regs.r9) = (r10, r8, r9);
                self.partial = true;
                if what & l::REQ_CAPTURED != 0 {
                    self.windows = [slot.window(0), slot.window(1)];
                }
                if CLOSES.contains(&(nr as i64)) {
                    self.let_go();
                    self.thread.space.lent.end_all();
                }
                return Ok(Some(Exit::Syscall));
            }
            l::REQ_FAILED => {
                let (i, errno) = self.failure(encoder)?;
                return Ok(Some(Exit::ActionFailed { index: i.saturating_sub(own), errno }));
            }
            _ => self.load_regs(),
        }
        let slot = &*self.thread.slot;
        match what & l::REQ_MASK {
            l::REQ_INT80 => {
                // There is no 32-bit interface, so the instruction faults as on a host without it.
                self.regs.rip = self.regs.rip.wrapping_sub(2);
                self.regs.orig_rax = u64::MAX;
                let (signo, code) = (abi::libc::SIGSEGV, 128);
                Ok(Some(Exit::Fault(Fault { signo, code, addr: 0, trapno: 13, err: 0x80 * 8 + 2 })))
            }
            l::REQ_FAULT => {
                let signo = slot.fault_signo().load(Relaxed) as i32;
                if ![4, 5, 7, 8, 11].contains(&signo) {
                    return Err(self.violation());
                }
                // The thread came back from a call to a trampoline that another one has taken away.
                if signo == libc::SIGSEGV
                    && slot.fault_addr().load(Relaxed) == self.regs.rip
                    && let Some(own) = self.thread.space.sites.former_rip(self.regs.rip)
                {
                    self.regs.rip = own;
                    return Ok(None);
                }
                Ok(Some(Exit::Fault(Fault {
                    signo,
                    code: slot.fault_code().load(Relaxed) as i32,
                    addr: slot.fault_addr().load(Relaxed),
                    trapno: slot.fault_trapno().load(Relaxed),
                    err: slot.fault_err().load(Relaxed),
                })))
            }
            l::REQ_INTERRUPT => Ok(self.thread.take_pending().then_some(Exit::Interrupted)),
            l::REQ_HOT => Ok(Some(Exit::Interrupted)),
            l::REQ_TOLD => Ok(Some(Exit::FutexDone)),
            l::REQ_FUTEX => {
                if self.thread.take_pending() {
                    return Ok(Some(Exit::FutexInterrupted));
                }
                self.regs.rip = self.regs.rip.wrapping_sub(2);
                Ok(None)
            }
            _ => Err(self.violation()),
        }
    }

    /// Writes the trampoline, then the jump to it.
    fn rewrite_site(&mut self, rip: u64) -> Rewrite {
        let space = self.thread.space.clone();
        let alone = self.alone();
        let patch = match space.sites.plan(&*space, rip, alone) {
            Ok(p) => p,
            Err(r) => return r,
        };
        const RX: i32 = libc::PROT_READ | libc::PROT_EXEC;
        const RWX: i32 = RX | libc::PROT_WRITE;
        let protect =
            |addr: u64, prot| Job::Action(Action::Protect { addr: page_down(addr), len: PAGE_SIZE, prot });
        let write = |addr, data: &[u8]| Job::Action(Action::Write { addr, data: data.to_vec() });
        let swap = match patch.swap {
            Some((at, old, new)) => Job::Swap(at, old, new),
            None => write(patch.site, &patch.jump),
        };
        let jobs = [
            protect(patch.trampoline, RWX),
            write(patch.trampoline, &patch.code),
            protect(patch.trampoline, RX),
            protect(patch.site, RWX),
            swap,
            protect(patch.site, RX),
        ];
        match self.report(&jobs) {
            Ok(Ok(())) => Rewrite::Done { addr: patch.site, len: patch.jump.len() as u64 },
            Ok(Err((i, _))) => {
                // Whatever has been made writable must not stay so.
                let undo = if i < 3 { protect(patch.trampoline, RX) } else { protect(patch.site, RX) };
                let _ = self.report(&[undo]);
                space.sites.forget(&patch);
                Rewrite::Refused
            }
            Err(ProcessGone) => Rewrite::Refused,
        }
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // No code will read the rest.
        self.lending_done(false);
        // The thread may serve another context next.
        self.place.stay_anywhere(&self.inner.cpus);
        if self.unproven {
            // It may not do as it is told.
            self.thread.space.kill();
        }
        if self.unproven || self.stop_early().is_err() || self.thread.is_dead() {
            return;
        }
        self.inner.forget(&self.thread);
        // A failure has no effect any more; the queued actions are executed in any case.
        if self.copy_now().is_err() {
            return;
        }
        let (jobs, _) = self.take_jobs();
        let jobs: Vec<Job> = jobs.into_iter().filter(|j| j.check(&self.inner.limits).is_ok()).collect();
        let mut encoder = Encoder::new(&jobs, self.thread.index);
        loop {
            let fds = encoder.fill(&self.thread.slot, None);
            if encoder.done() {
                break;
            }
            if self.round(&encoder, fds).is_err() {
                return;
            }
        }
        let last = self.thread.space.contexts.fetch_sub(1, SeqCst) == 1;
        let leader = self.thread.tid == self.thread.space.process.pid;
        // The host reaches a process's memory through its first thread: when others are left it is parked,
        // unanswered, and then goes with the process.
        if last != leader {
            if encoder.in_round() > 0 && self.round(&encoder, Vec::new()).is_err() {
                return;
            }
            if last {
                self.thread.space.kill();
            }
            return;
        }
        self.encode_copy();
        self.post(l::CMD_EXIT);
        self.thread.space.give_back(self.thread.index);
    }
}

/// The mapping of a file when the process has its descriptor already.
fn held(space: &Space, action: &Action) -> Option<Job> {
    const FREE: i32 = libc::MAP_NORESERVE | libc::MAP_POPULATE;
    match action {
        Action::MapFile { addr, len, prot, flags, fd, offset } if flags & !FREE == libc::MAP_PRIVATE => {
            let number = space.held.number_of(fd)?;
            let flags = flags | libc::MAP_FIXED;
            Some(Job::MapHeld(number, [*addr, *len, *prot as u64, flags as u64, *offset]))
        }
        _ => None,
    }
}

impl Context for SystrapContext {
    fn space(&self) -> Arc<dyn AddressSpace> {
        self.thread.space.clone()
    }
    fn rewriter(&mut self) -> Option<&mut dyn Rewriter> {
        Some(self)
    }

    fn call(&mut self) -> (u64, [u64; 6]) {
        (self.regs.orig_rax, self.regs.args())
    }

    fn set_rax(&mut self, value: u64) {
        self.regs.rax = value;
    }

    fn regs(&mut self) -> &Regs {
        self.load_rest();
        &self.regs
    }

    fn regs_mut(&mut self) -> &mut Regs {
        self.load_rest();
        &mut self.regs
    }

    fn run(&mut self) -> Exit {
        let exit = match std::mem::take(&mut self.frame_failed) {
            true => Exit::FrameFailed,
            false => self.resume().unwrap_or(Exit::Dead),
        };
        let framing = std::mem::take(&mut self.framing);
        let exit =
            if framing && matches!(exit, Exit::ActionFailed { .. }) { Exit::FrameFailed } else { exit };
        self.lending_done(!matches!(exit, Exit::ActionFailed { .. } | Exit::FrameFailed | Exit::Dead));
        exit
    }

    fn begin(&mut self) -> bool {
        self.start_early()
    }

    fn queue(&mut self, action: Action) {
        match action {
            // Part of the registers; refused later like any other action when the value is impossible.
            Action::SetFsBase(v) if v < self.inner.limits.max => self.regs_mut().fs_base = v,
            Action::SetGsBase(v) if v < self.inner.limits.max => self.regs_mut().gs_base = v,
            _ => {}
        }
        self.queue.push(action);
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = self.flush_queue();
        self.lending_done(matches!(flushed, Ok(Ok(()))));
        match flushed {
            Err(ProcessGone) => Err(Errno::ESRCH),
            Ok(r) => r.map_err(|(_, e)| e),
        }
    }

    fn prompt(&self) -> bool {
        let slot = self.slot();
        self.skip == 0 && slot.rsp().load(Relaxed) & l::SLEEP == 0 && slot.stub_cpu() != cpu::current()
    }

    fn alone(&self) -> bool {
        self.thread.space.contexts.load(SeqCst) == 1
    }

    fn spawn(&mut self, how: Spawn) -> Result<Box<dyn Context>> {
        self.flush()?;
        let new = match how {
            Spawn::Thread => self.spawn_thread()?,
            Spawn::Fork => self.spawn_fork(true)?,
        };
        Ok(Box::new(new))
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.thread.clone()
    }

    fn set_report_all(&mut self, on: bool) {
        self.slot().report_all().store(if on { l::REPORT_ALL } else { 0 }, Relaxed);
        self.thread.answers.lock().report_all = on;
        self.thread.set_answers(&[]);
    }

    fn patch_vdso(&mut self, addr: u64, data: &[u8]) -> Result<()> {
        let (start, len) = self.inner.limits.vdso.ok_or(Errno::EINVAL)?;
        platform::within(addr, data.len(), (start, len)).ok_or(Errno::EINVAL)?;
        self.flush()?;
        self.thread.space.set_changed();
        let protect = |prot: i32| [start, len, prot as u64, 0, 0, 0];
        self.host_call(libc::SYS_mprotect, protect(libc::PROT_READ | libc::PROT_WRITE))?;
        let written = self.thread.space.process.while_alive(|pid| process::vm_write(pid, addr, data));
        self.host_call(libc::SYS_mprotect, protect(libc::PROT_READ | libc::PROT_EXEC))?;
        if written? == data.len() { Ok(()) } else { Err(Errno::EFAULT) }
    }

    fn pass_futex(&mut self, tell: bool, timeout: Option<[u64; 2]>) -> bool {
        let native = platform::native_futex(self.regs.orig_rax, &self.regs.args()).is_some();
        if !native || self.slot().report_all().load(Relaxed) == 0 {
            return false;
        }
        let report = if tell { l::REPORT_NEXT_DONE } else { l::REPORT_NEXT_NOT };
        let timed = timeout.map_or(0, |t| {
            self.slot().set_timeout(t);
            l::REPORT_TIMED
        });
        self.slot().report_all().store(report | timed, Relaxed);
        self.load_rest();
        self.regs.rip = self.regs.rip.wrapping_sub(2);
        self.regs.rax = self.regs.orig_rax;
        true
    }

    fn exit(mut self: Box<Self>) {
        self.end();
    }

    fn recycle(mut self: Box<Self>) -> Option<Recycled> {
        self.empty()
    }

    fn renew(&mut self) -> Result<()> {
        self.emptied()
    }
}

impl GuestMemory for SystrapContext {
    fn queue_write(&mut self, addr: u64, data: &[u8]) {
        let area = self.copy_area(addr, data.len()).filter(|area| area.size() == data.len());
        match area.map(|area| (area.put(0, data), area.offset()).1) {
            Some(offset) => self.copy = Some((addr, data.len(), offset)),
            None => self.queue.push(Action::Write { addr, data: data.to_vec() }),
        }
    }

    fn copy_area(&self, addr: u64, len: usize) -> Option<CopyArea<'_>> {
        let first = self.copy.is_none() && self.is_idle();
        let inside = addr.checked_add(len as u64).is_some_and(|end| end <= self.inner.limits.max);
        // The copy buffer is free when nothing was captured.
        if first && inside { self.slot().area(len, self.windows == [(0, 0); 2]) } else { None }
    }

    fn queue_copied(&mut self, addr: u64, offset: usize, len: usize) {
        if len != 0 {
            self.copy = Some((addr, len, offset));
        }
    }

    fn move_file(&mut self, fd: &Arc<OwnedFd>, moves: &Transfer) -> bool {
        self.lend(fd, *moves)
    }

    fn write_limit(&self) -> usize {
        l::SLOT_DATA_SIZE as usize
    }

    fn captured(&self, addr: u64, buf: &mut [u8]) -> bool {
        for (i, (start, len)) in self.windows.into_iter().enumerate() {
            if let Some(offset) = addr.checked_sub(start)
                && let Ok(offset) = usize::try_from(offset)
                && offset.checked_add(buf.len()).is_some_and(|end| end <= len)
            {
                self.slot().read_window(i, offset, buf);
                return true;
            }
        }
        false
    }

    fn forget_captured(&mut self) {
        self.windows = [(0, 0); 2];
    }

    fn captured_str(&self, addr: u64, max: usize) -> Option<Vec<u8>> {
        self.windows.into_iter().enumerate().find_map(|(i, (start, len))| {
            let offset = usize::try_from(addr.checked_sub(start)?).ok().filter(|offset| *offset < len)?;
            let mut text = vec![0; (len - offset).min(max)];
            self.slot().read_window(i, offset, &mut text);
            let end = text.iter().position(|b| *b == 0).map_or(text.len(), |nul| nul + 1);
            text.truncate(end);
            Some(text)
        })
    }

    fn compare_exchange(&mut self, addr: u64, old: u32, new: u32) -> Result<u32> {
        self.flush()?;
        let job = Job::CompareExchange(addr, old, new);
        job.check(&self.inner.limits)?;
        match self.report(&[job]) {
            Err(ProcessGone) => Err(Errno::ESRCH),
            Ok(Err((_, e))) => Err(e),
            Ok(Ok(())) => Ok(self.slot().result().load(Relaxed) as u32),
        }
    }
}

impl Drop for SystrapContext {
    fn drop(&mut self) {
        self.queue.clear();
        self.copy = None;
        self.end();
    }
}
