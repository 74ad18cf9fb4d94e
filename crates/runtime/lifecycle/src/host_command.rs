//! `do`: a container in the foreground that has no state on disk, unless a metric server is to see it.

use crate::checkpoint::save_and_end;
use crate::crash::CrashFile;
use crate::directory::{Claim, SOCKET};
use crate::find::connect;
use crate::groups::Groups;
use crate::image_files::ImageFiles;
use crate::network::Outward;
use crate::record::{Record, State, Status};
use crate::sessions::Session;
use crate::snapshots::{NewSnapshot, SavedCommand, Snapshot};
use crate::stores::Stores;
use crate::{
    Error, Result, Settings, caller, capture, create, directory, foreground, id_maps, sandbox_log, trace,
};
use bundle::Prepared;
use hostsys::signals::SignalFd;
use netgofer::Policy;
use oci_spec::runtime::Spec;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, kill_process};
use sandbox::client::Client;
use sandbox::launch::{Files, HostHandles, NetGofer, Sandbox, launch};
use sandbox::terminal::{self, RawMode};
use spec::{AfterCheckpoint, ProcessSpec, Refusal};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use writeback::Change;

/// Exit status of a command that ran out of time, as timeout(1) has it.
const TIMED_OUT: u8 = 124;
/// How long a command may take to end after SIGTERM then.
const GRACE: Duration = Duration::from_secs(10);
/// The period of a processor limit in microseconds.
const PERIOD: u64 = 100_000;

/// Limits of a command.
#[derive(Clone, Debug, Default)]
pub struct HostLimits {
    /// Bytes of memory.
    pub memory: Option<i64>,
    /// Processors.
    pub cpus: Option<f64>,
    /// How long it may run.
    pub timeout: Option<Duration>,
}

impl HostLimits {
    /// A configuration with those that a control group keeps, if there are any.
    fn spec(&self) -> Option<Spec> {
        if self.memory.is_none() && self.cpus.is_none() {
            return None;
        }
        let memory = self.memory.map(|limit| serde_json::json!({ "limit": limit, "swap": limit }));
        let quota = |cpus: f64| (cpus * PERIOD as f64) as i64;
        let cpu = self.cpus.map(|cpus| serde_json::json!({ "quota": quota(cpus), "period": PERIOD }));
        let mut resources = serde_json::Map::new();
        resources.extend(memory.map(|memory| ("memory".to_string(), memory)));
        resources.extend(cpu.map(|cpu| ("cpu".to_string(), cpu)));
        let spec = serde_json::json!({ "ociVersion": "1.2.0", "linux": { "resources": resources } });
        serde_json::from_value(spec).ok()
    }
}

/// Is told each name that has changed, as an absolute path.
pub type ChangeList = Box<dyn FnMut(Change, &[u8]) -> io::Result<()> + Send>;

/// Is told what the command asked for and did not get.
pub type CoverageReport<'a> = Box<dyn FnOnce(Vec<Refusal>) -> Result<()> + 'a>;

/// Most bytes that the kernel may write about that.
const MAX_COVERAGE: u64 = 4 << 20;

/// What a command has to do with a snapshot.
#[derive(Debug, Default)]
pub enum HostSnapshot {
    /// Nothing.
    #[default]
    None,
    /// One is made of it, which ends it.
    Make {
        /// The snapshot.
        new: NewSnapshot,
        /// What it is to say of the command.
        saved: Box<SavedCommand>,
        /// It is made once all programs have waited for a second; otherwise when one asks for it.
        idle: bool,
    },
    /// It goes on from one.
    From {
        /// The snapshot.
        snapshot: Box<Snapshot>,
        /// A further program, which the sandbox ends with, and whether it has a terminal. The programs of the snapshot then have
        /// none of the caller's standard input.
        program: Option<(Vec<String>, bool)>,
    },
    /// It runs in a session, and is saved there at its end. The command of the sandbox waits meanwhile.
    Step {
        /// The session.
        session: Session,
        /// The image of the present step, if there is one.
        image: Option<ImageFiles>,
        /// The program, and whether it has a terminal.
        program: (Vec<String>, bool),
    },
}

impl HostSnapshot {
    /// A program beside those of the sandbox, and whether it has a terminal.
    fn program(&self) -> Option<(&[String], bool)> {
        match self {
            HostSnapshot::From { program: Some((args, terminal)), .. }
            | HostSnapshot::Step { program: (args, terminal), .. } => Some((args, *terminal)),
            _ => None,
        }
    }

