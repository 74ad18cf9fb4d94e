//! `ringfence do`: one command on the host's files.

use crate::commands::do_secrets::{hidden, hidden_from_others};
use crate::commands::do_user::{User, environment, user};
use crate::commands::{debug, do_diff, do_snapshot};
use crate::mistakes::usage;
use crate::output::Output;
use crate::values;
use bundle::{
    HostCommand, IdMaps, IdRange, Medium, Options, Overlay2, OverlayChoice, Volume, for_host_command,
};
use clap::{Args, ValueEnum};
use lifecycle::{CoverageReport, HostLimits, HostRun, HostSnapshot, Result, Settings};
use netgofer::Policy;
use rustix::process::umask;
use sandbox::terminal;
use spec::Network;
use std::io;
use std::path::{Path, PathBuf};
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
    #[arg(long, short, value_name = "SIZE", value_parser = values::bytes, allow_negative_numbers = true)]
    pub(crate) memory: Option<i64>,
    /// Processors, as 1.5; takes a control group
    #[arg(long, value_name = "NUMBER", value_parser = values::cpus, allow_negative_numbers = true)]
    pub(crate) cpus: Option<f64>,
    /// Most processes and threads
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pids: Option<u32>,
    /// End the command after that time, as 90 (seconds) or 1m30s, with SIGTERM and 10 s later SIGKILL; the exit status is 124
    #[arg(long, value_name = "TIME", value_parser = values::seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Host name that the command sees [default: the host's]
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub(crate) hostname: Option<String>,
    /// Name in logs and control groups, by which other commands find it while it runs [default: do- and a number]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run the command as process 1, without an init in front
    #[arg(long)]
    pub(crate) no_init: bool,
    /// List what the command has added (A), changed (C) and removed (D), but for volumes, at the end: on standard error, or with
    /// =FILE in a file
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "-", value_name = "FILE")]
    pub(crate) diff: Option<PathBuf>,
    /// Write what the command asked for and did not get, as JSON, at the end: system calls, options and files that are missing
    #[arg(long, value_name = "FILE")]
    pub(crate) coverage: Option<PathBuf>,
    /// Show no warnings
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Users of a user namespace for the command: as the mapping's first number inside and here, and how many
    #[arg(long, value_name = "INSIDE HERE COUNT", value_parser = values::id_range, requires = "gid_map")]
    pub(crate) uid_map: Vec<IdRange>,
    /// The same for groups
    #[arg(long, value_name = "INSIDE HERE COUNT", value_parser = values::id_range, requires = "uid_map")]
    pub(crate) gid_map: Vec<IdRange>,
    /// The root is always below an overlay: true, or an error
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = force_overlay)]
    pub(crate) force_overlay: Option<String>,
    /// Refused
    #[arg(long, hide = true, value_parser = values::refused("do makes no interfaces; use --network=host, or run a bundle in a network namespace"))]
    pub(crate) ip: Option<String>,
    /// Make a snapshot of that name of the sandbox, which ends then, for --from
    #[arg(long, value_name = "NAME", conflicts_with_all = ["diff", "coverage"])]
    pub(crate) snapshot: Option<String>,
    /// When: once a program writes 1 to /proc/gvisor/checkpoint, or once all programs have waited for a second
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Asked, requires = "snapshot")]
    pub(crate) when: When,
    /// Remove snapshots used longest ago until all have so many bytes together
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, requires = "snapshot", default_value = "10g")]
    pub(crate) snapshot_limit: i64,
    /// Go on from a snapshot, which has files, volumes, user and network of its command. CMD runs beside its programs, and they
    /// end with it; without CMD they have the standard streams
    #[arg(long, value_name = "NAME", conflicts_with_all = [
        "snapshot", "root", "volume", "allow_net", "hide", "no_hide", "user", "no_init", "diff", "coverage", "uid_map", "gid_map",
    ])]
    pub(crate) from: Option<String>,
    /// Run CMD in a session, which is saved at its end: the next one begins where this one ends. See also undo and branch. Files,
    /// volumes, user and network are those of the session's first command
    #[arg(long, value_name = "NAME", conflicts_with_all = ["snapshot", "from", "diff", "coverage"], requires = "args")]
    pub(crate) session: Option<String>,
    /// The command and its arguments
    #[arg(required_unless_present = "from", trailing_var_arg = true, value_name = "CMD")]
    pub(crate) args: Vec<String>,
}

/// The value of `--force-overlay`, of which one is so.
fn force_overlay(text: &str) -> std::result::Result<String, String> {
    match text {
        "true" => Ok(text.into()),
        _ => Err("do never writes to the host's files; share what it may change with --volume".into()),
    }
}

/// When a snapshot is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// A program asks
    Asked,
    /// All programs wait
    Idle,
}

