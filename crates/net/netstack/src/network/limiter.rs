//! The bound on ICMP errors per second. Plain data; the lock around it is the layer's.

use ktime::Ktime;

/// Bounds ICMP errors per second (RFC 1812 section 4.3.2.8): a bucket (`icmp_msgs_burst`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limiter {
    /// Thousandths of a message.
    credit: u64,
    last: Option<Ktime>,
}

impl Limiter {
    pub(crate) fn allow(&mut self, now: Ktime, per_second: u64, most: u64) -> bool {
        let most = most.saturating_mul(1000);
        if per_second == 0 {
            return true;
        }
        let gained = self
            .last
            .map_or(most, |last| (now.since(last).as_micros() as u64).saturating_mul(per_second) / 1000);
        // A gain below one unit is not lost: the time is kept.
        if gained > 0 {
            self.last = Some(now);
        }
        self.credit = (self.credit + gained).min(most);
        let allowed = self.credit >= 1000;
        self.credit -= if allowed { 1000 } else { 0 };
        allowed
    }
}
