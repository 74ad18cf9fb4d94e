//! AF_NETLINK. rtnetlink: interfaces, addresses, routes, rules and neighbours, as ip(8), getifaddrs(3) and language
//! run-times list and change them; sock_diag (`diag`): lists of sockets for ss(8); generic netlink (`generic`);
//! netfilter (`netfilter`): rules for packets. See netlink(7), rtnetlink(7), sock_diag(7) and nft(8).
//!
//! Requests are carried out at once, with no lock of the socket held; answers wait in its queue, which is bounded.
//! Members of groups receive all changes in the namespace's stack (`notify`) and in nf_tables, from any source. Lock
//! rank: `NETLINK_SOCKET`. A checkpoint keeps the queue, the address and the options ([`saved`]).

mod address;
mod address_list;
mod answer;
mod asker;
mod brctl;
mod bridge;
mod change;
mod create;
pub(crate) mod device;
mod diag;
mod diag_filter;
mod diag_other;
mod error;
mod ethtool;
mod facts;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gateways;
mod generic;
mod ifla;
mod link;
mod neigh;
mod netfilter;
mod notify;
mod nsid;
mod old;
mod old6;
mod port;
mod qdisc;
mod request;
mod routes;
mod rules;
pub mod saved;
pub(crate) mod sockets;
mod uevent;
mod wire;
mod xfrm;

pub use address_list::flags as address_flags;

use crate::family::Family;
use crate::file::SocketFile;
use crate::net_ns::NetNamespace;
use crate::ops::{
    Ancillary, Connect, Control, Names, PeerCred, Received, SendRequest, SocketInfo, SocketOps,
    SocketOptions, Transfer,
};
use crate::options::Options;
use abi::{Errno, Result};
use lock_order::Mutex;
use netfilter::NETLINK_NETFILTER;
use rights::Cap;
use sockets::{Dump, Origin, QUEUE, Shared, State};
use std::any::Any;
use std::sync::Arc;
use uevent::NETLINK_KOBJECT_UEVENT;
use vfs::{Caller, OpenFile};
use wait::{Events, WaitQueue};
use xfrm::NETLINK_XFRM;

const SOL_NETLINK: i32 = 270;
const NETLINK_SOCK_DIAG: i32 = 4;
/// Messages between programs; the kernel takes none.
const NETLINK_USERSOCK: i32 = 2;
/// Requests are refused.
const NETLINK_AUDIT: i32 = 9;
const NETLINK_GENERIC: i32 = 16;
const NETLINK_ADD_MEMBERSHIP: i32 = 1;
const NETLINK_DROP_MEMBERSHIP: i32 = 2;
const NETLINK_LIST_MEMBERSHIPS: i32 = 9;
const NETLINK_PKTINFO: i32 = 3;
const NETLINK_CAP_ACK: i32 = 10;
const NETLINK_EXT_ACK: i32 = 11;
const NETLINK_GET_STRICT_CHK: i32 = 12;
/// Options that hold a truth value.
const FLAGS: [i32; 7] = [NETLINK_PKTINFO, 4, 5, 8, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK];
/// Groups of rtnetlink (RTNLGRP_MAX is 38 in Linux 6.12).
const GROUPS: i32 = 38;
/// Groups of protocols that have few.
const FEW_GROUPS: i32 = 32;
/// Most bytes of answers that wait to be read, after SO_RCVBUFFORCE.
const LONGEST_QUEUE: usize = 16 << 20;
/// Protocols that there are.
const PROTOCOLS: [i32; 8] = [
    libc::NETLINK_ROUTE,
    NETLINK_USERSOCK,
    NETLINK_SOCK_DIAG,
    NETLINK_XFRM,
    NETLINK_AUDIT,
    NETLINK_NETFILTER,
    NETLINK_KOBJECT_UEVENT,
    NETLINK_GENERIC,
];
/// Longest request.
const REQUEST: usize = 64 << 10;

/// Makes netlink sockets.
pub struct NetlinkFamily;

