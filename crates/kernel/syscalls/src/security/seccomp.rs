//! seccomp(2), and prctl(2)'s older door to it.

use abi::Errno;
use rights::Cap;
use seccomp::{Action, MAX_INSTRUCTIONS, Program, SockFilter};
use std::sync::atomic::Ordering;
use syscall_filter::Listener;
use task::seccomp::InstallError;
use task::{Current, SysResult, TaskCaller};

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const GET_ACTION_AVAIL: u32 = 2;
const GET_NOTIF_SIZES: u32 = 3;

const FLAG_TSYNC: u32 = 1;
const FLAG_LOG: u32 = 2;
const FLAG_SPEC_ALLOW: u32 = 4;
const FLAG_NEW_LISTENER: u32 = 8;
const FLAG_TSYNC_ESRCH: u32 = 16;
const FLAG_WAIT_KILLABLE: u32 = 32;
/// Sizes of struct seccomp_notif, seccomp_notif_resp and seccomp_data.
const NOTIF_SIZES: [u16; 3] = [80, 24, 64];

pub fn seccomp(c: &mut Current, op: u32, flags: u32, arg: u64) -> SysResult {
    match op {
        SET_MODE_STRICT if flags == 0 && arg == 0 => Ok(c.seccomp_strict().map(|()| 0)?),
        SET_MODE_FILTER => set_filter(c, flags, arg),
        GET_ACTION_AVAIL if flags == 0 => match Action::exact(c.read_value::<u32>(arg)?) {
            None => Err(Errno::EOPNOTSUPP.into()),
            Some(_) => Ok(0),
        },
        GET_NOTIF_SIZES if flags == 0 => {
            c.write_value(arg, &NOTIF_SIZES)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

/// PR_SET_SECCOMP.
pub fn set_mode(c: &mut Current, mode: u64, arg: u64) -> SysResult {
    match mode {
        1 => seccomp(c, SET_MODE_STRICT, 0, 0),
        2 => seccomp(c, SET_MODE_FILTER, 0, arg),
        _ => Err(Errno::EINVAL.into()),
    }
}

fn set_filter(c: &mut Current, flags: u32, arg: u64) -> SysResult {
    let has = |flag: u32| flags & flag != 0;
    let known =
        FLAG_TSYNC | FLAG_LOG | FLAG_SPEC_ALLOW | FLAG_NEW_LISTENER | FLAG_TSYNC_ESRCH | FLAG_WAIT_KILLABLE;
    // The result is a thread ID with one, a descriptor with the other.
    let unclear = has(FLAG_TSYNC) && has(FLAG_NEW_LISTENER) && !has(FLAG_TSYNC_ESRCH);
    if flags & !known != 0 || unclear || has(FLAG_WAIT_KILLABLE) && !has(FLAG_NEW_LISTENER) {
        return Err(Errno::EINVAL.into());
    }
    let [len, code] = c.read_value::<[u64; 2]>(arg)?;
    let len = usize::from(len as u16);
    if len == 0 || len > MAX_INSTRUCTIONS {
        return Err(Errno::EINVAL.into());
    }
    if !c.task.no_new_privs.load(Ordering::Relaxed) && !c.task.creds().own_ns_capable(Cap::SYS_ADMIN) {
        return Err(Errno::EACCES.into());
    }
    let program = Program::new(&c.read_array::<SockFilter>(code, len, MAX_INSTRUCTIONS)?)?;
    let mut supervisor = None;
    let mut descriptor = None;
    if has(FLAG_NEW_LISTENER) {
        let slot = c.fd_table().reserve(crate::install::limit(c))?;
        let (held, file) = syscall_filter::open(&c.kernel().listeners, c, has(FLAG_WAIT_KILLABLE));
        (supervisor, descriptor) = (Some(held), Some((slot, file)));
    }
    match c.seccomp_supervised(program, has(FLAG_LOG), has(FLAG_TSYNC), supervisor) {
        Ok(()) => Ok(descriptor.map_or(0, |(slot, file)| slot.commit(file, true) as u64)),
        Err(InstallError::Errno(e)) => Err(e.into()),
        Err(InstallError::Diverged(_)) if flags & FLAG_TSYNC_ESRCH != 0 => Err(Errno::ESRCH.into()),
        Err(InstallError::Diverged(tid)) => Ok(tid as u64),
    }
}

/// SECCOMP_IOCTL_NOTIF_ADDFD: gives a descriptor of the supervisor's to the thread that asked.
pub(crate) fn add_fd(c: &mut Current, listener: &Listener, arg: u64) -> SysResult {
    const SET_FD: u32 = 1;
    const SEND: u32 = 2;
    let [low, high, flags, source, number, fd_flags] = c.read_value::<[u32; 6]>(arg)?;
    let id = u64::from(low) | u64::from(high) << 32;
    if fd_flags & !(libc::O_CLOEXEC as u32) != 0
        || flags & !(SET_FD | SEND) != 0
        || number != 0 && flags & SET_FD == 0
    {
        return Err(Errno::EINVAL.into());
    }
    let file = c.file(source as i32)?;
    let supervised = c.kernel().task(listener.caller(id)?).ok_or(Errno::ENOENT)?;
    let table = supervised.fds().ok_or(Errno::ENOENT)?;
    vfs::policing::decide_received(&TaskCaller::of(&supervised), &file)?;
    let limit = supervised.group.rlimit(libc::RLIMIT_NOFILE as i32);
    let cloexec = fd_flags != 0;
    let fd = if flags & SET_FD != 0 {
        let number = i32::try_from(number).ok().filter(|n| (*n as u64) < limit).ok_or(Errno::EBADF)?;
        table.install_at(c, number, file, cloexec, limit)?;
        number
    } else {
        table.install(file, cloexec, limit)?
    };
    if flags & SEND != 0 {
        listener.answer(id, fd.into())?;
    }
    Ok(fd as u64)
}
