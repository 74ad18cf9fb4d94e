//! Internet addresses: as the system call interface has them, and in messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of an address in a message, whatever its family.
pub const FRAME: usize = 28;

/// sizeof(struct sockaddr_in).
pub const SOCKADDR_IN: usize = 16;
/// sizeof(struct sockaddr_in6), and without the scope (SIN6_LEN_RFC2133), which Linux takes as well.
pub const SOCKADDR_IN6: usize = 28;
const SIN6_LEN_RFC2133: usize = 24;

/// A `struct sockaddr_in` or `sockaddr_in6`.
pub fn to_sockaddr(addr: &SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(SOCKADDR_IN6);
    match addr {
        SocketAddr::V4(v4) => {
            out.extend((libc::AF_INET as u16).to_ne_bytes());
            out.extend(v4.port().to_be_bytes());
            out.extend(v4.ip().octets());
            out.resize(SOCKADDR_IN, 0);
        }
        SocketAddr::V6(v6) => {
            out.extend((libc::AF_INET6 as u16).to_ne_bytes());
            out.extend(v6.port().to_be_bytes());
            out.extend(v6.flowinfo().to_ne_bytes());
            out.extend(v6.ip().octets());
            out.extend(v6.scope_id().to_ne_bytes());
        }
    }
    out
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6`; `None` for any other family or a short one.
pub fn from_sockaddr(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(take(bytes, 2)?);
    match i32::from(u16::from_ne_bytes(take(bytes, 0)?)) {
        libc::AF_INET if bytes.len() >= SOCKADDR_IN => {
            let ip = Ipv4Addr::from(take::<4>(bytes, 4)?);
            Some(SocketAddrV4::new(ip, port).into())
        }
        libc::AF_INET6 if bytes.len() >= SIN6_LEN_RFC2133 => {
            let ip = Ipv6Addr::from(take::<16>(bytes, 8)?);
            let scope = take(bytes, 24).map_or(0, u32::from_ne_bytes);
            Some(SocketAddrV6::new(ip, port, u32::from_ne_bytes(take(bytes, 4)?), scope).into())
        }
        _ => None,
    }
}

/// As messages have it.
pub fn to_frame(addr: &SocketAddr) -> [u8; FRAME] {
    let mut out = [0; FRAME];
    out[2..4].copy_from_slice(&addr.port().to_le_bytes());
    match addr {
        SocketAddr::V4(v4) => {
            out[0] = 4;
            out[4..8].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            out[0] = 6;
            out[4..20].copy_from_slice(&v6.ip().octets());
            out[20..24].copy_from_slice(&v6.flowinfo().to_le_bytes());
            out[24..28].copy_from_slice(&v6.scope_id().to_le_bytes());
        }
    }
    out
}

/// Reads what [`to_frame`] wrote, and nothing else.
pub fn from_frame(bytes: &[u8; FRAME]) -> Option<SocketAddr> {
    let port = u16::from_le_bytes([bytes[2], bytes[3]]);
    let addr = match bytes[0] {
        4 => SocketAddrV4::new(take::<4>(bytes, 4)?.into(), port).into(),
        6 => {
            let (flow, scope) = (u32::from_le_bytes(take(bytes, 20)?), u32::from_le_bytes(take(bytes, 24)?));
            SocketAddrV6::new(take::<16>(bytes, 4)?.into(), port, flow, scope).into()
        }
        _ => return None,
    };
    (to_frame(&addr) == *bytes).then_some(addr)
}

/// The address that a connection to `ip` reaches: an IPv4 address in IPv6 form is that IPv4 address, and Linux takes the
/// unspecified address for this host.
pub fn canonical(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> [SocketAddr; 3] {
        let linked = SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 7, 3);
        ["127.0.0.1:80".parse().unwrap(), "[::ffff:1.2.3.4]:443".parse().unwrap(), linked.into()]
    }

    #[test]
    fn both_forms_round_trip() {
        for addr in samples() {
            assert_eq!(from_sockaddr(&to_sockaddr(&addr)), Some(addr));
            assert_eq!(from_frame(&to_frame(&addr)), Some(addr));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let v4 = to_sockaddr(&samples()[0]);
        assert_eq!(from_sockaddr(&v4[..15]), None);
        assert_eq!(from_sockaddr(&[1, 0, 0, 0]), None);
        let v6 = to_sockaddr(&samples()[2]);
        assert!(from_sockaddr(&v6[..24]).is_some() && from_sockaddr(&v6[..23]).is_none());
        let mut frame = to_frame(&samples()[0]);
        frame[27] = 1;
        assert_eq!(from_frame(&frame), None);
        assert_eq!(from_frame(&[0; FRAME]), None);
    }

    #[test]
    fn one_host_has_one_form() {
        let is = |text: &str, want: &str| assert_eq!(canonical(text.parse().unwrap()).to_string(), want);
        is("::ffff:10.0.0.1", "10.0.0.1");
        is("0.0.0.0", "127.0.0.1");
        is("::ffff:0.0.0.0", "127.0.0.1");
        is("::", "::1");
        is("2001:db8::1", "2001:db8::1");
    }
}
