//! Init's mount namespace, which shows the container's root file system and mounts to the host.
//!
//! Podman enters the mount namespace of a container's process to copy files and to list processes. No process of the
//! sandbox lives there but init, and init's filter lets it open nothing. The sentry and the guest's processes are in a
//! mount namespace of their own with an empty root.
//!
//! Directories of the host are shown as they are, without device nodes and
//! set-user-id. File systems that live in the sentry are shown as empty places
//! that cannot be written; /proc is the sandbox's.

use crate::messages::LifeMessage;
use bundle::{HostTree, Prepared};
use channel::Channel;
use confine::root::Stage;
use hostsys::mounts::{MountAttrs, set_attributes};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, statat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    fsconfig_create, fsmount, fsopen, mount_change, move_mount, open_tree,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Places in the stage.
const ROOT: &str = "root";
const EMPTY_DIR: &str = "empty";
const EMPTY_FILE: &str = "empty-file";

/// What is to be shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct View {
    root: ViewMount,
    mounts: Vec<(String, ViewMount)>,
}

/// One mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum ViewMount {
    /// A directory or file of the host.
    Host { path: PathBuf, readonly: bool },
    /// The sandbox's processes.
    Proc,
    /// Something that only the sentry has.
    Empty,
}

impl View {
    /// What a container looks like from outside.
    pub(crate) fn of(prepared: &Prepared) -> Option<Self> {
        let host = |tree: &HostTree, readonly: bool| ViewMount::Host {
            path: tree.path.clone(),
            // A file made here would have an owner that is not mapped.
            readonly: tree.readonly || readonly || tree.id_map.is_some(),
        };
        let root = &prepared.spec.root;
        if prepared.spec.images.contains(&root.fd) {
            return None;
        }
        let mounts = prepared.spec.mounts.iter().map(|mount| {
            // An image is a file there.
            let tree = mount
                .source_fd
                .filter(|_| mount.fstype == "bind")
                .and_then(|index| prepared.trees.get(index));
            let shown = match tree {
                Some(tree) => host(tree, mount.readonly),
                None if mount.fstype == "proc" => ViewMount::Proc,
                None => ViewMount::Empty,
            };
            (mount.destination.clone(), shown)
        });
        Some(Self { root: host(prepared.trees.get(root.fd)?, root.readonly), mounts: mounts.collect() })
    }

    /// Makes it this process's root and lets go of the host's. The process is in a mount namespace of its own,
    /// a copy of the host's, and may mount there.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // Taken before anything is mounted here: a tree that contains the stage must not contain itself.
        let root = self.root.mount()?;
        let mounts: Vec<_> = self.mounts.iter().map(|(at, shown)| (at, shown, shown.mount())).collect();
        let stage = Stage::new()?;
        for dir in [ROOT, EMPTY_DIR] {
            mkdirat(stage.dir(), dir, Mode::from_raw_mode(0o555))?;
        }
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(openat(stage.dir(), EMPTY_FILE, new, Mode::from_raw_mode(0o444))?);
        let root = root.ok_or(io::ErrorKind::NotFound)?;
        move_mount(&root, "", stage.dir(), ROOT, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        for (at, shown, mount) in mounts {
            let placed = mount.and_then(|mount| place(&stage, root.as_fd(), at, mount));
            if let Err(error) = placed {
                log::debug!("the host is not shown {at} ({shown:?}): {error}");
            }
        }
        // What the host mounts or unmounts later does not concern it.
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        confine::root::enter(root.as_fd())
    }
}

/// Waits for the command line to say what to show, and shows it, or an empty root. False when the command line is gone.
pub(crate) fn enter_as_told(life: &Channel) -> io::Result<bool> {
    let Some((LifeMessage::Show(view), _)) = life.recv()? else { return Ok(false) };
    if let Err(error) = view.map_or_else(confine::root::enter_empty, |view| view.enter()) {
        log::warn!("the host is not shown the container's files: {error}");
        confine::root::enter_empty()?;
    }
    Ok(true)
}

impl ViewMount {
    /// A detached mount; `None` where one of the stage's is to be used.
    fn mount(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Host { path, readonly } => {
                // A mount inherited from the host's namespace can only be copied together with what is mounted on it.
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE;
                let mount = open_tree(CWD, path, flags)?;
                let mut attrs = MountAttrs::NOSUID | MountAttrs::NODEV;
                attrs.set(MountAttrs::RDONLY, *readonly);
                set_attributes(mount.as_fd(), attrs, true)?;
                Ok(Some(mount))
            }
            Self::Proc => {
                let fs = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
                fsconfig_create(fs.as_fd())?;
                let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID
                    | MountAttrFlags::MOUNT_ATTR_NODEV
                    | MountAttrFlags::MOUNT_ATTR_NOEXEC;
                Ok(Some(fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attrs)?))
            }
            Self::Empty => Ok(None),
        }
    }
}

/// Puts a mount where the container has it; links are followed as inside the container.
fn place(stage: &Stage, root: BorrowedFd<'_>, at: &str, mount: Option<OwnedFd>) -> io::Result<()> {
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let target = openat2(root, at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)?;
    let mount = match mount {
        Some(mount) => mount,
        None => {
            let stat = statat(&target, "", AtFlags::EMPTY_PATH)?;
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let mount = open_tree(stage.dir(), if is_dir { EMPTY_DIR } else { EMPTY_FILE }, flags)?;
            set_attributes(mount.as_fd(), MountAttrs::RDONLY, false)?;
            mount
        }
    };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(&mount, "", &target, "", flags)?)
}
