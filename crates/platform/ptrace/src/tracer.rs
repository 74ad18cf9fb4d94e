//! The thread that makes every ptrace call.
//!
//! Contexts send it [`Command`]s and wait for the answer. It sleeps in waitid(2);
//! the *doorbell*, a traced process that waits for ever, wakes it: a signal to it
//! is a stop like any other.

use crate::context::PtraceContext;
use crate::notify::{Grant, Grants};
use crate::space::Space;
use abi::{Errno, Result};
use hostsys::process;
use hostsys::ptrace::{self, Event};
use parking_lot::Mutex;
use platform::{Fault, Regs};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use stub::layout::{INTERRUPT_SIGNAL, STUB_CMPXCHG, STUB_INJECT};

/// Names a traced thread; unlike a thread id never used twice.
pub(crate) type Key = u64;
/// The zygote's only thread.
pub(crate) const ZYGOTE: Key = 0;

/// Why a guest thread stopped.
pub(crate) enum Stop {
    Syscall { regs: Regs, arch: u32 },
    Fault { regs: Regs, fault: Fault },
    Interrupted { regs: Regs },
}

/// How an injected call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Returned(i64),
    /// Not executed, or abandoned: an interrupt came.
    Interrupted,
}

pub(crate) const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// What a context asks for. The answer's sender is dropped when the thread is gone.
pub(crate) enum Command {
    /// Run guest code.
    Resume { key: Key, regs: Box<Regs>, answer: SyncSender<Stop> },
    /// Make a host call; `interruptible` ones end early on an interrupt.
    Call {
        key: Key,
        nr: i64,
        args: [u64; 6],
        grant: Option<Grant>,
        interruptible: bool,
        answer: SyncSender<CallEnd>,
    },
    /// Make a clone; the answer is the new thread, stopped.
    Clone { key: Key, flags: u64, answer: SyncSender<Result<(Key, i32)>> },
    /// Read the extended state.
    GetXstate { key: Key, answer: SyncSender<Result<Vec<u8>>> },
    /// Replace the extended state.
    SetXstate { key: Key, bytes: Vec<u8>, answer: SyncSender<Result<()>> },
    /// Stop it if it runs, or as soon as it does.
    Interrupt { key: Key },
    /// End the thread.
    Exit { key: Key },
}

/// The side of the tracer that other threads use.
#[derive(Default)]
pub(crate) struct Tracer {
    queue: Mutex<VecDeque<Command>>,
    /// The tracer is (about to be) in waitid.
    sleeping: AtomicBool,
    closed: AtomicBool,
    /// Thread id of the doorbell, 0 before there is one.
    doorbell: AtomicI32,
    doorbell_context: Mutex<Option<PtraceContext>>,
    grants: Grants,
    spaces: Mutex<HashMap<i32, Weak<Space>>>,
}

impl Tracer {
    pub(crate) fn grants(&self) -> Grants {
        self.grants.clone()
    }

    /// Hands a command over; when the platform is closed it is dropped, and with it the sender of its answer.
    pub(crate) fn send(&self, command: Command) {
        {
            let mut queue = self.queue.lock();
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            queue.push_back(command);
        }
        self.ring();
    }

    fn ring(&self) {
        let tid = self.doorbell.load(Ordering::SeqCst);
        if tid != 0 && self.sleeping.load(Ordering::SeqCst) {
            let _ = process::tgkill(tid, tid, INTERRUPT_SIGNAL as i32);
        }
    }

    /// Registers a process for the news of its end.
    pub(crate) fn add_space(&self, space: &Arc<Space>) {
        self.spaces.lock().insert(space.process.pid, Arc::downgrade(space));
    }

    /// Makes `context`, a new process, the doorbell. Until then the tracer polls.
    pub(crate) fn install_doorbell(&self, mut context: PtraceContext) -> Result<()> {
        context.sleep_for_ever();
        self.doorbell.store(context.host_tid(), Ordering::SeqCst);
        *self.doorbell_context.lock() = Some(context);
        Ok(())
    }

    /// Refuses further commands; the tracer ends when all threads have.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.queue.lock().clear();
        self.ring();
    }

    fn ended(&self, pid: i32) {
        if let Some(space) = self.spaces.lock().remove(&pid).and_then(|s| s.upgrade()) {
            space.process.set_ended();
        }
    }
}

