//! syslog(2): the kernel's log, see the crate `kmsg`.

use crate::arg::Ptr;
use abi::{Errno, Result};
use caller::HasCredentials;
use rights::Cap;
use task::{Current, SysErr, SysResult};
use wait::{Events, Stop};

pub fn syslog(c: &mut Current, kind: i32, buf: Ptr, len: i32) -> SysResult {
    // Only privileged processes may read the log: kernel.dmesg_restrict is 1.
    if !c.creds().capable(Cap::SYSLOG) && !c.creds().capable(Cap::SYS_ADMIN) {
        return Err(Errno::EPERM.into());
    }
    let log = c.kernel().log.clone();
    let room = usize::try_from(len).unwrap_or(0).min(kmsg::SIZE * 2);
    match kind {
        2..=4 if buf.is_null() || len < 0 => Err(Errno::EINVAL.into()),
        2..=4 if len == 0 => Ok(0),
        2 => {
            wait_for_more(c)?;
            let bytes = log.read(room);
            put(c, buf, &bytes)
        }
        3 | 4 => {
            let bytes = log.last(room, kind == 4);
            put(c, buf, &bytes)
        }
        5 => {
            log.clear();
            Ok(0)
        }
        8 if !(1..=8).contains(&len) => Err(Errno::EINVAL.into()),
        // There is no console that messages go to, so nothing opens, closes or is turned off.
        0 | 1 | 6 | 7 | 8 => Ok(0),
        9 => Ok(log.unread() as u64),
        10 => Ok(kmsg::SIZE as u64),
        _ => Err(Errno::EINVAL.into()),
    }
}

fn put(c: &mut Current, to: Ptr, bytes: &[u8]) -> SysResult {
    c.write_bytes(to.0, bytes)?;
    Ok(bytes.len() as u64)
}

/// Sleeps until there is something that SYSLOG_ACTION_READ has not read.
fn wait_for_more(c: &Current) -> Result<(), SysErr> {
    let log = c.kernel().log.clone();
    let _sub = log.queue().subscribe(Events::READABLE, c.task.waiter.clone());
    while log.unread() == 0 {
        match c.task.waiter.sleep(None) {
            Ok(()) | Err(Stop::TimedOut) => {}
            Err(Stop::Interrupted) => return Err(SysErr::Restart(task::Restart::Sys)),
        }
    }
    Ok(())
}
