//! Numbers that a kernel gives out.

use std::sync::atomic::{AtomicU32, Ordering};

/// Device numbers for the file systems of one kernel that have no device.
pub struct DeviceNumbers(AtomicU32);

/// The first one; those below are for internal file systems.
const FIRST_DEVICE: u32 = 32;

impl Default for DeviceNumbers {
    fn default() -> DeviceNumbers {
        DeviceNumbers(AtomicU32::new(FIRST_DEVICE))
    }
}

impl DeviceNumbers {
    /// A fresh one.
    pub fn alloc(&self) -> u64 {
        abi::stat::makedev(0, self.0.fetch_add(1, Ordering::Relaxed))
    }
}
