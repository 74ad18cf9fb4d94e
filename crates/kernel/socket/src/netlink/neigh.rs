//! Neighbours: RTM_GETNEIGH, RTM_NEWNEIGH and RTM_DELNEIGH. See ip-neighbour(8).

use super::asker::{Asker, FILTERED};
use super::error::{Refusal, Result};
use super::request::Request;
use super::wire::{self, Message, bytes_of, family_of};
use abi::Errno;
use netstack::iface::{Iface, Kind};
use netstack::neigh::State;
use netstack::wire::eth::Mac;
use std::net::IpAddr;
use std::sync::Arc;

/// Length of `struct ndmsg`.
const NDMSG: usize = 12;
/// Attributes.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_CACHEINFO: u16 = 3;
const NDA_PROBES: u16 = 4;
const NDA_IFINDEX: u16 = 8;
const NDA_MASTER: u16 = 9;
const NDA_PROTOCOL: u16 = 12;
/// NUD_*.
const STATES: [(State, u16); 7] = [
    (State::Incomplete, 0x01),
    (State::Reachable, 0x02),
    (State::Stale, 0x04),
    (State::Delay, 0x08),
    (State::Probe, 0x10),
    (State::Failed, 0x20),
    (State::Permanent, 0x80),
];
const NUD_NOARP: u16 = 0x40;
/// NTF_PROXY.
const PROXY: u8 = 8;

/// All neighbours of a family, or of an interface.
pub(super) fn dump(asker: &Asker<'_>) -> Vec<Vec<u8>> {
    if !asker.net.shows_stack() || asker.byte(10) & PROXY != 0 {
        return Vec::new();
    }
    let number = |kind| {
        let value = wire::attribute(asker.message, NDMSG, kind)?;
        value.first_chunk().copied().map(u32::from_ne_bytes).filter(|value| *value != 0)
    };
    let (index, master) = (number(NDA_IFINDEX), number(NDA_MASTER));
    let flags = if index.is_some() || master.is_some() { FILTERED } else { 0 };
    let stack = asker.net.stack();
    let mut all = stack.with_neighbours(|table| table.shown(asker.net.now(), &stack.sysctls));
    all.sort_by_key(|(key, ..)| (key.1.is_ipv6(), key.0, key.1));
    let wanted = |key: &(u32, IpAddr)| {
        (asker.family() == libc::AF_UNSPEC || asker.family() == family_of(&key.1))
            && index.is_none_or(|index| index == key.0)
            && master.is_none_or(|m| stack.link(key.0).and_then(|link| link.master_index()) == Some(m))
    };
    all.into_iter()
        .filter(|(key, ..)| wanted(key))
        .map(|((index, ip), mac, state)| {
            describe(asker.reply(libc::RTM_NEWNEIGH, flags), index, ip, mac, state)
        })
        .collect()
}

/// One neighbour.
pub(super) fn get(asker: &Asker<'_>) -> Result<Vec<u8>> {
    let request = Request::new(asker.message, NDMSG, &[NDA_DST, NDA_IFINDEX, NDA_MASTER])?;
    let ip = request.address(NDA_DST)?;
    let ip = ip.ok_or(Refusal::with(Errno::EINVAL, "Network address not specified"))?;
    let index = request.word(4);
    if index == 0 {
        return Err(Refusal::with(Errno::EINVAL, "No device specified"));
    }
    let stack = asker.net.stack();
    let all = stack.with_neighbours(|table| table.shown(asker.net.now(), &stack.sysctls));
    let found = all.into_iter().find(|(key, ..)| *key == (index, ip));
    let (_, mac, state) = found.ok_or(Refusal::with(Errno::ENOENT, "Neighbour entry not found"))?;
    Ok(describe(asker.reply(libc::RTM_NEWNEIGH, 0), index, ip, mac, state))
}

pub(super) fn describe(message: Message, index: u32, ip: IpAddr, mac: Mac, state: State) -> Vec<u8> {
    let bits = STATES.iter().find(|(known, _)| *known == state).map_or(0, |(_, bits)| *bits);
    let mut fixed = vec![family_of(&ip) as u8, 0, 0, 0];
    fixed.extend(index.to_ne_bytes());
    fixed.extend(bits.to_ne_bytes());
    // RTN_UNICAST.
    fixed.extend([0, 1]);
    let mut message = message.fixed(&fixed).attribute(NDA_DST, &bytes_of(&ip));
    if !matches!(state, State::Incomplete | State::Failed) {
        message = message.attribute(NDA_LLADDR, &mac.0);
    }
    message.number(NDA_PROBES, 0).attribute(NDA_CACHEINFO, &[0; 16]).done()
}

