//! Ports of bridges, as bridge(8) and `ip link set ... type bridge_slave` change and list them: messages of AF_BRIDGE
//! with IFLA_PROTINFO, and IFLA_INFO_SLAVE_DATA of others. There is no spanning tree, no snooping of multicast and no
//! filtering of VLANs. Their settings show Linux's initial values and cannot be changed.

use super::asker::Asker;
use super::error::Result;
use super::facts::Facts;
use super::ifla::{IFINFO, IFLA_EXT_MASK};
use super::request::Request;
use super::wire::{self, Attribute, Message};
use abi::Errno;
use netstack::Stack;
use netstack::bridge::PortSettings;

pub(super) const AF_BRIDGE: i32 = 7;
const IFLA_PROTINFO: u16 = 12;
/// NLA_F_NESTED.
const NESTED: u16 = 0x8000;
/// IFLA_BRPORT_*.
const STATE: u16 = 1;
const PRIORITY: u16 = 2;
const COST: u16 = 3;
const MODE: u16 = 4;
const GUARD: u16 = 5;
const PROTECT: u16 = 6;
const FAST_LEAVE: u16 = 7;
const LEARNING: u16 = 8;
const UNICAST_FLOOD: u16 = 9;
const PROXYARP: u16 = 10;
const PROXYARP_WIFI: u16 = 12;
const MULTICAST_ROUTER: u16 = 25;
const MCAST_FLOOD: u16 = 27;
const MCAST_TO_UCAST: u16 = 28;
const VLAN_TUNNEL: u16 = 29;
const BCAST_FLOOD: u16 = 30;
const NEIGH_SUPPRESS: u16 = 32;
const ISOLATED: u16 = 33;
const LOCKED: u16 = 39;
/// BR_STATE_*.
const DISABLED: u8 = 0;
const FORWARDING: u8 = 3;
/// What is always off.
const OFF: [u16; 9] = [
    GUARD,
    PROTECT,
    FAST_LEAVE,
    PROXYARP,
    PROXYARP_WIFI,
    MCAST_TO_UCAST,
    VLAN_TUNNEL,
    NEIGH_SUPPRESS,
    LOCKED,
];

/// Changes an interface's settings as a port, those that attributes name.
pub(super) fn change(stack: &Stack, index: u32, data: &[u8]) -> Result<()> {
    let mut changes = Vec::new();
    for Attribute { kind, value, .. } in wire::list(data) {
        let on = *value.first().ok_or(Errno::ERANGE)? != 0;
        let field: fn(&mut PortSettings) -> &mut bool = match kind {
            MODE => |settings| &mut settings.hairpin,
            ISOLATED => |settings| &mut settings.isolated,
            LEARNING => |settings| &mut settings.learning,
            UNICAST_FLOOD => |settings| &mut settings.flood,
            MCAST_FLOOD => |settings| &mut settings.multicast_flood,
            BCAST_FLOOD => |settings| &mut settings.broadcast_flood,
            kind if OFF.contains(&kind) && !on => continue,
            STATE if value == [FORWARDING] => continue,
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        changes.push((field, on));
    }
    Ok(stack.set_port(index, |settings| changes.iter().for_each(|(field, on)| *field(settings) = *on))?)
}

/// RTM_SETLINK of AF_BRIDGE.
pub(super) fn set(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, IFINFO, &[IFLA_PROTINFO, libc::IFLA_IFNAME, IFLA_EXT_MASK])?;
    let link = asker.net.stack().link(request.word(4)).ok_or(Errno::ENODEV)?;
    change(asker.net.stack(), link.index, request.attribute(IFLA_PROTINFO).unwrap_or_default())
}

/// A port's settings as a list shows them.
pub(super) fn describe(port: &PortSettings, forwards: bool) -> Vec<u8> {
    let mut out = wire::nested(STATE, &[if forwards { FORWARDING } else { DISABLED }]);
    out.extend(wire::nested(PRIORITY, &32u16.to_ne_bytes()));
    out.extend(wire::nested(COST, &2u32.to_ne_bytes()));
    let set = [
        (MODE, port.hairpin),
        (LEARNING, port.learning),
        (UNICAST_FLOOD, port.flood),
        (MCAST_FLOOD, port.multicast_flood),
        (BCAST_FLOOD, port.broadcast_flood),
        (ISOLATED, port.isolated),
    ];
    let off = OFF.into_iter().map(|kind| (kind, false));
    out.extend(set.into_iter().chain(off).flat_map(|(kind, on)| wire::nested(kind, &[on.into()])));
    out.extend(wire::nested(MULTICAST_ROUTER, &[1]));
    out
}

/// RTM_GETLINK of AF_BRIDGE: the ports of bridges.
pub(super) fn dump(asker: &Asker<'_>, all: &[Facts]) -> Vec<Vec<u8>> {
    all.iter().filter_map(|facts| message(asker.reply(libc::RTM_NEWLINK, 0), facts)).collect()
}

fn message(message: Message, facts: &Facts) -> Option<Vec<u8>> {
    let (master, (port, forwards)) = (facts.master?, facts.port.as_ref()?);
    let message = facts.begun(message, AF_BRIDGE, false).text(libc::IFLA_IFNAME, &facts.name);
    let message = facts.short(message.number(libc::IFLA_MASTER, master));
    Some(message.attribute(NESTED | IFLA_PROTINFO, &describe(port, *forwards)).done())
}
