//! Guard pages: MADV_GUARD_INSTALL and MADV_GUARD_REMOVE of madvise(2).
//!
//! The host marks the pages in the tables of the guest's process; an access faults as one outside of all mappings does. They
//! are recorded for checkpoints, and for the kernel, which must not take such a page for one that can be written.

use crate::imaged::Piece;
use crate::map::{MAX_MAP_COUNT, MemoryMap};
use abi::{Errno, Result};

/// Drops what is in the pages, and guards them.
pub const MADV_GUARD_INSTALL: i32 = 102;
/// Takes guards away.
pub const MADV_GUARD_REMOVE: i32 = 103;

impl MemoryMap {
    /// Guards the pages of a range, or takes their guards away. ENOMEM where that makes more guarded ranges than a process may
    /// have mappings: the kernel keeps each of them.
    pub(crate) fn guard(&mut self, start: u64, end: u64, on: bool) -> Result<()> {
        if self.guards.len() >= MAX_MAP_COUNT && (on || self.guards.is_inside_one(start, end)) {
            return Err(Errno::ENOMEM);
        }
        self.record_guard(start, end, on);
        Ok(())
    }

    /// Records that the pages of a range are guarded, or are not any more.
    pub(crate) fn record_guard(&mut self, start: u64, end: u64, on: bool) {
        if on {
            self.guards.add(Piece { start, end, origin: None });
        } else {
            self.guards.remove(start, end);
        }
    }

    /// The guarded parts of a range.
    pub fn guarded(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        if self.guards.is_empty() {
            return Vec::new();
        }
        self.guards.within(start, end).into_iter().map(|piece| (piece.start, piece.end)).collect()
    }

    /// What is left of ranges without their guarded parts.
    pub(crate) fn unguarded(&self, parts: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut rest = Vec::new();
        for &(start, end) in parts {
            let mut at = start;
            for (from, to) in self.guarded(start, end) {
                rest.push((at, from));
                at = to;
            }
            rest.push((at, end));
        }
        rest.retain(|(from, to)| from < to);
        rest
    }

    /// Guards that move with their pages from `addr..addr + len` to `target`, of which `room` bytes are mapped.
    pub(crate) fn moved_guards(&self, addr: u64, len: u64, (target, room): (u64, u64)) -> Vec<(u64, u64)> {
        let guarded = self.guarded(addr, addr + len.min(room)).into_iter();
        guarded.map(|(from, to)| (from - addr + target, to - addr + target)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_follow_their_pages() {
        let mut m = MemoryMap::new(0, 1 << 30);
        m.guard(0x1000, 0x3000, true).unwrap();
        m.guard(0x3000, 0x4000, true).unwrap();
        m.guard(0x2000, 0x3000, false).unwrap();
        assert_eq!(m.guarded(0, 1 << 20), [(0x1000, 0x2000), (0x3000, 0x4000)]);
        assert_eq!(m.unguarded(&[(0x1000, 0x5000)]), [(0x2000, 0x3000), (0x4000, 0x5000)]);
        assert_eq!(m.moved_guards(0x1000, 0x3000, (0x9000, 0x3000)), [(0x9000, 0xa000), (0xb000, 0xc000)]);
        assert_eq!(m.moved_guards(0x1000, 0x3000, (0x9000, 0x1000)), [(0x9000, 0xa000)]);
        m.remove(0x1000, 0x2000);
        assert_eq!(m.guarded(0, 1 << 20), [(0x3000, 0x4000)]);
    }

    #[test]
    fn guards_are_bounded() {
        let mut m = MemoryMap::new(0, 1 << 40);
        let mut at = (0..).map(|i| i * 0x2000);
        let mut guard = |m: &mut MemoryMap| at.next().map(|at| m.guard(at, at + 0x1000, true)).unwrap();
        for _ in 0..MAX_MAP_COUNT {
            guard(&mut m).unwrap();
        }
        assert_eq!(guard(&mut m), Err(Errno::ENOMEM));
        assert_eq!(guard(&mut m), Err(Errno::ENOMEM));
        m.guard(0, 0x1000, false).unwrap();
        m.guard(0, 0x1000, false).unwrap();
        m.guard(0x2000, 0x3000, false).unwrap();
        guard(&mut m).unwrap();
    }
}
