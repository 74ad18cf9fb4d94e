//! Unmounting with the events that go to peers and slaves. See mount_namespaces(7), "Unmount semantics".
//!
//! All of it happens under the lock of the mount table, so its work is linear in the mounts that there are: each peer group
//! is looked at once, each mount changes its groups once. Nothing recurses, as a guest chooses how deep groups and trees are.

use crate::change::Change;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use vfs::dentry::Dentry;
use vfs::in_use::Shared;
use vfs::mount::peers::{self, Heirs, Numbers, PeerGroup};
use vfs::mount::{Mount, MountTable, Path, Propagation, key};

/// Looks for mounts on the dentries from which mounts go, in groups and those that get their events.
#[derive(Default)]
struct Search {
    /// Groups, by their numbers, and the dentries from which mounts go on their members.
    places: HashMap<u32, (Arc<PeerGroup>, Vec<Arc<Dentry>>)>,
}

/// What a walk over groups does next.
enum Step {
    Enter(Arc<PeerGroup>),
    /// All that get events of a group, by its number, were there.
    Leave(u32),
}

impl Search {
    /// A mount goes from here.
    fn add(&mut self, at: Path) {
        if let Some(group) = at.mount.peer_group() {
            self.places.entry(group.id).or_insert_with(|| (group, Vec::new())).1.push(at.dentry);
        }
    }

    fn dentries(&self, group: u32) -> &[Arc<Dentry>] {
        self.places.get(&group).map_or(&[], |(_, dentries)| dentries)
    }

    /// The groups that get no events of others among them.
    fn topmost(&self) -> Vec<Step> {
        // Others on the way up, and whether one of the groups is there or above.
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut top = Vec::new();
        for (group, _) in self.places.values() {
            let mut way = Vec::new();
            let mut at = group.master();
            let below = loop {
                let Some(master) = at else { break false };
                if self.places.contains_key(&master.id) {
                    break true;
                }
                if let Some(below) = known.get(&master.id) {
                    break *below;
                }
                way.push(master.id);
                at = master.master();
            };
            known.extend(way.into_iter().map(|id| (id, below)));
            if !below {
                top.push(Step::Enter(group.clone()));
            }
        }
        top
    }

    /// Gives all mounts that are found, and how many mounts were looked at for that.
    fn run(&self, mut found: impl FnMut(Arc<Mount>)) -> usize {
        // The dentries that count here, by their keys, and for how many of the groups above.
        let mut places: HashMap<usize, usize> = HashMap::new();
        let mut todo = self.topmost();
        let mut seen = HashSet::new();
        let mut looks = 0;
        while let Some(step) = todo.pop() {
            let group = match step {
                Step::Enter(group) => group,
                Step::Leave(id) => {
                    for place in self.dentries(id).iter().map(key) {
                        match places.get_mut(&place) {
                            Some(n) if *n > 1 => *n -= 1,
                            _ => _ = places.remove(&place),
                        }
                    }
                    continue;
                }
            };
            if !seen.insert(group.id) {
                continue;
            }
            for place in self.dentries(group.id).iter().map(key) {
                *places.entry(place).or_default() += 1;
            }
            todo.push(Step::Leave(group.id));
            let mut those = group.members();
            for heir in peers::heirs(&group) {
                match heir {
                    Heirs::One(slave) => those.push(slave),
                    Heirs::Group(group) => todo.push(Step::Enter(group)),
                }
            }
            looks += those.len();
            those.iter().flat_map(|m| m.children_on(&places)).for_each(&mut found);
        }
        looks
    }
}

/// The mounts that an unmount of `set`, whole trees, takes along elsewhere.
struct Candidates {
    /// What is unmounted anyway.
    listed: HashSet<u64>,
    found: HashMap<u64, Arc<Mount>>,
    /// Those that stay, as something else is mounted below them.
    stay: HashSet<u64>,
    /// Those that go, while what covers them stays.
    covered: HashSet<u64>,
}

