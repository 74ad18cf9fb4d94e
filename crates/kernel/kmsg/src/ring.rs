//! The records.

use abi::{Errno, Result};
use ktime::Clock;
use lock_order::Mutex;
use std::collections::VecDeque;
use wait::{Events, WaitQueue};

/// What the log holds, and what SYSLOG_ACTION_SIZE_BUFFER answers.
pub const SIZE: usize = 128 << 10;
/// What a record takes besides its text.
const OVERHEAD: usize = 64;
/// Longest text of a record.
pub(crate) const TEXT_MAX: usize = 1024;

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Microseconds since the kernel started.
    pub(crate) time: u64,
    /// Facility times 8, and level.
    pub(crate) priority: u32,
    pub(crate) text: Vec<u8>,
}

impl Record {
    /// As syslog(2) reads it.
    fn line(&self) -> Vec<u8> {
        let head = format!("<{}>[{:5}.{:06}] ", self.priority, self.time / 1_000_000, self.time % 1_000_000);
        let lines = self.text.split(|b| *b == b'\n');
        lines.flat_map(|text| [head.as_bytes(), text, b"\n"].concat()).collect()
    }
}

/// What is behind the lock.
#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Record>,
    bytes: usize,
    /// Number of the first record that is still there.
    first: u64,
    /// Number of the first record that SYSLOG_ACTION_READ has not read, and how many bytes of it have been.
    read: u64,
    partial: usize,
    /// Number of the first record after the last SYSLOG_ACTION_CLEAR.
    cleared: u64,
}

impl Ring {
    fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Record> {
        self.records.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// What SYSLOG_ACTION_READ has not read yet.
    fn unread(&self) -> Vec<u8> {
        let start = self.read.max(self.first);
        let skip = if start == self.read { self.partial } else { 0 };
        let bytes = (start..self.end()).filter_map(|n| self.get(n)).flat_map(Record::line);
        bytes.skip(skip).collect()
    }
}

/// The log of a kernel.
pub struct Log {
    ring: Mutex<Ring>,
    clock: Clock,
    queue: WaitQueue,
}

impl Log {
    /// An empty log. Records get their times from `clock`.
    pub fn new(clock: Clock) -> Log {
        Log { ring: Mutex::default(), clock, queue: WaitQueue::new() }
    }

    /// Adds a message of the kernel's own.
    pub fn print(&self, level: u32, text: &str) {
        self.add(level & 7, text.as_bytes());
    }

    /// Adds a record; a long text is cut.
    pub(crate) fn add(&self, priority: u32, text: &[u8]) {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.get(..text.len().min(TEXT_MAX)).unwrap_or_default().to_vec();
        let time = self.clock.now().nanos() / 1000;
        let mut ring = self.ring.lock();
        ring.bytes += text.len() + OVERHEAD;
        ring.records.push_back(Record { time, priority, text });
        while ring.bytes > SIZE {
            let Some(old) = ring.records.pop_front() else { break };
            ring.bytes -= old.text.len() + OVERHEAD;
            ring.first += 1;
        }
        drop(ring);
        self.queue.notify(Events::READABLE);
    }

    /// Notified when there is a new record.
    pub fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    /// SYSLOG_ACTION_READ: the next bytes, which are then gone for this reader. Empty when there are none.
    pub fn read(&self, max: usize) -> Vec<u8> {
        let mut ring = self.ring.lock();
        let mut bytes = ring.unread();
        bytes.truncate(max);
        let mut left = bytes.len();
        if ring.read < ring.first {
            (ring.read, ring.partial) = (ring.first, 0);
        }
        while left > 0 {
            let Some(length) = ring.get(ring.read).map(|r| r.line().len()) else { break };
            if ring.partial + left < length {
                ring.partial += left;
                break;
            }
            left -= length - ring.partial;
            (ring.read, ring.partial) = (ring.read + 1, 0);
        }
        bytes
    }

    /// SYSLOG_ACTION_SIZE_UNREAD.
    pub fn unread(&self) -> usize {
        self.ring.lock().unread().len()
    }

    /// SYSLOG_ACTION_READ_ALL: the last whole lines since the log was cleared that fit; SYSLOG_ACTION_READ_CLEAR
    /// clears it.
    pub fn last(&self, max: usize, clear: bool) -> Vec<u8> {
        let mut ring = self.ring.lock();
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let mut total = 0;
        for n in (ring.cleared.max(ring.first)..ring.end()).rev() {
            let Some(line) = ring.get(n).map(Record::line) else { break };
            if total + line.len() > max {
                break;
            }
            total += line.len();
            lines.push(line);
        }
        if clear {
            ring.cleared = ring.end();
        }
        drop(ring);
        lines.into_iter().rev().flatten().collect()
    }

    /// SYSLOG_ACTION_CLEAR.
    pub fn clear(&self) {
        let mut ring = self.ring.lock();
        ring.cleared = ring.end();
    }

    /// Numbers of the first record, of the first since the log was cleared, and of the next one to come.
    pub(crate) fn marks(&self) -> (u64, u64, u64) {
        let ring = self.ring.lock();
        (ring.first, ring.cleared.max(ring.first), ring.end())
    }

    /// Record number `n`: EPIPE when it is gone, `None` when it is still to come.
    pub(crate) fn record(&self, n: u64) -> Result<Option<Record>> {
        let ring = self.ring.lock();
        if n < ring.first { Err(Errno::EPIPE) } else { Ok(ring.get(n).cloned()) }
    }
}
