//! What the outside may ask of a running kernel.

use crate::build::{self, Built};
use crate::console::Console;
use crate::errors::other;
use crate::fds::Fds;
use crate::first::{First, Member};
use crate::image::{Purpose, Saving};
use crate::pod::Pod;
use crate::process::{enter_cwd, exec_first, install, new_process};
use crate::running::{Attending, Executed, MAX_LAYERS, Running, Stdio};
use crate::settings::{offsets, uts};
use crate::tracing;
use crate::write_back::RootChanges;
use abi::{SigInfo, Signal};
use checkpoint::SavedContainer;
use container::Container;
use files::FdTable;
use hostsys::page_file::PageFile;
use metrics::Sample;
use mounts::{FsContext, FsView};
use spec::{
    AfterCheckpoint, Interfaces, ProcessInfo, ProcessSpec, Refusal, SandboxSpec, StartError, Target,
    WindowSize,
};
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use task::notices::Outcome;
use task::{Current, Kernel, SI_HOST, Sender, SharedIpc, Shares, Stage, ThreadGroup};
use trace_wire::session::{Session, Status};
use wait::{Events, Waiter};

/// How long a process may wait for file systems of programs inside before it runs.
const SET_UP: Duration = Duration::from_secs(10);

/// How often a wait looks whether it has lost its purpose.
const LOOK: Duration = Duration::from_millis(50);
/// So often in a row no program runs when all of them are idle.
const IDLE: u32 = 20;

/// A container as the runtime sees it.
pub(crate) struct Control {
    pub kernel: Arc<Kernel>,
    pub container: Arc<Container>,
    pub pod: Arc<Pod>,
    pub console: Option<Arc<Console>>,
    /// The threads that it begins with.
    pub first: Arc<First>,
    /// The container as a checkpoint takes it.
    pub member: Arc<Member>,
    /// The files of pages that the sandbox was restored from.
    pub layers: Vec<PageFile>,
    pub signals_end_init: bool,
    /// Its root.
    pub changes: RootChanges,
}

impl Control {
    /// Builds a container.
    pub(crate) fn build(
        kernel: &Arc<Kernel>,
        container: Arc<Container>,
        spec: &SandboxSpec,
        fds: Fds,
        pod: Arc<Pod>,
    ) -> Result<Arc<Control>, StartError> {
        let Built { first, baseline, layers, console, view, write_back } =
            build::container(kernel, &container, spec, fds, &pod)?;
        let changes = RootChanges { kernel: kernel.clone(), container: container.clone(), view, write_back };
        let member = Arc::new(Member {
            container: container.clone(),
            name: spec.name_in_pod.clone(),
            baseline,
            console: console.clone(),
            first: first.clone(),
        });
        pod.add(&member);
        Ok(Arc::new(Control {
            kernel: kernel.clone(),
            container,
            pod,
            console,
            first,
            member,
            layers,
            signals_end_init: spec.signals_end_init,
            changes,
        }))
    }

    fn init(&self) -> Option<Arc<ThreadGroup>> {
        self.kernel.group(self.container.first())
    }

    /// A process of this container, by its id there.
    fn own_group(&self, pid: i32) -> Option<Arc<ThreadGroup>> {
        let group = self.kernel.group(self.container.pids().find(pid)?.nr());
        group.filter(|group| Arc::ptr_eq(&group.container, &self.container))
    }

    fn signal_init(&self, sig: Signal) -> bool {
        let Some(group) = self.init() else { return self.end_awaited(sig) };
        let started = self.first.is_started();
        let immune = started && !self.signals_end_init && group.is_immune(sig, Sender::Around);
        let info = match immune {
            // The kernel drops it, unless init blocks it: systemd takes its signals by signalfd(2).
            true => SigInfo::user(sig, libc::SI_USER, 0, 0),
            false => SigInfo::new(sig, SI_HOST),
        };
        let sent = group.send(info).is_ok();
        // Before the start there is no init yet, only something that holds its place and dies by any signal that
        // kills: it is started, and ends before its first instruction.
        if !started && group.dies_by(sig) {
            let _ = self.start();
        }
        sent
    }
}

impl Running for Control {
    fn start(&self) -> Result<(), StartError> {
        if self.container.index() == 0 {
            // Programs find the network as it is now, though the thread that follows it may not have heard yet.
            crate::links::follow(&self.kernel, &self.pod);
        }
        self.first.start()
    }

