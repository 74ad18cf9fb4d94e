//! Network layer: echo, neighbours, fragments, forwarding, malformed packets.

use super::hosts::{Host, T0, exchange, host};
use crate::addr::Prefix;
use crate::frame::{Frame, Offload};
use crate::iface::Address;
use crate::neigh::State;
use crate::network::path::Header;
use crate::route::{Key, Route};
use crate::testing::{Random, effort};
use crate::wire::eth::{self, Ethernet, Mac};
use crate::wire::icmp::{ECHO, ECHO6, Icmp};
use crate::wire::ipv6::{Fragment, Ipv6};
use crate::wire::proto;
use std::net::IpAddr;
use zerocopy::IntoBytes;
use zerocopy::network_endian::U16;

fn ping(from: &Host, to: &str, len: usize) {
    let dst: IpAddr = to.parse().unwrap();
    let scoped = if to.starts_with("fe80") { from.eth.index } else { 0 };
    let path = from.stack.route(&Key { oif: scoped, ..Key::to(dst) }, T0).unwrap();
    let body = vec![7; len];
    let between = match (path.src, path.dst) {
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a, b)),
        _ => None,
    };
    let kind = if dst.is_ipv4() { ECHO } else { ECHO6 };
    let mut buf = from.stack.pool().copy(&body);
    buf.push_front(Icmp::new(kind, 0, [0, 1, 0, 1]).sealed(between, &body).as_bytes());
    let protocol = if dst.is_ipv4() { proto::ICMP } else { proto::ICMPV6 };
    let header = Header { protocol, ..Header::default() };
    from.stack.send_ip(T0, &path, &header, buf, Offload::default()).unwrap();
    from.stack.finish(T0);
}

fn replies(host: &Host) -> (u64, u64) {
    (host.stack.counters.icmp.in_echo_reps.get(), host.stack.counters.icmp6.in_echo_reps.get())
}

#[test]
fn hosts_answer_echo_requests() {
    let (a, b) = (host(1), host(2));
    for to in ["10.0.0.2", "fe80::2", "2001:db8::2"] {
        ping(&a, to, 56);
        // A solicitation and its answer, the request and its answer.
        assert!(exchange(T0, &a, &b) >= 4, "{to}");
    }
    assert_eq!(replies(&a), (1, 2));
    ping(&a, "10.0.0.2", 56);
    assert_eq!(exchange(T0, &a, &b), 2, "the neighbour is known");
    let key = (a.eth.index, "10.0.0.2".parse().unwrap());
    let shown = a.stack.with_neighbours(|table| table.shown(T0, &a.stack.sysctls));
    assert!(
        shown.iter().any(|(k, mac, state)| *k == key && *mac == b.eth.mac() && *state == State::Reachable)
    );
}

#[test]
fn own_addresses_are_reached_through_loopback() {
    let a = host(1);
    for to in ["127.0.0.1", "127.9.9.9", "10.0.0.1", "::1", "2001:db8::1"] {
        ping(&a, to, 5000);
    }
    assert_eq!(replies(&a), (3, 2));
    assert!(a.sent().is_empty());
}

#[test]
fn large_packets_are_fragmented() {
    let (a, b) = (host(1), host(2));
    ping(&a, "10.0.0.2", 9000);
    ping(&a, "2001:db8::2", 9000);
    exchange(T0, &a, &b);
    assert_eq!(replies(&a), (1, 1));
    assert_eq!(a.stack.counters.ip.reasm_oks.get(), 1);
    assert_eq!(b.stack.counters.ip6.frag_creates.get(), 7);
}

#[test]
fn routers_forward_and_lower_the_ttl() {
    let (a, b, router) = (host(1), host(2), host(3));
    let far = Prefix::new("10.9.0.2".parse().unwrap(), 24);
    b.stack.add_address(b.eth.index, Address::new(far)).unwrap();
    let gateway = Some("10.0.0.3".parse().unwrap());
    let route = Route::new(Prefix::new("10.9.0.0".parse().unwrap(), 24), a.eth.index, gateway);
    a.stack.with_routes(|routes| routes.add(route)).unwrap();
    let route = Route::new(Prefix::new("10.9.0.0".parse().unwrap(), 24), router.eth.index, None);
    router.stack.with_routes(|routes| routes.add(route)).unwrap();
    router.stack.sysctls.ip_forward.set(1).unwrap();
    ping(&a, "10.9.0.2", 56);
    for _ in 0..20 {
        let hosts = [&a, &b, &router];
        let frames: Vec<Frame> = hosts.iter().flat_map(|host| host.sent()).collect();
        for frame in frames {
            hosts.iter().for_each(|host| host.receive(T0, &frame));
        }
    }
    assert_eq!((replies(&a).0, router.stack.counters.ip.forwarded.get()), (1, 1));
}

#[test]
fn any_bytes_are_taken_without_panic() {
    let (a, b) = (host(1), host(2));
    ping(&b, "10.0.0.1", 100);
    ping(&b, "2001:db8::1", 3000);
    let mut corpus: Vec<Frame> = Vec::new();
    for _ in 0..4 {
        let (one, two) = (a.sent(), b.sent());
        one.iter().for_each(|frame| b.receive(T0, frame));
        two.iter().for_each(|frame| a.receive(T0, frame));
        corpus.extend(one.into_iter().chain(two));
    }
    let mut random = Random::new(11);
    for _ in 0..60_000 * effort() {
        let pick = &corpus[random.below(corpus.len() as u64) as usize];
        let mut bytes = pick.buf.to_vec();
        bytes[..6].copy_from_slice(&a.eth.mac().0);
        for _ in 0..random.below(6) {
            let at = 12 + random.below(bytes.len() as u64 - 12) as usize;
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(14 + random.below(bytes.len() as u64) as usize);
        a.stack.receive_bytes(T0, a.eth.index, &bytes);
        a.sent();
    }
    assert!(a.stack.reassembly.lock().bytes() <= 4 << 20);
}

/// Each packet holds the fragment that completes the next one.
#[test]
fn fragments_of_fragments_are_dropped() {
    const NESTED: u32 = 1500;
    let a = host(1);
    let (src, dst) = ("2001:db8::9".parse().unwrap(), "2001:db8::1".parse().unwrap());
    let header = |offset, more, id| Fragment::new(proto::FRAGMENT, offset, more, id);
    let receive = |parts: [&[u8]; 2]| {
        let ip = Ipv6::new(src, dst, proto::FRAGMENT, 16);
        let link = Ethernet { dst: a.eth.mac(), src: Mac([2, 0, 0, 0, 0, 9]), kind: U16::new(eth::IPV6) };
        let bytes = [link.as_bytes(), ip.as_bytes(), parts[0], parts[1]].concat();
        a.stack.receive_bytes(T0, a.eth.index, &bytes);
    };
    for id in 1..NESTED {
        receive([header(0, true, id).as_bytes(), header(8, false, id + 1).as_bytes()]);
    }
    receive([header(8, false, 1).as_bytes(), &[0; 8]]);
    let counters = &a.stack.counters.ip6;
    assert_eq!((counters.reasm_oks.get(), counters.in_hdr_errors.get()), (1, 1));
}
