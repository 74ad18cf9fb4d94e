//! Addresses as RTM_NEWADDR describes them.

use super::answer::{Asker, FILTERED};
use super::notify::{bytes_of, family_of};
use super::wire::Message;
use netstack::addr::{Prefix, Scope};
use netstack::iface::{Address, Iface};
use spec::Interface;
use std::net::IpAddr;

const IFA_FLAGS: u16 = 8;
const FOREVER: [u8; 4] = u32::MAX.to_ne_bytes();

/// All addresses of a family; with strict checks those of one interface, if the request names it.
pub(super) fn dump(asker: &Asker<'_>) -> Vec<Vec<u8>> {
    let index = if asker.strict { asker.word(4) } else { 0 };
    let flags = if index != 0 { FILTERED } else { 0 };
    let wanted = |ip: &IpAddr| asker.family() == libc::AF_UNSPEC || asker.family() == family_of(ip);
    let mut out = Vec::new();
    let shown = asker.net.interfaces();
    for link in shown.links.iter().filter(|link| index == 0 || link.index == index) {
        let new = || asker.reply(libc::RTM_NEWADDR, flags);
        match asker.net.stack().link(link.index).filter(|_| asker.net.shows_stack()) {
            Some(iface) => {
                let all = iface.addresses();
                let all = all.iter().filter(|address| wanted(&address.ip()));
                out.extend(all.map(|address| describe(new(), &iface, address)));
            }
            None => {
                let all = link.addresses.iter().filter(|(ip, _)| wanted(ip));
                out.extend(all.map(|(ip, bits)| describe_shown(new(), link, *ip, *bits)));
            }
        }
    }
    // IPv4 first, as a kernel that asks one family after the other.
    out.sort_by_key(|message| message[super::wire::HEADER]);
    out
}

/// An address of the stack.
pub(super) fn describe(message: Message, iface: &Iface, address: &Address) -> Vec<u8> {
    one(message, (iface.index, &iface.name()), address)
}

/// An address that is only shown: its broadcast address is not known.
fn describe_shown(message: Message, link: &Interface, ip: IpAddr, bits: u8) -> Vec<u8> {
    let prefix = Prefix::new(ip, bits);
    let broadcast = prefix.broadcast().filter(|_| !ip.is_loopback());
    let scope = if ip.is_loopback() { Scope::Host } else { netstack::addr::scope(ip) };
    one(message, (link.index, &link.name), &Address { broadcast, scope, ..Address::new(prefix) })
}

fn one(message: Message, (index, name): (u32, &str), address: &Address) -> Vec<u8> {
    let ip = address.ip();
    let flags = libc::IFA_F_PERMANENT | if address.deprecated { libc::IFA_F_DEPRECATED } else { 0 };
    let mut fixed = vec![family_of(&ip) as u8, address.prefix.len, flags as u8, scope_byte(address.scope)];
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
        message = message.text(libc::IFA_LABEL, name);
    }
    let forever = [FOREVER, FOREVER, [0; 4], [0; 4]].concat();
    message.number(IFA_FLAGS, flags).attribute(libc::IFA_CACHEINFO, &forever).done()
}

/// RT_SCOPE_* of a scope.
pub(super) fn scope_byte(scope: Scope) -> u8 {
    match scope {
        Scope::Host => libc::RT_SCOPE_HOST,
        Scope::Link => libc::RT_SCOPE_LINK,
        Scope::Global => libc::RT_SCOPE_UNIVERSE,
    }
}
