//! Clocks, sleeping, interval and POSIX timers. See time(7).

use crate::arg::Ptr;
use abi::time::{Itimerspec, Itimerval, Timespec, Timeval};
use abi::{Errno, Signal};
use caller::HasCredentials;
use process_timers::{Clock, Notify, Which};
use rights::Cap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use task::{Current, Restart, RestartBlock, SysErr, SysResult, Task, ThreadGroup};
use wait::Stop;

const TIMER_ABSTIME: i32 = 1;

/// A processor-time clock that clock_getcpuclockid(3) or pthread_getcpuclockid(3) made, or a fixed one.
enum CpuClock {
    Process(Arc<ThreadGroup>, u32),
    Thread(Arc<Task>, u32),
}

/// CPUCLOCK_VIRT: user time. CPUCLOCK_PROF and CPUCLOCK_SCHED are the sum.
const VIRT: u32 = 1;
const SCHED: u32 = 2;
/// CPUCLOCK_PERTHREAD.
const PER_THREAD: i32 = 4;

/// The processor-time clock of this number; `None` for clocks that count something else.
fn cpu_clock(c: &Current, clock: i32) -> Result<Option<CpuClock>, Errno> {
    let me = || c.task.group.clone();
    match clock {
        libc::CLOCK_PROCESS_CPUTIME_ID => return Ok(Some(CpuClock::Process(me(), SCHED))),
        libc::CLOCK_THREAD_CPUTIME_ID => return Ok(Some(CpuClock::Thread(c.task.clone(), SCHED))),
        0.. => return Ok(None),
        _ => {}
    }
    // ~id << 3 | PER_THREAD | kind
    let (id, kind) = (!(clock >> 3), (clock & 3) as u32);
    if kind > SCHED {
        return Err(Errno::EINVAL);
    }
    if clock & PER_THREAD != 0 {
        let task = if id == 0 { Some(c.task.clone()) } else { c.find_task(id) };
        let task = task.filter(|t| t.tgid() == c.task.tgid()).ok_or(Errno::EINVAL)?;
        return Ok(Some(CpuClock::Thread(task, kind)));
    }
    let group = match id {
        0 => me(),
        // Any thread may use its own id.
        id if id == c.task.own_tid() => me(),
        id => c.find_group(id).ok_or(Errno::EINVAL)?,
    };
    Ok(Some(CpuClock::Process(group, kind)))
}

/// Nanoseconds of a guest clock; EINVAL for unknown ones.
fn clock_ns(c: &mut Current, clock: i32) -> Result<i64, Errno> {
    let ((user, system), kind) = match cpu_clock(c, clock)? {
        Some(CpuClock::Process(group, kind)) => (group.cpu_times(), kind),
        Some(CpuClock::Thread(task, kind)) => (c.times_of(&task), kind),
        None if clock <= 11 => {
            let host = hostsys::clock::gettime_ns(clock).ok_or(Errno::EINVAL)?;
            return Ok(host.saturating_add(c.clock_offset(clock)));
        }
        None => return Err(Errno::EINVAL),
    };
    Ok(if kind == VIRT { user } else { user + system } as i64)
}

pub fn clock_gettime(c: &mut Current, clock: i32, out: Ptr) -> SysResult {
    let t = Timespec::from_ns(clock_ns(c, clock)?);
    c.write_value(out.0, &t)?;
    Ok(0)
}

pub fn clock_getres(c: &mut Current, clock: i32, out: Ptr) -> SysResult {
    clock_ns(c, clock)?;
    let ns = match clock {
        0..=11 => hostsys::clock::getres_ns(clock).unwrap_or(1),
        _ => 1,
    };
    if !out.is_null() {
        c.write_value(out.0, &Timespec::from_ns(ns))?;
    }
    Ok(0)
}

pub fn clock_settime(c: &mut Current, clock: i32, at: Ptr) -> SysResult {
    let t: Timespec = c.read_value(at.0)?;
    if clock != libc::CLOCK_REALTIME || t.to_duration().is_err() {
        return Err(Errno::EINVAL.into());
    }
    Err(Errno::EPERM.into())
}

