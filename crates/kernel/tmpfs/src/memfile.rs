//! Content in a file of the host's memory, from the moment somebody maps it.
//!
//! A mapping must not carry more rights than its open file has: whoever holds
//! a writable descriptor can map it writable. So there are two descriptors, and
//! the read-only one needs a file with a name to be opened by: in the directory
//! given to [`set_backing`], which nobody else sees. The name also allows
//! closing the descriptors of files that have not been used for long: the
//! sentry may not hold more than some thousands. Without the directory, and for
//! files that can be sealed, the content lives in a memfd whose only descriptor
//! stays open.
//!
//! Locks: an instance's list of files to measure, a file's charge, `FILES`, a file's descriptors; all are leaves to
//! everybody else.

use crate::fs::TmpFs;
use abi::Result;
use hostsys::fs::{self as host, Access};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

static BACKING: OnceLock<OwnedFd> = OnceLock::new();
/// Files with a name, whose descriptors can be had again.
static FILES: Mutex<Vec<Weak<MemFile>>> = Mutex::new(Vec::new());
/// Descriptors open on them.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// How many may be.
const MAX_OPEN: usize = 6000;

/// Gives the directory (of a private tmpfs that is not noexec) in which files are made. Once, at start.
pub fn set_backing(dir: OwnedFd) {
    let _ = BACKING.set(dir);
}

#[derive(Default)]
struct Descriptors {
    rw: Option<Arc<OwnedFd>>,
    ro: Option<Arc<OwnedFd>>,
}

/// A file in memory.
pub(crate) struct MemFile {
    name: Option<Vec<u8>>,
    fds: Mutex<Descriptors>,
    used: AtomicU64,
    pub charge: Charge,
}

/// What an instance counts for a memory file.
#[derive(Default)]
pub(crate) struct Charge {
    /// Pages; `None` when the file belongs to no instance any more.
    pages: Mutex<Option<u64>>,
    /// The instance has it on its list of charges to be measured.
    listed: AtomicBool,
    /// A shared mapping may fill pages at any time.
    mapped: AtomicBool,
}

impl MemFile {
    /// Charges `pages` that are charged already (the content's, before it came here).
    pub fn take_over(&self, pages: u64) {
        *self.charge.pages.lock() = Some(pages);
    }

    /// Measures the file, and charges what the host counts. Returns the number of pages.
    pub fn measure(&self, fs: &TmpFs) -> u64 {
        let mut pages = self.charge.pages.lock();
        let Some(old) = *pages else { return 0 };
        let Ok(a) = self.rw().and_then(|f| host::stat(&*f)) else { return old };
        let now = a.blocks.div_ceil(8);
        fs.recharge(old, now);
        *pages = Some(now);
        now
    }

    /// Charges a write of `pages` pages to a file of `most` pages, which may have touched holes: a guess that the
    /// instance corrects when it matters.
    pub fn estimate(self: &Arc<Self>, fs: &TmpFs, pages: u64, most: u64) {
        self.list(fs);
        let mut charged = self.charge.pages.lock();
        let Some(old) = *charged else { return };
        let new = (old + pages).min(most).max(old);
        fs.recharge(old, new);
        *charged = Some(new);
    }

    /// From now on mappings fill pages without the kernel's knowledge.
    pub fn set_mapped(self: &Arc<Self>, fs: &TmpFs) {
        self.charge.mapped.store(true, Ordering::Relaxed);
        self.list(fs);
    }

    fn list(self: &Arc<Self>, fs: &TmpFs) {
        if !self.charge.listed.swap(true, Ordering::Relaxed) {
            fs.to_measure(self);
        }
    }

    /// Measures as a member of the instance's list; false when it need not stay there.
    pub fn settle(&self, fs: &TmpFs) -> bool {
        let stays = self.charge.mapped.load(Ordering::Relaxed);
        self.charge.listed.store(stays, Ordering::Relaxed);
        self.measure(fs);
        stays
    }

    /// The content's inode goes: nothing is charged any more.
    pub fn release(&self, fs: &TmpFs) {
        let old = self.charge.pages.lock().take();
        fs.recharge(old.unwrap_or(0), 0);
    }
}

