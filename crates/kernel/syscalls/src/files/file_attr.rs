//! file_getattr(2), file_setattr(2): flags of inodes (chattr(1)), project IDs and sizes of extents. No file system has any.

use crate::arg::{DirFd, Fd, PathPtr, Ptr, check_flags};
use crate::at::{At, CWD, follow, real_file};
use abi::{Errno, PAGE_SIZE, Result};
use task::{Current, SysResult};

/// Bytes of the first version of `struct file_attr`.
const SIZE: usize = 24;
/// The bits of `fa_xflags` that there are (FS_XFLAGS_MASK).
const FLAGS: u64 = 0x8001_fffb;

fn check(size: u64, flags: i32) -> Result<()> {
    check_flags(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
    if size > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    if size < SIZE as u64 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// EBADF and the errors of a walk for what is not there.
fn find(c: &Current, dir: DirFd, path: PathPtr, flags: i32) -> Result<()> {
    let at = At::or_null(c, dir, path, flags)?;
    if at.path.is_empty() && dir != CWD {
        real_file(c, Fd(dir.0))?;
    } else {
        at.lookup(c, follow(flags))?;
    }
    Ok(())
}

pub fn file_getattr(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    _attributes: Ptr,
    size: u64,
    flags: i32,
) -> SysResult {
    check(size, flags)?;
    find(c, dir, path, flags)?;
    Err(Errno::EOPNOTSUPP.into())
}

pub fn file_setattr(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    attributes: Ptr,
    size: u64,
    flags: i32,
) -> SysResult {
    check(size, flags)?;
    let mut raw = vec![0; size as usize];
    c.read_bytes(attributes.0, &mut raw)?;
    if raw.iter().skip(SIZE).any(|byte| *byte != 0) {
        return Err(Errno::E2BIG.into());
    }
    let wanted = raw.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    if wanted & !FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    find(c, dir, path, flags)?;
    Err(Errno::EOPNOTSUPP.into())
}
