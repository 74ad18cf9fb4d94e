//! Mount namespaces: the tree of mounts a task sees, and the calls that
//! change it. See mount(2), umount2(2), pivot_root(2), mount_namespaces(7).
//!
//! All changes happen under the lock of the kernel's mount table (rank MOUNTS). Paths were
//! resolved and privileges checked by the caller. Checks come in Linux's order.

use crate::below::Below;
use crate::change::Change;
use crate::propagate::{self, CopyKind, Tree};
use crate::umount;
use abi::{Errno, Result};
use caller::quota::{Charge, Kind};
use rights::cred::{Cap, Credentials};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use user_ns::{NamespaceCount, UserNamespace};
use vfs::dentry::Dentry;
use vfs::in_use::Shared;
use vfs::mount::{
    Mount, MountFlags, MountSet, MountTable, Origin, Path, Propagation, SbFlags, SuperBlock, peers,
};
use vfs::{Caller, Vfs};

/// A mount namespace. Its mounts, their number and the queue of changes are the [`MountSet`].
pub struct MountNs {
    set: Arc<MountSet>,
    table: Arc<MountTable>,
    counted: OnceLock<NamespaceCount>,
}

impl Deref for MountNs {
    type Target = MountSet;
    fn deref(&self) -> &MountSet {
        &self.set
    }
}

/// A copied namespace, and which mount, by its unique number, became which.
pub type Copied = (Arc<MountNs>, HashMap<u64, Arc<Mount>>);

/// How umount2(2) goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// Only those that are not in use.
    Idle,
    /// MNT_DETACH: at once, whatever uses it.
    Detach,
    /// MNT_EXPIRE: only what was marked by the same call before and not used since.
    Expire,
}

/// What move_mount(2) does with what is at the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placing {
    /// The mount goes on top.
    Above,
    /// MOVE_MOUNT_BENEATH: the mount goes below the topmost one.
    Beneath,
}

impl MountNs {
    /// A kernel's first namespace or that of a container, with this mount at its top.
    pub fn new(vfs: &Vfs, root: Arc<Mount>) -> Arc<MountNs> {
        MountNs::charged(&vfs.mounts, vfs.resources.user_ns.clone(), root, (None, None), None)
    }

    /// A namespace, and charges for it and for its mounts.
    fn charged(
        table: &Arc<MountTable>,
        user_ns: Arc<UserNamespace>,
        root: Arc<Mount>,
        (namespace, charge): (Option<Charge>, Option<Charge>),
        anonymous: Option<Origin>,
    ) -> Arc<MountNs> {
        MountNs::numbered(table, (table.next_ns(), user_ns), root, (namespace, charge), anonymous)
    }

    /// The same with the number `id`, which no other has.
    pub(crate) fn numbered(
        table: &Arc<MountTable>,
        (id, user_ns): (u64, Arc<UserNamespace>),
        root: Arc<Mount>,
        (namespace, charge): (Option<Charge>, Option<Charge>),
        anonymous: Option<Origin>,
    ) -> Arc<MountNs> {
        let mounts = root.tree();
        let set = Arc::new(MountSet::new(id, user_ns, (root, mounts.len()), (namespace, charge), anonymous));
        for m in &mounts {
            table.number(m);
            m.set_ns(id, Arc::downgrade(&set));
        }
        Arc::new(MountNs { set, table: table.clone(), counted: OnceLock::new() })
    }

    /// The user that it counts for, if it counts.
    pub fn counted_for(&self) -> Option<u32> {
        self.counted.get().map(NamespaceCount::user)
    }

    pub(crate) fn set_counted(&self, counted: NamespaceCount) {
        let _ = self.counted.set(counted);
    }

    pub(crate) fn table(&self) -> &Arc<MountTable> {
        &self.table
    }

