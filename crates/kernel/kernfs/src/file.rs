//! Open files: text snapshots and directories.

use crate::changes::Changes;
use crate::entry::{At, Child, What};
use crate::fs::Node;
use crate::snapshot::Slot;
use abi::{Errno, Result};
use caller::UserMemory;
use mm::Mm;
use pid::Pid;
use rights::{Credentials, Creds};
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::{Caller, DirEntry, DirSink, DirectoryOps, FileOps, Inode, OpenFile, SeekOps};
use wait::{Events, WaitQueue};

/// Longest write that a text file takes.
const MAX_WRITE: usize = 4096;

/// An open text file.
pub(crate) struct TextOps {
    node: Arc<Node>,
    opener: Arc<Credentials>,
    bound: Option<Weak<Mm>>,
    snapshot: Arc<Slot>,
    /// Of files that tell of changes.
    watch: Option<Box<dyn Changes>>,
}

impl TextOps {
    /// Opens an inode, for some memory of its process alone if it is `bound` to that.
    pub fn new(cx: &dyn Caller, node: Arc<Node>, bound: Option<Weak<Mm>>) -> TextOps {
        let watch = node.watch(cx);
        let snapshot = node.snapshots().slot();
        TextOps { node, opener: Creds::into_inner(cx.creds()), bound, snapshot, watch }
    }

    fn at<'a>(&'a self, cx: &'a dyn Caller) -> At<'a> {
        At { opener: Some(&self.opener), bound: self.bound.as_ref(), ..self.node.at(Some(cx)) }
    }

    fn text(&self, cx: &dyn Caller, fresh: bool) -> Result<Arc<Vec<u8>>> {
        if !fresh && let Some(s) = self.snapshot.get() {
            return Ok(s);
        }
        let What::Text(read, _) = self.node.entry().what else { return Err(Errno::EINVAL) };
        let s = Arc::new(read(&self.at(cx))?);
        self.node.snapshots().fill(&self.snapshot, s.clone());
        Ok(s)
    }
}

impl FileOps for TextOps {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        let text = self.text(cx, off == 0)?;
        let rest = usize::try_from(off).ok().and_then(|o| text.get(o..)).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        let What::Text(_, Some(write)) = self.node.entry().what else { return Err(self.node.write_error()) };
        if buf.len() >= MAX_WRITE {
            return Err(Errno::EINVAL);
        }
        let at = self.at(cx);
        write(&at, buf)?;
        Ok(at.taken.get().unwrap_or(buf.len()))
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        self.node.fs.fs_type.ioctl(&self.at(cx), self.node.entry(), mem, (cmd, arg))
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        match &self.watch {
            Some(w) => w.poll(),
            None => Events::READABLE | Events::WRITABLE,
        }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        self.watch.as_ref().map(|w| w.queue())
    }
}

impl SeekOps for TextOps {
    fn takes_empty_writes(&self) -> bool {
        self.node.takes_empty_writes()
    }
    fn ends(&self) -> bool {
        self.node.has_size()
    }
    fn seek_special(&self, _cx: &dyn Caller, _file: &OpenFile, off: i64, whence: i32) -> Result<u64> {
        if !self.node.has_size() {
            return Err(Errno::EINVAL);
        }
        let size = self.node.attr()?.size;
        let off = u64::try_from(off).ok().filter(|&o| o < size).ok_or(Errno::ENXIO)?;
        Ok(if whence == libc::SEEK_DATA { off } else { size })
    }
}

/// An open directory.
pub(crate) struct DirOps(pub Arc<Node>);

impl DirectoryOps for DirOps {
    fn process(&self) -> Option<Arc<Pid>> {
        Some(self.0.process()?.pid.clone())
    }
    fn read_dir(&self, cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        let What::Dir(entries, names) = &self.0.entry().what else { return Err(Errno::ENOTDIR) };
        let at = self.0.at(Some(cx));
        if at.proc.is_some() && at.proc().is_err() {
            return Err(Errno::ENOENT);
        }
        let give = |sink: &mut dyn DirSink, next: u64, name: &str, c: &Child| {
            let (ino, kind) = self.0.child_ino(c);
            sink.entry(next, &DirEntry { ino, kind, name: name.as_bytes().to_vec() })
        };
        let mut pos = pos;
        // Entry i of the table has offset 2 + i; names follow with theirs.
        let base = 2 + entries.len() as u64;
        while let Some(e) = pos.checked_sub(2).and_then(|i| entries.get(i as usize)) {
            if !give(sink, pos + 1, e.name, &self.0.table_child(e)) {
                return Ok(pos);
            }
            pos += 1;
        }
        let Some(names) = names else { return Ok(pos) };
        let from = pos.saturating_sub(base);
        for (order, name, c) in names.list(&at)?.into_iter().filter(|x| x.0 >= from) {
            if !give(sink, base + order + 1, &name, &c) {
                return Ok(base + order);
            }
            pos = base + order + 1;
        }
        Ok(pos)
    }
}
