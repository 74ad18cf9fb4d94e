//! Flags of clone(2), clone3(2), unshare(2) and setns(2), all in the width that clone3(2) has.

/// The signal at the end of the process, in the flags of clone(2). clone3(2) takes it elsewhere.
pub const CSIGNAL: u64 = 0xff;

/// Defines the flags, and [`ALL`].
macro_rules! flags {
    ($($name:ident = $value:expr, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: u64 = $value;)*
        /// Every flag. CLONE_NEWTIME shares its bit with [`CSIGNAL`], so clone(2) cannot have it.
        pub const ALL: u64 = $($name)|*;
    };
}

flags! {
    CLONE_NEWTIME = 0x80, "A new time namespace for children.";
    CLONE_VM = 0x100, "The same memory.";
    CLONE_FS = 0x200, "The same root, working directory and umask.";
    CLONE_FILES = 0x400, "The same table of descriptors.";
    CLONE_SIGHAND = 0x800, "The same table of signal handlers.";
    CLONE_PIDFD = 0x1000, "A descriptor of the new process.";
    CLONE_PTRACE = 0x2000, "The tracer follows.";
    CLONE_VFORK = 0x4000, "The caller waits for execve(2) or the end.";
    CLONE_PARENT = 0x8000, "A sibling of the caller.";
    CLONE_THREAD = 0x1_0000, "A thread of the same process.";
    CLONE_NEWNS = 0x2_0000, "A new mount namespace.";
    CLONE_SYSVSEM = 0x4_0000, "The same list of semaphore adjustments.";
    CLONE_SETTLS = 0x8_0000, "A thread pointer is given.";
    CLONE_PARENT_SETTID = 0x10_0000, "The thread ID goes to the parent's memory.";
    CLONE_CHILD_CLEARTID = 0x20_0000, "A word of the child's memory is cleared at its end.";
    CLONE_DETACHED = 0x40_0000, "Without effect.";
    CLONE_UNTRACED = 0x80_0000, "A tracer cannot force CLONE_PTRACE.";
    CLONE_CHILD_SETTID = 0x100_0000, "The thread ID goes to the child's memory.";
    CLONE_NEWCGROUP = 0x200_0000, "A new cgroup namespace.";
    CLONE_NEWUTS = 0x400_0000, "A new UTS namespace.";
    CLONE_NEWIPC = 0x800_0000, "A new IPC namespace.";
    CLONE_NEWUSER = 0x1000_0000, "A new user namespace.";
    CLONE_NEWPID = 0x2000_0000, "A new PID namespace.";
    CLONE_NEWNET = 0x4000_0000, "A new network namespace.";
    CLONE_IO = 0x8000_0000, "The same I/O context.";
    CLONE_CLEAR_SIGHAND = 0x1_0000_0000, "Handled signals get their default actions.";
    CLONE_INTO_CGROUP = 0x2_0000_0000, "Into the control group of a descriptor.";
}

/// Every namespace.
pub const NAMESPACES: u64 = CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
    | CLONE_NEWTIME;

/// What clone3(2) takes: no signal (CLONE_NEWTIME has a bit of it) and not CLONE_DETACHED.
pub const CLONE3: u64 = ALL & !CLONE_DETACHED;

/// What unshare(2) takes.
pub const UNSHARE: u64 =
    NAMESPACES | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_those_of_the_header() {
        let same = [
            (CLONE_VM, libc::CLONE_VM),
            (CLONE_FS, libc::CLONE_FS),
            (CLONE_FILES, libc::CLONE_FILES),
            (CLONE_SIGHAND, libc::CLONE_SIGHAND),
            (CLONE_PIDFD, libc::CLONE_PIDFD),
            (CLONE_PTRACE, libc::CLONE_PTRACE),
            (CLONE_VFORK, libc::CLONE_VFORK),
            (CLONE_PARENT, libc::CLONE_PARENT),
            (CLONE_THREAD, libc::CLONE_THREAD),
            (CLONE_NEWNS, libc::CLONE_NEWNS),
            (CLONE_SYSVSEM, libc::CLONE_SYSVSEM),
            (CLONE_SETTLS, libc::CLONE_SETTLS),
            (CLONE_PARENT_SETTID, libc::CLONE_PARENT_SETTID),
            (CLONE_CHILD_CLEARTID, libc::CLONE_CHILD_CLEARTID),
            (CLONE_DETACHED, libc::CLONE_DETACHED),
            (CLONE_UNTRACED, libc::CLONE_UNTRACED),
            (CLONE_CHILD_SETTID, libc::CLONE_CHILD_SETTID),
            (CLONE_NEWCGROUP, libc::CLONE_NEWCGROUP),
            (CLONE_NEWUTS, libc::CLONE_NEWUTS),
            (CLONE_NEWIPC, libc::CLONE_NEWIPC),
            (CLONE_NEWUSER, libc::CLONE_NEWUSER),
            (CLONE_NEWPID, libc::CLONE_NEWPID),
            (CLONE_NEWNET, libc::CLONE_NEWNET),
            (CLONE_IO, libc::CLONE_IO),
            (CLONE_NEWTIME, libc::CLONE_NEWTIME),
        ];
        for (ours, header) in same {
            assert_eq!(ours, u64::from(header as u32));
        }
        assert_eq!(CLONE3, 0x3_ffff_ffff & !(CSIGNAL & !CLONE_NEWTIME) & !CLONE_DETACHED);
    }
}
