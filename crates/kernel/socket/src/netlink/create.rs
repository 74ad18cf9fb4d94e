//! RTM_NEWLINK that makes interfaces: veth pairs, bridges, VLANs and dummies of the namespace's stack, and ports of bridges.

use super::asker::Asker;
use super::error::{Refusal, Result};
use super::ifla::{IFINFO, IFLA_EXT_MASK, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL};
use super::request::{Request, free_name, numbered_name};
use super::{nsid, wire};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::Stack;
use netstack::iface::{Config, Iface, Kind, NO_MULTICAST};
use netstack::wire::eth::Mac;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Flags that programs set, and lists show, beside IFF_UP.
const FLAGS: u32 = (libc::IFF_PROMISC
    | libc::IFF_ALLMULTI
    | libc::IFF_NOARP
    | libc::IFF_MULTICAST
    | libc::IFF_DYNAMIC
    | libc::IFF_DEBUG
    | libc::IFF_NOTRAILERS) as u32;
const UP: u32 = libc::IFF_UP as u32;

/// VETH_INFO_PEER.
const VETH_INFO_PEER: u16 = 1;
/// What an interface can be made with.
const KNOWN: [u16; 14] = [
    nsid::OF_NET[0],
    nsid::OF_NET[1],
    nsid::OF_NET[2],
    nsid::OF_NET[3],
    libc::IFLA_IFNAME,
    libc::IFLA_MTU,
    libc::IFLA_ADDRESS,
    libc::IFLA_LINKINFO,
    libc::IFLA_LINK,
    libc::IFLA_MASTER,
    libc::IFLA_TXQLEN,
    libc::IFLA_NUM_TX_QUEUES,
    libc::IFLA_NUM_RX_QUEUES,
    IFLA_EXT_MASK,
];
/// MTU of Ethernet.
const MTU: u32 = 1500;
/// VLANs are numbered below this.
const VLANS: u16 = 4095;

/// Makes what a request describes.
pub(super) fn link(asker: &Asker<'_>) -> Result<()> {
    let unknown_kind = Refusal::with(Errno::EOPNOTSUPP, "Unknown device type");
    let request = Request::new(asker.message, IFINFO, &KNOWN)?;
    let info = request.attribute(libc::IFLA_LINKINFO).ok_or(unknown_kind)?;
    let kind = wire::find(info, IFLA_INFO_KIND).ok_or(unknown_kind)?;
    let data = wire::find(info, IFLA_INFO_DATA).unwrap_or_default();
    let unknown = wire::kinds(info).any(|kind| ![IFLA_INFO_KIND, IFLA_INFO_DATA].contains(&kind));
    // A number of the program's choice.
    if unknown || request.word(4) != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let (wanted, lower) = (nsid::wanted(asker, &request)?, nsid::of_lower(asker, &request)?);
    let net = wanted.as_deref().unwrap_or(asker.net);
    // What the request says of other interfaces is about its own namespace, or about the one that IFLA_LINK_NETNSID names.
    let (stack, other) = (net.stack(), lower.as_deref().unwrap_or(asker.net));
    let made = match kind.strip_suffix(&[0]).unwrap_or(kind) {
        b"veth" => veth(asker, other, stack, &request, data)?,
        b"vlan" => vlan((stack, other.stack()), &request, data)?,
        b"bridge" => bridge(stack, &request, data)?,
        b"dummy" if data.is_empty() => stack.add_dummy(config(stack, &request, "dummy")?)?,
        b"dummy" => return Err(Errno::EOPNOTSUPP.into()),
        b"tun" => return Err(Errno::EINVAL.into()),
        _ => return Err(unknown_kind),
    };
    if let Some(len) = request.number(libc::IFLA_TXQLEN)? {
        made.shown.queue_len.store(len, Ordering::Relaxed);
    }
    if let Some(master) = request.number(libc::IFLA_MASTER)?.filter(|master| *master != 0) {
        set_master(stack, made.index, master)?;
    }
    set_flags(net, &made, request.word(8), request.word(12))
}

