//! `ringfence pause`, `resume`, `update` and `events`: a container's control groups.

use crate::cli::{Events, Global, Id, Update};
use crate::record::{self, Kept};
use crate::{Failure, container, pod};
use bundle::Pod;
use cgroups::Manager;
use oci_spec::runtime::{
    LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxPids, LinuxResources, LinuxResourcesBuilder,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox::state::{Container, Record, Status};
use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub(crate) fn pause(global: &Global, args: &Id) -> Result<u8, Failure> {
    change(global, args, Status::Running, Status::Paused, "not running", true)
}

pub(crate) fn resume(global: &Global, args: &Id) -> Result<u8, Failure> {
    change(global, args, Status::Paused, Status::Running, "not paused", false)
}

fn change(
    global: &Global,
    args: &Id,
    from: Status,
    to: Status,
    otherwise: &str,
    freeze: bool,
) -> Result<u8, Failure> {
    let (container, _) = container::find(global, &args.id)?;
    let _lock = container.lock()?;
    let (container, mut record) = container::find(global, &args.id)?;
    if record.state.status != from {
        return Err(format!("container {otherwise}: it is {}", record.state.status).into());
    }
    match groups_to_freeze(global, &record, freeze) {
        Some(groups) if freeze => groups.freeze()?,
        Some(groups) => groups.thaw()?,
        None => container::connect(&container)?.freeze(freeze)?,
    }
    record.state.status = to;
    container.write(&record)?;
    Ok(0)
}

/// The control groups of a container that has its sandbox for itself, or that was frozen while it had. The processes of
/// containers that share one are all in the groups of the first: the kernel inside knows which is whose, and stops them
/// without stopping itself.
fn groups_to_freeze(global: &Global, record: &Record, freeze: bool) -> Option<Manager> {
    let groups = Kept::of(record).manager().ok()?;
    let whole = match freeze {
        true => pod::of(record) == Pod::None && !pod::is_shared(global, record),
        false => groups.is_frozen(),
    };
    whole.then_some(groups)
}

pub(crate) fn update(global: &Global, args: &Update) -> Result<u8, Failure> {
    let resources = limits(args)?;
    let (container, record) = container::find(global, &args.id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    let _lock = container.lock()?;
    Kept::of(&record).manager()?.set(&resources)?;
    if let Some(pids) = resources.pids() {
        if record::is_frozen(&record) {
            return Err("the container is paused: resume it to change how many tasks it may have".into());
        }
        // The limit itself is the kernel's business inside; the host's is wider.
        let limit = u32::try_from(pids.limit()).ok().filter(|limit| *limit > 0);
        container::connect(&container)?.limit_tasks(limit)?;
    }
    Ok(0)
}

/// What is to change: the file's limits, or those of the flags.
fn limits(args: &Update) -> Result<LinuxResources, Failure> {
    if let Some(path) = &args.resources {
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().take(1 << 20).read_to_string(&mut text)?;
        } else {
            text = std::fs::read_to_string(path)
                .map_err(|error| format!("resources {}: {error}", path.display()))?;
        }
        return serde_json::from_str(&text)
            .map_err(|error| format!("{} is not valid: {error}", path.display()).into());
    }
    let mut memory = LinuxMemory::default();
    memory.set_limit(args.memory).set_reservation(args.memory_reservation).set_swap(args.memory_swap);
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(args.cpu_shares)
        .set_quota(args.cpu_quota)
        .set_period(args.cpu_period)
        .set_burst(args.cpu_burst)
        .set_idle(args.cpu_idle)
        .set_realtime_period(args.cpu_rt_period)
        .set_realtime_runtime(args.cpu_rt_runtime)
        .set_cpus(args.cpuset_cpus.clone())
        .set_mems(args.cpuset_mems.clone());
    let mut builder = LinuxResourcesBuilder::default().memory(memory).cpu(cpu);
    if let Some(limit) = args.pids_limit {
        let mut pids = LinuxPids::default();
        pids.set_limit(limit);
        builder = builder.pids(pids);
    }
    if let Some(weight) = args.blkio_weight {
        let mut io = LinuxBlockIo::default();
        io.set_weight(Some(weight));
        builder = builder.block_io(io);
    }
    Ok(builder.build()?)
}

pub(crate) fn events(global: &Global, args: &Events) -> Result<u8, Failure> {
    let (container, record) = container::find(global, &args.id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    let groups = Kept::of(&record).manager()?;
    let line = |kind: &str, data: Option<cgroups::Stats>| {
        let mut line = serde_json::json!({ "type": kind, "id": args.id });
        if let Some(data) = data {
            line["data"] = serde_json::to_value(data)?;
        }
        // A reader that has left is the end of it.
        use std::io::Write;
        writeln!(std::io::stdout(), "{line}")?;
        Ok::<(), Failure>(())
    };
    if args.stats {
        line("stats", Some(groups.stats()))?;
        return Ok(0);
    }
    follow(&container, &record, &groups, args.interval, line)
}

/// Shows figures at every interval, and every time memory runs out, until the container ends.
fn follow(
    container: &Container,
    record: &Record,
    groups: &Manager,
    interval: Duration,
    line: impl Fn(&str, Option<cgroups::Stats>) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let oom = groups.oom_events()?;
    let pid = rustix::process::Pid::from_raw(record.state.pid).ok_or("container not running")?;
    let end = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let (mut next, mut seen) = (Instant::now() + interval, groups.oom_kill_count());
    while container.is_alive() {
        let mut fds =
            [PollFd::new(&oom, PollFlags::IN), PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
        let left = next.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [out_of_memory, ended] = [0, 1].map(|i: usize| !fds[i].revents().is_empty());
        if out_of_memory {
            oom.drain();
            let kills = groups.oom_kill_count();
            if kills > seen {
                seen = kills;
                line("oom", None)?;
            }
        }
        if ended {
            break;
        }
        if Instant::now() >= next {
            line("stats", Some(groups.stats()))?;
            next = Instant::now() + interval;
        }
    }
    Ok(0)
}
