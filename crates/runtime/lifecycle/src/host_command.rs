//! `do`: a container in the foreground that has no state on disk, unless a metric server is to see it.

use crate::crash::CrashFile;
use crate::directory::{Claim, SOCKET};
use crate::groups::Groups;
use crate::network::Outward;
use crate::record::{Record, State, Status};
use crate::stores::Stores;
use crate::{Result, Settings, caller, capture, create, directory, foreground, id_maps, sandbox_log, trace};
use bundle::Prepared;
use hostsys::signals::SignalFd;
use netgofer::Policy;
use oci_spec::runtime::Spec;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, kill_process};
use sandbox::launch::{Files, HostHandles, NetGofer, Sandbox, launch};
use spec::Refusal;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
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

/// Runs a prepared container, which may reach `allow_net` in host mode, and returns its exit status. `signals` comes from
/// [`block_signals`](crate::block_signals). `changes` is told what the command has changed in its root, once that has ended, and
/// `coverage` what it asked for and did not get.
pub fn run_host_command(
    settings: &Settings,
    mut prepared: Prepared,
    allow_net: Option<&Policy>,
    limits: &HostLimits,
    signals: &SignalFd,
    changes: Option<ChangeList>,
    coverage: Option<CoverageReport<'_>>,
) -> Result<u8> {
    create::complete(&mut prepared);
    let wanted = limits.spec();
    let mut watched = settings.watched.then(|| Watched::new(settings, &prepared.spec.id)).transpose()?;
    let mut groups = Groups::of_command(settings, wanted.as_ref(), &prepared.spec.id)?;
    let outward = Outward::of(&mut prepared, allow_net)?;
    let console = if prepared.spec.process.terminal { Some(caller::own_terminal()?) } else { None };
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
    let mut files = Files {
        stdio: caller::stdio()?,
        console: console.as_ref().map(OwnedFd::try_clone).transpose()?,
        preserved: Vec::new(),
        stores,
        capture,
        coverage: report.as_ref().map(|report| report.try_clone()).transpose()?.map(OwnedFd::from),
        trace: traced,
        image: Vec::new(),
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
    let sandbox = launch(&log, id_maps::mapping(settings, &prepared)?, handles)?;
    drop(limited);
    attendants.start()?;
    if let Some(wanted) = &wanted {
        files.control_group = groups.limit(wanted, &mut prepared, false)?;
    }
    if let Some(watched) = &mut watched {
        watched.listen(&sandbox, &groups)?;
    }
    sandbox.set_up(&prepared, &files, None)?;
    drop((files, log));
    let changes = changes.zip(listed).map(|(tell, from)| read_changes(from, tell)).transpose()?;
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
    match expired.is_some_and(|expired| expired.load(Ordering::SeqCst)) {
        true => Ok(TIMED_OUT),
        false => status,
    }
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
