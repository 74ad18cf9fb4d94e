//! A segment on its way to a connection or a listener. Plain data.

use super::table::Tuple;
use crate::chain::Span;
use crate::device::capture::Filter;
use crate::options::IpOptions;
use crate::wire::tcp::Segment;
use ktime::Ktime;
use std::sync::Arc;

/// A segment that arrived, with its addresses.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) now: Ktime,
    pub(super) tuple: Tuple,
    pub(super) seg: &'a Segment,
    /// From the TCP header on.
    pub(super) bytes: &'a [u8],
    pub(super) data: Span<'a>,
    pub(super) congested: bool,
    pub(super) device: u32,
    /// TTL or hop limit.
    pub(super) ttl: u8,
}

impl<'a> Arrival<'a> {
    /// True when the segment has come further than the socket allows (`IP_MINTTL`, `IPV6_MINHOPCOUNT`; RFC 5082).
    pub(super) fn came_too_far(&self, options: &IpOptions) -> bool {
        self.ttl < if self.tuple.0.is_ipv4() { options.min_ttl } else { options.min_hops }
    }

    /// The segment as a filter (`SO_ATTACH_FILTER`) leaves it: the filter sees it from the TCP header on and drops it, or cuts its data.
    pub(super) fn passed(&self, filter: Option<&Arc<dyn Filter>>) -> Option<Arrival<'a>> {
        let Some(filter) = filter else { return Some(*self) };
        let kept = filter.accept(self.bytes);
        if kept == 0 {
            return None;
        }
        let header = self.bytes.len().saturating_sub(self.data.len());
        let data = self.data.part(0, kept.saturating_sub(header)).unwrap_or(self.data);
        Some(Arrival { data, ..*self })
    }
}
