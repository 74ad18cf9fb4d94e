//! What packet filters may read of a stack while they look at a packet: routes and interfaces.
//!
//! Lock rank: `ROUTES`, a read-write lock that changes alone write.

use super::route::Routes;
use crate::device::iface::Iface;
use crate::device::links::Links;
use lock_order::{RwLock, rank};
use std::sync::Arc;

/// Routes and interfaces of a network namespace.
pub struct Tables {
    pub(crate) routes: RwLock<Routes, { rank::ROUTES }>,
    pub(crate) links: Arc<Links>,
}

impl Tables {
    /// Runs `f` on routes and rules, to read them.
    pub fn read_routes<R>(&self, f: impl FnOnce(&Routes) -> R) -> R {
        f(&self.routes.read())
    }

    /// An interface by index.
    pub fn link(&self, index: u32) -> Option<Arc<Iface>> {
        self.links.get(index)
    }
}
