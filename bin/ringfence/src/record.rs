//! What the state of a container keeps for the runtime itself: its control groups, and what its hooks need.

use crate::Failure;
use crate::cli::Global;
use crate::container;
use cgroups::{Manager, Saved};
use hooks::{Kind, Where};
use oci_spec::runtime::{Hooks, LinuxResources, Spec};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::thread::LinkNameSpaceType;
use sandbox::state::{Container, Record, State, Status};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;

/// In the `runtime` field of a [`Record`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The container's control groups, if it has any.
    #[serde(default)]
    pub(crate) cgroups: Option<Saved>,
}

impl Kept {
    pub(crate) fn of(record: &Record) -> Self {
        serde_json::from_value(record.runtime.clone()).unwrap_or_default()
    }

    /// The container's control groups; an error when it has none.
    pub(crate) fn manager(self) -> Result<Manager, Failure> {
        match self.cgroups {
            Some(saved) => Ok(Manager::load(saved)),
            None => Err("the container has no control group: it was made with --ignore-cgroups".into()),
        }
    }
}

/// Whether the host has stopped all processes of a container's sandbox, so that nobody there answers.
pub(crate) fn is_frozen(record: &Record) -> bool {
    Kept::of(record).manager().is_ok_and(|groups| groups.is_frozen())
}

/// The control groups that a new container is to have.
pub(crate) fn manager(global: &Global, spec: &Spec, id: &str) -> Result<Option<Manager>, Failure> {
    if global.ignore_cgroups {
        return Ok(None);
    }
    let rootless = container::rootless(global) || !container::users_are_the_hosts();
    let made = Manager::new(spec.linux().as_ref(), id, global.systemd_cgroup, rootless);
    match made {
        Ok(manager) => Ok(Some(manager)),
        Err(error) if rootless => {
            log::debug!("no control groups: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The limits that a configuration asks for.
pub(crate) fn resources(spec: &Spec) -> Option<&LinuxResources> {
    spec.linux().as_ref().and_then(|linux| linux.resources().as_ref())
}

/// Hooks of the configuration that a container was made from.
pub(crate) fn hooks_of(container: &Container) -> Hooks {
    let spec = bundle::load_spec(&container.path().join(bundle::CONFIG_FILE));
    spec.ok().and_then(|spec| spec.hooks().clone()).unwrap_or_default()
}

/// A container's state as hooks read it.
pub(crate) fn state_for_hooks(state: &State) -> hooks::State {
    hooks::State {
        oci_version: state.oci_version.clone(),
        id: state.id.clone(),
        status: state.status.to_string(),
        pid: u32::try_from(state.pid).ok().filter(|pid| *pid != 0),
        bundle: state.bundle.clone(),
        annotations: state.annotations.clone(),
    }
}

/// The hooks of `create`: `prestart`, `createRuntime`, and `createContainer` in the namespaces of the sandbox.
pub(crate) fn run_create_hooks(hooks: &Hooks, state: &State) -> Result<(), Failure> {
    if Kind::ALL.iter().all(|kind| kind.of(hooks).is_empty()) {
        return Ok(());
    }
    let told = state_for_hooks(state);
    // Defined before there was a state for containers in the making: those of today expect this one.
    let created = hooks::State { status: Status::Created.to_string(), ..told.clone() };
    hooks::run(hooks, Kind::Prestart, &created, &[])?;
    hooks::run(hooks, Kind::CreateRuntime, &told, &[])?;
    if Kind::CreateContainer.of(hooks).is_empty() {
        return Ok(());
    }
    let kinds = [
        ("net", LinkNameSpaceType::Network),
        ("ipc", LinkNameSpaceType::InterProcessCommunication),
        ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ];
    let open = |name: &str| {
        let path = format!("/proc/{}/ns/{name}", state.pid);
        openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    };
    let fds =
        kinds.iter().map(|(name, kind)| Ok((*kind, open(name)?))).collect::<Result<Vec<_>, Failure>>()?;
    let namespaces: Vec<_> = fds.iter().map(|(kind, fd)| Where { kind: *kind, fd: fd.as_fd() }).collect();
    Ok(hooks::run(hooks, Kind::CreateContainer, &told, &namespaces)?)
}

/// `poststart` and `poststop`, whose failures do not stop anything: they are logged.
pub(crate) fn run_later_hooks(hooks: &Hooks, kind: Kind, state: &State) {
    for error in hooks::run_all(hooks, kind, &state_for_hooks(state)) {
        log::warn!("{error}");
    }
}
