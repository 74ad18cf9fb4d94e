//! Rings of packet sockets (packet(7), PACKET_RX_RING and PACKET_TX_RING): frames in memory that the program maps. All three
//! versions of TPACKET are there.
//!
//! The memory is a memfd, the receive ring first. Frames that arrive wait in the socket's own queue, which is bounded; poll(2) moves
//! them into the ring as far as the program has given slots or blocks back. The program may write anything into the memory: only the
//! status words and the lengths of frames to send are read, and whatever they say leads to no more than a lost frame.

mod receive;
mod transmit;

pub(crate) use receive::{Arrived, Receive};
pub(crate) use transmit::Transmit;

use abi::{Errno, Result};
use hostsys::fs::{pread_full, pwrite_full};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfs::{MapRequest, Mapping};

/// TPACKET_V1, TPACKET_V2 and TPACKET_V3.
const V1: i32 = 0;
pub(crate) const V2: i32 = 1;
pub(crate) const V3: i32 = 2;
/// sizeof(struct sockaddr_ll).
const ADDRESS: usize = 20;
/// TPACKET_ALIGNMENT.
const ALIGN: usize = 16;
const PAGE: usize = 4096;
/// The largest memory.
const MAX: u64 = 64 << 20;

/// The length of a frame's header (PACKET_HDRLEN).
pub(crate) fn header(version: i32) -> Option<usize> {
    match version {
        V1 | V2 => Some(32),
        V3 => Some(48),
        _ => None,
    }
}

/// Sizes and counts of the blocks and frames of a ring.
#[derive(Clone, Copy, Debug)]
struct Shape {
    block: usize,
    blocks: usize,
    frame: usize,
    frames: usize,
}

impl Shape {
    /// Where a slot begins. Slots do not cross the ends of blocks.
    fn offset(&self, slot: usize) -> u64 {
        let per_block = self.block / self.frame;
        (slot / per_block * self.block + slot % per_block * self.frame) as u64
    }

    fn size(&self) -> u64 {
        (self.block as u64).saturating_mul(self.blocks as u64)
    }
}

/// The part of the memory that is a ring's.
struct Memory {
    fd: Arc<OwnedFd>,
    start: u64,
}

impl Memory {
    fn word(&self, at: u64) -> Option<u32> {
        let mut word = [0; 4];
        let whole = pread_full(&*self.fd, &mut word, self.start + at) == Ok(4);
        whole.then_some(u32::from_ne_bytes(word))
    }

    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = pread_full(&*self.fd, &mut bytes, self.start + at)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        pwrite_full(&*self.fd, bytes, self.start + at)?;
        Ok(())
    }
}

/// What the options say of rings, and the rings.
#[derive(Default)]
pub(crate) struct Rings {
    /// PACKET_VERSION.
    pub(crate) version: i32,
    /// PACKET_RESERVE.
    pub(crate) reserve: usize,
    /// PACKET_LOSS: a frame that cannot be sent is passed over.
    pub(crate) loss: bool,
    /// PACKET_TX_HAS_OFF.
    pub(crate) has_offset: bool,
    /// Bytes of a header of virtio-net before each frame (PACKET_VNET_HDR).
    pub(crate) vnet: usize,
    pub(crate) receive: Option<Receive>,
    pub(crate) transmit: Option<Transmit>,
    memory: Option<Arc<OwnedFd>>,
}

impl Rings {
    /// A ring is there, so that most options are fixed.
    pub(crate) fn any(&self) -> bool {
        self.receive.is_some() || self.transmit.is_some()
    }

