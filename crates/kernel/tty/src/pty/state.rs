//! A pair as plain data, for a checkpoint. Its ends are kept with the open files; a timed read begins again.

use super::{IN_LIMIT, Pty};
use crate::ldisc::{Ldisc, LdiscState};
use crate::termios::WinSize;
use abi::stat::Attr;
use abi::{Errno, Result};
use ktime::Ktime;
use pid::Pid;
use std::sync::Arc;

/// A pair as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PtyState {
    /// N of /dev/pts/N.
    pub index: u32,
    /// Attributes of the slave's inode, with the device number of its instance of devpts.
    pub attr: Attr,
    /// The line discipline.
    pub ldisc: LdiscState,
    /// Typed, but not yet taken by the line discipline.
    pub pending: Vec<u8>,
    /// Window size.
    pub size: WinSize,
    /// TIOCSPTLCK.
    pub locked: bool,
    /// TIOCEXCL.
    pub exclusive: bool,
    /// Packet mode, and the events of it that have not been read.
    pub packet: (bool, u8),
    /// Session that it controls and its foreground group; 0 for none.
    pub session: (i32, i32),
    /// The last slave file was closed.
    pub slave_closed: bool,
    /// The master is gone.
    pub hung_up: bool,
    /// When the last character arrived.
    pub last_input: Ktime,
}

impl Pty {
    /// As plain data; `None` for a slave that has no inode any more.
    pub fn state(&self) -> Option<PtyState> {
        let attr = self.home.upgrade()?.get(self.index)?.attr().ok()?;
        let i = self.inner.lock();
        Some(PtyState {
            index: self.index,
            attr,
            ldisc: i.ldisc.state(),
            pending: i.pending.iter().copied().collect(),
            size: i.size,
            locked: i.locked,
            exclusive: i.exclusive,
            packet: (i.packet, i.packet_events),
            session: (i.session, i.pgrp),
            slave_closed: i.slave_closed,
            hung_up: i.hung_up,
            last_input: i.last_input,
        })
    }

    /// Makes a pair that no file has been opened of this one. A pair that a sentry serves keeps the window size of the
    /// user's terminal. EINVAL for what no pair is.
    pub(crate) fn load(
        &self,
        saved: &PtyState,
        served: bool,
        pid: &dyn Fn(i32) -> Option<Arc<Pid>>,
    ) -> Result<()> {
        if saved.pending.len() > 2 * IN_LIMIT {
            return Err(Errno::EINVAL);
        }
        let ldisc = Ldisc::restore(&saved.ldisc)?;
        let (session, pgrp) = saved.session;
        let mut i = self.inner.lock();
        i.ldisc = ldisc;
        i.pending = saved.pending.iter().copied().collect();
        if !served {
            i.size = saved.size;
        }
        (i.locked, i.exclusive) = (saved.locked, saved.exclusive);
        (i.packet, i.packet_events) = saved.packet;
        (i.session, i.pgrp) = (session.max(0), pgrp.max(0));
        i.ids = [session, pgrp].map(|nr| if nr > 0 { pid(nr) } else { None });
        (i.slave_closed, i.hung_up) = (saved.slave_closed, saved.hung_up);
        i.last_input = saved.last_input;
        Ok(())
    }

    /// Makes it the controlling terminal of its session again, when the session is there.
    pub fn restore_session(self: &Arc<Self>) {
        let session = self.inner.lock().session;
        if session > 0 {
            self.job.set_terminal(session, Some(self.clone()));
        }
    }
}
