//! A sandbox that stands still, saved.

use crate::files::{Around, Baseline, FileSaver};
use crate::filesystems::shows;
use crate::kernel::KernelState;
use crate::network::NetworkSaver;
use crate::state::{ContainerState, ContextOf, Memory, SandboxState};
use crate::{Obstacle, SAVED_BY};
use container::Container;
use files::FdTable;
use image::PageSink;
use landlock::{Domain, LandlockSaver};
use mm::{Mm, Presence, Saver};
use mounts::FsContext;
use nsproxy::{Namespace, NsProxy, SetState, SpaceSaver};
use socket::SocketFile;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use task::{Kernel, SavedParts, Standstill};
use vfs::Internal;

/// A container that is saved.
pub struct SavedContainer<'a> {
    /// The container.
    pub container: &'a Arc<Container>,
    /// Its name in the pod; empty where it has none.
    pub name: &'a str,
    /// The mounts that it began with.
    pub baseline: &'a Baseline,
    /// Its terminal.
    pub console: Option<Arc<tty::Pty>>,
}

impl SavedContainer<'_> {
    /// What the image has of one beside the first.
    fn state(&self, first: &Container) -> ContainerState {
        let (own, first) = (&self.container.namespaces, &first.namespaces);
        let names = own.uts.names();
        ContainerState {
            index: self.container.index(),
            id: self.container.name().into(),
            name: self.name.into(),
            names: (!Arc::ptr_eq(&own.uts, &first.uts)).then_some((
                names.nodename,
                names.domainname,
                names.version,
            )),
            pids: (own.pid_for_children.inum() != first.pid_for_children.inum())
                .then(|| (own.pid_for_children.last(), own.pid_for_children.max())),
            cgroups: self.container.cgroup().groups(),
        }
    }
}

/// What a sandbox is saved with.
pub struct Saving<'a> {
    /// Its containers, the first one first.
    pub containers: Vec<SavedContainer<'a>>,
    /// Unix sockets.
    pub unix: &'a socket::unix::UnixFamily,
    /// Where pages go.
    pub pages: Arc<dyn PageSink>,
    /// Pages that are in the files of the image that the sandbox was restored from are named, not saved.
    pub keeps: bool,
    /// As for [`Saver::sparing`].
    pub spares: bool,
}

/// A thread's parts as the walk over threads meets them.
struct Found<'a> {
    spaces: &'a RefCell<SpaceSaver>,
    landlock: LandlockSaver,
    memory: Vec<(i32, Arc<Mm>)>,
    tables: BTreeMap<u64, (i32, Arc<FdTable>)>,
    contexts: Vec<(i32, Arc<FsContext>)>,
}

impl SavedParts for Found<'_> {
    fn memory(&mut self, tid: i32, mm: &Arc<Mm>) {
        self.memory.push((tid, mm.clone()));
    }
    fn descriptors(&mut self, tid: i32, table: &Arc<FdTable>) {
        self.tables.entry(table.id).or_insert_with(|| (tid, table.clone()));
    }
    fn file_context(&mut self, tid: i32, fs: &Arc<FsContext>) {
        self.contexts.push((tid, fs.clone()));
    }
    fn landlock(&mut self, domain: &Domain) -> Vec<usize> {
        self.landlock.domain(domain)
    }
    fn namespace(&mut self, ns: &Namespace) {
        self.spaces.borrow_mut().note(ns);
    }
    fn namespaces(&mut self, set: &NsProxy) -> SetState {
        self.spaces.borrow_mut().set(set)
    }
}

fn obstacles(what: Vec<String>) -> Vec<Obstacle> {
    what.into_iter().map(|what| Obstacle { what }).collect()
}

/// What of the kernel and of its threads cannot be saved, as far as can be said without bringing them to a stand.
pub fn obstacles_of(kernel: &Kernel) -> Vec<Obstacle> {
    obstacles([kernel.obstacles(), KernelState::obstacles(kernel)].concat())
}

/// The thread of that ID for messages: `12 (nginx)`.
fn shown(kernel: &Kernel, tid: i32) -> String {
    let task = kernel.tree.lock().task(tid).cloned();
    let Some(task) = task else { return tid.to_string() };
    let comm = task.comm();
    let name = String::from_utf8_lossy(&comm);
    format!("{} ({})", task.group.pid.own_nr(), name.trim_end_matches('\0'))
}

