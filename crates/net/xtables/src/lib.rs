//! The matches and targets of iptables, by name and revision, with the binary structures that iptables passes to the kernel.
//!
//! Two interfaces use them: the tables of iptables-legacy, and nf_tables, which wraps them in its expressions "match"
//! and "target".
//!
//! Everything that a program passes is hostile: sizes are checked, loops bounded. `EINVAL` is Linux's answer to a
//! meaningless value, `ENOENT` to an unknown name.

#![forbid(unsafe_code)]

pub mod layout;
mod ruleset;
mod tables;
#[cfg(test)]
mod tests;
pub mod xt;

pub use tables::{TableState, Tables};
