//! A socket as an open file.

use crate::net_ns::NetNamespace;
use crate::ops::{Control, Names, SendRequest, SocketOps};
use crate::{Blocks, Buf};
use abi::stat::Attr;
use abi::{Errno, Result};
use caller::UserMemory;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use vfs::inode::{InternalFs, InternalInode};
use vfs::{Caller, FileOps, InodeRef, Lingering, MapOps, OpenFile, OpenFileState, StreamOps};
use wait::{Events, WaitQueue};

/// No record of a socket is longer than this, whatever the send buffer.
pub const MAX_RECORD: usize = 64 << 20;

/// The operations of an open file that is a socket.
pub struct SocketFile {
    /// The socket.
    pub ops: Arc<dyn SocketOps>,
    /// The network namespace it was made in.
    pub net: Arc<NetNamespace>,
    ino: u64,
}

impl SocketFile {
    /// An open file for a new socket. `flags`: SOCK_NONBLOCK (which is O_NONBLOCK).
    pub fn open(
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        ops: Arc<dyn SocketOps>,
        flags: i32,
    ) -> Arc<OpenFile> {
        let c = cx.creds();
        let mode = libc::S_IFSOCK | 0o777;
        let inode = InternalInode::new(cx.resources().next_ino(), InternalFs::Socket, mode, c.fsuid, c.fsgid);
        let inode = Arc::new(inode.of_protocol(protocol_name(&*ops)));
        ops.opened(inode.ino());
        if ops.domain() == libc::AF_UNIX {
            net.unix.add(&ops);
        }
        let file = Arc::new(SocketFile { ops, net: net.clone(), ino: inode.ino() });
        OpenFile::new(None, Some(inode), file, libc::O_RDWR | flags & libc::O_NONBLOCK)
    }

    /// The open file of a restored socket; its inode had the attributes `attr`.
    pub fn restore(
        net: &Arc<NetNamespace>,
        ops: Arc<dyn SocketOps>,
        attr: Attr,
        saved: &OpenFileState,
    ) -> Result<Arc<OpenFile>> {
        let inode = InternalInode::restore(InternalFs::Socket, attr);
        let inode = Arc::new(inode.of_protocol(protocol_name(&*ops)));
        if ops.domain() == libc::AF_UNIX {
            net.unix.add(&ops);
        }
        let file = Arc::new(SocketFile { ops, net: net.clone(), ino: attr.ino });
        OpenFile::restore(saved, None, Some(inode), file)
    }

    /// The number of its inode.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// read(2) of a byte stream that gives its bytes as they lie in the queue, see [`crate::Transfer::take`].
    pub fn take(&self, file: &OpenFile, most: usize) -> Result<Blocks> {
        match self.ops.take(most) {
            Err(Errno::EAGAIN) if !file.nonblocking() && self.ops.ended() => Ok(Blocks::new()),
            done => done,
        }
    }

    /// write(2) of the bytes of a block from `from` on; the block is one of [`crate::Transfer::pool`].
    pub fn write_block(&self, cx: &dyn Caller, file: &OpenFile, block: &Buf, from: usize) -> Result<usize> {
        self.write_data(cx, file, block.get(from..).unwrap_or_default(), Some(block))
    }

    fn write_data(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        data: &[u8],
        block: Option<&Buf>,
    ) -> Result<usize> {
        let mut req = SendRequest { data, addr: None, control: Control::default(), flags: 0, block };
        if self.ops.opens_with_data() {
            return crate::io::send(cx, file, &*self.ops, &NoNames, req)
                .map_err(caller::retry::Failure::errno);
        }
        self.ops.send(cx, &NoNames, &mut req)
    }

    /// The socket behind an open file; ENOTSOCK when it is something else.
    pub fn of(file: &OpenFile) -> Result<&SocketFile> {
        file.ops.as_any().downcast_ref().ok_or(Errno::ENOTSOCK)
    }
}

/// What Linux calls the protocol of a socket (the attribute `system.sockprotoname`, which lsof(8) and lsfd(1) show).
fn protocol_name(ops: &dyn SocketOps) -> &'static str {
    let v6 = ops.domain() == libc::AF_INET6;
    let of_family = |v4_name, v6_name| if v6 { v6_name } else { v4_name };
    match (ops.domain(), ops.kind(), ops.protocol()) {
        (libc::AF_UNIX, libc::SOCK_STREAM, _) => "UNIX-STREAM",
        (libc::AF_UNIX, ..) => "UNIX",
        (libc::AF_NETLINK, ..) => "NETLINK",
        (libc::AF_PACKET, ..) => "PACKET",
        (_, libc::SOCK_STREAM, _) => of_family("TCP", "TCPv6"),
        (_, libc::SOCK_RAW, _) => of_family("RAW", "RAWv6"),
        (_, _, libc::IPPROTO_UDPLITE) => of_family("UDP-Lite", "UDPLITEv6"),
        (_, _, libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6) => of_family("PING", "PINGv6"),
        _ => of_family("UDP", "UDPv6"),
    }
}

/// write(2) names no destination.
struct NoNames;
impl Names for NoNames {
    fn make(&self, _cx: &dyn Caller, _path: &[u8], _kind: i32) -> Result<InodeRef> {
        Err(Errno::EINVAL)
    }
    fn find(&self, _cx: &dyn Caller, _path: &[u8]) -> Result<InodeRef> {
        Err(Errno::EINVAL)
    }
}

impl FileOps for SocketFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        self.ops.as_map()
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        match self.ops.recv(cx, buf, 0) {
            Err(Errno::EAGAIN) if !file.nonblocking() && self.ops.ended() => Ok(0),
            done => done.map(|r| r.len),
        }
    }
    fn write(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        self.write_data(cx, file, buf, None)
    }
    fn flush(&self, _cx: &dyn Caller, file: &OpenFile) -> Result<()> {
        self.ops.closing(file);
        Ok(())
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        self.ops.poll()
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.ops.wait_queue())
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        match self.ops.ioctl(cx, mem, cmd, arg) {
            Err(Errno::ENOTTY) => {
                crate::netlink::device::ioctl(cx, &self.net, self.ops.domain(), mem, (cmd, arg))
            }
            answer => answer,
        }
    }
    fn link_name(&self) -> Option<String> {
        Some(format!("socket:[{}]", self.ino))
    }
}

impl StreamOps for SocketFile {
    fn patience(&self, write: bool) -> Option<Duration> {
        let o = self.ops.options();
        if write { o.sndtimeo() } else { o.rcvtimeo() }
    }
    fn read_whole(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        buf: &mut [u8],
        want: usize,
    ) -> Option<Result<usize>> {
        Some(match self.ops.recv_whole(cx, buf, want, 0) {
            Err(Errno::EAGAIN) if !file.nonblocking() && self.ops.ended() => Ok(0),
            done => done.map(|r| r.len),
        })
    }
    fn record(&self) -> Option<usize> {
        (!self.ops.stream()).then_some(MAX_RECORD)
    }
    fn room(&self) -> Option<usize> {
        self.ops.send_room()
    }
    fn lingering(&self) -> Option<Lingering> {
        self.ops.lingering()
    }
    fn fasync(&self, cx: &dyn Caller, _file: &OpenFile) -> Option<WaitQueue> {
        self.wait_queue(cx)
    }
}
