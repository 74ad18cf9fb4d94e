//! The policies that the programs of a kernel are under.
//!
//! [`Enforcer`] belongs to a kernel. Code before an operation asks it whether a policy is about the operation
//! ([`Enforcer::concerns`], one load), gathers what the rules look at, and asks for a decision. Decisions are recorded: they
//! go to a process outside, which appends them to a log. A rule may leave a decision to a program outside ([`asker`]).
//!
//! Neighbours: `policy` has the rules, `decision_log` the form of a record, `trace` the queue to a process outside. `task`
//! gathers the facts and acts on a decision. Locks: leaves. A checkpoint keeps no policy: its log belongs to the host.

#![forbid(unsafe_code)]

pub mod asker;
mod enforcer;

pub use asker::Asker;
pub use enforcer::{Enforcer, Loaded, Log, Verdict};
