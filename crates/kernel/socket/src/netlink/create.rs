//! RTM_NEWLINK that makes interfaces: veth pairs and bridges of the namespace's stack, and ports of bridges.

use super::change::{IFINFO, Request, Result, valid_name};
use super::wire;
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::Stack;
use netstack::iface::{Config, Iface, Kind};
use netstack::wire::eth::Mac;
use std::sync::Arc;

/// Attributes that libc lacks.
const IFLA_EXT_MASK: u16 = 29;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
/// What an interface can be made with.
const KNOWN: [u16; 5] =
    [libc::IFLA_IFNAME, libc::IFLA_MTU, libc::IFLA_ADDRESS, libc::IFLA_LINKINFO, IFLA_EXT_MASK];
/// MTU of Ethernet.
const MTU: u32 = 1500;

/// Makes what a request describes.
pub(super) fn link(net: &NetNamespace, bytes: &[u8]) -> Result<()> {
    let request = Request::new(bytes, IFINFO, &KNOWN)?;
    let info = request.attribute(libc::IFLA_LINKINFO).ok_or(Errno::EOPNOTSUPP)?;
    let kind = wire::find(info, IFLA_INFO_KIND).ok_or(Errno::EOPNOTSUPP)?;
    let data = wire::find(info, IFLA_INFO_DATA).unwrap_or_default();
    let unknown = wire::kinds(info).any(|kind| ![IFLA_INFO_KIND, IFLA_INFO_DATA].contains(&kind));
    let (up, change) = (libc::IFF_UP as u32, request.word(8) | request.word(12));
    // A number of the program's choice, and flags other than IFF_UP.
    if unknown || request.word(4) != 0 || change & !up != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let stack = net.stack();
    let made = match kind.strip_suffix(&[0]).unwrap_or(kind) {
        b"veth" => veth(stack, &request, data)?,
        b"bridge" if data.is_empty() => stack.add_bridge(config(stack, &request, "bridge")?)?,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    stack.set_up(made.index, request.word(8) & up != 0)
}

/// A pair, whose other end VETH_INFO_PEER may describe: an `ifinfomsg` with attributes.
fn veth(stack: &Arc<Stack>, request: &Request<'_>, data: &[u8]) -> Result<Arc<Iface>> {
    if wire::kinds(data).any(|kind| kind != VETH_INFO_PEER) {
        return Err(Errno::EOPNOTSUPP);
    }
    let own = config(stack, request, "veth")?;
    // A message like the request's, so that both ends are read alike.
    let peer = wire::find(data, VETH_INFO_PEER).unwrap_or(&[0; IFINFO]);
    let peer = [&[0; wire::HEADER], peer].concat();
    let peer = Request::new(&peer, IFINFO, &KNOWN)?;
    if peer.word(4) != 0 || peer.word(8) != 0 || peer.attribute(libc::IFLA_LINKINFO).is_some() {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut other = config(stack, &peer, "veth")?;
    if peer.attribute(libc::IFLA_IFNAME).is_none() {
        other.name = free_name(stack, "veth", &own.name)?;
    }
    Ok(stack.add_veth(own, (stack, other))?.0)
}

/// Name, hardware address and MTU; those that a request does not give are chosen.
fn config(stack: &Stack, request: &Request<'_>, kind: &str) -> Result<Config> {
    let name = match request.attribute(libc::IFLA_IFNAME) {
        Some(name) => valid_name(name)?.to_owned(),
        None => free_name(stack, kind, "")?,
    };
    let mac = match request.attribute(libc::IFLA_ADDRESS) {
        Some(bytes) => Mac(bytes.try_into().map_err(|_| Errno::EINVAL)?),
        None => random_mac(),
    };
    if mac.is_multicast() || mac.0 == [0; 6] {
        return Err(Errno::EADDRNOTAVAIL);
    }
    let mtu = request.number(libc::IFLA_MTU)?.unwrap_or(MTU);
    if !(68..=65_535).contains(&mtu) {
        return Err(Errno::EINVAL);
    }
    Ok(Config { name, kind: Kind::Ethernet, mac, mtu })
}

/// The first of `kind0`, `kind1` and so on that no interface has, other than `taken`.
fn free_name(stack: &Stack, kind: &str, taken: &str) -> Result<String> {
    let mut names = (0..u16::MAX).map(|n| format!("{kind}{n}"));
    names.find(|name| name != taken && stack.link_by_name(name).is_none()).ok_or(Errno::ENFILE)
}

/// A unicast address that is administered locally.
fn random_mac() -> Mac {
    let mut bytes = [0; 6];
    hostsys::clock::random(&mut bytes);
    bytes[0] = bytes[0] & 0xfe | 2;
    Mac(bytes)
}

/// Makes an interface a port of the bridge with this index; 0 takes it out.
pub(super) fn set_master(stack: &Stack, port: u32, master: u32) -> Result<()> {
    if master == 0 {
        return stack.set_master(port, None);
    }
    stack.link(master).ok_or(Errno::EINVAL)?;
    match (stack.is_bridge(master), stack.is_bridge(port)) {
        (false, _) => Err(Errno::EOPNOTSUPP),
        (true, true) => Err(Errno::ELOOP),
        (true, false) => stack.set_master(port, Some(master)),
    }
}
