//! limit and statistic.

use super::data::Data;
use super::{Context, Match, when};
use abi::Errno;
use ktime::Ktime;
use lock_order::Mutex;
use netfilter::Packet;
use std::sync::atomic::{AtomicU32, Ordering};

/// Units of an average: packets times this per second.
const SCALE: u64 = 10_000;

/// A bucket of credit in nanoseconds.
struct Limit {
    /// What a packet costs, and the most that the bucket holds.
    cost: u64,
    cap: u64,
    state: Mutex<(u64, Option<Ktime>)>,
}

/// `struct xt_rateinfo`
pub(super) fn limit(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (average, burst) = (u64::from(data.u32(0)), u64::from(data.u32(4)));
    // The average is the time between packets.
    if burst == 0 || average.checked_mul(burst).is_none_or(|product| product > u32::MAX.into()) {
        return Err(Errno::ERANGE);
    }
    let cost = average * (1_000_000_000 / SCALE);
    let cap = cost * burst;
    Ok(Box::new(Limit { cost, cap, state: Mutex::new((cap, None)) }))
}

impl Match for Limit {
    fn matches(&self, packet: &mut Packet<'_>) -> bool {
        let mut state = self.state.lock();
        let (credit, last) = *state;
        let gained = last.map_or(0, |last| packet.now.since(last).as_nanos().min(self.cap.into()) as u64);
        let credit = credit.saturating_add(gained).min(self.cap);
        let matched = credit >= self.cost;
        *state = (if matched { credit - self.cost } else { credit }, Some(packet.now));
        matched
    }
}

/// `struct xt_statistic_info`
pub(super) fn statistic(_: &Context<'_>, data: Data<'_>) -> Result<Box<dyn Match>, Errno> {
    let (mode, inverted) = (data.u16(0), data.u16(2) & 1 != 0);
    if mode > 1 || data.u16(2) & !1 != 0 {
        return Err(Errno::EINVAL);
    }
    if mode == 0 {
        let probability = data.u32(4);
        return when(move |packet| {
            let drawn = packet.netfilter.random() as u32 & 0x7fff_ffff;
            (drawn < probability) != inverted
        });
    }
    let (every, count) = (data.u32(4), AtomicU32::new(data.u32(12)));
    when(move |_| {
        let step = |n: u32| Some(if n >= every { 0 } else { n + 1 });
        let before = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).unwrap_or(0);
        (before >= every) != inverted
    })
}
