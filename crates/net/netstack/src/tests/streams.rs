//! TCP sockets of whole stacks.

use super::hosts::{Host, T0, exchange, host};
use crate::notify::{Events, Silent};
use crate::stack::Stack;
use crate::tcp::{Outside, Placed, State, TcpSocket};
use abi::Errno;
use ktime::Ktime;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn socket(stack: &Arc<Stack>, v6: bool) -> Arc<TcpSocket> {
    stack.tcp_socket(v6, Arc::new(Silent))
}

fn listener(host: &Host, at: &str) -> Arc<TcpSocket> {
    let socket = socket(&host.stack, at.starts_with('['));
    socket.bind(addr(at), true).unwrap();
    socket.listen(16).unwrap();
    socket
}

fn accept(listener: &TcpSocket) -> Arc<TcpSocket> {
    listener.accept(Arc::new(Silent)).unwrap()
}

/// A connection inside one stack.
fn local_pair(host: &Host) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let listener = listener(host, "127.0.0.1:0");
    let client = socket(&host.stack, false);
    assert_eq!(client.connect(T0, listener.local()), Err(Errno::EINPROGRESS));
    assert_eq!(client.connect(T0, listener.local()), Ok(()));
    let server = accept(&listener);
    listener.close(T0);
    (client, server)
}

/// A connection between two hosts.
fn wire_pair(a: &Host, b: &Host) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let listener = listener(b, "0.0.0.0:80");
    let client = socket(&a.stack, false);
    assert_eq!(client.connect(T0, addr("10.0.0.2:80")), Err(Errno::EINPROGRESS));
    exchange(T0, a, b);
    assert_eq!(client.connect(T0, addr("10.0.0.2:80")), Ok(()));
    let server = accept(&listener);
    listener.close(T0);
    (client, server)
}

fn read(socket: &TcpSocket, now: Ktime) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; 1 << 20];
    let n = socket.receive(now, &mut out, false)?;
    out.truncate(n);
    Ok(out)
}

#[test]
fn connections_open_move_bytes_and_close() {
    let (a, b) = (host(1), host(2));
    let (client, server) = wire_pair(&a, &b);
    assert_eq!(server.remote(), Ok(client.local()));
    assert_eq!(read(&server, T0), Err(Errno::EAGAIN));
    let data: Vec<u8> = (0..3_000_000u32).map(|n| ((n * 31) >> 3) as u8).collect();
    let (mut sent, mut got, mut now) = (0, Vec::new(), T0);
    while got.len() < data.len() {
        if let Ok(n) = client.send(now, &data[sent..], false) {
            sent += n;
        }
        now = now.plus(Duration::from_millis(1));
        exchange(now, &a, &b);
        if let Ok(bytes) = read(&server, now) {
            got.extend(bytes);
        }
        a.stack.run_timers(now);
        b.stack.run_timers(now);
    }
    assert!(got == data);
    assert_eq!(a.stack.counters.tcp.retrans_segs.get(), 0);
    client.shutdown(now, false, true).unwrap();
    exchange(now, &a, &b);
    assert_eq!((read(&server, now), server.state()), (Ok(vec![]), State::CloseWait));
    assert_eq!(client.send(now, b"x", false), Err(Errno::EPIPE));
    server.send(now, b"half closed", false).unwrap();
    exchange(now, &a, &b);
    assert_eq!(read(&client, now).unwrap(), b"half closed");
    server.close(now);
    exchange(now, &a, &b);
    assert_eq!((client.state(), server.state()), (State::TimeWait, State::Closed));
    client.close(now);
    let later = now.plus(Duration::from_secs(61));
    a.stack.run_timers(later);
    assert_eq!((a.stack.tcp_counts(), b.stack.tcp_counts()), ((0, 0, 0), (0, 0, 0)));
}

