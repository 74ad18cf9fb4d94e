//! Processor time and memory of processes, and the end of a process in its address space. See getrusage(2).
//!
//! The host counts the time of an address space as a whole. Processes that share one (vfork(2), CLONE_VM) are told apart by what
//! the address space had used when a process began in it.

use crate::current::Current;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use cgroup::Cgroup;
use sched::{HostCounts, Usage, add_counts};
use std::sync::atomic::Ordering;

/// A group that uses an address space begins to end.
pub(crate) fn begin_end(group: &ThreadGroup, mm: &mm::Mm) {
    if mm.users.begin_end() {
        kill_later(group, mm);
    }
}

/// Takes the address space away from a process that does not notice its end.
fn kill_later(group: &ThreadGroup, mm: &mm::Mm) {
    group.kernel.late_kills.add(&mm.space, &group.kernel.vfs.resources.timers);
}

/// The last thread of a group leaves an address space: its user time is kept, and returned. When no group is left, or
/// only groups that end, the host's process is to end soon, even if its threads ignore the sentry. `ending` says
/// whether [`begin_end`] was called for this group and memory.
pub(crate) fn retire_memory(group: &ThreadGroup, mm: &mm::Mm, ending: bool) -> u64 {
    let ns = group.user_time_in(mm);
    let left = mm.users.leave(ending);
    group.usage.lock().utime += ns;
    group.not_ours.store(0, Ordering::Relaxed);
    if left.none {
        mm.forget_mappings(&group.pid);
    } else {
        mm.users.take(ns);
    }
    if left.only_ending {
        kill_later(group, mm);
    }
    ns
}

/// Adds blocks that a thread of the kernel has read and written.
pub(crate) fn add_blocks(to: &mut HostCounts, [read, written]: [u64; 2]) {
    add_counts(to, [0, 0, read, written, 0, 0]);
}

/// A thread's sleeps in the kernel, as voluntary switches.
pub(crate) fn sleeps(task: &Task) -> HostCounts {
    [0, 0, 0, 0, task.waiter.sleeps(), 0]
}

/// What the host counts, but for voluntary switches: a thread that waits for the sentry gives up its processor there, and has
/// not slept here.
fn without_sleeps(counts: HostCounts) -> HostCounts {
    let [minor, major, read, written, _, involuntary] = counts;
    [minor, major, read, written, 0, involuntary]
}

impl Task {
    /// Brings the thread's blocks up to date. To be called by the thread itself.
    pub fn note_blocks(&self) {
        let blocks = hostsys::process::thread_blocks();
        self.blocks.iter().zip(blocks).for_each(|(b, n)| b.store(n, Ordering::Relaxed));
    }

    /// Blocks that the thread has had the host read and write when it was last measured.
    pub fn blocks(&self) -> [u64; 2] {
        self.blocks.each_ref().map(|b| b.load(Ordering::Relaxed))
    }
}

impl Current {
    /// Brings what the host counts of the process up to date.
    pub fn measure_usage(&mut self) {
        self.task.note_blocks();
        if let Some(host) = self.ctx.usage(false) {
            // The host counts in batches and may say 0 of a small process; a page is there in any case.
            let mut u = self.task.group.usage.lock();
            u.maxrss = u.maxrss.max(host.maxrss).max(abi::PAGE_SIZE / 1024);
            // A process that began in the memory of another one has an unknown part in the counts of that memory.
            if self.task.group.not_ours.load(Ordering::Relaxed) == 0 {
                u.image = without_sleeps(host.counts);
            }
        }
    }

    /// What the host counts of this thread.
    pub fn thread_counts(&mut self) -> HostCounts {
        let mut counts = without_sleeps(self.ctx.usage(true).unwrap_or_default().counts);
        add_counts(&mut counts, sleeps(&self.task));
        add_blocks(&mut counts, hostsys::process::thread_blocks());
        counts
    }

    /// As [`Current::measure_usage`], when its memory is about to go and the usage may be requested.
    pub(crate) fn measure_end(&mut self) {
        if self.kernel().usage_wanted.load(Ordering::Relaxed) {
            self.measure_usage();
        }
    }
}

impl ThreadGroup {
    /// Processor time in guest code since the process uses this address space.
    fn user_time_in(&self, mm: &mm::Mm) -> u64 {
        let all = mm.space.processor_time().unwrap_or(0);
        all.saturating_sub(mm.users.taken()).saturating_sub(self.not_ours.load(Ordering::Relaxed))
    }

    /// The process begins in memory that another one uses: what that has used is not its own.
    pub(crate) fn begins_in(&self, mm: &mm::Mm) {
        self.not_ours.store(self.user_time_in(mm), Ordering::Relaxed);
    }

    /// User and system time in nanoseconds so far.
    pub fn cpu_times(&self) -> (u64, u64) {
        let threads = self.threads();
        let u = *self.usage.lock();
        let live = threads.first().map_or(0, |t| self.user_time_in(&t.mm()));
        let sys: u64 = threads.iter().map(|t| t.sentry_time()).sum();
        (u.utime + live, u.stime + sys)
    }

    /// Asks the host for the process's faults. A process that began in the memory of another one has an unknown part in those of
    /// that memory.
    pub fn measure_faults(&self) {
        let Some(mm) = self.any_thread().map(|t| t.mm()) else { return };
        if self.not_ours.load(Ordering::Relaxed) == 0
            && let Some([minor, major]) = self.kernel.figures.faults(mm.space.host_pid())
        {
            let mut usage = self.usage.lock();
            let [.., read, written, voluntary, involuntary] = usage.image;
            let [before_minor, before_major, ..] = mm.space.before().counts;
            let (minor, major) = (minor.saturating_sub(before_minor), major.saturating_sub(before_major));
            usage.image = [minor, major, read, written, voluntary, involuntary];
        }
    }

    /// Processor time and memory, for rusage.
    pub fn total_usage(&self) -> Usage {
        let (utime, stime) = self.cpu_times();
        let mut usage = Usage { utime, stime, ..*self.usage.lock() };
        for t in self.threads() {
            add_blocks(&mut usage.counts, t.blocks());
            add_counts(&mut usage.counts, sleeps(&t));
        }
        usage
    }
}

impl ThreadGroup {
    /// Processor time that no group has yet, user and system, in nanoseconds.
    pub(crate) fn new_time(&self, counted: &[u64; 2]) -> [u64; 2] {
        let (user, system) = self.cpu_times();
        [user.saturating_sub(counted[0]), system.saturating_sub(counted[1])]
    }

    /// Counts the processor time since the last time in a group.
    pub(crate) fn settle_time(&self, group: &Cgroup) {
        let before = *self.grouped_time.lock();
        let more = self.new_time(&before);
        *self.grouped_time.lock() = [before[0] + more[0], before[1] + more[1]];
        group.add_time(more);
    }
}
