//! The end of threads and processes. See exit_group(2), wait(2), credentials(7).

use crate::current::Current;
use crate::kernel::Kernel;
use crate::life::{Departure, Life, Zombie};
use crate::resource::ThreadHandle;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::{Leader, Node, Tree};
use abi::{SigInfo, Signal};
use cgroup::Changes;
use platform::{Action, Context, Word};
use rights::Creds;
use sched::{HostCounts, Usage, add_counts, add_io};
use signal::SIG_IGN;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wait::Events;

impl Current {
    /// exit_group(2): ends the process with a wait status.
    pub fn exit_group(&mut self, status: i32) {
        let mut s = self.task.group.signals.lock();
        crate::send::kill_group(&self.task.group, &mut s, status);
        drop(s);
        self.exit_code = Some(status);
    }
}

/// Takes a thread out of the kernel. The last one makes the process a zombie.
pub(crate) fn leave(mut c: Current) {
    let (task, group) = (c.task.clone(), c.task.group.clone());
    task.note_end();
    crate::futex::release(&mut c, true);
    let last_to_begin = group.signals.lock().begin_to_leave(&task);
    let shared_memory = !last_to_begin || c.mm.users.shared() || group.signals.lock().threads.len() > 1;
    let clear_child_tid = task.word(Word::ClearChildTid);
    if clear_child_tid != 0 && shared_memory {
        c.ctx.queue(Action::StoreAndWake { addr: clear_child_tid, value: Some(0), wake: 1 });
    }
    if last_to_begin {
        c.measure_end();
    }
    let own_status = c.exit_code.unwrap_or(0);
    let (ctx, mm) = give_up(c);
    let mut notices = Notices::default();
    let departure = depart(&task, own_status, &mut notices);
    if let Some((_, begun)) = departure.last {
        retire_memory(&group, &mm, begun);
    }
    // The guest's thread waits for an answer (one that does not is killed later, see `retire_memory`). That of the last one
    // comes when everybody has been told: the host then takes its memory apart, which takes a while, on this CPU as likely as not.
    let mut end = Some((ctx, mm));
    let mut end_now = || {
        if let Some((ctx, mm)) = end.take() {
            ctx.exit();
            drop(mm);
        }
    };
    if departure.last.is_none() || shared_memory {
        end_now();
    }
    let gate = task.vfork.lock().take();
    if let Some(gate) = gate {
        gate.open();
    }
    if let Some(sig) = departure.stopped {
        task.kernel().tell_parent_stopped(&group, sig);
    }
    group.thread_exit.notify(Events::ALL);
    notices.send();
    if let Some((status, _)) = departure.last {
        end_group(&task, &group, status);
    }
    end_now();
}

/// Takes a thread out of the kernel that was set up but never ran. Of a process nobody learns that it has been there.
pub fn abandon(c: Current) {
    let (task, group) = (c.task.clone(), c.task.group.clone());
    task.note_end();
    group.signals.lock().begin_to_leave(&task);
    if task.tid() == group.tgid {
        group.close_namespace();
    }
    let (ctx, mm) = give_up(c);
    let mut notices = Notices::default();
    let departure = depart(&task, 0, &mut notices);
    if let Some((_, begun)) = departure.last {
        retire_memory(&group, &mm, begun);
    }
    ctx.exit();
    drop(mm);
    if let Some(sig) = departure.stopped {
        task.kernel().tell_parent_stopped(&group, sig);
    }
    group.thread_exit.notify(Events::ALL);
    notices.send();
    match departure.last {
        // The others of its process have left meanwhile, and it would have been for them to end it.
        Some((status, _)) if task.tid() != group.tgid => end_group(&task, &group, status),
        Some(_) => forget(&group),
        None => {}
    }
}

/// Takes a process that never ran out of the tables; its parent's wait looks again.
fn forget(group: &Arc<ThreadGroup>) {
    group.timers.clear(false);
    let (gone, parent) = {
        let mut t = group.kernel.tree.lock();
        let gone = t.release(group.tgid);
        let parent = gone.as_ref().and_then(|n| t.node(n.parent())).map(|p| p.group.clone());
        (gone, parent)
    };
    if let Some(p) = parent {
        p.child_wait.notify(Events::IN);
    }
    drop(gone);
}

/// Gives up what a thread may share with others, but for its memory.
fn give_up(c: Current) -> (Box<dyn Context>, ThreadHandle<Arc<mm::Mm>>) {
    let caller = c.caller();
    let Current { task, ctx, mm, fd_table, fs_context, .. } = c;
    // The last who has the list makes its adjustments.
    let undo = task.sem_undo.lock().take();
    drop(undo);
    let (table, fs) = (fd_table.give_up(&task.fds_slot), fs_context.give_up(&task.fs_slot));
    if let Some(table) = table.leave() {
        table.close_all(&caller);
    }
    drop(fs);
    task.set_interrupter(None);
    (ctx, mm)
}

