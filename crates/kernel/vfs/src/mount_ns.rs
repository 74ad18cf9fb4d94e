//! Mount namespaces: the tree of mounts a task sees, and the calls that
//! change it. See mount(2), umount2(2), pivot_root(2), mount_namespaces(7).
//!
//! All changes happen under one lock per namespace (rank MOUNTS). Paths were
//! resolved and privileges checked by the caller. Propagation types are kept
//! and shown, but events are not passed between namespaces.

use crate::caller::Caller;
use crate::dentry::Dentry;
use crate::mount::{Mount, MountFlags, Propagation, SuperBlock};
use crate::path::Path;
use crate::quota::{Charge, Kind};
use crate::state::Vfs;
use abi::{Errno, Result};
use ranked::RwLock;
use ranked::rank;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use user_ns::UserNamespace;
use wait::{Events, WaitQueue};

static NEXT_PEER: AtomicU32 = AtomicU32::new(1);
/// /proc/sys/fs/mount-max: mounts of one namespace.
const MOUNT_MAX: usize = 100_000;

/// A mount namespace.
pub struct MountNs {
    /// Inode number of /proc/PID/ns/mnt.
    pub id: u64,
    user_ns: Arc<UserNamespace>,
    root: RwLock<Arc<Mount>>,
    /// Changes are made under this lock.
    change: ranked::Mutex<Count, { rank::MOUNTS }>,
    /// Notified on every change (poll on /proc/PID/mounts).
    pub changed: WaitQueue,
}

/// A copied namespace, and which mount, by its id, became which.
pub type Copied = (Arc<MountNs>, HashMap<u32, Arc<Mount>>);

/// How many mounts a namespace has, and what a copy is charged for them.
struct Count {
    mounts: usize,
    charge: Option<Charge>,
    _namespace: Option<Charge>,
}

impl Count {
    /// Counts `more` mounts; ENOSPC.
    fn grow(&mut self, more: usize) -> Result<()> {
        let now = self.mounts + more;
        if now > MOUNT_MAX || self.charge.as_mut().is_some_and(|c| !c.resize(now as u64)) {
            return Err(Errno::ENOSPC);
        }
        self.mounts = now;
        Ok(())
    }

    /// A mount has gone.
    fn shrink(&mut self) {
        self.mounts -= 1;
        if let Some(c) = &mut self.charge {
            c.resize(self.mounts as u64);
        }
    }
}

impl MountNs {
    /// A kernel's first namespace or that of a container, with this mount at its top.
    pub fn new(vfs: &Vfs, root: Arc<Mount>) -> Arc<MountNs> {
        MountNs::charged(vfs, vfs.user_ns.clone(), root, None)
    }

    /// A namespace, and charges for it and for its mounts.
    fn charged(
        vfs: &Vfs,
        user_ns: Arc<UserNamespace>,
        root: Arc<Mount>,
        charges: Option<(Charge, Charge)>,
    ) -> Arc<MountNs> {
        let (namespace, charge) = charges.unzip();
        let id = vfs.next_mount_ns();
        let mounts = root.tree();
        mounts.iter().for_each(|m| m.set_ns(id));
        Arc::new(MountNs {
            id,
            user_ns,
            root: RwLock::new(root),
            change: ranked::Mutex::new(Count { mounts: mounts.len(), charge, _namespace: namespace }),
            changed: WaitQueue::new(),
        })
    }

    /// Where the capability to mount in it is held.
    pub fn user_ns(&self) -> &UserNamespace {
        &self.user_ns
    }

    /// The topmost place.
    pub fn root(&self) -> Path {
        self.root.read().root_path().cross_mounts()
    }

