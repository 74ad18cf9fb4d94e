//! The command line's grammar. Names follow runsc; global flags come before the subcommand.

use crate::{USAGE_ERROR, logs};
use bundle::Volume;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use spec::{Network, Overlay, PlatformName};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs containers, or single commands, under a kernel of their own.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version = VERSION, subcommand_required = true, arg_required_else_help = false, disable_version_flag = true, args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print the version
    #[arg(long, short = 'v', short_alias = 'V', action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// In the form in which clients read runc's: dockerd looks for the word "version".
const VERSION: &str = concat!("version ", env!("CARGO_PKG_VERSION"), "\nspec: 1.2.1");

/// Flags before the subcommand.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Directory for the state of containers [default: /run/ringfence, or below $XDG_RUNTIME_DIR when rootless]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Log what happens inside, to --debug-log or standard error
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) debug: bool,
    /// File for the sandbox's own log; %ID%, %TIMESTAMP% and %COMMAND% are replaced; a directory ends in /
    #[arg(long, value_name = "FILE")]
    pub(crate) debug_log: Option<String>,
    /// Log every system call of the container
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) strace: bool,
    /// What runs the container's code
    #[arg(long, value_enum, default_value_t = Platform::Systrap)]
    pub(crate) platform: Platform,
    /// Network of the container; none is the only mode so far
    #[arg(long, value_parser = parse_network, default_value = "none")]
    pub(crate) network: Network,
    /// Where writes go: MOUNT:MEDIUM with root:memory or all:memory, or none to write to the files themselves
    ///
    /// [default: root:memory for do, which never writes through; none for containers of a bundle]
    #[arg(long, value_parser = parse_overlay, value_name = "SPEC")]
    pub(crate) overlay2: Option<Overlay2>,
    /// Run without root's privileges, the caller being root inside; implied for ordinary users
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "true", value_name = "true|false|auto", value_parser = parse_rootless, action = clap::ArgAction::Set)]
    pub(crate) rootless: bool,
    /// File for errors and warnings of the command line [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Form of --log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Make no control groups; a limit in the configuration is then without effect
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) ignore_cgroups: bool,
    /// Have systemd make the control groups
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) systemd_cgroup: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Platform {
    /// System calls trapped by a signal, handed over in shared memory
    Systrap,
    /// ptrace(2): slow, simple
    Ptrace,
}

impl From<Platform> for PlatformName {
    fn from(platform: Platform) -> Self {
        match platform {
            Platform::Systrap => Self::Systrap,
            Platform::Ptrace => Self::Ptrace,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    Text,
    /// Lines of JSON
    Json,
}

/// What `--overlay2` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlay2 {
    pub(crate) root: Overlay,
    pub(crate) binds: Overlay,
}

fn parse_overlay(text: &str) -> Result<Overlay2, String> {
    let (root, binds) = match text {
        "none" => (Overlay::None, Overlay::None),
        "root:memory" => (Overlay::Memory, Overlay::None),
        "all:memory" => (Overlay::Memory, Overlay::Memory),
        _ => return Err("supported are root:memory, all:memory and none".into()),
    };
    Ok(Overlay2 { root, binds })
}

/// `auto` is what `false` is: an ordinary user has no other way.
fn parse_rootless(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" | "auto" => Ok(false),
        _ => Err("use true, false or auto".into()),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Some(interval) if !interval.is_zero() => Ok(interval),
        _ => Err("use a number greater than zero and ms, s, m or h, as 500ms or 1m30s".into()),
    }
}

/// A time as Go writes it: numbers with units, one after the other.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut left = text;
    let mut all = Duration::ZERO;
    while !left.is_empty() {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = left.split_at(digits);
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "\u{b5}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        all = all.checked_add(part)?;
        left = rest;
    }
    Some(all)
}

