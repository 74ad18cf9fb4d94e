//! Turns an OCI bundle, or the command line of `do`, into the specification for the kernel and the list for the gofer.
//!
//! [`load`] reads a bundle's `config.json` and returns [`Prepared`]: the kernel's [`SandboxSpec`] and the host trees
//! that the gofer has to open for it. Everything is validated here. An unsupported field is an error that names it, and
//! is never silently dropped. Paths of the host are checked to exist, but only the gofer opens them.

#![forbid(unsafe_code)]

mod caps;
mod config;
mod device_rules;
mod devices;
mod features;
mod files;
mod host;
mod host_mounts;
mod id_mapped;
mod images;
mod mount_hints;
mod mounts;
mod namespaces;
mod overlay;
mod overlay2;
mod parse;
mod pod;
mod process;
mod scheduling;
mod seccomp;
mod sysctl;
mod template;
mod time_offsets;
mod unsupported;

pub use caps::{ALL as ALL_CAPABILITIES, bit as capability};
pub use config::{CONFIG_FILE, Config, NetworkOwner, console_size, load, load_process, load_spec};
pub use features::features;
pub use files::open_regular;
pub use host::{HostCommand, Volume, for_host_command};
pub use id_mapped::IdMapped;
pub use namespaces::{IdMaps, IdRange, Namespace, Namespaces};
pub use overlay::lower_layers;
pub use overlay2::{Medium, Overlay2, OverlayChoice, STORE_PREFIX, StorePlace};
pub use pod::Pod;
pub use process::translate as translate_process;
pub use seccomp::compile as compile_seccomp;
pub use template::{template, template_rootless};

use serde::{Deserialize, Serialize};
use spec::{
    Capture, FdIndex, FileAccess, HostUds, ImageSpec, MountSpec, Network, PlatformName, SandboxSpec,
    TraceSpec,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use trace_wire::session::Session;

/// A container ready to be started, apart from its descriptors.
///
/// Descriptor `i` of the specification is `trees[i]` for as many trees as
/// there are; the standard streams follow in order, and the terminal, if any,
/// is the descriptor after those of the trees instead; the preserved ones and those of `stores` follow, then
/// the socket for writing back if there is one, the file of [`capture_to`](Prepared::capture_to), that of
/// [`tell_coverage`](Prepared::tell_coverage), those of [`trace`](Prepared::trace),
/// those of the image of [`restore`](Prepared::restore), and the files of the control group, which [`show_control_group`](Prepared::show_control_group) adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// For the kernel.
    pub spec: SandboxSpec,
    /// For the gofer; the root file system first.
    pub trees: Vec<HostTree>,
    /// To be connected to; the connections are descriptors behind those of the container's own gofer.
    pub gofers: Vec<Gofer>,
    /// What changes in the root is written back with devices, set-ID bits and capabilities of files.
    pub writes_privileged: bool,
    /// The files that overlays keep data in.
    pub stores: Vec<StorePlace>,
    /// Things in the configuration that have no effect yet, for the log.
    pub warnings: Vec<String>,
    /// The configuration's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The configuration's namespaces.
    pub namespaces: Namespaces,
    /// Which users of the host the container has, when the configuration says so.
    pub id_maps: Option<IdMaps>,
    /// The sandbox that it runs in.
    pub pod: Pod,
    /// It is to run in that sandbox because its network namespace is the sandbox's.
    pub by_network: bool,
}

impl Prepared {
    /// Whether what changes in the root is written to the directory below its overlay.
    pub fn writes_back(&self) -> bool {
        self.spec.root.overlay.as_ref().is_some_and(|overlay| overlay.write_back.is_some())
    }

    /// Shows files of these names, of the control group on the host, to the kernel; their descriptors come last, in this
    /// order.
    pub fn show_control_group(&mut self, names: Vec<String>) {
        let first = self.after_image();
        self.spec.control_group = names.into_iter().zip(first..).collect();
    }

    /// Shows the command its own control group where programs look for limits, as engines mount it for their containers.
    pub fn mount_own_group(&mut self) {
        let mut group = mounts::internal("/sys/fs/cgroup", "cgroup", &[], false);
        group.readonly = true;
        let after = self.spec.mounts.iter().position(|mount| mount.fstype == "sysfs");
        self.spec.mounts.insert(after.map_or(0, |at| at + 1), group);
    }

    /// Has the kernel write packets to a file, `snaplen` bytes of each and `most` bytes in all. Comes before
    /// [`show_control_group`](Prepared::show_control_group).
    pub fn capture_to(&mut self, snaplen: u32, most: u64) {
        self.spec.capture = Some(Capture { fd: self.after_write_back(), snaplen, most });
    }

