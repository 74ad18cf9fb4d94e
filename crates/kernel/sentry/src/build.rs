//! Builds a container from its specification, up to its first process.

use crate::awaited::{Awaited, Joined};
use crate::console::Console;
use crate::errors::{other, text};
use crate::fds::{Fds, control_group};
use crate::first::First;
use crate::image::Image;
use crate::mounts;
use crate::pod::Pod;
use crate::process::{enter_cwd, exec_first, install, new_process};
use crate::write_back::WriteBack;
use ::mounts::{FsView, View};
use checkpoint::RestoredContainer;
use checkpoint::files::Baseline;
use container::Container;
use files::FdTable;
use hostfs::Importer;
use hostsys::page_file::PageFile;
use spec::{Network, SandboxSpec, StartError};
use std::sync::Arc;
use task::{Current, Kernel, Stage};
use vfs::{FileLayer, OpenFile};

/// A container that was built.
pub(crate) struct Built {
    /// The threads that it begins with.
    pub(crate) first: Arc<First>,
    /// The mounts that it begins with.
    pub(crate) baseline: Baseline,
    /// The files of pages that it was restored from.
    pub(crate) layers: Vec<PageFile>,
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
    if !pod.takes_sockets(spec.host_uds) {
        return Err(other("--host-uds: give it for the first container of the sandbox as well".into()));
    }
    if !pod.takes_files(spec.through_gofer) {
        return Err(other("--directfs: give the same for all containers of the sandbox".into()));
    }
    if !pod.takes_gofers(spec.asks_gofers()) {
        return Err(other("--gofer: give one for the first container of the sandbox as well".into()));
    }
    if spec.asks_gofers() && matches!(spec.network, Network::Host { policed: true }) {
        let flag = if spec.through_gofer { "--directfs=false" } else { "--gofer" };
        let why = "a sandbox with such a policy may not pass descriptors on";
        return Err(other(format!("{flag} cannot be used together with --allow-net: {why}")));
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
    let environ = spec.process.env.iter().flat_map(|entry| entry.bytes().chain([0])).collect();
    container.set_environ(spec.process.uid, environ);
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
    if let Some(image) = spec.image {
        // The first one's was read before.
        let index = match container.index() {
            0 => 0,
            _ => pod.place(spec, Image::named(image, &mut fds)?)?,
        };
        let console = spec.console.map(|_| Console::unused(kernel, &view, spec.console_size)).transpose()?;
        if let Some(console) = &console {
            show(&vfs::Internal::new(&kernel.vfs), &view, console);
        }
        let baseline = Baseline::of(&view.ns);
        let imported = imported(spec, &mut fds, &mut Importer::first(&pod.host_files, container.index()))?;
        let restored = RestoredContainer {
            index,
            container: container.clone(),
            mounts: view.ns.clone(),
            console: console.as_ref().map(|console| console.pty().clone()),
            imported,
            capabilities: spec.process.capabilities.all(),
        };
        let first = First::awaited(container, &spec.process);
        let served = match (&console, spec.console) {
            (Some(console), Some(i)) => Some((console.clone(), fds.take(i)?)),
            _ => None,
        };
        let joined = Joined { restored, console: served, first: first.clone() };
        let layers = match pod.join(joined)? {
            Some(complete) => restore(kernel, complete)?,
            None => Vec::new(),
        };
        pod.insert(&spec.id, container);
        let view = View::into_inner(view);
        return Ok(Built { first, baseline, layers, console, view, write_back });
    }
    let mut c = new_process(
        kernel,
        container,
        &spec.process,
        &FdTable::new(kernel.vfs.resources.quotas.files.clone()),
        fs,
        false,
    )?;
    match set_up(&mut c, spec, &mut fds, Importer::first(&pod.host_files, container.index())) {
        Ok(console) => {
            if spec.own_init {
                c.become_init();
            }
            container.set_first(c.task.tgid());
            pod.insert(&spec.id, container);
            let baseline = Baseline::of(&view.ns);
            let view = View::into_inner(view);
            let first = First::new(container, &spec.process, vec![c]);
            Ok(Built { first, baseline, layers: Vec::new(), console, view, write_back })
        }
        Err(error) => {
            task::end(c, Stage::Entered);
            Err(error)
        }
    }
}

/// Restores all containers of an image; gives the files of its pages.
fn restore(
    kernel: &Arc<Kernel>,
    Awaited { image, mut joined }: Awaited,
) -> Result<Vec<PageFile>, StartError> {
    let all = |kernel: &Arc<Kernel>, joined: &mut Vec<Joined>| {
        let (mut restored, mut others) = (Vec::new(), Vec::new());
        for Joined { restored: one, console, first } in joined.drain(..) {
            restored.push(one);
            others.push((console, first));
        }
        let made = image.restore(kernel, &restored);
        let with = restored.into_iter().zip(others);
        joined.extend(with.map(|(restored, (console, first))| Joined { restored, console, first }));
        let (mut threads, layers) = made?;
        kernel.notices.restored();
        for one in joined.iter_mut() {
            if let Some((console, host)) = one.console.take() {
                console.serve(host)?;
            }
            let own =
                |thread: &mut Current| Arc::ptr_eq(&thread.task.group.container, &one.restored.container);
            one.first.come(threads.extract_if(.., own).collect())?;
        }
        Ok(layers)
    };
    all(kernel, &mut joined).inspect_err(|_| Pod::give_up(&joined))
}

/// The descriptors of a specification as open files: standard streams, then the others.
fn imported(
    spec: &SandboxSpec,
    fds: &mut Fds,
    importer: &mut Importer,
) -> Result<Vec<Arc<OpenFile>>, StartError> {
    let (p, mut all) = (&spec.process, Vec::new());
    let stdio: &[usize] = if spec.console.is_none() { &spec.stdio } else { &[] };
    for (n, i) in stdio.iter().enumerate() {
        let file = importer.import(fds.share(*i)?, p.uid, p.gid);
        all.push(file.map_err(|e| other(format!("standard stream {n}: {e}")))?);
    }
    for (n, i) in spec.preserved.iter().enumerate() {
        let file = importer.import(fds.take(*i)?, p.uid, p.gid);
        all.push(file.map_err(|e| other(format!("preserved descriptor {}: {e}", n + 3)))?);
    }
    Ok(all)
}

/// Shows a terminal as /dev/console. A root without /dev/pts, or one that cannot be written, has none.
fn show(cx: &vfs::Internal, view: &FsView, console: &Console) {
    if let Err(error) = mounts::show_console(cx, view, console.index()) {
        log::debug!("/dev/console: {}", text(error));
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
            show(&vfs::Internal::new(c.vfs()), &c.fs().view(), &console);
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