    /// The image that the sandbox begins with.
    fn image(&self) -> Option<&ImageFiles> {
        match self {
            HostSnapshot::From { snapshot, .. } => Some(&snapshot.image),
            HostSnapshot::Step { image, .. } => image.as_ref(),
            _ => None,
        }
    }
}

/// How a command is run.
#[derive(Default)]
pub struct HostRun<'a> {
    /// What it may reach in host mode.
    pub allow_net: Option<&'a Policy>,
    /// Its limits.
    pub limits: HostLimits,
    /// Its user has given it a name, by which other commands are to find it.
    pub named: bool,
    /// Is told what it has changed in its root, once it has ended.
    pub changes: Option<ChangeList>,
    /// Is told what it asked for and did not get.
    pub coverage: Option<CoverageReport<'a>>,
    /// Its snapshot.
    pub snapshot: HostSnapshot,
}

/// Runs a prepared container and returns its exit status. `signals` comes from [`block_signals`](crate::block_signals).
pub fn run_host_command(
    settings: &Settings,
    mut prepared: Prepared,
    run: HostRun<'_>,
    signals: &SignalFd,
) -> Result<u8> {
    let HostRun { allow_net, limits, named, changes, coverage, snapshot } = run;
    create::complete(&mut prepared);
    let wanted = limits.spec();
    // What makes a snapshot, or starts a further program, does so over a connection.
    let further = snapshot.program().is_some();
    let connects = further || matches!(snapshot, HostSnapshot::Make { .. });
    let must = settings.watched || connects;
    let mut watched = match (must || named).then(|| Watched::new(settings, &prepared.spec.id)).transpose() {
        Ok(watched) => watched,
        // The name is there for logs, too.
        Err(error) if !must => {
            log::warn!("other commands do not find {:?}: {error}", prepared.spec.id);
            None
        }
        Err(error) => return Err(error),
    };
    let mut groups = Groups::of_command(settings, wanted.as_ref(), &prepared.spec.id)?;
    let outward = Outward::of(&mut prepared, allow_net)?;
    let wants_terminal = snapshot.program().map_or(prepared.spec.process.terminal, |(_, terminal)| terminal);
    let console = if wants_terminal { Some(caller::own_terminal()?) } else { None };
    if let Some(tty) = &console {
        foreground::fit(&mut prepared, tty);
    }
    let (_stores, stores) = Stores::make(&prepared.stores)?;
    let (listed, write_back) = match changes.is_some().then(|| pipe_with(PipeFlags::CLOEXEC)).transpose()? {
        Some((from, to)) => (Some(from), Some(to)),
        None => (None, None),
    };
    if write_back.is_some() {
        prepared.list_changes();
    }
    let capture = capture::open(settings, &mut prepared, "do")?;
    let mut report = coverage
        .is_some()
        .then(|| memfd_create("coverage", MemfdFlags::CLOEXEC))
        .transpose()?
        .map(File::from);
    if report.is_some() {
        prepared.tell_coverage();
    }
    let (traced, mut attendants) = trace::at_start(settings, &mut prepared, None)?;
    let image = match snapshot.image() {
        Some(image) => {
            prepared.restore(image.layers.len(), false);
            image.share()?
        }
        None => Vec::new(),
    };
    let (stdio, _input) = match further {
        true => caller::output_alone().map(|(stdio, input)| (stdio, Some(input)))?,
        false => (caller::stdio()?, None),
    };
    let mut files = Files {
        stdio,
        console: console.as_ref().filter(|_| !further).map(OwnedFd::try_clone).transpose()?,
        preserved: Vec::new(),
        stores,
        capture,
        coverage: report.as_ref().map(|report| report.try_clone()).transpose()?.map(OwnedFd::from),
        trace: traced,
        image,
        write_back,
        links: Vec::new(),
        control_group: Vec::new(),
    };
    let log = sandbox_log::open(settings, &prepared.spec.id, "do", false)?;
    let net_gofer = outward.as_ref().map(|o| NetGofer { setup: &o.setup, outside: o.outside });
    let entrances = groups.entrances();
    let join = &mut |pid| groups.join(pid);
    let alive = watched.as_ref().map(|watched| watched.claim.alive());
    let crash = CrashFile::without_name(settings, &prepared.spec.id)?;
    let handles =
        HostHandles { alive, crash: crash.fd(), groups: &entrances, joined: join, network: None, net_gofer };
    let limited = caller::limit_descriptors(settings)?;
    let mut sandbox = launch(&log, id_maps::mapping(settings, &prepared)?, handles)?;
    drop(limited);
    attendants.start()?;
    if let Some(wanted) = &wanted {
        files.control_group = groups.limit(wanted, &mut prepared, false)?;
        // A later command of a snapshot may have other limits, or none, and the mounts of the first.
        if matches!(snapshot, HostSnapshot::None) {
            prepared.mount_own_group();
        }
    }
    if let Some(watched) = &mut watched {
        watched.listen(&sandbox, &groups)?;
    }
    sandbox.set_up(&prepared, &files, None)?;
    drop((files, log));
    let changes = changes.zip(listed).map(|(tell, from)| read_changes(from, tell)).transpose()?;
    if connects {
        sandbox.wait_ready()?.map_err(Error::not_started)?;
    }
    let mut _in_use = None;
    let maker = match (snapshot, &watched) {
        (HostSnapshot::Make { new, saved, idle }, Some(watched)) => {
            Some(make_snapshot(connect(watched.claim.container())?, new, saved, idle)?)
        }
        (snapshot, Some(watched)) if further => {
            let container = watched.claim.container();
            let args = snapshot.program().map(|(args, _)| args.to_vec()).unwrap_or_default();
            sandbox.start_now()?.map_err(Error::not_started)?;
            if let HostSnapshot::Step { session, image: None, .. } = &snapshot {
                session.save(&connect(container)?, &[], 0, AfterCheckpoint::GoesOn)?;
            }
            let process = ProcessSpec {
                args: args.clone(),
                terminal: console.is_some(),
                ..prepared.spec.process.clone()
            };
            let expired = limits.timeout.map(|time| expire(time, sandbox.pid())).transpose()?;
            let status = run_further(connect(container)?, &process, console.as_ref(), signals);
            if is_expired(expired) {
                return Ok(TIMED_OUT);
            }
            if let (HostSnapshot::Step { session, .. }, Ok(status)) = (&snapshot, &status) {
                save_step(session, &connect(container)?, &args, *status)?;
            }
            drop((sandbox, snapshot));
            attendants.wait();
            return status;
        }
        (HostSnapshot::From { snapshot, .. }, _) => {
            _in_use = Some(snapshot);
            None
        }
        _ => None,
    };
    sandbox.start()?;
    if let Some(watched) = &mut watched {
        watched.runs()?;
    }
    let expired = limits.timeout.map(|time| expire(time, sandbox.pid())).transpose()?;
    let status = foreground::attend(sandbox, signals, console.as_ref(), &crash, || attendants.keep_logs());
    if let Some(changes) = changes {
        match changes.join() {
            Ok(Ok(())) => {}
            // Nothing ran that could have changed anything.
            _ if status.is_err() => {}
            _ => log::warn!(
                "--diff: the list of changes is not whole: the sandbox was ended before it was told"
            ),
        }
    }
    attendants.wait();
    if let (Some(tell), Some(report)) = (coverage, &mut report) {
        match refusals(report) {
            Ok(all) => tell(all)?,
            // Nothing ran that could have asked for anything.
            Err(_) if status.is_err() => {}
            Err(error) => log::warn!("--coverage: the sandbox was ended before it told it: {error}"),
        }
    }
    if groups.ran_out_of_memory() {
        log::warn!("memory ran out: --memory is too little for what was run, and a process was ended");
    }
    if is_expired(expired) {
        return Ok(TIMED_OUT);
    }
    match maker.map(JoinHandle::join) {
        Some(Ok(made)) => status.and_then(|_| made.map(|()| 0)),
        Some(Err(_)) => Err("making the snapshot failed".into()),
        None => status,
    }
}

