//! Sockets through a checkpoint: what one stack saves, another goes on with.

use super::hosts::{Host, T0, exchange, host};
use crate::Stack;
use crate::datagram::{DatagramSocket, Protocol};
use crate::notify::{Events, Silent};
use crate::tcp::{Outside, Placed, State, TcpSocket, TcpSockets};
use crate::testing::Random;
use abi::Errno;
use ciborium::Value;
use ktime::Ktime;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// As it comes out of an image.
fn through<T: Serialize + DeserializeOwned>(state: &T) -> T {
    let mut bytes = Vec::new();
    ciborium::into_writer(state, &mut bytes).unwrap();
    ciborium::from_reader(&bytes[..]).unwrap()
}

fn stream(stack: &Arc<Stack>) -> Arc<TcpSocket> {
    stack.tcp_socket(false, Arc::new(Silent))
}

fn listener(host: &Host, at: &str) -> Arc<TcpSocket> {
    let socket = stream(&host.stack);
    socket.bind(addr(at), true).unwrap();
    socket.listen(16).unwrap();
    socket
}

fn connect(stack: &Arc<Stack>, to: SocketAddr) -> Arc<TcpSocket> {
    let socket = stream(stack);
    assert_eq!(socket.connect(T0, to), Err(Errno::EINPROGRESS));
    socket
}

fn pair(host: &Host) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let listener = listener(host, "127.0.0.1:0");
    let client = connect(&host.stack, listener.local());
    let server = listener.accept(Arc::new(Silent)).unwrap();
    listener.close(T0);
    (client, server)
}

fn read(socket: &TcpSocket, now: Ktime) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; 1 << 20];
    let n = socket.receive(now, &mut out, false)?;
    out.truncate(n);
    Ok(out)
}

fn save(from: &Host, owned: &[&Arc<TcpSocket>], now: Ktime) -> TcpSockets {
    let owned: Vec<_> = owned.iter().copied().cloned().collect();
    let saved = from.stack.save_tcp(&owned, now, &|ip| !from.stack.is_local(ip)).unwrap();
    through(&saved)
}

/// The saved sockets in another host of the same addresses.
fn restore(saved: TcpSockets, now: Ktime, outside: Outside) -> (Host, Vec<Arc<TcpSocket>>) {
    let to = host(1);
    let mut placed = Placed::default();
    let owned = saved.owned.into_iter();
    let owned = owned.map(|one| to.stack.place_tcp(one, Some(Arc::new(Silent)), &mut placed).unwrap());
    let owned = owned.collect();
    for one in saved.orphans {
        to.stack.place_tcp(one, None, &mut placed).unwrap();
    }
    placed.go_on(now, outside);
    (to, owned)
}

/// Reads until `len` bytes have come, while time goes on.
fn read_all(host: &Host, socket: &TcpSocket, len: usize) -> Vec<u8> {
    let (mut got, mut now) = (Vec::new(), T0);
    while got.len() < len {
        got.extend(read(socket, now).unwrap_or_default());
        now = now.plus(Duration::from_millis(10));
        host.stack.run_timers(now);
        assert!(now.since(T0) < Duration::from_secs(60), "{} of {len} bytes came", got.len());
    }
    got
}

#[test]
fn a_server_with_clients_goes_on() {
    let a = host(1);
    let server = listener(&a, "0.0.0.0:80");
    let to = addr("10.0.0.1:80");
    let (first, second) = (connect(&a.stack, to), connect(&a.stack, to));
    let accepted = server.accept(Arc::new(Silent)).unwrap();
    second.send(T0, b"not accepted yet", false).unwrap();
    first.send(T0, b"question", false).unwrap();
    let (idle, bound) = (stream(&a.stack), stream(&a.stack));
    bound.bind(addr("127.0.0.1:99"), true).unwrap();
    idle.configure(T0, |options| options.nodelay = true);
    let all = [&server, &first, &second, &accepted, &idle, &bound];
    let saved = save(&a, &all, T0);
    // The first one goes on as well.
    assert_eq!(read(&accepted, T0).unwrap(), b"question");
    let (b, all) = restore(saved, T0, Outside::Reset);
    let [server, first, second, accepted, idle, bound] = &all[..] else { panic!() };
    assert_eq!(b.stack.tcp_counts(), (4, 0, 0));
    assert_eq!(read(accepted, T0).unwrap(), b"question");
    accepted.send(T0, b"answer", false).unwrap();
    assert_eq!(read(first, T0).unwrap(), b"answer");
    assert!(server.readiness().contains(Events::IN));
    let late = server.accept(Arc::new(Silent)).unwrap();
    assert_eq!(read(&late, T0).unwrap(), b"not accepted yet");
    assert_eq!(
        (late.remote(), server.accept(Arc::new(Silent)).err()),
        (Ok(second.local()), Some(Errno::EAGAIN))
    );
    connect(&b.stack, to);
    assert!(server.accept(Arc::new(Silent)).is_ok());
    assert_eq!(bound.local(), addr("127.0.0.1:99"));
    assert_eq!(stream(&b.stack).bind(addr("127.0.0.1:99"), true), Err(Errno::EADDRINUSE));
    assert!(idle.configure(T0, |options| options.nodelay));
    assert_eq!(idle.connect(T0, to), Err(Errno::EINPROGRESS));
    // Ports are given back as usual.
    server.close(T0);
    bound.close(T0);
    assert!(stream(&b.stack).bind(addr("127.0.0.1:99"), true).is_ok());
}

