//! The traits of the crate `socket` for a socket of the host.

use crate::names::NameService;
use crate::sock::HostSocket;
use crate::{options, recv, send};
use abi::{Errno, Result};
use caller::UserMemory;
use hostsys::net;
use netproto::address::to_sockaddr;
use netproto::{Domain, Kind, Request};
use socket::{
    Connect, Names, Options, Received, SendRequest, SocketInfo, SocketOps, SocketOptions, Transfer,
};
use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Caller;
use wait::{Events, WaitQueue};

impl SocketOps for HostSocket {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self) -> Events {
        let names = self.names.lock().as_ref().map_or(Events::NONE, NameService::poll);
        Events(self.ready()) | names
    }
    fn wait_queue(&self) -> WaitQueue {
        self.queue.clone()
    }
}

impl Connect for HostSocket {
    fn bind(&self, _cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let addr = match addr {
            // Of old, AF_UNSPEC with the unspecified address is AF_INET.
            [0, 0, port @ .., 0, 0, 0, 0, _, _, _, _, _, _, _, _]
                if self.domain == Domain::V4 && port.len() == 2 =>
            {
                SocketAddr::from(([0, 0, 0, 0], u16::from_be_bytes([port[0], port[1]])))
            }
            addr => self.address(addr)?,
        };
        let id = self.id(Errno::EINVAL)?;
        self.shared.gofer.call(&Request::Bind { id, addr }).map(drop)
    }
    fn connect(&self, _cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        if addr.first_chunk().is_some_and(|b| i32::from(u16::from_ne_bytes(*b)) == libc::AF_UNSPEC) {
            return self.disconnect();
        }
        self.connect_to(self.peer_address(addr)?)
    }
    fn listen(&self, _cx: &dyn Caller, backlog: i32) -> Result<()> {
        let id = self.id(Errno::EINVAL)?;
        self.shared.gofer.call(&Request::Listen { id, backlog })?;
        self.listening.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn accept(&self) -> Result<Arc<dyn SocketOps>> {
        let fd = net::accept(&self.fd)?;
        let accepted = HostSocket::new(self.shared.clone(), self.domain, self.kind, fd, None)?;
        accepted.options.copy(&self.options);
        Ok(Arc::new(accepted))
    }
    fn local_addr(&self) -> Vec<u8> {
        let named = self.names.lock().as_ref().and_then(NameService::local);
        match named {
            Some(addr) => to_sockaddr(&addr),
            None => net::local_addr(&self.fd).unwrap_or_default(),
        }
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        let named = self.names.lock().as_ref().and_then(NameService::peer);
        match named {
            Some(addr) => Ok(to_sockaddr(&addr)),
            None => net::peer_addr(&self.fd),
        }
    }
    fn accepted_addr(&self) -> Result<Vec<u8>> {
        // A connection that is over by now has lost its peer; Linux still names the family.
        self.peer_addr()
    }
    fn shutdown(&self, how: i32) -> Result<()> {
        // Without a peer it is an error, and happens.
        if how != libc::SHUT_WR && self.kind != Kind::Stream && (0..=2).contains(&how) {
            self.ended.store(true, Ordering::Relaxed);
            self.queue.notify(Events::ALL);
        }
        net::shutdown(&self.fd, how)?;
        if how != libc::SHUT_WR {
            self.listening.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
    fn listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }
}

impl Transfer for HostSocket {
    fn send(&self, cx: &dyn Caller, _names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        send::send(self, cx, req)
    }
    fn recv(&self, _cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        recv::recv(self, buf, flags)
    }
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl SocketOptions for HostSocket {
    fn options(&self) -> &Options {
        &self.options
    }
    fn get_common(&self, name: i32) -> Option<Result<Vec<u8>>> {
        options::get_common(self, name)
    }
    fn set_common(&self, _cx: &dyn Caller, name: i32, value: &[u8]) -> Option<Result<()>> {
        options::set_common(self, name, value)
    }
    fn option_changed(&self, name: i32) {
        options::changed(self, &self.options, name);
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        options::get(self, level, name)
    }
    fn set_option(&self, _cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
        options::set(self, level, name, value)
    }
    fn ioctl(&self, _cx: &dyn Caller, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
        let query = net::QUERIES.into_iter().find(|(_, number)| *number == cmd);
        let (query, _) = query.ok_or(Errno::ENOTTY)?;
        // A program may take nothing that it has not asked the length of.
        let named = self.names.lock().as_ref().map_or(0, NameService::unread);
        let value = match query {
            net::Query::Unread if named != 0 => i32::try_from(named).unwrap_or(i32::MAX),
            _ => net::query(&self.fd, query)?,
        };
        mem.copy_out(arg, &value.to_ne_bytes())?;
        Ok(0)
    }
}

impl SocketInfo for HostSocket {
    fn domain(&self) -> i32 {
        match self.domain {
            Domain::V4 => libc::AF_INET,
            Domain::V6 => libc::AF_INET6,
        }
    }
    fn kind(&self) -> i32 {
        if self.kind == Kind::Stream { libc::SOCK_STREAM } else { libc::SOCK_DGRAM }
    }
    fn protocol(&self) -> i32 {
        match (self.kind, self.domain) {
            (Kind::Stream, _) => libc::IPPROTO_TCP,
            (Kind::Datagram, _) => libc::IPPROTO_UDP,
            (Kind::Ping, Domain::V4) => libc::IPPROTO_ICMP,
            (Kind::Ping, Domain::V6) => libc::IPPROTO_ICMPV6,
        }
    }
    fn take_error(&self) -> Option<Errno> {
        let value = net::option(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR).ok()?;
        let errno = i32::from_ne_bytes(*value.first_chunk()?);
        (errno != 0).then(|| Errno::from_raw(errno))
    }
}
