//! /proc/PID and /proc/PID/task/TID.

pub mod fd;
mod id_map;
mod list;
pub mod map_query;
mod maps;
pub mod memory;
mod misc;
mod ns;
mod smaps;
mod stat;
mod status;
mod timens;
mod tune;

pub use list::PIDS;
use list::{own, own_thread};
pub use stat::ticks;

use abi::{Errno, Result};
use kernfs::{At, Entry, Target, What, empty, link, magic, private, text, writable};
use mm::Mm;
use std::sync::{Arc, Weak};
use vfs::Caller;

/// Files that only a process with the right to look into the process may open. They tell of the memory that it had
/// then.
const BOUND: &[&str] = &["auxv", "environ", "maps", "numa_maps", "smaps", "smaps_rollup"];

/// Of these the ones that cannot be opened when there is no memory any more.
const OF_MEMORY: &[&str] = &["auxv", "environ", "smaps_rollup"];
/// Files that cannot be opened when the process has no mounts any more.
const MOUNTS: &[&str] = &["mounts", "mountinfo", "mountstats"];

/// The check at open.
pub fn check_open(at: &At, entry: &Entry, cx: &dyn Caller) -> Result<Option<Weak<Mm>>> {
    let p = at.proc()?;
    if MOUNTS.contains(&entry.name) && p.task().is_none() {
        return Err(Errno::EINVAL);
    }
    if !BOUND.contains(&entry.name) {
        return Ok(None);
    }
    let mm = p.mm_access(cx)?;
    // What it was started with can be a secret.
    if entry.name == "environ" {
        police_look(cx, p)?;
    }
    match mm {
        Some(mm) => Ok(Some(Arc::downgrade(&mm))),
        None if OF_MEMORY.contains(&entry.name) => Err(Errno::ESRCH),
        None => Ok(Some(Weak::new())),
    }
}

/// The error of a policy that refuses to look into another process.
pub(super) fn police_look(cx: &dyn Caller, p: &kernfs::Proc) -> Result<()> {
    if cx.pid() == p.group.tgid || !vfs::policing::concerns(cx, policy::Kind::ProcessPtrace) {
        return Ok(());
    }
    cx.decide(&vfs::policing::FileOperation::without_place(policy::Kind::ProcessPtrace))
}

/// The check at every read of files that show the process as it is: `error` for a reader that may not look into it.
fn check_read(at: &At, error: Errno) -> Result<()> {
    at.proc()?.may_access(at.cx()?).map_err(|_| error)
}

fn cwd(at: &At) -> Result<Target> {
    let fs = at.proc()?.main_task().and_then(|t| t.fs()).ok_or(Errno::ENOENT)?;
    Ok(Target::Place(fs.view().cwd.clone()))
}

fn root(at: &At) -> Result<Target> {
    let fs = at.proc()?.main_task().and_then(|t| t.fs()).ok_or(Errno::ENOENT)?;
    Ok(Target::Place(fs.view().root.clone()))
}

fn exe(at: &At) -> Result<Target> {
    let mm = at.proc()?.mm().ok_or(Errno::ENOENT)?;
    let f = mm.image().exe.ok_or(Errno::ENOENT)?;
    Ok(match &f.path {
        Some(p) => Target::Place(p.clone()),
        None => Target::File(f),
    })
}

/// A directory that only its owner may list.
const fn own_dir(name: &'static str, names: &'static dyn kernfs::Names) -> Entry {
    Entry { name, mode: 0o500, what: What::Dir(&[], Some(names)) }
}

macro_rules! common {
    ($($more:expr),* $(,)?) => {
        [
            own_dir("fd", &fd::Fds),
            Entry { name: "fdinfo", mode: 0o555, what: What::Dir(&[], Some(&fd::FdInfos)) },
            Entry { name: "ns", mode: 0o511, what: What::Dir(&ns::NS, None) },
            Entry { name: "net", mode: 0o555, what: What::Dir(&[], Some(&crate::net::Files)) },
            private("environ", memory::environ),
            private("auxv", memory::auxv),
            text("status", status::status),
            private("personality", misc::personality),
            text("limits", misc::limits),
            writable("sched", 0o644, misc::sched, misc::ignore),
            writable("comm", 0o644, tune::comm, tune::set_comm),
            private("syscall", misc::syscall),
            text("cmdline", memory::cmdline),
            text("stat", stat::stat),
            text("statm", stat::statm),
            text("maps", maps::maps),
            text("numa_maps", maps::numa_maps),
            Entry { name: "mem", mode: 0o600, what: What::Special(memory::open_mem) },
            magic("cwd", cwd),
            magic("root", root),
            magic("exe", exe),
            text("mounts", crate::mounts::mounts),
            text("mountinfo", crate::mounts::mountinfo),
            Entry { name: "clear_refs", mode: 0o200, what: What::Text(misc::write_only, Some(misc::clear_refs)) },
            text("smaps", smaps::smaps),
            text("smaps_rollup", smaps::rollup),
            Entry { name: "attr", mode: 0o555, what: What::Dir(&misc::ATTR, None) },
            text("wchan", misc::wchan),
            private("stack", misc::stack),
            text("schedstat", misc::schedstat),
            text("cpuset", misc::cpuset),
            text("cgroup", misc::cgroup),
            text("oom_score", tune::oom_score),
            writable("oom_adj", 0o644, tune::oom_adj, tune::set_oom_adj),
            writable("oom_score_adj", 0o644, tune::oom_score_adj, tune::set_oom_score_adj),
            writable("loginuid", 0o644, misc::no_id, misc::refuse_number),
            text("sessionid", misc::no_id),
            private("io", misc::io),
            writable("uid_map", 0o644, id_map::uid_map, id_map::set_uid_map),
            writable("gid_map", 0o644, id_map::gid_map, id_map::set_gid_map),
            writable("projid_map", 0o644, id_map::projid_map, id_map::set_projid_map),
            writable("setgroups", 0o644, id_map::setgroups, id_map::set_setgroups),
            $($more,)*
        ]
    };
}

static IN_PID: &[Entry] = &common![
    Entry { name: "task", mode: 0o555, what: What::Dir(&[], Some(&list::Threads)) },
    private("mountstats", crate::mounts::mountstats),
    writable("coredump_filter", 0o644, misc::coredump_filter, misc::set_coredump_filter),
    writable("timerslack_ns", 0o666, tune::timerslack, tune::set_timerslack),
    text("timers", misc::timers),
    writable("autogroup", 0o644, misc::autogroup, misc::refuse_number),
    writable("timens_offsets", 0o644, timens::offsets, timens::set_offsets),
    empty("arch_status"),
];

static IN_TASK: &[Entry] = &common![text("children", list::children), empty("arch_status")];

/// The directory of a process.
pub static PID_DIR: Entry = Entry { name: "", mode: 0o555, what: What::Dir(IN_PID, None) };
/// The directory of a thread.
pub static TASK_DIR: Entry = Entry { name: "", mode: 0o555, what: What::Dir(IN_TASK, None) };

/// /proc/self.
pub const SELF: Entry = link("self", own);
/// /proc/thread-self.
pub const THREAD_SELF: Entry = link("thread-self", own_thread);
