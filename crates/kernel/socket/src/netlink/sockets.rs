//! The netlink sockets of a network namespace, and how messages for groups reach them.
//!
//! Lock ranks: `RTNL`, `NETLINK_SOCKET`; the others are leaves. The stack reports changes with its locks held. So
//! nothing here calls into the stack, and no lock of this module is held while a request is carried out.

use crate::net_ns::Nets;
use crate::ops::PeerCred;
use crate::options::Options;
use abi::Errno;
use ktime::Clock;
use lock_order::{Mutex, MutexGuard, rank};
use netstack::truesize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use wait::{Events, WaitQueue};

/// Most bytes of answers that wait to be read.
pub(super) const QUEUE: usize = 256 << 10;
/// NETLINK_NO_ENOBUFS.
const NO_ENOBUFS: i32 = 5;

/// Addresses of sockets in use, by protocol.
pub(crate) type Ports = BTreeSet<(i32, u32)>;

/// A message that waits to be read.
pub(super) struct Queued {
    pub(super) bytes: Vec<u8>,
    /// The group that it was sent to; 0 for an answer.
    pub(super) group: u32,
    pub(super) from: Origin,
}

impl Queued {
    /// What it takes of the buffer: that of a group or of another socket as on Linux.
    fn cost(&self) -> usize {
        let answer = self.group == 0 && self.from.cred.is_none();
        if answer { self.bytes.len() } else { truesize::record(self.bytes.len()) }
    }
}

/// The sender of a message: the kernel, unless set otherwise.
#[derive(Clone, Default)]
pub(super) struct Origin {
    /// The socket's address.
    pub(super) port: u32,
    pub(super) cred: Option<PeerCred>,
}

/// What changes of a socket.
#[derive(Default)]
pub(super) struct State {
    /// Own address, once bound; 0 before.
    pub(super) port: u32,
    pub(super) groups: u64,
    pub(super) peer: Option<(u32, u32)>,
    pub(super) flags: BTreeMap<i32, i32>,
    pub(super) answers: VecDeque<Queued>,
    pub(super) queued: usize,
    pub(super) error: Option<Errno>,
    /// Most bytes of answers that may wait, if more than [`QUEUE`].
    pub(super) room: usize,
    pub(super) dump: Option<Dump>,
    /// Messages for groups are lost until all that waits has been read.
    pub(super) congested: bool,
    pub(super) drops: u32,
    /// Inode number of the descriptor's file, and the owner.
    pub(super) ino: u64,
    /// Sockets that wait to send to this one.
    pub(super) senders: Vec<Weak<Shared>>,
}

/// A dump that did not fit.
pub(super) struct Dump {
    pub(super) request: Vec<u8>,
    /// How many of its datagrams were queued.
    pub(super) before: usize,
    /// What it began with, of objects that have generations.
    pub(super) generation: u32,
}

impl State {
    /// Bytes of answers that fit.
    pub(super) fn free(&self) -> usize {
        QUEUE.max(self.room).saturating_sub(self.queued)
    }

    /// Queues answers as far as there is room; returns how many.
    pub(super) fn queue(&mut self, answers: impl IntoIterator<Item = Vec<u8>>) -> usize {
        let mut taken = 0;
        for answer in answers {
            if self.queued + answer.len() > QUEUE.max(self.room) {
                break;
            }
            self.push(answer, 0, Origin::default());
            taken += 1;
        }
        taken
    }

    /// Whether a message of another socket or for a group has room: a single one always does.
    fn fits(&self, bytes: &[u8], room: usize) -> bool {
        !self.congested && (self.queued == 0 || self.queued + truesize::record(bytes.len()) <= room)
    }

    pub(super) fn push(&mut self, bytes: Vec<u8>, group: u32, from: Origin) {
        let message = Queued { bytes, group, from };
        self.queued += message.cost();
        self.answers.push_back(message);
    }

    /// Takes the oldest message.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        let first = self.answers.pop_front()?;
        self.queued -= first.cost();
        if self.answers.is_empty() {
            self.congested = false;
        }
        Some(first)
    }

    /// The sockets that may try again to send to this one.
    pub(super) fn take_senders(&mut self) -> Vec<Weak<Shared>> {
        if self.congested { Vec::new() } else { std::mem::take(&mut self.senders) }
    }

    /// Whether an option that holds a truth value is set.
    pub(super) fn has(&self, option: i32) -> bool {
        self.flags.get(&option).is_some_and(|value| *value != 0)
    }

    pub(super) fn is_member(&self, group: u32) -> bool {
        bit(group) & self.groups != 0
    }
}

/// The bit of a group in a mask.
pub(super) fn bit(group: u32) -> u64 {
    1u64.checked_shl(group.wrapping_sub(1)).unwrap_or(0)
}

