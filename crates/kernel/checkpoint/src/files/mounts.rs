//! Mounts and mount namespaces as plain data, and back.
//!
//! A restored container builds the mounts of its specification again. They have other numbers than before, so each is found by
//! its position: the parent, the place in the parent, and what is mounted. [`Baseline`] is what a container began with. What
//! programs have mounted, moved, changed or taken away since is done again, as are the namespaces that they made.

use super::masks::{self, Cover, Masks, Shown};
use super::supers::Supers;
use abi::Errno;
use mounts::MountNs;
use mounts::restore::{Owner, Placed, RESTRICTING};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};
use user_ns::UserNamespace;
use vfs::file::ObjectState;
use vfs::mount::{Ids, Origin, Propagation, peers};
use vfs::{Caller, Dentry, InodeRef, Mount, MountFlags, Path, SuperBlock};

/// A namespace that an inode of nsfs is, by its number: that of a mount namespace, or of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpaceRef {
    /// A mount namespace.
    Mounts(u64),
    /// Another one.
    Other(u64),
}

/// A mount as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountState {
    /// Identity ([`Mount::unique_id`]). A restored mount has another.
    pub id: u64,
    /// The mount that it is on; `None` for the topmost one.
    pub parent: Option<u64>,
    /// Where, as a path in the file system of the parent.
    pub point: Vec<u8>,
    /// The part of its own file system that shows.
    pub root: Vec<u8>,
    /// The namespace that shows, if it is a file of nsfs.
    pub space: Option<SpaceRef>,
    /// Type of the file system.
    pub fstype: String,
    /// The file system, as a place in [`FilesState::supers`](super::FilesState::supers). No meaning in a [`Baseline`].
    pub sb: usize,
    /// The source as given to mount(2).
    pub source: Vec<u8>,
    /// Flags.
    pub flags: u32,
    /// Flags that are locked, and whether the place is.
    pub locked: (u32, bool),
    /// Numbers of the peer group that it is in, and of that it gets events from.
    pub peers: (u32, u32),
    /// MS_UNBINDABLE.
    pub unbindable: bool,
    /// Where it is, for messages.
    pub shown: Vec<u8>,
    /// Which object of the host its root is.
    #[serde(default)]
    pub object: Option<ObjectState>,
}

impl MountState {
    pub(super) fn of(mount: &Arc<Mount>, sb: usize) -> MountState {
        let above = mount.mountpoint();
        let share = mount.share();
        MountState {
            id: mount.unique_id(),
            parent: above.as_ref().map(|at| at.mount.unique_id()),
            point: above.as_ref().map(|at| Path::display_in_fs(&at.dentry)).unwrap_or_default(),
            root: Path::display_in_fs(&mount.root),
            space: None,
            fstype: mount.fs().kind().into(),
            sb,
            source: mount.source.to_vec(),
            flags: mount.own_flags().bits(),
            locked: (mount.locked_flags().bits(), mount.is_locked()),
            peers: (share.group.map_or(0, |group| group.id), share.master.map_or(0, |group| group.id)),
            unbindable: share.unbindable,
            shown: mount.root_path().display_absolute(),
            object: ObjectState::at(&mount.root_path()),
        }
    }

    pub(super) fn named(&self) -> String {
        format!("the mount of {} at {}", self.fstype, String::from_utf8_lossy(&self.shown))
    }
}

/// What a tree of mounts belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Belongs {
    /// The namespace that a container, by index, began with.
    Container(u32),
    /// A namespace that a program made: its owner, and the user that it counts for.
    Made(u64, Option<u32>),
    /// A tree of a descriptor (open_tree(2), fsmount(2)), and the namespace that it was copied from.
    Descriptor(u64, Option<u64>),
    /// Nothing: it was unmounted, and files of it are open.
    Nothing,
}

/// A tree of mounts as plain data: parents before children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceState {
    /// The inode number of the namespace. A restored namespace may have another.
    pub id: u64,
    /// What it belongs to.
    pub belongs: Belongs,
    /// Its mounts.
    pub mounts: Vec<MountState>,
}

