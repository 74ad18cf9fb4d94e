//! `linux.resources` written to the files of cgroup v1.

use crate::files::{number, read, write};
use crate::groups::Groups;
use crate::{Error, Result, convert, host_pids_max};
use oci_spec::runtime::{
    LinuxBlockIo, LinuxCpu, LinuxDeviceCgroup, LinuxMemory, LinuxNetwork, LinuxResources,
};
use std::io::ErrorKind;

/// Writes the limits. What is not mentioned stays as it is.
pub(crate) fn set(groups: &Groups, resources: &LinuxResources) -> Result<()> {
    if resources.unified().as_ref().is_some_and(|u| !u.is_empty()) {
        return Err(Error::Config(
            "linux.resources.unified cannot be used: the host has cgroup v1; use the other fields".into(),
        ));
    }
    if let Some(rules) = resources.devices()
        && !rules.is_empty()
        && let Err(error) = devices(groups, rules)
    {
        // An ordinary user cannot expect them to work.
        if !groups.rootless {
            return Err(error);
        }
        log::debug!("{error}");
    }
    if let Some(m) = resources.memory() {
        memory(groups, m)?;
    }
    if let Some(c) = resources.cpu() {
        cpuset(groups, c)?;
        cpu(groups, c)?;
    }
    if let Some(limit) = resources.pids().as_ref().map(|pids| pids.limit())
        && limit != 0
    {
        groups.put("pids", "pids.max", &host_pids_max(limit).map_or("max".into(), |n| n.to_string()))?;
    }
    if let Some(b) = resources.block_io() {
        blkio(groups, b)?;
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        let value = limit.limit().to_string();
        groups.put("hugetlb", &format!("hugetlb.{}.limit_in_bytes", limit.page_size()), &value)?;
        groups.put_if_there(
            "hugetlb",
            &format!("hugetlb.{}.rsvd.limit_in_bytes", limit.page_size()),
            &value,
        )?;
    }
    if let Some(n) = resources.network() {
        network(groups, n)?;
    }
    for (device, limit) in resources.rdma().iter().flatten() {
        groups.put("rdma", "rdma.max", &convert::rdma(device, limit))?;
    }
    Ok(())
}

/// The kernel wants limit <= memory and swap at every moment, so the order depends on what is there. `kernel` and
/// `kernelTCP` are ignored, as runc does: the kernel no longer honours them.
fn memory(groups: &Groups, memory: &LinuxMemory) -> Result<()> {
    const LIMIT: &str = "memory.limit_in_bytes";
    const BOTH: &str = "memory.memsw.limit_in_bytes";
    let limit = memory.limit().unwrap_or(0);
    let mut swap = memory.swap().unwrap_or(0);
    if limit == -1 && swap == 0 && groups.has("memory", BOTH) {
        swap = -1;
    }
    let set_limit = || match groups.put("memory", LIMIT, &limit.to_string()) {
        Err(error) if error.io_kind() == Some(ErrorKind::ResourceBusy) => {
            let dir = groups.dir("memory")?;
            Err(Error::Config(format!(
                "memory: unable to set memory limit to {limit} (current usage: {}, peak usage: {}); ask for more",
                number(&dir.join("memory.usage_in_bytes")),
                number(&dir.join("memory.max_usage_in_bytes")),
            )))
        }
        other => other,
    };
    if limit != 0 && memory.check_before_update().unwrap_or(false) && limit > 0 {
        let usage = number(&groups.dir("memory")?.join("memory.usage_in_bytes"));
        if usage >= limit as u64 {
            return Err(Error::Config(format!(
                "memory: rejecting memory limit {limit}: current usage is {usage}; ask for more"
            )));
        }
    }
    let grows = || match groups.dir("memory") {
        Ok(dir) => swap == -1 || (swap > 0 && number(&dir.join(LIMIT)) < swap as u64),
        Err(_) => false,
    };
    if limit != 0 && swap != 0 && grows() {
        groups.put("memory", BOTH, &swap.to_string())?;
        set_limit()?;
    } else {
        if limit != 0 {
            set_limit()?;
        }
        if swap != 0 {
            groups.put("memory", BOTH, &swap.to_string())?;
        }
    }
    if let Some(reservation) = memory.reservation().filter(|r| *r != 0) {
        groups.put("memory", "memory.soft_limit_in_bytes", &reservation.to_string())?;
    }
    if memory.disable_oom_killer().unwrap_or(false) {
        groups.put("memory", "memory.oom_control", "1")?;
    }
    match memory.swappiness() {
        // -1 means "not set" to clients that have no other way to say so.
        None => {}
        Some(u64::MAX) => {}
        Some(value) if value <= 100 => groups.put("memory", "memory.swappiness", &value.to_string())?,
        Some(value) => {
            return Err(Error::Config(format!(
                "linux.resources.memory.swappiness {value} is not valid; use 0 to 100"
            )));
        }
    }
    Ok(())
}

fn cpuset(groups: &Groups, cpu: &LinuxCpu) -> Result<()> {
    for (file, value) in [("cpuset.cpus", cpu.cpus()), ("cpuset.mems", cpu.mems())] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            groups.put("cpuset", file, value)?;
        }
    }
    Ok(())
}

