//! What of a kernel does not belong to a process.

use ktime::{Clock, Ktime};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::Kernel;

/// As many are kept of [`KernelState::boots`].
const MOST_BOOTS: usize = 10_000;

/// What of a kernel does not belong to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelState {
    /// What its clock showed.
    pub now: Ktime,
    /// When the sandbox started.
    pub boot: Ktime,
    /// What start times of processes are told by ([`Kernel::boot_ns`]), and until which moment each.
    #[serde(default)]
    pub boots: Vec<(Ktime, u64)>,
    /// CLOCK_MONOTONIC of programs, in nanoseconds.
    pub monotonic: u64,
    /// Host and domain name, and how often they were set.
    pub names: (String, String, u64),
    /// The host name that the specification gave.
    #[serde(default)]
    pub given_name: String,
    /// Values of /proc/sys that were set.
    pub sysctls: Vec<(String, String)>,
    /// Processes ever made.
    pub forks: u64,
    /// The number of the next socket, pipe or the like.
    #[serde(default)]
    pub next_ino: u64,
}

impl KernelState {
    /// What it has that cannot be saved.
    pub fn obstacles(kernel: &Kernel) -> Vec<String> {
        let first = &kernel.first;
        let counts = [(first.loops.numbers().len(), "loop devices")];
        counts
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("the container has {n} {what}"))
            .collect()
    }

    /// As it is now.
    pub fn of(kernel: &Kernel) -> KernelState {
        let names = kernel.first.namespaces.uts.names();
        let sysctls = kernel.sysctls.lock().iter().map(|(k, v)| ((*k).to_string(), v.clone())).collect();
        KernelState {
            now: kernel.clock().now(),
            boot: kernel.boot,
            boots: {
                let before = kernel.boots_before.get().cloned().unwrap_or_default();
                before.into_iter().chain([(kernel.clock().now(), kernel.boot_ns)]).collect()
            },
            monotonic: process_timers::monotonic(),
            names: (names.nodename, names.domainname, names.version),
            given_name: kernel.given_name.clone(),
            sysctls,
            forks: kernel.forks.load(Ordering::Relaxed),
            next_ino: kernel.vfs.resources.coming_ino(),
        }
    }

    /// A clock that goes on from this state.
    pub fn clock(&self) -> (Clock, Ktime) {
        (Clock::starting_at(self.now), self.boot.min(self.now))
    }

    /// Puts it into force, but for the clock.
    pub fn restore(&self, kernel: &Arc<Kernel>) -> Result<(), String> {
        let (nodename, domainname, version) = &self.names;
        if nodename.len() > 64 || domainname.len() > 64 {
            return Err("the host name is too long".into());
        }
        // A specification that gives another name than that of before means it.
        let renamed = !self.given_name.is_empty() && self.given_name != kernel.given_name;
        kernel.first.namespaces.uts.rename(|names| {
            names.nodename.clone_from(if renamed { &kernel.given_name } else { nodename });
            names.domainname.clone_from(domainname);
            names.version = version.saturating_sub(1);
        });
        for (name, value) in &self.sysctls {
            procfs::set_sysctl(kernel, &kernel.first, &name.replace('/', "."), value)
                .map_err(|e| format!("sysctl {name}: {e}"))?;
        }
        kernel.forks.store(self.forks, Ordering::Relaxed);
        kernel.vfs.resources.skip_inos(self.next_ino);
        // Each checkpoint adds one; a process with another start time is another one to programs.
        let _ = kernel.boots_before.set(self.boots.iter().copied().take(MOST_BOOTS).collect());
        Ok(())
    }
}
