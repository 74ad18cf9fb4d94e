//! Descriptor tables: numbers to open files.
//!
//! A number is reserved first ([`FdTable::reserve`]), filled later
//! ([`FdSlot::commit`]), so that a half-made file is never visible and a full
//! table is noticed before the work is done. Lock: a leaf; files are dropped
//! outside it. A checkpoint keeps what [`FdTableState`] has.

use abi::{Errno, Result};
use caller::quota::FileCount;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::Caller;
use vfs::file::OpenFile;
use vfs::in_use::{Shared, Users};

mod state;
pub use state::{DescriptorState, FdTableState};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

enum Slot {
    Free,
    Reserved,
    Used(Arc<OpenFile>, bool),
}

#[derive(Default)]
struct Inner {
    slots: Vec<Slot>,
    /// No number below is free.
    low: usize,
}

impl Inner {
    fn take(&mut self, fd: usize) -> Option<Arc<OpenFile>> {
        let s = self.slots.get_mut(fd)?;
        if !matches!(s, Slot::Used(..)) {
            return None;
        }
        let Slot::Used(f, _) = std::mem::replace(s, Slot::Free) else { return None };
        self.low = self.low.min(fd);
        Some(f)
    }

    fn lowest(&mut self, min: usize, limit: usize) -> Result<usize> {
        let from = self.low.max(min);
        let fd = (from..self.slots.len())
            .find(|&i| matches!(self.slots[i], Slot::Free))
            .unwrap_or(self.slots.len().max(from));
        if fd >= limit {
            return Err(Errno::EMFILE);
        }
        self.grow(fd);
        if min <= self.low {
            self.low = fd + 1;
        }
        Ok(fd)
    }

    fn grow(&mut self, fd: usize) {
        if fd >= self.slots.len() {
            self.slots.resize_with(fd + 1, || Slot::Free);
        }
    }
}

/// A descriptor table, shared between tasks with CLONE_FILES.
pub struct FdTable {
    /// Identity as owner of POSIX record locks.
    pub id: u64,
    users: Users,
    inner: read_biased_lock::RwLock<Inner>,
    /// Where its files are counted.
    files: Arc<FileCount>,
}

impl Shared for FdTable {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl FdTable {
    /// An empty table of a sandbox with these files.
    pub fn new(files: Arc<FileCount>) -> Arc<FdTable> {
        FdTable::with(files, Inner::default())
    }

    /// How many descriptors there may be, whatever RLIMIT_NOFILE says: fs.nr_open.
    fn cap(&self, limit: u64) -> usize {
        limit.min(self.files.nr_open()) as usize
    }

    fn with(files: Arc<FileCount>, inner: Inner) -> Arc<FdTable> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(FdTable { id, users: Users::default(), inner: read_biased_lock::RwLock::new(inner), files })
    }

