//! Interfaces as RTM_NEWLINK describes them, and the requests for one or all.

use super::asker::Asker;
use super::error::Refusal;
use super::facts::Facts;
use super::ifla::{
    IFINFO, IFLA_ALT_IFNAME, IFLA_INET6_ADDR_GEN_MODE, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_INFO_SLAVE_DATA,
    IFLA_PROP_LIST, IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL,
};
use super::wire::{self, Message};
use super::{facts, nsid};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::monitor::How;
use std::sync::Arc;

/// Attributes that libc lacks.
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_PROTO_DOWN: u16 = 39;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_NEW_NETNSID: u16 = 45;
const IFLA_NEW_IFINDEX: u16 = 49;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_ALLMULTI: u16 = 61;
/// Attributes of IFLA_LINKINFO.
const IFLA_INFO_SLAVE_KIND: u16 = 4;
/// Attributes of a VLAN's and a TUN's IFLA_INFO_DATA.
const IFLA_VLAN_FLAGS: u16 = 2;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_INET_CONF: u16 = 1;
const IFLA_INET6_FLAGS: u16 = 1;
/// IPV4_DEVCONF_MAX.
const DEVCONF: usize = 33;
/// VLAN_FLAG_REORDER_HDR, with all bits as mask.
const REORDER: [u8; 8] = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// All interfaces that a dump asks for: of a kind, or ports of a bridge.
pub(super) fn dump(asker: &Asker<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let elsewhere = nsid::looked_at(asker)?;
    let number = |kind| {
        let value = wire::attribute(asker.message, IFINFO, kind)?;
        value.first_chunk().copied().map(u32::from_ne_bytes)
    };
    let info = wire::attribute(asker.message, IFINFO, libc::IFLA_LINKINFO);
    let kind = info.and_then(|info| wire::find(info, IFLA_INFO_KIND));
    let kind = kind.map(|kind| kind.strip_suffix(&[0]).unwrap_or(kind));
    let master = number(libc::IFLA_MASTER).filter(|master| *master != 0);
    let wanted = |facts: &Facts| {
        kind.is_none_or(|kind| facts.kind.as_bytes() == kind)
            && master.is_none_or(|master| facts.master == Some(master))
    };
    let filtered = if kind.is_some() || master.is_some() { super::asker::FILTERED } else { 0 };
    let all = described(asker, elsewhere);
    if asker.family() == super::port::AF_BRIDGE {
        return Ok(super::port::dump(asker, &all));
    }
    let wanted = all.iter().filter(|facts| wanted(facts));
    Ok(wanted.map(|facts| describe(asker.reply(libc::RTM_NEWLINK, filtered), facts, How::Set)).collect())
}

/// The interfaces that an asker looks at: of its own namespace or another one.
fn described(asker: &Asker<'_>, elsewhere: Option<(i32, Arc<NetNamespace>)>) -> Vec<Facts> {
    let told = &asker.net.netlink;
    match elsewhere {
        None => facts::all(asker.net, told),
        Some((id, net)) => {
            facts::all(&net, told).into_iter().map(|facts| Facts { target: Some(id), ..facts }).collect()
        }
    }
}

/// One interface, by index or name.
pub(super) fn get(asker: &Asker<'_>) -> Result<Vec<u8>, Refusal> {
    if asker.body().len() < IFINFO {
        return Err(Refusal::with(Errno::EINVAL, "Invalid header for get link"));
    }
    let elsewhere = nsid::looked_at(asker)?;
    let index = asker.word(4);
    let name = wire::attribute(asker.message, IFINFO, libc::IFLA_IFNAME);
    let name = name.or_else(|| wire::attribute(asker.message, IFINFO, IFLA_ALT_IFNAME));
    let name = name.map(|name| name.strip_suffix(&[0]).unwrap_or(name));
    if index == 0 && name.is_none() {
        return Err(Errno::EINVAL.into());
    }
    let is = |facts: &&Facts| match name {
        _ if index != 0 => facts.index == index,
        Some(name) => {
            facts.name.as_bytes() == name || facts.other_names.iter().any(|other| other.as_bytes() == name)
        }
        None => false,
    };
    let all = described(asker, elsewhere);
    let facts = all.iter().find(is).ok_or(Errno::ENODEV)?;
    Ok(describe(asker.reply(libc::RTM_NEWLINK, 0), facts, How::Set))
}

/// IFLA_PROP_LIST, with an IFLA_ALT_IFNAME for each further name.
/// NLA_F_NESTED.
const NESTED: u16 = 0x8000;

