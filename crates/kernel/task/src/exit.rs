//! The end of threads and processes. See exit_group(2), wait(2), credentials(7).

use crate::current::Current;
use crate::exit_report::{Notices, report_exit};
use crate::kernel::{Kernel, SI_HOST};
use crate::life::{Life, Zombie};
use crate::resource::ThreadHandle;
use crate::reuse::{domain_of, exit_or_keep};
use crate::send::{Others, begin_to_leave, tell_parent_stopped};
use crate::task::Task;
use crate::thread_group::{Departure, Left, ThreadGroup};
use crate::tree::{Leader, Node, Tree};
use crate::usage::{add_blocks, retire_memory, sleeps};
use abi::{SigInfo, Signal};
use platform::{Action, Context, Word};
use policy::Kind;
use rights::Creds;
use sched::{add_counts, add_io};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wait::Events;

/// How far a thread has come when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It was made, and is in no table.
    Made,
    /// It is in the tables, and has not run.
    Entered,
    /// It has run.
    Ran,
}

/// Takes a thread out of the kernel. The last one makes the process a zombie; a process that never ran leaves nothing behind.
pub fn end(mut c: Current, stage: Stage) {
    let (task, group) = (c.task.clone(), c.task.group.clone());
    let never_ran = stage != Stage::Ran && task.tid() == group.tgid;
    task.note_end();
    if stage == Stage::Ran {
        let of_group = group.signals.lock().life.status();
        task.trace_exit(of_group.or(c.exit_code).unwrap_or(0));
        task.police_event(Kind::TaskExit);
        crate::futex::release(&mut c, true);
    }
    let others = match stage {
        Stage::Made => Others::Stay,
        Stage::Entered | Stage::Ran => begin_to_leave(&group.signals.lock(), &task),
    };
    let shared_memory = others != Others::None || c.mm.users.shared();
    if stage == Stage::Ran {
        let clear_child_tid = task.word(Word::ClearChildTid);
        if clear_child_tid != 0 && shared_memory {
            c.ctx.queue(Action::StoreAndWake { addr: clear_child_tid, value: Some(0), wake: 1 });
        }
        if others != Others::Stay {
            c.measure_end();
        }
    } else if never_ran {
        group.close_namespace();
    }
    let dumpable = c.mm.dumpable.load(Ordering::Relaxed) == 1;
    let keeps = stage == Stage::Ran && !shared_memory && dumpable;
    let mut domain = if keeps { domain_of(&task, c.fs(), &task.creds()) } else { None };
    let own_status = c.exit_code.unwrap_or(0);
    let (ctx, mm) = give_up(c);
    let mut notices = Notices::default();
    let departure = match stage {
        Stage::Made => Departure { last: never_ran.then_some((0, false)), stopped: None },
        Stage::Entered | Stage::Ran => depart(&task, own_status, &mut notices),
    };
    if let Some((_, begun)) = departure.last {
        retire_memory(&group, &mm, begun);
    }
    // The guest's thread waits for an answer (one that does not is killed later, see `retire_memory`). The last one gets it when
    // the parent has been told: the host then takes its memory apart, which takes a while, on this CPU as likely as not.
    let mut end = Some((ctx, mm));
    let mut end_now = || {
        if let Some((ctx, mm)) = end.take() {
            exit_or_keep(&group, ctx, domain.take());
            drop(mm);
        }
    };
    if departure.last.is_none() || shared_memory || never_ran {
        end_now();
    }
    let gate = task.vfork.lock().take();
    if let Some(gate) = gate {
        gate.open();
    }
    if let Some(sig) = departure.stopped {
        tell_parent_stopped(&group, sig);
    }
    group.thread_exit.notify(Events::ALL);
    notices.send();
    match departure.last {
        None => {}
        Some(_) if never_ran => forget(&group),
        // Of a thread that never ran, too: the others of its process have left meanwhile, and it would have been for them.
        Some((status, _)) => end_group(&task, &group, status),
    }
    end_now();
}

/// Takes a process that never ran out of the tables, if it is there; its parent's wait looks again.
fn forget(group: &Arc<ThreadGroup>) {
    group.timers.clear();
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
    // The last user of the list makes its adjustments.
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
            add_blocks(&mut usage.counts, task.blocks());
            add_counts(&mut usage.counts, sleeps(task));
        }
        task.host_tid.store(0, Ordering::Relaxed);
        group.container.totals.add(task.totals());
        group.kernel.past_sleeps.fetch_add(task.waiter.sleeps(), Ordering::Relaxed);
        group.kernel.past_waits.fetch_add(task.waited.load(Ordering::Relaxed), Ordering::Relaxed);
        task.pending.lock().remove(abi::SigSet::ALL);
        s.remove(task, own_status)
    };
    if departure.last.is_none() {
        hand_children_to_thread(&mut t, task, notices);
    }
    let untraced = t.tracer_left(task, notices);
    let tid = task.tid();
    let leads = tid == group.tgid;
    let cgroup = if leads { task.cgroup.group().id() } else { 0 };
    let charge = task.cgroup.leave(&mut notices.cgroups);
    if t.task(tid).is_some_and(|x| Arc::ptr_eq(x, task)) {
        t.remove_task(tid);
        let creds = Creds::into_inner(task.creds());
        if leads {
            let _ = group.left.set(Left { user_ns: creds.user_ns.clone(), cgroup });
        }
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

/// Makes the process a zombie, hands its children on and tells its parent.
fn end_group(task: &Arc<Task>, group: &Arc<ThreadGroup>, status: i32) {
    let kernel = group.kernel.clone();
    if group.is_init() && group.container.first() != group.tgid {
        empty_namespace(&kernel, group);
    }
    group.timers.clear();
    group.settle_time(&task.cgroup.group());
    let usage = group.total_usage();
    let zombie = Zombie { status, uid: task.creds().uid, usage, comm: task.comm() };
    task.trace_exit_notify_parent(status);
    task.police_event(Kind::ExitNotifyParent);
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
    let kill = SigInfo::new(Signal::SIGKILL, SI_HOST);
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
        kernel.recycling.forget(Some(group.container.index()));
    }
}

/// The init of a nested PID namespace ends. First all other processes in it end, so the namespace is empty when the
/// parent of init is notified. Like Linux, it waits for zombies with parents outside of the namespace; not beyond the
/// end of the container.
fn empty_namespace(kernel: &Arc<Kernel>, init: &Arc<ThreadGroup>) {
    let kill = SigInfo::new(Signal::SIGKILL, SI_HOST);
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
    // A process that leaves can orphan its own group, if it was the link to its parent's, and the groups of its
    // children, if it was their link.
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
