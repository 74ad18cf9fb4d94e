//! Stub processes that serve several programs, one after the other, and what the host counts of each program.
//!
//! The kernel decides which program may follow which other one. What a hostile program can leave behind is what it may
//! do to a process with its own rights: descriptors that it was given to map, bytes in slots and private stacks. So
//! a process with anything else is refused here: other threads, forks, a changed vDSO.

use super::SystrapContext;
use crate::FIRST_SLOT;
use crate::actions::{Encoder, Job};
use crate::space::Thread;
use abi::{Errno, Result};
use platform::{Action, AddressSpace, Before, Context, HostUsage, KNOWN_CALLS, Recycled, Usage, Word};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use stub::layout as l;

/// A process with a larger resident set, in KiB, does not serve again: the host never lowers the largest one.
const LARGEST: u64 = 32 << 10;

/// Processor time in nanoseconds in which a process empties its memory; one that needs more does not serve again.
const EMPTYING_TIME: u64 = 50_000_000;

/// What is to end unless the process has emptied its memory.
struct Emptying {
    thread: Arc<Thread>,
    /// The last request before that, and the processor time that the process had used.
    last: u32,
    time: u64,
}

impl AddressSpace for Emptying {
    fn read(&self, _addr: u64, _buf: &mut [u8]) -> usize {
        0
    }

    fn write(&self, _addr: u64, _data: &[u8]) -> usize {
        0
    }

    fn kill(&self) {
        let serves_again = self.thread.serves_again.lock();
        if *serves_again {
            return;
        }
        let used = self.thread.space.time().unwrap_or(u64::MAX);
        // One that works on is not done, whatever it says.
        if !self.thread.has_news(self.last) || used > self.time.saturating_add(EMPTYING_TIME) {
            self.thread.space.kill();
        }
    }

    fn host_pid(&self) -> i32 {
        self.thread.space.host_pid()
    }
}

impl SystrapContext {
    /// See [`Context::recycle`].
    pub(super) fn empty(&mut self) -> Option<Recycled> {
        let recycled = self.move_to_new_space();
        if recycled.is_none() {
            self.end();
        }
        recycled
    }

    fn move_to_new_space(&mut self) -> Option<Recycled> {
        let old = self.thread.space.clone();
        let first = self.thread.index == FIRST_SLOT && self.thread.tid == old.process.pid;
        let quiet = !self.ended && !self.emptying && self.begun.is_none() && self.lending.is_none();
        if !first || !quiet || !self.alone() || !old.is_unchanged() || self.thread.is_dead() {
            return None;
        }
        let space = Arc::new(old.successor(&self.inner.limits).ok()?);
        let slot = self.thread.slot.clone();
        // From here on the process is not reached by the old address space.
        old.process.set_ended();
        old.contexts.fetch_sub(1, SeqCst);
        self.ended = true;
        self.place.stay_anywhere(&self.inner.cpus);
        self.inner.forget(&self.thread);
        let thread = Thread::new(space.clone(), FIRST_SLOT, slot, self.thread.tid);
        if !self.inner.succeed(&old, &space) {
            return None;
        }
        self.inner.register(&thread);
        if thread.is_dead() {
            self.inner.forget(&thread);
            return None;
        }
        let mut context = SystrapContext::new(self.inner.clone(), thread.clone(), platform::Regs::default());
        self.let_go();
        (context.last, context.letting_go) = (self.last, self.letting_go);
        context.reset_slot();
        let jobs = context.emptying_jobs(old.lent.ever());
        let mut encoder = Encoder::new(&jobs, FIRST_SLOT);
        thread.grants.lock().fds = encoder.fill(&thread.slot, None);
        context.encode_copy();
        // What comes of it is looked at when the process is needed.
        thread.slot.spin().store(0, Relaxed);
        (context.emptying, context.unproven) = (true, true);
        context.posted_at = space.time().unwrap_or(u64::MAX);
        context.post(l::CMD_REPORT);
        let emptying = Arc::new(Emptying { thread, last: context.last, time: context.posted_at });
        Some(Recycled { context: Box::new(context), emptying })
    }

    /// The slot as a new one, but for the state of the hand-off.
    fn reset_slot(&self) {
        let slot = self.slot();
        for word in [slot.report_all(), slot.waiting(), slot.xstate_size()] {
            word.store(0, Relaxed);
        }
        slot.hot().store(0, Relaxed);
        for nr in KNOWN_CALLS {
            slot.known(nr).store(0, Relaxed);
        }
        for word in [Word::Blocked, Word::Pending, Word::RobustList, Word::ClearChildTid] {
            slot.word(word).store(0, Relaxed);
        }
    }