enum State {
    Idle,
    Running(SyncSender<Stop>),
    Calling { answer: SyncSender<CallEnd>, interruptible: bool },
    Cloning { answer: SyncSender<Result<(Key, i32)>>, child: Option<i32>, result: Option<i64> },
    Exiting,
}

struct Tracee {
    tid: i32,
    state: State,
    /// An interrupt is wanted at the next chance.
    interrupt: bool,
}

/// The tracer's own state.
struct Traced<'a> {
    shared: &'a Tracer,
    tracees: HashMap<Key, Tracee>,
    by_tid: HashMap<i32, Key>,
    /// New threads that stopped for the first time before their parent's report.
    newborn: HashSet<i32>,
    next: Key,
}

/// Body of the tracer thread.
pub(crate) fn serve(shared: &Tracer, zygote: i32, ready: &SyncSender<Result<()>>) {
    let seized = ptrace::seize(zygote).and_then(|()| ptrace::interrupt(zygote)).and_then(|()| {
        loop {
            match ptrace::wait(|_| {})? {
                (_, Event::Stopped(_, ptrace::EVENT_STOP)) => return Ok(()),
                (tid, Event::Stopped(..)) => ptrace::resume(tid)?,
                (_, Event::Gone) => return Err(Errno::ESRCH),
            }
        }
    });
    let failed = seized.is_err();
    let _ = ready.send(seized);
    if failed {
        return;
    }
    let mut t = Traced {
        shared,
        tracees: HashMap::from([(ZYGOTE, Tracee { tid: zygote, state: State::Idle, interrupt: false })]),
        by_tid: HashMap::from([(zygote, ZYGOTE)]),
        newborn: HashSet::new(),
        next: ZYGOTE + 1,
    };
    t.run();
}

