//! The destinations that a sandbox may reach: `--allow-net HOST[:PORT][/tcp|udp],...`.
//!
//! An entry allows connecting to an address, sending datagrams to it, and listening on it where it is one of the host's own.
//! HOST is a name, `*.` and a name for the names below it, an address, a network as `10.0.0.0/8`, or `*` for every address. IPv6 addresses
//! with a port stand in brackets.

use netproto::Kind;
use netproto::address::canonical;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Longest name in the domain name system, in characters.
const MAX_NAME: usize = 253;
/// Most entries of a policy.
const MAX_ENTRIES: usize = 4096;

/// The entries; what none of them allows is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    host: Host,
    port: Option<u16>,
    protocol: Option<Protocol>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Host {
    Any,
    Name(String),
    /// Names below this one.
    Below(String),
    Network(IpAddr, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// Of a kind of socket; echo requests are neither.
    fn of(kind: Kind) -> Option<Protocol> {
        match kind {
            Kind::Stream => Some(Self::Tcp),
            Kind::Datagram => Some(Self::Udp),
            Kind::Ping => None,
        }
    }
}

/// Which names an address is known under.
pub trait Names {
    /// Whether `name` has led to `ip`.
    fn leads_to(&self, name: &str, ip: IpAddr) -> bool;
    /// Whether some name below `parent` has.
    fn below_leads_to(&self, parent: &str, ip: IpAddr) -> bool;
}

impl Policy {
    /// The entries of all of them; nothing for none.
    pub fn all(policies: &[Policy]) -> Option<Policy> {
        let entries: Vec<Entry> = policies.iter().flat_map(|policy| policy.entries.clone()).collect();
        (!policies.is_empty()).then_some(Policy { entries })
    }

    /// Whether a socket of that kind may have `addr` as its peer.
    pub fn allows(&self, kind: Kind, addr: SocketAddr, names: &dyn Names) -> bool {
        let ip = canonical(addr.ip());
        self.matches(kind, addr.port(), |host| match host {
            Host::Any => true,
            Host::Network(network, bits) => contains(*network, *bits, ip),
            Host::Name(name) => names.leads_to(name, ip),
            Host::Below(parent) => names.below_leads_to(parent, ip),
        })
    }

    /// Whether a socket of that kind may receive at the local address `addr`. The unspecified address is itself here.
    pub fn allows_local(&self, kind: Kind, addr: SocketAddr) -> bool {
        let ip = addr.ip().to_canonical();
        self.matches(kind, addr.port(), |host| match host {
            Host::Any => true,
            Host::Network(network, bits) => contains(*network, *bits, ip),
            Host::Name(_) | Host::Below(_) => false,
        })
    }

    fn matches(&self, kind: Kind, port: u16, mut host: impl FnMut(&Host) -> bool) -> bool {
        let protocol = Protocol::of(kind);
        self.entries.iter().any(|entry| {
            let port_fits = entry.port.is_none_or(|wanted| kind != Kind::Ping && wanted == port);
            let protocol_fits = entry.protocol.is_none_or(|wanted| protocol == Some(wanted));
            port_fits && protocol_fits && host(&entry.host)
        })
    }

    /// Whether a name may be looked up. It is in lower case, without a dot at the end.
    pub fn names(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| match &entry.host {
            Host::Any => true,
            Host::Name(known) => known == name,
            Host::Below(parent) => is_below(name, parent),
            Host::Network(..) => false,
        })
    }

    /// The names that entries have in full.
    pub fn whole_names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| match &entry.host {
            Host::Name(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

/// Whether `name` ends in a dot and `parent`.
pub(crate) fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
}

fn contains(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    let shift = |width: u8| u32::from(width.saturating_sub(bits));
    match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(shift(32)).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(shift(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entries: Vec<Entry> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        if entries.len() > MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} entries"));
        }
        Ok(Policy { entries })
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, "tcp")) => (rest, Some(Protocol::Tcp)),
            Some((rest, "udp")) => (rest, Some(Protocol::Udp)),
            _ => (text, None),
        };
        let (host, port) = split_port(rest);
        let wrong = |what: &str| format!("{text:?}: {what}; use HOST[:PORT][/tcp|udp]");
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port != 0 => Some(port),
            Some(_) => return Err(wrong("the port is not a number from 1 to 65535")),
        };
        Ok(Entry { host: host.parse().map_err(|what: String| wrong(&what))?, port, protocol })
    }
}

/// Host and port. Colons are part of an IPv6 address that is not in brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        && let Some(port) = rest.strip_prefix(':').map(Some).or(rest.is_empty().then_some(None))
    {
        return (host, port);
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Host::Any);
        }
        if let Some(network) = network(text)? {
            return Ok(network);
        }
        if let Some(parent) = text.strip_prefix("*.") {
            return Ok(Host::Below(name(parent)?));
        }
        name(text).map(Host::Name)
    }
}

/// An address, or a network; `None` for what looks like neither.
fn network(text: &str) -> Result<Option<Host>, String> {
    let (ip, bits) = match text.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits)),
        None => (text, None),
    };
    let Ok(ip) = ip.parse::<IpAddr>() else {
        return match bits {
            Some(_) => Err("the network is not an address and a number of bits".into()),
            None => Ok(None),
        };
    };
    let width = if ip.is_ipv4() { 32 } else { 128 };
    let bits = match bits.map(str::parse::<u8>) {
        None => width,
        Some(Ok(bits)) if bits <= width => bits,
        Some(_) => return Err(format!("the number of bits is not one from 0 to {width}")),
    };
    // Peers are compared in the same form.
    Ok(Some(match ip.to_canonical() {
        v4 @ IpAddr::V4(_) if width == 128 && bits >= 96 => Host::Network(v4, bits - 96),
        _ => Host::Network(ip, bits),
    }))
}

