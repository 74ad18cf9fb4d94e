//! File systems in use as plain data, and back.
//!
//! Those of a container's specification are given. The others are made again: those in memory from their options, with their
//! files, and those that show a namespace or directories of others, when these are there.

use overlayfs::OverlayState;
use rights::Credentials;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use user_ns::UserNamespace;
use vfs::{Caller, Mount, MountFlags, SbFlags, SuperBlock};

/// Gives the file system with this number its files.
pub type Fill<'a> = dyn FnMut(usize, &Arc<SuperBlock>) -> Result<(), String> + 'a;

/// What a file system is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SuperKind {
    /// That of a mount, by its number, with which a container began.
    Given(u64),
    /// That of namespaces.
    Namespaces,
    /// Made of nothing but its options: tmpfs, ramfs, devtmpfs, devpts, sysfs.
    Plain,
    /// The processes of a PID namespace, by its number.
    Processes(u64),
    /// The message queues of an IPC namespace.
    Queues(u64),
    /// The control groups of a cgroup namespace.
    Groups(u64),
    /// Directories of other file systems, which come before it.
    Overlay(Box<OverlayState>),
}

/// A file system as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuperState {
    /// What it is.
    pub kind: SuperKind,
    /// Its type.
    pub fstype: String,
    /// Its flags.
    pub flags: u32,
    /// Its options, in the numbers of the user namespace that owns it.
    pub options: String,
    /// The number of that; 0 for the initial one.
    pub owner: u64,
}

/// Makes a file system again. The error is a sentence for the user.
pub type MakeSuper<'a> = &'a dyn Fn(&SuperState) -> Result<Arc<SuperBlock>, String>;

/// What file systems are made again with.
pub(super) struct Making<'a> {
    pub cx: &'a dyn Caller,
    /// Finds a mount that a container begins with.
    pub mount: &'a dyn Fn(u64) -> Option<Arc<Mount>>,
    /// The mount of nsfs.
    pub nsfs: &'a Arc<Mount>,
    /// A user namespace by its number.
    pub user: &'a dyn Fn(u64) -> Option<Arc<UserNamespace>>,
    /// Makes those that show a namespace, and plain ones.
    pub make: MakeSuper<'a>,
    /// Programs of the containers may change those of the specification.
    pub may_mount: bool,
    /// The capabilities that programs of the containers may have.
    pub capabilities: u64,
}

/// File systems by their places in the plain data.
#[derive(Default)]
pub(super) struct Supers {
    all: HashMap<usize, (Arc<SuperBlock>, bool)>,
    bundle: Vec<(Arc<Mount>, MountFlags)>,
}

impl Supers {
    /// The one at this place.
    pub fn get(&self, at: usize) -> Option<&Arc<SuperBlock>> {
        self.all.get(&at).map(|(sb, _)| sb)
    }

    /// Whether it is one of a container's specification.
    pub fn is_given(&self, at: usize) -> bool {
        self.all.get(&at).is_some_and(|(_, given)| *given)
    }

    /// The mounts that containers begin with, with the flags that they begin with.
    pub fn bundle_mounts(&self) -> impl Iterator<Item = &(Arc<Mount>, MountFlags)> {
        self.bundle.iter()
    }

    /// Says what containers begin with.
    pub fn add_bundle(&mut self, mount: &Arc<Mount>) {
        self.bundle.push((mount.clone(), mount.own_flags()));
    }

    /// Makes all, each after those that it stands upon. `fill` gives each its files.
    pub fn make(
        &mut self,
        all: &[SuperState],
        making: &Making<'_>,
        fill: &mut Fill<'_>,
    ) -> Result<(), String> {
        loop {
            let before = self.all.len();
            for (at, one) in all.iter().enumerate() {
                if self.all.contains_key(&at) || !self.has_below(one) {
                    continue;
                }
                let sb = self.one(one, making)?;
                fill(at, &sb)?;
                self.all.insert(at, (sb, matches!(one.kind, SuperKind::Given(_))));
            }
            if self.all.len() == all.len() {
                return Ok(());
            }
            if self.all.len() == before {
                return Err("an overlay stands upon nothing".into());
            }
        }
    }

