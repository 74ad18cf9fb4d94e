//! A sandbox with its first container: [`SandboxSpec`] and its parts.

use crate::descriptors::FdIndex;
use crate::{
    Capture, FileAccess, HostUds, Interfaces, MountSpec, Network, Overlay, ProcessSpec, PropagationType,
    WindowSize,
};
use serde::{Deserialize, Serialize};

/// One sandbox with one container in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Container id, for logs.
    pub id: String,
    /// Of a container in another one's sandbox: the container of that sandbox that it shares the PID namespace of.
    pub pids_of: Option<String>,
    /// The same for the uts namespace; the names below are then not used.
    pub uts_of: Option<String>,
    /// It shares the IPC namespace of this container of the sandbox.
    #[serde(default)]
    pub ipc_of: Option<String>,
    /// It has an IPC namespace of its own, and does not share the sandbox's.
    #[serde(default)]
    pub own_ipc: bool,
    /// Host name in the sandbox's uts namespace.
    pub hostname: String,
    /// NIS domain name in the sandbox's uts namespace; empty leaves Linux's default.
    pub domainname: String,
    /// The root file system.
    pub root: RootSpec,
    /// Mounts in the order in which they are made, `/proc` and `/dev` included.
    pub mounts: Vec<MountSpec>,
    /// The first process.
    pub process: ProcessSpec,
    /// Paths that read as empty (a file as /dev/null, a directory as an empty one).
    pub masked_paths: Vec<String>,
    /// Paths that are remounted read-only.
    pub readonly_paths: Vec<String>,
    /// Device nodes beside those that every container has.
    pub devices: Vec<DeviceSpec>,
    /// Which devices its processes may make and open: of the rules about a use the last one holds.
    #[serde(default)]
    pub device_rules: Vec<DeviceRule>,
    /// Most tasks that the container may have at a time; nothing for no limit.
    pub pids_limit: Option<u32>,
    /// What /proc/PID/uid_map and gid_map show: first id inside, first outside, how many. Empty for all ids as they are.
    pub id_maps: [Vec<(u32, u32, u32)>; 2],
    /// Kernel parameters as in /proc/sys, dots for slashes.
    pub sysctl: Vec<(String, String)>,
    /// What the container's time namespace adds to CLOCK_MONOTONIC and CLOCK_BOOTTIME: seconds and nanoseconds.
    #[serde(default)]
    pub time_offsets: [(i64, u32); 2],
    /// Leads to the container's gofer, which connects to Unix sockets of the host in the trees of bind mounts. The number of
    /// a tree there is the index of its descriptor.
    #[serde(default)]
    pub socket_gofer: Option<FdIndex>,
    /// Leads to the container's gofer, which opens files of the trees once more that the kernel has open.
    #[serde(default)]
    pub opening_gofer: Option<FdIndex>,
    /// What programs can do with Unix sockets of the host in these trees.
    #[serde(default)]
    pub host_uds: HostUds,
    /// The descriptors of trees lead to the container's gofer, which serves them by its protocol (`--directfs=false`): the kernel
    /// makes no call with a path. Otherwise each is a directory of the host.
    #[serde(default)]
    pub through_gofer: bool,
    /// Leads to a tree of the same gofer for the kernel's own files in memory. The first container's counts.
    #[serde(default)]
    pub memory_tree: Option<FdIndex>,
    /// Standard input, output and error of the first process, unless [`console`](Self::console) is set.
    pub stdio: [FdIndex; 3],
    /// Further descriptors of the first process, numbered from 3.
    pub preserved: Vec<FdIndex>,
    /// Files of the container's control group on the host, by name, to be read only.
    pub control_group: Vec<(String, FdIndex)>,
    /// The host's processors that are online, as a list (`0-3`); empty where the runtime cannot tell.
    #[serde(default)]
    pub processors: String,
    /// The user's terminal, in raw mode. When set, the first process gets a
    /// pseudo-terminal of the sandbox as controlling terminal and standard
    /// streams, and the kernel pumps bytes between it and this descriptor.
    pub console: Option<FdIndex>,
    /// Size of that terminal at the start.
    pub console_size: WindowSize,
    /// A signal from outside takes effect on the first process even when that has no handler for it, as on an
    /// ordinary child of the caller. Without this it is protected as the init of a pid namespace is.
    pub signals_end_init: bool,
    /// The kernel's own init is process 1, and the first process its child.
    #[serde(default)]
    pub own_init: bool,
    /// Network mode.
    pub network: Network,
    /// What the guest is shown of its network namespace.
    pub interfaces: Interfaces,
    /// Where packets are written to, if they are.
    pub capture: Option<Capture>,
    /// The file that takes, at the end, what programs asked for and did not get: a list of [`Refusal`](crate::Refusal) as JSON.
    #[serde(default)]
    pub coverage: Option<FdIndex>,
    /// Descriptors of trees that are images of EROFS: directories that hold an image as [`FILE_ENTRY`](crate::FILE_ENTRY).
    #[serde(default)]
    pub images: Vec<FdIndex>,
    /// Capabilities that no process of the container has, whatever its own description says.
    pub withheld: u64,
    /// Which platform runs the guest.
    pub platform: PlatformName,
    /// Log every system call of the guest.
    pub strace: bool,
    /// Of them only these, by name; all if there are none.
    #[serde(default)]
    pub strace_only: Vec<String>,
    /// Log more.
    pub debug: bool,
    /// Trace sessions that begin before the first process.
    #[serde(default)]
    pub trace: Vec<TraceSpec>,
    /// The image of a checkpoint, whose processes take the place of the first process.
    #[serde(default)]
    pub image: Option<ImageSpec>,
    /// The container's name in its pod; empty where it has none.
    #[serde(default)]
    pub name_in_pod: String,
    /// The sandbox of a pool: its name, standard streams and image come when it is taken.
    #[serde(default)]
    pub pooled: bool,
}

