//! AF_NETLINK. rtnetlink: what ip(8), getifaddrs(3) and language run-times ask to learn of interfaces, addresses and routes;
//! sock_diag (`diag`): what ss(8) asks to learn of sockets. See netlink(7), rtnetlink(7) and sock_diag(7).
//!
//! Requests are answered from the [`spec::Interfaces`] of the network namespace, at once, into the socket's own queue, which is
//! bounded by its receive buffer. Addresses, routes and links of the namespace's stack can be changed (`change`). Groups may be
//! joined, but nothing is said to them yet.
//! Lock rank: leaf. A checkpoint keeps the queue, the address and the options.

mod address;
mod answer;
mod change;
mod create;
pub(crate) mod device;
mod diag;
mod qdisc;
mod wire;

use crate::family::Family;
use crate::net_ns::NetNamespace;
use crate::ops::{Names, Received, SendRequest, SocketOps};
use crate::options::Options;
use abi::{Errno, Result};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vfs::Caller;
use wait::{Events, WaitQueue};

const SOL_NETLINK: i32 = 270;
const NETLINK_SOCK_DIAG: i32 = 4;
const NETLINK_ADD_MEMBERSHIP: i32 = 1;
const NETLINK_DROP_MEMBERSHIP: i32 = 2;
const NETLINK_LIST_MEMBERSHIPS: i32 = 9;
/// Options that hold a truth value.
const FLAGS: [i32; 7] = [3, 4, 5, 8, 10, 11, 12];
/// Groups of rtnetlink (RTNLGRP_MAX is 38 in Linux 6.12).
const GROUPS: i32 = 38;
/// Most bytes of answers that wait to be read.
const QUEUE: usize = 256 << 10;
/// Longest request.
const REQUEST: usize = 64 << 10;

/// Makes netlink sockets.
pub struct NetlinkFamily;

impl Family for NetlinkFamily {
    fn create(
        &self,
        _cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        if kind != libc::SOCK_RAW && kind != libc::SOCK_DGRAM {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        if ![libc::NETLINK_ROUTE, NETLINK_SOCK_DIAG].contains(&protocol) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        Ok(Arc::new(Netlink {
            kind,
            protocol,
            net: net.clone(),
            options: Options::default(),
            state: Mutex::default(),
            queue: WaitQueue::new(),
        }))
    }
}

#[derive(Default)]
struct State {
    /// Own address, once bound; 0 before.
    port: u32,
    groups: u64,
    peer: Option<(u32, u32)>,
    flags: BTreeMap<i32, i32>,
    answers: VecDeque<Vec<u8>>,
    queued: usize,
    error: Option<Errno>,
    /// A dump that did not fit: its request, and how many of its datagrams were queued.
    dump: Option<(Vec<u8>, usize)>,
}

impl State {
    /// Queues datagrams as far as there is room; returns how many.
    fn queue(&mut self, answers: impl IntoIterator<Item = Vec<u8>>) -> usize {
        let mut taken = 0;
        for answer in answers {
            if self.queued + answer.len() > QUEUE {
                break;
            }
            self.queued += answer.len();
            self.answers.push_back(answer);
            taken += 1;
        }
        taken
    }
}

/// One socket.
struct Netlink {
    kind: i32,
    /// NETLINK_ROUTE or NETLINK_SOCK_DIAG.
    protocol: i32,
    net: Arc<NetNamespace>,
    options: Options,
    state: Mutex<State>,
    queue: WaitQueue,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        let port = self.state.get_mut().port;
        self.net.ports.lock().remove(&(self.protocol, port));
    }
}

/// `struct sockaddr_nl`.
fn sockaddr(port: u32, groups: u32) -> Vec<u8> {
    let mut out = (libc::AF_NETLINK as u16).to_ne_bytes().to_vec();
    out.extend([0, 0]);
    out.extend(port.to_ne_bytes());
    out.extend(groups.to_ne_bytes());
    out
}

/// Port and groups of a `struct sockaddr_nl`.
fn parse(addr: &[u8]) -> Result<(u32, u32)> {
    let word = |at: usize| Some(u32::from_ne_bytes(addr.get(at..at + 4)?.try_into().ok()?));
    let (Some(port), Some(groups)) = (word(4), word(8)) else { return Err(Errno::EINVAL) };
    if addr[..2] != (libc::AF_NETLINK as u16).to_ne_bytes() {
        return Err(Errno::EINVAL);
    }
    Ok((port, groups))
}

impl Netlink {
    /// Takes an address: the one asked for, or for 0 the process id, or any other when that is taken.
    fn bind_to(&self, cx: &dyn Caller, s: &mut State, port: u32) -> Result<()> {
        let mut taken = self.net.ports.lock();
        if port != 0 {
            if !taken.insert((self.protocol, port)) {
                return Err(Errno::EADDRINUSE);
            }
            s.port = port;
            return Ok(());
        }
        let own = cx.pid_vnr(cx.pid()) as u32;
        let others = (0..u32::MAX / 2).map(|n| (-4096i32).wrapping_sub(n as i32) as u32);
        let free = std::iter::once(own)
            .chain(others)
            .find(|port| *port != 0 && !taken.contains(&(self.protocol, *port)));
        s.port = free.ok_or(Errno::EADDRINUSE)?;
        taken.insert((self.protocol, s.port));
        Ok(())
    }