#[test]
fn a_full_transfer_goes_on_with_the_same_bytes() {
    let data: Vec<u8> = (0..8_000_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
    for watched in [false, true] {
        let a = host(1);
        let _watch = watched.then(|| a.stack.watch());
        let (client, server) = pair(&a);
        let mut sent = 0;
        while let Ok(n) = client.send(T0, &data[sent..], false) {
            sent += n;
        }
        let mut got = vec![0; 10_000];
        let n = server.receive(T0, &mut got, false).unwrap();
        got.truncate(n);
        let saved = save(&a, &[&client, &server], T0);
        let (b, all) = restore(saved, T0, Outside::Reset);
        let (server_before, client, server) = (server, &all[0], &all[1]);
        let (mut after, mut now) = (got, T0);
        while after.len() < data.len() {
            if let Ok(n) = client.send(now, &data[sent..], false) {
                sent += n;
            }
            after.extend(read(server, now).unwrap_or_default());
            now = now.plus(Duration::from_millis(10));
            b.stack.run_timers(now);
            assert!(
                now.since(T0) < Duration::from_secs(600),
                "{} bytes came, watched {watched}",
                after.len()
            );
        }
        assert!(after == data, "watched {watched}");
        // What was saved goes on beside it.
        let unread = server_before.queued().0;
        assert!(read_all(&a, &server_before, unread) == data[n..n + unread]);
    }
}

#[test]
fn half_closed_and_ending_connections_go_on() {
    let a = host(1);
    let (client, server) = pair(&a);
    client.send(T0, b"last words", false).unwrap();
    client.shutdown(T0, false, true).unwrap();
    // An orphan in FIN-WAIT-2, and one in TIME-WAIT.
    let (gone, stays) = pair(&a);
    gone.close(T0);
    let (waits, other) = pair(&a);
    waits.close(T0);
    other.close(T0);
    // The peer has reset it.
    let (reset, cause) = pair(&a);
    cause.configure(T0, |options| options.linger = Some(Duration::ZERO));
    cause.close(T0);
    let before = a.stack.tcp_counts();
    let saved = save(&a, &[&client, &server, &stays, &reset], T0);
    let (b, all) = restore(saved, T0, Outside::Reset);
    let [client, server, stays, reset] = &all[..] else { panic!() };
    assert_eq!(b.stack.tcp_counts(), before);
    assert_eq!((client.state(), server.state()), (State::FinWait2, State::CloseWait));
    assert_eq!((read(server, T0).unwrap(), read(server, T0)), (b"last words".to_vec(), Ok(vec![])));
    server.send(T0, b"reply", false).unwrap();
    assert_eq!(read(client, T0).unwrap(), b"reply");
    server.close(T0);
    assert_eq!(read(client, T0), Ok(vec![]));
    assert_eq!((read(stays, T0), stays.state()), (Ok(vec![]), State::CloseWait));
    assert_eq!(read(reset, T0), Err(Errno::ECONNRESET));
    stays.close(T0);
    client.close(T0);
    let later = T0.plus(Duration::from_secs(120));
    b.stack.run_timers(later);
    assert_eq!(b.stack.tcp_counts(), (0, 0, 0));
}

#[test]
fn connections_to_other_hosts_are_kept_or_reset() {
    for outside in [Outside::Keep, Outside::Reset] {
        let (a, peer) = (host(1), host(2));
        let server = listener(&a, "0.0.0.0:80");
        let client = connect(&peer.stack, addr("10.0.0.1:80"));
        exchange(T0, &a, &peer);
        let accepted = server.accept(Arc::new(Silent)).unwrap();
        client.send(T0, b"unread", false).unwrap();
        exchange(T0, &a, &peer);
        let len = accepted.send(T0, &[5; 50_000], false).unwrap();
        a.sent();
        // A handshake that is not complete, and a connection that is under way.
        connect(&peer.stack, addr("10.0.0.1:80"));
        peer.sent().iter().for_each(|frame| a.receive(T0, frame));
        a.sent();
        let begun = connect(&a.stack, addr("10.0.0.2:9"));
        let saved = save(&a, &[&server, &accepted, &begun], T0);
        let (b, all) = restore(saved, T0, outside);
        let [server, accepted, begun] = &all[..] else { panic!() };
        let (mut now, mut got) = (T0, 0);
        while outside == Outside::Keep && got < len {
            now = now.plus(Duration::from_millis(50));
            b.stack.run_timers(now);
            exchange(now, &b, &peer);
            got += read(&client, now).map_or(0, |bytes| bytes.len());
            assert!(now.since(T0) < Duration::from_secs(60), "{got}");
        }
        assert_eq!(read(accepted, now).unwrap(), b"unread");
        if outside == Outside::Keep {
            assert_eq!(read(accepted, now), Err(Errno::EAGAIN));
            b.stack.run_timers(now.plus(Duration::from_secs(2)));
            exchange(now, &b, &peer);
            assert!(server.accept(Arc::new(Silent)).is_ok());
            assert_eq!(begun.take_error(), Some(Errno::ECONNREFUSED));
        } else {
            assert_eq!(read(accepted, now), Err(Errno::ECONNRESET));
            assert_eq!((begun.state(), begun.take_error()), (State::Closed, Some(Errno::ECONNRESET)));
            assert_eq!(b.stack.tcp_counts(), (0, 0, 0));
            b.stack.run_timers(now.plus(Duration::from_secs(2)));
            assert!(b.sent().is_empty());
        }
    }
}

#[test]
fn datagrams_wait_in_restored_sockets() {
    let a = host(1);
    let socket = || a.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    let (server, client) = (socket(), socket());
    server.bind(addr("127.0.0.1:53"), true).unwrap();
    server.configure(T0, |options| (options.reuse_port, options.receive_buffer) = (true, 100_000));
    server.join(T0, "224.0.0.251".parse().unwrap(), 1).unwrap();
    client.connect(T0, addr("127.0.0.1:53")).unwrap();
    for text in ["one", "two"] {
        client.send(T0, text.as_bytes(), None, &Default::default()).unwrap();
    }
    client.configure(T0, |options| options.cork = true);
    client.send(T0, b"corked ", None, &Default::default()).unwrap();
    let refused = socket();
    refused.connect(T0, addr("127.0.0.1:54")).unwrap();
    refused.send(T0, b"x", None, &Default::default()).unwrap();
    let saved = [&server, &client, &refused].map(|socket| through(&socket.save()));
    let b = host(1);
    let [server, client, refused] =
        saved.map(|saved| b.stack.place_datagram(saved, Arc::new(Silent)).unwrap());
    let next = |socket: &DatagramSocket| {
        let mut out = [0; 100];
        socket.receive(&mut out, false).map(|got| (out[..got.copied].to_vec(), got.datagram.from))
    };
    assert_eq!(next(&server).unwrap(), (b"one".to_vec(), client.local()));
    client.send(T0, b"rest", None, &Default::default()).unwrap();
    client.configure(T0, |options| options.cork = false);
    assert_eq!(next(&server).unwrap().0, b"two");
    assert_eq!(next(&server).unwrap().0, b"corked rest");
    assert_eq!(server.queue_state(), (0, 0));
    assert_eq!(refused.take_error(), Some(Errno::ECONNREFUSED));
    assert_eq!(server.leave(T0, "224.0.0.251".parse().unwrap(), 1), Ok(()));
    let other = b.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    assert_eq!(other.bind(addr("127.0.0.1:53"), true), Err(Errno::EADDRINUSE));
    server.close();
    assert_eq!(other.bind(addr("127.0.0.1:53"), true), Ok(()));
    assert_eq!(b.stack.memory.used(), 0);
}

#[test]
fn groups_and_devices_follow_renumbered_interfaces() {
    let a = host(1);
    let (eth, group) = (a.eth.index, "224.0.0.251".parse().unwrap());
    let socket = a.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    socket.configure(T0, |options| options.device = eth);
    socket.bind(addr("0.0.0.0:53"), true).unwrap();
    socket.join(T0, group, eth).unwrap();
    let mut saved = through(&socket.save());
    let b = host(1);
    let config = crate::iface::Config {
        name: "d0".into(),
        kind: crate::iface::Kind::Ethernet,
        mac: Default::default(),
        mtu: 1500,
    };
    let other = b.stack.add_dummy(config).unwrap().index;
    saved.renumber(&[(eth, other)].into());
    let socket = b.stack.place_datagram(saved, Arc::new(Silent)).unwrap();
    assert_eq!(socket.configure(T0, |options| options.device), other);
    assert!(b.stack.link(other).unwrap().is_member(group) && !b.eth.is_member(group));
    assert_eq!(socket.leave(T0, group, other), Ok(()));
}

/// Changes one number, string or list somewhere in a value.
fn spoil(value: &mut Value, random: &mut Random) {
    match value {
        Value::Map(entries) if !entries.is_empty() => {
            let n = random.below(entries.len() as u64) as usize;
            spoil(&mut entries[n].1, random);
        }
        Value::Array(list) if !list.is_empty() && random.chance(80) => {
            let n = random.below(list.len() as u64) as usize;
            spoil(&mut list[n], random);
        }
        Value::Array(list) => {
            let all = list.clone();
            list.extend(all);
        }
        Value::Bytes(bytes) => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        Value::Integer(n) => {
            let old: i128 = (*n).into();
            let choices =
                [0, 1, old + 1, old - 1, old ^ 0x8000_0000, i128::from(u32::MAX), i128::from(u64::MAX)];
            let chosen = choices[random.below(choices.len() as u64) as usize];
            *n = chosen.try_into().unwrap_or(*n);
        }
        Value::Bool(on) => *on = !*on,
        Value::Float(x) => *x = [f64::NAN, f64::INFINITY, -1.0, 0.0][random.below(4) as usize],
        Value::Null => *value = Value::Integer(7.into()),
        _ => {}
    }
}

#[test]
fn any_state_is_refused_or_harmless() {
    let (a, peer) = (host(1), host(2));
    let server = listener(&a, "0.0.0.0:80");
    let first = connect(&peer.stack, addr("10.0.0.1:80"));
    exchange(T0, &a, &peer);
    let accepted = server.accept(Arc::new(Silent)).unwrap();
    let (left, right) = pair(&a);
    left.send(T0, &[1; 3000], false).unwrap();
    right.send(T0, &[2; 3000], true).unwrap();
    accepted.configure(T0, |options| options.timestamping = crate::stamps::TX | crate::stamps::SOFTWARE);
    accepted.send(T0, &[3; 9000], false).unwrap();
    // The second of several segments came, and the first one did not.
    first.send(T0, &[4; 6000], false).unwrap();
    peer.sent().iter().skip(1).for_each(|frame| a.receive(T0, frame));
    connect(&a.stack, addr("10.0.0.1:80")).send(T0, b"x", false).unwrap();
    left.shutdown(T0, false, true).unwrap();
    let begun = connect(&a.stack, addr("10.0.0.2:9"));
    let owned: Vec<_> = [&server, &accepted, &left, &right, &begun].into_iter().cloned().collect();
    let Err(missing) = a.stack.save_tcp(&owned, T0, &|_| false) else { panic!("one is not in the list") };
    assert_eq!(missing.1, Some(addr("10.0.0.1:80")));
    let queued = a.stack.tcp_sockets().into_iter().find(|socket| socket.remote() == Ok(addr("10.0.0.1:80")));
    let owned: Vec<_> = owned.into_iter().chain(queued).collect();
    let saved = a.stack.save_tcp(&owned, T0, &|_| false).unwrap();
    let whole = Value::serialized(&saved).unwrap();
    let mut random = Random::new(5);
    let (mut refused, mut placed_ones) = (0, 0);
    for _ in 0..2000 * crate::testing::effort() {
        let mut value = whole.clone();
        (0..=random.below(3)).for_each(|_| spoil(&mut value, &mut random));
        let Ok(saved) = value.deserialized::<TcpSockets>() else { continue };
        let b = host(1);
        let mut placed = Placed::default();
        let count = saved.owned.len();
        let sockets: Vec<_> = saved
            .owned
            .into_iter()
            .filter_map(|one| b.stack.place_tcp(one, Some(Arc::new(Silent)), &mut placed).ok())
            .collect();
        refused += count - sockets.len();
        placed_ones += sockets.len();
        placed.go_on(T0, Outside::Keep);
        for socket in &sockets {
            let _ = socket.send(T0, &[5; 5000], false);
            let _ = socket.receive(T0, &mut [0; 5000], false);
            let _ = (socket.readiness(), socket.take_notice(), socket.info(T0));
        }
        let mut now = T0;
        for _ in 0..5 {
            now = now.plus(Duration::from_millis(300));
            b.stack.run_timers(now);
            b.sent();
        }
        for socket in &sockets {
            let _ = socket.shutdown(now, true, true);
            socket.close(now);
        }
        b.stack.run_timers(now.plus(Duration::from_secs(500)));
    }
    assert!(refused > 20 && placed_ones > 1000, "{refused} refused, {placed_ones} placed");
}
