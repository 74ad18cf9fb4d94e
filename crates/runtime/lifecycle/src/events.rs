//! `events`: a container's usage, and notices that its memory ran out.

use crate::directory::Container;
use crate::record::{Record, Status};
use crate::{Result, Settings};
use cgroups::{Manager, Stats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// One line of `events`.
#[derive(Clone, Debug)]
pub enum Event {
    /// Figures, at every interval.
    Stats(Box<Stats>),
    /// The host killed a process for want of memory.
    OutOfMemory,
}

/// What a container uses at present.
pub fn stats(settings: &Settings, id: &str) -> Result<Stats> {
    Ok(running(settings, id)?.2.stats())
}

/// Reports figures at every interval, and every time memory runs out, until the container ends or `report` fails.
pub fn events(
    settings: &Settings,
    id: &str,
    interval: Duration,
    mut report: impl FnMut(Event) -> Result<()>,
) -> Result<()> {
    let (container, record, groups) = running(settings, id)?;
    let oom = groups.oom_events()?;
    let pid = Pid::from_raw(record.state.pid).ok_or("container not running")?;
    let end = pidfd_open(pid, PidfdFlags::empty())?;
    let (mut next, mut seen) = (Instant::now() + interval, groups.oom_kill_count());
    while container.is_alive() {
        let mut fds =
            [PollFd::new(&oom, PollFlags::IN), PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
        let left = next.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [out_of_memory, ended] = [0, 1].map(|i: usize| !fds[i].revents().is_empty());
        if out_of_memory {
            oom.drain();
            let kills = groups.oom_kill_count();
            if kills > seen {
                seen = kills;
                report(Event::OutOfMemory)?;
            }
        }
        if ended {
            break;
        }
        if Instant::now() >= next {
            report(Event::Stats(Box::new(groups.stats())))?;
            next = Instant::now() + interval;
        }
    }
    Ok(())
}

fn running(settings: &Settings, id: &str) -> Result<(Container, Record, Manager)> {
    let (container, record) = settings.find(id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    let groups = record.groups()?;
    Ok((container, record, groups))
}
