//! Running one program with a time limit.

use crate::HookNamespace;
use oci_spec::runtime::Hook;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::thread::move_into_link_name_space;
use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// As much of a failing hook's output as goes into the message.
const MAX_OUTPUT: usize = 4096;
/// How often a wait looks for signals.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a hook; the error is a line without the hook's name.
pub(crate) fn run(hook: &Hook, state: &[u8], namespaces: &[HookNamespace<'_>]) -> Result<(), String> {
    if namespaces.is_empty() {
        return run_here(hook, state);
    }
    // From a thread of its own in the namespaces: they are a thread's, and its children's. The thread stays until the
    // end, since the hook ends with the thread that started it.
    let inside = || {
        for namespace in namespaces {
            move_into_link_name_space(namespace.fd, Some(namespace.kind))
                .map_err(|error| error.to_string())?;
        }
        run_here(hook, state)
    };
    std::thread::scope(|scope| {
        let thread =
            Builder::new().spawn_scoped(scope, inside).map_err(|error| format!("no thread: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("its thread has failed".into()))
    })
}

fn run_here(hook: &Hook, state: &[u8]) -> Result<(), String> {
    // Files in memory, not pipes. A hook that does not read its input, or that leaves a process behind with its output
    // open, then blocks nothing.
    let file =
        || memfd_create("hook", MemfdFlags::CLOEXEC).map(File::from).map_err(|error| error.to_string());
    let (mut stdin, stdout, stderr) = (file()?, file()?, file()?);
    stdin.write_all(state).and_then(|()| stdin.rewind()).map_err(|error| error.to_string())?;
    let copy = |file: &File| file.try_clone().map(Stdio::from).map_err(|error| error.to_string());
    let mut command = Command::new(hook.path());
    command.stdin(copy(&stdin)?).stdout(copy(&stdout)?).stderr(copy(&stderr)?).process_group(0);
    let args = hook.args().as_deref().unwrap_or_default();
    if let Some((name, rest)) = args.split_first() {
        command.arg0(name).args(rest);
    }
    if let Some(env) = hook.env() {
        command.env_clear().envs(env.iter().filter_map(|entry| entry.split_once('=')));
    }
    hostsys::spawn::die_with_caller(&mut command);
    let mut child =
        command.spawn().map_err(|error| format!("exec {}: {}", hook.path().display(), reason(&error)))?;
    let limit = hook.timeout().and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
    let status = match wait(&mut child, limit) {
        Ok(End::Status(status)) => status,
        Ok(End::TimeOver) => {
            kill(&mut child);
            let seconds = limit.unwrap_or_default().as_secs_f64();
            return Err(format!("hook ran past specified timeout of {seconds:.1}s"));
        }
        Ok(End::Interrupted) => {
            kill(&mut child);
            return Err("interrupted by a signal".into());
        }
        Err(error) => {
            kill(&mut child);
            return Err(error.to_string());
        }
    };
    match status.success() {
        true => Ok(()),
        false => Err(format!("{}, stdout: {}, stderr: {}", describe(status), text(&stdout), text(&stderr))),
    }
}

/// Why a wait is over.
enum End {
    Status(ExitStatus),
    TimeOver,
    /// A signal that ends programs waits for this one, which has blocked it.
    Interrupted,
}

fn wait(child: &mut Child, limit: Option<Duration>) -> std::io::Result<End> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let fd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let left =
            deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()).min(LOOK));
        let patience = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)) {
            Ok(0) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => return Ok(End::TimeOver),
            Ok(0) if hostsys::signals::asked_to_end() => return Ok(End::Interrupted),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return child.wait().map(End::Status),
            Err(error) => return Err(error.into()),
        }
    }
}

fn kill(child: &mut Child) {
    // All that the hook started and that did not leave its group.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {signal}"),
        _ => status.to_string(),
    }
}

/// The beginning of an output on one line.
fn text(file: &File) -> String {
    let mut buffer = [0; MAX_OUTPUT];
    let length = file.read_at(&mut buffer, 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..length]).trim_end().escape_debug().to_string()
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}