impl Traced<'_> {
    fn run(&mut self) {
        loop {
            self.drain();
            if self.shared.closed.load(Ordering::SeqCst) {
                self.kill_all();
            }
            self.shared.sleeping.store(true, Ordering::SeqCst);
            let busy = !self.shared.queue.lock().is_empty();
            let bell = self.shared.doorbell.load(Ordering::SeqCst) != 0;
            if busy || !(bell || self.any_running()) {
                self.shared.sleeping.store(false, Ordering::SeqCst);
                if !busy {
                    // Only before the doorbell is installed.
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
                continue;
            }
            let event = ptrace::wait(|pid| self.shared.ended(pid));
            self.shared.sleeping.store(false, Ordering::SeqCst);
            match event {
                Ok((tid, Event::Gone)) => self.gone(tid),
                // ESRCH from what follows: it was killed meanwhile, which is an event of its own.
                Ok((tid, Event::Stopped(signo, event))) => drop(self.stopped(tid, signo, event)),
                Err(Errno::ECHILD) => return,
                Err(_) => {}
            }
        }
    }

    /// Kills what is left; threads go with their leaders.
    fn kill_all(&self) {
        for tid in self.tracees.values().map(|t| t.tid).chain(self.newborn.iter().copied()) {
            let _ = process::tgkill(tid, tid, libc::SIGKILL);
        }
    }

    fn any_running(&self) -> bool {
        self.tracees.values().any(|t| !matches!(t.state, State::Idle))
    }

    fn drain(&mut self) {
        loop {
            let command = self.shared.queue.lock().pop_front();
            match command {
                Some(c) => drop(self.obey(c)),
                None => return,
            }
        }
    }

    fn idle(&mut self, key: Key) -> Result<&mut Tracee> {
        self.tracees.get_mut(&key).filter(|t| matches!(t.state, State::Idle)).ok_or(Errno::ESRCH)
    }

    fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Resume { key, regs, answer } => {
                let t = self.idle(key)?;
                if std::mem::take(&mut t.interrupt) {
                    let _ = answer.send(Stop::Interrupted { regs: *regs });
                    return Ok(());
                }
                ptrace::set_regs(t.tid, &to_host(&regs))?;
                ptrace::emulate(t.tid)?;
                t.state = State::Running(answer);
            }
            Command::Call { key, nr, args, grant, interruptible, answer } => {
                let t = self.idle(key)?;
                let tid = t.tid;
                if interruptible && std::mem::take(&mut t.interrupt) {
                    let _ = answer.send(CallEnd::Interrupted);
                    return Ok(());
                }
                inject(tid, nr, args)?;
                if let Some(grant) = grant {
                    self.shared.grants.lock().insert(tid, grant);
                }
                self.idle(key)?.state = State::Calling { answer, interruptible };
                ptrace::resume(tid)?;
            }
            Command::Clone { key, flags, answer } => {
                let t = self.idle(key)?;
                let tid = t.tid;
                inject(tid, libc::SYS_clone, [flags, 0, 0, 0, 0, 0])?;
                self.shared.grants.lock().insert(tid, Grant::Clone(flags));
                self.idle(key)?.state = State::Cloning { answer, child: None, result: None };
                ptrace::resume(tid)?;
            }
            Command::GetXstate { key, answer } => {
                let tid = self.idle(key)?.tid;
                let mut bytes = vec![0; 16 << 10];
                let r = ptrace::xstate(tid, &mut bytes).map(|n| {
                    bytes.truncate(n);
                    bytes
                });
                let _ = answer.send(r);
            }
            Command::SetXstate { key, bytes, answer } => {
                let tid = self.idle(key)?.tid;
                let _ = answer.send(ptrace::set_xstate(tid, &bytes));
            }
            Command::Interrupt { key } => {
                let t = self.tracees.get_mut(&key).ok_or(Errno::ESRCH)?;
                match t.state {
                    State::Running(_) | State::Calling { interruptible: true, .. } => {
                        t.interrupt = true;
                        ptrace::interrupt(t.tid)?;
                    }
                    State::Idle => t.interrupt = true,
                    _ => {}
                }
            }
            Command::Exit { key } => {
                let t = self.idle(key)?;
                t.state = State::Exiting;
                inject(t.tid, libc::SYS_exit, [0; 6])?;
                ptrace::resume(t.tid)?;
            }
        }
        Ok(())
    }

    /// Kills new processes when their parents ended in the middle of the clone. No thread would ever run them or wait
    /// for them.
    fn kill_orphans(&mut self) {
        if self.newborn.is_empty() || self.tracees.values().any(|t| matches!(t.state, State::Cloning { .. }))
        {
            return;
        }
        for tid in self.newborn.drain() {
            let _ = process::tgkill(tid, tid, libc::SIGKILL);
        }
    }

    fn gone(&mut self, tid: i32) {
        self.newborn.remove(&tid);
        self.shared.grants.lock().remove(&tid);
        if let Some(key) = self.by_tid.remove(&tid) {
            // Drops the answer's sender: its owner learns that the thread is gone.
            self.tracees.remove(&key);
        }
        // A parent may wait for this child's first stop.
        let waiting: Vec<Key> = self.waiting_for(tid);
        for key in waiting {
            if let Some(t) = self.tracees.get_mut(&key)
                && let State::Cloning { answer, .. } = std::mem::replace(&mut t.state, State::Idle)
            {
                let _ = answer.send(Err(Errno::EAGAIN));
            }
        }
        self.kill_orphans();
    }

    fn waiting_for(&self, child: i32) -> Vec<Key> {
        let waits = |t: &Tracee| matches!(t.state, State::Cloning { child: Some(c), result: Some(_), .. } if c == child);
        self.tracees.iter().filter(|(_, t)| waits(t)).map(|(k, _)| *k).collect()
    }

    /// Ends a clone after the parent has returned and the child has stopped.
    fn finish_clone(&mut self, key: Key) {
        let Some(t) = self.tracees.get_mut(&key) else { return };
        let State::Cloning { child, result: Some(result), .. } = &t.state else { return };
        let (child, result) = (*child, *result);
        let outcome = match child {
            Some(tid) if result >= 0 => {
                if !self.newborn.remove(&tid) {
                    return;
                }
                let new = self.next;
                self.next += 1;
                self.by_tid.insert(tid, new);
                self.tracees.insert(new, Tracee { tid, state: State::Idle, interrupt: false });
                Ok((new, tid))
            }
            _ if result == -i64::from(libc::ENOMEM) => Err(Errno::ENOMEM),
            _ => Err(Errno::EAGAIN),
        };
        if let Some(t) = self.tracees.get_mut(&key)
            && let State::Cloning { answer, .. } = std::mem::replace(&mut t.state, State::Idle)
        {
            self.shared.grants.lock().remove(&t.tid);
            let _ = answer.send(outcome);
        }
    }

    fn stopped(&mut self, tid: i32, signo: i32, event: i32) -> Result<()> {
        let Some(key) = self.by_tid.get(&tid).copied() else {
            // The first stop of a new thread.
            self.newborn.insert(tid);
            for parent in self.waiting_for(tid) {
                self.finish_clone(parent);
            }
            self.kill_orphans();
            return Ok(());
        };
        let Some(t) = self.tracees.get_mut(&key) else { return Ok(()) };
        match &mut t.state {
            State::Running(_) => {
                let Some(stop) = guest_stop(t, signo, event)? else { return ptrace::emulate(tid) };
                t.interrupt = false;
                if let State::Running(answer) = std::mem::replace(&mut t.state, State::Idle) {
                    let _ = answer.send(stop);
                }
            }
            State::Calling { interruptible, .. } => {
                let interrupt = t.interrupt && *interruptible;
                let Some(done) = call_stop(tid, signo, event, interrupt)? else { return ptrace::resume(tid) };
                if done == CallEnd::Interrupted {
                    t.interrupt = false;
                }
                self.shared.grants.lock().remove(&tid);
                if let State::Calling { answer, .. } = std::mem::replace(&mut t.state, State::Idle) {
                    let _ = answer.send(done);
                }
            }
            State::Cloning { child, result, .. } => {
                if ptrace::EVENT_CLONES.contains(&event) {
                    *child = Some(ptrace::event_message(tid)? as i32);
                    return ptrace::resume(tid);
                }
                let Some(CallEnd::Returned(r)) = call_stop(tid, signo, event, false)? else {
                    return ptrace::resume(tid);
                };
                *result = Some(r);
                self.finish_clone(key);
            }
            State::Exiting => return ptrace::resume(tid),
            // A stop we did not ask for, of a thread that is stopped: it stays so.
            State::Idle => {}
        }
        Ok(())
    }
}

