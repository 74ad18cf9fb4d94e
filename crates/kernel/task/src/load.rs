//! Load averages. See proc_loadavg(5).
//!
//! Nothing runs from time to time for them: a look at them learns from the processor time used since the last look how
//! many threads ran in between. Threads that are ready and find no processor count when more are seen than there are
//! processors. A checkpoint keeps nothing.

use ktime::Ktime;
use std::time::Duration;

/// Least time between two steps, as on Linux.
const STEP: Duration = Duration::from_secs(5);
/// Seconds of the three averages.
const PERIODS: [f64; 3] = [60.0, 300.0, 900.0];

/// The averages at a moment.
pub(crate) struct Load {
    at: Ktime,
    /// Processor time used until then, in nanoseconds.
    used: u64,
    averages: [f64; 3],
}

impl Load {
    pub(crate) fn new(now: Ktime) -> Self {
        Self { at: now, used: 0, averages: [0.0; 3] }
    }

    /// The averages, if they need no step yet.
    pub(crate) fn fresh(&self, now: Ktime) -> Option<[f64; 3]> {
        (now.since(self.at) < STEP).then_some(self.averages)
    }

    /// One step of the exponential averages.
    pub(crate) fn step(&mut self, now: Ktime, used: u64, ready: usize, processors: usize) -> [f64; 3] {
        let seconds = now.since(self.at).as_secs_f64();
        let ran = used.saturating_sub(self.used) as f64 / 1e9 / seconds;
        let threads = if ready > processors { ran.max(ready as f64) } else { ran };
        (self.at, self.used) = (now, used);
        for (average, period) in self.averages.iter_mut().zip(PERIODS) {
            let keep = (-seconds / period).exp();
            *average = *average * keep + threads * (1.0 - keep);
        }
        self.averages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_follow_the_processor_time() {
        let start = Ktime::ZERO;
        let mut load = Load::new(start);
        // Two threads ran all the time for an hour.
        let hour = start.plus(Duration::from_secs(3600));
        load.step(hour, 7_200_000_000_000, 0, 4);
        assert!(load.averages.iter().all(|average| (1.9..=2.0).contains(average)), "{:?}", load.averages);
        // A minute of nothing.
        load.step(hour.plus(Duration::from_secs(60)), 7_200_000_000_000, 0, 4);
        let [one, five, fifteen] = load.averages;
        assert!(
            (0.7..0.8).contains(&one) && (1.5..1.7).contains(&five) && fifteen > 1.8,
            "{:?}",
            load.averages
        );
        // More are ready than there are processors.
        load.step(hour.plus(Duration::from_secs(3600)), 7_200_000_000_000, 9, 4);
        assert!(load.averages[0] > 8.9);
    }
}
