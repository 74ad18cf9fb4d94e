//! Hooks of a configuration, except for those that run inside ([`start_hooks`](crate::start_hooks)).

use crate::Result;
use crate::directory::Container;
use crate::record::{State, Status};
use hooks::{HookNamespace, Kind};
use oci_spec::runtime::Hooks;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::thread::LinkNameSpaceType;
use std::os::fd::AsFd;

/// Hooks of the configuration that a container was made from.
pub(crate) fn of(container: &Container) -> Hooks {
    let spec = bundle::load_spec(&container.path().join(bundle::CONFIG_FILE));
    spec.ok().and_then(|spec| spec.hooks().clone()).unwrap_or_default()
}

/// A container's state as hooks read it.
pub(crate) fn as_hooks_read_it(state: &State) -> hooks::State {
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
pub(crate) fn run_on_create(hooks: &Hooks, state: &State) -> Result<()> {
    if Kind::ALL.iter().all(|kind| kind.of(hooks).is_empty()) {
        return Ok(());
    }
    let told = as_hooks_read_it(state);
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
    let fds = kinds.iter().map(|(name, kind)| Ok((*kind, open(name)?))).collect::<Result<Vec<_>>>()?;
    let namespaces: Vec<_> =
        fds.iter().map(|(kind, fd)| HookNamespace { kind: *kind, fd: fd.as_fd() }).collect();
    hooks::run(hooks, Kind::CreateContainer, &told, &namespaces).map_err(|error| {
        format!(
            "{error}; it runs in the runtime's mount and PID namespaces: the container's mounts are made by the kernel \
             inside, and are not below {} on the host",
            state.rootfs.display()
        )
        .into()
    })
}

/// `poststart` and `poststop`. Their failures stop nothing: they are logged.
pub(crate) fn run_and_log(hooks: &Hooks, kind: Kind, state: &State) {
    for error in hooks::run_all(hooks, kind, &as_hooks_read_it(state)) {
        log::warn!("{error}");
    }
}