#[test]
fn closed_ports_refuse_and_lost_hosts_time_out() {
    let (a, b) = (host(1), host(2));
    let client = socket(&a.stack, false);
    assert_eq!(client.connect(T0, addr("10.0.0.2:80")), Err(Errno::EINPROGRESS));
    assert_eq!(client.connect(T0, addr("10.0.0.2:80")), Err(Errno::EALREADY));
    exchange(T0, &a, &b);
    assert!(client.readiness().contains(Events::ERR | Events::OUT | Events::HUP));
    assert_eq!(client.connect(T0, addr("10.0.0.2:80")), Err(Errno::ECONNREFUSED));
    assert_eq!(client.connect(T0, addr("127.0.0.1:80")), Err(Errno::EINPROGRESS));
    assert_eq!(client.connect(T0, addr("127.0.0.1:80")), Err(Errno::ECONNREFUSED));
    // A neighbour that is known for good, so that its silence does not end the attempt.
    let key = (a.eth.index, "10.0.0.2".parse().unwrap());
    a.stack.with_neighbours(|table| table.set(key, b.eth.mac(), crate::neigh::State::Permanent));
    let silent = socket(&a.stack, false);
    assert_eq!(silent.connect(T0, addr("10.0.0.2:80")), Err(Errno::EINPROGRESS));
    let (mut now, mut syns) = (T0, 0);
    while silent.state() == State::SynSent {
        now = a.stack.next_deadline().unwrap().max(now);
        a.stack.run_timers(now);
        syns += a.sent().iter().filter(|frame| frame.buf.len() > 60).count();
    }
    // 1 + 2 + 4 + 8 + 16 + 32 + 64 s.
    assert_eq!((now.since(T0).as_secs(), syns), (127, 7));
    assert_eq!(silent.take_error(), Some(Errno::ETIMEDOUT));
    let nobody = socket(&a.stack, false);
    assert_eq!(nobody.connect(now, addr("10.0.0.77:80")), Err(Errno::EINPROGRESS));
    for _ in 0..4 {
        now = now.plus(Duration::from_secs(1));
        a.stack.run_timers(now);
    }
    assert_eq!(nobody.take_error(), Some(Errno::EHOSTUNREACH));
}

#[test]
fn loopback_moves_bytes_without_packets() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    let lo = a.stack.link(1).unwrap();
    let before = lo.counters.tx_packets.get();
    for n in 0..1000u32 {
        assert_eq!(client.send(T0, &n.to_ne_bytes(), false), Ok(4));
        assert_eq!(read(&server, T0).unwrap(), n.to_ne_bytes());
        assert_eq!(server.send(T0, b"answer", false), Ok(6));
        assert_eq!(read(&client, T0).unwrap(), b"answer");
    }
    assert_eq!(lo.counters.tx_packets.get(), before, "packets were made");
    let info = client.info(T0);
    // Linux counts the SYN of the side that connected.
    assert_eq!((info.bytes_sent, info.bytes_acked, info.bytes_received), (4000, 4001, 6000));
    // More than fits: the rest waits at the sender, and reading fetches it.
    let data = vec![7; 4 << 20];
    let taken = client.send(T0, &data, false).unwrap();
    let buffer = client.buffers().0;
    assert!(buffer == 2_626_560 && client.send_charge() >= buffer, "{buffer}");
    assert!(taken > buffer && taken < buffer + 200_000 && (4000 + taken) % 32_768 == 0, "{taken}");
    assert_eq!(client.send(T0, &data, false), Err(Errno::EAGAIN));
    assert!(!client.readiness().contains(Events::OUT));
    let mut got = 0;
    while let Ok(bytes) = read(&server, T0) {
        got += bytes.len();
    }
    assert!(got == taken && client.readiness().contains(Events::OUT));
    // Back to packets for the end; the other direction stays.
    client.send(T0, b"last", false).unwrap();
    client.shutdown(T0, false, true).unwrap();
    assert_eq!((read(&server, T0).unwrap(), read(&server, T0).unwrap()), (b"last".to_vec(), vec![]));
    server.send(T0, b"still", false).unwrap();
    assert_eq!(read(&client, T0).unwrap(), b"still");
    server.close(T0);
    assert_eq!((read(&client, T0), client.state()), (Ok(vec![]), State::TimeWait));
    assert!(lo.counters.tx_packets.get() > before);
}

