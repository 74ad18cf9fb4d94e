//! The state that the address spaces of one kernel share.

use ipc::aio::Operations;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use text_copies::Twins;

/// The state that the address spaces of one kernel share.
#[derive(Default)]
pub struct AddressSpaces {
    /// Files with a twin.
    pub twins: Twins,
    /// Operations of io_setup(2).
    pub aio: Arc<Operations>,
    shared_anonymous: AtomicU64,
}

impl AddressSpaces {
    /// The number of a new shared anonymous mapping.
    pub(crate) fn next_shared(&self) -> u64 {
        self.shared_anonymous.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Numbers up to this one are taken.
    pub(crate) fn skip_shared(&self, number: u64) {
        self.shared_anonymous.fetch_max(number, Ordering::Relaxed);
    }
}
