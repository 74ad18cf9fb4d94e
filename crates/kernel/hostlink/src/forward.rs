//! Connections from outside to a port inside (`ringfence port-forward`).
//!
//! Data from outside arrive in one pipe, and data to the outside leave in another. So closing an end ends one
//! direction, and the sentry needs no socket calls. The caller's thread serves the connection.

use abi::Errno;
use hostsys::fs::Readiness;
use ktime::{Clock, Ktime};
use netstack::Stack;
use netstack::notify::{Events, Notify};
use netstack::tcp::TcpSocket;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a connection inside may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that are on their way in each direction.
const PIECE: usize = 64 << 10;
const INSIDE: u64 = 0;
const FROM: u64 = 1;
const TO: u64 = 2;
/// EPOLLERR: the pipe has no reader any more.
const BROKEN: u32 = 8;

/// Wakes the thread when the socket inside has something.
struct Wake(OwnedFd);

impl Notify for Wake {
    fn changed(&self, _events: Events) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

fn raw(e: rustix::io::Errno) -> Errno {
    Errno::from_raw(e.raw_os_error())
}

/// A connection to a port inside. It ends when this is dropped.
pub struct Forward {
    inside: Arc<TcpSocket>,
    clock: Clock,
    bell: OwnedFd,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.inside.close(self.clock.now());
    }
}

impl Forward {
    /// Connects to a port of the loopback addresses inside; ECONNREFUSED without a listener, ETIMEDOUT when it takes
    /// long.
    pub fn connect(stack: &Arc<Stack>, clock: Clock, port: u16) -> abi::Result<Forward> {
        let v4 = Forward::open(stack, clock, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        v4.or_else(|error| match error {
            Errno::ECONNREFUSED => {
                Forward::open(stack, clock, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port))
            }
            error => Err(error),
        })
    }

    fn open(stack: &Arc<Stack>, clock: Clock, to: SocketAddr) -> abi::Result<Forward> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(raw)?;
        let waker = Arc::new(Wake(bell.try_clone()?));
        let forward = Forward { inside: stack.tcp_socket(to.is_ipv6(), waker), clock, bell };
        let deadline = clock.now().plus(PATIENCE);
        loop {
            match forward.inside.connect(clock.now(), to) {
                Err(Errno::EINPROGRESS | Errno::EALREADY) => forward.sleep(deadline)?,
                Err(Errno::EISCONN) => return Ok(forward),
                done => return done.map(|()| forward),
            }
        }
    }

    /// Waits until something happens inside; ETIMEDOUT at the deadline.
    fn sleep(&self, deadline: Ktime) -> abi::Result<()> {
        let left = deadline.since(self.clock.now());
        let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&time)) {
            Ok(0) => Err(Errno::ETIMEDOUT),
            Ok(_) => {
                let _ = rustix::io::read(&self.bell, &mut [0; 8]);
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(raw(e)),
        }
    }

    /// Passes bytes on until both directions are over. The pipes' ends do not block.
    pub fn run(self, from: OwnedFd, to: OwnedFd) -> abi::Result<()> {
        let readiness = Readiness::new()?;
        readiness.add(&self.bell, INSIDE)?;
        readiness.add(&from, FROM)?;
        readiness.add(&to, TO)?;
        let mut pump = Pump {
            inside: &self.inside,
            clock: self.clock,
            from: Some(from),
            to: Some(to),
            inward: Vec::new(),
            outward: Vec::new(),
        };
        loop {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            while pump.pass_in() | pump.pass_out() {}
            if pump.from.is_none() && pump.to.is_none() {
                return Ok(());
            }
            for (token, events) in readiness.wait() {
                if token == TO && events & BROKEN != 0 {
                    pump.end_out();
                }
            }
        }
    }
}

struct Pump<'a> {
    inside: &'a TcpSocket,
    clock: Clock,
    /// What comes from outside, until its end.
    from: Option<OwnedFd>,
    /// The pipe that takes output, until its reader is gone.
    to: Option<OwnedFd>,
    inward: Vec<u8>,
    outward: Vec<u8>,
}

impl Pump<'_> {
    /// Moves bytes in; true when there may be more to do.
    fn pass_in(&mut self) -> bool {
        let Some(from) = &self.from else { return false };
        if self.inward.is_empty() {
            let mut buffer = vec![0; PIECE];
            match rustix::io::read(from.as_fd(), &mut buffer) {
                Ok(0) => {
                    self.from = None;
                    let _ = self.inside.shutdown(self.clock.now(), false, true);
                    return false;
                }
                Ok(n) => {
                    buffer.truncate(n);
                    self.inward = buffer;
                }
                Err(rustix::io::Errno::INTR) => return true,
                Err(rustix::io::Errno::AGAIN) => return false,
                Err(_) => {
                    self.from = None;
                    return false;
                }
            }
        }
        match self.inside.send(self.clock.now(), &self.inward, false) {
            Ok(n) => {
                self.inward.drain(..n);
                true
            }
            Err(Errno::EAGAIN) => {
                // Asks to be woken when there is room.
                self.inside.readiness().contains(Events::OUT)
            }
            Err(_) => {
                // The connection is over; what is left to read inside still goes out.
                self.from = None;
                false
            }
        }
    }

    /// Moves bytes out; true when there may be more to do.
    fn pass_out(&mut self) -> bool {
        let Some(to) = &self.to else { return false };
        if self.outward.is_empty() {
            let mut buffer = vec![0; PIECE];
            match self.inside.receive(self.clock.now(), &mut buffer, false) {
                Ok(0) => {
                    self.to = None;
                    return false;
                }
                Ok(n) => {
                    buffer.truncate(n);
                    self.outward = buffer;
                }
                Err(Errno::EAGAIN) => return false,
                Err(_) => {
                    (self.from, self.to) = (None, None);
                    return false;
                }
            }
        }
        match rustix::io::write(to.as_fd(), &self.outward) {
            Ok(n) => {
                self.outward.drain(..n);
                true
            }
            Err(rustix::io::Errno::INTR) => true,
            Err(rustix::io::Errno::AGAIN) => false,
            Err(_) => {
                self.end_out();
                false
            }
        }
    }

    /// The reader outside is gone.
    fn end_out(&mut self) {
        self.to = None;
        self.outward.clear();
        let _ = self.inside.shutdown(self.clock.now(), true, false);
    }
}
