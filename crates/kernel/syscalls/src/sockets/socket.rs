//! socket(2), bind(2), listen(2), accept(2), connect(2) and the small calls on sockets.

use crate::arg::{Fd, Ptr};
use crate::at::real_file;
use crate::install::{install, install_pair};
use crate::sockets::policing;
use abi::{Errno, Result};
use caller::HasCredentials;
use policy::Kind;
use socket::{Naming, SocketFile, family, io, options};
use std::sync::Arc;
use task::{Asked, Current, SysErr, SysResult};
use vfs::OpenFile;
use zerocopy::IntoBytes;

/// sizeof(struct sockaddr_storage).
const MAX_ADDR: u32 = 128;

/// An open file that is a socket: EBADF, ENOTSOCK.
pub struct Sock {
    file: Arc<OpenFile>,
}

impl Sock {
    /// The socket behind a descriptor.
    pub fn get(c: &Current, fd: Fd) -> Result<Sock> {
        let file = real_file(c, fd)?;
        SocketFile::of(&file)?;
        Ok(Sock { file })
    }

    /// The open file.
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// A number that no other socket has (SO_COOKIE).
    fn cookie(&self) -> Result<u64> {
        Ok(SocketFile::of(&self.file)?.ino())
    }

    /// The socket's operations.
    pub fn ops(&self) -> Result<&dyn socket::SocketOps> {
        Ok(&*SocketFile::of(&self.file)?.ops)
    }
}

/// A socket address argument.
pub fn read_addr(c: &Current, at: Ptr, len: u32) -> Result<Vec<u8>> {
    if len > MAX_ADDR {
        return Err(Errno::EINVAL);
    }
    let mut b = vec![0; len as usize];
    c.read_bytes(at.0, &mut b)?;
    Ok(b)
}

/// Writes an address as far as there is room, and its whole length to `len_at`.
pub fn write_addr(c: &mut Current, addr: &[u8], at: Ptr, len_at: Ptr) -> Result<()> {
    let room: i32 = c.read_value(len_at.0)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    c.write_bytes(at.0, &addr[..addr.len().min(room)])?;
    c.write_value(len_at.0, &(addr.len() as i32))
}

pub fn socket(c: &mut Current, domain: i32, kind: i32, protocol: i32) -> SysResult {
    let (kind, flags) = family::split_type(kind)?;
    policing::new_socket(c, domain, kind, protocol)?;
    let (kernel, net) = (c.kernel(), c.task.nsproxy().net.clone());
    let made = kernel.families.find(domain, kind).and_then(|f| f.create(c, &net, kind, protocol));
    if let Err(Errno::EAFNOSUPPORT | Errno::EPROTONOSUPPORT | Errno::ESOCKTNOSUPPORT) = made {
        let what = format!("family {domain}, type {kind}, protocol {protocol}");
        kernel.coverage.note(Asked::Socket, what);
    }
    let ops = made?;
    let file = SocketFile::open(c, &net, ops, flags);
    install(c, file, flags & libc::SOCK_CLOEXEC != 0)
}

pub fn socketpair(c: &mut Current, domain: i32, kind: i32, protocol: i32, fds: Ptr) -> SysResult {
    let (kind, flags) = family::split_type(kind)?;
    policing::new_socket(c, domain, kind, protocol)?;
    let (kernel, net) = (c.kernel(), c.task.nsproxy().net.clone());
    let [a, b] = kernel.families.find(domain, kind)?.pair(c, &net, kind, protocol)?;
    let pair = (SocketFile::open(c, &net, a, flags), SocketFile::open(c, &net, b, flags));
    install_pair(c, pair, flags & libc::SOCK_CLOEXEC != 0, fds.0)
}

/// EACCES unless the caller's Landlock domain allows this with the port of an address of a TCP socket.
fn check_port(c: &Current, s: &Sock, addr: &[u8], access: u64) -> Result<()> {
    let creds = c.creds();
    let Some(domain) = &creds.landlock else { return Ok(()) };
    let ops = s.ops()?;
    if ops.kind() != libc::SOCK_STREAM || ops.protocol() != libc::IPPROTO_TCP {
        return Ok(());
    }
    let &[a, b, high, low, ..] = addr else { return Ok(()) };
    match i32::from(u16::from_le_bytes([a, b])) {
        // Disconnecting, and the same errors as without a domain.
        libc::AF_UNSPEC if access == landlock::net::CONNECT_TCP => Ok(()),
        libc::AF_INET | libc::AF_INET6 | libc::AF_UNSPEC => {
            domain.check_port(u16::from_be_bytes([high, low]), access)
        }
        _ => Ok(()),
    }
}

pub fn bind(c: &mut Current, fd: Fd, addr: Ptr, len: u32) -> SysResult {
    let s = Sock::get(c, fd)?;
    let addr = read_addr(c, addr, len)?;
    check_port(c, &s, &addr, landlock::net::BIND_TCP)?;
    policing::with_address(c, Kind::NetBind, s.ops()?, &addr)?;
    let view = c.fs().view();
    s.ops()?.bind(c, &Naming::new(&view, s.file())?, &addr)?;
    Ok(0)
}

