//! seccomp(2), and prctl(2)'s older door to it.

use abi::Errno;
use seccomp::{Action, MAX_INSTRUCTIONS, Program, SockFilter};
use std::sync::atomic::Ordering;
use task::seccomp::InstallError;
use task::{Current, SysResult};
use vfs::Cap;

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const GET_ACTION_AVAIL: u32 = 2;
const GET_NOTIF_SIZES: u32 = 3;

const FLAG_TSYNC: u32 = 1;
const FLAG_LOG: u32 = 2;
const FLAG_SPEC_ALLOW: u32 = 4;
const FLAG_TSYNC_ESRCH: u32 = 16;
/// Sizes of struct seccomp_notif, seccomp_notif_resp and seccomp_data.
const NOTIF_SIZES: [u16; 3] = [80, 24, 64];

pub fn seccomp(c: &mut Current, op: u32, flags: u32, arg: u64) -> SysResult {
    match op {
        SET_MODE_STRICT if flags == 0 && arg == 0 => Ok(c.seccomp_strict().map(|()| 0)?),
        SET_MODE_FILTER => set_filter(c, flags, arg),
        GET_ACTION_AVAIL if flags == 0 => match Action::exact(c.read_value::<u32>(arg)?) {
            // There are no supervisors.
            None | Some(Action::UserNotif) => Err(Errno::EOPNOTSUPP.into()),
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
    if flags & !(FLAG_TSYNC | FLAG_LOG | FLAG_SPEC_ALLOW | FLAG_TSYNC_ESRCH) != 0 {
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
    match c.seccomp_filter(program, flags & FLAG_LOG != 0, flags & FLAG_TSYNC != 0) {
        Ok(()) => Ok(0),
        Err(InstallError::Errno(e)) => Err(e.into()),
        Err(InstallError::Diverged(_)) if flags & FLAG_TSYNC_ESRCH != 0 => Err(Errno::ESRCH.into()),
        Err(InstallError::Diverged(tid)) => Ok(tid as u64),
    }
}
