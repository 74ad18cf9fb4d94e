//! UDP, ping and raw sockets.

use super::hosts::{Host, T0, exchange, host};
use crate::datagram::{DatagramSocket, Origin, Protocol, SendControl};
use crate::notify::{Events, Silent};
use crate::options::MtuDiscovery;
use crate::stack::Stack;
use abi::Errno;
use std::net::SocketAddr;
use std::sync::Arc;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn socket(stack: &Arc<Stack>, v6: bool) -> Arc<DatagramSocket> {
    stack.datagram_socket(v6, Protocol::Udp, Arc::new(Silent))
}

fn bound(host: &Host, at: &str) -> Arc<DatagramSocket> {
    let socket = socket(&host.stack, at.starts_with('['));
    socket.bind(addr(at), true).unwrap();
    socket
}

fn send(socket: &Arc<DatagramSocket>, data: &[u8], to: &str) -> Result<usize, Errno> {
    socket.send(T0, data, Some(addr(to)), &SendControl::default())
}

fn receive(socket: &DatagramSocket) -> Result<(Vec<u8>, SocketAddr), Errno> {
    let mut out = vec![0; 65536];
    let got = socket.receive(&mut out, false)?;
    out.truncate(got.copied);
    Ok((out, got.datagram.from))
}

#[test]
fn datagrams_cross_the_wire_and_loopback() {
    let (a, b) = (host(1), host(2));
    let (server, client) = (bound(&b, "0.0.0.0:53"), socket(&a.stack, false));
    for len in [0, 1, 1472, 1473, 9000, 65_507] {
        let data = vec![len as u8; len];
        assert_eq!(send(&client, &data, "10.0.0.2:53"), Ok(len));
        exchange(T0, &a, &b);
        let (got, from) = receive(&server).unwrap();
        assert!(got == data && from == addr(&format!("10.0.0.1:{}", client.local().port())));
    }
    assert_eq!(send(&client, &[0; 65_508], "10.0.0.2:53"), Err(Errno::EMSGSIZE));
    assert_eq!(send(&client, b"", "10.0.0.2:0"), Err(Errno::EINVAL));
    let local = bound(&a, "[::1]:7");
    send(&socket(&a.stack, true), b"six", "[::1]:7").unwrap();
    assert_eq!(receive(&local).unwrap().0, b"six");
    assert_eq!(receive(&local), Err(Errno::EAGAIN));
}

#[test]
fn dual_sockets_take_both_families() {
    let a = host(1);
    let dual = bound(&a, "[::]:9");
    send(&socket(&a.stack, false), b"four", "127.0.0.1:9").unwrap();
    let (data, from) = receive(&dual).unwrap();
    assert_eq!((&data[..], dual.shown(from).ip()), (&b"four"[..], "::ffff:127.0.0.1".parse().unwrap()));
    let four = socket(&a.stack, false);
    assert_eq!(four.bind(addr("0.0.0.0:9"), true), Err(Errno::EADDRINUSE));
    let only = socket(&a.stack, true);
    only.configure(T0, |options| options.v6only = true);
    assert_eq!(only.bind(addr("[::]:9"), true), Err(Errno::EADDRINUSE));
    assert_eq!(only.bind(addr("[::ffff:127.0.0.1]:9"), true), Err(Errno::ENETUNREACH));
}

