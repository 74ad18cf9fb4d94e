//! pipe(2), pipe2(2).

use crate::arg::{Ptr, check_flags};
use crate::install::install_pair;
use ipc::pipe::Pipe;
use task::{Current, SysResult};

pub fn pipe(c: &mut Current, fds: Ptr) -> SysResult {
    pipe2(c, fds, 0)
}

pub fn pipe2(c: &mut Current, fds: Ptr, flags: i32) -> SysResult {
    check_flags(flags, libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_DIRECT)?;
    let pair = Pipe::pair(c, flags)?;
    install_pair(c, pair, flags & libc::O_CLOEXEC != 0, fds.0)
}
