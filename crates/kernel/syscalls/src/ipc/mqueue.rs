//! POSIX message queues: mq_open(2) and relatives. The queues are in the crate `mqueue`.

use crate::arg::{Fd, PathPtr, Ptr};
use abi::time::Timespec;
use abi::{Errno, PATH_MAX};
use caller::Failure;
use mqueue::{Attributes, COOKIE, PRIORITIES, QueueFile};
use std::time::{Duration, Instant};
use task::{Current, SysErr, SysResult};

pub fn mq_open(c: &mut Current, name: PathPtr, flags: i32, mode: u32, attr: Ptr) -> SysResult {
    let wanted = match attr.is_null() {
        true => None,
        false => Some(c.read_value::<Attributes>(attr.0)?),
    };
    let name = c.read_cstr(name.0, PATH_MAX, Errno::ENAMETOOLONG)?;
    let f = c.task.nsproxy().ipc.mqueue.clone().open(c, &name, flags, mode, wanted.as_ref())?;
    Ok(c.install(f, true)? as u64)
}

pub fn mq_unlink(c: &mut Current, name: PathPtr) -> SysResult {
    let name = c.read_cstr(name.0, PATH_MAX, Errno::ENAMETOOLONG)?;
    c.task.nsproxy().ipc.mqueue.clone().remove(c, &name)?;
    Ok(0)
}

/// An absolute time-out on CLOCK_REALTIME.
fn deadline(c: &Current, at: Ptr) -> Result<Option<Instant>, Errno> {
    if at.is_null() {
        return Ok(None);
    }
    let end = c.read_value::<Timespec>(at.0)?.to_duration()?;
    let now = hostsys::clock::gettime_ns(libc::CLOCK_REALTIME).ok_or(Errno::EINVAL)?;
    Ok(crate::timeout::after(end.saturating_sub(Duration::from_nanos(now as u64))))
}

fn blocking<T>(r: caller::Outcome<T>) -> Result<T, SysErr> {
    r.map_err(|f| match f {
        Failure::TimedOut => SysErr::Errno(Errno::ETIMEDOUT),
        f => f.into(),
    })
}

pub fn mq_timedsend(c: &mut Current, fd: Fd, text: Ptr, len: u64, priority: u32, timeout: Ptr) -> SysResult {
    let end = deadline(c, timeout)?;
    if priority >= PRIORITIES {
        return Err(Errno::EINVAL.into());
    }
    let f = c.file(fd.0)?;
    let q = QueueFile::of(&f)?;
    if !f.writable() {
        return Err(Errno::EBADF.into());
    }
    q.check_send(len)?;
    let mut bytes = vec![0; len as usize];
    c.read_bytes(text.0, &mut bytes)?;
    blocking(q.send(c, &f, &bytes, priority, end))?;
    Ok(0)
}

pub fn mq_timedreceive(
    c: &mut Current,
    fd: Fd,
    text: Ptr,
    len: u64,
    priority: Ptr,
    timeout: Ptr,
) -> SysResult {
    let end = deadline(c, timeout)?;
    let f = c.file(fd.0)?;
    let q = QueueFile::of(&f)?;
    if !f.readable() {
        return Err(Errno::EBADF.into());
    }
    let (bytes, prio) = blocking(q.receive(c, &f, len, end))?;
    c.write_bytes(text.0, &bytes)?;
    if !priority.is_null() {
        c.write_value(priority.0, &prio)?;
    }
    Ok(bytes.len() as u64)
}

pub fn mq_notify(c: &mut Current, fd: Fd, event: Ptr) -> SysResult {
    let wanted = if event.is_null() {
        None
    } else {
        let [value, signo_how, ..] = c.read_value::<[u64; 8]>(event.0)?;
        let (signo, how) = (signo_how as i32, (signo_how >> 32) as i32);
        // The cookie comes before the descriptor, as on Linux.
        let socket = match how {
            libc::SIGEV_THREAD => {
                let cookie = c.read_value::<[u8; COOKIE]>(value)?;
                Some((c.file(signo)?, cookie))
            }
            _ => None,
        };
        Some(task::message_notification(&c.task.group, (how, signo, value), socket.as_ref())?)
    };
    let f = c.file(fd.0)?;
    QueueFile::of(&f)?.notify(c, wanted)?;
    Ok(0)
}

pub fn mq_getsetattr(c: &mut Current, fd: Fd, new: Ptr, old: Ptr) -> SysResult {
    let wanted = match new.is_null() {
        true => None,
        false => Some(c.read_value::<Attributes>(new.0)?),
    };
    if wanted.is_some_and(|w| w.flags & !i64::from(libc::O_NONBLOCK) != 0) {
        return Err(Errno::EINVAL.into());
    }
    let f = c.file(fd.0)?;
    let before = QueueFile::of(&f)?.attributes(&f);
    if let Some(w) = wanted {
        f.set_status(f.flags() & !libc::O_NONBLOCK | w.flags as i32);
    }
    if !old.is_null() {
        c.write_value(old.0, &before)?;
    }
    Ok(0)
}