/// The mounts that a container began with.
#[derive(Clone, Debug)]
pub struct Baseline {
    pub(super) state: NamespaceState,
    pub(super) supers: Vec<(u64, Weak<SuperBlock>)>,
}

impl Baseline {
    /// As they are now, before the first program runs.
    pub fn of(ns: &MountNs) -> Baseline {
        let mounts = ns.root.read().clone().tree();
        Baseline {
            state: NamespaceState {
                id: ns.id,
                belongs: Belongs::Container(0),
                mounts: mounts.iter().map(|mount| MountState::of(mount, 0)).collect(),
            },
            supers: mounts.iter().map(|mount| (mount.unique_id(), Arc::downgrade(&mount.sb))).collect(),
        }
    }
}

/// What tells an inode from others.
pub(super) fn address(inode: &InodeRef) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

/// The dentry with this path in a file system. Links are not followed.
pub(super) fn dentry(cx: &dyn Caller, sb: &Arc<SuperBlock>, path: &[u8]) -> abi::Result<Arc<Dentry>> {
    super::find_below(cx, &sb.root, path)
}

/// Mounts of now by the identities of before.
#[derive(Default)]
pub(super) struct MountMap {
    all: HashMap<u64, Arc<Mount>>,
    namespaces: HashMap<u64, Arc<MountNs>>,
    placed: Vec<Placed>,
    /// Numbers of the mounts that are made.
    numbers: BTreeMap<u64, Ids>,
    /// What the containers' specifications hide of proc and sysfs, where programs may not mount.
    pub masks: Masks,
}

/// What mounts are made again with.
pub(super) struct Making<'a> {
    pub cx: &'a dyn Caller,
    pub saved: &'a [NamespaceState],
    pub supers: &'a Supers,
    /// The mount of nsfs.
    pub nsfs: &'a Arc<Mount>,
    /// A user namespace by its number.
    pub user: &'a dyn Fn(u64) -> Option<Arc<UserNamespace>>,
    /// A namespace of another kind than mounts by its number.
    pub space: &'a dyn Fn(u64) -> Option<nsproxy::Namespace>,
    /// Programs of the containers may mount.
    pub may_mount: bool,
}

impl MountMap {
    /// Finds the mounts that a container began with among those of a namespace that was built from the same specification. An
    /// error names the first that is not there.
    pub fn add(&mut self, saved: &NamespaceState, ns: &Arc<MountNs>) -> Result<(), String> {
        let now = ns.root.read().clone().tree();
        let states: Vec<MountState> = now.iter().map(|mount| MountState::of(mount, 0)).collect();
        let mut taken = vec![false; states.len()];
        for mount in &saved.mounts {
            // Parents come before children.
            let parent = match mount.parent {
                Some(id) => {
                    Some(self.get(id).ok_or_else(|| format!("{}: no parent", mount.named()))?.unique_id())
                }
                None => None,
            };
            let same = |one: &MountState| {
                (one.parent, &one.point) == (parent, &mount.point)
                    && (&one.root, &one.fstype) == (&mount.root, &mount.fstype)
            };
            let found = states.iter().zip(&taken).position(|(one, taken)| !taken && same(one));
            let Some((at, there)) = found.and_then(|at| Some((at, now.get(at)?))) else {
                return Err(format!("{} is in the image, and the container has none there", mount.named()));
            };
            if let Some(taken) = taken.get_mut(at) {
                *taken = true;
            }
            if self.all.insert(mount.id, there.clone()).is_some() {
                return Err(format!("{} is in the image twice", mount.named()));
            }
        }
        let new = states.iter().zip(&taken).find(|(_, taken)| !**taken);
        if let Some((mount, _)) = new {
            return Err(format!("{} is not in the image", mount.named()));
        }
        self.namespaces.insert(saved.id, ns.clone());
        Ok(())
    }

    /// Takes away the mounts of a container that are elsewhere or nowhere by now. `before`: what it began with.
    pub fn detach(&self, before: &NamespaceState, now: &NamespaceState) {
        let places: HashMap<u64, _> =
            now.mounts.iter().map(|mount| (mount.id, (mount.parent, &mount.point))).collect();
        for mount in &before.mounts {
            if places.get(&mount.id) != Some(&(mount.parent, &mount.point))
                && let Some(there) = self.get(mount.id)
            {
                mounts::restore::detach(there);
            }
        }
    }

