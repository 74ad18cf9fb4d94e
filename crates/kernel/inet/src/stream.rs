//! TCP sockets. See tcp(7).

use crate::names::SO_DETACH_REUSEPORT_BPF;
use crate::notify::{Waiters, shown};
use crate::options::{self, Common, tcp};
use crate::value::{int, read_int};
use crate::{addr, notices};
use abi::{Errno, Result, Signal};
use caller::UserMemory;
use netstack::tcp::{SendFlags, State, TcpSocket};
use rights::Cap;
use socket::filter::Program;
use socket::{
    Blocks, Connect, Control, Names, NetNamespace, Options, Pool, Received, SendRequest, SocketInfo,
    SocketOps, SocketOptions, Transfer,
};
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, Lingering};
use wait::{Events, WaitQueue};

/// A TCP socket as its descriptor owns it.
pub(crate) struct Stream {
    socket: Arc<TcpSocket>,
    net: Arc<NetNamespace>,
    options: Options,
    common: Common,
    queue: WaitQueue,
}

impl Stream {
    /// A socket that is not bound, of a user's.
    pub(crate) fn create(net: &Arc<NetNamespace>, v6: bool, owner: (u32, u32)) -> Arc<dyn SocketOps> {
        let (queue, waiters) = Waiters::new();
        let socket = net.stack().tcp_socket(v6, waiters);
        socket.configure(net.now(), |options| (options.ip.uid, options.ip.gid) = owner);
        Arc::new(Stream {
            socket,
            net: net.clone(),
            options: Options::default(),
            common: Common::default(),
            queue,
        })
    }

    /// The socket, for a checkpoint, and what its descriptor has beside it.
    pub(crate) fn parts(&self) -> (&Arc<TcpSocket>, &Arc<NetNamespace>, &Options, &Common) {
        (&self.socket, &self.net, &self.options, &self.common)
    }

    /// A restored one; `queue` is what the socket notifies.
    pub(crate) fn restore(
        socket: Arc<TcpSocket>,
        net: &Arc<NetNamespace>,
        (options, common): (Options, Common),
        queue: WaitQueue,
    ) -> Arc<dyn SocketOps> {
        Arc::new(Stream { socket, net: net.clone(), options, common, queue })
    }

    fn timestamping(&self) -> u32 {
        self.socket.configure(self.net.now(), |o| o.timestamping)
    }

    /// Reads or peeks; both move the place where the next peek begins.
    fn receive(&self, buf: &mut [u8], peek: bool) -> Result<usize> {
        let offset = self.options.peek_off().max(0);
        let len = self.socket.receive_from(self.net.now(), offset as usize, buf, peek)?;
        self.options.move_peek_off(len, peek);
        Ok(len)
    }

    /// SO_MEMINFO: bytes received, their bound, bytes at the device, the bound of sent ones, reserved ones, sent ones, ancillary ones,
    /// those that wait to be looked at, and datagrams dropped.
    fn memory(&self) -> Vec<u8> {
        let ((received, ..), (send, receive)) = (self.socket.queued(), self.socket.buffers());
        let sent = self.socket.send_charge();
        [received, receive, 0, send, 0, sent, 0, 0, 0]
            .iter()
            .flat_map(|n| (*n as u32).to_ne_bytes())
            .collect()
    }

    /// What connect(2) to AF_UNSPEC does.
    fn disconnect(&self) -> Result<()> {
        self.socket.disconnect(self.net.now());
        Ok(())
    }

    fn recv_urgent(&self, buf: &mut [u8], flags: i32) -> Result<Received> {
        if self.socket.state() == State::Listen {
            return Err(Errno::ENOTCONN);
        }
        let byte = self.socket.receive_urgent(flags & libc::MSG_PEEK != 0)?;
        let mut out = Received { flags: libc::MSG_OOB, full: 1, len: 1, ..Received::default() };
        match buf.first_mut() {
            Some(place) if flags & libc::MSG_TRUNC == 0 => *place = byte,
            Some(_) => out.len = 0,
            None => (out.len, out.full, out.flags) = (0, 0, libc::MSG_OOB | libc::MSG_TRUNC),
        }
        Ok(out)
    }

