//! unshare(2), setns(2), and the ioctls of namespaces and of pidfds that lead to namespaces: ioctl_nsfs(2).

use crate::arg::Fd;
use crate::install::install;
use abi::Errno;
use abi::clone::{NAMESPACES, UNSHARE};
use caller::HasCredentials;
use nsproxy::{Namespace, NsOps};
use pid::PidNamespace;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::OpenFile;

pub fn unshare(c: &mut Current, flags: i32) -> SysResult {
    let flags = flags as u32 as u64;
    if flags & !UNSHARE != 0 {
        return Err(Errno::EINVAL.into());
    }
    c.unshare(flags)?;
    Ok(0)
}

pub fn setns(c: &mut Current, fd: Fd, kinds: i32) -> SysResult {
    let f = c.file(fd.0)?;
    let kinds = kinds as u32 as u64;
    let mut joining = c.joining();
    if let Some(NsOps(ns)) = f.ops.as_any().downcast_ref() {
        if kinds != 0 && kinds != ns.flag() {
            return Err(Errno::EINVAL.into());
        }
        joining.choose(c, ns)?;
    } else if let Ok(process) = task::pidfd::of(&f) {
        if kinds == 0 || kinds & !NAMESPACES != 0 {
            return Err(Errno::EINVAL.into());
        }
        let task = process.group.any_thread().ok_or(Errno::ESRCH)?;
        crate::memory::mmap::may_access(c, &task)?;
        for ns in task.namespaces(kinds)? {
            joining.choose(c, &ns)?;
        }
    } else {
        return Err(Errno::EINVAL.into());
    }
    c.join(joining)?;
    Ok(0)
}

const NS_GET_USERNS: u32 = 0xb701;
const NS_GET_PARENT: u32 = 0xb702;
const NS_GET_NSTYPE: u32 = 0xb703;
const NS_GET_OWNER_UID: u32 = 0xb704;
const NS_GET_MNTNS_ID: u32 = 0x8008_b705;
const NS_GET_ID: u32 = 0x8008_b70d;
const NS_GET_PID_FROM_PIDNS: u32 = 0x8004_b706;
const NS_GET_TGID_FROM_PIDNS: u32 = 0x8004_b707;
const NS_GET_PID_IN_PIDNS: u32 = 0x8004_b708;
const NS_GET_TGID_IN_PIDNS: u32 = 0x8004_b709;

/// A request that is for a namespace, or for a pidfd and leads to one; `None` for any other.
pub(crate) fn ioctl(c: &mut Current, f: &OpenFile, cmd: u32, arg: u64) -> Option<SysResult> {
    if let Some(NsOps(ns)) = f.ops.as_any().downcast_ref() {
        return Some(of_namespace(c, ns, cmd, arg));
    }
    // PIDFD_GET_CGROUP_NAMESPACE to PIDFD_GET_UTS_NAMESPACE.
    let kind = cmd.checked_sub(0xff01).filter(|kind| *kind < 10)?;
    let process = task::pidfd::of(f).ok()?;
    Some(of_process(c, &process.group.any_thread(), kind, arg))
}

fn open(c: &Current, ns: &Namespace) -> SysResult {
    let place = ns.path(&c.kernel().nsfs);
    let inode = place.inode().clone();
    let file = OpenFile::new(Some(place), Some(inode), Arc::new(NsOps(ns.clone())), libc::O_RDONLY);
    install(c, file, true)
}

