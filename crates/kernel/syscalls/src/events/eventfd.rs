//! eventfd(2), signalfd(2), timerfd_create(2) and relatives.

use crate::arg::{Fd, Ptr, check_flags};
use crate::at::real_file;
use crate::install::install;
use abi::Errno;
use abi::time::Itimerspec;
use ipc::eventfd::EventFd;
use ipc::signalfd::SignalFd;
use ipc::timerfd::TimerFd;
use task::{Current, SysResult};

pub fn eventfd(c: &mut Current, initial: u32) -> SysResult {
    eventfd2(c, initial, 0)
}

pub fn eventfd2(c: &mut Current, initial: u32, flags: i32) -> SysResult {
    let file = EventFd::create(c, initial, flags)?;
    install(c, file, flags & libc::EFD_CLOEXEC != 0)
}

pub fn signalfd(c: &mut Current, fd: Fd, mask: Ptr, size: u64) -> SysResult {
    signalfd4(c, fd, mask, size, 0)
}

pub fn signalfd4(c: &mut Current, fd: Fd, mask: Ptr, size: u64, flags: i32) -> SysResult {
    check_flags(flags, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)?;
    let mask = c.read_sigset(mask.0, size)?;
    if fd.0 == -1 {
        return install(c, SignalFd::create(c, mask, flags)?, flags & libc::SFD_CLOEXEC != 0);
    }
    let file = real_file(c, fd)?;
    SignalFd::of(&file)?.set_mask(c, mask);
    Ok(fd.0 as u64)
}

pub fn timerfd_create(c: &mut Current, clock: i32, flags: i32) -> SysResult {
    let file = TimerFd::create(c, clock, flags)?;
    install(c, file, flags & libc::TFD_CLOEXEC != 0)
}

pub fn timerfd_settime(c: &mut Current, fd: Fd, flags: i32, new: Ptr, old: Ptr) -> SysResult {
    let set: Itimerspec = c.read_value(new.0)?;
    for t in [&set.value, &set.interval] {
        t.to_duration().map_err(|_| Errno::EINVAL)?;
    }
    let file = real_file(c, fd)?;
    let was = TimerFd::of(&file)?.set(flags, &set, |clock| c.clock_offset(clock))?;
    if !old.is_null() {
        c.write_value(old.0, &was)?;
    }
    Ok(0)
}

pub fn timerfd_gettime(c: &mut Current, fd: Fd, to: Ptr) -> SysResult {
    let file = real_file(c, fd)?;
    let v = TimerFd::of(&file)?.get();
    c.write_value(to.0, &v)?;
    Ok(0)
}
