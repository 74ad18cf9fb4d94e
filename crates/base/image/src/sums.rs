//! Checksums of the file of pages, one CRC-32 for each page.
//!
//! A page that is read into memory is compared. Pages that are mapped are not read, so nothing compares them; see
//! [`Sums::check`]. The sums are against accidents: they do not make a hostile image harmless, and need not, because an
//! image's memory is as free to be anything as a program's.

use crate::{PAGE, is_zero};

/// Most pages of a file (64 TiB); more are not noted.
const MOST: u64 = 1 << 34;

/// One checksum for each page. That of a hole is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(Vec<u32>);

impl Sums {
    /// Those of some whole pages.
    pub fn of(pages: &[u8]) -> Sums {
        let sum = |page: &[u8]| if is_zero(page) { 0 } else { crc32fast::hash(page) };
        Sums(pages.chunks(PAGE as usize).map(sum).collect())
    }

    /// Notes those of pages that were written at an offset.
    pub fn note(&mut self, offset: u64, written: Sums) {
        let first = offset / PAGE;
        if first + written.0.len() as u64 > MOST {
            return;
        }
        let (first, end) = (first as usize, first as usize + written.0.len());
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        if let Some(to) = self.0.get_mut(first..end) {
            to.copy_from_slice(&written.0);
        }
    }

    /// Whether whole pages of an offset are what was written.
    pub fn check(&self, offset: u64, pages: &[u8]) -> bool {
        let first = offset / PAGE;
        pages.chunks(PAGE as usize).enumerate().all(|(i, page)| {
            let noted = usize::try_from(first + i as u64).ok().and_then(|at| self.0.get(at));
            match noted.copied().unwrap_or(0) {
                0 => is_zero(page) || crc32fast::hash(page) == 0 && noted.is_some(),
                sum => crc32fast::hash(page) == sum,
            }
        })
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|sum| sum.to_le_bytes()).collect()
    }

    /// From bytes; those of an unfinished sum are dropped.
    pub fn from_bytes(bytes: &[u8]) -> Sums {
        Sums(bytes.as_chunks().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_page_is_noticed() {
        let mut sums = Sums::default();
        let mut pages = vec![0; 3 * PAGE as usize];
        pages[5] = 1;
        pages[2 * PAGE as usize] = 2;
        sums.note(4 * PAGE, Sums::of(&pages));
        let sums = Sums::from_bytes(&sums.to_bytes());
        assert!(sums.check(4 * PAGE, &pages));
        assert!(sums.check(0, &[0; 4 * PAGE as usize]) && sums.check(100 * PAGE, &[0; PAGE as usize]));
        for at in [0, 5, PAGE as usize, 3 * PAGE as usize - 1] {
            let mut other = pages.clone();
            other[at] ^= 0x40;
            assert!(!sums.check(4 * PAGE, &other), "byte {at}");
        }
        assert!(!sums.check(5 * PAGE, &pages));
        assert!(!sums.check(100 * PAGE, &[1; PAGE as usize]));
    }
}
