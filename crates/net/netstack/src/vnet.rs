//! `struct virtio_net_hdr`, as packet sockets and TUN devices have it, and the stack's offload descriptors. Pure.
//!
//! Offsets of the header count from the first byte of the frame, those of the stack from the IP header. `link` says how many
//! bytes are between them: those of an Ethernet header, or none.

use crate::checksum::Sum;
use crate::frame::{Checksum, Gso, Offload};

/// Bytes of the header.
pub const HEADER: usize = 10;
/// Bytes of an Ethernet header.
pub const ETHERNET: u16 = 14;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Datagrams in one frame at most (Linux's UDP_MAX_SEGMENTS).
const MAX_DATAGRAMS: usize = 128;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The header for a frame that the stack sends.
pub fn encode(frame: &[u8], link: u16, offload: &Offload) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    if let Checksum::Partial { start, offset } = offload.checksum {
        out[0] = F_NEEDS_CSUM;
        out[6..8].copy_from_slice(&start.saturating_add(link).to_ne_bytes());
        out[8..10].copy_from_slice(&offset.to_ne_bytes());
    }
    if let Some(Gso { size, headers }) = offload.gso {
        let v6 = frame.get(usize::from(link)).is_some_and(|first| first >> 4 == 6);
        out[1] = if v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        if congestion_is_marked(frame.get(usize::from(link)..).unwrap_or_default(), v6) {
            out[1] |= GSO_ECN;
        }
        out[2..4].copy_from_slice(&headers.saturating_add(link).to_ne_bytes());
        out[4..6].copy_from_slice(&size.to_ne_bytes());
    }
    out
}

/// Makes a header that of several datagrams: bytes of their headers with the Ethernet header, and payload bytes of each.
pub(crate) fn mark_datagrams(header: &mut [u8; HEADER], headers: u16, size: u16) {
    header[1] = GSO_UDP_L4;
    header[2..4].copy_from_slice(&headers.to_ne_bytes());
    header[4..6].copy_from_slice(&size.to_ne_bytes());
}

/// The first segment says that the window was reduced (CWR), which the others must not repeat.
fn congestion_is_marked(packet: &[u8], v6: bool) -> bool {
    let ip = if v6 { 40 } else { packet.first().map_or(0, |first| usize::from(first & 0xf) * 4) };
    packet.get(ip + 13).is_some_and(|flags| flags & 0x80 != 0)
}

