//! The owner of an open file, which gets its signals. See F_SETOWN and F_SETSIG in fcntl(2).

use rights::Credentials;

/// A thread owns a file.
pub const F_OWNER_TID: i32 = 0;
/// A process owns it.
pub const F_OWNER_PID: i32 = 1;
/// A process group owns it.
pub const F_OWNER_PGRP: i32 = 2;

/// The owner that O_ASYNC signals, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SignalOwner {
    /// F_OWNER_TID, F_OWNER_PID or F_OWNER_PGRP.
    pub kind: i32,
    /// Identifier of that kind; 0 for none.
    pub id: i32,
    /// F_SETSIG; 0 for SIGIO.
    pub signal: i32,
    /// Real and effective user of the process that set the owner, which decide which processes it may signal.
    pub users: (u32, u32),
}

impl SignalOwner {
    /// Names an owner, as a caller with these credentials.
    pub fn set(&mut self, kind: i32, id: i32, by: &Credentials) {
        (self.kind, self.id, self.users) = (kind, id, (by.uid, by.euid));
    }

    /// True when the process that set the owner may signal one with these credentials.
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let (uid, euid) = self.users;
        euid == 0 || [target.uid, target.suid].iter().any(|&t| t == uid || t == euid)
    }
}
