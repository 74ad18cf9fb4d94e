//! What the commands that start or find containers have in common.

use crate::cli::Global;
use crate::{Failure, INTERNAL_ERROR, logs};
use bundle::{Options, Prepared};
use confine::ids::{Mapping, Maps};
use hostsys::signals::SignalFd;
use rustix::process::{Resource, getrlimit};
use sandbox::client::Client;
use sandbox::launch::{Files, Holds, Sandbox, launch};
use sandbox::relay::{self, Outcome};
use sandbox::state::{self, Container, Record};
use sandbox::terminal::{self, RawMode};
use spec::{Overlay, ProcessSpec, RlimitSpec, StartError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Whether the caller is to be root inside and nothing else.
pub(crate) fn rootless(global: &Global) -> bool {
    global.rootless || !rustix::process::geteuid().is_root()
}

/// The state directory.
pub(crate) fn state_dir(global: &Global) -> PathBuf {
    if let Some(dir) = &global.root {
        return dir.clone();
    }
    // Root of a user namespace is an ordinary user of the host, whom /run does not belong to.
    if !rootless(global) && (users_are_the_hosts() || std::env::var_os("XDG_RUNTIME_DIR").is_none()) {
        return "/run/ringfence".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("ringfence"),
        None => format!("/tmp/ringfence-{}", rustix::process::geteuid().as_raw()).into(),
    }
}

/// Whether every user of the host has the same number here: not inside a user namespace, in other words.
pub(crate) fn users_are_the_hosts() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// What the global flags choose for every container of a bundle.
pub(crate) fn options(global: &Global) -> Options {
    Options {
        root_overlay: global.overlay2.map_or(Overlay::None, |overlay| overlay.root),
        bind_overlay: global.overlay2.map_or(Overlay::None, |overlay| overlay.binds),
        network: global.network,
        platform: global.platform.into(),
        strace: global.strace,
        debug: global.debug,
        preserve_fds: 0,
    }
}

/// Which users of the host the sandbox has.
pub(crate) fn mapping(global: &Global, prepared: &Prepared) -> Result<Mapping, Failure> {
    let user = rustix::process::geteuid();
    let caller = if rootless(global) { Mapping::CallerAsRoot } else { Mapping::Identity };
    let Some(maps) = &prepared.id_maps else { return Ok(caller) };
    let ranges = |list: &[bundle::IdRange]| -> Vec<_> {
        list.iter().map(|range| (range.inside, range.outside, range.count)).collect()
    };
    let (uids, gids) = (ranges(&maps.uids), ranges(&maps.gids));
    // What an ordinary user may write without help.
    if !user.is_root() && uids == [(0, user.as_raw(), 1)] {
        return Ok(Mapping::CallerAsRoot);
    }
    match Maps::new(&uids, &gids) {
        Some(maps) => Ok(Mapping::Listed(maps)),
        None => Err("linux.uidMappings or gidMappings has too many ranges; join some of them".into()),
    }
}

/// Takes over the signals; the first thing that a command in the foreground does, so that one that
/// arrives during the start reaches the program once it runs.
pub(crate) fn signals() -> Result<SignalFd, Failure> {
    Ok(relay::block_signals()?)
}

/// The host's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The standard streams of this process.
pub(crate) fn stdio() -> io::Result<[OwnedFd; 3]> {
    let clone = |fd: BorrowedFd<'_>| fd.try_clone_to_owned();
    Ok([clone(rustix::stdio::stdin())?, clone(rustix::stdio::stdout())?, clone(rustix::stdio::stderr())?])
}

/// The descriptors that the caller passed beside the standard streams, as `--preserve-fds` counts them.
pub(crate) fn preserved(count: u32) -> Result<Vec<OwnedFd>, Failure> {
    (0..count as i32)
        .map(|n| {
            hostsys::inherited::take(3 + n)
                .map_err(|error| format!("--preserve-fds {count}: descriptor {}: {error}", 3 + n).into())
        })
        .collect()
}

/// What the uts namespace of a container without a name of its own starts with.
pub(crate) fn complete(prepared: &mut Prepared) {
    for warning in &prepared.warnings {
        log::warn!("{warning}");
    }
    if prepared.spec.hostname.is_empty() {
        prepared.spec.hostname = hostname();
    }
}

/// The caller's own terminal, for a container in the foreground that wants one.
pub(crate) fn callers_terminal() -> Result<OwnedFd, Failure> {
    match terminal::of_standard_streams() {
        Some(tty) => Ok(tty),
        None => Err("process.terminal is true, but no standard stream is a terminal; \
                     set it to false, or name a --console-socket"
            .into()),
    }
}

/// Runs a prepared container that has no state on disk, and returns its exit status.
pub(crate) fn run_unnamed(
    global: &Global,
    mut prepared: Prepared,
    signals: &SignalFd,
    command: &str,
) -> Result<u8, Failure> {
    complete(&mut prepared);
    let console = if prepared.spec.process.terminal { Some(callers_terminal()?) } else { None };
    fit(&mut prepared, console.as_ref());
    let files = Files {
        stdio: stdio()?,
        console: console.as_ref().map(OwnedFd::try_clone).transpose()?,
        preserved: Vec::new(),
        control_group: Vec::new(),
    };
    let log = logs::for_sandbox(global, &prepared.spec.id, command, false)?;
    let holds = Holds { alive: None, joined: &mut |_| Ok(()), network: None };
    let sandbox = launch(log.as_fd(), mapping(global, &prepared)?, holds)?;
    sandbox.set_up(&prepared, &files, None)?;
    drop((files, log));
    sandbox.start()?;
    attend(sandbox, signals, console.as_ref(), || {})
}

/// Gives the container's terminal the size of the user's.
pub(crate) fn fit(prepared: &mut Prepared, console: Option<&OwnedFd>) {
    let size = console.map(terminal::size).unwrap_or_default();
    if size.rows != 0 || size.cols != 0 {
        prepared.spec.console_size = size;
    }
}

/// Stays with a container in the foreground until it ends; its exit status.
pub(crate) fn attend(
    sandbox: Sandbox,
    signals: &SignalFd,
    console: Option<&OwnedFd>,
    on_start: impl FnMut(),
) -> Result<u8, Failure> {
    let _raw = console.map(RawMode::enter).transpose()?;
    match relay::run(sandbox, signals, console, on_start)? {
        Outcome::Exited(status) => Ok(status),
        Outcome::NotStarted(error) => Err(not_started(error)),
        Outcome::Lost(how) => {
            Err(format!("the sandbox ended unexpectedly: {how}; run again with --debug to see why").into())
        }
    }
}

/// The failure of a container or process that never ran.
pub(crate) fn not_started(error: StartError) -> Failure {
    let status = u8::try_from(error.exit_status()).unwrap_or(INTERNAL_ERROR);
    Failure::with_status(status, error.message)
}

/// The caller's resource limits.
pub(crate) fn callers_limits() -> Vec<RlimitSpec> {
    let resources = [
        Resource::Cpu,
        Resource::Fsize,
        Resource::Data,
        Resource::Stack,
        Resource::Core,
        Resource::Rss,
        Resource::Nproc,
        Resource::Nofile,
        Resource::Memlock,
        Resource::As,
        Resource::Locks,
        Resource::Sigpending,
        Resource::Msgqueue,
        Resource::Nice,
        Resource::Rtprio,
        Resource::Rttime,
    ];
    let spec = |(number, resource): (usize, &Resource)| {
        let limit = getrlimit(*resource);
        RlimitSpec {
            resource: number as u32,
            soft: limit.current.unwrap_or(u64::MAX),
            hard: limit.maximum.unwrap_or(u64::MAX),
        }
    };
    resources.iter().enumerate().map(spec).collect()
}

/// Gives a process the caller's limits where its configuration names none, as a child of the caller would have them.
pub(crate) fn inherit_limits(process: &mut ProcessSpec) {
    for limit in callers_limits() {
        if process.rlimits.iter().all(|known| known.resource != limit.resource) {
            process.rlimits.push(limit);
        }
    }
}

/// The container of that name.
pub(crate) fn find(global: &Global, id: &str) -> Result<(Container, Record), Failure> {
    Ok(Container::find(&state_dir(global), id)?)
}

/// A connection to a container's sentry.
pub(crate) fn connect(container: &Container) -> Result<Client, Failure> {
    Client::connect(container.dir()?.as_fd(), state::SOCKET).map_err(|_| "container not running".into())
}

/// Writes a process id as clients want it: readers see all of it or nothing.
pub(crate) fn write_pid_file(path: &Path, pid: i32) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}"));
    let written =
        std::fs::write(&temporary, pid.to_string()).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        format!("pid file {}: {error}", path.display()).into()
    })
}
