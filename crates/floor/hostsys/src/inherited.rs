//! Descriptors that the parent process passed across exec.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers already handed out.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes ownership of descriptor `number` (3 to 63), which the parent passed across exec.
///
/// A descriptor opened by this process has close-on-exec set, one that came
/// across exec does not: only the latter is handed out, once, and closed at
/// the next exec from then on.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if !(3..64).contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_GETFD touches no memory, and fails on a number that is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let bit = 1u64 << number;
    if flags & libc::FD_CLOEXEC != 0 || TAKEN.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: as above; the number is open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, was not opened by this process, and has not been handed out before.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
