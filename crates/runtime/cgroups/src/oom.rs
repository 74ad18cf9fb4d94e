//! Notices of a group that is out of memory.

use crate::files::{table, write};
use crate::groups::Groups;
use crate::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A descriptor that becomes readable when something happened. That may be the end of the group, or a limit hit
/// without anybody being killed: [`Manager::oom_kill_count`](crate::Manager::oom_kill_count) tells.
#[derive(Debug)]
pub struct OomEvents {
    fd: OwnedFd,
}

impl OomEvents {
    /// Takes what is to be read, so that the descriptor becomes readable anew next time.
    pub fn drain(&self) {
        let mut buffer = [0; 4096];
        while rustix::io::read(&self.fd, &mut buffer).is_ok_and(|n| n == buffer.len()) {}
    }
}

impl AsFd for OomEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn events(groups: &Groups) -> Result<OomEvents> {
    let dir = groups.dir("memory")?;
    if groups.v2() {
        let path = dir.join("memory.events");
        let watch = || {
            let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            inotify::add_watch(&fd, &path, inotify::WatchFlags::MODIFY)?;
            Ok::<_, rustix::io::Errno>(fd)
        };
        let fd = watch().map_err(|error| Error::file("memory", "watch", &path, error.into()))?;
        return Ok(OomEvents { fd });
    }
    let path = dir.join("memory.oom_control");
    let control = std::fs::File::open(&path).map_err(|error| Error::file("memory", "open", &path, error))?;
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|error| Error::file("memory", "eventfd for", &path, error.into()))?;
    let line = format!("{} {}", fd.as_raw_fd(), control.as_raw_fd());
    write("memory", &dir.join("cgroup.event_control"), &line)?;
    Ok(OomEvents { fd })
}

/// How many processes the kernel has killed for want of memory.
pub(crate) fn kills(groups: &Groups) -> u64 {
    let Ok(dir) = groups.dir("memory") else { return 0 };
    let file = if groups.v2() { "memory.events" } else { "memory.oom_control" };
    table(&dir.join(file)).get("oom_kill").copied().unwrap_or(0)
}
