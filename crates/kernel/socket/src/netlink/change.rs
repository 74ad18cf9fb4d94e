//! Changes by rtnetlink(7): addresses, routes and links of the namespace's TCP/IP stack. An unknown part of a change is
//! EOPNOTSUPP, so nothing is silently ignored. Interfaces that are only shown cannot be changed (EOPNOTSUPP).

use super::address_list::{IFA_F_NOPREFIXROUTE, IFA_RT_PRIORITY};
use super::asker::Asker;
use super::create::{check_mtu, set_flags};
use super::error::{Refusal, Result};
use super::ifla::{
    IFINFO, IFLA_ALT_IFNAME, IFLA_EXT_MASK, IFLA_INET6_ADDR_GEN_MODE, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_INFO_SLAVE_DATA, IFLA_PROP_LIST, RTM_NEWLINKPROP,
};
use super::request::{Request, free_name, link, text};
use super::wire::{self, Attribute};
use super::{nsid, port};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::LOOPBACK;
use netstack::addr::{Prefix, Scope};
use netstack::conf::{Which, Whose};
use netstack::iface::{Address, Dad, Iface, Kind, Label};
use netstack::wire::eth::Mac;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// ALTIFNAMSIZ, the zero at the end included.
const LONGEST_NAME: usize = 128;
/// Length of `struct ifaddrmsg`.
const IFADDR: usize = 8;
/// Attributes that libc lacks.
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;

/// The interface that an `ifinfomsg` names, by index or name.
fn named(net: &NetNamespace, request: &Request<'_>) -> Result<Arc<Iface>> {
    match request.word(4) {
        0 => {
            let name = request.attribute(libc::IFLA_IFNAME).or_else(|| request.attribute(IFLA_ALT_IFNAME));
            let name = name.ok_or(Errno::EINVAL)?;
            Ok(net.stack().link_by_name(text(name)?).ok_or(Errno::ENODEV)?)
        }
        index => link(net, index),
    }
}

/// Moves an interface to another namespace, under its own name if that is free there, or else under `name`.
fn move_link(net: &NetNamespace, link: &Iface, to: &NetNamespace, name: Option<&[u8]>) -> Result<Arc<Iface>> {
    let (own, there) = (link.name(), to.stack());
    let name = match name.filter(|_| there.link_by_name(&own).is_some()) {
        Some(name) => free_name(there, name)?,
        None => own,
    };
    let (taken, moved) = (there.link_by_name(&name), net.stack().move_link(link.index, there, &name));
    moved.map_err(|errno| match (errno, taken) {
        (Errno::EINVAL, _) => Refusal::with(errno, "The interface netns is immutable"),
        (Errno::EEXIST, Some(_)) => {
            Refusal::with(errno, "An interface with the same name exists in the target netns")
        }
        _ => errno.into(),
    })
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

/// Flags of IFA_FLAGS that a request may have. IFA_F_PERMANENT and IFA_F_TENTATIVE say nothing there.
const KNOWN_FLAGS: u32 = libc::IFA_F_PERMANENT
    | libc::IFA_F_TENTATIVE
    | libc::IFA_F_DEPRECATED
    | libc::IFA_F_NODAD
    | libc::IFA_F_OPTIMISTIC
    | IFA_F_NOPREFIXROUTE;

pub(super) fn new_address(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, IFADDR, &OF_ADDRESS)?;
    let (prefix, peer) = addresses(&request)?;
    let flags = request.number(IFA_FLAGS)?.unwrap_or(request.byte(2).into());
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let (no_dad, optimistic) = (flags & libc::IFA_F_NODAD != 0, flags & libc::IFA_F_OPTIMISTIC != 0);
    let missing = |refusal: Refusal| match refusal.errno {
        Errno::ENODEV if prefix.addr.is_ipv4() => Refusal::with(Errno::ENODEV, "ipv4: Device not found"),
        _ => refusal,
    };
    let link = link(asker.net, request.word(4)).map_err(missing)?;
    let cache = request.attribute(libc::IFA_CACHEINFO).and_then(|info| info.first_chunk::<8>());
    let [preferred, valid] = cache.map_or([u32::MAX; 2], |info| {
        [0, 4].map(|at| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]))
    });
    if valid == 0 || preferred > valid {
        let v4 = prefix.addr.is_ipv4();
        let text = if v4 { "ipv4: Invalid address lifetime" } else { "IPv6: address lifetime invalid" };
        return Err(Refusal::with(Errno::EINVAL, text));
    }
    let now = asker.net.now();
    let until = |seconds: u32| (seconds != u32::MAX).then(|| now.plus(Duration::from_secs(seconds.into())));
    let broadcast = match request.address(libc::IFA_BROADCAST)? {
        Some(IpAddr::V4(v4)) => Some(v4),
        _ => None,
    };
    let label =
        match request.attribute(libc::IFA_LABEL).filter(|_| prefix.addr.is_ipv4()).map(text).transpose()? {
            Some(label) => Label::new(label, &link.name()).ok_or(Refusal::from(Errno::ERANGE))?,
            None => Label::default(),
        };
    let dad = match prefix.addr {
        IpAddr::V6(_) if !no_dad => asker.net.stack().detection(&link, optimistic),
        _ => Dad::Done,
    };
    let address = Address {
        peer,
        broadcast,
        deprecated: preferred == 0,
        preferred_until: until(preferred),
        valid_until: until(valid),
        created: now,
        updated: now,
        dad,
        no_dad,
        no_prefix_route: flags & IFA_F_NOPREFIXROUTE != 0,
        protocol: request.attribute(IFA_PROTO).and_then(|value| value.first().copied()).unwrap_or(0),
        label,
        metric: request.number(IFA_RT_PRIORITY)?.unwrap_or(0),
        other_scope: other_scope(&prefix.addr, request.byte(3)),
        ..Address::new(prefix)
    };
    let asked = i32::from(asker.header.flags);
    let replaces = asked & libc::NLM_F_REPLACE != 0 && asked & libc::NLM_F_EXCL == 0;
    if replaces && link.addresses().iter().any(|old| old.prefix == prefix) {
        return Ok(asker.net.stack().change_address(link.index, prefix, |old| {
            (old.preferred_until, old.valid_until) = (address.preferred_until, address.valid_until);
            (old.deprecated, old.updated, old.no_dad) = (address.deprecated, now, no_dad);
            old.metric = address.metric;
        })?);
    }
    let scope = if prefix.addr.is_ipv4() { scope(request.byte(3)) } else { address.scope };
    let added = asker.net.stack().add_address(link.index, Address { scope, ..address });
    added.map_err(|errno| match (errno, prefix.addr.is_ipv4()) {
        (Errno::EINVAL, true) => Refusal::with(errno, "ipv4: Invalid scope value"),
        (Errno::EEXIST, true) => Refusal::with(errno, "ipv4: Address already assigned"),
        (Errno::EEXIST, false) => Refusal::with(errno, "IPv6: address already assigned"),
        (Errno::EACCES, false) => Refusal::with(errno, "ipv6: IPv6 is disabled on this device"),
        (Errno::EADDRNOTAVAIL, false) if prefix.addr.is_multicast() => {
            Refusal::with(errno, "ipv6: Cannot assign multicast address without \"IFA_F_MCAUTOJOIN\" flag")
        }
        (Errno::EADDRNOTAVAIL, false) if prefix.addr.is_loopback() => {
            Refusal::with(errno, "ipv6: Cannot assign loopback address on this device")
        }
        (Errno::EADDRNOTAVAIL, false) => Refusal::with(errno, "ipv6: Invalid address"),
        _ => errno.into(),
    })
}

