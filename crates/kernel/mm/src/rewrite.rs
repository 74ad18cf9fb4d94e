//! Rewritten call sites: the text that the platform may change, and the time when the text gets the file's bytes back.
//!
//! Only pages of private file mappings that were never writable are rewritten. Their old bytes are in the file, so
//! dropping the page restores them. That happens before the program can write to the page or moves it.
//!
//! A [`TwinMap`](crate::twin_map::TwinMap) says that an address space maps a twin ([`text_copies`]). As long as it is *whole* all of it is as it was
//! mapped, and calls from anywhere in it may go by way of its trampolines. Before the program changes the protection of
//! a part, moves it, or takes some of it away, all pages but that of the trampolines are mapped from the file instead
//! (they were never writable). Then nothing leads to the trampolines any more, and threads that are in one of them can
//! come back; see `untwin`.

use crate::map::{TOUCHED, TRAMPOLINES, Vma, VmaKind};
use crate::ops::Mm;
use crate::policy::Policy;
use crate::twin_map::Change;
use abi::PAGE_SIZE;
use platform::{Action, Context, REWRITE_AREA, Rewrite};

/// What [`platform::Rewriter::rewrite`] looks at on either side of an address.
const AROUND: u64 = 16;

impl Mm {
    /// Has the platform rewrite the call site before `rip` if it can. Nothing may be queued.
    pub fn rewrite(&self, ctx: &mut dyn Context, rip: u64) {
        let _ops = self.ops.lock();
        {
            let m = self.map.lock();
            let (start, end) = (rip.saturating_sub(AROUND), rip.saturating_add(AROUND));
            if !m.rewriting || !m.is_pristine_text(start, end) {
                return;
            }
            // In a page that is this process's own already the twin's jump cannot be seen.
            if let Some(t) = m.whole_twin(rip).filter(|_| !m.is_rewritten(rip)) {
                let (start, twin) = (t.start, t.image.twin.clone());
                drop(m);
                if twin.rewrite(rip - start) {
                    return;
                }
            }
        }
        let mut outcome = ctx.rewriter().map(|r| r.rewrite(rip));
        if let Some(Rewrite::NeedsArea(places)) = &outcome
            && self.make_room(ctx, rip, places)
        {
            outcome = ctx.rewriter().map(|r| r.rewrite(rip));
        }
        if let Some(Rewrite::Done { addr, len }) = outcome {
            self.map.lock().set_rewritten(addr, len);
        }
    }

    /// Call sites have raised a first signal: has them rewritten for all processes, or notes them for later ones.
    /// `all_see`: see [`text_copies::Twins::note`].
    pub fn note_sites(&self, ctx: &mut dyn Context, sites: &[u64], all_see: bool) {
        for &rip in sites {
            let (file, offset) = {
                let m = self.map.lock();
                let (start, end) = (rip.saturating_sub(AROUND), rip.saturating_add(AROUND));
                if !m.rewriting || !m.is_pristine_text(start, end) {
                    continue;
                }
                if let Some(t) = m.whole_twin(rip) {
                    let (start, twin) = (t.start, t.image.twin.clone());
                    drop(m);
                    twin.rewrite(rip - start);
                    continue;
                }
                match m.find(rip) {
                    Some(Vma { file: Some(f), offset, start, .. }) => (f.clone(), offset + (rip - start)),
                    _ => continue,
                }
            };
            self.all.twins.note(ctx, &file, offset, all_see);
        }
    }

    /// A part of a twin's mapping is about to change: see [`TwinMap`](crate::twin_map::TwinMap). The caller holds `ops`.
    pub(crate) fn untwin(&self, ctx: &mut dyn Context, start: u64, end: u64, change: Change) {
        let mut m = self.map.lock();
        if m.twins.is_empty() {
            return;
        }
        let mut gone = Vec::new();
        let mut twins = std::mem::take(&mut m.twins);
        twins.retain_mut(|t| {
            if t.start >= end || t.end <= start || !t.whole && t.last_page() >= end {
                return true;
            }
            let ends = change != Change::Writable && end > t.last_page();
            let all = change == Change::Unmap && start <= t.start && end >= t.end;
            // Trampolines that cannot be executed need not stay, unless the program has written to their page.
            let own = m.find(t.last_page()).is_none_or(|v| v.flags & TOUCHED != 0);
            let until = if ends && change == Change::NotText && !own { t.end } else { t.last_page() };
            let from = if t.whole { t.start } else { t.last_page() };
            if !all && from < until {
                m.take_rewritten(from, until);
                ctx.queue(Action::MapFile {
                    addr: from,
                    len: until - from,
                    prot: libc::PROT_READ | libc::PROT_EXEC,
                    flags: libc::MAP_PRIVATE,
                    fd: t.image.file.clone(),
                    offset: t.image.offset + (from - t.start),
                });
            }
            t.whole = false;
            if ends {
                gone.push(t.start);
            }
            !ends
        });
        m.twins = twins;
        drop(m);
        if let Some(rewriter) = ctx.rewriter() {
            gone.into_iter().for_each(|start| rewriter.forget_twin(start));
        }
    }

    fn make_room(&self, ctx: &mut dyn Context, site: u64, places: &[u64]) -> bool {
        let found = {
            let m = self.map.lock();
            match places {
                [] => m.find_near(site, REWRITE_AREA),
                places => places.iter().copied().find(|at| m.is_free(*at, REWRITE_AREA)),
            }
        };
        let Some(addr) = found else { return false };
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        ctx.queue(Action::MapAnon { addr, len: REWRITE_AREA, prot, flags: libc::MAP_NORESERVE });
        if ctx.flush().is_err() {
            return false;
        }
        self.map.lock().insert(Vma {
            start: addr,
            end: addr + REWRITE_AREA,
            prot,
            shared: false,
            flags: TRAMPOLINES,
            file: None,
            offset: 0,
            locked: false,
            kind: VmaKind::Normal,
            policy: Policy::default(),
        });
        if let Some(rewriter) = ctx.rewriter() {
            rewriter.add_area(addr);
        }
        true
    }

    /// Undoes the rewriting in a range. The caller holds `ops`.
    pub(crate) fn restore_text(&self, ctx: &mut dyn Context, start: u64, end: u64) {
        let pages = self.map.lock().take_rewritten(start, end);
        for addr in pages {
            ctx.queue(Action::Advise { addr, len: PAGE_SIZE, advice: libc::MADV_DONTNEED });
        }
    }

    /// The program maps something at this place. Over trampolines: nothing may lead there any more.
    pub(crate) fn replace(&self, ctx: &mut dyn Context, start: u64, end: u64) {
        self.untwin(ctx, start, end, Change::Unmap);
        let over = {
            let mut m = self.map.lock();
            let over = m.has_trampolines(start, end);
            if over {
                m.rewriting = false;
            } else {
                m.take_rewritten(start, end);
            }
            over
        };
        if over {
            self.restore_text(ctx, 0, u64::MAX);
            if let Some(rewriter) = ctx.rewriter() {
                rewriter.forget_areas();
            }
            // What is left of them is the program's like any other memory.
            let mut m = self.map.lock();
            let max = m.max;
            m.update(0, max, |v| v.flags &= !TRAMPOLINES);
        }
    }
}
