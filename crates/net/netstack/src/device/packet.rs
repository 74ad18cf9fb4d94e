//! Packet sockets (packet(7)): frames of an interface, in both directions. [`Taps`] shows frames to them, and to a capture.
//!
//! Lock ranks: `PACKET_SOCKETS`, `PACKET_SOCKET`. A checkpoint keeps what a socket is bound to, its filter and its queue.

use super::capture::{ALL, Capture, CapturedFrame, Filter, Observer, PacketType, Watch, Watchers};
use super::fanout::{Choice, Fanout, FanoutRequest, Fanouts};
use super::iface::{Iface, Kind, Upper};
use super::links::Links;
use super::transmit::{loop_back, send_cut};
use crate::buf::Buf;
use crate::frame::{Checksum, Frame, Offload, finish_checksum};
use crate::memory::Charge;
use crate::notify::{Events, Notifier};
use crate::truesize;
use crate::wire::eth::{self, Ethernet, Mac};
use abi::Errno;
use ktime::Ktime;
use lock_order::{Mutex, RwLock, rank};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use zerocopy::IntoBytes;
use zerocopy::network_endian::U16;

/// A frame that waits to be read.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The bytes; without a link header for `SOCK_DGRAM`, and on interfaces that have none.
    pub data: Buf,
    /// Bytes on the wire, when a filter cut the data.
    pub full: usize,
    /// Interface.
    pub iface: u32,
    /// Protocol of the payload.
    pub protocol: u16,
    /// How it came by.
    pub kind: PacketType,
    /// Sender's hardware address.
    pub from: Mac,
    /// What is left to do: a packet to be cut, or without a checksum (`PACKET_AUXDATA`).
    pub offload: Offload,
    /// When.
    pub at: Ktime,
}

/// A packet socket. It keeps the stack from taking ways without packets while it lives.
pub struct PacketSocket {
    links: Arc<Links>,
    taps: Arc<Taps>,
    /// Keeps the layers above alive, which end the socket's operations.
    upper: Arc<Upper>,
    /// `SOCK_DGRAM`: without link headers.
    cooked: bool,
    inner: Mutex<Inner, { rank::PACKET_SOCKET }>,
    /// The group that it shares frames with.
    pub(crate) fanout: RwLock<Option<Arc<Fanout<PacketSocket>>>>,
    notify: Notifier,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capturing {
    /// It waits to be read.
    Taken,
    /// It is none that the socket wants.
    Unwanted,
    /// There is no room.
    Full,
}

struct Inner {
    protocol: u16,
    iface: u32,
    filter: Option<Arc<dyn Filter>>,
    incoming_only: bool,
    queue: VecDeque<Captured>,
    bytes: usize,
    charge: Charge,
    limit: usize,
    /// Packets received and dropped since `PACKET_STATISTICS` was read.
    statistics: (u32, u32),
    watch: Option<Watch>,
    /// User and inode number of the descriptor.
    owner: (u32, u64),
}

/// A packet socket in a list.
#[derive(Clone, Copy, Debug)]
pub struct PacketRow {
    /// Without link headers.
    pub cooked: bool,
    /// Protocol, 0 for none.
    pub protocol: u16,
    /// Interface, 0 for all.
    pub iface: u32,
    /// Bytes that wait to be read, and the most that may.
    pub queued: (usize, usize),
    /// Owner.
    pub uid: u32,
    /// The descriptor's inode.
    pub inode: u64,
}

impl PacketSocket {
    /// A socket for frames of a protocol ([`ALL`] for every one, 0 for none until it is bound) of all interfaces.
    pub(crate) fn new(
        (links, taps, upper): (&Arc<Links>, &Arc<Taps>, Arc<Upper>),
        cooked: bool,
        protocol: u16,
        limit: usize,
        notify: Notifier,
    ) -> Arc<PacketSocket> {
        let inner = Inner {
            protocol,
            iface: 0,
            filter: None,
            incoming_only: false,
            queue: VecDeque::new(),
            bytes: 0,
            charge: Charge::of(&links.memory),
            limit,
            statistics: (0, 0),
            watch: Some(taps.watchers.watch()),
            owner: (0, 0),
        };
        let (links, taps, fanout) = (links.clone(), taps.clone(), RwLock::default());
        let socket = PacketSocket { links, taps, upper, cooked, inner: Mutex::new(inner), fanout, notify };
        let socket = Arc::new(socket);
        socket.taps.sockets.write().push(socket.clone());
        socket.taps.count.fetch_add(1, Ordering::AcqRel);
        socket
    }