    /// Every mount, parents before children.
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        let root = self.root.read().clone();
        let mut v = root.tree();
        v.sort_by_key(|m| m.id);
        v
    }

    fn contains(&self, m: &Mount) -> bool {
        m.ns() == self.id
    }

    fn done(&self) {
        self.changed.notify(Events::PRI | Events::ERR);
    }

    /// Mounts a file system at `at`.
    pub fn mount(
        &self,
        at: &Path,
        sb: Arc<SuperBlock>,
        flags: MountFlags,
        source: &[u8],
    ) -> Result<Arc<Mount>> {
        let root = sb.root.clone();
        let m = Mount::new(sb, root, flags, source);
        self.add(at, &m)?;
        Ok(m)
    }

    /// Attaches a prepared mount (and what sits on it) at `at`.
    pub fn add(&self, at: &Path, m: &Arc<Mount>) -> Result<()> {
        let mut count = self.change.lock();
        let at = at.clone().cross_mounts();
        if at.dentry.is_unlinked() || !at.inode().takes_mounts() {
            return Err(Errno::ENOENT);
        }
        if !self.contains(&at.mount) {
            return Err(Errno::EINVAL);
        }
        if m.root.is_dir() != at.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let more = m.tree();
        count.grow(more.len())?;
        more.iter().for_each(|m| m.set_ns(self.id));
        m.attach_at(&at);
        self.done();
        Ok(())
    }

    /// Bind mount of `from` at `at`; with `recursive`, of all mounts below as well.
    pub fn bind(&self, from: &Path, at: &Path, recursive: bool) -> Result<Arc<Mount>> {
        if from.mount.propagation() == Propagation::Unbindable {
            return Err(Errno::EINVAL);
        }
        let copy = clone_tree(&from.mount, &from.dentry, recursive, false, &mut HashMap::new());
        self.add(at, &copy)?;
        Ok(copy)
    }

    /// Moves a mount (`from` is its root) to `at`.
    pub fn move_mount(&self, from: &Path, at: &Path) -> Result<()> {
        let _g = self.change.lock();
        let m = &from.mount;
        if !Arc::ptr_eq(&from.dentry, &m.root) || !m.is_attached() || !self.contains(m) {
            return Err(Errno::EINVAL);
        }
        let at = at.clone().cross_mounts();
        if at.dentry.is_unlinked() || !at.inode().takes_mounts() {
            return Err(Errno::ENOENT);
        }
        // Another namespace counts its own mounts, and has a lock of its own: what is moved there at the same time could make a
        // loop.
        if !self.contains(&at.mount) || at.is_dir() != m.root.is_dir() {
            return Err(Errno::EINVAL);
        }
        let mut p = at.mount.clone();
        loop {
            if Arc::ptr_eq(&p, m) {
                return Err(Errno::ELOOP);
            }
            match p.mountpoint() {
                Some(up) => p = up.mount,
                None => break,
            }
        }
        m.detach();
        m.attach_at(&at);
        self.done();
        Ok(())
    }

    /// Unmounts the mount whose root `at` is. With `detach`, at once whatever uses it (MNT_DETACH).
    /// Takes the path so that its own reference does not make the mount look busy.
    pub fn umount(&self, at: Path, detach: bool) -> Result<()> {
        let mut count = self.change.lock();
        let m = at.mount.clone();
        if !Arc::ptr_eq(&at.dentry, &m.root) || !self.contains(&m) {
            return Err(Errno::EINVAL);
        }
        drop(at);
        if !m.is_attached() {
            // The namespace's own root: only its children could go.
            return Err(if detach { Errno::EINVAL } else { Errno::EBUSY });
        }
        if !detach {
            // One reference in the parent's table, one here.
            if !m.children().is_empty() || Arc::strong_count(&m) > 2 {
                return Err(Errno::EBUSY);
            }
            m.detach();
            m.set_ns(0);
            count.shrink();
        } else {
            for x in m.tree().iter().rev() {
                x.detach();
                x.set_ns(0);
                count.shrink();
            }
        }
        self.done();
        Ok(())
    }

    /// Replaces the flags of one mount.
    pub fn remount(&self, m: &Arc<Mount>, flags: MountFlags) {
        let _g = self.change.lock();
        m.set_flags(flags);
        self.done();
    }

    /// Sets the propagation type of a mount, or of the whole tree below it.
    pub fn propagate(&self, m: &Arc<Mount>, kind: Propagation, recursive: bool) {
        let _g = self.change.lock();
        for x in if recursive { m.tree() } else { vec![m.clone()] } {
            let p = match (kind, x.propagation()) {
                (Propagation::Shared(_), old @ Propagation::Shared(_)) => old,
                (Propagation::Shared(_), _) => Propagation::Shared(NEXT_PEER.fetch_add(1, Ordering::Relaxed)),
                (Propagation::Slave(_), Propagation::Shared(peer) | Propagation::Slave(peer)) => {
                    Propagation::Slave(peer)
                }
                (Propagation::Slave(_), _) => Propagation::Private,
                (k, _) => k,
            };
            x.set_propagation(p);
        }
        self.done();
    }

    /// pivot_root(2): `new_root` becomes the top, the old top moves to `put_old`. The caller
    /// afterwards moves the root and working directory of every task in the namespace.
    pub fn pivot_root(&self, new_root: &Path, put_old: &Path, old_root: &Path) -> Result<()> {
        let _g = self.change.lock();
        let new = &new_root.mount;
        let old = &old_root.mount;
        if Arc::ptr_eq(new, old) || Arc::ptr_eq(&put_old.mount, old) {
            return Err(Errno::EBUSY);
        }
        if !Arc::ptr_eq(&new_root.dentry, &new.root) || !Arc::ptr_eq(&old_root.dentry, &old.root) {
            return Err(Errno::EINVAL);
        }
        if !new.is_attached() || !self.contains(new) || !put_old.reachable_from(new_root) {
            return Err(Errno::EINVAL);
        }
        if !new_root.reachable_from(old_root) {
            return Err(Errno::EINVAL);
        }
        let above = old.mountpoint();
        new.detach();
        match above {
            Some(point) => {
                old.detach();
                new.attach_at(&point);
            }
            None => *self.root.write() = new.clone(),
        }
        old.attach_at(&put_old.clone().cross_mounts());
        self.done();
        Ok(())
    }

    /// A copy (CLONE_NEWNS), and which mount became which. ENOSPC when there are too many namespaces or mounts.
    pub fn copy(&self, cx: &dyn Caller) -> Result<Copied> {
        let count = self.change.lock();
        let user = cx.quotas().account(cx.creds().uid);
        let charge = |kind, n| user.charge(kind, n).ok_or(Errno::ENOSPC);
        let charges = (charge(Kind::MountNamespaces, 1)?, charge(Kind::Mounts, count.mounts as u64)?);
        let mut map = HashMap::new();
        let root = self.root.read().clone();
        let top = clone_tree(&root, &root.root, true, true, &mut map);
        Ok((MountNs::charged(cx.vfs(), cx.creds().user_ns.clone(), top, Some(charges)), map))
    }
}

/// Copies a mount as seen from `root`, with the mounts below it.
fn clone_tree(
    m: &Arc<Mount>,
    root: &Arc<Dentry>,
    recursive: bool,
    unbindable: bool,
    map: &mut HashMap<u32, Arc<Mount>>,
) -> Arc<Mount> {
    let one = |m: &Arc<Mount>, root: &Arc<Dentry>| {
        let c = Mount::new(m.sb.clone(), root.clone(), m.flags(), &m.source);
        c.set_propagation(m.propagation());
        c
    };
    let top = one(m, root);
    map.insert(m.id, top.clone());
    let mut todo = if recursive { vec![(m.clone(), top.clone())] } else { Vec::new() };
    while let Some((from, to)) = todo.pop() {
        for c in from.children() {
            let Some(point) = c.mountpoint() else { continue };
            let outside = Arc::ptr_eq(&from, m) && !point.dentry.is_below(root);
            if outside || c.propagation() == Propagation::Unbindable && !unbindable {
                continue;
            }
            let copy = one(&c, &c.root);
            copy.attach_at(&Path { mount: to.clone(), dentry: point.dentry });
            map.insert(c.id, copy.clone());
            todo.push((c, copy));
        }
    }
    top
}