/// A number of bytes as runc takes it: with a unit of powers of 1024 (b, k, m, g, t, p, also as KB or KiB), or -1.
fn parse_bytes(text: &str) -> Result<i64, String> {
    let wrong =
        || format!("{text:?} is no number of bytes; write for example 536870912 or 512M, or -1 for no limit");
    if let Ok(number) = text.parse::<i64>() {
        return if number < -1 { Err(wrong()) } else { Ok(number) };
    }
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let unit = unit.trim_start().to_ascii_lowercase();
    let power = match unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * 1024f64.powi(power);
    if bytes < i64::MAX as f64 { Ok(bytes as i64) } else { Err(wrong()) }
}

fn parse_network(text: &str) -> Result<Network, String> {
    match text {
        "none" => Ok(Network::None),
        "sandbox" | "host" => Err("not supported yet; use --network=none".into()),
        _ => Err("unknown mode; use --network=none".into()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command on the host's files, read-only under a throw-away overlay
    Do(Do),
    /// Set a container up from an OCI bundle, to be started with start
    Create(Create),
    /// Start a container that was created
    Start(Id),
    /// Run a container from an OCI bundle
    Run(Run),
    /// Run another process in a container
    Exec(Exec),
    /// Write a new config.json
    Spec(Spec),
    /// Show what this runtime can do as JSON
    Features,
    /// Add this runtime to the Docker daemon's configuration
    Install(Install),
    /// Remove this runtime from the Docker daemon's configuration
    Uninstall(Uninstall),
    /// List containers
    List(List),
    /// Show a container's state as JSON
    State(Id),
    /// Show the processes of a container
    Ps(Ps),
    /// Send a signal to a container
    Kill(Kill),
    /// Wait for the end of a container and show its exit status
    Wait(Id),
    /// Remove what a container holds
    Delete(Delete),
    /// Stop all processes of a container for a while
    Pause(Id),
    /// Let the processes of a paused container go on
    Resume(Id),
    /// Change the limits of a container
    Update(Update),
    /// Show what a container uses, and when memory runs out
    Events(Events),
    /// Not there yet: fails
    #[command(hide = true, disable_help_flag = true)]
    Checkpoint(Absent),
    /// Not there yet: fails
    #[command(hide = true, disable_help_flag = true)]
    Restore(Absent),
    /// Change what a running sandbox logs, to its --debug-log; list its processes; profile it
    Debug(Debug),
}

/// A command line that is refused whatever it says.
#[derive(Debug, Args)]
pub(crate) struct Absent {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Do {
    /// Directory that becomes the root file system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Working directory [default: the current one, or / with --root]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Share a directory or file with the host, writable unless :ro
    #[arg(long, short = 'v', value_name = "SRC[:DST[:ro]]")]
    pub(crate) volume: Vec<Volume>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) args: Vec<String>,
}

/// What `create` and `run` have in common.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Directory of the bundle
    #[arg(long, short = 'b', value_name = "DIR", default_value = ".")]
    pub(crate) bundle: PathBuf,
    /// Socket that receives the container's terminal
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    /// File for the process id that stands for the container on the host
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Pass that many descriptors, from 3 on, to the container
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u32,
    /// Accepted as runc has it: a root file system in memory makes no difference here
    #[arg(long)]
    pub(crate) no_pivot: bool,
    /// Accepted as runc has it: there are no host keyrings inside
    #[arg(long)]
    pub(crate) no_new_keyring: bool,
    /// Name for the container
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) create: Create,
    /// Leave the container in the background
    #[arg(long, short = 'd')]
    pub(crate) detach: bool,
    /// Accepted as runc has it: no process of a container becomes the caller's child
    #[arg(long)]
    pub(crate) no_subreaper: bool,
    /// Keep the container's state after its end, for delete
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Socket that receives the process's terminal
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    /// Working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Add to the environment
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Run on a terminal
    #[arg(long, short = 't')]
    pub(crate) tty: bool,
    /// User and group by number
    #[arg(long, short = 'u', value_name = "UID[:GID]")]
    pub(crate) user: Option<String>,
    /// Supplementary groups
    #[arg(long, short = 'g', value_name = "GID")]
    pub(crate) additional_gids: Vec<u32>,
    /// The process as a JSON file, instead of a command line
    #[arg(long, short = 'p', value_name = "FILE")]
    pub(crate) process: Option<PathBuf>,
    /// Leave the process in the background
    #[arg(long, short = 'd')]
    pub(crate) detach: bool,
    /// File for the process id that stands for the process on the host
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// File for the process id inside the container
    #[arg(long, value_name = "FILE")]
    pub(crate) internal_pid_file: Option<PathBuf>,
    /// Set no_new_privs
    #[arg(long)]
    pub(crate) no_new_privs: bool,
    /// Add a capability
    #[arg(long, short = 'c', value_name = "CAP")]
    pub(crate) cap: Vec<String>,
    /// Pass that many descriptors, from 3 on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u32,
    /// Ignored with a warning: the host's AppArmor does not see the guest
    #[arg(long, value_name = "PROFILE")]
    pub(crate) apparmor: Option<String>,
    /// Ignored with a warning: the host's SELinux does not see the guest
    #[arg(long, value_name = "LABEL")]
    pub(crate) process_label: Option<String>,
    /// Control group below the container's own; / is the only one there is
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    /// Even in a paused container: the process then waits for resume
    #[arg(long)]
    pub(crate) ignore_paused: bool,
    /// The container's name
    pub(crate) id: String,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Form of the output
    #[arg(long, short = 'f', value_enum, default_value_t = ListFormat::Table)]
    pub(crate) format: ListFormat,
    /// The container's name
    pub(crate) id: String,
    /// Options of ps(1): the host's program lists, and of its rows those of the container are shown
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PS OPTIONS")]
    pub(crate) options: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Update {
    /// File with the limits in the form of the configuration's linux.resources, - for standard input
    #[arg(long, short = 'r', value_name = "FILE")]
    pub(crate) resources: Option<PathBuf>,
    /// Memory limit in bytes or with a unit (512M, 1g), -1 for none
    #[arg(long, short = 'm', value_name = "BYTES", allow_hyphen_values = true, value_parser = parse_bytes)]
    pub(crate) memory: Option<i64>,
    /// Memory that is kept for the container when the host runs short, likewise
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = parse_bytes)]
    pub(crate) memory_reservation: Option<i64>,
    /// Memory and swap together, likewise
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = parse_bytes)]
    pub(crate) memory_swap: Option<i64>,
    /// Processor time that may be used in a period, in microseconds
    #[arg(long, value_name = "US", allow_hyphen_values = true)]
    pub(crate) cpu_quota: Option<i64>,
    /// That period, in microseconds
    #[arg(long, value_name = "US")]
    pub(crate) cpu_period: Option<u64>,
    /// Processor time saved from earlier periods that may be used beyond the quota, in microseconds
    #[arg(long, value_name = "US")]
    pub(crate) cpu_burst: Option<u64>,
    /// 1: only what no other group wants (SCHED_IDLE), 0: as usual
    #[arg(long, value_name = "0|1", allow_hyphen_values = true)]
    pub(crate) cpu_idle: Option<i64>,
    /// Period of real-time scheduling, in microseconds
    #[arg(long, value_name = "US")]
    pub(crate) cpu_rt_period: Option<u64>,
    /// Time in that period, in microseconds
    #[arg(long, value_name = "US", allow_hyphen_values = true)]
    pub(crate) cpu_rt_runtime: Option<i64>,
    /// Weight against others
    #[arg(long, alias = "cpu-share", value_name = "N")]
    pub(crate) cpu_shares: Option<u64>,
    /// Processors
    #[arg(long, value_name = "LIST")]
    pub(crate) cpuset_cpus: Option<String>,
    /// Memory nodes
    #[arg(long, value_name = "LIST")]
    pub(crate) cpuset_mems: Option<String>,
    /// Most tasks, -1 for no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) pids_limit: Option<i64>,
    /// Weight for block devices
    #[arg(long, value_name = "N")]
    pub(crate) blkio_weight: Option<u16>,
    /// The container's name
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Show the figures once and end
    #[arg(long)]
    pub(crate) stats: bool,
    /// Time between figures, as 5s or 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "5s")]
    pub(crate) interval: Duration,
    /// The container's name
    pub(crate) id: String,
}

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
    /// Sample what the guest and its kernel spend processor time with, and write a flame graph (SVG), or folded stacks when
    /// FILE ends in .folded or .txt; needs root on the host
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// How long to sample, as 10s or 500ms; an interrupt ends it early
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "5s")]
    pub(crate) duration: Duration,
    /// Samples in a second, on each processor
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=i64::from(profile::MAX_FREQUENCY)), default_value_t = 99)]
    pub(crate) frequency: u32,
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

