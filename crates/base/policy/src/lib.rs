//! Policies: rules about what the processes of a container may do.
//!
//! [`Policy::parse`] reads a file in YAML or JSON, and reports every mistake with its line. The kernel asks
//! [`Policy::concerns`] whether any rule is about a point, [`Policy::needs`] what it has to gather, and
//! [`Policy::decide`] what to do. Deciding allocates nothing, and takes time that the rules and the paths bound.
//!
//! Rules are about objects that the kernel has found, not about what a program wrote in its memory: [`Operation`] has
//! copies. A system call's point ([`Point::Call`]) sees registers only.
//!
//! [`explain`] says in a sentence what a rule does, [`cover`] finds rules that never match, [`cases`] runs a file of
//! operations with the decisions that are expected.

#![forbid(unsafe_code)]

mod address;
pub mod cases;
pub mod cover;
mod diagnostic;
mod document;
pub mod explain;
mod glob;
mod parse;
mod point;
mod policy;
mod ranges;
mod rule;
#[cfg(test)]
mod schema;
mod targets;
#[cfg(test)]
mod tests;

pub use address::Address;
pub use diagnostic::Diagnostic;
pub use glob::{Glob, Pattern};
pub use parse::errno_named;
pub use point::{Access, Facts, Kind, Point};
pub use policy::{Decision, DryRun, Policy, RuleIndex};
pub use rule::{Action, Ask, Operation, Protocol, Rule};

/// The JSON schema of a policy's file.
pub const SCHEMA: &str = include_str!("../../../../docs/policy.schema.json");
