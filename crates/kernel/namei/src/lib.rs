//! Paths: how they are resolved, and the calls that are about names. See path_resolution(7); Linux has this in fs/namei.c.
//!
//! [`walk`] resolves a path, [`quick`] those whose names are all in the cache, both by the [`rules`]; [`lookup`] has the
//! words for what a caller asks. [`open`], [`dir`], [`link`], [`rename`], [`attr`], [`xattr`] are the calls. [`stack`] is
//! what a file system on top of others does below; [`domain`] asks Landlock's rules. Nothing here is kept by a checkpoint.

#![forbid(unsafe_code)]

pub mod anon;
pub mod atime;
pub mod attr;
pub mod dir;
mod domain;
pub mod handles;
pub mod link;
pub mod lookup;
pub mod open;
mod quick;
pub mod rename;
mod rules;
pub mod stack;
pub mod walk;
pub mod xattr;

pub use domain::rule_object;
pub use lookup::{Lookup, Start};
pub use open::OpenHow;
