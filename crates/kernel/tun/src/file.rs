//! A file of /dev/net/tun.

use crate::device::{Tun, Tuns};
use crate::{ioctl, packet};
use abi::{Errno, Result};
use caller::UserMemory;
use lock_order::{Mutex, rank};
use netstack::frame::Frame;
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, FileOps, OpenFile, StreamOps};
use wait::{Events, WaitQueue};

/// The file, with its interface after TUNSETIFF.
pub(crate) struct TunFile {
    pub tuns: Arc<Tuns>,
    pub attached: Mutex<Attached, { rank::TUN_FILE }>,
    pub queue: WaitQueue,
}

/// What a file has.
#[derive(Default)]
pub(crate) struct Attached {
    pub tun: Option<Arc<Tun>>,
    /// TUNSETIFINDEX.
    pub index: u32,
}

impl TunFile {
    pub(crate) fn new(tuns: &Arc<Tuns>) -> TunFile {
        TunFile { tuns: tuns.clone(), attached: Mutex::default(), queue: WaitQueue::new() }
    }

    /// The interface; EBADFD before TUNSETIFF, and when it has been deleted.
    pub(crate) fn tun(&self) -> Result<Arc<Tun>> {
        let tun = self.attached.lock().tun.clone().ok_or(Errno::EBADFD)?;
        if self.tuns.has(&tun) { Ok(tun) } else { Err(Errno::EBADFD) }
    }
}

impl Drop for TunFile {
    fn drop(&mut self) {
        if let Some(tun) = self.attached.get_mut().tun.take() {
            self.tuns.detach(&tun);
        }
    }
}

impl FileOps for TunFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        let tun = self.tun()?;
        if buf.is_empty() {
            return Ok(0);
        }
        let frame = tun.queue.pop().ok_or(Errno::EAGAIN)?;
        packet::deliver(&frame, tun.framing(), buf)
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        let tun = self.tun()?;
        let frame = packet::written(buf, tun.framing())?;
        if !tun.link.is_up() {
            return Err(Errno::EIO);
        }
        if let Some((bytes, offload)) = frame {
            let net = self.tuns.net();
            let stack = net.stack();
            stack.receive(net.now(), tun.link.index, Frame::with(stack.pool().copy(bytes), offload));
        }
        Ok(buf.len())
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let Ok(tun) = self.tun() else { return Events::ERR };
        let mut events = Events::NONE;
        if tun.queue.is_ready() {
            events |= Events::READABLE;
        }
        if tun.link.is_up() {
            events |= Events::WRITABLE;
        }
        events
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.queue.clone())
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        ioctl::ioctl(self, cx, mem, cmd, arg)
    }
    fn fdinfo(&self) -> String {
        format!("iff:\t{}\n", self.tun().map_or(String::new(), |tun| tun.link.name()))
    }
}

impl StreamOps for TunFile {
    fn fasync(&self, _cx: &dyn Caller, _file: &OpenFile) -> Option<WaitQueue> {
        Some(self.queue.clone())
    }
}
