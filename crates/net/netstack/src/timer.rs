//! Timers: one entry for each object that has a deadline.
//!
//! Entries live in sharded heaps. A heap knows where each entry is, so changing a deadline allocates nothing and leaves no
//! stale entry behind. The lock of a shard is a leaf.

use ktime::Ktime;
use lock_order::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shards; unrelated connections rarely share one.
const SHARDS: usize = 16;

/// Names an entry of [`Timers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId {
    shard: u16,
    slot: u32,
}

struct Slot<T> {
    target: Option<T>,
    /// Position in the heap, if it is armed.
    place: Option<usize>,
}

struct Shard<T> {
    heap: Vec<(Ktime, u32)>,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

/// Deadlines of many objects; `T` names the object.
pub struct Timers<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    /// The earliest deadline of each shard, `u64::MAX` for none.
    earliest: [AtomicU64; SHARDS],
    next_shard: AtomicU64,
}

impl<T: Clone> Default for Timers<T> {
    fn default() -> Self {
        Timers::new()
    }
}

impl<T: Clone> Timers<T> {
    /// No entries.
    pub fn new() -> Timers<T> {
        Timers {
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard { heap: Vec::new(), slots: Vec::new(), free: Vec::new() })
            }),
            earliest: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            next_shard: AtomicU64::new(0),
        }
    }

    /// Adds an entry without a deadline.
    pub fn add(&self, target: T) -> TimerId {
        let index = (self.next_shard.fetch_add(1, Ordering::Relaxed) as usize) % SHARDS;
        let mut shard = self.shards[index].lock();
        let slot = shard.free.pop().unwrap_or_else(|| {
            shard.slots.push(Slot { target: None, place: None });
            u32::try_from(shard.slots.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(entry) = shard.slots.get_mut(slot as usize) {
            entry.target = Some(target);
        }
        TimerId { shard: index as u16, slot }
    }

    /// Removes an entry.
    pub fn remove(&self, id: TimerId) {
        let index = usize::from(id.shard) % SHARDS;
        let mut shard = self.shards[index].lock();
        shard.disarm(id.slot);
        if shard.slots.get_mut(id.slot as usize).and_then(|slot| slot.target.take()).is_some() {
            shard.free.push(id.slot);
        }
        self.publish(index, &shard);
    }

    /// Sets or clears an entry's deadline.
    pub fn arm(&self, id: TimerId, at: Option<Ktime>) {
        let index = usize::from(id.shard) % SHARDS;
        let mut shard = self.shards[index].lock();
        match at {
            Some(at) => shard.arm(id.slot, at),
            None => shard.disarm(id.slot),
        }
        self.publish(index, &shard);
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Ktime> {
        let nanos = self.earliest.iter().map(|e| e.load(Ordering::SeqCst)).min().unwrap_or(u64::MAX);
        (nanos != u64::MAX).then_some(Ktime::from_nanos(nanos))
    }

    /// Takes one entry with a deadline that has passed; it is no longer armed.
    pub fn pop_due(&self, now: Ktime) -> Option<T> {
        for (index, earliest) in self.earliest.iter().enumerate() {
            if earliest.load(Ordering::Acquire) > now.nanos() {
                continue;
            }
            let mut shard = self.shards[index].lock();
            let Some(&(at, slot)) = shard.heap.first() else { continue };
            if at > now {
                continue;
            }
            shard.disarm(slot);
            self.publish(index, &shard);
            if let Some(target) = shard.slots.get(slot as usize).and_then(|slot| slot.target.clone()) {
                return Some(target);
            }
        }
        None
    }

    fn publish(&self, index: usize, shard: &Shard<T>) {
        let at = shard.heap.first().map_or(u64::MAX, |(at, _)| at.nanos());
        self.earliest[index].store(at, Ordering::SeqCst);
    }
}

impl<T> Shard<T> {
    fn arm(&mut self, slot: u32, at: Ktime) {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        if entry.target.is_none() {
            return;
        }
        let place = entry.place.unwrap_or(self.heap.len());
        if place == self.heap.len() {
            self.heap.push((at, slot));
        }
        self.put(place, (at, slot));
        self.settle(place);
    }

    fn disarm(&mut self, slot: u32) {
        let Some(place) = self.slots.get_mut(slot as usize).and_then(|entry| entry.place.take()) else {
            return;
        };
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            self.put(place, last);
            self.settle(place);
        }
    }

    fn put(&mut self, place: usize, entry: (Ktime, u32)) {
        self.heap[place] = entry;
        if let Some(slot) = self.slots.get_mut(entry.1 as usize) {
            slot.place = Some(place);
        }
    }

    /// Moves the entry at `place` to where it belongs.
    fn settle(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 && self.heap[(place - 1) / 2].0 > entry.0 {
            self.put(place, self.heap[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        loop {
            let left = 2 * place + 1;
            let child = match (self.heap.get(left), self.heap.get(left + 1)) {
                (Some(a), Some(b)) if b.0 < a.0 => left + 1,
                (Some(_), _) => left,
                _ => break,
            };
            if self.heap[child].0 >= entry.0 {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn fires_in_order_whatever_was_changed() {
        let (timers, mut random) = (Timers::new(), Random::new(5));
        let mut model = vec![None; 200];
        let ids: Vec<_> = (0..200).map(|n| timers.add(n)).collect();
        for _ in 0..5000 {
            let n = random.below(200) as usize;
            model[n] = (!random.chance(20)).then(|| Ktime::from_nanos(random.below(1000)));
            timers.arm(ids[n], model[n]);
            assert_eq!(timers.next(), model.iter().flatten().min().copied());
        }
        for at in 0..1000 {
            while let Some(n) = timers.pop_due(Ktime::from_nanos(at)) {
                assert_eq!(model[n], Some(Ktime::from_nanos(at)));
                model[n] = None;
            }
        }
        assert!(model.iter().all(Option::is_none) && timers.next().is_none());
        ids.iter().for_each(|id| timers.remove(*id));
        timers.arm(ids[3], Some(Ktime::ZERO));
        assert_eq!(timers.pop_due(Ktime::ZERO), None);
    }
}
