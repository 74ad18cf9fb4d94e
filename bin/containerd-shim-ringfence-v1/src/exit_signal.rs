//! The signal from a request to the main thread that the shim is to end.

use std::sync::{Condvar, Mutex};

/// Says when the shim is to end.
#[derive(Debug, Default)]
pub(crate) struct ExitSignal {
    over: Mutex<bool>,
    changed: Condvar,
}

impl ExitSignal {
    /// Ends the shim.
    pub(crate) fn signal(&self) {
        *self.over.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.changed.notify_all();
    }

    /// Waits until the shim is to end.
    pub(crate) fn wait(&self) {
        let over = self.over.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop(self.changed.wait_while(over, |over| !*over));
    }
}
