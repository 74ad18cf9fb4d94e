//! Watches a container's memory: an event for every kill of the host's out-of-memory killer.

use crate::events::Events;
use cgroups::{Manager, OomEvents};
use containerd_shim_protos::events::task::TaskOOM;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What the thread needs of a stack.
const STACK: usize = 64 << 10;
/// The kernel tells before it kills: how often, and at what interval in ms, to look for the kill.
const LOOKS: (usize, i64) = (20, 50);

/// The control groups of a container, from the state that ringfence keeps of it.
pub(crate) fn manager(state: &Path) -> Option<Manager> {
    let text = std::fs::read(state.join("state.json")).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let saved = serde_json::from_value(record.get("runtime")?.get("cgroups")?.clone()).ok()?;
    Some(Manager::load(saved))
}

/// Watches until dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Arc<KillCount>,
    stop: Arc<OwnedFd>,
}

struct KillCount {
    id: String,
    manager: Manager,
    events: Events,
    count: Mutex<u64>,
}

impl std::fmt::Debug for KillCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KillCount").field("id", &self.id).finish_non_exhaustive()
    }
}

impl KillCount {
    /// Tells of new kills. True: there were some.
    fn look(&self) -> bool {
        let mut seen = self.count.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let kills = self.manager.oom_kill_count();
        let new = kills > *seen;
        if new {
            *seen = kills;
            self.events.send(TaskOOM { container_id: self.id.clone(), ..TaskOOM::default() });
        }
        new
    }
}

impl Watch {
    pub(crate) fn new(id: &str, manager: Manager, events: Events) -> Result<Self, String> {
        let oom = manager.oom_events().map_err(|error| error.to_string())?;
        let count = Mutex::new(manager.oom_kill_count());
        let seen = Arc::new(KillCount { id: id.into(), manager, events, count });
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|error| error.to_string())?);
        let watch = Self { seen: seen.clone(), stop: stop.clone() };
        let thread = std::thread::Builder::new().name("oom".into()).stack_size(STACK);
        thread.spawn(move || follow(&seen, &oom, &stop)).map_err(|error| error.to_string())?;
        Ok(watch)
    }

    /// Looks a last time, when the container has ended.
    pub(crate) fn look(&self) {
        self.seen.look();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
    }
}

fn follow(seen: &KillCount, oom: &OomEvents, stop: &OwnedFd) {
    let mut looks = 0;
    loop {
        let mut fds = [PollFd::new(oom, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        let pause = Timespec { tv_sec: 0, tv_nsec: LOOKS.1 * 1_000_000 };
        let waited = rustix::io::retry_on_intr(|| poll(&mut fds, (looks > 0).then_some(&pause)));
        let [told, ended] = [0, 1].map(|i: usize| !fds[i].revents().is_empty());
        if waited.is_err() || ended {
            return;
        }
        if told {
            oom.drain();
            looks = LOOKS.0;
        }
        looks = if seen.look() { 0 } else { looks.saturating_sub(1) };
    }
}
