//! Two connections over a simulated path with loss, delay, reordering and duplication.

use super::pair::{Out, Side, open};
use crate::sysctl::Sysctls;
use crate::tcp::cc::Algorithm;
use crate::tcp::conn::State;
use crate::testing::{Random, effort};
use ktime::Ktime;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What the path does to packets, in percent, and its delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) loss: u64,
    pub(crate) reorder: u64,
    pub(crate) duplicate: u64,
    pub(crate) delay: Duration,
    /// Bytes per millisecond, and bytes that wait at most.
    pub(crate) rate: u64,
    pub(crate) queue: u64,
}

pub(crate) const LAN: Path =
    Path { loss: 0, reorder: 0, duplicate: 0, delay: Duration::from_millis(5), rate: 12_500, queue: 250_000 };

struct Link {
    path: Path,
    /// When the sender's queue is empty.
    free: Ktime,
}

struct Flight {
    at: Ktime,
    order: u64,
    to: usize,
    out: Out,
}

impl PartialEq for Flight {
    fn eq(&self, other: &Flight) -> bool {
        self.order == other.order
    }
}
impl Eq for Flight {}
impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Flight) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Flight {
    fn cmp(&self, other: &Flight) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What a transfer came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) time: Duration,
    pub(crate) timeouts: u64,
    pub(crate) retransmitted: u64,
}

/// Moves `len` bytes from the client to the server, and the server's FIN back.
pub(crate) fn transfer(seed: u64, path: Path, len: usize, settings: impl Fn() -> Sysctls) -> Outcome {
    transfer_by(Algorithm::Cubic, seed, path, len, settings)
}

fn transfer_by(
    algorithm: Algorithm,
    seed: u64,
    path: Path,
    len: usize,
    settings: impl Fn() -> Sysctls,
) -> Outcome {
    let mut random = Random::new(seed);
    let start = Ktime::from_millis(5_000_000 + random.below(1 << 33));
    let (mut a, b, mut now) = open(settings(), settings(), start, 2 * path.delay.as_millis() as u64);
    let begin = now;
    a.conn.cc.algorithm = algorithm;
    let mut sides = [a, b];
    let mut links = [Link { path, free: now }, Link { path, free: now }];
    let data: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    let (mut written, mut got) = (0, Vec::<u8>::new());
    let mut flights = BinaryHeap::new();
    let mut order = 0;
    let mut closed = [false; 2];
    loop {
        if written < len {
            written += sides[0].write(now, &data[written..(written + 60_000).min(len)]);
        } else if !closed[0] {
            closed[0] = true;
            sides[0].with(now, |conn, cx| conn.close_write(cx));
        }
        while sides[1].rx.len() > 0 {
            got.extend(sides[1].read(now, 100_000));
        }
        if sides[1].rx.fin && sides[1].rx.len() == 0 && !closed[1] {
            closed[1] = true;
            sides[1].with(now, |conn, cx| conn.close_write(cx));
        }
        for from in 0..2 {
            for out in sides[from].sent() {
                order += 1;
                launch(&mut links[from], &mut flights, &mut random, now, order, 1 - from, out);
            }
        }
        let over = |side: &Side| matches!(side.conn.state, State::Closed | State::TimeWait);
        if sides.iter().all(over) {
            break;
        }
        let timer = sides.iter().filter_map(|side| side.conn.deadlines.next()).min();
        let flight = flights.peek().map(|Reverse(f): &Reverse<Flight>| f.at);
        let next = timer.into_iter().chain(flight).min();
        let next = next.unwrap_or_else(|| {
            let states = sides.iter().map(|s| s.conn.info(&s.rx, now, 1500)).collect::<Vec<_>>();
            panic!("seed {seed}: stuck after {} of {len} bytes: {states:#?}", got.len())
        });
        now = now.max(next);
        assert!(
            now.since(begin) < Duration::from_secs(7200),
            "seed {seed}: too slow, {} of {len}",
            got.len()
        );
        while let Some(Reverse(flight)) = flights.pop_if_due(now) {
            sides[flight.to].receive(now, &flight.out);
        }
        sides.iter_mut().for_each(|side| side.timers(now));
    }
    assert!(got == data, "seed {seed}: {} of {len} bytes, or others", got.len());
    Outcome {
        time: now.since(begin),
        timeouts: sides[0].counters.timeouts.get(),
        retransmitted: sides[0].counters.retrans_segs.get(),
    }
}

