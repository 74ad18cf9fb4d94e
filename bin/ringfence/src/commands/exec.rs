//! `ringfence exec`: another process in a container that runs.

use crate::cli::{Exec, Global};
use crate::{Failure, container};
use oci_spec::runtime::Process;
use sandbox::client::{Client, Error};
use sandbox::state::{Container, Status};
use sandbox::terminal::{self, RawMode};
use sandbox::{console, relay};
use spec::{ProcessSpec, WindowSize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Exit status when the process could not be started, as runc has it.
const NOT_STARTED: u8 = 255;

pub(crate) fn run(global: &Global, args: &Exec) -> Result<u8, Failure> {
    // Whatever goes wrong, the status says that it was not the process's own.
    attempt(global, args)
        .map_err(|failure| Failure::with_status(NOT_STARTED, format!("exec failed: {}", failure.message())))
}

fn attempt(global: &Global, args: &Exec) -> Result<u8, Failure> {
    check_cgroup(args)?;
    let preserved = container::preserved(args.preserve_fds)?;
    let signals = if args.detach { None } else { Some(relay::block_signals()?) };
    let (found, record) = container::find(global, &args.id)?;
    match record.state.status {
        Status::Running | Status::Created => {}
        Status::Paused if args.ignore_paused => {}
        Status::Paused => {
            return Err("cannot exec in a paused container (use --ignore-paused to override)".into());
        }
        Status::Stopped | Status::Creating => return Err("cannot exec in a stopped container".into()),
    }
    let (process, size) = process(&found, args)?;
    let console = match (process.terminal, &args.console_socket) {
        (true, Some(socket)) => Some(
            console::open(socket, size)
                .map_err(|error| format!("console socket {}: {error}", socket.display()))?,
        ),
        (true, None) if args.detach => {
            return Err("cannot allocate tty if ringfence will detach without setting console socket".into());
        }
        (true, None) => Some(container::callers_terminal()?),
        (false, Some(_)) => {
            return Err("cannot use console socket if ringfence will not detach or allocate tty".into());
        }
        (false, None) => None,
    };
    let client: Client = container::connect(&found)?;
    let stdio = container::stdio()?;
    let files: Vec<BorrowedFd<'_>> = match &console {
        Some(tty) => vec![tty.as_fd()],
        None => stdio.iter().chain(&preserved).map(AsFd::as_fd).collect(),
    };
    let size = console.as_ref().map(|tty| match terminal::size(tty) {
        WindowSize { rows: 0, cols: 0 } => size,
        known => known,
    });
    let attended = client.exec(&process, &files, size).map_err(|error| match error {
        Error::Refused(error) => format!("unable to start container process: {}", error.message),
        error => error.to_string(),
    })?;
    drop(stdio);
    if let Some(file) = &args.internal_pid_file {
        container::write_pid_file(file, attended.pid)?;
    }
    // With a console socket the user is elsewhere, and so is the terminal that changes size.
    let elsewhere = args.console_socket.is_some();
    let Some(signals) = signals else {
        let pid = attended.detach(console.as_ref().filter(|_| elsewhere).map(AsFd::as_fd))?;
        if let Some(file) = &args.pid_file {
            container::write_pid_file(file, pid)?;
        }
        return Ok(0);
    };
    if let Some(file) = &args.pid_file {
        container::write_pid_file(file, std::process::id() as i32)?;
    }
    let own: Option<&OwnedFd> = console.as_ref().filter(|_| !elsewhere);
    let _raw = own.map(RawMode::enter).transpose()?;
    Ok(attended.wait(&signals, own.map(AsFd::as_fd))?)
}

/// Adds the flags' environment to a process's.
fn add_environment(process: &mut Process, flags: &[String]) -> Result<(), Failure> {
    if let Some(wrong) =
        flags.iter().find(|entry| entry.split_once('=').is_none_or(|(name, _)| name.is_empty()))
    {
        return Err(format!("invalid environment variable: {wrong:?}; write NAME=VALUE").into());
    }
    if !flags.is_empty() {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend(flags.iter().cloned());
        process.set_env(Some(env));
    }
    Ok(())
}

/// There is one control group for all processes of a container, whose kernel is in it too.
fn check_cgroup(args: &Exec) -> Result<(), Failure> {
    match &args.cgroup {
        Some(path) if path != "/" => Err(format!(
            "--cgroup {path:?} is not supported: all processes of a container are in its own control group, which / stands for"
        )
        .into()),
        _ => Ok(()),
    }
}

/// What to run: the file's process, or the container's own with a new command line.
fn process(container: &Container, args: &Exec) -> Result<(ProcessSpec, WindowSize), Failure> {
    let config = bundle::load_spec(&container.path().join(bundle::CONFIG_FILE))?;
    let mut process = match (&args.process, config.process()) {
        (Some(file), _) => bundle::load_process(file)?,
        (None, Some(process)) => process.clone(),
        (None, None) => return Err("process is missing".into()),
    };
    if args.process.is_none() {
        if args.args.is_empty() {
            return Err("process args cannot be empty: name a command, or a file with --process".into());
        }
        process.set_args(Some(args.args.clone())).set_terminal(Some(args.tty));
    } else if args.tty {
        process.set_terminal(Some(true));
    }
    if let Some(cwd) = &args.cwd {
        process.set_cwd(cwd.into());
    }
    add_environment(&mut process, &args.env)?;
    for (flag, value) in [("--apparmor", &args.apparmor), ("--process-label", &args.process_label)] {
        if value.is_some() {
            log::warn!("{flag} is ignored: host policies do not see the guest");
        }
    }
    let size = process.console_size();
    let side = |length: u64| u16::try_from(length).unwrap_or(u16::MAX);
    let size =
        size.map_or(WindowSize::default(), |s| WindowSize { rows: side(s.height()), cols: side(s.width()) });
    let mut spec = bundle::translate_process(&process)?;
    // A container is set up with its working directory; another process finds its own there.
    spec.create_cwd = false;
    container::inherit_limits(&mut spec);
    // Every process of the container is under its filter.
    let profile = config.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
    spec.seccomp = profile.map(bundle::compile_seccomp).transpose()?.flatten();
    if let Some(user) = &args.user {
        (spec.uid, spec.gid) = parse_user(user, spec.gid)?;
    }
    spec.additional_gids.extend(&args.additional_gids);
    spec.no_new_privileges |= args.no_new_privs;
    for name in &args.cap {
        let bit = bundle::capability(name)?;
        for set in [
            &mut spec.capabilities.bounding,
            &mut spec.capabilities.effective,
            &mut spec.capabilities.permitted,
        ] {
            *set |= bit;
        }
    }
    Ok((spec, size))
}

fn parse_user(text: &str, gid: u32) -> Result<(u32, u32), Failure> {
    let number = |text: &str| text.parse::<u32>().ok();
    let parsed = match text.split_once(':') {
        Some((user, group)) => number(user).zip(number(group)),
        None => number(text).map(|user| (user, gid)),
    };
    parsed.ok_or_else(|| format!("--user {text:?} is not of the form UID[:GID], in numbers").into())
}
