//! File calls that answer as on a system where they are not to be had.

use crate::arg::{DirFd, Fd, PathPtr, Ptr};
use crate::at;
use abi::Errno;
use task::{Current, SysResult};
use vfs::{Caller, Cap};

/// No file system here can be asked for handles.
pub fn name_to_handle_at(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    _handle: Ptr,
    _mount_id: Ptr,
    flags: i32,
) -> SysResult {
    at::read_flags(c, dir, path, flags)?;
    Err(Errno::EOPNOTSUPP.into())
}

pub fn open_by_handle_at(c: &mut Current, _mount: Fd, _handle: Ptr, _flags: i32) -> SysResult {
    let allowed = c.creds().capable(Cap::DAC_READ_SEARCH);
    Err(if allowed { Errno::EOPNOTSUPP } else { Errno::EPERM }.into())
}

pub fn swapon(_c: &mut Current, _path: Ptr, _flags: i32) -> SysResult {
    Err(Errno::EPERM.into())
}

pub fn swapoff(_c: &mut Current, _path: Ptr) -> SysResult {
    Err(Errno::EPERM.into())
}
