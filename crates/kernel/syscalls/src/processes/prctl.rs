//! prctl(2), arch_prctl(2).

use abi::{Errno, Signal};
use caller::HasCredentials;
use platform::{Action, OwnCall};
use rights::{Cap, Credentials};
use std::sync::atomic::Ordering;
use task::{Asked, Current, SysErr, SysResult};

const PR_SET_MM: i32 = 35;
const PR_CAP_AMBIENT: i32 = 47;
const PR_FUTEX_HASH: i32 = 78;
const PR_GET_AUXV: i32 = 0x4155_5856;
/// The bits SECBIT_* and, above each, its lock.
const SECURE_ALL: u64 = 0xfff;
const SECURE_LOCKS: u64 = 0xaaa;
/// SECBIT_EXEC_RESTRICT_FILE, SECBIT_EXEC_DENY_INTERACTIVE and their locks, which every process may change: interpreters obey
/// them.
const SECURE_UNPRIVILEGED: u64 = 0xf00;

pub fn prctl(c: &mut Current, option: i32, a: u64, b: u64, d: u64, e: u64) -> SysResult {
    let result = control(c, option, a, b, d, e);
    if let Err(SysErr::Errno(Errno::EINVAL | Errno::EOPNOTSUPP)) = result {
        c.kernel().coverage.note(Asked::Prctl, format!("{option} ({a:#x})"));
    }
    result
}

