//! Figures for Prometheus: their text, and the HTTP server that a collector asks for it.
//!
//! [`text()`] writes [`metrics::Series`] in the text format of Prometheus. [`serve`] answers requests with what a
//! [`Source`] says. Requests come from anywhere: their size, number and time are bounded.

#![forbid(unsafe_code)]

mod address;
mod filter;
mod server;
mod text;

pub use address::{Address, Listener};
pub use filter::{Filter, valid_prefix};
pub use server::{Source, serve};
pub use text::text;
