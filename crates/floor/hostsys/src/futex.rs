//! futex(2) wait and wake on words that may be shared between processes.

use abi::{Errno, Result};
use std::ptr;
use std::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `expected`. Returns on a wake-up; EAGAIN when the value differs, EINTR on a signal.
pub fn wait(word: &AtomicU32, expected: u32) -> Result<()> {
    // SAFETY: the word is valid for the call; no timeout; FUTEX_WAIT writes nothing.
    let r = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            ptr::null::<libc::timespec>(),
            0usize,
            0u32,
        )
    };
    crate::check(r).map(drop)
}

/// Wakes up to `count` waiters.
pub fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: FUTEX_WAKE only uses the address as a key.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Whether an error of [`wait`] only means "look again".
pub fn is_retry(e: Errno) -> bool {
    e == Errno::EAGAIN || e == Errno::EINTR
}
