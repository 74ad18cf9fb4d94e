//! What the queues of a stack hold together, and its bound. Linux's `tcp_mem` and `udp_mem` are for the same. The stacks of one
//! kernel share it, a bound on the number of their interfaces, and the order of those that stand upon each other.
//!
//! A queue asks before it grows: while memory is scarce it keeps what it has, so each connection still moves, slowly. The bound is
//! passed by one operation's bytes for each thread at most. No lock.

use crate::buf::Pool;
use crate::nest::Nest;
use crate::spare::Spares;
use abi::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The bytes of all queues.
#[derive(Debug)]
pub struct Memory {
    used: AtomicUsize,
    limit: AtomicUsize,
    links: AtomicUsize,
    spares: Spares,
    pool: Pool,
    /// Interfaces that there have been.
    made: AtomicU64,
    pub(crate) nest: Arc<Nest>,
}

/// Storage kept for later takes at most one part in so many of what the queues may hold.
const SPARE_SHARE: usize = 4;

/// Interfaces that all stacks which share a memory may have together, loopback interfaces aside.
pub const MAX_LINKS: usize = 16_384;

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            links: AtomicUsize::new(0),
            spares: Spares::default(),
            pool: Pool::new(),
            made: AtomicU64::new(0),
            nest: Arc::default(),
        }
    }
}

impl Memory {
    /// Bytes that the queues hold, and those that are kept for them.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) + self.spares.bytes()
    }

    /// Sets the bound in bytes; there is none at first.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Interfaces that there are.
    pub fn links(&self) -> usize {
        self.links.load(Ordering::Relaxed)
    }

    /// Counts one interface more; `ENFILE` when there are too many.
    pub(crate) fn link(self: &Arc<Self>) -> Result<LinkSlot, Errno> {
        let one_more = |links: usize| (links < MAX_LINKS).then_some(links + 1);
        let counted = self.links.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let id = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        counted.map(|_| LinkSlot { memory: self.clone(), id }).map_err(|_| Errno::ENFILE)
    }

    /// True while no queue may grow. What is kept for later goes first.
    pub(crate) fn is_scarce(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        if self.used() >= limit && self.spares.bytes() > 0 {
            self.spares.clear();
        }
        self.used() >= limit
    }

    /// Blocks of all stacks.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Storage that queues have given back.
    pub(crate) fn spares(&self) -> &Spares {
        &self.spares
    }
}

/// One interface's place among those of all stacks that share a memory; it is given back with the interface.
#[derive(Debug)]
pub(crate) struct LinkSlot {
    memory: Arc<Memory>,
    /// A number that no other slot has had.
    pub(crate) id: u64,
}

impl Drop for LinkSlot {
    fn drop(&mut self) {
        self.memory.links.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One queue's part of a stack's memory; it is given back with the queue.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    memory: Option<Arc<Memory>>,
    bytes: usize,
}

impl Charge {
    /// The queue belongs to this stack from now on.
    pub fn of(memory: &Arc<Memory>) -> Charge {
        Charge { memory: Some(memory.clone()), bytes: 0 }
    }

    /// The queue holds so many bytes now.
    pub fn set(&mut self, bytes: usize) {
        if let Some(memory) = &self.memory {
            memory.used.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// The queue belongs to the same stack as another from now on.
    pub fn join(&mut self, other: &Charge) {
        let same = match (&self.memory, &other.memory) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        if !same {
            let bytes = self.bytes;
            self.set(0);
            self.memory.clone_from(&other.memory);
            self.set(bytes);
        }
    }

    /// Storage of `size` bytes that another queue has given back; its contents are any.
    pub fn take_spare(&self, size: usize) -> Option<Vec<u8>> {
        self.memory.as_ref()?.spares.take(size)
    }

    /// Keeps storage for other queues.
    pub fn keep_spare(&self, storage: Vec<u8>) {
        if let Some(memory) = &self.memory {
            memory.spares.keep(storage, memory.limit.load(Ordering::Relaxed) / SPARE_SHARE);
        }
    }

    /// Bytes that the queue holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True while the queue must not grow.
    pub fn is_scarce(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_scarce())
    }
}

impl Clone for Charge {
    fn clone(&self) -> Charge {
        let mut new = Charge { memory: self.memory.clone(), bytes: 0 };
        new.set(self.bytes);
        new
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_queues_hold_is_counted_until_they_go() {
        let memory = Arc::new(Memory::default());
        memory.set_limit(100);
        let (mut a, mut b) = (Charge::of(&memory), Charge::of(&memory));
        a.set(60);
        b.set(39);
        assert!(!a.is_scarce());
        let c = b.clone();
        assert_eq!((memory.used(), a.is_scarce()), (138, true));
        a.set(10);
        drop((b, c));
        assert_eq!(memory.used(), 10);
        let other = Arc::new(Memory::default());
        a.join(&Charge::of(&other));
        assert_eq!((memory.used(), other.used()), (0, 10));
        drop(a);
        assert_eq!(other.used(), 0);
    }
}
