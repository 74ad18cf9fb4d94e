//! [`Stack`]: one network namespace, which is its network layer with sockets on top.

use crate::datagram::{DatagramSocket, Datagrams, Protocol};
use crate::device::iface::{Config, Iface, Inbox, Upper};
use crate::device::inbox::UpperLayer;
use crate::device::packet::PacketSocket;
use crate::device::receive;
use crate::frame::Frame;
use crate::memory::Memory;
use crate::network::change::How;
use crate::network::layer::Network;
use crate::network::schedule::{Alarm, Target};
use crate::notify::Notifier;
use crate::tcp::{FastOpenKeys, Tcp, TcpSocket};
use crate::wire::eth::Mac;
use abi::Errno;
use ktime::Ktime;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// How many times a filter's answers are answered and filtered again at the end of an operation.
const MAX_ROUNDS: usize = 1000;

/// One network namespace; see the crate. What it can do without sockets is [`Network`]'s.
pub struct Stack {
    net: Arc<Network>,
    pub(crate) tcp: Arc<Tcp>,
    pub(crate) datagrams: Arc<Datagrams>,
    me: Weak<Stack>,
}

impl Deref for Stack {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.net
    }
}

impl Stack {
    /// A stack with a loopback interface that is down, as a new network namespace has it.
    pub fn new(seed: [u8; 16], alarm: Arc<dyn Alarm>) -> Arc<Stack> {
        Stack::sharing(seed, |_| alarm, Arc::default(), 0)
    }

    /// The same, with queues that count for a memory which other stacks use as well, and a number. `alarm` makes the alarm of the
    /// stack, which it gets.
    pub fn sharing(
        seed: [u8; 16],
        alarm: impl FnOnce(&Weak<Stack>) -> Arc<dyn Alarm>,
        memory: Arc<Memory>,
        number: u64,
    ) -> Arc<Stack> {
        let stack = Arc::new_cyclic(|me: &Weak<Stack>| {
            let net = Arc::new(Network::new(seed, alarm(me), memory, number));
            let (tcp, datagrams) = (Arc::new(Tcp::new(&net)), Arc::new(Datagrams::new(&net)));
            Stack { net, tcp, datagrams, me: me.clone() }
        });
        let upper: Weak<Upper> = stack.me.clone();
        stack.net.links.inbox.set_upper(upper);
        stack
    }

    // Sockets.

    /// A TCP socket that is not bound.
    pub fn tcp_socket(self: &Arc<Self>, v6: bool, notify: Notifier) -> Arc<TcpSocket> {
        TcpSocket::new(&self.tcp.context(|| self.clone()), v6, notify)
    }

    /// A datagram socket that is not bound. Raw sockets receive from now on.
    pub fn datagram_socket(
        self: &Arc<Self>,
        v6: bool,
        protocol: Protocol,
        notify: Notifier,
    ) -> Arc<DatagramSocket> {
        DatagramSocket::new(&self.datagrams, self.clone(), v6, protocol, notify)
    }

    /// A packet socket for frames of a protocol (`ETH_P_ALL` for every one, 0 for none until it is bound) of all interfaces; `cooked`
    /// (`SOCK_DGRAM`) without link headers.
    pub fn packet_socket(
        self: &Arc<Self>,
        cooked: bool,
        protocol: u16,
        notify: Notifier,
    ) -> Arc<PacketSocket> {
        let limit = self.sysctls.rmem_default.size();
        let layer = (&self.net.links, &self.net.taps, self.clone() as Arc<Upper>);
        PacketSocket::new(layer, cooked, protocol, limit, notify)
    }

    /// The keys of Fast Open cookies.
    pub fn fast_open_keys(&self) -> &FastOpenKeys {
        &self.tcp.fast_open_keys
    }

    /// All TCP sockets, for /proc/net/tcp and sock_diag.
    pub fn tcp_sockets(&self) -> Vec<Arc<TcpSocket>> {
        self.tcp.table.all()
    }

    /// Connections in the table, in TIME-WAIT, and orphans: what /proc/net/sockstat shows.
    pub fn tcp_counts(&self) -> (usize, usize, usize) {
        self.tcp.counts()
    }

