//! Mounts of the host below a directory that its container must not see.

use mountinfo::Mount;
use std::path::{Path, PathBuf};

/// File systems that show the host's kernel rather than files. A container that is given a
/// directory above one of them does not get it with the directory.
const HIDDEN: [&str; 22] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "bpf",
    "configfs",
    "pstore",
    "efivarfs",
    "mqueue",
    "hugetlbfs",
    "fusectl",
    "binfmt_misc",
    "rpc_pipefs",
    "nsfs",
    "resctrl",
];

/// Mount points strictly below `tree` that a container must not see, none below another: those of
/// file systems that show the host's kernel, or `all` of them.
pub(crate) fn hidden_below(mounts: &[Mount], tree: &Path, all: bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for Mount { point, fstype, .. } in mounts {
        if (all || HIDDEN.contains(&fstype.as_str())) && point != tree && point.starts_with(tree) {
            found.push(point.clone());
        }
    }
    found.sort();
    found.dedup();
    let mut top: Vec<PathBuf> = Vec::new();
    for point in found {
        if !top.iter().any(|above| point.starts_with(above)) {
            top.push(point);
        }
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"\
22 27 0:21 / /proc rw,relatime - proc proc rw
40 22 0:35 / /proc/sys/fs/binfmt_misc rw shared:3 - binfmt_misc none rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
41 27 0:60 / /srv/my\\040root/sys rw - sysfs sysfs rw
42 27 0:61 / /tmp rw - tmpfs tmpfs rw
";

    #[test]
    fn pseudo_file_systems_are_found_once() {
        let sample = mountinfo::parse(SAMPLE);
        let all = hidden_below(&sample, Path::new("/"), false);
        assert_eq!(all, [Path::new("/proc"), Path::new("/srv/my root/sys")]);
        assert_eq!(hidden_below(&sample, Path::new("/srv/my root"), false), [Path::new("/srv/my root/sys")]);
        assert!(hidden_below(&sample, Path::new("/proc"), false).iter().all(|p| p.starts_with("/proc/sys")));
        assert_eq!(hidden_below(&sample, Path::new("/"), true).len(), 3);
        assert!(hidden_below(&sample, Path::new("/tmp"), false).is_empty());
    }
}
