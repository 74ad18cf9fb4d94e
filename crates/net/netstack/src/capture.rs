//! A capture: every frame of every interface, in both directions, shown to one observer.
//!
//! While it lasts all traffic goes by packets, loopback's included, so that there is something to see.

use crate::iface::Iface;
use crate::packet::PacketType;
use crate::stack::{Stack, Watch};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A frame as a capture sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
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
    fn see(&self, frame: Seen<'_>) -> bool;
}

/// An observer in its place.
pub(crate) struct Capture {
    observer: Arc<dyn Observer>,
    watch: Mutex<Option<Watch>>,
}

impl Capture {
    /// True when it has seen enough.
    pub(crate) fn is_over(&self) -> bool {
        self.watch.lock().is_none()
    }
}

impl Stack {
    /// Shows all frames to an observer from now on, until it wants no more; there is one capture at most, the last.
    pub fn capture(self: &Arc<Self>, observer: Arc<dyn Observer>) {
        let capture = Arc::new(Capture { observer, watch: Mutex::new(Some(self.watch())) });
        self.taps.fetch_add(1, Ordering::AcqRel);
        let old = self.captures.write().replace(capture);
        if let Some(old) = old {
            self.end_capture(&old);
        }
    }

    /// Shows a frame to the capture, if there is one.
    pub(crate) fn show_capture(&self, seen: Seen<'_>) {
        let Some(capture) = self.captures.read().clone() else { return };
        if !capture.is_over() && !capture.observer.see(seen) {
            self.end_capture(&capture);
        }
    }

    fn end_capture(&self, capture: &Capture) {
        if capture.watch.lock().take().is_some() {
            self.taps.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("over", &self.is_over()).finish_non_exhaustive()
    }
}