    /// PACKET_RX_RING and PACKET_TX_RING: a `struct tpacket_req` or `tpacket_req3`. No block takes the ring away.
    pub(crate) fn set(&mut self, sends: bool, value: &[u8]) -> Result<()> {
        let len = if self.version == V3 { 28 } else { 16 };
        let value = value.get(..len).ok_or(Errno::EINVAL)?;
        let word = |n: usize| {
            let bytes = value.get(n * 4..n * 4 + 4).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes) as usize)
        };
        let shape = Shape { block: word(0), blocks: word(1), frame: word(2), frames: word(3) };
        let (private, extras) = (word(5), word(4) | word(5) | word(6));
        if shape.blocks == 0 {
            if shape.frames != 0 {
                return Err(Errno::EINVAL);
            }
            if sends {
                self.transmit = None
            } else {
                self.receive = None
            }
            return self.place();
        }
        if if sends { self.transmit.is_some() } else { self.receive.is_some() } {
            return Err(Errno::EBUSY);
        }
        let least = header(self.version).unwrap_or(0) + ADDRESS + self.reserve;
        self.check(&shape, least, private)?;
        let other = if sends {
            self.receive.as_ref().map(Receive::size)
        } else {
            self.transmit.as_ref().map(Transmit::size)
        };
        if shape.size() + other.unwrap_or(0) > MAX {
            return Err(Errno::ENOMEM);
        }
        match (sends, self.version) {
            (true, V3) if extras != 0 => return Err(Errno::EINVAL),
            (true, version) => self.transmit = Some(Transmit::new(shape, version)),
            (false, V3) => self.receive = Some(Receive::blocks(shape, private)),
            (false, version) => self.receive = Some(Receive::slots(shape, version)),
        }
        let placed = self.place();
        if placed.is_err() {
            // The other one keeps its memory.
            if sends { self.transmit = None } else { self.receive = None }
        }
        placed
    }

    fn check(&self, shape: &Shape, least: usize, private: usize) -> Result<()> {
        let whole = shape.block != 0 && shape.block <= MAX as usize && shape.block.is_multiple_of(PAGE);
        let holds = self.version != V3 || shape.block >= receive::first_frame(private) + least;
        if !whole
            || !holds
            || shape.frame < least
            || !shape.frame.is_multiple_of(ALIGN)
            || shape.frame > shape.block
        {
            return Err(Errno::EINVAL);
        }
        let frames = (shape.block / shape.frame).checked_mul(shape.blocks);
        if frames == Some(shape.frames) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Makes the memory of the rings that there are. They begin empty.
    fn place(&mut self) -> Result<()> {
        let received = self.receive.as_ref().map_or(0, Receive::size);
        let size = received + self.transmit.as_ref().map_or(0, Transmit::size);
        if size == 0 {
            self.memory = None;
            return Ok(());
        }
        let fd = Arc::new(hostsys::memfd::create(c"packets", size, false)?);
        if let Some(receive) = &mut self.receive {
            receive.place(Memory { fd: fd.clone(), start: 0 });
        }
        if let Some(transmit) = &mut self.transmit {
            transmit.place(Memory { fd: fd.clone(), start: received });
        }
        self.memory = Some(fd);
        Ok(())
    }

    /// mmap(2): all of it.
    pub(crate) fn map(&self, request: &MapRequest) -> Result<Mapping> {
        let memory = self.memory.as_ref().ok_or(Errno::EINVAL)?;
        let all =
            self.receive.as_ref().map_or(0, Receive::size) + self.transmit.as_ref().map_or(0, Transmit::size);
        if !request.shared || request.offset != 0 || request.len != all {
            return Err(Errno::EINVAL);
        }
        Ok(Mapping::Host { fd: memory.clone(), offset: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn sizes_are_checked() {
        let errno = |words: [u32; 4]| Rings::default().set(false, &request(&words)).unwrap_err();
        assert_eq!(errno([4096, 1, 2048, 3]), Errno::EINVAL);
        assert_eq!(errno([4095, 1, 2048, 2]), Errno::EINVAL);
        assert_eq!(errno([4096, 1, 40, 102]), Errno::EINVAL);
        assert_eq!(errno([4096, 1, 8192, 0]), Errno::EINVAL);
        assert_eq!(errno([1 << 20, 1 << 10, 1 << 20, 1 << 10]), Errno::ENOMEM);
        assert_eq!(errno([0, 0, 0, 1]), Errno::EINVAL);
        Rings::default().set(false, &request(&[0; 4])).unwrap();
        let mut rings = Rings { reserve: 4, ..Rings::default() };
        rings.set(false, &request(&[4096, 2, 2048, 4])).unwrap();
        assert_eq!(rings.set(false, &request(&[4096, 2, 2048, 4])), Err(Errno::EBUSY));
        rings.set(true, &request(&[4096, 2, 2048, 4])).unwrap();
        rings.set(false, &request(&[0; 4])).unwrap();
        assert!(rings.receive.is_none() && rings.any());
    }

    #[test]
    fn blocks_need_room_for_what_is_private() {
        let v3 = || Rings { version: V3, ..Rings::default() };
        let set = |sends, words: &[u32]| v3().set(sends, &request(words));
        assert_eq!(set(false, &[4096, 1, 2048, 2]), Err(Errno::EINVAL));
        assert_eq!(set(false, &[4096, 1, 2048, 2, 10, 4000, 0]), Err(Errno::EINVAL));
        set(false, &[4096, 1, 2048, 2, 10, 3900, 0]).unwrap();
        assert_eq!(set(true, &[4096, 1, 2048, 2, 10, 0, 0]), Err(Errno::EINVAL));
        set(true, &[4096, 1, 2048, 2, 0, 0, 0]).unwrap();
    }
}
