//! Chains, tracking and translation on simulated stacks.

use crate::chain::{Chain, priority};
use crate::nat::{self, Manip, Range};
use crate::registry::{Netfilter, Registration};
use crate::{CtState, Family, Packet};
use ktime::Ktime;
use netstack::addr::Prefix;
use netstack::datagram::{DatagramSocket, Protocol};
use netstack::driver::Device;
use netstack::frame::Frame;
use netstack::hooks::{Point, Verdict};
use netstack::iface::{Address, Config, Kind};
use netstack::notify::Silent;
use netstack::wire::eth::Mac;
use netstack::{LOOPBACK, NoAlarm, Stack};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

const T0: Ktime = Ktime::from_millis(1_000_000);

/// A device that keeps what is sent.
#[derive(Default)]
struct Wire(Mutex<VecDeque<Frame>>);

impl Device for Wire {
    fn transmit(&self, frame: Frame) {
        self.0.lock().push_back(frame);
    }
}

struct Rule<F>(F);

impl<F: Fn(&mut Packet<'_>) -> Verdict + Send + Sync> Chain for Rule<F> {
    fn run(&self, packet: &mut Packet<'_>) -> Verdict {
        (self.0)(packet)
    }
}

fn rule(f: impl Fn(&mut Packet<'_>) -> Verdict + Send + Sync + 'static) -> Arc<dyn Chain> {
    Arc::new(Rule(f))
}

struct Host {
    stack: Arc<Stack>,
    netfilter: Arc<Netfilter>,
    wires: Vec<(u32, Arc<Wire>)>,
}

/// A host with a tunnel interface for each address.
fn host(addresses: &[&str]) -> Host {
    let stack = Stack::new([1; 16], Arc::new(NoAlarm));
    stack.set_up(LOOPBACK, true).unwrap();
    let wires = addresses.iter().enumerate().map(|(n, address)| {
        let wire = Arc::new(Wire::default());
        let config = Config { name: format!("tun{n}"), kind: Kind::Tunnel, mac: Mac::default(), mtu: 1500 };
        let link = stack.add_link(config, wire.clone()).unwrap();
        stack.set_up(link.index, true).unwrap();
        stack.add_address(link.index, Address::new(Prefix::new(address.parse().unwrap(), 24))).unwrap();
        (link.index, wire)
    });
    let wires = wires.collect();
    let netfilter = Netfilter::new(&stack, [2; 16]);
    Host { stack, netfilter, wires }
}

impl Host {
    fn udp(&self, bind: &str) -> Arc<DatagramSocket> {
        let socket = self.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
        socket.bind(addr(bind), true).unwrap();
        socket
    }

    fn nat(&self, point: Point, chain: Arc<dyn Chain>) -> Registration {
        self.netfilter.register_nat(Family::V4, point, 0, chain).unwrap()
    }

    fn sent(&self, n: usize) -> Vec<Frame> {
        self.wires[n].1.0.lock().drain(..).collect()
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn send(from: &Arc<DatagramSocket>, to: SocketAddr, data: &[u8]) -> Result<usize, abi::Errno> {
    from.send(T0, data, Some(to), &Default::default())
}

fn receive(socket: &Arc<DatagramSocket>) -> Option<SocketAddr> {
    let mut out = [0; 2000];
    socket.receive(&mut out, false).ok().map(|got| got.datagram.from)
}

#[test]
fn chains_run_in_order_and_end_with_their_registration() {
    let host = host(&[]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let seen = seen.clone();
        rule(move |_| {
            seen.lock().push(name);
            Verdict::Accept
        })
    };
    let add = |at, name| host.netfilter.register(Family::V4, Point::Output, at, note(name)).unwrap();
    let all = [add(priority::FILTER, "filter"), add(priority::RAW, "raw"), add(priority::FILTER, "later")];
    let (a, b) = (host.udp("127.0.0.1:1000"), host.udp("127.0.0.1:53"));
    send(&a, addr("127.0.0.1:53"), b"x").unwrap();
    assert_eq!(*seen.lock(), ["raw", "later", "filter"]);
    assert_eq!(receive(&b), Some(addr("127.0.0.1:1000")));
    drop(all);
    send(&a, addr("127.0.0.1:53"), b"x").unwrap();
    assert_eq!(seen.lock().len(), 3);
}

/// A chain that ends its own registration while it runs.
#[test]
fn a_chain_may_go_while_it_runs() {
    let host = host(&[]);
    let own = Arc::new(Mutex::new(None));
    let held = own.clone();
    let chain = rule(move |_| {
        drop(held.lock().take());
        Verdict::Accept
    });
    *own.lock() = Some(host.nat(Point::Output, chain));
    let socket = host.udp("127.0.0.1:53");
    send(&socket, addr("127.0.0.1:53"), b"x").unwrap();
    assert_eq!(receive(&socket), Some(addr("127.0.0.1:53")));
    assert!(own.lock().is_none() && !host.netfilter.is_tracking());
}

#[test]
fn destinations_are_redirected_and_answers_come_from_where_they_were_asked() {
    let host = host(&["10.0.0.1"]);
    let _nat = host.nat(
        Point::Output,
        rule(|packet| match packet.ports() {
            Some((_, 53)) => nat::redirect(packet, &Range { ports: Some((5353, 5353)), ..Range::default() }),
            _ => Verdict::Accept,
        }),
    );
    let (client, server) = (host.udp("0.0.0.0:1000"), host.udp("127.0.0.1:5353"));
    send(&client, addr("8.8.8.8:53"), b"ask").unwrap_err();
    send(&client, addr("10.0.0.9:53"), b"ask").unwrap();
    let from = receive(&server).unwrap();
    assert_eq!(from, addr("10.0.0.1:1000"));
    send(&server, from, b"answer").unwrap();
    assert_eq!(receive(&client), Some(addr("10.0.0.9:53")));
    assert_eq!(host.netfilter.connections.count(T0.millis()), 1);
    assert!(host.sent(0).is_empty());
}

#[test]
fn forwarded_packets_are_masqueraded() {
    let router = host(&["10.1.0.1", "10.2.0.1"]);
    router.stack.sysctls.ip_forward.set(1).unwrap();
    let out = router.wires[1].0;
    let _nat = router.nat(
        Point::PostRouting,
        rule(move |packet| match packet.output {
            Some(link) if link.index == out => nat::masquerade(packet, &Range::default()),
            _ => Verdict::Accept,
        }),
    );
    let states = Arc::new(Mutex::new(Vec::new()));
    let noted = states.clone();
    let forward = rule(move |packet| {
        noted.lock().push(packet.ct_state());
        Verdict::Accept
    });
    let _filter = router.netfilter.register(Family::V4, Point::Forward, priority::FILTER, forward).unwrap();
    // Two clients with one port: the second one gets another.
    let mut ports = Vec::new();
    for client in ["10.1.0.2", "10.1.0.3"] {
        let inside = host(&[client]);
        let outside = host(&["10.2.0.2"]);
        inside.stack.with_routes(|routes| {
            let all = Prefix::new("0.0.0.0".parse().unwrap(), 0);
            let via = Some("10.1.0.1".parse().unwrap());
            routes.add(netstack::route::Route::new(all, inside.wires[0].0, via)).unwrap();
        });
        let (a, b) = (inside.udp("0.0.0.0:1000"), outside.udp("0.0.0.0:53"));
        send(&a, addr("10.2.0.2:53"), b"ask").unwrap();
        let carry = |from: Vec<Frame>, to: &Host, n: usize| {
            from.into_iter().for_each(|frame| to.stack.receive(T0, to.wires[n].0, frame));
        };
        carry(inside.sent(0), &router, 0);
        carry(router.sent(1), &outside, 0);
        let from = receive(&b).unwrap();
        assert_eq!(from.ip(), addr("10.2.0.1:0").ip());
        ports.push(from.port());
        send(&b, from, b"answer").unwrap();
        carry(outside.sent(0), &router, 1);
        carry(router.sent(0), &inside, 0);
        assert_eq!(receive(&a), Some(addr("10.2.0.2:53")));
        // Nobody listens any more: the error's quote is translated back, too.
        drop(b);
    }
    assert!(ports[0] == 1000 && ports[1] != 1000, "{ports:?}");
    use CtState::{Established, New};
    assert_eq!(*states.lock(), [New, Established, New, Established]);
}

#[test]
fn what_the_range_forbids_is_dropped() {
    let host = host(&["10.0.0.1"]);
    let _nat = host.nat(
        Point::Output,
        rule(|packet| nat::setup(packet, Manip::Dst, &Range::address("::1".parse().unwrap()))),
    );
    assert_eq!(send(&host.udp("0.0.0.0:0"), addr("10.0.0.1:9"), b"x"), Err(abi::Errno::EPERM));
}

/// Prints what a loopback connection costs with rules: `cargo test --release -p netfilter speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    for (rules, way) in ["no rules", "one rule", "connection tracking", "NAT"].into_iter().enumerate() {
        let host = host(&[]);
        let accept = || rule(|_| Verdict::Accept);
        let filter = |point| host.netfilter.register(Family::V4, point, priority::FILTER, accept()).unwrap();
        let _filter = (rules >= 1).then(|| [Point::Input, Point::Output].map(filter));
        let _tracking = (rules >= 2).then(|| host.netfilter.need_conntrack().unwrap());
        let range = Range { ports: Some((8080, 8080)), ..Range::default() };
        let _nat =
            (rules >= 3).then(|| host.nat(Point::Output, rule(move |packet| nat::redirect(packet, &range))));
        let new = || host.stack.tcp_socket(false, Arc::new(Silent));
        let (listener, client) = (new(), new());
        listener.bind(addr("127.0.0.1:8080"), true).unwrap();
        listener.listen(1).unwrap();
        client.configure(T0, |options| options.nodelay = true);
        let to = if rules >= 3 { addr("127.0.0.1:80") } else { listener.local() };
        let _ = client.connect(T0, to);
        let server = listener.accept(Arc::new(Silent)).unwrap();
        let (data, mut out) = (vec![1; 32_768], vec![0; 65_536]);
        for len in [64, 32_768] {
            let start = std::time::Instant::now();
            for _ in 0..100_000 {
                client.send(T0, &data[..len], false).unwrap();
                server.receive(T0, &mut out, false).unwrap();
            }
            println!("{way}, {len} B write and read: {} ns", start.elapsed().as_nanos() / 100_000);
        }
    }
}
