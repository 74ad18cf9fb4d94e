//! Charges keys to their users, and refuses what is too much.

use crate::key::{Owner, Serial};
use crate::quota::Setting;
use crate::store::Store;
use abi::{Errno, Result};

/// Most keys of all users together, which bounds the kernel's memory and what a search looks at.
const ALL_KEYS: usize = 65_536;
/// Most bytes of all users together, a link being 4 of them.
const ALL_BYTES: u64 = 64 << 20;
/// Most links of all keyrings together.
const ALL_LINKS: usize = 262_144;

impl Store {
    pub(crate) fn setting(&self, which: Setting) -> u32 {
        self.settings.get(&which).copied().unwrap_or(0)
    }

    /// Keys and bytes that a user may have.
    pub(crate) fn limits(&self, owner: Owner) -> (u64, u64) {
        let (keys, bytes) = match owner.1 {
            0 => (Setting::RootMaxKeys, Setting::RootMaxBytes),
            _ => (Setting::MaxKeys, Setting::MaxBytes),
        };
        (self.setting(keys).into(), self.setting(bytes).into())
    }

    /// EDQUOT when a user cannot have `keys` and `bytes` more. `overrun`: only the bound of all users counts.
    pub(crate) fn room(&self, owner: Owner, keys: u64, bytes: u64, overrun: bool) -> Result<()> {
        let all = self.keys.len() as u64 + keys <= ALL_KEYS as u64 && self.totals.bytes + bytes <= ALL_BYTES;
        let user = self.users.get(&owner).copied().unwrap_or_default();
        let (most_keys, most_bytes) = self.limits(owner);
        let own = user.quota_keys + keys <= most_keys && user.quota_bytes + bytes <= most_bytes;
        if all && (own || overrun) { Ok(()) } else { Err(Errno::EDQUOT) }
    }

    /// EDQUOT when there cannot be one more link.
    pub(crate) fn room_for_link(&self) -> Result<()> {
        if self.totals.links < ALL_LINKS { Ok(()) } else { Err(Errno::EDQUOT) }
    }

    /// Counts a key as it is now, in the place of what was counted for it before.
    pub(crate) fn recount(&mut self, serial: Serial) {
        let Some(key) = self.keys.get_mut(&serial) else { return };
        let Some(before) = key.charged else { return };
        let now = key.size();
        key.charged = Some(now);
        let owner = key.owner;
        self.totals.bytes = self.totals.bytes + now - before;
        if let Some(user) = self.users.get_mut(&owner) {
            user.quota_bytes = user.quota_bytes + now - before;
        }
    }
}
