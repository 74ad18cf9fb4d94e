//! Building the tree that holds the container's directories and nothing else.
//!
//! The layout is flat: tree `N` is mounted on the directory `N` of a small
//! tmpfs, or, when it is a file, on `N/file`. No mount of a tree gives access
//! to a device node or lets a link be followed, whatever it did on the host.

use crate::places::make_places;
use bundle::{HostTree, IdMapped, IdRange, lower_layers};
use confine::hidden::{hidden_below, hide, prepare};
use confine::ids::namespace;
use confine::root::{Stage, reference};
use hostsys::mounts::{MountAttrs, make_private, make_slave, map_ids, set_attributes};
use mountinfo::Mount;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, mkdirat, openat, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use spec::FILE_ENTRY;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A descriptor of each tree, and the numbers of all their mounts.
pub(crate) type Built = (Vec<OwnedFd>, BTreeSet<u64>);

/// Builds the tree of copies of the trees' mounts, moves into it and opens each directory. `clones` are the copies if the
/// caller has made them. Errors are lines for the user.
pub(crate) fn build(trees: &[HostTree], clones: Option<Vec<OwnedFd>>) -> Result<Built, String> {
    let told = |what: &str| {
        let what = what.to_string();
        move |error: std::io::Error| format!("gofer: {what}: {error}")
    };
    let list = "/proc/self/mountinfo";
    let mounts = mountinfo::parse(&fs::read(list).map_err(told(list))?);
    // The stage hides /proc.
    let mut later = fs::File::open(list).map_err(told(list))?;
    // Taken before anything is mounted here, so that a tree that contains the stage does not contain itself.
    let of = |tree: &HostTree| {
        let tree = tree.path.display().to_string();
        move |error: std::io::Error| format!("{tree}: {error}")
    };
    let clones = match clones {
        Some(clones) if clones.len() == trees.len() => clones,
        Some(_) => return Err("gofer: wrong number of descriptors".into()),
        None => trees.iter().map(|tree| clone(tree).map_err(of(tree))).collect::<Result<_, _>>()?,
    };
    for (tree, mount) in trees.iter().zip(&clones) {
        prepare_tree(tree, mount.as_fd()).map_err(of(tree))?;
    }
    let stage = Stage::new().map_err(told("new root"))?;
    prepare(&stage).map_err(told("new root"))?;
    for (index, (tree, mount)) in trees.iter().zip(&clones).enumerate() {
        attach(&stage, index, tree, mount, &mounts).map_err(of(tree))?;
    }
    let fds = (0..trees.len())
        .map(|index| reference(stage.dir(), &index.to_string()).map_err(told("new root")))
        .collect::<Result<_, _>>()?;
    let mut text = Vec::new();
    later.read_to_end(&mut text).map_err(told(list))?;
    let on_stage = hostsys::fs::identity_on_mount(stage.dir())
        .map(|(_, id)| mountinfo::tree_of(&mountinfo::parse(&text), id))
        .map_err(|error| format!("gofer: new root: {}", std::io::Error::from_raw_os_error(error.raw())))?;
    stage.enter().map_err(told("pivot_root"))?;
    Ok((fds, on_stage))
}

/// Copies for a gofer that may not be able to reach the trees. Nothing that happens in them appears on the host.
pub(crate) fn clone_all(trees: &[HostTree]) -> std::io::Result<Vec<OwnedFd>> {
    let one = |tree: &HostTree| {
        let mount = clone(tree).map_err(|error| of_tree(tree, &error))?;
        if let Some(mapped) = &tree.id_map {
            map_owners(mount.as_fd(), mapped).map_err(|error| of_tree(tree, &error))?;
        }
        make_slave(mount.as_fd())?;
        Ok(mount)
    };
    trees.iter().map(one).collect()
}

fn of_tree(tree: &HostTree, error: &std::io::Error) -> std::io::Error {
    std::io::Error::other(format!("{}: {error}", tree.path.display()))
}

