//! Control groups of the host for the processes of one container of several.
//!
//! A process of a sandbox is made in the sandbox's own group. fork(2) inherits the group. execve(2) needs a new host
//! process, which has to be moved. A move takes the host some 10 ms, so one moved process is kept ready. A program that
//! starts others one after the other waits only if it starts them faster than they are moved.

use abi::{Errno, Result};
use lock_order::Mutex;
use platform::{Context, Platform};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where a container's processes go.
pub(crate) struct HostCgroups {
    files: Vec<File>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spare: Option<Box<dyn Context>>,
    /// A thread is making one.
    busy: bool,
    /// None is wanted any more.
    closed: bool,
}

impl HostCgroups {
    pub(crate) fn new(files: Vec<OwnedFd>) -> Arc<HostCgroups> {
        Arc::new(HostCgroups { files: files.into_iter().map(File::from).collect(), state: Mutex::default() })
    }

    /// An address space that is in the groups; EAGAIN if the host does not put it there.
    pub(crate) fn new_space(self: &Arc<Self>, platform: &Arc<dyn Platform>) -> Result<Box<dyn Context>> {
        let spare = {
            let mut s = self.state.lock();
            let spare = s.spare.take();
            let wanted = !s.busy && !s.closed;
            s.busy |= wanted;
            if wanted && !self.refill(platform) {
                s.busy = false;
            }
            spare
        };
        match spare {
            Some(ctx) => Ok(ctx),
            None => self.make(platform),
        }
    }

    fn make(&self, platform: &Arc<dyn Platform>) -> Result<Box<dyn Context>> {
        let ctx = platform.new_space()?;
        let pid = ctx.space().host_pid().to_string();
        for mut file in &self.files {
            if let Err(error) = file.write_all(pid.as_bytes()) {
                // Nothing runs without the limits that it is to have.
                log::warn!("a process cannot be put into its control group: {error}");
                ctx.exit();
                return Err(Errno::EAGAIN);
            }
        }
        Ok(ctx)
    }

    /// Makes the next one in a thread of its own; false when there is no thread.
    fn refill(self: &Arc<Self>, platform: &Arc<dyn Platform>) -> bool {
        let (cgroups, platform) = (self.clone(), platform.clone());
        let run = move || {
            hostsys::cpu::roam();
            let made = cgroups.make(&platform).ok();
            let unwanted = {
                let mut s = cgroups.state.lock();
                s.busy = false;
                if s.closed {
                    made
                } else {
                    s.spare = made;
                    None
                }
            };
            if let Some(ctx) = unwanted {
                ctx.exit();
            }
        };
        std::thread::Builder::new().name("groups".into()).stack_size(256 << 10).spawn(run).is_ok()
    }

    /// The container has ended.
    pub(crate) fn close(&self) {
        let spare = {
            let mut s = self.state.lock();
            s.closed = true;
            s.spare.take()
        };
        if let Some(ctx) = spare {
            ctx.exit();
        }
    }
}
