//! Writers against running programs: what is open for writing cannot be
//! executed, what runs cannot be opened for writing (ETXTBSY in open(2),
//! execve(2), truncate(2)).

use crate::attach::Attachments;
use crate::inode::InodeRef;
use abi::{Errno, Result};
use std::sync::atomic::{AtomicI32, Ordering};

/// Open files that write, or the negative number of uses as a running program; and those that only read.
#[derive(Default)]
pub(crate) struct Users(AtomicI32, AtomicI32);

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
    match u.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
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
    users(inode)?.1.fetch_add(1, Ordering::AcqRel);
    Some(Claim { inode: inode.clone(), step: 0 })
}

/// Open files that write (or the negative number of running programs), and those that only read.
pub(crate) fn count(inode: &InodeRef) -> (i32, i32) {
    users(inode).map_or((0, 0), |u| (u.0.load(Ordering::Acquire), u.1.load(Ordering::Acquire)))
}

/// Running; ETXTBSY while somebody has it open for writing.
pub(crate) fn run(inode: &InodeRef) -> Result<Option<Claim>> {
    claim(inode, -1)
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(u) = users(&self.inode) {
            match self.step {
                0 => u.1.fetch_sub(1, Ordering::AcqRel),
                step => u.0.fetch_sub(step, Ordering::AcqRel),
            };
        }
        crate::leases::closed(&self.inode);
    }
}
