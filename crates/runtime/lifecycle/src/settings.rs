//! Settings for all containers of one caller.

use sandbox::logging::Format;
use spec::Network;
use std::path::PathBuf;

/// How packets are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketCapture {
    /// Path of the file; `%ID%`, `%TIMESTAMP%` and `%COMMAND%` are replaced.
    pub file: String,
    /// Bytes that are kept of each packet.
    pub snaplen: u32,
    /// How long the file may become.
    pub most: u64,
}

/// Choices that do not depend on the container.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The state directory, if it is not the usual one.
    pub root: Option<PathBuf>,
    /// The caller is to be root inside and nothing else; so it is for an ordinary user in any case.
    pub rootless: bool,
    /// What every container of a bundle is made with.
    pub containers: bundle::Options,
    /// The network mode, if one was chosen.
    pub network: Option<Network>,
    /// Make no control groups.
    pub ignore_cgroups: bool,
    /// Have systemd make the control groups.
    pub systemd_cgroup: bool,
    /// Pattern for the path of the sandbox's own log; see [`sandbox_log`](crate::sandbox_log).
    pub debug_log: Option<String>,
    /// Form of that log.
    pub debug_log_format: Format,
    /// The same for when there is no other: warnings and panics go there.
    pub panic_log: Option<String>,
    /// The log of the command line, which containers in the foreground use as well.
    pub log: Option<PathBuf>,
    /// Form of the command line's log.
    pub log_format: Format,
    /// Most descriptors that each of a sandbox's processes may have, if it is not the caller's limit.
    pub descriptors: Option<u64>,
    /// A command of `do` has a place in the state directory: a metric server sees it.
    pub watched: bool,
    /// Where packets are to be written to.
    pub capture: Option<PacketCapture>,
    /// The trace sessions that every sandbox begins with.
    pub trace: Vec<trace_wire::config::Config>,
}

impl Settings {
    /// Whether the caller is to be root inside and nothing else.
    pub fn is_rootless(&self) -> bool {
        self.rootless || !rustix::process::geteuid().is_root()
    }

    /// The state directory.
    pub fn state_dir(&self) -> PathBuf {
        if let Some(dir) = &self.root {
            return dir.clone();
        }
        let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR");
        // Root of a user namespace is an ordinary user of the host, and /run does not belong to that user.
        if !self.is_rootless() && (users_are_the_hosts() || runtime_dir.is_none()) {
            return "/run/ringfence".into();
        }
        match runtime_dir {
            Some(dir) => PathBuf::from(dir).join("ringfence"),
            None => format!("/tmp/ringfence-{}", rustix::process::geteuid().as_raw()).into(),
        }
    }
}

/// Whether every user of the host has the same number here: not inside a user namespace, in other words.
pub(crate) fn users_are_the_hosts() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_the_chosen_one() {
        let settings = Settings { root: Some("/r".into()), rootless: true, ..Settings::default() };
        assert_eq!(settings.state_dir(), PathBuf::from("/r"));
    }
}
