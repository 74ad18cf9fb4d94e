//! The shim as containerd starts it: `start`, `delete`, and the one that stays.

use crate::events::Events;
use crate::exit_signal::ExitSignal;
use crate::exits::Exits;
use crate::flags::Flags;
use crate::options::Settings;
use crate::runtime::{ARENAS, Runtime};
use crate::task::Api;
use crate::tasks::Tasks;
use crate::time::timestamp;
use crate::{address, shim_log};
use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::ttrpc::Server;
use containerd_shim_protos::{Task, create_task};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{IsTerminal, Read, Write};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Annotations that put containers into one shim, the first that is there.
const GROUPS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];

/// After how long without work the shim gives memory back.
const IDLE: Duration = Duration::from_secs(2);

/// What a thread needs of a stack that only waits.
const STACK: usize = 64 << 10;

/// Exit status of a container that is removed by force.
const KILLED: u32 = 128 + 9;

/// Does what the command line says.
pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    std::env::var("TTRPC_ADDRESS").map_err(|_| "TTRPC_ADDRESS is not set, where containerd takes events")?;
    // At shutdown the host sends SIGTERM to every process. The shim stays until containerd ends it.
    hostsys::signals::overlook(&[libc::SIGTERM, libc::SIGINT]);
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("subreaper: {error}"))?;
    match flags.action.as_str() {
        "start" => {
            let address = start(flags)?;
            std::io::stdout().write_all(address.as_bytes()).map_err(|error| error.to_string())
        }
        "delete" => {
            let answer = delete(flags)?.write_to_bytes().map_err(|error| error.to_string())?;
            std::io::stdout().write_all(&answer).map_err(|error| error.to_string())
        }
        _ => serve(flags),
    }
}

/// Has every child's end noted, and those that are no command's told to `others`.
fn watch(exits: Arc<Exits>, others: impl Fn(i32, i32) + Send + 'static) -> Result<(), String> {
    let (sender, receiver) = channel();
    let reaper = exits.clone();
    // An end that has no listener any more is dropped.
    let reap = move || {
        reaper.reap(|pid, status| {
            let _ = sender.send((pid, status));
        });
    };
    let work = move || {
        let mut idle = false;
        loop {
            let told = if idle {
                receiver.recv().map_err(RecvTimeoutError::from)
            } else {
                receiver.recv_timeout(IDLE)
            };
            idle = matches!(told, Err(RecvTimeoutError::Timeout));
            if idle {
                // Every request but the cheapest comes with a child's end, so there has been none for a while.
                hostsys::image::forget_start();
                hostsys::heap::shrink();
                continue;
            }
            let Ok((pid, status)) = told else { return };
            if exits.note(pid, status) {
                others(pid, status);
            }
        }
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let started = thread("exits").spawn(work).and_then(|_| thread("reaper").stack_size(STACK).spawn(reap));
    started.map(drop).map_err(|error| format!("thread: {error}"))
}

fn bundle(flags: &Flags) -> PathBuf {
    match flags.bundle.as_str() {
        "" => std::env::current_dir().unwrap_or_default(),
        path => path.into(),
    }
}

/// `start`: the address of the shim that serves the container, which is started unless it is there.
fn start(flags: &Flags) -> Result<String, String> {
    let group = group(&bundle(flags)).unwrap_or_else(|| flags.id.clone());
    let address = address::of(&flags.address, &flags.namespace, &group);
    let write = || address::write(&address).map_err(|error| format!("address: {error}"));
    if address::connects(&address) {
        write()?;
        return Ok(address);
    }
    let settings = early_settings();
    let pid = spawn(flags, &address).map_err(|error| format!("cannot start the shim that stays: {error}"))?;
    write()?;
    let _ = std::fs::write("shim.pid", pid.to_string());
    adjust(pid, &settings).inspect_err(|_| {
        if let Some(pid) = Pid::from_raw(pid as i32) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = std::fs::remove_file(address::path(&address));
    })?;
    Ok(address)
}

/// Starts the shim that stays and waits until it serves: it closes its standard output then.
fn spawn(flags: &Flags, address: &str) -> std::io::Result<u32> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["-namespace", &flags.namespace, "-id", &flags.id, "-address", &flags.address])
        .args(["-socket", address])
        .args(flags.debug.then_some("-debug"))
        .env(ARENAS, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    if let Some(mut output) = child.stdout.take() {
        std::io::copy(&mut output, &mut std::io::stderr())?;
    }
    Ok(child.id())
}

/// `delete`: cleans up after a shim that has died.
fn delete(flags: &Flags) -> Result<DeleteResponse, String> {
    let bundle = bundle(flags);
    let settings = match Settings::load(&bundle) {
        Some(settings) => settings,
        None => Settings::from_any(None)?,
    };
    let exits = Arc::new(Exits::default());
    watch(exits.clone(), |_, _| ())?;
    let runtime = Runtime::new(&settings, &flags.namespace, &bundle, exits)?;
    let pid = std::fs::read_to_string(bundle.join(crate::tasks::PID_FILE)).unwrap_or_default();
    runtime.run(&["delete", "--force", &flags.id], &[])?;
    crate::tasks::unmount(&bundle.join("rootfs"));
    if let Ok(address) = address::read(&bundle)
        && !address::connects(&address)
    {
        // Of the shim that has died.
        let _ = std::fs::remove_file(address::path(&address));
    }
    Ok(DeleteResponse {
        pid: pid.parse().unwrap_or(0),
        exit_status: KILLED,
        exited_at: Some(timestamp()).into(),
        ..DeleteResponse::default()
    })
}

/// The shim that stays, until containerd ends it.
fn serve(flags: &Flags) -> Result<(), String> {
    if flags.socket.is_empty() {
        return Err("-socket is missing, which start gives".into());
    }
    shim_log::start(flags.debug).map_err(|error| format!("log: {error}"))?;
    let listener = address::listen(&flags.socket).map_err(|error| format!("{}: {error}", flags.socket))?;
    let Some(listener) = listener else {
        // Another one was faster.
        address::write(&flags.socket).map_err(|error| format!("address: {error}"))?;
        return say_ready();
    };
    let events = Events::new(flags.namespace.clone());
    let exits = Arc::new(Exits::default());
    let exit = Arc::new(ExitSignal::default());
    let tasks = Arc::new(Tasks::new(flags.namespace.clone(), exits.clone(), events.clone(), exit.clone()));
    let told = tasks.clone();
    watch(exits, move |pid, status| told.ended(pid, status))?;
    let service: Box<dyn Task + Send + Sync> = Box::new(Api(tasks));
    let mut server = Server::new()
        .add_listener(listener.into_raw_fd())
        .map_err(|error| error.to_string())?
        .register_service(create_task(Arc::from(service)));
    server.start().map_err(|error| error.to_string())?;
    say_ready()?;
    exit.wait();
    events.finish();
    let _ = std::fs::remove_file(address::path(&flags.socket));
    // The server's threads wait for each other. The answer to the request that ends us is on its way.
    std::thread::sleep(Duration::from_millis(20));
    std::process::exit(0);
}

/// Lets `start` go on, by closing the standard output that it reads.
fn say_ready() -> Result<(), String> {
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(|error| format!("standard output: {error}"))
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
