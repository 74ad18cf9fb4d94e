//! Answers to packets that rules refuse: ICMP errors and resets.

use crate::action::Action;
use crate::packet::Packet;
use netstack::frame::Tags;
use netstack::hooks::Point;
use netstack::wire::proto;

/// Bytes of a packet that an error needs.
const QUOTE: usize = 1280;

impl Packet<'_> {
    /// Answers the packet with an ICMP (or ICMPv6) error, unless its kind forbids that.
    pub fn reject_with_icmp(&self, kind: u8, code: u8) {
        if self.fragment != 0 {
            return;
        }
        let packet = self.bytes().get(..self.total_len().min(QUOTE)).unwrap_or_default().to_vec();
        let received = self.input.filter(|_| self.point != Point::Output);
        let input = received.map_or(0, |link| link.index);
        let flow = self.tags.flow.clone();
        self.netfilter.defer(Action::Icmp { kind: (kind, code), packet, input, flow });
    }

    /// Answers a TCP segment with a reset, unless it is one itself (RFC 9293 section 3.5.2).
    pub fn reject_with_reset(&self) {
        const FIN: u8 = 1;
        const SYN: u8 = 2;
        const RST: u8 = 4;
        const ACK: u8 = 16;
        let segment = self.payload();
        let Some(old) = segment.first_chunk::<20>() else { return };
        let group = self.info.dst.is_multicast() || self.info.src.is_multicast();
        if self.info.protocol != proto::TCP || self.fragment != 0 || old[13] & RST != 0 || group {
            return;
        }
        let mut header = [0; 20];
        header[0..2].copy_from_slice(&old[2..4]);
        header[2..4].copy_from_slice(&old[0..2]);
        header[12] = 5 << 4;
        if old[13] & ACK != 0 {
            header[4..8].copy_from_slice(&old[8..12]);
            header[13] = RST;
        } else {
            let data = segment.len().saturating_sub(usize::from(old[12] >> 4) * 4) as u32;
            let flags = u32::from(old[13] & SYN != 0) + u32::from(old[13] & FIN != 0);
            let seq = u32::from_be_bytes([old[4], old[5], old[6], old[7]]);
            header[8..12].copy_from_slice(&seq.wrapping_add(data).wrapping_add(flags).to_be_bytes());
            header[13] = RST | ACK;
        }
        // The reset belongs to the segment's connection, so that its addresses are translated back.
        let tags = Tags { flow: self.tags.flow.answer(), ..Tags::default() };
        self.netfilter.defer(Action::Segment { src: self.info.dst, dst: self.info.src, header, tags });
    }
}
