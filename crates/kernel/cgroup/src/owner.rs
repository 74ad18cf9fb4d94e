//! Owners, modes and times of a group's directory and files.

use abi::time::Timespec;

/// Owner, mode and times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// Permission bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access, modification and status change.
    pub times: [Timespec; 3],
}
