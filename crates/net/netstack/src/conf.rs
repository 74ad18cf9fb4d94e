//! Settings of interfaces, those of /proc/sys/net/ipv4/conf and /proc/sys/net/ipv6/conf. See ip-sysctl in Linux's documentation.
//!
//! `ipv4/ip_forward` is the forwarding of all interfaces; one that was set by itself keeps its own until that of all is set again.

use crate::iface::Iface;
use crate::route::Key;
use crate::stack::Stack;
use abi::Errno;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Which setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Packets of others that it receives are sent on.
    Forwarding,
    /// Packets with addresses of 127.0.0.0/8 are no nonsense.
    RouteLocalnet,
    /// A packet is dropped unless the way back leads through the interface (1), or anywhere (2).
    RpFilter,
    /// IPv6: whether duplicates of addresses are looked for.
    AcceptDad,
    /// IPv6: how often others are asked for an address.
    DadTransmits,
    /// IPv6: how an interface gets its link-local address: from its hardware address (0), not at all (1).
    AddrGenMode,
    /// IPv6: whether routers are listened to: 1 unless packets are forwarded, 2 always.
    AcceptRa,
    /// IPv6: whether addresses are made below the prefixes that routers tell of.
    Autoconf,
    /// IPv6 is off: no addresses, and no packets either way.
    DisableIpv6,
    /// A number for the administrator's own use.
    Tag,
}

impl Which {
    const ALL: [Which; 10] = [
        Which::Forwarding,
        Which::RouteLocalnet,
        Which::RpFilter,
        Which::AcceptDad,
        Which::DadTransmits,
        Which::AddrGenMode,
        Which::AcceptRa,
        Which::Autoconf,
        Which::DisableIpv6,
        Which::Tag,
    ];

    /// The value at the start, and the largest.
    fn bounds(self) -> (i32, i32) {
        match self {
            Which::Forwarding => (-1, 1),
            Which::RouteLocalnet => (0, 1),
            Which::RpFilter => (0, 2),
            Which::AcceptDad => (1, 2),
            Which::DadTransmits => (1, 127),
            // The kernel says when interfaces are to have addresses and to listen.
            Which::AddrGenMode => (1, 1),
            Which::AcceptRa => (0, 2),
            Which::Autoconf => (1, 1),
            Which::DisableIpv6 => (0, 127),
            Which::Tag => (0, i32::MAX),
        }
    }
}

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// What counts for all.
    All,
    /// What new interfaces have.
    Default,
    /// An interface's.
    Link(u32),
}

/// The settings of an interface.
#[derive(Debug)]
pub(crate) struct Conf([AtomicI32; Which::ALL.len()]);

impl Default for Conf {
    fn default() -> Conf {
        Conf(Which::ALL.map(|which| AtomicI32::new(which.bounds().0)))
    }
}

impl Conf {
    pub(crate) fn get(&self, which: Which) -> i32 {
        self.0[which as usize].load(Ordering::Relaxed)
    }

    fn set(&self, which: Which, value: i32) {
        self.0[which as usize].store(value, Ordering::Relaxed);
    }

    /// Takes another one's values.
    pub(crate) fn copy(&self, from: &Conf) {
        for which in Which::ALL {
            self.set(which, from.get(which));
        }
    }
}

/// What a stack has of them beside those of its interfaces.
#[derive(Debug)]
pub(crate) struct Confs {
    all: Conf,
    pub(crate) default: Conf,
}

impl Default for Confs {
    fn default() -> Confs {
        let confs = Confs { all: Conf::default(), default: Conf::default() };
        // What counts for all beside an interface's own is off.
        confs.all.set(Which::AcceptDad, 0);
        confs
    }
}

impl Stack {
    fn conf_of(&self, whose: Whose) -> Result<Result<&Conf, Arc<Iface>>, Errno> {
        Ok(match whose {
            Whose::All => Ok(&self.confs.all),
            Whose::Default => Ok(&self.confs.default),
            Whose::Link(index) => Err(self.link(index).ok_or(Errno::ENOENT)?),
        })
    }

    /// A setting's value. `ENOENT` for an interface that is not there.
    pub fn conf(&self, whose: Whose, which: Which) -> Result<i64, Errno> {
        let value = match self.conf_of(whose)? {
            Ok(conf) => conf.get(which),
            Err(link) => link.conf.get(which),
        };
        // Forwarding that was not set by itself is that of all.
        let follows = which == Which::Forwarding && value < 0;
        Ok(if follows { self.sysctls.ip_forward.get() } else { value.into() })
    }

    /// Sets it. `EINVAL` for a number that has no meaning, `ENOENT` likewise.
    pub fn set_conf(&self, whose: Whose, which: Which, value: i64) -> Result<(), Errno> {
        let most = which.bounds().1;
        let least = if which == Which::Tag { i32::MIN } else { 0 };
        let value =
            i32::try_from(value).ok().filter(|value| (least..=most).contains(value)).ok_or(Errno::EINVAL)?;
        if (whose, which) == (Whose::All, Which::Forwarding) {
            return self.set_forwarding(value);
        }
        if which == Which::DisableIpv6 {
            return self.disable_v6(whose, value);
        }
        match self.conf_of(whose)? {
            Ok(conf) => conf.set(which, value),
            Err(link) => link.conf.set(which, value),
        }
        Ok(())
    }

    /// Takes IPv6 away from interfaces, or gives it back. What is set for all is set for each interface and for new ones.
    fn disable_v6(&self, whose: Whose, value: i32) -> Result<(), Errno> {
        let links = match whose {
            Whose::All => {
                self.confs.all.set(Which::DisableIpv6, value);
                self.confs.default.set(Which::DisableIpv6, value);
                self.links()
            }
            Whose::Default => {
                self.confs.default.set(Which::DisableIpv6, value);
                Vec::new()
            }
            Whose::Link(index) => vec![self.link(index).ok_or(Errno::ENOENT)?],
        };
        for link in links {
            let before = link.disables_v6();
            link.conf.set(Which::DisableIpv6, value);
            match (before, link.disables_v6()) {
                (false, true) => self.end_v6(&link),
                (true, false) if link.is_up() => self.raise(&link),
                _ => {}
            }
            self.changed();
        }
        Ok(())
    }

    /// All interfaces forward, or none.
    fn set_forwarding(&self, value: i32) -> Result<(), Errno> {
        self.sysctls.ip_forward.set(value.into())?;
        self.confs.default.set(Which::Forwarding, -1);
        self.links().iter().for_each(|link| link.conf.set(Which::Forwarding, -1));
        Ok(())
    }

    pub(crate) fn forwards4(&self, iface: &Iface) -> bool {
        match iface.conf.get(Which::Forwarding) {
            -1 => self.sysctls.ip_forward.on(),
            own => own != 0,
        }
    }

    pub(crate) fn routes_localnet(&self, iface: &Iface) -> bool {
        self.confs.all.get(Which::RouteLocalnet) != 0 || iface.conf.get(Which::RouteLocalnet) != 0
    }

    /// Whether a packet may come from where it does: `rp_filter`.
    pub(crate) fn is_way_back(&self, iface: &Iface, src: Ipv4Addr, mark: u32) -> bool {
        let mode = iface.conf.get(Which::RpFilter).max(self.confs.all.get(Which::RpFilter));
        if mode == 0 || src.is_unspecified() {
            return true;
        }
        let key = Key { mark, ..Key::to(IpAddr::V4(src)) };
        let routes = self.routes.read();
        let route = routes.lookup(&key, |_| true);
        route.is_ok_and(|route| mode == 2 || route.uses(iface.index))
    }
}
