//! Giving a new open file a descriptor.

use caller::Limits;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::OpenFile;

/// The soft limit on descriptor numbers.
pub fn limit(c: &Current) -> u64 {
    c.rlimit(libc::RLIMIT_NOFILE as i32)
}

/// The lowest free descriptor for `file`; EMFILE when there is none.
pub fn install(c: &Current, file: Arc<OpenFile>, cloexec: bool) -> SysResult {
    Ok(c.fd_table().install(file, cloexec, limit(c))? as u64)
}

/// Two descriptors, written to guest memory as `int[2]`. Nothing is left behind on failure.
pub fn install_pair(
    c: &mut Current,
    files: (Arc<OpenFile>, Arc<OpenFile>),
    cloexec: bool,
    to: u64,
) -> SysResult {
    let max = limit(c);
    let a = c.fd_table().reserve(max)?;
    let b = c.fd_table().reserve(max)?;
    c.write_value(to, &[a.fd(), b.fd()])?;
    a.commit(files.0, cloexec);
    b.commit(files.1, cloexec);
    Ok(0)
}
