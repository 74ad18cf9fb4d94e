//! Veth pairs, bridges, TUN queues, packet sockets, segmentation.

use super::hosts::{T0, exchange, host};
use crate::addr::Prefix;
use crate::capture::{ALL, Filter, PacketType};
use crate::datagram::Protocol;
use crate::driver::Features;
use crate::frame::{Frame, Offload};
use crate::iface::{Address, Config, Iface, Kind, LOOPBACK};
use crate::notify::Silent;
use crate::queue::QueueDevice;
use crate::route::Route;
use crate::wire::eth::Mac;
use crate::{NoAlarm, Stack};
use abi::Errno;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn stack(n: u8) -> Arc<Stack> {
    let stack = Stack::new([n; 16], Arc::new(NoAlarm));
    stack.set_up(LOOPBACK, true).unwrap();
    stack
}

fn config(name: &str, n: u8) -> Config {
    Config { name: name.into(), kind: Kind::Ethernet, mac: Mac([2, 0, 0, 0, 1, n]), mtu: 1500 }
}

fn raise(stack: &Arc<Stack>, link: &Iface, ip: &str) {
    stack.set_up(link.index, true).unwrap();
    let (ip, len) = ip.split_once('/').unwrap();
    let prefix = Prefix::new(ip.parse().unwrap(), len.parse().unwrap());
    stack.add_address(link.index, Address::new(prefix)).unwrap();
}

/// Moves bytes from one stack to another; nothing but the stacks' own operations carries them.
fn transfer(from: &Arc<Stack>, to: &Arc<Stack>, at: &str) {
    let listener = to.tcp_socket(false, Arc::new(Silent));
    listener.bind(addr(at), true).unwrap();
    listener.listen(1).unwrap();
    let client = from.tcp_socket(false, Arc::new(Silent));
    assert_eq!(client.connect(T0, addr(at)), Err(Errno::EINPROGRESS));
    let server = listener.accept(Arc::new(Silent)).unwrap();
    let data: Vec<u8> = (0..2_000_000u32).map(|n| (n * 7) as u8).collect();
    let (mut sent, mut got, mut now, mut out) = (0, Vec::new(), T0, vec![0; 1 << 20]);
    for _ in 0..10_000 {
        sent += client.send(now, &data[sent..], false).unwrap_or(0);
        let n = server.receive(now, &mut out, false).unwrap_or(0);
        got.extend_from_slice(&out[..n]);
        now = now.plus(Duration::from_millis(1));
        from.run_timers(now);
        to.run_timers(now);
        if got.len() == data.len() {
            break;
        }
    }
    assert!(got == data, "{} of {}", got.len(), data.len());
    client.close(now);
    server.close(now);
    listener.close(now);
}

#[test]
fn veth_pairs_join_stacks() {
    let (a, b) = (stack(1), stack(2));
    let (near, far) = a.add_veth(config("veth0", 1), (&b, config("eth0", 2))).unwrap();
    raise(&a, &near, "10.1.0.1/24");
    raise(&b, &far, "10.1.0.2/24");
    transfer(&a, &b, "10.1.0.2:80");
    let packets = near.counters.tx_packets.get();
    assert!(packets < 300, "{packets} packets: segments were not kept together");
    a.remove_link(near.index).unwrap();
    let lost = a.tcp_socket(false, Arc::new(Silent));
    assert_eq!(lost.connect(T0, addr("10.1.0.2:80")), Err(Errno::ENETUNREACH));
}

#[test]
fn bridges_join_links() {
    let (middle, left, right) = (stack(1), stack(2), stack(3));
    let bridge = middle.add_bridge(config("br0", 9)).unwrap();
    raise(&middle, &bridge, "10.2.0.9/24");
    for (n, (stack, ip)) in [(&left, "10.2.0.1/24"), (&right, "10.2.0.2/24")].into_iter().enumerate() {
        let (port, eth) = middle
            .add_veth(config(&format!("port{n}"), 20 + n as u8), (stack, config("eth0", n as u8)))
            .unwrap();
        middle.set_up(port.index, true).unwrap();
        middle.set_master(port.index, Some(bridge.index)).unwrap();
        raise(stack, &eth, ip);
    }
    transfer(&left, &right, "10.2.0.2:80");
    transfer(&left, &middle, "10.2.0.9:80");
    transfer(&middle, &right, "10.2.0.2:81");
    assert_eq!(middle.set_master(bridge.index, Some(bridge.index)), Err(Errno::ELOOP));
}

