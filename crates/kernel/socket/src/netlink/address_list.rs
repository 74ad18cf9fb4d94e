//! Addresses as RTM_NEWADDR describes them.

use super::asker::{Asker, FILTERED};
use super::wire::{Message, bytes_of, family_of};
use hostsys::clock::gettime_ns;
use ktime::Ktime;
use netstack::addr::{Prefix, Scope};
use netstack::iface::{Address, Dad, Iface};
use netstack::router::BY_ROUTER;
use spec::Interface;
use std::net::IpAddr;

const IFA_FLAGS: u16 = 8;
pub(super) const IFA_RT_PRIORITY: u16 = 9;
const IFA_PROTO: u16 = 11;
pub(super) const IFA_F_NOPREFIXROUTE: u32 = 0x200;
const IFA_F_MANAGETEMPADDR: u32 = 0x100;

/// All addresses of a family; with strict checks those of one interface, if the request names it.
pub(super) fn dump(asker: &Asker<'_>) -> Vec<Vec<u8>> {
    let index = if asker.strict { asker.word(4) } else { 0 };
    let flags = if index != 0 { FILTERED } else { 0 };
    let wanted = |ip: &IpAddr| asker.family() == libc::AF_UNSPEC || asker.family() == family_of(ip);
    let mut out = Vec::new();
    let (shown, now) = (asker.net.interfaces(), asker.net.now());
    for link in shown.links.iter().filter(|link| index == 0 || link.index == index) {
        let new = || asker.reply(libc::RTM_NEWADDR, flags);
        match asker.net.stack().link(link.index).filter(|_| asker.net.shows_stack()) {
            Some(iface) => {
                let all = iface.addresses();
                let all = all.iter().filter(|address| wanted(&address.ip()));
                out.extend(all.map(|address| describe(new(), &iface, address, now)));
            }
            None => {
                let all = link.addresses.iter().filter(|(ip, _)| wanted(ip));
                out.extend(all.map(|(ip, bits)| describe_shown(new(), link, (*ip, *bits), now)));
            }
        }
    }
    // IPv4 first, as a kernel that asks one family after the other.
    out.sort_by_key(|message| message[super::wire::HEADER]);
    out
}

/// An address of the stack.
pub(super) fn describe(message: Message, iface: &Iface, address: &Address, now: Ktime) -> Vec<u8> {
    one(message, (iface.index, &iface.name()), address, now)
}

/// An address that is only shown: its broadcast address is not known.
fn describe_shown(message: Message, link: &Interface, (ip, bits): (IpAddr, u8), now: Ktime) -> Vec<u8> {
    let prefix = Prefix::new(ip, bits);
    let broadcast = prefix.broadcast().filter(|_| !ip.is_loopback());
    let scope = if ip.is_loopback() { Scope::Host } else { netstack::addr::scope(ip) };
    one(message, (link.index, &link.name), &Address { broadcast, scope, ..Address::new(prefix) }, now)
}

fn one(message: Message, (index, name): (u32, &str), address: &Address, now: Ktime) -> Vec<u8> {
    let ip = address.ip();
    let flags = flags(address);
    let mut fixed = vec![family_of(&ip) as u8, address.prefix.len, flags as u8, scope_of(address)];
    fixed.extend(index.to_ne_bytes());
    let other = address.peer.unwrap_or(ip);
    let mut message = message.fixed(&fixed).attribute(libc::IFA_ADDRESS, &bytes_of(&other));
    if ip.is_ipv4() || address.peer.is_some() {
        message = message.attribute(libc::IFA_LOCAL, &bytes_of(&ip));
    }
    if let Some(broadcast) = address.broadcast {
        message = message.attribute(libc::IFA_BROADCAST, &broadcast.octets());
    }
    if ip.is_ipv4() {
        message = message.text(libc::IFA_LABEL, address.label.or(name));
    }
    if address.protocol != 0 {
        message = message.attribute(IFA_PROTO, &[address.protocol]);
    }
    if address.metric != 0 {
        message = message.number(IFA_RT_PRIORITY, address.metric);
    }
    message.number(IFA_FLAGS, flags).attribute(libc::IFA_CACHEINFO, &cache_info(address, now)).done()
}

/// The flags of an address (`IFA_F_*`, rtnetlink(7)).
pub fn flags(address: &Address) -> u32 {
    let of_dad = match address.dad {
        Dad::Done => 0,
        Dad::Tentative(probes) if probes.optimistic => libc::IFA_F_TENTATIVE | libc::IFA_F_OPTIMISTIC,
        Dad::Tentative(_) => libc::IFA_F_TENTATIVE,
        Dad::Failed => libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED,
    };
    let when = |on, flag| if on { flag } else { 0 };
    let by_router = address.protocol == BY_ROUTER;
    of_dad
        | when(address.is_permanent(), libc::IFA_F_PERMANENT)
        | when(address.deprecated, libc::IFA_F_DEPRECATED)
        | when(address.secondary, libc::IFA_F_SECONDARY)
        | when(address.no_dad, libc::IFA_F_NODAD)
        | when(address.no_prefix_route && !by_router, IFA_F_NOPREFIXROUTE)
        | when(by_router, IFA_F_MANAGETEMPADDR)
}

/// `struct ifa_cacheinfo`: the seconds that are left, and when the address was made and changed, in hundredths of seconds.
fn cache_info(address: &Address, now: Ktime) -> Vec<u8> {
    let left = |until: Option<Ktime>| match until {
        None => u32::MAX,
        Some(at) => u32::try_from(at.since(now).as_millis().div_ceil(1000)).unwrap_or(u32::MAX - 1),
    };
    // An IPv4 address without an end counts as preferred for ever, whatever was said.
    let kept = address.is_permanent() && address.ip().is_ipv4();
    let preferred = if kept { u32::MAX } else { left(address.preferred_until) };
    // Programs compare these with CLOCK_MONOTONIC. An address that is only shown has none.
    let monotonic =
        gettime_ns(libc::CLOCK_MONOTONIC).and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or(0);
    let nanos = |at: Ktime| match at {
        Ktime::ZERO => 0,
        at => monotonic.saturating_sub(now.since(at).as_nanos() as u64),
    };
    let stamps = [address.created, address.updated].map(|at| (nanos(at) / 10_000_000) as u32);
    [preferred, left(address.valid_until), stamps[0], stamps[1]]
        .iter()
        .flat_map(|n| n.to_ne_bytes())
        .collect()
}

/// The scope of an address, as it was given.
fn scope_of(address: &Address) -> u8 {
    if address.other_scope == 0 { scope_byte(address.scope) } else { address.other_scope }
}

/// RT_SCOPE_* of a scope.
pub(super) fn scope_byte(scope: Scope) -> u8 {
    match scope {
        Scope::Host => libc::RT_SCOPE_HOST,
        Scope::Link => libc::RT_SCOPE_LINK,
        Scope::Global => libc::RT_SCOPE_UNIVERSE,
    }
}
