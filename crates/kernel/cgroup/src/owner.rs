//! Owners, modes and times of a group's directory and files.

use crate::group::Cgroup;
use abi::time::Timespec;

/// Who owns a file, and what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Cgroup {
    /// The owner of a file, or of the directory itself by the empty name. One that nobody changed is the maker's,
    /// with `mode`.
    pub fn owner(&self, file: &'static str, mode: u32) -> Owner {
        let s = self.state();
        s.owners.get(file).copied().unwrap_or(Owner { mode, ..s.maker })
    }

    /// Changes it. `file` is one of the names that cgroupfs has, so there are few.
    pub fn set_owner(&self, file: &'static str, owner: Owner) {
        self.state().owners.insert(file, owner);
    }
}
