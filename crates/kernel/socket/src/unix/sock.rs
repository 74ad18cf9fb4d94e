//! The state of a Unix socket, which outlives its descriptor while peers refer to it.
//!
//! Lock rank: `UNIX_SOCKET` for `state`; two of them are only held together by
//! [`lock_two`], in address order. Wait queues are notified, and messages dropped,
//! without it.

use super::addr::{AbstractNames, Addr};
use super::message::Message;
use super::rights::InFlight;
use super::{UnixSocket, urgent};
use crate::ops::PeerCred;
use crate::options::Options;
use abi::Errno;
use landlock::Domain;
use lock_order::{Mutex, MutexGuard, rank};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::InodeRef;
use wait::{Events, WaitQueue};

/// Longest queue of a datagram socket (/proc/sys/net/unix/max_dgram_qlen).
pub(super) const MAX_DGRAM_QLEN: usize = 10;

/// Nothing more will be received.
pub(super) const RECV: u8 = 1;
/// Nothing more will be sent.
pub(super) const SEND: u8 = 2;
/// Both directions are closed.
pub(super) const BOTH: u8 = RECV | SEND;

/// Whether a socket listens or is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Phase {
    /// Neither connected nor listening.
    Closed,
    /// Connections can be made to it.
    Listening,
    /// Streams and seqpacket sockets with a peer.
    Established,
}

pub(super) struct State {
    pub phase: Phase,
    pub addr: Option<Arc<Addr>>,
    pub peer: Option<Arc<Sock>>,
    pub recv: VecDeque<Message>,
    /// One of the messages is urgent.
    pub urgent: bool,
    /// Connections that wait for accept(2).
    pub backlog: VecDeque<Arc<UnixSocket>>,
    pub max_backlog: usize,
    pub shut: u8,
    pub error: Option<Errno>,
    pub peer_cred: PeerCred,
    /// The descriptor is gone.
    pub dead: bool,
    /// Sockets that found this one's queue full.
    pub blocked: Vec<Weak<Sock>>,
}

/// A Unix socket.
pub(super) struct Sock {
    pub kind: i32,
    pub state: Mutex<State, { rank::UNIX_SOCKET }>,
    pub queue: WaitQueue,
    pub options: Options,
    /// Send buffer in use.
    pub wmem: AtomicUsize,
    /// The inode it is bound to: what finds the socket hangs there.
    pub place: OnceLock<InodeRef>,
    /// Where its name and the descriptors it carries are kept.
    pub home: Arc<Home>,
    /// The network namespace in which abstract names count.
    pub net: u64,
    /// The Landlock domain of its maker.
    pub domain: OnceLock<Arc<Domain>>,
    /// Number of the descriptor's inode.
    pub ino: AtomicU64,
}

/// What the Unix sockets of one kernel share.
pub(super) struct Home {
    pub names: AbstractNames,
    pub in_flight: Arc<InFlight>,
    /// What all queued messages take, as their senders' buffers count it, and the most they may.
    pub queued: AtomicUsize,
    pub queue_limit: usize,
}

impl Home {
    pub fn new(queue_limit: usize) -> Home {
        Home {
            names: AbstractNames::default(),
            in_flight: Arc::default(),
            queued: AtomicUsize::new(0),
            queue_limit,
        }
    }
}

/// Holds the state of a socket.
pub(super) type StateGuard<'a> = MutexGuard<'a, State, { rank::UNIX_SOCKET }>;

/// Both states, whatever the order of the arguments. They must be different sockets.
pub(super) fn lock_two<'a>(a: &'a Sock, b: &'a Sock) -> (StateGuard<'a>, StateGuard<'a>) {
    if std::ptr::from_ref(a) < std::ptr::from_ref(b) {
        let ga = a.state.lock();
        (ga, b.state.lock_nested())
    } else {
        let gb = b.state.lock();
        (a.state.lock_nested(), gb)
    }
}

impl Sock {
    pub fn new(kind: i32, home: Arc<Home>, net: u64) -> Arc<Sock> {
        Sock::with(kind, home, net, Options::default())
    }

    /// A new socket with these options.
    pub fn with(kind: i32, home: Arc<Home>, net: u64, options: Options) -> Arc<Sock> {
        Arc::new(Sock {
            kind,
            state: Mutex::new(State {
                phase: Phase::Closed,
                addr: None,
                peer: None,
                recv: VecDeque::new(),
                urgent: false,
                backlog: VecDeque::new(),
                max_backlog: 0,
                shut: 0,
                error: None,
                peer_cred: PeerCred::NONE,
                dead: false,
                blocked: Vec::new(),
            }),
            queue: WaitQueue::new(),
            options,
            domain: OnceLock::new(),
            wmem: AtomicUsize::new(0),
            place: OnceLock::new(),
            home,
            net,
            ino: AtomicU64::new(0),
        })
    }

