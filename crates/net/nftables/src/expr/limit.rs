//! `limit`: so many packets or bytes in a time, by a bucket of tokens.

use crate::attr::{Attrs, Result, Writer};
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use lock_order::Mutex;

const RATE: u16 = 1;
const UNIT: u16 = 2;
const BURST: u16 = 3;
const TYPE: u16 = 4;
const FLAGS: u16 = 5;
const NANOS: u64 = 1_000_000_000;
const DEFAULT_BURST: u32 = 5;

struct Limit {
    rate: u64,
    /// Nanoseconds.
    unit: u64,
    burst: u32,
    bytes: bool,
    invert: bool,
    /// Nanoseconds that are saved up, and most of them.
    most: u64,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    tokens: u64,
    /// Nanoseconds of the kernel's clock.
    at: u64,
}

pub(crate) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let rate = attrs.need(RATE)?.be64()?;
    let unit = attrs.need(UNIT)?.be64()?.checked_mul(NANOS).ok_or(Errno::EOVERFLOW)?;
    let bytes = match attrs.be32(TYPE)?.unwrap_or(0) {
        0 => false,
        1 => true,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let mut burst = attrs.be32(BURST)?.unwrap_or(0);
    if burst == 0 && !bytes {
        burst = DEFAULT_BURST;
    }
    let sum = rate.checked_add(burst.into()).filter(|_| rate != 0).ok_or(Errno::EOVERFLOW)?;
    let most = match bytes {
        false => (unit / rate).checked_mul(burst.into()),
        true => unit.checked_mul(sum).map(|all| all / rate),
    };
    let most = most.ok_or(Errno::EOVERFLOW)?;
    let invert = attrs.be32(FLAGS)?.unwrap_or(0) & 1 != 0;
    let state = Mutex::new(State { tokens: most, at: scope.now.saturating_mul(1_000_000) });
    Ok(Box::new(Limit { rate, unit, burst, bytes, invert, most, state }))
}

impl Limit {
    /// Takes the tokens for a packet; whether there were enough.
    fn take(&self, now: u64, len: usize) -> bool {
        let cost = match self.bytes {
            true => {
                u64::try_from(u128::from(self.unit) * len as u128 / u128::from(self.rate)).unwrap_or(u64::MAX)
            }
            false => self.unit / self.rate,
        };
        let mut state = self.state.lock();
        let tokens = state.tokens.saturating_add(now.saturating_sub(state.at)).min(self.most);
        let left = tokens.checked_sub(cost);
        *state = State { tokens: left.unwrap_or(tokens), at: now.max(state.at) };
        left.is_some()
    }
}

impl Expr for Limit {
    fn name(&self) -> &'static str {
        "limit"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        Flow::when(self.take(run.nanos, run.len()) != self.invert)
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be64(RATE, self.rate);
        out.be64(UNIT, self.unit / NANOS);
        out.be32(BURST, self.burst);
        out.be32(TYPE, self.bytes.into());
        out.be32(FLAGS, self.invert.into());
    }
    fn fresh(&self) -> Option<Box<dyn Expr>> {
        let at = self.state.lock().at;
        let state = Mutex::new(State { tokens: self.most, at });
        Some(Box::new(Limit { state, ..*self }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_with_time() {
        let state = Mutex::new(State { tokens: 2 * NANOS, at: 0 });
        let limit =
            Limit { rate: 1, unit: NANOS, burst: 2, bytes: false, invert: false, most: 2 * NANOS, state };
        let takes = |now: u64| limit.take(now, 100);
        assert_eq!([0, 0, 0, NANOS / 2, NANOS, NANOS].map(takes), [true, true, false, false, true, false]);
        assert_eq!([9 * NANOS, 9 * NANOS, 9 * NANOS].map(takes), [true, true, false]);
    }
}
