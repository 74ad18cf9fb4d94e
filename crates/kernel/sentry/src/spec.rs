//! What a sandbox is to be: the contract between the runtime and the kernel.
//!
//! The runtime makes a [`SandboxSpec`] from a bundle or a command line, has
//! the gofer open the mount points, and hands the specification together with
//! a list of descriptors to the kernel. Everything here is plain data, already
//! validated by the runtime: descriptor fields are indices into that list, and
//! each index is used by one field only, save for the three standard streams,
//! which may share one.

pub use seccomp::SockFilter;
use serde::{Deserialize, Serialize};
pub use socket::netlink::{Interface, Interfaces, Route};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Index into the list of descriptors passed beside the specification.
pub type FdIndex = usize;

/// Name of the only entry in the directory that [`MountSpec::source_fd`]
/// refers to when [`MountSpec::source_is_file`] is set.
pub const FILE_ENTRY: &str = "file";

/// One sandbox with one container in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Container id, for logs.
    pub id: String,
    /// Of a container in another one's sandbox: the container of that sandbox whose pid namespace it shares.
    pub pids_of: Option<String>,
    /// The same for the uts namespace; the names below are then not used.
    pub uts_of: Option<String>,
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
    /// Most tasks that the container may have at a time; nothing for no limit.
    pub pids_limit: Option<u32>,
    /// What /proc/PID/uid_map and gid_map show: first id inside, first outside, how many. Empty for all ids as they are.
    pub id_maps: [Vec<(u32, u32, u32)>; 2],
    /// Kernel parameters as in /proc/sys, dots for slashes.
    pub sysctl: Vec<(String, String)>,
    /// Standard input, output and error of the first process, unless [`console`](Self::console) is set.
    pub stdio: [FdIndex; 3],
    /// Further descriptors of the first process, numbered from 3.
    pub preserved: Vec<FdIndex>,
    /// Files of the container's control group on the host, by name, to be read only.
    pub control_group: Vec<(String, FdIndex)>,
    /// The user's terminal, in raw mode. When set, the first process gets a
    /// pseudo-terminal of the sandbox as controlling terminal and standard
    /// streams, and the kernel pumps bytes between it and this descriptor.
    pub console: Option<FdIndex>,
    /// Size of that terminal at the start.
    pub console_size: WindowSize,
    /// A signal from outside takes effect on the first process even when that has no handler for it, as on an
    /// ordinary child of the caller. Without this it is protected as the init of a pid namespace is.
    pub signals_end_init: bool,
    /// Network mode.
    pub network: Network,
    /// What the guest is shown of its network namespace.
    pub interfaces: Interfaces,
    /// Which platform runs the guest.
    pub platform: PlatformName,
    /// Log every system call of the guest.
    pub strace: bool,
    /// Log more.
    pub debug: bool,
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
    pub overlay: Overlay,
    /// Propagation type of its mount.
    pub propagation: PropagationType,
}

/// Where writes to a file system go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlay {
    /// To the file system itself.
    #[default]
    None,
    /// To memory, thrown away at the end.
    Memory,
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
    /// For `bind`: O_PATH descriptor of the source directory, or, with
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
    pub overlay: Overlay,
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
            overlay: Overlay::None,
            options: Vec::new(),
        }
    }
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

/// Propagation types of mounts. Kept and shown; there is nobody to propagate events to.
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

/// The first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Program and arguments, never empty. A program without a slash is
    /// looked for along PATH of `env`, inside the container.
    pub args: Vec<String>,
    /// Environment, `NAME=value`.
    pub env: Vec<String>,
    /// Absolute path of the working directory.
    pub cwd: String,
    /// Create a missing working directory, as runc does.
    pub create_cwd: bool,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub additional_gids: Vec<u32>,
    /// File mode creation mask.
    pub umask: u32,
    /// Capabilities.
    pub capabilities: CapabilitySets,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privileges: bool,
    /// Filter of its system calls, in force from its execve(2) on.
    pub seccomp: Option<SeccompFilter>,
    /// Resource limits; those not named keep the kernel's defaults.
    pub rlimits: Vec<RlimitSpec>,
    /// The process runs on a pseudo-terminal.
    pub terminal: bool,
    /// /proc/self/oom_score_adj.
    pub oom_score_adj: i32,
    /// HOME is set from the container's /etc/passwd when the environment lacks it.
    pub set_home: bool,
    /// I/O priority as ioprio_set(2) takes it; recorded and shown.
    pub io_priority: Option<i32>,
    /// Scheduling policy; recorded and shown.
    pub scheduler: Option<SchedulerSpec>,
}

/// A scheduling policy as sched_setscheduler(2) takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSpec {
    /// SCHED_*, with SCHED_RESET_ON_FORK or without.
    pub policy: i32,
    /// Real-time priority.
    pub priority: i32,
    /// Nice value, if it is to change.
    pub nice: Option<i32>,
}

/// A seccomp filter as seccomp(2) takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeccompFilter {
    /// The program. It is refused at the start if Linux would refuse it.
    pub instructions: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* bits; TSYNC, LOG and SPEC_ALLOW are understood.
    pub flags: u32,
}

