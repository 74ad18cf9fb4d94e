//! /proc/PID/net: the tables of the network namespace. Sockets of the TCP/IP stack are in `net_sockets`, its counters in `net_counters`.

use crate::{net_counters as counters, net_filter as filter, net_sockets as sockets};
use abi::{Errno, Result};
use kernfs::{At, Child, Entry, Names, What, dir, empty, private, text};
use netstack::counters::{Counter, Link};
use netstack::neigh::State;
use netstack::route::RouteKind;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn dev(at: &At) -> Result<Vec<u8>> {
    let mut out = String::from(
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    );
    let ns = at.nsproxy();
    for link in &ns.net.interfaces().links {
        let name = &link.name;
        let own = ns.net.stack().link_by_name(name);
        let count = |of: fn(&Link) -> &Counter| own.as_ref().map_or(0, |link| of(&link.counters).get());
        let _ = writeln!(
            out,
            "{name:>6}: {:>7} {:>7} {:>4} {:>4}    0     0          0 {:>9} {:>8} {:>7} {:>4} {:>4}    0     0       0          0",
            count(|c| &c.rx_bytes),
            count(|c| &c.rx_packets),
            count(|c| &c.rx_errors),
            count(|c| &c.rx_dropped),
            count(|c| &c.multicast),
            count(|c| &c.tx_bytes),
            count(|c| &c.tx_packets),
            count(|c| &c.tx_errors),
            count(|c| &c.tx_dropped),
        );
    }
    Ok(out.into_bytes())
}

fn if_inet6(at: &At) -> Result<Vec<u8>> {
    let mut out = String::new();
    let net = at.nsproxy().net.clone();
    for link in &net.interfaces().links {
        let own = net.stack().link(link.index).filter(|_| net.shows_stack());
        let own = own.map_or_else(Vec::new, |own| own.addresses());
        for (address, prefix) in &link.addresses {
            let flags = own
                .iter()
                .find(|own| own.ip() == *address)
                .map_or(libc::IFA_F_PERMANENT, socket::netlink::address_flags);
            let IpAddr::V6(address) = address else { continue };
            let scope = if address.is_loopback() {
                0x10
            } else if address.is_unicast_link_local() {
                0x20
            } else {
                0
            };
            let (bits, name) = (address.to_bits(), &link.name);
            let _ = writeln!(
                out,
                "{bits:032x} {:02x} {prefix:02x} {scope:02x} {flags:02x} {name:>8}",
                link.index
            );
        }
    }
    Ok(out.into_bytes())
}

/// Sockets that some descriptor refers to, in the order of their inode numbers.
fn unix(at: &At) -> Result<Vec<u8>> {
    let tasks: Vec<_> = at.kernel().tasks();
    let tables: BTreeMap<u64, _> = tasks.iter().filter_map(|t| t.fds()).map(|t| (t.id, t)).collect();
    let mut lines = BTreeMap::new();
    for (_, file, _) in tables.values().flat_map(|t| t.entries()) {
        let Ok(s) = socket::SocketFile::of(&file) else { continue };
        if s.ops.domain() == libc::AF_UNIX {
            let ino = file.attr().map_or(0, |a| a.ino);
            lines.entry(ino).or_insert_with(|| unix_line(&*s.ops, ino));
        }
    }
    let mut out = b"Num       RefCount Protocol Flags    Type St Inode Path\n".to_vec();
    out.extend(lines.into_values().flatten());
    Ok(out)
}

fn unix_line(s: &dyn socket::SocketOps, ino: u64) -> Vec<u8> {
    let flags = if s.listening() { 0x10000 } else { 0 };
    // SS_CONNECTED holds one more reference than SS_UNCONNECTED.
    let (refs, state) = if s.peer_addr().is_ok() { (3, 3) } else { (2, 1) };
    let (kind, name) = (s.kind(), s.describe());
    let mut line =
        format!("{:016x}: {refs:08x} 00000000 {flags:08x} {kind:04x} {state:02x} {ino:>5}", 0).into_bytes();
    if !name.is_empty() {
        line.push(b' ');
        line.extend(name);
    }
    line.push(b'\n');
    line
}

/// The IPv4 routes of the main table, addresses as the hexadecimal numbers that their bytes are in memory.
fn route(at: &At) -> Result<Vec<u8>> {
    const MAIN: u8 = 254;
    /// RTF_UP, RTF_GATEWAY, RTF_HOST.
    const UP: u32 = 1;
    const GATEWAY: u32 = 2;
    const HOST: u32 = 4;
    let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
    let mut out = format!("{head:<127}\n");
    let net = at.nsproxy().net.interfaces();
    for route in net.routes.iter().filter(|route| route.table == MAIN) {
        let (IpAddr::V4(to), prefix) = route.to else { continue };
        let Some(link) = net.links.iter().find(|link| link.index == route.interface) else { continue };
        let hex = |address: Ipv4Addr| format!("{:08X}", u32::from_ne_bytes(address.octets()));
        let via = match route.via {
            Some(IpAddr::V4(via)) => Some(via),
            _ => None,
        };
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let flags = UP | via.map_or(0, |_| GATEWAY) | if prefix == 32 { HOST } else { 0 };
        let row = format!(
            "{}\t{}\t{}\t{flags:04X}\t0\t0\t0\t{}\t0\t0\t0",
            link.name,
            hex(to),
            hex(via.unwrap_or(Ipv4Addr::UNSPECIFIED)),
            hex(mask.into()),
        );
        let _ = writeln!(out, "{row:<127}");
    }
    Ok(out.into_bytes())
}