trait PopDue {
    fn pop_if_due(&mut self, now: Ktime) -> Option<Reverse<Flight>>;
}

impl PopDue for BinaryHeap<Reverse<Flight>> {
    fn pop_if_due(&mut self, now: Ktime) -> Option<Reverse<Flight>> {
        if self.peek()?.0.at <= now { self.pop() } else { None }
    }
}

fn launch(
    link: &mut Link,
    flights: &mut BinaryHeap<Reverse<Flight>>,
    random: &mut Random,
    now: Ktime,
    order: u64,
    to: usize,
    out: Out,
) {
    let path = link.path;
    let bytes = out.data.len() as u64 + 52;
    let start = link.free.max(now);
    if start.since(now).as_millis() as u64 * path.rate > path.queue || random.chance(path.loss) {
        return;
    }
    link.free = start.plus(Duration::from_nanos(bytes * 1_000_000 / path.rate));
    let mut at = link.free.plus(path.delay);
    if random.chance(path.reorder) {
        at = at.plus(Duration::from_micros(random.below(3000)));
    }
    for _ in 0..1 + u64::from(random.chance(path.duplicate)) {
        flights.push(Reverse(Flight { at, order, to, out: out.clone() }));
        at = at.plus(Duration::from_micros(random.below(2000)));
    }
}

#[test]
fn clean_paths_are_filled() {
    let outcome = transfer(1, LAN, 20_000_000, Sysctls::default);
    // 100 Mbit/s: 1.6 s for the bytes alone.
    assert!(outcome.time < Duration::from_millis(2600) && outcome.timeouts == 0, "{outcome:?}");
}

#[test]
fn bad_paths_deliver_everything() {
    for seed in 0..60 * effort() {
        let mut random = Random::new(seed + 100);
        let path = Path {
            loss: random.below(12),
            reorder: random.below(30),
            duplicate: random.below(10),
            delay: Duration::from_millis(random.below(60)),
            ..LAN
        };
        let plain = || {
            let sysctls = Sysctls::default();
            let mut random = Random::new(seed);
            sysctls.tcp_sack.set(i64::from(!random.chance(25))).unwrap();
            sysctls.tcp_timestamps.set(i64::from(!random.chance(25))).unwrap();
            sysctls.tcp_window_scaling.set(i64::from(!random.chance(25))).unwrap();
            sysctls
        };
        transfer(seed, path, 1_000_000, plain);
    }
}

/// RACK with tail loss probes at least halves the time-outs of plain SACK, and sends less again.
#[test]
fn rack_halves_the_time_outs() {
    let path = Path { loss: 4, reorder: 10, delay: Duration::from_millis(20), ..LAN };
    let run = |rack: bool| {
        let settings = || {
            let sysctls = Sysctls::default();
            sysctls.tcp_recovery.set(rack.into()).unwrap();
            sysctls.tcp_early_retrans.set(if rack { 3 } else { 0 }).unwrap();
            sysctls
        };
        let outcomes = (0..40).map(|seed| transfer(seed, path, 100_000, settings));
        outcomes.fold((0, 0), |sum, o| (sum.0 + o.timeouts, sum.1 + o.retransmitted))
    };
    let ((rack, _), (sack, again)) = (run(true), run(false));
    assert!(sack >= 10 && again > 0 && rack * 2 <= sack, "{rack} time-outs with RACK, {sack} without");
}

#[test]
fn every_algorithm_fills_a_clean_path() {
    let wide = || {
        let sysctls = Sysctls::default();
        sysctls.tcp_rmem_max.set(32 << 20).unwrap();
        sysctls
    };
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr] {
        let outcome = transfer_by(algorithm, 3, LAN, 20_000_000, wide);
        // 100 Mbit/s: 1.6 s for the bytes alone.
        assert!(outcome.time < Duration::from_millis(2800), "{algorithm:?}: {outcome:?}");
    }
}

/// BBR keeps its rate when packets are lost at random; CUBIC cannot tell that from congestion.
#[test]
fn bbr_does_not_take_every_loss_for_congestion() {
    let path = Path { loss: 2, delay: Duration::from_millis(20), ..LAN };
    let [cubic, bbr] =
        [Algorithm::Cubic, Algorithm::Bbr].map(|a| transfer_by(a, 5, path, 10_000_000, Sysctls::default));
    assert!(bbr.time * 2 < cubic.time, "BBR {bbr:?}, CUBIC {cubic:?}");
}
