//! `create`: a container that is set up and waits for `start`. `run` begins the same way.

use crate::caller::PassedFd;
use crate::crash::CrashFile;
use crate::directory::{self, Claim, SOCKET};
use crate::groups::Groups;
use crate::image_files::ImageFiles;
use crate::network::Outward;
use crate::pod::Host;
use crate::record::{Record, State, Status};
use crate::stores::Stores;
use crate::{
    Error, Result, Settings, caller, capture, foreground, host_name, id_maps, network, overlay, pid_file,
    pod, run_hooks, sandbox_log, trace, weights,
};
use bundle::{Config, Options, Pod, Prepared};
use netgofer::Policy;
use oci_spec::runtime::{Hooks, LinuxNamespaceType, Spec};
use sandbox::copies::Copies;
use sandbox::launch::{Files, HostHandles, NetGofer, Sandbox, WriteBack, launch};
use sandbox::logging::Sink;
use sandbox::member;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `create` and `run` have in common.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Name for the container.
    pub id: String,
    /// Directory of the bundle.
    pub bundle: PathBuf,
    /// Socket that receives the container's terminal.
    pub console_socket: Option<PathBuf>,
    /// File for the process ID that stands for the container on the host.
    pub pid_file: Option<PathBuf>,
    /// How many of the caller's descriptors the container gets, from 3 on.
    pub preserve_fds: u32,
    /// Further ones, by number.
    pub pass_fds: Vec<PassedFd>,
    /// What the container may reach in host mode.
    pub allow_net: Option<Policy>,
    /// Its control group is called after the container and beside the one that the configuration names, which is another container's.
    pub own_group: bool,
    /// TCP connections of the image with peers outside go on.
    pub keep_tcp: bool,
    /// The image of a checkpoint that it is restored from.
    pub image: Option<Arc<ImageFiles>>,
    /// Its sandbox waits in a pool for its name, its standard streams and what it begins with.
    pub pooled: bool,
}

/// Sets a container up.
pub fn create(settings: &Settings, options: &CreateOptions) -> Result<()> {
    let mut container = set_up(settings, options, Purpose::Create)?;
    container.await_ready()?;
    container.settle(options, Status::Created)
}

/// What a container is set up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be started by `start`.
    Create,
    /// To be started at once, and left in the background.
    RunDetached,
    /// To be started at once; the caller stays with it.
    RunInForeground,
}

impl Purpose {
    fn is_foreground(self) -> bool {
        self == Self::RunInForeground
    }

    /// As logs name it.
    fn command(self) -> &'static str {
        if self == Self::Create { "create" } else { "run" }
    }
}

/// A container that is being set up. Fields are dropped in this order: processes first, then what they are in.
pub(crate) struct NewContainer {
    pub(crate) sandbox: Sandbox,
    pub(crate) groups: Groups,
    pub(crate) stores: Stores,
    /// Writes changes of the root back.
    pub(crate) write_back: Option<WriteBack>,
    /// Attend to the sinks of its trace session.
    pub(crate) attendants: trace::Attendants,
    pub(crate) claim: Claim,
    pub(crate) record: Record,
    pub(crate) hooks: Hooks,
    /// The user's terminal, in the foreground.
    pub(crate) console: Option<OwnedFd>,
    /// Between the standard streams and the container's terminal.
    pub(crate) copies: Option<Copies>,
    /// Where the sandbox's kernel writes when it dies.
    pub(crate) crash: CrashFile,
}

impl NewContainer {
    /// The state, if this were its status.
    pub(crate) fn state(&self, status: Status) -> State {
        State { status, pid: self.sandbox.pid(), ..self.record.state.clone() }
    }

    /// Waits until the kernel inside says that everything up to the start of the first process has worked.
    pub(crate) fn await_ready(&mut self) -> Result<()> {
        self.sandbox.wait_ready()?.map_err(Error::not_started)
    }

    /// Writes everything down and lets the container outlive this command.
    pub(crate) fn settle(mut self, options: &CreateOptions, status: Status) -> Result<()> {
        self.record.state = self.state(status);
        self.claim.container().write(&self.record)?;
        if let Some(file) = &options.pid_file {
            pid_file::write(file, self.sandbox.pid())?;
        }
        let detached = self.sandbox.detach();
        if detached.is_err()
            && let Some(file) = &options.pid_file
        {
            let _ = std::fs::remove_file(file);
        }
        detached?;
        self.groups.keep();
        self.stores.keep();
        self.attendants.keep_logs();
        if let Some(write_back) = self.write_back {
            write_back.keep();
        }
        self.claim.keep();
        Ok(())
    }
}

