//! The place of the host's control groups, and the place for a container's. Pure: from the text of /proc/self/mountinfo
//! and /proc/self/cgroup.

use crate::{Error, Result};
use mountinfo::Mount;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Controllers of cgroup v1 that a container joins, in that order: blkio before memory, so that writeback is
/// accounted. The last one is systemd's hierarchy without a controller.
pub(crate) const V1: [&str; 14] = [
    "blkio",
    "memory",
    "cpuset",
    "cpu",
    "cpuacct",
    "pids",
    "devices",
    "hugetlb",
    "net_cls",
    "net_prio",
    "perf_event",
    "rdma",
    "misc",
    "freezer",
];

/// The name under which systemd's own hierarchy stands in a [`BTreeMap`] of paths, as /proc/self/cgroup has it.
pub(crate) const NAMED: &str = "name=systemd";

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Directory of the hierarchy that the mount shows.
    root: PathBuf,
    /// Where it is mounted.
    pub(crate) at: PathBuf,
    /// Group of this process in it.
    own: PathBuf,
}

/// The host's hierarchies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One hierarchy per controller.
    V1(BTreeMap<String, Hierarchy>),
    /// One for all.
    V2(Hierarchy),
}

impl Layout {
    /// Of this machine.
    pub(crate) fn detect() -> Result<Self> {
        let read =
            |path: &str| std::fs::read(path).map_err(|error| Error::file("", "read", Path::new(path), error));
        let own = read("/proc/self/cgroup")?;
        Self::parse(&read("/proc/self/mountinfo")?, &String::from_utf8_lossy(&own))
    }

    pub(crate) fn parse(mountinfo: &[u8], own: &str) -> Result<Self> {
        let own: BTreeMap<String, PathBuf> = own.lines().flat_map(own_groups).collect();
        let of = |name: &str| own.get(name).cloned().unwrap_or_else(|| "/".into());
        let (mut v1, mut v2) = (BTreeMap::new(), None);
        let mounts = mountinfo::parse(mountinfo);
        let visible =
            |(at, mount): &(usize, &Mount)| !covered(mounts.get(at + 1..).unwrap_or_default(), &mount.point);
        for (_, mount) in mounts.iter().enumerate().filter(visible) {
            let hierarchy = |own| Hierarchy { root: mount.root.clone(), at: mount.point.clone(), own };
            if mount.fstype == "cgroup2" {
                v2 = Some(hierarchy(of("")));
            } else if mount.fstype == "cgroup" {
                for name in V1.into_iter().chain([NAMED]).filter(|name| mount.has_option(name)) {
                    // Of those that can be reached the first is the host's own; later ones are copies in other places.
                    v1.entry(name.to_string()).or_insert_with(|| hierarchy(of(name)));
                }
            }
        }
        let unified = v2.as_ref().is_some_and(|h| v1.is_empty() || h.at == Path::new("/sys/fs/cgroup"));
        match v2 {
            Some(hierarchy) if unified => Ok(Self::V2(hierarchy)),
            _ if v1.is_empty() => {
                Err(Error::Config("no control groups are mounted; mount cgroup2 on /sys/fs/cgroup".into()))
            }
            _ => Ok(Self::V1(v1)),
        }
    }

    /// Directories for a path as `linux.cgroupsPath` gives it: an absolute one counts from the top of each
    /// hierarchy, a relative one from the caller's own group (in cgroup v2 from the group above it, since one that
    /// holds processes can have no children with controllers).
    pub(crate) fn directories(&self, path: &Path) -> BTreeMap<String, PathBuf> {
        let inner = clean(path);
        match self {
            Self::V1(all) => {
                let one = |(name, h): (&String, &Hierarchy)| {
                    let base = if path.is_absolute() { h.at.clone() } else { h.of_own() };
                    (name.clone(), base.join(&inner))
                };
                all.iter().map(one).collect()
            }
            Self::V2(h) => {
                let above = || {
                    let own = h.of_own();
                    if own == h.at { own } else { own.parent().map_or(own.clone(), Path::to_path_buf) }
                };
                let base = if path.is_absolute() { h.at.clone() } else { above() };
                BTreeMap::from([(String::new(), base.join(&inner))])
            }
        }
    }

    /// Where the hierarchy that a directory belongs to begins.
    pub(crate) fn top(&self, controller: &str) -> Option<&Path> {
        match self {
            Self::V1(all) => all.get(controller).map(|h| h.at.as_path()),
            Self::V2(h) => Some(&h.at),
        }
    }
}

impl Hierarchy {
    /// Directory of the caller's own group.
    fn of_own(&self) -> PathBuf {
        let below = self.own.strip_prefix(&self.root).unwrap_or(&self.own);
        let below = below.strip_prefix("/").unwrap_or(below);
        if below.as_os_str().is_empty() { self.at.clone() } else { self.at.join(below) }
    }
}

