//! The tasks of a container: counted, signalled, frozen and ended together.

use crate::current::Current;
use crate::kernel::{Kernel, SI_HOST, time_namespace};
use abi::{SigInfo, Signal};
use container::Container;
use nsproxy::{CgroupNamespace, NsProxy, Offsets, Uts, UtsNamespace};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the tasks of a container may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a further container shares with others.
pub struct Shares<'a> {
    /// It is in the PID namespace of this container.
    pub pids_of: Option<&'a Container>,
    /// It is in the UTS namespace of this container.
    pub uts_of: Option<&'a Container>,
    /// Its IPC namespace.
    pub ipc: SharedIpc<'a>,
}

/// The IPC namespace of a further container.
pub enum SharedIpc<'a> {
    /// The first container's.
    Sandbox,
    /// That of a container.
    Of(&'a Container),
    /// A new one.
    Own,
}

impl Kernel {
    /// Whether the kernel is a container's alone.
    pub fn has_one_container(&self) -> bool {
        self.containers.count() == 1
    }

    /// A further container. It shares the PID and UTS namespaces of other containers where those are given, and has namespaces of
    /// its own otherwise, with the names `uts`; its clocks are ahead of the host's by `offsets`. `None` when there are too many.
    pub fn new_container(&self, shares: Shares<'_>, uts: Uts, offsets: Offsets) -> Option<Arc<Container>> {
        let first = &self.first.namespaces;
        let Shares { pids_of, uts_of, ipc } = shares;
        let resources = &self.vfs.resources;
        // The mount of its message queues belongs to root.
        let by = (&*resources.device_numbers, (0, 0));
        let ipc = match ipc {
            SharedIpc::Sandbox => first.ipc.clone(),
            SharedIpc::Of(other) => other.namespaces.ipc.clone(),
            SharedIpc::Own => first.ipc.another(self.inums.next(), &resources.user_ns, by, None),
        };
        let time = match offsets == first.time.offsets() {
            true => first.time.clone(),
            false => time_namespace(&self.inums, &self.vfs.resources.user_ns, offsets),
        };
        let namespaces = NsProxy {
            ipc,
            time_for_children: time.clone(),
            time,
            uts: match uts_of {
                Some(other) => other.namespaces.uts.clone(),
                None => UtsNamespace::new(self.inums.next(), self.vfs.resources.user_ns.clone(), uts, None),
            },
            pid_for_children: match pids_of {
                Some(other) => other.pids().clone(),
                None => self.pids.child(self.inums.next(), self.vfs.resources.user_ns.clone(), None).ok()?,
            },
            cgroup: CgroupNamespace::new(
                self.inums.next(),
                self.vfs.resources.user_ns.clone(),
                self.cgroups.of_container(),
                None,
            ),
            ..NsProxy::clone(first)
        };
        let cgroup = namespaces.cgroup.root.clone();
        let added = self.containers.add(namespaces, self.first.limits().clone());
        if added.is_none() {
            cgroup.close();
        }
        added
    }

    /// Live threads of a container.
    fn live_tasks_of(&self, c: &Container) -> usize {
        self.tree.lock().tasks().filter(|t| t.group.container.index() == c.index()).count()
    }

    /// Kills everything and waits, for a bounded time, until no thread is left.
    pub fn shutdown(&self) {
        for g in self.groups() {
            let _ = g.send(SigInfo::new(Signal::SIGKILL, SI_HOST));
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut alive = self.tasks_alive.lock();
        while *alive > 0 && self.tasks_cv.wait_until(&mut alive, deadline) {}
    }

    /// Ends the remaining tasks of a container after its first process has ended, and forgets its processes.
    pub fn end_container(&self, c: &Container) {
        c.close_cgroups();
        let deadline = Instant::now() + PATIENCE;
        let kill = SigInfo::new(Signal::SIGKILL, SI_HOST);
        self.signal_container(c, kill, |_| true);
        while self.live_tasks_of(c) > 0 && self.wait_for_an_end(deadline) {
            self.signal_container(c, kill, |_| true);
        }
        c.loops.clear();
        let mut t = self.tree.lock();
        let mut gone: Vec<i32> =
            t.nodes().filter(|n| n.group.container.index() == c.index()).map(|n| n.group.tgid).collect();
        gone.retain(|id| t.node(*id).is_some_and(|n| n.is_zombie()));
        let dropped: Vec<_> = gone.iter().map(|id| t.release(*id)).collect();
        drop(t);
        drop(dropped);
    }

    /// Stops all tasks of a container, or lets them go on. Calls in progress go on to their end.
    pub fn freeze(&self, c: &Container, on: bool) {
        c.set_frozen(on);
        if on {
            self.recycling.forget(Some(c.index()));
        }
        let tasks: Vec<_> = {
            let t = self.tree.lock();
            t.tasks().filter(|t| t.group.container.index() == c.index()).cloned().collect()
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

/// While the container is frozen, waits until it is let go, or the task is to end.
pub(crate) fn park_while_frozen(c: &mut Current) {
    while c.task.group.container.is_frozen() && !c.dying() {
        c.join_gathering();
        if c.join_standstill() {
            // It may have been let go on, or killed, meanwhile.
            continue;
        }
        let _ = c.task.waiter.sleep_uninterruptible(None);
    }
}
