//! File handles of namespaces and of processes: name_to_handle_at(2), open_by_handle_at(2).
//!
//! They hold numbers that are not given out again. Opening needs no capability over files: a namespace opens for its
//! members and for holders of CAP_SYS_ADMIN over it, a process for those with its number in their PID namespace.

use crate::arg::DirFd;
use crate::at;
use abi::clone::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER,
    CLONE_NEWUTS,
};
use abi::{Errno, Result};
use caller::HasCredentials;
use namei::OpenHow;
use nsproxy::{Namespace, NsFs};
use rights::Cap;
use std::collections::HashSet;
use std::sync::Arc;
use task::{Current, Task};
use vfs::{InodeRef, OpenFile};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// FILEID_NSFS, FILEID_KERNFS: types of handles.
const NAMESPACE: i32 = 0xf1;
const PROCESS: i32 = 0xfe;
/// FD_PIDFS_ROOT, FD_NSFS_ROOT: the file systems, without a file of theirs.
const PIDFS_ROOT: i32 = -10002;
const NSFS_ROOT: i32 = -10003;

/// `struct nsfs_file_handle`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct NsHandle {
    id: u64,
    kind: u32,
    inum: u32,
}

impl NsHandle {
    fn of(ns: &Namespace) -> NsHandle {
        NsHandle { id: ns.inum(), kind: ns.flag() as u32, inum: ns.inum() as u32 }
    }
}

/// The type and the bytes of the handle of a namespace or a process.
pub fn encode(inode: &InodeRef) -> Option<(i32, Vec<u8>)> {
    if let Some(ns) = Namespace::of(inode) {
        return Some((NAMESPACE, NsHandle::of(&ns).as_bytes().to_vec()));
    }
    // A pidfd has no place in a tree: its inode is behind the open file.
    let file = inode.as_special().and_then(|special| special.open_file());
    let inode = file.and_then(|file| file.inode.as_ref())?;
    task::pidfd::handle_of(inode).map(|number| (PROCESS, number.as_bytes().to_vec()))
}

/// One of the two file systems.
#[derive(Clone, Copy)]
pub enum Kind {
    Namespaces,
    Processes,
}

/// The file system that the descriptor `mount` of open_by_handle_at(2) names, if it is one of the two.
pub fn named_by(c: &Current, mount: DirFd) -> Option<Kind> {
    match mount.0 {
        PIDFS_ROOT => return Some(Kind::Processes),
        NSFS_ROOT => return Some(Kind::Namespaces),
        _ => {}
    }
    let file = at::real_file(c, crate::arg::Fd(mount.0)).ok()?;
    if task::pidfd::of(&file).is_ok() {
        return Some(Kind::Processes);
    }
    Namespace::of(file.inode.as_ref()?).map(|_| Kind::Namespaces)
}

/// Opens what a handle stands for. ESTALE when that is not there, or not for the caller.
pub fn open(c: &mut Current, kind: Kind, (of, bytes): (i32, &[u8]), flags: i32) -> Result<Arc<OpenFile>> {
    match kind {
        Kind::Processes => {
            let known = libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_EXCL | 0o100000;
            if flags & !known != 0 {
                return Err(Errno::EINVAL);
            }
            let number = bytes.first_chunk().filter(|_| of == PROCESS).ok_or(Errno::ESTALE)?;
            task::pidfd::open_by_handle(c, u64::from_ne_bytes(*number), flags & libc::O_NONBLOCK)
        }
        Kind::Namespaces => {
            let (wanted, _) = NsHandle::read_from_prefix(bytes).map_err(|_| Errno::ESTALE)?;
            if of != NAMESPACE || wanted.inum != wanted.id as u32 {
                return Err(Errno::ESTALE);
            }
            let ns = find(c, u64::from(wanted.kind), wanted.id).filter(|ns| may_open(c, ns));
            let place = ns.ok_or(Errno::ESTALE)?.path(&c.kernel().nsfs);
            let how = OpenHow::legacy(flags, 0)?;
            namei::open::open_decoded(c, place, &how).map_err(caller::retry::Failure::errno)
        }
    }
}

/// The namespaces of a kind that a task is in, or makes its children in.
fn of_task(task: &Task, kind: u64) -> [Option<Namespace>; 2] {
    let set = task.nsproxy();
    match kind {
        CLONE_NEWCGROUP => [Some(Namespace::Cgroup(set.cgroup.clone())), None],
        CLONE_NEWIPC => [Some(Namespace::Ipc(set.ipc.clone())), None],
        CLONE_NEWNS => [task.fs().map(|fs| Namespace::Mount(fs.view().ns.clone())), None],
        CLONE_NEWNET => [Some(Namespace::Net(set.net.clone())), None],
        CLONE_NEWPID => {
            [Some(Namespace::Pid(task.pids().clone())), Some(Namespace::Pid(set.pid_for_children.clone()))]
        }
        CLONE_NEWTIME => {
            [Some(Namespace::Time(set.time.clone())), Some(Namespace::Time(set.time_for_children.clone()))]
        }
        CLONE_NEWUSER => [Some(Namespace::User(task.creds().user_ns.clone())), None],
        CLONE_NEWUTS => [Some(Namespace::Uts(set.uts.clone())), None],
        _ => [None, None],
    }
}

/// The one around a namespace, which it keeps alive.
fn around(ns: &Namespace) -> Option<Namespace> {
    match ns {
        Namespace::User(ns) => ns.parent().cloned().map(Namespace::User),
        Namespace::Pid(ns) => ns.parent().cloned().map(Namespace::Pid),
        _ => None,
    }
}

/// The namespace with this number: one that has a file, or that a task is in, or around such a one.
fn find(c: &Current, kind: u64, inum: u64) -> Option<Namespace> {
    if let Some(known) = NsFs::known(&c.kernel().nsfs, kind, inum) {
        return Some(known);
    }
    let tasks: Vec<Arc<Task>> = c.kernel().tree.lock().tasks().cloned().collect();
    let mut seen = HashSet::new();
    let all = tasks.iter().flat_map(|task| of_task(task, kind)).flatten();
    for ns in all {
        let mut at = Some(ns);
        while let Some(ns) = at.filter(|ns| seen.insert(ns.inum())) {
            if ns.inum() == inum {
                return Some(ns);
            }
            at = around(&ns);
        }
    }
    None
}

/// Whether the caller is in a namespace, or has CAP_SYS_ADMIN over it.
fn may_open(c: &Current, ns: &Namespace) -> bool {
    let own = of_task(&c.task, ns.flag())[0].as_ref().is_some_and(|own| own.inum() == ns.inum());
    own || c.creds().ns_capable(ns.user_ns(), Cap::SYS_ADMIN)
}
