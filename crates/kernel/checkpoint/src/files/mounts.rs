//! The mounts of a container as plain data.
//!
//! A restored container builds the mounts of its specification again. They have other numbers than before, so each is
//! found by its position: the parent, the place in the parent, and what is mounted. [`Baseline`] is what a container
//! began with; what differs from it later was mounted, moved or changed by a program.

use crate::Obstacle;
use mounts::MountNs;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use vfs::{InodeRef, Mount, Path};

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
    /// Type of the file system.
    pub fstype: String,
    /// Device number of the file system.
    pub dev: u64,
    /// The source as given to mount(2).
    pub source: Vec<u8>,
    /// Flags of the mount, and of the file system.
    pub flags: (u32, u32),
    /// Numbers of the peer group that it is in, and of that it gets events from.
    pub peers: (u32, u32),
    /// MS_UNBINDABLE.
    pub unbindable: bool,
    /// Options of the file system.
    pub options: String,
    /// Where it is, for messages.
    pub shown: Vec<u8>,
}

impl MountState {
    fn of(mount: &Arc<Mount>) -> MountState {
        let above = mount.mountpoint();
        let share = mount.share();
        MountState {
            id: mount.unique_id(),
            parent: above.as_ref().map(|at| at.mount.unique_id()),
            point: above.as_ref().map(|at| Path::display_in_fs(&at.dentry)).unwrap_or_default(),
            root: Path::display_in_fs(&mount.root),
            fstype: mount.fs().kind().into(),
            dev: mount.root.inode.attr().map_or(0, |attr| attr.dev),
            source: mount.source.to_vec(),
            flags: (mount.own_flags().bits(), mount.sb.flags().bits()),
            peers: (share.group.map_or(0, |group| group.id), share.master.map_or(0, |group| group.id)),
            unbindable: share.unbindable,
            options: mount.fs().options(),
            shown: mount.root_path().display_absolute(),
        }
    }

    fn named(&self) -> String {
        format!("the mount of {} at {}", self.fstype, String::from_utf8_lossy(&self.shown))
    }
}

/// A mount namespace as plain data: parents before children.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceState {
    /// Its inode number. A restored namespace has another.
    pub id: u64,
    /// The container that began with it.
    pub container: u32,
    /// Its mounts.
    pub mounts: Vec<MountState>,
}

impl NamespaceState {
    /// The mounts of a container's first namespace as they are now.
    pub fn of(ns: &MountNs, container: u32) -> NamespaceState {
        let mounts = ns.root.read().clone().tree();
        NamespaceState { id: ns.id, container, mounts: mounts.iter().map(MountState::of).collect() }
    }
}

/// The mounts that a container began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline(NamespaceState);

impl Baseline {
    /// As they are now, before the first program runs.
    pub fn of(ns: &MountNs) -> Baseline {
        Baseline(NamespaceState::of(ns, 0))
    }

    /// What programs have changed since.
    pub(super) fn obstacles(&self, now: &NamespaceState) -> Vec<Obstacle> {
        let by_id = |list: &NamespaceState| -> HashMap<u64, MountState> {
            list.mounts.iter().map(|mount| (mount.id, mount.clone())).collect()
        };
        let (before, after) = (by_id(&self.0), by_id(now));
        let mut found = Vec::new();
        let mut name = |mount: &MountState, why: &str| {
            found.push(Obstacle { what: format!("{} {why}", mount.named()) });
        };
        for mount in &now.mounts {
            match before.get(&mount.id) {
                None => name(mount, "was made by a program"),
                Some(was) if (was.parent, &was.point) != (mount.parent, &mount.point) => {
                    name(mount, "was moved by a program");
                }
                Some(was) if *was != *mount => name(mount, "was changed by a program"),
                Some(_) => {}
            }
        }
        for mount in &self.0.mounts {
            if !after.contains_key(&mount.id) {
                name(mount, "was taken away by a program");
            }
        }
        found
    }
}

/// What tells an inode from others.
pub(super) fn address(inode: &InodeRef) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

/// Mounts of now by the identities of before.
#[derive(Default)]
pub(super) struct MountMap(HashMap<u64, Arc<Mount>>);

impl MountMap {
    /// Finds the mounts of plain data among those of a namespace that was built from the same specification. An error
    /// names the first that is not there.
    pub fn add(&mut self, saved: &NamespaceState, ns: &MountNs) -> Result<(), String> {
        let now = ns.root.read().clone().tree();
        let states: Vec<MountState> = now.iter().map(MountState::of).collect();
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
            if self.0.insert(mount.id, there.clone()).is_some() {
                return Err(format!("{} is in the image twice", mount.named()));
            }
        }
        let new = states.iter().zip(&taken).find(|(_, taken)| !**taken);
        match new {
            Some((mount, _)) => Err(format!("{} is not in the image", mount.named())),
            None => Ok(()),
        }
    }

    /// The mounts that are there, each with what is above it.
    pub fn held(&self) -> HashSet<usize> {
        let mut held = HashSet::new();
        for mount in self.0.values() {
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

    /// The mount with an identity of before.
    pub fn get(&self, id: u64) -> Option<&Arc<Mount>> {
        self.0.get(&id)
    }
}
