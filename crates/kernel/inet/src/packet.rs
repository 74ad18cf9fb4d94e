//! AF_PACKET: frames of the namespace's interfaces. See packet(7). While one of these sockets lives, all traffic of the stack goes by
//! packets, so that it is seen.

use crate::control::Stamp;
use crate::fanout;
use crate::notify::{Waiters, shown};
use crate::ring::{self, Arrived, Rings, Transmit};
use crate::value::int;
use abi::{Errno, Result};
use caller::UserMemory;
use hostsys::clock::gettime_ns;
use lock_order::{Mutex, rank};
use netstack::frame::{Checksum, Offload};
use netstack::iface::{Iface, Kind};
use netstack::packet::{Captured, PacketSocket};
use netstack::vnet;
use netstack::wire::eth::Mac;
use rights::Cap;
use socket::family::Family;
use socket::filter::Program;
use socket::{
    Ancillary, Connect, Control, Names, NetNamespace, Options, Received, SendRequest, SocketInfo, SocketOps,
    SocketOptions, Transfer,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Caller, MapOps, MapRequest, Mapping, OpenFile};
use wait::{Events, WaitQueue};

/// Length of an Ethernet header.
const ETHERNET: usize = 14;
/// sizeof(struct sockaddr_ll).
const LEN: usize = 20;
const SOL_PACKET: i32 = 263;
const PACKET_ADD_MEMBERSHIP: i32 = 1;
const PACKET_DROP_MEMBERSHIP: i32 = 2;
/// Length of `struct packet_mreq`, and of a hardware address.
const MREQ: usize = 16;
const ADDRESS: usize = 6;
/// PACKET_MR_MULTICAST and PACKET_MR_UNICAST, which have an address.
const WITH_ADDRESS: [u16; 2] = [0, 3];
/// Memberships that a socket may have.
const MEMBERSHIPS: usize = 64;
const PACKET_RX_RING: i32 = 5;
const PACKET_TX_RING: i32 = 13;
const PACKET_LOSS: i32 = 14;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_TX_HAS_OFF: i32 = 19;
const PACKET_VNET_HDR_SZ: i32 = 24;
/// Lengths of a header of virtio-net: `struct virtio_net_hdr` and `virtio_net_hdr_mrg_rxbuf`.
const VNET_HEADERS: [usize; 3] = [0, vnet::HEADER, vnet::HEADER + 2];
/// VIRTIO_NET_HDR_F_DATA_VALID.
const VNET_VALID: u8 = 2;
const SECOND: i64 = 1_000_000_000;
const PACKET_STATISTICS: i32 = 6;
const PACKET_VERSION: i32 = 10;
const PACKET_HDRLEN: i32 = 11;
const PACKET_RESERVE: i32 = 12;
const PACKET_AUXDATA: i32 = 8;
const PACKET_FANOUT: i32 = 18;
const PACKET_FANOUT_DATA: i32 = 22;
/// No interface is a port of a bond, so each is where the frame came from.
const PACKET_ORIGDEV: i32 = 9;
/// No queueing discipline is there to be passed.
const PACKET_QDISC_BYPASS: i32 = 20;
const PACKET_IGNORE_OUTGOING: i32 = 23;
/// TP_STATUS_USER and TP_STATUS_CSUMNOTREADY.
const USER: u32 = 1;
const NO_CHECKSUM: u32 = 8;

/// The AF_PACKET family.
pub struct PacketFamily;