pub fn settimeofday(c: &mut Current, tv: Ptr, _tz: Ptr) -> SysResult {
    if !tv.is_null() {
        c.read_value::<Timeval>(tv.0)?.to_duration()?;
    }
    Err(Errno::EPERM.into())
}

pub fn adjtimex(c: &mut Current, tx: Ptr) -> SysResult {
    let modes: u32 = c.read_value(tx.0)?;
    // Reading what is left of an adjustment is reading, too.
    const OFFSET_SS_READ: u32 = 0xa001;
    if modes != 0 && modes != OFFSET_SS_READ {
        return Err(Errno::EPERM.into());
    }
    // A clock without synchronisation: TIME_ERROR, everything zero but the tick.
    let mut b = [0u8; 208];
    b[4 * 8 + 8..4 * 8 + 12].copy_from_slice(&0x40u32.to_le_bytes());
    let now = clock_ns(c, libc::CLOCK_REALTIME)?;
    b[72..80].copy_from_slice(&(now / 1_000_000_000).to_le_bytes());
    b[80..88].copy_from_slice(&(now % 1_000_000_000 / 1000).to_le_bytes());
    b[88..96].copy_from_slice(&10_000i64.to_le_bytes());
    c.write_bytes(tx.0, &b)?;
    Ok(5)
}

