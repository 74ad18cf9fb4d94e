//! Containers that end with the command that started them.

use crate::crash::CrashFile;
use crate::{Error, Result};
use bundle::Prepared;
use hostsys::signals::SignalFd;
use sandbox::launch::Sandbox;
use sandbox::relay::{self, Outcome};
use sandbox::terminal::{self, RawMode};
use std::os::fd::OwnedFd;

/// Takes over the signals; the first thing that a command in the foreground does, so that one that arrives during the
/// start reaches the program once it runs.
pub fn block_signals() -> Result<SignalFd> {
    Ok(relay::block_signals()?)
}

/// Gives the container's terminal the size of the user's.
pub(crate) fn fit(prepared: &mut Prepared, console: &OwnedFd) {
    let size = terminal::size(console);
    if size.rows != 0 || size.cols != 0 {
        prepared.spec.console_size = size;
    }
}

/// Stays with a container until it ends; its exit status.
pub(crate) fn attend(
    sandbox: Sandbox,
    signals: &SignalFd,
    console: Option<&OwnedFd>,
    crash: &CrashFile,
    on_start: impl FnMut(),
) -> Result<u8> {
    let _raw = console.map(RawMode::enter).transpose()?;
    match relay::run(sandbox, signals, console, on_start)? {
        Outcome::Exited(status) => Ok(status),
        Outcome::NotStarted(error) => Err(Error::not_started(error)),
        Outcome::Lost(how) => {
            Err(format!("the sandbox ended unexpectedly: {how}; {}", crash.advice()).into())
        }
    }
}
