//! Where packet filters look at packets: netfilter's five points.
//!
//! While no rules exist nothing is called and nothing is paid. While they exist, loopback traffic goes by packets, and fragments are
//! put together before the first point, as connection tracking needs it.

use crate::buf::Buf;
use crate::frame::{Frame, Offload, Tags, finish_checksum};
use crate::iface::Iface;
use crate::stack::{Stack, Watch};
use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The points on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
pub struct Hooked<'a> {
    /// The stack. Its socket locks may be held: only routes, interfaces and settings may be read.
    pub stack: &'a Stack,
    /// Where.
    pub point: Point,
    /// When.
    pub now: Instant,
    /// The interface that received it.
    pub input: Option<&'a Iface>,
    /// The interface that will send it.
    pub output: Option<&'a Iface>,
    /// The packet from its IP header on. Rules may change it. Checksums are complete, except for TCP packets that a device will cut
    /// and for loopback traffic: those hold the pseudo header's sum only, as the descriptors say.
    pub packet: &'a mut Buf,
    /// What is left to do about it.
    pub offload: &'a mut Offload,
    /// What travels with it.
    pub tags: &'a mut Tags,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It ends here; a sender is told `EPERM`.
    Drop,
    /// The filter keeps it; a sender is told nothing.
    Stolen,
}

/// A packet filter.
pub trait Hooks: Send + Sync {
    /// Decides on a packet. Locks of the stack may be held: what the filter wants to send waits for [`Hooks::run_deferred`].
    fn look(&self, packet: &mut Hooked<'_>) -> Verdict;

    /// Does what had to wait, at the end of an operation, when no lock is held. True when it did something.
    fn run_deferred(&self, _stack: &Arc<Stack>, _now: Instant) -> bool {
        false
    }
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

    /// Shows a packet to the filter.
    pub(crate) fn pass(
        &self,
        now: Instant,
        point: Point,
        input: Option<&Iface>,
        output: Option<&Iface>,
        frame: &mut Frame,
    ) -> Verdict {
        if !self.is_hooked() {
            return Verdict::Accept;
        }
        // The lock is free again when the filter looks: it may take itself out.
        let hooks = self.hooks.read().as_ref().map(|installed| installed.hooks.clone());
        let Some(hooks) = hooks else { return Verdict::Accept };
        if frame.offload.gso.is_none() && output.is_some_and(|link| link.index != crate::iface::LOOPBACK) {
            finish_checksum(frame);
        }
        let Frame { buf, offload, tags } = frame;
        let mut packet = Hooked { stack: self, point, now, input, output, packet: buf, offload, tags };
        hooks.look(&mut packet)
    }

    /// Lets the filter do what had to wait; true when it did something.
    pub(crate) fn run_deferred(self: &Arc<Self>, now: Instant) -> bool {
        if !self.is_hooked() {
            return false;
        }
        let hooks = self.hooks.read().as_ref().map(|installed| installed.hooks.clone());
        hooks.is_some_and(|hooks| hooks.run_deferred(self, now))
    }
}
