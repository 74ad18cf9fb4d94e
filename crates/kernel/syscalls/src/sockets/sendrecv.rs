//! sendto(2), sendmsg(2), sendmmsg(2), recvfrom(2), recvmsg(2), recvmmsg(2).

use crate::arg::{Fd, Ptr};
use crate::files::outgoing::{BLOCKS, Outgoing};
use crate::install::limit;
use crate::iov::{Iov, MAX_IOV, Scratch};
use crate::sockets::policing;
use crate::sockets::socket::{Sock, read_addr, write_addr};
use crate::timeout::Timeout;
use abi::{Errno, Result};
use caller::{HasCredentials, Identity};
use policy::Kind;
use rights::Cap;
use socket::cmsg::{self, Cmsg, Writer};
use socket::{Control, MAX_RECORD, PeerCred, Received, SendRequest, Ucred, io};
use std::sync::Arc;
use std::time::Instant;
use task::{Current, SysErr, SysResult};
use vfs::{FileLayer, OpenFile};
use wait::Events;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Longest control buffer (net.core.optmem_max).
const MAX_CONTROL: u64 = 131_072;
/// How much of a stream is taken into the sentry at once.
const CHUNK: usize = 1 << 20;

/// `struct msghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct MsgHdr {
    name: u64,
    namelen: u32,
    pad0: u32,
    iov: u64,
    iovlen: u64,
    control: u64,
    controllen: u64,
    flags: i32,
    pad1: u32,
}

/// Offset of `msg_len` in `struct mmsghdr`, and its size.
const MMSG_LEN: u64 = 56;
const MMSG_SIZE: u64 = 64;
/// The control message of SO_PASSPIDFD.
const SCM_PIDFD: i32 = 4;

/// The buffers of a message; more than UIO_MAXIOV is EMSGSIZE here.
fn read_iov(c: &Current, at: u64, count: u64) -> Result<Iov> {
    if count > MAX_IOV as u64 {
        return Err(Errno::EMSGSIZE);
    }
    Iov::read(c, at, count)
}