/// A bundle, read and checked.
struct Bundle {
    prepared: Prepared,
    config: Config,
    hooks: Hooks,
    /// The sandbox to join.
    host: Option<Host>,
}

/// Everything up to a container that is being set up.
///
/// Locals are in the order of [`NewContainer`]'s fields, last first, so that a failure undoes the steps in reverse.
pub(crate) fn set_up(settings: &Settings, options: &CreateOptions, purpose: Purpose) -> Result<NewContainer> {
    let preserved = caller::preserved(options.preserve_fds, &options.pass_fds)?;
    let Bundle { mut prepared, config, hooks, host } = read_bundle(settings, options)?;
    if let (true, Pod::Member(sandbox)) = (options.own_group && prepared.by_network, &prepared.pod) {
        return Err(format!(
            "the bundle names the network namespace of sandbox {sandbox:?}, and a namespace has one network stack: a \
             clone cannot have it, too; save the container with \"checkpoint\", and restore it from a bundle that names \
             another network namespace, or clone it with --pool"
        )
        .into());
    }
    if options.pooled {
        check_pooled(&prepared, &hooks, host.is_some())?;
        prepared.spec.pooled = true;
    }
    let claim = directory::claim(&settings.state_dir(), &options.id)?;
    let mut record = new_record(options, &prepared, purpose.is_foreground())?;
    let (stores, store_fds) = Stores::make(&prepared.stores)?;
    record.set_stores(stores.paths());
    record.set_writes_back(prepared.writes_back());
    if let Pod::Member(sandbox) = &prepared.pod
        && prepared.by_network
    {
        record.set_sandbox(sandbox);
    }
    let mut groups = Groups::new(settings, &config.spec, &options.id)?;
    write_down(&claim, &mut record, &groups, &config.text)?;
    overlay::repair(settings, &prepared, purpose.is_foreground(), &mut |pid| groups.join(pid))?;

    let socket = options.console_socket.as_deref();
    let terminal = prepared.spec.process.terminal;
    let size = prepared.spec.console_size;
    let console = caller::terminal(terminal, socket, size, !purpose.is_foreground())?;
    if let Some(tty) = &console {
        foreground::fit(&mut prepared, tty);
    }
    let (own, copies) = caller::copies(console.as_ref().filter(|_| socket.is_none()))?;
    let capture = match host {
        // The sandbox's own network is captured, or is not.
        Some(_) => None,
        None => capture::open(settings, &mut prepared, purpose.command())?,
    };
    let (traced, mut attendants) = match host {
        Some(_) => (Vec::new(), trace::Attendants::default()),
        None => trace::at_start(settings, &mut prepared, Some(claim.container()))?,
    };
    if let Some(image) = &options.image {
        prepared.restore(image.layers.len(), options.keep_tcp);
    }
    let mut files = Files {
        stdio: if options.pooled { caller::no_stdio()? } else { caller::stdio()? },
        console: match own {
            Some(own) => Some(own),
            None => console.as_ref().map(OwnedFd::try_clone).transpose()?,
        },
        preserved,
        stores: store_fds,
        capture,
        coverage: None,
        trace: traced,
        image: options.image.as_ref().map(|image| image.share()).transpose()?.unwrap_or_default(),
        write_back: None,
        links: Vec::new(),
        control_group: Vec::new(),
    };
    let network = match &host {
        Some(host) => Some(host.network.try_clone()?),
        None => network::named(&prepared)?,
    };
    let outward = if host.is_none() { Outward::of(&mut prepared, options.allow_net.as_ref())? } else { None };
    // A caller that stays watches the terminal itself.
    let elsewhere = console.as_ref().filter(|_| socket.is_some()).map(AsFd::as_fd);
    let log = sandbox_log::open(settings, &options.id, purpose.command(), !purpose.is_foreground())?;
    let crash = match purpose.is_foreground() {
        true => CrashFile::without_name(settings, &options.id),
        false => CrashFile::of(settings, &options.id, claim.container()),
    }?;
    let sandbox = {
        let entrances = groups.entrances();
        let mut join = |pid: i32| groups.join(pid);
        let handles = HostHandles {
            alive: Some(claim.alive()),
            crash: crash.fd(),
            groups: &entrances,
            joined: &mut join,
            network: network.as_ref().map(AsFd::as_fd),
            net_gofer: outward.as_ref().map(|o| NetGofer { setup: &o.setup, outside: o.outside }),
        };
        start_processes(settings, &prepared, host.as_ref(), &log, handles, elsewhere)?
    };
    attendants.start()?;
    let join = &mut |pid| groups.join(pid);
    let mut write_back = overlay::start(settings, &prepared, &log, claim.alive(), join)?;
    files.write_back = write_back.as_mut().and_then(WriteBack::stream);
    files.control_group = groups.limit(&config.spec, &mut prepared, host.is_some())?;
    if let Some(manager) = groups.manager() {
        record.set_groups(manager);
        claim.container().write(&record)?;
        if let Pod::Member(sandbox) = &prepared.pod {
            weights::follow(settings, sandbox, Some(manager));
        }
    }
    record.state.pid = sandbox.pid();
    run_hooks::run_on_create(&hooks, &record.state)?;
    // A new network namespace has what hooks put there, and gets what Docker puts there later.
    if host.is_none() && (network.is_some() || config.spec.hooks().is_some() || !purpose.is_foreground()) {
        files.links = network::show(&mut prepared, sandbox.pid())?;
        if !files.links.is_empty() {
            record.set_serves_network();
        }
    }
    let listener = channel::listen_in(claim.container().dir()?.as_fd(), SOCKET)?;
    sandbox.set_up(&prepared, &files, Some(listener.as_fd()))?;
    let console = console.filter(|_| socket.is_none());
    Ok(NewContainer {
        sandbox,
        groups,
        stores,
        write_back,
        attendants,
        claim,
        record,
        hooks,
        console,
        copies,
        crash,
    })
}

