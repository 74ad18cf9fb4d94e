//! Addresses of interfaces as plain data: prefix, scope, lifetimes, duplicate address detection, label.
//!
//! A checkpoint keeps an [`Address`] as it is.

use crate::addr::{Prefix, Scope, scope};
use ktime::Ktime;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Address {
    /// The address and the length of its network's prefix.
    pub prefix: Prefix,
    /// The other end, for point-to-point links.
    pub peer: Option<IpAddr>,
    /// Broadcast address, if it differs from the prefix's.
    pub broadcast: Option<Ipv4Addr>,
    /// Scope.
    pub scope: Scope,
    /// Not chosen for new connections (RFC 4862).
    pub deprecated: bool,
    /// When it is deprecated by itself.
    pub preferred_until: Option<Ktime>,
    /// When it is removed by itself.
    pub valid_until: Option<Ktime>,
    /// When it was added, and changed last.
    pub created: Ktime,
    /// See there.
    pub updated: Ktime,
    /// Duplicate address detection.
    pub dad: Dad,
    /// It brings no route to its network (`IFA_F_NOPREFIXROUTE`).
    pub no_prefix_route: bool,
    /// Duplicates were not asked for (`IFA_F_NODAD`).
    pub no_dad: bool,
    /// The origin of the address (`IFA_PROTO`), 0 for none in particular.
    pub protocol: u8,
    /// What it is called (`IFA_LABEL`).
    pub label: Label,
    /// Another IPv4 address of the interface has the same network, brings the routes, and takes this one along when it
    /// goes (`IFA_F_SECONDARY`).
    #[serde(default)]
    pub secondary: bool,
    /// The metric of the route to its network (`IFA_RT_PRIORITY`), 0 for the usual one.
    #[serde(default)]
    pub metric: u32,
    /// The number of a scope that [`Scope`] does not know, such as RT_SCOPE_SITE; it has no effect. 0 for others.
    #[serde(default)]
    pub other_scope: u8,
}

/// The name of an IPv4 address: the interface's, or that of an alias (`eth0:1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Label([u8; 15]);

impl Label {
    /// The label of an address of an interface. `None` for a name that is too long.
    pub fn new(name: &str, interface: &str) -> Option<Label> {
        let mut label = Label::default();
        if name != interface {
            label.0.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        }
        Some(label)
    }

    /// The name, where an address without one of its own has the interface's.
    pub fn or<'a>(&'a self, interface: &'a str) -> &'a str {
        let own = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        std::str::from_utf8(own).ok().filter(|own| !own.is_empty()).unwrap_or(interface)
    }
}

impl Address {
    /// An address of the scope that its bits say.
    pub fn new(prefix: Prefix) -> Address {
        Address {
            prefix,
            peer: None,
            broadcast: None,
            scope: scope(prefix.addr),
            deprecated: false,
            preferred_until: None,
            valid_until: None,
            created: Ktime::ZERO,
            updated: Ktime::ZERO,
            dad: Dad::Done,
            no_prefix_route: false,
            no_dad: false,
            protocol: 0,
            label: Label::default(),
            secondary: false,
            metric: 0,
            other_scope: 0,
        }
    }

    /// The network that the address is in: that of the other end, if there is one.
    pub(crate) fn network(&self) -> Prefix {
        let target = self.peer.map_or(self.prefix, |peer| Prefix::new(peer, self.prefix.len));
        Prefix { addr: target.network(), len: target.len }
    }

    /// Larger for a narrower scope.
    fn scope_number(&self) -> u8 {
        match (self.other_scope, self.scope) {
            (0, Scope::Global) => 0,
            (0, Scope::Link) => 253,
            (0, Scope::Host) => 254,
            (other, _) => other,
        }
    }

    /// Puts an IPv4 address among those of its interface as Linux does: the first one of a network is the primary one,
    /// behind other primary ones of the same or a narrower scope. `EINVAL` when the scope is not that of the network's
    /// other addresses.
    pub(crate) fn place(mut self, all: &mut Vec<Address>) -> Result<Address, abi::Errno> {
        let network = self.network();
        let mut same = all.iter().filter(|old| old.ip().is_ipv4() && old.network() == network);
        if same.clone().any(|old| old.scope_number() != self.scope_number()) {
            return Err(abi::Errno::EINVAL);
        }
        self.secondary = same.next().is_some();
        let before =
            |old: &Address| old.ip().is_ipv4() && !old.secondary && self.scope_number() <= old.scope_number();
        let place =
            if self.secondary { all.len() } else { all.iter().rposition(before).map_or(0, |n| n + 1) };
        all.insert(place, self);
        Ok(self)
    }

    /// True without an end (`IFA_F_PERMANENT`).
    pub fn is_permanent(&self) -> bool {
        self.valid_until.is_none()
    }

    /// The address itself.
    pub fn ip(&self) -> IpAddr {
        self.prefix.addr
    }
}

/// Duplicate address detection of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Dad {
    /// No other host has the address, or no host was asked.
    #[default]
    Done,
    /// It is not usable yet.
    Tentative(Probes),
    /// Another host has it (`IFA_F_DADFAILED`).
    Failed,
}

/// What is left of the detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Probes {
    /// When the next probe is sent, or the last one counts as unanswered. Absent until the interface is ready.
    pub at: Option<Ktime>,
    /// Probes to send.
    pub left: u8,
    /// The address is used meanwhile, where no other one will do (`IFA_F_OPTIMISTIC`).
    pub optimistic: bool,
}

impl Address {
    /// True when packets may be for this address, or come from it.
    pub fn is_usable(&self) -> bool {
        match self.dad {
            Dad::Done => true,
            Dad::Tentative(probes) => probes.optimistic,
            Dad::Failed => false,
        }
    }

    /// True for an address that is used only where no other one will do.
    pub(crate) fn is_second_choice(&self) -> bool {
        self.deprecated || self.dad != Dad::Done
    }

    /// When something happens to it by itself.
    pub(crate) fn deadline(&self) -> Option<Ktime> {
        let probe = match self.dad {
            Dad::Tentative(probes) => probes.at,
            _ => None,
        };
        let preferred = self.preferred_until.filter(|_| !self.deprecated);
        [probe, preferred, self.valid_until].into_iter().flatten().min()
    }
}

/// When an interface asks for routers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RouterSolicitation {
    /// The next time, and how long to wait after it.
    pub(crate) next: Option<(Ktime, Duration)>,
}
