//! Files of the host. Every call takes a descriptor. A name is a single component, and a symbolic link is never
//! followed. No call takes a path from a guest.
//!
//! Host calls: openat2, openat (O_TMPFILE-free), statx, fstatfs, getdents64, readlinkat, pread64, pwrite64,
//! ftruncate, fallocate, lseek, fsync, fdatasync, mkdirat, mknodat, symlinkat, linkat, unlinkat, renameat2,
//! fchmod, fchownat, utimensat, f{get,set,list,remove}xattr, memfd_create, fcntl, flock, getrandom.

mod locks;
mod names;
mod stream;

pub use locks::*;
pub use names::*;
pub use stream::*;

use crate::memfd::CopyArea;
use abi::stat::{Attr, StatFs, makedev};
use abi::time::Timespec;
use abi::{Errno, Result};
use rustix::fs as rfs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn err(e: rustix::io::Errno) -> Errno {
    Errno::from_raw(e.raw_os_error())
}

/// Time for file time stamps: CLOCK_REALTIME_COARSE, like Linux's own.
pub fn now() -> Timespec {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timespec { sec: t.tv_sec, nsec: t.tv_nsec }
}

/// Random bytes.
pub fn random(buf: &mut [u8]) {
    let mut done = 0;
    while done < buf.len() {
        match rustix::rand::getrandom(&mut buf[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            // Cannot fail once the host has booted; zeros would be worse than stopping.
            Err(e) => panic!("getrandom: {e}"),
        }
    }
}

/// A new memory file of size 0 that can be sealed.
pub fn memfd(name: &str) -> Result<OwnedFd> {
    rfs::memfd_create(name, rfs::MemfdFlags::CLOEXEC | rfs::MemfdFlags::ALLOW_SEALING).map_err(err)
}

/// F_ADD_SEALS.
pub fn add_seals(fd: impl AsFd, seals: u32) -> Result<()> {
    rfs::fcntl_add_seals(fd, rfs::SealFlags::from_bits_retain(seals)).map_err(err)
}

/// Total memory of the machine in bytes.
pub fn total_memory() -> u64 {
    let s = rustix::system::sysinfo();
    (s.totalram as u64).saturating_mul(u64::from(s.mem_unit.max(1)))
}

fn time(t: rfs::StatxTimestamp) -> Timespec {
    Timespec { sec: t.tv_sec, nsec: i64::from(t.tv_nsec) }
}

fn to_attr(s: &rfs::Statx) -> Attr {
    let btime = rfs::StatxFlags::from_bits_retain(s.stx_mask).contains(rfs::StatxFlags::BTIME);
    Attr {
        dev: makedev(s.stx_dev_major, s.stx_dev_minor),
        ino: s.stx_ino,
        mode: u32::from(s.stx_mode),
        nlink: u64::from(s.stx_nlink),
        uid: s.stx_uid,
        gid: s.stx_gid,
        rdev: makedev(s.stx_rdev_major, s.stx_rdev_minor),
        size: s.stx_size,
        blksize: s.stx_blksize,
        blocks: s.stx_blocks,
        atime: time(s.stx_atime),
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        btime: btime.then(|| time(s.stx_btime)),
    }
}

const STATX: rfs::StatxFlags = rfs::StatxFlags::BASIC_STATS.union(rfs::StatxFlags::BTIME);

/// What tells an object from others, its mode, owners and links. When a process has asked for the times of a file,
/// the host (Linux 6.13) gives it a new time at the next change and writes the inode anew. That is a quarter of the
/// first write(2) to a file that was just made.
const IDENTITY: rfs::StatxFlags = rfs::StatxFlags::TYPE
    .union(rfs::StatxFlags::MODE)
    .union(rfs::StatxFlags::NLINK)
    .union(rfs::StatxFlags::UID)
    .union(rfs::StatxFlags::GID)
    .union(rfs::StatxFlags::INO)
    .union(rfs::StatxFlags::SIZE)
    .union(rfs::StatxFlags::BTIME);

/// As [`stat`], without the times of changes of content and attributes, which may be zeros.
pub fn identity(fd: impl AsFd) -> Result<Attr> {
    attributes(fd, IDENTITY)
}

/// Attributes of an open file. A process that may not call statx(2) does not learn when the file was made.
pub fn stat(fd: impl AsFd) -> Result<Attr> {
    attributes(fd, STATX)
}

/// statx(2) fails with ENOSYS here, as a seccomp filter has it fail that allows no call with a path.
static NO_STATX: AtomicBool = AtomicBool::new(false);

fn attributes(fd: impl AsFd, wanted: rfs::StatxFlags) -> Result<Attr> {
    if !NO_STATX.load(Ordering::Relaxed) {
        match rfs::statx(&fd, c"", rfs::AtFlags::EMPTY_PATH, wanted) {
            Err(rustix::io::Errno::NOSYS) => NO_STATX.store(true, Ordering::Relaxed),
            done => return done.map(|s| to_attr(&s)).map_err(err),
        }
    }
    rfs::fstat(fd).map(|s| from_stat(&s)).map_err(err)
}

fn from_stat(s: &rfs::Stat) -> Attr {
    let time = |sec: i64, nsec: u64| Timespec { sec, nsec: nsec as i64 };
    Attr {
        dev: s.st_dev,
        ino: s.st_ino,
        mode: s.st_mode,
        nlink: s.st_nlink,
        uid: s.st_uid,
        gid: s.st_gid,
        rdev: s.st_rdev,
        size: s.st_size as u64,
        blksize: s.st_blksize as u32,
        blocks: s.st_blocks as u64,
        atime: time(s.st_atime, s.st_atime_nsec),
        mtime: time(s.st_mtime, s.st_mtime_nsec),
        ctime: time(s.st_ctime, s.st_ctime_nsec),
        btime: None,
    }
}

/// Attributes of `name` in `dir`.
pub fn stat_at(dir: impl AsFd, name: &[u8]) -> Result<Attr> {
    rfs::statx(dir, component(name)?, rfs::AtFlags::SYMLINK_NOFOLLOW, STATX).map(|s| to_attr(&s)).map_err(err)
}

/// As [`identity`], with the number of the mount that the file was opened through (Linux 5.8; 0 before).
pub fn identity_on_mount(fd: impl AsFd) -> Result<(Attr, u64)> {
    let mask = IDENTITY | rfs::StatxFlags::MNT_ID;
    let s = rfs::statx(fd, c"", rfs::AtFlags::EMPTY_PATH, mask).map_err(err)?;
    let told = rfs::StatxFlags::from_bits_retain(s.stx_mask).contains(rfs::StatxFlags::MNT_ID);
    Ok((to_attr(&s), if told { s.stx_mnt_id } else { 0 }))
}

/// As [`identity`], of `name` in `dir`.
pub fn identity_at(dir: impl AsFd, name: &[u8]) -> Result<Attr> {
    rfs::statx(dir, component(name)?, rfs::AtFlags::SYMLINK_NOFOLLOW, IDENTITY)
        .map(|s| to_attr(&s))
        .map_err(err)
}

/// statx(2) of what `path`, of one or several components, leads to from `dir`; a link in last place is not followed.
/// Links before it are followed unless the mount forbids it, as those that the gofer makes do.
pub fn stat_below(dir: impl AsFd, path: &[u8]) -> Result<Attr> {
    for name in path.split(|&c| c == b'/') {
        component(name)?;
    }
    rfs::statx(dir, path, rfs::AtFlags::SYMLINK_NOFOLLOW, STATX).map(|s| to_attr(&s)).map_err(err)
}

/// A single component: not empty, no slash, neither `.` nor `..`.
pub(crate) fn component(name: &[u8]) -> Result<&[u8]> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
        return Err(Errno::EINVAL);
    }
    Ok(name)
}

