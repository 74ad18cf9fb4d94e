//! Sets of processors, as sched_setaffinity(2) and the files of /proc and /sys have them.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

const WORDS: usize = 16;

/// A set of processors with numbers below [`CpuMask::MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuMask([u64; WORDS]);

impl CpuMask {
    /// Numbers are below this.
    pub const MOST: usize = WORDS * 64;
    /// Every processor that there can be.
    pub const ALL: CpuMask = CpuMask([u64::MAX; WORDS]);

    /// The processor with this number; an empty set for one that there cannot be.
    pub fn one(processor: usize) -> CpuMask {
        [processor].into_iter().collect()
    }

    /// The first `count` processors.
    pub fn first(count: usize) -> CpuMask {
        (0..count.min(CpuMask::MOST)).collect()
    }

    /// From the bytes of a `cpu_set_t` of any length; what is beyond the set is dropped.
    pub fn from_bytes(bytes: &[u8]) -> CpuMask {
        let mut mask = CpuMask::default();
        for (word, part) in mask.0.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            *word = u64::from_le_bytes(whole);
        }
        mask
    }

    /// As the bytes of a `cpu_set_t`.
    pub fn to_bytes(&self) -> [u8; WORDS * 8] {
        let mut bytes = [0; WORDS * 8];
        for (to, word) in bytes.chunks_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From a list such as `0-3,6`; nothing for an empty or a malformed one.
    pub fn parse_list(list: &str) -> Option<CpuMask> {
        let mut mask = CpuMask::default();
        for range in list.trim().split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= CpuMask::MOST {
                return None;
            }
            (first..=last).for_each(|processor| mask.insert(processor));
        }
        Some(mask)
    }

    fn insert(&mut self, processor: usize) {
        if let Some(word) = self.0.get_mut(processor / 64) {
            *word |= 1 << (processor % 64);
        }
    }

    /// Whether it has this processor.
    pub fn contains(&self, processor: usize) -> bool {
        self.0.get(processor / 64).is_some_and(|word| word >> (processor % 64) & 1 == 1)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        *self == CpuMask::default()
    }

    /// What both have.
    pub fn and(&self, other: &CpuMask) -> CpuMask {
        CpuMask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The numbers, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CpuMask::MOST).filter(|processor| self.contains(*processor))
    }

    /// One more than the highest number (Linux's `nr_cpu_ids`).
    pub fn width(&self) -> usize {
        let last = self.0.iter().rposition(|word| *word != 0);
        last.map_or(0, |i| (i + 1) * 64 - self.0[i].leading_zeros() as usize)
    }

    /// As the kernel's `%*pb` prints it: `width` bits, in groups of 32.
    pub fn words(&self, width: usize) -> String {
        let mut out = String::new();
        let words = width.div_ceil(32).max(1);
        for i in (0..words).rev() {
            let word = self.0.get(i / 2).map_or(0, |both| (both >> (32 * (i % 2))) as u32);
            let bits = if i + 1 == words && !width.is_multiple_of(32) { width % 32 } else { 32 };
            let _ = write!(out, "{word:0n$x}", n = bits.div_ceil(4).max(1));
            if i > 0 {
                out.push(',');
            }
        }
        out
    }

    /// As the kernel's `%*pbl` prints it: `0-3,6`.
    pub fn list(&self) -> String {
        let mut out = String::new();
        let mut numbers = self.iter().peekable();
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| *next == last + 1) {
                last = next;
            }
            if !out.is_empty() {
                out.push(',');
            }
            let _ = if first == last { write!(out, "{first}") } else { write!(out, "{first}-{last}") };
        }
        out
    }
}

impl FromIterator<usize> for CpuMask {
    fn from_iter<T: IntoIterator<Item = usize>>(numbers: T) -> CpuMask {
        let mut mask = CpuMask::default();
        numbers.into_iter().for_each(|processor| mask.insert(processor));
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_kernel_prints_them() {
        let of = |numbers: &[usize]| numbers.iter().copied().collect::<CpuMask>();
        assert_eq!(CpuMask::first(2).words(2), "3");
        assert_eq!(CpuMask::first(8).words(12), "0ff");
        assert_eq!(CpuMask::one(0).words(64), "00000000,00000001");
        assert_eq!(CpuMask::one(97).words(100), "2,00000000,00000000,00000000");
        assert_eq!(CpuMask::one(0).words(1024).len(), 32 * 9 - 1);
        assert_eq!(of(&[0, 1, 2, 4, 5, 7]).list(), "0-2,4-5,7");
        assert_eq!(of(&[63, 64, 1023]).list(), "63-64,1023");
        assert_eq!(CpuMask::ALL.list(), "0-1023");
        assert_eq!(CpuMask::default().list(), "");
    }

    #[test]
    fn lists() {
        let of = |list| CpuMask::parse_list(list).map(|mask| (mask.count(), mask.width()));
        assert_eq!((of("0"), of("0-2,5\n"), of("1,3")), (Some((1, 1)), Some((4, 6)), Some((2, 4))));
        assert_eq!((of("\n"), of("3-1"), of("1024"), of("0-18446744073709551615")), (None, None, None, None));
        assert_eq!(of("100-131"), Some((32, 132)));
    }

    #[test]
    fn bytes() {
        let mask = CpuMask::parse_list("1,9,64,1023").unwrap();
        assert_eq!(CpuMask::from_bytes(&mask.to_bytes()), mask);
        assert_eq!(CpuMask::from_bytes(&[2, 2]), CpuMask::parse_list("1,9").unwrap());
        assert_eq!(CpuMask::from_bytes(&[0xff; 4096]), CpuMask::ALL);
        assert_eq!((CpuMask::one(1024), CpuMask::first(usize::MAX)), (CpuMask::default(), CpuMask::ALL));
    }
}
