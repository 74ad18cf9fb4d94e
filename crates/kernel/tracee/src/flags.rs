//! Flags of a traced thread, options, events and messages. See ptrace(2).

/// The thread is traced.
pub const TRACED: u32 = 1;
/// By PTRACE_SEIZE.
pub const SEIZED: u32 = 2;
/// It stops at the entry and exit of calls (PTRACE_SYSCALL).
pub const SYSCALL: u32 = 4;
/// It stops at the entry of a call, which is not made (PTRACE_SYSEMU).
pub const SYSEMU: u32 = 8;
/// It executes one instruction (PTRACE_SINGLESTEP).
pub const STEP: u32 = 16;
/// It is to stop for a group stop, an attach or PTRACE_INTERRUPT.
pub const TRAP: u32 = 32;
/// A group stop has begun or ended, which a seized thread reports.
pub const NOTIFY: u32 = 64;
/// Its debug registers watch something.
pub const WATCHED: u32 = 128;

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
