//! Host processes of programs that have ended, kept for programs that execve(2) loads: see [`platform::Context::recycle`]. Lock: a
//! leaf. A checkpoint keeps nothing.
//!
//! A hostile program may leave something in its host process that has power over the next program there. So the
//! next one has the same rights and sees the same: credentials, namespaces, root and container. What the first one could do
//! to the next one it could also do by ptrace(2), or to its files.

use crate::current::Current;
use crate::kernel::Kernel;
use crate::task::Task;
use lock_order::Mutex;
use mounts::{FsContext, MountNs};
use nsproxy::NsProxy;
use pid::PidNamespace;
use platform::{AddressSpace, Context, Recycled};
use rights::{Credentials, CredentialsState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use syscall_filter::DISABLED;
use user_ns::UserNamespace;
use vfs::dentry::Dentry;

/// Most processes that are kept.
const MOST: usize = 3;

/// Rights of a program, and what it can see.
pub(crate) struct Domain {
    credentials: CredentialsState,
    container: u32,
    user_ns: Weak<UserNamespace>,
    pid_ns: Weak<PidNamespace>,
    namespaces: Weak<NsProxy>,
    mounts: Weak<MountNs>,
    root: Weak<Dentry>,
}

impl Domain {
    /// Of a program that a thread runs with these credentials; `None` when its host process serves no other one.
    pub(crate) fn of(task: &Task, fs: &FsContext, credentials: &Credentials) -> Option<Domain> {
        let container = &task.group.container;
        // Who asks for resource usage is told of one program only.
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
}

impl PartialEq for Domain {
    fn eq(&self, other: &Domain) -> bool {
        (self.container, &self.credentials) == (other.container, &other.credentials)
            && self.user_ns.ptr_eq(&other.user_ns)
            && self.pid_ns.ptr_eq(&other.pid_ns)
            && self.namespaces.ptr_eq(&other.namespaces)
            && self.mounts.ptr_eq(&other.mounts)
            && self.root.ptr_eq(&other.root)
    }
}

struct Kept {
    domain: Domain,
    context: Box<dyn Context>,
    /// Ends the process if it does not empty its memory in time.
    _emptying: Arc<dyn AddressSpace>,
}

/// The processes that are kept, the most recent last.
#[derive(Default)]
pub(crate) struct Recycling(Mutex<Vec<Kept>>);

impl Recycling {
    /// A process whose next program has these rights.
    fn take(&self, domain: &Domain) -> Option<Box<dyn Context>> {
        loop {
            let mut context = {
                let mut kept = self.0.lock();
                let at = kept.iter().rposition(|k| k.domain == *domain)?;
                kept.remove(at).context
            };
            match context.renew() {
                Ok(()) => return Some(context),
                Err(_) => context.exit(),
            }
        }
    }

    /// Whether as many are kept as there may be, all of them for this domain.
    fn is_full(&self, domain: &Domain) -> bool {
        let kept = self.0.lock();
        kept.len() >= MOST && kept.iter().all(|k| k.domain == *domain)
    }

    /// Keeps one more; the oldest one ends when there are too many.
    fn keep(&self, kept: Kept) {
        let oldest = {
            let mut all = self.0.lock();
            all.push(kept);
            (all.len() > MOST).then(|| all.remove(0))
        };
        drop(oldest);
    }
}

/// Ends the last thread of an address space; its host process is kept if `domain` says for whom.
pub(crate) fn exit_or_keep(kernel: &Kernel, context: Box<dyn Context>, domain: Option<Domain>) {
    let Some(domain) = domain.filter(|domain| !kernel.recycling.is_full(domain)) else {
        return context.exit();
    };
    let Some(Recycled { context, emptying }) = context.recycle() else { return };
    kernel.late_kills.add(&emptying, &kernel.vfs.resources.timers);
    kernel.recycling.keep(Kept { domain, context, _emptying: emptying });
}

impl Current {
    /// An address space for a program that this thread executes with these credentials.
    pub fn new_space(&self, credentials: &Credentials) -> abi::Result<Box<dyn Context>> {
        let kernel = self.kernel();
        let domain = Domain::of(&self.task, self.fs(), credentials);
        match domain.and_then(|domain| kernel.recycling.take(&domain)) {
            Some(context) => Ok(context),
            None => self.task.group.container.new_space(&kernel.platform),
        }
    }
}
