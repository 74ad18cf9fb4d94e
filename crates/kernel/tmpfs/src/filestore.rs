//! One file of the host that keeps the data of an instance's files.
//!
//! Pages are handed out from a map of free ranges. A free page is a hole of the file and reads as zeros, because pages
//! are punched when they are given back. So the blocks of the file are those of the data in it, and a new page needs no
//! clearing.
//!
//! The file is never lent to the guest: one descriptor of it gives access to the data of every file. Files that are mapped
//! are copied to memory files of their own ([`crate::memfile`]).
//!
//! Locks: the map of free ranges is a leaf, under the lock of a file's content. No host call is made under it.

use abi::{Errno, PAGE_SIZE as PAGE, Result};
use hostsys::fs as host;
use hostsys::memfd::CopyArea;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// FALLOC_FL_KEEP_SIZE.
const KEEP_SIZE: i32 = 1;
/// FALLOC_FL_PUNCH_HOLE.
const PUNCH_HOLE: i32 = 2;
/// Free ranges that are looked at for one that is long enough.
const LOOKED_AT: usize = 16;
/// The file is not made longer than this many pages (1 TiB) as long as a free range is left.
const LONGEST: u64 = 1 << 28;

/// The file, and what of it is free.
pub struct FileStore {
    fd: OwnedFd,
    space: Mutex<Space>,
}

#[derive(Default)]
struct Space {
    /// Free ranges below `end`, by their first page: their lengths. Neighbours are merged.
    free: BTreeMap<u64, u64>,
    /// First page that was never handed out.
    end: u64,
}

impl Space {
    /// Takes at most `want` pages in one piece, at `near` if that is free.
    fn take(&mut self, want: u64, near: Option<u64>) -> Range<u64> {
        let at = near.filter(|at| self.free.contains_key(at)).or_else(|| {
            if near == Some(self.end) && self.end < LONGEST {
                return None;
            }
            let fits = self.free.iter().take(LOOKED_AT).find(|(_, len)| **len >= want);
            let any = || self.free.iter().next().filter(|_| self.end + want > LONGEST);
            fits.or_else(any).map(|(at, _)| *at)
        });
        let Some(at) = at else {
            let start = self.end;
            self.end += want;
            return start..self.end;
        };
        let len = self.free.remove(&at).unwrap_or(0);
        let n = len.min(want);
        if n < len {
            self.free.insert(at + n, len - n);
        }
        at..at + n
    }

    fn give_back(&mut self, pages: Range<u64>) {
        let mut all = pages;
        if let Some((before, len)) = self.free.range(..all.start).next_back().map(|(a, l)| (*a, *l))
            && before + len == all.start
        {
            self.free.remove(&before);
            all.start = before;
        }
        if let Some(len) = self.free.remove(&all.end) {
            all.end += len;
        }
        if all.end == self.end {
            self.end = all.start;
        } else {
            self.free.insert(all.start, all.end - all.start);
        }
    }
}

impl FileStore {
    /// Keeps data in `fd`, an empty regular file open for reading and writing, of a file system that can punch holes.
    pub fn new(fd: OwnedFd) -> Arc<FileStore> {
        Arc::new(FileStore { fd, space: Mutex::default() })
    }

    /// Bytes that the host's file system has room for in all.
    pub(crate) fn capacity(&self) -> Result<u64> {
        let stat = host::statfs(&self.fd)?;
        Ok(stat.f_blocks.saturating_mul(u64::try_from(stat.f_bsize).unwrap_or(0)))
    }

    fn take(&self, want: u64, near: Option<u64>) -> Range<u64> {
        self.space.lock().take(want, near)
    }

    fn punch(&self, pages: Range<u64>) -> Result<()> {
        let len = (pages.end - pages.start) * PAGE;
        host::allocate(&self.fd, KEEP_SIZE | PUNCH_HOLE, pages.start * PAGE, len)
    }

