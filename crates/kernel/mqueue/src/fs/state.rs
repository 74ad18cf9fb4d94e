//! The queues of an IPC namespace as plain data, for a checkpoint.

use super::{Directory, Mqueues};
use crate::queue::{Notification, NotificationState, Queue, QueueFile, QueueState};
use abi::stat::Attr;
use abi::{Errno, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{OpenFile, OpenFileState, Path};

/// The queues of an IPC namespace as plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct MqueuesState {
    /// The directory's attributes.
    pub attr: Attr,
    /// The inode number of the next queue.
    pub next_ino: u64,
    /// /proc/sys/fs/mqueue, as [`Mqueues::limits`].
    pub limits: [i64; 5],
    /// Queues by name.
    pub named: BTreeMap<Vec<u8>, QueueState>,
    /// Queues that only open files keep.
    pub unlinked: Vec<QueueState>,
}

/// Restored queues, for the open files of them that are still to be made.
pub struct Restored {
    /// The directory.
    pub queues: Arc<Mqueues>,
    by_ino: BTreeMap<u64, Arc<Queue>>,
}

impl Mqueues {
    /// As plain data. `open` are the sandbox's open files, in which queues without a name are found.
    pub fn state<'a>(&self, open: impl IntoIterator<Item = &'a OpenFile>) -> MqueuesState {
        let mine = |queue: &Queue| std::ptr::eq(queue.owner(), self);
        let queues = open.into_iter().filter_map(|file| QueueFile::of(file).ok()).map(|file| &file.queue);
        let unlinked = queues.filter(|queue| mine(queue) && queue.attr.lock().nlink == 0);
        let unlinked: BTreeMap<u64, QueueState> =
            unlinked.map(|queue| queue.state()).map(|state| (state.attr.ino, state)).collect();
        let dir = self.dir.lock();
        MqueuesState {
            attr: dir.attr,
            next_ino: dir.next_ino,
            limits: self.limits.each_ref().map(|limit| limit.load(Ordering::Relaxed)),
            named: dir.queues.iter().map(|(name, queue)| (name.clone(), queue.state())).collect(),
            unlinked: unlinked.into_values().collect(),
        }
    }

    /// Back from plain data, with the device number `dev`. `tell` gives what tells a process of a message, unless the process
    /// is gone. ENOMEM when the messages are too many.
    pub fn restore(
        dev: u64,
        saved: &MqueuesState,
        tell: impl Fn(&NotificationState) -> Option<Notification>,
    ) -> Result<Restored> {
        let attr = Attr { dev, ..saved.attr };
        let empty = Directory { attr, queues: BTreeMap::new(), next_ino: saved.next_ino };
        let queues = Mqueues::with(empty, saved.limits, Arc::default());
        let mut by_ino = BTreeMap::new();
        let mut load = |state: &QueueState| -> Result<Arc<Queue>> {
            let queue = Queue::restore(queues.clone(), state, dev, &tell)?;
            by_ino.insert(state.attr.ino, queue.clone());
            Ok(queue)
        };
        for (name, state) in &saved.named {
            let queue = load(state)?;
            queues.dir.lock().queues.insert(name.clone(), queue);
        }
        for state in &saved.unlinked {
            load(state)?;
        }
        Ok(Restored { queues, by_ino })
    }
}

impl Restored {
    /// The open file of a queue back from plain data; `path` when it was opened by one. ENOENT when it is of none of these.
    pub fn open(&self, saved: &OpenFileState, path: Option<Path>) -> Result<Arc<OpenFile>> {
        let (_, ino) = saved.inode.ok_or(Errno::ENOENT)?;
        let queue = self.by_ino.get(&ino).ok_or(Errno::ENOENT)?.clone();
        let name = saved.link.as_deref().and_then(|link| link.strip_prefix('/')).unwrap_or_default();
        let inode = self.queues.node(queue.clone(), name.as_bytes());
        let ops = Arc::new(QueueFile { queue, name: name.into() });
        OpenFile::restore(saved, path, Some(inode), ops)
    }
}
