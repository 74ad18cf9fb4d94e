//! Bound datagram sockets, by port.

use crate::device::capture::Filter;
use crate::keys::Keys;
use crate::ports::{Binding, candidates, plain, score};
use abi::Errno;
use lock_order::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const SHARDS: usize = 32;

/// A program that chooses a socket of those that share a port (`SO_ATTACH_REUSEPORT_CBPF`): it gives the number of one.
pub(crate) type Program = Arc<dyn Filter>;

struct Entry<S> {
    binding: Binding,
    remote: Option<SocketAddr>,
    socket: Arc<S>,
    /// All sockets of a group have the same.
    program: Option<Program>,
}

/// The sockets `S` of one protocol. A port is always in the shard that its number names.
pub(crate) struct Table<S> {
    shards: [RwLock<HashMap<u16, Vec<Entry<S>>>>; SHARDS],
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Table { shards: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl<S> Table<S> {
    fn shard(&self, port: u16) -> &RwLock<HashMap<u16, Vec<Entry<S>>>> {
        &self.shards[usize::from(port) % SHARDS]
    }

    /// Adds a socket; `EADDRINUSE` when another one is in the way. Port 0 asks for any free one.
    pub(crate) fn bind(
        &self,
        keys: &Keys,
        range: (u16, u16),
        binding: Binding,
        remote: Option<SocketAddr>,
        (socket, program): (&Arc<S>, Option<&Program>),
    ) -> Result<Binding, Errno> {
        let socket = (socket, program);
        if binding.port != 0 {
            return self.insert(binding, remote, socket, true).ok_or(Errno::EADDRINUSE);
        }
        // A port that is shared by SO_REUSEADDR is no good choice for a socket that did not ask for it.
        let mut ports = candidates(keys, range, 0);
        let chosen = ports.find_map(|port| self.insert(Binding { port, ..binding }, remote, socket, false));
        chosen.ok_or(Errno::EADDRINUSE)
    }

    fn insert(
        &self,
        binding: Binding,
        remote: Option<SocketAddr>,
        (socket, program): (&Arc<S>, Option<&Program>),
        share: bool,
    ) -> Option<Binding> {
        let mut shard = self.shard(binding.port).write();
        let entries = shard.entry(binding.port).or_default();
        let asked = if share { binding } else { Binding { reuse_addr: false, reuse_port: false, ..binding } };
        if entries.iter().any(|entry| asked.conflicts(&entry.binding)) {
            return None;
        }
        // A group's program counts, not that of a socket that joins it.
        let group = entries.iter().find(|entry| binding.shares(&entry.binding));
        let program = group.map_or(program, |entry| entry.program.as_ref()).cloned();
        entries.push(Entry { binding, remote, socket: socket.clone(), program });
        Some(binding)
    }

    /// Adds a restored socket beside those that are there.
    pub(crate) fn place(&self, binding: Binding, remote: Option<SocketAddr>, socket: &Arc<S>) {
        let entry = Entry { binding, remote, socket: socket.clone(), program: None };
        self.shard(binding.port).write().entry(binding.port).or_default().push(entry);
    }

    /// Changes what a bound socket receives: connect(2) and its undoing.
    pub(crate) fn update(&self, port: u16, socket: &S, ip: IpAddr, remote: Option<SocketAddr>) {
        let mut shard = self.shard(port).write();
        let entries = shard.get_mut(&port).into_iter().flatten();
        for entry in entries.filter(|entry| std::ptr::eq(&*entry.socket, socket)) {
            entry.binding.ip = ip;
            entry.remote = remote.map(plain);
        }
    }

    /// Changes whether a bound socket shares its port with others: SO_REUSEADDR and SO_REUSEPORT.
    pub(crate) fn share(&self, port: u16, socket: &S, (addr, by_port): (bool, bool)) {
        let mut shard = self.shard(port).write();
        let entries = shard.get_mut(&port).into_iter().flatten();
        for entry in entries.filter(|entry| std::ptr::eq(&*entry.socket, socket)) {
            (entry.binding.reuse_addr, entry.binding.reuse_port) = (addr, by_port);
        }
    }

    /// Removes a socket.
    pub(crate) fn remove(&self, port: u16, socket: &S) {
        let mut shard = self.shard(port).write();
        let Some(entries) = shard.get_mut(&port) else { return };
        if let Some(at) = entries.iter().position(|entry| std::ptr::eq(&*entry.socket, socket)) {
            // The last one of its group gets its number.
            let own = entries[at].binding;
            let last = entries.iter().rposition(|entry| own.shares(&entry.binding)).unwrap_or(at);
            entries.swap(at, last);
            entries.remove(last);
        }
        if entries.is_empty() {
            shard.remove(&port);
        }
    }

    /// Gives the group of a bound socket a program, or takes it away. Returns the one before; `None` without a group.
    pub(crate) fn set_program(
        &self,
        port: u16,
        socket: &S,
        program: Option<Program>,
    ) -> Option<Option<Program>> {
        let mut shard = self.shard(port).write();
        let entries = shard.get_mut(&port)?;
        let entry = entries.iter().find(|entry| std::ptr::eq(&*entry.socket, socket))?;
        let (own, before) = (entry.binding, entry.program.clone());
        if !own.reuse_port {
            return None;
        }
        for entry in entries.iter_mut().filter(|entry| own.shares(&entry.binding)) {
            entry.program = program.clone();
        }
        Some(before)
    }

    /// The program of a bound socket's group.
    pub(crate) fn program(&self, port: u16, socket: &S) -> Option<Program> {
        let shard = self.shard(port).read();
        let mut entries = shard.get(&port).into_iter().flatten();
        let entry = entries.find(|entry| std::ptr::eq(&*entry.socket, socket))?;
        entry.program.clone().filter(|_| entry.binding.reuse_port)
    }

    /// The socket that traffic belongs to. Of equally good ones (SO_REUSEPORT) `choose` tells the number, from their
    /// program and how many there are.
    pub(crate) fn find(
        &self,
        to: SocketAddr,
        from: SocketAddr,
        device: u32,
        choose: impl Fn(Option<&Program>, usize) -> usize,
    ) -> Option<Arc<S>> {
        let shard = self.shard(to.port()).read();
        let entries = shard.get(&to.port())?;
        let score = |entry: &Entry<S>| score(&entry.binding, entry.remote, to.ip(), from, device);
        let best = entries.iter().filter_map(score).max()?;
        let mut equal = entries.iter().filter(|entry| score(entry) == Some(best));
        // Without SO_REUSEPORT the latest socket wins, as Linux's tables have it.
        let count = equal.clone().count();
        let shared = count > 1 && equal.clone().all(|entry| entry.binding.reuse_port);
        let program = || equal.clone().find_map(|entry| entry.program.as_ref());
        let pick = if shared { choose(program(), count) } else { count - 1 };
        equal.nth(pick).map(|entry| entry.socket.clone())
    }

    /// All sockets that a group or broadcast packet belongs to.
    pub(crate) fn find_all(&self, to: SocketAddr, from: SocketAddr, device: u32) -> Vec<Arc<S>> {
        let shard = self.shard(to.port()).read();
        let entries = shard.get(&to.port()).into_iter().flatten();
        let fits = |entry: &&Entry<S>| score(&entry.binding, entry.remote, to.ip(), from, device).is_some();
        entries.filter(fits).map(|entry| entry.socket.clone()).collect()
    }

    /// All sockets, for /proc/net and sock_diag.
    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        let shards = self.shards.iter();
        shards
            .flat_map(|s| s.read().values().flatten().map(|e| e.socket.clone()).collect::<Vec<_>>())
            .collect()
    }
}