    /// The mounts that are there, each with what is above it.
    pub fn held(&self) -> HashSet<usize> {
        let mut held = HashSet::new();
        for mount in self.all.values() {
            let points = mount.mountpoint().map(|at| at.dentry);
            for mut dentry in points.into_iter().chain([mount.root.clone()]) {
                loop {
                    held.insert(address(&dentry.inode));
                    let Some(parent) = dentry.parent() else { break };
                    dentry = parent;
                }
            }
        }
        held
    }

    /// Makes all namespaces as they were. `before`: the mounts of the containers as they began, by the numbers of the namespaces.
    pub fn make(
        &mut self,
        making: &Making<'_>,
        before: &HashMap<u64, Vec<Arc<Mount>>>,
    ) -> Result<(), String> {
        if !making.may_mount && follow_programs(making.saved) {
            return Err("mounts of the container follow those of programs, which may not mount".into());
        }
        let began: HashSet<u64> = self.all.keys().copied().collect();
        let made = making
            .saved
            .iter()
            .filter(|one| matches!(one.belongs, Belongs::Made(..) | Belongs::Descriptor(..)));
        let wanted: BTreeSet<u64> = made.map(|one| one.id).collect();
        let kept = making.cx.vfs().mounts.keep_ns(&wanted);
        let new = making.saved.iter().flat_map(|one| &one.mounts).map(|mount| mount.id);
        let new: BTreeSet<u64> = new.filter(|id| !began.contains(id)).collect();
        self.numbers = making.cx.vfs().mounts.keep_mounts(&new);
        let mut order: Vec<&NamespaceState> = making.saved.iter().collect();
        // A namespace shows files of younger ones only.
        order.sort_by_key(|one| std::cmp::Reverse(one.id));
        let mut seen = HashSet::new();
        let mut known = HashSet::new();
        for one in order {
            if one.belongs != Belongs::Nothing && !known.insert(one.id) {
                return Err(format!("mount namespace {} is there twice", one.id));
            }
            let top = self.tree(making, one, (&began, &mut seen))?;
            let failed = |error: Errno| format!("mount namespace {}: {error:?}", one.id);
            let (owner, counted_for, anonymous) = match one.belongs {
                Belongs::Nothing => continue,
                Belongs::Container(_) => {
                    let ns = self.namespaces.get(&one.id).ok_or_else(|| failed(Errno::ENOENT))?;
                    let all = before.get(&one.id).map(Vec::as_slice).unwrap_or_default();
                    ns.take_tree(all, &top).map_err(failed)?;
                    continue;
                }
                Belongs::Made(owner, counted_for) => (owner, counted_for, None),
                Belongs::Descriptor(owner, from) => {
                    let container = |id: &u64| self.namespaces.get(id).map(|ns| ns.id);
                    // The number of one that has ended is that of no other.
                    let now = |id: u64| kept.get(&id).copied().or_else(|| container(&id)).unwrap_or(0);
                    (owner, None, Some(from.map_or(Origin::Nowhere, |id| Origin::Namespace(now(id)))))
                }
            };
            let user_ns = (making.user)(owner).ok_or_else(|| failed(Errno::ENOENT))?;
            let id = kept.get(&one.id).copied().unwrap_or(one.id);
            let owner = Owner { user_ns, counted_for, anonymous };
            let ns =
                MountNs::restored(making.cx.vfs(), &making.cx.quotas(), id, top, owner).map_err(failed)?;
            self.namespaces.insert(one.id, ns);
        }
        // Groups begin anew: those of the specification go first.
        let all: Vec<_> = self.placed.iter().map(|placed| placed.mount.clone()).collect();
        let began = before.values().flatten().chain(&all);
        let began: Vec<_> = began.cloned().collect();
        peers::change(&began, Propagation::Private, &making.cx.vfs().mounts.peer_groups);
        mounts::restore::share(making.cx.vfs(), &self.placed)
            .map_err(|error| format!("peer groups of mounts: {error:?}"))
    }

