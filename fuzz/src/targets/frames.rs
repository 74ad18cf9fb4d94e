//! Frames that an interface of the host delivers to a stack with open connections.
//!
//! Host A is the one that is attacked. Host B has a connection to it, sends it datagrams that are cut into fragments,
//! and asks for its address. An input is a list of steps: what B does; how the frames on the way are changed, lost,
//! repeated and delayed; frames of the input's own with a virtio-net header; programs that read; time.

use super::{Bytes, outcome};
use ktime::Ktime;
use netstack::addr::Prefix;
use netstack::datagram::{DatagramSocket, Protocol};
use netstack::driver::{Device, Features};
use netstack::frame::{Checksum, Frame, Offload};
use netstack::iface::{Address, Config, Kind};
use netstack::notify::Silent;
use netstack::tcp::TcpSocket;
use netstack::wire::eth::Mac;
use netstack::{LOOPBACK, NoAlarm, Stack, vnet};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) const WORDS: &[&str] = &[
    "\u{8}\0E\0",
    "\u{8}\u{6}\0\u{1}\u{8}\0\u{6}\u{4}\0\u{1}",
    "\u{2}\0\0\0\0\u{1}\u{2}\0\0\0\0\u{2}\u{8}\0",
    "\u{0}\u{50}\0\u{35}",
    "\u{1}\u{1}\u{5}\u{a}",
];

/// Steps of an input at most, and frames that wait on the way.
const STEPS: usize = 200;
const ON_THE_WAY: usize = 64;
/// Bytes that the queues of all sockets may hold; one more answer may come on top.
const MEMORY: usize = 1 << 20;
const BEYOND: usize = 512 << 10;

/// A device that keeps what is sent.
#[derive(Default)]
struct Wire(Mutex<VecDeque<Frame>>);

impl Wire {
    fn take(&self) -> Vec<Frame> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

impl Device for Wire {
    fn features(&self) -> Features {
        Features { checksum: true, tso4: true, tso6: true }
    }

    fn transmit(&self, frame: Frame) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.len() < 1000 {
            sent.push_back(frame);
        }
    }
}

struct Host {
    stack: Arc<Stack>,
    wire: Arc<Wire>,
    index: u32,
}

/// Host `n`: 10.0.0.n/24 and 2001:db8::n/64.
fn host(n: u8) -> Option<Host> {
    let stack = Stack::new([n; 16], Arc::new(NoAlarm));
    stack.set_up(LOOPBACK, true).ok()?;
    stack.memory.set_limit(MEMORY);
    let wire = Arc::new(Wire::default());
    let mac = Mac([2, 0, 0, 0, 0, n]);
    let config = Config { name: "eth0".into(), kind: Kind::Ethernet, mac, mtu: 1500 };
    let index = stack.add_link(config, wire.clone()).ok()?.index;
    stack.set_up(index, true).ok()?;
    for (ip, len) in [(format!("10.0.0.{n}"), 24), (format!("2001:db8::{n:x}"), 64)] {
        stack.add_address(index, Address::new(Prefix::new(ip.parse().ok()?, len))).ok()?;
    }
    Some(Host { stack, wire, index })
}

/// Carries frames between two hosts for a few rounds.
fn exchange(now: Ktime, a: &Host, b: &Host) {
    for _ in 0..20 {
        let (from_a, from_b) = (a.wire.take(), b.wire.take());
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a.into_iter().for_each(|frame| b.stack.receive(now, b.index, frame));
        from_b.into_iter().for_each(|frame| a.stack.receive(now, a.index, frame));
    }
}

fn tcp(stack: &Arc<Stack>, v6: bool) -> Arc<TcpSocket> {
    stack.tcp_socket(v6, Arc::new(Silent))
}

