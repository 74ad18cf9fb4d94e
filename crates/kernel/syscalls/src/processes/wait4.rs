//! wait4(2), waitid(2).

use crate::arg::Ptr;
use crate::processes::limits::rusage_of_child;
use abi::{Errno, SigInfo};
use caller::{HasCredentials, Identity};
use std::sync::atomic::Ordering;
use task::{Current, SysErr, SysResult, WaitTarget};

pub fn wait4(c: &mut Current, pid: i32, status: Ptr, options: i32, usage: Ptr) -> SysResult {
    let known = libc::WNOHANG
        | libc::WUNTRACED
        | libc::WCONTINUED
        | libc::__WNOTHREAD
        | libc::__WCLONE
        | libc::__WALL;
    crate::arg::check_flags(options, known)?;
    if pid == i32::MIN {
        return Err(Errno::ESRCH.into());
    }
    if !usage.is_null() {
        c.kernel().usage_wanted.store(true, Ordering::Relaxed);
    }
    let target = match pid {
        -1 => WaitTarget::Any,
        0 => WaitTarget::Group(c.pgid()),
        p if p > 0 => WaitTarget::Pid(c.find_vpid(p)),
        g => WaitTarget::Group(c.find_vpid(-g)),
    };
    let Some(ch) = c.wait_child(target, options | libc::WEXITED)? else { return Ok(0) };
    if !status.is_null() {
        c.write_value(status.0, &ch.status)?;
    }
    if !usage.is_null() {
        let r = rusage_of_child(&ch.usage);
        c.write_value(usage.0, &r)?;
    }
    Ok(ch.pid as u64)
}

pub fn waitid(c: &mut Current, kind: i32, id: i32, info: Ptr, options: i32, usage: Ptr) -> SysResult {
    let states = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED;
    let known = states | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD | libc::__WCLONE | libc::__WALL;
    crate::arg::check_flags(options, known)?;
    if options & states == 0 {
        return Err(Errno::EINVAL.into());
    }
    if !usage.is_null() {
        c.kernel().usage_wanted.store(true, Ordering::Relaxed);
    }
    let mut options = options;
    let target = match kind {
        0 => WaitTarget::Any,
        1 if id > 0 => WaitTarget::Pid(c.find_vpid(id)),
        2 if id >= 0 => WaitTarget::Group(if id == 0 { c.pgid() } else { c.find_vpid(id) }),
        3 if id >= 0 => {
            let f = c.file(id)?;
            if f.nonblocking() && options & libc::WNOHANG == 0 {
                options |= libc::WNOHANG | NONBLOCKING;
            }
            WaitTarget::Pid(task::pidfd::of(&f)?.id())
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    let nonblocking = options & NONBLOCKING != 0;
    let got = c.wait_child(target, options & !NONBLOCKING)?;
    if got.is_none() && nonblocking {
        return Err(SysErr::Errno(Errno::EAGAIN));
    }
    if let (Some(ch), false) = (&got, usage.is_null()) {
        let r = rusage_of_child(&ch.usage);
        c.write_value(usage.0, &r)?;
    }
    if !info.is_null() {
        let mut i = SigInfo { signo: 0, errno: 0, code: 0, pad: 0, fields: [0; 14] };
        if let Some(ch) = got {
            let uid = c.creds().user_ns.show_user(ch.uid);
            i = SigInfo::child(ch.code, ch.pid, uid, ch.si_status, 0, 0);
        }
        // Only the fields that waitid(2) names are written.
        let bytes: Vec<u8> = zerocopy::IntoBytes::as_bytes(&i)[..28].to_vec();
        c.write_bytes(info.0, &bytes)?;
    }
    Ok(0)
}

/// A pidfd opened with O_NONBLOCK: EAGAIN instead of waiting. A bit no option uses.
const NONBLOCKING: i32 = 1 << 16;