fn control(c: &mut Current, option: i32, a: u64, b: u64, d: u64, e: u64) -> SysResult {
    let v = match option {
        libc::PR_SET_PDEATHSIG => {
            if a != 0 {
                Signal::new(a.min(65) as i32).ok_or(Errno::EINVAL)?;
            }
            c.task.pdeathsig.store(a as i32, Ordering::Relaxed);
            0
        }
        libc::PR_GET_PDEATHSIG => {
            let v = c.task.pdeathsig.load(Ordering::Relaxed);
            c.write_value(a, &v)?;
            0
        }
        libc::PR_GET_DUMPABLE => c.mm.dumpable.load(Ordering::Relaxed) as u64,
        libc::PR_SET_DUMPABLE => {
            if a > 1 {
                return Err(Errno::EINVAL.into());
            }
            c.mm.dumpable.store(a as i32, Ordering::Relaxed);
            0
        }
        libc::PR_GET_KEEPCAPS => u64::from(c.creds().securebits & 16 != 0),
        libc::PR_SET_KEEPCAPS => set_keepcaps(c, a)?,
        libc::PR_SET_NAME => set_name(c, a)?,
        libc::PR_GET_NAME => {
            let n = c.task.comm();
            c.write_value(a, &n)?;
            0
        }
        libc::PR_GET_SECCOMP => c.task.seccomp.mode().into(),
        libc::PR_SET_SECCOMP => return crate::security::seccomp::set_mode(c, a, b),
        libc::PR_CAPBSET_READ => {
            if a > Cap::LAST as u64 {
                return Err(Errno::EINVAL.into());
            }
            c.creds().bounding >> a & 1
        }
        libc::PR_CAPBSET_DROP => drop_bounding(c, a)?,
        libc::PR_GET_SECUREBITS => c.creds().securebits.into(),
        libc::PR_SET_SECUREBITS => set_securebits(c, a)?,
        libc::PR_SET_TIMERSLACK => {
            c.task.timer_slack.store(
                if a == 0 || a > i64::MAX as u64 { c.task.default_slack.load(Ordering::Relaxed) } else { a },
                Ordering::Relaxed,
            );
            0
        }
        libc::PR_GET_TIMERSLACK => c.task.timer_slack.load(Ordering::Relaxed),
        libc::PR_SET_CHILD_SUBREAPER => {
            c.task.group.subreaper.store(a != 0, Ordering::Relaxed);
            0
        }
        libc::PR_GET_CHILD_SUBREAPER => {
            let v = i32::from(c.task.group.subreaper.load(Ordering::Relaxed));
            c.write_value(a, &v)?;
            0
        }
        libc::PR_SET_NO_NEW_PRIVS => {
            if a != 1 || b != 0 || d != 0 || e != 0 {
                return Err(Errno::EINVAL.into());
            }
            c.task.no_new_privs.store(true, Ordering::Relaxed);
            0
        }
        libc::PR_GET_NO_NEW_PRIVS => {
            if a != 0 || b != 0 || d != 0 || e != 0 {
                return Err(Errno::EINVAL.into());
            }
            c.task.no_new_privs.load(Ordering::Relaxed).into()
        }
        libc::PR_GET_THP_DISABLE if a == 0 && b == 0 && d == 0 && e == 0 => {
            c.mm.huge_pages_off.load(Ordering::Relaxed).into()
        }
        libc::PR_SET_THP_DISABLE if d == 0 && e == 0 => set_huge_pages_off(c, a != 0, b)?,
        libc::PR_GET_TID_ADDRESS => {
            let v = c.task.word(platform::Word::ClearChildTid);
            c.write_value(a, &v)?;
            0
        }
        libc::PR_GET_TIMING => 0,
        libc::PR_SET_TIMING if a == 0 => 0,
        libc::PR_MCE_KILL if d == 0 && e == 0 => set_memory_failure_policy(c, a, b)?,
        libc::PR_MCE_KILL_GET if a == 0 && b == 0 && d == 0 && e == 0 => {
            c.task.memory_failure_policy.load(Ordering::Relaxed).into()
        }
        // No performance counters exist.
        libc::PR_TASK_PERF_EVENTS_DISABLE | libc::PR_TASK_PERF_EVENTS_ENABLE => 0,
        PR_FUTEX_HASH => futex_hash(c, a, b, d)?,
        PR_CAP_AMBIENT => ambient(c, a, b, d, e)?,
        PR_GET_AUXV => {
            let v = c.mm.image().auxv;
            let n = v.len().min(b as usize);
            c.write_bytes(a, &v[..n])?;
            v.len() as u64
        }
        PR_SET_MM => {
            return Err(
                if c.creds().capable(Cap::SYS_RESOURCE) { Errno::EINVAL } else { Errno::EPERM }.into()
            );
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(v)
}

/// PR_FUTEX_HASH: how many buckets the process's own table of futexes has.
fn futex_hash(c: &Current, what: u64, buckets: u64, flags: u64) -> Result<u64, Errno> {
    const SET_SLOTS: u64 = 1;
    const GET_SLOTS: u64 = 2;
    let mut hash = c.mm.futex_hash.lock();
    match what {
        SET_SLOTS if flags == 0 => hash.set(buckets as u32).map(|()| 0),
        GET_SLOTS => Ok(hash.get().into()),
        _ => Err(Errno::EINVAL),
    }
}

/// PR_THP_DISABLE_EXCEPT_ADVISED.
const EXCEPT_ADVISED: u64 = 2;

fn set_huge_pages_off(c: &mut Current, off: bool, flags: u64) -> Result<u64, Errno> {
    if flags & !EXCEPT_ADVISED != 0 || !off && flags != 0 {
        return Err(Errno::EINVAL);
    }
    c.ctx.own_call(OwnCall::HugePagesOff(off, flags), &mut [])?;
    let now = if off { 1 | flags as u32 } else { 0 };
    c.mm.huge_pages_off.store(now, Ordering::Relaxed);
    Ok(0)
}

/// What happens to the process when memory of it fails: kept and shown. The host's own policy decides.
fn set_memory_failure_policy(c: &mut Current, what: u64, policy: u64) -> Result<u64, Errno> {
    const DEFAULT: u8 = libc::PR_MCE_KILL_DEFAULT as u8;
    let new = match (what as i32, policy as i32) {
        (libc::PR_MCE_KILL_CLEAR, 0) if policy == 0 => DEFAULT,
        (
            libc::PR_MCE_KILL_SET,
            libc::PR_MCE_KILL_LATE | libc::PR_MCE_KILL_EARLY | libc::PR_MCE_KILL_DEFAULT,
        ) => policy as u8,
        _ => return Err(Errno::EINVAL),
    };
    c.task.memory_failure_policy.store(new, Ordering::Relaxed);
    Ok(0)
}

fn set_keepcaps(c: &mut Current, keep: u64) -> Result<u64, Errno> {
    let mut k = Credentials::clone(&c.creds());
    if keep > 1 {
        return Err(Errno::EINVAL);
    }
    if k.securebits & 32 != 0 {
        return Err(Errno::EPERM);
    }
    k.securebits = k.securebits & !16 | (keep as u32) << 4;
    c.task.set_creds(k);
    Ok(0)
}

/// Longer names are cut, not refused.
fn set_name(c: &mut Current, addr: u64) -> Result<u64, Errno> {
    let mut name = match c.read_cstr(addr, 16, Errno::E2BIG) {
        Err(Errno::E2BIG) => {
            let mut name = vec![0; 15];
            c.read_bytes(addr, &mut name)?;
            name
        }
        name => name?,
    };
    name.truncate(15);
    c.task.set_comm(&name);
    c.ctx.queue(Action::Name(c.task.comm()));
    Ok(0)
}

fn drop_bounding(c: &mut Current, cap: u64) -> Result<u64, Errno> {
    let mut k = Credentials::clone(&c.creds());
    if !k.own_ns_capable(Cap::SETPCAP) {
        return Err(Errno::EPERM);
    }
    if cap > Cap::LAST as u64 {
        return Err(Errno::EINVAL);
    }
    k.bounding &= !(1 << cap);
    c.task.set_creds(k);
    Ok(0)
}

fn set_securebits(c: &mut Current, bits: u64) -> Result<u64, Errno> {
    let mut k = Credentials::clone(&c.creds());
    let old = k.securebits as u64;
    let locked = (old & SECURE_LOCKS) >> 1;
    let bad =
        (old & locked) ^ (bits & locked) != 0 || old & SECURE_LOCKS & !bits != 0 || bits & !SECURE_ALL != 0;
    let changed = old ^ bits;
    let own = changed != 0 && changed & !SECURE_UNPRIVILEGED == 0;
    if bad || !own && !k.own_ns_capable(Cap::SETPCAP) {
        return Err(Errno::EPERM);
    }
    k.securebits = bits as u32;
    c.task.set_creds(k);
    Ok(0)
}

fn ambient(c: &mut Current, op: u64, cap: u64, d: u64, e: u64) -> Result<u64, Errno> {
    let mut k = Credentials::clone(&c.creds());
    if op == 4 {
        if cap != 0 || d != 0 || e != 0 {
            return Err(Errno::EINVAL);
        }
        k.ambient = 0;
        c.task.set_creds(k);
        return Ok(0);
    }
    if d != 0 || e != 0 || cap > Cap::LAST as u64 {
        return Err(Errno::EINVAL);
    }
    let bit = 1 << cap;
    match op {
        1 => return Ok(k.ambient >> cap & 1),
        2 => {
            // SECBIT_NO_CAP_AMBIENT_RAISE
            if k.permitted & k.inheritable & bit == 0 || k.securebits & 64 != 0 {
                return Err(Errno::EPERM);
            }
            k.ambient |= bit;
        }
        3 => k.ambient &= !bit,
        _ => return Err(Errno::EINVAL),
    }
    c.task.set_creds(k);
    Ok(0)
}

const ARCH_SET_GS: i32 = 0x1001;
const ARCH_SET_FS: i32 = 0x1002;
const ARCH_GET_FS: i32 = 0x1003;
const ARCH_GET_GS: i32 = 0x1004;
const ARCH_GET_CPUID: i32 = 0x1011;
const ARCH_SET_CPUID: i32 = 0x1012;

pub fn arch_prctl(c: &mut Current, op: i32, addr: u64) -> SysResult {
    let max = c.kernel().platform.limits().max;
    match op {
        ARCH_SET_FS | ARCH_SET_GS if addr >= max => return Err(Errno::EPERM.into()),
        ARCH_SET_FS => c.ctx.regs_mut().fs_base = addr,
        ARCH_SET_GS => c.ctx.regs_mut().gs_base = addr,
        // The instruction cannot be made to fault here.
        ARCH_GET_CPUID => return Ok(1),
        ARCH_SET_CPUID => return Err(Errno::ENODEV.into()),
        ARCH_GET_FS => {
            let v = c.ctx.regs().fs_base;
            c.write_value(addr, &v)?;
        }
        ARCH_GET_GS => {
            let v = c.ctx.regs().gs_base;
            c.write_value(addr, &v)?;
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}
