//! Tasks in groups.

use crate::changes::Changes;
use crate::group::{Cgroup, State};
use crate::notice::What;
use crate::tree::Locked;
use abi::{Errno, Result};
use arc_swap::ArcSwap;
use caller::DeviceUse;
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A task that counts in a group and in all around it, until this is dropped. The lock of the tree must not be held
/// then.
pub struct Charge(Arc<Cgroup>);

impl Charge {
    /// A task that was counted already.
    pub(crate) fn of(group: &Arc<Cgroup>) -> Charge {
        Charge(group.clone())
    }

    /// The group.
    pub fn group(&self) -> &Arc<Cgroup> {
        &self.0
    }

    fn move_to(&mut self, group: &Arc<Cgroup>) -> Arc<Cgroup> {
        self.0.uncharge();
        group.charge();
        std::mem::replace(&mut self.0, group.clone())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let _tree = self.0.tree().lock();
        self.0.uncharge();
    }
}

/// The place of a task in the tree.
pub struct Member {
    group: ArcSwap<Cgroup>,
    /// It stands still. A copy of the one in `place`, for a look without lock.
    frozen: AtomicBool,
    place: Mutex<Place>,
}

/// Changes under the tree's lock.
struct Place {
    /// It is one of the tasks of its group.
    live: bool,
    frozen: bool,
    /// How often the group had been killed when the task was about to be made.
    kills: u64,
    /// Until it begins to run, it is in whatever group its maker is in.
    follows: bool,
    charge: Option<Charge>,
}

impl Member {
    /// A task that fork(2) is about to make in its maker's group, which it follows until it begins to run. EAGAIN when a limit
    /// is reached, ENODEV for a group that is gone.
    pub fn fork(group: &Arc<Cgroup>) -> Result<Member> {
        Member::charge(group, true)
    }

    /// As [`Member::fork`], for a task that begins in this group wherever its maker is then.
    pub(crate) fn fork_here(group: &Arc<Cgroup>) -> Result<Member> {
        Member::charge(group, false)
    }

    fn charge(group: &Arc<Cgroup>, follows: bool) -> Result<Member> {
        let mut changes = Changes::default();
        let made = {
            let tree = group.tree().lock();
            group.check_alive().and_then(|()| group.try_charge(&tree, &mut changes))
        };
        changes.tell();
        made.map(|()| Member::charged(group, follows))
    }

    /// A task that is put into a group from outside, whatever the limits.
    pub fn placed(group: &Arc<Cgroup>) -> Member {
        let tree = group.tree().lock();
        group.charge();
        drop(tree);
        Member::charged(group, false)
    }

    fn charged(group: &Arc<Cgroup>, follows: bool) -> Member {
        let kills = group.state().kills;
        let place = Place { live: false, frozen: false, kills, follows, charge: Some(Charge(group.clone())) };
        Member {
            group: ArcSwap::new(group.clone()),
            frozen: AtomicBool::new(false),
            place: Mutex::new(place),
        }
    }

    /// The group.
    pub fn group(&self) -> Arc<Cgroup> {
        self.group.load_full()
    }

    /// Whether its group is to stand still.
    pub fn is_freezing(&self) -> bool {
        self.group.load().is_freezing()
    }

    /// Whether its group has used its processor time up.
    pub fn is_throttled(&self) -> bool {
        self.group.load().is_throttled()
    }

    /// Programs about devices are attached somewhere in the tree.
    pub fn has_device_rules(&self) -> bool {
        self.group.load().has_device_rules()
    }

    /// EPERM for a use of a device that a program of its groups refuses.
    pub fn check_device(&self, device: &DeviceUse) -> Result<()> {
        self.group.load().check_device(device)
    }

