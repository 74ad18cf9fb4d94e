//! The requests of netdevice(7) that sockets of every family take.

use super::address::{self, SIOCSIFADDR, SIOCSIFNETMASK};
use super::change::{set_address, set_mtu};
use super::create::set_flags;
use super::error::Refusal;
use super::request::valid_name;
use super::{brctl, old, old6};
use crate::net_ns::NetNamespace;
use abi::{Errno, Result};
use caller::UserMemory;
use netstack::addr::Prefix;
use netstack::iface::{Address, Label};
use rights::Cap;
use spec::{Interface, Interfaces};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use vfs::Caller;

/// Length of `struct ifreq`, and where its value begins.
const IFREQ: usize = 40;
const NAME: usize = 16;

const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCSIFFLAGS: u32 = 0x8914;
const SIOCGIFADDR: u32 = 0x8915;
const SIOCGIFDSTADDR: u32 = 0x8917;
const SIOCGIFBRDADDR: u32 = 0x8919;
const SIOCGIFNETMASK: u32 = 0x891b;
const SIOCSIFMTU: u32 = 0x8922;
const SIOCDIFADDR: u32 = 0x8936;
const SIOCGIFMETRIC: u32 = 0x891d;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCSIFHWADDR: u32 = 0x8924;
const SIOCSIFNAME: u32 = 0x8923;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCSIFTXQLEN: u32 = 0x8943;
const SIOCETHTOOL: u32 = 0x8946;
const SIOCGIFMAP: u32 = 0x8970;

/// Answers one; ENOTTY for what is none of them. Sockets of AF_INET and AF_INET6 know addresses and routes, too.
pub(crate) fn ioctl(
    cx: &dyn Caller,
    owner: &NetNamespace,
    family: i32,
    mem: &mut dyn UserMemory,
    (cmd, arg): (u32, u64),
) -> Result<u64> {
    let net = &*owner.interfaces();
    let (v4, v6) = (family == libc::AF_INET, family == libc::AF_INET6);
    let plain = |refusal: Refusal| refusal.errno;
    match cmd {
        SIOCGIFCONF => return conf(owner, net, mem, arg),
        SIOCGIFADDR..=SIOCGIFNETMASK if v4 && cmd % 2 == 1 => return first_address(owner, mem, cmd, arg),
        SIOCSIFADDR | SIOCSIFNETMASK if v4 => return change(cx, owner, v4, mem, (cmd, arg)),
        SIOCSIFFLAGS | SIOCSIFMTU | SIOCSIFHWADDR | SIOCSIFNAME | SIOCSIFTXQLEN => {
            return change(cx, owner, v4, mem, (cmd, arg));
        }
        SIOCSIFADDR | SIOCDIFADDR if v6 => {
            return old6::change(cx, owner, mem, cmd == SIOCSIFADDR, arg).map_err(plain);
        }
        old::SIOCADDRT | old::SIOCDELRT if v6 => {
            return old6::route(cx, owner, mem, cmd == old::SIOCADDRT, arg).map_err(plain);
        }
        brctl::SIOCSIFBR | brctl::SIOCBRADDBR..=brctl::SIOCBRDELIF | brctl::SIOCDEVPRIVATE => {
            return brctl::ioctl(cx, owner, mem, (cmd, arg));
        }
        old::SIOCADDRT | old::SIOCDELRT if v4 => {
            return old::route(cx, owner, mem, cmd, arg).map_err(plain);
        }
        old::SIOCDARP..=old::SIOCSARP if v4 => {
            return old::arp(cx, owner, mem, cmd, arg).map_err(plain);
        }
        SIOCETHTOOL => return super::ethtool::answer(owner, mem, arg),
        SIOCGIFNAME | SIOCGIFFLAGS | SIOCGIFMETRIC | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFINDEX
        | SIOCGIFTXQLEN | SIOCGIFMAP => {}
        _ => return Err(Errno::ENOTTY),
    }
    let mut request = [0; IFREQ];
    mem.copy_in(arg, &mut request)?;
    let index = u32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
    let link = match cmd {
        SIOCGIFNAME => net.links.iter().find(|link| link.index == index).ok_or(Errno::ENODEV)?,
        _ => named(owner, net, &request)?,
    };
    let value = match cmd {
        SIOCGIFNAME => {
            mem.copy_out(arg, &name_of(link))?;
            return Ok(0);
        }
        SIOCGIFFLAGS => (link.flags as u16).to_ne_bytes().to_vec(),
        SIOCGIFMETRIC => vec![0; 4],
        SIOCGIFMTU => link.mtu.to_ne_bytes().to_vec(),
        SIOCGIFHWADDR => {
            let mut address = link.kind.to_ne_bytes().to_vec();
            address.extend(&link.address);
            address.resize(16, 0);
            address
        }
        SIOCGIFTXQLEN => {
            let own = owner.stack().link(link.index).filter(|_| owner.shows_stack());
            let len = own.map_or(1000, |own| own.shown.queue_len.load(Ordering::Relaxed));
            len.to_ne_bytes().to_vec()
        }
        SIOCGIFMAP => vec![0; 24],
        _ => link.index.to_ne_bytes().to_vec(),
    };
    mem.copy_out(arg + NAME as u64, &value)?;
    Ok(0)
}