fn cpu(groups: &Groups, cpu: &LinuxCpu) -> Result<()> {
    if let Some(shares) = cpu.shares().filter(|shares| *shares != 0) {
        groups.put("cpu", "cpu.shares", &shares.to_string())?;
        // The kernel takes what is out of range and changes it.
        let taken = read("cpu", &groups.dir("cpu")?.join("cpu.shares"))?.parse().unwrap_or(shares);
        if shares > taken {
            return Err(Error::Config(format!("cpu: the maximum allowed cpu-shares is {taken}")));
        }
        if shares < taken {
            return Err(Error::Config(format!("cpu: the minimum allowed cpu-shares is {taken}")));
        }
    }
    let quota = cpu.quota().filter(|quota| *quota != 0).map(|quota| quota.to_string());
    let mut period = cpu.period().filter(|period| *period != 0).map(|period| period.to_string());
    // A burst above the new quota would refuse that quota, and one above the old quota would be refused itself.
    let burst = cpu.burst().map(|burst| burst.to_string());
    let early = burst.as_ref().is_some_and(|b| groups.put("cpu", "cpu.cfs_burst_us", b).is_ok());
    if let Some(value) = &period {
        match groups.put("cpu", "cpu.cfs_period_us", value) {
            // It may fit only once the quota has changed.
            Err(error) if error.io_kind() == Some(ErrorKind::InvalidInput) && quota.is_some() => {}
            Err(error) => return Err(error),
            Ok(()) => period = None,
        }
    }
    if let Some(value) = &quota {
        groups.put("cpu", "cpu.cfs_quota_us", value)?;
        if let Some(value) = &period {
            groups.put("cpu", "cpu.cfs_period_us", value)?;
        }
    }
    if let Some(value) = burst.filter(|_| !early) {
        groups.put("cpu", "cpu.cfs_burst_us", &value)?;
    }
    if let Some(value) = cpu.realtime_period().filter(|p| *p != 0) {
        groups.put("cpu", "cpu.rt_period_us", &value.to_string())?;
    }
    if let Some(value) = cpu.realtime_runtime().filter(|r| *r != 0) {
        groups.put("cpu", "cpu.rt_runtime_us", &value.to_string())?;
    }
    if let Some(value) = cpu.idle() {
        groups.put("cpu", "cpu.idle", &value.to_string())?;
    }
    Ok(())
}

fn blkio(groups: &Groups, io: &LinuxBlockIo) -> Result<()> {
    // Which file there is depends on the scheduler that the kernel was built with.
    let bfq = |name: &str| {
        let plain = format!("blkio.{name}");
        if groups.has("blkio", &plain) || !groups.has("blkio", &format!("blkio.bfq.{name}")) {
            plain
        } else {
            format!("blkio.bfq.{name}")
        }
    };
    if let Some(weight) = io.weight().filter(|weight| *weight != 0) {
        groups.put("blkio", &bfq("weight"), &weight.to_string())?;
    }
    if let Some(weight) = io.leaf_weight().filter(|weight| *weight != 0) {
        groups.put("blkio", "blkio.leaf_weight", &weight.to_string())?;
    }
    for device in io.weight_device().iter().flatten() {
        let number = format!("{}:{}", device.major(), device.minor());
        if let Some(weight) = device.weight().filter(|weight| *weight != 0) {
            groups.put("blkio", &bfq("weight_device"), &format!("{number} {weight}"))?;
        }
        if let Some(weight) = device.leaf_weight().filter(|weight| *weight != 0) {
            groups.put("blkio", "blkio.leaf_weight_device", &format!("{number} {weight}"))?;
        }
    }
    let throttles = [
        ("read_bps", io.throttle_read_bps_device()),
        ("write_bps", io.throttle_write_bps_device()),
        ("read_iops", io.throttle_read_iops_device()),
        ("write_iops", io.throttle_write_iops_device()),
    ];
    for (name, devices) in throttles {
        for device in devices.iter().flatten() {
            let value = format!("{}:{} {}", device.major(), device.minor(), device.rate());
            groups.put("blkio", &format!("blkio.throttle.{name}_device"), &value)?;
        }
    }
    Ok(())
}

fn network(groups: &Groups, network: &LinuxNetwork) -> Result<()> {
    if let Some(class) = network.class_id().filter(|class| *class != 0) {
        groups.put("net_cls", "net_cls.classid", &class.to_string())?;
    }
    for priority in network.priorities().iter().flatten() {
        let value = format!("{} {}", priority.name(), priority.priority());
        groups.put("net_prio", "net_prio.ifpriomap", &value)?;
    }
    Ok(())
}

/// Rules in their order, and then what every container has. They bind our own processes only: the guest's devices are
/// the sandbox's.
fn devices(groups: &Groups, rules: &[LinuxDeviceCgroup]) -> Result<()> {
    let dir = groups.dir("devices")?;
    for rule in rules {
        let file = if rule.allow() { "devices.allow" } else { "devices.deny" };
        write("devices", &dir.join(file), &convert::device_rule(rule))?;
    }
    for rule in convert::DEFAULT_DEVICES {
        write("devices", &dir.join("devices.allow"), rule)?;
    }
    Ok(())
}
