//! What control groups mean for tasks: moving them, having them stand still, ending them. See cgroups(7).
//!
//! A move holds the process tree, and inside it the tree of groups, so no task begins or ends meanwhile. Tasks are
//! woken and changes told after both.

use crate::current::Current;
use crate::kernel::Kernel;
use crate::send::Sender;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::{Errno, Result, SigInfo, Signal};
use cgroup::{Cgroup, Changes};
use container::Container;
use rights::Credentials;
use signal::{DefaultAction, default_action};
use std::collections::HashSet;
use std::sync::Arc;
use vfs::Caller;
use wait::{Events, Wake};

/// The requester of a move.
pub struct Mover<'a> {
    /// Credentials of the opener of the file.
    pub creds: &'a Credentials,
    /// ID of the root of the cgroup namespace in which it was opened.
    pub root: u64,
}

impl Kernel {
    /// The group of a process that is put into a container from outside: the container's own, or if that takes none,
    /// the one of its first process.
    pub fn group_for(&self, container: &Container) -> Arc<Cgroup> {
        let root = container.cgroup();
        if root.check_takes_processes().is_ok() {
            return root.clone();
        }
        let first = self.tree.lock().cgroup_of(container.first());
        first.filter(|group| !group.is_removed()).unwrap_or_else(|| root.clone())
    }

    /// The live threads that are in a group itself.
    pub fn tasks_in(&self, group: &Arc<Cgroup>) -> Vec<Arc<Task>> {
        let inside = |task: &&Arc<Task>| Arc::ptr_eq(&task.cgroup.group(), group);
        self.tree.lock().tasks().filter(inside).cloned().collect()
    }

    /// The live threads in a group and below it.
    fn tasks_below(&self, group: &Cgroup) -> Vec<Arc<Task>> {
        self.tree.lock().tasks().filter(|task| task.cgroup.group().is_within(group)).cloned().collect()
    }

    /// Moves a process to another group. EACCES, ENOENT as [`Cgroup::check_migration`]; EBUSY, ENODEV.
    pub fn move_process(&self, task: &Arc<Task>, to: &Arc<Cgroup>, by: &Mover) -> Result<()> {
        let mut changes = Changes::default();
        let moved = {
            let tree = self.tree.lock();
            let from = tree.cgroup_of(task.tgid()).ok_or(Errno::ESRCH)?;
            to.check_alive()?;
            from.check_migration(to, by.creds, by.root)?;
            to.check_takes_processes()?;
            if !Arc::ptr_eq(&from, to) {
                task.group.settle_time(&from);
            }
            let mut threads = task.group.threads();
            threads.retain(|thread| thread.cgroup.move_to(to, &mut changes));
            threads
        };
        changes.tell();
        // A group with a thread of the process cannot be removed: either all have moved or none.
        if let Some(thread) = moved.first().filter(|thread| !Arc::ptr_eq(&thread.cgroup.group(), to)) {
            thread.cgroup.group().check_alive()?;
            to.check_alive()?;
        }
        moved.iter().for_each(|thread| thread.look_at_group());
        Ok(())
    }

    /// Moves a thread, which may only stay in the group of its process, as no group is threaded: EOPNOTSUPP for any
    /// other.
    pub fn move_thread(&self, task: &Arc<Task>, to: &Arc<Cgroup>, by: &Mover) -> Result<()> {
        let from = task.cgroup.group();
        to.check_alive()?;
        from.check_migration(to, by.creds, by.root)?;
        to.check_takes_processes()?;
        if Arc::ptr_eq(&from, to) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// The live processes with their groups.
    pub(crate) fn grouped(&self) -> Vec<(Arc<Cgroup>, Arc<ThreadGroup>)> {
        let tree = self.tree.lock();
        let alive = tree.nodes().filter(|n| !n.is_zombie());
        alive.filter_map(|n| Some((tree.cgroup_of(n.group.tgid)?, n.group.clone()))).collect()
    }

    /// Processor time that was used in a group and below it, user and system, in nanoseconds.
    pub fn time_in(&self, group: &Arc<Cgroup>) -> [u64; 2] {
        let inside = self.grouped().into_iter().filter(|(of, _)| of.is_within(group));
        inside.fold(group.past_time(), |sum, (_, process)| {
            let counted = *process.grouped_time.lock();
            let more = process.new_time(&counted);
            [sum[0] + more[0], sum[1] + more[1]]
        })
    }

    /// cgroup.freeze: the tasks of the group and of all below it stand still, or go on. ENODEV.
    pub fn freeze_group(&self, group: &Arc<Cgroup>, on: bool) -> Result<()> {
        group.set_freeze(on)?.tell();
        self.tasks_below(group).iter().for_each(|task| task.look_at_group());
        Ok(())
    }

    /// cgroup.kill: SIGKILL for all processes of the group and of those below it. ENODEV.
    pub fn kill_group(&self, group: &Arc<Cgroup>, cx: &dyn Caller) -> Result<()> {
        group.kill()?;
        let sender = self.pids.find(cx.pid());
        let mut told = HashSet::new();
        // A process may fork before its signal comes: repeated until there is no new one.
        loop {
            let before = told.len();
            for task in self.tasks_below(group) {
                let process = &task.group;
                if !told.insert(process.tgid) {
                    continue;
                }
                let from = sender.as_ref().map_or(0, |pid| pid.nr_in(process.pids_seen()));
                let _ = process.send(SigInfo::user(Signal::SIGKILL, libc::SI_USER, from, cx.creds().uid));
            }
            if told.len() == before {
                return Ok(());
            }
        }
    }
}

impl Task {
    /// The group of the task, or whether that stands still, is another.
    fn look_at_group(&self) {
        if self.cgroup.is_freezing() {
            self.kick();
        } else {
            Wake::wake(&*self.waiter, Events::ERR);
        }
    }
}

impl Current {
    /// Stands still while the group is frozen; true when there may be something else to look at. Signals wait, but
    /// for a fatal one.
    pub(crate) fn stand_still(&self) -> bool {
        let place = &self.task.cgroup;
        if !place.is_freezing() || self.is_about_to_die() {
            place.set_frozen(false);
            return false;
        }
        place.set_frozen(true);
        while place.is_freezing() && !self.dying() {
            if self.sleep(None).is_err() {
                break;
            }
        }
        true
    }

    /// A signal is pending that ends the process, without a core file and without a tracer that has to be asked.
    fn is_about_to_die(&self) -> bool {
        let task = &self.task;
        if task.trace.is_traced() || !task.has_deliverable() {
            return false;
        }
        let pending = task.deliverable();
        let fatal = |sig: &Signal| {
            default_action(*sig) == DefaultAction::Terminate
                && task.group.by_default(*sig)
                && !task.group.is_immune(*sig, Sender::Inside)
        };
        (1..=64).filter_map(Signal::new).filter(|sig| pending.has(*sig)).any(|sig| fatal(&sig))
    }
}
