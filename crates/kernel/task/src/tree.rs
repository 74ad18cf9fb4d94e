//! Relations between processes: parents and children, process groups,
//! sessions, process ids. All of it under one lock (rank TASKS).

mod state;
mod tracing;

pub use state::NodeState;

use crate::life::{Life, Zombie};
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::{SigSet, Signal};
use cgroup::{Cgroup, Charge};
use pid::Attached;
use rights::Credentials;
use sched::Scheduling;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tracee::Tracees;

/// A process's place in the tree.
pub struct Node {
    /// The process.
    pub group: Arc<ThreadGroup>,
    /// Its ID, which is taken until it is waited for.
    pub(crate) pid: Attached,
    /// Parent's id; 0 for pid 1.
    parent: i32,
    /// Thread of the parent that made it (`__WNOTHREAD`, pdeath signal).
    parent_tid: i32,
    /// Children in order of creation.
    children: Vec<i32>,
    pgrp: Attached,
    session: Attached,
    /// Signal sent to the parent at exit; 0 for none.
    exit_signal: i32,
    /// Set once the thread group leader has left, whether other threads are left or not.
    pub(crate) leader: Option<Leader>,
    /// What wait(2) has yet to report of a process that lives.
    pub(crate) report: Option<Report>,
}

/// A change of a process that lives on, for wait(2). A newer one replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Report {
    /// This signal has stopped it.
    Stopped(Signal),
    /// SIGCONT has continued it.
    Continued,
}

/// What is left of a thread group leader as long as its id is taken.
pub struct Leader {
    /// Scheduling parameters.
    pub scheduling: Arc<Scheduling>,
    /// Credentials.
    pub creds: Arc<Credentials>,
    /// What it counts as in its control group.
    pub cgroup: Option<Charge>,
}

/// All processes and threads.
#[derive(Default)]
pub struct Tree {
    /// Processes by id.
    nodes: BTreeMap<i32, Node>,
    /// Live threads by id.
    tasks: HashMap<i32, Arc<Task>>,
    /// Controlling terminal per session.
    terminals: HashMap<i32, Arc<tty::Pty>>,
    /// Nodes with a thread group leader that has left.
    unreaped: usize,
    /// The traced threads.
    pub(crate) tracees: Tracees<ThreadGroup, Task>,
}

impl Node {
    /// A process in the process group and session of these IDs, a child of `parent` made by its thread `parent_tid`.
    pub(crate) fn new(group: Arc<ThreadGroup>, pid: Attached, relations: Relations) -> Node {
        let Relations { parent, parent_tid, pgrp, session, exit_signal } = relations;
        Node {
            group,
            pid,
            parent,
            parent_tid,
            children: Vec::new(),
            pgrp,
            session,
            exit_signal,
            leader: None,
            report: None,
        }
    }

    /// Process group ID, in the sandbox's own PID namespace.
    pub fn pgid(&self) -> i32 {
        self.pgrp.nr()
    }

    /// Session ID, in the sandbox's own PID namespace.
    pub fn sid(&self) -> i32 {
        self.session.nr()
    }

    /// Its place among the others.
    pub(crate) fn relations(&self) -> Relations {
        Relations {
            parent: self.parent,
            parent_tid: self.parent_tid,
            pgrp: self.pgrp.clone(),
            session: self.session.clone(),
            exit_signal: self.exit_signal,
        }
    }

    /// ID of the parent; 0 without one.
    pub fn parent(&self) -> i32 {
        self.parent
    }

    /// ID of the parent's thread that made it.
    pub fn parent_tid(&self) -> i32 {
        self.parent_tid
    }

    /// IDs of the children, in order of creation.
    pub fn children(&self) -> &[i32] {
        &self.children
    }

    /// Credentials of the thread group leader after its end.
    pub fn leader_creds(&self) -> Option<Arc<Credentials>> {
        self.leader.as_ref().map(|l| l.creds.clone())
    }

    /// Signal sent to the parent at exit; 0 for none.
    pub fn exit_signal(&self) -> i32 {
        self.exit_signal
    }

    /// The parent is sent SIGCHLD, whatever clone(2) asked for.
    pub(crate) fn reset_exit_signal(&mut self) {
        self.exit_signal = Signal::SIGCHLD.raw();
    }

    /// Moves the process to another process group.
    pub(crate) fn set_pgrp(&mut self, pgrp: Attached) {
        self.pgrp = pgrp;
    }

