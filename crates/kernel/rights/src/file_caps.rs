//! Capabilities of program files: the attribute `security.capability`. See capabilities(7), "File capabilities".

use crate::cred::Credentials;
use abi::{Errno, Result};
use user_ns::UserNamespace;

/// Name of the attribute.
pub const XATTR: &[u8] = b"security.capability";

/// `VFS_CAP_FLAGS_EFFECTIVE`.
const EFFECTIVE: u32 = 1;

/// What the attribute says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileCaps {
    /// Capabilities that the program gets, as far as the bounding set has them.
    pub permitted: u64,
    /// Capabilities that it gets if its caller has them as inheritable.
    pub inheritable: u64,
    /// What it gets is effective at once.
    pub effective: bool,
    /// User 0 of the user namespace that it counts in; `None` for every one.
    pub root: Option<u32>,
}

impl FileCaps {
    /// Reads version 1, 2 or 3. `None` for what is none of them.
    pub fn parse(value: &[u8]) -> Option<FileCaps> {
        let (words, rest) = value.as_chunks::<4>();
        if !rest.is_empty() {
            return None;
        }
        let word = |at: usize| words.get(at).map(|w| u32::from_le_bytes(*w));
        let magic = word(0)?;
        let sets = match (magic >> 24, words.len()) {
            (1, 3) => 1,
            (2, 5) | (3, 6) => 2,
            _ => return None,
        };
        let set =
            |first: usize| (0..sets).map(|n| u64::from(word(first + 2 * n).unwrap_or(0)) << (32 * n)).sum();
        Some(FileCaps {
            permitted: set(1),
            inheritable: set(2),
            effective: magic & EFFECTIVE != 0,
            root: if magic >> 24 == 3 { word(5) } else { None },
        })
    }
}

/// The last word of version 3: user 0 of the namespace that it counts in.
const ROOT_AT: usize = 20;
const VERSION_2: u32 = 0x0200_0000;
const VERSION_3: u32 = 0x0300_0000;

fn with_version(value: &[u8], version: u32, root: Option<u32>) -> Vec<u8> {
    let magic = value.first_chunk().map_or(0, |w| u32::from_le_bytes(*w)) & 0x00ff_ffff | version;
    let sets = value.get(4..ROOT_AT).unwrap_or_default();
    let root = root.map(u32::to_le_bytes);
    [&magic.to_le_bytes()[..], sets, root.as_ref().map_or(&[], |r| &r[..])].concat()
}

/// The value that is kept of a valid attribute: user 0 by the kernel's ID, and in a user namespace always (Linux's
/// `cap_convert_nscap`). EINVAL for a user that the namespace does not have.
pub fn kept(creds: &Credentials, value: &[u8]) -> Result<Vec<u8>> {
    let caps = FileCaps::parse(value).ok_or(Errno::EINVAL)?;
    match caps.root {
        None if creds.user_ns.is_initial() => Ok(value.to_vec()),
        None if value.len() != ROOT_AT => Err(Errno::EINVAL),
        root => {
            let root = creds.user_ns.user(root.unwrap_or(0)).ok_or(Errno::EINVAL)?;
            Ok(with_version(value, VERSION_3, Some(root)))
        }
    }
}

/// The attribute as a reader sees it: without user 0 where that is the reader's own or that of a namespace around.
/// EOVERFLOW for another one.
pub fn shown(creds: &Credentials, value: Vec<u8>) -> Result<Vec<u8>> {
    let ns = &creds.user_ns;
    let caps = FileCaps::parse(&value);
    let Some(root) = caps.map(|caps| caps.root.unwrap_or(0)) else { return Ok(value) };
    match ns.user_here(root) {
        Some(0) if !ns.is_initial() || caps.is_some_and(|caps| caps.root.is_none()) => {
            Ok(with_version(&value, VERSION_2, None))
        }
        Some(id) => Ok(with_version(&value, VERSION_3, Some(id))),
        None if counts_in(ns, root) => Ok(with_version(&value, VERSION_2, None)),
        None => Err(Errno::EOVERFLOW),
    }
}

/// Whether capabilities of a file count in a namespace: this is user 0 there or in one around (rootid_owns_currentns).
pub fn counts_in(ns: &UserNamespace, root: u32) -> bool {
    std::iter::successors(Some(ns), |ns| ns.parent().map(|p| &**p)).any(|ns| ns.is_root(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn all_versions_are_read() {
        let caps = FileCaps { permitted: 2, inheritable: 4, effective: false, root: None };
        assert_eq!(FileCaps::parse(&value(&[0x0100_0000, 2, 4])), Some(caps));
        let caps = FileCaps { permitted: 1 << 32 | 2, inheritable: 4, effective: true, root: None };
        assert_eq!(FileCaps::parse(&value(&[0x0200_0001, 2, 4, 1, 0])), Some(caps));
        let caps = FileCaps { root: Some(1000), ..caps };
        assert_eq!(FileCaps::parse(&value(&[0x0300_0001, 2, 4, 1, 0, 1000])), Some(caps));
    }

    #[test]
    fn other_values_are_not() {
        for v in [
            &b"x"[..],
            &value(&[0x0200_0000, 1, 1]),
            &value(&[0x0300_0000, 1, 1, 0, 0]),
            &value(&[0x0400_0000, 1, 1]),
        ] {
            assert_eq!(FileCaps::parse(v), None);
        }
    }
}
