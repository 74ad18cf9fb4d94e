//! Receiving.

use super::message::Message;
use super::sock::{Phase, RECV, Sock, State};
use super::urgent::{self, Reading};
use crate::ops::{Ancillary, Control, PeerCred, Received};
use abi::time::{Timespec, Timeval};
use abi::{Errno, Result};
use hostsys::clock::gettime_ns;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Credentials of a message that was sent without any.
static UNKNOWN: PeerCred = PeerCred::outside(65534, 65534);

/// recvmsg(2).
pub(super) fn recv(sock: &Arc<Sock>, buf: &mut [u8], flags: i32) -> Result<Received> {
    let want = buf.len();
    recv_whole(sock, buf, want, flags)
}

/// As [`recv`] of `want` bytes; what a stream takes of a message must fit into `buf`, or nothing of the message is taken.
pub(super) fn recv_whole(sock: &Arc<Sock>, buf: &mut [u8], want: usize, flags: i32) -> Result<Received> {
    match sock.kind {
        libc::SOCK_STREAM => recv_stream(sock, buf, want, flags),
        _ => recv_record(sock, buf, flags),
    }
}

/// Why an empty queue gives nothing: `Ok` is the end of the stream.
fn empty(s: &mut State) -> Result<()> {
    if let Some(e) = s.error.take() {
        return Err(e);
    }
    if s.shut & RECV != 0 { Ok(()) } else { Err(Errno::EAGAIN) }
}

fn recv_stream(sock: &Arc<Sock>, buf: &mut [u8], want: usize, flags: i32) -> Result<Received> {
    if flags & libc::MSG_OOB != 0 {
        return urgent::recv(sock, buf, flags);
    }
    let peek = flags & libc::MSG_PEEK != 0;
    let tells_sender = sock.options.tells_sender();
    let mut out = Received::default();
    let mut spent: Vec<Message> = Vec::new();
    let mut s = sock.state.lock();
    let mut reading = Reading { peek, inline: s.urgent && urgent::inline(sock), copied: false };
    if s.phase != Phase::Established {
        return Err(Errno::EINVAL);
    }
    let mut skip = if peek { sock.options.peek_off().max(0) as usize } else { 0 };
    let mut first_cred = None;
    let mut sender = None;
    let mut at = 0;
    // An empty buffer takes no bytes, but the descriptors of the first message.
    loop {
        let Some(place) = urgent::next(&mut s, at, &reading, &mut spent) else {
            if out.len == 0 {
                let outcome = empty(&mut s).map(|()| out);
                drop(s);
                return outcome;
            }
            break;
        };
        at = place;
        let Some(m) = s.recv.get_mut(at) else { break };
        if skip > 0 && skip >= m.unread().len() {
            skip -= m.unread().len();
            at += 1;
            continue;
        }
        // Bytes of different senders are not mixed where the receiver asks for credentials.
        let cred = m.cred.as_ref().unwrap_or(&UNKNOWN);
        if tells_sender && first_cred.get_or_insert_with(|| cred.clone()) != cred {
            break;
        }
        let unread = m.unread().len() - skip;
        if unread.min(want - out.len) > buf.len() - out.len {
            if out.len == 0 {
                return Err(Errno::EFAULT);
            }
            break;
        }
        if sender.is_none() {
            sender = Some((m.charge.parts().0.clone(), m.from.clone()));
        }
        let unread = &m.unread()[skip..];
        let n = unread.len().min(want - out.len);
        buf[out.len..out.len + n].copy_from_slice(&unread[..n]);
        out.len += n;
        let carries = m.rights.is_some();
        if peek {
            if let Some(r) = &m.rights {
                out.control.rights = r.files().to_vec();
            }
            (at, skip) = (at + 1, 0);
        } else {
            m.start += n;
            if let Some(r) = m.rights.take() {
                out.control.rights = r.take();
            }
            if m.start < m.data.len() {
                break;
            }
            spent.extend(s.recv.remove(at));
        }
        reading.copied = out.len > 0;
        if carries || out.len == want {
            break;
        }
    }
    sock.options.move_peek_off(out.len, peek);
    drop(s);
    drop(spent);
    // Without a name the sender has no address at all.
    out.addr = sender.and_then(|(sock, from)| Message::sender(&sock, from)).map(|addr| addr.bytes());
    out.control.cred = first_cred;
    passed(sock, &mut out.control);
    out.full = out.len;
    Ok(out)
}

