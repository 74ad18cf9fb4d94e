//! One thread per kernel that watches imported host descriptors and passes their readiness on to wait queues. It ends
//! once the kernel and its last stream are gone.

use abi::Result;
use hostsys::fs::{Bell, Readiness};
use lock_order::Mutex;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wait::{Events, WaitQueue};

/// Token of the bell that ends the thread.
const END: u64 = 0;

/// What the thread knows.
struct Watched {
    readiness: Readiness,
    queues: Mutex<HashMap<u64, WaitQueue>>,
}

impl Watched {
    fn run(&self) {
        loop {
            for (token, events) in self.readiness.wait() {
                if token == END {
                    return;
                }
                let q = self.queues.lock().get(&token).cloned();
                if let Some(q) = q {
                    q.notify(Events(events));
                }
            }
        }
    }
}

/// The thread, and what it watches.
pub struct Poller {
    watched: Arc<Watched>,
    next: AtomicU64,
    end: Bell,
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.end.ring();
    }
}

impl Poller {
    /// Starts the thread.
    pub fn start() -> Result<Arc<Poller>> {
        let watched = Arc::new(Watched { readiness: Readiness::new()?, queues: Mutex::default() });
        let end = watched.readiness.bell(END)?;
        let w = watched.clone();
        std::thread::Builder::new().name("host-poll".into()).spawn(move || {
            hostsys::cpu::roam();
            w.run();
        })?;
        Ok(Arc::new(Poller { watched, next: AtomicU64::new(END + 1), end }))
    }

    /// Notifies `queue` when `fd` becomes ready; fails with EPERM for files that always are.
    pub fn watch(self: &Arc<Self>, fd: impl AsFd, queue: &WaitQueue) -> Result<Watch> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        self.watched.queues.lock().insert(token, queue.clone());
        if let Err(e) = self.watched.readiness.add(fd, token) {
            self.watched.queues.lock().remove(&token);
            return Err(e);
        }
        Ok(Watch { poller: self.clone(), token })
    }
}

/// Keeps a descriptor watched.
pub struct Watch {
    poller: Arc<Poller>,
    token: u64,
}

impl Watch {
    /// Stops watching; `fd` is the one that was watched.
    pub fn stop(&self, fd: impl AsFd) {
        let watched = &self.poller.watched;
        watched.readiness.remove(fd);
        let queue = watched.queues.lock().remove(&self.token);
        drop(queue);
    }
}
