//! Groups and the tree that they form.

use crate::control::Controllers;
use crate::cpu::Cpu;
use crate::devices::Attached;
use crate::limits::Limit;
use crate::member::Member;
use crate::notice::{Changes, Notice, Notices};
use crate::owner::Owner;
use crate::pids::Pids;
use crate::{Counted, Tree};
use abi::time::Timespec;
use abi::{Errno, Result};
use ranked::{Mutex, MutexGuard};
use rights::Credentials;
use rights::mode;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use vfs::attach::Attachments;

/// Most groups of a sandbox, removed ones that are still in use included.
pub const MOST: usize = 16 << 10;
/// Most levels of groups.
pub const DEEPEST: u32 = 128;

const DIR_MODE: u32 = 0o755;

/// A control group.
pub struct Cgroup {
    tree: Arc<Tree>,
    id: u64,
    level: u32,
    name: Vec<u8>,
    parent: Option<Arc<Cgroup>>,
    /// It or one around it is to be frozen. Changes under the tree's lock.
    pub(crate) freezing: AtomicBool,
    /// It or one around it has used its processor time up. Changes under the tree's lock.
    pub(crate) throttled: AtomicBool,
    /// It has been removed. Changes under the tree's lock.
    removed: AtomicBool,
    /// Groups below it that have been removed and are still in use.
    dying: AtomicUsize,
    /// Changes under the tree's lock. A leaf: no other group's is taken inside.
    state: Mutex<State>,
    notices: Notices,
    _counted: Option<Counted>,
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
    /// Who made it, as the owner of what has no entry in `owners`.
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
    pub fn topmost() -> Arc<Cgroup> {
        let lock = Mutex::new(());
        let tree = Arc::new(Tree {
            lock,
            last_id: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            programs: AtomicUsize::new(0),
            attached: AtomicUsize::new(0),
        });
        let top = Cgroup::new(tree, None, Vec::new(), (0, 0), DIR_MODE, None);
        top.state().control = Controllers::all();
        Arc::new(top)
    }

