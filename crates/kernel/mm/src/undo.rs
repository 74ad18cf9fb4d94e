//! Changes of mappings that wait for the resume of the guest thread.
//!
//! In an address space with one thread a change is recorded at once and executed together with the resume, which saves
//! a hand-off. If the host then refuses it, the record goes back to what it was. At most one change waits at a time:
//! the next call of that thread finds it settled.

use crate::imaged::Piece;
use crate::map::{TRAMPOLINES, Undo};
use crate::ops::Mm;
use abi::{Errno, Result};
use platform::Context;
use std::sync::atomic::Ordering;

impl Mm {
    /// Executes the queued actions: at the resume if no other thread is there, at once otherwise. The change has been
    /// recorded; an error takes it back. The caller holds `ops`.
    pub(crate) fn execute(&self, ctx: &mut dyn Context, undo: Undo) -> Result<()> {
        if ctx.alone() {
            *self.undo.lock() = Some(undo);
            self.unsettled.store(true, Ordering::Relaxed);
            return Ok(());
        }
        ctx.flush().inspect_err(|_| self.take_back(undo))
    }

    /// The guest thread has resumed: what waited for that is done.
    pub fn settle(&self) {
        if self.unsettled.load(Ordering::Relaxed) {
            self.unsettled.store(false, Ordering::Relaxed);
            let done = self.undo.lock().take();
            drop(done);
        }
    }

    /// The host refused an action of the resume; what the call answers.
    pub fn refused(&self, errno: Errno) -> u64 {
        self.unsettled.store(false, Ordering::Relaxed);
        let Some(undo) = self.undo.lock().take() else { return errno.to_ret() };
        let answer = undo.brk.unwrap_or(errno.to_ret());
        self.take_back(undo);
        answer
    }

    fn take_back(&self, undo: Undo) {
        let mut m = self.map.lock();
        let (start, end) = undo.range;
        let gone = m.remove(start, end);
        // A new mapping may have been that of a twin.
        m.twins.retain(|t| start == end || t.end <= start || t.start >= end);
        for v in undo.before {
            // Which parts were of an image is not known any more. To take all for that costs a mapping where the program
            // drops pages.
            let (a, b) = (v.start, v.end);
            let own = !v.shared && v.flags & TRAMPOLINES == 0;
            m.insert(v);
            if own && self.restored.load(Ordering::Relaxed) {
                m.imaged.add(Piece { start: a, end: b, origin: None });
            }
        }
        if let Some(b) = undo.brk {
            m.brk = b;
        }
        drop(m);
        drop(gone);
    }
}
