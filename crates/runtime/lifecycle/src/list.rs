//! `state` and `list`: what clients see of containers.

use crate::record::State;
use crate::{Result, Settings, directory};

/// A container's state.
pub fn state(settings: &Settings, id: &str) -> Result<State> {
    Ok(settings.find(id)?.1.state)
}

/// The states of all containers, by id.
pub fn list(settings: &Settings) -> Result<Vec<State>> {
    let dir = settings.state_dir();
    let listed = directory::list(&dir).map_err(|error| {
        format!("state directory {}: {error}; choose another with --root, or use --rootless", dir.display())
    })?;
    Ok(listed.into_iter().map(|record| record.state).collect())
}