/// Whether the time of a command was over.
fn is_expired(expired: Option<Arc<AtomicBool>>) -> bool {
    expired.is_some_and(|expired| expired.load(Ordering::SeqCst))
}

/// Makes a snapshot, in a thread, when it is time.
fn make_snapshot(
    client: Client,
    new: NewSnapshot,
    saved: Box<SavedCommand>,
    idle: bool,
) -> Result<JoinHandle<Result<()>>> {
    client.attend_requests(idle)?;
    let make = move || {
        client.await_request().map_err(|_| {
            "the command has ended, and there is no snapshot: it is made when a program writes 1 to \
             /proc/gvisor/checkpoint, or with --when=idle"
        })?;
        save_and_end(&client, &new.image())?;
        new.finish(&saved)
    };
    Ok(std::thread::Builder::new().name("snapshot".into()).spawn(make)?)
}

/// Saves a step.
fn save_step(session: &Session, client: &Client, args: &[String], status: u8) -> Result<()> {
    session.save(client, args, status, AfterCheckpoint::Ends).map_err(|error| {
        Error::with_status(error.status(), format!("the session stays as it was before the command: {error}"))
    })
}

/// Runs a further program; its exit status.
fn run_further(
    client: Client,
    process: &ProcessSpec,
    console: Option<&OwnedFd>,
    signals: &SignalFd,
) -> Result<u8> {
    let stdio = caller::stdio()?;
    let files: Vec<BorrowedFd<'_>> = match console {
        Some(tty) => vec![tty.as_fd()],
        None => stdio.iter().map(AsFd::as_fd).collect(),
    };
    let running = client.exec(process, &files, console.map(terminal::size)).map_err(|error| match error {
        sandbox::client::Error::Refused(error) => Error::not_started(error),
        error => error.into(),
    })?;
    drop(stdio);
    let _raw = console.map(RawMode::enter).transpose()?;
    Ok(running.wait(signals, console.map(AsFd::as_fd))?)
}

