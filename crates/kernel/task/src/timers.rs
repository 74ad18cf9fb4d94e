//! setitimer(2), alarm(2) and POSIX timers of a process.
//!
//! CLOCK_MONOTONIC, REALTIME, BOOTTIME and TAI timers run on the timer service.
//! Processor-time timers are sampled: the service looks at the clock again when
//! the remaining time could have passed at full use of every processor.

use crate::task::{Task, ThreadGroup};
use abi::{Errno, Result, SigInfo, Signal};
use ipc::timer::{TimerHandle, TimerService};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Timers of a process. Lock rank: leaf; signals are sent without it.
#[derive(Default)]
pub struct Timers {
    real: Mutex<Armed>,
    virt: Mutex<Armed>,
    prof: Mutex<Armed>,
    cpu_limit: Mutex<Option<TimerHandle>>,
    posix: Mutex<BTreeMap<i32, Arc<PosixTimer>>>,
}

#[derive(Default)]
struct Armed {
    handle: Option<TimerHandle>,
    /// Generation: a callback of an earlier setting does nothing.
    serial: u64,
    /// Expiry as nanoseconds of the timer's clock.
    deadline: u64,
    interval: u64,
}

/// Which of setitimer(2)'s timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// ITIMER_REAL: SIGALRM.
    Real,
    /// ITIMER_VIRTUAL: SIGVTALRM.
    Virtual,
    /// ITIMER_PROF: SIGPROF.
    Prof,
}

impl Which {
    fn signal(self) -> Signal {
        match self {
            Which::Real => Signal::SIGALRM,
            Which::Virtual => Signal::SIGVTALRM,
            Which::Prof => Signal::SIGPROF,
        }
    }

