//! `state` and `list`: what clients see of containers.

use crate::record::{Record, State};
use crate::{Result, Settings, directory};

/// A container's state.
pub fn state(settings: &Settings, id: &str) -> Result<State> {
    Ok(settings.find(id)?.1.state)
}

/// The states of all containers, by id.
pub fn list(settings: &Settings) -> Result<Vec<State>> {
    Ok(records(settings)?.into_iter().map(|record| record.state).collect())
}

/// The same of those with a sandbox of their own, which others may have joined.
pub fn list_sandboxes(settings: &Settings) -> Result<Vec<State>> {
    let all = records(settings)?.into_iter();
    Ok(all.filter(Record::has_sandbox).map(|record| record.state).collect())
}

fn records(settings: &Settings) -> Result<Vec<Record>> {
    let dir = settings.state_dir();
    Ok(directory::list(&dir).map_err(|error| {
        format!("state directory {}: {error}; choose another with --root, or use --rootless", dir.display())
    })?)
}
