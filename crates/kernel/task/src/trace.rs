//! ptrace(2): who traces whom, and the stops of a traced thread.
//!
//! The relation belongs to the tree of processes (`relation`): a thread traces threads. What a traced thread needs of it
//! stands in its [`Trace`], too: one word of flags, which is all that an untraced thread ever looks at, and the state of
//! its stop.
//!
//! A traced thread stops by itself (`stop`), at a few places: before a signal is delivered, at the entry and the exit of
//! a call, at an event (clone, execve, exit), and for a group stop. It then shows its registers in [`Stopped`] and waits.
//! The tracer reads and changes them there. What only the thread itself can do, such as reading its extended state or
//! writing to its text, the tracer hands to it as a job (`Current::in_tracee`).
//!
//! Locks: the relation is under the tree's lock, then a group's signals, then `TRACE`. No lock is held while a job runs.

pub mod access;
pub(crate) mod relation;
mod stop;
mod tracer;
mod watch;

pub use tracer::Resume;

use crate::current::Current;
use crate::thread_group::ThreadGroup;
use abi::SigInfo;
use platform::Regs;
use ranked::{Mutex, rank};
use rights::Credentials;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The thread is traced.
const TRACED: u32 = 1;
/// By PTRACE_SEIZE.
const SEIZED: u32 = 2;
/// It stops at the entry and exit of calls (PTRACE_SYSCALL).
const SYSCALL: u32 = 4;
/// It stops at the entry of a call, which is not made (PTRACE_SYSEMU).
const SYSEMU: u32 = 8;
/// It executes one instruction (PTRACE_SINGLESTEP).
const STEP: u32 = 16;
/// It is to stop for a group stop, an attach or PTRACE_INTERRUPT.
const TRAP: u32 = 32;
/// A group stop has begun or ended, which a seized thread reports.
const NOTIFY: u32 = 64;
/// Its debug registers watch something.
const WATCHED: u32 = 128;

/// PTRACE_O_TRACESYSGOOD.
pub const O_SYSGOOD: u32 = 1;
/// PTRACE_O_EXITKILL.
pub const O_EXITKILL: u32 = 1 << 20;
/// PTRACE_O_SUSPEND_SECCOMP.
pub const O_SUSPEND_SECCOMP: u32 = 1 << 21;
/// All PTRACE_O_* bits.
pub const O_MASK: u32 = 0xff | O_EXITKILL | O_SUSPEND_SECCOMP;

/// PTRACE_EVENT_*.
pub mod event {
    /// fork(2).
    pub const FORK: u32 = 1;
    /// vfork(2).
    pub const VFORK: u32 = 2;
    /// clone(2).
    pub const CLONE: u32 = 3;
    /// execve(2).
    pub const EXEC: u32 = 4;
    /// The child of a vfork(2) has its own memory or is gone.
    pub const VFORK_DONE: u32 = 5;
    /// The thread is about to end.
    pub const EXIT: u32 = 6;
    /// A seccomp(2) filter says SECCOMP_RET_TRACE.
    pub const SECCOMP: u32 = 7;
    /// Group stops and PTRACE_INTERRUPT of seized threads.
    pub const STOP: u32 = 128;
}

/// PTRACE_EVENTMSG_SYSCALL_ENTRY.
pub const MESSAGE_ENTRY: u64 = 1;
/// PTRACE_EVENTMSG_SYSCALL_EXIT.
pub const MESSAGE_EXIT: u64 = 2;

/// What the tracer has the stopped thread do.
type Job = Box<dyn FnOnce(&mut Current) + Send>;

/// A tracer as its tracee knows it.
#[derive(Clone)]
pub struct Tracer {
    /// The thread.
    pub tid: i32,
    /// Its process.
    pub group: Arc<ThreadGroup>,
    /// The credentials that it attached with (Linux's `ptracer_cred`); with PTRACE_TRACEME those of the tracee.
    pub creds: Arc<Credentials>,
}

