//! Timers of processes: what the crate `process_timers` needs of a process and of a thread. Signals are sent from here.

use crate::current::Current;
use crate::send::send_expiry;
use crate::task::Task;
use crate::thread_group::{ThreadGroup, Timers};
use abi::{Errno, Result, SigInfo};
use caller::HasCredentials;
use caller::timer::TimerService;
use lock_order::Mutex;
use process_timers::{Clock, CpuLimitTimer, IntervalTimers, Notify};
use sched::Rlimits;
use signal::Expiry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Timers {
    /// Disarms all: the process ends.
    pub fn clear(&self) {
        self.posix.clear();
        self.cpu_limit.clear();
        self.interval.clear();
    }
}

impl ThreadGroup {
    fn thread(&self, tid: i32) -> Option<Arc<Task>> {
        self.signals.lock().threads.iter().find(|t| t.tid() == tid).cloned()
    }
}

impl process_timers::Process for ThreadGroup {
    fn id(&self) -> i32 {
        self.tgid
    }
    fn timer_service(&self) -> &Arc<TimerService> {
        &self.kernel.vfs.resources.timers
    }
    fn interval_timers(&self) -> &IntervalTimers {
        &self.timers.interval
    }
    fn cpu_limit_timer(&self) -> &CpuLimitTimer {
        &self.timers.cpu_limit
    }
    fn rlimits(&self) -> &Mutex<Rlimits> {
        &self.rlimits
    }
    fn cpu_times(&self) -> (u64, u64) {
        ThreadGroup::cpu_times(self)
    }
    fn is_over(&self) -> bool {
        self.signals.lock().life.is_over()
    }
    fn send(&self, info: SigInfo) {
        let _ = ThreadGroup::send(self, info);
    }
    fn has_thread(&self, tid: i32) -> bool {
        self.thread(tid).is_some()
    }
    fn last_times_of(&self, tid: i32) -> Option<(u64, u64)> {
        self.thread(tid).map(|t| (t.last_user_time(), t.sentry_time()))
    }
    fn have_thread_look(&self, tid: i32) {
        // A thread that sleeps uses no time, and has looked before.
        if let Some(t) = self.thread(tid).filter(|t| !t.is_sleeping()) {
            t.own_timers.store(true, Ordering::SeqCst);
            t.interrupt_guest();
        }
    }
    fn send_expiry(&self, to: Option<i32>, info: SigInfo, expiry: Expiry) -> std::result::Result<(), Expiry> {
        let thread = to.map(|tid| self.thread(tid));
        match thread {
            Some(None) => Err(expiry),
            Some(Some(thread)) => send_expiry(self, Some(&thread), info, expiry),
            None => send_expiry(self, None, info, expiry),
        }
    }
}

impl process_timers::Thread for Current {
    fn times_of(&mut self, tid: i32) -> Option<(u64, u64)> {
        let task = self.kernel().task(tid)?;
        Some(Current::times_of(self, &task))
    }
    fn clock_offset(&self, clock: i32) -> i64 {
        Current::clock_offset(self, clock)
    }
}

impl Current {
    /// timer_create(2): `value` is sigev_value, `None` for the timer's own ID. EAGAIN beyond RLIMIT_SIGPENDING.
    pub fn timer_create(&self, clock: Clock<ThreadGroup>, notify: Notify, value: Option<u64>) -> Result<i32> {
        let group = &self.task.group;
        let limit = group.rlimit(libc::RLIMIT_SIGPENDING as i32);
        let charge = self.kernel().queued.charge(self.creds().uid, limit).ok_or(Errno::EAGAIN)?;
        group.timers.posix.create(group, charge, clock, notify, value)
    }

    /// Looks at the timers that count this thread's processor time.
    pub(crate) fn look_at_own_timers(&mut self) {
        let group = self.task.group.clone();
        group.timers.posix.look_at_own(self.task.tid(), self);
    }
}
