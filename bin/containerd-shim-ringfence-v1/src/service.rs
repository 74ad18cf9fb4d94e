//! The shim as containerd starts it: `start`, `delete`, and the one that stays.

use crate::events::Events;
use crate::exits::Exits;
use crate::options::Settings;
use crate::runtime::Runtime;
use crate::task::Api;
use crate::tasks::Tasks;
use containerd_shim::api::DeleteResponse;
use containerd_shim::monitor::{ExitEvent, Subject, Topic, monitor_subscribe};
use containerd_shim::protos::protobuf::Message;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::publisher::RemotePublisher;
use containerd_shim::util::{timestamp, write_address};
use containerd_shim::{Config, Error, ExitSignal, Flags, Shim, StartOpts, spawn};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// glibc's variable for the number of heaps: one is enough for the shim, whose threads do little.
pub(crate) const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Annotations that put containers into one shim, the first that is there.
const GROUPS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];

/// After how long without work the shim gives memory back.
const IDLE: Duration = Duration::from_secs(2);

/// Exit status of a container that is removed by force.
const KILLED: u32 = 128 + 9;

pub(crate) struct Service {
    id: String,
    namespace: String,
    bundle: PathBuf,
    socket: String,
    exit: Arc<ExitSignal>,
    /// The events of the shim that stays.
    events: Mutex<Option<Events>>,
}

/// Has every child's end noted, and those that are no command's told to `others`.
fn watch(exits: Arc<Exits>, others: impl Fn(i32, i32) + Send + 'static) -> Result<(), Error> {
    let subscription = monitor_subscribe(Topic::All)?;
    let work = move || {
        let mut idle = false;
        loop {
            let told = if idle {
                subscription.rx.recv().map_err(RecvTimeoutError::from)
            } else {
                subscription.rx.recv_timeout(IDLE)
            };
            idle = matches!(told, Err(RecvTimeoutError::Timeout));
            if idle {
                // Every request but the cheapest comes with a child's end, so there has been none for a while.
                hostsys::image::forget_start();
                hostsys::heap::shrink();
                continue;
            }
            let Ok(ExitEvent { subject, exit_code }) = told else { return };
            if let Subject::Pid(pid) = subject
                && exits.note(pid, exit_code)
            {
                others(pid, exit_code);
            }
        }
    };
    let started = std::thread::Builder::new().name("exits".into()).spawn(work);
    started.map(drop).map_err(|error| Error::Other(format!("thread: {error}")))
}

impl Shim for Service {
    type T = Api;

    fn new(_runtime_id: &str, args: &Flags, config: &mut Config) -> Self {
        config.default_log_level = "info".into();
        let bundle = match args.bundle.as_str() {
            "" => std::env::current_dir().unwrap_or_default(),
            path => path.into(),
        };
        Self {
            id: args.id.clone(),
            namespace: args.namespace.clone(),
            bundle,
            socket: args.socket.clone(),
            exit: Arc::default(),
            events: Mutex::default(),
        }
    }

    fn start_shim(&mut self, opts: StartOpts) -> Result<String, Error> {
        let group = group(&self.bundle).unwrap_or_else(|| opts.id.clone());
        let address = containerd_shim::socket_address(&opts.address, &opts.namespace, &group);
        if connects(&address) {
            write_address(&address)?;
            return Ok(address);
        }
        let settings = early_settings();
        let (pid, address) = spawn(opts, &group, vec![(ARENAS, "1")])?;
        write_address(&address)?;
        let _ = std::fs::write("shim.pid", pid.to_string());
        adjust(pid, &settings).map_err(|error| {
            if let Some(pid) = Pid::from_raw(pid as i32) {
                let _ = kill_process(pid, Signal::KILL);
            }
            let _ = std::fs::remove_file(path_of(&address));
            Error::Other(error)
        })?;
        Ok(address)
    }

