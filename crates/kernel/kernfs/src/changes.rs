//! Files that tell of changes.

use wait::{Events, WaitQueue};

/// Something that poll(2) can wait for.
pub trait Changes: Send + Sync {
    /// Events; a change is told once.
    fn poll(&self) -> Events;
    /// Notified on changes.
    fn queue(&self) -> WaitQueue;
}
