//! An open file as plain data, for a checkpoint.

use super::{FileOps, OpenFile, SignalOwner, claim};
use crate::in_use::InUse;
use crate::inode::InodeRef;
use crate::mount::Path;
use abi::stat::{Attr, S_IFREG};
use abi::time::Timespec;
use abi::{Result, libc};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a file was opened, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlaceState {
    /// The mount ([`Mount::unique_id`](crate::Mount::unique_id)).
    pub mount: u64,
    /// Path in the mounted file system, without a mark for a name that is gone.
    pub path: Vec<u8>,
    /// The name is gone: only device and inode number lead to the object.
    pub unlinked: bool,
    /// What there is of an object without a name.
    #[serde(default)]
    pub gone: Option<GoneState>,
    /// The whole path, for messages.
    #[serde(default)]
    pub shown: Vec<u8>,
    /// Which object of the host it is.
    #[serde(default)]
    pub object: Option<ObjectState>,
}

/// What tells whether a name of the host leads to the same object later.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ObjectState {
    /// Type of the file (S_IFMT).
    pub kind: u32,
    /// Inode number.
    pub ino: u64,
    /// Time of birth, where its file system keeps one.
    pub born: Option<Timespec>,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of its content.
    pub mtime: Timespec,
}

impl ObjectState {
    /// The object at a place, where it is the host's.
    pub fn at(path: &Path) -> Option<ObjectState> {
        path.mount.fs().is_of_host().then(|| path.attr().ok().map(|attr| ObjectState::of(&attr))).flatten()
    }

    fn of(attr: &Attr) -> ObjectState {
        ObjectState {
            kind: attr.mode & libc::S_IFMT,
            ino: attr.ino,
            born: attr.btime,
            size: attr.size,
            mtime: attr.mtime,
        }
    }

    /// Whether an object that was found at the name is the same, or a copy that says so: of the same kind, size (of a directory it
    /// says nothing) and time of change, of which copies keep the seconds. `top`: it is the root of a mount, which the bundle
    /// names; then a directory is what the bundle says.
    pub fn is(&self, attr: &Attr, top: bool) -> bool {
        let now = ObjectState::of(attr);
        if self.kind != now.kind {
            return false;
        }
        let born_alike = match (self.born, now.born) {
            (Some(then), Some(now)) => then == now,
            _ => self.ino == now.ino,
        };
        let is_dir = self.kind == libc::S_IFDIR;
        let copy = self.mtime.sec == now.mtime.sec && (is_dir || self.size == now.size);
        born_alike || copy || is_dir && top
    }
}

/// An object without a name, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GoneState {
    /// Device and inode number.
    pub object: (u64, u64),
    /// The last component of the name that it had, or what is shown instead.
    pub name: Vec<u8>,
    /// The path of the directory that it was in; `None` for an object that was never in a tree.
    pub dir: Option<Vec<u8>>,
    /// linkat(2) may give it a name (O_TMPFILE).
    pub linkable: bool,
}

impl PlaceState {
    /// As plain data.
    pub fn of(path: &Path) -> PlaceState {
        let gone = |attr: abi::stat::Attr| {
            let (dir, name) = path.dentry.place();
            GoneState {
                object: (attr.dev, attr.ino),
                name: name.to_vec(),
                dir: dir.map(|dir| Path::display_in_fs(&dir)),
                linkable: path.dentry.linkable.load(Ordering::Relaxed),
            }
        };
        let unlinked = path.dentry.is_unlinked();
        PlaceState {
            mount: path.mount.unique_id(),
            path: Path::display_in_fs(&path.dentry),
            unlinked,
            gone: path.attr().ok().filter(|_| unlinked).map(gone),
            shown: path.display_absolute(),
            object: ObjectState::at(path).filter(|_| !unlinked),
        }
    }
}

/// An open file as plain data. Its object (pipe, socket, inode) is kept by itself; `place`, `inode` and `link` say
/// which one it is. Locks and leases are kept with the inode. The restoring code makes the subscriptions of `async_fd` and `urgent` anew.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OpenFileState {
    /// Identity ([`OpenFile::id`]), by which tables, queues, locks and epolls refer to it. A restored file has another.
    pub id: u64,
    /// Where it was opened; `None` for a file without a path.
    pub place: Option<PlaceState>,
    /// Device and inode number.
    pub inode: Option<(u64, u64)>,
    /// What /proc/PID/fd shows of a file without a path: `pipe:[7]`, `anon_inode:[eventpoll]`.
    pub link: Option<String>,
    /// Access mode and status flags.
    pub flags: i32,
    /// File position.
    pub position: u64,
    /// Opening it made the file.
    pub created: bool,
    /// F_SETOWN and F_SETSIG.
    pub owner: SignalOwner,
    /// What its opener's Landlock domain denies (see [`denied`](super::denied)).
    #[serde(default)]
    pub denied: u8,
    /// Watches are not told of what is done with it.
    #[serde(default)]
    pub silent: bool,
    /// It was opened to be executed, so no process may open it for writing.
    #[serde(default)]
    pub runs: bool,
    /// The descriptor through which O_ASYNC was set, while it is set.
    #[serde(default)]
    pub async_fd: Option<i32>,
    /// Its owner gets SIGURG.
    #[serde(default)]
    pub urgent: bool,
}

impl OpenFile {
    /// As plain data.
    pub fn state(&self) -> OpenFileState {
        let place = self.path.as_ref().map(PlaceState::of);
        let attr = self.inode.as_ref().and_then(|inode| inode.attr().ok());
        // One lock after the other: a guard would last as long as the literal.
        let position = *self.pos.lock();
        let owner = *self.owner.lock();
        let async_fd = self.fasync.lock().as_ref().map(|one| one.fd);
        let urgent = self.urgent.lock().is_some();
        OpenFileState {
            id: self.id,
            place,
            inode: attr.map(|attr| (attr.dev, attr.ino)),
            link: self.ops.link_name(),
            flags: self.flags(),
            position,
            created: self.created(),
            owner,
            denied: self.denied.load(Ordering::Relaxed),
            silent: self.is_silent(),
            runs: self.claim.as_ref().is_some_and(claim::Claim::runs),
            async_fd,
            urgent,
        }
    }

    /// Back from plain data, of the object that was found for it. It counts among the writers or readers of a regular file
    /// as an opened one does: ETXTBSY for a writer of a running program.
    pub fn restore(
        saved: &OpenFileState,
        path: Option<Path>,
        inode: Option<InodeRef>,
        ops: Arc<dyn FileOps>,
    ) -> Result<Arc<OpenFile>> {
        let access = saved.flags & libc::O_ACCMODE;
        let regular = path.as_ref().filter(|path| path.kind() == S_IFREG && saved.flags & libc::O_PATH == 0);
        let claim = match regular.map(Path::inode) {
            Some(inode) if saved.runs => claim::run(inode)?,
            Some(inode) if access != libc::O_RDONLY => claim::write(inode)?,
            Some(inode) => claim::read(inode),
            None => None,
        };
        let mount = path.as_ref().map(|path| InUse::new(path.mount.clone()));
        let file = OpenFile::holding(path, inode, ops, saved.flags, (claim, mount), super::Opener::default());
        // O_ASYNC stands for a subscription, which is made anew.
        file.flags.store(saved.flags & !libc::O_ASYNC, Ordering::Relaxed);
        *file.pos.lock() = saved.position;
        *file.owner.lock() = saved.owner;
        if saved.created {
            file.mark_created();
        }
        file.deny(saved.denied);
        if saved.silent {
            file.silence();
        }
        Ok(file)
    }
}