/// The name in a `struct ifreq`.
fn name_in(request: &[u8; IFREQ]) -> &[u8] {
    request[..NAME].split(|&b| b == 0).next().unwrap_or_default()
}

/// The interface that a `struct ifreq` names, by any of its names, or by that of an alias (`eth0:1`).
fn named<'a>(owner: &NetNamespace, net: &'a Interfaces, request: &[u8; IFREQ]) -> Result<&'a Interface> {
    let name = name_in(request).split(|&b| b == b':').next().unwrap_or_default();
    let other = std::str::from_utf8(name).ok().and_then(|name| owner.stack().link_by_name(name));
    let other = other.filter(|_| owner.shows_stack()).map(|link| link.index);
    let is = |link: &&Interface| link.name.as_bytes() == name || other == Some(link.index);
    net.links.iter().find(is).ok_or(Errno::ENODEV)
}

/// SIOCGIFADDR, SIOCGIFDSTADDR, SIOCGIFBRDADDR, SIOCGIFNETMASK: of the first IPv4 address.
fn first_address(owner: &NetNamespace, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
    let mut request = [0; IFREQ];
    mem.copy_in(arg, &mut request)?;
    let net = owner.interfaces();
    let link = named(owner, &net, &request)?;
    let iface = owner.stack().link(link.index).filter(|_| owner.shows_stack());
    let first = |all: Vec<Address>| all.into_iter().find(|address| address.ip().is_ipv4());
    let name = name_in(&request);
    let own = match iface {
        Some(iface) => {
            // The interface may have been named by another of its names.
            let alias = name.contains(&b':');
            let name = if alias { String::from_utf8_lossy(name).into_owned() } else { iface.name() };
            address::labelled(&iface, &name)
        }
        None if name.contains(&b':') => None,
        // Its broadcast address is not known; it is the usual one.
        None => {
            first(link.addresses.iter().map(|(ip, bits)| Address::new(Prefix::new(*ip, *bits))).collect())
                .map(|own| Address {
                    broadcast: own.prefix.broadcast().filter(|_| !own.ip().is_loopback()),
                    ..own
                })
        }
    };
    let own = own.ok_or(Errno::EADDRNOTAVAIL)?;
    let host = u32::MAX.checked_shr(own.prefix.len.into()).unwrap_or(0);
    let shown = match (cmd, own.ip()) {
        (SIOCGIFNETMASK, _) => Ipv4Addr::from_bits(!host),
        (SIOCGIFBRDADDR, _) => own.broadcast.unwrap_or(Ipv4Addr::UNSPECIFIED),
        (SIOCGIFDSTADDR, own_ip) => match own.peer.unwrap_or(own_ip) {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        },
        (_, IpAddr::V4(ip)) => ip,
        (_, IpAddr::V6(_)) => Ipv4Addr::UNSPECIFIED,
    };
    let mut value = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    value.extend([0, 0]);
    value.extend(shown.octets());
    value.resize(16, 0);
    mem.copy_out(arg + NAME as u64, &value)?;
    Ok(0)
}

