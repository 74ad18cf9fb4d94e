//! Addresses that a name of the policy never leads to, for any answer of a name server: those of private networks, and
//! this host's own.
//!
//! The operator of the name servers of an allowed name chooses the addresses in their answers. A program behind a
//! firewall must not be led to the machines behind it that way, so only an entry that holds the address or its network
//! allows these.

use rustix::net::{
    AddressFamily as Family, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// Networks of IPv4 that are not the public internet: this network, RFC 1918, shared (RFC 6598, also 100.100.100.200), loopback,
/// link-local (also 169.254.169.254), protocol assignments, benchmarks, multicast, reserved and broadcast.
const V4: [(Ipv4Addr, u8); 12] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure answers here on each virtual machine.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The same of IPv6: local-use NAT64 (RFC 8215), unique local (also fd00:ec2::254), link-local, site-local, multicast.
const V6: [(Ipv6Addr, u8); 5] = [
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

/// Whether an address is no public one, or carries one of IPv4 that is none.
pub(crate) fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => {
            V6.iter().any(|(net, bits)| (net.to_bits() ^ ip.to_bits()) >> (128 - bits) == 0)
                || carried(ip).into_iter().flatten().any(is_private_v4)
        }
    }
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    V4.iter().any(|(net, bits)| (net.to_bits() ^ ip.to_bits()) >> (32 - bits) == 0)
}

/// The addresses of IPv4 to which the host, or a gateway, sends what is for `ip`.
fn carried(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let s = ip.segments();
    let at = |place: usize| {
        let [a, b] = [s[place].to_be_bytes(), s[place + 1].to_be_bytes()];
        Ipv4Addr::new(a[0], a[1], b[0], b[1])
    };
    match s {
        // Mapped, compatible (the unspecified address and loopback are of this form), translated, and NAT64.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            [Some(at(6)), None]
        }
        // 6to4.
        [0x2002, ..] => [Some(at(1)), None],
        // Teredo: the server, and the client with its bits turned over.
        [0x2001, 0, ..] => [Some(at(2)), Some(Ipv4Addr::from_bits(!at(6).to_bits()))],
        _ => [None, None],
    }
}

/// This host's addresses.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Those that the command line knew at the start.
    known: Vec<IpAddr>,
    routes: Option<OwnedFd>,
}

impl Own {
    /// With `known`, and with those of the network namespace that the caller is in, as they are when it is asked.
    pub(crate) fn here(known: Vec<IpAddr>) -> std::io::Result<Own> {
        let routes = socket_with(
            Family::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok(Own { known, routes: Some(routes) })
    }

    /// Whether what is sent to `ip` stays on this host.
    pub(crate) fn holds(&self, ip: IpAddr) -> bool {
        self.known.contains(&ip) || self.routes.as_ref().is_some_and(|socket| !leads_away(socket, ip))
    }
}

/// Whether the host's routes lead away from it, or nowhere; false when there is no telling.
fn leads_away(socket: &OwnedFd, ip: IpAddr) -> bool {
    let mut answer = [0; 1024];
    if send(socket, &route_request(ip), SendFlags::empty()).is_err() {
        return false;
    }
    match recv(socket, &mut answer[..], RecvFlags::empty()) {
        Ok((length, _)) => judge(&answer[..length.min(answer.len())]),
        Err(_) => false,
    }
}

/// RTM_GETROUTE for one address, see rtnetlink(7).
fn route_request(ip: IpAddr) -> Vec<u8> {
    let (family, bytes) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let mut out = Vec::with_capacity(48);
    out.extend((32 + bytes.len() as u32).to_ne_bytes());
    out.extend(libc::RTM_GETROUTE.to_ne_bytes());
    out.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    out.extend([0; 8]);
    out.extend([family as u8, bytes.len() as u8 * 8]);
    out.extend([0; 10]);
    out.extend((4 + bytes.len() as u16).to_ne_bytes());
    out.extend(libc::RTA_DST.to_ne_bytes());
    out.extend(bytes);
    out
}

/// Whether an answer is a route to another machine, or says that there is none.
fn judge(answer: &[u8]) -> bool {
    let kind = answer.get(4..6).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    if kind == Some(libc::RTM_NEWROUTE) {
        return answer.get(23) == Some(&libc::RTN_UNICAST);
    }
    let error = answer.get(16..20).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    kind == Some(libc::NLMSG_ERROR as u16)
        && error.is_some_and(|error| [-libc::ENETUNREACH, -libc::EHOSTUNREACH].contains(&error))
}

#[cfg(test)]
impl Own {
    /// Just these.
    pub(crate) fn of(known: &[&str]) -> Own {
        Own { known: known.iter().map(|ip| ip.parse().unwrap()).collect(), routes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_are_not_public() {
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            // IPv6 of its own.
            "::",
            "::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "feff::1",
            "ff02::1",
            "64:ff9b:1::808:808",
            "64:ff9b:1:ffff::1",
            // IPv4 within IPv6: mapped, compatible, translated, NAT64, 6to4, Teredo's server and client.
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:0a00:0001::1",
            "2002:c0a8:0101::",
            "2001:0:0a00:1::",
            "2001:0:808:808:0:0:f5ff:fffe",
        ] {
            assert!(is_private(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn public_networks_beside_them() {
        for ip in [
            "1.0.0.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "191.255.255.255",
            "192.0.1.1",
            "192.167.255.255",
            "192.169.0.1",
            "198.17.255.255",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "fbff::1",
            "fe00::1",
            "64:ff9b::8.8.8.8",
            "64:ff9b:2::1",
            "::ffff:8.8.8.8",
            "2002:0808:0808::1",
            "2001:0:808:808:0:0:f7f7:f7f7",
            "2001:1::10.0.0.1",
        ] {
            assert!(!is_private(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn own_addresses() {
        assert!(Own::of(&["203.0.113.7"]).holds("203.0.113.7".parse().unwrap()));
        assert!(!Own::of(&["203.0.113.7"]).holds("203.0.113.8".parse().unwrap()));
        // Of the loopback interface, which is up or down.
        let own = Own::here(Vec::new()).unwrap();
        if std::fs::read_to_string("/proc/net/fib_trie").is_ok_and(|trie| trie.contains("127.0.0.1")) {
            assert!(own.holds("127.0.0.1".parse().unwrap()));
        }
    }

    #[test]
    fn answers_about_routes() {
        let route = |kind: u8| {
            let mut bytes = vec![0; 28];
            bytes[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
            bytes[23] = kind;
            judge(&bytes)
        };
        assert!(route(libc::RTN_UNICAST));
        assert!(!route(libc::RTN_LOCAL) && !route(libc::RTN_BROADCAST) && !route(libc::RTN_ANYCAST));
        let error = |errno: i32| {
            let mut bytes = vec![0; 36];
            bytes[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
            bytes[16..20].copy_from_slice(&(-errno).to_ne_bytes());
            judge(&bytes)
        };
        assert!(error(libc::ENETUNREACH) && !error(libc::EPERM));
        assert!(!judge(&[]) && !judge(&[0; 20]));
    }
}
