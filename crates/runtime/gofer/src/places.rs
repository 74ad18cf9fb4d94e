//! Places in a tree that the sandbox cannot write. The mount points that its kernel needs there are made in advance.

use bundle::MountPoint;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Most links on the way, as Linux has it.
const MAX_LINKS: usize = 40;

/// Makes what is missing of the places. Links, also dangling ones, are followed as inside the tree, never out of it. What
/// cannot be made is told by the kernel inside, which then does not find it.
pub(crate) fn make_places(root: BorrowedFd<'_>, points: &[MountPoint]) {
    let mut made: Vec<PathBuf> = Vec::new();
    for point in points {
        let Ok(path) = resolve(root, &point.path) else { continue };
        // Something will be mounted there; the place is in that.
        if made.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        let _ = make(root, &path, point.is_file);
        made.push(path);
    }
}

fn open(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), inside)
}

/// The path without links. What is missing has none; `..` there means the part before it.
fn resolve(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<PathBuf> {
    let mut pending: Vec<OsString> = parts(path).rev().collect();
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = pending.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        done.push(part);
        let found = match open(root, &done) {
            Ok(found) => found,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Symlink {
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let target = PathBuf::from(OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes()));
        done.pop();
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        pending.extend(parts(&target).rev());
    }
    Ok(done)
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let kept = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(kept).map(|part| part.as_os_str().to_owned())
}

/// Makes what is missing of a path without links.
fn make(root: BorrowedFd<'_>, path: &Path, is_file: bool) -> rustix::io::Result<()> {
    let parts: Vec<_> = parts(path).collect();
    let mut at = PathBuf::from("/");
    for (index, part) in parts.iter().enumerate() {
        let parent = open(root, &at)?;
        at.push(part);
        if open(root, &at).is_ok() {
            continue;
        }
        if is_file && index + 1 == parts.len() {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&parent, part.as_os_str(), flags, Mode::from_raw_mode(0o644))?;
        } else {
            mkdirat(&parent, part.as_os_str(), Mode::from_raw_mode(0o755))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn places_are_made_where_links_lead() {
        let dir = std::env::temp_dir().join(format!("ringfence-gofer-places-{}", std::process::id()));
        fs::create_dir_all(dir.join("root/etc")).unwrap();
        for (link, target) in [
            ("out", "../../../run/deep/file"),
            ("absolute", "/run/other"),
            ("loop", "loop"),
            ("back", "../gone/../here"),
            ("covered", "/volume/inside"),
        ] {
            symlink(target, dir.join("root/etc").join(link)).unwrap();
        }
        let root = fs::File::open(dir.join("root")).unwrap();
        let point = |path: &str, is_file| MountPoint { path: path.into(), is_file };
        make_places(
            root.as_fd(),
            &[
                point("/volume", false),
                point("/etc/out", true),
                point("/etc/absolute", false),
                point("/etc/loop", true),
                point("/etc/back", true),
                point("/etc/covered", true),
                point("/made/for/it", true),
            ],
        );
        let at = |path: &str| dir.join("root").join(path);
        assert!(at("run/deep/file").is_file() && at("run/other").is_dir() && at("here").is_file());
        assert!(at("made/for/it").is_file() && at("volume").is_dir());
        assert!(!at("volume/inside").exists() && !at("gone").exists() && !dir.join("run").exists());
        fs::remove_dir_all(dir).unwrap();
    }
}
