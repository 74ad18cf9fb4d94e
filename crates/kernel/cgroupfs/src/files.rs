//! The files of a group: their text, and writes to them.

use abi::{Errno, Result};
use cgroup::{Cgroup, Controllers, CpuMax, Limit, MOST_PIDS, Notice};
use kernfs::parse_int;
use rights::Credentials;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use task::{Kernel, Mover, Task};
use vfs::Caller;

/// The caller that a file is read or written for.
pub(crate) struct At<'a> {
    pub kernel: &'a Arc<Kernel>,
    pub group: &'a Arc<Cgroup>,
    pub cx: &'a dyn Caller,
    /// Credentials of the opener of the file, and the ID of the root of its cgroup namespace.
    pub opener: &'a Arc<Credentials>,
    pub root: u64,
}

type Show = fn(&At) -> Result<String>;
type Store = fn(&At, &str) -> Result<()>;

/// A file that groups have.
pub(crate) struct File {
    pub name: &'static str,
    pub show: Option<Show>,
    pub store: Option<Store>,
    /// The controller that it belongs to.
    controller: Controllers,
    /// It may be written in the root of a namespace from within (CFTYPE_NS_DELEGATABLE).
    pub delegated: bool,
    /// It tells of changes.
    pub notice: Option<fn(&Cgroup) -> &Notice>,
}

const fn file(name: &'static str, show: Option<Show>, store: Option<Store>) -> File {
    File { name, show, store, controller: Controllers::empty(), delegated: false, notice: None }
}

const fn delegated(name: &'static str, show: Show, store: Store) -> File {
    File { delegated: true, ..file(name, Some(show), Some(store)) }
}

const fn pids(name: &'static str, show: Show, store: Option<Store>) -> File {
    File { controller: Controllers::PIDS, ..file(name, Some(show), store) }
}

const fn cpu(name: &'static str, show: Show, store: Store) -> File {
    File { controller: Controllers::CPU, ..file(name, Some(show), Some(store)) }
}

const fn telling(of: File, notice: fn(&Cgroup) -> &Notice) -> File {
    File { notice: Some(notice), ..of }
}

/// All of them.
/// The name of a file, or that of the directory itself, which is empty.
pub fn name_of(file: &str) -> Option<&'static str> {
    FILES.iter().map(|known| known.name).chain([""]).find(|known| *known == file)
}

pub(crate) static FILES: [File; 22] = [
    file("cgroup.type", Some(|_| Ok("domain\n".into())), Some(set_type)),
    delegated("cgroup.procs", procs, add_process),
    delegated("cgroup.threads", threads, add_thread),
    file("cgroup.controllers", Some(|at| Ok(named_line(at.group.controllers()))), None),
    delegated("cgroup.subtree_control", |at| Ok(named_line(at.group.subtree_control())), set_control),
    telling(file("cgroup.events", Some(events), None), Cgroup::events),
    file("cgroup.max.descendants", Some(|at| Ok(format!("{}\n", at.group.max().1))), Some(set_descendants)),
    file("cgroup.max.depth", Some(|at| Ok(format!("{}\n", at.group.max().0))), Some(set_depth)),
    file("cgroup.stat", Some(stat), None),
    file("cgroup.freeze", Some(|at| Ok(format!("{}\n", u8::from(at.group.freezes())))), Some(set_freeze)),
    file("cgroup.kill", None, Some(kill)),
    file("cpu.stat", Some(cpu_stat), None),
    cpu("cpu.weight", |at| Ok(format!("{}\n", at.group.cpu_weight())), set_cpu_weight),
    cpu("cpu.weight.nice", |at| Ok(format!("{}\n", at.group.cpu_nice())), set_cpu_nice),
    cpu("cpu.idle", |at| Ok(format!("{}\n", u8::from(at.group.is_cpu_idle()))), set_cpu_idle),
    cpu("cpu.max", cpu_max, set_cpu_max),
    cpu("cpu.max.burst", |at| Ok(format!("{}\n", at.group.cpu_max().burst.as_micros())), set_cpu_burst),
    pids("pids.current", |at| Ok(format!("{}\n", at.group.pids().current)), None),
    pids("pids.max", pids_max, Some(set_pids_max)),
    telling(
        pids("pids.events", |at| Ok(format!("max {}\n", at.group.pids().events)), None),
        Cgroup::pids_events,
    ),
    telling(
        pids("pids.events.local", |at| Ok(format!("max {}\n", at.group.pids().events_local)), None),
        Cgroup::pids_events_local,
    ),
    pids("pids.peak", |at| Ok(format!("{}\n", at.group.pids().peak)), None),
];