/// Pseudo call: compare-and-exchange at the first argument, of the third for the second.
pub(crate) const COMPARE_EXCHANGE: i64 = -2;
/// Length of that instruction.
const CMPXCHG_LEN: u64 = 4;

/// Sets a stopped thread up to make one call.
fn inject(tid: i32, nr: i64, args: [u64; 6]) -> Result<()> {
    let [rdi, rsi, rdx, r10, r8, r9] = args;
    let exchange = nr == COMPARE_EXCHANGE;
    let regs = Regs {
        rax: if exchange { rdx } else { nr as u64 },
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        rip: if exchange { STUB_CMPXCHG } else { STUB_INJECT },
        eflags: 0x202,
        ..Regs::default()
    };
    ptrace::set_regs(tid, &to_host(&regs))
}

/// What a stop means for a thread in guest code; `None`: nothing, go on.
fn guest_stop(t: &Tracee, signo: i32, event: i32) -> Result<Option<Stop>> {
    let regs = || ptrace::regs(t.tid).map(|r| from_host(&r));
    if signo == ptrace::SYSCALL_STOP {
        let mut regs = regs()?;
        regs.rax = regs.orig_rax;
        return Ok(Some(Stop::Syscall { regs, arch: ptrace::syscall_arch(t.tid)? }));
    }
    if event == ptrace::EVENT_STOP {
        return if t.interrupt { Ok(Some(Stop::Interrupted { regs: regs()? })) } else { Ok(None) };
    }
    if event != 0 {
        return Ok(None);
    }
    let (signo, code, addr) = ptrace::siginfo(t.tid)?;
    // Sent signals have codes up to 0; nothing but the processor may signal a guest.
    if code <= 0 {
        return Ok(None);
    }
    if signo == libc::SIGSYS {
        // The vsyscall page is the one way to a system call that SYSEMU does not see; the filter does.
        let mut regs = regs()?;
        regs.orig_rax = regs.rax;
        return Ok(Some(Stop::Syscall { regs, arch: AUDIT_ARCH_X86_64 }));
    }
    // The host does not tell the trap number and error code; these are the usual ones.
    const MAPERR: i32 = 1;
    const ACCERR: i32 = 2;
    let (trapno, err) = match (signo, code) {
        (libc::SIGSEGV, MAPERR) => (14, 4),
        (libc::SIGSEGV, ACCERR) => (14, 5),
        (libc::SIGSEGV, _) => (13, 0),
        (libc::SIGBUS, 1) => (17, 0),
        (libc::SIGBUS, _) => (14, 4),
        (libc::SIGILL, _) => (6, 0),
        (libc::SIGFPE, 1) => (0, 0),
        (libc::SIGFPE, _) => (19, 0),
        (libc::SIGTRAP, 0x80) => (3, 0),
        (libc::SIGTRAP, _) => (1, 0),
        _ => return Ok(None),
    };
    Ok(Some(Stop::Fault { regs: regs()?, fault: Fault { signo, code, addr, trapno, err } }))
}