/// IPC namespaces that a descriptor or a mount keeps, whether a task is in them or not.
fn held_ipc(parts: &Found<'_>) -> Vec<Namespace> {
    let files = parts.tables.values().flat_map(|(_, table)| table.entries());
    let held = files.filter_map(|(_, file, _)| Namespace::of(file.inode.as_ref()?));
    let tops = parts.contexts.iter().map(|(_, fs)| fs.view().ns.root.read().clone());
    let mounted = tops.flat_map(|top| top.tree()).filter_map(|mount| Namespace::of(&mount.root.inode));
    held.chain(mounted).filter(|ns| matches!(ns, Namespace::Ipc(_))).collect()
}

/// Everything of a sandbox but its pages, which go to [`Saving::pages`]. Nothing is written when something cannot be saved.
pub fn save(standstill: &Standstill, saving: &Saving<'_>) -> Result<SandboxState, Vec<Obstacle>> {
    let kernel = standstill.kernel();
    let mut found = obstacles_of(kernel);
    found.extend(obstacles(strangers(kernel, &saving.containers)));
    if !found.is_empty() {
        return Err(found);
    }
    let spaces = RefCell::new(SpaceSaver::default());
    let containers: Vec<&Arc<Container>> = saving.containers.iter().map(|one| one.container).collect();
    for one in &containers {
        spaces.borrow_mut().given(one.index(), &one.namespaces);
    }
    let mut parts = Found {
        spaces: &spaces,
        landlock: LandlockSaver::default(),
        memory: Vec::new(),
        tables: BTreeMap::new(),
        contexts: Vec::new(),
    };
    let mut processes = standstill.processes(&containers, &mut parts).map_err(obstacles)?;
    // Those that only a message of a socket names come to light with the files, too late to have objects.
    held_ipc(&parts).iter().for_each(|ns| _ = spaces.borrow_mut().note(ns));
    let mut ipc = vec![kernel.first.namespaces.ipc.clone()];
    ipc.extend(spaces.borrow().ipc().cloned());
    let cx = Internal::new(&kernel.vfs);
    let network = NetworkSaver::new();
    let note = |socket: &SocketFile| {
        spaces.borrow_mut().note(&Namespace::Net(socket.net.clone()));
        network.note(socket)
    };
    let around = Around {
        network: &note,
        space: &|ns| _ = spaces.borrow_mut().note(ns),
        shows: &|sb| shows(&containers, &spaces, sb),
        nsfs: &kernel.nsfs,
    };
    let mut files = FileSaver::new(&cx, saving.unix, &kernel.memfds, around);
    for one in &saving.containers {
        files.container(one.container, one.baseline, one.console.clone());
    }
    ipc.iter().for_each(|ns| files.ipc(ns));
    files.landlock = std::mem::take(&mut parts.landlock);
    let terminals: Vec<_> = {
        let tree = kernel.tree.lock();
        tree.nodes().filter_map(|node| tree.terminal(node.sid()).cloned()).collect()
    };
    terminals.iter().for_each(|terminal| files.terminal(terminal));
    let tables = parts.tables.values().map(|(tid, table)| files.table(table, &shown(kernel, *tid))).collect();
    let contexts = parts.contexts.iter().map(|(tid, fs)| {
        let context = files.context(fs, &shown(kernel, *tid));
        ContextOf { thread: *tid, context }
    });
    let contexts = contexts.collect();
    for (tid, mm) in &parts.memory {
        let mapped: Vec<_> =
            mm.with_map(|map| map.iter().filter_map(|area| area.file.as_deref().cloned()).collect());
        for file in mapped.iter().chain(&mm.image().exe) {
            files.note(file, &|| format!("a file mapped by process {}", shown(kernel, *tid)));
        }
    }
    let files = files.check();
    let spaces = spaces.borrow();
    let mut refused = Vec::new();
    for ns in spaces.ipc().filter(|ns| !ipc.iter().any(|known| known.inum == ns.inum)) {
        let (semaphores, messages, segments) = ns.sysv.counts();
        if semaphores + messages + segments + ns.mqueue.count() > 0 {
            refused.push(format!(
                "ipc:[{}] has System V objects or message queues, and only a message of a socket names it",
                ns.inum
            ));
        }
    }
    for ns in spaces.cgroups().filter(|ns| ns.root.is_removed()) {
        refused.push(format!("cgroup:[{}] has a root that was removed", ns.inum));
    }
    let initial = kernel.vfs.resources.user_ns.inum();
    if kernel.keys.namespaces().into_iter().any(|inum| inum != initial && !spaces.has_user(inum)) {
        refused.push("keys of a user namespace that no process is in".into());
    }
    let nets: Vec<_> = spaces.nets().cloned().collect();
    let network = network.finish(&kernel.first.namespaces.net, &nets);
    let (files, network) = match (files, network) {
        (Ok(files), Ok(network)) if refused.is_empty() => (files, network),
        (files, network) => {
            let more = [files.err(), network.err()];
            return Err(obstacles(refused).into_iter().chain(more.into_iter().flatten().flatten()).collect());
        }
    };
    // Their numbers are taken while the objects are restored.
    for remembered in files.remembered() {
        let numbers = remembered.numbers();
        let known = processes.pids.iter().any(|one| one.first() == numbers.first());
        let own = |one: &&&Arc<Container>| remembered.ns().is_some_and(|ns| ns.inum() == one.pids().inum());
        if let Some(container) = containers.iter().find(own).filter(|_| !known) {
            processes.pids.push(numbers);
            let first = container.pids().inum() == kernel.first.pids().inum();
            processes.pid_spaces.push(if first { 0 } else { container.pids().inum() });
        }
    }
    let (memory, shared) = save_memory(standstill, &parts.memory, saving)?;
    Ok(SandboxState {
        saved_by: SAVED_BY.into(),
        kernel: KernelState::of(kernel),
        further: saving.containers.iter().skip(1).map(|one| one.state(&kernel.first)).collect(),
        spaces: spaces.finish(),
        cgroups: kernel.first.cgroup().groups(),
        processes,
        tables,
        contexts,
        files: files.finish(&cx, &*saving.pages).map_err(|what| obstacles(vec![what]))?,
        network,
        keys: kernel.keys.state(),
        memory,
        shared,
    })
}

