//! A tracked connection, and a packet's reference to it.

use crate::tcp::Tracker;
use crate::tuple::{Direction, Tuple};
use account::Charge;
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of a connection's status, as Linux numbers them (`enum ip_conntrack_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Another connection announced this one.
    pub const EXPECTED: Status = Status(1 << 0);
    /// Packets went both ways.
    pub const SEEN_REPLY: Status = Status(1 << 1);
    /// A full table keeps it.
    pub const ASSURED: Status = Status(1 << 2);
    /// It is in the table.
    pub const CONFIRMED: Status = Status(1 << 3);
    /// The source of its packets is changed.
    pub const SRC_NAT: Status = Status(1 << 4);
    /// The destination of its packets is changed.
    pub const DST_NAT: Status = Status(1 << 5);
    /// Rules have decided on its source.
    pub const SRC_NAT_DONE: Status = Status(1 << 7);
    /// Rules have decided on its destination.
    pub const DST_NAT_DONE: Status = Status(1 << 8);
    /// It has left the table.
    pub const DYING: Status = Status(1 << 9);
}

/// A tracked connection.
#[derive(Debug)]
pub struct Entry {
    /// A number that no other entry of the table has had lately.
    pub id: u32,
    /// Addresses of the first packet, before NAT.
    pub original: Tuple,
    /// The connection's mark (CONNMARK, `ct mark`).
    pub mark: AtomicU32,
    reply: Mutex<Tuple>,
    status: AtomicU32,
    /// When it ends, in milliseconds of the kernel's clock.
    deadline: AtomicU64,
    /// When it is a stream (UDP), in milliseconds of the kernel's clock.
    pub(crate) stream_from: u64,
    pub(crate) tcp: Mutex<Tracker>,
    _charge: Charge,
}

impl Entry {
    pub(crate) fn new(id: u32, (original, reply): (Tuple, Tuple), now: u64, charge: Charge) -> Entry {
        Entry {
            id,
            original,
            mark: AtomicU32::new(0),
            reply: Mutex::new(reply),
            status: AtomicU32::new(0),
            deadline: AtomicU64::new(now),
            stream_from: now.saturating_add(2000),
            tcp: Mutex::default(),
            _charge: charge,
        }
    }

    /// Addresses of the answers, as they are on the wire.
    pub fn reply(&self) -> Tuple {
        *self.reply.lock()
    }

    /// Changes where answers come from or go to; only before the entry is confirmed.
    pub fn set_reply(&self, reply: Tuple) {
        *self.reply.lock() = reply;
    }

    /// The tuple of a direction.
    pub fn tuple(&self, direction: Direction) -> Tuple {
        match direction {
            Direction::Original => self.original,
            Direction::Reply => self.reply(),
        }
    }

    /// True when a bit of the status is set.
    pub fn has(&self, status: Status) -> bool {
        self.status.load(Ordering::Acquire) & status.0 != 0
    }

    /// Sets a bit; true if it was not set.
    pub fn set(&self, status: Status) -> bool {
        self.status.fetch_or(status.0, Ordering::AcqRel) & status.0 == 0
    }

    /// All bits.
    pub fn status(&self) -> u32 {
        self.status.load(Ordering::Acquire)
    }

    /// The mark.
    pub fn mark(&self) -> u32 {
        self.mark.load(Ordering::Relaxed)
    }

    /// Seconds that the entry has left.
    pub fn seconds_left(&self, now: u64) -> u64 {
        self.deadline.load(Ordering::Relaxed).saturating_sub(now) / 1000
    }

    /// When it ends.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    /// One of a checkpoint.
    pub(crate) fn restored(saved: &crate::state::EntryState, charge: Charge) -> Entry {
        let [original, reply] = saved.tuples;
        Entry {
            id: saved.id,
            original,
            mark: AtomicU32::new(saved.mark),
            reply: Mutex::new(reply),
            status: AtomicU32::new(0),
            deadline: AtomicU64::new(saved.deadline),
            stream_from: saved.stream_from,
            tcp: Mutex::new(Tracker { state: saved.tcp }),
            _charge: charge,
        }
    }

    /// True when its time is over.
    pub fn is_expired(&self, now: u64) -> bool {
        self.deadline.load(Ordering::Relaxed) <= now
    }

    /// Lets it live for some seconds from now.
    pub fn refresh(&self, now: u64, seconds: u32) {
        self.deadline.store(now.saturating_add(u64::from(seconds) * 1000), Ordering::Relaxed);
    }

    /// The state of a TCP connection.
    pub fn tcp_state(&self) -> crate::tcp::State {
        self.tcp.lock().state
    }
}

/// How a packet relates to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No answer has been seen.
    New,
    /// Packets went both ways.
    Established,
    /// An error about the connection.
    Related,
}

/// What is known of a packet's connection.
#[derive(Clone, Debug, Default)]
pub enum Flow {
    /// Nothing: not looked at, or invalid.
    #[default]
    None,
    /// A rule exempted the packet.
    Untracked,
    /// A connection.
    Tracked {
        /// Which.
        entry: Arc<Entry>,
        /// The packet's direction.
        direction: Direction,
        /// The packet's state.
        state: State,
    },
}

impl Flow {
    /// The connection, if there is one.
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Flow::Tracked { entry, .. } => Some(entry),
            _ => None,
        }
    }

    /// What an answer to the packet belongs to that this host makes: the packet's connection, which need not be in the
    /// table.
    pub fn answer(&self) -> Flow {
        match self {
            Flow::Tracked { entry, direction, .. } => {
                Flow::Tracked { entry: entry.clone(), direction: direction.opposite(), state: State::Related }
            }
            other => other.clone(),
        }
    }
}