#[test]
fn routers_cut_what_links_do_not_take_whole() {
    // A stack whose segments stay together behind a router with a plain link.
    let (inner, router, outer) = (stack(4), host(3), host(2));
    let (eth, port) = inner.add_veth(config("eth0", 1), (&router.stack, config("veth0", 2))).unwrap();
    raise(&inner, &eth, "10.3.0.1/24");
    raise(&router.stack, &port, "10.3.0.3/24");
    router.stack.sysctls.ip_forward.set(1).unwrap();
    let all = Prefix::new("0.0.0.0".parse().unwrap(), 0);
    let via = |gateway: &str, link: &Iface| Route::new(all, link.index, Some(gateway.parse().unwrap()));
    inner.with_routes(|routes| routes.add(via("10.3.0.3", &eth))).unwrap();
    outer.stack.with_routes(|routes| routes.add(via("10.0.0.3", &outer.eth))).unwrap();
    let listener = outer.stack.tcp_socket(false, Arc::new(Silent));
    listener.bind(addr("0.0.0.0:80"), true).unwrap();
    listener.listen(1).unwrap();
    let client = inner.tcp_socket(false, Arc::new(Silent));
    assert_eq!(client.connect(T0, addr("10.0.0.2:80")), Err(Errno::EINPROGRESS));
    exchange(T0, &router, &outer);
    let server = listener.accept(Arc::new(Silent)).unwrap();
    client.send(T0, &[9; 14_480], false).unwrap();
    let frames = router.sent();
    assert_eq!((frames.len(), frames.iter().map(|f| f.buf.len()).max()), (10, Some(1514)));
    frames.iter().for_each(|frame| outer.receive(T0, frame));
    exchange(T0, &router, &outer);
    let mut out = vec![0; 20_000];
    assert_eq!(server.receive(T0, &mut out, false), Ok(14_480));
    assert_eq!(outer.stack.counters.tcp.in_csum_errors.get(), 0);
}

#[test]
fn tun_queues_hold_packets() {
    let a = stack(1);
    let device = QueueDevice::new(Features::default(), Arc::new(Silent));
    let tun = Config { kind: Kind::Tunnel, ..config("tun0", 0) };
    let link = a.add_link(tun, device.clone()).unwrap();
    raise(&a, &link, "10.4.0.1/24");
    let socket = a.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    for _ in 0..600 {
        socket.send(T0, b"out", Some(addr("10.4.0.2:7")), &Default::default()).unwrap();
    }
    assert_eq!(std::iter::from_fn(|| device.pop()).count(), 500);
    socket.send(T0, b"out", Some(addr("10.4.0.2:7")), &Default::default()).unwrap();
    let Frame { buf, .. } = device.pop().unwrap();
    assert_eq!((buf[0], buf.len(), &buf[28..]), (0x45, 31, &b"out"[..]));
    // The answer: addresses and ports exchanged, which leaves checksums as they are.
    let mut answer = buf.to_vec();
    for (a, b, n) in [(12, 16, 4), (20, 22, 2)] {
        (0..n).for_each(|k| answer.swap(a + k, b + k));
    }
    a.receive_bytes(T0, link.index, &answer);
    let mut out = [0; 9];
    assert_eq!(socket.receive(&mut out, false).unwrap().copied, 3);
}

struct UdpOnly;

impl Filter for UdpOnly {
    fn accept(&self, packet: &[u8]) -> usize {
        if packet.get(23) == Some(&17) { 40 } else { 0 }
    }
}

#[test]
fn packet_sockets_see_both_directions() {
    let (a, b) = (host(1), host(2));
    let sniffer = a.stack.packet_socket(false, ALL, Arc::new(Silent));
    let socket = a.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    socket.send(T0, b"x", Some(addr("10.0.0.2:9")), &Default::default()).unwrap();
    exchange(T0, &a, &b);
    let all: Vec<_> = std::iter::from_fn(|| sniffer.receive(false).ok()).collect();
    let kinds: Vec<_> = all.iter().map(|c| (c.protocol, c.kind)).collect();
    let (arp, ip) = (0x806, 0x800);
    use PacketType::{Host, Outgoing};
    // The host asks for its peer, sends, is asked itself (or known), and gets an ICMP error.
    assert_eq!(kinds, [(arp, Outgoing), (arp, Host), (ip, Outgoing), (ip, Host)]);
    assert_eq!((sniffer.statistics(), sniffer.statistics()), ((4, 0), (0, 0)));
    sniffer.set_filter(Some(Arc::new(UdpOnly)));
    sniffer.bind(ALL, LOOPBACK).unwrap();
    socket.send(T0, b"local", Some(addr("127.0.0.1:9")), &Default::default()).unwrap();
    let local: Vec<_> = std::iter::from_fn(|| sniffer.receive(false).ok()).collect();
    assert_eq!(local.iter().map(|c| c.kind).collect::<Vec<_>>(), [Outgoing, Host]);
    assert_eq!(
        (local[0].data.len(), local[0].full, &local[0].data[..14]),
        (40, 47, &[&[0; 12][..], &[8, 0]].concat()[..])
    );
    let frame = [&b.eth.mac().0[..], &a.eth.mac().0, &[0x88, 0xb5], b"own protocol"].concat();
    let cooked = b.stack.packet_socket(true, 0x88b5, Arc::new(Silent));
    assert_eq!(
        sniffer.send(T0, &frame, Offload::default(), Some((a.eth.index, 0, Mac::default()))),
        Ok(frame.len())
    );
    exchange(T0, &a, &b);
    let got = cooked.receive(false).unwrap();
    assert_eq!((&*got.data, got.from, got.kind), (&b"own protocol"[..], a.eth.mac(), Host));
    assert_eq!(sniffer.bind(ALL, 77), Err(Errno::ENODEV));
    sniffer.close();
    cooked.close();
    assert!(!a.stack.taps.watchers.any());
}