    /// Whether what a file system stands upon is there.
    fn has_below(&self, one: &SuperState) -> bool {
        let SuperKind::Overlay(overlay) = &one.kind else { return true };
        overlay.lower.iter().chain(&overlay.upper).all(|layer| self.all.contains_key(&layer.fs))
    }

    fn one(&self, saved: &SuperState, making: &Making<'_>) -> Result<Arc<SuperBlock>, String> {
        let failed = |error: abi::Errno| format!("a file system of the type {}: {error:?}", saved.fstype);
        let owner = (making.user)(saved.owner).ok_or_else(|| failed(abi::Errno::ENOENT))?;
        let given = matches!(saved.kind, SuperKind::Given(_));
        let sb = match &saved.kind {
            SuperKind::Given(id) => {
                (making.mount)(*id).ok_or("a file system of the container is not there")?.sb.clone()
            }
            SuperKind::Namespaces => making.nsfs.sb.clone(),
            SuperKind::Overlay(overlay) => {
                let rights = (making.user)(overlay.creds.user_ns)
                    .and_then(|user_ns| Credentials::restore(&overlay.creds, user_ns, None));
                let rights = Arc::new(rights.ok_or_else(|| failed(abi::Errno::EPERM))?);
                if !self.may_overlay(overlay, &rights, making).map_err(failed)? {
                    return Err(failed(abi::Errno::EPERM));
                }
                let find = |at: usize, path: &[u8]| {
                    let sb = self.get(at).ok_or(abi::Errno::ENODEV)?.clone();
                    let found = super::find_below(making.cx, &sb.root, path)?;
                    Ok((sb, found))
                };
                overlayfs::restore(making.cx, overlay, rights, &find).map_err(failed)?
            }
            SuperKind::Plain if !is_plain(&saved.fstype) => return Err(failed(abi::Errno::ENODEV)),
            _ => (making.make)(saved)?,
        };
        let fixed = sb.fs.is_fixed() || sb.fs.stays_read_only();
        let own = sb.fs.kind() != "nsfs" && (!given || making.may_mount);
        if own && !fixed {
            sb.set_flags(SbFlags::from_bits_truncate(saved.flags), SbFlags::CHANGING);
        }
        if own && given && saved.fstype == "tmpfs" && sb.fs.options() != saved.options {
            sb.fs.remount(saved.options.as_bytes()).map_err(failed)?;
        }
        // That of namespaces is the kernel's own.
        if !given && saved.kind != SuperKind::Namespaces {
            sb.set_user_ns(&owner);
        }
        Ok(sb)
    }
}

impl Supers {
    /// Whether programs of the containers can have mounted an overlay. It does with its mounter's rights what any program that sees
    /// it asks for, and changes the upper layer's file system whatever the bundle's mounts of that say.
    fn may_overlay(
        &self,
        overlay: &OverlayState,
        rights: &Credentials,
        making: &Making<'_>,
    ) -> abi::Result<bool> {
        let more = overlay.creds.capabilities() & !making.capabilities != 0;
        if rights.user_ns.is_initial() && (more || !making.may_mount) {
            return Ok(false);
        }
        let Some(upper) = overlay.upper.as_ref().filter(|one| !making.may_mount && self.is_given(one.fs))
        else {
            return Ok(true);
        };
        let sb = self.get(upper.fs).ok_or(abi::Errno::ENODEV)?;
        for path in [&upper.top].into_iter().chain(&overlay.work) {
            let found = super::find_below(making.cx, &sb.root, path)?;
            let writable = |(own, flags): &(Arc<Mount>, MountFlags)| {
                let shows = Arc::ptr_eq(&own.sb, sb) && found.is_below(&own.root);
                shows && !flags.contains(MountFlags::RDONLY)
            };
            if !self.bundle.iter().any(writable) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Paths in procfs that lead to a process or to what is open of it, which come late.
pub(super) fn of_process(fstype: &str, path: &[u8]) -> bool {
    let first = path.split(|byte| *byte == b'/').find(|name| !name.is_empty());
    fstype == "proc" && first.is_some_and(|name| name.iter().all(u8::is_ascii_digit))
}

/// The types that are made of nothing but their options.
pub(super) fn is_plain(fstype: &str) -> bool {
    ["tmpfs", "ramfs", "devtmpfs", "devpts", "sysfs"].contains(&fstype)
}