/// Two hosts, a connection between them, and what lies on the way from B to A.
struct World {
    now: Ktime,
    a: Host,
    b: Host,
    listener: Arc<TcpSocket>,
    server: Arc<TcpSocket>,
    client: Arc<TcpSocket>,
    udp: Arc<DatagramSocket>,
    sender: Arc<DatagramSocket>,
    to: SocketAddr,
    way: VecDeque<Frame>,
}

impl World {
    fn new(v6: bool) -> Option<World> {
        let now = Ktime::from_millis(1_000_000);
        let (a, b) = (host(1)?, host(2)?);
        let (any, ip) = if v6 { ("[::]", "[2001:db8::1]") } else { ("0.0.0.0", "10.0.0.1") };
        let at = |ip: &str, port: u16| format!("{ip}:{port}").parse().ok();
        let listener = tcp(&a.stack, v6);
        listener.bind(at(any, 80)?, true).ok()?;
        listener.listen(16).ok()?;
        let client = tcp(&b.stack, v6);
        // It goes on by itself.
        let _ = client.connect(now, at(ip, 80)?);
        exchange(now, &a, &b);
        let server = listener.accept(Arc::new(Silent)).ok()?;
        let udp = a.stack.datagram_socket(v6, Protocol::Udp, Arc::new(Silent));
        udp.bind(at(any, 53)?, true).ok()?;
        let sender = b.stack.datagram_socket(v6, Protocol::Udp, Arc::new(Silent));
        let to = at(ip, 53)?;
        Some(World { now, a, b, listener, server, client, udp, sender, to, way: VecDeque::new() })
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 10 {
            0 => drop(self.client.send(self.now, &vec![7; usize::from(bytes.byte()) * 64 + 1], false)),
            1 => {
                let data = vec![8; usize::from(bytes.byte()) * 32];
                let _ = self.sender.send(self.now, &data, Some(self.to), &Default::default());
            }
            2 => drop(self.server.send(self.now, &vec![9; usize::from(bytes.byte()) * 64 + 1], false)),
            3 => {
                let mut out = [0; 5000];
                drop((self.server.receive(self.now, &mut out, false), self.udp.receive(&mut out, false)));
            }
            4 => {
                self.now = self.now.plus(Duration::from_millis(u64::from(bytes.byte()) * 8));
                self.a.stack.run_timers(self.now);
                self.b.stack.run_timers(self.now);
            }
            5 => self.deliver(0),
            6 => {
                let changes = usize::from(bytes.byte() % 6);
                self.change(bytes, changes);
                self.deliver(0);
            }
            7 => match bytes.byte() % 4 {
                0 => drop(self.way.pop_front()),
                1 => self.way.extend(self.way.front().cloned()),
                2 => self.deliver(self.way.len().saturating_sub(1)),
                _ => self.way.rotate_left(1.min(self.way.len())),
            },
            8 => self.raw(bytes),
            _ => match bytes.byte() % 4 {
                0 => drop(self.client.shutdown(self.now, false, true)),
                1 => drop(self.server.shutdown(self.now, true, false)),
                2 => {
                    let key = (self.b.index, self.to.ip());
                    let _ = self.b.stack.with_neighbours(|all| all.remove(&key));
                }
                _ => drop(self.listener.accept(Arc::new(Silent)).map(|other| other.close(self.now))),
            },
        }
        self.way.extend(self.b.wire.take());
        self.way.truncate(ON_THE_WAY);
        for frame in self.a.wire.take() {
            self.b.stack.receive(self.now, self.b.index, frame);
        }
    }

    /// Changes bytes of the frame that comes next. Its checksum is vouched for, so that what lies behind is reached.
    fn change(&mut self, bytes: &mut Bytes<'_>, changes: usize) {
        let Some(frame) = self.way.front_mut() else { return };
        let mut changed = frame.buf.to_vec();
        for _ in 0..changes {
            let (at, value) = (usize::from(bytes.byte()), bytes.byte());
            if let Some(byte) = changed.get_mut(at) {
                *byte = value;
            }
        }
        if changes == 0 {
            changed.truncate(usize::from(bytes.byte()));
        }
        let checksum = if bytes.byte() & 1 == 0 { Checksum::Valid } else { frame.offload.checksum };
        let offload = Offload { checksum, ..frame.offload };
        *frame = Frame::with(self.a.stack.pool().copy(&changed), offload);
    }

