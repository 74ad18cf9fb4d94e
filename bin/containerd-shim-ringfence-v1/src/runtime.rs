//! Runs `ringfence`, one command for each step, and passes on its error message.

use crate::exits::Exits;
use crate::options::Settings;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// glibc's variable for the number of heaps: one is enough for the shim, because its threads do little.
pub(crate) const ARENAS: &str = "MALLOC_ARENA_MAX";

/// The log that `create` leaves in the bundle, where users look for failures.
const CREATE_LOG: &str = "log.json";

/// Tells the logs of commands that run at the same time apart.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// ringfence for one container.
#[derive(Debug)]
pub(crate) struct Runtime {
    binary: PathBuf,
    state_dir: PathBuf,
    flags: Vec<String>,
    bundle: PathBuf,
    exits: Arc<Exits>,
}

/// Standard streams of a container's process.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Runtime {
    pub(crate) fn new(
        settings: &Settings,
        namespace: &str,
        bundle: &Path,
        exits: Arc<Exits>,
    ) -> Result<Self, String> {
        Ok(Self {
            binary: settings.binary()?,
            state_dir: settings.state_dir(namespace),
            flags: settings.flags(),
            bundle: bundle.to_path_buf(),
            exits,
        })
    }

    /// Where ringfence keeps a container's state.
    pub(crate) fn state(&self, id: &str) -> PathBuf {
        self.state_dir.join(id)
    }

    /// Runs a command that takes over the standard streams: `create` and `exec`.
    pub(crate) fn hand_over(&self, args: &[&OsStr], streams: Option<Streams>) -> Result<(), String> {
        let create = args.first().is_some_and(|name| *name == "create");
        let log = self.bundle.join(if create { CREATE_LOG.into() } else { log_name() });
        let mut command = self.command(&log, args);
        match streams {
            Some(Streams { stdin, stdout, stderr }) => {
                command.stdin(stdin).stdout(stdout).stderr(stderr);
            }
            None => {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let status = self.exits.run(&mut command);
        // The command's copies of the streams go with it.
        drop(command);
        let told = last_error(&std::fs::read_to_string(&log).unwrap_or_default());
        if !create {
            let _ = std::fs::remove_file(&log);
        }
        self.judge(status, told)
    }

    /// Runs a command that ends by itself, and gives what it wrote.
    pub(crate) fn run(&self, args: &[&str], input: &[u8]) -> Result<String, String> {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        // In memory, not in pipes: some process that inherits them cannot make us wait.
        let (stdin, mut output) = memory()
            .and_then(|mut file| {
                file.write_all(input)?;
                file.rewind()?;
                Ok((file, memory()?))
            })
            .map_err(|error| format!("memfd: {error}"))?;
        let log = self.bundle.join(log_name());
        let mut command = self.command(&log, &args);
        let stdout = output.try_clone().map_err(|error| error.to_string())?;
        command.stdin(stdin).stdout(stdout).stderr(Stdio::null());
        let status = self.exits.run(&mut command);
        let told = last_error(&std::fs::read_to_string(&log).unwrap_or_default());
        let _ = std::fs::remove_file(&log);
        self.judge(status, told)?;
        let mut text = String::new();
        let read = output.rewind().and_then(|()| output.read_to_string(&mut text));
        read.map(|_| text).map_err(|error| format!("output of ringfence: {error}"))
    }

    fn command(&self, log: &Path, args: &[&OsStr]) -> Command {
        let mut command = Command::new(&self.binary);
        let flag = |name: &str, value: &Path| {
            let mut flag = OsString::from(name);
            flag.push(value);
            flag
        };
        command
            .arg(flag("--root=", &self.state_dir))
            .arg(flag("--log=", log))
            .arg("--log-format=json")
            .args(&self.flags)
            .args(args)
            // Meant for the shim.
            .env_remove(ARENAS);
        command
    }

    fn judge(&self, status: io::Result<i32>, told: Option<String>) -> Result<(), String> {
        match status {
            Ok(0) => Ok(()),
            Ok(status) => Err(told.unwrap_or_else(|| format!("ringfence ended with status {status}"))),
            Err(error) => Err(format!("{}: {error}", self.binary.display())),
        }
    }
}

fn memory() -> io::Result<File> {
    Ok(File::from(memfd_create("ringfence-shim", MemfdFlags::CLOEXEC)?))
}

fn log_name() -> String {
    format!("log-{}.json", SEQUENCE.fetch_add(1, Ordering::Relaxed))
}

/// The message of the last error in a log.
fn last_error(log: &str) -> Option<String> {
    log.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        (line["level"] == "error").then(|| line["msg"].as_str().map(str::to_owned)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_told() {
        let log = "{\"level\":\"error\",\"msg\":\"first\"}\n{\"level\":\"error\",\"msg\":\"second\"}\n\
                   {\"level\":\"warning\",\"msg\":\"third\"}\nhalf a li";
        assert_eq!(last_error(log).as_deref(), Some("second"));
        assert_eq!(last_error(""), None);
    }
}
