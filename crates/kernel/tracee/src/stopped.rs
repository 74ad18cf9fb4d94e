//! A stop of a traced thread: the thread shows its registers and waits, the tracer reads and changes them here. What only the
//! thread itself can do, such as reading its extended state or writing to its text, the tracer hands to it as a job.

use crate::after::After;
use abi::SigInfo;
use platform::Regs;

/// What the tracer has the stopped thread do; `C` is the thread as it runs itself.
pub type Job<C> = Box<dyn FnOnce(&mut C) + Send>;

/// A stop in progress.
pub struct Stopped<C> {
    /// What wait(2) has yet to report: signal number and event; 0 once it was.
    pub code: i32,
    /// The signal that it stopped for (PTRACE_GETSIGINFO); `None` in a group stop of an attached thread.
    pub info: Option<SigInfo>,
    /// PTRACE_GETEVENTMSG.
    pub message: u64,
    /// Registers as the tracer sees them: `rax` of an interrupted call is Linux's restart code.
    pub regs: Regs,
    /// The tracer has changed them.
    pub dirty: bool,
    /// PTRACE_LISTEN.
    pub listening: bool,
    /// Set by the tracer: go on, with this signal.
    pub resumed: Option<i32>,
    /// What the tracer has the thread do.
    pub jobs: Vec<Job<C>>,
    /// What it does then.
    pub after: After,
}

impl<C> Stopped<C> {
    /// Changes the registers that the thread goes on with.
    pub fn set_regs(&mut self, regs: Regs) {
        self.regs = regs;
        self.dirty = true;
    }

    /// What wait(2) reports, unless it has.
    pub fn report(&mut self, keep: bool) -> Option<i32> {
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
