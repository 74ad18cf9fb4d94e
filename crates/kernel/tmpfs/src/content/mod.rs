//! The bytes of a regular file: pages on the heap while the file is small and not mapped, a file in the host's memory
//! afterwards, or still the unchanged lower file. An instance with a file of the host for its data
//! ([`FileStore`](crate::FileStore)) keeps pages there instead of on the heap, for files of any size. The pages of a
//! mapped file stay reserved there, so that the host counts them.
//!
//! Holes stay holes in all of them. The instance's limit is charged per page; memory files are charged by the host's
//! block count. Writes to them are estimated, and mappings fill pages without the kernel's knowledge, so the instance
//! measures such files before it refuses anything ([`Storage::settle`]).
//!
//! Key type: [`Content`]. Its child `pages` changes pages and charges them. Neighbours: `storage`, `memfile` and
//! `filestore` below; `inode` and `open_file` hold the lock of the content (rank `TMPFS_CONTENT`) while they call.
//! A checkpoint keeps the bytes, the holes, the seals and whether the content is still the lower file's.

mod pages;
mod state;

pub use self::state::ContentState;

use self::pages::{
    copy_extents, disk_reserve, disk_write, heap_punch, heap_reserve, heap_write, mem_reserve, put, uncharge,
};
use crate::filestore::Extents;
use crate::lower_file::LowerFile;
use crate::memfile::MemFile;
use crate::storage::Storage;
use abi::{Errno, PAGE_SIZE as PAGE, Result};
use caller::quota::{Charge, Kind};
use hostsys::fs as host;
use hostsys::memfd::CopyArea;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::{Caller, LentFd};

/// Larger files live in memory files from the start.
const HEAP_MAX: u64 = 1 << 20;
/// Largest file (s_maxbytes).
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;

/// FALLOC_FL_KEEP_SIZE.
const KEEP_SIZE: i32 = 1;
/// FALLOC_FL_PUNCH_HOLE.
const PUNCH_HOLE: i32 = 2;
// F_SEAL_*: see fcntl(2).
pub(crate) const SEAL_SEAL: u32 = 1;
pub(crate) const SEAL_SHRINK: u32 = 2;
pub(crate) const SEAL_GROW: u32 = 4;
pub(crate) const SEAL_WRITE: u32 = 8;
pub(crate) const SEAL_FUTURE_WRITE: u32 = 16;
pub(crate) const SEAL_EXEC: u32 = 32;

type Page = Box<[u8]>;

enum Store {
    Heap(BTreeMap<u64, Page>),
    Disk(Extents),
    Mem(Arc<MemFile>),
    Lower(Arc<dyn LowerFile>),
}

/// What content is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A change.
    Change,
    /// A change that may be beyond what the heap is for.
    Large,
    /// A mapping: a descriptor of its own.
    Mapping,
}

