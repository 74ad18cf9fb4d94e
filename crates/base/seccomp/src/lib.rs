//! seccomp(2) filters: classic BPF programs over the numbers and arguments of a system call.
//!
//! [`Program::new`] accepts exactly the programs that Linux accepts; [`Program::run`] gives what they return.
//! Pure: bytes in, a number out. The interpreter is the crate `bpf`.

#![forbid(unsafe_code)]

mod chain;
pub mod compile;
mod names;
pub mod precedence;
mod program;
#[cfg(test)]
mod tests;

pub use bpf::{MAX_INSTRUCTIONS, SockFilter};
pub use chain::{Chain, Filters, Supervisor, Verdict};
pub use names::{all, name, number};
pub use program::Program;

/// Most instructions of all programs that a thread is under, see [`Program::weight`], each counted with four more.
pub const MAX_PER_PATH: usize = (1 << 18) / 8;
/// AUDIT_ARCH_X86_64.
pub const ARCH: u32 = 0xc000_003e;

/// `struct seccomp_data`: what a program looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// System call number.
    pub nr: i32,
    /// AUDIT_ARCH_*.
    pub arch: u32,
    /// Address after the instruction.
    pub ip: u64,
    /// Arguments.
    pub args: [u64; 6],
}

impl Data {
    /// Size in bytes, which BPF_LEN loads.
    pub const SIZE: u32 = 64;

    /// The 32-bit word at an offset that is a multiple of four below [`Data::SIZE`]; 0 elsewhere.
    fn word(&self, offset: u32) -> u32 {
        let half = |v: u64| if offset & 4 == 0 { v as u32 } else { (v >> 32) as u32 };
        match offset {
            0 => self.nr as u32,
            4 => self.arch,
            8 | 12 => half(self.ip),
            _ => self.args.get((offset as usize).wrapping_sub(16) / 8).map_or(0, |&a| half(a)),
        }
    }
}

/// What a program's return value asks for, strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// End the process; also values that mean nothing.
    KillProcess,
    /// End the thread.
    KillThread,
    /// SIGSYS.
    Trap,
    /// Fail with an error number.
    Errno,
    /// Ask a supervisor.
    UserNotif,
    /// Ask the tracer.
    Trace,
    /// Let it through and log it.
    Log,
    /// Let it through.
    Allow,
}

impl Action {
    /// The action of a return value. Values that are none end the process.
    pub fn of(value: u32) -> Action {
        Action::exact(value & ACTION_FULL).unwrap_or(Action::KillProcess)
    }

    /// The action with exactly this value.
    pub fn exact(value: u32) -> Option<Action> {
        Some(match value {
            RET_KILL_PROCESS => Action::KillProcess,
            RET_KILL_THREAD => Action::KillThread,
            RET_TRAP => Action::Trap,
            RET_ERRNO => Action::Errno,
            RET_USER_NOTIF => Action::UserNotif,
            RET_TRACE => Action::Trace,
            RET_LOG => Action::Log,
            RET_ALLOW => Action::Allow,
            _ => return None,
        })
    }
}

/// SECCOMP_RET_ACTION_FULL.
pub const ACTION_FULL: u32 = 0xffff_0000;
/// SECCOMP_RET_KILL_PROCESS.
pub const RET_KILL_PROCESS: u32 = 0x8000_0000;
/// SECCOMP_RET_KILL_THREAD.
pub const RET_KILL_THREAD: u32 = 0;
/// SECCOMP_RET_TRAP.
pub const RET_TRAP: u32 = 0x0003_0000;
/// SECCOMP_RET_ERRNO.
pub const RET_ERRNO: u32 = 0x0005_0000;
/// SECCOMP_RET_USER_NOTIF.
pub const RET_USER_NOTIF: u32 = 0x7fc0_0000;
/// SECCOMP_RET_TRACE.
pub const RET_TRACE: u32 = 0x7ff0_0000;
/// SECCOMP_RET_LOG.
pub const RET_LOG: u32 = 0x7ffc_0000;
/// SECCOMP_RET_ALLOW.
pub const RET_ALLOW: u32 = 0x7fff_0000;