    fn deliver(&mut self, which: usize) {
        if let Some(frame) = self.way.remove(which) {
            self.a.stack.receive(self.now, self.a.index, frame);
        }
    }

    /// A frame of the input's own, taken as `hostlink` takes it.
    fn raw(&mut self, bytes: &mut Bytes<'_>) {
        let header: [u8; vnet::HEADER] = std::array::from_fn(|_| bytes.byte());
        let length = usize::from(bytes.byte()) * 4;
        let (frame, rest) = bytes.0.split_at(length.min(bytes.0.len()));
        bytes.0 = rest;
        let stack = &self.a.stack;
        let take = |bytes: &[u8], offload| {
            stack.receive(self.now, self.a.index, Frame::with(stack.pool().copy(bytes), offload));
        };
        if let Some(parts) = vnet::cut_datagrams(&header, frame, vnet::ETHERNET) {
            let offload = Offload { checksum: Checksum::Valid, gso: None };
            parts.iter().for_each(|part| take(part, offload));
        } else if let Some(offload) = vnet::decode(&header, frame, vnet::ETHERNET) {
            take(frame, offload);
        }
    }

    /// Programs of the host that is attacked still reach each other.
    fn lives(&self) {
        let (stack, now) = (&self.a.stack, self.now);
        let (listener, client) = (tcp(stack, false), tcp(stack, false));
        let bound = listener.bind(SocketAddr::from(([127, 0, 0, 1], 0)), true);
        assert!(bound.is_ok() && listener.listen(1).is_ok(), "a program listens");
        let _ = client.connect(now, listener.local());
        let server = listener.accept(Arc::new(Silent)).expect("a connection is made");
        assert_eq!(client.send(now, b"alive", false), Ok(5));
        assert_eq!(server.receive(now, &mut [0; 9], false), Ok(5));
        listener.close(now);
        client.abort(now);
        server.abort(now);
    }

    /// Closes all sockets. Nothing is left of the hosts then, once what was under way has timed out.
    fn end(mut self) {
        let (a, b) = (Arc::downgrade(&self.a.stack), Arc::downgrade(&self.b.stack));
        self.listener.close(self.now);
        self.server.abort(self.now);
        self.client.abort(self.now);
        self.udp.close();
        self.sender.close();
        for _ in 0..30 {
            self.now = self.now.plus(Duration::from_secs(60));
            self.a.stack.run_timers(self.now);
            self.b.stack.run_timers(self.now);
        }
        drop(self);
        assert!(a.upgrade().is_none() && b.upgrade().is_none(), "nothing is left of the hosts");
    }
}

pub(super) fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let v6 = bytes.byte() & 1 == 1;
    let mut world = World::new(v6).expect("two hosts are connected");
    for _ in 0..STEPS {
        if bytes.0.is_empty() {
            break;
        }
        world.step(&mut bytes);
        let used = world.a.stack.memory.used();
        assert!(used <= MEMORY + BEYOND, "{used} bytes are held");
    }
    world.lives();
    let counters = &world.a.stack.counters;
    let some =
        |values: Vec<(&'static str, u64)>| -> Vec<bool> { values.iter().map(|(_, n)| *n > 0).collect() };
    let came = outcome((
        v6,
        world.server.state() as u8,
        world.client.state() as u8,
        (some(counters.tcp.values()), some(counters.udp.values())),
        (
            some(counters.ip_of(world.to.ip()).values()),
            some(counters.icmp.values()),
            some(counters.icmp6.values()),
        ),
        world.a.stack.tcp_counts().0.min(4),
    ));
    world.end();
    came
}
