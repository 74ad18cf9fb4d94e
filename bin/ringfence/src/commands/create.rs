//! `ringfence create`, `start` and `run`: containers from OCI bundles.

use crate::cli::{Create, Global, Id, Run};
use crate::record::{self, Kept};
use crate::{Failure, container, logs, names, pod, start_hooks};
use bundle::{Config, Options, Pod, Prepared};
use cgroups::Manager;
use hooks::Kind;
use oci_spec::runtime::{Hooks, LinuxNamespaceType, Spec};
use sandbox::client::Client;
use sandbox::console;
use sandbox::launch::{Files, Holds, Sandbox, launch};
use sandbox::member;
use sandbox::state::{self, Claim, Record, State, Status};
use spec::Target;
use std::io::IsTerminal;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) fn create(global: &Global, args: &Create) -> Result<u8, Failure> {
    let mut made = set_up(global, args, "create", false)?;
    await_ready(&mut made.sandbox)?;
    made.settle(args, Status::Created)?;
    Ok(0)
}

pub(crate) fn start(global: &Global, args: &Id) -> Result<u8, Failure> {
    let (container, _) = container::find(global, &args.id)?;
    let _lock = container.lock()?;
    let (container, mut record) = container::find(global, &args.id)?;
    match record.state.status {
        Status::Created => {}
        Status::Stopped => return Err("cannot start a container that has stopped".into()),
        Status::Running => return Err("cannot start an already running container".into()),
        status => return Err(format!("cannot start a container in the {status} state").into()),
    }
    let hooks = record::hooks_of(&container);
    if let Err(error) = start_hooks::run(&container, &hooks, &record.state) {
        // The container ends without having run.
        container::connect(&container)?.signal(libc::SIGKILL, Target::Init)?;
        return Err(error);
    }
    let client = container::connect(&container)?;
    show_network_again(&client, &record);
    client.start()?;
    record.state.status = Status::Running;
    container.write(&record)?;
    record::run_later_hooks(&hooks, Kind::Poststart, &record.state);
    Ok(0)
}

pub(crate) fn run(global: &Global, args: &Run) -> Result<u8, Failure> {
    if args.detach {
        let mut made = set_up(global, &args.create, "run", false)?;
        await_ready(&mut made.sandbox)?;
        start_hooks::run(made.claim.container(), &made.hooks, &made.state(Status::Created))?;
        made.sandbox.start()?;
        let (hooks, state) = (made.hooks.clone(), made.state(Status::Running));
        made.settle(&args.create, Status::Running)?;
        record::run_later_hooks(&hooks, Kind::Poststart, &state);
        return Ok(0);
    }
    let signals = container::signals()?;
    // Dropped from the last to the first: processes before the groups that they are in.
    let Made { hooks, console, mut record, mut claim, mut groups, mut sandbox } =
        set_up(global, &args.create, "run", true)?;
    if let Some(file) = &args.create.pid_file {
        container::write_pid_file(file, sandbox.pid())?;
    }
    if !Kind::StartContainer.of(&hooks).is_empty() {
        await_ready(&mut sandbox)?;
        let state = State { status: Status::Created, pid: sandbox.pid(), ..record.state.clone() };
        start_hooks::run(claim.container(), &hooks, &state)?;
    }
    sandbox.start()?;
    let pid = sandbox.pid();
    let outcome = container::attend(sandbox, &signals, console.as_ref(), || {
        record.state.status = Status::Running;
        record.state.pid = pid;
        if let Err(error) = claim.container().write(&record) {
            log::warn!("state of {}: {error}", record.state.id);
        }
        claim.unlock();
        record::run_later_hooks(&hooks, Kind::Poststart, &record.state);
    });
    if !claim.relock() {
        return outcome;
    }
    record.state.status = Status::Stopped;
    record.state.pid = 0;
    if args.keep && outcome.is_ok() {
        record.foreground = false;
        claim.container().write(&record)?;
        groups.0 = None;
        claim.keep();
    } else {
        drop(groups);
        record::run_later_hooks(&hooks, Kind::Poststop, &record.state);
    }
    outcome
}

/// Control groups that are removed unless they are given to a container.
struct Groups(Option<Manager>);

impl Drop for Groups {
    fn drop(&mut self) {
        if let Some(manager) = self.0.take()
            && let Err(error) = manager.destroy()
        {
            log::warn!("{error}");
        }
    }
}

/// A container on its way. Fields are dropped in this order: processes first, then what they are in.
struct Made {
    sandbox: Sandbox,
    groups: Groups,
    claim: Claim,
    record: Record,
    hooks: Hooks,
    /// The user's terminal, in the foreground.
    console: Option<OwnedFd>,
}

impl Made {
    fn state(&self, status: Status) -> State {
        State { status, pid: self.sandbox.pid(), ..self.record.state.clone() }
    }

