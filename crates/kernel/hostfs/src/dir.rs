//! Open directories: a listing taken when a pass starts.

use crate::fs::Mode;
use crate::node::{Node, OpenDir};
use abi::Result;
use hostsys::fs as host;
use hosttree::DirectoryRef;
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::{Caller, DirEntry, DirSink, DirectoryOps, LockFile, OpenFile, StorageOps};

/// Directories that are held by open files of them at most: each is a descriptor, or a handle of a gofer. Others are looked up again
/// where their cache has lost them.
const HELD: usize = 2048;

/// A directory that is held, and counted.
struct Held {
    dir: DirectoryRef,
    count: Arc<AtomicUsize>,
}

impl Held {
    fn new(count: &Arc<AtomicUsize>, dir: DirectoryRef) -> Option<Held> {
        let held = Held { dir, count: count.clone() };
        (count.fetch_add(1, Ordering::AcqRel) < HELD).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An open directory.
pub(crate) struct Dir {
    node: Arc<Node>,
    /// In a shared tree: the directory itself, wherever others move it.
    here: Option<Held>,
    _open: OpenDir,
    list: Mutex<Option<Arc<[host::ListEntry]>>>,
}

impl Dir {
    /// ESTALE when the node's place leads to something else by now.
    pub fn new(node: Arc<Node>) -> Result<Dir> {
        let here = match node.fs.mode {
            Mode::Exclusive => None,
            Mode::Shared => match node.hold_dir() {
                Ok(dir) => Held::new(&node.fs.home.held_dirs, dir),
                Err(error) => return Err(error),
            },
        };
        Ok(Dir { here, _open: OpenDir::new(&node), node, list: Mutex::new(None) })
    }

    fn directory(&self) -> Result<DirectoryRef> {
        self.here.as_ref().map_or_else(|| self.node.dir(), |held| Ok(held.dir.clone()))
    }

    fn listing(&self, fresh: bool) -> Result<Arc<[host::ListEntry]>> {
        if let (Some(l), false) = (&*self.list.lock(), fresh) {
            return Ok(l.clone());
        }
        if self.node.fs.top.is_another_process() {
            // Its names will be looked up: many with one question, once they are known.
            self.node.watch_at_once();
            self.node.prefetched().listed();
        } else {
            self.node.asked();
        }
        self.node.fs.settle();
        let l: Arc<[host::ListEntry]> = match self.node.known_names() {
            Some(names) => names.into(),
            None => self.read_host()?.into(),
        };
        *self.list.lock() = Some(l.clone());
        Ok(l)
    }

    fn read_host(&self) -> Result<Vec<host::ListEntry>> {
        let reading = self.node.begin_reading();
        let list = self.directory()?.list()?;
        if let Some(reading) = reading {
            self.node.keep_names(reading, &list);
            // In the order in which names are asked for ahead.
            if let Some(known) = self.node.known_names() {
                return Ok(known);
            }
        }
        Ok(list)
    }
}

impl StorageOps for Dir {
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        if self.node.fs.readonly {
            return Ok(());
        }
        host::sync(self.directory()?.open_self()?, data_only)
    }
    fn lock_file(&self, _file: &OpenFile) -> Result<Option<LockFile>> {
        if self.node.fs.mode == Mode::Exclusive {
            return Ok(None);
        }
        let fd = Arc::new(self.directory()?.open_self()?);
        Ok(Some(LockFile { fd, readable: true, writable: false }))
    }
    fn lock_file_anew(&self, file: &OpenFile) -> Option<LockFile> {
        self.lock_file(file).ok().flatten()
    }
}

impl DirectoryOps for Dir {
    fn read_dir(&self, _cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        let l = self.listing(pos <= 2)?;
        let mut i = pos.saturating_sub(2);
        while let Some(e) = usize::try_from(i).ok().and_then(|i| l.get(i)) {
            let e = DirEntry { ino: e.ino, kind: e.kind, name: e.name.to_vec() };
            if !sink.entry(i + 3, &e) {
                break;
            }
            i += 1;
        }
        // A pass over nothing has an end as well, so that the next call does not begin another one.
        Ok((i + 2).max(if l.is_empty() { 3 } else { 2 }))
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
}
