//! What the tasks of one container share and those of the sandbox's others do not.

use crate::current::Current;
use crate::groups::Groups;
use crate::kernel::{Kernel, SI_HOST};
use crate::limits::Limits;
use abi::{Errno, PAGE_SIZE, Result, SigInfo, Signal};
use nsproxy::{NsProxy, Uts, UtsNamespace};
use parking_lot::{Condvar, Mutex as Leaf};
use pid::PidNamespace;
use platform::{Action, Context, Platform};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Most containers of a sandbox.
const MOST: usize = 512;

/// How long the tasks of a container may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ranges of ids of users and of groups: first one inside, first one outside, how many.
pub type IdMaps = [Vec<(u32, u32, u32)>; 2];

/// A container. It is forgotten with the last of its processes.
pub struct Container {
    index: u32,
    /// The namespaces of its first process.
    pub namespaces: Arc<NsProxy>,
    /// Root and mounts as it began.
    pub root_fs: Leaf<Option<Arc<vfs::FsContext>>>,
    /// Lines of /proc/PID/uid_map and gid_map: first id inside, first outside, how many.
    id_maps: OnceLock<IdMaps>,
    /// Most tasks at a time, as the pids controller of a control group has it; clone(2) answers EAGAIN beyond.
    pub task_limit: AtomicU64,
    sandbox_limits: Arc<Limits>,
    own_limits: OnceLock<Arc<Limits>>,
    /// Its first process, with whose end it ends.
    pub(crate) first: AtomicI32,
    groups: OnceLock<Arc<Groups>>,
    frozen: AtomicBool,
    finished: Leaf<Option<i32>>,
    finished_cv: Condvar,
}

impl Container {
    fn new(index: u32, namespaces: Arc<NsProxy>, sandbox_limits: Arc<Limits>) -> Arc<Container> {
        Arc::new(Container {
            index,
            namespaces,
            root_fs: Leaf::new(None),
            id_maps: OnceLock::new(),
            task_limit: AtomicU64::new(u64::MAX),
            sandbox_limits,
            own_limits: OnceLock::new(),
            first: AtomicI32::new(0),
            groups: OnceLock::new(),
            frozen: AtomicBool::new(false),
            finished: Leaf::new(None),
            finished_cv: Condvar::new(),
        })
    }

    /// Its number among the sandbox's containers; 0 is the one that the sandbox ends with.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The PID namespace of its processes.
    pub fn pids(&self) -> &Arc<PidNamespace> {
        &self.namespaces.pid_for_children
    }

    /// Its first process; 0 while there is none.
    pub fn first(&self) -> i32 {
        self.first.load(Ordering::SeqCst)
    }

    /// Says which process is the first.
    pub fn set_first(&self, tgid: i32) {
        self.first.store(tgid, Ordering::SeqCst);
    }

    /// Whether its tasks are not to run.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    /// What its processes may use and use: its own limits, or the sandbox's.
    pub fn limits(&self) -> &Arc<Limits> {
        self.own_limits.get().unwrap_or(&self.sandbox_limits)
    }

    /// Gives it limits of its own: files of its control groups, open for reading.
    pub fn set_limits(&self, files: Vec<(String, OwnedFd)>) {
        if !files.is_empty() {
            let _ = self.own_limits.set(Arc::new(Limits::within(&self.sandbox_limits, files)));
        }
    }

    /// Has its processes put into control groups of the host: files that take process ids, open for writing.
    pub fn set_groups(&self, files: Vec<OwnedFd>) {
        if !files.is_empty() {
            let _ = self.groups.set(Groups::new(files));
        }
    }

    /// An address space for one of its processes.
    pub fn new_space(&self, platform: &Arc<dyn Platform>) -> Result<Box<dyn Context>> {
        match self.groups.get() {
            Some(groups) => groups.new_space(platform),
            None => platform.new_space(),
        }
    }

    /// Which ids of the host the container's users and groups are, to be shown. The first call counts.
    pub fn set_id_maps(&self, maps: IdMaps) {
        let _ = self.id_maps.set(maps);
    }

    /// The same as lines of users or of groups; empty for all ids as they are.
    pub fn id_map(&self, groups: bool) -> &[(u32, u32, u32)] {
        self.id_maps.get().map_or(&[], |maps| &maps[usize::from(groups)])
    }

    /// Records how the first process ended.
    pub fn finish(&self, status: i32) {
        let mut f = self.finished.lock();
        if f.is_none() {
            *f = Some(status);
            self.finished_cv.notify_all();
        }
    }

    /// Whether the first process has ended.
    pub fn is_over(&self) -> bool {
        self.finished.lock().is_some()
    }

    /// Waits for the end of the first process; gives its wait status.
    pub fn wait_finished(&self) -> i32 {
        let mut f = self.finished.lock();
        loop {
            if let Some(s) = *f {
                return s;
            }
            self.finished_cv.wait(&mut f);
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(groups) = self.groups.get() {
            groups.close();
        }
    }
}

/// The containers of a kernel.
#[derive(Default)]
pub(crate) struct Containers(Leaf<Vec<Weak<Container>>>);

impl Containers {
    /// The first container, whose index is 0.
    pub(crate) fn first(namespaces: NsProxy, limits: Limits) -> (Arc<Container>, Self) {
        let first = Container::new(0, Arc::new(namespaces), Arc::new(limits));
        let all = Self(Leaf::new(vec![Arc::downgrade(&first)]));
        (first, all)
    }
}

impl Current {
    /// What the task's container may use and uses.
    pub fn limits(&self) -> &Limits {
        self.task.group.container.limits()
    }

