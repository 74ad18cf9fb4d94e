//! Requests of one sandbox, answered one by one. The only call that waits is poll(2).

use crate::dns::{Question, REFUSED};
use crate::journal::Journal;
use crate::policy::Policy;
use crate::resolver::{Client, PORT, Resolver};
use abi::Errno;
use hostsys::{net, one_fd};
use netproto::address::{FRAME, canonical, from_frame, from_sockaddr, to_frame, to_sockaddr};
use netproto::{Domain, Kind, MAX_REQUEST, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// MSG_* flags of a datagram that mean anything to the host.
const SEND_FLAGS: i32 = libc::MSG_OOB | libc::MSG_DONTROUTE | libc::MSG_CONFIRM | libc::MSG_MORE;
/// Most sockets that may look names up at a time.
const MAX_RESOLVING: usize = 256;
/// Longest question about a name, with the address in front.
const MAX_QUESTION: usize = FRAME + 1024;

struct Socket {
    fd: OwnedFd,
    domain: Domain,
    kind: Kind,
}

/// What a sandbox has asked for so far.
pub(crate) struct Server {
    channel: OwnedFd,
    policy: Option<Policy>,
    names: Resolver,
    sockets: HashMap<u64, Socket>,
    /// The gofer's ends of the pairs over which sockets look names up.
    resolving: HashMap<u64, OwnedFd>,
    most: usize,
    journal: Journal,
}

/// A reply and the descriptor that goes with it.
type Answered = (Reply, Option<OwnedFd>);

fn failed(error: Errno) -> Answered {
    (Reply { errno: error.raw(), ..Reply::default() }, None)
}

fn done(result: abi::Result<()>) -> Answered {
    result.map_or_else(failed, |()| (Reply::default(), None))
}

impl Server {
    /// For the sandbox at the other end of `channel`, which may have `most` sockets.
    pub(crate) fn new(channel: OwnedFd, policy: Option<Policy>, names: Resolver, most: usize) -> Server {
        let journal = Journal::default();
        Server { channel, policy, names, sockets: HashMap::new(), resolving: HashMap::new(), most, journal }
    }

    /// Serves until the other end is closed; an error if it says what is no request.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut packet = vec![0; MAX_REQUEST + 1];
        loop {
            let (requested, asked, answered) = self.wait()?;
            // From the last place to the first: each may go.
            for place in answered.into_iter().rev() {
                let told = self.names.ready(place);
                self.tell(told);
            }
            let told = self.names.tick();
            self.tell(told);
            for id in asked {
                self.take_question(id);
            }
            if requested && !self.take_request(&mut packet)? {
                return Ok(());
            }
        }
    }

    /// Waits: whether there is a request, which sockets have asked for a name, which questions may have been answered.
    fn wait(&self) -> io::Result<(bool, Vec<u64>, Vec<usize>)> {
        let ids: Vec<u64> = self.resolving.keys().copied().collect();
        let mut fds = vec![PollFd::new(&self.channel, PollFlags::IN)];
        fds.extend(
            ids.iter().filter_map(|id| self.resolving.get(id)).map(|fd| PollFd::new(fd, PollFlags::IN)),
        );
        fds.extend(self.names.sockets().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let wait = self.names.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let wait = wait
            .map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) });
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, Vec::new(), Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (first, rest) = ready.split_first().unwrap_or((&false, &[]));
        let (asked, answered) = rest.split_at(ids.len().min(rest.len()));
        let asked = ids.into_iter().zip(asked).filter(|(_, ready)| **ready).map(|(id, _)| id).collect();
        let answered = answered.iter().enumerate().filter(|(_, ready)| **ready).map(|(at, _)| at).collect();
        Ok((*first, asked, answered))
    }

    /// Reads one request and answers it; false when there will be no more.
    fn take_request(&mut self, packet: &mut [u8]) -> io::Result<bool> {
        let length = match recv(&self.channel, &mut packet[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, length)) => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(true),
            Err(rustix::io::Errno::CONNRESET) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if length == 0 {
            return Ok(false);
        }
        let request = packet.get(..length).and_then(Request::decode);
        let Some(request) = request else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the sandbox sent no request"));
        };
        if let Request::Close { id } = request {
            self.close(id);
            return Ok(true);
        }
        let (reply, fd) = self.answer(request);
        match one_fd::send(&self.channel, &reply.encode(), fd.as_ref().map(AsFd::as_fd)) {
            Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(false),
            sent => sent.map(|()| true).map_err(|errno| io::Error::from_raw_os_error(errno.raw())),
        }
    }

    /// Answers any request but a close.
    pub(crate) fn answer(&mut self, request: Request<'_>) -> Answered {
        match request {
            Request::Socket { id, domain, kind } => self.make(id, domain, kind),
            Request::Bind { id, addr } => self.with(id, |server, socket| server.bind(socket, addr)),
            Request::Connect { id, addr } => self.connect(id, addr),
            Request::Disconnect { id } => self.with(id, |_, socket| {
                net::connect(&socket.fd, &(libc::AF_UNSPEC as u16).to_ne_bytes().repeat(8))
            }),
            Request::Listen { id, backlog } => self.with(id, |server, socket| server.listen(socket, backlog)),
            Request::Send { id, flags, addr, data } => self.send(id, flags as i32, addr, data),
            Request::Close { id } => {
                self.close(id);
                failed(Errno::EBADF)
            }
        }
    }

    fn with(&mut self, id: u64, act: impl FnOnce(&mut Self, &Socket) -> abi::Result<()>) -> Answered {
        // Taken out for as long as the rest of the server is at work on it.
        let Some(socket) = self.sockets.remove(&id) else { return failed(Errno::EBADF) };
        let result = act(self, &socket);
        self.sockets.insert(id, socket);
        done(result)
    }

    fn make(&mut self, id: u64, domain: Domain, kind: Kind) -> Answered {
        if self.sockets.contains_key(&id) {
            return failed(Errno::EEXIST);
        }
        if self.sockets.len() >= self.most {
            return failed(Errno::ENFILE);
        }
        let (family, ping) = match domain {
            Domain::V4 => (libc::AF_INET, libc::IPPROTO_ICMP),
            Domain::V6 => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        };
        let (kind_number, protocol) = match kind {
            Kind::Stream => (libc::SOCK_STREAM, libc::IPPROTO_TCP),
            Kind::Datagram => (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
            Kind::Ping => (libc::SOCK_DGRAM, ping),
        };
        let made = net::socket(family, kind_number, protocol)
            .and_then(|fd| Ok((fd.try_clone().map_err(Errno::from)?, fd)));
        match made {
            Ok((copy, fd)) => {
                self.sockets.insert(id, Socket { fd, domain, kind });
                (Reply::default(), Some(copy))
            }
            // The gofer's own limit is the sandbox's as a whole.
            Err(Errno::EMFILE) => failed(Errno::ENFILE),
            Err(error) => failed(error),
        }
    }

    fn bind(&mut self, socket: &Socket, addr: SocketAddr) -> abi::Result<()> {
        // A port that the host chooses belongs to no other socket; to receive connections on it takes listen(2).
        if addr.port() != 0 && socket.kind != Kind::Ping {
            self.check_local(socket, addr)?;
        }
        net::bind(&socket.fd, &to_sockaddr(&addr))
    }

    fn listen(&mut self, socket: &Socket, backlog: i32) -> abi::Result<()> {
        if socket.kind == Kind::Stream {
            let local = net::local_addr(&socket.fd)?;
            self.check_local(socket, from_sockaddr(&local).ok_or(Errno::EINVAL)?)?;
        }
        net::listen(&socket.fd, backlog)
    }

    fn check_local(&mut self, socket: &Socket, addr: SocketAddr) -> abi::Result<()> {
        match &self.policy {
            Some(policy) if !policy.allows_local(socket.kind, addr) => {
                self.journal.refused("listening on", socket.kind, addr);
                Err(Errno::EACCES)
            }
            _ => Ok(()),
        }
    }

    /// Whether a socket may have that peer.
    fn may_reach(&self, kind: Kind, addr: SocketAddr) -> bool {
        self.policy.as_ref().is_none_or(|policy| policy.allows(kind, addr, &self.names))
    }

    /// Whether the gofer stands for the peer: a name server that is not to be reached itself.
    fn stands_for(&self, kind: Kind, addr: SocketAddr) -> bool {
        kind == Kind::Datagram && addr.port() == PORT && !self.may_reach(kind, addr)
    }

    fn connect(&mut self, id: u64, addr: SocketAddr) -> Answered {
        let Some(socket) = self.sockets.get(&id) else { return failed(Errno::EBADF) };
        let (kind, domain) = (socket.kind, socket.domain);
        if domain == Domain::V4 && addr.is_ipv6() {
            return failed(Errno::EAFNOSUPPORT);
        }
        if self.stands_for(kind, addr) {
            return self.stand_for(id, addr);
        }
        if !self.may_reach(kind, addr) {
            self.journal.refused("connecting to", kind, addr);
            return failed(Errno::EACCES);
        }
        self.with(id, |_, socket| net::connect(&socket.fd, &to_sockaddr(&addr)))
    }

    fn send(&mut self, id: u64, flags: i32, addr: SocketAddr, data: &[u8]) -> Answered {
        let Some(socket) = self.sockets.get(&id) else { return failed(Errno::EBADF) };
        let kind = socket.kind;
        if kind == Kind::Stream {
            return failed(Errno::EINVAL);
        }
        if self.stands_for(kind, addr) {
            let answered = self.stand_for(id, addr);
            if answered.0.errno == 0 {
                self.look_up(id, addr, data);
            }
            return (Reply { value: data.len() as u32, ..answered.0 }, answered.1);
        }
        if !self.may_reach(kind, addr) {
            self.journal.refused("sending to", kind, addr);
            return failed(Errno::EACCES);
        }
        let flags = flags & SEND_FLAGS | libc::MSG_DONTWAIT;
        match net::send_to(&socket.fd, data, &to_sockaddr(&addr), &[], flags) {
            Ok(sent) => (Reply { value: sent as u32, ..Reply::default() }, None),
            Err(error) => failed(error),
        }
    }

    /// Gives a socket its way to look names up, if it has none, and the local address that it would have.
    fn stand_for(&mut self, id: u64, server: SocketAddr) -> Answered {
        let reply = Reply { names: true, addr: source_of(server.ip()), ..Reply::default() };
        if self.resolving.contains_key(&id) {
            return (reply, None);
        }
        if self.resolving.len() >= MAX_RESOLVING {
            return failed(Errno::ENOBUFS);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None) {
            Ok((own, theirs)) => {
                self.resolving.insert(id, own);
                (reply, Some(theirs))
            }
            Err(_) => failed(Errno::ENOBUFS),
        }
    }

    /// Takes a question that a socket has asked.
    fn take_question(&mut self, id: u64) {
        let Some(fd) = self.resolving.get(&id) else { return };
        let mut packet = [0; MAX_QUESTION];
        let length = match recv(fd, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) if length > 0 => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            _ => {
                // The sandbox has closed its end.
                self.resolving.remove(&id);
                self.names.forget(id);
                return;
            }
        };
        if let Some((frame, data)) = packet[..length].split_first_chunk::<FRAME>()
            && let Some(server) = from_frame(frame)
        {
            self.look_up(id, server, data);
        }
    }

    fn look_up(&mut self, id: u64, server: SocketAddr, data: &[u8]) {
        // As a name server, the gofer leaves alone what is no question.
        let Some(question) = Question::parse(data) else { return };
        let client = Client { socket: id, server };
        let allowed = self.policy.as_ref().is_some_and(|policy| policy.names(&question.name));
        let answer = if allowed {
            self.names.ask(question, client)
        } else {
            self.journal.refused_name(&question.name);
            Some(question.failure(REFUSED))
        };
        self.tell(answer.map(|answer| (client, answer)));
    }

    /// Gives answers to the sockets that asked. What has no room is lost, as datagrams are.
    fn tell(&self, answers: impl IntoIterator<Item = (Client, Vec<u8>)>) {
        for (client, answer) in answers {
            if let Some(fd) = self.resolving.get(&client.socket) {
                let packet = [&to_frame(&client.server), answer.as_slice()].concat();
                let _ = send(fd, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
        }
    }

    fn close(&mut self, id: u64) {
        self.sockets.remove(&id);
        if self.resolving.remove(&id).is_some() {
            self.names.forget(id);
        }
    }
}

/// The local address from which this host would send to `ip`.
fn source_of(ip: IpAddr) -> Option<SocketAddr> {
    let ip = canonical(ip);
    let domain = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let probe = net::socket(domain, libc::SOCK_DGRAM, 0).ok()?;
    net::connect(&probe, &to_sockaddr(&SocketAddr::new(ip, PORT))).ok()?;
    from_sockaddr(&net::local_addr(&probe).ok()?)
}
