//! The devices of a container and the files that are attached to them.

use crate::DEVICES;
use crate::info::Info64;
use abi::stat::S_IFREG;
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vfs::file::file_kind;
use vfs::{Caller, OpenFile};

/// Bytes of a sector, in which sizes are counted.
pub(crate) const SECTOR: u64 = 512;
/// LO_FLAGS_READ_ONLY, LO_FLAGS_AUTOCLEAR, LO_FLAGS_PARTSCAN, LO_FLAGS_DIRECT_IO.
pub(crate) const READ_ONLY: u32 = 1;
pub(crate) const AUTOCLEAR: u32 = 4;
pub(crate) const PARTSCAN: u32 = 8;
pub(crate) const DIRECT_IO: u32 = 16;

/// The loop devices of all containers of a kernel, by the container's number.
#[derive(Default)]
pub struct LoopsTable(Mutex<BTreeMap<u32, Weak<Loops>>>);

impl LoopsTable {
    /// The devices of a new container with this number.
    pub fn add(&self, container: u32) -> Arc<Loops> {
        let loops = Arc::default();
        let mut all = self.0.lock();
        all.retain(|_, loops| loops.strong_count() > 0);
        all.insert(container, Arc::downgrade(&loops));
        loops
    }

    /// The devices of a caller's container; ENXIO for the kernel itself.
    pub(crate) fn of(&self, cx: &dyn Caller) -> Result<Arc<Loops>> {
        let container = cx.container().ok_or(Errno::ENXIO)?;
        self.0.lock().get(&container).and_then(Weak::upgrade).ok_or(Errno::ENXIO)
    }
}

/// The loop devices of a container.
#[derive(Default)]
pub struct Loops(Mutex<BTreeMap<u32, Arc<Loop>>, { rank::LOOPS }>);

impl Loops {
    /// The device of this number, which comes into being with its first use. ENXIO beyond the last.
    pub(crate) fn at(&self, number: u32) -> Result<Arc<Loop>> {
        if number >= DEVICES {
            return Err(Errno::ENXIO);
        }
        Ok(self.0.lock().entry(number).or_insert_with(|| Loop::new(number)).clone())
    }

    /// The numbers of all devices that are there.
    pub fn numbers(&self) -> Vec<u32> {
        self.0.lock().keys().copied().collect()
    }

    /// What there is to tell of a device; `None` without it.
    pub fn about(&self, number: u32) -> Option<About> {
        let device = self.0.lock().get(&number).cloned()?;
        let bound = device.bound();
        let flags = bound.as_ref().map_or(0, |bound| bound.info.flags);
        Some(About {
            size: bound.as_ref().map_or(0, |bound| bound.size),
            block_size: bound.as_ref().map_or(SECTOR as u32, |bound| bound.block_size),
            read_ahead: device.read_ahead.load(Ordering::Relaxed),
            read_only: flags & READ_ONLY != 0,
            attached: bound.map(|bound| Attached {
                offset: bound.info.offset,
                size_limit: bound.info.size_limit,
                autoclear: flags & AUTOCLEAR != 0,
                partscan: flags & PARTSCAN != 0,
                direct_io: flags & DIRECT_IO != 0,
                file: bound.file,
            }),
        })
    }

    /// The container ends: nothing is attached any more.
    pub fn clear(&self) {
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        for device in all {
            let cleared = device.bound.lock().take();
            drop(cleared);
        }
    }

    /// LOOP_CTL_GET_FREE: the first device without a file. ENOSPC when all are in use.
    pub(crate) fn free(&self) -> Result<u32> {
        let mut all = self.0.lock();
        let free = |number: &u32| all.get(number).is_none_or(|device| device.bound.lock().is_none());
        let number = (0..DEVICES).find(free).ok_or(Errno::ENOSPC)?;
        all.entry(number).or_insert_with(|| Loop::new(number));
        Ok(number)
    }

