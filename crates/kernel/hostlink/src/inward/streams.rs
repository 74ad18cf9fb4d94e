//! TCP connections: each is two, one of the process of the host to a second stack, and one of the stack inside.
//!
//! The first segment of a connection waits until a socket inside is connected to the same destination. Then a socket of
//! the second stack listens there, and the segment goes on. If the destination refuses, nothing listens, and the second
//! stack refuses as well.

use super::{Ends, LINK, Wake, is_over};
use crate::names::{PORT, SERVER};
use abi::Errno;
use host_interfaces::Listeners;
use ktime::Ktime;
use netstack::Stack;
use netstack::frame::Frame;
use netstack::notify::Events;
use netstack::tcp::TcpSocket;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Connections, and connections that are being made, at one time. Further ones wait: their first segment comes again.
const MOST: usize = 1024;
/// Connections to the name server at one time.
const MOST_ASKING: usize = 64;
/// How long a connection may be in the making.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a connection to the name server may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes that are on their way in each direction.
const PIECE: usize = 64 << 10;
/// Kept of data that waits in a queue, for each direction.
const QUEUE: usize = 256 << 10;

/// A socket, which ends when this is dropped.
struct End {
    socket: Arc<TcpSocket>,
    wake: Arc<Wake>,
}

impl End {
    fn new(stack: &Arc<Stack>, v6: bool, now: Ktime, bell: &Arc<OwnedFd>) -> End {
        let wake = Wake::new(bell);
        let socket = stack.tcp_socket(v6, wake.clone());
        socket.configure(now, |options| {
            (options.receive_buffer, options.send_buffer) = (Some(QUEUE), Some(QUEUE))
        });
        End { socket, wake }
    }

