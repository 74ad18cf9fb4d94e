//! New guest threads and processes.

use super::{ProcessGone, SystrapContext};
use crate::actions::{Encoder, Job};
use crate::slot::SlotMap;
use crate::space::{Space, Thread};
use abi::{Errno, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use stub::layout as l;

impl SystrapContext {
    /// Runs one clone, which the listener lets through once.
    /// A clone that was let through and still failed is a suspicion.
    pub(super) fn clone_job(&mut self, job: Job, flags: u64, meanwhile: impl FnOnce()) -> Result<i32> {
        self.thread.grants.lock().clone = Some(flags);
        let jobs = [job];
        let mut encoder = Encoder::new(&jobs, self.thread.index);
        let fds = encoder.fill(self.slot(), None);
        let r = self.round_with(&encoder, fds, meanwhile);
        let unused = self.thread.grants.lock().clone.take().is_some();
        match r {
            Err(ProcessGone) => {
                if !unused {
                    self.inner.suspect(&self.thread.space);
                }
                Err(Errno::EAGAIN)
            }
            Ok(Err((_, e))) => {
                // Usually the host's limit.
                if !unused {
                    self.inner.suspect(&self.thread.space);
                }
                Err(if e == Errno::ENOMEM { e } else { Errno::EAGAIN })
            }
            Ok(Ok(())) => Ok(self.slot().result().load(Relaxed) as i32),
        }
    }

    pub(super) fn spawn_thread(&mut self) -> Result<SystrapContext> {
        let space = self.thread.space.clone();
        let (index, slot) = space.take_slot()?;
        let report_all = self.slot().report_all().load(Relaxed) != 0;
        Self::init_slot(&self.inner, &slot, report_all);
        self.let_go();
        // Until it is registered: the census must not take the new thread for one that the guest hides.
        let _newcomer = space.expect_thread();
        let tid = match self.clone_job(Job::Thread(index), l::CLONE_THREAD_FLAGS, || ()) {
            Ok(tid) => tid,
            Err(e) => {
                slot.alive().store(0, SeqCst);
                space.give_back(index);
                return Err(e);
            }
        };
        self.load_rest();
        // The guest names the thread; it must at least be one of the same process, and not one we know.
        let thread = Thread::new(space.clone(), index, slot, tid);
        if !space.has_thread(tid) || !self.inner.register(&thread) {
            self.violation();
            return Err(Errno::EAGAIN);
        }
        Ok(SystrapContext::new(self.inner.clone(), thread, self.regs))
    }

    /// Of the zygote: closes common files that are gone, and takes those that are new.
    pub(crate) fn keep_up(&mut self) {
        for number in self.thread.space.held.take_gone() {
            let _ = self.report(&[Job::Close(number)]);
        }
        while let Some(fd) = self.inner.common.missing(&self.thread.space.held) {
            // Without it they ask.
            if !matches!(self.report(&[Job::Hold(fd.clone())]), Ok(Ok(()))) {
                return;
            }
            let number = self.slot().result().load(Relaxed);
            self.thread.space.held.add(&fd, number);
        }
    }

    /// Slots for a new process, the one of its first thread mapped.
    pub(crate) fn new_slots(index: usize) -> Result<(OwnedFd, Arc<SlotMap>)> {
        let file = crate::slot::create_file()?;
        let slot = Arc::new(SlotMap::new(file.as_fd(), index)?);
        Ok((file, slot))
    }

    /// Forks; the child has said hello and has its own slots when this returns. The thread serves the listener meanwhile if
    /// `serves` is set.
    pub(crate) fn spawn_fork(&mut self, serves: bool) -> Result<SystrapContext> {
        let index = self.thread.index;
        let (file, slot) = match self.inner.take_spare(index) {
            Some(spare) => spare,
            None => Self::new_slots(index)?,
        };
        let report_all = self.slot().report_all().load(Relaxed) != 0;
        Self::init_slot(&self.inner, &slot, report_all);
        // It lasts until the child is adopted: the census must not take the child for one that the guest hides.
        self.bell = self.bell.take().or_else(crate::notify::new_bell);
        let ticket = self.inner.expect_fork(file, self.bell.clone(), serves);
        // A fork that failed is not followed by a hello.
        let (parent, last) = (self.thread.clone(), self.last);
        let failed = || {
            parent.is_dead()
                || parent.has_news(last) && parent.slot.what().load(Relaxed) & l::REQ_MASK == l::REQ_FAILED
        };
        let soon = || parent.has_news(last);
        let hello = || ticket.expect(failed, soon);
        let claimed = self.clone_job(
            Job::Fork(ticket.nonce(), self.thread.space.lent.ever()),
            l::CLONE_FORK_FLAGS,
            hello,
        );
        let (pid, pidfd, file) = match claimed {
            Ok(claimed) => {
                let dead = || parent.is_dead();
                ticket.wait(claimed, dead).inspect_err(|_| self.inner.suspect(&self.thread.space))?
            }
            Err(e) => {
                ticket.cancel();
                return Err(e);
            }
        };
        let mut space = Space::new(pid, pidfd, Arc::new(file), index, slot.clone(), &self.inner.limits);
        space.sites = self.thread.space.sites.copy();
        space.held = self.thread.space.held.copy();
        let space = Arc::new(space);
        self.inner.adopt(&space)?;
        let thread = Thread::new(space, index, slot, pid);
        self.inner.register(&thread);
        self.load_rest();
        Ok(SystrapContext::new(self.inner.clone(), thread, self.regs))
    }
}
