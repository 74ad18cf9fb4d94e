//! Socket options that the protocols share (socket(7), ip(7), ipv6(7)).

use crate::frame::Owner;
use crate::wire::extension::Extensions;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Path MTU discovery of a socket (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum MtuDiscovery {
    /// Fragments as needed, never forbids it.
    Dont,
    /// Forbids fragments for packets that fit, fragments others.
    #[default]
    Want,
    /// Forbids fragments and refuses packets that do not fit.
    Do,
    /// As `Do`, but ignores what is known of the path.
    Probe,
    /// Ignores what is known of the path, and never forbids fragments; refuses packets that are too large for the interface.
    Interface,
    /// As `Interface`, but fragments packets that are too large.
    Omit,
}

/// Options of every IP socket. Plain data: the kernel reads and writes the fields under the socket's lock with `configure`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IpOptions {
    /// `SO_REUSEADDR`
    pub reuse_addr: bool,
    /// `SO_REUSEPORT`
    pub reuse_port: bool,
    /// The user whose sockets may share a port by `SO_REUSEPORT`.
    pub uid: u32,
    /// The group of the task that made the socket.
    pub gid: u32,
    /// The inode of the socket's descriptor, for lists of sockets; 0 without one.
    pub inode: u64,
    /// `SO_BINDTODEVICE` or `SO_BINDTOIFINDEX`, 0 for none
    pub device: u32,
    /// `SO_MARK`
    pub mark: u32,
    /// `SO_TIMESTAMPING` of a datagram socket
    pub timestamping: u32,
    /// The number of the next timestamp (`SOF_TIMESTAMPING_OPT_ID`)
    pub stamp_id: u32,
    /// `SO_BROADCAST`
    pub broadcast: bool,
    /// `IP_TTL`
    pub ttl: Option<u8>,
    /// `IPV6_UNICAST_HOPS`
    pub hops: Option<u8>,
    /// `IP_MINTTL`: segments of TCP with a lower TTL are dropped
    pub min_ttl: u8,
    /// `IPV6_MINHOPCOUNT`, likewise
    pub min_hops: u8,
    /// `IP_TOS`
    pub tos: u8,
    /// `IPV6_TCLASS`
    pub class: u8,
    /// `IP_MULTICAST_TTL`
    pub multicast_ttl: u8,
    /// `IPV6_MULTICAST_HOPS`
    pub multicast_hops: u8,
    /// `IP_MULTICAST_LOOP` and `IPV6_MULTICAST_LOOP`
    pub multicast_loop: bool,
    /// `IP_MULTICAST_ALL`
    pub multicast_all: bool,
    /// `IP_MULTICAST_IF` and `IPV6_MULTICAST_IF`: interface, 0 for none
    pub multicast_device: u32,
    /// `IP_MULTICAST_IF`: source address
    pub multicast_source: Option<IpAddr>,
    /// `IP_MTU_DISCOVER`
    pub mtu_discovery: MtuDiscovery,
    /// `IP_RECVERR`
    pub receive_errors: bool,
    /// `IP_BIND_ADDRESS_NO_PORT`: bind(2) without a port leaves the choice to what comes next.
    pub bind_no_port: bool,
    /// `IPV6_RECVERR`
    pub receive_errors6: bool,
    /// `IPV6_V6ONLY`
    pub v6only: bool,
    /// `IP_FREEBIND`
    pub free_bind: bool,
    /// `IP_TRANSPARENT`
    pub transparent: bool,
    /// `IP_HDRINCL`, for raw sockets
    pub header_included: bool,
    /// `IPV6_CHECKSUM`, for raw sockets
    pub checksum_at: Option<u16>,
    /// `ICMP_FILTER`, `ICMP6_FILTER`: message types that a raw socket does not receive, a bit for each
    pub icmp_filter: [u32; 8],
    /// `SO_NO_CHECK`
    pub no_checksum: bool,
    /// `UDP_NO_CHECK6_TX`
    pub no_checksum6: bool,
    /// `UDP_NO_CHECK6_RX`
    pub accept_no_checksum6: bool,
    /// `UDP_GRO`: datagrams that their sender gave in one piece are joined
    pub gro: bool,
    /// `UDP_CORK`
    pub cork: bool,
    /// `UDP_SEGMENT`, 0 for none
    pub segment: u16,
    /// `UDPLITE_SEND_CSCOV`: bytes that the checksum of UDP-Lite covers, 0 for all
    pub send_coverage: u16,
    /// `UDPLITE_RECV_CSCOV`: the least that it covers in datagrams that are received; 0 wants all of it covered
    pub receive_coverage: Option<u16>,
    /// `IPV6_HOPOPTS`, `IPV6_RTHDRDSTOPTS`, `IPV6_RTHDR`, `IPV6_DSTOPTS`: headers of every packet
    pub extensions: Option<Arc<Extensions>>,
    /// `IPV6_PKTINFO`: the interface of packets that name none, 0 for any
    pub sticky_device: u32,
    /// `IPV6_DONTFRAG`
    pub dont_fragment6: bool,
    /// `IPV6_RECVPATHMTU`
    pub receive_path_mtu: bool,
    /// Bytes of the receive queue, overhead included
    pub receive_buffer: usize,
    /// Bytes of the send queue, overhead included
    pub send_buffer: usize,
}

