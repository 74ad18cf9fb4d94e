//! A queue in shards: one thread at a time works on a shard, and a flow stays in its shard, so its order is kept.
//!
//! Bounds: entries and bytes of each shard. The bytes count for a [`Memory`]. The lock of a shard has the rank
//! `FRAMES`; nothing is locked while an entry is processed. A checkpoint is taken when the queue is empty.

use crate::memory::{Charge, Memory};
use lock_order::{Mutex, rank};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SHARDS: usize = 8;

/// Entries that one shard holds (`netdev_max_backlog`).
const MAX_FRAMES: usize = 1000;

/// Entries that a shard takes while memory is scarce: acknowledgements, which make room, still get through.
const RESERVE: usize = 32;

/// Bytes that one shard holds.
const MAX_BYTES: usize = 32 << 20;

/// What waits in a shard, each with its bytes.
struct Queue<T> {
    entries: VecDeque<(T, usize)>,
    charge: Charge,
}

struct Shard<T> {
    queue: Mutex<Queue<T>, { rank::FRAMES }>,
    busy: AtomicBool,
    waiting: AtomicUsize,
}

/// The queues.
pub(crate) struct Backlog<T> {
    shards: [Shard<T>; SHARDS],
}

impl<T> Backlog<T> {
    /// Empty queues, whose bytes count for a memory.
    pub(crate) fn new(memory: &Arc<Memory>) -> Backlog<T> {
        let shard = |_| Shard {
            queue: Mutex::new(Queue { entries: VecDeque::new(), charge: Charge::of(memory) }),
            busy: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        };
        Backlog { shards: std::array::from_fn(shard) }
    }

    /// Adds an entry of a flow; false when the shard is full.
    pub(crate) fn push(&self, flow: u32, entry: T, size: usize) -> bool {
        let shard = &self.shards[flow as usize % SHARDS];
        let mut queue = shard.queue.lock();
        let bytes = queue.charge.bytes() + size;
        let most = if queue.charge.is_scarce() { RESERVE } else { MAX_FRAMES };
        if queue.entries.len() >= most || bytes > MAX_BYTES {
            return false;
        }
        queue.charge.set(bytes);
        queue.entries.push_back((entry, size));
        shard.waiting.fetch_add(1, Ordering::Release);
        true
    }

    /// Processes everything, also what the processing adds, but no more than `left` entries, which it counts down.
    pub(crate) fn run(&self, left: &mut usize, mut process: impl FnMut(T)) {
        while self.shards.iter().any(|shard| shard.run(&mut process, left)) && *left > 0 {}
    }

    /// Whether entries wait.
    pub(crate) fn waits(&self) -> bool {
        self.shards.iter().any(|shard| shard.waiting.load(Ordering::Acquire) > 0)
    }
}

impl<T> Shard<T> {
    /// Processes the queue unless another thread does; true when something was processed.
    fn run(&self, process: &mut impl FnMut(T), left: &mut usize) -> bool {
        let mut worked = false;
        // An entry that comes after the last look but before `busy` is cleared is seen by the next turn.
        while *left > 0 && self.waiting.load(Ordering::Acquire) > 0 {
            if self.busy.swap(true, Ordering::AcqRel) {
                return worked;
            }
            while *left > 0
                && let Some(entry) = self.pop()
            {
                *left -= 1;
                process(entry);
                worked = true;
            }
            self.busy.store(false, Ordering::Release);
        }
        worked
    }

    fn pop(&self) -> Option<T> {
        let mut queue = self.queue.lock();
        let (entry, size) = queue.entries.pop_front()?;
        let bytes = queue.charge.bytes().saturating_sub(size);
        queue.charge.set(bytes);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(entry)
    }
}