    /// Under a limit on memory, has the guest's thread take the page faults of what is to be written from here. If they
    /// exceed the limit, the host kills that process; in the course of a write from outside it goes on to kill others, the
    /// one that stands for the container and the sentry among them, as the write itself keeps the first one's memory.
    pub fn fault_in(&mut self, addr: u64, len: u64) -> Result<()> {
        if len < PAGE_SIZE || self.limits().memory_max().is_none() {
            return Ok(());
        }
        self.ctx.flush()?;
        let start = addr & !(PAGE_SIZE - 1);
        let len = (addr + len).next_multiple_of(PAGE_SIZE) - start;
        self.ctx.queue(Action::Advise { addr: start, len, advice: libc::MADV_POPULATE_WRITE });
        match self.ctx.flush() {
            Err(Errno::ESRCH) => Err(Errno::EFAULT),
            // What cannot be written, the write says.
            _ => Ok(()),
        }
    }
}

impl Kernel {
    /// A further container. It shares the PID and UTS namespaces of other containers where those are given, and has namespaces of
    /// its own otherwise, with the names `uts`. `None` when there are too many.
    pub fn new_container(
        &self,
        pids_of: Option<&Container>,
        uts_of: Option<&Container>,
        uts: Uts,
    ) -> Option<Arc<Container>> {
        let mut all = self.containers.0.lock();
        // An index is free once nothing refers to the container.
        let free = all.iter().skip(1).position(|c| c.strong_count() == 0).map(|n| n + 1);
        let index = free.unwrap_or(all.len());
        if index >= MOST {
            return None;
        }
        let namespaces = NsProxy {
            uts: match uts_of {
                Some(other) => other.namespaces.uts.clone(),
                None => UtsNamespace::new(self.inums.next(), self.vfs.user_ns.clone(), uts),
            },
            pid_for_children: match pids_of {
                Some(other) => other.pids().clone(),
                None => self.pids.child(self.inums.next(), self.vfs.user_ns.clone()).ok()?,
            },
            ..NsProxy::clone(&self.first.namespaces)
        };
        let new = Container::new(index as u32, Arc::new(namespaces), self.first.limits().clone());
        match all.get_mut(index) {
            Some(slot) => *slot = Arc::downgrade(&new),
            None => all.push(Arc::downgrade(&new)),
        }
        Some(new)
    }

    /// Live threads of a container, and thread group leaders that nobody has waited for.
    pub fn tasks_of(&self, c: &Container) -> usize {
        self.tree.lock().count_tasks(|group, _| group.container.index == c.index)
    }

    /// Live threads of a container.
    fn live_tasks_of(&self, c: &Container) -> usize {
        self.tree.lock().tasks.values().filter(|t| t.group.container.index == c.index).count()
    }

    /// Sends a signal from outside to every process of a container that `wanted` says.
    pub fn signal_container(&self, c: &Container, info: SigInfo, wanted: impl Fn(i32) -> bool) {
        let groups: Vec<_> = {
            let t = self.tree.lock();
            let of = |g: &crate::thread_group::ThreadGroup| g.container.index == c.index && wanted(g.tgid);
            t.nodes.values().filter(|n| of(&n.group)).map(|n| n.group.clone()).collect()
        };
        for g in groups {
            let _ = g.send(info);
        }
    }

    /// Ends what is left of a container whose first process has ended, and forgets its processes.
    pub fn end_container(&self, c: &Container) {
        if let Some(groups) = c.groups.get() {
            groups.close();
        }
        let deadline = Instant::now() + PATIENCE;
        let kill = SigInfo::new(Signal::SIGKILL, SI_HOST);
        self.signal_container(c, kill, |_| true);
        while self.live_tasks_of(c) > 0 && self.wait_for_an_end(deadline) {
            self.signal_container(c, kill, |_| true);
        }
        let mut t = self.tree.lock();
        let mut gone: Vec<i32> =
            t.nodes.values().filter(|n| n.group.container.index == c.index).map(|n| n.group.tgid).collect();
        gone.retain(|id| t.nodes.get(id).is_some_and(|n| n.is_zombie()));
        let dropped: Vec<_> = gone.iter().map(|id| t.release(*id)).collect();
        drop(t);
        drop(dropped);
    }

    /// Stops all tasks of a container, or lets them go on. Calls in progress go on to their end.
    pub fn freeze(&self, c: &Container, on: bool) {
        c.frozen.store(on, Ordering::SeqCst);
        let tasks: Vec<_> = {
            let t = self.tree.lock();
            t.tasks.values().filter(|t| t.group.container.index == c.index).cloned().collect()
        };
        for task in tasks {
            match on {
                true => task.interrupt_guest(),
                false => {
                    wait::Wake::wake(&*task.waiter, wait::Events::ERR);
                }
            }
        }
    }
}

/// Waits until the container is let go, or the task is to end.
pub(crate) fn park_while_frozen(c: &Current) {
    while c.task.group.container.is_frozen() && !c.dying() {
        let _ = c.task.waiter.sleep_uninterruptible(None);
    }
}
