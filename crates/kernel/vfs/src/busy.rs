//! Writers against running programs: what is open for writing cannot be
//! executed, what runs cannot be opened for writing (ETXTBSY in open(2),
//! execve(2), truncate(2)).

use crate::attach::Attachments;
use crate::inode::InodeRef;
use abi::{Errno, Result};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Who uses an inode.
#[derive(Default)]
pub(crate) struct Users {
    /// Open files that write, or the negative number of uses as a running program.
    writers: AtomicI32,
    /// Open files that only read.
    readers: AtomicI32,
    /// Somebody has, or had, a lease on it: without one nothing needs to be looked for.
    leased: AtomicBool,
}

impl Users {
    pub(crate) fn lease(&self) {
        self.leased.store(true, Ordering::SeqCst);
    }

    pub(crate) fn may_be_leased(&self) -> bool {
        self.leased.load(Ordering::SeqCst)
    }
}

/// A use of an inode, given back when dropped.
pub(crate) struct Claim {
    inode: InodeRef,
    step: i32,
}

fn users(inode: &InodeRef) -> Option<&Users> {
    inode.attachments().map(Attachments::users)
}

fn claim(inode: &InodeRef, step: i32) -> Result<Option<Claim>> {
    let Some(u) = users(inode) else { return Ok(None) };
    let add = |n: i32| (n.signum() != -step).then_some(n + step);
    match u.writers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add) {
        Ok(_) => Ok(Some(Claim { inode: inode.clone(), step })),
        Err(_) => Err(Errno::ETXTBSY),
    }
}

/// Opening for writing; ETXTBSY while it runs.
pub(crate) fn write(inode: &InodeRef) -> Result<Option<Claim>> {
    claim(inode, 1)
}

/// Opening for reading only, which is counted.
pub(crate) fn read(inode: &InodeRef) -> Option<Claim> {
    users(inode)?.readers.fetch_add(1, Ordering::SeqCst);
    Some(Claim { inode: inode.clone(), step: 0 })
}

/// Open files that write (or the negative number of running programs), and those that only read.
pub(crate) fn count(inode: &InodeRef) -> (i32, i32) {
    users(inode).map_or((0, 0), |u| (u.writers.load(Ordering::SeqCst), u.readers.load(Ordering::SeqCst)))
}

/// Running; ETXTBSY while somebody has it open for writing.
pub(crate) fn run(inode: &InodeRef) -> Result<Option<Claim>> {
    claim(inode, -1)
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(u) = users(&self.inode) {
            match self.step {
                0 => u.readers.fetch_sub(1, Ordering::AcqRel),
                step => u.writers.fetch_sub(step, Ordering::AcqRel),
            };
        }
        crate::leases::closed(&self.inode);
    }
}