#[derive(Debug, Args)]
pub(crate) struct Spec {
    /// Directory to write config.json to
    #[arg(long, short = 'b', value_name = "DIR", default_value = ".")]
    pub(crate) bundle: PathBuf,
    /// Working directory of the process
    #[arg(long, default_value = "/")]
    pub(crate) cwd: String,
    /// For an ordinary user: a user namespace in which the caller is root
    #[arg(long)]
    pub(crate) rootless: bool,
    /// The process [default: sh]
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Install {
    #[command(flatten)]
    pub(crate) daemon: Uninstall,
    /// Replace a runtime of that name that is another program
    #[arg(long)]
    pub(crate) clobber: bool,
    /// Global flags that Docker is to start the runtime with
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAG")]
    pub(crate) flags: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    /// The daemon's configuration
    #[arg(long, alias = "config_file", value_name = "FILE", default_value = "/etc/docker/daemon.json")]
    pub(crate) config_file: PathBuf,
    /// Name of the runtime, as `docker run --runtime` takes it
    #[arg(long, value_name = "NAME", default_value = "ringfence")]
    pub(crate) runtime: String,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Form of the output
    #[arg(long, short = 'f', value_enum, default_value_t = ListFormat::Table)]
    pub(crate) format: ListFormat,
    /// Only ids
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// A table
    Table,
    /// JSON
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Id {
    /// The container's name
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// To every process of the container
    #[arg(long, short = 'a')]
    pub(crate) all: bool,
    /// To one process, by its id inside the container
    #[arg(long, value_name = "PID", conflicts_with = "all")]
    pub(crate) pid: Option<i32>,
    /// The container's name
    pub(crate) id: String,
    /// Signal, by number or name
    #[arg(default_value = "SIGTERM")]
    pub(crate) signal: String,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The container's name
    pub(crate) id: String,
    /// End it first if it runs
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
}

/// Parses the process's arguments; an error has been shown and gives the exit status.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let args = as_clap_takes_them(std::env::args_os());
    Cli::try_parse_from(&args).map_err(|error| {
        if !error.use_stderr() {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        // Clap's first line says what is wrong; the rest is the usage.
        let text = error.render().to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let what = lines.join(" ");
        let what = what.strip_prefix("error: ").unwrap_or(&what);
        let (log, format) = log_of(&args);
        let message = format!("{}; see ringfence --help", what.trim_end_matches(':'));
        logs::tell(log.as_deref(), format, &message);
        ExitCode::from(USAGE_ERROR)
    })
}

/// Where a command line that makes no sense wants its errors: the caller may look nowhere else.
fn log_of(args: &[OsString]) -> (Option<PathBuf>, LogFormat) {
    let Ok(found) = Cli::command().ignore_errors(true).try_get_matches_from(args) else {
        return (None, LogFormat::Text);
    };
    let log = found.try_get_one::<PathBuf>("log").ok().flatten().cloned();
    let format = found.try_get_one::<LogFormat>("log_format").ok().flatten().copied();
    (log, format.unwrap_or(LogFormat::Text))
}

/// Global flags as callers of runc and runsc write them: with a single dash, and `--rootless true` in two words.
fn as_clap_takes_them(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let grammar = Cli::command();
    let takes_value = |flag: &str| {
        let name = flag.trim_start_matches('-');
        grammar.get_arguments().any(|known| {
            known.get_long() == Some(name)
                && known.get_action().takes_values()
                && !known.is_require_equals_set()
        })
    };
    let mut args = args.into_iter().peekable();
    let mut taken: Vec<OsString> = args.next().into_iter().collect();
    while let Some(flag) = args.next_if(|arg| arg.as_encoded_bytes().starts_with(b"-")) {
        let Some(text) = flag.to_str() else {
            taken.push(flag);
            continue;
        };
        let short = text.len() <= 2 || text.starts_with("--");
        let mut text = if short { text.to_string() } else { format!("-{text}") };
        if takes_value(&text) {
            // In one word, as the value may begin with a dash.
            let mut whole = OsString::from(text);
            if let Some(value) = args.next() {
                whole.push("=");
                whole.push(value);
            }
            taken.push(whole);
            continue;
        }
        let value = |arg: &OsString| ["true", "false", "auto"].iter().any(|value| arg == value);
        if text == "--rootless"
            && let Some(value) = args.next_if(value)
        {
            text = format!("{text}={}", value.to_string_lossy());
        }
        taken.push(text.into());
    }
    taken.extend(args);
    taken
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes() {
        for (text, bytes) in [
            ("-1", -1),
            ("0", 0),
            ("77", 77),
            ("50M", 50 << 20),
            ("1.5g", 3 << 29),
            ("2KiB", 2048),
            ("3 kb", 3072),
        ] {
            assert_eq!(super::parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "-2", "M", "5x", "1e9", "99999p", "-5M", "1..2k"] {
            assert!(super::parse_bytes(text).is_err(), "{text}");
        }
    }

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn roots_are_told_apart() {
        let line = ["ringfence", "--root=/s", "--debug", "do", "--root", "/r", "ls", "-l", "--root", "x"];
        let cli = Cli::try_parse_from(line).unwrap();
        assert_eq!(cli.global.root.as_deref(), Some("/s".as_ref()));
        assert!(cli.global.debug && !cli.global.strace);
        let Command::Do(args) = cli.command else { panic!() };
        assert_eq!(args.root.to_str(), Some("/r"));
        assert_eq!(args.args, ["ls", "-l", "--root", "x"]);
    }

    #[test]
    fn times() {
        for (text, ms) in
            [("5s", 5000), ("1m30s", 90_000), ("1.5s", 1500), ("1h0m1s", 3_601_000), ("2000us", 2)]
        {
            assert_eq!(super::parse_interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "0s", "5", "-1s", "s", "1x", "1s1", "1e9s", "1..5s", "99999999999999999999h"] {
            assert!(super::parse_interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn global_flags_as_others_write_them() {
        let parse = |line: &[&str]| {
            let words = std::iter::once("ringfence").chain(line.iter().copied());
            Cli::try_parse_from(as_clap_takes_them(words.map(OsString::from)))
        };
        let cli = parse(&["-root", "/s", "-log=/l", "--rootless", "true", "-debug", "list", "-q"]).unwrap();
        assert_eq!(cli.global.root.as_deref(), Some("/s".as_ref()));
        assert!(cli.global.rootless && cli.global.debug && cli.global.log.is_some());
        assert!(parse(&["--rootless", "do", "true"]).unwrap().global.rootless);
        for line in [["--rootless", "auto", "list"], ["--rootless=false", "--debug", "list"]] {
            assert!(!parse(&line).unwrap().global.rootless, "{line:?}");
        }
        // A value is not a flag, and what follows the command is the command's.
        assert_eq!(parse(&["--root", "-abc", "list"]).unwrap().global.root.as_deref(), Some("-abc".as_ref()));
        let Command::Do(args) = parse(&["do", "ls", "-rootless"]).unwrap().command else { panic!() };
        assert_eq!(args.args, ["ls", "-rootless"]);
    }

    #[test]
    fn unsupported_values_are_refused() {
        for flag in ["--network=host", "--overlay2=root:self", "--platform=kvm", "--frobnicate"] {
            assert!(Cli::try_parse_from(["ringfence", flag, "list"]).is_err(), "{flag}");
        }
    }
}
