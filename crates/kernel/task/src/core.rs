//! What a core file tells of each thread, gathered while the process is still whole. The file itself is made above, by
//! [`crate::SystemCalls::dump_core`]. See core(5).
//!
//! The thread that dies gathers the others: each comes out of guest code or of its sleep, leaves its registers here and waits
//! until the file is written. One that does not come in time, such as one in a call of the host that waits, is left out.
//! Threads that are stopped, for a tracer, by a signal or because the container is frozen, come from there.
//!
//! [`ThreadGroup::gather`] does the same for a process that goes on: no thread of the process makes that file.

use crate::core_thread::{CoreThread, Gathering};
use crate::current::Current;
use crate::thread_group::ThreadGroup;
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wait::{Events, WaitQueue, Waiter};

/// How long the threads of a process may take to come together.
const PATIENCE: Duration = Duration::from_secs(2);

impl Gathering {
    fn new(by: i32, threads: Vec<CoreThread>) -> Arc<Gathering> {
        Arc::new(Gathering {
            by,
            threads: Mutex::new(threads),
            came: WaitQueue::new(),
            done: AtomicBool::new(false),
        })
    }
}

fn scatter(group: &ThreadGroup) {
    let mut s = group.signals.lock();
    if let Some(g) = s.core.take() {
        g.done.store(true, Ordering::SeqCst);
    }
    s.threads.iter().for_each(|t| t.kick_fatal());
}

/// The threads of a process that goes on, which stand still until this is dropped.
pub struct Gathered<'a> {
    group: &'a ThreadGroup,
    /// Those that came.
    pub threads: Vec<CoreThread>,
    /// How many did not.
    pub missing: usize,
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        scatter(self.group);
    }
}

impl ThreadGroup {
    /// Has the threads of a process stand still, the first one first. `None` when the process ends or a core file of it is
    /// being written. Not for a thread of the process.
    pub fn gather(&self) -> Option<Gathered<'_>> {
        let new = Gathering::new(0, Vec::new());
        {
            let mut s = self.signals.lock();
            if s.life.ends(0) || s.core.is_some() {
                return None;
            }
            s.core = Some(new.clone());
            s.threads.iter().for_each(|t| t.kick_fatal());
        }
        let mut gathered = Gathered { group: self, threads: Vec::new(), missing: 0 };
        let waiter = Waiter::new();
        let _subs = [
            new.came.subscribe(Events::ALL, waiter.clone()),
            self.thread_exit.subscribe(Events::ALL, waiter.clone()),
        ];
        let until = Instant::now() + PATIENCE;
        loop {
            let (wanted, ends) = {
                let s = self.signals.lock();
                (s.threads.iter().filter(|t| !t.is_leaving()).count(), s.life.ends(0))
            };
            let came = new.threads.lock().len();
            if came >= wanted || ends || Instant::now() >= until {
                gathered.missing = wanted.saturating_sub(came);
                break;
            }
            let _ = waiter.sleep_uninterruptible(Some(until));
        }
        gathered.threads = std::mem::take(&mut *new.threads.lock());
        let first = self.pid.own_nr();
        gathered.threads.sort_by_key(|t| (t.tid != first, t.tid));
        Some(gathered)
    }
}

impl Current {
    fn for_core(&mut self) -> CoreThread {
        self.finish_writes();
        CoreThread {
            tid: self.task.own_tid(),
            regs: *self.ctx.regs(),
            xstate: self.ctx.xstate().unwrap_or_default(),
            pending: self.task.pending.lock().set(),
            blocked: self.task.blocked(),
        }
    }

    /// Gathers the threads of the process that ends, this one first. `None` when the process ends already. [`Current::scatter`] lets
    /// them go.
    pub fn gather(&mut self) -> Option<Vec<CoreThread>> {
        let own = self.for_core();
        let group = self.task.group.clone();
        let me = self.task.tid();
        let new = Gathering::new(me, vec![own]);
        {
            let mut s = group.signals.lock();
            if s.life.ends(me) || s.core.is_some() {
                return None;
            }
            s.core = Some(new.clone());
            s.threads.iter().filter(|t| t.tid() != me).for_each(|t| t.kick_fatal());
        }
        let waiter = self.task.waiter.clone();
        let _subs = [
            new.came.subscribe(Events::ALL, waiter.clone()),
            group.thread_exit.subscribe(Events::ALL, waiter),
        ];
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !self.dying() {
            let wanted = group.signals.lock().threads.iter().filter(|t| !t.is_leaving()).count();
            if new.threads.lock().len() >= wanted {
                break;
            }
            let _ = self.task.waiter.sleep_uninterruptible(Some(until));
        }
        Some(std::mem::take(&mut *new.threads.lock()))
    }

    /// The core file is written, or will not be.
    pub fn scatter(&mut self) {
        scatter(&self.task.group);
    }

    /// Takes part in another thread's core file, if there is one in the making.
    pub(crate) fn join_gathering(&mut self) {
        let me = self.task.tid();
        let core = self.task.group.signals.lock().core.clone();
        let Some(g) = core.filter(|g| g.by != me) else { return };
        let own = self.for_core();
        g.threads.lock().push(own);
        g.came.notify(Events::IN);
        while !g.done.load(Ordering::SeqCst) && !self.dying() {
            let _ = self.task.waiter.sleep_uninterruptible(None);
        }
        self.task.waiter.set_interrupted(true);
    }
}
