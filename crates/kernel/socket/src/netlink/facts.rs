//! Facts of interfaces: those of the stack, and those that are only shown.

use super::sockets::Sockets;
use super::wire::Message;
use crate::net_ns::NetNamespace;
use netstack::bridge::{BridgeSettings, PortSettings};
use netstack::conf::Which;
use netstack::iface::{Iface, Kind};
use spec::Interface;
use std::sync::atomic::Ordering;

/// IN6_ADDR_GEN_MODE_NONE: interfaces get no link-local address by themselves.
const GEN_MODE_NONE: u8 = 1;
/// IFF_LOWER_UP, which libc lacks.
const LOWER_UP: u32 = 1 << 16;
/// IF_OPER_*.
const UNKNOWN: u8 = 0;
const DOWN: u8 = 2;
const LOWER_DOWN: u8 = 3;
const UP: u8 = 6;

/// The facts of an interface that RTM_NEWLINK describes.
pub(super) struct Facts {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) flags: u32,
    pub(super) arphrd: u16,
    pub(super) mtu: u32,
    pub(super) address: Vec<u8>,
    pub(super) kind: &'static str,
    pub(super) lower: u32,
    /// What the namespace that is told calls the one where `lower` is, unless that is the interface's own.
    pub(super) lower_net: Option<i32>,
    pub(super) master: Option<u32>,
    pub(super) vlan: Option<u16>,
    pub(super) carrier: bool,
    pub(super) queue_len: u32,
    /// It has a queue that was set (`pfifo`).
    pub(super) queued: bool,
    pub(super) group: u32,
    pub(super) alias: String,
    pub(super) other_names: Vec<String>,
    pub(super) tap: bool,
    /// What it is set to if it is a port of a bridge, and whether it passes frames on.
    pub(super) port: Option<(PortSettings, bool)>,
    /// What it is set to if it is a bridge.
    pub(super) bridge: Option<BridgeSettings>,
    /// What the asker calls the namespace that the interface is in, if it looks at another one.
    pub(super) target: Option<i32>,
    /// What the namespace that is told calls the one that the interface has moved to.
    pub(super) new_net: Option<i32>,
    /// The first nine of `struct rtnl_link_stats64`.
    pub(super) stats: [u64; 9],
    /// How it gets its link-local address.
    pub(super) gen_mode: u8,
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
        let alias = iface.shown.alias.read().clone();
        let other_names = iface.shown.other_names.read().clone();
        Facts {
            flags: flags | iface.own_flags(),
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
            alias,
            other_names,
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
    pub(super) fn discipline(&self) -> &'static str {
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

    pub(super) fn state(&self) -> u8 {
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
