//! Hooks: programs of the container's manager, run at six points of the container's life with its state on standard
//! input.
//!
//! `prestart`, `createRuntime`, `poststart` and `poststop` run in the runtime's namespaces, as everywhere.
//!
//! `createContainer` is looked up in the runtime's file system and should run in the container's namespaces. It runs in
//! those that exist on the host (network, IPC, UTS: see [`HookNamespace`]). The sandbox's own kernel makes the
//! container's mounts, so the hook sees the runtime's mounts. The container sees the hook's changes below `root.path`.
//!
//! `startContainer` is a program of the container, and so never runs on the host: the kernel inside runs it as a
//! process of the container before the container's own, with [`State`] on its standard input. The code that talks to
//! the kernel does that; nothing here does.
//!
//! A hook without `env` gets the runtime's environment, one with an empty list gets none, as with runc. A hook that
//! takes longer than its `timeout` is killed with all that it started.

#![forbid(unsafe_code)]

mod run;

use oci_spec::runtime::{Hook, Hooks};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

/// The points of a container's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// After the namespaces were made, before the program is started. Deprecated, and much used.
    Prestart,
    /// The same, right after it.
    CreateRuntime,
    /// The same, in the container's namespaces.
    CreateContainer,
    /// As part of `start`, by the container.
    StartContainer,
    /// After the program was started.
    Poststart,
    /// After the container was deleted.
    Poststop,
}

impl Kind {
    /// In the order in which they run.
    pub const ALL: [Self; 6] = [
        Self::Prestart,
        Self::CreateRuntime,
        Self::CreateContainer,
        Self::StartContainer,
        Self::Poststart,
        Self::Poststop,
    ];

    /// The hooks of this point.
    pub fn of(self, hooks: &Hooks) -> &[Hook] {
        let list = match self {
            Self::Prestart => hooks.prestart(),
            Self::CreateRuntime => hooks.create_runtime(),
            Self::CreateContainer => hooks.create_container(),
            Self::StartContainer => hooks.start_container(),
            Self::Poststart => hooks.poststart(),
            Self::Poststop => hooks.poststop(),
        };
        list.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "createRuntime",
            Self::CreateContainer => "createContainer",
            Self::StartContainer => "startContainer",
            Self::Poststart => "poststart",
            Self::Poststop => "poststop",
        })
    }
}

/// A container's state as the specification has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Version of the specification.
    pub oci_version: String,
    /// Container.
    pub id: String,
    /// `creating`, `created`, `running` or `stopped`.
    pub status: String,
    /// The container's process on the host, unless it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Absolute path of the bundle.
    pub bundle: PathBuf,
    /// Annotations of the configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A namespace that a hook joins.
#[derive(Clone, Copy, Debug)]
pub struct HookNamespace<'a> {
    /// Network, ipc, uts or cgroup; others cannot be joined by a thread.
    pub kind: rustix::thread::LinkNameSpaceType,
    /// The namespace.
    pub fd: BorrowedFd<'a>,
}

/// What went wrong; one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Fails on a hook that the specification does not allow; for when the configuration is read.
pub fn check(hooks: &Hooks) -> Result<(), Error> {
    for kind in Kind::ALL {
        for (index, hook) in kind.of(hooks).iter().enumerate() {
            let path = hook.path();
            if !path.is_absolute() {
                return Err(Error(format!("hooks.{kind}[{index}].path {path:?} must be an absolute path")));
            }
            if let Some(timeout) = hook.timeout().filter(|timeout| *timeout <= 0) {
                return Err(Error(format!(
                    "hooks.{kind}[{index}].timeout {timeout} must be greater than zero"
                )));
            }
            if let Some(bad) = hook.env().iter().flatten().find(|entry| !entry.contains('=')) {
                let what = format!("hooks.{kind}[{index}].env entry {bad:?} is not of the form NAME=value");
                return Err(Error(what));
            }
        }
    }
    Ok(())
}

/// Runs the hooks of one point one after the other, in the runtime's namespaces save for those given. The first that
/// fails ends it.
pub fn run(hooks: &Hooks, kind: Kind, state: &State, namespaces: &[HookNamespace<'_>]) -> Result<(), Error> {
    for (index, hook) in kind.of(hooks).iter().enumerate() {
        one(kind, index, hook, state, namespaces)?;
    }
    Ok(())
}

/// Runs all hooks of one point, whatever becomes of them, and gives the failures: what `poststop` wants.
pub fn run_all(hooks: &Hooks, kind: Kind, state: &State) -> Vec<Error> {
    let list = kind.of(hooks).iter().enumerate();
    list.filter_map(|(index, hook)| one(kind, index, hook, state, &[]).err()).collect()
}

fn one(
    kind: Kind,
    index: usize,
    hook: &Hook,
    state: &State,
    namespaces: &[HookNamespace<'_>],
) -> Result<(), Error> {
    let done = serde_json::to_vec(state)
        .map_err(|error| error.to_string())
        .and_then(|state| run::run(hook, &state, namespaces));
    done.map_err(|reason| Error(format!("error running {kind} hook #{index}: {reason}")))
}

#[cfg(test)]
mod tests;