/// Reads the bundle and completes it with what comes from elsewhere: the sandbox to join, names, limits.
fn read_bundle(settings: &Settings, options: &CreateOptions) -> Result<Bundle> {
    let preserve_fds = options.preserve_fds + options.pass_fds.len() as u32;
    let chosen = Options { preserve_fds, ..settings.containers.clone() };
    let owner = |path: &Path| pod::owner_of_network(settings, path);
    let (mut prepared, mut config) = bundle::load(&options.bundle, &options.id, &chosen, &owner)?;
    if options.own_group {
        name_group(&mut config.spec, &options.id);
    }
    let hooks = config.spec.hooks().clone().unwrap_or_default();
    hooks::check(&hooks)?;
    let host = pod::find(settings, &mut prepared)?;
    if let Some(path) = shared_uts(&config.spec)
        && host.is_none()
        && prepared.spec.hostname.is_empty()
    {
        match host_name::read(&path) {
            Ok(name) => prepared.spec.hostname = name,
            Err(error) => log::warn!("host name of {}: {error}", path.display()),
        }
    }
    complete(&mut prepared);
    caller::inherit_limits(&mut prepared.spec.process);
    Ok(Bundle { prepared, config, hooks, host })
}

/// Refuses a bundle with parts that belong to one container, which a pool would have to know before it is taken.
fn check_pooled(prepared: &Prepared, hooks: &Hooks, joins: bool) -> Result<()> {
    let what = if joins || prepared.pod != Pod::None {
        "its annotations make it a container of a pod"
    } else if prepared.spec.process.terminal {
        "process.terminal is true"
    } else if *hooks != Hooks::default() {
        "it has hooks"
    } else {
        return Ok(());
    };
    Err(format!("the bundle cannot have a pool: {what}").into())
}

/// Logs the warnings, and gives a container without a name of its own the host's.
pub(crate) fn complete(prepared: &mut Prepared) {
    for warning in &prepared.warnings {
        log::warn!("{warning}");
    }
    if prepared.spec.hostname.is_empty() {
        prepared.spec.hostname = caller::hostname();
    }
}

/// Writes state and configuration to the container's directory. The control groups are written down before they are
/// made, so that `delete` finds and removes them if this process is killed meanwhile.
fn write_down(claim: &Claim, record: &mut Record, groups: &Groups, text: &str) -> Result<()> {
    if let Some(manager) = groups.manager() {
        record.set_groups(manager);
    }
    claim.container().write(record)?;
    let config = claim.container().path().join(bundle::CONFIG_FILE);
    let written = std::fs::write(&config, text);
    written.map_err(|error| format!("cannot write {}: {error}", config.display()).into())
}

