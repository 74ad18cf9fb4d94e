//! One thread that watches imported host descriptors and passes their
//! readiness on to wait queues. Started with the first descriptor.

use abi::Result;
use hostsys::fs::Readiness;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wait::{Events, WaitQueue};

struct Poller {
    readiness: Readiness,
    queues: Mutex<HashMap<u64, WaitQueue>>,
    next: AtomicU64,
}

fn poller() -> Result<&'static Arc<Poller>> {
    static POLLER: OnceLock<Arc<Poller>> = OnceLock::new();
    if let Some(p) = POLLER.get() {
        return Ok(p);
    }
    let new =
        Arc::new(Poller { readiness: Readiness::new()?, queues: Mutex::default(), next: AtomicU64::new(1) });
    let p = POLLER.get_or_init(|| new.clone());
    if Arc::ptr_eq(p, &new) {
        std::thread::Builder::new().name("host-poll".into()).spawn(move || {
            hostsys::cpu::roam();
            loop {
                for (token, events) in new.readiness.wait() {
                    let q = new.queues.lock().get(&token).cloned();
                    if let Some(q) = q {
                        q.notify(Events(events));
                    }
                }
            }
        })?;
    }
    Ok(p)
}

/// Keeps a descriptor watched.
pub(crate) struct Watch {
    token: u64,
}

/// Notifies `queue` when `fd` becomes ready; fails with EPERM for files that always are.
pub(crate) fn watch(fd: impl AsFd, queue: &WaitQueue) -> Result<Watch> {
    let p = poller()?;
    let token = p.next.fetch_add(1, Ordering::Relaxed);
    p.queues.lock().insert(token, queue.clone());
    if let Err(e) = p.readiness.add(fd, token) {
        p.queues.lock().remove(&token);
        return Err(e);
    }
    Ok(Watch { token })
}

impl Watch {
    /// Stops watching; `fd` is the one that was watched.
    pub fn stop(&self, fd: impl AsFd) {
        if let Ok(p) = poller() {
            p.readiness.remove(fd);
            p.queues.lock().remove(&self.token);
        }
    }
}
