//! Patterns of addresses: networks with ports, paths and abstract names of Unix sockets.

use crate::glob::{Glob, Pattern};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address as the kernel has resolved it.
///
/// The caller gives the address that is really used: connecting to 0.0.0.0 or [::] reaches the local host, so that
/// is then 127.0.0.1 or [::1].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// An IP address and port (0 where the protocol has none).
    Ip(IpAddr, u16),
    /// A Unix socket's path, as the container sees it.
    Path(&'a [u8]),
    /// The abstract name of a Unix socket, without the zero byte before it.
    Abstract(&'a [u8]),
    /// An address of another family, or an unnamed Unix socket.
    Other,
}

/// A pattern of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPattern {
    text: String,
    kind: PatternKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternKind {
    Ip { network: Option<Network>, low: u16, high: u16 },
    Path(Pattern),
    Abstract(Glob),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    v6: bool,
    bits: u128,
    mask: u128,
}

impl Network {
    fn parse(text: &str) -> Result<Network, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let Ok(ip) = address.parse::<IpAddr>() else {
            let numeric = address.contains(':') || address.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            return Err(if numeric {
                format!("{address:?} is no IP address")
            } else {
                format!(
                    "{address:?} is a name: the kernel sees addresses only, so write those (or a network)"
                )
            });
        };
        if matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
            return Err("an IPv4 address in IPv6's form is compared as IPv4: write it so".into());
        }
        let (v6, bits, most) = parts(ip);
        let length = match length {
            Some(length) => length.parse::<u32>().ok().filter(|length| *length <= most),
            None => Some(most),
        };
        let length = length.ok_or_else(|| format!("the length of a network's prefix is 0 to {most}"))?;
        let mask = low(most) & !low(most - length);
        if bits & !mask != 0 {
            return Err(format!("{text} has bits set behind its prefix: write the network's first address"));
        }
        Ok(Network { v6, bits, mask })
    }

    fn has(&self, ip: IpAddr) -> bool {
        let (v6, bits, _) = parts(ip);
        v6 == self.v6 && bits & self.mask == self.bits
    }

    fn covers(&self, other: &Network) -> bool {
        self.v6 == other.v6 && self.mask & other.mask == self.mask && other.bits & self.mask == self.bits
    }
}

/// The lowest `count` bits.
fn low(count: u32) -> u128 {
    1u128.checked_shl(count).unwrap_or(0).wrapping_sub(1)
}

fn parts(ip: IpAddr) -> (bool, u128, u32) {
    match ip {
        IpAddr::V4(ip) => (false, u128::from(Ipv4Addr::to_bits(ip)), 32),
        IpAddr::V6(ip) => (true, Ipv6Addr::to_bits(ip), 128),
    }
}

impl AddressPattern {
    /// Reads `NETWORK`, `NETWORK:PORTS`, `[NETWORK]:PORTS`, `*:PORTS`, `/path` or `@name`.
    pub fn parse(text: &str) -> Result<AddressPattern, String> {
        let kind = if text.starts_with('/') {
            PatternKind::Path(Pattern::parse(text)?)
        } else if let Some(name) = text.strip_prefix('@') {
            PatternKind::Abstract(Glob::parse(name)?)
        } else {
            ip(text)?
        };
        Ok(AddressPattern { text: text.to_owned(), kind })
    }

    /// True for an address that the pattern describes.
    pub fn matches(&self, address: Address<'_>) -> bool {
        match (&self.kind, address) {
            (PatternKind::Ip { network, low, high }, Address::Ip(ip, port)) => {
                let ip = ip.to_canonical();
                (*low..=*high).contains(&port) && network.is_none_or(|network| network.has(ip))
            }
            (PatternKind::Path(pattern), Address::Path(path)) => pattern.matches(path),
            (PatternKind::Abstract(glob), Address::Abstract(name)) => glob.matches(name),
            _ => false,
        }
    }

    /// The pattern of paths, of one about Unix sockets in directories.
    pub(crate) fn path(&self) -> Option<&Pattern> {
        match &self.kind {
            PatternKind::Path(pattern) => Some(pattern),
            _ => None,
        }
    }

    /// True when this pattern matches all that `other` matches; false also when that is not easily seen.
    pub(crate) fn covers(&self, other: &AddressPattern) -> bool {
        match (&self.kind, &other.kind) {
            (
                PatternKind::Ip { network, low, high },
                PatternKind::Ip { network: narrow, low: from, high: to },
            ) => {
                let wide = match (network, narrow) {
                    (None, _) => true,
                    (Some(network), Some(narrow)) => network.covers(narrow),
                    (Some(_), None) => false,
                };
                wide && low <= from && to <= high
            }
            (PatternKind::Path(wide), PatternKind::Path(narrow)) => wide.covers(narrow),
            (PatternKind::Abstract(wide), PatternKind::Abstract(narrow)) => wide.covers(narrow),
            _ => false,
        }
    }
}

