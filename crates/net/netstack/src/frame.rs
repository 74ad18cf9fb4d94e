//! Frames with what is left to do about them, and what travels with them inside this host.
//!
//! Plain data. Every layer names these types, so this module needs none of the layers.

use crate::buf::Buf;
use crate::checksum::Sum;
use conntrack::Flow;

/// What has been done, or is left to do, about a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Sent: complete. Received: not checked.
    #[default]
    Unknown,
    /// Sent: the program's own, from a raw socket, not checked. Received: likewise.
    Given,
    /// Received: the device (or the same host) vouches for it.
    Valid,
    /// The field holds the pseudo header's sum; the device that puts the frame on a wire adds the bytes from `start` and stores the
    /// result `offset` bytes later. Both count from the start of the IP header.
    Partial {
        /// First byte to sum.
        start: u16,
        /// Place of the field after `start`.
        offset: u16,
    },
}

/// A frame that stands for several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload bytes of each segment but the last.
    pub size: u16,
    /// Bytes of IP and transport headers.
    pub headers: u16,
}

/// Offload descriptors of a frame, as virtio-net headers carry them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum.
    pub checksum: Checksum,
    /// Segmentation.
    pub gso: Option<Gso>,
}

/// A frame with its offload descriptors: Ethernet, or bare IP for [`crate::iface::Kind::Tunnel`].
#[derive(Clone, Debug)]
pub struct Frame {
    /// The bytes.
    pub buf: Buf,
    /// What is left to do.
    pub offload: Offload,
    /// What travels with the frame inside this host.
    pub tags: Tags,
}

impl Frame {
    /// A frame with nothing left to do.
    pub fn new(buf: Buf) -> Frame {
        Frame::with(buf, Offload::default())
    }

    /// A frame with offload descriptors.
    pub fn with(buf: Buf, offload: Offload) -> Frame {
        Frame { buf, offload, tags: Tags::default() }
    }
}

impl Offload {
    /// The same descriptors behind a further header of `by` bytes.
    pub(crate) fn shifted(self, by: usize) -> Offload {
        let checksum = match self.checksum {
            Checksum::Partial { start, offset } => Checksum::Partial { start: start + by as u16, offset },
            other => other,
        };
        let gso = self.gso.map(|gso| Gso { headers: gso.headers + by as u16, ..gso });
        Offload { checksum, gso }
    }
}

/// The owner of the socket that sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What travels with a packet inside the host.
#[derive(Clone, Debug, Default)]
pub struct Tags {
    /// `SO_MARK`, or what rules set; routing rules look at it.
    pub mark: u32,
    /// The sending socket's owner; only on the way out.
    pub owner: Option<Owner>,
    /// The packet's connection, once it has been tracked.
    pub flow: Flow,
    /// The place among datagrams that are one piece for their sender.
    pub part: Part,
}

/// The place of a datagram among those that their sender gave in one piece (`UDP_SEGMENT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// It is no such datagram.
    #[default]
    Alone,
    /// The first one.
    First,
    /// One that follows another.
    Next,
}

impl Part {
    /// The place of number `n` of a piece.
    pub fn of(n: usize) -> Part {
        if n == 0 { Part::First } else { Part::Next }
    }
}

/// Completes a partial checksum.
pub(crate) fn finish_checksum(frame: &mut Frame) {
    let Checksum::Partial { start, offset } = frame.offload.checksum else { return };
    let (start, place) = (usize::from(start), usize::from(start) + usize::from(offset));
    let Some(bytes) = frame.buf.get(start..) else { return };
    let sum = match Sum::new().with(bytes).finish() {
        // UDP's zero means "none"; the two forms of zero are equal in the sum (RFC 768).
        0 => 0xffff,
        sum => sum,
    };
    if let Some(field) = frame.buf.bytes_mut().get_mut(place..place + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    frame.offload.checksum = Checksum::Unknown;
}
