//! The metadata of an image.

use crate::files::{ContextState, FilesState};
use crate::kernel::KernelState;
use crate::network::NetworkState;
use cgroup::GroupsState;
use files::FdTableState;
use keys::KeysState;
use nsproxy::SpacesState;
use serde::{Deserialize, Serialize};
use task::ProcessesState;

/// Root, working directory and mask that threads share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextOf {
    /// The first of the threads.
    pub thread: i32,
    /// What they share.
    pub context: ContextState,
}

/// An address space that threads share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The first of the threads.
    pub thread: i32,
    /// The address space.
    pub state: mm::MemoryState,
}

/// A container beside what the rest of the image has of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    /// Its index.
    pub index: u32,
    /// What the runtime calls it.
    pub id: String,
    /// Its name in the pod; empty where it has none.
    pub name: String,
    /// Host and domain name of its own UTS namespace, and how often they were set.
    pub names: Option<(String, String, u64)>,
    /// The number that its own PID namespace gave out last, and its kernel.pid_max.
    pub pids: Option<(i32, i32)>,
    /// Control groups.
    pub cgroups: GroupsState,
}

/// A sandbox as plain data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxState {
    /// The version of ringfence that saved it.
    pub saved_by: String,
    /// What does not belong to a process.
    pub kernel: KernelState,
    /// Containers beside the first one.
    #[serde(default)]
    pub further: Vec<ContainerState>,
    /// Namespaces.
    #[serde(default)]
    pub spaces: SpacesState,
    /// Control groups.
    #[serde(default)]
    pub cgroups: GroupsState,
    /// Processes and threads.
    pub processes: ProcessesState,
    /// Descriptor tables.
    pub tables: Vec<FdTableState>,
    /// Roots and working directories.
    pub contexts: Vec<ContextOf>,
    /// Open files.
    pub files: FilesState,
    /// Sockets and connections.
    pub network: NetworkState,
    /// Keys and keyrings.
    #[serde(default)]
    pub keys: KeysState,
    /// Address spaces.
    pub memory: Vec<Memory>,
    /// Memory that address spaces share without a file.
    pub shared: Vec<mm::SharedState>,
}
