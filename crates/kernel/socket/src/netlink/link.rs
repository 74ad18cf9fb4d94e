//! Interfaces as RTM_NEWLINK describes them, and the requests for one or all.

use super::answer::Asker;
use super::error::Refusal;
use super::nsid;
use super::sockets::Sockets;
use super::wire::{self, Message};
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::bridge::{BridgeSettings, PortSettings};
use netstack::conf::Which;
use netstack::iface::{Iface, Kind};
use netstack::monitor::How;
use spec::Interface;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Length of `struct ifinfomsg`.
pub(super) const IFINFO: usize = 16;
/// Attributes that libc lacks.
pub(super) const IFLA_EXT_MASK: u16 = 29;
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
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
pub(super) const IFLA_INFO_SLAVE_DATA: u16 = 5;
/// Attributes of a VLAN's and a TUN's IFLA_INFO_DATA.
pub(super) const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_FLAGS: u16 = 2;
pub(super) const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_INET_CONF: u16 = 1;
const IFLA_INET6_FLAGS: u16 = 1;
pub(super) const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// IN6_ADDR_GEN_MODE_NONE: interfaces get no link-local address by themselves.
const GEN_MODE_NONE: u8 = 1;
/// IPV4_DEVCONF_MAX.
const DEVCONF: usize = 33;
/// IFF_LOWER_UP, which libc lacks.
const LOWER_UP: u32 = 1 << 16;
/// IF_OPER_*.
const UNKNOWN: u8 = 0;
const DOWN: u8 = 2;
const LOWER_DOWN: u8 = 3;
const UP: u8 = 6;
/// VLAN_FLAG_REORDER_HDR, with all bits as mask.
const REORDER: [u8; 8] = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// What is told of an interface.
pub(super) struct Facts {
    pub(super) index: u32,
    pub(super) name: String,
    flags: u32,
    arphrd: u16,
    mtu: u32,
    address: Vec<u8>,
    pub(super) kind: &'static str,
    lower: u32,
    /// What the namespace that is told calls the one where `lower` is, unless that is the interface's own.
    lower_net: Option<i32>,
    pub(super) master: Option<u32>,
    vlan: Option<u16>,
    carrier: bool,
    queue_len: u32,
    /// It has a queue that was set (`pfifo`).
    queued: bool,
    group: u32,
    alias: String,
    other_names: Vec<String>,
    tap: bool,
    /// What it is set to if it is a port of a bridge, and whether it passes frames on.
    pub(super) port: Option<(PortSettings, bool)>,
    /// What it is set to if it is a bridge.
    bridge: Option<BridgeSettings>,
    /// What the asker calls the namespace that the interface is in, if it looks at another one.
    target: Option<i32>,
    /// What the namespace that is told calls the one that the interface has moved to.
    pub(super) new_net: Option<i32>,
    /// The first nine of `struct rtnl_link_stats64`.
    stats: [u64; 9],
    /// How it gets its link-local address.
    gen_mode: u8,
}

impl Facts {
    /// Of an interface of the stack with number `own`, to tell sockets of a namespace.
    pub(super) fn of(iface: &Iface, own: u64, told: &Sockets) -> Facts {
        let (about, shown) = (iface.about(), crate::shown::interface(iface));
        let up = (libc::IFF_RUNNING as u32) | LOWER_UP;
        let flags = if about.no_carrier { shown.flags & !up } else { shown.flags };
        let c = &iface.counters;
        let stats = [
            &c.rx_packets,
            &c.tx_packets,
            &c.rx_bytes,
            &c.tx_bytes,
            &c.rx_errors,
            &c.tx_errors,
            &c.rx_dropped,
            &c.tx_dropped,
            &c.multicast,
        ];
        Facts {
            flags: flags | iface.shown.flags.load(Ordering::Relaxed),
            kind: about.kind,
            lower: about.lower,
            lower_net: about.lower_stack.filter(|stack| *stack != own).map(|stack| told.nsid_or_new(stack)),
            master: iface.master_index(),
            port: iface.as_port(),
            vlan: about.vlan,
            carrier: iface.is_up() && !about.no_carrier,
            queue_len: iface.shown.queue_len.load(Ordering::Relaxed),
            queued: iface.fifo().is_some(),
            group: iface.shown.group.load(Ordering::Relaxed),
            alias: iface.shown.alias.read().clone(),
            other_names: iface.shown.other_names.read().clone(),
            tap: iface.kind == Kind::Ethernet,
            bridge: about.bridge,
            stats: stats.map(|counter| counter.get()),
            gen_mode: iface.setting(Which::AddrGenMode) as u8,
            ..Facts::of_shown(&shown)
        }
    }

