//! Signals of files: F_SETOWN and its relatives, O_ASYNC, leases. See fcntl(2).

use abi::Errno;
use caller::{HasCredentials, Identity};
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::OpenFile;
use vfs::file::{F_OWNER_PGRP, F_OWNER_PID, F_OWNER_TID};

const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;

/// ESRCH unless the identifier names something.
fn check_owner(c: &Current, kind: i32, id: i32) -> Result<(), Errno> {
    let there = match kind {
        _ if id == 0 => true,
        F_OWNER_TID => c.kernel().task(id).is_some(),
        F_OWNER_PID => c.kernel().group(id).is_some(),
        _ => c.kernel().tree.lock().nodes().any(|n| n.pgid() == id),
    };
    if there { Ok(()) } else { Err(Errno::ESRCH) }
}

fn set_owner(c: &Current, f: &Arc<OpenFile>, kind: i32, number: i32) -> Result<(), Errno> {
    let id = if number == 0 { 0 } else { c.find_vpid(number) };
    check_owner(c, kind, id)?;
    // The kernel will signal it for the caller, with the signal that the caller chooses.
    let own = match kind {
        F_OWNER_TID => c.kernel().task(id).is_some_and(|t| Arc::ptr_eq(&t.group, &c.task.group)),
        F_OWNER_PID => id == c.task.tgid(),
        _ => false,
    };
    if id != 0 && !own {
        super::signal::police(c)?;
    }
    f.owner.lock().set(kind, id, &c.creds());
    files::fasync::watch_urgent(c, f, || c.kernel().io_signals());
    Ok(())
}

/// F_SETOWN, also as a request of ioctl(2): negative for a process group.
pub fn set_own(c: &Current, f: &Arc<OpenFile>, who: i32) -> Result<(), Errno> {
    let number = who.checked_abs().ok_or(Errno::EINVAL)?;
    set_owner(c, f, if who < 0 { F_OWNER_PGRP } else { F_OWNER_PID }, number)
}

/// F_GETOWN, likewise.
pub fn get_own(c: &Current, f: &OpenFile) -> i32 {
    let now = *f.owner.lock();
    let id = c.pid_vnr(now.id);
    if now.kind == F_OWNER_PGRP { -id } else { id }
}

/// The fcntl(2) commands about the owner of a file's signals.
pub fn fcntl(c: &mut Current, f: &Arc<OpenFile>, cmd: i32, arg: u64) -> SysResult {
    match cmd {
        libc::F_SETOWN => set_own(c, f, arg as i32)?,
        libc::F_GETOWN => return Ok(i64::from(get_own(c, f)) as u64),
        F_SETOWN_EX => {
            let [kind, number]: [i32; 2] = c.read_value(arg)?;
            if !(F_OWNER_TID..=F_OWNER_PGRP).contains(&kind) {
                return Err(Errno::EINVAL.into());
            }
            set_owner(c, f, kind, number)?;
        }
        F_GETOWN_EX => {
            let now = *f.owner.lock();
            c.write_value(arg, &[now.kind, c.pid_vnr(now.id)])?;
        }
        F_SETSIG if arg > 64 => return Err(Errno::EINVAL.into()),
        F_SETSIG => f.owner.lock().signal = arg as i32,
        _ => return Ok(f.owner.lock().signal as u64),
    }
    Ok(0)
}

/// F_SETFL and the requests of ioctl(2) that change status flags.
pub fn set_status(c: &Current, f: &Arc<OpenFile>, flags: i32, fd: i32) -> Result<(), Errno> {
    files::fasync::set_status(c, f, flags, fd, || c.kernel().io_signals())
}

/// Notifies the owner of an open file that another process wants the leased file, or that the directory has changed.
pub fn teller(c: &Current, fd: i32) -> locks::leases::Tell {
    files::fasync::teller(&c.kernel().io_signals(), fd)
}