/// Names the processes of containers that are not saved.
fn strangers(kernel: &Kernel, saved: &[SavedContainer<'_>]) -> Vec<String> {
    let tree = kernel.tree.lock();
    let known =
        |group: &task::ThreadGroup| saved.iter().any(|one| Arc::ptr_eq(one.container, &group.container));
    let groups = tree.nodes().map(|node| &node.group).filter(|group| !known(group));
    let names: std::collections::BTreeSet<&str> = groups.map(|group| group.container.name()).collect();
    names.iter().map(|name| format!("the container {name} starts or ends")).collect()
}

/// The address spaces one after the other, each by a thread of its own that stands still.
fn save_memory(
    standstill: &Standstill,
    memory: &[(i32, Arc<Mm>)],
    saving: &Saving<'_>,
) -> Result<(Vec<Memory>, Vec<mm::SharedState>), Vec<Obstacle>> {
    let failed = |what: String| vec![Obstacle { what }];
    let mut saver = Saver::new(standstill.kernel().platform.limits(), saving.pages.clone(), saving.keeps);
    saver = saver.sparing(saving.spares);
    let mut saved = Vec::new();
    for (tid, mm) in memory {
        let (id, mm) = (*tid as u64, mm.clone());
        let done = standstill.ask(*tid, move |c| {
            let kernel = c.kernel().clone();
            let mut own = kernel.figures.own_pages(mm.space.host_pid());
            let own = own.as_mut().map(|own| own as &mut dyn Presence);
            let state = mm.state(id, c.ctx.as_mut(), own, &mut saver);
            (state, saver)
        });
        let Some((state, back)) = done else {
            return Err(failed(format!("thread {tid} ended while its memory was saved")));
        };
        saver = back;
        saved.push(Memory { thread: *tid, state: state.map_err(failed)? });
    }
    Ok((saved, saver.shared()))
}