    /// Queues more of a dump when its beginning has been read. What changed meanwhile may be missing or be there twice, as in
    /// Linux.
    fn go_on(&self, cx: &dyn Caller, s: &mut State) {
        if !s.answers.is_empty() {
            return;
        }
        let Some((request, before)) = s.dump.take() else { return };
        let mut answers = answer::to(&self.net, self.protocol, &request, s.port, cx, QUEUE);
        // The last datagram ends the dump, so it is never left out.
        let rest = answers.split_off(before.min(answers.len().saturating_sub(1)));
        let (all, fit) = (rest.len(), s.queue(rest));
        if fit < all {
            s.dump = Some((request, before + fit));
        }
    }

    fn membership(&self, name: i32, group: i32) -> Result<()> {
        if !(1..=GROUPS).contains(&group) {
            return Err(Errno::EINVAL);
        }
        let bit = 1u64 << (group - 1);
        let mut s = self.state.lock();
        if name == NETLINK_ADD_MEMBERSHIP {
            s.groups |= bit
        } else {
            s.groups &= !bit
        }
        Ok(())
    }
}

impl SocketOps for Netlink {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn domain(&self) -> i32 {
        libc::AF_NETLINK
    }
    fn kind(&self) -> i32 {
        self.kind
    }
    fn protocol(&self) -> i32 {
        self.protocol
    }
    fn options(&self) -> &Options {
        &self.options
    }
    fn bind(&self, cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let (port, groups) = parse(addr)?;
        let mut s = self.state.lock();
        if s.port != 0 && s.port != port {
            return Err(Errno::EINVAL);
        }
        if s.port == 0 {
            self.bind_to(cx, &mut s, port)?;
        }
        s.groups = s.groups >> 32 << 32 | u64::from(groups);
        Ok(())
    }
    fn connect(&self, cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let unspec = addr.get(..2) == Some(&(libc::AF_UNSPEC as u16).to_ne_bytes()[..]);
        let peer = if unspec { None } else { Some(parse(addr)?) };
        let mut s = self.state.lock();
        if s.port == 0 {
            self.bind_to(cx, &mut s, 0)?;
        }
        s.peer = peer;
        Ok(())
    }
    fn listen(&self, _cx: &dyn Caller, _backlog: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn accept(&self) -> Result<Arc<dyn SocketOps>> {
        Err(Errno::EOPNOTSUPP)
    }
    fn local_addr(&self) -> Vec<u8> {
        let s = self.state.lock();
        sockaddr(s.port, s.groups as u32)
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        let (port, groups) = self.state.lock().peer.unwrap_or_default();
        Ok(sockaddr(port, groups))
    }
    fn send(&self, cx: &dyn Caller, _names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        if req.flags & libc::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let to = req.addr.map(parse).transpose()?;
        let mut s = self.state.lock();
        let (port, groups) = to.or(s.peer).unwrap_or_default();
        if groups != 0 {
            return Err(Errno::EPERM);
        }
        if s.port == 0 {
            self.bind_to(cx, &mut s, 0)?;
        }
        if port != 0 {
            // Only the kernel is spoken to.
            return Err(Errno::ECONNREFUSED);
        }
        if req.data.len() > REQUEST {
            return Err(Errno::EMSGSIZE);
        }
        let answers = answer::to(&self.net, self.protocol, req.data, s.port, cx, QUEUE);
        let (all, fit) = (answers.len(), s.queue(answers));
        // A request that changes something has one answer, and is never asked again.
        if fit < all && all > 1 && s.dump.is_none() && wire::is_one_dump(req.data) {
            s.dump = Some((req.data.to_vec(), fit));
        } else if fit < all {
            s.error = Some(Errno::ENOBUFS);
        }
        drop(s);
        self.queue.notify(Events::READABLE);
        Ok(req.data.len())
    }
    fn recv(&self, cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut s = self.state.lock();
        if let Some(error) = s.error.take() {
            return Err(error);
        }
        let Some(first) = s.answers.front() else { return Err(Errno::EAGAIN) };
        let (full, len) = (first.len(), first.len().min(buf.len()));
        buf[..len].copy_from_slice(&first[..len]);
        if flags & libc::MSG_PEEK == 0 {
            s.answers.pop_front();
            s.queued -= full;
            self.go_on(cx, &mut s);
        }
        let cut = if len < full { libc::MSG_TRUNC } else { 0 };
        Ok(Received { len, full, addr: Some(sockaddr(0, 0)), flags: cut, ..Received::default() })
    }
    fn shutdown(&self, _how: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        let s = self.state.lock();
        match name {
            _ if level != SOL_NETLINK => Err(Errno::ENOPROTOOPT),
            NETLINK_LIST_MEMBERSHIPS => Ok(s.groups.to_ne_bytes().to_vec()),
            _ if FLAGS.contains(&name) => Ok(s.flags.get(&name).copied().unwrap_or(0).to_ne_bytes().to_vec()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
    fn set_option(&self, _cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level != SOL_NETLINK {
            return Err(Errno::ENOPROTOOPT);
        }
        let value = value.get(..4).and_then(|v| v.try_into().ok()).map(i32::from_ne_bytes);
        let value = value.ok_or(Errno::EINVAL)?;
        match name {
            NETLINK_ADD_MEMBERSHIP | NETLINK_DROP_MEMBERSHIP => self.membership(name, value),
            _ if FLAGS.contains(&name) => {
                self.state.lock().flags.insert(name, (value != 0) as i32);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
    fn poll(&self) -> Events {
        let s = self.state.lock();
        let mut events = Events::WRITABLE;
        if !s.answers.is_empty() {
            events |= Events::READABLE;
        }
        if s.error.is_some() {
            events |= Events::ERR;
        }
        events
    }
    fn wait_queue(&self) -> WaitQueue {
        self.queue.clone()
    }
}

#[cfg(test)]
mod tests;
