//! `do --snapshot`, `do --from`, and `ringfence snapshot`.

use crate::output::say;
use bundle::{HostCommand, Medium, Options, Overlay2, Volume, for_host_command};
use clap::{Args, Subcommand};
use hostsys::signals::SignalFd;
use lifecycle::{
    HostLimits, HostRun, HostSnapshot, Result, SESSION_PROGRAM, SavedCommand, Sessions, Settings, Snapshots,
};
use netgofer::Policy;
use sandbox::terminal;
use spec::Network;
use std::path::{Path, PathBuf};

/// A command, what lies over its files, and its network.
type Described<'a> = (&'a HostCommand, &'a Overlay2, Network, &'a Option<Policy>);

/// What an image has to say of its command, for a flag.
pub(crate) fn saved(
    settings: &Settings,
    (command, overlay, network, allow_net): Described<'_>,
    flag: &str,
) -> Result<SavedCommand> {
    let mut over = [&overlay.root, &overlay.binds].into_iter().flatten();
    if over.any(|choice| choice.medium != Medium::Memory || choice.commit) {
        return Err(
            format!("{flag}: what is changed is saved from memory: use --overlay2=root:memory").into()
        );
    }
    let absolute = |path: &Path| -> Result<PathBuf> { Ok(std::path::absolute(path)?) };
    let volume = |volume: &Volume| Ok(Volume { source: absolute(&volume.source)?, ..volume.clone() });
    let command = HostCommand {
        root: absolute(&command.root)?,
        volumes: command.volumes.iter().map(volume).collect::<Result<_>>()?,
        ..command.clone()
    };
    let (overlay, allow_net) = (overlay.clone(), allow_net.clone());
    Ok(SavedCommand { command, overlay, network, allow_net, platform: settings.containers.platform })
}

/// Begins the snapshot of a command.
pub(crate) fn begin(
    settings: &Settings,
    name: &str,
    (idle, limit): (bool, i64),
    described: Described<'_>,
) -> Result<HostSnapshot> {
    let saved = Box::new(saved(settings, described, "--snapshot")?);
    let limit = u64::try_from(limit).map_err(|_| "--snapshot-limit: use a size above 0")?;
    let new = Snapshots::open()?.begin(name, limit)?;
    Ok(HostSnapshot::Make { new, saved, idle })
}

/// What a command that goes on from a snapshot has of its own.
pub(crate) struct Own {
    pub(crate) id: String,
    pub(crate) hostname: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) env: Vec<String>,
    pub(crate) pids: Option<u32>,
    pub(crate) limits: HostLimits,
    /// A program beside those of the snapshot, if there are words.
    pub(crate) args: Vec<String>,
}

/// Goes on from a snapshot.
pub(crate) fn go_on(settings: &Settings, name: &str, own: Own, signals: &SignalFd) -> Result<u8> {
    if settings.network.is_some() {
        return Err("--network: a snapshot has the network of its command".into());
    }
    let snapshot = Snapshots::open()?.take(name)?;
    let saved = snapshot.saved.clone();
    let program = (!own.args.is_empty()).then(|| (own.args.clone(), terminal::interactive()));
    let snapshot = HostSnapshot::From { snapshot: Box::new(snapshot), program };
    run_in(settings, saved, own, snapshot, signals)
}

/// Runs a command in a session. A new one is as `describe` says.
pub(crate) fn step(
    settings: &Settings,
    name: &str,
    own: Own,
    signals: &SignalFd,
    describe: impl FnOnce() -> Result<SavedCommand>,
) -> Result<u8> {
    let (session, mut saved) = Sessions::open()?.enter(name, describe)?;
    let image = session.image()?;
    saved.command.args = SESSION_PROGRAM.map(String::from).to_vec();
    let program = (own.args.clone(), terminal::interactive());
    let snapshot = HostSnapshot::Step { session, image, program };
    run_in(settings, saved, own, snapshot, signals)
}

fn run_in(
    settings: &Settings,
    saved: SavedCommand,
    own: Own,
    snapshot: HostSnapshot,
    signals: &SignalFd,
) -> Result<u8> {
    let SavedCommand { command, overlay, network, allow_net, platform } = saved;
    let command = HostCommand {
        id: own.id,
        hostname: own.hostname.unwrap_or(command.hostname),
        cwd: own.cwd.unwrap_or(command.cwd),
        env: own.env,
        pids: own.pids.or(command.pids),
        rlimits: lifecycle::callers_limits(),
        ..command
    };
    let options = Options { overlay, network, platform, ..settings.containers.clone() };
    let prepared = for_host_command(command, &options)?;
    let run = HostRun { allow_net: allow_net.as_ref(), limits: own.limits, snapshot, ..HostRun::default() };
    lifecycle::run_host_command(settings, prepared, run, signals)
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotCommand {
    #[command(subcommand)]
    command: SnapshotAction,
}

#[derive(Debug, Subcommand)]
enum SnapshotAction {
    /// List snapshots: name, size, whether commands run from it, and its command
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove snapshots
    Delete {
        /// Their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

pub(crate) fn snapshot(args: &SnapshotCommand) -> Result<()> {
    let all = Snapshots::open()?;
    match &args.command {
        SnapshotAction::List { json: true } => say(serde_json::to_string(&all.list()?)?),
        SnapshotAction::List { json: false } => {
            let row = |cells: [&str; 4]| {
                let [name, size, used, command] = cells;
                say(format_args!("{name:<20} {size:>12}  {used:<6} {command}"))
            };
            row(["NAME", "SIZE", "IN USE", "COMMAND"])?;
            for one in all.list()? {
                let (size, used) =
                    (format!("{} KiB", one.bytes >> 10), if one.in_use { "yes" } else { "no" });
                row([&one.name, &size, used, &one.args.join(" ")])?;
            }
            Ok(())
        }
        SnapshotAction::Delete { names } => names.iter().try_for_each(|name| all.delete(name)),
    }
}
