//! futex(2): what the platform does not run on the host's own futex.

use crate::arg::Ptr;
use abi::time::Timespec;
use abi::{Errno, PAGE_SIZE};
use caller::HasCredentials;
use rights::Cap;
use std::time::{Duration, Instant};
use task::{Current, SysErr, SysResult};

const CMD_MASK: u32 = 0x7f;
const CLOCK_REALTIME_FLAG: u32 = 256;
const FUTEX_LOCK_PI2: i32 = 13;

pub fn futex(
    c: &mut Current,
    addr: u64,
    op: u32,
    val: u32,
    timeout: u64,
    addr2: u64,
    val3: u32,
) -> SysResult {
    let command = (op & CMD_MASK) as i32;
    let private = op & libc::FUTEX_PRIVATE_FLAG as u32 != 0;
    let realtime = op & CLOCK_REALTIME_FLAG != 0;
    let may_choose = matches!(
        command,
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2
    );
    if realtime && !may_choose {
        return Err(Errno::ENOSYS.into());
    }
    match command {
        // The platform runs these itself.
        libc::FUTEX_WAIT
        | libc::FUTEX_WAKE
        | libc::FUTEX_WAIT_BITSET
        | libc::FUTEX_WAKE_BITSET
        | libc::FUTEX_REQUEUE
        | libc::FUTEX_CMP_REQUEUE
        | libc::FUTEX_WAKE_OP => native(c, addr, (command, realtime), timeout),
        libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            let end = deadline(c, timeout, realtime || command == libc::FUTEX_LOCK_PI)?;
            let key = c.futex_key(addr, private)?;
            futex_pi::pi_lock(c, addr, key, false, end)?;
            Ok(0)
        }
        libc::FUTEX_TRYLOCK_PI => {
            let key = c.futex_key(addr, private)?;
            futex_pi::pi_lock(c, addr, key, true, None)?;
            Ok(0)
        }
        libc::FUTEX_UNLOCK_PI => {
            let key = c.futex_key(addr, private)?;
            futex_pi::pi_unlock(c, addr, key)?;
            Ok(0)
        }
        libc::FUTEX_WAIT_REQUEUE_PI => {
            let end = deadline(c, timeout, realtime)?;
            let (key, key2) = (c.futex_key(addr, private)?, c.futex_key(addr2, private)?);
            futex_pi::pi_wait_requeue(c, (addr, key), val, end, (addr2, key2))?;
            Ok(0)
        }
        libc::FUTEX_CMP_REQUEUE_PI => {
            // `timeout` is a count here; exactly one waiter may be woken.
            if val != 1 || (timeout as i32) < 0 {
                return Err(Errno::EINVAL.into());
            }
            let (key, key2) = (c.futex_key(addr, private)?, c.futex_key(addr2, private)?);
            futex_pi::pi_requeue(c, (addr, key), val3, timeout as u32, (addr2, key2))
        }
        _ => Err(Errno::ENOSYS.into()),
    }
}

/// An absolute time-out on one of the two clocks.
fn deadline(c: &Current, at: u64, realtime: bool) -> Result<Option<Instant>, Errno> {
    if at == 0 {
        return Ok(None);
    }
    let end = c.read_value::<Timespec>(at)?.to_duration()?;
    let clock = if realtime { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
    let now = hostsys::clock::gettime_ns(clock).ok_or(Errno::EINVAL)?.saturating_add(c.clock_offset(clock));
    let now = Duration::from_nanos(now.max(0) as u64);
    Ok(crate::timeout::after(end.saturating_sub(now)))
}

/// An absolute time-out on CLOCK_MONOTONIC as the host's clock has it; `None` where it is the same. EINVAL, EFAULT.
pub(crate) fn host_timeout(c: &Current, at: u64) -> Result<Option<[u64; 2]>, Errno> {
    let offset = c.clock_offset(libc::CLOCK_MONOTONIC);
    if at == 0 || offset == 0 {
        return Ok(None);
    }
    let time = c.read_value::<Timespec>(at)?;
    time.to_duration()?;
    let host = Timespec::from_ns(time.as_ns().saturating_sub(offset).max(0));
    Ok(Some([host.sec as u64, host.nsec as u64]))
}

fn native(c: &mut Current, addr: u64, (command, realtime): (i32, bool), timeout: u64) -> SysResult {
    // Reported because every call is: it is made after all.
    let timed = command == libc::FUTEX_WAIT_BITSET && !realtime;
    let timeout = if timed { host_timeout(c, timeout)? } else { None };
    if c.pass_futex(timeout) {
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
    c.task.set_word(platform::Word::RobustList, head);
    Ok(0)
}

pub fn get_robust_list(c: &mut Current, pid: i32, head: Ptr, len: Ptr) -> SysResult {
    let t = if pid == 0 { c.task.clone() } else { c.find_task(pid).ok_or(Errno::ESRCH)? };
    let (me, them) = (c.creds(), t.creds());
    if t.tgid() != c.task.tgid() && me.euid != them.uid && !me.ns_capable(&them.user_ns, Cap::SYS_PTRACE) {
        return Err(Errno::EPERM.into());
    }
    c.write_value(len.0, &24u64)?;
    let h = t.word(platform::Word::RobustList);
    c.write_value(head.0, &h)?;
    Ok(0)
}