impl fmt::Display for AddressPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn ip(text: &str) -> Result<PatternKind, String> {
    let (network, ports) = if let Some(inside) = text.strip_prefix('[') {
        let (network, rest) = inside.split_once(']').ok_or("[ without a ]")?;
        match rest.strip_prefix(':') {
            Some(ports) => (network, Some(ports)),
            None if rest.is_empty() => (network, None),
            None => return Err(format!("{rest:?} behind ] is no port: write [{network}]:PORT")),
        }
    } else if text.matches(':').count() == 1 {
        text.split_once(':').map_or((text, None), |(network, ports)| (network, Some(ports)))
    } else {
        (text, None)
    };
    let (low, high) = match ports {
        None | Some("*") => (0, u16::MAX),
        Some(ports) => {
            let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
            let range =
                low.parse().ok().zip(high.parse().ok()).filter(|(low, high): &(u16, u16)| low <= high);
            range.ok_or_else(|| format!("{ports:?} is no port and no range of ports, as 443 or 8000-8999"))?
        }
    };
    let network = if network == "*" { None } else { Some(Network::parse(network)?) };
    Ok(PatternKind::Ip { network, low, high })
}

/// Reads an address of a case: `IP:PORT`, `[IP]:PORT`, `/path` or `@name`.
pub(crate) fn parse_address(text: &str) -> Result<Address<'_>, String> {
    if text.starts_with('/') {
        return Ok(Address::Path(text.as_bytes()));
    }
    if let Some(name) = text.strip_prefix('@') {
        return Ok(Address::Abstract(name.as_bytes()));
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Ok(Address::Ip(address.ip(), address.port()));
    }
    let ip = text
        .parse()
        .map_err(|_| format!("{text:?} is no address: write IP:PORT, [IP]:PORT, /path or @name"))?;
    Ok(Address::Ip(ip, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, address: &str) -> bool {
        AddressPattern::parse(pattern).unwrap().matches(parse_address(address).unwrap())
    }

    #[test]
    fn networks_and_ports() {
        for (pattern, yes, no) in [
            (
                "10.0.0.0/8",
                &["10.1.2.3:80", "[::ffff:10.1.2.3]:80"][..],
                &["11.0.0.1:80", "[::a00:1]:80"][..],
            ),
            ("10.1.2.3:443", &["10.1.2.3:443"], &["10.1.2.3:80", "10.1.2.4:443"]),
            ("*:8000-8999", &["1.2.3.4:8000", "[fd00::1]:8999"], &["1.2.3.4:9000"]),
            ("[fd00::/8]:22", &["[fd00::1]:22"], &["[fd00::1]:23", "[fe80::1]:22"]),
            ("fd00::/8", &["[fd00::1]:22"], &["10.0.0.1:22"]),
            ("::/0", &["[2001:db8::1]:1"], &["10.0.0.1:1"]),
            ("0.0.0.0/0", &["10.0.0.1:1"], &["[::1]:1"]),
            ("::1", &["[::1]:5"], &["[::2]:5"]),
            ("/run/*.sock", &["/run/x.sock"], &["@/run/x.sock", "/run/x"]),
            ("@x*", &["@xyz"], &["/xyz", "@yx"]),
        ] {
            for address in yes {
                assert!(matches(pattern, address), "{pattern} {address}");
            }
            for address in no {
                assert!(!matches(pattern, address), "{pattern} {address}");
            }
        }
        assert!(!AddressPattern::parse("*:1-65535").unwrap().matches(Address::Other));
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (pattern, message) in [
            ("example.com:443", "is a name"),
            ("localhost", "is a name"),
            ("10.0.0.1/8", "first address"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/8:x", "no port"),
            ("10.0.0.0:9-8", "no port"),
            ("10.0.0", "no IP address"),
            ("[::1", "without a ]"),
            ("[::1]80", "]:PORT"),
            ("::ffff:1.2.3.4", "as IPv4"),
        ] {
            let error = AddressPattern::parse(pattern).unwrap_err();
            assert!(error.contains(message), "{pattern}: {error}");
        }
    }

    #[test]
    fn covering() {
        let covers =
            |a: &str, b: &str| AddressPattern::parse(a).unwrap().covers(&AddressPattern::parse(b).unwrap());
        assert!(
            covers("10.0.0.0/8", "10.1.0.0/16:80")
                && covers("*:80", "1.2.3.4:80")
                && covers("/run/", "/run/x")
        );
        assert!(!covers("10.1.0.0/16", "10.0.0.0/8") && !covers("0.0.0.0/0", "*:80") && !covers("@x", "/x"));
        assert!(!covers("10.0.0.0/8:80", "10.1.2.3"));
    }
}