    /// LOOP_CTL_ADD: the device of this number, or for a negative one the first that is not there. EEXIST, ENOSPC.
    pub(crate) fn add(&self, number: i32) -> Result<u32> {
        let mut all = self.0.lock();
        let number = match u32::try_from(number) {
            Ok(number) if number >= DEVICES => return Err(Errno::ENOSPC),
            Ok(number) if all.contains_key(&number) => return Err(Errno::EEXIST),
            Ok(number) => number,
            Err(_) => (0..DEVICES).find(|number| !all.contains_key(number)).ok_or(Errno::ENOSPC)?,
        };
        all.insert(number, Loop::new(number));
        Ok(number)
    }

    /// LOOP_CTL_REMOVE. EINVAL for a negative number, ENODEV, EBUSY while it is open or has a file.
    pub(crate) fn remove(&self, number: i32) -> Result<u32> {
        let number = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
        let mut all = self.0.lock();
        let device = all.get(&number).ok_or(Errno::ENODEV)?;
        if device.openers.load(Ordering::SeqCst) > 0 || device.bound.lock().is_some() {
            return Err(Errno::EBUSY);
        }
        all.remove(&number);
        Ok(number)
    }
}

/// What there is to tell of a device.
pub struct About {
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// BLKRAGET, in sectors.
    pub read_ahead: u64,
    /// Writing is not possible.
    pub read_only: bool,
    /// The file, if there is one.
    pub attached: Option<Attached>,
}

/// What is attached to a device, as programs said it.
pub struct Attached {
    /// The file.
    pub file: Arc<OpenFile>,
    /// Where in the file the device begins.
    pub offset: u64,
    /// Most bytes of the device, 0 for no limit.
    pub size_limit: u64,
    /// LO_FLAGS_AUTOCLEAR.
    pub autoclear: bool,
    /// LO_FLAGS_PARTSCAN.
    pub partscan: bool,
    /// LO_FLAGS_DIRECT_IO.
    pub direct_io: bool,
}

/// A device.
pub(crate) struct Loop {
    pub number: u32,
    /// Open files of it.
    openers: AtomicUsize,
    bound: Mutex<Option<Bound>>,
    /// BLKRASET, in sectors.
    pub read_ahead: AtomicU64,
}

/// A file that is attached.
#[derive(Clone)]
pub(crate) struct Bound {
    pub file: Arc<OpenFile>,
    /// Bytes of the device.
    pub size: u64,
    pub block_size: u32,
    /// As programs said it, its flags as they are.
    pub info: Info64,
    /// Detached by a program that still has the device open: the last close(2) makes room for another file.
    leaving: bool,
}

impl Bound {
    /// A file as LOOP_SET_FD attaches it. EINVAL for files that cannot be; `writable`: the device was opened for writing.
    pub(crate) fn new(file: &Arc<OpenFile>, writable: bool) -> Result<Bound> {
        // Files without storage are views of the kernel, which may keep the owner of the device alive.
        if file_kind(file) != S_IFREG || !file.ops.seekable() || file.ops.as_storage().is_none() {
            return Err(Errno::EINVAL);
        }
        if !file.readable() {
            return Err(Errno::EBADF);
        }
        let mut info = Info64::default();
        if !(writable && file.writable()) {
            info.flags |= READ_ONLY;
        }
        if file.flags() & libc::O_DIRECT != 0 {
            info.flags |= DIRECT_IO;
        }
        let mut bound =
            Bound { file: file.clone(), size: 0, block_size: SECTOR as u32, info, leaving: false };
        bound.measure()?;
        Ok(bound)
    }

    /// Takes offset, limit and size from `info` and the file as it is now.
    pub(crate) fn measure(&mut self) -> Result<()> {
        let own = self.file.attr()?.size.saturating_sub(self.info.offset);
        let limited = if self.info.size_limit == 0 { own } else { own.min(self.info.size_limit) };
        self.size = limited / SECTOR * SECTOR;
        Ok(())
    }

