//! Notices that stub processes have ended, tells their contexts, reaps them.

use crate::Inner;
use crate::space::Space;
use abi::{Errno, Result};
use hostsys::process;
use rustix::event::epoll;
use std::sync::Arc;

/// Key of the stop event among the pids.
pub(crate) const STOP: u64 = u64::MAX;

impl Inner {
    /// Takes charge of a new process.
    pub(crate) fn adopt(&self, space: &Arc<Space>) -> Result<()> {
        self.spaces.lock().insert(space.pid, space.clone());
        let data = epoll::EventData::new_u64(space.pid as u64);
        epoll::add(&self.epoll, space.pidfd(), data, epoll::EventFlags::IN).map_err(|e| {
            self.spaces.lock().remove(&space.pid);
            let _ = process::pidfd_kill(space.pidfd(), libc::SIGKILL);
            Errno::from_raw(e.raw_os_error())
        })
    }

    fn buried(&self, pid: i32) {
        // Out of the table first: once it is reaped, its pid may be that of a new process.
        let Some(space) = self.spaces.lock().remove(&pid) else { return };
        let _ = epoll::delete(&self.epoll, space.pidfd());
        let tids = space.died();
        {
            let mut threads = self.threads.lock();
            for tid in tids {
                if threads.get(&tid).is_some_and(|t| Arc::ptr_eq(&t.space, &space)) {
                    threads.remove(&tid);
                }
            }
        }
        let _ = process::wait_child(space.pidfd(), true);
    }
}

/// Watches until the platform stops and no process is left.
pub(crate) fn watch(inner: &Inner) {
    let mut stopping = false;
    let mut events = Vec::with_capacity(64);
    loop {
        if stopping && inner.spaces.lock().is_empty() {
            return;
        }
        events.clear();
        if epoll::wait(&inner.epoll, rustix::buffer::spare_capacity(&mut events), None).is_err() {
            continue;
        }
        for event in &events {
            match event.data.u64() {
                STOP => {
                    stopping = true;
                    let _ = epoll::delete(&inner.epoll, &inner.stop);
                }
                pid => inner.buried(pid as i32),
            }
        }
    }
}
