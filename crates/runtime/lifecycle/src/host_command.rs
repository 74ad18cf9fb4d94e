//! `do`: a container in the foreground that has no state on disk.

use crate::{Result, Settings, caller, create, foreground, id_maps, sandbox_log};
use bundle::Prepared;
use hostsys::signals::SignalFd;
use sandbox::launch::{Files, HostHandles, launch};
use std::os::fd::{AsFd, OwnedFd};

/// Runs a prepared container and returns its exit status. `signals` comes from
/// [`block_signals`](crate::block_signals).
pub fn run_host_command(settings: &Settings, mut prepared: Prepared, signals: &SignalFd) -> Result<u8> {
    create::complete(&mut prepared);
    let console = if prepared.spec.process.terminal { Some(caller::own_terminal()?) } else { None };
    if let Some(tty) = &console {
        foreground::fit(&mut prepared, tty);
    }
    let files = Files {
        stdio: caller::stdio()?,
        console: console.as_ref().map(OwnedFd::try_clone).transpose()?,
        preserved: Vec::new(),
        control_group: Vec::new(),
    };
    let log = sandbox_log::open(settings, &prepared.spec.id, "do", false)?;
    let handles = HostHandles { alive: None, joined: &mut |_| Ok(()), network: None };
    let sandbox = launch(log.as_fd(), id_maps::mapping(settings, &prepared)?, handles)?;
    sandbox.set_up(&prepared, &files, None)?;
    drop((files, log));
    sandbox.start()?;
    foreground::attend(sandbox, signals, console.as_ref(), || {})
}
