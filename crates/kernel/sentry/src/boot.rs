//! From a specification to the exit status of its first process.

use crate::changes::WriteBack;
use crate::console::Console;
use crate::control::Control;
use crate::pod::Pod;
use crate::running::OnReady;
use crate::{links, mounts, places, settings, wire};
use abi::Errno;
use abi::time::Timespec;
use container::{Container, Limits};
use exec::Program;
use hostfs::Importer;
use hostlink::CaptureFile;
use hostsys::fanotify::Group;
use mm::{MemoryMap, Mm};
use nsproxy::{Offsets, Uts};
use platform::Platform;
use ranked::Mutex;
use sched::Rlimits;
use signal::Handlers;
use spec::{ProcessSpec, SandboxSpec, StartError, StartErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{Current, Kernel, ProcessInherited, SysErr, ThreadGroup};
use vfs::{Caller, Credentials, FdTable, FsContext, OpenFile, View};

/// Descriptors passed with the specification; each is taken once.
pub(crate) struct Fds(Vec<Option<OwnedFd>>);

impl Fds {
    pub(crate) fn new(fds: Vec<OwnedFd>) -> Self {
        Self(fds.into_iter().map(Some).collect())
    }

    pub(crate) fn take(&mut self, index: usize) -> Result<OwnedFd, StartError> {
        let fd = self.0.get_mut(index).and_then(Option::take);
        fd.ok_or_else(|| other(format!("descriptor {index} was not passed")))
    }

    /// A duplicate, for indices that several fields share.
    fn share(&mut self, index: usize) -> Result<OwnedFd, StartError> {
        let fd = self.0.get(index).and_then(Option::as_ref);
        let fd = fd.ok_or_else(|| other(format!("descriptor {index} was not passed")))?;
        fd.try_clone().map_err(|e| other(format!("descriptor {index}: {e}")))
    }
}

pub(crate) fn other(message: String) -> StartError {
    StartError { kind: StartErrorKind::Other, message }
}

/// Descriptors of the sandbox's network mode.
#[derive(Default)]
pub struct NetworkFiles {
    /// Leads to the network gofer of host mode.
    pub gofer: Option<OwnedFd>,
    /// A packet socket for each of the specification's Ethernet interfaces, unless they are only shown.
    pub links: Vec<OwnedFd>,
}

/// Builds a container and runs it to its end; gives the wait status of its first process, which
/// waits for [`Running::start`](crate::Running::start). `network` is what the network mode takes, `watcher` what directories of
/// the host are watched with if it had to be made before.
pub fn run(
    spec: SandboxSpec,
    fds: Vec<OwnedFd>,
    platform: Arc<dyn Platform>,
    memory: Arc<tmpfs::MemFiles>,
    network: NetworkFiles,
    watcher: Option<Group>,
    on_ready: OnReady,
) -> Result<i32, StartError> {
    let mut fds = Fds::new(fds);
    let limits = limits(&spec, &mut fds)?;
    let (kernel, calls) = wire::kernel(&spec, platform, memory, limits, network.gofer)?;
    capture(&kernel, &spec, &mut fds)?;
    let pod = Pod::new(&kernel.vfs.device_numbers, watcher);
    links::attach(&kernel, &pod, spec.interfaces.clone(), network.links)?;
    let control = container(&kernel, kernel.first.clone(), &spec, fds, pod)?;
    let console = control.console.clone();
    on_ready(control.clone());
    let status = kernel.wait_finished();
    kernel.shutdown();
    control.write_back_at_end();
    if let Some(c) = console {
        c.finish();
    }
    for (nr, count) in calls.missing() {
        log::debug!("system call {nr} is not implemented; it was asked for {count} times");
    }
    Ok(status)
}

/// The host's memory and processors, and the container's control group there.
fn limits(spec: &SandboxSpec, fds: &mut Fds) -> Result<Limits, StartError> {
    let files = control_group(spec, fds)?;
    Ok(Limits::new(hostsys::clock::total_memory(), hostsys::clock::processors(), files))
}

fn control_group(spec: &SandboxSpec, fds: &mut Fds) -> Result<Vec<(String, OwnedFd)>, StartError> {
    let named = spec.control_group.iter();
    named.map(|(name, index)| Ok((name.clone(), fds.take(*index)?))).collect()
}

/// Writes packets to a file, if the specification wants that.
fn capture(kernel: &Kernel, spec: &SandboxSpec, fds: &mut Fds) -> Result<(), StartError> {
    let Some(wanted) = spec.capture else { return Ok(()) };
    let to = CaptureFile { file: fds.take(wanted.fd)?, snaplen: wanted.snaplen, most: wanted.most };
    hostlink::capture(kernel.first.namespaces.net.stack(), to)
        .map_err(|error| other(format!("packet capture: {error}")))
}

/// The names that a container of its own starts with.
pub(crate) fn uts(spec: &SandboxSpec) -> Uts {
    let domainname = if spec.domainname.is_empty() { "(none)".into() } else { spec.domainname.clone() };
    Uts::new(spec.hostname.clone(), domainname)
}

/// What the clocks of a container are ahead of the host's.
pub(crate) fn offsets(spec: &SandboxSpec) -> Result<Offsets, StartError> {
    let [monotonic, boottime] = spec.time_offsets.map(|(sec, nsec)| Timespec { sec, nsec: i64::from(nsec) });
    let offsets = Offsets { monotonic, boottime };
    match offsets.check(|clock| hostsys::clock::gettime_ns(clock).unwrap_or(0)) {
        Ok(()) => Ok(offsets),
        Err(error) => Err(other(format!("time offsets: {}", text(error)))),
    }
}

/// Builds a container up to its first process, which waits to be started.
pub(crate) fn container(
    kernel: &Arc<Kernel>,
    container: Arc<Container>,
    spec: &SandboxSpec,
    mut fds: Fds,
    pod: Arc<Pod>,
) -> Result<Arc<Control>, StartError> {
    if !pod.takes_sockets(spec.socket_gofer.is_some()) {
        return Err(other("--host-uds=open: give it for the first container of the sandbox as well".into()));
    }
    let write_back =
        spec.root.overlay.as_ref().and_then(|overlay| Some((overlay.write_back?, overlay.lists_changes)));
    let write_back =
        write_back.map(|(index, lists)| fds.take(index).map(|to| WriteBack::new(to, lists))).transpose()?;
    let fs = mounts::build(kernel, &container, &pod.host_files, spec, &mut fds)?;
    *container.root_fs.lock() = Some(fs.clone());
    if let Some(limit) = spec.pids_limit {
        container.cgroup().set_pids_max(limit.into());
    }
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
    let mut c =
        new_process(kernel, &container, &spec.process, &FdTable::new(kernel.vfs.quotas.files.clone()), fs)?;
    match set_up(&mut c, spec, &mut fds, Importer::new(&pod.host_files)) {
        Ok(console) => {
            if spec.own_init {
                c.become_init();
            }
            container.set_first(c.task.tgid());
            pod.insert(&spec.id, &container);
            Ok(Arc::new(Control {
                kernel: kernel.clone(),
                container,
                pod,
                console,
                first: ranked::Mutex::new(Some(c)),
                view: View::into_inner(view),
                signals_end_init: spec.signals_end_init,
                write_back,
            }))
        }
        Err(error) => {
            task::abandon(c);
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

pub(crate) fn install(c: &Current, file: &Arc<OpenFile>, fd: usize) -> Result<(), StartError> {
    let got = c.install(file.clone(), false).map_err(|e| other(format!("standard stream {fd}: {e}")))?;
    debug_assert_eq!(got as usize, fd);
    Ok(())
}

/// A process that has nothing but its place yet: no program, no descriptors.
pub(crate) fn new_process(
    kernel: &Arc<Kernel>,
    container: &Arc<Container>,
    p: &ProcessSpec,
    table: &Arc<FdTable>,
    fs: Arc<FsContext>,
) -> Result<Current, StartError> {
    let pid = container.pids().alloc().map_err(|_| other("no process id is free".into()))?;
    let handlers = Arc::new(Mutex::new(Handlers::default()));
    let inherited = ProcessInherited {
        container: container.clone(),
        rlimits: rlimits(container, p),
        personality: 0,
        oom_score_adj: p.oom_score_adj,
    };
    let group = ThreadGroup::new(kernel.clone(), &pid, handlers, inherited);
    let k = &p.capabilities;
    let may = |set: u64| set & !container.withheld();
    let creds = Credentials {
        user_ns: kernel.vfs.user_ns.clone(),
        uid: p.uid,
        euid: p.uid,
        suid: p.uid,
        fsuid: p.uid,
        gid: p.gid,
        egid: p.gid,
        sgid: p.gid,
        fsgid: p.gid,
        groups: p.additional_gids.clone(),
        permitted: may(k.permitted),
        effective: may(k.effective),
        inheritable: may(k.inheritable),
        bounding: may(k.bounding),
        ambient: may(k.ambient),
        securebits: 0,
        landlock: None,
        serial: 0,
    };
    fs.set_umask(p.umask);
    let ctx =
        container.new_space(&kernel.platform).map_err(|e| other(format!("cannot make a process: {e}")))?;
    let limits = kernel.platform.limits();
    let mm =
        Mm::new(&kernel.spaces, ctx.space(), MemoryMap::new(limits.min, limits.max), creds.user_ns.clone());
    let c = Current::first(ctx, mm, group, pid, creds, table.clone(), fs);
    c.task.no_new_privs.store(p.no_new_privileges, Ordering::Relaxed);
    c.task.scheduling.nice.store(hostsys::process::niceness(), Ordering::Relaxed);
    settings::apply(&c, p);
    Ok(c)
}

/// Linux's defaults for pid 1, then what the specification names.
fn rlimits(container: &Container, p: &ProcessSpec) -> Rlimits {
    let processes = (container.limits().memory() / (128 << 10)).clamp(1024, 1 << 20);
    let mut limits = Rlimits::of_init(processes);
    for r in &p.rlimits {
        limits.set(r.resource as i32, (r.soft, r.hard));
    }
    limits
}

pub(crate) fn enter_cwd(c: &Current, p: &ProcessSpec) -> Result<(), StartError> {
    let fs = c.fs();
    let find = |c: &Current| {
        let look = vfs::Lookup::FOLLOW | vfs::Lookup::DIRECTORY;
        vfs::walk::lookup(c, &fs.view(), &vfs::Start::Cwd, p.cwd.as_bytes(), look)
    };
    let mut found = find(c);
    if matches!(found, Err(Errno::ENOENT)) && p.create_cwd {
        places::find_or_make(&vfs::Internal::new(c.vfs()), &fs.view(), &p.cwd, true)
            .map_err(|e| other(format!("cannot create the working directory {:?}: {}", p.cwd, text(e))))?;
        found = find(c);
    }
    let path =
        found.map_err(|e| other(format!("cannot enter the working directory {:?}: {}", p.cwd, text(e))))?;
    vfs::perm::may(c, &path, vfs::perm::MAY_EXEC)
        .map_err(|e| other(format!("cannot enter the working directory {:?}: {}", p.cwd, text(e))))?;
    fs.set_cwd(path);
    Ok(())
}

/// strerror(3)'s text in lower case, as Go's runtimes print it.
pub(crate) fn text(e: Errno) -> String {
    let s = std::io::Error::from_raw_os_error(e.raw()).to_string();
    let s = s.split(" (os error").next().unwrap_or_default();
    let mut it = s.chars();
    it.next().map(|f| f.to_lowercase().chain(it).collect()).unwrap_or_default()
}

/// Puts a container's process under its filter. Whoever configured it needs no privilege in the sandbox.
fn install_filter(c: &mut Current, p: &ProcessSpec) -> Result<(), StartError> {
    const KNOWN: u32 = 1 | 2 | 4;
    const LOG: u32 = 2;
    let Some(f) = &p.seccomp else { return Ok(()) };
    if f.flags & !KNOWN != 0 {
        return Err(other(format!("seccomp: flags {:#x} are not supported", f.flags & !KNOWN)));
    }
    let program = seccomp::Program::new(&f.instructions)
        .map_err(|e| other(format!("seccomp: the filter is not valid: {}", text(e))))?;
    c.seccomp_start(program, f.flags & LOG != 0)
        .map_err(|e| other(format!("seccomp: the filter does not let the process start: {}", text(e))))
}

pub(crate) fn exec_first(c: &mut Current, p: &ProcessSpec) -> Result<(), StartError> {
    install_filter(c, p)?;
    let name = &p.args[0];
    let (path, file) = find_program(c, p)?;
    let bytes = |v: &[String]| v.iter().map(|s| s.clone().into_bytes()).collect::<Vec<_>>();
    let program = Program {
        file,
        filename: path.into_bytes(),
        argv: bytes(&p.args),
        envp: bytes(&settings::environment(&vfs::Internal::new(c.vfs()), p, &c.fs().view())),
        inaccessible: false,
    };
    match exec::exec(c, program) {
        Err(SysErr::NoReturn) => Ok(()),
        Err(SysErr::Errno(e)) => Err(cannot_exec(name, e)),
        r => Err(other(format!("exec: {name:?}: {r:?}"))),
    }
}

fn cannot_exec(name: &str, e: Errno) -> StartError {
    let kind = match e {
        Errno::ENOENT | Errno::ENOTDIR => StartErrorKind::NotFound,
        Errno::EACCES | Errno::ENOEXEC | Errno::EISDIR | Errno::ELIBBAD | Errno::ELOOP => {
            StartErrorKind::NotExecutable
        }
        _ => StartErrorKind::Other,
    };
    StartError { kind, message: format!("exec: {name:?}: {}", text(e)) }
}

/// A name with a slash is a path; others are looked for along PATH.
fn find_program(c: &Current, p: &ProcessSpec) -> Result<(String, Arc<OpenFile>), StartError> {
    let name = &p.args[0];
    if name.contains('/') {
        let f = exec::open_program(c, name.as_bytes()).map_err(|e| match e {
            Errno::ENOENT | Errno::ENOTDIR => StartError {
                kind: StartErrorKind::NotFound,
                message: format!("exec: {name:?}: stat {name}: {}", text(e)),
            },
            e => cannot_exec(name, e),
        })?;
        return Ok((name.clone(), f));
    }
    let path = p.env.iter().find_map(|e| e.strip_prefix("PATH=")).unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let mut denied = false;
    for dir in path.split(':') {
        let full = if dir.is_empty() { format!("./{name}") } else { format!("{dir}/{name}") };
        match exec::open_program(c, full.as_bytes()) {
            Ok(f) => return Ok((full, f)),
            // A directory that may not be searched holds nothing; a file that may not be run is there.
            Err(Errno::EACCES) => {
                let look = vfs::Lookup::FOLLOW;
                let view = c.fs().view();
                denied |= vfs::walk::lookup(c, &view, &vfs::Start::Cwd, full.as_bytes(), look).is_ok();
            }
            Err(_) => {}
        }
    }
    if denied {
        return Err(cannot_exec(name, Errno::EACCES));
    }
    let message = format!("exec: {name:?}: executable file not found in $PATH");
    Err(StartError { kind: StartErrorKind::NotFound, message })
}
