//! Reading and changing attributes. See stat(2), access(2), chmod(2), chown(2), utimensat(2), truncate(2).

use crate::lookup::{Lookup, Start};
use crate::walk;
use abi::stat::{Attr, S_IFDIR, S_IFLNK, S_IFREG, StatFs};
use abi::{Errno, Result, Signal};
use mounts::fs_context::FsView;
use policy::Kind;
use rights::cred::Cap;
use rights::mode;
use rights::mode::{MAY_EXEC, MAY_WRITE};
use vfs::file::OpenFile;
use vfs::inode::{InodeRef, SetAttr, TimeSet};
use vfs::mount::{MountFlags, Path};
use vfs::notify::{self, event};
use vfs::policing::{self, Place};
use vfs::{Caller, access};

/// Leaves an id as it is in chown(2).
pub const KEEP: u32 = u32::MAX;

/// newfstatat(2), statx(2).
pub fn stat(cx: &dyn Caller, view: &FsView, start: &Start, path: &[u8], look: Lookup) -> Result<Attr> {
    if path.is_empty() && look.contains(Lookup::EMPTY_PATH) {
        if let Start::File(f) = start {
            return f.fresh_attr(cx);
        }
        let place = walk::lookup(cx, view, start, path, look)?;
        place.inode().refresh(cx)?;
        return place.attr();
    }
    walk::lookup_attr(cx, view, start, path, look)
}

/// faccessat2(2). The caller's credentials are what counts, on the way as well: access(2) is called with the real ones.
pub fn access(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    look: Lookup,
    mask: u32,
) -> Result<()> {
    let p = walk::lookup(cx, view, start, path, look)?;
    if mask & MAY_EXEC != 0 && p.kind() == S_IFREG && p.mount.flags().contains(MountFlags::NOEXEC) {
        return Err(Errno::EACCES);
    }
    access::inode_allowed(&cx.creds(), p.inode(), mask)?;
    access::device_may(cx, p.inode(), mask)?;
    p.inode().ask_access(cx, mask)?;
    if mask & MAY_WRITE != 0 && matches!(p.kind(), S_IFREG | S_IFDIR | S_IFLNK) {
        access::writable_mount(&p)?;
    }
    Ok(())
}

fn mount_of_file(f: &OpenFile) -> Result<()> {
    match &f.path {
        Some(p) => access::writable_mount(p),
        None => Ok(()),
    }
}

/// Inode of an open file for fchmod(2) and the like.
fn inode_of(f: &OpenFile) -> Result<&InodeRef> {
    if f.path_only() {
        return Err(Errno::EBADF);
    }
    f.inode.as_ref().ok_or(Errno::EPERM)
}

/// chmod(2) on a place.
pub fn chmod(cx: &dyn Caller, p: &Path, mode: u32) -> Result<()> {
    access::writable_mount(p)?;
    if p.kind() == S_IFLNK {
        return Err(Errno::EOPNOTSUPP);
    }
    policing::decide(cx, Kind::FileSetattr, Place::Object(p))?;
    chmod_inode(cx, p.inode(), mode)?;
    notify::on_path(p, event::ATTRIB);
    Ok(())
}

/// fchmod(2).
pub fn fchmod(cx: &dyn Caller, f: &OpenFile, mode: u32) -> Result<()> {
    let i = inode_of(f)?;
    mount_of_file(f)?;
    policing::decide(cx, Kind::FileSetattr, Place::File(f))?;
    chmod_inode(cx, i, mode)?;
    notify::on_file(f, event::ATTRIB);
    Ok(())
}

fn chmod_inode(cx: &dyn Caller, inode: &InodeRef, mode: u32) -> Result<()> {
    let creds = cx.creds();
    let old = inode.perm()?;
    let judged = inode.judges_changes();
    if !judged && !mode::owner_or_capable(&creds, &old) {
        return Err(Errno::EPERM);
    }
    let mut mode = mode & 0o7777;
    if !judged && mode & 0o2000 != 0 && !mode::keeps_set_gid(&creds, &old, old.gid) {
        mode &= !0o2000;
    }
    inode.set_attr(cx, &SetAttr { mode: Some(mode), ..SetAttr::default() })
}

