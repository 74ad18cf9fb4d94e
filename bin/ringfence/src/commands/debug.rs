//! `ringfence debug`: what a running container's kernel does.

use crate::cli::{Debug, Global, LogLevel, Strace};
use crate::commands::inspect;
use crate::{Failure, container, pod, say};
use hostsys::signals::SignalFd;
use profile::{Profile, Request};
use sandbox::state::{Record, Status};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

pub(crate) fn run(global: &Global, args: &Debug) -> Result<u8, Failure> {
    let (container, record) = container::find(global, &args.id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    if args.ps || args.log_level.is_some() || args.strace.is_some() {
        let client = container::connect(&container)?;
        if args.ps {
            inspect::table(&client.processes()?)?;
        }
        if args.log_level.is_some() || args.strace.is_some() {
            let strace = args.strace == Some(Strace::All) || args.log_level == Some(LogLevel::Info);
            client.log(args.log_level == Some(LogLevel::Debug), strace)?;
        }
    } else if args.profile.is_none() {
        return Err("say what to do: --ps, --log-level, --strace or --profile".into());
    }
    match &args.profile {
        Some(path) => write_profile(global, args, record, path),
        None => Ok(0),
    }
}

/// Samples the container's sandbox and writes what was found.
fn write_profile(global: &Global, args: &Debug, record: Record, path: &Path) -> Result<u8, Failure> {
    // Who interrupts it wants what there is so far.
    let stop = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])?;
    // Before a long wait for nothing.
    let mut output = Output::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let shown = record.state.pid;
    let init = pod::sandbox_of(global, record)?.state.pid;
    let request =
        Request { init, shown, frequency: args.frequency, duration: args.duration, stop: stop.as_fd() };
    let profile = profile::take(&request)?;
    let folded = path.extension().is_some_and(|ending| ending == "folded" || ending == "txt");
    let text = if folded { profile.folded() } else { profile.flame_graph(&title(&args.id, &profile)) };
    output.write(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let lost = if profile.lost > 0 { format!(", {} records lost", profile.lost) } else { String::new() };
    say(format_args!(
        "{}: {} samples of the guest and {} of the sentry in {:.1} s{lost}",
        path.display(),
        profile.guest,
        profile.sentry,
        profile.took.as_secs_f64()
    ))?;
    Ok(0)
}

fn title(id: &str, profile: &Profile) -> String {
    format!("{id}: processor time in {:.1} s", profile.took.as_secs_f64())
}

/// A file that is left as it was, or not there, until there is something to write.
struct Output<'a> {
    path: &'a Path,
    file: File,
    /// It was not there, and is still empty.
    new: bool,
}

impl<'a> Output<'a> {
    fn open(path: &'a Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).open(path) {
            Ok(file) => Ok(Self { path, file, new: true }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Self { path, file: OpenOptions::new().write(true).open(path)?, new: false })
            }
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        // Pipes and terminals have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())?;
        self.new = false;
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if self.new {
            let _ = std::fs::remove_file(self.path);
        }
    }
}