impl File {
    /// Whether a group has it.
    pub fn is_in(&self, group: &Cgroup) -> bool {
        group.controllers().contains(self.controller)
    }

    /// Permission bits, unless they were changed.
    pub fn mode(&self) -> u32 {
        let read = if self.show.is_some() { 0o444 } else { 0 };
        let write = if self.store.is_some() { 0o200 } else { 0 };
        read | write
    }
}

/// Their names on a line; nothing when there are none.
fn named_line(controllers: Controllers) -> String {
    if controllers.is_empty() { String::new() } else { controllers.names() + "\n" }
}

fn set_type(_at: &At, text: &str) -> Result<()> {
    // No group is threaded, nor can one be made so.
    Err(if text == "threaded" { Errno::EOPNOTSUPP } else { Errno::EINVAL })
}

fn lines(ids: impl Iterator<Item = i32>) -> String {
    let mut ids: Vec<i32> = ids.collect();
    ids.sort_unstable();
    ids.iter().fold(String::new(), |mut out, id| {
        let _ = writeln!(out, "{id}");
        out
    })
}

/// Processes with a live thread and with a leader that is, or was at its end, in the group.
fn procs(at: &At) -> Result<String> {
    let tree = at.kernel.tree.lock();
    let inside = |tgid: i32| tree.cgroup_of(tgid).is_some_and(|group| Arc::ptr_eq(&group, at.group));
    let alive = tree.nodes().filter(|n| !n.group.signals.lock().threads.is_empty()).map(|n| n.group.tgid);
    let ids: Vec<i32> = alive.filter(|tgid| inside(*tgid)).collect();
    drop(tree);
    Ok(lines(ids.into_iter().map(|id| at.cx.pid_vnr(id))))
}

fn threads(at: &At) -> Result<String> {
    Ok(lines(at.kernel.tasks_in(at.group).iter().map(|task| at.cx.pid_vnr(task.tid()))))
}

/// The task that the writer calls by the number in the text; the writer itself for 0. EINVAL, ESRCH.
fn named(at: &At, text: &str) -> Result<(i32, Arc<Task>)> {
    let number = parse_int(text.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let number = i32::try_from(number).ok().filter(|n| *n >= 0).ok_or(Errno::EINVAL)?;
    let id = if number == 0 { at.cx.tid() } else { at.cx.find_vpid(number) };
    let tree = at.kernel.tree.lock();
    if let Some(task) = tree.task(id) {
        return Ok((id, task.clone()));
    }
    // A leader that has left stands for its process.
    let left = tree.node(id).ok_or(Errno::ESRCH)?;
    Ok((id, left.group.any_thread().ok_or(Errno::ESRCH)?))
}

fn mover<'a>(at: &At<'a>) -> Mover<'a> {
    Mover { creds: at.opener, root: at.root }
}

fn add_process(at: &At, text: &str) -> Result<()> {
    match named(at, text) {
        Ok((_, task)) => at.kernel.move_process(&task, at.group, &mover(at)),
        // A zombie is nowhere any more, and stays so.
        Err(Errno::ESRCH) if is_zombie(at, text) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_zombie(at: &At, text: &str) -> bool {
    let number = parse_int(text.as_bytes()).ok().and_then(|n| i32::try_from(n).ok());
    number.is_some_and(|n| at.kernel.group(at.cx.find_vpid(n)).is_some())
}

fn add_thread(at: &At, text: &str) -> Result<()> {
    let (id, task) = named(at, text)?;
    if task.tid() != id {
        return Ok(());
    }
    at.kernel.move_thread(&task, at.group, &mover(at))
}

fn set_control(at: &At, text: &str) -> Result<()> {
    let (enable, disable) = Controllers::parse(text)?;
    at.group.set_subtree_control(enable, disable)
}

fn events(at: &At) -> Result<String> {
    let (populated, frozen) = (at.group.is_populated(), at.group.is_frozen());
    Ok(format!("populated {}\nfrozen {}\n", u8::from(populated), u8::from(frozen)))
}

/// A limit on groups: `max`, or a number. EINVAL, ERANGE.
fn limit(text: &str) -> Result<Limit> {
    if text == "max" {
        return Ok(Limit(None));
    }
    let number = i32::try_from(parse_int(text.as_bytes())?).map_err(|_| Errno::ERANGE)?;
    Ok(Limit(Some(u32::try_from(number).map_err(|_| Errno::ERANGE)?)))
}

fn set_descendants(at: &At, text: &str) -> Result<()> {
    at.group.set_max_descendants(limit(text)?)
}

fn set_depth(at: &At, text: &str) -> Result<()> {
    at.group.set_max_depth(limit(text)?)
}

fn stat(at: &At) -> Result<String> {
    let (live, dying) = at.group.descendants();
    Ok(format!("nr_descendants {live}\nnr_dying_descendants {dying}\n"))
}

/// 0 or 1; ERANGE for other numbers.
fn switch(text: &str) -> Result<bool> {
    match parse_int(text.as_bytes())? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::ERANGE),
    }
}

