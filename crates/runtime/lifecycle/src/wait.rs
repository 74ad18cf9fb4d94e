//! `wait`: the end of a container, or of one of its processes.

use crate::find::connect;
use crate::ps::running;
use crate::{Result, Settings};
use std::time::Duration;

/// Waits for the end of a container; its exit status.
pub fn wait(settings: &Settings, id: &str) -> Result<u8> {
    let (container, _) = settings.find(id)?;
    Ok(container.wait_end()?)
}

/// Waits for the end of the next checkpoint of a running container.
pub fn wait_checkpoint(settings: &Settings, id: &str) -> Result<()> {
    let (container, _) = running(settings, id)?;
    Ok(connect(&container)?.await_checkpoint()?)
}

/// How often a wait for the other containers of an image looks.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until a container is restored: that is so when it has processes. One of an image of several waits for the others.
pub fn wait_restore(settings: &Settings, id: &str) -> Result<()> {
    loop {
        let (container, _) = running(settings, id)?;
        if !connect(&container)?.processes()?.is_empty() {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// A process to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// By its ID in the container.
    Inside(i32),
    /// By its ID in the first PID namespace of the sandbox.
    Root(i32),
}

/// Waits for the end of a process of a running container; its exit status.
pub fn wait_process(settings: &Settings, id: &str, process: Waited) -> Result<u8> {
    let (container, record) = running(settings, id)?;
    if record.is_frozen() {
        return Err(format!("container is paused: {id}: resume it first").into());
    }
    let client = connect(&container)?;
    Ok(match process {
        Waited::Inside(pid) => client.wait(pid, false)?,
        Waited::Root(pid) => client.wait(pid, true)?,
    })
}
