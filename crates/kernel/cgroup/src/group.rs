//! Groups and the tree that they form.

use crate::controllers::Controllers;
use crate::cpu::Cpu;
use crate::limit::Limit;
use crate::notice::{Notice, Notices};
use crate::owner::Owner;
use crate::pids_count::Pids;
use crate::programs::Attached;
use crate::tree::{Slot, Tree};
use abi::time::Timespec;
use abi::{Errno, Result};
use ktime::Clock;
use lock_order::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use vfs::attach::Attachments;

pub(crate) const DIR_MODE: u32 = 0o755;

/// A control group.
pub struct Cgroup {
    pub(crate) tree: Arc<Tree>,
    id: u64,
    pub(crate) level: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) parent: Option<Arc<Cgroup>>,
    /// It or one around it is to be frozen. Changes under the tree's lock.
    pub(crate) freezing: AtomicBool,
    /// It or one around it has used its processor time up. Changes under the tree's lock.
    pub(crate) throttled: AtomicBool,
    /// It has been removed. Changes under the tree's lock.
    pub(crate) removed: AtomicBool,
    /// Groups below it that have been removed and are still in use.
    pub(crate) dying: AtomicUsize,
    /// Changes under the tree's lock. A leaf: no other group's is taken inside.
    state: Mutex<State>,
    notices: Notices,
    _slot: Option<Slot>,
}

/// What changes of a group.
pub(crate) struct State {
    pub(crate) children: BTreeMap<Vec<u8>, Arc<Cgroup>>,
    /// Groups below it.
    pub(crate) descendants: usize,
    pub(crate) max_depth: Limit,
    pub(crate) max_descendants: Limit,
    /// cgroup.subtree_control.
    pub(crate) control: Controllers,
    /// Live tasks in the group itself.
    pub(crate) tasks: usize,
    /// Children with tasks in them or below them.
    pub(crate) populated_children: usize,
    /// cgroup.freeze.
    pub(crate) freeze: bool,
    pub(crate) frozen: bool,
    pub(crate) frozen_tasks: usize,
    pub(crate) frozen_children: usize,
    /// How often cgroup.kill was written here or around.
    pub(crate) kills: u64,
    pub(crate) pids: Pids,
    pub(crate) cpu: Cpu,
    /// Programs that decide about devices.
    pub(crate) devices: Attached,
    /// Processor time of what has ended or moved on, of groups that are gone included: user and system, in nanoseconds.
    pub(crate) time: [u64; 2],
    /// The owner of files without an entry in `owners`.
    pub(crate) maker: Owner,
    pub(crate) owners: HashMap<&'static str, Owner>,
}

impl State {
    pub(crate) fn is_populated(&self) -> bool {
        self.tasks > 0 || self.populated_children > 0
    }
}

impl Cgroup {
    /// The topmost group, which has all controllers and which no container sees.
    pub fn topmost(clock: Clock) -> Arc<Cgroup> {
        let lock = Mutex::new(());
        let tree = Arc::new(Tree {
            lock,
            clock,
            last_id: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            programs: AtomicUsize::new(0),
            attached: AtomicUsize::new(0),
        });
        let top = Cgroup::new(tree, None, Vec::new(), (0, 0), DIR_MODE, None);
        top.state().control = Controllers::all();
        Arc::new(top)
    }

    pub(crate) fn new(
        tree: Arc<Tree>,
        parent: Option<Arc<Cgroup>>,
        name: Vec<u8>,
        (uid, gid): (u32, u32),
        mode: u32,
        slot: Option<Slot>,
    ) -> Cgroup {
        let now: Timespec = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into();
        let maker = Owner { mode, uid, gid, times: [now; 3] };
        let freezing = parent.as_ref().is_some_and(|parent| parent.is_freezing());
        Cgroup {
            id: tree.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            level: parent.as_ref().map_or(0, |parent| parent.level + 1),
            tree,
            name,
            parent,
            freezing: AtomicBool::new(freezing),
            throttled: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            dying: AtomicUsize::new(0),
            state: Mutex::new(State {
                children: BTreeMap::new(),
                descendants: 0,
                max_depth: Limit(None),
                max_descendants: Limit(None),
                control: Controllers::empty(),
                tasks: 0,
                populated_children: 0,
                freeze: false,
                frozen: freezing,
                frozen_tasks: 0,
                frozen_children: 0,
                kills: 0,
                pids: Pids::default(),
                cpu: Cpu::default(),
                devices: Attached::default(),
                time: [0; 2],
                maker,
                owners: HashMap::from([("", maker)]),
            }),
            notices: Notices::default(),
            _slot: slot,
        }
    }

    /// Marks it and all groups below as killed, for tasks that are just being made. Gives all of them.
    pub fn kill(self: &Arc<Self>) -> Result<Vec<Arc<Cgroup>>> {
        let _tree = self.tree.lock();
        self.check_alive()?;
        let all = self.subtree();
        all.iter().for_each(|group| group.state().kills += 1);
        Ok(all)
    }

    /// The group and all below it, each after the one around it.
    pub fn descend(self: &Arc<Self>) -> Vec<Arc<Cgroup>> {
        let _tree = self.tree.lock();
        self.subtree()
    }

    /// As [`Cgroup::descend`], while the tree's lock is held.
    pub(crate) fn subtree(self: &Arc<Self>) -> Vec<Arc<Cgroup>> {
        let mut all = vec![self.clone()];
        let mut next = 0;
        while let Some(group) = all.get(next).cloned() {
            all.extend(group.state().children.values().cloned());
            next += 1;
        }
        all
    }

