//! poll(2), ppoll(2).

use crate::arg::{Fd, Ptr};
use crate::at::real_file;
use crate::timeout::{Timeout, from_millis};
use abi::Errno;
use caller::Limits;
use ipc::poll::{Watch, poll as wait_for};
use std::time::Instant;
use task::{Current, Restart, RestartBlock, SysErr, SysResult};
use wait::{Events, Stop};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct pollfd`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

fn do_poll(c: &mut Current, fds: Ptr, count: u32, deadline: Option<Instant>) -> Result<u64, SysErr> {
    if u64::from(count) > c.rlimit(libc::RLIMIT_NOFILE as i32) {
        return Err(Errno::EINVAL.into());
    }
    let mut table: Vec<PollFd> = c.read_array(fds.0, count as usize, count as usize)?;
    let mut bad = 0;
    let mut watches = Vec::with_capacity(table.len());
    for p in &mut table {
        p.revents = 0;
        let file = if p.fd < 0 { None } else { real_file(c, Fd(p.fd)).ok() };
        if p.fd >= 0 && file.is_none() {
            p.revents = libc::POLLNVAL;
            bad += 1;
        }
        watches.push(Watch::new(file, Events(u32::from(p.events as u16))));
    }
    // A bad descriptor is an answer: nothing to wait for then.
    let deadline = if bad > 0 { Some(Instant::now()) } else { deadline };
    let found = wait_for(c, &mut watches, deadline);
    let n = match found {
        Ok(n) => n + bad,
        Err(Stop::TimedOut) => bad,
        Err(Stop::Interrupted) => return Err(SysErr::Restart(Restart::NoHand)),
    };
    for (p, w) in table.iter_mut().zip(&watches) {
        p.revents |= w.revents.0 as i16;
    }
    c.write_bytes(fds.0, table.as_slice().as_bytes())?;
    Ok(n as u64)
}

/// poll(2) with its end as a moment: also what restart_syscall(2) goes on with.
pub fn poll_until(c: &mut Current, fds: u64, count: u32, deadline: Option<Instant>) -> SysResult {
    match do_poll(c, Ptr(fds), count, deadline) {
        Err(SysErr::Restart(_)) => {
            let deadline = deadline.map(|at| c.kernel().clock().ktime(at));
            c.restart_block = Some(RestartBlock::Poll { fds, count, deadline });
            Err(SysErr::Restart(Restart::Block))
        }
        done => done,
    }
}

pub fn poll(c: &mut Current, fds: Ptr, count: u32, timeout: i32) -> SysResult {
    poll_until(c, fds.0, count, from_millis(c, timeout))
}

pub fn ppoll(c: &mut Current, fds: Ptr, count: u32, timeout: Ptr, mask: Ptr, size: u64) -> SysResult {
    let timeout = Timeout::timespec(c, timeout)?;
    if !mask.is_null() {
        let mask = c.read_sigset(mask.0, size)?;
        c.set_temporary_mask(mask);
    }
    let r = do_poll(c, fds, count, timeout.deadline);
    if !matches!(r, Err(SysErr::Restart(_))) {
        c.restore_mask();
    }
    timeout.finish(c);
    r
}