impl Family for NetlinkFamily {
    fn create(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        if kind != libc::SOCK_RAW && kind != libc::SOCK_DGRAM {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        if !PROTOCOLS.contains(&protocol) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let shared = Arc::new(Shared {
            protocol,
            uid: cx.creds().euid,
            options: Options::default(),
            state: Mutex::default(),
            queue: WaitQueue::new(),
        });
        net.netlink.add(&shared);
        Ok(Arc::new(Netlink { kind, net: net.clone(), shared }))
    }
}

/// One socket.
struct Netlink {
    kind: i32,
    net: Arc<NetNamespace>,
    shared: Arc<Shared>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        // Without its address no sender finds it, although it is still there.
        let (port, groups) = (std::mem::take(&mut state.port), std::mem::take(&mut state.groups));
        state.congested = false;
        let senders = state.take_senders();
        drop(state);
        sockets::wake(senders);
        self.net.ports.lock().remove(&(self.shared.protocol, port));
        if groups != 0 {
            self.net.netlink.count_members();
        }
    }
}

fn of(file: &OpenFile) -> Result<&Netlink> {
    SocketFile::of(file)?.ops.as_any().downcast_ref().ok_or(Errno::EINVAL)
}

/// Whether a file is a netlink socket. ENOTSOCK; EINVAL for other sockets.
pub fn check(file: &OpenFile) -> Result<()> {
    of(file).map(drop)
}

