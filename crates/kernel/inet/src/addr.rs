//! `struct sockaddr_in` and `sockaddr_in6` as bytes. Pure.

use abi::{Errno, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// sizeof(struct sockaddr_in).
const LEN4: usize = 16;
/// sizeof(struct sockaddr_in6).
const LEN6: usize = 28;
/// sizeof(struct sockaddr_in6) without the scope, which old programs do not have (SIN6_LEN_RFC2133).
const SHORT6: usize = 24;

/// The address family of an address; EINVAL when it is too short to have one.
pub(crate) fn family(addr: &[u8]) -> Result<i32> {
    addr.first_chunk().map(|b| i32::from(u16::from_ne_bytes(*b))).ok_or(Errno::EINVAL)
}

fn bytes<const N: usize>(addr: &[u8], at: usize) -> Result<[u8; N]> {
    addr.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(Errno::EINVAL)
}

fn port(addr: &[u8]) -> Result<u16> {
    bytes(addr, 2).map(u16::from_be_bytes)
}

/// A `sockaddr_in` whatever its family says; EINVAL when it is too short.
pub(crate) fn v4(addr: &[u8]) -> Result<SocketAddrV4> {
    if addr.len() < LEN4 {
        return Err(Errno::EINVAL);
    }
    Ok(SocketAddrV4::new(Ipv4Addr::from(bytes::<4>(addr, 4)?), port(addr)?))
}

/// A `sockaddr_in6` whatever its family says; EINVAL when it is too short.
pub(crate) fn v6(addr: &[u8]) -> Result<SocketAddrV6> {
    if addr.len() < SHORT6 {
        return Err(Errno::EINVAL);
    }
    let scope = if addr.len() < LEN6 { 0 } else { u32::from_ne_bytes(bytes(addr, 24)?) };
    let flow = u32::from_be_bytes(bytes(addr, 4)?);
    Ok(SocketAddrV6::new(Ipv6Addr::from(bytes::<16>(addr, 8)?), port(addr)?, flow, scope))
}

/// An address for bind(2).
pub(crate) fn to_bind(is_v6: bool, addr: &[u8]) -> Result<SocketAddr> {
    if is_v6 {
        let named = v6(addr)?;
        return if family(addr)? == libc::AF_INET6 { Ok(named.into()) } else { Err(Errno::EAFNOSUPPORT) };
    }
    let named = v4(addr)?;
    // Programs of old bind to the unspecified address without naming a family.
    match family(addr)? {
        libc::AF_INET => Ok(named.into()),
        libc::AF_UNSPEC if named.ip().is_unspecified() => Ok(named.into()),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// An address for connect(2) of a stream.
pub(crate) fn to_connect(is_v6: bool, addr: &[u8]) -> Result<SocketAddr> {
    let (named, wanted): (SocketAddr, _) =
        if is_v6 { (v6(addr)?.into(), libc::AF_INET6) } else { (v4(addr)?.into(), libc::AF_INET) };
    if family(addr)? == wanted { Ok(named) } else { Err(Errno::EAFNOSUPPORT) }
}

/// An IPv4 address as an IPv6 socket names it.
pub(crate) fn mapped(v4: SocketAddrV4) -> SocketAddr {
    SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
}

/// An address as bytes, of the family that it has.
pub(crate) fn to_bytes(addr: SocketAddr) -> Vec<u8> {
    match addr {
        SocketAddr::V4(v4) => {
            let mut out = Vec::with_capacity(LEN4);
            out.extend((libc::AF_INET as u16).to_ne_bytes());
            out.extend(v4.port().to_be_bytes());
            out.extend(v4.ip().octets());
            out.resize(LEN4, 0);
            out
        }
        SocketAddr::V6(v6) => {
            let mut out = Vec::with_capacity(LEN6);
            out.extend((libc::AF_INET6 as u16).to_ne_bytes());
            out.extend(v6.port().to_be_bytes());
            out.extend(v6.flowinfo().to_be_bytes());
            out.extend(v6.ip().octets());
            out.extend(v6.scope_id().to_ne_bytes());
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for text in ["127.0.0.1:80", "[fe80::1]:65535", "[::ffff:1.2.3.4]:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            let raw = to_bytes(addr);
            assert_eq!(to_bind(addr.is_ipv6(), &raw), Ok(addr));
            assert_eq!(to_connect(addr.is_ipv6(), &raw), Ok(addr));
            assert!(to_bind(!addr.is_ipv6(), &raw).is_err());
            for len in 0..raw.len() {
                let short = to_bind(addr.is_ipv6(), &raw[..len]);
                assert_eq!(short.is_ok(), addr.is_ipv6() && len >= SHORT6);
            }
        }
        assert_eq!(to_bind(false, &[0; 16]), Ok("0.0.0.0:0".parse().unwrap()));
        assert_eq!(to_connect(false, &[0; 16]), Err(Errno::EAFNOSUPPORT));
    }
}
