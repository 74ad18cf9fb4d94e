//! A sandbox out of its plain data.

use crate::files::{Belongs, FileRestorer, Given, Late};
use crate::network::NetworkRestorer;
use crate::state::{Memory, SandboxState};
use abi::Errno;
use cgroup::Cgroup;
use container::Container;
use files::FdTable;
use hostsys::page_file::PageFile;
use ipc::aio::{AioContext, AioState};
use landlock::Domain;
use mm::{Mm, Restorer};
use mounts::{FsContext, MountNs};
use netstack::tcp::Outside;
use nsproxy::{Spaces, Tools};
use platform::{Context, Spawn};
use std::collections::HashMap;
use std::sync::Arc;
use task::{Current, Kernel, Resources};
use vfs::{Caller, Internal, MapRequest, Mapping, OpenFile};

/// A container that was built from its specification up to its first process, and gets those of the image.
pub struct RestoredContainer {
    /// The index that it had.
    pub index: u32,
    /// The container.
    pub container: Arc<Container>,
    /// Its mounts.
    pub mounts: Arc<MountNs>,
    /// Its terminal, which nothing has been opened of.
    pub console: Option<Arc<tty::Pty>>,
    /// The descriptors of the specification, standard streams first.
    pub imported: Vec<Arc<OpenFile>>,
    /// The capabilities that the specification gives to its processes.
    pub capabilities: u64,
}

/// What a sandbox is restored with.
pub struct Restoring<'a> {
    /// Unix sockets.
    pub unix: &'a socket::unix::UnixFamily,
    /// All containers of the image, the first one first.
    pub containers: &'a [RestoredContainer],
    /// The file of pages.
    pub pages: &'a PageFile,
    /// Those of earlier images that it names.
    pub layers: &'a [PageFile],
    /// What becomes of connections with hosts outside.
    pub outside: Outside,
}

impl Restoring<'_> {
    /// The container that had this index.
    fn container(&self, index: u32) -> Option<&RestoredContainer> {
        self.containers.iter().find(|one| one.index == index)
    }

    /// The capabilities that a container's specification gives.
    fn capabilities_of(&self, container: &Container) -> u64 {
        let own = self.containers.iter().find(|one| std::ptr::eq(&*one.container, container));
        own.map_or(0, |one| one.capabilities)
    }

    /// The capabilities that programs of every container may have: what they did together is bounded by these.
    fn shared_capabilities(&self) -> u64 {
        self.containers.iter().fold(u64::MAX, |all, one| all & one.capabilities & !one.container.withheld())
    }
}

/// An address space, and the threads in it that have not been given away.
type MemoryOf = (Arc<Mm>, Vec<Box<dyn Context>>);

/// The parts of threads.
struct Made<'a> {
    spaces: &'a Spaces,
    cgroups: &'a HashMap<u64, Arc<Cgroup>>,
    domain: &'a dyn Fn(&[usize]) -> Option<Arc<Domain>>,
    memory: HashMap<i32, MemoryOf>,
    tables: HashMap<u64, Arc<FdTable>>,
    contexts: HashMap<i32, Arc<FsContext>>,
}

impl Resources for Made<'_> {
    fn thread(&mut self, mm: i32) -> Option<(Box<dyn Context>, Arc<Mm>)> {
        let (mm, threads) = self.memory.get_mut(&mm)?;
        Some((threads.pop()?, mm.clone()))
    }
    fn descriptors(&self, id: u64) -> Option<Arc<FdTable>> {
        self.tables.get(&id).cloned()
    }
    fn file_context(&self, id: i32) -> Option<Arc<FsContext>> {
        self.contexts.get(&id).cloned()
    }
    fn spaces(&self) -> &Spaces {
        self.spaces
    }
    fn control_group(&self, id: u64) -> Option<Arc<Cgroup>> {
        self.cgroups.get(&id).cloned()
    }
    fn landlock(&self, layers: &[usize]) -> Option<Arc<Domain>> {
        (self.domain)(layers)
    }
}

