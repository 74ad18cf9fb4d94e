//! The inode operations.

use crate::dir::Dir;
use crate::fifo::Fifo;
use crate::file::File;
use crate::fs::Mode;
use crate::node::{Change, ChangeCounts, Node, same_link};
use crate::outside::{Object, Observed};
use crate::unix::{self, TreeSockets};
use crate::watches::Coherence;
use abi::stat::{Attr, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use abi::time::Timespec;
use abi::{Errno, NAME_MAX, Result};
use caller::Outcome;
use hostsys::fs::{self as host, Access, SetTime};
use rights::Perm;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfs::attach::Attachments;
use vfs::notify::OutsideWatch;
use vfs::{
    AclInode, Caller, Confirming, DirInode, DirectoryFile, FileOps, FileSystem, Inode, InodeRef, LinkInode,
    NewNode, OutsideSocket, SetAttr, SpecialInode, TimeSet, XattrInode,
};
use wait::WaitQueue;

impl Node {
    fn this(&self) -> Result<Arc<Node>> {
        self.me.upgrade().ok_or(Errno::ESTALE)
    }

    fn writable(&self) -> Result<()> {
        if self.fs.readonly { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Attributes that decide about access. For a directory, the right to search it is known while its watch reports
    /// nothing. A file may have been found without a question, while its rights were changed by another name.
    pub(crate) fn rights(&self) -> Attr {
        match self.known() {
            a if self.fs.mode == Mode::Exclusive => a,
            a if a.is_dir() && !self.is_unsure() => a,
            a if a.is_dir() => self.current().unwrap_or(a),
            a if a.nlink == 1 && self.standing().is_none() => a,
            a => self.known_rights().or_else(|| self.current().ok()).unwrap_or(a),
        }
    }

    /// A descriptor of a regular file that is open anyway.
    fn fd_in_use(&self) -> Option<Arc<OwnedFd>> {
        let held = self.held.lock().upgrade();
        held.or_else(|| self.warm_fd())
    }

    /// A descriptor for attribute calls: one in use, or a new one.
    pub(crate) fn handle(&self) -> Result<Arc<OwnedFd>> {
        if let Some(fd) = self.fd_in_use() {
            return Ok(fd);
        }
        match self.kind {
            S_IFREG if self.fs.mode == Mode::Exclusive => self.read_fd(),
            S_IFREG => Ok(Arc::new(self.open(Access::Read)?)),
            S_IFDIR => Ok(Arc::new(host::open_self(&*self.dir_fd()?)?)),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Gives a new object the owner and mode asked for, where the host let us make it otherwise.
    fn adopt(&self, name: &[u8], started: Timespec, (mode, uid, gid): (u32, u32, u32)) -> Result<Arc<Node>> {
        let dir = self.dir_fd()?;
        let mut before = self.noted();
        let mut a = host::stat_at(&*dir, name)?;
        let owner = (a.uid != uid).then_some(uid);
        let group = (a.gid != gid).then_some(gid);
        let other_mode = a.file_type() != S_IFLNK && a.mode & 0o7777 != mode & 0o7777;
        if owner.is_some() || group.is_some() || other_mode {
            let fd = host::open_at(&*dir, name, Access::Place)?;
            let made = host::stat(&fd)?;
            // By way of another tree the name may be exchanged for an older object.
            if (made.dev, made.ino) != (a.dev, a.ino) || made.btime.is_some_and(|b| b.sec + 1 < started.sec) {
                return Err(Errno::ESTALE);
            }
            if owner.is_some() || group.is_some() {
                // Without the privilege (rootless) everything belongs to the one user we are.
                let _ = host::chown_place(&fd, owner, group);
            }
            if other_mode {
                match host::chmod_place(&fd, mode) {
                    Err(Errno::ENOSYS) => host::chmod_at(&*dir, name, mode)?,
                    done => done?,
                }
            }
            before = self.noted();
            a = host::stat(&fd)?;
        }
        Ok(Node::found(&self.this()?, name, a, before))
    }
}

impl Node {
    /// The same for a regular file that is open for reading and writing; the first open(2) takes the descriptor.
    fn adopt_open(&self, name: &[u8], fd: OwnedFd, rights: (u32, u32, u32)) -> Result<Arc<Node>> {
        let (a, before) = self.own(&fd, rights)?;
        let dir = self.this()?;
        let node = match Node::made(&dir, name, a, &before) {
            Some(node) => node,
            None => {
                let before = self.noted();
                Node::found(&dir, name, host::stat(&fd)?, before)
            }
        };
        node.keep_made(fd);
        Ok(node)
    }

    /// Gives a file that was made in this directory the mode and owner asked for; its identity, and what was noted
    /// before that was read.
    fn own(&self, fd: &OwnedFd, (mode, uid, gid): (u32, u32, u32)) -> Result<(Attr, ChangeCounts)> {
        let mut before = self.noted();
        let mut a = host::identity(fd)?;
        let owner = (a.uid != uid).then_some(uid);
        let group = (a.gid != gid).then_some(gid);
        if owner.is_some() || group.is_some() {
            // As above.
            let _ = host::chown(fd, owner, group);
        }
        let other_mode = a.mode & 0o7777 != mode & 0o7777;
        if other_mode {
            host::chmod(fd, mode)?;
        }
        if owner.is_some() || group.is_some() || other_mode {
            before = self.noted();
            a = host::identity(fd)?;
        }
        Ok((a, before))
    }

    /// The name leads to this object for all that is known, up to now.
    fn is_certain(&self) -> bool {
        if !self.fs.is_watched() {
            return false;
        }
        self.fs.home.watches.settle(Coherence::Strict);
        self.still(self.standing()).is_some()
    }
}

fn time(t: Option<TimeSet>) -> SetTime {
    match t {
        None => SetTime::Keep,
        Some(TimeSet::Now) => SetTime::Now,
        Some(TimeSet::At(t)) => SetTime::At(t),
    }
}

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn attr(&self) -> Result<Attr> {
        self.current()
    }
    fn kind(&self) -> u32 {
        self.kind
    }
    fn perm(&self) -> Result<Perm> {
        let a = self.rights();
        Ok(Perm { mode: a.mode, uid: a.uid, gid: a.gid })
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        self.writable()?;
        let held = self.fd_in_use();
        let rights = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        let before = self.standing();
        let changing = if rights { self.changing() } else { self.writing() };
        if let Some(size) = set.size {
            match &held {
                // The descriptor in use may be read-only: truncate through one that is not.
                Some(fd) if host::truncate(&**fd, size).is_ok() => {}
                _ => host::truncate(self.open(Access::Write)?, size)?,
            }
        }
        let times = set.atime.is_some() || set.mtime.is_some();
        if let (Some(fd), true) = (&held, self.kind == S_IFREG) {
            if set.uid.is_some() || set.gid.is_some() {
                host::chown(&**fd, set.uid, set.gid)?;
            }
            if let Some(m) = set.mode {
                host::chmod(&**fd, m)?;
            }
            if times {
                host::utimes(&**fd, time(set.atime), time(set.mtime))?;
            }
        } else if self.place().is_some() {
            // By a descriptor, and the object is compared: a process that may change the directory could exchange the
            // name meanwhile.
            let fd = self.open(Access::Place)?;
            if set.uid.is_some() || set.gid.is_some() {
                host::chown_place(&fd, set.uid, set.gid)?;
            }
            if let Some(m) = set.mode {
                if self.kind == S_IFLNK {
                    return Err(Errno::EOPNOTSUPP);
                }
                match host::chmod_place(&fd, m) {
                    // Linux before 6.6.
                    Err(Errno::ENOSYS) => host::chmod(&*self.handle()?, m)?,
                    done => done?,
                }
            }
            if times {
                host::utimes_place(&fd, time(set.atime), time(set.mtime))?;
            }
        } else {
            let fd = self.handle()?;
            if set.uid.is_some() || set.gid.is_some() {
                host::chown(&*fd, set.uid, set.gid)?;
            }
            if let Some(m) = set.mode {
                host::chmod(&*fd, m)?;
            }
            if times {
                host::utimes(&*fd, time(set.atime), time(set.mtime))?;
            }
        }
        if set.mode.is_some() {
            self.forget_acls();
        }
        // The rights are needed at once; sizes and times are requested when they are needed.
        let changed = changing.end_alone();
        if !rights || self.note_rights(set, before, changed) { Ok(()) } else { self.current().map(drop) }
    }
    fn open(&self, _cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        match self.kind {
            S_IFDIR => Ok(Arc::new(DirectoryFile(Dir::new(self.this()?)))),
            S_IFREG => {
                let access = match flags & libc::O_ACCMODE {
                    libc::O_RDONLY => Access::Read,
                    libc::O_WRONLY => Access::Write,
                    _ => Access::ReadWrite,
                };
                if access != Access::Read {
                    self.writable()?;
                }
                if self.fs.mode == Mode::Exclusive {
                    self.read_fd()?;
                    return Ok(Arc::new(File::new(self.this()?, None, true, access)));
                }
                let unnamed = self.unnamed.lock().clone();
                if let Some(fd) = unnamed {
                    let exact = access == Access::ReadWrite;
                    return Ok(Arc::new(File::new(self.this()?, Some(fd), exact, access)));
                }
                let warm = if access == Access::Read { self.warm_fd() } else { None };
                let (fd, exact) = match (warm, self.take_made()) {
                    (_, Some(fd)) => (Arc::new(fd), access == Access::ReadWrite),
                    (Some(fd), None) => (fd, true),
                    (None, None) => {
                        let fd = Arc::new(self.open(access)?);
                        if access == Access::Read {
                            self.keep_warm(&fd);
                        }
                        (fd, true)
                    }
                };
                *self.held.lock() = Arc::downgrade(&fd);
                Ok(Arc::new(File::new(self.this()?, Some(fd), exact, access)))
            }
            _ => Err(Errno::ENXIO),
        }
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(Node::attachments(self))
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        Some(self)
    }
    fn as_link(&self) -> Option<&dyn LinkInode> {
        Some(self)
    }
    fn as_confirming(&self) -> Option<&dyn Confirming> {
        Some(self)
    }
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        Some(self)
    }
    fn as_special(&self) -> Option<&dyn SpecialInode> {
        Some(self)
    }
}

impl Observed for Node {
    fn key(&self) -> (u64, u64) {
        self.key
    }
    fn is_dir(&self) -> bool {
        Node::is_dir(self)
    }
    fn place(&self) -> Option<(Object, Arc<[u8]>)> {
        Node::place(self).map(|(dir, name)| (dir as Object, name))
    }
    fn open(&self) -> Result<OwnedFd> {
        if Node::is_dir(self) { host::open_self(&*self.dir_fd()?) } else { Node::open(self, Access::Read) }
    }
    fn has(&self, name: &[u8]) -> bool {
        self.dir_fd().and_then(|dir| host::stat_at(&*dir, name)).is_ok()
    }
    fn is_in_use(&self) -> bool {
        self.is_open_dir()
    }
    fn let_go(&self) {
        Node::let_go(self);
    }
    fn has_changed(&self) {
        self.fs.home.watches.changed_by_us(self.key);
    }
    fn attachments(&self) -> &Attachments {
        Node::attachments(self)
    }
    fn inode(self: Arc<Self>) -> InodeRef {
        self
    }
}

impl SpecialInode for Node {
    fn open_outside(&self, cx: &dyn Caller, flags: i32) -> Option<Outcome<Arc<dyn FileOps>>> {
        let outside = self.fs.outward.fifos && self.kind == S_IFIFO;
        outside.then(|| Fifo::open(cx, self, flags).map(|ops| ops as Arc<dyn FileOps>))
    }
    fn connect_outside(
        &self,
        cx: &dyn Caller,
        kind: i32,
        queue: &WaitQueue,
    ) -> Option<Result<Arc<dyn OutsideSocket>>> {
        let sockets = self.fs.outward.sockets.as_ref().filter(|_| self.kind == S_IFSOCK)?;
        // The other side of a connection sees the gofer's user, which is the container's root. That of datagrams sees none, or
        // the sentry's user by SO_PASSCRED, and the socket's mode decides.
        let creds = cx.creds();
        if kind != libc::SOCK_DGRAM && (creds.euid != 0 || creds.fsuid != 0) {
            return Some(Err(Errno::EACCES));
        }
        Some(self.connect_outside(sockets, kind, queue))
    }
}

impl Node {
    /// The node of an inode; `None` for one of another file system.
    fn of(inode: &InodeRef) -> Option<&Node> {
        inode.as_any().downcast_ref()
    }

    /// Connects to the socket that this node is.
    fn connect_outside(
        &self,
        sockets: &TreeSockets,
        kind: i32,
        queue: &WaitQueue,
    ) -> Result<Arc<dyn OutsideSocket>> {
        // Confirmed just now: it may have another place, or none.
        self.current()?;
        unix::connect(sockets, &self.path()?, kind, || self.fs.home.poller(), queue)
    }
}

impl DirInode for Node {
    fn lookup(&self, _cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.asked();
        if self.is_absent(name) {
            return Err(Errno::ENOENT);
        }
        let before = self.noted();
        let found = host::stat_at(&*self.dir_fd()?, name);
        if self.is_unsure() {
            let _ = self.current();
        }
        Ok(Node::found(&self.this()?, name, found?, before))
    }
    fn create(
        &self,
        _cx: &dyn Caller,
        name: &[u8],
        node: &NewNode,
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> Result<InodeRef> {
        self.writable()?;
        let _changing = self.changing();
        let started = host::now();
        let dir = self.dir_fd()?;
        let naming = self.naming();
        let added = |new: Arc<Node>| {
            naming.done(&[Change::Added(name, new.key.1, new.kind)]);
            Ok(new as InodeRef)
        };
        match node {
            NewNode::Regular => {
                let fd = host::create_at(&*dir, name, Access::ReadWrite, mode)?;
                return added(self.adopt_open(name, fd, (mode, uid, gid))?);
            }
            NewNode::Directory => host::mkdir_at(&*dir, name, mode)?,
            NewNode::Fifo => host::mknod_at(&*dir, name, false, mode)?,
            NewNode::Socket => host::mknod_at(&*dir, name, true, mode)?,
            NewNode::Symlink(t) => host::symlink_at(t, &*dir, name)?,
            NewNode::Char(0) => host::whiteout_at(&*dir, name, mode)?,
            // A device made on the host would be the host's device.
            NewNode::Char(_) | NewNode::Block(_) => return Err(Errno::EPERM),
        }
        added(self.adopt(name, started, (mode, uid, gid))?)
    }
    fn create_unnamed(&self, _cx: &dyn Caller, mode: u32, uid: u32, gid: u32) -> Result<InodeRef> {
        self.writable()?;
        let fd = host::create_unnamed(&*self.dir_fd()?, mode)?;
        self.own(&fd, (mode, uid, gid))?;
        let attr = host::stat(&fd)?;
        Ok(Node::unnamed(&self.this()?, attr, fd))
    }
    fn link(&self, _cx: &dyn Caller, name: &[u8], target: &InodeRef) -> Result<()> {
        self.writable()?;
        let t = Node::of(target).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&t.fs, &self.fs) {
            return Err(Errno::EXDEV);
        }
        let (dir, old) = t.place().ok_or(Errno::EPERM)?;
        let _changing = (self.changing(), t.changing());
        let unnamed = t.unnamed.lock().clone();
        if let Some(fd) = unnamed {
            let naming = self.naming();
            host::link_open(&*fd, &*self.dir_fd()?, name)?;
            t.named(&self.this()?, name);
            naming.done(&[Change::Added(name, t.key.1, t.kind)]);
            return Ok(());
        }
        t.watch.set_other_names(true);
        let naming = self.naming();
        host::link_at(&*dir.dir_fd()?, &old, &*self.dir_fd()?, name)?;
        naming.done(&[Change::Added(name, t.key.1, t.kind)]);
        Ok(())
    }
    fn unlink(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.writable()?;
        let _changing = self.changing();
        let naming = self.naming();
        host::unlink_at(&*self.dir_fd()?, name, false)?;
        naming.done(&[Change::Removed(name)]);
        Ok(())
    }
    fn rmdir(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.writable()?;
        let _changing = self.changing();
        let dir = self.dir_fd()?;
        if let Ok(a) = host::stat_at(&*dir, name) {
            let node = self.fs.nodes.read().get(&(a.dev, a.ino)).and_then(|w| w.upgrade());
            // A program that has it open will need it when it has no name any more.
            if let Some(node) = node.filter(|n| n.is_open_dir()) {
                let _ = node.dir_fd();
            }
        }
        let naming = self.naming();
        host::unlink_at(&*dir, name, true)?;
        naming.done(&[Change::Removed(name)]);
        Ok(())
    }
    fn rename(
        &self,
        _cx: &dyn Caller,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        self.writable()?;
        let to = Node::of(new_dir).ok_or(Errno::EXDEV)?;
        if !Arc::ptr_eq(&to.fs, &self.fs) {
            return Err(Errno::EXDEV);
        }
        let _changing = (self.changing(), to.changing());
        // Which object moves is known to the caller only: both are read again, unless the names say it.
        let naming = (self.naming(), to.naming());
        let moved = self.entry(name);
        host::rename_at(&*self.dir_fd()?, name, &*to.dir_fd()?, new_name, flags)?;
        // A whiteout has a number that is not known.
        let others = namei::rename::EXCHANGE | namei::rename::WHITEOUT;
        if let (Some((ino, kind)), true) = (moved, flags & others == 0) {
            naming.0.done(&[Change::Removed(name)]);
            naming.1.done(&[Change::Added(new_name, ino, kind)]);
        }
        Ok(())
    }
}

impl LinkInode for Node {
    fn link_text(&self, cx: &dyn Caller) -> Option<Vec<u8>> {
        match self.fs.mode {
            Mode::Exclusive => self.readlink(cx).ok(),
            Mode::Shared => self.target.lock().clone(),
        }
    }
    fn readlink(&self, _cx: &dyn Caller) -> Result<Vec<u8>> {
        if self.kind != S_IFLNK {
            return Err(Errno::EINVAL);
        }
        let known = self.target.lock().clone();
        if let Some(t) = known {
            return Ok(t);
        }
        let before = self.known();
        let standing = self.standing();
        let (dir, name) = self.place().ok_or(Errno::EINVAL)?;
        let dir = dir.dir_fd()?;
        let t = host::readlink_at(&*dir, &name)?;
        // It is the text of this link, not of one that took its place, if the link is afterwards what it was before.
        let stands = || standing.is_some() && self.is_certain() && standing == self.standing();
        let ours = self.fs.mode == Mode::Exclusive || stands() || {
            let a = host::stat_at(&*dir, &name)?;
            self.is(&a) && same_link(&before, &a)
        };
        self.was_read();
        let mut target = self.target.lock();
        if ours && same_link(&before, &self.known()) {
            *target = Some(t.clone());
        }
        Ok(t)
    }
}

impl Confirming for Node {
    fn told(&self) -> Option<Attr> {
        Some(self.known())
    }
    fn still_there(&self, path: &[u8], inode: &InodeRef) -> Option<Attr> {
        let node = Node::of(inode)?;
        self.asked();
        let standing = node.standing();
        let a = host::stat_below(&*self.dir_fd().ok()?, path).ok().filter(|a| node.is(a))?;
        let direct = !path.contains(&b'/');
        if direct {
            node.moved(&self.this().ok()?, path);
        }
        // The text of a link may have been read before.
        let same = node.kind != S_IFLNK || same_link(&node.known(), &a);
        let other_names = node.watch.has_other_names();
        let a = node.refresh(a, standing.filter(|_| direct));
        if !direct && other_names {
            // By which of them it was found is known when it is asked about in its directory.
            node.watch.set_other_names(true);
        }
        same.then_some(a)
    }
    fn settle(&self) {
        self.fs.settle();
    }
    fn recheck(&self, settled: bool) {
        if !self.is_dir() || self.fs.mode == Mode::Exclusive {
            return;
        }
        if !settled {
            self.fs.settle();
        }
        if self.changes().is_none() {
            // No watch tells. A caller that may not search it asks for no names in it. A request for a name would have
            // it watched.
            self.asked();
            let _ = self.current();
        }
    }
    fn epoch(&self) -> Option<u64> {
        self.epoch_now()
    }
    fn has_other_names(&self) -> bool {
        self.watch.has_other_names()
    }
    fn passed(&self) {
        self.asked();
    }
    fn changed(&self) {
        drop(self.changing());
    }
    fn watch_outside(&self, mask: u32) -> Option<OutsideWatch> {
        if self.fs.mode == Mode::Exclusive || !matches!(self.kind, S_IFREG | S_IFDIR) {
            return None;
        }
        let this: Object = self.this().ok()?;
        Some(Box::new(self.fs.home.outside.observe(&this, mask)?))
    }
    fn renamed(&self, dir: &InodeRef, name: &[u8]) {
        let _changing = self.changing();
        if let Some(dir) = Node::of(dir).and_then(|dir| dir.this().ok()) {
            self.moved(&dir, name);
        }
    }
    fn still_absent(&self, path: &[u8]) -> bool {
        self.asked();
        self.dir_fd().and_then(|fd| host::stat_below(&*fd, path)).is_err_and(|e| e == Errno::ENOENT)
    }
}

impl XattrInode for Node {
    fn as_acls(&self) -> Option<&dyn AclInode> {
        Some(self)
    }
    fn get_xattr(&self, _cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        host::get_xattr(&*self.handle()?, name)
    }
    fn set_xattr(&self, _cx: &dyn Caller, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        self.writable()?;
        changeable(name)?;
        let _changing = self.changing();
        host::set_xattr(&*self.handle()?, name, value, flags)
    }
    fn list_xattr(&self, _cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        match self.handle() {
            Ok(fd) => host::list_xattr(&*fd),
            // What we may not open has none that we could show.
            Err(Errno::EOPNOTSUPP | Errno::EACCES) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
    fn chown_drops_capabilities(&self) -> bool {
        true
    }
    fn remove_xattr(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.writable()?;
        changeable(name)?;
        let _changing = self.changing();
        host::remove_xattr(&*self.handle()?, name)
    }
}

/// Only `user.` attributes of the host's files may be changed: to the others the host's kernel or its security modules give
/// a meaning.
fn changeable(name: &[u8]) -> Result<()> {
    match name {
        _ if name.starts_with(b"user.") => Ok(()),
        _ if name.starts_with(b"system.") => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EPERM),
    }
}
