//! SIOCSIFADDR and SIOCSIFNETMASK: set the first IPv4 address of an interface or of an alias. See netdevice(7).

use crate::net_ns::NetNamespace;
use abi::{Errno, Result};
use netstack::addr::{Prefix, Scope};
use netstack::iface::{Address, Iface, Kind, Label};
use std::net::{IpAddr, Ipv4Addr};

pub(super) const SIOCSIFADDR: u32 = 0x8916;
pub(super) const SIOCSIFNETMASK: u32 = 0x891c;

/// The address in the `struct sockaddr_in` of a request.
pub(super) fn family_and_address(value: &[u8; 16]) -> (u16, Ipv4Addr) {
    (u16::from_ne_bytes([value[0], value[1]]), Ipv4Addr::new(value[4], value[5], value[6], value[7]))
}

/// The first IPv4 address that has the name of the interface, or of one of its aliases (`eth0:1`).
pub(super) fn labelled(link: &Iface, name: &str) -> Option<Address> {
    let own = link.name();
    link.addresses().into_iter().find(|address| address.ip().is_ipv4() && address.label.or(&own) == name)
}

/// Ends an alias.
pub(super) fn end_alias(net: &NetNamespace, link: &Iface, name: &str) -> Result<()> {
    let alias = labelled(link, name).ok_or(Errno::EADDRNOTAVAIL)?;
    net.stack().remove_address(link.index, alias.prefix)
}

/// Sets what `cmd` says of the interface, or of the alias with this name, to `value`.
pub(super) fn set(net: &NetNamespace, link: &Iface, name: &str, cmd: u32, value: Ipv4Addr) -> Result<()> {
    let old = labelled(link, name);
    let fresh = match (cmd, old) {
        (SIOCSIFADDR, Some(old)) if old.ip() == value => return Ok(()),
        (SIOCSIFADDR, _) => {
            let label = Label::new(name, &link.name()).ok_or(Errno::ENODEV)?;
            with_class(link, value)?.map(|fresh| Address { label, ..fresh })
        }
        (_, None) => return Err(Errno::EADDRNOTAVAIL),
        (_, Some(old)) => Some(with_mask(old, value)?),
    };
    if old == fresh {
        return Ok(());
    }
    let stack = net.stack();
    if let Some(old) = old {
        stack.remove_address(link.index, old.prefix)?;
    }
    fresh.map_or(Ok(()), |fresh| stack.add_address(link.index, fresh))
}

/// An address with the prefix of its class; 0.0.0.0 is none.
fn with_class(link: &Iface, value: Ipv4Addr) -> Result<Option<Address>> {
    let class = class_len(value).ok_or(Errno::EINVAL)?;
    if value.is_unspecified() {
        return Ok(None);
    }
    let len = if link.kind == Kind::Tunnel { 32 } else { class };
    let scope = if value.is_loopback() { Scope::Host } else { Scope::Global };
    let prefix = Prefix::new(value.into(), len);
    let broadcast = prefix.broadcast().filter(|_| link.kind == Kind::Ethernet);
    Ok(Some(Address { scope, broadcast, ..Address::new(prefix) }))
}

/// The prefix length of an address's class; none for multicast groups.
fn class_len(value: Ipv4Addr) -> Option<u8> {
    match value.octets()[0] {
        0 => Some(0),
        1..=127 => Some(8),
        128..=191 => Some(16),
        192..=223 => Some(24),
        224..=239 => None,
        _ if value.is_broadcast() => Some(0),
        _ => Some(32),
    }
}

/// The address with another mask. A broadcast address that followed from the old mask follows from the new one.
fn with_mask(old: Address, mask: Ipv4Addr) -> Result<Address> {
    let bits = mask.to_bits();
    if bits.leading_ones() + bits.trailing_zeros() < 32 {
        return Err(Errno::EINVAL);
    }
    let derived = match old.ip() {
        IpAddr::V4(own) => own.to_bits() | u32::MAX.checked_shr(old.prefix.len.into()).unwrap_or(0),
        IpAddr::V6(_) => return Err(Errno::EINVAL),
    };
    let prefix = Prefix::new(old.ip(), bits.leading_ones() as u8);
    let broadcast = match old.broadcast {
        Some(broadcast) if broadcast.to_bits() == derived => prefix.broadcast(),
        other => other,
    };
    Ok(Address { prefix, broadcast, ..old })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_masks() {
        let class = |text: &str| class_len(text.parse().unwrap());
        assert_eq!(["10.0.0.1", "172.16.0.1", "192.168.0.1"].map(class), [Some(8), Some(16), Some(24)]);
        assert_eq!(
            ["0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255"].map(class),
            [Some(0), None, Some(32), Some(0)]
        );
        let old = Address::new(Prefix::new("10.0.0.1".parse().unwrap(), 8));
        let len = |mask: &str| with_mask(old, mask.parse().unwrap()).map(|address| address.prefix.len);
        assert_eq!(["255.255.255.0", "0.0.0.0", "255.255.255.255"].map(len), [Ok(24), Ok(0), Ok(32)]);
        assert_eq!(len("255.0.255.0"), Err(Errno::EINVAL));
    }
}