    /// The task begins to run; its maker is in `makers` now. EAGAIN when the group has been killed meanwhile, ENODEV when it is
    /// gone.
    pub fn join(&self, makers: &Arc<Cgroup>, changes: &mut Changes) -> Result<()> {
        let old = self.group();
        let group = if self.place.lock().follows { makers } else { &old };
        let tree = old.tree().lock();
        let moved = if Arc::ptr_eq(group, &old) {
            let kills = old.state().kills;
            if self.place.lock().kills != kills {
                return Err(Errno::EAGAIN);
            }
            None
        } else {
            self.rehome(group)
        };
        group.check_alive()?;
        self.place.lock().live = true;
        group.count(&tree, changes, |s| s.tasks += 1);
        drop(tree);
        drop(moved);
        Ok(())
    }

    /// The task has come to its end. Returns its charge, which stays until the task has been waited for.
    pub fn leave(&self, changes: &mut Changes) -> Option<Charge> {
        let group = self.group();
        let tree = group.tree().lock();
        let (was, charge) = {
            let mut p = self.place.lock();
            let was = (p.live, p.frozen);
            (p.live, p.frozen) = (false, false);
            (was, p.charge.take())
        };
        self.frozen.store(false, Ordering::SeqCst);
        if was.0 {
            group.count(&tree, changes, |s| {
                s.tasks -= 1;
                s.frozen_tasks -= usize::from(was.1);
            });
        }
        charge
    }

    /// Moves the task to another group, unless that one has been removed meanwhile; false when the task is at its end.
    pub fn move_to(&self, group: &Arc<Cgroup>, changes: &mut Changes) -> bool {
        let tree = group.tree().lock();
        let old = self.group();
        let (live, frozen) = {
            let p = self.place.lock();
            (p.live, p.frozen)
        };
        if !live || Arc::ptr_eq(&old, group) || group.is_removed() {
            return live;
        }
        let moved = self.rehome(group);
        old.count(&tree, changes, |s| {
            s.tasks -= 1;
            s.frozen_tasks -= usize::from(frozen);
        });
        group.count(&tree, changes, |s| {
            s.tasks += 1;
            s.frozen_tasks += usize::from(frozen);
        });
        drop(tree);
        drop(moved);
        true
    }

    /// Gives the old group, to be dropped after the lock.
    fn rehome(&self, group: &Arc<Cgroup>) -> Option<Arc<Cgroup>> {
        self.group.store(group.clone());
        let charge = self.place.lock().charge.take();
        let mut charge = charge?;
        let old = charge.move_to(group);
        self.place.lock().charge = Some(charge);
        Some(old)
    }

    /// Whether the task stands still.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    /// The task stands still from now on, or goes on. Only the task itself says so.
    pub fn set_frozen(&self, on: bool) {
        if self.is_frozen() == on {
            return;
        }
        let mut changes = Changes::default();
        loop {
            let group = self.group();
            let tree = group.tree().lock();
            if !Arc::ptr_eq(&group, &self.group()) {
                continue;
            }
            let live = {
                let mut p = self.place.lock();
                p.frozen = on && p.live;
                p.live
            };
            self.frozen.store(on && live, Ordering::SeqCst);
            if live {
                group.count(&tree, &mut changes, |s| {
                    s.frozen_tasks = if on { s.frozen_tasks + 1 } else { s.frozen_tasks - 1 };
                });
            }
            break;
        }
        changes.tell();
    }
}

impl Cgroup {
    /// Changes how many tasks there are, and what follows from that in the groups around.
    fn count(self: &Arc<Self>, tree: &Locked, changes: &mut Changes, change: impl FnOnce(&mut State)) {
        let (mut was, mut now) = {
            let mut s = self.state();
            let was = s.is_populated();
            change(&mut s);
            (was, s.is_populated())
        };
        let mut at = self;
        while was != now {
            changes.push(at, What::Events);
            let Some(parent) = at.parent() else { break };
            let mut s = parent.state();
            was = s.is_populated();
            s.populated_children = if now { s.populated_children + 1 } else { s.populated_children - 1 };
            now = s.is_populated();
            drop(s);
            at = parent;
        }
        self.update_frozen(tree, changes);
    }
}