    /// LOOP_SET_STATUS64. EINVAL for encryption, EOVERFLOW for places that no file has.
    pub(crate) fn set(&mut self, wanted: &Info64) -> Result<()> {
        if wanted.encrypt_type != 0 || wanted.encrypt_key_size as usize > wanted.encrypt_key.len() {
            return Err(Errno::EINVAL);
        }
        if i64::try_from(wanted.offset).is_err() || i64::try_from(wanted.size_limit).is_err() {
            return Err(Errno::EOVERFLOW);
        }
        // The flag of partitions stays; none are looked for.
        let flags = self.info.flags & !AUTOCLEAR | wanted.flags & (AUTOCLEAR | PARTSCAN);
        let mut name = wanted.file_name;
        if let Some(last) = name.last_mut() {
            *last = 0;
        }
        self.info = Info64 {
            flags,
            file_name: name,
            offset: wanted.offset,
            size_limit: wanted.size_limit,
            ..Info64::default()
        };
        self.measure()
    }

    /// LOOP_GET_STATUS64.
    pub(crate) fn status(&self, number: u32) -> Result<Info64> {
        let file = self.file.attr()?;
        Ok(Info64 { device: file.dev, inode: file.ino, rdevice: file.rdev, number, ..self.info })
    }

    /// A size of blocks that a device can have: a power of two from a sector to a page.
    pub(crate) fn check_block_size(size: u64) -> Result<u32> {
        let fits = (SECTOR..=4096).contains(&size) && size.is_power_of_two();
        if fits { Ok(size as u32) } else { Err(Errno::EINVAL) }
    }
}

impl Loop {
    fn new(number: u32) -> Arc<Loop> {
        Arc::new(Loop {
            number,
            openers: AtomicUsize::new(0),
            bound: Mutex::new(None),
            read_ahead: AtomicU64::new(256),
        })
    }

    /// Counts an open file of it.
    pub(crate) fn opened(&self) {
        self.openers.fetch_add(1, Ordering::SeqCst);
    }

    /// An open file of it is gone. With the last one LO_FLAGS_AUTOCLEAR takes effect.
    pub(crate) fn closed(&self) {
        let mut bound = self.bound.lock();
        let last = self.openers.fetch_sub(1, Ordering::SeqCst) == 1;
        let cleared = match &*bound {
            Some(b) if last && (b.leaving || b.info.flags & AUTOCLEAR != 0) => bound.take(),
            _ => None,
        };
        drop(bound);
        drop(cleared);
    }

    /// What is attached.
    pub(crate) fn bound(&self) -> Option<Bound> {
        self.bound.lock().clone().filter(|bound| !bound.leaving)
    }

    /// Attaches a file. EBUSY while there is one.
    pub(crate) fn bind(&self, new: Bound) -> Result<()> {
        let mut bound = self.bound.lock();
        if bound.is_some() {
            return Err(Errno::EBUSY);
        }
        *bound = Some(new);
        Ok(())
    }

    /// LOOP_CLR_FD: the file stays for other programs that have the device open, and its place is taken until the last
    /// close(2). ENXIO without a file.
    pub(crate) fn clear(&self) -> Result<()> {
        let mut bound = self.bound.lock();
        let attached = bound.as_mut().filter(|bound| !bound.leaving).ok_or(Errno::ENXIO)?;
        attached.info.flags |= AUTOCLEAR;
        attached.leaving = self.openers.load(Ordering::SeqCst) == 1;
        Ok(())
    }

    /// Changes what is attached, as it is afterwards. ENXIO without a file.
    pub(crate) fn change(&self, how: impl FnOnce(&mut Bound) -> Result<()>) -> Result<()> {
        // The file is asked for its size without the lock; two changes at once leave one of them.
        let mut new = self.bound().ok_or(Errno::ENXIO)?;
        how(&mut new)?;
        let mut bound = self.bound.lock();
        let old = bound.as_mut().filter(|bound| !bound.leaving).ok_or(Errno::ENXIO)?;
        std::mem::swap(old, &mut new);
        drop(bound);
        Ok(())
    }
}
