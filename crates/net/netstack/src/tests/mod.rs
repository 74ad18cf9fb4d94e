//! Tests of the whole stack under a simulated clock.

mod datagrams;
mod fastopen;
mod filters;
mod hostile;
pub(crate) mod hosts;
mod ip;
mod layers;
mod links;
mod mixed;
mod moves;
mod nesting;
mod saved;
mod streams;