/// The content of one regular file.
pub(crate) struct Content {
    size: u64,
    store: Store,
    /// Of a file that moved to memory to be mapped: its pages in the instance's file.
    reserved: Option<Extents>,
    /// Heap and disk pages charged to the instance; memory files keep their own count.
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
            reserved: None,
            charged: Mutex::new(0),
            seals: SEAL_SEAL,
            sealable: false,
        }
    }

    /// The unchanged content of a lower file.
    pub fn of_lower(lower: Box<dyn LowerFile>, size: u64) -> Content {
        Content { size, store: Store::Lower(Arc::from(lower)), ..Content::empty() }
    }

    /// The inode goes: gives back what is charged.
    pub fn release(&mut self, storage: &Storage) {
        storage.pages.recharge(std::mem::take(self.charged.get_mut()), 0);
        if let Store::Mem(m) = &self.store {
            m.release(&storage.pages);
        }
    }

    /// Size and 512-byte blocks.
    pub fn size_and_blocks(&self) -> (u64, u64) {
        match &self.store {
            Store::Heap(p) => (self.size, p.len() as u64 * 8),
            Store::Disk(e) => (self.size, e.pages() * 8),
            Store::Mem(m) => (self.size, m.rw().and_then(|f| host::stat(&*f)).map_or(0, |a| a.blocks)),
            Store::Lower(l) => (self.size, l.blocks()),
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What a program's own thread can read the content by; see [`vfs::MapOps::lend`].
    pub fn lend(&self, cx: &dyn Caller, off: u64, len: usize) -> Option<LentFd> {
        if self.size < off + len as u64 {
            return None;
        }
        match &self.store {
            // The file of an overlay holds the data of all its files, so it is never lent.
            Store::Heap(_) | Store::Disk(_) => None,
            Store::Mem(m) => Some(LentFd { fd: m.reader()?, after: None }),
            Store::Lower(l) => l.lend(cx, off, len),
        }
    }

    fn measure(&self, storage: &Storage) {
        if let Store::Mem(m) = &self.store {
            m.measure(&storage.pages);
        }
    }

    /// From now on the content lives in `m`, which takes over the charge.
    fn move_to(&mut self, m: Arc<MemFile>) {
        m.take_over(std::mem::take(self.charged.get_mut()));
        if let Store::Disk(pages) = std::mem::replace(&mut self.store, Store::Mem(m)) {
            self.reserved = Some(pages);
        }
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
            Store::Disk(e) => e.read(buf, off),
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
            Store::Disk(e) => e.read_to(to, n, off),
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

    /// Brings the content to where it can be changed, or mapped.
    pub fn own(&mut self, cx: &dyn Caller, storage: &Storage, need: Need) -> Result<()> {
        let disk = storage.file.as_ref().filter(|_| !self.sealable);
        match (&self.store, disk) {
            (Store::Mem(_), _) => return Ok(()),
            (Store::Heap(pages), Some(disk)) if pages.is_empty() && need != Need::Mapping => {
                self.store = Store::Disk(Extents::new(disk));
                return Ok(());
            }
            (Store::Heap(_), _) if need == Need::Change => return Ok(()),
            (Store::Disk(_), _) if need != Need::Mapping => return Ok(()),
            (Store::Heap(_) | Store::Disk(_), _) => self.move_to_memory(cx, storage)?,
            (Store::Lower(_), Some(_)) => {
                self.copy_up_to_disk(cx, storage)?;
                if need == Need::Mapping {
                    self.move_to_memory(cx, storage)?;
                }
            }
            (Store::Lower(_), None) => self.copy_up(cx, storage, need)?,
        }
        self.measure(storage);
        Ok(())
    }

    /// Moves pages to a memory file.
    fn move_to_memory(&mut self, cx: &dyn Caller, storage: &Storage) -> Result<()> {
        let size = self.size;
        let m = MemFile::new(&storage.memory, self.charge_sealable(cx)?)?;
        host::truncate(&*m.rw()?, size)?;
        match &self.store {
            Store::Heap(pages) => {
                for (i, p) in pages {
                    let len = (size.saturating_sub(i * PAGE)).min(PAGE) as usize;
                    // What was written or reserved stays so, zeros and what lies beyond the end included.
                    if len == 0 {
                        host::allocate(&*m.rw()?, KEEP_SIZE, i * PAGE, PAGE)?;
                    } else {
                        put(&m, &p[..len], i * PAGE)?;
                    }
                }
            }
            Store::Disk(pages) => copy_extents(pages, &m, size)?,
            Store::Mem(_) | Store::Lower(_) => return Err(Errno::EIO),
        }
        let seals = self.seals & (SEAL_SHRINK | SEAL_GROW | SEAL_WRITE | SEAL_FUTURE_WRITE);
        if self.sealable && seals != 0 {
            host::add_seals(&*m.rw()?, seals)?;
        }
        self.move_to(m);
        Ok(())
    }

    /// Copies the lower file to the heap, or, when it is large or to be mapped, to a memory file.
    fn copy_up(&mut self, cx: &dyn Caller, storage: &Storage, need: Need) -> Result<()> {
        let size = self.size;
        let heap = need == Need::Change && size <= HEAP_MAX;
        let mut pages = BTreeMap::new();
        let mem = if heap { None } else { Some(MemFile::new(&storage.memory, None)?) };
        if let Some(m) = &mem {
            storage.ensure_room(size.div_ceil(PAGE))?;
            host::truncate(&*m.rw()?, size)?;
        } else {
            storage.charge(size.div_ceil(PAGE))?;
            *self.charged.lock() = size.div_ceil(PAGE);
        }
        self.each_lower(cx, &mut |data, off| {
            match &mem {
                // Zeros of the lower file become holes.
                Some(_) if data.iter().all(|&b| b == 0) => {}
                Some(m) => put(m, data, off)?,
                None => {
                    for (i, c) in data.chunks(PAGE as usize).enumerate() {
                        let mut p = zero_page();
                        p[..c.len()].copy_from_slice(c);
                        pages.insert(off / PAGE + i as u64, p);
                    }
                }
            }
            Ok(())
        })?;
        match mem {
            Some(m) => self.move_to(m),
            None => self.store = Store::Heap(pages),
        }
        Ok(())
    }

    /// Copies the lower file to the instance's file.
    fn copy_up_to_disk(&mut self, cx: &dyn Caller, storage: &Storage) -> Result<()> {
        let Some(store) = &storage.file else { return Err(Errno::EIO) };
        let mut extents = Extents::new(store);
        let charged = Mutex::new(0);
        let copied = self.each_lower(cx, &mut |data, off| {
            // Zeros of the lower file become holes.
            if data.iter().all(|&b| b == 0) {
                return Ok(());
            }
            match disk_write(&mut extents, storage, &charged, data, off)? {
                n if n == data.len() => Ok(()),
                _ => Err(Errno::ENOSPC),
            }
        });
        match copied {
            Ok(()) => {
                *self.charged.get_mut() = *charged.lock();
                self.store = Store::Disk(extents);
                Ok(())
            }
            Err(e) => {
                storage.pages.recharge(*charged.lock(), 0);
                Err(e)
            }
        }
    }

    /// Feeds the lower file's bytes, in pieces that begin at a page.
    fn each_lower(&self, cx: &dyn Caller, to: &mut dyn FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let Store::Lower(l) = &self.store else { return Err(Errno::EIO) };
        let mut buf = vec![0; 256 * 1024];
        let mut off = 0;
        while off < self.size {
            // A piece that is not whole is not the start of the next page.
            let mut n = 0;
            let wanted = buf.len().min(usize::try_from(self.size - off).unwrap_or(usize::MAX));
            while n < wanted {
                match l.read(cx, &mut buf[n..wanted], off + n as u64)? {
                    0 => break,
                    got => n += got,
                }
            }
            if n == 0 {
                break;
            }
            to(&buf[..n], off)?;
            off += n as u64;
        }
        Ok(())
    }

    /// Forgets everything (O_TRUNC of a lower file needs no copy).
    fn clear(&mut self, storage: &Storage) {
        let mut c = self.charged.lock();
        storage.pages.recharge(*c, 0);
        *c = 0;
        drop(c);
        self.store = Store::Heap(BTreeMap::new());
        self.reserved = None;
        self.size = 0;
    }

    /// Writes at `off`, or at the end. Returns the count and the offset behind it.
    pub fn write(
        &mut self,
        cx: &dyn Caller,
        storage: &Storage,
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
        self.own(cx, storage, if end > HEAP_MAX { Need::Large } else { Need::Change })?;
        let done = match &mut self.store {
            Store::Heap(pages) => {
                let done = heap_write(pages, storage, &self.charged, &buf[..n], off);
                if done == 0 && n > 0 {
                    return Err(Errno::ENOSPC);
                }
                done
            }
            Store::Disk(extents) => disk_write(extents, storage, &self.charged, &buf[..n], off)?,
            Store::Mem(m) => {
                let pages = end.div_ceil(PAGE) - off / PAGE;
                if storage.ensure_room(pages).is_err() {
                    let m = m.clone();
                    return self.write_tight(storage, &m, &buf[..n], off);
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
            && storage.pages.limited()
        {
            storage.estimate(m, end.div_ceil(PAGE) - off / PAGE, self.size.div_ceil(PAGE));
        }
        Ok((done, end))
    }

    /// A write to a memory file close to the limit, page by page. A page that turns out to have been a hole, and for
    /// which there is no room, becomes one again.
    fn write_tight(&mut self, storage: &Storage, m: &MemFile, buf: &[u8], off: u64) -> Result<(usize, u64)> {
        let fd = m.rw()?;
        let mut done = 0;
        let mut before = m.measure(&storage.pages);
        while done < buf.len() {
            let at = off + done as u64;
            let len = ((PAGE - at % PAGE) as usize).min(buf.len() - done);
            let wrote = host::pwrite_full(&*fd, &buf[done..done + len], at)?;
            let now = m.measure(&storage.pages);
            if now > before && storage.pages.exceeded() {
                host::allocate(&*fd, KEEP_SIZE | PUNCH_HOLE, at / PAGE * PAGE, PAGE)?;
                host::truncate(&*fd, self.size)?;
                m.measure(&storage.pages);
                break;
            }
            before = now;
            done += wrote;
            self.size = self.size.max(off + done as u64);
        }
        if done == 0 && !buf.is_empty() { Err(Errno::ENOSPC) } else { Ok((done, off + done as u64)) }
    }

    /// Changes the size.
    pub fn truncate(&mut self, cx: &dyn Caller, storage: &Storage, size: u64) -> Result<()> {
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        if size < self.size && self.seals & SEAL_SHRINK != 0
            || size > self.size && self.seals & SEAL_GROW != 0
        {
            return Err(Errno::EPERM);
        }
        if size == 0 && matches!(self.store, Store::Lower(_)) {
            self.clear(storage);
            return Ok(());
        }
        if size == self.size {
            return Ok(());
        }
        self.own(cx, storage, Need::Change)?;
        match &mut self.store {
            Store::Heap(pages) => {
                let gone = pages.split_off(&size.div_ceil(PAGE)).len() as u64;
                let mut c = self.charged.lock();
                storage.pages.recharge(gone, 0);
                *c = c.saturating_sub(gone);
                if let Some(p) = pages.get_mut(&(size / PAGE)) {
                    p[(size % PAGE) as usize..].fill(0);
                }
            }
            Store::Disk(extents) => {
                let mut gone = 0;
                if size < self.size {
                    // The rest of the last page reads as zeros should the file grow again.
                    extents.punch(size, size.next_multiple_of(PAGE))?;
                    gone = extents.free_from(size.div_ceil(PAGE));
                }
                uncharge(&storage.pages, &self.charged, gone);
            }
            Store::Mem(m) => {
                host::truncate(&*m.rw()?, size)?;
                if let Some(extents) = &mut self.reserved {
                    extents.free_from(size.div_ceil(PAGE));
                }
            }
            Store::Lower(_) => return Err(Errno::EIO),
        }
        self.size = size;
        self.measure(storage);
        Ok(())
    }

    /// fallocate(2): mode 0, KEEP_SIZE, PUNCH_HOLE.
    pub fn allocate(
        &mut self,
        cx: &dyn Caller,
        storage: &Storage,
        mode: i32,
        off: u64,
        len: u64,
    ) -> Result<()> {
        if mode & !(KEEP_SIZE | PUNCH_HOLE) != 0 || mode == PUNCH_HOLE {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = off.checked_add(len).filter(|&e| e <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        if mode & PUNCH_HOLE != 0 {
            if self.seals & (SEAL_WRITE | SEAL_FUTURE_WRITE) != 0 {
                return Err(Errno::EPERM);
            }
            self.own(cx, storage, Need::Change)?;
            match &mut self.store {
                Store::Heap(pages) => {
                    let gone = heap_punch(pages, off, end);
                    storage.pages.recharge(gone, 0);
                    let mut c = self.charged.lock();
                    *c = c.saturating_sub(gone);
                }
                Store::Disk(extents) => {
                    let gone = extents.punch(off, end)?;
                    uncharge(&storage.pages, &self.charged, gone);
                }
                Store::Mem(m) => {
                    host::allocate(&*m.rw()?, mode, off, len)?;
                    if let Some(extents) = &mut self.reserved {
                        extents.free(off.div_ceil(PAGE)..end / PAGE);
                    }
                }
                Store::Lower(_) => return Err(Errno::EIO),
            }
            self.measure(storage);
            return Ok(());
        }
        if end > self.size && self.seals & SEAL_GROW != 0 {
            return Err(Errno::EPERM);
        }
        let pages = off / PAGE..end.div_ceil(PAGE);
        storage.pages.could_hold(pages.end - pages.start)?;
        self.own(cx, storage, if end > HEAP_MAX { Need::Large } else { Need::Change })?;
        match &mut self.store {
            Store::Heap(heap) => heap_reserve(heap, storage, &self.charged, pages)?,
            Store::Disk(extents) => disk_reserve(extents, storage, &self.charged, pages)?,
            Store::Mem(m) if storage.ensure_room(pages.end - pages.start).is_ok() => {
                host::allocate(&*m.rw()?, KEEP_SIZE, off, len)?
            }
            Store::Mem(m) => mem_reserve(m, storage, pages)?,
            Store::Lower(_) => return Err(Errno::EIO),
        }
        if mode & KEEP_SIZE == 0 && end > self.size {
            self.size = end;
            if let Store::Mem(m) = &self.store {
                host::truncate(&*m.rw()?, end)?;
            }
        }
        self.measure(storage);
        Ok(())
    }

    /// SEEK_DATA (`data`) or SEEK_HOLE from `off`.
    pub fn seek(&self, cx: &dyn Caller, off: u64, data: bool) -> Result<u64> {
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
            Store::Disk(e) => e.seek(off, self.size, data),
            Store::Mem(m) => host::seek_data_hole(&*m.rw()?, off, data),
            Store::Lower(l) => l.seek(cx, off, data),
        }
    }

    /// The memory file; after [`Content::own`] for a mapping.
    pub fn mem(&self) -> Option<&Arc<MemFile>> {
        match &self.store {
            Store::Mem(m) => Some(m),
            _ => None,
        }
    }

    /// The unchanged lower file.
    pub fn lower(&self) -> Option<&Arc<dyn LowerFile>> {
        match &self.store {
            Store::Lower(l) => Some(l),
            _ => None,
        }
    }

    /// A memory file's descriptor, for sealing.
    pub fn fd(&self) -> Option<Arc<std::os::fd::OwnedFd>> {
        self.mem().and_then(|m| m.rw().ok())
    }
}
