//! futex(2): what the platform does not run on the host's own futex.

use crate::arg::Ptr;
use abi::{Errno, PAGE_SIZE};
use std::sync::atomic::Ordering;
use task::{Current, SysErr, SysResult};
use vfs::{Caller, Cap};

const CMD_MASK: u32 = 0x7f;
const CLOCK_REALTIME_FLAG: u32 = 256;

pub fn futex(
    c: &mut Current,
    addr: u64,
    op: u32,
    _val: u32,
    _timeout: u64,
    _addr2: u64,
    _val3: u32,
) -> SysResult {
    let command = (op & CMD_MASK) as i32;
    let timed = matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET);
    if op & CLOCK_REALTIME_FLAG != 0 && !timed && command != libc::FUTEX_WAIT_REQUEUE_PI {
        return Err(Errno::ENOSYS.into());
    }
    match command {
        // The platform runs these itself; they get here only when it could not.
        libc::FUTEX_WAIT
        | libc::FUTEX_WAKE
        | libc::FUTEX_WAIT_BITSET
        | libc::FUTEX_WAKE_BITSET
        | libc::FUTEX_REQUEUE
        | libc::FUTEX_CMP_REQUEUE
        | libc::FUTEX_WAKE_OP => native(c, addr),
        // Priority inheritance: as a kernel built without it.
        _ => Err(Errno::ENOSYS.into()),
    }
}

fn native(c: &mut Current, addr: u64) -> SysResult {
    // Reported because every call is: it is made after all.
    if c.ctx.pass_futex() {
        return Err(SysErr::NoReturn);
    }
    if !addr.is_multiple_of(4) {
        return Err(Errno::EINVAL.into());
    }
    if addr >= c.kernel().platform.limits().max || addr < PAGE_SIZE {
        return Err(Errno::EFAULT.into());
    }
    Err(Errno::EFAULT.into())
}

pub fn set_robust_list(c: &mut Current, head: u64, len: u64) -> SysResult {
    if len != 24 {
        return Err(Errno::EINVAL.into());
    }
    c.task.robust_list.store(head, Ordering::Relaxed);
    Ok(0)
}

pub fn get_robust_list(c: &mut Current, pid: i32, head: Ptr, len: Ptr) -> SysResult {
    let t = if pid == 0 { c.task.clone() } else { c.kernel().task(pid).ok_or(Errno::ESRCH)? };
    let (me, them) = (c.creds(), t.creds());
    if t.tgid() != c.task.tgid() && me.euid != them.uid && !me.capable(Cap::SYS_PTRACE) {
        return Err(Errno::EPERM.into());
    }
    c.write_value(len.0, &24u64)?;
    let h = t.robust_list.load(Ordering::Relaxed);
    c.write_value(head.0, &h)?;
    Ok(0)
}
