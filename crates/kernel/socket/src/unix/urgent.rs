//! Urgent data of stream sockets: MSG_OOB, SIOCATMARK, SO_OOBINLINE. See unix(7).
//!
//! The last byte of a send with MSG_OOB is a message of its own. At most one message of a queue is urgent; a newer one makes
//! it an ordinary one. An urgent byte that was taken stays in the queue as an empty message, the mark, until a read passes
//! it. There are never two marks in a row, so what a program queues without reading stays charged to its send buffer.

use super::message::Message;
use super::sock::{Phase, Sock, State};
use crate::ops::Received;
use abi::{Errno, Result};
use std::sync::Arc;

/// How a read goes on at a message.
pub(super) struct Reading {
    pub peek: bool,
    /// SO_OOBINLINE.
    pub inline: bool,
    /// Bytes were read already.
    pub copied: bool,
}

/// True when urgent data is read in its place.
pub(super) fn inline(sock: &Sock) -> bool {
    sock.options.kept(libc::SO_OOBINLINE) != 0
}

/// Queues an urgent byte.
pub(super) fn push(state: &mut State, message: Message) {
    if state.urgent
        && let Some(old) = state.recv.iter_mut().rev().find(|m| m.urgent)
    {
        old.urgent = false;
    }
    state.urgent = true;
    state.recv.push_back(Message { urgent: true, ..message });
}

/// The message that a read takes its next bytes from: the one at `at`, or a later one. `None` ends the read: at the mark, or
/// for want of messages. Messages that the read drops go to `spent`.
pub(super) fn next(s: &mut State, mut at: usize, how: &Reading, spent: &mut Vec<Message>) -> Option<usize> {
    if s.recv.get(at)?.unread().is_empty() {
        if how.copied && !s.urgent {
            return None;
        }
        match how.peek {
            true => at += 1,
            false => spent.extend(s.recv.remove(at)),
        }
    }
    let message = s.recv.get_mut(at)?;
    if !message.urgent || how.peek && how.inline && !how.copied {
        return Some(at);
    }
    if how.copied {
        return None;
    }
    if how.peek {
        at += 1;
    } else {
        // The byte is ordinary from now on, or lost.
        message.urgent = false;
        s.urgent = false;
        if !how.inline {
            spent.extend(s.recv.remove(at));
        }
    }
    (at < s.recv.len()).then_some(at)
}

/// recvmsg(2) with MSG_OOB: EINVAL when there is no urgent byte.
pub(super) fn recv(sock: &Arc<Sock>, buf: &mut [u8], flags: i32) -> Result<Received> {
    let mut s = sock.state.lock();
    let place = if s.urgent { s.recv.iter().rposition(|m| m.urgent) } else { None };
    let place = place.filter(|_| s.phase == Phase::Established && !inline(sock)).ok_or(Errno::EINVAL)?;
    let message = s.recv.get_mut(place).ok_or(Errno::EINVAL)?;
    let len = buf.len().min(1);
    buf[..len].copy_from_slice(&message.unread()[..len]);
    let mut older = None;
    if flags & libc::MSG_PEEK == 0 {
        message.start += 1;
        message.urgent = false;
        s.urgent = false;
        if place > 0 && s.recv.get(place - 1).is_some_and(|m| m.unread().is_empty()) {
            older = s.recv.remove(place - 1);
        }
    }
    drop(s);
    drop(older);
    Ok(Received { len, full: 1, flags: libc::MSG_OOB, ..Received::default() })
}

/// SIOCATMARK: true when the next read begins at the urgent byte.
pub(super) fn at_mark(s: &State) -> bool {
    let Some(first) = s.recv.front() else { return false };
    first.urgent || first.unread().is_empty() && (!s.urgent || s.recv.get(1).is_some_and(|m| m.urgent))
}

/// True when something is left that the program has not received, not counting a mark at the front.
pub(super) fn unread(messages: &[Message], kind: i32) -> bool {
    match messages.first() {
        Some(first) if kind == libc::SOCK_STREAM && first.unread().is_empty() => messages.len() > 1,
        first => first.is_some(),
    }
}
