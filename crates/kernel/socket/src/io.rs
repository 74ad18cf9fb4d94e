//! Socket calls that wait: the loops around [`SocketOps`], with SO_RCVTIMEO and SO_SNDTIMEO.

use crate::Blocks;
use crate::ops::{Names, Received, SendRequest, SocketOps};
use abi::{Errno, Result};
use caller::{Failure, Outcome, Patience};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Caller, OpenFile};
use wait::Events;

/// How long a receiving call may wait.
fn to_receive(file: &OpenFile, sock: &dyn SocketOps, flags: i32) -> Patience {
    patience(file, flags, sock.options().rcvtimeo())
}

/// How long a sending call may wait.
fn to_send(file: &OpenFile, sock: &dyn SocketOps, flags: i32) -> Patience {
    patience(file, flags, sock.options().sndtimeo())
}

fn patience(file: &OpenFile, flags: i32, timeout: Option<Duration>) -> Patience {
    // Errors are never waited for.
    let block = !file.nonblocking() && flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) == 0;
    Patience::new(block, timeout)
}

/// Repeats `op` while it answers EAGAIN and there is time.
fn run<T>(
    patience: Patience,
    cx: &dyn Caller,
    sock: &dyn SocketOps,
    mask: Events,
    op: impl FnMut() -> Result<T>,
) -> Outcome<T> {
    patience.run(cx, || Some(sock.wait_queue()), mask, op)
}

/// connect(2). A family with connections that take time says EINPROGRESS, and EALREADY until it is done. That is also
/// the answer when time runs out.
pub fn connect(
    cx: &dyn Caller,
    file: &OpenFile,
    sock: &dyn SocketOps,
    names: &dyn Names,
    addr: &[u8],
) -> Outcome<()> {
    let patience = to_send(file, sock, 0);
    let under_way = match sock.connect(cx, names, addr) {
        Err(e @ (Errno::EAGAIN | Errno::EINPROGRESS | Errno::EALREADY)) if patience.block => e,
        done => return Ok(done?),
    };
    let again = || match sock.connect(cx, names, addr) {
        Err(Errno::EINPROGRESS | Errno::EALREADY) => Err(Errno::EAGAIN),
        done => done,
    };
    match patience.wait(cx, &sock.wait_queue(), Events::WRITABLE, again) {
        Err(Failure::Errno(Errno::EAGAIN)) => Err(under_way.into()),
        done => done,
    }
}

/// accept(2).
pub fn accept(cx: &dyn Caller, file: &OpenFile, sock: &dyn SocketOps) -> Outcome<Arc<dyn SocketOps>> {
    run(to_receive(file, sock, 0), cx, sock, Events::READABLE, || sock.accept())
}

/// sendmsg(2). A stream goes on until everything is sent; what stops it counts only if nothing was.
pub fn send(
    cx: &dyn Caller,
    file: &OpenFile,
    sock: &dyn SocketOps,
    names: &dyn Names,
    req: SendRequest<'_>,
) -> Outcome<usize> {
    let patience = to_send(file, sock, req.flags);
    let SendRequest { data, addr, control, flags, block } = req;
    let mut req = SendRequest { data, addr, control, flags, block };
    let mut sent = 0;
    loop {
        match run(patience, cx, sock, Events::WRITABLE, || sock.send(cx, names, &mut req)) {
            Ok(n) => sent += n,
            Err(Failure::Errno(Errno::EINPROGRESS)) if patience.block => {}
            Err(_) if sent > 0 => return Ok(sent),
            Err(e) => return Err(e),
        }
        if !sock.stream() || !patience.block {
            return Ok(sent);
        }
        if req.flags & libc::MSG_FASTOPEN != 0 || sent < data.len() {
            match run(patience, cx, sock, Events::WRITABLE, || sock.opened_by_send(sent < data.len())) {
                Err(Failure::Errno(Errno::EAGAIN)) if sent > 0 => return Ok(sent),
                Err(Failure::Errno(Errno::EAGAIN)) => return Err(Errno::EINPROGRESS.into()),
                done => done?,
            }
            req.flags &= !libc::MSG_FASTOPEN;
        }
        if sent >= data.len() {
            return Ok(sent);
        }
        req.data = &data[sent..];
    }
}

/// recvmsg(2) of a byte stream, where [`crate::Transfer::gives_blocks`] says so: up to `most` bytes as they lie in the queue. `None`:
/// a call with these flags, or this socket, needs [`recv`].
pub fn take(
    cx: &dyn Caller,
    file: &OpenFile,
    sock: &dyn SocketOps,
    most: usize,
    flags: i32,
) -> Option<Outcome<Blocks>> {
    let plain = flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) == 0;
    if !plain || !sock.gives_blocks() || sock.options().rcvlowat() > 1 {
        return None;
    }
    let patience = to_receive(file, sock, flags);
    Some(run(patience, cx, sock, Events::READABLE, || match sock.take(most) {
        Err(Errno::EAGAIN) if patience.block && sock.ended() => Ok(Blocks::new()),
        done => done,
    }))
}

/// recvmsg(2) from a stream into memory that ends after `buf.len()` of `want` bytes, see
/// [`crate::Transfer::recv_whole`].
pub fn recv_whole(
    cx: &dyn Caller,
    file: &OpenFile,
    sock: &dyn SocketOps,
    (buf, want): (&mut [u8], usize),
    flags: i32,
) -> Outcome<Received> {
    let patience = to_receive(file, sock, flags);
    run(patience, cx, sock, Events::READABLE, || match sock.recv_whole(cx, buf, want, flags) {
        Err(Errno::EAGAIN) if patience.block && sock.ended() => Ok(Received::default()),
        done => done,
    })
}

/// recvmsg(2). With MSG_WAITALL a stream goes on until the buffer is full.
pub fn recv(
    cx: &dyn Caller,
    file: &OpenFile,
    sock: &dyn SocketOps,
    buf: &mut [u8],
    flags: i32,
) -> Outcome<Received> {
    let patience = to_receive(file, sock, flags);
    let peek = flags & libc::MSG_PEEK != 0;
    let want = match flags & libc::MSG_WAITALL {
        0 => sock.options().rcvlowat().min(buf.len()),
        _ => buf.len(),
    };
    let mut all = run(patience, cx, sock, Events::READABLE, || match sock.recv(cx, buf, flags) {
        Err(Errno::EAGAIN) if patience.block && sock.ended() => Ok(Received::default()),
        done => done,
    })?;
    while sock.stream() && !peek && all.len > 0 && all.len < want && all.control.rights.is_empty() {
        match run(patience, cx, sock, Events::READABLE, || sock.recv(cx, &mut buf[all.len..], flags)) {
            Ok(r) if r.len == 0 => break,
            Ok(r) => {
                all.len += r.len;
                all.full = all.len;
                all.flags |= r.flags;
                all.control.rights = r.control.rights;
            }
            Err(_) => break,
        }
    }
    Ok(all)
}