/// What a corked socket holds back moves without packets, whole segments at once, the rest when the cork goes.
#[test]
fn corked_bytes_wait_and_move_directly() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    let lo = a.stack.link(1).unwrap();
    let before = lo.counters.tx_packets.get();
    for _ in 0..20 {
        client.send(T0, b"request", false).unwrap();
        assert_eq!(read(&server, T0).unwrap(), b"request");
        server.configure(T0, |o| o.cork = true);
        server.send(T0, b"head", false).unwrap();
        server.send(T0, b"body", false).unwrap();
        assert_eq!(read(&client, T0), Err(Errno::EAGAIN));
        server.configure(T0, |o| o.cork = false);
        assert_eq!(read(&client, T0).unwrap(), b"headbody");
        assert_eq!(server.send(T0, b"he", true), Ok(2));
        assert_eq!(read(&client, T0), Err(Errno::EAGAIN));
        assert_eq!(server.send(T0, b"ad", false), Ok(2));
        assert_eq!(read(&client, T0).unwrap(), b"head");
    }
    let mss = server.info(T0).snd_mss as usize;
    let data: Vec<u8> = (0..3 * mss + 100).map(|n| (n / 7) as u8).collect();
    server.configure(T0, |o| o.cork = true);
    for part in data.chunks(1000) {
        assert_eq!(server.send(T0, part, false), Ok(part.len()));
    }
    let mut got = Vec::new();
    while let Ok(bytes) = read(&client, T0) {
        got.extend(bytes);
    }
    assert!(got == data[..3 * mss], "{} of {}", got.len(), data.len());
    assert_eq!(lo.counters.tx_packets.get(), before, "packets were made");
    // The wait ends after 200 ms.
    let later = T0.plus(Duration::from_millis(199));
    a.stack.run_timers(later);
    assert_eq!(read(&client, later), Err(Errno::EAGAIN));
    let later = T0.plus(Duration::from_millis(201));
    a.stack.run_timers(later);
    assert!(read(&client, later).unwrap() == data[3 * mss..]);
    // What is left when the socket closes goes before the end.
    assert_eq!(server.send(later, b"last", false), Ok(4));
    server.close(later);
    assert_eq!((read(&client, later).unwrap(), read(&client, later).unwrap()), (b"last".to_vec(), vec![]));
}

/// A corked socket with a small buffer holds back a whole segment, but nothing that would not fit.
#[test]
fn a_full_buffer_ends_the_wait_for_more() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    server.configure(T0, |o| (o.cork, o.send_buffer) = (true, Some(4096)));
    assert_eq!(server.send(T0, &[1; 3000], false), Ok(3000));
    assert_eq!(read(&client, T0), Err(Errno::EAGAIN));
    assert_eq!(server.send(T0, &[2; 3000], false), Ok(3000));
    assert_eq!(read(&client, T0), Err(Errno::EAGAIN));
    assert_eq!(server.send(T0, &[2; 60_000], false), Ok(60_000));
    let mss = server.info(T0).snd_mss as usize;
    let mut got = 0;
    while let Ok(bytes) = read(&client, T0) {
        got += bytes.len();
    }
    assert!(got % mss == 0 && got > 66_000 - mss, "{got} of 66000, {mss}");
    assert_eq!(server.send(T0, b"small", false), Ok(5));
    server.configure(T0, |o| o.flush = true);
    assert!(read(&client, T0).unwrap().ends_with(b"small"));
}

/// What goes directly acknowledges what came by packets.
#[test]
fn packets_are_acknowledged_by_direct_bytes() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    for _ in 0..20 {
        client.send(T0, b"request", false).unwrap();
        assert_eq!(read(&server, T0).unwrap(), b"request");
        assert_eq!(server.send_urgent(T0, b"u"), Ok(1));
        server.send(T0, b"answer", false).unwrap();
        client.send(T0, b"more", false).unwrap();
        assert_eq!(read(&server, T0).unwrap(), b"more");
        assert_eq!(read(&client, T0).unwrap(), b"answer");
    }
}

/// A packet from the peer makes a connection send, and the reader fetches what waits: not the same bytes.
#[test]
fn bytes_that_wait_come_once() {
    for (shut, back) in [(true, true), (false, true), (true, false), (false, false)] {
        let a = host(1);
        let (client, server) = local_pair(&a);
        let (client, server) = if back { (server, client) } else { (client, server) };
        let data: Vec<u8> = (0..1u32 << 20).flat_map(u32::to_le_bytes).collect();
        let taken = client.send(T0, &data, false).unwrap();
        assert_eq!(client.send(T0, &data[taken..], false), Err(Errno::EAGAIN));
        match shut {
            true => server.shutdown(T0, false, true).unwrap(),
            false => assert_eq!(server.send_urgent(T0, b"u"), Ok(1)),
        }
        let mut got = Vec::new();
        let mut sent = taken;
        while let Ok(bytes) = read(&server, T0) {
            got.extend(bytes);
            sent += client.send(T0, &data[sent..], false).unwrap_or(0);
        }
        assert!(got == data && sent == data.len(), "{} of {}", got.len(), data.len());
    }
}