    fn bound_tasks(&self, mappings: u64) {
        self.kernel.bound_tasks(mappings);
    }

    fn release_idle_files(&self) -> bool {
        self.kernel.spaces.twins.release_gone();
        self.pod.host_files.release_idle()
    }

    fn memory(&self) -> u64 {
        self.container.limits().memory()
    }

    fn show_network(&self, interfaces: Interfaces) -> Result<(), StartError> {
        if self.first.is_started() || self.container.index() != 0 {
            return Err(other("the interfaces that are shown do not change in a sandbox that runs".into()));
        }
        crate::links::attach(&self.kernel, &self.pod, interfaces, Vec::new())
    }

    fn signal(&self, signo: i32, to: Target) -> bool {
        let Some(sig) = Signal::new(signo) else { return true };
        let info = SigInfo::new(sig, SI_HOST);
        match to {
            Target::Foreground => {
                let foreground = self.console.as_ref().and_then(|c| c.foreground());
                match foreground {
                    Some(pgid) if self.kernel.signal_pgrp(pgid, info) => true,
                    _ => self.signal_init(sig),
                }
            }
            Target::Init => self.signal_init(sig),
            Target::Process(pid) => {
                let group = self.own_group(pid);
                if group.as_ref().is_some_and(|group| group.tgid == self.container.first()) {
                    return self.signal_init(sig);
                }
                group.is_some_and(|group| group.send(info).is_ok())
            }
            Target::Group(pgid) => {
                let Some(pgid) = self.container.pids().find(pgid).map(|pid| pid.nr()) else { return false };
                let members: Vec<_> = {
                    let tree = self.kernel.tree.lock();
                    let mine =
                        tree.nodes().filter(|node| Arc::ptr_eq(&node.group.container, &self.container));
                    mine.filter(|node| node.pgid() == pgid).map(|node| node.group.clone()).collect()
                };
                for group in &members {
                    // One that has just ended needs no signal.
                    let _ = match group.tgid == self.container.first() {
                        true => self.signal_init(sig),
                        false => group.send(info).is_ok(),
                    };
                }
                !members.is_empty()
            }
            Target::All => {
                let first = self.container.first();
                self.kernel.signal_container(&self.container, info, |id| id != first);
                self.signal_init(sig)
            }
        }
    }

    fn resize(&self, size: WindowSize) {
        if let Some(c) = &self.console {
            c.resize(size);
        }
    }

    fn exec(&self, process: &ProcessSpec, stdio: Stdio) -> Result<Arc<dyn Executed>, StartError> {
        if self.container.is_over() || self.init().is_none() {
            return Err(other("container not running".into()));
        }
        let fs = FsContext::with_view(FsView::clone(&self.changes.view), 0);
        let table = FdTable::new(self.kernel.vfs.resources.quotas.files.clone());
        let mut c = new_process(&self.kernel, &self.container, process, &table, fs, true)?;
        let group = c.task.group.clone();
        // The program and the working directory may lie in a file system that a program inside serves.
        c.task.set_deadline(Some(self.kernel.clock().now().plus(SET_UP)));
        let set_up = |c: &mut Current| {
            // From here on the end of the container finds this process; one that came before did not.
            if self.container.is_over() {
                return Err(other("container not running".into()));
            }
            let console = match stdio {
                Stdio::Terminal(host, size) => Some(Console::open(c, host, size)?),
                Stdio::Files(files) => {
                    let mut importer = hostfs::Importer::new(&self.pod.host_files);
                    for (fd, file) in files.into_iter().enumerate() {
                        let file = importer
                            .import(file, process.uid, process.gid)
                            .map_err(|e| other(format!("descriptor {fd}: {e}")))?;
                        install(c, &file, fd)?;
                    }
                    None
                }
            };
            enter_cwd(c, process)?;
            exec_first(c, process)?;
            Ok(console)
        };
        match set_up(&mut c) {
            Ok(console) => {
                c.task.set_deadline(None);
                task::start(c).map_err(|e| other(format!("cannot start a thread: {e}")))?;
                Ok(Arc::new(Other { kernel: self.kernel.clone(), group, console }))
            }
            Err(error) => {
                task::end(c, Stage::Entered);
                Err(error)
            }
        }
    }

