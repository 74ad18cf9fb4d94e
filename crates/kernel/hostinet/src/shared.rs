//! What all sockets of one kernel share: the way to the network gofer, and the thread that watches descriptors.
//!
//! Lock: the thread's handle (rank `HOST_POLLER`), a leaf.

use crate::gofer::NetGofer;
use abi::Result;
use hostfs::Poller;
use lock_order::{Mutex, rank};
use std::sync::Arc;

/// What both families share.
pub(crate) struct Shared {
    pub(crate) gofer: NetGofer,
    poller: Mutex<Option<Arc<Poller>>, { rank::HOST_POLLER }>,
}

impl Shared {
    /// With this gofer.
    pub(crate) fn new(gofer: NetGofer) -> Shared {
        Shared { gofer, poller: Mutex::default() }
    }

    /// The thread that watches the sockets, started with the first one.
    pub(crate) fn poller(&self) -> Result<Arc<Poller>> {
        let mut poller = self.poller.lock();
        match &*poller {
            Some(poller) => Ok(poller.clone()),
            None => Ok(poller.insert(Poller::start()?).clone()),
        }
    }
}
