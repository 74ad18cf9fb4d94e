//! What users have, and the settings of /proc/sys/kernel/keys. The module `charge` counts and refuses.

use crate::key::Serial;
use std::collections::BTreeMap;

/// A file of /proc/sys/kernel/keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Setting {
    /// Seconds until a key that has expired or was revoked goes.
    GcDelay,
    /// Keys of a user.
    MaxKeys,
    /// Bytes of a user.
    MaxBytes,
    /// Keys of user 0.
    RootMaxKeys,
    /// Bytes of user 0.
    RootMaxBytes,
    /// Seconds that a persistent keyring lives without use.
    PersistentExpiry,
}

impl Setting {
    /// Each with its name and first value.
    pub const ALL: [(Setting, &'static str, u32); 6] = [
        (Setting::GcDelay, "gc_delay", 300),
        (Setting::MaxBytes, "maxbytes", 20_000),
        (Setting::MaxKeys, "maxkeys", 200),
        (Setting::PersistentExpiry, "persistent_keyring_expiry", 259_200),
        (Setting::RootMaxBytes, "root_maxbytes", 25_000_000),
        (Setting::RootMaxKeys, "root_maxkeys", 1_000_000),
    ];
}

/// What one user has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct User {
    /// Keys, those included that do not count for the quota.
    pub(crate) keys: u64,
    pub(crate) quota_keys: u64,
    pub(crate) quota_bytes: u64,
    /// `_uid.N` and `_uid_ses.N`.
    pub(crate) ring: Option<Serial>,
    pub(crate) session: Option<Serial>,
    pub(crate) persistent: Option<Serial>,
}

/// Sums over all users.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) bytes: u64,
    pub(crate) links: usize,
}

pub(crate) fn defaults() -> BTreeMap<Setting, u32> {
    Setting::ALL.into_iter().map(|(setting, _, value)| (setting, value)).collect()
}
