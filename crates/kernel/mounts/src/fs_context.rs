//! A task's view of the tree: root, working directory, mount namespace, umask.
//! Shared between tasks with CLONE_FS.

use crate::mount_ns::MountNs;
use abi::Result;
use arc_swap::{ArcSwap, Guard};
use lock_order::{Mutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use user_ns::UserNamespace;
use vfs::in_use::{InUse, Shared, Users};
use vfs::mount::{Mount, Path};
use vfs::{Caller, Dentry, Hold, Internal};

/// A snapshot of a view; immutable.
#[derive(Clone)]
pub struct FsView {
    /// Where absolute paths start and `..` ends.
    pub root: Path,
    /// Where relative paths start.
    pub cwd: Path,
    /// The mounts it sees.
    pub ns: Arc<MountNs>,
    /// A path led to an object that was not there any more: what is known of names in file systems that others change does not
    /// count.
    pub anew: bool,
}

impl FsView {
    /// With root and working directory at one place.
    pub fn at(place: Path, ns: Arc<MountNs>) -> FsView {
        FsView { root: place.clone(), cwd: place, ns, anew: false }
    }

    fn places(&self) -> [&Path; 2] {
        [&self.root, &self.cwd]
    }
}

/// A use of a directory as root or working directory.
struct UsedDirectory {
    dentry: Arc<Dentry>,
    _mount: InUse<Mount>,
    /// Keeps it within reach, whatever becomes of its names.
    held: Option<Hold>,
}

impl UsedDirectory {
    /// `before`: what was used until now, which may have held the same directory.
    fn new(place: &Path, before: &[UsedDirectory]) -> UsedDirectory {
        let known = before.iter().find(|used| Arc::ptr_eq(&used.dentry, &place.dentry));
        let held = match known {
            Some(used) => used.held.clone(),
            // One that is not within reach is looked for by its name.
            None => place.inode().hold().ok().flatten(),
        };
        UsedDirectory { dentry: place.dentry.clone(), _mount: InUse::new(place.mount.clone()), held }
    }
}

/// A view in use, see [`FsContext::view`].
pub type View = Guard<Arc<FsView>>;

/// The view of one task or of several. Lock: a leaf.
pub struct FsContext {
    view: ArcSwap<FsView>,
    /// Root and working directory. Held during a change, of which there is one at a time.
    used: Mutex<[UsedDirectory; 2], { rank::FS_CONTEXT }>,
    umask: AtomicU32,
    users: Users,
}

impl Shared for FsContext {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl FsContext {
    /// A view with root and working directory at the top of a namespace.
    pub fn new(ns: Arc<MountNs>) -> Arc<FsContext> {
        let root = ns.root();
        FsContext::with_view(FsView::at(root, ns), 0o022)
    }

    /// A given view.
    pub fn with_view(view: FsView, umask: u32) -> Arc<FsContext> {
        FsContext::using(view, umask, &[])
    }

    fn using(view: FsView, umask: u32, before: &[UsedDirectory]) -> Arc<FsContext> {
        Arc::new(FsContext {
            used: Mutex::new(view.places().map(|place| UsedDirectory::new(place, before))),
            view: ArcSwap::from_pointee(view),
            umask: AtomicU32::new(umask),
            users: Users::default(),
        })
    }

    /// The present state; it does not change while it is in use. To be kept for the length of a call: threads that ask
    /// do not disturb each other as long as each has few.
    pub fn view(&self) -> View {
        self.view.load()
    }

    /// File mode creation mask.
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets the mask; returns the old one.
    pub fn set_umask(&self, m: u32) -> u32 {
        self.umask.swap(m & 0o777, Ordering::Relaxed)
    }

    /// Changes the view.
    pub fn update(&self, f: impl FnOnce(&mut FsView)) {
        let mut used = self.used.lock();
        let mut new = FsView::clone(&self.view.load());
        f(&mut new);
        let now = new.places().map(|place| UsedDirectory::new(place, &*used));
        let old = std::mem::replace(&mut *used, now);
        self.view.store(Arc::new(new));
        drop(used);
        // The last reference to a mount may go with it.
        drop(old);
    }

    /// chdir(2) to a directory found before.
    pub fn set_cwd(&self, p: Path) {
        self.update(|v| v.cwd = p);
    }

    /// chroot(2) to a directory found before.
    pub fn set_root(&self, p: Path) {
        self.update(|v| v.root = p);
    }

    /// Enters another mount namespace, at its top (setns(2)).
    pub fn enter_mounts(&self, ns: &Arc<MountNs>) {
        let root = ns.root();
        self.update(|v| *v = FsView::at(root, ns.clone()));
    }

    /// Whether its root is not that of its mount namespace.
    pub fn is_chrooted(&self) -> bool {
        let view = self.view();
        view.root != view.ns.root()
    }

    /// A copy of its own (fork without CLONE_FS, unshare).
    pub fn fork_copy(&self) -> Arc<FsContext> {
        let used = self.used.lock();
        FsContext::using(FsView::clone(&self.view()), self.umask(), &*used)
    }

    /// Enters a copy of the mount namespace, owned by `user_ns` (CLONE_NEWNS): root and cwd move to the copied mounts. ENOSPC.
    pub fn unshare_mounts(&self, cx: &dyn Caller, user_ns: &Arc<UserNamespace>) -> Result<()> {
        let (ns, map) = self.view().ns.copy(cx, user_ns)?;
        self.update(|v| {
            for p in [&mut v.root, &mut v.cwd] {
                if let Some(m) = map.get(&p.mount.unique_id()) {
                    p.mount = m.clone();
                }
            }
            v.ns = ns;
        });
        Ok(())
    }
}

/// A caller with a root, a working directory and mounts.
pub trait PathCaller: Caller {
    /// The caller's view of the tree; none for the kernel itself.
    fn fs_context(&self) -> Option<Arc<FsContext>>;
}

impl PathCaller for Internal {
    fn fs_context(&self) -> Option<Arc<FsContext>> {
        None
    }
}
