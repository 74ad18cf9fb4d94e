//! The namespaces of a task: Linux's `nsproxy`. See namespaces(7).
//!
//! A task holds one set; what fork(2) inherits is the set, what a new namespace changes is a copy of it. The mount namespace is in
//! `vfs::FsContext` and the task's own PID namespace in its process ID, as both can be shared or fixed apart from the rest.
//! A checkpoint keeps each namespace once, and the sets by the numbers of their members.

#![forbid(unsafe_code)]

use mqueue::Mqueues;
use pid::PidNamespace;
use ranked::Mutex;
use socket::NetNamespace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sysv::IpcNamespace;
use user_ns::UserNamespace;
use wait::{Events, WaitQueue};

/// Inode numbers of the initial namespaces, as Linux has them (PROC_*_INIT_INO), and where the others' begin.
pub mod inum {
    #![expect(missing_docs, reason = "one number for each kind of namespace")]
    pub const NET: u64 = 4026531833;
    pub const TIME: u64 = 4026531834;
    pub const CGROUP: u64 = 4026531835;
    pub const PID: u64 = 4026531836;
    pub const UTS: u64 = 4026531838;
    pub const IPC: u64 = 4026531839;
    /// The sandbox's own PID namespace, which nobody sees.
    pub const HIDDEN: u64 = 1;
    pub(crate) const FIRST: u64 = 4026533000;
}

/// Gives numbers to the namespaces of a kernel.
#[derive(Debug)]
pub struct Inums(AtomicU64);

impl Default for Inums {
    fn default() -> Inums {
        Inums(AtomicU64::new(inum::FIRST))
    }
}

impl Inums {
    /// The next one.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Node and domain name of the UTS namespace.
#[derive(Clone)]
pub struct Uts {
    /// sethostname(2).
    pub nodename: String,
    /// setdomainname(2).
    pub domainname: String,
    /// How often they were set.
    pub version: u64,
    /// Notified when they are set (poll of /proc/sys/kernel/hostname).
    pub changed: WaitQueue,
}

impl Uts {
    /// Names as they are at the start.
    pub fn new(nodename: String, domainname: String) -> Uts {
        Uts { nodename, domainname, version: 0, changed: WaitQueue::new() }
    }
}

/// A UTS namespace: uts_namespaces(7).
pub struct UtsNamespace {
    /// Number of its nsfs inode.
    pub inum: u64,
    user_ns: Arc<UserNamespace>,
    names: Mutex<Uts>,
}

impl UtsNamespace {
    /// With these names, owned by `user_ns`.
    pub fn new(inum: u64, user_ns: Arc<UserNamespace>, names: Uts) -> Arc<UtsNamespace> {
        Arc::new(UtsNamespace { inum, user_ns, names: Mutex::new(names) })
    }

    /// Where the capability to change the names is held.
    pub fn user_ns(&self) -> &UserNamespace {
        &self.user_ns
    }

    /// The names as they are now.
    pub fn names(&self) -> Uts {
        self.names.lock().clone()
    }

    /// Changes the host or domain name, and tells who waits for that.
    pub fn rename(&self, change: impl FnOnce(&mut Uts)) {
        let changed = {
            let mut uts = self.names.lock();
            change(&mut uts);
            uts.version += 1;
            uts.changed.clone()
        };
        changed.notify(Events::READABLE | Events::ERR | Events::PRI);
    }
}

/// An IPC namespace: ipc_namespaces(7).
pub struct Ipc {
    /// Number of its nsfs inode.
    pub inum: u64,
    /// System V IPC.
    pub sysv: Arc<IpcNamespace>,
    /// POSIX message queues.
    pub mqueue: Arc<Mqueues>,
}

impl Ipc {
    /// An empty one that `user_ns` owns; segments of shared memory are files of `memfds`.
    pub fn new(inum: u64, user_ns: &Arc<UserNamespace>, memfds: &Arc<tmpfs::Memfds>) -> Arc<Ipc> {
        Arc::new(Ipc {
            inum,
            sysv: IpcNamespace::new(user_ns.clone(), memfds.clone()),
            mqueue: Mqueues::new(),
        })
    }
}

/// A namespace that has nothing inside but its identity: cgroup and time namespaces, which cannot be made yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Number of its nsfs inode.
    pub inum: u64,
}

/// The namespaces of a task.
#[derive(Clone)]
pub struct NsProxy {
    /// Host and domain name.
    pub uts: Arc<UtsNamespace>,
    /// System V IPC and message queues.
    pub ipc: Arc<Ipc>,
    /// Interfaces and sockets.
    pub net: Arc<NetNamespace>,
    /// Where children are made.
    pub pid_for_children: Arc<PidNamespace>,
    /// Root of the control groups that are seen.
    pub cgroup: Identity,
    /// Offsets of the clocks.
    pub time: Identity,
}
