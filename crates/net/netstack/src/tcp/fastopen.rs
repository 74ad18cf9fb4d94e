//! Fast Open (RFC 7413): the cookies that this side gives, and those that it got.
//!
//! A cookie is a keyed hash of both addresses. Servers that share the key accept each other's cookies; the second key is the one
//! before the last change. Lock: the keys are a leaf. A checkpoint keeps the keys.

use super::table::Tuple;
use crate::wire::tcp::Cookie;
use abi::Errno;
use lock_order::RwLock;
use siphasher::sip::SipHasher24;
use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;

/// Bytes of a key.
const KEY: usize = 16;

/// The keys of a stack (`tcp_fastopen_key`): the first makes cookies, all are accepted.
#[derive(Debug)]
pub struct FastOpenKeys(RwLock<(Key, Option<Key>)>);

type Key = [u8; KEY];

impl FastOpenKeys {
    /// One secret key.
    pub(crate) fn new(key: Key) -> FastOpenKeys {
        FastOpenKeys(RwLock::new((key, None)))
    }

    /// Sets one key or two: four hexadecimal words each, between hyphens; `EINVAL` for anything else.
    pub fn set(&self, text: &str) -> Result<(), Errno> {
        let mut keys = text.split(',').map(read_key);
        let first = keys.next().flatten().ok_or(Errno::EINVAL)?;
        let second = keys.next().map(|key| key.ok_or(Errno::EINVAL)).transpose()?;
        if keys.next().is_some() {
            return Err(Errno::EINVAL);
        }
        *self.0.write() = (first, second);
        Ok(())
    }

    /// The cookie for a client.
    pub(crate) fn cookie(&self, tuple: &Tuple) -> Option<Cookie> {
        cookie(&self.0.read().0, tuple)
    }

    /// Whether a client's cookie is valid, and whether the client should get a new one.
    pub(crate) fn judge(&self, tuple: &Tuple, offered: &Cookie) -> (bool, bool) {
        let keys = self.0.read();
        let is = |key: &Key| cookie(key, tuple).is_some_and(|own| own.as_slice() == offered.as_slice());
        if is(&keys.0) {
            return (true, false);
        }
        let old = keys.1.as_ref().is_some_and(is);
        (old, old)
    }
}

impl fmt::Display for FastOpenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.read();
        let show = |f: &mut fmt::Formatter<'_>, key: &Key| {
            let (words, _) = key.as_chunks::<4>();
            for (n, word) in words.iter().enumerate() {
                write!(f, "{}{:08x}", if n == 0 { "" } else { "-" }, u32::from_le_bytes(*word))?;
            }
            Ok(())
        };
        show(f, &keys.0)?;
        match &keys.1 {
            Some(second) => {
                write!(f, ",")?;
                show(f, second)
            }
            None => Ok(()),
        }
    }
}

fn read_key(text: &str) -> Option<Key> {
    let mut key = [0; KEY];
    let mut words = text.split('-');
    for place in key.as_chunks_mut::<4>().0 {
        let word = words.next().filter(|word| (1..=8).contains(&word.len()))?;
        *place = u32::from_str_radix(word, 16).ok()?.to_le_bytes();
    }
    words.next().is_none().then_some(key)
}

/// The hash of the client's address and the server's.
fn cookie(key: &Key, tuple: &Tuple) -> Option<Cookie> {
    let mut hasher = SipHasher24::new_with_key(key);
    for ip in [tuple.1.ip(), tuple.0.ip()] {
        match ip {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
    }
    Cookie::new(&hasher.finish().to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_they_were_set() {
        let keys = FastOpenKeys::new([0; KEY]);
        assert_eq!(keys.to_string(), "00000000-00000000-00000000-00000000");
        keys.set("1-02-abc-DEADBEEF").unwrap();
        assert_eq!(keys.to_string(), "00000001-00000002-00000abc-deadbeef");
        keys.set("1-2-3-4,5-6-7-8").unwrap();
        assert_eq!(
            keys.to_string(),
            "00000001-00000002-00000003-00000004,00000005-00000006-00000007-00000008"
        );
        for bad in
            ["", "1-2-3", "1-2-3-4-5", "1-2-3-g", "1-2-3-123456789", "1-2-3-4,", "1-2-3-4,1-2-3-4,1-2-3-4"]
        {
            assert_eq!(keys.set(bad), Err(Errno::EINVAL), "{bad:?}");
        }
    }

    #[test]
    fn cookies_of_both_keys_are_valid() {
        let keys = FastOpenKeys::new([7; KEY]);
        let tuple = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:1234".parse().unwrap());
        let old = keys.cookie(&tuple).unwrap();
        assert_eq!(keys.judge(&tuple, &old), (true, false));
        let shown = keys.to_string();
        keys.set(&format!("1-2-3-4,{shown}")).unwrap();
        assert_eq!(keys.judge(&tuple, &old), (true, true));
        assert_eq!(keys.judge(&tuple, &keys.cookie(&tuple).unwrap()), (true, false));
        keys.set("1-2-3-4").unwrap();
        assert_eq!(keys.judge(&tuple, &old), (false, false));
    }
}
