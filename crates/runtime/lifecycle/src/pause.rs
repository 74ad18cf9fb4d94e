//! `pause` and `resume`.

use crate::directory::Container;
use crate::find::connect;
use crate::record::{Record, Status};
use crate::{Error, Result, Settings, pod};
use bundle::Pod;
use cgroups::Manager;

/// Stops all processes of a running container for a while.
pub fn pause(settings: &Settings, id: &str) -> Result<()> {
    change(settings, id, true)
}

/// Lets the processes of a paused container go on.
pub fn resume(settings: &Settings, id: &str) -> Result<()> {
    change(settings, id, false)
}

fn change(settings: &Settings, id: &str, freeze: bool) -> Result<()> {
    let (from, to, otherwise) = match freeze {
        true => (Status::Running, Status::Paused, "not running"),
        false => (Status::Paused, Status::Running, "not paused"),
    };
    let (container, _) = settings.find(id)?;
    let _lock = container.lock()?;
    let (container, mut record) = settings.find(id)?;
    if !freeze && record.state.status == Status::Running && connect(&container)?.freeze(false).is_ok() {
        // A policy had frozen it, which only the kernel inside knows.
        return Ok(());
    }
    if record.state.status != from {
        return Err(format!("container {otherwise}: it is {}", record.state.status).into());
    }
    let groups = groups_to_freeze(settings, &record, freeze);
    if freeze && record.writes_back() {
        return written_back(&container, groups).and_then(|()| {
            record.state.status = to;
            Ok(container.write(&record)?)
        });
    }
    match groups {
        Some(groups) if freeze => groups.freeze()?,
        Some(groups) => groups.thaw()?,
        None => connect(&container)?.freeze(freeze)?,
    }
    record.state.status = to;
    Ok(container.write(&record)?)
}

/// Stops all processes with the changes of the root written back.
fn written_back(container: &Container, groups: Option<Manager>) -> Result<()> {
    let client = connect(container)?;
    client.freeze(true)?;
    let done = client.write_back().map_err(Error::from).and_then(|left| {
        if !left.is_empty() {
            log::warn!("written back without: {left}");
        }
        groups.as_ref().map_or(Ok(()), |groups| Ok(groups.freeze()?))
    });
    match (done, groups) {
        // For when the host lets it go on.
        (Ok(()), Some(_)) => Ok(client.post_unfreeze()?),
        (Ok(()), None) => Ok(()),
        (Err(error), _) => {
            client.freeze(false)?;
            Err(error)
        }
    }
}

/// The control groups of a container that has its sandbox for itself, or that was frozen while it had. The processes of
/// containers that share a sandbox are all in the groups of the first one. The kernel inside knows the container of
/// each process, and stops them without stopping itself.
pub(crate) fn groups_to_freeze(settings: &Settings, record: &Record, freeze: bool) -> Option<Manager> {
    let groups = record.groups().ok()?;
    let whole = match freeze {
        true => record.pod() == Pod::None && pod::members(settings, record).is_empty(),
        false => groups.is_frozen(),
    };
    whole.then_some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{StateDir, record};

    #[test]
    fn the_state_has_to_fit() {
        let dir = StateDir::new("pause");
        let _held = dir.living("x", &record("x", Status::Created, false));
        let refused = |result: Result<()>| result.unwrap_err().message().to_string();
        assert_eq!(refused(pause(&dir.settings(), "x")), "container not running: it is created");
        assert_eq!(refused(resume(&dir.settings(), "x")), "container not paused: it is created");
    }
}
