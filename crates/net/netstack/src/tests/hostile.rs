//! Malformed and hostile traffic: nothing panics, memory stays bounded, other connections live.

use super::hosts::{Host, T0, exchange, host};
use crate::datagram::Protocol;
use crate::frame::{Frame, Offload};
use crate::notify::Silent;
use crate::tcp::{State, TcpSocket};
use crate::testing::{Random, effort};
use crate::wire::ip::Ipv4;
use crate::wire::tcp::{Flags, MAX_LEN, Segment};
use ktime::Ktime;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn pair(a: &Host, b: &Host, v6: bool) -> (Arc<TcpSocket>, Arc<TcpSocket>, Arc<TcpSocket>) {
    let any = if v6 { "[::]:80" } else { "0.0.0.0:80" };
    let to = if v6 { "[2001:db8::1]:80" } else { "10.0.0.1:80" };
    let listener = a.stack.tcp_socket(v6, Arc::new(Silent));
    listener.bind(addr(any), true).unwrap();
    listener.listen(16).unwrap();
    let client = b.stack.tcp_socket(v6, Arc::new(Silent));
    let _ = client.connect(T0, addr(to));
    exchange(T0, a, b);
    let server = listener.accept(Arc::new(Silent)).unwrap();
    (listener, server, client)
}

/// A segment from 10.0.0.x to port 80 of host 1.
fn segment(to: &Host, from: Ipv4Addr, segment: &Segment, data: &[u8]) -> Frame {
    let mut header = [0; MAX_LEN];
    let len = segment.emit(&mut header);
    let ip = Ipv4::new(from, Ipv4Addr::new(10, 0, 0, 1), 6, len + data.len()).sealed();
    let mut bytes = to.eth.mac().0.to_vec();
    bytes.extend([2, 0, 0, 0, 0, 99, 8, 0]);
    bytes.extend(ip.as_bytes());
    bytes.extend(&header[..len]);
    bytes.extend(data);
    let offload = Offload { checksum: crate::frame::Checksum::Valid, gso: None };
    Frame::with(to.stack.pool().copy(&bytes), offload)
}

#[test]
fn mutated_packets_do_no_harm() {
    let mut random = Random::new(20 + effort());
    for v6 in [false, true] {
        let (a, b) = (host(1), host(2));
        let (_listener, server, client) = pair(&a, &b, v6);
        let udp = a.stack.datagram_socket(v6, Protocol::Udp, Arc::new(Silent));
        udp.bind(addr(if v6 { "[::]:53" } else { "0.0.0.0:53" }), true).unwrap();
        let mut corpus: Vec<Frame> = Vec::new();
        let mut now = T0;
        for _ in 0..20 {
            let _ = client.send(now, &[5; 4000], false);
            let _ = server.send(now, &[6; 100], false);
            let sender = b.stack.datagram_socket(v6, Protocol::Udp, Arc::new(Silent));
            let to = if v6 { "[2001:db8::1]:53" } else { "10.0.0.1:53" };
            let _ = sender.send(now, &[1; 3000], Some(addr(to)), &Default::default());
            for _ in 0..3 {
                let frames = b.sent();
                frames.iter().for_each(|frame| a.receive(now, frame));
                corpus.extend(frames);
                a.sent().iter().for_each(|frame| b.receive(now, frame));
            }
            let mut out = vec![0; 10_000];
            while server.receive(now, &mut out, false).is_ok_and(|n| n > 0) {}
            now = now.plus(Duration::from_millis(50));
        }
        assert!(corpus.len() > 60);
        for round in 0..60_000 * effort() {
            let pick = &corpus[random.below(corpus.len() as u64) as usize];
            let mut bytes = pick.buf.to_vec();
            for _ in 0..random.below(5) {
                let at = 14 + random.below(bytes.len() as u64 - 14) as usize;
                bytes[at.min(90)] = random.next() as u8;
            }
            if random.chance(10) {
                bytes.truncate(14 + random.below(bytes.len() as u64) as usize);
            }
            // The checksum is vouched for, so that what lies behind is reached.
            let offload = Offload { checksum: crate::frame::Checksum::Valid, gso: None };
            a.receive(now, &Frame::with(a.stack.pool().copy(&bytes), offload));
            a.sent();
            if round % 50 == 0 {
                now = now.plus(Duration::from_millis(random.below(300)));
                a.stack.run_timers(now);
                let mut out = vec![0; 10_000];
                let _ = server.receive(now, &mut out, false);
                let _ = udp.receive(&mut out, false);
            }
        }
        assert!(a.stack.tcp_counts().0 < 600);
    }
}