    /// Writes everything down and lets the container outlive this command.
    fn settle(mut self, args: &Create, status: Status) -> Result<(), Failure> {
        self.record.state = self.state(status);
        self.claim.container().write(&self.record)?;
        if let Some(file) = &args.pid_file {
            container::write_pid_file(file, self.sandbox.pid())?;
        }
        let detached = self.sandbox.detach();
        if detached.is_err()
            && let Some(file) = &args.pid_file
        {
            let _ = std::fs::remove_file(file);
        }
        detached?;
        self.groups.0 = None;
        self.claim.keep();
        Ok(())
    }
}

fn await_ready(sandbox: &mut Sandbox) -> Result<(), Failure> {
    sandbox.wait_ready()?.map_err(container::not_started)
}

/// Everything up to a container that is being set up.
fn set_up(global: &Global, args: &Create, command: &str, foreground: bool) -> Result<Made, Failure> {
    let preserved = container::preserved(args.preserve_fds)?;
    let options = Options { preserve_fds: args.preserve_fds, ..container::options(global) };
    let (mut prepared, Config { spec, text }) = bundle::load(&args.bundle, &args.id, &options)?;
    let hooks = spec.hooks().clone().unwrap_or_default();
    hooks::check(&hooks)?;
    let host = pod::find(global, &mut prepared)?;
    if let Some(path) = shared_uts(&spec)
        && host.is_none()
        && prepared.spec.hostname.is_empty()
    {
        match names::read(&path) {
            Ok(name) => prepared.spec.hostname = name,
            Err(error) => log::warn!("host name of {}: {error}", path.display()),
        }
    }
    container::complete(&mut prepared);
    container::inherit_limits(&mut prepared.spec.process);
    let claim = state::claim(&container::state_dir(global), &args.id)?;
    let mut record = record(args, &prepared, foreground)?;
    let mut groups = Groups(record::manager(global, &spec, &args.id)?);
    if groups.0.as_ref().is_some_and(stays_in_use) {
        groups.0 = None;
        return Err(
            "the control group of the container has processes in it; choose another linux.cgroupsPath".into(),
        );
    }
    if let Some(manager) = &groups.0 {
        // Before they are made: whoever finds this after we were killed removes them.
        record.runtime = serde_json::to_value(Kept { cgroups: Some(manager.save()) })?;
    }
    claim.container().write(&record)?;
    let config = claim.container().path().join(bundle::CONFIG_FILE);
    std::fs::write(&config, text).map_err(|error| format!("cannot write {}: {error}", config.display()))?;

    let console = console(args, &mut prepared, foreground)?;
    let mut files = Files {
        stdio: container::stdio()?,
        console: console.as_ref().map(OwnedFd::try_clone).transpose()?,
        preserved,
        control_group: Vec::new(),
    };
    let log = logs::for_sandbox(global, &args.id, command, !foreground)?;
    let mut join = |pid: i32| match &mut groups.0 {
        Some(manager) => manager.apply(pid as u32).map_err(std::io::Error::other),
        None => Ok(()),
    };
    let mapping = container::mapping(global, &prepared)?;
    let network = match &host {
        Some(host) => Some(host.network.try_clone()?),
        None => network(&prepared)?,
    };
    let holds =
        Holds { alive: Some(claim.alive()), joined: &mut join, network: network.as_ref().map(AsFd::as_fd) };
    let sandbox = match &host {
        None => launch(log.as_fd(), mapping, holds)?,
        Some(host) => {
            // A caller that stays watches the terminal itself.
            let tty = console.as_ref().filter(|_| args.console_socket.is_some()).map(AsFd::as_fd);
            member::join(log.as_fd(), mapping, holds, (host.dir.as_fd(), state::SOCKET), tty)?
        }
    };
    let uts = format!("/proc/{}/ns/uts", sandbox.pid());
    if let Err(error) = names::write(uts.as_ref(), &prepared.spec.hostname) {
        log::debug!("host name of {uts}: {error}");
    }
    if let Some(manager) = &groups.0 {
        if let Some(resources) = record::resources(&spec) {
            manager.set(resources)?;
        }
        let shown = match &host {
            None => manager.open_shown(),
            // The sandbox makes its processes, and puts them here if there is a limit to keep.
            Some(_) => {
                let limited = pod::limited(&spec);
                let mut files = manager.open_procs(&limited)?;
                files.extend(manager.open_shown_of(&limited));
                files
            }
        };
        let (names, opened): (Vec<_>, _) = shown.into_iter().unzip();
        prepared.show_control_group(names);
        files.control_group = opened;
        record.runtime = serde_json::to_value(Kept { cgroups: Some(manager.save()) })?;
        claim.container().write(&record)?;
    }
    record.state.pid = sandbox.pid();
    record::run_create_hooks(&hooks, &record.state)?;
    // A new network namespace has what hooks put there.
    if host.is_none() && (network.is_some() || spec.hooks().is_some()) {
        show_network(&mut prepared, sandbox.pid());
    }
    // `start` says it for a container that waits.
    if command == "run" && host.is_none() && prepared.spec.interfaces.links.len() > 1 {
        warn_of_network();
    }
    let dir = claim.container().dir()?;
    let listener = channel::listen_in(dir.as_fd(), state::SOCKET)?;
    sandbox.set_up(&prepared, &files, Some(listener.as_fd()))?;
    let console = console.filter(|_| args.console_socket.is_none());
    Ok(Made { sandbox, groups, claim, record, hooks, console })
}

