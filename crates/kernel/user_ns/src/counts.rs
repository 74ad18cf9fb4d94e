//! The number of namespaces that the users of each user namespace have made: /proc/sys/user, namespaces(7).
//!
//! A new namespace counts for its maker in the maker's user namespace, for the owner of that in the one around, and so on. Each
//! count has the limit of its user namespace. In the initial one all users together have a bound as well, since each
//! namespace is memory of the sentry's.

use crate::UserNamespace;
use abi::{Errno, Result};
use lock_order::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "one for each kind of namespace, and of what else is counted alike")]
pub enum Kind {
    User,
    Pid,
    Uts,
    Ipc,
    Net,
    Mount,
    Cgroup,
    Time,
    InotifyInstances,
    InotifyWatches,
    FanotifyGroups,
    FanotifyMarks,
}

/// How many kinds there are.
pub(crate) const KINDS: usize = 12;

impl Kind {
    /// All of them.
    pub const ALL: [Kind; KINDS] = {
        use Kind::*;
        [
            User,
            Pid,
            Uts,
            Ipc,
            Net,
            Mount,
            Cgroup,
            Time,
            InotifyInstances,
            InotifyWatches,
            FanotifyGroups,
            FanotifyMarks,
        ]
    };

    /// No namespace: in the initial user namespace the quotas of the sandbox hold for these.
    pub const fn has_quota(self) -> bool {
        matches!(
            self,
            Kind::InotifyInstances | Kind::InotifyWatches | Kind::FanotifyGroups | Kind::FanotifyMarks
        )
    }

    /// Most that all users of a sandbox may have together, or one of them of what has a quota. A network namespace has a TCP/IP stack.
    pub const fn bound(self) -> u64 {
        match self {
            Kind::Ipc => 128,
            Kind::Net => 256,
            Kind::Mount => 1024,
            Kind::FanotifyGroups => 128,
            Kind::FanotifyMarks => 8192,
            _ => 4096,
        }
    }
}

/// Limits beyond this cannot be set; it is what a nested namespace begins with.
pub const NO_LIMIT: u64 = i32::MAX as u64;

/// The counts of one user namespace.
#[derive(Debug)]
pub(crate) struct Counts {
    limits: [AtomicU64; KINDS],
    used: Mutex<Used>,
}

#[derive(Default, Debug)]
struct Used {
    users: HashMap<(u32, Kind), u64>,
    /// All users together, which matters in the initial namespace.
    all: [u64; KINDS],
}

impl Counts {
    pub(crate) fn new(limit: impl Fn(Kind) -> u64) -> Counts {
        Counts { limits: Kind::ALL.map(|k| AtomicU64::new(limit(k))), used: Mutex::default() }
    }

    fn take(&self, user: u32, kind: Kind, bound: u64) -> bool {
        let mut used = self.used.lock();
        let now = used.users.get(&(user, kind)).copied().unwrap_or(0);
        if now >= self.limits[kind as usize].load(Relaxed) || used.all[kind as usize] >= bound {
            return false;
        }
        used.users.insert((user, kind), now + 1);
        used.all[kind as usize] += 1;
        true
    }

    fn give_back(&self, user: u32, kind: Kind) {
        let mut used = self.used.lock();
        used.all[kind as usize] -= 1;
        if let Some(n) = used.users.get_mut(&(user, kind)) {
            *n -= 1;
            if *n == 0 {
                used.users.remove(&(user, kind));
            }
        }
    }
}

/// A namespace that is counted, until this is dropped.
#[derive(Debug)]
pub struct NamespaceCount {
    kind: Kind,
    /// User namespaces, the innermost first, and the user that it counts for in each.
    levels: Vec<(Arc<UserNamespace>, u32)>,
}

impl NamespaceCount {
    /// Counts a namespace, or what else has a limit, that this user of a user namespace makes. ENOSPC when there are enough.
    pub fn new(user_ns: &Arc<UserNamespace>, user: u32, kind: Kind) -> Result<NamespaceCount> {
        let mut counted = NamespaceCount { kind, levels: Vec::new() };
        let mut at = Some((user_ns, user));
        while let Some((ns, user)) = at.filter(|(ns, _)| !kind.has_quota() || !ns.is_initial()) {
            let bound = if ns.is_initial() { kind.bound() } else { u64::MAX };
            if !ns.counts.take(user, kind, bound) {
                return Err(Errno::ENOSPC);
            }
            counted.levels.push((ns.clone(), user));
            at = ns.parent().map(|parent| (parent, ns.owner()));
        }
        Ok(counted)
    }

    /// The user that it counts for in the innermost of the user namespaces.
    pub fn user(&self) -> u32 {
        self.levels.first().map_or(0, |(_, user)| *user)
    }
}

impl Drop for NamespaceCount {
    fn drop(&mut self) {
        for (ns, user) in &self.levels {
            ns.counts.give_back(*user, self.kind);
        }
    }
}

impl UserNamespace {
    /// Most namespaces of a kind that one user may have: /proc/sys/user/max_*_namespaces.
    pub fn limit(&self, kind: Kind) -> u64 {
        self.counts.limits[kind as usize].load(Relaxed)
    }

    /// Sets it.
    pub fn set_limit(&self, kind: Kind, limit: u64) {
        self.counts.limits[kind as usize].store(limit.min(NO_LIMIT), Relaxed);
    }
}
