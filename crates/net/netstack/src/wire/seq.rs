//! Sequence numbers: 32 bits that wrap (RFC 9293 section 3.4).

use std::ops::{Add, AddAssign, Sub};

/// A sequence number. Comparison is by distance: `a.before(b)` holds when `b` is less than 2^31 ahead of `a`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Seq(pub u32);

impl Seq {
    /// True when this number comes before `other`.
    pub fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// True when this number comes after `other`.
    pub fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// True when this number is not after `other`.
    pub fn upto(self, other: Seq) -> bool {
        !self.after(other)
    }

    /// The later of two numbers.
    #[must_use]
    pub fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// The earlier of two numbers.
    #[must_use]
    pub fn min(self, other: Seq) -> Seq {
        if self.before(other) { self } else { other }
    }

    /// Distance from `earlier`, zero when `earlier` is later.
    pub fn since(self, earlier: Seq) -> u32 {
        if self.before(earlier) { 0 } else { self - earlier }
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;
    fn sub(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }
}

impl Sub for Seq {
    type Output = u32;
    fn sub(self, other: Seq) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}
