//! Host processes of programs that have ended, kept for programs that execve(2) loads: see [`platform::Context::recycle`]. Lock: a
//! leaf. A checkpoint keeps nothing.
//!
//! A hostile program may leave something in its host process that has power over the next program there. So the
//! next one has the same rights and sees the same: credentials, namespaces, root and container. What the first one could do
//! to the next one it could also do by ptrace(2), or to its files.

use abi::Errno;
use lock_order::Mutex;
use mounts::MountNs;
use nsproxy::NsProxy;
use pid::PidNamespace;
use platform::{AddressSpace, Context};
use rights::CredentialsState;
use std::sync::{Arc, Weak};
use user_ns::UserNamespace;
use vfs::dentry::Dentry;

/// Most processes that are kept.
const MOST: usize = 3;

/// Rights of a program, and what it can see.
pub(crate) struct Domain {
    pub credentials: CredentialsState,
    pub container: u32,
    pub user_ns: Weak<UserNamespace>,
    pub pid_ns: Weak<PidNamespace>,
    pub namespaces: Weak<NsProxy>,
    pub mounts: Weak<MountNs>,
    pub root: Weak<Dentry>,
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

/// A process that is kept.
pub(crate) struct Kept {
    /// What its next program must have.
    pub domain: Domain,
    pub context: Box<dyn Context>,
    /// Ends the process if it does not empty its memory in time; goes before the process is used.
    pub _emptying: Arc<dyn AddressSpace>,
}

/// The processes that are kept, the most recent last.
#[derive(Default)]
pub(crate) struct Recycling(Mutex<Vec<Kept>>);

impl Recycling {
    /// A process for a program with these rights, if one has emptied its memory.
    pub fn take(&self, domain: &Domain) -> Option<Box<dyn Context>> {
        let mut busy = Vec::new();
        let found = loop {
            let next = {
                let mut kept = self.0.lock();
                kept.iter().rposition(|k| k.domain == *domain).map(|at| kept.remove(at))
            };
            let Some(mut next) = next else { break None };
            match next.context.renew() {
                Ok(()) => break Some(next.context),
                Err(Errno::EAGAIN) => busy.push(next),
                Err(_) => next.context.exit(),
            }
        };
        if !busy.is_empty() {
            self.0.lock().extend(busy.into_iter().rev());
        }
        found
    }

    /// Whether as many are kept as there may be, all of them for this domain.
    pub fn is_full(&self, domain: &Domain) -> bool {
        let kept = self.0.lock();
        kept.len() >= MOST && kept.iter().all(|k| k.domain == *domain)
    }

    /// Keeps one more; the oldest one ends when there are too many.
    pub fn keep(&self, kept: Kept) {
        let oldest = {
            let mut all = self.0.lock();
            all.push(kept);
            (all.len() > MOST).then(|| all.remove(0))
        };
        drop(oldest);
    }
}
