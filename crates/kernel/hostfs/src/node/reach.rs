//! How an object is reached when its name may be gone, or another object's.
//!
//! An object is opened by its last known name, and compared. When the name leads to another object, there is still a
//! descriptor where something holds the object: an open file ([`super::Held`]), a descriptor by O_PATH, a working
//! directory, a mount or a watch ([`Node::hold`]), or a path that is resolved anew ([`Node::keep_within_reach`]). The gofer
//! opens it once more by that descriptor. Where nothing holds it, the answer is ESTALE, and the caller resolves its path
//! anew.
//!
//! While an object is held, the host gives its number to no other one.

use super::{Node, moved_away};
use crate::fs::Mode;
use abi::stat::{S_IFDIR, S_IFREG};
use abi::{Errno, Result};
use hostsys::fs::{self as host, Access};
use hosttree::{Directory, DirectoryRef, Target};
use lock_order::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vfs::Hold;

/// What holds an object beside its open files.
#[derive(Default)]
pub(crate) struct Reach {
    held: Mutex<HeldPlace>,
    /// A descriptor was kept for a path that was resolved anew.
    kept: AtomicBool,
    /// We have removed its only name.
    nameless: AtomicBool,
}

/// What holders of the object have: all of them the same, as long as one lives.
#[derive(Default)]
struct HeldPlace {
    object: Weak<OwnedFd>,
    directory: Option<Weak<dyn Directory>>,
}

impl Reach {
    /// A descriptor of the object may be among those that are kept for some time.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }
}

/// A descriptor is missing, not the object.
fn is_short(error: Errno) -> bool {
    matches!(error, Errno::EMFILE | Errno::ENFILE)
}

fn reads(fd: &OwnedFd) -> bool {
    host::status_flags(fd).is_ok_and(|flags| {
        flags & libc::O_PATH == 0 && matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR)
    })
}

