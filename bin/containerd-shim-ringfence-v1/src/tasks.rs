//! The containers of a shim and the operations on them. `task` has the form of the requests; the work is here.

use crate::console::Console;
use crate::events::Events;
use crate::exit_signal::ExitSignal;
use crate::exits::Exits;
use crate::oom::{self, Watch};
use crate::options::Settings;
use crate::process::{Exit, Process, StartedProcess, start};
use crate::rootfs;
use crate::runtime::Runtime;
use crate::stdio::{self, LogCaller, Stdio};
use containerd_shim_protos::api::CreateTaskRequest;
use containerd_shim_protos::events::task::{
    TaskCheckpointed, TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskIO, TaskPaused,
    TaskResumed, TaskStart,
};
use containerd_shim_protos::ttrpc::{Code, Error, get_status};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// In the bundle: the process id of the container.
pub(crate) const PID_FILE: &str = "init.pid";

/// How long an end is kept back for the last output of the process's terminal, in milliseconds.
const LAST_OUTPUT_MS: i64 = 200;

pub(crate) type Answer<T> = Result<T, Error>;

/// A request's failure.
pub(crate) fn fail(code: Code, message: impl ToString) -> Error {
    Error::RpcStatus(get_status(code, message.to_string()))
}

/// Waits for a descriptor to become readable, no longer than the last output of a terminal may take.
fn wait_until(copied: Option<Arc<OwnedFd>>) {
    if let Some(copied) = copied {
        stdio::wait(&copied, LAST_OUTPUT_MS);
    }
}

fn no_such(what: &str, id: &str) -> Error {
    fail(Code::NOT_FOUND, format!("{what} {id}: not found"))
}

/// The failure of a command, with the code that clients go by.
fn refused(what: &str, message: &str) -> Error {
    let code = if message.contains("does not exist") { Code::NOT_FOUND } else { Code::UNKNOWN };
    fail(code, format!("{what}: {message}"))
}

pub(crate) struct Container {
    pub(crate) bundle: PathBuf,
    pub(crate) runtime: Arc<Runtime>,
    settings: Settings,
    pub(crate) paused: bool,
    /// The container's own process.
    pub(crate) init: Process,
    execs: HashMap<String, Process>,
    oom: Option<Watch>,
}

impl Container {
    pub(crate) fn process(&mut self, exec_id: &str) -> Answer<&mut Process> {
        match exec_id {
            "" => Ok(&mut self.init),
            id => self.execs.get_mut(id).ok_or_else(|| no_such("process", id)),
        }
    }
}

pub(crate) struct Tasks {
    namespace: String,
    containers: Mutex<HashMap<String, Container>>,
    exits: Arc<Exits>,
    events: Events,
    exit: Arc<ExitSignal>,
}