/// Tells the kernel inside what the network namespace holds by now, hooks having been run.
fn show_network(prepared: &mut Prepared, pid: i32) {
    let path = format!("/proc/{pid}/ns/net");
    match std::fs::File::open(&path).and_then(|namespace| netview::look(namespace.as_fd())) {
        Ok(interfaces) => prepared.spec.interfaces = interfaces,
        Err(error) => log::warn!("the interfaces of {path} are not shown: {error}"),
    }
}

/// Whether a control group has processes, and not such that are just ending: those of a container whose command line was killed
/// may still be, although nothing says any more that it lives.
fn stays_in_use(group: &Manager) -> bool {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(10);
    let end = Instant::now() + PATIENCE;
    while group.in_use() {
        if Instant::now() >= end {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// A container with interfaces looks as if it could be reached, published ports included. Said to people only: Podman hands on what
/// `start` writes as what the program wrote.
fn warn_of_network() {
    let level = if std::io::stderr().is_terminal() { log::Level::Warn } else { log::Level::Debug };
    log::log!(
        level,
        "the container's network interfaces are shown, but there is no network stack yet: nothing connects through them"
    );
}

/// Docker's newer daemons and `ctr --cni` set the network up between `create` and `start`. Of a namespace that holds nothing
/// but its loopback interface there is nothing to tell.
fn show_network_again(client: &Client, record: &Record) {
    let pid = record.state.pid;
    if matches!(pod::of(record), Pod::Member(_)) || !netview::has_more_than_loopback(pid) {
        return;
    }
    warn_of_network();
    let path = format!("/proc/{pid}/ns/net");
    let looked = std::fs::File::open(&path).and_then(|namespace| netview::look(namespace.as_fd()));
    let told = looked.map_err(Failure::from).and_then(|found| Ok(client.show_network(&found)?));
    if let Err(failure) = told {
        // An ordinary user may not look; what `create` has shown stays.
        log::debug!("the interfaces of {path} are not shown as they are now: {}", failure.message);
    }
}

/// The uts namespace that a container is to share.
fn shared_uts(spec: &Spec) -> Option<PathBuf> {
    let all = spec.linux().as_ref()?.namespaces().as_ref()?;
    all.iter().find(|namespace| namespace.typ() == LinuxNamespaceType::Uts)?.path().clone()
}

/// The network namespace that the configuration names.
fn network(prepared: &Prepared) -> Result<Option<OwnedFd>, Failure> {
    let Some(path) = prepared.namespaces.network.path() else { return Ok(None) };
    match std::fs::File::open(path) {
        Ok(file) => Ok(Some(file.into())),
        Err(error) => Err(format!("network namespace {}: {error}", path.display()).into()),
    }
}

fn console(args: &Create, prepared: &mut Prepared, foreground: bool) -> Result<Option<OwnedFd>, Failure> {
    let tty = match (prepared.spec.process.terminal, &args.console_socket) {
        (true, Some(socket)) => console::open(socket, prepared.spec.console_size)
            .map_err(|error| format!("console socket {}: {error}", socket.display()))?,
        (true, None) if foreground => container::callers_terminal()?,
        (true, None) => {
            return Err("cannot allocate tty if ringfence will detach without setting console socket".into());
        }
        (false, Some(_)) => {
            return Err("cannot use console socket if ringfence will not detach or allocate tty".into());
        }
        (false, None) => return Ok(None),
    };
    container::fit(prepared, Some(&tty));
    Ok(Some(tty))
}

fn record(args: &Create, prepared: &Prepared, foreground: bool) -> Result<Record, Failure> {
    let uid = rustix::process::getuid().as_raw();
    let state = State {
        oci_version: "1.2.0".into(),
        id: args.id.clone(),
        pid: 0,
        status: Status::Creating,
        bundle: args.bundle.canonicalize()?,
        rootfs: prepared.trees.first().map_or_else(PathBuf::new, |tree| tree.path.clone()),
        created: sandbox::logging::timestamp(),
        annotations: prepared.annotations.clone(),
        owner: user_name(uid),
    };
    Ok(Record { state, foreground, runtime: serde_json::Value::Null })
}

/// A user's name as /etc/passwd has it, or the number.
fn user_name(uid: u32) -> String {
    let number = uid.to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).unwrap_or(&number).to_string()
}
