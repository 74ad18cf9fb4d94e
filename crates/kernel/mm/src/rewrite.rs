//! Rewritten call sites: which text the platform may change, and when it gets back what the file says.
//!
//! Only pages of private file mappings that were never writable are rewritten, so what they held before is in
//! the file: dropping the page restores it. That happens before the program can write to the page or moves it.

use crate::map::{TRAMPOLINES, Vma, VmaKind};
use crate::ops::Mm;
use abi::PAGE_SIZE;
use platform::{Action, Context, REWRITE_AREA, Rewrite};

/// What [`Context::rewrite`] looks at on either side of an address.
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
        }
        let mut outcome = ctx.rewrite(rip);
        if outcome == Rewrite::NeedsArea && self.make_room(ctx, rip) {
            outcome = ctx.rewrite(rip);
        }
        if let Rewrite::Done { addr, len } = outcome {
            self.map.lock().set_rewritten(addr, len);
        }
    }

    fn make_room(&self, ctx: &mut dyn Context, site: u64) -> bool {
        let Some(addr) = self.map.lock().find_near(site, REWRITE_AREA) else { return false };
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
        });
        ctx.add_area(addr);
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
            ctx.forget_areas();
            // What is left of them is the program's like any other memory.
            let mut m = self.map.lock();
            let max = m.max;
            m.update(0, max, |v| v.flags &= !TRAMPOLINES);
        }
    }
}
