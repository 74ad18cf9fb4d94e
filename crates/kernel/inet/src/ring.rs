//! PACKET_RX_RING: captured frames in memory that the program maps (packet(7), TPACKET_V2), as libpcap reads them.
//!
//! The ring is a memfd. Frames wait in the socket's own queue, which is bounded; poll(2) moves them into the ring as far as
//! the program has given slots back. The program may write anything into the ring: only the status words are read, and
//! whatever they say leads to no more than a lost frame.

use abi::{Errno, Result};
use hostsys::clock::gettime_ns;
use hostsys::fs::{pread_full, pwrite_full};
use netstack::packet::Captured;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use vfs::{MapRequest, Mapping};

/// TPACKET_V2, and the length of its header with the address behind it.
pub(crate) const V2: i32 = 1;
pub(crate) const HEADER: usize = 32;
const WITH_ADDRESS: usize = HEADER + 20;
/// TPACKET_ALIGNMENT.
const ALIGN: usize = 16;
const PAGE: usize = 4096;
/// TP_STATUS_KERNEL.
const KERNEL: u32 = 0;
/// The largest ring.
const MAX: usize = 64 << 20;
const SECOND: i64 = 1_000_000_000;

/// A ring.
pub(crate) struct Ring {
    memory: Arc<OwnedFd>,
    block: usize,
    frame: usize,
    frames: usize,
    /// The slot that is filled next.
    head: usize,
    /// PACKET_RESERVE.
    reserve: usize,
}

/// `struct tpacket_req`: sizes and counts of blocks and frames. No block takes the ring away.
pub(crate) fn parse(value: &[u8], reserve: usize) -> Result<Option<Ring>> {
    let request: &[u8; 16] = value.first_chunk().ok_or(Errno::EINVAL)?;
    let [block, blocks, frame, frames] = [0, 4, 8, 12].map(|at| {
        let word = [request[at], request[at + 1], request[at + 2], request[at + 3]];
        u32::from_ne_bytes(word) as usize
    });
    if blocks == 0 {
        return if frames == 0 { Ok(None) } else { Err(Errno::EINVAL) };
    }
    let whole = block != 0 && block <= MAX && block.is_multiple_of(PAGE);
    if !whole || frame < WITH_ADDRESS + reserve || !frame.is_multiple_of(ALIGN) || frame > block {
        return Err(Errno::EINVAL);
    }
    let total = block.checked_mul(blocks).ok_or(Errno::EINVAL)?;
    if (block / frame).checked_mul(blocks) != Some(frames) {
        return Err(Errno::EINVAL);
    }
    if total > MAX {
        return Err(Errno::ENOMEM);
    }
    let memory = Arc::new(hostsys::memfd::create(c"packets", total as u64, false)?);
    Ok(Some(Ring { memory, block, frame, frames, head: 0, reserve }))
}

impl Ring {
    fn offset(&self, slot: usize) -> u64 {
        let per_block = self.block / self.frame;
        (slot / per_block * self.block + slot % per_block * self.frame) as u64
    }

    fn status(&self, slot: usize) -> u32 {
        let mut word = [0; 4];
        match pread_full(&*self.memory, &mut word, self.offset(slot)) {
            Ok(4) => u32::from_ne_bytes(word),
            _ => u32::MAX,
        }
    }

    /// The next slot is the kernel's.
    pub(crate) fn has_room(&self) -> bool {
        self.status(self.head) == KERNEL
    }

    /// The program has frames that it has not given back.
    pub(crate) fn is_readable(&self) -> bool {
        let last = (self.head + self.frames - 1) % self.frames;
        !matches!(self.status(last), KERNEL | u32::MAX)
    }

    /// Puts a frame that arrived `elapsed` ago into the next slot. `link` is the length of its link header, `addr` a `struct sockaddr_ll`.
    pub(crate) fn put(
        &mut self,
        got: &Captured,
        elapsed: Duration,
        (link, cooked): (usize, bool),
        status: u32,
        addr: &[u8],
    ) {
        let net = if cooked { WITH_ADDRESS.next_multiple_of(ALIGN) + ALIGN } else { usize::MAX };
        let raw = (WITH_ADDRESS + link.max(ALIGN)).next_multiple_of(ALIGN);
        let net = net.min(raw) + self.reserve;
        let mac = if cooked { net } else { net - link };
        let len = got.data.len().min(self.frame.saturating_sub(mac));
        let at = self.offset(self.head);
        let time = gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0).saturating_sub(elapsed.as_nanos() as i64);
        let mut header = Vec::with_capacity(WITH_ADDRESS);
        for word in [KERNEL, got.full as u32, len as u32] {
            header.extend(word.to_ne_bytes());
        }
        for half in [mac as u16, net as u16] {
            header.extend(half.to_ne_bytes());
        }
        for word in [(time / SECOND) as u32, (time % SECOND) as u32, 0, 0] {
            header.extend(word.to_ne_bytes());
        }
        header.extend(addr);
        header.truncate(WITH_ADDRESS);
        let whole = pwrite_full(&*self.memory, &header, at)
            .and_then(|_| pwrite_full(&*self.memory, &got.data[..len], at + mac as u64))
            // The status comes last: then the slot is the program's.
            .and_then(|_| pwrite_full(&*self.memory, &status.to_ne_bytes(), at));
        match whole {
            Ok(_) => self.head = (self.head + 1) % self.frames,
            Err(errno) => log::debug!("ring of a packet socket: {errno:?}; a frame is lost"),
        }
    }

    /// mmap(2): all of it.
    pub(crate) fn map(&self, request: &MapRequest) -> Result<Mapping> {
        let all = (self.frames / (self.block / self.frame) * self.block) as u64;
        if !request.shared || request.offset != 0 || request.len != all {
            return Err(Errno::EINVAL);
        }
        Ok(Mapping::Host { fd: self.memory.clone(), offset: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: [u32; 4]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn sizes_are_checked() {
        let errno = |words| parse(&request(words), 0).map(|_| ()).unwrap_err();
        assert_eq!(errno([4096, 1, 2048, 3]), Errno::EINVAL);
        assert_eq!(errno([4095, 1, 2048, 2]), Errno::EINVAL);
        assert_eq!(errno([4096, 1, 40, 102]), Errno::EINVAL);
        assert_eq!(errno([4096, 1, 8192, 0]), Errno::EINVAL);
        assert_eq!(errno([1 << 20, 1 << 10, 1 << 20, 1 << 10]), Errno::ENOMEM);
        assert_eq!(errno([0, 0, 0, 1]), Errno::EINVAL);
        assert!(parse(&request([0; 4]), 0).unwrap().is_none());
        assert!(parse(&request([4096, 2, 2048, 4]), 4).unwrap().is_some());
    }
}