    fn processes(&self) -> Vec<ProcessInfo> {
        let groups: Vec<_> = {
            let tree = self.kernel.tree.lock();
            let mine = tree.nodes().filter(|node| Arc::ptr_eq(&node.group.container, &self.container));
            mine.map(|node| (node.parent(), node.sid(), node.group.clone())).collect()
        };
        groups.into_iter().map(|(ppid, sid, group)| self.info(ppid, sid, &group)).collect()
    }

    fn metrics(&self) -> Vec<Sample> {
        crate::figures::all(&self.kernel, &self.container)
    }

    fn refusals(&self) -> Vec<Refusal> {
        crate::describe::refusals(&self.kernel)
    }

    fn describe(&self) -> String {
        crate::describe::threads(&self.kernel)
    }

    fn trace(&self, on: bool) {
        self.kernel.set_strace(on);
    }

    fn trace_create(&self, session: Session, fds: Vec<OwnedFd>, force: bool) -> Result<(), StartError> {
        tracing::create(&self.kernel, session, fds, force)
    }

    fn trace_delete(&self, name: &str) -> Result<(), StartError> {
        tracing::delete(&self.kernel, name)
    }

    fn trace_list(&self) -> Vec<Status> {
        tracing::list(&self.kernel)
    }

    fn dump_processes(&self, to: OwnedFd) -> Result<(), StartError> {
        let only = (self.container.index() != 0).then_some(&*self.container);
        let text = crate::process_dump::processes(&self.kernel, only).to_string();
        let written = std::fs::File::from(to).write_all(text.as_bytes());
        written.map_err(|error| other(format!("processes: {error}")))
    }

    fn guest_core(&self, pid: i32, to: OwnedFd) -> Result<(u32, u32), StartError> {
        let group = self.own_group(pid).filter(|group| group.exit_status().is_none());
        let group = group.ok_or_else(|| other(format!("the container has no process {pid}")))?;
        let done = syscalls::dump_running(&group, &to.into());
        let (threads, missing) = done.map_err(|error| other(format!("process {pid}: {error}")))?;
        Ok((threads as u32, missing as u32))
    }

    fn checkpoint(&self, files: [OwnedFd; 2], then: AfterCheckpoint, spares: bool) -> Result<(), StartError> {
        let all = self.all()?;
        let end = || {
            if then == AfterCheckpoint::EndsSilently {
                crate::links::silence(&self.kernel, &self.pod);
            }
            for member in all.iter().filter(|_| then != AfterCheckpoint::GoesOn) {
                member.container.set_frozen(false);
                let kill = SigInfo::new(Signal::SIGKILL, SI_HOST);
                self.kernel.signal_container(&member.container, kill, |_| true);
            }
        };
        let ends_connections = then == AfterCheckpoint::Ends;
        self.save(saving(&all, Purpose::Image { spares, ends_connections }), files, end)
    }

    fn layers(&self) -> Vec<i32> {
        // Another one would be too many: the clone gets copies.
        let layers = if self.layers.len() <= MAX_LAYERS { self.layers.as_slice() } else { &[] };
        layers.iter().map(|layer| layer.fd().as_raw_fd()).collect()
    }

    fn clone_to(&self, files: [OwnedFd; 2], keeps: bool) -> Result<(), StartError> {
        let all = self.all()?;
        if all.len() > 1 {
            return Err(other("a sandbox with several containers cannot be cloned".into()));
        }
        let layers = if keeps { self.layers.as_slice() } else { &[] };
        self.save(saving(&all, Purpose::Clone(layers)), files, || ())
    }

