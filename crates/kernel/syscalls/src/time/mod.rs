//! Clocks and timers.

pub(crate) mod clock;
