//! The way from the host's own stack in a container's network namespace into the sandbox.
//!
//! Processes of the host enter the namespace and connect from there: Podman's rootlessport and pasta to a published port,
//! containerd to a port that is forwarded, Docker's name server to the servers that know other names. Their packets must
//! reach the stack inside, which has the namespace's addresses. So a TUN interface takes what the host's stack would send
//! to 127.0.0.1, to the namespace's own addresses and to other hosts. Its other end is the sandbox (`hostlink::inward`).
//!
//! The routes are in a table of their own. Rules lead packets of the host's stack there, but no received ones, and come
//! right after those of the table `local`. So the tables that the container's manager shows and changes stay as they are.
//! Addresses of 127.0.0.0/8 other than 127.0.0.1 stay with the host's stack: Docker's
//! name server has one. IPv6's ::1 stays as well, because Linux takes packets of ::1 from the loopback interface alone.
//! The interface is not shown inside, and stays until the namespace ends.

use crate::Rtnetlink;
use crate::parse::{IFADDR, IFINFO, INWARD, RTMSG};
use crate::rules::{self, LOCAL, Packets};
use netlink_wire::{Message, put};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// The address that processes of the host in the namespace send from, to the stack inside.
pub const HOST_SIDE: Ipv4Addr = Ipv4Addr::new(127, 82, 70, 1);
/// The same of IPv6.
pub const HOST_SIDE_V6: Ipv6Addr = Ipv6Addr::new(0xfd52, 0x4631, 0, 0, 0, 0, 0, 1);

pub(crate) const NAME: &str = "ringfence0";
/// What is led inside. Without a protocol the host's stack looks up routers of routes that are added: in the table `main`.
const PROTOCOLS: [u8; 2] = [libc::IPPROTO_TCP as u8, libc::IPPROTO_UDP as u8];
/// The table of the routes, and the priority of the rules: that of `local` is 0, the next one usually 32766.
const TABLE: u32 = 0x5246;
const PRIORITY: u32 = 1;
/// Nothing that the host's stack sends has to be cut.
const MTU: u32 = 65535;
/// Settings of IPv4 interfaces (`linux/ip.h`).
const IPV4_DEVCONF_RP_FILTER: u16 = 8;
const IPV4_DEVCONF_ACCEPT_LOCAL: u16 = 23;
const IPV4_DEVCONF_ROUTE_LOCALNET: u16 = 26;
/// Interfaces get no link-local address (`IN6_ADDR_GEN_MODE_NONE`).
const NO_ADDRESS: u8 = 1;
/// Attributes of IFLA_AF_SPEC.
const IFLA_INET_CONF: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;

/// Makes the TUN interface of the caller's namespace, or takes the one that an earlier sandbox has left; its file. The host's
/// stack sends nothing to it before [`lead`].
pub(crate) fn open(socket: &Rtnetlink) -> io::Result<OwnedFd> {
    let file = hostsys::tun::open(NAME, INWARD).map_err(|error| io::Error::from_raw_os_error(error.raw()))?;
    socket.request(settings())?;
    let up = (libc::IFF_UP as u32).to_ne_bytes();
    socket.request(Message::new(libc::RTM_NEWLINK, ACK, 0, 0).fixed(&link(up)))?;
    Ok(file)
}

/// Leads what the host's stack sends to the interface. The rules of the table `local` must be those for it.
pub(crate) fn lead(socket: &Rtnetlink) -> io::Result<()> {
    let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
    match socket.request(route(libc::RTM_DELROUTE, 0, (own, 32), (LOCAL, libc::RTN_LOCAL))) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error),
        _ => {}
    }
    socket.request(unicast((own, 32), LOCAL, &HOST_SIDE.octets()))?;
    socket.request(unicast((Ipv4Addr::UNSPECIFIED.into(), 0), TABLE, &HOST_SIDE.octets()))?;
    let add_rules = |family| {
        PROTOCOLS.iter().try_for_each(|protocol| {
            rules::add(socket, family, &Packets::by("lo").of(*protocol), (PRIORITY, TABLE))
        })
    };
    add_rules(libc::AF_INET)?;
    // A namespace may be without IPv6.
    let v6 = socket
        .request(address())
        .and_then(|()| {
            socket.request(unicast((Ipv6Addr::UNSPECIFIED.into(), 0), TABLE, &HOST_SIDE_V6.octets()))
        })
        .and_then(|()| add_rules(libc::AF_INET6));
    if let Err(error) = v6 {
        log::debug!("processes of the host do not reach the sandbox by IPv6: {error}");
    }
    Ok(())
}

