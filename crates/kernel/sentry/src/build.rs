//! Builds a container from its specification, up to its first process.

use crate::console::Console;
use crate::errors::{other, text};
use crate::fds::{Fds, control_group};
use crate::mounts;
use crate::pod::Pod;
use crate::process::{enter_cwd, exec_first, install, new_process};
use crate::write_back::WriteBack;
use ::mounts::{FsView, View};
use container::Container;
use files::FdTable;
use hostfs::Importer;
use spec::{SandboxSpec, StartError};
use std::sync::Arc;
use task::{Current, Kernel, Stage};
use vfs::FileLayer;

/// A container that was built.
pub(crate) struct Built {
    /// The first process, which waits to be started.
    pub(crate) first: Current,
    /// Its terminal.
    pub(crate) console: Option<Arc<Console>>,
    /// Root and mounts as the container begins.
    pub(crate) view: Arc<FsView>,
    /// Takes the changes of the root back to the layer below.
    pub(crate) write_back: Option<WriteBack>,
}

/// Builds a container up to its first process, which waits to be started.
pub(crate) fn container(
    kernel: &Arc<Kernel>,
    container: &Arc<Container>,
    spec: &SandboxSpec,
    mut fds: Fds,
    pod: &Pod,
) -> Result<Built, StartError> {
    if !pod.takes_sockets(spec.socket_gofer.is_some()) {
        return Err(other("--host-uds=open: give it for the first container of the sandbox as well".into()));
    }
    let write_back =
        spec.root.overlay.as_ref().and_then(|overlay| Some((overlay.write_back?, overlay.lists_changes)));
    let write_back =
        write_back.map(|(index, lists)| fds.take(index).map(|to| WriteBack::new(to, lists))).transpose()?;
    let fs = mounts::build(kernel, container, &pod.host_files, spec, &mut fds)?;
    *container.root_fs.lock() = Some(fs.clone());
    let _ = container.root.set(fs.view().root.clone());
    if let Some(limit) = spec.pids_limit {
        container.cgroup().set_pids_max(limit.into());
    }
    container.set_name(&spec.id);
    container.set_id_maps(spec.id_maps.clone());
    container.withhold(spec.withheld);
    container.set_device_rules(spec.device_rules.clone());
    if container.index() != 0 {
        let files = control_group(spec, &mut fds)?;
        let (procs, shown): (Vec<_>, _) = files.into_iter().partition(|(name, _)| name == "cgroup.procs");
        container.set_cgroups(procs.into_iter().map(|(_, file)| file).collect());
        container.set_limits(shown);
    }
    let view = fs.view();
    let mut c = new_process(
        kernel,
        container,
        &spec.process,
        &FdTable::new(kernel.vfs.resources.quotas.files.clone()),
        fs,
        false,
    )?;
    match set_up(&mut c, spec, &mut fds, Importer::first(&pod.host_files)) {
        Ok(console) => {
            if spec.own_init {
                c.become_init();
            }
            container.set_first(c.task.tgid());
            pod.insert(&spec.id, container);
            Ok(Built { first: c, console, view: View::into_inner(view), write_back })
        }
        Err(error) => {
            task::end(c, Stage::Entered);
            Err(error)
        }
    }
}

/// Gives the first process its descriptors, its place and its program.
fn set_up(
    c: &mut Current,
    spec: &SandboxSpec,
    fds: &mut Fds,
    mut importer: Importer,
) -> Result<Option<Arc<Console>>, StartError> {
    let p = &spec.process;
    let console = match spec.console {
        Some(i) => {
            let console = Console::open(c, fds.take(i)?, spec.console_size)?;
            // A root without /dev/pts, or one that cannot be written, has none.
            if let Err(error) =
                mounts::show_console(&vfs::Internal::new(c.vfs()), &c.fs().view(), console.index())
            {
                log::debug!("/dev/console: {}", text(error));
            }
            Some(console)
        }
        None => {
            for (n, i) in spec.stdio.iter().enumerate() {
                let file = importer
                    .import(fds.share(*i)?, p.uid, p.gid)
                    .map_err(|e| other(format!("standard stream {n}: {e}")))?;
                install(c, &file, n)?;
            }
            None
        }
    };
    for (n, i) in spec.preserved.iter().enumerate() {
        let file = importer
            .import(fds.take(*i)?, p.uid, p.gid)
            .map_err(|e| other(format!("preserved descriptor {}: {e}", n + 3)))?;
        install(c, &file, n + 3)?;
    }
    enter_cwd(c, p)?;
    exec_first(c, p)?;
    Ok(console)
}