    /// Calls `f` for the group and all around it.
    pub(crate) fn each_up(&self, mut f: impl FnMut(&Cgroup)) {
        let mut at = Some(self);
        while let Some(group) = at {
            f(group);
            at = group.parent.as_deref();
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn shared_tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Its number, which no other has had: the inode number of its directory.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The group around; `None` for the topmost.
    pub fn parent(&self) -> Option<&Arc<Cgroup>> {
        self.parent.as_ref()
    }

    /// A group right below.
    pub fn child(&self, name: &[u8]) -> Option<Arc<Cgroup>> {
        self.state().children.get(name).cloned()
    }

    /// The groups right below.
    pub fn children(&self) -> Vec<Arc<Cgroup>> {
        self.state().children.values().cloned().collect()
    }

    /// How many groups are right below.
    pub fn count_children(&self) -> usize {
        self.state().children.len()
    }

    /// Its name in the one around.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// It has been removed.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }

    /// The root group of a container: a child of the one that nobody sees.
    pub fn is_of_container(&self) -> bool {
        self.level == 1
    }

    /// ENODEV once it has been removed.
    pub fn check_alive(&self) -> Result<()> {
        if self.is_removed() { Err(Errno::ENODEV) } else { Ok(()) }
    }

    /// Tasks are in it or below it.
    pub fn is_populated(&self) -> bool {
        self.state().is_populated()
    }

    /// Groups below it, and removed ones that are still in use.
    pub fn descendants(&self) -> (usize, usize) {
        (self.state().descendants, self.dying.load(Ordering::Relaxed))
    }

    /// All groups of the sandbox, as /proc/cgroups counts them.
    pub fn count_all(&self) -> usize {
        self.tree.count.load(Ordering::Relaxed) + 1
    }

    /// Counts processor time that was used in the group, user and system, in nanoseconds.
    pub fn add_time(&self, [user, system]: [u64; 2]) {
        let _tree = self.tree.lock();
        let mut group = self;
        while let Some(parent) = group.parent.as_deref().filter(|_| group.is_removed()) {
            group = parent;
        }
        let mut s = group.state();
        s.time[0] += user;
        s.time[1] += system;
    }

    /// Processor time of what is not in the group and below it any more.
    pub fn past_time(self: &Arc<Self>) -> [u64; 2] {
        let _tree = self.tree.lock();
        self.subtree().iter().fold([0; 2], |sum, group| {
            let time = group.state().time;
            [sum[0] + time[0], sum[1] + time[1]]
        })
    }

    /// Told when cgroup.events changes.
    pub fn events(&self) -> &Notice {
        &self.notices.events
    }

    /// What hangs on the inodes of its directory.
    pub fn attachments(&self) -> Arc<Attachments> {
        self.notices.dir.get()
    }

    /// Whether its tasks are to stop running.
    pub fn is_freezing(&self) -> bool {
        self.freezing.load(Ordering::SeqCst)
    }

    /// Its tasks are to stand still, as it or a group around it has used its time up.
    pub fn is_throttled(&self) -> bool {
        self.throttled.load(Ordering::Relaxed)
    }

    /// The controllers that it has: those that its parent gives.
    pub fn controllers(&self) -> Controllers {
        self.parent().map_or(Controllers::all(), |parent| parent.state().control)
    }

    /// The owner of a file, or of the directory itself by the empty name. One that was never changed is the maker's,
    /// with `mode`.
    pub fn owner(&self, file: &'static str, mode: u32) -> Owner {
        let s = self.state();
        s.owners.get(file).copied().unwrap_or(Owner { mode, ..s.maker })
    }

    /// Changes it. `file` is one of the names that cgroupfs has, so there are few.
    pub fn set_owner(&self, file: &'static str, owner: Owner) {
        self.state().owners.insert(file, owner);
    }

    /// It is `other`, or below it.
    pub fn is_within(&self, other: &Cgroup) -> bool {
        let mut at = Some(self);
        while let Some(group) = at.filter(|group| group.level > other.level) {
            at = group.parent.as_deref();
        }
        at.is_some_and(|group| std::ptr::eq(group, other))
    }

    /// Whether it is the group with this ID, or below it.
    pub(crate) fn is_within_id(&self, id: u64) -> bool {
        std::iter::successors(Some(self), |group| group.parent.as_deref()).any(|group| group.id() == id)
    }

    pub(crate) fn common<'a>(&'a self, other: &Cgroup) -> Option<&'a Cgroup> {
        let mut at = Some(self);
        while let Some(group) = at.filter(|group| !other.is_within(group)) {
            at = group.parent.as_deref();
        }
        at
    }

    /// Its path as a cgroup namespace with this root shows it: with `..` for what is around.
    pub fn path_from(&self, root: &Cgroup) -> Vec<u8> {
        let Some(common) = root.common(self) else { return b"/".to_vec() };
        let mut path = b"/..".repeat((root.level - common.level) as usize);
        let mut names = Vec::new();
        let mut at = self;
        while !std::ptr::eq(at, common) {
            names.push(&at.name);
            let Some(parent) = &at.parent else { break };
            at = parent;
        }
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    /// What /proc/PID/cgroup says of a task in it, read from a namespace with this root.
    pub fn line(&self, root: &Cgroup) -> Vec<u8> {
        let deleted: &[u8] = if self.is_removed() { b" (deleted)" } else { b"" };
        [b"0::", &self.path_from(root)[..], deleted, b"\n"].concat()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if *self.removed.get_mut() {
            let mut at = self.parent.as_deref();
            while let Some(group) = at {
                group.dying.fetch_sub(1, Ordering::Relaxed);
                at = group.parent.as_deref();
            }
        }
    }
}