/// A host name in lower case, without a dot at the end.
fn name(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label = |label: &str| {
        let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..64).contains(&label.len()) && label.bytes().all(valid)
    };
    if matches!(name.as_str(), "all" | "any" | "none") {
        return Err("this is no host name; every address is *".into());
    }
    if name.len() > MAX_NAME || !name.split('.').all(label) {
        return Err("this is no host name, address or network".into());
    }
    // "1.2.3" is an address to some programs, and a typing error to us.
    if name.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err("this is no complete address".into());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct KnownNames(&'static [(&'static str, &'static str)]);

    impl Names for KnownNames {
        fn leads_to(&self, name: &str, ip: IpAddr) -> bool {
            self.0.iter().any(|(n, i)| *n == name && i.parse() == Ok(ip))
        }
        fn below_leads_to(&self, parent: &str, ip: IpAddr) -> bool {
            self.0.iter().any(|(n, i)| is_below(n, parent) && i.parse() == Ok(ip))
        }
    }

    fn allows(policy: &str, kind: Kind, addr: &str) -> bool {
        let known = KnownNames(&[("index.example", "192.0.2.7"), ("a.b.example", "2001:db8::7")]);
        policy.parse::<Policy>().unwrap().allows(kind, addr.parse().unwrap(), &known)
    }

    #[test]
    fn entries_allow_what_they_name() {
        use Kind::{Datagram, Ping, Stream};
        assert!(allows("index.example:443", Stream, "192.0.2.7:443"));
        assert!(!allows("index.example:443", Stream, "192.0.2.7:80"));
        assert!(!allows("index.example:443", Stream, "192.0.2.8:443"));
        assert!(allows("INDEX.example.", Stream, "[::ffff:192.0.2.7]:80"));
        assert!(allows("*.example:80", Stream, "[2001:db8::7]:80"));
        assert!(!allows("*.a.b.example", Stream, "[2001:db8::7]:80"));
        assert!(allows("10.0.0.0/8:53/udp", Datagram, "10.255.0.1:53"));
        assert!(!allows("10.0.0.0/8:53/udp", Stream, "10.255.0.1:53"));
        assert!(!allows("10.0.0.0/8", Stream, "11.0.0.1:53"));
        assert!(allows(
            "x.example,[2001:db8::]/32:1/tcp".replace("]/32", "/32]").as_str(),
            Stream,
            "[2001:db8:1::]:1"
        ));
        assert!(allows("2001:db8::1", Ping, "[2001:db8::1]:0"));
        assert!(!allows("2001:db8::1/udp", Ping, "[2001:db8::1]:0"));
        assert!(!allows("[2001:db8::1]:0".replace(":0", ":7").as_str(), Ping, "[2001:db8::1]:7"));
        assert!(allows("*:80", Stream, "203.0.113.9:80"));
        assert!(allows("0.0.0.0/0", Stream, "203.0.113.9:80"));
        assert!(!allows("0.0.0.0/0", Stream, "[2001:db8::1]:80"));
        assert!(allows("::ffff:127.0.0.1", Stream, "127.0.0.1:80"));
    }

    #[test]
    fn another_form_of_an_address_is_the_same_address() {
        for peer in ["127.0.0.1:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::ffff:0.0.0.0]:80"] {
            assert!(allows("127.0.0.1:80", Kind::Stream, peer), "{peer}");
            assert!(!allows("192.0.2.7,0.0.0.0", Kind::Stream, peer), "{peer}");
        }
        assert!(allows("::1", Kind::Stream, "[::]:80"));
    }

    #[test]
    fn listening_is_allowed_by_local_addresses() {
        let local = |policy: &str, addr: &str| {
            policy.parse::<Policy>().unwrap().allows_local(Kind::Stream, addr.parse().unwrap())
        };
        assert!(local("127.0.0.1", "127.0.0.1:40000"));
        assert!(local("127.0.0.1:80", "[::ffff:127.0.0.1]:80"));
        assert!(!local("127.0.0.1:80", "0.0.0.0:80") && !local("index.example", "192.0.2.7:80"));
        assert!(local("0.0.0.0:80", "0.0.0.0:80") && local("*:80", "[::]:80"));
    }

    #[test]
    fn names_to_be_looked_up() {
        let policy: Policy = "index.example:443,*.files.example,10.0.0.0/8".parse().unwrap();
        for (name, allowed) in [
            ("index.example", true),
            ("a.index.example", false),
            ("x.files.example", true),
            ("files.example", false),
            ("xfiles.example", false),
        ] {
            assert_eq!(policy.names(name), allowed, "{name}");
        }
        assert_eq!(policy.whole_names().collect::<Vec<_>>(), ["index.example"]);
    }

    #[test]
    fn mistakes_are_refused() {
        assert!("all".parse::<Policy>().unwrap_err().contains("every address is *"));
        for bad in [
            "",
            ",",
            "a,",
            "a:0",
            "a:x",
            "a:65536",
            "10.0.0.0/33",
            "1.2.3",
            "a/8",
            "a_b!",
            "a..b",
            "[::1]x",
            "*.",
            "a:",
            "all",
            "any:443",
        ] {
            assert!(bad.parse::<Policy>().is_err(), "{bad:?}");
        }
    }
}