/// Whether one of these later mounts hides what is mounted at `at`: there, or above it.
fn covered(later: &[Mount], at: &Path) -> bool {
    later.iter().any(|Mount { point, .. }| point != Path::new("/") && at.starts_with(point))
}

/// Controllers and group of one line of /proc/self/cgroup; cgroup v2's has an empty name.
fn own_groups(line: &str) -> Vec<(String, PathBuf)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(names), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    // What lies above the caller's cgroup namespace cannot be reached from within.
    let path = if path.starts_with("/..") { "/" } else { path };
    names.split(',').map(|name| (name.to_string(), path.into())).collect()
}

/// A path that stays below where it is put, relative.
fn clean(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(name) => parts.push(name),
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const V1_OWN: &str = "4:memory:/user/me\n2:cpu,cpuacct:/\n1:name=systemd:/user\n0::/";

    fn get(map: &BTreeMap<String, PathBuf>, name: &str) -> String {
        map.get(name).map(|p| p.display().to_string()).unwrap_or_default()
    }

    #[test]
    fn absolute_paths_count_from_the_top() {
        let layout = Layout::parse(V1_MOUNTS.as_bytes(), V1_OWN).unwrap();
        let dirs = layout.directories(Path::new("/docker/../docker/id"));
        assert_eq!(get(&dirs, "memory"), "/sys/fs/cgroup/memory/docker/id");
        assert_eq!(get(&dirs, "cpu"), "/sys/fs/cgroup/cpu,cpuacct/docker/id");
        assert_eq!(get(&dirs, "cpuacct"), get(&dirs, "cpu"));
        assert_eq!(get(&dirs, NAMED), "/sys/fs/cgroup/systemd/docker/id");
        assert_eq!(dirs.len(), 4);
    }

    #[test]
    fn relative_paths_count_from_the_callers_group() {
        let layout = Layout::parse(V1_MOUNTS.as_bytes(), V1_OWN).unwrap();
        let dirs = layout.directories(Path::new("../../id"));
        assert_eq!(get(&dirs, "memory"), "/sys/fs/cgroup/memory/user/me/id");
        assert_eq!(get(&dirs, "cpu"), "/sys/fs/cgroup/cpu,cpuacct/id");
    }

    #[test]
    fn a_mount_of_a_part_of_the_hierarchy() {
        let mounts = "32 31 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        let layout = Layout::parse(mounts.as_bytes(), "4:memory:/docker/abc/x").unwrap();
        assert_eq!(get(&layout.directories(Path::new("id")), "memory"), "/sys/fs/cgroup/memory/x/id");
    }

    #[test]
    fn the_unified_hierarchy() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        let layout = Layout::parse(mounts.as_bytes(), "0::/user.slice/session-1.scope").unwrap();
        assert_eq!(get(&layout.directories(Path::new("/a/b")), ""), "/sys/fs/cgroup/a/b");
        assert_eq!(get(&layout.directories(Path::new("id")), ""), "/sys/fs/cgroup/user.slice/id");
        let layout = Layout::parse(mounts.as_bytes(), "0::/").unwrap();
        assert_eq!(get(&layout.directories(Path::new("id")), ""), "/sys/fs/cgroup/id");
        assert_eq!(layout.top(""), Some(Path::new("/sys/fs/cgroup")));
    }

    #[test]
    fn nothing_mounted_is_an_error() {
        let error = Layout::parse(b"31 23 0:28 / /proc rw - proc proc rw", "").unwrap_err();
        assert!(error.to_string().contains("mount cgroup2"), "{error}");
    }

    #[test]
    fn hidden_hierarchies_do_not_count() {
        let mounts = format!("{V1_MOUNTS}\n50 31 0:40 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        assert!(matches!(Layout::parse(mounts.as_bytes(), V1_OWN), Ok(Layout::V2(_))));
        // Mounted a second time at the same places, as scripts of Docker in Docker do: these are the ones that can be reached.
        let again = V1_MOUNTS.lines().map(|line| format!("1{line}\n")).collect::<String>();
        let mounts = format!("{V1_MOUNTS}\n50 31 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n{again}");
        let before = Layout::parse(V1_MOUNTS.as_bytes(), V1_OWN).unwrap();
        assert_eq!(Layout::parse(mounts.as_bytes(), V1_OWN).unwrap(), before);
        // Covered, and not mounted again.
        let mounts = format!("{V1_MOUNTS}\n50 31 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw");
        assert!(Layout::parse(mounts.as_bytes(), V1_OWN).is_err());
    }
}