    /// Makes a mount one of its own.
    pub(crate) fn adopt(&self, mount: &Arc<Mount>) {
        mount.set_ns(self.id, Arc::downgrade(&self.set));
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

    /// Where something mounted at `at` goes: on top of what is there. ENOENT for what was removed or unmounted.
    fn target(&self, at: &Path) -> Result<Path> {
        let at = at.clone().cross_mounts();
        if at.dentry.is_unlinked() || !at.inode().takes_mounts() || at.mount.ns_id() == 0 {
            return Err(Errno::ENOENT);
        }
        Ok(at)
    }

    /// Attaches a prepared mount (and what sits on it) at `at`.
    pub fn add(&self, at: &Path, m: &Arc<Mount>) -> Result<()> {
        let mut change = Change::begin(&self.table);
        let at = self.target(at)?;
        if !self.contains(&at.mount) {
            return Err(Errno::EINVAL);
        }
        self.graft(&mut change, &at, m)
    }

    /// As [`MountNs::add`] for a new instance of a file system, which does not go on top of itself (EBUSY).
    pub fn add_new(&self, at: &Path, m: &Arc<Mount>) -> Result<()> {
        let mut change = Change::begin(&self.table);
        let at = self.target(at)?;
        if !self.contains(&at.mount) {
            return Err(Errno::EINVAL);
        }
        if Arc::ptr_eq(&at.mount.sb, &m.sb) && at.is_mount_root() {
            return Err(Errno::EBUSY);
        }
        self.graft(&mut change, &at, m)
    }

    fn graft(&self, change: &mut Change<'_>, at: &Path, m: &Arc<Mount>) -> Result<()> {
        if m.root.is_dir() != at.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let more = m.tree();
        more.iter().for_each(|m| self.table.number(m));
        self.grow(more.len())?;
        propagate::attach(change, m, at).inspect_err(|_| self.shrink(more.len()))?;
        self.announce();
        change.announce();
        Ok(())
    }

    /// Bind mount of `from` at `at`; with `recursive`, of all mounts below as well.
    pub fn bind(&self, from: &Path, at: &Path, recursive: bool) -> Result<Arc<Mount>> {
        let mut change = Change::begin(&self.table);
        let at = self.target(at)?;
        if !self.contains(&at.mount) {
            return Err(Errno::EINVAL);
        }
        if self.would_hold_itself(&from.dentry) {
            return Err(Errno::EINVAL);
        }
        let copy = self.copied(&mut change, from, recursive)?;
        change.gone.push(copy.clone());
        if copy.tree().iter().any(|m| self.would_hold_itself(&m.root)) {
            return Err(Errno::EINVAL);
        }
        self.graft(&mut change, &at, &copy)?;
        Ok(copy)
    }

    /// A copy of the tree at `from`, attached nowhere. EINVAL for an unbindable mount or another namespace's, EPERM for an
    /// unbindable one below that hides something.
    fn copied(&self, change: &mut Change<'_>, from: &Path, recursive: bool) -> Result<Arc<Mount>> {
        if from.mount.is_unbindable() || !self.may_copy(from) {
            return Err(Errno::EINVAL);
        }
        // What a locked mount hides stays hidden.
        if !recursive && has_locked_children(&from.mount, &from.dentry) {
            return Err(Errno::EINVAL);
        }
        let tree = Tree { mount: &from.mount, root: &from.dentry, recursive, ns_files: true };
        let copy = propagate::copy_tree(change, &tree, CopyKind::Peer, &mut HashMap::new())?;
        // The copy's top hides nothing yet.
        copy.set_locked(false);
        Ok(copy)
    }

    /// A mount of the file system at `from` for a stacked file system's own use, attached nowhere (Linux's `clone_private_mount`).
    /// EINVAL for an unbindable mount, another namespace's, and for one below which something hides that the caller may not see.
    pub fn private_mount(&self, from: &Path, flags: MountFlags) -> Result<Arc<Mount>> {
        let _change = Change::begin(&self.table);
        if from.mount.is_unbindable()
            || !from.mount.ns().is_some_and(|ns| self.may_use(&ns))
            || has_locked_children(&from.mount, &from.dentry)
        {
            return Err(Errno::EINVAL);
        }
        let flags = (from.mount.own_flags() - MountFlags::ATIME) | flags;
        let mount =
            Mount::with_source(from.mount.sb.clone(), from.dentry.clone(), flags, from.mount.source.clone());
        self.table.number(&mount);
        Ok(mount)
    }

    /// Whether a mount of this object could keep the namespace alive by itself: it is a file of it or of an older one.
    fn would_hold_itself(&self, root: &Dentry) -> bool {
        root.inode.mount_ns().is_some_and(|id| id <= self.id)
    }

    /// Whether a tree may be copied from there: one that this namespace may use, or a file that is in none.
    fn may_copy(&self, from: &Path) -> bool {
        from.mount.fs().binds_from_nowhere() || from.mount.ns().is_some_and(|ns| self.may_use(&ns))
    }

    /// Moves a mount (`from` is its root) to `at`: one of this namespace, or the top of an anonymous one, which may go to
    /// another anonymous one.
    pub fn move_mount(&self, from: &Path, at: &Path, placing: Placing) -> Result<()> {
        let mut change = Change::begin(&self.table);
        let top = self.target(at)?;
        let m = &from.mount;
        let (Some(was), Some(into)) = (change.ns_of(m), change.ns_of(&top.mount)) else {
            return Err(Errno::EINVAL);
        };
        if self.contains(m) {
            let Some(parent) = m.mountpoint() else { return Err(Errno::EINVAL) };
            if parent.mount.peer_group().is_some() || into.is_anonymous() {
                return Err(Errno::EINVAL);
            }
        } else if !was.is_anonymous() || !Arc::ptr_eq(&*was.root.read(), m) || Arc::ptr_eq(&was, &into) {
            return Err(Errno::EINVAL);
        }
        if !self.may_use(&into) || m.is_locked() || !from.is_mount_root() || top.is_dir() != m.root.is_dir() {
            return Err(Errno::EINVAL);
        }
        let at = match placing {
            Placing::Above => top,
            Placing::Beneath => self.beneath(&top, m)?,
        };
        let tree = m.tree();
        if at.mount.peer_group().is_some() && tree.iter().any(|m| m.is_unbindable()) {
            return Err(Errno::EINVAL);
        }
        if tree.iter().any(|m| self.would_hold_itself(&m.root)) || is_above(m, &at.mount) {
            return Err(Errno::ELOOP);
        }
        if Arc::ptr_eq(&was, &into) {
            propagate::attach(&mut change, m, &at)?;
        } else {
            into.grow(tree.len())?;
            propagate::attach(&mut change, m, &at).inspect_err(|_| into.shrink(tree.len()))?;
            was.shrink(tree.len());
        }
        if was.is_anonymous() {
            // Its own reference must not keep the mount.
            let nothing = Mount::new(m.sb.clone(), m.root.clone(), MountFlags::empty(), b"none");
            change.gone.push(std::mem::replace(&mut *was.root.write(), nothing));
        }
        self.announce();
        change.announce();
        Ok(())
    }

    /// The place under the topmost mount `top`, for another mount to slip in.
    fn beneath(&self, top: &Path, m: &Arc<Mount>) -> Result<Path> {
        // Below a locked mount it could be taken away together with that one.
        if !top.is_mount_root() || top.mount.is_locked() {
            return Err(Errno::EINVAL);
        }
        let Some(at) = top.mount.mountpoint() else { return Err(Errno::EINVAL) };
        if !self.contains(&at.mount) || Arc::ptr_eq(&top.mount, m) {
            return Err(Errno::EINVAL);
        }
        if is_above(&top.mount, m) {
            return Err(Errno::EINVAL);
        }
        // A mount there would come back by an event, on top of one of the two.
        let overmounts = |x: &Arc<Mount>| {
            let group = at.mount.peer_group();
            group.is_some_and(|g| x.peer_group().is_some_and(|h| Arc::ptr_eq(&g, &h)))
                && Arc::ptr_eq(&x.root, &at.dentry)
        };
        if overmounts(&top.mount) || self.contains(m) && overmounts(m) {
            return Err(Errno::EINVAL);
        }
        Ok(at)
    }

    /// A copy of the tree at `from`, attached nowhere, and where it comes from. EINVAL, EPERM.
    pub fn copy_detached(&self, from: &Path, recursive: bool) -> Result<(Arc<Mount>, Origin)> {
        let mut change = Change::begin(&self.table);
        let copy = self.copied(&mut change, from, recursive)?;
        let origin = change.ns_of(&from.mount).map_or(Origin::Nowhere, |ns| match ns.anonymous {
            None => Origin::Namespace(ns.id),
            Some(origin) => origin,
        });
        Ok((copy, origin))
    }

    /// An anonymous namespace with a tree that is attached nowhere.
    pub fn anonymous(&self, top: Arc<Mount>, origin: Origin, mounts: Charge) -> Arc<MountNs> {
        let _change = Change::begin(&self.table);
        MountNs::charged(&self.table, self.user_ns().clone(), top, (None, Some(mounts)), Some(origin))
    }

    /// The last descriptor of an anonymous namespace is closed.
    pub fn dissolve(&self) {
        let mut change = Change::begin(&self.table);
        let top = self.root.read().clone();
        if self.contains(&top) {
            umount::forsake(&mut change, &top);
        }
    }

    /// move_mount(2) with MOVE_MOUNT_SET_GROUP: `to` becomes a peer and slave of those that `from` is one of. EPERM without
    /// CAP_SYS_ADMIN over the namespaces of both, EINVAL.
    pub fn set_group(&self, creds: &Credentials, from: &Path, to: &Path) -> Result<()> {
        let mut change = Change::begin(&self.table);
        let (a, b) = (&from.mount, &to.mount);
        may_change_propagation(&mut change, creds, a)?;
        may_change_propagation(&mut change, creds, b)?;
        if !from.is_mount_root() || !to.is_mount_root() {
            return Err(Errno::EINVAL);
        }
        if !Arc::ptr_eq(&a.sb, &b.sb) || !b.root.is_below(&a.root) || has_locked_children(a, &b.root) {
            return Err(Errno::EINVAL);
        }
        let (share, mine) = (a.share(), b.share());
        let none = |s: &peers::Share| s.group.is_none() && s.master.is_none();
        if !none(&mine) || none(&share) {
            return Err(Errno::EINVAL);
        }
        if share.master.is_some() {
            peers::follow(b, share.master);
        }
        if let Some(group) = &share.group {
            peers::join(b, group);
        }
        b.announce();
        Ok(())
    }

    /// mount_setattr(2): for `top`, or all mounts from there down, flags `new_flags` gives for the old ones, and a
    /// propagation type. Nothing happens on EBUSY (a file is open for writing below a mount that would be read-only) and
    /// EINVAL.
    pub fn set_attributes(
        &self,
        top: &Arc<Mount>,
        recursive: bool,
        new_flags: impl Fn(MountFlags) -> MountFlags,
        propagation: Option<Propagation>,
    ) -> Result<()> {
        let mut change = Change::begin(&self.table);
        let detached =
            change.ns_of(top).is_some_and(|ns| ns.is_anonymous() && Arc::ptr_eq(&*ns.root.read(), top));
        if !detached && !self.contains(top) {
            return Err(Errno::EINVAL);
        }
        let all = if recursive { top.tree() } else { vec![top.clone()] };
        let old: Vec<_> = all.iter().map(|m| m.own_flags()).collect();
        if all.iter().zip(&old).any(|(m, old)| !m.may_become(new_flags(*old))) {
            return Err(Errno::EPERM);
        }
        for (i, m) in all.iter().enumerate() {
            if new_flags(old[i]).contains(MountFlags::RDONLY)
                && let Err(e) = m.make_readonly()
            {
                all.iter().zip(&old).take(i).for_each(|(m, f)| m.set_flags(*f));
                return Err(e);
            }
        }
        all.iter().zip(old).for_each(|(m, f)| m.set_flags(new_flags(f)));
        if let Some(kind) = propagation {
            peers::change(&all, kind, &self.table.peer_groups);
        }
        top.announce();
        Ok(())
    }

    /// Unmounts the mount with the root `at`, and the mounts of its peers and slaves at the same place. EBUSY while
    /// there are mounts on it, open files, or root or working directories of tasks; EAGAIN for one that is marked now.
    pub fn umount(&self, at: &Path, how: Unmount) -> Result<()> {
        let mut change = Change::begin(&self.table);
        let m = at.mount.clone();
        if !at.is_mount_root() || !self.contains(&m) || m.is_locked() {
            return Err(Errno::EINVAL);
        }
        if how == Unmount::Expire {
            if !m.children().is_empty() || m.users().any() {
                return Err(Errno::EBUSY);
            }
            if !m.expire() {
                return Err(Errno::EAGAIN);
            }
        }
        if !m.is_attached() {
            // The namespace's own root: only its children could go.
            return Err(if how == Unmount::Detach { Errno::EINVAL } else { Errno::EBUSY });
        }
        let leaving = match how {
            Unmount::Detach => None,
            _ => Some(umount::Leaving::mark(&m).ok_or(Errno::EBUSY)?),
        };
        umount::detach(&mut change, &m);
        drop(leaving);
        self.announce();
        change.announce();
        Ok(())
    }

    /// Replaces the flags of one mount. EINVAL where it is not of this namespace, EPERM for locked flags, EBUSY when it would become read-only and
    /// a file is open for writing.
    pub fn remount(&self, m: &Arc<Mount>, flags: MountFlags) -> Result<()> {
        let _change = Change::begin(&self.table);
        if !self.contains(m) {
            return Err(Errno::EINVAL);
        }
        if !m.may_become(flags) {
            return Err(Errno::EPERM);
        }
        if flags.contains(MountFlags::RDONLY) {
            m.make_readonly()?;
        }
        m.set_flags(flags);
        self.announce();
        Ok(())
    }

    /// Changes the instance that `m` shows: its flags and options; and then the flags of `m`. EINVAL where `m` is not
    /// of this namespace, EPERM for locked flags and for a caller that may not change the instance, EBUSY.
    pub fn reconfigure(
        &self,
        creds: &Credentials,
        m: &Arc<Mount>,
        (sb_flags, flags): (SbFlags, MountFlags),
        options: &[u8],
    ) -> Result<()> {
        let change = Change::begin(&self.table);
        if !self.contains(m) {
            return Err(Errno::EINVAL);
        }
        if !m.may_become(flags) {
            return Err(Errno::EPERM);
        }
        m.sb.may_reconfigure(creds)?;
        change.reconfigure(&m.sb, sb_flags, SbFlags::CHANGING, Some(options))?;
        // What is written through this mount was asked about for the instance.
        m.set_flags(flags);
        self.announce();
        Ok(())
    }

    /// umount2(2) of the caller's root: the instance becomes read-only. EINVAL, EPERM and EBUSY as for
    /// [`MountNs::reconfigure`].
    pub fn make_readonly(&self, creds: &Credentials, m: &Arc<Mount>) -> Result<()> {
        let change = Change::begin(&self.table);
        if !self.contains(m) || m.is_locked() {
            return Err(Errno::EINVAL);
        }
        m.sb.may_reconfigure(creds)?;
        change.reconfigure(&m.sb, SbFlags::RDONLY, SbFlags::RDONLY, None)?;
        self.announce();
        Ok(())
    }

    /// Sets the propagation type of a mount, or of the whole tree below it, in whatever namespace it is. EPERM without
    /// CAP_SYS_ADMIN over that one, EINVAL for a mount in none.
    pub fn propagate(
        &self,
        creds: &Credentials,
        m: &Arc<Mount>,
        kind: Propagation,
        recursive: bool,
    ) -> Result<()> {
        let mut change = Change::begin(&self.table);
        may_change_propagation(&mut change, creds, m)?;
        let all = if recursive { m.tree() } else { vec![m.clone()] };
        peers::change(&all, kind, &self.table.peer_groups);
        m.announce();
        Ok(())
    }

    /// pivot_root(2): `new_root` becomes the top, the old top moves to `put_old`. The caller
    /// afterwards moves the root and working directory of every task in the namespace.
    pub fn pivot_root(&self, new_root: &Path, put_old: &Path, old_root: &Path) -> Result<()> {
        let _change = Change::begin(&self.table);
        let put_old = self.target(put_old)?;
        let new = &new_root.mount;
        let old = &old_root.mount;
        let shared = |m: Option<Path>| m.is_some_and(|p| p.mount.peer_group().is_some());
        if shared(Some(put_old.clone())) || shared(new.mountpoint()) || shared(old.mountpoint()) {
            return Err(Errno::EINVAL);
        }
        if !self.contains(old) || !self.contains(new) || new.is_locked() {
            return Err(Errno::EINVAL);
        }
        if new_root.dentry.is_unlinked() {
            return Err(Errno::ENOENT);
        }
        if Arc::ptr_eq(new, old) || Arc::ptr_eq(&put_old.mount, old) {
            return Err(Errno::EBUSY);
        }
        if !old_root.is_mount_root() || !new_root.is_mount_root() || !new.is_attached() {
            return Err(Errno::EINVAL);
        }
        if !put_old.reachable_from(new_root) || !new_root.reachable_from(old_root) {
            return Err(Errno::EINVAL);
        }
        if old.set_locked(false) {
            new.set_locked(true);
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
        old.attach_at(&put_old);
        self.announce();
        Ok(())
    }

    /// Whether a new mount of this instance shows what the namespace may see anyway: in a user namespace, proc and sysfs need another
    /// mount of the type that nothing hides a part of. Locks are taken over from that one. EPERM.
    pub fn check_revealing(&self, m: &Mount) -> Result<()> {
        let kind = m.fs().kind();
        if self.user_ns().is_initial() || !matches!(kind, "proc" | "sysfs") {
            return Ok(());
        }
        let _change = Change::begin(&self.table);
        for seen in self.mounts() {
            if seen.fs().kind() != kind || !Arc::ptr_eq(&seen.root, &seen.sb.root) {
                continue;
            }
            let mut locked = seen.locked_flags() & (MountFlags::RDONLY | MountFlags::ATIME);
            locked.set(
                MountFlags::RDONLY,
                seen.own_flags().contains(MountFlags::RDONLY) && locked.contains(MountFlags::RDONLY)
                    || seen.sb.readonly(),
            );
            let less = locked.contains(MountFlags::RDONLY) && !m.own_flags().contains(MountFlags::RDONLY);
            let times = (seen.own_flags() ^ m.own_flags()) & MountFlags::ATIME;
            let other_times = locked.intersects(MountFlags::ATIME) && !times.is_empty();
            let hides = |c: &Arc<Mount>| c.mountpoint().is_none_or(|at| !at.inode().stays_empty());
            if less || other_times || seen.locked_children().iter().any(hides) {
                continue;
            }
            m.lock(locked, false);
            return Ok(());
        }
        Err(Errno::EPERM)
    }

    /// A copy that `user_ns` owns (CLONE_NEWNS), and which mount became which. ENOSPC when there are too many namespaces or
    /// mounts. For another owner the mounts become slaves, and cannot be taken apart.
    pub fn copy(&self, cx: &dyn Caller, user_ns: &Arc<UserNamespace>) -> Result<Copied> {
        let counted = NamespaceCount::new(user_ns, cx.creds().euid, user_ns::Kind::Mount)?;
        let mut change = Change::begin(&self.table);
        let user = cx.quotas().account(cx.creds().uid);
        let charge = |kind, n| user.charge(kind, n).ok_or(Errno::ENOSPC);
        let mounts = self.count() as u64;
        let mut charges = (charge(Kind::MountNamespaces, 1)?, charge(Kind::Mounts, mounts)?);
        let mut map = HashMap::new();
        let root = self.root.read().clone();
        let tree = Tree { mount: &root, root: &root.root, recursive: true, ns_files: false };
        let other = !Arc::ptr_eq(user_ns, self.user_ns());
        let kind = if other { CopyKind::ForeignNamespace } else { CopyKind::Namespace };
        let top = propagate::copy_tree(&mut change, &tree, kind, &mut map)?;
        if other {
            propagate::lock_tree(&top);
        }
        // Files of mount namespaces stay behind.
        charges.1.resize(top.tree().len() as u64);
        let charges = (Some(charges.0), Some(charges.1));
        let ns = MountNs::charged(&self.table, user_ns.clone(), top, charges, None);
        let _ = ns.counted.set(counted);
        Ok((ns, map))
    }
}

impl Drop for MountNs {
    /// Its mounts are unmounted: those with files open on them go on without groups.
    fn drop(&mut self) {
        let all = self.root.read().tree();
        umount::leave(&all, &self.table.peer_groups);
    }
}

/// Whether a caller may change how `m` passes events on, in whatever namespace it is. EPERM, EINVAL for one in none.
fn may_change_propagation(change: &mut Change<'_>, creds: &Credentials, m: &Mount) -> Result<()> {
    let ns = change.ns_of(m).ok_or(Errno::EINVAL)?;
    if creds.ns_capable(ns.user_ns(), Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether a locked mount hides a part of what `m` shows at and below `root`.
fn has_locked_children(m: &Arc<Mount>, root: &Arc<Dentry>) -> bool {
    let mut shown = Below::new(root);
    m.locked_children().iter().filter_map(|c| c.mountpoint()).any(|at| shown.has(&at.dentry))
}

/// Whether `m` is `top`, or is mounted on it, or on a mount on it, and so on.
fn is_above(top: &Arc<Mount>, m: &Arc<Mount>) -> bool {
    let mut at = m.clone();
    loop {
        if Arc::ptr_eq(&at, top) {
            return true;
        }
        match at.mountpoint() {
            Some(p) => at = p.mount,
            None => return false,
        }
    }
}