/// How a host file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// O_PATH: a place.
    Place,
    /// O_RDONLY.
    Read,
    /// O_WRONLY.
    Write,
    /// O_RDWR.
    ReadWrite,
    /// O_RDONLY of a directory.
    Directory,
}

impl Access {
    fn flags(self) -> rfs::OFlags {
        let f = rfs::OFlags::CLOEXEC | rfs::OFlags::NOFOLLOW;
        f | match self {
            Access::Place => rfs::OFlags::PATH,
            // A FIFO that took the place of the file must not make us wait.
            Access::Read => rfs::OFlags::NONBLOCK | rfs::OFlags::NOCTTY,
            Access::Write => rfs::OFlags::WRONLY | rfs::OFlags::NONBLOCK | rfs::OFlags::NOCTTY,
            Access::ReadWrite => rfs::OFlags::RDWR | rfs::OFlags::NONBLOCK | rfs::OFlags::NOCTTY,
            Access::Directory => rfs::OFlags::DIRECTORY,
        }
    }
}

fn beneath() -> rfs::ResolveFlags {
    rfs::ResolveFlags::BENEATH | rfs::ResolveFlags::NO_SYMLINKS | rfs::ResolveFlags::NO_MAGICLINKS
}

/// How often a path below a directory is looked for that others move out of it at this moment.
const TRIES: usize = 64;

