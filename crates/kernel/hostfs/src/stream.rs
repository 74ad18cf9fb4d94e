//! Imported descriptors that are not regular files: pipes, sockets, terminals,
//! devices.

use crate::files::HostFiles;
use crate::poller::Watch;
use abi::{Errno, Result, Signal};
use caller::UserMemory;
use hostsys::fs::{self as host, TtyArg};
use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use vfs::{Caller, FileOps, OpenFile};
use wait::{Events, WaitQueue};

/// A stream of the host.
pub(crate) struct Stream {
    pub fd: Arc<OwnedFd>,
    name: String,
    queue: WaitQueue,
    /// `None` for devices that epoll does not take: they never block.
    watch: Option<Watch>,
}

impl Stream {
    pub fn new(home: &HostFiles, fd: OwnedFd, name: String) -> Result<Stream> {
        let queue = WaitQueue::new();
        let watch = match home.poller().and_then(|p| p.watch(&fd, &queue)) {
            Ok(w) => Some(w),
            Err(Errno::EPERM) => None,
            Err(e) => return Err(e),
        };
        Ok(Stream { fd: Arc::new(fd), name, queue, watch })
    }
}

impl FileOps for Stream {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if self.watch.is_none() {
            return host::read(&*self.fd, buf);
        }
        host::read_nowait(&*self.fd, buf)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let r = match self.watch {
            None => host::write(&*self.fd, buf),
            Some(_) => host::write_nowait(&*self.fd, buf),
        };
        if r == Err(Errno::EPIPE) {
            cx.raise(Signal::SIGPIPE);
        }
        r
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        if self.watch.is_none() {
            return Events::READABLE | Events::WRITABLE;
        }
        Events(host::poll_now(&*self.fd, 0x2fff))
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        self.watch.as_ref().map(|_| self.queue.clone())
    }
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        let fd = self.fd.as_fd();
        match host::tty_request(cmd).ok_or(Errno::ENOTTY)? {
            TtyArg::Out(n) => {
                let mut data = vec![0; n];
                host::tty_ioctl(fd, cmd, &mut data, 0)?;
                mem.copy_out(arg, &data)?;
            }
            TtyArg::In(n) => {
                let mut data = vec![0; n];
                mem.copy_in(arg, &mut data)?;
                host::tty_ioctl(fd, cmd, &mut data, 0)?;
            }
            TtyArg::Value => host::tty_ioctl(fd, cmd, &mut [], arg)?,
        }
        Ok(0)
    }
    fn link_name(&self) -> Option<String> {
        Some(self.name.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(w) = &self.watch {
            w.stop(&*self.fd);
        }
    }
}