/// chown(2) on a place, with IDs of the caller's user namespace. [`KEEP`] leaves an id alone.
pub fn chown(cx: &dyn Caller, p: &Path, uid: u32, gid: u32) -> Result<()> {
    access::writable_mount(p)?;
    policing::decide(cx, Kind::FileSetattr, Place::Object(p))?;
    chown_inode(cx, p.inode(), uid, gid)?;
    notify::on_path(p, event::ATTRIB);
    Ok(())
}

/// fchown(2).
pub fn fchown(cx: &dyn Caller, f: &OpenFile, uid: u32, gid: u32) -> Result<()> {
    let i = inode_of(f)?;
    mount_of_file(f)?;
    policing::decide(cx, Kind::FileSetattr, Place::File(f))?;
    chown_inode(cx, i, uid, gid)?;
    notify::on_file(f, event::ATTRIB);
    Ok(())
}

fn chown_inode(cx: &dyn Caller, inode: &InodeRef, uid: u32, gid: u32) -> Result<()> {
    let creds = cx.creds();
    let known =
        |number: u32, id: Option<u32>| if number == KEEP { Ok(KEEP) } else { id.ok_or(Errno::EINVAL) };
    let (uid, gid) = (known(uid, creds.user_ns.user(uid))?, known(gid, creds.user_ns.group(gid))?);
    let old = inode.perm()?;
    let capable = inode.judges_changes() || creds.capable_over(old.uid, old.gid, Cap::CHOWN);
    let owner = creds.fsuid == old.uid;
    if uid != KEEP && !capable && !(owner && uid == old.uid) {
        return Err(Errno::EPERM);
    }
    if gid != KEEP && !capable && !(owner && (gid == old.gid || creds.in_group(gid))) {
        return Err(Errno::EPERM);
    }
    let ids = ((uid != KEEP).then_some(uid), (gid != KEEP).then_some(gid));
    let mut set = SetAttr { uid: ids.0, gid: ids.1, ..SetAttr::default() };
    let dir = old.mode & abi::stat::S_IFMT == S_IFDIR;
    if !dir {
        let mut m = mode::drop_set_id(&creds, &old);
        if m != old.mode {
            // Taking the bits away is a chmod(2), also for a caller that changes neither owner nor group.
            if !inode.judges_changes() && !mode::owner_or_capable(&creds, &old) {
                return Err(Errno::EPERM);
            }
            if !mode::keeps_set_gid(&creds, &old, ids.1.unwrap_or(old.gid)) {
                m &= !0o2000;
            }
            set.mode = Some(m & 0o7777);
        }
    }
    inode.set_attr(cx, &set)?;
    // Checked first: the host refuses the removal to a caller that may not set it, even where there is nothing.
    let Some(xattrs) = inode.as_xattrs() else { return Ok(()) };
    if xattrs.chown_drops_capabilities() || xattrs.get_xattr(cx, b"security.capability").is_err() {
        return Ok(());
    }
    match xattrs.remove_xattr(cx, b"security.capability") {
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) | Ok(()) => Ok(()),
        Err(e) => Err(e),
    }
}

/// What inotify(7) tells of times that are set: one of them alone looks like its cause.
fn times_event(atime: Option<TimeSet>, mtime: Option<TimeSet>) -> u32 {
    match (atime, mtime) {
        (Some(_), None) => event::ACCESS,
        (None, Some(_)) => event::MODIFY,
        _ => event::ATTRIB,
    }
}

/// utimensat(2) on a place; `None` leaves a time alone (UTIME_OMIT).
pub fn utimens(cx: &dyn Caller, p: &Path, atime: Option<TimeSet>, mtime: Option<TimeSet>) -> Result<()> {
    if atime.is_none() && mtime.is_none() {
        return Ok(());
    }
    access::writable_mount(p)?;
    policing::decide(cx, Kind::FileSetattr, Place::Object(p))?;
    utimens_inode(cx, p.inode(), atime, mtime)?;
    notify::on_path(p, times_event(atime, mtime));
    Ok(())
}

/// futimens(3): utimensat(2) with a descriptor and no path.
pub fn futimens(cx: &dyn Caller, f: &OpenFile, atime: Option<TimeSet>, mtime: Option<TimeSet>) -> Result<()> {
    if f.path_only() {
        return Err(Errno::EBADF);
    }
    if atime.is_none() && mtime.is_none() {
        return Ok(());
    }
    let i = inode_of(f)?;
    mount_of_file(f)?;
    policing::decide(cx, Kind::FileSetattr, Place::File(f))?;
    utimens_inode(cx, i, atime, mtime)?;
    notify::on_file(f, times_event(atime, mtime));
    Ok(())
}

