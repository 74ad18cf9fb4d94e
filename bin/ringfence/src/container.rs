//! Running one container in the foreground: what `do` and `run` have in common.

use crate::cli::Global;
use crate::{Failure, INTERNAL_ERROR, logs};
use bundle::{Options, Prepared};
use confine::ids::Mapping;
use hostsys::signals::SignalFd;
use sandbox::launch::{Files, launch};
use sandbox::relay::{self, Outcome};
use sandbox::terminal::{self, RawMode};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Whether the caller is to be root inside and nothing else.
pub(crate) fn rootless(global: &Global) -> bool {
    global.rootless || !rustix::process::geteuid().is_root()
}

/// The state directory.
pub(crate) fn state_dir(global: &Global) -> PathBuf {
    if let Some(dir) = &global.root {
        return dir.clone();
    }
    if !rootless(global) {
        return "/run/ringfence".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("ringfence"),
        None => format!("/tmp/ringfence-{}", rustix::process::geteuid().as_raw()).into(),
    }
}

/// What the global flags choose for every container.
pub(crate) fn options(global: &Global) -> Options {
    Options {
        root_overlay: global.overlay2.root,
        bind_overlay: global.overlay2.binds,
        network: global.network,
        platform: global.platform.into(),
        strace: global.strace,
        debug: global.debug,
    }
}

/// Takes over the signals; the first thing that `do` and `run` do, so that one that arrives
/// during the start reaches the program once it runs.
pub(crate) fn signals() -> Result<SignalFd, Failure> {
    Ok(relay::block_signals()?)
}

/// The host's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Runs a prepared container and returns its exit status.
pub(crate) fn run(
    global: &Global,
    mut prepared: Prepared,
    signals: &SignalFd,
    command: &str,
    on_start: impl FnMut(),
) -> Result<u8, Failure> {
    for warning in &prepared.warnings {
        log::warn!("{warning}");
    }
    if prepared.spec.hostname.is_empty() {
        // What a new uts namespace starts with.
        prepared.spec.hostname = hostname();
    }
    let console = console(&prepared)?;
    if let Some(tty) = &console {
        let size = terminal::size(tty);
        if size.rows != 0 || size.cols != 0 {
            prepared.spec.console_size = size;
        }
    }
    let clone = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned();
    let files = Files {
        stdio: [
            clone(rustix::stdio::stdin())?,
            clone(rustix::stdio::stdout())?,
            clone(rustix::stdio::stderr())?,
        ],
        console: console.as_ref().map(OwnedFd::try_clone).transpose()?,
        log: logs::for_sandbox(global, &prepared.spec.id, command)?,
    };
    let mapping = if rootless(global) { Mapping::CallerAsRoot } else { Mapping::Identity };
    let sandbox = launch(&prepared, &files, mapping)?;
    drop(files);
    let _raw = console.as_ref().map(RawMode::enter).transpose()?;
    match relay::run(sandbox, signals, console.as_ref(), on_start)? {
        Outcome::Exited(status) => Ok(status),
        Outcome::NotStarted(error) => {
            let status = u8::try_from(error.exit_status()).unwrap_or(INTERNAL_ERROR);
            Err(Failure::with_status(status, error.message))
        }
        Outcome::Lost(how) => {
            Err(format!("the sandbox ended unexpectedly: {how}; run again with --debug to see why").into())
        }
    }
}

fn console(prepared: &Prepared) -> Result<Option<OwnedFd>, Failure> {
    if !prepared.spec.process.terminal {
        return Ok(None);
    }
    match terminal::of_standard_streams() {
        Some(tty) => Ok(Some(tty)),
        None => Err("process.terminal is true, but no standard stream is a terminal; set it to false".into()),
    }
}