pub fn clock_adjtime(c: &mut Current, clock: i32, tx: Ptr) -> SysResult {
    match clock {
        libc::CLOCK_REALTIME => adjtimex(c, tx),
        1..=11 => Err(Errno::EOPNOTSUPP.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

pub fn gettimeofday(c: &mut Current, tv: Ptr, tz: Ptr) -> SysResult {
    let now = clock_ns(c, libc::CLOCK_REALTIME)?;
    if !tv.is_null() {
        let v = Timeval { sec: now / 1_000_000_000, usec: now % 1_000_000_000 / 1000 };
        c.write_value(tv.0, &v)?;
    }
    if !tz.is_null() {
        c.write_value(tz.0, &[0i32; 2])?;
    }
    Ok(0)
}

pub fn time(c: &mut Current, out: Ptr) -> SysResult {
    let s = clock_ns(c, libc::CLOCK_REALTIME)? / 1_000_000_000;
    if !out.is_null() {
        c.write_value(out.0, &s)?;
    }
    Ok(s as u64)
}

/// Sleeps; an interrupted relative sleep reports what remains and can be restarted.
fn sleep_until(c: &mut Current, deadline: Instant, remain: Option<u64>) -> SysResult {
    loop {
        match c.sleep(Some(deadline)) {
            Ok(()) => {}
            Err(Stop::TimedOut) => return Ok(0),
            Err(Stop::Interrupted) => match remain {
                None => return Err(SysErr::Restart(Restart::NoHand)),
                Some(at) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(0);
                    }
                    if at != 0 {
                        c.write_value(at, &Timespec::from(left))?;
                    }
                    c.restart_block = Some(RestartBlock::Sleep {
                        deadline: c.kernel().clock().ktime(deadline),
                        remain: at,
                    });
                    return Err(SysErr::Restart(Restart::Block));
                }
            },
        }
    }
}

pub fn nanosleep(c: &mut Current, req: Ptr, rem: Ptr) -> SysResult {
    let d = c.read_value::<Timespec>(req.0)?.to_duration()?;
    sleep_until(c, ipc::clock::after(Instant::now(), d), Some(rem.0))
}

pub fn clock_nanosleep(c: &mut Current, clock: i32, flags: i32, req: Ptr, rem: Ptr) -> SysResult {
    match clock {
        libc::CLOCK_THREAD_CPUTIME_ID => return Err(Errno::EOPNOTSUPP.into()),
        libc::CLOCK_REALTIME_ALARM | libc::CLOCK_BOOTTIME_ALARM => {
            alarm_clock(c, clock)?;
        }
        libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_MONOTONIC_COARSE => {
            return Err(Errno::EOPNOTSUPP.into());
        }
        _ => {}
    }
    let now = clock_ns(c, clock)?;
    let t = c.read_value::<Timespec>(req.0)?;
    let d = t.to_duration()?;
    if clock == libc::CLOCK_PROCESS_CPUTIME_ID {
        return cpu_sleep(
            c,
            if flags & TIMER_ABSTIME != 0 { t.as_ns() } else { now.saturating_add(t.as_ns()) },
        );
    }
    if flags & TIMER_ABSTIME != 0 {
        let left = t.as_ns().saturating_sub(now).max(0) as u64;
        return sleep_until(c, ipc::clock::after(Instant::now(), Duration::from_nanos(left)), None);
    }
    sleep_until(c, ipc::clock::after(Instant::now(), d), Some(rem.0))
}

/// Sleeps until the process has used that much processor time.
fn cpu_sleep(c: &mut Current, until: i64) -> SysResult {
    loop {
        let left = until - clock_ns(c, libc::CLOCK_PROCESS_CPUTIME_ID)?;
        if left <= 0 {
            return Ok(0);
        }
        let nap = Duration::from_nanos((left as u64 / 2).clamp(1_000_000, 50_000_000));
        if let Err(Stop::Interrupted) = c.sleep(Some(Instant::now() + nap)) {
            return Err(SysErr::Restart(Restart::NoHand));
        }
    }
}

pub fn restart_syscall(c: &mut Current) -> SysResult {
    match c.restart_block.take() {
        Some(RestartBlock::Sleep { deadline, remain }) => {
            let deadline = c.kernel().clock().instant(deadline);
            sleep_until(c, deadline, Some(remain))
        }
        Some(RestartBlock::Poll { fds, count, deadline }) => {
            let deadline = deadline.map(|at| c.kernel().clock().instant(at));
            crate::events::poll::poll_until(c, fds, count, deadline)
        }
        None => Err(Errno::EINTR.into()),
    }
}

fn which(n: i32) -> Result<Which, Errno> {
    match n {
        0 => Ok(Which::Real),
        1 => Ok(Which::Virtual),
        2 => Ok(Which::Prof),
        _ => Err(Errno::EINVAL),
    }
}

fn itimerval((value, interval): (u64, u64)) -> Itimerval {
    // A timer that is about to fire is not reported as off.
    let us =
        |ns: u64, least: u64| Timeval::from(Duration::from_nanos(if ns == 0 { 0 } else { ns.max(least) }));
    Itimerval { value: us(value, 1000), interval: us(interval, 0) }
}

pub fn getitimer(c: &mut Current, n: i32, out: Ptr) -> SysResult {
    let g = c.task.group.clone();
    let v = itimerval(g.timers.interval.get(&*g, which(n)?));
    c.write_value(out.0, &v)?;
    Ok(0)
}

pub fn setitimer(c: &mut Current, n: i32, new: Ptr, old: Ptr) -> SysResult {
    let w = which(n)?;
    let v: Itimerval = if new.is_null() { Itimerval::default() } else { c.read_value(new.0)? };
    let (value, interval) = (v.value.to_duration()?, v.interval.to_duration()?);
    let g = c.task.group.clone();
    let before = g.timers.interval.set(&g, w, nanos(value), nanos(interval));
    if !old.is_null() {
        c.write_value(old.0, &itimerval(before))?;
    }
    Ok(0)
}

fn nanos(d: Duration) -> u64 {
    d.as_nanos().min(i64::MAX as u128) as u64
}

pub fn alarm(c: &mut Current, seconds: u32) -> SysResult {
    let g = c.task.group.clone();
    let (left, _) = g.timers.interval.set(&g, Which::Real, seconds as u64 * 1_000_000_000, 0);
    // Rounded as Linux does: up from half a second, but never to "none".
    let s = (left + 500_000_000) / 1_000_000_000;
    Ok(if left > 0 { s.max(1) } else { 0 })
}

/// What timer_create(2) counts.
fn timer_clock(c: &Current, clock: i32) -> Result<Clock<ThreadGroup>, Errno> {
    match cpu_clock(c, clock)? {
        Some(CpuClock::Process(group, kind)) => {
            return Ok(Clock::Process(Arc::downgrade(&group), kind == VIRT));
        }
        Some(CpuClock::Thread(task, kind)) => return Ok(Clock::Thread(task.tid(), kind == VIRT)),
        None => {}
    }
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME | libc::CLOCK_TAI => {
            Ok(Clock::Host(clock))
        }
        libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_MONOTONIC_COARSE => {
            Err(Errno::EOPNOTSUPP)
        }
        libc::CLOCK_REALTIME_ALARM | libc::CLOCK_BOOTTIME_ALARM => alarm_clock(c, clock).map(Clock::Host),
        _ => Err(Errno::EINVAL),
    }
}

