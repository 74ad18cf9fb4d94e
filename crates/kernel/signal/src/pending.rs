//! Signals that wait for delivery. See signal(7).

use crate::action::SYNCHRONOUS;
use crate::queues::Charge;
use abi::{Errno, Result, SigInfo, SigSet, Signal};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A POSIX timer as its pending signals see it. Each setting of the timer has a serial number.
pub trait Timer: Send + Sync {
    /// Its ID in its process.
    fn id(&self) -> i32;
    /// The signal of a setting is delivered: its overruns go into it. False when the timer has been set anew or deleted, and
    /// the signal is none any more.
    fn deliver(self: Arc<Self>, serial: u64, info: &mut SigInfo) -> bool;
    /// True while the timer has neither been set anew nor deleted.
    fn is_current(&self, serial: u64) -> bool;
    /// The signal of a setting is taken away without being delivered.
    fn discard(&self, serial: u64);
}

/// Which expiry a pending signal tells of.
pub struct Expiry {
    /// The timer.
    pub timer: Arc<dyn Timer>,
    /// Its setting.
    pub serial: u64,
}

impl Expiry {
    fn deliver(self, info: &mut SigInfo) -> bool {
        self.timer.deliver(self.serial, info)
    }

    fn is_current(&self) -> bool {
        self.timer.is_current(self.serial)
    }

    /// Takes the signal away without delivering it.
    pub fn discard(&self) {
        self.timer.discard(self.serial);
    }
}

struct Entry {
    info: SigInfo,
    /// Of a POSIX timer's signal: which expiry it tells of.
    expiry: Option<Expiry>,
    _charge: Option<Charge>,
}

/// A pending signal as plain data, for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PendingState {
    /// What will be delivered.
    pub info: SigInfo,
    /// What it counts as.
    pub origin: Origin,
}

/// What a pending signal counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Origin {
    /// A queued signal of a user.
    Queued,
    /// A signal without its information, because its user had too many.
    Lost,
    /// An expiry of the POSIX timer with this ID.
    Timer(i32),
}

/// Signals waiting for delivery to a thread or a group.
#[derive(Default)]
pub struct Pending {
    /// By signal number; entries of one number in order.
    queues: BTreeMap<i32, VecDeque<Entry>>,
    set: SigSet,
}

impl Pending {
    /// The pending set.
    pub fn set(&self) -> SigSet {
        self.set
    }

    /// True when nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Queues a signal. A standard signal that is pending already is dropped. Without a `charge` its information is
    /// lost; a real-time signal of a program (sigqueue(3), tgkill(2)) is then refused with EAGAIN.
    pub fn push(&mut self, s: Signal, info: SigInfo, charge: impl FnOnce() -> Option<Charge>) -> Result<()> {
        if !s.is_realtime() && self.set.has(s) {
            return Ok(());
        }
        let charge = charge();
        if charge.is_none() && s.is_realtime() && info.code != libc::SI_USER {
            return Err(Errno::EAGAIN);
        }
        self.set.add(s);
        if charge.is_some() {
            self.queue(s, Entry { info, expiry: None, _charge: charge });
        }
        Ok(())
    }

    /// Queues the signal of a POSIX timer, whatever is pending already. The timer was charged for it when it was made.
    pub fn push_expiry(&mut self, s: Signal, info: SigInfo, expiry: Expiry) {
        self.set.add(s);
        // One that is set anew again and again leaves an entry each time, which only delivery would take away.
        if let Some(q) = self.queues.get_mut(&s.raw())
            && q.len() == q.capacity()
        {
            q.retain(|entry| entry.expiry.as_ref().is_none_or(Expiry::is_current));
        }
        self.queue(s, Entry { info, expiry: Some(expiry), _charge: None });
    }

    fn queue(&mut self, s: Signal, entry: Entry) {
        self.queues.entry(s.raw()).or_default().push_back(entry);
    }

    /// All of them as plain data, in the order of [`Pending::take`] but for synchronous ones.
    pub fn state(&self) -> Vec<PendingState> {
        let signals = (1..=64).filter_map(Signal::new).filter(|s| self.set.has(*s));
        let mut all = Vec::new();
        for s in signals {
            let Some(queue) = self.queues.get(&s.raw()) else {
                let info = SigInfo::user(s, libc::SI_USER, 0, 0);
                all.push(PendingState { info, origin: Origin::Lost });
                continue;
            };
            let current = queue.iter().filter(|e| e.expiry.as_ref().is_none_or(Expiry::is_current));
            all.extend(current.map(|e| PendingState {
                info: e.info,
                origin: e.expiry.as_ref().map_or(Origin::Queued, |expiry| Origin::Timer(expiry.timer.id())),
            }));
        }
        all
    }