pub fn connect(c: &mut Current, fd: Fd, addr: Ptr, len: u32) -> SysResult {
    let s = Sock::get(c, fd)?;
    let addr = read_addr(c, addr, len)?;
    check_port(c, &s, &addr, landlock::net::CONNECT_TCP)?;
    policing::with_address(c, Kind::NetConnect, s.ops()?, &addr)?;
    io::connect(c, s.file(), s.ops()?, &**c.fs().view(), &addr)?;
    Ok(0)
}

pub fn listen(c: &mut Current, fd: Fd, backlog: i32) -> SysResult {
    let s = Sock::get(c, fd)?;
    let ops = s.ops()?;
    policing::of_end(c, Kind::NetListen, ops, &ops.local_addr())?;
    ops.listen(c, backlog)?;
    Ok(0)
}

pub fn accept(c: &mut Current, fd: Fd, addr: Ptr, len: Ptr) -> SysResult {
    accept4(c, fd, addr, len, 0)
}

pub fn accept4(c: &mut Current, fd: Fd, addr: Ptr, len: Ptr, flags: i32) -> SysResult {
    crate::arg::check_flags(flags, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)?;
    let s = Sock::get(c, fd)?;
    let slot = c.fd_table().reserve(crate::install::limit(c))?;
    let ops = io::accept(c, s.file(), s.ops()?)?;
    if c.kernel().policies.concerns(Kind::NetAccept) {
        let peer = ops.accepted_addr().unwrap_or_default();
        policing::of_end(c, Kind::NetAccept, &*ops, &peer)?;
    }
    if !addr.is_null() {
        // The peer may be gone already; it was never named then.
        let name = ops.accepted_addr().map_err(|_| Errno::ECONNABORTED)?;
        write_addr(c, &name, addr, len)?;
    }
    let file = SocketFile::open(c, &SocketFile::of(s.file())?.net, ops, flags);
    Ok(slot.commit(file, flags & libc::SOCK_CLOEXEC != 0) as u64)
}

pub fn getsockname(c: &mut Current, fd: Fd, addr: Ptr, len: Ptr) -> SysResult {
    let name = Sock::get(c, fd)?.ops()?.local_addr();
    write_addr(c, &name, addr, len)?;
    Ok(0)
}

pub fn getpeername(c: &mut Current, fd: Fd, addr: Ptr, len: Ptr) -> SysResult {
    let name = Sock::get(c, fd)?.ops()?.peer_addr()?;
    write_addr(c, &name, addr, len)?;
    Ok(0)
}

pub fn shutdown(c: &mut Current, fd: Fd, how: i32) -> SysResult {
    Sock::get(c, fd)?.ops()?.shutdown(how)?;
    Ok(0)
}

/// Bytes of an instruction of a filter.
const ONE: usize = 8;

/// The instructions that a `struct sock_fprog` names.
fn read_filter(c: &Current, program: &[u8]) -> Result<Vec<u8>> {
    /// Most instructions (BPF_MAXINSNS).
    const MOST: usize = 4096;
    let program: &[u8; 16] = program.try_into().map_err(|_| Errno::EINVAL)?;
    let (count, at) = program.split_at(8);
    let count = usize::from(u16::from_ne_bytes([count[0], count[1]]));
    if count == 0 || count > MOST {
        return Err(Errno::EINVAL);
    }
    let mut code = vec![0; count * ONE];
    c.read_bytes(at.try_into().map_or(0, u64::from_ne_bytes), &mut code)?;
    Ok(code)
}

/// SO_COOKIE.
const SO_COOKIE: i32 = 57;
const SO_PEERNAME: i32 = 28;
const SO_PEERGROUPS: i32 = 59;
const SO_PEERPIDFD: i32 = 77;

/// Options with a value that is a `struct sock_fprog`; the last one is PACKET_FANOUT_DATA.
const PROGRAMS: [(i32, i32); 3] = [
    (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
    (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF),
    (libc::SOL_PACKET, 22),
];

/// Notes an option that there is not.
fn note_option(c: &Current, call: &str, (level, name): (i32, i32), result: &SysResult) {
    if let Err(SysErr::Errno(Errno::ENOPROTOOPT | Errno::EOPNOTSUPP)) = result {
        c.kernel().coverage.note(Asked::SocketOption, format!("{call} level {level}, option {name}"));
    }
}

pub fn setsockopt(c: &mut Current, fd: Fd, level: i32, name: i32, value: Ptr, len: i32) -> SysResult {
    let result = set_option(c, fd, (level, name), value, len);
    note_option(c, "setsockopt", (level, name), &result);
    result
}

fn set_option(c: &mut Current, fd: Fd, (level, name): (i32, i32), value: Ptr, len: i32) -> SysResult {
    let s = Sock::get(c, fd)?;
    let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
    let caller = c.caller();
    if let Some(done) = s.ops()?.set_option_at(&caller, c, (level, name), value.0, len) {
        return Ok(done.map(|()| 0)?);
    }
    let mut v = vec![0; len.min(s.ops()?.longest_option(level, name))];
    c.read_bytes(value.0, &mut v)?;
    if PROGRAMS.contains(&(level, name)) {
        v = read_filter(c, &v)?;
    }
    match level {
        libc::SOL_SOCKET => options::set(s.ops()?, c, name, &v)?,
        _ => s.ops()?.set_option(c, level, name, &v)?,
    }
    Ok(0)
}

/// How much of an option's value getsockopt(2) returns into `room` bytes.
fn returned((level, name): (i32, i32), value: &[u8], room: usize) -> Result<usize> {
    let least = match (level, name) {
        (libc::SOL_SOCKET, SO_COOKIE) => size_of::<u64>(),
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE) if !value.is_empty() => libc::IFNAMSIZ,
        _ => 0,
    };
    if room < least {
        return Err(Errno::EINVAL);
    }
    // The options of IPv4 were bytes once.
    let number = level == libc::IPPROTO_IP && name != libc::IP_MULTICAST_IF && (1..4).contains(&room);
    if number
        && value.first_chunk().is_some_and(|v| (0..=255).contains(&i32::from_ne_bytes(*v)))
        && value.len() == 4
    {
        return Ok(1);
    }
    Ok(value.len().min(room))
}