/// The IPv4 neighbours.
fn arp(at: &At) -> Result<Vec<u8>> {
    /// ATF_COM, ATF_PERM.
    const COMPLETE: u32 = 2;
    const PERMANENT: u32 = 4;
    let mut out =
        String::from("IP address       HW type     Flags       HW address            Mask     Device\n");
    let net = at.nsproxy().net.clone();
    if !net.shows_stack() {
        return Ok(out.into_bytes());
    }
    let stack = net.stack();
    let mut all = stack.with_neighbours(|table| table.shown(net.now(), &stack.sysctls));
    all.sort_by_key(|(key, ..)| *key);
    for ((index, ip), mac, state) in all {
        let (IpAddr::V4(ip), Some(link)) = (ip, stack.link(index)) else { continue };
        let flags = match state {
            State::Permanent => COMPLETE | PERMANENT,
            State::Incomplete | State::Failed => 0,
            _ => COMPLETE,
        };
        let (ip, name) = (ip.to_string(), link.name());
        let _ = writeln!(out, "{ip:<16} 0x1         {flags:#x}         {mac:?}     *        {name}");
    }
    Ok(out.into_bytes())
}

/// The routes of IPv6: destination, source, next hop, metric, counts, flags and interface.
fn ipv6_route(at: &At) -> Result<Vec<u8>> {
    /// RTF_UP, RTF_GATEWAY, RTF_HOST, RTF_REJECT and RTF_LOCAL.
    const UP: u32 = 1;
    const GATEWAY: u32 = 2;
    const HOST: u32 = 4;
    const REJECT: u32 = 0x200;
    const LOCAL: u32 = 0x8000_0000;
    let net = at.nsproxy().net.clone();
    if !net.shows_stack() {
        return Ok(Vec::new());
    }
    let stack = net.stack();
    let mut all = stack.read_routes(|routes| routes.routes().to_vec());
    all.retain(|route| route.dst.addr.is_ipv6());
    all.sort_by_key(|route| (route.table, route.dst.len == 0, route.dst.addr, route.dst.len));
    let mut out = String::new();
    let bits = |ip: IpAddr| match ip {
        IpAddr::V6(ip) => ip.to_bits(),
        IpAddr::V4(_) => 0,
    };
    for route in all {
        let name = stack.link(if route.iface == 0 { 1 } else { route.iface }).map(|link| link.name());
        let via = route.gateway.map_or(0, bits);
        let kind = match route.kind {
            RouteKind::Unicast => 0,
            RouteKind::Local => LOCAL,
            _ => REJECT,
        };
        let flags = UP
            | kind
            | if via != 0 { GATEWAY } else { 0 }
            | if route.dst.len == 128 && kind == 0 { HOST } else { 0 };
        let _ = writeln!(
            out,
            "{:032x} {:02x} {:032x} 00 {via:032x} {:08x} {:08x} {:08x} {flags:08x} {:>8}",
            bits(route.dst.addr),
            route.dst.len,
            0,
            route.metric,
            1,
            0,
            name.unwrap_or_default(),
        );
    }
    Ok(out.into_bytes())
}

/// The IPv4 groups of each interface.
fn igmp(at: &At) -> Result<Vec<u8>> {
    let mut out = String::from("Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n");
    let net = at.nsproxy().net.clone();
    if !net.shows_stack() {
        return Ok(out.into_bytes());
    }
    for link in net.stack().links() {
        let mut groups: Vec<_> = link.groups();
        groups.retain(|group| group.ip.is_ipv4());
        let all = (Ipv4Addr::new(224, 0, 0, 1), 1);
        let members = groups.iter().filter_map(|group| match group.ip {
            IpAddr::V4(ip) => Some((ip, group.members)),
            IpAddr::V6(_) => None,
        });
        let rows: Vec<_> = members.chain(link.is_up().then_some(all)).collect();
        let _ = writeln!(out, "{}\t{:<10}: {:>5}      V3", link.index, link.name(), rows.len());
        for (ip, users) in rows {
            let group = u32::from_ne_bytes(ip.octets());
            let _ = writeln!(out, "\t\t\t\t{group:08X} {users:>5} 0:00000000\t\t0");
        }
    }
    Ok(out.into_bytes())
}

