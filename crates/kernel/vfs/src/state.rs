//! What the file layer of one kernel shares. Two kernels in one process have nothing of it in common.
//!
//! Reached through [`Caller::vfs`](crate::Caller::vfs). A checkpoint keeps the limits and settings; drivers and types are
//! registered again by the kernel that restores.

use crate::dcache::Dcache;
use crate::devices::Devices;
use crate::fstypes::FsTypes;
use crate::inode::{DeviceNumbers, InodeRef};
use crate::internal::{InternalFs, InternalInode};
use crate::locks::LockWaits;
use crate::mount::{Mount, MountFlags};
use crate::mount_table::MountTable;
use crate::pace::OutsideWaits;
use crate::quota::Quotas;
use crate::stack::MAX_DEPTH;
use crate::timer::TimerService;
use ranked::rank;
use rights::mode::Protected;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use user_ns::UserNamespace;

/// The file layer of one kernel.
pub struct Vfs {
    /// The kernel's initial user namespace.
    pub user_ns: Arc<UserNamespace>,
    /// How many objects there may be.
    pub quotas: Arc<Quotas>,
    /// Of file systems without a device.
    pub device_numbers: Arc<DeviceNumbers>,
    /// File system types of mount(2).
    pub types: FsTypes,
    /// Drivers of character devices and FIFOs.
    pub devices: Devices,
    /// Mounts: their numbers, and the lock under which they change.
    pub mounts: Arc<MountTable>,
    /// fs.protected_symlinks and its like.
    pub protected: Protected,
    /// fs.lease-break-time, in seconds.
    pub lease_break_time: AtomicU32,
    /// Who waits for whose record locks.
    pub(crate) lock_waits: LockWaits,
    /// Who waits for somebody outside.
    pub(crate) outside_waits: OutsideWaits,
    /// Held while a directory moves to another parent, so that none becomes its own ancestor: one for each depth of stacked file
    /// systems, as a rename on top makes one below.
    renames: [ranked::Mutex<(), { rank::RENAME }>; MAX_DEPTH as usize + 1],
    /// Held while one epoll begins to watch another, so that they make no loop.
    pub epoll_nesting: ranked::Mutex<(), { rank::EPOLL_NESTING }>,
    /// Runs what has a deadline.
    pub timers: Arc<TimerService>,
    anonymous: Arc<Mount>,
    anonymous_inode: InodeRef,
    next_ino: AtomicU64,
    next_cookie: AtomicU32,
}

/// Inode number of what all anonymous descriptors share, the first one of the internal file systems.
const ANONYMOUS: u64 = 4096;

impl Vfs {
    /// With these limits, in this initial user namespace, and without drivers, types and file systems.
    pub fn new(quotas: Arc<Quotas>, user_ns: Arc<UserNamespace>) -> Arc<Vfs> {
        Vfs::with_devices(quotas, user_ns, Arc::default())
    }

    /// The same with the device numbers of file systems that were made before.
    pub fn with_devices(
        quotas: Arc<Quotas>,
        user_ns: Arc<UserNamespace>,
        device_numbers: Arc<DeviceNumbers>,
    ) -> Arc<Vfs> {
        let mounts = Arc::new(MountTable::default());
        let anonymous = Mount::of(Arc::new(InternalFs::Anon), MountFlags::empty(), b"anon_inodefs");
        mounts.number(&anonymous);
        Arc::new(Vfs {
            user_ns,
            device_numbers,
            mounts,
            quotas,
            types: FsTypes::default(),
            devices: Devices::default(),
            protected: Protected::default(),
            lease_break_time: AtomicU32::new(45),
            lock_waits: LockWaits::default(),
            outside_waits: OutsideWaits::default(),
            renames: Default::default(),
            epoll_nesting: ranked::Mutex::default(),
            timers: Arc::default(),
            anonymous,
            anonymous_inode: Arc::new(InternalInode::new(ANONYMOUS, InternalFs::Anon, 0o600, 0, 0)),
            next_ino: AtomicU64::new(ANONYMOUS + 1),
            next_cookie: AtomicU32::new(1),
        })
    }

    /// The mount on which objects without a tree live.
    pub fn anonymous(&self) -> &Arc<Mount> {
        &self.anonymous
    }

    /// The inode that all anonymous descriptors share.
    pub fn anonymous_inode(&self) -> InodeRef {
        self.anonymous_inode.clone()
    }

    /// What all dentries share.
    pub fn dcache(&self) -> &Arc<Dcache> {
        &self.mounts.dcache
    }

    /// A fresh inode number of the internal file systems.
    pub fn next_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// The lock of renames in the file system of `inode`.
    pub(crate) fn renames(&self, inode: &InodeRef) -> &ranked::Mutex<(), { rank::RENAME }> {
        &self.renames[inode.fs().stack_depth().min(MAX_DEPTH) as usize]
    }

    /// A cookie that ties the two halves of a rename together.
    pub(crate) fn next_cookie(&self) -> u32 {
        self.next_cookie.fetch_add(1, Ordering::Relaxed)
    }
}