/// Starts the processes of a sandbox, or those of a further container in one, and names the host's uts namespace.
fn start_processes(
    settings: &Settings,
    prepared: &Prepared,
    host: Option<&Host>,
    log: &Sink,
    handles: HostHandles<'_>,
    console: Option<BorrowedFd<'_>>,
) -> Result<Sandbox> {
    let mapping = id_maps::mapping(settings, prepared)?;
    let _limited = caller::limit_descriptors(settings)?;
    let sandbox = match host {
        None => launch(log, mapping, handles)?,
        Some(host) => member::join(log, mapping, handles, (host.dir.as_fd(), SOCKET), console)?,
    };
    let uts = format!("/proc/{}/ns/uts", sandbox.pid());
    if let Err(error) = host_name::write(uts.as_ref(), &prepared.spec.hostname) {
        log::debug!("host name of {uts}: {error}");
    }
    Ok(sandbox)
}

/// Names the control group after the container, beside the one that the configuration names.
fn name_group(spec: &mut Spec, id: &str) {
    let Some(linux) = spec.linux_mut() else { return };
    let Some(path) = linux.cgroups_path().as_ref().and_then(|path| path.to_str()) else { return };
    // systemd's form is SLICE:PREFIX:NAME.
    let at = path.rfind([':', '/']).map_or(0, |at| at + 1);
    let beside = format!("{}{id}", path.get(..at).unwrap_or_default());
    linux.set_cgroups_path(Some(beside.into()));
}

/// The uts namespace that a container is to share.
fn shared_uts(spec: &Spec) -> Option<PathBuf> {
    let all = spec.linux().as_ref()?.namespaces().as_ref()?;
    all.iter().find(|namespace| namespace.typ() == LinuxNamespaceType::Uts)?.path().clone()
}

fn new_record(options: &CreateOptions, prepared: &Prepared, foreground: bool) -> Result<Record> {
    let state = State {
        oci_version: bundle::VERSION.into(),
        id: options.id.clone(),
        pid: 0,
        status: Status::Creating,
        bundle: options.bundle.canonicalize()?,
        rootfs: prepared.trees.first().map_or_else(PathBuf::new, |tree| tree.path.clone()),
        created: sandbox::logging::timestamp(),
        annotations: prepared.annotations.clone(),
        owner: own_name(),
    };
    Ok(Record { state, foreground, runtime: None })
}

/// The name of this process's user.
pub(crate) fn own_name() -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_name(&passwd, rustix::process::getuid().as_raw())
}

/// A user's name as a text like /etc/passwd has it, or the number.
fn user_name(passwd: &str, uid: u32) -> String {
    let number = uid.to_string();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&number));
    line.and_then(|line| line.split(':').next()).unwrap_or(&number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;

    #[test]
    fn users_have_names() {
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000), "me");
        assert_eq!(user_name(passwd, 1001), "1001");
    }

    #[test]
    fn a_group_of_its_own_is_beside_the_other() {
        for (path, beside) in [("/a/b", "/a/new"), ("b", "new"), ("a.slice:docker:b", "a.slice:docker:new")] {
            let spec = serde_json::json!({ "ociVersion": "1.0.2", "linux": { "cgroupsPath": path } });
            let mut spec: Spec = serde_json::from_value(spec).unwrap();
            name_group(&mut spec, "new");
            assert_eq!(spec.linux().as_ref().unwrap().cgroups_path(), &Some(beside.into()));
        }
    }

    #[test]
    fn the_uts_namespace_to_share_is_found() {
        let with = |namespaces: serde_json::Value| {
            let spec = serde_json::json!({ "ociVersion": "1.0.2", "linux": { "namespaces": namespaces } });
            shared_uts(&serde_json::from_value(spec).unwrap())
        };
        assert_eq!(with(serde_json::json!([{ "type": "uts" }])), None);
        let shared = with(serde_json::json!([{ "type": "pid" }, { "type": "uts", "path": "/n" }]));
        assert_eq!(shared, Some("/n".into()));
    }

    #[test]
    fn a_bundle_that_is_none_leaves_nothing() {
        let dir = StateDir::new("create");
        let options =
            CreateOptions { id: "x".into(), bundle: "/nonexistent".into(), ..CreateOptions::default() };
        let error = create(&dir.settings(), &options).unwrap_err();
        assert!(error.message().starts_with("bundle directory /nonexistent: "), "{error}");
        assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0);
    }
}
