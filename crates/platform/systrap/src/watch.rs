//! Notices that stub processes have ended, tells their contexts, reaps them.

use crate::Inner;
use crate::census::Census;
use crate::space::Space;
use abi::{Errno, Result};
use hostsys::process;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::sync::Arc;

/// Key of the stop event among the pids.
pub(crate) const STOP: u64 = u64::MAX;
/// Key of the nudge to look at suspicions.
pub(crate) const NUDGE: u64 = u64::MAX - 1;

impl Inner {
    /// Takes charge of a new process.
    pub(crate) fn adopt(&self, space: &Arc<Space>) -> Result<()> {
        self.spaces.lock().insert(space.process.pid, space.clone());
        let data = epoll::EventData::new_u64(space.process.pid as u64);
        epoll::add(&self.epoll, space.process.pidfd(), data, epoll::EventFlags::IN).map_err(|e| {
            self.spaces.lock().remove(&space.process.pid);
            let _ = process::pidfd_kill(space.process.pidfd(), libc::SIGKILL);
            Errno::from_raw(e.raw_os_error())
        })
    }

    /// Puts an address space in the place of another one of the same process. False: that process has ended, and the old address
    /// space has been told.
    pub(crate) fn succeed(&self, old: &Arc<Space>, new: &Arc<Space>) -> bool {
        let pid = old.process.pid;
        {
            // As long as it is in the table the process has not been reaped, and its pid is its own.
            let mut spaces = self.spaces.lock();
            if !spaces.get(&pid).is_some_and(|space| Arc::ptr_eq(space, old)) {
                return false;
            }
            spaces.insert(pid, new.clone());
        }
        let _ = epoll::delete(&self.epoll, old.process.pidfd());
        let data = epoll::EventData::new_u64(pid as u64);
        let added = epoll::add(&self.epoll, new.process.pidfd(), data, epoll::EventFlags::IN).is_ok();
        if !added {
            new.process.kill();
            self.buried(pid);
            return false;
        }
        // It may have been buried before it was added.
        let present = self.spaces.lock().get(&pid).is_some_and(|space| Arc::ptr_eq(space, new));
        if !present {
            let _ = epoll::delete(&self.epoll, new.process.pidfd());
        }
        present
    }

    fn buried(&self, pid: i32) {
        // Out of the table first: once it is reaped, its pid may be that of a new process.
        let Some(space) = self.spaces.lock().remove(&pid) else { return };
        let _ = epoll::delete(&self.epoll, space.process.pidfd());
        let tids = space.died();
        {
            let mut threads = self.threads.lock();
            for tid in tids {
                if threads.get(&tid).is_some_and(|t| Arc::ptr_eq(&t.space, &space)) {
                    threads.remove(&tid);
                }
            }
        }
        let _ = process::wait_child(space.process.pidfd(), true);
        if let Some(space) = Arc::into_inner(space) {
            self.keep_spare(space);
        }
    }
}

/// How long deaths are gathered, in nanoseconds, divided by the number of CPUs: processes that come and go quickly do not wake
/// the watcher each, and few wait to be reaped. No program waits for it: a process that ends has told its parent, and the
/// threads of one that is killed from outside learn of it a little later.
const GATHER: i64 = 4_000_000;

/// Watches until the platform stops and no process is left.
pub(crate) fn watch(inner: &Inner) {
    let mut stopping = false;
    let mut census = Census::default();
    let mut events = Vec::with_capacity(64);
    let gather = Timespec { tv_sec: 0, tv_nsec: GATHER / i64::from(inner.cpus.count()).max(2) };
    loop {
        if stopping && inner.spaces.lock().is_empty() {
            return;
        }
        events.clear();
        let timeout =
            census.due().map(|d| rustix::event::Timespec { tv_sec: d.as_secs() as i64 + 1, tv_nsec: 0 });
        if epoll::wait(&inner.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()).is_err() {
            continue;
        }
        if !stopping && events.iter().all(|e| ![STOP, NUDGE].contains(&e.data.u64())) {
            let _ = poll(&mut [PollFd::new(&inner.stop, PollFlags::IN)], Some(&gather));
            events.clear();
            let _ = epoll::wait(
                &inner.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&Timespec::default()),
            );
        }
        for event in &events {
            match event.data.u64() {
                STOP => {
                    stopping = true;
                    let _ = epoll::delete(&inner.epoll, &inner.stop);
                }
                NUDGE => {
                    let _ = rustix::io::read(&inner.nudge, &mut [0; 8]);
                }
                pid => inner.buried(pid as i32),
            }
        }
        census.step(inner);
    }
}
