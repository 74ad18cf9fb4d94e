//! Reading the structures that programs pass: numbers of this machine's byte order unless the name says `be`. Bytes
//! beyond the end read as zero; sizes were compared before.

use netfilter::Family;
use std::net::{IpAddr, Ipv6Addr};

#[derive(Clone, Copy)]
pub(crate) struct Data<'a>(pub(crate) &'a [u8]);

impl Data<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    pub(crate) fn u8(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    pub(crate) fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    pub(crate) fn ipv4(&self, at: usize) -> IpAddr {
        IpAddr::from(self.array::<4>(at))
    }

    /// `union nf_inet_addr`
    pub(crate) fn ip(&self, at: usize, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.ipv4(at),
            Family::V6 => Ipv6Addr::from(self.array::<16>(at)).into(),
        }
    }

    /// A string up to its zero; `None` when it has none or is not UTF-8.
    pub(crate) fn text(&self, at: usize, len: usize) -> Option<String> {
        let bytes = self.0.get(at..at + len)?;
        let end = bytes.iter().position(|b| *b == 0)?;
        String::from_utf8(bytes[..end].to_vec()).ok()
    }
}

/// The bits of an address that a mask leaves.
pub(crate) fn masked(ip: IpAddr, mask: IpAddr) -> IpAddr {
    match (ip, mask) {
        (IpAddr::V4(ip), IpAddr::V4(mask)) => (ip & mask).into(),
        (IpAddr::V6(ip), IpAddr::V6(mask)) => (ip & mask).into(),
        _ => ip,
    }
}

/// True when an address is in a network, given by address and mask as iptables stores them.
pub(crate) fn in_network(ip: IpAddr, network: IpAddr, mask: IpAddr) -> bool {
    match (ip, network, mask) {
        (IpAddr::V4(ip), IpAddr::V4(network), IpAddr::V4(mask)) => {
            ip.to_bits() & mask.to_bits() == network.to_bits()
        }
        (IpAddr::V6(ip), IpAddr::V6(network), IpAddr::V6(mask)) => {
            ip.to_bits() & mask.to_bits() == network.to_bits()
        }
        _ => false,
    }
}