    fn await_request(
        &self,
        idle: bool,
        attending: &dyn Fn(),
        gone: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Attending>, StartError> {
        let attendance = self.kernel.notices.attend();
        attending();
        let mut still_for = 0;
        while still_for < IDLE {
            if attendance.wait(Instant::now() + LOOK) {
                break;
            }
            self.goes_on(gone)?;
            let still = idle && self.first.runs() && self.kernel.running().0 == 0;
            still_for = if still { still_for + 1 } else { 0 };
        }
        Ok(Box::new(attendance))
    }

    fn await_checkpoint(&self, gone: &dyn Fn() -> bool) -> Result<(), StartError> {
        let notices = &self.kernel.notices;
        let seen = notices.seen();
        loop {
            match notices.wait_outcome(seen, Instant::now() + LOOK) {
                Some(Outcome::Error) => return Err(other("the checkpoint failed".into())),
                Some(_) => return Ok(()),
                None => self.goes_on(gone)?,
            }
        }
    }

    fn add(&self, spec: SandboxSpec, fds: Vec<OwnedFd>) -> Result<Arc<dyn Running>, StartError> {
        let find = |id: &String| {
            let found = self.pod.find(id).filter(|container| !container.is_over());
            found.ok_or_else(|| other(format!("the sandbox has no container {id:?} to share with")))
        };
        let uts_of = spec.uts_of.as_ref().map(find).transpose()?;
        let pids_of = spec.pids_of.as_ref().map(find).transpose()?;
        let uts = uts(&spec);
        let offsets = offsets(&spec)?;
        let ipc_of = spec.ipc_of.as_ref().map(find).transpose()?;
        let ipc = match ipc_of.as_deref() {
            Some(other) => SharedIpc::Of(other),
            None if spec.own_ipc => SharedIpc::Own,
            None => SharedIpc::Sandbox,
        };
        let shares = Shares { pids_of: pids_of.as_deref(), uts_of: uts_of.as_deref(), ipc };
        let new = self.kernel.new_container(shares, uts, offsets);
        let new = new.ok_or_else(|| other("the sandbox has too many containers".into()))?;
        let control = Control::build(&self.kernel, new, &spec, Fds::new(fds), self.pod.clone())?;
        Ok(control)
    }

    fn wait(&self) -> i32 {
        let status = self.container.wait_finished();
        self.kernel.end_container(&self.container);
        self.changes.write_back_at_end();
        if let Some(console) = &self.console {
            console.finish();
        }
        status
    }

    fn wait_process(&self, pid: i32, root: bool) -> Option<i32> {
        let group = if root { self.kernel.group(pid) } else { self.own_group(pid) }?;
        let over = || group.exit_status();
        // This waiter is never interrupted. Its parent is the one to reap it.
        Waiter::new().wait_on(&group.exit_wait, Events::READABLE, None, over).ok()
    }

    fn end(&self) {
        self.kernel.freeze(&self.container, false);
        self.signal(Signal::SIGKILL.raw(), Target::All);
    }

    fn freeze(&self, on: bool) -> bool {
        let changes = self.container.is_frozen() != on;
        self.kernel.freeze(&self.container, on);
        changes
    }

    fn changes(&self, to: OwnedFd, purpose: overlay_diff::Purpose) -> Result<(), StartError> {
        self.changes.write_changes(to, purpose)
    }

    fn write_back(&self) -> Result<String, StartError> {
        self.changes.write_back()
    }

    fn limit_tasks(&self, limit: Option<u32>) {
        self.container.cgroup().set_pids_max(limit.map_or(u64::MAX, u64::from));
    }

    fn forward(&self, port: u16, from: OwnedFd, to: OwnedFd) -> Result<Box<dyn FnOnce() + Send>, StartError> {
        let net = &self.kernel.first.namespaces.net;
        if !net.shows_stack() {
            return Err(other(
                "the container uses the host's own sockets: connect to the port itself".into(),
            ));
        }
        let connection = hostlink::Forward::connect(net.stack(), *net.clock(), port)
            .map_err(|e| other(format!("cannot connect to port {port} inside: {e}")))?;
        Ok(Box::new(move || {
            let _ = connection.run(from, to);
        }))
    }
}

impl Control {
    /// The containers of the sandbox, all of which run.
    fn all(&self) -> Result<Vec<Arc<Member>>, StartError> {
        if self.container.index() != 0 {
            return Err(other("save the sandbox: an image has all of its containers".into()));
        }
        let all = self.pod.members();
        for member in &all {
            let mine = Arc::ptr_eq(member, &self.member);
            let name = if mine { "the container" } else { member.container.name() };
            if member.first.is_awaited() {
                let missing = self.pod.missing().join(", ");
                return Err(other(format!("{name} waits for further containers of its image: {missing}")));
            }
            if !member.first.runs() {
                return Err(other(format!("{name} has not been started")));
            }
            if !mine && member.container.is_frozen() {
                return Err(other(format!("{name} is paused: resume it first")));
            }
        }
        match all.first() {
            Some(first) if first.container.index() == 0 => Ok(all),
            _ => Err(other("container not running".into())),
        }
    }

