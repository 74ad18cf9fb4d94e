//! Open files and directories of groups.

use crate::files::{At, FILES, File};
use crate::node::{Node, ino, root_of};
use abi::{Errno, Result};
use kernfs::Slot;
use rights::{Credentials, Creds};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Caller, DirEntry, DirSink, DirectoryOps, FileOps, OpenFile, SeekOps};
use wait::{Events, WaitQueue};

/// Longest write.
const LONGEST: usize = 4096;

/// An open file.
pub(crate) struct FileOf {
    node: Arc<Node>,
    file: &'static File,
    opener: Arc<Credentials>,
    /// ID of the root of the opener's cgroup namespace.
    root: u64,
    text: Arc<Slot>,
    /// Changes of which the reader knows.
    seen: AtomicU64,
}

impl FileOf {
    pub fn new(cx: &dyn Caller, node: Arc<Node>, file: &'static File) -> FileOf {
        let first = || node.fs.kernel.first.cgroup().id();
        let root = root_of(cx).map_or_else(first, |root| root.id());
        let text = node.fs.snapshots.slot();
        let opener = Creds::into_inner(cx.creds());
        FileOf { node, file, opener, root, text, seen: AtomicU64::new(0) }
    }

    fn at<'a>(&'a self, cx: &'a dyn Caller) -> At<'a> {
        let Node { fs, group, .. } = &*self.node;
        At { kernel: &fs.kernel, group, cx, opener: &self.opener, root: self.root }
    }

    /// ENODEV once the group or its controller is gone.
    fn check(&self) -> Result<()> {
        self.node.group.check_alive()?;
        if self.file.is_in(&self.node.group) { Ok(()) } else { Err(Errno::ENODEV) }
    }
}

impl FileOps for FileOf {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        self.check()?;
        let text = match self.text.get().filter(|_| off > 0) {
            Some(text) => text,
            None => {
                if let Some(notice) = self.file.notice {
                    self.seen.store(notice(&self.node.group).version(), Ordering::SeqCst);
                }
                let show = self.file.show.ok_or(Errno::EINVAL)?;
                let text = Arc::new(show(&self.at(cx))?.into_bytes());
                self.node.fs.snapshots.fill(&self.text, text.clone());
                text
            }
        };
        let rest = usize::try_from(off).ok().and_then(|off| text.get(off..)).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        self.check()?;
        let store = self.file.store.ok_or(Errno::EINVAL)?;
        if buf.len() > LONGEST {
            return Err(Errno::E2BIG);
        }
        // A namespace is a boundary of delegation: its root is limited from outside, and a container's root by the host
        // alone, whatever namespace the writer has made meanwhile.
        let outside = self.node.group.id() == self.root || self.node.group.is_of_container();
        if !self.file.delegated && outside {
            return Err(Errno::EPERM);
        }
        let text = buf.split(|b| *b == 0).next().unwrap_or(&[]);
        let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?.trim_ascii();
        store(&self.at(cx), text)?;
        Ok(buf.len())
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let ready = Events::READABLE | Events::WRITABLE;
        let changed = |notice: fn(&cgroup::Cgroup) -> &cgroup::Notice| {
            notice(&self.node.group).version() != self.seen.load(Ordering::SeqCst)
        };
        if self.file.notice.is_some_and(changed) || self.check().is_err() {
            return ready | Events::PRI | Events::ERR;
        }
        ready
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        self.file.notice.map(|notice| notice(&self.node.group).queue().clone())
    }
}

impl SeekOps for FileOf {}

/// An open directory.
pub(crate) struct DirOps(pub Arc<Node>);

/// Directory offsets of groups are their inode numbers, which are above this.
const GROUPS: u64 = FILES.len() as u64 + 2;

impl DirectoryOps for DirOps {
    fn read_dir(&self, _cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        let group = &self.0.group;
        if group.is_removed() {
            return Err(Errno::ENOENT);
        }
        let mut pos = pos;
        while let Some(file) = pos.checked_sub(2).and_then(|i| FILES.get(i as usize)) {
            let entry = DirEntry {
                ino: ino(group, Some(file)),
                kind: libc::DT_REG,
                name: file.name.as_bytes().to_vec(),
            };
            if file.is_in(group) && !sink.entry(pos + 1, &entry) {
                return Ok(pos);
            }
            pos += 1;
        }
        let mut children = group.children();
        children.sort_unstable_by_key(|child| child.id());
        let from = pos.max(GROUPS);
        for child in children.iter().filter(|child| ino(child, None) >= from) {
            let ino = ino(child, None);
            let entry = DirEntry { ino, kind: libc::DT_DIR, name: child.name().to_vec() };
            if !sink.entry(ino + 1, &entry) {
                return Ok(ino);
            }
            pos = ino + 1;
        }
        Ok(pos)
    }
}
