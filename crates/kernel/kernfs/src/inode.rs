//! vfs's traits for nodes.

use crate::entry::{Target, What};
use crate::file::{DirOps, TextOps};
use crate::fs::Node;
use abi::stat::Attr;
use abi::{Errno, Result};
use rights::Perm;
use std::sync::Arc;
use task::Asked;
use vfs::attach::Attachments;
use vfs::{
    Caller, DirInode, DirectoryFile, FileOps, FileSystem, Inode, InodeRef, LinkInode, MagicLink, OpenFile,
    Path, SetAttr, SpecialInode,
};

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn kind(&self) -> u32 {
        self.file_type()
    }
    fn attr(&self) -> Result<Attr> {
        let p = self.real_perm();
        let at = self.at(None);
        let (mut nlink, mut size) = (1, 0);
        match &self.entry.what {
            What::Dir(entries, names) => {
                let subdirs = entries.iter().filter(|e| matches!(e.what, What::Dir(..))).count();
                nlink = 2 + subdirs as u64 + names.map_or(0, |n| n.subdirs(&at));
                size = names.map_or(0, |n| n.size(&at));
            }
            What::Magic(_) if self.entry.mode == 0 => size = 64,
            What::Text(..) => size = self.fs.fs_type.text_size(),
            _ => {}
        }
        Ok(Attr {
            dev: self.fs.dev,
            ino: self.ino(),
            mode: p.mode,
            nlink,
            uid: p.uid,
            gid: p.gid,
            size,
            blksize: self.fs.fs_type.block_size(),
            atime: self.born,
            mtime: self.born,
            ctime: self.born,
            ..Attr::default()
        })
    }
    fn perm(&self) -> Result<Perm> {
        let p = self.real_perm();
        // See `open`.
        if self.fs.fs_type.judges_writers(self) {
            return Ok(Perm { mode: p.mode | 0o222, ..p });
        }
        // See `check_own`.
        Ok(if self.is_own_dir() { Perm { mode: p.mode | 0o555, ..p } } else { p })
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() { Err(Errno::EPERM) } else { Ok(()) }
    }
    fn open(&self, cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        let at = self.at(Some(cx));
        let me = || self.fs.node(self.key, self.entry, self.proc.clone(), self.n);
        match &self.entry.what {
            What::Dir(..) => {
                self.check_own(cx, rights::mode::MAY_READ)?;
                Ok(Arc::new(DirectoryFile(DirOps(me()?))))
            }
            What::Text(_, write) => {
                let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
                let fs_type = self.fs.fs_type;
                if writes && write.is_none() && fs_type.write_error(self).is_none() {
                    return Err(Errno::EACCES);
                }
                if writes && fs_type.judges_writers(self) && !fs_type.may_write(&at, cx) {
                    rights::mode::allowed(&cx.creds(), &self.real_perm(), rights::mode::MAY_WRITE)?;
                }
                if fs_type.is_constant(self) {
                    let what = format!("{}: {}", fs_type.name(), self.entry.name);
                    self.fs.kernel.coverage.note(Asked::ConstantFile, what);
                }
                let bound = match self.proc {
                    Some(_) => self.fs.fs_type.check_open(&at, self.entry, cx)?,
                    None => None,
                };
                Ok(Arc::new(TextOps::new(cx, me()?, bound)))
            }
            What::Special(open) => open(&at, flags),
            What::Link(_) | What::Magic(_) => Err(Errno::ELOOP),
        }
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        Some(self)
    }
    fn as_link(&self) -> Option<&dyn LinkInode> {
        Some(self)
    }
    fn as_special(&self) -> Option<&dyn SpecialInode> {
        let descriptor = self.proc.is_some()
            && matches!(self.entry.name, "fd" | "fdinfo")
            && !matches!(self.entry.what, What::Dir(..));
        descriptor.then_some(self)
    }
}

impl Node {
    /// Notes a file that there is not. Numbers are of processes, threads and descriptors.
    fn note_missing(&self, name: &[u8]) {
        if !name.iter().all(u8::is_ascii_digit) {
            let (kind, dir) = (self.fs.fs_type.name(), self.entry.name);
            let what = format!("{kind}: {} in directory {dir}", String::from_utf8_lossy(name));
            self.fs.kernel.coverage.note(Asked::File, what);
        }
    }
}

impl DirInode for Node {
    fn stays_empty(&self) -> bool {
        matches!(self.entry.what, What::Dir([], None))
    }
    fn lookup(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        let What::Dir(entries, names) = &self.entry.what else { return Err(Errno::ENOTDIR) };
        self.check_own(cx, rights::mode::MAY_EXEC)?;
        let at = self.at(Some(cx));
        if let Some(p) = self.proc.as_ref()
            && !p.exists(&self.fs.kernel)
        {
            return Err(if self.process().is_some() { Errno::ESRCH } else { Errno::ENOENT });
        }
        if let Some(e) = entries.iter().find(|e| e.name.as_bytes() == name) {
            return Ok(self.child(self.table_child(e))?);
        }
        match names {
            Some(n) => {
                let found = n.find(&at, name).inspect_err(|_| self.note_missing(name))?;
                Ok(self.child(found)?)
            }
            None => {
                self.note_missing(name);
                Err(Errno::ENOENT)
            }
        }
    }
    fn create(
        &self,
        _cx: &dyn Caller,
        _name: &[u8],
        _node: &vfs::NewNode,
        _mode: u32,
        _uid: u32,
        _gid: u32,
    ) -> Result<InodeRef> {
        Err(self.fs.fs_type.no_create())
    }
}

impl LinkInode for Node {
    fn as_magic_link(&self) -> Option<&dyn MagicLink> {
        Some(self)
    }
    fn readlink(&self, cx: &dyn Caller) -> Result<Vec<u8>> {
        if let What::Link(read) = self.entry.what {
            return read(&self.at(Some(cx)));
        }
        match self.target(cx) {
            Some(Ok(Target::Place(p))) => Ok(self.at(Some(cx)).show(&p)),
            Some(Ok(Target::File(f))) => Ok(self.at(Some(cx)).show_file(&f)),
            Some(Err(e)) => Err(e),
            None => Err(Errno::EINVAL),
        }
    }
}

impl MagicLink for Node {
    fn magic_link(&self, cx: &dyn Caller) -> Option<Result<Path>> {
        match self.target(cx)? {
            Ok(Target::Place(p)) => Some(Ok(p)),
            Ok(Target::File(f)) => f.path.clone().map(Ok),
            Err(e) => Some(Err(e)),
        }
    }
    fn magic_file(&self, cx: &dyn Caller) -> Option<Result<Arc<OpenFile>>> {
        match self.target(cx)? {
            Ok(Target::File(f)) => Some(Ok(f)),
            Ok(Target::Place(_)) => None,
            Err(e) => Some(Err(e)),
        }
    }
}

/// What stands for a descriptor of a process.
impl SpecialInode for Node {
    fn refuses_mounts(&self) -> bool {
        true
    }
}
