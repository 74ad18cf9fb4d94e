//! Control groups as file systems. See cgroups(7) and the host's Documentation/admin-guide/cgroup-v2.
//!
//! [`tree`] shows the groups inside (crate `cgroup`), below the root of a cgroup namespace. Programs can make and
//! change them. [`new`] shows the container's group alone, read-only: the values of the group on the host, where it has
//! one, converted when the host has version 1. The host's runtime changes those from outside (`ringfence update`).

#![forbid(unsafe_code)]

mod files;
mod fs;
mod node;
mod open;

pub use files::name_of;
pub use fs::{group_of, tree};

use abi::Result;
use container::{Container, CpuMax, Limits};
use kernfs::{At, Entry, FsType, KernFs, dir, line, memory_used, text};
use std::fmt::Write;
use std::sync::Arc;
use task::{Kernel, ThreadGroup};
use vfs::FileSystem;

/// The container's control group as the root of a cgroup v2 hierarchy, whatever the host has.
pub fn new(kernel: Arc<Kernel>) -> Arc<dyn FileSystem> {
    let pids = kernel.pids.clone();
    KernFs::new(kernel, pids, &Cgroupfs)
}

struct Cgroupfs;

impl FsType for Cgroupfs {
    fn name(&self) -> &'static str {
        "cgroup2"
    }
    fn magic(&self) -> i64 {
        0x6367_7270
    }
    fn root(&self) -> &'static Entry {
        &ROOT
    }
}

static ROOT: Entry = dir("/", &TOP);

static TOP: [Entry; 39] = [
    text("cgroup.controllers", |_| line("cpuset cpu memory pids")),
    text("cgroup.events", |_| line("populated 1\nfrozen 0")),
    text("cgroup.freeze", |_| line(0)),
    text("cgroup.max.depth", |_| line("max")),
    text("cgroup.max.descendants", |_| line("max")),
    text("cgroup.procs", procs),
    text("cgroup.stat", |_| line("nr_descendants 0\nnr_dying_descendants 0")),
    text("cgroup.subtree_control", |_| line("")),
    text("cgroup.threads", threads),
    text("cgroup.type", |_| line("domain")),
    text("cpu.idle", |_| line(0)),
    text("cpu.max", cpu_max),
    text("cpu.max.burst", |_| line(0)),
    text("cpu.stat", cpu_stat),
    text("cpu.weight", cpu_weight),
    text("cpu.weight.nice", |_| line(0)),
    text("cpuset.cpus", |_| line("")),
    text("cpuset.cpus.effective", cpus),
    text("cpuset.cpus.partition", |_| line("member")),
    text("cpuset.mems", |_| line("")),
    text("cpuset.mems.effective", |_| line(0)),
    text("io.max", |at| as_there(at, "io.max")),
    text("io.stat", |at| as_there(at, "io.stat")),
    text("memory.current", memory_current),
    text("memory.events", memory_events),
    text("memory.events.local", memory_events),
    text("memory.high", |at| bytes(limits(at).number("memory.high"))),
    text("memory.low", |at| or_zero(at, "memory.low", "memory.soft_limit_in_bytes")),
    text("memory.max", |at| bytes(limits(at).either("memory.max", "memory.limit_in_bytes"))),
    text("memory.min", |at| or_zero(at, "memory.min", "")),
    text("memory.oom.group", |_| line(0)),
    text("memory.peak", |at| or_zero(at, "memory.peak", "memory.max_usage_in_bytes")),
    text("memory.stat", memory_stat),
    text("memory.swap.current", swap_current),
    text("memory.swap.events", |_| line("high 0\nmax 0\nfail 0")),
    text("memory.swap.max", swap_max),
    text("pids.current", pids_current),
    text("pids.events", |_| line("max 0")),
    text("pids.max", pids_max),
];

fn limits(at: &At) -> Arc<Limits> {
    at.limits()
}

/// A limit in bytes, or the word that stands for none. Version 1 writes none as a number beyond all memory.
fn bytes(limit: Option<u64>) -> Result<Vec<u8>> {
    const NONE: u64 = 1 << 62;
    match limit {
        Some(limit) if limit < NONE => line(limit),
        _ => line("max"),
    }
}

fn as_there(at: &At, name: &str) -> Result<Vec<u8>> {
    Ok(limits(at).text(name).unwrap_or_default().into_bytes())
}

/// A protection or a peak: nothing, and none, are 0.
fn or_zero(at: &At, v2: &str, v1: &str) -> Result<Vec<u8>> {
    line(limits(at).either(v2, v1).filter(|value| *value < 1 << 62).unwrap_or(0))
}

fn procs(at: &At) -> Result<Vec<u8>> {
    let own = at.container();
    let tree = at.kernel().tree.lock();
    let ids = of(&own, tree.nodes().map(|node| (node.group.tgid, &node.group)));
    drop(tree);
    shown(at, ids)
}

fn threads(at: &At) -> Result<Vec<u8>> {
    let own = at.container();
    let tree = at.kernel().tree.lock();
    let ids = of(&own, tree.tasks().map(|task| (task.tid(), &task.group)));
    drop(tree);
    shown(at, ids)
}

