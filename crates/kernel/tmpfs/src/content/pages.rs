//! Changes of a file's pages, charged to the instance: on the heap, in the instance's file, in a memory file.
//!
//! Each function charges before it takes pages, and gives back what it does not use. The caller holds the lock of the
//! content.

use super::{KEEP_SIZE, PUNCH_HOLE, Page, zero_page};
use crate::filestore::Extents;
use crate::limit::Limit;
use crate::memfile::MemFile;
use crate::storage::Storage;
use abi::{Errno, PAGE_SIZE as PAGE, Result};
use hostsys::fs as host;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pages that are reserved at once close to the limit.
const RESERVE: u64 = 64;

pub(super) fn put(m: &MemFile, data: &[u8], off: u64) -> Result<()> {
    match host::pwrite_full(&*m.rw()?, data, off)? {
        n if n == data.len() => Ok(()),
        _ => Err(Errno::ENOSPC),
    }
}

/// Writes to heap pages; less than asked for when the limit is reached.
pub(super) fn heap_write(
    pages: &mut BTreeMap<u64, Page>,
    storage: &Storage,
    charged: &Mutex<u64>,
    buf: &[u8],
    off: u64,
) -> usize {
    let mut done = 0;
    while done < buf.len() {
        let at = off + done as u64;
        let (page, from) = (at / PAGE, (at % PAGE) as usize);
        let len = (PAGE as usize - from).min(buf.len() - done);
        let p = match pages.entry(page) {
            std::collections::btree_map::Entry::Occupied(o) => o.into_mut(),
            std::collections::btree_map::Entry::Vacant(v) => {
                if storage.charge(1).is_err() {
                    break;
                }
                *charged.lock() += 1;
                v.insert(zero_page())
            }
        };
        p[from..from + len].copy_from_slice(&buf[done..done + len]);
        done += len;
    }
    done
}

pub(super) fn uncharge(limit: &Limit, charged: &Mutex<u64>, pages: u64) {
    limit.uncharge(pages);
    let mut c = charged.lock();
    *c = c.saturating_sub(pages);
}

/// Gives holes in `pages` pages, as many as may be charged; those that are new.
fn disk_fill(
    extents: &mut Extents,
    storage: &Storage,
    charged: &Mutex<u64>,
    pages: Range<u64>,
) -> Result<Vec<Range<u64>>> {
    let mut new = Vec::new();
    while let Some(hole) = extents.hole(pages.clone()) {
        let mut n = hole.end - hole.start;
        if storage.charge(n).is_err() {
            n = n.min(storage.pages.room()).max(1);
            match storage.charge(n) {
                Ok(()) => {}
                Err(_) if !new.is_empty() => break,
                Err(e) => return Err(e),
            }
        }
        let got = extents.fill(&(hole.start..hole.start + n));
        storage.pages.recharge(n - got, 0);
        *charged.lock() += got;
        new.push(hole.start..hole.start + got);
    }
    Ok(new)
}

/// Writes to the instance's file. ENOSPC when nothing fits, be it by the limit or on the host's disk.
pub(super) fn disk_write(
    extents: &mut Extents,
    storage: &Storage,
    charged: &Mutex<u64>,
    buf: &[u8],
    off: u64,
) -> Result<usize> {
    if buf.is_empty() {
        return Ok(0);
    }
    let pages = off / PAGE..(off + buf.len() as u64).div_ceil(PAGE);
    let filled = disk_fill(extents, storage, charged, pages.clone());
    let end = extents.hole(pages.clone()).map_or(off + buf.len() as u64, |hole| hole.start * PAGE);
    let new = match filled {
        Ok(new) => new,
        // Pages that were there already can be written.
        Err(_) if end > off => Vec::new(),
        Err(e) => return Err(e),
    };
    let n = usize::try_from(end.saturating_sub(off)).unwrap_or(buf.len()).min(buf.len());
    let written = extents.write(&buf[..n], off);
    let done = *written.as_ref().unwrap_or(&0) as u64;
    if done < n as u64 {
        // The host's disk is full: what got no data becomes a hole again.
        for range in new {
            let from = range.start.max((off + done).div_ceil(PAGE));
            if from < range.end {
                uncharge(&storage.pages, charged, extents.free(from..range.end));
            }
        }
    }
    match written {
        Ok(0) => Err(Errno::ENOSPC),
        written => written,
    }
}

