//! /proc/PID/ns: links to the namespaces of a process.

use abi::{Errno, Result};
use kernfs::{At, Entry, Target, magic};
use nsproxy::{Namespace, NsProxy};
use std::sync::Arc;
use task::Task;

fn task(at: &At) -> Result<Arc<Task>> {
    at.proc()?.main_task().ok_or(Errno::ENOENT)
}

/// A zombie has its credentials still.
fn user(at: &At) -> Result<Namespace> {
    let creds = at.proc()?.creds(at.kernel()).ok_or(Errno::ENOENT)?;
    Ok(Namespace::User(creds.user_ns.clone()))
}

fn set(at: &At) -> Result<Arc<NsProxy>> {
    Ok(task(at)?.nsproxy())
}

macro_rules! ns {
    ($($name:literal = $namespace:expr),* $(,)?) => {
        /// The directory.
        pub static NS: [Entry; 10] = [$(magic($name, |at| {
            let namespace: fn(&At) -> Result<Namespace> = $namespace;
            Ok(Target::Place(namespace(at)?.path(&at.kernel().nsfs)))
        })),*];
    };
}

fn mounts(at: &At) -> Result<Namespace> {
    let fs = task(at)?.fs().ok_or(Errno::ENOENT)?;
    Ok(Namespace::Mount(fs.view().ns.clone()))
}

/// Not before it has an init.
fn for_children(at: &At) -> Result<Namespace> {
    let ns = set(at)?.pid_for_children.clone();
    if ns.last() == 0 { Err(Errno::ENOENT) } else { Ok(Namespace::Pid(ns)) }
}

ns! {
    "cgroup" = |at| Ok(Namespace::Cgroup(set(at)?.cgroup.clone())),
    "ipc" = |at| Ok(Namespace::Ipc(set(at)?.ipc.clone())),
    "mnt" = mounts,
    "net" = |at| Ok(Namespace::Net(set(at)?.net.clone())),
    "pid" = |at| Ok(Namespace::Pid(at.proc()?.group.pid.ns().ok_or(Errno::ESRCH)?.clone())),
    "pid_for_children" = for_children,
    "time" = |at| Ok(Namespace::Time(set(at)?.time.clone())),
    "time_for_children" = |at| Ok(Namespace::Time(set(at)?.time_for_children.clone())),
    "user" = user,
    "uts" = |at| Ok(Namespace::Uts(set(at)?.uts.clone())),
}
