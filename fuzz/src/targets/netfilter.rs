//! Tables of iptables-legacy, and packets that meet their rules.
//!
//! An input is a byte for the family, a `struct ipt_replace` with its entries, and a packet that a tunnel receives.

use super::{Bytes, outcome};
use ktime::Ktime;
use netfilter::{Family, Netfilter};
use netstack::addr::Prefix;
use netstack::datagram::Protocol;
use netstack::driver::Device;
use netstack::frame::Frame;
use netstack::iface::{Address, Config, Kind};
use netstack::notify::Silent;
use netstack::wire::eth::Mac;
use netstack::{LOOPBACK, NoAlarm, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xtables::Tables;
use xtables::layout::{HEAD, INFO, REPLACE, Replace};
use xtables::xt::{Match, Target};

pub(super) const WORDS: &[&str] = &[
    "filter\0",
    "nat\0",
    "mangle\0",
    "raw\0",
    "ERROR\0",
    "REJECT\0",
    "MASQUERADE\0",
    "DNAT\0",
    "SNAT\0",
    "MARK\0",
    "REDIRECT\0",
    "TCPMSS\0",
    "conntrack\0",
    "multiport\0",
    "addrtype\0",
    "limit\0",
    "statistic\0",
    "tcp\0",
    "udp\0",
    "owner\0",
    "LOG\0",
];

/// Counts what leaves.
#[derive(Default)]
struct Wire(AtomicUsize);

impl Device for Wire {
    fn transmit(&self, _: Frame) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn tunnel(stack: &Arc<Stack>, name: &str, addresses: [&str; 2]) -> (u32, Arc<Wire>) {
    let wire = Arc::new(Wire::default());
    let config = Config { name: name.into(), kind: Kind::Tunnel, mac: Mac::default(), mtu: 1500 };
    let Ok(link) = stack.add_link(config, wire.clone()) else { return (0, wire) };
    let _ = stack.set_up(link.index, true);
    for address in addresses {
        let Ok(ip) = address.parse::<std::net::IpAddr>() else { continue };
        let len = if ip.is_ipv4() { 24 } else { 64 };
        let _ = stack.add_address(link.index, Address::new(Prefix::new(ip, len)));
    }
    (link.index, wire)
}

pub(super) fn run(input: &[u8]) -> u64 {
    const NOW: Ktime = Ktime::from_millis(1_000_000);
    let mut bytes = Bytes(input);
    let family = if bytes.byte() & 1 == 0 { Family::V4 } else { Family::V6 };
    let input = bytes.0;
    let mut replace = match Replace::parse(input) {
        Ok(replace) => replace,
        Err(errno) => return outcome(("head", errno.raw())),
    };
    let rest = input.get(REPLACE..).unwrap_or_default();
    let size = replace.size.min(rest.len());
    let (blob, packet) = rest.split_at(size);
    replace.size = size;
    let stack = Stack::new([1; 16], Arc::new(NoAlarm));
    let _ = stack.set_up(LOOPBACK, true);
    let _ = (stack.sysctls.ip_forward.set(1), stack.sysctls.ip6_forward.set(1));
    let (inside, _) = tunnel(&stack, "in", ["10.91.0.1", "2001:db8:1::1"]);
    let (_, out) = tunnel(&stack, "out", ["10.92.0.1", "2001:db8:2::1"]);
    let netfilter = Netfilter::new(&stack, [2; 16]);
    let tables = Tables::new(&netfilter);
    let name = replace.name.clone();
    let entries = match tables.info(family, &name) {
        Ok(info) => {
            assert_eq!(info.len(), INFO);
            u32::from_ne_bytes(info[76..80].try_into().unwrap_or_default())
        }
        Err(errno) => return outcome(("table", errno.raw())),
    };
    replace.counters.0 = entries as usize;
    let parts = parts(family, blob);
    let old = match tables.replace(family, replace, blob.to_vec()) {
        Ok(old) => old,
        Err(errno) => return outcome(("entries", errno.raw(), parts)),
    };
    assert_eq!(old.len(), entries as usize);
    assert_eq!(tables.entries(family, &name, size).map(|entries| entries.len()), Ok(size));
    assert!(tables.entries(family, &name, size + HEAD).is_err());
    let socket = stack.datagram_socket(family == Family::V6, Protocol::Udp, Arc::new(Silent));
    let to = if family == Family::V4 { "127.0.0.1:53" } else { "[::1]:53" };
    let sent = to.parse().map(|to| socket.send(NOW, b"hello", Some(to), &Default::default()));
    stack.receive_bytes(NOW, inside, packet);
    let forwarded = out.0.load(Ordering::Relaxed);
    let tracked = netfilter.connections.count(NOW.millis());
    assert!(tracked <= 3, "a packet is one connection, and so may be its answer");
    outcome((parts, sent.map(|sent| sent.is_ok()).ok(), forwarded, tracked))
}

/// Which matches and targets the entries name: the first few, so that combinations are new to the loop.
fn parts(family: Family, blob: &[u8]) -> Vec<&'static str> {
    let names = <dyn Match>::names(family).into_iter().chain(<dyn Target>::names(family));
    let named = names.filter(|name| {
        let name = [name.as_bytes(), b"\0"].concat();
        blob.windows(name.len()).any(|window| window == name)
    });
    named.take(3).collect()
}
