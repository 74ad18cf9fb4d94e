//! What the file layer may know of the task that calls it.

use crate::devices::DeviceUse;
use crate::file::OpenFile;
use crate::fs_context::FsContext;
use crate::quota::Quotas;
use crate::state::Vfs;
use abi::{Errno, Result, SigInfo, SigSet, Signal};
use pid::{Pid, PidNamespace};
use rights::cred::{Cap, Credentials, Creds};
use std::sync::Arc;
use std::time::Instant;
use wait::{WaitQueue, Waiter};

/// The pending signals of a thread, its process's included.
pub trait SignalSource: Send + Sync {
    /// Takes the next pending signal of `mask`.
    fn dequeue(&self, mask: SigSet) -> Option<SigInfo>;
    /// Which signals of `mask` are pending.
    fn peek(&self, mask: SigSet) -> SigSet;
    /// Notified with READABLE when a signal becomes pending.
    fn wait_queue(&self) -> WaitQueue;
}

/// A number that no process, group or session has.
pub const NOBODY: i32 = i32::MIN;

/// The calling task as subsystems see it: credentials, identity, limits, and
/// how to sleep. Implemented by `task::Current`; tests have a plain one.
pub trait Caller {
    /// Credentials for permission checks (fsuid, fsgid, groups, capabilities).
    fn creds(&self) -> Creds;
    /// The sleeping side of this thread.
    fn waiter(&self) -> Arc<Waiter>;
    /// Process (thread group) ID. This and the next three are numbers in the sandbox's own PID namespace, by which the kernel's
    /// tables are keyed ([`Pid::nr`]); what a program sees is another number ([`Caller::pid_vnr`]).
    fn pid(&self) -> i32;
    /// Thread ID.
    fn tid(&self) -> i32;
    /// The name of the thread, as /proc/PID/comm shows it; empty for the kernel itself.
    fn comm(&self) -> Vec<u8> {
        Vec::new()
    }
    /// Process group ID.
    fn pgid(&self) -> i32;
    /// Session ID.
    fn sid(&self) -> i32;
    /// The PID namespace of the calling task; none for the kernel itself.
    fn pid_ns(&self) -> Option<Arc<PidNamespace>>;
    /// The process ID with this number in the sandbox's own namespace, as long as somebody has it or remembers it.
    fn find_pid(&self, nr: i32) -> Option<Arc<Pid>>;
    /// What the caller calls the process, group or session with this number of the sandbox's own namespace; 0 for one that it
    /// cannot see.
    fn pid_vnr(&self, nr: i32) -> i32 {
        if nr <= 0 { nr } else { self.find_pid(nr).map_or(0, |pid| self.vnr_of(&pid)) }
    }
    /// What the caller calls this process ID; 0 when it cannot see it.
    fn vnr_of(&self, pid: &Pid) -> i32 {
        self.pid_ns().map_or(0, |ns| pid.nr_in(&ns))
    }
    /// The number in the sandbox's own namespace of what the caller calls `vnr`, or [`NOBODY`].
    fn find_vpid(&self, vnr: i32) -> i32 {
        self.pid_ns().and_then(|ns| ns.find(vnr)).map_or(NOBODY, |pid| pid.nr())
    }
    /// Gives an open file a descriptor of the caller. EMFILE; EBADF for the kernel itself, which has none.
    fn install(&self, _file: Arc<OpenFile>, _cloexec: bool) -> Result<i32> {
        Err(Errno::EBADF)
    }
    /// Soft limit of an RLIMIT_* resource, in its unit; `u64::MAX` is unlimited.
    fn rlimit(&self, resource: i32) -> u64;
    /// Sends a signal to the calling thread (SIGPIPE, SIGXFSZ).
    fn raise(&self, sig: Signal);
    /// The caller's pending signals (signalfd); the kernel itself has none.
    fn signals(&self) -> Option<&dyn SignalSource> {
        None
    }
    /// File mode creation mask.
    fn umask(&self) -> u32;
    /// The file layer of the caller's kernel.
    fn vfs(&self) -> &Arc<Vfs>;
    /// The caller's root, working directory and mounts; none for the kernel itself.
    fn fs_context(&self) -> Option<Arc<FsContext>> {
        None
    }
    /// What the sandbox and its users may have.
    fn quotas(&self) -> Arc<Quotas> {
        self.vfs().quotas.clone()
    }
    /// Control groups of the sandbox have rules about devices: [`Caller::check_device`] may refuse something.
    fn has_device_rules(&self) -> bool {
        false
    }
    /// EPERM when the caller's control groups refuse this use of a device. They refuse the kernel itself nothing.
    fn check_device(&self, _device: &DeviceUse) -> Result<()> {
        Ok(())
    }
    /// True when `sig` is blocked or ignored by the caller (job control checks).
    fn blocks_or_ignores(&self, sig: Signal) -> bool;
    /// The thread is about to end, so nothing that it waits for matters any more. Takes no lock.
    fn is_killed(&self) -> bool {
        false
    }
    /// How long it waits for programs that serve others: a process that is being made for somebody outside has no thread of
    /// its own yet that could be killed.
    fn deadline(&self) -> Option<Instant> {
        None
    }
    /// Until when a caller that is about to end waits for programs that serve others, with all that it does on its way out.
    fn end_deadline(&self) -> Instant {
        Instant::now()
    }
}

