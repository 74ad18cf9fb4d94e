//! The master and slave ends as open files.

use crate::ioctl::ioctl;
use crate::pty::{Pty, Side};
use abi::{Errno, Result};
use caller::UserMemory;
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, FileOps, OpenFile, StreamOps};
use wait::{Events, WaitQueue};

/// What poll(2) says of a file that was hung up.
const HUNG: Events = Events(Events::READABLE.0 | Events::WRITABLE.0 | Events::ERR.0 | Events::HUP.0);

/// What ioctl(2) says of one.
fn dead(cmd: u32) -> Errno {
    if u64::from(cmd) == libc::TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO }
}

/// The master. Its last close hangs the slave up.
pub struct MasterFile {
    pub(crate) pty: Arc<Pty>,
}

impl Drop for MasterFile {
    fn drop(&mut self) {
        self.pty.hang_up();
    }
}

impl FileOps for MasterFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn is_silent(&self) -> bool {
        true
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if self.hung() { Ok(0) } else { self.pty.take_output(buf) }
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        if self.hung() { Err(Errno::EIO) } else { self.pty.type_in(buf) }
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        if self.hung() { HUNG } else { self.pty.master_poll() }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.pty.master_queue.clone())
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        if self.hung() {
            return Err(dead(cmd));
        }
        ioctl(&self.pty, Side::Master, cx, mem, cmd, arg)
    }
    fn fdinfo(&self) -> String {
        format!("tty-index:\t{}\n", self.pty.index)
    }
    fn link_name(&self) -> Option<String> {
        Some("/dev/ptmx".into())
    }
}

impl StreamOps for MasterFile {
    fn fasync(&self, cx: &dyn Caller, file: &OpenFile) -> Option<WaitQueue> {
        self.pty.own(cx, file, Side::Master);
        self.wait_queue(cx)
    }
}

impl MasterFile {
    fn hung(&self) -> bool {
        self.pty.inner.lock().master_hung
    }

    /// The master of a restored pair.
    pub fn restore(pty: &Arc<Pty>) -> Arc<dyn FileOps> {
        Arc::new(MasterFile { pty: pty.clone() })
    }
}

/// A slave.
pub struct SlaveFile {
    pub(crate) pty: Arc<Pty>,
    /// How often the slave had been hung up when it was opened.
    born: u64,
}

impl SlaveFile {
    /// A slave of a restored pair, which may be locked or hung up.
    pub fn restore(pty: &Arc<Pty>) -> Arc<dyn FileOps> {
        let mut i = pty.inner.lock();
        i.slaves += 1;
        Arc::new(SlaveFile { pty: pty.clone(), born: i.slave_hangups })
    }

    /// The terminal has been hung up since it was opened.
    fn hung(&self) -> bool {
        let i = self.pty.inner.lock();
        i.hung_up || i.slave_hangups != self.born
    }

    /// Opens it; with a session leader without terminal as caller and no O_NOCTTY it becomes the
    /// session's controlling terminal.
    pub(crate) fn open(pty: &Arc<Pty>, cx: &dyn Caller, flags: i32) -> Result<Arc<SlaveFile>> {
        {
            let i = pty.inner.lock();
            if i.exclusive && !cx.creds().capable(rights::Cap::SYS_ADMIN) {
                return Err(Errno::EBUSY);
            }
        }
        let born = pty.slave_opened()?;
        let file = Arc::new(SlaveFile { pty: pty.clone(), born });
        let leader = cx.pid() == cx.sid();
        let free = pty.inner.lock().session == 0;
        if flags & libc::O_NOCTTY == 0 && leader && free && pty.job.terminal(cx.sid()).is_none() {
            pty.take_session(cx);
        }
        Ok(file)
    }
}

impl Drop for SlaveFile {
    fn drop(&mut self) {
        self.pty.slave_closed();
    }
}

impl FileOps for SlaveFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if self.hung() {
            return Ok(0);
        }
        self.pty.read(cx, file.nonblocking(), buf)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        if self.hung() { Err(Errno::EIO) } else { self.pty.write(cx, buf) }
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        if self.hung() { HUNG } else { self.pty.slave_poll() }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.pty.slave_queue.clone())
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        if self.hung() {
            return Err(dead(cmd));
        }
        ioctl(&self.pty, Side::Slave, cx, mem, cmd, arg)
    }
    fn link_name(&self) -> Option<String> {
        Some(format!("/dev/pts/{}", self.pty.index))
    }
}

impl StreamOps for SlaveFile {
    fn fasync(&self, cx: &dyn Caller, file: &OpenFile) -> Option<WaitQueue> {
        self.pty.own(cx, file, Side::Slave);
        self.wait_queue(cx)
    }
}

/// TIOCGPTPEER: a new file for the slave of a master's pair; ENOTTY for other files.
pub fn open_peer(cx: &dyn Caller, master: &OpenFile, flags: i32) -> Result<Arc<OpenFile>> {
    let m: &MasterFile = master.ops.as_any().downcast_ref().ok_or(Errno::ENOTTY)?;
    let inode = m.pty.home.upgrade().and_then(|h| h.get(m.pty.index)).ok_or(Errno::EIO)?;
    let ops = SlaveFile::open(&m.pty, cx, flags)?;
    Ok(OpenFile::new(None, Some(inode), ops, flags))
}

/// Whether an open file is that of a terminal and was hung up: such a file is dead whatever becomes of the terminal.
pub fn is_hung(file: &OpenFile) -> bool {
    let any = file.ops.as_any();
    let master = any.downcast_ref::<MasterFile>().is_some_and(MasterFile::hung);
    master || any.downcast_ref::<SlaveFile>().is_some_and(SlaveFile::hung)
}

/// Terminal of an open file, for /proc/PID/stat and ttyname: its pair and whether it is the slave.
pub fn pty_of(file: &OpenFile) -> Option<(Arc<Pty>, bool)> {
    let any = file.ops.as_any();
    let master = any.downcast_ref::<MasterFile>().map(|m| (m.pty.clone(), false));
    master.or_else(|| any.downcast_ref::<SlaveFile>().map(|s| (s.pty.clone(), true)))
}