/// The threads of a sandbox, which wait to be started; those of each container's first process before its others. The kernel has no process yet, and its
/// clock is that of [`KernelState::clock`](crate::KernelState::clock). An error is a sentence for the user; the kernel is of no use
/// then.
pub fn restore(
    kernel: &Arc<Kernel>,
    mut saved: SandboxState,
    restoring: &Restoring<'_>,
) -> Result<Vec<Current>, String> {
    saved.kernel.restore(kernel)?;
    let cgroups = restore_cgroups(kernel, &saved, restoring)?;
    restore_names(&saved, restoring)?;
    let tools = Tools {
        user_ns: &kernel.vfs.resources.user_ns,
        inums: &kernel.inums,
        devices: &kernel.vfs.resources.device_numbers,
        given: &|container| restoring.container(container).map(|one| one.container.namespaces.clone()),
        group: &|id| cgroups.get(&id).cloned(),
    };
    let spaces = Spaces::restore(&saved.spaces, &tools)?;
    let _taken = kernel.restore_pids(&saved.processes, &spaces)?;
    spaces.settle(&saved.spaces);
    for one in &saved.further {
        if let (Some((last, max)), Some(there)) = (one.pids, restoring.container(one.index)) {
            there.container.pids().set_max(max);
            there.container.pids().set_last(last);
        }
    }
    let user = |inum| spaces.user(inum).map(|ns| ns.inum());
    kernel.keys.restore(&saved.keys, &user).map_err(|error| format!("keys: {error}"))?;
    let cx = Internal::new(&kernel.vfs);
    let network = std::mem::take(&mut saved.network);
    let network = NetworkRestorer::new(&kernel.first.namespaces.net, network, &|inum| spaces.net(inum))?;
    let given = Given {
        cx: &cx,
        unix: restoring.unix,
        memfds: &kernel.memfds,
        pages: restoring.pages,
        namespace: &|container| restoring.container(container).map(|one| one.mounts.clone()),
        nsfs: &kernel.nsfs,
        user: &|inum| spaces.user(inum),
        space: &|inum| spaces.namespace(inum),
        make: &|saved| crate::filesystems::make(kernel, &spaces, saved),
        may_mount: restoring
            .containers
            .iter()
            .all(|one| one.capabilities & rights::Cap::SYS_ADMIN.bit() != 0),
        capabilities: restoring.shared_capabilities(),
        imported: &|container, at| restoring.container(container)?.imported.get(at).cloned(),
        console: &|container| restoring.container(container)?.console.clone(),
        net: &|inum| network.net(inum),
        socket: &|ino| network.socket(ino),
        ipc: &|inum| spaces.ipc(inum),
        pid: &|nr| kernel.pids.find(nr),
    };
    let mut files = FileRestorer::new(given, &saved.files)?;
    let container = |index| restoring.container(index).map(|one| one.container.clone());
    let groups =
        kernel.restore_groups(&saved.processes, &spaces, &container, &|id| cgroups.get(&id).cloned())?;
    let quotas = &kernel.vfs.resources.quotas;
    let tables: HashMap<u64, Arc<FdTable>> =
        saved.tables.iter().map(|table| (table.id, FdTable::new(quotas.files.clone()))).collect();
    let late = Late {
        process: &|tgid| groups.find(tgid),
        table: &|id| tables.get(&id).map(|table| table.id),
        signals: kernel.io_signals(),
        landlock: kernel.landlock.clone(),
    };
    files.refer(&saved.files, &late)?;
    let domain = |layers: &[usize]| files.domain(layers);
    let mut made = Made {
        spaces: &spaces,
        cgroups: &cgroups,
        domain: &domain,
        memory: HashMap::new(),
        tables: tables.clone(),
        contexts: HashMap::new(),
    };
    check_contexts(&saved)?;
    for one in &saved.contexts {
        let context = files.context(&one.context);
        let context =
            context.map_err(|e| format!("root or working directory of thread {}: {e}", one.thread))?;
        made.contexts.insert(one.thread, context);
    }
    restore_memory(kernel, &saved, restoring, &files, &mut made)?;
    let allowed = |container: &Container| restoring.capabilities_of(container);
    let threads = kernel.restore_threads(&saved.processes, &groups, &mut made, &allowed);
    // What is left over ends here.
    for (_, threads) in made.memory.into_values() {
        threads.into_iter().for_each(|thread| thread.exit());
    }
    let threads = threads?;
    // Files of procfs are bound to the memory of processes.
    files.finish(&saved.files, &late)?;
    for table in &saved.tables {
        if let Some(new) = tables.get(&table.id) {
            new.fill(table, |id| files.file(id));
        }
    }
    files.attach_terminals();
    for ns in saved.files.ipc.iter().filter_map(|one| spaces.ipc(one.inum)) {
        ns.sysv.shm_settle();
    }
    kernel.keys.settle();
    kernel.look_at_bandwidth();
    drop(files);
    network.go_on(restoring.outside)?;
    Ok(threads)
}

/// No process is in the mounts of another container than its own.
fn check_contexts(saved: &SandboxState) -> Result<(), String> {
    let containers: HashMap<i32, u32> =
        saved.processes.processes.iter().map(|process| (process.node.tgid, process.container)).collect();
    let homes: HashMap<u64, Belongs> = saved.files.began.iter().map(|one| (one.id, one.belongs)).collect();
    let contexts: HashMap<i32, u64> =
        saved.contexts.iter().map(|one| (one.thread, one.context.namespace)).collect();
    for thread in &saved.processes.threads {
        let container = containers.get(&thread.tgid);
        let home = contexts.get(&thread.fs).and_then(|namespace| homes.get(namespace));
        if let (Some(Belongs::Container(home)), Some(container)) = (home, container)
            && home != container
        {
            return Err(format!("thread {} is in the mounts of another container", thread.tid));
        }
    }
    Ok(())
}

