//! Changes by rtnetlink(7): addresses, routes and links of the namespace's TCP/IP stack. What a change says that is not understood is
//! EOPNOTSUPP, so that nothing is left out in silence. Interfaces that are only shown cannot be changed (EOPNOTSUPP).

use super::answer::Asker;
use super::error::{Refusal, Result};
use super::link::{IFINFO, IFLA_EXT_MASK, IFLA_INFO_KIND};
use super::wire::{self, HEADER};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::LOOPBACK;
use netstack::addr::{Prefix, Scope};
use netstack::iface::{Address, Iface, Kind};
use netstack::wire::eth::Mac;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Length of `struct ifaddrmsg`.
const IFADDR: usize = 8;
/// Attributes that libc lacks.
const IFA_FLAGS: u16 = 8;
const IFA_RT_PRIORITY: u16 = 9;
const IFA_PROTO: u16 = 11;

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

/// Does what a request asks.
pub(super) fn apply(asker: &Asker<'_>) -> Result<()> {
    if !asker.net.shows_stack() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    match asker.header.kind {
        libc::RTM_NEWADDR => new_address(asker),
        libc::RTM_DELADDR => delete_address(asker),
        libc::RTM_NEWROUTE => super::routes::add(asker),
        libc::RTM_DELROUTE => super::routes::delete(asker),
        libc::RTM_NEWRULE => super::rules::add(asker),
        libc::RTM_DELRULE => super::rules::delete(asker),
        libc::RTM_NEWNEIGH => super::neigh::add(asker),
        libc::RTM_DELNEIGH => super::neigh::delete(asker),
        libc::RTM_NEWLINK => new_link(asker),
        libc::RTM_SETLINK => change_link(asker),
        libc::RTM_DELLINK => delete_link(asker),
        libc::RTM_NEWQDISC => super::qdisc::set(asker),
        libc::RTM_DELQDISC => super::qdisc::delete(asker),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// An interface of the stack.
pub(super) fn link(net: &NetNamespace, index: u32) -> Result<Arc<Iface>> {
    let shown = || net.interfaces().links.iter().any(|link| link.index == index);
    let missing = || if shown() { Errno::EOPNOTSUPP } else { Errno::ENODEV };
    net.stack().link(index).ok_or_else(|| missing().into())
}

/// The interface that an `ifinfomsg` names, by index or name.
fn named(net: &NetNamespace, request: &Request<'_>) -> Result<Arc<Iface>> {
    match request.word(4) {
        0 => {
            let name = request.attribute(libc::IFLA_IFNAME).ok_or(Errno::EINVAL)?;
            Ok(net.stack().link_by_name(text(name)?).ok_or(Errno::ENODEV)?)
        }
        index => link(net, index),
    }
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

const OF_ADDRESS: [u16; 8] = [
    libc::IFA_LOCAL,
    libc::IFA_ADDRESS,
    libc::IFA_BROADCAST,
    libc::IFA_LABEL,
    libc::IFA_CACHEINFO,
    IFA_FLAGS,
    IFA_RT_PRIORITY,
    IFA_PROTO,
];

/// The address in a request, and the other end.
fn addresses(request: &Request<'_>) -> Result<(Prefix, Option<IpAddr>)> {
    let (own, other) = (request.address(libc::IFA_LOCAL)?, request.address(libc::IFA_ADDRESS)?);
    let own = own.or(other).ok_or(Refusal::from(Errno::EINVAL))?;
    let len = request.byte(1);
    if len > netstack::addr::bits(own) {
        let text = if own.is_ipv4() { "ipv4: Invalid prefix length" } else { "ipv6: Invalid prefix length" };
        return Err(Refusal::with(Errno::EINVAL, text));
    }
    Ok((Prefix::new(own, len), other.filter(|other| *other != own)))
}

/// Flags of IFA_FLAGS that are as good as none here: IFA_F_PERMANENT, IFA_F_NODAD, IFA_F_NOPREFIXROUTE is not among them.
const HARMLESS: u32 = libc::IFA_F_PERMANENT | libc::IFA_F_NODAD;

fn new_address(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, IFADDR, &OF_ADDRESS)?;
    let (prefix, peer) = addresses(&request)?;
    let flags = request.number(IFA_FLAGS)?.unwrap_or(request.byte(2).into());
    if flags & !(HARMLESS | libc::IFA_F_DEPRECATED) != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let missing = |refusal: Refusal| match refusal.errno {
        Errno::ENODEV if prefix.addr.is_ipv4() => Refusal::with(Errno::ENODEV, "ipv4: Device not found"),
        _ => refusal,
    };
    let link = link(asker.net, request.word(4)).map_err(missing)?;
    // Lifetimes: valid, then preferred; addresses do not expire here.
    let cache = request.attribute(libc::IFA_CACHEINFO).and_then(|info| info.first_chunk::<8>());
    let [preferred, valid] = cache.map_or([u32::MAX; 2], |info| {
        [0, 4].map(|at| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]))
    });
    if valid == 0 || preferred > valid {
        return Err(Refusal::with(Errno::EINVAL, "ipv4: Invalid address lifetime"));
    }
    if valid != u32::MAX || (preferred != u32::MAX && preferred != 0) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let broadcast = match request.address(libc::IFA_BROADCAST)? {
        Some(IpAddr::V4(v4)) => Some(v4),
        _ => None,
    };
    let deprecated = preferred == 0 || flags & libc::IFA_F_DEPRECATED != 0;
    let address = Address { peer, broadcast, deprecated, ..Address::new(prefix) };
    let scope = if prefix.addr.is_ipv4() { scope(request.byte(3)) } else { address.scope };
    let added = asker.net.stack().add_address(link.index, Address { scope, ..address });
    added.map_err(|errno| match (errno, prefix.addr.is_ipv4()) {
        (Errno::EEXIST, true) => Refusal::with(errno, "ipv4: Address already assigned"),
        (Errno::EEXIST, false) => Refusal::with(errno, "IPv6: address already assigned"),
        _ => errno.into(),
    })
}

