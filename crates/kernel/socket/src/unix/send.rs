//! Sending.

use super::addr::Addr;
use super::connect::{autobind, find, may_send};
use super::message::{Charge, Message};
use super::rights::Rights;
use super::sock::{MAX_DGRAM_QLEN, Phase, RECV, SEND, Sock};
use super::urgent;
use crate::ops::{Names, PeerCred, SendRequest};
use abi::{Errno, Result, Signal};
use hostsys::clock::gettime_ns;
use netstack::truesize;
use rights::Cap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Caller;
use wait::Events;

/// sendmsg(2).
pub(super) fn send(
    sock: &Arc<Sock>,
    cx: &dyn Caller,
    names: &dyn Names,
    req: &mut SendRequest<'_>,
) -> Result<usize> {
    let urgent = req.flags & libc::MSG_OOB != 0;
    if urgent && (sock.kind != libc::SOCK_STREAM || req.data.is_empty()) {
        return Err(Errno::EOPNOTSUPP);
    }
    check_rights(sock, cx, req)?;
    match sock.kind {
        libc::SOCK_STREAM => send_stream(sock, cx, req),
        libc::SOCK_SEQPACKET => {
            if sock.state.lock().phase != Phase::Established {
                return Err(Errno::ENOTCONN);
            }
            // A connected record socket ignores a destination.
            req.addr = None;
            send_record(sock, cx, names, req)
        }
        _ => send_record(sock, cx, names, req),
    }
}

/// What a task may have in flight is bounded by what it may have open.
fn check_rights(sock: &Sock, cx: &dyn Caller, req: &SendRequest<'_>) -> Result<()> {
    if req.control.rights.is_empty() {
        return Ok(());
    }
    let creds = cx.creds();
    let over = sock.home.in_flight.of_user(creds.uid) as u64 > cx.rlimit(libc::RLIMIT_NOFILE as i32);
    if over && !creds.capable(Cap::SYS_RESOURCE) && !creds.capable(Cap::SYS_ADMIN) {
        return Err(Errno::ETOOMANYREFS);
    }
    Ok(())
}

/// Credentials travel when given, or when either side has SO_PASSCRED or SO_PASSPIDFD.
fn cred_for(sock: &Sock, other: &Sock, cx: &dyn Caller, given: Option<PeerCred>) -> Option<PeerCred> {
    given
        .or_else(|| (sock.options.tells_sender() || other.options.tells_sender()).then(|| PeerCred::real(cx)))
}

fn full(sock: &Sock) -> bool {
    sock.wmem.load(Ordering::SeqCst) >= sock.options.sndbuf()
}

fn broken(cx: &dyn Caller, flags: i32) -> Errno {
    if flags & libc::MSG_NOSIGNAL == 0 {
        cx.raise(Signal::SIGPIPE);
    }
    Errno::EPIPE
}

fn send_stream(sock: &Arc<Sock>, cx: &dyn Caller, req: &mut SendRequest<'_>) -> Result<usize> {
    let s = sock.state.lock();
    let connected = s.phase == Phase::Established;
    if req.addr.is_some() {
        return Err(if connected { Errno::EISCONN } else { Errno::EOPNOTSUPP });
    }
    let shut = s.shut;
    let peer = s.peer.clone();
    let from = s.addr.clone();
    drop(s);
    let closed = shut & SEND != 0;
    let Some(peer) = peer else {
        return Err(if closed && connected { broken(cx, req.flags) } else { Errno::ENOTCONN });
    };
    if closed {
        return Err(broken(cx, req.flags));
    }
    let piece = (sock.options.sndbuf() / 2).saturating_sub(64).clamp(1, truesize::LONGEST_PIECE);
    let mut sent = 0;
    while sent < req.data.len() {
        if full(sock) {
            break;
        }
        // The last byte of an urgent send is a message of its own.
        let left = req.data.len() - sent;
        let urgent = req.flags & libc::MSG_OOB != 0;
        let n = if urgent { (left - 1).clamp(1, piece) } else { left.min(piece) };
        let urgent = urgent && left == 1;
        let charge = match Charge::new(sock, n) {
            Ok(charge) => charge,
            Err(_) if sent > 0 => break,
            Err(e) => return Err(e),
        };
        let message = Message {
            data: req.data[sent..sent + n].to_vec(),
            start: 0,
            from: from.clone(),
            cred: cred_for(sock, &peer, cx, req.control.cred.take()),
            rights: Rights::new(
                &sock.home.in_flight,
                std::mem::take(&mut req.control.rights),
                cx.creds().uid,
            ),
            urgent: false,
            peeked: false,
            at: None,
            charge,
        };
        let mut ps = peer.state.lock();
        if ps.dead || ps.shut & RECV != 0 {
            drop(ps);
            drop(message);
            let e = broken(cx, req.flags);
            return if sent > 0 { Ok(sent) } else { Err(e) };
        }
        if message.rights.is_some() && !peer.options.passrights() {
            drop(ps);
            drop(message);
            return Err(Errno::EPERM);
        }
        if urgent {
            urgent::push(&mut ps, message);
        } else {
            ps.recv.push_back(message);
        }
        drop(ps);
        if urgent {
            peer.queue.notify(Events::URG | Events::PRI);
        }
        sent += n;
    }
    if sent == 0 && !req.data.is_empty() {
        return Err(Errno::EAGAIN);
    }
    if sent > 0 {
        peer.queue.notify(Events::READABLE);
    }
    Ok(sent)
}

