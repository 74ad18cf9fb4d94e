//! Messages to the groups of rtnetlink: changes of links, addresses, routes, rules and neighbours.

use super::sockets::Sockets;
use super::wire::Message;
use super::{address_list, facts, link, neigh, routes, rules};
use netstack::iface::Iface;
use netstack::monitor::{Change, How, Monitor, What};

/// RTNLGRP_*.
const LINK: u32 = 1;
const NEIGH: u32 = 3;
const IPV4_IFADDR: u32 = 5;
const IPV4_ROUTE: u32 = 7;
const IPV4_RULE: u32 = 8;
const IPV6_IFADDR: u32 = 9;
const IPV6_ROUTE: u32 = 11;
const IPV6_RULE: u32 = 19;

impl Monitor for Sockets {
    fn changed(&self, change: &Change) {
        let (group, new, old) = match &change.what {
            What::Link(_) => (LINK, libc::RTM_NEWLINK, libc::RTM_DELLINK),
            What::Address(_, address) => {
                let group = if address.ip().is_ipv4() { IPV4_IFADDR } else { IPV6_IFADDR };
                (group, libc::RTM_NEWADDR, libc::RTM_DELADDR)
            }
            What::Route(route) => {
                let group = if route.dst.addr.is_ipv4() { IPV4_ROUTE } else { IPV6_ROUTE };
                (group, libc::RTM_NEWROUTE, libc::RTM_DELROUTE)
            }
            What::Rule(rule) => {
                (if rule.v4 { IPV4_RULE } else { IPV6_RULE }, libc::RTM_NEWRULE, libc::RTM_DELRULE)
            }
            What::Neighbour(..) => (NEIGH, libc::RTM_NEWNEIGH, libc::RTM_DELNEIGH),
        };
        if let What::Link(iface) = &change.what {
            self.meet(iface, change.how);
            self.device_changed(iface, change.how);
        }
        if !self.is_followed(group) {
            return;
        }
        let gone = matches!(change.how, How::Gone | How::Moved { .. });
        let kind = if gone { old } else { new };
        let cause = self.cause(kind);
        let replaced = if change.how == How::Replaced { libc::NLM_F_REPLACE as u16 } else { 0 };
        let (port, seq) = cause.map_or((0, 0), |cause| (cause.port, cause.seq));
        let message = |seq| Message::new(kind, replaced, seq, port);
        let bytes = match &change.what {
            What::Link(iface) => {
                let mut facts = facts::Facts::of(iface, self.own, self);
                if let How::Moved { stack, .. } = change.how {
                    facts.new_net = Some(self.nsid_or_new(stack));
                }
                link::describe(message(seq), &facts, change.how)
            }
            What::Address(iface, address) => {
                address_list::describe(message(seq), iface, address, self.clock.now())
            }
            What::Route(route) => routes::describe(message(seq), route, self.clock.now()),
            What::Rule(rule) => rules::describe(message(seq), rule),
            What::Neighbour((index, ip), mac, state) => {
                neigh::describe(message(0), *index, *ip, *mac, *state)
            }
        };
        let echo = cause.filter(|cause| cause.echo).map_or(0, |cause| cause.port);
        self.multicast(libc::NETLINK_ROUTE, group, echo, &bytes);
        if echo != 0 {
            self.unicast(libc::NETLINK_ROUTE, echo, &bytes);
        }
    }
}

impl Sockets {
    /// Gives a number to the namespace that an interface leads to, or has moved to, whether a socket listens or not.
    fn meet(&self, iface: &Iface, how: How) {
        let moved = match how {
            How::Moved { stack, .. } => Some(stack),
            _ => None,
        };
        for other in iface.about().lower_stack.into_iter().chain(moved).filter(|other| *other != self.own) {
            self.nsid_or_new(other);
        }
    }
}
