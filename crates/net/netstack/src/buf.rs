//! Packet buffers: reference-counted, pooled, copied on write.
//!
//! A [`Buf`] is a range of a block. Headers go in front of the payload into the headroom, so a packet is built without moving
//! bytes. A clone shares the block; writing to a shared block copies it first. The last [`Buf`] of a block gives the block back
//! to its [`Pool`], up to a bound, so steady traffic allocates nothing.
//!
//! Checkpoint: a `Buf` is its bytes; blocks and pools are not kept.

use lock_order::Mutex;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Bytes kept free in front of a new buffer: Ethernet, IPv6 and the longest TCP header fit.
pub const HEADROOM: usize = 160;

/// Bytes of the blocks: the smallest takes an Ethernet packet with headroom, the largest the largest IP packet. Large ones have room
/// to choose where in a page the bytes begin.
const CLASSES: [usize; 5] = [2048, 4096 + 512, 16_384 + 512 + PAGE, 32_768 + 512 + PAGE, 65_536 + 512 + PAGE];
const PAGE: usize = 4096;
/// Blocks of these classes are large.
const LARGE: usize = 2;
/// Where in a page the bytes of a large block begin. The host copies with `rep movsb`, which takes five times as long on some
/// processors where the destination is less than 64 bytes ahead of the source in its page. Pages of packets and most buffers
/// of programs begin near the start of a page.
const PLACE: usize = PAGE / 2;

/// Free blocks that a pool keeps, by class: of the largest what a fast connection has under way.
const KEEP: [usize; 5] = [512, 64, 32, 32, 128];

/// Storage of one or more [`Buf`]s.
struct Block {
    bytes: Box<[u8]>,
    class: Option<usize>,
    home: Weak<Free>,
}

impl Block {
    /// Where the bytes begin, with a headroom, of which there are `need` together.
    fn start(&self, headroom: usize, need: usize) -> usize {
        if self.class.is_none_or(|class| class < LARGE) {
            return headroom;
        }
        let place = self.bytes.as_ptr().addr().wrapping_add(headroom) % PAGE;
        let shift = (PLACE + PAGE - place) % PAGE;
        // A headroom larger than the usual one may leave no room for that.
        if need + shift <= self.bytes.len() { headroom + shift } else { headroom }
    }
}

/// The free blocks of a class.
#[derive(Default)]
struct Shelf {
    blocks: Vec<Arc<Block>>,
    /// The fewest that there were since [`Pool::age`]: so many were not needed.
    fewest: usize,
}

/// The free blocks of a pool, one list per class.
#[derive(Default)]
struct Free {
    shelves: [Mutex<Shelf>; 5],
    /// Large blocks among them.
    large: AtomicUsize,
}

/// A source of buffers with a bounded stock of free ones. Large ones that nothing needs for a while are given back.
#[derive(Clone, Default)]
pub struct Pool(Arc<Free>);

impl Pool {
    /// An empty pool.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// An empty buffer with [`HEADROOM`] in front and room for `len` bytes.
    pub fn get(&self, len: usize) -> Buf {
        self.with_headroom(HEADROOM, len)
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.get(bytes.len());
        buf.extend(bytes);
        buf
    }

    /// Free blocks in stock, by size.
    pub fn stock(&self) -> [usize; 5] {
        self.0.shelves.each_ref().map(|shelf| shelf.lock().blocks.len())
    }

    /// True when large blocks are free.
    pub(crate) fn has_large(&self) -> bool {
        self.0.large.load(Ordering::Relaxed) > 0
    }

    /// Drops the large blocks that nothing has needed since the last call.
    pub(crate) fn age(&self) {
        for shelf in &self.0.shelves[LARGE..] {
            let mut shelf = shelf.lock();
            let n = shelf.fewest.min(shelf.blocks.len());
            let dropped: Vec<_> = shelf.blocks.drain(..n).collect();
            shelf.fewest = shelf.blocks.len();
            self.0.large.fetch_sub(dropped.len(), Ordering::Relaxed);
            // The host takes its time with the pages.
            drop(shelf);
        }
    }

    fn take(&self, class: usize) -> Option<Arc<Block>> {
        let mut shelf = self.0.shelves[class].lock();
        let block = shelf.blocks.pop()?;
        shelf.fewest = shelf.fewest.min(shelf.blocks.len());
        if class >= LARGE {
            self.0.large.fetch_sub(1, Ordering::Relaxed);
        }
        Some(block)
    }

    fn with_headroom(&self, headroom: usize, len: usize) -> Buf {
        let need = headroom.saturating_add(len);
        let class = CLASSES.iter().position(|&size| need <= size);
        let stocked = class.and_then(|class| self.take(class));
        let block = stocked.unwrap_or_else(|| {
            let size = class.map_or(need, |class| CLASSES[class]);
            Arc::new(Block { bytes: vec![0; size].into_boxed_slice(), class, home: Arc::downgrade(&self.0) })
        });
        let start = block.start(headroom, need);
        Buf { block: Some(block), start, end: start }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool{:?}", self.stock())
    }
}

/// A run of bytes with room in front and behind; see the module.
pub struct Buf {
    /// Always present until the drop.
    block: Option<Arc<Block>>,
    start: usize,
    end: usize,
}

