//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00): a model of the path instead of losses.
//!
//! The model is the largest delivery rate of ten rounds and the least round-trip time of ten seconds. What is sent is paced at
//! the rate, and about two products of both are in flight at most. Plain data.

use ktime::Ktime;
use std::time::Duration;

/// 2/ln 2: doubles the rate each round.
const STARTUP_GAIN: f64 = 2.885;
/// The gains of one cycle of probing: more, less, then as measured.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds over which the largest rate counts.
const RATE_ROUNDS: usize = 10;
/// How long a least round-trip time counts.
const MIN_RTT_LIFE: Duration = Duration::from_secs(10);
/// Time with few packets in flight, to see the path empty.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// Packets that keep acknowledgements coming.
const MIN_WINDOW: u32 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Mode {
    #[default]
    Startup,
    Drain,
    ProbeRate,
    ProbeRtt,
}

/// What an acknowledgement tells BBR.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) now: Ktime,
    /// Bytes per second, if a rate could be measured.
    pub(crate) rate: Option<u64>,
    /// The program had nothing more to send.
    pub(crate) limited: bool,
    /// Packets delivered in all, and when the newest of them was sent.
    pub(crate) delivered: u64,
    pub(crate) prior_delivered: u64,
    pub(crate) rtt: Option<Duration>,
    /// Packets newly delivered and in flight.
    pub(crate) acked: u32,
    pub(crate) in_flight: u32,
    pub(crate) mss: u32,
    pub(crate) lost: bool,
    /// Losses are repaired at the moment.
    pub(crate) recovering: bool,
}

/// The model and where probing stands.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Bbr {
    mode: Mode,
    rates: [u64; RATE_ROUNDS],
    round: usize,
    round_end: u64,
    round_start: bool,
    min_rtt: Option<(Duration, Ktime)>,
    full_rate: u64,
    full_rounds: u32,
    phase: usize,
    phase_start: Ktime,
    probe_end: Option<Ktime>,
    prior_window: u32,
    was_recovering: bool,
    /// Bytes per second that may be sent; 0 before anything is known.
    pub(crate) pacing_rate: u64,
}

impl Bbr {
    /// Takes an acknowledgement; returns the new window.
    pub(crate) fn update(&mut self, s: &Sample, window: u32) -> u32 {
        self.take_round(s);
        self.take_rate(s);
        let expired = self.take_rtt(s);
        self.check_full();
        self.move_on(s);
        self.probe_rtt(s, expired, window);
        self.pace();
        self.window(s, window)
    }

    /// Whether a saved one can be calculated with.
    pub(super) fn check(&self) -> bool {
        /// Bytes per second, and bytes in all.
        const MOST: u64 = 1 << 60;
        let numbers = [self.full_rate, self.pacing_rate];
        numbers.iter().chain(&self.rates).all(|number| *number <= MOST)
            && self.round < RATE_ROUNDS
            && self.phase < CYCLE.len()
            && self.full_rounds <= 1 << 30
            && self.min_rtt.is_none_or(|(min, _)| min <= Duration::from_secs(1 << 32))
    }

    fn take_round(&mut self, s: &Sample) {
        self.round_start = s.prior_delivered >= self.round_end;
        if self.round_start {
            self.round_end = s.delivered;
            self.round = (self.round + 1) % RATE_ROUNDS;
            self.rates[self.round] = 0;
        }
    }

    fn take_rate(&mut self, s: &Sample) {
        if let Some(rate) = s.rate
            && (!s.limited || rate > self.rate())
        {
            let place = &mut self.rates[self.round % RATE_ROUNDS];
            *place = (*place).max(rate);
        }
    }

