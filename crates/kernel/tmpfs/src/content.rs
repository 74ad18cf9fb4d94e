//! The bytes of a regular file: pages on the heap while the file is small and
//! nobody maps it, a file in the host's memory afterwards, or still the
//! unchanged lower file.
//!
//! Holes stay holes in all three. The instance's limit is charged per page; for
//! memory files the host's block count is what is charged. Writes to them are
//! estimated, and mappings fill pages without the kernel's knowledge, so the
//! instance measures such files before it refuses anything ([`TmpFs::settle`]).

use crate::fs::TmpFs;
use crate::lower::LowerFile;
use crate::memfile::MemFile;
use abi::{Errno, Result};
use hostsys::fs as host;
use hostsys::memfd::CopyArea;
use ranked::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vfs::Caller;
use vfs::quota::{Charge, Kind};

const PAGE: u64 = 4096;
/// Larger files live in memory files from the start.
const HEAP_MAX: u64 = 1 << 20;
/// Largest file (s_maxbytes).
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;

/// FALLOC_FL_KEEP_SIZE.
const KEEP_SIZE: i32 = 1;
/// FALLOC_FL_PUNCH_HOLE.
const PUNCH_HOLE: i32 = 2;
/// Pages that are reserved at once close to the limit.
const RESERVE: u64 = 64;
/// F_SEAL_SEAL.
pub(crate) const SEAL_SEAL: u32 = 1;
/// F_SEAL_SHRINK.
pub(crate) const SEAL_SHRINK: u32 = 2;
/// F_SEAL_GROW.
pub(crate) const SEAL_GROW: u32 = 4;
/// F_SEAL_WRITE.
pub(crate) const SEAL_WRITE: u32 = 8;
/// F_SEAL_FUTURE_WRITE.
pub(crate) const SEAL_FUTURE_WRITE: u32 = 16;
/// F_SEAL_EXEC.
pub(crate) const SEAL_EXEC: u32 = 32;

type Page = Box<[u8]>;

enum Store {
    Heap(BTreeMap<u64, Page>),
    Mem(Arc<MemFile>),
    Lower(Box<dyn LowerFile>),
}

/// The content of one regular file.
pub(crate) struct Content {
    size: u64,
    store: Store,
    /// Heap pages charged to the instance; memory files keep their own count.
    charged: Mutex<u64>,
    pub seals: u32,
    /// memfd_create(2) made it: seals must reach the host's file.
    pub sealable: bool,
}

fn zero_page() -> Page {
    vec![0; PAGE as usize].into_boxed_slice()
}

impl Content {
    /// An empty file.
    pub fn empty() -> Content {
        Content {
            size: 0,
            store: Store::Heap(BTreeMap::new()),
            charged: Mutex::new(0),
            seals: SEAL_SEAL,
            sealable: false,
        }
    }

    /// The unchanged content of a lower file.
    pub fn of_lower(lower: Box<dyn LowerFile>, size: u64) -> Content {
        Content { size, store: Store::Lower(lower), ..Content::empty() }
    }

    /// The inode goes: gives back what is charged.
    pub fn release(&mut self, fs: &TmpFs) {
        fs.recharge(std::mem::take(self.charged.get_mut()), 0);
        if let Store::Mem(m) = &self.store {
            m.release(fs);
        }
    }

    /// Size and 512-byte blocks.
    pub fn size_and_blocks(&self) -> (u64, u64) {
        match &self.store {
            Store::Heap(p) => (self.size, p.len() as u64 * 8),
            Store::Mem(m) => (self.size, m.rw().and_then(|f| host::stat(&*f)).map_or(0, |a| a.blocks)),
            Store::Lower(l) => (self.size, l.blocks()),
        }
    }

    fn measure(&self, fs: &TmpFs) {
        if let Store::Mem(m) = &self.store {
            m.measure(fs);
        }
    }