impl Buf {
    /// Memory that the buffer's block holds.
    pub fn truesize(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes.len())
    }

    /// Appends bytes; the block is exchanged for a larger one when they do not fit.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.own(0, bytes.len());
        let (at, end) = (self.end, self.end + bytes.len());
        if let Some(room) = self.storage().and_then(|all| all.get_mut(at..end)) {
            room.copy_from_slice(bytes);
            self.end = end;
        }
    }

    /// Drops all bytes, so that the buffer has as much room as a new one; false when another one shares the block.
    pub fn reset(&mut self) -> bool {
        let Some(block) = self.block.as_mut().and_then(Arc::get_mut) else { return false };
        let start = block.start(HEADROOM, HEADROOM);
        (self.start, self.end) = (start, start);
        true
    }

    /// Room behind the bytes, for [`Buf::grow`]; none when another buffer shares the block. What is in it is left from before.
    pub fn tail(&mut self) -> &mut [u8] {
        let end = self.end;
        self.storage().and_then(|all| all.get_mut(end..)).unwrap_or_default()
    }

    /// Makes `n` bytes of the room behind part of the buffer.
    pub fn grow(&mut self, n: usize) {
        self.end = self.end.saturating_add(n).min(self.truesize());
    }

    /// Puts bytes in front.
    pub fn push_front(&mut self, bytes: &[u8]) {
        self.own(bytes.len(), 0);
        let (start, end) = (self.start.saturating_sub(bytes.len()), self.start);
        if let Some(room) = self.storage().and_then(|all| all.get_mut(start..end))
            && room.len() == bytes.len()
        {
            room.copy_from_slice(bytes);
            self.start = start;
        }
    }

    /// Drops up to `n` bytes in front.
    pub fn trim_front(&mut self, n: usize) {
        self.start = self.start.saturating_add(n).min(self.end);
    }

    /// Cuts the buffer to at most `n` bytes.
    pub fn truncate(&mut self, n: usize) {
        self.end = self.end.min(self.start.saturating_add(n));
    }

    /// The bytes, to write to; copied first when another buffer shares them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.own(0, 0);
        let range = self.start..self.end;
        self.storage().and_then(|all| all.get_mut(range)).unwrap_or_default()
    }

    /// A part of the buffer that shares its block.
    #[must_use]
    pub fn slice(&self, from: usize, to: usize) -> Buf {
        let mut part = self.clone();
        part.truncate(to);
        part.trim_front(from);
        part
    }

    /// Makes the block unshared, with `front` bytes of headroom and `back` of tailroom.
    fn own(&mut self, front: usize, back: usize) {
        let Some(block) = self.block.as_mut() else { return };
        let fits = self.start >= front && block.bytes.len() - self.end >= back;
        if fits && Arc::get_mut(block).is_some() {
            return;
        }
        let pool = Pool(block.home.upgrade().unwrap_or_default());
        let mut fresh = pool.with_headroom(HEADROOM.max(front), self.len() + back);
        let (start, end) = (fresh.start, fresh.start + self.len());
        if let Some(room) = fresh.storage().and_then(|all| all.get_mut(start..end)) {
            room.copy_from_slice(self);
        }
        fresh.end = end;
        *self = fresh;
    }

    fn storage(&mut self) -> Option<&mut [u8]> {
        self.block.as_mut().and_then(Arc::get_mut).map(|block| &mut block.bytes[..])
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        Buf { block: self.block.clone(), start: self.start, end: self.end }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.block.as_ref().and_then(|block| block.bytes.get(self.start..self.end)).unwrap_or_default()
    }
}

impl serde::Serialize for Buf {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self)
    }
}

/// The block belongs to no pool.
impl<'de> serde::Deserialize<'de> for Buf {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Buf, D::Error> {
        let bytes: Vec<u8> = crate::plain::bytes::deserialize(from)?;
        Ok(Pool::default().copy(&bytes))
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let Some(mut block) = self.block.take() else { return };
        let Some(owned) = Arc::get_mut(&mut block) else { return };
        let (Some(class), Some(home)) = (owned.class, owned.home.upgrade()) else { return };
        let mut shelf = home.shelves[class].lock();
        if shelf.blocks.len() < KEEP[class] {
            shelf.blocks.push(block);
            if class >= LARGE {
                home.large.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_in_front() {
        let pool = Pool::new();
        let mut buf = pool.copy(b"payload");
        buf.push_front(b"header ");
        assert_eq!(&*buf, b"header payload");
        buf.trim_front(7);
        buf.truncate(3);
        assert_eq!(&*buf, b"pay");
        buf.push_front(&[7; 400]);
        assert_eq!(buf.len(), 403);
    }

    #[test]
    fn clones_share_until_written() {
        let pool = Pool::new();
        let mut one = pool.copy(b"abc");
        let two = one.slice(1, 3);
        one.bytes_mut()[1] = b'x';
        assert_eq!((&*one, &*two), (&b"axc"[..], &b"bc"[..]));
    }

    #[test]
    fn blocks_come_back() {
        let pool = Pool::new();
        drop(pool.copy(b"abc"));
        drop(pool.copy(&[0; 9000]));
        assert_eq!(pool.stock(), [1, 0, 1, 0, 0]);
        let _one = pool.copy(b"abc");
        assert_eq!(pool.stock(), [0, 0, 1, 0, 0]);
        let many: Vec<_> = (0..KEEP[0] + 9).map(|_| pool.get(1)).collect();
        drop(many);
        assert_eq!(pool.stock()[0], KEEP[0]);
        // Large blocks go when nothing needs them.
        drop([pool.get(60_000), pool.get(60_000)]);
        pool.age();
        drop(pool.get(60_000));
        assert_eq!(pool.stock(), [KEEP[0], 0, 1, 0, 2]);
        pool.age();
        assert_eq!(pool.stock(), [KEEP[0], 0, 0, 0, 1]);
        pool.age();
        assert!(!pool.has_large());
    }
}
