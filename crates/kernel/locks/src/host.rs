//! The host's side of file locks.
//!
//! A file of a shared directory can be locked by others outside: the host's programs and other sandboxes.
//! [`records`](crate::records) decides among this kernel's own programs. Their locks together are also held on the
//! host's file, by one description for each file. A byte is locked for writing there while a program here has it locked
//! for writing, and for reading while a program here has it locked for reading. The host's locks are
//! open-file-description locks and flock(2), which end with the sandbox.
//!
//! A host call is made under the lock of the one inode's records, and never waits for a holder. For a program that waits for a
//! holder outside, a thread waits on the host ([`helper`](crate::helper)). Where there is none, the waiter asks again
//! ([`Pace`](caller::pace::Pace)). A checkpoint keeps nothing: restored locks are taken anew.
//!
//! [`locks`]: crate::records

use abi::{Errno, Result};
use hostsys::fs::{self as host, Holder, HostLock};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfs::file::{LockFile, OpenFile};

/// Type of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// F_RDLCK, LOCK_SH
    Shared,
    /// F_WRLCK, LOCK_EX
    Exclusive,
}

/// "To the end of the file".
pub const TO_END: u64 = i64::MAX as u64;

/// Most ranges of one file: the host walks through all of them for each change.
pub(crate) const RANGES: u64 = 16384;

pub(crate) fn of(kind: Kind) -> HostLock {
    match kind {
        Kind::Shared => HostLock::Shared,
        Kind::Exclusive => HostLock::Exclusive,
    }
}

/// The host's file system has no locks; the ones inside are all there are.
fn unsupported(e: Errno) -> bool {
    matches!(e, Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS)
}

fn lock_file(file: &OpenFile) -> Result<Option<LockFile>> {
    file.ops.as_storage().map_or(Ok(None), |s| s.lock_file(file))
}

/// The first and last bytes of these ranges, merged where they meet, in ascending order.
pub(crate) fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match all.last_mut() {
            Some(last) if start <= last.1.saturating_add(1) => last.1 = last.1.max(end),
            _ => all.push((start, end)),
        }
    }
    all
}

/// What of `start..=end` is in none of `held`, which are merged and ascending.
pub(crate) fn gaps(held: &[(u64, u64)], start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = start;
    for &(s, e) in held {
        if s > end || at > end {
            break;
        }
        if s > at {
            gaps.push((at, s - 1));
        }
        at = at.max(e.saturating_add(1));
    }
    if at <= end {
        gaps.push((at, end));
    }
    gaps
}

/// The record locks of one file on the host.
#[derive(Default)]
pub(crate) struct HostRecords {
    /// Holds them. Set while there is any.
    file: Option<LockFile>,
    /// The host's file system has no locks.
    refused: bool,
}

impl HostRecords {
    /// Sees to a description that can hold a lock of this type. `shared` gives the ranges that are held, when they have
    /// to move to another description; those are for reading then. False for a file that cannot be locked from outside.
    pub fn prepare(
        &mut self,
        file: &OpenFile,
        kind: Kind,
        shared: impl FnOnce() -> Vec<(u64, u64)>,
    ) -> Result<bool> {
        if self.refused {
            return Ok(false);
        }
        let takes = |f: &LockFile| if kind == Kind::Shared { f.readable } else { f.writable };
        if self.file.as_ref().is_some_and(takes) {
            return Ok(true);
        }
        let Some(new) = lock_file(file)? else { return Ok(false) };
        if let Some(old) = &self.file {
            // Locks for writing cannot be held twice, so they cannot move without a gap.
            if !old.readable || !new.readable || !takes(&new) {
                return Err(Errno::ENOLCK);
            }
            // The new description has them before the old one lets go.
            for (start, end) in shared() {
                host::lock_range(&*new.fd, Some(HostLock::Shared), start, end).map_err(|_| Errno::ENOLCK)?;
            }
            let _ = host::lock_range(&*old.fd, None, 0, TO_END);
        }
        self.file = Some(new);
        Ok(true)
    }

