//! Mounting with the events that go to peers and slaves. See mount_namespaces(7), "Propagation type transitions" and "Bind
//! (MS_BIND) semantics" to "Move semantics". Unmounting is in [`crate::umount`].
//!
//! Everything that can fail happens before the first change: copies are made and counted, and only then attached. All of it
//! under the lock of the mount table. Nothing recurses, as a guest chooses how deep groups and trees are.

use crate::below::{Above, Below};
use crate::change::Change;
use abi::{Errno, Result};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use vfs::dentry::Dentry;
use vfs::mount::peers::{self, Heirs, PeerGroup};
use vfs::mount::{Mount, MountFlags, MountSet, MountTable, Path};

/// How a copy of a mount passes events on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// As the original: a peer of a shared mount, a slave of its master. Unbindable mounts are left out.
    Peer,
    /// As [`CopyKind::Peer`], unbindable mounts included (CLONE_NEWNS).
    Namespace,
    /// The same for a namespace of other owners: slaves, which get events and send none.
    ForeignNamespace,
    /// A slave of the original's group.
    Slave,
    /// The same, in a group of its own.
    SharedSlave,
}

/// A copy of a tree, and which mount, by its unique number, became which.
pub type Copies = HashMap<u64, Arc<Mount>>;

/// What to copy.
pub struct Tree<'a> {
    pub mount: &'a Arc<Mount>,
    /// The part of the topmost mount that the copy shows.
    pub root: &'a Arc<Dentry>,
    /// The mounts below as well.
    pub recursive: bool,
    /// Files of mount namespaces as well: for copies that stay in the namespace of the original.
    pub ns_files: bool,
}

fn copy_one(table: &MountTable, m: &Arc<Mount>, root: &Arc<Dentry>, kind: CopyKind) -> Arc<Mount> {
    let c = Mount::with_source(m.sb.clone(), root.clone(), m.own_flags(), m.source.clone());
    table.number(&c);
    c.lock(m.locked_flags(), m.is_locked());
    let share = m.share();
    match kind {
        CopyKind::Peer | CopyKind::Namespace => {
            if let Some(group) = &share.group {
                peers::join(&c, group);
            }
            if share.master.is_some() {
                peers::follow(&c, share.master);
            }
            c.change_share(|s| s.unbindable = share.unbindable && kind == CopyKind::Namespace);
        }
        CopyKind::Slave | CopyKind::SharedSlave | CopyKind::ForeignNamespace => {
            c.change_share(|s| s.unbindable = share.unbindable && kind == CopyKind::ForeignNamespace);
            peers::follow(&c, share.group.or(share.master));
            if kind == CopyKind::SharedSlave {
                peers::make_shared(&c, &table.peer_groups);
            }
        }
    }
    c
}

/// Locks what a namespace gets of a more privileged one: flags that restrict, how access times are kept, and what covers what.
pub fn lock_tree(top: &Arc<Mount>) {
    const RESTRICTING: MountFlags =
        MountFlags::RDONLY.union(MountFlags::NODEV).union(MountFlags::NOSUID).union(MountFlags::NOEXEC);
    for m in top.tree() {
        let flags =
            m.own_flags() & RESTRICTING | MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::NODIRATIME;
        m.lock(flags, !Arc::ptr_eq(&m, top));
    }
}

/// Copies a mount as seen from a part of it, with the mounts below it. EINVAL for a file of a mount namespace that is not to
/// be copied, EPERM for a mount that may neither be copied nor left out.
pub fn copy_tree(
    change: &mut Change<'_>,
    tree: &Tree<'_>,
    kind: CopyKind,
    map: &mut Copies,
) -> Result<Arc<Mount>> {
    let table = change.table;
    let left_out = |root: &Arc<Dentry>| !tree.ns_files && root.inode.mount_ns().is_some();
    if left_out(tree.root) {
        return Err(Errno::EINVAL);
    }
    let top = copy_one(table, tree.mount, tree.root, kind);
    map.insert(tree.mount.unique_id(), top.clone());
    let mut shown = Below::new(tree.root);
    let mut todo = if tree.recursive { vec![(tree.mount.clone(), top.clone())] } else { Vec::new() };
    while let Some((from, to)) = todo.pop() {
        for c in from.children() {
            let Some(point) = c.mountpoint() else { continue };
            let outside = Arc::ptr_eq(&from, tree.mount) && !shown.has(&point.dentry);
            let all = matches!(kind, CopyKind::Namespace | CopyKind::ForeignNamespace);
            if outside {
                continue;
            }
            if c.is_unbindable() && !all {
                if c.is_locked() {
                    change.gone.push(top);
                    return Err(Errno::EPERM);
                }
                continue;
            }
            if left_out(&c.root) {
                continue;
            }
            let copy = copy_one(table, &c, &c.root, kind);
            copy.attach_at(&Path { mount: to.clone(), dentry: point.dentry });
            map.insert(c.unique_id(), copy.clone());
            todo.push((c, copy));
        }
    }
    Ok(top)
}