    /// MSG_TRUNC: what would be read is dropped, or with MSG_PEEK only counted.
    fn discard(&self, len: usize, flags: i32) -> Result<usize> {
        if flags & libc::MSG_PEEK == 0 {
            return self.socket.discard(self.net.now(), len);
        }
        match self.socket.queued().0.min(len) {
            // Says why there is nothing.
            0 => self.socket.receive(self.net.now(), &mut [0], true),
            n => Ok(n),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.socket.close(self.net.now());
    }
}

/// What send(2) asks for; `zerocopy` is SO_ZEROCOPY.
fn wanted(flags: i32, zerocopy: bool) -> SendFlags {
    let on = |flag| flags & flag != 0;
    SendFlags {
        more: on(libc::MSG_MORE),
        whole: on(libc::MSG_EOR),
        zerocopy: zerocopy && on(libc::MSG_ZEROCOPY),
    }
}

/// EPIPE comes with a signal, unless the caller does not want it.
fn broken(cx: &dyn Caller, flags: i32, errno: Errno) -> Errno {
    if errno == Errno::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        cx.raise(Signal::SIGPIPE);
    }
    errno
}

impl SocketOps for Stream {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn lingering(&self) -> Option<Lingering> {
        let time = self.options.linger().filter(|time| !time.is_zero())?;
        let socket = self.socket.clone();
        Some(Lingering { queue: self.queue.clone(), time, goes_on: Box::new(move || socket.lingers()) })
    }
    fn opened(&self, ino: u64) {
        self.socket.configure(self.net.now(), |options| options.ip.inode = ino);
    }
    fn poll(&self) -> Events {
        shown(self.socket.readiness())
    }
    fn wait_queue(&self) -> WaitQueue {
        self.queue.clone()
    }
}

impl Connect for Stream {
    fn bind(&self, cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let named = addr::to_bind(self.socket.is_v6(), addr)?;
        self.socket.bind(named, cx.creds().ns_capable(self.net.user_ns(), Cap::NET_BIND_SERVICE))
    }
    fn connect(&self, _cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        if addr::family(addr)? == libc::AF_UNSPEC {
            return self.disconnect();
        }
        self.socket.connect(self.net.now(), addr::to_connect(self.socket.is_v6(), addr)?)
    }
    fn listen(&self, _cx: &dyn Caller, backlog: i32) -> Result<()> {
        self.socket.listen(backlog as u32 as usize)
    }
    fn accept(&self) -> Result<Arc<dyn SocketOps>> {
        let (queue, waiters) = Waiters::new();
        let socket = self.socket.accept(waiters)?;
        let options = Options::default();
        options.copy(&self.options);
        let common = self.common.clone();
        Ok(Arc::new(Stream { socket, net: self.net.clone(), options, common, queue }))
    }
    fn local_addr(&self) -> Vec<u8> {
        addr::to_bytes(self.socket.local())
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        self.socket.remote().map(addr::to_bytes)
    }
    fn accepted_addr(&self) -> Result<Vec<u8>> {
        self.socket.peer().map(addr::to_bytes).ok_or(Errno::ENOTCONN)
    }
    fn shutdown(&self, how: i32) -> Result<()> {
        let (read, write) = options::directions(how)?;
        self.socket.shutdown(self.net.now(), read, write)
    }
    fn listening(&self) -> bool {
        self.socket.state() == State::Listen
    }
}

