//! A guest process: its memory and its end.

use abi::{Errno, Result};
use hostsys::process;
use parking_lot::RwLock;
use platform::{AddressSpace, Limits};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;

/// See [`AddressSpace`].
pub(crate) struct Space {
    pub(crate) pid: i32,
    pidfd: OwnedFd,
    limit: u64,
    /// Where the vDSO image stands, which may be read, and its length.
    vdso: (u64, u64),
    /// False once the process has ended; the pid is only used under this lock, and reaped after the change.
    alive: RwLock<bool>,
    /// Guest threads that have not ended.
    pub(crate) contexts: AtomicU32,
}

impl Space {
    pub(crate) fn new(pid: i32, pidfd: OwnedFd, limits: &Limits) -> Space {
        let (limit, vdso) = (limits.max, limits.vdso.unwrap_or_default());
        Space { pid, pidfd, limit, vdso, alive: RwLock::new(true), contexts: AtomicU32::new(0) }
    }

    pub(crate) fn ended(&self) {
        *self.alive.write() = false;
    }

    fn while_alive<R>(&self, f: impl FnOnce(i32) -> Result<R>) -> Result<R> {
        let alive = self.alive.read();
        if *alive { f(self.pid) } else { Err(Errno::ESRCH) }
    }

    /// Writes to memory of the stub's own.
    pub(crate) fn write_outside(&self, addr: u64, data: &[u8]) -> Result<()> {
        match self.while_alive(|pid| process::vm_write(pid, addr, data))? {
            n if n == data.len() => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }

    fn room(&self, addr: u64, len: usize) -> usize {
        self.limit.saturating_sub(addr).min(len as u64) as usize
    }
}

impl AddressSpace for Space {
    fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        let (start, len) = self.vdso;
        let n = match addr.checked_sub(start).filter(|offset| *offset < len) {
            Some(offset) => (len - offset).min(buf.len() as u64) as usize,
            None => self.room(addr, buf.len()),
        };
        let Some(buf) = buf.get_mut(..n).filter(|b| !b.is_empty()) else { return 0 };
        self.while_alive(|pid| process::vm_read(pid, addr, buf)).unwrap_or(0)
    }

    fn write(&self, addr: u64, data: &[u8]) -> usize {
        let n = self.room(addr, data.len());
        let Some(data) = data.get(..n).filter(|b| !b.is_empty()) else { return 0 };
        self.while_alive(|pid| process::vm_write(pid, addr, data)).unwrap_or(0)
    }

    fn kill(&self) {
        // ESRCH: it has ended already.
        let _ = process::pidfd_kill(self.pidfd.as_fd(), libc::SIGKILL);
    }

    fn host_pid(&self) -> i32 {
        self.pid
    }
}