/// Removes a thread from its group and from the tables, in one step under the tree's lock. Whether it was the last one is
/// decided there.
fn depart(task: &Arc<Task>, own_status: i32, notices: &mut Notices) -> Departure {
    let group = &task.group;
    let system_time = task.sentry_time();
    let mut t = group.kernel.tree.lock();
    let departure = {
        let mut s = group.signals.lock();
        {
            let mut usage = group.usage.lock();
            usage.stime += system_time;
            add_io(&mut usage.io, task.io.now());
            add_blocks(&mut usage.counts, task.blocks.each_ref().map(|b| b.load(Ordering::Relaxed)));
        }
        task.host_tid.store(0, Ordering::Relaxed);
        group.kernel.past_sleeps.fetch_add(task.waiter.sleeps(), Ordering::Relaxed);
        task.pending.lock().remove(abi::SigSet::ALL);
        s.remove(task, own_status)
    };
    if departure.last.is_none() {
        hand_children_to_thread(&mut t, task, notices);
    }
    let untraced = t.tracer_left(task, notices);
    let charge = task.cgroup.leave(&mut notices.cgroups);
    let tid = task.tid();
    if t.task(tid).is_some_and(|x| Arc::ptr_eq(x, task)) {
        t.remove_task(tid);
        let creds = Creds::into_inner(task.creds());
        t.leader_left(tid, Leader { scheduling: task.scheduling.clone(), creds, cgroup: charge });
        let status = group.signals.lock().life.status().unwrap_or(own_status);
        if !t.tracee_left(task, status, notices) {
            task.release_pid();
        }
    }
    drop(t);
    drop(untraced);
    departure
}

/// A thread has left and others remain: its children become those of another thread, and hear of it by their PR_SET_PDEATHSIG.
/// When the process ends that follows once, from [`end_group`].
fn hand_children_to_thread(t: &mut Tree, task: &Task, notices: &mut Notices) {
    let heir = {
        let s = task.group.signals.lock();
        let stays = |t: &&Arc<Task>| !t.is_leaving() && !s.life.ends(t.tid());
        s.threads.iter().find(stays).map(|t| t.tid())
    };
    let Some(heir) = heir else { return };
    let uid = task.creds().uid;
    for child in t.hand_to_thread(task.tgid(), task.tid(), heir) {
        tell_of_death(&task.group, &child, uid, notices);
    }
}

/// Sends the signals that threads of `child` have asked for with PR_SET_PDEATHSIG. `uid` is the parent's real user ID.
fn tell_of_death(parent: &ThreadGroup, child: &Arc<ThreadGroup>, uid: u32, notices: &mut Notices) {
    for thread in child.threads() {
        if let Some(sig) = Signal::new(thread.pdeathsig.load(Ordering::Relaxed)) {
            let info = SigInfo::user(sig, libc::SI_USER, parent.pid_for(child), uid);
            notices.signals.push((child.clone(), info));
        }
    }
}

/// A group that uses an address space begins to end.
pub(crate) fn begin_end(group: &ThreadGroup, mm: &mm::Mm) {
    if mm.users.begin_end() {
        group.kernel.kill_later(&mm.space);
    }
}

/// The last thread of a group leaves an address space: its user time is kept, and returned. When nobody is left, or only
/// groups that end, the host's process is to end soon, whatever its threads make of what they are told. `ending` says
/// whether [`begin_end`] was called for this group and memory.
pub(crate) fn retire_memory(group: &ThreadGroup, mm: &mm::Mm, ending: bool) -> u64 {
    let ns = group.user_time_in(mm);
    let left = mm.users.leave(ending);
    group.usage.lock().utime += ns;
    group.not_ours.store(0, Ordering::Relaxed);
    if left.none {
        mm.forget_mappings(&group.pid);
    } else {
        mm.users.take(ns);
    }
    if left.only_ending {
        group.kernel.kill_later(&mm.space);
    }
    ns
}

/// Adds blocks that a thread of the kernel has read and written.
fn add_blocks(to: &mut HostCounts, [read, written]: [u64; 2]) {
    add_counts(to, [0, 0, read, written, 0, 0]);
}

impl Current {
    /// Brings what the host counts of the process up to date.
    pub fn measure_usage(&mut self) {
        let blocks = hostsys::process::thread_blocks();
        self.task.blocks.iter().zip(blocks).for_each(|(b, n)| b.store(n, Ordering::Relaxed));
        if let Some(host) = self.ctx.usage(false) {
            // The host counts in batches and may say 0 of a small process; a page is there in any case.
            let mut u = self.task.group.usage.lock();
            u.maxrss = u.maxrss.max(host.maxrss).max(abi::PAGE_SIZE / 1024);
            // A process that began in the memory of another one has a part in what is counted there that nobody knows.
            if self.task.group.not_ours.load(Ordering::Relaxed) == 0 {
                u.image = host.counts;
            }
        }
    }

