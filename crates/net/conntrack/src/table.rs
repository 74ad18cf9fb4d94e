//! The table of connections.

use crate::entry::{Entry, Status};
use crate::timeouts::Timeouts;
use crate::tuple::{Direction, Tuple};
use account::{Account, Charge};
use lock_order::{Mutex, RwLock, rank};
use siphasher::sip::SipHasher13;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries that a table may be allowed to hold.
pub const MAX_ENTRIES: u32 = 262_144;

/// Entries that a new table may hold.
const DEFAULT_MAX: u32 = 65_536;

/// What an entry takes: itself, and twice its place in the map, which has room to spare.
const ENTRY: usize = size_of::<Entry>() + 4 * size_of::<(Tuple, (Arc<Entry>, Direction))>() + 32;

/// Entries that the map has room for without giving room back.
const SMALL: usize = 1024;

/// Old entries that are looked at for each new one.
const SWEEP: usize = 4;

/// Old entries that a full table looks at.
const EARLY_DROP: usize = 512;

/// Hashes with a secret, so that tuples of one bucket cannot be chosen from outside.
#[derive(Clone)]
struct Keyed([u8; 16]);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

type Map = HashMap<Tuple, (Arc<Entry>, Direction), Keyed>;

/// The connections of a network namespace.
pub struct Table {
    /// Times that connections live without packets.
    pub timeouts: Timeouts,
    map: RwLock<Map, { rank::CONNTRACK_TABLE }>,
    /// Confirmed entries, the one to be looked at next first.
    queue: Mutex<VecDeque<Arc<Entry>>, { rank::CONNTRACK_AGES }>,
    account: Arc<Account>,
    max: AtomicU32,
    next_id: AtomicU32,
    /// Packets dropped because the table was full.
    pub dropped: AtomicU64,
    /// Entries that a full table gave up.
    pub early_dropped: AtomicU64,
}

impl Table {
    /// An empty table. Its entries count for an account; the secret comes from the kernel's random source.
    pub fn new(secret: [u8; 16], account: Arc<Account>) -> Table {
        let first = u32::from_ne_bytes([secret[0], secret[3], secret[6], secret[9]]);
        Table {
            timeouts: Timeouts::default(),
            map: RwLock::new(HashMap::with_hasher(Keyed(secret))),
            queue: Mutex::default(),
            account,
            max: AtomicU32::new(DEFAULT_MAX),
            next_id: AtomicU32::new(first),
            dropped: AtomicU64::new(0),
            early_dropped: AtomicU64::new(0),
        }
    }

    /// Entries that it may hold (`nf_conntrack_max`).
    pub fn max(&self) -> u32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes that; false above [`MAX_ENTRIES`].
    pub fn set_max(&self, max: u32) -> bool {
        let allowed = max <= MAX_ENTRIES;
        if allowed {
            self.max.store(max, Ordering::Relaxed);
        }
        allowed
    }

    /// Entries that it holds (`nf_conntrack_count`), without expired ones.
    pub fn count(&self, now: u64) -> usize {
        self.sweep(usize::MAX, now);
        self.queue.lock().len()
    }

    /// The connection that a packet with this tuple belongs to, and the packet's direction.
    pub fn lookup(&self, tuple: &Tuple, now: u64) -> Option<(Arc<Entry>, Direction)> {
        let (entry, direction) = self.map.read().get(tuple).cloned()?;
        if entry.is_expired(now) {
            self.kill(&entry);
            return None;
        }
        Some((entry, direction))
    }

