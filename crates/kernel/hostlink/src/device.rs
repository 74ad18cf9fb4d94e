//! The sending side of an interface.

use hostsys::fs::Bell;
use lock_order::{Mutex, rank};
use netstack::driver::{Device, Features};
use netstack::frame::Frame;
use netstack::train::Train;
use netstack::vnet;
use spec::LinkHeader;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Frames that wait for room at the host, as in `tx_queue_len`.
const QUEUE_FRAMES: usize = 1000;

/// Frames that wait though their sender could write them. With more the sender waits for the thread that writes.
const BURST: usize = 64;
/// Frames that a thread writes for others before it leaves the rest to the interface's own thread.
const TURN: usize = 256;

/// How far the queue is written.
enum Written {
    All,
    /// The interface's thread goes on.
    Turn,
    /// The host takes no more now.
    Full,
}

/// A packet socket that is bound to an interface.
///
/// The frames of an operation wait in `queue` until the operation flushes the device, with no lock of a socket held: to write
/// a frame takes time, as the host carries it all the way to the other end, and a reader must not wait for that. One thread writes
/// at a time, also what others add meanwhile, so that no thread waits for another.
pub(crate) struct HostLink {
    pub(crate) fd: Arc<OwnedFd>,
    /// Bytes before the header of IP.
    pub(crate) header: u16,
    queue: Mutex<VecDeque<Frame>, { rank::FRAMES }>,
    /// Held while frames are taken from the queue and written, which keeps their order.
    writing: Mutex<(), { rank::LINK_WRITER }>,
    /// Tells the interface's thread to go on with the queue.
    rest: Bell,
    /// The interface's thread knows that the host takes no more.
    stuck: AtomicBool,
    /// The host takes no datagrams that it is to cut (Linux before 6.2, tunnels).
    refuses_trains: AtomicBool,
}

impl HostLink {
    /// A device that rings `rest` when its thread is to call [`HostLink::resume`].
    pub(crate) fn new(fd: Arc<OwnedFd>, header: LinkHeader, rest: Bell) -> HostLink {
        let ethernet = header == LinkHeader::Ethernet;
        HostLink {
            fd,
            header: if ethernet { vnet::ETHERNET } else { 0 },
            queue: Mutex::default(),
            writing: Mutex::default(),
            rest,
            stuck: AtomicBool::new(false),
            refuses_trains: AtomicBool::new(!ethernet),
        }
    }

    /// Sends what waits, as far as the host takes it, unless another thread does. True when the host takes no more.
    fn send_waiting(&self) -> bool {
        // What is added after the last look but before `writing` is free is seen by the next look.
        while !self.queue.lock().is_empty() {
            let Some(_turn) = self.writing.try_lock() else { return false };
            match self.write_queue() {
                Written::All => {}
                Written::Turn => return false,
                Written::Full => return true,
            }
        }
        false
    }

    /// Sends what waits for the interface's thread. True when the host takes no more.
    pub(crate) fn resume(&self) -> bool {
        // A thread that finds the host full from now on says so.
        self.stuck.store(false, Ordering::SeqCst);
        let full = self.send_waiting();
        if full {
            self.stuck.store(true, Ordering::SeqCst);
        }
        full
    }

    /// Has the interface's thread send the rest once the host takes it.
    fn leave(&self) {
        if !self.stuck.swap(true, Ordering::SeqCst) {
            self.rest.ring();
        }
    }

    /// Writes the queue. The caller holds `writing`.
    fn write_queue(&self) -> Written {
        for _ in 0..TURN {
            let Some(train) = self.next() else { return Written::All };
            let rest = self.write(train);
            if !rest.is_empty() {
                let mut queue = self.queue.lock();
                rest.into_iter().rev().for_each(|frame| queue.push_front(frame));
                return Written::Full;
            }
        }
        self.rest.ring();
        Written::Turn
    }

    /// Takes the frames from the queue that leave together.
    fn next(&self) -> Option<Train> {
        let mut queue = self.queue.lock();
        let mut train = Train::new(queue.pop_front()?);
        if !self.refuses_trains.load(Ordering::Relaxed) {
            while let Some(frame) = queue.pop_front_if(|frame| train.takes(frame)) {
                train.push(frame);
            }
        }
        Some(train)
    }

    /// Writes frames; gives back those for which there is no room. A frame that the host refuses is lost, as on a wire.
    fn write(&self, train: Train) -> Vec<Frame> {
        if train.frames().len() > 1 {
            let (header, head) = train.head();
            let parts = [&header[..], &head].into_iter().chain(train.payloads()).map(IoSlice::new);
            match self.write_parts(&parts.collect::<Vec<_>>()) {
                Err(rustix::io::Errno::INVAL) => self.refuses_trains.store(true, Ordering::Relaxed),
                result => return if is_full(result) { train.into_frames() } else { Vec::new() },
            }
        }
        let full = |frame: &Frame| {
            let header = vnet::encode(&frame.buf, self.header, &frame.offload);
            is_full(self.write_parts(&[IoSlice::new(&header), IoSlice::new(&frame.buf)]))
        };
        match train.frames().iter().position(full) {
            Some(written) => train.into_frames().split_off(written),
            None => Vec::new(),
        }
    }

    fn write_parts(&self, parts: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&*self.fd, parts))
    }
}

fn is_full(result: rustix::io::Result<usize>) -> bool {
    matches!(result, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS))
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
            let turn = self.writing.lock();
            let full = matches!(self.write_queue(), Written::Full);
            drop(turn);
            if full {
                self.leave();
            }
        }
    }

    fn flush(&self) {
        if self.send_waiting() {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pump::REST;
    use hostsys::fs::Readiness;
    use netstack::buf::Pool;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const LINK: u64 = 1;

    /// A device whose frames arrive at a socket, and what its thread waits for.
    fn device() -> (HostLink, OwnedFd, Readiness) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let readiness = Readiness::new().unwrap();
        let bell = readiness.pulse(REST).unwrap();
        readiness.add_input(&own, LINK).unwrap();
        (HostLink::new(Arc::new(own), LinkHeader::Ethernet, bell), other, readiness)
    }

    /// The first byte of each frame that has arrived.
    fn arrived(at: &OwnedFd) -> Vec<u8> {
        let mut buf = [0; 4096];
        std::iter::from_fn(|| rustix::io::read(at, &mut buf[..]).ok().map(|_| buf[vnet::HEADER])).collect()
    }

    #[test]
    fn frames_wait_for_room_in_their_order() {
        let (link, other, readiness) = device();
        let pool = Pool::new();
        for n in 0..4 {
            link.transmit(Frame::new(pool.copy(&[n; 2048])));
        }
        assert!(arrived(&other).is_empty(), "the operation goes on");
        link.flush();
        assert_eq!(arrived(&other), [0, 1, 2, 3]);
        // More than the socket holds.
        for n in 0..QUEUE_FRAMES {
            link.transmit(Frame::new(pool.copy(&[n as u8; 2048])));
        }
        link.flush();
        assert!(readiness.wait().iter().any(|(token, _)| *token == REST), "the thread is told");
        assert!(link.resume(), "no room yet");
        readiness.await_room(&*link.fd, LINK, true).unwrap();
        let mut all = arrived(&other);
        loop {
            assert!(readiness.wait().iter().any(|(token, _)| *token == LINK), "there is room");
            let full = link.resume();
            all.extend(arrived(&other));
            if !full {
                break;
            }
        }
        let want: Vec<u8> = (0..QUEUE_FRAMES).map(|n| n as u8).collect();
        assert_eq!(all, want);
        readiness.await_room(&*link.fd, LINK, false).unwrap();
    }
}