/// The control groups of all containers, by the numbers that they had.
fn restore_cgroups(
    kernel: &Kernel,
    saved: &SandboxState,
    restoring: &Restoring<'_>,
) -> Result<HashMap<u64, Arc<Cgroup>>, String> {
    let mut all = HashMap::new();
    let further = saved.further.iter().map(|one| (one.index, &one.cgroups));
    for (index, groups) in std::iter::once((0, &saved.cgroups)).chain(further) {
        let container = match index {
            0 => &kernel.first,
            _ => &restoring.container(index).ok_or("a container of the image is not there")?.container,
        };
        let restored = container.cgroup().restore_groups(groups, &container.programs, &cgroupfs::name_of);
        for (id, group) in restored.map_err(|error| format!("control groups: {error:?}"))? {
            if all.insert(id, group).is_some() {
                return Err(format!("control group {id} is there twice"));
            }
        }
    }
    Ok(all)
}

/// The host and domain names of containers that have their own.
fn restore_names(saved: &SandboxState, restoring: &Restoring<'_>) -> Result<(), String> {
    let first = restoring.container(0).ok_or("the first container is not there")?;
    for one in &saved.further {
        let (Some((nodename, domainname, version)), Some(there)) =
            (&one.names, restoring.container(one.index))
        else {
            continue;
        };
        if nodename.len() > 64 || domainname.len() > 64 {
            return Err("the host name is too long".into());
        }
        let uts = &there.container.namespaces.uts;
        if Arc::ptr_eq(uts, &first.container.namespaces.uts) {
            continue;
        }
        uts.rename(|names| {
            names.nodename.clone_from(nodename);
            names.domainname.clone_from(domainname);
            names.version = version.saturating_sub(1);
        });
    }
    Ok(())
}

/// The address spaces, each with as many threads as the image names.
fn restore_memory(
    kernel: &Arc<Kernel>,
    saved: &SandboxState,
    restoring: &Restoring<'_>,
    files: &FileRestorer<'_>,
    made: &mut Made<'_>,
) -> Result<(), String> {
    let cx = Internal::new(&kernel.vfs);
    let find = |id| files.file(id);
    let limits = kernel.platform.limits();
    let pages = (restoring.pages, restoring.layers);
    let restorer = Restorer::new(&kernel.spaces, limits, pages, &find, &saved.shared)?;
    for Memory { thread, state } in &saved.memory {
        let users: Vec<i32> =
            saved.processes.threads.iter().filter(|t| t.mm == *thread).map(|t| t.tgid).collect();
        let Some(first) = users.first() else {
            return Err(format!("no thread uses the memory of thread {thread}"));
        };
        let owner = state.user_ns;
        let user_ns =
            made.spaces.user(owner).ok_or_else(|| format!("user namespace {owner} is not there"))?;
        let home = saved.processes.processes.iter().find(|process| process.node.tgid == *first);
        let home = home.and_then(|process| restoring.container(process.container));
        let home = home.ok_or_else(|| format!("process {first} is of a container that is not there"))?;
        let mut ctx = home
            .container
            .new_space(&kernel.platform)
            .map_err(|e| format!("the host gives no process for the memory of thread {thread}: {e}"))?;
        let mm = match restorer.restore(&cx, ctx.as_mut(), state, user_ns) {
            Ok(mm) => mm,
            Err(error) => {
                ctx.exit();
                return Err(format!("memory of thread {thread}: {error}"));
            }
        };
        for one in &state.aio {
            if let Err(error) = restore_aio(&cx, kernel, &mm, files, one) {
                ctx.exit();
                return Err(format!("memory of thread {thread}: a context of io_setup(2): {error}"));
            }
        }
        let (mut threads, mut known) = (Vec::new(), vec![*first]);
        for tgid in users.iter().skip(1) {
            threads.push(ctx.spawn(Spawn::Thread).map_err(|e| format!("the host gives no thread: {e}"))?);
            mm.users.join(!known.contains(tgid));
            known.push(*tgid);
        }
        threads.push(ctx);
        if made.memory.insert(*thread, (mm, threads)).is_some() {
            return Err(format!("the memory of thread {thread} is there twice"));
        }
    }
    Ok(())
}

/// A context of io_setup(2). Its ring must be a file in memory that cannot shrink, as the sentry uses it where it is mapped.
fn restore_aio(
    cx: &dyn Caller,
    kernel: &Kernel,
    mm: &Mm,
    files: &FileRestorer<'_>,
    saved: &AioState,
) -> abi::Result<()> {
    let (file, len) = (files.file(saved.file).ok_or(Errno::EINVAL)?, saved.ring_size()?);
    let seals = tmpfs::get_seals(&file)?;
    if seals & libc::F_SEAL_SHRINK as u32 == 0 || file.attr()?.size < len {
        return Err(Errno::EINVAL);
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let wanted = MapRequest { prot, shared: true, offset: 0, len };
    let map = file.ops.as_map().ok_or(Errno::EINVAL)?;
    let Mapping::Host { fd, .. } = map.map(cx, &file, &wanted)? else { return Err(Errno::EINVAL) };
    let context = AioContext::restore(cx, &kernel.spaces.aio, saved, &*fd)?;
    // The table knows contexts by the files of now.
    mm.aio.lock().insert(file.id, context);
    Ok(())
}
