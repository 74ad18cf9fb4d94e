//! mount(2), umount2(2), pivot_root(2).

use crate::arg::{PathPtr, Ptr, check_flags};
use crate::at::{self, CWD};
use abi::{Errno, Result};
use std::sync::atomic::Ordering;
use task::{Current, SysResult};
use vfs::mount::Propagation;
use vfs::rename::is_mount_root;
use vfs::walk::lookup;
use vfs::{Caller, Cap, Lookup, MountFlags, Path};

const MS_MAGIC: u64 = 0xc0ed_0000;
const MS_MAGIC_MASK: u64 = 0xffff_0000;
const MNT_FORCE: i32 = 1;
const MNT_DETACH: i32 = 2;
const MNT_EXPIRE: i32 = 4;
const UMOUNT_NOFOLLOW: i32 = 8;

/// Flags that set the propagation type.
const MS_TYPES: u64 = libc::MS_SHARED | libc::MS_PRIVATE | libc::MS_SLAVE | libc::MS_UNBINDABLE;
/// Flags that say how access times are kept.
const MS_ATIME: u64 = libc::MS_NOATIME | libc::MS_NODIRATIME | libc::MS_RELATIME | libc::MS_STRICTATIME;

fn place(c: &Current, path: PathPtr, follow: bool) -> Result<Path> {
    let (start, path) = at::read(c, CWD, path)?;
    let look = if follow { Lookup::FOLLOW } else { Lookup::empty() };
    lookup(c, &c.fs().view(), &start, &path, look)
}

fn may_mount(c: &Current) -> Result<()> {
    if c.creds().ns_capable(c.fs().view().ns.user_ns(), Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Flags of a mount from mount(2)'s. A remount that says nothing about access times keeps `old`'s.
fn mount_flags(flags: u64, old: Option<MountFlags>) -> MountFlags {
    let mut f = MountFlags::from_bits_truncate(flags as u32) - MountFlags::RELATIME;
    let atime = MountFlags::NOATIME | MountFlags::NODIRATIME | MountFlags::RELATIME;
    match old {
        Some(old) if flags & MS_ATIME == 0 => f = (f - atime) | (old & atime),
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
    let at = place(c, target, true);
    // Types with binary options never get here: none is registered.
    let data = options(c, data)?;
    let at = at?;
    let flags = if flags & MS_MAGIC_MASK == MS_MAGIC { flags & !MS_MAGIC_MASK } else { flags };
    may_mount(c)?;
    let view = c.fs().view();
    let recursive = flags & libc::MS_REC != 0;
    if flags & libc::MS_REMOUNT != 0 {
        return remount(c, &at, flags, &data);
    }
    if flags & libc::MS_BIND != 0 {
        let from = source_place(c, source)?;
        view.ns.bind(&from, &at, recursive)?;
        return Ok(0);
    }
    if flags & MS_TYPES != 0 {
        let kind = match flags & !(libc::MS_REC | libc::MS_SILENT) {
            libc::MS_SHARED => Propagation::Shared(0),
            libc::MS_PRIVATE => Propagation::Private,
            libc::MS_SLAVE => Propagation::Slave(0),
            libc::MS_UNBINDABLE => Propagation::Unbindable,
            _ => return Err(Errno::EINVAL.into()),
        };
        if !is_mount_root(&at) {
            return Err(Errno::EINVAL.into());
        }
        view.ns.propagate(&at.mount, kind, recursive);
        return Ok(0);
    }
    if flags & libc::MS_MOVE != 0 {
        let from = source_place(c, source)?;
        view.ns.move_mount(&from, &at)?;
        return Ok(0);
    }
    let kind = kind.ok_or(Errno::EINVAL)?;
    let sb = c.kernel().vfs.types.create(c, std::str::from_utf8(&kind).map_err(|_| Errno::ENODEV)?, &data)?;
    view.ns.mount(&at, sb, mount_flags(flags, None), &source.unwrap_or_else(|| b"none".to_vec()))?;
    Ok(0)
}

fn source_place(c: &Current, source: Option<Vec<u8>>) -> Result<Path> {
    let path = source.filter(|s| !s.is_empty()).ok_or(Errno::EINVAL)?;
    lookup(c, &c.fs().view(), &vfs::Start::Cwd, &path, Lookup::FOLLOW)
}

fn remount(c: &Current, at: &Path, flags: u64, data: &[u8]) -> SysResult {
    if !is_mount_root(at) {
        return Err(Errno::EINVAL.into());
    }
    if flags & libc::MS_BIND == 0 {
        at.mount.fs().remount(data)?;
        at.mount.sb.readonly.store(flags & libc::MS_RDONLY != 0, Ordering::Relaxed);
    }
    let new = mount_flags(flags, Some(at.mount.flags()));
    c.fs().view().ns.remount(&at.mount, new);
    Ok(0)
}

pub fn umount2(c: &mut Current, target: PathPtr, flags: i32) -> SysResult {
    check_flags(flags, MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW)?;
    if flags & MNT_EXPIRE != 0 && flags & (MNT_FORCE | MNT_DETACH) != 0 {
        return Err(Errno::EINVAL.into());
    }
    // What is mounted on the place goes first, also where the path is `.` or a descriptor's.
    let at = place(c, target, flags & UMOUNT_NOFOLLOW == 0)?.cross_mounts();
    may_mount(c)?;
    if flags & MNT_EXPIRE != 0 {
        // The first call only marks the mount; nothing here remembers a mark.
        return Err(if is_mount_root(&at) { Errno::EAGAIN } else { Errno::EINVAL }.into());
    }
    c.fs().view().ns.umount(at, flags & MNT_DETACH != 0)?;
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
    let old = view.root.clone();
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