pub fn getsockopt(c: &mut Current, fd: Fd, level: i32, name: i32, value: Ptr, len: Ptr) -> SysResult {
    let result = get_option(c, fd, (level, name), value, len);
    note_option(c, "getsockopt", (level, name), &result);
    result
}

fn get_option(c: &mut Current, fd: Fd, (level, name): (i32, i32), value: Ptr, len: Ptr) -> SysResult {
    let s = Sock::get(c, fd)?;
    let room: i32 = c.read_value(len.0)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let caller = c.caller();
    let long = s.ops()?.get_option_at(&caller, c, (level, name), value.0, room);
    let v = match level {
        _ if let Some(long) = long => long?,
        libc::SOL_SOCKET if name == libc::SO_PEERCRED => {
            let peer = s.ops()?.peer_cred();
            peer.shown_to(c).as_bytes().to_vec()
        }
        libc::SOL_SOCKET if name == SO_PEERPIDFD => return peer_pidfd(c, &s, (value, len), room),
        libc::SOL_SOCKET if name == SO_PEERNAME => {
            let name = s.ops()?.peer_addr()?;
            if name.len() < room {
                return Err(Errno::EINVAL.into());
            }
            name
        }
        libc::SOL_SOCKET if name == SO_PEERGROUPS => {
            let groups = s.ops()?.peer_cred().groups.ok_or(Errno::ENODATA)?;
            let needed = groups.len() * size_of::<u32>();
            if room < needed {
                c.write_value(len.0, &(needed as i32))?;
                return Err(Errno::ERANGE.into());
            }
            let ns = &c.creds().user_ns;
            groups.iter().flat_map(|group| ns.show_group(*group).to_ne_bytes()).collect()
        }
        libc::SOL_SOCKET if name == SO_COOKIE => s.cookie()?.to_ne_bytes().to_vec(),
        libc::SOL_SOCKET => options::get(s.ops()?, name)?,
        _ => s.ops()?.get_option(level, name)?,
    };
    if (level, name) == (libc::SOL_SOCKET, libc::SO_GET_FILTER) {
        return put_filter(c, &v, (value, len), room);
    }
    let n = returned((level, name), &v, room)?;
    // Of the list of a netlink socket's groups there are whole words, and its length is that of all.
    let listed = level == SOL_NETLINK && name == NETLINK_LIST_MEMBERSHIPS;
    c.write_bytes(value.0, &v[..if listed { n / 4 * 4 } else { n }])?;
    c.write_value(len.0, &(if listed { v.len() } else { n } as i32))?;
    Ok(0)
}

/// SO_PEERPIDFD: a new descriptor for the process that SO_PEERCRED names.
fn peer_pidfd(c: &mut Current, s: &Sock, (value, len): (Ptr, Ptr), room: usize) -> SysResult {
    let file = s.ops()?.peer_cred().open_pidfd(c)?;
    let slot = c.fd_table().reserve(crate::install::limit(c))?;
    let fd = slot.fd().to_ne_bytes();
    let shown = &fd[..room.min(fd.len())];
    c.write_bytes(value.0, shown)?;
    c.write_value(len.0, &(shown.len() as i32))?;
    slot.commit(file, true);
    Ok(0)
}

/// SO_GET_FILTER: instructions, which its lengths count. Without room only their number is told.
fn put_filter(c: &mut Current, code: &[u8], (value, len): (Ptr, Ptr), room: usize) -> SysResult {
    let count = code.len() / ONE;
    if room > 0 && room < count {
        return Err(Errno::EINVAL.into());
    }
    if room > 0 {
        c.write_bytes(value.0, code)?;
    }
    c.write_value(len.0, &(count as i32))?;
    Ok(0)
}

const SOL_NETLINK: i32 = 270;
const NETLINK_LIST_MEMBERSHIPS: i32 = 9;