impl MtuDiscovery {
    /// Packets of TCP may not be cut.
    pub(crate) fn forbids_fragments(self) -> bool {
        !matches!(self, MtuDiscovery::Dont | MtuDiscovery::Interface | MtuDiscovery::Omit)
    }
}

impl IpOptions {
    /// The options of a new socket.
    pub fn new(sysctls: &crate::sysctl::Sysctls) -> IpOptions {
        IpOptions {
            reuse_addr: false,
            reuse_port: false,
            uid: 0,
            gid: 0,
            inode: 0,
            device: 0,
            mark: 0,
            timestamping: 0,
            stamp_id: 0,
            broadcast: false,
            ttl: None,
            hops: None,
            min_ttl: 0,
            min_hops: 0,
            tos: 0,
            class: 0,
            multicast_ttl: 1,
            multicast_hops: 1,
            multicast_loop: true,
            multicast_all: true,
            multicast_device: 0,
            multicast_source: None,
            mtu_discovery: if sysctls.ip_no_pmtu_disc.on() { MtuDiscovery::Dont } else { MtuDiscovery::Want },
            receive_errors: false,
            bind_no_port: false,
            receive_errors6: false,
            v6only: sysctls.bindv6only.on(),
            free_bind: false,
            transparent: false,
            header_included: false,
            checksum_at: None,
            icmp_filter: [0; 8],
            no_checksum: false,
            no_checksum6: false,
            accept_no_checksum6: false,
            gro: false,
            cork: false,
            segment: 0,
            send_coverage: 0,
            receive_coverage: None,
            extensions: None,
            sticky_device: 0,
            dont_fragment6: false,
            receive_path_mtu: false,
            receive_buffer: sysctls.rmem_default.size(),
            send_buffer: sysctls.wmem_default.size(),
        }
    }

    /// Whether saved ones are within the bounds of what programs can set.
    pub(crate) fn check(&self) -> bool {
        const BUFFER: usize = 1 << 31;
        self.receive_buffer <= BUFFER
            && self.send_buffer <= BUFFER
            && self.extensions.as_ref().is_none_or(|extensions| extensions.check())
    }

    /// Interfaces have other indices in a restored stack.
    pub(crate) fn renumber(&mut self, indices: &HashMap<u32, u32>) {
        for index in [&mut self.device, &mut self.multicast_device, &mut self.sticky_device] {
            *index = indices.get(index).copied().unwrap_or(*index);
        }
    }

    /// True when errors about packets to an address go to the error queue.
    pub(crate) fn wants_errors(&self, remote: IpAddr) -> bool {
        if remote.is_ipv4() { self.receive_errors } else { self.receive_errors6 }
    }

    /// The owner of the socket, while a program has it.
    pub(crate) fn owner(&self) -> Option<Owner> {
        (self.inode != 0).then_some(Owner { uid: self.uid, gid: self.gid })
    }

    /// TTL or hop limit for a destination.
    pub(crate) fn ttl_for(&self, dst: IpAddr) -> Option<u8> {
        match (dst.is_ipv4(), dst.is_multicast()) {
            (true, true) => Some(self.multicast_ttl),
            (false, true) => Some(self.multicast_hops),
            (true, false) => self.ttl,
            (false, false) => self.hops,
        }
    }

    /// Type of service or traffic class for a destination.
    pub(crate) fn tos_for(&self, dst: IpAddr) -> u8 {
        if dst.is_ipv4() { self.tos } else { self.class }
    }
}