    /// Has the kernel tell at the end what programs asked for and did not get, in a file. Comes after
    /// [`capture_to`](Prepared::capture_to), and before [`trace`](Prepared::trace).
    pub fn tell_coverage(&mut self) {
        self.spec.coverage = Some(self.after_capture());
    }

    /// Has a trace session begin before the first process. Comes after [`capture_to`](Prepared::capture_to), and before
    /// [`show_control_group`](Prepared::show_control_group). `fds`: how many descriptors its sinks take.
    pub fn trace(&mut self, session: Session, fds: usize) {
        let first = self.after_traces();
        self.spec.trace.push(TraceSpec { session, fds: (first..first + fds).collect() });
    }

    /// Has the kernel list what has changed in the root, at the end, to a pipe in the place of the socket for writing back. Comes
    /// before [`capture_to`](Prepared::capture_to) and [`show_control_group`](Prepared::show_control_group).
    pub fn list_changes(&mut self) {
        let index = self.after_write_back();
        if let Some(overlay) = &mut self.spec.root.overlay {
            overlay.write_back = Some(index);
            overlay.lists_changes = true;
        }
    }

    /// Has the kernel restore the image of a checkpoint in place of the first process. Comes after [`trace`](Prepared::trace), and
    /// before [`show_control_group`](Prepared::show_control_group).
    /// `layers`: the image names so many files of earlier ones. `keep_tcp`: connections with peers outside go on.
    pub fn restore(&mut self, layers: usize, keep_tcp: bool) {
        let metadata = self.after_traces();
        self.spec.image = Some(ImageSpec { metadata, pages: metadata + 1, layers, keep_tcp });
    }

    fn after_image(&self) -> FdIndex {
        self.after_traces() + self.spec.image.map_or(0, |image| 2 + image.layers)
    }

    fn after_traces(&self) -> FdIndex {
        self.after_coverage() + self.spec.trace.iter().map(|session| session.fds.len()).sum::<usize>()
    }

    fn after_coverage(&self) -> FdIndex {
        self.after_capture() + usize::from(self.spec.coverage.is_some())
    }

    fn after_capture(&self) -> FdIndex {
        self.after_write_back() + usize::from(self.spec.capture.is_some())
    }

    fn after_write_back(&self) -> FdIndex {
        let streams = if self.spec.console.is_some() { 1 } else { 3 };
        let spec = &self.spec;
        let gofer = [spec.memory_tree, spec.socket_gofer, spec.opening_gofer].iter().flatten().count();
        let write_back = usize::from(self.writes_back());
        self.trees.len()
            + gofer
            + self.gofers.len()
            + streams
            + self.spec.preserved.len()
            + self.stores.len()
            + write_back
    }
}

/// Places of a container's descriptors behind those of its trees; see [`Prepared`].
struct Descriptors {
    memory_tree: Option<FdIndex>,
    socket_gofer: Option<FdIndex>,
    opening_gofer: Option<FdIndex>,
    /// The first of [`Options::gofers`].
    first_gofer: FdIndex,
    stdio: [FdIndex; 3],
    console: Option<FdIndex>,
    preserved: Vec<FdIndex>,
    first_store: FdIndex,
}

impl Descriptors {
    fn after(trees: usize, options: &Options, terminal: bool, preserved: u32) -> Self {
        let streams = if terminal { 1 } else { 3 };
        let memory_tree = options.through_gofer.then_some(trees);
        let trees = trees + usize::from(options.through_gofer);
        let socket_gofer = options.host_uds.any().then_some(trees);
        let trees = trees + usize::from(options.host_uds.any());
        // A kernel inside that may send no descriptors has none opened.
        let opens = !options.through_gofer && !matches!(options.network, Network::Host { policed: true });
        let opening_gofer = opens.then_some(trees);
        let first_gofer = trees + usize::from(opens);
        let trees = first_gofer + options.gofers.len();
        Self {
            memory_tree,
            first_gofer,
            socket_gofer,
            opening_gofer,
            stdio: if terminal { [trees; 3] } else { [trees, trees + 1, trees + 2] },
            console: terminal.then_some(trees),
            preserved: (0..preserved as usize).map(|n| trees + streams + n).collect(),
            first_store: trees + streams + preserved as usize,
        }
    }
}

