//! The control groups of a container on the host.

use crate::settings::users_are_the_hosts;
use crate::{Result, Settings};
use bundle::Prepared;
use cgroups::Manager;
use oci_spec::runtime::{LinuxResources, Spec};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Control groups that are removed unless they are given to a container. Without any, nothing is done.
pub(crate) struct Groups(Option<Manager>);

impl Groups {
    /// Those of a new container; nothing is made yet. Fails when there are processes in them.
    pub(crate) fn new(settings: &Settings, spec: &Spec, id: &str) -> Result<Self> {
        let manager = manager(settings, spec, id)?;
        if manager.as_ref().is_some_and(stays_in_use) {
            return Err(
                "the control group of the container has processes in it; choose another linux.cgroupsPath"
                    .into(),
            );
        }
        Ok(Self(manager))
    }

    /// Those of a command of `do`: none without limits, and an error where limits cannot be kept.
    pub(crate) fn of_command(settings: &Settings, limits: Option<&Spec>, id: &str) -> Result<Self> {
        let Some(spec) = limits else { return Ok(Self(None)) };
        match Self::new(settings, spec, id)? {
            Self(None) => {
                Err("--memory and --cpus take a control group, and there is none to be had here".into())
            }
            groups => Ok(groups),
        }
    }

    /// Whether the host has ended a process there for want of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.0.as_ref().is_some_and(|manager| manager.oom_kill_count() > 0)
    }

    pub(crate) fn manager(&self) -> Option<&Manager> {
        self.0.as_ref()
    }

    /// What new processes enter them by. Empty where a process has to be put there by its ID.
    pub(crate) fn entrances(&self) -> hostsys::spawn::Groups {
        let Some(manager) = &self.0 else { return hostsys::spawn::Groups::default() };
        match manager.entrances() {
            Ok(cgroups::Entrances { tasks, directory }) => hostsys::spawn::Groups { tasks, directory },
            Err(error) => {
                // Putting the first process there fails likewise, or goes on without that group.
                log::debug!("{error}");
                hostsys::spawn::Groups::default()
            }
        }
    }

    /// Puts a process of the host there.
    pub(crate) fn join(&mut self, pid: i32) -> io::Result<()> {
        match &mut self.0 {
            Some(manager) => manager.apply(pid as u32).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    /// Sets the configuration's limits and shows the files that the container may see: their descriptors.
    pub(crate) fn limit(&self, spec: &Spec, prepared: &mut Prepared, shares: bool) -> Result<Vec<OwnedFd>> {
        let Some(manager) = &self.0 else { return Ok(Vec::new()) };
        if let Some(resources) = resources(spec) {
            manager.set(resources)?;
        }
        let shown = if shares {
            // The sandbox makes its processes, and puts them here if there is a limit to keep.
            let limited = limited(spec);
            let mut files = manager.open_procs(&limited)?;
            files.extend(manager.open_shown_of(&limited));
            files
        } else {
            manager.open_shown()
        };
        let (names, opened): (Vec<_>, _) = shown.into_iter().unzip();
        prepared.show_control_group(names);
        Ok(opened)
    }

    /// Leaves them to the container.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if let Some(manager) = self.0.take()
            && let Err(error) = manager.destroy()
        {
            log::warn!("{error}");
        }
    }
}

/// The control groups that a container of this configuration has.
pub(crate) fn manager(settings: &Settings, spec: &Spec, id: &str) -> Result<Option<Manager>> {
    if settings.ignore_cgroups {
        return Ok(None);
    }
    let rootless = settings.is_rootless() || !users_are_the_hosts();
    match Manager::new(spec.linux().as_ref(), id, settings.systemd_cgroup, rootless) {
        Ok(manager) => Ok(Some(manager)),
        Err(error) if rootless => {
            log::debug!("no control groups: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The limits that a configuration asks for.
fn resources(spec: &Spec) -> Option<&LinuxResources> {
    spec.linux().as_ref().and_then(|linux| linux.resources().as_ref())
}

/// The controllers that a container of a pod has limits of its own for.
fn limited(spec: &Spec) -> Vec<&'static str> {
    let Some(resources) = resources(spec) else { return Vec::new() };
    let memory = resources.memory().as_ref().and_then(|memory| memory.limit()).is_some_and(|limit| limit > 0);
    let cpu = resources.cpu().as_ref();
    let quota = cpu.and_then(|cpu| cpu.quota()).is_some_and(|quota| quota > 0);
    let cpus = cpu.and_then(|cpu| cpu.cpus().as_ref()).is_some_and(|cpus| !cpus.is_empty());
    let all = [("memory", memory), ("cpu", quota), ("cpuset", cpus)];
    all.into_iter().filter(|(_, limited)| *limited).map(|(controller, _)| controller).collect()
}

/// Whether a control group has processes that are not just ending. Processes of a container may still be ending after
/// its command line was killed, although nothing says any more that it lives.
fn stays_in_use(group: &Manager) -> bool {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(10);
    let end = Instant::now() + PATIENCE;
    while group.in_use() {
        if Instant::now() >= end {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_limits_of_a_pods_container() {
        let limited = |resources: serde_json::Value| {
            let spec = serde_json::json!({ "ociVersion": "1.0.2", "linux": { "resources": resources } });
            super::limited(&serde_json::from_value(spec).unwrap())
        };
        assert!(limited(serde_json::json!({})).is_empty());
        assert!(limited(serde_json::json!({ "memory": { "limit": -1 }, "cpu": { "shares": 2 } })).is_empty());
        assert_eq!(limited(serde_json::json!({ "memory": { "limit": 4096 } })), ["memory"]);
        assert_eq!(limited(serde_json::json!({ "cpu": { "quota": 1000, "cpus": "0" } })), ["cpu", "cpuset"]);
    }

    #[test]
    fn without_control_groups_nothing_is_done() {
        let settings = Settings { ignore_cgroups: true, ..Settings::default() };
        let mut groups = Groups::new(&settings, &Spec::default(), "x").unwrap();
        groups.join(std::process::id() as i32).unwrap();
        assert!(groups.manager().is_none());
    }
}