pub(super) fn describe(message: Message, link: &Facts, how: How) -> Vec<u8> {
    let loopback = link.flags & libc::IFF_LOOPBACK as u32 != 0;
    let gone = matches!(how, How::Gone | How::Moved { .. });
    let broadcast = vec![if loopback { 0 } else { 0xff }; link.address.len()];
    let has = |flag: i32| u32::from(link.flags & flag as u32 != 0);
    let (least, most) = if loopback { (0, 0) } else { (68, 65_535) };
    let mut message = link
        .begun(message, libc::AF_UNSPEC, gone)
        .text(libc::IFLA_IFNAME, &link.name)
        .number(libc::IFLA_TXQLEN, link.queue_len)
        .attribute(libc::IFLA_OPERSTATE, &[link.state()])
        .attribute(libc::IFLA_LINKMODE, &[0])
        .number(libc::IFLA_MTU, link.mtu)
        .number(IFLA_MIN_MTU, least)
        .number(IFLA_MAX_MTU, most)
        .number(libc::IFLA_GROUP, link.group)
        .number(libc::IFLA_PROMISCUITY, has(libc::IFF_PROMISC))
        .number(IFLA_ALLMULTI, has(libc::IFF_ALLMULTI))
        .number(libc::IFLA_NUM_TX_QUEUES, 1)
        .number(IFLA_GSO_MAX_SEGS, 65_535)
        .number(IFLA_GSO_MAX_SIZE, 65_536)
        .number(libc::IFLA_NUM_RX_QUEUES, 1);
    if let Some(target) = link.target {
        message = message.attribute(nsid::IFLA_TARGET_NETNSID, &target.to_ne_bytes());
    }
    if let Some(net) = link.lower_net {
        message = message.attribute(libc::IFLA_LINK_NETNSID, &net.to_ne_bytes());
    }
    if link.lower != 0 && (link.lower_net.is_some() || link.lower != link.index) {
        message = message.number(libc::IFLA_LINK, link.lower);
    }
    if let (How::Moved { index, .. }, Some(net)) = (how, link.new_net) {
        message = message.attribute(IFLA_NEW_NETNSID, &net.to_ne_bytes()).number(IFLA_NEW_IFINDEX, index);
    }
    if let Some(master) = link.master {
        message = message.number(libc::IFLA_MASTER, master);
    }
    // An interface that is down is assumed to have a carrier.
    let carrier = link.carrier || (link.flags & libc::IFF_UP as u32 == 0 && link.kind != "veth");
    message =
        message.attribute(libc::IFLA_CARRIER, &[carrier.into()]).text(libc::IFLA_QDISC, link.discipline());
    if !link.alias.is_empty() {
        message = message.text(libc::IFLA_IFALIAS, &link.alias);
    }
    if !link.other_names.is_empty() {
        let names = link.other_names.iter();
        let names: Vec<_> =
            names.flat_map(|name| wire::nested(IFLA_ALT_IFNAME, &[name.as_bytes(), &[0]].concat())).collect();
        message = message.attribute(NESTED | IFLA_PROP_LIST, &names);
    }
    message = message
        .number(IFLA_CARRIER_CHANGES, 0)
        .attribute(IFLA_PROTO_DOWN, &[0])
        .attribute(libc::IFLA_MAP, &[0; 32]);
    if !link.address.is_empty() {
        message =
            message.attribute(libc::IFLA_ADDRESS, &link.address).attribute(libc::IFLA_BROADCAST, &broadcast);
    }
    statistics(info(message, link), link).done()
}

/// IFLA_STATS64 and IFLA_STATS.
fn statistics(message: Message, link: &Facts) -> Message {
    let mut wide = [0; 25 * 8];
    let mut narrow = [0; 24 * 4];
    for (n, value) in link.stats.iter().enumerate() {
        wide[n * 8..n * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        narrow[n * 4..n * 4 + 4].copy_from_slice(&(*value as u32).to_ne_bytes());
    }
    let inet = wire::nested(IFLA_INET_CONF, &[0; DEVCONF * 4]);
    let inet6 = [
        wire::nested(IFLA_INET6_FLAGS, &0x8000_0000u32.to_ne_bytes()),
        wire::nested(IFLA_INET6_ADDR_GEN_MODE, &[link.gen_mode]),
    ];
    let families =
        [wire::nested(libc::AF_INET as u16, &inet), wire::nested(libc::AF_INET6 as u16, &inet6.concat())];
    message
        .attribute(libc::IFLA_STATS64, &wide)
        .attribute(libc::IFLA_STATS, &narrow)
        .attribute(libc::IFLA_AF_SPEC, &families.concat())
}

/// IFLA_LINKINFO.
fn info(message: Message, link: &Facts) -> Message {
    let mut info = Vec::new();
    if !link.kind.is_empty() {
        info.extend(wire::nested(IFLA_INFO_KIND, &[link.kind.as_bytes(), &[0]].concat()));
        let data = match (link.kind, link.vlan) {
            ("vlan", Some(id)) => [
                wire::nested(IFLA_VLAN_PROTOCOL, &0x8100u16.to_be_bytes()),
                wire::nested(IFLA_VLAN_ID, &id.to_ne_bytes()),
                wire::nested(IFLA_VLAN_FLAGS, &REORDER),
            ]
            .concat(),
            // IFF_TUN is 1, IFF_TAP 2.
            ("tun", _) => wire::nested(IFLA_TUN_TYPE, &[if link.tap { 2 } else { 1 }]),
            _ => link.bridge.map_or_else(Vec::new, |settings| super::bridge::describe(&settings)),
        };
        if !data.is_empty() {
            info.extend(wire::nested(IFLA_INFO_DATA, &data));
        }
    }
    if let Some((port, forwards)) = &link.port {
        info.extend(wire::nested(IFLA_INFO_SLAVE_KIND, b"bridge\0"));
        info.extend(wire::nested(IFLA_INFO_SLAVE_DATA, &super::port::describe(port, *forwards)));
    }
    if info.is_empty() { message } else { message.attribute(libc::IFLA_LINKINFO, &info) }
}