/// The record that a peek at the socket's offset (SO_PEEK_OFF) looks at, and where in it. Empty records are looked at once.
fn peeked_at(s: &State, offset: i32) -> Option<(usize, usize)> {
    let Ok(mut skip) = usize::try_from(offset) else { return (!s.recv.is_empty()).then_some((0, 0)) };
    for (place, m) in s.recv.iter().enumerate() {
        if skip < m.data.len() || skip == 0 && !m.peeked {
            return Some((place, skip));
        }
        skip -= m.data.len();
    }
    None
}

fn recv_record(sock: &Arc<Sock>, buf: &mut [u8], flags: i32) -> Result<Received> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut s = sock.state.lock();
    if sock.connected_kind() && s.phase != Phase::Established {
        return Err(Errno::ENOTCONN);
    }
    let mut out = Received::default();
    let mut spent = None;
    let mut blocked = Vec::new();
    let (sender, sent_at);
    if flags & libc::MSG_PEEK != 0 {
        let place = peeked_at(&s, sock.options.peek_off());
        let found = place.and_then(|(place, skip)| Some((s.recv.get_mut(place)?, skip)));
        let Some((m, skip)) = found else { return empty(&mut s).map(|()| out) };
        m.peeked = true;
        sender = (m.charge.parts().0.clone(), m.from.clone());
        sent_at = Some(m.at);
        fill(&mut out, m, skip, buf);
        out.control.rights = m.rights.as_ref().map(|r| r.files().to_vec()).unwrap_or_default();
        sock.options.move_peek_off(out.len, true);
    } else {
        let Some(mut m) = s.recv.pop_front() else { return empty(&mut s).map(|()| out) };
        sender = (m.charge.parts().0.clone(), m.from.clone());
        sent_at = Some(m.at);
        fill(&mut out, &m, 0, buf);
        out.control.rights = m.rights.take().map(|r| r.take()).unwrap_or_default();
        sock.options.move_peek_off(out.full, false);
        spent = Some(m);
        blocked = std::mem::take(&mut s.blocked);
    }
    drop(s);
    drop(spent);
    Sock::unblock(blocked);
    out.addr = Message::sender(&sender.0, sender.1).map(|addr| addr.bytes());
    out.control.other.extend(sent_at.filter(|_| sock.wants_time()).map(|at| stamp(sock, at)));
    passed(sock, &mut out.control);
    Ok(out)
}

/// Keeps of what comes with a message what the receiver asks for: SO_PASSCRED and SO_PASSPIDFD.
fn passed(sock: &Sock, control: &mut Control) {
    if sock.options.passpidfd() {
        control.sender = control.cred.clone().filter(|cred| cred.pid.is_some());
    }
    if !sock.options.passcred() {
        control.cred = None;
    }
}

/// SO_TIMESTAMP and SO_TIMESTAMPNS: when a message was sent; now, when the option was not set then.
fn stamp(sock: &Sock, at: Option<i64>) -> Ancillary {
    let now = || gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0);
    let at = Timespec::from_ns(at.unwrap_or_else(now));
    let (kind, data) = match sock.options.kept(libc::SO_TIMESTAMPNS) != 0 {
        true => (libc::SO_TIMESTAMPNS, at.as_bytes().to_vec()),
        false => (libc::SO_TIMESTAMP, Timeval { sec: at.sec, usec: at.nsec / 1000 }.as_bytes().to_vec()),
    };
    Ancillary { level: libc::SOL_SOCKET, kind, data }
}

fn fill(out: &mut Received, m: &Message, skip: usize, buf: &mut [u8]) {
    let data = m.data.get(skip..).unwrap_or_default();
    out.full = data.len();
    out.len = out.full.min(buf.len());
    buf[..out.len].copy_from_slice(&data[..out.len]);
    if out.len < out.full {
        out.flags |= libc::MSG_TRUNC;
    }
    out.control =
        Control { cred: Some(m.cred.clone().unwrap_or_else(|| UNKNOWN.clone())), ..Control::default() };
}
