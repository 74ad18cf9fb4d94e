//! Messages of ICMP and IGMP for this host: which part of the network layer takes them, and what is left for sockets.

use super::icmp::ErrorAbout;
use super::layer::Network;
use super::received::Packet;
use crate::checksum::Sum;
use crate::wire::icmp::{self, Icmp};
use std::net::{IpAddr, Ipv4Addr};

/// What an ICMP message says to a socket.
pub(crate) enum ForSocket<'a> {
    /// The answer to an echo request.
    EchoReply(Icmp),
    /// A packet was not delivered.
    Error(ErrorAbout<'a>),
}

impl Network {
    /// Takes a message of ICMP or ICMPv6 for this host. Returns what it says to a socket.
    pub(crate) fn icmp_input<'a>(&self, packet: &'a Packet) -> Option<ForSocket<'a>> {
        let v6 = packet.info.dst.is_ipv6();
        let counters = if v6 { &self.counters.icmp6 } else { &self.counters.icmp };
        counters.in_msgs.bump();
        let Some(header) = Icmp::parse(&packet.info, packet.payload()) else {
            counters.in_csum_errors.bump();
            counters.in_errors.bump();
            return None;
        };
        let kinds = if v6 { &self.counters.icmp6_kinds } else { &self.counters.icmp_kinds };
        kinds.note_received(header.kind);
        match (v6, header.kind) {
            (false, icmp::ECHO) | (true, icmp::ECHO6) => {
                counters.in_echos.bump();
                self.echo(packet, &header);
            }
            (false, icmp::ECHO_REPLY) | (true, icmp::ECHO_REPLY6) => {
                counters.in_echo_reps.bump();
                return Some(ForSocket::EchoReply(header));
            }
            (true, icmp::NEIGHBOUR_SOLICIT | icmp::NEIGHBOUR_ADVERT) => self.discovery_input(packet, &header),
            (true, icmp::ROUTER_ADVERT) => self.router_input(packet, &header),
            (true, icmp::LISTENER_QUERY) => self.listener_query(packet),
            _ => return self.error_about(packet, &header).map(ForSocket::Error),
        }
        None
    }

    /// A router asks for multicast listeners (RFC 2710).
    fn listener_query(&self, packet: &Packet) {
        let group = packet.payload().get(Icmp::LEN..).and_then(|body| body.first_chunk::<16>());
        let Some(group) = group.map(|bytes| std::net::Ipv6Addr::from(*bytes)) else { return };
        if packet.info.ttl == 1 {
            let asked = (!group.is_unspecified()).then_some(IpAddr::V6(group));
            self.answer_query(packet.now, &packet.iface, true, asked);
        }
    }

    /// IGMP messages: only queries matter to a host.
    pub(crate) fn igmp_input(&self, packet: &Packet) {
        let Some(&[0x11, _, _, _, a, b, c, d]) = packet.payload().first_chunk() else { return };
        let group = Ipv4Addr::new(a, b, c, d);
        let asked = (!group.is_unspecified()).then_some(IpAddr::V4(group));
        if Sum::new().with(packet.payload()).is_valid() {
            self.answer_query(packet.now, &packet.iface, false, asked);
        }
    }
}