#[test]
fn binding_has_its_rules() {
    let a = host(1);
    let one = socket(&a.stack, false);
    assert_eq!(one.bind(addr("9.9.9.9:5000"), true), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(one.bind(addr("127.0.0.1:80"), false), Err(Errno::EACCES));
    assert_eq!(one.bind(addr("[::1]:5000"), false), Err(Errno::EAFNOSUPPORT));
    one.bind(addr("127.0.0.1:5000"), false).unwrap();
    assert_eq!(one.bind(addr("127.0.0.1:5001"), false), Err(Errno::EINVAL));
    let two = socket(&a.stack, false);
    assert_eq!(two.bind(addr("127.0.0.1:5000"), false), Err(Errno::EADDRINUSE));
    one.close();
    two.bind(addr("127.0.0.1:5000"), false).unwrap();
    a.stack.sysctls.port_low.set(40_000).unwrap();
    a.stack.sysctls.port_high.set(40_009).unwrap();
    let sockets: Vec<_> = (0..11).map(|_| socket(&a.stack, false)).collect();
    let results: Vec<_> = sockets.iter().map(|s| s.bind(addr("0.0.0.0:0"), false)).collect();
    assert!(results[..10].iter().all(Result::is_ok) && results[10] == Err(Errno::EADDRINUSE));
}

#[test]
fn closed_ports_answer_with_an_error() {
    let (a, b) = (host(1), host(2));
    let client = socket(&a.stack, false);
    send(&client, b"x", "10.0.0.2:9").unwrap();
    exchange(T0, &a, &b);
    assert_eq!(client.take_error(), None, "not connected");
    client.connect(T0, addr("10.0.0.2:9")).unwrap();
    client.send(T0, b"x", None, &SendControl::default()).unwrap();
    exchange(T0, &a, &b);
    assert!(client.readiness().contains(Events::ERR));
    assert_eq!(receive(&client), Err(Errno::ECONNREFUSED));
    client.configure(T0, |options| options.receive_errors = true);
    client.send(T0, b"hello", None, &SendControl::default()).unwrap();
    exchange(T0, &a, &b);
    let error = client.receive_error().unwrap();
    assert_eq!(
        (error.errno, error.origin, error.kind, error.code),
        (Errno::ECONNREFUSED, Origin::Icmp, 3, 3)
    );
    assert_eq!((&*error.data, error.to), (&b"hello"[..], addr("10.0.0.2:9")));
    send(&socket(&a.stack, true), b"x", "[2001:db8::2]:9").unwrap();
    exchange(T0, &a, &b);
    let counters = &b.stack.counters;
    assert_eq!((counters.icmp6_kinds.sent(1), counters.icmp6.out_errors.get()), (1, 0));
    assert_eq!((a.stack.counters.icmp6_kinds.received(1), counters.udp6.no_ports.get()), (1, 1));
}

#[test]
fn connected_sockets_hear_their_peer_only() {
    let a = host(1);
    let (server, one, two) = (bound(&a, "127.0.0.1:7"), bound(&a, "127.0.0.1:11"), bound(&a, "127.0.0.1:12"));
    server.connect(T0, addr("127.0.0.1:11")).unwrap();
    assert_eq!(send(&two, b"two", "127.0.0.1:7"), Ok(3));
    assert_eq!(two.take_error(), None);
    send(&one, b"one", "127.0.0.1:7").unwrap();
    assert_eq!(receive(&server).unwrap().0, b"one");
    assert_eq!(receive(&server), Err(Errno::EAGAIN));
    server.disconnect();
    send(&two, b"two", "127.0.0.1:7").unwrap();
    assert_eq!(receive(&server).unwrap().0, b"two");
    assert_eq!(server.send(T0, b"", None, &SendControl::default()), Err(Errno::EDESTADDRREQ));
}

#[test]
fn broadcast_and_multicast_reach_all() {
    let (a, b) = (host(1), host(2));
    let sender = socket(&a.stack, false);
    assert_eq!(send(&sender, b"x", "10.0.0.255:7"), Err(Errno::EACCES));
    sender.configure(T0, |options| options.broadcast = true);
    let shared: Vec<_> = (0..2)
        .map(|_| {
            let socket = socket(&b.stack, false);
            socket.configure(T0, |options| options.reuse_addr = true);
            socket.bind(addr("0.0.0.0:7"), true).unwrap();
            socket
        })
        .collect();
    send(&sender, b"all", "10.0.0.255:7").unwrap();
    exchange(T0, &a, &b);
    assert!(shared.iter().all(|socket| receive(socket).unwrap().0 == b"all"));
    let group = "239.1.2.3".parse().unwrap();
    sender.configure(T0, |options| options.multicast_device = a.eth.index);
    send(&sender, b"none", "239.1.2.3:7").unwrap();
    exchange(T0, &a, &b);
    assert_eq!(receive(&shared[0]), Err(Errno::EAGAIN));
    shared[0].join(T0, group, b.eth.index).unwrap();
    assert_eq!(shared[0].join(T0, group, b.eth.index), Err(Errno::EADDRINUSE));
    assert_eq!(exchange(T0, &a, &b), 1, "a report");
    shared[1].configure(T0, |options| options.multicast_all = false);
    send(&sender, b"group", "239.1.2.3:7").unwrap();
    exchange(T0, &a, &b);
    assert_eq!(receive(&shared[0]).unwrap().0, b"group");
    assert_eq!(receive(&shared[1]), Err(Errno::EAGAIN));
    // A router's query is answered; hosts ask no questions, so one is made up.
    let mut query = vec![0x11, 100, 0, 0, 0, 0, 0, 0];
    let sum = crate::checksum::Sum::new().with(&query).finish();
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    let router = a.stack.datagram_socket(false, Protocol::Raw(2), Arc::new(Silent));
    router.configure(T0, |options| options.multicast_device = a.eth.index);
    router.send(T0, &query, Some(addr("224.0.0.1:0")), &SendControl::default()).unwrap();
    assert_eq!(exchange(T0, &a, &b), 2);
    router.close();
    shared[0].close();
    assert!(!b.eth.is_member(group));
}

#[test]
fn reuseport_shares_by_flow() {
    let a = host(1);
    let servers: Vec<_> = (0..4)
        .map(|_| {
            let socket = socket(&a.stack, false);
            socket.configure(T0, |options| options.reuse_port = true);
            socket.bind(addr("127.0.0.1:7"), true).unwrap();
            socket
        })
        .collect();
    for _ in 0..200 {
        send(&socket(&a.stack, false), b"x", "127.0.0.1:7").unwrap();
    }
    let counts = servers.iter().map(|s| std::iter::from_fn(|| receive(s).ok()).count()).collect::<Vec<_>>();
    assert!(counts.iter().sum::<usize>() == 200 && counts.iter().all(|n| *n > 20), "{counts:?}");
}

#[test]
fn corks_segments_and_limits() {
    let a = host(1);
    let (server, client) = (bound(&a, "127.0.0.1:7"), socket(&a.stack, false));
    let more = SendControl { more: true, ..SendControl::default() };
    client.send(T0, b"one ", Some(addr("127.0.0.1:7")), &more).unwrap();
    assert_eq!(receive(&server), Err(Errno::EAGAIN));
    send(&client, b"two", "127.0.0.1:7").unwrap();
    assert_eq!(receive(&server).unwrap().0, b"one two");
    let segment = SendControl { segment: 4, ..SendControl::default() };
    client.send(T0, b"0123456789", Some(addr("127.0.0.1:7")), &segment).unwrap();
    let parts: Vec<_> = std::iter::from_fn(|| receive(&server).ok()).map(|(data, _)| data.len()).collect();
    assert_eq!(parts, [4, 4, 2]);
    server.configure(T0, |options| options.receive_buffer = 10_000);
    (0..50).for_each(|_| assert_eq!(send(&client, &[0; 1000], "127.0.0.1:7"), Ok(1000)));
    let kept = std::iter::from_fn(|| receive(&server).ok()).count();
    assert!((3..=10).contains(&kept) && server.queue_state() == (0, 50 - kept as u32));
    let wide = socket(&a.stack, false);
    wide.configure(T0, |o| (o.mtu_discovery, o.receive_errors) = (MtuDiscovery::Do, true));
    assert_eq!(send(&wide, &[0; 2000], "10.0.0.9:7"), Err(Errno::EMSGSIZE));
    assert_eq!(wide.receive_error().unwrap().info, 1500);
}

#[test]
fn ping_and_raw_sockets() {
    let (a, b) = (host(1), host(2));
    let ping = a.stack.datagram_socket(false, Protocol::Ping, Arc::new(Silent));
    let raw = a.stack.datagram_socket(false, Protocol::Raw(1), Arc::new(Silent));
    send(&ping, &[8, 0, 0, 0, 9, 9, 0, 1, b'h', b'i'], "10.0.0.2:0").unwrap();
    exchange(T0, &a, &b);
    let (reply, from) = receive(&ping).unwrap();
    let ident = ping.local().port().to_be_bytes();
    assert_eq!((reply[0], &reply[4..6], &reply[8..], from), (0, &ident[..], &b"hi"[..], addr("10.0.0.2:0")));
    let (packet, _) = receive(&raw).unwrap();
    assert_eq!((packet[0], packet[9], packet.len()), (0x45, 1, 30));
    assert_eq!(send(&ping, &[0; 8], "10.0.0.2:0"), Err(Errno::EINVAL));
    let sender = a.stack.datagram_socket(false, Protocol::Raw(99), Arc::new(Silent));
    let getter = b.stack.datagram_socket(false, Protocol::Raw(99), Arc::new(Silent));
    send(&sender, b"raw", "10.0.0.2:0").unwrap();
    exchange(T0, &a, &b);
    assert_eq!(&receive(&getter).unwrap().0[20..], b"raw");
    getter.close();
    sender.connect(T0, addr("10.0.0.2:0")).unwrap();
    send(&sender, b"raw", "10.0.0.2:0").unwrap();
    exchange(T0, &a, &b);
    assert_eq!(sender.take_error(), Some(Errno::ENOPROTOOPT));
}

#[test]
fn shutting_down_without_a_peer_is_an_error_and_happens() {
    let socket = bound(&host(1), "127.0.0.1:9");
    assert_eq!(socket.shutdown(true, false), Err(Errno::ENOTCONN));
    assert!(socket.readiness().contains(Events::RDHUP));
}

#[test]
fn a_port_is_shared_by_options_set_after_bind() {
    let host = host(1);
    let (first, second) = (bound(&host, "127.0.0.1:9"), socket(&host.stack, false));
    second.configure(T0, |options| options.reuse_addr = true);
    assert_eq!(second.bind(addr("127.0.0.1:9"), true), Err(Errno::EADDRINUSE));
    first.configure(T0, |options| options.reuse_addr = true);
    assert_eq!(second.bind(addr("127.0.0.1:9"), true), Ok(()));
}

/// A group datagram over the loopback interface arrives once, and at members only.
#[test]
fn groups_on_the_loopback_interface() {
    let host = host(1);
    let (reader, writer) = (bound(&host, "0.0.0.0:9"), socket(&host.stack, false));
    writer.configure(T0, |options| options.multicast_device = crate::LOOPBACK);
    let group = addr("239.1.2.3:9");
    send(&writer, b"nobody", "239.1.2.3:9").unwrap();
    assert_eq!(receive(&reader).err(), Some(Errno::EAGAIN));
    reader.join(T0, group.ip(), crate::LOOPBACK).unwrap();
    send(&writer, b"once", "239.1.2.3:9").unwrap();
    assert_eq!(receive(&reader).unwrap().0, b"once");
    assert_eq!(receive(&reader).err(), Some(Errno::EAGAIN));
}

/// The length field of IPv4 has 16 bits, whatever the interface's MTU is.
#[test]
fn paths_of_ipv4_are_bounded() {
    let host = host(1);
    for (to, mtu) in [("127.0.0.1:9", 65_535), ("[::1]:9", 65_536)] {
        let socket = socket(&host.stack, to.starts_with('['));
        assert_eq!(socket.path_mtu(), None);
        socket.connect(T0, addr(to)).unwrap();
        assert_eq!(socket.path_mtu(), Some(mtu));
    }
}

/// A filter sees the header of UDP, and cuts what it lets through.
#[test]
fn socket_filters() {
    struct Ends(usize);
    impl crate::capture::Filter for Ends {
        fn accept(&self, packet: &[u8]) -> usize {
            if packet.last() == Some(&b'y') { self.0 } else { 0 }
        }
    }
    let host = host(1);
    let (reader, writer) = (bound(&host, "127.0.0.1:9"), socket(&host.stack, false));
    assert!(!reader.set_filter(Some(Arc::new(Ends(8 + 2)))));
    send(&writer, b"no", "127.0.0.1:9").unwrap();
    send(&writer, b"many", "127.0.0.1:9").unwrap();
    assert_eq!(receive(&reader).unwrap().0, b"ma");
    assert_eq!(receive(&reader).err(), Some(Errno::EAGAIN));
    assert!(reader.set_filter(None));
    send(&writer, b"no", "127.0.0.1:9").unwrap();
    assert_eq!(receive(&reader).unwrap().0, b"no");
}

#[test]
fn pieces_are_joined_up_to_the_limit() {
    let a = host(1);
    let (server, client) = (bound(&a, "127.0.0.1:7"), socket(&a.stack, false));
    let to = Some(addr("127.0.0.1:7"));
    let segment = SendControl { segment: 400, ..SendControl::default() };
    server.configure(T0, |options| options.gro = true);
    let data: Vec<u8> = (0..1000).map(|n| (n / 7) as u8).collect();
    client.send(T0, &data, to, &segment).unwrap();
    client.send(T0, &data, to, &segment).unwrap();
    for _ in 0..2 {
        assert_eq!(receive(&server).unwrap().0, data);
    }
    assert_eq!((receive(&server), a.stack.memory.used()), (Err(Errno::EAGAIN), 0));
    // What has no room is lost; the rest is whole datagrams.
    server.configure(T0, |options| options.receive_buffer = 10_000);
    for _ in 0..50 {
        client.send(T0, &[1; 4000], to, &segment).unwrap();
    }
    let lengths: Vec<usize> =
        std::iter::from_fn(|| receive(&server).ok()).map(|(data, _)| data.len()).collect();
    assert!((2..50).contains(&lengths.len()) && lengths.iter().all(|len| len % 400 == 0), "{lengths:?}");
    assert_eq!(a.stack.memory.used(), 0);
}