impl Family for PacketFamily {
    fn create(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        if !cx.creds().ns_capable(net.user_ns(), Cap::NET_RAW) {
            return Err(Errno::EPERM);
        }
        if kind != libc::SOCK_RAW && kind != libc::SOCK_DGRAM {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        let (queue, waiters) = Waiters::new();
        // The protocol is in network order, in an int.
        let protocol = u16::from_be(protocol as u16);
        let socket = net.stack().packet_socket(kind == libc::SOCK_DGRAM, protocol, waiters);
        Ok(Arc::new(Packets {
            kind,
            socket,
            bound: Mutex::new((protocol, 0)),
            memberships: Mutex::default(),
            ring: Mutex::default(),
            auxdata: AtomicBool::new(false),
            filtered: AtomicBool::new(false),
            stamp: Stamp::default(),
            net: net.clone(),
            uid: cx.creds().euid,
            options: Options::default(),
            queue,
        }))
    }
}

/// A packet socket as its descriptor owns it.
struct Packets {
    kind: i32,
    socket: Arc<PacketSocket>,
    /// Protocol and interface.
    bound: Mutex<(u16, u32)>,
    /// What PACKET_ADD_MEMBERSHIP asked for, with counts: interface, kind and address. Devices give all frames that they have, so
    /// nothing else follows from it.
    memberships: Mutex<BTreeMap<[u8; MREQ], u32>, { rank::PACKET_DESCRIPTOR }>,
    /// Rings, and their options.
    ring: Mutex<Rings, { rank::PACKET_DESCRIPTOR }>,
    /// PACKET_AUXDATA.
    auxdata: AtomicBool,
    /// A filter is attached.
    filtered: AtomicBool,
    stamp: Stamp,
    net: Arc<NetNamespace>,
    uid: u32,
    options: Options,
    queue: WaitQueue,
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.socket.close();
    }
}

/// ARPHRD_* of an interface.
fn hardware(link: &Iface) -> u16 {
    match link.kind {
        Kind::Loopback => 772,
        Kind::Ethernet => 1,
        Kind::Tunnel => 0xfffe,
    }
}

/// The parts of a `struct sockaddr_ll` that programs set: protocol, interface, hardware address.
fn parse(addr: &[u8]) -> Result<(u16, u32, Mac)> {
    let addr: &[u8; LEN] = addr.first_chunk().ok_or(Errno::EINVAL)?;
    if addr[..2] != (libc::AF_PACKET as u16).to_ne_bytes() {
        return Err(Errno::EINVAL);
    }
    let protocol = u16::from_be_bytes([addr[2], addr[3]]);
    let index = u32::from_ne_bytes([addr[4], addr[5], addr[6], addr[7]]);
    Ok((protocol, index, Mac([addr[12], addr[13], addr[14], addr[15], addr[16], addr[17]])))
}

/// A `struct sockaddr_ll`.
fn sockaddr(protocol: u16, index: u32, link: Option<&Iface>, kind: u8, mac: Mac) -> Vec<u8> {
    let mut out = (libc::AF_PACKET as u16).to_ne_bytes().to_vec();
    out.extend(protocol.to_be_bytes());
    out.extend(index.to_ne_bytes());
    out.extend(link.map_or(0, hardware).to_ne_bytes());
    let len = if link.is_some_and(|link| link.kind != Kind::Tunnel) { mac.0.len() } else { 0 };
    out.extend([kind, len as u8]);
    out.extend(&mac.0[..len]);
    out
}

/// `struct tpacket_auxdata`.
fn auxdata(got: &Captured, len: usize, link_header: u16) -> Ancillary {
    let partial = matches!(got.offload.checksum, Checksum::Partial { .. });
    let status = USER | if partial { NO_CHECKSUM } else { 0 };
    let mut data = Vec::with_capacity(20);
    for word in [status, got.full as u32, len as u32] {
        data.extend(word.to_ne_bytes());
    }
    for half in [0, link_header, 0, 0] {
        data.extend(half.to_ne_bytes());
    }
    Ancillary { level: SOL_PACKET, kind: PACKET_AUXDATA, data }
}

/// The header of virtio-net of a frame that arrived, of so many bytes. `link` is the length of the link header.
fn vnet_header(got: &Captured, link: usize, len: usize) -> Vec<u8> {
    let mut header = vnet::encode(&got.data, link as u16, &got.offload).to_vec();
    if got.offload.checksum == Checksum::Valid {
        header[0] |= VNET_VALID;
    }
    header.resize(len.max(header.len()), 0);
    header.truncate(len);
    header
}

/// Frames that one call moves into a ring.
const MOVED: usize = 4096;

