//! Content in a file of the host's memory, from the first mapping on.
//!
//! A mapping must not carry more rights than its open file has: a process that holds a writable descriptor can map it
//! writable. So there are two descriptors. The read-only one needs a file with a name to be opened by. That name is in
//! the directory given to [`MemFiles::new`], which no other code sees. The name also allows closing the descriptors of
//! files that have not been used for long: the sentry may not hold more than some thousands. Without the directory, and
//! for files that can be sealed, the content lives in a memfd with one descriptor, which stays open.
//!
//! Locks: an instance's list of files to measure, a file's charge, `FILES`, a file's descriptors; all are leaves for
//! other modules.

use crate::limit::Limit;
use abi::{Errno, Result};
use caller::{DeviceNumbers, quota};
use hostsys::fs::{self as host, Access};
use hosttree::{DirectoryRef, Rights};
use lock_order::{Mutex, rank};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Most descriptors open on files with a name; beyond, those of files used longest ago are closed.
const MAX_OPEN: usize = 6000;

/// Of the files with a name: the sentry's own.
const RIGHTS: Rights = Rights { mode: 0o700, uid: 0, gid: 0 };

/// The memory files of a kernel.
pub struct MemFiles {
    /// Of the file systems that own the files, and of the kernel's others.
    pub device_numbers: Arc<DeviceNumbers>,
    dir: Option<DirectoryRef>,
    /// Files with a name: their descriptors can be opened again.
    named: Mutex<Vec<Weak<MemFile>>>,
    /// Descriptors open on them.
    open: Arc<AtomicUsize>,
    /// Ticks when a descriptor is opened, which is often enough to tell what was used long ago; looking at it is free.
    clock: AtomicU64,
}

