//! The Unix sockets of a kernel as plain data, for a checkpoint.
//!
//! Sockets refer to each other, messages to their senders, and messages carry open files, which may be sockets again. So
//! all sockets are saved together and refer to each other by their places in the list, and they are restored in two steps:
//! first the sockets without messages ([`UnixFamily::restore`]), of which open files are made, then the messages with the
//! files that they carry ([`Restored::fill`]).

use super::addr::{Addr, Bound};
use super::message::{Charge, Message};
use super::rights::{Rights, unix_of};
use super::sock::{BOTH, Phase, Sock};
use super::{UnixFamily, UnixSocket};
use crate::ops::{PeerCred, SocketOps};
use crate::options::{Options, OptionsState};
use abi::{Errno, Result};
use landlock::Domain;
use pid::Pid;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vfs::{InodeRef, OpenFile};

/// [`PeerCred`] as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CredState {
    /// The process, by its number in the sandbox's own PID namespace.
    pub pid: Option<i32>,
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Option<Vec<u32>>,
}

/// A message as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MessageState {
    /// The bytes that are still to be read.
    pub unread: Vec<u8>,
    /// The sender's address.
    pub from: Option<Addr>,
    /// The sender's credentials.
    pub cred: Option<CredState>,
    /// The open files that it carries ([`OpenFile::id`]), and the user that sent them.
    pub rights: (Vec<u64>, u32),
    /// The byte that MSG_OOB receives.
    pub urgent: bool,
    /// Looked at with MSG_PEEK.
    pub peeked: bool,
    /// The socket with the send buffer that it takes, and the amount.
    pub charge: (usize, usize),
}

/// A socket as plain data. Other sockets are named by their places in [`UnixState::sockets`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UnixSocketState {
    /// SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET.
    pub kind: i32,
    /// The network namespace in which abstract names count, by inode number.
    pub net: u64,
    /// Whether it listens or is connected.
    pub phase: Phase,
    /// Its name, which an accepted socket shares with the listening one.
    pub addr: Option<Addr>,
    /// The abstract name leads to it.
    pub named: bool,
    /// Device and inode number of the file that it is bound to.
    pub place: Option<(u64, u64)>,
    /// Number of the descriptor's inode; 0 for a connection that has not been accepted.
    pub ino: u64,
    /// Its peer.
    pub peer: Option<usize>,
    /// The process that made the connection, or listens.
    pub peer_cred: CredState,
    /// Connections that wait for accept(2), and the most there may be.
    pub backlog: (Vec<usize>, usize),
    /// RCV_SHUTDOWN (1) and SEND_SHUTDOWN (2).
    pub shut: u8,
    /// SO_ERROR.
    pub error: Option<Errno>,
    /// Its descriptor is gone; peers and messages keep it.
    pub dead: bool,
    /// Sockets that found its queue full.
    pub blocked: Vec<usize>,
    /// Its connection was to a program outside, and is reset when it is restored.
    pub outside: bool,
    /// SOL_SOCKET options.
    pub options: OptionsState,
    /// Messages, the oldest one first.
    pub messages: Vec<MessageState>,
}

/// The Unix sockets of a kernel as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UnixState {
    /// All sockets that open files, messages and other sockets lead to.
    pub sockets: Vec<UnixSocketState>,
    /// The name that autobind gave last.
    pub last_name: u32,
}

/// What saving found: the sockets, and the open files that messages carry, which are kept as other open files are.
pub struct Saved {
    /// The sockets.
    pub state: UnixState,
    /// The open files.
    pub in_flight: Vec<Arc<OpenFile>>,
    /// The files that sockets are bound to.
    pub bound: Vec<InodeRef>,
    /// Sockets that were made under Landlock, by their places, with the domains of their makers.
    pub confined: Vec<(usize, Arc<Domain>)>,
}

/// Places of sockets in the list; grows as sockets are found.
#[derive(Default)]
struct Places {
    of: HashMap<usize, usize>,
    sockets: Vec<Arc<Sock>>,
    outside: Vec<bool>,
    files: HashMap<u64, Arc<OpenFile>>,
    bound: Vec<InodeRef>,
}

impl Places {
    fn place(&mut self, sock: &Arc<Sock>) -> usize {
        *self.of.entry(Arc::as_ptr(sock) as usize).or_insert_with(|| {
            self.sockets.push(sock.clone());
            self.outside.push(false);
            self.sockets.len() - 1
        })
    }