/// The ids of those in a container.
fn of<'a>(own: &Arc<Container>, all: impl Iterator<Item = (i32, &'a Arc<ThreadGroup>)>) -> Vec<i32> {
    all.filter(|(_, group)| Arc::ptr_eq(&group.container, own)).map(|(id, _)| id).collect()
}

/// As the asking task's pid namespace has them.
fn shown(at: &At, ids: Vec<i32>) -> Result<Vec<u8>> {
    let cx = at.cx()?;
    let mut seen: Vec<i32> = ids.into_iter().map(|id| cx.pid_vnr(id)).collect();
    seen.sort_unstable();
    Ok(seen.iter().flat_map(|id| format!("{id}\n").into_bytes()).collect())
}

fn cpu_max(at: &At) -> Result<Vec<u8>> {
    let CpuMax { quota, period } = limits(at).cpu_max();
    match quota {
        Some(quota) => line(format_args!("{quota} {period}")),
        None => line(format_args!("max {period}")),
    }
}

fn cpu_stat(at: &At) -> Result<Vec<u8>> {
    let l = limits(at);
    if let Some(own) = l.text("cpu.stat").filter(|text| text.contains("usage_usec")) {
        return line(own.trim_end());
    }
    let micros = |name| l.either(name, "").unwrap_or(0) / 1000;
    let field = |key| l.field("cpu.stat", key).unwrap_or(0);
    line(format_args!(
        "usage_usec {}\nuser_usec {}\nsystem_usec {}\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}",
        micros("cpuacct.usage"),
        micros("cpuacct.usage_user"),
        micros("cpuacct.usage_sys"),
        field("nr_periods"),
        field("nr_throttled"),
        field("throttled_time") / 1000,
    ))
}

/// From shares (2 to 262144, 1024 by default) to weights (1 to 10000, 100 by default), as the runtimes convert them.
fn cpu_weight(at: &At) -> Result<Vec<u8>> {
    let l = limits(at);
    let of_shares = |shares: u64| match shares {
        1024 => 100,
        shares => 1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142,
    };
    line(l.number("cpu.weight").or_else(|| l.number("cpu.shares").map(of_shares)).unwrap_or(100))
}

fn cpus(at: &At) -> Result<Vec<u8>> {
    line(limits(at).allowed().list())
}

fn memory_current(at: &At) -> Result<Vec<u8>> {
    line(limits(at).memory_current().unwrap_or_else(|| memory_used(at.kernel()).0))
}

fn memory_events(at: &At) -> Result<Vec<u8>> {
    let l = limits(at);
    if let Some(own) = l.text("memory.events") {
        return line(own.trim_end());
    }
    let max = l.number("memory.failcnt").unwrap_or(0);
    let kills = l.field("memory.oom_control", "oom_kill").unwrap_or(0);
    line(format_args!("low 0\nhigh 0\nmax {max}\noom {kills}\noom_kill {kills}\noom_group_kill 0"))
}

fn memory_stat(at: &At) -> Result<Vec<u8>> {
    let l = limits(at);
    let own = l.text("memory.stat").unwrap_or_default();
    if own.lines().any(|line| line.starts_with("anon ")) {
        return line(own.trim_end());
    }
    let rows = [
        ("anon", "total_rss"),
        ("file", "total_cache"),
        ("shmem", "total_shmem"),
        ("file_mapped", "total_mapped_file"),
        ("file_dirty", "total_dirty"),
        ("file_writeback", "total_writeback"),
        ("inactive_anon", "total_inactive_anon"),
        ("active_anon", "total_active_anon"),
        ("inactive_file", "total_inactive_file"),
        ("active_file", "total_active_file"),
        ("unevictable", "total_unevictable"),
        ("pgfault", "total_pgfault"),
        ("pgmajfault", "total_pgmajfault"),
    ];
    let mut out = String::new();
    for (name, v1) in rows {
        let _ = writeln!(out, "{name} {}", container::limits::field(&own, v1).unwrap_or(0));
    }
    Ok(out.into_bytes())
}

/// Version 1 counts memory and swap together.
fn swap_current(at: &At) -> Result<Vec<u8>> {
    let l = limits(at);
    let both = l.number("memory.memsw.usage_in_bytes");
    let alone = both.map(|both| both.saturating_sub(l.memory_current().unwrap_or(0)));
    line(l.number("memory.swap.current").or(alone).unwrap_or(0))
}

fn swap_max(at: &At) -> Result<Vec<u8>> {
    let l = limits(at);
    let alone = match (l.number("memory.memsw.limit_in_bytes"), l.memory_max()) {
        (Some(both), Some(memory)) if both < 1 << 62 => Some(both.saturating_sub(memory)),
        _ => None,
    };
    bytes(l.number("memory.swap.max").or(alone))
}

fn pids_current(at: &At) -> Result<Vec<u8>> {
    line(at.container().cgroup().pids().current)
}

fn pids_max(at: &At) -> Result<Vec<u8>> {
    // The kernel inside counts, since a task inside is more than one on the host.
    match at.container().cgroup().pids().max {
        u64::MAX => line("max"),
        limit => line(limit),
    }
}
