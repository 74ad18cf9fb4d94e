//! Directories: names that come, go and move, and listings.

use crate::conn::Call;
use crate::file::File;
use crate::handle::Handle;
use crate::node::{Node, second, shown_flags};
use crate::wire::{self, EntryOut, Room, init, op};
use abi::stat::{S_IFDIR, S_IFLNK, S_IFREG};
use abi::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Caller, DirEntry, DirSink, DirectoryOps, FileOps, InodeRef, NewNode, OpenFile, StorageOps};

/// Bytes of one FUSE_READDIR.
const LISTING: u32 = 32 << 10;

/// Makes something that is not opened.
pub(crate) fn create(
    dir: &Node,
    cx: &dyn Caller,
    name: &[u8],
    node: &NewNode,
    mode: u32,
) -> Result<Arc<Node>> {
    let room = Room::of::<EntryOut>();
    let umask = cx.umask();
    let special = |kind: u32, rdev: u64| {
        let body = wire::MknodIn { mode: kind | mode, rdev: wire::raw_device(rdev), umask, padding: 0 };
        (Call::new(op::MKNOD, dir.nodeid, &body, room).name(name), kind)
    };
    let (call, kind) = match node {
        NewNode::Directory => {
            // What a directory hands on to those in it is the daemon's to know.
            let body = wire::MkdirIn { mode: mode & !0o2000, umask };
            (Call::new(op::MKDIR, dir.nodeid, &body, room).name(name), S_IFDIR)
        }
        NewNode::Symlink(text) => (dir.bare(op::SYMLINK, room).name(name).name(text), S_IFLNK),
        NewNode::Regular => special(S_IFREG, 0),
        NewNode::Fifo => special(libc::S_IFIFO, 0),
        NewNode::Socket | NewNode::BoundSocket(_) => special(libc::S_IFSOCK, 0),
        NewNode::Char(rdev) => special(libc::S_IFCHR, *rdev),
        NewNode::Block(rdev) => special(libc::S_IFBLK, *rdev),
    };
    let answer = dir.call(cx, call)?;
    dir.made(name, &answer, kind)
}

/// Makes and opens a regular file in one request. `None` when the daemon does not have that.
pub(crate) fn create_open(
    dir: &Node,
    cx: &dyn Caller,
    name: &[u8],
    mode: u32,
    flags: i32,
) -> Option<Result<(InodeRef, Arc<dyn FileOps>)>> {
    if dir.fs.conn.lacks(op::CREATE) {
        return None;
    }
    let shown = shown_flags(flags) | (flags & (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC)) as u32;
    let body = wire::CreateIn { flags: shown, mode: S_IFREG | mode, umask: cx.umask(), open_flags: 0 };
    let room = Room { fixed: size_of::<EntryOut>() + size_of::<wire::OpenOut>(), variable: 0 };
    let answer = match dir.call(cx, Call::new(op::CREATE, dir.nodeid, &body, room).name(name)) {
        Err(Errno::ENOSYS) => {
            dir.fs.conn.set_lacks(op::CREATE);
            return None;
        }
        Err(e) => return Some(Err(e)),
        Ok(answer) => answer,
    };
    let made = made_open(dir, &answer).and_then(|opened| {
        let node = dir.made(name, &answer, S_IFREG)?;
        let file = File::new(Handle::of(node.clone(), opened.fh, flags), opened.open_flags);
        let both: (InodeRef, Arc<dyn FileOps>) = (node, Arc::new(file));
        Ok(both)
    });
    Some(made)
}

/// The open file in the answer to FUSE_CREATE. EIO where its entry cannot be a regular file's; then both go back, the file first.
fn made_open(dir: &Node, answer: &[u8]) -> Result<wire::OpenOut> {
    let (entry, _) = wire::decode::<EntryOut>(answer)?;
    let opened: wire::OpenOut = second(answer)?;
    let regular = dir.fs.attr(&entry.attr).is_ok_and(|attr| attr.file_type() == S_IFREG);
    if regular && !matches!(entry.nodeid, 0 | wire::ROOT) {
        return Ok(opened);
    }
    let body = wire::ReleaseIn { fh: opened.fh, flags: 0, release_flags: 0, lock_owner: 0 };
    dir.fs.conn.tell(Call::new(op::RELEASE, entry.nodeid, &body, Room::NONE));
    dir.fs.conn.forget(entry.nodeid, 1);
    Err(Errno::EIO)
}

/// Makes another name of a node.
pub(crate) fn link(dir: &Node, cx: &dyn Caller, name: &[u8], target: &Node) -> Result<()> {
    let body = wire::LinkIn { oldnodeid: target.nodeid };
    let answer = dir.call(cx, Call::new(op::LINK, dir.nodeid, &body, Room::of::<EntryOut>()).name(name))?;
    dir.made(name, &answer, vfs::Inode::kind(target))?;
    target.expire();
    Ok(())
}

/// Removes a name: FUSE_UNLINK, FUSE_RMDIR.
pub(crate) fn remove(dir: &Node, cx: &dyn Caller, name: &[u8], opcode: u32) -> Result<()> {
    dir.call(cx, dir.bare(opcode, Room::NONE).name(name))?;
    if let Some(gone) = dir.fs.forget_name(dir.nodeid, name) {
        gone.lost_name();
    }
    dir.expire();
    Ok(())
}

