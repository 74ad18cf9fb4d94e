//! Helpers of the tests: a small random generator with a seed.

/// How much work a randomised test does: `NETSTACK_EFFORT` times the usual amount, and with other seeds.
pub fn effort() -> u64 {
    std::env::var("NETSTACK_EFFORT").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The xorshift64* generator: fast and repeatable, not secret.
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "not an iterator: it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound.max(1)
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
