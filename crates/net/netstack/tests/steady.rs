//! Steady traffic allocates nothing.

#![expect(unsafe_code, reason = "a counting allocator has to be an allocator")]

use ktime::Ktime;
use netstack::datagram::{Protocol, SendControl};
use netstack::driver::Device;
use netstack::frame::Frame;
use netstack::iface::{Address, Config, Iface, Kind};
use netstack::notify::Silent;
use netstack::tcp::TcpSocket;
use netstack::wire::eth::Mac;
use netstack::{LOOPBACK, NoAlarm, Stack, addr::Prefix};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: both methods hand their arguments on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Ktime = Ktime::from_millis(1_000_000);

/// Allocations of the second half of `rounds`.
fn steady(rounds: u64, mut round: impl FnMut(u64)) -> u64 {
    (0..rounds / 2).for_each(&mut round);
    let before = COUNT.get();
    (rounds / 2..rounds).for_each(&mut round);
    COUNT.get() - before
}

fn stack() -> Arc<Stack> {
    let stack = Stack::new([3; 16], Arc::new(NoAlarm));
    stack.set_up(LOOPBACK, true).unwrap();
    stack
}

fn pair(stack: &Arc<Stack>) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let listener = stack.tcp_socket(false, Arc::new(Silent));
    listener.bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
    listener.listen(4).unwrap();
    let client = stack.tcp_socket(false, Arc::new(Silent));
    let _ = client.connect(NOW, listener.local());
    let server = listener.accept(Arc::new(Silent)).unwrap();
    (client, server)
}

#[test]
fn streams_over_loopback() {
    for watched in [false, true] {
        let stack = stack();
        let (client, server) = pair(&stack);
        let _watch = watched.then(|| stack.watch());
        let (data, mut out) = (vec![1; 16_384], vec![0; 16_384]);
        let count = steady(4000, |n| {
            let now = NOW.plus(Duration::from_micros(n * 50));
            assert_eq!(client.send(now, &data, false), Ok(data.len()));
            assert_eq!(server.receive(now, &mut out, false), Ok(data.len()));
            assert_eq!(server.send(now, &data[..64], false), Ok(64));
            assert_eq!(client.receive(now, &mut out, false), Ok(64));
            stack.run_timers(now);
        });
        assert_eq!(count, 0, "watched {watched}");
    }
}

#[test]
fn datagrams_over_loopback() {
    let stack = stack();
    let server = stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    server.bind("127.0.0.1:53".parse().unwrap(), true).unwrap();
    let client = stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    client.connect(NOW, "127.0.0.1:53".parse().unwrap()).unwrap();
    let mut out = vec![0; 2000];
    let count = steady(4000, |_| {
        client.send(NOW, &out[..1200], None, &SendControl::default()).unwrap();
        assert_eq!(server.receive(&mut out, false).unwrap().copied, 1200);
    });
    assert_eq!(count, 0);
}

struct Cable(Mutex<VecDeque<Frame>>);

impl Device for Cable {
    fn transmit(&self, frame: Frame) {
        self.0.lock().unwrap().push_back(frame);
    }
}

fn wired(n: u8) -> (Arc<Stack>, Arc<Cable>, Arc<Iface>) {
    let (stack, cable) = (stack(), Arc::new(Cable(Mutex::default())));
    let config =
        Config { name: "eth0".into(), kind: Kind::Ethernet, mac: Mac([2, 0, 0, 0, 0, n]), mtu: 1500 };
    let link = stack.add_link(config, cable.clone()).unwrap();
    stack.set_up(link.index, true).unwrap();
    let prefix = Prefix::new([10, 0, 0, n].into(), 24);
    stack.add_address(link.index, Address::new(prefix)).unwrap();
    (stack, cable, link)
}

#[test]
fn streams_over_a_link() {
    let (a, b) = (wired(1), wired(2));
    let carry = |now| {
        let mut moved = true;
        while moved {
            moved = false;
            for (from, to) in [(&a, &b), (&b, &a)] {
                loop {
                    let frame = from.1.0.lock().unwrap().pop_front();
                    let Some(frame) = frame else { break };
                    to.0.receive(now, to.2.index, frame);
                    moved = true;
                }
            }
        }
    };
    let listener = b.0.tcp_socket(false, Arc::new(Silent));
    listener.bind("10.0.0.2:80".parse().unwrap(), true).unwrap();
    listener.listen(4).unwrap();
    let client = a.0.tcp_socket(false, Arc::new(Silent));
    let _ = client.connect(NOW, listener.local());
    carry(NOW);
    let server = listener.accept(Arc::new(Silent)).unwrap();
    let (data, mut out) = (vec![1; 16_384], vec![0; 1 << 20]);
    let mut bytes = 0;
    let count = steady(6000, |n| {
        let now = NOW.plus(Duration::from_micros(n * 200));
        let _ = client.send(now, &data, false);
        carry(now);
        bytes += server.receive(now, &mut out, false).unwrap_or(0);
        carry(now);
        a.0.run_timers(now);
        b.0.run_timers(now);
    });
    assert!(bytes > 50_000_000, "{bytes}");
    assert_eq!(count, 0);
}

