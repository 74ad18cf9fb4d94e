//! The file of pages, and how pages become extents.

use crate::Extent;
use std::io;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Room for fewer bytes than this between two pages stays in one extent, as a hole of the file: one host mapping more
/// costs more than the hole. It doubles with every [`MANY`] extents, so that their number stays small.
const GAP: u64 = 1 << 20;
/// See [`GAP`].
const MANY: usize = 256;

/// A file of pages that is written. Several threads may write.
pub trait PageSink: Send + Sync {
    /// Takes room for `len` bytes, a multiple of the page size, at the end of the file. It is a hole until it is written.
    /// Gives its offset.
    fn reserve(&self, len: u64) -> io::Result<u64>;
    /// Writes whole pages to room that was taken.
    fn write(&self, offset: u64, pages: &[u8]) -> io::Result<()>;
}

/// A file of pages that is read.
pub trait PageSource: Send + Sync {
    /// Fills `buf` from an offset on; an error where the file is shorter.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Length of the file in bytes.
    fn len(&self) -> u64;
    /// Holds no page.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// True for zeros only.
pub fn is_zero(page: &[u8]) -> bool {
    let (words, rest) = page.as_chunks::<16>();
    words.iter().all(|w| u128::from_ne_bytes(*w) == 0) && rest.iter().all(|b| *b == 0)
}

/// Puts pages of ascending places into a sink.
pub struct Runs<'a> {
    sink: &'a dyn PageSink,
    /// Pages of zeros and gaps are not what is there without them.
    exact: bool,
    extents: Vec<Extent>,
}

impl<'a> Runs<'a> {
    /// Nothing yet.
    pub fn new(sink: &'a dyn PageSink) -> Runs<'a> {
        Runs { sink, exact: false, extents: Vec::new() }
    }

    /// Nothing yet. Extents will hold the pages that are put, zeros included, and no others: for what lies over a file.
    pub fn exact(sink: &'a dyn PageSink) -> Runs<'a> {
        Runs { exact: true, ..Runs::new(sink) }
    }

    /// Puts whole pages that belong at `at`, behind all that was put before. A page of zeros is left out where it may be.
    pub fn put(&mut self, at: u64, pages: &[u8]) -> io::Result<()> {
        let end = self.extents.last().map_or(0, |e| e.at + e.len);
        let whole = at.is_multiple_of(PAGE) && pages.len().is_multiple_of(PAGE as usize);
        if !whole || at < end || at.checked_add(pages.len() as u64).is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "pages out of order"));
        }
        if self.exact && !pages.is_empty() {
            return self.data(at, pages);
        }
        let mut from = 0;
        while from < pages.len() {
            let rest = pages.get(from..).unwrap_or_default();
            let stretch = |zero| rest.chunks(PAGE as usize).take_while(|p| is_zero(p) == zero).count();
            let zeros = stretch(true) * PAGE as usize;
            if zeros > 0 {
                from += zeros;
                continue;
            }
            let len = stretch(false) * PAGE as usize;
            self.data(at + from as u64, rest.get(..len).unwrap_or_default())?;
            from += len;
        }
        Ok(())
    }

    /// The extents, in ascending order.
    pub fn finish(self) -> Vec<Extent> {
        self.extents
    }

    fn data(&mut self, at: u64, pages: &[u8]) -> io::Result<()> {
        let len = pages.len() as u64;
        let most = GAP << (self.extents.len() / MANY).min(30);
        if let Some(last) = self.extents.last_mut() {
            let gap = at - (last.at + last.len);
            if gap == 0 || gap < most && !self.exact {
                let file_end = last.offset + last.len;
                let offset = self.sink.reserve(gap + len)?;
                if offset == file_end {
                    last.len += gap + len;
                    return self.sink.write(offset + gap, pages);
                }
                // Another thread has taken the place: the gap's room stays a hole of no use.
                self.extents.push(Extent { at, len, offset: offset + gap });
                return self.sink.write(offset + gap, pages);
            }
        }
        let offset = self.sink.reserve(len)?;
        self.extents.push(Extent { at, len, offset });
        self.sink.write(offset, pages)
    }
}