/// The part of a socket that others reach.
pub(super) struct Shared {
    /// NETLINK_ROUTE and so on.
    pub(super) protocol: i32,
    pub(super) uid: u32,
    pub(super) options: Options,
    pub(super) state: Mutex<State, { rank::NETLINK_SOCKET }>,
    pub(super) queue: WaitQueue,
}

impl Shared {
    /// Messages for a group are missing, so the next receive fails with ENOBUFS.
    pub(super) fn lose(&self) {
        let mut s = self.state.lock();
        s.drops = s.drops.saturating_add(1);
        if !s.has(NO_ENOBUFS) {
            s.error = Some(Errno::ENOBUFS);
        }
        drop(s);
        self.queue.notify(Events::READABLE);
    }

    /// Queues a message for a group. A socket with a full buffer loses it, and its next receive fails with ENOBUFS.
    pub(super) fn deliver(&self, group: u32, bytes: &[u8]) {
        self.deliver_from(group, bytes, &Origin::default());
    }

    /// Queues the message of another socket for this one alone. EAGAIN when the buffer is full: `sender` is woken when some of
    /// it has been read.
    fn receive(&self, sender: &Arc<Shared>, group: u32, bytes: &[u8], from: &Origin) -> abi::Result<()> {
        let Some(bytes) = self.options.admits(bytes).and_then(|kept| bytes.get(..kept)) else {
            return Ok(());
        };
        let mut s = self.state.lock();
        if !s.fits(bytes, self.options.rcvbuf()) {
            s.senders.retain(|other| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), &**sender));
            s.senders.push(Arc::downgrade(sender));
            return Err(Errno::EAGAIN);
        }
        s.push(bytes.to_vec(), group, from.clone());
        drop(s);
        self.queue.notify(Events::READABLE);
        Ok(())
    }

    /// The same of another socket's message for a group.
    pub(super) fn deliver_from(&self, group: u32, bytes: &[u8], from: &Origin) {
        let Some(bytes) = self.options.admits(bytes).and_then(|kept| bytes.get(..kept)) else { return };
        let mut s = self.state.lock();
        if !s.fits(bytes, self.options.rcvbuf()) {
            s.drops = s.drops.saturating_add(1);
            if s.congested || s.has(NO_ENOBUFS) {
                return;
            }
            s.congested = true;
            s.error = Some(Errno::ENOBUFS);
        } else {
            s.push(bytes.to_vec(), group, from.clone());
        }
        drop(s);
        self.queue.notify(Events::READABLE);
    }
}

/// Wakes sockets that wait to send.
pub(super) fn wake(senders: Vec<Weak<Shared>>) {
    senders.iter().filter_map(Weak::upgrade).for_each(|sender| sender.queue.notify(Events::WRITABLE));
}

/// A netlink socket in a list.
#[derive(Clone, Debug)]
pub struct NetlinkRow {
    /// NETLINK_ROUTE and so on.
    pub protocol: i32,
    /// Own address, 0 before it is bound.
    pub port: u32,
    /// Address and groups of the peer of connect(2).
    pub peer: Option<(u32, u32)>,
    /// Groups that it is a member of.
    pub groups: u64,
    /// Bytes that wait to be read.
    pub queued: usize,
    /// The receive buffer.
    pub room: usize,
    /// A dump goes on when its beginning has been read.
    pub dumping: bool,
    /// Messages lost for want of room.
    pub drops: u32,
    /// Owner.
    pub uid: u32,
    /// The descriptor's inode.
    pub inode: u64,
}

/// The requester of a change. Messages about the change name it.
#[derive(Clone, Copy)]
pub(super) struct Cause {
    /// The kind of message that is told of the change itself.
    pub(super) kind: u16,
    pub(super) port: u32,
    pub(super) seq: u32,
    /// NLM_F_ECHO: the requester gets the message as an answer.
    pub(super) echo: bool,
}

/// All sockets of a namespace, and what it calls other namespaces.
pub(crate) struct Sockets {
    /// The namespace's own number.
    pub(super) own: u64,
    pub(super) nets: Arc<Nets>,
    /// The clock of the kernel.
    pub(super) clock: Clock,
    /// What the namespace calls others: `netlink/nsid.rs`.
    pub(super) ids: Mutex<BTreeMap<i32, u64>>,
    all: Mutex<Vec<Weak<Shared>>>,
    /// The names of interfaces that group 1 of NETLINK_KOBJECT_UEVENT has been told of, by their indices.
    pub(super) devices: Mutex<BTreeMap<u32, String>>,
    /// Groups of rtnetlink with members.
    followed: AtomicU64,
    cause: Mutex<Option<Cause>>,
}

