//! The host's control groups of a container: limits, usage, freezing, out-of-memory events.
//!
//! All processes of a sandbox (init, the sentry, the stubs) are in the container's group. So the host limits the usage
//! of the guest and of the sentry together. The limit on the number of processes would have another meaning: see
//! [`host_pids_max`].
//!
//! A [`Manager`] is made from a configuration, and later again from the result of [`Manager::save`]. It keeps no
//! descriptors. cgroup v1 and v2 are written through their files, systemd's driver through `busctl`. Limits go to the
//! same files as with runc, so that `docker update` and similar commands see what they expect.
//!
//! `kernel` and `kernelTCP` memory limits are ignored, as runc does. In cgroup v2 device rules are ignored: they
//! would bind our own processes only, and those have filters of their own; the guest's devices are the sandbox's.

#![forbid(unsafe_code)]

mod convert;
mod error;
mod files;
mod freezer;
mod groups;
mod layout;
mod oom;
pub mod stats;
mod systemd;
mod v1;
mod v2;
mod weight;

#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use oom::OomEvents;
pub use stats::Stats;

use groups::Groups;
use layout::Layout;
use oci_spec::runtime::{Linux, LinuxResources};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use systemd::Unit;

/// How long [`Manager::destroy`] waits for processes that have just ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tasks that a sandbox needs on the host beside those of the guest: init, the gofer, the sentry's own threads,
/// the zygote and its ready children.
const HOST_TASKS: u64 = 64;

/// The host's `pids.max` for a container that may have `limit` tasks; `None` is no limit.
///
/// A guest thread takes two tasks on the host (a thread of the sentry and one of a stub), and the sandbox some of its
/// own. The guest's limit itself is the kernel's business inside (`SandboxSpec::pids_limit`); the host's is there for
/// the case that the sandbox misbehaves.
pub fn host_pids_max(limit: i64) -> Option<u64> {
    let limit = u64::try_from(limit).ok().filter(|limit| *limit > 0)?;
    Some(limit.saturating_mul(2).saturating_add(HOST_TASKS))
}

/// What a state file keeps of a [`Manager`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// Directories by controller; in cgroup v2 one, under the empty name.
    pub paths: BTreeMap<String, PathBuf>,
    /// Controllers that could not be joined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// The caller had no privileges.
    #[serde(default)]
    pub rootless: bool,
    /// The unit that systemd made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<Unit>,
}

/// What a new process enters a control group by, see [`Manager::entrances`].
#[derive(Debug, Default)]
pub struct Entrances {
    /// cgroup v1: the `tasks` file of each controller. The process writes 0 to each.
    pub tasks: Vec<OwnedFd>,
    /// cgroup v2: the directory, for CLONE_INTO_CGROUP.
    pub directory: Option<OwnedFd>,
}

/// The control group of one container.
#[derive(Clone, Debug)]
pub struct Manager {
    groups: Groups,
    /// The configuration names a path: what cannot be joined there is an error even for an ordinary user.
    named: bool,
    /// Top of each hierarchy; empty after [`load`](Self::load).
    tops: BTreeMap<String, PathBuf>,
    /// With systemd's driver.
    unit: Option<Unit>,
    /// The unit has been made.
    started: bool,
}

impl Manager {
    /// The group of a container `id`; nothing is made yet.
    ///
    /// An absolute `cgroupsPath` counts from the top of each hierarchy, a relative one (by default the id) from the
    /// caller's own group. With `systemd` it has the form `slice:prefix:name`.
    pub fn new(linux: Option<&Linux>, id: &str, systemd: bool, rootless: bool) -> Result<Self> {
        Self::in_layout(&Layout::detect()?, linux, id, systemd, rootless)
    }

    fn in_layout(
        layout: &Layout,
        linux: Option<&Linux>,
        id: &str,
        systemd: bool,
        rootless: bool,
    ) -> Result<Self> {
        let path = linux.and_then(|linux| linux.cgroups_path().clone()).filter(|p| !p.as_os_str().is_empty());
        let given = path.as_ref().map(|path| path.to_string_lossy());
        let unit = systemd.then(|| Unit::parse(given.as_deref(), id, rootless)).transpose()?;
        let place = match &unit {
            Some(unit) => unit.path()?,
            None => path.clone().unwrap_or_else(|| id.into()),
        };
        let paths = layout.directories(&place);
        let top = |name: &String| Some((name.clone(), layout.top(name)?.to_path_buf()));
        let tops = paths.keys().filter_map(top).collect();
        let groups = Groups { paths, refused: Vec::new(), rootless };
        Ok(Self { groups, named: path.is_some() || systemd, tops, unit, started: false })
    }

