//! The network of a sandbox: its mode, and the interfaces and routes that the guest is shown.

use crate::descriptors::FdIndex;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Network modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Nothing but the sandbox's own loopback interface.
    #[default]
    None,
    /// The interfaces of the network namespace that the container joins.
    Sandbox,
    /// The host's own sockets, which a network gofer makes.
    Host {
        /// A policy says what may be reached.
        policed: bool,
    },
}

impl Network {
    /// Whether sockets are the host's.
    pub fn is_host(self) -> bool {
        matches!(self, Network::Host { .. })
    }
}

/// A file that a sandbox's packets are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The file, empty and open for writing.
    pub fd: FdIndex,
    /// Bytes that are kept of each packet.
    pub snaplen: u32,
    /// How long the file may become.
    pub most: u64,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Number, from 1.
    pub index: u32,
    /// Name, at most 15 bytes.
    pub name: String,
    /// IFF_* flags.
    pub flags: u32,
    /// ARPHRD_* type.
    pub kind: u16,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Hardware address.
    pub address: Vec<u8>,
    /// Addresses with the length of their network's prefix in bits.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Interface {
    /// What begins the frames of an interface beside loopback; `None` if the stack inside cannot use it.
    pub fn link_header(&self) -> Option<LinkHeader> {
        let point_to_point = self.flags & libc::IFF_POINTOPOINT as u32 != 0;
        match self.kind {
            _ if self.index <= 1 => None,
            libc::ARPHRD_ETHER => (self.address.len() == 6).then_some(LinkHeader::Ethernet),
            libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => {
                Some(LinkHeader::Nothing)
            }
            // With several ends its frames have a header of their own.
            libc::ARPHRD_IPGRE if point_to_point => Some(LinkHeader::Nothing),
            _ => None,
        }
    }
}

/// What begins the frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHeader {
    /// A header of Ethernet.
    Ethernet,
    /// The header of IP, as with tunnels.
    Nothing,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to; a prefix of length 0 is the default route.
    pub to: (IpAddr, u8),
    /// The router.
    pub via: Option<IpAddr>,
    /// Through which interface.
    pub interface: u32,
    /// RT_TABLE_*.
    pub table: u8,
    /// RTN_*.
    pub kind: u8,
    /// RT_SCOPE_*.
    pub scope: u8,
    /// Which of two routes to one destination is taken: that with the lower number.
    #[serde(default)]
    pub metric: u32,
    /// The source address of connections by this route, where it is set.
    #[serde(default)]
    pub source: Option<IpAddr>,
}

/// A neighbour that an administrator has entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// On which interface.
    pub interface: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its hardware address.
    pub mac: [u8; 6],
}

/// The interfaces and routes of a namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces {
    /// By index.
    pub links: Vec<Interface>,
    /// In the order in which they are shown.
    pub routes: Vec<Route>,
    /// Permanent ones only.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
}

const RT_TABLE_LOCAL: u8 = 255;
const ARPHRD_LOOPBACK: u16 = 772;
/// IFF_LOWER_UP, which libc lacks.
const LOWER_UP: u32 = 1 << 16;

impl Interfaces {
    /// A loopback interface that is up, and nothing else.
    pub fn loopback() -> Interfaces {
        let up = (libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING) as u32 | LOWER_UP;
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        let local = |to: IpAddr, bits: u8| Route {
            to: (to, bits),
            via: None,
            interface: 1,
            table: RT_TABLE_LOCAL,
            kind: libc::RTN_LOCAL,
            scope: libc::RT_SCOPE_HOST,
            metric: 0,
            source: None,
        };
        let link = Interface {
            index: 1,
            name: "lo".into(),
            flags: up,
            kind: ARPHRD_LOOPBACK,
            mtu: 65536,
            address: vec![0; 6],
            addresses: vec![(v4, 8), (v6, 128)],
        };
        let network = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));
        let routes = vec![local(network, 8), local(v4, 32), local(v6, 128)];
        Interfaces { links: vec![link], routes, neighbours: Vec::new() }
    }
}