/// Takes bytes `from..from + buf.len()` of a program's buffers; EFAULT unless all can be read.
fn gather(c: &Current, iov: &Iov, from: usize, buf: &mut [u8]) -> Result<()> {
    if iov.gather(c, from, buf) == buf.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

fn read_control(c: &Current, at: u64, len: u64) -> Result<Control> {
    let mut control = Control::default();
    if at == 0 || len == 0 {
        return Ok(control);
    }
    if len > MAX_CONTROL {
        return Err(Errno::ENOBUFS);
    }
    let mut raw = vec![0; len as usize];
    c.read_bytes(at, &mut raw)?;
    for m in cmsg::parse(&raw)? {
        match m {
            Cmsg::Rights(fds) => {
                if control.rights.len() + fds.len() > cmsg::MAX_RIGHTS {
                    return Err(Errno::EINVAL);
                }
                for fd in fds {
                    control.rights.push(c.file(fd)?);
                }
            }
            Cmsg::Credentials(u) => {
                control.cred = Some(claimed(c, u)?);
            }
            Cmsg::Other(message) => control.other.push(message),
        }
    }
    Ok(control)
}

/// Credentials that a message is to carry. A task may claim its own ids; others need the capabilities, and a process
/// id that names something (ESRCH).
fn claimed(c: &Current, u: Ucred) -> Result<PeerCred> {
    let k = c.creds();
    let (Some(user), Some(group)) = (k.user_ns.user(u.uid), k.user_ns.group(u.gid)) else {
        return Err(Errno::EINVAL);
    };
    let pid = u.pid == c.task.group.pid.own_nr()
        || c.pid_ns().is_some_and(|ns| k.ns_capable(ns.user_ns(), Cap::SYS_ADMIN));
    let uid = [k.uid, k.euid, k.suid].contains(&user) || k.own_ns_capable(Cap::SETUID);
    let gid = [k.gid, k.egid, k.sgid].contains(&group) || k.own_ns_capable(Cap::SETGID);
    if !pid || !uid || !gid {
        return Err(Errno::EPERM);
    }
    let pid = c.find_pid(c.find_vpid(u.pid)).ok_or(Errno::ESRCH)?;
    let process = c.process_of(&pid);
    Ok(PeerCred { pid: Some(pid), uid: user, gid: group, groups: None, process })
}

fn send(c: &Current, s: &Sock, data: &Iov, addr: Option<&[u8]>, control: Control, flags: i32) -> SysResult {
    let view = c.fs().view();
    let ops = s.ops()?;
    if let Some(addr) = addr {
        policing::with_address(c, Kind::NetConnect, ops, addr)?;
    }
    if !ops.stream() {
        let mut scratch = Scratch::new();
        if data.len > MAX_RECORD {
            return Err(Errno::EMSGSIZE.into());
        }
        let bytes = scratch.get(data.len);
        gather(c, data, 0, bytes)?;
        let req = SendRequest { data: bytes, addr, control, flags, block: None };
        return Ok(io::send(c, s.file(), ops, &**view, req)? as u64);
    }
    let mut control = Some(control);
    let mut room = Outgoing::to(s.file(), data.len);
    let mut sent = 0;
    loop {
        let n = room.most((data.len - sent).min(CHUNK));
        let mut one = || -> Result<usize, SysErr> {
            gather(c, data, sent, room.get(n))?;
            let (bytes, block) = room.filled(n);
            let control = control.take().unwrap_or_default();
            // Only the last byte of all is urgent.
            let flags = if sent + n < data.len { flags & !libc::MSG_OOB } else { flags };
            let req = SendRequest { data: bytes, addr, control, flags, block };
            Ok(io::send(c, s.file(), ops, &**view, req)?)
        };
        match one() {
            Ok(k) => {
                sent += k;
                if k < n || sent == data.len {
                    return Ok(sent as u64);
                }
            }
            Err(_) if sent > 0 => return Ok(sent as u64),
            Err(e) => return Err(e),
        }
    }
}

fn do_sendmsg(c: &mut Current, s: &Sock, at: u64, flags: i32) -> SysResult {
    let h: MsgHdr = c.read_value(at)?;
    let addr = match h.name {
        0 => None,
        _ if h.namelen as i32 <= -1 => return Err(Errno::EINVAL.into()),
        _ if h.namelen == 0 => None,
        name => Some(read_addr(c, crate::arg::Ptr(name), h.namelen.min(128))?),
    };
    let data = read_iov(c, h.iov, h.iovlen)?;
    let control = read_control(c, h.control, h.controllen)?;
    let of_socket = control.other.iter().any(|message| message.level == libc::SOL_SOCKET);
    if of_socket && !s.ops()?.takes_socket_messages() {
        return Err(Errno::EINVAL.into());
    }
    send(c, s, &data, addr.as_deref(), control, flags)
}

pub fn sendto(c: &mut Current, fd: Fd, buf: Ptr, len: u64, flags: i32, to: Ptr, to_len: u32) -> SysResult {
    let s = Sock::get(c, fd)?;
    let addr = if to.is_null() { None } else { Some(read_addr(c, to, to_len)?) };
    let iov = Iov::one(c, buf.0, len)?;
    send(c, &s, &iov, addr.as_deref(), Control::default(), flags)
}

pub fn sendmsg(c: &mut Current, fd: Fd, msg: Ptr, flags: i32) -> SysResult {
    let s = Sock::get(c, fd)?;
    do_sendmsg(c, &s, msg.0, flags)
}

pub fn sendmmsg(c: &mut Current, fd: Fd, vec: Ptr, count: u32, flags: i32) -> SysResult {
    let s = Sock::get(c, fd)?;
    let mut done = 0;
    for i in 0..u64::from(count).min(MAX_IOV as u64) {
        let at = vec.0 + i * MMSG_SIZE;
        let r = do_sendmsg(c, &s, at, flags).and_then(|n| {
            c.write_value(at + MMSG_LEN, &(n as u32))?;
            Ok(())
        });
        match r {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// One receive into the program's buffers.
fn receive(c: &mut Current, s: &Sock, iov: &Iov, flags: i32) -> Result<Received, SysErr> {
    let ops = s.ops()?;
    let whole = flags & libc::MSG_WAITALL != 0 || !ops.stream();
    let len = if whole { iov.len.min(MAX_RECORD) } else { iov.len.min(CHUNK) };
    // Internet streams drop what MSG_TRUNC asks for, and look at no buffer.
    let drops = flags & libc::MSG_TRUNC != 0 && ops.domain() != libc::AF_UNIX;
    if len > 0 && ops.stream() && !drops && !iov.writable(c, 0) && ops.poll().intersects(Events::IN) {
        return Err(Errno::EFAULT.into());
    }
    if len >= BLOCKS
        && ops.stream()
        && let Some(taken) = io::take(c, s.file(), ops, len, flags)
    {
        let n = iov.store(c, ops, taken?)?;
        return Ok(Received { len: n, full: n, ..Received::default() });
    }
    let mut scratch = Scratch::new();
    let buf = scratch.get(len);
    let room = if ops.stream() && !drops { iov.room(c, 0, len) } else { len };
    let r = match room {
        _ if room == len || room == 0 => io::recv(c, s.file(), ops, buf, flags)?,
        _ => io::recv_whole(c, s.file(), ops, (&mut buf[..room], len), flags)?,
    };
    if iov.scatter(c, 0, &buf[..r.len]) < r.len {
        return Err(Errno::EFAULT.into());
    }
    Ok(r)
}

/// The value of the call: with MSG_TRUNC a record's whole length.
fn value(r: &Received, flags: i32) -> u64 {
    if flags & (libc::MSG_TRUNC | libc::MSG_OOB) != 0 { r.full as u64 } else { r.len as u64 }
}

/// Builds the control buffer; descriptors get their numbers here.
fn write_control(c: &mut Current, r: Received, room: usize, flags: i32) -> (Vec<u8>, bool) {
    let mut w = Writer::new(room);
    for message in &r.control.other {
        w.put(message.level, message.kind, &message.data);
    }
    if let Some(u) = r.control.cred {
        w.put(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, u.shown_to(c).as_bytes());
    }
    let cut = write_rights(c, &mut w, r.control.rights, flags);
    if let Some(sender) = r.control.sender {
        write_sender(c, &mut w, &sender);
    }
    (w.out, w.truncated || cut)
}

/// SCM_PIDFD: a new descriptor for the sender, or the error that there was instead of one.
fn write_sender(c: &mut Current, w: &mut Writer, sender: &PeerCred) {
    if w.rights_room() == 0 {
        w.truncated = true;
        return;
    }
    let max = limit(c);
    let fd = sender.open_pidfd(c).and_then(|file| c.fd_table().install(file, true, max));
    w.put(libc::SOL_SOCKET, SCM_PIDFD, &fd.unwrap_or_else(|e| -e.raw()).to_ne_bytes());
}

/// SCM_RIGHTS. True when not all found room or numbers.
fn write_rights(c: &mut Current, w: &mut Writer, files: Vec<Arc<OpenFile>>, flags: i32) -> bool {
    if files.is_empty() {
        return false;
    }
    let cloexec = flags & libc::MSG_CMSG_CLOEXEC != 0;
    let max = limit(c);
    let mut fds: Vec<i32> = Vec::new();
    let total = files.len();
    for f in files.into_iter().take(w.rights_room()) {
        if vfs::policing::decide_received(c, &f).is_err() {
            break;
        }
        match c.fd_table().install(f, cloexec, max) {
            Ok(fd) => fds.push(fd),
            Err(_) => break,
        }
    }
    let cut = fds.len() < total;
    if !fds.is_empty() {
        w.put(libc::SOL_SOCKET, libc::SCM_RIGHTS, fds.as_slice().as_bytes());
    }
    cut
}

fn do_recvmsg(c: &mut Current, s: &Sock, at: u64, flags: i32) -> SysResult {
    let h: MsgHdr = c.read_value(at)?;
    if (h.namelen as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let iov = read_iov(c, h.iov, h.iovlen)?;
    let mut r = receive(c, s, &iov, flags)?;
    let n = value(&r, flags);
    let mut out = h;
    out.namelen = 0;
    if h.name != 0
        && let Some(a) = r.addr.take()
    {
        c.write_bytes(h.name, &a[..a.len().min(h.namelen as usize)])?;
        out.namelen = a.len() as u32;
    }
    out.flags = r.flags;
    let room = if h.control == 0 { 0 } else { h.controllen.min(MAX_CONTROL) as usize };
    let (control, cut) = write_control(c, r, room, flags);
    c.write_bytes(h.control, &control)?;
    out.controllen = control.len() as u64;
    if cut {
        out.flags |= libc::MSG_CTRUNC;
    }
    if flags & libc::MSG_CMSG_CLOEXEC != 0 {
        out.flags |= libc::MSG_CMSG_CLOEXEC;
    }
    // Only what the call changes is written: the program may keep the header in shared memory.
    if h.name != 0 {
        c.write_value(at + 8, &out.namelen)?;
    }
    c.write_value(at + 40, &out.controllen)?;
    c.write_value(at + 48, &out.flags)?;
    Ok(n)
}

pub fn recvfrom(
    c: &mut Current,
    fd: Fd,
    buf: Ptr,
    len: u64,
    flags: i32,
    from: Ptr,
    from_len: Ptr,
) -> SysResult {
    let s = Sock::get(c, fd)?;
    let iov = Iov::one(c, buf.0, len)?;
    let r = receive(c, &s, &iov, flags)?;
    if !from.is_null() {
        write_addr(c, r.addr.as_deref().unwrap_or_default(), from, from_len)?;
    }
    Ok(value(&r, flags))
}

pub fn recvmsg(c: &mut Current, fd: Fd, msg: Ptr, flags: i32) -> SysResult {
    let s = Sock::get(c, fd)?;
    do_recvmsg(c, &s, msg.0, flags)
}

pub fn recvmmsg(c: &mut Current, fd: Fd, vec: Ptr, count: u32, flags: i32, timeout: Ptr) -> SysResult {
    let s = Sock::get(c, fd)?;
    let timeout = Timeout::timespec(c, timeout)?;
    let mut flags = flags;
    let once = flags & libc::MSG_WAITFORONE != 0;
    flags &= !libc::MSG_WAITFORONE;
    let mut done = 0;
    for i in 0..u64::from(count).min(MAX_IOV as u64) {
        let at = vec.0 + i * MMSG_SIZE;
        let r = do_recvmsg(c, &s, at, flags).and_then(|n| {
            c.write_value(at + MMSG_LEN, &(n as u32))?;
            Ok(())
        });
        match r {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
        if once {
            flags |= libc::MSG_DONTWAIT;
        }
        // As on Linux the time-out is looked at between messages only.
        if timeout.deadline.is_some_and(|d| d <= Instant::now()) {
            break;
        }
    }
    timeout.finish(c);
    Ok(done)
}