    /// A signal to a container that waits for others of its image; whether it is there.
    fn end_awaited(&self, sig: Signal) -> bool {
        if !self.first.is_awaited() {
            return false;
        }
        let ignored = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        if !ignored.contains(&sig.raw()) && !stops.contains(&sig.raw()) {
            self.container.finish(sig.raw());
            self.pod.leave(&self.container);
        }
        true
    }

    /// Saves, and tells programs of it: that it failed, or before anything goes on that it was made; then comes `after`.
    fn save(&self, saving: Saving<'_>, files: [OwnedFd; 2], after: impl FnOnce()) -> Result<(), StartError> {
        let notices = &self.kernel.notices;
        let saved = crate::image::save(&self.kernel, saving, files, || {
            notices.tell(Outcome::Resume);
            after();
        });
        if saved.is_err() {
            notices.tell(Outcome::Error);
        }
        saved
    }

    /// An error when a wait has lost its purpose.
    fn goes_on(&self, gone: &dyn Fn() -> bool) -> Result<(), StartError> {
        if gone() || self.container.is_over() { Err(other("container not running".into())) } else { Ok(()) }
    }

    fn info(&self, ppid: i32, sid: i32, group: &ThreadGroup) -> ProcessInfo {
        let task = group.any_thread();
        let (user, system) = group.cpu_times();
        let name = |comm: [u8; 16]| String::from_utf8_lossy(&comm).trim_end_matches('\0').to_string();
        let command = task.as_ref().map(|task| {
            let words = procfs::command_line(&task.mm());
            let words: Vec<_> = words.split(|&b| b == 0).map(String::from_utf8_lossy).collect();
            match words.join(" ").trim_end() {
                "" => format!("[{}]", name(task.comm())),
                line => line.to_string(),
            }
        });
        let host_pid = task.as_ref().filter(|_| group.exit_status().is_none());
        // Terminals are pseudo-terminals only, major 136.
        let tty = self.kernel.terminal_of(sid).map(|(device, _)| format!("pts/{}", device & 0xff));
        ProcessInfo {
            pid: group.pid.nr_in(self.container.pids()),
            ppid: group.pid_seen(ppid),
            host_pid: host_pid.map_or(0, |task| task.mm().space.host_pid()),
            uid: task.as_ref().map_or(0, |task| task.creds().euid),
            tty: tty.unwrap_or_else(|| "?".into()),
            started: (SystemTime::now() - self.kernel.clock().now().since(group.started))
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs() as i64),
            cpu: (user + system) / 1_000_000_000,
            command: command.unwrap_or_else(|| "<defunct>".into()),
        }
    }
}

/// What a sandbox with these containers is saved with.
fn saving<'a>(all: &'a [Arc<Member>], purpose: Purpose<'a>) -> Saving<'a> {
    let containers = all.iter().map(|member| SavedContainer {
        container: &member.container,
        name: &member.name,
        baseline: &member.baseline,
        console: member.console.as_ref().map(|console| console.pty().clone()),
    });
    Saving { containers: containers.collect(), purpose }
}

/// A process beside the first one.
struct Other {
    kernel: Arc<Kernel>,
    group: Arc<ThreadGroup>,
    console: Option<Arc<Console>>,
}

impl Executed for Other {
    fn pid(&self) -> i32 {
        self.group.pid.own_nr()
    }

    fn signal(&self, signo: i32) {
        let Some(sig) = Signal::new(signo) else { return };
        let _ = self.group.send(SigInfo::new(sig, SI_HOST));
    }

    fn resize(&self, size: WindowSize) {
        if let Some(c) = &self.console {
            c.resize(size);
        }
    }

    fn wait(&self) -> i32 {
        // With the container's end all that is left of its processes is forgotten.
        let over = || self.group.exit_status();
        let waited = Waiter::new().wait_on(&self.group.exit_wait, Events::READABLE, None, over);
        // This waiter is never interrupted.
        let status = waited.unwrap_or(0);
        let _gone = self.kernel.tree.lock().release(self.group.tgid);
        if let Some(c) = &self.console {
            c.finish();
        }
        status
    }
}
