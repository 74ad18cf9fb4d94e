//! The host process behind a guest address space: its memory, and its end. Platforms that run guests in host processes share it.

use abi::{Errno, Result};
use hostsys::process;
use parking_lot::RwLock;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A child of the sentry whose memory is a guest's.
pub struct GuestProcess {
    /// The host's process ID. It may be another process's after the end: see [`GuestProcess::while_alive`].
    pub pid: i32,
    pidfd: OwnedFd,
    /// One past the highest address of the guest.
    limit: u64,
    /// Where the vDSO image stands, which may be read, and its length.
    vdso: (u64, u64),
    /// False once the process has ended. The pid is only used under this lock, and reaped after the change.
    alive: RwLock<bool>,
}

impl GuestProcess {
    /// A process that runs; `limit` is one past the highest address of the guest, `vdso` the place and length of its vDSO.
    pub fn new(pid: i32, pidfd: OwnedFd, limit: u64, vdso: Option<(u64, u64)>) -> GuestProcess {
        GuestProcess { pid, pidfd, limit, vdso: vdso.unwrap_or_default(), alive: RwLock::new(true) }
    }

    /// Readable once the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Notes the end. The caller reaps the process afterwards.
    pub fn set_ended(&self) {
        *self.alive.write() = false;
    }

    /// Whether the end was noted.
    pub fn has_ended(&self) -> bool {
        !*self.alive.read()
    }

    /// Runs `f` with the pid while it is certainly this process's; ESRCH afterwards.
    pub fn while_alive<R>(&self, f: impl FnOnce(i32) -> Result<R>) -> Result<R> {
        let alive = self.alive.read();
        if *alive { f(self.pid) } else { Err(Errno::ESRCH) }
    }

    /// See [`AddressSpace::read`](crate::AddressSpace::read).
    pub fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        let (start, len) = self.vdso;
        let n = match addr.checked_sub(start).filter(|offset| *offset < len) {
            Some(offset) => (len - offset).min(buf.len() as u64) as usize,
            None => self.room(addr, buf.len()),
        };
        let Some(buf) = buf.get_mut(..n).filter(|b| !b.is_empty()) else { return 0 };
        self.while_alive(|pid| process::vm_read(pid, addr, buf)).unwrap_or(0)
    }

    /// See [`AddressSpace::write`](crate::AddressSpace::write).
    pub fn write(&self, addr: u64, data: &[u8]) -> usize {
        let n = self.room(addr, data.len());
        let Some(data) = data.get(..n).filter(|b| !b.is_empty()) else { return 0 };
        self.while_alive(|pid| process::vm_write(pid, addr, data)).unwrap_or(0)
    }

    /// See [`AddressSpace::kill`](crate::AddressSpace::kill).
    pub fn kill(&self) {
        // ESRCH: it has ended already, or serves another address space.
        let _ = self.while_alive(|_| process::pidfd_kill(self.pidfd.as_fd(), abi::libc::SIGKILL));
    }

    /// How many of `len` bytes from `addr` on are the guest's.
    fn room(&self, addr: u64, len: usize) -> usize {
        self.limit.saturating_sub(addr).min(len as u64) as usize
    }
}
