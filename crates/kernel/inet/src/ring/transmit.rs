//! Rings of frames to send (PACKET_TX_RING): slots that the program fills, and marks to be sent.

use super::{Memory, Shape, V1, V3, header};
use abi::{Errno, Result};

/// TP_STATUS_AVAILABLE, TP_STATUS_SEND_REQUEST, TP_STATUS_SENDING and TP_STATUS_WRONG_FORMAT.
const AVAILABLE: u32 = 0;
const REQUESTED: u32 = 1;
const SENDING: u32 = 2;
const WRONG: u32 = 4;

/// A ring.
pub(crate) struct Transmit {
    shape: Shape,
    version: i32,
    memory: Option<Memory>,
    /// The slot that is sent next.
    head: usize,
}

impl Transmit {
    pub(super) fn new(shape: Shape, version: i32) -> Transmit {
        Transmit { shape, version, memory: None, head: 0 }
    }

    pub(super) fn size(&self) -> u64 {
        self.shape.size()
    }

    pub(super) fn place(&mut self, memory: Memory) {
        self.memory = Some(memory);
        self.head = 0;
    }

    /// Slots.
    pub(crate) fn count(&self) -> usize {
        self.shape.frames
    }

    fn status_at(&self, slot: usize) -> u64 {
        self.shape.offset(slot) + if self.version == V3 { 20 } else { 0 }
    }

    /// The next slot that is to be sent, and its frame. `offset` says that the slot tells where the frame begins, of a socket with link
    /// headers or without.
    pub(crate) fn next(&self, offset: Option<bool>) -> Option<(usize, Result<Vec<u8>>)> {
        let memory = self.memory.as_ref()?;
        if memory.word(self.status_at(self.head))? != REQUESTED {
            return None;
        }
        Some((self.head, self.frame(memory, self.shape.offset(self.head), offset)))
    }

    fn frame(&self, memory: &Memory, at: u64, offset: Option<bool>) -> Result<Vec<u8>> {
        let word = |place: u64| memory.word(at + place).ok_or(Errno::EFAULT);
        let (len, places) = match self.version {
            V1 => (word(8)?, word(16)?),
            V3 => (word(16)?, word(24)?),
            _ => (word(4)?, word(12)?),
        };
        // Frames of several sizes are not there on Linux either.
        if self.version == V3 && word(0)? != 0 {
            return Err(Errno::EINVAL);
        }
        let (start, len) = (header(self.version).unwrap_or(0), len as usize);
        if len > self.shape.frame - start.min(self.shape.frame) {
            return Err(Errno::EMSGSIZE);
        }
        let start = match offset {
            None => start,
            Some(linked) => {
                let told = if linked { places & 0xffff } else { places >> 16 } as usize;
                if told < start || told > self.shape.frame - len {
                    return Err(Errno::EINVAL);
                }
                told
            }
        };
        memory.read(at + start as u64, len)
    }

    fn mark(&mut self, slot: usize, status: u32) {
        let at = self.status_at(slot);
        // Another ring may have taken the place of the slot's.
        if slot < self.shape.frames
            && let Some(memory) = &self.memory
            && let Err(errno) = memory.write(at, &status.to_ne_bytes())
        {
            log::debug!("ring of a packet socket: {errno:?}");
        }
    }

    /// Takes the slot: the frame is on its way.
    pub(crate) fn begin(&mut self, slot: usize) {
        self.mark(slot, SENDING);
        self.head = (slot + 1) % self.shape.frames;
    }

    /// The slot is the program's again.
    pub(crate) fn end(&mut self, slot: usize) {
        self.mark(slot, AVAILABLE);
    }

    /// The frame cannot be sent. The slot stays the next one.
    pub(crate) fn refuse(&mut self, slot: usize) {
        self.mark(slot, WRONG);
        self.head = slot % self.shape.frames;
    }
}
