//! The namespaces of a task: Linux's `nsproxy`. See namespaces(7).
//!
//! A task holds one set; what fork(2) inherits is the set, what a new namespace changes is a copy of it. The mount
//! namespace is in `mounts::FsContext` and the task's own PID namespace in its process ID, as both can be shared or
//! fixed apart from the rest. A checkpoint keeps each namespace once, and the sets by the numbers of their members.

#![forbid(unsafe_code)]

mod nsfs;
mod state;
mod time_ns;

pub use nsfs::{Namespace, NsFs, NsOps};
pub use state::{
    CgroupNsState, IpcNsState, PidNsState, SetState, SpaceSaver, SpaceState, Spaces, SpacesState,
    TimeNsState, Tools, UtsNsState,
};
pub use time_ns::{Offsets, TimeNamespace};

use abi::clone::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER,
    CLONE_NEWUTS, NAMESPACES,
};
use abi::{Errno, Result};
use cgroup::Cgroup;
use lock_order::Mutex;
use mqueue::Mqueues;
use pid::PidNamespace;
use socket::NetNamespace;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use sysv::IpcNamespace;
use user_ns::{Kind, NamespaceCount, UserNamespace};
use vfs::FileSystem;
use wait::{Events, WaitQueue};

/// Inode numbers of the namespaces that a container begins with, and where the others' begin. Numbers of Linux's initial
/// namespaces (PROC_*_INIT_INO) tell programs that they run on the machine itself, so a container has those only where it
/// would share them with the host under another runtime: time, users, and the network with `--network=host`.
pub mod inum {
    #![expect(missing_docs, reason = "one number for each kind of namespace")]
    pub const HOST_NET: u64 = 4026531833;
    pub const TIME: u64 = 4026531834;
    pub const UTS: u64 = 4026532096;
    pub const IPC: u64 = 4026532097;
    pub const PID: u64 = 4026532098;
    pub const CGROUP: u64 = 4026532100;
    pub const NET: u64 = 4026532101;
    /// The sandbox's own PID namespace, which no program sees.
    pub const HIDDEN: u64 = 1;
    pub(crate) const FIRST: u64 = 0xf800_0000;
    /// Checkpoints keep numbers below this.
    pub(crate) const END: u64 = 1 << 40;
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

    /// Keeps numbers of a checkpoint, none of which is there twice: the same ones if none has been given since, others in their
    /// order otherwise.
    pub fn keep(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let from = self.0.load(Ordering::Relaxed);
        let same = wanted.first().is_none_or(|first| *first >= from)
            && wanted.last().is_none_or(|last| *last < inum::END);
        let kept: BTreeMap<u64, u64> = match same {
            true => wanted.iter().map(|inum| (*inum, *inum)).collect(),
            false => wanted.iter().copied().zip(from..).collect(),
        };
        let next = kept.values().max().map_or(from, |last| last + 1);
        self.0.store(next, Ordering::Relaxed);
        kept
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
    counted: Option<NamespaceCount>,
}

impl UtsNamespace {
    /// With these names, owned by `user_ns`.
    pub fn new(
        inum: u64,
        user_ns: Arc<UserNamespace>,
        names: Uts,
        counted: Option<NamespaceCount>,
    ) -> Arc<UtsNamespace> {
        Arc::new(UtsNamespace { inum, user_ns, names: Mutex::new(names), counted })
    }

    /// The user that it counts for, if it counts.
    pub fn counted_for(&self) -> Option<u32> {
        self.counted.as_ref().map(NamespaceCount::user)
    }

    /// Where the capability to change the names is held.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.user_ns
    }

    /// The names as they are now.
    pub fn names(&self) -> Uts {
        self.names.lock().clone()
    }

    /// Changes the host or domain name, and wakes threads that wait for a change.
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
    user_ns: Arc<UserNamespace>,
    counted: Option<NamespaceCount>,
}

impl Drop for Ipc {
    fn drop(&mut self) {
        self.mqueue.namespace_ended();
    }
}

impl Ipc {
    /// An empty one that `user_ns` owns; segments of shared memory are files of `memfds`.
    pub fn new(inum: u64, user_ns: &Arc<UserNamespace>, memfds: &Arc<tmpfs::Memfds>) -> Arc<Ipc> {
        Arc::new(Ipc {
            inum,
            sysv: IpcNamespace::new(user_ns.clone(), memfds.clone()),
            mqueue: Mqueues::new(memfds.device_numbers().alloc()),
            user_ns: user_ns.clone(),
            counted: None,
        })
    }

    /// Another one, with the user and group that own its message queues' directory. Messages of both count for one limit.
    pub fn another(
        &self,
        inum: u64,
        user_ns: &Arc<UserNamespace>,
        (devices, fs_ids): (&caller::DeviceNumbers, (u32, u32)),
        counted: Option<NamespaceCount>,
    ) -> Arc<Ipc> {
        Arc::new(Ipc {
            inum,
            sysv: self.sysv.beside(user_ns.clone()),
            mqueue: self.mqueue.beside(devices.alloc(), fs_ids),
            user_ns: user_ns.clone(),
            counted,
        })
    }