impl Tasks {
    pub(crate) fn new(namespace: String, exits: Arc<Exits>, events: Events, exit: Arc<ExitSignal>) -> Self {
        Self { namespace, containers: Mutex::default(), exits, events, exit }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Container>> {
        self.containers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Does something with a container, briefly: everybody else waits.
    pub(crate) fn with<T>(&self, id: &str, what: impl FnOnce(&mut Container) -> Answer<T>) -> Answer<T> {
        what(self.lock().get_mut(id).ok_or_else(|| no_such("container", id))?)
    }

    fn runtime(&self, id: &str) -> Answer<Arc<Runtime>> {
        self.with(id, |container| Ok(container.runtime.clone()))
    }

    /// A child that is no command has ended.
    pub(crate) fn ended(&self, pid: i32, status: i32) {
        self.wait_for_output(pid);
        let mut containers = self.lock();
        for (id, container) in containers.iter_mut() {
            let mut processes = std::iter::once(&mut container.init).chain(container.execs.values_mut());
            let Some(process) = processes.find(|process| process.pid == pid && !process.has_ended()) else {
                continue;
            };
            process.early = Some(status);
            if process.exec_id.is_empty() {
                self.settle(id, container);
            } else {
                self.finish(id, process, status);
            }
            return;
        }
    }

    /// Waits until the last output of a process is copied from its terminal, for a bounded time: another process may keep the
    /// terminal open. Clients read no further when they learn of the end.
    fn wait_for_output(&self, pid: i32) {
        let copied = self.lock().values().find_map(|container| {
            let mut processes = std::iter::once(&container.init).chain(container.execs.values());
            processes.find(|process| process.pid == pid)?.console.as_ref().map(Console::all_copied)
        });
        wait_until(copied);
    }

    /// Tells of the end of a container's own process, if it has ended and nothing stands against it.
    fn settle(&self, id: &str, container: &mut Container) {
        if !container.init.is_settled() {
            return;
        }
        let Some(status) = container.init.early.take() else { return };
        if let Some(watch) = container.oom.take() {
            watch.look();
        }
        self.finish(id, &mut container.init, status);
    }

    /// A process's end, told once.
    fn finish(&self, id: &str, process: &mut Process, status: i32) {
        if !process.ended(status) {
            return;
        }
        let Some(Exit { status, at }) = process.end.get() else { return };
        self.events.send(TaskExit {
            container_id: id.into(),
            id: if process.exec_id.is_empty() { id.into() } else { process.exec_id.clone() },
            pid: process.pid as u32,
            exit_status: status,
            exited_at: Some(at).into(),
            ..TaskExit::default()
        });
    }

    pub(crate) fn create(&self, request: CreateTaskRequest) -> Answer<u32> {
        if !request.parent_checkpoint.is_empty() {
            return Err(fail(Code::UNIMPLEMENTED, "checkpoints do not build on one another"));
        }
        let id = request.id.clone();
        if self.lock().contains_key(&id) {
            return Err(fail(Code::ALREADY_EXISTS, format!("container {id} exists already")));
        }
        let settings = Settings::from_any(request.options.as_ref())
            .map_err(|error| fail(Code::INVALID_ARGUMENT, error))?;
        if let Ok(level) = settings.log_level.parse() {
            log::set_max_level(level);
        }
        let bundle = PathBuf::from(&request.bundle);
        let invalid = |error: String| fail(Code::INVALID_ARGUMENT, error);
        let runtime =
            Arc::new(Runtime::new(&settings, &self.namespace, &bundle, self.exits.clone()).map_err(invalid)?);
        let unknown = |error: String| fail(Code::UNKNOWN, error);
        settings.save(&bundle).map_err(|error| unknown(format!("{}: {error}", bundle.display())))?;

        let stdio = Stdio {
            stdin: request.stdin.clone(),
            stdout: request.stdout.clone(),
            stderr: request.stderr.clone(),
            terminal: request.terminal,
        };
        let whose =
            LogCaller { namespace: &self.namespace, id: &id, owner: (settings.io_uid, settings.io_gid) };
        let hold = self.exits.hold();
        let rootfs = bundle.join("rootfs");
        let mut args = vec![OsStr::new("create"), OsStr::new("--bundle"), bundle.as_os_str()];
        if !request.checkpoint.is_empty() {
            // What the start lets go on.
            args.extend([OsStr::new("--image-path"), OsStr::new(&request.checkpoint)]);
        }
        if settings.no_pivot_root {
            args.push(OsStr::new("--no-pivot"));
        }
        if settings.no_new_keyring {
            args.push(OsStr::new("--no-new-keyring"));
        }
        let started = mount(&request, &rootfs).and_then(|()| {
            let pid_file = bundle.join(PID_FILE);
            start(&runtime, &stdio, &whose, &pid_file, &args, &[OsStr::new(&id)])
                .map_err(|error| format!("OCI runtime create failed: {error}"))
        });
        let StartedProcess { pid, held, console } = match started {
            Ok(started) => started,
            Err(error) => {
                unmount_all(&request, &rootfs);
                return Err(unknown(error));
            }
        };
        let init = Process { pid, held, console, stdio: stdio.clone(), ..Process::default() };
        let container =
            Container { bundle, runtime, settings, paused: false, init, execs: HashMap::new(), oom: None };
        let mut containers = self.lock();
        let container = containers.entry(id.clone()).insert_entry(container).into_mut();
        self.events.send(TaskCreate {
            container_id: id.clone(),
            bundle: request.bundle,
            rootfs: request.rootfs,
            io: Some(TaskIO {
                stdin: stdio.stdin,
                stdout: stdio.stdout,
                stderr: stdio.stderr,
                terminal: stdio.terminal,
                ..TaskIO::default()
            })
            .into(),
            pid: pid as u32,
            ..TaskCreate::default()
        });
        if let Some(status) = hold.take(pid) {
            self.finish(&id, &mut container.init, status);
        }
        Ok(pid as u32)
    }

    /// Saves a container to the directory of an image; it goes on unless it is to `exit`.
    pub(crate) fn checkpoint(&self, id: &str, image: &str, exit: bool) -> Answer<()> {
        let mut args = vec!["checkpoint", "--image-path", image];
        if !exit {
            args.push("--leave-running");
        }
        args.push(id);
        let run = self.runtime(id)?.run(&args, &[]);
        run.map_err(|error| refused("OCI runtime checkpoint failed", &error))?;
        self.events.send(TaskCheckpointed {
            container_id: id.into(),
            checkpoint: image.into(),
            ..TaskCheckpointed::default()
        });
        Ok(())
    }

    /// Starts the container's own process or one that was added with [`exec`](Self::exec).
    pub(crate) fn start(&self, id: &str, exec_id: &str) -> Answer<u32> {
        if exec_id.is_empty() { self.start_init(id) } else { self.start_exec(id, exec_id) }
    }

    fn start_init(&self, id: &str) -> Answer<u32> {
        let runtime = self.with(id, |container| {
            if container.init.started {
                return Err(fail(Code::FAILED_PRECONDITION, "the container has been started already"));
            }
            container.init.starting = true;
            Ok(container.runtime.clone())
        })?;
        let watch = oom::manager(&runtime.state(id)).and_then(|manager| {
            let watch = Watch::new(id, manager, self.events.clone());
            watch.inspect_err(|error| log::warn!("no out-of-memory events for {id}: {error}")).ok()
        });
        let run = runtime.run(&["start", id], &[]);
        self.with(id, |container| {
            container.oom = watch;
            let init = &mut container.init;
            init.starting = false;
            if run.is_ok() {
                init.started = true;
                let pid = init.pid as u32;
                self.events.send(TaskStart { container_id: id.into(), pid, ..TaskStart::default() });
            }
            self.settle(id, container);
            let pid = container.init.pid as u32;
            run.map(|_| pid).map_err(|error| refused("OCI runtime start failed", &error))
        })
    }

    /// Adds a process, to be started.
    pub(crate) fn exec(&self, id: &str, exec_id: &str, stdio: Stdio, spec: &[u8]) -> Answer<()> {
        let invalid = |error| fail(Code::INVALID_ARGUMENT, format!("process: {error}"));
        let mut process: serde_json::Value = serde_json::from_slice(spec).map_err(invalid)?;
        process["terminal"] = stdio.terminal.into();
        self.with(id, |container| {
            if container.execs.contains_key(exec_id) {
                return Err(fail(Code::ALREADY_EXISTS, format!("process {exec_id} exists already")));
            }
            let spec = process.to_string().into_bytes();
            let process = Process { exec_id: exec_id.into(), stdio, spec, ..Process::default() };
            container.execs.insert(exec_id.into(), process);
            Ok(())
        })?;
        let (container_id, exec_id) = (id.into(), exec_id.into());
        self.events.send(TaskExecAdded { container_id, exec_id, ..TaskExecAdded::default() });
        Ok(())
    }

    fn start_exec(&self, id: &str, exec_id: &str) -> Answer<u32> {
        let (runtime, bundle, owner, stdio, spec) = self.with(id, |container| {
            let owner = (container.settings.io_uid, container.settings.io_gid);
            let (runtime, bundle) = (container.runtime.clone(), container.bundle.clone());
            let process = container.process(exec_id)?;
            if process.started || process.starting {
                return Err(fail(Code::FAILED_PRECONDITION, "the process has been started already"));
            }
            process.starting = true;
            Ok((runtime, bundle, owner, process.stdio.clone(), process.spec.clone()))
        })?;
        let whose = LogCaller { namespace: &self.namespace, id, owner };
        let hold = self.exits.hold();
        let [file, pid_file] =
            ["json", "pid"].map(|extension| bundle.join(format!("exec-{exec_id}.{extension}")));
        let args = [OsStr::new("exec"), OsStr::new("--detach"), OsStr::new("--process"), file.as_os_str()];
        let run = std::fs::write(&file, spec).map_err(|error| format!("{}: {error}", file.display()));
        let run = run.and_then(|()| start(&runtime, &stdio, &whose, &pid_file, &args, &[OsStr::new(id)]));
        let _ = (std::fs::remove_file(&file), std::fs::remove_file(&pid_file));
        let early = run.as_ref().ok().and_then(|started| {
            let status = hold.take(started.pid)?;
            wait_until(started.console.as_ref().map(Console::all_copied));
            Some(status)
        });
        self.with(id, |container| {
            let process = container.process(exec_id)?;
            process.starting = false;
            let StartedProcess { pid, held, console } =
                run.map_err(|error| refused("OCI runtime exec failed", &error))?;
            (process.pid, process.held, process.console) = (pid, held, console);
            (process.started, process.spec) = (true, Vec::new());
            if process.no_more_input {
                process.held.close_stdin();
            }
            process.pidfd = hostsys::process::pidfd_open(pid).ok();
            self.events.send(TaskExecStarted {
                container_id: id.into(),
                exec_id: exec_id.into(),
                pid: pid as u32,
                ..TaskExecStarted::default()
            });
            if let Some(status) = early.or_else(|| hold.take(pid)) {
                self.finish(id, process, status);
            }
            Ok(pid as u32)
        })
    }

    /// Removes what has ended. Gives its process id and how it ended.
    pub(crate) fn delete(&self, id: &str, exec_id: &str) -> Answer<(u32, Exit)> {
        let running = |started: bool, ended: bool| {
            if started && !ended {
                return Err(fail(Code::FAILED_PRECONDITION, "cannot delete a running process"));
            }
            Ok(())
        };
        if !exec_id.is_empty() {
            let mut process = self.with(id, |container| {
                let process = container.process(exec_id)?;
                running(process.started || process.starting, process.has_ended())?;
                Ok(container.execs.remove(exec_id).unwrap_or_default())
            })?;
            process.release();
            return Ok((process.pid as u32, process.end.get().unwrap_or_else(|| Exit::now(0))));
        }
        let (runtime, bundle, end) = self.with(id, |container| {
            let init = &container.init;
            running(init.started || init.starting, init.has_ended())?;
            Ok((container.runtime.clone(), container.bundle.clone(), init.end.clone()))
        })?;
        match runtime.run(&["delete", id], &[]) {
            Err(error) if !error.contains("does not exist") => {
                return Err(refused("OCI runtime delete failed", &error));
            }
            _ => {}
        }
        // One that was never started ends with that.
        let exit = end.wait_briefly();
        let Some(mut container) = self.lock().remove(id) else { return Err(no_such("container", id)) };
        for process in container.execs.values_mut().chain([&mut container.init]) {
            process.release();
        }
        unmount(&bundle.join("rootfs"));
        let pid = container.init.pid as u32;
        self.events.send(TaskDelete {
            container_id: id.into(),
            pid,
            exit_status: exit.status,
            exited_at: Some(exit.at.clone()).into(),
            ..TaskDelete::default()
        });
        Ok((pid, exit))
    }

    pub(crate) fn kill(&self, id: &str, exec_id: &str, signal: u32, all: bool) -> Answer<()> {
        let gone = || fail(Code::NOT_FOUND, "process already finished: not found");
        let runtime = self.with(id, |container| {
            let runtime = container.runtime.clone();
            let process = container.process(exec_id)?;
            if process.has_ended() {
                return Err(gone());
            }
            if exec_id.is_empty() {
                process.killing += 1;
                return Ok(Some(runtime));
            }
            let Some(pidfd) = &process.pidfd else {
                return Err(fail(
                    Code::FAILED_PRECONDITION,
                    format!("process {exec_id} has not been started"),
                ));
            };
            use std::os::fd::AsFd;
            match hostsys::process::pidfd_kill(pidfd.as_fd(), signal as i32) {
                Ok(()) => Ok(None),
                Err(abi::errno::Errno::ESRCH) => Err(gone()),
                Err(error) => Err(fail(Code::UNKNOWN, error)),
            }
        })?;
        let Some(runtime) = runtime else { return Ok(()) };
        let signal = signal.to_string();
        let args: &[&str] = if all { &["kill", "--all", id, &signal] } else { &["kill", id, &signal] };
        let run = runtime.run(args, &[]);
        let _ = self.with(id, |container| {
            container.init.killing -= 1;
            self.settle(id, container);
            Ok(())
        });
        match run {
            Ok(_) => Ok(()),
            Err(error) if error.contains("not running") => Err(gone()),
            Err(error) => Err(refused("OCI runtime kill failed", &error)),
        }
    }

    pub(crate) fn pause(&self, id: &str, pause: bool) -> Answer<()> {
        let command = if pause { "pause" } else { "resume" };
        let run = self.runtime(id)?.run(&[command, id], &[]);
        run.map_err(|error| refused(&format!("OCI runtime {command} failed"), &error))?;
        self.with(id, |container| {
            container.paused = pause;
            Ok(())
        })?;
        let container_id = id.into();
        if pause {
            self.events.send(TaskPaused { container_id, ..TaskPaused::default() });
        } else {
            self.events.send(TaskResumed { container_id, ..TaskResumed::default() });
        }
        Ok(())
    }

    pub(crate) fn update(&self, id: &str, resources: &[u8]) -> Answer<()> {
        let run = self.runtime(id)?.run(&["update", "--resources", "-", id], resources);
        run.map(drop).map_err(|error| refused("OCI runtime update failed", &error))
    }

    /// Processes of the container, by their ids on the host.
    pub(crate) fn pids(&self, id: &str) -> Answer<Vec<u32>> {
        let (runtime, ended) =
            self.with(id, |container| Ok((container.runtime.clone(), container.init.has_ended())))?;
        if ended {
            return Ok(Vec::new());
        }
        let text = runtime
            .run(&["ps", "--format", "json", id], &[])
            .map_err(|error| refused("OCI runtime ps failed", &error))?;
        serde_json::from_str(&text).map_err(|error| fail(Code::INTERNAL, format!("ps: {error}")))
    }

    /// The container's control groups.
    pub(crate) fn groups(&self, id: &str) -> Answer<cgroups::Manager> {
        let runtime = self.runtime(id)?;
        oom::manager(&runtime.state(id))
            .ok_or_else(|| fail(Code::FAILED_PRECONDITION, format!("container {id} has no control group")))
    }

    /// The output of `events --stats`.
    pub(crate) fn events(&self, id: &str) -> Result<String, String> {
        let runtime = self.runtime(id).map_err(|error| error.to_string())?;
        runtime.run(&["events", "--stats", id], &[])
    }

    /// Ends the shim when nothing is left in it.
    pub(crate) fn shutdown(&self) {
        if self.lock().is_empty() {
            self.exit.signal();
        }
    }
}

/// Makes the root file system as containerd describes it.
fn mount(request: &CreateTaskRequest, rootfs: &Path) -> Result<(), String> {
    if request.rootfs.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(rootfs).map_err(|error| format!("{}: {error}", rootfs.display()))?;
    request.rootfs.iter().try_for_each(|mount| {
        rootfs::make(&mount.type_, &mount.source, &mount.options, rootfs).map_err(|error| {
            format!("root file system: cannot mount {} as {}: {error}", mount.source, mount.type_)
        })
    })
}

fn unmount_all(request: &CreateTaskRequest, rootfs: &Path) {
    if !request.rootfs.is_empty() {
        unmount(rootfs);
    }
}

/// Unmounts everything that is mounted at a place.
pub(crate) fn unmount(rootfs: &Path) {
    loop {
        match rustix::mount::unmount(rootfs, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // A process still uses the mount. It goes when that process ends.
            Err(Errno::BUSY) if rustix::mount::unmount(rootfs, UnmountFlags::DETACH).is_ok() => {}
            Err(Errno::INVAL | Errno::NOENT) => return,
            Err(error) => {
                log::warn!("unmount {}: {error}", rootfs.display());
                return;
            }
        }
    }
}
