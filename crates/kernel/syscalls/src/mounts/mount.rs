//! mount(2), umount2(2), pivot_root(2).

use crate::arg::{PathPtr, Ptr, check_flags};
use crate::at::{self, CWD};
use abi::{Errno, Result};
use caller::HasCredentials;
use mounts::fs_config::FsConfig;
use mounts::fs_parameters::Value;
use mounts::mount_ns::{Placing, Unmount};
use namei::Lookup;
use namei::walk::lookup;
use policy::Kind;
use rights::Cap;
use std::sync::Arc;
use task::{Asked, Current, NamespaceCaller, SysResult};
use vfs::mount::Propagation;
use vfs::policing::{self, Place};
use vfs::{MountFlags, Path, SbFlags};

const MS_MAGIC: u64 = 0xc0ed_0000;
const MS_MAGIC_MASK: u64 = 0xffff_0000;
const MS_NOUSER: u64 = 1 << 31;
const MNT_FORCE: i32 = 1;
const MNT_DETACH: i32 = 2;
const MNT_EXPIRE: i32 = 4;
const UMOUNT_NOFOLLOW: i32 = 8;

/// Flags that set the propagation type.
const MS_TYPES: u64 = libc::MS_SHARED | libc::MS_PRIVATE | libc::MS_SLAVE | libc::MS_UNBINDABLE;
/// Flags that say how access times are kept.
const MS_ATIME: u64 = libc::MS_NOATIME | libc::MS_NODIRATIME | libc::MS_RELATIME | libc::MS_STRICTATIME;

fn place(c: &Current, path: PathPtr) -> Result<Path> {
    let (start, path) = at::read(c, CWD, path)?;
    lookup(c, &c.fs().view(), &start, &path, Lookup::FOLLOW)
}