/// Numbers the connections to gofers of others.
fn place_gofers(spec: &mut SandboxSpec, first: FdIndex) {
    let mounts = spec.mounts.iter_mut().filter(|mount| mount.fstype == GOFER);
    mounts.zip(first..).for_each(|(mount, fd)| mount.source_fd = Some(fd));
}

/// Numbers the `count` stores of overlays, and the socket for writing back, as the descriptors that they come as.
fn place_stores(spec: &mut SandboxSpec, first: FdIndex, count: usize) {
    let mounts = spec.mounts.iter_mut().filter_map(|mount| mount.overlay.as_mut());
    for overlay in spec.root.overlay.iter_mut().chain(mounts) {
        overlay.store = overlay.store.map(|store| first + store);
        overlay.write_back = overlay.write_back.map(|_| first + count);
    }
}

/// The newest version of the specification that is known. Later ones of the same major version are accepted.
pub const VERSION: &str = "1.2.1";

/// A directory (or file) of the host that the container sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTree {
    /// Absolute path on the host.
    pub path: PathBuf,
    /// The sandbox must not be able to write to it.
    pub readonly: bool,
    /// With the mounts below it.
    pub recursive: bool,
    /// What the host mounts in it later appears (rslave, rshared).
    pub follows_mounts: bool,
    /// Not a directory.
    pub is_file: bool,
    /// What the container's kernel could not make itself, because it may not write to the tree.
    pub mount_points: Vec<MountPoint>,
    /// The owners of its files are mapped.
    pub id_map: Option<IdMapped>,
    /// An overlay of directories of the host, which the host makes: its options (`lowerdir=...`).
    #[serde(default)]
    pub overlay: Option<Vec<String>>,
}

impl HostTree {
    /// A directory, with the mounts that are below it now.
    fn directory(path: PathBuf, readonly: bool) -> HostTree {
        let (recursive, follows_mounts, is_file) = (true, false, false);
        HostTree {
            path,
            readonly,
            recursive,
            follows_mounts,
            is_file,
            mount_points: Vec::new(),
            id_map: None,
            overlay: None,
        }
    }
}

/// A place for a mount in a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPoint {
    /// Absolute path, the tree being the root.
    pub path: PathBuf,
    /// An empty file is to be there, not a directory.
    pub is_file: bool,
}

/// Type of the mounts of [`Gofer`]s.
const GOFER: &str = "gofer";

/// A gofer that is there already, and serves a tree by the protocol of docs/gofer-protocol.md.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gofer {
    /// The Unix socket that it listens on.
    pub socket: PathBuf,
    /// Where its tree is mounted: an absolute path in the container.
    pub destination: String,
}

impl Gofer {
    /// The mount of its tree, without a descriptor yet.
    fn mount(&self) -> MountSpec {
        MountSpec {
            destination: self.destination.clone(),
            source: format!("unix:{}", self.socket.display()),
            nodev: true,
            nosuid: true,
            ..MountSpec::new(GOFER)
        }
    }
}

/// Choices that the command line makes for every container.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What lies over the root file system and over bind mounts.
    pub overlay: Overlay2,
    /// Which processes change the files of the root.
    pub root_access: FileAccess,
    /// Which processes change those of bind mounts.
    pub bind_access: FileAccess,
    /// FIFOs in bind mounts are the host's (`--host-fifo=open`).
    pub host_fifos: bool,
    /// What programs can do with Unix sockets of the host in bind mounts (`--host-uds`).
    pub host_uds: HostUds,
    /// The gofer serves files by its protocol (`--directfs=false`).
    pub through_gofer: bool,
    /// Gofers of others; the container gets their files (`--gofer`).
    pub gofers: Vec<Gofer>,
    /// Network mode.
    pub network: Network,
    /// Containers in the host's own network namespace are in host mode, where they would be refused otherwise (`--host-network`).
    pub host_network: bool,
    /// Capabilities that the container is not to have, whatever the configuration says.
    pub withheld: u64,
    /// Platform.
    pub platform: PlatformName,
    /// Log system calls.
    pub strace: bool,
    /// Of them only these; all if there are none.
    pub strace_only: Vec<String>,
    /// The configuration's seccomp filter is not put on processes (`--oci-seccomp=false`).
    pub without_seccomp: bool,
    /// Log more.
    pub debug: bool,
    /// How many descriptors beside the standard streams the container gets (`--preserve-fds`).
    pub preserve_fds: u32,
}

/// One line for the user that says what is wrong and, where that is not plain, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// An `Err` with a formatted message.
macro_rules! fail {
    ($($arg:tt)*) => { return Err(crate::Error(format!($($arg)*))) };
}
pub(crate) use fail;
