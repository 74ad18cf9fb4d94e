//! /proc/PID/net/tcp, udp, raw, icmp and their IPv6 relatives: the sockets of the TCP/IP stack. See proc_pid_net(5).

use abi::Result;
use kernfs::At;
use netstack::datagram::DatagramSocket;
use netstack::rows::Row;
use netstack::tcp::State;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Length of a line of the IPv4 tables, with blanks at its end.
const TCP_WIDTH: usize = 149;
const UDP_WIDTH: usize = 127;
/// USER_HZ.
const TICKS: u128 = 100;

const HEAD: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
const HEAD6: &str = "  sl  local_address                         remote_address                        \
                     st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

/// An address as the hexadecimal numbers that its words are in memory, and the port.
fn shown(address: SocketAddr) -> String {
    let port = address.port();
    match address.ip() {
        IpAddr::V4(v4) => format!("{:08X}:{port:04X}", u32::from_ne_bytes(v4.octets())),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let word = |n: u32| ((bits >> (96 - 32 * n)) as u32).swap_bytes();
            format!("{:08X}{:08X}{:08X}{:08X}:{port:04X}", word(0), word(1), word(2), word(3))
        }
    }
}

/// The columns that all tables share: from the addresses to the inode. Users as the reader's user namespace has them.
fn columns(at: &At, row: &Row) -> String {
    let left = row.timer.1.as_millis() * TICKS / 1000;
    format!(
        "{} {} {:02X} {:08X}:{:08X} {:02X}:{left:08X} {:08X} {:>5} {:>8} {}",
        shown(row.local),
        shown(row.remote),
        row.state,
        row.tx,
        row.rx,
        row.timer.0 as u8,
        row.retransmits,
        at.opener().map_or(row.uid, |reader| reader.user_ns.show_user(row.uid)),
        row.probes,
        row.inode,
    )
}

fn tcp_table(at: &At, v6: bool) -> Vec<u8> {
    let ns = at.nsproxy();
    let time = ns.net.now();
    let sockets = ns.net.stack().tcp_sockets();
    let mut rows: Vec<_> = sockets.iter().filter(|s| s.is_v6() == v6).map(|s| (s.row(time), s)).collect();
    // Listeners come first.
    rows.sort_by_key(|(row, _)| (row.state != State::Listen as u8, row.local, row.remote));
    let width = if v6 { 0 } else { TCP_WIDTH };
    let mut out = format!("{:<width$}\n", if v6 { HEAD6 } else { HEAD });
    for (n, (row, socket)) in rows.iter().enumerate() {
        let mut line = format!("{n:>4}: {} 2 {:016x}", columns(at, row), 0);
        if row.state != State::TimeWait as u8 {
            let info = socket.info(time);
            let threshold = if info.snd_ssthresh >= 0x7fff_ffff { -1 } else { i64::from(info.snd_ssthresh) };
            let quick = u8::from(socket.quick_ack()) << 1;
            let (rto, ato) = (info.rto / 10_000, info.ato / 10_000);
            let _ = write!(line, " {rto} {ato} {quick} {} {threshold}", info.snd_cwnd);
        }
        let _ = writeln!(out, "{line:<width$}");
    }
    out.into_bytes()
}

pub(crate) fn tcp(at: &At) -> Result<Vec<u8>> {
    Ok(tcp_table(at, false))
}

pub(crate) fn tcp6(at: &At) -> Result<Vec<u8>> {
    Ok(tcp_table(at, true))
}

/// A table of datagram sockets.
fn datagrams(at: &At, all: &[Arc<DatagramSocket>], v6: bool, (lead, width): (&str, usize)) -> Vec<u8> {
    let mut rows: Vec<Row> = all.iter().filter(|s| s.is_v6() == v6).map(|s| s.row()).collect();
    rows.sort_by_key(|row| (row.local.port(), row.inode));
    let (head, lead) = if v6 { (HEAD6, "") } else { (HEAD, lead) };
    let width = if v6 { 0 } else { width };
    let mut out = format!("{:<width$}\n", format!("{lead}{head} ref pointer drops"));
    for row in rows {
        let slot = row.local.port();
        let line = format!("{slot:>5}: {} 2 {:016x} {}", columns(at, &row), 0, row.drops);
        let _ = writeln!(out, "{line:<width$}");
    }
    out.into_bytes()
}

pub(crate) fn udp(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().udp_sockets(), false, (" ", UDP_WIDTH)))
}

pub(crate) fn udp6(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().udp_sockets(), true, ("", 0)))
}

pub(crate) fn udplite(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().udp_lite_sockets(), false, (" ", UDP_WIDTH)))
}

pub(crate) fn udplite6(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().udp_lite_sockets(), true, ("", 0)))
}

pub(crate) fn raw(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().raw_sockets(), false, ("", 0)))
}

pub(crate) fn raw6(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().raw_sockets(), true, ("", 0)))
}

pub(crate) fn icmp(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().ping_sockets(), false, ("", UDP_WIDTH)))
}

pub(crate) fn icmp6(at: &At) -> Result<Vec<u8>> {
    Ok(datagrams(at, &at.nsproxy().net.stack().ping_sockets(), true, ("", 0)))
}
