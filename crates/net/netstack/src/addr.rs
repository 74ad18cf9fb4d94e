//! Prefixes and scopes of addresses.

use abi::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address and how many leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Prefix {
    /// The address; bits after `len` are kept, so an interface's address is a prefix, too.
    pub addr: IpAddr,
    /// Leading bits.
    pub len: u8,
}

impl Prefix {
    /// A prefix; the length is cut to the family's.
    pub fn new(addr: IpAddr, len: u8) -> Prefix {
        Prefix { addr, len: len.min(bits(addr)) }
    }

    /// The prefix of one address.
    pub fn host(addr: IpAddr) -> Prefix {
        Prefix { addr, len: bits(addr) }
    }

    /// The prefix that holds every address of `family`'s family.
    pub fn all(family: IpAddr) -> Prefix {
        Prefix { addr: unspecified(family), len: 0 }
    }

    /// True when the address is in the network.
    pub fn contains(&self, other: IpAddr) -> bool {
        common_prefix(self.addr, other).is_some_and(|common| common >= self.len)
    }

    /// The network's own address.
    pub fn network(&self) -> IpAddr {
        masked(self.addr, self.len, false)
    }

    /// The directed broadcast address of an IPv4 network of 30 bits or fewer.
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match masked(self.addr, self.len, true) {
            IpAddr::V4(v4) if self.len < 31 => Some(v4),
            _ => None,
        }
    }
}

/// The scope of an address, narrower scopes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Scope {
    /// This host.
    Host,
    /// One link.
    Link,
    /// Everywhere.
    Global,
}

/// The scope of an address (RFC 4291, RFC 6724 section 3.2).
pub fn scope(address: IpAddr) -> Scope {
    match address {
        _ if address.is_loopback() => Scope::Host,
        IpAddr::V4(v4) if v4.is_link_local() => Scope::Link,
        IpAddr::V6(v6) if is_link_local(v6) => Scope::Link,
        IpAddr::V6(v6) if v6.is_multicast() => match v6.octets()[1] & 0xf {
            1 => Scope::Host,
            2 => Scope::Link,
            _ => Scope::Global,
        },
        _ => Scope::Global,
    }
}

/// True for fe80::/10.
pub fn is_link_local(v6: Ipv6Addr) -> bool {
    v6.segments()[0] & 0xffc0 == 0xfe80
}

/// True when an address means something on one link only (RFC 4007): a socket that connects to it names the link.
pub fn needs_scope(ip: IpAddr) -> bool {
    let IpAddr::V6(v6) = ip else { return false };
    is_link_local(v6) || v6.is_multicast() && matches!(v6.segments()[0] & 0xf, 1 | 2)
}

/// Bits of an address of this family.
pub fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The unspecified address of an address's family.
pub fn unspecified(family: IpAddr) -> IpAddr {
    if family.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// How many leading bits two addresses of one family share.
pub fn common_prefix(a: IpAddr, b: IpAddr) -> Option<u8> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros() as u8),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros() as u8),
        _ => None,
    }
}

/// An IPv4-mapped IPv6 address as the IPv4 address that it stands for.
pub fn unmap(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        v4 => v4,
    }
}

/// The solicited-node multicast address (RFC 4291 section 2.7.1).
pub fn solicited_node(v6: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = v6.octets();
    let low = (u16::from(b) << 8) | u16::from(c);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low)
}

fn masked(address: IpAddr, len: u8, ones: bool) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            let bits = if ones { v4.to_bits() | host } else { v4.to_bits() & !host };
            Ipv4Addr::from_bits(bits).into()
        }
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            let bits = if ones { v6.to_bits() | host } else { v6.to_bits() & !host };
            Ipv6Addr::from_bits(bits).into()
        }
    }
}

/// Whether a socket that is bound to one address reaches another: an IPv6 socket that is bound to an IPv4-mapped address has no way
/// to IPv6 (`EAFNOSUPPORT`), and one that is bound to an IPv6 address none to IPv4 (`ENETUNREACH`).
pub(crate) fn reaches(bound: IpAddr, to: IpAddr) -> Result<(), Errno> {
    match (bound, to) {
        (IpAddr::V4(_), IpAddr::V6(_)) => Err(Errno::EAFNOSUPPORT),
        (IpAddr::V6(own), IpAddr::V4(_)) if !own.is_unspecified() => Err(Errno::ENETUNREACH),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let net = Prefix::new("10.1.2.3".parse().unwrap(), 24);
        assert!(net.contains("10.1.2.255".parse().unwrap()) && !net.contains("10.1.3.0".parse().unwrap()));
        assert!(!net.contains("::1".parse().unwrap()));
        assert_eq!(net.broadcast(), Some("10.1.2.255".parse().unwrap()));
        assert_eq!(net.network(), "10.1.2.0".parse::<IpAddr>().unwrap());
        assert!(Prefix::all("::1".parse().unwrap()).contains("2001:db8::1".parse().unwrap()));
        assert_eq!(Prefix::host("1.2.3.4".parse().unwrap()).broadcast(), None);
    }

    #[test]
    fn solicited_node_address() {
        let node = solicited_node("fe80::2aa:ff:fe28:9c5a".parse().unwrap());
        assert_eq!(node, "ff02::1:ff28:9c5a".parse::<Ipv6Addr>().unwrap());
    }
}