fn of_namespace(c: &mut Current, ns: &Namespace, cmd: u32, arg: u64) -> SysResult {
    match cmd {
        NS_GET_USERNS => {
            let owner = match ns {
                Namespace::User(ns) => ns.parent().cloned(),
                _ => Some(ns.user_ns().clone()),
            };
            // Only what is inside of the caller's own.
            let owner = owner.filter(|ns| ns.is_within(&c.creds().user_ns)).ok_or(Errno::EPERM)?;
            open(c, &Namespace::User(owner))
        }
        NS_GET_PARENT => {
            let parent = match ns {
                Namespace::User(ns) => {
                    ns.parent().filter(|p| p.is_within(&c.creds().user_ns)).cloned().map(Namespace::User)
                }
                Namespace::Pid(ns) => {
                    ns.parent().filter(|p| p.is_within(c.task.pids())).cloned().map(Namespace::Pid)
                }
                _ => return Err(Errno::EINVAL.into()),
            };
            open(c, &parent.ok_or(Errno::EPERM)?)
        }
        NS_GET_NSTYPE => Ok(ns.flag()),
        NS_GET_OWNER_UID => {
            let Namespace::User(ns) = ns else { return Err(Errno::EINVAL.into()) };
            let uid = c.creds().user_ns.show_user(ns.owner());
            c.write_value(arg, &uid)?;
            Ok(0)
        }
        NS_GET_ID => {
            c.write_value(arg, &ns.inum())?;
            Ok(0)
        }
        NS_GET_MNTNS_ID => {
            let Namespace::Mount(ns) = ns else { return Err(Errno::EINVAL.into()) };
            c.write_value(arg, &ns.id)?;
            Ok(0)
        }
        NS_GET_PID_FROM_PIDNS | NS_GET_TGID_FROM_PIDNS | NS_GET_PID_IN_PIDNS | NS_GET_TGID_IN_PIDNS => {
            let Namespace::Pid(ns) = ns else { return Err(Errno::EINVAL.into()) };
            Ok(translated(c, ns, cmd, arg as i32)? as u64)
        }
        _ => Err(Errno::ENOTTY.into()),
    }
}

/// A process ID of one namespace as the other one has it. ESRCH.
fn translated(c: &Current, ns: &PidNamespace, cmd: u32, number: i32) -> Result<i32, Errno> {
    let own = c.task.pids();
    let inwards = matches!(cmd, NS_GET_PID_IN_PIDNS | NS_GET_TGID_IN_PIDNS);
    let found = if inwards { own.find(number) } else { ns.find(number) }.ok_or(Errno::ESRCH)?;
    let mut key = found.nr();
    if matches!(cmd, NS_GET_TGID_FROM_PIDNS | NS_GET_TGID_IN_PIDNS) {
        key = c.kernel().task(key).map(|t| t.tgid()).ok_or(Errno::ESRCH)?;
    } else if c.kernel().task(key).is_none() && c.kernel().group(key).is_none() {
        return Err(Errno::ESRCH);
    }
    let pid = c.kernel().pids.find(key).ok_or(Errno::ESRCH)?;
    let number = pid.nr_in(if inwards { ns } else { own });
    if number == 0 { Err(Errno::ESRCH) } else { Ok(number) }
}

/// PIDFD_GET_*_NAMESPACE, in the order of their numbers.
fn of_process(c: &mut Current, task: &Option<Arc<task::Task>>, kind: u32, arg: u64) -> SysResult {
    if arg != 0 {
        return Err(Errno::EINVAL.into());
    }
    let task = task.as_ref().ok_or(Errno::ESRCH)?;
    if !task::ptrace_access::may_access(&c.creds(), c.task.tgid(), task, task::ptrace_access::Mode::Fs) {
        return Err(Errno::EACCES.into());
    }
    let set = task.nsproxy();
    let ns = match kind {
        0 => Namespace::Cgroup(set.cgroup.clone()),
        1 => Namespace::Ipc(set.ipc.clone()),
        2 => Namespace::Mount(task.fs().ok_or(Errno::ESRCH)?.view().ns.clone()),
        3 => Namespace::Net(set.net.clone()),
        4 => Namespace::Pid(task.pids().clone()),
        5 => Namespace::Pid(set.pid_for_children.clone()),
        6 => Namespace::Time(set.time.clone()),
        7 => Namespace::Time(set.time_for_children.clone()),
        8 => Namespace::User(task.creds().user_ns.clone()),
        _ => Namespace::Uts(set.uts.clone()),
    };
    open(c, &ns)
}
