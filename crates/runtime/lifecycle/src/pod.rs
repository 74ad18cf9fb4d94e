//! Containers that share a sandbox: finding the sandbox to join, and which namespaces a new container shares with which
//! other one.
//!
//! A container joins a sandbox as one of its pod, or because its network namespace is the sandbox's (`docker run --network
//! container:X`): a network namespace has one stack.

use crate::directory::{self, Container};
use crate::record::{Record, Status};
use crate::{Error, Result, Settings, host_name};
use bundle::{Pod, Prepared};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The sandbox that a container is to join.
pub(crate) struct Host {
    /// The state directory of the container that it belongs to.
    pub(crate) dir: File,
    /// The network namespace of its processes.
    pub(crate) network: OwnedFd,
}

/// The record of the container that owns the sandbox of this one: its own, or another one's.
pub(crate) fn sandbox_of(settings: &Settings, record: Record) -> Result<Record> {
    match record.pod() {
        // One that is not there was not joined.
        Pod::Member(sandbox) => Ok(settings.find(&sandbox).map_or(record, |(_, sandbox)| sandbox)),
        _ => Ok(record),
    }
}

/// The other containers of a container's sandbox that live. Podman does not say of the first one that it is a pod's.
pub(crate) fn members(settings: &Settings, record: &Record) -> Vec<Record> {
    let member = Pod::Member(record.state.id.clone());
    let all = directory::list(&settings.state_dir()).unwrap_or_default();
    all.into_iter().filter(|other| other.state.pid != 0 && other.pod() == member).collect()
}

/// The sandbox with the stack that uses the interfaces of the network namespace behind `path`, by the ID of its first container.
pub(crate) fn owner_of_network(settings: &Settings, path: &Path) -> Option<String> {
    let of = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let wanted = of(path)?;
    let serves = |record: &Record| {
        let pid = record.state.pid;
        pid != 0 && record.serves_network() && of(format!("/proc/{pid}/ns/net").as_ref()) == Some(wanted)
    };
    let all = directory::list(&settings.state_dir()).ok()?;
    all.into_iter().find(serves).map(|record| record.state.id)
}

/// Finds the sandbox that a new container is to join, if it is to join one, and settles what the two share.
pub(crate) fn find(settings: &Settings, prepared: &mut Prepared) -> Result<Option<Host>> {
    let Pod::Member(id) = prepared.pod.clone() else { return Ok(None) };
    if without_infra(prepared, &settings.state_dir(), &id) {
        prepared.pod = Pod::None;
        return Ok(None);
    }
    let refused = |reason: String| Error::from(format!("cannot join sandbox {id:?}: {reason}"));
    let (found, record) = settings.find(&id).map_err(|error| refused(error.to_string()))?;
    if matches!(record.state.status, Status::Stopped | Status::Creating) {
        return Err(refused(format!("it is {}", record.state.status)));
    }
    if record.is_frozen() {
        return Err(refused("it is paused; resume it first".into()));
    }
    if let Pod::Member(other) = record.pod() {
        return Err(refused(format!("it is a container in sandbox {other:?} itself")));
    }
    let pid = record.state.pid;
    let members: Vec<Record> = directory::list(&settings.state_dir())?
        .into_iter()
        .filter(|other| other.state.pid != 0)
        .filter(|other| other.state.id == id || other.pod() == Pod::Member(id.clone()))
        .collect();
    if let Some(path) = prepared.namespaces.pid.path() {
        let Some(owner) = owner(&members, path, "pid") else {
            return Err(refused(format!(
                "linux.namespaces: the pid namespace {} is not that of one of its containers",
                path.display()
            )));
        };
        prepared.spec.pids_of = Some(owner);
    }
    let ipc = prepared.namespaces.ipc.path().filter(|_| prepared.by_network);
    if let Some(path) = ipc {
        prepared.spec.ipc_of = owner(&members, path, "ipc");
        if prepared.spec.ipc_of.is_none() {
            prepared.warnings.push(format!(
                "linux.namespaces: the ipc namespace {} cannot be shared; the container gets its own",
                path.display()
            ));
        }
    }
    let uts = prepared.namespaces.uts.path();
    // Of a pod, when it is kept elsewhere.
    let other = || (!prepared.by_network).then(|| id.clone());
    prepared.spec.uts_of = uts.and_then(|path| owner(&members, path, "uts").or_else(other));
    if prepared.spec.uts_of.is_some() {
        match host_name::read(format!("/proc/{pid}/ns/uts").as_ref()) {
            Ok(name) => prepared.spec.hostname = name,
            Err(error) => log::debug!("host name of sandbox {id}: {error}"),
        }
    }
    let network = File::open(format!("/proc/{pid}/ns/net")).map_err(|error| refused(error.to_string()))?;
    Ok(Some(Host { dir: found.dir()?, network: network.into() }))
}

/// A pod of Podman that has no container for itself (`--infra=false`): what its containers name is the pod. They share nothing.
fn without_infra(prepared: &Prepared, root: &Path, id: &str) -> bool {
    let podman = prepared.annotations.get("io.container.manager").is_some_and(|manager| manager == "libpod");
    let spaces = &prepared.namespaces;
    let shares = [&spaces.pid, &spaces.ipc, &spaces.uts].iter().any(|space| space.path().is_some());
    podman && !shares && Container::at(root, id).is_none()
}

/// The owner of the namespace that a path means. Clients write /proc/PID/ns/KIND, with the ID of the process that
/// stands for a container.
fn owner(members: &[Record], path: &Path, kind: &str) -> Option<String> {
    let wanted = fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let is = |pid: i32| {
        let own = format!("/proc/{pid}/ns/{kind}");
        Path::new(&own) == path
            || wanted.is_some() && fs::metadata(own).ok().map(|m| (m.dev(), m.ino())) == wanted
    };
    members.iter().find(|other| is(other.state.pid)).map(|other| other.state.id.clone())
}
