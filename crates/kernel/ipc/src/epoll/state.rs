//! An epoll instance as plain data, for a checkpoint.

use super::item::Item;
use super::{Epoll, Event};
use abi::Result;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Caller, OpenFile};

/// An item as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ItemState {
    /// The open file ([`OpenFile::id`]).
    pub file: u64,
    /// The descriptor number that it was added by.
    pub fd: i32,
    /// What it asks for; a one-shot item that has been reported asks for nothing.
    pub event: Event,
    /// It is on the ready list.
    pub ready: bool,
}

/// An epoll instance as plain data: items on the ready list first, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EpollState {
    /// The items with open files.
    pub items: Vec<ItemState>,
}

impl Epoll {
    /// As plain data.
    pub fn state(&self) -> EpollState {
        let _scan = self.scan.lock();
        let queued: Vec<Arc<Item>> = self.ready.lock().iter().cloned().collect();
        let mut others: Vec<Arc<Item>> = self.items.lock().values().cloned().collect();
        let keys: HashSet<_> = queued.iter().map(|item| item.key).collect();
        others.retain(|item| !keys.contains(&item.key));
        let state = |item: &Arc<Item>, ready| {
            let file = item.file.upgrade()?;
            // One that was deleted may be on the ready list still.
            let present = self.items.lock().get(&item.key).is_some_and(|known| Arc::ptr_eq(known, item));
            present.then(|| ItemState { file: file.id, fd: item.key.1, event: item.event(), ready })
        };
        let mut items: Vec<_> = queued.iter().filter_map(|item| state(item, true)).collect();
        let mut rest: Vec<_> = others.iter().filter_map(|item| state(item, false)).collect();
        rest.sort_by_key(|item| (item.fd, item.file));
        items.append(&mut rest);
        EpollState { items }
    }

    /// Adds the items of a saved instance to one that has none. `find` gives the open file with an identity; an item
    /// without its file is left out. ENOSPC when the epoll's user has too many items.
    pub fn restore(
        &self,
        cx: &dyn Caller,
        saved: &EpollState,
        find: impl Fn(u64) -> Option<Arc<OpenFile>>,
    ) -> Result<()> {
        for one in &saved.items {
            let Some(file) = find(one.file) else { continue };
            let item = self.insert(cx, one.fd, &file, one.event)?;
            // Exactly what it asked for: an item that is made asks for errors and the end in any case.
            item.mask.store(one.event.events, Ordering::SeqCst);
            if one.ready {
                self.enqueue(&item);
            }
        }
        Ok(())
    }
}
