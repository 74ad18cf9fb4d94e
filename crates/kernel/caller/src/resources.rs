//! What the subsystems of one kernel share. Two kernels in one process have nothing of it in common.

use crate::lock_waits::LockWaits;
use crate::numbers::DeviceNumbers;
use crate::pace::OutsideWaits;
use crate::quota::Quotas;
use crate::timer::TimerService;
use ktime::Clock;
use lock_order::{Mutex, rank};
use rights::mode::Protected;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use user_ns::UserNamespace;

/// Most file systems on top of each other, the lowest not counted (FILESYSTEM_MAX_STACK_DEPTH).
pub const MAX_STACK_DEPTH: u32 = 2;

/// Inode number of the inode that all anonymous descriptors share, the first one of the internal file systems.
pub const ANONYMOUS_INODE: u64 = 4096;

/// Limits, numbers, deadlines and locks of one kernel that belong to no single object. A checkpoint keeps the limits.
pub struct Resources {
    /// The kernel's initial user namespace.
    pub user_ns: Arc<UserNamespace>,
    /// How many objects there may be.
    pub quotas: Arc<Quotas>,
    /// Of file systems without a device.
    pub device_numbers: Arc<DeviceNumbers>,
    /// The kernel's monotonic clock.
    pub clock: Clock,
    /// Runs callbacks at deadlines.
    pub timers: Arc<TimerService>,
    /// Threads that wait for programs outside this kernel.
    pub outside_waits: OutsideWaits,
    /// Waits for POSIX record locks.
    pub lock_waits: LockWaits,
    /// fs.lease-break-time, in seconds; 0 for no limit.
    pub lease_break_time: AtomicU32,
    /// fs.protected_symlinks and its like.
    pub protected: Protected,
    /// Held while one epoll begins to watch another, so that they make no loop.
    pub epoll_nesting: Mutex<(), { rank::EPOLL_NESTING }>,
    /// Held while a directory moves to another parent, so that none becomes its own ancestor: one for each depth of stacked
    /// file systems, as a rename on top makes one below.
    renames: [Mutex<(), { rank::RENAME }>; MAX_STACK_DEPTH as usize + 1],
    /// Operations that a policy is about: a bit for each `policy::Kind`.
    pub policed: Arc<AtomicU64>,
    next_ino: AtomicU64,
    next_cookie: AtomicU32,
}

impl Resources {
    /// With these limits, in this initial user namespace; `device_numbers` may be in use already.
    pub fn new(
        quotas: Arc<Quotas>,
        user_ns: Arc<UserNamespace>,
        device_numbers: Arc<DeviceNumbers>,
        clock: Clock,
    ) -> Arc<Resources> {
        Arc::new(Resources {
            user_ns,
            quotas,
            device_numbers,
            clock,
            timers: Arc::new(TimerService::new(clock)),
            outside_waits: OutsideWaits::default(),
            lock_waits: LockWaits::default(),
            lease_break_time: AtomicU32::new(45),
            protected: Protected::default(),
            epoll_nesting: Mutex::default(),
            renames: Default::default(),
            policed: Arc::default(),
            next_ino: AtomicU64::new(ANONYMOUS_INODE + 1),
            next_cookie: AtomicU32::new(1),
        })
    }

    /// A fresh inode number of the internal file systems.
    pub fn next_ino(&self) -> u64 {
        self.next_ino.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that comes next.
    pub fn coming_ino(&self) -> u64 {
        self.next_ino.load(Ordering::Relaxed)
    }

    /// Gives none below this any more, for a checkpoint with inodes of such numbers.
    pub fn skip_inos(&self, below: u64) {
        // As many as there are will not be used up.
        const HIGHEST: u64 = 1 << 48;
        self.next_ino.fetch_max(below.min(HIGHEST), Ordering::Relaxed);
    }

    /// The lock of renames in file systems with `depth` others below them.
    pub fn renames(&self, depth: u32) -> &Mutex<(), { rank::RENAME }> {
        &self.renames[depth.min(MAX_STACK_DEPTH) as usize]
    }

    /// A cookie that ties the two halves of a rename together (inotify(7)).
    pub fn next_cookie(&self) -> u32 {
        self.next_cookie.fetch_add(1, Ordering::Relaxed)
    }
}
