//! Peer groups: which mounts pass events to each other. See mount_namespaces(7), "Shared subtrees".
//!
//! A shared mount is a member of one [`PeerGroup`]; what is mounted or unmounted on one member happens on all. A slave gets
//! the events of its master, a peer group, and passes none back; it may be a member of a group of its own. All members of a
//! group have the same master. When the last member leaves, the group's slaves become slaves of the group's master.
//!
//! Changes are made under the lock of the mount table, except that a mount that is dropped leaves its groups. Locks: leaves,
//! one at a time.

use super::{Mount, Propagation};
use lock_order::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};

/// Numbers of which the lowest free one is given.
#[derive(Default)]
pub struct Numbers(Mutex<Free>);

/// The highest number that a checkpoint may ask for.
const HIGHEST: u32 = 1 << 20;

#[derive(Default)]
struct Free {
    /// Given back, all below `next`.
    below: BTreeSet<u32>,
    next: u32,
}

impl Numbers {
    fn take(&self) -> u32 {
        let mut free = self.0.lock();
        free.below.pop_first().unwrap_or_else(|| {
            free.next += 1;
            free.next
        })
    }

    /// Takes this number; `None` when it is taken or out of range.
    fn take_this(&self, n: u32) -> Option<u32> {
        let mut free = self.0.lock();
        if n > free.next && n <= HIGHEST {
            let skipped = free.next + 1..n;
            free.below.extend(skipped);
            free.next = n;
            return Some(n);
        }
        free.below.remove(&n).then_some(n)
    }

    fn give(&self, n: u32) {
        self.0.lock().below.insert(n);
    }
}

type Members = BTreeMap<u64, Weak<Mount>>;

#[derive(Default)]
struct Lists {
    members: Members,
    slaves: Members,
}

/// Mounts that are peers of each other.
pub struct PeerGroup {
    /// The number in mountinfo.
    pub id: u32,
    numbers: Arc<Numbers>,
    lists: Mutex<Lists>,
}

impl Drop for PeerGroup {
    fn drop(&mut self) {
        self.numbers.give(self.id);
    }
}

/// How a mount passes events on.
#[derive(Clone, Default)]
pub struct Share {
    /// MS_SHARED: its peers.
    pub group: Option<Arc<PeerGroup>>,
    /// Where events come from.
    pub master: Option<Arc<PeerGroup>>,
    /// MS_UNBINDABLE.
    pub unbindable: bool,
}

fn living(list: &Members) -> Vec<Arc<Mount>> {
    list.values().filter_map(Weak::upgrade).collect()
}

impl PeerGroup {
    /// A group without members.
    pub fn new(numbers: &Arc<Numbers>) -> Arc<PeerGroup> {
        Arc::new(PeerGroup { id: numbers.take(), numbers: numbers.clone(), lists: Mutex::default() })
    }

    /// A group of a checkpoint without members. `None` when the number is taken.
    pub fn numbered(numbers: &Arc<Numbers>, id: u32) -> Option<Arc<PeerGroup>> {
        let id = numbers.take_this(id)?;
        Some(Arc::new(PeerGroup { id, numbers: numbers.clone(), lists: Mutex::default() }))
    }

    /// Its members, oldest first.
    pub fn members(&self) -> Vec<Arc<Mount>> {
        living(&self.lists.lock().members)
    }

    /// The group that its members get events from.
    pub fn master(&self) -> Option<Arc<PeerGroup>> {
        let first = self.lists.lock().members.values().find_map(Weak::upgrade);
        first?.master()
    }

    /// The mounts that get its events and are not members.
    pub fn slaves(&self) -> Vec<Arc<Mount>> {
        living(&self.lists.lock().slaves)
    }
}

/// Makes a mount without a group a member of `group`.
pub fn join(m: &Arc<Mount>, group: &Arc<PeerGroup>) {
    m.change_share(|s| {
        s.group = Some(group.clone());
        s.unbindable = false;
    });
    group.lists.lock().members.insert(m.unique_id(), Arc::downgrade(m));
}

/// Makes a mount get its events from `master`, or with `None` from no group.
pub fn follow(m: &Arc<Mount>, master: Option<Arc<PeerGroup>>) {
    let old = m.change_share(|s| s.master.clone_from(&master));
    if let Some(old) = old.master {
        old.lists.lock().slaves.remove(&m.unique_id());
    }
    if let Some(new) = master {
        new.lists.lock().slaves.insert(m.unique_id(), Arc::downgrade(m));
    }
}

/// Makes a mount shared, if it is not: in a group of its own. Returns whether it was not.
pub fn make_shared(m: &Arc<Mount>, numbers: &Arc<Numbers>) -> bool {
    let new = m.peer_group().is_none();
    if new {
        join(m, &PeerGroup::new(numbers));
    }
    new
}

