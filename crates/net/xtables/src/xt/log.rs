//! LOG: a line about a packet in the form that Linux prints.

use super::data::Data;
use super::{Context, Decision, Target, act};
use abi::Errno;
use netfilter::{Action, Packet};
use netstack::wire::proto;
use std::fmt::Write;
use std::net::IpAddr;

/// `LOG --log-tcp-sequence`
const WITH_SEQUENCE: u8 = 1;
/// `LOG --log-tcp-options`
const WITH_TCP_OPTIONS: u8 = 2;
/// `LOG --log-ip-options`
const WITH_IP_OPTIONS: u8 = 4;
/// `LOG --log-uid`
const WITH_OWNER: u8 = 8;

/// `struct xt_log_info`
pub(super) fn log(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Target>, Errno> {
    let (level, flags) = (data.u8(0), data.u8(1));
    let prefix = data.text(2, 30).ok_or(Errno::EINVAL)?;
    if level >= 8 {
        return Err(Errno::EINVAL);
    }
    act(move |packet| {
        let text = line(packet, &prefix, flags);
        packet.netfilter.defer(Action::Log { level, text });
        Decision::Continue
    })
}

/// The line about a packet.
pub fn line(packet: &Packet<'_>, prefix: &str, flags: u8) -> String {
    let mut out = format!("{prefix}IN={} OUT={} ", packet.input_name(), packet.output_name());
    if packet.input.is_some() {
        // Link headers do not reach the rules; that of loopback is known.
        let protocol = if packet.info.src.is_ipv4() { "08:00" } else { "86:dd" };
        let header = if packet.input_name() == "lo" {
            format!("{}{protocol}", "00:".repeat(12))
        } else {
            String::new()
        };
        out += &format!("MAC={header} ");
    }
    // Writing to a string does not fail.
    let _ = headers(&mut out, packet, flags);
    if packet.mark() != 0 {
        let _ = write!(out, "MARK=0x{:x} ", packet.mark());
    }
    out
}

/// IPv6 addresses are written in full.
fn address(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ip.segments().map(|part| format!("{part:04x}")).join(":"),
    }
}

/// What a header of `length` bytes has after its first 20.
fn options(out: &mut String, header: &[u8], length: usize) -> std::fmt::Result {
    let options = header.get(20..length).unwrap_or_default();
    if options.is_empty() {
        return Ok(());
    }
    write!(out, "OPT (")?;
    for byte in options {
        write!(out, "{byte:02X}")?;
    }
    write!(out, ") ")
}

fn headers(out: &mut String, packet: &Packet<'_>, flags: u8) -> std::fmt::Result {
    let (info, bytes) = (&packet.info, packet.bytes());
    write!(out, "SRC={} DST={} LEN={} ", address(info.src), address(info.dst), bytes.len())?;
    if let (true, Some(header)) = (info.src.is_ipv4(), bytes.first_chunk::<20>()) {
        let id = u16::from_be_bytes([header[4], header[5]]);
        let (tos, precedence) = (info.tos & 0x1e, info.tos & 0xe0);
        write!(out, "TOS=0x{tos:02X} PREC=0x{precedence:02X} TTL={} ID={id} ", info.ttl)?;
        if header[6] & 0x40 != 0 {
            write!(out, "DF ")?;
        }
        if flags & WITH_IP_OPTIONS != 0 {
            options(out, bytes, usize::from(header[0] & 0xf) * 4)?;
        }
    } else {
        let label = bytes.first_chunk::<4>().map_or(0, |first| u32::from_be_bytes(*first) & 0xf_ffff);
        write!(out, "TC={} HOPLIMIT={} FLOWLBL={label} ", info.tos, info.ttl)?;
    }
    transport(out, packet, flags)?;
    if let (true, Some(owner)) = (flags & WITH_OWNER != 0, packet.owner()) {
        write!(out, "UID={} GID={} ", owner.uid, owner.gid)?;
    }
    Ok(())
}

fn transport(out: &mut String, packet: &Packet<'_>, flags: u8) -> std::fmt::Result {
    const NAMES: [(u8, &str); 6] =
        [(0x20, "URG"), (0x10, "ACK"), (0x08, "PSH"), (0x04, "RST"), (0x02, "SYN"), (0x01, "FIN")];
    let payload = packet.payload();
    match (packet.info.protocol, packet.ports()) {
        (proto::TCP, Some((src, dst))) => {
            write!(out, "PROTO=TCP SPT={src} DPT={dst} ")?;
            let Some(header) = payload.first_chunk::<20>() else { return Ok(()) };
            let number =
                |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            if flags & WITH_SEQUENCE != 0 {
                write!(out, "SEQ={} ACK={} ", number(4), number(8))?;
            }
            let window = u16::from_be_bytes([header[14], header[15]]);
            write!(out, "WINDOW={window} RES=0x{:02x} ", (header[12] & 0xf) << 2 | header[13] >> 6)?;
            for (bit, name) in NAMES {
                if header[13] & bit != 0 {
                    write!(out, "{name} ")?;
                }
            }
            write!(out, "URGP={} ", u16::from_be_bytes([header[18], header[19]]))?;
            if flags & WITH_TCP_OPTIONS != 0 {
                options(out, payload, usize::from(header[12] >> 4) * 4)?;
            }
            Ok(())
        }
        (proto::UDP, Some((src, dst))) => {
            let len = payload.get(4..6).map_or(0, |len| u16::from_be_bytes([len[0], len[1]]));
            write!(out, "PROTO=UDP SPT={src} DPT={dst} LEN={len} ")
        }
        (proto::ICMP | proto::ICMPV6, _) => {
            let name = if packet.info.protocol == proto::ICMP { "ICMP" } else { "ICMPv6" };
            match payload.first_chunk::<8>() {
                Some(&[kind @ (0 | 8 | 128 | 129), code, _, _, a, b, c, d]) => {
                    let (id, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                    write!(out, "PROTO={name} TYPE={kind} CODE={code} ID={id} SEQ={seq} ")
                }
                Some([kind, code, ..]) => write!(out, "PROTO={name} TYPE={kind} CODE={code} "),
                None => write!(out, "PROTO={name} "),
            }
        }
        (other, _) => write!(out, "PROTO={other} "),
    }
}
