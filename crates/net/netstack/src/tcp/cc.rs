//! Congestion control: NewReno (RFC 5681) and CUBIC (RFC 9438), with HyStart++ (RFC 9406) in slow start.

use super::bbr::Bbr;
use super::limits::INITIAL_WINDOW;
use crate::sysctl::Sysctls;
use crate::wire::seq::Seq;
use ktime::Ktime;
use std::time::Duration;

/// The algorithms (`TCP_CONGESTION`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Algorithm {
    /// NewReno.
    Reno,
    /// CUBIC.
    #[default]
    Cubic,
    /// BBR.
    Bbr,
}

impl Algorithm {
    /// Names, as tcp_available_congestion_control shows them.
    pub const NAMES: [(&'static str, Algorithm); 3] =
        [("reno", Algorithm::Reno), ("cubic", Algorithm::Cubic), ("bbr", Algorithm::Bbr)];

    /// An algorithm by name.
    pub fn by_name(name: &str) -> Option<Algorithm> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    /// The algorithm of new connections (`tcp_congestion_control`).
    pub fn of_new_connections(sysctls: &Sysctls) -> Algorithm {
        Self::NAMES
            .get(sysctls.tcp_congestion.size())
            .map_or_else(Algorithm::default, |(_, algorithm)| *algorithm)
    }

    /// Sets the algorithm of new connections by its name; `ENOENT` when none has that name.
    pub fn set_for_new_connections(sysctls: &Sysctls, name: &str) -> Result<(), abi::Errno> {
        let index = Self::NAMES.iter().position(|(known, _)| *known == name).ok_or(abi::Errno::ENOENT)?;
        sysctls.tcp_congestion.set(index as i64)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Reno => "reno",
            Algorithm::Cubic => "cubic",
            Algorithm::Bbr => "bbr",
        }
    }
}

/// Slow start has no end yet.
pub(crate) const INFINITE: u32 = 0x7fff_ffff;

/// The congestion window, in packets. Plain data.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Congestion {
    pub(crate) algorithm: Algorithm,
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// Upper bound.
    pub(crate) clamp: u32,
    /// Packets acknowledged since the window grew last.
    credit: u32,
    cubic: Cubic,
    hystart: HyStart,
    pub(crate) bbr: Bbr,
}

#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct Cubic {
    /// Window before the last reduction.
    w_max: f64,
    /// Window at the start of the epoch.
    w_start: f64,
    /// Time to reach `w_max`.
    k: f64,
    epoch: Option<Ktime>,
    /// What Reno would have (RFC 9438 section 4.3).
    w_est: f64,
}

/// RFC 9438 section 4.1.
const BETA: f64 = 0.7;
/// RFC 9438 section 5.1.
const C: f64 = 0.4;

#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct HyStart {
    /// End of the round.
    round_end: Seq,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    /// Conservative slow start: rounds left and the round-trip time that began it.
    css: Option<(u32, Duration)>,
}

impl Congestion {
    pub(crate) fn new(algorithm: Algorithm) -> Congestion {
        Congestion {
            algorithm,
            cwnd: INITIAL_WINDOW,
            ssthresh: INFINITE,
            clamp: u32::MAX,
            credit: 0,
            cubic: Cubic::default(),
            hystart: HyStart::default(),
            bbr: Bbr::default(),
        }
    }

