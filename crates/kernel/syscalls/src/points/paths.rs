//! Calls that take a path: it is told as the program wrote it, and a directory by its path.

use super::schemas;

/// The descriptor of a call that has none and looks from the working directory.
const CWD: i64 = libc::AT_FDCWD as i64;

/// Flags of open(2) that creat(2) stands for.
const CREAT_FLAGS: u32 = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u32;

schemas! {
    /// open(2).
    OPEN: Open MESSAGE_SYSCALL_OPEN [FD_PATH]
        |e| { fd: CWD, pathname: e.path(0), flags: e.arg(1) as u32, mode: e.arg(2) as u32 };
    /// openat(2).
    OPENAT: Open MESSAGE_SYSCALL_OPEN [FD_PATH] |e| {
        fd: e.fd(0), fd_path: e.dir_path(0), pathname: e.path(1), flags: e.arg(2) as u32, mode: e.arg(3) as u32
    };
    /// creat(2).
    CREAT: Open MESSAGE_SYSCALL_OPEN [FD_PATH]
        |e| { fd: CWD, pathname: e.path(0), flags: CREAT_FLAGS, mode: e.arg(1) as u32 };
    /// chdir(2).
    CHDIR: Chdir MESSAGE_SYSCALL_CHDIR [FD_PATH] |e| { fd: CWD, pathname: e.path(0) };
    /// fchdir(2).
    FCHDIR: Chdir MESSAGE_SYSCALL_CHDIR [FD_PATH] |e| { fd: e.fd(0), fd_path: e.fd_path(0) };
    /// chroot(2).
    CHROOT: Chroot MESSAGE_SYSCALL_CHROOT [] |e| { pathname: e.path(0) };
}
