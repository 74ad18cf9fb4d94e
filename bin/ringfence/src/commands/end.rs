//! `ringfence kill`, `wait` and `delete`.

use crate::cli::{Delete, Global, Id, Kill};
use crate::record::{self, Kept};
use crate::{Failure, container, pod, say};
use bundle::Pod;
use cgroups::Manager;
use hooks::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::client::Client;
use sandbox::state::{Container, Record, Status};
use spec::Target;
use std::io;
use std::time::{Duration, Instant};

/// How long a sentry may take to end one container of several, before the process that stands for it is killed.
const INSIDE: Duration = Duration::from_secs(3);
/// How long the processes of a container may take to go after SIGKILL.
const END: Duration = Duration::from_secs(10);

pub(crate) fn kill(global: &Global, args: &Kill) -> Result<u8, Failure> {
    let signo = parse_signal(&args.signal)?;
    let (container, record) = container::find(global, &args.id)?;
    if record.state.status == Status::Stopped {
        // As runc has it: there is nobody left, which is what --all asks for.
        return if args.all { Ok(0) } else { Err("container not running".into()) };
    }
    let to = match (args.all, args.pid) {
        (true, _) => Target::All,
        (false, Some(pid)) => Target::Process(pid),
        (false, None) => Target::Init,
    };
    if signo == libc::SIGKILL && args.pid.is_none() {
        // Needs no help from inside, and takes every process along.
        end(&container, &record)?;
    } else if record::is_frozen(&record) {
        // Nobody answers now; the signal is there when the container goes on.
        container::connect(&container)?.post_signal(signo, to)?;
    } else {
        container::connect(&container)?.signal(signo, to)?;
    }
    Ok(0)
}

/// Kills the host process that everything of the container hangs on.
fn end(container: &Container, record: &Record) -> Result<(), Failure> {
    let Some(pid) = Pid::from_raw(record.state.pid) else { return Err("container not running".into()) };
    let gone = |error| match error {
        rustix::io::Errno::SRCH => Failure::from("container not running"),
        error => error.into(),
    };
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(gone)?;
    // The id cannot have been given to another process while the container still held its lock.
    if !container.is_alive() {
        return Err("container not running".into());
    }
    // A container in another one's sandbox ends inside first, so that nothing of it is left when its process goes.
    // Whether the sentry did what it says is looked at.
    let asked =
        |client: Client| client.hurry(INSIDE).is_ok() && client.signal(libc::SIGKILL, Target::All).is_ok();
    if matches!(pod::of(record), Pod::Member(_)) && container::connect(container).is_ok_and(asked) {
        let patience = Timespec { tv_sec: INSIDE.as_secs() as i64, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience)) == Ok(1) {
            return Ok(());
        }
    }
    pidfd_send_signal(&pidfd, Signal::KILL).map_err(gone)?;
    // A frozen process does not notice.
    if let Some(saved) = Kept::of(record).cgroups {
        let groups = Manager::load(saved);
        if groups.is_frozen() {
            groups.thaw()?;
        }
    }
    Ok(())
}

/// The same, for one that may end by itself meanwhile.
fn end_if_there(container: &Container, record: &Record) -> Result<(), Failure> {
    match end(container, record) {
        Err(failure) if container.is_alive() => Err(failure),
        _ => Ok(()),
    }
}

pub(crate) fn wait(global: &Global, args: &Id) -> Result<u8, Failure> {
    let (container, _) = container::find(global, &args.id)?;
    let status = container.wait_end()?;
    say(serde_json::json!({ "id": args.id, "exitStatus": status }))?;
    Ok(0)
}

pub(crate) fn delete(global: &Global, args: &Delete) -> Result<u8, Failure> {
    let root = container::state_dir(global);
    let container = match Container::at(&root, &args.id) {
        Some(container) => container,
        None if args.force => return Ok(0),
        None => return Err("container does not exist".into()),
    };
    let _lock = match container.lock() {
        Ok(lock) => lock,
        // Somebody else has just deleted it.
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.force => return Ok(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("container does not exist".into());
        }
        Err(error) => return Err(error.into()),
    };
    let mut ended = None;
    match container.read() {
        Ok(Some(mut record)) => {
            match record.state.status {
                Status::Stopped => {}
                // Its maker is gone, or we would not have the lock, and with it whatever it had started.
                Status::Creating => {}
                Status::Created => end_if_there(&container, &record)?,
                _ if args.force => end_if_there(&container, &record)?,
                status => {
                    return Err(format!(
                        "cannot delete container {} that is not stopped: {status}; stop it first, or use --force",
                        args.id
                    )
                    .into());
                }
            }
            wait_for_end(&container)?;
            if let Some(saved) = Kept::of(&record).cgroups {
                Manager::load(saved).destroy()?;
            }
            record.state.status = Status::Stopped;
            record.state.pid = 0;
            ended = Some((record::hooks_of(&container), record.state));
        }
        // Half a container, or a damaged one.
        Ok(None) if args.force || !container.is_alive() => end_unknown(global, &container, &args.id)?,
        Err(error) if args.force => {
            log::warn!("state of {}: {error}", args.id);
            end_unknown(global, &container, &args.id)?;
        }
        Ok(None) => {
            return Err(format!(
                "state of container {:?} is missing; remove it with delete --force",
                args.id
            )
            .into());
        }
        Err(error) => {
            return Err(
                format!("state of container {:?}: {error}; remove it with delete --force", args.id).into()
            );
        }
    }
    container.remove()?;
    if let Some((hooks, state)) = ended {
        record::run_later_hooks(&hooks, Kind::Poststop, &state);
    }
    Ok(0)
}

/// Ends a container whose state cannot be read: by the lock that it holds, and by the control groups of its configuration.
fn end_unknown(global: &Global, container: &Container, id: &str) -> Result<(), Failure> {
    let spec = bundle::load_spec(&container.path().join(bundle::CONFIG_FILE));
    let groups = spec.ok().and_then(|spec| record::manager(global, &spec, id).ok().flatten());
    for pid in container.holders().into_iter().filter_map(Pid::from_raw) {
        if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
    if let Some(groups) = groups.as_ref().filter(|groups| groups.is_frozen()) {
        groups.thaw()?;
    }
    wait_for_end(container)?;
    groups.map_or(Ok(()), |groups| Ok(groups.destroy()?))
}

fn wait_for_end(container: &Container) -> Result<(), Failure> {
    let deadline = Instant::now() + END;
    while container.is_alive() {
        if Instant::now() > deadline {
            return Err("the container's processes do not end; see what holds them with ps".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn parse_signal(text: &str) -> Result<i32, Failure> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = match text.parse::<i32>() {
        Ok(number) => Some(number),
        Err(_) => match name.strip_prefix("RTMIN") {
            Some("") => Some(libc::SIGRTMIN()),
            Some(more) => more.parse::<i32>().ok().map(|more| libc::SIGRTMIN() + more),
            None => NAMES.iter().position(|known| *known == name).map(|at| at as i32 + 1),
        },
    };
    match number {
        Some(number @ 0..=64) => Ok(number),
        _ => Err(format!("unknown signal {text:?}").into()),
    }
}
