//! The fixed part and the attributes of a request, and the interfaces and names in it.

use super::error::Result;
use super::wire::{self, HEADER};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::Stack;
use netstack::iface::Iface;
use std::net::IpAddr;
use std::sync::Arc;

/// A request with a fixed part and attributes.
pub(super) struct Request<'a> {
    bytes: &'a [u8],
    fixed: usize,
}

impl<'a> Request<'a> {
    /// With attributes of these kinds only.
    pub(super) fn new(bytes: &'a [u8], fixed: usize, known: &[u16]) -> Result<Request<'a>> {
        if bytes.len() < HEADER + fixed {
            return Err(Errno::EINVAL.into());
        }
        match wire::attributes(bytes, fixed).all(|kind| known.contains(&kind)) {
            true => Ok(Request { bytes, fixed }),
            false => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.bytes.get(HEADER + at).copied().unwrap_or(0)
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        let word = self.bytes.get(HEADER + at..).and_then(<[u8]>::first_chunk);
        word.copied().map_or(0, u32::from_ne_bytes)
    }

    pub(super) fn attribute(&self, kind: u16) -> Option<&'a [u8]> {
        wire::attribute(self.bytes, self.fixed, kind)
    }

    pub(super) fn number(&self, kind: u16) -> Result<Option<u32>> {
        let value = self.attribute(kind);
        let number = |v: &[u8]| v.first_chunk().copied().map(u32::from_ne_bytes).ok_or(Errno::ERANGE.into());
        value.map(number).transpose()
    }

    /// An address of the family that the request names.
    pub(super) fn address(&self, kind: u16) -> Result<Option<IpAddr>> {
        self.attribute(kind).map(|value| self.parse(value)).transpose()
    }

    /// The bytes of an address of the family that the request names.
    pub(super) fn parse(&self, value: &[u8]) -> Result<IpAddr> {
        let address = match i32::from(self.byte(0)) {
            libc::AF_INET6 => <[u8; 16]>::try_from(value).map(IpAddr::from),
            libc::AF_INET | libc::AF_UNSPEC => <[u8; 4]>::try_from(value).map(IpAddr::from),
            _ => return Err(Errno::EAFNOSUPPORT.into()),
        };
        address.map_err(|_| Errno::EINVAL.into())
    }
}

/// An interface of the stack.
pub(super) fn link(net: &NetNamespace, index: u32) -> Result<Arc<Iface>> {
    let shown = || net.interfaces().links.iter().any(|link| link.index == index);
    let missing = || if shown() { Errno::EOPNOTSUPP } else { Errno::ENODEV };
    net.stack().link(index).ok_or_else(|| missing().into())
}

pub(super) fn text(bytes: &[u8]) -> Result<&str> {
    let name = bytes.split(|&b| b == 0).next().unwrap_or_default();
    Ok(std::str::from_utf8(name).map_err(|_| Errno::EINVAL)?)
}

/// The name that an interface may have.
pub(super) fn valid_name(bytes: &[u8]) -> Result<&str> {
    let name = text(bytes)?;
    let valid =
        !name.is_empty() && name.len() < 16 && !name.contains(['/', ':', ' ']) && !name.starts_with('.');
    if valid { Ok(name) } else { Err(Errno::EINVAL.into()) }
}

/// The name that a request gives, with the first free number for `%d`.
pub(super) fn free_name(stack: &Stack, bytes: &[u8]) -> Result<String> {
    let name = valid_name(bytes)?;
    match name.split_once('%').map(|(before, after)| (before, after.strip_prefix('d'))) {
        None => Ok(name.to_owned()),
        Some((before, Some(after))) if !after.contains('%') => numbered_name(stack, before, after),
        Some(_) => Err(Errno::EINVAL.into()),
    }
}

/// The first of `before0after`, `before1after` and so on that no interface has.
pub(super) fn numbered_name(stack: &Stack, before: &str, after: &str) -> Result<String> {
    let mut names = (0..u16::MAX).map(|n| format!("{before}{n}{after}"));
    let free = names.find(|name| stack.link_by_name(name).is_none());
    Ok(free.filter(|name| name.len() < 16).ok_or(Errno::ENFILE)?)
}
