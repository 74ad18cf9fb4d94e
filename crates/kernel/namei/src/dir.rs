//! Making entries and reading directories. See mkdir(2), mknod(2), symlink(2), getdents(2).

use crate::lookup::{Last, Parent, Start};
use crate::walk;
use abi::stat::{S_IFMT, S_IFREG};
use abi::{Errno, Result};
use mounts::fs_context::FsView;
use policy::Kind;
use rights::cred::Cap;
use rights::mode;
use vfs::acl::Inherited;
use vfs::file::OpenFile;
use vfs::inode::{DirEntry, DirSink, InodeRef, NewNode};
use vfs::mount::Path;
use vfs::notify::{self, event};
use vfs::policing::{self, Place};
use vfs::{Caller, DirectoryOps, access};

/// What something starts with that is made in a directory.
pub(crate) struct Newborn {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access control lists.
    pub acls: Inherited,
}

impl Newborn {
    /// For something made in `dir` with a mode as asked for (set-group-id directories hand on their group). Umask or default
    /// list come last: they must not hide from the set-group-id rule that the group may execute.
    pub fn of(cx: &dyn Caller, dir: &Path, node: &NewNode, mode: u32) -> Result<Newborn> {
        let creds = cx.creds();
        let d = dir.inode().perm()?;
        let asked = mode & 0o7777;
        let mut mode = asked;
        let mut gid = creds.fsgid;
        if d.mode & 0o2000 != 0 {
            gid = d.gid;
            if *node == NewNode::Directory {
                mode |= 0o2000;
            } else if mode & 0o2010 == 0o2010 && !mode::keeps_set_gid(&creds, &d, gid) {
                mode &= !0o2000;
            }
        }
        let (mut mode, acls) = Inherited::of(cx, dir, node, mode)?;
        if matches!(node, NewNode::Symlink(_)) {
            mode = asked;
        }
        Ok(Newborn { mode, uid: creds.fsuid, gid, acls })
    }

    /// Makes it under a name.
    pub fn create(self, cx: &dyn Caller, dir: &Path, name: &[u8], node: &NewNode) -> Result<InodeRef> {
        let place = dir.inode().dir()?;
        let inode = place.create(cx, name, node, self.mode, self.uid, self.gid)?;
        if let Err(e) = self.acls.give(cx, &inode) {
            // No other thread has seen it: the caller holds the directory's lock.
            if *node == NewNode::Directory { place.rmdir(cx, name) } else { place.unlink(cx, name) }?;
            return Err(e);
        }
        Ok(inode)
    }
}

/// Makes `name` in `dir`; EEXIST when there. The umask is applied to `mode`, but for symbolic links.
pub fn create_in(cx: &dyn Caller, dir: &Path, name: &[u8], node: &NewNode, mode: u32) -> Result<Path> {
    let lock = dir.dentry.lock_dir_for(cx)?;
    match walk::find_locked(cx, &dir.dentry, name) {
        Ok(_) => return Err(Errno::EEXIST),
        Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    crate::domain::check_make(cx, dir, node)?;
    access::may_create(cx, dir)?;
    policing::decide(cx, Kind::FileCreate, Place::Name(dir, name))?;
    if matches!(node, NewNode::Socket | NewNode::BoundSocket(_)) {
        policing::decide(cx, Kind::NetBind, Place::Name(dir, name))?;
    }
    // A whiteout of overlayfs (0:0) is no device.
    if let Some(device) = access::device_made(node) {
        if !cx.creds().capable(Cap::MKNOD) {
            return Err(Errno::EPERM);
        }
        cx.check_device(&device)?;
    }
    let new = Newborn::of(cx, dir, node, mode)?;
    let epoch = dir.dentry.epoch();
    let inode = new.create(cx, dir, name, node)?;
    if !dir.dentry.keeps {
        dir.dentry.admits(name, &inode)?;
    }
    let dentry = dir.dentry.insert(name, inode, epoch);
    drop(lock);
    let kind = if dentry.is_dir() { event::CREATE | event::ISDIR } else { event::CREATE };
    notify::on_dentry(&dir.dentry, kind, 0, name);
    Ok(Path { mount: dir.mount.clone(), dentry })
}

fn create_at(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    node: &NewNode,
    mode: u32,
) -> Result<Path> {
    let Parent { dir, name, last, slash } = walk::lookup_parent(cx, view, start, path)?;
    if last != Last::Normal {
        return Err(Errno::EEXIST);
    }
    if slash && *node != NewNode::Directory {
        // `mknod foo/`: there, or not a thing that mknod could make.
        walk::find(cx, &dir.dentry, &name, false)?;
        return Err(Errno::EEXIST);
    }
    create_in(cx, &dir, &name, node, mode)
}

/// mkdirat(2).
pub fn mkdir(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8], mode: u32) -> Result<()> {
    create_at(cx, view, start, path, &NewNode::Directory, mode & 0o1777).map(drop)
}

