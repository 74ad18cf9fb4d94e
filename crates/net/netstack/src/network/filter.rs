//! The packet filter of a stack, while there are rules.
//!
//! Locks: the filter's place is a leaf, and is free again when the filter looks.

use super::headers::Headers;
use super::hooks::{Answers, Hooked, Hooks, Point, Verdict};
use super::tables::Tables;
use crate::device::capture::{Watch, Watchers};
use crate::device::iface::{Iface, LOOPBACK};
use crate::frame::{Frame, finish_checksum};
use ktime::Ktime;
use lock_order::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The place of the packet filter.
#[derive(Default)]
pub(crate) struct Filter {
    /// The filter; the watch keeps traffic on the way by packets.
    installed: RwLock<Option<(Arc<dyn Hooks>, Watch)>>,
    is_set: AtomicBool,
}

impl Filter {
    /// Sets the packet filter: while there are rules, and `None` when the last is gone.
    pub(crate) fn set(&self, hooks: Option<Arc<dyn Hooks>>, watchers: &Arc<Watchers>) {
        let installed = hooks.map(|hooks| (hooks, watchers.watch()));
        self.is_set.store(installed.is_some(), Ordering::Release);
        // The old filter is dropped after the lock is free.
        let old = std::mem::replace(&mut *self.installed.write(), installed);
        drop(old);
    }

    /// True while there are rules.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    fn hooks(&self) -> Option<Arc<dyn Hooks>> {
        // The lock is free again when the filter looks: it may take itself out.
        self.installed.read().as_ref().map(|(hooks, _)| hooks.clone())
    }

    /// Shows a packet to the filter.
    pub(crate) fn pass(
        &self,
        tables: &Tables,
        now: Ktime,
        point: Point,
        (input, output): (Option<&Iface>, Option<&Iface>),
        headers: &mut Headers,
        frame: &mut Frame,
    ) -> Verdict {
        if !self.is_set() {
            return Verdict::Accept;
        }
        let Some(hooks) = self.hooks() else { return Verdict::Accept };
        if frame.offload.gso.is_none() && output.is_some_and(|link| link.index != LOOPBACK) {
            finish_checksum(frame);
        }
        let Frame { buf, offload, tags } = frame;
        hooks.look(&mut Hooked { tables, point, now, input, output, headers, packet: buf, offload, tags })
    }

    /// Lets the filter do what had to wait; true when it did something.
    pub(crate) fn run_deferred(&self, answers: &dyn Answers, now: Ktime) -> bool {
        self.is_set() && self.hooks().is_some_and(|hooks| hooks.run_deferred(answers, now))
    }
}