/// What a kernel has written that a guest may have taken over.
fn refusals(report: &mut File) -> io::Result<Vec<Refusal>> {
    report.rewind()?;
    let mut text = Vec::new();
    report.take(MAX_COVERAGE).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// A command that has a place in the state directory, as a container in the foreground has. It goes with this.
struct Watched {
    claim: Claim,
    record: Record,
}

impl Watched {
    fn new(settings: &Settings, id: &str) -> Result<Self> {
        let claim = directory::claim(&settings.state_dir(), id)?;
        let state = State {
            oci_version: "1.2.0".into(),
            id: id.into(),
            pid: 0,
            status: Status::Creating,
            bundle: std::env::current_dir().unwrap_or_default(),
            rootfs: "/".into(),
            created: sandbox::logging::timestamp(),
            annotations: BTreeMap::new(),
            owner: create::own_name(),
        };
        let record = Record { state, foreground: true, runtime: None };
        claim.container().write(&record)?;
        Ok(Self { claim, record })
    }

    /// Has the sandbox accept connections.
    fn listen(&mut self, sandbox: &Sandbox, groups: &Groups) -> Result<()> {
        if let Some(manager) = groups.manager() {
            self.record.set_groups(manager);
        }
        self.record.state.pid = sandbox.pid();
        let listener = channel::listen_in(self.claim.container().dir()?.as_fd(), SOCKET)?;
        Ok(sandbox.listen(listener.as_fd())?)
    }

    /// The command has been started.
    fn runs(&mut self) -> Result<()> {
        self.record.state.status = Status::Running;
        self.claim.container().write(&self.record)?;
        self.claim.unlock();
        Ok(())
    }
}

/// Reads what the sandbox lists at its end, in a thread: the pipe holds less than that may be.
fn read_changes(from: OwnedFd, mut tell: ChangeList) -> Result<JoinHandle<io::Result<()>>> {
    let read = move || {
        let mut from = BufReader::with_capacity(256 << 10, File::from(from));
        writeback::list(&mut from, &mut tell)
    };
    Ok(std::thread::Builder::new().name("changes".into()).spawn(read)?)
}

/// Ends the command after a time: SIGTERM to this process is passed on, SIGKILL to the sandbox's first process, a child of this
/// one, ends it with all that is in it. The flag says whether it came to that.
fn expire(after: Duration, sandbox: i32) -> Result<Arc<AtomicBool>> {
    let expired = Arc::new(AtomicBool::new(false));
    let set = expired.clone();
    let run = move || {
        std::thread::sleep(after);
        set.store(true, Ordering::SeqCst);
        log::warn!("the time of --timeout is over");
        let _ = kill_process(getpid(), Signal::TERM);
        std::thread::sleep(GRACE);
        if let Some(pid) = Pid::from_raw(sandbox) {
            let _ = kill_process(pid, Signal::KILL);
        }
    };
    std::thread::Builder::new().name("timeout".into()).stack_size(64 << 10).spawn(run)?;
    Ok(expired)
}