    /// Protocol and interface.
    pub(crate) fn bound(&self) -> (u16, u32) {
        let inner = self.inner.lock();
        (inner.protocol, inner.iface)
    }

    /// Chooses protocol and interface, 0 for all (bind(2)); `EINVAL` for the member of a group.
    pub fn bind(&self, protocol: u16, iface: u32) -> Result<(), Errno> {
        if self.fanout.read().is_some() {
            return Err(Errno::EINVAL);
        }
        if iface != 0 && self.links.get(iface).is_none() {
            return Err(Errno::ENODEV);
        }
        let mut inner = self.inner.lock();
        inner.iface = iface;
        if protocol != 0 {
            inner.protocol = protocol;
        }
        Ok(())
    }

    /// Sets the owner of the socket, for lists.
    pub fn set_owner(&self, uid: u32, inode: u64) {
        self.inner.lock().owner = (uid, inode);
    }

    /// The socket's row.
    pub fn row(&self) -> PacketRow {
        let inner = self.inner.lock();
        PacketRow {
            cooked: self.cooked,
            protocol: inner.protocol,
            iface: inner.iface,
            queued: (inner.bytes, inner.limit),
            uid: inner.owner.0,
            inode: inner.owner.1,
        }
    }

    /// Sets or removes the filter.
    pub fn set_filter(&self, filter: Option<Arc<dyn Filter>>) {
        self.inner.lock().filter = filter;
    }

    /// The instructions of the filter; empty without one.
    pub fn filter(&self) -> Vec<u8> {
        let inner = self.inner.lock();
        inner.filter.as_ref().and_then(|filter| filter.instructions()).unwrap_or_default().to_vec()
    }

    /// `PACKET_IGNORE_OUTGOING`
    pub fn ignore_outgoing(&self, on: bool) {
        self.inner.lock().incoming_only = on;
    }

    /// `SO_RCVBUF`
    pub fn set_receive_buffer(&self, bytes: usize) {
        self.inner.lock().limit = bytes;
    }

    /// Takes the oldest frame, or looks at it.
    pub fn receive(&self, peek: bool) -> Result<Captured, Errno> {
        let mut inner = self.inner.lock();
        if peek {
            return inner.queue.front().cloned().ok_or(Errno::EAGAIN);
        }
        let captured = inner.queue.pop_front().ok_or(Errno::EAGAIN)?;
        inner.bytes = inner.bytes.saturating_sub(self.counts(&captured));
        let held = inner.charge.bytes().saturating_sub(captured.data.truesize());
        inner.charge.set(held);
        Ok(captured)
    }

    /// Packets received and dropped since the last call (`PACKET_STATISTICS`).
    pub fn statistics(&self) -> (u32, u32) {
        std::mem::take(&mut self.inner.lock().statistics)
    }

    /// Sends a frame with what is left to do about it; `to` gives interface, protocol and, without link headers, the destination
    /// (`struct sockaddr_ll`).
    pub fn send(
        &self,
        now: Ktime,
        data: &[u8],
        offload: Offload,
        to: Option<(u32, u16, Mac)>,
    ) -> Result<usize, Errno> {
        let (bound, protocol) = {
            let inner = self.inner.lock();
            (inner.iface, inner.protocol)
        };
        let (index, protocol, mac) = to.unwrap_or((bound, protocol, Mac::default()));
        let link = self.links.get(index).ok_or(Errno::ENXIO)?;
        if !link.is_up() {
            return Err(Errno::ENETDOWN);
        }
        let header = if self.cooked || link.kind == Kind::Tunnel { 0 } else { Ethernet::LEN };
        if data.len() < header {
            return Err(Errno::EINVAL);
        }
        // What is to be cut is no longer than a packet of IP can say.
        let most = if offload.gso.is_some() { usize::from(u16::MAX) } else { link.mtu() as usize };
        if data.len() > most + header {
            return Err(Errno::EMSGSIZE);
        }
        let mut buf = self.links.pool.copy(data);
        if self.cooked && link.kind != Kind::Tunnel {
            buf.push_front(Ethernet { dst: mac, src: link.mac(), kind: U16::new(protocol) }.as_bytes());
        }
        let frame = Frame::with(buf, offload);
        self.taps.show(now, &link, &frame, true);
        if link.kind == Kind::Loopback {
            loop_raw(&link, frame);
        } else {
            send_cut(&link, frame);
        }
        self.links.inbox.finish(&*self.upper, now);
        Ok(data.len())
    }

