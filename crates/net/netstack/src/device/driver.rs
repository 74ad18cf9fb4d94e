//! What drives an interface: a device of the embedder, or one of the kinds that lead to other interfaces of this kernel.
//!
//! Generic over the interface `I`: the drivers are the edges of the graph of interfaces. Lock ranks: `BRIDGE_PORTS`,
//! `LINK_EDGES`; the others are leaves.

use super::bridge::{BridgeSettings, ForwardingTable};
use crate::frame::Frame;
use crate::nest::Upon;
use lock_order::{Mutex, RwLock, rank};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

/// What a device does for the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// It completes TCP and UDP checksums.
    pub checksum: bool,
    /// It cuts TCP over IPv4 into segments.
    pub tso4: bool,
    /// It cuts TCP over IPv6 into segments.
    pub tso6: bool,
}

/// A link device.
///
/// `transmit` and `flush` are called with locks of the stack held: they queue or write, do not block, and do not call into the
/// stack.
pub trait Device: Send + Sync {
    /// What the device can do; asked once.
    fn features(&self) -> Features {
        Features::default()
    }

    /// Takes a frame. A device whose queue is full drops it.
    fn transmit(&self, frame: Frame);

    /// What lists show of the device.
    fn about(&self) -> About {
        About::default()
    }

    /// The frames since the last flush form a batch: the end of an operation of the stack.
    fn flush(&self) {}
}

/// What lists show of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its kind as ip-link(8) names it; nothing for a device of the host.
    pub kind: &'static str,
    /// Index of the interface below, or at the other end; 0 for none.
    pub lower: u32,
    /// Number of the stack (see [`crate::Stack::sharing`]) that `lower` is in.
    pub lower_stack: Option<u64>,
    /// Number of the VLAN.
    pub vlan: Option<u16>,
    /// No cable, so to speak: the other end is down, or a bridge has no ports.
    pub no_carrier: bool,
    /// Settings of a bridge.
    pub bridge: Option<BridgeSettings>,
}

/// What the frames become that an interface sends.
pub(crate) enum Driver<I> {
    /// They arrive on the interface itself.
    Loopback,
    /// A device takes them.
    Device(Arc<dyn Device>),
    /// They are lost.
    Dummy,
    /// They arrive on the other end of a pair. The number says which end this interface is.
    Veth(Arc<Pair<I>>, usize),
    /// They get a tag and leave by the interface below.
    Vlan(Arc<Vlan<I>>),
    /// They leave by ports.
    Bridge(Arc<Bridge<I>>),
}

impl<I> Clone for Driver<I> {
    fn clone(&self) -> Driver<I> {
        match self {
            Driver::Loopback => Driver::Loopback,
            Driver::Device(device) => Driver::Device(device.clone()),
            Driver::Dummy => Driver::Dummy,
            Driver::Veth(pair, end) => Driver::Veth(pair.clone(), *end),
            Driver::Vlan(vlan) => Driver::Vlan(vlan.clone()),
            Driver::Bridge(bridge) => Driver::Bridge(bridge.clone()),
        }
    }
}

impl<I> Driver<I> {
    /// What the driver does for the stack.
    pub(crate) fn features(&self) -> Features {
        match self {
            Driver::Device(device) => device.features(),
            // Frames stay in memory, so no checksum and no segment is needed.
            Driver::Veth(..) | Driver::Bridge(_) => Features { checksum: true, tso4: true, tso6: true },
            Driver::Loopback | Driver::Dummy | Driver::Vlan(_) => Features::default(),
        }
    }

    /// Whether frames leave by other interfaces of this kernel, which may stand upon others again.
    pub(crate) fn is_above(&self) -> bool {
        matches!(self, Driver::Vlan(_) | Driver::Bridge(_))
    }

    /// Whether an interface with this driver may move to another stack.
    pub(crate) fn is_movable(&self) -> bool {
        matches!(self, Driver::Dummy | Driver::Veth(..) | Driver::Vlan(_))
    }
}

/// A veth pair: its two ends. Weak: two interfaces that name each other keep neither.
pub(crate) struct Pair<I>(pub(crate) [RwLock<Weak<I>>; 2]);

impl<I> Default for Pair<I> {
    fn default() -> Pair<I> {
        Pair([RwLock::new(Weak::new()), RwLock::new(Weak::new())])
    }
}

impl<I> Pair<I> {
    /// The end that is not `end`.
    pub(crate) fn other(&self, end: usize) -> Option<Arc<I>> {
        self.0[1 - end].read().upgrade()
    }
}

/// A VLAN interface: the interface below, which may be in another stack, and the number of the VLAN.
pub(crate) struct Vlan<I> {
    pub(crate) id: u16,
    pub(crate) lower: RwLock<Weak<I>>,
    pub(crate) upon: Mutex<Option<Upon>, { rank::LINK_EDGES }>,
}

/// A bridge: the interfaces below it.
pub(crate) struct Bridge<I> {
    pub(crate) ports: RwLock<Vec<Arc<I>>, { rank::BRIDGE_PORTS }>,
    pub(crate) settings: RwLock<BridgeSettings>,
    pub(crate) table: Mutex<ForwardingTable>,
    /// The time of the latest input, in nanoseconds; sending knows no time.
    pub(crate) now: AtomicU64,
}

impl<I> Default for Bridge<I> {
    fn default() -> Bridge<I> {
        Bridge {
            ports: RwLock::default(),
            settings: RwLock::default(),
            table: Mutex::default(),
            now: AtomicU64::new(0),
        }
    }
}
