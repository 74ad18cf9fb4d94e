//! Neighbours: hardware addresses of IP addresses, with the states of RFC 4861 section 7.3.2 and ip-neighbour(8).
//!
//! Pure: the table decides, and returns what is to be sent. The stack holds it under a read-write lock; a reachable neighbour is
//! found under the read lock. Checkpoint: [`Entry`] without its queue.

use crate::frame::Frame;
use crate::sysctl::Sysctls;
use crate::truesize;
use crate::wire::eth::Mac;
use ktime::Ktime;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that wait for one unresolved neighbour (`unres_qlen_bytes`).
const QUEUE_BYTES: usize = 212_992;

/// The state of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum State {
    /// Solicited, no answer yet.
    Incomplete,
    /// Confirmed a short time ago.
    Reachable,
    /// The address is known, but not confirmed.
    Stale,
    /// Used while stale; waits for a confirmation by upper layers.
    Delay,
    /// Solicited directly, to confirm it.
    Probe,
    /// No answer.
    Failed,
    /// Set by an administrator.
    Permanent,
}

/// A neighbour.
#[derive(Debug)]
pub struct Entry {
    /// State; `Reachable` may have expired (see [`Neighbours::shown`]).
    pub state: State,
    /// Hardware address, once known.
    pub mac: Mac,
    /// Last confirmation, in nanoseconds: upper layers set it without a lock on the table.
    confirmed: AtomicU64,
    /// When the state is looked at again.
    deadline: Option<Ktime>,
    probes: u32,
    queue: VecDeque<Frame>,
    queued: usize,
    used: Ktime,
}

/// Interface and address.
pub type Key = (u32, IpAddr);

/// What is to be done with a frame.
#[derive(Debug)]
pub enum Resolution {
    /// Send it to this address; solicit this one first when it says so.
    Send(Frame, Mac),
    /// It waits. A solicitation is to be sent when the flag is set.
    Queued(bool),
}

/// What a timer asks to be sent.
#[derive(Debug)]
pub enum Act {
    /// A solicitation, to a hardware address or to all hosts of the link.
    Solicit(Key, Option<Mac>),
    /// These frames cannot be delivered.
    Unreachable(Key, VecDeque<Frame>),
}

/// The table.
#[derive(Debug, Default)]
pub struct Neighbours {
    entries: HashMap<Key, Entry>,
    /// What has changed since [`Neighbours::take_changes`].
    changes: Vec<Changed>,
}

/// A neighbour with its new state, and whether it is gone.
pub(crate) type Changed = (Key, Mac, State, bool);

impl Neighbours {
    /// The address of a reachable or permanent neighbour: the path of nearly all frames.
    pub fn quick(&self, key: &Key, now: Ktime, settings: &Sysctls) -> Option<Mac> {
        let entry = self.entries.get(key)?;
        (entry.state == State::Permanent || entry.is_reachable(now, settings)).then_some(entry.mac)
    }

    /// Upper layers have seen an answer from the neighbour.
    pub fn confirm(&self, key: &Key, now: Ktime) {
        if let Some(entry) = self.entries.get(key) {
            entry.confirmed.fetch_max(now.nanos(), Ordering::Relaxed);
        }
    }

    /// Finds the way of a frame.
    pub fn resolve(&mut self, key: Key, frame: Frame, now: Ktime, settings: &Sysctls) -> Resolution {
        self.make_room(settings.neigh_gc_thresh.size());
        let entry = self.entries.entry(key).or_insert_with(Entry::failed);
        entry.used = now;
        if entry.state == State::Reachable && !entry.is_reachable(now, settings) {
            entry.state = State::Stale;
        }
        match entry.state {
            State::Reachable | State::Permanent | State::Delay | State::Probe => {
                Resolution::Send(frame, entry.mac)
            }
            State::Stale => {
                entry.state = State::Delay;
                entry.deadline = Some(now.plus(Duration::from_secs(settings.neigh_delay.size() as u64)));
                Resolution::Send(frame, entry.mac)
            }
            State::Incomplete => {
                entry.enqueue(frame);
                Resolution::Queued(false)
            }
            State::Failed => {
                entry.state = State::Incomplete;
                entry.probes = 1;
                entry.deadline = Some(now.plus(retrans(settings)));
                entry.enqueue(frame);
                Resolution::Queued(true)
            }
        }
    }

