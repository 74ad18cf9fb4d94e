//! Signals for readiness: O_ASYNC. See F_SETOWN and F_SETSIG in fcntl(2), and socket(7).
//!
//! An open file with O_ASYNC subscribes to its operations' queue ([`FileOps::fasync`]). A notification becomes a signal to
//! the owner, which the layer of tasks sends ([`IoSignals`]). Lock: the owner and the subscription of a file are leaves.
//! A checkpoint keeps the owner and the descriptor; [`restore`] subscribes again.

use abi::{Errno, Result};
use locks::leases::Tell;
use std::sync::{Arc, Weak};
use vfs::Caller;
use vfs::file::{Async, OpenFile, OpenFileState, SignalOwner};
use wait::{Events, Wake};

/// Sends the signals of files.
pub trait IoSignals: Send + Sync {
    /// Sends the owner's signal, or SIGIO. `code` (POLL_*) and `band` (the events as poll(2) has them) go with a signal
    /// that F_SETSIG chose, and `fd`, the descriptor through which O_ASYNC was set.
    fn send(&self, owner: &SignalOwner, code: i32, band: i64, fd: i32);
    /// Sends SIGURG: urgent data has arrived at a socket. F_SETSIG has no effect on it.
    fn urgent(&self, owner: &SignalOwner);
}

/// Turns notifications of one open file into signals.
struct Ready {
    file: Weak<OpenFile>,
    signals: Arc<dyn IoSignals>,
    fd: i32,
}

const POLL_IN: (i32, i64) = (1, 0x41);
const POLL_OUT: (i32, i64) = (2, 0x304);
const POLL_PRI: (i32, i64) = (5, 0x82);
const POLL_HUP: (i32, i64) = (6, 0x18);

impl Wake for Ready {
    fn wake(&self, events: Events) -> bool {
        let Some(file) = self.file.upgrade() else { return false };
        let owner = *file.owner.lock();
        if owner.id == 0 {
            return false;
        }
        let socket = file.inode.as_ref().is_some_and(|i| i.kind() == libc::S_IFSOCK);
        let (code, band) = match events {
            e if socket && e.intersects(Events::HUP) => POLL_HUP,
            e if e.intersects(Events::READABLE) && file.readable() => POLL_IN,
            e if e.intersects(Events::PRI) => POLL_PRI,
            _ if file.writable() => POLL_OUT,
            _ => POLL_IN,
        };
        self.signals.send(&owner, code, band, self.fd);
        false
    }
}

/// Turns the arrival of urgent data at a socket into signals.
struct Urgent {
    file: Weak<OpenFile>,
    signals: Arc<dyn IoSignals>,
}

impl Wake for Urgent {
    fn wake(&self, events: Events) -> bool {
        // Errors and hang-ups wake every subscriber.
        if !events.intersects(Events::URG) {
            return false;
        }
        let Some(file) = self.file.upgrade() else { return false };
        let owner = *file.owner.lock();
        if owner.id != 0 {
            self.signals.urgent(&owner);
        }
        false
    }
}

/// F_SETOWN has named an owner: from now on a socket's urgent data is told, with or without O_ASYNC (socket(7)).
pub fn watch_urgent(cx: &dyn Caller, file: &Arc<OpenFile>, signals: impl FnOnce() -> Arc<dyn IoSignals>) {
    let socket = file.inode.as_ref().is_some_and(|i| i.kind() == libc::S_IFSOCK);
    if !socket || file.urgent.lock().is_some() {
        return;
    }
    let Some(queue) = file.ops.fasync(cx, file) else { return };
    let me = Urgent { file: Arc::downgrade(file), signals: signals() };
    let new = queue.subscribe(Events::URG, Arc::new(me));
    let old = file.urgent.lock().replace(Box::new(new));
    drop(old);
}

/// F_SETFL: replaces the changeable status flags, and begins or ends signals as O_ASYNC says.
pub fn set_status(
    cx: &dyn Caller,
    file: &Arc<OpenFile>,
    flags: i32,
    fd: i32,
    signals: impl FnOnce() -> Arc<dyn IoSignals>,
) -> Result<()> {
    let wants = flags & libc::O_ASYNC != 0;
    let mut flags = flags;
    if wants != (file.flags() & libc::O_ASYNC != 0) {
        let queue = if wants { file.ops.fasync(cx, file) } else { None };
        let new = queue.map(|q| {
            let mut mask = Events::PRI;
            if file.readable() {
                mask |= Events::READABLE;
            }
            if file.writable() {
                mask |= Events::WRITABLE;
            }
            let me = Ready { file: Arc::downgrade(file), signals: signals(), fd };
            Box::new(Async { fd, subscription: q.subscribe(mask, Arc::new(me)) })
        });
        if new.is_none() {
            flags &= !libc::O_ASYNC;
        }
        let old = std::mem::replace(&mut *file.fasync.lock(), new);
        drop(old);
    }
    file.set_status(flags);
    Ok(())
}

/// Notifies the owner of an open file that another process wants the leased file, or that the directory has changed.
pub fn teller(signals: &Arc<dyn IoSignals>, fd: i32) -> Tell {
    const POLL_MSG: i32 = 3;
    const BAND: i64 = 0x441;
    let signals = signals.clone();
    Tell::new(fd, move |file| {
        let owner = *file.owner.lock();
        signals.send(&owner, POLL_MSG, BAND, fd);
    })
}

/// The subscriptions of a file that was restored from plain data. EINVAL for a file that cannot have one.
pub fn restore(
    cx: &dyn Caller,
    file: &Arc<OpenFile>,
    saved: &OpenFileState,
    signals: &Arc<dyn IoSignals>,
) -> Result<()> {
    if saved.urgent {
        watch_urgent(cx, file, || signals.clone());
    }
    let Some(fd) = saved.async_fd else { return Ok(()) };
    set_status(cx, file, file.flags() | libc::O_ASYNC, fd, || signals.clone())?;
    if file.flags() & libc::O_ASYNC == 0 { Err(Errno::EINVAL) } else { Ok(()) }
}
