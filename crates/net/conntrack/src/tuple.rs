//! The addresses of one direction of a connection.

use std::net::IpAddr;

/// ICMP.
const ICMP: u8 = 1;
/// ICMPv6.
const ICMPV6: u8 = 58;

/// Pairs of ICMP types: a request and its answer.
const PAIRS: [(u8, u8); 4] = [(8, 0), (13, 14), (15, 16), (17, 18)];
/// The same for ICMPv6.
const PAIRS6: [(u8, u8); 2] = [(128, 129), (139, 140)];

/// Which of a connection's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// That of the first packet.
    Original,
    /// The other.
    Reply,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }
}

/// Source and destination of the packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Tuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// Protocol number.
    pub protocol: u8,
    /// Source port, or the identifier of an ICMP query; 0 for protocols without.
    pub src_port: u16,
    /// Destination port, or type and code of an ICMP query.
    pub dst_port: u16,
}

impl Tuple {
    /// True for the protocols with an identifier, type and code in their tuples.
    pub fn is_icmp(&self) -> bool {
        matches!(self.protocol, ICMP | ICMPV6)
    }

    /// ICMP type of the tuple.
    pub fn icmp_type(&self) -> u8 {
        (self.dst_port >> 8) as u8
    }

    /// ICMP code of the tuple.
    pub fn icmp_code(&self) -> u8 {
        self.dst_port as u8
    }

    /// The tuple of the answers; `None` for ICMP types that have none.
    pub fn inverse(&self) -> Option<Tuple> {
        let (src_port, dst_port) = if self.is_icmp() {
            let answer = answer_type(self.protocol, self.icmp_type())?;
            (self.src_port, u16::from(answer) << 8 | u16::from(self.icmp_code()))
        } else {
            (self.dst_port, self.src_port)
        };
        Some(Tuple { src: self.dst, dst: self.src, protocol: self.protocol, src_port, dst_port })
    }
}

/// The type of the message that answers one of this type, and the other way round.
fn answer_type(protocol: u8, kind: u8) -> Option<u8> {
    let pairs: &[(u8, u8)] = if protocol == ICMP { &PAIRS } else { &PAIRS6 };
    pairs.iter().find_map(|&(ask, answer)| match kind {
        _ if kind == ask => Some(answer),
        _ if kind == answer => Some(ask),
        _ => None,
    })
}

/// True for ICMP types that start a connection.
pub(crate) fn is_query(protocol: u8, kind: u8) -> bool {
    let pairs: &[(u8, u8)] = if protocol == ICMP { &PAIRS } else { &PAIRS6 };
    pairs.iter().any(|(ask, _)| *ask == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses() {
        let [src, dst]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let tcp = Tuple { src, dst, protocol: 6, src_port: 1000, dst_port: 80 };
        let back = tcp.inverse().unwrap();
        assert_eq!((back.src, back.src_port, back.dst_port), (dst, 80, 1000));
        assert_eq!(back.inverse(), Some(tcp));
        let echo = Tuple { protocol: 1, src_port: 7, dst_port: 8 << 8, ..tcp };
        assert_eq!(echo.inverse().map(|t| (t.src_port, t.icmp_type())), Some((7, 0)));
        assert_eq!(Tuple { dst_port: 3 << 8, ..echo }.inverse(), None);
    }
}
