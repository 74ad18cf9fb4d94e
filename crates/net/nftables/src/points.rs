//! Numbers of hooks.

use netfilter::Point;

/// Netfilter's points by the numbers of hooks.
pub(crate) const POINTS: [Point; 5] =
    [Point::PreRouting, Point::Input, Point::Forward, Point::Output, Point::PostRouting];