    /// From now on the content lives in `m`, which takes over the charge.
    fn move_to(&mut self, m: Arc<MemFile>) {
        m.take_over(std::mem::take(self.charged.get_mut()));
        self.store = Store::Mem(m);
    }

    /// Reads at `off`.
    pub fn read(&self, cx: &dyn Caller, buf: &mut [u8], off: u64) -> Result<usize> {
        if off >= self.size {
            return Ok(0);
        }
        let n = buf.len().min(usize::try_from(self.size - off).unwrap_or(usize::MAX));
        let buf = &mut buf[..n];
        match &self.store {
            Store::Heap(pages) => {
                let mut done = 0;
                while done < n {
                    let at = off + done as u64;
                    let (page, from) = (at / PAGE, (at % PAGE) as usize);
                    let len = (PAGE as usize - from).min(n - done);
                    let part = &mut buf[done..done + len];
                    match pages.get(&page) {
                        Some(p) => part.copy_from_slice(&p[from..from + len]),
                        None => part.fill(0),
                    }
                    done += len;
                }
                Ok(n)
            }
            Store::Mem(m) => host::pread_full(&*m.rw()?, buf, off),
            Store::Lower(l) => l.read(cx, buf, off),
        }
    }

    /// As [`Content::read`] of at most `len` bytes, into `to`; `None` when they do not fit there.
    pub fn read_to(&self, cx: &dyn Caller, to: &CopyArea<'_>, len: usize, off: u64) -> Option<Result<usize>> {
        if off >= self.size {
            return Some(Ok(0));
        }
        let n = len.min(usize::try_from(self.size - off).unwrap_or(usize::MAX));
        if n > to.size() {
            return None;
        }
        match &self.store {
            Store::Heap(pages) => {
                let mut done = 0;
                while done < n {
                    let at = off + done as u64;
                    let from = (at % PAGE) as usize;
                    let len = (PAGE as usize - from).min(n - done);
                    match pages.get(&(at / PAGE)) {
                        Some(p) => to.put(done, &p[from..from + len]),
                        None => to.zero(done, len),
                    }
                    done += len;
                }
                Some(Ok(n))
            }
            Store::Mem(m) => Some(m.rw().and_then(|fd| host::pread_area(&*fd, to, n, off))),
            Store::Lower(l) => l.read_to(cx, to, n, off),
        }
    }

    /// What the caller is charged for a file that can be sealed. ENFILE when there are too many.
    fn charge_sealable(&self, cx: &dyn Caller) -> Result<Option<Charge>> {
        if !self.sealable {
            return Ok(None);
        }
        let user = cx.quotas().account(cx.creds().uid);
        user.charge(Kind::SealableFiles, 1).map(Some).ok_or(Errno::ENFILE)
    }

