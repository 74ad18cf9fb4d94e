//! How a system call ends. Errors that a program sees are [`Errno`]; requests to restart the call are control flow and have
//! their own type, [`SysErr`]. Plain values, used by every crate that carries out a call for a task.

#![forbid(unsafe_code)]

use abi::Errno;
use wait::Stop;

/// What an interrupted call does once signals have been dealt with; see signal(7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Restart {
    /// Restart unless a handler without SA_RESTART ran (Linux's ERESTARTSYS).
    Sys,
    /// Always restart (ERESTARTNOINTR).
    NoIntr,
    /// Restart only when no handler ran (ERESTARTNOHAND).
    NoHand,
    /// As `NoHand`, through restart_syscall(2) with the saved deadline (ERESTART_RESTARTBLOCK).
    Block,
}

/// Why a handler did not produce a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SysErr {
    /// The program sees this error.
    Errno(Errno),
    /// Signals are pending: deliver them, then maybe restart.
    Restart(Restart),
    /// The registers were set by the call itself (rt_sigreturn, execve) or the task ends.
    NoReturn,
}

/// Result of a system call handler: the value for rax.
pub type SysResult = Result<u64, SysErr>;

impl From<Errno> for SysErr {
    fn from(e: Errno) -> SysErr {
        if e == Errno::ERESTARTSYS { SysErr::Restart(Restart::Sys) } else { SysErr::Errno(e) }
    }
}

impl From<caller::Failure> for SysErr {
    fn from(f: caller::Failure) -> SysErr {
        match f {
            caller::Failure::Errno(e) => e.into(),
            caller::Failure::Interrupted => SysErr::Restart(Restart::Sys),
            caller::Failure::TimedOut => SysErr::Errno(Errno::EAGAIN),
        }
    }
}

impl From<Stop> for SysErr {
    fn from(s: Stop) -> SysErr {
        match s {
            Stop::Interrupted => SysErr::Restart(Restart::Sys),
            Stop::TimedOut => SysErr::Errno(Errno::ETIMEDOUT),
        }
    }
}
