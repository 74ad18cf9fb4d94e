//! Open files as plain data.

use super::mounts::{NamespaceState, SpaceRef};
use super::supers::SuperState;
use abi::stat::Attr;
use files::dnotify::DirectoryWatchState;
use hostfs::{ImportedState, SeveredState};
use ipc::epoll::EpollState;
use ipc::eventfd::EventFdState;
use ipc::fanotify::FanotifyState;
use ipc::inotify::InotifyState;
use ipc::pipe::{EndState, PipeState};
use ipc::signalfd::SignalFdState;
use ipc::timerfd::TimerFdState;
use landlock::LayerState;
use locks::leases::LeaseState;
use locks::records::LocksState;
use mqueue::MqueuesState;
use serde::{Deserialize, Serialize};
use socket::unix::UnixState;
use sysv::IpcState;
use task::pidfd::PidFdState;
use tmpfs::state::TreeState;
use tty::PtyState;
use vfs::file::{OpenFileState, PlaceState};
use vfs::notify::marks::MarkMask;

/// What an open file is, besides what all open files have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// What is at its place, opened again: a regular file, a directory, a device, a file of procfs and its like.
    Place,
    /// Opened with O_PATH.
    PathOnly,
    /// A descriptor that the first process started with.
    Imported(ImportedState),
    /// A stream that has lost its other end: one of `exec`, or a terminal that has hung up.
    Severed(SeveredState),
    /// An end of a pipe, by its place in [`FilesState::pipes`]; the inode's attributes for one without a name.
    Pipe(usize, EndState, Option<Attr>),
    /// An end of a terminal, by its place in [`FilesState::terminals`]: the master, or a slave.
    Terminal(usize, bool),
    /// eventfd(2).
    Event(EventFdState),
    /// A file of /dev/net/tun.
    Tun(tun::TunFileState),
    /// timerfd_create(2).
    Timer(TimerFdState),
    /// signalfd(2).
    Signals(SignalFdState),
    /// epoll_create(2).
    Epoll(EpollState),
    /// pidfd_open(2).
    Process(PidFdState),
    /// A Unix socket, by the attributes of its inode, and the inode number of its network namespace.
    Unix(Attr, u64),
    /// The same for a socket of another family, which the network's part of the image has.
    Network(Attr, u64),
    /// What memory that shmat(2) attached is mapped from: the inode number of the IPC namespace, and the ID of the segment.
    Segment(u64, i32),
    /// A POSIX message queue, by the inode number of its IPC namespace.
    Queue(u64),
    /// inotify_init(2), with its watches.
    Inotify(InotifyState, Vec<WatchState>),
    /// fanotify_init(2), with its marks and events.
    Fanotify(FanotifyState, Vec<MarkState>, Vec<FileEventState>),
    /// A namespace (/proc/PID/ns).
    Namespace(SpaceRef),
    /// A tree of mounts that is attached nowhere (open_tree(2), fsmount(2)), by the number of its namespace.
    Tree(u64),
    /// A Landlock ruleset, by its place in [`LandlockState::layers`].
    Ruleset(usize),
}

/// An open file as plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileState {
    /// What all open files have.
    pub open: OpenFileState,
    /// What this one is.
    pub kind: Kind,
    /// It is in procfs, where the directories of processes come when processes are there.
    #[serde(default)]
    pub in_procfs: bool,
    /// F_NOTIFY of a directory.
    #[serde(default)]
    pub notify: Option<DirectoryWatchState>,
}

/// The locks on an inode as plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InodeLocks {
    /// An open file of the inode ([`OpenFileState::id`]).
    pub file: u64,
    /// Record locks and flock(2) locks.
    pub locks: LocksState,
    /// Leases.
    #[serde(default)]
    pub leases: Vec<LeaseState>,
}

/// A file system in memory as plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MountedTree {
    /// Its place in [`FilesState::supers`]; `None` for the files of memfd_create(2).
    pub sb: Option<usize>,
    /// Its files.
    pub tree: TreeState,
}

/// A file of the host that a Unix socket is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundState {
    /// Device and inode number, by which the socket names it.
    pub object: (u64, u64),
    /// The container in which the socket's address leads to it.
    pub container: u32,
    /// The address.
    pub path: Vec<u8>,
}

/// A terminal as plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TerminalState {
    /// The place of its instance of devpts in [`FilesState::supers`].
    pub sb: usize,
    /// Its state.
    pub pty: PtyState,
    /// It is a container's, served from outside.
    pub served: bool,
    /// Index of that container.
    #[serde(default)]
    pub container: u32,
    /// It is one of `exec`, served from outside: it hangs up when it is restored.
    #[serde(default)]
    pub hangs_up: bool,
}

/// A watch of inotify(7) as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchState {
    /// Its number.
    pub id: i32,
    /// Its mask.
    pub mask: u32,
    /// What it is on.
    pub place: PlaceState,
}

/// A mark of fanotify(7) as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkState {
    /// It is on an object (0), on a mount (1) or on a file system (2).
    pub kind: u8,
    /// The object, or one of the mount or file system.
    pub place: PlaceState,
    /// What it says.
    pub wanted: MarkMask,
}

/// An event of fanotify(7) as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEventState {
    /// The file.
    pub place: PlaceState,
    /// What happened.
    pub mask: u32,
    /// By which process or thread, by its number in the sandbox's own PID namespace.
    pub by: i32,
}

/// Landlock rules as plain data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LandlockState {
    /// Layers of domains, and rulesets.
    pub layers: Vec<LayerState>,
    /// The files that their rules name.
    pub objects: Vec<PlaceState>,
    /// Unix sockets that were made under Landlock, by their places, with the layers of their domains.
    pub sockets: Vec<(usize, Vec<usize>)>,
}

/// The objects of an IPC namespace as plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IpcNamespaceState {
    /// The number of its nsfs inode. A restored namespace has another.
    pub inum: u64,
    /// System V IPC.
    pub sysv: IpcState,
    /// POSIX message queues.
    pub mqueue: MqueuesState,
}

/// Everything that open files are, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilesState {
    /// The mounts that each container began with.
    pub began: Vec<NamespaceState>,
    /// File systems.
    pub supers: Vec<SuperState>,
    /// Trees of mounts.
    pub namespaces: Vec<NamespaceState>,
    /// The open files, in the order of their identities.
    pub files: Vec<FileState>,
    /// Files in memory: those of the mounts, and those of memfd_create(2).
    #[serde(default)]
    pub trees: Vec<MountedTree>,
    /// Terminals.
    #[serde(default)]
    pub terminals: Vec<TerminalState>,
    /// Pipes and FIFOs.
    pub pipes: Vec<PipeState>,
    /// Locks on the files.
    #[serde(default)]
    pub locks: Vec<InodeLocks>,
    /// Files of the host that Unix sockets are bound to.
    #[serde(default)]
    pub bound: Vec<BoundState>,
    /// Unix sockets with their messages.
    pub unix: UnixState,
    /// System V IPC and message queues.
    #[serde(default)]
    pub ipc: Vec<IpcNamespaceState>,
    /// Landlock rules.
    #[serde(default)]
    pub landlock: LandlockState,
}

/// What a process sees of the tree of files, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextState {
    /// Its root directory.
    pub root: PlaceState,
    /// Its working directory.
    pub cwd: PlaceState,
    /// Its mask for new files.
    pub umask: u32,
    /// Its mount namespace ([`NamespaceState::id`]).
    pub namespace: u64,
}
