//! Fast Open between two stacks: questions for cookies, deferred connections, servers without cookies.

use super::hosts::{Host, T0, exchange, host};
use crate::frame::Frame;
use crate::notify::{Events, Silent};
use crate::tcp::{State, TcpSocket};
use crate::wire::tcp::Segment;
use abi::Errno;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn to() -> SocketAddr {
    "10.0.0.2:80".parse().unwrap()
}

fn client(host: &Host) -> Arc<TcpSocket> {
    host.stack.tcp_socket(false, Arc::new(Silent))
}

/// A client's and a server's stack, and a listener.
fn hosts(setting: i64) -> (Host, Host, Arc<TcpSocket>) {
    let (a, b) = (host(1), host(2));
    b.stack.sysctls.tcp_fastopen.set(setting).unwrap();
    let server = client(&b);
    server.bind("0.0.0.0:80".parse().unwrap(), true).unwrap();
    server.listen(16).unwrap();
    // So that addresses are resolved.
    let _ = client(&a).connect(T0, to());
    exchange(T0, &a, &b);
    server.accept(Arc::new(Silent)).unwrap();
    (a, b, server)
}

/// The TCP segment of an IPv4 frame.
fn segment(frame: &Frame) -> (Segment, usize) {
    let (segment, len) = Segment::parse(&frame.buf[34..]).unwrap();
    let total = usize::from(u16::from_be_bytes([frame.buf[16], frame.buf[17]]));
    (segment, total - 20 - len)
}

/// Gives the client a cookie.
fn learn(a: &Host, b: &Host, server: &TcpSocket) {
    let first = client(a);
    assert_eq!(first.send_fast_open(T0, to(), b"", false), Err(Errno::EINPROGRESS));
    exchange(T0, a, b);
    server.accept(Arc::new(Silent)).unwrap();
}

#[test]
fn a_deferred_connection_begins_with_its_data() {
    let (a, b, server) = hosts(0x402);
    learn(&a, &b, &server);
    let second = client(&a);
    second.configure(T0, |options| options.fast_open_connect = true);
    assert_eq!(second.connect(T0, to()), Ok(()));
    assert!(a.sent().is_empty() && second.readiness().contains(Events::OUT));
    assert_eq!(second.connect(T0, to()), Err(Errno::EISCONN));
    assert_eq!(second.receive(T0, &mut [0], false), Err(Errno::EAGAIN));
    assert_eq!(second.send(T0, b"with the SYN", false), Ok(12));
    assert_eq!(second.opened(false), Err(Errno::EAGAIN));
    exchange(T0, &a, &b);
    let child = server.accept(Arc::new(Silent)).unwrap();
    assert_eq!((child.queued().0, second.opened(false)), (12, Ok(())));
    assert_eq!(second.state(), State::Established);
}

#[test]
fn a_server_that_does_not_answer_is_asked_the_other_way_once() {
    let (a, b, server) = hosts(0);
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let one = client(&a);
        assert_eq!(one.send_fast_open(T0, to(), b"x", false), Err(Errno::EINPROGRESS));
        let syn = a.sent();
        kinds.push(segment(&syn[0]).0.options.fast_open.map(|cookie| cookie.experimental));
        b.receive(T0, &syn[0]);
        exchange(T0, &a, &b);
        server.accept(Arc::new(Silent)).unwrap();
    }
    assert_eq!(kinds, [Some(false), Some(true), Some(false), Some(false)]);
}

#[test]
fn data_that_the_server_did_not_take_goes_again_at_once() {
    let (a, b, server) = hosts(0x402);
    learn(&a, &b, &server);
    b.stack.sysctls.tcp_fastopen.set(0).unwrap();
    let one = client(&a);
    assert_eq!(one.send_fast_open(T0, to(), &[7; 3000], false), Ok(1420));
    b.receive(T0, &a.sent()[0]);
    a.receive(T0, &b.sent()[0]);
    // The data acknowledges the SYN-ACK.
    let sent: Vec<_> = a.sent().iter().map(segment).map(|(_, len)| len).collect();
    assert_eq!((sent, one.info(T0).retrans), (vec![1420], 1));
    assert_eq!(one.info(T0).options & 32, 0);
}

#[test]
fn the_segment_size_of_a_socket_does_not_hold_for_the_next_one() {
    let (a, b, server) = hosts(0x402);
    learn(&a, &b, &server);
    for (max_segment, taken) in [(1040, 1000), (0, 1420)] {
        let one = client(&a);
        one.configure(T0, |options| options.max_segment = max_segment);
        assert_eq!(one.send_fast_open(T0, to(), &[7; 2000], false), Ok(taken));
        b.receive(T0, &a.sent()[0]);
        a.receive(T0, &b.sent()[0]);
        a.sent();
    }
}

#[test]
fn a_syn_that_is_too_large_goes_again_without_data() {
    let (a, b, server) = hosts(0x402);
    learn(&a, &b, &server);
    let one = client(&a);
    assert_eq!(one.send_fast_open(T0, to(), &[7; 1000], false), Ok(1000));
    assert_eq!(segment(&a.sent()[0]).1, 1000);
    let later = T0.plus(Duration::from_secs(1));
    a.stack.run_timers(later);
    let again = segment(&a.sent()[0]);
    assert_eq!((again.1, again.0.options.fast_open), (0, None));
}

#[test]
fn servers_may_do_without_cookies() {
    let (a, b, server) = hosts(0x602);
    a.stack.sysctls.tcp_fastopen.set(5).unwrap();
    let one = client(&a);
    assert_eq!(one.send_fast_open(T0, to(), b"early", false), Ok(5));
    let syn = a.sent();
    assert_eq!(segment(&syn[0]).0.options.fast_open, None);
    b.receive(T0, &syn[0]);
    let child = server.accept(Arc::new(Silent)).unwrap();
    assert_eq!((child.state(), child.queued().0), (State::SynReceived, 5));
}

#[test]
fn servers_with_one_key_know_each_others_cookies() {
    let (a, b, server) = hosts(0x402);
    b.stack.fast_open_keys().set("1-2-3-4").unwrap();
    learn(&a, &b, &server);
    let (c, other) = (host(2), b);
    drop(other);
    c.stack.sysctls.tcp_fastopen.set(0x402).unwrap();
    c.stack.fast_open_keys().set("1-2-3-4").unwrap();
    let server = client(&c);
    server.bind("0.0.0.0:80".parse().unwrap(), true).unwrap();
    server.listen(16).unwrap();
    assert_eq!(client(&a).send_fast_open(T0, to(), b"early", false), Ok(5));
    exchange(T0, &a, &c);
    assert_eq!(server.accept(Arc::new(Silent)).unwrap().queued().0, 5);
}