/// A stop in progress.
pub struct Stopped {
    /// What wait(2) has yet to report: signal number and event; 0 once it was.
    code: i32,
    /// The signal that it stopped for (PTRACE_GETSIGINFO); `None` in a group stop of an attached thread.
    pub info: Option<SigInfo>,
    /// PTRACE_GETEVENTMSG.
    pub message: u64,
    /// Registers as the tracer sees them: `rax` of an interrupted call is Linux's restart code.
    pub regs: Regs,
    /// The tracer has changed them.
    dirty: bool,
    /// PTRACE_LISTEN.
    listening: bool,
    /// Set by the tracer: go on, with this signal.
    resumed: Option<i32>,
    jobs: Vec<Job>,
}

impl Stopped {
    /// Changes the registers that the thread goes on with.
    pub fn set_regs(&mut self, regs: Regs) {
        self.regs = regs;
        self.dirty = true;
    }

    /// What wait(2) reports, unless it has.
    pub(crate) fn report(&mut self, keep: bool) -> Option<i32> {
        if self.code == 0 || self.listening || self.resumed.is_some() {
            return None;
        }
        let code = self.code;
        if !keep {
            self.code = 0;
        }
        Some(code)
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) tracer: Option<Tracer>,
    options: u32,
    stop: Option<Stopped>,
    debug: watch::DebugRegs,
}

/// Whether and by whom a thread is traced.
#[derive(Default)]
pub struct Trace {
    flags: AtomicU32,
    pub(crate) state: Mutex<State, { rank::TRACE }>,
}

impl Trace {
    /// Whether the thread is traced.
    pub fn is_traced(&self) -> bool {
        self.has(TRACED)
    }

    /// Whether it was seized.
    pub fn is_seized(&self) -> bool {
        self.has(SEIZED)
    }

    fn has(&self, bits: u32) -> bool {
        self.flags.load(SeqCst) & bits != 0
    }

    fn set(&self, bits: u32, on: bool) {
        if on {
            self.flags.fetch_or(bits, SeqCst);
        } else {
            self.flags.fetch_and(!bits, SeqCst);
        }
    }

    /// Thread ID of the tracer, in the sandbox's own PID namespace.
    pub fn tracer(&self) -> Option<i32> {
        if !self.is_traced() {
            return None;
        }
        self.state.lock().tracer.as_ref().map(|t| t.tid)
    }

    /// The credentials that the tracer attached with.
    pub fn tracer_creds(&self) -> Option<Arc<Credentials>> {
        if !self.is_traced() {
            return None;
        }
        self.state.lock().tracer.as_ref().map(|t| t.creds.clone())
    }

    /// Whether it is in a stop that its tracer has to end.
    pub fn is_stopped(&self) -> bool {
        self.is_traced() && self.state.lock().stop.is_some()
    }

    /// It is in a stop, and its tracer has not let it go on: after PTRACE_LISTEN it counts as running.
    pub fn is_held(&self) -> bool {
        let held = |stop: &Stopped| stop.resumed.is_none() && !stop.listening;
        self.is_traced() && self.state.lock().stop.as_ref().is_some_and(held)
    }

    /// execve(2): the debug registers are those of the old program.
    pub(crate) fn forget_debug(&self) {
        if self.has(WATCHED) {
            self.state.lock().debug = watch::DebugRegs::default();
            self.set(WATCHED, false);
        }
    }

    fn option(&self, bit: u32) -> bool {
        self.is_traced() && self.state.lock().options & bit != 0
    }

    /// Whether the tracer asked for an event.
    pub(crate) fn wants(&self, event: u32) -> bool {
        self.option(1 << event)
    }

    /// Whether seccomp(2) does not apply for now.
    pub(crate) fn suspends_seccomp(&self) -> bool {
        self.option(O_SUSPEND_SECCOMP)
    }

    /// What wait(2) has yet to report of it.
    pub(crate) fn report(&self, keep: bool) -> Option<i32> {
        self.state.lock().stop.as_mut()?.report(keep)
    }
}