    /// The topmost mount of a tree, with all others in their places.
    fn tree(
        &mut self,
        making: &Making<'_>,
        saved: &NamespaceState,
        (began, seen): (&HashSet<u64>, &mut HashSet<u64>),
    ) -> Result<Arc<Mount>, String> {
        let mut top = None;
        let mut mine = HashSet::new();
        let places: HashMap<(Option<u64>, &[u8]), &MountState> =
            saved.mounts.iter().map(|one| ((one.parent, &*one.point), one)).collect();
        for one in &saved.mounts {
            let failed = |error: Errno| format!("{}: {error:?}", one.named());
            if !seen.insert(one.id) {
                return Err(format!("{} is in the image twice", one.named()));
            }
            let sb = making.supers.get(one.sb).ok_or_else(|| failed(Errno::ENODEV))?;
            let mount = if began.contains(&one.id) {
                self.get(one.id).cloned().ok_or_else(|| failed(Errno::ENOENT))?
            } else {
                let mount = self.new_mount(making, one, sb)?;
                self.all.insert(one.id, mount.clone());
                mount
            };
            let flags = MountFlags::from_bits_truncate(one.flags);
            let mut locked = MountFlags::from_bits_truncate(one.locked.0);
            if !making.may_mount && making.supers.is_given(one.sb) {
                let own = restrictions(making, &mount, flags)
                    .ok_or_else(|| format!("{} permits more than the container's own", one.named()))?;
                // Root of a user namespace may change mounts of its namespaces, but not these flags.
                if !matches!(saved.belongs, Belongs::Container(_)) {
                    locked |= own;
                }
            }
            if !making.may_mount
                && !matches!(saved.belongs, Belongs::Container(_))
                && masks::concern(sb.fs.kind())
            {
                let on = |point: &[u8]| cover(making, places.get(&(Some(one.id), point))?);
                let own = self.masks.permit(&seen_as(&mount, flags), making.supers.is_given(one.sb), &on);
                locked |=
                    own.ok_or_else(|| format!("{} shows more than the container's own", one.named()))?;
            }
            mount.set_flags(flags);
            mount.lock(locked, one.locked.1);
            match one.parent {
                None if top.is_some() => return Err(format!("{} has no place", one.named())),
                None => {
                    mounts::restore::detach(&mount);
                    top = Some(mount.clone());
                }
                Some(parent) => {
                    let above = self.get(parent).filter(|_| mine.contains(&parent));
                    let above = above.ok_or_else(|| format!("{}: no parent", one.named()))?.clone();
                    if !mount.is_attached() {
                        let dentry = dentry(making.cx, &above.sb, &one.point).map_err(failed)?;
                        mounts::restore::attach(&mount, &Path { mount: above, dentry }).map_err(failed)?;
                    } else if !mount.mountpoint().is_some_and(|at| Arc::ptr_eq(&at.mount, &above)) {
                        return Err(failed(Errno::EBUSY));
                    }
                }
            }
            mine.insert(one.id);
            self.placed.push(Placed { mount, peers: one.peers, unbindable: one.unbindable });
        }
        top.ok_or_else(|| format!("mount namespace {} has no mounts", saved.id))
    }

    fn new_mount(
        &self,
        making: &Making<'_>,
        one: &MountState,
        sb: &Arc<SuperBlock>,
    ) -> Result<Arc<Mount>, String> {
        let failed = |error: Errno| format!("{}: {error:?}", one.named());
        let mount = match one.space {
            None => {
                let root = dentry(making.cx, sb, &one.root).map_err(failed)?;
                if let Some(object) = &one.object
                    && sb.fs.is_of_host()
                    && !object.is(&root.inode.attr().map_err(failed)?, Arc::ptr_eq(&root, &sb.root))
                {
                    return Err(format!(
                        "{}: its source was replaced by another file since the checkpoint",
                        one.named()
                    ));
                }
                Mount::new(sb.clone(), root, MountFlags::empty(), &one.source)
            }
            Some(space) => {
                let path = self.space(making, space).ok_or_else(|| failed(Errno::ENOENT))?;
                Mount::new(path.mount.sb.clone(), path.dentry, MountFlags::empty(), &one.source)
            }
        };
        let table = &making.cx.vfs().mounts;
        match self.numbers.get(&one.id) {
            Some(ids) => table.number_as(&mount, *ids),
            None => table.number(&mount),
        }
        Ok(mount)
    }

