//! The queues of an IPC namespace as plain data, for a checkpoint.

use super::{DIRENT_SIZE, HARD, Mqueues, checked};
use crate::MAX_QUEUES;
use crate::queue::{FILE_SIZE, Notification, NotificationState, Queue, QueueFile, QueueState};
use abi::stat::Attr;
use abi::{Errno, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Dentry, Mount, OpenFile, OpenFileState, Path};

/// Inode numbers above this one are not given out.
const LAST_INO: u64 = 1 << 62;

/// The queues of an IPC namespace as plain data.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
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

    /// Gives a directory without queues those of plain data. `tell` gives what tells a process of a message, unless the process
    /// is gone. ENOMEM when the messages are too many, EINVAL for what cannot be.
    pub fn fill(
        self: &Arc<Mqueues>,
        saved: &MqueuesState,
        tell: impl Fn(&NotificationState) -> Option<Notification>,
    ) -> Result<Restored> {
        let [_, msg_max, msgsize_max, msg_default, msgsize_default] = saved.limits;
        let within = |limit: i64, most: i64| (0..=most).contains(&limit);
        let limits =
            [(msg_max, HARD.0), (msg_default, HARD.0), (msgsize_max, HARD.1), (msgsize_default, HARD.1)];
        let count = saved.named.len() + saved.unlinked.len();
        if count > MAX_QUEUES
            || saved.next_ino > LAST_INO
            || !limits.iter().all(|(limit, most)| within(*limit, *most))
        {
            return Err(Errno::EINVAL);
        }
        for (limit, saved) in self.limits.iter().zip(saved.limits) {
            limit.store(saved, Ordering::Relaxed);
        }
        let dev = self.dir.lock().attr.dev;
        let mut by_ino = BTreeMap::new();
        let mut load = |state: &QueueState, links: u32| -> Result<Arc<Queue>> {
            if !(2..saved.next_ino).contains(&state.attr.ino) {
                return Err(Errno::EINVAL);
            }
            let attr = Attr { dev, nlink: links.into(), size: FILE_SIZE, ..state.attr };
            let queue = Queue::restore(self.clone(), state, attr, &tell)?;
            match by_ino.insert(state.attr.ino, queue.clone()) {
                None => Ok(queue),
                Some(_) => Err(Errno::EINVAL),
            }
        };
        let mut queues = BTreeMap::new();
        for (name, state) in &saved.named {
            queues.insert(checked(name)?.to_vec(), load(state, 1)?);
        }
        for state in &saved.unlinked {
            load(state, 0)?;
        }
        let mut dir = self.dir.lock();
        let size = (2 + queues.len() as u64) * DIRENT_SIZE;
        let mode = libc::S_IFDIR | saved.attr.mode & 0o7777;
        dir.attr = Attr { dev, mode, size, ino: 1, nlink: 2, ..saved.attr };
        (dir.queues, dir.next_ino) = (queues, saved.next_ino);
        drop(dir);
        Ok(Restored { queues: self.clone(), by_ino })
    }
}

impl Restored {
    /// Whether an open file is of a queue that has no name any more.
    pub fn is_removed(&self, saved: &OpenFileState) -> bool {
        let queue = saved.inode.and_then(|(_, ino)| self.by_ino.get(&ino));
        queue.is_some_and(|queue| queue.attr.lock().nlink == 0)
    }

    /// As [`Restored::open`], of a queue that was opened on a mount and is removed since.
    pub fn open_removed(
        &self,
        saved: &OpenFileState,
        mount: &Arc<Mount>,
        name: &[u8],
    ) -> Result<Arc<OpenFile>> {
        if mount.fs().kind() != "mqueue" {
            return Err(Errno::EINVAL);
        }
        let (_, ino) = saved.inode.ok_or(Errno::ENOENT)?;
        let queue = self.by_ino.get(&ino).ok_or(Errno::ENOENT)?.clone();
        let inode = self.queues.node(queue, name);
        let dentry = Dentry::gone(&mount.sb.root, name, inode);
        self.open(saved, Some(Path { mount: mount.clone(), dentry }))
    }

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
