//! Mounts of the host below a directory that its container must not see, and covering them.

use crate::root::Stage;
use hostsys::mounts::{MountAttrs, set_attributes};
use mountinfo::Mount;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Directory and file of the stage that cover what the container must not see.
const EMPTY_DIR: &str = "empty";
const EMPTY_FILE: &str = "empty-file";

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
pub fn hidden_below(mounts: &[Mount], tree: &Path, all: bool) -> Vec<PathBuf> {
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

/// Makes what [`hide`] covers with.
pub fn prepare(stage: &Stage) -> io::Result<()> {
    mkdirat(stage.dir(), EMPTY_DIR, Mode::from_raw_mode(0o555))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(stage.dir(), EMPTY_FILE, flags, Mode::from_raw_mode(0o444))?;
    Ok(())
}

/// Covers mount points below `tree`, which is mounted on the directory `name` of the stage.
pub fn hide(stage: &Stage, name: &str, tree: &Path, points: &[PathBuf]) -> io::Result<()> {
    for point in points {
        let Ok(below) = point.strip_prefix(tree) else { continue };
        cover(stage, &Path::new(name).join(below)).map_err(|error| {
            io::Error::new(error.kind(), format!("{} cannot be hidden: {error}", point.display()))
        })?;
    }
    Ok(())
}

/// Mounts something empty over `path`, or over the directory on the way to it that may not be entered. Today no process
/// of the sandbox gets beyond that directory, but the host may change its permissions.
fn cover(stage: &Stage, path: &Path) -> io::Result<()> {
    let (path, is_dir) = match statat(stage.dir(), path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => (path, FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        // Covered by a later mount of the host already.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
        Err(error @ rustix::io::Errno::ACCESS) => {
            let visible = |p: &&Path| statat(stage.dir(), *p, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            // The first part is the tree itself: one that may not be entered at all is an error.
            let inside = |p: &&Path| p.components().count() > 1;
            (path.ancestors().skip(1).filter(inside).find(visible).ok_or(error)?, true)
        }
        Err(error) => return Err(error.into()),
    };
    let empty = if is_dir { EMPTY_DIR } else { EMPTY_FILE };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(stage.dir(), empty, flags)?;
    set_attributes(mount.as_fd(), MountAttrs::RDONLY, false)?;
    Ok(move_mount(&mount, "", stage.dir(), path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
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
