//! All threads of a kernel stand still, for a checkpoint.
//!
//! Each thread leaves guest code, or its sleep in a call, and comes to the place where it looks at its signals. There it waits,
//! and carries out what [`Standstill::ask`] hands to it, until the [`Standstill`] is dropped. A call that was interrupted for
//! this alone starts again afterwards: no program sees EINTR for it.

use crate::current::Current;
use crate::kernel::Kernel;
use crate::life::Life;
use crate::meeting::{Meeting, Standing};
use crate::task::Task;
use caller::timer::Held;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use sysresult::{Restart, SysErr, SysResult};
use wait::{Events, Waiter, Wake};

/// How long the threads may take to come to a stand.
const PATIENCE: Duration = Duration::from_secs(10);
/// After that time a thread that has not come is interrupted again.
const AGAIN: Duration = Duration::from_millis(20);

/// The threads of a kernel that stand still until this is dropped.
pub struct Standstill {
    kernel: Arc<Kernel>,
    meeting: Arc<Meeting<Task, Current>>,
    /// No timer expires between the moments in which it and what it would do are saved.
    timers: Option<Held>,
}

/// Threads that did not come to a stand.
#[derive(Debug)]
pub struct Missing {
    /// Their IDs as they know them, their names, and the system call in progress.
    pub threads: Vec<(i32, String, Option<u32>)>,
}

impl Kernel {
    /// Has all threads stand still. One that does not come within ten seconds is named, and all go on. `None` when another
    /// standstill is on.
    pub fn stand_still(self: &Arc<Kernel>) -> Option<Result<Standstill, Missing>> {
        let meeting = Arc::new(Meeting::default());
        {
            let mut place = self.meeting.lock();
            if place.is_some() {
                return None;
            }
            *place = Some(meeting.clone());
        }
        let standstill = Standstill { kernel: self.clone(), meeting, timers: None };
        Some(standstill.gather())
    }

    fn meeting(&self) -> Option<Arc<Meeting<Task, Current>>> {
        self.meeting.lock().clone()
    }
}

impl Standstill {
    /// The kernel.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    fn gather(mut self) -> Result<Standstill, Missing> {
        let waiter = Waiter::new();
        let _came = self.meeting.came.subscribe(Events::ALL, waiter.clone());
        let until = Instant::now() + PATIENCE;
        let mut asked: BTreeMap<i32, Instant> = BTreeMap::new();
        loop {
            let missing = self.missing();
            if missing.is_empty() && !self.ending() {
                // Their timer is held, too.
                self.kernel.recycling.forget(None);
                self.timers = Some(self.kernel.vfs.resources.timers.hold());
                return Ok(self);
            }
            let now = Instant::now();
            if now >= until {
                let name = |task: &Arc<Task>| {
                    let comm = task.comm();
                    let name = String::from_utf8_lossy(&comm).trim_end_matches('\0').to_string();
                    let call = task.in_syscall.load(Ordering::Relaxed).checked_sub(1);
                    (task.own_tid(), name, call)
                };
                return Err(Missing { threads: missing.iter().map(name).collect() });
            }
            for task in &missing {
                if asked.get(&task.tid()).is_none_or(|at| now.duration_since(*at) >= AGAIN) {
                    asked.insert(task.tid(), now);
                    task.asked_to_stand.store(true, Ordering::SeqCst);
                    task.kick_fatal();
                }
            }
            // A thread that ends does not come.
            let _ = waiter.sleep_uninterruptible(Some(now + Duration::from_millis(1)));
        }
    }

    /// Live threads that do not stand still yet.
    fn missing(&self) -> Vec<Arc<Task>> {
        let tree = self.kernel.tree.lock();
        let threads = self.meeting.threads.lock();
        let standing = |task: &&Arc<Task>| threads.contains_key(&task.tid());
        tree.tasks().filter(|task| !standing(task)).cloned().collect()
    }

    /// The last thread of some process has left, and the process is not a zombie yet.
    fn ending(&self) -> bool {
        let tree = self.kernel.tree.lock();
        tree.nodes().any(|node| {
            let s = node.group.signals.lock();
            s.threads.is_empty() && !matches!(s.life, Life::Dead(_) | Life::Reaped(_))
        })
    }

    /// Has the thread with this ID (in the sandbox's own PID namespace) do something, and waits for the result. `None` when it is
    /// not there.
    pub fn ask<R: Send + 'static>(
        &self,
        tid: i32,
        job: impl FnOnce(&mut Current) -> R + Send + 'static,
    ) -> Option<R> {
        self.begin(tid, job).recv().ok()
    }

    /// As [`Standstill::ask`], without waiting: the result comes through the channel.
    pub fn begin<R: Send + 'static>(
        &self,
        tid: i32,
        job: impl FnOnce(&mut Current) -> R + Send + 'static,
    ) -> std::sync::mpsc::Receiver<R> {
        let (result, to_come) = sync_channel(1);
        let standing = self.meeting.threads.lock().get(&tid).cloned();
        if let Some(standing) = standing {
            standing.jobs.lock().push(Box::new(move |c| {
                // The asking side waits unless it has given up.
                let _ = result.send(job(c));
            }));
            standing.task.waiter.wake(Events::ERR);
        }
        to_come
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        self.kernel.meeting.lock().take();
        self.meeting.over.store(true, Ordering::SeqCst);
        let standing: Vec<_> = self.meeting.threads.lock().values().cloned().collect();
        for one in standing {
            one.task.waiter.wake(Events::ERR);
        }
    }
}

impl Current {
    /// Stands still while a checkpoint is made, if one is; false when there is none.
    pub(crate) fn join_standstill(&mut self) -> bool {
        if !self.task.asked_to_stand.swap(false, Ordering::SeqCst) {
            return false;
        }
        let Some(meeting) = self.kernel().meeting() else { return false };
        self.finish_call();
        let me = Arc::new(Standing { task: self.task.clone(), jobs: Mutex::default() });
        meeting.threads.lock().insert(self.task.tid(), me.clone());
        meeting.came.notify(Events::IN);
        loop {
            let jobs = std::mem::take(&mut *me.jobs.lock());
            if jobs.is_empty() {
                if meeting.over.load(Ordering::SeqCst) {
                    break;
                }
                // A tracer that waits for this comes to a stand afterwards.
                if self.work_for_tracer() {
                    continue;
                }
                let _ = self.task.waiter.sleep_uninterruptible(None);
            }
            jobs.into_iter().for_each(|job| job(self));
        }
        // Jobs may have brought on changes that the platform makes with the resume.
        self.task.waiter.set_interrupted(true);
        true
    }

    /// The result of a call. One that was interrupted for a standstill and for nothing else starts again, and its time-out ends when
    /// it would have ended.
    pub(crate) fn unless_stood_still(&mut self, result: SysResult) -> SysResult {
        self.waits_until = None;
        let interrupted = matches!(result, Err(SysErr::Restart(_) | SysErr::Errno(abi::Errno::EINTR)));
        if !interrupted
            || !self.task.asked_to_stand.load(Ordering::SeqCst)
            || self.task.has_deliverable()
            || self.dying()
        {
            return result;
        }
        let clock = self.kernel().clock();
        self.waits_until = self.task.waiter.interrupted_deadline().map(|at| clock.ktime(at));
        match result {
            Err(SysErr::Errno(_)) => Err(SysErr::Restart(Restart::NoIntr)),
            other => other,
        }
    }

    /// When the time-out of this call ends, if the call was interrupted for a standstill and starts again.
    pub fn deadline_before(&self) -> Option<Instant> {
        self.waits_until.map(|at| self.kernel().clock().instant(at))
    }
}
