//! Settings of interfaces, those of /proc/sys/net/ipv4/conf and /proc/sys/net/ipv6/conf. See ip-sysctl in Linux's documentation.
//!
//! `ipv4/ip_forward` is the forwarding of all interfaces; one that was set by itself keeps its own until that of all is set again.

use std::sync::atomic::{AtomicI32, Ordering};

/// Which setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    pub(crate) fn bounds(self) -> (i32, i32) {
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
    /// What counts for all interfaces, beside the settings of their own.
    pub(crate) fn of_all() -> Conf {
        let conf = Conf::default();
        conf.set(Which::AcceptDad, 0);
        conf
    }

    pub(crate) fn get(&self, which: Which) -> i32 {
        self.0[which as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, which: Which, value: i32) {
        self.0[which as usize].store(value, Ordering::Relaxed);
    }

    /// All values, for a checkpoint.
    pub(crate) fn values(&self) -> Vec<(Which, i32)> {
        Which::ALL.iter().map(|which| (*which, self.get(*which))).collect()
    }

    /// Takes another one's values.
    pub(crate) fn copy(&self, from: &Conf) {
        for which in Which::ALL {
            self.set(which, from.get(which));
        }
    }
}