/// Groups of IPv6, with those of all hosts, which every interface is in.
fn igmp6(at: &At) -> Result<Vec<u8>> {
    /// MAF_LAST_REPORTER, MAF_LOADED, MAF_NOREPORT, as joined groups and the two of all hosts have them.
    const JOINED: u32 = 4;
    const ALWAYS: [(Ipv6Addr, u32); 2] =
        [(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0xc), (Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1), 8)];
    let (mut out, net) = (String::new(), at.nsproxy().net.clone());
    let links = if net.shows_stack() { net.stack().links() } else { Vec::new() };
    for link in links {
        let joined = link.groups().into_iter().rev().filter_map(|group| match group.ip {
            IpAddr::V6(ip) => Some((ip, group.members, JOINED)),
            IpAddr::V4(_) => None,
        });
        let always = ALWAYS.iter().filter(|_| link.is_up()).map(|(ip, flags)| (*ip, 1, *flags));
        for (ip, users, flags) in joined.chain(always) {
            let (index, name, bits) = (link.index, link.name(), ip.to_bits());
            let _ = writeln!(out, "{index:<4} {name:<15} {bits:032x} {users:>5} {flags:08X} 0");
        }
    }
    Ok(out.into_bytes())
}

/// Netlink sockets of programs.
fn netlink(at: &At) -> Result<Vec<u8>> {
    let head = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode";
    let mut out = format!("{head}\n");
    let mut rows = at.nsproxy().net.netlink_rows();
    rows.sort_by_key(|row| (row.protocol, row.port));
    for row in rows {
        let _ = writeln!(
            out,
            "{:016x} {:<3} {:<10} {:08x} {:<8} {:<8} {:<5} {:<8} {:<8} {:<8}",
            0,
            row.protocol,
            row.port,
            row.groups as u32,
            row.queued,
            0,
            u32::from(row.dumping),
            2,
            row.drops,
            row.inode,
        );
    }
    Ok(out.into_bytes())
}

fn packet(at: &At) -> Result<Vec<u8>> {
    let mut out = String::from("sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n");
    let net = at.nsproxy().net.clone();
    let rows = if net.shows_stack() { net.stack().packet_sockets() } else { Vec::new() };
    let reader = at.opener()?.user_ns.clone();
    for row in rows {
        let _ = writeln!(
            out,
            "{:016x} {:<6} {:<4} {:04x}   {:<5} {} {:<6} {:<6} {:<6}",
            0,
            3,
            if row.cooked { libc::SOCK_DGRAM } else { libc::SOCK_RAW },
            row.protocol,
            row.iface,
            u8::from(row.protocol != 0),
            row.queued.0,
            reader.show_user(row.uid),
            row.inode,
        );
    }
    Ok(out.into_bytes())
}

fn ptype(_at: &At) -> Result<Vec<u8>> {
    Ok(b"Type Device      Function\n".to_vec())
}

/// The directory, which is empty once the process has left its network namespace: it has ended and waits to be reaped.
pub struct Files;

impl Names for Files {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let entry =
            NET.iter().find(|entry| entry.name.as_bytes() == name && is_in_one(at)).ok_or(Errno::ENOENT)?;
        Ok(Child { entry, proc: None, n: at.n })
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let entries = NET.iter().enumerate().filter(|_| is_in_one(at));
        Ok(entries
            .map(|(i, entry)| (i as u64, entry.name.into(), Child { entry, proc: None, n: at.n }))
            .collect())
    }
    fn subdirs(&self, at: &At) -> u64 {
        NET.iter().filter(|entry| matches!(entry.what, What::Dir(..)) && is_in_one(at)).count() as u64
    }
}

/// Whether the process of this directory has a network namespace.
fn is_in_one(at: &At) -> bool {
    at.proc.is_none_or(|proc| proc.task().is_some())
}

static NET: [Entry; 36] = [
    text("arp", arp),
    text("dev", dev),
    empty("dev_mcast"),
    text("icmp", sockets::icmp),
    text("icmp6", sockets::icmp6),
    text("if_inet6", if_inet6),
    text("igmp", igmp),
    text("igmp6", igmp6),
    private("ip6_tables_matches", filter::matches6),
    private("ip6_tables_names", filter::tables6),
    private("ip6_tables_targets", filter::targets6),
    private("ip_tables_matches", filter::matches),
    private("ip_tables_names", filter::tables),
    private("ip_tables_targets", filter::targets),
    text("ipv6_route", ipv6_route),
    text("netlink", netlink),
    text("netstat", counters::netstat),
    private("nf_conntrack", filter::nf_conntrack),
    text("packet", packet),
    text("ptype", ptype),
    text("raw", sockets::raw),
    text("raw6", sockets::raw6),
    text("route", route),
    text("snmp", counters::snmp),
    text("snmp6", counters::snmp6),
    text("sockstat", counters::sockstat),
    text("sockstat6", counters::sockstat6),
    text("softnet_stat", counters::softnet_stat),
    dir("stat", &[]),
    text("tcp", sockets::tcp),
    text("tcp6", sockets::tcp6),
    text("udp", sockets::udp),
    text("udp6", sockets::udp6),
    text("udplite", sockets::udplite),
    text("udplite6", sockets::udplite6),
    text("unix", unix),
];