/// Has a copy map the owners of its files.
fn map_owners(mount: BorrowedFd<'_>, mapped: &IdMapped) -> std::io::Result<()> {
    let ranges = |list: &[IdRange]| -> Vec<_> {
        list.iter().map(|range| (range.inside, range.outside, range.count)).collect()
    };
    let told = |text: String| std::io::Error::other(text);
    let ids = namespace(&ranges(&mapped.maps.uids), &ranges(&mapped.maps.gids)).map_err(|error| {
        told(format!("idmap: a user namespace with the mappings cannot be made: {error}"))
    })?;
    map_ids(mount, ids.as_fd(), mapped.recursive).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => told("idmap: a file system there does not support idmapped mounts".into()),
        Some(libc::EPERM) => {
            told("idmap: only root may map owners, and not of a mount that maps them already".into())
        }
        _ => told(format!("idmap: {error}")),
    })
}

/// A detached copy of the mount at the tree's path, or the overlay that the tree is.
fn clone(tree: &HostTree) -> std::io::Result<OwnedFd> {
    if let Some(options) = &tree.overlay {
        return overlay(options);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // Without the mounts below: their places show what is beneath. A mount inherited from the host's namespace can only be copied
    // together with what is mounted on it: that is covered later.
    if !tree.recursive
        && let Ok(alone) = open_tree(CWD, &tree.path, flags)
    {
        return Ok(alone);
    }
    Ok(open_tree(CWD, &tree.path, flags | OpenTreeFlags::AT_RECURSIVE)?)
}

/// Longest value of an option that fsconfig(2) takes.
const MOST: usize = 255;

/// A detached overlay of the host's.
fn overlay(options: &[String]) -> std::io::Result<OwnedFd> {
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let told = |option: &str, error: rustix::io::Errno| {
        std::io::Error::other(format!("overlay: {option}: {}", std::io::Error::from(error)))
    };
    for option in options {
        let set = match option.split_once('=') {
            // One by one, as many together may be too long.
            Some(("lowerdir", layers)) if layers.len() > MOST => lower_layers(layers)
                .iter()
                .try_for_each(|layer| fsconfig_set_string(&fs, "lowerdir+", layer.as_str())),
            Some((name, value)) => fsconfig_set_string(&fs, name, value),
            None => fsconfig_set_flag(&fs, option.as_str()),
        };
        set.map_err(|error| told(option, error))?;
    }
    fsconfig_create(&fs).map_err(|error| told("cannot be made", error))?;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Makes what is missing in a copy, and sets its attributes: they hold before anybody can reach it.
fn prepare_tree(tree: &HostTree, mount: BorrowedFd<'_>) -> std::io::Result<()> {
    make_places(mount, &tree.mount_points);
    let mut attrs = MountAttrs::NOSUID | MountAttrs::NODEV | MountAttrs::NOSYMFOLLOW;
    if tree.readonly {
        attrs |= MountAttrs::RDONLY;
    }
    set_attributes(mount, attrs, true)?;
    if !tree.follows_mounts {
        make_private(mount)?;
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
    if tree.overlay.is_some() {
        return Ok(());
    }
    let mut hidden = hidden_below(mounts, &tree.path, !tree.recursive);
    if !tree.recursive {
        // The copy may be without them.
        hidden.retain(|point| is_mount(stage, &name, &tree.path, point));
    }
    hide(stage, &name, &tree.path, &hidden)
}

/// Whether something is mounted in a copy at a mount point of its original; true where that cannot be told.
fn is_mount(stage: &Stage, name: &str, tree: &Path, point: &Path) -> bool {
    let Ok(below) = point.strip_prefix(tree) else { return true };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let Ok(stat) = statx(stage.dir(), Path::new(name).join(below), flags, StatxFlags::empty()) else {
        return true;
    };
    let told = stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    !told || stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

fn create_file(dir: BorrowedFd<'_>, name: &str) -> std::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::from_raw_mode(0o444))?;
    Ok(())
}