/// A bridge without ports, and its settings.
fn bridge(stack: &Arc<Stack>, request: &Request<'_>, data: &[u8]) -> Result<Arc<Iface>> {
    let settings = super::bridge::settings(data, None)?;
    let made = stack.add_bridge(config(stack, request, "bridge")?)?;
    stack.set_bridge(made.index, settings)?;
    Ok(made)
}

/// A pair. VETH_INFO_PEER may describe its other end: an `ifinfomsg` with attributes.
fn veth(
    asker: &Asker<'_>,
    other: &NetNamespace,
    stack: &Arc<Stack>,
    request: &Request<'_>,
    data: &[u8],
) -> Result<Arc<Iface>> {
    if wire::kinds(data).any(|kind| kind != VETH_INFO_PEER) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let own = config(stack, request, "veth")?;
    // A message like the request's, so that both ends are read alike.
    let peer = wire::find(data, VETH_INFO_PEER).unwrap_or(&[0; IFINFO]);
    let peer = [&[0; wire::HEADER], peer].concat();
    let peer = Request::new(&peer, IFINFO, &KNOWN)?;
    // The kind may be repeated (IFLA_LINKINFO): it is that of a pair anyway.
    if peer.word(4) != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let (flags, change) = (peer.word(8), peer.word(12));
    let up = libc::IFF_UP as u32;
    if flags & up != 0 && (change == 0 || change & up != 0) {
        // It would be up before it had another end.
        return Err(Errno::ENOTCONN.into());
    }
    let wanted = nsid::wanted(asker, &peer)?;
    let net = wanted.as_deref().unwrap_or(other);
    let there = net.stack();
    let mut far = config(there, &peer, "veth")?;
    // Both were chosen, before either was there.
    if far.name == own.name && Arc::ptr_eq(stack, there) {
        far.name = match peer.attribute(libc::IFLA_IFNAME) {
            None => numbered_but(there, &own.name)?,
            Some(name) if name.contains(&b'%') => return Err(Errno::EEXIST.into()),
            Some(_) => far.name,
        };
    }
    let queue = peer.number(libc::IFLA_TXQLEN)?;
    let (made, far) = stack.add_veth(own, (there, far))?;
    if let Some(len) = queue {
        far.shown.queue_len.store(len, Ordering::Relaxed);
    }
    set_flags(net, &far, flags, change)?;
    Ok(made)
}

/// The first name for an end of a pair that is free, other than `taken`.
fn numbered_but(stack: &Stack, taken: &str) -> Result<String> {
    let mut names = (0..u16::MAX).map(|n| format!("veth{n}"));
    let free = names.find(|name| name != taken && stack.link_by_name(name).is_none());
    Ok(free.ok_or(Errno::ENFILE)?)
}