    /// Of an interface that is only shown.
    fn of_shown(link: &Interface) -> Facts {
        Facts {
            index: link.index,
            name: link.name.clone(),
            flags: link.flags,
            arphrd: link.kind,
            mtu: link.mtu,
            address: link.address.clone(),
            kind: "",
            lower: 0,
            lower_net: None,
            master: None,
            port: None,
            vlan: None,
            carrier: link.flags & libc::IFF_UP as u32 != 0,
            queue_len: 1000,
            queued: false,
            group: 0,
            alias: String::new(),
            other_names: Vec::new(),
            tap: false,
            bridge: None,
            target: None,
            new_net: None,
            stats: [0; 9],
            gen_mode: GEN_MODE_NONE,
        }
    }

    /// The queueing discipline.
    fn discipline(&self) -> &'static str {
        match self.flags & libc::IFF_UP as u32 {
            _ if self.queued => "pfifo",
            0 => "noop",
            _ => "noqueue",
        }
    }

    /// A message with its `struct ifinfomsg`.
    pub(super) fn begun(&self, message: Message, family: i32, gone: bool) -> Message {
        let mut fixed = vec![family as u8, 0];
        fixed.extend(self.arphrd.to_ne_bytes());
        fixed.extend(self.index.to_ne_bytes());
        fixed.extend(self.flags.to_ne_bytes());
        // ifi_change is all ones in a farewell.
        fixed.extend((if gone { u32::MAX } else { 0 }).to_ne_bytes());
        message.fixed(&fixed)
    }

    /// What messages of AF_BRIDGE tell of an interface, but for what they are about.
    pub(super) fn short(&self, message: Message) -> Message {
        let message =
            message.number(libc::IFLA_MTU, self.mtu).attribute(libc::IFLA_OPERSTATE, &[self.state()]);
        let message = message.attribute(libc::IFLA_ADDRESS, &self.address);
        match self.lower {
            0 => message,
            lower => message.number(libc::IFLA_LINK, lower),
        }
    }

    fn state(&self) -> u8 {
        let never_told = matches!(self.kind, "dummy" | "tun");
        match self.flags & libc::IFF_UP as u32 {
            0 => DOWN,
            _ if self.flags & libc::IFF_LOOPBACK as u32 != 0 => UNKNOWN,
            _ if self.carrier && never_told => UNKNOWN,
            _ if self.carrier => UP,
            _ if self.lower != 0 && self.lower_net.is_none() => LOWER_DOWN,
            _ => DOWN,
        }
    }
}

/// The interfaces of a namespace, by index, to tell sockets of a namespace.
pub(super) fn all(net: &NetNamespace, told: &Sockets) -> Vec<Facts> {
    let shown = net.interfaces();
    let of_stack = |link: &Interface| net.stack().link(link.index).filter(|_| net.shows_stack());
    let mut all: Vec<_> = shown
        .links
        .iter()
        .map(|link| match of_stack(link).filter(|iface| iface.name() == link.name) {
            Some(iface) => Facts::of(&iface, net.inum, told),
            None => Facts::of_shown(link),
        })
        .collect();
    all.sort_by_key(|facts| facts.index);
    all
}

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
    let filtered = if kind.is_some() || master.is_some() { super::answer::FILTERED } else { 0 };
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
        None => all(asker.net, told),
        Some((id, net)) => {
            all(&net, told).into_iter().map(|facts| Facts { target: Some(id), ..facts }).collect()
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
pub(super) const IFLA_PROP_LIST: u16 = 52;
pub(super) const IFLA_ALT_IFNAME: u16 = 53;
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