    /// A neighbour has told its address. Unknown neighbours are added when `create` says so. Returns frames to send to it.
    pub fn learn(&mut self, key: Key, mac: Mac, how: Learnt, now: Ktime, gc: usize) -> VecDeque<Frame> {
        let known = self.entries.contains_key(&key);
        if !known && !how.create {
            return VecDeque::new();
        }
        if !known {
            self.make_room(gc);
        }
        let entry = self.entries.entry(key).or_insert_with(Entry::failed);
        let valid = !matches!(entry.state, State::Incomplete | State::Failed);
        if entry.state == State::Permanent || (valid && entry.mac != mac && !how.replace) {
            // RFC 4861 section 7.2.5: an answer that may not replace makes a reachable neighbour stale.
            if entry.state == State::Reachable {
                entry.state = State::Stale;
            }
            return VecDeque::new();
        }
        let changed = entry.mac != mac || !valid;
        entry.mac = mac;
        if how.solicited {
            entry.state = State::Reachable;
            entry.confirmed.store(now.nanos(), Ordering::Relaxed);
            (entry.deadline, entry.probes) = (None, 0);
        } else if changed {
            entry.state = State::Stale;
            (entry.deadline, entry.probes) = (None, 0);
        }
        entry.queued = 0;
        let waiting = std::mem::take(&mut entry.queue);
        if how.solicited || changed {
            let state = entry.state;
            self.changes.push((key, mac, state, false));
        }
        waiting
    }

    /// The changes since the last call, oldest first.
    pub(crate) fn take_changes(&mut self) -> Vec<Changed> {
        std::mem::take(&mut self.changes)
    }

    /// The earliest deadline.
    pub fn deadline(&self) -> Option<Ktime> {
        self.entries.values().filter_map(|entry| entry.deadline).min()
    }

    /// Looks at the entries that are due.
    pub fn expire(&mut self, now: Ktime, settings: &Sysctls) -> Vec<Act> {
        let due = |e: &Entry| e.deadline.is_some_and(|at| at <= now);
        let mut acts = Vec::new();
        for (key, entry) in self.entries.iter_mut().filter(|(_, entry)| due(entry)) {
            let before = entry.state;
            acts.extend(entry.expire(*key, now, settings));
            if entry.state != before {
                self.changes.push((*key, entry.mac, entry.state, false));
            }
        }
        acts
    }

    /// Sets a permanent entry, or replaces what is known. One that was confirmed is so since `now`.
    pub fn set_at(&mut self, key: Key, mac: Mac, state: State, now: Ktime) -> VecDeque<Frame> {
        let waiting = self.set(key, mac, state);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.confirmed.store(now.nanos(), Ordering::Relaxed);
            entry.used = now;
        }
        waiting
    }

    /// Sets a permanent entry, or replaces what is known.
    pub fn set(&mut self, key: Key, mac: Mac, state: State) -> VecDeque<Frame> {
        self.changes.push((key, mac, state, false));
        let entry = self.entries.entry(key).or_insert_with(Entry::failed);
        (entry.mac, entry.state, entry.deadline) = (mac, state, None);
        entry.queued = 0;
        std::mem::take(&mut entry.queue)
    }

    /// Forgets one entry, which fails first; false when there is none.
    pub fn remove(&mut self, key: &Key) -> bool {
        let found = self.entries.remove(key).is_some();
        if found {
            self.changes.push((*key, Mac::default(), State::Failed, false));
            self.changes.push((*key, Mac::default(), State::Failed, true));
        }
        found
    }

    /// Forgets entries.
    pub fn purge(&mut self, matches: impl Fn(&Key) -> bool) -> usize {
        let before = self.entries.len();
        for (key, entry) in self.entries.extract_if(|key, _| matches(key)) {
            self.changes.push((key, entry.mac, entry.state, true));
        }
        before - self.entries.len()
    }

    /// All neighbours as ip-neighbour(8) shows them.
    pub fn shown(&self, now: Ktime, settings: &Sysctls) -> Vec<(Key, Mac, State)> {
        let state = |e: &Entry| match e.state {
            State::Reachable if !e.is_reachable(now, settings) => State::Stale,
            state => state,
        };
        self.entries.iter().map(|(key, entry)| (*key, entry.mac, state(entry))).collect()
    }

    /// Drops the entry that was not used for the longest time when the table is full.
    fn make_room(&mut self, limit: usize) {
        if self.entries.len() < limit.max(1) {
            return;
        }
        let droppable = self.entries.iter().filter(|(_, entry)| entry.state != State::Permanent);
        if let Some(key) = droppable.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) {
            self.entries.remove(&key);
        }
    }
}

/// How an address was learnt.
#[derive(Clone, Copy, Debug)]
pub struct Learnt {
    /// It answers a solicitation, so the way back works, too.
    pub solicited: bool,
    /// It may replace another address.
    pub replace: bool,
    /// It may add a neighbour.
    pub create: bool,
}

/// What a waiting frame takes of the queue (`unres_qlen_bytes`).
fn counts(frame: &Frame) -> usize {
    truesize::packet(frame.buf.len(), false)
}

fn retrans(settings: &Sysctls) -> Duration {
    Duration::from_millis(settings.neigh_retrans_ms.size() as u64)
}