/// A VLAN of the interface that IFLA_LINK names.
fn vlan(
    (stack, below): (&Arc<Stack>, &Arc<Stack>),
    request: &Request<'_>,
    data: &[u8],
) -> Result<Arc<Iface>> {
    let number = |kind| {
        let value: Option<&[u8; 2]> = wire::find(data, kind).and_then(<[u8]>::first_chunk);
        value.copied()
    };
    let id = number(IFLA_VLAN_ID).map(u16::from_ne_bytes);
    let id = id.ok_or(Refusal::with(Errno::EINVAL, "VLAN id not specified"))?;
    let lower = request.number(libc::IFLA_LINK)?;
    let lower = lower.ok_or(Refusal::with(Errno::EINVAL, "link not specified"))?;
    let lower = below.link(lower).ok_or(Refusal::with(Errno::ENODEV, "link does not exist"))?;
    if id >= VLANS {
        return Err(Refusal::with(Errno::ERANGE, "Invalid VLAN id"));
    }
    let flags = wire::kinds(data).any(|kind| ![IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL].contains(&kind));
    // 802.1ad.
    let other = number(IFLA_VLAN_PROTOCOL).is_some_and(|protocol| protocol != 0x8100u16.to_be_bytes());
    if flags || other {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if lower.kind != Kind::Ethernet {
        return Err(Refusal::with(Errno::EOPNOTSUPP, "VLANs not supported on device"));
    }
    let own = config(stack, request, "vlan")?;
    let mac = if request.attribute(libc::IFLA_ADDRESS).is_some() { own.mac } else { lower.mac() };
    let mtu = request.number(libc::IFLA_MTU)?.unwrap_or(lower.mtu());
    if mtu > lower.mtu() {
        return Err(Errno::ERANGE.into());
    }
    let made = stack.add_vlan(Config { mac, mtu, ..own }, &lower, id);
    made.map_err(|errno| match errno {
        Errno::EEXIST => Refusal::with(errno, "VLAN device already exists"),
        _ => errno.into(),
    })
}

/// Name, hardware address and MTU; those that a request does not give are chosen.
fn config(stack: &Stack, request: &Request<'_>, kind: &str) -> Result<Config> {
    let name = match request.attribute(libc::IFLA_IFNAME) {
        Some(name) => free_name(stack, name)?,
        None => numbered_name(stack, kind, "")?,
    };
    let mac = match request.attribute(libc::IFLA_ADDRESS) {
        Some(bytes) => Mac(bytes.try_into().map_err(|_| Errno::EINVAL)?),
        None => random_mac(),
    };
    if mac.is_multicast() || mac.0 == [0; 6] {
        return Err(Errno::EADDRNOTAVAIL.into());
    }
    let mtu = request.number(libc::IFLA_MTU)?.unwrap_or(MTU);
    check_mtu(mtu)?;
    Ok(Config { name, kind: Kind::Ethernet, mac, mtu })
}

/// A unicast address that is administered locally.
pub(super) fn random_mac() -> Mac {
    let mut bytes = [0; 6];
    hostsys::clock::random(&mut bytes);
    bytes[0] = bytes[0] & 0xfe | 2;
    Mac(bytes)
}

/// Makes an interface a port of the bridge with this index; 0 takes it out.
pub(super) fn set_master(stack: &Stack, port: u32, master: u32) -> Result<()> {
    if master == 0 {
        return Ok(stack.set_master(port, None)?);
    }
    stack.link(master).ok_or(Refusal::with(Errno::EINVAL, "Invalid master device"))?;
    match (stack.is_bridge(master), stack.is_bridge(port)) {
        (false, _) => Err(Refusal::with(Errno::EOPNOTSUPP, "Master device does not support enslaving")),
        (true, true) => Err(Refusal::with(Errno::ELOOP, "Can not enslave a bridge to a bridge")),
        (true, false) => Ok(stack.set_master(port, Some(master))?),
    }
}

/// Whether Ethernet interfaces can have an MTU.
pub(super) fn check_mtu(mtu: u32) -> Result<()> {
    match mtu {
        ..68 => Err(Refusal::with(Errno::EINVAL, "mtu less than device minimum")),
        68..=65_535 => Ok(()),
        _ => Err(Refusal::with(Errno::EINVAL, "mtu greater than device maximum")),
    }
}

/// Changes flags: those in `change`, or all when that is 0 and flags are given.
pub(super) fn set_flags(net: &NetNamespace, link: &Iface, flags: u32, change: u32) -> Result<()> {
    if flags == 0 && change == 0 {
        return Ok(());
    }
    let change = if change == 0 { UP | FLAGS } else { change };
    let stack = net.stack();
    let old = link.shown.flags.load(Ordering::Relaxed);
    // IFF_MULTICAST and IFF_NOARP follow from the kind of an interface unless they are changed.
    let multicast = libc::IFF_MULTICAST as u32;
    let settable = FLAGS & !multicast;
    let mut fresh = old & !(change & settable) | flags & change & settable;
    if change & multicast != 0 {
        fresh = if flags & multicast == 0 { fresh | NO_MULTICAST } else { fresh & !NO_MULTICAST };
    }
    if fresh != old {
        stack.configure_link(link.index, |link| link.shown.flags.store(fresh, Ordering::Relaxed))?;
    }
    if change & UP != 0 {
        stack.set_up(link.index, flags & UP != 0)?;
    }
    Ok(())
}