/// Counts one descriptor until it is dropped.
struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    fn new(count: &Arc<AtomicUsize>) -> OpenCount {
        count.fetch_add(1, Ordering::Relaxed);
        OpenCount(count.clone())
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A descriptor of a file with a name.
struct Descriptor {
    fd: Arc<OwnedFd>,
    _open: OpenCount,
}

#[derive(Default)]
struct Descriptors {
    rw: Option<Descriptor>,
    ro: Option<Descriptor>,
}

enum Place {
    /// In the directory: opened as needed.
    Named(Vec<u8>, Mutex<Descriptors>),
    /// A memfd. Its descriptor stays open as long as the file lives. It is charged to a user where it can be sealed.
    Pinned(
        Arc<OwnedFd>,
        #[expect(dead_code, reason = "counts as long as the file lives")] Option<quota::Charge>,
    ),
}

/// A file in memory.
pub(crate) struct MemFile {
    home: Arc<MemFiles>,
    place: Place,
    used: AtomicU64,
    pub charge: Charge,
}

/// What an instance counts for a memory file.
#[derive(Default)]
pub(crate) struct Charge {
    /// Pages; `None` when the file belongs to no instance any more.
    pages: Mutex<Option<u64>, { rank::MEMORY_FILE }>,
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
    pub fn measure(&self, limit: &Limit) -> u64 {
        let mut pages = self.charge.pages.lock();
        let Some(old) = *pages else { return 0 };
        let Ok(a) = self.rw().and_then(|f| host::stat(&*f)) else { return old };
        let now = a.blocks.div_ceil(8);
        limit.recharge(old, now);
        *pages = Some(now);
        now
    }

    /// Charges `pages` more pages, and at most `most` in all.
    pub fn charge_at_most(&self, limit: &Limit, pages: u64, most: u64) {
        let mut charged = self.charge.pages.lock();
        let Some(old) = *charged else { return };
        let new = (old + pages).min(most).max(old);
        limit.recharge(old, new);
        *charged = Some(new);
    }

    /// From now on mappings fill pages without the kernel's knowledge.
    pub fn set_mapped(&self) {
        self.charge.mapped.store(true, Ordering::Relaxed);
    }

    /// Notes that the instance has the file on its list; returns whether it was there already.
    pub fn set_listed(&self) -> bool {
        self.charge.listed.swap(true, Ordering::Relaxed)
    }

    /// Measures as a member of the instance's list; false when it need not stay there.
    pub fn settle(&self, limit: &Limit) -> bool {
        let stays = self.charge.mapped.load(Ordering::Relaxed);
        self.charge.listed.store(stays, Ordering::Relaxed);
        self.measure(limit);
        stays
    }

    /// The content's inode goes: nothing is charged any more.
    pub fn release(&self, limit: &Limit) {
        let old = self.charge.pages.lock().take();
        limit.recharge(old.unwrap_or(0), 0);
    }
}

impl MemFiles {
    /// `dir`, of a private tmpfs that is not noexec, is where files with a name are made. Without it every file keeps a
    /// descriptor.
    pub fn new(dir: Option<DirectoryRef>) -> Arc<MemFiles> {
        Arc::new(MemFiles {
            device_numbers: Arc::default(),
            dir,
            named: Mutex::default(),
            open: Arc::default(),
            clock: AtomicU64::new(1),
        })
    }

    /// Memory of the host that the files with a name take, in bytes; 0 without a directory.
    pub fn bytes(&self) -> u64 {
        let stat = self.dir.as_ref().and_then(|dir| dir.statfs().ok());
        stat.map_or(0, |stat| stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_bsize as u64))
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// When there are too many descriptors, closes those of the files used longest ago.
    fn close_unused(&self) {
        if self.open.load(Ordering::Relaxed) < MAX_OPEN {
            return;
        }
        let mut all: Vec<Arc<MemFile>> = self.named.lock().iter().filter_map(Weak::upgrade).collect();
        all.sort_by_key(|f| f.used.load(Ordering::Relaxed));
        for f in &all[..all.len() / 2] {
            if let Place::Named(_, fds) = &f.place {
                let gone = std::mem::take(&mut *fds.lock());
                drop(gone);
            }
        }
    }

    fn remember(&self, f: &Arc<MemFile>) {
        let mut all = self.named.lock();
        if all.len() == all.capacity() {
            all.retain(|w| w.strong_count() != 0);
        }
        all.push(Arc::downgrade(f));
    }
}

impl MemFile {
    /// An empty one. One that can be sealed comes with what its user is charged for it.
    pub fn new(home: &Arc<MemFiles>, sealable: Option<quota::Charge>) -> Result<Arc<MemFile>> {
        let made = |place| {
            let (used, charge) = (home.tick().into(), Charge::default());
            Arc::new(MemFile { home: home.clone(), place, used, charge })
        };
        let dir = match &home.dir {
            Some(dir) if sealable.is_none() => dir,
            _ => {
                return Ok(made(Place::Pinned(Arc::new(host::memfd("tmpfs")?), sealable)));
            }
        };
        home.close_unused();
        let name = format!("f{}", home.tick()).into_bytes();
        let fd = Arc::new(dir.create(&name, RIGHTS)?.0);
        let rw = Some(Descriptor { fd, _open: OpenCount::new(&home.open) });
        let f = made(Place::Named(name, Mutex::new(Descriptors { rw, ro: None })));
        home.remember(&f);
        Ok(f)
    }

    fn open(
        &self,
        slot: fn(&mut Descriptors) -> &mut Option<Descriptor>,
        access: Access,
    ) -> Result<Arc<OwnedFd>> {
        let home = &self.home;
        let now = home.clock.load(Ordering::Relaxed);
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
        let (name, fds) = match &self.place {
            Place::Pinned(fd, _) => return Ok(fd.clone()),
            Place::Named(name, fds) => (name, fds),
        };
        if let Some(known) = slot(&mut fds.lock()) {
            return Ok(known.fd.clone());
        }
        home.close_unused();
        home.tick();
        let dir = home.dir.as_ref().ok_or(Errno::EIO)?;
        let new = Descriptor { fd: Arc::new(dir.open(name, access)?.0), _open: OpenCount::new(&home.open) };
        Ok(slot(&mut fds.lock()).get_or_insert(new).fd.clone())
    }

    /// For the kernel's own reads and writes, and for shared mappings of writers.
    pub fn rw(&self) -> Result<Arc<OwnedFd>> {
        self.open(|d| &mut d.rw, Access::ReadWrite)
    }

    /// A descriptor that can only read; `None` when the file has no such.
    pub fn reader(&self) -> Option<Arc<OwnedFd>> {
        match self.place {
            Place::Named(..) => self.ro().ok(),
            Place::Pinned(..) => None,
        }
    }

    /// For private mappings and those of readers.
    pub fn ro(&self) -> Result<Arc<OwnedFd>> {
        self.open(|d| &mut d.ro, Access::Read)
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        let (Some(dir), Place::Named(name, _)) = (&self.home.dir, &self.place) else { return };
        if let Err(e) = dir.unlink(name, false) {
            log::warn!("backing file: {e}");
        }
    }
}
