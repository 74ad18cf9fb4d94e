//! The sending side of an interface.

use lock_order::{Mutex, rank};
use netstack::driver::{Device, Features};
use netstack::frame::Frame;
use netstack::vnet;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Frames that wait for room at the host, as in `tx_queue_len`.
const QUEUE_FRAMES: usize = 1000;

/// A packet socket that is bound to an interface.
pub(crate) struct HostLink {
    pub(crate) fd: Arc<OwnedFd>,
    queue: Mutex<VecDeque<Frame>, { rank::FRAMES }>,
}

impl HostLink {
    pub(crate) fn new(fd: Arc<OwnedFd>) -> HostLink {
        HostLink { fd, queue: Mutex::default() }
    }

    /// Sends what waits, as far as the host takes it.
    pub(crate) fn send_waiting(&self) {
        let mut queue = self.queue.lock();
        while let Some(frame) = queue.pop_front() {
            if !self.write(&frame) {
                queue.push_front(frame);
                return;
            }
        }
    }

    /// False when there is no room. A frame that the host refuses is lost, as on a wire.
    fn write(&self, frame: &Frame) -> bool {
        let header = vnet::encode(&frame.buf, vnet::ETHERNET, &frame.offload);
        let parts = [IoSlice::new(&header), IoSlice::new(&frame.buf)];
        loop {
            return match rustix::io::writev(&*self.fd, &parts) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => false,
                _ => true,
            };
        }
    }
}

impl Device for HostLink {
    fn features(&self) -> Features {
        Features { checksum: true, tso4: true, tso6: true }
    }

    fn transmit(&self, frame: Frame) {
        let mut queue = self.queue.lock();
        if queue.is_empty() && self.write(&frame) {
            return;
        }
        if queue.len() < QUEUE_FRAMES {
            queue.push_back(frame);
        }
    }
}
