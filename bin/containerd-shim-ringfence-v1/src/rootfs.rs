//! The container's root file system, as containerd describes it: mounts in the form of mount(8)'s options.

use rustix::mount::{MountFlags, mount, mount_remount};
use std::ffi::CString;
use std::io;
use std::path::Path;

/// A page, which is what mount(2) takes of options; containerd leaves this much of it free.
const PAGE: usize = 4096;
const SPARE: usize = 512;

const BIND: MountFlags = MountFlags::BIND;
const REC: MountFlags = MountFlags::REC;

/// Options that are flags of mount(2): what they set, or clear.
const FLAGS: [(&str, bool, MountFlags); 25] = [
    ("async", false, MountFlags::SYNCHRONOUS),
    ("atime", false, MountFlags::NOATIME),
    ("bind", true, BIND),
    ("defaults", true, MountFlags::empty()),
    ("dev", false, MountFlags::NODEV),
    ("diratime", false, MountFlags::NODIRATIME),
    ("dirsync", true, MountFlags::DIRSYNC),
    ("exec", false, MountFlags::NOEXEC),
    ("mand", true, MountFlags::PERMIT_MANDATORY_FILE_LOCKING),
    ("noatime", true, MountFlags::NOATIME),
    ("nodev", true, MountFlags::NODEV),
    ("nodiratime", true, MountFlags::NODIRATIME),
    ("noexec", true, MountFlags::NOEXEC),
    ("nomand", false, MountFlags::PERMIT_MANDATORY_FILE_LOCKING),
    ("norelatime", false, MountFlags::RELATIME),
    ("nostrictatime", false, MountFlags::STRICTATIME),
    ("nosuid", true, MountFlags::NOSUID),
    ("rbind", true, BIND.union(REC)),
    ("relatime", true, MountFlags::RELATIME),
    ("remount", true, MountFlags::from_bits_retain(1 << 5)),
    ("ro", true, MountFlags::RDONLY),
    ("rw", false, MountFlags::RDONLY),
    ("strictatime", true, MountFlags::STRICTATIME),
    ("suid", false, MountFlags::NOSUID),
    ("sync", true, MountFlags::SYNCHRONOUS),
];

/// Makes one mount.
pub(crate) fn make(fstype: &str, source: &str, options: &[String], target: &Path) -> io::Result<()> {
    let (dir, options) = fitting(fstype, options);
    let (flags, data) = split(&options);
    if data.len() > PAGE {
        return Err(io::Error::other("the mount's options are too long"));
    }
    let data = CString::new(data)?;
    let data = (!data.is_empty()).then_some(data.as_c_str());
    match dir {
        // Relative paths count from the working directory, which is this thread's alone there.
        Some(dir) => hostsys::process::in_directory(Path::new(&dir), || {
            Ok(mount(source, target, fstype, flags, data)?)
        })?,
        None => mount(source, target, fstype, flags, data)?,
    }
    if flags.contains(BIND.union(MountFlags::RDONLY)) {
        mount_remount(target, flags, "")?;
    }
    Ok(())
}

/// Flags, and options for the file system.
fn split(options: &[String]) -> (MountFlags, String) {
    let (mut flags, mut data) = (MountFlags::empty(), Vec::new());
    for option in options {
        match FLAGS.iter().find(|(name, ..)| name == option) {
            Some((_, true, set)) => flags |= *set,
            Some((_, false, clear)) => flags -= *clear,
            None => data.push(option.as_str()),
        }
    }
    (flags, data.join(","))
}

/// Options of an overlay with so many layers that their paths do not fit into a page: relative to what the paths have
/// in common.
fn fitting(fstype: &str, options: &[String]) -> (Option<String>, Vec<String>) {
    const LOWER: &str = "lowerdir=";
    let length: usize = options.iter().map(String::len).sum();
    let layers: Vec<&str> = options
        .iter()
        .filter_map(|option| option.strip_prefix(LOWER))
        .flat_map(|dirs| dirs.split(':'))
        .collect();
    let dir = common(&layers);
    if fstype != "overlay" || length < PAGE - SPARE || layers.len() < 2 || dir.len() < 2 {
        return (None, options.to_vec());
    }
    let relative: Vec<&str> = layers.iter().map(|layer| &layer[dir.len()..]).collect();
    let others = options.iter().filter(|option| !option.starts_with(LOWER)).cloned();
    let lower = format!("{LOWER}{}", relative.join(":"));
    (Some(dir.to_string()), others.chain([lower]).collect())
}

/// The directory that all paths begin with, with its slash.
fn common<'a>(paths: &[&'a str]) -> &'a str {
    let Some(first) = paths.first() else { return "" };
    let shared = |path: &&str| first.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
    let length = paths.iter().map(shared).min().unwrap_or(0);
    let end = first.as_bytes()[..length].iter().rposition(|byte| *byte == b'/');
    end.map_or("", |slash| &first[..=slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(options: &[&str]) -> Vec<String> {
        options.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn options_are_told_apart() {
        let (flags, data) = split(&owned(&["rbind", "ro", "noexec", "exec", "upperdir=/u", "workdir=/w"]));
        assert_eq!(flags, BIND | REC | MountFlags::RDONLY);
        assert_eq!(data, "upperdir=/u,workdir=/w");
    }

    #[test]
    fn many_layers_become_relative() {
        let snapshots = "/var/lib/containerd/snapshots";
        let layers: Vec<String> = (100..300).map(|n| format!("{snapshots}/{n}/fs")).collect();
        let lower = format!("lowerdir={}", layers.join(":"));
        let (dir, options) = fitting("overlay", &owned(&["index=off", &lower]));
        // What the numbers begin with is not a directory.
        assert_eq!(dir.as_deref(), Some("/var/lib/containerd/snapshots/"));
        assert!(options[1].starts_with("lowerdir=100/fs:101/fs:") && options[1].len() < PAGE);
        assert_eq!(options[0], "index=off");
        assert_eq!(fitting("ext4", &owned(&[&lower])).0, None);
        assert_eq!(fitting("overlay", &owned(&["lowerdir=/a:/b"])).0, None);
    }

    #[test]
    fn what_paths_have_in_common() {
        assert_eq!(common(&["/a/12/fs", "/a/1/fs"]), "/a/");
        assert_eq!(common(&["/a/1", "/b/1"]), "/");
        assert_eq!(common(&["a", "b"]), "");
        assert_eq!(common(&[]), "");
    }
}
