//! Bytes in order in counted blocks: the storage of TCP's queues.
//!
//! A block that came with a packet, or from a sender of the same stack, is kept as it is, and a reader takes it as it is. Small
//! pieces are copied behind each other. A block is kept only if its bytes fill half of it, so the memory of a chain is at most
//! about twice its bytes, and the rest of its first and its last block.

use crate::buf::{Buf, Pool};
use crate::memory::{Charge, Memory};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that a chain may have though memory is scarce.
const LEAST: usize = 4096;
/// Bytes of the largest block.
const LARGEST: usize = 65_536;
/// A block that stays with an empty chain.
const SMALL: usize = 2048;
/// Places for blocks that an empty chain keeps.
const IDLE: usize = 256;

/// Blocks that a reader takes at once.
pub type Blocks = SmallVec<[Buf; 4]>;

/// Bytes that come in, and the block that holds them, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    bytes: &'a [u8],
    /// The block, and where in it the bytes begin.
    block: Option<(&'a Buf, usize)>,
}

impl<'a> Span<'a> {
    /// The bytes of a block from `from` on.
    pub(crate) fn of(block: &'a Buf, from: usize) -> Span<'a> {
        Span { bytes: block.get(from..).unwrap_or_default(), block: Some((block, from)) }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// True without bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes `from..to`; `None` when they are not there.
    pub(crate) fn part(&self, from: usize, to: usize) -> Option<Span<'a>> {
        let bytes = self.bytes.get(from..to)?;
        Some(Span { bytes, block: self.block.map(|(block, start)| (block, start + from)) })
    }
}

impl<'a> From<&'a [u8]> for Span<'a> {
    fn from(bytes: &'a [u8]) -> Span<'a> {
        Span { bytes, block: None }
    }
}

/// Bytes in order; see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    blocks: VecDeque<Buf>,
    len: usize,
    charge: Charge,
    pool: Pool,
}

impl Chain {
    /// An empty one with blocks of a pool, which count in a stack's memory.
    pub(crate) fn of(memory: &Arc<Memory>, pool: &Pool) -> Chain {
        Chain { charge: Charge::of(memory), pool: pool.clone(), ..Chain::default() }
    }

    /// How much of `limit` bytes the chain may hold now: less while memory is scarce.
    pub(crate) fn bounded(&self, limit: usize) -> usize {
        if self.charge.is_scarce() { limit.min(self.len.max(LEAST)) } else { limit }
    }

    /// Bytes in the chain.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// True when no byte is in the chain.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the chain counts for.
    pub(crate) fn charge(&self) -> &Charge {
        &self.charge
    }

    /// Memory that the blocks hold.
    #[cfg(test)]
    pub(crate) fn storage(&self) -> usize {
        self.charge.bytes()
    }

