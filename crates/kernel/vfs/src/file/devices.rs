//! What opening a device number or a FIFO does: a registry that the crates
//! with the drivers fill when the kernel starts.

use super::{Caller, FileOps, OpenFile};
use crate::inode::InodeRef;
use crate::mount::Path;
use ::caller::Outcome;
use abi::Errno;
use abi::stat::{major, minor};
use lock_order::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What opening gave.
pub enum Opened {
    /// Operations for a new open file.
    Ops(Arc<dyn FileOps>),
    /// A complete open file (of /dev/ptmx, which knows its own place).
    File(Arc<OpenFile>),
}

/// Opens a device or a FIFO found at `path`. `flags` are open(2)'s. May block through the caller's waiter.
pub trait Opener: Send + Sync {
    /// Does it.
    fn open(&self, cx: &dyn Caller, path: &Path, inode: &InodeRef, flags: i32) -> Outcome<Opened>;
}

impl<F> Opener for F
where
    F: Fn(&dyn Caller, &Path, &InodeRef, i32) -> Outcome<Opened> + Send + Sync,
{
    fn open(&self, cx: &dyn Caller, path: &Path, inode: &InodeRef, flags: i32) -> Outcome<Opened> {
        self(cx, path, inode, flags)
    }
}

#[derive(Clone)]
struct Driver {
    name: &'static str,
    opener: Arc<dyn Opener>,
}

type Drivers = BTreeMap<(u32, u32), (u32, Driver)>;

/// The lines of /proc/devices.
fn names(drivers: &Drivers) -> Vec<(u32, &'static str)> {
    let mut v: Vec<_> = drivers.iter().map(|((major, _), (_, d))| (*major, d.name)).collect();
    v.dedup();
    v
}

/// The driver of a device number.
fn driver_of(drivers: &Drivers, rdev: u64) -> Option<Driver> {
    let (ma, mi) = (major(rdev), minor(rdev));
    let (_, (last, d)) = drivers.range((ma, 0)..=(ma, mi)).next_back()?;
    (mi <= *last).then(|| d.clone())
}

/// Opens no named pipe: ENXIO.
pub(super) struct NoFifos;

impl Opener for NoFifos {
    fn open(&self, _cx: &dyn Caller, _path: &Path, _inode: &InodeRef, _flags: i32) -> Outcome<Opened> {
        Err(Errno::ENXIO.into())
    }
}

/// The drivers of a kernel.
pub struct Devices {
    /// Character devices by major and first minor number, with the last minor number.
    char: RwLock<Drivers>,
    /// Block devices in the same way.
    block: RwLock<Drivers>,
    /// Opens named pipes.
    fifo: Arc<dyn Opener>,
}

impl Devices {
    /// No drivers yet; `fifo` opens named pipes.
    pub(super) fn new(fifo: Arc<dyn Opener>) -> Devices {
        Devices { char: RwLock::default(), block: RwLock::default(), fifo }
    }

    /// Registers a driver for character devices `major`:`minors`; `name` is for /proc/devices.
    pub fn register_char(
        &self,
        name: &'static str,
        major: u32,
        minors: std::ops::RangeInclusive<u32>,
        opener: Arc<dyn Opener>,
    ) {
        self.char.write().insert((major, *minors.start()), (*minors.end(), Driver { name, opener }));
    }

    /// Registers a driver for block devices `major`:`minors`.
    pub fn register_block(
        &self,
        name: &'static str,
        major: u32,
        minors: std::ops::RangeInclusive<u32>,
        opener: Arc<dyn Opener>,
    ) {
        self.block.write().insert((major, *minors.start()), (*minors.end(), Driver { name, opener }));
    }

    /// Lines of the character part of /proc/devices: major and name.
    pub fn char_devices(&self) -> Vec<(u32, &'static str)> {
        names(&self.char.read())
    }

    /// Lines of the block part of /proc/devices.
    pub fn block_devices(&self) -> Vec<(u32, &'static str)> {
        names(&self.block.read())
    }

    /// Opens a character device; ENXIO without a driver.
    pub fn open_char(
        &self,
        cx: &dyn Caller,
        path: &Path,
        inode: &InodeRef,
        rdev: u64,
        flags: i32,
    ) -> Outcome<Opened> {
        let driver = driver_of(&self.char.read(), rdev).ok_or(Errno::ENXIO)?;
        driver.opener.open(cx, path, inode, flags)
    }

    /// Opens a block device; ENXIO without a driver.
    pub fn open_block(
        &self,
        cx: &dyn Caller,
        path: &Path,
        inode: &InodeRef,
        rdev: u64,
        flags: i32,
    ) -> Outcome<Opened> {
        let driver = driver_of(&self.block.read(), rdev).ok_or(Errno::ENXIO)?;
        driver.opener.open(cx, path, inode, flags)
    }

    /// Opens a named pipe.
    pub fn open_fifo(&self, cx: &dyn Caller, path: &Path, inode: &InodeRef, flags: i32) -> Outcome<Opened> {
        self.fifo.open(cx, path, inode, flags)
    }
}
