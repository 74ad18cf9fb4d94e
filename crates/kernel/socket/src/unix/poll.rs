//! Readiness of a Unix socket.

use super::sock::{BOTH, MAX_DGRAM_QLEN, Phase, RECV, Sock};
use std::sync::Arc;
use wait::Events;

pub(super) fn poll(sock: &Arc<Sock>) -> Events {
    let s = sock.state.lock();
    let mut e = Events::NONE;
    if s.error.is_some() {
        e |= Events::ERR;
    }
    if s.shut == BOTH {
        e |= Events::HUP;
    }
    if s.shut & RECV != 0 {
        e |= Events::RDHUP | Events::READABLE;
    }
    if !s.recv.is_empty() || !s.backlog.is_empty() {
        e |= Events::READABLE;
    }
    if s.urgent {
        e |= Events::PRI;
    }
    if sock.connected_kind() && s.phase == Phase::Closed {
        e |= Events::HUP;
    }
    let mut writable = s.phase != Phase::Listening && sock.send_room();
    let peer = s.peer.clone();
    drop(s);
    // A datagram peer with a full queue, unless it is connected back.
    if writable
        && !sock.connected_kind()
        && let Some(p) = peer
        && !Arc::ptr_eq(&p, sock)
    {
        let mut ps = p.state.lock();
        let back = ps.peer.as_ref().is_some_and(|x| Arc::ptr_eq(x, sock));
        if !back && !ps.dead && ps.recv.len() > MAX_DGRAM_QLEN {
            Sock::block_on(&mut ps, sock);
            writable = false;
        }
    }
    if writable {
        e |= Events::WRITABLE | Events::WRBAND;
    }
    e
}
