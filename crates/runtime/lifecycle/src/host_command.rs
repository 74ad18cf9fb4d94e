//! `do`: a container in the foreground that has no state on disk.

use crate::network::Outward;
use crate::stores::Stores;
use crate::{Result, Settings, caller, capture, create, foreground, id_maps, sandbox_log};
use bundle::Prepared;
use hostsys::signals::SignalFd;
use netgofer::Policy;
use sandbox::launch::{Files, HostHandles, NetGofer, launch};
use std::os::fd::{AsFd, OwnedFd};

/// Runs a prepared container, which may reach `allow_net` in host mode, and returns its exit status. `signals` comes from
/// [`block_signals`](crate::block_signals).
pub fn run_host_command(
    settings: &Settings,
    mut prepared: Prepared,
    allow_net: Option<&Policy>,
    signals: &SignalFd,
) -> Result<u8> {
    create::complete(&mut prepared);
    let outward = Outward::of(&mut prepared, allow_net)?;
    let console = if prepared.spec.process.terminal { Some(caller::own_terminal()?) } else { None };
    if let Some(tty) = &console {
        foreground::fit(&mut prepared, tty);
    }
    let (_stores, stores) = Stores::make(&prepared.stores)?;
    let capture = capture::open(settings, &mut prepared, "do")?;
    let files = Files {
        stdio: caller::stdio()?,
        console: console.as_ref().map(OwnedFd::try_clone).transpose()?,
        preserved: Vec::new(),
        stores,
        capture,
        write_back: None,
        links: Vec::new(),
        control_group: Vec::new(),
    };
    let log = sandbox_log::open(settings, &prepared.spec.id, "do", false)?;
    let net_gofer = outward.as_ref().map(|o| NetGofer { setup: &o.setup, outside: o.outside });
    let groups = hostsys::spawn::Groups::default();
    let handles =
        HostHandles { alive: None, groups: &groups, joined: &mut |_| Ok(()), network: None, net_gofer };
    let sandbox = launch(log.as_fd(), id_maps::mapping(settings, &prepared)?, handles)?;
    sandbox.set_up(&prepared, &files, None)?;
    drop((files, log));
    sandbox.start()?;
    foreground::attend(sandbox, signals, console.as_ref(), || {})
}
