//! What takes a copy of frames: an observer of all of them, and the filters of sockets.
//!
//! While a [`Watch`] lives all traffic goes by packets, loopback's included, so that there is something to see. Locks: that of a
//! capture is a leaf.

use super::iface::Iface;
use lock_order::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `ETH_P_ALL`: every protocol.
pub const ALL: u16 = 3;

/// How a frame came by (`sll_pkttype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketType {
    /// To this host.
    Host = 0,
    /// To all hosts of the link.
    Broadcast = 1,
    /// To a group.
    Multicast = 2,
    /// To another host.
    Other = 3,
    /// From this host.
    Outgoing = 4,
}

/// A socket filter (`SO_ATTACH_FILTER`).
pub trait Filter: Send + Sync {
    /// How many bytes of a packet are wanted; zero drops it.
    fn accept(&self, packet: &[u8]) -> usize;

    /// The instructions as the program gave them, for a checkpoint; `None` for a filter that has none of that form.
    fn instructions(&self) -> Option<&[u8]> {
        None
    }
}

/// Counts what wants to see every packet: then no traffic takes a way without packets.
#[derive(Debug, Default)]
pub(crate) struct Watchers(AtomicUsize);

impl Watchers {
    /// While the guard lives, all traffic goes by packets.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        self.0.fetch_add(1, Ordering::Relaxed);
        Watch(self.clone())
    }

    /// Whether all traffic goes by packets.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Something that wants to see every packet; see [`crate::Stack::watch`].
#[derive(Debug)]
pub struct Watch(Arc<Watchers>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A frame as a capture sees it.
#[derive(Clone, Copy, Debug)]
pub struct CapturedFrame<'a> {
    /// The interface.
    pub link: &'a Iface,
    /// How it came by.
    pub kind: PacketType,
    /// With its Ethernet header; where the interface has none, with one of zeros that names the protocol. Checksums may be the
    /// device's to complete, and segments the device's to cut.
    pub bytes: &'a [u8],
}

/// Takes frames. Locks of the stack may be held: it writes or queues, and does not call into the stack.
pub trait Observer: Send + Sync {
    /// Looks at a frame; false when it wants no more, which ends the capture.
    fn see(&self, frame: CapturedFrame<'_>) -> bool;
}

/// An observer in its place.
pub(crate) struct Capture {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) watch: Mutex<Option<Watch>>,
}

impl Capture {
    /// True when it has seen enough.
    pub(crate) fn is_over(&self) -> bool {
        self.watch.lock().is_none()
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("over", &self.is_over()).finish_non_exhaustive()
    }
}