/// Ticks when a descriptor is opened, which is often enough to tell what was used long ago; looking at it is free.
static CLOCK: AtomicU64 = AtomicU64::new(1);

fn tick() -> u64 {
    CLOCK.fetch_add(1, Ordering::Relaxed)
}

impl MemFile {
    /// An empty one.
    pub fn new(sealable: bool) -> Result<Arc<MemFile>> {
        let dir = match BACKING.get() {
            Some(d) if !sealable => d,
            _ => {
                let rw = Some(Arc::new(host::memfd("tmpfs")?));
                let fds = Mutex::new(Descriptors { rw, ro: None });
                return Ok(Arc::new(MemFile {
                    name: None,
                    fds,
                    used: tick().into(),
                    charge: Charge::default(),
                }));
            }
        };
        close_unused();
        let name = format!("f{}", tick()).into_bytes();
        let rw = Some(Arc::new(host::create_at(dir, &name, Access::ReadWrite, 0o700)?));
        OPEN.fetch_add(1, Ordering::Relaxed);
        let fds = Mutex::new(Descriptors { rw, ro: None });
        let f = Arc::new(MemFile { name: Some(name), fds, used: tick().into(), charge: Charge::default() });
        let mut all = FILES.lock();
        if all.len() == all.capacity() {
            all.retain(|w| w.strong_count() != 0);
        }
        all.push(Arc::downgrade(&f));
        Ok(f)
    }

    fn open(
        &self,
        slot: fn(&mut Descriptors) -> &mut Option<Arc<OwnedFd>>,
        access: Access,
    ) -> Result<Arc<OwnedFd>> {
        let now = CLOCK.load(Ordering::Relaxed);
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
        let (Some(dir), Some(name)) = (BACKING.get(), &self.name) else {
            return self.fds.lock().rw.clone().ok_or(abi::Errno::EIO);
        };
        if let Some(fd) = slot(&mut self.fds.lock()) {
            return Ok(fd.clone());
        }
        close_unused();
        tick();
        let fd = Arc::new(host::open_at(dir, name, access)?);
        let mut fds = self.fds.lock();
        let place = slot(&mut fds);
        if place.is_none() {
            OPEN.fetch_add(1, Ordering::Relaxed);
        }
        Ok(place.get_or_insert(fd).clone())
    }

    /// For the kernel's own reads and writes, and for shared mappings of writers.
    pub fn rw(&self) -> Result<Arc<OwnedFd>> {
        self.open(|d| &mut d.rw, Access::ReadWrite)
    }

    /// For private mappings and those of readers.
    pub fn ro(&self) -> Result<Arc<OwnedFd>> {
        self.open(|d| &mut d.ro, Access::Read)
    }

    /// Closes what only we hold.
    fn close(&self) {
        let mut d = self.fds.lock();
        let gone = [take_unused(&mut d.rw), take_unused(&mut d.ro)];
        OPEN.fetch_sub(gone.iter().flatten().count(), Ordering::Relaxed);
        drop(d);
    }
}

fn take_unused(fd: &mut Option<Arc<OwnedFd>>) -> Option<Arc<OwnedFd>> {
    if fd.as_ref().is_some_and(|f| Arc::strong_count(f) == 1) { fd.take() } else { None }
}

/// When there are too many descriptors, closes those of the files used longest ago.
fn close_unused() {
    if OPEN.load(Ordering::Relaxed) < MAX_OPEN {
        return;
    }
    let mut all: Vec<Arc<MemFile>> = FILES.lock().iter().filter_map(Weak::upgrade).collect();
    all.sort_by_key(|f| f.used.load(Ordering::Relaxed));
    for f in &all[..all.len() / 2] {
        f.close();
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        let (Some(dir), Some(name)) = (BACKING.get(), &self.name) else { return };
        let d = self.fds.get_mut();
        OPEN.fetch_sub(usize::from(d.rw.is_some()) + usize::from(d.ro.is_some()), Ordering::Relaxed);
        if let Err(e) = host::unlink_at(dir, name, false) {
            log::warn!("backing file: {e}");
        }
    }
}
