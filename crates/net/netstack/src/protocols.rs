//! Packets for this host, and errors about packets of it, on their way to the protocols and their sockets.

use crate::buf::Buf;
use crate::device::iface::LOOPBACK;
use crate::network::control::ForSocket;
use crate::network::icmp::{ErrorAbout, Problem};
use crate::network::path::Cast;
use crate::network::received::Packet;
use crate::stack::Stack;
use crate::wire::icmp::{self, Icmp};
use crate::wire::proto;
use conntrack::Flow;
use ktime::Ktime;

impl Stack {
    /// Hands a packet to its protocol.
    pub(crate) fn deliver(&self, packet: &Packet) {
        let raw = self.datagrams.raw_input(packet);
        match packet.info.protocol {
            proto::UDP | proto::UDP_LITE => self.datagrams.udp_input(packet),
            proto::TCP => self.tcp.input(packet),
            proto::ICMP if packet.info.dst.is_ipv4() => self.icmp_for_socket(packet),
            proto::ICMPV6 if packet.info.dst.is_ipv6() => self.icmp_for_socket(packet),
            proto::IGMP => self.igmp_input(packet),
            proto::NONE => {}
            _ if raw => {}
            _ => {
                self.counters.ip_of(packet.info.dst).in_unknown_protos.bump();
                self.icmp_problem(packet, Problem::NoProtocol);
            }
        }
    }

    fn icmp_for_socket(&self, packet: &Packet) {
        match self.icmp_input(packet) {
            Some(ForSocket::EchoReply(header)) => self.datagrams.ping_input(packet, &header),
            Some(ForSocket::Error(error)) => self.error_to_socket(packet.now, &error),
            None => {}
        }
    }

    /// Hands an error to the socket that sent the quoted packet; a path MTU counts only when such a socket exists.
    fn error_to_socket(&self, now: Ktime, error: &ErrorAbout<'_>) {
        let ErrorAbout { quote, error, kind, from } = error;
        if quote.info.protocol == proto::TCP {
            self.tcp.error(now, quote, error);
        } else {
            self.datagrams.error(now, quote, error, *kind, *from);
        }
    }

    /// A packet of this host, or one that it forwards, found no neighbour.
    pub(crate) fn host_unreachable(&self, now: Ktime, packet: Buf) {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let Some(quote) = icmp::quoted(&packet, v6) else { return };
        let info = quote.info;
        if !self.is_local(info.src) {
            let problem = Problem::HostUnreachable;
            return self.problem_of(
                now,
                packet.clone(),
                info,
                (LOOPBACK, Flow::None),
                Cast::Unicast,
                problem,
            );
        }
        let (kind, code, rest) = Problem::HostUnreachable.header(v6);
        if let Some(error) = icmp::socket_error(&Icmp::new(kind, code, rest), v6) {
            self.error_to_socket(now, &ErrorAbout { quote, error, kind: (kind, code), from: info.src });
        }
    }
}