    /// Brings the content into our own memory; with `mapped` into a memory file.
    pub fn own(&mut self, cx: &dyn Caller, fs: &TmpFs, mapped: bool) -> Result<()> {
        let size = self.size;
        match &self.store {
            Store::Mem(_) => return Ok(()),
            Store::Heap(_) if !mapped => return Ok(()),
            Store::Heap(pages) => {
                let m = MemFile::new(&fs.memory, self.charge_sealable(cx)?)?;
                host::truncate(&*m.rw()?, size)?;
                for (i, p) in pages {
                    let len = (size.saturating_sub(i * PAGE)).min(PAGE) as usize;
                    // What was written or reserved stays so, zeros and what lies beyond the end included.
                    if len == 0 {
                        host::allocate(&*m.rw()?, KEEP_SIZE, i * PAGE, PAGE)?;
                    } else {
                        put(&m, &p[..len], i * PAGE)?;
                    }
                }
                let seals = self.seals & (SEAL_SHRINK | SEAL_GROW | SEAL_WRITE | SEAL_FUTURE_WRITE);
                if self.sealable && seals != 0 {
                    host::add_seals(&*m.rw()?, seals)?;
                }
                self.move_to(m);
            }
            Store::Lower(l) => {
                let heap = !mapped && size <= HEAP_MAX;
                let mut pages = BTreeMap::new();
                let mem = if heap { None } else { Some(MemFile::new(&fs.memory, None)?) };
                if let Some(m) = &mem {
                    fs.ensure_room(size.div_ceil(PAGE))?;
                    host::truncate(&*m.rw()?, size)?;
                } else {
                    fs.charge(size.div_ceil(PAGE))?;
                    *self.charged.lock() = size.div_ceil(PAGE);
                }
                let mut buf = vec![0; 256 * 1024];
                let mut off = 0;
                while off < size {
                    let n = l.read(cx, &mut buf, off)?;
                    if n == 0 {
                        break;
                    }
                    match &mem {
                        // Zeros of the lower file become holes.
                        Some(_) if buf[..n].iter().all(|&b| b == 0) => {}
                        Some(m) => put(m, &buf[..n], off)?,
                        None => {
                            for (i, c) in buf[..n].chunks(PAGE as usize).enumerate() {
                                let mut p = zero_page();
                                p[..c.len()].copy_from_slice(c);
                                pages.insert(off / PAGE + i as u64, p);
                            }
                        }
                    }
                    off += n as u64;
                }
                match mem {
                    Some(m) => self.move_to(m),
                    None => self.store = Store::Heap(pages),
                }
            }
        }
        self.measure(fs);
        Ok(())
    }

    /// Forgets everything (O_TRUNC of a lower file needs no copy).
    fn clear(&mut self, fs: &TmpFs) {
        let mut c = self.charged.lock();
        fs.recharge(*c, 0);
        *c = 0;
        drop(c);
        self.store = Store::Heap(BTreeMap::new());
        self.size = 0;
    }