/// Capability sets as bit masks, bit n for capability number n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilitySets {
    /// Bounding set.
    pub bounding: u64,
    /// Effective set.
    pub effective: u64,
    /// Inheritable set.
    pub inheritable: u64,
    /// Permitted set.
    pub permitted: u64,
    /// Ambient set.
    pub ambient: u64,
}

/// One resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RlimitSpec {
    /// RLIMIT_* number.
    pub resource: u32,
    /// Soft limit, `u64::MAX` for no limit.
    pub soft: u64,
    /// Hard limit, `u64::MAX` for no limit.
    pub hard: u64,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Network modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// No network families besides Unix sockets.
    #[default]
    None,
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

/// What others may ask of a kernel about one of its containers. Called from any thread; none of the calls blocks for long.
pub trait Running: Send + Sync {
    /// Lets the first process run; an error when it was started before.
    fn start(&self) -> Result<(), StartError>;
    /// What the guest is shown of its network namespace, as it is by now; an error once the first process runs.
    fn show_network(&self, interfaces: Interfaces) -> Result<(), StartError>;
    /// Sends a signal. An invalid number is ignored; `false` when nobody was there to receive it.
    fn signal(&self, signo: i32, to: Target) -> bool;
    /// Sets the size of the container's terminal (and so raises SIGWINCH); nothing without a terminal.
    fn resize(&self, size: WindowSize);
    /// Starts another process in the container.
    fn exec(&self, process: &ProcessSpec, stdio: Stdio) -> Result<Arc<dyn Executed>, StartError>;
    /// The processes there are, by process id.
    fn processes(&self) -> Vec<ProcessInfo>;
    /// Says how many mappings the host lets the sentry have, which bounds the number of guest threads.
    fn bound_tasks(&self, mappings: u64);
    /// How much memory there is for the container, in bytes.
    fn memory(&self) -> u64;
    /// Whether system calls are logged from now on.
    fn trace(&self, on: bool);
    /// Makes another container in the same sandbox.
    fn add(&self, spec: SandboxSpec, fds: Vec<OwnedFd>) -> Result<Arc<dyn Running>, StartError>;
    /// Waits for the end of the first process, and then for all that is left of the container; its wait status.
    fn wait(&self) -> i32;
    /// Ends the container.
    fn end(&self);
    /// Stops every process of the container, or lets them go on.
    fn freeze(&self, on: bool);
    /// Changes how many tasks the container may have; nothing for no limit.
    fn limit_tasks(&self, limit: Option<u32>);
}

/// A process started by [`Running::exec`].
pub trait Executed: Send + Sync {
    /// Its id in the container.
    fn pid(&self) -> i32;
    /// Sends it a signal.
    fn signal(&self, signo: i32);
    /// Sets the size of its terminal.
    fn resize(&self, size: WindowSize);
    /// Waits for its end and its last output; its wait status. To be called once.
    fn wait(&self) -> i32;
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The first process, or the foreground process group of its terminal when it has one.
    Foreground,
    /// The first process.
    Init,
    /// One process, by its id in the container.
    Process(i32),
    /// Every process.
    All,
}

/// Standard streams of a process that is started in a container.
#[derive(Debug)]
pub enum Stdio {
    /// Standard input, output and error, and further descriptors numbered from 3.
    Files(Vec<OwnedFd>),
    /// The user's terminal, in raw mode, and its size.
    Terminal(OwnedFd, WindowSize),
}

/// One process of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Id in the container.
    pub pid: i32,
    /// Parent's id in the container.
    pub ppid: i32,
    /// Id of the host process that holds its memory, in the sandbox's pid namespace; 0 for a zombie.
    pub host_pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Name of the terminal, or `?`.
    pub tty: String,
    /// When it started, seconds since the epoch.
    pub started: i64,
    /// Processor time used, in seconds.
    pub cpu: u64,
    /// Command line, or the name in brackets.
    pub command: String,
}

/// Called once by the kernel when the first process is ready to be started.
pub type OnReady = Box<dyn FnOnce(Arc<dyn Running>) + Send>;

/// Why a container's first process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// What kind of failure, which decides the exit status.
    pub kind: StartErrorKind,
    /// One line for the user, without a program name before it.
    pub message: String,
}

/// Kinds of [`StartError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartErrorKind {
    /// The program does not exist: exit status 127. The message is
    /// `exec: "NAME": executable file not found in $PATH`, or, with a slash in
    /// the name, `exec: "NAME": stat NAME: no such file or directory`.
    NotFound,
    /// The program cannot be executed (EACCES, ENOEXEC, a directory): exit status 126.
    /// The message is `exec: "NAME": permission denied` and the like.
    NotExecutable,
    /// Anything else (a mount, the working directory, a resource limit): exit status 128.
    Other,
}

impl StartError {
    /// Exit status of the command line for this failure.
    pub fn exit_status(&self) -> i32 {
        match self.kind {
            StartErrorKind::NotFound => 127,
            StartErrorKind::NotExecutable => 126,
            StartErrorKind::Other => 128,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}