/// mknodat(2); also how bind(2) makes a socket's name.
pub fn mknod(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    node: &NewNode,
    mode: u32,
) -> Result<Path> {
    create_at(cx, view, start, path, node, mode & 0o7777)
}

/// What mknod(2) makes for a mode and a device number.
pub fn node_of_mode(mode: u32, dev: u64) -> Result<NewNode> {
    Ok(match mode & S_IFMT {
        0 | S_IFREG => NewNode::Regular,
        abi::stat::S_IFIFO => NewNode::Fifo,
        abi::stat::S_IFSOCK => NewNode::Socket,
        abi::stat::S_IFCHR => NewNode::Char(dev),
        abi::stat::S_IFBLK => NewNode::Block(dev),
        abi::stat::S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    })
}

/// symlinkat(2).
pub fn symlink(cx: &dyn Caller, view: &FsView, target: &[u8], start: &Start, path: &[u8]) -> Result<()> {
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    create_at(cx, view, start, path, &NewNode::Symlink(target.to_vec()), 0o777).map(drop)
}

struct Fixed<'a> {
    sink: &'a mut dyn DirSink,
    full: bool,
}

impl DirSink for Fixed<'_> {
    fn entry(&mut self, next: u64, e: &DirEntry) -> bool {
        let ok = self.sink.entry(next, e);
        self.full |= !ok;
        ok
    }
    fn takes_dots(&self) -> bool {
        true
    }
}

/// Other processes have moved the directory away from where it was opened: it is there, and only this place is not.
fn was_moved(path: &Path) -> bool {
    path.inode().as_confirming().is_some() && path.attr().is_ok_and(|attr| attr.nlink != 0)
}

/// Feeds entries of an open directory from its position on and moves the position. `.` and `..` come first, unless the
/// file system lists them itself.
/// Says whether the sink refused an entry.
pub fn read(cx: &dyn Caller, file: &OpenFile, sink: &mut dyn DirSink) -> Result<bool> {
    let Some(path) = file.path.as_ref().filter(|p| p.is_dir()) else { return Err(Errno::ENOTDIR) };
    let mut pos = file.hold_position(cx)?;
    if path.dentry.is_unlinked() && !was_moved(path) {
        return Err(Errno::ENOENT);
    }
    let mut s = Fixed { sink, full: false };
    let adds_dots = !file.ops.as_directory().is_some_and(DirectoryOps::lists_dots);
    if adds_dots && *pos == 0 {
        let e = DirEntry { ino: path.attr()?.ino, kind: libc::DT_DIR, name: b".".to_vec() };
        if !s.entry(1, &e) {
            return Ok(true);
        }
        *pos = 1;
    }
    if adds_dots && *pos == 1 {
        let up = path.up(&path.mount.root_path()).0;
        let e = DirEntry { ino: up.attr()?.ino, kind: libc::DT_DIR, name: b"..".to_vec() };
        if !s.entry(2, &e) {
            return Ok(true);
        }
        *pos = 2;
    }
    *pos = file.ops.read_dir(cx, file, *pos, &mut s)?;
    notify::by_file(cx, file, event::ACCESS);
    Ok(s.full)
}
