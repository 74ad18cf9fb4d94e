//! Sizes and storage: truncate(2), fallocate(2), fsync(2), posix_fadvise(2), memfd_create(2).

use crate::arg::{Fd, PathPtr, Ptr};
use crate::at::real_file;
use abi::stat::{S_IFBLK, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG};
use abi::{Errno, PAGE_SIZE, Result, Signal};
use caller::{Blocking, HasCredentials, Limits};
use namei::attr;
use namei::walk::anew;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::file::file_kind;
use vfs::{MapRequest, Mapping, notify};

pub fn truncate(c: &mut Current, path: PathPtr, len: i64) -> SysResult {
    if len < 0 {
        return Err(Errno::EINVAL.into());
    }
    let path = c.read_path(path.0)?;
    anew(&c.fs().view(), |view| attr::truncate(c, view, &path, len))?;
    Ok(0)
}

pub fn ftruncate(c: &mut Current, fd: Fd, len: i64) -> SysResult {
    if len < 0 {
        return Err(Errno::EINVAL.into());
    }
    let f = c.file(fd.0)?;
    attr::ftruncate(c, &f, len)?;
    Ok(0)
}

const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const COLLAPSE_RANGE: i32 = 0x08;
const ZERO_RANGE: i32 = 0x10;
const INSERT_RANGE: i32 = 0x20;
const UNSHARE_RANGE: i32 = 0x40;

/// What may be combined in the mode of fallocate(2).
fn check_mode(mode: i32) -> Result<()> {
    let known = KEEP_SIZE | PUNCH_HOLE | COLLAPSE_RANGE | ZERO_RANGE | INSERT_RANGE | UNSHARE_RANGE;
    if mode & !known != 0 || mode & (PUNCH_HOLE | ZERO_RANGE) == PUNCH_HOLE | ZERO_RANGE {
        return Err(Errno::EOPNOTSUPP);
    }
    if mode & PUNCH_HOLE != 0 && mode & KEEP_SIZE == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let alone = |bit: i32, with: i32| mode & bit != 0 && mode & !(bit | with) != 0;
    if alone(COLLAPSE_RANGE, 0) || alone(INSERT_RANGE, 0) || alone(UNSHARE_RANGE, KEEP_SIZE) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

pub fn fallocate(c: &mut Current, fd: Fd, mode: i32, off: i64, len: i64) -> SysResult {
    let f = real_file(c, fd)?;
    if off < 0 || len <= 0 {
        return Err(Errno::EINVAL.into());
    }
    check_mode(mode)?;
    vfs::policing::decide_io(c, policy::Kind::FileWrite, &f)?;
    if !f.writable() {
        return Err(Errno::EBADF.into());
    }
    match file_kind(&f) {
        S_IFREG | S_IFBLK => {}
        S_IFIFO => return Err(Errno::ESPIPE.into()),
        S_IFDIR => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::ENODEV.into()),
    }
    let end = off.checked_add(len).ok_or(Errno::EFBIG)?;
    let grows = mode & (KEEP_SIZE | PUNCH_HOLE | COLLAPSE_RANGE) == 0 && end as u64 > f.attr()?.size;
    if grows && end as u64 > c.rlimit(libc::RLIMIT_FSIZE as i32) {
        c.raise(Signal::SIGXFSZ);
        return Err(Errno::EFBIG.into());
    }
    files::io::strip_set_id(c, &f)?;
    f.ops.allocate(c, &f, mode, off as u64, len as u64)?;
    notify::by_file(c, &f, notify::event::MODIFY);
    Ok(0)
}

/// `struct cachestat_range`, and five counts of pages: in the cache, dirty, being written, evicted, recently evicted.
pub fn cachestat(c: &mut Current, fd: Fd, range: Ptr, to: Ptr, flags: u32) -> SysResult {
    let f = real_file(c, fd)?;
    let [off, len] = c.read_value::<[u64; 2]>(range.0)?;
    if let Some(i) = f.inode.as_ref().filter(|_| !f.writable())
        && !rights::mode::owner_or_capable(&c.creds(), &i.perm()?)
        && vfs::access::inode_may(c, i, rights::mode::MAY_WRITE).is_err()
    {
        return Err(Errno::EPERM.into());
    }
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    // What cannot be mapped has no pages.
    let ask = MapRequest { prot: libc::PROT_READ, shared: false, offset: 0, len: PAGE_SIZE };
    let counts = match f.ops.map(c, &f, &ask) {
        Ok(Mapping::Host { fd, offset: 0 }) => hostsys::memfd::cachestat(&fd, off, len)?,
        _ => [0; 5],
    };
    c.write_value(to.0, &counts)?;
    Ok(0)
}