    /// All bound UDP sockets, for /proc/net/udp and sock_diag.
    pub fn udp_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        self.datagrams.udp.all()
    }

    /// All bound UDP-Lite sockets.
    pub fn udp_lite_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        self.datagrams.udp_lite.all()
    }

    /// All ping sockets that are bound.
    pub fn ping_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        let mut all = self.datagrams.ping.all();
        all.extend(self.datagrams.ping6.all());
        all
    }

    /// All raw sockets.
    pub fn raw_sockets(&self) -> Vec<Arc<DatagramSocket>> {
        self.datagrams.raw.read().clone()
    }

    // Interfaces of two stacks.

    /// Makes a pair of interfaces that are down: one in this stack, one in `other`, which may be the same.
    pub fn add_veth(
        &self,
        own: Config,
        other: (&Arc<Stack>, Config),
    ) -> Result<(Arc<Iface>, Arc<Iface>), Errno> {
        self.net.add_veth(own, (&other.0.net, other.1))
    }

    // Time.

    /// When [`Stack::run_timers`] is to be called next.
    pub fn next_deadline(&self) -> Option<Ktime> {
        self.timers.next()
    }

    /// Runs what is due.
    pub fn run_timers(&self, now: Ktime) {
        // An entry that is due again at once (a bug elsewhere) must not keep the caller for ever.
        for _ in 0..100_000 {
            let Some(target) = self.timers.pop_due(now) else { break };
            self.expire(target, now);
        }
        self.finish(now);
    }

    fn expire(&self, target: Target, now: Ktime) {
        match target {
            Target::Neighbours => {
                let undeliverable = self.expire_neighbours(now);
                undeliverable.into_iter().for_each(|packet| self.host_unreachable(now, packet));
            }
            Target::Addresses => self.expire_addresses(now),
            Target::Reassembly => self.expire_fragments(now),
            // The end of the operation takes them on.
            Target::Backlog => {}
            Target::Spares => self.age_spares(now),
            Target::Socket(socket) => {
                if let Some(socket) = socket.upgrade() {
                    socket.expire(now);
                }
            }
        }
    }

    // Frames.

    /// Takes a frame that an interface received. Offload descriptors count from the IP header.
    pub fn receive(&self, now: Ktime, iface: u32, frame: Frame) {
        if let Some(iface) = self.link(iface) {
            if let Some((iface, frame)) = receive::receive(&self.taps, now, iface, frame)
                && let Some(packet) = self.input(now, iface, frame)
            {
                self.deliver(&packet);
            }
            self.finish(now);
        }
    }

    /// Takes a frame as bytes; see [`Stack::receive`].
    pub fn receive_bytes(&self, now: Ktime, iface: u32, bytes: &[u8]) {
        let frame = Frame::new(self.pool().copy(bytes));
        self.receive(now, iface, frame);
    }

    /// Sends frames that waited for a neighbour's hardware address.
    pub fn send_waiting(
        &self,
        now: Ktime,
        iface: &Iface,
        mac: Mac,
        waiting: impl IntoIterator<Item = Frame>,
    ) {
        waiting.into_iter().for_each(|frame| self.send_ethernet(now, iface, mac, frame));
        self.finish(now);
    }

    /// Ends an operation: processes loopback traffic, flushes devices, and does the same for stacks that got frames. No lock may be
    /// held.
    pub(crate) fn finish(&self, now: Ktime) {
        self.links.inbox.finish(self, now);
    }
}

impl UpperLayer<Iface> for Stack {
    fn turn(&self, now: Ktime, left: &mut usize, others: &mut Vec<Arc<Inbox>>) {
        let inbox = &self.links.inbox;
        let mut run = || {
            inbox.run(left, |arrival| {
                if let Some((iface, frame)) = receive::take(&self.taps, now, arrival)
                    && let Some(packet) = self.input(now, iface, frame)
                {
                    self.deliver(&packet);
                }
            });
        };
        run();
        // What a filter sends now may be answered here, and filtered again; a bound ends that.
        for _ in 0..MAX_ROUNDS {
            if !self.filter.run_deferred(&*self.net, now) {
                break;
            }
            run();
        }
        if *left == 0 {
            self.put_off(now);
        }
        inbox.take_handed(others);
        self.links.flush(others);
    }

    fn put_off(&self, now: Ktime) {
        self.net.put_off(now);
    }

    fn ended(&self, now: Ktime) {
        self.watch_spares(now);
    }

    fn carrier_changed(&self, iface: &Arc<Iface>) {
        self.net.carrier_changed(iface);
    }

    fn remove(&self, index: u32) -> Option<Arc<Iface>> {
        self.take_out(index, How::Gone).unwrap_or_default()
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("links", &self.links()).finish_non_exhaustive()
    }
}