    /// Makes the process the leader of a new session and of a process group in it.
    pub(crate) fn begin_session(&mut self) {
        self.session = self.pid.clone();
        self.pgrp = self.pid.clone();
    }

    /// What is left of it, once its last thread has left.
    pub fn zombie(&self) -> Option<Zombie> {
        match self.group.signals.lock().life {
            Life::Dead(zombie) => Some(zombie),
            _ => None,
        }
    }

    /// Whether its last thread has left.
    pub fn is_zombie(&self) -> bool {
        matches!(self.group.signals.lock().life, Life::Dead(_))
    }
}

impl Node {
    /// Real user id of the process, for SIGCHLD.
    pub fn uid(&self) -> u32 {
        match self.zombie() {
            Some(z) => z.uid,
            None => self.group.any_thread().map_or(0, |t| t.creds().uid),
        }
    }
}

/// What a new process inherits of its place among the others.
#[derive(Clone)]
pub(crate) struct Relations {
    pub parent: i32,
    pub parent_tid: i32,
    pub pgrp: Attached,
    pub session: Attached,
    pub exit_signal: i32,
}

impl Tree {
    /// A process.
    pub fn node(&self, tgid: i32) -> Option<&Node> {
        self.nodes.get(&tgid)
    }

    pub(crate) fn node_mut(&mut self, tgid: i32) -> Option<&mut Node> {
        self.nodes.get_mut(&tgid)
    }

    /// All processes, zombies included, in order of their IDs.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// A live thread.
    pub fn task(&self, tid: i32) -> Option<&Arc<Task>> {
        self.tasks.get(&tid)
    }

