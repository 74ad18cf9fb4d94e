//! futex_waitv(2), futex_wake(2), futex_wait(2), futex_requeue(2). The platform runs them on the host's own futexes; they
//! come here only where every call is reported, and then go back to it.

use abi::Errno;
use task::{Current, SysErr, SysResult};

fn native(c: &mut Current) -> SysResult {
    Err(if c.pass_futex() { SysErr::NoReturn } else { Errno::ENOSYS.into() })
}

pub fn futex_waitv(
    c: &mut Current,
    _waiters: u64,
    _n: u32,
    _flags: u32,
    _end: u64,
    _clock: i32,
) -> SysResult {
    native(c)
}

pub fn futex_wake(c: &mut Current, _addr: u64, _mask: u64, _n: i32, _flags: u32) -> SysResult {
    native(c)
}

pub fn futex_wait(
    c: &mut Current,
    _addr: u64,
    _value: u64,
    _mask: u64,
    _flags: u32,
    _end: u64,
    _clock: i32,
) -> SysResult {
    native(c)
}

pub fn futex_requeue(c: &mut Current, _waiters: u64, _flags: u32, _wake: i32, _requeue: i32) -> SysResult {
    native(c)
}
