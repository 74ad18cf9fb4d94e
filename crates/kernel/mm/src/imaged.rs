//! Ranges that are mapped from the file of pages of an image, after a restore.
//!
//! To the host they are private mappings of a file, while to the program they are anonymous memory, or pages of its own
//! in a mapping of another file. So the host must not be asked to drop such pages, which would bring the image's content
//! back, nor to make such a mapping longer, which would show other pages of the image. Each range is one mapping of the
//! host.

use std::collections::BTreeMap;

/// The ranges, none meeting another: start and end.
#[derive(Clone, Default)]
pub(crate) struct Imaged(BTreeMap<u64, u64>);

impl Imaged {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One mapping more.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        self.remove(start, end);
        if start < end {
            self.0.insert(start, end);
        }
    }

    /// Something else is mapped there.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        for (a, b) in self.within(start, end) {
            let from = self.0.range(..=a).next_back().map_or(a, |(from, _)| *from);
            let Some(to) = self.0.remove(&from) else { continue };
            if from < a {
                self.0.insert(from, a);
            }
            if b < to {
                self.0.insert(b, to);
            }
        }
    }

    /// The parts of ranges in `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let first = self.0.range(..=start).next_back().map_or(start, |(from, _)| *from);
        let met = self.0.range(first..end.max(first)).filter(|(_, to)| **to > start);
        met.map(|(from, to)| ((*from).max(start), (*to).min(end))).filter(|(a, b)| a < b).collect()
    }

    /// All of `start..end` in pieces: which are the host's mappings of the image, and which are between them.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> Vec<(u64, u64, bool)> {
        let mut pieces = Vec::new();
        let mut at = start;
        for (a, b) in self.within(start, end) {
            if at < a {
                pieces.push((at, a, false));
            }
            pieces.push((a, b, true));
            at = b;
        }
        if at < end {
            pieces.push((at, end, false));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_and_keep_their_borders() {
        let mut i = Imaged::default();
        i.add(10, 20);
        i.add(20, 30);
        assert_eq!(i.within(0, 100), [(10, 20), (20, 30)]);
        i.remove(15, 17);
        assert_eq!(i.within(0, 100), [(10, 15), (17, 20), (20, 30)]);
        assert_eq!(i.within(18, 21), [(18, 20), (20, 21)]);
        assert_eq!(
            i.pieces(12, 40),
            [(12, 15, true), (15, 17, false), (17, 20, true), (20, 30, true), (30, 40, false)]
        );
        i.remove(0, 25);
        assert_eq!(i.within(0, 100), [(25, 30)]);
        i.remove(30, 40);
        i.remove(0, 25);
        assert_eq!(i.within(0, 100), [(25, 30)]);
        i.remove(25, 30);
        assert!(i.is_empty());
        assert_eq!(i.pieces(1, 2), [(1, 2, false)]);
    }
}