impl Entry {
    fn failed() -> Entry {
        Entry {
            state: State::Failed,
            mac: Mac::default(),
            confirmed: AtomicU64::new(0),
            deadline: None,
            probes: 0,
            queue: VecDeque::new(),
            queued: 0,
            used: Ktime::ZERO,
        }
    }

    fn is_reachable(&self, now: Ktime, settings: &Sysctls) -> bool {
        let confirmed = Ktime::from_nanos(self.confirmed.load(Ordering::Relaxed));
        self.state == State::Reachable
            && now.since(confirmed) < Duration::from_millis(settings.neigh_base_reachable_ms.size() as u64)
    }

    fn enqueue(&mut self, frame: Frame) {
        self.queued += counts(&frame);
        self.queue.push_back(frame);
        while self.queued > QUEUE_BYTES
            && let Some(oldest) = self.queue.pop_front()
        {
            self.queued -= counts(&oldest);
        }
    }

    fn expire(&mut self, key: Key, now: Ktime, settings: &Sysctls) -> Option<Act> {
        let confirmed = Ktime::from_nanos(self.confirmed.load(Ordering::Relaxed));
        let recent = now.since(confirmed) < Duration::from_secs(settings.neigh_delay.size() as u64);
        if matches!(self.state, State::Delay | State::Probe) && confirmed > Ktime::ZERO && recent {
            (self.state, self.deadline, self.probes) = (State::Reachable, None, 0);
            return None;
        }
        let limit = match self.state {
            State::Delay => {
                (self.state, self.probes) = (State::Probe, 0);
                settings.neigh_ucast.size()
            }
            State::Probe => settings.neigh_ucast.size(),
            State::Incomplete => settings.neigh_mcast.size(),
            _ => {
                self.deadline = None;
                return None;
            }
        };
        if self.probes as usize >= limit {
            (self.state, self.deadline, self.queued) = (State::Failed, None, 0);
            return Some(Act::Unreachable(key, std::mem::take(&mut self.queue)));
        }
        self.probes += 1;
        self.deadline = Some(now.plus(retrans(settings)));
        Some(Act::Solicit(key, (self.state == State::Probe).then_some(self.mac)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ANSWER: Learnt = Learnt { solicited: true, replace: true, create: false };

    fn frame() -> Frame {
        Frame::new(Pool::new().copy(b"x"))
    }

    fn state(table: &Neighbours, now: Ktime) -> State {
        table.shown(now, &Sysctls::default())[0].2
    }

    #[test]
    fn unanswered_solicitations_fail() {
        let (mut table, settings) = (Neighbours::default(), Sysctls::default());
        let key = (2, "10.0.0.1".parse().unwrap());
        let at = Ktime::from_millis;
        assert!(matches!(table.resolve(key, frame(), at(0), &settings), Resolution::Queued(true)));
        assert!(matches!(table.resolve(key, frame(), at(1), &settings), Resolution::Queued(false)));
        assert!(matches!(table.expire(at(1000), &settings)[..], [Act::Solicit(_, None)]));
        assert!(matches!(table.expire(at(2000), &settings)[..], [Act::Solicit(_, None)]));
        let acts = table.expire(at(3000), &settings);
        assert!(matches!(&acts[..], [Act::Unreachable(_, frames)] if frames.len() == 2));
        assert_eq!((state(&table, at(3000)), table.deadline()), (State::Failed, None));
    }

    #[test]
    fn states_follow_use_and_time() {
        let (mut table, settings) = (Neighbours::default(), Sysctls::default());
        let key = (2, "10.0.0.1".parse().unwrap());
        let at = Ktime::from_millis;
        table.resolve(key, frame(), at(1), &settings);
        assert_eq!(table.learn(key, MAC, ANSWER, at(2), 1024).len(), 1);
        assert_eq!(table.quick(&key, at(3), &settings), Some(MAC));
        assert_eq!(state(&table, at(40_000)), State::Stale);
        assert!(matches!(table.resolve(key, frame(), at(40_000), &settings), Resolution::Send(_, MAC)));
        assert_eq!(state(&table, at(40_000)), State::Delay);
        assert!(matches!(table.expire(at(45_000), &settings)[..], [Act::Solicit(_, Some(MAC))]));
        assert_eq!(state(&table, at(45_000)), State::Probe);
        table.confirm(&key, at(45_500));
        assert!(table.expire(at(46_000), &settings).is_empty());
        assert_eq!(state(&table, at(46_000)), State::Reachable);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut table, settings) = (Neighbours::default(), Sysctls::default());
        for n in 0..5000u32 {
            let key = (2, std::net::Ipv4Addr::from_bits(n).into());
            table.resolve(key, frame(), Ktime::from_millis(n.into()), &settings);
            table.resolve((2, "10.0.0.1".parse().unwrap()), frame(), Ktime::from_millis(n.into()), &settings);
        }
        assert!(table.entries.len() <= 1025);
        assert!(table.entries.values().all(|entry| entry.queued <= QUEUE_BYTES));
    }
}