    /// What the host counts of this thread.
    pub fn thread_counts(&mut self) -> HostCounts {
        let mut counts = self.ctx.usage(true).unwrap_or_default().counts;
        add_blocks(&mut counts, hostsys::process::thread_blocks());
        counts
    }

    /// As [`Current::measure_usage`], when its memory is about to go and somebody may ask.
    pub(crate) fn measure_end(&mut self) {
        if self.kernel().usage_wanted.load(Ordering::Relaxed) {
            self.measure_usage();
        }
    }
}

impl ThreadGroup {
    /// Processor time in guest code since the process uses this address space.
    fn user_time_in(&self, mm: &mm::Mm) -> u64 {
        let all = hostsys::clock::process_cpu_ns(mm.space.host_pid()).unwrap_or(0) as u64;
        all.saturating_sub(mm.users.taken()).saturating_sub(self.not_ours.load(Ordering::Relaxed))
    }

    /// The process begins in memory that another one uses: what that has used is not its own.
    pub(crate) fn begins_in(&self, mm: &mm::Mm) {
        self.not_ours.store(self.user_time_in(mm), Ordering::Relaxed);
    }

    /// User and system time in nanoseconds so far.
    pub fn cpu_times(&self) -> (u64, u64) {
        let threads = self.threads();
        let u = *self.usage.lock();
        let live = threads.first().map_or(0, |t| self.user_time_in(&t.mm()));
        let sys: u64 = threads.iter().map(|t| t.sentry_time()).sum();
        (u.utime + live, u.stime + sys)
    }

    /// Processor time and memory, for rusage.
    pub fn total_usage(&self) -> Usage {
        let (utime, stime) = self.cpu_times();
        let mut usage = Usage { utime, stime, ..*self.usage.lock() };
        for t in self.threads() {
            add_blocks(&mut usage.counts, t.blocks.each_ref().map(|b| b.load(Ordering::Relaxed)));
        }
        usage
    }
}

/// Whom the end of a process concerns, to be told after the tree's lock.
#[derive(Default)]
pub(crate) struct Notices {
    pub(crate) signals: Vec<(Arc<ThreadGroup>, SigInfo)>,
    /// Processes whose wait(2) looks again.
    pub(crate) wake: Vec<Arc<ThreadGroup>>,
    /// Control groups that it has left.
    pub(crate) cgroups: Changes,
}

impl Notices {
    pub(crate) fn send(self) {
        self.cgroups.tell();
        for (g, info) in self.signals {
            let _ = g.send(info);
        }
        for g in self.wake {
            g.child_wait.notify(Events::IN);
        }
    }
}

/// Makes the process a zombie, hands its children on and tells its parent.
fn end_group(task: &Task, group: &Arc<ThreadGroup>, status: i32) {
    let kernel = group.kernel.clone();
    if group.is_init() && group.container.first() != group.tgid {
        empty_namespace(&kernel, group);
    }
    group.timers.clear(false);
    group.settle_time(&task.cgroup.group());
    let usage = group.total_usage();
    let zombie = Zombie { status, uid: task.creds().uid, usage, comm: task.comm() };
    let mut notices = Notices::default();
    {
        let mut t = kernel.tree.lock();
        let Some(n) = t.node_mut(group.tgid) else { return };
        n.report = None;
        group.signals.lock().life = Life::Dead(zombie);
        become_zombie(&mut t, group, zombie.uid, &mut notices);
        report_exit(&mut t, group.tgid, &mut notices);
    }
    crate::jobs::session_leader_left(&kernel, group.tgid);
    group.exit_wait.notify(Events::READABLE);
    notices.send();
    let kill = SigInfo::new(Signal::SIGKILL, crate::kernel::SI_HOST);
    if group.is_init() {
        // With init go all of its namespace, and those of the namespaces inside.
        let mine = |n: &&Node| group.pid.ns().is_some_and(|ns| n.pid.nr_in(ns) > 0);
        let others: Vec<_> = kernel.tree.lock().nodes().filter(mine).map(|n| n.group.clone()).collect();
        for g in others {
            let _ = g.send(kill);
        }
    }
    if group.container.first() == group.tgid {
        kernel.signal_container(&group.container, kill, |_| true);
        group.container.finish(status);
    }
}

