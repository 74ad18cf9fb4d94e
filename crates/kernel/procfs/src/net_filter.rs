//! /proc/net/nf_conntrack, and the names of tables, matches and targets of iptables.

use abi::Result;
use conntrack::{Entry as Connection, Status, Tuple};
use kernfs::At;
use netfilter::Family;
use std::fmt::Write;
use std::net::IpAddr;
use xtables::xt::{Match, Target};

fn lines<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<u8>> {
    Ok(names.into_iter().flat_map(|name| [name.as_bytes(), b"\n"].concat()).collect())
}

/// The tables of IPv4.
pub(crate) fn tables(at: &At) -> Result<Vec<u8>> {
    lines(at.nsproxy().net.tables().names(Family::V4))
}

/// The tables of IPv6.
pub(crate) fn tables6(at: &At) -> Result<Vec<u8>> {
    lines(at.nsproxy().net.tables().names(Family::V6))
}

/// The matches for IPv4.
pub(crate) fn matches(_: &At) -> Result<Vec<u8>> {
    lines(<dyn Match>::names(Family::V4))
}

/// The matches for IPv6.
pub(crate) fn matches6(_: &At) -> Result<Vec<u8>> {
    lines(<dyn Match>::names(Family::V6))
}

/// The targets for IPv4, with the one that ends tables.
pub(crate) fn targets(_: &At) -> Result<Vec<u8>> {
    lines(<dyn Target>::names(Family::V4).into_iter().chain(["ERROR"]))
}

/// The targets for IPv6.
pub(crate) fn targets6(_: &At) -> Result<Vec<u8>> {
    lines(<dyn Target>::names(Family::V6).into_iter().chain(["ERROR"]))
}

/// The connections.
pub(crate) fn nf_conntrack(at: &At) -> Result<Vec<u8>> {
    let ns = at.nsproxy();
    let now = ns.net.now().millis();
    let mut out = String::new();
    for entry in ns.net.netfilter().connections.entries(now) {
        // Writing to a string does not fail.
        let _ = connection(&mut out, &entry, now);
    }
    Ok(out.into_bytes())
}

fn connection(out: &mut String, entry: &Connection, now: u64) -> std::fmt::Result {
    const TCP: u8 = 6;
    let (family, number) = if entry.original.src.is_ipv4() { ("ipv4", 2) } else { ("ipv6", 10) };
    let protocol = entry.original.protocol;
    let left = entry.seconds_left(now);
    write!(out, "{family:<8} {number} {:<8} {protocol} {left} ", protocol_name(protocol))?;
    if protocol == TCP {
        write!(out, "{} ", entry.tcp_state().name())?;
    }
    tuple(out, &entry.original)?;
    if !entry.has(Status::SEEN_REPLY) {
        out.push_str("[UNREPLIED] ");
    }
    tuple(out, &entry.reply())?;
    if entry.has(Status::ASSURED) {
        out.push_str("[ASSURED] ");
    }
    writeln!(out, "mark={} zone=0 use=2", entry.mark())
}

fn protocol_name(protocol: u8) -> &'static str {
    match protocol {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        47 => "gre",
        58 => "icmpv6",
        132 => "sctp",
        136 => "udplite",
        _ => "unknown",
    }
}

fn tuple(out: &mut String, tuple: &Tuple) -> std::fmt::Result {
    write!(out, "src={} dst={} ", address(tuple.src), address(tuple.dst))?;
    if tuple.is_icmp() {
        return write!(out, "type={} code={} id={} ", tuple.icmp_type(), tuple.icmp_code(), tuple.src_port);
    }
    match tuple.protocol {
        6 | 17 | 33 | 132 | 136 => write!(out, "sport={} dport={} ", tuple.src_port, tuple.dst_port),
        _ => Ok(()),
    }
}

/// IPv6 addresses are written in full.
fn address(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().map(|part| format!("{part:04x}")).join(":"),
    }
}
