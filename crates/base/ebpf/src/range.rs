//! The range of values that a register can have.

use crate::code;
use crate::run::calculate;

/// The values from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

const LOW: u64 = u32::MAX as u64;

impl Range {
    /// One value.
    pub(crate) fn one(value: u64) -> Range {
        Range { min: value, max: value }
    }

    /// From 0 on.
    pub(crate) fn up_to(max: u64) -> Range {
        Range { min: 0, max }
    }

    /// The values of either.
    pub(crate) fn join(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn value(self) -> Option<u64> {
        (self.min == self.max).then_some(self.min)
    }

    /// The low 32 bits.
    fn low(self) -> Range {
        match self.value() {
            Some(value) => Range::one(value & LOW),
            None if self.max <= LOW => self,
            None => Range::up_to(LOW),
        }
    }

    /// What an operation of the class ALU64 (`wide`) or ALU gives.
    pub(crate) fn calculate(self, operation: u8, by: Range, wide: bool) -> Range {
        let (a, b) = if wide { (self, by) } else { (self.low(), by.low()) };
        if let (Some(x), Some(y)) = (a.value(), b.value()) {
            return calculate(operation, x, y, wide).map_or(Range::up_to(u64::MAX), Range::one);
        }
        let limit = if wide { u64::MAX } else { LOW };
        let all = Range::up_to(limit);
        let inside = |min: Option<u64>, max: Option<u64>| match (min, max) {
            (Some(min), Some(max)) if max <= limit => Range { min, max },
            _ => all,
        };
        let mask = (a.max | b.max).checked_ilog2().map_or(0, |bits| u64::MAX >> (63 - bits));
        match operation {
            code::MOV => b,
            code::ADD => inside(a.min.checked_add(b.min), a.max.checked_add(b.max)),
            code::MUL => inside(a.min.checked_mul(b.min), a.max.checked_mul(b.max)),
            code::SUB => inside(a.min.checked_sub(b.max), a.max.checked_sub(b.min)),
            code::AND => Range::up_to(a.max.min(b.max)),
            code::OR | code::XOR => Range::up_to(mask),
            code::RSH => match b.value() {
                Some(by) => {
                    let by = by & if wide { 63 } else { 31 };
                    Range { min: a.min >> by, max: a.max >> by }
                }
                None => Range::up_to(a.max),
            },
            // Nothing is divided by 0: the quotient is 0 then, and the remainder the dividend.
            code::DIV => Range::up_to(a.max),
            code::MOD if b.min > 0 => Range::up_to(a.max.min(b.max - 1)),
            code::MOD => Range::up_to(a.max),
            _ => all,
        }
    }
}
