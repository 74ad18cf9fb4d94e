//! The matches and targets of iptables, by name and revision, with the binary structures that iptables passes to the kernel.
//!
//! Two interfaces use them: the tables of iptables-legacy, and nf_tables, whose expressions "match" and "target" wrap them.
//!
//! Everything that a program passes is hostile: sizes are checked, loops bounded. `EINVAL` is Linux's answer to what makes no sense,
//! `ENOENT` to a name that nobody has.

#![forbid(unsafe_code)]

pub mod layout;
mod ruleset;
mod tables;
#[cfg(test)]
mod tests;
pub mod xt;

pub use tables::Tables;