    /// Whether a saved one can be calculated with.
    pub(super) fn check(&self) -> bool {
        /// Packets, and counts of them.
        const MOST: u32 = 1 << 30;
        let counts = [self.cwnd, self.credit, self.hystart.samples];
        let times = [self.hystart.last_min, self.hystart.current_min, self.hystart.css.map(|(_, rtt)| rtt)];
        let windows = [self.cubic.w_max, self.cubic.w_start, self.cubic.w_est, self.cubic.k];
        counts.iter().all(|count| *count <= MOST)
            && self.cwnd > 0
            && self.ssthresh <= INFINITE
            && self.clamp > 0
            && times.iter().flatten().all(|time| *time <= Duration::from_secs(1 << 32))
            && windows.iter().all(|window| window.is_finite())
            && self.bbr.check()
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// The threshold after a loss.
    pub(crate) fn reduced(&mut self) -> u32 {
        match self.algorithm {
            // A loss is no sign of congestion by itself.
            Algorithm::Bbr => self.ssthresh,
            Algorithm::Reno => (self.cwnd / 2).max(2),
            Algorithm::Cubic => {
                let cwnd = f64::from(self.cwnd);
                // Fast convergence (RFC 9438 section 4.7).
                let fast = cwnd < self.cubic.w_max;
                self.cubic.w_max = if fast { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
                self.cubic.epoch = None;
                ((cwnd * BETA) as u32).max(2)
            }
        }
    }

    /// Starts anew after a time-out.
    pub(crate) fn timed_out(&mut self) {
        self.cubic.epoch = None;
        self.credit = 0;
        self.hystart = HyStart::default();
    }

    /// Takes a reduction back.
    pub(crate) fn undo(&mut self, cwnd: u32, ssthresh: u32) {
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.cubic.epoch = None;
    }

    /// Starts a new epoch after an idle time, so that the window does not jump.
    pub(crate) fn idle(&mut self) {
        self.cubic.epoch = None;
    }

    /// Grows the window for packets that were acknowledged while it was full.
    pub(crate) fn grow(&mut self, mut acked: u32, now: Ktime, srtt: Duration) {
        if self.algorithm == Algorithm::Bbr {
            return;
        }
        if self.in_slow_start() {
            acked = self.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        let per = match self.algorithm {
            Algorithm::Reno => self.cwnd,
            _ => self.cubic.packets_per_step(self.cwnd, acked, now, srtt),
        };
        self.additive(per.max(1), acked);
    }

    /// Exponential growth; returns packets left over at its end.
    fn slow_start(&mut self, acked: u32) -> u32 {
        // RFC 9406 section 4.2: a quarter of the growth in conservative slow start.
        let steps = match self.hystart.css {
            Some(_) => {
                self.credit += acked;
                let steps = self.credit / 4;
                self.credit %= 4;
                steps
            }
            None => acked,
        };
        let grown = (self.cwnd.saturating_add(steps)).min(self.ssthresh);
        let left = if grown == self.ssthresh { steps - (grown - self.cwnd) } else { 0 };
        self.cwnd = grown.min(self.clamp);
        left
    }

    /// One packet more for each `per` packets acknowledged.
    fn additive(&mut self, per: u32, acked: u32) {
        self.credit += acked;
        if self.credit >= per {
            self.cwnd = self.cwnd.saturating_add(self.credit / per).min(self.clamp);
            self.credit %= per;
        }
    }

    /// HyStart++: ends slow start when round-trip times grow. `ack` is the acknowledgement, `nxt` what is sent next.
    pub(crate) fn watch_rtt(&mut self, rtt: Duration, ack: Seq, nxt: Seq) {
        if !self.in_slow_start() || self.algorithm != Algorithm::Cubic || self.cwnd < 16 {
            return;
        }
        let hystart = &mut self.hystart;
        if !ack.before(hystart.round_end) {
            hystart.round_end = nxt;
            hystart.last_min = hystart.current_min.take();
            hystart.samples = 0;
            if let Some((rounds, _)) = &mut hystart.css {
                *rounds = rounds.saturating_sub(1);
                if *rounds == 0 {
                    self.ssthresh = self.cwnd;
                    return;
                }
            }
        }
        hystart.current_min = Some(hystart.current_min.map_or(rtt, |min| min.min(rtt)));
        hystart.samples += 1;
        let (Some(current), Some(last)) = (hystart.current_min, hystart.last_min) else { return };
        if hystart.samples < 8 {
            return;
        }
        match hystart.css {
            Some((_, baseline)) if current < baseline => hystart.css = None,
            Some(_) => {}
            None => {
                let margin = (last / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
                if current >= last + margin {
                    hystart.css = Some((5, current));
                }
            }
        }
    }
}

impl Cubic {
    /// How many packets must be acknowledged for one more in the window.
    fn packets_per_step(&mut self, cwnd: u32, acked: u32, now: Ktime, srtt: Duration) -> u32 {
        let window = f64::from(cwnd);
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.w_start = window;
            self.w_est = window;
            self.k = ((self.w_max - window).max(0.0) / C).cbrt();
            self.w_max = self.w_max.max(window);
            now
        });
        let t = now.since(epoch).as_secs_f64();
        let target_at = |t: f64| C * (t - self.k).powi(3) + self.w_max;
        let target = target_at(t + srtt.as_secs_f64()).clamp(window, window * 1.5);
        // RFC 9438 section 4.3: not slower than Reno.
        let alpha = if self.w_est >= self.w_max { 1.0 } else { 3.0 * (1.0 - BETA) / (1.0 + BETA) };
        self.w_est += alpha * f64::from(acked) / window;
        let goal = if target_at(t) < self.w_est { self.w_est } else { target };
        if goal > window {
            (window / (goal - window)).clamp(1.0, window * 100.0) as u32
        } else {
            cwnd.saturating_mul(100)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_doubles_and_avoidance_adds() {
        let mut reno = Congestion::new(Algorithm::Reno);
        reno.ssthresh = 40;
        reno.grow(10, Ktime::ZERO, Duration::from_millis(10));
        assert_eq!(reno.cwnd, 20);
        reno.grow(20, Ktime::ZERO, Duration::from_millis(10));
        assert_eq!(reno.cwnd, 40);
        (0..40).for_each(|_| reno.grow(1, Ktime::ZERO, Duration::from_millis(10)));
        assert_eq!(reno.cwnd, 41);
        assert_eq!(reno.reduced(), 20);
    }

    #[test]
    fn cubic_returns_to_its_window_after_k() {
        let mut cubic = Congestion::new(Algorithm::Cubic);
        cubic.cwnd = 1000;
        (cubic.ssthresh, cubic.cwnd) = (cubic.reduced(), 700);
        assert_eq!(cubic.ssthresh, 700);
        let (rtt, mut now) = (Duration::from_millis(50), Ktime::ZERO);
        let mut reached = None;
        for _ in 0..400 {
            cubic.grow(cubic.cwnd, now, rtt);
            now = now.plus(rtt);
            if cubic.cwnd >= 999 && reached.is_none() {
                reached = Some(now);
            }
        }
        // K = cbrt(300 / 0.4) = 9.1 s.
        let at = reached.unwrap().millis();
        assert!((7_000..10_500).contains(&at), "{at} ms");
        assert!(cubic.cwnd > 1200);
    }

    #[test]
    fn growing_round_trips_end_slow_start() {
        let mut cubic = Congestion::new(Algorithm::Cubic);
        let mut ack = Seq(0);
        for round in 0..40u64 {
            let rtt = Duration::from_millis(if round < 3 { 50 } else { 80 });
            let window = cubic.cwnd;
            for _ in 0..window {
                ack += 1;
                cubic.watch_rtt(rtt, ack, ack + window);
                cubic.grow(1, Ktime::from_millis(round * 50), rtt);
            }
        }
        assert!(cubic.ssthresh < 2000, "{}", cubic.ssthresh);
    }
}
