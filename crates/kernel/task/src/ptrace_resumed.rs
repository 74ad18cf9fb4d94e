//! A thread that was saved in a stop for its tracer goes on: it waits in the stop, and does then what it was about to do.

use crate::current::Current;
use crate::deliver::{Flow, act_on, force_through};
use crate::task::VforkGate;
use abi::{SigInfo, Signal};
use signal::TrapInfo;
use tracee::{After, event};

impl Current {
    /// Waits in the stop that the thread was saved in. `Leave`: it ends.
    pub(crate) fn go_on_in_stop(&mut self, after: After) -> Flow {
        let Some(resumed) = self.await_resume(after) else { return Flow::Resume };
        let info = resumed.info.unwrap_or(SigInfo::new(Signal::SIGTRAP, libc::SI_KERNEL));
        match after {
            After::Looks => {}
            After::Delivers { continues } => {
                if let Some(info) = self.signal_let_through(resumed, info) {
                    act_on(self, info, continues);
                }
            }
            After::Forced { trap: [trapno, err, cr2], in_call } => {
                if let Some(info) = self.signal_let_through(resumed, info) {
                    force_through(self, info, TrapInfo { trapno, err, cr2 });
                }
                if in_call {
                    self.trace_exit();
                }
            }
            After::Enters { code, emulated } => {
                self.syscall_stop_over(resumed.signal, code);
                if self.makes_call(emulated) {
                    self.perform();
                }
                self.trace_exit();
            }
            After::Filtered => {
                if self.makes_call(false) {
                    self.filtered = true;
                    self.perform();
                }
                self.trace_exit();
            }
            After::Exits { code } => self.syscall_stop_over(resumed.signal, code),
            // It waits for its child first.
            After::Returns(_) if self.vfork_gate.is_some() => {}
            After::Returns(value) => {
                self.set_result(Ok(value));
                self.trace_exit();
            }
            After::Executes => {
                self.ctx.set_rax(0);
                self.trace_exit();
            }
            After::Ends { .. } => return Flow::Leave,
        }
        Flow::Resume
    }

    fn perform(&mut self) {
        let calls = self.kernel().calls.clone();
        calls.perform(self);
    }

    /// Waits in vfork(2), and ends the call.
    pub(crate) fn go_on_in_vfork(&mut self, gate: &VforkGate, child: u64) {
        let task = self.find_task(child as i32);
        let number = |c: &Current| task.as_ref().map_or(0, |task| c.number_for_tracer(task));
        let before = number(self);
        self.wait_vfork(gate, child);
        let seen = number(self).max(before) as u64;
        self.ptrace_event(event::VFORK_DONE, seen, After::Returns(child));
        self.set_result(Ok(child));
        self.trace_exit();
    }
}