fn config(name: &str, n: u8) -> Config {
    Config { name: name.into(), kind: Kind::Ethernet, mac: Mac([2, 0, 0, 0, 0, n]), mtu: 1500 }
}

/// Two stacks, joined by a pair of interfaces or by a bridge of a third one, which they keep.
fn joined(bridged: bool) -> ((Arc<Stack>, Arc<Stack>), Arc<Stack>) {
    let (a, b, middle) = (stack(), stack(), stack());
    let raise = |stack: &Arc<Stack>, link: &Arc<Iface>, n: u8| {
        stack.set_up(link.index, true).unwrap();
        stack.add_address(link.index, Address::new(Prefix::new([10, 0, 0, n].into(), 24))).unwrap();
    };
    if bridged {
        let bridge = middle.add_bridge(config("br0", 9)).unwrap();
        middle.set_up(bridge.index, true).unwrap();
        for (stack, n) in [(&a, 1), (&b, 2)] {
            let (port, end) =
                middle.add_veth(config(&format!("p{n}"), n + 10), (stack, config("eth0", n))).unwrap();
            middle.set_up(port.index, true).unwrap();
            middle.set_master(port.index, Some(bridge.index)).unwrap();
            raise(stack, &end, n);
        }
    } else {
        let (near, far) = a.add_veth(config("eth0", 1), (&b, config("eth0", 2))).unwrap();
        raise(&a, &near, 1);
        raise(&b, &far, 2);
    }
    ((a, b), middle)
}

/// A connection from one stack to 10.0.0.2 of another.
fn pair_between(a: &Arc<Stack>, b: &Arc<Stack>) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let listener = b.tcp_socket(false, Arc::new(Silent));
    listener.bind("10.0.0.2:80".parse().unwrap(), true).unwrap();
    listener.listen(4).unwrap();
    let client = a.tcp_socket(false, Arc::new(Silent));
    let _ = client.connect(NOW, listener.local());
    (client, listener.accept(Arc::new(Silent)).unwrap())
}

#[test]
fn streams_between_stacks() {
    for bridged in [false, true] {
        let ((a, b), _middle) = joined(bridged);
        let (client, server) = pair_between(&a, &b);
        let (data, mut out) = (vec![1; 16_384], vec![0; 1 << 20]);
        let mut bytes = 0;
        let count = steady(6000, |n| {
            let now = NOW.plus(Duration::from_micros(n * 200));
            let _ = client.send(now, &data, false);
            bytes += server.receive(now, &mut out, false).unwrap_or(0);
            a.run_timers(now);
            b.run_timers(now);
        });
        assert!(bytes > 50_000_000, "{bytes}");
        assert_eq!(count, 0);
    }
}

/// Prints what operations cost: `cargo test --release -p netstack --test steady speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let time = |what: &str, rounds: u64, f: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        (0..rounds).for_each(|_| f());
        println!("{what}: {} ns", start.elapsed().as_nanos() / u128::from(rounds));
    };
    for watched in [false, true] {
        let stack = stack();
        let (client, server) = pair(&stack);
        let _watch = watched.then(|| stack.watch());
        let (data, mut out) = (vec![1; 65_536], vec![0; 65_536]);
        client.configure(NOW, |options| options.nodelay = true);
        let way = if watched { "packets" } else { "direct" };
        time(&format!("64 B write and read, {way}"), 1_000_000, &mut || {
            client.send(NOW, &data[..64], false).unwrap();
            server.receive(NOW, &mut out, false).unwrap();
        });
        time(&format!("32 KiB write and read, {way}"), 100_000, &mut || {
            client.send(NOW, &data[..32_768], false).unwrap();
            server.receive(NOW, &mut out, false).unwrap();
        });
    }
    for bridged in [false, true] {
        let ((a, b), _middle) = joined(bridged);
        let (client, server) = pair_between(&a, &b);
        let (data, mut out) = (vec![1; 65_536], vec![0; 65_536]);
        client.configure(NOW, |options| options.nodelay = true);
        let way = if bridged { "bridge" } else { "pair" };
        for size in [64, 32_768] {
            time(&format!("{size} B write and read over a {way}"), 100_000, &mut || {
                client.send(NOW, &data[..size], false).unwrap();
                server.receive(NOW, &mut out, false).unwrap();
            });
        }
    }
    let stack = stack();
    let listener = stack.tcp_socket(false, Arc::new(Silent));
    listener.bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
    listener.listen(4).unwrap();
    time("connect, accept, close with a reset", 100_000, &mut || {
        let client = stack.tcp_socket(false, Arc::new(Silent));
        let _ = client.connect(NOW, listener.local());
        let server = listener.accept(Arc::new(Silent)).unwrap();
        client.configure(NOW, |options| options.linger = Some(Duration::ZERO));
        client.close(NOW);
        server.close(NOW);
    });
    let server = stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    server.bind("127.0.0.1:53".parse().unwrap(), true).unwrap();
    let client = stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    client.connect(NOW, "127.0.0.1:53".parse().unwrap()).unwrap();
    let mut out = vec![0; 2000];
    time("UDP 64 B write and read", 1_000_000, &mut || {
        client.send(NOW, &[1; 64], None, &SendControl::default()).unwrap();
        server.receive(&mut out, false).unwrap();
    });
}