    /// The path's rate in bytes per second.
    fn rate(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// True when the least round-trip time was too old.
    fn take_rtt(&mut self, s: &Sample) -> bool {
        let expired = self.min_rtt.is_some_and(|(_, at)| s.now.since(at) > MIN_RTT_LIFE);
        if let Some(rtt) = s.rtt
            && (expired || self.min_rtt.is_none_or(|(min, _)| rtt <= min))
        {
            self.min_rtt = Some((rtt, s.now));
        }
        expired
    }

    /// The path is full when the rate grew by less than a quarter in three rounds.
    fn check_full(&mut self) {
        if !self.round_start || self.full_rounds >= 3 {
            return;
        }
        let rate = self.rate();
        if rate >= self.full_rate + self.full_rate / 4 && rate > 0 {
            (self.full_rate, self.full_rounds) = (rate, 0);
        } else {
            self.full_rounds += 1;
        }
    }

    /// Packets in flight that fill the path, times a gain.
    fn target(&self, gain: f64, mss: u32) -> u32 {
        let Some((min, _)) = self.min_rtt else { return super::limits::INITIAL_WINDOW };
        let bytes = self.rate() as f64 * min.as_secs_f64() * gain;
        // Room for bursts and for acknowledgements that come together.
        ((bytes / f64::from(mss.max(1))) as u32).saturating_add(3).max(MIN_WINDOW)
    }

    fn move_on(&mut self, s: &Sample) {
        if self.mode == Mode::Startup && self.full_rounds >= 3 {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && s.in_flight <= self.target(1.0, s.mss) {
            self.enter_probe_rate(s.now);
        }
        if self.mode == Mode::ProbeRate {
            let Some((min, _)) = self.min_rtt else { return };
            let long = s.now.since(self.phase_start) > min;
            let done = match CYCLE[self.phase % CYCLE.len()] {
                gain if gain > 1.0 => long && (s.lost || s.in_flight >= self.target(gain, s.mss)),
                gain if gain < 1.0 => long || s.in_flight <= self.target(1.0, s.mss),
                _ => long,
            };
            if done {
                (self.phase, self.phase_start) = ((self.phase + 1) % CYCLE.len(), s.now);
            }
        }
    }

    fn enter_probe_rate(&mut self, now: Ktime) {
        // Any phase but the one that drains; which one depends on the round, so that flows do not move together.
        let phase = self.round % (CYCLE.len() - 1);
        (self.mode, self.phase_start) = (Mode::ProbeRate, now);
        self.phase = if phase == 0 { 0 } else { phase + 1 };
    }

    fn probe_rtt(&mut self, s: &Sample, expired: bool, window: u32) {
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.prior_window = window;
            self.probe_end = None;
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_end {
            None if s.in_flight <= MIN_WINDOW => self.probe_end = Some(s.now.plus(PROBE_RTT_TIME)),
            Some(end) if s.now >= end => {
                self.min_rtt = self.min_rtt.map(|(min, _)| (min, s.now));
                if self.full_rounds >= 3 {
                    self.enter_probe_rate(s.now);
                } else {
                    self.mode = Mode::Startup;
                }
            }
            _ => {}
        }
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => 1.0 / STARTUP_GAIN,
            Mode::ProbeRate => CYCLE[self.phase % CYCLE.len()],
            Mode::ProbeRtt => 1.0,
        }
    }

    /// `struct tcp_bbr_info`: rate, least round-trip time, and both gains in parts of 256.
    pub(crate) fn info(&self, _now: Ktime) -> [u32; 5] {
        let rate = self.rate();
        let least = self.min_rtt.map_or(u32::MAX, |(min, _)| min.as_micros().min(u32::MAX.into()) as u32);
        let window = if self.mode == Mode::ProbeRate { 2.0 } else { STARTUP_GAIN };
        let parts = |gain: f64| (gain * 256.0) as u32;
        [rate as u32, (rate >> 32) as u32, least, parts(self.gain()), parts(window)]
    }

    fn pace(&mut self) {
        let rate = (self.rate() as f64 * self.gain()) as u64;
        if self.full_rounds >= 3 || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn window(&mut self, s: &Sample, window: u32) -> u32 {
        // The first round of a recovery keeps what is in flight; later rounds and its end go back to the model.
        let begins = s.recovering && !self.was_recovering;
        self.was_recovering = s.recovering;
        if begins {
            self.prior_window = self.prior_window.max(window);
            return (s.in_flight + s.acked).max(MIN_WINDOW);
        }
        if self.mode == Mode::ProbeRtt {
            return window.min(MIN_WINDOW);
        }
        let gain = if self.mode == Mode::ProbeRate { 2.0 } else { STARTUP_GAIN };
        let target = self.target(gain, s.mss);
        let restored = if self.mode == Mode::ProbeRate { std::mem::take(&mut self.prior_window) } else { 0 };
        let window = window.max(restored.min(target));
        if self.full_rounds >= 3 {
            window.saturating_add(s.acked).min(target).max(MIN_WINDOW)
        } else if window < target || s.delivered < u64::from(super::limits::INITIAL_WINDOW) {
            window.saturating_add(s.acked)
        } else {
            window
        }
    }
}
