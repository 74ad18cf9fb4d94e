//! Usage of tasks. See getrusage(2), proc_pid_io(5).

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

    /// Sets them, of a thread that does not run yet.
    pub fn set(&self, totals: IoTotals) {
        self.0.iter().zip(totals).for_each(|(count, n)| count.store(n, Ordering::Relaxed));
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

/// Accumulated processor time in nanoseconds and other rusage counts.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// User time of this process's earlier memory images.
    pub utime: u64,
    /// System time of threads that left.
    pub stime: u64,
    /// User time of waited-for children.
    pub child_utime: u64,
    /// System time of waited-for children.
    pub child_stime: u64,
    /// What threads that left, and waited-for children, have read and written.
    pub io: IoTotals,
    /// Largest resident set in KiB.
    pub maxrss: u64,
    /// Largest resident set of a waited-for child.
    pub child_maxrss: u64,
    /// What the host counted for earlier memory images and threads that left.
    pub counts: HostCounts,
    /// What the host has counted for the memory image, when it was last asked.
    pub image: HostCounts,
    /// What the host counted for waited-for children.
    pub child_counts: HostCounts,
}

/// Minor and major faults, blocks read and written, voluntary and involuntary context switches. Voluntary ones are sleeps in
/// the kernel; all else is what the host counts for the threads that execute the program, and of blocks those that serve it, too.
pub type HostCounts = [u64; 6];

/// Adds up counts.
pub fn add_counts(to: &mut HostCounts, more: HostCounts) {
    for (a, b) in to.iter_mut().zip(more) {
        *a = a.wrapping_add(b);
    }
}

impl Usage {
    /// A child with this usage has been waited for.
    pub fn add_child(&mut self, child: &Usage) {
        self.child_utime += child.utime + child.child_utime;
        self.child_stime += child.stime + child.child_stime;
        add_io(&mut self.io, child.io);
        self.child_maxrss = self.child_maxrss.max(child.maxrss).max(child.child_maxrss);
        add_counts(&mut self.child_counts, child.own_counts());
        add_counts(&mut self.child_counts, child.child_counts);
    }

    /// What the host has counted for the process itself.
    pub fn own_counts(&self) -> HostCounts {
        let mut sum = self.counts;
        add_counts(&mut sum, self.image);
        sum
    }

    /// The memory image is replaced.
    pub fn image_ends(&mut self) {
        self.counts = self.own_counts();
        self.image = HostCounts::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_bring_what_their_children_used() {
        let child = Usage { utime: 1, child_utime: 2, maxrss: 3, child_maxrss: 4, ..Usage::default() };
        let mut u = Usage { utime: 10, io: [1, 0, 0, 0], ..Usage::default() };
        u.add_child(&Usage { io: [5, 6, 7, 8], ..child });
        assert_eq!((u.utime, u.child_utime, u.child_maxrss, u.io), (10, 3, 4, [6, 6, 7, 8]));
    }
}
