//! The Linux system interface as plain data: error numbers, structures and
//! flags of x86-64, with no behaviour beyond conversion and validation.
//!
//! Raw constants come from the `libc` crate, re-exported as [`libc`]; types
//! here exist where the C type is awkward (errno, identifiers, registers).

#![forbid(unsafe_code)]

pub mod clone;
pub mod cpus;
pub mod errno;
pub mod mount;
pub mod signal;
pub mod stat;
pub mod time;

pub use cpus::CpuMask;
pub use errno::{Errno, Result};
pub use libc;
pub use signal::{SigInfo, SigSet, Signal};

/// Size of a page in bytes.
pub const PAGE_SIZE: u64 = 4096;
/// Longest path, terminating NUL included (limits.h).
pub const PATH_MAX: usize = 4096;
/// Longest file name component, without NUL.
pub const NAME_MAX: usize = 255;

/// Rounds down to a page boundary.
pub const fn page_down(a: u64) -> u64 {
    a & !(PAGE_SIZE - 1)
}

/// Rounds up to a page boundary; `None` on overflow.
pub const fn page_up(a: u64) -> Option<u64> {
    match a.checked_add(PAGE_SIZE - 1) {
        Some(v) => Some(v & !(PAGE_SIZE - 1)),
        None => None,
    }
}
