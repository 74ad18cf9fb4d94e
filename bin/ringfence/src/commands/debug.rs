//! `ringfence debug`: shows the activity of a running container's kernel.

use super::kill::parse_signal;
use super::ps;
use crate::output::{Output, say};
use crate::{USAGE_ERROR, values};
use clap::{Args, ValueEnum};
use hostsys::signals::SignalFd;
use lifecycle::debug::{self, SentryCore};
use lifecycle::{Error, Result, Settings};
use profile::{Profile, Request};
use spec::Refusal;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Debug {
    /// Log level: warning, info or debug
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
    /// Log system calls: all or off
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(crate) strace: Option<Strace>,
    /// Show the processes as the sandbox sees them
    #[arg(long)]
    pub(crate) ps: bool,
    /// Send a signal to the sandbox's own kernel, a process of the host, by number or name; most of them end it
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) signal: Option<String>,
    /// Refused: stacks come from --profile
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = values::refused("the kernel inside has threads of the host and no stacks of its own to show; --profile FILE.folded samples them"))]
    pub(crate) stacks: Option<String>,
    /// Refused
    #[arg(long, hide = true, value_parser = values::refused("a container's mounts are its configuration's; its programs can mount more"))]
    pub(crate) mount: Option<String>,
    /// Sample what the guest and its kernel spend processor time with, and write a flame graph (SVG), or folded stacks when
    /// FILE ends in .folded or .txt; needs root on the host
    #[arg(long, value_name = "FILE", value_parser = profile_name)]
    pub(crate) profile: Option<PathBuf>,
    /// How long to sample, as 10 (seconds), 10s or 500ms; an interrupt ends it early
    #[arg(long, value_name = "TIME", value_parser = values::seconds, default_value = "5s")]
    pub(crate) duration: Duration,
    /// Samples in a second, on each processor
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=i64::from(profile::MAX_FREQUENCY)), default_value_t = 99)]
    pub(crate) frequency: u32,
    /// Write what the programs of the sandbox asked for and did not get, as JSON: system calls, options and files that are missing
    #[arg(long)]
    pub(crate) coverage: bool,
    /// File for --coverage [default: standard output]
    #[arg(long, value_name = "FILE", requires = "coverage")]
    pub(crate) out: Option<PathBuf>,
    /// Write a core file of the sandbox's own kernel, for its developers; the sandbox stands still for 10 seconds at most
    #[arg(long, value_name = "FILE")]
    pub(crate) core: Option<PathBuf>,
    /// Have --core hold the memory that the kernel shares with the container's programs, too
    #[arg(long, requires = "core")]
    pub(crate) core_with_guest_memory: bool,
    /// Write a core file of a process of the container, by its process ID there; the process goes on
    #[arg(long, value_name = "PID", requires = "output", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) guest_core: Option<i32>,
    /// File for --guest-core
    #[arg(long, value_name = "FILE", requires = "guest_core")]
    pub(crate) output: Option<PathBuf>,
    /// The container's name
    pub(crate) id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Warnings and errors
    Warning,
    /// What --strace asks for, too
    Info,
    /// Everything
    Debug,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strace {
    /// Every system call
    All,
    /// None
    Off,
}

/// The file for a profile. Its ending says what is written; one of another kind of image would be no such image.
fn profile_name(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("png" | "jpg" | "jpeg" | "gif" | "webp" | "pdf" | "html" | "pprof" | "pb" | "gz" | "json") => {
            Err("a profile is an SVG, or folded stacks when the name ends in .folded or .txt".into())
        }
        _ => Ok(path),
    }
}

pub(crate) fn run(settings: &Settings, args: &Debug) -> Result<()> {
    let nothing = args.log_level.is_none() && args.strace.is_none() && args.signal.is_none();
    let nothing = nothing && args.core.is_none() && args.guest_core.is_none();
    if nothing && !args.ps && !args.coverage && args.profile.is_none() {
        let text = "say what to do: --ps, --log-level, --strace, --profile, --coverage, --core, --guest-core or --signal";
        return Err(Error::with_status(USAGE_ERROR, text));
    }
    let signal = args.signal.as_deref().map(parse_signal).transpose()?;
    debug::check_runs(settings, &args.id)?;
    if args.ps {
        ps::table(&debug::processes(settings, &args.id)?)?;
    }
    if args.log_level.is_some() || args.strace.is_some() {
        let strace = args.strace == Some(Strace::All) || args.log_level == Some(LogLevel::Info);
        debug::set_log(settings, &args.id, args.log_level == Some(LogLevel::Debug), strace)?;
    }
    if let Some(path) = &args.profile {
        write_profile(settings, args, path)?;
    }
    if args.coverage {
        write_coverage(settings, args)?;
    }
    if let (Some(pid), Some(path)) = (args.guest_core, &args.output) {
        write_guest_core(settings, &args.id, pid, path)?;
    }
    if let Some(path) = &args.core {
        write_core(settings, args, path)?;
    }
    signal.map_or(Ok(()), |signo| debug::signal_sentry(settings, &args.id, signo))
}

