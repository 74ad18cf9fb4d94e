//! The way of packets to a destination, and the IP fields that a sender chooses. Plain data, but for the interface.

pub use crate::cast::Cast;
use crate::device::iface::Iface;
use crate::frame::{Owner, Part};
use std::net::IpAddr;
use std::sync::Arc;

/// The way of packets to a destination. Sockets keep it while [`Path::generation`] is the stack's.
#[derive(Clone, Debug)]
pub struct Path {
    /// Interface.
    pub iface: Arc<Iface>,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Next hop.
    pub next_hop: IpAddr,
    /// How many hosts are reached.
    pub cast: Cast,
    /// Largest packet.
    pub mtu: u32,
    /// The stack's number when the path was found.
    pub(crate) generation: u32,
}

/// The IP fields that a sender chooses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub(crate) protocol: u8,
    pub(crate) tos: u8,
    /// TTL or hop limit; the default of the family (1 for multicast) when absent.
    pub(crate) ttl: Option<u8>,
    pub(crate) dont_fragment: bool,
    /// Chooses the shard of loopback traffic.
    pub(crate) flow: u32,
    pub(crate) flow_label: u32,
    /// Members on this host get a copy of multicast and broadcast packets.
    pub(crate) loop_back: bool,
    /// `SO_MARK` of the sender.
    pub(crate) mark: u32,
    /// The socket's owner, if a socket of a program sends.
    pub(crate) owner: Option<Owner>,
    /// The place among datagrams that are one piece for their sender.
    pub(crate) part: Part,
}