impl Packets {
    /// Moves frames into the ring; whether the program has some to read. `None` without a ring.
    fn fill(&self) -> Option<bool> {
        let mut rings = self.ring.lock();
        let (reserve, vnet) = (rings.reserve, rings.vnet);
        let ring = rings.receive.as_mut()?;
        // The program may make room, and others may send, as fast as frames are moved.
        for _ in 0..MOVED {
            let Ok(got) = self.socket.receive(true) else { break };
            if !ring.has_room() {
                break;
            }
            let link = self.net.stack().link(got.iface);
            let mut from = sockaddr(got.protocol, got.iface, link.as_deref(), got.kind as u8, got.from);
            from.resize(LEN, 0);
            let partial = matches!(got.offload.checksum, Checksum::Partial { .. });
            let header = self.link_header(link.as_deref());
            let elapsed = self.net.now().since(got.at).as_nanos() as i64;
            let time = gettime_ns(libc::CLOCK_REALTIME).unwrap_or(0).saturating_sub(elapsed);
            let arrived = Arrived {
                data: &got.data,
                full: got.full,
                link: (self.kind == libc::SOCK_RAW).then_some(header),
                vnet: &vnet_header(&got, header, vnet),
                time: ((time / SECOND) as u32, (time % SECOND) as u32),
                status: USER | if partial { NO_CHECKSUM } else { 0 },
                reserve,
                from: &from,
            };
            if !ring.put(&arrived) {
                break;
            }
            let _ = self.socket.receive(false);
        }
        ring.retire();
        Some(ring.is_readable())
    }

    /// Options that are fixed while there is a ring.
    fn set_ring_option(&self, name: i32, value: i32) -> Result<()> {
        let vnet = name == PACKET_VNET_HDR || name == PACKET_VNET_HDR_SZ;
        if vnet && self.kind != libc::SOCK_RAW {
            return Err(Errno::EINVAL);
        }
        let size = match (name, usize::try_from(value)) {
            (PACKET_VNET_HDR, _) => VNET_HEADERS[usize::from(value != 0)],
            (_, Ok(size)) if !vnet || VNET_HEADERS.contains(&size) => size,
            _ if vnet => return Err(Errno::EINVAL),
            _ => 0,
        };
        let mut rings = self.ring.lock();
        match name {
            PACKET_VERSION if ring::header(value).is_none() => return Err(Errno::EINVAL),
            // A frame has to hold it.
            PACKET_RESERVE if value < 0 => return Err(Errno::EINVAL),
            _ if rings.any() => return Err(Errno::EBUSY),
            PACKET_VERSION => rings.version = value,
            PACKET_RESERVE => rings.reserve = size.min(1 << 20),
            PACKET_LOSS => rings.loss = value != 0,
            PACKET_TX_HAS_OFF => rings.has_offset = value != 0,
            _ => rings.vnet = size,
        }
        Ok(())
    }

    /// Bytes of the link header that the program sees.
    fn link_header(&self, link: Option<&Iface>) -> usize {
        let bare = link.is_some_and(|link| link.kind == Kind::Tunnel);
        if self.kind == libc::SOCK_RAW && !bare { ETHERNET } else { 0 }
    }

    /// Sends a frame, with a header of virtio-net of so many bytes before it.
    fn send_frame(&self, data: &[u8], vnet: usize, to: Option<(u32, u16, Mac)>) -> Result<usize> {
        let Some(header) = data.first_chunk().filter(|_| vnet > 0) else {
            return if vnet > 0 {
                Err(Errno::EINVAL)
            } else {
                self.socket.send(self.net.now(), data, Offload::default(), to)
            };
        };
        let frame = data.get(vnet..).ok_or(Errno::EINVAL)?;
        let index = to.map_or_else(|| self.bound.lock().1, |to| to.0);
        let link = self.link_header(self.net.stack().link(index).as_deref());
        let offload = vnet::decode(header, frame, link as u16).ok_or(Errno::EINVAL)?;
        if let Checksum::Partial { start, offset } = offload.checksum
            && link + usize::from(start) + usize::from(offset) + 2 > frame.len()
        {
            return Err(Errno::EINVAL);
        }
        // Offloads of a program's reach drivers of the host: only what the stack itself could have asked for.
        if !vnet::cuts_its_checksum(&offload, frame.get(link..).unwrap_or_default()) {
            return Err(Errno::EINVAL);
        }
        self.socket.send(self.net.now(), frame, offload, to)?;
        Ok(data.len())
    }