/// Moves a name. EINVAL for flags that the daemon does not know.
pub(crate) fn rename(
    dir: &Node,
    cx: &dyn Caller,
    name: &[u8],
    new_dir: &Node,
    new_name: &[u8],
    flags: u32,
) -> Result<()> {
    let newdir = new_dir.nodeid;
    let call = if flags == 0 {
        Call::new(op::RENAME, dir.nodeid, &wire::RenameIn { newdir }, Room::NONE)
    } else {
        if dir.fs.conn.lacks(op::RENAME2) || dir.fs.conn.agreed().minor < 23 {
            return Err(Errno::EINVAL);
        }
        Call::new(op::RENAME2, dir.nodeid, &wire::Rename2In { newdir, flags, padding: 0 }, Room::NONE)
    };
    match dir.call(cx, call.name(name).name(new_name)) {
        Err(Errno::ENOSYS) if flags != 0 => {
            dir.fs.conn.set_lacks(op::RENAME2);
            return Err(Errno::EINVAL);
        }
        done => done?,
    };
    let moved = dir.fs.forget_name(dir.nodeid, name);
    let replaced = dir.fs.forget_name(newdir, new_name);
    [moved, replaced].iter().flatten().for_each(|node| node.expire());
    dir.expire();
    new_dir.expire();
    Ok(())
}

/// An open directory.
pub(crate) struct OpenDir {
    handle: Handle,
    /// Listings come with attributes.
    plus: AtomicBool,
}

impl OpenDir {
    pub fn new(handle: Handle) -> OpenDir {
        OpenDir { handle, plus: AtomicBool::new(false) }
    }

    /// Whether to ask for attributes: always, or where the daemon leaves that to the kernel, for the start of a directory.
    fn wants_plus(&self, start: bool) -> bool {
        let conn = &self.handle.node.fs.conn;
        let flags = conn.agreed().flags;
        if flags & init::DO_READDIRPLUS == 0 || conn.lacks(op::READDIRPLUS) {
            return false;
        }
        let plus = flags & init::READDIRPLUS_AUTO == 0 || start;
        self.plus.store(plus, Ordering::Relaxed);
        plus
    }

    /// Takes note of an entry that came with attributes.
    fn learn(&self, name: &[u8], entry: &EntryOut) {
        if entry.nodeid == 0 || matches!(name, b"." | b"..") {
            return;
        }
        if let Ok(node) = self.handle.node.fs.node(entry) {
            self.handle.node.fs.keep(self.handle.node.nodeid, name, Some(node), entry);
        }
    }
}

impl StorageOps for OpenDir {
    fn sync(&self, cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        let body = wire::FsyncIn { fh: self.handle.fh, fsync_flags: data_only.into(), padding: 0 };
        let call = Call::new(op::FSYNCDIR, self.handle.node.nodeid, &body, Room::NONE);
        self.handle.node.optional(cx, call).map_or(Ok(()), |done| done.map(drop))
    }
}

/// Largest position that a program can be given.
const LAST: u64 = i64::MAX as u64;

/// The position of what a daemon calls `off`: positions below 3 are not its own.
fn position(off: u64) -> u64 {
    off.min(LAST - 3) + 3
}

/// What a daemon calls a position. The start is 0.
fn offset(position: u64) -> u64 {
    position.saturating_sub(3)
}

impl DirectoryOps for OpenDir {
    fn read_dir(&self, cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        let mut pos = pos;
        loop {
            let plus = self.wants_plus(pos <= 2);
            let size = LISTING.min(self.handle.node.fs.conn.agreed().max_pages * wire::PAGE);
            let body =
                wire::ReadIn { fh: self.handle.fh, offset: offset(pos), size, ..wire::ReadIn::default() };
            let opcode = if plus { op::READDIRPLUS } else { op::READDIR };
            let answer = self
                .handle
                .node
                .call(cx, Call::new(opcode, self.handle.node.nodeid, &body, Room::up_to(size as usize)));
            let answer = match answer {
                Err(Errno::ENOSYS) if plus => {
                    self.handle.node.fs.conn.set_lacks(op::READDIRPLUS);
                    continue;
                }
                answer => answer?,
            };
            let (mut any, mut took, mut full) = (false, false, false);
            for listed in wire::listed(&answer, plus) {
                let listed = match listed {
                    Err(_) if took => return Ok(pos),
                    listed => listed?,
                };
                any = true;
                if let Some(entry) = &listed.entry {
                    self.learn(listed.name, entry);
                }
                if full {
                    continue;
                }
                let next = position(listed.off);
                if matches!(listed.name, b"." | b"..") && !sink.takes_dots() {
                    pos = next;
                    continue;
                }
                let e = DirEntry { ino: listed.ino, kind: listed.kind, name: listed.name.to_vec() };
                if sink.entry(next, &e) {
                    took = true;
                    pos = next;
                } else {
                    full = true;
                }
            }
            // Entries that are not shown must not look like the end of the directory.
            if !any || took || full {
                // The end of an empty directory is a position as well, so that the next call does not begin again.
                return Ok(if any { pos } else { pos.max(3) });
            }
        }
    }
    fn lists_dots(&self) -> bool {
        true
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_offsets() {
        assert_eq!((offset(0), offset(2), offset(position(7))), (0, 0, 7));
        assert_eq!(position(u64::MAX), LAST);
        assert!(position(0) > 2);
    }
}
