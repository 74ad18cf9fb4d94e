//! Processor time of threads. Time in guest code is user time, time of the sentry thread that serves it system time.
//!
//! The host tells the time of a whole process to anybody, that of a thread only to threads of the same process. So a guest
//! thread's time is asked for through a guest thread of the same address space, or is its process's while it is alone there.

use crate::current::Current;
use crate::task::Task;
use std::sync::atomic::Ordering::Relaxed;

/// No thread has run for longer, in nanoseconds. A guest can write what its thread's time is read from; sums of what is below
/// this do not overflow.
const LONGEST: u64 = 1 << 62;

impl Task {
    /// Remembers a reading of the thread's user time, in nanoseconds, and gives the largest one: the clock never goes back.
    fn note_user_time(&self, ns: u64) -> u64 {
        self.user_seen.fetch_max(ns, Relaxed).max(ns)
    }

    /// The thread of the host that runs the thread's code; nothing when there is none.
    pub fn guest_thread(&self) -> Option<i32> {
        let mut tid = 0;
        self.with_interrupter(|i| tid = i.host_tid());
        (tid > 0).then_some(tid)
    }

    /// User time of the thread, in nanoseconds, for callers outside of its process.
    pub fn user_time(&self) -> u64 {
        let figures = &self.group.kernel.figures;
        let (mut tid, mut before) = (0, 0);
        self.with_interrupter(|i| (tid, before) = (i.host_tid(), i.time_before()));
        match (tid > 0).then(|| figures.run_time(tid)).flatten() {
            Some(time) => {
                let ran = time.ran.saturating_sub(before);
                self.note_user_time(self.user_before.load(Relaxed).saturating_add(ran).min(LONGEST))
            }
            None => self.last_user_time(),
        }
    }

    /// User time of the thread at its last reading, in nanoseconds, for callers that cannot ask.
    pub fn last_user_time(&self) -> u64 {
        self.user_seen.load(Relaxed)
    }
}

impl Current {
    /// User time of a thread of the same process, in nanoseconds.
    pub fn user_time_of(&mut self, task: &Task) -> u64 {
        let live = if self.mm.users.single() {
            self.mm.space.processor_time()
        } else {
            task.guest_thread().and_then(|tid| self.ctx.thread_time(tid))
        };
        match live {
            Some(ns) => task.note_user_time(task.user_before.load(Relaxed).saturating_add(ns).min(LONGEST)),
            None => task.last_user_time(),
        }
    }

    /// User and system time of a thread of the same process, in nanoseconds.
    pub fn times_of(&mut self, task: &Task) -> (u64, u64) {
        (self.user_time_of(task), task.sentry_time())
    }

    /// The thread's own user time in its present memory, where that is not its process's.
    pub(crate) fn exact_user_time(&mut self) -> Option<u64> {
        // A vfork(2) parent waits, so what its memory uses meanwhile is the child's.
        if self.mm.users.single() || self.task.vfork.lock().is_some() {
            return None;
        }
        let tid = self.ctx.interrupter().host_tid();
        self.ctx.thread_time(tid).map(|ns| ns.min(LONGEST))
    }
}