fn send_record(
    sock: &Arc<Sock>,
    cx: &dyn Caller,
    names: &dyn Names,
    req: &mut SendRequest<'_>,
) -> Result<usize> {
    let other = match req.addr {
        Some(a) => {
            let addr = match Addr::parse(a)? {
                Addr::Unnamed => return Err(Errno::EINVAL),
                a => a,
            };
            Some(addr)
        }
        None => None,
    };
    let named = other.is_some();
    let connected_to = sock.state.lock().peer.clone();
    if !named && connected_to.is_none() {
        return Err(Errno::ENOTCONN);
    }
    if sock.options.tells_sender() {
        autobind(sock)?;
    }
    if req.data.len() > sock.options.sndbuf().saturating_sub(32) {
        return Err(Errno::EMSGSIZE);
    }
    if sock.state.lock().shut & SEND != 0 {
        return Err(Errno::EPIPE);
    }
    let other = match (other, connected_to) {
        (Some(a), _) => find(sock, cx, names, &a)?,
        (None, Some(p)) => p,
        (None, None) => return Err(Errno::ENOTCONN),
    };
    // What the receiver's filter drops counts as sent.
    let Some(kept) = other.options.admits(req.data) else { return Ok(req.data.len()) };
    if full(sock) {
        return Err(Errno::EAGAIN);
    }
    if !sock.connected_kind() && !Arc::ptr_eq(&other, sock) {
        may_send(sock, &other)?;
    }
    let from = sock.state.lock().addr.clone();
    let cred = cred_for(sock, &other, cx, req.control.cred.take());
    let charge = Charge::new(sock, req.data.len())?;
    let mut os = other.state.lock();
    if os.dead {
        drop(os);
        if !named {
            let mut s = sock.state.lock();
            if s.peer.as_ref().is_some_and(|p| Arc::ptr_eq(p, &other)) {
                s.peer = None;
            }
        }
        return Err(if sock.connected_kind() { Errno::EPIPE } else { Errno::ECONNREFUSED });
    }
    if os.shut & RECV != 0 {
        return Err(Errno::EPIPE);
    }
    if !req.control.rights.is_empty() && !other.options.passrights() {
        return Err(Errno::EPERM);
    }
    let back = os.peer.as_ref().is_some_and(|p| Arc::ptr_eq(p, sock));
    if !back && !Arc::ptr_eq(&other, sock) && os.recv.len() > MAX_DGRAM_QLEN {
        Sock::block_on(&mut os, sock);
        return Err(Errno::EAGAIN);
    }
    os.recv.push_back(Message {
        data: req.data.get(..kept).unwrap_or_default().to_vec(),
        start: 0,
        from,
        cred,
        rights: Rights::new(&sock.home.in_flight, std::mem::take(&mut req.control.rights), cx.creds().uid),
        urgent: false,
        peeked: false,
        at: other.wants_time().then(|| gettime_ns(libc::CLOCK_REALTIME)).flatten(),
        charge,
    });
    drop(os);
    other.queue.notify(Events::READABLE);
    Ok(req.data.len())
}