pub(crate) fn run(settings: &Settings, args: &Do) -> Result<u8> {
    if args.quiet {
        log::set_max_level(log::LevelFilter::Error);
    }
    let signals = lifecycle::block_signals()?;
    if let Some(name) = &args.from {
        return do_snapshot::go_on(settings, name, own(args)?, &signals);
    }
    if let Some(name) = &args.session {
        let describe = || {
            let command = command(settings, args)?;
            let allow_net = Policy::all(&args.allow_net);
            let network = network(settings.network, allow_net.is_some())?;
            do_snapshot::saved(settings, (&command, &overlay(settings)?, network, &allow_net), "--session")
        };
        return do_snapshot::step(settings, name, own(args)?, &signals, describe);
    }
    let command = command(settings, args)?;
    let allow_net = Policy::all(&args.allow_net);
    let network = network(settings.network, allow_net.is_some())?;
    let overlay = overlay(settings)?;
    let snapshot = match &args.snapshot {
        Some(name) => {
            let when = (args.when == When::Idle, args.snapshot_limit);
            do_snapshot::begin(settings, name, when, (&command, &overlay, network, &allow_net))?
        }
        None => HostSnapshot::None,
    };
    let options = Options { overlay, network, ..settings.containers.clone() };
    let prepared = for_host_command(command, &options)?;
    let coverage =
        args.coverage.as_deref().map(|path| coverage(path, prepared.spec.id.clone())).transpose()?;
    let mut diff = args.diff.as_deref().map(do_diff::Diff::open).transpose()?;
    let changes = diff.as_mut().map(do_diff::Diff::take);
    let named = args.name.is_some();
    let run =
        HostRun { allow_net: allow_net.as_ref(), limits: limits(args), named, changes, coverage, snapshot };
    let status = lifecycle::run_host_command(settings, prepared, run, &signals)?;
    diff.map_or(Ok(()), do_diff::Diff::finish)?;
    Ok(status)
}

/// A host name as sethostname(2) takes it, of characters that programs take in one.
fn host_name(name: &str) -> std::result::Result<String, String> {
    let fits = (1..=64).contains(&name.len());
    match fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        true => Ok(name.into()),
        false => Err("use at most 64 letters, digits and any of -._".into()),
    }
}

/// What the arguments describe.
fn command(settings: &Settings, args: &Do) -> Result<HostCommand> {
    let rootless = settings.is_rootless();
    let mask = umask(rustix::fs::Mode::empty());
    umask(mask);
    let as_caller = |id: u32| if rootless { 0 } else { id };
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
    let hidden = hidden(&args.hide, !args.no_hide && args.root.as_os_str() == "/", &args.volume)?;
    Ok(HostCommand {
        id: id(args)?,
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
        hidden: if args.uid_map.is_empty() { hidden } else { hidden_from_others(&hidden) },
        pids: args.pids,
        umask: mask.bits(),
        rlimits: lifecycle::callers_limits(),
        terminal: args.snapshot.is_none() && args.session.is_none() && terminal::interactive(),
        own_init: !args.no_init,
        id_maps: id_maps(args),
    })
}

/// What there is beside a snapshot.
fn own(args: &Do) -> Result<do_snapshot::Own> {
    Ok(do_snapshot::Own {
        id: id(args)?,
        hostname: args.hostname.clone(),
        cwd: args.cwd.is_some().then(|| cwd(args)).transpose()?,
        env: environment(args.clear_env, &args.env)?,
        pids: args.pids,
        limits: limits(args),
        args: args.args.clone(),
    })
}

fn id(args: &Do) -> Result<String> {
    let id = args.name.clone().unwrap_or_else(|| format!("do-{}", std::process::id()));
    match lifecycle::valid_id(&id) {
        true => Ok(id),
        false => Err(usage(format!("--name {id:?}: use at most 200 letters, digits and any of _+-."))),
    }
}

fn limits(args: &Do) -> HostLimits {
    HostLimits { memory: args.memory, cpus: args.cpus, timeout: args.timeout }
}

/// What lies over the root and volumes. The host's own files are never written through: that is what --volume is for.
fn overlay(settings: &Settings) -> Result<Overlay2> {
    let Overlay2 { root, binds } = settings.containers.overlay.clone();
    let root = root.unwrap_or(OverlayChoice::MEMORY);
    if root.medium == Medium::Own {
        return Err(usage(
            "--overlay2: self would leave a file in the host's own root; do takes memory and dir=/PATH"
                .into(),
        ));
    }
    if root.commit {
        return Err(usage("--overlay2: commit would write to the host's own root; do never does".into()));
    }
    Ok(Overlay2 { root: Some(root), binds })
}

/// Opens the file for the report of what the command asks for and does not get: the command may run for long.
fn coverage(path: &Path, id: String) -> Result<CoverageReport<'_>> {
    let wrong = |error: io::Error| format!("--coverage {}: {error}", path.display());
    let mut output = Output::open(path).map_err(wrong)?;
    Ok(Box::new(move |refusals| {
        let text = debug::coverage(&id, refusals)?;
        Ok(output.write(&format!("{text}\n")).map_err(wrong)?)
    }))
}

/// The user namespace of the command, if it is not the usual one.
fn id_maps(args: &Do) -> Option<IdMaps> {
    let (uids, gids) = (args.uid_map.clone(), args.gid_map.clone());
    (!uids.is_empty()).then_some(IdMaps { uids, gids })
}

/// A policy is one of the host's network; without it there is none unless asked for.
fn network(chosen: Option<Network>, policed: bool) -> Result<Network> {
    match chosen {
        None if policed => Ok(Network::Host { policed }),
        None => Ok(Network::None),
        Some(Network::Sandbox) => {
            let text = "do has no network namespace of its own with interfaces; use --network=host or none";
            Err(usage(text.into()))
        }
        Some(network) => Ok(network),
    }
}

fn cwd(args: &Do) -> Result<String> {
    if let Some(cwd) = &args.cwd {
        return match cwd.starts_with('/') {
            true => Ok(cwd.clone()),
            false => Err(usage(format!("--cwd {cwd:?} must be an absolute path"))),
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
