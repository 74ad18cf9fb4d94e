//! The inode operations.

use crate::dir::Dir;
use crate::fifo::Fifo;
use crate::file::{File, lost_set_id};
use crate::fs::Mode;
use crate::node::{Change, ChangeCounts, Node, ahead, same_link};
use crate::outside::{Object, Observed};
use crate::unix::{self, Fresh, Named, TreeSockets};
use crate::watches::Coherence;
use abi::stat::{Attr, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use abi::{Errno, NAME_MAX, Result};
use caller::Outcome;
use hostsys::fanotify::{Handle, Reports};
use hostsys::fs::{self as host, Access};
use hosttree::{Changes, Directory, Kind, Rights, SetTime, Source, Target};
use lock_order::Mutex;
use rights::Perm;
use rights::file_caps::XATTR as FILE_CAPS;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use vfs::attach::Attachments;
use vfs::notify::OutsideWatch;
use vfs::{
    AclInode, Caller, Confirming, DirInode, DirectoryFile, FileOps, FileSystem, Hold, Inode, InodeRef,
    LinkInode, NewNode, OutsideName, OutsideSocket, SetAttr, SpecialInode, TimeSet, XattrInode,
};
use wait::WaitQueue;

/// How often a directory and something else may take each other's place while one name is looked up.
const EXCHANGES: usize = 16;

/// What may be told of an object when its attributes change, or when it is a directory.
const ATTRIBUTES: u64 = libc::FAN_ATTRIB | libc::FAN_MODIFY | libc::FAN_ONDIR | libc::FAN_EVENT_ON_CHILD;

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
    pub(crate) fn fd_in_use(&self) -> Option<Arc<OwnedFd>> {
        let held = self.held.get();
        held.or_else(|| self.warm_fd())
    }

    /// Calls `f` with the object as the target of a call about extended attributes, and the directory to make it from. EOPNOTSUPP
    /// for what has none.
    pub(crate) fn target<R>(&self, f: impl FnOnce(&dyn Directory, Target<'_>) -> Result<R>) -> Result<R> {
        if let Some(fd) = self.fd_in_use() {
            return f(&*self.fs.top, Target::Open(&fd));
        }
        let top = &*self.fs.top;
        match self.kind {
            S_IFREG if self.fs.mode == Mode::Exclusive => f(top, Target::Open(&*self.read_fd()?)),
            // One question in place of two.
            S_IFREG if top.is_another_process() && self.place_within_reach().is_none() => self.named(f),
            S_IFREG => f(top, Target::Open(&self.open(Access::Read)?)),
            S_IFDIR => f(&*self.dir()?, Target::This),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Makes a call that changes the object's attributes.
    pub(crate) fn changing_attributes<R>(&self, call: impl FnOnce() -> Result<R>) -> Result<R> {
        self.changing_told(ATTRIBUTES, call)
    }

    /// The same; `mask` (FAN_*): what may be told of it.
    fn changing_told<R>(&self, mask: u64, call: impl FnOnce() -> Result<R>) -> Result<R> {
        let place = self.place();
        let acting = place.as_ref().map(|(dir, name)| dir.acting(name, mask, Some(self.key)));
        let done = call()?;
        if let Some(acting) = acting {
            acting.done();
        }
        Ok(done)
    }

    /// The same by its name, which the root of a tree does not have.
    fn named<R>(&self, f: impl FnOnce(&dyn Directory, Target<'_>) -> Result<R>) -> Result<R> {
        match self.place() {
            Some((dir, name)) => f(&*dir.dir()?, Target::Named { name: &name, key: self.key }),
            None => f(&*self.fs.top, Target::This),
        }
    }

    /// The node of a regular file that was just made and is open for reading and writing; the first open(2) takes the descriptor.
    fn adopt_open(&self, name: &[u8], made: (OwnedFd, Attr), before: &ChangeCounts) -> Result<Arc<Node>> {
        let (fd, attr) = made;
        let dir = self.this()?;
        let node = match Node::made(&dir, name, attr, before) {
            Some(node) => node,
            None => {
                let before = self.noted();
                Node::found(&dir, name, self.dir()?.look(name)?, before)
            }
        };
        node.keep_made(fd);
        Ok(node)
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

/// What may be told of changes. The host tells of a change of one time as of a read, which is not reported, or a write: other events
/// at that moment are another process's.
fn told_of(changes: &Changes) -> u64 {
    let rights = changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some();
    let times = changes.atime != SetTime::Keep && changes.mtime != SetTime::Keep;
    match (rights || times, changes.mtime) {
        (true, _) => ATTRIBUTES,
        (false, SetTime::Keep) => 0,
        (false, _) => ATTRIBUTES & !libc::FAN_ATTRIB,
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
        self.fs.check_owner(set.uid, set.gid)?;
        let held = self.fd_in_use();
        let rights = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        let before = self.standing();
        let changing = if rights { self.changing() } else { self.writing() };
        let mut kept = None;
        if let Some(size) = set.size {
            // A caller that may keep set-ID bits keeps them: the host takes them away, as after a write.
            let set_id = self.known().mode & 0o6000 != 0;
            let mut truncate = |fd: &OwnedFd| {
                let before = if set_id { host::stat(fd).ok() } else { None };
                host::truncate(fd, size)?;
                kept = before.and_then(|before| lost_set_id(&before, &host::stat(fd).ok()?));
                Ok::<_, Errno>(())
            };
            match &held {
                // The descriptor in use may be read-only: truncate through one that is not.
                Some(fd) if truncate(fd).is_ok() => {}
                _ => truncate(&self.open(Access::Write)?)?,
            }
        }
        let changes = Changes {
            mode: set.mode.or(kept),
            uid: set.uid,
            gid: set.gid,
            atime: time(set.atime),
            mtime: time(set.mtime),
            size: None,
        };
        if changes != Changes::default() {
            self.changing_told(told_of(&changes), || match &held {
                Some(fd) if self.kind == S_IFREG => self.fs.top.set_attr(Target::Open(fd), &changes),
                _ => match self.placed(|dir, target| dir.set_attr(target, &changes)) {
                    Err(Errno::ENOSYS) if self.kind == S_IFREG => {
                        self.fs.top.set_attr(Target::Open(&self.open(Access::Read)?), &changes)
                    }
                    done => done,
                },
            })?;
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
            S_IFDIR => Ok(Arc::new(DirectoryFile(Dir::new(self.this()?)?))),
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
                    // It may be sealed by its mode, and a lease or a lock belongs to a host description.
                    let own = self.fs.top.open_again(&fd, access).map(Arc::new);
                    let exact = own.is_ok() || access == Access::ReadWrite;
                    let fd = own.unwrap_or(fd);
                    self.held.add(&fd);
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
                self.held.add(&fd);
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

impl Node {
    fn observed<R>(&self, f: impl FnOnce(&dyn Directory, Target<'_>) -> Result<R>) -> Result<R> {
        if self.is_dir() { f(&*self.dir()?, Target::This) } else { self.named(f) }
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
    fn mark(&self, group: &Reports, mask: u64) -> Result<Handle> {
        self.observed(|dir, target| dir.mark(target, group.as_fd(), mask))
    }
    fn unmark(&self, group: &Reports, mask: u64) -> Result<()> {
        self.observed(|dir, target| dir.unmark(target, group.as_fd(), mask))
    }
    fn has(&self, name: &[u8]) -> bool {
        self.dir().and_then(|dir| dir.look(name)).is_ok()
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
        let sockets = self.fs.outward.sockets.as_ref();
        let sockets = sockets.filter(|sockets| sockets.allowed.open && self.kind == S_IFSOCK)?;
        // The other side of a connection sees the gofer's user, which is the container's root. That of datagrams sees none, or
        // the sentry's user by SO_PASSCRED, and the socket's mode decides.
        let creds = cx.creds();
        if kind != libc::SOCK_DGRAM && (creds.euid != 0 || creds.fsuid != 0) {
            return Some(Err(Errno::EACCES));
        }
        Some(self.connect_outside(sockets, kind, queue))
    }
    fn named_outside(&self, queue: &WaitQueue) -> Option<Result<Arc<dyn OutsideName>>> {
        let fd = Node::attachments(self).get::<Fresh>()?.0.lock().take()?;
        let named = |poller| Ok(Arc::new(Named::new(fd, poller, queue)?) as Arc<dyn OutsideName>);
        Some(self.fs.home.poller().and_then(named))
    }
}

impl Node {
    /// The node of an inode; `None` for one of another file system.
    fn of(inode: &InodeRef) -> Option<&Node> {
        inode.as_any().downcast_ref()
    }

    /// Whether programs outside reach the sockets that programs inside bind in this directory.
    fn binds_outside(&self) -> bool {
        self.fs.outward.sockets.as_ref().is_some_and(|sockets| sockets.allowed.create)
    }

    /// Makes a name of a socket of the host in this directory.
    fn bind_outside(&self, name: &[u8], kind: i32) -> Result<OwnedFd> {
        let sockets = self.fs.outward.sockets.as_ref().ok_or(Errno::EOPNOTSUPP)?;
        let dir = self.path()?;
        let path = if dir.is_empty() { name.to_vec() } else { [&dir, &b"/"[..], name].concat() };
        unix::bind(sockets, &path, kind)
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
    fn looks_ahead(&self) -> bool {
        self.fs.top.is_another_process()
    }
    fn look_ahead(&self, path: &[u8]) {
        if path.split(|c| *c == b'/').next().is_some_and(|name| self.is_absent(name)) {
            return;
        }
        if !path.contains(&b'/') && self.prefetch(path) {
            return;
        }
        let before = self.noted();
        if let Ok(dir) = self.dir()
            && let Some((own, attrs)) = dir.look_along(path)
        {
            ahead::learn(&self.fs, self.key, before, path, own, &attrs);
        }
    }
    fn looked(&self) {
        ahead::forget();
    }
    fn lookup(&self, _cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.asked();
        if self.is_absent(name) {
            return Err(Errno::ENOENT);
        }
        let mut place = None;
        let (found, before) = match ahead::take(self, name) {
            Some(told) => told,
            None => match self.take_prefetched(name) {
                Some((told, before, kept)) => {
                    place = kept;
                    (told, before)
                }
                None => {
                    let before = self.noted();
                    (self.dir()?.look(name), before)
                }
            },
        };
        if self.is_unsure() {
            let _ = self.current();
        }
        let node = Node::found(&self.this()?, name, found?, before);
        if let Some(place) = place {
            node.keep_place(place);
        }
        Ok(node)
    }
    fn lookup_anew(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        if self.fs.mode == Mode::Exclusive || name.len() > NAME_MAX {
            return self.lookup(cx, name);
        }
        let before = self.noted();
        let (this, here) = (self.this()?, self.dir()?);
        for _ in 0..EXCHANGES {
            match here.walk(name) {
                Ok((dir, _)) => {
                    let node = Node::found(&this, name, dir.attr()?, before);
                    node.keep_dir_within_reach(dir);
                    return Ok(node);
                }
                Err(Errno::ENOTDIR | Errno::ELOOP) => {}
                Err(error) => return Err(error),
            }
            let (place, told) = here.open(name, Access::Place)?;
            let attr = Attr { btime: told.btime, ..self.fs.top.attr_open(&place)? };
            if (attr.dev, attr.ino) != (told.dev, told.ino) {
                // A gofer of others: its descriptors stand for nothing but content.
                return self.lookup(cx, name);
            }
            if !attr.is_dir() {
                let node = Node::found(&this, name, attr, before);
                node.keep_within_reach(place);
                return Ok(node);
            }
        }
        Err(Errno::ESTALE)
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
        self.fs.check_owner(Some(uid), Some(gid))?;
        let _changing = self.changing();
        let started = host::now();
        let dir = self.dir()?;
        let naming = self.naming();
        let added = |new: Arc<Node>| {
            naming.done(&[Change::Added(name, new.key.1, new.kind)]);
            Ok(new as InodeRef)
        };
        let rights = Rights { mode, uid, gid };
        let acting = self.acting(name, libc::FAN_CREATE | ATTRIBUTES, None);
        let before = self.noted();
        let made = match node {
            NewNode::Regular => {
                let made = dir.create(name, rights)?;
                acting.done();
                return added(self.adopt_open(name, made, &before)?);
            }
            NewNode::BoundSocket(kind) if self.binds_outside() => {
                let bound = self.bind_outside(name, *kind)?;
                // The gofer came by a path; the directory may have another place by now.
                if dir.look(name)?.file_type() != S_IFSOCK {
                    return Err(Errno::ESTALE);
                }
                let new = Node::found(&self.this()?, name, dir.adopt(name, started, rights)?, before);
                new.attachments().set(Some(Arc::new(Fresh(Mutex::new(Some(bound))))));
                return added(new);
            }
            NewNode::Directory => Kind::Directory,
            NewNode::Fifo => Kind::Fifo,
            NewNode::Socket | NewNode::BoundSocket(_) => Kind::Socket,
            NewNode::Symlink(text) => Kind::Symlink(text),
            NewNode::Char(0) => Kind::Whiteout,
            // A device made on the host would be the host's device.
            NewNode::Char(_) | NewNode::Block(_) => return Err(Errno::EPERM),
        };
        let attr = dir.make(name, made, rights)?;
        acting.done();
        let new = Node::found(&self.this()?, name, attr, before);
        new.expects_questions();
        added(new)
    }
    fn create_unnamed(&self, _cx: &dyn Caller, mode: u32, uid: u32, gid: u32) -> Result<InodeRef> {
        self.writable()?;
        self.fs.check_owner(Some(uid), Some(gid))?;
        let (fd, attr) = self.dir()?.create_unnamed(Rights { mode, uid, gid })?;
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
            let acting = self.acting(name, libc::FAN_CREATE | ATTRIBUTES, Some(t.key));
            self.dir()?.link(Source::Open(&fd), name)?;
            acting.done();
            t.got_name(&self.this()?, name);
            naming.done(&[Change::Added(name, t.key.1, t.kind)]);
            return Ok(());
        }
        t.watch.set_other_names(true);
        let naming = self.naming();
        let acting = self.acting(name, libc::FAN_CREATE | ATTRIBUTES, Some(t.key));
        self.dir()?.link(Source::Named(&*dir.dir()?, &old), name)?;
        acting.done();
        naming.done(&[Change::Added(name, t.key.1, t.kind)]);
        Ok(())
    }
    fn unlink(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.writable()?;
        let _changing = self.changing();
        self.keep_watched(name);
        let naming = self.naming();
        let acting = self.acting(name, libc::FAN_DELETE | ATTRIBUTES, self.acted_on(name));
        self.dir()?.unlink(name, false)?;
        acting.done();
        naming.done(&[Change::Removed(name)]);
        Ok(())
    }
    fn rmdir(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.writable()?;
        let _changing = self.changing();
        let dir = self.dir()?;
        if let Ok(a) = dir.look(name) {
            let node = self.fs.nodes.read().get(&(a.dev, a.ino)).and_then(|w| w.upgrade());
            // A program that has it open will need it when it has no name any more.
            if let Some(node) = node.filter(|n| n.is_open_dir()) {
                let _ = node.dir();
            }
        }
        let naming = self.naming();
        let acting = self.acting(name, libc::FAN_DELETE | ATTRIBUTES, self.acted_on(name));
        dir.unlink(name, true)?;
        acting.done();
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
        to.keep_watched(new_name);
        // Which object moves is known to the caller only: both are read again, unless the names say it.
        let naming = (self.naming(), to.naming());
        let moved = self.entry(name);
        let moves = libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO | libc::FAN_CREATE | ATTRIBUTES;
        let objects = (self.acted_on(name), to.acted_on(new_name));
        let acting = (self.acting(name, moves, objects.0), to.acting(new_name, moves, objects.1));
        self.dir()?.rename(name, &*to.dir()?, new_name, flags)?;
        acting.0.done();
        acting.1.done();
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
        if let Some(place) = self.place_within_reach()
            && let Ok(text) = self.fs.top.read_link_at(&place)
        {
            self.was_read();
            return Ok(text);
        }
        let (dir, name) = self.place().ok_or(Errno::EINVAL)?;
        let dir = dir.dir()?;
        // What has the name by now is no link.
        let (t, attr) = dir.read_link(&name).map_err(|e| match e {
            Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR => Errno::ESTALE,
            e => e,
        })?;
        // It is the text of this link, not of one that took its place, if the link is afterwards what it was before.
        let stands = || standing.is_some() && self.is_certain() && standing == self.standing();
        let ours = self.fs.mode == Mode::Exclusive || stands() || {
            let a = attr.map_or_else(|| dir.look(&name), Ok)?;
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
        if let Some((a, standing)) = node.told_at(self, path) {
            let same = node.kind != S_IFLNK || same_link(&node.known(), &a);
            let a = node.refresh(a, standing);
            return same.then_some(a);
        }
        let standing = node.standing();
        let a = self.dir().ok()?.look(path).ok().filter(|a| node.is(a))?;
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
    fn lost_name(&self) {
        self.changed();
        self.lost_a_name();
    }
    fn watch_outside(&self, mask: u32) -> Option<OutsideWatch> {
        if self.fs.mode == Mode::Exclusive || !matches!(self.kind, S_IFREG | S_IFDIR) {
            return None;
        }
        let this: Object = self.this().ok()?;
        Some(Box::new(self.fs.home.outside.observe(&this, mask)?))
    }
    fn hold(&self) -> Result<Option<Hold>> {
        self.hold_within_reach()
    }
    fn renamed(&self, dir: &InodeRef, name: &[u8]) {
        let _changing = self.changing();
        if let Some(dir) = Node::of(dir).and_then(|dir| dir.this().ok()) {
            self.moved(&dir, name);
        }
    }
    fn still_absent(&self, path: &[u8]) -> bool {
        self.asked();
        self.dir().and_then(|dir| dir.look(path)).is_err_and(|e| e == Errno::ENOENT)
    }
}

impl XattrInode for Node {
    fn as_acls(&self) -> Option<&dyn AclInode> {
        Some(self)
    }
    fn get_xattr(&self, _cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        self.target(|dir, target| dir.get_xattr(target, name))
    }
    fn set_xattr(&self, _cx: &dyn Caller, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        self.writable()?;
        changeable(name)?;
        let _changing = self.changing();
        self.changing_attributes(|| self.target(|dir, target| dir.set_xattr(target, name, value, flags)))
    }
    fn list_xattr(&self, _cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        match self.target(|dir, target| dir.list_xattr(target)) {
            Ok(names) => Ok(names),
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
        self.changing_attributes(|| self.target(|dir, target| dir.remove_xattr(target, name)))
    }
}

/// Only `user.` attributes of the host's files may be changed, and the capabilities of programs: to the others the host's kernel or its
/// security modules give a meaning.
fn changeable(name: &[u8]) -> Result<()> {
    match name {
        FILE_CAPS => Ok(()),
        _ if name.starts_with(b"user.") => Ok(()),
        _ if name.starts_with(b"system.") => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EPERM),
    }
}