#[test]
fn floods_are_bounded_and_others_live() {
    let (a, b) = (host(1), host(2));
    let (listener, server, client) = pair(&a, &b, false);
    // Half-open connections from many addresses.
    for n in 0..20_000u32 {
        let syn = Segment { src: n as u16, dst: 80, flags: Flags::SYN, window: 1000, ..Segment::default() };
        let from = Ipv4Addr::new(10, 0, 0, 3 + (n >> 16) as u8);
        a.receive(T0, &segment(&a, from, &syn, b""));
        a.sent();
    }
    let cookies = a.stack.counters.tcp.syncookies_sent.get();
    assert!(cookies > 19_000 && a.stack.tcp_counts().0 == 1, "{cookies}");
    // A scan of closed ports, and data for nobody.
    for n in 0..2000 {
        let scan = Segment { src: 7, dst: n, flags: Flags::ACK, ..Segment::default() };
        a.receive(T0, &segment(&a, Ipv4Addr::new(10, 0, 0, 2), &scan, b"data"));
    }
    a.sent();
    client.send(T0, b"alive", false).unwrap();
    exchange(T0, &a, &b);
    let mut out = [0; 9];
    assert_eq!(server.receive(T0, &mut out, false), Ok(5));
    // A legitimate client gets in while the flood lasts.
    let honest = b.stack.tcp_socket(false, Arc::new(Silent));
    let _ = honest.connect(T0, addr("10.0.0.1:80"));
    exchange(T0, &a, &b);
    assert_eq!(honest.state(), State::Established);
    assert!(listener.accept(Arc::new(Silent)).is_ok());
    a.stack.run_timers(T0.plus(Duration::from_secs(200)));
}

#[test]
fn connections_of_many_threads_move_bytes() {
    let a = host(1);
    let clock = Ktime::from_millis(2_000_000);
    let threads: Vec<_> = (0..6u8)
        .map(|n| {
            let stack = a.stack.clone();
            std::thread::spawn(move || {
                let listener = stack.tcp_socket(false, Arc::new(Silent));
                listener.bind(addr("127.0.0.1:0"), true).unwrap();
                listener.listen(4).unwrap();
                for round in 0..30 {
                    let client = stack.tcp_socket(false, Arc::new(Silent));
                    while !matches!(
                        client.connect(clock, listener.local()),
                        Ok(()) | Err(abi::Errno::EISCONN)
                    ) {
                        std::thread::yield_now();
                    }
                    let server = loop {
                        match listener.accept(Arc::new(Silent)) {
                            Ok(server) => break server,
                            Err(_) => std::thread::yield_now(),
                        }
                    };
                    let reader = std::thread::spawn(move || {
                        let (mut sum, mut count, mut out) = (0u64, 0, vec![0; 70_000]);
                        loop {
                            match server.receive(clock, &mut out, false) {
                                Ok(0) => break,
                                Ok(n) => {
                                    sum += out[..n].iter().map(|b| u64::from(*b)).sum::<u64>();
                                    count += n;
                                }
                                Err(_) => std::thread::yield_now(),
                            }
                        }
                        server.close(clock);
                        (count, sum)
                    });
                    let data = vec![n + round; 300_000];
                    let mut sent = 0;
                    while sent < data.len() {
                        match client.send(clock, &data[sent..], false) {
                            Ok(n) => sent += n,
                            Err(_) => std::thread::yield_now(),
                        }
                    }
                    client.shutdown(clock, false, true).unwrap();
                    assert_eq!(reader.join().unwrap(), (300_000, 300_000 * u64::from(n + round)));
                    client.close(clock);
                }
                listener.close(clock);
            })
        })
        .collect();
    // Something switches between packets and the short way meanwhile.
    for _ in 0..200 {
        let watch = a.stack.watch();
        std::thread::sleep(Duration::from_micros(200));
        drop(watch);
        std::thread::sleep(Duration::from_micros(200));
        a.stack.run_timers(clock);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn connections_are_small() {
    let size = std::mem::size_of::<TcpSocket>();
    assert!(size <= 2048, "{size} bytes for a socket");
}

#[test]
fn queues_of_all_sockets_are_bounded_together() {
    const LIMIT: usize = 2 << 20;
    const MOST: usize = LIMIT + (8 << 20);
    let a = host(1);
    a.stack.memory.set_limit(LIMIT);
    let listener = a.stack.tcp_socket(false, Arc::new(Silent));
    listener.bind(addr("127.0.0.1:80"), true).unwrap();
    listener.listen(1000).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..300 {
        let client = a.stack.tcp_socket(false, Arc::new(Silent));
        let _ = client.connect(T0, addr("127.0.0.1:80"));
        pairs.push((listener.accept(Arc::new(Silent)).unwrap(), client));
    }
    let chunk = vec![7; 64 << 10];
    let mut sent = vec![0; pairs.len()];
    for (n, (_, client)) in pairs.iter().enumerate() {
        while let Ok(more) = client.send(T0, &chunk, false) {
            sent[n] += more;
        }
    }
    let used = a.stack.memory.used();
    assert!((LIMIT..MOST).contains(&used), "{used}");
    // Each connection still moves bytes: what is read makes room for more.
    let mut buf = vec![0; 1 << 20];
    for (n, (server, client)) in pairs.iter().enumerate() {
        assert!(sent[n] > 0, "connection {n}");
        let mut read = 0;
        while let Ok(more) = server.receive(T0, &mut buf, false) {
            read += more;
            if read >= sent[n] {
                break;
            }
        }
        assert_eq!(read, sent[n], "connection {n}");
        assert!(client.send(T0, &chunk, false).is_ok());
    }
    for (server, client) in pairs {
        server.abort(T0);
        client.abort(T0);
    }
    assert_eq!(a.stack.memory.used(), 0);
}
