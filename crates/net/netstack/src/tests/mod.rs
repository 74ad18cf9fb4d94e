//! Tests of the whole stack under a simulated clock.

mod datagrams;
mod fastopen;
mod filters;
mod hostile;
mod hosts;
mod ip;
mod links;
mod streams;
