//! Batches of nf_tables, and packets that meet their rules.
//!
//! An input is two bytes for the length of the batch, the batch, and a packet that a tunnel receives.

use super::{Bytes, outcome};
use ktime::Ktime;
use netfilter::Netfilter;
use netstack::addr::Prefix;
use netstack::datagram::Protocol;
use netstack::driver::Device;
use netstack::frame::Frame;
use netstack::iface::{Address, Config, Kind};
use netstack::notify::Silent;
use netstack::wire::eth::Mac;
use netstack::{LOOPBACK, NoAlarm, Stack};
use nftables::{AckOptions, Asker, Nftables, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) const WORDS: &[&str] = &[
    "filter\0",
    "nat\0",
    "route\0",
    "payload\0",
    "meta\0",
    "cmp\0",
    "range\0",
    "bitwise\0",
    "byteorder\0",
    "lookup\0",
    "dynset\0",
    "immediate\0",
    "ct\0",
    "masq\0",
    "redir\0",
    "reject\0",
    "log\0",
    "limit\0",
    "counter\0",
    "quota\0",
    "numgen\0",
    "hash\0",
    "fib\0",
    "exthdr\0",
    "rt\0",
    "objref\0",
    "notrack\0",
    "match\0",
    "target\0",
    "__set%d\0",
    "__map%d\0",
    "lo\0",
];

/// Counts what leaves.
#[derive(Default)]
struct Wire(AtomicUsize);

impl Device for Wire {
    fn transmit(&self, _: Frame) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn tunnel(stack: &Arc<Stack>, name: &str, address: &str) -> (u32, Arc<Wire>) {
    let wire = Arc::new(Wire::default());
    let config = Config { name: name.into(), kind: Kind::Tunnel, mac: Mac::default(), mtu: 1500 };
    let Ok(link) = stack.add_link(config, wire.clone()) else { return (0, wire) };
    let _ = stack.set_up(link.index, true);
    if let Ok(ip) = address.parse() {
        let _ = stack.add_address(link.index, Address::new(Prefix::new(ip, 24)));
    }
    (link.index, wire)
}

/// A request without attributes.
fn bare(kind: u8, flags: u16) -> Vec<u8> {
    let mut out = 20u32.to_ne_bytes().to_vec();
    out.extend([kind, nftables::NFTABLES]);
    out.extend(flags.to_ne_bytes());
    out.extend([0; 12]);
    out
}

/// How many messages some datagrams hold, and how many of them are errors. Every length must be right.
fn messages(datagrams: &[Vec<u8>]) -> (usize, usize) {
    let (mut all, mut errors) = (0, 0);
    for datagram in datagrams {
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let (message, after) = Request::next(rest).expect("an answer has a sound header");
            rest = after;
            all += 1;
            errors += usize::from(message.kind == 2 && message.bytes.get(16..20) != Some(&[0; 4]));
        }
    }
    (all, errors)
}

pub(super) fn run(input: &[u8]) -> u64 {
    const NOW: Ktime = Ktime::from_millis(1_000_000);
    const DUMP: u16 = 0x301;
    const LISTS: [u8; 5] = [1, 4, 7, 10, 19];
    let mut bytes = Bytes(input);
    let len = usize::from(bytes.byte()) | usize::from(bytes.byte()) << 8;
    let (batch, packet) = bytes.0.split_at(len.min(bytes.0.len()));
    let stack = Stack::new([1; 16], Arc::new(NoAlarm));
    let _ = stack.set_up(LOOPBACK, true);
    let _ = stack.sysctls.ip_forward.set(1);
    let (inside, _) = tunnel(&stack, "in", "10.91.0.1");
    let (_, out) = tunnel(&stack, "out", "10.92.0.1");
    let netfilter = Netfilter::new(&stack, [2; 16]);
    let rules = Nftables::new(netfilter.clone());
    let options = AckOptions { capped: true, extended: true };
    let asker =
        Asker { port: 7, pid: 8, name: b"fuzz", options, listeners: true, now: NOW.millis(), room: 1 << 20 };
    let done = rules.batch(batch, &asker);
    let (_, errors) = messages(&done.answers);
    let events: Vec<_> = done.events.iter().map(|event| event.message.clone()).collect();
    let (told, _) = messages(&events);
    assert_eq!(told == 0, rules.generation() == 1, "what changes is told, and has a generation");
    assert!(errors == 0 || told == 0, "a batch with an error changes nothing");
    let listed = LISTS.map(|kind| {
        let request = bare(kind, DUMP);
        let (request, _) = Request::next(&request).expect("a whole request");
        messages(&rules.get(&request, &asker).expect("a dump of all never fails")).0.min(9)
    });
    let socket = stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    let to = "127.0.0.1:53".parse();
    let sent = to.map(|to| socket.send(NOW, b"hello", Some(to), &Default::default()));
    stack.receive_bytes(NOW, inside, packet);
    // BATCH_BEGIN for nf_tables, NFT_MSG_DELTABLE of all, BATCH_END.
    let mut flush = bare(0, 1);
    flush[4..6].copy_from_slice(&16u16.to_ne_bytes());
    flush[18..20].copy_from_slice(&u16::from(nftables::NFTABLES).to_be_bytes());
    flush.extend(bare(2, 1));
    let end = flush.len();
    flush.extend(bare(0, 1));
    flush[end + 4..end + 6].copy_from_slice(&17u16.to_ne_bytes());
    assert_eq!(messages(&rules.batch(&flush, &asker).answers).1, 0, "everything can be flushed");
    assert_eq!(rules.bytes(), 0, "what is gone takes no memory");
    let first = done.answers.first().and_then(|answer| answer.get(16..20).map(<[u8]>::to_vec));
    outcome((
        errors.min(3),
        first,
        listed,
        told.min(20),
        sent.map(|sent| sent.is_ok()).ok(),
        out.0.load(Ordering::Relaxed),
    ))
}