#[test]
fn watched_loopback_makes_packets() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    client.send(T0, b"direct", false).unwrap();
    let watch = a.stack.watch();
    let lo = a.stack.link(1).unwrap();
    let before = lo.counters.tx_packets.get();
    client.send(T0, b" packet", false).unwrap();
    assert!(lo.counters.tx_packets.get() > before);
    drop(watch);
    client.send(T0, b" direct", false).unwrap();
    assert_eq!(read(&server, T0).unwrap(), b"direct packet direct");
}

#[test]
fn closing_with_unread_data_resets() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    client.send(T0, b"never read", false).unwrap();
    server.close(T0);
    assert_eq!(client.send(T0, b"x", false), Err(Errno::ECONNRESET));
    assert_eq!(client.send(T0, b"x", false), Err(Errno::EPIPE));
    let (client, server) = local_pair(&a);
    server.configure(T0, |options| options.linger = Some(Duration::ZERO));
    server.close(T0);
    assert_eq!(read(&client, T0), Err(Errno::ECONNRESET));
    assert_eq!(read(&client, T0), Ok(vec![]));
    let (client, server) = local_pair(&a);
    server.close(T0);
    assert_eq!(read(&client, T0), Ok(vec![]));
    assert_eq!(client.send(T0, b"to nobody", false), Ok(9));
    // The end of the stream comes first, the error of the reset waits for a writer.
    assert!(client.readiness().contains(Events::ERR | Events::HUP | Events::IN));
    assert_eq!((read(&client, T0), read(&client, T0)), (Ok(vec![]), Ok(vec![])));
    assert_eq!(client.send(T0, b"x", false), Err(Errno::EPIPE));
}

/// Bytes that go straight into the peer's queue stop with its close, too.
#[test]
fn sending_to_a_closed_socket_resets() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    client.send(T0, b"ab", false).unwrap();
    assert_eq!(read(&server, T0).unwrap(), b"ab");
    server.close(T0);
    assert_eq!(read(&client, T0), Ok(vec![]));
    assert_eq!(client.send(T0, b"cd", false), Ok(2));
    assert_eq!(client.send(T0, b"ef", false), Err(Errno::EPIPE));
}

#[test]
fn shut_down_directions() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    client.shutdown(T0, true, false).unwrap();
    assert_eq!(read(&client, T0), Ok(vec![]));
    server.send(T0, b"zz", false).unwrap();
    assert_eq!((read(&client, T0), read(&client, T0)), (Ok(b"zz".to_vec()), Ok(vec![])));
    client.shutdown(T0, false, true).unwrap();
    let events = client.readiness();
    assert!(
        events.contains(Events::IN | Events::OUT | Events::RDHUP | Events::HUP)
            && !events.contains(Events::ERR)
    );
    assert_eq!(server.readiness(), Events::IN | Events::OUT | Events::RDHUP);
    server.close(T0);
    assert_eq!((client.state(), client.info(T0).state), (State::TimeWait, State::Closed as u8));
    assert_eq!(
        (client.shutdown(T0, true, true), client.remote()),
        (Err(Errno::ENOTCONN), Err(Errno::ENOTCONN))
    );
    assert_eq!((client.send(T0, b"x", false), read(&client, T0)), (Err(Errno::EPIPE), Ok(vec![])));
}

#[test]
fn urgent_bytes_leave_the_stream() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    client.send(T0, b"ab", false).unwrap();
    client.send_urgent(T0, b"c!").unwrap();
    client.send(T0, b"de", false).unwrap();
    assert!(server.readiness().contains(Events::PRI));
    assert_eq!(read(&server, T0).unwrap(), b"abc");
    assert!(server.at_mark());
    assert_eq!(server.receive_urgent(false), Ok(b'!'));
    assert_eq!(server.receive_urgent(false), Err(Errno::EINVAL));
    assert_eq!(read(&server, T0).unwrap(), b"de");
}