    fn socket(&mut self, socket: &UnixSocket) -> usize {
        let place = self.place(&socket.sock);
        self.outside[place] = socket.outside.get().is_some();
        place
    }

    fn message(&mut self, m: &Message) -> MessageState {
        let files = m.rights.as_ref().map(|rights| rights.files()).unwrap_or_default();
        for file in files {
            if self.files.insert(file.id, file.clone()).is_none()
                && let Some(socket) = unix_of(file)
            {
                self.socket(socket);
            }
        }
        let (sender, amount) = m.charge.parts();
        MessageState {
            unread: m.unread().to_vec(),
            from: m.from.as_deref().cloned(),
            cred: m.cred.as_ref().map(cred_state),
            rights: (files.iter().map(|file| file.id).collect(), m.rights.as_ref().map_or(0, Rights::uid)),
            urgent: m.urgent,
            peeked: m.peeked,
            charge: (self.place(sender), amount),
        }
    }

    fn state(&mut self, sock: &Sock) -> UnixSocketState {
        let s = sock.state.lock();
        let place = sock.place.get().and_then(|inode| inode.attr().ok());
        self.bound.extend(sock.place.get().cloned());
        UnixSocketState {
            kind: sock.kind,
            net: sock.net,
            phase: s.phase,
            addr: s.addr.as_deref().cloned(),
            named: sock.is_named(s.addr.as_deref()),
            place: place.map(|attr| (attr.dev, attr.ino)),
            ino: sock.ino.load(Ordering::Relaxed),
            peer: s.peer.as_ref().map(|peer| self.place(peer)),
            peer_cred: cred_state(&s.peer_cred),
            backlog: (s.backlog.iter().map(|waiting| self.socket(waiting)).collect(), s.max_backlog),
            shut: s.shut,
            error: s.error,
            dead: s.dead,
            blocked: s.blocked.iter().filter_map(Weak::upgrade).map(|sock| self.place(&sock)).collect(),
            outside: false,
            options: sock.options.state(),
            messages: s.recv.iter().map(|m| self.message(m)).collect(),
        }
    }
}

fn cred_state(cred: &PeerCred) -> CredState {
    CredState {
        pid: cred.pid.as_ref().map(|pid| pid.nr()),
        uid: cred.uid,
        gid: cred.gid,
        groups: cred.groups.as_deref().map(<[u32]>::to_vec),
    }
}

/// Finds a process by its number in the sandbox's own PID namespace.
type FindPid<'a> = &'a dyn Fn(i32) -> Option<Arc<Pid>>;

fn cred(saved: &CredState, find: FindPid<'_>) -> PeerCred {
    let groups = saved.groups.as_deref().map(Into::into);
    PeerCred { pid: saved.pid.and_then(find), groups, ..PeerCred::outside(saved.uid, saved.gid) }
}

/// Sockets that are restored without their messages.
pub struct Restored {
    sockets: Vec<Arc<Sock>>,
    /// What descriptors own, or the queue of a listening socket; none for a socket that is dead.
    owned: Vec<Option<Arc<UnixSocket>>>,
}

