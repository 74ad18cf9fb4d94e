//! `linux.namespaces`, `uidMappings` and `gidMappings`: the namespaces that the sandbox shares with the host and with
//! other containers.
//!
//! A sandbox always has namespaces of its own of every kind, inside and outside. A container cannot share any kind with
//! the host completely. It can join the network namespace of the sandbox's processes, by path. A container of a pod can
//! also join the PID and UTS namespaces of the pod's other containers. The containers of a pod always share IPC and
//! network namespaces. A container in a sandbox that it joined by its network namespace has an IPC namespace of its own, unless it
//! joins that of a container there.

use crate::{Result, fail, open_regular};
use oci_spec::runtime::{Linux, LinuxIdMapping, LinuxNamespaceType as Type};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One kind of namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespace {
    /// Not mentioned: the host's, if that were possible.
    #[default]
    Host,
    /// A new one.
    New,
    /// The one that this file refers to.
    Path(PathBuf),
}

impl Namespace {
    /// The path of a namespace to join.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Path(path) => Some(path),
            _ => None,
        }
    }
}

/// The namespaces of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the kinds")]
pub struct Namespaces {
    pub pid: Namespace,
    pub network: Namespace,
    pub mount: Namespace,
    pub ipc: Namespace,
    pub uts: Namespace,
    pub user: Namespace,
    pub cgroup: Namespace,
    pub time: Namespace,
}

/// A range of user or group ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// First one in the container.
    pub inside: u32,
    /// First one outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Which ids of the host a container has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMaps {
    /// Users.
    pub uids: Vec<IdRange>,
    /// Groups.
    pub gids: Vec<IdRange>,
}

impl IdMaps {
    /// The ranges of users and of groups: first one inside, first one outside, how many.
    pub(crate) fn ranges(&self) -> [Vec<(u32, u32, u32)>; 2] {
        let list = |all: &[IdRange]| all.iter().map(|r| (r.inside, r.outside, r.count)).collect();
        [list(&self.uids), list(&self.gids)]
    }
}

/// The path of the network namespace that a configuration names.
pub(crate) fn network_path(linux: &Linux) -> Option<&Path> {
    let mut all = linux.namespaces().iter().flatten();
    let path = all.find(|namespace| namespace.typ() == Type::Network)?.path().as_deref()?;
    (!path.as_os_str().is_empty()).then_some(path)
}

/// Whether a network namespace is the one that this process or the host's first one is in.
pub(crate) fn is_hosts_network(path: &Path) -> bool {
    let of = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let theirs = of(path);
    theirs.is_some() && ["/proc/self/ns/net", "/proc/1/ns/net"].iter().any(|own| of(own.as_ref()) == theirs)
}

/// Reads the namespaces; adds to `warnings` where the container gets more isolation than it was to have.
/// A `member` of a pod shares namespaces with other containers of its sandbox, but its IPC namespace only on request if it is one
/// `by_network`.
pub(crate) fn namespaces(
    linux: &Linux,
    member: bool,
    by_network: bool,
    warnings: &mut Vec<String>,
) -> Result<Namespaces> {
    let mut all = Namespaces::default();
    for (index, namespace) in linux.namespaces().iter().flatten().enumerate() {
        let typ = namespace.typ();
        let slot = all.slot(typ);
        if *slot != Namespace::Host {
            fail!("linux.namespaces[{index}]: duplicate namespace type {typ}");
        }
        let Some(path) = namespace.path().clone().filter(|path| !path.as_os_str().is_empty()) else {
            *slot = Namespace::New;
            continue;
        };
        if !path.is_absolute() {
            fail!("linux.namespaces[{index}].path {path:?} must be an absolute path");
        }
        if let Err(error) = path.metadata() {
            let reason = crate::files::reason(&error);
            fail!("linux.namespaces[{index}].path {}: {reason}", path.display());
        }
        if kind_of(&path) != Some(flag(typ)) {
            fail!("linux.namespaces[{index}].path {} is not a {typ} namespace", path.display());
        }
        if member && matches!(typ, Type::Pid | Type::Ipc | Type::Uts) {
            *slot = Namespace::Path(path);
            continue;
        }
        if matches!(typ, Type::Ipc | Type::Uts | Type::Cgroup | Type::Time) {
            // What the containers of a pod share; each sandbox has a kernel of its own.
            warnings.push(format!(
                "linux.namespaces[{index}].path: the {typ} namespace {} cannot be shared; the container gets its own",
                path.display()
            ));
            *slot = Namespace::New;
            continue;
        }
        if typ != Type::Network {
            fail!(
                "linux.namespaces[{index}].path: joining a {typ} namespace ({}) is not supported",
                path.display()
            );
        }
        *slot = Namespace::Path(path);
    }
    for (name, namespace) in [("pid", &all.pid), ("ipc", &all.ipc)] {
        let shared = member && !by_network && name != "pid";
        if *namespace == Namespace::Host && !shared {
            warnings.push(format!(
                "linux.namespaces: the host's {name} namespace cannot be shared; it gets its own"
            ));
        }
    }
    Ok(all)
}

