//! Timer descriptors.

use super::{schemas, written};
use task::Current;
use trace_wire::messages::common::Timespec;
use trace_wire::messages::syscall::{ItimerSpec, TimerfdGetTime, TimerfdSetTime};

/// A struct itimerspec of the program.
fn setting(c: &Current, at: u64) -> Option<ItimerSpec> {
    let [interval, value] = c.read_value::<[[i64; 2]; 2]>(at).ok().filter(|_| at != 0)?;
    let time = |[sec, nsec]: [i64; 2]| {
        let mut time = Timespec::new();
        (time.sec, time.nsec) = (sec, nsec);
        Some(time)
    };
    let mut setting = ItimerSpec::new();
    (setting.interval, setting.value) = (time(interval).into(), time(value).into());
    Some(setting)
}

fn old_value(c: &mut Current, args: &[u64; 6], _result: u64, m: &mut TimerfdSetTime) {
    written(c);
    m.old_value = setting(c, args[3]).into();
}

fn current_value(c: &mut Current, args: &[u64; 6], _result: u64, m: &mut TimerfdGetTime) {
    written(c);
    m.cur_value = setting(c, args[1]).into();
}

schemas! {
    /// timerfd_create(2).
    TIMERFD_CREATE: TimerfdCreate MESSAGE_SYSCALL_TIMERFD_CREATE [] |e| { clock_id: e.int(0), flags: e.int(1) };
    /// timerfd_settime(2). The old value is known at the return.
    TIMERFD_SETTIME: TimerfdSetTime MESSAGE_SYSCALL_TIMERFD_SETTIME [FD_PATH] |e| {
        fd: e.int(0), fd_path: e.fd_path(0), flags: e.int(1), new_value: setting(e.c, e.arg(2)).into()
    } => old_value;
    /// timerfd_gettime(2). The value is known at the return.
    TIMERFD_GETTIME: TimerfdGetTime MESSAGE_SYSCALL_TIMERFD_GETTIME [FD_PATH]
        |e| { fd: e.int(0), fd_path: e.fd_path(0) } => current_value;
}