#[test]
fn listeners_have_bounds_and_cookies() {
    let (a, b) = (host(1), host(2));
    let server = socket(&b.stack, false);
    server.bind(addr("0.0.0.0:80"), true).unwrap();
    server.listen(4).unwrap();
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let client = socket(&a.stack, false);
            let _ = client.connect(T0, addr("10.0.0.2:80"));
            client
        })
        .collect();
    exchange(T0, &a, &b);
    let mut accepted = 0;
    while server.accept(Arc::new(Silent)).is_ok() {
        accepted += 1;
    }
    assert_eq!((accepted, b.stack.counters.tcp.listen_overflows.get()), (5, 5));
    b.stack.sysctls.tcp_syncookies.set(2).unwrap();
    let cookie = socket(&a.stack, false);
    let _ = cookie.connect(T0, addr("10.0.0.2:80"));
    exchange(T0, &a, &b);
    let child = accept(&server);
    assert_eq!((child.info(T0).snd_mss, child.info(T0).options), (1448, 7));
    assert_eq!(
        (b.stack.counters.tcp.syncookies_sent.get(), b.stack.counters.tcp.syncookies_recv.get()),
        (3, 1)
    );
    drop(clients);
    server.close(T0);
    assert_eq!(server.accept(Arc::new(Silent)).err(), Some(Errno::EINVAL));
}

#[test]
fn binding_and_ports() {
    let a = host(1);
    let server = listener(&a, "127.0.0.1:80");
    let other = socket(&a.stack, false);
    assert_eq!(other.bind(addr("0.0.0.0:80"), true), Err(Errno::EADDRINUSE));
    let client = socket(&a.stack, false);
    assert_eq!(client.connect(T0, addr("127.0.0.1:80")), Err(Errno::EINPROGRESS));
    let child = accept(&server);
    child.close(T0);
    client.close(T0);
    server.close(T0);
    // The connection is in TIME-WAIT and holds the port, unless both ask to share it.
    assert_eq!(other.bind(addr("127.0.0.1:80"), true), Err(Errno::EADDRINUSE));
    a.stack.run_timers(T0.plus(Duration::from_secs(61)));
    assert_eq!(other.bind(addr("127.0.0.1:80"), true), Ok(()));
    assert_eq!(other.accept(Arc::new(Silent)).err(), Some(Errno::EINVAL));
    assert_eq!(read(&other, T0), Err(Errno::ENOTCONN));
    assert_eq!(other.send(T0, b"x", false), Err(Errno::EPIPE));
    assert_eq!(other.shutdown(T0, true, true), Err(Errno::ENOTCONN));
}

#[test]
fn narrow_paths_are_learnt() {
    let (a, b) = (host(1), host(2));
    let (client, server) = wire_pair(&a, &b);
    client.send(T0, &[1; 5000], false).unwrap();
    let lost = a.sent();
    assert_eq!((lost[0].buf.len(), lost.len()), (1514, 4));
    b.receive(T0, &lost[3]);
    // A router on the way says: 1000 bytes at most.
    let mut quote = lost[0].buf[14..14 + 28].to_vec();
    let mut message = vec![3, 4, 0, 0, 0, 0, 0x03, 0xe8];
    message.append(&mut quote);
    let sum = crate::checksum::Sum::new().with(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let ip =
        crate::wire::ip::Ipv4::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 1, message.len()).sealed();
    let mut frame = lost[0].buf[..14].to_vec();
    frame[..6].copy_from_slice(&a.eth.mac().0);
    frame.extend(zerocopy::IntoBytes::as_bytes(&ip));
    frame.extend(message);
    a.stack.receive_bytes(T0, a.eth.index, &frame);
    let sent = a.sent();
    assert!(!sent.is_empty() && sent.iter().all(|frame| frame.buf.len() <= 1014), "{sent:?}");
    sent.iter().for_each(|frame| b.receive(T0, frame));
    exchange(T0, &a, &b);
    assert_eq!((read(&server, T0).unwrap().len(), client.info(T0).pmtu), (5000, 1000));
}

#[test]
fn ports_are_used_again_over_loopback() {
    let a = host(1);
    a.stack.sysctls.port_low.set(50_000).unwrap();
    a.stack.sysctls.port_high.set(50_019).unwrap();
    let server = listener(&a, "127.0.0.1:80");
    let connect = |now: Ktime| {
        let client = socket(&a.stack, false);
        match client.connect(now, addr("127.0.0.1:80")) {
            Err(Errno::EINPROGRESS) => client.connect(now, addr("127.0.0.1:80"))?,
            other => other?,
        }
        let child = accept(&server);
        client.close(now);
        child.close(now);
        Ok::<(), Errno>(())
    };
    let round = |now: Ktime| (0..20).map(|_| connect(now)).collect::<Vec<_>>();
    assert!(round(T0).iter().all(Result::is_ok));
    assert_eq!((connect(T0), a.stack.tcp_counts().1), (Err(Errno::EADDRNOTAVAIL), 20));
    // After a second, timestamps tell old segments from new ones.
    let later = T0.plus(Duration::from_millis(1100));
    assert!(round(later).iter().all(Result::is_ok));
    a.stack.sysctls.tcp_max_tw_buckets.set(5).unwrap();
    let later = later.plus(Duration::from_millis(1100));
    assert!(round(later).iter().all(Result::is_ok) && a.stack.tcp_counts().1 <= 20);
    a.stack.run_timers(later.plus(Duration::from_secs(61)));
    assert_eq!(a.stack.tcp_counts(), (0, 0, 0));
}

