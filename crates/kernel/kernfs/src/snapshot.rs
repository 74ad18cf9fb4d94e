//! The texts that open files hold.
//!
//! A text is made when it is read from its start, and kept for the reads that follow. All texts together have a limit:
//! the oldest go first, and are made again at the next read, as seq_file(5) does for every read. Locks: the list, then
//! a slot, a leaf.

use lock_order::{Mutex, rank};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Most bytes of all texts.
const MAX: usize = 32 << 20;

/// The texts of a file system.
#[derive(Default)]
pub struct Snapshots {
    bytes: Arc<AtomicUsize>,
    /// Slots in the order in which they were filled; one may stand there several times.
    order: Mutex<VecDeque<Weak<Slot>>, { rank::SNAPSHOTS }>,
}

/// An open file's text.
pub struct Slot {
    text: Mutex<Option<Arc<Vec<u8>>>>,
    bytes: Arc<AtomicUsize>,
}

impl Slot {
    /// The text, unless it had to go.
    pub fn get(&self) -> Option<Arc<Vec<u8>>> {
        self.text.lock().clone()
    }

    fn put(&self, new: Option<Arc<Vec<u8>>>) {
        let more = new.as_ref().map_or(0, |t| t.len());
        let old = std::mem::replace(&mut *self.text.lock(), new);
        self.bytes.fetch_add(more, Ordering::Relaxed);
        self.bytes.fetch_sub(old.map_or(0, |t| t.len()), Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.put(None);
    }
}

impl Snapshots {
    /// An empty slot.
    pub fn slot(&self) -> Arc<Slot> {
        Arc::new(Slot { text: Mutex::new(None), bytes: self.bytes.clone() })
    }

    /// Fills a slot, and empties others when there is too much.
    pub fn fill(&self, slot: &Arc<Slot>, text: Arc<Vec<u8>>) {
        let first = slot.get().is_none();
        slot.put(Some(text));
        let mut order = self.order.lock();
        if first {
            if order.len() == order.capacity() {
                order.retain(|w| w.upgrade().is_some_and(|s| s.get().is_some()));
            }
            order.push_back(Arc::downgrade(slot));
        }
        while self.bytes.load(Ordering::Relaxed) > MAX {
            let Some(oldest) = order.pop_front() else { break };
            if let Some(s) = oldest.upgrade() {
                s.put(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_texts_go() {
        let all = Snapshots::default();
        let slots: Vec<_> = (0..40).map(|_| all.slot()).collect();
        for s in &slots {
            all.fill(s, Arc::new(vec![0; 1 << 20]));
        }
        let there: Vec<bool> = slots.iter().map(|s| s.get().is_some()).collect();
        assert_eq!(there, (0..40).map(|i| i >= 8).collect::<Vec<_>>());
        all.fill(&slots[0], Arc::new(vec![0; 1]));
        assert!(slots[8].get().is_none() && slots[0].get().is_some());
        drop(slots);
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
        for _ in 0..100_000 {
            all.fill(&all.slot(), Arc::new(vec![0; 10]));
        }
        assert!(all.order.lock().len() < 1000);
    }
}