fn utimens_inode(
    cx: &dyn Caller,
    inode: &InodeRef,
    atime: Option<TimeSet>,
    mtime: Option<TimeSet>,
) -> Result<()> {
    let creds = cx.creds();
    let p = inode.perm()?;
    if !inode.judges_changes() && !mode::owner_or_capable(&creds, &p) {
        // "Now" for both is granted to a caller that may write.
        if atime == Some(TimeSet::Now) && mtime == Some(TimeSet::Now) {
            access::inode_may(cx, inode, MAY_WRITE)?;
        } else {
            return Err(Errno::EPERM);
        }
    }
    inode.set_attr(cx, &SetAttr { atime, mtime, ..SetAttr::default() })
}

fn check_size(cx: &dyn Caller, old: u64, len: i64) -> Result<u64> {
    let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
    if len > old && len > cx.rlimit(libc::RLIMIT_FSIZE as i32) {
        cx.raise(Signal::SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    Ok(len)
}

fn truncate_inode(cx: &dyn Caller, inode: &InodeRef, len: i64) -> Result<()> {
    inode.refresh(cx)?;
    let a = inode.attr()?;
    let size = check_size(cx, a.size, len)?;
    let mode = mode::after_write(&cx.creds(), &inode.perm()?);
    inode.set_attr(cx, &SetAttr { size: Some(size), mode, ..SetAttr::default() })
}

/// truncate(2).
pub fn truncate(cx: &dyn Caller, view: &FsView, path: &[u8], len: i64) -> Result<()> {
    if len < 0 {
        return Err(Errno::EINVAL);
    }
    let p = walk::lookup(cx, view, &Start::Cwd, path, Lookup::FOLLOW)?;
    match p.kind() {
        S_IFDIR => return Err(Errno::EISDIR),
        S_IFREG => {}
        _ => return Err(Errno::EINVAL),
    }
    access::may(cx, &p, MAY_WRITE)?;
    crate::domain::check(cx, &p, landlock::access::TRUNCATE)?;
    policing::decide(cx, Kind::FileTruncate, Place::Object(&p))?;
    let _claim = vfs::file::claim::write(p.inode())?;
    locks::leases::break_for(cx, p.inode(), true, false).map_err(caller::retry::Failure::errno)?;
    truncate_inode(cx, p.inode(), len)?;
    notify::truncated(&p);
    Ok(())
}

/// ftruncate(2).
pub fn ftruncate(cx: &dyn Caller, f: &OpenFile, len: i64) -> Result<()> {
    if len < 0 {
        return Err(Errno::EINVAL);
    }
    if f.path_only() {
        return Err(Errno::EBADF);
    }
    let Some(inode) = &f.inode else { return Err(Errno::EINVAL) };
    if inode.kind() != S_IFREG || !f.writable() {
        return Err(Errno::EINVAL);
    }
    if f.denies_truncate() {
        return Err(Errno::EACCES);
    }
    policing::decide(cx, Kind::FileTruncate, Place::File(f))?;
    truncate_inode(cx, inode, len)?;
    if let Some(path) = &f.path {
        notify::truncated(path);
    }
    Ok(())
}

const ST_VALID: i64 = 0x20;
const ST_NOSYMFOLLOW: u64 = 0x2000;

/// statfs(2) at a place.
pub fn statfs(cx: &dyn Caller, p: &Path) -> Result<StatFs> {
    let mut s = p.inode().statfs(cx)?;
    let f = p.mount.flags();
    s.f_flags = ST_VALID;
    for (m, bit) in [
        (MountFlags::RDONLY, libc::ST_RDONLY),
        (MountFlags::NOSUID, libc::ST_NOSUID),
        (MountFlags::NODEV, libc::ST_NODEV),
        (MountFlags::NOEXEC, libc::ST_NOEXEC),
        (MountFlags::NOATIME, libc::ST_NOATIME),
        (MountFlags::NODIRATIME, libc::ST_NODIRATIME),
        (MountFlags::RELATIME, libc::ST_RELATIME),
        (MountFlags::NOSYMFOLLOW, ST_NOSYMFOLLOW),
    ] {
        if f.contains(m) {
            s.f_flags |= bit as i64;
        }
    }
    Ok(s)
}