/// Takes a mount that is no longer shared out of its group's list; the last one hands the slaves to `master`. Returns the
/// group when others are left.
fn depart(unique: u64, group: Arc<PeerGroup>, master: Option<&Arc<PeerGroup>>) -> Option<Arc<PeerGroup>> {
    let orphans = {
        let mut lists = group.lists.lock();
        lists.members.remove(&unique);
        if !lists.members.is_empty() {
            drop(lists);
            return Some(group);
        }
        std::mem::take(&mut lists.slaves)
    };
    for slave in living(&orphans) {
        follow(&slave, master.cloned());
    }
    None
}

/// A mount that is gone leaves its groups.
pub fn leave(unique: u64, share: Share) {
    if let Some(group) = share.group {
        depart(unique, group, share.master.as_ref());
    }
    if let Some(master) = share.master {
        master.lists.lock().slaves.remove(&unique);
    }
}

/// Groups that a change leaves without members, by their numbers, each with the group that its slaves get events from instead.
/// That one may end as well.
struct Ending(HashMap<u32, (Arc<PeerGroup>, Option<Arc<PeerGroup>>)>);

impl Ending {
    /// Takes mounts, which are no longer shared, out of the lists of the groups that they were in.
    fn of(mounts: &[Arc<Mount>], old: &[Share]) -> Ending {
        let mut ending = HashMap::new();
        for (m, share) in mounts.iter().zip(old) {
            if let Some(master) = &share.master {
                master.lists.lock().slaves.remove(&m.unique_id());
            }
            let Some(group) = &share.group else { continue };
            let mut lists = group.lists.lock();
            lists.members.remove(&m.unique_id());
            if lists.members.is_empty() {
                ending.insert(group.id, (group.clone(), share.master.clone()));
            }
        }
        Ending(ending)
    }

    /// The nearest of a group and its masters that does not end. Each step is taken once, however long the chain is.
    fn nearest(&mut self, group: Option<Arc<PeerGroup>>) -> Option<Arc<PeerGroup>> {
        let mut way = Vec::new();
        let mut at = group;
        while let Some((group, master)) = at.as_ref().and_then(|g| self.0.get(&g.id)) {
            way.push(group.id);
            at = master.clone();
        }
        for id in way {
            self.0.entry(id).and_modify(|(_, master)| master.clone_from(&at));
        }
        at
    }

    /// The slaves get new masters.
    fn hand_over(&mut self) {
        let groups: Vec<_> = self.0.values().map(|(group, _)| group.clone()).collect();
        for group in groups {
            let slaves = std::mem::take(&mut group.lists.lock().slaves);
            let master = self.nearest(Some(group));
            living(&slaves).iter().for_each(|slave| follow(slave, master.clone()));
        }
    }
}

/// Sets the propagation type of mounts. The work is linear in the mounts and the slaves of groups that end.
pub fn change(mounts: &[Arc<Mount>], kind: Propagation, numbers: &Arc<Numbers>) {
    if kind == Propagation::Shared {
        mounts.iter().for_each(|m| _ = make_shared(m, numbers));
        return;
    }
    let alone = |s: &mut Share| {
        let unbindable = kind == Propagation::Unbindable || kind == Propagation::Slave && s.unbindable;
        *s = Share { group: None, master: None, unbindable };
    };
    let old: Vec<_> = mounts.iter().map(|m| m.change_share(alone)).collect();
    let mut ending = Ending::of(mounts, &old);
    ending.hand_over();
    if kind == Propagation::Slave {
        for (m, old) in mounts.iter().zip(old) {
            // A slave of those that were its peers; without any, of the master that it had.
            follow(m, ending.nearest(old.group.or(old.master)));
        }
    }
}

/// What becomes of a group in a walk over those that get an event.
pub enum Heirs {
    /// A mount that is in no group.
    One(Arc<Mount>),
    /// All members of a group.
    Group(Arc<PeerGroup>),
}

/// The slaves of a group, those of one group together.
pub fn heirs(group: &PeerGroup) -> Vec<Heirs> {
    let mut seen = HashSet::new();
    let heir = |m: Arc<Mount>| match m.peer_group() {
        None => Some(Heirs::One(m)),
        Some(g) => seen.insert(g.id).then_some(Heirs::Group(g)),
    };
    group.slaves().into_iter().filter_map(heir).collect()
}

/// Every other mount that gets the events of `m`.
pub fn recipients(m: &Arc<Mount>) -> Vec<Arc<Mount>> {
    let mut found = Vec::new();
    let mut todo: Vec<_> = m.peer_group().into_iter().collect();
    let mut seen: HashSet<u32> = todo.iter().map(|g| g.id).collect();
    while let Some(group) = todo.pop() {
        found.extend(group.members().into_iter().filter(|x| !Arc::ptr_eq(x, m)));
        for heir in heirs(&group) {
            match heir {
                Heirs::One(slave) => found.push(slave),
                Heirs::Group(g) if seen.insert(g.id) => todo.push(g),
                Heirs::Group(_) => {}
            }
        }
    }
    found
}

/// A mount is not shared after all: it leaves its group, and keeps its master.
pub fn leave_group(m: &Arc<Mount>) {
    let old = m.change_share(|s| s.group = None);
    if let Some(group) = old.group {
        depart(m.unique_id(), group, old.master.as_ref());
    }
}