    /// A manager as [`save`](Self::save) described it.
    pub fn load(saved: Saved) -> Self {
        let Saved { paths, refused, rootless, unit } = saved;
        let groups = Groups { paths, refused, rootless };
        Self { groups, named: true, tops: BTreeMap::new(), unit, started: true }
    }

    /// For a state file.
    pub fn save(&self) -> Saved {
        let Groups { paths, refused, rootless } = self.groups.clone();
        Saved { paths, refused, rootless, unit: self.unit.clone() }
    }

    /// Directories by controller.
    pub fn paths(&self) -> &BTreeMap<String, PathBuf> {
        &self.groups.paths
    }

    /// Whether the host has cgroup v2.
    pub fn is_v2(&self) -> bool {
        self.groups.v2()
    }

    /// Whether a process is in the group already, or it is frozen: the sign of an id used twice.
    pub fn in_use(&self) -> bool {
        self.pids().is_ok_and(|pids| !pids.is_empty())
    }

    /// Makes the group where it is missing, and puts a process into it; its later children follow. For an ordinary
    /// user without a `cgroupsPath` of his own, a group that he may not make is left out (and a limit that needs it
    /// is an error of [`set`](Self::set)).
    pub fn apply(&mut self, pid: u32) -> Result<()> {
        if let Some(unit) = self.unit.clone().filter(|_| !self.started) {
            unit.start(pid, self.is_v2())?;
            self.started = true;
            self.await_unit(pid);
        }
        for (controller, dir) in self.groups.paths.clone() {
            let result = self.join(&controller, &dir, pid);
            match result {
                Err(error) if self.groups.rootless && !self.named && error.is_permission() => {
                    log::debug!("no control group for {controller:?}: {error}");
                    self.groups.paths.remove(&controller);
                    self.groups.refused.push(controller);
                }
                Err(error) => {
                    // Nothing half made stays behind.
                    let _ = self.destroy();
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// systemd answers before it has made the group. What it has not made after a while is made by joining.
    fn await_unit(&self, pid: u32) {
        let deadline = Instant::now() + PATIENCE;
        let place = ["", layout::NAMED, "memory"].iter().find_map(|name| self.groups.paths.get(*name));
        while place.is_some_and(|dir| !systemd::has_joined(dir, pid)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn join(&self, controller: &str, dir: &Path, pid: u32) -> Result<()> {
        self.make(controller, dir)?;
        files::write(controller, &dir.join("cgroup.procs"), &pid.to_string())
    }

    /// Makes the group where it is missing, and opens what a new process enters it by. A process that is put there by its ID
    /// ([`apply`](Self::apply)) costs a wait of 8 to 24 ms. Nothing is opened with systemd's driver, which wants an ID.
    pub fn entrances(&self) -> Result<Entrances> {
        let mut all = Entrances::default();
        if self.unit.is_some() {
            return Ok(all);
        }
        for (controller, dir) in &self.groups.paths {
            self.make(controller, dir)?;
            if self.is_v2() {
                all.directory = Some(files::open_directory(controller, dir)?);
            } else {
                all.tasks.push(files::open_for_writing(controller, &dir.join("tasks"))?);
            }
        }
        Ok(all)
    }

    fn make(&self, controller: &str, dir: &Path) -> Result<()> {
        if controller.is_empty() {
            v2::create(self.tops.get("").map_or(dir, PathBuf::as_path), dir)?;
        } else {
            files::create(controller, dir)?;
        }
        if controller == "cpuset" {
            inherit_cpuset(self.tops.get("cpuset").map_or(dir, PathBuf::as_path), dir)?;
        }
        Ok(())
    }

    /// Writes the limits; also for `update`. What is not mentioned stays as it is. The group has been made by
    /// [`apply`](Self::apply).
    pub fn set(&self, resources: &LinuxResources) -> Result<()> {
        if let Some(unit) = &self.unit {
            unit.set(resources, self.is_v2())?;
        }
        if self.is_v2() { v2::set(&self.groups, resources) } else { v1::set(&self.groups, resources) }
    }

    /// The group's share of the processors beside its neighbours, `cpu.shares` or `cpu.weight`; `None` without the controller.
    pub fn cpu_weight(&self) -> Option<u64> {
        weight::get(&self.groups)
    }

    /// Sets that share, as near to `weight` as the kernel takes.
    pub fn set_cpu_weight(&self, weight: u64) -> Result<()> {
        match (weight::set(&self.groups, weight)?, &self.unit) {
            (Some(weight), Some(unit)) => unit.set_weight(weight, self.is_v2()),
            _ => Ok(()),
        }
    }

    /// What the container uses.
    pub fn stats(&self) -> Stats {
        stats::collect(&self.groups)
    }

    /// The files that say what the container may use and uses, opened for reading: what of them there is, by name.
    pub fn open_shown(&self) -> Vec<(String, OwnedFd)> {
        files::open(&self.groups)
    }

    /// Those that tell of the limits that these controllers keep.
    pub fn open_shown_of(&self, controllers: &[&str]) -> Vec<(String, OwnedFd)> {
        files::open_of(&self.groups, controllers)
    }

    /// The files that put a process under the limits that these controllers keep, opened for writing.
    pub fn open_procs(&self, controllers: &[&str]) -> Result<Vec<(String, OwnedFd)>> {
        files::open_procs(&self.groups, controllers)
    }

    /// Stops every process of the group, the sentry included: nothing inside answers until [`thaw`](Self::thaw).
    pub fn freeze(&self) -> Result<()> {
        freezer::set(&self.groups, true)
    }

    /// Lets the processes go on.
    pub fn thaw(&self) -> Result<()> {
        freezer::set(&self.groups, false)
    }

    /// Whether the group is frozen.
    pub fn is_frozen(&self) -> bool {
        freezer::state(&self.groups).unwrap_or(false)
    }

    /// The host's processes in the group and below it.
    pub fn pids(&self) -> Result<Vec<u32>> {
        let preferred = ["", "devices", "pids", "memory", "freezer"];
        let known = preferred.iter().find_map(|name| Some((*name, self.groups.paths.get(*name)?)));
        let any = || self.groups.paths.iter().next().map(|(name, dir)| (name.as_str(), dir));
        match known.or_else(any) {
            Some((controller, dir)) if dir.exists() => files::pids(controller, dir),
            _ => Ok(Vec::new()),
        }
    }

    /// Removes the group in every hierarchy, with what is below it. Doing it twice is fine. Its processes have
    /// ended; those that are about to are waited for.
    pub fn destroy(&self) -> Result<()> {
        let mut failure = match &self.unit {
            Some(unit) if self.started => unit.stop(),
            _ => Ok(()),
        };
        let deadline = Instant::now() + PATIENCE;
        for (controller, dir) in &self.groups.paths {
            match files::remove(controller, dir, deadline) {
                Err(error) if self.groups.rootless && error.is_permission() => log::debug!("{error}"),
                Err(error) => failure = Err(error),
                Ok(()) => {}
            }
        }
        failure
    }

    /// A descriptor to poll for events of the kernel's out-of-memory killer.
    pub fn oom_events(&self) -> Result<OomEvents> {
        oom::events(&self.groups)
    }

    /// How many processes the kernel has killed in this group for want of memory.
    pub fn oom_kill_count(&self) -> u64 {
        oom::kills(&self.groups)
    }
}

/// A new cpuset group of v1 is empty and can hold no process until it has processors and memory nodes; so may be
/// those above it that were made with it.
fn inherit_cpuset(top: &Path, dir: &Path) -> Result<()> {
    let below: Vec<&Path> =
        dir.ancestors().take_while(|above| *above != top && above.starts_with(top)).collect();
    for at in below.into_iter().rev() {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let path = at.join(file);
            if files::read("cpuset", &path)?.is_empty()
                && let Some(above) = at.parent()
            {
                files::write("cpuset", &path, &files::read("cpuset", &above.join(file))?)?;
            }
        }
    }
    Ok(())
}