    fn delete_shim(&mut self) -> Result<DeleteResponse, Error> {
        let settings = match Settings::load(&self.bundle) {
            Some(settings) => settings,
            None => Settings::from_any(None).map_err(Error::Other)?,
        };
        let exits = Arc::new(Exits::default());
        watch(exits.clone(), |_, _| ())?;
        let runtime = Runtime::new(&settings, &self.namespace, &self.bundle, exits).map_err(Error::Other)?;
        let pid = std::fs::read_to_string(self.bundle.join(crate::tasks::PID_FILE)).unwrap_or_default();
        runtime.run(&["delete", "--force", &self.id], &[]).map_err(Error::Other)?;
        crate::tasks::unmount(&self.bundle.join("rootfs"));
        if let Ok(address) = std::fs::read_to_string(self.bundle.join("address"))
            && !connects(&address)
        {
            // Of the shim that has died.
            let _ = std::fs::remove_file(path_of(&address));
        }
        Ok(DeleteResponse {
            pid: pid.parse().unwrap_or(0),
            exit_status: KILLED,
            exited_at: Some(timestamp()?).into(),
            ..DeleteResponse::default()
        })
    }

    fn wait(&mut self) {
        self.exit.wait();
        if let Some(events) = self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            events.finish();
        }
        // The crate would look for its name in the bundle, which may be gone, and wait for its threads, of which some wait
        // for each other. The answer to the request that ends us is on its way.
        let _ = std::fs::remove_file(path_of(&self.socket));
        std::thread::sleep(Duration::from_millis(20));
        std::process::exit(0);
    }

    fn create_task_service(&self, publisher: RemotePublisher) -> Self::T {
        drop(publisher);
        let events = Events::new(self.namespace.clone());
        let mut kept = self.events.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *kept = Some(events.clone());
        let exits = Arc::new(Exits::default());
        let tasks = Arc::new(Tasks::new(self.namespace.clone(), exits.clone(), events, self.exit.clone()));
        let told = tasks.clone();
        if let Err(error) = watch(exits, move |pid, status| told.ended(pid, status)) {
            log::error!("{}: {error}", self.id);
        }
        Api(tasks)
    }
}

fn path_of(address: &str) -> &str {
    address.strip_prefix("unix://").unwrap_or(address)
}

/// Whether a shim serves there.
fn connects(address: &str) -> bool {
    UnixStream::connect(path_of(address)).is_ok()
}

/// What the container's configuration says of the shim that it belongs to.
fn group(bundle: &Path) -> Option<String> {
    let text = std::fs::read(bundle.join("config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let annotations = config.get("annotations")?;
    GROUPS.iter().find_map(|name| Some(annotations.get(name)?.as_str()?.to_string()))
}

/// The options as some versions of containerd send them to `start` already; `create` gets them in any case, and
/// tells what is wrong with them.
fn early_settings() -> Settings {
    let mut bytes = Vec::new();
    if !std::io::stdin().is_terminal() {
        let _ = std::io::stdin().lock().take(1 << 20).read_to_end(&mut bytes);
    }
    let any = Any::parse_from_bytes(&bytes).unwrap_or_default();
    Settings::from_any(Some(&any)).unwrap_or_default()
}

/// What the new shim is to be on the host.
fn adjust(pid: u32, settings: &Settings) -> Result<(), String> {
    // Rather the shim than containerd, and rather the container than the shim.
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
    let score = std::fs::read_to_string(format!("/proc/{parent}/oom_score_adj")).unwrap_or_default();
    if let Ok(score) = score.trim().parse::<i32>() {
        let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), (score + 1).min(1000).to_string());
    }
    if settings.shim_cgroup.is_empty() {
        return Ok(());
    }
    let mut linux = oci_spec::runtime::Linux::default();
    linux.set_cgroups_path(Some(settings.shim_cgroup.clone().into()));
    let told = |error: cgroups::Error| format!("ShimCgroup {}: {error}", settings.shim_cgroup);
    let mut group = cgroups::Manager::new(Some(&linux), "shim", false, false).map_err(told)?;
    group.apply(pid).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_share_a_shim() {
        let dir = std::env::temp_dir().join(format!("ringfence-shim-group-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let config = dir.join("config.json");
        let group_of = |text: &str| {
            std::fs::write(&config, text).unwrap();
            group(&dir)
        };
        assert_eq!(group_of("{}"), None);
        assert_eq!(group_of(r#"{"annotations":{"other":"x"}}"#), None);
        let pod = r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}"#;
        assert_eq!(group_of(pod).as_deref(), Some("pod"));
        let both =
            r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"p","io.containerd.runc.v2.group":"g"}}"#;
        assert_eq!(group_of(both).as_deref(), Some("g"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
