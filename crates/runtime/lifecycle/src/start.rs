//! `start`: lets the first process of a created container run.

use crate::find::connect;
use crate::record::Status;
use crate::{Result, Settings, network, run_hooks, start_hooks};
use hooks::Kind;
use spec::Target;

/// Starts a created container.
pub fn start(settings: &Settings, id: &str) -> Result<()> {
    let (container, _) = settings.find(id)?;
    let _lock = container.lock()?;
    let (container, mut record) = settings.find(id)?;
    match record.state.status {
        Status::Created => {}
        Status::Stopped => return Err("cannot start a container that has stopped".into()),
        Status::Running => return Err("cannot start an already running container".into()),
        status => return Err(format!("cannot start a container in the {status} state").into()),
    }
    let hooks = run_hooks::of(&container);
    if let Err(error) = start_hooks::run(&container, &hooks, &record.state) {
        // The container ends without having run.
        connect(&container)?.signal(libc::SIGKILL, Target::Init)?;
        return Err(error);
    }
    let client = connect(&container)?;
    network::show_again(settings, &client, &record);
    client.start()?;
    record.state.status = Status::Running;
    container.write(&record)?;
    run_hooks::run_and_log(&hooks, Kind::Poststart, &record.state);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{StateDir, record};

    #[test]
    fn only_created_containers_start() {
        let dir = StateDir::new("start");
        dir.ended("over");
        let _held = dir.living("runs", &record("runs", Status::Running, false));
        let refused = |id| start(&dir.settings(), id).unwrap_err().message().to_string();
        assert_eq!(refused("none"), "container does not exist: none");
        assert_eq!(refused("over"), "cannot start a container that has stopped");
        assert_eq!(refused("runs"), "cannot start an already running container");
    }
}
