//! `ps`: the processes of a container, as its kernel and as the host know them.

use crate::directory::Container;
use crate::find::connect;
use crate::record::{Record, Status};
use crate::{Result, Settings, pod};
use spec::ProcessInfo;
use std::collections::HashMap;
use std::fs;

/// The processes as the kernel inside knows them.
pub fn processes(settings: &Settings, id: &str) -> Result<Vec<ProcessInfo>> {
    let (container, record) = running(settings, id)?;
    if record.is_frozen() {
        return Err("container is paused: resume it first, or give options of ps(1) after its name".into());
    }
    Ok(connect(&container)?.processes()?)
}

/// Their process IDs on the host.
pub fn host_processes(settings: &Settings, id: &str) -> Result<Vec<i32>> {
    let (container, record) = running(settings, id)?;
    if record.is_frozen() {
        return Ok(frozen(record.state.pid));
    }
    let processes = connect(&container)?.processes()?;
    let outside = host_pids(pod::sandbox_of(settings, record)?.state.pid);
    Ok(processes.iter().filter_map(|process| outside.get(&process.host_pid)).copied().collect())
}

pub(crate) fn running(settings: &Settings, id: &str) -> Result<(Container, Record)> {
    let (container, record) = settings.find(id)?;
    match record.state.status {
        Status::Stopped => Err("container not running".into()),
        _ => Ok((container, record)),
    }
}

/// Those of a container that the host has frozen: its kernel does not answer until it goes on.
fn frozen(init: i32) -> Vec<i32> {
    // Pid 1 is init, and the sentry is its only child; processes that hold no program are called by ours.
    let holds_program = |pid: i32| command_line(pid).first().is_some_and(|name| name != "ringfence stub");
    let all = host_pids(init).into_iter();
    let mut pids: Vec<i32> =
        all.filter(|(inside, pid)| *inside > 2 && holds_program(*pid)).map(|(_, pid)| pid).collect();
    pids.sort_unstable();
    pids
}

fn command_line(pid: i32) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The sentry of the sandbox that has this process as process 1: it is the second one.
pub(crate) fn sentry(init: i32) -> Option<i32> {
    let second = |pid: i32| number_inside(pid) == Some(2);
    // Without CONFIG_PROC_CHILDREN all processes of the host are looked through.
    let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap_or_default();
    let found = children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| second(*pid));
    found.or_else(|| host_pids(init).get(&2).copied())
}

/// A process's id in its own pid namespace.
fn number_inside(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

/// For every process of the sandbox's pid namespace, its id there and on the host.
pub(crate) fn host_pids(init: i32) -> HashMap<i32, i32> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid"));
    let Ok(sandbox) = namespace(&init.to_string()) else { return HashMap::new() };
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| {
            let name = name.to_str()?;
            let pid: i32 = name.parse().ok()?;
            if namespace(name).ok()? != sandbox {
                return None;
            }
            Some((number_inside(pid)?, pid))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;

    #[test]
    fn own_processes_are_found_on_the_host() {
        let own = std::process::id() as i32;
        assert!(host_pids(own).values().any(|pid| *pid == own));
        assert!(!command_line(own).is_empty());
    }

    #[test]
    fn a_container_that_has_ended_has_none() {
        let dir = StateDir::new("ps");
        dir.ended("x");
        assert_eq!(processes(&dir.settings(), "x").unwrap_err().message(), "container not running");
        assert_eq!(host_processes(&dir.settings(), "x").unwrap_err().message(), "container not running");
    }
}
