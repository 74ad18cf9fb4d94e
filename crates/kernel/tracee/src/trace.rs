//! Whether a thread is traced, its tracer, and the state of its stop. Lock: TRACE, inside a group's signals. A checkpoint keeps all
//! but jobs.

use crate::debug_regs::DebugRegs;
use crate::flags::{O_SUSPEND_SECCOMP, SEIZED, TRACED, TRAP, WATCHED};
use crate::stopped::Stopped;
use lock_order::{Mutex, rank};
use rights::Credentials;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A tracer as its tracee knows it.
pub struct Tracer<P> {
    /// The thread.
    pub tid: i32,
    /// Its process.
    pub group: Arc<P>,
    /// The credentials that it attached with (Linux's `ptracer_cred`); with PTRACE_TRACEME those of the tracee.
    pub creds: Arc<Credentials>,
}

impl<P> Clone for Tracer<P> {
    fn clone(&self) -> Tracer<P> {
        Tracer { tid: self.tid, group: self.group.clone(), creds: self.creds.clone() }
    }
}

/// What the tracer has set, and the stop.
pub struct State<P, C> {
    /// The tracer.
    pub tracer: Option<Tracer<P>>,
    /// PTRACE_O_*.
    pub options: u32,
    /// The stop in progress.
    pub stop: Option<Stopped<C>>,
    /// Debug registers.
    pub debug: DebugRegs,
}

/// A thread as ptrace(2) sees it: one word of flags, which is all that an untraced thread ever looks at, and its state.
pub struct Trace<P, C> {
    pub(crate) flags: AtomicU32,
    /// Under its lock.
    pub state: Mutex<State<P, C>, { rank::TRACE }>,
}

impl<P, C> Default for State<P, C> {
    fn default() -> State<P, C> {
        State { tracer: None, options: 0, stop: None, debug: DebugRegs::default() }
    }
}

impl<P, C> Default for Trace<P, C> {
    fn default() -> Trace<P, C> {
        Trace { flags: AtomicU32::new(0), state: Mutex::default() }
    }
}

impl<P, C> Trace<P, C> {
    /// Whether the thread is traced.
    pub fn is_traced(&self) -> bool {
        self.has(TRACED)
    }

    /// Whether it was seized.
    pub fn is_seized(&self) -> bool {
        self.has(SEIZED)
    }

    /// Whether one of these flags is set.
    pub fn has(&self, bits: u32) -> bool {
        self.flags.load(SeqCst) & bits != 0
    }

    /// Sets or clears flags.
    pub fn set(&self, bits: u32, on: bool) {
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
        let held = |stop: &Stopped<C>| stop.resumed.is_none() && !stop.listening;
        self.is_traced() && self.state.lock().stop.as_ref().is_some_and(held)
    }

    /// execve(2): the debug registers are those of the old program.
    pub fn forget_debug(&self) {
        if self.has(WATCHED) {
            self.state.lock().debug = DebugRegs::default();
            self.set(WATCHED, false);
        }
    }

    /// Whether the tracer has set this option.
    pub fn option(&self, bit: u32) -> bool {
        self.is_traced() && self.state.lock().options & bit != 0
    }

    /// Whether the tracer asked for an event.
    pub fn wants(&self, event: u32) -> bool {
        self.option(1 << event)
    }

    /// Whether seccomp(2) does not apply for now.
    pub fn suspends_seccomp(&self) -> bool {
        self.option(O_SUSPEND_SECCOMP)
    }

    /// What wait(2) has yet to report of it.
    pub fn report(&self, keep: bool) -> Option<i32> {
        self.state.lock().stop.as_mut()?.report(keep)
    }

    /// Traced from now on by `by`, with these flags beside [`TRACED`], and options.
    pub fn begin(&self, by: Tracer<P>, flags: u32, options: u32) {
        let mut s = self.state.lock();
        s.tracer = Some(by);
        s.options = options;
        self.flags.store(TRACED | flags, SeqCst);
    }

    /// Traced no more: a stop ends with this signal, or with the signal that it stopped for and that the tracer has not been told of.
    pub fn end(&self, signal: Option<i32>) {
        let mut s = self.state.lock();
        s.tracer = None;
        s.options = 0;
        s.debug = DebugRegs::default();
        self.flags.store(0, SeqCst);
        if let Some(stop) = &mut s.stop {
            let own = if stop.code < 128 && stop.info.is_some() { stop.code } else { 0 };
            stop.resumed.get_or_insert(signal.unwrap_or(own));
        }
    }

    /// The thread is to stop at the next chance.
    pub fn ask_to_stop(&self) {
        self.set(TRAP, true);
    }
}
