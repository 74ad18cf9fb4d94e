//! Where packet filters look at packets: netfilter's five points.
//!
//! While no rules exist nothing is called and nothing is paid. While they exist, loopback traffic goes by packets, and fragments are
//! put together before the first point, as connection tracking needs it.

use crate::buf::Buf;
use crate::device::Frame;
use crate::iface::Iface;
use crate::output::finish_checksum;
use crate::stack::{Stack, Watch};
use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The points on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Received, not routed.
    PreRouting,
    /// For this host.
    Input,
    /// For others.
    Forward,
    /// Sent by this host, routed.
    Output,
    /// About to leave.
    PostRouting,
}

/// A packet at a point.
#[derive(Debug)]
pub struct Hooked<'a> {
    /// Where.
    pub point: Point,
    /// When.
    pub now: Instant,
    /// The interface that received it.
    pub input: Option<&'a Iface>,
    /// The interface that will send it.
    pub output: Option<&'a Iface>,
    /// The packet from its IP header on. Rules may change it. Checksums are complete, except for TCP packets that a device will cut
    /// and for loopback traffic: those hold the pseudo header's sum only.
    pub packet: &'a mut Buf,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It ends here.
    Drop,
}

/// A packet filter.
pub trait Hooks: Send + Sync {
    /// Decides on a packet. Locks of the stack may be held: it must not call into the stack.
    fn look(&self, packet: &mut Hooked<'_>) -> Verdict;
}

/// The filter of a stack; the watch keeps traffic on the way by packets.
pub(crate) struct Installed {
    hooks: Arc<dyn Hooks>,
    _watch: Watch,
}

impl Stack {
    /// Sets the packet filter: while there are rules, and `None` when the last is gone.
    pub fn set_hooks(self: &Arc<Self>, hooks: Option<Arc<dyn Hooks>>) {
        let installed = hooks.map(|hooks| Installed { hooks, _watch: self.watch() });
        self.hooked.store(installed.is_some(), Ordering::Release);
        // The old filter is dropped after the lock is free.
        let old = std::mem::replace(&mut *self.hooks.write(), installed);
        drop(old);
    }

    /// True while there are rules.
    pub(crate) fn is_hooked(&self) -> bool {
        self.hooked.load(Ordering::Acquire)
    }

    /// Shows a packet to the filter; false when it is dropped.
    pub(crate) fn pass(
        &self,
        now: Instant,
        point: Point,
        input: Option<&Iface>,
        output: Option<&Iface>,
        frame: &mut Frame,
    ) -> bool {
        if !self.is_hooked() {
            return true;
        }
        let installed = self.hooks.read();
        let Some(installed) = installed.as_ref() else { return true };
        if frame.offload.gso.is_none() && output.is_some_and(|link| link.index != crate::stack::LOOPBACK) {
            finish_checksum(frame);
        }
        let mut packet = Hooked { point, now, input, output, packet: &mut frame.buf };
        installed.hooks.look(&mut packet) == Verdict::Accept
    }
}