impl UnixFamily {
    /// All sockets as plain data, as they are found from the sandbox's open files. Nothing may run in the sandbox meanwhile.
    pub fn state<'a>(&self, open: impl IntoIterator<Item = &'a OpenFile>) -> Saved {
        let mut places = Places::default();
        for socket in open.into_iter().filter_map(unix_of) {
            places.socket(socket);
        }
        let mut sockets: Vec<UnixSocketState> = Vec::new();
        while let Some(sock) = places.sockets.get(sockets.len()).cloned() {
            sockets.push(places.state(&sock));
        }
        for (state, outside) in sockets.iter_mut().zip(&places.outside) {
            state.outside = *outside;
        }
        let domain = |(place, sock): (usize, &Arc<Sock>)| Some((place, sock.domain.get()?.clone()));
        let confined = places.sockets.iter().enumerate().filter_map(domain).collect();
        let mut in_flight: Vec<_> = places.files.into_values().collect();
        in_flight.sort_by_key(|file| file.id);
        Saved {
            state: UnixState { sockets, last_name: self.home.names.last() },
            in_flight,
            bound: places.bound,
            confined,
        }
    }

    /// The sockets of plain data, without messages. `pid` gives a process, `inode` the file that a socket was bound to,
    /// by device and inode number; a socket without its file cannot be found by it. EADDRINUSE when a name is taken.
    pub fn restore(
        &self,
        saved: &UnixState,
        pid: FindPid<'_>,
        inode: impl Fn((u64, u64)) -> Option<InodeRef>,
    ) -> Result<Restored> {
        self.home.names.set_last(saved.last_name);
        let new = |one: &UnixSocketState| {
            Sock::with(one.kind, self.home.clone(), one.net, Options::from(&one.options))
        };
        let sockets: Vec<Arc<Sock>> = saved.sockets.iter().map(new).collect();
        let owned: Vec<_> = saved
            .sockets
            .iter()
            .zip(&sockets)
            .map(|(one, sock)| (!one.dead).then(|| UnixSocket::of(sock.clone())))
            .collect();
        for (one, sock) in saved.sockets.iter().zip(&sockets) {
            if let Some(Addr::Abstract(name)) = &one.addr
                && one.named
            {
                self.home.names.claim(name, sock)?;
            }
            if let Some(inode) = one.place.and_then(&inode) {
                if let Some(attachments) = inode.attachments() {
                    attachments.set(Some(Arc::new(Bound(Arc::downgrade(sock)))));
                }
                let _ = sock.place.set(inode);
            }
            sock.ino.store(one.ino, Ordering::Relaxed);
            let other = |place: &usize| sockets.get(*place);
            let mut s = sock.state.lock();
            s.phase = one.phase;
            s.addr = one.addr.clone().map(Arc::new);
            s.peer = one.peer.as_ref().and_then(other).cloned();
            s.peer_cred = cred(&one.peer_cred, pid);
            let (backlog, most) = &one.backlog;
            s.backlog = backlog.iter().filter_map(|place| owned.get(*place)?.clone()).collect();
            s.max_backlog = *most;
            (s.shut, s.error, s.dead) = (one.shut, one.error, one.dead);
            s.blocked = one.blocked.iter().filter_map(other).map(Arc::downgrade).collect();
            if one.outside {
                (s.phase, s.shut, s.error) = (Phase::Established, BOTH, Some(Errno::ECONNRESET));
            }
        }
        Ok(Restored { sockets, owned })
    }
}

impl Restored {
    /// The socket with a descriptor of an inode with this number.
    pub fn socket(&self, ino: u64) -> Option<Arc<dyn SocketOps>> {
        let mut owned = self.owned.iter().flatten();
        let socket = owned.find(|socket| ino != 0 && socket.sock.ino.load(Ordering::Relaxed) == ino)?;
        Some(socket.clone())
    }

    /// Gives the socket at a place the Landlock domain of its maker. EINVAL without such a socket.
    pub fn confine(&self, place: usize, domain: Arc<Domain>) -> Result<()> {
        let sock = self.sockets.get(place).ok_or(Errno::EINVAL)?;
        sock.domain.set(domain).map_err(|_| Errno::EINVAL)
    }

    /// Puts the messages into the queues. `file` gives the open file with an identity; one that is missing is left out.
    /// ENOBUFS when the messages take more than they may. What no open file and no queue keeps goes.
    pub fn fill(
        self,
        saved: &UnixState,
        pid: FindPid<'_>,
        file: impl Fn(u64) -> Option<Arc<OpenFile>>,
    ) -> Result<()> {
        for (one, sock) in saved.sockets.iter().zip(&self.sockets) {
            for m in &one.messages {
                let (sender, amount) = m.charge;
                let sender = self.sockets.get(sender).ok_or(Errno::EINVAL)?;
                let (files, uid) = &m.rights;
                let files = files.iter().filter_map(|id| file(*id)).collect();
                let message = Message {
                    data: m.unread.clone(),
                    start: 0,
                    from: m.from.clone().map(Arc::new),
                    cred: m.cred.as_ref().map(|saved| cred(saved, pid)),
                    rights: Rights::new(&sock.home.in_flight, files, *uid),
                    urgent: m.urgent,
                    peeked: m.peeked,
                    at: None,
                    charge: Charge::of(sender, amount)?,
                };
                let mut s = sock.state.lock();
                s.urgent |= m.urgent;
                s.recv.push_back(message);
            }
        }
        Ok(())
    }
}