/// What a stop means for a thread that makes an injected call; `None`: nothing, go on.
fn call_stop(tid: i32, signo: i32, event: i32, interrupt: bool) -> Result<Option<CallEnd>> {
    const RESTART: [i64; 4] = [-512, -513, -514, -516];
    let regs = ptrace::regs(tid)?;
    if event == 0 && signo == libc::SIGTRAP && regs.rip == STUB_INJECT + 3 {
        return Ok(Some(CallEnd::Returned(regs.rax as i64)));
    }
    if event == 0 && signo == libc::SIGTRAP && regs.rip == STUB_CMPXCHG + CMPXCHG_LEN + 1 {
        return Ok(Some(CallEnd::Returned(i64::from(regs.rax as u32))));
    }
    if event == 0 && [libc::SIGSEGV, libc::SIGBUS].contains(&signo) && regs.rip == STUB_CMPXCHG {
        return Ok(Some(CallEnd::Returned(-i64::from(libc::EFAULT))));
    }
    if event == 0 && signo == libc::SIGSYS {
        // The filter refuses it: a bug of ours, but not one to hang on.
        return Ok(Some(CallEnd::Returned(-i64::from(libc::ENOSYS))));
    }
    let abandoned = regs.orig_rax as i64 >= 0 && RESTART.contains(&(regs.rax as i64));
    if event == ptrace::EVENT_STOP && interrupt && (abandoned || regs.rip == STUB_INJECT) {
        return Ok(Some(CallEnd::Interrupted));
    }
    Ok(None)
}

fn to_host(r: &Regs) -> ptrace::Regs {
    let base = |b: u64| if b < 1 << 47 { b } else { 0 };
    ptrace::Regs {
        r15: r.r15,
        r14: r.r14,
        r13: r.r13,
        r12: r.r12,
        rbp: r.rbp,
        rbx: r.rbx,
        r11: r.r11,
        r10: r.r10,
        r9: r.r9,
        r8: r.r8,
        rax: r.rax,
        rcx: r.rcx,
        rdx: r.rdx,
        rsi: r.rsi,
        rdi: r.rdi,
        // No system call is in progress: the host must not restart one.
        orig_rax: u64::MAX,
        rip: r.rip,
        cs: 0x33,
        eflags: r.eflags,
        rsp: r.rsp,
        ss: 0x2b,
        fs_base: base(r.fs_base),
        gs_base: base(r.gs_base),
        ds: 0,
        es: 0,
        fs: 0,
        gs: 0,
    }
}

fn from_host(r: &ptrace::Regs) -> Regs {
    Regs {
        r15: r.r15,
        r14: r.r14,
        r13: r.r13,
        r12: r.r12,
        rbp: r.rbp,
        rbx: r.rbx,
        r11: r.r11,
        r10: r.r10,
        r9: r.r9,
        r8: r.r8,
        rax: r.rax,
        rcx: r.rcx,
        rdx: r.rdx,
        rsi: r.rsi,
        rdi: r.rdi,
        orig_rax: r.orig_rax,
        rip: r.rip,
        eflags: r.eflags,
        rsp: r.rsp,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
    }
}