pub(super) fn delete_address(asker: &Asker<'_>) -> Result<()> {
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

/// The number of a scope of an IPv4 address that only lists know.
fn other_scope(ip: &IpAddr, scope: u8) -> u8 {
    let known = [libc::RT_SCOPE_UNIVERSE, libc::RT_SCOPE_LINK, libc::RT_SCOPE_HOST];
    if ip.is_ipv6() || known.contains(&scope) { 0 } else { scope }
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
    let other = name.and_then(|name| net.stack().link_by_name(name)).map(|link| link.index);
    let named = |link: &spec::Interface| match index {
        0 => name == Some(&link.name) || link.index != 0 && other == Some(link.index),
        index => link.index == index,
    };
    Ok(net.interfaces().links.iter().any(named))
}

/// Changes an interface that exists, makes one that does not.
pub(super) fn new_link(asker: &Asker<'_>) -> Result<()> {
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
    // What is to be made must not be there where it is to be.
    let exclusive = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let wanted = if flags & exclusive == exclusive { nsid::wanted(asker, &request)? } else { None };
    match exists(wanted.as_deref().unwrap_or(asker.net), &request)? {
        true if flags & libc::NLM_F_EXCL != 0 => Err(Errno::EEXIST.into()),
        true if flags & libc::NLM_F_REPLACE != 0 => Err(Errno::EOPNOTSUPP.into()),
        true => change_link(asker),
        false if flags & libc::NLM_F_CREATE != 0 => super::create::link(asker),
        false => Err(Errno::ENODEV.into()),
    }
}

/// Gives an interface further names or takes them away: each IFLA_ALT_IFNAME of IFLA_PROP_LIST.
pub(super) fn change_names(asker: &Asker<'_>) -> Result<()> {
    let known = [libc::IFLA_IFNAME, IFLA_ALT_IFNAME, IFLA_PROP_LIST, IFLA_EXT_MASK];
    let request = Request::new(asker.message, IFINFO, &known)?;
    let stack = asker.net.stack();
    let link = named(asker.net, &request)?;
    let mut changed = Ok(());
    for Attribute { kind, value: name, .. } in
        wire::list(request.attribute(IFLA_PROP_LIST).unwrap_or_default())
    {
        if kind != IFLA_ALT_IFNAME {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if name.strip_suffix(&[0]).unwrap_or(name).len() >= LONGEST_NAME {
            return Err(Errno::ERANGE.into());
        }
        let name = text(name)?;
        changed = match asker.header.kind {
            RTM_NEWLINKPROP => stack.add_name(link.index, name),
            _ => stack.remove_name(link.index, name),
        };
        if changed.is_err() {
            break;
        }
    }
    // Tells of those that were changed before an error, too.
    stack.configure_link(link.index, |_| {})?;
    Ok(changed?)
}

pub(super) fn delete_link(asker: &Asker<'_>) -> Result<()> {
    let known =
        [libc::IFLA_IFNAME, IFLA_ALT_IFNAME, IFLA_EXT_MASK, libc::IFLA_LINKINFO, nsid::IFLA_TARGET_NETNSID];
    let request = Request::new(asker.message, IFINFO, &known)?;
    let elsewhere = nsid::looked_at(asker)?;
    let net = elsewhere.as_ref().map_or(asker.net, |(_, net)| net);
    let link = named(net, &request)?;
    Ok(net.stack().remove_link(link.index)?)
}

const OF_LINK: [u16; 13] = [
    nsid::OF_TARGET[0],
    nsid::OF_TARGET[1],
    nsid::OF_TARGET[2],
    libc::IFLA_IFNAME,
    libc::IFLA_MTU,
    libc::IFLA_MASTER,
    libc::IFLA_ADDRESS,
    libc::IFLA_TXQLEN,
    libc::IFLA_IFALIAS,
    libc::IFLA_GROUP,
    libc::IFLA_LINKINFO,
    libc::IFLA_AF_SPEC,
    IFLA_EXT_MASK,
];
pub(super) fn change_link(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, IFINFO, &OF_LINK)?;
    let mode = generation_mode(&request)?;
    let (mut net, index) = (asker.net, request.word(4));
    let mut link = named(net, &request)?;
    // All else is for the interface where it is then.
    let wanted = nsid::wanted(asker, &request)?;
    if let Some(to) = wanted.as_deref().filter(|to| to.inum != net.inum) {
        link = move_link(net, &link, to, request.attribute(libc::IFLA_IFNAME))?;
        net = to;
    }
    let info = request.attribute(libc::IFLA_LINKINFO).unwrap_or_default();
    // Of what an interface is made of only the settings of bridges and their ports can be changed.
    let of_port = wire::find(info, IFLA_INFO_SLAVE_DATA);
    if let Some(data) = of_port {
        port::change(net.stack(), link.index, data)?;
    }
    match wire::find(info, IFLA_INFO_DATA).filter(|_| net.stack().is_bridge(link.index)) {
        Some(data) => {
            net.stack().set_bridge(link.index, super::bridge::settings(data, link.about().bridge)?)?
        }
        None if of_port.is_some() => {}
        None if wire::kinds(info).any(|kind| kind != IFLA_INFO_KIND) => return Err(Errno::EOPNOTSUPP.into()),
        None => {}
    }
    if let Some(mode) = mode {
        net.stack().set_conf(Whose::Link(link.index), Which::AddrGenMode, mode.into())?;
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
    if let Some(name) = request.attribute(libc::IFLA_IFNAME).filter(|_| index != 0)
        && text(name)? != link.name()
    {
        net.stack().rename(link.index, &free_name(net.stack(), name)?)?;
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

/// How the interface is to get its link-local address: IFLA_INET6_ADDR_GEN_MODE, the one setting of a family that can be changed.
/// Only its hardware address (0) or none at all (1) is there.
fn generation_mode(request: &Request<'_>) -> Result<Option<u8>> {
    let mut mode = None;
    for Attribute { kind: family, value: settings, .. } in
        wire::list(request.attribute(libc::IFLA_AF_SPEC).unwrap_or_default())
    {
        for Attribute { kind, value, .. } in wire::list(settings) {
            mode = match (i32::from(family), kind, value) {
                (libc::AF_INET6, IFLA_INET6_ADDR_GEN_MODE, [mode @ (0 | 1)]) => Some(*mode),
                (libc::AF_INET6, IFLA_INET6_ADDR_GEN_MODE, [4..=u8::MAX, ..]) => {
                    return Err(Errno::EINVAL.into());
                }
                _ => return Err(Errno::EOPNOTSUPP.into()),
            };
        }
    }
    Ok(mode)
}

/// Changes the MTU within the bounds of the interface's kind.
pub(super) fn set_mtu(net: &NetNamespace, link: &Iface, mtu: u32) -> Result<()> {
    if link.index != LOOPBACK {
        check_mtu(mtu)?;
    }
    Ok(net.stack().set_mtu(link.index, mtu)?)
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