    /// What a frame takes of the receive buffer.
    fn counts(&self, captured: &Captured) -> usize {
        let header = if self.cooked { 0 } else { Ethernet::LEN };
        truesize::packet(captured.full.saturating_sub(header), captured.protocol == eth::IPV6)
    }

    /// Readiness for poll(2).
    pub fn readiness(&self) -> Events {
        let waiting = !self.inner.lock().queue.is_empty();
        if waiting { Events::OUT | Events::IN } else { Events::OUT }
    }

    /// Ends the socket.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        let Some(watch) = inner.watch.take() else { return };
        inner.queue.clear();
        inner.filter = None;
        drop(inner);
        drop(watch);
        self.taps.fanouts.leave(self, &self.fanout);
        self.taps.sockets.write().retain(|other| !std::ptr::eq(&**other, self));
        self.taps.count.fetch_sub(1, Ordering::AcqRel);
    }

    /// Joins a group (`PACKET_FANOUT`): `EALREADY` for a member, `EINVAL` when the group is of another kind or bound elsewhere.
    pub fn join_fanout(self: &Arc<Self>, wish: FanoutRequest) -> Result<(), Errno> {
        self.taps.fanouts.join(self, &self.fanout, wish, || self.bound())
    }

    /// Number, choice and flags of the socket's group.
    pub fn fanout(&self) -> Option<(u16, Choice, u8)> {
        self.fanout.read().as_ref().map(|group| group.describe())
    }

    /// Sets the program of a group that chooses by one (`PACKET_FANOUT_DATA`).
    pub fn set_fanout_program(&self, program: Arc<dyn Filter>) -> Result<(), Errno> {
        let group = self.fanout.read().clone();
        group.ok_or(Errno::EINVAL)?.set_program(program)
    }

    /// Takes a frame if it is wanted and there is room. A loss is counted, unless there is another socket to ask.
    pub(crate) fn capture(
        &self,
        link: &Iface,
        header: Ethernet,
        frame: &Frame,
        kind: PacketType,
        now: Ktime,
        asks_on: bool,
    ) -> Capturing {
        let mut inner = self.inner.lock();
        let protocol = header.kind.get();
        let wanted = inner.protocol == ALL || (inner.protocol == protocol && kind != PacketType::Outgoing);
        let wanted = wanted && !(inner.incoming_only && kind == PacketType::Outgoing);
        if !wanted || (inner.iface != 0 && inner.iface != link.index) {
            return Capturing::Unwanted;
        }
        let mut data = frame.buf.clone();
        if self.cooked || link.kind == Kind::Tunnel {
            data.trim_front(Ethernet::LEN);
        }
        let full = data.len();
        let keep = inner.filter.as_ref().map_or(usize::MAX, |filter| filter.accept(&data));
        if keep == 0 {
            return Capturing::Unwanted;
        }
        if inner.bytes >= inner.limit || inner.bytes > 0 && inner.charge.is_scarce() {
            inner.statistics.1 = inner.statistics.1.wrapping_add(u32::from(!asks_on));
            return Capturing::Full;
        }
        data.truncate(keep);
        inner.statistics.0 = inner.statistics.0.wrapping_add(1);
        let held = inner.charge.bytes() + data.truesize();
        inner.charge.set(held);
        let (iface, from, offload) = (link.index, header.src, frame.offload);
        let captured = Captured { data, full, iface, protocol, kind, from, offload, at: now };
        inner.bytes += self.counts(&captured);
        inner.queue.push_back(captured);
        drop(inner);
        self.notify.changed(Events::IN);
        Capturing::Taken
    }
}