pub fn fsync(c: &mut Current, fd: Fd) -> SysResult {
    let f = real_file(c, fd)?;
    f.ops.sync(c, &f, false)?;
    Ok(0)
}

pub fn fdatasync(c: &mut Current, fd: Fd) -> SysResult {
    let f = real_file(c, fd)?;
    f.ops.sync(c, &f, true)?;
    Ok(0)
}

pub fn sync(c: &mut Current) -> SysResult {
    let mut done: Vec<u64> = Vec::new();
    for m in c.fs().view().ns.mounts() {
        let id = Arc::as_ptr(&m.sb) as u64;
        if !done.contains(&id) {
            done.push(id);
            // sync(2) has no errors.
            let _ = m.fs().sync();
        }
    }
    Ok(0)
}

pub fn syncfs(c: &mut Current, fd: Fd) -> SysResult {
    let f = real_file(c, fd)?;
    if let Some(i) = &f.inode {
        i.fs().sync()?;
    }
    Ok(0)
}

pub fn sync_file_range(c: &mut Current, fd: Fd, off: i64, len: i64, flags: u32) -> SysResult {
    let f = real_file(c, fd)?;
    if flags & !7 != 0 || off < 0 || len < 0 || off.checked_add(len).is_none() {
        return Err(Errno::EINVAL.into());
    }
    if !matches!(file_kind(&f), S_IFREG | S_IFBLK | S_IFDIR | S_IFLNK) {
        return Err(Errno::ESPIPE.into());
    }
    if flags != 0 {
        match f.ops.sync(c, &f, true) {
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(0)
}

pub fn readahead(c: &mut Current, fd: Fd, _off: i64, _len: u64) -> SysResult {
    let f = c.file(fd.0)?;
    if !f.readable() {
        return Err(Errno::EBADF.into());
    }
    if !matches!(file_kind(&f), S_IFREG | S_IFBLK) {
        return Err(Errno::EINVAL.into());
    }
    Ok(0)
}

pub fn fadvise64(c: &mut Current, fd: Fd, _off: i64, len: i64, advice: i32) -> SysResult {
    let f = real_file(c, fd)?;
    if file_kind(&f) == S_IFIFO {
        return Err(Errno::ESPIPE.into());
    }
    if len < 0 || !(libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&advice) {
        return Err(Errno::EINVAL.into());
    }
    Ok(0)
}

const MFD_CLOEXEC: u32 = 1;
const MFD_ALLOW_SEALING: u32 = 2;
const MFD_HUGETLB: u32 = 4;
const MFD_NOEXEC_SEAL: u32 = 8;
const MFD_EXEC: u32 = 0x10;
/// Longest name: a file name without `memfd:`.
const MFD_NAME_MAX: usize = 249;

pub fn memfd_create(c: &mut Current, name: Ptr, flags: u32) -> SysResult {
    let known = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC;
    let both = MFD_EXEC | MFD_NOEXEC_SEAL;
    if flags & MFD_HUGETLB != 0 {
        return Err(Errno::ENOSYS.into());
    }
    if flags & !known != 0 || flags & both == both {
        return Err(Errno::EINVAL.into());
    }
    let name = c.read_cstr(name.0, MFD_NAME_MAX + 1, Errno::EINVAL)?;
    let f = c.kernel().memfds.memfd(c, &name, flags)?;
    Ok(c.install(f, flags & MFD_CLOEXEC != 0)? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallocate_modes() {
        for ok in [0, 1, 3, 8, 0x10, 0x11, 0x20, 0x40, 0x41] {
            assert_eq!(check_mode(ok), Ok(()), "{ok:#x}");
        }
        for (bad, e) in [
            (2, Errno::EOPNOTSUPP),
            (4, Errno::EOPNOTSUPP),
            (0x13, Errno::EOPNOTSUPP),
            (9, Errno::EINVAL),
            (0x21, Errno::EINVAL),
            (0x50, Errno::EINVAL),
        ] {
            assert_eq!(check_mode(bad), Err(e), "{bad:#x}");
        }
    }
}
