//! The traits that a protocol family implements.

use crate::options::Options;
use crate::{Blocks, Buf, Pool};
use abi::{Errno, Result};
use caller::UserMemory;
use pid::Pid;
use std::any::Any;
use std::sync::Arc;
use vfs::file::ProcessRef;
use vfs::{Caller, InodeRef, Lingering, MapOps, OpenFile};
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct ucred`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ucred {
    /// Process id.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The process that made a connection or sent a message. The process is remembered beyond its end.
#[derive(Clone, Debug)]
pub struct PeerCred {
    /// The process; none for a peer outside the sandbox.
    pub pid: Option<Arc<Pid>>,
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Supplementary groups, where SO_PEERGROUPS may ask for them.
    pub groups: Option<Arc<[u32]>>,
    /// The process as pidfds are made of it. One that comes from a checkpoint is looked up by its ID.
    pub process: Option<ProcessRef>,
}

impl PeerCred {
    /// What SO_PEERCRED says without a peer.
    pub const NONE: PeerCred = PeerCred::outside(u32::MAX, u32::MAX);

    /// Of a peer that is no process in the sandbox.
    pub const fn outside(uid: u32, gid: u32) -> PeerCred {
        PeerCred { pid: None, uid, gid, groups: None, process: None }
    }

    /// A pidfd of the process, which is no descriptor yet: ENODATA without a process, ESRCH for one that is not remembered.
    pub fn open_pidfd(&self, cx: &dyn Caller) -> Result<Arc<OpenFile>> {
        let pid = self.pid.as_ref().ok_or(Errno::ENODATA)?;
        let process = self.process.clone().or_else(|| cx.process_of(pid)).ok_or(Errno::ESRCH)?;
        Ok(process.0.open_pidfd())
    }

    /// The caller's: process, effective IDs.
    pub fn of(cx: &dyn Caller) -> PeerCred {
        let c = cx.creds();
        let groups = Some(c.groups.clone());
        PeerCred { pid: cx.find_pid(cx.pid()), uid: c.euid, gid: c.egid, groups, process: cx.process() }
    }

    /// The caller's with real IDs: what a message carries unless told otherwise.
    pub fn real(cx: &dyn Caller) -> PeerCred {
        let c = cx.creds();
        PeerCred { pid: cx.find_pid(cx.pid()), uid: c.uid, gid: c.gid, groups: None, process: cx.process() }
    }

    /// As a program sees it.
    pub fn shown_to(&self, cx: &dyn Caller) -> Ucred {
        let pid = self.pid.as_ref().map_or(0, |pid| cx.vnr_of(pid));
        if self.uid == u32::MAX {
            return Ucred { pid, uid: self.uid, gid: self.gid };
        }
        let ns = &cx.creds().user_ns;
        Ucred { pid, uid: ns.show_user(self.uid), gid: ns.show_group(self.gid) }
    }
}

impl PartialEq for PeerCred {
    fn eq(&self, other: &PeerCred) -> bool {
        let id = |c: &PeerCred| c.pid.as_ref().map(Arc::as_ptr);
        (id(self), self.uid, self.gid) == (id(other), other.uid, other.gid)
    }
}

/// A control message of a family's own level, as bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ancillary {
    /// `cmsg_level`.
    pub level: i32,
    /// `cmsg_type`.
    pub kind: i32,
    /// The bytes after the header.
    pub data: Vec<u8>,
}

/// Ancillary data of a message.
#[derive(Default, Clone)]
pub struct Control {
    /// What only the family understands.
    pub other: Vec<Ancillary>,
    /// SCM_RIGHTS.
    pub rights: Vec<Arc<OpenFile>>,
    /// SCM_CREDENTIALS.
    pub cred: Option<PeerCred>,
    /// SCM_PIDFD: the sender.
    pub sender: Option<PeerCred>,
}

/// One sendmsg(2).
pub struct SendRequest<'a> {
    /// The bytes.
    pub data: &'a [u8],
    /// Destination, when given.
    pub addr: Option<&'a [u8]>,
    /// Ancillary data.
    pub control: Control,
    /// MSG_* flags.
    pub flags: i32,
    /// A block of [`Transfer::pool`] that ends with the bytes: the socket may keep it in place of a copy.
    pub block: Option<&'a Buf>,
}

/// What a recvmsg(2) found.
#[derive(Default)]
pub struct Received {
    /// Bytes put into the buffer.
    pub len: usize,
    /// Length of the whole record; `len` for streams.
    pub full: usize,
    /// Sender, when the family gives one.
    pub addr: Option<Vec<u8>>,
    /// Ancillary data; credentials only when the receiver asked for them.
    pub control: Control,
    /// MSG_TRUNC, MSG_EOR, ... for msg_flags.
    pub flags: i32,
}

/// How Unix sockets make and find names in the file tree, for the calling task.
pub trait Names {
    /// Makes the inode of a socket of this type (SOCK_*), permission bits 0777 less the umask; EADDRINUSE when the name is taken.
    fn make(&self, cx: &dyn Caller, path: &[u8], kind: i32) -> Result<InodeRef>;
    /// Finds an inode, following links, and checks that the caller may write to it.
    fn find(&self, cx: &dyn Caller, path: &[u8]) -> Result<InodeRef>;
}

/// What a socket is, and what has happened to it.
pub trait SocketInfo {
    /// AF_*.
    fn domain(&self) -> i32;
    /// SOCK_*.
    fn kind(&self) -> i32;
    /// Protocol number (SO_PROTOCOL).
    fn protocol(&self) -> i32;
    /// True for byte streams, where a send or receive goes on until all is moved.
    fn stream(&self) -> bool {
        self.kind() == libc::SOCK_STREAM
    }
    /// The pending error (SO_ERROR), which is cleared.
    fn take_error(&self) -> Option<Errno>;
    /// The line of the socket in /proc/PID/net/unix and its like.
    fn describe(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Addresses and connections of a socket: bind(2), connect(2), listen(2), accept(2), shutdown(2).
pub trait Connect {
    /// bind(2). `addr` starts with the family and may have any length up to 128.
    fn bind(&self, cx: &dyn Caller, names: &dyn Names, addr: &[u8]) -> Result<()>;
    /// connect(2).
    fn connect(&self, cx: &dyn Caller, names: &dyn Names, addr: &[u8]) -> Result<()>;
    /// listen(2).
    fn listen(&self, cx: &dyn Caller, backlog: i32) -> Result<()>;
    /// accept(2).
    fn accept(&self) -> Result<Arc<dyn SocketOps>>;
    /// getsockname(2).
    fn local_addr(&self) -> Vec<u8>;
    /// getpeername(2).
    fn peer_addr(&self) -> Result<Vec<u8>>;
    /// getpeername(2) of a connection that accept(2) just returned: known even if it is over already.
    fn accepted_addr(&self) -> Result<Vec<u8>> {
        self.peer_addr()
    }
    /// shutdown(2); `how` is SHUT_RD, SHUT_WR or SHUT_RDWR.
    fn shutdown(&self, how: i32) -> Result<()>;
    /// True once listening (SO_ACCEPTCONN).
    fn listening(&self) -> bool {
        false
    }
    /// SO_PEERCRED.
    fn peer_cred(&self) -> PeerCred {
        PeerCred::NONE
    }
}

/// Sending and receiving. Nothing here blocks: EAGAIN means "wait on the queue and repeat".
pub trait Transfer {
    /// sendmsg(2): sends as much as there is room for, a record whole or not at all.
    /// Takes `control` out of the request once it is under way.
    fn send(&self, cx: &dyn Caller, names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize>;
    /// True when the next send opens a connection (TCP_FASTOPEN_CONNECT), and waits for it.
    fn opens_with_data(&self) -> bool {
        false
    }
    /// How a connection came out that a send began (`MSG_FASTOPEN`): EAGAIN while it is under way, Ok without one.
    /// `more` says that the sender has further data.
    fn opened_by_send(&self, _more: bool) -> Result<()> {
        Ok(())
    }
    /// recvmsg(2) into `buf`.
    fn recv(&self, cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received>;
    /// As `recv` of `want` bytes of which only the first `buf.len()` have a place: a stream that can tell its messages apart
    /// takes those that fit whole. EFAULT when the first does not fit.
    fn recv_whole(&self, cx: &dyn Caller, buf: &mut [u8], _want: usize, flags: i32) -> Result<Received> {
        self.recv(cx, buf, flags)
    }
    /// The pool of blocks that the socket keeps as they are when it sends them; `None`: it copies what it sends.
    fn pool(&self) -> Option<&Pool> {
        None
    }
    /// True for byte streams that give away their bytes as they lie in the queue, see [`Transfer::take`].
    fn gives_blocks(&self) -> bool {
        false
    }
    /// Takes up to `most` bytes that a recvmsg(2) without flags would copy, with the memory that holds them.
    fn take(&self, _most: usize) -> Result<Blocks> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Puts the last of what [`Transfer::take`] gave back: there was no place for it.
    fn put_back(&self, _blocks: Blocks) {}
    /// True when a receiver that would wait gets the end of the data instead: reading was shut down.
    fn ended(&self) -> bool {
        false
    }
    /// True for sockets that have SO_PEEK_OFF, and obey it.
    fn peeks_at_offset(&self) -> bool {
        false
    }
    /// True for sockets from which splice(2) with SPLICE_F_NONBLOCK does not wait; others look at O_NONBLOCK alone.
    fn splices_without_waiting(&self) -> bool {
        false
    }
    /// True when the next byte is an urgent one, which splice(2) does not move: it ends there.
    fn stops_splice(&self) -> bool {
        false
    }
    /// Bytes that a send would take now, for byte streams; `None` when it is not known.
    fn send_room(&self) -> Option<usize> {
        None
    }
}

/// Options and requests of a socket: getsockopt(2), setsockopt(2), ioctl(2).
pub trait SocketOptions {
    /// SOL_SOCKET options that every socket has.
    fn options(&self) -> &Options;
    /// True for sockets that accept control messages of level SOL_SOCKET besides rights and credentials.
    fn takes_socket_messages(&self) -> bool {
        false
    }
    /// A SOL_SOCKET option as the family has it; `None` leaves it to [`crate::options`].
    fn get_common(&self, _name: i32) -> Option<Result<Vec<u8>>> {
        None
    }
    /// Sets one; `None` leaves it to [`crate::options`].
    fn set_common(&self, _cx: &dyn Caller, _name: i32, _value: &[u8]) -> Option<Result<()>> {
        None
    }
    /// A SOL_SOCKET option has another value now.
    fn option_changed(&self, _name: i32) {}
    /// Options of the family's own levels.
    fn get_option(&self, _level: i32, _name: i32) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Sets one.
    fn set_option(&self, _cx: &dyn Caller, _level: i32, _name: i32, _value: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    /// The most bytes that setsockopt(2) takes for an option. What is longer is cut.
    fn longest_option(&self, _level: i32, _name: i32) -> usize {
        // Few options are longer than `struct group_source_req`.
        264
    }
    /// getsockopt(2) for options that read their buffer, too: `value` is its address, `room` its length. `None` leaves it to
    /// [`SocketOptions::get_option`].
    fn get_option_at(
        &self,
        _cx: &dyn Caller,
        _mem: &mut dyn UserMemory,
        _option: (i32, i32),
        _value: u64,
        _room: usize,
    ) -> Option<Result<Vec<u8>>> {
        None
    }
    /// setsockopt(2) for options that are long, or write to the program's memory. `None` leaves it to [`SocketOptions::set_option`].
    fn set_option_at(
        &self,
        _cx: &dyn Caller,
        _mem: &mut dyn UserMemory,
        _option: (i32, i32),
        _value: u64,
        _len: usize,
    ) -> Option<Result<()>> {
        None
    }
    /// ioctl(2).
    fn ioctl(&self, _cx: &dyn Caller, _mem: &mut dyn UserMemory, _cmd: u32, _arg: u64) -> Result<u64> {
        Err(Errno::ENOTTY)
    }
}

/// A socket of some family. Nothing here blocks: EAGAIN means "wait on the queue and repeat".
pub trait SocketOps: SocketInfo + Connect + Transfer + SocketOptions + Send + Sync + Any {
    /// For code that needs the concrete type.
    fn as_any(&self) -> &dyn Any;
    /// Sockets that can be mapped (rings of packet sockets).
    fn as_map(&self) -> Option<&dyn MapOps> {
        None
    }
    /// The socket is an open file from now on, with this inode number.
    fn opened(&self, _ino: u64) {}
    /// The wait of the last close(2) (SO_LINGER); `None` for none.
    fn lingering(&self) -> Option<Lingering> {
        None
    }
    /// A descriptor of the socket's open file is being closed; the caller's is not the only one.
    fn closing(&self, _file: &OpenFile) {}
    /// Readiness.
    fn poll(&self) -> Events;
    /// Notified when readiness changes.
    fn wait_queue(&self) -> WaitQueue;
}
