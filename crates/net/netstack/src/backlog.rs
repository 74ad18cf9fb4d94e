//! Frames that stay inside: loopback, what another stack sends over a pair of interfaces, and what goes from one VLAN interface or
//! bridge down to the next.
//!
//! Sending pushes; whoever finishes an operation afterwards processes what is there, up to a number of frames. What is left then, as
//! a loop of bridges leaves, waits for the stack's timer. One thread at a time works on a shard, and a flow stays in its shard, so its
//! order is kept. Nothing else is locked while a frame is processed. The bytes count for the stack's memory.

use crate::frame::Frame;
use crate::iface::Iface;
use crate::memory::{Charge, Memory};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SHARDS: usize = 8;

/// Frames that one shard holds (`netdev_max_backlog`).
const MAX_FRAMES: usize = 1000;

/// Frames that one operation processes, in all stacks that it comes to.
pub(crate) const TURN: usize = 8192;

/// Frames that a shard takes while memory is scarce: acknowledgements, which make room, still get through.
const RESERVE: usize = 32;

/// Bytes that one shard holds.
const MAX_BYTES: usize = 32 << 20;

/// What a frame waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It arrives on the interface.
    In,
    /// It leaves by the interface.
    Out,
}

/// A frame that waits at an interface.
pub(crate) struct Arrival {
    pub(crate) iface: Arc<Iface>,
    pub(crate) frame: Frame,
    pub(crate) way: Way,
}

/// What waits in a shard.
#[derive(Default)]
struct Queue {
    frames: VecDeque<Arrival>,
    charge: Charge,
}

#[derive(Default)]
struct Shard {
    queue: Mutex<Queue>,
    busy: AtomicBool,
    waiting: AtomicUsize,
}

/// The queues.
pub(crate) struct Backlog {
    shards: [Shard; SHARDS],
}

impl Backlog {
    /// Empty queues, whose bytes count for a memory.
    pub(crate) fn new(memory: &Arc<Memory>) -> Backlog {
        let queue = || Queue { charge: Charge::of(memory), ..Queue::default() };
        Backlog { shards: std::array::from_fn(|_| Shard { queue: Mutex::new(queue()), ..Shard::default() }) }
    }

    /// Adds a frame; false when the shard is full.
    pub(crate) fn push(&self, flow: u32, arrival: Arrival) -> bool {
        let shard = &self.shards[flow as usize % SHARDS];
        let mut queue = shard.queue.lock();
        let bytes = queue.charge.bytes() + arrival.frame.buf.truesize();
        let most = if queue.charge.is_scarce() { RESERVE } else { MAX_FRAMES };
        if queue.frames.len() >= most || bytes > MAX_BYTES {
            return false;
        }
        queue.charge.set(bytes);
        queue.frames.push_back(arrival);
        shard.waiting.fetch_add(1, Ordering::Release);
        true
    }

    /// Processes everything, also what the processing adds, but no more than `left` frames, which it counts down.
    pub(crate) fn run(&self, left: &mut usize, mut process: impl FnMut(Arrival)) {
        while self.shards.iter().any(|shard| shard.run(&mut process, left)) && *left > 0 {}
    }

    /// Whether frames wait.
    pub(crate) fn waits(&self) -> bool {
        self.shards.iter().any(|shard| shard.waiting.load(Ordering::Acquire) > 0)
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
        let arrival = queue.frames.pop_front()?;
        let bytes = queue.charge.bytes().saturating_sub(arrival.frame.buf.truesize());
        queue.charge.set(bytes);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(arrival)
    }
}