impl Node {
    /// See [`vfs::Confirming::hold`]. Nothing holds an object when there are no descriptors left: it is then looked for by its name.
    pub fn hold_within_reach(&self) -> Result<Option<Hold>> {
        if self.fs.mode == Mode::Exclusive || self.place().is_none() {
            return Ok(None);
        }
        if let Some(fd) = self.fd_in_use().or_else(|| self.place_within_reach()) {
            // The object's own: a file that is read often is not opened again for each use.
            return Ok(Some(self.shared_hold(fd)));
        }
        let opened = match self.kind {
            S_IFDIR => self.hold_dir().map(|dir| Arc::new(dir) as Hold),
            _ => self.open(Access::Place).map(|fd| self.shared_hold(Arc::new(fd)) as Hold),
        };
        match opened {
            Ok(held) => Ok(Some(held)),
            Err(error) if is_short(error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The descriptor by which others hold the object: `fd` for the first of them. It stays within reach as long as one of them
    /// lives.
    fn shared_hold(&self, fd: Arc<OwnedFd>) -> Arc<OwnedFd> {
        let mut held = self.reach.held.lock();
        if let Some(first) = held.object.upgrade() {
            return first;
        }
        held.object = Arc::downgrade(&fd);
        fd
    }

    /// We have removed a name of the object, or given its name to another one.
    pub fn lost_a_name(&self) {
        if !self.watch.has_other_names() {
            self.reach.nameless.store(true, Ordering::Release);
        }
    }

    /// The object may have ended, and another one may have its number, made at the same tick of the host's clock.
    pub fn has_gone(&self) -> bool {
        self.reach.nameless.load(Ordering::Acquire)
            && self.held.get().is_none()
            && self.place_within_reach().is_none()
            && !(self.is_dir() && self.dir_within_reach().is_some())
    }

    /// Keeps an O_PATH descriptor of the object for some time.
    pub fn keep_within_reach(&self, place: OwnedFd) {
        self.reach.kept.store(true, Ordering::Release);
        self.fs.home.places.put(self.id, &Arc::new(place));
    }

    /// The same for a directory.
    pub fn keep_dir_within_reach(&self, dir: DirectoryRef) {
        self.fs.home.dirs.put(self.id, dir);
    }

    /// A descriptor by O_PATH that something keeps.
    pub fn place_within_reach(&self) -> Option<Arc<OwnedFd>> {
        let held = self.reach.held.lock().object.upgrade();
        held.or_else(|| self.attachments.get().and_then(|attached| attached.object()))
            .or_else(|| if self.reach.is_kept() { self.fs.home.places.get(self.id) } else { None })
    }

    /// This directory, for an open file of it.
    pub fn hold_dir(&self) -> Result<DirectoryRef> {
        let dir = self.dir()?;
        let mut held = self.reach.held.lock();
        if let Some(first) = held.directory.as_ref().and_then(Weak::upgrade) {
            return Ok(first);
        }
        held.directory = Some(Arc::downgrade(&dir));
        Ok(dir)
    }

    /// A name in this directory is about to be removed. Whether the object has others is known afterwards only by a descriptor; its
    /// watches must know.
    pub fn keep_watched(&self, name: &[u8]) {
        if !self.fs.home.outside.is_watching() {
            return;
        }
        let Some(attr) = self.dir().and_then(|dir| dir.look(name)).ok().filter(|attr| attr.nlink > 1) else {
            return;
        };
        let node = self.fs.nodes.read().get(&(attr.dev, attr.ino)).and_then(Weak::upgrade);
        if let Some(node) = node.filter(|node| !node.is_dir() && node.is(&attr))
            && let Ok(place) = node.open(Access::Place)
        {
            node.keep_within_reach(place);
        }
    }

    /// This directory, where it is open.
    pub fn dir_within_reach(&self) -> Option<DirectoryRef> {
        if let Some(dir) = self.fs.home.dirs.get(self.id) {
            return Some(dir);
        }
        self.reach.held.lock().directory.as_ref().and_then(Weak::upgrade)
    }

    /// Opens the object. ESTALE when it is not where it was found, and nothing holds it.
    pub fn open(&self, access: Access) -> Result<OwnedFd> {
        let Some((dir, name)) = self.place() else { return self.fs.top.open_self() };
        let named = dir.dir().and_then(|dir| dir.open(&name, access)).map_err(|error| match error {
            // A FIFO or a socket has the file's name by now.
            Errno::ENXIO if self.kind == S_IFREG => Errno::ESTALE,
            error => error,
        });
        match named.and_then(|(fd, attr)| self.check_same(Some(&attr)).map(|()| fd)).map_err(moved_away) {
            Err(Errno::ESTALE) => self.open_within_reach(access),
            opened => opened,
        }
    }

    fn open_within_reach(&self, access: Access) -> Result<OwnedFd> {
        let known = self.held.get().or_else(|| self.place_within_reach()).ok_or(Errno::ESTALE)?;
        match access {
            Access::Place => known.try_clone().map_err(|_| Errno::EMFILE),
            _ if self.kind != S_IFREG => Err(Errno::ESTALE),
            _ => match self.fs.top.open_again(&known, access) {
                // Without a gofer that can: for reading, a descriptor that reads will do.
                Err(Errno::ESTALE) if access == Access::Read && reads(&known) => {
                    known.try_clone().map_err(|_| Errno::EMFILE)
                }
                opened => opened,
            },
        }
    }

    /// Calls `f` with the object as the target of a change for which a descriptor by O_PATH is enough.
    pub fn placed<R>(&self, f: impl FnOnce(&dyn Directory, Target<'_>) -> Result<R>) -> Result<R> {
        if let Some(dir) = if self.is_dir() { self.dir_within_reach() } else { None } {
            return f(&*dir, Target::This);
        }
        let top = &*self.fs.top;
        if let Some(fd) = self.place_within_reach() {
            return f(top, Target::Place(&fd));
        }
        match self.place() {
            None => f(top, Target::This),
            // One question in place of two.
            Some((dir, name)) if top.is_another_process() => {
                f(&*dir.dir()?, Target::Named { name: &name, key: self.key }).map_err(moved_away)
            }
            Some(_) => f(top, Target::Place(&self.open(Access::Place)?)),
        }
    }
}
