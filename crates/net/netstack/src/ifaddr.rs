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
        }
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
