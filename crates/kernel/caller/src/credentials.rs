//! Credentials of the caller.

use rights::Creds;

/// A caller with credentials, by which access is judged.
pub trait HasCredentials {
    /// Credentials for permission checks (fsuid, fsgid, groups, capabilities).
    fn creds(&self) -> Creds;
    /// File mode creation mask.
    fn umask(&self) -> u32;
}
