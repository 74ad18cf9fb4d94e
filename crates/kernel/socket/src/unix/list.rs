//! The Unix sockets of a network namespace, for lists of them (sock_diag(7)).

use super::UnixSocket;
use super::sock::{Phase, Sock};
use crate::ops::SocketOps;
use lock_order::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Dead entries are removed when there are twice as many as lived at the last time, and this many more.
const SPARE: usize = 64;

/// The sockets that have, or had, a descriptor.
#[derive(Default)]
pub(crate) struct UnixList(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    all: Vec<Weak<dyn SocketOps>>,
    lived: usize,
}

/// What is shown of a socket.
pub(crate) struct UnixRow {
    /// SOCK_*.
    pub(crate) kind: i32,
    /// A state as TCP numbers them: established, closed, listening.
    pub(crate) state: u8,
    pub(crate) inode: u64,
    /// The name as getsockname(2) returns it, without the family.
    pub(crate) name: Vec<u8>,
    /// Inode and device of the file that it is bound to.
    pub(crate) place: Option<(u64, u64)>,
    /// The peer's inode number; 0 for a peer without descriptor.
    pub(crate) peer: Option<u64>,
    /// Inode numbers of those that wait to be accepted.
    pub(crate) waiting: Vec<u64>,
    /// Bytes or connections that wait, and bytes that were sent or the longest backlog.
    pub(crate) queues: (u32, u32),
    /// Bytes of both buffers.
    pub(crate) buffers: (usize, usize),
    pub(crate) shut: u8,
    /// The user that bound or connected it, as far as that is known.
    pub(crate) uid: u32,
}

impl UnixList {
    pub(crate) fn add(&self, socket: &Arc<dyn SocketOps>) {
        let mut entries = self.0.lock();
        if entries.all.len() >= 2 * entries.lived + SPARE {
            entries.all.retain(|socket| socket.strong_count() > 0);
            entries.lived = entries.all.len();
        }
        entries.all.push(Arc::downgrade(socket));
    }

    /// All that live.
    pub(crate) fn rows(&self) -> Vec<UnixRow> {
        // The lock is free before any reference goes: the last one of a socket ends it.
        let all: Vec<_> = self.0.lock().all.iter().filter_map(Weak::upgrade).collect();
        let of = |socket: &Arc<dyn SocketOps>| socket.as_any().downcast_ref::<UnixSocket>().map(row);
        all.iter().filter_map(of).collect()
    }
}

fn ino(sock: &Sock) -> u64 {
    sock.ino.load(Ordering::Relaxed)
}

fn row(socket: &UnixSocket) -> UnixRow {
    let sock = &socket.sock;
    let s = sock.state.lock();
    let state = match s.phase {
        Phase::Listening => 10,
        Phase::Established => 1,
        Phase::Closed if !sock.connected_kind() && s.peer.is_some() => 1,
        Phase::Closed => 7,
    };
    let queues = match s.phase {
        Phase::Listening => (s.backlog.len(), s.max_backlog),
        _ if sock.connected_kind() => {
            (s.recv.iter().map(|message| message.unread().len()).sum(), sock.wmem.load(Ordering::SeqCst))
        }
        _ => (s.recv.front().map_or(0, |message| message.unread().len()), sock.wmem.load(Ordering::SeqCst)),
    };
    let name = s.addr.as_ref().map(|addr| addr.bytes().split_off(2)).unwrap_or_default();
    let (peer, shut) = (s.peer.clone(), s.shut);
    let waiting: Vec<_> = s.backlog.iter().map(|socket| socket.sock.clone()).collect();
    let uid = s.peer_cred.uid;
    drop(s);
    let client = |sock: &Arc<Sock>| sock.state.lock().peer.as_ref().map_or(0, |peer| ino(peer));
    let place = sock.place.get().and_then(|inode| inode.attr().ok()).map(|attr| (attr.ino, attr.dev));
    UnixRow {
        kind: sock.kind,
        state,
        inode: ino(sock),
        name,
        place,
        peer: peer.as_ref().map(|peer| ino(peer)),
        waiting: waiting.iter().map(client).collect(),
        queues: (queues.0 as u32, queues.1 as u32),
        buffers: (sock.options.rcvbuf(), sock.options.sndbuf()),
        shut,
        uid: if uid == u32::MAX { 0 } else { uid },
    }
}
