//! Open directories: a listing taken when a pass starts.

use crate::fs::Mode;
use crate::node::{Node, OpenDir};
use abi::Result;
use hostsys::fs as host;
use lock_order::Mutex;
use std::os::fd::AsFd;
use std::sync::Arc;
use vfs::{Caller, DirEntry, DirSink, DirectoryOps, LockFile, OpenFile, StorageOps};

/// An open directory.
pub(crate) struct Dir {
    node: Arc<Node>,
    _open: OpenDir,
    list: Mutex<Option<Arc<[host::ListEntry]>>>,
}

impl Dir {
    pub fn new(node: Arc<Node>) -> Dir {
        Dir { _open: OpenDir::new(&node), node, list: Mutex::new(None) }
    }

    fn listing(&self, fresh: bool) -> Result<Arc<[host::ListEntry]>> {
        if let (Some(l), false) = (&*self.list.lock(), fresh) {
            return Ok(l.clone());
        }
        self.node.asked();
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
        let fd = host::open_self(&*self.node.dir_fd()?)?;
        let list = host::list(fd.as_fd())?;
        if let Some(reading) = reading {
            self.node.keep_names(reading, &list);
        }
        Ok(list)
    }
}

impl StorageOps for Dir {
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        if self.node.fs.readonly {
            return Ok(());
        }
        host::sync(host::open_self(&*self.node.dir_fd()?)?, data_only)
    }
    fn lock_file(&self, _file: &OpenFile) -> Result<Option<LockFile>> {
        if self.node.fs.mode == Mode::Exclusive {
            return Ok(None);
        }
        let fd = Arc::new(host::open_self(&*self.node.dir_fd()?)?);
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
