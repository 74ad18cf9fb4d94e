//! futex(2) wait and wake on words that may be shared between processes.

use abi::Result;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, for `at_most` that long. Returns on a wake-up; EAGAIN when the value differs,
/// EINTR on a signal, ETIMEDOUT.
pub fn wait(word: &AtomicU32, expected: u32, at_most: Duration) -> Result<()> {
    let timeout = libc::timespec {
        tv_sec: at_most.as_secs().min(i32::MAX as u64) as i64,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: the word and the timeout are valid for the call; FUTEX_WAIT writes nothing.
    let r = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
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
