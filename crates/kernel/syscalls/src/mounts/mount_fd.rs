//! open_tree(2), open_tree_attr(2), move_mount(2), mount_setattr(2): mounts by descriptors.

use crate::arg::{DirFd, PathPtr, Ptr, check_flags};
use crate::at;
use crate::install::install;
use crate::mounts::mount::may_mount;
use abi::mount::{
    FSMOUNT_ATTRIBUTES, MOUNT_ATTR_ATIME, MOUNT_ATTR_IDMAP, MOUNT_ATTR_NOATIME, MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NODIRATIME, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NOSYMFOLLOW, MOUNT_ATTR_RDONLY,
    MOUNT_ATTR_RELATIME, MOUNT_ATTR_STRICTATIME,
};
use abi::{Errno, Result};
use caller::HasCredentials;
use mounts::mount_ns::Placing;
use namei::Start;
use nsproxy::{Namespace, NsOps};
use rights::Cap;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::mount::Propagation;
use vfs::{MountFlags, OpenFile, Path};
use zerocopy::{FromBytes, IntoBytes};

const OPEN_TREE_CLONE: u32 = 1;
const OPEN_TREE_CLOEXEC: u32 = libc::O_CLOEXEC as u32;
const AT_RECURSIVE: i32 = 0x8000;
const AT_NO_AUTOMOUNT: i32 = 0x800;

const MOVE_MOUNT_F_SYMLINKS: u32 = 1;
const MOVE_MOUNT_F_AUTOMOUNTS: u32 = 2;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const MOVE_MOUNT_T_SYMLINKS: u32 = 0x10;
const MOVE_MOUNT_T_AUTOMOUNTS: u32 = 0x20;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
const MOVE_MOUNT_SET_GROUP: u32 = 0x100;
const MOVE_MOUNT_BENEATH: u32 = 0x200;
const MOVE_MOUNT_MASK: u32 = MOVE_MOUNT_F_SYMLINKS
    | MOVE_MOUNT_F_AUTOMOUNTS
    | MOVE_MOUNT_F_EMPTY_PATH
    | MOVE_MOUNT_T_SYMLINKS
    | MOVE_MOUNT_T_AUTOMOUNTS
    | MOVE_MOUNT_T_EMPTY_PATH
    | MOVE_MOUNT_SET_GROUP
    | MOVE_MOUNT_BENEATH;

