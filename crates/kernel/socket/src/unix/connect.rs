//! Names and connections: bind, listen, connect, accept.

use super::addr::{Addr, Bound};
use super::sock::{Phase, RECV, Sock, lock_two};
use super::{UnixSocket, rights};
use crate::ops::{Names, PeerCred};
use abi::{Errno, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::{Caller, InodeRef, OutsideName};
use wait::Events;

/// Largest backlog (/proc/sys/net/core/somaxconn).
const SOMAXCONN: usize = 4096;

/// bind(2). Gives the host's socket with the name where programs outside reach it.
pub(super) fn bind(
    sock: &Arc<Sock>,
    cx: &dyn Caller,
    names: &dyn Names,
    addr: &[u8],
) -> Result<Option<Arc<dyn OutsideName>>> {
    let addr = Addr::parse(addr)?;
    let mut outside = None;
    let bound = sock.state.lock().addr.is_some();
    match &addr {
        Addr::Unnamed => return autobind(sock).map(|()| None),
        _ if bound => return Err(Errno::EINVAL),
        Addr::Abstract(name) => sock.home.names.claim(name, sock)?,
        Addr::Path(path) => {
            let inode = names.make(cx, path, sock.kind)?;
            outside = inode.named_outside(&sock.queue).transpose()?;
            let on = inode.attachments().ok_or(Errno::EOPNOTSUPP)?;
            on.set(Some(Arc::new(Bound(Arc::downgrade(sock)))));
            // Of two binds at the same time one fails below.
            let _ = sock.place.set(inode);
        }
    }
    let mut s = sock.state.lock();
    if s.addr.is_some() {
        drop(s);
        if let Addr::Abstract(name) = &addr {
            sock.home.names.release(name, sock);
        }
        return Err(Errno::EINVAL);
    }
    s.addr = Some(Arc::new(addr));
    Ok(outside)
}

/// Gives an unbound socket a name of the kernel's choice.
pub(super) fn autobind(sock: &Arc<Sock>) -> Result<()> {
    if sock.state.lock().addr.is_some() {
        return Ok(());
    }
    let name = sock.home.names.claim_any(sock)?;
    let mut s = sock.state.lock();
    if s.addr.is_some() {
        drop(s);
        sock.home.names.release(&name, sock);
        return Ok(());
    }
    s.addr = Some(Arc::new(Addr::Abstract(name)));
    Ok(())
}

fn bound_to(inode: &InodeRef) -> Option<Arc<Sock>> {
    inode.attachments()?.get::<Bound>()?.0.upgrade()
}

/// The socket that an address names; ECONNREFUSED when there is none, EPROTOTYPE for another type.
pub(super) fn find(sock: &Sock, cx: &dyn Caller, names: &dyn Names, addr: &Addr) -> Result<Arc<Sock>> {
    let found = match addr {
        Addr::Unnamed => return Err(Errno::EINVAL),
        Addr::Abstract(name) => sock.home.names.find(sock.net, name),
        Addr::Path(path) => bound_to(&names.find(cx, path)?),
    };
    let other = found.filter(|s| !s.state.lock().dead).ok_or(Errno::ECONNREFUSED)?;
    if other.kind != sock.kind {
        return Err(Errno::EPROTOTYPE);
    }
    if let (Addr::Abstract(_), Some(domain)) = (addr, &cx.creds().landlock) {
        let theirs = other.domain.get().map(|d| &**d);
        domain.check_scope(landlock::scope::ABSTRACT_UNIX_SOCKET, theirs)?;
    }
    Ok(other)
}

/// connect(2).
pub(super) fn connect(sock: &Arc<Sock>, cx: &dyn Caller, names: &dyn Names, addr: &[u8]) -> Result<()> {
    if !sock.connected_kind() {
        return connect_dgram(sock, cx, names, addr);
    }
    let addr = match Addr::parse(addr)? {
        Addr::Unnamed => return Err(Errno::EINVAL),
        a => a,
    };
    if sock.options.tells_sender() {
        autobind(sock)?;
    }
    let other = find(sock, cx, names, &addr)?;
    if Arc::ptr_eq(&other, sock) {
        let listening = sock.state.lock().phase == Phase::Listening;
        return Err(if listening { Errno::EINVAL } else { Errno::ECONNREFUSED });
    }
    let embryo = UnixSocket::new(sock.kind, sock.home.clone(), sock.net);
    let own_cred = PeerCred::of(cx);
    let (mut s, mut os) = lock_two(sock, &other);
    if os.phase != Phase::Listening || os.shut & RECV != 0 || os.dead {
        drop((s, os));
        return Err(Errno::ECONNREFUSED);
    }
    let refused = match s.phase {
        Phase::Established => Some(Errno::EISCONN),
        Phase::Listening => Some(Errno::EINVAL),
        Phase::Closed if os.backlog.len() > os.max_backlog => {
            Sock::block_on(&mut os, sock);
            Some(Errno::EAGAIN)
        }
        Phase::Closed => None,
    };
    if let Some(e) = refused {
        drop((s, os));
        return Err(e);
    }
    {
        // No other thread knows this one yet.
        let mut es = embryo.sock.state.lock_nested();
        es.phase = Phase::Established;
        es.peer = Some(sock.clone());
        es.peer_cred = own_cred;
        es.addr = os.addr.clone();
        embryo.sock.options.inherit(&other.options);
    }
    s.phase = Phase::Established;
    s.peer = Some(embryo.sock.clone());
    s.peer_cred = os.peer_cred.clone();
    os.backlog.push_back(embryo);
    drop((s, os));
    other.queue.notify(Events::READABLE);
    sock.queue.notify(Events::WRITABLE);
    Ok(())
}

fn connect_dgram(sock: &Arc<Sock>, cx: &dyn Caller, names: &dyn Names, addr: &[u8]) -> Result<()> {
    let family = addr.first_chunk::<2>().map(|b| i32::from(u16::from_ne_bytes(*b))).ok_or(Errno::EINVAL)?;
    let peer = if family == libc::AF_UNSPEC {
        None
    } else {
        let addr = match Addr::parse(addr)? {
            Addr::Unnamed => return Err(Errno::EINVAL),
            a => a,
        };
        if sock.options.tells_sender() {
            autobind(sock)?;
        }
        let other = find(sock, cx, names, &addr)?;
        may_send(sock, &other)?;
        Some(other)
    };
    let connected = peer.is_some();
    let mut s = sock.state.lock();
    let old = std::mem::replace(&mut s.peer, peer);
    // Messages of others do not reach a socket that now talks to one peer only.
    let stale = if old.is_some() && connected { std::mem::take(&mut s.recv) } else { VecDeque::new() };
    drop(s);
    rights::release_all(stale, Vec::new());
    sock.queue.notify(Events::WRITABLE);
    Ok(())
}

/// A datagram socket that is connected accepts messages from its peer only.
pub(super) fn may_send(sock: &Arc<Sock>, other: &Arc<Sock>) -> Result<()> {
    match &other.state.lock().peer {
        Some(p) if !Arc::ptr_eq(p, sock) => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

/// listen(2).
pub(super) fn listen(sock: &Arc<Sock>, cx: &dyn Caller, backlog: i32) -> Result<()> {
    if !sock.connected_kind() {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut s = sock.state.lock();
    if s.addr.is_none() || s.phase == Phase::Established {
        return Err(Errno::EINVAL);
    }
    let max = (backlog as u32 as usize).min(SOMAXCONN);
    let grown = max > s.max_backlog;
    s.max_backlog = max;
    s.phase = Phase::Listening;
    s.peer_cred = PeerCred::of(cx);
    let blocked = if grown { std::mem::take(&mut s.blocked) } else { Vec::new() };
    drop(s);
    Sock::unblock(blocked);
    Ok(())
}

/// accept(2).
pub(super) fn accept(sock: &Arc<Sock>) -> Result<Arc<UnixSocket>> {
    if !sock.connected_kind() {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut s = sock.state.lock();
    if s.phase != Phase::Listening {
        return Err(Errno::EINVAL);
    }
    match s.backlog.pop_front() {
        Some(e) => {
            let blocked = std::mem::take(&mut s.blocked);
            drop(s);
            Sock::unblock(blocked);
            Ok(e)
        }
        None if s.shut & RECV != 0 => Err(Errno::EINVAL),
        None => Err(Errno::EAGAIN),
    }
}
