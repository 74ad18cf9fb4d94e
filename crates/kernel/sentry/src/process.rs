//! A process of a container up to the start of its program: credentials, limits, descriptors, working directory, filter, and the
//! program itself. The first process and those of `exec` are made alike.

use crate::errors::{other, text};
use crate::{places, settings};
use abi::Errno;
use container::Container;
use exec::Program;
use files::FdTable;
use lock_order::Mutex;
use mm::{MemoryMap, Mm};
use mounts::FsContext;
use rights::Credentials;
use sched::Rlimits;
use signal::Handlers;
use spec::{ProcessSpec, StartError, StartErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{Current, Kernel, ProcessInherited, SysErr, ThreadGroup};
use vfs::{FileLayer, OpenFile};

/// Gives a process this file as its lowest free descriptor, which is `fd`.
pub(crate) fn install(c: &Current, file: &Arc<OpenFile>, fd: usize) -> Result<(), StartError> {
    let got = c.install(file.clone(), false).map_err(|e| other(format!("standard stream {fd}: {e}")))?;
    debug_assert_eq!(got as usize, fd);
    Ok(())
}

/// A process that has nothing but its place yet: no program, no descriptors. `exec_session`: it is started by `exec`.
pub(crate) fn new_process(
    kernel: &Arc<Kernel>,
    container: &Arc<Container>,
    p: &ProcessSpec,
    table: &Arc<FdTable>,
    fs: Arc<FsContext>,
    exec_session: bool,
) -> Result<Current, StartError> {
    let pid = container.pids().alloc().map_err(|_| other("no process id is free".into()))?;
    let handlers = Arc::new(Mutex::new(Handlers::default()));
    let inherited = ProcessInherited {
        exec_session,
        container: container.clone(),
        rlimits: rlimits(container, p),
        personality: 0,
        oom_score_adj: p.oom_score_adj,
    };
    let group = ThreadGroup::new(kernel.clone(), &pid, handlers, inherited);
    let k = &p.capabilities;
    let may = |set: u64| set & !container.withheld();
    let creds = Credentials {
        user_ns: kernel.vfs.resources.user_ns.clone(),
        uid: p.uid,
        euid: p.uid,
        suid: p.uid,
        fsuid: p.uid,
        gid: p.gid,
        egid: p.gid,
        sgid: p.gid,
        fsgid: p.gid,
        groups: p.additional_gids.as_slice().into(),
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
    container.totals.process_made();
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

/// Makes `p.cwd` the working directory. As with runc and crun, a process may begin in a directory that its user may not
/// enter (an image with `WORKDIR /root` that is run as another user): the container's root enters it before the identity
/// changes. Where root may not, in a file system that a program inside serves, the process's own rights are asked.
pub(crate) fn enter_cwd(c: &Current, p: &ProcessSpec) -> Result<(), StartError> {
    let fs = c.fs();
    let fail = |e: Errno| other(format!("cannot enter the working directory {:?}: {}", p.cwd, text(e)));
    let enter = |cx: &dyn vfs::Caller| {
        let look = namei::Lookup::FOLLOW | namei::Lookup::DIRECTORY;
        let path = namei::walk::lookup(cx, &fs.view(), &namei::Start::Cwd, p.cwd.as_bytes(), look)?;
        vfs::access::may(cx, &path, rights::mode::MAY_EXEC)?;
        Ok(path)
    };
    let root = Arc::new(Credentials::root(&c.vfs().resources.user_ns, rights::Cap::ALL));
    let find = || match enter(&vfs::As::new(c, &root)) {
        Err(Errno::EACCES | Errno::EPERM) => enter(c),
        found => found,
    };
    let mut found = find();
    if matches!(found, Err(Errno::ENOENT)) && p.create_cwd {
        places::find_or_make(&vfs::Internal::new(c.vfs()), &fs.view(), &p.cwd, true)
            .map_err(|e| other(format!("cannot create the working directory {:?}: {}", p.cwd, text(e))))?;
        found = find();
    }
    fs.set_cwd(found.map_err(fail)?);
    Ok(())
}

/// Puts a container's process under its filter. A process that was configured with one needs no privilege in the
/// sandbox.
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
    let (path, file) =
        find_program(c, p).map_err(|error| if c.task.is_sentenced() { sentenced(name) } else { error })?;
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
        Err(SysErr::Errno(_)) if c.task.is_sentenced() => Err(sentenced(name)),
        Err(SysErr::Errno(e)) => Err(cannot_exec(name, e)),
        r => Err(other(format!("exec: {name:?}: {r:?}"))),
    }
}

/// A policy wants the process ended, or more, for what its start did.
fn sentenced(name: &str) -> StartError {
    let message = format!("exec: {name:?}: a policy ends what does that");
    StartError { kind: StartErrorKind::NotExecutable, message }
}

fn cannot_exec(name: &str, e: Errno) -> StartError {
    let kind = match e {
        Errno::ENOENT | Errno::ENOTDIR => StartErrorKind::NotFound,
        Errno::EACCES | Errno::EPERM | Errno::ENOEXEC | Errno::EISDIR | Errno::ELIBBAD | Errno::ELOOP => {
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
            Errno::EACCES if is_directory(c, name) => cannot_exec(name, Errno::EISDIR),
            e => cannot_exec(name, e),
        })?;
        return Ok((name.clone(), f));
    }
    let path = p.env.iter().find_map(|e| e.strip_prefix("PATH=")).or(p.default_path.as_deref());
    let missing = |place: &str| {
        let message = format!("exec: {name:?}: executable file not found in {place}");
        StartError { kind: StartErrorKind::NotFound, message }
    };
    let path = path.ok_or_else(|| missing("$PATH, which is not set"))?;
    let mut denied = false;
    for dir in path.split(':') {
        let full = if dir.is_empty() { format!("./{name}") } else { format!("{dir}/{name}") };
        match exec::open_program(c, full.as_bytes()) {
            Ok(f) => return Ok((full, f)),
            // A directory that may not be searched holds nothing; a file that may not be run is there.
            Err(Errno::EACCES) => {
                let look = namei::Lookup::FOLLOW;
                let view = c.fs().view();
                denied |= namei::walk::lookup(c, &view, &namei::Start::Cwd, full.as_bytes(), look).is_ok();
            }
            // Not by the file's mode: of a policy.
            Err(Errno::EPERM) => return Err(cannot_exec(name, Errno::EPERM)),
            Err(_) => {}
        }
    }
    if denied {
        return Err(cannot_exec(name, Errno::EACCES));
    }
    Err(missing("$PATH"))
}

fn is_directory(c: &Current, name: &str) -> bool {
    let look = namei::Lookup::FOLLOW | namei::Lookup::DIRECTORY;
    namei::walk::lookup(c, &c.fs().view(), &namei::Start::Cwd, name.as_bytes(), look).is_ok()
}