    /// The open file behind `fd`; EBADF when there is none.
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>> {
        match self.inner.read().slots.get(fd as usize) {
            Some(Slot::Used(f, _)) => Ok(f.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    /// Takes the lowest free number below `limit` (the soft RLIMIT_NOFILE) for a file that is still to be opened;
    /// EMFILE, ENFILE.
    pub fn reserve(self: &Arc<FdTable>, limit: u64) -> Result<FdSlot> {
        let slot = self.reserve_from(0, limit)?;
        self.files.check()?;
        Ok(slot)
    }

    /// Takes the lowest free number from `min` on, for a file that is open; EMFILE.
    pub fn reserve_from(self: &Arc<FdTable>, min: u64, limit: u64) -> Result<FdSlot> {
        let mut t = self.inner.write();
        let fd = t.lowest(usize::try_from(min).unwrap_or(usize::MAX), self.cap(limit))?;
        t.slots[fd] = Slot::Reserved;
        Ok(FdSlot { table: self.clone(), fd: fd as i32, done: false })
    }

    /// Reserve and commit in one step.
    pub fn install(self: &Arc<FdTable>, file: Arc<OpenFile>, cloexec: bool, limit: u64) -> Result<i32> {
        let slot = if file.is_counted() { self.reserve_from(0, limit) } else { self.reserve(limit) }?;
        Ok(slot.commit(file, cloexec))
    }

    /// Puts `file` at exactly `fd` (dup2, dup3), closing what was there.
    pub fn install_at(
        &self,
        cx: &dyn Caller,
        fd: i32,
        file: Arc<OpenFile>,
        cloexec: bool,
        limit: u64,
    ) -> Result<()> {
        let i = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        if i >= self.cap(limit) {
            return Err(Errno::EBADF);
        }
        let old = {
            let mut t = self.inner.write();
            t.grow(i);
            match t.slots[i] {
                // Another thread is in the middle of an open that will get this number.
                Slot::Reserved => return Err(Errno::EBUSY),
                _ => std::mem::replace(&mut t.slots[i], Slot::Used(file, cloexec)),
            }
        };
        if let Slot::Used(f, _) = old {
            // dup2 ignores errors of the implied close.
            let _ = self.closed(cx, f, true);
        }
        Ok(())
    }

    /// Closes a descriptor.
    pub fn close(&self, cx: &dyn Caller, fd: i32) -> Result<()> {
        let f = self.inner.write().take(fd as usize).ok_or(Errno::EBADF)?;
        self.closed(cx, f, true)
    }

    /// What follows when a descriptor is gone. With `lingers` the caller waits for a connection that it was the last to have.
    fn closed(&self, cx: &dyn Caller, f: Arc<OpenFile>, lingers: bool) -> Result<()> {
        let lingering = if lingers { f.ops.lingering() } else { None };
        locks::records::posix_release(&f, self.id);
        vfs::notify::on_descriptor_close(cx, &f);
        let flushed = f.ops.flush(cx, &f);
        drop(f);
        if let Some(lingering) = lingering {
            lingering.wait(cx);
        }
        flushed
    }

    /// Closes `first..=last`.
    pub fn close_range(&self, cx: &dyn Caller, first: u32, last: u32) {
        self.close_span(cx, first, last, true);
    }

    fn close_span(&self, cx: &dyn Caller, first: u32, last: u32, lingers: bool) {
        let mut gone = Vec::new();
        {
            let mut t = self.inner.write();
            let end = t.slots.len().min((last as usize).saturating_add(1));
            for i in first as usize..end {
                gone.extend(t.take(i));
            }
        }
        for f in gone {
            let _ = self.closed(cx, f, lingers);
        }
    }

    /// Closes everything (the last task that uses the table exits, which waits for no connection).
    pub fn close_all(&self, cx: &dyn Caller) {
        self.close_span(cx, 0, u32::MAX, false);
    }

    /// Sets close-on-exec on `first..=last`.
    pub fn set_cloexec_range(&self, first: u32, last: u32) {
        let mut t = self.inner.write();
        let end = t.slots.len().min((last as usize).saturating_add(1));
        for i in first as usize..end {
            if let Slot::Used(_, c) = &mut t.slots[i] {
                *c = true;
            }
        }
    }

    /// FD_CLOEXEC of a descriptor.
    pub fn cloexec(&self, fd: i32) -> Result<bool> {
        match self.inner.read().slots.get(fd as usize) {
            Some(Slot::Used(_, c)) => Ok(*c),
            _ => Err(Errno::EBADF),
        }
    }

    /// Sets FD_CLOEXEC.
    pub fn set_cloexec(&self, fd: i32, on: bool) -> Result<()> {
        match self.inner.write().slots.get_mut(fd as usize) {
            Some(Slot::Used(_, c)) => {
                *c = on;
                Ok(())
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// A copy for a child or for unshare. EMFILE when it would be larger than fs.nr_open is now.
    pub fn fork_copy(&self) -> Result<Arc<FdTable>> {
        let last = self.inner.read().slots.iter().rposition(|slot| matches!(slot, Slot::Used(..)));
        // Linux's tables grow by 64 descriptors.
        if last.is_some_and(|last| last as u64 >= self.files.nr_open().next_multiple_of(64)) {
            return Err(Errno::EMFILE);
        }
        Ok(self.duplicate())
    }

    /// A copy; reserved numbers are free in it.
    pub fn duplicate(&self) -> Arc<FdTable> {
        let t = self.inner.read();
        let mut low = t.low;
        let mut slots: Vec<Slot> = Vec::with_capacity(t.slots.len());
        for (i, s) in t.slots.iter().enumerate() {
            slots.push(match s {
                Slot::Used(f, c) => Slot::Used(f.clone(), *c),
                _ => {
                    low = low.min(i);
                    Slot::Free
                }
            });
        }
        FdTable::with(self.files.clone(), Inner { slots, low })
    }

    /// Closes what is marked close-on-exec.
    pub fn close_on_exec(&self, cx: &dyn Caller) {
        let mut gone = Vec::new();
        {
            let mut t = self.inner.write();
            for i in 0..t.slots.len() {
                if matches!(t.slots[i], Slot::Used(_, true)) {
                    gone.extend(t.take(i));
                }
            }
        }
        for f in gone {
            let _ = self.closed(cx, f, true);
        }
    }

    /// Open numbers, ascending (/proc/PID/fd).
    pub fn numbers(&self) -> Vec<i32> {
        let t = self.inner.read();
        let used = t.slots.iter().enumerate().filter(|(_, s)| matches!(s, Slot::Used(..)));
        used.map(|(i, _)| i as i32).collect()
    }

    /// Every open file with its number and close-on-exec flag.
    pub fn entries(&self) -> Vec<(i32, Arc<OpenFile>, bool)> {
        let t = self.inner.read();
        let all = t.slots.iter().enumerate().filter_map(|(i, s)| match s {
            Slot::Used(f, c) => Some((i as i32, f.clone(), *c)),
            _ => None,
        });
        all.collect()
    }

    /// Size of the table (FDSize of /proc/PID/status).
    pub fn size(&self) -> usize {
        self.inner.read().slots.len().next_multiple_of(64)
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        for s in &self.inner.get_mut().slots {
            if let Slot::Used(f, _) = s {
                locks::records::posix_release(f, self.id);
            }
        }
    }
}

/// A reserved number. Dropping it gives the number back.
#[must_use]
pub struct FdSlot {
    table: Arc<FdTable>,
    fd: i32,
    done: bool,
}

impl FdSlot {
    /// The number.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// Makes `file` visible under the number, which it returns.
    pub fn commit(mut self, file: Arc<OpenFile>, cloexec: bool) -> i32 {
        file.count(&self.table.files);
        self.table.inner.write().slots[self.fd as usize] = Slot::Used(file, cloexec);
        self.done = true;
        self.fd
    }
}

impl Drop for FdSlot {
    fn drop(&mut self) {
        if !self.done {
            let mut t = self.table.inner.write();
            t.slots[self.fd as usize] = Slot::Free;
            t.low = t.low.min(self.fd as usize);
        }
    }
}
