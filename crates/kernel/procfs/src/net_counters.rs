//! /proc/PID/net/snmp, snmp6, netstat, softnet_stat and sockstat: the counters of the TCP/IP stack. See
//! proc_pid_net(5).

use crate::counter_names as names;
use abi::Result;
use kernfs::At;
use netstack::counters::IcmpKinds;
use netstack::datagram::DatagramSocket;
use std::fmt::Write;
use std::sync::Arc;

type Values = Vec<(&'static str, u64)>;

/// The names of each line, in the order in which programs know them. What the stack does not count is 0.
const IP: &str = "Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards \
                  InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs \
                  FragFails FragCreates OutTransmits";
const ICMP: &str = "InMsgs InErrors InCsumErrors InDestUnreachs InTimeExcds InParmProbs InSrcQuenchs InRedirects \
                    InEchos InEchoReps InTimestamps InTimestampReps InAddrMasks InAddrMaskReps OutMsgs OutErrors \
                    OutRateLimitGlobal OutRateLimitHost OutDestUnreachs OutTimeExcds OutParmProbs OutSrcQuenchs \
                    OutRedirects OutEchos OutEchoReps OutTimestamps OutTimestampReps OutAddrMasks OutAddrMaskReps";
const TCP: &str = "RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab \
                   InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors";
const UDP: &str =
    "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors";

/// The values that are not counted: settings of TCP (RFC 4022).
const TCP_SETTINGS: [(&str, i64); 4] =
    [("RtoAlgorithm", 1), ("RtoMin", 200), ("RtoMax", 120_000), ("MaxConn", -1)];

/// The names of UDP's lines of IPv6.
const UDP_ORDER: [&str; 9] = [
    "InDatagrams",
    "NoPorts",
    "InErrors",
    "OutDatagrams",
    "RcvbufErrors",
    "SndbufErrors",
    "InCsumErrors",
    "IgnoredMulti",
    "MemErrors",
];

/// A count of the ICMP row: of a type, or of another kind.
fn icmp_count(values: &Values, kinds: &IcmpKinds, name: &str) -> u64 {
    let of = |rest: &str| names::ICMP.iter().find(|(known, _)| *known == rest).map(|(_, kind)| *kind);
    match (name.strip_prefix("In").and_then(of), name.strip_prefix("Out").and_then(of)) {
        (Some(kind), _) => kinds.received(kind),
        (_, Some(kind)) => kinds.sent(kind),
        _ => find(values, name),
    }
}

fn find(values: &Values, name: &str) -> u64 {
    values.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// A line of names and a line of values.
fn pair(out: &mut String, title: &str, names: &str, value: impl Fn(&str) -> String) {
    let names: Vec<&str> = names.split_whitespace().collect();
    let values: Vec<String> = names.iter().map(|name| value(name)).collect();
    let _ = writeln!(out, "{title}: {}\n{title}: {}", names.join(" "), values.join(" "));
}

pub(crate) fn snmp(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let (counters, sysctls) = (&ns.net.stack().counters, &ns.net.stack().sysctls);
    let mut out = String::new();
    let ip = counters.ip.values();
    pair(&mut out, "Ip", IP, |name| match name {
        // 1 forwards, 2 does not.
        "Forwarding" => if sysctls.ip_forward.on() { "1" } else { "2" }.into(),
        "DefaultTTL" => sysctls.ip_default_ttl.get().to_string(),
        name => find(&ip, name).to_string(),
    });
    let icmp = counters.icmp.values();
    let kinds = &counters.icmp_kinds;
    pair(&mut out, "Icmp", ICMP, |name| icmp_count(&icmp, kinds, name).to_string());
    let directions: [(&str, &dyn Fn(u8) -> u64); 2] =
        [("In", &|kind| kinds.received(kind)), ("Out", &|kind| kinds.sent(kind))];
    let of_type = |(direction, count): (&'static str, &dyn Fn(u8) -> u64)| -> Vec<(String, u64)> {
        let counted = (0..=u8::MAX).filter(|kind| count(*kind) > 0);
        counted.map(|kind| (format!("{direction}Type{kind}"), count(kind))).collect()
    };
    let all = directions.map(of_type).concat();
    if !all.is_empty() {
        let types: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        pair(&mut out, "IcmpMsg", &types.join(" "), |name| {
            all.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value).to_string()
        });
    }
    let tcp = counters.tcp.values();
    pair(&mut out, "Tcp", TCP, |name| match TCP_SETTINGS.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => value.to_string(),
        None => find(&tcp, name).to_string(),
    });
    let udp = counters.udp.values();
    pair(&mut out, "Udp", UDP, |name| find(&udp, name).to_string());
    let udp_lite = counters.udp_lite.values();
    pair(&mut out, "UdpLite", UDP, |name| find(&udp_lite, name).to_string());
    Ok(out.into_bytes())
}