/// While it lives, no other request changes interfaces, addresses, routes or rules in any namespace (Linux's
/// `rtnl_lock`).
pub struct Rtnl<'a> {
    sockets: &'a Sockets,
    _guard: MutexGuard<'a, (), { rank::RTNL }>,
}

impl Drop for Rtnl<'_> {
    fn drop(&mut self) {
        *self.sockets.cause.lock() = None;
    }
}

impl Sockets {
    /// Of the namespace with a number.
    pub(crate) fn new(own: u64, nets: Arc<Nets>, clock: Clock) -> Sockets {
        Sockets {
            own,
            clock,
            nets,
            ids: Mutex::default(),
            all: Mutex::default(),
            devices: Mutex::default(),
            followed: AtomicU64::default(),
            cause: Mutex::default(),
        }
    }

    pub(super) fn add(&self, socket: &Arc<Shared>) {
        let mut all = self.all.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(socket));
    }

    /// The sockets that live.
    pub(super) fn list(&self) -> Vec<Arc<Shared>> {
        self.all.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What lists show of all of them.
    pub(crate) fn rows(&self) -> Vec<NetlinkRow> {
        let row = |socket: &Arc<Shared>| {
            let s = socket.state.lock();
            NetlinkRow {
                protocol: socket.protocol,
                port: s.port,
                peer: s.peer,
                groups: s.groups,
                queued: s.queued,
                room: socket.options.rcvbuf(),
                dumping: s.dump.is_some(),
                drops: s.drops,
                uid: socket.uid,
                inode: s.ino,
            }
        };
        self.list().iter().map(row).collect()
    }

    /// Memberships have changed.
    pub(super) fn count_members(&self) {
        let route = |s: &&Arc<Shared>| s.protocol == libc::NETLINK_ROUTE;
        let groups = self.list().iter().filter(route).fold(0, |all, s| all | s.state.lock().groups);
        self.followed.store(groups, Ordering::Release);
    }

    /// Whether a group of rtnetlink has members, or a request wants an echo.
    pub(super) fn is_followed(&self, group: u32) -> bool {
        self.followed.load(Ordering::Acquire) & bit(group) != 0
            || self.cause.lock().is_some_and(|cause| cause.echo)
    }

    /// Whether a group of a protocol has members.
    pub(super) fn has_members(&self, protocol: i32, group: u32) -> bool {
        let member = |s: &Arc<Shared>| s.protocol == protocol && s.state.lock().is_member(group);
        self.list().iter().any(member)
    }

    /// The members of a group.
    pub(super) fn members(&self, protocol: i32, group: u32) -> Vec<Arc<Shared>> {
        let mut all = self.list();
        all.retain(|s| s.protocol == protocol && s.state.lock().is_member(group));
        all
    }

    /// Sends a message to the members of a group but the one with the address `except`.
    pub(super) fn multicast(&self, protocol: i32, group: u32, except: u32, bytes: &[u8]) {
        let member = |s: &&Arc<Shared>| {
            let state = s.state.lock();
            s.protocol == protocol && state.is_member(group) && (except == 0 || state.port != except)
        };
        let all = self.list();
        all.iter().filter(member).for_each(|socket| socket.deliver(group, bytes));
    }

    /// Sends the message of `sender` to the socket with an address, which sees the group that was named as well.
    /// ECONNREFUSED when there is none, EAGAIN when its buffer is full.
    pub(super) fn unicast_from(
        &self,
        sender: &Arc<Shared>,
        (port, group): (u32, u32),
        bytes: &[u8],
        from: &Origin,
    ) -> abi::Result<()> {
        let is = |s: &Arc<Shared>| s.protocol == sender.protocol && s.state.lock().port == port;
        let socket = self.list().into_iter().find(is).ok_or(Errno::ECONNREFUSED)?;
        socket.receive(sender, group, bytes, from)
    }

    /// Sends a message to the socket with an address.
    pub(super) fn unicast(&self, protocol: i32, port: u32, bytes: &[u8]) {
        let all = self.list();
        let is = |s: &&Arc<Shared>| s.protocol == protocol && s.state.lock().port == port;
        if let Some(socket) = all.iter().find(is) {
            socket.deliver(0, bytes);
        }
    }

    /// Keeps other requests off, until the guard is dropped.
    pub(crate) fn rtnl(&self) -> Rtnl<'_> {
        Rtnl { _guard: self.nets.rtnl(), sockets: self }
    }

    /// The same for a request that messages are to name.
    pub(super) fn rtnl_for(&self, cause: Cause) -> Rtnl<'_> {
        let guard = self.rtnl();
        *self.cause.lock() = Some(cause);
        guard
    }

    /// The requester that causes messages of a kind.
    pub(super) fn cause(&self, kind: u16) -> Option<Cause> {
        self.cause.lock().filter(|cause| cause.kind == kind)
    }
}