    /// Takes `start..=end`, after [`HostRecords::prepare`]; EAGAIN when a process outside holds a part. `first`:
    /// nothing is held yet.
    pub fn lock(&mut self, kind: Kind, start: u64, end: u64, first: bool) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let done = host::lock_range(&*file.fd, Some(of(kind)), start, end);
        if done.is_err() && first {
            self.file = None;
        }
        match done {
            Err(e) if first && unsupported(e) => {
                self.refused = true;
                Ok(())
            }
            done => done,
        }
    }

    /// A description that has the first lock of the file.
    pub fn adopt(&mut self, won: LockFile) {
        self.file = Some(won);
    }

    /// Gives back what of `start..=end` is not in `held`. Freeing memory needs none, but a cut in a range may; when the host
    /// has none it keeps the lock longer than needed, until the last one of the file goes.
    pub fn unlock(&mut self, start: u64, end: u64, held: impl FnOnce() -> Vec<(u64, u64)>) {
        if let Some(file) = &self.file {
            for (start, end) in gaps(&merged(held()), start, end) {
                let _ = host::lock_range(&*file.fd, None, start, end);
            }
        }
    }

    /// Nothing is held here any more.
    pub fn end(&mut self) {
        if let Some(file) = self.file.take() {
            let _ = host::lock_range(&*file.fd, None, 0, TO_END);
        }
    }

    /// The first lock of others outside that is in the way.
    pub fn test(&self, file: &OpenFile, kind: Kind, start: u64, end: u64) -> Result<Option<Holder>> {
        let asked = match &self.file {
            _ if self.refused => None,
            Some(f) => Some(f.clone()),
            None => lock_file(file)?,
        };
        let Some(asked) = asked else { return Ok(None) };
        match host::test_range(&*asked.fd, of(kind), start, end) {
            Err(e) if unsupported(e) => Ok(None),
            answer => answer,
        }
    }
}

/// The flock(2) of one file on the host.
#[derive(Default)]
pub(crate) struct HostFlock {
    fd: Option<Arc<OwnedFd>>,
    refused: bool,
}

impl HostFlock {
    /// Takes it; EAGAIN when a process outside has it. No lock inside conflicts; `shared`: another open file here has
    /// the same. A lock of the other kind is converted, or is gone with an error.
    pub fn lock(&mut self, file: &OpenFile, kind: Kind, shared: bool) -> Result<()> {
        if self.refused || shared && self.fd.is_some() {
            return Ok(());
        }
        let fd = match self.fd.take() {
            Some(fd) => fd,
            None => match lock_file(file)? {
                Some(new) => new.fd,
                None => return Ok(()),
            },
        };
        match host::lock_file(&*fd, Some(of(kind))) {
            Ok(()) => self.fd = Some(fd),
            Err(e) if unsupported(e) => self.refused = true,
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// A description that has the lock; no open file here has one.
    pub fn adopt(&mut self, won: LockFile) {
        self.fd = Some(won.fd);
    }

    /// No open file here has one any more.
    pub fn end(&mut self) {
        if let Some(fd) = self.fd.take() {
            let _ = host::lock_file(&*fd, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_leave_gaps() {
        let held = merged(vec![(10, 19), (5, 12), (20, 29), (40, TO_END)]);
        assert_eq!(held, [(5, 29), (40, TO_END)]);
        assert_eq!(gaps(&held, 0, TO_END), [(0, 4), (30, 39)]);
        assert_eq!(gaps(&held, 6, 20), []);
        assert_eq!(gaps(&held, 35, 37), [(35, 37)]);
        assert_eq!(gaps(&held, 20, 45), [(30, 39)]);
        assert_eq!(gaps(&[], 7, 7), [(7, 7)]);
    }
}
