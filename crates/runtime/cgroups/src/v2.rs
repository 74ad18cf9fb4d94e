//! `linux.resources` written to the files of cgroup v2.

use crate::files::{number, read, write};
use crate::groups::Groups;
use crate::{Error, Result, convert, host_pids_max};
use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxResources};
use std::io::ErrorKind;
use std::path::Path;

/// Makes a group below `top` with every controller that there is. One that cannot be handed down (its group holds
/// processes) is left out: a limit that needs it will say so.
pub(crate) fn create(top: &Path, dir: &Path) -> Result<()> {
    let below = dir.strip_prefix(top).unwrap_or(dir);
    let mut at = top.to_path_buf();
    for part in below.components() {
        let available = read("", &at.join("cgroup.controllers")).unwrap_or_default();
        let all: Vec<String> = available.split_whitespace().map(|name| format!("+{name}")).collect();
        let control = at.join("cgroup.subtree_control");
        if !all.is_empty() && write("", &control, &all.join(" ")).is_err() {
            for one in &all {
                if let Err(error) = write("", &control, one) {
                    log::debug!("{error}");
                }
            }
        }
        at.push(part);
        match std::fs::create_dir(&at) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::file("", "create", &at, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes the limits. What is not mentioned stays as it is. Device rules have no file in cgroup v2. They would bind our
/// own processes only, and the filters of those open no device.
pub(crate) fn set(groups: &Groups, resources: &LinuxResources) -> Result<()> {
    if let Some(limit) = resources.pids().as_ref().map(|pids| pids.limit())
        && limit != 0
    {
        groups.put("pids", "pids.max", &host_pids_max(limit).map_or("max".into(), |n| n.to_string()))?;
    }
    if let Some(m) = resources.memory() {
        memory(groups, m)?;
    }
    if let Some(b) = resources.block_io() {
        io(groups, b)?;
    }
    if let Some(c) = resources.cpu() {
        cpu(groups, c)?;
        for (file, value) in [("cpuset.cpus", c.cpus()), ("cpuset.mems", c.mems())] {
            if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                groups.put("cpuset", file, value)?;
            }
        }
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        let value = limit.limit().to_string();
        groups.put("hugetlb", &format!("hugetlb.{}.max", limit.page_size()), &value)?;
        groups.put_if_there("hugetlb", &format!("hugetlb.{}.rsvd.max", limit.page_size()), &value)?;
    }
    for (device, limit) in resources.rdma().iter().flatten() {
        groups.put("rdma", "rdma.max", &convert::rdma(device, limit))?;
    }
    if resources.network().as_ref().is_some_and(|n| n.class_id().is_some_and(|class| class != 0)) {
        return Err(Error::Config("linux.resources.network.classID has no counterpart in cgroup v2".into()));
    }
    for (file, value) in resources.unified().iter().flatten() {
        unified(groups, file, value)?;
    }
    Ok(())
}

fn memory(groups: &Groups, memory: &LinuxMemory) -> Result<()> {
    let limit = memory.limit().unwrap_or(0);
    let swap = convert::swap_alone(memory.swap().unwrap_or(0), limit)?;
    if limit > 0 && memory.check_before_update().unwrap_or(false) {
        let usage = number(&groups.dir("memory")?.join("memory.current"));
        if usage >= limit as u64 {
            return Err(Error::Config(format!(
                "memory: rejecting memory limit {limit}: current usage is {usage}; ask for more"
            )));
        }
    }
    if let Some(swap) = swap {
        // Without swap accounting there is nothing to limit, unless there is to be some.
        match groups.has("memory", "memory.swap.max") || swap > 0 {
            true => groups.put("memory", "memory.swap.max", &convert::or_max(swap))?,
            false => log::debug!("memory.swap.max is not there; left alone"),
        }
    }
    if limit != 0 {
        groups.put("memory", "memory.max", &convert::or_max(limit))?;
    }
    if let Some(reservation) = memory.reservation().filter(|r| *r != 0) {
        groups.put("memory", "memory.low", &convert::or_max(reservation))?;
    }
    Ok(())
}

fn cpu(groups: &Groups, cpu: &LinuxCpu) -> Result<()> {
    if cpu.realtime_period().is_some_and(|p| p != 0) || cpu.realtime_runtime().is_some_and(|r| r != 0) {
        return Err(Error::Config(
            "linux.resources.cpu.realtimeRuntime and realtimePeriod have no counterpart in cgroup v2".into(),
        ));
    }
    if let Some(idle) = cpu.idle() {
        groups.put("cpu", "cpu.idle", &idle.to_string())?;
    }
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0) {
        groups.put("cpu", "cpu.weight", &convert::weight_of_shares(shares).to_string())?;
    }
    let burst = cpu.burst().map(|burst| burst.to_string());
    let early = burst.as_ref().is_some_and(|b| groups.put("cpu", "cpu.max.burst", b).is_ok());
    let (quota, period) = (cpu.quota().unwrap_or(0), cpu.period().unwrap_or(0));
    if quota != 0 || period != 0 {
        let quota = if quota > 0 { quota.to_string() } else { "max".into() };
        let period = if period != 0 { period } else { 100_000 };
        groups.put("cpu", "cpu.max", &format!("{quota} {period}"))?;
    }
    if let Some(burst) = burst.filter(|_| !early) {
        groups.put("cpu", "cpu.max.burst", &burst)?;
    }
    Ok(())
}

fn io(groups: &Groups, io: &LinuxBlockIo) -> Result<()> {
    if let Some(weight) = io.weight().filter(|weight| *weight != 0) {
        match groups.has("io", "io.bfq.weight") {
            true => groups.put("io", "io.bfq.weight", &weight.to_string())?,
            false => groups.put("io", "io.weight", &format!("default {}", convert::io_weight(weight)))?,
        }
    }
    for device in io.weight_device().iter().flatten() {
        if let Some(weight) = device.weight().filter(|weight| *weight != 0) {
            let number = format!("{}:{}", device.major(), device.minor());
            match groups.has("io", "io.bfq.weight") {
                true => groups.put("io", "io.bfq.weight", &format!("{number} {weight}"))?,
                false => {
                    groups.put("io", "io.weight", &format!("{number} {}", convert::io_weight(weight)))?
                }
            }
        }
    }
    let throttles = [
        ("rbps", io.throttle_read_bps_device()),
        ("wbps", io.throttle_write_bps_device()),
        ("riops", io.throttle_read_iops_device()),
        ("wiops", io.throttle_write_iops_device()),
    ];
    for (name, devices) in throttles {
        for device in devices.iter().flatten() {
            let rate = if device.rate() == 0 { "max".into() } else { device.rate().to_string() };
            groups.put("io", "io.max", &format!("{}:{} {name}={rate}", device.major(), device.minor()))?;
        }
    }
    Ok(())
}

/// A file by its own name.
fn unified(groups: &Groups, file: &str, value: &str) -> Result<()> {
    let Some((controller, _)) = file.split_once('.').filter(|_| !file.contains('/')) else {
        return Err(Error::Config(format!(
            "linux.resources.unified {file:?} is not the name of a control group's file; use one such as memory.high"
        )));
    };
    match groups.put(controller, file, value) {
        Err(Error::File { source, .. })
            if [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&source.kind()) =>
        {
            let available = read("", &groups.dir("")?.join("cgroup.controllers")).unwrap_or_default();
            Err(Error::Config(format!(
                "linux.resources.unified {file:?} can't be set: {source}; the controllers here are {available:?}"
            )))
        }
        other => other,
    }
}