impl Candidates {
    fn of(set: &[Arc<Mount>], change: &mut Change<'_>) -> Candidates {
        let listed: HashSet<u64> = set.iter().map(|m| m.unique_id()).collect();
        let (stay, covered) = (HashSet::new(), HashSet::new());
        let mut all = Candidates { listed, found: HashMap::new(), stay, covered };
        let mut search = Search::default();
        // Where nothing else is mounted on a dentry, wherever it is seen, there is nothing to look for.
        let seen_elsewhere = set.iter().filter_map(|m| m.mountpoint()).filter(|at| at.dentry.mounts_on() > 1);
        seen_elsewhere.for_each(|at| search.add(at));
        search.run(|x| {
            if !all.listed.contains(&x.unique_id()) && change.ns_of(&x).is_some() {
                all.found.insert(x.unique_id(), x);
            }
        });
        all.judge();
        all
    }

    /// Finds out which stay: what carries something else, and what covers a part of what stays.
    fn judge(&mut self) {
        let mut staying = Vec::new();
        for m in self.found.values() {
            let others = |c: &Arc<Mount>| {
                !self.listed.contains(&c.unique_id()) && !self.found.contains_key(&c.unique_id())
            };
            staying.extend(m.children().into_iter().filter(others));
        }
        while let Some(m) = staying.pop() {
            let Some(at) = m.mountpoint() else { continue };
            let below = at.mount.unique_id();
            if !self.found.contains_key(&below) || self.stay.contains(&below) {
                continue;
            }
            let new = if Arc::ptr_eq(&at.dentry, &at.mount.root) {
                self.covered.insert(below)
            } else {
                self.stay.insert(below) && !self.covered.contains(&below)
            };
            if new {
                staying.push(at.mount);
            }
        }
        let locked = |m: &&Arc<Mount>| m.is_locked() && !self.goes_along(m);
        let mut staying: Vec<_> = self.found.values().filter(locked).cloned().collect();
        while let Some(m) = staying.pop() {
            self.stay.insert(m.unique_id());
            staying.extend(m.locked_children().into_iter().filter(|c| self.goes(c)));
        }
    }

    /// Whether what `m` is mounted on goes.
    fn goes_along(&self, m: &Mount) -> bool {
        m.mountpoint().is_some_and(|at| self.listed.contains(&at.mount.unique_id()) || self.goes(&at.mount))
    }

    fn goes(&self, m: &Mount) -> bool {
        self.found.contains_key(&m.unique_id()) && !self.stay.contains(&m.unique_id())
    }

    /// What stays of the mounts that cover `m`, which goes.
    fn cover(&self, m: &Arc<Mount>) -> Option<Arc<Mount>> {
        let mut top = m.clone();
        while self.goes(&top) {
            top = top.child_at(&top.root)?;
        }
        (!self.listed.contains(&top.unique_id())).then_some(top)
    }
}

/// Mounts leave their groups and become members of no namespace.
pub fn leave(mounts: &[Arc<Mount>], numbers: &Arc<Numbers>) {
    peers::change(mounts, Propagation::Private, numbers);
    mounts.iter().for_each(|m| m.set_ns(0, Weak::new()));
}

/// Takes one mount out of its namespace's count, and unless it stays connected out of its place.
fn remove(change: &mut Change<'_>, m: &Arc<Mount>, connected: bool) {
    if let Some(ns) = change.ns_of(m) {
        ns.shrink(1);
    }
    if !connected {
        m.detach();
    }
    change.gone.push(m.clone());
}

/// What covers the same place elsewhere as `top`, which goes, is not held there by a lock.
fn unlock(top: &Arc<Mount>) {
    let Some(at) = top.mountpoint().filter(|at| at.dentry.mounts_on() > 1) else { return };
    for place in peers::recipients(&at.mount) {
        if let Some(x) = place.child_at(&at.dentry) {
            x.set_locked(false);
        }
    }
}

/// Ends a tree that is not mounted: its mounts leave their groups and namespace, and stay on each other for processes
/// that have files open there.
pub fn forsake(change: &mut Change<'_>, top: &Arc<Mount>) {
    leave(&top.tree(), &change.table.peer_groups);
    change.gone.push(top.clone());
}

