//! Host processes of programs that have ended, kept for programs that execve(2) loads: see [`platform::Context::recycle`]. Locks:
//! TIMER, and a leaf. A checkpoint keeps nothing.
//!
//! A hostile program may leave something in its host process that has power over the next program there. So the
//! next one has the same rights and sees the same: credentials, namespaces, root and container. What the first one could do
//! to the next one it could also do by ptrace(2), or to its files.

use abi::Errno;
use caller::timer::{TimerHandle, TimerService};
use lock_order::{Mutex, rank};
use mounts::MountNs;
use nsproxy::NsProxy;
use pid::PidNamespace;
use platform::{AddressSpace, Context};
use rights::CredentialsState;
use std::sync::{Arc, Weak};
use std::time::Duration;
use user_ns::UserNamespace;
use vfs::dentry::Dentry;

/// Most processes that are kept.
const MOST: usize = 3;
/// How often they are looked at, and how many looks they wait for a program.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 10;

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
    /// Ends the process if it does not empty its memory in time, or works on.
    pub emptying: Arc<dyn AddressSpace>,
    /// How often the timer has seen it.
    pub seen: u32,
}

/// The processes that are kept.
#[derive(Default)]
pub(crate) struct Recycling(Arc<Shelf>);

#[derive(Default)]
struct Shelf {
    /// The most recent last.
    kept: Mutex<Vec<Kept>>,
    /// Lets go of those that no program needs.
    timer: Mutex<Option<TimerHandle>, { rank::TIMER }>,
}

impl Recycling {
    /// A process for a program with these rights, if one has emptied its memory.
    pub fn take(&self, domain: &Domain) -> Option<Box<dyn Context>> {
        let mut busy = Vec::new();
        let found = loop {
            let next = {
                let mut kept = self.0.kept.lock();
                kept.iter().rposition(|k| k.domain == *domain).map(|at| kept.remove(at))
            };
            let Some(mut next) = next else { break None };
            match next.context.renew() {
                Ok(()) => break Some(next.context),
                Err(Errno::EAGAIN) => busy.push(next),
                // It has been killed.
                Err(_) => next.context.exit(),
            }
        };
        if !busy.is_empty() {
            self.put_back(busy);
        }
        found
    }

    /// Keeps those again that are still busy, the most recent of which comes first.
    fn put_back(&self, busy: Vec<Kept>) {
        let gone: Vec<Kept> = {
            let mut kept = self.0.kept.lock();
            kept.splice(0..0, busy.into_iter().rev());
            let excess = kept.len().saturating_sub(MOST);
            kept.drain(..excess).collect()
        };
        drop(gone);
    }

    /// Lets go of the processes of a container, or of all.
    pub fn forget(&self, container: Option<u32>) {
        let of = |k: &mut Kept| container.is_none_or(|container| k.domain.container == container);
        let gone: Vec<Kept> = self.0.kept.lock().extract_if(.., of).collect();
        drop(gone);
    }

    /// Whether as many are kept as there may be, all of them for this domain.
    pub fn is_full(&self, domain: &Domain) -> bool {
        let kept = self.0.kept.lock();
        kept.len() >= MOST && kept.iter().all(|k| k.domain == *domain)
    }

    /// Keeps one more; the oldest one ends when there are too many.
    pub fn keep(&self, kept: Kept, timers: &Arc<TimerService>) {
        let oldest = {
            let mut all = self.0.kept.lock();
            all.push(kept);
            (all.len() > MOST).then(|| all.remove(0))
        };
        drop(oldest);
        self.0.arm(timers);
    }
}

impl Shelf {
    /// Has the kept processes looked at in a while.
    fn arm(self: &Arc<Self>, timers: &Arc<TimerService>) {
        let mut timer = self.timer.lock();
        if timer.is_none() {
            let (shelf, weak) = (Arc::downgrade(self), Arc::downgrade(timers));
            *timer = Some(timers.schedule_after(LOOK, move || {
                if let (Some(shelf), Some(timers)) = (shelf.upgrade(), weak.upgrade()) {
                    shelf.look(&timers);
                }
            }));
        }
    }

    /// Lets go of those that have waited for long, and ends those that do not sleep.
    fn look(self: &Arc<Self>, timers: &Arc<TimerService>) {
        let timer = self.timer.lock().take();
        let (gone, due, left) = {
            let mut kept = self.kept.lock();
            let long = |k: &mut Kept| {
                k.seen += 1;
                k.seen > LOOKS
            };
            let gone: Vec<Kept> = kept.extract_if(.., long).collect();
            // The others may have come just now.
            let due = kept.iter().filter(|k| k.seen > 1).map(|k| k.emptying.clone());
            (gone, due.collect::<Vec<_>>(), !kept.is_empty())
        };
        drop((gone, timer));
        due.iter().for_each(|emptying| emptying.kill());
        if left {
            self.arm(timers);
        }
    }
}