    /// The abstract name `addr` leads to this socket.
    pub fn is_named(&self, addr: Option<&Addr>) -> bool {
        let Some(Addr::Abstract(name)) = addr else { return false };
        self.home.names.find(self.net, name).is_some_and(|found| std::ptr::eq(&*found, self))
    }

    /// Streams and seqpacket sockets.
    pub fn connected_kind(&self) -> bool {
        self.kind != libc::SOCK_DGRAM
    }

    /// The receiver asked when messages were sent (SO_TIMESTAMP, SO_TIMESTAMPNS).
    pub fn wants_time(&self) -> bool {
        [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS].iter().any(|name| self.options.kept(*name) != 0)
    }

    /// Room enough for poll(2) to say writable.
    pub fn send_room(&self) -> bool {
        self.wmem.load(Ordering::SeqCst) * 4 <= self.options.sndbuf()
    }

    /// Adds the caller to those told when this socket's queue has room again.
    pub fn block_on(state: &mut State, who: &Arc<Sock>) {
        state.blocked.retain(|w| w.strong_count() > 0 && !std::ptr::eq(w.as_ptr(), Arc::as_ptr(who)));
        state.blocked.push(Arc::downgrade(who));
    }

    /// Wakes sockets that found the queue full.
    pub fn unblock(blocked: Vec<Weak<Sock>>) {
        for s in blocked.iter().filter_map(Weak::upgrade) {
            s.queue.notify(Events::WRITABLE);
        }
    }

    /// Keys of the files that queued messages carry, for the collector.
    pub fn carries(&self) -> Vec<usize> {
        let s = self.state.lock();
        let own = s.recv.iter().filter_map(|m| m.rights.as_ref()).flat_map(|r| r.files());
        let mut keys: Vec<usize> = own.map(|f| Arc::as_ptr(f) as usize).collect();
        let waiting: Vec<_> = s.backlog.iter().map(|e| e.sock.clone()).collect();
        drop(s);
        keys.extend(waiting.iter().flat_map(|e| e.carries()));
        keys
    }

    /// Takes every queued message, those of waiting connections included.
    pub fn drain(&self) -> Vec<Message> {
        let mut s = self.state.lock();
        let mut out: Vec<Message> = s.recv.drain(..).collect();
        s.urgent = false;
        let waiting: Vec<_> = s.backlog.iter().map(|e| e.sock.clone()).collect();
        drop(s);
        out.extend(waiting.iter().flat_map(|e| e.drain()));
        out
    }

    /// The last descriptor is gone. Returns what has not been read, of waiting connections too: see
    /// [`super::rights::release_all`]. Later calls find nothing.
    pub fn release(&self) -> Vec<Message> {
        let mut s = self.state.lock();
        if std::mem::replace(&mut s.dead, true) {
            return Vec::new();
        }
        s.shut = BOTH;
        let peer = s.peer.take();
        let mut unread: Vec<Message> = std::mem::take(&mut s.recv).into();
        s.urgent = false;
        let waiting = std::mem::take(&mut s.backlog);
        let blocked = std::mem::take(&mut s.blocked);
        let addr = s.addr.take();
        let listening = s.phase == Phase::Listening;
        s.phase = Phase::Closed;
        drop(s);
        if let Some(Addr::Abstract(name)) = addr.as_deref() {
            self.home.names.release(name, self);
        }
        if self.connected_kind()
            && let Some(p) = &peer
        {
            let mut ps = p.state.lock();
            ps.shut = BOTH;
            if urgent::unread(&unread, self.kind) {
                ps.error = Some(Errno::ECONNRESET);
            }
            drop(ps);
            p.queue.notify(Events::ALL);
        }
        // Connections that were not accepted are reset.
        for e in &waiting {
            let peer = e.sock.state.lock().peer.clone();
            if let Some(p) = peer {
                p.state.lock().error = Some(Errno::ECONNRESET);
            }
        }
        for e in waiting {
            unread.extend(e.sock.release());
        }
        if listening || !blocked.is_empty() {
            Sock::unblock(blocked);
        }
        self.queue.notify(Events::ALL);
        unread
    }
}