#[test]
fn data_travels_with_the_syn() {
    let (a, b) = (host(1), host(2));
    a.stack.sysctls.tcp_fastopen.set(1).unwrap();
    b.stack.sysctls.tcp_fastopen.set(3).unwrap();
    let server = listener(&b, "0.0.0.0:80");
    server.configure(T0, |options| options.fast_open_queue = 2);
    let to = addr("10.0.0.2:80");
    let first = socket(&a.stack, false);
    assert_eq!(first.send_fast_open(T0, to, b"early", false), Err(Errno::EINPROGRESS), "no cookie yet");
    exchange(T0, &a, &b);
    assert_eq!((first.connect(T0, to), read(&accept(&server), T0)), (Ok(()), Err(Errno::EAGAIN)));
    let second = socket(&a.stack, false);
    assert_eq!(second.send_fast_open(T0, to, b"early", false), Ok(5));
    let syn = a.sent();
    assert_eq!(syn.len(), 1);
    b.receive(T0, &syn[0]);
    // Before the handshake is complete the server reads and answers.
    let child = accept(&server);
    assert_eq!((read(&child, T0).unwrap(), child.state()), (b"early".to_vec(), State::SynReceived));
    assert_eq!(child.send(T0, b"answer", false), Ok(6));
    exchange(T0, &a, &b);
    assert_eq!((read(&second, T0).unwrap(), child.state()), (b"answer".to_vec(), State::Established));
    assert!(second.info(T0).options & 32 != 0 && child.info(T0).options & 32 != 0);
    // A server that forgot: the data comes after the handshake.
    server.configure(T0, |options| options.fast_open_queue = 0);
    let third = socket(&a.stack, false);
    assert_eq!(third.send_fast_open(T0, to, b"later", false), Ok(5));
    exchange(T0, &a, &b);
    assert_eq!(read(&accept(&server), T0).unwrap(), b"later");
    // A SYN that is lost is repeated without data.
    server.configure(T0, |options| options.fast_open_queue = 2);
    let fourth = socket(&a.stack, false);
    assert_eq!(fourth.send_fast_open(T0, to, b"lost", false), Ok(4));
    a.sent();
    let later = T0.plus(Duration::from_secs(1));
    a.stack.run_timers(later);
    exchange(later, &a, &b);
    assert_eq!(read(&accept(&server), later).unwrap(), b"lost");
    a.stack.sysctls.tcp_fastopen.set(0).unwrap();
    assert_eq!(socket(&a.stack, false).send_fast_open(T0, to, b"x", false), Err(Errno::EOPNOTSUPP));
}