    /// All live threads.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = &Arc<Task>> {
        self.tasks.values()
    }

    /// The controlling terminal of a session.
    pub fn terminal(&self, sid: i32) -> Option<&Arc<tty::Pty>> {
        self.terminals.get(&sid)
    }

    /// Gives a session a controlling terminal, or takes it away; gives the old one.
    pub(crate) fn set_terminal(&mut self, sid: i32, tty: Option<Arc<tty::Pty>>) -> Option<Arc<tty::Pty>> {
        match tty {
            Some(tty) => self.terminals.insert(sid, tty),
            None => self.terminals.remove(&sid),
        }
    }

    /// Enters a process, the youngest child of its parent.
    pub(crate) fn add_process(&mut self, node: Node) {
        let tgid = node.group.tgid;
        if let Some(parent) = self.nodes.get_mut(&node.parent) {
            parent.children.push(tgid);
        }
        self.nodes.insert(tgid, node);
    }

    /// Enters a thread under its ID.
    pub(crate) fn add_task(&mut self, task: Arc<Task>) {
        self.tasks.insert(task.tid(), task);
    }

    /// Forgets the thread with this ID.
    pub(crate) fn remove_task(&mut self, tid: i32) -> Option<Arc<Task>> {
        self.tasks.remove(&tid)
    }

    /// The thread `from` of a process is gone: its children become those of `to`, another thread. Gives those children.
    pub(crate) fn hand_to_thread(&mut self, tgid: i32, from: i32, to: i32) -> Vec<Arc<ThreadGroup>> {
        let children = self.nodes.get(&tgid).map_or(Vec::new(), |n| n.children.clone());
        let mut handed = Vec::new();
        for child in children {
            if let Some(n) = self.nodes.get_mut(&child).filter(|n| n.parent_tid == from) {
                n.parent_tid = to;
                handed.push(n.group.clone());
            }
        }
        handed
    }

    /// A process has ended: its children become those of its reaper. Gives the reaper and the children.
    pub(crate) fn hand_children_on(&mut self, tgid: i32) -> (i32, Vec<i32>) {
        let reaper = self.reaper_of(tgid);
        let mut children = self.nodes.get_mut(&tgid).map_or(Vec::new(), |n| std::mem::take(&mut n.children));
        children.retain(|child| {
            let Some(n) = self.nodes.get_mut(child) else { return false };
            n.parent = reaper;
            n.reset_exit_signal();
            for thread in &n.group.signals.lock().threads {
                thread.tell_parent(reaper);
            }
            true
        });
        if let Some(r) = self.nodes.get_mut(&reaper) {
            r.children.extend(&children);
        }
        (reaper, children)
    }

    /// True when the process group exists in the session.
    pub fn pgrp_in_session(&self, pgid: i32, sid: i32) -> bool {
        self.nodes.values().any(|n| n.pgid() == pgid && n.sid() == sid)
    }

    /// A process group is orphaned when no member has a parent in another group of the session.
    /// `without` is left out of the count (a process that is just ending).
    pub fn is_orphaned(&self, pgid: i32, without: Option<i32>) -> bool {
        !self.nodes.values().any(|n| {
            n.pgid() == pgid
                && Some(n.group.tgid) != without
                && !n.is_zombie()
                && self.nodes.get(&n.parent).is_some_and(|p| p.pgid() != pgid && p.sid() == n.sid())
        })
    }

    /// True when a member of the group is stopped.
    pub fn has_stopped(&self, pgid: i32) -> bool {
        self.nodes.values().any(|n| n.pgid() == pgid && n.group.signals.lock().stop.is_on())
    }

    /// Where orphans of `tgid` go: the nearest living ancestor that is a subreaper, else its namespace's init.
    pub fn reaper_of(&self, tgid: i32) -> i32 {
        use std::sync::atomic::Ordering::Relaxed;
        let mut at = self.nodes.get(&tgid).map_or(0, |n| n.parent);
        let ns = self.nodes.get(&tgid).and_then(|n| n.pid.ns());
        let inside = |n: &&Node| !n.pid.is_child_reaper() && ns.is_some_and(|ns| n.pid.is_of(ns));
        while let Some(n) = self.nodes.get(&at).filter(inside) {
            if n.group.subreaper.load(Relaxed) && !n.is_zombie() {
                return at;
            }
            at = n.parent;
        }
        ns.and_then(|ns| ns.find(1)).map_or(0, |init| init.nr())
    }

    /// The control group that a process is shown in: that of its leader, or the last one that it was in.
    pub fn cgroup_of(&self, tgid: i32) -> Option<Arc<Cgroup>> {
        let n = self.nodes.get(&tgid)?;
        match &n.leader {
            Some(leader) => leader.cgroup.as_ref().map(|charge| charge.group().clone()),
            None => self.tasks.get(&tgid).map(|task| task.cgroup.group()),
        }
    }

    /// The thread group leader `tgid` has left; its id stays taken until the process is waited for.
    pub(crate) fn leader_left(&mut self, tgid: i32, leader: Leader) {
        if let Some(n) = self.nodes.get_mut(&tgid)
            && n.leader.replace(leader).is_none()
        {
            self.unreaped += 1;
        }
    }

    /// Another thread of the process has become its leader, as execve(2) makes it.
    pub(crate) fn leader_replaced(&mut self, tgid: i32) {
        let old = self.nodes.get_mut(&tgid).and_then(|n| n.leader.take());
        self.unreaped -= usize::from(old.is_some());
        drop(old);
    }

    /// Thread group leaders that have left a process that has not been waited for. Like Linux, every limit on tasks
    /// counts them beside the live threads.
    pub fn unreaped(&self) -> usize {
        self.unreaped
    }

    /// Live threads and unreaped leaders for which `of` holds: it gets the process and the credentials.
    pub(crate) fn count_tasks(&self, of: impl Fn(&ThreadGroup, &Credentials) -> bool) -> usize {
        let live = self.tasks.values().filter(|t| of(&t.group, &t.creds())).count();
        let unreaped = |n: &&Node| n.leader.as_ref().is_some_and(|l| of(&n.group, &l.creds));
        let zombies = self.tracees.count_zombies(|group| {
            let leader = self.nodes.get(&group.tgid).and_then(|n| n.group.any_thread());
            leader.is_some_and(|t| of(group, &t.creds()))
        });
        live + zombies + if self.unreaped == 0 { 0 } else { self.nodes.values().filter(unreaped).count() }
    }

    /// Forgets a zombie that was waited for. Gives what is left of it, to be dropped after the lock.
    #[must_use = "dropping it may take a whole container apart, which is not for under the lock"]
    pub fn release(&mut self, tgid: i32) -> Option<Node> {
        let n = self.nodes.remove(&tgid)?;
        drop(self.untrace(tgid, None));
        if let Some(p) = self.nodes.get_mut(&n.parent) {
            p.children.retain(|&c| c != tgid);
        }
        self.unreaped -= usize::from(n.leader.is_some());
        let mut s = n.group.signals.lock();
        s.life = Life::Reaped(s.life.status().unwrap_or(0));
        // Queued signals count for their user no longer, even if the group is still referred to.
        s.shared.remove(SigSet::ALL);
        drop(s);
        Some(n)
    }
}
