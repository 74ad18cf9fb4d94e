//! Ports and connections of a stack.
//!
//! Connections are found by both addresses, in shards; ports by number, in shards; listeners by port in one table that changes
//! rarely. All locks are below those of sockets.

use super::conn::Learnt;
use crate::device::capture::Filter;
use crate::keys::Keys;
use crate::ports::{Binding, candidates, score};
use crate::wire::tcp::Cookie;
use abi::Errno;
use lock_order::{Mutex, RwLock};
use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 64;

/// Fast Open cookies that are remembered.
const MAX_COOKIES: usize = 1024;

/// What is known of a server from earlier connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerMemory {
    pub(crate) mss: u16,
    cookie: Option<Cookie>,
    /// The kinds of question for a cookie that it did not answer: the experimental option is tried second, and then no more.
    silent: u8,
}

/// Local and remote address.
pub(crate) type Tuple = (SocketAddr, SocketAddr);

/// A program that chooses a listener of those that share a port (`SO_ATTACH_REUSEPORT_CBPF`): it gives the number of one.
pub(crate) type Program = Arc<dyn Filter>;

struct Listening<S> {
    binding: Binding,
    socket: Arc<S>,
    /// All listeners of a group have the same.
    program: Option<Program>,
}

type Listeners<S> = HashMap<u16, Vec<Listening<S>>>;

type Ports = HashMap<u16, HashMap<usize, Binding>>;

/// The tables, of sockets `S`.
pub(crate) struct Table<S> {
    connections: [RwLock<HashMap<Tuple, Arc<S>>>; SHARDS],
    ports: [Mutex<Ports>; SHARDS],
    listeners: RwLock<Listeners<S>>,
    /// Fast Open cookies of servers, by this side's address and theirs.
    cookies: Mutex<HashMap<(IpAddr, IpAddr), ServerMemory>>,
    /// Closed connections that still have something to send.
    pub(crate) orphans: AtomicUsize,
    /// Connections in TIME-WAIT.
    pub(crate) time_waits: AtomicUsize,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Table {
            connections: std::array::from_fn(|_| RwLock::default()),
            ports: std::array::from_fn(|_| Mutex::default()),
            listeners: RwLock::default(),
            cookies: Mutex::default(),
            orphans: AtomicUsize::new(0),
            time_waits: AtomicUsize::new(0),
        }
    }
}

impl<S> Table<S> {
    fn shard(&self, tuple: &Tuple) -> &RwLock<HashMap<Tuple, Arc<S>>> {
        let mut hasher = SipHasher13::new();
        tuple.hash(&mut hasher);
        &self.connections[hasher.finish() as usize % SHARDS]
    }

    /// The connection between two addresses.
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<Arc<S>> {
        self.shard(tuple).read().get(tuple).cloned()
    }

    /// Adds a connection; false when there is one.
    pub(crate) fn insert(&self, tuple: Tuple, socket: &Arc<S>) -> bool {
        let mut shard = self.shard(&tuple).write();
        if shard.contains_key(&tuple) {
            return false;
        }
        shard.insert(tuple, socket.clone());
        true
    }

    /// Removes a connection, if it is this socket's.
    pub(crate) fn remove(&self, tuple: &Tuple, socket: &S) {
        let mut shard = self.shard(tuple).write();
        if shard.get(tuple).is_some_and(|found| std::ptr::eq(&**found, socket)) {
            shard.remove(tuple);
        }
    }

    /// Takes a port for a socket; port 0 asks for any free one. With a program of its own, a socket does not join others of
    /// SO_REUSEPORT.
    pub(crate) fn bind(
        &self,
        keys: &Keys,
        range: (u16, u16),
        (binding, own_program): (Binding, bool),
        id: usize,
    ) -> Result<Binding, Errno> {
        if binding.port != 0 {
            let shares = (binding.reuse_addr, binding.reuse_port && !own_program);
            return self.take(binding, id, shares).ok_or(Errno::EADDRINUSE);
        }
        let mut ports = candidates(keys, range, 0);
        let taken = ports.find_map(|port| self.take(Binding { port, ..binding }, id, (false, false)));
        taken.ok_or(Errno::EADDRINUSE)
    }

    /// Takes a port, unless another socket is in the way. `shares` says whether sockets with SO_REUSEADDR and SO_REUSEPORT are not.
    pub(crate) fn take(&self, binding: Binding, id: usize, shares: (bool, bool)) -> Option<Binding> {
        let mut shard = self.ports[usize::from(binding.port) % SHARDS].lock();
        let holders = shard.entry(binding.port).or_default();
        let asked = Binding { reuse_addr: shares.0, reuse_port: shares.1, ..binding };
        let blocked = holders.iter().any(|(other, held)| *other != id && asked.conflicts(held));
        if !blocked {
            holders.insert(id, binding);
        } else if holders.is_empty() {
            shard.remove(&binding.port);
        }
        (!blocked).then_some(binding)
    }

    /// Takes a port beside others without asking: the child of a listener.
    pub(crate) fn inherit(&self, binding: Binding, id: usize) {
        let mut shard = self.ports[usize::from(binding.port) % SHARDS].lock();
        shard.entry(binding.port).or_default().insert(id, binding);
    }