    fn give_back(&self, pages: Range<u64>) {
        // Pages that cannot be cleared are not handed out again.
        match self.punch(pages.clone()) {
            Ok(()) => self.space.lock().give_back(pages),
            Err(e) => log::warn!("overlay file: pages cannot be freed: {e}"),
        }
    }
}

/// The pages of one file in a store. Dropping it frees them.
pub(crate) struct Extents {
    store: Arc<FileStore>,
    /// By the first page in the file: the first page in the store, and the number of pages.
    map: BTreeMap<u64, (u64, u64)>,
    pages: u64,
}

/// A part of a range of a file.
struct Piece {
    /// Pages of the file.
    pages: Range<u64>,
    /// Where they begin in the store; `None` for a hole.
    at: Option<u64>,
}

impl Extents {
    pub fn new(store: &Arc<FileStore>) -> Extents {
        Extents { store: store.clone(), map: BTreeMap::new(), pages: 0 }
    }

    /// Pages that there are.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The first piece of `pages`, which are not empty.
    fn piece(&self, pages: Range<u64>) -> Piece {
        let before = self.map.range(..=pages.start).next_back();
        if let Some((first, (at, len))) = before
            && first + len > pages.start
        {
            let end = pages.end.min(first + len);
            return Piece { at: Some(at + (pages.start - first)), pages: pages.start..end };
        }
        let next = self.map.range(pages.start..pages.end).next().map_or(pages.end, |(first, _)| *first);
        Piece { pages: pages.start..next, at: None }
    }

