//! Path resolution, and the calls on names. See path_resolution(7); Linux has this in fs/namei.c.
//!
//! [`walk`] resolves any path, [`quick`] a path with all its names in the cache. Both follow the [`rules`]. [`lookup`]
//! has the flags of a look-up. [`open`] (and [`opening`], of what a path led to), [`dir`], [`link`], [`rename`], [`attr`], [`xattr`] are the calls. [`stack`]
//! has the operations of a stacked file system on the file systems below; [`domain`] asks Landlock's rules. A
//! checkpoint keeps nothing of this crate.

#![forbid(unsafe_code)]

pub mod anon;
pub mod atime;
pub mod attr;
pub mod dir;
mod domain;
pub mod handles;
mod how;
pub mod link;
pub mod lookup;
pub mod open;
pub mod opening;
mod quick;
pub mod rename;
mod rules;
pub mod stack;
pub mod walk;
pub mod xattr;

pub use domain::{RuleObject, rule_object};
pub use how::OpenHow;
pub use lookup::{Lookup, Start};
