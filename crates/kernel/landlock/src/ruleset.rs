//! Rulesets: landlock_create_ruleset(2) makes one, landlock_add_rule(2) adds rules.

use crate::{access, net, scope};
use abi::{Errno, Result};
use lock_order::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most rules of a ruleset: they live in the sentry.
pub(crate) const MAX_RULES: usize = 4096;
/// Most rules of all rulesets and domains of a kernel, one more for each of these. About 64 MiB.
const MAX_LIVE: usize = 1 << 19;

/// Device and inode number of a file.
pub type ObjectKey = (u64, u64);

/// A file that a rule names. As long as the rule lives so does what it holds, and its number is no other's.
#[derive(Clone)]
pub struct Object {
    /// What it is known by.
    pub key: ObjectKey,
    /// Keeps it.
    pub held: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

/// What a ruleset is about (`struct landlock_ruleset_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Accesses to files that are denied but for rules.
    pub fs: u64,
    /// Accesses to ports.
    pub net: u64,
    /// What stays inside.
    pub scoped: u64,
}

impl Handled {
    /// EINVAL for bits that do not exist, ENOMSG when there are none.
    pub fn check(self) -> Result<Handled> {
        if self.fs & !access::ALL != 0 || self.net & !net::ALL != 0 || self.scoped & !scope::ALL != 0 {
            return Err(Errno::EINVAL);
        }
        if self == Handled::default() { Err(Errno::ENOMSG) } else { Ok(self) }
    }
}

/// What the rules of one kernel take together.
#[derive(Debug, Default)]
pub struct Pool(AtomicUsize);

impl Pool {
    fn take(&self, count: usize) -> Result<()> {
        let add = |n: usize| n.checked_add(count).filter(|n| *n <= MAX_LIVE);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map(drop).map_err(|_| Errno::ENOMEM)
    }
}

/// The rules of a layer.
#[derive(Debug)]
pub(crate) struct Rules {
    pool: Arc<Pool>,
    pub(crate) files: BTreeMap<ObjectKey, (u64, Object)>,
    pub(crate) ports: BTreeMap<u16, u64>,
}

/// A ruleset.
#[derive(Debug)]
pub struct Ruleset {
    /// What it is about.
    pub handled: Handled,
    pub(crate) rules: Mutex<Rules>,
}

impl Ruleset {
    /// Without rules. ENOMEM when the kernel has too many.
    pub fn new(pool: &Arc<Pool>, handled: Handled) -> Result<Ruleset> {
        Ok(Ruleset { handled, rules: Mutex::new(Rules::new(pool, BTreeMap::new(), BTreeMap::new())?) })
    }

    /// Allows accesses to a file, and below it if it is a directory.
    pub fn allow_file(&self, object: Object, accesses: u64) -> Result<()> {
        // What is not handled is allowed, but for a change of place.
        let accesses = accesses | access::ALL & !(self.handled.fs | access::REFER);
        let mut rules = self.rules.lock();
        if let Some((known, _)) = rules.files.get_mut(&object.key) {
            *known |= accesses;
            return Ok(());
        }
        rules.room()?;
        rules.files.insert(object.key, (accesses, object));
        Ok(())
    }

    /// Allows accesses to a port.
    pub fn allow_port(&self, port: u16, accesses: u64) -> Result<()> {
        let mut rules = self.rules.lock();
        if let Some(known) = rules.ports.get_mut(&port) {
            *known |= accesses;
            return Ok(());
        }
        rules.room()?;
        rules.ports.insert(port, accesses);
        Ok(())
    }

    pub(crate) fn copy(&self) -> Result<Rules> {
        let rules = self.rules.lock();
        Rules::new(&rules.pool, rules.files.clone(), rules.ports.clone())
    }
}

impl Rules {
    pub(crate) fn new(
        pool: &Arc<Pool>,
        files: BTreeMap<ObjectKey, (u64, Object)>,
        ports: BTreeMap<u16, u64>,
    ) -> Result<Rules> {
        pool.take(1 + files.len() + ports.len())?;
        Ok(Rules { pool: pool.clone(), files, ports })
    }

    /// Counts one rule more.
    fn room(&self) -> Result<()> {
        if self.files.len() + self.ports.len() < MAX_RULES { self.pool.take(1) } else { Err(Errno::E2BIG) }
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        self.pool.0.fetch_sub(1 + self.files.len() + self.ports.len(), Ordering::Relaxed);
    }
}
