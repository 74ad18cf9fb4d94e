//! `wait`: the end of a container.

use crate::{Result, Settings};

/// Waits for the end of a container; its exit status.
pub fn wait(settings: &Settings, id: &str) -> Result<u8> {
    let (container, _) = settings.find(id)?;
    Ok(container.wait_end()?)
}
