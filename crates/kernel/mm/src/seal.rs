//! mseal(2): mappings that cannot be changed any more. Only the record is sealed. Sealing the host's mappings would
//! protect only the program from itself, and the program can reach the stub's calls anyway.

use crate::map::{MemoryMap, SEALED, Vma};
use crate::ops::Mm;
use abi::{Errno, PAGE_SIZE, Result, page_up};

/// Advice that drops memory.
fn discards(advice: i32) -> bool {
    const DONTNEED_LOCKED: i32 = 24;
    matches!(
        advice,
        libc::MADV_FREE
            | libc::MADV_DONTNEED
            | DONTNEED_LOCKED
            | libc::MADV_REMOVE
            | libc::MADV_DONTFORK
            | libc::MADV_WIPEONFORK
            | crate::guards::MADV_GUARD_INSTALL
    )
}

impl Vma {
    /// Sealed by mseal(2).
    pub(crate) fn sealed(&self) -> bool {
        self.flags & SEALED != 0
    }

    /// EPERM for advice that would change what a sealed mapping holds and the program could not write itself.
    pub(crate) fn takes_advice(&self, advice: i32) -> Result<()> {
        let own = self.file.is_none() && !self.shared;
        let refused = self.sealed() && discards(advice) && own && self.prot & libc::PROT_WRITE == 0;
        if refused { Err(Errno::EPERM) } else { Ok(()) }
    }
}

impl MemoryMap {
    /// Where the first sealed mapping of a range begins.
    pub(crate) fn first_seal(&self, start: u64, end: u64) -> Option<u64> {
        self.overlapping(start, end).find(|v| v.sealed()).map(|v| v.start.max(start))
    }

    /// EPERM when something in the range is sealed.
    pub(crate) fn not_sealed(&self, start: u64, end: u64) -> Result<()> {
        self.first_seal(start, end).map_or(Ok(()), |_| Err(Errno::EPERM))
    }
}

impl Mm {
    /// mseal(2).
    pub fn seal(&self, start: u64, len: u64) -> Result<()> {
        let len = page_up(len).ok_or(Errno::EINVAL)?;
        let end = start.checked_add(len).filter(|_| start.is_multiple_of(PAGE_SIZE)).ok_or(Errno::EINVAL)?;
        let _ops = self.ops.lock();
        let mut m = self.map.lock();
        if start < end && (end > m.max || !m.covered(start, end)) {
            return Err(Errno::ENOMEM);
        }
        m.update(start, end, |v| v.flags |= SEALED);
        Ok(())
    }
}