/// Unmounts `top` and everything below it, and what is mounted at the same places elsewhere. Locked mounts stay on
/// those that go as well: a process that has files open there does not see the files that they cover.
pub fn detach(change: &mut Change<'_>, top: &Arc<Mount>) {
    let set = top.tree();
    unlock(top);
    let also = Candidates::of(&set, change);
    let going: Vec<_> = also.found.values().filter(|m| also.goes(m)).cloned().collect();
    // What covers a mount that goes moves to where that one was.
    let mut moves = Vec::new();
    for m in &going {
        if let Some(at) = m.mountpoint()
            && !also.goes(&at.mount)
            && let Some(cover) = also.cover(m)
        {
            moves.push((cover, at));
        }
    }
    moves.iter().for_each(|(cover, _)| cover.detach());
    let connected: HashSet<u64> = going
        .iter()
        .chain(&set)
        .filter(|m| m.is_locked() && also.goes_along(m))
        .map(|m| m.unique_id())
        .collect();
    for m in &going {
        remove(change, m, connected.contains(&m.unique_id()));
    }
    for (cover, at) in moves {
        cover.attach_at(&at);
    }
    for m in set.iter().rev() {
        remove(change, m, connected.contains(&m.unique_id()));
    }
    let all: Vec<_> = going.into_iter().chain(set).collect();
    leave(&all, &change.table.peer_groups);
}

/// The name of a dentry is gone: the mounts of other namespaces there go, each tree as a whole. They stay on each other
/// for processes that have files open there. No event tells of it.
pub fn expel(table: &MountTable, point: &Arc<Dentry>) {
    if !point.is_mountpoint() {
        return;
    }
    let mut change = Change::begin(table);
    let tops = point.mounts();
    let all: Vec<_> = tops.iter().flat_map(|m| m.tree()).collect();
    for m in &all {
        if let Some(ns) = change.ns_of(m) {
            ns.shrink(1);
        }
    }
    tops.iter().for_each(|m| m.detach());
    leave(&all, &table.peer_groups);
    change.gone.extend(tops);
    change.announce();
}

/// Mounts that umount(2) is about to take away: a mount without any on it, and those that would go along with it.
pub struct Leaving(Vec<Arc<Mount>>);

impl Leaving {
    /// Marks them, so that no use of them begins; `None` when one of them is in use.
    pub fn mark(m: &Arc<Mount>) -> Option<Leaving> {
        if !m.children().is_empty() {
            return None;
        }
        let mut all = vec![m.clone()];
        if let Some(at) = m.mountpoint().filter(|at| at.dentry.mounts_on() > 1) {
            let elsewhere = peers::recipients(&at.mount);
            all.extend(elsewhere.iter().filter_map(|place| place.child_at(&at.dentry)).filter(|x| {
                // Only what covers it as a whole may be mounted on it; else it stays anyway.
                let children = x.children();
                children.is_empty() || x.child_at(&x.root).is_some() && children.len() == 1
            }));
        }
        all.iter().for_each(|m| m.set_leaving(true));
        let busy = all.iter().any(|m| m.users().any());
        let marked = Leaving(all);
        (!busy).then_some(marked)
    }
}

