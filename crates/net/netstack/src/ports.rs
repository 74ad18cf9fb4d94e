//! The rules for sockets that bind the same port, and ephemeral ports.

use crate::addr::unspecified;
use crate::keys::Keys;
use std::net::{IpAddr, SocketAddr};

/// The local side of a bound socket, with what matters to other sockets that want the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Binding {
    /// The address; unspecified for all.
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
    /// An IPv6 socket that takes IPv4 traffic, too.
    pub(crate) dual: bool,
    /// Interface, 0 for all.
    pub(crate) device: u32,
    pub(crate) reuse_addr: bool,
    pub(crate) reuse_port: bool,
    pub(crate) uid: u32,
    /// TCP: the socket listens, so SO_REUSEADDR does not let others in.
    pub(crate) listening: bool,
    /// TCP: connect(2) chose the port; others may have it with another peer.
    pub(crate) by_connect: bool,
}

impl Binding {
    /// True when traffic to `ip` belongs to the binding.
    pub(crate) fn covers(&self, ip: IpAddr) -> bool {
        if self.ip.is_unspecified() { self.ip.is_ipv4() == ip.is_ipv4() || self.dual } else { self.ip == ip }
    }

    /// True when some traffic would belong to both.
    fn overlaps(&self, other: &Binding) -> bool {
        let devices = self.device == 0 || other.device == 0 || self.device == other.device;
        let addresses = match (self.ip.is_unspecified(), other.ip.is_unspecified()) {
            (false, _) => other.covers(self.ip),
            // An accepted socket of a dual listener stays in the way of every IPv4 address.
            (true, false) => self.covers(other.ip) || self.ip.is_ipv4() && other.dual,
            (true, true) => self.dual || other.dual || self.ip.is_ipv4() == other.ip.is_ipv4(),
        };
        devices && addresses && self.port == other.port
    }

    /// True when the two may not both be bound (socket(7): SO_REUSEADDR, SO_REUSEPORT).
    pub(crate) fn conflicts(&self, other: &Binding) -> bool {
        if !self.overlaps(other) || (self.by_connect && other.by_connect) {
            return false;
        }
        let shared_port = self.reuse_port && other.reuse_port && self.uid == other.uid;
        let shared_address = self.reuse_addr && other.reuse_addr && !other.listening;
        !(shared_port || shared_address)
    }

    /// True when the two belong to one group of SO_REUSEPORT.
    pub(crate) fn shares(&self, other: &Binding) -> bool {
        let told = |b: &Binding| (b.ip, b.port, b.dual, b.device, b.uid);
        self.reuse_port && other.reuse_port && told(self) == told(other)
    }

    /// The address as a socket address.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }
}

/// How well a binding fits traffic; the highest wins, `None` does not fit.
pub(crate) fn score(
    binding: &Binding,
    remote: Option<SocketAddr>,
    to: IpAddr,
    from: SocketAddr,
    device: u32,
) -> Option<u32> {
    if !binding.covers(to) || (binding.device != 0 && binding.device != device) {
        return None;
    }
    let connected = match remote {
        Some(remote) if remote.ip() == from.ip() && remote.port() == from.port() => 8,
        Some(_) => return None,
        None => 0,
    };
    let address = if binding.ip.is_unspecified() { 0 } else { 4 };
    let device = if binding.device != 0 { 2 } else { 0 };
    let family = u32::from(binding.ip.is_ipv4() == to.is_ipv4());
    Some(connected + address + device + family)
}

/// Ports of the range in an order that cannot be guessed from outside (RFC 6056).
pub(crate) fn candidates(
    keys: &Keys,
    (low, high): (u16, u16),
    salt: u64,
) -> impl Iterator<Item = u16> + use<> {
    let count = u32::from(high - low) + 1;
    let start = (salt ^ keys.random()) as u32 % count;
    (0..count).map(move |n| low + ((start + n) % count) as u16)
}

/// A socket address without flow label and scope, for tables.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// True when a socket address is the unspecified one.
pub(crate) fn is_any(ip: IpAddr) -> bool {
    ip == unspecified(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(ip: &str) -> Binding {
        Binding {
            ip: ip.parse().unwrap(),
            port: 80,
            dual: ip == "::",
            device: 0,
            reuse_addr: false,
            reuse_port: false,
            uid: 0,
            listening: false,
            by_connect: false,
        }
    }

    #[test]
    fn conflicts() {
        let (any4, any6, one) = (binding("0.0.0.0"), binding("::"), binding("10.0.0.1"));
        assert!(any4.conflicts(&any6) && any6.conflicts(&one) && one.conflicts(&any4));
        let only = Binding { dual: false, ..any6 };
        assert!(!only.conflicts(&any4) && !only.conflicts(&one));
        assert!(!one.conflicts(&binding("10.0.0.2")));
        let accepted = Binding { dual: true, ..binding("::1") };
        assert!(any4.conflicts(&accepted) && !one.conflicts(&accepted) && !any4.conflicts(&binding("::1")));
        let reuse = |b: Binding| Binding { reuse_addr: true, ..b };
        assert!(!reuse(any4).conflicts(&reuse(one)) && reuse(any4).conflicts(&one));
        assert!(reuse(any4).conflicts(&Binding { listening: true, ..reuse(one) }));
        let port = |uid| Binding { reuse_port: true, uid, listening: true, ..one };
        assert!(!port(1).conflicts(&port(1)) && port(1).conflicts(&port(2)));
        assert!(!Binding { device: 2, ..one }.conflicts(&Binding { device: 3, ..one }));
    }

    #[test]
    fn every_port_of_the_range_is_tried() {
        let mut ports: Vec<u16> = candidates(&Keys::new([1; 16]), (65000, 65535), 7).collect();
        ports.sort_unstable();
        assert!(ports.into_iter().eq(65000..=65535));
    }
}