/// What both changes name.
struct Named {
    iface: Arc<Iface>,
    ip: IpAddr,
}

fn named(asker: &Asker<'_>, request: &Request<'_>) -> Result<Named> {
    let value = request.attribute(NDA_DST);
    let value = value.ok_or(Refusal::with(Errno::EINVAL, "Network address not specified"))?;
    let index = request.word(4);
    let iface = match index {
        0 => None,
        index => Some(super::request::link(asker.net, index)?),
    };
    let needed = match asker.family() {
        libc::AF_INET => 4,
        libc::AF_INET6 => 16,
        // PF_BRIDGE entries: forwarding tables of bridges.
        _ => return Err(Errno::EAFNOSUPPORT.into()),
    };
    if value.len() < needed {
        return Err(Refusal::with(Errno::EINVAL, "Invalid network address"));
    }
    if request.byte(10) & PROXY != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let ip = match <[u8; 16]>::try_from(value) {
        Ok(v6) if needed == 16 => IpAddr::from(v6),
        _ => IpAddr::from(*value.first_chunk::<4>().ok_or(Errno::EINVAL)?),
    };
    // Without an interface there is nothing to look up, whatever the table holds.
    let iface = iface.ok_or(Refusal::from(Errno::EINVAL))?;
    Ok(Named { iface, ip })
}

const KNOWN: [u16; 5] = [NDA_DST, NDA_LLADDR, NDA_CACHEINFO, NDA_PROBES, NDA_PROTOCOL];

/// RTM_NEWNEIGH.
pub(super) fn add(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, NDMSG, &KNOWN)?;
    let Named { iface, ip } = named(asker, &request)?;
    let mac = request.attribute(NDA_LLADDR);
    if mac.is_some_and(|mac| mac.len() < 6) {
        return Err(Refusal::with(Errno::EINVAL, "Invalid link address"));
    }
    let wanted = u16::from_ne_bytes([request.byte(8), request.byte(9)]);
    let state = STATES.iter().find(|(_, bits)| *bits == wanted).map(|(state, _)| *state);
    let state = match state {
        Some(state) => state,
        None if wanted == 0 || wanted == NUD_NOARP => return Err(Errno::EOPNOTSUPP.into()),
        None => return Err(Errno::EINVAL.into()),
    };
    if iface.kind != Kind::Ethernet {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let flags = i32::from(asker.header.flags);
    let (key, time, stack) = ((iface.index, ip), asker.net.now(), asker.net.stack());
    let most = stack.sysctls.neigh_gc_thresh.size();
    let (mac, waiting) = stack.with_neighbours(|table| {
        let known = table.shown(time, &stack.sysctls);
        let old = known.iter().find(|(other, ..)| *other == key);
        match old {
            None if flags & libc::NLM_F_CREATE == 0 => return Err(Errno::ENOENT),
            None if known.len() >= most => return Err(Errno::ENOBUFS),
            Some(_) if flags & libc::NLM_F_EXCL != 0 => return Err(Errno::EEXIST),
            _ => {}
        }
        let given = mac.and_then(|mac| mac.first_chunk().copied()).map(Mac);
        let valid = !matches!(state, State::Incomplete | State::Failed);
        let mac = match (given, old) {
            (Some(given), Some((_, mac, _))) if given != *mac && flags & libc::NLM_F_REPLACE == 0 => *mac,
            (Some(given), _) => given,
            (None, Some((_, mac, _))) => *mac,
            (None, None) if valid => return Err(Errno::EINVAL),
            (None, None) => Mac::default(),
        };
        Ok((mac, table.set_at(key, mac, state, time)))
    })?;
    stack.send_waiting(time, &iface, mac, waiting);
    Ok(())
}

/// RTM_DELNEIGH.
pub(super) fn delete(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, NDMSG, &KNOWN)?;
    let Named { iface, ip } = named(asker, &request)?;
    let key = (iface.index, ip);
    match asker.net.stack().with_neighbours(|table| table.remove(&key)) {
        false => Err(Errno::ENOENT.into()),
        true => Ok(()),
    }
}
