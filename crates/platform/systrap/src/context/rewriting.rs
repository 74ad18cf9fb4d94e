//! System calls that are rewritten to jumps, and twins of text in which they are.

use super::{EFLAGS_RF, SystrapContext};
use platform::{Rewrite, Rewriter, Twin};
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Rewriter for SystrapContext {
    fn hot_site(&mut self) -> Option<u64> {
        let rip = std::mem::take(&mut self.hot);
        (rip != 0 && rip < self.inner.limits.max && !self.thread.space.sites.knows(rip)).then_some(rip)
    }

    fn rewrite(&mut self, rip: u64) -> Rewrite {
        self.rewrite_site(rip)
    }

    fn called_from(&self) -> u64 {
        // Most calls have left the rest of the registers in the slot, where they stay.
        let rip = if self.partial { self.slot().rip() } else { self.regs.rip };
        self.thread.space.sites.guest_rip(rip)
    }

    fn new_sites(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.fresh)
    }

    fn make_twin(&self, text: &[u8], end: u64, sites: &[u64], public: bool) -> Option<Arc<dyn Twin>> {
        let twin = crate::twin::TextTwin::new(text, end, sites).ok()?;
        if public {
            self.inner.common.add(twin.fd());
        }
        Some(Arc::new(twin))
    }

    fn share(&self, fd: &Arc<OwnedFd>) {
        self.inner.common.add(fd);
    }

    fn add_twin(&mut self, start: u64, twin: &Arc<dyn Twin>) {
        self.thread.space.sites.add_twin(start, twin.clone());
    }

    fn forget_twin(&mut self, start: u64) {
        // As in `forget_areas`.
        self.load_rest();
        self.regs.eflags |= EFLAGS_RF;
        self.thread.space.sites.forget_twin(start);
    }

    fn add_area(&mut self, start: u64) {
        self.thread.space.sites.add_area(start);
    }

    fn forget_areas(&mut self) {
        // The call may have come by one of the trampolines that end now: the guest goes on with a frame, at its own address.
        self.load_rest();
        self.regs.eflags |= EFLAGS_RF;
        self.thread.space.sites.forget_areas();
    }
}
