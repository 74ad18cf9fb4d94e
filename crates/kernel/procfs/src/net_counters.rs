//! /proc/PID/net/snmp, snmp6, netstat and sockstat: the counters of the TCP/IP stack. See proc_pid_net(5).

use abi::Result;
use kernfs::At;
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
    pair(&mut out, "Icmp", ICMP, |name| find(&icmp, name).to_string());
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

pub(crate) fn snmp6(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let counters = &ns.net.stack().counters;
    let mut out = String::new();
    for (title, values) in [("Ip6", counters.ip6.values()), ("Icmp6", counters.icmp6.values())] {
        for (name, value) in values {
            let _ = writeln!(out, "{:<32}\t{value}", format!("{title}{name}"));
        }
    }
    Ok(out.into_bytes())
}

/// What is counted of TCP beyond RFC 4022.
pub(crate) fn netstat(at: &At) -> Result<Vec<u8>> {
    let values = at.nsproxy().net.stack().counters.tcp.values();
    let known: Vec<&str> = TCP.split_whitespace().collect();
    let others: Vec<&str> =
        values.iter().map(|(name, _)| *name).filter(|name| !known.contains(name)).collect();
    let mut out = String::new();
    pair(&mut out, "TcpExt", &others.join(" "), |name| find(&values, name).to_string());
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
