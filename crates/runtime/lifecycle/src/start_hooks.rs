//! `startContainer` hooks: programs of the container, which run inside it as its own process would, right before that
//! process. The state is on their standard input.

use crate::directory::Container;
use crate::find::connect;
use crate::record::State;
use crate::{Result, caller, run_hooks};
use hooks::Kind;
use oci_spec::runtime::{Hook, Hooks, Process};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use spec::ProcessSpec;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// As much of a failing hook's output as goes into the message.
const MAX_OUTPUT: usize = 4096;

/// Runs them one after the other in a container that is set up and not started. The first that fails ends it.
pub(crate) fn run(found: &Container, hooks: &Hooks, state: &State) -> Result<()> {
    let list = Kind::StartContainer.of(hooks);
    if list.is_empty() {
        return Ok(());
    }
    let config = bundle::load_spec(&found.path().join(bundle::CONFIG_FILE))?;
    let Some(process) = config.process() else { return Err("process is missing".into()) };
    let profile = config.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
    let filter = profile.map(bundle::compile_seccomp).transpose()?.flatten();
    let told = serde_json::to_vec(&run_hooks::as_hooks_read_it(state))?;
    for (index, hook) in list.iter().enumerate() {
        let spec = ProcessSpec { seccomp: filter.clone(), ..spec_of(process, hook)? };
        one(found, hook, &spec, &told)
            .map_err(|reason| format!("error running startContainer hook #{index}: {reason}"))?;
    }
    Ok(())
}

/// The container's process with the hook's program, arguments and environment.
fn spec_of(process: &Process, hook: &Hook) -> Result<ProcessSpec> {
    let mut process = process.clone();
    let given = hook.args().iter().flatten().skip(1).cloned();
    let args = std::iter::once(hook.path().to_string_lossy().into_owned()).chain(given).collect();
    process.set_args(Some(args)).set_terminal(Some(false)).set_cwd("/".into());
    if let Some(env) = hook.env() {
        process.set_env(Some(env.clone()));
    }
    let mut spec = bundle::translate_process(&process)?;
    caller::inherit_limits(&mut spec);
    Ok(spec)
}

fn one(found: &Container, hook: &Hook, spec: &ProcessSpec, told: &[u8]) -> std::result::Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let file = || memfd_create("hook", MemfdFlags::CLOEXEC).map(File::from).map_err(|e| text(&e));
    let (mut stdin, stdout, stderr) = (file()?, file()?, file()?);
    stdin.write_all(told).map_err(|e| text(&e))?;
    seek(&stdin, SeekFrom::Start(0)).map_err(|e| text(&e))?;
    let client = connect(found).map_err(|e| text(&e))?;
    let files = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let attended = client.exec(spec, &files, None).map_err(|e| text(&e))?;
    let limit = hook.timeout().and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
    match attended.wait_at_most(limit).map_err(|e| text(&e))? {
        Some(0) => Ok(()),
        Some(status) => {
            Err(format!("exit status {status}, stdout: {}, stderr: {}", output(&stdout), output(&stderr)))
        }
        None => {
            let seconds = limit.unwrap_or_default().as_secs_f64();
            Err(format!("hook ran past specified timeout of {seconds:.1}s"))
        }
    }
}

/// The beginning of an output on one line.
fn output(file: &File) -> String {
    let mut buffer = [0; MAX_OUTPUT];
    let length = file.read_at(&mut buffer, 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..length]).trim_end().escape_debug().to_string()
}