    /// Back from plain data. `charge` charges a queued signal; `expiry` finds the timer with an ID; the signal is
    /// dropped when there is none.
    pub fn restore(
        saved: &[PendingState],
        mut charge: impl FnMut() -> Option<Charge>,
        mut expiry: impl FnMut(i32) -> Option<Expiry>,
    ) -> Pending {
        let mut pending = Pending::default();
        for PendingState { info, origin } in saved {
            let Some(s) = Signal::new(info.signo) else { continue };
            let (charge, expiry) = match origin {
                Origin::Queued => (charge(), None),
                Origin::Lost => (None, None),
                Origin::Timer(id) => match expiry(*id) {
                    Some(expiry) => (None, Some(expiry)),
                    None => continue,
                },
            };
            pending.set.add(s);
            if charge.is_some() || expiry.is_some() {
                pending.queue(s, Entry { info: *info, expiry, _charge: charge });
            }
        }
        pending
    }

    /// Takes the next signal out of `allowed`: synchronous ones first, then the lowest number, entries of one number in
    /// order. Those of a timer that has been set anew or deleted since are dropped.
    pub fn take(&mut self, allowed: SigSet) -> Option<SigInfo> {
        loop {
            let ready = self.set.intersect(allowed);
            let s = ready.intersect(SYNCHRONOUS).first().or_else(|| ready.first())?;
            let entry = self.queues.get_mut(&s.raw()).and_then(VecDeque::pop_front);
            if self.queues.get(&s.raw()).is_none_or(VecDeque::is_empty) {
                self.queues.remove(&s.raw());
                self.set.del(s);
            }
            let Some(Entry { mut info, expiry, .. }) = entry else {
                return Some(SigInfo::user(s, libc::SI_USER, 0, 0));
            };
            if expiry.is_none_or(|e| e.deliver(&mut info)) {
                return Some(info);
            }
        }
    }

    /// Removes the signals of timers: execve(2) deletes the timers, and their signals with them (flush_itimer_signals).
    pub fn remove_timers(&mut self) {
        let set = &mut self.set;
        self.queues.retain(|n, queue| {
            queue.retain(|entry| entry.info.code != libc::SI_TIMER);
            if queue.is_empty() {
                Signal::new(*n).into_iter().for_each(|s| set.del(s));
            }
            !queue.is_empty()
        });
    }

