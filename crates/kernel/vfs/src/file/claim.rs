//! Writers against running programs: what is open for writing cannot be
//! executed, what runs cannot be opened for writing (ETXTBSY in open(2),
//! execve(2), truncate(2)).

use crate::attach::{Attachments, InodeUsers};
use crate::inode::InodeRef;
use abi::{Errno, Result};
use std::sync::atomic::Ordering;

/// A use of an inode by an open file or a running program, given back when dropped.
pub struct Claim {
    inode: InodeRef,
    step: i32,
}

impl Claim {
    /// It is that of a running program.
    pub fn runs(&self) -> bool {
        self.step < 0
    }
}

fn users(inode: &InodeRef) -> Option<&InodeUsers> {
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
pub fn write(inode: &InodeRef) -> Result<Option<Claim>> {
    claim(inode, 1)
}

/// Opening for reading only, which is counted.
pub fn read(inode: &InodeRef) -> Option<Claim> {
    users(inode)?.readers.fetch_add(1, Ordering::SeqCst);
    Some(Claim { inode: inode.clone(), step: 0 })
}

/// Running; ETXTBSY while it is open for writing.
pub fn run(inode: &InodeRef) -> Result<Option<Claim>> {
    claim(inode, -1)
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(u) = users(&self.inode) {
            match self.step {
                0 => u.readers.fetch_sub(1, Ordering::AcqRel),
                step => u.writers.fetch_sub(step, Ordering::AcqRel),
            };
            u.end();
        }
    }
}