    /// `None` while the connection is in the making.
    fn connect(&self, now: Ktime, to: SocketAddr) -> Option<abi::Result<()>> {
        match self.socket.connect(now, to) {
            Err(Errno::EINPROGRESS | Errno::EALREADY) => None,
            Ok(()) | Err(Errno::EISCONN) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A connection with one half in the making.
struct Opening {
    /// The half that is being made, or that waits for the other one.
    made: End,
    ends: Ktime,
    /// The first segment, until it goes on.
    first: Option<Frame>,
}

/// A connection of the guest to the name server. Its half in the second stack is in the making.
struct Asking {
    inside: End,
    outside: End,
    /// Where the server takes it.
    to: SocketAddr,
    ends: Ktime,
}

/// All connections.
pub(super) struct Streams {
    bell: Arc<OwnedFd>,
    opening: HashMap<Ends, Opening>,
    /// Sockets of the second stack that wait for connections of `opening`, by destination.
    listeners: HashMap<SocketAddr, End>,
    open: Vec<Stream>,
    /// Takes connections to the name server's address inside.
    names: Option<End>,
    /// Tells where that server takes them outside.
    outside: Listeners,
    asking: Vec<Asking>,
}

impl Streams {
    pub(super) fn new(bell: Arc<OwnedFd>, outside: Listeners) -> Streams {
        Streams {
            bell,
            opening: HashMap::new(),
            listeners: HashMap::new(),
            open: Vec::new(),
            names: None,
            outside,
            asking: Vec::new(),
        }
    }

    /// Takes connections inside to the name server's address from now on.
    pub(super) fn serve_names(&mut self, now: Ktime, stack: &Arc<Stack>) -> abi::Result<()> {
        if self.names.is_some() {
            return Ok(());
        }
        let listener = End::new(stack, false, now, &self.bell);
        listener.socket.bind(SocketAddr::new(SERVER.into(), PORT), true)?;
        listener.socket.listen(MOST_ASKING)?;
        self.names = Some(listener);
        Ok(())
    }

    /// Whether the guest has a connection for the name server.
    pub(super) fn asks_for_names(&self) -> bool {
        let new = |names: &End| names.wake.take() && !names.socket.readiness().is_empty();
        self.names.as_ref().is_some_and(new)
    }

    /// Ends everything.
    pub(super) fn end(&self, now: Ktime) {
        self.names.iter().for_each(|names| names.socket.close(now));
        self.opening.values().for_each(|opening| opening.made.socket.abort(now));
        self.asking.iter().for_each(|asking| asking.inside.socket.abort(now));
        let open = self.open.iter().flat_map(|stream| &stream.ends_of);
        open.for_each(|end| end.socket.abort(now));
    }

    /// When the next connection has taken too long.
    pub(super) fn deadline(&self) -> Option<Ktime> {
        let opening = self.opening.values().map(|opening| opening.ends);
        let asking = self.asking.iter().map(|asking| asking.ends);
        opening.chain(asking).chain(self.open.iter().filter_map(|stream| stream.ends)).min()
    }

    /// The first segment of a connection of the host.
    pub(super) fn knock(
        &mut self,
        now: Ktime,
        (inside, near): (&Arc<Stack>, &Arc<Stack>),
        ends: Ends,
        first: Frame,
    ) {
        // It may come again, at any time.
        let made = self.opening.get(&ends).map(|known| known.first.is_none());
        if let Some(made) = made.or_else(|| self.open.iter().any(|s| s.from_to == Some(ends)).then_some(true))
        {
            if made {
                near.receive(now, LINK, first);
            }
            return;
        }
        if self.opening.len() + self.open.len() >= MOST {
            return;
        }
        let made = End::new(inside, ends.1.is_ipv6(), now, &self.bell);
        match made.connect(now, ends.1) {
            Some(Err(_)) => {
                made.socket.close(now);
                near.receive(now, LINK, first);
            }
            _ => {
                let opening = Opening { made, ends: now.plus(PATIENCE), first: Some(first) };
                self.opening.insert(ends, opening);
            }
        }
    }

    /// Does what there is to do.
    pub(super) fn progress(&mut self, now: Ktime, near: &Arc<Stack>) {
        self.listen(now, near);
        self.accept(now);
        self.ask(now, near);
        self.open.retain_mut(|stream| {
            stream.pass(now);
            !stream.is_over(now)
        });
    }

    /// Lets first segments go on once the half inside is made or refused.
    fn listen(&mut self, now: Ktime, near: &Arc<Stack>) {
        let Streams { bell, opening, listeners, .. } = self;
        opening.retain(|(_, to), connection| {
            if is_over(connection.ends, now) {
                connection.made.socket.abort(now);
                return false;
            }
            if connection.first.is_none() || !connection.made.wake.take() {
                return true;
            }
            let Some(result) = connection.made.connect(now, *to) else { return true };
            let ready = result.and_then(|()| match listeners.contains_key(to) {
                true => Ok(()),
                false => {
                    let listener = End::new(near, to.is_ipv6(), now, bell);
                    // Connections of an earlier one are there.
                    listener.socket.configure(now, |options| options.ip.reuse_addr = true);
                    listener.socket.bind(*to, true)?;
                    listener.socket.listen(MOST)?;
                    listeners.insert(*to, listener);
                    Ok(())
                }
            });
            if ready.is_err() {
                connection.made.socket.abort(now);
            }
            if let Some(first) = connection.first.take() {
                near.receive(now, LINK, first);
            }
            ready.is_ok()
        });
    }

    /// Takes connections of the host that are complete.
    fn accept(&mut self, now: Ktime) {
        let Streams { bell, opening, listeners, open, .. } = self;
        for (to, listener) in listeners.iter() {
            let mut wake = Wake::new(bell);
            while let Ok(socket) = listener.socket.accept(wake.clone()) {
                let outside = End { socket, wake };
                wake = Wake::new(bell);
                let ends = outside.socket.peer().map(|from| (from, *to));
                match ends.and_then(|ends| opening.remove(&ends)) {
                    Some(made) => open.push(Stream::new(made.made, outside, ends)),
                    None => outside.socket.abort(now),
                }
            }
        }
        listeners.retain(|to, listener| {
            let wanted = opening.keys().any(|(_, wanted)| wanted == to);
            if !wanted {
                listener.socket.close(now);
            }
            wanted
        });
    }

    /// Leads connections of the guest to the name server.
    fn ask(&mut self, now: Ktime, near: &Arc<Stack>) {
        let Some(names) = &self.names else { return };
        let busy = self.open.iter().filter(|stream| stream.silence.is_some()).count();
        while busy + self.asking.len() < MOST_ASKING {
            let wake = Wake::new(&self.bell);
            let Ok(socket) = names.socket.accept(wake.clone()) else { break };
            let outside = End::new(near, false, now, &self.bell);
            let inside = End { socket, wake };
            let port = self.outside.port_at(SERVER).unwrap_or_else(|error| {
                log::debug!("the port of the namespace's name server is not known: {error}");
                None
            });
            // Without one, the connection is refused.
            let to = SocketAddr::new(SERVER.into(), port.unwrap_or(PORT));
            self.asking.push(Asking { inside, outside, to, ends: now.plus(PATIENCE) });
        }
        for asking in std::mem::take(&mut self.asking) {
            match asking.outside.connect(now, asking.to) {
                Some(Ok(())) => {
                    self.open.push(Stream::new(asking.inside, asking.outside, None).bounded(now));
                }
                None if !is_over(asking.ends, now) => self.asking.push(asking),
                _ => {
                    asking.outside.socket.abort(now);
                    asking.inside.socket.abort(now);
                }
            }
        }
    }
}

/// Two connections, between which bytes are passed on.
struct Stream {
    ends_of: [End; 2],
    /// From the first to the second, and back.
    ways: [Way; 2],
    /// Of a connection of the host.
    from_to: Option<Ends>,
    broken: bool,
    /// How long it may be silent, and when that is over.
    silence: Option<Duration>,
    ends: Option<Ktime>,
}

#[derive(Default)]
struct Way {
    waiting: Vec<u8>,
    over: bool,
}

impl Stream {
    fn new(inside: End, outside: End, from_to: Option<Ends>) -> Stream {
        let ways = Default::default();
        Stream { ends_of: [inside, outside], ways, from_to, broken: false, silence: None, ends: None }
    }

    /// The same, which may not be silent.
    fn bounded(self, now: Ktime) -> Stream {
        Stream { silence: Some(SILENCE), ends: Some(now.plus(SILENCE)), ..self }
    }

    fn is_over(&self, now: Ktime) -> bool {
        let over = self.broken || self.ways.iter().all(|way| way.over);
        let silent = self.ends.is_some_and(|at| is_over(at, now));
        if over || silent {
            for end in &self.ends_of {
                if self.broken || silent { end.socket.abort(now) } else { end.socket.close(now) }
            }
        }
        over || silent
    }

    /// Passes on what there is.
    fn pass(&mut self, now: Ktime) {
        let [inside, outside] = &self.ends_of;
        if !(inside.wake.take() | outside.wake.take()) {
            return;
        }
        let [inward, outward] = &mut self.ways;
        let passed = outward.pass(now, &inside.socket, &outside.socket);
        let passed = passed.and_then(|moved| Ok(inward.pass(now, &outside.socket, &inside.socket)? | moved));
        match passed {
            Ok(true) => self.ends = self.silence.map(|silence| now.plus(silence)),
            Ok(false) => {}
            Err(_) => self.broken = true,
        }
    }
}

impl Way {
    /// Whether something moved; an error if a connection has ended before its time.
    fn pass(&mut self, now: Ktime, from: &TcpSocket, to: &TcpSocket) -> abi::Result<bool> {
        let mut moved = false;
        while !self.over {
            if self.waiting.is_empty() {
                self.waiting.resize(PIECE, 0);
                let got = from.receive(now, &mut self.waiting, false);
                self.waiting.truncate(got.unwrap_or(0));
                match got {
                    Ok(0) => {
                        self.over = true;
                        to.shutdown(now, false, true)?;
                        break;
                    }
                    Ok(_) => {}
                    Err(Errno::EAGAIN) => break,
                    Err(error) => return Err(error),
                }
            }
            match to.send(now, &self.waiting, false) {
                Ok(n) => {
                    self.waiting.drain(..n);
                    moved = true;
                }
                // It says when there is room, unless there is some by now.
                Err(Errno::EAGAIN) if to.readiness().contains(Events::OUT) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        if self.waiting.is_empty() {
            self.waiting = Vec::new();
        }
        Ok(moved)
    }
}
