//! A guest process and its threads.

use abi::{Errno, Result};
use hostsys::process;
use platform::{AddressSpace, GuestProcess, Limits};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;

/// See [`AddressSpace`].
pub(crate) struct Space {
    pub(crate) process: GuestProcess,
    /// Guest threads that have not ended.
    pub(crate) contexts: AtomicU32,
}

impl Space {
    pub(crate) fn new(pid: i32, pidfd: OwnedFd, limits: &Limits) -> Space {
        let process = GuestProcess::new(pid, pidfd, limits.max, limits.vdso);
        Space { process, contexts: AtomicU32::new(0) }
    }

    /// Writes to memory of the stub's own.
    pub(crate) fn write_outside(&self, addr: u64, data: &[u8]) -> Result<()> {
        match self.process.while_alive(|pid| process::vm_write(pid, addr, data))? {
            n if n == data.len() => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }
}

impl AddressSpace for Space {
    fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.process.read(addr, buf)
    }

    fn write(&self, addr: u64, data: &[u8]) -> usize {
        self.process.write(addr, data)
    }

    fn kill(&self) {
        self.process.kill();
    }

    fn host_pid(&self) -> i32 {
        self.process.pid
    }
}
