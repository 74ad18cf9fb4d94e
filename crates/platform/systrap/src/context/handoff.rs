//! Answers and requests: how the two sides wait for each other, and rounds of actions in between.

use super::{LOOK_AGAIN, ProcessGone, SystrapContext, WAKING, YOUNG};
use crate::actions::{Encoder, Job};
use abi::{Errno, Result};
use hostsys::{cpu, futex};
use platform::{AddressSpace, Regs};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use stub::layout as l;

/// Sleeps without an answer after which a process that has served another program is given up before it runs the next one. A stub that
/// does as it is told needs one, or two when the host hardly lets it run.
const PATIENCE: u32 = 3;

impl SystrapContext {
    /// A sleep has ended without an answer. Whether that was one too many since the process has had another program.
    fn lost_patience(&mut self) -> bool {
        self.sleeps += 1;
        self.sleeps > PATIENCE
    }

    /// A program begins.
    pub(crate) fn begin_young(&mut self) {
        self.young = YOUNG;
    }

    /// Answers the last request.
    pub(super) fn post(&mut self, cmd: u32) {
        let slot = &*self.thread.slot;
        self.cpu = cpu::current();
        slot.cmd().store(cmd | self.cpu << l::CPU_SHIFT, Relaxed);
        let asleep = slot.rsp().swap(self.last, SeqCst) & l::SLEEP != 0;
        if asleep {
            futex::wake(slot.rsp(), 1);
        }
        self.woke = asleep;
    }

    /// Waits for the next request. Spins while the stub is awake on another CPU; a spin in vain makes the next ones
    /// rarer, one that paid makes them usual again.
    pub(crate) fn await_request(&mut self) -> Result<(), ProcessGone> {
        let mut me = self.cpu;
        cpu::went_on();
        if self.place.answered(&self.inner.cpus, me, self.thread.slot.stub_cpu()) {
            me = self.moved();
        }
        let slot = &*self.thread.slot;
        // A woken thread takes some time to issue its next request.
        let limit = u64::from(self.inner.spin) * if self.woke || self.young > 0 { WAKING } else { 1 };
        self.young = self.young.saturating_sub(1);
        let mut spin = limit != 0 && slot.stub_cpu() != me;
        if spin && self.skip > 0 {
            self.skip -= 1;
            spin = false;
        }
        let mut start = None;
        let mut polite = None;
        let mut looked = None;
        let mut slept = false;
        let mut late = false;
        let mut looks = 0_u32;
        loop {
            if self.thread.is_dead() {
                return Err(ProcessGone);
            }
            let slot = &*self.thread.slot;
            let v = slot.req().load(Acquire);
            if v & !l::SLEEP != self.last {
                self.last = v & !l::SLEEP;
                slot.taken().store(self.last, Relaxed);
                if spin {
                    self.backoff = 0;
                    if let Some(before) = looked {
                        self.place.looked(&self.inner.cpus, before, cpu::tsc());
                    }
                }
                break;
            }
            if spin {
                looks += 1;
                let on = !looks.is_multiple_of(l::LOOKS) || {
                    let mut now = cpu::tsc();
                    if let Some(before) = looked {
                        self.place.looked(&self.inner.cpus, before, now);
                    }
                    if now.wrapping_sub(*polite.get_or_insert(now)) > u64::from(self.inner.spin) / 16 {
                        std::thread::yield_now();
                        let back = cpu::tsc();
                        self.place.looked(&self.inner.cpus, now, back);
                        (polite, now) = (Some(back), back);
                    }
                    looked = Some(now);
                    now.wrapping_sub(*start.get_or_insert(now)) < limit && self.thread.slot.stub_cpu() != me
                };
                if on {
                    std::hint::spin_loop();
                    continue;
                }
                spin = false;
                self.backoff = (self.backoff * 2 + 1).min(l::MAX_BACKOFF);
                self.skip = self.backoff;
            }
            if v & l::SLEEP == 0 && slot.req().compare_exchange(v, v | l::SLEEP, SeqCst, SeqCst).is_err() {
                continue;
            }
            if !slept && self.place.sleeps(&self.inner.cpus, me, slot.stub_cpu()) {
                self.moved();
            }
            let slot = &*self.thread.slot;
            // A wake-up, a changed word, a signal and the time all mean: look again. Time, because a guest can requeue
            // this thread to another word of its own, from where no wake-up of ours would reach it.
            let since = cpu::tsc();
            let _ = futex::wait(slot.req(), v | l::SLEEP, LOOK_AGAIN);
            if self.unproven && slot.req().load(Acquire) & !l::SLEEP == self.last && self.lost_patience() {
                log::warn!(
                    "stub process {} does not serve another program; killed",
                    self.thread.space.process.pid
                );
                self.thread.space.kill();
                return Err(ProcessGone);
            }
            let took = cpu::tsc().wrapping_sub(since);
            // Two wake-ups across CPUs take as long: a spin would have paid.
            if took < 2 * limit {
                (self.skip, self.backoff) = (0, 0);
            }
            late = took > u64::from(self.inner.spin);
            slept = true;
        }
        if self.thread.is_dead() {
            return Err(ProcessGone);
        }
        if slept {
            me = self.moved();
        }
        let woke = self.woke && self.cpu != self.thread.slot.stub_cpu();
        self.place.arrived(me, self.thread.slot.stub_cpu(), late || woke);
        Ok(())
    }

