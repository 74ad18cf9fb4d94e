//! `ringfence exec`: another process in a container that runs.

use crate::values;
use clap::Args;
use lifecycle::{Error, ExecOptions, PassedFd, Program, Result, Settings};
use std::path::PathBuf;

/// Exit status when the process could not be started, as runc has it.
const NOT_STARTED: u8 = 255;

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Socket that receives the process's terminal
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    /// Working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Add to the environment
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Run on a terminal
    #[arg(long, short = 't')]
    pub(crate) tty: bool,
    /// User and group by number
    #[arg(long, short = 'u', value_name = "UID[:GID]")]
    pub(crate) user: Option<String>,
    /// Supplementary groups
    #[arg(long, short = 'g', value_name = "GID")]
    pub(crate) additional_gids: Vec<u32>,
    /// The process as a JSON file, instead of a command line
    #[arg(long, short = 'p', value_name = "FILE")]
    pub(crate) process: Option<PathBuf>,
    /// Leave the process in the background
    #[arg(long, short = 'd')]
    pub(crate) detach: bool,
    /// File for the process id that stands for the process on the host
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// File for the process id inside the container
    #[arg(long, value_name = "FILE")]
    pub(crate) internal_pid_file: Option<PathBuf>,
    /// Set no_new_privs
    #[arg(long)]
    pub(crate) no_new_privs: bool,
    /// Add a capability
    #[arg(long, short = 'c', value_name = "CAP")]
    pub(crate) cap: Vec<String>,
    /// Pass that many descriptors, from 3 on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u32,
    /// Pass a descriptor, HERE its number in this process, INSIDE the one in the container
    #[arg(long, value_name = "HERE:INSIDE", value_parser = values::passed_fd)]
    pub(crate) pass_fd: Vec<PassedFd>,
    /// Refused
    #[arg(long, hide = true, value_parser = values::refused("a program is started by its name; pass the file with --pass-fd FD:3 and run /proc/self/fd/3"))]
    pub(crate) exec_fd: Option<String>,
    /// Ignored with a warning: the host's AppArmor does not see the guest
    #[arg(long, value_name = "PROFILE")]
    pub(crate) apparmor: Option<String>,
    /// Ignored with a warning: the host's SELinux does not see the guest
    #[arg(long, value_name = "LABEL")]
    pub(crate) process_label: Option<String>,
    /// Control group below the container's own; / is the only one there is
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    /// Even in a paused container: the process then waits for resume
    #[arg(long)]
    pub(crate) ignore_paused: bool,
    /// The container's name
    pub(crate) id: String,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) args: Vec<String>,
}

pub(crate) fn exec(settings: &Settings, args: &Exec) -> Result<u8> {
    let started = options(args).and_then(|options| lifecycle::exec(settings, &options));
    // Whatever goes wrong, the status says that it was not the process's own.
    started.map_err(|error| Error::with_status(NOT_STARTED, format!("exec failed: {error}")))
}

fn options(args: &Exec) -> Result<ExecOptions> {
    check_cgroup(args)?;
    for (flag, value) in [("--apparmor", &args.apparmor), ("--process-label", &args.process_label)] {
        if value.is_some() {
            log::warn!("{flag} is ignored: host policies do not see the guest");
        }
    }
    let program = match &args.process {
        Some(file) => Program::File(file.clone()),
        None if args.args.is_empty() => {
            return Err("process args cannot be empty: name a command, or a file with --process".into());
        }
        None => Program::Command(args.args.clone()),
    };
    let mut capabilities = 0;
    for name in &args.cap {
        match bundle::capability(name) {
            Ok(capability) => capabilities |= capability,
            // As in a configuration.
            Err(error) => log::warn!("--cap: {error}; it is ignored"),
        }
    }
    Ok(ExecOptions {
        id: args.id.clone(),
        program,
        terminal: args.tty,
        cwd: args.cwd.clone(),
        env: args.env.clone(),
        user: args.user.as_deref().map(parse_user).transpose()?,
        additional_gids: args.additional_gids.clone(),
        capabilities,
        no_new_privileges: args.no_new_privs,
        detach: args.detach,
        ignore_paused: args.ignore_paused,
        console_socket: args.console_socket.clone(),
        pid_file: args.pid_file.clone(),
        internal_pid_file: args.internal_pid_file.clone(),
        preserve_fds: args.preserve_fds,
        pass_fds: args.pass_fd.clone(),
    })
}

/// There is one control group for all processes of a container, and the container's kernel is in it too.
fn check_cgroup(args: &Exec) -> Result<()> {
    match &args.cgroup {
        Some(path) if path != "/" => Err(format!(
            "--cgroup {path:?} is not supported: all processes of a container are in its own control group, which / stands for"
        )
        .into()),
        _ => Ok(()),
    }
}

fn parse_user(text: &str) -> Result<(u32, Option<u32>)> {
    let number = |text: &str| text.parse::<u32>().ok();
    let parsed = match text.split_once(':') {
        Some((user, group)) => number(user).zip(number(group).map(Some)),
        None => number(text).map(|user| (user, None)),
    };
    parsed.ok_or_else(|| format!("--user {text:?} is not of the form UID[:GID], in numbers").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        assert_eq!(parse_user("7"), Ok((7, None)));
        assert_eq!(parse_user("7:8"), Ok((7, Some(8))));
        for text in ["", "root", "7:", ":8", "7:x", "-1"] {
            assert!(parse_user(text).is_err(), "{text}");
        }
    }
}
