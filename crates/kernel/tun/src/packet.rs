//! The headers of frames: packet information (`struct tun_pi`: flags, and the protocol in network order), and virtio-net. Pure.

use abi::{Errno, Result};
use netstack::frame::{Frame, Offload};
use netstack::vnet;

/// Bytes of the header.
pub(crate) const HEADER: usize = 4;
/// TUN_PKT_STRIP: the buffer was too short for the packet.
const STRIP: u16 = 1;
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Longest frame that the stack is given.
pub(crate) const LONGEST: usize = 65535 + ETHERNET;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// The protocol that the first byte of an IP packet says.
fn version(packet: &[u8]) -> Option<[u8; 2]> {
    match packet.first()? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

/// The protocol of a frame that the stack sent.
fn protocol(frame: &[u8], tap: bool) -> [u8; 2] {
    if tap {
        return frame.get(12..ETHERNET).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    }
    version(frame).unwrap_or_default()
}

/// The headers before a frame, and its kind.
#[derive(Clone, Copy)]
pub(crate) struct Framing {
    /// The frame is an Ethernet frame, else an IP packet.
    pub tap: bool,
    /// There is no packet information header.
    pub bare: bool,
    /// Bytes of the virtio-net header, which comes second; 0 without one.
    pub vnet: usize,
}

impl Framing {
    fn link(self) -> u16 {
        if self.tap { vnet::ETHERNET } else { 0 }
    }
}

/// Copies a frame to a reader, with its headers. What does not fit is lost.
pub(crate) fn deliver(frame: &Frame, framing: Framing, buf: &mut [u8]) -> Result<usize> {
    let bytes: &[u8] = &frame.buf;
    let header = if framing.bare { 0 } else { HEADER };
    let whole = header + framing.vnet + bytes.len();
    let strip = if buf.len() < whole { STRIP } else { 0 };
    let (head, rest) = buf.split_at_mut_checked(header).ok_or(Errno::EINVAL)?;
    if !framing.bare {
        head[..2].copy_from_slice(&strip.to_ne_bytes());
        head[2..].copy_from_slice(&protocol(bytes, framing.tap));
    }
    let (head, rest) = rest.split_at_mut_checked(framing.vnet).ok_or(Errno::EINVAL)?;
    if let Some((known, other)) = head.split_first_chunk_mut() {
        *known = vnet::encode(bytes, framing.link(), &frame.offload);
        other.fill(0);
    }
    let len = bytes.len().min(rest.len());
    rest[..len].copy_from_slice(&bytes[..len]);
    Ok(header + framing.vnet + len)
}

/// The frame in what a writer wrote; `None` for one that no protocol of the stack takes.
pub(crate) fn written(data: &[u8], framing: Framing) -> Result<Option<(&[u8], Offload)>> {
    let header = if framing.bare { 0 } else { HEADER };
    let (head, rest) = data.split_at_checked(header).ok_or(Errno::EINVAL)?;
    let (offered, frame) = rest.split_at_checked(framing.vnet).ok_or(Errno::EINVAL)?;
    let version = version(frame);
    if framing.tap && frame.len() < ETHERNET || !framing.tap && framing.bare && version.is_none() {
        return Err(Errno::EINVAL);
    }
    let offload = match offered.first_chunk() {
        Some(header) => vnet::decode(header, frame, framing.link()).ok_or(Errno::EINVAL)?,
        None => Offload::default(),
    };
    let known = framing.tap || framing.bare || version.is_some_and(|version| head[2..] == version);
    Ok((known && frame.len() <= LONGEST).then_some((frame, offload)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netstack::buf::Pool;
    use netstack::frame::{Checksum, Gso};

    fn framing(bare: bool) -> Framing {
        Framing { tap: false, bare, vnet: 0 }
    }

    fn read(bytes: &[u8], framing: Framing, buf: &mut [u8]) -> Result<usize> {
        deliver(&Frame::with(Pool::new().copy(bytes), Offload::default()), framing, buf)
    }

    #[test]
    fn headers_of_what_is_read() {
        let mut buf = [0xff; 8];
        assert_eq!(read(&[0x45, 1], framing(true), &mut buf), Ok(2));
        assert_eq!(buf[..3], [0x45, 1, 0xff]);
        assert_eq!(read(&[0x60, 2], framing(false), &mut buf), Ok(6));
        assert_eq!(buf[..6], [0, 0, 0x86, 0xdd, 0x60, 2]);
        assert_eq!(read(&[0x45, 1, 2], framing(false), &mut buf[..5]), Ok(5));
        assert_eq!(buf[..5], [1, 0, 8, 0, 0x45]);
        assert_eq!(read(&[0x45], framing(false), &mut buf[..3]), Err(Errno::EINVAL));
    }

    #[test]
    fn frames_of_what_is_written() {
        let frame = |data: &'static [u8], framing| written(data, framing).map(|f| f.map(|(bytes, _)| bytes));
        assert_eq!(frame(&[0x45, 1], framing(true)), Ok(Some(&[0x45, 1][..])));
        assert_eq!(frame(&[0x15, 1], framing(true)), Err(Errno::EINVAL));
        assert_eq!(frame(&[], framing(true)), Err(Errno::EINVAL));
        assert_eq!(frame(&[0, 0, 8, 0, 0x45], framing(false)), Ok(Some(&[0x45][..])));
        assert_eq!(frame(&[0, 0, 8, 6, 0x45], framing(false)), Ok(None));
        assert_eq!(frame(&[0; 3], framing(false)), Err(Errno::EINVAL));
        let tap = Framing { tap: true, bare: true, vnet: 0 };
        assert_eq!(frame(&[0; 13], tap), Err(Errno::EINVAL));
        assert_eq!(frame(&[0; 14], tap), Ok(Some(&[0; 14][..])));
    }

    #[test]
    fn offload_headers_pass_both_ways() {
        let with = Framing { tap: false, bare: true, vnet: 12 };
        let mut packet = vec![0; 60];
        (packet[0], packet[9], packet[32]) = (0x45, 6, 5 << 4);
        let checksum = Checksum::Partial { start: 20, offset: 16 };
        let offload = Offload { checksum, gso: Some(Gso { size: 8, headers: 40 }) };
        let mut buf = [0xff; 100];
        let frame = Frame::with(Pool::new().copy(&packet), offload);
        assert_eq!(deliver(&frame, with, &mut buf), Ok(72));
        assert_eq!(written(&buf[..72], with), Ok(Some((&packet[..], offload))));
        assert_eq!(written(&buf[..11], with), Err(Errno::EINVAL));
        assert_eq!(deliver(&frame, with, &mut buf[..11]), Err(Errno::EINVAL));
        buf[1] = 9;
        assert_eq!(written(&buf[..72], with), Err(Errno::EINVAL));
    }
}