impl Transfer for Stream {
    fn send_room(&self) -> Option<usize> {
        Some(self.socket.send_room())
    }
    fn send(&self, cx: &dyn Caller, _names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        let flags = req.flags;
        let wanted = wanted(flags, self.common.kept(libc::SOL_SOCKET, libc::SO_ZEROCOPY) != 0);
        let sent = if flags & libc::MSG_FASTOPEN != 0 {
            let to = req.addr.ok_or(Errno::EINVAL)?;
            if addr::family(to)? == libc::AF_UNSPEC {
                return Err(Errno::EOPNOTSUPP);
            }
            let to = addr::to_connect(self.socket.is_v6(), to)?;
            self.socket.send_fast_open(self.net.now(), to, req.data, wanted.zerocopy)
        } else if flags & libc::MSG_OOB != 0 {
            self.socket.send_urgent(self.net.now(), req.data)
        } else {
            match req.block {
                Some(block) => {
                    let from = block.len().saturating_sub(req.data.len());
                    self.socket.send_block(self.net.now(), block, from, wanted)
                }
                None => self.socket.send_as(self.net.now(), req.data, wanted),
            }
        };
        sent.map_err(|errno| broken(cx, flags, errno))
    }
    fn recv(&self, _cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            let notice = self.socket.take_notice().ok_or(Errno::EAGAIN)?;
            return Ok(notices::received(
                self.net.clock(),
                (self.socket.is_v6(), self.timestamping()),
                &notice,
                buf,
            ));
        }
        if flags & libc::MSG_OOB != 0 {
            return self.recv_urgent(buf, flags);
        }
        if flags & libc::MSG_TRUNC != 0 {
            let full = self.discard(buf.len(), flags)?;
            return Ok(Received { full, ..Received::default() });
        }
        let len = self.receive(buf, flags & libc::MSG_PEEK != 0)?;
        let told = self.common.kept(libc::IPPROTO_TCP, tcp::TCP_INQ) != 0;
        let other = if told { vec![notices::left(self.socket.waiting())] } else { Vec::new() };
        Ok(Received {
            len,
            full: len,
            control: Control { other, ..Control::default() },
            ..Received::default()
        })
    }
    fn pool(&self) -> Option<&Pool> {
        Some(self.net.stack().pool())
    }
    fn gives_blocks(&self) -> bool {
        self.common.kept(libc::IPPROTO_TCP, tcp::TCP_INQ) == 0
    }
    fn take(&self, most: usize) -> Result<Blocks> {
        let blocks = self.socket.receive_blocks(self.net.now(), most)?;
        self.options.move_peek_off(blocks.iter().map(|block| block.len()).sum(), false);
        Ok(blocks)
    }
    fn put_back(&self, blocks: Blocks) {
        self.socket.put_back(blocks);
    }
    fn peeks_at_offset(&self) -> bool {
        true
    }
    fn stops_splice(&self) -> bool {
        self.socket.waits_at_mark()
    }
    fn opens_with_data(&self) -> bool {
        self.socket.is_deferred()
    }
    fn opened_by_send(&self, more: bool) -> Result<()> {
        self.socket.opened(more)
    }
}