    /// Sends what the program has marked in the ring, and returns how many bytes.
    fn send_ring(&self, cx: &dyn Caller, to: Option<(u32, u16, Mac)>) -> Result<usize> {
        let mut sent = 0;
        // The program may mark slots as fast as they are sent: each is sent once for a call.
        let count = self.ring.lock().transmit.as_ref().map_or(0, Transmit::count);
        for _ in 0..count {
            if cx.is_killed() {
                return Ok(sent);
            }
            // The lock is not held while a frame is sent: it may come to this socket again.
            let (slot, frame, vnet, loss) = {
                let mut rings = self.ring.lock();
                let (offset, vnet, loss) = (rings.has_offset, rings.vnet, rings.loss);
                let Some(ring) = rings.transmit.as_mut() else { return Ok(sent) };
                let linked = self.kind == libc::SOCK_RAW;
                let Some((slot, frame)) = ring.next(offset.then_some(linked)) else { return Ok(sent) };
                ring.begin(slot);
                (slot, frame, vnet, loss)
            };
            let done = frame.and_then(|frame| self.send_frame(&frame, vnet, to));
            if let Some(ring) = &mut self.ring.lock().transmit {
                match done {
                    Err(_) if !loss => ring.refuse(slot),
                    _ => ring.end(slot),
                }
            }
            match done {
                Ok(len) => sent += len,
                Err(_) if loss => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent)
    }

    /// PACKET_ADD_MEMBERSHIP and PACKET_DROP_MEMBERSHIP.
    fn membership(&self, adds: bool, value: &[u8]) -> Result<()> {
        let mut request: [u8; MREQ] = *value.first_chunk().ok_or(Errno::EINVAL)?;
        let index = u32::from_ne_bytes([request[0], request[1], request[2], request[3]]);
        let kind = u16::from_ne_bytes([request[4], request[5]]);
        let len = usize::from(u16::from_ne_bytes([request[6], request[7]]));
        if len > MREQ - 8 {
            return Err(Errno::EINVAL);
        }
        request[8 + len..].fill(0);
        let mut all = self.memberships.lock();
        if !adds {
            if let Some(count) = all.get_mut(&request) {
                *count -= 1;
                if *count == 0 {
                    all.remove(&request);
                }
            }
            return Ok(());
        }
        let link = self.net.stack().link(index).ok_or(Errno::ENODEV)?;
        let own = if link.kind == Kind::Tunnel { 0 } else { ADDRESS };
        if len > own || (WITH_ADDRESS.contains(&kind) && len != own) {
            return Err(Errno::EINVAL);
        }
        if all.len() >= MEMBERSHIPS && !all.contains_key(&request) {
            return Err(Errno::ENOBUFS);
        }
        let count = all.entry(request).or_default();
        *count = count.saturating_add(1);
        Ok(())
    }
}

impl MapOps for Packets {
    fn map(&self, _cx: &dyn Caller, _file: &OpenFile, request: &MapRequest) -> Result<Mapping> {
        self.ring.lock().map(request)
    }
}

impl SocketOps for Packets {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn opened(&self, ino: u64) {
        self.socket.set_owner(self.uid, ino);
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        Some(self)
    }
    fn poll(&self) -> Events {
        match self.fill() {
            Some(true) => shown(self.socket.readiness()) | Events::READABLE,
            Some(false) => Events::WRITABLE,
            None => shown(self.socket.readiness()),
        }
    }
    fn wait_queue(&self) -> WaitQueue {
        self.queue.clone()
    }
}

impl Connect for Packets {
    fn bind(&self, _cx: &dyn Caller, _names: &dyn Names, addr: &[u8]) -> Result<()> {
        let (protocol, index, _) = parse(addr)?;
        self.socket.bind(protocol, index)?;
        let mut bound = self.bound.lock();
        *bound = (if protocol == 0 { bound.0 } else { protocol }, index);
        Ok(())
    }
    fn connect(&self, _cx: &dyn Caller, _names: &dyn Names, _addr: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn listen(&self, _cx: &dyn Caller, _backlog: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn accept(&self) -> Result<Arc<dyn SocketOps>> {
        Err(Errno::EOPNOTSUPP)
    }
    fn local_addr(&self) -> Vec<u8> {
        let (protocol, index) = *self.bound.lock();
        let link = self.net.stack().link(index);
        let mac = link.as_ref().map_or(Mac::default(), |link| link.mac());
        sockaddr(protocol, index, link.as_deref(), 0, mac)
    }
    fn peer_addr(&self) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP)
    }
    fn shutdown(&self, _how: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
}

impl Transfer for Packets {
    fn send(&self, cx: &dyn Caller, _names: &dyn Names, req: &mut SendRequest<'_>) -> Result<usize> {
        let to = match req.addr {
            Some(addr) => {
                let (protocol, index, mac) = parse(addr)?;
                Some((index, protocol, mac))
            }
            None => None,
        };
        let (rings, vnet) = {
            let rings = self.ring.lock();
            (rings.transmit.is_some(), rings.vnet)
        };
        if rings { self.send_ring(cx, to) } else { self.send_frame(req.data, vnet, to) }
    }
    fn recv(&self, _cx: &dyn Caller, buf: &mut [u8], flags: i32) -> Result<Received> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN);
        }
        let vnet = {
            let rings = self.ring.lock();
            if rings.receive.is_some() {
                return Err(Errno::EAGAIN);
            }
            rings.vnet
        };
        let got = self.socket.receive(flags & libc::MSG_PEEK != 0)?;
        self.stamp.note(got.at);
        let link = self.net.stack().link(got.iface);
        let mut addr = sockaddr(got.protocol, got.iface, link.as_deref(), got.kind as u8, got.from);
        addr.resize(LEN, 0);
        let header = self.link_header(link.as_deref());
        let told = self.auxdata.load(Ordering::Relaxed).then(|| auxdata(&got, got.data.len(), header as u16));
        let before = vnet_header(&got, header, vnet);
        let (first, rest) = buf.split_at_mut_checked(vnet).ok_or(Errno::EINVAL)?;
        first.copy_from_slice(&before);
        let len = got.data.len().min(rest.len());
        rest[..len].copy_from_slice(&got.data[..len]);
        Ok(Received {
            len: vnet + len,
            full: vnet + got.data.len(),
            addr: Some(addr),
            flags: if len < got.data.len() { libc::MSG_TRUNC } else { 0 },
            control: Control { other: told.into_iter().collect(), ..Control::default() },
        })
    }
}

