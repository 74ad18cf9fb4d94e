//! Names of interfaces, and patterns of names. Pure.

use abi::{Errno, Result};

/// Bytes of a name with its zero byte (IFNAMSIZ).
pub(crate) const SIZE: usize = 16;
/// Numbers that a pattern tries.
const MOST: u32 = 8 * 4096;

/// The name that `wanted` stands for: itself, or for a pattern with one `%d` the first that is free.
pub(crate) fn choose(wanted: &str, taken: impl Fn(&str) -> bool) -> Result<String> {
    if !valid(wanted) {
        return Err(Errno::EINVAL);
    }
    let Some((before, after)) = wanted.split_once('%') else {
        return if taken(wanted) { Err(Errno::EEXIST) } else { Ok(wanted.to_owned()) };
    };
    let after = after.strip_prefix('d').filter(|rest| !rest.contains('%')).ok_or(Errno::EINVAL)?;
    let mut names = (0..MOST).map(|number| format!("{before}{number}{after}"));
    names.find(|name| name.len() < SIZE && !taken(name)).ok_or(Errno::ENFILE)
}

/// Whether an interface may have this name.
pub(crate) fn valid(name: &str) -> bool {
    let odd = |b: u8| b == b'/' || b == b':' || b.is_ascii_whitespace() || b == 0x0b;
    !name.is_empty() && name.len() < SIZE && name != "." && name != ".." && !name.bytes().any(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_names() {
        let taken = |name: &str| ["tun0", "tun1", "eth0"].contains(&name);
        assert_eq!(choose("tun%d", taken).as_deref(), Ok("tun2"));
        assert_eq!(choose("a%db", taken).as_deref(), Ok("a0b"));
        assert_eq!(choose("vpn", taken).as_deref(), Ok("vpn"));
        assert_eq!(choose("eth0", taken), Err(Errno::EEXIST));
        for bad in ["", ".", "..", "a/b", "a:b", "a b", "%s", "%", "%d%d", "0123456789abcdef"] {
            assert_eq!(choose(bad, taken), Err(Errno::EINVAL), "{bad:?}");
        }
    }
}
