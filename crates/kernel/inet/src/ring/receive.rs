//! Rings of frames that arrived: slots of TPACKET_V1 and V2, blocks of V3.

use super::{ADDRESS, ALIGN, Memory, Shape, V1, V3, header};
use abi::{Errno, Result};

/// TP_STATUS_KERNEL, TP_STATUS_USER and TP_STATUS_BLK_TMO.
const KERNEL: u32 = 0;
const USER: u32 = 1;
const TIMED_OUT: u32 = 1 << 5;
/// Bytes of `struct tpacket_block_desc`, and the place of its status.
const DESCRIPTOR: usize = 48;
const BLOCK_STATUS: u64 = 8;
/// Frames of a block begin at multiples of it.
const STEP: usize = 8;

/// Where the first frame of a block begins, behind the program's own bytes.
pub(super) fn first_frame(private: usize) -> usize {
    DESCRIPTOR + private.next_multiple_of(STEP)
}

/// A frame for the ring.
pub(crate) struct Arrived<'a> {
    /// From the link header on, if it has one and the program wants it.
    pub(crate) data: &'a [u8],
    /// Its length when nothing was cut.
    pub(crate) full: usize,
    /// Bytes of the link header; `None` for a socket without them.
    pub(crate) link: Option<usize>,
    /// The header of virtio-net, if the program wants it.
    pub(crate) vnet: &'a [u8],
    /// Seconds and nanoseconds.
    pub(crate) time: (u32, u32),
    /// TP_STATUS_*.
    pub(crate) status: u32,
    /// PACKET_RESERVE.
    pub(crate) reserve: usize,
    /// A `struct sockaddr_ll`.
    pub(crate) from: &'a [u8],
}

impl Arrived<'_> {
    /// Where the link header and the packet begin.
    fn places(&self, version: i32) -> (usize, usize) {
        let start = header(version).unwrap_or(0) + ADDRESS;
        let Some(link) = self.link else {
            let net = start.next_multiple_of(ALIGN) + ALIGN + self.reserve;
            return (net, net);
        };
        let net = (start + link.max(ALIGN)).next_multiple_of(ALIGN) + self.reserve + self.vnet.len();
        (net - link, net)
    }

    /// Puts the frame into `room` bytes of memory, all but a status of 0. Returns how many it takes.
    fn put(&self, memory: &Memory, at: u64, room: usize, version: i32, next: u32) -> Result<usize> {
        let (mac, net) = self.places(version);
        if mac > room || net > usize::from(u16::MAX) {
            return Err(Errno::EMSGSIZE);
        }
        let len = self.data.len().min(room.saturating_sub(mac));
        let words =
            |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
        let mut out = Vec::with_capacity(header(version).unwrap_or(0) + ADDRESS);
        let places = u32::from(mac as u16) | u32::from(net as u16) << 16;
        let ((seconds, nanos), (full, kept)) = (self.time, (self.full as u32, len as u32));
        match version {
            V1 => words(&mut out, &[KERNEL, 0, full, kept, places, seconds, nanos / 1000, 0]),
            V3 => {
                words(&mut out, &[next, seconds, nanos, kept, full, self.status, places]);
                words(&mut out, &[0; 5]);
            }
            _ => words(&mut out, &[KERNEL, full, kept, places, seconds, nanos, 0, 0]),
        }
        out.extend(self.from);
        memory.write(at, &out)?;
        memory.write(at + (mac - self.vnet.len()) as u64, &[self.vnet, &self.data[..len]].concat())?;
        Ok(mac + len)
    }
}

/// A ring.
pub(crate) struct Receive {
    shape: Shape,
    version: i32,
    memory: Option<Memory>,
    /// The slot or block that is filled next.
    head: usize,
    blocks: Blocks,
}

/// What a ring of blocks has beside it.
#[derive(Default)]
struct Blocks {
    private: usize,
    open: Option<Open>,
    /// Blocks that were opened.
    sequence: u64,
    /// Frames wait, and the next block is the program's.
    frozen: bool,
    freezes: u32,
}

/// The block that is filled.
struct Open {
    frames: u32,
    /// Where the next frame begins, and where the last one does.
    end: usize,
    last: usize,
    times: [(u32, u32); 2],
}

impl Receive {
    /// Slots of one frame each.
    pub(super) fn slots(shape: Shape, version: i32) -> Receive {
        Receive { shape, version, memory: None, head: 0, blocks: Blocks::default() }
    }

    /// Blocks of frames, with bytes of the program's own.
    pub(super) fn blocks(shape: Shape, private: usize) -> Receive {
        Receive { blocks: Blocks { private, ..Blocks::default() }, ..Receive::slots(shape, V3) }
    }

    pub(super) fn size(&self) -> u64 {
        self.shape.size()
    }

    pub(super) fn place(&mut self, memory: Memory) {
        self.memory = Some(memory);
        self.head = 0;
        self.blocks = Blocks { private: self.blocks.private, ..Blocks::default() };
    }

