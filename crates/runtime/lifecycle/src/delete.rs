//! `delete`: removes everything that belongs to a container, in any state.

use crate::crash::CrashFile;
use crate::directory::{self, Container, Lock};
use crate::record::{Record, Status};
use crate::{Result, Settings, groups, kill, run_hooks, weights};
use bundle::Pod;
use cgroups::Manager;
use hooks::Kind;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// How long the processes of a container may take to go after SIGKILL.
const END: Duration = Duration::from_secs(10);

/// Deletes a container. With `force` it is ended first if it runs, and one that does not exist is no error.
pub fn delete(settings: &Settings, id: &str, force: bool) -> Result<()> {
    let Some((container, _lock)) = locked(settings, id)? else {
        return if force { Ok(()) } else { Err(directory::missing(id).into()) };
    };
    let mut ended = None;
    match container.read() {
        Ok(Some(mut record)) => {
            end_known(&container, &record, force)?;
            record.remove_stores();
            record.state.status = Status::Stopped;
            record.state.pid = 0;
            let sandbox = match record.pod() {
                Pod::Member(sandbox) => Some(sandbox),
                _ => None,
            };
            ended = Some((run_hooks::of(&container), record.state, sandbox));
        }
        // Half a container, or a damaged one.
        Ok(None) if force || !container.is_alive() => end_unknown(settings, &container, id)?,
        Err(error) if force => {
            log::warn!("state of {id}: {error}");
            end_unknown(settings, &container, id)?;
        }
        Ok(None) => {
            return Err(format!("state of container {id:?} is missing; remove it with delete --force").into());
        }
        Err(error) => {
            return Err(format!("state of container {id:?}: {error}; remove it with delete --force").into());
        }
    }
    if let Some(crash) = CrashFile::left_by(settings, id, &container) {
        log::warn!("the kernel of container {id} has died: {}", crash.advice());
    }
    container.remove()?;
    if let Some((hooks, state, sandbox)) = ended {
        if let Some(sandbox) = sandbox {
            weights::follow(settings, &sandbox, None);
        }
        run_hooks::run_and_log(&hooks, Kind::Poststop, &state);
    }
    Ok(())
}

/// The container, and the right to change it; nothing when it does not exist, or another command has just deleted it.
fn locked(settings: &Settings, id: &str) -> Result<Option<(Container, Lock)>> {
    let Some(container) = Container::at(&settings.state_dir(), id) else { return Ok(None) };
    match container.lock() {
        Ok(lock) => Ok(Some((container, lock))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Ends a container if that is to be done, waits for its end, and removes its control groups.
fn end_known(container: &Container, record: &Record, force: bool) -> Result<()> {
    match record.state.status {
        Status::Stopped => {}
        // Its maker is gone, or we would not have the lock, and with it whatever it had started.
        Status::Creating => {}
        Status::Created => kill::end_if_there(container, record)?,
        _ if force => kill::end_if_there(container, record)?,
        status => {
            return Err(format!(
                "cannot delete container {} that is not stopped: {status}; stop it first, or use --force",
                record.state.id
            )
            .into());
        }
    }
    wait_for_end(container)?;
    match record.saved_groups() {
        Some(saved) => Ok(Manager::load(saved).destroy()?),
        None => Ok(()),
    }
}

/// Ends a container with a state that cannot be read. It is found by the lock that it holds, and by the control groups
/// of its configuration.
fn end_unknown(settings: &Settings, container: &Container, id: &str) -> Result<()> {
    let spec = bundle::load_spec(&container.path().join(bundle::CONFIG_FILE));
    let groups = spec.ok().and_then(|spec| groups::manager(settings, &spec, id).ok().flatten());
    for pid in container.holders().into_iter().filter_map(Pid::from_raw) {
        if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
    if let Some(groups) = groups.as_ref().filter(|groups| groups.is_frozen()) {
        groups.thaw()?;
    }
    wait_for_end(container)?;
    groups.map_or(Ok(()), |groups| Ok(groups.destroy()?))
}

fn wait_for_end(container: &Container) -> Result<()> {
    let deadline = Instant::now() + END;
    while container.is_alive() {
        if Instant::now() > deadline {
            return Err("the container's processes do not end; see what holds them with ps".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{StateDir, record};

    #[test]
    fn whatever_is_left_is_deleted() {
        let dir = StateDir::new("delete");
        let settings = dir.settings();
        dir.ended("x");
        delete(&settings, "x", false).unwrap();
        assert_eq!(delete(&settings, "x", false).unwrap_err().message(), "container does not exist: x");
        delete(&settings, "x", true).unwrap();

        dir.ended("damaged");
        std::fs::write(dir.0.join("damaged/state.json"), "{").unwrap();
        let error = delete(&settings, "damaged", false).unwrap_err();
        assert!(error.message().contains("delete --force"), "{error}");
        delete(&settings, "damaged", true).unwrap();

        dir.ended("half");
        std::fs::remove_file(dir.0.join("half/state.json")).unwrap();
        delete(&settings, "half", false).unwrap();
        assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0);
    }

    #[test]
    fn a_running_container_is_not() {
        let dir = StateDir::new("delete-running");
        let _held = dir.living("x", &record("x", Status::Running, false));
        let error = delete(&dir.settings(), "x", false).unwrap_err();
        assert!(error.message().contains("that is not stopped: running"), "{error}");
        assert!(dir.0.join("x/state.json").exists());
    }
}