/// SIOCSIFFLAGS, of which IFF_UP has an effect, SIOCSIFMTU, SIOCSIFADDR and SIOCSIFNETMASK.
fn change(
    cx: &dyn Caller,
    owner: &NetNamespace,
    v4: bool,
    mem: &mut dyn UserMemory,
    (cmd, arg): (u32, u64),
) -> Result<u64> {
    let mut request = [0; IFREQ];
    mem.copy_in(arg, &mut request)?;
    if !cx.creds().ns_capable(owner.user_ns(), Cap::NET_ADMIN) {
        return Err(Errno::EPERM);
    }
    let mut sockaddr = [0; 16];
    sockaddr.copy_from_slice(&request[NAME..NAME + 16]);
    let (family, value_v4) = address::family_and_address(&sockaddr);
    let of_address = matches!(cmd, SIOCSIFADDR | SIOCSIFNETMASK);
    if of_address && i32::from(family) != libc::AF_INET {
        return Err(Errno::EINVAL);
    }
    let _rtnl = owner.rtnl();
    let index = named(owner, &owner.interfaces(), &request)?.index;
    let link = owner.stack().link(index).filter(|_| owner.shows_stack()).ok_or(Errno::EOPNOTSUPP)?;
    let value = u32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
    let errno = |refusal: Refusal| refusal.errno;
    let alias = Some(name_in(&request)).filter(|name| name.contains(&b':'));
    let alias = alias.map(|name| std::str::from_utf8(name).map_err(|_| Errno::ENODEV)).transpose()?;
    match cmd {
        _ if of_address => address::set(owner, &link, alias.unwrap_or(&link.name()), cmd, value_v4)?,
        SIOCSIFFLAGS if v4 && let Some(alias) = alias => {
            if value & libc::IFF_UP as u32 == 0 {
                address::end_alias(owner, &link, alias)?;
            } else if address::labelled(&link, alias).is_none() {
                return Err(Errno::EADDRNOTAVAIL);
            }
        }
        SIOCSIFMTU => set_mtu(owner, &link, value).map_err(errno)?,
        SIOCSIFHWADDR if family != KIND_ETHERNET => return Err(Errno::EINVAL),
        SIOCSIFHWADDR => set_address(owner, &link, &request[NAME + 2..NAME + 8]).map_err(errno)?,
        SIOCSIFNAME => {
            let name = valid_name(&request[NAME..NAME * 2]).map_err(errno)?;
            owner.stack().rename(index, name)?;
        }
        SIOCSIFTXQLEN => {
            owner.stack().configure_link(index, |l| l.shown.queue_len.store(value, Ordering::Relaxed))?;
        }
        _ => {
            let all = libc::IFF_UP as u32 | u32::from(u16::MAX);
            set_flags(owner, &link, value & 0xffff, all).map_err(errno)?;
        }
    }
    Ok(0)
}

/// ARPHRD_ETHER.
const KIND_ETHERNET: u16 = 1;

fn name_of(link: &Interface) -> [u8; NAME] {
    padded(&link.name)
}

fn padded(text: &str) -> [u8; NAME] {
    let mut name = [0; NAME];
    let bytes = text.as_bytes();
    let len = bytes.len().min(NAME - 1);
    name[..len].copy_from_slice(&bytes[..len]);
    name
}

/// SIOCGIFCONF: interfaces and aliases with their IPv4 addresses, as many as there is room for; without a buffer, the room they need.
fn conf(owner: &NetNamespace, net: &Interfaces, mem: &mut dyn UserMemory, arg: u64) -> Result<u64> {
    let mut ifconf = [0; 16];
    mem.copy_in(arg, &mut ifconf)?;
    let word = |at: usize| i32::from_ne_bytes([ifconf[at], ifconf[at + 1], ifconf[at + 2], ifconf[at + 3]]);
    let mut pointer = [0; 8];
    pointer.copy_from_slice(&ifconf[8..]);
    let (room, buffer) = (word(0).max(0) as usize, u64::from_ne_bytes(pointer));
    let mut out = Vec::new();
    for link in &net.links {
        let own = owner.stack().link(link.index).filter(|_| owner.shows_stack());
        let addresses: Vec<(IpAddr, Label)> = match own {
            Some(own) => own.addresses().iter().map(|address| (address.ip(), address.label)).collect(),
            None => link.addresses.iter().map(|(ip, _)| (*ip, Label::default())).collect(),
        };
        for (ip, label) in addresses {
            let IpAddr::V4(ip) = ip else { continue };
            let mut request = padded(label.or(&link.name)).to_vec();
            request.extend((libc::AF_INET as u16).to_ne_bytes());
            request.extend([0, 0]);
            request.extend(ip.octets());
            request.resize(IFREQ, 0);
            out.extend(request);
        }
    }
    if buffer != 0 {
        out.truncate(room / IFREQ * IFREQ);
        mem.copy_out(buffer, &out)?;
    }
    mem.copy_out(arg, &(out.len() as u32).to_ne_bytes())?;
    Ok(0)
}