/// The kernel itself as a caller, while it makes what programs then find: root, without limits, deaf to signals.
pub struct Internal {
    vfs: Arc<Vfs>,
    creds: Arc<Credentials>,
}

impl Internal {
    /// The kernel whose file layer this is.
    pub fn new(vfs: &Arc<Vfs>) -> Internal {
        Internal { vfs: vfs.clone(), creds: Arc::new(Credentials::root(&vfs.user_ns, Cap::ALL)) }
    }
}

impl Caller for Internal {
    fn creds(&self) -> Creds {
        Creds::from_inner(self.creds.clone())
    }
    fn waiter(&self) -> Arc<Waiter> {
        Waiter::new()
    }
    fn pid(&self) -> i32 {
        0
    }
    fn tid(&self) -> i32 {
        0
    }
    fn pgid(&self) -> i32 {
        0
    }
    fn sid(&self) -> i32 {
        0
    }
    fn pid_ns(&self) -> Option<Arc<PidNamespace>> {
        None
    }
    fn find_pid(&self, _nr: i32) -> Option<Arc<Pid>> {
        None
    }
    fn rlimit(&self, _resource: i32) -> u64 {
        u64::MAX
    }
    fn raise(&self, _sig: Signal) {}
    fn umask(&self) -> u32 {
        0
    }
    fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }
    fn blocks_or_ignores(&self, _sig: Signal) -> bool {
        true
    }
}

/// Access to the caller's memory for calls whose layout only a driver knows (ioctl).
pub trait UserMemory {
    /// Copies from the caller; EFAULT when any byte cannot be read.
    fn copy_in(&mut self, addr: u64, buf: &mut [u8]) -> Result<()>;
    /// Copies to the caller; EFAULT when any byte cannot be written.
    fn copy_out(&mut self, addr: u64, data: &[u8]) -> Result<()>;
}

impl dyn UserMemory + '_ {
    /// Reads a plain value.
    pub fn read_value<T: zerocopy::FromBytes + zerocopy::IntoBytes>(&mut self, addr: u64) -> Result<T> {
        let mut v = T::new_zeroed();
        self.copy_in(addr, v.as_mut_bytes())?;
        Ok(v)
    }
    /// Writes a plain value.
    pub fn write_value<T: zerocopy::IntoBytes + zerocopy::Immutable>(
        &mut self,
        addr: u64,
        v: &T,
    ) -> Result<()> {
        self.copy_out(addr, v.as_bytes())
    }
}
