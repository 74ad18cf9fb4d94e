//! `debug`: shows the activity of a running container's kernel.

use crate::find::connect;
use crate::ps::{self, running};
use crate::{Result, Settings, pod};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use spec::{ProcessInfo, Refusal};

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
    let host = host_processes(settings, id)?;
    let sentry = ps::sentry(host.init).ok_or("the sandbox's kernel is not there any more")?;
    let pid = Pid::from_raw(sentry).ok_or("the sandbox's kernel is not there any more")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    match Signal::from_named_raw(signo) {
        Some(signal) => Ok(pidfd_send_signal(&pidfd, signal)?),
        None => Err(format!("signal {signo} has no name on the host").into()),
    }
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