/// The clock that serves one of CLOCK_*_ALARM. They exist where the host has a clock that can wake it.
fn alarm_clock(c: &Current, clock: i32) -> Result<i32, Errno> {
    if hostsys::clock::gettime_ns(clock).is_none() {
        return Err(Errno::EOPNOTSUPP);
    }
    if !c.creds().capable(Cap::WAKE_ALARM) {
        return Err(Errno::EPERM);
    }
    Ok(if clock == libc::CLOCK_REALTIME_ALARM { libc::CLOCK_REALTIME } else { libc::CLOCK_BOOTTIME })
}

pub fn timer_create(c: &mut Current, clock: i32, event: Ptr, out: Ptr) -> SysResult {
    let clock = timer_clock(c, clock)?;
    let (notify, value) = if event.is_null() {
        (Notify::Process(Signal::SIGALRM), None)
    } else {
        // struct sigevent: value, signo, notify, tid
        let value: u64 = c.read_value(event.0)?;
        let [signo, how, tid] = c.read_value::<[i32; 3]>(event.0 + 8)?;
        let sig = || Signal::new(signo).ok_or(Errno::EINVAL);
        let n = match how {
            libc::SIGEV_NONE => Notify::None,
            libc::SIGEV_SIGNAL | libc::SIGEV_THREAD => Notify::Process(sig()?),
            libc::SIGEV_THREAD_ID => {
                let t = c.find_task(tid).ok_or(Errno::EINVAL)?;
                if t.tgid() != c.task.tgid() {
                    return Err(Errno::EINVAL.into());
                }
                Notify::Thread(sig()?, t.tid())
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        (n, Some(value))
    };
    let g = c.task.group.clone();
    let id = c.timer_create(clock, notify, value)?;
    if let Err(e) = c.write_value(out.0, &id) {
        let _ = g.timers.posix.delete(id);
        return Err(e.into());
    }
    Ok(0)
}

fn itimerspec((value, interval): (u64, u64)) -> Itimerspec {
    Itimerspec { value: Timespec::from_ns(value as i64), interval: Timespec::from_ns(interval as i64) }
}

pub fn timer_settime(c: &mut Current, id: i32, flags: i32, new: Ptr, old: Ptr) -> SysResult {
    if new.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let v: Itimerspec = c.read_value(new.0)?;
    let (value, interval) = (v.value.to_duration()?, v.interval.to_duration()?);
    let t = c.task.group.timers.posix.find(id)?;
    let absolute = flags & TIMER_ABSTIME != 0;
    let value = match nanos(value) {
        // What has passed in the namespace is a moment of the host, too, and not "none".
        at if at != 0 && absolute => t.host_time(c, at).max(1),
        at => at,
    };
    let before = t.set(c, value, nanos(interval), absolute);
    if !old.is_null() {
        c.write_value(old.0, &itimerspec(before))?;
    }
    Ok(0)
}

pub fn timer_gettime(c: &mut Current, id: i32, out: Ptr) -> SysResult {
    let t = c.task.group.timers.posix.find(id)?;
    let v = t.get(c);
    c.write_value(out.0, &itimerspec(v))?;
    Ok(0)
}

pub fn timer_getoverrun(c: &mut Current, id: i32) -> SysResult {
    Ok(c.task.group.timers.posix.find(id)?.reported_overrun() as u64)
}

pub fn timer_delete(c: &mut Current, id: i32) -> SysResult {
    c.task.group.timers.posix.delete(id)?;
    Ok(0)
}
