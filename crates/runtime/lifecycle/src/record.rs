//! The record of a container: what is written to its directory, and the part of it that clients see.
//!
//! Key types: [`Record`], [`State`], [`Status`]. All are plain data.

use crate::Result;
use bundle::Pod;
use cgroups::{Manager, Saved};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Being set up.
    Creating,
    /// Set up, its process not yet started.
    Created,
    /// Started.
    Running,
    /// Frozen by `pause`.
    Paused,
    /// Over.
    Stopped,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Creating => "creating",
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        })
    }
}

/// A container's state as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Version of the specification.
    pub oci_version: String,
    /// Container id.
    pub id: String,
    /// Process that stands for the container on the host; 0 when it has ended.
    pub pid: i32,
    /// Where it is in its life.
    pub status: Status,
    /// Absolute path of the bundle.
    pub bundle: PathBuf,
    /// Absolute path of the root file system.
    pub rootfs: PathBuf,
    /// When it was created, RFC 3339.
    pub created: String,
    /// The configuration's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Name of the user that made it.
    pub owner: String,
}

/// What is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What clients see.
    pub state: State,
    /// Ends with the command that started it.
    pub foreground: bool,
    /// What the runtime needs to know of the container besides.
    #[serde(default)]
    pub runtime: Option<RuntimeState>,
}

/// What only the runtime reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeState {
    /// The container's control groups, if it has any.
    #[serde(default)]
    pub cgroups: Option<Saved>,
    /// Files that its overlays keep data in, to be removed with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<PathBuf>,
    /// Changes of its root are written to the directory below its overlay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub writes_back: bool,
    /// The sandbox that it joined because of its network namespace, by the ID of the first container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The stack inside uses the interfaces of its network namespace: others that come into the namespace join the sandbox.
    #[serde(default, skip_serializing_if = "is_false")]
    pub serves_network: bool,
    /// Of a sandbox that others have joined: the processor shares of its first container alone. Its group has those of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_weight: Option<u64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Record {
    /// The container's place in a pod.
    pub(crate) fn pod(&self) -> Pod {
        if let Some(sandbox) = self.runtime.as_ref().and_then(|runtime| runtime.sandbox.clone()) {
            return Pod::Member(sandbox);
        }
        Pod::of(&self.state.annotations, &self.state.id).unwrap_or_default()
    }

    /// Whether it runs in a sandbox of its own, which others may have joined.
    pub(crate) fn has_sandbox(&self) -> bool {
        !matches!(self.pod(), Pod::Member(_))
    }

    /// Writes down that the container runs in another one's sandbox because of its network namespace.
    pub(crate) fn set_sandbox(&mut self, sandbox: &str) {
        self.runtime.get_or_insert_default().sandbox = Some(sandbox.into());
    }

    /// Writes down that the stack inside uses the interfaces of the network namespace.
    pub(crate) fn set_serves_network(&mut self) {
        self.runtime.get_or_insert_default().serves_network = true;
    }

    /// Whether it does.
    pub(crate) fn serves_network(&self) -> bool {
        self.runtime.as_ref().is_some_and(|runtime| runtime.serves_network)
    }

    /// Where the control groups are, if the container has any.
    pub(crate) fn saved_groups(&self) -> Option<Saved> {
        self.runtime.as_ref()?.cgroups.clone()
    }

    /// The container's control groups; an error when it has none.
    pub(crate) fn groups(&self) -> Result<Manager> {
        match self.saved_groups() {
            Some(saved) => Ok(Manager::load(saved)),
            None => Err(
                "the container has no control group: it was made with --ignore-cgroups, or is a command of \
                 \"do\" without limits"
                    .into(),
            ),
        }
    }

    /// Writes down which control groups the container has.
    pub(crate) fn set_groups(&mut self, groups: &Manager) {
        self.runtime.get_or_insert_default().cgroups = Some(groups.save());
    }

    /// Writes down which files go with the container.
    pub(crate) fn set_stores(&mut self, stores: Vec<PathBuf>) {
        if !stores.is_empty() {
            self.runtime.get_or_insert_default().stores = stores;
        }
    }

    /// Writes down that changes of the root are written back.
    pub(crate) fn set_writes_back(&mut self, writes_back: bool) {
        if writes_back {
            self.runtime.get_or_insert_default().writes_back = true;
        }
    }

    /// Whether they are.
    pub(crate) fn writes_back(&self) -> bool {
        self.runtime.as_ref().is_some_and(|runtime| runtime.writes_back)
    }

    /// The processor shares that the container was given alone, if others have joined its sandbox.
    pub(crate) fn own_weight(&self) -> Option<u64> {
        self.runtime.as_ref()?.own_weight
    }

    /// Writes them down.
    pub(crate) fn set_own_weight(&mut self, weight: Option<u64>) {
        self.runtime.get_or_insert_default().own_weight = weight;
    }

    /// Removes the files that go with the container.
    pub(crate) fn remove_stores(&self) {
        if let Some(runtime) = &self.runtime {
            crate::stores::remove(&runtime.stores);
        }
    }

    /// Whether the host has stopped all processes of the container's sandbox. The sentry does not answer then.
    pub(crate) fn is_frozen(&self) -> bool {
        self.groups().is_ok_and(|groups| groups.is_frozen())
    }
}
