//! sigtimedwait(2).

use crate::current::Current;
use abi::{Errno, SigInfo, SigSet};
use std::sync::atomic::Ordering;
use std::time::Instant;
use sysresult::SysErr;
use wait::Stop;

impl Current {
    /// Waits for a signal out of `set` (sigtimedwait(2)); the signals are taken without running handlers.
    pub fn wait_signal(&mut self, set: SigSet, deadline: Option<Instant>) -> Result<SigInfo, SysErr> {
        if let Some(i) = self.task.dequeue(set) {
            return Ok(i);
        }
        self.task.awaited.store(set.0, Ordering::SeqCst);
        let got = loop {
            if let Some(i) = self.task.dequeue(set) {
                break Ok(i);
            }
            match self.sleep(deadline) {
                Ok(()) => {}
                // One last look: the interruption may be the very signal, and a signal may have come with the deadline.
                Err(stop) => {
                    let none = match stop {
                        Stop::TimedOut => Errno::EAGAIN,
                        Stop::Interrupted => Errno::EINTR,
                    };
                    break self.task.dequeue(set).ok_or(SysErr::Errno(none));
                }
            }
        };
        self.task.awaited.store(0, Ordering::SeqCst);
        got
    }
}
