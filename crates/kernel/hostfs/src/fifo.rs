//! FIFOs of a shared tree that connect to programs outside (`--host-fifo=open`).
//!
//! The host's FIFO is opened without waiting. Where Linux would wait for the other end, the thread tries again after a
//! while ([`Pace`]), because the host reports nothing on a descriptor when the other end is opened. The description is
//! the sentry's own, with O_NONBLOCK, so no call on it waits; readiness comes from the poller.
//!
//! Lock rank: the byte read ahead is a leaf. A checkpoint cannot keep an open one.

use crate::node::Node;
use crate::stream::Stream;
use abi::{Errno, Result, Signal};
use caller::pace::Pace;
use caller::retry::retry_paced;
use caller::{Outcome, UserMemory};
use hostsys::fs::{self as host, Access};
use lock_order::Mutex;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfs::{Caller, FileOps, OpenFile};
use wait::{Events, WaitQueue};

/// One open end, or both.
pub(crate) struct Fifo {
    stream: Stream,
    /// A byte that was read to learn whether there is a writer.
    ahead: Mutex<Option<u8>>,
}

impl Fifo {
    /// Opens a FIFO with open(2)'s `flags`, and waits for the other end unless they say otherwise.
    pub fn open(cx: &dyn Caller, node: &Node, flags: i32) -> Outcome<Arc<Fifo>> {
        let waits = flags & libc::O_NONBLOCK == 0;
        let (pace, queue) = (Pace::new(&cx.resources().outside_waits), WaitQueue::new());
        let again = || Some(pace.next());
        let fd = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => node.open(Access::Read)?,
            libc::O_RDWR => node.open(Access::ReadWrite)?,
            libc::O_WRONLY if !waits => node.open(Access::Write)?,
            libc::O_WRONLY => {
                retry_paced(cx, &queue, Events::ALL, again, || match node.open(Access::Write) {
                    // No process has it open for reading yet.
                    Err(Errno::ENXIO) => Err(Errno::EAGAIN),
                    opened => opened,
                })?
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        let mut ahead = None;
        if waits && flags & libc::O_ACCMODE == libc::O_RDONLY {
            retry_paced(cx, &queue, Events::ALL, again, || {
                ahead = has_writer(&fd)?;
                Ok(())
            })?;
        }
        let stream = Stream::new(&node.fs.home, fd, String::new())?;
        Ok(Arc::new(Fifo { stream, ahead: Mutex::new(ahead) }))
    }
}

/// Whether a process has, or had, the FIFO open for writing; EAGAIN while none has. A byte may have to be read for
/// that.
fn has_writer(fd: &OwnedFd) -> Result<Option<u8>> {
    if host::poll_now(fd, Events::READABLE.0) != 0 {
        return Ok(None);
    }
    let mut byte = [0];
    match host::read(fd, &mut byte) {
        Ok(0) => Err(Errno::EAGAIN),
        Ok(_) => Ok(Some(byte[0])),
        // Empty, with a writer.
        Err(Errno::EAGAIN) => Ok(None),
        Err(e) => Err(e),
    }
}

impl FileOps for Fifo {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let Some(byte) = self.ahead.lock().take() else { return host::read(&*self.stream.fd, buf) };
        buf[0] = byte;
        Ok(1 + host::read(&*self.stream.fd, &mut buf[1..]).unwrap_or(0))
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        let done = host::write(&*self.stream.fd, buf);
        if done == Err(Errno::EPIPE) {
            cx.raise(Signal::SIGPIPE);
        }
        done
    }
    fn poll(&self, cx: &dyn Caller, file: &OpenFile) -> Events {
        let ready = self.stream.poll(cx, file);
        if self.ahead.lock().is_some() { ready | Events::READABLE } else { ready }
    }
    fn wait_queue(&self, cx: &dyn Caller) -> Option<WaitQueue> {
        self.stream.wait_queue(cx)
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        // The byte read ahead counts among those that are there.
        let ahead = self.ahead.lock().is_some();
        let result = self.stream.ioctl(cx, file, mem, cmd, arg)?;
        if ahead && cmd == libc::FIONREAD as u32 {
            let n: i32 = mem.read_value(arg)?;
            mem.write_value(arg, &n.saturating_add(1))?;
        }
        Ok(result)
    }
}
