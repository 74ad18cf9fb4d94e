//! Building the tree that holds the container's directories and nothing else.
//!
//! The layout is flat: tree `N` is mounted on the directory `N` of a small
//! tmpfs, or, when it is a file, on `N/file`. No mount of a tree gives access
//! to a device node or lets a link be followed, whatever it did on the host.

use bundle::{HostTree, MountPoint};
use confine::hidden::{hidden_below, hide, prepare};
use confine::root::{Stage, reference};
use hostsys::mounts::{MountAttrs, make_private, set_attributes};
use mountinfo::Mount;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use spec::FILE_ENTRY;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Builds the tree, moves into it and opens each directory. Errors are lines for the user.
pub(crate) fn build(trees: &[HostTree]) -> Result<Vec<OwnedFd>, String> {
    let told = |what: &str| {
        let what = what.to_string();
        move |error: std::io::Error| format!("gofer: {what}: {error}")
    };
    let mounts = mountinfo::parse(&fs::read("/proc/self/mountinfo").map_err(told("/proc/self/mountinfo"))?);
    // Taken before anything is mounted here, so that a tree that contains the stage does not contain itself.
    let clones: Vec<OwnedFd> = trees
        .iter()
        .map(|tree| clone(tree).map_err(|error| format!("{}: {error}", tree.path.display())))
        .collect::<Result<_, _>>()?;
    let stage = Stage::new().map_err(told("new root"))?;
    prepare(&stage).map_err(told("new root"))?;
    for (index, (tree, mount)) in trees.iter().zip(&clones).enumerate() {
        attach(&stage, index, tree, mount, &mounts)
            .map_err(|error| format!("{}: {error}", tree.path.display()))?;
    }
    let fds = (0..trees.len())
        .map(|index| reference(stage.dir(), &index.to_string()).map_err(told("new root")))
        .collect::<Result<_, _>>()?;
    stage.enter().map_err(told("pivot_root"))?;
    Ok(fds)
}

/// A detached copy of the mount at the tree's path. The attributes hold before anybody can reach it.
fn clone(tree: &HostTree) -> std::io::Result<OwnedFd> {
    // A mount inherited from the host's namespace can only be copied together with what is mounted on it.
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(CWD, &tree.path, flags)?;
    for point in &tree.mount_points {
        // What cannot be made is told by the kernel inside, which then finds no place for its mount.
        let _ = make_mount_point(mount.as_fd(), point);
    }
    let mut attrs = MountAttrs::NOSUID | MountAttrs::NODEV | MountAttrs::NOSYMFOLLOW;
    if tree.readonly {
        attrs |= MountAttrs::RDONLY;
    }
    set_attributes(mount.as_fd(), attrs, true)?;
    if !tree.follows_mounts {
        make_private(mount.as_fd())?;
    }
    Ok(mount)
}

/// Makes what is missing of a mount point. Links are followed as inside the tree, never out of it.
fn make_mount_point(root: BorrowedFd<'_>, point: &MountPoint) -> std::io::Result<()> {
    let open = |path: &Path| {
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)
    };
    let parts: Vec<_> = point.path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
    let mut at = PathBuf::from("/");
    for (index, part) in parts.iter().enumerate() {
        let parent = open(&at)?;
        at.push(part);
        if open(&at).is_ok() {
            continue;
        }
        if point.is_file && index + 1 == parts.len() {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&parent, part.as_os_str(), flags, Mode::from_raw_mode(0o644))?;
        } else {
            mkdirat(&parent, part.as_os_str(), Mode::from_raw_mode(0o755))?;
        }
    }
    Ok(())
}

fn attach(
    stage: &Stage,
    index: usize,
    tree: &HostTree,
    mount: &OwnedFd,
    mounts: &[Mount],
) -> std::io::Result<()> {
    let name = index.to_string();
    mkdirat(stage.dir(), &name, Mode::from_raw_mode(0o555))?;
    let target = if tree.is_file {
        let path = format!("{name}/{FILE_ENTRY}");
        create_file(stage.dir(), &path)?;
        path
    } else {
        name.clone()
    };
    move_mount(mount, "", stage.dir(), &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    if tree.is_file {
        return Ok(());
    }
    hide(stage, &name, &tree.path, &hidden_below(mounts, &tree.path, !tree.recursive))
}

fn create_file(dir: BorrowedFd<'_>, name: &str) -> std::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::from_raw_mode(0o444))?;
    Ok(())
}
