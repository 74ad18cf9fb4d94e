//! Mounts of a checkpoint in their places: without events, as all of them are known.
//!
//! No task sees the namespaces meanwhile.

use crate::change::Change;
use crate::mount_ns::MountNs;
use abi::{Errno, Result};
use caller::Quotas;
use caller::quota::Kind;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};
use user_ns::{NamespaceCount, UserNamespace};
use vfs::mount::peers::{self, PeerGroup};
use vfs::mount::{Mount, Origin, Path};
use vfs::{MountFlags, Vfs};

/// A mount that is put in its place.
pub struct Placed {
    /// The mount.
    pub mount: Arc<Mount>,
    /// Numbers of its peer group and of its master, 0 for none.
    pub peers: (u32, u32),
    /// MS_UNBINDABLE.
    pub unbindable: bool,
}

/// The owner of a namespace that a program made.
pub struct Owner {
    /// The user namespace.
    pub user_ns: Arc<UserNamespace>,
    /// The user that it counts for.
    pub counted_for: Option<u32>,
    /// It holds a tree that no task has as its namespace.
    pub anonymous: Option<Origin>,
}

/// Puts a mount that is attached nowhere at a place on which nothing is mounted. ENOTDIR, EINVAL, EBUSY.
pub fn attach(mount: &Arc<Mount>, at: &Path) -> Result<()> {
    if mount.root.is_dir() != at.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    if mount.is_attached() || !at.dentry.is_below(&at.mount.root) || !at.inode().takes_mounts() {
        return Err(Errno::EINVAL);
    }
    if at.mount.child_at(&at.dentry).is_some() {
        return Err(Errno::EBUSY);
    }
    mount.attach_at(at);
    Ok(())
}

/// Takes a mount with all that is on it out of its namespace's tree.
pub fn detach(mount: &Arc<Mount>) {
    mount.detach();
}

impl MountNs {
    /// A namespace of a checkpoint with this tree and the number `id`, which must be from
    /// [`MountTable::keep_ns`](vfs::mount::MountTable::keep_ns). ENOSPC.
    pub fn restored(
        vfs: &Vfs,
        quotas: &Arc<Quotas>,
        id: u64,
        top: Arc<Mount>,
        owner: Owner,
    ) -> Result<Arc<MountNs>> {
        let counted = match owner.counted_for {
            Some(user) => Some(NamespaceCount::new(&owner.user_ns, user, user_ns::Kind::Mount)?),
            None => None,
        };
        let user = quotas.account(owner.counted_for.unwrap_or(0));
        let charge = |kind, n| user.charge(kind, n).ok_or(Errno::ENOSPC);
        let mounts = charge(Kind::Mounts, top.tree().len() as u64)?;
        let namespace = match owner.anonymous {
            None => Some(charge(Kind::MountNamespaces, 1)?),
            Some(_) => None,
        };
        let _change = Change::begin(&vfs.mounts);
        let charges = (namespace, Some(mounts));
        let ns = MountNs::numbered(&vfs.mounts, (id, owner.user_ns), top, charges, owner.anonymous);
        if let Some(counted) = counted {
            ns.set_counted(counted);
        }
        Ok(ns)
    }

    /// The tree of a namespace is what hangs below `top` now. ENOSPC.
    pub fn take_tree(self: &Arc<Self>, before: &[Arc<Mount>], top: &Arc<Mount>) -> Result<()> {
        let mut change = Change::begin(self.table());
        let now = top.tree();
        for mount in &now {
            self.table().number(mount);
        }
        let known: HashSet<u64> = now.iter().map(|mount| mount.unique_id()).collect();
        self.shrink(before.len());
        self.grow(now.len())?;
        for gone in before.iter().filter(|mount| !known.contains(&mount.unique_id())) {
            gone.set_ns(0, Weak::new());
        }
        for mount in &now {
            self.adopt(mount);
        }
        let old = std::mem::replace(&mut *self.root.write(), top.clone());
        change.gone.push(old);
        Ok(())
    }
}

/// Makes mounts peers and slaves of each other again. All mounts of the kernel that have peers are among them, and have none yet.
/// EINVAL for groups that cannot be: masters in a circle, members of one group with several masters.
pub fn share(vfs: &Vfs, all: &[Placed]) -> Result<()> {
    let mut masters: BTreeMap<u32, u32> = BTreeMap::new();
    for one in all {
        let (group, master) = one.peers;
        if group != 0 && *masters.entry(group).or_insert(master) != master {
            return Err(Errno::EINVAL);
        }
    }
    // A master that nothing is a member of is none that lives.
    let unknown = |master: u32| master != 0 && !masters.contains_key(&master);
    if all.iter().any(|one| unknown(one.peers.1)) {
        return Err(Errno::EINVAL);
    }
    let mut rooted = HashSet::from([0]);
    for group in masters.keys() {
        let (mut at, mut way) = (*group, HashSet::new());
        while !rooted.contains(&at) {
            if !way.insert(at) {
                return Err(Errno::EINVAL);
            }
            at = masters.get(&at).copied().unwrap_or(0);
        }
        rooted.extend(way);
    }
    let _change = Change::begin(&vfs.mounts);
    let mut groups: HashMap<u32, Arc<PeerGroup>> = HashMap::new();
    for number in masters.keys() {
        groups.insert(*number, PeerGroup::numbered(&vfs.mounts.peer_groups, *number).ok_or(Errno::EINVAL)?);
    }
    for one in all {
        let (group, master) = one.peers;
        if let Some(group) = groups.get(&group) {
            peers::join(&one.mount, group);
        }
        if let Some(master) = groups.get(&master) {
            peers::follow(&one.mount, Some(master.clone()));
        }
        one.mount.change_share(|share| share.unbindable = one.unbindable && group == 0);
    }
    Ok(())
}

/// Flags that a bundle may have set to keep programs from something.
pub const RESTRICTING: MountFlags =
    MountFlags::RDONLY.union(MountFlags::NODEV).union(MountFlags::NOSUID).union(MountFlags::NOEXEC);
