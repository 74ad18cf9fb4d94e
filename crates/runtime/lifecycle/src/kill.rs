//! `kill`: signals from outside. SIGKILL ends the container without help from inside.

use crate::directory::Container;
use crate::find::connect;
use crate::record::{Record, Status};
use crate::{Error, Result, Settings};
use bundle::Pod;
use cgroups::Manager;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::client::Client;
use spec::Target;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long a sentry may take to end one container of several, before the process that stands for it is killed.
const INSIDE: Duration = Duration::from_secs(3);

/// How long it may take to end a container with a root that is then written back.
const WRITTEN_BACK: Duration = Duration::from_secs(60);

/// Sends a signal to processes of a container.
pub fn kill(settings: &Settings, id: &str, signo: i32, to: Target) -> Result<()> {
    let (container, record) = settings.find(id)?;
    if record.state.status == Status::Stopped {
        // As with runc: no process is left, which is what --all asks for.
        return if to == Target::All { Ok(()) } else { Err("container not running".into()) };
    }
    if signo == libc::SIGKILL && !matches!(to, Target::Process(_) | Target::Group(_)) {
        // Needs no help from inside, and takes every process along.
        end(&container, &record)
    } else if record.is_frozen() {
        // A frozen sentry does not answer. It finds the signal when the container goes on.
        Ok(connect(&container)?.post_signal(signo, to)?)
    } else {
        Ok(connect(&container)?.signal(signo, to)?)
    }
}

/// Kills the host process that everything of the container hangs on.
fn end(container: &Container, record: &Record) -> Result<()> {
    let Some(pid) = Pid::from_raw(record.state.pid) else { return Err("container not running".into()) };
    let gone = |error| match error {
        rustix::io::Errno::SRCH => Error::from("container not running"),
        error => error.into(),
    };
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(gone)?;
    // The id cannot have been given to another process while the container still held its lock.
    if !container.is_alive() {
        return Err("container not running".into());
    }
    let patience = match record.pod() {
        _ if record.writes_back() => Some(WRITTEN_BACK),
        Pod::Member(_) => Some(INSIDE),
        _ => None,
    };
    if record.writes_back() && record.is_frozen() {
        // What was written since it was paused is to be written back, which a frozen kernel cannot.
        record.groups()?.thaw()?;
    }
    if patience.is_some_and(|patience| ended_inside(container, &pidfd, patience)) {
        return Ok(());
    }
    pidfd_send_signal(&pidfd, Signal::KILL).map_err(gone)?;
    // A frozen process does not notice.
    if let Some(saved) = record.saved_groups() {
        let groups = Manager::load(saved);
        if groups.is_frozen() {
            groups.thaw()?;
        }
    }
    Ok(())
}

/// Asks the sentry to end one container of several, so that nothing of it is left when its process goes. Whether the
/// sentry did what it says is looked at.
fn ended_inside(container: &Container, pidfd: impl AsFd, time: Duration) -> bool {
    let asked =
        |client: Client| client.hurry(INSIDE).is_ok() && client.signal(libc::SIGKILL, Target::All).is_ok();
    let patience = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
    connect(container).is_ok_and(asked)
        && poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience)) == Ok(1)
}

/// Ends a container that may end by itself meanwhile.
pub(crate) fn end_if_there(container: &Container, record: &Record) -> Result<()> {
    match end(container, record) {
        Err(error) if container.is_alive() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;

    #[test]
    fn a_container_that_has_ended() {
        let dir = StateDir::new("kill");
        dir.ended("x");
        let kill = |signo, to| kill(&dir.settings(), "x", signo, to).map_err(|error| error.to_string());
        for signo in [libc::SIGTERM, libc::SIGKILL] {
            assert_eq!(kill(signo, Target::All), Ok(()));
            assert_eq!(kill(signo, Target::Init), Err("container not running".into()));
        }
    }
}
