//! Finds processes and threads that a hostile guest made by a granted clone and did not report.
//!
//! A clone that the sentry granted may be reported as failed, or the new process may never say hello. Each such case
//! raises a suspicion; the watcher then goes through the host's process ids, twice, some seconds apart. A child of ours
//! (its exit signal is missing, which tells it apart from others) that is unknown both times is killed. So is a process
//! with a thread that is unknown both times. As many of either as are being made at the second look are spared, because
//! the host may take any time for an honest one.

use crate::Inner;
use crate::space::Space;
use hostsys::process;
use platform::AddressSpace;
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Longer than a fork takes between its clone and its hello unless the host is very slow.
const INTERVAL: Duration = Duration::from_secs(11);

/// What was raised since the last look.
#[derive(Default)]
pub(crate) struct Suspicions {
    raised: bool,
    spaces: Vec<Weak<Space>>,
}

impl Inner {
    /// A granted clone of this process did not end as it should.
    pub(crate) fn suspect(&self, space: &Arc<Space>) {
        {
            let mut s = self.suspicions.lock();
            s.raised = true;
            if s.spaces.iter().all(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(space))) {
                s.spaces.push(Arc::downgrade(space));
            }
        }
        // The watcher may sleep without a limit.
        let _ = rustix::io::write(&self.nudge, &1u64.to_ne_bytes());
    }
}

/// The watcher's memory between two looks.
#[derive(Default)]
pub(crate) struct Census {
    unknown: HashSet<i32>,
    unknown_threads: HashSet<(i32, i32)>,
    spaces: Vec<Weak<Space>>,
    looks: u32,
    last: Option<Instant>,
}

impl Census {
    /// When [`Census::step`] wants to be called again.
    pub(crate) fn due(&self) -> Option<Duration> {
        let last = self.last.filter(|_| self.looks > 0)?;
        Some((last + INTERVAL).saturating_duration_since(Instant::now()))
    }

    /// Looks, if it is time.
    pub(crate) fn step(&mut self, inner: &Inner) {
        {
            let mut s = inner.suspicions.lock();
            if std::mem::take(&mut s.raised) {
                // A first look now, which has no consequences, and two more.
                self.looks = 3;
                self.spaces.append(&mut s.spaces);
            }
        }
        if self.looks == 0 || self.last.is_some_and(|l| l.elapsed() < INTERVAL) {
            return;
        }
        self.look(inner);
        self.looks -= 1;
        self.last = Some(Instant::now());
        if self.looks == 0 {
            *self = Census { last: self.last, ..Census::default() };
        }
    }

    fn look(&mut self, inner: &Inner) {
        let spaces: Vec<Arc<Space>> = self.spaces.iter().filter_map(Weak::upgrade).collect();
        let (mut unknown, mut unknown_threads) = (HashSet::new(), HashSet::new());
        let (mut hidden, mut hidden_threads) = (Vec::new(), vec![0; spaces.len()]);
        for id in 1..=inner.pid_max {
            if process::is_silent_child(id) && inner.space(id).is_none() {
                unknown.insert(id);
                if self.unknown.contains(&id) {
                    hidden.push(id);
                }
            }
            for (space, hidden) in spaces.iter().zip(&mut hidden_threads) {
                let known = inner.thread(id).is_some_and(|t| Arc::ptr_eq(&t.space, space));
                if !known && space.has_thread(id) {
                    unknown_threads.insert((space.process.pid, id));
                    *hidden += usize::from(self.unknown_threads.contains(&(space.process.pid, id)));
                }
            }
        }
        // Forks that are over by now have their children in the table.
        let (claimed, unreported) = inner.forks_under_way();
        hidden.retain(|id| !claimed.contains(id) && inner.space(*id).is_none());
        // The newest are probably those that are being made.
        hidden.truncate(hidden.len().saturating_sub(unreported));
        for id in hidden {
            log::warn!("stub process {id} that nobody knows; killed");
            unknown.remove(&id);
            if let Ok(pidfd) = process::pidfd_open(id)
                && process::is_silent_child(id)
            {
                let _ = process::pidfd_kill(pidfd.as_fd(), libc::SIGKILL);
                let _ = process::wait_child(pidfd.as_fd(), true);
            }
        }
        for (space, hidden) in spaces.iter().zip(hidden_threads) {
            if hidden > space.newcomers() {
                log::warn!("stub process {} has a thread that nobody knows; killed", space.process.pid);
                space.kill();
            }
        }
        (self.unknown, self.unknown_threads) = (unknown, unknown_threads);
    }
}
