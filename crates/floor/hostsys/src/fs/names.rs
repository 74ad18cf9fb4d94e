//! Host calls that change names and attributes.

use super::{component, err};
use abi::time::Timespec;
use abi::{Errno, Result};
use rustix::fs as rfs;
use std::os::fd::{AsFd, AsRawFd};

/// The number of fchmodat2(2).
pub const FCHMODAT2: libc::c_long = 452;

/// readlinkat(2).
pub fn readlink_at(dir: impl AsFd, name: &[u8]) -> Result<Vec<u8>> {
    rfs::readlinkat(dir, component(name)?, Vec::new()).map(|s| s.into_bytes()).map_err(err)
}

/// readlinkat(2) of the link that an O_PATH descriptor stands for.
pub fn readlink_place(place: impl AsFd) -> Result<Vec<u8>> {
    rfs::readlinkat(place, c"", Vec::new()).map(|s| s.into_bytes()).map_err(err)
}

/// mkdirat(2).
pub fn mkdir_at(dir: impl AsFd, name: &[u8], mode: u32) -> Result<()> {
    rfs::mkdirat(dir, component(name)?, rfs::Mode::from_raw_mode(mode & 0o7777)).map_err(err)
}

/// mknodat(2) of a FIFO or a socket; devices are never made on the host.
pub fn mknod_at(dir: impl AsFd, name: &[u8], socket: bool, mode: u32) -> Result<()> {
    let kind = if socket { rfs::FileType::Socket } else { rfs::FileType::Fifo };
    rfs::mknodat(dir, component(name)?, kind, rfs::Mode::from_raw_mode(mode & 0o7777), 0).map_err(err)
}

/// mknodat(2) for a whiteout of overlayfs, the character device 0:0, which needs no privilege.
pub fn whiteout_at(dir: impl AsFd, name: &[u8], mode: u32) -> Result<()> {
    let kind = rfs::FileType::CharacterDevice;
    rfs::mknodat(dir, component(name)?, kind, rfs::Mode::from_raw_mode(mode & 0o7777), 0).map_err(err)
}

/// symlinkat(2).
pub fn symlink_at(target: &[u8], dir: impl AsFd, name: &[u8]) -> Result<()> {
    rfs::symlinkat(target, dir, component(name)?).map_err(err)
}

/// linkat(2) between two components.
pub fn link_at(old_dir: impl AsFd, old: &[u8], dir: impl AsFd, name: &[u8]) -> Result<()> {
    rfs::linkat(old_dir, component(old)?, dir, component(name)?, rfs::AtFlags::empty()).map_err(err)
}

/// Gives an open file its first name. ENOENT before Linux 6.10 without CAP_DAC_READ_SEARCH.
pub fn link_open(file: impl AsFd, dir: impl AsFd, name: &[u8]) -> Result<()> {
    rfs::linkat(file, c"", dir, component(name)?, rfs::AtFlags::EMPTY_PATH).map_err(err)
}

/// unlinkat(2); `directory` as AT_REMOVEDIR.
pub fn unlink_at(dir: impl AsFd, name: &[u8], directory: bool) -> Result<()> {
    let f = if directory { rfs::AtFlags::REMOVEDIR } else { rfs::AtFlags::empty() };
    rfs::unlinkat(dir, component(name)?, f).map_err(err)
}

/// renameat2(2).
pub fn rename_at(old_dir: impl AsFd, old: &[u8], dir: impl AsFd, name: &[u8], flags: u32) -> Result<()> {
    let f = rfs::RenameFlags::from_bits_retain(flags);
    rfs::renameat_with(old_dir, component(old)?, dir, component(name)?, f).map_err(err)
}

/// fchmod(2).
pub fn chmod(fd: impl AsFd, mode: u32) -> Result<()> {
    rfs::fchmod(fd, rfs::Mode::from_raw_mode(mode & 0o7777)).map_err(err)
}

