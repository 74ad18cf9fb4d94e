//! remap_file_pages(2): another part of the file at the same place, as a mapping of its own.

use crate::map::{MAX_MAP_COUNT, Vma};
use crate::ops::Mm;
use abi::{Errno, PAGE_SIZE, Result};
use platform::{Action, Context};

impl Mm {
    /// remap_file_pages(2) of whole pages, from page `first` of the file on.
    pub fn remap_file_pages(&self, ctx: &mut dyn Context, start: u64, len: u64, first: u64) -> Result<()> {
        let end = start.checked_add(len).filter(|end| *end > start).ok_or(Errno::EINVAL)?;
        let offset = first.checked_mul(PAGE_SIZE).filter(|o| o.checked_add(len).is_some());
        if first.checked_add(len / PAGE_SIZE).is_none() {
            return Err(Errno::EINVAL);
        }
        let _ops = self.ops.lock();
        let vma = {
            let m = self.map.lock();
            let v = m.find(start).filter(|v| v.shared).ok_or(Errno::EINVAL)?.clone();
            let alike =
                |o: &Vma| v.same_object(o) && v.kind == o.kind && v.prot == o.prot && v.flags == o.flags;
            if !m.covered(start, end) || !m.overlapping(start, end).all(alike) {
                return Err(Errno::EINVAL);
            }
            if m.count() >= MAX_MAP_COUNT {
                return Err(Errno::ENOMEM);
            }
            m.not_sealed(start, end)?;
            v
        };
        let offset = offset.ok_or(Errno::EOVERFLOW)?;
        ctx.queue(Action::RemapFile { addr: start, len, first });
        ctx.flush()?;
        self.map.lock().insert(Vma { start, end, offset, ..vma });
        Ok(())
    }
}