/// Whether extents out of an image are sound: in ascending order, whole pages, inside `range`, and inside a file of
/// `file` bytes.
pub fn check(extents: &[Extent], range: (u64, u64), file: u64) -> bool {
    let mut from = range.0;
    extents.iter().all(|e| {
        let whole = [e.at, e.len, e.offset].iter().all(|n| n.is_multiple_of(PAGE)) && e.len > 0;
        let (Some(end), Some(file_end)) = (e.at.checked_add(e.len), e.offset.checked_add(e.len)) else {
            return false;
        };
        let sound = whole && e.at >= from && end <= range.1 && file_end <= file;
        from = end;
        sound
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Memory(Mutex<Vec<u8>>);

    impl PageSink for Memory {
        fn reserve(&self, len: u64) -> io::Result<u64> {
            let mut file = self.0.lock().unwrap();
            let end = file.len();
            file.resize(end + len as usize, 0);
            Ok(end as u64)
        }
        fn write(&self, offset: u64, pages: &[u8]) -> io::Result<()> {
            self.0.lock().unwrap()[offset as usize..][..pages.len()].copy_from_slice(pages);
            Ok(())
        }
    }

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE as usize]
    }

    #[test]
    fn close_pages_share_an_extent_and_far_ones_do_not() {
        let file = Memory::default();
        let mut runs = Runs::new(&file);
        runs.put(PAGE, &[page(1), page(0), page(0), page(2)].concat()).unwrap();
        runs.put(5 * PAGE, &page(3)).unwrap();
        runs.put(5 * PAGE + GAP + PAGE, &[page(0), page(4)].concat()).unwrap();
        let far = 6 * PAGE + GAP + PAGE;
        let extents = runs.finish();
        let near = Extent { at: PAGE, len: 5 * PAGE, offset: 0 };
        assert_eq!(extents, [near, Extent { at: far, len: PAGE, offset: 5 * PAGE }]);
        let bytes = file.0.lock().unwrap().clone();
        let firsts: Vec<u8> = bytes.chunks(PAGE as usize).map(|p| p[0]).collect();
        assert_eq!(firsts, [1, 0, 0, 2, 3, 4]);
        assert!(check(&extents, (PAGE, far + PAGE), bytes.len() as u64));
        assert!(!check(&extents, (PAGE, far), bytes.len() as u64));
        assert!(!check(&extents, (PAGE, far + PAGE), bytes.len() as u64 - 1));
    }

    #[test]
    fn exact_runs_keep_zeros_and_no_gaps() {
        let file = Memory::default();
        let mut runs = Runs::exact(&file);
        runs.put(0, &[page(1), page(0)].concat()).unwrap();
        runs.put(2 * PAGE, &page(0)).unwrap();
        runs.put(4 * PAGE, &page(0)).unwrap();
        let extent = |at, len, offset| Extent { at: at * PAGE, len: len * PAGE, offset: offset * PAGE };
        assert_eq!(runs.finish(), [extent(0, 3, 0), extent(4, 1, 3)]);
    }

    #[test]
    fn scattered_pages_make_few_extents() {
        struct Nowhere(std::sync::atomic::AtomicU64);
        impl PageSink for Nowhere {
            fn reserve(&self, len: u64) -> io::Result<u64> {
                Ok(self.0.fetch_add(len, std::sync::atomic::Ordering::Relaxed))
            }
            fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
                Ok(())
            }
        }
        let file = Nowhere(0.into());
        let mut runs = Runs::new(&file);
        for i in 0..1 << 17 {
            runs.put(i << 21, &page(1)).unwrap();
        }
        assert_eq!(runs.finish().len(), MANY);
    }

    #[test]
    fn zeros_take_no_room_and_disorder_is_refused() {
        let file = Memory::default();
        let mut runs = Runs::new(&file);
        runs.put(0, &page(0)).unwrap();
        assert!(runs.put(100, &page(1)).is_err());
        runs.put(PAGE, &page(1)).unwrap();
        assert!(runs.put(PAGE, &page(1)).is_err());
        assert!(runs.put(u64::MAX - PAGE + 1, &page(1)).is_err());
        assert_eq!(runs.finish().len(), 1);
    }

    #[test]
    fn hostile_extents_are_refused() {
        let sound = Extent { at: PAGE, len: PAGE, offset: 0 };
        let refused = |e: Extent| assert!(!check(&[e], (0, 8 * PAGE), 8 * PAGE), "{e:?}");
        assert!(check(&[sound], (0, 8 * PAGE), 8 * PAGE));
        refused(Extent { len: 0, ..sound });
        refused(Extent { at: 1, ..sound });
        refused(Extent { at: u64::MAX - PAGE + 1, ..sound });
        refused(Extent { len: u64::MAX - PAGE + 1, ..sound });
        refused(Extent { offset: u64::MAX - PAGE + 1, ..sound });
        assert!(!check(&[sound, sound], (0, 8 * PAGE), 8 * PAGE));
    }
}
