//! Policies of a running sandbox: `policy load`, `reload`, `unload` and `show`.
//!
//! A policy is a trace session that has a sink `policy` and nothing else. What it was loaded from is in the container's
//! directory ([`policy_record`](crate::policy_record)).

use crate::policy_record::{next_log, read, record, write};
use crate::trace::{self, Found};
use crate::{Result, Settings};
use std::path::PathBuf;
use trace_wire::config::Config;
use trace_wire::session::{PolicyStatus, Status};

pub use crate::policy_record::{Loaded, session};

/// A policy that is in force.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The session's name.
    pub name: String,
    /// The only container that it is about.
    pub container: Option<String>,
    /// Decisions that were written to the log, and those that were lost.
    pub recorded: u64,
    /// See `recorded`.
    pub dropped: u64,
    /// What the kernel says.
    pub status: PolicyStatus,
    /// What it was loaded from, when only a policy was.
    pub loaded: Option<Loaded>,
}

/// Puts a policy in force, instead of one of the same name.
pub fn load(settings: &Settings, id: &str, config: &Config) -> Result<()> {
    replace(&trace::find(settings, id)?, config, None)
}

/// Reads the file of a policy again, and replaces the policy. The name of the log, which is another one.
pub fn reload(settings: &Settings, id: &str, name: &str) -> Result<Loaded> {
    let found = trace::find(settings, id)?;
    let mut all = read(&found.container)?;
    let Some(Loaded { mut source, first_log }) = all.remove(name) else {
        return Err(match found.client.trace_list()?.iter().any(|session| session.name == name) {
            true => format!(
                "session {name:?} is not a policy alone; \"trace create --force\" replaces it as a whole"
            ),
            false => format!("no policy {name:?} was loaded; \"policy load\" does"),
        }
        .into());
    };
    // The log has the digest of its policy at the beginning, and gets its end when the policy does.
    source.log = first_log.as_deref().map(next_log).transpose()?;
    replace(&found, &session(name, source.clone()), first_log.clone())?;
    Ok(Loaded { source, first_log })
}

fn replace(found: &Found, config: &Config, first_log: Option<PathBuf>) -> Result<()> {
    let _lock = found.container.lock()?;
    let config = trace::filled_in(config, &found.sandbox);
    trace::begin(&found.client, &config, found.only.clone(), &found.sandbox, true)?;
    record(&found.container, &config, first_log)
}

/// Ends a policy.
pub fn unload(settings: &Settings, id: &str, name: &str) -> Result<()> {
    let found = trace::find(settings, id)?;
    let is_policy = |session: &Status| session.sinks.iter().any(|sink| sink.policy.is_some());
    if !found.client.trace_list()?.iter().any(|session| session.name == name && is_policy(session)) {
        return Err(format!("there is no policy {name:?}; \"policy show\" lists them").into());
    }
    let _lock = found.container.lock()?;
    found.client.trace_delete(name)?;
    let mut all = read(&found.container)?;
    match all.remove(name) {
        Some(_) => write(&found.container, &all),
        None => Ok(()),
    }
}

/// The policies that are in force.
pub fn show(settings: &Settings, id: &str) -> Result<Vec<Shown>> {
    let found = trace::find(settings, id)?;
    let mut loaded = read(&found.container)?;
    let mut shown = Vec::new();
    for Status { name, container, sinks } in found.client.trace_list()? {
        for sink in sinks {
            let Some(status) = sink.policy else { continue };
            shown.push(Shown {
                loaded: loaded.remove(&name),
                name: name.clone(),
                container: container.clone(),
                recorded: sink.sent,
                dropped: sink.dropped,
                status,
            });
        }
    }
    Ok(shown)
}
