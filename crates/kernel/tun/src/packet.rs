//! The packet information header (`struct tun_pi`): flags, and the protocol in network order. Pure.

use abi::{Errno, Result};

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

/// Copies a frame to a reader, with the header unless `bare`. What does not fit is lost.
pub(crate) fn deliver(frame: &[u8], tap: bool, bare: bool, buf: &mut [u8]) -> Result<usize> {
    let header = if bare { 0 } else { HEADER };
    let whole = header + frame.len();
    let strip = if buf.len() < whole { STRIP } else { 0 };
    let (head, rest) = buf.split_at_mut_checked(header).ok_or(Errno::EINVAL)?;
    if !bare {
        head[..2].copy_from_slice(&strip.to_ne_bytes());
        head[2..].copy_from_slice(&protocol(frame, tap));
    }
    let len = frame.len().min(rest.len());
    rest[..len].copy_from_slice(&frame[..len]);
    Ok(header + len)
}

/// The frame in what a writer wrote; `None` for one that no protocol of the stack takes.
pub(crate) fn written(data: &[u8], tap: bool, bare: bool) -> Result<Option<&[u8]>> {
    let header = if bare { 0 } else { HEADER };
    let (head, frame) = data.split_at_checked(header).ok_or(Errno::EINVAL)?;
    if tap {
        return if frame.len() < ETHERNET { Err(Errno::EINVAL) } else { Ok(bounded(frame)) };
    }
    let version = version(frame);
    if bare {
        return version.ok_or(Errno::EINVAL).map(|_| bounded(frame));
    }
    Ok(bounded(frame).filter(|_| version.is_some_and(|version| head[2..] == version)))
}

fn bounded(frame: &[u8]) -> Option<&[u8]> {
    (frame.len() <= LONGEST).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_what_is_read() {
        let mut buf = [0xff; 8];
        assert_eq!(deliver(&[0x45, 1], false, true, &mut buf), Ok(2));
        assert_eq!(buf[..3], [0x45, 1, 0xff]);
        assert_eq!(deliver(&[0x60, 2], false, false, &mut buf), Ok(6));
        assert_eq!(buf[..6], [0, 0, 0x86, 0xdd, 0x60, 2]);
        assert_eq!(deliver(&[0x45, 1, 2], false, false, &mut buf[..5]), Ok(5));
        assert_eq!(buf[..5], [1, 0, 8, 0, 0x45]);
        assert_eq!(deliver(&[0x45], false, false, &mut buf[..3]), Err(Errno::EINVAL));
    }

    #[test]
    fn frames_of_what_is_written() {
        assert_eq!(written(&[0x45, 1], false, true), Ok(Some(&[0x45, 1][..])));
        assert_eq!(written(&[0x15, 1], false, true), Err(Errno::EINVAL));
        assert_eq!(written(&[], false, true), Err(Errno::EINVAL));
        assert_eq!(written(&[0, 0, 8, 0, 0x45], false, false), Ok(Some(&[0x45][..])));
        assert_eq!(written(&[0, 0, 8, 6, 0x45], false, false), Ok(None));
        assert_eq!(written(&[0; 3], false, false), Err(Errno::EINVAL));
        assert_eq!(written(&[0; 13], true, true), Err(Errno::EINVAL));
        assert_eq!(written(&[0; 14], true, true), Ok(Some(&[0; 14][..])));
    }
}