/// Sends a netlink socket a message from the kernel. One that is full loses it.
pub fn tell(file: &OpenFile, bytes: &[u8]) {
    if let Ok(socket) = of(file) {
        socket.shared.deliver(0, bytes);
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
        let own = cx.pid_vnr(cx.pid()) as u32;
        let mut taken = self.net.ports.lock();
        if port != 0 {
            if !taken.insert((self.shared.protocol, port)) {
                return Err(Errno::EADDRINUSE);
            }
            s.port = port;
            return Ok(());
        }
        let others = (0..u32::MAX / 2).map(|n| (-4096i32).wrapping_sub(n as i32) as u32);
        let free = std::iter::once(own)
            .chain(others)
            .find(|port| *port != 0 && !taken.contains(&(self.shared.protocol, *port)));
        s.port = free.ok_or(Errno::EADDRINUSE)?;
        taken.insert((self.shared.protocol, s.port));
        Ok(())
    }

    /// What a datagram of requests comes to. No lock of the socket is held: a change tells the members of groups.
    fn answers(&self, cx: &dyn Caller, request: &[u8]) -> netfilter::Served {
        let s = self.shared.state.lock();
        let manner = asker::Manner {
            cap_ack: s.has(NETLINK_CAP_ACK),
            ext_ack: s.has(NETLINK_EXT_ACK),
            strict: s.has(NETLINK_GET_STRICT_CHK),
        };
        let (port, room) = (s.port, s.free());
        drop(s);
        if self.shared.protocol == NETLINK_NETFILTER {
            return self.serve(cx, request, (port, room), manner);
        }
        let answers = answer::to(&self.net, self.shared.protocol, request, (port, manner), cx, QUEUE);
        netfilter::Served { answers, ..Default::default() }
    }

    /// Sends a message to the members of a group, but the socket itself and the one with the address `except`.
    fn tell_members(&self, group: u32, except: u32, bytes: &[u8], from: &Origin) {
        for member in self.net.netlink.members(self.shared.protocol, group) {
            let excepted = except != 0 && member.state.lock().port == except;
            if !excepted && !Arc::ptr_eq(&member, &self.shared) {
                member.deliver_from(group, bytes, from);
            }
        }
    }

    /// The generation of what the socket's protocol lists.
    fn generation(&self) -> u32 {
        if self.shared.protocol == NETLINK_NETFILTER { self.net.nftables().generation() } else { 0 }
    }

    /// Longest datagram that may be sent.
    fn longest(&self) -> usize {
        match self.shared.protocol {
            NETLINK_NETFILTER => self.shared.options.sndbuf().saturating_sub(32).min(netfilter::LONGEST),
            _ => REQUEST,
        }
    }

    /// Queues more of a dump when its beginning has been read. What changed meanwhile may be missing or be there twice, as in
    /// Linux.
    fn go_on(&self, cx: &dyn Caller, Dump { request, before, generation }: Dump) {
        let mut answers = self.answers(cx, &request).answers;
        // The last datagram ends the dump, so it is never left out.
        let mut rest = answers.split_off(before.min(answers.len().saturating_sub(1)));
        if generation != self.generation() {
            const FLAGS: usize = 6;
            let last = rest.last_mut().and_then(|last| last.get_mut(FLAGS));
            last.into_iter().for_each(|flags| *flags |= libc::NLM_F_DUMP_INTR as u8);
        }
        let mut s = self.shared.state.lock();
        let (all, fit) = (rest.len(), s.queue(rest));
        if fit < all {
            s.dump = Some(Dump { request, before: before + fit, generation });
        }
        drop(s);
        self.shared.queue.notify(Events::READABLE);
    }

    /// Groups of some protocols are for programs with rights over the namespace.
    fn may_join(&self, cx: &dyn Caller) -> Result<()> {
        let needed = match self.shared.protocol {
            NETLINK_USERSOCK | NETLINK_XFRM => Cap::NET_ADMIN,
            NETLINK_AUDIT => Cap::AUDIT_READ,
            _ => return Ok(()),
        };
        if cx.creds().ns_capable(self.net.user_ns(), needed) { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn membership(&self, cx: &dyn Caller, name: i32, group: i32) -> Result<()> {
        self.may_join(cx)?;
        let last = match self.shared.protocol {
            NETLINK_NETFILTER => netfilter::GROUPS,
            NETLINK_KOBJECT_UEVENT => uevent::GROUPS,
            NETLINK_USERSOCK | NETLINK_XFRM | NETLINK_AUDIT => FEW_GROUPS,
            _ => GROUPS,
        };
        if !(1..=last).contains(&group) {
            return Err(Errno::EINVAL);
        }
        let bit = 1u64 << (group - 1);
        let mut s = self.shared.state.lock();
        if name == NETLINK_ADD_MEMBERSHIP {
            s.groups |= bit
        } else {
            s.groups &= !bit
        }
        drop(s);
        self.net.netlink.count_members();
        Ok(())
    }
}

impl SocketOps for Netlink {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn opened(&self, ino: u64) {
        self.shared.state.lock().ino = ino;
    }
    fn poll(&self) -> Events {
        let s = self.shared.state.lock();
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
        self.shared.queue.clone()
    }
}

impl Connect for Netlink {
    fn bind(&self, cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let (port, groups) = parse(addr)?;
        if groups != 0 {
            self.may_join(cx)?;
        }
        let mut s = self.shared.state.lock();
        if s.port != 0 && s.port != port {
            return Err(Errno::EINVAL);
        }
        if s.port == 0 {
            self.bind_to(cx, &mut s, port)?;
        }
        s.groups = s.groups >> 32 << 32 | u64::from(groups);
        drop(s);
        self.net.netlink.count_members();
        Ok(())
    }
    fn connect(&self, cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let unspec = addr.get(..2) == Some(&(libc::AF_UNSPEC as u16).to_ne_bytes()[..]);
        let peer = if unspec { None } else { Some(parse(addr)?) };
        let mut s = self.shared.state.lock();
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
        let s = self.shared.state.lock();
        sockaddr(s.port, s.groups as u32)
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        let (port, groups) = self.shared.state.lock().peer.unwrap_or_default();
        Ok(sockaddr(port, groups))
    }
    fn shutdown(&self, _how: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
}

impl Transfer for Netlink {
    fn send(&self, cx: &dyn Caller, _names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        if req.flags & libc::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let to = req.addr.map(parse).transpose()?;
        let mut s = self.shared.state.lock();
        let (port, groups) = to.or(s.peer).unwrap_or_default();
        // Only a sender that may administer the namespace sends to others than the kernel, but for messages between
        // programs.
        let free = self.shared.protocol == NETLINK_USERSOCK;
        if !free && (port, groups) != (0, 0) && !cx.creds().ns_capable(self.net.user_ns(), Cap::NET_ADMIN) {
            return Err(Errno::EPERM);
        }
        if s.port == 0 {
            self.bind_to(cx, &mut s, 0)?;
        }
        if req.data.len() > self.longest() {
            return Err(Errno::EMSGSIZE);
        }
        let from = Origin { port: s.port, cred: Some(PeerCred::real(cx)) };
        drop(s);
        let group = if groups == 0 { 0 } else { groups.trailing_zeros() + 1 };
        if group != 0 {
            self.tell_members(group, port, req.data, &from);
        }
        if port != 0 {
            let to = (port, group);
            self.net.netlink.unicast_from(&self.shared, to, req.data, &from)?;
            return Ok(req.data.len());
        }
        if free {
            return Err(Errno::ECONNREFUSED);
        }
        let generation = self.generation();
        let netfilter::Served { answers, events, full, lost } = self.answers(cx, req.data);
        let echoes = events.iter().filter(|event| event.echo).map(|event| event.message.clone());
        let answers: Vec<_> = echoes.chain(answers).collect();
        let mut s = self.shared.state.lock();
        let (all, fit) = (answers.len(), s.queue(answers));
        // A request that changes something has one answer, and is never asked again.
        if fit < all && all > 1 && s.dump.is_none() && wire::is_one_dump(req.data) {
            s.dump = Some(Dump { request: req.data.to_vec(), before: fit, generation });
        } else if fit < all || full {
            s.error = Some(Errno::ENOBUFS);
        }
        drop(s);
        self.tell(&events, lost);
        self.shared.queue.notify(Events::READABLE);
        Ok(req.data.len())
    }
    fn recv(&self, cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut s = self.shared.state.lock();
        if let Some(error) = s.error.take() {
            return Err(error);
        }
        let Some(first) = s.answers.front() else { return Err(Errno::EAGAIN) };
        let (full, len, group) = (first.bytes.len(), first.bytes.len().min(buf.len()), first.group);
        buf[..len].copy_from_slice(&first.bytes[..len]);
        let Origin { port, cred } = first.from.clone();
        let mut control = Control::default();
        if self.shared.options.passcred() {
            control.cred = Some(cred.unwrap_or(PeerCred::outside(0, 0)));
        }
        if s.has(NETLINK_PKTINFO) {
            let data = group.to_ne_bytes().to_vec();
            control.other.push(Ancillary { level: SOL_NETLINK, kind: NETLINK_PKTINFO, data });
        }
        if flags & libc::MSG_PEEK == 0 {
            s.pop();
            let senders = s.take_senders();
            let dump = if s.answers.is_empty() { s.dump.take() } else { None };
            drop(s);
            sockets::wake(senders);
            if let Some(dump) = dump {
                self.go_on(cx, dump);
            }
        }
        let cut = if len < full { libc::MSG_TRUNC } else { 0 };
        let from = sockaddr(port, sockets::bit(group) as u32);
        Ok(Received { len, full, addr: Some(from), flags: cut, control })
    }
}

impl SocketOptions for Netlink {
    fn options(&self) -> &Options {
        &self.shared.options
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        let s = self.shared.state.lock();
        match name {
            _ if level != SOL_NETLINK => Err(Errno::ENOPROTOOPT),
            NETLINK_LIST_MEMBERSHIPS => Ok(s.groups.to_ne_bytes().to_vec()),
            _ if FLAGS.contains(&name) => Ok(s.flags.get(&name).copied().unwrap_or(0).to_ne_bytes().to_vec()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
    fn option_changed(&self, name: i32) {
        if name == libc::SO_RCVBUF || name == libc::SO_RCVBUFFORCE {
            self.shared.state.lock().room = self.shared.options.rcvbuf().min(LONGEST_QUEUE);
        }
    }
    fn set_option(&self, cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level != SOL_NETLINK {
            return Err(Errno::ENOPROTOOPT);
        }
        let value = value.get(..4).and_then(|v| v.try_into().ok()).map(i32::from_ne_bytes);
        let value = value.ok_or(Errno::EINVAL)?;
        match name {
            NETLINK_ADD_MEMBERSHIP | NETLINK_DROP_MEMBERSHIP => self.membership(cx, name, value),
            _ if FLAGS.contains(&name) => {
                self.shared.state.lock().flags.insert(name, (value != 0) as i32);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}

impl SocketInfo for Netlink {
    fn domain(&self) -> i32 {
        libc::AF_NETLINK
    }
    fn kind(&self) -> i32 {
        self.kind
    }
    fn protocol(&self) -> i32 {
        self.shared.protocol
    }
    fn take_error(&self) -> Option<Errno> {
        self.shared.state.lock().error.take()
    }
}

#[cfg(test)]
mod tests;
