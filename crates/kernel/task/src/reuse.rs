//! Which programs may follow each other in a process of the host ([`crate::recycling`]).

use crate::current::Current;
use crate::recycling::{Domain, Kept};
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use mounts::FsContext;
use platform::{Context, Recycled};
use rights::Credentials;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use syscall_filter::DISABLED;

/// Of a program that a thread runs with these credentials; `None` when its host process serves no other one.
pub(crate) fn domain_of(task: &Task, fs: &FsContext, credentials: &Credentials) -> Option<Domain> {
    let container = &task.group.container;
    // Resource usage is told of one program only.
    let exact = task.group.kernel.usage_wanted.load(Relaxed);
    let confined = task.seccomp.mode() != DISABLED || credentials.landlock.is_some();
    // Rules can tell programs with equal rights apart.
    let policed = task.group.kernel.policies.is_active();
    let shifted = task.nsproxy().time_for_children.is_shifted();
    if exact || confined || policed || shifted || container.has_host_cgroups() || container.is_over() {
        return None;
    }
    let view = fs.view();
    Some(Domain {
        credentials: credentials.state(),
        container: container.index(),
        user_ns: Arc::downgrade(&credentials.user_ns),
        pid_ns: Arc::downgrade(task.group.pid.ns()?),
        namespaces: Arc::downgrade(&task.nsproxy()),
        mounts: Arc::downgrade(&view.ns),
        root: Arc::downgrade(&view.root.dentry),
    })
}

/// Ends the last thread of an address space; its host process is kept for programs of the `domain`.
pub(crate) fn exit_or_keep(group: &ThreadGroup, context: Box<dyn Context>, domain: Option<Domain>) {
    let (kernel, container) = (&group.kernel, &group.container);
    let closed = || container.is_over() || container.is_frozen();
    let Some(domain) = domain.filter(|domain| !closed() && !kernel.recycling.is_full(domain)) else {
        return context.exit();
    };
    let Some(Recycled { context, emptying }) = context.recycle() else { return };
    let kept = Kept { domain, context, emptying, seen: 0 };
    kernel.recycling.keep(kept, &kernel.vfs.resources.timers);
    if closed() {
        kernel.recycling.forget(Some(container.index()));
    }
}

impl Current {
    /// The process of a program that has ended, for one that this thread executes with these credentials. `open`: other processes
    /// with the same rights may look into the new program.
    pub fn recycled_space(&self, credentials: &Credentials, open: bool) -> Option<Box<dyn Context>> {
        let domain = if open { domain_of(&self.task, self.fs(), credentials) } else { None };
        let found = self.kernel().recycling.take(&domain?);
        // Those that were put back may have been looked for meanwhile.
        if self.task.group.container.is_over() {
            self.kernel().recycling.forget(Some(self.task.group.container.index()));
        }
        found
    }
}