/// The init of a nested PID namespace ends: first all others in it do, and nobody is left there when its parent hears of it. Like
/// Linux, it waits for zombies whose parents are outside of the namespace; not beyond the end of the container.
fn empty_namespace(kernel: &Arc<Kernel>, init: &Arc<ThreadGroup>) {
    let kill = SigInfo::new(Signal::SIGKILL, crate::kernel::SI_HOST);
    init.close_namespace();
    while !init.container.is_over() {
        let (mut alive, mut dead, mut left) = (Vec::new(), Vec::new(), false);
        {
            let mut t = kernel.tree.lock();
            let others: Vec<_> =
                t.nodes().filter(|n| n.group.tgid != init.tgid && n.pid.nr_in(&init.pids) > 0).collect();
            let zombies: Vec<i32> = others
                .iter()
                .filter(|n| n.is_zombie() && n.parent() == init.tgid)
                .map(|n| n.group.tgid)
                .collect();
            left |= others.len() > zombies.len();
            alive.extend(others.iter().filter(|n| !n.is_zombie()).map(|n| n.group.clone()));
            dead.extend(zombies.into_iter().map(|tgid| t.release(tgid)));
        }
        drop(dead);
        if !left {
            return;
        }
        for group in alive {
            let _ = group.send(kill);
        }
        kernel.wait_for_an_end(Instant::now() + Duration::from_millis(20));
    }
}

/// What the end of a process means for its children and for process groups. `uid` is its real user ID.
fn become_zombie(t: &mut Tree, group: &Arc<ThreadGroup>, uid: u32, notices: &mut Notices) {
    let tgid = group.tgid;
    let (_, children) = t.hand_children_on(tgid);
    let Some(n) = t.node(tgid) else { return };
    let (pgid, sid) = (n.pgid(), n.sid());
    // Who leaves can orphan its own group, if it was the link to its parent's, and the groups of
    // its children, if it was their link.
    let mut pgids = Vec::new();
    if t.node(n.parent()).is_some_and(|p| p.pgid() != pgid && p.sid() == sid) {
        pgids.push(pgid);
    }
    for child in children {
        let Some(cn) = t.node(child) else { continue };
        if cn.pgid() != pgid && cn.sid() == sid {
            pgids.push(cn.pgid());
        }
        if cn.is_zombie() {
            report_exit(t, child, notices);
        } else {
            tell_of_death(group, &cn.group.clone(), uid, notices);
        }
    }
    pgids.sort_unstable();
    pgids.dedup();
    for pgid in pgids {
        if t.is_orphaned(pgid, Some(tgid)) && t.has_stopped(pgid) {
            for n in t.nodes().filter(|n| n.pgid() == pgid && !n.is_zombie()) {
                for s in [Signal::SIGHUP, Signal::SIGCONT] {
                    notices.signals.push((n.group.clone(), SigInfo::new(s, libc::SI_KERNEL)));
                }
            }
        }
    }
}

/// Queues SIGCHLD (or the clone's own signal) for the parent of a zombie; one whose parent
/// ignores SIGCHLD or has SA_NOCLDWAIT goes at once.
pub(crate) fn report_exit(t: &mut Tree, tgid: i32, notices: &mut Notices) {
    let Some(n) = t.node(tgid) else { return };
    let Some(z) = n.zombie() else { return };
    if let Some(tracer) = t.traces.tracing_group(tgid).filter(|tracer| *tracer != n.parent()) {
        let seen = t.node(tracer).map_or(0, |by| n.group.pid_for(&by.group));
        return t.tell_tracer_of_end(tracer, seen, z.uid, z.status, notices);
    }
    let Some(p) = t.node(n.parent()) else { return };
    let pg = p.group.clone();
    let traced = t.traces.get(tgid).is_some();
    if let Some(sig) = Signal::new(n.exit_signal()) {
        let act = pg.handlers().lock().get(Signal::SIGCHLD);
        let is_chld = sig == Signal::SIGCHLD;
        let unwanted = is_chld && (act.handler == SIG_IGN || act.flags & libc::SA_NOCLDWAIT as u64 != 0);
        if !(is_chld && act.handler == SIG_IGN) {
            let (code, st) = exit_code_of(z.status);
            let tick = 10_000_000;
            let mut info = SigInfo::child(
                code,
                n.group.pid_for(&pg),
                z.uid,
                st,
                z.usage.utime / tick,
                z.usage.stime / tick,
            );
            info.signo = sig.raw();
            notices.signals.push((pg.clone(), info));
        }
        if unwanted && !traced {
            // Let go with the rest, after the lock.
            notices.wake.extend(t.release(tgid).map(|gone| gone.group));
        }
    }
    notices.wake.push(pg);
}

/// si_code and si_status of a wait status.
pub fn exit_code_of(status: i32) -> (i32, i32) {
    if status & 0x7f == 0 {
        (libc::CLD_EXITED, status >> 8 & 0xff)
    } else if status & 0x80 != 0 {
        (libc::CLD_DUMPED, status & 0x7f)
    } else {
        (libc::CLD_KILLED, status & 0x7f)
    }
}
