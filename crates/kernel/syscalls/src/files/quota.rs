//! quotactl(2), quotactl_fd(2): no file system here has quotas, and there are no block devices.

use crate::arg::{Fd, PathPtr};
use crate::at::{CWD, read};
use abi::stat::S_IFBLK;
use abi::{Errno, Result};
use namei::Lookup;
use namei::walk::lookup;
use task::{Current, SysResult};

/// Kinds of quotas: of users, groups, projects.
const KINDS: u32 = 3;
const Q_SYNC: u32 = 0x80_0001;

fn check(cmd: u32) -> Result<u32> {
    if cmd & 0xff >= KINDS { Err(Errno::EINVAL) } else { Ok(cmd >> 8) }
}

pub fn quotactl(c: &mut Current, cmd: u32, special: PathPtr, _id: u32, _addr: u64) -> SysResult {
    let cmd = check(cmd)?;
    if special.0 == 0 {
        // Nothing is to be written.
        return if cmd == Q_SYNC { Ok(0) } else { Err(Errno::ENODEV.into()) };
    }
    let (start, path) = read(c, CWD, special)?;
    let found = lookup(c, &c.fs().view(), &start, &path, Lookup::FOLLOW)?;
    let block = found.inode().attr()?.mode & libc::S_IFMT == S_IFBLK;
    Err(if block { Errno::ENODEV } else { Errno::ENOTBLK }.into())
}

pub fn quotactl_fd(c: &mut Current, fd: Fd, cmd: u32, _id: u32, _addr: u64) -> SysResult {
    c.file(fd.0)?;
    check(cmd)?;
    Err(Errno::ENOSYS.into())
}
