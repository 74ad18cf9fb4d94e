//! cpu.max: threads of groups that have used their processor time up stand still. See the host's
//! Documentation/admin-guide/cgroup-v2.
//!
//! A timer looks at how much the groups have used, as soon as one of them can have reached its quota, and at the ends
//! of periods. Threads of a throttled group are taken out of their programs and wait before they go on with them;
//! those that wait in a call anyway are left alone. Looking takes at most a twentieth of the time, so with many
//! processes it is done less often, and groups pay off later what they used too much.

use crate::current::Current;
use crate::kernel::Kernel;
use abi::Result;
use cgroup::{Cgroup, CpuMax};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wait::{Events, Stop};

/// A look takes at most this part of the time.
const PART: u32 = 20;
/// How often a thread that stands still makes sure that it still has to.
const AGAIN: Duration = Duration::from_millis(100);

impl Kernel {
    /// Sets cpu.max and cpu.max.burst of a group. EINVAL, ENODEV.
    pub fn set_cpu_max(self: &Arc<Kernel>, group: &Cgroup, max: CpuMax) -> Result<()> {
        group.set_cpu_max(max)?;
        self.look_at_bandwidth();
        Ok(())
    }

    /// Looks at the groups' use, and again when that may matter.
    pub fn look_at_bandwidth(self: &Arc<Kernel>) {
        let (begun, cost) =
            (self.clock().now(), hostsys::clock::gettime_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0));
        let mut used: HashMap<u64, u64> = HashMap::new();
        for (group, process) in self.grouped() {
            let counted = *process.grouped_time.lock();
            *used.entry(group.id()).or_default() += process.new_time(&counted).iter().sum::<u64>();
        }
        let used = |id: u64| used.get(&id).copied().unwrap_or(0);
        let processors = u32::try_from(self.first.limits().allowed().count()).unwrap_or(u32::MAX);
        let look = self.cgroups.look_at_cpu(begun, used, processors);
        self.bandwidth.any.store(look.any, Ordering::SeqCst);
        if look.any {
            let throttled = |task: &&Arc<crate::Task>| task.cgroup.is_throttled();
            let tasks: Vec<_> = self.tree.lock().tasks().filter(throttled).cloned().collect();
            tasks.iter().for_each(|task| task.interrupt_guest());
        }
        if look.released {
            self.bandwidth.released.notify(Events::ALL);
        }
        let now = hostsys::clock::gettime_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0);
        let rest = Duration::from_nanos((now - cost) as u64) * PART;
        let next = look.next.map(|next| {
            let weak = Arc::downgrade(self);
            self.vfs.resources.timers.schedule(next.max(begun.plus(rest)), move || {
                if let Some(kernel) = weak.upgrade() {
                    kernel.look_at_bandwidth();
                }
            })
        });
        let old = std::mem::replace(&mut *self.bandwidth.timer.lock(), next);
        drop(old);
    }
}

impl Current {
    /// Waits as long as the group has used its processor time up, or until there is something else to look at; false
    /// when the thread may go on.
    pub(crate) fn wait_for_processor_time(&self) -> bool {
        let kernel = self.kernel();
        if !kernel.bandwidth.any.load(Ordering::Relaxed) || !self.task.cgroup.is_throttled() {
            return false;
        }
        let waiter = &self.task.waiter;
        let _subscribed = kernel.bandwidth.released.subscribe(Events::ALL, waiter.clone());
        while self.task.cgroup.is_throttled() && !self.dying() {
            if let Err(Stop::Interrupted) = waiter.sleep(Some(Instant::now() + AGAIN)) {
                return true;
            }
        }
        self.dying()
    }
}