/// The frames of datagrams that their sender has not cut (UDP_SEGMENT over a veth pair); nothing for any other frame. Their checksums are
/// taken for valid: they have not been on a wire. `link` is the number of bytes before the header of IP: [`ETHERNET`], or 0.
pub fn cut_datagrams(header: &[u8; HEADER], frame: &[u8], link: u16) -> Option<Vec<Vec<u8>>> {
    let size = usize::from(u16::from_ne_bytes([header[4], header[5]]));
    if header[1] & !GSO_ECN != GSO_UDP_L4 || size == 0 {
        return None;
    }
    let ip = usize::from(link);
    let kind = match link {
        ETHERNET => <[u8; 2]>::try_from(frame.get(12..14)?).ok()?,
        _ if frame.get(ip)? >> 4 == 4 => IPV4,
        _ => IPV6,
    };
    let (v4, udp) = match kind {
        IPV4 if *frame.get(ip + 9)? == UDP => (true, ip + usize::from(frame.get(ip)? & 0xf) * 4),
        IPV6 if *frame.get(ip + 6)? == UDP => (false, ip + 40),
        _ => return None,
    };
    let (headers, payload) = frame.split_at_checked(udp + 8).filter(|_| udp >= ip + 20)?;
    if payload.len().div_ceil(size) > MAX_DATAGRAMS {
        return None;
    }
    let cut = |(n, data): (usize, &[u8])| {
        let mut out = [headers, data].concat();
        let length = |from: usize| ((headers.len() - from + data.len()) as u16).to_be_bytes();
        if v4 {
            let id = u16::from_be_bytes([out[ip + 4], out[ip + 5]]).wrapping_add(n as u16);
            out[ip + 2..ip + 4].copy_from_slice(&length(ip));
            out[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
            out[ip + 10..ip + 12].fill(0);
            let sum = Sum::new().with(&out[ip..udp]).finish();
            out[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            out[ip + 4..ip + 6].copy_from_slice(&length(udp));
        }
        out[udp + 4..udp + 6].copy_from_slice(&length(udp));
        out
    };
    Some(payload.chunks(size).enumerate().map(cut).collect())
}

/// What the header of a received frame says; `None` for a frame that the stack cannot take.
pub fn decode(header: &[u8; HEADER], frame: &[u8], link: u16) -> Option<Offload> {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum = if header[0] & F_NEEDS_CSUM != 0 {
        Checksum::Partial { start: word(6).checked_sub(link)?, offset: word(8) }
    } else if header[0] & F_DATA_VALID != 0 {
        Checksum::Valid
    } else {
        Checksum::Unknown
    };
    let gso = match header[1] & !GSO_ECN {
        GSO_NONE => None,
        GSO_TCPV4 | GSO_TCPV6 if word(4) > 0 => {
            if link == ETHERNET && !matches!(frame.get(12..14)?, kind if kind == IPV4 || kind == IPV6) {
                return None;
            }
            Some(Gso { size: word(4), headers: tcp_headers(frame.get(link.into()..)?)? })
        }
        // Datagrams that their sender has not cut.
        _ => return None,
    };
    Some(Offload { checksum, gso })
}

/// Whether a checksum that is left to do is the one of the TCP packet that is to be cut. Linux's own drivers get no other ones.
pub fn cuts_its_checksum(offload: &Offload, ip: &[u8]) -> bool {
    let length = ip_headers(ip);
    offload.gso.is_none()
        || matches!(offload.checksum, Checksum::Partial { start, offset: 16 } if Some(usize::from(start)) == length)
}

/// Bytes of the IP header of a packet of TCP.
fn ip_headers(ip: &[u8]) -> Option<usize> {
    match ip.first()? >> 4 {
        4 if *ip.get(9)? == TCP => Some(usize::from(ip.first()? & 0xf) * 4).filter(|length| *length >= 20),
        6 if *ip.get(6)? == TCP => Some(40),
        _ => None,
    }
}

/// Bytes of the IP and TCP headers of a packet, all of which are there. The header's own count is a hint only.
fn tcp_headers(ip: &[u8]) -> Option<u16> {
    let length = ip_headers(ip)?;
    let tcp = Some(usize::from(ip.get(length + 12)? >> 4) * 4).filter(|tcp| *tcp >= 20)?;
    u16::try_from(ip.get(..length + tcp)?.len()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: [u8; 2], protocol_at: usize, ip_len: usize) -> Vec<u8> {
        let mut frame = vec![0; 14 + ip_len + 40];
        frame[12..14].copy_from_slice(&kind);
        frame[14] = if kind == IPV4 { 0x45 } else { 0x60 };
        frame[14 + protocol_at] = TCP;
        frame[14 + ip_len + 12] = 8 << 4;
        frame
    }

    #[test]
    fn headers_round_trip() {
        for (kind, at, ip_len) in [(IPV4, 9, 20), (IPV6, 6, 40)] {
            let frame = frame(kind, at, ip_len);
            let headers = ip_len as u16 + 32;
            let checksum = Checksum::Partial { start: ip_len as u16, offset: 16 };
            for gso in [None, Some(Gso { size: 1448, headers })] {
                let offload = Offload { checksum, gso };
                assert_eq!(decode(&encode(&frame, ETHERNET, &offload), &frame, ETHERNET), Some(offload));
                let bare = &frame[14..];
                assert_eq!(decode(&encode(bare, 0, &offload), bare, 0), Some(offload));
            }
        }
    }

    #[test]
    fn datagrams_are_cut() {
        for (kind, at, ip_len) in [(IPV4, 9, 20), (IPV6, 6, 40)] {
            let mut whole = frame(kind, at, ip_len);
            whole[14 + at] = UDP;
            whole.truncate(14 + ip_len + 8);
            whole.extend([7; 25]);
            let header = [1, GSO_UDP_L4, 0, 0, 10, 0, 0, 0, 0, 0];
            let parts = cut_datagrams(&header, &whole, ETHERNET).unwrap();
            let lengths: Vec<usize> = parts.iter().map(|part| part.len() - 14 - ip_len - 8).collect();
            assert_eq!(lengths, [10, 10, 5]);
            assert_eq!(parts[2][14 + ip_len + 4..14 + ip_len + 6], [0, 13]);
            let bare = cut_datagrams(&header, &whole[14..], 0).unwrap();
            assert!(bare.iter().zip(&parts).all(|(bare, part)| *bare == part[14..]));
            assert_eq!(cut_datagrams(&header, &whole[..14 + ip_len + 7], ETHERNET), None);
            whole.extend([7; 1300]);
            assert_eq!(cut_datagrams(&header, &whole, ETHERNET), None, "more than Linux sends at once");
            assert_eq!(cut_datagrams(&[0; HEADER], &whole, ETHERNET), None);
        }
    }

    #[test]
    fn what_the_stack_cannot_take() {
        let tcp = frame(IPV4, 9, 20);
        let with = |header: [u8; HEADER], frame: &[u8]| decode(&header, frame, ETHERNET);
        // Datagrams to be cut, a segment that is none, a checksum before the packet.
        assert_eq!(with([0, 5, 0, 0, 1, 0, 0, 0, 0, 0], &tcp), None);
        assert_eq!(with([0, 1, 0, 0, 1, 0, 0, 0, 0, 0], &tcp[..30]), None);
        assert_eq!(with([1, 0, 0, 0, 0, 0, 3, 0, 0, 0], &tcp), None);
        // Headers of IP or TCP that are too short, or longer than the packet; another kind of frame.
        let sound = [1, GSO_TCPV4, 0, 0, 1, 0, 34, 0, 16, 0];
        let offload = with(sound, &tcp).unwrap();
        assert!(cuts_its_checksum(&offload, &tcp[14..]));
        for (at, value) in [(14, 0x44), (46, 4 << 4), (46, 15 << 4), (12, 0x86), (12, 0x09)] {
            let mut bad = tcp.clone();
            bad[at] = value;
            assert_eq!(with(sound, &bad), None, "{at} {value:x}");
        }
        // A checksum elsewhere, or none.
        for (at, value) in [(0, 0), (0, 2), (6, 35), (8, 6)] {
            let mut bad = sound;
            bad[at] = value;
            assert!(!cuts_its_checksum(&with(bad, &tcp).unwrap(), &tcp[14..]), "{at} {value}");
        }
        assert_eq!(with([2, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).map(|o| o.checksum), Some(Checksum::Valid));
    }
}
