//! Keeping Internet checksums right when bytes change (RFC 1624).

/// The field after `old` was replaced by `new` in what it sums; both have an even length and an even place.
pub(crate) fn updated(field: u16, old: &[u8], new: &[u8]) -> u16 {
    !added(!field, old, new)
}

/// The same for a field that holds a sum that is not complemented.
pub(crate) fn added(sum: u16, old: &[u8], new: &[u8]) -> u16 {
    let words = |bytes: &[u8]| {
        let words = bytes.chunks(2);
        let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        words
            .map(word)
            .map(|word| (u64::from(!word), u64::from(word)))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    let mut total = u64::from(sum) + words(old).0 + words(new).1;
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use netstack::checksum::Sum;

    #[test]
    fn updates_equal_new_sums() {
        let mut bytes = [0x45, 0, 0, 60, 1, 2, 0x40, 0, 64, 6, 10, 0, 0, 1, 10, 0, 0, 2];
        for n in 0..200_u16 {
            let before = Sum::new().with(&bytes).finish();
            let new = n.wrapping_mul(7919).to_be_bytes();
            let place = usize::from(n % 9) * 2;
            let old = [bytes[place], bytes[place + 1]];
            bytes[place..place + 2].copy_from_slice(&new);
            assert_eq!(updated(before, &old, &new), Sum::new().with(&bytes).finish());
        }
    }
}
