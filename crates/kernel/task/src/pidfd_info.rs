//! PIDFD_GET_INFO of ioctl(2).

use crate::pidfd_target::PidFd;
use crate::tree::Node;
use abi::{Errno, Result};
use caller::UserMemory;
use vfs::Caller;
use zerocopy::{Immutable, IntoBytes};

/// Type and number of the request; its size is that of the structure.
const GET_INFO: (u32, u32) = (0xff, 11);
/// Bytes of the first version of `struct pidfd_info`.
const FIRST_VERSION: usize = 64;

const PID: u64 = 1;
const CREDS: u64 = 2;
const CGROUP: u64 = 4;
const EXIT: u64 = 8;

/// `struct pidfd_info`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    uids: [u32; 2],
    euids: [u32; 2],
    suids: [u32; 2],
    fsuids: [u32; 2],
    exit_code: i32,
    coredump: [u32; 2],
}

/// Whether a request is PIDFD_GET_INFO, of whatever size.
pub(crate) fn is_get_info(cmd: u32) -> bool {
    (cmd >> 8 & 0xff, cmd & 0xff) == GET_INFO
}

/// Answers the request.
pub(crate) fn get_info(
    fd: &PidFd,
    cx: &dyn Caller,
    mem: &mut dyn UserMemory,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    let size = (cmd >> 16 & 0x3fff) as usize;
    if size < FIRST_VERSION {
        return Err(Errno::ENOTTY);
    }
    if arg == 0 {
        return Err(Errno::EINVAL);
    }
    let wanted: u64 = mem.read_value(arg)?;
    let mut info = Info::default();
    let group = &fd.group;
    let ns = cx.pid_ns().ok_or(Errno::EREMOTE)?;
    if !group.pids.is_within(&ns) {
        return Err(Errno::EREMOTE);
    }
    if wanted & EXIT != 0
        && fd.is_reaped()
        && let Some(status) = group.exit_status()
    {
        (info.mask, info.exit_code) = (EXIT | CGROUP, status);
        info.cgroup = group.left.get().map_or(0, |left| left.cgroup);
    }
    if fd.is_reaped() {
        if wanted & EXIT == 0 {
            return Err(Errno::ESRCH);
        }
    } else {
        let number = |nr: i32| group.kernel.pids.find(nr).map_or(0, |pid| pid.nr_in(&ns)) as u32;
        (info.pid, info.tgid) = (number(fd.id()), number(group.tgid));
        let parent = group.kernel.tree.lock().node(group.tgid).map_or(0, Node::parent);
        info.ppid = number(parent);
        info.mask |= PID | CREDS | CGROUP;
        info.cgroup = group.kernel.tree.lock().cgroup_of(group.tgid).map_or(0, |cgroup| cgroup.id());
        let thread = fd.thread().transpose()?.or_else(|| group.any_thread());
        if let Some(c) = thread.map(|t| rights::Creds::into_inner(t.creds())) {
            info.uids = [c.uid, c.gid];
            info.euids = [c.euid, c.egid];
            info.suids = [c.suid, c.sgid];
            info.fsuids = [c.fsuid, c.fsgid];
        }
    }
    let mut bytes = info.as_bytes().to_vec();
    bytes.resize(size, 0);
    mem.copy_out(arg, &bytes)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_the_same_request() {
        assert!(is_get_info(0xc048_ff0b) && is_get_info(0xc040_ff0b) && !is_get_info(0xff01));
        assert_eq!(size_of::<Info>(), 72);
    }
}
