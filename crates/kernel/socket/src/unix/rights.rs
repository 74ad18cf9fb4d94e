//! Descriptors in flight, and the collector for those nobody can receive any more.
//!
//! A socket can be sent over itself, or two over each other; after their last
//! descriptors are closed only the messages keep them. The collector finds sockets all
//! of whose references are in flight and which no receivable message leads to, and
//! throws their queues away.
//! Lock: the table of sockets in flight, a leaf.

use super::UnixSocket;
use super::message::Message;
use crate::file::SocketFile;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use vfs::OpenFile;

struct Flying {
    file: Weak<OpenFile>,
    count: usize,
}

/// Unix sockets in flight, by address of their open file.
static FLYING: LazyLock<Mutex<HashMap<usize, Flying>>> = LazyLock::new(Mutex::default);
/// Descriptors of any kind in flight.
static TOTAL: AtomicUsize = AtomicUsize::new(0);

fn key(f: &Arc<OpenFile>) -> usize {
    Arc::as_ptr(f) as usize
}

fn unix_of(f: &OpenFile) -> Option<&UnixSocket> {
    SocketFile::of(f).ok()?.ops.as_any().downcast_ref()
}

/// Number of descriptors in flight.
pub(super) fn in_flight() -> usize {
    TOTAL.load(Ordering::Relaxed)
}

/// Files that a queued message carries.
pub(super) struct Rights(Vec<Arc<OpenFile>>);

impl Rights {
    /// The files are in flight from here on.
    pub fn new(files: Vec<Arc<OpenFile>>) -> Option<Rights> {
        if files.is_empty() {
            return None;
        }
        TOTAL.fetch_add(files.len(), Ordering::Relaxed);
        for f in files.iter().filter(|f| unix_of(f).is_some()) {
            let mut t = FLYING.lock();
            t.entry(key(f)).or_insert_with(|| Flying { file: Arc::downgrade(f), count: 0 }).count += 1;
        }
        Some(Rights(files))
    }

    /// The files without taking them (MSG_PEEK).
    pub fn files(&self) -> &[Arc<OpenFile>] {
        &self.0
    }

    /// Ends the flight.
    pub fn take(mut self) -> Vec<Arc<OpenFile>> {
        self.land();
        std::mem::take(&mut self.0)
    }

    fn land(&mut self) {
        TOTAL.fetch_sub(self.0.len(), Ordering::Relaxed);
        for f in self.0.iter().filter(|f| unix_of(f).is_some()) {
            let mut t = FLYING.lock();
            if let Some(e) = t.get_mut(&key(f)) {
                e.count -= 1;
                if e.count == 0 {
                    t.remove(&key(f));
                }
            }
        }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        self.land();
    }
}

/// Looks for garbage and throws it away. Called when a socket is released.
pub(super) fn collect() {
    static RUNNING: AtomicBool = AtomicBool::new(false);
    if FLYING.lock().is_empty() || RUNNING.swap(true, Ordering::SeqCst) {
        return;
    }
    let garbage = find_garbage();
    let messages: Vec<Message> =
        garbage.iter().filter_map(|f| unix_of(f)).flat_map(|s| s.sock.drain()).collect();
    RUNNING.store(false, Ordering::SeqCst);
    // Dropping these may release sockets, which looks for garbage again.
    drop(messages);
    drop(garbage);
}

fn find_garbage() -> Vec<Arc<OpenFile>> {
    // A socket with a reference that is not in flight is somebody's: an in-flight count can only be
    // below the number of references, and falls before a receiver gets hold of the file.
    let candidates: HashMap<usize, (Arc<OpenFile>, usize)> = {
        let t = FLYING.lock();
        t.iter()
            .filter(|(_, e)| e.file.strong_count() == e.count)
            .filter_map(|(k, e)| Some((*k, (e.file.upgrade()?, e.count))))
            .collect()
    };
    let edges: HashMap<usize, Vec<usize>> = candidates
        .iter()
        .map(|(k, (f, _))| (*k, unix_of(f).map(|s| s.sock.carries()).unwrap_or_default()))
        .collect();
    let mut inside: HashMap<usize, usize> = HashMap::new();
    edges.values().flatten().for_each(|to| *inside.entry(*to).or_default() += 1);
    // Carried also by a message outside the set: can still be received, and so can what it carries.
    let mut live: Vec<usize> =
        candidates.iter().filter(|(k, (_, n))| inside.get(k).unwrap_or(&0) < n).map(|(k, _)| *k).collect();
    let mut seen: HashSet<usize> = live.iter().copied().collect();
    while let Some(k) = live.pop() {
        for to in edges.get(&k).into_iter().flatten() {
            if candidates.contains_key(to) && seen.insert(*to) {
                live.push(*to);
            }
        }
    }
    candidates.into_iter().filter(|(k, _)| !seen.contains(k)).map(|(_, (f, _))| f).collect()
}
