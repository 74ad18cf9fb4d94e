//! The extended state of a guest thread, and signal frames that have it.

use super::{ProcessGone, SystrapContext};
use crate::actions::{Encoder, Job};
use abi::{Errno, Result};
use hostsys::process;
use platform::{Action, ExtendedState, GuestMemory, Moved};
use std::sync::atomic::Ordering::Relaxed;
use stub::layout as l;

impl SystrapContext {
    /// Size and components of an extended state that the stub can store or load itself: it has no signal frame then, the
    /// state is still in the processor.
    fn xstate_at(&self, addr: u64) -> Option<(u64, u64)> {
        let inside = addr.is_multiple_of(64) && addr < self.inner.limits.max;
        let direct = self.called && self.xstate.is_none() && self.slot().fpstate().load(Relaxed) == 0;
        (inside && direct).then(|| (self.inner.xstate.size as u64, self.inner.xstate.features()))
    }

    /// Has a frame that is to be stored or loaded with the next resume so now.
    fn settle_frame(&mut self) {
        if self.framed.is_some() {
            // The process is gone, or its stack is.
            let _ = self.flush_queue();
        }
    }

    fn xstate_job(&mut self, job: Job, later: bool) -> Result<Moved> {
        if later {
            self.framed = Some(job);
            return Ok(Moved::Later);
        }
        let gone = |ProcessGone| Errno::ESRCH;
        if let Err((_, e)) = self.flush_copy(false).map_err(gone)? {
            return Err(e);
        }
        let (mut jobs, own) = self.take_jobs();
        jobs.push(job);
        self.checked(&jobs, own).map_err(gone)?.map_err(|_| Errno::EFAULT)?;
        Ok(Moved::Now)
    }
}

impl ExtendedState for SystrapContext {
    fn xstate(&mut self) -> Result<Vec<u8>> {
        let _ = self.flush_queue().map_err(|ProcessGone| Errno::ESRCH)?;
        let at = self.slot().fpstate().load(Relaxed);
        let mut bytes = vec![0; self.inner.xstate.size];
        if at == 0 {
            // Without a frame, or not answered yet: a round without actions makes it show its state.
            let encoder = Encoder::new(&[], self.thread.index);
            self.slot().nact().store(0, Relaxed);
            self.slot().xstate_size().store(bytes.len() as u32, Relaxed);
            let r = self.round(&encoder, Vec::new()).map_err(|ProcessGone| Errno::ESRCH)?;
            self.slot().xstate_size().store(0, Relaxed);
            r.map_err(|(_, e)| e)?;
            self.slot().read_data(&mut bytes);
            return Ok(bytes);
        }
        let n = self.thread.space.process.while_alive(|pid| process::vm_read(pid, at, &mut bytes))?;
        if n == bytes.len() { Ok(bytes) } else { Err(Errno::EFAULT) }
    }

    fn set_xstate(&mut self, bytes: &[u8]) -> Result<()> {
        self.settle_frame();
        self.xstate = Some(self.inner.xstate.sanitise(bytes)?);
        Ok(())
    }

    fn reset_xstate(&mut self) {
        self.settle_frame();
        self.xstate = Some(self.inner.xstate.initial());
    }

    fn store_frame(&mut self, at: u64, frame: &[u8], addr: u64, later: bool) -> Result<Moved> {
        self.settle_frame();
        // A failure is then that of the frame.
        let later = later && self.is_idle() && self.copy.is_none();
        let Some((size, mask)) = self.xstate_at(addr) else { return Ok(Moved::Not) };
        if addr.checked_add(size).is_none_or(|end| end > self.inner.limits.max) {
            return Err(Errno::EFAULT);
        }
        self.queue_write(at, frame);
        let layout = &self.inner.xstate;
        // What the processor does not write: Linux's words, and of the header all but the bits of the mask.
        let words = Action::Write { addr: addr + l::XSTATE_WORDS, data: layout.words().to_vec() };
        let header = Action::Write { addr: addr + 512, data: vec![0; 64] };
        self.queue.extend([words, header]);
        self.xstate_job(Job::StoreXstate(addr, mask), later)
    }

    fn fetch_xstate(&mut self, addr: u64, later: bool) -> Result<Moved> {
        self.settle_frame();
        let later = later && self.is_idle() && self.copy.is_none();
        let Some((_, mask)) = self.xstate_at(addr) else { return Ok(Moved::Not) };
        let mut words = [0; l::XSTATE_WORDS_SIZE as usize];
        let captured = self.captured(addr.wrapping_add(l::XSTATE_WORDS), &mut words);
        if !captured || words != *self.inner.xstate.words() {
            return Ok(Moved::Not);
        }
        self.xstate_job(Job::FetchXstate(addr, mask), later)
    }
}
