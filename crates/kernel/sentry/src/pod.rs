//! The containers of a sandbox by their names.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use task::Container;

/// Who is in the sandbox.
#[derive(Default)]
pub(crate) struct Pod(Mutex<BTreeMap<String, Weak<Container>>>);

impl Pod {
    /// Remembers a container for as long as it is there.
    pub(crate) fn insert(&self, id: &str, container: &Arc<Container>) {
        let mut all = self.0.lock();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(id.into(), Arc::downgrade(container));
    }

    /// The container of that name.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Container>> {
        self.0.lock().get(id).and_then(Weak::upgrade)
    }
}
