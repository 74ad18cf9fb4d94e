//! `exec`: another process in a container that runs.

use crate::caller::PassedFd;
use crate::directory::Container;
use crate::find::connect;
use crate::record::Status;
use crate::{Result, Settings, caller, foreground, pid_file};
use oci_spec::runtime::Process;
use sandbox::client::Error;
use sandbox::terminal::{self, RawMode};
use spec::{ProcessSpec, WindowSize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Where the process is described.
#[derive(Clone, Debug)]
pub enum Program {
    /// In a JSON file of the form of the configuration's `process`.
    File(PathBuf),
    /// Here; all else is as for the container's first process. Never empty.
    Command(Vec<String>),
}

/// A process to start.
#[derive(Clone, Debug)]
pub struct ExecOptions {
    /// The container.
    pub id: String,
    /// What to run.
    pub program: Program,
    /// Run on a terminal.
    pub terminal: bool,
    /// Working directory, if it is not the described one.
    pub cwd: Option<String>,
    /// Additions to the environment, `NAME=value`.
    pub env: Vec<String>,
    /// User, and group if that is to change as well.
    pub user: Option<(u32, Option<u32>)>,
    /// Additional supplementary groups.
    pub additional_gids: Vec<u32>,
    /// Additional capabilities, as bits.
    pub capabilities: u64,
    /// Set no_new_privs.
    pub no_new_privileges: bool,
    /// Leave the process in the background.
    pub detach: bool,
    /// Even in a paused container.
    pub ignore_paused: bool,
    /// Socket that receives the process's terminal.
    pub console_socket: Option<PathBuf>,
    /// File for the process ID that stands for the process on the host.
    pub pid_file: Option<PathBuf>,
    /// File for the process ID inside the container.
    pub internal_pid_file: Option<PathBuf>,
    /// How many of the caller's descriptors the process gets, from 3 on.
    pub preserve_fds: u32,
    /// Further ones, by number.
    pub pass_fds: Vec<PassedFd>,
}

/// Starts a process; in the foreground until it ends, with its exit status.
pub fn exec(settings: &Settings, options: &ExecOptions) -> Result<u8> {
    let preserved = caller::preserved(options.preserve_fds, &options.pass_fds)?;
    let signals = if options.detach { None } else { Some(foreground::block_signals()?) };
    let (container, record) = settings.find(&options.id)?;
    check_status(record.state.status, options.ignore_paused)?;
    let (process, size) = process(settings, &container, options)?;
    let socket = options.console_socket.as_deref();
    if options.terminal {
        caller::check_tty(socket, options.detach)?;
    }
    let console = caller::terminal(process.terminal, socket, size, options.detach)?;
    let client = connect(&container)?;
    let stdio = caller::stdio()?;
    let (copied, copies) = caller::copies(console.as_ref().filter(|_| socket.is_none()))?;
    let files: Vec<BorrowedFd<'_>> = match copied.as_ref().or(console.as_ref()) {
        Some(tty) => vec![tty.as_fd()],
        None => stdio.iter().chain(&preserved).map(AsFd::as_fd).collect(),
    };
    let size = console.as_ref().map(|tty| match terminal::size(tty) {
        WindowSize { rows: 0, cols: 0 } => size,
        known => known,
    });
    let running = client.exec(&process, &files, size).map_err(|error| match error {
        Error::Refused(error) => format!("unable to start container process: {}", error.message),
        error => error.to_string(),
    })?;
    drop((stdio, copied));
    if let Some(file) = &options.internal_pid_file {
        pid_file::write(file, running.pid)?;
    }
    // With a console socket the user is elsewhere, and so is the terminal that changes size.
    let elsewhere = socket.is_some();
    let Some(signals) = signals else {
        let pid = running.detach(console.as_ref().filter(|_| elsewhere).map(AsFd::as_fd))?;
        if let Some(file) = &options.pid_file {
            pid_file::write(file, pid)?;
        }
        return Ok(0);
    };
    if let Some(file) = &options.pid_file {
        pid_file::write(file, std::process::id() as i32)?;
    }
    let own: Option<&OwnedFd> = console.as_ref().filter(|_| !elsewhere);
    let _raw = own.map(RawMode::enter).transpose()?;
    let status = running.wait(&signals, own.map(AsFd::as_fd))?;
    if let Some(copies) = copies {
        copies.finish();
    }
    Ok(status)
}

fn check_status(status: Status, ignore_paused: bool) -> Result<()> {
    match status {
        Status::Running | Status::Created => Ok(()),
        Status::Paused if ignore_paused => Ok(()),
        Status::Paused => Err("cannot exec in a paused container (use --ignore-paused to override)".into()),
        Status::Stopped | Status::Creating => Err("cannot exec in a stopped container".into()),
    }
}

