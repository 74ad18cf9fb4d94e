//! Calls to the host kernel as safe functions over owned descriptors.
//!
//! Every other crate that talks to the host does it through this one (or through
//! `rustix`'s safe interface); SOUNDNESS.md says what its callers may assume.

#![expect(unsafe_code, reason = "the floor: raw host system calls")]

pub mod clock;
pub mod cpu;
pub mod crash;
pub mod fanotify;
pub mod figures;
pub mod fs;
pub mod futex;
pub mod heap;
pub mod image;
pub mod inherited;
pub mod many_fds;
pub mod memfd;
pub mod mounts;
pub mod net;
pub mod one_fd;
pub mod own;
pub mod packet;
pub mod page_file;
pub mod pagemap;
pub mod perf;
pub mod process;
pub mod ptrace;
pub mod seccomp;
pub mod signals;
pub mod spawn;
pub mod tun;
pub mod view;

use abi::{Errno, Result};

/// errno of the last failed libc call.
fn last() -> Errno {
    Errno::from(std::io::Error::last_os_error())
}

fn errno(e: rustix::io::Errno) -> Errno {
    Errno::from_raw(e.raw_os_error())
}

/// Result of a libc call that returns -1 and sets errno.
fn check(r: i64) -> Result<i64> {
    if r < 0 { Err(last()) } else { Ok(r) }
}