    /// Gives a port back.
    pub(crate) fn release(&self, port: u16, id: usize) {
        let mut shard = self.ports[usize::from(port) % SHARDS].lock();
        if let Some(holders) = shard.get_mut(&port) {
            holders.remove(&id);
            if holders.is_empty() {
                shard.remove(&port);
            }
        }
    }

    /// Adds a listener, with the program of its group; its own counts when it is the first one.
    pub(crate) fn listen(&self, binding: Binding, socket: &Arc<S>, own: Option<Program>) {
        let mut listeners = self.listeners.write();
        let list = listeners.entry(binding.port).or_default();
        let group = list.iter().find(|other| binding.shares(&other.binding));
        let program = group.map_or(own, |other| other.program.clone());
        list.push(Listening { binding, socket: socket.clone(), program });
    }

    /// Gives the group of a listener a program, or takes it away. Returns the one before; `None` without a group.
    pub(crate) fn set_program(
        &self,
        port: u16,
        socket: &S,
        program: Option<Program>,
    ) -> Option<Option<Program>> {
        let mut listeners = self.listeners.write();
        let list = listeners.get_mut(&port)?;
        let one = list.iter().find(|one| std::ptr::eq(&*one.socket, socket))?;
        let (own, before) = (one.binding, one.program.clone());
        if !own.reuse_port {
            return None;
        }
        for one in list.iter_mut().filter(|one| own.shares(&one.binding)) {
            one.program = program.clone();
        }
        Some(before)
    }

    /// The program of a listener's group.
    pub(crate) fn program(&self, port: u16, socket: &S) -> Option<Program> {
        let listeners = self.listeners.read();
        listeners.get(&port)?.iter().find(|one| std::ptr::eq(&*one.socket, socket))?.program.clone()
    }

    /// Removes a listener.
    pub(crate) fn unlisten(&self, port: u16, socket: &S) {
        let mut listeners = self.listeners.write();
        let Some(list) = listeners.get_mut(&port) else { return };
        if let Some(at) = list.iter().position(|one| std::ptr::eq(&*one.socket, socket)) {
            // The last one of its group gets its number.
            let own = list[at].binding;
            let last = list.iter().rposition(|one| own.shares(&one.binding)).unwrap_or(at);
            list.swap(at, last);
            list.remove(last);
        }
        if list.is_empty() {
            listeners.remove(&port);
        }
    }

    /// The listener for a segment. Of equally good ones (SO_REUSEPORT) `choose` tells the number, from their program and how
    /// many there are. With a program, the others that it could have chosen come second.
    pub(crate) fn find_listener(
        &self,
        to: SocketAddr,
        from: SocketAddr,
        device: u32,
        choose: impl Fn(Option<&Program>, usize) -> usize,
    ) -> Option<(Arc<S>, Vec<Arc<S>>)> {
        let listeners = self.listeners.read();
        let list = listeners.get(&to.port())?;
        let rank = |binding: &Binding| score(binding, None, to.ip(), from, device);
        let best = list.iter().filter_map(|one| rank(&one.binding)).max()?;
        let mut equal = list.iter().filter(|one| rank(&one.binding) == Some(best));
        let count = equal.clone().count();
        let program = if count > 1 { equal.clone().find_map(|one| one.program.as_ref()) } else { None };
        let pick = if count > 1 { choose(program, count) } else { 0 };
        let others = match program {
            Some(_) => equal.clone().map(|one| one.socket.clone()).collect(),
            None => Vec::new(),
        };
        equal.nth(pick).map(|one| (one.socket.clone(), others))
    }

    /// What is known of a server, and the Fast Open cookie for it; an empty one asks for it.
    pub(crate) fn known(&self, tuple: &Tuple) -> (ServerMemory, Option<Cookie>) {
        let known = self.cookies.lock().get(&(tuple.0.ip(), tuple.1.ip())).copied().unwrap_or_default();
        let question = Cookie::new(&[]).map(|c| if known.silent == 1 { c.of_experiment() } else { c });
        (known, known.cookie.or(question))
    }

    /// Remembers what a server told.
    pub(crate) fn learn(&self, tuple: &Tuple, learnt: &Learnt) {
        let mut cookies = self.cookies.lock();
        if cookies.len() >= MAX_COOKIES {
            cookies.clear();
        }
        let known = cookies.entry((tuple.0.ip(), tuple.1.ip())).or_default();
        known.mss = learnt.mss;
        known.cookie = learnt.cookie.or(known.cookie);
        if let (Some(experimental), None) = (learnt.silent, known.cookie) {
            known.silent = known.silent.max(if experimental { 2 } else { 1 });
        }
    }

    /// All sockets, for /proc/net/tcp and sock_diag.
    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        let mut all: Vec<_> =
            self.listeners.read().values().flatten().map(|one| one.socket.clone()).collect();
        for shard in &self.connections {
            all.extend(shard.read().values().cloned());
        }
        all
    }

    /// Connections.
    pub(crate) fn len(&self) -> usize {
        self.connections.iter().map(|shard| shard.read().len()).sum()
    }
}

/// Counts one more or less.
pub(crate) fn count(counter: &AtomicUsize, more: bool) {
    if more {
        counter.fetch_add(1, Ordering::Relaxed);
    } else {
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}