fn delete_address(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, IFADDR, &OF_ADDRESS)?;
    let (prefix, _) = addresses(&request)?;
    let v4 = prefix.addr.is_ipv4();
    let unknown = |text| Refusal::with(Errno::ENODEV, text);
    let link = link(asker.net, request.word(4)).map_err(|refusal| match refusal.errno {
        Errno::ENODEV if v4 => unknown("ipv4: Device not found"),
        Errno::ENODEV => unknown("Unable to find the interface"),
        _ => refusal,
    })?;
    let text = if v4 { "ipv4: Address not found" } else { "address not found" };
    let removed = asker.net.stack().remove_address(link.index, prefix);
    removed.map_err(|errno| Refusal::with(errno, text))
}

/// RT_SCOPE_*.
fn scope(scope: u8) -> Scope {
    match scope {
        libc::RT_SCOPE_HOST => Scope::Host,
        libc::RT_SCOPE_LINK => Scope::Link,
        _ => Scope::Global,
    }
}

/// Whether a request names an interface that exists, if only one that is shown.
fn exists(net: &NetNamespace, request: &Request<'_>) -> Result<bool> {
    let name = request.attribute(libc::IFLA_IFNAME).map(text).transpose()?;
    let index = request.word(4);
    let named = |link: &spec::Interface| match index {
        0 => name == Some(&link.name),
        index => link.index == index,
    };
    Ok(net.interfaces().links.iter().any(named))
}

/// Changes an interface that exists, makes one that does not.
fn new_link(asker: &Asker<'_>) -> Result<()> {
    let any: Vec<u16> = wire::attributes(asker.message, IFINFO).collect();
    let request = Request::new(asker.message, IFINFO, &any)?;
    let flags = i32::from(asker.header.flags);
    if let Some(name) = request.attribute(libc::IFLA_IFNAME) {
        let name = text(name)?;
        // A name that is too long is no number out of range only, it is refused before anything is looked up.
        if name.len() > 15 {
            return Err(Errno::ERANGE.into());
        }
    }
    match exists(asker.net, &request)? {
        true if flags & libc::NLM_F_EXCL != 0 => Err(Errno::EEXIST.into()),
        true if flags & libc::NLM_F_REPLACE != 0 => Err(Errno::EOPNOTSUPP.into()),
        true => change_link(asker),
        false if flags & libc::NLM_F_CREATE != 0 => super::create::link(asker),
        false => Err(Errno::ENODEV.into()),
    }
}

fn delete_link(asker: &Asker<'_>) -> Result<()> {
    let known = [libc::IFLA_IFNAME, IFLA_EXT_MASK, libc::IFLA_LINKINFO];
    let request = Request::new(asker.message, IFINFO, &known)?;
    let link = named(asker.net, &request)?;
    Ok(asker.net.stack().remove_link(link.index)?)
}