    /// Appends a copy of bytes.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        if let Some(last) = self.blocks.back_mut() {
            let tail = last.tail();
            let n = tail.len().min(bytes.len());
            tail[..n].copy_from_slice(&bytes[..n]);
            last.grow(n);
            bytes = &bytes[n..];
        }
        while !bytes.is_empty() {
            let n = bytes.len().min(LARGEST);
            // The longer the chain, the larger its blocks: so there are few.
            let mut block = self.pool.get(n.max(self.len - bytes.len()).min(LARGEST));
            block.extend(&bytes[..n]);
            self.add(block);
            bytes = &bytes[n..];
        }
    }

    /// Appends bytes: their block itself, if that pays.
    pub(crate) fn push_span(&mut self, span: Span<'_>) {
        let whole = span.block.filter(|(block, _)| 2 * span.len() >= block.truesize());
        match whole {
            Some((block, start)) => {
                self.len += span.len();
                self.add(block.slice(start, start + span.len()));
            }
            None => self.push(span.bytes),
        }
    }

    fn add(&mut self, block: Buf) {
        if self.blocks.back().is_some_and(|last| last.is_empty()) {
            self.blocks.pop_back();
            self.charge.set(self.blocks.iter().map(Buf::truesize).sum());
        }
        self.charge.set(self.charge.bytes() + block.truesize());
        self.blocks.push_back(block);
    }

    /// Puts blocks that were taken back in front.
    pub(crate) fn put_back(&mut self, blocks: Blocks) {
        for block in blocks.into_iter().rev().filter(|block| !block.is_empty()) {
            self.len += block.len();
            self.charge.set(self.charge.bytes() + block.truesize());
            self.blocks.push_front(block);
        }
    }

    /// All bytes, for a checkpoint.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.blocks.iter().fold(Vec::with_capacity(self.len), |mut all, block| {
            all.extend_from_slice(block);
            all
        })
    }

    /// The bytes `from..from + n` with the blocks that hold them.
    pub(crate) fn peek(&self, from: usize, n: usize) -> Blocks {
        let mut out = Blocks::new();
        let (first, mut skip) = self.place(from);
        let mut left = n;
        for block in self.blocks.range(first..) {
            if left == 0 {
                break;
            }
            let start = skip.min(block.len());
            skip -= start;
            let part = block.slice(start, start.saturating_add(left));
            left -= part.len();
            if !part.is_empty() {
                out.push(part);
            }
        }
        out
    }

    /// The block that holds byte `from`, and how many bytes of it are before that one. The search begins at the nearer end.
    fn place(&self, from: usize) -> (usize, usize) {
        if from <= self.len / 2 {
            let mut before = 0;
            for (n, block) in self.blocks.iter().enumerate() {
                if from - before < block.len() {
                    return (n, from - before);
                }
                before += block.len();
            }
            return (self.blocks.len(), 0);
        }
        let mut end = self.len;
        for (n, block) in self.blocks.iter().enumerate().rev() {
            if from >= end {
                return (n + 1, 0);
            }
            end -= block.len();
            if from >= end {
                return (n, from - end);
            }
        }
        (0, 0)
    }

    /// Copies the bytes from `from` on into `out`; returns how many.
    pub(crate) fn copy_to(&self, from: usize, out: &mut [u8]) -> usize {
        let (first, mut skip) = self.place(from);
        let mut done = 0;
        for block in self.blocks.range(first..) {
            if done == out.len() {
                break;
            }
            let bytes = &block[skip.min(block.len())..];
            skip -= block.len() - bytes.len();
            let n = bytes.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&bytes[..n]);
            done += n;
        }
        done
    }

    /// Drops up to `n` bytes in front.
    pub(crate) fn consume(&mut self, n: usize) {
        let mut left = n.min(self.len);
        self.len -= left;
        while left > 0 {
            let last = self.blocks.len() == 1;
            let Some(first) = self.blocks.front_mut() else { break };
            if left < first.len() {
                return first.trim_front(left);
            }
            left -= first.len();
            // A small block stays for the next bytes.
            if last && first.truesize() <= SMALL && first.reset() {
                break;
            }
            self.charge.set(self.charge.bytes().saturating_sub(first.truesize()));
            self.blocks.pop_front();
        }
        if self.blocks.is_empty() && self.blocks.capacity() > IDLE {
            self.blocks.shrink_to(IDLE);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        (self.blocks, self.len) = (VecDeque::new(), 0);
        self.charge.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn behaves_like_a_deque() {
        let (pool, memory) = (Pool::new(), Arc::<Memory>::default());
        let (mut chain, mut model, mut random) =
            (Chain::of(&memory, &pool), VecDeque::<u8>::new(), Random::new(7));
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.below(3000)).map(|_| random.next() as u8).collect();
            if model.len() < 40_000 {
                let block = pool.copy(&bytes);
                let from = random.below(1 + bytes.len() as u64) as usize;
                let span = Span::of(&block, from);
                if random.chance(50) {
                    chain.push_span(span)
                } else {
                    chain.push(span.bytes())
                }
                model.extend(span.bytes());
            }
            let far = if random.chance(50) { 300 } else { 2 + chain.len() as u64 };
            let from = random.below(far) as usize;
            let n = random.below(3000) as usize;
            let mut out = vec![0; n];
            let got = chain.copy_to(from, &mut out);
            assert!(model.iter().skip(from).take(n).eq(&out[..got]));
            let blocks = chain.peek(from, n);
            assert!(model.iter().skip(from).take(n).eq(blocks.iter().flat_map(|block| block.iter())));
            if random.chance(20) {
                let blocks = chain.peek(0, n);
                chain.consume(n);
                chain.put_back(blocks);
            }
            chain.consume(n);
            model.drain(..n.min(model.len()));
            assert_eq!(chain.len(), model.len());
            assert!(chain.storage() <= 2 * chain.len() + 140_000 && memory.used() == chain.storage());
        }
        assert!(model.iter().eq(chain.image().iter()));
        chain.consume(usize::MAX);
        assert!(chain.is_empty() && chain.storage() <= SMALL);
        chain.clear();
        assert_eq!((chain.len(), memory.used()), (0, 0));
    }

    #[test]
    fn small_pieces_share_blocks_and_large_ones_are_kept() {
        let (pool, memory) = (Pool::new(), Arc::<Memory>::default());
        let mut chain = Chain::of(&memory, &pool);
        (0..1000).for_each(|_| chain.push(&[1]));
        assert_eq!(chain.storage(), 2048);
        let segment = pool.copy(&[2; 1500]);
        chain.push_span(Span::of(&segment, 52));
        assert_eq!(chain.storage(), 4096);
        // What a reader has taken is not written to.
        let taken = chain.peek(1000, 1448);
        chain.push(&[3; 10]);
        assert_eq!((taken[0].len(), chain.len()), (1448, 2458));
        // While memory is scarce a chain does not grow, but has some room.
        memory.set_limit(1);
        assert_eq!(chain.bounded(9000), 4096);
    }
}