fn set_freeze(at: &At, text: &str) -> Result<()> {
    at.kernel.freeze_group(at.group, switch(text)?)
}

fn kill(at: &At, text: &str) -> Result<()> {
    if switch(text)? { at.kernel.kill_group(at.group, at.cx) } else { Err(Errno::ERANGE) }
}

fn cpu_stat(at: &At) -> Result<String> {
    let [user, system] = at.kernel.time_in(at.group).map(|ns| ns / 1000);
    let mut text = format!("usage_usec {}\nuser_usec {user}\nsystem_usec {system}\n", user + system);
    if at.group.controllers().contains(Controllers::CPU) {
        let stat = at.group.cpu_stat();
        let _ = writeln!(
            text,
            "nr_periods {}\nnr_throttled {}\nthrottled_usec {}\nnr_bursts {}\nburst_usec {}",
            stat.periods,
            stat.throttled,
            stat.throttled_time.as_micros(),
            stat.bursts,
            stat.burst_time.as_micros()
        );
    }
    Ok(text)
}

fn set_cpu_weight(at: &At, text: &str) -> Result<()> {
    let weight = u64::try_from(parse_int(text.as_bytes())?).map_err(|_| Errno::EINVAL)?;
    at.group.set_cpu_weight(u32::try_from(weight).map_err(|_| Errno::ERANGE)?)
}

fn set_cpu_nice(at: &At, text: &str) -> Result<()> {
    at.group.set_cpu_nice(i32::try_from(parse_int(text.as_bytes())?).map_err(|_| Errno::ERANGE)?)
}

fn set_cpu_idle(at: &At, text: &str) -> Result<()> {
    match parse_int(text.as_bytes())? {
        on @ (0 | 1) => at.group.set_cpu_idle(on == 1),
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

fn cpu_max(at: &At) -> Result<String> {
    let CpuMax { quota, period, .. } = at.group.cpu_max();
    let quota = quota.map_or("max".to_owned(), |quota| quota.as_micros().to_string());
    Ok(format!("{quota} {}\n", period.as_micros()))
}

/// `QUOTA [PERIOD]` in microseconds; a quota of `max` is none. Without a period it stays as it is.
fn set_cpu_max(at: &At, text: &str) -> Result<()> {
    let mut words = text.split_ascii_whitespace();
    let micros = |word: &str| word.parse().map(Duration::from_micros).map_err(|_| Errno::EINVAL);
    let quota = match words.next().ok_or(Errno::EINVAL)? {
        "max" => None,
        quota => Some(micros(quota)?),
    };
    let old = at.group.cpu_max();
    let period = words.next().map_or(Ok(old.period), micros)?;
    at.kernel.set_cpu_max(at.group, CpuMax { quota, period, ..old })
}

fn set_cpu_burst(at: &At, text: &str) -> Result<()> {
    let micros = u64::try_from(parse_int(text.as_bytes())?).map_err(|_| Errno::EINVAL)?;
    let burst = Duration::from_micros(micros);
    at.kernel.set_cpu_max(at.group, CpuMax { burst, ..at.group.cpu_max() })
}

fn pids_max(at: &At) -> Result<String> {
    match at.group.pids().max {
        u64::MAX => Ok("max\n".into()),
        max => Ok(format!("{max}\n")),
    }
}

fn set_pids_max(at: &At, text: &str) -> Result<()> {
    let max = match text {
        "max" => u64::MAX,
        number => {
            let number = parse_int(number.as_bytes())?;
            u64::try_from(number).ok().filter(|n| *n <= MOST_PIDS).ok_or(Errno::EINVAL)?
        }
    };
    at.group.set_pids_max(max);
    Ok(())
}