/// openat2(2) beneath a directory. It fails with EXDEV when what it found was moved out of the directory before it was done
/// (RESOLVE_BENEATH): the path is looked for again, and is not there after some times (ENOENT).
fn open_beneath(dir: impl AsFd, path: &[u8], flags: rfs::OFlags, how: rfs::ResolveFlags) -> Result<OwnedFd> {
    for _ in 0..TRIES {
        match rfs::openat2(&dir, path, flags, rfs::Mode::empty(), how) {
            Err(rustix::io::Errno::XDEV) => {}
            done => return done.map_err(err),
        }
    }
    Err(Errno::ENOENT)
}

/// Opens `name` in `dir`; a symbolic link only with [`Access::Place`].
pub fn open_at(dir: impl AsFd, name: &[u8], access: Access) -> Result<OwnedFd> {
    let mut how = beneath();
    if access == Access::Place {
        // O_PATH|O_NOFOLLOW gives the link itself, which NO_SYMLINKS would refuse.
        how = rfs::ResolveFlags::BENEATH | rfs::ResolveFlags::NO_MAGICLINKS;
    }
    open_beneath(dir, component(name)?, access.flags(), how)
}

/// Like [`open_at`], but fails with EXDEV where something is mounted on `name`.
pub fn open_within(dir: impl AsFd, name: &[u8], access: Access) -> Result<OwnedFd> {
    let mut how = beneath() | rfs::ResolveFlags::NO_XDEV;
    if access == Access::Place {
        how.remove(rfs::ResolveFlags::NO_SYMLINKS);
    }
    rfs::openat2(dir, component(name)?, access.flags(), rfs::Mode::empty(), how).map_err(err)
}

/// Opens a directory below `dir` by several components at once, none of them a link.
pub fn open_below(dir: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    let flags = rfs::OFlags::PATH | rfs::OFlags::DIRECTORY | rfs::OFlags::CLOEXEC | rfs::OFlags::NOFOLLOW;
    open_beneath(dir, path, flags, beneath())
}

/// Opens the directory behind an O_PATH descriptor for listing.
pub fn open_self(dir: impl AsFd) -> Result<OwnedFd> {
    rfs::openat2(dir, c".", Access::Directory.flags(), rfs::Mode::empty(), beneath()).map_err(err)
}

/// Opens the object of a descriptor of this process once more, by its magic link in `own`, a directory like /proc/self/fd.
pub fn open_again(own: impl AsFd, file: impl AsFd, access: Access) -> Result<OwnedFd> {
    let flags = access.flags() - rfs::OFlags::NOFOLLOW;
    let name = file.as_fd().as_raw_fd().to_string();
    rfs::openat2(own, name, flags, rfs::Mode::empty(), rfs::ResolveFlags::empty()).map_err(err)
}

