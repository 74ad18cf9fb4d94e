//! Receiving.

use super::addr::Addr;
use super::message::Message;
use super::sock::{Phase, RECV, Sock, State};
use crate::ops::{Control, PeerCred, Received};
use abi::{Errno, Result};
use std::sync::Arc;

/// Credentials of a message that was sent without: nobody.
const UNKNOWN: PeerCred = PeerCred { pid: None, uid: 65534, gid: 65534 };

/// recvmsg(2).
pub(super) fn recv(sock: &Arc<Sock>, buf: &mut [u8], flags: i32) -> Result<Received> {
    if sock.kind == libc::SOCK_STREAM { recv_stream(sock, buf, flags) } else { recv_record(sock, buf, flags) }
}

/// Why an empty queue gives nothing: `Ok` is the end of the stream.
fn empty(s: &mut State) -> Result<()> {
    if let Some(e) = s.error.take() {
        return Err(e);
    }
    if s.shut & RECV != 0 { Ok(()) } else { Err(Errno::EAGAIN) }
}

fn recv_stream(sock: &Arc<Sock>, buf: &mut [u8], flags: i32) -> Result<Received> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::EINVAL);
    }
    let peek = flags & libc::MSG_PEEK != 0;
    let passcred = sock.options.passcred();
    let mut out = Received::default();
    let mut spent: Vec<Message> = Vec::new();
    let mut s = sock.state.lock();
    if s.phase != Phase::Established {
        return Err(Errno::EINVAL);
    }
    if s.recv.is_empty() {
        return empty(&mut s).map(|()| out);
    }
    let mut first_cred = None;
    let mut at = 0;
    // An empty buffer takes no bytes, but the descriptors of the first message.
    while let Some(m) = s.recv.get_mut(at) {
        // Bytes of different senders are not mixed where the receiver asks who they are.
        let cred = m.cred.as_ref().unwrap_or(&UNKNOWN);
        if passcred && first_cred.get_or_insert_with(|| cred.clone()) != cred {
            break;
        }
        if out.addr.is_none() {
            out.addr = Some(m.from.as_deref().unwrap_or(&Addr::Unnamed).bytes());
        }
        let n = m.unread().len().min(buf.len() - out.len);
        buf[out.len..out.len + n].copy_from_slice(&m.unread()[..n]);
        out.len += n;
        let carries = m.rights.is_some();
        if peek {
            if let Some(r) = &m.rights {
                out.control.rights = r.files().to_vec();
            }
            at += 1;
        } else {
            m.start += n;
            if let Some(r) = m.rights.take() {
                out.control.rights = r.take();
            }
            if m.start < m.data.len() {
                break;
            }
            spent.extend(s.recv.pop_front());
        }
        if carries || out.len == buf.len() {
            break;
        }
    }
    drop(s);
    drop(spent);
    out.control.cred = if passcred { first_cred } else { None };
    out.full = out.len;
    Ok(out)
}

fn recv_record(sock: &Arc<Sock>, buf: &mut [u8], flags: i32) -> Result<Received> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut s = sock.state.lock();
    if sock.connected_kind() && s.phase != Phase::Established {
        return Err(Errno::ENOTCONN);
    }
    if s.recv.is_empty() {
        return empty(&mut s).map(|()| Received::default());
    }
    let mut out = Received::default();
    let mut spent = None;
    let mut blocked = Vec::new();
    if flags & libc::MSG_PEEK != 0 {
        if let Some(m) = s.recv.front() {
            fill(&mut out, m, buf);
            out.control.rights = m.rights.as_ref().map(|r| r.files().to_vec()).unwrap_or_default();
        }
    } else if let Some(mut m) = s.recv.pop_front() {
        fill(&mut out, &m, buf);
        out.control.rights = m.rights.take().map(|r| r.take()).unwrap_or_default();
        spent = Some(m);
        blocked = std::mem::take(&mut s.blocked);
    }
    drop(s);
    drop(spent);
    Sock::unblock(blocked);
    if !sock.options.passcred() {
        out.control.cred = None;
    }
    Ok(out)
}

fn fill(out: &mut Received, m: &Message, buf: &mut [u8]) {
    out.full = m.data.len();
    out.len = out.full.min(buf.len());
    buf[..out.len].copy_from_slice(&m.data[..out.len]);
    if out.len < out.full {
        out.flags |= libc::MSG_TRUNC;
    }
    out.addr = m.from.as_deref().map(Addr::bytes);
    out.control = Control { cred: Some(m.cred.clone().unwrap_or(UNKNOWN)), ..Control::default() };
}