    fn new(
        tree: Arc<Tree>,
        parent: Option<Arc<Cgroup>>,
        name: Vec<u8>,
        (uid, gid): (u32, u32),
        mode: u32,
        counted: Option<Counted>,
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
            _counted: counted,
        }
    }

    /// The root group of a new container, by a name that no other has.
    pub fn of_container(self: &Arc<Self>) -> Arc<Cgroup> {
        let _tree = self.tree.lock();
        let name = format!("{}", self.tree.last_id.load(Ordering::Relaxed) + 1).into_bytes();
        self.add(name, (0, 0), DIR_MODE, None)
    }

    fn add(
        self: &Arc<Self>,
        name: Vec<u8>,
        owner: (u32, u32),
        mode: u32,
        counted: Option<Counted>,
    ) -> Arc<Cgroup> {
        let new = Cgroup::new(self.tree.clone(), Some(self.clone()), name.clone(), owner, mode, counted);
        let (new, frozen) = (Arc::new(new), self.is_freezing());
        {
            let mut s = self.state();
            s.children.insert(name, new.clone());
            s.frozen_children += usize::from(frozen);
        }
        self.each_up(|group| group.state().descendants += 1);
        new
    }

    /// mkdir(2) of a group that `owner` owns. EINVAL, EEXIST; EAGAIN beyond a limit; ENODEV when this one is gone.
    pub fn mkdir(self: &Arc<Self>, name: &[u8], owner: (u32, u32), mode: u32) -> Result<Arc<Cgroup>> {
        // /proc/PID/cgroup has one on a line.
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        let tree = self.tree.lock();
        self.check_alive()?;
        if self.state().children.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.check_room()?;
        if self.level >= DEEPEST {
            return Err(Errno::EAGAIN);
        }
        let counted = Counted::group(&self.tree, MOST).ok_or(Errno::EAGAIN)?;
        let new = self.add(name.to_vec(), owner, mode, Some(counted));
        let mut changes = Changes::default();
        self.update_frozen(&tree, &mut changes);
        drop(tree);
        changes.tell();
        Ok(new)
    }

    /// rmdir(2) of a group right below. EBUSY while it has tasks or groups, ENOENT.
    pub fn rmdir(self: &Arc<Self>, name: &[u8]) -> Result<()> {
        let mut changes = Changes::default();
        let tree = self.tree.lock();
        let child = self.child(name).ok_or(Errno::ENOENT)?;
        {
            let s = child.state();
            if s.is_populated() || !s.children.is_empty() {
                return Err(Errno::EBUSY);
            }
        }
        child.remove_from(self);
        self.update_frozen(&tree, &mut changes);
        drop(tree);
        drop(child);
        changes.tell();
        Ok(())
    }

    fn remove_from(&self, parent: &Arc<Cgroup>) {
        self.removed.store(true, Ordering::SeqCst);
        drop(self.take_programs());
        let (frozen, time) = {
            let s = self.state();
            (s.frozen, s.time)
        };
        {
            let mut s = parent.state();
            s.time[0] += time[0];
            s.time[1] += time[1];
            s.children.remove(&self.name);
            s.frozen_children -= usize::from(frozen);
        }
        parent.each_up(|group| {
            group.state().descendants -= 1;
            group.dying.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// The container ends: the group is removed with all below it. No task is there any more, or none that goes on.
    pub fn close(self: &Arc<Self>) {
        let tree = self.tree.lock();
        let all = self.subtree();
        for group in all.iter().rev() {
            if let Some(parent) = &group.parent
                && !group.is_removed()
            {
                group.remove_from(parent);
            }
        }
        drop(tree);
    }

    /// Marks it and all groups below as killed, for tasks that are just being made. Gives all of them.
    pub fn kill(self: &Arc<Self>) -> Result<Vec<Arc<Cgroup>>> {
        let _tree = self.tree.lock();
        self.check_alive()?;
        let all = self.subtree();
        all.iter().for_each(|group| group.state().kills += 1);
        Ok(all)
    }

    /// The group and all below it, each after the one around it. At most [`MOST`].
    pub fn descend(self: &Arc<Self>) -> Vec<Arc<Cgroup>> {
        let _tree = self.tree.lock();
        self.subtree()
    }

    /// As [`Cgroup::descend`], for who holds the tree.
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

    /// It is `other`, or below it.
    pub fn is_within(&self, other: &Cgroup) -> bool {
        let mut at = Some(self);
        while let Some(group) = at.filter(|group| group.level > other.level) {
            at = group.parent.as_deref();
        }
        at.is_some_and(|group| std::ptr::eq(group, other))
    }

    fn common<'a>(&'a self, other: &Cgroup) -> Option<&'a Cgroup> {
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

    /// Whether who has these credentials, and opened cgroup.procs in a namespace with this root, may move tasks from
    /// here to `to`. ENOENT for groups that the namespace does not see, EACCES without the right to write the
    /// cgroup.procs of the group that is around both.
    pub fn check_migration(&self, to: &Cgroup, creds: &Credentials, root: &Cgroup) -> Result<()> {
        let common = self.common(to).ok_or(Errno::ENOENT)?;
        common.check_write(creds)?;
        if self.is_within(root) && to.is_within(root) { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// Whether who has these credentials may write its cgroup.procs. EACCES.
    pub fn check_write(&self, creds: &Credentials) -> Result<()> {
        let Owner { mode, uid, gid, .. } = self.owner("cgroup.procs", 0o644);
        let perm = rights::Perm { mode: libc::S_IFREG | mode, uid, gid };
        mode::allowed(creds, &perm, mode::MAY_WRITE)
    }

    /// A place for a task that fork(2) is to put right into this group (CLONE_INTO_CGROUP) instead of `from`. As for
    /// [`Cgroup::check_migration`]; EBUSY for a group that takes no processes.
    pub fn fork_into(
        self: &Arc<Self>,
        from: &Arc<Cgroup>,
        creds: &Credentials,
        root: &Cgroup,
        thread: bool,
    ) -> Result<Member> {
        self.check_alive().map_err(|_| Errno::ENOENT)?;
        if !Arc::ptr_eq(self, from) {
            self.check_write(creds)?;
            from.check_migration(self, creds, root)?;
            // Threads of one process are in one group, as no group is threaded.
            if thread {
                return Err(Errno::EOPNOTSUPP);
            }
            self.check_takes_processes()?;
        }
        Member::fork(self)
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