/// Reserves pages of the instance's file: all of them, or none and ENOSPC.
pub(super) fn disk_reserve(
    extents: &mut Extents,
    storage: &Storage,
    charged: &Mutex<u64>,
    pages: Range<u64>,
) -> Result<()> {
    let new = disk_fill(extents, storage, charged, pages.clone())?;
    let all = extents.hole(pages.clone()).is_none();
    match if all { extents.reserve(pages) } else { Err(Errno::ENOSPC) } {
        Ok(()) => Ok(()),
        Err(e) => {
            for range in new {
                uncharge(&storage.pages, charged, extents.free(range));
            }
            Err(e)
        }
    }
}

/// Copies the pages of a file of `size` bytes to a memory file.
pub(super) fn copy_extents(pages: &Extents, to: &MemFile, size: u64) -> Result<()> {
    let mut buf = vec![0; 256 * 1024];
    let mut off = 0;
    while let Ok(data) = pages.seek(off, size, true) {
        let end = pages.seek(data, size, false)?;
        let n = usize::try_from(end - data).unwrap_or(usize::MAX).min(buf.len());
        pages.read(&mut buf[..n], data)?;
        put(to, &buf[..n], data)?;
        off = data + n as u64;
    }
    Ok(())
}

/// Reserves heap pages: all of them, or none and ENOSPC.
pub(super) fn heap_reserve(
    heap: &mut BTreeMap<u64, Page>,
    storage: &Storage,
    charged: &Mutex<u64>,
    pages: Range<u64>,
) -> Result<()> {
    let holes: Vec<u64> = pages.filter(|i| !heap.contains_key(i)).collect();
    storage.charge(holes.len() as u64)?;
    *charged.lock() += holes.len() as u64;
    heap.extend(holes.into_iter().map(|i| (i, zero_page())));
    Ok(())
}

/// Reserves pages of a memory file close to the limit: all of them, or ENOSPC. Of a failure, pieces stay reserved that
/// had pages already.
pub(super) fn mem_reserve(m: &MemFile, storage: &Storage, pages: Range<u64>) -> Result<()> {
    let fd = m.rw()?;
    let mut new = Vec::new();
    let mut before = m.measure(&storage.pages);
    let mut at = pages.start;
    while at < pages.end {
        let n = (pages.end - at).min(storage.pages.room().clamp(1, RESERVE));
        host::allocate(&*fd, KEEP_SIZE, at * PAGE, n * PAGE)?;
        let now = m.measure(&storage.pages);
        if now >= before + n {
            new.push((at, n));
        }
        if storage.pages.exceeded() {
            for (at, n) in new {
                host::allocate(&*fd, KEEP_SIZE | PUNCH_HOLE, at * PAGE, n * PAGE)?;
            }
            m.measure(&storage.pages);
            return Err(Errno::ENOSPC);
        }
        before = now;
        at += n;
    }
    Ok(())
}

/// Zeroes `off..end`, dropping whole pages; says how many.
pub(super) fn heap_punch(pages: &mut BTreeMap<u64, Page>, off: u64, end: u64) -> u64 {
    let touched: Vec<u64> = pages.range(off / PAGE..end.div_ceil(PAGE)).map(|(i, _)| *i).collect();
    let mut gone = 0;
    for i in touched {
        let (start, stop) = ((i * PAGE).max(off), ((i + 1) * PAGE).min(end));
        if stop - start == PAGE {
            pages.remove(&i);
            gone += 1;
        } else if let Some(p) = pages.get_mut(&i) {
            p[(start - i * PAGE) as usize..(stop - i * PAGE) as usize].fill(0);
        }
    }
    gone
}
