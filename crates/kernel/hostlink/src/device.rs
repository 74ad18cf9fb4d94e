//! The sending side of an interface.

use hostsys::fs::Bell;
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

/// Frames that wait though their sender could write them. With more the sender waits for the thread that writes.
const BURST: usize = 64;
/// Frames that a thread writes for others before it leaves the rest to the interface's own thread.
const TURN: usize = 256;

/// A packet socket that is bound to an interface.
///
/// The frames of an operation wait in `queue` until the operation flushes the device, with no lock of a socket held: to write
/// a frame takes time, as the host carries it all the way to the other end, and a reader must not wait for that. One thread writes
/// at a time, also what others add meanwhile, so that no thread waits for another.
pub(crate) struct HostLink {
    pub(crate) fd: Arc<OwnedFd>,
    queue: Mutex<VecDeque<Frame>, { rank::FRAMES }>,
    /// Held while frames are taken from the queue and written, which keeps their order.
    writing: Mutex<(), { rank::LINK_WRITER }>,
    /// Tells the interface's thread to go on with the queue.
    rest: Bell,
}

impl HostLink {
    /// A device that rings `rest` when its thread is to call [`HostLink::send_waiting`].
    pub(crate) fn new(fd: Arc<OwnedFd>, rest: Bell) -> HostLink {
        HostLink { fd, queue: Mutex::default(), writing: Mutex::default(), rest }
    }

    /// Sends what waits, as far as the host takes it, unless another thread does.
    pub(crate) fn send_waiting(&self) {
        // What is added after the last look but before `writing` is free is seen by the next look.
        while !self.queue.lock().is_empty() {
            let Some(_turn) = self.writing.try_lock() else { return };
            if !self.write_queue() {
                return;
            }
        }
    }

    /// Writes the queue; false when some of it is left. The caller holds `writing`.
    fn write_queue(&self) -> bool {
        for _ in 0..TURN {
            let Some(frame) = self.queue.lock().pop_front() else { return true };
            if !self.write(&frame) {
                self.queue.lock().push_front(frame);
                return false;
            }
        }
        self.rest.ring();
        false
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
        if queue.len() < QUEUE_FRAMES {
            queue.push_back(frame);
        }
        let many = queue.len() >= BURST;
        drop(queue);
        if many {
            let _turn = self.writing.lock();
            self.write_queue();
        }
    }

    fn flush(&self) {
        self.send_waiting();
    }
}