    /// Nanoseconds of the clock this timer counts.
    fn now(self, g: &ThreadGroup) -> u64 {
        match self {
            Which::Real => monotonic(),
            Which::Virtual => g.cpu_times().0,
            Which::Prof => {
                let (u, s) = g.cpu_times();
                u + s
            }
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic() -> u64 {
    hostsys::clock::gettime_ns(libc::CLOCK_MONOTONIC).unwrap_or(0) as u64
}

impl Timers {
    fn slot(&self, w: Which) -> &Mutex<Armed> {
        match w {
            Which::Real => &self.real,
            Which::Virtual => &self.virt,
            Which::Prof => &self.prof,
        }
    }

    /// Remaining time and interval in nanoseconds; (0, _) when disarmed.
    pub fn get(&self, g: &ThreadGroup, w: Which) -> (u64, u64) {
        let now = w.now(g);
        let a = self.slot(w).lock();
        if a.deadline == 0 {
            return (0, 0);
        }
        (a.deadline.saturating_sub(now).max(1), a.interval)
    }

    /// Arms (or disarms with 0) a timer; gives what it was set to.
    pub fn set(&self, g: &Arc<ThreadGroup>, w: Which, value: u64, interval: u64) -> (u64, u64) {
        let old = self.get(g, w);
        let now = w.now(g);
        let mut a = self.slot(w).lock();
        a.serial += 1;
        a.deadline = if value == 0 { 0 } else { now.saturating_add(value).max(1) };
        a.interval = interval;
        let gone = a.handle.take();
        if value != 0 {
            a.handle = Some(schedule(Arc::downgrade(g), w, a.serial, wait_for(w, value)));
        }
        drop(a);
        drop(gone);
        old
    }

    /// Disarms everything at exit; POSIX timers alone at execve(2).
    pub fn clear(&self, posix_only: bool) {
        let gone = std::mem::take(&mut *self.posix.lock());
        drop(gone);
        if !posix_only {
            drop(self.cpu_limit.lock().take());
            for w in [Which::Real, Which::Virtual, Which::Prof] {
                let h = {
                    let mut a = self.slot(w).lock();
                    a.serial += 1;
                    a.deadline = 0;
                    a.handle.take()
                };
                drop(h);
            }
        }
    }
}

/// Watches RLIMIT_CPU of a process: SIGXCPU at the soft limit and every second after it, SIGKILL at the hard one.
pub fn watch_cpu_limit(g: &Arc<ThreadGroup>) {
    let (soft, hard) = g.rlimits.lock()[libc::RLIMIT_CPU as usize];
    let next = if soft == u64::MAX && hard == u64::MAX { None } else { Some(check_cpu_limit(g, soft, hard)) };
    let old = std::mem::replace(&mut *g.timers.cpu_limit.lock(), next);
    drop(old);
}

fn check_cpu_limit(g: &Arc<ThreadGroup>, soft: u64, hard: u64) -> TimerHandle {
    const SECOND: u64 = 1_000_000_000;
    let (u, s) = g.cpu_times();
    let used = u + s;
    let mut soft = soft;
    if used / SECOND >= hard {
        let _ = g.send(SigInfo::new(Signal::SIGKILL, libc::SI_KERNEL));
    } else if used / SECOND >= soft {
        let _ = g.send(SigInfo::new(Signal::SIGXCPU, libc::SI_KERNEL));
        soft = used / SECOND + 1;
    }
    let left = soft.min(hard).saturating_mul(SECOND).saturating_sub(used);
    let weak = Arc::downgrade(g);
    TimerService::global().schedule(Instant::now() + wait_for(Which::Prof, left), move || {
        let Some(g) = weak.upgrade() else { return };
        if g.signals.lock().life.is_over() {
            return;
        }
        let (_, hard) = g.rlimits.lock()[libc::RLIMIT_CPU as usize];
        let next = check_cpu_limit(&g, soft, hard);
        drop(g.timers.cpu_limit.lock().replace(next));
    })
}

/// How long the service may sleep before the timer's clock can have advanced by `left`.
fn wait_for(w: Which, left: u64) -> Duration {
    match w {
        Which::Real => Duration::from_nanos(left),
        _ => Duration::from_nanos((left / 4).clamp(1_000_000, 1_000_000_000).min(left.max(1_000_000))),
    }
}

fn schedule(g: Weak<ThreadGroup>, w: Which, serial: u64, after: Duration) -> TimerHandle {
    TimerService::global().schedule(Instant::now() + after, move || {
        if let Some(g) = g.upgrade() {
            fire(&g, w, serial);
        }
    })
}

fn fire(g: &Arc<ThreadGroup>, w: Which, serial: u64) {
    let now = w.now(g);
    let mut a = g.timers.slot(w).lock();
    if a.serial != serial || a.deadline == 0 {
        return;
    }
    let due = a.deadline <= now;
    if due {
        match (now - a.deadline).checked_div(a.interval) {
            None => {
                a.deadline = 0;
                a.handle = None;
            }
            Some(missed) => a.deadline += (missed + 1) * a.interval,
        }
    }
    if a.deadline != 0 {
        let next = wait_for(w, a.deadline.saturating_sub(now));
        drop(a.handle.replace(schedule(Arc::downgrade(g), w, serial, next)));
    }
    drop(a);
    if due {
        let _ = g.send(SigInfo::new(w.signal(), libc::SI_KERNEL));
    }
}

/// How a POSIX timer tells of its expiry.
#[derive(Clone, Copy, Debug)]
pub enum Notify {
    /// SIGEV_NONE.
    None,
    /// SIGEV_SIGNAL: the process.
    Process(Signal),
    /// SIGEV_THREAD_ID: one thread.
    Thread(Signal, i32),
}

/// A timer made by timer_create(2).
pub struct PosixTimer {
    id: i32,
    clock: i32,
    notify: Notify,
    value: u64,
    group: Weak<ThreadGroup>,
    state: Mutex<PosixState>,
}

#[derive(Default)]
struct PosixState {
    handle: Option<TimerHandle>,
    serial: u64,
    deadline: u64,
    interval: u64,
    overrun: i32,
    /// Overruns of the expiry delivered last, for timer_getoverrun(2).
    last_overrun: i32,
}

impl Timers {
    /// timer_create(2): `value` is sigev_value, `None` for the timer's own id.
    pub fn create(
        &self,
        g: &Arc<ThreadGroup>,
        clock: i32,
        notify: Notify,
        value: Option<u64>,
    ) -> Result<i32> {
        let mut t = self.posix.lock();
        if t.len() as u64 >= g.rlimit(libc::RLIMIT_SIGPENDING as i32) {
            return Err(Errno::EAGAIN);
        }
        let id = (0..i32::MAX).find(|i| !t.contains_key(i)).ok_or(Errno::EAGAIN)?;
        let value = value.unwrap_or(id as u64);
        let state = Mutex::new(PosixState::default());
        t.insert(id, Arc::new(PosixTimer { id, clock, notify, value, group: Arc::downgrade(g), state }));
        Ok(id)
    }

    /// The timer with this id; EINVAL when there is none.
    pub fn find(&self, id: i32) -> Result<Arc<PosixTimer>> {
        self.posix.lock().get(&id).cloned().ok_or(Errno::EINVAL)
    }

    /// timer_delete(2).
    pub fn delete(&self, id: i32) -> Result<()> {
        let t = self.posix.lock().remove(&id).ok_or(Errno::EINVAL)?;
        let h = {
            let mut s = t.state.lock();
            s.serial += 1;
            s.handle.take()
        };
        drop(h);
        Ok(())
    }

    /// Called when a timer's signal is taken from the queue: overruns so far move to the report.
    pub fn delivered(&self, info: &mut SigInfo) {
        let id = info.fields[0] as u32 as i32;
        let Some(t) = self.posix.lock().get(&id).cloned() else { return };
        let mut s = t.state.lock();
        s.last_overrun = std::mem::take(&mut s.overrun);
        *info =
            SigInfo { fields: SigInfo::timer(Signal::SIGALRM, id, s.last_overrun, t.value).fields, ..*info };
    }
}

impl PosixTimer {
    fn now(&self, g: &ThreadGroup) -> u64 {
        match self.clock {
            libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => {
                let (u, s) = g.cpu_times();
                u + s
            }
            c => hostsys::clock::gettime_ns(host_clock(c)).unwrap_or(0) as u64,
        }
    }

    fn cpu(&self) -> bool {
        matches!(self.clock, libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID)
    }

    /// Remaining time and interval in nanoseconds.
    pub fn get(&self) -> (u64, u64) {
        let Some(g) = self.group.upgrade() else { return (0, 0) };
        let now = self.now(&g);
        let s = self.state.lock();
        if s.deadline == 0 {
            return (0, s.interval);
        }
        (s.deadline.saturating_sub(now).max(1), s.interval)
    }

    /// timer_getoverrun(2).
    pub fn reported_overrun(&self) -> i32 {
        self.state.lock().last_overrun
    }

    /// timer_settime(2); gives the old setting.
    pub fn set(self: &Arc<Self>, value: u64, interval: u64, absolute: bool) -> (u64, u64) {
        let old = self.get();
        let Some(g) = self.group.upgrade() else { return old };
        let now = self.now(&g);
        let mut s = self.state.lock();
        s.serial += 1;
        s.overrun = 0;
        s.interval = interval;
        s.deadline = match (value, absolute) {
            (0, _) => 0,
            (v, true) => v,
            (v, false) => now.saturating_add(v),
        };
        let gone = s.handle.take();
        if s.deadline != 0 {
            let left = s.deadline.saturating_sub(now);
            s.handle = Some(self.schedule(s.serial, left));
        }
        drop(s);
        drop(gone);
        old
    }

    fn schedule(self: &Arc<Self>, serial: u64, left: u64) -> TimerHandle {
        let me = Arc::downgrade(self);
        let after = if self.cpu() { wait_for(Which::Prof, left) } else { Duration::from_nanos(left) };
        TimerService::global().schedule(Instant::now() + after, move || {
            if let Some(t) = me.upgrade() {
                t.fire(serial);
            }
        })
    }

    fn fire(self: &Arc<Self>, serial: u64) {
        let Some(g) = self.group.upgrade() else { return };
        let now = self.now(&g);
        let mut s = self.state.lock();
        if s.serial != serial || s.deadline == 0 {
            return;
        }
        let mut expired = 0u64;
        if s.deadline <= now {
            expired = 1;
            match (now - s.deadline).checked_div(s.interval) {
                None => {
                    s.deadline = 0;
                    s.handle = None;
                }
                Some(missed) => {
                    expired += missed;
                    s.deadline += expired * s.interval;
                }
            }
        }
        if s.deadline != 0 {
            let h = self.schedule(serial, s.deadline.saturating_sub(now));
            drop(s.handle.replace(h));
        }
        drop(s);
        if expired > 0 {
            self.notify(&g, expired);
        }
    }

    fn notify(&self, g: &Arc<ThreadGroup>, expired: u64) {
        let (sig, to): (Signal, Option<Arc<Task>>) = match self.notify {
            Notify::None => return,
            Notify::Process(sig) => (sig, None),
            Notify::Thread(sig, tid) => match g.threads().into_iter().find(|t| t.tid() == tid) {
                Some(t) => (sig, Some(t)),
                None => return,
            },
        };
        let queued = {
            let s = g.signals.lock();
            match &to {
                Some(t) => t.pending.lock().has_timer(self.id),
                None => s.shared.has_timer(self.id),
            }
        };
        let more = if queued { expired } else { expired - 1 };
        {
            let mut s = self.state.lock();
            s.overrun = s.overrun.saturating_add(more.min(i32::MAX as u64) as i32);
        }
        if !queued {
            let info = SigInfo::timer(sig, self.id, 0, self.value);
            let _ = match to {
                Some(t) => t.send(info),
                None => g.send(info),
            };
        }
    }
}

/// The host clock that serves a guest clock for timers.
pub fn host_clock(c: i32) -> i32 {
    match c {
        libc::CLOCK_REALTIME_ALARM => libc::CLOCK_REALTIME,
        libc::CLOCK_BOOTTIME_ALARM => libc::CLOCK_BOOTTIME,
        c => c,
    }
}