/// MOUNT_ATTR_* that say one thing each, and the mount's flag.
pub(crate) const ATTRIBUTES: &[(u64, MountFlags)] = &[
    (MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
    (MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
    (MOUNT_ATTR_NODEV, MountFlags::NODEV),
    (MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
    (MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
    (MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
];

/// The flags of single attributes.
fn single(attributes: u64) -> MountFlags {
    let set = ATTRIBUTES.iter().filter(|(bit, _)| attributes & bit != 0);
    set.fold(MountFlags::empty(), |flags, (_, f)| flags | *f)
}

/// The flags for the way to keep times of access; EINVAL.
fn atime(attributes: u64) -> Result<MountFlags> {
    match attributes & MOUNT_ATTR_ATIME {
        MOUNT_ATTR_RELATIME => Ok(MountFlags::RELATIME),
        MOUNT_ATTR_NOATIME => Ok(MountFlags::NOATIME),
        MOUNT_ATTR_STRICTATIME => Ok(MountFlags::empty()),
        _ => Err(Errno::EINVAL),
    }
}

/// Flags of a new mount from fsmount(2)'s attributes; EINVAL.
pub(crate) fn new_flags(attributes: u64) -> Result<MountFlags> {
    if attributes & !FSMOUNT_ATTRIBUTES != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(single(attributes) | atime(attributes)?)
}

/// The descriptor of open_tree(2), which owns a copy or is a mere place.
fn tree_file(c: &Current, dir: DirFd, path: PathPtr, flags: u32) -> Result<Arc<OpenFile>> {
    let at_flags = (flags & !(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)) as i32;
    check_flags(at_flags, libc::AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW)?;
    let clone = flags & OPEN_TREE_CLONE != 0;
    if at_flags & AT_RECURSIVE != 0 && !clone {
        return Err(Errno::EINVAL);
    }
    if clone {
        may_mount(c)?;
    }
    let at = at::At::with_flags(c, dir, path, at_flags)?;
    let place = at.lookup(c, at::follow(at_flags))?;
    if clone {
        super::mount::decide(c, &place, None)?;
        return mounts::detached::open_copy(c, &at.view.ns, &place, at_flags & AT_RECURSIVE != 0);
    }
    let inode = place.inode().clone();
    let ops = Arc::new(vfs::file::PathOnly::of(&inode)?);
    Ok(OpenFile::new(Some(place), Some(inode), ops, libc::O_PATH))
}

pub fn open_tree(c: &mut Current, dir: DirFd, path: PathPtr, flags: u32) -> SysResult {
    let file = tree_file(c, dir, path, flags)?;
    install(c, file, flags & OPEN_TREE_CLOEXEC != 0)
}

pub fn open_tree_attr(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    flags: u32,
    attributes: Ptr,
    size: u64,
) -> SysResult {
    if attributes.is_null() && size != 0 {
        return Err(Errno::EINVAL.into());
    }
    let file = tree_file(c, dir, path, flags)?;
    if !attributes.is_null()
        && let Some(change) = AttributeChange::read(c, attributes, size, flags & OPEN_TREE_CLONE != 0)?
        && let Some(place) = &file.path
    {
        change.apply(c, place, flags as i32 & AT_RECURSIVE != 0)?;
    }
    install(c, file, flags & OPEN_TREE_CLOEXEC != 0)
}

/// One of the two places of move_mount(2).
fn end(c: &Current, dir: DirFd, path: PathPtr, follow: bool, empty: bool) -> Result<Path> {
    let mut flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    flags |= if empty { libc::AT_EMPTY_PATH } else { 0 };
    let at = at::At::or_null(c, dir, path, flags)?;
    if let (Start::File(f), true) = (&at.start, at.path.is_empty())
        && let Some(place) = &f.path
    {
        return Ok(place.clone());
    }
    at.lookup(c, at::follow(flags))
}

pub fn move_mount(
    c: &mut Current,
    from_dir: DirFd,
    from: PathPtr,
    to_dir: DirFd,
    to: PathPtr,
    flags: u32,
) -> SysResult {
    may_mount(c)?;
    let has = |bit: u32| flags & bit != 0;
    if flags & !MOVE_MOUNT_MASK != 0 || has(MOVE_MOUNT_BENEATH) && has(MOVE_MOUNT_SET_GROUP) {
        return Err(Errno::EINVAL.into());
    }
    let to = end(c, to_dir, to, has(MOVE_MOUNT_T_SYMLINKS), has(MOVE_MOUNT_T_EMPTY_PATH))?;
    let from = end(c, from_dir, from, has(MOVE_MOUNT_F_SYMLINKS), has(MOVE_MOUNT_F_EMPTY_PATH))?;
    c.creds().may_change_mounts()?;
    let view = c.fs().view();
    let ns = view.ns.clone();
    if has(MOVE_MOUNT_BENEATH) && Arc::ptr_eq(&to.clone().cross_mounts().mount, &view.root.mount) {
        return Err(Errno::EINVAL.into());
    }
    if has(MOVE_MOUNT_SET_GROUP) {
        ns.set_group(&c.creds(), &from, &to)?;
    } else {
        let placing = if has(MOVE_MOUNT_BENEATH) { Placing::Beneath } else { Placing::Above };
        super::mount::decide(c, &from, Some(&to))?;
        ns.move_mount(&from, &to, placing)?;
    }
    Ok(0)
}

/// `struct mount_attr` of mount_setattr(2).
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// A change that mount_setattr(2) asks for.
struct AttributeChange {
    set: MountFlags,
    clear: MountFlags,
    propagation: Option<Propagation>,
    /// IDs of files are to be mapped, which no file system here does.
    mapped: bool,
}

impl AttributeChange {
    /// Reads and checks it, for a new mount where `fresh`; `None` when nothing is to change.
    fn read(c: &Current, from: Ptr, size: u64, fresh: bool) -> Result<Option<AttributeChange>> {
        const SIZE: usize = size_of::<MountAttr>();
        if size > 4096 {
            return Err(Errno::E2BIG);
        }
        let size = size as usize;
        if size < SIZE {
            return Err(Errno::EINVAL);
        }
        may_mount(c)?;
        let mut bytes = vec![0; size];
        c.read_bytes(from.0, &mut bytes)?;
        if bytes[SIZE..].iter().any(|&b| b != 0) {
            return Err(Errno::E2BIG);
        }
        let a = MountAttr::read_from_bytes(&bytes[..SIZE]).map_err(|_| Errno::EINVAL)?;
        if a.set == 0 && a.clear == 0 && a.propagation == 0 {
            return Ok(None);
        }
        AttributeChange::judge(c, &a, fresh).map(Some)
    }

    fn judge(c: &Current, a: &MountAttr, fresh: bool) -> Result<AttributeChange> {
        let propagation = match a.propagation {
            0 => None,
            libc::MS_SHARED => Some(Propagation::Shared),
            libc::MS_PRIVATE => Some(Propagation::Private),
            libc::MS_SLAVE => Some(Propagation::Slave),
            libc::MS_UNBINDABLE => Some(Propagation::Unbindable),
            _ => return Err(Errno::EINVAL),
        };
        if (a.set | a.clear) & !(FSMOUNT_ATTRIBUTES | MOUNT_ATTR_IDMAP) != 0 {
            return Err(Errno::EINVAL);
        }
        let (mut set, mut clear) = (single(a.set), single(a.clear));
        if a.clear & MOUNT_ATTR_ATIME != 0 {
            if a.clear & MOUNT_ATTR_ATIME != MOUNT_ATTR_ATIME {
                return Err(Errno::EINVAL);
            }
            clear |= MountFlags::RELATIME | MountFlags::NOATIME;
            set |= atime(a.set)?;
        } else if a.set & MOUNT_ATTR_ATIME != 0 {
            return Err(Errno::EINVAL);
        }
        if a.clear & MOUNT_ATTR_IDMAP != 0 && !fresh {
            return Err(Errno::EINVAL);
        }
        let mapped = a.set & MOUNT_ATTR_IDMAP != 0;
        if mapped {
            may_map(c, a.userns_fd)?;
        }
        Ok(AttributeChange { set, clear, propagation, mapped })
    }

    fn apply(&self, c: &Current, place: &Path, recursive: bool) -> Result<()> {
        if !place.is_mount_root() || self.mapped {
            return Err(Errno::EINVAL);
        }
        let new = |old: MountFlags| (old - self.clear) | self.set;
        c.fs().view().ns.set_attributes(&place.mount, recursive, new, self.propagation)
    }
}

/// Whether the caller may map IDs by the user namespace of a descriptor: EPERM for the initial one and those that it has no
/// right over, EINVAL for what is none.
fn may_map(c: &Current, fd: u64) -> Result<()> {
    let fd = i32::try_from(fd).map_err(|_| Errno::EINVAL)?;
    let file = at::real_file(c, crate::arg::Fd(fd))?;
    let Some(NsOps(Namespace::User(ns))) = file.ops.as_any().downcast_ref() else {
        return Err(Errno::EINVAL);
    };
    let may = !ns.is_initial() && c.creds().ns_capable(ns, Cap::SYS_ADMIN);
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

pub fn mount_setattr(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    flags: u32,
    attributes: Ptr,
    size: u64,
) -> SysResult {
    let flags = flags as i32;
    check_flags(flags, libc::AT_EMPTY_PATH | AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)?;
    let Some(change) = AttributeChange::read(c, attributes, size, false)? else { return Ok(0) };
    let at = at::At::with_flags(c, dir, path, flags)?;
    let place = at.lookup(c, at::follow(flags))?;
    change.apply(c, &place, flags & AT_RECURSIVE != 0)?;
    Ok(0)
}
