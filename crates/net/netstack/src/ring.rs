//! A byte ring that grows: the storage of what comes early for a receive queue of TCP.

use crate::memory::{Charge, Memory};
use std::sync::Arc;

/// Bytes in order, with room to write ahead of the end.
///
/// The storage is a power of two, is made at the first byte and grows by doubling; the owner bounds it. Large storage that is given
/// back is kept for other rings of the stack, and a ring that grew before begins with that size when there is such storage. Bytes
/// may be written beyond the end (data that came out of order) and become part of the ring with [`Ring::commit`].
#[derive(Clone, Debug, Default)]
pub struct Ring {
    storage: Vec<u8>,
    head: usize,
    len: usize,
    charge: Charge,
    /// Bytes of the storage that was given back last.
    before: usize,
}

impl Ring {
    /// An empty one with storage that counts in a stack's memory.
    pub fn of(memory: &Arc<Memory>) -> Ring {
        Ring { charge: Charge::of(memory), ..Ring::default() }
    }

    /// Bytes in the ring.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of storage.
    #[cfg(test)]
    pub fn storage(&self) -> usize {
        self.storage.len()
    }

    /// Appends bytes.
    #[cfg(test)]
    pub fn push(&mut self, bytes: &[u8]) {
        self.write_ahead(0, bytes);
        self.len += bytes.len();
    }

    /// Writes bytes at `offset` beyond the end, without making them part of the ring.
    pub fn write_ahead(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let from = self.len + offset;
        self.make_room(from + bytes.len());
        let (at, size) = (self.place(from), self.storage.len());
        let first = bytes.len().min(size - at);
        self.storage[at..at + first].copy_from_slice(&bytes[..first]);
        self.storage[..bytes.len() - first].copy_from_slice(&bytes[first..]);
    }

    /// Makes `n` bytes that were written ahead part of the ring.
    pub fn commit(&mut self, n: usize) {
        self.len = (self.len + n).min(self.storage.len());
    }

    /// The bytes `from..from + n` in order, as two slices.
    pub fn peek(&self, from: usize, n: usize) -> [&[u8]; 2] {
        let from = from.min(self.len);
        let n = n.min(self.len - from);
        if n == 0 {
            return [&[], &[]];
        }
        let at = self.place(from);
        let first = n.min(self.storage.len() - at);
        [&self.storage[at..at + first], &self.storage[..n - first]]
    }

    /// The bytes of the ring and `ahead` bytes that were written beyond its end, for a checkpoint.
    pub(crate) fn image(&self, ahead: usize) -> Vec<u8> {
        let n = self.len.saturating_add(ahead).min(self.storage.len());
        if n == 0 {
            return Vec::new();
        }
        let at = self.place(0);
        let first = n.min(self.storage.len() - at);
        [&self.storage[at..at + first], &self.storage[..n - first]].concat()
    }

    /// Copies the bytes from `from` on into `out`; returns how many.
    #[cfg(test)]
    pub fn copy_to(&self, from: usize, out: &mut [u8]) -> usize {
        let [a, b] = self.peek(from, out.len());
        out[..a.len()].copy_from_slice(a);
        out[a.len()..a.len() + b.len()].copy_from_slice(b);
        a.len() + b.len()
    }

    /// Drops up to `n` bytes in front.
    pub fn consume(&mut self, n: usize) {
        let n = n.min(self.len);
        self.len -= n;
        if n > 0 {
            self.head = self.place(n);
        }
    }

    /// Gives the storage back when nothing is stored and nothing is written ahead.
    pub fn release(&mut self) {
        if self.len == 0 {
            self.before = self.storage.len();
            let storage = std::mem::take(&mut self.storage);
            self.clear();
            self.charge.keep_spare(storage);
        }
    }

    /// Drops all bytes and the storage.
    pub fn clear(&mut self) {
        (self.storage, self.head, self.len) = (Vec::new(), 0, 0);
        self.charge.set(0);
    }

    fn place(&self, offset: usize) -> usize {
        (self.head + offset) & (self.storage.len() - 1)
    }

    fn make_room(&mut self, need: usize) {
        if need <= self.storage.len() {
            return;
        }
        let size = need.next_power_of_two().max(1024);
        let again = Some(self.before).filter(|&before| before > size && self.storage.is_empty());
        let spare =
            again.and_then(|before| self.charge.take_spare(before)).or_else(|| self.charge.take_spare(size));
        let mut grown = spare.unwrap_or_else(|| vec![0; size]);
        // What was written ahead moves too: all the old storage, in order.
        let (tail, front) = self.storage.split_at(self.head);
        grown[..front.len()].copy_from_slice(front);
        grown[front.len()..front.len() + tail.len()].copy_from_slice(tail);
        self.charge.set(grown.len());
        let old = std::mem::replace(&mut self.storage, grown);
        self.head = 0;
        self.charge.keep_spare(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::VecDeque;

    #[test]
    fn large_storage_is_used_again() {
        let memory = Arc::<Memory>::default();
        let (mut ring, data) = (Ring::of(&memory), vec![1; 300_000]);
        ring.push(&data);
        assert_eq!(memory.used(), 524_288);
        ring.consume(data.len());
        ring.release();
        assert_eq!((ring.storage(), memory.used(), memory.spares().bytes()), (0, 524_288, 524_288));
        // Another ring does not take more than it needs; this one begins with what it had.
        let mut other = Ring::of(&memory);
        other.push(&data[..1000]);
        ring.push(&data[..1000]);
        assert_eq!((other.storage(), ring.storage(), memory.used()), (1024, 524_288, 525_312));
        assert_eq!(ring.peek(0, 2000), [&data[..1000], &[]]);
        // While memory is scarce nothing is kept.
        ring.consume(1000);
        ring.release();
        memory.set_limit(500_000);
        assert!(!memory.is_scarce());
        assert_eq!(memory.used(), 1024);
        drop((ring, other));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn behaves_like_a_deque() {
        let (mut ring, mut model, mut random) = (Ring::default(), VecDeque::<u8>::new(), Random::new(7));
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.next() as u8).collect();
            if model.len() < 4000 {
                let split = bytes.len() / 2;
                ring.write_ahead(split, &bytes[split..]);
                ring.write_ahead(0, &bytes[..split]);
                ring.commit(bytes.len());
                model.extend(&bytes);
            }
            let n = random.below(300) as usize;
            let mut out = vec![0; n];
            let got = ring.copy_to(0, &mut out);
            assert!(model.iter().take(n).eq(&out[..got]));
            ring.consume(n);
            model.drain(..n.min(model.len()));
            assert_eq!(ring.len(), model.len());
        }
        assert!(ring.storage() <= 8192);
    }
}
