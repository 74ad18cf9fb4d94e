//! Path MTUs that ICMP told (RFC 1191, RFC 8201).

use ktime::Ktime;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Destinations that are remembered.
const MAX: usize = 4096;

/// Destinations with a path that is narrower than the link. Plain data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathMtus(HashMap<IpAddr, (u32, Ktime)>);

impl PathMtus {
    /// The path MTU of a destination, if it is known.
    pub(crate) fn get(&self, dst: IpAddr, now: Ktime) -> Option<u32> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&dst).filter(|(_, until)| *until > now).map(|(mtu, _)| *mtu)
    }

    /// Remembers a path MTU; true when that is news.
    pub(crate) fn set(&mut self, dst: IpAddr, mtu: u32, now: Ktime, keep: Duration) -> bool {
        if self.0.len() >= MAX && !self.0.contains_key(&dst) {
            self.0.retain(|_, (_, until)| *until > now);
            if self.0.len() >= MAX
                && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(dst, _)| *dst)
            {
                self.0.remove(&oldest);
            }
        }
        let old = self.0.insert(dst, (mtu, now.plus(keep)));
        old.is_none_or(|(old, until)| old != mtu || until <= now)
    }
}
