//! mmap(2).

use super::schemas;

schemas! {
    /// mmap(2).
    MMAP: Mmap MESSAGE_SYSCALL_MMAP [FD_PATH] |e| {
        fd: e.fd(4), fd_path: e.fd_path(4), addr: e.arg(0), length: e.arg(1), prot: e.arg(2) as u32,
        flags: e.arg(3) as u32, offset: e.arg(5) as i64
    };
}