/// The CLONE_NEW* flag of a kind.
fn flag(typ: Type) -> i32 {
    match typ {
        Type::Pid => libc::CLONE_NEWPID,
        Type::Network => libc::CLONE_NEWNET,
        Type::Mount => libc::CLONE_NEWNS,
        Type::Ipc => libc::CLONE_NEWIPC,
        Type::Uts => libc::CLONE_NEWUTS,
        Type::User => libc::CLONE_NEWUSER,
        Type::Cgroup => libc::CLONE_NEWCGROUP,
        Type::Time => libc::CLONE_NEWTIME,
    }
}

/// The kind of namespace that a file is.
fn kind_of(path: &Path) -> Option<i32> {
    let file = open_regular(path).ok()?;
    hostsys::process::namespace_kind(file.as_fd()).ok()
}

impl Namespaces {
    fn slot(&mut self, typ: Type) -> &mut Namespace {
        match typ {
            Type::Pid => &mut self.pid,
            Type::Network => &mut self.network,
            Type::Mount => &mut self.mount,
            Type::Ipc => &mut self.ipc,
            Type::Uts => &mut self.uts,
            Type::User => &mut self.user,
            Type::Cgroup => &mut self.cgroup,
            Type::Time => &mut self.time,
        }
    }
}

/// Reads the maps of a container with a user namespace; `None` without one.
pub(crate) fn id_maps(linux: &Linux, namespaces: &Namespaces) -> Result<Option<IdMaps>> {
    let uids = ranges("linux.uidMappings", linux.uid_mappings())?;
    let gids = ranges("linux.gidMappings", linux.gid_mappings())?;
    if uids.is_empty() && gids.is_empty() {
        return Ok(None);
    }
    if namespaces.user == Namespace::Host {
        fail!(
            "linux.uidMappings and gidMappings need a user namespace; add {{\"type\": \"user\"}} to linux.namespaces"
        );
    }
    if uids.is_empty() || gids.is_empty() {
        fail!("linux.uidMappings and gidMappings must be given together");
    }
    Ok(Some(IdMaps { uids, gids }))
}

