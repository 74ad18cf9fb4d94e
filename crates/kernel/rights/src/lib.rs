//! Credentials, and the rights that they give on an object with known owner, group, mode and access control list.
//!
//! [`cred`] has credentials and capabilities, [`mode`] the rules of owner, group and mode, [`acl`] access control lists,
//! [`file_caps`] the capabilities of program files. Nothing here knows inodes or tasks: `vfs` asks with an object's
//! attributes. A checkpoint keeps [`CredentialsState`].

#![forbid(unsafe_code)]

pub mod acl;
pub mod cred;
pub mod file_caps;
pub mod mode;

pub use cred::{Cap, Credentials, CredentialsState, Creds};
pub use mode::Perm;