/// Samples the container's sandbox and writes what was found.
fn write_profile(settings: &Settings, args: &Debug, path: &Path) -> Result<()> {
    // An interrupt ends the sampling early; what there is so far is written.
    let stop = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])?;
    // Before a long wait for nothing.
    let mut output = Output::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let host = debug::host_processes(settings, &args.id)?;
    let request = Request {
        init: host.init,
        shown: host.container,
        frequency: args.frequency,
        duration: args.duration,
        stop: stop.as_fd(),
    };
    let profile = profile::take(&request).map_err(|error| error.to_string())?;
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
    match profile::missing_symbols() {
        Some(file) => say(format_args!(
            "the kernel's functions are not named: its symbols are not there ({})",
            file.display()
        )),
        None => Ok(()),
    }
}

fn write_coverage(settings: &Settings, args: &Debug) -> Result<()> {
    let text = coverage(&args.id, debug::refusals(settings, &args.id)?)?;
    let Some(path) = &args.out else { return say(text) };
    let wrong = |error| format!("{}: {error}", path.display());
    Ok(Output::open(path).map_err(wrong)?.write(&format!("{text}\n")).map_err(wrong)?)
}

/// One file for a report: what was asked for and is not there, by kind, and the versions.
pub(crate) fn coverage(id: &str, refusals: Vec<Refusal>) -> Result<String> {
    let mut kinds: BTreeMap<String, Vec<serde_json::Value>> = BTreeMap::new();
    for Refusal { kind, what, count } in refusals {
        kinds.entry(kind).or_default().push(serde_json::json!({ "what": what, "count": count }));
    }
    Ok(serde_json::to_string_pretty(&serde_json::json!({
        "container": id,
        "version": env!("CARGO_PKG_VERSION"),
        "host": rustix::system::uname().release().to_string_lossy(),
        "missing": kinds,
    }))?)
}

/// Stops the sandbox's kernel and writes its core file.
fn write_core(settings: &Settings, args: &Debug, path: &Path) -> Result<()> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let stop = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])?;
    let mut output = Output::private(path).map_err(|error| wrong(&error))?;
    let wanted = SentryCore {
        file: output.file(),
        with_guest_memory: args.core_with_guest_memory,
        stop: stop.as_fd(),
    };
    let written = debug::sentry_core(settings, &args.id, &wanted).map_err(|error| wrong(&error))?;
    output.keep();
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    say(format_args!(
        "{}: {} threads, {} MiB of memory; the sandbox was stopped for {:.2} s",
        path.display(),
        written.threads,
        mib(written.bytes),
        written.stopped.as_secs_f64()
    ))?;
    if written.left_out > 0 {
        return Err(format!(
            "{}: {} MiB are missing, since writing took longer than {} seconds: name a file on a faster disk",
            path.display(),
            mib(written.left_out),
            debug::LONGEST_STOP.as_secs()
        )
        .into());
    }
    Ok(())
}

/// Writes the core file of a process inside.
fn write_guest_core(settings: &Settings, id: &str, pid: i32, path: &Path) -> Result<()> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let stop = SignalFd::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])?;
    let mut output = Output::private(path).map_err(|error| wrong(&error))?;
    let written = debug::guest_core(settings, id, pid, output.file(), stop.as_fd());
    let (threads, missing) = written.map_err(|error| wrong(&error))?;
    output.keep();
    say(format_args!("{}: {threads} threads", path.display()))?;
    match missing {
        0 => Ok(()),
        n => Err(format!("{}: {n} threads are missing: they did not come to a stop", path.display()).into()),
    }
}

fn title(id: &str, profile: &Profile) -> String {
    format!("{id}: processor time in {:.1} s", profile.took.as_secs_f64())
}