/// A group that gets an event: what its members copy, and the member that has it already.
type Stop = (Arc<PeerGroup>, Arc<Mount>, Option<Arc<Mount>>);

/// Copies of a mount for those that get the events of the place where it goes.
struct Spread<'a, 'b> {
    change: &'a mut Change<'b>,
    /// The place where it goes, and all above.
    point: Above,
    /// Copies, and the mount on which each goes.
    made: Vec<(Arc<Mount>, Arc<Mount>)>,
    /// What was counted so far.
    counted: Vec<(Arc<MountSet>, usize)>,
}

impl Spread<'_, '_> {
    /// Whether the event concerns `m`: its namespace lives, and the place can be seen through it.
    fn takes(&mut self, m: &Arc<Mount>) -> bool {
        self.change.ns_of(m).is_some_and(|ns| !ns.is_anonymous()) && self.point.has(&m.root)
    }

    /// Makes a copy of `source` for `m`. ENOSPC, EINVAL.
    fn copy(&mut self, source: &Arc<Mount>, m: &Arc<Mount>, kind: CopyKind) -> Result<Arc<Mount>> {
        let tree = Tree { mount: source, root: &source.root, recursive: true, ns_files: false };
        let copy = copy_tree(self.change, &tree, kind, &mut HashMap::new())?;
        self.made.push((m.clone(), copy.clone()));
        if let Some(ns) = self.change.ns_of(m) {
            let size = copy.tree().len();
            ns.grow(size)?;
            self.counted.push((ns, size));
        }
        Ok(copy)
    }

    /// Copies for all that get events of `dest`, which gets `source` itself.
    fn run(&mut self, dest: &Arc<Mount>, source: &Arc<Mount>) -> Result<()> {
        let mut todo: Vec<Stop> =
            dest.peer_group().map(|g| (g, source.clone(), Some(dest.clone()))).into_iter().collect();
        let mut seen: HashSet<u32> = todo.iter().map(|t| t.0.id).collect();
        while let Some((group, source, has)) = todo.pop() {
            for m in group.members() {
                if !has.as_ref().is_some_and(|h| Arc::ptr_eq(h, &m)) && self.takes(&m) {
                    self.copy(&source, &m, CopyKind::Peer)?;
                }
            }
            for heir in peers::heirs(&group) {
                match heir {
                    Heirs::One(slave) if self.takes(&slave) => {
                        self.copy(&source, &slave, CopyKind::Slave)?;
                    }
                    Heirs::Group(g) if seen.insert(g.id) => {
                        match g.members().into_iter().find(|m| self.takes(m)) {
                            Some(first) => {
                                let copy = self.copy(&source, &first, CopyKind::SharedSlave)?;
                                todo.push((g, copy, Some(first)));
                            }
                            // The place is not visible there, but may be for their slaves.
                            None => todo.push((g, source.clone(), None)),
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Topmost place of what is mounted on the root of `m`.
fn topmost(m: &Arc<Mount>) -> Path {
    m.root_path().cross_mounts()
}

/// Mounts `source`, a tree that sits nowhere or is moved, at `at` and at all places that get the events of `at`. The
/// caller has counted the tree for the namespace of `at`. ENOSPC, and EINVAL for a file of a mount namespace.
pub fn attach(change: &mut Change<'_>, source: &Arc<Mount>, at: &Path) -> Result<()> {
    let tree = source.tree();
    let numbers = change.table.peer_groups.clone();
    let mut made = Vec::new();
    if at.mount.peer_group().is_some() {
        let new: Vec<_> = tree.iter().filter(|m| peers::make_shared(m, &numbers)).cloned().collect();
        let mut spread = Spread { change, point: Above::of(&at.dentry), made, counted: Vec::new() };
        let done = spread.run(&at.mount, source);
        made = std::mem::take(&mut spread.made);
        if let Err(e) = done {
            spread.counted.iter().for_each(|(ns, size)| ns.shrink(*size));
            change.gone.extend(made.into_iter().flat_map(|(m, copy)| [m, copy]));
            new.iter().for_each(peers::leave_group);
            return Err(e);
        }
    }
    let dest = change.ns_of(&at.mount);
    enter(source, dest.clone());
    source.detach();
    source.attach_beneath(at, &topmost(source));
    for (m, copy) in made {
        let ns = change.ns_of(&m);
        if let (Some(ns), Some(from)) = (&ns, &dest)
            && !Arc::ptr_eq(ns.user_ns(), from.user_ns())
        {
            lock_tree(&copy);
        }
        copy.set_locked(false);
        enter(&copy, ns);
        copy.attach_beneath(&Path { mount: m, dentry: at.dentry.clone() }, &topmost(&copy));
    }
    Ok(())
}

/// All mounts of a tree become members of a namespace.
fn enter(top: &Arc<Mount>, ns: Option<Arc<MountSet>>) {
    let (id, ns) = ns.map_or((0, Weak::new()), |ns| (ns.id, Arc::downgrade(&ns)));
    top.tree().iter().for_each(|m| m.set_ns(id, ns.clone()));
}
