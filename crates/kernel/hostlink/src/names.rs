//! The name server that a container's manager runs on the loopback interface of the container's namespace (Docker: 127.0.0.11).
//!
//! That loopback interface is the host's, and not the one inside. So a socket inside has the server's address. It
//! passes questions to the server over a host socket that is connected to it, each with a new number, and passes the
//! answers back. TCP connections go there through [`crate::inward`].

use hostsys::fs::{Bell, Readiness};
use ktime::Clock;
use netstack::Stack;
use netstack::datagram::{DatagramSocket, Protocol, SendControl};
use netstack::notify::{Events, Notify};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where Docker's embedded server is.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
pub(crate) const PORT: u16 = 53;
/// Tokens of what the thread waits for.
const END: u64 = 0;
const ASKED: u64 = 1;
const ANSWERED: u64 = 2;
/// Questions that wait for an answer; beyond them the oldest is forgotten.
const MOST: usize = 1024;
/// Longest message.
const LONGEST: usize = 65535;

/// Wakes the thread when the socket inside has something.
struct Wake(OwnedFd);

impl Notify for Wake {
    fn changed(&self, events: Events) {
        if events.contains(Events::IN) {
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }
    }
}

/// The socket that asked, and the number of its question.
struct Question {
    id: u16,
    client: SocketAddr,
    clients_id: [u8; 2],
}

/// The server inside. Its thread ends when this is dropped.
pub(crate) struct Names {
    end: Bell,
    socket: Arc<DatagramSocket>,
}

impl Drop for Names {
    fn drop(&mut self) {
        self.end.ring();
        self.socket.close();
    }
}

impl Names {
    /// Starts it. `server` is a socket that is connected to the one outside.
    pub(crate) fn start(stack: &Arc<Stack>, clock: Clock, server: OwnedFd) -> abi::Result<Names> {
        let raw = |e: rustix::io::Errno| abi::Errno::from_raw(e.raw_os_error());
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(raw)?;
        let own = bell.try_clone()?;
        let socket = stack.datagram_socket(false, Protocol::Udp, Arc::new(Wake(bell)));
        socket.bind(SocketAddr::new(SERVER.into(), PORT), true)?;
        let readiness = Readiness::new()?;
        let end = readiness.bell(END)?;
        readiness.add(&own, ASKED)?;
        readiness.add(&server, ANSWERED)?;
        let inside = socket.clone();
        std::thread::Builder::new().name("names".into()).stack_size(256 << 10).spawn(move || {
            let mut pump = Pump { inside, clock, server, bell: own, waiting: VecDeque::new(), next: 0 };
            let mut buffer = vec![0; LONGEST];
            while readiness.wait().iter().all(|(token, _)| *token != END) {
                pump.run(&mut buffer);
            }
        })?;
        Ok(Names { end, socket })
    }
}

/// Whether something answers where `server` is connected to, or at least does not refuse. Takes two milliseconds where it does not.
pub(crate) fn answers(server: &OwnedFd) -> bool {
    // An answer to nothing, which a name server ignores.
    let message = [0xff, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let patience = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    // Without a receiver the host's kernel says so before write(2) returns.
    let sent = rustix::io::write(server, &message).is_ok();
    let mut polled = [PollFd::new(server, PollFlags::IN)];
    sent && poll(&mut polled, Some(&patience)).is_ok()
        && !matches!(rustix::io::read(server, &mut [0; 512]), Err(rustix::io::Errno::CONNREFUSED))
}

struct Pump {
    inside: Arc<DatagramSocket>,
    clock: Clock,
    server: OwnedFd,
    bell: OwnedFd,
    waiting: VecDeque<Question>,
    next: u16,
}

impl Pump {
    /// Passes on what there is in both directions.
    fn run(&mut self, buffer: &mut [u8]) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        while let Ok(received) = self.inside.receive(buffer, false) {
            self.ask(&mut buffer[..received.copied], received.datagram.from);
        }
        loop {
            match rustix::io::read(&self.server, &mut *buffer) {
                Ok(length) => self.answer(&mut buffer[..length]),
                // No server is there just now: the program asks again.
                Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn ask(&mut self, message: &mut [u8], client: SocketAddr) {
        let Some(id) = message.first_chunk_mut::<2>() else { return };
        let question = Question { id: self.next, client, clients_id: *id };
        *id = self.next.to_be_bytes();
        self.next = self.next.wrapping_add(1);
        if self.waiting.len() >= MOST {
            self.waiting.pop_front();
        }
        self.waiting.push_back(question);
        let _ = rustix::io::write(&self.server, message);
    }

    fn answer(&mut self, message: &mut [u8]) {
        let Some(id) = message.first_chunk_mut::<2>() else { return };
        let number = u16::from_be_bytes(*id);
        let Some(at) = self.waiting.iter().position(|q| q.id == number) else { return };
        if let Some(question) = self.waiting.remove(at) {
            *id = question.clients_id;
            let _ =
                self.inside.send(self.clock.now(), message, Some(question.client), &SendControl::default());
        }
    }
}
