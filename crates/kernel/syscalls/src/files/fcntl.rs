//! fcntl(2), flock(2).

use crate::arg::Fd;
use crate::at::real_file;
use crate::install::limit;
use crate::signals::sigio;
use abi::Errno;
use caller::{HasCredentials, Identity};
use files::FdTable;
use ipc::pipe::Pipe;
use locks::records::{self, Kind, Owner};
use std::sync::Arc;
use task::{Asked, Current, SysErr, SysResult};
use vfs::OpenFile;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct flock` of x86-64.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    pad0: u32,
    start: i64,
    len: i64,
    pid: i32,
    pad1: u32,
}

fn kind_of(l: &Flock) -> Result<Option<Kind>, Errno> {
    match i32::from(l.kind) {
        libc::F_RDLCK => Ok(Some(Kind::Shared)),
        libc::F_WRLCK => Ok(Some(Kind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

fn owner(t: &FdTable, f: &OpenFile, ofd: bool) -> Owner {
    if ofd { Owner::File(f.id) } else { Owner::Posix(t.id) }
}

fn get_lock(c: &mut Current, f: &OpenFile, arg: u64, ofd: bool) -> SysResult {
    let mut l: Flock = c.read_value(arg)?;
    if ofd && l.pid != 0 {
        return Err(Errno::EINVAL.into());
    }
    let kind = kind_of(&l)?;
    // Since Linux 6.13 F_UNLCK is a valid question of F_OFD_GETLK; before, it was not for any.
    let kind = kind.ok_or(Errno::EINVAL)?;
    let (start, end) = records::range_of(&c.caller(), f, i32::from(l.whence), l.start, l.len)?;
    match records::test(f, owner(c.fd_table(), f, ofd), kind, start, end)? {
        None => l.kind = libc::F_UNLCK as i16,
        Some(r) => {
            l.kind = if r.kind == Kind::Shared { libc::F_RDLCK } else { libc::F_WRLCK } as i16;
            l.whence = libc::SEEK_SET as i16;
            l.start = r.start as i64;
            l.len = if r.end == records::TO_END { 0 } else { (r.end - r.start + 1) as i64 };
            l.pid = c.pid_vnr(r.pid);
        }
    }
    c.write_value(arg, &l)?;
    Ok(0)
}

fn set_lock(c: &mut Current, fd: Fd, f: &OpenFile, arg: u64, ofd: bool, wait: bool) -> SysResult {
    let l: Flock = c.read_value(arg)?;
    if ofd && l.pid != 0 {
        return Err(Errno::EINVAL.into());
    }
    let kind = kind_of(&l)?;
    let (start, end) = records::range_of(&c.caller(), f, i32::from(l.whence), l.start, l.len)?;
    match kind {
        Some(Kind::Shared) if !f.readable() => return Err(Errno::EBADF.into()),
        Some(Kind::Exclusive) if !f.writable() => return Err(Errno::EBADF.into()),
        _ => {}
    }
    let t = c.fds();
    let who = owner(&t, f, ofd);
    records::set(c, f, who, kind, start, end, wait)?;
    // Closed by another thread while we waited: the close found no lock to release.
    if kind.is_some() && !ofd && !t.get(fd.0).is_ok_and(|g| std::ptr::eq(&*g, f)) {
        records::set(c, f, who, None, start, end, false)?;
        return Err(Errno::EBADF.into());
    }
    Ok(0)
}

const F_NOTIFY: i32 = 1026;
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;

pub fn fcntl(c: &mut Current, fd: Fd, cmd: i32, arg: u64) -> SysResult {
    let result = command(c, fd, cmd, arg);
    if let Err(SysErr::Errno(Errno::EINVAL)) = result {
        c.kernel().coverage.note(Asked::Fcntl, format!("{cmd} ({arg:#x})"));
    }
    result
}

fn command(c: &mut Current, fd: Fd, cmd: i32, arg: u64) -> SysResult {
    const F_DUPFD_QUERY: i32 = 1027;
    const F_CREATED_QUERY: i32 = 1028;
    const F_RW_HINTS: std::ops::RangeInclusive<i32> = 1035..=1038;
    let f = c.file(fd.0)?;
    let n = match cmd {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let max = limit(c);
            let min = u64::from(arg as u32);
            if min >= max {
                return Err(Errno::EINVAL.into());
            }
            return Ok(c.fd_table().reserve_from(min, max)?.commit(f, cmd == libc::F_DUPFD_CLOEXEC) as u64);
        }
        libc::F_GETFD => u64::from(c.fd_table().cloexec(fd.0)?),
        libc::F_SETFD => {
            c.fd_table().set_cloexec(fd.0, arg & 1 != 0)?;
            0
        }
        libc::F_GETFL => f.flags() as u64,
        F_DUPFD_QUERY => u64::from(c.file(arg as i32).is_ok_and(|g| std::sync::Arc::ptr_eq(&f, &g))),
        F_CREATED_QUERY => u64::from(f.created()),
        _ if f.path_only() => return Err(Errno::EBADF.into()),
        libc::F_SETFL => {
            set_flags(c, &f, arg as i32, fd.0)?;
            0
        }
        libc::F_GETLK => return get_lock(c, &f, arg, false),
        libc::F_SETLK => return set_lock(c, fd, &f, arg, false, false),
        libc::F_SETLKW => return set_lock(c, fd, &f, arg, false, true),
        libc::F_OFD_GETLK => return get_lock(c, &f, arg, true),
        libc::F_OFD_SETLK => return set_lock(c, fd, &f, arg, true, false),
        libc::F_OFD_SETLKW => return set_lock(c, fd, &f, arg, true, true),
        libc::F_SETOWN | libc::F_GETOWN | F_SETOWN_EX | F_GETOWN_EX | F_SETSIG | F_GETSIG => {
            return sigio::fcntl(c, &f, cmd, arg);
        }
        libc::F_GETLEASE => locks::leases::get(&f) as u64,
        libc::F_SETLEASE => {
            locks::leases::set(c, &f, arg as i32, sigio::teller(c, fd.0))?;
            if arg as i32 != libc::F_UNLCK {
                let mut o = f.owner.lock();
                if o.id == 0 {
                    o.set(vfs::file::F_OWNER_PID, c.task.tgid(), &c.creds());
                }
            }
            0
        }
        F_NOTIFY => {
            files::dnotify::set(c, &f, arg as u32, sigio::teller(c, fd.0))?;
            0
        }
        libc::F_SETPIPE_SZ => Pipe::of(&f).ok_or(Errno::EBADF)?.set_size(c, arg & 0xffff_ffff)? as u64,
        libc::F_GETPIPE_SZ => Pipe::of(&f).ok_or(Errno::EBADF)?.size() as u64,
        libc::F_ADD_SEALS => {
            tmpfs::add_seals(&f, arg as u32)?;
            0
        }
        libc::F_GET_SEALS => u64::from(tmpfs::get_seals(&f)?),
        cmd if F_RW_HINTS.contains(&cmd) => {
            // Write life hints: none is kept.
            if cmd % 2 == 1 {
                c.write_value(arg, &0u64)?;
            }
            0
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(n)
}

/// F_SETFL.
fn set_flags(c: &Current, f: &Arc<OpenFile>, flags: i32, fd: i32) -> Result<(), SysErr> {
    if flags & libc::O_NOATIME != 0 && f.flags() & libc::O_NOATIME == 0 {
        let owner = match &f.inode {
            Some(i) => rights::mode::owner_or_capable(&c.creds(), &i.perm()?),
            None => true,
        };
        if !owner {
            return Err(Errno::EPERM.into());
        }
    }
    if flags & libc::O_DIRECT != 0 && !f.ops.direct() && vfs::file::file_kind(f) != libc::S_IFIFO {
        return Err(Errno::EINVAL.into());
    }
    Ok(sigio::set_status(c, f, flags, fd)?)
}

pub fn flock(c: &mut Current, fd: Fd, op: i32) -> SysResult {
    let f = real_file(c, fd)?;
    let kind = match op & !libc::LOCK_NB {
        libc::LOCK_SH => Some(Kind::Shared),
        libc::LOCK_EX => Some(Kind::Exclusive),
        libc::LOCK_UN => None,
        _ => return Err(Errno::EINVAL.into()),
    };
    records::flock(c, &f, kind, op & libc::LOCK_NB == 0)?;
    Ok(0)
}
