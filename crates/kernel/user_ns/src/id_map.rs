//! Maps of user, group and project IDs: /proc/PID/uid_map, gid_map and projid_map.

use abi::{Errno, Result};

/// Most lines of a map (UID_GID_MAP_MAX_EXTENTS).
const MOST: usize = 340;

/// What an ID is shown as that has none in a namespace (/proc/sys/kernel/overflowuid and overflowgid).
pub const OVERFLOW: u32 = 65534;

/// A range of IDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First ID in the namespace.
    pub first: u32,
    /// First ID outside: what it is called in the parent while the map is read, in the initial namespace once it is set.
    pub lower: u32,
    /// How many.
    pub count: u32,
}

impl Extent {
    /// All IDs as they are: the initial namespace's map.
    const ALL: Extent = Extent { first: 0, lower: 0, count: u32::MAX };

    fn moved(id: u32, count: u32, from: u32, to: u32, of: u32) -> Option<u32> {
        let offset = id.checked_sub(from)?;
        // The range may have been cut at 2^32 already, so no sum is out of range.
        (u64::from(offset) + u64::from(count) <= u64::from(of)).then(|| to.wrapping_add(offset))
    }

    /// Whether it has IDs, none of which is the -1 that stands for no ID.
    fn fits(&self) -> bool {
        let fits =
            |first: u32| first != u32::MAX && first.checked_add(self.count).is_some_and(|end| end > first);
        fits(self.first) && fits(self.lower)
    }

    fn overlaps(&self, other: &Extent) -> bool {
        let cut = |a: u32, b: u32| {
            u64::from(a) < u64::from(b) + u64::from(other.count)
                && u64::from(b) < u64::from(a) + u64::from(self.count)
        };
        cut(self.first, other.first) || cut(self.lower, other.lower)
    }
}

/// The IDs of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdMap(Vec<Extent>);

impl IdMap {
    /// The initial namespace's.
    pub(crate) fn all() -> IdMap {
        IdMap(vec![Extent::ALL])
    }

    /// Reads what is written to a map: lines of three numbers. EINVAL for anything else, and for ranges that overlap.
    pub fn parse(text: &[u8]) -> Result<IdMap> {
        let mut extents: Vec<Extent> = Vec::new();
        let text = text.split(|&b| b == 0).next().unwrap_or_default();
        let lines = text.strip_suffix(b"\n").unwrap_or(text);
        for line in lines.split(|&b| b == b'\n') {
            let new = extent(line).ok_or(Errno::EINVAL)?;
            if extents.len() == MOST || extents.iter().any(|old| old.overlaps(&new)) {
                return Err(Errno::EINVAL);
            }
            extents.push(new);
        }
        Ok(IdMap(extents))
    }

    /// A map out of ranges that may be anything; `None` where it could not have been set.
    pub(crate) fn restore(extents: Vec<Extent>) -> Option<IdMap> {
        let apart =
            |(at, one): (usize, &Extent)| !extents.iter().skip(at + 1).any(|other| other.overlaps(one));
        let sound = (1..=MOST).contains(&extents.len())
            && extents.iter().all(Extent::fits)
            && extents.iter().enumerate().all(apart);
        sound.then_some(IdMap(extents))
    }

    /// Whether all that it leads to is in the map of the namespace around.
    pub(crate) fn lies_within(&self, parent: &IdMap) -> bool {
        let has = |e: &Extent| {
            parent.0.iter().any(|p| Extent::moved(e.lower, e.count, p.lower, p.first, p.count).is_some())
        };
        self.0.iter().all(has)
    }

    /// The ranges.
    pub fn extents(&self) -> &[Extent] {
        &self.0
    }

    /// The same with what lies outside translated by the parent's map. EPERM where the parent does not have it.
    pub(crate) fn below(&self, parent: &IdMap) -> Result<IdMap> {
        let below = |e: &Extent| {
            let lower = parent.down_range(e.lower, e.count).ok_or(Errno::EPERM)?;
            Ok(Extent { lower, ..*e })
        };
        self.0.iter().map(below).collect::<Result<_>>().map(IdMap)
    }

    fn down_range(&self, id: u32, count: u32) -> Option<u32> {
        self.0.iter().find_map(|e| Extent::moved(id, count, e.first, e.lower, e.count))
    }

    /// What an ID of the namespace is in the initial one.
    pub(crate) fn down(&self, id: u32) -> Option<u32> {
        self.down_range(id, 1)
    }

    /// What an ID of the initial namespace is called here.
    pub(crate) fn up(&self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|e| Extent::moved(id, 1, e.lower, e.first, e.count))
    }
}

/// One line. As in Linux, numbers may be of any base that C knows.
fn extent(line: &[u8]) -> Option<Extent> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace().map(number);
    let extent = Extent { first: words.next()??, lower: words.next()??, count: words.next()?? };
    (words.next().is_none() && extent.fits()).then_some(extent)
}

fn number(word: &str) -> Option<u32> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (&word[2..], 16),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    if digits.starts_with('+') { None } else { u32::from_str_radix(digits, radix).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let map = IdMap::parse(b"0 1000 1\n  1\t100000   65536\n").unwrap();
        assert_eq!(map.extents()[1], Extent { first: 1, lower: 100_000, count: 65536 });
        assert_eq!((map.down(0), map.down(2), map.down(65537)), (Some(1000), Some(100_001), None));
        assert_eq!((map.up(1000), map.up(100_000), map.up(5)), (Some(0), Some(1), None));
        for bad in [
            &b""[..],
            b"\n",
            b"0 0",
            b"0 0 0",
            b"0 0 1 x",
            b"a 0 1",
            b"0 0 1\n\n",
            b"-1 0 1",
            b"4294967295 0 1",
        ] {
            assert_eq!(IdMap::parse(bad), Err(Errno::EINVAL), "{bad:?}");
        }
        for overlap in [&b"0 0 2\n1 5 1"[..], b"0 5 2\n3 6 1", b"0 4294967290 6"] {
            assert_eq!(IdMap::parse(overlap), Err(Errno::EINVAL));
        }
        assert_eq!(IdMap::parse(b"0x10 010 1").unwrap().down(16), Some(8));
    }

    #[test]
    fn as_many_lines_as_linux_takes() {
        let lines = |n: usize| (0..n).map(|i| format!("{} {} 1\n", 2 * i, 2 * i)).collect::<String>();
        assert!(IdMap::parse(lines(MOST).as_bytes()).is_ok());
        assert_eq!(IdMap::parse(lines(MOST + 1).as_bytes()), Err(Errno::EINVAL));
    }

    #[test]
    fn a_map_lies_inside_the_parents() {
        let parent = IdMap::parse(b"0 1000 10").unwrap().below(&IdMap::all()).unwrap();
        let inner = IdMap::parse(b"5 2 3").unwrap();
        assert_eq!(inner.below(&parent).unwrap().down(5), Some(1002));
        assert_eq!(IdMap::parse(b"0 8 3").unwrap().below(&parent), Err(Errno::EPERM));
        assert_eq!(IdMap::all().up(u32::MAX - 1), Some(u32::MAX - 1));
        assert_eq!(IdMap::all().up(u32::MAX), None);
    }
}