impl Drop for Leaving {
    /// What has stayed can be used again.
    fn drop(&mut self) {
        self.0.iter().filter(|m| m.is_attached()).for_each(|m| m.set_leaving(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::inode::InternalFs;
    use vfs::mount::{MountFlags, MountTable, SuperBlock};

    const MANY: usize = 20_000;

    /// Mounts of one file system, and a dentry of it.
    struct Bench {
        table: MountTable,
        sb: Arc<SuperBlock>,
        place: Arc<Dentry>,
    }

    impl Bench {
        fn new() -> Bench {
            let sb = SuperBlock::new(Arc::new(InternalFs::Anon));
            let place = Dentry::nameless(&sb.root, sb.root.inode.clone(), b"place");
            Bench { table: MountTable::default(), sb, place }
        }

        fn mount(&self) -> Arc<Mount> {
            let m = Mount::new(self.sb.clone(), self.sb.root.clone(), MountFlags::empty(), b"m");
            self.table.number(&m);
            m
        }

        /// A mount with another one on it, at the place.
        fn pair(&self) -> (Path, Arc<Mount>) {
            let at = Path { mount: self.mount(), dentry: self.place.clone() };
            let above = self.mount();
            above.attach_at(&at);
            (at, above)
        }

        /// A slave of the one before, in a group of its own.
        fn chain(&self, pairs: &[(Path, Arc<Mount>)]) {
            let mut master = None;
            for (at, _) in pairs {
                peers::follow(&at.mount, master);
                peers::make_shared(&at.mount, &self.table.peer_groups);
                master = at.mount.peer_group();
            }
        }
    }

    #[test]
    fn each_member_is_looked_at_once() {
        let b = Bench::new();
        let pairs: Vec<_> = (0..MANY).map(|_| b.pair()).collect();
        let group = PeerGroup::new(&b.table.peer_groups);
        pairs.iter().for_each(|(at, _)| peers::join(&at.mount, &group));
        let mut search = Search::default();
        pairs.iter().for_each(|(at, _)| search.add(at.clone()));
        let mut found = 0;
        assert_eq!(search.run(|_| found += 1), MANY);
        assert_eq!(found, MANY);
    }

    #[test]
    fn each_group_of_a_chain_is_looked_at_once() {
        let b = Bench::new();
        let pairs: Vec<_> = (0..MANY).map(|_| b.pair()).collect();
        b.chain(&pairs);
        let (mut all, mut last) = (Search::default(), Search::default());
        pairs.iter().skip(1).for_each(|(at, _)| all.add(at.clone()));
        pairs.iter().skip(MANY - 3).for_each(|(at, _)| last.add(at.clone()));
        let mut found = 0;
        assert_eq!(all.run(|_| found += 1), MANY - 1);
        assert_eq!(found, MANY - 1);
        // No mount of a master is looked at.
        assert_eq!(last.run(|_| ()), 3);
    }

    #[test]
    fn a_dentry_counts_below_the_group_it_is_of() {
        let b = Bench::new();
        let pairs: Vec<_> = (0..3).map(|_| b.pair()).collect();
        b.chain(&pairs);
        let other = Dentry::nameless(&b.sb.root, b.sb.root.inode.clone(), b"other");
        let mut search = Search::default();
        search.add(pairs[1].0.clone());
        search.add(Path { mount: pairs[0].0.mount.clone(), dentry: other });
        let mut found = Vec::new();
        search.run(|m| found.push(m.unique_id()));
        found.sort_unstable();
        assert_eq!(found, [pairs[1].1.unique_id(), pairs[2].1.unique_id()]);
    }

    #[test]
    fn slaves_of_groups_that_end_go_to_the_nearest_that_does_not() {
        let b = Bench::new();
        let pairs: Vec<_> = (0..MANY).map(|_| b.pair()).collect();
        b.chain(&pairs);
        let slaves: Vec<_> = (0..MANY).map(|_| b.mount()).collect();
        let last = pairs[MANY - 1].0.mount.peer_group();
        slaves.iter().for_each(|m| peers::follow(m, last.clone()));
        let mounts: Vec<_> = pairs.iter().map(|(at, _)| at.mount.clone()).collect();
        // Upwards, each group would hand its slaves to the next one that ends.
        let ending: Vec<_> = mounts[1..].iter().rev().cloned().collect();
        peers::change(&ending, Propagation::Slave, &b.table.peer_groups);
        let first = mounts[0].peer_group().unwrap();
        for m in slaves.iter().chain(&ending) {
            assert_eq!(m.master().unwrap().id, first.id);
        }
        assert_eq!(first.slaves().len(), 2 * MANY - 1);
        leave(&mounts, &b.table.peer_groups);
        assert!(slaves.iter().chain(&mounts).all(|m| m.master().is_none() && m.peer_group().is_none()));
    }
}
