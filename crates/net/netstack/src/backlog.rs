//! Frames that stay inside the stack: loopback.
//!
//! Sending pushes; whoever finishes an operation afterwards processes what is there. One thread at a time works on a shard, and a flow
//! stays in its shard, so its order is kept. Nothing else is locked while a frame is processed.

use crate::device::Frame;
use crate::iface::Iface;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SHARDS: usize = 8;

/// Frames that one shard holds (`netdev_max_backlog`).
const MAX_FRAMES: usize = 1000;

/// Frames that one operation processes.
const MAX_TURN: usize = 50_000;

/// Bytes that one shard holds.
const MAX_BYTES: usize = 32 << 20;

/// A frame that arrives on an interface.
pub(crate) struct Arrival {
    pub(crate) iface: Arc<Iface>,
    pub(crate) frame: Frame,
}

#[derive(Default)]
struct Shard {
    queue: Mutex<(VecDeque<Arrival>, usize)>,
    busy: AtomicBool,
    waiting: AtomicUsize,
}

/// The queues.
#[derive(Default)]
pub(crate) struct Backlog {
    shards: [Shard; SHARDS],
}

impl Backlog {
    /// Adds a frame; false when the shard is full.
    pub(crate) fn push(&self, flow: u32, arrival: Arrival) -> bool {
        let shard = &self.shards[flow as usize % SHARDS];
        let mut queue = shard.queue.lock();
        let bytes = queue.1 + arrival.frame.buf.truesize();
        if queue.0.len() >= MAX_FRAMES || bytes > MAX_BYTES {
            return false;
        }
        queue.1 = bytes;
        queue.0.push_back(arrival);
        shard.waiting.fetch_add(1, Ordering::Release);
        true
    }

    /// Processes everything, also what the processing adds; a bound ends loops of bridges.
    pub(crate) fn run(&self, mut process: impl FnMut(Arrival)) {
        let mut left = MAX_TURN;
        while self.shards.iter().any(|shard| shard.run(&mut process, &mut left)) && left > 0 {}
    }
}

impl Shard {
    /// Processes the queue unless another thread does; true when something was processed.
    fn run(&self, process: &mut impl FnMut(Arrival), left: &mut usize) -> bool {
        let mut worked = false;
        // A frame that comes after the last look but before `busy` is cleared is seen by the next turn.
        while *left > 0 && self.waiting.load(Ordering::Acquire) > 0 {
            if self.busy.swap(true, Ordering::AcqRel) {
                return worked;
            }
            while *left > 0
                && let Some(arrival) = self.pop()
            {
                *left -= 1;
                process(arrival);
                worked = true;
            }
            self.busy.store(false, Ordering::Release);
        }
        worked
    }

    fn pop(&self) -> Option<Arrival> {
        let mut queue = self.queue.lock();
        let arrival = queue.0.pop_front()?;
        queue.1 = queue.1.saturating_sub(arrival.frame.buf.truesize());
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(arrival)
    }
}
