//! Ranges that are mapped from the file of pages of an image, after a restore.
//!
//! To the host they are private mappings of a file, while to the program they are anonymous memory, or pages of its own
//! in a mapping of another file. So the host must not be asked to drop such pages, which would bring the image's content
//! back, nor to make such a mapping longer, which would show other pages of the image. Each range is one mapping of the
//! host.

use std::collections::BTreeMap;

/// A place in a file of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Which file, as [`crate::KeptState::layer`].
    pub(crate) layer: u32,
    /// Offset there.
    pub(crate) offset: u64,
}

/// A part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where `start` lies in the image, if that is known.
    pub(crate) origin: Option<Origin>,
}

impl Piece {
    /// The part of it from `start` to `end`.
    fn part(self, start: u64, end: u64) -> Piece {
        let from = start.max(self.start);
        let origin = self.origin.map(|o| Origin { offset: o.offset + (from - self.start), ..o });
        Piece { start: from, end: end.min(self.end), origin }
    }

    /// The same pages at another address.
    pub(crate) fn at(self, start: u64) -> Piece {
        Piece { start, end: start + (self.end - self.start), ..self }
    }
}

/// The ranges by their start, none meeting another.
#[derive(Clone, Default)]
pub(crate) struct Imaged(BTreeMap<u64, Piece>);

impl Imaged {
    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one range goes on on both sides of this one.
    pub(crate) fn is_inside_one(&self, start: u64, end: u64) -> bool {
        self.0.range(..start).next_back().is_some_and(|(_, piece)| piece.end > end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One mapping more.
    pub(crate) fn add(&mut self, piece: Piece) {
        self.remove(piece.start, piece.end);
        if piece.start < piece.end {
            self.0.insert(piece.start, piece);
        }
    }

    /// Something else is mapped there.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        for met in self.within(start, end) {
            let whole = self.0.range(..=met.start).next_back().map(|(_, whole)| *whole);
            let Some(whole) = whole else { continue };
            self.0.remove(&whole.start);
            for left in [whole.part(whole.start, met.start), whole.part(met.end, whole.end)] {
                if left.start < left.end {
                    self.0.insert(left.start, left);
                }
            }
        }
    }

    /// The parts of ranges in `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> Vec<Piece> {
        let first = self.0.range(..=start).next_back().map_or(start, |(from, _)| *from);
        let met = self.0.range(first..end.max(first)).map(|(_, piece)| *piece);
        let met = met.filter(|piece| piece.end > start).map(|piece| piece.part(start, end));
        met.filter(|piece| piece.start < piece.end).collect()
    }

    /// All of `start..end` in parts: those of the host's mappings of the image, and `None` between them.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> Vec<(u64, u64, Option<Piece>)> {
        let mut pieces = Vec::new();
        let mut at = start;
        for piece in self.within(start, end) {
            if at < piece.start {
                pieces.push((at, piece.start, None));
            }
            pieces.push((piece.start, piece.end, Some(piece)));
            at = piece.end;
        }
        if at < end {
            pieces.push((at, end, None));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64) -> Piece {
        Piece { start, end, origin: Some(Origin { layer: 0, offset: start + 1000 }) }
    }

    #[test]
    fn ranges_are_cut_and_keep_their_borders() {
        let mut i = Imaged::default();
        i.add(piece(10, 20));
        i.add(piece(20, 30));
        assert_eq!(i.within(0, 100), [piece(10, 20), piece(20, 30)]);
        i.remove(15, 17);
        assert_eq!(i.within(0, 100), [piece(10, 15), piece(17, 20), piece(20, 30)]);
        assert_eq!(i.within(18, 21), [piece(18, 20), piece(20, 21)]);
        let of = |start, end| (start, end, Some(piece(start, end)));
        assert_eq!(i.pieces(12, 40), [of(12, 15), (15, 17, None), of(17, 20), of(20, 30), (30, 40, None)]);
        i.remove(0, 25);
        assert_eq!(i.within(0, 100), [piece(25, 30)]);
        i.remove(30, 40);
        i.remove(0, 25);
        assert_eq!(i.within(0, 100), [piece(25, 30)]);
        i.add(Piece { start: 26, end: 27, origin: None });
        assert_eq!(
            i.within(0, 100),
            [piece(25, 26), Piece { start: 26, end: 27, origin: None }, piece(27, 30)]
        );
        i.remove(25, 30);
        assert!(i.is_empty());
        assert_eq!(i.pieces(1, 2), [(1, 2, None)]);
        assert_eq!(
            piece(5, 7).at(50).part(51, 60),
            Piece { start: 51, end: 52, origin: Some(Origin { layer: 0, offset: 1006 }) }
        );
    }
}
