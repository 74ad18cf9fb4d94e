//! Tests of the whole stack under a simulated clock.

mod hosts;
mod ip;
