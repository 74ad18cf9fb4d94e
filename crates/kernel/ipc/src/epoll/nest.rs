//! Epolls that watch epolls: no loops, and no deeper than Linux allows.
//!
//! A chain is measured in both directions from the new link, each epoll once, so neither the depth of a structure nor
//! the number of ways through it costs more than its size.

use super::Epoll;
use abi::{Errno, Result};
use lock_order::{MutexGuard, rank};
use std::collections::HashMap;
use std::sync::Arc;
use vfs::{Caller, OpenFile};

/// Links of the longest chain: five epolls.
const MAX_LINKS: usize = 4;

/// Fails with ELOOP when `outer` must not watch `inner`. The guard keeps others from nesting
/// until the item is in place.
pub(super) fn check<'a>(
    cx: &'a dyn Caller,
    outer: &Epoll,
    inner: &Epoll,
) -> Result<MutexGuard<'a, (), { rank::EPOLL_NESTING }>> {
    let guard = cx.resources().epoll_nesting.lock();
    let below = Survey { outer, known: HashMap::new(), next: Epoll::watched }.depth(inner, 0)?;
    let above = Survey { outer: inner, known: HashMap::new(), next: Epoll::watchers }.depth(outer, 0)?;
    if above + 1 + below > MAX_LINKS { Err(Errno::ELOOP) } else { Ok(guard) }
}

/// One look at what hangs together with an epoll, in one direction.
struct Survey<'a> {
    /// Meeting this one closes a loop.
    outer: &'a Epoll,
    /// Depths of epolls that were visited, by address.
    known: HashMap<usize, usize>,
    next: fn(&Epoll) -> Vec<Arc<Epoll>>,
}

impl Survey<'_> {
    /// Links of the longest chain from `at` on. Goes no deeper than a chain may be.
    fn depth(&mut self, at: &Epoll, links: usize) -> Result<usize> {
        if std::ptr::eq(self.outer, at) || links > MAX_LINKS {
            return Err(Errno::ELOOP);
        }
        let key = std::ptr::from_ref(at) as usize;
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let mut most = 0;
        for e in (self.next)(at) {
            most = most.max(self.depth(&e, links + 1)? + 1);
        }
        self.known.insert(key, most);
        Ok(most)
    }
}

impl Epoll {
    /// The epolls that it watches.
    fn watched(&self) -> Vec<Arc<Epoll>> {
        let files: Vec<Arc<OpenFile>> = self.items.lock().values().filter_map(|i| i.file.upgrade()).collect();
        files.iter().filter_map(|f| Epoll::of(f).ok()?.me.upgrade()).collect()
    }

    /// The epolls that watch it.
    fn watchers(&self) -> Vec<Arc<Epoll>> {
        let mut all = self.outer.lock();
        all.retain(|w| w.strong_count() != 0);
        all.iter().filter_map(|w| w.upgrade()?.epoll()).collect()
    }
}
