//! A process of a container as containerd sees it: the container's own, or one that was exec'ed.

use crate::console::{Console, Receiver};
use crate::runtime::{Runtime, Streams};
use crate::stdio::{LogCaller, Stdio, StreamEnds};
use crate::time::timestamp;
use containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How a process ended, and when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exit {
    pub(crate) status: u32,
    pub(crate) at: Timestamp,
}

impl Exit {
    pub(crate) fn now(status: i32) -> Self {
        let at = timestamp();
        Self { status: status as u32, at }
    }
}

/// Where the threads that wait for a process's end learn of it.
#[derive(Debug, Default)]
pub(crate) struct End {
    exit: Mutex<Option<Exit>>,
    told: Condvar,
}

impl End {
    /// False: it was known already.
    fn set(&self, exit: Exit) -> bool {
        let mut slot = self.exit.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if slot.is_some() {
            return false;
        }
        *slot = Some(exit);
        self.told.notify_all();
        true
    }

    pub(crate) fn get(&self) -> Option<Exit> {
        self.exit.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// The end of what has been killed: it comes soon, unless the process is not our child any more.
    pub(crate) fn wait_briefly(&self) -> Exit {
        let slot = self.exit.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (slot, _) = self
            .told
            .wait_timeout_while(slot, Duration::from_secs(10), |exit| exit.is_none())
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.clone().unwrap_or_else(|| Exit::now(128 + 9))
    }

    pub(crate) fn wait(&self) -> Exit {
        let mut slot = self.exit.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        loop {
            if let Some(exit) = slot.as_ref() {
                return exit.clone();
            }
            slot = self.told.wait(slot).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Empty for the container's own.
    pub(crate) exec_id: String,
    /// 0 before it is there.
    pub(crate) pid: i32,
    pub(crate) started: bool,
    /// Its start is not told yet, so its end must not be.
    pub(crate) starting: bool,
    /// Requests to kill it that are not answered yet. containerd hangs up on those when it hears of the end first.
    pub(crate) killing: u32,
    /// An end that came while one of these holds.
    pub(crate) early: Option<i32>,
    pub(crate) stdio: Stdio,
    pub(crate) held: StreamEnds,
    pub(crate) console: Option<Console>,
    pub(crate) end: Arc<End>,
    /// Of an exec'ed process: to be killed without mistaking another for it.
    pub(crate) pidfd: Option<OwnedFd>,
    /// The client has sent all input already, before the process was there.
    pub(crate) no_more_input: bool,
    /// Of an exec'ed process, until it is started: what to run.
    pub(crate) spec: Vec<u8>,
}

impl Process {
    /// Whether its end may be told.
    pub(crate) fn is_settled(&self) -> bool {
        !self.starting && self.killing == 0
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.get().is_some()
    }

    /// Notes its end. False: it was known already.
    pub(crate) fn ended(&mut self, status: i32) -> bool {
        self.pidfd = None;
        self.end.set(Exit::now(status))
    }

    /// Lets go of streams and terminal; waits a little for output on its way.
    pub(crate) fn release(&mut self) {
        drop(self.console.take());
        self.held.close();
    }
}

/// A process that has just been started.
pub(crate) struct StartedProcess {
    pub(crate) pid: i32,
    pub(crate) held: StreamEnds,
    pub(crate) console: Option<Console>,
}

/// Runs `create` or `exec --detach`: `args` with a pid file, the streams or a socket for the terminal, then `last`.
pub(crate) fn start(
    runtime: &Runtime,
    stdio: &Stdio,
    whose: &LogCaller<'_>,
    pid_file: &Path,
    args: &[&OsStr],
    last: &[&OsStr],
) -> Result<StartedProcess, String> {
    let (streams, held) = stdio.open(whose)?;
    let mut started = StartedProcess { pid: 0, held, console: None };
    let mut args: Vec<OsString> = args.iter().map(|arg| arg.to_os_string()).collect();
    args.extend(["--pid-file".into(), pid_file.into()]);
    let receiver = if stdio.terminal {
        let receiver = Receiver::new().map_err(|error| format!("console socket: {error}"))?;
        args.extend(["--console-socket".into(), receiver.path().into()]);
        Some(receiver)
    } else {
        None
    };
    args.extend(last.iter().map(|arg| arg.to_os_string()));
    let args: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
    let run = match receiver {
        None => runtime.hand_over(&args, Some(streams)),
        Some(receiver) => runtime.hand_over(&args, None).and_then(|()| {
            let Streams { stdin, stdout, .. } = streams;
            let console = receiver.receive().and_then(|master| Console::new(master, stdin, stdout));
            started.console = Some(console.map_err(|error| format!("terminal: {error}"))?);
            Ok(())
        }),
    };
    if let Err(error) = run {
        started.held.close();
        return Err(error);
    }
    let pid =
        std::fs::read_to_string(pid_file).map_err(|error| format!("{}: {error}", pid_file.display()))?;
    started.pid = pid.trim().parse().map_err(|_| format!("{}: no process id", pid_file.display()))?;
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_once() {
        let mut process = Process::default();
        let end = process.end.clone();
        let waiter = std::thread::spawn(move || end.wait().status);
        assert!(!process.has_ended());
        assert!(process.ended(3));
        assert!(!process.ended(4));
        assert_eq!(waiter.join().unwrap(), 3);
    }
}