/// Makes a regular file `name` and opens it; EEXIST when there.
pub fn create_at(dir: impl AsFd, name: &[u8], access: Access, mode: u32) -> Result<OwnedFd> {
    let flags = access.flags() | rfs::OFlags::CREATE | rfs::OFlags::EXCL;
    rfs::openat2(dir, component(name)?, flags, rfs::Mode::from_raw_mode(mode & 0o7777), beneath())
        .map_err(err)
}

/// Makes a regular file without a name in `dir` (O_TMPFILE), open for reading and writing. EOPNOTSUPP where the file system
/// cannot.
pub fn create_unnamed(dir: impl AsFd, mode: u32) -> Result<OwnedFd> {
    let flags = Access::ReadWrite.flags() | rfs::OFlags::TMPFILE;
    rfs::openat2(dir, c".", flags, rfs::Mode::from_raw_mode(mode & 0o7777), beneath()).map_err(err)
}

/// pread(2), repeated when interrupted.
pub fn pread(fd: impl AsFd, buf: &mut [u8], off: u64) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut *buf, off)).map_err(err)
}

/// Fills `buf` from `off` on; less only at the end of the file.
pub fn pread_full(fd: impl AsFd, buf: &mut [u8], off: u64) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match pread(&fd, &mut buf[done..], off + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// As [`pread`] of `n` bytes, to the start of an area.
pub fn pread_area(fd: impl AsFd, to: &CopyArea<'_>, n: usize, off: u64) -> Result<usize> {
    let (p, at) = (to.room(0, n), libc::off_t::try_from(off).map_err(|_| Errno::EINVAL)?);
    loop {
        // SAFETY: the host writes to `n` bytes of the area, which `room` has checked.
        match unsafe { libc::pread(fd.as_fd().as_raw_fd(), p.cast(), n, at) } {
            -1 => match crate::last() {
                Errno::EINTR => {}
                e => return Err(e),
            },
            got => return Ok(got as usize),
        }
    }
}

/// pwrite(2), repeated when interrupted.
pub fn pwrite(fd: impl AsFd, buf: &[u8], off: u64) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pwrite(&fd, buf, off)).map_err(err)
}

