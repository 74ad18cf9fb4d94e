//! What a task has read and written by system calls (/proc/PID/io).

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read and written, and calls that did it: rchar, wchar, syscr, syscw.
pub type IoTotals = [u64; 4];

/// The counts of one task. Only its own thread changes them, so adding is no atomic exchange.
#[derive(Default)]
pub struct IoCounts([AtomicU64; 4]);

impl IoCounts {
    fn add(&self, bytes: usize, calls: usize, n: u64) {
        for (i, more) in [(bytes, n), (calls, 1)] {
            if let Some(c) = self.0.get(i) {
                c.store(c.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
            }
        }
    }

    /// A call that reads has moved `n` bytes.
    pub fn read(&self, n: u64) {
        self.add(0, 2, n);
    }

    /// A call that writes has moved `n` bytes.
    pub fn wrote(&self, n: u64) {
        self.add(1, 3, n);
    }

    /// The counts now.
    pub fn now(&self) -> IoTotals {
        self.0.each_ref().map(|c| c.load(Ordering::Relaxed))
    }
}

/// Adds up counts.
pub fn add_io(to: &mut IoTotals, more: IoTotals) {
    for (a, b) in to.iter_mut().zip(more) {
        *a = a.wrapping_add(b);
    }
}