    /// A new connection that is not in the table yet; `None` when the table is full.
    pub(crate) fn create(&self, original: Tuple, reply: Tuple, now: u64) -> Option<Arc<Entry>> {
        self.sweep(SWEEP, now);
        let max = self.max() as usize;
        if max != 0 && self.queue.lock().len() >= max && !self.make_room(now) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let Some(charge) = self.charge(now) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(Entry::new(id, (original, reply), now, charge)))
    }

    /// An entry of a checkpoint, which is not in the table yet; `None` when it takes too much.
    pub(crate) fn restored_entry(&self, saved: &crate::state::EntryState) -> Option<Entry> {
        Some(Entry::restored(saved, self.account.take(ENTRY).ok()?))
    }

    /// The number of the next entry.
    pub(crate) fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set_next_id(&self, id: u32) {
        self.next_id.store(id, Ordering::Relaxed);
    }

    /// Memory for an entry. Where there is none, an entry of this table gives way, as in a full table.
    fn charge(&self, now: u64) -> Option<Charge> {
        let first = self.account.take(ENTRY);
        first.ok().or_else(|| self.make_room(now).then(|| self.account.take(ENTRY).ok())?)
    }

    /// Puts a connection into the table. When another has one of its tuples, that one is returned; it is the same connection if the
    /// original tuples are equal.
    pub fn confirm(&self, entry: &Arc<Entry>) -> Result<(), Arc<Entry>> {
        let reply = entry.reply();
        let mut map = self.map.write();
        for tuple in [&entry.original, &reply] {
            if let Some((other, _)) = map.get(tuple) {
                return if Arc::ptr_eq(other, entry) { Ok(()) } else { Err(other.clone()) };
            }
        }
        map.insert(entry.original, (entry.clone(), Direction::Original));
        map.insert(reply, (entry.clone(), Direction::Reply));
        entry.set(Status::CONFIRMED);
        self.queue.lock().push_back(entry.clone());
        Ok(())
    }

    /// True when a connection other than `mine` has the tuple: NAT needs another one.
    pub fn is_taken(&self, tuple: &Tuple, mine: &Entry, now: u64) -> bool {
        let map = self.map.read();
        map.get(tuple).is_some_and(|(other, _)| !std::ptr::eq(&**other, mine) && !other.is_expired(now))
    }

    /// Takes a connection out of the table.
    pub fn kill(&self, entry: &Arc<Entry>) {
        if !entry.set(Status::DYING) || !entry.has(Status::CONFIRMED) {
            return;
        }
        let mut map = self.map.write();
        for tuple in [entry.original, entry.reply()] {
            if map.get(&tuple).is_some_and(|(other, _)| Arc::ptr_eq(other, entry)) {
                map.remove(&tuple);
            }
        }
        // What many connections needed is not kept for few.
        if map.capacity() > SMALL && map.capacity() / 8 > map.len() {
            let wanted = map.len() * 2;
            map.shrink_to(wanted);
        }
        // The queue drops it when its turn comes.
        drop(map);
        self.trim();
    }

    /// Forgets everything.
    pub fn flush(&self) {
        let all = std::mem::take(&mut *self.queue.lock());
        all.iter().for_each(|entry| self.kill(entry));
    }

    /// The living connections, oldest first.
    pub fn entries(&self, now: u64) -> Vec<Arc<Entry>> {
        self.sweep(usize::MAX, now);
        self.queue.lock().iter().cloned().collect()
    }

    /// Drops entries from the front of the queue that are gone already.
    fn trim(&self) {
        let mut queue = self.queue.lock();
        while queue.front().is_some_and(|entry| entry.has(Status::DYING)) {
            queue.pop_front();
        }
    }

    /// Looks at some entries, oldest look first, and drops those that are gone or expired.
    fn sweep(&self, limit: usize, now: u64) {
        let mut expired = Vec::new();
        let mut queue = self.queue.lock();
        for _ in 0..limit.min(queue.len()) {
            let Some(entry) = queue.pop_front() else { break };
            if entry.has(Status::DYING) {
                continue;
            }
            if entry.is_expired(now) {
                expired.push(entry);
            } else {
                queue.push_back(entry);
            }
        }
        drop(queue);
        expired.iter().for_each(|entry| self.kill(entry));
    }

    /// Gives up an entry that no answer has assured.
    fn make_room(&self, now: u64) -> bool {
        let mut queue = self.queue.lock();
        for _ in 0..EARLY_DROP.min(queue.len()) {
            let Some(entry) = queue.pop_front() else { return false };
            if entry.has(Status::DYING) {
                return true;
            }
            if entry.is_expired(now) || !entry.has(Status::ASSURED) {
                drop(queue);
                self.early_dropped.fetch_add(1, Ordering::Relaxed);
                self.kill(&entry);
                return true;
            }
            queue.push_back(entry);
        }
        false
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("entries", &self.queue.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Flow, State};
    use crate::tcp::Kind;
    use crate::track::{Outcome, Transport};

    fn tuple(port: u16) -> Tuple {
        let [src, dst] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        Tuple { src, dst, protocol: 17, src_port: port, dst_port: 53 }
    }

    fn send(table: &Table, tuple: &Tuple, seen: Transport, now: u64) -> (Option<Arc<Entry>>, Option<State>) {
        match table.packet(tuple, seen, now) {
            Outcome::Flow(Flow::Tracked { entry, state, .. }) => {
                if !entry.has(Status::DYING) {
                    table.confirm(&entry).unwrap();
                }
                (Some(entry), Some(state))
            }
            _ => (None, None),
        }
    }

    #[test]
    fn datagrams_become_a_stream_and_expire() {
        let table = Table::new([1; 16], Arc::default());
        let (ask, answer) = (tuple(1000), tuple(1000).inverse().unwrap());
        assert_eq!(send(&table, &ask, Transport::Udp, 0).1, Some(State::New));
        assert_eq!(send(&table, &ask, Transport::Udp, 1).1, Some(State::New));
        assert_eq!(send(&table, &answer, Transport::Udp, 2).1, Some(State::Established));
        let (entry, state) = send(&table, &ask, Transport::Udp, 3);
        assert_eq!(state, Some(State::Established));
        let entry = entry.unwrap();
        assert!(!entry.has(Status::ASSURED) && entry.seconds_left(3) == 30);
        send(&table, &ask, Transport::Udp, 2500);
        assert!(entry.has(Status::ASSURED) && entry.seconds_left(2500) == 120);
        assert_eq!(table.count(100_000), 1);
        assert_eq!(table.count(200_000), 0);
        assert_eq!(send(&table, &ask, Transport::Udp, 200_001).1, Some(State::New));
    }

    #[test]
    fn full_tables_drop_what_is_not_assured() {
        let table = Table::new([2; 16], Arc::default());
        assert!(table.set_max(3) && !table.set_max(MAX_ENTRIES + 1));
        for port in 1..=3 {
            let (entry, _) = send(&table, &tuple(port), Transport::Udp, 0);
            if port != 2 {
                entry.unwrap().set(Status::ASSURED);
            }
        }
        send(&table, &tuple(4), Transport::Udp, 0).0.unwrap().set(Status::ASSURED);
        assert_eq!(table.count(0), 3);
        assert!(table.lookup(&tuple(2), 0).is_none() && table.lookup(&tuple(1), 0).is_some());
        assert!(matches!(table.packet(&tuple(5), Transport::Udp, 0), Outcome::Full));
        assert_eq!(table.dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn tables_share_an_account() {
        let account = Arc::<Account>::default();
        account.set_limit(3 * ENTRY);
        let (one, two) = (Table::new([5; 16], account.clone()), Table::new([6; 16], account.clone()));
        for port in 1..=2 {
            send(&one, &tuple(port), Transport::Udp, 0).0.unwrap().set(Status::ASSURED);
        }
        send(&two, &tuple(3), Transport::Udp, 0).0.unwrap();
        assert_eq!(account.used(), 3 * ENTRY);
        // The first table has nothing to give up, the second has.
        assert!(matches!(one.packet(&tuple(4), Transport::Udp, 0), Outcome::Full));
        assert_eq!(one.dropped.load(Ordering::Relaxed), 1);
        assert!(send(&two, &tuple(5), Transport::Udp, 0).0.is_some() && two.lookup(&tuple(3), 0).is_none());
        assert_eq!((two.count(0), account.used()), (1, 3 * ENTRY));
        drop((one, two));
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn clashes_are_found() {
        let table = Table::new([3; 16], Arc::default());
        let one = table.create(tuple(1), tuple(1).inverse().unwrap(), 0).unwrap();
        let two = table.create(tuple(2), tuple(1).inverse().unwrap(), 0).unwrap();
        one.refresh(0, 10);
        assert!(!table.is_taken(&one.reply(), &two, 0));
        assert!(table.confirm(&one).is_ok() && table.confirm(&one).is_ok());
        assert!(table.is_taken(&two.reply(), &two, 0) && !table.is_taken(&one.reply(), &one, 0));
        assert!(table.confirm(&two).is_err());
        table.flush();
        assert!(table.confirm(&two).is_ok());
    }

    #[test]
    fn refused_connections_leave_nothing() {
        let table = Table::new([4; 16], Arc::default());
        let syn = Tuple { protocol: 6, ..tuple(9) };
        send(&table, &syn, Transport::Tcp(Kind::Syn), 0);
        assert_eq!(table.count(0), 1);
        send(&table, &syn.inverse().unwrap(), Transport::Tcp(Kind::Rst), 0);
        assert_eq!(table.count(0), 0);
    }
}
