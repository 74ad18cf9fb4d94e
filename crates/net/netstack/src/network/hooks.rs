//! Where packet filters look at packets: netfilter's five points.
//!
//! While no rules exist nothing is called and nothing is paid. While they exist, loopback traffic goes by packets, and fragments are
//! put together before the first point, as connection tracking needs it.

use super::headers::Headers;
use super::tables::Tables;
use crate::buf::Buf;
use crate::device::iface::Iface;
use crate::frame::{Offload, Tags};
use conntrack::Flow;
use ktime::Ktime;
use std::net::IpAddr;

/// The points on a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Received, not routed.
    PreRouting,
    /// For this host.
    Input,
    /// For others.
    Forward,
    /// Sent by this host, routed.
    Output,
    /// About to leave.
    PostRouting,
}

/// A packet at a point.
pub struct Hooked<'a> {
    /// Routes and interfaces. Locks of sockets may be held.
    pub tables: &'a Tables,
    /// Where.
    pub point: Point,
    /// When.
    pub now: Ktime,
    /// The interface that received it.
    pub input: Option<&'a Iface>,
    /// The interface that will send it.
    pub output: Option<&'a Iface>,
    /// Its IP headers. A filter that writes to them sets [`Headers::changed`].
    pub headers: &'a mut Headers,
    /// The packet from its IP header on. Rules may change it. Checksums are complete, except for TCP packets that a device will cut
    /// and for loopback traffic: those hold the pseudo header's sum only, as the descriptors say.
    pub packet: &'a mut Buf,
    /// What is left to do about it.
    pub offload: &'a mut Offload,
    /// What travels with it.
    pub tags: &'a mut Tags,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Accept,
    /// It ends here; a sender is told `EPERM`.
    Drop,
    /// The filter keeps it; a sender is told nothing.
    Stolen,
}

/// A packet filter.
pub trait Hooks: Send + Sync {
    /// Decides on a packet. Locks of the stack may be held: what the filter wants to send waits for [`Hooks::run_deferred`].
    fn look(&self, packet: &mut Hooked<'_>) -> Verdict;

    /// Does what had to wait, at the end of an operation, when no lock is held. True when it did something.
    fn run_deferred(&self, _answers: &dyn Answers, _now: Ktime) -> bool {
        false
    }
}

/// What a filter can send about a packet that it refuses.
pub trait Answers {
    /// Tells the sender of a packet that a filter refused it, by an ICMP error of a type and a code. `input` is the interface that
    /// received the packet, 0 for a packet of this host. The error belongs to the packet's connection.
    fn send_error_about(&self, now: Ktime, packet: &[u8], from: (u32, &Flow), kind: (u8, u8));

    /// Sends a TCP header as the answer to a segment.
    fn send_segment(&self, now: Ktime, between: (IpAddr, IpAddr), segment: [u8; 20], tags: Tags);
}
