//! madvise(2) and mremap(2) of ranges that are mapped from an image; see the module `imaged`.

use crate::guards::MADV_GUARD_INSTALL;
use crate::imaged::Piece;
use crate::map::{DONT_FORK, Vma};
use crate::ops::Mm;
use abi::{Errno, PAGE_SIZE, Result};
use platform::{Action, Context};
use std::sync::atomic::Ordering;
use vfs::{Caller, MapRequest, Mapping};

impl Mm {
    /// Whether a part of a range is mapped from an image.
    pub fn is_imaged(&self, start: u64, end: u64) -> bool {
        self.restored.load(Ordering::Relaxed) && !self.map.lock().imaged.within(start, end).is_empty()
    }

    /// madvise(2) is about to be made: gives the range memory of its own where the host would take the advice for the
    /// image's file.
    pub fn before_advice(
        &self,
        cx: &dyn Caller,
        ctx: &mut dyn Context,
        start: u64,
        end: u64,
        advice: i32,
    ) -> Result<()> {
        let drops = matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | MADV_GUARD_INSTALL);
        if !drops && advice != libc::MADV_WIPEONFORK {
            return Ok(());
        }
        let mut parts = Vec::new();
        for v in self.map.lock().overlapping(start, end) {
            if v.takes_advice(advice).is_err() || drops && v.locked {
                break;
            }
            parts.push(v.part(start, end));
        }
        for v in parts {
            for Piece { start: a, end: b, .. } in self.with_map(|m| m.imaged.within(v.start, v.end)) {
                let v = v.part(a, b);
                // Asked before the lock, as mmap(2) does.
                let mapping = behind(cx, &v, a, b - a)?;
                let _ops = self.ops.lock();
                match (drops, &v.file) {
                    (true, _) => ctx.queue(mapped(&v, &mapping, a, b - a)),
                    (false, Some(_)) => continue,
                    (false, None) => self.copy_own(ctx, &v)?,
                }
                // What is new there has none of the advice that was given before.
                if v.flags & DONT_FORK != 0 {
                    ctx.queue(Action::Advise { addr: a, len: b - a, advice: libc::MADV_DONTFORK });
                }
                ctx.flush()?;
                self.map.lock().imaged.remove(a, b);
            }
        }
        Ok(())
    }

    /// Replaces a mapping of the image by anonymous memory with the same content, in one step. What other threads write
    /// meanwhile is lost. The caller holds `ops`.
    fn copy_own(&self, ctx: &mut dyn Context, v: &Vma) -> Result<()> {
        let len = v.len();
        let aside = self.map.lock().find_free(0, len, PAGE_SIZE).ok_or(Errno::ENOMEM)?;
        let all = libc::PROT_READ | libc::PROT_WRITE;
        ctx.queue(Action::MapAnon { addr: aside, len, prot: all, flags: 0 });
        ctx.queue(Action::Protect { addr: v.start, len, prot: v.prot | libc::PROT_READ });
        ctx.flush()?;
        let mut at = 0;
        let mut page = vec![0; PAGE_SIZE as usize];
        while at < len {
            if self.space.read(v.start + at, &mut page) != page.len() {
                return Err(Errno::EFAULT);
            }
            if !image::is_zero(&page) {
                ctx.queue(Action::Write { addr: aside + at, data: page.clone() });
                ctx.flush()?;
            }
            at += PAGE_SIZE;
        }
        ctx.queue(Action::Protect { addr: aside, len, prot: v.prot });
        ctx.queue(Action::Remap { addr: aside, len, new_addr: v.start, new_len: len, flags: 0 });
        Ok(())
    }

    /// What mremap(2) maps behind the old end of an area, when the host's mapping there is one of the image.
    pub(crate) fn tail(
        &self,
        cx: &dyn Caller,
        addr: u64,
        old_len: u64,
        new_len: u64,
    ) -> Result<Option<Mapping>> {
        let Some(end) = addr.checked_add(old_len).filter(|_| new_len > old_len && old_len > 0) else {
            return Ok(None);
        };
        if !self.is_imaged(end - PAGE_SIZE, end) {
            return Ok(None);
        }
        let Some(v) = self.with_map(|m| m.find(addr).cloned()) else { return Ok(None) };
        if end > v.end {
            return Ok(None);
        }
        behind(cx, &v, end, new_len - old_len).map(Some)
    }

    /// Queues mremap(2) of an area in which pages are mapped from an image: from a place and length to another, with what
    /// [`Mm::tail`] gave, and with MREMAP_DONTUNMAP if it is to be kept. Gives the ranges of the image at the new place. The
    /// caller holds `ops`.
    pub(crate) fn queue_move(
        &self,
        ctx: &mut dyn Context,
        vma: &Vma,
        (old, old_len): (u64, u64),
        (new, new_len): (u64, u64),
        tail: Option<&Mapping>,
        keep: bool,
    ) -> Vec<Piece> {
        let moved = old_len.min(new_len);
        let pieces = self.map.lock().imaged.pieces(old, old + moved);
        let mut imaged = Vec::new();
        for (i, &(a, b, of_image)) in pieces.iter().enumerate() {
            let last = i + 1 == pieces.len();
            let grows = if last && tail.is_none() { new_len - moved } else { 0 };
            let to = new + (a - old);
            if to != a || grows > 0 {
                let flags = if keep && of_image.is_none() { libc::MREMAP_DONTUNMAP } else { 0 };
                ctx.queue(Action::Remap { addr: a, len: b - a, new_addr: to, new_len: b - a + grows, flags });
            }
            if keep && of_image.is_some() {
                ctx.queue(mapped(vma, &Mapping::Anonymous, a, b - a));
            }
            imaged.extend(of_image.map(|piece| piece.at(to)));
        }
        if let Some(tail) = tail {
            ctx.queue(mapped(vma, tail, new + moved, new_len - moved));
        }
        if old_len > moved {
            ctx.queue(Action::Unmap { addr: old + moved, len: old_len - moved });
        }
        imaged
    }
}

/// What is mapped at `addr` for an area, without the pages of its own.
pub(crate) fn behind(cx: &dyn Caller, v: &Vma, addr: u64, len: u64) -> Result<Mapping> {
    let Some(f) = &v.file else { return Ok(Mapping::Anonymous) };
    let offset = v.offset + (addr - v.start);
    f.ops.map(cx, f, &MapRequest { prot: v.prot, shared: v.shared, offset, len })
}

/// Maps a part of an area.
pub(crate) fn mapped(v: &Vma, mapping: &Mapping, addr: u64, len: u64) -> Action {
    let (prot, flags) = (v.prot, v.flags & libc::MAP_NORESERVE);
    match mapping {
        Mapping::Anonymous => Action::MapAnon { addr, len, prot, flags },
        Mapping::Host { fd, offset } => {
            let kind = if v.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            Action::MapFile { addr, len, prot, flags: flags | kind, fd: fd.clone(), offset: *offset }
        }
    }
}