    /// Removes every entry of the given signals.
    pub fn remove(&mut self, signals: SigSet) {
        if self.set.intersect(signals).is_empty() {
            return;
        }
        self.set = self.set.minus(signals);
        self.queues.retain(|n, queue| {
            let keep = Signal::new(*n).is_some_and(|s| !signals.has(s));
            if !keep {
                queue.iter().filter_map(|e| e.expiry.as_ref()).for_each(Expiry::discard);
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::Queues;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A timer that was set with this serial number.
    struct SetTo(AtomicU64);

    impl Timer for SetTo {
        fn id(&self) -> i32 {
            3
        }
        fn deliver(self: Arc<Self>, serial: u64, _info: &mut SigInfo) -> bool {
            self.is_current(serial)
        }
        fn is_current(&self, serial: u64) -> bool {
            self.0.load(Ordering::Relaxed) == serial
        }
        fn discard(&self, _serial: u64) {}
    }

    #[test]
    fn a_timer_set_anew_leaves_few_entries() {
        let timer = Arc::new(SetTo(AtomicU64::new(0)));
        let mut pending = Pending::default();
        let info = SigInfo::timer(Signal::SIGALRM, 0, 0, 0);
        for serial in 0..100_000 {
            timer.0.store(serial, Ordering::Relaxed);
            pending.push_expiry(Signal::SIGALRM, info, Expiry { timer: timer.clone(), serial });
        }
        let entries = pending.queues[&Signal::SIGALRM.raw()].len();
        assert!(entries < 100, "{entries}");
        assert!(pending.take(SigSet::ALL).is_some() && pending.take(SigSet::ALL).is_none());
    }

    #[test]
    fn those_of_timers_go_alone() {
        let timer = Arc::new(SetTo(AtomicU64::new(0)));
        let expiry = || Expiry { timer: timer.clone(), serial: 0 };
        let mut pending = Pending::default();
        let (mixed, lost) = (Signal::new(40).unwrap(), Signal::new(41).unwrap());
        pending.push_expiry(Signal::SIGALRM, SigInfo::timer(Signal::SIGALRM, 0, 0, 0), expiry());
        pending.push_expiry(mixed, SigInfo::timer(mixed, 0, 0, 0), expiry());
        let users = Arc::new(Queues::default());
        pending.push(mixed, SigInfo::queue(mixed, libc::SI_QUEUE, 1, 0, 7), || users.charge(0, 10)).unwrap();
        pending.push(lost, SigInfo::user(lost, libc::SI_USER, 0, 0), || None).unwrap();
        pending.remove_timers();
        assert!(!pending.set().has(Signal::SIGALRM) && pending.set().has(lost));
        assert_eq!(pending.take(SigSet::ALL).map(|info| info.code), Some(libc::SI_QUEUE));
        assert_eq!(pending.take(SigSet::ALL).map(|info| info.signo), Some(41));
        assert!(pending.take(SigSet::ALL).is_none() && pending.is_empty());
    }

    #[test]
    fn order_and_merging() {
        let users = Arc::new(Queues::default());
        let charge = || users.charge(0, 10);
        let mut p = Pending::default();
        let rt = Signal::new(40).unwrap();
        for v in 0..3 {
            p.push(rt, SigInfo::queue(rt, libc::SI_QUEUE, 1, 0, v), charge).unwrap();
        }
        p.push(Signal::SIGUSR1, SigInfo::user(Signal::SIGUSR1, 0, 1, 0), charge).unwrap();
        p.push(Signal::SIGUSR1, SigInfo::user(Signal::SIGUSR1, 0, 2, 0), charge).unwrap();
        p.push(Signal::SIGSEGV, SigInfo::fault(Signal::SIGSEGV, 1, 0), charge).unwrap();
        assert_eq!(users.of(0), 5);
        assert_eq!(p.take(SigSet::ALL).unwrap().signo, 11);
        let u = p.take(SigSet::ALL).unwrap();
        assert_eq!((u.signo, u.pid()), (10, 1));
        for v in 0..3 {
            assert_eq!(p.take(SigSet::ALL).unwrap().fields[1], v);
        }
        assert!(p.take(SigSet::ALL).is_none() && p.is_empty());
        assert_eq!(users.of(0), 0);
    }

    #[test]
    fn state_and_back() {
        let users = Arc::new(Queues::default());
        let timer = Arc::new(SetTo(AtomicU64::new(1)));
        let expiry = |id| (id == 3).then(|| Expiry { timer: timer.clone(), serial: 1 });
        let (rt, usr1) = (Signal::new(40).unwrap(), Signal::SIGUSR1);
        let mut p = Pending::default();
        for v in 0..2 {
            p.push(rt, SigInfo::queue(rt, libc::SI_QUEUE, 1, 0, v), || users.charge(0, 10)).unwrap();
        }
        p.push(usr1, SigInfo::user(usr1, 0, 1, 0), || None).unwrap();
        p.push_expiry(Signal::SIGALRM, SigInfo::timer(Signal::SIGALRM, 3, 0, 0), expiry(3).unwrap());
        let state = p.state();
        let origins: Vec<_> = state.iter().map(|s| (s.info.signo, s.origin)).collect();
        let want = [(10, Origin::Lost), (14, Origin::Timer(3)), (40, Origin::Queued), (40, Origin::Queued)];
        assert_eq!(origins, want);
        drop(p);
        let mut back = Pending::restore(&state, || users.charge(0, 10), expiry);
        assert_eq!((back.state(), users.of(0)), (state.clone(), 2));
        let order = std::iter::from_fn(|| back.take(SigSet::ALL)).map(|i| (i.signo, i.fields[1]));
        assert_eq!(order.filter(|(n, _)| *n == 40).collect::<Vec<_>>(), [(40, 0), (40, 1)]);
        // A timer that is gone sends nothing.
        assert_eq!(Pending::restore(&state, || None, |_| None).set(), SigSet::of(usr1).union(SigSet::of(rt)));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut p = Pending::default();
        let rt = Signal::new(40).unwrap();
        let queued = SigInfo::queue(rt, libc::SI_QUEUE, 1, 0, 0);
        assert_eq!(p.push(rt, queued, || None), Err(Errno::EAGAIN));
        assert!(p.is_empty());
        p.push(rt, SigInfo::user(rt, libc::SI_USER, 1, 0), || None).unwrap();
        assert_eq!(p.take(SigSet::ALL).map(|i| i.signo), Some(40));
    }
}