    /// Slots, or blocks.
    fn count(&self) -> usize {
        if self.version == V3 { self.shape.blocks } else { self.shape.frames }
    }

    fn offset(&self, n: usize) -> u64 {
        if self.version == V3 { (n * self.shape.block) as u64 } else { self.shape.offset(n) }
    }

    fn status(&self, n: usize) -> Option<u32> {
        let within = if self.version == V3 { BLOCK_STATUS } else { 0 };
        self.memory.as_ref()?.word(self.offset(n) + within)
    }

    fn advance(&mut self) {
        self.head = (self.head + 1) % self.count();
    }

    /// A frame that waits can be put into the ring, as far as is known without it.
    pub(crate) fn has_room(&mut self) -> bool {
        let room = self.blocks.open.is_some() || self.status(self.head) == Some(KERNEL);
        if self.version == V3 {
            let freezes = !room && !self.blocks.frozen;
            self.blocks.freezes = self.blocks.freezes.wrapping_add(freezes.into());
            self.blocks.frozen = !room;
        }
        room
    }

    /// How often the ring had no block left since the last call (PACKET_STATISTICS); `None` for slots.
    pub(crate) fn freezes(&mut self) -> Option<u32> {
        (self.version == V3).then(|| std::mem::take(&mut self.blocks.freezes))
    }

    /// The program has a slot or a block that it has not given back.
    pub(crate) fn is_readable(&self) -> bool {
        let last = (self.head + self.count() - 1) % self.count();
        !matches!(self.status(last), Some(KERNEL) | None)
    }

    /// Puts a frame into the ring; false when there is no room for it.
    pub(crate) fn put(&mut self, arrived: &Arrived<'_>) -> bool {
        let done =
            if self.version == V3 { self.put_into_block(arrived) } else { self.put_into_slot(arrived) };
        done.unwrap_or_else(|errno| {
            log::debug!("ring of a packet socket: {errno:?}; a frame is lost");
            true
        })
    }

    fn put_into_slot(&mut self, arrived: &Arrived<'_>) -> Result<bool> {
        let memory = self.memory.as_ref().ok_or(Errno::EINVAL)?;
        let at = self.offset(self.head);
        arrived.put(memory, at, self.shape.frame, self.version, 0)?;
        // The status comes last: then the slot is the program's.
        memory.write(at, &arrived.status.to_ne_bytes())?;
        self.advance();
        Ok(true)
    }

    fn put_into_block(&mut self, arrived: &Arrived<'_>) -> Result<bool> {
        let (mac, _) = arrived.places(V3);
        let start = first_frame(self.blocks.private);
        let most = self.shape.block - start;
        let takes = (mac + arrived.data.len()).min(most).next_multiple_of(STEP);
        if self.blocks.open.as_ref().is_some_and(|open| open.end + takes > self.shape.block) {
            self.close(0)?;
        }
        if self.blocks.open.is_none() {
            if !self.has_room() {
                return Ok(false);
            }
            self.blocks.sequence += 1;
            self.blocks.open = Some(Open { frames: 0, end: start, last: start, times: [arrived.time; 2] });
        }
        let base = self.offset(self.head);
        let memory = self.memory.as_ref().ok_or(Errno::EINVAL)?;
        let Some(open) = &mut self.blocks.open else { return Ok(false) };
        arrived.put(memory, base + open.end as u64, most, V3, takes as u32)?;
        (open.last, open.end, open.frames) = (open.end, open.end + takes, open.frames + 1);
        open.times[1] = arrived.time;
        Ok(true)
    }

    /// Gives the block that is filled to the program, if it has frames: the program asks for them.
    pub(crate) fn retire(&mut self) {
        if let Err(errno) = self.close(TIMED_OUT) {
            log::debug!("ring of a packet socket: {errno:?}; a block is lost");
        }
    }

    fn close(&mut self, why: u32) -> Result<()> {
        let Some(open) = self.blocks.open.take() else { return Ok(()) };
        let base = self.offset(self.head);
        let memory = self.memory.as_ref().ok_or(Errno::EINVAL)?;
        // The last frame has none after it.
        memory.write(base + open.last as u64, &0_u32.to_ne_bytes())?;
        let [first, last] = open.times;
        let mut out = Vec::with_capacity(DESCRIPTOR);
        let start = first_frame(self.blocks.private) as u32;
        for word in [V3 as u32, DESCRIPTOR as u32, KERNEL, open.frames, start, open.end as u32] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(self.blocks.sequence.to_ne_bytes());
        for word in [first.0, first.1, last.0, last.1] {
            out.extend(word.to_ne_bytes());
        }
        memory.write(base, &out)?;
        memory.write(base + BLOCK_STATUS, &(USER | why).to_ne_bytes())?;
        self.advance();
        Ok(())
    }
}
