//! /proc/self/mountinfo, as far as it is needed here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
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
pub(crate) fn hidden_below(mountinfo: &str, tree: &Path, all: bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in mountinfo.lines() {
        // ID parent major:minor root MOUNTPOINT options [optional...] - TYPE source options
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (left.split(' ').nth(4), right.split(' ').next()) else { continue };
        let point = unescape(point);
        if (all || HIDDEN.contains(&kind)) && point != tree && point.starts_with(tree) {
            found.push(point);
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

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'\\')
            .then(|| text.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok()))
            .flatten();
        match code {
            Some(code) => {
                out.push(code);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
40 22 0:35 / /proc/sys/fs/binfmt_misc rw shared:3 - binfmt_misc none rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
41 27 0:60 / /srv/my\\040root/sys rw - sysfs sysfs rw
42 27 0:61 / /tmp rw - tmpfs tmpfs rw
";

    #[test]
    fn pseudo_file_systems_are_found_once() {
        let all = hidden_below(SAMPLE, Path::new("/"), false);
        assert_eq!(all, [Path::new("/proc"), Path::new("/srv/my root/sys")]);
        assert_eq!(hidden_below(SAMPLE, Path::new("/srv/my root"), false), [Path::new("/srv/my root/sys")]);
        assert!(hidden_below(SAMPLE, Path::new("/proc"), false).iter().all(|p| p.starts_with("/proc/sys")));
        assert_eq!(hidden_below(SAMPLE, Path::new("/"), true).len(), 3);
        assert!(hidden_below(SAMPLE, Path::new("/tmp"), false).is_empty());
    }
}