/// A line of IPv6's file.
fn line6(out: &mut String, title: &str, name: &str, value: u64) {
    let _ = writeln!(out, "{:<32}\t{value}", format!("{title}{name}"));
}

pub(crate) fn snmp6(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let counters = &ns.net.stack().counters;
    let mut out = String::new();
    let ip = [counters.ip6.values(), counters.traffic6.values()].concat();
    for name in names::IP6.split_whitespace() {
        // The one name that differs from IPv4's.
        let known = if name == "OutForwDatagrams" { "ForwDatagrams" } else { name };
        line6(&mut out, "Ip6", name, find(&ip, known));
    }
    let (icmp, kinds) = (counters.icmp6.values(), &counters.icmp6_kinds);
    for name in ["InMsgs", "InErrors", "OutMsgs", "OutErrors", "InCsumErrors", "OutRateLimitHost"] {
        line6(&mut out, "Icmp6", name, find(&icmp, name));
    }
    let directions: [(&str, &dyn Fn(u8) -> u64); 2] =
        [("In", &|kind| kinds.received(kind)), ("Out", &|kind| kinds.sent(kind))];
    for (direction, count) in directions {
        for (name, kind) in names::ICMP6 {
            line6(&mut out, "Icmp6", &format!("{direction}{name}"), count(kind));
        }
    }
    // Types that have been counted have a line by their number, too.
    for (direction, count) in directions {
        for kind in (0..=u8::MAX).filter(|kind| count(*kind) > 0) {
            line6(&mut out, "Icmp6", &format!("{direction}Type{kind}"), count(kind));
        }
    }
    for (title, values) in [("Udp6", counters.udp6.values()), ("UdpLite6", counters.udp_lite6.values())] {
        // UDP-Lite of IPv6 has no line for groups that nothing has joined.
        for name in UDP_ORDER.iter().filter(|name| title == "Udp6" || **name != "IgnoredMulti") {
            line6(&mut out, title, name, find(&values, name));
        }
    }
    Ok(out.into_bytes())
}

/// What is counted beyond RFC 4022 and RFC 4293.
pub(crate) fn netstat(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let counters = &ns.net.stack().counters;
    let (tcp, ip) = (counters.tcp.values(), counters.traffic.values());
    let mut out = String::new();
    pair(&mut out, "TcpExt", names::TCP_EXT, |name| find(&tcp, name).to_string());
    pair(&mut out, "IpExt", names::IP_EXT, |name| find(&ip, name).to_string());
    pair(&mut out, "MPTcpExt", names::MPTCP_EXT, |_| "0".into());
    Ok(out.into_bytes())
}

/// A line for each processor: packets, drops, and what else happens to queues of packets. Here the stack takes packets
/// at once.
pub(crate) fn softnet_stat(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let links = if ns.net.shows_stack() { ns.net.stack().links() } else { Vec::new() };
    // The processors share a count.
    let mut packets: u64 = links.iter().map(|link| link.counters.rx_packets.get()).sum();
    let mut out = String::new();
    for cpu in at.limits().online().iter() {
        let zeros = " 00000000".repeat(11);
        let _ =
            writeln!(out, "{:08x}{zeros} {cpu:08x} 00000000 00000000", std::mem::take(&mut packets) as u32);
    }
    Ok(out.into_bytes())
}

fn count(all: &[Arc<DatagramSocket>], v6: bool) -> usize {
    all.iter().filter(|socket| socket.is_v6() == v6).count()
}

pub(crate) fn sockstat(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let stack = ns.net.stack();
    let (connections, waiting, orphans) = stack.tcp_counts();
    let tcp = stack.tcp_sockets();
    let inuse = tcp.iter().filter(|socket| !socket.is_v6()).count();
    let (udp, lite, raw) = (stack.udp_sockets(), stack.udp_lite_sockets(), stack.raw_sockets());
    let used = tcp.len().saturating_sub(waiting + orphans) + udp.len() + lite.len() + raw.len();
    let out = format!(
        "sockets: used {used}\n\
         TCP: inuse {inuse} orphan {orphans} tw {waiting} alloc {connections} mem 0\n\
         UDP: inuse {} mem 0\nUDPLITE: inuse {}\nRAW: inuse {}\nFRAG: inuse 0 memory 0\n",
        count(&udp, false),
        count(&lite, false),
        count(&raw, false),
    );
    Ok(out.into_bytes())
}

pub(crate) fn sockstat6(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let stack = ns.net.stack();
    let tcp = stack.tcp_sockets().iter().filter(|socket| socket.is_v6()).count();
    let out = format!(
        "TCP6: inuse {tcp}\nUDP6: inuse {}\nUDPLITE6: inuse {}\nRAW6: inuse {}\nFRAG6: inuse 0 memory 0\n",
        count(&stack.udp_sockets(), true),
        count(&stack.udp_lite_sockets(), true),
        count(&stack.raw_sockets(), true),
    );
    Ok(out.into_bytes())
}