#[test]
fn connections_survive_a_checkpoint() {
    let a = host(1);
    let (client, server) = local_pair(&a);
    client.send(T0, b"before, unread ", false).unwrap();
    server.send(T0, b"the other way", false).unwrap();
    assert_eq!(read(&client, T0).unwrap(), b"the other way");
    let saved = [client.saved(), server.saved()];
    // Another stack with the same addresses; its clock goes on.
    let b = host(1);
    let now = T0.plus(Duration::from_secs(3));
    let mut placed = Placed::default();
    let [client, server] =
        saved.clone().map(|saved| b.stack.place_tcp(saved, Some(Arc::new(Silent)), &mut placed).unwrap());
    placed.go_on(now, Outside::Keep);
    let again = b.stack.place_tcp(saved[0].clone(), Some(Arc::new(Silent)), &mut Placed::default());
    assert_eq!(again.err(), Some(Errno::EADDRINUSE));
    client.send(now, b"after", false).unwrap();
    assert_eq!(read(&server, now).unwrap(), b"before, unread after");
    server.close(now);
    assert_eq!(read(&client, now), Ok(vec![]));
    client.close(now);
    assert_eq!(b.stack.tcp_counts().0, 1, "in TIME-WAIT");
    // In the middle of a transfer between hosts: one end moves.
    let (a, b) = (host(1), host(2));
    let (client, server) = wire_pair(&a, &b);
    let len = client.send(T0, &[5; 50_000], false).unwrap();
    assert!(len > 20_000);
    a.sent();
    let moved = host(1);
    let mut placed = Placed::default();
    let client = moved.stack.place_tcp(client.saved(), Some(Arc::new(Silent)), &mut placed).unwrap();
    placed.go_on(T0, Outside::Keep);
    let (mut now, mut got) = (T0, 0);
    while got < len {
        now = now.plus(Duration::from_millis(50));
        moved.stack.run_timers(now);
        exchange(now, &moved, &b);
        got += read(&server, now).map_or(0, |bytes| bytes.len());
        assert!(now.since(T0) < Duration::from_secs(60), "{got}");
    }
    assert_eq!((got, client.queued().1), (len, 0));
}

#[test]
fn pollers_learn_of_room() {
    #[derive(Default)]
    struct Seen(std::sync::atomic::AtomicU32);
    impl crate::notify::Notify for Seen {
        fn changed(&self, events: Events) {
            self.0.fetch_or(events.bits(), std::sync::atomic::Ordering::Relaxed);
        }
    }
    for watched in [false, true] {
        let a = host(1);
        let _watch = watched.then(|| a.stack.watch());
        let listener = listener(&a, "127.0.0.1:0");
        let seen = Arc::new(Seen::default());
        let client = a.stack.tcp_socket(false, seen.clone());
        assert_eq!(client.connect(T0, listener.local()), Err(Errno::EINPROGRESS));
        let server = accept(&listener);
        // Exactly as much as there is room for: no call says EAGAIN.
        while client.readiness().contains(Events::OUT) {
            client.send(T0, &[1; 1000], false).unwrap();
        }
        seen.0.store(0, std::sync::atomic::Ordering::Relaxed);
        while read(&server, T0).is_ok() {}
        let bits = Events::from_bits_truncate(seen.0.load(std::sync::atomic::Ordering::Relaxed));
        assert!(bits.contains(Events::OUT) && client.readiness().contains(Events::OUT), "watched {watched}");
    }
}

/// connect(2) with AF_UNSPEC: the peer is reset, and the socket can connect anew.
#[test]
fn a_dissolved_connection_leaves_a_fresh_socket() {
    let host = host(1);
    let (client, server) = local_pair(&host);
    client.disconnect(T0);
    assert_eq!(server.receive(T0, &mut [0], false), Err(Errno::ECONNRESET));
    assert_eq!(client.receive(T0, &mut [0], false), Err(Errno::ECONNRESET));
    assert_eq!(client.receive(T0, &mut [0], false), Err(Errno::ENOTCONN));
    // The port that it had is still shown, but is free.
    assert!(client.local().ip().is_unspecified());
    let _other = listener(&host, &format!("127.0.0.1:{}", client.local().port()));
    let listener = listener(&host, "127.0.0.1:0");
    assert_eq!(client.connect(T0, listener.local()), Err(Errno::EINPROGRESS));
    assert_eq!(client.connect(T0, listener.local()), Ok(()));
    let server = accept(&listener);
    server.send(T0, b"again", false).unwrap();
    let mut out = [0; 5];
    assert_eq!(client.receive(T0, &mut out, false), Ok(5));
    listener.disconnect(T0);
    assert_eq!(listener.state(), State::Closed);
}

/// Between two sockets of one stack the receive queue grows while the reader keeps up.
#[test]
fn a_queue_that_is_filled_directly_grows() {
    let host = host(1);
    for fixed in [false, true] {
        let (client, server) = local_pair(&host);
        if fixed {
            server.configure(T0, |options| options.receive_buffer = Some(131_072));
        }
        let (before, data) = (server.buffers().1, vec![7; 65_536]);
        let mut out = vec![0; 65_536];
        for _ in 0..64 {
            let _ = client.send(T0, &data, false);
            let _ = client.send(T0, &data, false);
            let _ = server.receive(T0, &mut out, false);
        }
        let after = server.buffers().1;
        assert!(if fixed { after == before } else { after > before && after <= 1 << 20 }, "{before} {after}");
    }
}