/// fchmodat(2). Follows a link in the last component: only for names known not to be one.
pub fn chmod_at(dir: impl AsFd, name: &[u8], mode: u32) -> Result<()> {
    let m = rfs::Mode::from_raw_mode(mode & 0o7777);
    rfs::chmodat(dir, component(name)?, m, rfs::AtFlags::empty()).map_err(err)
}

/// chmod(2) of what an O_PATH descriptor stands for, with fchmodat2(2). ENOSYS before Linux 6.6.
pub fn chmod_place(place: impl AsFd, mode: u32) -> Result<()> {
    let place = place.as_fd().as_raw_fd();
    // SAFETY: the path is a static string.
    let done = unsafe { libc::syscall(FCHMODAT2, place, c"".as_ptr(), mode & 0o7777, libc::AT_EMPTY_PATH) };
    crate::check(done).map(drop)
}

/// chown(2) of what an O_PATH descriptor stands for; `None` leaves an id alone.
pub fn chown_place(place: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let (u, g) = (uid.map(rfs::Uid::from_raw), gid.map(rfs::Gid::from_raw));
    rfs::chownat(place, c"", u, g, rfs::AtFlags::EMPTY_PATH).map_err(err)
}

/// utimensat(2) of what an O_PATH descriptor stands for.
pub fn utimes_place(place: impl AsFd, atime: SetTime, mtime: SetTime) -> Result<()> {
    let times = rfs::Timestamps { last_access: atime.raw(), last_modification: mtime.raw() };
    rfs::utimensat(place, c"", &times, rfs::AtFlags::EMPTY_PATH).map_err(err)
}

/// fchown(2).
pub fn chown(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    rfs::fchown(fd, uid.map(rfs::Uid::from_raw), gid.map(rfs::Gid::from_raw)).map_err(err)
}

/// A time for utimensat(2).
#[derive(Clone, Copy, Debug)]
pub enum SetTime {
    /// UTIME_OMIT
    Keep,
    /// UTIME_NOW
    Now,
    /// This.
    At(Timespec),
}

impl SetTime {
    fn raw(self) -> rfs::Timespec {
        match self {
            SetTime::Keep => rfs::Timespec { tv_sec: 0, tv_nsec: rfs::UTIME_OMIT },
            SetTime::Now => rfs::Timespec { tv_sec: 0, tv_nsec: rfs::UTIME_NOW },
            SetTime::At(t) => rfs::Timespec { tv_sec: t.sec, tv_nsec: t.nsec },
        }
    }
}

/// futimens(3).
pub fn utimes(fd: impl AsFd, atime: SetTime, mtime: SetTime) -> Result<()> {
    let t = rfs::Timestamps { last_access: atime.raw(), last_modification: mtime.raw() };
    rfs::futimens(fd, &t).map_err(err)
}

/// fgetxattr(2).
pub fn get_xattr(fd: impl AsFd, name: &[u8]) -> Result<Vec<u8>> {
    // XATTR_SIZE_MAX: asking for the size first would be one call more and could be out of date.
    let mut v = vec![0; 65536];
    let n = rfs::fgetxattr(&fd, name, &mut v[..]).map_err(err)?;
    v.truncate(n);
    v.shrink_to_fit();
    Ok(v)
}

/// flistxattr(2), split into names.
pub fn list_xattr(fd: impl AsFd) -> Result<Vec<Vec<u8>>> {
    let mut v = vec![0u8; 65536];
    let n = rfs::flistxattr(fd, &mut v[..]).map_err(err)?;
    Ok(v[..n].split(|&c| c == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect())
}

/// fsetxattr(2).
pub fn set_xattr(fd: impl AsFd, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
    let f = rfs::XattrFlags::from_bits(flags as u32).ok_or(Errno::EINVAL)?;
    rfs::fsetxattr(fd, name, value, f).map_err(err)
}

/// fremovexattr(2).
pub fn remove_xattr(fd: impl AsFd, name: &[u8]) -> Result<()> {
    rfs::fremovexattr(fd, name).map_err(err)
}