impl SocketOptions for Stream {
    fn options(&self) -> &Options {
        &self.options
    }
    fn get_common(&self, name: i32) -> Option<Result<Vec<u8>>> {
        let buffers = || self.socket.buffers();
        match name {
            libc::SO_SNDBUF => Some(Ok(int(buffers().0 as i32))),
            libc::SO_RCVBUF => Some(Ok(int(buffers().1 as i32))),
            libc::SO_MEMINFO => Some(Ok(self.memory())),
            libc::SO_ZEROCOPY => Some(Ok(int(self.common.kept(libc::SOL_SOCKET, name)))),
            libc::SO_TIMESTAMPING => Some(Ok(int(self.timestamping() as i32))),
            libc::SO_GET_FILTER => Some(Ok(self.socket.filter().unwrap_or_default())),
            _ => self.socket.configure(self.net.now(), |o| self.common.get(&self.net, &o.ip, name)),
        }
    }
    fn set_common(&self, cx: &dyn Caller, name: i32, value: &[u8]) -> Option<Result<()>> {
        match name {
            libc::SO_ZEROCOPY => Some(read_int(value).and_then(|v| {
                self.common.keep(libc::SOL_SOCKET, name, options::tcp::within(v, 0, 1)?);
                Ok(())
            })),
            libc::SO_TIMESTAMPING => Some(read_int(value).and_then(|v| {
                let flags = notices::flags(v, self.socket.state())?;
                self.socket.set_timestamping(self.net.now(), flags);
                Ok(())
            })),
            libc::SO_ATTACH_FILTER => Some(Program::new(value).map(|filter| {
                self.socket.set_filter(self.net.now(), Some(Arc::new(filter)));
            })),
            libc::SO_DETACH_FILTER => {
                let had = self.socket.set_filter(self.net.now(), None);
                Some(if had { Ok(()) } else { Err(Errno::ENOENT) })
            }
            libc::SO_ATTACH_REUSEPORT_CBPF => {
                let program = Program::new(value);
                Some(program.and_then(|one| self.socket.set_group_program(Some(Arc::new(one)))))
            }
            SO_DETACH_REUSEPORT_BPF => {
                Some(read_int(value).and_then(|_| self.socket.set_group_program(None)))
            }
            _ => self
                .socket
                .configure(self.net.now(), |o| self.common.set(cx, &self.net, &mut o.ip, name, value)),
        }
    }
    fn option_changed(&self, name: i32) {
        self.socket.configure(self.net.now(), |options| tcp::apply(&self.options, options, name));
    }
    fn get_option_at(
        &self,
        cx: &dyn Caller,
        mem: &mut dyn UserMemory,
        option: (i32, i32),
        value: u64,
        room: usize,
    ) -> Option<Result<Vec<u8>>> {
        options::get_at(&self.ip_socket(), cx, mem, option, value, room)
    }
    fn set_option_at(
        &self,
        cx: &dyn Caller,
        mem: &mut dyn UserMemory,
        option: (i32, i32),
        value: u64,
        len: usize,
    ) -> Option<Result<()>> {
        options::set_at(&self.ip_socket(), cx, mem, option, value, len)
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        options::get(&self.ip_socket(), level, name)
    }
    fn set_option(&self, cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
        options::set(&self.ip_socket(), cx, level, name, value)
    }
    fn ioctl(&self, _cx: &dyn Caller, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
        let listening = self.listening();
        let (readable, unacknowledged, unsent) = self.socket.queued();
        let value = match cmd {
            SIOCATMARK => i32::from(self.socket.at_mark()),
            SIOCINQ | SIOCOUTQ | SIOCOUTQNSD if listening => return Err(Errno::EINVAL),
            SIOCINQ => readable as i32,
            SIOCOUTQ => unacknowledged as i32,
            SIOCOUTQNSD => unsent as i32,
            _ => return Err(Errno::ENOTTY),
        };
        mem.write_value(arg, &value)?;
        Ok(0)
    }
}

impl SocketInfo for Stream {
    fn domain(&self) -> i32 {
        if self.socket.is_v6() { libc::AF_INET6 } else { libc::AF_INET }
    }
    fn kind(&self) -> i32 {
        libc::SOCK_STREAM
    }
    fn protocol(&self) -> i32 {
        libc::IPPROTO_TCP
    }
    fn take_error(&self) -> Option<Errno> {
        self.socket.take_error()
    }
}

const SIOCINQ: u32 = libc::FIONREAD as u32;
const SIOCOUTQ: u32 = libc::TIOCOUTQ as u32;
const SIOCOUTQNSD: u32 = 0x894b;
const SIOCATMARK: u32 = 0x8905;

impl Stream {
    fn ip_socket(&self) -> options::Socket<'_> {
        options::Socket {
            v6: self.socket.is_v6(),
            net: &self.net,
            common: &self.common,
            kind: libc::SOCK_STREAM,
            datagram: None,
            stream: Some(&self.socket),
        }
    }
}
