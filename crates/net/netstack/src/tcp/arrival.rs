//! A segment on its way to a connection or a listener. Plain data.

use super::table::Tuple;
use crate::chain::Span;
use crate::options::IpOptions;
use crate::wire::tcp::Segment;
use ktime::Ktime;

/// A segment that arrived for a listener, with its addresses.
pub(super) struct Arrival<'a> {
    pub(super) now: Ktime,
    pub(super) tuple: Tuple,
    pub(super) seg: &'a Segment,
    pub(super) data: Span<'a>,
    pub(super) congested: bool,
    pub(super) device: u32,
    /// TTL or hop limit.
    pub(super) ttl: u8,
}

impl Arrival<'_> {
    /// True when the segment has come further than the socket allows (`IP_MINTTL`, `IPV6_MINHOPCOUNT`; RFC 5082).
    pub(super) fn came_too_far(&self, options: &IpOptions) -> bool {
        self.ttl < if self.tuple.0.is_ipv4() { options.min_ttl } else { options.min_hops }
    }
}