const OF_LINK: [u16; 9] = [
    libc::IFLA_IFNAME,
    libc::IFLA_MTU,
    libc::IFLA_MASTER,
    libc::IFLA_ADDRESS,
    libc::IFLA_TXQLEN,
    libc::IFLA_IFALIAS,
    libc::IFLA_GROUP,
    libc::IFLA_LINKINFO,
    IFLA_EXT_MASK,
];
/// Flags that programs set, and lists show, beside IFF_UP.
const FLAGS: u32 = (libc::IFF_PROMISC
    | libc::IFF_ALLMULTI
    | libc::IFF_NOARP
    | libc::IFF_MULTICAST
    | libc::IFF_DYNAMIC
    | libc::IFF_DEBUG
    | libc::IFF_NOTRAILERS) as u32;
const UP: u32 = libc::IFF_UP as u32;

fn change_link(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, IFINFO, &OF_LINK)?;
    let (net, index) = (asker.net, request.word(4));
    let link = named(net, &request)?;
    let info = request.attribute(libc::IFLA_LINKINFO).unwrap_or_default();
    // Only what an interface is may be named again, not what it is made of.
    if wire::kinds(info).any(|kind| kind != IFLA_INFO_KIND) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if let Some(address) = request.attribute(libc::IFLA_ADDRESS) {
        set_address(net, &link, address)?;
    }
    if let Some(mtu) = request.number(libc::IFLA_MTU)? {
        set_mtu(net, &link, mtu)?;
    }
    if let Some(group) = request.number(libc::IFLA_GROUP)? {
        net.stack().configure_link(link.index, |link| link.shown.group.store(group, Ordering::Relaxed))?;
    }
    if let Some(name) = request.attribute(libc::IFLA_IFNAME).filter(|_| index != 0) {
        let name = valid_name(name)?;
        if name != link.name() {
            net.stack().rename(link.index, name)?;
        }
    }
    if let Some(alias) = request.attribute(libc::IFLA_IFALIAS) {
        if alias.len() >= 256 {
            return Err(Errno::EINVAL.into());
        }
        let alias = text(alias)?.to_owned();
        net.stack().configure_link(link.index, |link| *link.shown.alias.write() = alias)?;
    }
    if let Some(master) = request.number(libc::IFLA_MASTER)? {
        super::create::set_master(net.stack(), link.index, master)?;
    }
    set_flags(net, &link, request.word(8), request.word(12))?;
    if let Some(len) = request.number(libc::IFLA_TXQLEN)? {
        net.stack().configure_link(link.index, |link| link.shown.queue_len.store(len, Ordering::Relaxed))?;
    }
    Ok(())
}

/// Changes flags: those in `change`, or all when that is 0 and flags are given.
pub(super) fn set_flags(net: &NetNamespace, link: &Iface, flags: u32, change: u32) -> Result<()> {
    if flags == 0 && change == 0 {
        return Ok(());
    }
    let change = if change == 0 { UP | FLAGS } else { change };
    let stack = net.stack();
    let old = link.shown.flags.load(Ordering::Relaxed);
    // IFF_MULTICAST and IFF_NOARP follow from the kind of an interface unless they are set.
    let settable = FLAGS & !(libc::IFF_MULTICAST as u32);
    let fresh = old & !(change & settable) | flags & change & settable;
    if fresh != old {
        stack.configure_link(link.index, |link| link.shown.flags.store(fresh, Ordering::Relaxed))?;
    }
    if change & UP != 0 {
        stack.set_up(link.index, flags & UP != 0)?;
    }
    Ok(())
}

/// Changes the MTU within the bounds of the interface's kind.
pub(super) fn set_mtu(net: &NetNamespace, link: &Iface, mtu: u32) -> Result<()> {
    if link.index != LOOPBACK {
        check_mtu(mtu)?;
    }
    Ok(net.stack().set_mtu(link.index, mtu)?)
}

/// Whether Ethernet interfaces can have an MTU.
pub(super) fn check_mtu(mtu: u32) -> Result<()> {
    match mtu {
        ..68 => Err(Refusal::with(Errno::EINVAL, "mtu less than device minimum")),
        68..=65_535 => Ok(()),
        _ => Err(Refusal::with(Errno::EINVAL, "mtu greater than device maximum")),
    }
}

/// Changes the hardware address of an interface that is all the stack's own.
pub(super) fn set_address(net: &NetNamespace, link: &Iface, bytes: &[u8]) -> Result<()> {
    if link.about().kind.is_empty() || link.kind != Kind::Ethernet {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let mac = Mac(*bytes.first_chunk().ok_or(Errno::EINVAL)?);
    if mac.is_multicast() || mac.0 == [0; 6] {
        return Err(Errno::EADDRNOTAVAIL.into());
    }
    Ok(net.stack().configure_link(link.index, |link| link.set_mac(mac))?)
}