/// Writes all of `buf` at `off`; less when an error came in between.
pub fn pwrite_full(fd: impl AsFd, buf: &[u8], off: u64) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match pwrite(&fd, &buf[done..], off + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// ftruncate(2).
pub fn truncate(fd: impl AsFd, len: u64) -> Result<()> {
    rfs::ftruncate(fd, len).map_err(err)
}

/// fallocate(2).
pub fn allocate(fd: impl AsFd, mode: i32, off: u64, len: u64) -> Result<()> {
    let mode = rfs::FallocateFlags::from_bits_retain(mode as u32);
    rfs::fallocate(fd, mode, off, len).map_err(err)
}

/// FICLONERANGE: `to` shares the blocks of `from`, `len` bytes of it, or up to its end with 0.
pub fn clone_range(to: impl AsFd, at: u64, from: impl AsFd, off: u64, len: u64) -> Result<()> {
    let from = i64::from(from.as_fd().as_raw_fd()) as u64;
    // struct file_clone_range
    let range: [u64; 4] = [from, off, len, at];
    // SAFETY: the host reads a local structure of the type that the request takes.
    crate::check(unsafe { libc::ioctl(to.as_fd().as_raw_fd(), FICLONERANGE, range.as_ptr()) }.into())
        .map(drop)
}

/// The request of [`clone_range`].
pub const FICLONERANGE: libc::c_ulong = 0x4020_940d;

/// lseek(2) with SEEK_DATA (`true`) or SEEK_HOLE.
pub fn seek_data_hole(fd: impl AsFd, off: u64, data: bool) -> Result<u64> {
    let to = if data { rfs::SeekFrom::Data(off) } else { rfs::SeekFrom::Hole(off) };
    rfs::seek(fd, to).map_err(err)
}

/// fsync(2) or fdatasync(2).
pub fn sync(fd: impl AsFd, data_only: bool) -> Result<()> {
    if data_only { rfs::fdatasync(fd) } else { rfs::fsync(fd) }.map_err(err)
}

/// fstatfs(2).
pub fn statfs(fd: impl AsFd) -> Result<StatFs> {
    let s = rfs::fstatfs(fd).map_err(err)?;
    Ok(StatFs {
        f_type: s.f_type,
        f_bsize: s.f_bsize,
        f_blocks: s.f_blocks,
        f_bfree: s.f_bfree,
        f_bavail: s.f_bavail,
        f_files: s.f_files,
        f_ffree: s.f_ffree,
        f_fsid: [0, 0],
        f_namelen: s.f_namelen,
        f_frsize: s.f_frsize,
        f_flags: s.f_flags,
        f_spare: [0; 4],
    })
}

/// One entry of a listing.
#[derive(Clone, Debug)]
pub struct ListEntry {
    /// Inode number.
    pub ino: u64,
    /// DT_* type.
    pub kind: u8,
    /// Name.
    pub name: Box<[u8]>,
}

/// The whole listing of a directory that has just been opened with [`Access::Directory`], without `.` and `..`.
pub fn list(dir: BorrowedFd<'_>) -> Result<Vec<ListEntry>> {
    let mut buf = Vec::with_capacity(32 * 1024);
    let mut raw = rfs::RawDir::new(dir, buf.spare_capacity_mut());
    let mut out = Vec::new();
    while let Some(e) = raw.next() {
        let e = e.map_err(err)?;
        let name = e.file_name().to_bytes();
        if name != b"." && name != b".." {
            out.push(ListEntry { ino: e.ino(), kind: kind(e.file_type()), name: name.into() });
        }
    }
    Ok(out)
}

/// DT_* of a type.
fn kind(of: rfs::FileType) -> u8 {
    match of {
        rfs::FileType::RegularFile => libc::DT_REG,
        rfs::FileType::Directory => libc::DT_DIR,
        rfs::FileType::Symlink => libc::DT_LNK,
        rfs::FileType::Fifo => libc::DT_FIFO,
        rfs::FileType::Socket => libc::DT_SOCK,
        rfs::FileType::CharacterDevice => libc::DT_CHR,
        rfs::FileType::BlockDevice => libc::DT_BLK,
        _ => libc::DT_UNKNOWN,
    }
}

/// One entry of a listing that is read piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct SomeEntry<'a> {
    /// Inode number.
    pub ino: u64,
    /// DT_* type.
    pub kind: u8,
    /// Name.
    pub name: &'a [u8],
    /// The position behind it, for [`seek_list`].
    pub next: u64,
}

/// One getdents64(2): entries from the position of an open directory on, as many as fit into `room` bytes of the host's
/// records. `.` and `..` are among them. False at the end.
pub fn list_some(dir: BorrowedFd<'_>, room: usize, mut each: impl FnMut(SomeEntry<'_>)) -> Result<bool> {
    let mut buf = Vec::with_capacity(room);
    let mut raw = rfs::RawDir::new(dir, buf.spare_capacity_mut());
    let mut any = false;
    while let Some(e) = raw.next() {
        let e = e.map_err(err)?;
        any = true;
        let (ino, kind, next) = (e.ino(), kind(e.file_type()), e.next_entry_cookie());
        each(SomeEntry { ino, kind, name: e.file_name().to_bytes(), next });
        // With an empty buffer it would ask the host again.
        if raw.is_buffer_empty() {
            break;
        }
    }
    Ok(any)
}

/// Sets the position of an open directory, as [`SomeEntry::next`] has it; 0 is the start.
pub fn seek_list(dir: impl AsFd, position: u64) -> Result<()> {
    rfs::seek(dir, rfs::SeekFrom::Start(position)).map(drop).map_err(err)
}

/// Appends at the end as the host sees it (RWF_APPEND). Returns the count.
pub fn append(fd: impl AsFd, buf: &[u8]) -> Result<usize> {
    let flags = rustix::io::ReadWriteFlags::APPEND;
    rustix::io::retry_on_intr(|| rustix::io::pwritev2(&fd, &[rustix::io::IoSlice::new(buf)], 0, flags))
        .map_err(err)
}
