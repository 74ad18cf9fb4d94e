//! mount(2), umount2(2), pivot_root(2).

use crate::arg::{PathPtr, Ptr, check_flags};
use crate::at::{At, CWD};
use abi::Errno;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::mount::Propagation;
use vfs::{Caller, Cap, Lookup, MountFlags, Path};

const MS_REMOUNT: u64 = 32;
const MS_BIND: u64 = 4096;
const MS_MOVE: u64 = 8192;
const MS_REC: u64 = 16384;
const MS_UNBINDABLE: u64 = 1 << 17;
const MS_PRIVATE: u64 = 1 << 18;
const MS_SLAVE: u64 = 1 << 19;
const MS_SHARED: u64 = 1 << 20;
const MS_STRICTATIME: u64 = 1 << 24;
const MS_MGC_VAL: u64 = 0xc0ed_0000;

fn privileged(c: &Current) -> Result<(), Errno> {
    if c.creds().capable(Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

fn is_root(p: &Path) -> bool {
    Arc::ptr_eq(&p.dentry, &p.mount.root)
}

fn mount_flags(flags: u64) -> MountFlags {
    let mut f = MountFlags::from_bits_truncate(flags as u32);
    f.set(MountFlags::RELATIME, flags & MS_STRICTATIME == 0 && !f.contains(MountFlags::NOATIME));
    f
}

fn read_text(c: &Current, p: Ptr) -> Result<Vec<u8>, Errno> {
    if p.is_null() { Ok(Vec::new()) } else { c.read_cstr(p.0, 4096, Errno::EINVAL) }
}

pub fn mount(c: &mut Current, source: Ptr, target: PathPtr, fstype: Ptr, flags: u64, data: Ptr) -> SysResult {
    let kind = read_text(c, fstype)?;
    let source = read_text(c, source)?;
    let mut flags = flags;
    if flags & 0xffff_0000 == MS_MGC_VAL {
        flags &= !0xffff_0000;
    }
    let at = At::new(c, CWD, target)?;
    let place = at.lookup(c, Lookup::FOLLOW)?;
    privileged(c)?;
    let ns = &at.view.ns;
    if flags & MS_REMOUNT != 0 {
        if !is_root(&place) {
            return Err(Errno::EINVAL.into());
        }
        if flags & MS_BIND == 0 {
            place.mount.fs().remount(&read_text(c, data)?)?;
        }
        ns.remount(&place.mount, mount_flags(flags));
        return Ok(0);
    }
    if flags & MS_BIND != 0 {
        let from = vfs::walk::lookup(c, &at.view, &vfs::Start::Cwd, nonempty(&source)?, Lookup::FOLLOW)?;
        ns.bind(&from, &place, flags & MS_REC != 0)?;
        return Ok(0);
    }
    if flags & (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE) != 0 {
        let kind = match flags & (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE) {
            MS_SHARED => Propagation::Shared(0),
            MS_PRIVATE => Propagation::Private,
            MS_SLAVE => Propagation::Slave(0),
            MS_UNBINDABLE => Propagation::Unbindable,
            _ => return Err(Errno::EINVAL.into()),
        };
        if !is_root(&place) {
            return Err(Errno::EINVAL.into());
        }
        ns.propagate(&place.mount, kind, flags & MS_REC != 0);
        return Ok(0);
    }
    if flags & MS_MOVE != 0 {
        let from = vfs::walk::lookup(c, &at.view, &vfs::Start::Cwd, nonempty(&source)?, Lookup::FOLLOW)?;
        ns.move_mount(&from, &place)?;
        return Ok(0);
    }
    if !place.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let kind = std::str::from_utf8(&kind).map_err(|_| Errno::ENODEV)?;
    if kind.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let sb = vfs::fstypes::create(kind, &read_text(c, data)?)?;
    ns.mount(&place, sb, mount_flags(flags), if source.is_empty() { b"none" } else { &source })?;
    Ok(0)
}

fn nonempty(path: &[u8]) -> Result<&[u8], Errno> {
    if path.is_empty() { Err(Errno::EINVAL) } else { Ok(path) }
}

pub fn umount2(c: &mut Current, target: PathPtr, flags: i32) -> SysResult {
    const UMOUNT_NOFOLLOW: i32 = 8;
    check_flags(flags, libc::MNT_FORCE | libc::MNT_DETACH | libc::MNT_EXPIRE | UMOUNT_NOFOLLOW)?;
    if flags & libc::MNT_EXPIRE != 0 && flags & (libc::MNT_FORCE | libc::MNT_DETACH) != 0 {
        return Err(Errno::EINVAL.into());
    }
    privileged(c)?;
    let at = At::new(c, CWD, target)?;
    let look = if flags & UMOUNT_NOFOLLOW != 0 { Lookup::empty() } else { Lookup::FOLLOW };
    let place = at.lookup(c, look)?;
    if flags & libc::MNT_EXPIRE != 0 {
        // The first call only marks the mount; nothing here remembers a mark.
        return Err(if is_root(&place) { Errno::EAGAIN } else { Errno::EINVAL }.into());
    }
    at.view.ns.umount(place, flags & libc::MNT_DETACH != 0)?;
    Ok(0)
}

pub fn pivot_root(c: &mut Current, new_root: PathPtr, put_old: PathPtr) -> SysResult {
    privileged(c)?;
    let new = At::new(c, CWD, new_root)?.lookup(c, Lookup::FOLLOW | Lookup::DIRECTORY)?;
    let at = At::new(c, CWD, put_old)?;
    let old = at.lookup(c, Lookup::FOLLOW | Lookup::DIRECTORY)?;
    let before = at.view.root.clone();
    at.view.ns.pivot_root(&new, &old, &before)?;
    let fs = c.fs();
    fs.update(|v| {
        if v.root == before {
            v.root = new.clone();
        }
        if v.cwd == before {
            v.cwd = new.clone();
        }
    });
    Ok(0)
}
