//! Which programs may follow each other in a process of the host ([`crate::recycling`]).

use crate::current::Current;
use crate::kernel::Kernel;
use crate::recycling::{Domain, Kept};
use crate::task::Task;
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
    if exact || confined || container.has_host_cgroups() {
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
pub(crate) fn exit_or_keep(kernel: &Kernel, context: Box<dyn Context>, domain: Option<Domain>) {
    let Some(domain) = domain.filter(|domain| !kernel.recycling.is_full(domain)) else {
        return context.exit();
    };
    let Some(Recycled { context, emptying }) = context.recycle() else { return };
    kernel.late_kills.add(&emptying, &kernel.vfs.resources.timers);
    kernel.recycling.keep(Kept { domain, context, _emptying: emptying });
}

impl Current {
    /// An address space for a program that this thread executes with these credentials. `open`: other processes with the
    /// same rights may look into it.
    pub fn new_space(&self, credentials: &Credentials, open: bool) -> abi::Result<Box<dyn Context>> {
        let kernel = self.kernel();
        let domain = if open { domain_of(&self.task, self.fs(), credentials) } else { None };
        match domain.and_then(|domain| kernel.recycling.take(&domain)) {
            Some(context) => Ok(context),
            None => self.task.group.container.new_space(&kernel.platform),
        }
    }
}
