//! Calls that answer as on a system where they are not to be had.

use crate::arg::Ptr;
use abi::Errno;
use task::{Current, SysResult};

pub fn swapon(_c: &mut Current, _path: Ptr, _flags: i32) -> SysResult {
    Err(Errno::EPERM.into())
}

pub fn swapoff(_c: &mut Current, _path: Ptr) -> SysResult {
    Err(Errno::EPERM.into())
}
