//! `ringfence do`: one command on the host's files.

use crate::commands::do_secrets::hidden;
use crate::commands::do_user::{User, environment, user};
use crate::values;
use bundle::{HostCommand, Medium, Options, Overlay2, OverlayChoice, Volume, for_host_command};
use clap::Args;
use lifecycle::{HostLimits, Result, Settings};
use netgofer::Policy;
use rustix::process::umask;
use sandbox::terminal;
use spec::Network;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Set a variable, or with a name alone pass the caller's on
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Pass none of the caller's environment on, but what --env names
    #[arg(long)]
    pub(crate) clear_env: bool,
    /// Show nothing of a file or directory, besides keys and histories (see above)
    #[arg(long, value_name = "PATH")]
    pub(crate) hide: Vec<String>,
    /// Hide only what --hide names
    #[arg(long)]
    pub(crate) no_hide: bool,
    /// User of the command, without privileges unless it is root [default: the caller]
    #[arg(long, short, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Memory for the command and its kernel together, as 512m; takes a control group
    #[arg(long, short, value_name = "SIZE", value_parser = values::bytes)]
    pub(crate) memory: Option<i64>,
    /// Processors, as 1.5; takes a control group
    #[arg(long, value_name = "NUMBER", value_parser = values::cpus)]
    pub(crate) cpus: Option<f64>,
    /// Most processes and threads
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pids: Option<u32>,
    /// End the command after that time, as 90s or 1m30s, with SIGTERM and 10 s later SIGKILL; the exit status is 124
    #[arg(long, value_name = "TIME", value_parser = values::interval)]
    pub(crate) timeout: Option<Duration>,
    /// Host name that the command sees [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname: Option<String>,
    /// Name in logs and control groups [default: do- and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
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
    let id = args.name.clone().unwrap_or_else(|| format!("do-{}", std::process::id()));
    if !lifecycle::valid_id(&id) {
        return Err(format!("--name {id:?}: use at most 200 letters, digits and any of _+-.").into());
    }
    let user = match &args.user {
        Some(text) => user(text, &args.root)?,
        None => User {
            uid: as_caller(rustix::process::geteuid().as_raw()),
            gid: as_caller(rustix::process::getegid().as_raw()),
            groups: match rootless {
                true => Vec::new(),
                false => rustix::process::getgroups()?.into_iter().map(|gid| gid.as_raw()).collect(),
            },
        },
    };
    let command = HostCommand {
        id,
        hostname: args.hostname.clone().unwrap_or_else(lifecycle::hostname),
        root: args.root.clone(),
        cwd: cwd(args)?,
        volumes: args.volume.clone(),
        args: args.args.clone(),
        env: environment(args.clear_env, &args.env)?,
        privileged: args.user.is_none() || user.uid == 0,
        uid: user.uid,
        gid: user.gid,
        additional_gids: user.groups,
        hidden: hidden(&args.hide, !args.no_hide && args.root.as_os_str() == "/", &args.volume)?,
        pids: args.pids,
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
    let limits = HostLimits { memory: args.memory, cpus: args.cpus, timeout: args.timeout };
    lifecycle::run_host_command(settings, prepared, allow_net.as_ref(), &limits, &signals)
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
