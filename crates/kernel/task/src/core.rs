//! What a core file tells of each thread, gathered while the process is still whole. The file itself is made above, by
//! [`crate::SystemCalls::dump_core`]. See core(5).
//!
//! The thread that dies gathers the others: each comes out of guest code or of its sleep, leaves its registers here and waits
//! until the file is written. One that does not come in time, such as one that its tracer has stopped, is left out.

use crate::core_thread::{CoreThread, Gathering};
use crate::current::Current;
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wait::{Events, WaitQueue};

/// How long the threads of a process may take to come together.
const PATIENCE: Duration = Duration::from_secs(2);

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

    /// Gathers the threads of the process, this one first. `None` when the process ends already. [`Current::scatter`] lets
    /// them go.
    pub fn gather(&mut self) -> Option<Vec<CoreThread>> {
        let own = self.for_core();
        let group = self.task.group.clone();
        let me = self.task.tid();
        let new = Gathering {
            by: me,
            threads: Mutex::new(vec![own]),
            came: WaitQueue::new(),
            done: AtomicBool::new(false),
        };
        let new = Arc::new(new);
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
        let mut s = self.task.group.signals.lock();
        if let Some(g) = s.core.take() {
            g.done.store(true, Ordering::SeqCst);
        }
        s.threads.iter().for_each(|t| t.kick_fatal());
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