/// What to run: the file's process, or the container's own with a new command line; and the size of its terminal.
fn process(
    settings: &Settings,
    container: &Container,
    options: &ExecOptions,
) -> Result<(ProcessSpec, WindowSize)> {
    let path = container.path().join(bundle::CONFIG_FILE);
    if !path.exists() {
        return Err("cannot exec in a sandbox of do: run a bundle for that".into());
    }
    let config = bundle::load_spec(&path)?;
    let process = described(config.process().as_ref(), options)?;
    let mut spec = bundle::translate_process(&process)?;
    // A container is set up with its working directory; another process finds its own there.
    spec.create_cwd = false;
    caller::inherit_limits(&mut spec);
    // Every process of the container is under its filter.
    let profile = config.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
    let profile = profile.filter(|_| !settings.containers.without_seccomp);
    spec.seccomp = profile.map(bundle::compile_seccomp).transpose()?.flatten();
    add_privileges(&mut spec, options);
    Ok((spec, bundle::console_size(&process)))
}

/// The process in the configuration's form.
fn described(first: Option<&Process>, options: &ExecOptions) -> Result<Process> {
    let mut process = match (&options.program, first) {
        (Program::File(file), _) => bundle::load_process(file)?,
        (Program::Command(_), Some(process)) => process.clone(),
        (Program::Command(_), None) => return Err("process is missing".into()),
    };
    if let Program::Command(args) = &options.program {
        process.set_args(Some(args.clone())).set_terminal(Some(options.terminal));
    } else if options.terminal {
        process.set_terminal(Some(true));
    }
    if let Some(cwd) = &options.cwd {
        process.set_cwd(cwd.into());
    }
    add_environment(&mut process, &options.env)?;
    Ok(process)
}

/// Adds to a process's environment.
fn add_environment(process: &mut Process, added: &[String]) -> Result<()> {
    if let Some(wrong) =
        added.iter().find(|entry| entry.split_once('=').is_none_or(|(name, _)| name.is_empty()))
    {
        return Err(format!("invalid environment variable: {wrong:?}; write NAME=VALUE").into());
    }
    if !added.is_empty() {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend(added.iter().cloned());
        process.set_env(Some(env));
    }
    Ok(())
}

/// Gives a process another user, more groups and more capabilities.
fn add_privileges(spec: &mut ProcessSpec, options: &ExecOptions) {
    if let Some((uid, gid)) = options.user {
        (spec.uid, spec.gid) = (uid, gid.unwrap_or(spec.gid));
    }
    spec.additional_gids.extend(&options.additional_gids);
    spec.no_new_privileges |= options.no_new_privileges;
    let sets = &mut spec.capabilities;
    for set in [&mut sets.bounding, &mut sets.effective, &mut sets.permitted] {
        *set |= options.capabilities;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(program: Program) -> ExecOptions {
        ExecOptions {
            id: "x".into(),
            program,
            terminal: false,
            cwd: None,
            env: Vec::new(),
            user: None,
            additional_gids: Vec::new(),
            capabilities: 0,
            no_new_privileges: false,
            detach: false,
            ignore_paused: false,
            console_socket: None,
            pid_file: None,
            internal_pid_file: None,
            preserve_fds: 0,
            pass_fds: Vec::new(),
        }
    }

    #[test]
    fn a_paused_container_takes_no_process() {
        assert!(check_status(Status::Created, false).is_ok());
        assert!(check_status(Status::Paused, true).is_ok());
        assert!(check_status(Status::Paused, false).unwrap_err().message().contains("--ignore-paused"));
        assert!(check_status(Status::Stopped, true).unwrap_err().message().contains("stopped"));
    }

    #[test]
    fn a_command_replaces_the_first_processs() {
        let mut first = Process::default();
        first.set_env(Some(vec!["A=1".into()])).set_terminal(Some(true)).set_cwd("/w".into());
        let mut options = options(Program::Command(vec!["ls".into()]));
        options.env = vec!["B=2".into()];
        let process = described(Some(&first), &options).unwrap();
        assert_eq!(process.args().as_deref(), Some(&["ls".to_string()][..]));
        assert_eq!(process.env().as_deref(), Some(&["A=1".to_string(), "B=2".into()][..]));
        assert_eq!((process.terminal(), process.cwd().to_str()), (Some(false), Some("/w")));
        assert_eq!(described(None, &options).unwrap_err().message(), "process is missing");
        options.env = vec!["=2".into()];
        assert!(described(Some(&first), &options).unwrap_err().message().contains("NAME=VALUE"));
    }

    #[test]
    fn privileges_are_added() {
        let mut spec = bundle::translate_process(&Process::default()).unwrap();
        (spec.uid, spec.gid) = (1, 2);
        let mut options = options(Program::Command(Vec::new()));
        options.user = Some((7, None));
        options.capabilities = 1 << 40;
        options.additional_gids = vec![9];
        add_privileges(&mut spec, &options);
        assert_eq!((spec.uid, spec.gid, spec.additional_gids.last()), (7, 2, Some(&9)));
        assert_eq!(spec.capabilities.effective & spec.capabilities.permitted & 1 << 40, 1 << 40);
        assert_eq!(spec.capabilities.ambient & 1 << 40, 0);
        options.user = Some((7, Some(8)));
        add_privileges(&mut spec, &options);
        assert_eq!(spec.gid, 8);
    }
}
