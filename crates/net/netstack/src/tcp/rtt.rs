//! Round-trip times and the retransmission time-out (RFC 6298, with Linux's bounds).

use ktime::Ktime;
use std::time::Duration;

/// Smallest distance of the time-out from the smoothed round-trip time.
const RTO_MIN: Duration = Duration::from_millis(200);
/// Largest time-out.
pub(crate) const RTO_MAX: Duration = Duration::from_secs(120);
/// Time-out before the first sample.
pub(crate) const RTO_INITIAL: Duration = Duration::from_secs(1);
/// The minimum is taken over this time.
const MIN_WINDOW: Duration = Duration::from_secs(300);

/// The estimator. Plain data.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Rtt {
    /// Smoothed round-trip time; zero before the first sample.
    pub(crate) srtt: Duration,
    /// Mean deviation.
    pub(crate) var: Duration,
    /// Least round-trip time of the last minutes.
    pub(crate) min: Option<(Duration, Ktime)>,
    /// The latest sample.
    pub(crate) latest: Duration,
    /// Doublings since the last progress.
    pub(crate) backoff: u32,
}

impl Rtt {
    /// Takes a sample.
    pub(crate) fn sample(&mut self, rtt: Duration, now: Ktime) {
        let rtt = rtt.max(Duration::from_micros(1));
        self.latest = rtt;
        if self.srtt.is_zero() {
            (self.srtt, self.var) = (rtt, rtt / 2);
        } else {
            let error = self.srtt.abs_diff(rtt);
            self.var = (self.var * 3 + error) / 4;
            self.srtt = (self.srtt * 7 + rtt) / 8;
        }
        let old = self.min.is_none_or(|(min, at)| rtt <= min || now.since(at) > MIN_WINDOW);
        if old {
            self.min = Some((rtt, now));
        }
    }

    /// The time-out without doublings.
    pub(crate) fn base_rto(&self) -> Duration {
        if self.srtt.is_zero() {
            return RTO_INITIAL;
        }
        (self.srtt + (self.var * 4).max(RTO_MIN)).min(RTO_MAX)
    }

    /// The time-out.
    pub(crate) fn rto(&self) -> Duration {
        self.base_rto().saturating_mul(1 << self.backoff.min(16)).min(RTO_MAX)
    }

    /// Least round-trip time.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min.map(|(min, _)| min)
    }
}

/// The time after which a connection is given up, for a number of retransmissions (`tcp_retries2`): what doubling from the
/// smallest time-out gives.
pub(crate) fn give_up_after(retries: u32, base: Duration) -> Duration {
    let mut total = Duration::ZERO;
    let mut step = base;
    for _ in 0..=retries.min(255) {
        total += step;
        step = (step * 2).min(RTO_MAX);
    }
    total
}

/// [`RTO_MIN`], for the time after which an established connection is given up.
pub(crate) const GIVE_UP_BASE: Duration = RTO_MIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        rtt.sample(Duration::from_millis(100), Ktime::ZERO);
        assert_eq!(rtt.rto(), Duration::from_millis(300));
        (0..100).for_each(|_| rtt.sample(Duration::from_millis(100), Ktime::ZERO));
        assert_eq!(rtt.rto(), Duration::from_millis(300));
        rtt.backoff = 3;
        assert_eq!(rtt.rto(), Duration::from_millis(2400));
        rtt.backoff = 60;
        assert_eq!(rtt.rto(), RTO_MAX);
        assert_eq!(give_up_after(15, GIVE_UP_BASE), Duration::from_millis(924_600));
    }
}
