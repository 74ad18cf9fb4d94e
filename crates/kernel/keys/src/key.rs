//! One key.

use abi::{Errno, Result};
use ktime::Ktime;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use user_ns::{OVERFLOW, UserNamespace};

/// The number that programs know a key by.
pub type Serial = i32;

/// Longest description with its NUL.
pub const DESCRIPTION_MAX: usize = 4096;
/// Longest payload that add_key(2) takes.
pub const PAYLOAD_MAX: usize = (1 << 20) - 1;
/// Longest payload of a key of type `user` or `logon`.
const USER_MAX: usize = 32767;

/// Permissions as keyctl_setperm(3) has them; shifted by 24 for the possessor, by 16 for the user, by 8 for the group.
pub(crate) mod need {
    pub(crate) const VIEW: u32 = 1;
    pub(crate) const READ: u32 = 2;
    pub(crate) const WRITE: u32 = 4;
    pub(crate) const SEARCH: u32 = 8;
    pub(crate) const LINK: u32 = 0x10;
    pub(crate) const SETATTR: u32 = 0x20;
    pub(crate) const ALL: u32 = 0x3f;
}

/// Type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// `user`: bytes.
    User,
    /// `logon`: bytes that cannot be read.
    Logon,
    /// `big_key`: up to a mebibyte.
    BigKey,
    /// `keyring`: links to keys.
    Keyring,
}

impl Kind {
    /// By name, if programs may name it.
    pub fn of(name: &[u8]) -> Option<Kind> {
        match name {
            b"user" => Some(Kind::User),
            b"logon" => Some(Kind::Logon),
            b"big_key" => Some(Kind::BigKey),
            b"keyring" => Some(Kind::Keyring),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Logon => "logon",
            Kind::BigKey => "big_key",
            Kind::Keyring => "keyring",
        }
    }

    /// EINVAL for a payload that a key of this type cannot have.
    pub(crate) fn check_payload(self, payload: &[u8]) -> Result<()> {
        let fits = match self {
            Kind::User | Kind::Logon => (1..=USER_MAX).contains(&payload.len()),
            Kind::BigKey => (1..=PAYLOAD_MAX).contains(&payload.len()),
            Kind::Keyring => payload.is_empty(),
        };
        if fits { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// EINVAL for a description that a key of this type cannot have.
    pub(crate) fn check_description(self, text: &[u8]) -> Result<()> {
        let prefixed = || text.iter().position(|b| *b == b':').is_some_and(|at| at > 0);
        if self == Kind::Logon && !prefixed() { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// It can be given another payload.
    pub(crate) fn updates(self) -> bool {
        matches!(self, Kind::User | Kind::Logon | Kind::BigKey)
    }

    /// It can be read.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Kind::User | Kind::BigKey | Kind::Keyring)
    }

    /// The permissions of a key that add_key(2) makes.
    pub(crate) fn default_permissions(self) -> u32 {
        let mut possessor = need::VIEW | need::SEARCH | need::LINK | need::SETATTR;
        if self.reads() {
            possessor |= need::READ;
        }
        if self == Kind::Keyring || self.updates() {
            possessor |= need::WRITE;
        }
        possessor << 24 | need::VIEW << 16
    }
}

/// The owner of the quota that a key takes from: user namespace and user.
pub(crate) type Owner = (u64, u32);

/// What a keyring is indexed by. All links to a key share its description.
pub(crate) type Index = (Kind, Arc<[u8]>);

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Bytes(Vec<u8>),
    Links(BTreeMap<Index, Serial>),
    /// Asked for and not there: the error that it answers.
    Negative(Errno),
}

/// A key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) description: Arc<[u8]>,
    pub(crate) payload: Payload,
    /// User namespace and user.
    pub(crate) owner: Owner,
    /// `None`: no group.
    pub(crate) gid: Option<u32>,
    pub(crate) permissions: u32,
    pub(crate) expiry: Option<Ktime>,
    /// When it was revoked.
    pub(crate) revoked: Option<Ktime>,
    /// Unlinked everywhere: it is as if it were not there.
    pub(crate) invalid: bool,
    /// Links and holders that keep it.
    pub(crate) references: usize,
    /// Bytes that count for the quota; `None`: it does not count.
    pub(crate) charged: Option<u64>,
    /// A name that KEYCTL_JOIN_SESSION_KEYRING finds.
    pub(crate) joinable: bool,
    /// The keyring of a user, `_uid.N` or `_uid_ses.N`.
    pub(crate) of_user: bool,
    /// Nothing may be linked to it any more.
    pub(crate) restricted: bool,
}

impl Key {
    pub(crate) fn index(&self) -> Index {
        (self.kind, self.description.clone())
    }

    /// Its links; ENOTDIR when it is no keyring.
    pub(crate) fn links(&self) -> Result<&BTreeMap<Index, Serial>> {
        match &self.payload {
            Payload::Links(links) => Ok(links),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// User and group as a user namespace shows them.
    pub(crate) fn shown_owner(&self, ns: &UserNamespace) -> (u32, u32) {
        (ns.show_user(self.owner.1), self.gid.map_or(OVERFLOW, |gid| ns.show_group(gid)))
    }

    /// The keyrings among its links.
    pub(crate) fn keyrings(&self) -> Result<impl Iterator<Item = Serial>> {
        let first = Bound::Included((Kind::Keyring, Arc::from([])));
        Ok(self.links()?.range((first, Bound::Unbounded)).map(|(_, serial)| *serial))
    }

    pub(crate) fn links_mut(&mut self) -> Result<&mut BTreeMap<Index, Serial>> {
        match &mut self.payload {
            Payload::Links(links) => Ok(links),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn expired(&self, now: Ktime) -> bool {
        self.expiry.is_some_and(|end| end <= now)
    }

    /// EKEYREVOKED or EKEYEXPIRED when it cannot be used any more.
    pub(crate) fn validate(&self, now: Ktime) -> Result<()> {
        if self.invalid {
            return Err(Errno::ENOKEY);
        }
        if self.revoked.is_some() {
            return Err(Errno::EKEYREVOKED);
        }
        if self.expired(now) { Err(Errno::EKEYEXPIRED) } else { Ok(()) }
    }

    /// As `validate`, and the error of a negative key.
    pub(crate) fn usable(&self, now: Ktime) -> Result<()> {
        if let Payload::Negative(e) = self.payload {
            return Err(e);
        }
        self.validate(now)
    }

    /// Bytes that it takes from the quota: its description with the NUL, and its payload, of a link 4 bytes.
    pub(crate) fn size(&self) -> u64 {
        let payload = match &self.payload {
            Payload::Bytes(b) => b.len(),
            Payload::Links(l) => l.len() * 4,
            Payload::Negative(_) => 0,
        };
        (self.description.len() + 1 + payload) as u64
    }
}
