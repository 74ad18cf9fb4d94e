//! Netlink messages as this kernel reads and writes them, with the crate `netlink_wire`.

pub(super) use netlink_wire::{Attribute, HEADER, Header, Message, align, find, list, next};
use std::net::IpAddr;

/// SOCK_DIAG_BY_FAMILY.
const DIAG: u16 = 20;

/// Whether a request asks for all that there is. For rtnetlink and sock_diag one of the two flags of NLM_F_DUMP says so.
pub(super) fn dumps(header: &Header) -> bool {
    let flags = i32::from(header.flags) & libc::NLM_F_DUMP;
    let gets = header.kind % 4 == 2 || header.kind == DIAG;
    if gets { flags != 0 } else { flags == libc::NLM_F_DUMP }
}

/// Whether `bytes` are one request, which asks for a dump.
pub(super) fn is_one_dump(bytes: &[u8]) -> bool {
    next(bytes).is_some_and(|(header, _, rest)| rest.is_empty() && dumps(&header))
}

/// The value of an attribute behind a fixed part of `fixed` bytes.
pub(super) fn attribute(message: &[u8], fixed: usize, wanted: u16) -> Option<&[u8]> {
    find(netlink_wire::list_of(message, fixed), wanted)
}

/// The kinds of all attributes behind a fixed part of `fixed` bytes.
pub(super) fn attributes(message: &[u8], fixed: usize) -> impl Iterator<Item = u16> {
    kinds(netlink_wire::list_of(message, fixed))
}

/// The kinds of the attributes in a list.
pub(super) fn kinds(bytes: &[u8]) -> impl Iterator<Item = u16> {
    list(bytes).map(|attribute| attribute.kind)
}

/// An attribute as the value of another one holds it.
pub(super) fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    netlink_wire::put(&mut out, kind, value);
    out
}

/// The bytes of an address.
pub(super) fn bytes_of(ip: &IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// AF_INET or AF_INET6.
pub(super) fn family_of(ip: &IpAddr) -> i32 {
    if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}