pub(crate) fn ranges(field: &str, maps: &Option<Vec<LinuxIdMapping>>) -> Result<Vec<IdRange>> {
    let mut out: Vec<IdRange> = Vec::new();
    for (index, map) in maps.iter().flatten().enumerate() {
        let range = IdRange { inside: map.container_id(), outside: map.host_id(), count: map.size() };
        let end = |first: u32| u64::from(first) + u64::from(range.count);
        if range.count == 0 || end(range.inside) > 1 << 32 || end(range.outside) > 1 << 32 {
            fail!("{field}[{index}]: the size {} is not possible", range.count);
        }
        let meets = |a: u32, b: u32, count: u32| {
            u64::from(a) < u64::from(b) + u64::from(count) && u64::from(b) < end(a)
        };
        let taken =
            |r: &IdRange| meets(range.inside, r.inside, r.count) || meets(range.outside, r.outside, r.count);
        if out.iter().any(taken) {
            fail!("{field}[{index}] overlaps one before it");
        }
        out.push(range);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(json: serde_json::Value) -> Result<(Namespaces, Option<IdMaps>, Vec<String>)> {
        let linux: Linux = serde_json::from_value(json).unwrap();
        let mut warnings = Vec::new();
        let all = namespaces(&linux, false, false, &mut warnings)?;
        let maps = id_maps(&linux, &all)?;
        Ok((all, maps, warnings))
    }

    #[test]
    fn kinds_and_paths() {
        let (all, maps, warnings) = parse(json!({ "namespaces": [
            { "type": "pid" }, { "type": "network", "path": "/proc/self/ns/net" }, { "type": "time" },
        ] }))
        .unwrap();
        assert_eq!(all.pid, Namespace::New);
        assert_eq!(all.network.path().unwrap().to_str(), Some("/proc/self/ns/net"));
        assert_eq!((&all.ipc, maps), (&Namespace::Host, None));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("ipc"));
    }

    #[test]
    fn what_is_refused() {
        let error = |json| parse(json).unwrap_err().to_string();
        let twice = json!({ "namespaces": [{ "type": "pid" }, { "type": "pid" }] });
        assert!(error(twice).contains("namespaces[1]: duplicate"));
        let gone = json!({ "namespaces": [{ "type": "network", "path": "/nonexistent" }] });
        let pid = json!({ "namespaces": [{ "type": "pid", "path": "/proc/self/ns/pid" }] });
        assert!(error(pid).starts_with("linux.namespaces[0].path: joining a pid namespace"));
        assert!(error(gone).contains("namespaces[0].path /nonexistent: no such file"));
        let other = json!({ "namespaces": [{ "type": "ipc", "path": "/proc/self/ns/uts" }] });
        assert!(error(other).contains("/proc/self/ns/uts is not a ipc namespace"));
        let file = json!({ "namespaces": [{ "type": "uts", "path": "/proc/self/status" }] });
        assert!(error(file).contains("is not a uts namespace"));
        let relative = json!({ "namespaces": [{ "type": "network", "path": "x" }] });
        assert!(error(relative).contains("absolute"));
        let user = json!({ "namespaces": [{ "type": "user", "path": "/proc/self/ns/user" }] });
        assert!(error(user).contains("user namespace"));
        let map = json!([{ "containerID": 0, "hostID": 1000, "size": 1 }]);
        let without = json!({ "uidMappings": map, "gidMappings": map });
        assert!(error(without).contains("need a user namespace"));
        let half = json!({ "namespaces": [{ "type": "user" }], "uidMappings": map });
        assert!(error(half).contains("together"));
        let zero = json!([{ "containerID": 0, "hostID": 1000, "size": 0 }]);
        let zero = json!({ "namespaces": [{ "type": "user" }], "uidMappings": zero });
        assert!(error(zero).contains("linux.uidMappings[0]"));
        let double = json!([{ "containerID": 0, "hostID": 1000, "size": 5 }, { "containerID": 4, "hostID": 1, "size": 1 }]);
        let double = json!({ "namespaces": [{ "type": "user" }], "gidMappings": double });
        assert!(error(double).contains("linux.gidMappings[1] overlaps"));
    }

    #[test]
    fn maps() {
        let map = json!([{ "containerID": 0, "hostID": 1000, "size": 1 }, { "containerID": 1, "hostID": 100000, "size": 65536 }]);
        let (_, maps, _) =
            parse(json!({ "namespaces": [{ "type": "user" }], "uidMappings": map, "gidMappings": map }))
                .unwrap();
        let maps = maps.unwrap();
        assert_eq!(maps.uids[1], IdRange { inside: 1, outside: 100_000, count: 65536 });
        assert_eq!(maps.uids, maps.gids);
    }
}