/// What sees frames, as they are on interfaces: packet sockets, their groups, a capture.
#[derive(Default)]
pub(crate) struct Taps {
    /// What wants to see every packet.
    pub(crate) watchers: Arc<Watchers>,
    sockets: RwLock<Vec<Arc<PacketSocket>>, { rank::PACKET_SOCKETS }>,
    fanouts: Fanouts<PacketSocket>,
    capture: RwLock<Option<Arc<Capture>>>,
    /// Packet sockets and captures; none is the usual case.
    count: AtomicUsize,
}

impl Taps {
    /// Shows a frame, as it is on the interface, to packet sockets and a capture.
    pub(crate) fn show(&self, now: Ktime, link: &Iface, frame: &Frame, outgoing: bool) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.show_to_all(now, link, frame, outgoing);
        }
    }

    fn show_to_all(&self, now: Ktime, link: &Iface, frame: &Frame, outgoing: bool) {
        let mut frame = frame.clone();
        if link.kind == Kind::Tunnel || (link.kind == Kind::Loopback && !is_ethernet(&frame.buf)) {
            // These have no link header. Readers of the loopback interface get one of zeros, as Linux has it there.
            let v6 = frame.buf.first().is_some_and(|first| first >> 4 == 6);
            let kind = U16::new(if v6 { eth::IPV6 } else { eth::IPV4 });
            frame.buf.push_front(Ethernet { dst: Mac::default(), src: Mac::default(), kind }.as_bytes());
        }
        let Some(header) = Ethernet::parse(&frame.buf) else { return };
        let kind = match header.dst {
            _ if outgoing => PacketType::Outgoing,
            Mac::BROADCAST => PacketType::Broadcast,
            dst if dst.is_multicast() => PacketType::Multicast,
            dst if dst == link.mac() => PacketType::Host,
            _ => PacketType::Other,
        };
        for socket in self.sockets.read().iter().filter(|socket| socket.fanout.read().is_none()) {
            socket.capture(link, header, &frame, kind, now, false);
        }
        let member = |socket: &PacketSocket, asks_on| {
            socket.capture(link, header, &frame, kind, now, asks_on) == Capturing::Full
        };
        self.fanouts.each(|group| group.capture(link.index, header.kind.get(), &frame, outgoing, member));
        self.show_capture(CapturedFrame { link, kind, bytes: &frame.buf });
    }

    /// Shows all frames to an observer from now on, until it wants no more; there is one capture at most, the last.
    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        let capture = Arc::new(Capture { observer, watch: Mutex::new(Some(self.watchers.watch())) });
        self.count.fetch_add(1, Ordering::AcqRel);
        let old = self.capture.write().replace(capture);
        if let Some(old) = old {
            self.end_capture(&old);
        }
    }

    /// Shows a frame to the capture, if there is one.
    fn show_capture(&self, frame: CapturedFrame<'_>) {
        let Some(capture) = self.capture.read().clone() else { return };
        if !capture.is_over() && !capture.observer.see(frame) {
            self.end_capture(&capture);
        }
    }

    fn end_capture(&self, capture: &Capture) {
        if capture.watch.lock().take().is_some() {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// All packet sockets, for lists.
    pub(crate) fn rows(&self) -> Vec<PacketRow> {
        self.sockets.read().iter().map(|socket| socket.row()).collect()
    }
}

/// A frame that a packet socket sent to the loopback interface arrives there.
fn loop_raw(link: &Arc<Iface>, mut frame: Frame) {
    frame.buf.trim_front(Ethernet::LEN);
    finish_checksum(&mut frame);
    frame.offload.checksum = Checksum::Given;
    loop_back(0, link, frame);
}

/// True for a frame of the loopback interface that has its header of zeros.
fn is_ethernet(bytes: &[u8]) -> bool {
    bytes.get(..12).is_some_and(|start| start.iter().all(|b| *b == 0))
}

impl fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSocket").field("cooked", &self.cooked).finish_non_exhaustive()
    }
}
