//! `ringfence do`: one command on the host's files.

use bundle::{HostCommand, Medium, Options, Overlay2, OverlayChoice, Volume, for_host_command};
use clap::Args;
use lifecycle::{Result, Settings};
use netgofer::Policy;
use rustix::process::umask;
use sandbox::terminal;
use spec::Network;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Do {
    /// Directory that becomes the root file system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Working directory [default: the current one, or / with --root]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Share a directory or file with the host, writable unless :ro
    #[arg(long, short = 'v', value_name = "SRC[:DST[:ro]]")]
    pub(crate) volume: Vec<Volume>,
    /// Use the host's network, but reach these only: HOST[:PORT][/tcp|udp],...
    #[arg(long, value_name = "LIST")]
    pub(crate) allow_net: Vec<Policy>,
    /// Run the command as process 1, without an init in front
    #[arg(long)]
    pub(crate) no_init: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) args: Vec<String>,
}

pub(crate) fn run(settings: &Settings, args: &Do) -> Result<u8> {
    let signals = lifecycle::block_signals()?;
    let rootless = settings.is_rootless();
    let mask = umask(rustix::fs::Mode::empty());
    umask(mask);
    let as_caller = |id: u32| if rootless { 0 } else { id };
    let command = HostCommand {
        id: format!("do-{}", std::process::id()),
        hostname: lifecycle::hostname(),
        root: args.root.clone(),
        cwd: cwd(args)?,
        volumes: args.volume.clone(),
        args: args.args.clone(),
        env: environment(),
        uid: as_caller(rustix::process::geteuid().as_raw()),
        gid: as_caller(rustix::process::getegid().as_raw()),
        additional_gids: match rootless {
            true => Vec::new(),
            false => rustix::process::getgroups()?.into_iter().map(|gid| gid.as_raw()).collect(),
        },
        umask: mask.bits(),
        rlimits: lifecycle::callers_limits(),
        terminal: terminal::interactive(),
        own_init: !args.no_init,
    };
    let allow_net = Policy::all(&args.allow_net);
    let network = network(settings.network, allow_net.is_some())?;
    // The host's own files are never written through: that is what --volume is for.
    let Overlay2 { root, binds } = settings.containers.overlay.clone();
    let root = root.unwrap_or(OverlayChoice::MEMORY);
    if root.medium == Medium::Own {
        return Err(
            "--overlay2: self would leave a file in the host's own root; do takes memory and dir=/PATH"
                .into(),
        );
    }
    if root.commit {
        return Err("--overlay2: commit would write to the host's own root; do never does".into());
    }
    let overlay = Overlay2 { root: Some(root), binds };
    let options = Options { overlay, network, ..settings.containers.clone() };
    let prepared = for_host_command(command, &options)?;
    lifecycle::run_host_command(settings, prepared, allow_net.as_ref(), &signals)
}

/// A policy is one of the host's network; without it there is none unless asked for.
fn network(chosen: Option<Network>, policed: bool) -> Result<Network> {
    match chosen {
        None if policed => Ok(Network::Host { policed }),
        None => Ok(Network::None),
        Some(Network::Sandbox) => {
            Err("do has no network namespace of its own with interfaces; use --network=host or none".into())
        }
        Some(network) => Ok(network),
    }
}

fn cwd(args: &Do) -> Result<String> {
    if let Some(cwd) = &args.cwd {
        return match cwd.starts_with('/') {
            true => Ok(cwd.clone()),
            false => Err(format!("--cwd {cwd:?} must be an absolute path").into()),
        };
    }
    if args.root.as_os_str() != "/" {
        return Ok("/".into());
    }
    match std::env::current_dir() {
        Ok(dir) => Ok(dir.to_string_lossy().into_owned()),
        Err(error) => Err(format!("the current directory: {error}; choose one with --cwd").into()),
    }
}

/// The caller's environment, except for what is not text.
fn environment() -> Vec<String> {
    std::env::vars_os()
        .filter_map(|(name, value)| match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => Some(format!("{name}={value}")),
            (Ok(name), Err(_)) | (Err(_), Ok(name)) => {
                log::warn!("an environment variable that is not UTF-8 is left out (near {name:?})");
                None
            }
            (Err(_), Err(_)) => None,
        })
        .collect()
}
