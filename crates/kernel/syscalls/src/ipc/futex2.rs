//! futex_waitv(2), futex_wake(2), futex_wait(2), futex_requeue(2). The platform runs them on the host's own futexes; they
//! come here only where every call is reported, and then go back to it.

use abi::Errno;
use task::{Current, SysErr, SysResult};

/// Passes a call on. `until`: where its absolute time-out is, and the clock that counts.
fn native(c: &mut Current, until: Option<(u64, i32)>) -> SysResult {
    let timeout = match until {
        Some((at, libc::CLOCK_MONOTONIC)) => crate::ipc::futex::host_timeout(c, at)?,
        _ => None,
    };
    Err(if c.pass_futex(timeout) { SysErr::NoReturn } else { Errno::ENOSYS.into() })
}

pub fn futex_waitv(c: &mut Current, _waiters: u64, _n: u32, _flags: u32, end: u64, clock: i32) -> SysResult {
    native(c, Some((end, clock)))
}

pub fn futex_wake(c: &mut Current, _addr: u64, _mask: u64, _n: i32, _flags: u32) -> SysResult {
    native(c, None)
}

pub fn futex_wait(
    c: &mut Current,
    _addr: u64,
    _value: u64,
    _mask: u64,
    _flags: u32,
    end: u64,
    clock: i32,
) -> SysResult {
    native(c, Some((end, clock)))
}

pub fn futex_requeue(c: &mut Current, _waiters: u64, _flags: u32, _wake: i32, _requeue: i32) -> SysResult {
    native(c, None)
}
