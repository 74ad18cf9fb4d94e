//! What the threads of a container have done, those that have left among them. See docs/metrics.md.
//!
//! A thread that leaves hands its counts to the container, and a reader adds up the others, both under the lock of the
//! process tree: no thread is missing or there twice.

use crate::kernel::Kernel;
use crate::task::Task;
use container::{Container, Totals};

/// What the threads of a container have done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Bytes read and written, and calls that did it.
    pub io: sched::IoTotals,
    /// System calls.
    pub calls: u64,
    /// Files opened.
    pub opens: u64,
    /// Signals taken.
    pub signals: u64,
    /// Faults of programs.
    pub faults: u64,
    /// Processes that have not ended.
    pub processes: u64,
    /// Their threads.
    pub threads: u64,
}

impl Task {
    /// What it has done, in the form of [`Totals::add`].
    pub(crate) fn totals(&self) -> [u64; Totals::COUNTS] {
        let [read, written, reads, writes] = self.io.now();
        let [calls, opens, signals, faults] = self.counts.now();
        [read, written, reads, writes, calls, opens, signals, faults]
    }
}

impl Kernel {
    /// What the threads of a container have done.
    pub fn activity(&self, container: &Container) -> Activity {
        let tree = self.tree.lock();
        let mut sum = container.totals.left();
        let (mut processes, mut threads) = (0, 0);
        for node in tree.nodes().filter(|node| node.group.container.index() == container.index()) {
            let tasks = node.group.threads();
            processes += u64::from(!tasks.is_empty());
            threads += tasks.len() as u64;
            for task in tasks {
                sum.iter_mut().zip(task.totals()).for_each(|(all, more)| *all = all.wrapping_add(more));
            }
        }
        let [read, written, reads, writes, calls, opens, signals, faults] = sum;
        let io = [read, written, reads, writes];
        Activity { io, calls, opens, signals, faults, processes, threads }
    }
}