    /// Writes at `off`, or at the end. Returns the count and the offset behind it.
    pub fn write(
        &mut self,
        cx: &dyn Caller,
        fs: &TmpFs,
        buf: &[u8],
        off: Option<u64>,
    ) -> Result<(usize, u64)> {
        if self.seals & (SEAL_WRITE | SEAL_FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        let off = off.unwrap_or(self.size);
        if off >= MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let mut n = buf.len().min((MAX_SIZE - off) as usize);
        if self.seals & SEAL_GROW != 0 && off + n as u64 > self.size {
            // Page by page: one that would end behind the file's end is not written at all.
            n = (self.size / PAGE * PAGE).saturating_sub(off) as usize;
            if n == 0 {
                return Err(Errno::EPERM);
            }
        }
        let end = off + n as u64;
        self.own(cx, fs, end > HEAP_MAX)?;
        let done = match &mut self.store {
            Store::Heap(pages) => {
                let done = heap_write(pages, fs, &self.charged, &buf[..n], off);
                if done == 0 && n > 0 {
                    return Err(Errno::ENOSPC);
                }
                done
            }
            Store::Mem(m) => {
                let pages = end.div_ceil(PAGE) - off / PAGE;
                if fs.ensure_room(pages).is_err() {
                    let m = m.clone();
                    return self.write_tight(fs, &m, &buf[..n], off);
                }
                host::pwrite_full(&*m.rw()?, &buf[..n], off)?
            }
            Store::Lower(_) => return Err(Errno::EIO),
        };
        let end = off + done as u64;
        if end > self.size {
            self.size = end;
        }
        if let Store::Mem(m) = &self.store
            && fs.limited()
        {
            m.estimate(fs, end.div_ceil(PAGE) - off / PAGE, self.size.div_ceil(PAGE));
        }
        Ok((done, end))
    }

    /// A write to a memory file close to the limit, page by page. A page that turns out to have been a hole, and for
    /// which there is no room, becomes one again.
    fn write_tight(&mut self, fs: &TmpFs, m: &MemFile, buf: &[u8], off: u64) -> Result<(usize, u64)> {
        let fd = m.rw()?;
        let mut done = 0;
        let mut before = m.measure(fs);
        while done < buf.len() {
            let at = off + done as u64;
            let len = ((PAGE - at % PAGE) as usize).min(buf.len() - done);
            let wrote = host::pwrite_full(&*fd, &buf[done..done + len], at)?;
            let now = m.measure(fs);
            if now > before && fs.exceeded() {
                host::allocate(&*fd, KEEP_SIZE | PUNCH_HOLE, at / PAGE * PAGE, PAGE)?;
                host::truncate(&*fd, self.size)?;
                m.measure(fs);
                break;
            }
            before = now;
            done += wrote;
            self.size = self.size.max(off + done as u64);
        }
        if done == 0 && !buf.is_empty() { Err(Errno::ENOSPC) } else { Ok((done, off + done as u64)) }
    }

    /// Changes the size.
    pub fn truncate(&mut self, cx: &dyn Caller, fs: &TmpFs, size: u64) -> Result<()> {
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        if size < self.size && self.seals & SEAL_SHRINK != 0
            || size > self.size && self.seals & SEAL_GROW != 0
        {
            return Err(Errno::EPERM);
        }
        if size == 0 && matches!(self.store, Store::Lower(_)) {
            self.clear(fs);
            return Ok(());
        }
        if size == self.size {
            return Ok(());
        }
        self.own(cx, fs, false)?;
        match &mut self.store {
            Store::Heap(pages) => {
                let gone = pages.split_off(&size.div_ceil(PAGE)).len() as u64;
                let mut c = self.charged.lock();
                fs.recharge(gone, 0);
                *c = c.saturating_sub(gone);
                if let Some(p) = pages.get_mut(&(size / PAGE)) {
                    p[(size % PAGE) as usize..].fill(0);
                }
            }
            Store::Mem(m) => host::truncate(&*m.rw()?, size)?,
            Store::Lower(_) => return Err(Errno::EIO),
        }
        self.size = size;
        self.measure(fs);
        Ok(())
    }

    /// fallocate(2): mode 0, KEEP_SIZE, PUNCH_HOLE.
    pub fn allocate(&mut self, cx: &dyn Caller, fs: &TmpFs, mode: i32, off: u64, len: u64) -> Result<()> {
        if mode & !(KEEP_SIZE | PUNCH_HOLE) != 0 || mode == PUNCH_HOLE {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = off.checked_add(len).filter(|&e| e <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        if mode & PUNCH_HOLE != 0 {
            if self.seals & (SEAL_WRITE | SEAL_FUTURE_WRITE) != 0 {
                return Err(Errno::EPERM);
            }
            self.own(cx, fs, false)?;
            match &mut self.store {
                Store::Heap(pages) => {
                    let gone = heap_punch(pages, off, end);
                    fs.recharge(gone, 0);
                    let mut c = self.charged.lock();
                    *c = c.saturating_sub(gone);
                }
                Store::Mem(m) => host::allocate(&*m.rw()?, mode, off, len)?,
                Store::Lower(_) => return Err(Errno::EIO),
            }
            self.measure(fs);
            return Ok(());
        }
        if end > self.size && self.seals & SEAL_GROW != 0 {
            return Err(Errno::EPERM);
        }
        let pages = off / PAGE..end.div_ceil(PAGE);
        fs.could_hold(pages.end - pages.start)?;
        self.own(cx, fs, end > HEAP_MAX)?;
        match &mut self.store {
            Store::Heap(heap) => heap_reserve(heap, fs, &self.charged, pages)?,
            Store::Mem(m) if fs.ensure_room(pages.end - pages.start).is_ok() => {
                host::allocate(&*m.rw()?, KEEP_SIZE, off, len)?
            }
            Store::Mem(m) => mem_reserve(m, fs, pages)?,
            Store::Lower(_) => return Err(Errno::EIO),
        }
        if mode & KEEP_SIZE == 0 && end > self.size {
            self.size = end;
            if let Store::Mem(m) = &self.store {
                host::truncate(&*m.rw()?, end)?;
            }
        }
        self.measure(fs);
        Ok(())
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `off`.
    pub fn seek(&self, off: u64, data: bool) -> Result<u64> {
        if off >= self.size {
            return Err(Errno::ENXIO);
        }
        match &self.store {
            Store::Heap(pages) => {
                let has = |i: u64| pages.contains_key(&i);
                let first = off / PAGE;
                if data {
                    if has(first) {
                        return Ok(off);
                    }
                    let next = pages.range(first..).next().map(|(i, _)| i * PAGE);
                    return next.filter(|&n| n < self.size).ok_or(Errno::ENXIO);
                }
                if !has(first) {
                    return Ok(off);
                }
                let mut i = first;
                while has(i) && i * PAGE < self.size {
                    i += 1;
                }
                Ok((i * PAGE).min(self.size))
            }
            Store::Mem(m) => host::seek_data_hole(&*m.rw()?, off, data),
            Store::Lower(l) => l.seek(off, data),
        }
    }

    /// The memory file; after [`Content::own`] with `mapped`.
    pub fn mem(&self) -> Option<&Arc<MemFile>> {
        match &self.store {
            Store::Mem(m) => Some(m),
            _ => None,
        }
    }

    /// The unchanged lower file.
    pub fn lower(&self) -> Option<&dyn LowerFile> {
        match &self.store {
            Store::Lower(l) => Some(&**l),
            _ => None,
        }
    }

    /// A memory file's descriptor, for sealing.
    pub fn fd(&self) -> Option<Arc<std::os::fd::OwnedFd>> {
        self.mem().and_then(|m| m.rw().ok())
    }
}

fn put(m: &MemFile, data: &[u8], off: u64) -> Result<()> {
    match host::pwrite_full(&*m.rw()?, data, off)? {
        n if n == data.len() => Ok(()),
        _ => Err(Errno::ENOSPC),
    }
}

/// Writes to heap pages; less than asked for when the limit is reached.
fn heap_write(
    pages: &mut BTreeMap<u64, Page>,
    fs: &TmpFs,
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
                if fs.charge(1).is_err() {
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

/// Reserves heap pages: all of them, or none and ENOSPC.
fn heap_reserve(
    heap: &mut BTreeMap<u64, Page>,
    fs: &TmpFs,
    charged: &Mutex<u64>,
    pages: Range<u64>,
) -> Result<()> {
    let holes: Vec<u64> = pages.filter(|i| !heap.contains_key(i)).collect();
    fs.charge(holes.len() as u64)?;
    *charged.lock() += holes.len() as u64;
    heap.extend(holes.into_iter().map(|i| (i, zero_page())));
    Ok(())
}

/// Reserves pages of a memory file close to the limit: all of them, or ENOSPC. Of a failure, pieces stay reserved that
/// had pages already.
fn mem_reserve(m: &MemFile, fs: &TmpFs, pages: Range<u64>) -> Result<()> {
    let fd = m.rw()?;
    let mut new = Vec::new();
    let mut before = m.measure(fs);
    let mut at = pages.start;
    while at < pages.end {
        let n = (pages.end - at).min(fs.room().clamp(1, RESERVE));
        host::allocate(&*fd, KEEP_SIZE, at * PAGE, n * PAGE)?;
        let now = m.measure(fs);
        if now >= before + n {
            new.push((at, n));
        }
        if fs.exceeded() {
            for (at, n) in new {
                host::allocate(&*fd, KEEP_SIZE | PUNCH_HOLE, at * PAGE, n * PAGE)?;
            }
            m.measure(fs);
            return Err(Errno::ENOSPC);
        }
        before = now;
        at += n;
    }
    Ok(())
}

/// Zeroes `off..end`, dropping whole pages; says how many.
fn heap_punch(pages: &mut BTreeMap<u64, Page>, off: u64, end: u64) -> u64 {
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
