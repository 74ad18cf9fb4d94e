//! Epolls that watch epolls: no loops, and no deeper than Linux allows.

use super::Epoll;
use abi::{Errno, Result};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use vfs::OpenFile;

/// Epolls below the one that is watched: a chain of five is the longest.
const MAX_DEPTH: usize = 3;

static NESTING: Mutex<()> = Mutex::new(());

/// Fails with ELOOP when `outer` must not watch `inner`. The guard keeps others from nesting
/// until the item is in place.
pub(super) fn check(outer: &Epoll, inner: &Epoll) -> Result<MutexGuard<'static, ()>> {
    let guard = NESTING.lock();
    walk(outer, inner, 0)?;
    Ok(guard)
}

fn walk(outer: &Epoll, at: &Epoll, depth: usize) -> Result<()> {
    if std::ptr::eq(outer, at) || depth > MAX_DEPTH {
        return Err(Errno::ELOOP);
    }
    let below: Vec<Arc<OpenFile>> = at.items.lock().values().filter_map(|i| i.file.upgrade()).collect();
    below.iter().filter_map(|f| Epoll::of(f).ok()).try_for_each(|e| walk(outer, e, depth + 1))
}
