//! Signals of files: F_SETOWN and its relatives, O_ASYNC, leases. See fcntl(2).

use abi::{Errno, SigInfo, Signal};
use caller::{HasCredentials, Identity};
use files::IoSignals;
use std::sync::{Arc, Weak};
use task::{Current, Kernel, SysResult, Task};
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
    files::fasync::watch_urgent(c, f, || signals(c));
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

/// Sends the signals of files to tasks.
struct Signals(Weak<Kernel>);

impl IoSignals for Signals {
    fn send(&self, owner: &vfs::SignalOwner, code: i32, band: i64, fd: i32) {
        let plain = SigInfo::new(Signal::SIGIO, libc::SI_KERNEL);
        let info = Signal::new(owner.signal).map_or(plain, |s| SigInfo::poll(s, code, band, fd));
        self.tell(owner, info, plain);
    }

    fn urgent(&self, owner: &vfs::SignalOwner) {
        let info = SigInfo::new(Signal::SIGURG, libc::SI_KERNEL);
        self.tell(owner, info, info);
    }
}

impl Signals {
    /// Sends `info` to the owner's tasks. A task without room for it gets the plain signal, as on Linux; a task that is
    /// gone needs none.
    fn tell(&self, owner: &vfs::SignalOwner, info: SigInfo, plain: SigInfo) {
        let Some(k) = self.0.upgrade() else { return };
        if owner.kind == F_OWNER_TID {
            let target = k.task(owner.id).filter(|t| owner.may_signal(&t.creds()));
            if let Some(t) = target {
                let _ = t.send(info).or_else(|_| t.send(plain));
            }
            return;
        }
        let groups: Vec<_> = {
            let t = k.tree.lock();
            match owner.kind {
                F_OWNER_PGRP => t.nodes().filter(|n| n.pgid() == owner.id).map(|n| n.group.clone()).collect(),
                _ => t.node(owner.id).map(|n| n.group.clone()).into_iter().collect(),
            }
        };
        let may = |t: &Arc<Task>| owner.may_signal(&t.creds());
        for g in groups.iter().filter(|g| g.any_thread().as_ref().is_some_and(may)) {
            let _ = g.send(info).or_else(|_| g.send(plain));
        }
    }
}

fn signals(c: &Current) -> Arc<dyn IoSignals> {
    Arc::new(Signals(Arc::downgrade(c.kernel())))
}

/// F_SETFL and the requests of ioctl(2) that change status flags.
pub fn set_status(c: &Current, f: &Arc<OpenFile>, flags: i32, fd: i32) -> Result<(), Errno> {
    files::fasync::set_status(c, f, flags, fd, || signals(c))
}

/// Notifies the owner of an open file that another process wants the leased file, or that the directory has changed.
pub fn teller(c: &Current, fd: i32) -> locks::leases::Tell {
    const POLL_MSG: i32 = 3;
    const BAND: i64 = 0x441;
    let signals = signals(c);
    Arc::new(move |f: &OpenFile| signals.send(&f.owner.lock().clone(), POLL_MSG, BAND, fd))
}