pub(crate) fn may_mount(c: &Current) -> Result<()> {
    if c.creds().ns_capable(c.fs().view().ns.user_ns(), Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

/// The error of a policy that refuses to show what is at `place` elsewhere, to hide it or to take it away.
pub(crate) fn decide(c: &Current, place: &Path, elsewhere: Option<&Path>) -> Result<()> {
    match elsewhere {
        Some(to) => {
            let to = Place::Object(to);
            policing::decide_move(c, Kind::FileMount, Place::Object(place), to, place.is_dir())
        }
        None => policing::decide(c, Kind::FileMount, Place::Object(place)),
    }
}

/// Flags of a mount from mount(2)'s. A remount that says nothing about access times keeps `old`'s.
fn mount_flags(flags: u64, old: Option<MountFlags>) -> MountFlags {
    let known = MountFlags::all() - MountFlags::SYNCHRONOUS;
    let mut f = (MountFlags::from_bits_truncate(flags as u32) & known) - MountFlags::RELATIME;
    match old {
        Some(old) if flags & MS_ATIME == 0 => f = (f - MountFlags::ATIME) | (old & MountFlags::ATIME),
        _ if flags & libc::MS_STRICTATIME != 0 => f -= MountFlags::NOATIME,
        _ if flags & libc::MS_NOATIME == 0 => f |= MountFlags::RELATIME,
        _ => {}
    }
    f
}

/// An optional string argument.
fn text(c: &Current, at: Ptr) -> Result<Option<Vec<u8>>> {
    if at.is_null() { Ok(None) } else { c.read_cstr(at.0, 4096, Errno::EINVAL).map(Some) }
}

/// The options: at most a page, which need not end with NUL.
fn options(c: &Current, at: Ptr) -> Result<Vec<u8>> {
    if at.is_null() {
        return Ok(Vec::new());
    }
    let mut page = vec![0; 4096];
    let n = c.read_some(at.0, &mut page)?;
    page.truncate(page[..n].iter().position(|&b| b == 0).unwrap_or(n));
    Ok(page)
}

pub fn mount(c: &mut Current, source: Ptr, target: PathPtr, kind: Ptr, flags: u64, data: Ptr) -> SysResult {
    let kind = text(c, kind)?;
    let source = text(c, source)?;
    // Types with binary options never get here: none is registered.
    let data = options(c, data)?;
    let at = place(c, target)?;
    let flags = if flags & MS_MAGIC_MASK == MS_MAGIC { flags & !MS_MAGIC_MASK } else { flags };
    if flags & MS_NOUSER != 0 {
        return Err(Errno::EINVAL.into());
    }
    c.creds().may_change_mounts()?;
    may_mount(c)?;
    let view = c.fs().view();
    let recursive = flags & libc::MS_REC != 0;
    match flags {
        _ if flags & libc::MS_REMOUNT != 0 => remount(c, &at, flags, &data)?,
        _ if flags & libc::MS_BIND != 0 => {
            let from = source_place(c, source)?;
            decide(c, &from, Some(&at))?;
            view.ns.bind(&from, &at, recursive)?;
        }
        _ if flags & MS_TYPES != 0 => change_type(c, &at, flags)?,
        _ if flags & libc::MS_MOVE != 0 => {
            let from = source_place(c, source)?;
            decide(c, &from, Some(&at))?;
            view.ns.move_mount(&from, &at, Placing::Above)?;
        }
        _ => {
            decide(c, &at, None)?;
            new_mount(c, &at, kind, source, flags, &data)?;
        }
    }
    Ok(0)
}

/// Makes an instance of a file system and mounts it.
fn new_mount(
    c: &Current,
    at: &Path,
    kind: Option<Vec<u8>>,
    source: Option<Vec<u8>>,
    flags: u64,
    data: &[u8],
) -> Result<()> {
    let kind = kind.ok_or(Errno::EINVAL)?;
    let found = c.kernel().fs_types.find_with_subtype(&kind);
    let (kind, subtype) = found.inspect_err(|_| c.kernel().coverage.note_bytes(Asked::FileSystem, &kind))?;
    let config = FsConfig::<dyn NamespaceCaller>::new(c, kind);
    config.set_flags(SbFlags::from_bits_truncate(flags as u32), SbFlags::CHANGING);
    if let Some(subtype) = subtype {
        // A dot with nothing behind it.
        if subtype.is_empty() {
            return Err(Errno::EINVAL);
        }
        config.set(b"subtype", Value::String(subtype.to_vec()))?;
    }
    if let Some(source) = source {
        config.set(b"source", Value::String(source))?;
    }
    config.set_all(data)?;
    config.create(c)?;
    let ns = c.fs().view().ns.clone();
    let m = config.mount(&ns, mount_flags(flags, None))?;
    ns.add_new(at, &m)
}

/// Sets the propagation type.
fn change_type(c: &Current, at: &Path, flags: u64) -> Result<()> {
    if !at.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let kind = match flags & !(libc::MS_REC | libc::MS_SILENT) {
        libc::MS_SHARED => Propagation::Shared,
        libc::MS_PRIVATE => Propagation::Private,
        libc::MS_SLAVE => Propagation::Slave,
        libc::MS_UNBINDABLE => Propagation::Unbindable,
        _ => return Err(Errno::EINVAL),
    };
    c.fs().view().ns.propagate(&c.creds(), &at.mount, kind, flags & libc::MS_REC != 0)
}

fn source_place(c: &Current, source: Option<Vec<u8>>) -> Result<Path> {
    let path = source.filter(|s| !s.is_empty()).ok_or(Errno::EINVAL)?;
    lookup(c, &c.fs().view(), &namei::Start::Cwd, &path, Lookup::FOLLOW)
}

/// Changes flags of a mount (MS_BIND), or of the instance that it shows as well.
fn remount(c: &Current, at: &Path, flags: u64, data: &[u8]) -> Result<()> {
    let view = c.fs().view();
    if !view.ns.contains(&at.mount) || !at.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let new = mount_flags(flags, Some(at.mount.own_flags()));
    if flags & libc::MS_BIND != 0 {
        return view.ns.remount(&at.mount, new);
    }
    let instance = SbFlags::from_bits_truncate(flags as u32);
    view.ns.reconfigure(&c.creds(), &at.mount, (instance, new), data)
}

pub fn umount2(c: &mut Current, target: PathPtr, flags: i32) -> SysResult {
    check_flags(flags, MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW)?;
    // What is mounted on the place goes first, also where the path is `.` or a descriptor's.
    let follow = if flags & UMOUNT_NOFOLLOW == 0 { Lookup::FOLLOW } else { Lookup::empty() };
    let (start, path) = at::read(c, CWD, target)?;
    let at = lookup(c, &c.fs().view(), &start, &path, follow | Lookup::MOUNTPOINT)?.cross_mounts();
    may_mount(c)?;
    let view = c.fs().view();
    if !at.is_mount_root() || !view.ns.contains(&at.mount) || at.mount.is_locked() {
        return Err(Errno::EINVAL.into());
    }
    if flags & MNT_FORCE != 0 {
        at.mount.sb.may_reconfigure(&c.creds())?;
        c.creds().may_change_mounts()?;
        at.mount.sb.fs.give_up_requests();
    }
    c.creds().may_change_mounts()?;
    let own_root = Arc::ptr_eq(&at.mount, &view.root.mount);
    let how = match flags & (MNT_EXPIRE | MNT_DETACH) {
        MNT_EXPIRE if own_root || flags & MNT_FORCE != 0 => return Err(Errno::EINVAL.into()),
        MNT_EXPIRE => Unmount::Expire,
        MNT_DETACH => Unmount::Detach,
        0 => Unmount::Idle,
        _ => return Err(Errno::EINVAL.into()),
    };
    if own_root && how == Unmount::Idle {
        // As Linux: the root of the caller becomes read-only instead.
        view.ns.make_readonly(&c.creds(), &at.mount)?;
        return Ok(0);
    }
    decide(c, &at, None)?;
    view.ns.umount(&at, how)?;
    Ok(0)
}

pub fn pivot_root(c: &mut Current, new_root: PathPtr, put_old: PathPtr) -> SysResult {
    may_mount(c)?;
    let view = c.fs().view();
    let dir = Lookup::FOLLOW | Lookup::DIRECTORY;
    let (start, path) = at::read(c, CWD, new_root)?;
    let new = lookup(c, &view, &start, &path, dir)?;
    let (start, path) = at::read(c, CWD, put_old)?;
    let put = lookup(c, &view, &start, &path, dir)?;
    c.creds().may_change_mounts()?;
    let old = view.root.clone();
    policing::decide(c, Kind::FileChroot, Place::Object(&new))?;
    decide(c, &old, Some(&put))?;
    view.ns.pivot_root(&new, &put, &old)?;
    // Every task that had the old root as its root or working directory moves along.
    let tasks: Vec<_> = c.kernel().tasks();
    for fs in tasks.iter().filter_map(|t| t.fs()) {
        let v = fs.view();
        if v.root == old || v.cwd == old {
            fs.update(|v| {
                for p in [&mut v.root, &mut v.cwd] {
                    if *p == old {
                        *p = new.clone();
                    }
                }
            });
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_time_flags() {
        use MountFlags as F;
        assert_eq!(mount_flags(0, None), F::RELATIME);
        assert_eq!(mount_flags(libc::MS_NOATIME | libc::MS_NOSUID, None), F::NOATIME | F::NOSUID);
        assert_eq!(mount_flags(libc::MS_STRICTATIME, None), F::empty());
        assert_eq!(mount_flags(libc::MS_NODIRATIME, None), F::NODIRATIME | F::RELATIME);
        let remount = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
        assert_eq!(mount_flags(remount, Some(F::NOATIME)), F::RDONLY | F::NOATIME);
        assert_eq!(mount_flags(remount | libc::MS_RELATIME, Some(F::NOATIME)), F::RDONLY | F::RELATIME);
    }
}
