//! Files that tell of changes: cgroup.events and its like. See poll(2), inotify(7).

use lock_order::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::attach::Attachments;
use vfs::notify::{self, event};
use wait::{Events, WaitQueue};

/// What hangs on an inode, by the object that it stands for: all mounts show inodes of one object.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Weak<Attachments>>);

impl Shared {
    pub(crate) fn get(&self) -> Arc<Attachments> {
        let mut held = self.0.lock();
        if let Some(there) = held.upgrade() {
            return there;
        }
        let new = Arc::new(Attachments::default());
        *held = Arc::downgrade(&new);
        new
    }

    fn in_use(&self) -> Option<Arc<Attachments>> {
        self.0.lock().upgrade()
    }
}

/// A file that tells of changes.
pub struct Notice {
    name: &'static str,
    version: AtomicU64,
    queue: WaitQueue,
    watched: Shared,
}

impl Notice {
    pub(crate) fn new(name: &'static str) -> Notice {
        Notice { name, version: AtomicU64::new(1), queue: WaitQueue::new(), watched: Shared::default() }
    }

    /// Counts the changes, from 1 on.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Notified on changes.
    pub fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    /// What hangs on the inodes that stand for the file.
    pub fn attachments(&self) -> Arc<Attachments> {
        self.watched.get()
    }

    pub(crate) fn changed(&self, dir: &Shared) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.queue.notify(Events::READABLE | Events::PRI | Events::ERR);
        if let Some(dir) = dir.in_use() {
            notify::on_attachments(&dir, event::MODIFY, self.name.as_bytes());
        }
        if let Some(file) = self.watched.in_use() {
            notify::on_attachments(&file, event::MODIFY, b"");
        }
    }
}

/// The notices of a group.
pub(crate) struct Notices {
    pub(crate) events: Notice,
    pub(crate) pids: Notice,
    pub(crate) pids_local: Notice,
    pub(crate) dir: Shared,
}

impl Default for Notices {
    fn default() -> Notices {
        Notices {
            events: Notice::new("cgroup.events"),
            pids: Notice::new("pids.events"),
            pids_local: Notice::new("pids.events.local"),
            dir: Shared::default(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Events,
    Pids,
    PidsLocal,
}
