//! The Internet checksum (RFC 1071).

use std::net::IpAddr;

/// A running one's-complement sum over 16-bit words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    total: u64,
    /// True after an odd number of bytes.
    odd: bool,
}

impl Sum {
    /// Nothing summed yet.
    pub fn new() -> Sum {
        Sum::default()
    }

    /// Adds bytes; they follow the bytes that were added before.
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Sum {
        let mut part = sum_words(bytes);
        if self.odd {
            part = u64::from((fold(part)).swap_bytes());
        }
        self.total += u64::from(fold(part));
        self.odd ^= bytes.len() % 2 == 1;
        self
    }

    /// Adds the pseudo header of TCP, UDP and ICMPv6 (RFC 9293 section 3.1, RFC 8200 section 8.1).
    #[must_use]
    pub fn pseudo(self, src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> Sum {
        let len = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
        self.address(src).address(dst).with(&len).with(&[0, protocol])
    }

    fn address(self, address: IpAddr) -> Sum {
        match address {
            IpAddr::V4(v4) => self.with(&v4.octets()),
            IpAddr::V6(v6) => self.with(&v6.octets()),
        }
    }

    /// The folded sum, not complemented: what a device expects in the checksum field before it adds the payload.
    pub fn partial(self) -> u16 {
        fold(self.total)
    }

    /// The checksum to store.
    pub fn finish(self) -> u16 {
        !fold(self.total)
    }

    /// True when the sum covers its own checksum and is right.
    pub fn is_valid(self) -> bool {
        fold(self.total) == 0xffff
    }
}

/// Sums big-endian words without folding; at most 2^32 words, so it does not overflow.
fn sum_words(bytes: &[u8]) -> u64 {
    let (mut carry, mut acc) = (0u64, 0u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_ne_bytes(chunk.try_into().unwrap_or_default());
        let (sum, over) = acc.overflowing_add(word);
        acc = sum;
        carry += u64::from(over);
    }
    let mut last = [0; 8];
    let rest = chunks.remainder();
    last[..rest.len()].copy_from_slice(rest);
    let (sum, over) = acc.overflowing_add(u64::from_ne_bytes(last));
    let total = u64::from(fold(sum)) + carry + u64::from(over);
    // The sum does not depend on the byte order except for its own.
    u64::from(fold(total).to_be())
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn slow(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|c| u64::from(c[0]) << 8 | u64::from(*c.get(1).unwrap_or(&0)));
        !fold(words.sum())
    }

    #[test]
    fn equals_the_definition() {
        let mut random = Random::new(3);
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            assert_eq!(Sum::new().with(&bytes).finish(), slow(&bytes));
            for cut in 0..len {
                let (a, b) = bytes.split_at(cut);
                assert_eq!(Sum::new().with(a).with(b).finish(), slow(&bytes), "{cut} of {len}");
            }
        }
        assert_eq!(Sum::new().with(&[0xff; 64]).finish(), 0);
    }
}