    /// Unmaps all that is the guest's and has the host say what it has counted.
    fn emptying_jobs(&self, lent: bool) -> Vec<Job> {
        let call = |nr: i64, a: u64, b: u64| Job::Call(nr as u64, [a, b, 0, 0, 0, 0]);
        let numbers = if lent { l::LENT_FIRST..l::LENT_FIRST + l::LENT } else { 0..0 };
        let mut jobs: Vec<Job> = numbers.map(Job::Close).collect();
        jobs.push(call(libc::SYS_munmap, 0, self.inner.limits.max));
        // The next program may have call sites at the same addresses.
        let (counts, len) = stub::launch::COUNTS;
        jobs.push(Job::Action(Action::Write { addr: counts, data: vec![0; len] }));
        // As unused processes are called.
        jobs.extend(
            [Action::Name(*b"ringfence-stub\0\0"), Action::Title(b"ringfence stub".to_vec())]
                .map(Job::Action),
        );
        let buf = l::SLOT_BASE + self.thread.index as u64 * l::SLOT_SIZE + l::SLOT_DATA;
        jobs.push(call(libc::SYS_getrusage, libc::RUSAGE_SELF as u64, buf));
        let held = &self.thread.space.held;
        jobs.extend(held.take_gone().into_iter().map(Job::Close));
        // The last job, as its result is looked at.
        jobs.extend(self.inner.common.missing(held).map(Job::Hold));
        jobs
    }

    /// See [`Context::renew`].
    pub(super) fn emptied(&mut self) -> Result<()> {
        if !self.emptying {
            return Ok(());
        }
        // Read once: the process may write it at any time.
        let request = self.slot().req().load(Acquire) & !l::SLEEP;
        if request == self.last && !self.thread.is_dead() {
            return Err(Errno::EAGAIN);
        }
        self.last = request;
        self.slot().taken().store(request, Relaxed);
        let begun = self.begin_after();
        if begun.is_err() {
            self.thread.space.kill();
        }
        begun
    }

    /// The process says that its memory is empty.
    fn begin_after(&mut self) -> Result<()> {
        if self.thread.is_dead() || self.what() != l::REQ_DONE {
            return Err(Errno::ESRCH);
        }
        self.emptying = false;
        self.begin_young();
        self.slot().spin().store(self.inner.spin, Relaxed);
        if let Some(fd) = std::mem::take(&mut self.thread.grants.lock().fds).pop() {
            self.thread.space.held.add(&fd, self.slot().result().load(Relaxed));
        }
        let mut bytes = [0; HostUsage::SIZE];
        self.slot().read_window(0, HostUsage::OFFSET, &mut bytes);
        let HostUsage { maxrss, counts } = HostUsage::parse(&bytes);
        let time = self.thread.space.time().ok_or(Errno::ESRCH)?;
        if maxrss > LARGEST || time > self.posted_at.saturating_add(EMPTYING_TIME) {
            return Err(Errno::ENOMEM);
        }
        self.thread.space.begins_after(Before { time, counts });
        *self.thread.serves_again.lock() = true;
        Ok(())
    }

    /// What a thread had used before it served this address space.
    fn before_thread(&self, tid: i32) -> Before {
        let space = &self.thread.space;
        if tid == space.process.pid { space.before() } else { Before::default() }
    }
}

impl Usage for SystrapContext {
    fn usage(&mut self, thread: bool) -> Option<HostUsage> {
        // struct rusage, in the copy buffer.
        self.flush().ok()?;
        let buf = l::SLOT_BASE + self.thread.index as u64 * l::SLOT_SIZE + l::SLOT_DATA;
        let of = if thread { abi::libc::RUSAGE_THREAD } else { abi::libc::RUSAGE_SELF };
        self.host_call(abi::libc::SYS_getrusage, [of as u64, buf, 0, 0, 0, 0]).ok()?;
        let mut bytes = [0; HostUsage::SIZE];
        self.slot().read_window(0, HostUsage::OFFSET, &mut bytes);
        let all = HostUsage::parse(&bytes);
        // The first thread is the only one that may have been there before.
        let before = if thread { self.before_thread(self.thread.tid) } else { self.thread.space.before() };
        let counts = std::array::from_fn(|i| {
            let [all, before] = [all.counts, before.counts].map(|counts| counts.get(i).copied().unwrap_or(0));
            all.saturating_sub(before)
        });
        Some(HostUsage { counts, ..all })
    }

    fn thread_time(&mut self, host_tid: i32) -> Option<u64> {
        // struct timespec, in the copy buffer.
        self.flush().ok()?;
        let buf = l::SLOT_BASE + self.thread.index as u64 * l::SLOT_SIZE + l::SLOT_DATA;
        let clock = stub::filter::thread_clock(host_tid);
        self.host_call(abi::libc::SYS_clock_gettime, [clock, buf, 0, 0, 0, 0]).ok()?;
        let mut time = [0; 16];
        self.slot().read_window(0, 0, &mut time);
        Some(stub::filter::nanoseconds(time)?.saturating_sub(self.before_thread(host_tid).time))
    }
}
