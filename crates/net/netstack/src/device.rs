//! Link devices: where frames leave the stack.

use crate::Stack;
use crate::frame::Frame;
use crate::iface::Iface;
use crate::links::BridgeSettings;
use std::sync::Arc;

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

/// What lists show of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its kind as ip-link(8) names it; nothing for a device of the host.
    pub kind: &'static str,
    /// Index of the interface below, or at the other end; 0 for none.
    pub lower: u32,
    /// Number of the stack ([`crate::Stack::number`]) that `lower` is in.
    pub lower_stack: Option<u64>,
    /// Number of the VLAN.
    pub vlan: Option<u16>,
    /// No cable, so to speak: the other end is down, or a bridge has no ports.
    pub no_carrier: bool,
    /// Settings of a bridge.
    pub bridge: Option<BridgeSettings>,
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

    /// Another stack that what was sent waits in after a flush: that of the other end of a pair.
    fn other_end(&self) -> Option<Arc<Stack>> {
        None
    }

    /// The other end of a pair, which is removed with this one.
    fn partner(&self) -> Option<(Arc<Stack>, Arc<Iface>)> {
        None
    }

    /// Whether frames leave by other interfaces of this kernel, which may be of this kind again. `transmit` hands them to
    /// [`Stack::pass_down`].
    fn is_above(&self) -> bool {
        false
    }

    /// Whether its interface may move to another stack.
    fn is_movable(&self) -> bool {
        false
    }

    /// The interface is this one from now on, in this stack.
    fn moved(&self, _to: &Arc<Stack>, _link: &Arc<Iface>) {}

    /// The interface is gone.
    fn removed(&self) {}

    /// The interface below, which this one's frames leave by, is this one from now on.
    fn lower_moved(&self, _to: &Arc<Stack>, _lower: &Arc<Iface>) {}

    /// What lists show of the device.
    fn about(&self) -> About {
        About::default()
    }

    /// The frames since the last flush form a batch: the end of an operation of the stack.
    fn flush(&self) {}
}
