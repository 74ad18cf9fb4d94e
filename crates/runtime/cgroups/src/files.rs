//! Reading and writing the files of a control group.

use crate::groups::Groups;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writes a value in one write(2), as the kernel wants it.
pub(crate) fn write(controller: &str, path: &Path, value: &str) -> Result<()> {
    let result =
        fs::OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(value.as_bytes()));
    result.map_err(|error| Error::file(controller, format!("write {value:?} to"), path, error))
}

/// Reads a file without its last newline.
pub(crate) fn read(controller: &str, path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim_end().into()),
        Err(error) => Err(Error::file(controller, "read", path, error)),
    }
}

/// A number; `max` is the largest one, and so is a file that is not there zero.
pub(crate) fn number(path: &Path) -> u64 {
    match fs::read_to_string(path) {
        Ok(text) if text.trim() == "max" => u64::MAX,
        Ok(text) => text.trim().parse().unwrap_or(0),
        Err(_) => 0,
    }
}

/// A file of lines `key value`; empty if it is not there.
pub(crate) fn table(path: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        Some((key.to_string(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The file that takes processes.
const PROCS: &str = "cgroup.procs";

/// What a container is shown of its group, by controller of version 1.
const SHOWN_V1: [(&str, &[&str]); 4] = [
    (
        "memory",
        &[
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "memory.max_usage_in_bytes",
            "memory.soft_limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            "memory.memsw.usage_in_bytes",
            "memory.failcnt",
            "memory.oom_control",
            "memory.stat",
        ],
    ),
    ("cpu", &["cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.stat"]),
    ("cpuacct", &["cpuacct.usage", "cpuacct.usage_user", "cpuacct.usage_sys"]),
    ("pids", &["pids.max"]),
];

/// The same of version 2.
const SHOWN_V2: [&str; 19] = [
    "memory.max",
    "memory.current",
    "memory.peak",
    "memory.high",
    "memory.low",
    "memory.min",
    "memory.swap.max",
    "memory.swap.current",
    "memory.events",
    "memory.stat",
    "memory.pressure",
    "cpu.max",
    "cpu.weight",
    "cpu.stat",
    "cpu.pressure",
    "io.stat",
    "io.max",
    "io.pressure",
    "pids.max",
];

/// The processors that a group may run on, in both versions. They are shown for groups that processes join one by one.
/// A process that is in the group from the start sees the processors that it may run on.
const SHOWN_CPUS: [&str; 2] = ["cpuset.effective_cpus", "cpuset.cpus.effective"];

/// Opens them for reading.
pub(crate) fn open(groups: &Groups) -> Vec<(String, OwnedFd)> {
    let named =
        |dir: &Path, name: &str| Some((name.to_string(), fs::File::open(dir.join(name)).ok()?.into()));
    if groups.v2() {
        let Some(dir) = groups.paths.get("") else { return Vec::new() };
        return SHOWN_V2.iter().filter_map(|name| named(dir, name)).collect();
    }
    let all = SHOWN_V1.iter().filter_map(|(controller, names)| Some((groups.paths.get(*controller)?, names)));
    all.flat_map(|(dir, names)| names.iter().filter_map(|name| named(dir, name))).collect()
}

/// Opens those for reading that tell of the groups that these controllers have.
pub(crate) fn open_of(groups: &Groups, controllers: &[&str]) -> Vec<(String, OwnedFd)> {
    let place = |controller: &str| groups.dir(controller).ok()?.canonicalize().ok();
    let mut wanted: Vec<(PathBuf, &str)> = Vec::new();
    for dir in controllers.iter().filter_map(|controller| place(controller)).collect::<BTreeSet<_>>() {
        if groups.v2() {
            wanted.extend(SHOWN_V2.iter().map(|name| (dir.clone(), *name)));
            continue;
        }
        // Controllers that share a hierarchy share groups.
        let here = SHOWN_V1.iter().filter(|(controller, _)| place(controller).as_ref() == Some(&dir));
        wanted.extend(here.flat_map(|(_, names)| *names).map(|name| (dir.clone(), *name)));
    }
    if controllers.contains(&"cpuset") {
        wanted.extend(place("cpuset").iter().flat_map(|dir| SHOWN_CPUS.map(|name| (dir.clone(), name))));
    }
    let open =
        |(dir, name): (PathBuf, &str)| Some((name.into(), fs::File::open(dir.join(name)).ok()?.into()));
    wanted.into_iter().filter_map(open).collect()
}

/// Opens a file for writing.
pub(crate) fn open_for_writing(controller: &str, path: &Path) -> Result<OwnedFd> {
    let file = fs::OpenOptions::new().write(true).open(path);
    file.map(OwnedFd::from).map_err(|error| Error::file(controller, "open", path, error))
}

/// Opens a group's directory.
pub(crate) fn open_directory(controller: &str, dir: &Path) -> Result<OwnedFd> {
    let opened = rustix::fs::open(
        dir,
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    opened.map_err(|error| Error::file(controller, "open", dir, error.into()))
}

/// Opens the files that take processes, for the limits that `controllers` keep.
pub(crate) fn open_procs(groups: &Groups, controllers: &[&str]) -> Result<Vec<(String, OwnedFd)>> {
    let mut dirs =
        controllers.iter().map(|controller| groups.dir(controller)).collect::<Result<Vec<&Path>>>()?;
    dirs.sort_unstable();
    dirs.dedup();
    let open = |dir: &Path| open_for_writing("", &dir.join(PROCS)).map(|file| (PROCS.into(), file));
    dirs.into_iter().map(open).collect()
}

/// Makes a group and those above it.
pub(crate) fn create(controller: &str, dir: &Path) -> Result<()> {
    // Another process may remove an empty parent at the same time.
    for _ in 0..5 {
        match fs::create_dir_all(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::file(controller, "create", dir, error)),
            Ok(()) => return Ok(()),
        }
    }
    fs::create_dir_all(dir).map_err(|error| Error::file(controller, "create", dir, error))
}

/// The groups below one, deepest first, itself last.
fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(tree(&entry.path()));
        }
    }
    found.push(dir.into());
    found
}

/// The processes of a group and of those below it.
pub(crate) fn pids(controller: &str, dir: &Path) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for dir in tree(dir) {
        match read(controller, &dir.join("cgroup.procs")) {
            Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
            // Gone since it was listed. A threaded group answers EOPNOTSUPP: its processes are its parent's.
            Err(error) if error.io_kind() == Some(ErrorKind::NotFound) => {}
            Err(error) if error.io_kind() == Some(ErrorKind::Unsupported) => {}
            Err(error) => return Err(error),
        }
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// How long processes may take to end that have begun to: one that frees the last pages of a large removed file takes seconds.
const ENDING: Duration = Duration::from_secs(60);

/// Whether a process of the host has begun to end, or is gone. `stat` is its /proc/PID/stat, if there is one.
fn is_ending(stat: Option<&str>) -> bool {
    /// `PF_EXITING` of linux/sched.h.
    const EXITING: u64 = 4;
    // A name may hold blanks and parentheses.
    let Some((_, fields)) = stat.and_then(|stat| stat.rsplit_once(") ")) else { return true };
    let mut fields = fields.split(' ');
    let dead = matches!(fields.next(), Some("Z" | "X"));
    // ppid, pgrp, session, tty_nr and tpgid come before the flags.
    dead || fields
        .nth(5)
        .and_then(|flags| flags.parse::<u64>().ok())
        .is_some_and(|flags| flags & EXITING != 0)
}

/// Removes a group and those below it. A group stays busy for a moment after its last process has ended.
pub(crate) fn remove(controller: &str, dir: &Path, deadline: Instant) -> Result<()> {
    let mut pause = Duration::from_millis(1);
    loop {
        let mut failure = None;
        for dir in tree(dir) {
            match fs::remove_dir(&dir) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => failure = Some(Error::file(controller, "remove", &dir, error)),
            }
        }
        match failure {
            None => return Ok(()),
            Some(error) if error.io_kind() != Some(ErrorKind::ResourceBusy) => return Err(error),
            Some(error) if Instant::now() > deadline => {
                let pids = pids(controller, dir).unwrap_or_default();
                let ending =
                    |pid: &u32| is_ending(fs::read_to_string(format!("/proc/{pid}/stat")).ok().as_deref());
                if !pids.is_empty() && pids.iter().all(ending) && Instant::now() <= deadline + ENDING {
                    std::thread::sleep(pause);
                    continue;
                }
                return Err(if pids.is_empty() { error } else { Error::Busy { path: dir.into(), pids } });
            }
            Some(_) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_end_are_told_from_those_that_run() {
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!is_ending(Some(&own)));
        assert!(is_ending(None));
        assert!(is_ending(Some("7 (a) b) Z 1 1 1 0 -1 4228108 0")));
        assert!(is_ending(Some("7 (a) R 1 1 1 0 -1 4194308 0")));
        assert!(!is_ending(Some("7 (Z) R 1 1 1 0 -1 4194304 0")));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let path = format!("/proc/{}/stat", child.id());
        let until = Instant::now() + Duration::from_secs(20);
        while !is_ending(fs::read_to_string(&path).ok().as_deref()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(fs::read_to_string(&path).is_ok_and(|stat| is_ending(Some(&stat))));
        child.wait().unwrap();
    }
}