    /// The user that it counts for, if it counts.
    pub fn counted_for(&self) -> Option<u32> {
        self.counted.as_ref().map(NamespaceCount::user)
    }

    /// Where capabilities over it are held.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.user_ns
    }
}

/// A cgroup namespace: cgroup_namespaces(7).
pub struct CgroupNamespace {
    /// Number of its nsfs inode.
    pub inum: u64,
    /// The group that is the root for those in it.
    pub root: Arc<Cgroup>,
    /// The file system that shows the groups from there, as long as it is mounted.
    pub shown: Mutex<Option<Weak<dyn FileSystem>>>,
    user_ns: Arc<UserNamespace>,
    counted: Option<NamespaceCount>,
}

impl CgroupNamespace {
    /// With this root, owned by `user_ns`.
    pub fn new(
        inum: u64,
        user_ns: Arc<UserNamespace>,
        root: Arc<Cgroup>,
        counted: Option<NamespaceCount>,
    ) -> Arc<CgroupNamespace> {
        Arc::new(CgroupNamespace { inum, root, shown: Mutex::new(None), user_ns, counted })
    }

    /// The user that it counts for, if it counts.
    pub fn counted_for(&self) -> Option<u32> {
        self.counted.as_ref().map(NamespaceCount::user)
    }

    /// Where capabilities over it are held.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.user_ns
    }
}

/// The namespaces that a set has. Those of mounts and users are elsewhere.
pub const IN_SET: u64 = NAMESPACES & !(CLONE_NEWNS | CLONE_NEWUSER);

/// The maker of namespaces, and what it makes them with.
pub struct Making<'a> {
    /// Their owner.
    pub user_ns: &'a Arc<UserNamespace>,
    /// The maker's effective user ID.
    pub euid: u32,
    /// The user and group that its files have.
    pub fs_ids: (u32, u32),
    /// Gives numbers.
    pub inums: &'a Inums,
    /// Where its file systems get their numbers.
    pub devices: &'a caller::DeviceNumbers,
    /// The control group that the maker is in.
    pub cgroup: Arc<Cgroup>,
}

impl Making<'_> {
    fn count(&self, kind: Kind) -> Result<NamespaceCount> {
        NamespaceCount::new(self.user_ns, self.euid, kind)
    }
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
    pub cgroup: Arc<CgroupNamespace>,
    /// Offsets of the clocks.
    pub time: Arc<TimeNamespace>,
    /// Those of children, and of the task itself from execve(2) on.
    pub time_for_children: Arc<TimeNamespace>,
}

impl NsProxy {
    /// A copy with new namespaces of the kinds that `flags` (CLONE_NEW*) names. ENOSPC.
    pub fn with_new(&self, flags: u64, by: &Making) -> Result<NsProxy> {
        let wants = |flag: u64| flags & flag != 0;
        let (owner, mut new) = (by.user_ns, self.clone());
        if wants(CLONE_NEWUTS) {
            let counted = by.count(Kind::Uts)?;
            let Uts { nodename, domainname, .. } = self.uts.names();
            let names = Uts::new(nodename, domainname);
            new.uts = UtsNamespace::new(by.inums.next(), owner.clone(), names, Some(counted));
        }
        if wants(CLONE_NEWIPC) {
            let counted = by.count(Kind::Ipc)?;
            new.ipc = self.ipc.another(by.inums.next(), owner, (by.devices, by.fs_ids), Some(counted));
        }
        if wants(CLONE_NEWPID) {
            let parent = &self.pid_for_children;
            // The namespace that makes it must have been made by the same users or ones around.
            if !owner.is_within(parent.user_ns()) {
                return Err(Errno::EINVAL);
            }
            let counted = by.count(Kind::Pid)?;
            new.pid_for_children = parent.child(by.inums.next(), owner.clone(), Some(counted))?;
        }
        if wants(CLONE_NEWCGROUP) {
            let counted = by.count(Kind::Cgroup)?;
            let root = by.cgroup.clone();
            new.cgroup = CgroupNamespace::new(by.inums.next(), owner.clone(), root, Some(counted));
        }
        if wants(CLONE_NEWNET) {
            let counted = by.count(Kind::Net)?;
            new.net = self.net.another(by.inums.next(), owner.clone(), counted);
        }
        if wants(CLONE_NEWTIME) {
            let counted = by.count(Kind::Time)?;
            let offsets = self.time_for_children.offsets();
            new.time_for_children =
                TimeNamespace::new(by.inums.next(), owner.clone(), offsets, Some(counted));
        }
        Ok(new)
    }

    /// The set of a child with memory of its own, or after execve(2): the task is in the time namespace for children,
    /// and the offsets of that can no longer be changed.
    pub fn in_time_for_children(self: Arc<NsProxy>) -> Arc<NsProxy> {
        if Arc::ptr_eq(&self.time, &self.time_for_children) {
            return self;
        }
        self.time_for_children.freeze();
        Arc::new(NsProxy { time: self.time_for_children.clone(), ..NsProxy::clone(&self) })
    }
}
