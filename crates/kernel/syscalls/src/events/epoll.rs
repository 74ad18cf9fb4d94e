//! epoll_create(2), epoll_ctl(2), epoll_wait(2) and relatives.

use crate::arg::{Fd, Ptr, check_flags};
use crate::at::real_file;
use crate::install::install;
use crate::timeout::{Timeout, from_millis};
use abi::Errno;
use ipc::epoll::{Epoll, Event};
use std::time::Instant;
use task::{Current, SysErr, SysResult};

/// Bytes of the packed `struct epoll_event`.
const EVENT_SIZE: usize = 12;
/// Most events one call may ask for.
const MAX_EVENTS: i32 = i32::MAX / EVENT_SIZE as i32;

pub fn epoll_create(c: &mut Current, size: i32) -> SysResult {
    if size <= 0 {
        return Err(Errno::EINVAL.into());
    }
    epoll_create1(c, 0)
}

pub fn epoll_create1(c: &mut Current, flags: i32) -> SysResult {
    check_flags(flags, libc::EPOLL_CLOEXEC)?;
    install(c, Epoll::create(c), flags & libc::EPOLL_CLOEXEC != 0)
}

pub fn epoll_ctl(c: &mut Current, epfd: Fd, op: i32, fd: Fd, event: Ptr) -> SysResult {
    let mut ev = Event::default();
    if op != libc::EPOLL_CTL_DEL {
        let mut b = [0; EVENT_SIZE];
        c.read_bytes(event.0, &mut b)?;
        let [e0, e1, e2, e3, data @ ..] = b;
        ev = Event { events: u32::from_ne_bytes([e0, e1, e2, e3]), data: u64::from_ne_bytes(data) };
    }
    let (epfile, file) = (real_file(c, epfd)?, real_file(c, fd)?);
    if file.ops.wait_queue(c).is_none() {
        return Err(Errno::EPERM.into());
    }
    let ep = Epoll::of(&epfile)?;
    if std::sync::Arc::ptr_eq(&epfile, &file) {
        return Err(Errno::EINVAL.into());
    }
    match op {
        libc::EPOLL_CTL_ADD => ep.add(c, fd.0, &file, ev)?,
        libc::EPOLL_CTL_MOD => ep.modify(c, fd.0, &file, ev)?,
        libc::EPOLL_CTL_DEL => ep.delete(fd.0, &file)?,
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// How long to wait for events.
#[derive(Clone, Copy)]
enum Wait {
    /// Milliseconds from now on; negative is for ever.
    Millis(i32),
    Until(Option<Instant>),
}

fn do_wait(c: &mut Current, epfd: Fd, events: Ptr, max: i32, wait: Wait) -> SysResult {
    if max <= 0 || max > MAX_EVENTS {
        return Err(Errno::EINVAL.into());
    }
    let file = real_file(c, epfd)?;
    let ep = Epoll::of(&file)?;
    let mut got = ep.collect(c, max as usize);
    if got.is_empty() {
        let deadline = match wait {
            Wait::Millis(0) => return Ok(0),
            Wait::Millis(ms) => from_millis(c, ms),
            Wait::Until(deadline) => deadline,
        };
        // Never restarted: an interrupted wait is EINTR whatever the handler's flags.
        got = ep.wait(c, max as usize, deadline).map_err(|_| Errno::EINTR)?;
    }
    let mut out = Vec::with_capacity(got.len() * EVENT_SIZE);
    for e in &got {
        out.extend_from_slice(&e.events.to_ne_bytes());
        out.extend_from_slice(&e.data.to_ne_bytes());
    }
    c.write_bytes(events.0, &out)?;
    Ok(got.len() as u64)
}

pub fn epoll_wait(c: &mut Current, epfd: Fd, events: Ptr, max: i32, timeout: i32) -> SysResult {
    do_wait(c, epfd, events, max, Wait::Millis(timeout))
}

pub(crate) fn masked(
    c: &mut Current,
    mask: Ptr,
    size: u64,
    wait: impl FnOnce(&mut Current) -> SysResult,
) -> SysResult {
    if !mask.is_null() {
        let mask = c.read_sigset(mask.0, size)?;
        c.set_temporary_mask(mask);
    }
    let r = wait(c);
    // After EINTR the handler still has to run under the temporary mask.
    if r != Err(SysErr::Errno(Errno::EINTR)) {
        c.restore_mask();
    }
    r
}

pub fn epoll_pwait(
    c: &mut Current,
    epfd: Fd,
    events: Ptr,
    max: i32,
    timeout: i32,
    mask: Ptr,
    size: u64,
) -> SysResult {
    masked(c, mask, size, |c| do_wait(c, epfd, events, max, Wait::Millis(timeout)))
}

pub fn epoll_pwait2(
    c: &mut Current,
    epfd: Fd,
    events: Ptr,
    max: i32,
    timeout: Ptr,
    mask: Ptr,
    size: u64,
) -> SysResult {
    let wait = Wait::Until(Timeout::timespec(c, timeout)?.deadline);
    masked(c, mask, size, |c| do_wait(c, epfd, events, max, wait))
}
