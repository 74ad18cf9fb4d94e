//! `debug`: shows the activity of a running container's kernel.

use crate::find::connect;
use crate::ps::{self, running};
use crate::{Result, Settings, pod, sentry_core};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use spec::{ProcessInfo, Refusal};
use std::fs::File;
use std::os::fd::BorrowedFd;

pub use crate::sentry_core::{LONGEST as LONGEST_STOP, SentryCore, SentryCoreWritten};

/// Fails when the container does not run.
pub fn check_runs(settings: &Settings, id: &str) -> Result<()> {
    running(settings, id).map(|_| ())
}

/// The processes of a container, whether it is paused or not.
pub fn processes(settings: &Settings, id: &str) -> Result<Vec<ProcessInfo>> {
    Ok(connect(&running(settings, id)?.0)?.processes()?)
}

/// What programs of the container's sandbox asked for and did not get.
pub fn refusals(settings: &Settings, id: &str) -> Result<Vec<Refusal>> {
    Ok(connect(&running(settings, id)?.0)?.refusals()?)
}

/// Changes what the container's sentry logs.
pub fn set_log(settings: &Settings, id: &str, debug: bool, strace: bool) -> Result<()> {
    Ok(connect(&running(settings, id)?.0)?.log(debug, strace)?)
}

/// Sends a signal to the sandbox's own kernel: the host process that is the sentry.
pub fn signal_sentry(settings: &Settings, id: &str, signo: i32) -> Result<()> {
    let pid = Pid::from_raw(sentry(settings, id)?).ok_or("the sandbox's kernel is not there any more")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    match Signal::from_named_raw(signo) {
        Some(signal) => Ok(pidfd_send_signal(&pidfd, signal)?),
        None => Err(format!("signal {signo} has no name on the host").into()),
    }
}

/// The sandbox's own kernel, by its process ID on the host.
fn sentry(settings: &Settings, id: &str) -> Result<i32> {
    let init = host_processes(settings, id)?.init;
    ps::sentry(init).ok_or_else(|| "the sandbox's kernel is not there any more".into())
}

/// Writes a core file of the sandbox's own kernel, which is stopped meanwhile.
pub fn sentry_core(settings: &Settings, id: &str, wanted: &SentryCore<'_>) -> Result<SentryCoreWritten> {
    sentry_core::write(sentry(settings, id)?, wanted)
}

/// Writes a core file of a process inside, by its id in the container; the process goes on. Ends early when `stop` is
/// readable. Gives its threads, and how many further ones did not come to a stop.
pub fn guest_core(
    settings: &Settings,
    id: &str,
    pid: i32,
    file: &File,
    stop: BorrowedFd<'_>,
) -> Result<(u32, u32)> {
    let (container, record) = running(settings, id)?;
    if record.is_frozen() {
        return Err("container is paused: resume it first".into());
    }
    Ok(connect(&container)?.guest_core(pid, file, stop)?)
}

/// Processes on the host that a profile is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProcesses {
    /// Pid 1 of the sandbox.
    pub init: i32,
    /// The one that stands for the container: `init`, or another one in a pod.
    pub container: i32,
}

/// Which processes on the host a container and its sandbox hang on.
pub fn host_processes(settings: &Settings, id: &str) -> Result<HostProcesses> {
    let (_, record) = running(settings, id)?;
    let container = record.state.pid;
    Ok(HostProcesses { init: pod::sandbox_of(settings, record)?.state.pid, container })
}
