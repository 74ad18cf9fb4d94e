//! Rules of the routing policy: see ip-rule(8).

use crate::Rtnetlink;
use crate::parse::{RULE, fixed, number};
use netlink_wire::{Message, find, list_of};
use std::io;
use std::net::IpAddr;

/// RT_TABLE_LOCAL, the table of the host's own addresses.
pub(crate) const LOCAL: u32 = 255;
/// FR_ACT_TO_TBL.
const TO_TABLE: u8 = 1;
/// FRA_*.
const FRA_DST: u16 = 1;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
const FRA_IP_PROTO: u16 = 22;

/// Which packets a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packets {
    /// By an interface; `lo` stands for those that the host's stack sends itself as well.
    by: Option<String>,
    /// To a network.
    to: Option<(IpAddr, u8)>,
    /// Of a protocol, by its number (IPPROTO_*).
    of: Option<u8>,
}

impl Packets {
    /// Those that come by an interface.
    pub(crate) fn by(interface: &str) -> Packets {
        Packets { by: Some(interface.to_string()), ..Packets::default() }
    }

    /// Those to a network.
    pub(crate) fn to(network: impl Into<IpAddr>, bits: u8) -> Packets {
        Packets::default().and_to(network, bits)
    }

    /// Those of `self` that are of a protocol.
    pub(crate) fn of(self, protocol: u8) -> Packets {
        Packets { of: Some(protocol), ..self }
    }

    /// Those of `self` that go to a network.
    pub(crate) fn and_to(self, network: impl Into<IpAddr>, bits: u8) -> Packets {
        Packets { to: Some((network.into(), bits)), ..self }
    }
}

/// Adds a rule that leads to a table, unless it is there.
pub(crate) fn add(socket: &Rtnetlink, family: i32, packets: &Packets, at: (u32, u32)) -> io::Result<()> {
    let new = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    match socket.request(message(libc::RTM_NEWRULE, new, family, packets, at)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Has these packets alone looked up in the table of the host's own addresses.
pub(crate) fn look_up_own_addresses(socket: &Rtnetlink, family: i32, wanted: &[Packets]) -> io::Result<()> {
    let listed = socket.ask(libc::RTM_GETRULE, &header(family, 0, 0))?;
    let present: Vec<Packets> = listed.iter().filter_map(|rule| of_own_addresses(rule, family)).collect();
    for packets in wanted.iter().filter(|packets| !present.contains(packets)) {
        add(socket, family, packets, (0, LOCAL))?;
    }
    for packets in present.iter().filter(|packets| !wanted.contains(packets)) {
        // The first rule goes that has what is named. One that names less comes before those that name more.
        match socket.request(message(libc::RTM_DELRULE, 0, family, packets, (0, LOCAL))) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// A request about a rule with a priority, to a table.
fn message(kind: u16, flags: i32, family: i32, packets: &Packets, (priority, table): (u32, u32)) -> Message {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
    let bits = packets.to.map_or(0, |(_, bits)| bits);
    let message = Message::new(kind, flags, 0, 0).fixed(&header(family, bits, table));
    let message = message.number(FRA_PRIORITY, priority).number(FRA_TABLE, table);
    let message = match &packets.by {
        Some(name) => message.text(FRA_IIFNAME, name),
        None => message,
    };
    let message = match packets.of {
        Some(protocol) => message.attribute(FRA_IP_PROTO, &[protocol]),
        None => message,
    };
    match packets.to {
        Some((IpAddr::V4(v4), _)) => message.attribute(FRA_DST, &v4.octets()),
        Some((IpAddr::V6(v6), _)) => message.attribute(FRA_DST, &v6.octets()),
        None => message,
    }
}

/// `struct fib_rule_hdr` of a rule that leads to a table, for destinations of so many bits.
fn header(family: i32, bits: u8, table: u32) -> [u8; RULE] {
    let mut header = [0; RULE];
    header[0] = family as u8;
    header[1] = bits;
    // Tables with larger numbers stand in an attribute alone.
    header[4] = u8::try_from(table).unwrap_or(0);
    header[7] = TO_TABLE;
    header
}

/// The packets that a rule has looked up in the table of own addresses, if it is such a rule of priority 0.
fn of_own_addresses(rule: &[u8], family: i32) -> Option<Packets> {
    let header = fixed::<RULE>(rule)?;
    let attributes = list_of(rule, RULE);
    let table = number(attributes, FRA_TABLE).unwrap_or(header[4].into());
    let first = number(attributes, FRA_PRIORITY).unwrap_or(0) == 0;
    if i32::from(header[0]) != family || table != LOCAL || header[7] != TO_TABLE || !first {
        return None;
    }
    let by = find(attributes, FRA_IIFNAME).and_then(|name| name.split(|byte| *byte == 0).next());
    let to = find(attributes, FRA_DST).and_then(crate::parse::ip);
    Some(Packets {
        by: by.map(|name| String::from_utf8_lossy(name).into_owned()),
        to: to.map(|network| (network, header[1])),
        of: find(attributes, FRA_IP_PROTO).and_then(|protocol| protocol.first().copied()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn rules_of_own_addresses() {
        let read = |family, packets: &Packets, at| {
            of_own_addresses(&message(libc::RTM_NEWRULE, 0, family, packets, at).done(), libc::AF_INET)
        };
        let groups = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0);
        let loopback = Packets::by("lo").and_to(Ipv4Addr::new(127, 0, 0, 0), 8);
        let tcp = Packets::by("lo").of(6);
        for packets in [Packets::default(), Packets::by("lo"), loopback, Packets::to(groups, 8), tcp] {
            assert_eq!(read(libc::AF_INET, &packets, (0, LOCAL)), Some(packets.clone()));
            assert_eq!(read(libc::AF_INET6, &packets, (0, LOCAL)), None);
            assert_eq!(read(libc::AF_INET, &packets, (1, LOCAL)), None);
            assert_eq!(read(libc::AF_INET, &packets, (0, 0x5246)), None);
        }
    }
}
