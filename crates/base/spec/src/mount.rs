//! Mounts.

use crate::descriptors::FdIndex;
use serde::{Deserialize, Serialize};

/// Name of the only entry in the directory that [`MountSpec::source_fd`]
/// refers to when [`MountSpec::source_is_file`] is set.
pub const FILE_ENTRY: &str = "file";

/// What lies over a file system of the host and takes what is written. Without one, writes go to the file system itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// A regular file that keeps the data; memory without.
    pub store: Option<FdIndex>,
    /// Bytes of data at most.
    pub size: Option<u64>,
    /// Names in the root of the file system that begin with this are not shown: files of stores.
    pub hidden: Option<String>,
    /// Further directories below the file system, as in overlayfs's `lowerdir`: the uppermost first.
    #[serde(default)]
    pub layers: Vec<FdIndex>,
    /// A socket to the process that writes what changed to the file system below.
    #[serde(default)]
    pub write_back: Option<FdIndex>,
    /// `write_back` is a pipe instead; its reader receives the names that have changed, at the end.
    #[serde(default)]
    pub lists_changes: bool,
}

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// Absolute path in the container, cleaned of `.` and `..`. Missing
    /// directories (or the file, for a file) are created as runc does.
    pub destination: String,
    /// `bind`, `proc`, `tmpfs`, `devtmpfs`, `devpts`, `sysfs`, `mqueue`, `cgroup`, ...
    /// A `tmpfs` on /dev gets the devices that every container has, as `devtmpfs` does.
    pub fstype: String,
    /// For `bind` and `erofs`: O_PATH descriptor of the source directory, or, with
    /// `source_is_file`, of a directory that holds it as [`FILE_ENTRY`] (a
    /// file cannot be reopened from an O_PATH descriptor without /proc).
    pub source_fd: Option<FdIndex>,
    /// The source is not a directory.
    pub source_is_file: bool,
    /// The source, shown in /proc/mounts: as given, or for `bind` that of the host's file system.
    pub source: String,
    /// For `bind`: where in the host's file system the source lies, shown in /proc/PID/mountinfo.
    pub host_root: String,
    /// Mounted read-only. The host's mount is read-only as well then.
    pub readonly: bool,
    /// `noexec` is in force.
    pub noexec: bool,
    /// `nosuid` is in force.
    pub nosuid: bool,
    /// `nodev` is in force.
    pub nodev: bool,
    /// `nosymfollow` is in force.
    pub nosymfollow: bool,
    /// When access times change.
    pub atime: Atime,
    /// `nodiratime` is in force.
    pub nodiratime: bool,
    /// Propagation type.
    pub propagation: PropagationType,
    /// A new tmpfs begins with a copy of what it hides.
    pub copy_up: bool,
    /// What lies over a `bind`.
    pub overlay: Option<Overlay>,
    /// Which processes change the files of the source.
    pub access: FileAccess,
    /// For `bind`: FIFOs in it are the host's and connect to programs outside.
    #[serde(default)]
    pub host_fifos: bool,
    /// For `bind`: it maps owners; these users and groups can own files in it: ranges of (first, count).
    #[serde(default)]
    pub owners: Option<[Vec<(u32, u32)>; 2]>,
    /// Options of the file system itself (`size=64m`, `mode=1777`, `gid=5`, `ptmxmode=0666`, ...).
    pub options: Vec<String>,
}

impl MountSpec {
    /// A writable mount without a place yet.
    pub fn new(fstype: &str) -> Self {
        Self {
            destination: String::new(),
            fstype: fstype.into(),
            source_fd: None,
            source_is_file: false,
            source: String::new(),
            host_root: String::new(),
            readonly: false,
            noexec: false,
            nosuid: false,
            nodev: false,
            nosymfollow: false,
            atime: Atime::default(),
            nodiratime: false,
            propagation: PropagationType::default(),
            copy_up: false,
            overlay: None,
            access: FileAccess::Shared,
            host_fifos: false,
            owners: None,
            options: Vec::new(),
        }
    }
}

/// Which processes change the files behind a tree that is written directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAccess {
    /// The container. What others change is seen within a millisecond.
    Exclusive,
    /// Others as well: what they change is seen at once.
    #[default]
    Shared,
}

/// When a mount changes the access times of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Atime {
    /// When they are older than the modification, or than a day.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// Propagation types of mounts: whether events of mounts pass to peers and from masters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PropagationType {
    /// MS_PRIVATE.
    #[default]
    Private,
    /// MS_SHARED.
    Shared,
    /// MS_SLAVE.
    Slave,
    /// MS_UNBINDABLE.
    Unbindable,
}

impl PropagationType {
    /// What is mounted at the other side appears.
    pub fn follows(self) -> bool {
        matches!(self, PropagationType::Shared | PropagationType::Slave)
    }
}

/// What programs can do with Unix sockets of the host in bind mounts (`--host-uds`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUds {
    /// Connect to them.
    pub open: bool,
    /// Bind them.
    pub create: bool,
}

impl HostUds {
    /// Whether anything can be done.
    pub fn any(self) -> bool {
        self.open || self.create
    }
}
