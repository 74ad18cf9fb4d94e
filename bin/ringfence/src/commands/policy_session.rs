//! `ringfence policy load`, `reload`, `unload` and `show`: the policies of a running sandbox.

use crate::USAGE_ERROR;
use crate::output::{say, write};
use clap::Args;
use lifecycle::policy::Shown;
use lifecycle::{Error, Result, Settings};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trace_sinks::Source;
use trace_wire::config::Config;

/// The name of a policy's session, if no other was chosen.
const NAME: &str = "policy";

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// File for the decisions, to which lines are only added; %ID% and %TIMESTAMP% are replaced
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Private key in PEM that signs the end of the log
    #[arg(long, value_name = "FILE", requires = "log")]
    key: Option<PathBuf>,
    /// Name of the policy; one of the same name ends
    #[arg(long, default_value = NAME)]
    name: String,
    /// The policy, in YAML or JSON
    file: PathBuf,
    /// The container's name; that of a pod's first container stands for all of them
    id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Name of the policy
    #[arg(long, default_value = NAME)]
    name: String,
    /// The container's name
    id: String,
}

/// What is read from these files, wherever the command that reads them stands.
fn source(path: &Path, log: Option<&Path>, key: Option<&Path>) -> Result<Source> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(|error| Error::from(error.to_string()));
    Ok(Source {
        path: absolute(path)?,
        log: log.map(absolute).transpose()?,
        key: key.map(absolute).transpose()?,
    })
}

/// The session of `--policy`. `others`: those that begin with the sandbox as well.
pub(crate) fn begin_with(
    policy: &Path,
    log: Option<&Path>,
    key: Option<&Path>,
    others: &[Config],
) -> Result<Config> {
    let wrong = |error: String| Error::with_status(USAGE_ERROR, format!("--policy: {error}"));
    trace_sinks::read_policy(policy).map_err(wrong)?;
    if others.iter().any(|other| other.name == NAME) {
        return Err(wrong(format!("--pod-init-config has a session {NAME:?} already: give it another name")));
    }
    Ok(lifecycle::policy::session(NAME, source(policy, log, key)?))
}

pub(crate) fn load(settings: &Settings, args: &Load) -> Result<()> {
    let Load { log, key, name, file, id } = args;
    if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        return Err("--name has 1 to 255 bytes without control characters".into());
    }
    let source = source(file, log.as_deref(), key.as_deref())?;
    lifecycle::policy::load(settings, id, &lifecycle::policy::session(name, source))?;
    say(format_args!("Policy {name:?} loaded."))
}

pub(crate) fn reload(settings: &Settings, args: &Named) -> Result<()> {
    let loaded = lifecycle::policy::reload(settings, &args.id, &args.name)?;
    match loaded.source.log {
        Some(log) => say(format_args!("Policy {:?} reloaded; its log is {}.", args.name, log.display())),
        None => say(format_args!("Policy {:?} reloaded.", args.name)),
    }
}

pub(crate) fn unload(settings: &Settings, args: &Named) -> Result<()> {
    lifecycle::policy::unload(settings, &args.id, &args.name)?;
    say(format_args!("Policy {:?} unloaded.", args.name))
}

pub(crate) fn show(settings: &Settings, id: &str) -> Result<()> {
    let all = lifecycle::policy::show(settings, id)?;
    let mut out = format!("POLICIES ({})\n", all.len());
    for policy in &all {
        describe(&mut out, policy);
    }
    write(out)
}

fn describe(out: &mut String, shown: &Shown) {
    let Shown { name, container, recorded, dropped, status, loaded } = shown;
    let _ = writeln!(out, "{name:?}");
    let mut line = |key: &str, value: String| {
        let _ = writeln!(out, "\t{key}: {value}");
    };
    if let Some(container) = container {
        line("Container", container.clone());
    }
    if let Some(loaded) = loaded {
        line("File", loaded.source.path.display().to_string());
    }
    line("SHA-256", status.sha256.clone());
    line("Rules", status.rules.to_string());
    let decisions = status.decisions.iter().map(|(action, count)| format!("{action} {count}"));
    let decisions: Vec<_> = decisions.collect();
    line("Decisions", if decisions.is_empty() { "none".into() } else { decisions.join(", ") });
    if status.dry_run > 0 {
        line("Dry run", status.dry_run.to_string());
    }
    if status.asked > 0 {
        line("Asked", format!("{}, without an answer: {}", status.asked, status.unanswered));
    }
    if let Some(log) = loaded.as_ref().and_then(|loaded| loaded.source.log.as_ref()) {
        let unwritten = match status.unwritten {
            0 => String::new(),
            count => format!(", not written: {count}"),
        };
        line("Log", format!("{}, sent: {recorded}, dropped: {dropped}{unwritten}", log.display()));
    }
}
