//! Signal dispositions. See signal(7), sigaction(2).

use abi::{SigSet, Signal};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct kernel_sigaction` of x86-64.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct SigAction {
    /// SIG_DFL (0), SIG_IGN (1) or the handler's address.
    pub handler: u64,
    /// SA_* flags.
    pub flags: u64,
    /// Address that the handler returns to.
    pub restorer: u64,
    /// Signals blocked while the handler runs.
    pub mask: SigSet,
}

/// SIG_DFL.
pub const SIG_DFL: u64 = 0;
/// SIG_IGN.
pub const SIG_IGN: u64 = 1;

/// The dispositions of a thread group (shared by CLONE_SIGHAND).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handlers {
    actions: [SigAction; 64],
}

impl Default for Handlers {
    fn default() -> Self {
        Handlers { actions: [SigAction::default(); 64] }
    }
}

impl Handlers {
    /// Disposition of a signal.
    pub fn get(&self, s: Signal) -> SigAction {
        self.actions[s.raw() as usize - 1]
    }
    /// Changes it.
    pub fn set(&mut self, s: Signal, a: SigAction) {
        self.actions[s.raw() as usize - 1] = a;
    }
    /// execve(2): handled signals fall back to the default, ignored ones stay ignored.
    pub fn reset_for_exec(&mut self) {
        for a in &mut self.actions {
            let ignored = a.handler == SIG_IGN;
            *a = SigAction { handler: if ignored { SIG_IGN } else { SIG_DFL }, ..SigAction::default() };
        }
    }
    /// CLONE_CLEAR_SIGHAND: every handled signal to the default.
    pub fn clear_handled(&mut self) {
        self.reset_for_exec();
    }
    /// True when sending `s` has no effect (ignored explicitly or by default).
    pub fn ignores(&self, s: Signal) -> bool {
        match self.get(s).handler {
            SIG_IGN => !SigSet::UNBLOCKABLE.has(s),
            SIG_DFL => default_action(s) == DefaultAction::Ignore,
            _ => false,
        }
    }
}

/// What an unhandled signal does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultAction {
    /// Nothing.
    Ignore,
    /// Ends the process.
    Terminate,
    /// Ends the process; the wait status has the core bit where a core file would be written.
    Core,
    /// Stops the process.
    Stop,
    /// Continues it.
    Continue,
}

/// The default action of a signal.
pub fn default_action(s: Signal) -> DefaultAction {
    match s {
        Signal::SIGCHLD | Signal::SIGURG | Signal::SIGWINCH => DefaultAction::Ignore,
        Signal::SIGCONT => DefaultAction::Continue,
        Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => DefaultAction::Stop,
        Signal::SIGQUIT
        | Signal::SIGILL
        | Signal::SIGTRAP
        | Signal::SIGABRT
        | Signal::SIGBUS
        | Signal::SIGFPE
        | Signal::SIGSEGV
        | Signal::SIGXCPU
        | Signal::SIGXFSZ
        | Signal::SIGSYS => DefaultAction::Core,
        _ => DefaultAction::Terminate,
    }
}

/// SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
pub const STOP_SIGNALS: SigSet = SigSet(1 << 18 | 1 << 19 | 1 << 20 | 1 << 21);
/// Signals that a fault raises; delivered before others.
pub const SYNCHRONOUS: SigSet = SigSet(1 << 10 | 1 << 6 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 30);
