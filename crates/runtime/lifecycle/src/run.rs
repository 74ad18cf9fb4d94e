//! `run`: `create` and `start` in one, in the foreground or in the background.

use crate::create::{NewContainer, Purpose, set_up};
use crate::record::{State, Status};
use crate::{CreateOptions, Result, Settings, foreground, pid_file, run_hooks, start_hooks};
use hooks::Kind;

/// How a container is run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// As for `create`.
    pub create: CreateOptions,
    /// Leave the container in the background.
    pub detach: bool,
    /// Keep the container's state after its end, for `delete`.
    pub keep: bool,
}

/// Runs a container; in the foreground until it ends, with its exit status.
pub fn run(settings: &Settings, options: &RunOptions) -> Result<u8> {
    if options.detach {
        return detached(settings, &options.create).map(|()| 0);
    }
    let signals = foreground::block_signals()?;
    // Dropped from the last to the first: processes before the groups that they are in.
    let NewContainer {
        hooks,
        console,
        copies,
        mut record,
        mut claim,
        stores,
        write_back,
        mut attendants,
        groups,
        sandbox,
        crash,
    } = {
        let mut container = set_up(settings, &options.create, Purpose::RunInForeground)?;
        if let Some(file) = &options.create.pid_file {
            pid_file::write(file, container.sandbox.pid())?;
        }
        if !Kind::StartContainer.of(&container.hooks).is_empty() {
            container.await_ready()?;
            let state = container.state(Status::Created);
            start_hooks::run(container.claim.container(), &container.hooks, &state)?;
        }
        container
    };
    sandbox.start()?;
    let pid = sandbox.pid();
    let outcome = foreground::attend(sandbox, &signals, console.as_ref(), &crash, || {
        attendants.keep_logs();
        record.state.status = Status::Running;
        record.state.pid = pid;
        if let Err(error) = claim.container().write(&record) {
            log::warn!("state of {}: {error}", record.state.id);
        }
        claim.unlock();
        run_hooks::run_and_log(&hooks, Kind::Poststart, &record.state);
    });
    if let Some(copies) = copies {
        copies.finish();
    }
    // It ends with the sentry, when all is written.
    if let Some(write_back) = write_back {
        write_back.wait();
    }
    attendants.wait();
    if !claim.relock() {
        return outcome;
    }
    record.state = State { status: Status::Stopped, pid: 0, ..record.state };
    if options.keep && outcome.is_ok() {
        record.foreground = false;
        claim.container().write(&record)?;
        groups.keep();
        stores.keep();
        claim.keep();
    } else {
        drop(groups);
        run_hooks::run_and_log(&hooks, Kind::Poststop, &record.state);
    }
    outcome
}

fn detached(settings: &Settings, options: &CreateOptions) -> Result<()> {
    let mut container = set_up(settings, options, Purpose::RunDetached)?;
    container.await_ready()?;
    start_hooks::run(container.claim.container(), &container.hooks, &container.state(Status::Created))?;
    container.sandbox.start()?;
    let (hooks, state) = (container.hooks.clone(), container.state(Status::Running));
    container.settle(options, Status::Running)?;
    run_hooks::run_and_log(&hooks, Kind::Poststart, &state);
    Ok(())
}