const ACK: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
const MAKE: u16 = ACK | (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;

/// The fixed part of a request about the interface that sets flags.
fn link(flags: [u8; 4]) -> [u8; IFINFO] {
    let mut header = [0; IFINFO];
    header[4..8].copy_from_slice(&INWARD.to_ne_bytes());
    header[8..12].copy_from_slice(&flags);
    header[12..].copy_from_slice(&flags);
    header
}

/// Has the host's stack take loopback addresses, and the namespace's own ones, from the interface, and give it no address.
fn settings() -> Message {
    let nested = |values: &[(u16, &[u8])]| {
        let mut out = Vec::new();
        values.iter().for_each(|(kind, value)| put(&mut out, *kind, value));
        out
    };
    let on = 1u32.to_ne_bytes();
    let conf = nested(&[
        (IPV4_DEVCONF_RP_FILTER, &[0; 4]),
        (IPV4_DEVCONF_ACCEPT_LOCAL, &on),
        (IPV4_DEVCONF_ROUTE_LOCALNET, &on),
    ]);
    let v4 = nested(&[(IFLA_INET_CONF, &conf)]);
    let v6 = nested(&[(IFLA_INET6_ADDR_GEN_MODE, &[NO_ADDRESS])]);
    let families = nested(&[(libc::AF_INET as u16, &v4), (libc::AF_INET6 as u16, &v6)]);
    let message = Message::new(libc::RTM_NEWLINK, ACK, 0, 0).fixed(&link([0; 4]));
    message.number(libc::IFLA_MTU, MTU).attribute(libc::IFLA_AF_SPEC, &families)
}

/// The address that the host's stack sends from over IPv6. It is usable at once, and brings no route to others.
fn address() -> Message {
    let mut header = [0; IFADDR];
    (header[0], header[1]) = (libc::AF_INET6 as u8, 128);
    header[4..].copy_from_slice(&INWARD.to_ne_bytes());
    Message::new(libc::RTM_NEWADDR, MAKE, 0, 0)
        .fixed(&header)
        .attribute(libc::IFA_LOCAL, &HOST_SIDE_V6.octets())
        .number(libc::IFA_FLAGS, libc::IFA_F_NODAD | libc::IFA_F_NOPREFIXROUTE)
}

fn unicast(to: (IpAddr, u8), table: u32, source: &[u8]) -> Message {
    route(libc::RTM_NEWROUTE, MAKE, to, (table, libc::RTN_UNICAST))
        .number(libc::RTA_OIF, INWARD)
        .attribute(libc::RTA_PREFSRC, source)
}

/// A request about a route of a table.
fn route(kind: u16, flags: u16, (to, bits): (IpAddr, u8), (table, does): (u32, u8)) -> Message {
    let (family, bytes) = match to {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let mut fixed = [0; RTMSG];
    (fixed[0], fixed[1], fixed[7]) = (family as u8, bits, does);
    // A route that is removed may have any scope; that of a route to hosts of the link otherwise.
    (fixed[5], fixed[6]) = match kind {
        libc::RTM_DELROUTE => (0, libc::RT_SCOPE_NOWHERE),
        _ => (libc::RTPROT_STATIC, libc::RT_SCOPE_LINK),
    };
    let message = Message::new(kind, flags | ACK, 0, 0).fixed(&fixed).number(libc::RTA_TABLE, table);
    if bits > 0 { message.attribute(libc::RTA_DST, &bytes) } else { message }
}
