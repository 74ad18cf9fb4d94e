//! ioctl(2): the requests that every file answers; the rest go to the file.

use crate::arg::Fd;
use crate::at::real_file;
use crate::signals::sigio;
use abi::Errno;
use abi::stat::{S_IFREG, S_IFSOCK};
use std::sync::Arc;
use syscall_filter::{ADD_FD, listener_of};
use task::{Asked, Current, SysErr, SysResult};
use vfs::OpenFile;
use vfs::file::file_kind;

const FIONREAD: u32 = 0x541b;
const FIONBIO: u32 = 0x5421;
const FIONCLEX: u32 = 0x5450;
const FIOCLEX: u32 = 0x5451;
const FIOASYNC: u32 = 0x5452;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;
const FIOGETOWN: u32 = 0x8903;
const SIOCGPGRP: u32 = 0x8904;
const FIOQSIZE: u32 = 0x5460;
const FIGETBSZ: u32 = 2;
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;
const FIDEDUPERANGE: u32 = 0xc018_9436;
const FS_IOC_FIEMAP: u32 = 0xc020_660b;
const TIOCGPTPEER: u32 = 0x5441;

/// Requests that programs make of any file to learn whether it is a terminal.
const ASKS_FOR_TERMINAL: [u32; 2] = [libc::TCGETS as u32, libc::TIOCGWINSZ as u32];

pub fn ioctl(c: &mut Current, fd: Fd, cmd: u32, arg: u64) -> SysResult {
    let f = real_file(c, fd)?;
    let result = request(c, fd, &f, cmd, arg);
    if let Err(SysErr::Errno(Errno::ENOTTY | Errno::EOPNOTSUPP)) = result
        && !ASKS_FOR_TERMINAL.contains(&cmd)
    {
        let what = format!("{cmd:#x} of {}", kind_name(&f));
        c.kernel().coverage.note(Asked::Ioctl, what);
    }
    result
}

/// What a file is, for a report.
fn kind_name(file: &OpenFile) -> &'static str {
    match file_kind(file) {
        S_IFREG => "a regular file",
        S_IFSOCK => "a socket",
        abi::stat::S_IFDIR => "a directory",
        abi::stat::S_IFCHR => "a character device",
        abi::stat::S_IFBLK => "a block device",
        abi::stat::S_IFIFO => "a pipe",
        _ => "another file",
    }
}

/// FICLONERANGE: source, offset, length and destination of a `struct file_clone_range`.
fn clone_range(c: &mut Current, to: &Arc<OpenFile>, [from, off, len, at]: [u64; 4]) -> SysResult {
    let from = real_file(c, Fd(from as i32))?;
    let mount = |file: &OpenFile| file.path.as_ref().map(|path| Arc::as_ptr(&path.mount.sb));
    if mount(&from) != mount(to) {
        return Err(Errno::EXDEV.into());
    }
    for file in [&from, to] {
        match file_kind(file) {
            S_IFREG => {}
            abi::stat::S_IFDIR => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EINVAL.into()),
        }
    }
    if !from.readable() || !to.writable() || to.flags() & libc::O_APPEND != 0 {
        return Err(Errno::EBADF.into());
    }
    vfs::policing::decide_io(c, policy::Kind::FileRead, &from)?;
    vfs::policing::decide_io(c, policy::Kind::FileWrite, to)?;
    let ops = to.ops.as_storage().ok_or(Errno::EOPNOTSUPP)?;
    files::io::strip_set_id(c, to)?;
    ops.clone_range(c, &from, off, len, at)?;
    vfs::notify::by_file(c, to, vfs::notify::event::MODIFY);
    Ok(0)
}

fn request(c: &mut Current, fd: Fd, f: &Arc<OpenFile>, cmd: u32, arg: u64) -> SysResult {
    match cmd {
        FIOCLEX => c.fd_table().set_cloexec(fd.0, true)?,
        FIONCLEX => c.fd_table().set_cloexec(fd.0, false)?,
        FIONBIO | FIOASYNC => {
            let on: i32 = c.read_value(arg)?;
            let bit = if cmd == FIONBIO { libc::O_NONBLOCK } else { libc::O_ASYNC };
            let flags = if on != 0 { f.flags() | bit } else { f.flags() & !bit };
            sigio::set_status(c, f, flags, fd.0)?;
        }
        FIONREAD if file_kind(f) == S_IFREG => {
            let size = f.attr()?.size as i64;
            let left = size - *f.hold_position(c)? as i64;
            c.write_value(arg, &(left.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32))?;
        }
        FIOSETOWN | SIOCSPGRP if file_kind(f) == S_IFSOCK => {
            let who: i32 = c.read_value(arg)?;
            sigio::set_own(c, f, who)?;
        }
        FIOGETOWN | SIOCGPGRP if file_kind(f) == S_IFSOCK => {
            let who = sigio::get_own(c, f);
            c.write_value(arg, &who)?;
        }
        FIOQSIZE if file_kind(f) == S_IFREG || file_kind(f) == abi::stat::S_IFDIR => {
            let size = f.attr()?.size;
            c.write_value(arg, &size)?;
        }
        FIGETBSZ if f.path.is_some() => {
            let size = f.attr()?.blksize;
            if size == 0 {
                return Err(Errno::EINVAL.into());
            }
            c.write_value(arg, &size)?;
        }
        FICLONE | FICLONERANGE if !f.denies_ioctl() => {
            let range = match cmd {
                FICLONE => [arg, 0, 0, 0],
                _ => c.read_value(arg)?,
            };
            clone_range(c, f, range)?;
        }
        // No file system here shows where blocks are, or shares those of equal data.
        FIDEDUPERANGE | FS_IOC_FIEMAP if file_kind(f) == S_IFREG => {
            return Err(Errno::EOPNOTSUPP.into());
        }
        // Descriptors of another table, which no file can reach.
        ADD_FD if listener_of(f).is_some() => {
            let listener = listener_of(f).ok_or(Errno::ENOTTY)?;
            return crate::security::seccomp::add_fd(c, listener, arg);
        }
        // The answer is a descriptor, which no file can make.
        TIOCGPTPEER if !f.denies_ioctl() => {
            let flags = arg as i32;
            let peer = tty::open_peer(c, f, flags)?;
            return crate::install::install(c, peer, flags & libc::O_CLOEXEC != 0);
        }
        // A descriptor is named, which no file can reach.
        _ if loopdev::names_file(f, cmd) && !f.denies_ioctl() => {
            let named = Fd(loopdev::named_fd(c, cmd, arg)?);
            let backing = real_file(c, named)?;
            // Reading and writing the device reads and writes the file.
            vfs::policing::decide_io(c, policy::Kind::FileRead, &backing)?;
            vfs::policing::decide_io(c, policy::Kind::FileWrite, &backing)?;
            let caller = c.caller();
            loopdev::attach(&caller, f, c, cmd, arg, &backing)?;
        }
        _ if fuse::names_file(f, cmd) && !f.denies_ioctl() => {
            let named = Fd(fuse::named_fd(c, arg)?);
            // A descriptor that is not open is no device file.
            let other = real_file(c, named).map_err(|_| Errno::EINVAL)?;
            fuse::clone_device(f, &other)?;
        }
        _ if f.denies_ioctl() => return Err(Errno::EACCES.into()),
        _ => {
            if let Some(done) = crate::namespaces::ns::ioctl(c, f, cmd, arg) {
                return done;
            }
            let caller = c.caller();
            return Ok(f.ops.ioctl(&caller, f, c, cmd, arg)?);
        }
    }
    Ok(0)
}