impl SocketOptions for Packets {
    fn options(&self) -> &Options {
        &self.options
    }
    fn get_common(&self, name: i32) -> Option<Result<Vec<u8>>> {
        (name == libc::SO_GET_FILTER).then(|| Ok(self.socket.filter()))
    }
    fn set_common(&self, _cx: &dyn Caller, name: i32, value: &[u8]) -> Option<Result<()>> {
        match name {
            libc::SO_ATTACH_FILTER => Some(Program::new(value).map(|filter| {
                self.filtered.store(true, Ordering::Relaxed);
                self.socket.set_filter(Some(Arc::new(filter)));
            })),
            libc::SO_DETACH_FILTER if self.filtered.swap(false, Ordering::Relaxed) => {
                self.socket.set_filter(None);
                Some(Ok(()))
            }
            _ => None,
        }
    }
    fn option_changed(&self, name: i32) {
        if matches!(name, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) {
            self.socket.set_receive_buffer(self.options.rcvbuf());
        }
    }
    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        match (level, name) {
            (SOL_PACKET, PACKET_STATISTICS) => {
                let (packets, drops) = self.socket.statistics();
                let mut rings = self.ring.lock();
                let freezes = match &mut rings.receive {
                    Some(ring) => ring.freezes(),
                    None => (rings.version == ring::V3).then_some(0),
                };
                // Packets are all that came (packet(7)).
                let words = [Some(packets.wrapping_add(drops)), Some(drops), freezes];
                Ok(words.into_iter().flatten().flat_map(u32::to_ne_bytes).collect())
            }
            (SOL_PACKET, PACKET_FANOUT) => Ok(int(fanout::shown(&self.socket))),
            (SOL_PACKET, PACKET_VERSION) => Ok(int(self.ring.lock().version)),
            (SOL_PACKET, PACKET_RESERVE) => Ok(int(self.ring.lock().reserve as i32)),
            (SOL_PACKET, PACKET_LOSS) => Ok(int(self.ring.lock().loss.into())),
            (SOL_PACKET, PACKET_TX_HAS_OFF) => Ok(int(self.ring.lock().has_offset.into())),
            (SOL_PACKET, PACKET_VNET_HDR) => Ok(int((self.ring.lock().vnet > 0).into())),
            (SOL_PACKET, PACKET_VNET_HDR_SZ) => Ok(int(self.ring.lock().vnet as i32)),
            (SOL_PACKET, PACKET_ORIGDEV | PACKET_QDISC_BYPASS | PACKET_IGNORE_OUTGOING) => {
                Ok(int(self.options.kept(-name)))
            }
            (SOL_PACKET, PACKET_AUXDATA) => Ok(int(self.auxdata.load(Ordering::Relaxed) as i32)),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
    fn get_option_at(
        &self,
        _cx: &dyn Caller,
        mem: &mut dyn UserMemory,
        option: (i32, i32),
        value: u64,
        room: usize,
    ) -> Option<Result<Vec<u8>>> {
        if option != (SOL_PACKET, PACKET_HDRLEN) {
            return None;
        }
        let mut version = [0; 4];
        if room < version.len() {
            return Some(Err(Errno::EINVAL));
        }
        let version = mem.copy_in(value, &mut version).map(|()| i32::from_ne_bytes(version));
        let length = |version| ring::header(version).ok_or(Errno::EINVAL);
        Some(version.and_then(length).map(|length| int(length as i32)))
    }
    fn set_option(&self, _cx: &dyn Caller, level: i32, name: i32, value: &[u8]) -> Result<()> {
        match (level, name) {
            (SOL_PACKET, PACKET_AUXDATA) => {
                self.auxdata.store(crate::value::read_int(value)? != 0, Ordering::Relaxed);
                Ok(())
            }
            (SOL_PACKET, PACKET_ORIGDEV | PACKET_QDISC_BYPASS | PACKET_IGNORE_OUTGOING) => {
                let value = crate::value::read_int(value)?;
                if name == PACKET_IGNORE_OUTGOING {
                    self.socket.ignore_outgoing(crate::options::tcp::within(value, 0, 1)? != 0);
                }
                // Options of SOL_SOCKET have positive numbers.
                self.options.keep(-name, (value != 0) as i32);
                Ok(())
            }
            (SOL_PACKET, PACKET_RX_RING | PACKET_TX_RING) => {
                self.ring.lock().set(name == PACKET_TX_RING, value)
            }
            (SOL_PACKET, PACKET_FANOUT) => self.socket.join_fanout(fanout::parse(value)?),
            (SOL_PACKET, PACKET_FANOUT_DATA) => fanout::set_data(&self.socket, value),
            (
                SOL_PACKET,
                PACKET_VERSION | PACKET_RESERVE | PACKET_LOSS | PACKET_TX_HAS_OFF | PACKET_VNET_HDR
                | PACKET_VNET_HDR_SZ,
            ) => self.set_ring_option(name, crate::value::read_int(value)?),
            (SOL_PACKET, PACKET_ADD_MEMBERSHIP) => self.membership(true, value),
            (SOL_PACKET, PACKET_DROP_MEMBERSHIP) => self.membership(false, value),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
    fn ioctl(&self, _cx: &dyn Caller, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
        if let Some(answer) = self.stamp.ioctl(self.net.clock(), mem, cmd, arg) {
            return answer;
        }
        let value = match u64::from(cmd) {
            libc::FIONREAD => self.socket.receive(true).map_or(0, |got| got.data.len() as i32),
            libc::TIOCOUTQ => 0,
            _ => return Err(Errno::ENOTTY),
        };
        mem.write_value(arg, &value)?;
        Ok(0)
    }
}

impl SocketInfo for Packets {
    fn domain(&self) -> i32 {
        libc::AF_PACKET
    }
    fn kind(&self) -> i32 {
        self.kind
    }
    fn protocol(&self) -> i32 {
        0
    }
    fn take_error(&self) -> Option<Errno> {
        None
    }
}
