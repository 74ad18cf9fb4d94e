//! Segmentation in software: large TCP packets for devices that do not cut them.

use crate::checksum::Sum;
use crate::frame::{Frame, Gso};
use crate::wire::ip::Ipv4;
use crate::wire::ipv6::Ipv6;
use crate::wire::proto;
use crate::wire::tcp::Flags;
use std::net::IpAddr;

/// Cuts a packet (from its IP header on) into segments with complete checksums. A packet without a segment size, or with one that its
/// headers contradict, gives nothing.
pub(crate) fn cut(frame: &Frame) -> Vec<Frame> {
    let Some(gso) = frame.offload.gso else { return vec![frame.clone()] };
    segments(frame, gso).unwrap_or_default()
}

/// Bytes of the longest packet on the wire.
pub(crate) fn wire_len(frame: &Frame) -> usize {
    frame.offload.gso.map_or(frame.buf.len(), |gso| usize::from(gso.headers) + usize::from(gso.size))
}

fn segments(frame: &Frame, gso: Gso) -> Option<Vec<Frame>> {
    let v6 = frame.buf.first()? >> 4 == 6;
    let (src, dst, ip_len): (IpAddr, IpAddr, usize) = if v6 {
        let ip = Ipv6::parse(&frame.buf).filter(|ip| ip.next == proto::TCP)?;
        (ip.src().into(), ip.dst().into(), Ipv6::LEN)
    } else {
        let ip = Ipv4::parse(&frame.buf).filter(|ip| ip.protocol == proto::TCP)?;
        (ip.src().into(), ip.dst().into(), ip.header_len())
    };
    let tcp_len = usize::from(frame.buf.get(ip_len + 12)? >> 4) * 4;
    let headers = frame.buf.get(..ip_len + tcp_len).filter(|_| tcp_len >= 20)?;
    let payload = frame.buf.get(ip_len + tcp_len..)?;
    let (size, count) = (usize::from(gso.size).max(1), payload.len().div_ceil(usize::from(gso.size).max(1)));
    if count > 65_536 / 8 {
        return None;
    }
    let mut parts = Vec::with_capacity(count);
    for (n, data) in payload.chunks(size).enumerate() {
        let mut buf = frame.buf.slice(0, 0);
        buf.extend(headers);
        buf.extend(data);
        let bytes = buf.bytes_mut();
        let (ip, tcp) = bytes.split_at_mut(ip_len);
        fix_ip(ip, v6, tcp.len(), n);
        fix_tcp(tcp, n, n + 1 == count, size);
        let sum = Sum::new().pseudo(src, dst, proto::TCP, tcp.len()).with(tcp).finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        parts.push(Frame { tags: frame.tags.clone(), ..Frame::new(buf) });
    }
    Some(parts)
}

fn fix_ip(ip: &mut [u8], v6: bool, payload: usize, n: usize) {
    if v6 {
        ip[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        return;
    }
    let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(n as u16);
    let total = (payload + ip.len()) as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    ip[10..12].fill(0);
    let sum = Sum::new().with(ip).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn fix_tcp(tcp: &mut [u8], n: usize, last: bool, size: usize) {
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add((n * size) as u32);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    if !last {
        tcp[13] &= !(Flags::FIN | Flags::PSH).bits();
    }
    if n > 0 {
        tcp[13] &= !Flags::CWR.bits();
    }
    tcp[16..18].fill(0);
}