    /// Fills `buf` from `off` on; holes are zeros.
    pub fn read(&self, buf: &mut [u8], off: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = off + done as u64;
            let end = off + buf.len() as u64;
            let piece = self.piece(at / PAGE..end.div_ceil(PAGE));
            let n = (end.min(piece.pages.end * PAGE) - at) as usize;
            let part = &mut buf[done..done + n];
            match piece.at {
                None => part.fill(0),
                Some(page) => {
                    let got = host::pread_full(&self.store.fd, part, page * PAGE + at % PAGE)?;
                    part[got..].fill(0);
                }
            }
            done += n;
        }
        Ok(done)
    }

    /// The same of `n` bytes into an area; `None` when they are in several pieces.
    pub fn read_to(&self, to: &CopyArea<'_>, n: usize, off: u64) -> Option<Result<usize>> {
        let piece = self.piece(off / PAGE..(off + n as u64).div_ceil(PAGE));
        if piece.pages.end * PAGE < off + n as u64 {
            return None;
        }
        match piece.at {
            None => {
                to.zero(0, n);
                Some(Ok(n))
            }
            Some(page) => match host::pread_area(&self.store.fd, to, n, page * PAGE + off % PAGE) {
                Ok(got) if got < n => None,
                done => Some(done),
            },
        }
    }

    /// The first hole in `pages`.
    pub fn hole(&self, pages: Range<u64>) -> Option<Range<u64>> {
        let mut at = pages.start;
        while at < pages.end {
            let piece = self.piece(at..pages.end);
            if piece.at.is_none() {
                return Some(piece.pages);
            }
            at = piece.pages.end;
        }
        None
    }

    /// Allocates pages at the beginning of a hole; returns their number. The host allocates blocks when they are written.
    pub fn fill(&mut self, hole: &Range<u64>) -> u64 {
        let before = self.map.range(..hole.start).next_back();
        let before =
            before.filter(|(first, (_, len))| *first + len == hole.start).map(|(f, (a, l))| (*f, *a, *l));
        let near = before.map(|(_, at, len)| at + len);
        let got = self.store.take(hole.end - hole.start, near);
        let n = got.end - got.start;
        match before {
            Some((first, at, len)) if near == Some(got.start) => self.map.insert(first, (at, len + n)),
            _ => self.map.insert(hole.start, (got.start, n)),
        };
        self.pages += n;
        n
    }

    /// Writes where there are pages already; less than all of it when an error comes in between.
    pub fn write(&self, buf: &[u8], off: u64) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = off + done as u64;
            let end = off + buf.len() as u64;
            let piece = self.piece(at / PAGE..end.div_ceil(PAGE));
            let n = (end.min(piece.pages.end * PAGE) - at) as usize;
            let page = piece.at.ok_or(Errno::EIO)?;
            match host::pwrite_full(&self.store.fd, &buf[done..done + n], page * PAGE + at % PAGE) {
                Ok(wrote) if wrote == n => done += n,
                Ok(wrote) => return Ok(done + wrote),
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
        }
        Ok(done)
    }

    /// Allocates the host's blocks for `pages`, which are in the store already.
    pub fn reserve(&self, pages: Range<u64>) -> Result<()> {
        let mut at = pages.start;
        while at < pages.end {
            let piece = self.piece(at..pages.end);
            if let Some(page) = piece.at {
                let len = (piece.pages.end - piece.pages.start) * PAGE;
                host::allocate(&self.store.fd, KEEP_SIZE, page * PAGE, len)?;
            }
            at = piece.pages.end;
        }
        Ok(())
    }

    /// Frees `pages`; returns how many were in the store.
    pub fn free(&mut self, pages: Range<u64>) -> u64 {
        let mut gone = 0;
        let mut at = pages.start;
        while at < pages.end {
            let piece = self.piece(at..pages.end);
            at = piece.pages.end;
            let Some(page) = piece.at else { continue };
            let Some((first, (start, len))) =
                self.map.range(..=piece.pages.start).next_back().map(|(f, v)| (*f, *v))
            else {
                continue;
            };
            let n = piece.pages.end - piece.pages.start;
            self.map.remove(&first);
            if first < piece.pages.start {
                self.map.insert(first, (start, piece.pages.start - first));
            }
            if first + len > piece.pages.end {
                let skipped = piece.pages.end - first;
                self.map.insert(piece.pages.end, (start + skipped, len - skipped));
            }
            self.store.give_back(page..page + n);
            gone += n;
        }
        self.pages -= gone;
        gone
    }

    /// Frees everything from a page on; returns how many pages were in the store.
    pub fn free_from(&mut self, page: u64) -> u64 {
        let end = self.map.iter().next_back().map_or(0, |(first, (_, len))| first + len);
        if page < end { self.free(page..end) } else { 0 }
    }

    /// Zeroes `off..end` and frees whole pages; returns how many.
    pub fn punch(&mut self, off: u64, end: u64) -> Result<u64> {
        let (first, last) = (off.div_ceil(PAGE), end / PAGE);
        if first > last {
            self.zero(off, end)?;
            return Ok(0);
        }
        self.zero(off, first * PAGE)?;
        self.zero(last * PAGE, end)?;
        Ok(self.free(first..last))
    }

    /// Zeroes a part of one page.
    fn zero(&self, from: u64, to: u64) -> Result<()> {
        if from < to && self.piece(from / PAGE..from / PAGE + 1).at.is_some() {
            self.write(&[0; PAGE as usize][..(to - from) as usize], from)?;
        }
        Ok(())
    }

    /// The next data (or hole) at or behind `off` in a file of `size` bytes. ENXIO without data, and at the end.
    pub fn seek(&self, off: u64, size: u64, data: bool) -> Result<u64> {
        if off >= size {
            return Err(Errno::ENXIO);
        }
        let mut at = off / PAGE;
        let end = size.div_ceil(PAGE);
        while at < end {
            let piece = self.piece(at..end);
            if piece.at.is_some() == data {
                return Ok((at * PAGE).max(off));
            }
            at = piece.pages.end;
        }
        if data { Err(Errno::ENXIO) } else { Ok(size) }
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        for (_, (at, len)) in std::mem::take(&mut self.map) {
            self.store.give_back(at..at + len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Arc<FileStore> {
        FileStore::new(host::memfd("store").unwrap())
    }

    fn blocks(store: &FileStore) -> u64 {
        host::stat(&store.fd).unwrap().blocks
    }

    fn put(e: &mut Extents, page: u64, n: u64, byte: u8) {
        while let Some(hole) = e.hole(page..page + n) {
            e.fill(&hole);
        }
        e.write(&vec![byte; (n * PAGE) as usize], page * PAGE).unwrap();
    }

    #[test]
    fn free_pages_are_holes_and_used_again() {
        let store = store();
        let (mut a, mut b) = (Extents::new(&store), Extents::new(&store));
        put(&mut a, 0, 4, 1);
        put(&mut b, 7, 2, 2);
        put(&mut a, 4, 4, 3);
        assert_eq!((a.pages(), a.map.len(), b.pages()), (8, 2, 2));
        assert_eq!(blocks(&store), 80);
        let mut buf = vec![9; 10 * PAGE as usize];
        a.read(&mut buf, 0).unwrap();
        assert!(buf[..4 * 4096].iter().all(|b| *b == 1) && buf[4 * 4096..8 * 4096].iter().all(|b| *b == 3));
        assert!(buf[8 * 4096..].iter().all(|b| *b == 0));
        assert_eq!(a.free(1..6), 5);
        assert_eq!(blocks(&store), 40);
        put(&mut b, 0, 3, 4);
        assert_eq!(blocks(&store), 64);
        assert!(store.space.lock().end <= 10, "holes are filled before the file grows");
        a.read(&mut buf, 0).unwrap();
        assert!(buf[4096..6 * 4096].iter().all(|b| *b == 0));
        drop((a, b));
        let space = store.space.lock();
        assert_eq!((space.end, space.free.len()), (0, 0));
        drop(space);
        assert_eq!(blocks(&store), 0);
    }

    #[test]
    fn parts_of_pages_become_zeros() {
        let store = store();
        let mut e = Extents::new(&store);
        put(&mut e, 0, 3, 7);
        assert_eq!(e.punch(100, 2 * PAGE + 5), Ok(1));
        let mut buf = vec![1; 3 * PAGE as usize];
        e.read(&mut buf, 0).unwrap();
        assert!(buf[..100].iter().all(|b| *b == 7) && buf[100..2 * 4096 + 5].iter().all(|b| *b == 0));
        assert_eq!(buf[2 * 4096 + 5], 7);
        assert_eq!((e.seek(0, 3 * PAGE, false), e.seek(PAGE, 3 * PAGE, true)), (Ok(PAGE), Ok(2 * PAGE)));
        assert_eq!(e.seek(2 * PAGE, 3 * PAGE - 1, false), Ok(3 * PAGE - 1));
        assert_eq!(e.seek(3 * PAGE - 1, 3 * PAGE - 1, true), Err(Errno::ENXIO));
        assert_eq!(e.free_from(1), 1);
        assert_eq!(e.punch(10, 20), Ok(0));
        e.read(&mut buf[..30], 0).unwrap();
        assert_eq!((buf[9], buf[10], buf[19], buf[20]), (7, 0, 0, 7));
    }

    /// Against a plain array, with two files that take turns.
    #[test]
    fn a_store_is_what_was_written() {
        let store = store();
        let mut files = [Extents::new(&store), Extents::new(&store)];
        let mut model = [vec![0u8; 64 * 4096], vec![0u8; 64 * 4096]];
        let mut seed = 12345u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..2000 {
            let which = random(2) as usize;
            let (off, len) = (random(60 * 4096), 1 + random(4 * 4096));
            let range = off as usize..(off + len) as usize;
            let e = &mut files[which];
            if random(3) == 0 {
                e.punch(off, off + len).unwrap();
                model[which][range].fill(0);
            } else {
                while let Some(hole) = e.hole(off / PAGE..(off + len).div_ceil(PAGE)) {
                    e.fill(&hole);
                }
                let byte = random(255) as u8 + 1;
                assert_eq!(e.write(&vec![byte; len as usize], off), Ok(len as usize));
                model[which][range].fill(byte);
            }
        }
        let mut buf = vec![1; 64 * 4096];
        for (e, wanted) in files.iter().zip(&model) {
            e.read(&mut buf, 0).unwrap();
            assert!(buf == *wanted);
        }
    }
}
