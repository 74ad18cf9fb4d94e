//! Opening what a path led to: permissions, leases, and the driver or the inode's own operations.

use crate::domain;
use crate::lookup::{Lookup, Start};
use crate::walk;
use abi::Errno;
use abi::stat::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use caller::retry::Outcome;
use mounts::fs_context::FsView;
use policy::Kind;
use rights::mode::{self, MAY_EXEC, MAY_READ, MAY_WRITE};
use std::sync::Arc;
use vfs::file::devices::Opened;
use vfs::file::{FileOps, OpenFile, Opener, PathOnly};
use vfs::file::{claim as busy, claim::Claim};
use vfs::in_use::InUse;
use vfs::inode::SetAttr;
use vfs::mount::{Mount, MountFlags, Path};
use vfs::notify::{self, event};
use vfs::{Caller, access, policing};

const O_LARGEFILE: i32 = 0o100000;

/// Rights that an access mode needs.
fn access(flags: i32) -> u32 {
    let m = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => MAY_READ,
        libc::O_WRONLY => MAY_WRITE,
        _ => MAY_READ | MAY_WRITE,
    };
    if flags & libc::O_TRUNC != 0 { m | MAY_WRITE } else { m }
}

/// Opens what is at `p`, with all checks but those of creation.
pub fn open_path(cx: &dyn Caller, p: Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    let held = InUse::new(p.mount.clone());
    open_held(cx, p, flags, held)
}

/// Opens what is at `p` on a mount that is held already.
pub(crate) fn open_held(cx: &dyn Caller, p: Path, flags: i32, held: InUse<Mount>) -> Outcome<Arc<OpenFile>> {
    if flags & libc::O_PATH != 0 {
        let inode = p.inode().clone();
        let ops = Arc::new(PathOnly::of(&inode)?);
        return Ok(OpenFile::at(p, inode, ops, flags, (None, held), Opener::of(&cx.creds())));
    }
    let mask = access(flags);
    match p.kind() {
        S_IFLNK => return Err(Errno::ELOOP.into()),
        S_IFDIR if mask & MAY_WRITE != 0 => return Err(Errno::EISDIR.into()),
        S_IFCHR | S_IFBLK if p.mount.nodev() => return Err(Errno::EACCES.into()),
        _ => {}
    }
    p.inode().refresh_access(cx)?;
    access::may(cx, &p, mask)?;
    if flags & libc::O_NOATIME != 0 && !mode::owner_or_capable(&cx.creds(), &p.inode().perm()?) {
        return Err(Errno::EPERM.into());
    }
    let denied = domain::check_open(cx, &p, flags, false)?;
    policing::decide_open(cx, &p, flags)?;
    let file = finish(cx, p, flags, held)?;
    file.deny(denied);
    Ok(file)
}

/// Opens without permission checks, and truncates.
pub(crate) fn finish(cx: &dyn Caller, p: Path, flags: i32, held: InUse<Mount>) -> Outcome<Arc<OpenFile>> {
    let writes =
        matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR) || flags & libc::O_TRUNC != 0;
    let claim = match p.kind() == S_IFREG {
        true if writes => busy::write(p.inode())?,
        true => busy::read(p.inode()),
        false => None,
    };
    if claim.is_some() {
        locks::leases::break_for(cx, p.inode(), writes, flags & libc::O_NONBLOCK != 0)?;
    }
    finish_claiming(cx, p, flags, claim, held, event::OPEN)
}

/// As [`finish`] of a file that was just made and opened in one step.
pub(crate) fn finish_opened(
    cx: &dyn Caller,
    p: Path,
    flags: i32,
    ops: Arc<dyn FileOps>,
    held: InUse<Mount>,
) -> Outcome<Arc<OpenFile>> {
    notify::ask(cx, &p, vfs::notify::marks::OPEN_PERM)?;
    let inode = p.inode().clone();
    let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
    let claim = if writes { busy::write(&inode)? } else { busy::read(&inode) };
    if flags & libc::O_DIRECT != 0 && !ops.direct() {
        return Err(Errno::EINVAL.into());
    }
    notify::by(cx, &p, event::OPEN);
    Ok(OpenFile::at(p, inode, ops, flags | O_LARGEFILE, (claim, held), Opener::of(&cx.creds())))
}