impl SandboxSpec {
    /// The kernel asks gofers about files: the container's own one, or others.
    pub fn asks_gofers(&self) -> bool {
        self.through_gofer || self.mounts.iter().any(|mount| mount.fstype == "gofer")
    }
}

/// The image of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSpec {
    /// The file of metadata, open for reading.
    pub metadata: FdIndex,
    /// The file of pages, open for reading.
    pub pages: FdIndex,
    /// So many files of pages of earlier images follow it.
    #[serde(default)]
    pub layers: usize,
    /// TCP connections with peers outside the sandbox go on; otherwise they are reset.
    #[serde(default)]
    pub keep_tcp: bool,
}

/// A trace session that begins with the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSpec {
    /// The session.
    pub session: trace_wire::session::Session,
    /// The descriptors of its sinks, in their order.
    pub fds: Vec<FdIndex>,
}

/// The root file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootSpec {
    /// O_PATH descriptor of the root directory. The host's mount behind it is
    /// read-only whenever the guest's writes do not go to it.
    pub fd: FdIndex,
    /// Mounted read-only for the guest (over the overlay, if there is one).
    pub readonly: bool,
    /// What lies over it.
    pub overlay: Option<Overlay>,
    /// The tree is an overlay of the host with an upper layer that was made for the container.
    pub layered: bool,
    /// Which processes change its files.
    pub access: FileAccess,
    /// Propagation type of its mount.
    pub propagation: PropagationType,
}

/// A device node. The kernel has no drivers but its own: any other device answers ENXIO when opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// Absolute path in the container.
    pub path: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Device number.
    pub major: u32,
    /// Device number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Kinds of [`DeviceSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// A named pipe.
    Fifo,
}

/// A rule of `linux.resources.devices`. What is not given is all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRule {
    /// Allows rather than denies.
    pub allow: bool,
    /// About block devices, or character devices.
    pub block: Option<bool>,
    /// Major number.
    pub major: Option<u32>,
    /// Minor number.
    pub minor: Option<u32>,
    /// What it is about: 1 for mknod(2), 2 for reading, 4 for writing, and their sums.
    pub access: u32,
}

/// Platforms, as `--platform` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformName {
    /// SIGSYS and shared memory.
    #[default]
    Systrap,
    /// ptrace(2).
    Ptrace,
}

/// What becomes of a sandbox that has been saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterCheckpoint {
    /// It goes on.
    GoesOn,
    /// Its programs are killed, and their connections end.
    #[default]
    Ends,
    /// The same, and nothing leaves it any more: hosts outside do not learn of it, for connections that are to go on.
    EndsSilently,
}