    /// This thread may have moved: tells the stub, and gives its CPU.
    fn moved(&mut self) -> u32 {
        let me = cpu::current();
        // The stub looks at this line all the time.
        if me != self.cpu {
            let slot = &*self.thread.slot;
            let cmd = slot.cmd().load(Relaxed) & l::CMD_MASK;
            slot.cmd().store(cmd | me << l::CPU_SHIFT, Relaxed);
            self.cpu = me;
        }
        me
    }

    /// Why the stub stopped: REQ_* and flags.
    pub(super) fn what(&self) -> u32 {
        self.slot().what().load(Relaxed) & !(u32::MAX << l::CPU_SHIFT)
    }

    /// Reads what has not been read of the registers.
    pub(super) fn load_rest(&mut self) {
        if !std::mem::take(&mut self.partial) {
            return;
        }
        let known = self.regs;
        self.load_regs();
        let (rax, orig_rax) = (known.rax, known.orig_rax);
        let (rdi, rsi, rdx) = (known.rdi, known.rsi, known.rdx);
        let (r10, r8, r9) = (known.r10, known.r8, known.r9);
        self.regs = Regs { rax, orig_rax, rdi, rsi, rdx, r10, r8, r9, ..self.regs };
    }

    pub(super) fn load_regs(&mut self) {
        self.partial = false;
        self.thread.slot.load_regs(&mut self.regs);
        self.regs.rip = self.thread.space.sites.guest_rip(self.regs.rip);
    }

    /// The other side broke the protocol: only a guest that writes into its slot does.
    pub(super) fn violation(&self) -> ProcessGone {
        log::warn!("stub process {} broke the hand-off protocol; killed", self.thread.space.process.pid);
        self.thread.space.kill();
        ProcessGone
    }

    /// Has the stub execute jobs and report. The inner error is that of a job and its index.
    pub(super) fn report(&mut self, jobs: &[Job]) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        let mut encoder = Encoder::new(jobs, self.thread.index);
        while !encoder.done() {
            let fds = encoder.fill(self.slot(), None);
            if let Err(e) = self.round(&encoder, fds)? {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }

    /// Has the stub make one host call; for the zygote's set-up.
    pub(crate) fn host_call(&mut self, nr: i64, args: [u64; 6]) -> Result<()> {
        match self.report(&[Job::Call(nr as u64, args)]) {
            Err(ProcessGone) => Err(Errno::ESRCH),
            Ok(Err((_, e))) => Err(e),
            Ok(Ok(())) => Ok(()),
        }
    }

    pub(super) fn round(
        &mut self,
        encoder: &Encoder<'_>,
        fds: Vec<Arc<std::os::fd::OwnedFd>>,
    ) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        self.round_with(encoder, fds, || ())
    }

    /// As `round`; `meanwhile` is run before this thread looks for the answer.
    pub(super) fn round_with(
        &mut self,
        encoder: &Encoder<'_>,
        fds: Vec<Arc<std::os::fd::OwnedFd>>,
        meanwhile: impl FnOnce(),
    ) -> Result<Result<(), (usize, Errno)>, ProcessGone> {
        self.windows = [(0, 0); 2];
        let uses_fds = !fds.is_empty();
        if uses_fds {
            self.thread.grants.lock().fds = fds;
        }
        self.encode_copy();
        self.post(l::CMD_REPORT);
        meanwhile();
        let r = self.await_request();
        if uses_fds {
            self.thread.grants.lock().fds.clear();
        }
        r?;
        match self.what() {
            l::REQ_DONE => Ok(Ok(())),
            l::REQ_FAILED => Ok(Err(self.failure(encoder)?)),
            _ => Err(self.violation()),
        }
    }

    pub(super) fn failure(&mut self, encoder: &Encoder<'_>) -> Result<(usize, Errno), ProcessGone> {
        self.let_go();
        let index = self.slot().fail_index().load(Relaxed);
        let errno = self.slot().fail_errno().load(Relaxed);
        let job = match index {
            l::FAILED_COPY => self.copied.then_some(0),
            _ => encoder.job_of(index as usize),
        };
        match job {
            Some(job) if (1..4096).contains(&errno) => Ok((job, Errno::from_raw(errno as i32))),
            _ => Err(self.violation()),
        }
    }
}
