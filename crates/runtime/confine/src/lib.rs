//! The steps by which a process gives up its rights before it reads data that a guest can influence.
//!
//! [`ids`] maps users, [`root`] gives a process an empty root, [`hidden`] covers
//! mounts of the host there, [`privileges`] drops capabilities, and [`filter`]
//! turns a table of rules into a seccomp filter. docs/security.md says which process does what and why.

#![forbid(unsafe_code)]

pub mod filter;
pub mod hidden;
pub mod ids;
pub mod privileges;
pub mod root;