    /// The file of a namespace.
    fn space(&self, making: &Making<'_>, space: SpaceRef) -> Option<Path> {
        let ns = match space {
            SpaceRef::Mounts(id) => nsproxy::Namespace::Mount(self.namespaces.get(&id)?.clone()),
            SpaceRef::Other(inum) => (making.space)(inum)?,
        };
        Some(ns.path(making.nsfs))
    }

    /// The mount with an identity of before.
    pub fn get(&self, id: u64) -> Option<&Arc<Mount>> {
        self.all.get(&id)
    }

    /// The namespace with a number of before.
    pub fn namespace(&self, id: u64) -> Option<&Arc<MountNs>> {
        self.namespaces.get(&id)
    }
}

fn seen_as(mount: &Mount, flags: MountFlags) -> Shown {
    let root = Path::display_in_fs(&mount.root);
    Shown { kind: mount.fs().kind().into(), sb: masks::sb_of(&mount.sb), root, flags }
}

/// A mount of an image as what covers the place that it is on.
fn cover(making: &Making<'_>, one: &MountState) -> Option<Cover> {
    let sb = masks::sb_of(making.supers.get(one.sb)?);
    let flags = MountFlags::from_bits_truncate(one.flags);
    Some(Cover { sb, root: one.root.clone(), flags, stays: one.locked.1 })
}

/// The restricting flags of the bundle's own mount that shows what a mount of one of the bundle's file systems does; `None` for one
/// that lacks some of them, or shows what no mount of the bundle shows. Of several the one with the fewest counts.
fn restrictions(making: &Making<'_>, mount: &Arc<Mount>, flags: MountFlags) -> Option<MountFlags> {
    let shows = |own: &Arc<Mount>| Arc::ptr_eq(&own.sb, &mount.sb) && mount.root.is_below(&own.root);
    let own = making.supers.bundle_mounts().filter(|(own, _)| shows(own));
    let own = own.map(|(_, own)| *own & RESTRICTING).filter(|own| flags.contains(*own));
    own.min_by_key(|own| own.bits().count_ones())
}

/// Whether mounts of containers get events from, or share them with, those that programs have made: programs that may not mount could
/// change the containers' mounts with those of a user namespace of theirs.
fn follow_programs(saved: &[NamespaceState]) -> bool {
    let of = |containers: bool| {
        let wanted = move |one: &&NamespaceState| matches!(one.belongs, Belongs::Container(_)) == containers;
        saved.iter().filter(wanted).flat_map(|one| &one.mounts)
    };
    let groups: HashSet<u32> = of(false).map(|mount| mount.peers.0).filter(|group| *group != 0).collect();
    of(true).any(|mount| groups.contains(&mount.peers.0) || groups.contains(&mount.peers.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_do_not_follow_programs() {
        let space = |belongs, peers| {
            let mount = MountState {
                id: 1,
                parent: None,
                point: Vec::new(),
                root: Vec::new(),
                space: None,
                fstype: String::new(),
                sb: 0,
                source: Vec::new(),
                flags: 0,
                locked: (0, false),
                peers,
                unbindable: false,
                shown: Vec::new(),
                object: None,
            };
            NamespaceState { id: 1, belongs, mounts: vec![mount] }
        };
        let follows = |container, made| {
            let made = space(Belongs::Made(5, None), made);
            follow_programs(&[space(Belongs::Container(0), container), made])
        };
        assert!(!follows((0, 0), (0, 0)) && !follows((1, 0), (0, 1)) && !follows((1, 0), (2, 1)));
        assert!(follows((1, 0), (1, 0)) && follows((0, 1), (1, 0)) && follows((2, 1), (1, 0)));
    }
}