/// `told`: the event for listeners.
fn finish_claiming(
    cx: &dyn Caller,
    p: Path,
    flags: i32,
    claim: Option<Claim>,
    held: InUse<Mount>,
    told: u32,
) -> Outcome<Arc<OpenFile>> {
    if told & vfs::notify::marks::OPEN_EXEC != 0 {
        notify::ask(cx, &p, vfs::notify::marks::OPEN_EXEC_PERM)?;
    }
    if told != 0 {
        notify::ask(cx, &p, vfs::notify::marks::OPEN_PERM)?;
    }
    let inode = p.inode().clone();
    // What hangs on a FIFO finds the object by its name, once.
    let _held = if p.kind() == S_IFIFO { inode.hold()? } else { None };
    let keep = flags | O_LARGEFILE;
    let stands_for = inode.open_file().map(|file| file.inode.clone());
    let ops: Arc<dyn FileOps> = match p.kind() {
        S_IFSOCK if stands_for.is_none() => return Err(Errno::ENXIO.into()),
        S_IFBLK => match cx.vfs().devices.open_block(cx, &p, &inode, inode.attr()?.rdev, flags)? {
            Opened::Ops(o) => o,
            Opened::File(f) => return Ok(f),
        },
        kind @ (S_IFCHR | S_IFIFO) if stands_for.is_none() => {
            let outside = if kind == S_IFIFO { inode.open_outside(cx, flags) } else { None };
            let opened = match outside {
                Some(ops) => Opened::Ops(ops?),
                None if kind == S_IFCHR => {
                    cx.vfs().devices.open_char(cx, &p, &inode, inode.attr()?.rdev, flags)?
                }
                None => cx.vfs().devices.open_fifo(cx, &p, &inode, flags)?,
            };
            match opened {
                Opened::Ops(o) => o,
                Opened::File(f) => return Ok(f),
            }
        }
        _ => inode.open(cx, flags)?,
    };
    if flags & libc::O_DIRECT != 0 && !ops.direct() {
        return Err(Errno::EINVAL.into());
    }
    let silent = ops.is_silent();
    if told != 0 && !silent {
        notify::by(cx, &p, told);
    }
    if flags & libc::O_TRUNC != 0 && p.kind() == S_IFREG {
        let mode = mode::after_write(&cx.creds(), &inode.perm()?);
        inode.set_attr(cx, &SetAttr { size: Some(0), mode, ..SetAttr::default() })?;
        notify::truncated(&p);
    }
    let file = match stands_for {
        Some(inode) => OpenFile::new(None, inode, ops, keep),
        None => OpenFile::at(p, inode, ops, keep, (claim, held), Opener::of(&cx.creds())),
    };
    if silent {
        file.silence();
    }
    Ok(file)
}

/// Opens a program for execve(2): a regular file with execute permission on a mount that allows it.
pub fn open_exec(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    look: Lookup,
) -> Outcome<Arc<OpenFile>> {
    walk::anew(view, |view| open_exec_once(cx, view, start, path, look))
}

fn open_exec_once(
    cx: &dyn Caller,
    view: &FsView,
    start: &Start,
    path: &[u8],
    look: Lookup,
) -> Outcome<Arc<OpenFile>> {
    let (p, held) = walk::lookup_held(cx, view, start, path, look)?;
    match p.kind() {
        S_IFREG => {}
        S_IFLNK => return Err(Errno::ELOOP.into()),
        _ => return Err(Errno::EACCES.into()),
    }
    if p.mount.flags().contains(MountFlags::NOEXEC) {
        return Err(Errno::EACCES.into());
    }
    p.inode().refresh_access(cx)?;
    access::inode_may(cx, p.inode(), MAY_EXEC)?;
    domain::check_open(cx, &p, libc::O_RDONLY, true)?;
    let claim = busy::run(p.inode())?;
    let told = event::OPEN | vfs::notify::marks::OPEN_EXEC;
    let file = finish_claiming(cx, p, libc::O_RDONLY, claim, held, told)?;
    policing::decide_io(cx, Kind::FileExec, &file)?;
    Ok(file)
}

/// Opens what is at `p` for a file that was open before a checkpoint: without permission checks, events and leases, and
/// without changing what is there. `flags`: access mode and status flags.
pub fn open_again(cx: &dyn Caller, p: Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    let held = InUse::new(p.mount.clone());
    let flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
    if flags & libc::O_PATH != 0 {
        let inode = p.inode().clone();
        let ops = Arc::new(PathOnly::of(&inode)?);
        return Ok(OpenFile::at(p, inode, ops, flags, (None, held), Opener::default()));
    }
    // The other end of a FIFO is not waited for.
    let nonblocking = if p.kind() == S_IFIFO { libc::O_NONBLOCK } else { 0 };
    finish_claiming(cx, p, flags | nonblocking | libc::O_NOCTTY, None, held, 0)
}

/// Opens the object of an event for the reader of the event, without permission checks and without events.
pub fn open_event(cx: &dyn Caller, p: &Path, flags: i32) -> Outcome<Arc<OpenFile>> {
    if flags & libc::O_ACCMODE != libc::O_RDONLY && matches!(p.kind(), S_IFREG | S_IFDIR) {
        if p.kind() == S_IFDIR {
            return Err(Errno::EISDIR.into());
        }
        access::writable_mount(p)?;
    }
    access::device_may(cx, p.inode(), access(flags))?;
    policing::decide_open(cx, p, flags)?;
    let held = InUse::new(p.mount.clone());
    let claim = match p.kind() {
        S_IFREG if flags & libc::O_ACCMODE != libc::O_RDONLY => busy::write(p.inode())?,
        S_IFREG => busy::read(p.inode()),
        _ => None,
    };
    // The other end of a FIFO is not waited for.
    let nonblocking = if p.kind() == S_IFIFO { libc::O_NONBLOCK } else { 0 };
    let file = finish_claiming(cx, p.clone(), flags | nonblocking, claim, held, 0)?;
    file.silence();
    Ok(file)
}
